package rollout

import "slices"

// Guard is the stable name of a guard: the word for it in logs, events, metrics,
// explanations and documentation.
type Guard string

// The guards of a removal.
const (
	GuardMayVote           Guard = "MayVote"
	GuardQuorumPatience    Guard = "QuorumPatience"
	GuardRevisionSuspect   Guard = "RevisionSuspect"
	GuardDataSurvives      Guard = "DataSurvives"
	GuardQuorumFloor       Guard = "QuorumFloor"
	GuardUnavailableBudget Guard = "UnavailableBudget"
	GuardCanary            Guard = "Canary"
	GuardEndpointFloor     Guard = "EndpointFloor"
	GuardRecreation        Guard = "Recreation"
	GuardCaughtUp          Guard = "CaughtUp"
	GuardHostGates         Guard = "HostGates"
	GuardLeaderLast        Guard = "LeaderLast"
	GuardDisruptionBudget  Guard = "DisruptionBudget"
)

// The guards of the rules that look at the whole cluster.
const (
	GuardPaused         Guard = "Paused"
	GuardBadControl     Guard = "BadControl"
	GuardStaleRevision  Guard = "StaleRevision"
	GuardCorrupt        Guard = "Corrupt"
	GuardInconsistent   Guard = "Inconsistent"
	GuardCutOff         Guard = "CutOff"
	GuardVotersUnknown  Guard = "VotersUnknown"
	GuardUpdatedFailing Guard = "UpdatedFailing"
	GuardUpdatedPending Guard = "UpdatedPending"
	GuardTerminating    Guard = "Terminating"
	GuardPartition      Guard = "Partition"
)

// guardFunc judges one candidate seat.
type guardFunc func(a *Assessment, c *Seat) Verdict

// notServingGuards protect rule 4, the removal of members that do not serve.
var notServingGuards = []guardFunc{mayVote, quorumPatience, revisionSuspect, dataSurvives}

// servingGuards protect rule 6, the removal of members that serve or might.
var servingGuards = []guardFunc{quorumFloor, unavailableBudget, canary, endpointFloor, caughtUp, dataSurvives, hostGates}

// votersKnown: without a member list quorum counts as lost. Only a pod whose
// container is dead may go then: no process of it can be voting. A list that one member
// keeps may be an old one: it is good enough for what is dead. While there is a quorum, a member
// that serves, or that may vote, goes only when a quorum of the voters that it names have the
// same: of more voters than it names, those that are left might be none.
func votersKnown(a *Assessment, c *Seat) Verdict {
	etcd := &a.state.Etcd
	switch {
	case !etcd.Known:
		v := verdict(GuardVotersUnknown, c.Liveness == Dead, "no member answers with a member list, so the voters are unknown")
		if etcd.Detail != "" {
			v.text = "; " + etcd.Detail
		}
		return v
	case !etcd.Linearizable && (c.Evidence != Down || a.Serving > 0 && c.Liveness != Dead):
		return verdict(GuardVotersUnknown, etcd.Agreeing >= a.Quorum,
			"the member list is one member's own, and %d of its %d voters return the same voters, quorum %d", etcd.Agreeing, a.Voters, a.Quorum)
	}
	return passed(GuardVotersUnknown, "voters in the member list: %d", a.Voters)
}

// mayVote: while some member serves, a quorum exists, and it may include members
// that do not serve us: a broken client listener makes a voting member look dead
// to both witnesses. Unless the serving voters alone are a quorum, a process goes
// only if those that are left can still be one (stricter than DEP-07 step 2). What is
// starting may have started since and is spared like a process; but it is not counted
// among those that are left, and neither is a ghost, for then a quorum that votes now
// would go for one that may come. Nor is an Unknown member: its process may have ended or
// hung, and its kubelet not have noticed yet.
func mayVote(a *Assessment, c *Seat) Verdict {
	switch {
	case a.Serving == 0:
		return passed(GuardMayVote, "no voter serves, so no quorum can be broken")
	case c.Member != nil && !c.Voter, c.Member == nil && len(a.External) == 0:
		return passed(GuardMayVote, "the member does not vote")
	case c.Liveness == Dead:
		return passed(GuardMayVote, "the container is dead, no process votes")
	}
	if left := a.survivorsWithout(c); left >= a.Quorum {
		return passed(GuardMayVote, "%d of %d voters serve, quorum %d is reached without this one", left, a.Voters, a.Quorum)
	}
	left := a.votingElsewhere(c)
	for i := range a.Seats {
		if s := &a.Seats[i]; s != c && (s.survives() || s.Voter && !s.Going() && s.Evidence == Down && runs(s.Pod)) {
			left++
		}
	}
	return verdict(GuardMayVote, left >= a.Quorum,
		"%d of %d voters serve, quorum %d: without this process %d could still vote", a.Serving, a.Voters, a.Quorum, left)
}

// quorumPatience: with quorum lost, a live process rejoins the moment a peer
// returns; restarting all at once turns a blip into an outage (DEP-07 does that).
// One goes only when quorum has stayed lost and nothing else is under way.
func quorumPatience(a *Assessment, c *Seat) Verdict {
	if a.Serving > 0 {
		return passed(GuardQuorumPatience, "%d of %d voters serve", a.Serving, a.Voters)
	}
	if c.Liveness != Alive {
		return passed(GuardQuorumPatience, "the process does not run, waiting cannot help it")
	}
	patience := int(a.policy.SettleTimeout.Seconds())
	if lost := a.Age("", QuorumLostSeen); lost < a.policy.SettleTimeout {
		return verdict(GuardQuorumPatience, false, "quorum has been lost for %d s; a live process is left alone for %d s, it rejoins when a peer returns", int(lost.Seconds()), patience)
	}
	for i := range a.Seats {
		s := &a.Seats[i]
		switch {
		case s.Going():
			return verdict(GuardQuorumPatience, false, "quorum is lost and the pod of ordinal %d is still missing or terminating", s.Ordinal)
		case s.Outdated:
		case s.ContainerDead:
			return verdict(GuardQuorumPatience, false, "quorum is lost and the updated pod of ordinal %d is dead: the update does not cure it", s.Ordinal)
		case a.Age(s.Pod.UID, PodSeen) < a.policy.SettleTimeout:
			return verdict(GuardQuorumPatience, false, "quorum is lost and the updated pod of ordinal %d gets %d s to come up", s.Ordinal, patience)
		}
	}
	return passed(GuardQuorumPatience, "quorum has been lost for more than %d s and nothing is coming up", patience)
}

// revisionSuspect: until one pod of the new revision has settled, nothing is known in its
// favour, and while one of them is failing it is suspect. A member whose node just rebooted
// comes back by itself on the old revision. So as long as a pod is under way to the new one,
// none follows that may come back: no process that runs, and nothing that has been down for
// less than settleTimeout. A broken revision then costs at most one member that served or
// would have come back. What a kubelet has tried to start and backs off from does not come
// back by itself; it waits only while the revision fails.
func revisionSuspect(a *Assessment, c *Seat) Verdict {
	t, backsOff := a.trial, c.Liveness == Dead && c.Pod.Etcd.State == ContainerWaiting
	switch {
	case t.underWay == 0 || t.settled > 0:
		return passed(GuardRevisionSuspect, "pods of the new revision under way: %d, settled: %d", t.underWay, t.settled)
	case t.failing == 0 && backsOff:
		return passed(GuardRevisionSuspect, "no pod of the new revision has settled yet (under way: %d), but this one does not come back by itself", t.underWay)
	case t.failing == 0 && c.Liveness == Alive:
		return verdict(GuardRevisionSuspect, false, "no pod of the new revision has settled yet (under way: %d), and this process runs", t.underWay)
	case c.Liveness == Alive:
		return verdict(GuardRevisionSuspect, false, "the new revision is suspect (updated pods failing: %d, settled: 0), and this process runs", t.failing)
	}
	down, patience := a.Age(c.Pod.UID, NotRunningSeen), int(a.policy.SettleTimeout.Seconds())
	if backsOff {
		// A crash loop runs for a moment between its restarts, and backs off for at most as
		// long as settleTimeout: it would never be old enough.
		down = max(down, a.Age(c.Pod.UID, RestartingSeen))
	}
	if t.failing == 0 {
		return verdict(GuardRevisionSuspect, down >= a.policy.SettleTimeout,
			"no pod of the new revision has settled yet (under way: %d); this one may come back by itself, and has been down for %d s of %d s",
			t.underWay, int(down.Seconds()), patience)
	}
	return verdict(GuardRevisionSuspect, down >= a.policy.SettleTimeout,
		"the new revision is suspect (updated pods failing: %d, settled: 0); this one has been down for %d s of %d s", t.failing, int(down.Seconds()), patience)
}

// dataSurvives: where the data dies with the pod, a removal must leave a quorum of
// voters that hold data. Containers that are dead keep an emptyDir too, but a pod that
// never became ready may have come up empty: a fix of a broken update makes it outdated,
// not full. What its own spec says counts as well: a template that has persistent volumes by
// now does not save what an older pod keeps elsewhere.
func dataSurvives(a *Assessment, c *Seat) Verdict {
	if !a.state.Set.VolatileData && !c.Pod.VolatileData {
		return passed(GuardDataSurvives, "the data volume is persistent")
	}
	if a.policy.AllowVolatileData {
		return passed(GuardDataSurvives, "the data volume is not persistent, which is allowed explicitly")
	}
	holding := 0
	for i := range a.Seats {
		s := &a.Seats[i]
		if s.Voter && s != c && !s.Going() && (s.Evidence == Serving || s.Outdated && !s.Pod.NeverReady) {
			holding++
		}
	}
	holding += len(a.trusted)
	return verdict(GuardDataSurvives, a.Quorum > 0 && holding >= a.Quorum,
		"the data volume is not persistent: removing this one leaves %d of %d voters with data, quorum %d", holding, a.Voters, a.Quorum)
}

// quorumFloor: the serving voters without this one and without everything already
// going must still be a quorum. The voters are etcd's, so ghosts and members elsewhere
// count among them (OpenShift's quorum protection counts learners too: wrong); who stays is
// only who is ours to keep, or trusted: a voter elsewhere may be taken at the same moment.
func quorumFloor(a *Assessment, c *Seat) Verdict {
	left := a.survivorsWithout(c)
	switch {
	case a.Quorum == 0:
		return verdict(GuardQuorumFloor, false, "the voters are unknown, so there is no quorum to be sure of")
	case a.singleMember():
		return passed(GuardQuorumFloor, "the only member: its removal is the only way to update it")
	case a.Voters == 2 && c.Voter && c.Evidence == Serving:
		return verdict(GuardQuorumFloor, false, "2 voters need both: removing one leaves %d, quorum %d; add a third member or make it one", left, a.Quorum)
	}
	format := "%d of %d voters serve, quorum %d, removing this one leaves %d"
	switch {
	case left >= a.Quorum || a.untrusted == 0:
	case a.unmatched > 0:
		return verdict(GuardQuorumFloor, false, format+"; the mapping has failed: pods of ours that match no member: %d, "+
			"so no member elsewhere is counted on", a.Serving, a.Voters, a.Quorum, left, a.unmatched)
	default:
		return verdict(GuardQuorumFloor, false, format+"; voters without a pod in our ordinals, which may go at any time, are not counted on: %d",
			a.Serving, a.Voters, a.Quorum, left, a.untrusted)
	}
	return verdict(GuardQuorumFloor, left >= a.Quorum, format, a.Serving, a.Voters, a.Quorum, left)
}

// unavailableBudget counts our own ordinals only: members that do not serve, pods
// missing or terminating, and updated pods that have not settled, each once, plus
// this one. An outdated pod that serves with a sick sidecar does not count, else
// three sick sidecars would block their own cure (DEP-06, cluster-etcd-operator #994).
func unavailableBudget(a *Assessment, c *Seat) Verdict {
	unavailable, budget := 0, a.policy.MaxUnavailable.Of(len(a.Seats))
	for i := range a.Seats {
		if s := &a.Seats[i]; s != c && a.unavailable(s) {
			unavailable++
		}
	}
	if c.Member != nil && !c.Voter {
		return verdict(GuardUnavailableBudget, unavailable <= budget,
			"%d of %d members unavailable, a learner adds none, at most %d allowed", unavailable, len(a.Seats), budget)
	}
	return verdict(GuardUnavailableBudget, unavailable+1 <= budget,
		"%d of %d members unavailable, %d with this one, at most %d allowed", unavailable, len(a.Seats), unavailable+1, budget)
}

// canary: the first pod of a revision goes alone, so that a broken revision costs
// one member even where the budget would allow more.
func canary(a *Assessment, _ *Seat) Verdict {
	switch t := a.trial; {
	case t.settled > 0:
		return passed(GuardCanary, "settled pods of the new revision: %d", t.settled)
	case t.underWay == 0:
		return passed(GuardCanary, "the first pod of the new revision")
	default:
		return verdict(GuardCanary, false, "the first pod of the new revision goes alone and has not settled yet (under way: %d)", t.underWay)
	}
}

// endpointFloor: clients reach etcd through a Service that lists only Ready pods,
// so removing a Ready one must leave a quorum of replicas Ready. A pod that is not
// Ready costs no endpoint.
func endpointFloor(a *Assessment, c *Seat) Verdict {
	switch {
	case len(a.Seats) == 1:
		return passed(GuardEndpointFloor, "the only member: no other endpoint could stay")
	case !c.Pod.Ready:
		return passed(GuardEndpointFloor, "the pod is not Ready, so no endpoint is lost")
	}
	ready := 0
	for i := range a.Seats {
		if s := &a.Seats[i]; s != c && !s.Going() && s.Pod.Ready {
			ready++
		}
	}
	floor := len(a.Seats)/2 + 1
	return verdict(GuardEndpointFloor, ready >= floor,
		"removing this one leaves %d of %d pods Ready, at least %d must stay", ready, len(a.Seats), floor)
}

// recreation: with podManagementPolicy OrderedReady the StatefulSet controller creates a pod
// only when every lower ordinal is Running, Ready, available and not terminating. Removed
// before, a pod stays away for as long as a lower one is not. Where that is a live one, which
// may well be unready only because quorum is lost, nothing of ours can end it: a live pod never
// goes to open the way for another. With Parallel there is nothing to ask.
func (a *Assessment) recreation(c *Seat) Verdict {
	var blocks *Seat
	for i := range a.Seats {
		s := &a.Seats[i]
		switch below := s.Ordinal < c.Ordinal; {
		case below && !a.available(s) && (blocks == nil || stuck(blocks)):
			blocks = s // The first that is not stuck: that one comes back, or goes, by itself.
		case !below && a.Serving == 0 && c.Liveness == Alive && s.Outdated && s.ContainerDead && !s.Going():
			return remedy("it runs, and would be removed only so that the dead pod of ordinal %d can be recreated", s.Ordinal)
		}
	}
	switch {
	case blocks == nil:
		return passed(GuardRecreation, "every lower ordinal is Ready, so a removed pod is recreated at once")
	case stuck(blocks) && c.Liveness != NotDown:
		return remedy("it would not be recreated before the pod of ordinal %d is Ready, which runs and is left alone", blocks.Ordinal)
	}
	v := verdict(GuardRecreation, false, "it would not be recreated before the pod of ordinal %d is Ready", blocks.Ordinal)
	v.lasting = stuck(blocks)
	return v
}

// remedy names the way out where podManagementPolicy OrderedReady leaves none.
func remedy(format string, ordinal int) Verdict {
	v := verdict(GuardRecreation, false, format+": recreate the StatefulSet with podManagementPolicy Parallel "+
		"(kubectl delete statefulset --cascade=orphan, which leaves its pods, then apply it again)", ordinal)
	v.lasting = true
	return v
}

// available is what the StatefulSet controller waits for, of a pod.
func (a *Assessment) available(s *Seat) bool {
	return !s.Going() && s.Pod.Ready && a.Age(s.Pod.UID, ReadySeen) >= a.state.Set.MinReady
}

// stuck is true for a pod whose etcd runs, and that is not Ready: nobody knows how long it
// stays so.
func stuck(s *Seat) bool { return !s.Going() && s.Pod.Etcd.State == ContainerRunning && !s.Pod.Ready }

// caughtUp: a survivor that lags cannot serve in place of this one soon, so the
// survivors that make up the floor must be close to the newest log index. That there
// are too few of them altogether is for [GuardQuorumFloor] to say.
func caughtUp(a *Assessment, c *Seat) Verdict {
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
	for i := range a.Seats {
		if s := &a.Seats[i]; s != c && s.survives() {
			stays(s.Member)
		}
	}
	for _, m := range a.trusted {
		stays(m)
	}
	left := a.survivorsWithout(c)
	switch pass := close >= min(left, a.Quorum); {
	case left == 0:
		return passed(GuardCaughtUp, "no other voter that serves is counted on, so none could lag")
	case unknown > 0:
		v := verdict(GuardCaughtUp, pass, "%d of %d voters that would stay are known to be less than %d entries behind, quorum %d; no status of %d",
			close, left, int(a.policy.MaxLag), a.Quorum, unknown)
		v.text = a.withoutStatus()
		return v
	default:
		return verdict(GuardCaughtUp, pass, "%d of %d voters that would stay are less than %d entries behind, quorum %d; the furthest is %d behind",
			close, left, int(a.policy.MaxLag), a.Quorum, int(worst))
	}
}

// hostGates: the host's own checks (DEP-01: postpone disruption while the last
// backup failed). By default they do not bind a pod whose sidecar is sick.
func hostGates(a *Assessment, c *Seat) Verdict {
	if len(a.state.Gates) == 0 {
		return passed(GuardHostGates, "the host has no gates")
	}
	applied := 0
	for _, g := range a.state.Gates {
		if c.SidecarSick && !g.SickToo {
			continue
		}
		applied++
		if !g.Pass {
			return Verdict{Guard: GuardHostGates, text: "gate " + g.Name + ": " + g.Detail}
		}
	}
	return passed(GuardHostGates, "gates of the host that apply: %d of %d; all pass", applied, len(a.state.Gates))
}

// leaderLast: a healthy leader never goes before a follower that is a candidate,
// whatever keeps the follower (DEP-07 step 4). While the answering members name no
// leader, as in the midst of an election, every voter may be it: taken for a follower it
// would go without handing over. A leader whose pod is not Ready, or that does not answer
// us, is not in health: if it waited for followers that [GuardEndpointFloor] or
// [GuardQuorumFloor] keep on its account, nobody would ever go.
func (a *Assessment) leaderLast(c *Seat, followers int) Verdict {
	if a.Leader == 0 && c.Voter && !a.singleMember() {
		v := verdict(GuardLeaderLast, false, "the members that answer agree on no leader, so this one may be it")
		v.text = a.withoutStatus()
		return v
	}
	switch {
	case !c.Leader:
		return passed(GuardLeaderLast, "does not lead")
	case c.SidecarSick || !c.Pod.Ready || c.Evidence != Serving:
		return passed(GuardLeaderLast, "leads, and is not in health: followers do not come first")
	case followers == 0:
		return passed(GuardLeaderLast, "leads, and no follower is left to go first")
	}
	return verdict(GuardLeaderLast, false, "leads, and goes after the followers (left: %d)", followers)
}

// withoutStatus says why the first member that serves has told nothing about itself: with an
// etcd user who may not ask, that is how it stays.
func (a *Assessment) withoutStatus() string {
	for i := range a.state.Etcd.Members {
		if m := &a.state.Etcd.Members[i]; m.Probe.Read == Answered && m.Probe.Status == nil && m.Probe.Detail != "" {
			return "; " + m.Name + ": " + m.Probe.Detail
		}
	}
	return ""
}

// disruptionBudget: a PodDisruptionBudget has refused an eviction. One is asked for again
// after a while, not in every cycle: a budget is not more likely to allow it for that.
func (a *Assessment) disruptionBudget() Verdict {
	switch r := a.state.RefusedEviction; {
	case a.overridden(GuardDisruptionBudget):
		return verdict(GuardDisruptionBudget, false, "no budget is asked: the pod is deleted")
	case r.Lasting:
		return Verdict{
			Guard: GuardDisruptionBudget, lasting: true,
			text: "the eviction was refused, and waiting does not help: " + r.Words +
				" (let one budget match the pods, and let it allow one of them to go; or remove with --removal=delete)",
		}
	case r.Words != "":
		return Verdict{Guard: GuardDisruptionBudget, text: "the eviction was refused: " + r.Words}
	}
	return passed(GuardDisruptionBudget, "no refused eviction is known; the eviction API has the last word")
}

// overridden is true when the operator said that this guard shall not hold.
func (a *Assessment) overridden(g Guard) bool { return slices.Contains(a.state.Controls.Override, g) }

// judge asks one guard, and lets the candidate pass all the same where the operator
// overrides it. The verdict says so: an override is never silent.
func (a *Assessment) judge(v Verdict) Verdict {
	if !v.Pass && a.overridden(v.Guard) {
		v.Pass, v.Overridden = true, true
	}
	return v
}

func verdict(g Guard, pass bool, format string, n ...int) Verdict {
	v := Verdict{Guard: g, Pass: pass, format: format}
	copy(v.n[:], n)
	return v
}

func passed(g Guard, format string, n ...int) Verdict { return verdict(g, true, format, n...) }

// survivorsWithout counts the survivors that stay when c goes.
func (a *Assessment) survivorsWithout(c *Seat) int { return a.survivors - btoi(c.survives()) }

// votingElsewhere counts the voters without a seat that serve, and so vote, when c goes:
// whether they may be relied on for longer is another question, unless their pods
// terminate. c and every pod that terminates may run one of them where no member could be
// matched to it. (A pod that is missing runs nothing.)
func (a *Assessment) votingElsewhere(c *Seat) int {
	voting := len(a.trusted) + a.untrusted - a.leaving
	for i := range a.Seats {
		if s := &a.Seats[i]; s.Member == nil && s.Pod != nil && (s == c || s.Pod.Terminating) {
			voting--
		}
	}
	return max(0, voting)
}

// unavailable is true for a seat that counts against the budget. A learner never
// does.
func (a *Assessment) unavailable(s *Seat) bool {
	if s.Member != nil && !s.Voter {
		return false
	}
	return s.Going() || s.Evidence != Serving || (!s.Outdated && !s.Settled)
}

// failing is true for an updated pod that will not settle by itself.
func (a *Assessment) failing(s *Seat) bool {
	if s.Going() || s.Outdated || s.Settled {
		return false
	}
	return s.ContainerDead || a.Age(s.Pod.UID, UnsettledSeen) >= a.policy.SettleTimeout
}

// cutOff is true when no member but the coordinator's own answers anything, no
// kubelet says that another's container is dead, and some kubelet says the
// opposite. (When every kubelet agrees that the others are down, quorum really is
// lost, and [GuardQuorumPatience] is the rule for that; holding for good would block
// the cure.)
func (a *Assessment) cutOff() bool {
	contradicted := false
	for i := range a.Seats {
		s := &a.Seats[i]
		if s.Self || s.Member == nil {
			continue
		}
		if p := s.Member.Probe; p.Read == Answered || p.Status != nil || s.ContainerDead {
			return false
		}
		if s.Member.Probe.Read == Failed && witnessOf(s.Pod) != kubeletSaysDown {
			contradicted = true
		}
	}
	for _, m := range a.External {
		if m.Probe.Read == Answered || m.Probe.Status != nil {
			return false
		}
	}
	return contradicted
}

// singleMember: exactly one voter and one replica.
func (a *Assessment) singleMember() bool { return a.Voters == 1 && len(a.Seats) == 1 }

func (a *Assessment) lag(m *Member) (entries uint64, known bool) {
	if m.Probe.Status == nil {
		return a.HighestIndex, false
	}
	return a.HighestIndex - min(a.HighestIndex, m.Probe.Status.Applied), true
}
