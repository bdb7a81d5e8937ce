package explorer

import (
	"fmt"
	"math/bits"
	"slices"
	"strconv"

	"github.com/quorate/quorate/internal/record"
)

// What others do to the cluster: scale it, drain its nodes, add and remove members.

// scalings of a StatefulSet.
const (
	inByOne uint8 = iota
	inByTwo
	outByOne
	startUp
	scalings
)

func (o ordinals) scaled(how uint8) ordinals {
	switch how {
	case inByOne:
		o.replicas--
	case inByTwo:
		o.replicas -= 2
	case outByOne:
		o.replicas++
	case startUp:
		o.start++
	}
	return o
}

// mayScale is true for what leaves at least one replica, and no more ordinals than there can be.
func (m *Model) mayScale(w *World, how uint8) bool {
	switch have := int(w.replicas); how {
	case inByOne:
		return have > 1
	case inByTwo:
		return have > 4 // To 3, as people do. Two are held for good, by name.
	}
	to := w.scaled(how)
	return int(to.start+to.replicas) <= m.ordinals()
}

func (m *Model) movesOfMembers(w *World, add func(what moveKind, who int, how int)) {
	if w.left.Scales > 0 {
		for how := range scalings {
			if m.mayScale(w, how) && (m.Left == 0 || how == outByOne) {
				add(scale, 0, int(how))
			}
		}
	}
	if m.Left > 0 && w.left.Presumed > 0 {
		add(lapse, 0, 0)
	}
	if w.left.Restores > 0 && w.lease.rv > 0 && !w.expelled && !m.mayStillAct(w) {
		add(restoreLease, 0, 0)
	}
	quorum := m.hasQuorum(w)
	for i := range m.places() {
		p := &w.pods[i]
		if i >= m.ordinals() {
			if p.phase == up && w.left.Departures > 0 {
				add(depart, i, 0)
			}
			continue
		}
		if quorum && w.list.has(i) && p.phase == missing && !w.has(i) {
			add(unlist, i, 0)
		}
		if quorum && w.list.learners&(1<<i) != 0 && i >= m.Members && p.phase == up {
			add(promote, i, 0)
		}
		if w.left.Drains > 0 && m.drains(w, i) {
			add(drain, i, 0)
		}
		m.movesOfSigns(w, i, add)
		if p.charged && !w.evicting(i) {
			add(expire, i, 0)
		}
	}
	if w.left.Joins > 0 {
		grown := w.list
		grown.ghosts++
		if _, staying := m.voting(w); staying >= grown.quorum() { // Else etcd refuses.
			add(join, 0, 0)
		}
	}
	if m.Budget && w.allowed != m.reckoned(w) {
		add(reckon, 0, 0)
	}
}

func (m *Model) applyToMembers(w *World, mv Move) string {
	switch mv.what {
	case scale:
		w.left.Scales--
		w.ordinals = w.scaled(mv.how)
		for i := range m.ordinals() {
			if p := &w.pods[i]; !w.has(i) { // It would be gone without us.
				p.ours, p.risky = false, false
			}
		}
		m.note("the StatefulSet is scaled: ordinals %d to %d", w.start, w.start+w.replicas-1)
	case scaleAway:
		m.note("the controller scales %s away", names[mv.who])
		return m.goes(w, mv.who, "is scaled away")
	case depart:
		w.left.Departures--
		m.note("%s goes, and asks nobody here", m.place(mv.who))
		return m.goes(w, mv.who, "goes")
	case drain:
		w.left.Drains--
		if m.Budget {
			w.allowed--
			w.pods[mv.who].charged = true
		}
		m.note("somebody drains the node of %s (a budget allows it: %v)", names[mv.who], m.Budget)
		return m.goes(w, mv.who, "is evicted by a drain")
	case announce:
		w.left.Signs--
		m.announce(w, mv.who, mv.how)
	case withdraw:
		m.withdraw(w, mv.who, mv.how)
	case join:
		w.left.Joins--
		m.remember(w)
		w.list.ghosts++
		m.note("a member is added, and does not start")
	case unlist:
		m.remember(w)
		w.list.voters &^= 1 << mv.who
		w.list.learners &^= 1 << mv.who
		w.expelled = w.expelled || m.Left > 0 && int(mv.who) == m.Members
		m.note("the member of %s is removed from the list", names[mv.who])
	case lapse:
		w.left.Presumed = 0
		m.note("the request runs out")
	case restoreLease:
		w.left.Restores--
		w.left.Presumed = 0
		l := w.lease
		l.schema, l.holder, l.epoch = record.Newest, 0, 1
		l.intent, l.suspect = intent{op: expel, epoch: 1}, 0
		l.intent.ref.pod = uint8(m.Members) //nolint:gosec // A handful.
		w.changeLease(l)
		m.note("the Lease comes back from a backup: %s", w.lease)
	case promote:
		m.remember(w)
		w.list.voters |= 1 << mv.who
		w.list.learners &^= 1 << mv.who
		m.note("the member of %s votes from now on", names[mv.who])
	case reckon:
		w.allowed = m.reckoned(w)
		m.note("the disruption controller reckons that %d may go", w.allowed)
	case expire:
		w.pods[mv.who].charged = false
		m.note("the disruption controller forgets the eviction of %s", names[mv.who])
	default:
		panic(fmt.Sprintf("no such move: %d", mv.what))
	}
	return ""
}

// remember keeps the membership from before a change.
func (m *Model) remember(w *World) {
	if m.Faults.OldLists > 0 {
		w.former = w.list
	}
}

// enlist: the host adds the member of a new pod as a learner. A voter outside that was removed from the
// list does not come back to it: it would have another ID.
func (m *Model) enlist(w *World, i uint8) {
	if !w.list.has(int(i)) && int(i) < m.ordinals() {
		m.remember(w)
		w.list.learners |= 1 << i
	}
}

// goes: others let a pod go. If quorum goes with it because one of ours is away that was removed
// although those that could be relied on were no quorum, that was ours to foresee.
func (m *Model) goes(w *World, i uint8, how string) string {
	_, before := m.voting(w)
	m.terminates(w, i)
	_, after := m.voting(w)
	if quorum := w.list.quorum(); before < quorum || after >= quorum {
		return ""
	}
	for k := range m.ordinals() {
		if w.pods[k].risky {
			return fmt.Sprintf("%s %s, %d voters are left then, and quorum is %d: %s was removed before, and those "+
				"that could be relied on were none",
				m.place(i), how, after, w.list.quorum(), names[k])
		}
	}
	return ""
}

// mayStillAct is true while an operation of ours may still arrive. A Lease that comes back then has lost it,
// and nothing of ours can know that.
func (m *Model) mayStillAct(w *World) bool {
	acts := func(r *request) bool { return r.kind == actFenced || r.kind == actPresumed }
	for i := range w.coordinators {
		if acts(&w.coordinators[i].request) || w.coordinators[i].decided.op != none {
			return true
		}
	}
	return slices.ContainsFunc(w.orphans[:], func(r request) bool { return acts(&r) })
}

// reckoned is how many Ready pods the budget lets go: none that leaves fewer than a majority of
// the replicas.
func (m *Model) reckoned(w *World) uint8 {
	ready := 0
	for i := range m.ordinals() {
		if w.pods[i].phase == up && m.look(w, i) == looksReady && !w.pods[i].charged {
			ready++
		}
	}
	return uint8(max(0, ready-(int(w.replicas)/2+1))) //nolint:gosec // A handful.
}

// evicting: an eviction of ours has charged the budget and has yet to delete the pod.
func (w *World) evicting(i int) bool {
	of := func(r *request) bool {
		return r.kind == actFenced && r.stage == 1 && int(r.ref.pod) == i && r.ref.current
	}
	for k := range w.coordinators {
		if of(&w.coordinators[k].request) {
			return true
		}
	}
	for k := range w.orphans {
		if of(&w.orphans[k]) {
			return true
		}
	}
	return false
}

// place is how a member is called: by its pod, if it is ours.
func (m *Model) place(i uint8) string {
	if int(i) < m.ordinals() {
		return names[i]
	}
	return "other-" + strconv.Itoa(int(i)-m.ordinals())
}

// counted are how many places are set.
func counted(places uint8) int { return bits.OnesCount8(places) }
