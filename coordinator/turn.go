package coordinator

import (
	"context"
	"fmt"
	"reflect"
	"time"

	"github.com/sirupsen/logrus"

	"github.com/quorate/quorate/internal/record"
	"github.com/quorate/quorate/internal/workload"
	"github.com/quorate/quorate/pkg/rollout"
	"github.com/quorate/quorate/selfupdate"
)

// turn drives the record's protocol from a claim on the record to its end. It is the one place where the steps meet:
// it has the observer look, decides, has the actor act, lets the tracker and the failures know, and tells the journal.
// No step knows another one, or the turn. Each gets what it needs as arguments, and returns what it has found.
type turn struct {
	c          *Coordinator
	observer   *observer
	keeper     keeper
	actor      actor
	lock       *ownership
	failures   *failures
	validation *validator
	tracker    *tracker

	// right is the right of the claim. With brief, the turn was not begun for a rollout: it ends when there is nothing
	// to tell or to do.
	right record.Right
	brief bool
	// hold is what we hold of the record.
	hold hold
	// seen is the last observation, and decided is what was decided on it.
	seen    observation
	decided decision
	// expected is what etcd will say once the last action has taken effect, if nothing else happens. Foreseen are the
	// pods of the last look that might have led to a removal (see foresees).
	expected rollout.Membership
	foreseen []rollout.Pod
	// leave says that another sidecar is to go on.
	leave leave
	// needed is what quorum rests on, as the next write says. A claim repeats the word of whoever held the record,
	// until our own first look. Otherwise anybody could take the pods at just that moment.
	needed record.Needed
	// suspect is the one that the record names, as last read or written.
	suspect *record.Member
	// unclear means that nobody knows how our last removal ended.
	unclear bool
	// coordinated is true once the record has been claimed.
	coordinated bool
	// stopping is true while the record is given back because we were told to stop.
	stopping bool
}

// hold is what we hold of the record.
type hold struct {
	// ours is true while the record is.
	ours bool
	// renewed is when the record was last written by us, and every is how long after that it has to be renewed.
	renewed record.Instant
	every   time.Duration
	// epoch is that of our claim, and intent the operation on the record.
	epoch  int
	intent record.Intent
}

// leave says that another sidecar is to go on, that we cannot for a while, or that our own pod has been removed. With
// handsOver, the lock is handed over while quorum rests on some pods.
type leave struct {
	over      bool
	leaving   bool
	handsOver bool
	heir      *selfupdate.Peer
	unfit
}

// giveUp lets another coordinator go on, if there is a reason for that.
func (l *leave) giveUp(u unfit) {
	if u.why != "" {
		l.unfit, l.over = u, true
	}
}

// take carries out what the record's protocol asks for, from the claim to its end, and returns how it
// ended. If our own pod goes, it has not ended. It can be stopped while nothing is under way. The
// context ending ends a moment after ctx, for requests that the end must not cut off.
func (t *turn) take(ctx, ending context.Context) (end record.End, ended bool) {
	protocol := t.c.protocol
	protocol.Later = t.c.later()
	protocol.Duration, protocol.Renew = t.terms()
	state, effect := protocol.Step(t.c.record, record.Start{Right: t.right}, t.c.now())
	carrying, swapping := ctx, ending
	for {
		if end, ok := effect.(record.End); ok {
			t.c.record = state
			return end, true
		}
		if (t.leave.leaving || t.leave.handsOver) && t.c.owned() {
			// Our own pod goes, or quorum rests on some pods meanwhile. The record stays as it is, as after a crash: so
			// whoever has the lock next knows that a rollout is under way, and ends it. A release would free the pods
			// until that one has looked.
			return record.End{}, false
		}
		var event record.Event = record.Stop{}
		if stop := ctx.Err() != nil || t.leave.over; !stop || t.stopping {
			doing := carrying
			if _, swap := effect.(record.WriteLease); swap {
				doing = swapping // If a claim is cut off, nobody knows that it has to be given back.
			}
			event = t.do(doing, &state, effect)
		} else {
			// That has to be quick when ctx ends: the lock is to be given back as well.
			var done context.CancelFunc
			carrying, done = context.WithTimeout(ending, t.c.cfg.RequestTimeout)
			defer done()
			swapping, t.stopping = carrying, true
		}
		claimed, pausing := state.Claimed(), state.Pausing
		protocol.Duration, protocol.Renew = t.terms()
		state, effect = protocol.Step(state, event, t.c.now())
		switch effect.(type) {
		case record.Act:
			t.failures.aged.clear()
		default:
			if _, ok := event.(record.LeaseWritten); ok && state.Pausing && !pausing {
				t.leave.giveUp(t.failures.tooOld(ctx, &t.seen, t.hold.ours))
			}
		}
		if state.Claimed() {
			t.suspect = state.Record.Suspect
		}
		t.hold = hold{ours: state.Claimed(), renewed: state.Renewed, every: protocol.Every(&state), epoch: state.Epoch,
			intent: state.Record.Intent}
		if state.Claimed() && !claimed {
			t.coordinated = true
			t.c.journal.Coordinates(t.c.name(), state.Epoch)
			fields := logrus.Fields{"by": t.right.String(), "epoch": state.Epoch}
			t.c.log.WithFields(fields).Info("this sidecar coordinates now")
		}
	}
}

// do carries out one effect. The state is the one that asks for it.
func (t *turn) do(ctx context.Context, state *record.State, effect record.Effect) record.Event {
	switch e := effect.(type) {
	case record.ReadLease:
		free := !t.hold.ours && t.right == record.ByLock
		read, failed := t.keeper.read(ctx, free, t.seen.workload)
		t.fails(ctx, failed)
		t.validation.tell(read.odd)
		if !t.hold.ours {
			t.needed = read.needed
		}
		return read.LeaseRead
	case record.CheckRight:
		return record.RightChecked{Held: t.lock.owns(ctx)}
	case record.WriteLease:
		return t.write(ctx, e.Record)
	case record.ListPods:
		listed, failed := t.keeper.list(ctx)
		t.fails(ctx, failed)
		return listed
	case record.FencePod:
		return t.fence(ctx, e, state.Fences())
	case record.Observe:
		return t.observe(ctx)
	case record.Act:
		return t.act(ctx, e)
	case record.Rest:
		t.wait(ctx, e.Failed)
		return record.Woken{}
	}
	panic(fmt.Sprintf("the record's protocol asks for %T, which nobody knows", effect))
}

// write writes the record.
func (t *turn) write(ctx context.Context, r record.Record) record.LeaseWritten {
	written, failed := t.keeper.write(ctx, r, t.needed)
	if failed != nil && t.stopping {
		t.c.log.WithError(explain(failed.err)).Warn("the record could not be given back; " +
			"whoever has the lock does not wait for that, without a lock another may claim it after its duration")
		return written
	}
	t.fails(ctx, failed)
	return written
}

// fence rules out that an earlier removal of a pod can still have an effect.
func (t *turn) fence(ctx context.Context, e record.FencePod, all []record.FencePod) record.PodFenced {
	fenced, failed := t.keeper.fence(ctx, e, all)
	t.fails(ctx, failed)
	if failed == nil {
		t.tracker.resolved(time.Now(), t.hold.intent, e.Pod)
		earlier := t.hold.intent.Epoch != t.hold.epoch
		t.c.tellFenced(e.Pod, fenced.Outcome, t.hold.intent, earlier || t.unclear)
	}
	return fenced
}

// observe looks and decides, carries out what comes beside the record, and tells of it all. It returns what the
// decision asks of the record.
func (t *turn) observe(ctx context.Context) record.Observed {
	first := t.decided.Assessment == nil
	if err := t.look(ctx); err != nil {
		what := "the workload cannot be read"
		if isEvictionForbidden(err) {
			what = "the pod cannot be evicted"
		}
		t.fails(ctx, &fault{what: what, err: err, counts: true})
		return record.Observed{Outcome: record.Failed}
	}
	o, d := &t.seen, &t.decided
	t.needed = d.needed
	if d.next == record.NextHandOver && len(d.needed.Pods) > 0 && t.c.owned() {
		t.leave.handsOver, t.leave.over = true, true
	}
	t.c.journal.Events.About(t.c.cfg.Namespace, o.state.Set.Name, o.state.Set.UID)
	t.leave.heir = d.choice.To // Until the next observation, if the record cannot be given back.
	t.leave.giveUp(d.unfit)
	for i := range o.faults {
		t.fails(ctx, &o.faults[i])
	}
	if d.withdraws {
		t.fails(ctx, t.actor.withdraw(ctx, *o.state.Request))
	}
	if d.endsOverride {
		ended, failed := t.actor.endOverride(ctx, o.state.Set.UpdateRevision)
		t.fails(ctx, failed)
		if ended {
			t.c.journal.EndsOverride(&o.state)
		}
	}
	if d.promotes && !t.promote(ctx, o.workload) {
		return record.Observed{Outcome: record.Failed}
	}
	t.c.tellDecision(o, d, t.hold.epoch)
	if d.next != record.NextAct || d.intent.Operation == record.MoveLeader {
		t.failures.faults.clear() // A removal still has to succeed.
	}
	return record.Observed{
		Outcome: record.Done, Begun: o.begun, Record: o.record,
		Next: d.next, Intent: d.intent, Resolution: d.resolution,
		News: t.c.journal.HasNews() && t.c.now()-t.hold.renewed >= d.newsEvery() || d.tellsGuard(o.needed, first),
	}
}

// look observes and decides. As long as that leads to nothing, it asks etcd alone, and goes by what the watches tell
// of the rest. Nothing is done on that: it is confirmed by a live reading, or everything is read live.
func (t *turn) look(ctx context.Context) error {
	for range 2 { // What was read live in vain has brought the cached view up to date.
		v := t.view()
		if v == nil {
			break
		}
		if sure, err := t.lookBy(ctx, v); err != nil || sure {
			return err
		}
	}
	_, err := t.lookBy(ctx, nil)
	return err
}

// lookBy observes by a cached view, or without one live, and decides. Where the decision lacks evidence, the observer
// adds it, and it is decided anew. It returns false if the cached view was not true any more when something was to be
// done.
func (t *turn) lookBy(ctx context.Context, v *cachedView) (sure bool, err error) {
	began := t.observer.starts(v == nil)
	if v != nil && t.foresees(v) {
		defer v.read(ctx, t.c)()
	}
	o, err := t.observer.observe(ctx, v, began)
	if err != nil {
		return false, err
	}
	t.validation.tell(o.odd)
	if v == nil && t.seen.view != nil {
		t.tracker.doubt(t.seen.workload, o.workload) // The watches may have hung.
	}
	t.seen = o
	joined := rollout.Assess(o.state, t.c.cfg.Policy)
	m := t.remembered()
	m.memory = t.tracker.note(m.now, &o, joined)
	d := decide(&o, joined, &m)
	for d.lacks != nothing {
		o, err = t.observer.add(ctx, o, &d)
		m.now = time.Now()
		if refusal := o.budget.refusal; refusal != nil {
			m.memory.RefusedEviction, o.budget.refusal = *refusal, nil
			if o.budget.answered {
				t.c.tellBlocked(&d)
				m.memory.RefusedEviction = t.tracker.refuse(m.now, *refusal)
			}
		}
		if err != nil {
			return false, err
		}
		t.seen = o
		if o.changed != nil {
			t.tracker.doubt(v.seen, *o.changed)
			return false, nil
		}
		if d.lacks == gatesAnswers {
			joined = rollout.Assess(o.state, t.c.cfg.Policy)
		}
		d = decide(&o, joined, &m)
	}
	t.tracker.decided(&d)
	if t.decided.Assessment == nil || d.Acts() {
		t.expected = rollout.Settled(d.state, d.Decision).Etcd
	}
	t.seen, t.decided = o, d
	if d.reread {
		t.observer.fresh.expire()
	}
	return true, nil
}

// remembered is what a decision goes by beside the observation.
func (t *turn) remembered() remembered {
	return remembered{
		tracker: t.tracker, now: time.Now(), interval: t.c.cfg.Interval,
		self: t.c.self.Pod, gates: t.c.gates.Any(), brief: t.brief,
	}
}

// view is what the next look goes by, nil if it has to read everything live: there is no view, there is more to do
// than to roll, nothing comes from an outdated pod, or a pod has just been removed while no member answers. The next
// one is then due at once. Members that hang take seconds, and in that time the pod that goes would change the view.
func (t *turn) view() *cachedView {
	_, removed := t.decided.Action.(rollout.Remove)
	inNeed := removed && t.seen.state.Etcd.Silent()
	if t.brief || inNeed {
		return nil
	}
	v := t.observer.cached()
	if v == nil || t.tracker.needsReading(time.Now(), v.seen) {
		return nil
	}
	return v
}

// foresees is true where the look that begins may well lead to a removal: if all went as it should since the last
// action, the decision on the view would be one. The live reading that has to confirm it then begins with the look, so
// that a rollout waits for the slower of the two and not for both. Nothing rests on it. Where it was wrong, two
// requests were in vain, and the same pods are not foreseen again. Otherwise the decision on the look itself says so
// again.
func (t *turn) foresees(v *cachedView) bool {
	_, moved := t.decided.Action.(rollout.MoveLeader)
	if t.decided.Assessment == nil || !moved && reflect.DeepEqual(v.seen.Pods, t.foreseen) {
		return false
	}
	t.foreseen = v.seen.Pods
	ahead := t.c.join(v.seen, v.lease, t.expected)
	ahead.view, ahead.gatesAsked, ahead.peers = v, true, t.seen.peers
	ahead.state.Sidecars.Known = true
	for i := range ahead.state.Pods {
		ahead.state.Sidecars.Present = append(ahead.state.Sidecars.Present, ahead.state.Pods[i].UID)
	}
	m := t.remembered()
	m.memory = t.decided.state.Memory
	d := decide(&ahead, rollout.Assess(ahead.state, t.c.cfg.Policy), &m)
	return d.next == record.NextAct && d.intent.Operation != record.MoveLeader
}

// promote sets the StatefulSet's status.currentRevision, and returns false if that is worth another try.
func (t *turn) promote(ctx context.Context, seen workload.Observation) bool {
	out := t.actor.promote(ctx, seen)
	t.fails(ctx, out.fault)
	if out.fault == nil {
		t.c.tellPromotion(&seen.Set)
	}
	if out.denied != "" {
		t.c.notPromoted = out.denied
	}
	return !out.again
}

// act carries out an operation.
func (t *turn) act(ctx context.Context, e record.Act) record.Acted {
	out := t.actor.act(ctx, &t.seen, e)
	t.tracker.did(time.Now(), &out)
	t.c.tellOutcome(&t.decided, &out)
	if out.clears {
		t.failures.faults.clear()
	}
	t.fails(ctx, out.fault)
	if out.result == record.Failed {
		// Nothing has gone by it, so the write that clears the intent says what holds without it. A pod that has
		// changed, so that its removal was refused, may be going: the next look shows that.
		t.needed = t.needed.After(t.decided.NeededUndone(), time.Now())
	}
	if out.removes() {
		t.unclear = out.result == record.Unclear
	}
	if out.removes() && out.err == nil && out.intent.Pod == t.c.self.Pod {
		// Our own pod takes with it the etcd member over which the lock can be released.
		t.leave.leaving, t.leave.over = true, true
	}
	if out.result == record.Done && t.decided.GoesAlone() && !t.leave.leaving {
		t.c.pause(ctx, afterRemoval)
	}
	return record.Acted{Outcome: out.result}
}

// fails notes what has failed, if anything has.
func (t *turn) fails(ctx context.Context, f *fault) {
	if f != nil {
		t.leave.giveUp(t.failures.note(ctx, f, t.hold.ours))
	}
}

// wait waits for news, or until it is time to observe or to try again.
func (t *turn) wait(ctx context.Context, failed bool) {
	if t.stopping {
		t.c.pause(ctx, releaseRetry)
		return
	}
	if failed {
		t.c.pause(ctx, max(t.failures.pause(), firstPause))
		return
	}
	t.c.pause(ctx, max(t.seen.begun+leastRest-t.c.now(), shortRest))
	interval := t.decided.waits(time.Now(), t.seen.begun-t.c.now())
	// The record has to be renewed in time: when the renewal is due, a cycle in which members
	// hang may still be to come before it is.
	if due := t.hold.renewed + t.hold.every - t.c.now(); due > 0 {
		wait(ctx, min(interval, due), t.c.changed)
	}
}

// terms are for how long the record says that it stands, and how often it is renewed. While etcd confirms the lock,
// whoever comes after us has the lock and does not wait for the record. So it is enough to renew it rarely. Without
// that, the record is all that the others go by, and they are not to wait for long.
func (t *turn) terms() (duration, renew time.Duration) {
	duration = t.c.cfg.RecordDuration
	if t.c.owned() && t.lock.silence() < t.c.cfg.FallbackAfter {
		// Nobody believes in more.
		long := min(3*duration, max(duration, record.LongestDuration))
		return long, long * 2 / 3
	}
	return duration, duration / 3
}
