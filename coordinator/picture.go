package coordinator

import (
	"cmp"
	"context"
	"reflect"
	"slices"
	"sync"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"

	"github.com/quorate/quorate/internal/record"
	"github.com/quorate/quorate/internal/workload"
	"github.com/quorate/quorate/pkg/rollout"
)

// pictureLasts is for how long looks may go by what the watches tell before everything is read live again. Whoever
// stands between us and the API server can lose an event, and nobody would ever know. It is no longer than
// settle-timeout, so that nothing seems to have lasted that long only because a watch hangs. When a rollout begins,
// looks may go by it for a little longer (see begins).
func (c *Coordinator) pictureLasts() time.Duration {
	return min(5*time.Minute, c.cfg.Policy.SettleTimeout)
}

// beginning is for how long a rollout that begins may go by an older picture: about as long as it takes to claim the
// record. What it removes first is confirmed by a live reading. If there is nothing to do in that time, everything is
// read live.
const beginning = 10 * time.Second

// begins lets the first looks of a rollout go by what the watches tell, however long the cluster has idled.
func (o *observer) begins() {
	if until := time.Now().Add(min(beginning, o.c.pictureLasts())); until.After(o.fresh) {
		o.fresh, o.unread = until, true
	}
}

// readLive notes that everything has just been read live.
func (o *observer) readLive() { o.fresh, o.unread = time.Now().Add(o.c.pictureLasts()), false }

// stale is true once looks have gone by what the watches tell for long enough.
func (o *observer) stale() bool { return time.Now().After(o.fresh) }

// picture is what the watches tell of all that a look reads in Kubernetes. It may lag behind. So it may only keep a
// rollout waiting: whatever is to be done is confirmed by a live reading first (see confirm).
type picture struct {
	lease *coordinationv1.Lease
	seen  workload.Observation
	// live is the live reading that is to confirm it, nil before that has begun.
	live *workload.Confirmation
}

// read begins the live reading, unless that has begun already. It returns a function that gives up what nobody waits
// for.
func (p *picture) read(ctx context.Context, c *Coordinator) (end func()) {
	if p.live != nil {
		return func() {}
	}
	ctx, cancel := context.WithTimeout(ctx, c.cfg.RequestTimeout)
	live := c.workload.Confirm(ctx, p.seen)
	p.live = live
	return func() { cancel(); _, _ = live.Wait() }
}

// promises is true where a look at etcd may well lead to a removal: every pod is Ready, and this is the first look that
// sees it, or the first after leadership has moved. The live reading then begins with the look, so that a rollout waits
// for the slower of the two and not for both. It costs two requests in vain where it leads to something else after all.
func (o *observer) promises(p *picture) bool {
	before := o.sight.decision
	_, moved := before.Action.(rollout.MoveLeader)
	if c := record.Controls(p.lease); c.HoldAll() || c.Partition != nil ||
		!moved && reflect.DeepEqual(p.seen.Pods, o.promised) || len(p.seen.Pods) != p.seen.Set.Replicas {
		return false
	}
	o.promised = p.seen.Pods
	var outdated []string
	for i := range p.seen.Pods {
		pod := &p.seen.Pods[i]
		if !pod.Owned || !pod.Ready || pod.Terminating {
			return false
		}
		if pod.Revision != p.seen.Set.UpdateRevision {
			outdated = append(outdated, pod.Name)
		}
	}
	switch {
	case len(outdated) == 0: // The rollout is over.
		return false
	case len(outdated) < len(p.seen.Pods) && slices.Contains(outdated, o.c.self.Pod): // Updated code is to go on.
		return false
	case len(outdated) > 1 || moved || before.Assessment == nil:
		return true
	}
	// The leader is the last to go, after it has handed over.
	return !slices.ContainsFunc(before.Assessment.Replicas, func(s rollout.Replica) bool {
		return s.Leader && s.Name == outdated[0]
	})
}

// picture returns nil if this look has to read everything live: something is not being watched, nothing was read live
// for long, there is more to do than to roll, nothing comes from an outdated pod, or a pod has just been removed while
// no member answers. The next one is then due at once. Members that hang take seconds, and in that time the pod that
// goes would change the picture.
func (o *observer) picture() *picture {
	cached := o.c.workload.Cached()
	_, removed := o.sight.decision.Action.(rollout.Remove)
	inNeed := removed && o.sight.etcd.Silent()
	if !cached.Complete() || inNeed || o.sight.brief || o.stale() ||
		o.sight.memory.needsReading(time.Now(), cached.Seen) {
		return nil
	}
	r := record.Parse(cached.Lease)
	if r.Intent.Operation != record.None || r.Suspect != nil || record.Requested(cached.Lease) != "" {
		return nil
	}
	return &picture{lease: cached.Lease, seen: cached.Seen}
}

// confirm reads live what was decided on by a picture, and meanwhile asks for the eviction. It returns false if
// anything has changed.
//
// If nothing has, the evidence is as good as that of a live look, which reads the pods before it asks the members. No
// resourceVersion ever comes back, so the pods were as they were told and read when the members were asked. It does not
// matter whether the reading was over before the members had answered. The record needs no reading, because whatever is
// done begins with a swap, which fails if the Lease has changed.
func (o *observer) confirm(ctx context.Context, p *picture, d rollout.Decision, ask bool) (same bool,
	refused rollout.Refusal, err error) {
	reading, cancel := context.WithTimeout(ctx, o.c.cfg.RequestTimeout)
	defer cancel()
	var asking sync.WaitGroup
	var berr error
	if ask {
		asking.Go(func() { refused, berr = o.askBudget(ctx, d) })
	}
	defer p.read(ctx, o.c)()
	seen, err := p.live.Wait()
	if err == nil {
		o.c.workload.ReadNodes(reading, &seen)
	}
	asking.Wait()
	if err = cmp.Or(err, berr); err != nil {
		return false, refused, err
	}
	if same = seen.Same(p.seen); same {
		o.sight.seen = seen
		o.readLive()
	} else {
		o.sight.memory.doubt(p.seen, seen)
	}
	return same, refused, nil
}
