package coordinator

import (
	"context"
	"maps"
	"math"
	"slices"
	"strings"
	"time"

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
			l.looking.Go(func() { l.look(looking, answers) })
		case <-unlocked.C:
			unlocked.Reset(addressesEvery)
			if !l.c.owned() {
				l.looking.Go(func() { l.look(looking, answers) })
			}
		case etcd := <-answers:
			l.c.looked = time.Now()
			blind := l.c.workload.Blind()
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
	return d.Beside() && !l.c.workload.Held(),
		d.Duty == rollout.DutyRoll && d.Action == rollout.Complete{} &&
			(!told || l.suspect != nil && l.suspect.Gone(etcd))
}

// follow watches the pods and their nodes between rollouts, which only the lock's owner does. Where the StatefulSet
// controller rolls the pods, we do nothing beside it, and there is nothing to watch for.
func (l *loop) follow() {
	if !l.c.owned() {
		return
	}
	if !l.seen.Set.OnDelete {
		l.c.workload.FollowLease()
		l.c.workload.Unfollow()
		return
	}
	l.c.workload.Follow(l.seen)
}

// noteLeavers asks for a look at etcd when somebody new is about to go: it may be the leader.
func (l *loop) noteLeavers(pods []rollout.Pod) {
	var leavers []string
	for i := range pods {
		if p := &pods[i]; p.Owned && (p.Leaving != "" || p.Cordoned) {
			leavers = append(leavers, p.UID+p.Leaving)
		}
	}
	if l.leavers = strings.Join(leavers, " "); l.leavers == "" || l.leavers == l.judged || !l.c.owned() {
		return
	}
	wake(l.c.looks)
}
