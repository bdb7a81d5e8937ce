package rollout

import "slices"

// Needed says which pods quorum rests on while something of ours is under way. The zero value is that nothing is, or
// that all members can be spared alike.
type Needed struct {
	// During is what is under way, in words.
	During string
	// Pods are the UIDs of the pods, by name.
	Pods map[string]string
}

// Needed is what quorum rests on while the decision is carried out, or while it waits for what has been begun. It is
// empty where the decision holds or is over: then whatever comes next is up to a person, and nothing of ours is to be
// in the way. It is also empty while all pods are there, their members serve and vote, and none of them is about to go.
//
// If enough members serve, as many pods are named as quorum needs, so that no two others can go together and take it:
// those that somebody is about to take anyway are left out first, then outdated pods, and the leader last. If fewer
// serve, all of them are named, and whatever else may vote, because nobody knows which of those it is: members that are
// Unknown, and processes that look down, as long as some member serves, which proves a quorum (see [GuardMayVote]).
// What certainly does not vote is never named, and nor is the decision's own target.
func (d *Decision) Needed() Needed {
	target := ""
	if _, moves := d.Action.(MoveLeader); !moves && d.Acts() {
		target = d.About()
	}
	return d.neededWithout(target)
}

// NeededUndone is the same for a decision that is not carried out: it was put off, or nothing came of it.
func (d *Decision) NeededUndone() Needed { return d.neededWithout("") }

// neededWithout is what quorum rests on without the pod of that name, empty for none.
func (d *Decision) neededWithout(target string) Needed {
	a := d.Assessment
	switch d.Action.(type) {
	case nil, Idle, Hold, Complete:
		return Needed{}
	case Wait:
		// The others wait for something that is not on its way by our hand, such as a ghost's next ten minutes.
		if d.Duty != DutyRoll && d.Duty != DutyHeld {
			return Needed{}
		}
	}
	away := func(r Replica) bool { return r.Going() || r.Evidence != Serving || !r.Voter }
	back := !slices.ContainsFunc(a.Replicas, away)
	if a.Quorum == 0 || target == "" && back {
		return Needed{}
	}
	keep := a.voting(target)
	slices.SortStableFunc(keep, func(x, y voter) int { return x.spared - y.spared })
	// Members elsewhere that may be relied on vote as well, and no pod of ours has to stay for them.
	need := max(0, a.Quorum-len(a.trusted))
	n := Needed{During: d.during(), Pods: map[string]string{}}
	for i, v := range keep {
		if i < need || need > 0 && keep[need-1].spared == sparedIfUnknown {
			n.Pods[v.pod.Name] = v.pod.UID
		}
	}
	if len(n.Pods) == 0 {
		return Needed{}
	}
	return n
}

// voter is a pod whose member votes, or may. The higher spared is, the sooner the pod can be spared.
type voter struct {
	pod    *Pod
	spared int
}

// voting are the pods whose members vote, or may, without the one of that name. Pods that are to be scaled away are
// among them: quorum may rest on them until they are gone.
func (a *Assessment) voting(without string) []voter {
	var all []voter
	for i := range a.Replicas {
		r := &a.Replicas[i]
		down := r.Evidence == Down && (r.Liveness == Dead || a.Serving == 0)
		if r.Voter && !r.Going() && !r.Suspect && !r.Stopped && !down && r.Name != without {
			all = append(all, voter{r.Pod, r.spared()})
		}
	}
	for _, m := range a.External {
		if p := a.state.podOutOfRange(m); p != nil && !p.Terminating && a.serves(m) && !a.state.suspects(m) {
			all = append(all, voter{p, sparedIfLeaving})
		}
	}
	return all
}

const (
	sparedIfLeaving = 3
	sparedIfUnknown = 4
)

func (r *Replica) spared() int {
	switch {
	case r.Evidence != Serving:
		return sparedIfUnknown
	case r.Leader:
		return 0
	case r.yields:
		return sparedIfLeaving
	case r.Outdated:
		return 2
	}
	return 1
}

// during is what is under way while the decision is carried out or waits.
func (d *Decision) during() string {
	about := d.About()
	if about == "" {
		about = d.Pod()
	}
	switch {
	case about == "":
		return "the work on " + d.Assessment.state.Set.Name
	case d.Duty == DutyRoll:
		return "the replacement of " + about
	case d.Duty == DutyDefragment:
		return "the defragmentation of " + about
	case d.Duty == DutyGhosts:
		return "the removal of member " + about
	}
	return "the work on " + about
}
