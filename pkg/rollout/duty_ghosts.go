package rollout

import "strconv"

// removeGhosts is the duty that removes a ghost from etcd's list when an operator asks for it. Nothing is ever
// removed without a request: nobody but the operator knows that a member is not to come back. Without the
// lock nothing is removed either.
func removeGhosts(a *Assessment) Decision {
	r := a.state.Request
	if r == nil || r.Operation != RequestRemoveMember || a.Fulfilled() {
		return Decision{}
	}
	if a.state.NoLock {
		d := Decision{Action: Wait{}, Rule: RuleRemoveGhost}
		d.reason = func() string {
			return r.label() + " is not removed from etcd's member list" + withoutLock + a.ghostsGo()
		}
		return d
	}
	c := Candidate{Pod: r.label(), Rule: RuleRemoveGhost, Verdicts: make([]Verdict, len(ghostGuards))}
	for i, g := range ghostGuards {
		a.ask(g, nil, &c.Verdicts[i])
	}
	d := Decision{Rule: RuleRemoveGhost, Candidates: []Candidate{c}}
	if v := c.failed(); v != nil {
		return keptBack(&c, d.Candidates, func() string {
			return c.Pod + " is not removed from etcd's member list: " + v.Detail()
		})
	}
	g := a.ghost(r.Member)
	d.Action = RemoveMember{Member: memberTarget(a, g)}
	d.reason = func() string {
		voters, quorum := a.AfterRemoval(g)
		return c.Pod + " is a ghost, and its removal was requested: without it, " + strconv.Itoa(a.survivors) + " of " +
			strconv.Itoa(voters) + " voters serve, quorum " + strconv.Itoa(quorum)
	}
	return d
}

// memberTarget is the ghost, with the list that it is on.
func memberTarget(a *Assessment, g *Ghost) MemberTarget {
	t := MemberTarget{MemberRef: a.state.refOf(g.ID, g.Name), URLs: g.PeerURLs}
	for i := range a.state.Etcd.Members {
		t.List = append(t.List, a.state.Etcd.Members[i].ID)
	}
	return t
}
