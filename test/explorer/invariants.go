package explorer

import "fmt"

// takesEffect removes a pod, and returns the rule that this breaks. What excuses a broken
// promise, and is counted, is what nobody could have seen: a member that failed by itself
// after the pods were looked at (Residues); one that did not vote when it was looked at, or a
// quorum that was lost then, and that has come back by itself since (Returned). And where
// several members run and serve nobody, it is a guess which of them vote, and whether there is
// a quorum at all that serves nobody (Guesses).
func (m *Model) takesEffect(w *World, r *request) string {
	i := r.ref.pod
	p := &w.pods[i]
	m.counts.Removals++
	if !r.ref.current {
		return fmt.Sprintf("%s is removed, and the pod that was decided on is another, by its UID", names[i])
	}
	if r.ignorant {
		return fmt.Sprintf("%s is removed in ignorance of another removal of ours", names[i])
	}
	voting, votes := m.voting(w), m.votes(w, int(i))
	if votes && voting == m.quorum() && (m.Members > 1 || voting > 1) {
		switch {
		case r.unaware:
			m.counts.Residues++
		case r.lost, !r.voted:
			m.counts.Returned++
		case !r.served && (r.silent || m.running(w)-1 >= m.quorum()):
			m.counts.Guesses++
		default:
			return fmt.Sprintf("%s is removed, %d of %d voters run then, and quorum is %d", names[i], voting-1, m.Members-m.Learners+m.Ghosts, m.quorum())
		}
		if r.age >= evidenceTicks {
			m.counts.ExcusedLate++
		}
	}
	serves := votes && m.answers(w, int(i)) // A learner is outside quorum and budget.
	if away := m.away(w) + 1; serves && away > max(1, m.MaxUnavailable) {
		if r.served {
			return fmt.Sprintf("%s is removed, and then %d members that served are down because of us", names[i], away)
		}
		m.counts.Returned++
	}
	p.phase, p.health, p.ours = terminating, healthy, p.ours || serves
	w.touch(i)
	m.ignorant(w)
	return ""
}

// away counts the members that are down because of us.
func (m *Model) away(w *World) int {
	n := 0
	for i := range m.Members {
		if w.pods[i].ours {
			n++
		}
	}
	return n
}

// running counts the voters' processes that run, those that hang as well.
func (m *Model) running(w *World) int {
	n := 0
	for i := range m.Members - m.Learners {
		if w.pods[i].phase == up && w.pods[i].health != crashed {
			n++
		}
	}
	return n
}

// uncovered returns the rule that is broken when a removal can take effect that is not on
// record. Where there is no record, because somebody deleted it, none can be.
func (m *Model) uncovered(w *World) string {
	if w.lease.blank() || w.lease.intent.op == fenceAll {
		return ""
	}
	check := func(r *request) string {
		if r.kind != removePod || !r.ref.current || !m.reaches(w, r) {
			return ""
		}
		if on := w.lease.intent; on.named() && on.ref == r.ref {
			return ""
		}
		return fmt.Sprintf("%s's removal of %s can still take effect and is not on record: %s", identityNames[1+r.by], r.ref, w.lease)
	}
	for i := range w.coordinators {
		if broken := check(&w.coordinators[i].request); broken != "" {
			return broken
		}
	}
	for i := range w.orphans {
		if broken := check(&w.orphans[i]); broken != "" {
			return broken
		}
	}
	return ""
}
