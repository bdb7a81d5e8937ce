package coordinator

import (
	"context"
	"errors"
	"time"

	"github.com/quorate/quorate/coordinator/election"
	"github.com/quorate/quorate/internal/record"
	"github.com/quorate/quorate/internal/report"
	"github.com/quorate/quorate/pkg/rollout"
)

// loop waits for rollouts and takes a turn for each, for as long as this sidecar may. Each turn
// decides anew by what right it claims the record. A turn needs neither the lock nor a session
// once it has begun, and lasts until another coordinator takes the record over.
type loop struct {
	c *Coordinator

	observer   *observer
	lock       ownership
	failures   failures
	validation validator
	idler      idler

	// since is when an outdated pod was first seen.
	since time.Time
	// findings are those of the last look since the last turn, and what an operator asks for.
	carried
	findings findings
	// ages are those that outlive a turn.
	ages *lastingAges
	// looksOn: the StatefulSet controller rolls the pods, and the log has said so.
	looksOn bool
	// leave says why the loop ends, and coordinated is true once a turn has claimed the record.
	leave       leave
	coordinated bool
}

func (c *Coordinator) newLoop() *loop {
	ages := &lastingAges{}
	return &loop{
		c: c,
		observer: &observer{c: c, members: c.members(),
			fresh: freshness{lasts: viewLasts(c.cfg.Policy.SettleTimeout)}},
		lock:       ownership{c: c},
		failures:   failures{c: c, faults: c.faultsAt(report.AtRollout), aged: c.faultsAt(report.AtEvidence)},
		validation: validator{c: c},
		idler:      idler{c: c, looked: newTracker(ages), untransferred: rollout.Failures{}},
		ages:       ages,
	}
}

// newTurn is the next turn. Of pods it remembers nothing: there were no looks since the last one, so nothing would have
// been seen without a break. A turn that is not begun for a rollout is brief.
func (l *loop) newTurn(right record.Right, brief bool) *turn {
	return &turn{
		c: l.c, observer: l.observer, keeper: keeper{c: l.c}, actor: actor{c: l.c, members: l.observer.members},
		lock: &l.lock, failures: &l.failures, validation: &l.validation, tracker: newTracker(l.ages),
		right: right, brief: brief, seen: observation{workload: l.workload}, suspect: l.suspect,
	}
}

// take takes a turn, and goes on from what that has found.
func (l *loop) take(ctx, ending context.Context, right record.Right, brief bool) {
	t := l.newTurn(right, brief)
	end, ended := t.take(ctx, ending)
	l.observer.rest()
	l.workload, l.suspect, l.idler.untransferred = t.seen.workload, t.suspect, t.tracker.failedTransfers
	l.leave, l.coordinated = t.leave, l.coordinated || t.coordinated
	if ended {
		l.ended(ctx, end, right)
	}
}

// run waits for rollouts and carries them out, until ctx ends or another is to go on. If it is not our turn yet, it
// prepares for one that is handed over to us.
func (l *loop) run(ctx context.Context, rested time.Time) {
	ending, end := context.WithCancel(context.WithoutCancel(ctx))
	defer end()
	defer context.AfterFunc(ctx, func() { wait(ending, releaseTimeout/4, nil); end() })()
	ctx, cancel := context.WithCancel(ctx)
	defer l.idler.looking.Wait()
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
	defer l.failures.faults.clear() // Whoever coordinates next counts its own.
	defer l.failures.aged.clear()
	defer l.validation.settle()
	for first := true; ctx.Err() == nil && !l.leave.over && l.c.ours(); {
		due, brief, err := l.due(ctx)
		switch {
		case err != nil && ctx.Err() == nil:
			l.fails(ctx, "the workload cannot be read", err)
			l.c.pause(ctx, l.failures.faults.pause)
		case err != nil: // We are ending.
		case !due:
			l.failures.faults.clear()
			l.since, first = time.Time{}, false
			l.c.workload.UnfollowBudget()
			l.follow()
			l.findings = l.idler.idle(ctx, &l.carried, l.findings)
		default:
			if l.since.IsZero() {
				l.since = time.Now()
				if first {
					// The rollout may have begun long before we looked, and the owner of the
					// lock from before etcd fell silent has had its time.
					l.since = l.c.silentSince(l.since)
				}
				l.observer.fresh.begins()
			}
			first = false
			l.follow() // So that the first look of the turn finds what it needs.
			l.c.workload.FollowBudget()
			right, left := l.lock.right(l.since)
			if left > 0 {
				wait(ctx, left, l.c.changed)
				continue
			}
			l.findings = findings{}
			l.take(ctx, ending, right, brief)
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
	if !o.Set.Due(o.Pods) || l.c.self.Revision != o.Set.UpdateRevision {
		return false
	}
	l.workload = o
	l.observer.fresh.readLive()
	l.c.workload.Follow(o)
	l.c.workload.FollowBudget()
	if _, err := l.observer.members.Observe(ctx); err != nil {
		l.c.log.WithError(err).Debug("no member list yet")
	}
	return true
}

// due says whether a rollout or another duty is due or under way, and whether only the latter is. It asks only
// Kubernetes, so that an idle cluster costs etcd no more than a look now and then.
func (l *loop) due(ctx context.Context) (due, brief bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, l.c.cfg.RequestTimeout)
	defer cancel()
	cached := l.c.workload.Cached()
	o := cached.Seen
	// A rollout that begins needs no live reading yet, because its turn reads live before it removes a pod or
	// calls the rollout complete.
	if !cached.Watched || l.observer.fresh.stale() && !o.Set.Due(o.Pods) {
		if o, err = l.c.workload.Observe(ctx); err != nil {
			return false, false, err
		}
		l.c.workload.ReadNodes(ctx, &o)
		l.observer.fresh.readLive()
	}
	l.c.journal.Events.About(l.c.cfg.Namespace, o.Set.Name, o.Set.UID)
	l.workload = o
	l.ages.uncordoned(o.Pods)
	l.idler.noteLeavers(o.Pods)
	l.sayWhoRolls(o.Set.OnDelete)
	rolling := o.Set.Due(o.Pods) || l.c.promotable(o.Set)
	due = rolling
	asked := l.c.requested.Swap(false)
	if !due && (l.word.open || asked || l.findings != (findings{})) && o.Set.OnDelete {
		lease, err := l.c.workload.ReadLease(ctx)
		if err != nil {
			if asked { // The watch does not tell the same twice.
				l.c.requested.Store(true)
			}
			return false, false, err
		}
		r, odd := validate(lease, o.Set, o.Pods, l.c.cfg.RecordDuration)
		l.validation.tell(odd)
		l.suspect = r.Suspect
		if lease != nil {
			l.c.journal.Recall(lease.Annotations, r.Epoch)
		}
		request, _ := record.RequestOf(lease, time.Now()) // The turn says what is wrong with it.
		// What is found is left alone while the operator's controls hold everything.
		l.findings.duty = l.findings.duty && !record.Controls(lease).HoldAll() || request != nil
		rolling = r.Rolling || r.Holder != "" || r.Intent.Operation != record.None
		due = rolling || l.findings != (findings{})
	}
	if !due {
		l.word.open = time.Now().Before(l.word.until)
	}
	return due, due && !rolling, nil
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

// fails notes what has failed outside of a turn.
func (l *loop) fails(ctx context.Context, what string, err error) {
	l.leave.giveUp(l.failures.note(ctx, &fault{what: what, err: err, counts: true}, false))
}

// ended says how we go on after a turn has ended.
func (l *loop) ended(ctx context.Context, end record.End, right record.Right) {
	l.word.open = end.Ended != record.Finished
	if l.word.open || !l.c.owned() {
		l.c.journal.Rests()
	} else {
		l.c.journal.Finished()
	}
	switch end.Ended {
	case record.Finished:
		l.failures.faults.clear()
		l.validation.settle()
		l.c.unfit = 0
		l.findings = l.idler.idle(ctx, &l.carried, l.findings)
	case record.HandedOver, record.Stopped:
		l.leave.over = true
	case record.Lost:
		l.c.log.Infof("%s; this sidecar drops what it was about to do", end.Detail)
		l.c.pause(ctx, l.c.cfg.Interval)
	case record.NoRight:
		switch {
		case right == record.ByClock:
			l.c.log.Debug(end.Detail)
			l.c.pause(ctx, l.c.cfg.Interval)
			// If no rollout waits for us, the holder may have its reason for long.
			if !l.workload.Set.Due(l.workload.Pods) {
				wait(ctx, l.c.cfg.RecordDuration, l.c.changed)
			}
		case errors.Is(l.lock.denied, election.ErrNotOwner):
			l.c.log.Warn("the lock was taken away")
			l.leave.over = true
		case l.lock.denied != nil:
			l.fails(ctx, "etcd does not say whether the lock is ours", l.lock.denied)
			if _, left := l.lock.right(l.since); left > 0 || right == record.ByLock {
				wait(ctx, max(min(l.failures.faults.pause, l.c.cfg.FallbackAfter-l.lock.silence()), shortRest), nil)
			}
		}
	case record.Unwritable:
		// The failure has already been noted where it happened.
		l.word.until = time.Now().Add(lateWrites)
		l.c.pause(ctx, max(l.failures.faults.pause, firstPause))
	case record.Newer:
		if l.c.owned() {
			l.leave.giveUp(unfit{why: end.Detail, least: forbiddenFor})
			return
		}
		l.failures.faults.note(l.c.log, "the record was written by a newer version of Quorate, and is left alone",
			errors.New(end.Detail))
		l.c.pause(ctx, longestPause)
	}
}

// follow watches the pods and their nodes between rollouts, which only the lock's owner does. Where the StatefulSet
// controller rolls the pods, we do nothing beside it, and there is nothing to watch for.
func (l *loop) follow() {
	if !l.c.owned() {
		return
	}
	if !l.workload.Set.OnDelete {
		l.c.workload.FollowLease()
		l.c.workload.Unfollow()
		return
	}
	l.c.workload.Follow(l.workload)
}
