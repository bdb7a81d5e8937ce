package rollout

import "strconv"

// withoutLock is what is told of what an operator asks for while the lock cannot be had.
const withoutLock = " without the lock in etcd, which cannot be had now: nobody sees which sidecars there are"

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
		d.Action, d.Guard = RowOf(v.Guard).keeps(v), v.Guard
		d.reason = func() string { return c.Pod + " is not removed from etcd's member list: " + v.Detail() }
		return d
	}
	g := a.ghost(r.Member)
	d.Action = RemoveMember{Member: a.targetMember(g)}
	d.reason = func() string {
		voters, quorum := a.AfterRemoval(g)
		return c.Pod + " is a ghost, and its removal was asked for: " + strconv.Itoa(a.survivors) + " of " +
			strconv.Itoa(voters) + " voters serve then, quorum " + strconv.Itoa(quorum)
	}
	return d
}

// Fulfilled is true once the member whose removal is asked for is gone from the list of the same cluster.
func (a *Assessment) Fulfilled() bool {
	r, etcd := a.state.Request, &a.state.Etcd
	return r != nil && r.Operation == RequestRemoveMember && etcd.Known && etcd.Linearizable &&
		r.Cluster == etcd.ClusterID && a.state.member(r.Member) == nil
}

func (a *Assessment) targetMember(g *Ghost) MemberTarget {
	t := MemberTarget{MemberRef: a.refOf(g.ID, g.Name), URLs: g.PeerURLs}
	for i := range a.state.Etcd.Members {
		t.List = append(t.List, a.state.Etcd.Members[i].ID)
	}
	return t
}

// label is [Label] of the member that a request is about.
func (r *Request) label() string { return Label(r.Name, r.Member) }
