package explorer

import (
	"fmt"
	"slices"

	"github.com/quorate/quorate/internal/record"
	"github.com/quorate/quorate/internal/rollout"
)

// Operations, as an intent or a request names them. What matters is their kind. One of each kind
// would do, but an eviction changes its pod before it removes it, and that is another way to be late.
const (
	none uint8 = iota
	remove
	evict
	fenceAll
	lead
	// expel removes the member of a place from the list. No operation of its kind ships yet, so it is the
	// explorer's own. disturb stops a member for a while, as a defragmentation does.
	expel
	disturb
)

// operations has a row for each operation: its name on the record, and the requests that carry it out.
var operations = [...]struct {
	name    record.Operation
	kind    record.Kind
	request uint8
	words   string
}{
	none:     {record.None, record.Unknown, nothing, "nothing"},
	remove:   {record.Delete, record.Fenced, actFenced, "remove"},
	evict:    {record.Evict, record.Fenced, actFenced, "evict"},
	fenceAll: {record.FenceAll, record.Fenced, nothing, "fence every pod"},
	lead:     {record.MoveLeader, record.Light, actLight, "make the leader"},
	expel:    {"test-remove-member", record.Presumed, actPresumed, "remove from the list the member of"},
	disturb:  {record.Defragment, record.Passing, actPassing, "defragment the member of"},
}

// kinds are those of the explorer's own operations.
var kinds = map[record.Operation]record.Kind{
	operations[expel].name: record.Presumed,
}

func operationOf(name record.Operation) uint8 {
	for op := range operations {
		if operations[op].name == name {
			return uint8(op)
		}
	}
	panic(fmt.Sprintf("the protocol knows the operation %q, and the explorer does not", name))
}

// fenced is true for the intent of a removal.
func (i intent) fenced() bool { return i.op == remove || i.op == evict }

// stands is true for one that cannot be fenced.
func (i intent) stands() bool { return i.op == expel || i.op == disturb }

// members are the places' members as an intent names them: for a call that takes one tick, and as the
// heir of a leadership.
var members, heirs = func() (members, heirs [maxMembers]*record.Member) {
	for i := range members {
		id := uint64(i) + 1
		members[i] = &record.Member{ID: id, Name: "member", Cluster: 1, List: []uint64{id}, Seconds: callTicks}
		heirs[i] = &record.Member{Heir: id}
	}
	return members, heirs
}()

// placeOf is the place of a member and one, 0 of none.
func placeOf(m *record.Member) uint8 {
	if m == nil {
		return 0
	}
	return uint8(m.ID) //nolint:gosec // A place and one.
}

const (
	// callTicks is how long the call of a passing operation may take, and recoveryTicks for how long
	// its member has to have answered then.
	callTicks, recoveryTicks = 1, 1
	// settledTicks are beyond both, for an observation that began a tick ago.
	settledTicks = callTicks + recoveryTicks + evidenceTicks
)

// standsOn adds to a decision what concerns the explorer's own operations: what was seen of one that
// stands on the record, whether to begin one, and that a suspect counts in both worlds.
func (m *Model) standsOn(w *World, seen *request, q question, a answer) (answer, record.Standing) {
	on := seen.lease.intent
	switch {
	case on.op == expel:
		return m.expelling(seen, q, on.ref.pod)
	case on.op == disturb && m.passed(q, on.ref.pod):
		return answer{}, record.Settled
	case on.op == disturb:
		return answer{}, record.Open
	case seen.lease.suspect > 0 && seen.etcd.told == byQuorum && !seen.etcd.has(int(seen.lease.suspect)-1):
		return answer{}, record.Settled
	case seen.lease.suspect > 0:
		return m.inBothWorlds(q, a, seen.lease.suspect-1), record.Open
	case w.left.Presumed > 0 && seen.etcd.has(m.ordinals()):
		if a, standing := m.expelling(seen, q, uint8(m.ordinals())); standing == record.Open &&
			a.next == record.NextAct { //nolint:gosec // A handful.
			return a, record.Open
		}
	case w.left.Passing > 0 && m.Duty:
		q.full = true
		return m.decide(q), record.Open
	case w.left.Passing > 0 && seen.etcd.answering == seen.etcd.voters:
		// Whenever it could do no harm by itself. The shipped duty waits for much more.
		return answer{next: record.NextAct, op: disturb}, record.Open // The member of the first place.
	}
	return a, record.Open
}

// passed asks the production code whether the member of a place is seen to have passed what may have stopped it.
func (m *Model) passed(q question, place uint8) bool {
	s := m.observation(q)
	s.UnderWay = &rollout.Passing{Member: rollout.MemberRef{ID: uint64(place) + 1, Cluster: 1}}
	return rollout.Assess(s, m.policy).Passed()
}

// expelling says what was seen of the presumed operation, and whether its guards pass: the member does
// not answer, and the others that do are a quorum with and without it.
func (m *Model) expelling(seen *request, q question, target uint8) (answer, record.Standing) {
	switch place := uint8(1) << target; {
	case q.told != byQuorum:
		return answer{}, record.Open
	case !q.list.has(int(target)):
		return answer{}, record.Settled
	case q.answering&place != 0, counted(seen.etcd.answering&seen.etcd.voters) < seen.etcd.quorum():
		return answer{}, record.Refuted
	}
	return answer{next: record.NextAct, op: expel, target: target}, record.Open
}

// inBothWorlds is a decision that is the same whether the suspect is on the list or not, else none.
func (m *Model) inBothWorlds(q question, a answer, suspect uint8) answer {
	if m.Weak.OneWorld {
		return a
	}
	place := uint8(1) << suspect
	q.voters, q.learners, q.answering = q.voters&^place, q.learners&^place, q.answering&^place
	if m.decide(q) != a {
		return answer{}
	}
	return a
}

// canLand is true for the request of a presumed or passing operation that may still take effect. The
// call of a passing one ends in time, or a little later.
func (m *Model) canLand(w *World, r *request) bool {
	switch r.kind {
	case actPresumed:
		return w.list.has(int(r.ref.pod)) && r.stage == 0
	case actPassing:
		return r.age < callTicks+recoveryTicks && r.stage == 0
	}
	return false
}

// actUnfenced carries out a presumed or passing operation.
func (m *Model) actUnfenced(w *World, r *request) string {
	if !m.canLand(w, r) {
		return ""
	}
	place := r.ref.pod
	voting, _ := m.voting(w)
	before := voting >= w.list.quorum()
	switch r.kind {
	case actPresumed:
		w.left.Presumed = 0
		m.remember(w)
		w.list.voters &^= 1 << place
		w.list.learners &^= 1 << place
	case actPassing:
		w.left.Passing = 0
		if p := &w.pods[place]; p.phase == up && p.health == healthy {
			p.health = hung
		}
		m.ignorant(w)
	}
	r.stage = 1
	voting, _ = m.voting(w)
	if !before || voting >= w.list.quorum() {
		return ""
	}
	for i := range m.ordinals() {
		if w.pods[i].ours {
			return fmt.Sprintf("%s, and %d of %d voters run then: %s had been removed, and that was not thought of",
				r, voting, counted(w.list.voters), names[i])
		}
	}
	return ""
}

// open returns the rule that is broken when a presumed or passing operation may still take effect, and
// the record does not say so.
func (m *Model) open(w *World, r *request) string {
	on := w.lease.intent
	if !m.canLand(w, r) || on.stands() && on.op == r.op && on.ref.pod == r.ref.pod || w.lease.suspect == r.ref.pod+1 {
		return ""
	}
	return fmt.Sprintf("it can still happen and is not on record (%s): %s", w.lease, r)
}

// waits is true while time makes a difference, where there is a passing operation.
func (m *Model) waits(w *World) bool {
	for i := range m.Coordinators {
		c := &w.coordinators[i]
		if c.begun < evidenceTicks || c.renewed < renewTicks || c.doubted < settledTicks+callTicks ||
			m.canLand(w, &c.request) {
			return true
		}
	}
	return slices.ContainsFunc(w.orphans[:], func(r request) bool { return r.kind == actPassing })
}

// forgetDoubts where no passing operation stands on the record.
func (m *Model) forgetDoubts(w *World) {
	for i := range m.Coordinators {
		if c := &w.coordinators[i]; c.lease.intent.op != disturb {
			c.doubted = settledTicks + callTicks
		}
	}
}
