package rollout_test

import (
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/quorate/quorate/pkg/rollout"
)

func TestWhatQuorumRestsOn(t *testing.T) {
	for _, tc := range []struct {
		name  string
		world *world
		// action and during are the decision, and needed are the pods.
		action rollout.ActionName
		during string
		needed string
	}{
		{"of three members, the two that are left while one is replaced", cluster(3),
			rollout.ActionRemove, "the replacement of etcd-2", "etcd-0 etcd-1"},
		{"while its successor is not there yet", cluster(3, missing(2)),
			rollout.ActionWait, "the replacement of etcd-2", "etcd-0 etcd-1"},
		{"while it terminates", cluster(3, terminating(2)),
			rollout.ActionWait, "the replacement of etcd-2", "etcd-0 etcd-1"},
		{"while it starts", cluster(3, updated(2), starting(2), noAnswer(2)),
			rollout.ActionWait, "the replacement of etcd-2", "etcd-0 etcd-1"},
		{"while a member that serves still has to settle, nobody", cluster(3, updated(2), notReady(2)),
			rollout.ActionWait, "", ""},
		{"while it is a learner, all others, because it does not vote yet", cluster(3, updated(2), learner(2)),
			rollout.ActionWait, "the replacement of etcd-2", "etcd-0 etcd-1"},
		{"while leadership moves, nobody", cluster(3, updated(1, 2)), rollout.ActionMoveLeader, "", ""},
		{"of five, three, with the leader, and not the next that may go", cluster(5, updated(4)),
			rollout.ActionRemove, "the replacement of etcd-3", "etcd-0 etcd-1 etcd-4"},
		{"the leader is needed most", cluster(5, leads(3)), rollout.ActionRemove, "the replacement of etcd-4",
			"etcd-0 etcd-1 etcd-3"},
		{"and least whoever is about to be taken", cluster(5, leads(1), evicted(0), missing(4)),
			rollout.ActionWait, "the replacement of etcd-4", "etcd-1 etcd-2 etcd-3"},
		{"while a member is defragmented", tidy(holding(1950*mib, 400*mib, 2), askedAll()),
			rollout.ActionDefragment, "the defragmentation of etcd-2", "etcd-0 etcd-1"},
		{"while a ghost is taken off the list, those that are left",
			cluster(3, allUpdated(), left(1), asked(3)), rollout.ActionRemoveMember,
			"the removal of member etcd-3", "etcd-0 etcd-1 etcd-2"},
		{"while nobody knows how a defragmentation has ended, whoever may vote besides",
			cluster(4, starting(1), unknown(0), stopping(1)), rollout.ActionWait, "the work on etcd",
			"etcd-0 etcd-2 etcd-3"},
		{"of five with two away, the three that are left", cluster(5, missing(3, 4), maxUnavailable(2)),
			rollout.ActionWait, "the replacement of etcd-3", "etcd-0 etcd-1 etcd-2"},
		{"of four, three, because three of them are a quorum", cluster(4),
			rollout.ActionRemove, "the replacement of etcd-3", "etcd-0 etcd-1 etcd-2"},
		{"of a single member, none", cluster(1), rollout.ActionRemove, "", ""},
		{"of three with one dead, the two that serve", cluster(3, dead(1)),
			rollout.ActionRemove, "the replacement of etcd-1", "etcd-0 etcd-2"},
		{"of five with one dead and one unknown, the three that serve", cluster(5, dead(1), unknown(0), leads(2)),
			rollout.ActionRemove, "the replacement of etcd-1", "etcd-2 etcd-3 etcd-4"},
		{"with quorum lost, whatever still serves or may vote", cluster(3, missing(2), unknown(0)),
			rollout.ActionWait, "the replacement of etcd-2", "etcd-0 etcd-1"},
		{"but not what certainly serves nobody", cluster(3, missing(2), dead(0)),
			rollout.ActionWait, "the replacement of etcd-2", "etcd-1"},
		{"with a member that serves, also one that looks down and has a process: the two may be the quorum",
			cluster(3, missing(2), alive(0), leads(1)), rollout.ActionWait,
			"the replacement of etcd-2", "etcd-0 etcd-1"},
		{"and one that has just been started", cluster(3, missing(2), starting(0), leads(1)),
			rollout.ActionWait, "the replacement of etcd-2", "etcd-0 etcd-1"},
		{"with too few that serve, all that may vote, because nobody knows which of them does",
			cluster(5, missing(4), unknown(1), alive(2), unknown(3), leads(0)), rollout.ActionWait,
			"the replacement of etcd-4", "etcd-0 etcd-1 etcd-2 etcd-3"},
		{"but while none serves, there is no such quorum", cluster(3, missing(2), alive(0, 1)),
			rollout.ActionWait, "", ""},
		{"and while enough serve, it is not needed", cluster(5, missing(4), alive(1)),
			rollout.ActionWait, "the replacement of etcd-4", "etcd-0 etcd-2 etcd-3"},
		{"a member elsewhere that may be relied on votes as well",
			cluster(5, replicas(4), func(w *world) { w.state.Pods = w.state.Pods[:4] }, trusting("etcd-4")),
			rollout.ActionRemove, "the replacement of etcd-3", "etcd-0 etcd-1"},
		{"while pods are scaled away that still vote, they are kept as well",
			cluster(5, replicas(3), missing(2), leads(0)), rollout.ActionWait, "the replacement of etcd-2",
			"etcd-0 etcd-1 etcd-3"},
		{"a paused rollout keeps nobody, although a pod is away",
			cluster(3, missing(2), func(w *world) { w.state.Controls.Paused = true }), rollout.ActionHold, "", ""},
		{"nor does one that holds for a broken revision", cluster(3, updated(2), dead(2)), rollout.ActionHold, "", ""},
		{"nor does one that is complete", cluster(3, allUpdated()), rollout.ActionComplete, "", ""},
		{"nor does an idle one, whoever is away",
			cluster(3, allUpdated(), missing(2), func(w *world) { w.state.Set.OnDelete = false }),
			rollout.ActionIdle, "", ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			d := tc.world.decide()
			n := d.Needed()
			needed := strings.Join(slices.Sorted(maps.Keys(n.Pods)), " ")
			if d.Action.Name() != tc.action || n.During != tc.during || needed != tc.needed {
				t.Errorf("%s: %q during %q, want %s: %q during %q; %s", d.Action.Name(), needed, n.During, tc.action,
					tc.needed, tc.during, d.Reason())
			}
			for name, uid := range n.Pods {
				is := func(p rollout.Pod) bool { return p.Name == name && p.UID == uid }
				if !slices.ContainsFunc(tc.world.state.Pods, is) {
					t.Errorf("there is no pod %s with UID %s", name, uid)
				}
				if name == d.Target().Pod {
					t.Errorf("the target %s is needed", name)
				}
			}
		})
	}
}
