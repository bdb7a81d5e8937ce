package coordinator

import (
	"cmp"
	"context"
	"sync"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"

	"github.com/quorate/quorate/internal/record"
	"github.com/quorate/quorate/internal/workload"
)

// viewLasts is for how long looks may go by what the watches tell before everything is read live again. Whoever
// stands between us and the API server can lose an event, and nobody would ever know. It is no longer than
// settle-timeout, so that nothing seems to have lasted that long only because a watch hangs. When a rollout begins,
// looks may go by it for a little longer (see begins).
func (c *Coordinator) viewLasts() time.Duration {
	return min(5*time.Minute, c.cfg.Policy.SettleTimeout)
}

// beginning is for how long a rollout that begins may go by an older one: about as long as it takes to claim the
// record. What it removes first is confirmed by a live reading. If there is nothing to do in that time, everything is
// read live.
const beginning = 10 * time.Second

// begins lets the first looks of a rollout go by what the watches tell, however long the cluster has idled.
func (o *observer) begins() {
	if until := time.Now().Add(min(beginning, o.c.viewLasts())); until.After(o.fresh) {
		o.fresh, o.unread = until, true
	}
}

// readLive notes that everything has just been read live.
func (o *observer) readLive() { o.fresh, o.unread = time.Now().Add(o.c.viewLasts()), false }

// expire has the next look read everything live.
func (o *observer) expire() { o.fresh = time.Time{} }

// stale is true once looks have gone by what the watches tell for long enough.
func (o *observer) stale() bool { return time.Now().After(o.fresh) }

// cachedView is what the watches tell of all that a look reads in Kubernetes. It may lag behind. So it may only keep a
// rollout waiting: whatever is to be done is confirmed by a live reading first (see confirm).
type cachedView struct {
	lease *coordinationv1.Lease
	seen  workload.Observation
	// live is the live reading that is to confirm it, nil before that has begun.
	live *workload.Confirmation
}

// read begins the live reading, unless that has begun already. It returns a function that gives up what nobody waits
// for.
func (v *cachedView) read(ctx context.Context, c *Coordinator) (end func()) {
	if v.live != nil {
		return func() {}
	}
	ctx, cancel := context.WithTimeout(ctx, c.cfg.RequestTimeout)
	live := c.workload.Confirm(ctx, v.seen)
	v.live = live
	return func() { cancel(); _, _ = live.Wait() }
}

// cached returns nil if there is no view of everything: something is not being watched, nothing was read live for long,
// or there is more to do than to roll.
func (o *observer) cached() *cachedView {
	cached := o.c.workload.Cached()
	if !cached.Complete() || o.stale() {
		return nil
	}
	r := record.Parse(cached.Lease)
	if r.Intent.Operation != record.None || r.Suspect != nil || record.Requested(cached.Lease) != "" {
		return nil
	}
	return &cachedView{lease: cached.Lease, seen: cached.Seen}
}

// confirm reads live what was decided on by a cached view, and meanwhile asks for the eviction. If anything has
// changed, it returns what is there now.
//
// If nothing has, the evidence is as good as that of a live look, which reads the pods before it asks the members. No
// resourceVersion ever comes back, so the pods were as they were told and read when the members were asked. It does not
// matter whether the reading was over before the members had answered. The record needs no reading, because whatever is
// done begins with a swap, which fails if the Lease has changed.
func (o *observer) confirm(ctx context.Context, seen observation, d *decision) (observation, error) {
	reading, cancel := context.WithTimeout(ctx, o.c.cfg.RequestTimeout)
	defer cancel()
	var asking sync.WaitGroup
	var berr error
	said, faults := seen.budget, seen.faults
	if d.lacks == confirmationAndBudget {
		asking.Go(func() { said, faults, berr = o.askBudget(ctx, &seen, d) })
	}
	defer seen.view.read(ctx, o.c)()
	now, err := seen.view.live.Wait()
	if err == nil {
		o.c.workload.ReadNodes(reading, &now)
	}
	asking.Wait()
	if seen.budget, seen.faults = said, faults; cmp.Or(err, berr) != nil {
		return seen, cmp.Or(err, berr)
	}
	if !now.Same(seen.view.seen) {
		seen.changed = &now
		return seen, nil
	}
	o.readLive()
	seen.workload, seen.confirmed, seen.unread = now, true, false
	return seen, nil
}
