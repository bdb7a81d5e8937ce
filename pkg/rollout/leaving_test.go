package rollout_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/quorate/quorate/pkg/rollout"
)

const leavingPatience = 10 * time.Minute // DefaultPolicy().LeavingPatience

// While others take a member, Quorate takes none that serves.
func TestNobodyIsTakenBesideWhatOthersTake(t *testing.T) {
	roomy := func(changes ...change) *world { // Two have settled, one of them leads, and the budget would allow more.
		return cluster(7, updated(0, 6), maxUnavailable(3)).with(changes...)
	}
	for _, tc := range []struct {
		name  string
		world *world
		want  string
	}{
		{"a member that has the condition DisruptionTarget, or whose node evicts it, holds the others",
			roomy(evicted(1)), "wait OthersLeaving"},
		{"also one that is up to date", roomy(evicted(6)), "wait OthersLeaving"},
		{"and it is not taken itself: it comes back with the new revision anyway",
			cluster(1, evicted(0)), "wait OthersLeaving"},
		{"a pod that terminates by others' hand holds the others", roomy(taken(terminating(1))), "wait Terminating"},
		{"so does one that is missing by others' hand", roomy(taken(missing(1))), "wait Terminating"},
		{"what terminates by our own hand does not", roomy(terminating(1)), "delete etcd-5"},
		{"nor what is missing by our own hand", roomy(missing(1)), "delete etcd-5"},
		{"what is away by others' hand holds the others for leaving-patience",
			roomy(taken(missing(1)), away(leavingPatience-1, 1)), "wait Terminating"},
		{"and no longer, because it may not come back by itself; it still counts as unavailable",
			roomy(taken(missing(1)), away(leavingPatience, 1)), "delete etcd-5"},
		{"it has as long as a new pod to come up, however short that is",
			roomy(taken(missing(1)), away(rollout.DefaultPolicy().SettleTimeout-1, 1), func(w *world) {
				w.policy.LeavingPatience = 0
			}), "wait Terminating"},
		{"so does what terminates for ever", roomy(taken(terminating(1)), away(leavingPatience, 1)), "delete etcd-5"},
		{"with a budget of one that changes nothing",
			cluster(7, updated(6), taken(missing(1)), away(leavingPatience, 1)), "wait Terminating"},
		{"a pod that cannot come back before a lower one is cured does not keep it from its cure",
			cluster(5, updated(2, 3), maxUnavailable(2), ordered(), sick(1), taken(missing(4)),
				away(leavingPatience, 4)),
			"delete etcd-1"},
		{"what is being scaled away holds them too", roomy(updated(5), replicas(6)), "wait OthersLeaving"},
		{"and no longer, where it does not go", roomy(updated(5), replicas(6), away(leavingPatience, 6)),
			"delete etcd-4"},
		{"the mark that an eviction of our own has left does not: it had no effect",
			roomy(evicted(1), ourEviction(1)), "delete etcd-5"},
		{"but what their nodes say of it does", roomy(ourEviction(1), func(w *world) {
			w.pod(1).Leaving = "node node-1 has the taint x:NoExecute"
		}), "wait OthersLeaving"},
		{"and that it goes", roomy(evicted(1), ourEviction(1), taken(terminating(1))), "wait Terminating"},
		{"a learner that leaves does not: it is not part of the quorum",
			roomy(learner(1), evicted(1)), "delete etcd-5"},
		{"what is down is replaced all the same", roomy(evicted(1), dead(2)), "delete etcd-2"},
		{"a node that is cordoned holds the others", roomy(cordoned(0, 1)), "wait OthersLeaving"},
		{"for leaving-patience", roomy(cordoned(leavingPatience-1, 1)), "wait OthersLeaving"},
		{"and no longer", roomy(cordoned(leavingPatience, 1)), "delete etcd-5"},
		{"so does one that a drainer has marked", roomy(cordoned(0, 1), drained(1)), "wait OthersLeaving"},
		{"and no longer than a cordon: a drainer that is stuck leaves its mark there",
			roomy(cordoned(leavingPatience, 1), drained(1)), "delete etcd-5"},
		{"also where all nodes are cordoned",
			roomy(cordoned(leavingPatience, 0, 1, 2, 3, 4, 5, 6)), "delete etcd-5"},
		{"a node that cannot be read holds the others, because it may be cordoned",
			roomy(unreadNodes(0, 1)), "wait OthersLeaving"},
		{"for as long as a cordon", roomy(unreadNodes(leavingPatience-1, 1)), "wait OthersLeaving"},
		{"and no longer", roomy(unreadNodes(leavingPatience, 1)), "delete etcd-5"},
		{"that does not hold a cure, however many it is",
			roomy(unreadNodes(0, 0, 1, 2, 3, 4, 5, 6), dead(2), refuses(2)),
			"delete etcd-2"},
		{"nor that of a process that may vote",
			cluster(5, unreadNodes(0, 0, 1, 2, 3, 4), unknown(0), alive(3, 4)), "delete etcd-4"},
		{"a cordon that has been waited for does not shorten the wait for another one",
			roomy(cordoned(leavingPatience, 1), cordoned(0, 2)), "wait OthersLeaving"},
		{"a cordon does not make others' eviction count for less",
			roomy(cordoned(leavingPatience, 1), evicted(1)), "wait OthersLeaving"},
		{"an operator who overrides the guard lets the others go",
			roomy(evicted(1), overriding(rollout.GuardOthersLeaving)), "delete etcd-5"},
		{"and counts on the one that leaves",
			cluster(3, evicted(1), overriding(rollout.GuardOthersLeaving)), "delete etcd-2"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if d := tc.world.decide(); say(d) != tc.want {
				t.Errorf("got %s, want %s: %s", say(d), tc.want, d.Reason())
			}
		})
	}
}

// Once the cordon has lasted for long, the pods on cordoned nodes go after all others: whoever
// comes back finds a node.
func TestPodsOnCordonedNodesGoLast(t *testing.T) {
	for _, tc := range []struct {
		name  string
		world *world
		steps []string
	}{
		{"a follower after the other", cluster(3, cordoned(leavingPatience, 2)), []string{
			"delete etcd-1", "move leadership from etcd-0 to etcd-1", "delete etcd-0", "delete etcd-2", "complete"}},
		{"the leader first, where only its node is not cordoned, and it hands over",
			cluster(3, cordoned(leavingPatience, 1, 2)), []string{
				"move leadership from etcd-0 to etcd-1", "delete etcd-0", "move leadership from etcd-1 to etcd-0",
				"delete etcd-2", "delete etcd-1", "complete"}},
		{"a sick sidecar too", cluster(5, updated(3, 4), sick(2), cordoned(leavingPatience, 2)), []string{
			"delete etcd-1", "move leadership from etcd-0 to etcd-1", "delete etcd-0", "delete etcd-2", "complete"}},
		{"but not where the others cannot go before it", cluster(3, sick(2), cordoned(leavingPatience, 2)), []string{
			"delete etcd-2", "delete etcd-1", "move leadership from etcd-0 to etcd-1", "delete etcd-0", "complete"}},
		{"in the usual order where all are cordoned, and leadership goes to the first that finds another node",
			cluster(3, cordoned(leavingPatience, 0, 1, 2)), []string{
				"delete etcd-2", "move leadership from etcd-0 to etcd-2", "delete etcd-1", "delete etcd-0",
				"complete"}},
		{"leadership goes to a node that is not cordoned", cluster(3, updated(1, 2), cordoned(leavingPatience, 1)),
			[]string{"move leadership from etcd-0 to etcd-2", "delete etcd-0", "complete"}},
		{"what is down goes first all the same", cluster(3, dead(2), cordoned(leavingPatience, 2)), []string{
			"delete etcd-2", "delete etcd-1", "move leadership from etcd-0 to etcd-1", "delete etcd-0", "complete"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			var steps []string
			for range 20 {
				d := tc.world.decide()
				steps = append(steps, say(d))
				if !d.Acts() {
					break
				}
				tc.world.apply(t, d, func(string, rollout.Decision) {})
			}
			if !slices.Equal(steps, tc.steps) {
				t.Errorf("decisions:\n got %s\nwant %s", strings.Join(steps, ", "), strings.Join(tc.steps, ", "))
			}
		})
	}
}

// Leadership leaves before its member does, during a rollout and between two.
func TestLeadershipMakesWay(t *testing.T) {
	done := func(changes ...change) *world { return cluster(3, allUpdated()).with(changes...) }
	failed := func(n int) change { return func(w *world) { w.state.FailedTransfers[id(0)] = n } }
	for _, tc := range []struct {
		name  string
		world *world
		want  string
	}{
		{"from a leader that is about to be evicted", done(evicted(0)), "move leadership from etcd-0 to etcd-1"},
		{"from a leader whose node a drainer has marked",
			done(cordoned(0, 0), drained(0)), "move leadership from etcd-0 to etcd-1"},
		{"from a leader whose node is cordoned", done(cordoned(0, 0)), "move leadership from etcd-0 to etcd-1"},
		{"not from one whose node cannot be read", done(unreadNodes(0, 0)), "complete"},
		{"for however long it is", done(cordoned(leavingPatience, 0)), "move leadership from etcd-0 to etcd-1"},
		{"from a leader that terminates by others' hand and still serves",
			done(taken(terminating(0))), "move leadership from etcd-0 to etcd-1"},
		{"not from one that we have removed ourselves", done(terminating(0)), "wait Terminating"},
		{"nor from one that we have removed from a cordoned node",
			done(cordoned(0, 0), terminating(0)), "wait Terminating"},
		{"from a leader that is being scaled away", cluster(4, allUpdated(), leads(3), replicas(3)),
			"move leadership from etcd-3 to etcd-0"},
		{"not while that does not answer", cluster(4, allUpdated(), leads(3), noAnswer(3), replicas(3)), "complete"},
		{"not from one that stays", done(evicted(1)), "complete"},
		{"nor from one that only bears the mark of our own eviction, which had no effect",
			done(evicted(0), ourEviction(0)), "complete"},
		{"not to another that is about to be evicted",
			done(evicted(0, 1)), "move leadership from etcd-0 to etcd-2"},
		{"nor to one on a cordoned node, for however long it is",
			done(evicted(0), cordoned(leavingPatience, 1)), "move leadership from etcd-0 to etcd-2"},
		{"nor to a learner", done(evicted(0), learner(1)), "move leadership from etcd-0 to etcd-2"},
		{"nor to one that does not serve", done(evicted(0), unknown(1)), "move leadership from etcd-0 to etcd-2"},
		{"it stays where there is no other", done(cordoned(0, 0, 1, 2)), "complete"},
		{"nor with a single member", cluster(1, allUpdated(), evicted(0)), "complete"},
		{"once more after one failure", done(evicted(0), failed(1)), "move leadership from etcd-0 to etcd-1"},
		{"not after two", done(evicted(0), failed(2)), "complete"},
		{"during a rollout too, which waits, and to an outdated member",
			cluster(3, evicted(0)), "move leadership from etcd-0 to etcd-1"},
		{"to one that is up to date rather",
			cluster(3, updated(2), evicted(0)), "move leadership from etcd-0 to etcd-2"},
		{"and before anything else", cluster(3, dead(2), evicted(0)), "move leadership from etcd-0 to etcd-1"},
		{"where a cordon is not waited for any more, not to an outdated member: that would be the next to hand over",
			cluster(3, cordoned(leavingPatience, 0)), "delete etcd-2"},
		{"but to one that is up to date",
			cluster(3, updated(2), cordoned(leavingPatience, 0)), "move leadership from etcd-0 to etcd-2"},
		{"nor to an outdated one where the operator does not wait",
			cluster(3, evicted(0), overriding(rollout.GuardOthersLeaving)), "delete etcd-2"},
		{"not while the operator has paused", done(evicted(0), func(w *world) { w.state.Controls.Paused = true }),
			"hold Paused"},
		{"not without the lock", done(evicted(0), func(w *world) { w.state.NoLock = true }), "complete"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			d := tc.world.decide()
			if say(d) != tc.want {
				t.Errorf("got %s, want %s: %s", say(d), tc.want, d.Reason())
			}
			if _, moves := d.Action.(rollout.MoveLeader); moves && (d.Duty != rollout.DutyMakeWay ||
				d.Rule != rollout.RuleMakeWay || d.Target().UID == "") {
				t.Errorf("%s by duty %s, rule %s, of %+v", say(d), d.Duty, d.Rule, d.Target())
			}
		})
	}
	d := done(cordoned(35*time.Second, 0)).decide()
	if want := "etcd-0 leads, and etcd-0 may be about to go: node node-0 is cordoned, seen for 35 s of 600 s; etcd-1 " +
		"takes over first, so that no election is needed"; d.Reason() != want {
		t.Errorf("got %s, want %s", d.Reason(), want)
	}
}

// However the nodes are cordoned, a rollout ends, and leadership does not go to and fro.
func TestLeadershipDoesNotGoToAndFro(t *testing.T) {
	for n := 3; n <= 5; n += 2 {
		for nodes := range 1 << n {
			for leader := range n {
				w := cluster(n, leads(leader))
				for o := range n {
					if nodes>>o&1 == 1 {
						w.with(cordoned(leavingPatience, o))
					}
				}
				moves, last := 0, ""
				for range 4 * n {
					d := w.decide()
					if last = say(d); !d.Acts() {
						break
					}
					moves += strings.Count(last, "move")
					w.apply(t, d, func(string, rollout.Decision) {})
				}
				// One for the rollout, one back from a cordoned node, one away from it at first.
				if last != "complete" || moves > 3 {
					t.Fatalf("%d members, cordoned %b, leader %d: %s after %d changes of leader", n, nodes, leader,
						last, moves)
				}
			}
		}
	}
}

// A leader on a node that is cordoned for long makes way, and a leader that is next to be defragmented hands over.
func TestLeadershipDoesNotGoToAndFroForADefragmentation(t *testing.T) {
	outOfSpace := func(w *world) {
		w.with(noSpace(0))
		w.policy.QuotaBytes = 1800 * mib
	}
	for _, tc := range []struct {
		name     string
		n        int
		outdated bool
		why      change
	}{
		{"asked for", 3, false, askedAll()},
		{"by the policy", 3, false, wanted(true)},
		{"with NOSPACE", 3, false, outOfSpace},
		{"with NOSPACE, of five", 5, false, outOfSpace},
		{"asked for, with a rollout", 3, true, askedAll()},
		{"with NOSPACE and a rollout", 3, true, outOfSpace},
	} {
		for k := range 1 << tc.n * 1 << tc.n * tc.n {
			nodes, loose, leader := k%(1<<tc.n), k>>tc.n%(1<<tc.n), k>>(2*tc.n)
			w := cluster(tc.n, leads(leader))
			if !tc.outdated {
				w.with(allUpdated())
			}
			for o := range tc.n {
				if nodes>>o&1 == 1 {
					w.with(cordoned(leavingPatience, o))
				}
				inUse := 1700 * mib
				if loose>>o&1 == 1 {
					inUse = 400 * mib
				}
				w.with(holding(1700*mib, inUse, o))
			}
			w.with(tc.why)
			moves, done, last := 0, 0, ""
			for range 4 * tc.n {
				d := w.decide()
				if last = tell(d); !d.Acts() {
					last = ""
					break
				}
				switch d.Action.(type) {
				case rollout.MoveLeader:
					moves++
				case rollout.Defragment:
					done |= 1 << d.Target().Ordinal
				}
				w.apply(t, d, func(string, rollout.Decision) {})
			}
			// One away from a cordoned node, one for the defragmentation or the rollout, one back from a cordoned node.
			if last != "" || moves > 3 || !tc.outdated && done&loose != loose {
				t.Fatalf("%s: cordoned %b, loose %b, leader %d: %b done after %d changes of leader, and then %s",
					tc.name, nodes, loose, leader, done, moves, last)
			}
		}
	}
}

// A plan of the whole rollout knows that a pod that is replaced is on another node.
func TestAPredictedRolloutLeavesTheCordonedNodes(t *testing.T) {
	w := cluster(3, cordoned(leavingPatience, 0, 1, 2))
	var steps []string
	for _, d := range rollout.Predict(w.state, w.policy) {
		steps = append(steps, say(d))
	}
	want := []string{"delete etcd-2", "move leadership from etcd-0 to etcd-2", "delete etcd-1", "delete etcd-0",
		"complete"}
	if !slices.Equal(steps, want) {
		t.Errorf("got %s, want %s", strings.Join(steps, ", "), strings.Join(want, ", "))
	}
}

// A member that leaves counts once against the budget, and among nobody that stays.
func TestWhoLeavesIsNotCountedOn(t *testing.T) {
	overridden := overriding(rollout.GuardUnavailableBudget)
	for _, tc := range []struct {
		name  string
		world *world
		pod   string
		guard rollout.Guard
		want  string
	}{
		{"the quorum's floor", cluster(3, evicted(1)), "etcd-2", rollout.GuardQuorumFloor,
			"3 of 3 voters serve, quorum 2, removing this one leaves 1"},
		{"the budget", cluster(5, evicted(1), maxUnavailable(2)), "etcd-4", rollout.GuardUnavailableBudget,
			"1 of 5 members unavailable, 2 with this one, at most 2 allowed"},
		{"once, although it terminates as well",
			cluster(5, evicted(1), taken(terminating(1)), maxUnavailable(2)), "etcd-4", rollout.GuardUnavailableBudget,
			"1 of 5 members unavailable, 2 with this one, at most 2 allowed"},
		{"once, although it is the candidate itself",
			cluster(5, evicted(4), maxUnavailable(2)), "etcd-4", rollout.GuardUnavailableBudget,
			"0 of 5 members unavailable, 1 with this one, at most 2 allowed"},
		{"the endpoints", cluster(3, evicted(1)), "etcd-2", rollout.GuardEndpointFloor,
			"removing this one leaves 1 of 3 pods Ready, at least 2 must stay"},
		{"the data", cluster(3, evicted(1), volatileData()), "etcd-2", rollout.GuardDataSurvives,
			"the data volume is not persistent: removing this one leaves 1 of 3 voters with data, quorum 2"},
		{"a process that may vote, while a member whose pod is not Ready leaves: no budget keeps that one",
			cluster(3, sick(1), evicted(1), alive(2)), "etcd-2", rollout.GuardMayVote,
			"2 of 3 voters serve, quorum 2: without this process 1 could still vote; not counted on: etcd-1 is about " +
				"to go: DisruptionTarget EvictionByEvictionAPI"},
		{"a process that may vote, while one of those that might vote instead leaves",
			cluster(5, dead(0), alive(2, 3, 4), evicted(3)), "etcd-4", rollout.GuardMayVote,
			"1 of 5 voters serve, quorum 3: without this process 2 could still vote; not counted on: etcd-3 is about " +
				"to go: DisruptionTarget EvictionByEvictionAPI"},
		{"all that is known of it is told", cluster(7, evicted(1), taken(terminating(2)), taken(missing(3)),
			away(7*time.Second, 3), cordoned(35*time.Second, 4), cordoned(leavingPatience, 5), drained(5), replicas(6),
			overridden, unreadNodes(time.Minute, 0)),
			"etcd-0", rollout.GuardOthersLeaving,
			"members that others are taking: 6 (etcd-0 may be about to go: node node-0 cannot be read, seen for 60 s " +
				"of " +
				"600 s; etcd-1 is about to go: DisruptionTarget EvictionByEvictionAPI; etcd-2 is " +
				"terminating, and no removal by Quorate is known, seen for 0 s of 600 s; etcd-3 is missing, and no " +
				"removal by Quorate is known, seen for 7 s of 600 s; etcd-4 may be about to go: node node-4 " +
				"is cordoned, seen for 35 s of 600 s; " +
				"etcd-5 may be about to go: node " +
				"node-5 has the taint drain:NoSchedule (it is drained), seen " +
				"for 600 s, too long to wait for, so it goes last; etcd-6 is being " +
				"scaled away)"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			d := tc.world.decide()
			if got := detailOf(d, tc.pod, tc.guard); got != tc.want {
				t.Errorf("\n got %q\nwant %q\n%s", got, tc.want, d.Reason())
			}
		})
	}
}
