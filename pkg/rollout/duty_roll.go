package rollout

import (
	"cmp"
	"fmt"
	"slices"
)

// rolling is what the duty that replaces outdated pods asks.
type rolling struct{ *Assessment }

// roll is the duty that replaces outdated pods: the rules [RuleComplete], [RuleNotServingFirst],
// [RuleUpdatedSettle], [RuleServing] and [RuleHandOverLeadership], in this order. It always
// has something to say.
func roll(on *Assessment) Decision {
	a := rolling{on}
	if a.done() {
		return a.complete()
	}
	down := a.candidates(RuleNotServingFirst, notServingGuards)
	if c := firstPassing(down); c != nil {
		return a.remove(c, down)
	}
	if r, row := a.unsettled(failingGuards); r != nil {
		return a.failed(r, row, down)
	}
	serving := a.candidates(RuleServing, servingGuards)
	all := slices.Concat(down, serving)
	c := firstPassing(serving)
	if c == nil {
		return a.waits(all)
	}
	if replica := a.replicaOf(c.Pod); replica.Leader {
		if t, ok := a.transfer(replica); ok {
			return moveLeader(RuleHandOverLeadership, replica, t, all, " and is next",
				"first, so that no election is needed")
		}
	} else if leader, heir := a.beforeSeveralGo(); heir != nil {
		return moveLeader(RuleHandOverLeadership, leader, handOver(leader, heir), all,
			", and several pods may go at once from here on", "before that, while every voter serves")
	}
	return a.remove(c, all)
}

// beforeSeveralGo returns the leader and the settled voter that takes over, where several pods may go at once. In its
// turn the leader would hand over beside pods that are away. So it does that before, while every voter serves, and
// only to a voter that need not hand over again. heir is nil if that is not so. What fails is not tried again before
// the leader's own turn.
//
// It also spares a rollout some seconds. A member that has just started opens connections to the leader over which it
// says nothing for four seconds, and etcd does not end before they do (rafthttp's proberInterval; cmux).
func (a rolling) beforeSeveralGo() (leader, heir *Replica) {
	spare := min(a.policy.MaxUnavailable.Of(len(a.Replicas)), a.survivors-a.Quorum)
	if spare < 2 || a.Serving < a.Voters {
		return nil, nil
	}
	for i := range a.Replicas {
		r := &a.Replicas[i]
		if r.unavailable() {
			return nil, nil
		}
		if r.Leader {
			leader = r
		}
	}
	if leader == nil || !leader.candidate() || leader.Ordinal < a.policy.Partition ||
		a.state.FailedTransfers[leader.Member.ID] > 0 {
		return nil, nil
	}
	return leader, a.heir(leader, func(r *Replica) bool { return r.Settled && !r.goesLast() })
}

// done is true when no pod at or above the partition is outdated, missing or unsettled.
func (a rolling) done() bool {
	for i := range a.Replicas {
		if r := &a.Replicas[i]; r.Ordinal >= a.policy.Partition && !r.Settled {
			return false
		}
	}
	return true
}

func (a rolling) complete() Decision {
	settled := a.trial.settled
	if a.policy.Partition > 0 {
		return simple(Complete{}, RuleComplete,
			"%d of %d pods are up to date and settled, those below partition %d may stay behind",
			settled, len(a.Replicas), a.policy.Partition)
	}
	return simple(Complete{}, RuleComplete, "%d of %d pods are up to date and settled", settled, len(a.Replicas))
}

// unsettled returns the first replica that does not pass one of the guards, with that guard.
func (a rolling) unsettled(guards []*Row) (*Replica, *Row) {
	var v Verdict
	for i := range a.Replicas {
		for _, r := range guards {
			if !a.ask(r, &a.Replicas[i], &v) {
				return &a.Replicas[i], r
			}
		}
	}
	return nil, nil
}

// failed holds the rest of the rollout for an updated pod that is failing. So a broken revision
// stops after one pod. Its fix makes that pod outdated again, and [RuleNotServingFirst] replaces it
// first (kubernetes#67250).
func (a rolling) failed(r *Replica, row *Row, down []Candidate) Decision {
	d := Decision{Action: row.keeps(nil), Rule: RuleUpdatedSettle, Guard: row.Name, Candidates: down, about: r}
	d.reason = func() string {
		what := "if the template is to blame, fix it: this pod is then replaced first"
		o := a.obstacleOf(r)
		switch {
		case o == nil:
		case o.template:
			what = "fix the template: this pod is then replaced first"
		case a.Serving > 0:
			what = "" // What to do about it says more.
		}
		if a.Serving == 0 && len(down) > 0 {
			// However right the template is.
			next := down[0].failed()
			what = fmt.Sprintf("without quorum nothing settles; if the template is right, look at what "+
				"keeps the next pod (%s, %s: %s); otherwise, %s", down[0].Pod, next.Guard, next.Detail(), what)
		}
		if r.unpromoted() {
			what = fmt.Sprintf("see why its host does not promote it, or promote it with `etcdctl member promote %x`",
				r.Member.ID)
		}
		if what != "" {
			what = "; " + what
		}
		return a.atRisk(down) + "updated pod " + r.Name + " is failing: " + r.Describe() + what + a.notCreated()
	}
	return d
}

// waits names what the rollout waits for when nothing can be done: first what is under way by
// itself, then the guard that keeps the best candidate.
func (a rolling) waits(all []Candidate) Decision {
	if r, row := a.unsettled(pendingGuards); r != nil {
		d := Decision{Action: row.keeps(nil), Rule: RuleUpdatedSettle, Guard: row.Name, Candidates: all, about: r}
		d.reason = func() string {
			return a.atRisk(all) + "waiting for " + r.Name + ": " + r.Describe() + a.state.Etcd.noList() +
				a.notCreated()
		}
		return d
	}
	if len(all) == 0 {
		d := simple(Wait{}, RuleUpdatedSettle, "waiting for the pods to settle")
		d.Guard = GuardUpdatedPending
		return d
	}
	// A pod below the partition is the reason only when there is no other.
	c := &all[max(0, slices.IndexFunc(all, func(c Candidate) bool { return c.failed().Guard != GuardPartition }))]
	v := c.failed()
	return keptBack(c, all, func() string { return a.atRisk(all) + c.Pod + ": " + v.Detail() })
}

// atRisk says it where a member that does not serve is kept for the sake of those that do, and nothing otherwise.
func (a rolling) atRisk(cs []Candidate) string {
	kept := func(c Candidate) bool {
		v := c.failed()
		return c.Rule == RuleNotServingFirst && v != nil && RowOf(v.Guard).forOthers
	}
	if a.Serving == 0 || !slices.ContainsFunc(cs, kept) {
		return ""
	}
	return fmt.Sprintf("AT RISK, %d of %d voters serve: ", a.Serving, a.Voters)
}

// candidates lists the outdated pods that a rule considers, best first.
func (a rolling) candidates(rule Rule, guards []*Row) []Candidate {
	var few [8]*Replica // More than most clusters have; so they take no memory of their own.
	replicas := few[:0]
	for i := range a.Replicas {
		if r := &a.Replicas[i]; r.candidate() && (r.Evidence == Down) == (rule == RuleNotServingFirst) {
			replicas = append(replicas, r)
		}
	}
	slices.SortFunc(replicas, a.before)
	return a.consider(rule, replicas, guards)
}

// before is the order in which candidates go. Members that do not serve: dead,
// then starting, then alive (DEP-07 step 2), learners after the voters. Serving ones
// (DEP-06's preference order): sick sidecar and follower, sick sidecar and leader,
// follower, leader, and those of unknown health last; but what others may take goes after
// all the rest. Within that the coordinator's own pod last, then the higher ordinal first.
// Of those that do not serve the lowest goes first where the StatefulSet controller recreates
// them in that order ([GuardRecreation]).
func (a rolling) before(x, y *Replica) int {
	higher := cmp.Compare(y.Ordinal, x.Ordinal)
	if a.state.Set.OrderedReady && x.Liveness != NotDown {
		higher = -higher
	}
	downLearner := func(r *Replica) int { return btoi(r.Evidence == Down && r.Member != nil && r.Member.Learner) }
	self := func(r *Replica) int { return btoi(r.Self) }
	others := func(r *Replica) int { return btoi(r.goesLast()) }
	return cmp.Or(
		cmp.Compare(downLearner(x), downLearner(y)),
		cmp.Compare(x.Liveness, y.Liveness),
		cmp.Compare(others(x), others(y)),
		cmp.Compare(preference(x), preference(y)),
		cmp.Compare(self(x), self(y)),
		higher,
	)
}

func preference(r *Replica) int {
	switch {
	case r.Evidence != Serving:
		return 4
	case r.SidecarSick && !r.Leader:
		return 0
	case r.SidecarSick:
		return 1
	case !r.Leader:
		return 2
	}
	return 3
}

func (a rolling) remove(c *Candidate, all []Candidate) Decision {
	replica := a.replicaOf(c.Pod)
	d := Decision{Action: Remove{Target: targetOf(replica), Method: a.method(replica)}, Rule: c.Rule, Candidates: all}
	d.reason = func() string {
		for _, v := range c.Verdicts {
			if v.Guard == GuardQuorumFloor || v.Guard == GuardMayVote {
				return replica.Describe() + "; " + v.Detail()
			}
		}
		return replica.Describe()
	}
	return d
}

// method is how a pod is removed.
func (a rolling) method(r *Replica) Removal {
	if r.available() && !a.state.Controls.overrides(GuardDisruptionBudget) && !mootBudget(a.Assessment) {
		return a.policy.Removal
	}
	return RemoveByDelete
}
