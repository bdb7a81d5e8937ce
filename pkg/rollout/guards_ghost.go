package rollout

// These guards are asked before a ghost is removed from etcd's member list. They judge the cluster as a
// whole, with the request that stands.

// requestBinding: a request is about one member of one cluster, as the operator saw them. A backup may
// bring back the request, the member's ID or its name, but not all three at once in ten minutes.
func requestBinding(a *Assessment, _ *Replica) Verdict {
	r, etcd := a.state.Request, &a.state.Etcd
	if !etcd.Known {
		return verdict(false, "no member answers with a member list")
	}
	m := a.state.member(r.Member)
	v := Verdict{lasting: true}
	switch {
	case r.Cluster != etcd.ClusterID:
		v.text = "the request is about another cluster"
	case m == nil:
		return verdict(false, "it is not on the member list, but that list comes from one member only")
	case m.Name != r.Name:
		v.text = "the member with this ID has another name than the request: " + m.label()
	default:
		return passed("the request names this cluster, and this member by its ID and its name")
	}
	return v
}

// noGhost: what is removed has been a ghost for long. A member that serves is never removed.
func noGhost(a *Assessment, _ *Replica) Verdict {
	m := a.state.member(a.state.Request.Member)
	if m == nil {
		return verdict(false, "it is not on the member list")
	}
	if g := a.ghost(m.ID); g != nil {
		return verdict(a.Lasting(g), "it has had no pod and has not answered for %d s, of at least %d s",
			int(g.Silent.Seconds()), int(a.policy.GhostAfter.Seconds()))
	}
	_, why, lasting := whyNoGhost(a, m)
	return Verdict{text: "it is not a ghost: " + why, lasting: lasting}
}

// podsServe: the membership is changed only while nothing else is the matter.
func podsServe(a *Assessment, _ *Replica) Verdict {
	well := 0
	for i := range a.Replicas {
		r := &a.Replicas[i]
		well += btoi(r.survives() && r.Pod.Ready)
	}
	return verdict(well > 0 && well == len(a.Replicas), "%d of %d pods are Ready, stay, and have a voter that serves",
		well, len(a.Replicas))
}

// membershipMoves: nobody else changes the membership or the number of pods: not the host, which adds a
// learner and promotes it, and not whoever scales.
func membershipMoves(a *Assessment, _ *Replica) Verdict {
	if p := a.state.beyond(); p != nil {
		return Verdict{text: "the pod " + p.Name + " is being scaled away"}
	}
	for i := range a.state.Etcd.Members {
		m := &a.state.Etcd.Members[i]
		switch {
		case a.ghost(m.ID) != nil:
		case m.Learner:
			return Verdict{text: m.label() + " is a learner, which is about to join"}
		case m.Name == "":
			return Verdict{text: m.label() + " has never started"}
		case a.state.Ages[m.sighted(MemberSeen)] < a.policy.GhostAfter:
			v := verdict(false, "a member has been on the list for %d s, of at least %d s: ",
				int(a.state.Ages[m.sighted(MemberSeen)].Seconds()), int(a.policy.GhostAfter.Seconds()))
			v.text = m.label()
			return v
		}
	}
	return passed("nobody is adding or promoting a member, or scaling")
}

// ghostQuorum: by a list that a quorum has agreed on, those that serve and stay are a quorum with the
// ghost and without it.
func ghostQuorum(a *Assessment, _ *Replica) Verdict {
	if !a.state.Etcd.Linearizable {
		return verdict(false, "the member list is not one that a quorum has agreed on")
	}
	voters := a.Voters
	if m := a.state.member(a.state.Request.Member); m != nil && !m.Learner {
		voters--
	}
	after := voters/2 + 1
	return verdict(a.survivors >= a.Quorum && a.survivors >= after,
		"%d of %d voters serve and stay, quorum %d; without it, %d of %d are needed",
		a.survivors, a.Voters, a.Quorum, after, voters)
}

// suspectMember: the record has room for one removal that may still happen.
func suspectMember(a *Assessment, _ *Replica) Verdict {
	s := a.state.Suspect
	if s.ID == 0 || s.ID == a.state.Request.Member {
		return passed("no earlier removal of another member can still happen")
	}
	name := s.Name
	if m := a.state.member(s.ID); m != nil {
		name = m.label()
	}
	return Verdict{text: "an earlier removal of " + name + " may still happen"}
}
