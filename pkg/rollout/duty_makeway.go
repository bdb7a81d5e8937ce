package rollout

// makeWay is the duty that moves leadership away from a member that others are about to take. It does nothing without
// the lock: a fallback coordinator is there to bring quorum back.
func makeWay(a *Assessment) Decision {
	target, why, waited := leadsAndLeaves(a)
	if a.state.NoLock || target.Pod == "" || a.transfersFail(a.Leader) {
		return Decision{}
	}
	// While nobody waits for the others to take it, the other duties go on. An heir that is outdated, or next to be
	// defragmented, would be the next to hand over, and might have nobody else to hand over to.
	next := defragment(a)
	defragmented := next.Target().Pod
	to := a.heir(nil, func(r *Replica) bool {
		return !r.Leader && !r.goesLast() && (waited || !r.Outdated && r.Name != defragmented)
	})
	if to == nil {
		return Decision{}
	}
	t := Transfer{From: a.Leader, To: to.Member.ID, FromName: target.Pod, ToName: to.Name}
	d := Decision{Action: MoveLeader{Target: target, Transfer: t}, Rule: RuleMakeWay}
	d.reason = func() string {
		return t.FromName + " leads, and " + why() + "; " + t.ToName + " takes over first, so that no election is " +
			"needed"
	}
	return d
}

// leadsAndLeaves returns the leader's pod if others are about to take it, or if its node is cordoned, with the
// reason. waited is true while the rollout waits for them.
func leadsAndLeaves(a *Assessment) (pod Target, why func() string, waited bool) {
	for i := range a.Replicas {
		r := &a.Replicas[i]
		if r.Leader && r.Pod != nil && r.Evidence == Serving && (r.Leaving || r.goesLast() && !r.Going()) {
			return targetOf(r), func() string { return a.leaver(r) }, r.yields
		}
	}
	for _, m := range a.External {
		if p := a.state.podOutOfRange(m); p != nil && m.ID == a.Leader && a.serves(m) {
			target := Target{Pod: p.Name, UID: p.UID, ResourceVersion: p.ResourceVersion, Ordinal: p.Ordinal}
			return target, func() string { return "it is being scaled away" }, true
		}
	}
	return Target{}, nil, false
}
