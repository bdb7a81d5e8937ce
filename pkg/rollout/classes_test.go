package rollout_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/quorate/quorate/pkg/rollout"
)

// class is what one ordinal can be like.
type class struct {
	pod    podKind
	etcd   etcdKind
	answer answerKind
	role   roleKind
	// outdated: of another revision than the StatefulSet's update revision.
	outdated bool
	// sick: the sidecar is not ready.
	sick bool
	// lags: the member serves and is further behind than a survivor may be.
	lags bool
	// long: whatever is wrong has lasted for longer than every patience. Where nothing is wrong with an updated pod:
	// it has been Ready for so long, or its sidecar has said that it is there.
	long bool
	// empty: the pod has never been ready, so nothing proves that it holds data.
	empty bool
	// leaving: others are about to take the pod. It is no class of its own: see [environment].
	leaving bool
}

type podKind uint8

const (
	present podKind = iota
	goingPod
	absent
	lostNode
	foreign  // a pod of the right name that belongs to somebody else
	nameless // a pod without a container of the name that etcd's is expected to have
)

type etcdKind uint8

const (
	runsReady etcdKind = iota
	runsNotReady
	crashLoops
	isStarting
	hasExited
	hasBeenExited // for longer than deadAfter, and for less than any patience
	noEtcd
)

type answerKind uint8

const (
	serves answerKind = iota
	silent
	otherAnswers
	// beforePause: the answer to its read may be from before a pause, because others answer
	// at a later term. It is no class of its own: see [resolve].
	beforePause
)

type roleKind uint8

const (
	isVoter roleKind = iota
	isLearner
	unlisted // the member list does not name it
)

// observable is false for what contradicts itself.
func (c class) observable() bool {
	switch {
	case (c.pod == absent || c.pod == nameless) != (c.etcd == noEtcd):
		return false // Containers are reported of pods that exist, and only of those.
	case c.pod == nameless && (c.sick || c.long || c.empty):
		return false // It is held on at once.
	case c.pod == absent && (c.outdated || c.sick || c.long || c.empty):
		return false // There is no revision, no sidecar, nothing to have an age.
	case c.answer == serves && (c.etcd == crashLoops || c.etcd == isStarting || c.exited()):
		return false // Only a process that runs answers. (One may outlive its pod object.)
	case c.etcd == hasBeenExited && c.long:
		return false // That is what has exited for long.
	case c.pod == lostNode && (c.etcd != runsReady || c.sick):
		return false // The statuses of a lost node are those of good days.
	case c.lags && c.answer != serves:
		return false // How far it is behind is known from its own answer.
	case c.role == unlisted && c.answer != silent:
		return false // Only members of the list are asked.
	case c.empty && c.etcd == runsReady && !c.sick:
		return false // All its containers are ready, so it has been.
	}
	return true
}

// representative returns the class that stands for this one: no rule can tell the two
// apart. Why, is said case by case; that it is true is shown by
// [TestNoRuleTellsAClassFromItsRepresentative].
func (c class) representative() class {
	if c.pod == foreign || c.pod == nameless {
		// One such pod holds everything, whatever it is like.
		return class{pod: foreign}
	}
	if c.role != isVoter && (c.outdated || !c.long) {
		c.lags = false // Only the lag of voters is counted, but an updated learner that catches up does not fail.
	}
	switch {
	case c.role == unlisted:
		// Of what runs, and is not on the list, it says whether it may vote in a cluster of its own.
		c.empty = c.empty && !c.isGoing() && runs(c)
	case c.role == isLearner, c.answer == serves, !c.outdated:
		// Only the data of voters is counted. What serves has data; what is updated and does not is taken to have
		// none.
		c.empty = false
	}
	if c.isGoing() {
		return c.representativeOfGoing()
	}
	if c.pod == lostNode && (c.answer == serves || c.answer == otherAnswers && !c.voter()) {
		// The node controller's word counts only beside a failed probe, and where it matters
		// whether a process can be known to vote. What is left is a pod that is not Ready.
		c.pod, c.etcd = present, runsNotReady
	}
	switch {
	case c.etcd == hasExited && !c.long:
		c.etcd = isStarting // For a moment it counts as that, and then as dead.
	case c.etcd == hasExited, c.etcd == hasBeenExited && (!c.outdated || c.answer != silent):
		// Whether its kubelet backs off from it matters only where it may come back.
		c.etcd = crashLoops
	}
	switch {
	case c.answer == serves:
		return c.representativeOfServing()
	case c.outdated:
		return c.representativeOfOutdated()
	}
	return c.representativeOfUpdated()
}

// representativeOfGoing: of what is going only the witness of its member counts, and
// whether a process can be left. It is the same with the pod terminating or gone, except
// that of a member the list does not name something may still run while the pod exists.
func (c class) representativeOfGoing() class {
	switch {
	case c.role == unlisted && c.pod == goingPod:
		return class{pod: goingPod, etcd: runsNotReady, answer: silent, role: unlisted}
	case c.answer == serves:
		return class{pod: goingPod, etcd: runsNotReady, role: c.role}
	case c.hasNoProcess() && c.pod == goingPod && c.role == isVoter:
		return class{pod: goingPod, etcd: crashLoops, answer: silent}
	case c.hasNoProcess() && c.pod == goingPod:
		// That its container is dead proves that the coordinator is not cut off, and so
		// does an answer; a learner counts for nothing else.
		return class{pod: goingPod, etcd: runsNotReady, role: c.role}
	}
	return class{pod: absent, etcd: noEtcd, answer: silent, role: c.role}
}

func (c class) representativeOfServing() class {
	if c.sick {
		c.etcd = runsReady // The sidecar alone makes the pod unready.
	}
	if c.outdated {
		c.long = false // Nobody asks for how long.
	}
	return c
}

// representativeOfOutdated: it does not serve. If it is Down, the container says what it
// is; if it is Unknown, whether it is dead and whether the pod is Ready.
func (c class) representativeOfOutdated() class {
	if c.answer == otherAnswers {
		c.long = false // No patience of a rule is for what is Unknown.
		if c.etcd == isStarting && !c.voter() || c.etcd == runsReady && c.sick {
			c.etcd = runsNotReady // The pod is not Ready, that is all.
		}
		c.sick = false // For the preference it must serve.
		return c
	}
	if c.etcd == runsReady || c.etcd == runsNotReady {
		c.long = false // A process that runs is never given up for its age alone.
	}
	if c.etcd != runsReady {
		c.sick = false // What is Down goes before any thought of sidecars.
	}
	return c
}

// representativeOfUpdated: it does not serve, so it has not settled. It is no candidate;
// what counts is whether it fails, and what its pod says of the coordinator's own eyes.
func (c class) representativeOfUpdated() class {
	if c.etcd == crashLoops {
		c.long = false // It fails at once.
	}
	if c.etcd == isStarting && c.role == isLearner {
		c.etcd = runsNotReady // Of others it matters whether a process can vote.
	}
	if c.sick && c.etcd == runsReady && c.answer == silent {
		// The kubelet contradicts the failed probe, of a pod that is not Ready: as of a lost
		// node, only that the process of a voter can be known to run.
		if c.voter() || c.empty {
			return c // (What is on a lost node was Ready.)
		}
		c.pod = lostNode
	}
	if c.sick && c.etcd == runsReady && c.answer == otherAnswers {
		c.etcd = runsNotReady
	}
	if c.etcd != runsReady && (c.etcd != runsNotReady || !c.voter()) {
		// Both witnesses say Down, or one says nothing: unavailable either way. Only of a voter
		// whose process runs it matters, because then it may vote.
		c.answer = silent
	}
	c.sick = false
	return c
}

func (c class) String() string {
	words := []string{
		[]string{"", "terminating", "missing", "on a lost node", "of another owner", "without etcd's container"}[c.pod],
		map[bool]string{true: "outdated", false: "updated"}[c.outdated],
		[]string{"ready", "not ready", "crash-looping", "starting", "exited", "exited a while ago", ""}[c.etcd],
		[]string{"serves", "silent", "another answers", "answers as before a pause"}[c.answer],
		[]string{"", "learner", "unlisted"}[c.role],
	}
	for _, p := range []struct {
		is   bool
		word string
	}{{c.sick, "sick sidecar"}, {c.lags, "lags"}, {c.long, "for long"}, {c.empty, "never ready"}} {
		if p.is {
			words = append(words, p.word)
		}
	}
	return strings.Join(strings.Fields(strings.Join(words, " ")), " ")
}

// observableClasses are all combinations of properties that can be observed.
func observableClasses() (classes []class) {
	bools := []bool{false, true}
	for pod := present; pod <= nameless; pod++ {
		for etcd := runsReady; etcd <= noEtcd; etcd++ {
			for answer := serves; answer <= otherAnswers; answer++ {
				for role := isVoter; role <= unlisted; role++ {
					for bits := range 1 << 5 {
						is := func(bit int) bool { return bools[bits>>bit&1] }
						c := class{pod, etcd, answer, role, is(0), is(1), is(2), is(3), is(4), false}
						if c.observable() {
							classes = append(classes, c)
						}
					}
				}
			}
		}
	}
	return classes
}

// allClasses are those that the rules can tell apart. Whether a pod was ever ready counts
// where its data dies with it, or where it is not on the list; without withData it is left out.
func allClasses(withData bool) (classes []class) {
	for _, c := range observableClasses() {
		if r := c.representative(); c == r && (withData || !c.empty) {
			classes = append(classes, c)
		}
	}
	return classes
}

// podClasses are those that can be told apart by the pods alone, which are all there is
// without a member list. (A container that has exited speaks for itself only then, so that
// no class stands for another.)
func podClasses() (classes []class) {
	for _, c := range observableClasses() {
		if c.role == unlisted && !c.empty {
			classes = append(classes, c)
		}
	}
	return classes
}

// pausedClasses are voters of whom some were paused, one of each kind that is told apart.
func pausedClasses() []class {
	classes := votersOf(allClasses(false))
	for _, c := range votersOf(allClasses(false)) {
		if c.answer == serves && !c.lags && c.pod != foreign {
			c.answer = beforePause
			classes = append(classes, c)
		}
	}
	return classes
}

// resolve says what a class comes to beside the others: an answer from before a pause proves
// nothing where anybody answers at a later term, and is as good as any where nobody does.
func (c class) resolve(laterTerm bool) class {
	switch {
	case c.answer != beforePause:
	case laterTerm:
		c.answer = otherAnswers
	default:
		c.answer = serves
	}
	return c
}

func votersOf(classes []class) []class {
	return slices.DeleteFunc(slices.Clone(classes), func(c class) bool { return c.role != isVoter })
}

// What follows from a class is reckoned here once more, not with the code under test.

func (c class) voter() bool { return c.role == isVoter }

func (c class) servingVoter() bool { return c.voter() && c.answer == serves }

func (c class) isGoing() bool { return c.pod == goingPod || c.pod == absent }

// available: a PodDisruptionBudget counts it, whatever its member says to us.
func (c class) available() bool { return c.podReady() }

// yields: a voter that is there, and that others are about to take.
func (c class) yields() bool { return c.leaving && c.voter() && !c.isGoing() }

// survives: a serving voter that stays.
func (c class) survives() bool { return c.servingVoter() && !c.isGoing() && !c.leaving }

// votes: a voter that serves and stays, or that is Down while its process is known to run.
func (c class) votes() bool {
	return c.voter() && !c.isGoing() && !c.leaving &&
		(c.answer == serves || c.pod == present && c.etcd == runsNotReady && c.answer == silent)
}

// hasNoProcess: nothing of it can vote.
func (c class) hasNoProcess() bool {
	return c.pod == absent || c.etcd == crashLoops || c.etcd == hasBeenExited || c.etcd == hasExited && c.long
}

func (c class) exited() bool { return c.etcd == hasExited || c.etcd == hasBeenExited }

// comesBack: it is not given up. Its process runs, or is being started, or has ended without
// that its kubelet backs off, as on a node that reboots.
func (c class) comesBack() bool {
	return runs(c) || !c.long && (c.etcd == isStarting || c.exited())
}

// runs: its process does, as far as the kubelet knows.
func runs(c class) bool { return c.etcd == runsReady || c.etcd == runsNotReady }

func (c class) podReady() bool { return c.pod == present && c.etcd == runsReady && !c.sick }

func (c class) settled() bool {
	return c.wellUpdated() && c.long
}

// wellUpdated: of an updated pod everything is seen that a settled one needs, for a moment or for long.
func (c class) wellUpdated() bool {
	return !c.outdated && c.podReady() && c.answer == serves && c.voter() && !c.lags
}

// announced are the UIDs of those settled pods that have settled by the word of their sidecars. The others have by the
// time for which they have been Ready.
func announced(classes []class, ordinals int) (uids []string) {
	for _, c := range classes {
		for o := range ordinals {
			if c.resolve(false).settled() && o%2 == 1 {
				uids = append(uids, c.uid(o))
			}
		}
	}
	return uids
}

// catchesUp: its leader, if there is one, has still to give it much of the log.
func (c class) catchesUp() bool {
	return c.lags && c.answer == serves && runs(c) && !c.sick && c.role != unlisted
}

// failing: an updated one that will not settle by itself, unless it catches up.
func (c class) failing() bool {
	return !c.isGoing() && !c.outdated && !c.settled() && (c.hasNoProcess() || c.long)
}

func (c class) unavailable() bool {
	if c.role == isLearner {
		return !c.outdated && !c.isGoing()
	}
	return c.isGoing() || c.yields() || c.answer != serves || !c.outdated && !c.settled()
}

// holdsData: a voter whose data is certain to be there, in its pod.
func (c class) holdsData() bool {
	return c.voter() && !c.isGoing() && !c.leaving && (c.answer == serves || c.outdated && !c.empty)
}

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

// ages are those of every pod of every class that has lasted long. Ages of what is not
// there are never asked for, so that one map does for all worlds.
func ages(classes []class, ordinals int, quorumLost time.Duration) map[rollout.Sighting]time.Duration {
	ages := map[rollout.Sighting]time.Duration{{Condition: rollout.QuorumLostSeen}: quorumLost}
	for _, c := range classes {
		for o := range ordinals {
			ages[rollout.Sighting{UID: c.uid(o), Condition: rollout.CordonedSeen}] = long
			for _, condition := range []rollout.Condition{rollout.UnsettledSeen, rollout.TerminatedSeen,
				rollout.NotRunningSeen, rollout.PodSeen} {
				if c.long {
					ages[rollout.Sighting{UID: c.uid(o), Condition: condition}] = long
				}
			}
			if c.resolve(false).settled() && o%2 == 0 {
				ages[rollout.Sighting{UID: c.uid(o), Condition: rollout.ReadySeen}] = 2 * time.Second
			}
			if c.etcd == hasBeenExited {
				ages[rollout.Sighting{UID: c.uid(o),
					Condition: rollout.TerminatedSeen}] = rollout.DefaultPolicy().DeadAfter
			}
		}
	}
	return ages
}

const long = time.Hour

func (c class) uid(ordinal int) string { return fmt.Sprint(ordinal, c) }

// member returns the ordinal's entry of the member list.
func (c class) member(ordinal int, leader uint64) rollout.Member {
	m := rollout.Member{ID: id(ordinal), Name: name(ordinal), Learner: c.role == isLearner}
	switch c.answer {
	case serves:
		applied := uint64(index)
		if c.lags {
			applied = 0
		}
		m.Probe = rollout.Probe{
			Read:     rollout.Answered,
			ReadTerm: term,
			Status:   &rollout.Status{Leader: leader, Term: term, Index: index, Applied: applied, Version: c.version()},
		}
		if m.Learner {
			m.Probe.ReadTerm++ // Its reads are not linearizable: their term says nothing of others.
		}
	case beforePause:
		m.Probe = rollout.Probe{
			Read:     rollout.Answered,
			ReadTerm: term - 1,
			Status: &rollout.Status{Leader: leader, Term: term - 1, Index: index, Applied: index,
				Version: c.version()},
		}
	case silent:
		m.Probe = rollout.Probe{Read: rollout.Failed}
	case otherAnswers:
		m.Probe = rollout.Probe{Read: rollout.WrongMember}
	}
	return m
}

// version is what the member tells of etcd.
func (c class) version() string {
	if c.outdated {
		return "3.5.35"
	}
	return "3.6.16"
}

// tells is true for a member that tells its version.
func (c class) tells() bool { return c.answer == serves || c.answer == beforePause }

// podOf returns the ordinal's pod; a class that is absent has none.
func (c class) podOf(ordinal int) rollout.Pod {
	revision := newRev
	if c.outdated {
		revision = oldRev
	}
	p := rollout.Pod{
		Name: name(ordinal), UID: c.uid(ordinal), ResourceVersion: "1", Ordinal: ordinal, MemberName: name(ordinal),
		Revision: revision, Owned: c.pod != foreign, Terminating: c.pod == goingPod, Initialized: true,
		NeverReady: c.empty, NoEtcdContainer: c.pod == nameless,
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
	case hasExited, hasBeenExited:
		p.Etcd = rollout.Container{State: rollout.ContainerTerminated, Reason: "Error"}
	case noEtcd:
	}
	p.ContainersReady = p.Etcd.Ready && !c.sick
	p.Ready = p.ContainersReady && c.pod != lostNode || c.pod == nameless // All that it declares is ready.
	return p
}

func TestTheClassesOfMembersAreWhatCanBeObserved(t *testing.T) {
	observable, told := observableClasses(), allClasses(false)
	t.Logf(
		"%d combinations of properties can be observed, the rules tell %d apart (%d of voters), with the data in the "+
			"pods %d",
		len(observable),
		len(told),
		len(votersOf(told)),
		len(allClasses(true)),
	)
	if len(told) < 70 || len(told) > 110 {
		t.Errorf("%d classes: the filter lets through too much or too little", len(told))
	}
	for _, c := range []class{
		{outdated: true},
		{outdated: true, sick: true},
		{outdated: true, lags: true},
		{outdated: true, answer: silent},
		{outdated: true, answer: otherAnswers},
		{outdated: true, etcd: runsNotReady, answer: silent},
		{outdated: true, etcd: isStarting, answer: silent, long: true},
		{outdated: true, etcd: hasBeenExited, answer: silent},
		{etcd: crashLoops, answer: silent},
		{},
		{long: true},
		{outdated: true, role: isLearner},
		{outdated: true, role: unlisted, answer: silent},
		{pod: lostNode, outdated: true, answer: silent},
		{pod: goingPod, etcd: runsNotReady},
		{pod: absent, etcd: noEtcd, answer: silent},
		{pod: foreign},
	} {
		if !slices.Contains(told, c) {
			t.Errorf("%v must be among the classes", c)
		}
	}
	for _, c := range []class{
		{pod: absent},
		{pod: absent, etcd: noEtcd, answer: silent, outdated: true},
		{etcd: noEtcd, answer: silent},
		{etcd: crashLoops},
		{etcd: isStarting, outdated: true},
		{pod: lostNode, etcd: runsNotReady, answer: silent},
		{pod: lostNode, answer: silent, sick: true},
		{answer: silent, lags: true},
		{role: unlisted},
		{empty: true},
	} {
		if c.observable() {
			t.Errorf("%v cannot be observed", c)
		}
	}
	for _, c := range observable {
		if r := c.representative(); !r.observable() || r.representative() != r {
			t.Errorf("%v is represented by %v, which cannot stand for it", c, r)
		}
	}
}
