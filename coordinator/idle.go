package coordinator

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"slices"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/quorate/quorate/internal/record"
	"github.com/quorate/quorate/internal/report"
	"github.com/quorate/quorate/internal/workload"
	"github.com/quorate/quorate/pkg/rollout"
)

// idle waits for news of a rollout, or of another duty, for as long as it may be ours. News of a claim on
// the Lease is none, so while one may still land late, it waits no longer than that.
func (l *loop) idle(ctx context.Context) {
	check := time.NewTicker(l.c.cfg.FallbackAfter)
	defer check.Stop()
	unlocked := time.NewTimer(time.Until(l.nextLook()))
	defer unlocked.Stop()
	l.c.idling.Store(true)
	defer l.c.idling.Store(false)
	looking, stop := context.WithCancel(ctx)
	defer stop() // Whoever hangs must not keep us from a rollout.
	answers := make(chan rollout.Membership, 1)
	for l.ours() {
		select {
		case <-ctx.Done():
			return
		case <-l.c.changed:
			return
		case <-l.c.looks:
			l.observer.watches.running.Go(func() { l.look(looking, answers) })
		case <-unlocked.C:
			unlocked.Reset(addressesEvery)
			if !l.c.owned() {
				l.observer.watches.running.Go(func() { l.look(looking, answers) })
			}
		case etcd := <-answers:
			l.c.looked = time.Now()
			blind := l.observer.watches.blind.Load()
			if blind { // What an operator asks for is then seen only by reading the Lease.
				l.c.requested.Store(true)
			}
			if l.found, l.untold = l.duty(etcd); l.found || l.untold || blind {
				return
			}
		case <-check.C: // Keep-alives may be answered again.
			if l.word.open && !time.Now().Before(l.word.until) {
				return // Look at the record once more, for a last word.
			}
		}
	}
}

// nextLook is when a sidecar without the lock looks at an idle cluster next. Without a session nobody else keeps up
// with the members, and the alarm NOSPACE may be why there is none. But when etcd has only been silent for a moment, as
// in an election, all sidecars would connect to all members at once. So the first look waits until the session is lost.
func (l *loop) nextLook() time.Time {
	lost, next := l.c.election.Confirmed().Add(l.c.cfg.LockTTL), l.c.looked.Add(addressesEvery)
	if lost.After(next) {
		return lost
	}
	return next
}

// look asks etcd how its members are, for a cluster that idles. It never takes longer than two probes.
func (l *loop) look(ctx context.Context, answers chan<- rollout.Membership) {
	members := l.c.members()
	defer members.Close()
	etcd, err := members.Observe(ctx)
	if err != nil {
		l.c.log.WithError(err).Debug("no member list")
	}
	l.c.remember(members.MemberURLs())
	select {
	case answers <- etcd:
	default: // Nobody has looked at the last answer yet.
	}
}

// duty says whether a duty is due beside the rollout, or whether what is told of the members is not true any
// more, so that a turn has to tell it. Kubernetes is asked nothing: the pods are those of the last reading,
// and a watch on the StatefulSet follows what becomes of them. Nothing is done on this, because a turn reads
// everything live.
func (l *loop) duty(etcd rollout.Membership) (due, untold bool) {
	seen := l.seen
	state := l.c.join(seen, nil, etcd).state
	state.Sidecars = rollout.Sidecars{Known: true} // The turn finds out who else is there.
	if etcd.Known {
		l.judged = l.leavers
	}
	joined := rollout.Assess(state, l.c.cfg.Policy)
	l.c.journal.Metrics.Databases(joined.Fullest())
	// What the last turn could not do is left alone for as long as that member leads.
	maps.DeleteFunc(l.untransferred, func(id uint64, _ int) bool { return id != joined.Leader })
	l.looked.failedTransfers = l.untransferred
	sightings := joined.Sightings()
	if state.NoLock { // Then no watch follows the pods, and a cordon may have ended and begun anew.
		sightings = slices.DeleteFunc(sightings, func(s rollout.Sighting) bool {
			return s.Condition == rollout.CordonedSeen
		})
	}
	remembered := l.looked.recall(time.Now(), time.Time{}, sightings, seen.Pods)
	for s := range remembered.Ages {
		if s.Condition == rollout.ReadySeen {
			remembered.Ages[s] = math.MaxInt64 // Nobody has looked for a minute. The turn sees for how long, and waits.
		}
	}
	d := joined.Decide(remembered)
	told := l.c.journal.Ghosts(joined)
	if d.Duty == rollout.DutyHeld {
		return false, false
	}
	// What keeps a rollout would keep the turn as well, for what is only told. It does not keep another duty, but
	// the operator's controls do. A turn reads them live; here they only save the reading.
	return d.Beside() && !l.observer.watches.held.Load(),
		d.Duty == rollout.DutyRoll && d.Action == rollout.Complete{} &&
			(!told || l.suspect != nil && l.suspect.Gone(etcd))
}

// holdsAll is true for controls that hold everything.
func holdsAll(c rollout.Controls) bool { return c.Paused || len(c.Bad) > 0 }

// followLease watches the Lease for what operators and other coordinators write there. It needs no look at what the
// coordinator itself writes.
//
// The API server may refuse it, to a sidecar with an older Role. Then an idle one reads the Lease once a minute, and
// one that coordinates reads everything at every look.
func (w *watches) followLease(ctx context.Context) {
	if w.unwatchLease != nil {
		return
	}
	ctx, w.unwatchLease = context.WithCancel(ctx)
	w.running.Go(func() {
		_, refused, works := w.calls(report.AtWatchLease, "the Lease")
		ended := func() {
			w.blind.Store(false)
			works()
		}
		defer ended()
		failed := func(err error) {
			w.blind.Store(true)
			w.held.Store(false)
			refused(err)
		}
		opts := metav1.ListOptions{
			FieldSelector: fields.OneTermEqualSelector("metadata.name", record.Name(w.c.cfg.StatefulSet)).String(),
		}
		var asked, said string
		told := func(e watch.Event) {
			lease, ok := e.Object.(*coordinationv1.Lease)
			if !ok {
				return
			}
			w.held.Store(e.Type != watch.Deleted && holdsAll(record.Controls(lease)))
			if now := record.Requested(lease); now != asked {
				if asked = now; asked != "" {
					w.c.requested.Store(true)
					w.c.trigger()
				}
			}
			if now := saidByOthers(lease); now != said {
				said = now
				w.c.trigger()
			}
		}
		// While there is no Lease, an open watch tells nothing.
		workload.Watch{
			Open: w.c.cfg.Leases.Watch, Options: opts, Into: &w.c.lease, Opened: ended, Told: told, Failed: failed,
		}.Keep(ctx)
	})
}

func (w *watches) unfollowLease() {
	if w.unwatchLease != nil {
		w.unwatchLease()
		w.unwatchLease = nil
	}
}

// saidByOthers is what a coordinator has to know of the Lease that it has not written itself: who holds the record,
// and the operator's controls.
func saidByOthers(lease *coordinationv1.Lease) string {
	r := record.Parse(lease)
	controls, _ := json.Marshal(record.Controls(lease)) // It has pointers.
	return fmt.Sprint(r.Holder, r.Epoch, string(controls))
}
