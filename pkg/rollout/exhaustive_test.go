package rollout_test

import (
	"flag"
	"fmt"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/quorate/quorate/pkg/rollout"
)

// The exhaustive check puts every combination of the classes of members (classes_test.go)
// into clusters of 1 to 5, and holds every decision against rules that are reckoned here
// from the classes alone, not with the code under test.
//
// Of n members it takes the multisets, in one order of ordinals: ordinals only break ties
// between candidates, and every candidate that passes is checked as if it had been chosen,
// so that another order would choose nothing unchecked. Where leadership moves, whose
// receiver is no candidate, the reverse order is checked too, and up to three members all
// orders are. A larger maxUnavailable lets more candidates pass and no fewer, so
// that the larger one is checked where there is no time for both.

var (
	exhaustive = flag.Bool(
		"exhaustive",
		false,
		"check all combinations of five members, and that no rule tells a class from its representative in any three "+
			"(ten minutes on two cores)",
	)
	parts = flag.Int(
		"parts",
		64,
		"one of so many parts of all combinations of five members is checked without -exhaustive (make nightly: 8)",
	)
	seed = flag.Int(
		"seed",
		1,
		"which of the -parts is checked, from 0",
	)
)

// environment is what is the same for all members of a world.
type environment struct {
	maxUnavailable int
	volatile       bool
	// migrated: it is the pods whose data is volatile; the template has a persistent volume by now.
	migrated bool
	// self is the coordinator's own ordinal, -1 for none.
	self int
	// outsiders are voters elsewhere that serve, ghosts such that do not. Trusted: the
	// operator relies on those elsewhere.
	outsiders, ghosts int
	trusted           bool
	// scaledAway: the voters elsewhere run in pods of ours beyond the last ordinal.
	scaledAway bool
	// left: the voters elsewhere are called like pods beyond the last ordinal, and have none.
	left bool
	// ordered: podManagementPolicy is OrderedReady.
	ordered bool
	// local: the member list comes from one member only, and so many voters have the same.
	local    bool
	agreeing int
	// noList: nobody answers with a member list.
	noList bool
	// taken: what is going was taken by others, not by us.
	taken bool
	// leaving: others are about to take the pod of ordinal 0. cordoned: its node has been for long.
	leaving, cordoned bool
	// image is that of etcd in the new template, empty where it says nothing. Doomed: by that, or by an
	// argument of the old version alone, the rollout is known to fail.
	image    string
	doomed   bool
	argument rollout.Argument
	// differ: every member has another list.
	differ bool
	// unclaimed: the StatefulSet has a claim template that the outdated pods have no volume for.
	unclaimed bool
	// diverged: every member that tells its status has other data.
	diverged bool
	// holdLast: the operator wants to be asked before the last member of the older version goes.
	holdLast bool
	// alarm: a member that has left the list has raised the alarm NOSPACE. No member tells how large its database is.
	alarm bool
}

func (e environment) String() string {
	words := []string{fmt.Sprintf("at most %d unavailable", e.maxUnavailable)}
	for _, p := range []struct {
		is   bool
		word string
	}{
		{e.volatile, "volatile data"}, {e.migrated, "of an older template"},
		{e.self >= 0, fmt.Sprintf("coordinator %d", e.self)},
		{e.outsiders > 0, fmt.Sprintf("%d voters elsewhere", e.outsiders)}, {e.trusted, "trusted"},
		{e.scaledAway, "being scaled away"}, {e.left, "left behind"}, {e.ordered, "in order"},
		{e.local, fmt.Sprintf("a list of one member's own that %d have", e.agreeing)},
		{e.ghosts > 0, fmt.Sprintf("%d ghosts", e.ghosts)},
		{e.noList, "no member list"}, {e.taken, "others take what is going"},
		{e.leaving, "others are about to take etcd-0"}, {e.cordoned, "the node of etcd-0 is cordoned"},
		{e.noList, "no member list"},
		{e.image != "", "to " + e.image}, {e.argument.Name != "", "with " + e.argument.Name + " of before"},
		{e.holdLast, "asking before the last"}, {e.differ, "with lists that differ"},
		{e.unclaimed, "with a claim that the outdated lack"},
		{e.diverged, "with data that differ"}, {e.alarm, "with an alarm of a member that is gone"},
	} {
		if p.is {
			words = append(words, p.word)
		}
	}
	return strings.Join(words, ", ")
}

const noSelf = -1

// goneIDs are those of members that have left the list.
var goneIDs = []uint64{theGone}

// catalogue holds the pods and members of all classes, made once.
type catalogue struct {
	classes []class
	pods    [][]rollout.Pod
	// members are by class, ordinal and leader; the last is for no leader.
	members [][][]rollout.Member
	// quorumJustLost and quorumLongLost are all ages; they differ in that of lost quorum.
	quorumJustLost, quorumLongLost map[rollout.Sighting]time.Duration
	// present are the pods whose sidecars have said that they are there.
	present []string
}

func newCatalogue(classes []class, n int) *catalogue {
	c := &catalogue{
		classes: classes, pods: make([][]rollout.Pod, len(classes)), members: make([][][]rollout.Member, len(classes)),
		quorumJustLost: ages(classes, n, 0), quorumLongLost: ages(classes, n, long), present: announced(classes, n),
	}
	for k, class := range classes {
		c.members[k] = make([][]rollout.Member, n)
		for o := range n {
			c.pods[k] = append(c.pods[k], class.podOf(o))
			for leader := range n {
				c.members[k][o] = append(c.members[k][o], class.member(o, id(leader)))
			}
			c.members[k][o] = append(c.members[k][o], class.member(o, 0))
		}
	}
	return c
}

// scene decides one world after the other.
type scene struct {
	*catalogue
	environment
	n         int
	state     rollout.State
	policy    rollout.Policy
	decisions int
	// mutate is a mutant's: it decides on something else than there is.
	mutate func(*rollout.State)
}

func newScene(c *catalogue, e environment, n int) *scene {
	s := &scene{catalogue: c, environment: e, n: n, policy: rollout.DefaultPolicy()}
	s.policy.MaxUnavailable.Number = e.maxUnavailable
	s.state = rollout.State{
		Set: rollout.Set{
			Name: "etcd", UID: "set", Replicas: n, OnDelete: true, VolatileData: e.volatile && !e.migrated,
			Generation: 1, ObservedGeneration: 1, UpdateRevision: newRev,
		},
		Etcd: rollout.Membership{
			Known:        !e.noList,
			Linearizable: !e.noList && !e.local,
			Agreeing:     e.agreeing,
			ClusterID:    clusterID,
		},
		Sidecars: rollout.Sidecars{Present: c.present},
	}
	s.state.Set.OrderedReady = e.ordered
	for o := range n {
		if !e.taken {
			s.state.Removed = append(s.state.Removed, name(o))
		}
	}
	s.state.Set.Etcd.Image, s.policy.HoldBeforeLast = e.image, e.holdLast
	if e.argument.Name != "" {
		s.state.Set.Etcd.Arguments = []rollout.Argument{e.argument}
	}
	if e.trusted {
		for i := range e.outsiders + e.ghosts {
			s.policy.TrustedMembers = append(s.policy.TrustedMembers, s.elsewhere(i))
		}
	}
	if e.self >= 0 {
		s.state.Self = name(e.self)
	}
	return s
}

func (s *scene) decide(members []int, leader int, quorumLongLost bool) rollout.Decision {
	s.decisions++
	st := s.world(members, leader, quorumLongLost)
	if s.mutate != nil {
		s.mutate(&st)
	}
	return rollout.Decide(st, s.policy)
}

// elsewhere is the name of a voter without a pod in our ordinals.
func (s *scene) elsewhere(i int) string {
	if s.scaledAway || s.left {
		return name(s.n + i)
	}
	return fmt.Sprint("elsewhere-", i)
}

// world is that of the given classes (by number), until the next one; leader is an
// ordinal, or n for none.
func (s *scene) world(members []int, leader int, quorumLongLost bool) rollout.State {
	st := &s.state
	st.Pods, st.Etcd.Members = st.Pods[:0], st.Etcd.Members[:0]
	for o, k := range members {
		if s.classes[k].pod != absent {
			st.Pods = append(st.Pods, s.pods[k][o])
			p := &st.Pods[len(st.Pods)-1]
			p.VolatileData, p.Cordoned = s.migrated, s.cordoned && o == 0
			if s.unclaimed && s.classes[k].outdated {
				p.Unclaimed = []string{"wal"}
			}
			if s.leaving && o == 0 {
				p.Leaving = "others are about to take it"
			}
		}
		if s.classes[k].role != unlisted && !s.noList {
			st.Etcd.Members = append(st.Etcd.Members, s.members[k][o][leader])
			if s.differ {
				st.Etcd.Members[len(st.Etcd.Members)-1].Probe.OwnList = name(o)
			}
			if p := &st.Etcd.Members[len(st.Etcd.Members)-1].Probe; s.diverged && p.Status != nil {
				told := *p.Status
				told.Revision, p.Status = int64(1+o)<<40, &told
			} else if s.alarm && p.Status != nil {
				told := *p.Status
				told.NoSpace, told.NoSpaceOf, p.Status = true, goneIDs, &told
			}
		}
	}
	for i := range s.outsiders + s.ghosts {
		if s.scaledAway {
			p := healthyPod(s.n+i, oldRev, 1)
			p.Terminating = i == 0
			st.Pods = append(st.Pods, p)
		}
		m := rollout.Member{ID: 0x900 + uint64(i), Name: s.elsewhere(i), Probe: rollout.Probe{Read: rollout.Failed}}
		if i < s.outsiders {
			status := &rollout.Status{Term: term, Index: index, Applied: index}
			if leader < s.n {
				status.Leader = id(leader)
			}
			m.Probe = rollout.Probe{Read: rollout.Answered, ReadTerm: term, Status: status}
		}
		st.Etcd.Members = append(st.Etcd.Members, m)
	}
	st.Ages = s.quorumJustLost
	if quorumLongLost {
		st.Ages = s.quorumLongLost
	}
	return *st
}

// check decides a world under every leader that its members can name, and returns what is
// wrong with a decision, by the classes alone, empty if nothing.
func (s *scene) check(members []int) string {
	problem, moves := s.checkInOrder(members)
	if problem == "" && moves {
		reversed := slices.Clone(members)
		slices.Reverse(reversed)
		problem, _ = s.checkInOrder(reversed)
	}
	return problem
}

func (s *scene) checkInOrder(members []int) (problem string, moves bool) {
	w := newReckoning(s, members)
	for leader := 0; leader <= s.n; leader++ {
		if leader < s.n && !w.mayLead(leader) {
			continue
		}
		w.leader = leader
		for _, w.longLost = range []bool{false, true} {
			d := s.decide(members, leader, w.longLost)
			moves = moves || d.Action.Name() == rollout.ActionMoveLeader
			if problem := w.wrong(&d); problem != "" {
				return fmt.Sprintf(
					"%s\n  decision: %s %v: %s\n  leader: %d, quorum lost for long: %v, %v\n%s",
					problem,
					d.Action,
					d.Target(),
					d.Reason(),
					leader,
					w.longLost,
					s.environment,
					list(w.members),
				), moves
			}
			if w.serving > 0 {
				break // Then quorum is not lost, and nobody asks for how long.
			}
		}
	}
	return "", moves
}

// reckoning is what the rules must come to in one world, reckoned from the classes.
type reckoning struct {
	*scene
	// kinds are the classes by number, members what they come to beside each other.
	kinds    []int
	members  []class
	leader   int
	longLost bool

	voters, quorum, serving, surviving, mayVote int
	settled, underWay, going                    int
	// failing are those that have had their time, and catchingUp those of them that catch up if there is a leader.
	failing, catchingUp                 int
	outdatedServing, unavailable, ready int
	// reliable are the voters elsewhere that count as survivors.
	reliable     int
	inconsistent bool
	// taken are the voters that others have taken, or are about to.
	taken int
}

// fail is how many updated ones fail.
func (w *reckoning) fail() int {
	if w.leader < w.n {
		return w.failing - w.catchingUp
	}
	return w.failing
}

func newReckoning(s *scene, members []int) *reckoning {
	w := &reckoning{
		scene:   s,
		kinds:   members,
		members: make([]class, 0, 8),
		voters:  s.outsiders + s.ghosts,
		serving: s.outsiders,
	}
	laterTerm := s.outsiders > 0
	for _, k := range members {
		laterTerm = laterTerm || s.classes[k].servingVoter()
	}
	for _, k := range members {
		c := s.classes[k].resolve(laterTerm)
		c.leaving = s.leaving && len(w.members) == 0
		w.members = append(w.members, c)
		w.voters += btoi(c.voter())
		w.serving += btoi(c.servingVoter())
		w.surviving += btoi(c.survives())
		w.mayVote += btoi(c.votes())
		w.settled += btoi(c.settled())
		w.failing += btoi(c.failing())
		w.catchingUp += btoi(c.failing() && c.catchesUp())
		w.going += btoi(c.isGoing())
		w.underWay += btoi(c.isGoing() || !c.outdated && !c.settled())
		w.outdatedServing += btoi(c.outdated && c.answer == serves && !c.isGoing())
		w.unavailable += btoi(c.unavailable())
		w.ready += btoi(c.podReady() && !c.yields())
		w.taken += btoi(c.yields() || s.taken && c.voter() && c.isGoing())
		w.inconsistent = w.inconsistent || c.pod == foreign || c.pod == nameless
	}
	w.quorum = w.voters/2 + 1
	// While a pod of ours matches no member, a voter elsewhere may be the one that runs in it.
	if s.trusted && !s.scaledAway &&
		!slices.ContainsFunc(w.members, func(c class) bool { return c.role == unlisted && c.pod != absent }) {
		w.reliable = s.outsiders
	}
	if s.noList {
		w.voters, w.quorum, w.serving, w.surviving = 0, 0, 0, 0
	}
	return w
}

func btoi(b bool) int {
	if b {
		return 1
	}
	return 0
}

// mayLead: somebody must answer to name a leader, which may just have fallen silent. Of
// the same class one is like the other.
func (w *reckoning) mayLead(leader int) bool {
	if w.noList || w.serving == 0 || !w.members[leader].voter() {
		return false
	}
	for o := range leader {
		if w.members[o] == w.members[leader] {
			return false
		}
	}
	return true
}

func (w *reckoning) wrong(d *rollout.Decision) string {
	if w.inconsistent {
		if d.Action.Name() != rollout.ActionHold || d.Guard != rollout.GuardInconsistent {
			return "a pod of somebody else stands where one of ours belongs, or one tells nothing of its member, and " +
				"it does not hold"
		}
		return ""
	}
	if disarms := d.Action.Name() == rollout.ActionDisarm; disarms || w.mustDisarm() && !d.Acts() {
		return w.wrongDisarm(d, disarms)
	}
	if d.Acts() != (d.Target().Pod != "") {
		return "it acts without a target, or has a target without acting"
	}
	if !d.Acts() && d.Reason() == "" {
		return "it does nothing and names no reason"
	}
	if heir := w.mustMakeWay(); heir || d.Duty == rollout.DutyMakeWay {
		return w.wrongWay(d, heir)
	}
	best := -1
	for i := range d.Candidates {
		c := &d.Candidates[i]
		if !c.Passes() ||
			d.Acts() && (c.Rule == rollout.RuleNotServingFirst) != (d.Rule == rollout.RuleNotServingFirst) {
			continue
		}
		o := ordinalOf(c.Pod)
		if problem := w.unsafe(o, c.Rule); problem != "" {
			return problem + ": " + c.Pod
		}
		if best < 0 || w.rank(o, c.Rule) < w.rank(best, c.Rule) {
			best = o
		}
	}
	switch {
	case !d.Acts() && best >= 0:
		return "a candidate passes and nothing happens"
	case !d.Acts():
		return ""
	case best < 0:
		return "it acts on what does not pass"
	}
	o, rule := d.Target().Ordinal, rollout.RuleServing
	if d.Rule == rollout.RuleNotServingFirst {
		rule = d.Rule
	}
	if rule == rollout.RuleServing && best != w.leader && w.handsOverBefore() {
		if move, ok := d.Action.(rollout.MoveLeader); !ok || o != w.leader {
			return "several pods may go at once, and the leader will hand over beside them"
		} else if to := int(move.Transfer.To) - 1; !w.mayLeadOn(to) {
			return "leadership goes to a member that has to hand over again"
		} else {
			return w.wrongTransfer(move.Transfer)
		}
	}
	leads := o == w.leader && rule == rollout.RuleServing
	switch {
	case d.Target().Pod != name(o) || d.Target().UID != w.classes[w.kinds[o]].uid(o) ||
		d.Target().ResourceVersion != "1":
		return "the target is not the observed pod"
	case w.rank(o, rule) > w.rank(best, rule):
		return "the best candidate is another"
	case leads != (d.Action.Name() == rollout.ActionMoveLeader) &&
		w.surviving-btoi(w.members[o].survives())+w.reliable > 0:
		return "a leader goes without handing over, or one that does not lead hands over"
	case d.Action.Name() == rollout.ActionMoveLeader:
		return w.wrongTransfer(d.Action.(rollout.MoveLeader).Transfer)
	case (d.Action.(rollout.Remove).Method == rollout.RemoveByEviction) != w.members[o].available():
		return "what a budget counts is not evicted, or what it does not count is"
	}
	return ""
}

// mustDisarm: nobody on the list has raised the alarm, so nobody is waited for but a quorum.
func (w *reckoning) mustDisarm() bool {
	return w.alarm && w.serving > 0 && w.serving >= w.quorum &&
		slices.ContainsFunc(w.members, func(c class) bool { return c.role != unlisted && c.tells() })
}

func (w *reckoning) wrongDisarm(d *rollout.Decision, disarms bool) string {
	switch {
	case !disarms:
		return "etcd takes no writes for a member that is gone, and its alarm stays"
	case !w.mustDisarm():
		return "an alarm is disarmed that nobody has raised, or without a quorum"
	}
	for _, other := range d.Others {
		if slices.ContainsFunc(other.Candidates, func(c rollout.Candidate) bool { return c.Passes() }) {
			return "a candidate passes, and an alarm is disarmed instead"
		}
	}
	return ""
}

// handsOverBefore is true where several pods may go at once, every voter serves, and a settled one can take over from
// a leader that is still to go.
func (w *reckoning) handsOverBefore() bool {
	if min(w.maxUnavailable, w.surviving+w.reliable-w.quorum) < 2 || w.serving < w.voters || w.unavailable > 0 ||
		w.leader == w.n {
		return false
	}
	for o := range w.members {
		if w.members[w.leader].outdated && w.mayLeadOn(o) {
			return true
		}
	}
	return false
}

// mayLeadOn: it need not hand over again.
func (w *reckoning) mayLeadOn(o int) bool {
	return o >= 0 && o < w.n && o != w.leader && w.members[o].settled() && w.members[o].survives() &&
		(!w.cordoned || o != 0)
}

// mustMakeWay is true while the leader serves, others are about to take it or its node is cordoned, and another
// could lead.
func (w *reckoning) mustMakeWay() bool {
	if w.leader == w.n {
		return false
	}
	leader := w.members[w.leader]
	leaves := leader.leaving && !leader.isGoing() || w.scene.taken && leader.pod == goingPod ||
		w.cordoned && w.leader == 0 && !leader.isGoing()
	if !leaves || leader.answer != serves {
		return false
	}
	for o := range w.members {
		if w.mayTakeOver(o) {
			return true
		}
	}
	return false
}

// mayTakeOver: an outdated one would be the next to hand over, unless the rollout waits.
func (w *reckoning) mayTakeOver(o int) bool {
	c := w.members[o]
	return o != w.leader && c.survives() && (!w.cordoned || o != 0) && (!w.cordoned || !c.outdated)
}

func (w *reckoning) wrongWay(d *rollout.Decision, must bool) string {
	move, ok := d.Action.(rollout.MoveLeader)
	switch {
	case !must || d.Duty != rollout.DutyMakeWay || !ok:
		return "leadership leaves a member that stays, or stays with one that leaves"
	case move.Transfer.From != id(w.leader) || !w.mayTakeOver(int(move.Transfer.To)-1):
		return "leadership goes to a member that is about to go, or to one that is next"
	}
	return ""
}

// unsafe returns what makes the removal of an ordinal wrong.
func (w *reckoning) unsafe(o int, rule rollout.Rule) string {
	t := w.members[o]
	// A voter elsewhere votes as long as it serves, unless it runs in a pod that no member
	// could be matched to, or that is ours and terminates, as the first one's does.
	voting := w.outsiders
	if w.scaledAway {
		voting = max(0, voting-1)
	}
	for i, c := range w.members {
		if c.role == unlisted && (i == o || c.pod == goingPod) {
			voting = max(0, voting-1)
		}
	}
	surviving := w.surviving - btoi(t.survives()) + w.reliable
	mayVote := w.mayVote - btoi(t.votes()) + voting
	down := t.saysDown(w.serving-btoi(t.servingVoter()), w.quorum)
	if w.noList {
		down = t.hasNoProcess() && !t.podReady()
	}
	switch {
	case t.isGoing():
		return "the target is going or missing"
	case !t.outdated:
		return "the target is up to date"
	case down != (rule == rollout.RuleNotServingFirst):
		return "the wrong rule considers it"
	case w.noList && !t.hasNoProcess():
		return "nobody knows who votes, and a process goes"
	case w.local && (!down || w.serving > 0 && !t.hasNoProcess()) && w.agreeing < w.quorum:
		return "a member that serves or may vote goes by a list that no quorum has"
	case w.ordered && slices.ContainsFunc(w.members[:o], func(c class) bool { return !c.podReady() }):
		return "it would not be recreated before a lower one is Ready"
	case w.unclaimed && slices.ContainsFunc(w.members[:o], func(c class) bool { return c.outdated && !c.isGoing() }):
		return "it would not come back: a lower one lacks a claim"
	case w.ordered && w.serving == 0 && down && runs(t) && slices.ContainsFunc(w.members[o+1:], func(c class) bool {
		return c.outdated && !c.isGoing() && c.hasNoProcess()
	}):
		return "a live process goes to open the way for a dead one"
	case w.volatile && w.dataWithout(o)+w.reliable < max(1, w.quorum):
		return "too few voters with data stay"
	case down:
		return w.unsafeWhenDown(t, surviving, mayVote)
	}
	return w.unsafeWhenServing(o, surviving)
}

func (w *reckoning) unsafeWhenDown(t class, surviving, mayVote int) string {
	mightVote := t.voter() || t.role == unlisted && w.outsiders+w.ghosts > 0
	switch {
	case w.knownToFail(t):
		return "a rollout begins that is known to fail"
	case mightVote && w.serving > 0 && !t.hasNoProcess() && surviving < w.quorum && mayVote < w.quorum:
		return fmt.Sprintf("a process that may vote goes, %d others could vote, quorum %d", mayVote, w.quorum)
	case w.fail() > 0 && w.settled == 0 && (!t.long || runs(t)):
		return "the new revision is suspect, and it gets what may come back by itself"
	case w.underWay > 0 && w.settled == 0 && t.comesBack():
		return "a broken revision may cost a second member that would have come back by itself"
	case w.serving > 0 || !runs(t):
		return ""
	case !w.longLost || w.going > 0:
		return "a live process goes although quorum may come back without that"
	}
	for _, c := range w.members {
		if !c.outdated && (c.hasNoProcess() || !c.long) {
			return "a live process goes although an updated pod is coming up or dead"
		}
	}
	return ""
}

func (w *reckoning) unsafeWhenServing(o, surviving int) string {
	t := w.members[o]
	single := len(w.members) == 1 && w.voters == 1
	caughtUp := surviving
	for i, c := range w.members {
		if i != o && c.survives() && c.lags {
			caughtUp--
		}
	}
	switch {
	case w.taken > 0:
		return "a member that serves goes beside what others take"
	case !single && surviving < w.quorum:
		return fmt.Sprintf(
			"a serving or unknown member goes, %d of %d voters stay, quorum %d",
			surviving,
			w.voters,
			w.quorum,
		)
	case !single && w.voters == 2 && t.servingVoter():
		return "one of two voters goes"
	case w.votesUnseen():
		return "a member that serves goes beside a pod that may vote in a cluster of its own"
	case !single && caughtUp < w.quorum:
		return "the survivors lag"
	case w.fail() > 0:
		return "a serving member goes although an updated one is failing"
	case w.unavailable-btoi(t.unavailable())+btoi(t.role != isLearner) > w.maxUnavailable:
		return "the budget is exceeded"
	case w.settled == 0 && w.underWay > 0:
		return "the first pod of a revision does not go alone"
	case len(w.members) > 1 && t.podReady() && w.ready-btoi(!t.yields()) < len(w.members)/2+1:
		return "too few endpoints stay"
	case !single && t.voter() && w.leader == w.n:
		return "a voter goes although nobody knows who leads"
	case w.diverged && w.telling() > 1:
		return "a member goes beside data that differ"
	case w.knownToFail(t):
		return "a rollout begins that is known to fail"
	case w.holdLast && t.tells() && w.lastOutdated(o):
		return "the last member of the older version goes, and nobody was asked"
	case w.leader == o && t.podReady() && t.answer == serves &&
		w.outdatedServing-btoi(t.answer == serves)-btoi(w.goesAfter(o)) > 0:
		return "a healthy leader goes before a follower"
	case w.scaledAway:
		return "a member that serves goes while others are scaled away"
	}
	return ""
}

// goesAfter is true if the pod on the cordoned node is a candidate that goes after this one.
func (w *reckoning) goesAfter(o int) bool {
	c := w.members[0]
	return w.cordoned && o != 0 && c.outdated && c.answer == serves && !c.isGoing()
}

// knownToFail: what the members tell says that the new version, or the lists, will not do. What costs only the member
// that gets it does not matter to one that has been dead for long.
func (w *reckoning) knownToFail(t class) bool {
	if !w.doomed && !w.differ {
		return false
	}
	told, toldOld, lists, begins := 0, 0, 0, true
	for _, c := range w.members {
		begins = begins && (c.outdated || c.pod == absent)
		told += btoi(c.tells())
		toldOld += btoi(c.tells() && c.outdated)
		lists += btoi(c.servingVoter())
	}
	longDead := t.long && !runs(t) && t.answer != serves
	step := w.image != "" && toldOld > 0
	switch {
	case w.differ && begins && lists > 1 && (t.answer != silent || step):
		return true
	case !w.doomed || told == 0:
		return false
	case w.argument.Name != "":
		return toldOld > 0 && w.settled == 0 && !longDead
	case w.image == "etcd:3.4.34":
		return !longDead
	}
	return toldOld > 0
}

// votesUnseen: a pod that was Ready once and runs is not on the list, and it is not for the mapping.
func (w *reckoning) votesUnseen() bool {
	count, may := 0, 0
	for _, c := range w.members {
		if c.role == unlisted && c.pod != absent {
			count++
			may += btoi(!c.isGoing() && !c.empty && runs(c))
		}
	}
	strangers := w.outsiders + w.ghosts
	if w.scaledAway || w.left {
		strangers = 0
	}
	return !w.noList && may > 0 && count > strangers
}

// telling counts the voters that tell their status.
func (w *reckoning) telling() (n int) {
	for _, c := range w.members {
		n += btoi(c.voter() && c.tells())
	}
	return n
}

// lastOutdated: no other pod is outdated that stays.
func (w *reckoning) lastOutdated(o int) bool {
	for i, c := range w.members {
		if i != o && c.outdated && !c.isGoing() {
			return false
		}
	}
	return true
}

// dataWithout counts our own voters with data that stay when an ordinal goes.
func (w *reckoning) dataWithout(o int) int {
	n := 0
	for i, c := range w.members {
		n += btoi(i != o && c.holdsData() && !w.noList)
	}
	return n
}

// rank is the order in which candidates of a rule go: the smaller first.
func (w *reckoning) rank(o int, rule rollout.Rule) int {
	c := w.members[o]
	if rule == rollout.RuleNotServingFirst {
		switch {
		case c.role == isLearner && !w.noList:
			return 10 + btoi(!c.hasNoProcess()) + btoi(runs(c))
		default:
			return btoi(!c.hasNoProcess()) + btoi(runs(c))
		}
	}
	last := 10 * btoi(w.cordoned && o == 0)
	switch {
	case c.answer != serves:
		return last + 4
	case c.sick && o != w.leader:
		return last
	case c.sick:
		return last + 1
	case o != w.leader:
		return last + 2
	}
	return last + 3
}

// wrongTransfer: leadership goes from the leader to a voter that serves and stays, settled
// before unsettled, a healthy sidecar before a sick one, caught up before lagging. One on a cordoned
// node comes after all others.
func (w *reckoning) wrongTransfer(t rollout.Transfer) string {
	worth := func(o int) int {
		c := w.members[o]
		return 8*btoi(!w.cordoned || o != 0) + 4*btoi(c.settled()) + 2*btoi(!c.sick) + btoi(!c.lags)
	}
	best := -1
	for o, c := range w.members {
		if o != w.leader && c.survives() {
			best = max(best, worth(o))
		}
	}
	to := int(t.To) - 1
	switch {
	case t.From != id(w.leader):
		return "leadership is taken from one that does not lead"
	case best < 0 && t.To >= 0x900 && int(t.To-0x900) < w.reliable:
		return ""
	case to < 0 || to >= len(w.members) || to == w.leader || !w.members[to].survives():
		return "leadership goes to a member that does not serve or is going"
	case worth(to) < best:
		return "leadership goes to another than the best"
	}
	return ""
}

func ordinalOf(pod string) int { return int(pod[len(pod)-1] - '0') }

func list(members []class) string {
	var b strings.Builder
	for i, c := range members {
		fmt.Fprintf(&b, "  etcd-%d: %v\n", i, c)
	}
	return b.String()
}

// sweep calls check with every combination of n classes (by number) that take accepts, on
// all processors: with all arrangements, or only with the multisets. It stops at the
// first problem.
func sweep(
	t *testing.T,
	classes, n int,
	arrangements bool,
	take func(members []int) bool,
	worker func() (check func(members []int) string, decisions *int),
) {
	t.Helper()
	begin := time.Now()
	problem, worlds, decisions := firstProblem(classes, n, arrangements, take, worker)
	if problem != "" {
		t.Fatal(problem)
	}
	t.Logf(
		"%d worlds of %d members from %d classes, %d decisions, %v",
		worlds,
		n,
		classes,
		decisions,
		time.Since(begin).Round(time.Millisecond),
	)
}

// firstProblem is empty when there is none.
func firstProblem(
	classes, n int,
	arrangements bool,
	take func(members []int) bool,
	worker func() (check func(members []int) string, decisions *int),
) (string, int64, int64) {
	var (
		next           atomic.Int64
		failed         atomic.Bool
		worlds, checks atomic.Int64
		problem        string
		once           sync.Once
		workers        sync.WaitGroup
	)
	for range runtime.GOMAXPROCS(0) {
		workers.Go(func() {
			check, decisions := worker()
			members := make([]int, n)
			mine := int64(0)
			var choose func(i, from int)
			choose = func(i, from int) {
				if failed.Load() {
					return
				}
				if i == n {
					if take != nil && !take(members) {
						return
					}
					mine++
					if p := check(members); p != "" {
						once.Do(func() { problem = p })
						failed.Store(true)
					}
					return
				}
				if arrangements {
					from = 0
				}
				for k := from; k < classes; k++ {
					members[i] = k
					choose(i+1, k)
				}
			}
			// One share of the work is all that begins with the same two.
			for {
				share := int(next.Add(1) - 1)
				first, second := share/classes, share%classes
				if first >= classes {
					break
				}
				if n == 1 && second > 0 || n > 1 && !arrangements && second < first {
					continue
				}
				members[0] = first
				if n > 1 {
					members[1] = second
				}
				choose(min(n, 2), members[min(n, 2)-1])
			}
			worlds.Add(mine)
			checks.Add(int64(*decisions))
		})
	}
	workers.Wait()
	return problem, worlds.Load(), checks.Load()
}

func TestNoCombinationOfMembersLeadsToAnUnsafeDecision(t *testing.T) {
	// The garbage is short-lived and small.
	defer debug.SetGCPercent(debug.SetGCPercent(800))
	all, withData := allClasses(false), allClasses(true)
	voters, votersWithData := votersOf(all), votersOf(withData)
	plain := environment{maxUnavailable: 1, self: noSelf}
	with := func(change func(e *environment)) environment {
		e := plain
		change(&e)
		return e
	}
	two := with(func(e *environment) { e.maxUnavailable = 2 })
	type round struct {
		n            int
		classes      []class
		arrangements bool
		environment
	}
	rounds := []round{
		{1, all, true, plain}, {2, all, true, plain}, {3, all, true, plain},
		{1, all, true, with(func(e *environment) { e.self = 0 })},
		{2, all, true, with(func(e *environment) { e.self = 0 })},
		{3, voters, true, with(func(e *environment) { e.self = 0; e.maxUnavailable = 3 })},
		{1, withData, false, with(func(e *environment) { e.volatile = true })},
		{2, withData, false, with(func(e *environment) { e.volatile = true })},
		{3, withData, false, with(func(e *environment) { e.volatile = true; e.maxUnavailable = 2 })},
	}
	for n := 1; n <= 3; n++ {
		rounds = append(
			rounds,
			round{n, podClasses(), false, with(func(e *environment) { e.noList = true })},
			round{n, all, false, with(func(e *environment) { e.ghosts, e.alarm = 1, true; e.maxUnavailable = 2 })},
			round{n, all, false, with(func(e *environment) { e.outsiders = 1; e.maxUnavailable = 3 })},
			round{n, all, false, with(func(e *environment) { e.outsiders, e.trusted = 2, true; e.maxUnavailable = 3 })},
			round{
				n,
				withData,
				false,
				with(func(e *environment) { e.outsiders, e.ghosts, e.volatile, e.trusted = 1, 1, true, true }),
			},
			round{
				n,
				votersWithData,
				false,
				with(func(e *environment) { e.volatile, e.migrated = true, true; e.maxUnavailable = 2 }),
			},
			round{
				n,
				voters,
				false,
				with(
					func(e *environment) { e.outsiders, e.scaledAway, e.trusted = 2, true, true; e.maxUnavailable = 3 },
				),
			},
			round{n, voters, false, with(func(e *environment) { e.local, e.agreeing = true, 1; e.maxUnavailable = 2 })},
			round{n, voters, false, with(func(e *environment) { e.local, e.agreeing = true, 2; e.maxUnavailable = 2 })},
			round{n, voters, true, with(func(e *environment) { e.ordered = true; e.maxUnavailable = 2 })},
			round{n, voters, false, with(func(e *environment) {
				e.image, e.doomed, e.diverged = "etcd:3.7.3", true, true
			})},
			round{n, voters, false, with(func(e *environment) {
				e.image, e.holdLast, e.differ = "etcd:3.6.16", true, true
			})},
			round{n, pausedClasses(), false, with(func(e *environment) { e.maxUnavailable = 3 })},
			round{n, voters, false, with(func(e *environment) {
				e.taken, e.outsiders, e.trusted = true, 2, true
				e.maxUnavailable = 3
			})},
			round{n, voters, true, with(func(e *environment) { e.leaving = true; e.maxUnavailable = 3 })},
			round{n, voters, true, with(func(e *environment) { e.cordoned = true; e.maxUnavailable = 3 })},
			round{n, votersWithData, false, with(func(e *environment) { e.leaving, e.volatile = true, true })},
			round{
				n,
				pausedClasses(),
				false,
				with(func(e *environment) { e.outsiders, e.trusted = 1, true; e.maxUnavailable = 3 }),
			},
		)
	}
	if !testing.Short() && !raceDetector {
		rounds = append(rounds,
			round{4, voters, false, plain}, round{4, all, false, two},
			round{4, votersWithData, false, with(func(e *environment) { e.volatile = true; e.maxUnavailable = 2 })},
			round{5, voters, false, two},
		)
		// Of five members all combinations of voters, and of the rest a part: learners
		// and members that are not listed count towards no quorum.
		rounds = append(rounds, round{5, all, false, two})
	}
	for _, r := range rounds {
		t.Run(fmt.Sprintf("%d members, %v", r.n, r.environment), func(t *testing.T) {
			var take func(members []int) bool
			if r.n == 5 && len(r.classes) > len(voters) && !*exhaustive {
				t.Logf("part %d of %d, chosen by -seed", *seed, *parts)
				take = inPart
			}
			c := newCatalogue(r.classes, r.n)
			sweep(t, len(r.classes), r.n, r.arrangements, take, func() (func([]int) string, *int) {
				s := newScene(c, r.environment, r.n)
				return s.check, &s.decisions
			})
		})
	}
}

// What the rules cannot tell apart need not be enumerated twice: that is shown here, on
// worlds of one, two and, behind -exhaustive, three members, beside every class.
func TestNoRuleTellsAClassFromItsRepresentative(t *testing.T) {
	defer debug.SetGCPercent(debug.SetGCPercent(800))
	told := allClasses(true)
	var twins []class
	for _, c := range observableClasses() {
		if c.representative() != c {
			twins = append(twins, c)
		}
	}
	// The classes come first, then the twins.
	c := newCatalogue(append(slices.Clone(told), twins...), 3)
	stand := map[class]int{}
	for i, c := range told {
		stand[c] = i
	}
	for _, e := range []environment{
		{maxUnavailable: 1, self: noSelf}, {maxUnavailable: 2, self: 0, outsiders: 1, trusted: true, volatile: true},
		{maxUnavailable: 1, self: noSelf, ghosts: 1, volatile: true},
		{maxUnavailable: 2, self: noSelf, local: true, agreeing: 1},
	} {
		for n := 1; n <= 3; n++ {
			if n == 3 && !*exhaustive {
				continue
			}
			t.Run(fmt.Sprintf("%d members, %v", n, e), func(t *testing.T) {
				sweep(t, len(c.classes), n, true, func(members []int) bool {
					// The first is a twin, the others are what it stands beside.
					if members[0] < len(told) {
						return false
					}
					for _, k := range members[1:] {
						if k >= len(told) {
							return false
						}
					}
					return true
				}, func() (func([]int) string, *int) {
					s, other := newScene(c, e, n), newScene(c, e, n)
					return func(members []int) string { return s.compare(other, members, stand) }, &s.decisions
				})
			})
		}
	}
}

// compare decides a world with a twin as its first member, and with the representative in
// the twin's place, and says how the two decisions differ.
func (s *scene) compare(other *scene, members []int, stand map[class]int) string {
	instead := slices.Clone(members)
	instead[0] = stand[s.classes[members[0]].representative()]
	w := newReckoning(s, instead)
	for leader := 0; leader <= s.n; leader++ {
		if leader < s.n && !w.mayLead(leader) {
			continue
		}
		for _, longLost := range []bool{false, true} {
			a, b := s.decide(members, leader, longLost), other.decide(instead, leader, longLost)
			if x, y := essence(a), essence(b); x != y {
				return fmt.Sprintf(
					"the rules tell %v from %v (leader %d, quorum lost for long: %v, %v)\n  %s\n  %s\n%s",
					s.classes[members[0]],
					s.classes[instead[0]],
					leader,
					longLost,
					s.environment,
					x,
					y,
					list(w.members),
				)
			}
		}
	}
	return ""
}

// essence is all of a decision but its words.
func essence(d rollout.Decision) string {
	b := make([]byte, 0, 256)
	b = append(b, d.Action.Name()...)
	b = append(append(b, ' '), d.Rule...)
	b = append(append(b, ' '), d.Guard...)
	if d.Acts() {
		b = append(append(b, ' '), d.Target().Pod...)
	}
	if move, ok := d.Action.(rollout.MoveLeader); ok {
		b = append(append(b, " to "...), move.Transfer.ToName...)
	}
	for _, c := range d.Candidates {
		b = append(append(b, ", "...), c.Pod...)
		for _, v := range c.Verdicts {
			if !v.Pass {
				b = append(append(b, ' '), v.Guard...)
			}
		}
	}
	return string(b)
}

// inPart is true for a combination of the part that is checked.
func inPart(members []int) bool {
	hash := *seed
	for _, k := range members {
		hash = 31*hash + k
	}
	return hash%*parts == 0
}

// While every member serves and nothing fails, something happens as long as something is
// outdated, and every size of cluster but two gets there.
func TestAClusterInWhichEveryMemberServesGetsThere(t *testing.T) {
	classes := []class{
		{outdated: true}, {outdated: true, sick: true}, {outdated: true, etcd: runsNotReady}, {long: true},
		{outdated: true, role: isLearner}, {outdated: true, role: isLearner, sick: true},
	}
	for _, n := range []int{1, 3, 4, 5, 6, 7} {
		for _, maxUnavailable := range []int{1, 2} {
			c := newCatalogue(classes, n)
			sweep(t, len(classes), n, n <= 4, nil, func() (func([]int) string, *int) {
				s := newScene(c, environment{maxUnavailable: maxUnavailable, self: n / 2}, n)
				return s.getsThere, &s.decisions
			})
		}
	}
}

func (s *scene) getsThere(members []int) string {
	w := newReckoning(s, members)
	if w.voters < 3 && s.n > 1 || w.voters == 0 {
		return "" // Two voters hold, and so does one beside other replicas.
	}
	for leader := range s.n {
		if !w.members[leader].voter() {
			continue
		}
		steps := rollout.Predict(s.world(members, leader, false), s.policy)
		s.decisions += len(steps)
		outdated := 0
		for _, c := range w.members {
			outdated += btoi(c.outdated)
		}
		first, last := steps[0], steps[len(steps)-1]
		if last.Action.Name() != rollout.ActionComplete || len(steps) > 2*s.n+2 || first.Acts() != (outdated > 0) {
			return fmt.Sprintf(
				"%d steps, the first is %s, the last is %s: %s\n  leader: %d, %v\n%s",
				len(steps),
				first.Action.Name(),
				last.Action.Name(),
				last.Reason(),
				leader,
				s.environment,
				list(w.members),
			)
		}
	}
	return ""
}

func TestTwoVotersHoldByName(t *testing.T) {
	for _, w := range []*world{cluster(2), cluster(1, outsiders(1))} {
		d := w.decide()
		if d.Action.Name() != rollout.ActionHold || d.Guard != rollout.GuardQuorumFloor ||
			!strings.Contains(d.Reason(), "2 voters need both") {
			t.Errorf("got %s %s: %s", d.Action.Name(), d.Guard, d.Reason())
		}
	}
}
