package explorer

import (
	"fmt"

	"github.com/quorate/quorate/pkg/rollout"
)

// What others say before they take a pod, and what we owe them for it: signs that clear again or are followed by a
// drain at any moment.

// signs are bits of places. Marked are the pods that others are about to take: by the pod's condition
// DisruptionTarget, or by its node's taint. Cordoned are those whose nodes take no new pods, because a drain may
// follow.
type signs struct{ marked, cordoned uint8 }

// leave is true for a pod that bears a sign.
func (s signs) leave(i int) bool { return (s.marked|s.cordoned)&(1<<i) != 0 }

// ways of announcing. A condition changes the pod, and what is done to its node does not.
const (
	byCondition uint8 = iota
	byTaint
	byCordon
)

// tell puts into words what a coordinator sees of a pod's signs.
func (s signs) tell(p *rollout.Pod) {
	if s.marked&(1<<p.Ordinal) != 0 {
		p.Leaving = "DisruptionTarget EvictionByEvictionAPI"
	}
	if s.cordoned&(1<<p.Ordinal) != 0 {
		p.Node, p.Cordoned = "node", true
	}
}

// shown are the signs that can be seen: a pod that ends, or that waits for a node, has none.
func (m *Model) shown(w *World) signs {
	up := m.up(w)
	return signs{marked: w.marked & up, cordoned: w.cordoned & up}
}

// up are the places of our pods that are.
func (m *Model) up(w *World) (places uint8) {
	for i := range m.ordinals() {
		if w.pods[i].phase == up {
			places |= 1 << i
		}
	}
	return places
}

// movesOfSigns are what others may say of a pod, or take back. What says that a pod is about to go does not stay for
// good: the disruption controller clears the condition of an eviction that had no effect.
func (m *Model) movesOfSigns(w *World, i int, add func(what moveKind, who int, how int)) {
	place := uint8(1) << i
	if w.left.Signs > 0 && w.pods[i].phase == up && !w.leave(i) {
		add(announce, i, int(byCondition))
		add(announce, i, int(byTaint))
		add(announce, i, int(byCordon))
	}
	if w.marked&place != 0 && !w.evicting(i) {
		add(withdraw, i, int(byCondition))
	}
	if w.cordoned&place != 0 && !m.Stay {
		add(withdraw, i, int(byCordon))
	}
}

func (m *Model) announce(w *World, i, how uint8) {
	switch how {
	case byCondition:
		w.touch(i)
		w.marked |= 1 << i
		m.note("%s bears the condition DisruptionTarget", names[i])
	case byTaint:
		w.marked |= 1 << i
		m.note("the node of %s has a taint that evicts it", names[i])
	case byCordon:
		w.cordoned |= 1 << i
		m.note("the node of %s is cordoned", names[i])
	}
}

func (m *Model) withdraw(w *World, i, how uint8) {
	if how == byCordon {
		w.cordoned &^= 1 << i
		m.note("the node of %s is not cordoned any more", names[i])
		return
	}
	w.marked &^= 1 << i
	m.note("nothing says any more that others are about to take %s", names[i])
}

// withdrawn: a pod that terminates takes its signs with it. Where the next one is bound to its node, a cordon stays.
func (m *Model) withdrawn(w *World, i uint8) {
	w.marked &^= 1 << i
	if !m.Bound {
		w.cordoned &^= 1 << i
	}
}

// drains is true while others can take the pod. Where there are signs, they take only what bears one, and where there
// is a budget, only what it allows.
func (m *Model) drains(w *World, i int) bool {
	switch {
	case w.pods[i].phase != up, m.Faults.Signs > 0 && !w.leave(i):
		return false
	case m.Budget:
		return m.look(w, i) == looksReady && w.allowed > 0
	}
	return m.Faults.Signs > 0
}

// leaving counts the voters that run and that others are about to take, but for one that we take.
func (m *Model) leaving(w *World, but int) int {
	n := 0
	for i := range m.ordinals() {
		if i != but && m.votes(w, i) && w.pods[i].phase == up && w.leave(i) {
			n++
		}
	}
	return n
}

// excuseBeside is the excuse of a removal that is decided on after conditions were seen for as long as that. Nobody
// relies on a member that others were seen to be about to take. A cordon alone counts only until it has been waited
// for: nodes stay cordoned for days.
func (m *Model) excuseBeside(w *World, seen *request, target int, age uint8) uint8 {
	excuse := m.excuseOf(w, seen, target)
	if excuse != noExcuse || age != beyond || seen.cordoned == 0 {
		return excuse
	}
	waited := *seen
	waited.cordoned = 0
	if excuse = m.excuseOf(w, &waited, target); excuse == enough {
		excuse = outwaited
	}
	return excuse
}

// removedOf are the pods that a coordinator knows to have removed itself. Where there are no signs it is as if it had
// removed all that is away: for what others take, the next one only waits longer.
func (m *Model) removedOf(places uint8) []string {
	if m.Faults.Signs == 0 {
		return names[:m.ordinals()]
	}
	var removed []string
	for i := range m.ordinals() {
		if places&(1<<i) != 0 {
			removed = append(removed, names[i])
		}
	}
	return removed
}

// back are the places whose pods were seen to be there, and not on their way out.
func (r *request) back() (places uint8) {
	for i := range r.views {
		if v := &r.views[i]; v.look != looksMissing && v.look != looksTerminating {
			places |= 1 << i
		}
	}
	return places
}

// mayMakeWay is true while others are about to take the leader, and another member can lead.
func (m *Model) mayMakeWay(w *World) bool {
	if w.leader == 0 || !w.leave(int(w.leader)-1) || w.pods[w.leader-1].phase != up {
		return false
	}
	for i := range m.ordinals() {
		if w.list.voter(i) && m.answers(w, i) && w.pods[i].phase == up && !w.leave(i) {
			return true
		}
	}
	return false
}

// strands returns what is wrong with who is to lead: whoever others are about to take hands over, if another can lead,
// and nobody hands over to one that others are about to take while there is another. While nobody waits for the others
// to take it, an outdated member is no heir: it would be the next to hand over.
func (m *Model) strands(w *World, i uint8, q *question, a answer) string {
	if a.makesWay {
		m.counts.MadeWay++
	}
	leader := int(q.leader) - 1
	if m.Faults.Signs == 0 || m.Denied || m.Nameless || q.told != byQuorum || leader < 0 || leader >= m.ordinals() {
		return ""
	}
	heir, rather := -1, -1 // rather is one that is up to date.
	for k := range m.ordinals() {
		look := q.looks[k]
		switch ready := q.voter(k) && q.has(k) && q.answering&^q.old&^q.wrong&(1<<k) != 0; {
		case k == leader || !ready || q.leave(k) || look&^outdatedBit == looksTerminating || look == looksMissing:
		case look&outdatedBit == 0:
			rather, heir = k, k
		default:
			heir = k
		}
	}
	place := uint8(1) << leader
	waited := q.marked&place != 0 || q.cordoned&place != 0 && q.age != beyond
	if !waited {
		heir = rather
	}
	switch {
	case a.op == lead && heir >= 0 && q.leave(int(a.target)):
		return fmt.Sprintf("%s moves leadership to %s, which others are about to take, and %s could lead",
			m.name(w, i), m.place(a.target), names[heir])
	case q.noLock, q.transfers == 2: // A fallback only brings quorum back. Nor is what fails tried for ever.
	case a.op != lead && heir >= 0 && q.leave(leader) && q.answering&place != 0:
		return fmt.Sprintf("%s lets %s lead, which others are about to take, and %s could lead", m.name(w, i),
			names[leader], names[heir])
	}
	return ""
}

// inWords says how many others are about to take, if any.
func inWords(leaving int) string {
	if leaving == 0 {
		return ""
	}
	return fmt.Sprintf("; others are about to take %d of those", leaving)
}

// words say which signs a pod bears.
func (s signs) words(i int) (text string) {
	if s.marked&(1<<i) != 0 {
		text += " (about to be taken)"
	}
	if s.cordoned&(1<<i) != 0 {
		text += " (cordoned)"
	}
	return text
}
