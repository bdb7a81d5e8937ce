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
		return fmt.Sprintf("%s is removed in ignorance of another operation of ours", names[i])
	}
	voting, staying := m.voting(w)
	votes, quorum := m.votes(w, int(i)), w.list.quorum()
	leaving := m.leaving(w, int(i))
	if votes && staying-leaving <= quorum && voting >= quorum && (w.replicas > 1 || counted(w.list.voters) > 1) {
		switch {
		// The budget is the arbiter, and nothing fails by itself where there is one.
		case m.Budget && staying <= quorum:
			return fmt.Sprintf("%s is removed, %d of %d voters run then, and no budget was asked", names[i], staying-1,
				counted(w.list.voters))
		case r.excuse == enough:
			m.counts.Residues++
		case r.excuse == outwaited:
			m.counts.Outwaited++
		case r.excuse == cameBack:
			m.counts.Returned++
		case r.excuse == guessed && m.mayGuess:
			m.counts.Guesses++
		default:
			return fmt.Sprintf("%s is removed, %d of %d voters run then, and quorum is %d%s", names[i], staying-1,
				counted(w.list.voters)+int(w.list.ghosts), quorum, inWords(leaving))
		}
		if r.age >= evidenceTicks {
			m.counts.ExcusedLate++
		}
	}
	// A learner is outside quorum and budget. What does not answer us may serve all others.
	// What is out of range by now would be gone without us.
	serves := votes && w.has(int(i)) && (m.answers(w, int(i)) || m.look(w, int(i)) == looksReady)
	if away := m.away(w) + 1; serves && away > max(1, m.MaxUnavailable) {
		if r.served {
			return fmt.Sprintf("%s is removed, and then %d members that served are down because of us", names[i], away)
		}
		m.counts.Returned++
	}
	p.ours = p.ours || serves
	if m.External > 0 || m.Faults.Scales > 0 || m.Faults.Signs > 0 || m.Budget {
		p.risky = p.risky || votes && (m.Budget || r.excuse == noExcuse)
	}
	m.terminates(w, i)
	m.ignorant(w)
	return m.payToll(w, r)
}

// spared is true for a member that serves, or that comes back by itself within a moment.
func (m *Model) spared(w *World, i int) bool {
	h := w.pods[i].health
	return w.pods[i].phase == up && (h == ended || h == creating || m.answers(w, i) || h == healthy && !m.hasQuorum(w))
}

// payToll counts what a broken revision costs: members that served or would have come back by
// themselves, and got that revision from us. Before the first one, nobody can tell that the
// revision is broken. If a member was down for as long as a decision waits for it, nobody could
// know that it would come back.
func (m *Model) payToll(w *World, r *request) string {
	if !m.Broken || w.revision != brokenRevision || !r.spared {
		return ""
	}
	w.toll++
	if w.toll > 1 {
		return fmt.Sprintf("%s is removed, and is the second that a broken revision has cost", names[r.ref.pod])
	}
	return ""
}

// excuseOf is what can excuse the removal of a pod that is decided on now, while etcd is asked,
// if it takes the voters below quorum when it takes effect. What is not said here is no excuse,
// whatever else fails or comes back. A coordinator that is cut off hears no answers but its own member's.
//
//   - Of the members that answered, enough are left without the target. Only those count that
//     nobody lets go without us, and that nobody is seen to be about to take. As long as none of them
//     goes and none is added to the list, a quorum is left. One that has gone by then has failed by
//     itself, or was deleted or scaled away by somebody else, and after it has answered: a removal of
//     ours makes the observation ignorant, and for that there is no excuse.
//   - The target did not answer. It had no process when its pod was looked at, or did not vote
//     when etcd was asked, or there was no quorum then; and that has come back by itself since.
//     (One that answered did vote, and there was a quorum: it is never excused so.)
//   - The target did not answer, had a process and voted, and there was a quorum. Then it is a
//     guess which of the silent ones vote. It is excused where none of the voters answered, for
//     to every client there was no quorum, or where the others that answered or had a process
//     would be one. If there was no quorum while the pods were looked at, it has come back too:
//     for that reason no kubelet had its member ready.
func (m *Model) excuseOf(w *World, r *request, target int) uint8 {
	runs := func(k int) bool { // When its pod was looked at.
		ready := r.views[k].look == looksReady || r.views[k].look == looksUnready
		return ready && (k == target || !r.leave(k))
	}
	quorum := w.list.quorum()
	served, running := 0, 0 // Of the other voters.
	for k := range m.places() {
		switch answered := r.etcd.answering&(1<<k) != 0; {
		case k == target || !w.list.voter(k):
		case answered && m.reliable(r, k):
			served++
			running++
		case runs(k), answered && r.views[k].look != looksTerminating && !r.leave(k):
			running++
		}
	}
	answered, silent := r.etcd.answering&(1<<target) != 0, r.etcd.answering&w.list.voters == 0
	switch {
	case served >= quorum:
		return enough
	case answered:
		return noExcuse
	case !runs(target) || !m.votes(w, target) || !m.hasQuorum(w):
		return cameBack
	case !silent && running < quorum:
		return noExcuse
	case r.lost:
		return cameBack
	}
	return guessed
}

// reliable is true for a member that nobody lets go without us: one of our ordinals that is not on
// its way and that nobody was seen to be about to take, or one that the operator has said to be such.
func (m *Model) reliable(r *request, k int) bool {
	if k >= m.ordinals() {
		return m.Trusted
	}
	v := &r.views[k]
	return v.current && v.look != looksTerminating && r.has(k) && !r.leave(k)
}

// away counts the members that are down because of us.
func (m *Model) away(w *World) int {
	n := 0
	for i := range m.ordinals() {
		if w.pods[i].ours {
			n++
		}
	}
	return n
}

// uncovered returns the rule that is broken when a removal can take effect that is not on
// record. Where there is no record, because somebody deleted it, none can be.
func (m *Model) uncovered(w *World) string {
	// One that names none of our pods counts as one about all of them.
	believed := m.trust(w.lease, w.ordinals)
	if w.lease.blank() || believed.intent.op == fenceAll {
		return ""
	}
	check := func(r *request) string {
		if r.kind == actPresumed || r.kind == actBlocking {
			return m.open(w, r)
		}
		if r.kind != actFenced || !r.ref.current || !m.reaches(w, r) {
			return ""
		}
		if on := believed.intent; on.fenced() && on.ref == r.ref {
			return ""
		}
		return fmt.Sprintf("%s's removal of %s can still take effect and is not on record: %s",
			identityNames[1+r.by], r.ref, w.lease)
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
