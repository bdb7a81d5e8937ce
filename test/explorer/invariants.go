package explorer

import "fmt"

// takesEffect removes a pod, and returns the rule that this breaks. What excuses a broken
// promise, and is counted, is what nobody could have seen when etcd was asked: see excuseOf.
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
		case r.excuse == enough:
			m.counts.Residues++
		case r.excuse == cameBack:
			m.counts.Returned++
		case r.excuse == guessed && m.mayGuess:
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

// excuseOf is what can excuse the removal of a pod that is decided on now, while etcd is asked,
// if it takes the voters below quorum when it takes effect. What is not said here is no excuse,
// whatever else fails or comes back.
//
//   - Of the members that answered, enough are left without the target. As long as none of them
//     goes, a quorum is left. One that has gone by then has failed by itself, or was deleted by
//     somebody else, and after it has answered: a removal of ours makes the observation
//     ignorant, and for that there is no excuse.
//   - The target did not answer. It had no process when its pod was looked at, or did not vote
//     when etcd was asked, or there was no quorum then; and that has come back by itself since.
//     (One that answered did vote, and there was a quorum: it is never excused so.)
//   - The target did not answer, had a process and voted, and there was a quorum. Then it is a
//     guess which of the silent ones vote. It is excused where none of the voters answered, for
//     to every client there was no quorum, or where the others that answered or had a process
//     would be one. If there was no quorum while the pods were looked at, it has come back too:
//     for that reason no kubelet had its member ready.
func (m *Model) excuseOf(w *World, r *request, target int) uint8 {
	runs := func(k int) bool {
		v := &r.views[k]
		return v.current && (v.look == looksReady || v.look == looksUnready)
	}
	voters := m.Members - m.Learners
	served, running := 0, 0 // Of the other voters.
	for k := range voters {
		switch answered := r.etcd.answering&(1<<k) != 0; {
		case k == target:
		case answered && r.views[k].current:
			served++
			running++
		case runs(k):
			running++
		}
	}
	answered, silent := r.etcd.answering&(1<<target) != 0, r.etcd.answering&(1<<voters-1) == 0
	switch {
	case served >= m.quorum():
		return enough
	case answered:
		return noExcuse
	case !runs(target) || !m.votes(w, target) || !m.hasQuorum(w):
		return cameBack
	case !silent && running < m.quorum():
		return noExcuse
	case r.lost:
		return cameBack
	}
	return guessed
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
