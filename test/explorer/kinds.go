package explorer

import (
	"fmt"
	"slices"

	"github.com/quorate/quorate/internal/record"
	"github.com/quorate/quorate/pkg/rollout"
)

// Operations, as an intent or a request names them. What matters is their kind. One of each kind
// would do, but an eviction changes its pod before it removes it, and that is another way to be late.
const (
	none uint8 = iota
	remove
	evict
	fenceAll
	lead
	// expel removes the member of a place from the list. disturb stops a member for a while, as a defragmentation
	// does.
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
	expel:    {record.RemoveMember, record.Presumed, actPresumed, "remove from the list the member of"},
	disturb:  {record.Defragment, record.Blocking, actBlocking, "defragment the member of"},
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

// namesPod is true for one that tells the very pod.
func (i intent) namesPod() bool { return i.fenced() || i.op == disturb }

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

// processes are the same members, each in the pod that was there when a blocking operation was begun: in one that is
// gone, and in the one that is there.
var processes = func() (in [maxMembers][2]*record.Member) {
	for i := range in {
		for k, current := range []bool{false, true} {
			m := *members[i]
			m.PodUID = uid(current)
			in[i][k] = &m
		}
	}
	return in
}()

// placeOf is the place of a member and one, 0 of none.
func placeOf(m *record.Member) uint8 {
	if m == nil {
		return 0
	}
	return uint8(m.ID) //nolint:gosec // A place and one.
}

const (
	// callTicks is how long the call of a blocking operation may take, and recoveryTicks for how long
	// its member has to have answered then.
	callTicks, recoveryTicks = 1, 1
	// settledTicks are beyond both, for an observation that began a tick ago.
	settledTicks = callTicks + recoveryTicks + evidenceTicks
)

// standsOn adds to a decision what was seen of an operation on the record that cannot be fenced, and of a
// suspect. Whether to begin a blocking one is the explorer's own decision.
func (m *Model) standsOn(w *World, seen *request, q question, a answer) (answer, record.Resolution) {
	on := seen.lease.intent
	switch {
	case on.stands() || seen.lease.suspect > 0:
		trusted := m.trust(seen.lease, seen.ordinals)
		l := trusted.to()
		var i record.Intent
		if a.next == record.NextAct {
			i = intent{op: a.op, ref: ref{pod: a.target}}.to()
		}
		joined := rollout.Assess(m.observation(q), m.policy)
		return a, record.ResolutionOf(&l, joined, m.forgets(w), a.next, i)
	case w.left.Blocking > 0 && m.Duty:
		q.full = true
		return m.decide(q), record.Open
	case w.left.Blocking > 0 && seen.etcd.answering == seen.etcd.voters:
		// Whenever it could do no harm by itself. The shipped duty waits for much more.
		return answer{next: record.NextAct, op: disturb}, record.Open // The member of the first place.
	}
	return a, record.Open
}

// asks adds to a question what concerns the operations on members: whether an operator asks for a removal, which
// member may still be removed by it, and whether that is gone from the list for good; and which member may still be
// stopped.
func (m *Model) asks(w *World, seen *request, q *question) {
	q.asked, q.expelled = m.Left > 0 && w.left.Presumed > 0, w.expelled
	on := seen.lease.intent
	if on.op == disturb {
		q.stopped = on.ref.pod + 1
		q.ended = !on.ref.current || !seen.views[on.ref.pod].current
	}
	if m.Weak.OneWorld {
		return
	}
	if q.suspect = seen.lease.suspect; on.op == expel {
		q.suspect = on.ref.pod + 1
	}
}

// forgets: an operator says that the suspect's removal cannot happen any more, and it cannot.
func (m *Model) forgets(w *World) bool {
	if m.Left == 0 || w.left.Forgets == 0 && !m.Over || m.mayStillExpel(w) {
		return false
	}
	w.left.Forgets -= min(w.left.Forgets, 1)
	m.note("an operator says that the suspect is none")
	return true
}

// mayStillExpel is true while a request to remove the member may still arrive.
func (m *Model) mayStillExpel(w *World) bool {
	late := func(r *request) bool { return r.kind == actPresumed && m.canLand(w, r) }
	for i := range w.coordinators {
		if late(&w.coordinators[i].request) {
			return true
		}
	}
	return slices.ContainsFunc(w.orphans[:], func(r request) bool { return late(&r) })
}

// rebornID is what a member's ID has on top of that of the one that had its place before.
const rebornID = 64

// canLand is true for the request of a presumed or blocking operation that may still take effect. The
// call of a blocking one ends in time, or a little later.
func (m *Model) canLand(w *World, r *request) bool {
	switch r.kind {
	case actPresumed:
		return w.list.has(int(r.ref.pod)) && !w.expelled && r.stage == 0
	case actBlocking:
		return r.age < callTicks+recoveryTicks && r.stage == 0
	}
	return false
}

// actUnfenced carries out a presumed or blocking operation.
func (m *Model) actUnfenced(w *World, r *request) string {
	if !m.canLand(w, r) {
		return ""
	}
	place := r.ref.pod
	voting, _ := m.voting(w)
	before := voting >= w.list.quorum()
	switch r.kind {
	case actPresumed:
		if m.runs(w, int(place)) {
			m.counts.Returned++ // It came back after its removal had been decided on.
		}
		w.left.Presumed, w.expelled = 0, true
		m.remember(w)
		w.list.voters &^= 1 << place
		w.list.learners &^= 1 << place
		if p := &w.pods[place]; p.phase == up { // Its etcd ends, and the host lets it join anew.
			p.phase, p.health = starting, healthy
		}
	case actBlocking:
		w.left.Blocking = 0
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

// open returns the rule that is broken when a presumed or blocking operation may still take effect, and
// the record does not say so.
func (m *Model) open(w *World, r *request) string {
	on := w.lease.intent
	if !m.canLand(w, r) || on.stands() && on.op == r.op && on.ref.pod == r.ref.pod || w.lease.suspect == r.ref.pod+1 {
		return ""
	}
	return fmt.Sprintf("it can still happen and is not on record (%s): %s", w.lease, r)
}

// waits is true while time makes a difference, where there is a blocking operation.
func (m *Model) waits(w *World) bool {
	for i := range m.Coordinators {
		c := &w.coordinators[i]
		if c.begun < evidenceTicks || c.renewed < renewTicks || c.doubted < settledTicks+callTicks ||
			m.canLand(w, &c.request) {
			return true
		}
	}
	return slices.ContainsFunc(w.orphans[:], func(r request) bool { return r.kind == actBlocking })
}

// forgetDoubts where no blocking operation stands on the record.
func (m *Model) forgetDoubts(w *World) {
	for i := range m.Coordinators {
		if c := &w.coordinators[i]; c.lease.intent.op != disturb {
			c.doubted = settledTicks + callTicks
		}
	}
}
