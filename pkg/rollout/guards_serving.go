package rollout

import "strings"

// These guards are asked before a member goes that serves, or that might.

// votesUnseen is true for a pod that was Ready once, is not on the member list, and runs as far as anybody knows: a
// member that was removed, or that split off, may vote in a cluster of its own (etcd-io/etcd#15787). Nobody who is
// counted here knows of its votes. One that has never been ready is on its way onto the list.
func (r *Replica) votesUnseen() bool {
	if !r.Unlisted || r.Pod.Terminating || r.Pod.NeverReady || r.ContainerDead {
		return false
	}
	return r.Pod.Etcd.State == ContainerRunning || r.Pod.Etcd.State == ContainerAbsent
}

// unseen counts the pods that may vote unseen. While as many voters elsewhere may run in pods that no member matches,
// it is more likely that the mapping of names has failed, and [GuardQuorumFloor] says so.
func unseen(a *Assessment) int {
	n := 0
	for i := range a.Replicas {
		n += btoi(a.Replicas[i].votesUnseen())
	}
	if a.unmatched <= a.strangers {
		return 0
	}
	return n
}

// somePodsUnlisted is true where the guard PodsListed has anything to say.
func somePodsUnlisted(a *Assessment, _ *Replica) bool { return unseen(a) > 0 }

// podsListed: quorum is counted by a list that does not have everybody who may vote.
func podsListed(a *Assessment, _ *Replica) Verdict {
	n := unseen(a)
	if n == 0 {
		return passed("every pod that was Ready once is on the member list")
	}
	var names []string
	for i := range a.Replicas {
		if r := &a.Replicas[i]; r.votesUnseen() {
			names = append(names, r.Name)
		}
	}
	v := verdict(false, "pods that were Ready once, may run etcd, and are not on etcd's member list: %d (", n)
	v.text = strings.Join(names, ", ") + "); they may vote in a cluster of their own"
	return v
}

// quorumFloor: the serving voters without this one and without everything already
// going must still be a quorum. The voters are etcd's, so ghosts and members elsewhere
// count among them (OpenShift's quorum protection counts learners too: wrong); who stays is
// only who is ours to keep, or trusted: a voter elsewhere may be taken at the same moment.
func quorumFloor(a *Assessment, c *Replica) Verdict {
	left := a.survivorsWithout(c)
	switch {
	case a.Quorum == 0:
		return verdict(false, "the voters are unknown, so there is no quorum to be sure of")
	case a.onlyMember:
		return passed("the only member: its removal is the only way to update it")
	case a.Voters == 2 && c.Voter && c.Evidence == Serving:
		return verdict(false, "2 voters need both: removing one leaves %d, quorum %d; add a third member or make it "+
			"one", left, a.Quorum)
	}
	format := "%d of %d voters serve, quorum %d, removing this one leaves %d"
	var v Verdict
	switch {
	case left >= a.Quorum:
		return verdict(true, format, a.Serving, a.Voters, a.Quorum, left)
	case a.untrusted == 0:
		v = verdict(false, format, a.Serving, a.Voters, a.Quorum, left)
		v.text = a.elsewhere() + a.unanswered()
	case a.unmatched > 0:
		v = verdict(false, format+"; pods that could not be matched to a member: %d, so no member elsewhere is "+
			"counted on", a.Serving, a.Voters, a.Quorum, left, a.unmatched)
	default:
		v = verdict(false, format+"; voters without a pod among the StatefulSet's ordinals, which may go at any "+
			"time, are not counted on: %d", a.Serving, a.Voters, a.Quorum, left, a.untrusted)
		v.text = a.elsewhere()
	}
	return v
}

// unavailableBudget counts our own ordinals only: members that do not serve, or that others
// are about to take, pods missing or terminating, and updated pods that have not settled, each
// once, plus this one. An outdated pod that serves with a sick sidecar does not count, else
// three sick sidecars would block their own cure (DEP-06, cluster-etcd-operator #994).
func unavailableBudget(a *Assessment, c *Replica) Verdict {
	unavailable, budget := 0, a.policy.MaxUnavailable.Of(len(a.Replicas))
	for i := range a.Replicas {
		if r := &a.Replicas[i]; r != c && r.unavailable() {
			unavailable++
		}
	}
	if c.Member != nil && !c.Voter {
		return verdict(unavailable <= budget,
			"%d of %d members unavailable, a learner adds none, at most %d allowed",
			unavailable, len(a.Replicas), budget)
	}
	return verdict(unavailable+1 <= budget,
		"%d of %d members unavailable, %d with this one, at most %d allowed",
		unavailable, len(a.Replicas), unavailable+1, budget)
}

// unavailable is true for a replica that counts against the budget. A learner only does while its pod is an updated
// one: then it has not settled before it is promoted.
func (r *Replica) unavailable() bool {
	if r.Member != nil && !r.Voter {
		return !r.Outdated && !r.Going()
	}
	return !r.stays() || r.Evidence != Serving || (!r.Outdated && !r.Settled)
}

// canary: the first pod of a revision goes alone, so that a broken revision costs
// one member even where the budget would allow more.
func canary(a *Assessment, _ *Replica) Verdict {
	switch t := a.trial; {
	case t.settled > 0:
		return passed("settled pods of the new revision: %d", t.settled)
	case t.underWay == 0:
		return passed("the first pod of the new revision")
	default:
		return verdict(false, "the first pod of the new revision goes alone and has not settled yet (under way: %d)",
			t.underWay)
	}
}

// endpointFloor: clients reach etcd through a Service that lists only Ready pods,
// so removing a Ready one must leave a quorum of replicas Ready. A pod that is not
// Ready costs no endpoint.
func endpointFloor(a *Assessment, c *Replica) Verdict {
	switch {
	case len(a.Replicas) == 1:
		return passed("the only member: no other endpoint could stay")
	case !c.Pod.Ready:
		return passed("the pod is not Ready, so no endpoint is lost")
	}
	ready := 0
	for i := range a.Replicas {
		if r := &a.Replicas[i]; r != c && r.stays() && r.Pod.Ready {
			ready++
		}
	}
	floor := len(a.Replicas)/2 + 1
	return verdict(ready >= floor,
		"removing this one leaves %d of %d pods Ready, at least %d must stay", ready, len(a.Replicas), floor)
}

// caughtUp: a survivor that lags cannot serve in place of this one soon, so the
// survivors that make up the floor must be close to the newest log index. That there
// are too few of them altogether is for [GuardQuorumFloor] to say.
func caughtUp(a *Assessment, c *Replica) Verdict {
	close, unknown, worst := 0, 0, uint64(0)
	stays := func(m *Member) {
		lag, known := a.lag(m)
		if !known {
			unknown++
			return
		}
		close += btoi(lag < a.policy.MaxLag)
		worst = max(worst, lag)
	}
	for i := range a.Replicas {
		if r := &a.Replicas[i]; r != c && r.survives() {
			stays(r.Member)
		}
	}
	for _, m := range a.trusted {
		stays(m)
	}
	left := a.survivorsWithout(c)
	switch pass := close >= min(left, a.Quorum); {
	case left == 0:
		return passed("no other voter that serves is counted on, so none could lag")
	case unknown > 0:
		v := verdict(pass, "%d of %d voters that would stay are known to be less than %d entries behind, quorum %d; "+
			"no status of %d",
			close, left, int(a.policy.MaxLag), a.Quorum, unknown)
		v.text = a.state.Etcd.withoutStatus()
		return v
	default:
		return verdict(pass, "%d of %d voters that would stay are less than %d entries behind, quorum %d; the "+
			"furthest is %d behind",
			close, left, int(a.policy.MaxLag), a.Quorum, int(worst))
	}
}

// hostGates: the host's own checks (DEP-01: postpone disruption while the last
// backup failed). By default they do not bind a pod whose sidecar is sick.
func hostGates(a *Assessment, c *Replica) Verdict {
	if len(a.state.Gates) == 0 {
		return passed("the host has no gates")
	}
	applied := 0
	for _, g := range a.state.Gates {
		if c.SidecarSick && !g.SickToo {
			continue
		}
		applied++
		if !g.Pass {
			return Verdict{text: "gate " + g.Name + ": " + g.Detail}
		}
	}
	return passed("gates of the host that apply: %d of %d; all pass", applied, len(a.state.Gates))
}

// leaderLast: a healthy leader never goes before a follower that is a candidate,
// whatever keeps the follower (DEP-07 step 4). While the answering members name no
// leader, as in the midst of an election, every voter may be it: taken for a follower it
// would go without handing over. A leader whose pod is not Ready, or that does not answer
// us, is not in health: if it waited for followers that [GuardEndpointFloor] or
// [GuardQuorumFloor] keep on its account, nobody would ever go.
func leaderLast(a *Assessment, c *Replica) Verdict {
	if a.Leader == 0 && c.Voter && !a.onlyMember {
		v := verdict(false, "the members that answer agree on no leader, so this one may be it")
		v.text = a.state.Etcd.withoutStatus()
		return v
	}
	switch {
	case !c.Leader:
		return passed("does not lead")
	case c.SidecarSick || !c.Pod.Ready || c.Evidence != Serving:
		return passed("leads, but is not healthy: followers do not go first")
	}
	followers := 0
	for i := range a.Replicas {
		r := &a.Replicas[i]
		if r.candidate() && !r.Leader && r.Evidence == Serving && r.Ordinal >= a.policy.Partition &&
			btoi(r.goesLast()) <= btoi(c.goesLast()) {
			followers++
		}
	}
	if followers == 0 {
		return passed("leads, and no follower is left to go first")
	}
	return verdict(false, "leads, so it goes after the followers (left: %d)", followers)
}

// evicted is true for a pod that goes through the eviction API.
func evicted(a *Assessment, c *Replica) bool {
	return a.policy.Removal == RemoveByEviction && c.available()
}

// disruptionBudget: a PodDisruptionBudget has refused an eviction. One is asked for again
// after a while, not in every cycle: a budget is not more likely to allow it for that.
func disruptionBudget(a *Assessment, _ *Replica) Verdict {
	switch r := a.state.RefusedEviction; {
	case a.state.Controls.overrides(GuardDisruptionBudget):
		return verdict(false, "no budget is asked: the pod is deleted")
	case mootBudget(a):
		return passed("the budget needs more pods than there are to be, so it protects nothing: the pod is deleted")
	case r.Lasting:
		return Verdict{
			lasting: true,
			text: "the eviction was refused, and waiting does not help: " + r.Words +
				" (let one budget match the pods, and let it allow one of them to go; or set removal to delete)",
		}
	case r.Words != "":
		return Verdict{text: "the eviction was refused: " + r.Words}
	}
	return passed("no refused eviction is known; the eviction API has the last word")
}

// mootBudget: a budget that needs two pods where there is to be one never allows an eviction, and
// nothing is gained by that: its one pod is the whole cluster, and the operator has changed it. Such a
// budget is not a way to forbid evictions, as one is that needs the only pod there is. Etcd-druid
// writes it when one member is to become three with TLS between peers. It creates the other two only
// when the first has been replaced, so rollout and budget would wait for each other.
func mootBudget(a *Assessment) bool {
	return a.state.RefusedEviction.Moot && a.Voters == 1 && a.state.Set.Replicas == 1
}
