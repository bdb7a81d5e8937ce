package rollout_test

import (
	"strings"
	"testing"
	"time"

	"github.com/quorate/quorate/pkg/rollout"
)

// A kubelet's bad news stays what it was when its node is cut off, and the same cut takes our probe. So it counts only
// with a sign about this very pod.
func TestAKubeletIsAWitnessOnlyWhileItCanBeHeard(t *testing.T) {
	const long = 5 * time.Minute
	five := func(changes ...change) *world { return cluster(5, append([]change{onNodes(), self(0)}, changes...)...) }
	for _, tc := range []struct {
		name  string
		world *world
		want  string
	}{
		{"of a member that crash-loops on a node from which nothing comes, nothing is known", five(dead(4)), "Unknown"},
		{"nor of one that is only starting", five(starting(4)), "Unknown"},
		{"it is dead where its address refuses a connection", five(dead(4), refuses(4)), "Down dead"},
		{"and starting in the same way", five(starting(4), refuses(4)), "Down starting"},
		{"or where its kubelet says something new after the silence began",
			five(dead(4), silentFor(20*time.Second, 4), said("second", 10*time.Second, 4)), "Down dead"},
		{"but not for what that said before",
			five(dead(4), silentFor(10*time.Second, 4), said("first", 20*time.Second, 4)), "Unknown"},
		{"nor for what it said at the very moment, which may have been before",
			five(dead(4), silentFor(10*time.Second, 4), said("first", 10*time.Second, 4)), "Unknown"},
		{"or where its node has given a sign of life since then",
			five(dead(4), silentFor(20*time.Second, 4), beat(10*time.Second, 4)), "Down dead"},
		{"but not for one from before",
			five(dead(4), silentFor(20*time.Second, 4), beat(30*time.Second, 4)), "Unknown"},
		{"one that has no node yet runs nothing", five(starting(4), func(w *world) { w.pod(4).Node = "" }),
			"Down starting"},
		{"one on the coordinator's own node is heard", five(dead(4), func(w *world) { w.pod(4).Node = "node-0" }),
			"Down dead"},
		{"one that answers for itself runs, whatever its kubelet says",
			five(dead(4), answersForItself(4)), "Down alive"},
		{"after settle-timeout it counts as one that runs", five(dead(4), silentFor(long, 4)), "Down alive"},
		{"but not before", five(dead(4), silentFor(long-time.Second, 4)), "Unknown"},
		{"without a member list the kubelet needs a sign as well",
			five(dead(0, 1, 2, 3, 4), noMemberList()), "Unknown"},
		{"which is then the refused connection", five(dead(0, 1, 2, 3, 4), noMemberList(), refuses(4)), "Down dead"},
		{"a member that is not on the list needs one too", five(dead(4), func(w *world) {
			w.state.Etcd.Members = w.state.Etcd.Members[:4]
		}), "Unknown"},
		{"a member that runs and is not ready was never a matter of the kubelet alone", five(alive(4)), "Down alive"},
		{"a member that serves does, whatever its kubelet says", five(dead(4), func(w *world) {
			w.member(4).Probe.Read = rollout.Answered
		}), "Serving"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			r := &rollout.Assess(tc.world.state, tc.world.policy).Replicas[4]
			if got := strings.TrimSpace(r.Evidence.String() + " " + r.Liveness.String()); got != tc.want {
				t.Errorf("got %s, want %s: %s", got, tc.want, r.Describe())
			}
		})
	}
}

// Whoever hears nothing from any other member may be the one that is cut off.
func TestACoordinatorThatHearsNothingFromTheOthersHolds(t *testing.T) {
	three := func(changes ...change) *world { return cluster(3, append([]change{onNodes(), self(0)}, changes...)...) }
	const long = 5 * time.Minute
	lost := aged(rollout.QuorumLostSeen, long)
	for _, tc := range []struct {
		name  string
		world *world
		want  string
	}{
		{"the zone that is cut off has yesterday's bad news of the others, and takes none",
			three(alive(0), dead(1, 2)), "hold CutOff"},
		{"not even after settle-timeout", three(alive(0), dead(1, 2), lost, silentFor(long, 1, 2)), "hold CutOff"},
		{"nor the zone that sees one of them starting", three(alive(0), dead(1), starting(2)), "hold CutOff"},
		{"nor the one to which the kubelets look well", three(alive(0), unknown(1, 2)), "hold CutOff"},
		{"it does not take its own pod either", three(dead(1, 2), unknown(0), alive(0)), "hold CutOff"},
		{"one that is dead on the same node says nothing about the others",
			three(alive(0), dead(1, 2), func(w *world) { w.pod(1).Node = "node-0" }), "hold CutOff"},
		{"with a refused connection the dead one goes at once", three(alive(0), unknown(1), dead(2), refuses(2)),
			"delete etcd-2"},
		{"where both refuse, the cure is as quick as ever",
			three(alive(0), dead(1, 2), refuses(1, 2)), "delete etcd-2"},
		{"a kubelet that finds a hanging member unready after it fell silent is heard, so patience decides",
			three(alive(0, 1, 2), silentFor(time.Minute, 1, 2), said("unready", 30*time.Second, 2)),
			"wait QuorumPatience"},
		{"an error of etcd's own comes from somebody", three(alive(0), unknown(1), dead(2), replied(1)),
			"wait QuorumPatience"},
		{"pods without a node hold nothing", three(alive(0), starting(1, 2), func(w *world) {
			w.pod(1).Node, w.pod(2).Node = "", ""
		}), "delete etcd-2"},
		{"a single member is never cut off from others", cluster(1, onNodes(), dead(0), refuses(0)), "delete etcd-0"},
		{"neighbours in the zone that is cut off do not make it another one, while the others may be a quorum",
			cluster(5, onNodes(), self(0), alive(0, 1), answersForItself(1), dead(2, 3, 4), lost,
				silentFor(long, 2, 3, 4)),
			"hold CutOff"},
		{"where those that are silent cannot be one, patience decides",
			cluster(5, onNodes(), self(0), alive(0, 1, 2), answersForItself(1, 2), dead(3, 4)), "wait QuorumPatience"},
		{"it may be overridden, and then the dead still need a sign",
			three(alive(0), dead(1, 2), overriding(rollout.GuardCutOff)), "wait QuorumPatience"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			d := tc.world.decide()
			if got := say(d); got != tc.want {
				t.Errorf("got %s, want %s: %s", got, tc.want, d.Reason())
			}
		})
	}
}

// No age is made of two instants between which the member served.
func TestBadNewsOfAMemberThatServesHasNoAge(t *testing.T) {
	for _, c := range []rollout.Condition{rollout.NotRunningSeen, rollout.RestartingSeen, rollout.TerminatedSeen} {
		w := cluster(3, exited(2), restarted(2))
		if !sees(w, 2, c) {
			t.Errorf("%v is not seen of a member that does not serve", c)
		}
		w.member(2).Probe.Read = rollout.Answered
		if sees(w, 2, c) {
			t.Errorf("%v is seen of a member that serves", c)
		}
	}
}

func sees(w *world, ordinal int, c rollout.Condition) bool {
	for _, s := range rollout.Assess(w.state, w.policy).Sightings() {
		if s == (rollout.Sighting{UID: w.pod(ordinal).UID, Condition: c}) {
			return true
		}
	}
	return false
}
