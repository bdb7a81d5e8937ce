package rollout_test

import (
	"flag"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/quorate/quorate/pkg/rollout"
)

// The exhaustive check enumerates every class of member that can exist, puts every
// combination of them into clusters of 1 to 5, and holds every decision against rules
// that are reckoned here from the classes alone, not with the code under test.

var exhaustive = flag.Bool("exhaustive", false, "check all combinations of five members as well (some minutes)")

// class is what one ordinal can be like.
type class struct {
	pod      podKind
	outdated bool
	etcd     etcdKind
	answer   answerKind
	learner  bool
	sick     bool
	// long: whatever is wrong has lasted for longer than every patience.
	long bool
}

type podKind uint8

const (
	present podKind = iota
	goingPod
	absent
	lostNode
	foreign // a pod of the right name that belongs to somebody else
)

type etcdKind uint8

const (
	runsReady etcdKind = iota
	runsNotReady
	crashLoops
	isStarting
	hasExited
	noEtcd
)

type answerKind uint8

const (
	serves answerKind = iota
	silent
	otherAnswers
)

// consistent is false for what cannot be observed, or differs from another class in
// nothing that matters.
func (c class) consistent() bool {
	gone := c.pod == absent
	switch {
	case gone != (c.etcd == noEtcd):
		return false // Containers are reported of pods that exist, and only of those.
	case gone && (c.answer != silent || c.outdated || c.sick):
		return false // Nothing answers, and there is no revision nor sidecar.
	case c.answer == serves && c.etcd != runsReady && c.etcd != runsNotReady:
		return false // Only a process that runs answers.
	case c.pod == lostNode && (c.etcd != runsReady || c.answer == serves || c.sick):
		return false // The statuses of a lost node are those of good days.
	case c.pod == foreign && (c.etcd != runsReady || c.outdated || c.sick || c.answer == otherAnswers):
		return false // It is never a candidate whatever it is like.
	case c.pod == goingPod && (c.sick || c.outdated || c.answer == otherAnswers || c.etcd == crashLoops || c.etcd == isStarting):
		return false // Going is going.
	case c.learner && (c.pod == lostNode || c.pod == foreign || c.answer == otherAnswers || c.etcd == hasExited):
		return false // Outside quorum these are like their neighbours.
	case c.sick && c.etcd != runsReady:
		return false // A sidecar matters where etcd is well.
	case c.long && (gone || c.pod != present || c.answer == serves && (c.outdated || c.etcd == runsReady && !c.sick)):
		return false // Nothing is wrong, or nobody asks for how long.
	case c.etcd == runsReady && c.answer == silent && c.long && c.outdated:
		return false // The age of Unknown is not a matter of the decision.
	}
	return true
}

func (c class) String() string {
	words := []string{
		[]string{"", "terminating", "missing", "on a lost node", "of another owner"}[c.pod],
		map[bool]string{true: "outdated", false: "updated"}[c.outdated],
		[]string{"ready", "not ready", "crash-looping", "starting", "exited", ""}[c.etcd],
		[]string{"serves", "silent", "another answers"}[c.answer],
	}
	for word, is := range map[string]bool{"learner": c.learner, "sick sidecar": c.sick, "for long": c.long} {
		if is {
			words = append(words, word)
		}
	}
	return strings.Join(strings.Fields(strings.Join(words, " ")), " ")
}

func allClasses() (classes []class, raw int) {
	bools := []bool{false, true}
	for pod := present; pod <= foreign; pod++ {
		for etcd := runsReady; etcd <= noEtcd; etcd++ {
			for answer := serves; answer <= otherAnswers; answer++ {
				for _, outdated := range bools {
					for _, learner := range bools {
						for _, sick := range bools {
							for _, long := range bools {
								raw++
								if c := (class{pod, outdated, etcd, answer, learner, sick, long}); c.consistent() {
									classes = append(classes, c)
								}
							}
						}
					}
				}
			}
		}
	}
	return classes, raw
}

func (c class) voter() bool { return !c.learner }

func (c class) isGoing() bool { return c.pod == goingPod || c.pod == absent || c.pod == foreign }

// survives: a serving voter that stays.
func (c class) survives() bool { return c.voter() && c.answer == serves && !c.isGoing() }

// saysDown: both witnesses agree.
func (c class) saysDown(othersServing, quorum int) bool {
	switch {
	case c.answer != silent:
		return false
	case c.pod == lostNode:
		return othersServing >= quorum
	}
	return c.isGoing() || c.etcd != runsReady
}

// hasNoProcess: nothing of it can vote.
func (c class) hasNoProcess() bool {
	return c.pod == absent || c.etcd == crashLoops || c.etcd == hasExited && c.long
}

const long = time.Hour

// put writes the class into a state as one ordinal.
func (c class) put(s *rollout.State, ordinal int, leader uint64) {
	m := rollout.Member{ID: id(ordinal), Name: name(ordinal), Learner: c.learner, ClientURLs: clientURLs[ordinal]}
	switch c.answer {
	case serves:
		m.Probe = rollout.Probe{Read: rollout.Answered, Status: &rollout.Status{Leader: leader, Term: term, Index: index, Applied: index}}
	case silent:
		m.Probe = rollout.Probe{Read: rollout.Failed}
	case otherAnswers:
		m.Probe = rollout.Probe{Read: rollout.WrongMember}
	}
	s.Etcd.Members = append(s.Etcd.Members, m)
	if c.pod == absent {
		return
	}
	revision := newRev
	if c.outdated {
		revision = oldRev
	}
	p := rollout.Pod{
		Name: name(ordinal), UID: name(ordinal), ResourceVersion: "1", Ordinal: ordinal, MemberName: name(ordinal),
		Revision: revision, Owned: c.pod != foreign, Terminating: c.pod == goingPod, Initialized: true,
		Sidecar: rollout.Container{State: rollout.ContainerRunning, Ready: !c.sick},
	}
	switch c.etcd {
	case runsReady:
		p.Etcd = rollout.Container{State: rollout.ContainerRunning, Ready: true}
	case runsNotReady:
		p.Etcd = rollout.Container{State: rollout.ContainerRunning}
	case crashLoops:
		p.Etcd = rollout.Container{State: rollout.ContainerWaiting, Reason: "CrashLoopBackOff"}
	case isStarting:
		p.Etcd = rollout.Container{State: rollout.ContainerWaiting, Reason: "ContainerCreating"}
	case hasExited:
		p.Etcd = rollout.Container{State: rollout.ContainerTerminated, Reason: "Error"}
	case noEtcd:
	}
	p.ContainersReady = p.Etcd.Ready && !c.sick
	p.Ready = p.ContainersReady && c.pod != lostNode
	s.Pods = append(s.Pods, p)
	if c.long {
		for _, condition := range []rollout.Condition{rollout.UnsettledSeen, rollout.TerminatedSeen, rollout.NotRunningSeen, rollout.PodSeen} {
			s.Ages[rollout.Sighting{UID: p.UID, Condition: condition}] = long
		}
	}
}

var clientURLs = func() (urls [8][]string) {
	for i := range urls {
		urls[i] = []string{"https://" + name(i) + ".etcd-peer.ns.svc:2379"}
	}
	return urls
}()

// stateOf builds a cluster of the classes; leader is an ordinal, or -1.
func stateOf(classes []class, leader int) rollout.State {
	s := rollout.State{
		Set: rollout.Set{
			Name: "etcd", UID: "set", Replicas: len(classes), OnDelete: true,
			Generation: 1, ObservedGeneration: 1, UpdateRevision: newRev,
		},
		Pods: make([]rollout.Pod, 0, len(classes)),
		Etcd: rollout.Membership{Known: true, ClusterID: clusterID, Members: make([]rollout.Member, 0, len(classes))},
		Ages: map[rollout.Sighting]time.Duration{},
	}
	leaderID := uint64(0)
	if leader >= 0 {
		leaderID = id(leader)
	}
	for i, c := range classes {
		c.put(&s, i, leaderID)
	}
	for _, c := range classes {
		if c.long {
			s.Ages[rollout.Sighting{Condition: rollout.QuorumLostSeen}] = long
		}
	}
	return s
}

// wrong returns what is wrong with a decision, by the classes alone, empty if nothing.
func wrong(classes []class, leader int, d rollout.Decision) string {
	voters, serving, outdated := 0, 0, 0
	for _, c := range classes {
		if c.voter() {
			voters++
			if c.answer == serves {
				serving++
			}
		}
		if c.outdated {
			outdated++
		}
	}
	quorum := voters/2 + 1
	if !d.Acts() {
		if d.Reason() == "" {
			return "it does nothing and names no reason"
		}
		return ""
	}
	if d.Target == nil || (d.Transfer != nil) != (d.Action == rollout.MoveLeader) {
		return "it is not exactly one action with one target"
	}
	o := d.Target.Ordinal
	t := classes[o]
	othersServing := serving
	if t.voter() && t.answer == serves {
		othersServing--
	}
	down := t.saysDown(othersServing, quorum)
	surviving, mayVote := 0, 0
	for i, c := range classes {
		if i == o {
			continue
		}
		if c.survives() {
			surviving++
		}
		if c.voter() && !c.isGoing() && !c.hasNoProcess() {
			mayVote++
		}
	}
	switch {
	case t.isGoing():
		return "the target is going, missing or not ours"
	case !t.outdated:
		return "the target is up to date"
	case d.Action == rollout.MoveLeader && !classes[int(d.Transfer.To)-1].survives():
		return "leadership goes to a member that does not serve or is going"
	}
	single := len(classes) == 1 && voters == 1
	if !down && !single && surviving < quorum {
		return fmt.Sprintf("a serving or unknown member goes, %d of %d voters stay, quorum %d", surviving, voters, quorum)
	}
	if !down && voters == 2 && t.voter() && t.answer == serves {
		return "one of two voters goes"
	}
	if down && t.voter() && serving > 0 && !t.hasNoProcess() && surviving < quorum && mayVote < quorum {
		return fmt.Sprintf("a process that may vote goes, %d others could vote, quorum %d", mayVote, quorum)
	}
	if down && serving == 0 && t.etcd == runsNotReady && !t.long && t.pod == present {
		anyLong := false
		for _, c := range classes {
			anyLong = anyLong || c.long
		}
		if !anyLong {
			return "a live process goes although quorum was lost only just now"
		}
	}
	if down {
		return ""
	}
	for i, c := range classes {
		switch {
		case i == o || c.learner || c.isGoing():
		case leader == o && !t.sick && c.outdated && c.answer == serves && i != leader:
			return "a healthy leader goes before a follower"
		case !c.outdated && c.hasNoProcess(), !c.outdated && c.long:
			return "a serving member goes although an updated one is failing"
		}
	}
	return ""
}

func TestTheClassesOfMembersAreWhatCanBeObserved(t *testing.T) {
	classes, raw := allClasses()
	t.Logf("%d of %d combinations of properties are consistent", len(classes), raw)
	if len(classes) < 70 || len(classes) > 110 {
		t.Errorf("%d classes: the filter lets through too much or too little", len(classes))
	}
	for _, c := range []class{
		{present, true, runsReady, serves, false, false, false},
		{present, true, runsReady, serves, false, true, false},
		{present, true, runsReady, silent, false, false, false},
		{present, true, runsReady, otherAnswers, false, false, false},
		{present, true, runsNotReady, silent, false, false, true},
		{present, false, crashLoops, silent, false, false, false},
		{present, true, runsReady, serves, true, false, false},
		{lostNode, true, runsReady, silent, false, false, false},
		{goingPod, false, runsReady, serves, false, false, false},
		{absent, false, noEtcd, silent, false, false, false},
		{foreign, false, runsReady, serves, false, false, false},
	} {
		if !c.consistent() {
			t.Errorf("%v must be among the classes", c)
		}
	}
	for _, c := range []class{
		{absent, false, noEtcd, serves, false, false, false},
		{present, true, crashLoops, serves, false, false, false},
		{lostNode, true, runsReady, serves, false, false, false},
		{absent, true, noEtcd, silent, false, false, false},
	} {
		if c.consistent() {
			t.Errorf("%v cannot be observed", c)
		}
	}
}

func TestNoCombinationOfMembersLeadsToAnUnsafeDecision(t *testing.T) {
	classes, _ := allClasses()
	policy := rollout.DefaultPolicy()
	// All arrangements of up to three; of more members all combinations, in rising and in
	// falling order of ordinals, which only break ties.
	sizes := map[int]bool{1: true, 2: true, 3: true, 4: false}
	if *exhaustive {
		sizes[5] = false
	}
	if testing.Short() || raceDetector {
		delete(sizes, 4)
	}
	for n, arrangements := range sizes {
		t.Run(fmt.Sprint(n, " members"), func(t *testing.T) {
			t.Parallel()
			checked := 0
			members := make([]class, n)
			reversed := make([]class, n)
			check := func(members []class) {
				for leader := -1; leader < n; leader++ {
					if leader >= 0 && !members[leader].survivesOrGoing() {
						continue
					}
					checked++
					d := rollout.Decide(stateOf(members, leader), policy)
					if problem := wrong(members, leader, d); problem != "" {
						t.Fatalf("%s\n  decision: %s %v: %s\n  leader: %d\n%s", problem, d.Action, d.Target, d.Reason(), leader, list(members))
					}
				}
			}
			var choose func(i, from int)
			choose = func(i, from int) {
				if i == n {
					check(members)
					if !arrangements {
						for k := range members {
							reversed[n-1-k] = members[k]
						}
						check(reversed)
					}
					return
				}
				for k := from; k < len(classes); k++ {
					members[i] = classes[k]
					if arrangements {
						choose(i+1, 0)
					} else {
						choose(i+1, k)
					}
				}
			}
			choose(0, 0)
			t.Logf("%d decisions", checked)
		})
	}
}

// survivesOrGoing: a member that answers as leader.
func (c class) survivesOrGoing() bool { return c.voter() && c.answer == serves }

func list(members []class) string {
	var b strings.Builder
	for i, c := range members {
		fmt.Fprintf(&b, "  etcd-%d: %v\n", i, c)
	}
	return b.String()
}

func TestAHealthyClusterOfAnySizeButTwoGetsThere(t *testing.T) {
	healthy := func(outdated bool) class { return class{present, outdated, runsReady, serves, false, false, false} }
	for _, n := range []int{1, 3, 4, 5, 6, 7} {
		for pattern := range 1 << n {
			for leader := range n {
				members := make([]class, n)
				for i := range members {
					members[i] = healthy(pattern&(1<<i) != 0)
				}
				steps := rollout.Predict(stateOf(members, leader), rollout.DefaultPolicy())
				if last := steps[len(steps)-1]; last.Action != rollout.Complete || len(steps) > 2*n+2 {
					t.Fatalf("%d members, leader %d: %d steps, the last is %s: %s\n%s", n, leader, len(steps), last.Action, last.Reason(), list(members))
				}
			}
		}
	}
}

func TestTwoVotersHoldByName(t *testing.T) {
	two := []class{{present, true, runsReady, serves, false, false, false}, {present, true, runsReady, serves, false, false, false}}
	d := rollout.Decide(stateOf(two, 0), rollout.DefaultPolicy())
	if d.Action != rollout.Hold || d.Guard != rollout.GuardQuorumFloor || !strings.Contains(d.Reason(), "2 voters need both") {
		t.Fatalf("got %s %s: %s", d.Action, d.Guard, d.Reason())
	}
}
