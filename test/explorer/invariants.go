package explorer

import "fmt"

// takesEffect removes a pod, and returns the rule that this breaks. Two things excuse a
// lost quorum, and nothing else: a member that failed by itself after the pods were looked
// at, and a quorum that was lost when etcd was asked, and has come back by itself since.
// The property is about members that serve. One that votes and serves nobody may go while
// enough other processes run (MayVote); which of those hang, nobody can tell.
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
	served := votes && m.answers(w, int(i)) // A learner is outside quorum and budget.
	if votes && voting >= m.quorum() && voting-1 < m.quorum() && (m.Members > 1 || voting > 1) {
		switch {
		case r.unaware:
			m.counts.Residues++
		case r.lost:
			m.counts.Returned++
		case !served && m.running(w)-1 >= m.quorum():
			m.counts.Guesses++
		default:
			return fmt.Sprintf("%s is removed, %d of %d voters run then, and quorum is %d", names[i], voting-1, m.Members-m.Learners+m.Ghosts, m.quorum())
		}
		if r.age >= evidenceTicks {
			m.counts.ResiduesLate++
		}
	}
	if served {
		away := 1
		for k := range m.Members {
			if w.pods[k].ours {
				away++
			}
		}
		if away > max(1, m.MaxUnavailable) {
			return fmt.Sprintf("%s is removed, and then %d members that served are down because of us", names[i], away)
		}
	}
	p.phase, p.health, p.ours = terminating, healthy, p.ours || served
	w.touch(i)
	m.ignorant(w)
	return ""
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
