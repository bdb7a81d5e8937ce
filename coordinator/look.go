package coordinator

import (
	"context"
	"maps"
	"math"
	"slices"
	"time"

	"github.com/quorate/quorate/pkg/rollout"
)

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
	seen := l.sight.seen
	state := rollout.State{Set: seen.Set, Pods: seen.Pods, Self: l.c.self.Pod, Etcd: etcd,
		NoLock: !l.c.owned(), InWindow: l.c.cfg.Policy.DefragmentWindow.Contains(time.Now()),
		Sidecars: rollout.Sidecars{Known: true}} // The turn finds out who else is there.
	if etcd.Known {
		l.judged = l.leavers
	}
	joined := rollout.Assess(state, l.c.cfg.Policy)
	l.c.journal.Metrics.Databases(joined.Fullest())
	// What the last turn could not do is left alone for as long as that member leads.
	maps.DeleteFunc(l.sight.untransferred, func(id uint64, _ int) bool { return id != joined.Leader })
	l.looked.failedTransfers = l.sight.untransferred
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
	return d.Beside() && !l.c.workload.Held(), d.Duty == rollout.DutyRoll && d.Action == rollout.Complete{} &&
		(!told || l.sight.suspect != nil && l.sight.suspect.Gone(etcd))
}
