package coordinator

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/quorate/quorate/coordinator/election"
	"github.com/quorate/quorate/internal/record"
	"github.com/quorate/quorate/internal/report"
	"github.com/quorate/quorate/internal/workload"
	"github.com/quorate/quorate/pkg/rollout"
	"github.com/quorate/quorate/selfupdate"
)

// lateWrites is how long a claim may still be written after its sender has given up on it or
// has ended. It is twice as long as an API server lets a request take.
const lateWrites = 2 * time.Minute

// loop waits for rollouts and takes a turn for each, for as long as this sidecar may. Each turn
// decides anew by what right it claims the record. A turn needs neither the lock nor a session
// once it has begun, and lasts until another coordinator takes the record over.
type loop struct {
	c    *Coordinator
	exit *exit

	trouble  *trouble
	doubts   *doubts
	sight    *sight
	observer *observer
	turn     *turn

	word lastWord
	// since is when an outdated pod was first seen.
	since time.Time
	// looked is what is remembered of the looks at an idle cluster. Of pods it shares no more than the cordons
	// with turns, because looks see the pods as they last were.
	looked *memory
	// leavers are the pods that were about to go at the last reading, and why. judged are those for which etcd
	// has been asked whether one of them leads.
	leavers, judged string
	// found is true from when a look at an idle cluster has found that a duty is due, or an operator asks for one,
	// to the next turn. untold is true when the look has found something that the Lease does not tell.
	found, untold bool
	// looksOn: the StatefulSet controller rolls the pods, and the log has said so.
	looksOn bool
	// looking are the looks at an idle cluster that have not ended yet.
	looking sync.WaitGroup
}

// lastWord is open until the loop has seen that nothing is to be done, and again when it could not
// finish what was. The record may say that a rollout is under way although the pods no longer show
// one. A claim that nobody knows of, our own or an earlier coordinator's, may still be written until
// then. What is seen before that is not the last word, and no watch covers the Lease.
type lastWord struct {
	open  bool
	until time.Time
}

// exit says why the loop ends: another sidecar goes on, or we cannot for a while, or our own pod
// has been removed.
type exit struct {
	over    bool
	leaving bool
	heir    *selfupdate.Peer
	unfit   string
	// least is how long we then stay away at least.
	least time.Duration
}

// giveUp lets another coordinator go on.
func (e *exit) giveUp(why string, least time.Duration) {
	e.unfit, e.least, e.over = why, least, true
}

func (c *Coordinator) newLoop() *loop {
	var (
		exit    = &exit{}
		hold    = &hold{}
		ages    = &lasting{}
		sight   = &sight{memory: newMemory(ages)}
		trouble = &trouble{
			c: c, exit: exit, hold: hold, sight: sight,
			faults: c.faultsAt(report.AtRollout), aged: c.faultsAt(report.AtEvidence),
		}
		doubts   = &doubts{c: c, sight: sight}
		members  = c.members()
		actor    = &actor{c: c, exit: exit, sight: sight, trouble: trouble, members: members}
		observer = &observer{
			c: c, exit: exit, hold: hold, sight: sight, trouble: trouble, doubts: doubts, actor: actor, members: members,
		}
	)
	return &loop{
		c: c, exit: exit, trouble: trouble, doubts: doubts, sight: sight, observer: observer,
		turn: &turn{c: c, exit: exit, hold: hold, sight: sight, trouble: trouble, doubts: doubts, observer: observer,
			actor: actor},
		looked: newMemory(ages),
	}
}

// run waits for rollouts and carries them out, until ctx ends or another is to go on. If it is not our turn yet, it
// prepares for one that is handed over to us.
func (l *loop) run(ctx context.Context, rested time.Time) {
	ending, end := context.WithCancel(context.WithoutCancel(ctx))
	defer end()
	defer context.AfterFunc(ctx, func() { wait(ending, releaseTimeout/4, nil); end() })()
	ctx, cancel := context.WithCancel(ctx)
	defer l.looking.Wait()
	defer cancel()
	defer l.c.workload.Open(ctx)()
	defer l.observer.rest()
	if !l.await(ctx, rested) {
		return
	}
	l.word = lastWord{open: true, until: time.Now().Add(lateWrites)}
	if l.c.owned() {
		l.c.workload.FollowLease()
	}
	defer l.c.journal.Rests()
	defer l.trouble.faults.clear() // Whoever coordinates next counts its own.
	defer l.trouble.aged.clear()
	defer l.doubts.settle()
	for first := true; ctx.Err() == nil && !l.exit.over && l.ours(); {
		due, err := l.due(ctx)
		switch {
		case err != nil:
			l.trouble.fail(ctx, "the workload cannot be read", err)
		case !due:
			l.trouble.faults.clear()
			l.since, first = time.Time{}, false
			l.c.workload.UnfollowBudget()
			l.follow()
			l.idle(ctx)
		default:
			if l.since.IsZero() {
				l.since = time.Now()
				if first {
					// The rollout may have begun long before we looked, and the owner of the
					// lock from before etcd fell silent has had its time.
					l.since = l.c.silentSince(l.since)
				}
				l.observer.begins()
			}
			first = false
			l.follow() // So that the first look of the turn finds what it needs.
			l.c.workload.FollowBudget()
			var left time.Duration
			if l.turn.right, left = l.right(); left > 0 {
				wait(ctx, left, l.c.changed)
				continue
			}
			l.found, l.untold = false, false
			if end, ended := l.turn.take(ctx, ending); ended {
				l.ended(ctx, end)
			}
		}
	}
}

// await waits until it is our turn, and returns false if that is not to be expected any more. Meanwhile it prepares.
func (l *loop) await(ctx context.Context, rested time.Time) bool {
	for prepared := false; ; {
		left, expected := l.c.left(rested), l.c.heir.expected()
		switch {
		case left <= 0:
			l.c.heir.expect(time.Time{})
			return ctx.Err() == nil
		case ctx.Err() != nil || expected <= 0:
			return false
		case !prepared:
			if prepared = l.prepare(ctx); !prepared {
				l.c.heir.expect(time.Time{})
				return false
			}
		default:
			wait(ctx, min(left, expected), l.c.changed)
		}
	}
}

// prepare does what the first looks of a turn need, before a rollout is handed over to us: the watches tell everything,
// and there is a connection to every member. It returns false if that is not to be expected.
func (l *loop) prepare(ctx context.Context) bool {
	reading, cancel := context.WithTimeout(ctx, l.c.cfg.RequestTimeout)
	defer cancel()
	o, err := l.c.workload.Observe(reading)
	if err != nil {
		l.c.log.WithError(err).Debug("the workload cannot be read yet")
		return false // It is read when it is our turn.
	}
	if !outdated(o) || l.c.self.Revision != o.Set.UpdateRevision {
		return false
	}
	l.sight.seen = o
	l.observer.readLive()
	l.c.workload.Follow(o)
	l.c.workload.FollowBudget()
	if _, err := l.observer.members.Observe(ctx); err != nil {
		l.c.log.WithError(err).Debug("no member list yet")
	}
	return true
}

// ours is true if the lock is ours or etcd does not say whose it is.
func (l *loop) ours() bool {
	return l.c.owned() || l.c.election.Silent(l.c.cfg.FallbackAfter) <= 0
}

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

// right says by what right the record may be claimed, and how long that still has to wait. The
// lock counts until etcd has confirmed nothing for a while and does not answer when it is asked for
// the lock (see silence). A session that is still alive proves nothing: it outlives quorum by its time to live.
//
// Where etcd has been silent for long, a rollout that begins does not wait for that time again. If etcd is silent
// only to us, somebody else has the lock, and needs a moment to claim the record.
func (l *loop) right() (record.Right, time.Duration) {
	left := l.c.cfg.FallbackAfter - l.turn.silence()
	if l.c.owned() && (l.turn.unanswered == (unanswered{}) || left > 0) {
		return record.ByLock, 0
	}
	return record.ByClock, max(left, l.c.cfg.FallbackAfter/4-time.Since(l.since))
}

// due says whether a rollout or another duty is due or under way. It asks only Kubernetes, so that an idle
// cluster costs etcd no more than a look now and then.
func (l *loop) due(ctx context.Context) (bool, error) {
	ctx, cancel := context.WithTimeout(ctx, l.c.cfg.RequestTimeout)
	defer cancel()
	cached := l.c.workload.Cached()
	o := cached.Seen
	// A rollout that begins needs no live reading yet, because its turn reads live before it removes a pod or
	// calls the rollout complete.
	if !cached.Watched || l.observer.stale() && !outdated(o) {
		var err error
		if o, err = l.c.workload.Observe(ctx); err != nil {
			return false, err
		}
		l.c.workload.ReadNodes(ctx, &o)
		l.observer.readLive()
	}
	l.c.journal.Events.About(l.c.cfg.Namespace, o.Set.Name, o.Set.UID)
	l.sight.seen = o
	l.looked.lasting.uncordoned(o.Pods)
	l.noteLeavers(o.Pods)
	l.sayWhoRolls(o.Set.OnDelete)
	rolling := outdated(o) || l.c.unpromoted(o)
	due := rolling
	if asked := l.c.requested.Swap(false); !due && (l.word.open || asked || l.found || l.untold) && o.Set.OnDelete {
		lease, err := l.c.workload.ReadLease(ctx)
		if err != nil {
			if asked { // The watch does not tell the same twice.
				l.c.requested.Store(true)
			}
			return false, err
		}
		r := l.doubts.trust(lease)
		l.sight.suspect = r.Suspect
		if lease != nil {
			l.c.journal.Recall(lease.Annotations, r.Epoch)
		}
		request, _ := record.RequestOf(lease, time.Now()) // The turn says what is wrong with it.
		// What is found is left alone while the operator's controls hold everything.
		l.found = l.found && !record.Controls(lease).HoldAll() || request != nil
		rolling = r.Rolling || r.Holder != "" || r.Intent.Operation != record.None
		due = rolling || l.found || l.untold
	}
	if l.sight.brief = due && !rolling; !due {
		l.word.open = time.Now().Before(l.word.until)
	}
	return due, nil
}

// sayWhoRolls logs that the strategy leaves us nothing to do, because somebody has turned us on and may
// wonder. It also logs when that has changed.
func (l *loop) sayWhoRolls(onDelete bool) {
	if l.looksOn != onDelete {
		return
	}
	if l.looksOn = !onDelete; l.looksOn {
		l.c.log.Infof("the update strategy of StatefulSet %s is not OnDelete: the StatefulSet controller rolls its "+
			"pods, and Quorate only looks on", l.c.cfg.StatefulSet)
		return
	}
	l.c.log.Infof("the update strategy of StatefulSet %s is OnDelete now: Quorate rolls its pods", l.c.cfg.StatefulSet)
}

// outdated is true when a rollout begins that is ours to do.
func outdated(o workload.Observation) bool {
	if !o.Set.OnDelete || o.Set.Deleting {
		return false
	}
	if o.Set.ObservedGeneration < o.Set.Generation {
		return true
	}
	for i := range o.Pods {
		if o.Pods[i].Owned && o.Pods[i].Revision != o.Set.UpdateRevision {
			return true
		}
	}
	return false
}

// ended says how we go on after a turn has ended.
func (l *loop) ended(ctx context.Context, end record.End) {
	l.word.open = end.Ended != record.Finished
	if l.word.open || !l.c.owned() {
		l.c.journal.Rests()
	} else {
		l.c.journal.Finished()
	}
	switch end.Ended {
	case record.Finished:
		l.trouble.faults.clear()
		l.doubts.settle()
		l.c.unfit = 0
		l.idle(ctx)
	case record.HandedOver, record.Stopped:
		l.exit.over = true
	case record.Lost:
		l.c.log.Infof("%s; this sidecar drops what it was about to do", end.Detail)
		l.c.pause(ctx, l.c.cfg.Interval)
	case record.NoRight:
		switch {
		case l.turn.right == record.ByClock:
			l.c.log.Debug(end.Detail)
			l.c.pause(ctx, l.c.cfg.Interval)
			if !outdated(l.sight.seen) { // No rollout waits for us, and the holder may have its reason for long.
				wait(ctx, l.c.cfg.RecordDuration, l.c.changed)
			}
		case errors.Is(l.turn.denied, election.ErrNotOwner):
			l.c.log.Warn("the lock was taken away")
			l.exit.over = true
		case l.turn.denied != nil:
			l.trouble.note(ctx, "etcd does not say whether the lock is ours", l.turn.denied)
			if _, left := l.right(); left > 0 || l.turn.right == record.ByLock {
				wait(ctx, max(min(l.trouble.faults.pause, l.c.cfg.FallbackAfter-l.turn.silence()), shortRest), nil)
			}
		}
	case record.Unwritable:
		// The failure has already been noted where it happened.
		l.word.until = time.Now().Add(lateWrites)
		l.c.pause(ctx, max(l.trouble.faults.pause, firstPause))
	case record.Newer:
		if l.c.owned() {
			l.exit.giveUp(end.Detail, forbiddenFor)
			return
		}
		l.trouble.faults.note(l.c.log, "the record is not ours to write", errors.New(end.Detail))
		l.c.pause(ctx, longestPause)
	}
}
