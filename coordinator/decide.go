package coordinator

import (
	"time"

	"github.com/quorate/quorate/internal/record"
	"github.com/quorate/quorate/pkg/rollout"
	"github.com/quorate/quorate/selfupdate"
)

// remembered is what a decision goes by beside the observation. All of it is only read.
type remembered struct {
	tracker *tracker
	// memory is what the tracker knows after it has taken note of the observation.
	memory rollout.Memory
	now    time.Time
	// interval is the pace of observations.
	interval time.Duration
	// self is our own pod, empty outside a member's pod.
	self string
	// gates is true where the host has gates.
	gates bool
	// brief is true in a turn that was not begun for a rollout.
	brief bool
}

// decide maps an observation, with what is remembered, to what happens next. It is a pure function. What rests on a
// cached view alone may only keep a rollout waiting: whatever Kubernetes has a say in lacks its confirmation. Joined
// are the facts of the observation.
func decide(o *observation, joined *rollout.Assessment, m *remembered) decision {
	d := decision{Decision: joined.Decide(m.memory), state: o.state, interval: m.interval}
	d.state.Memory = m.memory
	revision := o.state.Set.UpdateRevision
	d.next, d.intent = record.NextOf(d.Decision, revision)
	d.resolution = record.ResolutionOf(&o.record, d.Assessment, forgets(o.state.Request, o.record.Suspect), d.next,
		d.intent)
	acts := d.next == record.NextAct || d.next == record.NextFinish
	if o.view != nil && m.gates && !o.gatesAsked && acts {
		d.lacks = gatesAnswers
		return d
	}
	d.choose(o, m)
	if d.choice == (selfupdate.Choice{}) {
		if d.lacks = d.evidence(o, m); d.lacks != nothing {
			return d
		}
	}
	d.conclude(o, m)
	return d
}

// choose says which sidecar goes on. One that has not seen a member for long lets another try.
func (d *decision) choose(o *observation, m *remembered) {
	alone := o.state.NoLock
	another := m.self != "" && selfupdate.Anybody(o.peers.all)
	if alone {
		// While no voter serves, another sidecar sees no more than we do, unless we are the one that
		// is cut off. And the next coordinator has to start its patience with live processes again
		// (guard QuorumPatience), which takes far longer than our patience here.
		another = d.Assessment.Serving > 0 || d.Guard == rollout.GuardCutOff
	}
	var unknown string
	unknown, d.unknownSince = m.tracker.unknown(m.now, d.Assessment, o.record.Intent.Call())
	switch {
	case unknown == "" || !another:
	case o.view != nil:
		d.reread = true
	default:
		d.unfit = unfit{why: unknown + " has been Unknown to this sidecar for too long", least: unfitFor}
	}
	var waited time.Duration
	if selfupdate.OwnPodNext(d.Decision) {
		d.ownNextSince = since(m.tracker.ownNextSince, m.now)
		waited = m.now.Sub(d.ownNextSince)
	}
	d.choice = selfupdate.Choose(d.Decision, o.peers.all, o.peers.known, waited)
}

// evidence is what is still to be found out. An eviction needs the budget's word. A change of leadership is between the
// members, who have just answered. What only changes the record needs no confirmation either: another coordinator, and
// the next rollout, look for themselves. But no rollout ends before something has been read live.
func (d *decision) evidence(o *observation, m *remembered) evidence {
	if o.confirmed {
		return nothing
	}
	ask := evicts(d.Action) && !o.budget.asked
	switch {
	case !ask || o.view == nil || !o.budget.known || m.tracker.refusal != nil:
	case o.budget.allows:
		ask = false // The eviction itself asks.
	case m.tracker.justReady(m.now):
		return budgetsChange
	}
	leads := d.next == record.NextAct && d.intent.Operation != record.MoveLeader ||
		d.next == record.NextFinish && (o.unread || o.promotable)
	switch {
	case ask && (o.view == nil || m.tracker.refusedLately(m.now)):
		return budgetsAnswer
	case o.view == nil || !leads:
		return nothing
	case ask:
		return confirmationAndBudget
	}
	return confirmation
}

// conclude fills in the rest, once nothing is lacking. Where another sidecar is to go on, the decision was not
// confirmed, so nothing of it is done here.
func (d *decision) conclude(o *observation, m *remembered) {
	var announced bool
	d.settles, announced = d.Assessment.Settles()
	d.awaits = m.tracker.awaits
	switch {
	case d.choice.To != nil:
		d.next, d.intent = record.NextHandOver, record.Intent{}
	case d.choice.Await != "":
		d.next, d.intent, d.awaits = record.NextRest, record.Intent{}, since(m.tracker.awaits, m.now)
	case announced:
		d.awaits = time.Time{}
	default:
		d.awaits = since(m.tracker.awaits, m.now)
	}
	on := &o.record.Intent
	if m.brief && o.state.Request == nil && on.Operation == record.None && !d.Beside() &&
		!o.state.Set.Due(o.state.Pods) && d.next == record.NextRest && d.settles == 0 {
		d.next = record.NextFinish
	}
	completes := d.next == record.NextFinish && d.Action == (rollout.Complete{})
	d.promotes = completes && o.promotable
	d.endsOverride = completes && !m.brief && len(o.state.Controls.Override) > 0 &&
		o.state.Controls.Terms.Revision == o.state.Set.UpdateRevision
	switch d.Action.(type) {
	case rollout.Hold, rollout.Complete:
		d.interval *= slowdown
	}
	refusal := m.tracker.refusal
	if refusal != nil && d.Guard == rollout.GuardDisruptionBudget {
		d.refusedUntil = refusal.until
	}
	// It is not told that the budget has not noticed yet that a pod has become Ready. An eviction that is tried again
	// does not end the wait for it either.
	lasts := m.tracker.refusedForLong()
	d.quiet = d.Guard == rollout.GuardDisruptionBudget && !lasts || evicts(d.Action) && lasts

	needed := d.Needed()
	if d.next == record.NextRest || d.next == record.NextHandOver { // What is put off takes nobody away yet.
		needed = d.NeededUndone()
	}
	d.needed = o.needed.After(needed, m.now)

	q := o.state.Request
	switch {
	case on.Operation != record.RemoveMember:
		d.withdraws = d.Assessment.Fulfilled() ||
			q != nil && q.Operation == rollout.RequestForgetMember && !forgets(q, o.record.Suspect)
	case d.resolution == record.Settled:
		d.found = true
	case d.resolution == record.Refuted:
		// As long as it stands, the same would begin again.
		d.withdraws = q != nil && q.Operation == rollout.RequestRemoveMember && q.Member == on.Member.ID
		d.suspected = !d.withdraws
	}
}

// since is when something began: before, or now.
func since(before, now time.Time) time.Time {
	if before.IsZero() {
		return now
	}
	return before
}

// evicts is true for a removal through the eviction API.
func evicts(a rollout.Action) bool {
	remove, ok := a.(rollout.Remove)
	return ok && remove.Method == rollout.RemoveByEviction
}

// forgets is true for an operator's word that the suspect's removal cannot happen any more.
func forgets(r *rollout.Request, suspect *record.Member) bool {
	return r != nil && suspect != nil && r.Operation == rollout.RequestForgetMember && r.Member == suspect.ID &&
		r.Cluster == suspect.Cluster
}
