package rollout

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// Decide returns what may happen next. It tries the rules from the top; the first
// that applies decides.
func Decide(s State, p Policy) Decision {
	a := Assess(s, p)
	d := decide(a)
	d.Assessment = a
	return d
}

func decide(a *Assessment) Decision {
	if d, ok := notOurs(a); ok {
		return d
	}
	if d, ok := held(a); ok {
		return d
	}
	if d, ok := complete(a); ok {
		return d
	}
	down := a.candidates(RuleNotServingFirst)
	if c := firstPassing(down); c != nil {
		return a.remove(c, down)
	}
	if d, ok := updatedSettle(a, down); ok {
		return d
	}
	serving := a.candidates(RuleServing)
	all := slices.Concat(down, serving)
	if c := firstPassing(serving); c != nil {
		if seat := a.seatOf(c.Pod); seat.Leader {
			if t, ok := a.transfer(seat); ok {
				return moveLeader(seat, t, all)
			}
		}
		return a.remove(c, all)
	}
	return waiting(a, all)
}

// notOurs is rule 1.
func notOurs(a *Assessment) (Decision, bool) {
	set := a.state.Set
	switch {
	case set.Deleting:
		return simple(Idle{}, RuleNotOurs, "", "the StatefulSet is being deleted"), true
	case !set.OnDelete:
		return simple(Idle{}, RuleNotOurs, "", "updateStrategy is not OnDelete: the StatefulSet controller rolls the pods itself"), true
	case set.Replicas == 0:
		return simple(Idle{}, RuleNotOurs, "", "the StatefulSet has no replicas"), true
	}
	return Decision{}, false
}

// held is rule 2: facts that forbid any decision.
func held(a *Assessment) (Decision, bool) {
	set, controls := a.state.Set, a.state.Controls
	switch {
	case len(controls.Bad) > 0:
		return told(Hold{}, RuleHeld, GuardBadControl, "a control cannot be read: "+strings.Join(controls.Bad, "; ")), true
	case controls.Paused:
		return told(Hold{}, RuleHeld, GuardPaused, "the rollout is paused by "+ControlPaused+" on the Lease quorate-"+set.Name), true
	case set.ObservedGeneration < set.Generation:
		return simple(Wait{}, RuleHeld, GuardStaleRevision, "generation %d of the StatefulSet is not observed yet (%d), so updateRevision may be stale", int(set.Generation), int(set.ObservedGeneration)), true
	case set.UpdateRevision == "":
		return simple(Wait{}, RuleHeld, GuardStaleRevision, "the StatefulSet has no updateRevision yet"), true
	case a.Inconsistent != "":
		return told(Hold{}, RuleHeld, GuardInconsistent, a.Inconsistent), true
	}
	for i := range a.state.Etcd.Members {
		if st := a.state.Etcd.Members[i].Probe.Status; st != nil && st.Corrupt && !a.overridden(GuardCorrupt) {
			return simple(Hold{}, RuleHeld, GuardCorrupt, "a CORRUPT alarm is raised: the members' data differ, no update cures that, and reads prove nothing"), true
		}
	}
	if a.cutOff() && !a.overridden(GuardCutOff) {
		return simple(Hold{}, RuleHeld, GuardCutOff, "no other member answers although their containers are reported ready: it is this coordinator that is cut off"), true
	}
	return Decision{}, false
}

// complete is rule 3.
func complete(a *Assessment) (Decision, bool) {
	for i := range a.Seats {
		if s := &a.Seats[i]; s.Ordinal >= a.policy.Partition && !s.Settled {
			return Decision{}, false
		}
	}
	settled := a.trial.settled
	if a.policy.Partition > 0 {
		return simple(Complete{}, RuleComplete, "", "%d of %d pods are up to date and settled, those below partition %d may stay behind", settled, len(a.Seats), a.policy.Partition), true
	}
	return simple(Complete{}, RuleComplete, "", "%d of %d pods are up to date and settled", settled, len(a.Seats)), true
}

// updatedSettle is rule 5: an updated pod that is failing holds the rest. So a
// broken revision stops after one pod; its fix makes that pod outdated again, and
// rule 4 replaces it first (kubernetes#67250).
func updatedSettle(a *Assessment, down []Candidate) (Decision, bool) {
	if a.overridden(GuardUpdatedFailing) {
		return Decision{}, false
	}
	for i := range a.Seats {
		s := &a.Seats[i]
		if !a.failing(s) {
			continue
		}
		d := Decision{Action: Hold{}, Rule: RuleUpdatedSettle, Guard: GuardUpdatedFailing, Candidates: down}
		d.reason = func() string {
			what := "fix the template, and it is replaced first"
			if a.Serving == 0 && len(down) > 0 {
				// However right the template is.
				what = "without quorum nothing settles; if the template is right, it is what keeps the next one that is in the way (" +
					down[0].Pod + ", " + string(down[0].failed().Guard) + ": " + down[0].failed().Detail() + "); else " + what
			}
			return fmt.Sprintf("updated pod %s is failing: %s; %s", s.Name, s.Describe(), what)
		}
		return d, true
	}
	return Decision{}, false
}

// candidates lists the outdated pods that a rule considers, best first, with the
// verdict of every guard of that rule.
func (a *Assessment) candidates(rule Rule) []Candidate {
	var seats []*Seat
	for i := range a.Seats {
		s := &a.Seats[i]
		if s.Going() || !s.Outdated {
			continue
		}
		if (s.Evidence == Down) == (rule == RuleNotServingFirst) {
			seats = append(seats, s)
		}
	}
	slices.SortFunc(seats, a.before)

	guards := notServingGuards
	followers := 0
	if rule == RuleServing {
		guards = servingGuards
		for _, s := range seats {
			if !s.Leader && s.Evidence == Serving && s.Ordinal >= a.policy.Partition {
				followers++
			}
		}
	}
	out := make([]Candidate, 0, len(seats))
	for _, s := range seats {
		c := Candidate{Pod: s.Name, Rule: rule, Verdicts: make([]Verdict, 0, len(guards)+4)}
		if a.policy.Partition > 0 {
			c.Verdicts = append(c.Verdicts, verdict(GuardPartition, s.Ordinal >= a.policy.Partition, "ordinal %d, partition %d", s.Ordinal, a.policy.Partition))
		}
		c.Verdicts = append(c.Verdicts, a.judge(votersKnown(a, s)))
		for _, g := range guards {
			c.Verdicts = append(c.Verdicts, a.judge(g(a, s)))
		}
		if a.state.Set.OrderedReady {
			c.Verdicts = append(c.Verdicts, a.judge(a.recreation(s)))
		}
		if rule == RuleServing {
			c.Verdicts = append(c.Verdicts, a.judge(a.leaderLast(s, followers)))
			if a.policy.Removal == RemoveByEviction && s.available() {
				c.Verdicts = append(c.Verdicts, a.judge(a.disruptionBudget()))
			}
		}
		out = append(out, c)
	}
	return out
}

// before is the order in which candidates go. Members that do not serve: dead,
// then starting, then alive (DEP-07 step 2), learners after the voters. Serving ones
// (DEP-06's preference order): sick sidecar and follower, sick sidecar and leader,
// follower, leader, and those of unknown health last. Within that the coordinator's
// own pod last, then the higher ordinal first. Of those that do not serve the lowest goes
// first where the StatefulSet controller recreates them in that order ([GuardRecreation]).
func (a *Assessment) before(x, y *Seat) int {
	higher := cmp.Compare(y.Ordinal, x.Ordinal)
	if a.state.Set.OrderedReady && x.Liveness != NotDown {
		higher = -higher
	}
	downLearner := func(s *Seat) int { return btoi(s.Evidence == Down && s.Member != nil && s.Member.Learner) }
	self := func(s *Seat) int { return btoi(s.Self) }
	return cmp.Or(
		cmp.Compare(downLearner(x), downLearner(y)),
		cmp.Compare(x.Liveness, y.Liveness),
		cmp.Compare(preference(x), preference(y)),
		cmp.Compare(self(x), self(y)),
		higher,
	)
}

func preference(s *Seat) int {
	switch {
	case s.Evidence != Serving:
		return 4
	case s.SidecarSick && !s.Leader:
		return 0
	case s.SidecarSick:
		return 1
	case !s.Leader:
		return 2
	}
	return 3
}

// transfer picks the best voter to lead instead of the seat's member: settled
// before outdated, healthy sidecar before sick, then the most caught up. It
// reports false when no voter can take over or transfers failed too often.
func (a *Assessment) transfer(from *Seat) (Transfer, bool) {
	if a.state.FailedTransfers[from.Member.ID] >= MaxTransferFailures {
		return Transfer{}, false
	}
	var best *Seat
	for i := range a.Seats {
		s := &a.Seats[i]
		if s == from || !s.survives() {
			continue
		}
		if best == nil || leadsBetter(s, best) {
			best = s
		}
	}
	if best != nil {
		return Transfer{From: from.Member.ID, To: best.Member.ID, FromName: from.Name, ToName: best.Name}, true
	}
	if len(a.trusted) > 0 {
		m := a.trusted[0]
		return Transfer{From: from.Member.ID, To: m.ID, FromName: from.Name, ToName: m.Name}, true
	}
	return Transfer{}, false
}

func leadsBetter(x, y *Seat) bool {
	return cmp.Or(
		cmp.Compare(btoi(!x.Settled), btoi(!y.Settled)),
		cmp.Compare(btoi(x.SidecarSick), btoi(y.SidecarSick)),
		cmp.Compare(x.Lag, y.Lag),
	) < 0
}

// btoi sorts false before true.
func btoi(b bool) int {
	if b {
		return 1
	}
	return 0
}

func (a *Assessment) seatOf(pod string) *Seat {
	for i := range a.Seats {
		if a.Seats[i].Name == pod {
			return &a.Seats[i]
		}
	}
	return nil
}

func targetOf(s *Seat) Target {
	return Target{Pod: s.Name, UID: s.Pod.UID, ResourceVersion: s.Pod.ResourceVersion, Ordinal: s.Ordinal}
}

func (a *Assessment) remove(c *Candidate, all []Candidate) Decision {
	seat := a.seatOf(c.Pod)
	d := Decision{Action: Remove{Target: targetOf(seat), Method: a.method(seat)}, Rule: c.Rule, Candidates: all}
	d.reason = func() string {
		for _, v := range c.Verdicts {
			if v.Guard == GuardQuorumFloor || v.Guard == GuardMayVote {
				return seat.Describe() + "; " + v.Detail()
			}
		}
		return seat.Describe()
	}
	return d
}

// method is how a pod is removed.
func (a *Assessment) method(s *Seat) Removal {
	if s.available() && !a.overridden(GuardDisruptionBudget) {
		return a.policy.Removal
	}
	return RemoveByDelete
}

// available is true for what a PodDisruptionBudget counts as available: every Ready pod, also one
// whose member does not answer us, because it may serve others. Its removal has to be charged to the
// budget, or a drain takes another one at the same time. (The chaos tests found a member of unknown
// health that was deleted beside the pod that a drain had just taken.) A pod that is not Ready may be
// evicted only while enough others are, so its cure would have to wait for them.
func (s *Seat) available() bool { return s.Evidence != Down && s.Pod.Ready }

func moveLeader(seat *Seat, t Transfer, all []Candidate) Decision {
	d := Decision{Action: MoveLeader{Target: targetOf(seat), Transfer: t}, Rule: RuleHandOverLeadership, Candidates: all}
	d.reason = func() string {
		return t.FromName + " leads and is next; " + t.ToName + " takes over first, so that no election is needed"
	}
	return d
}

// clearing are the guards that clear by themselves, when members recover or time passes.
var clearing = []Guard{
	GuardQuorumPatience, GuardUnavailableBudget, GuardEndpointFloor, GuardRecreation, GuardCaughtUp, GuardCanary,
	GuardLeaderLast, GuardDisruptionBudget,
}

// waiting names what the rollout waits for, once no rule acts: first what is
// under way by itself, then the guard that stops the best candidate.
func waiting(a *Assessment, all []Candidate) Decision {
	for i := range a.Seats {
		s := &a.Seats[i]
		var guard Guard
		switch {
		case s.Going():
			guard = GuardTerminating
		case !s.Outdated && !s.Settled:
			guard = GuardUpdatedPending
		default:
			continue
		}
		d := Decision{Action: Wait{}, Rule: RuleUpdatedSettle, Guard: guard, Candidates: all}
		d.reason = func() string { return "waiting for " + s.Name + ": " + s.Describe() }
		return d
	}
	if len(all) > 0 {
		// A pod below the partition is the reason only when there is no other.
		c := &all[max(0, slices.IndexFunc(all, func(c Candidate) bool { return c.failed().Guard != GuardPartition }))]
		v := c.failed()
		d := Decision{Action: Hold{}, Rule: c.Rule, Guard: v.Guard, Candidates: all}
		if !v.lasting && slices.Contains(clearing, v.Guard) {
			d.Action = Wait{}
		}
		d.reason = func() string { return c.Pod + ": " + v.Detail() }
		return d
	}
	return simple(Wait{}, RuleUpdatedSettle, GuardUpdatedPending, "waiting for the pods to settle")
}

func firstPassing(cs []Candidate) *Candidate {
	for i := range cs {
		if cs[i].Passes() {
			return &cs[i]
		}
	}
	return nil
}

func simple(a Action, r Rule, g Guard, format string, n ...int) Decision {
	v := verdict(g, false, format, n...)
	return Decision{Action: a, Rule: r, Guard: g, reason: v.Detail}
}

// told is for reasons that quote somebody else's words, which are no format.
func told(a Action, r Rule, g Guard, text string) Decision {
	return Decision{Action: a, Rule: r, Guard: g, reason: func() string { return text }}
}

// Describe says in a few words what is known of the seat.
func (s *Seat) Describe() string {
	switch {
	case s.Pod == nil:
		return "its pod is missing"
	case s.Pod.Terminating:
		return "its pod is terminating"
	}
	var text string
	switch {
	case s.Evidence == Down:
		text = "its member is Down (" + s.Liveness.String()
		if s.Pod.Etcd.Reason != "" {
			text += ", " + s.Pod.Etcd.Reason
		}
		if n := s.Pod.Etcd.Restarts; n > 0 {
			text += ", restarts: " + strconv.Itoa(n)
		}
		text += ")"
	case s.Evidence == Unknown && s.Member != nil && s.Member.Probe.Read == Answered:
		text = "its member is Unknown (it answered a read of raft term " + strconv.FormatUint(s.Member.Probe.ReadTerm, 10) + ", and another one of a later term)"
	case s.Evidence == Unknown && s.Member != nil && s.Member.Probe.Detail != "":
		text = "its member is Unknown (" + s.Member.Probe.Detail + ")"
	case s.Evidence == Unknown:
		text = "its member is Unknown"
	case s.Leader:
		text = "its member serves and leads"
	case !s.Voter:
		text = "its member is a learner"
	default:
		text = "its member serves"
	}
	switch {
	case s.Evidence != Serving || s.useful():
	case s.Member.Probe.Status == nil:
		text += ", how far it is behind is not known"
		if why := s.Member.Probe.Detail; why != "" {
			text += " (" + why + ")"
		}
	default:
		text += ", " + strconv.FormatUint(s.Lag, 10) + " log entries behind"
	}
	if s.Member != nil && s.Member.Probe.Status != nil && s.Member.Probe.Status.NoSpace {
		text += ", alarm NOSPACE"
	}
	if s.SidecarSick {
		text += ", its sidecar is not ready"
	}
	if !s.Outdated && !s.Settled && s.Evidence == Serving {
		text += ", the updated pod has not settled yet"
	}
	return text
}
