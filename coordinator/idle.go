package coordinator

import (
	"context"
	"maps"
	"math"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/quorate/quorate/internal/record"
	"github.com/quorate/quorate/internal/workload"
	"github.com/quorate/quorate/pkg/rollout"
)

// lateWrites is how long a claim may still be written after its sender has given up on it or
// has ended. It is twice as long as an API server lets a request take.
const lateWrites = 2 * time.Minute

// lastWord is open until the loop has seen that nothing is to be done, and again when it could not
// finish what was. The record may say that a rollout is under way although the pods no longer show
// one. A claim that nobody knows of, our own or an earlier coordinator's, may still be written until
// then. What is seen before that is not the last word, and no watch covers the Lease.
type lastWord struct {
	open  bool
	until time.Time
}

// idler waits while nothing is due. It looks at etcd now and then, because another duty may be.
type idler struct {
	c *Coordinator
	// looked is what is remembered of those looks. Of pods, that shares no more than the cordons with turns, because
	// the looks see the pods as they last were.
	looked *tracker
	// untransferred are the transfers of leadership that had failed at the end of the last turn.
	untransferred rollout.Failures
	// leavers are the pods that were about to go at the last reading, and why. judged are those for which etcd
	// has been asked whether one of them leads.
	leavers, judged string
	// looking are the looks that have not ended yet.
	looking sync.WaitGroup
}

// carried is what the loop carries from turn to turn: the workload as it was last read, the suspect that the record
// names, as last read or written, and whether the last word on the record is open.
type carried struct {
	workload workload.Observation
	suspect  *record.Member
	word     lastWord
}

// findings are those of the last look since the last turn.
type findings struct {
	// duty is true when a duty is due, or an operator asks for one.
	duty bool
	// untold is true when the look has found something that the Lease does not tell.
	untold bool
}

// idle waits for news of a rollout, or of another duty, for as long as it may be ours. News of a claim on
// the Lease is none, so while one may still land late, it waits no longer than that. It returns what the last
// look has found, or else what had been found before.
func (i *idler) idle(ctx context.Context, k *carried, last findings) findings {
	check := time.NewTicker(i.c.cfg.FallbackAfter)
	defer check.Stop()
	unlocked := time.NewTimer(time.Until(i.nextLook()))
	defer unlocked.Stop()
	i.c.idling.Store(true)
	defer i.c.idling.Store(false)
	looking, stop := context.WithCancel(ctx)
	defer stop() // Whoever hangs must not keep us from a rollout.
	answers := make(chan rollout.Membership, 1)
	for i.c.ours() {
		select {
		case <-ctx.Done():
			return last
		case <-i.c.changed:
			return last
		case <-i.c.looks:
			i.looking.Go(func() { i.look(looking, answers) })
		case <-unlocked.C:
			unlocked.Reset(addressesEvery)
			if !i.c.owned() {
				i.looking.Go(func() { i.look(looking, answers) })
			}
		case etcd := <-answers:
			i.c.looked = time.Now()
			blind := i.c.workload.Blind()
			if blind { // What an operator asks for is then seen only by reading the Lease.
				i.c.requested.Store(true)
			}
			if last = i.duty(etcd, k); last.duty || last.untold || blind {
				return last
			}
		case <-check.C: // Keep-alives may be answered again.
			if k.word.open && !time.Now().Before(k.word.until) {
				return last // Look at the record once more, for a last word.
			}
		}
	}
	return last
}

// nextLook is when a sidecar without the lock looks at an idle cluster next. Without a session nobody else keeps up
// with the members, and the alarm NOSPACE may be why there is none. But when etcd has only been silent for a moment, as
// in an election, all sidecars would connect to all members at once. So the first look waits until the session is lost.
func (i *idler) nextLook() time.Time {
	lost, next := i.c.election.Confirmed().Add(i.c.cfg.LockTTL), i.c.looked.Add(addressesEvery)
	if lost.After(next) {
		return lost
	}
	return next
}

// look asks etcd how its members are, for a cluster that idles. It never takes longer than two probes.
func (i *idler) look(ctx context.Context, answers chan<- rollout.Membership) {
	members := i.c.members()
	defer members.Close()
	etcd, err := members.Observe(ctx)
	if err != nil {
		i.c.log.WithError(err).Debug("no member list")
	}
	i.c.remember(members.MemberURLs())
	select {
	case answers <- etcd:
	default: // Nobody has looked at the last answer yet.
	}
}

// duty says whether a duty is due beside the rollout, or whether what is told of the members is not true any
// more, so that a turn has to tell it. Kubernetes is asked nothing: the pods are those of the last reading,
// and a watch on the StatefulSet follows what becomes of them. Nothing is done on this, because a turn reads
// everything live.
func (i *idler) duty(etcd rollout.Membership, k *carried) findings {
	state := i.c.join(k.workload, nil, etcd).state
	state.Sidecars = rollout.Sidecars{Known: true} // The turn finds out who else is there.
	if etcd.Known {
		i.judged = i.leavers
	}
	joined := rollout.Assess(state, i.c.cfg.Policy)
	i.c.journal.Metrics.Databases(joined.Fullest())
	// What the last turn could not do is left alone for as long as that member leads.
	maps.DeleteFunc(i.untransferred, func(id uint64, _ int) bool { return id != joined.Leader })
	i.looked.failedTransfers = i.untransferred
	sightings := joined.Sightings()
	if state.NoLock { // Then no watch follows the pods, and a cordon may have ended and begun anew.
		sightings = slices.DeleteFunc(sightings, func(s rollout.Sighting) bool {
			return s.Condition == rollout.CordonedSeen
		})
	}
	remembered := i.looked.recall(time.Now(), time.Time{}, sightings, k.workload.Pods)
	for s := range remembered.Ages {
		if s.Condition == rollout.ReadySeen {
			remembered.Ages[s] = math.MaxInt64 // Nobody has looked for a minute. The turn sees for how long, and waits.
		}
	}
	d := joined.Decide(remembered)
	told := i.c.journal.Ghosts(joined)
	if d.Duty == rollout.DutyHeld {
		return findings{}
	}
	// What keeps a rollout would keep the turn as well, for what is only told. It does not keep another duty, but
	// the operator's controls do. A turn reads them live; here they only save the reading.
	return findings{
		duty: d.Beside() && !i.c.workload.Held(),
		untold: d.Duty == rollout.DutyRoll && d.Action == rollout.Complete{} &&
			(!told || k.suspect != nil && k.suspect.Gone(etcd)),
	}
}

// noteLeavers asks for a look at etcd when somebody new is about to go: it may be the leader.
func (i *idler) noteLeavers(pods []rollout.Pod) {
	var leavers []string
	for n := range pods {
		if p := &pods[n]; p.Owned && (p.Leaving != "" || p.Cordoned) {
			leavers = append(leavers, p.UID+p.Leaving)
		}
	}
	if i.leavers = strings.Join(leavers, " "); i.leavers == "" || i.leavers == i.judged || !i.c.owned() {
		return
	}
	wake(i.c.looks)
}
