package rollout_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/quorate/quorate/pkg/rollout"
)

// The scenarios, steps and limitations of the documents that the rules come from, by the
// names they have there. Where the rules depart from a document, the test shows the harm
// that the departure prevents: the operator overrides the guard, and what the document
// asks for happens.

// follow applies decisions until one changes nothing, and returns them all. Every one in
// between must wait, and after every stage of a removal a quorum must serve.
func (w *world) follow(t *testing.T) (steps []string) {
	t.Helper()
	for range 20 {
		d := w.decide()
		steps = append(steps, say(d))
		if !d.Acts() {
			return steps
		}
		w.apply(t, d, func(stage string, d rollout.Decision) {
			if a := d.Assessment; d.Action.Name() != rollout.ActionWait || a.Serving < a.Quorum {
				t.Errorf("%s: %s, %d voters serve, quorum %d", stage, say(d), a.Serving, a.Quorum)
			}
		})
	}
	return steps
}

func wantSteps(t *testing.T, got []string, want ...string) {
	t.Helper()
	if !slices.Equal(got, want) {
		t.Errorf("decisions:\n got %s\nwant %s", strings.Join(got, ", "), strings.Join(want, ", "))
	}
}

// RollingUpdate begins with P-2, and one of three is left.
func TestDEP06Scenario1AnUpdateWithOneMemberNotParticipatingBeginsWithThatOne(t *testing.T) {
	for name, sick := range map[string]change{"its process is dead": dead(0), "its process runs": alive(0),
		"its node is lost": func(w *world) {
			w.with(noAnswer(0))
			w.pod(0).Ready = false
		}} {
		t.Run(name, func(t *testing.T) {
			w := cluster(3, leads(1), sick)
			wantSteps(
				t,
				w.follow(t),
				"delete etcd-0",
				"delete etcd-2",
				"move leadership from etcd-1 to etcd-0",
				"delete etcd-1",
				"complete",
			)
		})
	}
}

// P-1 fails while the successor of P-0 comes up. The document deletes P-1, and P-2, which
// has only lost its quorum, after it. Here P-2 is left running: it is needed for the quorum.
func TestDEP06Scenario2AMemberThatFailsInTheMidstOfAnUpdateIsReplacedAtOnceAndTheLastOneIsKept(t *testing.T) {
	w := cluster(3, leads(1), dead(0))
	d := w.decide()
	wantSteps(t, []string{say(d)}, "delete etcd-0")

	w.with(updated(0), starting(0), dead(1), alive(2))
	d = w.decide()
	wantSteps(t, []string{say(d)}, "delete etcd-1")

	w.with(updated(1), starting(1))
	d = w.decide()
	wantSteps(t, []string{say(d)}, "wait UpdatedPending")
	if failed, considered := failedGuards(d, "etcd-2"); !considered ||
		!slices.Contains(failed, rollout.GuardQuorumPatience) {
		t.Errorf("etcd-2 is kept by %v", failed)
	}

	// The two successors come up and need the third for nothing; it serves again as well.
	w.with(func(w *world) {
		for o := range 3 {
			*w.pod(o) = healthyPod(o, w.pod(o).Revision, 3)
			w.member(o).Probe = rollout.Probe{
				Read:   rollout.Answered,
				Status: &rollout.Status{Leader: id(1), Term: term + 1, Index: index, Applied: index},
			}
		}
	})
	wantSteps(t, w.follow(t), "delete etcd-2", "complete")
}

// With P-0 and P-1 gone for good the update must not halt, as RollingUpdate does at P-2:
// they are replaced one after the other. The document deletes P-2 too, which has only lost
// its quorum; here it is kept, for with it the successors are one.
func TestDEP06Scenario3APermanentLossOfQuorumDoesNotHaltTheUpdate(t *testing.T) {
	replaced := func() *world {
		w := cluster(3, dead(0, 1), alive(2))
		wantSteps(t, []string{say(w.decide())}, "delete etcd-1")
		w.with(updated(1), starting(1))
		wantSteps(t, []string{say(w.decide())}, "delete etcd-0")
		w.with(func(w *world) { *w.pod(0), *w.pod(1) = healthyPod(0, newRev, 2), healthyPod(1, newRev, 2) })
		return w.with(alive(0, 1), quorumLostFor(patience))
	}
	t.Run("the successors bring the quorum back", func(t *testing.T) {
		w := replaced()
		wantSteps(t, []string{say(w.decide())}, "wait UpdatedPending")
		healthy := cluster(3, leads(1))
		for o := range 3 {
			p := *healthy.pod(o)
			p.Revision = w.pod(o).Revision
			*w.pod(o), *w.member(o) = p, *healthy.member(o)
		}
		wantSteps(t, w.follow(t), "delete etcd-2", "complete")
	})
	t.Run(
		"they do not: once they have had their time, it is for the operator to give the last one to a revision that "+
			"has cured nothing",
		func(t *testing.T) {
			w := replaced().with(aged(rollout.PodSeen, patience, 0, 1), aged(rollout.UnsettledSeen, patience, 0, 1))
			d := w.decide()
			wantSteps(t, []string{say(d)}, "hold UpdatedFailing")
			if failed, _ := failedGuards(d, "etcd-2"); !slices.Equal(
				failed,
				[]rollout.Guard{rollout.GuardRevisionSuspect},
			) {
				t.Errorf("etcd-2 is kept by %v", failed)
			}
			wantSteps(t, []string{say(w.with(overriding(rollout.GuardRevisionSuspect)).decide())}, "delete etcd-2")
		},
	)
}

func TestDEP06PreferenceOrder(t *testing.T) {
	for _, tc := range []struct {
		name  string
		world *world
		steps []string
	}{
		{"1 before 2: sick sidecar and follower, then sick sidecar and leader, both by delete; 3: followers by " +
			"eviction",
			cluster(5, evict, leads(3), sick(1, 3)), []string{
				"delete etcd-1", "move leadership from etcd-3 to etcd-1", "delete etcd-3", "evict etcd-4",
				"evict etcd-2", "evict etcd-0", "complete"}},
		{"3 before 4: healthy followers, then the healthy leader, by eviction",
			cluster(5, evict, leads(4), sick(1)), []string{
				"delete etcd-1", "evict etcd-3", "evict etcd-2", "evict etcd-0",
				"move leadership from etcd-4 to etcd-0", "evict etcd-4", "complete"}},
		{"three sick sidecars do not block their own cure",
			cluster(3, evict, sick(0, 1, 2)), []string{
				"delete etcd-2", "delete etcd-1", "move leadership from etcd-0 to etcd-1", "delete etcd-0",
				"complete"}},
		{"two sick sidecars of three do not, either: the PodDisruptionBudget would",
			cluster(3, evict, sick(0, 2)), []string{
				"delete etcd-2", "move leadership from etcd-0 to etcd-2", "delete etcd-0", "evict etcd-1", "complete"}},
	} {
		t.Run(tc.name, func(t *testing.T) { wantSteps(t, tc.world.follow(t), tc.steps...) })
	}
}

func TestDEP07TheStepsOfACycle(t *testing.T) {
	for _, tc := range []struct {
		name  string
		world *world
		want  string
	}{
		{"step 1: all pods are up to date", cluster(3, allUpdated()), "complete"},
		{"step 2, first: dead", cluster(7, dead(4), starting(5), alive(6)), "delete etcd-4"},
		{"step 2, first: dead, of every kind",
			cluster(7, waitingFor("ImagePullBackOff", 4), starting(5), alive(6)), "delete etcd-4"},
		{"step 2, second: transient or starting", cluster(7, starting(5), alive(6)), "delete etcd-5"},
		{"step 2, third: alive but not ready", cluster(7, alive(6)), "delete etcd-6"},
		{"step 2 does not wait for the one replaced before",
			cluster(7, updated(4), starting(4), dead(6)), "delete etcd-6"},
		{"step 2 waits before a process that runs gets a revision of which nothing has settled",
			cluster(7, updated(4), starting(4), alive(6)), "wait UpdatedPending"},
		{"step 2 never selects what is updated", cluster(7, updated(4), dead(4)), "hold UpdatedFailing"},
		{"step 3: an updated pod that does not participate yet",
			cluster(3, updated(2), starting(2)), "wait UpdatedPending"},
		{"step 4, first: a follower", cluster(3, leads(2)), "delete etcd-1"},
		{"step 4, second: the leader, which hands over first",
			cluster(3, leads(2), updated(0, 1)), "move leadership from etcd-2 to etcd-0"},
		{"a single member is deleted", cluster(1), "delete etcd-0"},
	} {
		t.Run(tc.name, func(t *testing.T) { wantSteps(t, []string{say(tc.world.decide())}, tc.want) })
	}
}

// m-0 has become the leader, the member leases still name m-1. Live roles do not lag.
func TestDEP07TheKnownLimitationOfMemberLeasesDoesNotExistWithLiveRoles(t *testing.T) {
	w := cluster(3, updated(2), leads(1))
	wantSteps(t, []string{say(w.decide())}, "delete etcd-0")
	newTerm := func(ordinals ...int) change {
		return each(ordinals, func(w *world, o int) {
			st := w.member(o).Probe.Status
			st.Leader, st.Term = id(0), term+1
		})
	}
	// T1: a member that has not heard of the election yet misleads nobody.
	w.with(newTerm(0, 2))
	wantSteps(t, []string{say(w.decide())}, "delete etcd-1")
	// In the midst of it, when only one has seen the new term, nobody goes.
	w = cluster(
		3,
		updated(2),
		leads(1),
		func(w *world) { w.member(2).Probe.Status.Leader, w.member(2).Probe.Status.Term = 0, term+1 },
	)
	wantSteps(t, []string{say(w.decide())}, "wait LeaderLast")
}

// The voter etcd-2 has a broken client listener: it looks dead to both witnesses, and votes. DEP-07
// step 2 deletes it.
func TestDEP07DepartureMayVoteKeepsTheMemberThatMakesTheQuorum(t *testing.T) {
	for _, tc := range []struct {
		name     string
		override change
		steps    []string
		voting   int
	}{
		{"it is kept, and two of three vote", overriding(), []string{"delete etcd-1", "wait UpdatedPending"}, 2},
		{"overridden it goes, and one of three votes: quorum is lost",
			overriding(rollout.GuardMayVote, rollout.GuardRevisionSuspect),
			[]string{"delete etcd-1", "delete etcd-2", "wait UpdatedPending"}, 1},
	} {
		t.Run(tc.name, func(t *testing.T) {
			w := cluster(3, dead(1), alive(2), tc.override)
			voting := map[string]bool{"etcd-0": true, "etcd-2": true}
			var steps []string
			for range 5 {
				d := w.decide()
				steps = append(steps, say(d))
				if !d.Acts() {
					break
				}
				delete(voting, d.Target().Pod)
				if d.Target().Ordinal == 1 {
					w.with(updated(1), starting(1))
				} else {
					w.with(terminating(d.Target().Ordinal))
				}
			}
			wantSteps(t, steps, tc.steps...)
			if len(voting) != tc.voting {
				t.Errorf("%d members vote, want %d of 3", len(voting), tc.voting)
			}
		})
	}
}

// The members lose sight of each other for a moment. DEP-07 step 2 recreates them all
// while it lasts, "third priority" or not.
func TestDEP07DepartureQuorumPatienceLetsABlipEndByItself(t *testing.T) {
	const blip = 3 // cycles
	for _, tc := range []struct {
		name     string
		override change
		running  int
	}{
		{"every process outlives the blip and serves when it ends", overriding(), 3},
		{"overridden none is left: the blip has become an outage",
			overriding(rollout.GuardQuorumPatience, rollout.GuardRevisionSuspect), 0},
	} {
		t.Run(tc.name, func(t *testing.T) {
			w := cluster(3, alive(0, 1, 2), tc.override)
			running := map[int]bool{0: true, 1: true, 2: true}
			for range blip {
				if d := w.decide(); d.Acts() {
					delete(running, d.Target().Ordinal)
					w.with(terminating(d.Target().Ordinal))
				}
			}
			if len(running) != tc.running {
				t.Errorf("%d processes run at the end of the blip, want %d", len(running), tc.running)
			}
		})
	}
}

// The new revision is broken, which etcd-2 has shown; then the node of etcd-1 reboots.
// DEP-07 step 2 recreates etcd-1, on the broken revision.
func TestDEP07DepartureRevisionSuspectKeepsWhatComesBackByItself(t *testing.T) {
	for _, tc := range []struct {
		name     string
		override change
		step     string
		serving  int
	}{
		{"it comes back on the old revision, and with etcd-0 it is a quorum", overriding(), "hold UpdatedFailing", 2},
		{"overridden it fails like etcd-2, and no quorum comes back",
			overriding(rollout.GuardRevisionSuspect), "delete etcd-1", 0},
	} {
		t.Run(tc.name, func(t *testing.T) {
			w := cluster(3, updated(2), dead(2), alive(0), starting(1), tc.override)
			d := w.decide()
			wantSteps(t, []string{say(d)}, tc.step)
			// The world goes on: what is on the new revision fails, what is on the old one runs.
			if d.Acts() {
				w.with(updated(1), dead(1))
			} else {
				healthy := cluster(3)
				for o := range 2 {
					*w.pod(o), *w.member(o) = *healthy.pod(o), *healthy.member(o)
				}
			}
			if a := w.decide().Assessment; a.Serving != tc.serving || (a.Serving >= a.Quorum) != (tc.serving == 2) {
				t.Errorf("%d voters serve, quorum %d, want %d", a.Serving, a.Quorum, tc.serving)
			}
		})
	}
}

// A percentage is of the replicas and rounded down. What comes to nothing is one, as the
// StatefulSet controller has it: with none nothing could ever be replaced.
func TestKEP961MaxUnavailableIsRoundedDownAndAtLeastOne(t *testing.T) {
	for _, tc := range []struct {
		amount string
		of     map[int]int // replicas to members
	}{
		{"1", map[int]int{1: 1, 3: 1, 7: 1}},
		{"2", map[int]int{3: 2, 5: 2}},
		{"1%", map[int]int{1: 1, 5: 1, 100: 1}},
		{"33%", map[int]int{3: 1, 7: 2}},
		{"40%", map[int]int{3: 1, 5: 2, 7: 2}},
		{"50%", map[int]int{1: 1, 3: 1, 5: 2, 7: 3}},
		{"99%", map[int]int{5: 4, 7: 6}},
		{"100%", map[int]int{3: 3, 7: 7}},
	} {
		a, err := rollout.ParseAmount(tc.amount)
		if err != nil || a.String() != tc.amount {
			t.Fatalf("%s is %v (%v)", tc.amount, a, err)
		}
		for replicas, want := range tc.of {
			if got := a.Of(replicas); got != want {
				t.Errorf("%s of %d is %d, want %d", tc.amount, replicas, got, want)
			}
		}
	}
	// The policy's and the control's are read alike, and the control wins.
	percent := func(n int) rollout.Amount { return rollout.Amount{Number: n, Percent: true} }
	of := func(w *world) string { return detailOf(w.decide(), "etcd-2", rollout.GuardUnavailableBudget) }
	w := cluster(5, updated(4, 3), sick(3), func(w *world) { w.policy.MaxUnavailable = percent(50) })
	if got, want := of(w), "1 of 5 members unavailable, 2 with this one, at most 2 allowed"; got != want {
		t.Errorf("policy of 50%%: %s, want %s", got, want)
	}
	control := percent(39)
	w.with(func(w *world) { w.state.Controls.MaxUnavailable = &control })
	if got, want := of(w), "1 of 5 members unavailable, 2 with this one, at most 1 allowed"; got != want {
		t.Errorf("control of 39%%: %s, want %s", got, want)
	}
}
