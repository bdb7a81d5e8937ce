package rollout_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/quorate/quorate/pkg/rollout"
)

const patience = 5 * time.Minute // DefaultPolicy().SettleTimeout

// A whole rollout, decision by decision. Between a removal and the successor's
// settling nothing else may happen.
func TestRolloutsFromBeginToEnd(t *testing.T) {
	for _, tc := range []struct {
		name  string
		world *world
		steps []string
	}{
		{"a healthy cluster rolls followers, the highest ordinal first, and its leader last, after it handed over",
			cluster(3), []string{
				"delete etcd-2", "delete etcd-1", "move leadership from etcd-0 to etcd-1", "delete etcd-0",
				"complete"}},
		{"a leader in the middle goes last all the same", cluster(3, leads(1)), []string{
			"delete etcd-2", "delete etcd-0", "move leadership from etcd-1 to etcd-0", "delete etcd-1", "complete"}},
		{"a cluster of five has one leader change", cluster(5, leads(4)), []string{
			"delete etcd-3", "delete etcd-2", "delete etcd-1", "delete etcd-0",
			"move leadership from etcd-4 to etcd-0", "delete etcd-4", "complete"}},
		{"the coordinator's own pod is the last follower", cluster(3, self(2)), []string{
			"delete etcd-1", "delete etcd-2", "move leadership from etcd-0 to etcd-1", "delete etcd-0", "complete"}},
		{"a member that is down goes first", cluster(3, dead(1)), []string{
			"delete etcd-1", "delete etcd-2", "move leadership from etcd-0 to etcd-1", "delete etcd-0", "complete"}},
		{"a leader that is down goes first, as soon as the others have elected another",
			cluster(3, leads(2), dead(0)), []string{
				"delete etcd-0", "delete etcd-1", "move leadership from etcd-2 to etcd-0", "delete etcd-2",
				"complete"}},
		{"pods with sick sidecars go before healthy ones, a sick leader before healthy followers",
			cluster(5, sick(0, 2)), []string{
				"delete etcd-2", "move leadership from etcd-0 to etcd-2", "delete etcd-0", "delete etcd-4",
				"delete etcd-3", "delete etcd-1", "complete"}},
		{"three sick sidecars do not block their own cure", cluster(3, sick(0, 1, 2)), []string{
			"delete etcd-2", "delete etcd-1", "move leadership from etcd-0 to etcd-1", "delete etcd-0", "complete"}},
		{"a single member is deleted, and its return awaited", cluster(1), []string{"delete etcd-0", "complete"}},
		{"ordinals that start at three", cluster(6, leads(3), replicas(3), func(w *world) {
			w.state.Set.Start = 3
			w.state.Pods, w.state.Etcd.Members = w.state.Pods[3:], w.state.Etcd.Members[3:]
		}), []string{"delete etcd-5", "delete etcd-4", "move leadership from etcd-3 to etcd-4", "delete etcd-3",
			"complete"}},
		{"a partition leaves the ordinals below it",
			cluster(3, partition(1)), []string{"delete etcd-2", "delete etcd-1", "complete"}},
		{"a partition that protects the followers lets the leader go", cluster(3, leads(2), partition(2)), []string{
			"move leadership from etcd-2 to etcd-0", "delete etcd-2", "complete"}},
		{"an up-to-date leader keeps the leadership",
			cluster(3, updated(0)), []string{"delete etcd-2", "delete etcd-1", "complete"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			var steps []string
			for range 20 {
				d := tc.world.decide()
				steps = append(steps, say(d))
				if !d.Acts() {
					break
				}
				tc.world.apply(t, d, func(stage string, d rollout.Decision) {
					if d.Action.Name() != rollout.ActionWait {
						t.Errorf("%s: %s instead of wait: %s", stage, say(d), d.Reason())
					}
				})
			}
			if !slices.Equal(steps, tc.steps) {
				t.Errorf("decisions:\n got %s\nwant %s", strings.Join(steps, ", "), strings.Join(tc.steps, ", "))
			}
		})
	}
}

func TestDecisions(t *testing.T) {
	for _, tc := range []struct {
		name  string
		world *world
		want  string
		rule  rollout.Rule
	}{
		// Rule 1.
		{"nothing is ours unless the strategy is OnDelete",
			cluster(3, func(w *world) { w.state.Set.OnDelete = false }), "idle", rollout.RuleNotOurs},
		{"nothing is ours while the StatefulSet is being deleted",
			cluster(3, func(w *world) { w.state.Set.Deleting = true }), "idle", rollout.RuleNotOurs},
		{"nothing is ours without replicas", cluster(3, replicas(0)), "idle", rollout.RuleNotOurs},

		// Rule 2.
		{"a generation that is not observed yet waits",
			cluster(3, func(w *world) { w.state.Set.Generation++ }), "wait StaleRevision", rollout.RuleHeld},
		{"no update revision waits",
			cluster(3, func(w *world) { w.state.Set.UpdateRevision = "" }), "wait StaleRevision", rollout.RuleHeld},
		{"a CORRUPT alarm of any member holds",
			cluster(3, func(w *world) { w.member(2).Probe.Status.Corrupt = true }), "hold Corrupt", rollout.RuleHeld},
		{"a CORRUPT alarm holds even what is dead",
			cluster(3, dead(1), func(w *world) { w.member(2).Probe.Status.Corrupt = true }),
			"hold Corrupt", rollout.RuleHeld},
		{"a NOSPACE alarm does not hold",
			cluster(3, func(w *world) { w.member(2).Probe.Status.NoSpace = true }),
			"delete etcd-2", rollout.RuleServing},
		{"two pods of one ordinal hold", cluster(3, func(w *world) {
			twin := healthyPod(1, oldRev, 9)
			twin.Name = "etcd-01"
			w.state.Pods = append(w.state.Pods, twin)
		}), "hold Inconsistent", rollout.RuleHeld},
		{"two pods of one ordinal do not hold when one belongs to somebody else", cluster(3, func(w *world) {
			twin := healthyPod(1, oldRev, 9)
			twin.Name, twin.Owned = "etcd-01", false
			w.state.Pods = append([]rollout.Pod{twin}, w.state.Pods...)
		}), "delete etcd-2", rollout.RuleServing},
		{"a pod of the StatefulSet's own without an ordinal holds", cluster(3, func(w *world) {
			odd := healthyPod(0, oldRev, 9)
			odd.Name, odd.Ordinal = "etcd-x", -1
			w.state.Pods = append(w.state.Pods, odd)
		}), "hold Inconsistent", rollout.RuleHeld},
		{"pods without an ordinal that belong to somebody else are no contradiction", cluster(3, func(w *world) {
			for _, n := range []string{"etcd-x", "etcd-y"} {
				odd := healthyPod(0, oldRev, 9)
				odd.Name, odd.Ordinal, odd.Owned = n, -1, false
				w.state.Pods = append(w.state.Pods, odd)
			}
		}), "delete etcd-2", rollout.RuleServing},
		{"a negative number of replicas holds", cluster(3, replicas(-1)), "hold Inconsistent", rollout.RuleHeld},
		{"a pod without the container that etcd should run in holds: its kubelet tells nothing of the member",
			cluster(5, unknown(2, 3), func(w *world) {
				for _, o := range []int{2, 3} {
					w.pod(o).Etcd, w.pod(o).NoEtcdContainer = rollout.Container{}, true
				}
			}), "hold Inconsistent", rollout.RuleHeld},
		{"a pod out of range without that container does not",
			cluster(4, replicas(3), learner(3), func(w *world) { w.pod(3).NoEtcdContainer = true }),
			"delete etcd-2", rollout.RuleServing},
		{"two members that match one pod by the first label of their URLs hold: the first may be the wrong one",
			cluster(3, func(w *world) {
				w.member(1).Name, w.member(2).Name = "a", "b"
				w.member(1).PeerURLs, w.member(2).PeerURLs = []string{"http://etcd-2.one:2380"},
					[]string{"http://etcd-2.two:2380"}
				w.member(1).ClientURLs, w.member(2).ClientURLs = nil, nil
			}), "hold Inconsistent", rollout.RuleHeld},
		{"a number of replicas that no etcd cluster has holds",
			cluster(3, replicas(1<<31-1)), "hold Inconsistent", rollout.RuleHeld},
		{"a negative first ordinal holds",
			cluster(3, func(w *world) { w.state.Set.Start = -1 }), "hold Inconsistent", rollout.RuleHeld},
		{"one member that matches two pods holds: it would count twice", cluster(3, func(w *world) {
			w.member(1).Name, w.member(1).PeerURLs, w.member(1).ClientURLs = "elsewhere", nil, nil
			w.member(2).PeerURLs = []string{"http://etcd-1.peer:2380"}
		}), "hold Inconsistent", rollout.RuleHeld},
		{"two members of one name hold",
			cluster(3, func(w *world) { w.member(2).Name = name(1) }), "hold Inconsistent", rollout.RuleHeld},
		{"two members without a name do not hold",
			cluster(3, alive(1, 2), func(w *world) { w.member(1).Name, w.member(2).Name = "", "" }),
			"delete etcd-2", rollout.RuleNotServingFirst},
		{"two members of one ID hold",
			cluster(3, func(w *world) { w.member(2).ID = id(1) }), "hold Inconsistent", rollout.RuleHeld},
		{"two leaders at one term hold",
			cluster(3, func(w *world) { w.member(2).Probe.Status.Leader = id(2) }),
			"hold Inconsistent", rollout.RuleHeld},
		{"two leaders at different terms do not hold: an election just passed", cluster(3, func(w *world) {
			w.member(2).Probe.Status.Leader, w.member(2).Probe.Status.Term = id(2), term-1
		}), "delete etcd-2", rollout.RuleServing},
		{"a member that knows no leader contradicts nobody",
			cluster(3, func(w *world) { w.member(2).Probe.Status.Leader = 0 }), "delete etcd-2", rollout.RuleServing},
		{"an answer from another cluster holds everything",
			cluster(3, func(w *world) { w.member(1).Probe = rollout.Probe{Read: rollout.WrongCluster} }),
			"hold Inconsistent", rollout.RuleHeld},
		{"an answer from another member holds only what it leaves unknown",
			cluster(5, func(w *world) { w.member(1).Probe = rollout.Probe{Read: rollout.WrongMember} },
				maxUnavailable(2)), "delete etcd-4", rollout.RuleServing},
		{"a coordinator that reaches nobody else, whose containers are ready, is the one cut off",
			cluster(3, self(0), unknown(1, 2)), "hold CutOff", rollout.RuleHeld},
		{"outside a member's pod it is the same", cluster(3, unknown(0, 1, 2)), "hold CutOff", rollout.RuleHeld},
		{"one container that is dead proves that it is not the coordinator that is cut off",
			cluster(3, self(0), unknown(1), dead(2), refuses(2)), "delete etcd-2", rollout.RuleNotServingFirst},
		{"a status from one other member proves it too",
			cluster(3, self(0), unknown(2), func(w *world) { w.member(1).Probe.Read = rollout.Failed }),
			"hold QuorumFloor", rollout.RuleServing},
		{"an answer from a member elsewhere proves it too",
			cluster(3, self(0), unknown(1, 2), outsiders(1)), "hold QuorumFloor", rollout.RuleServing},
		{"with every kubelet agreeing that the others are down nobody is cut off",
			cluster(3, self(0), alive(1, 2)), "delete etcd-2", rollout.RuleNotServingFirst},

		// Rule 3.
		{"it is complete when every pod is up to date and settled",
			cluster(3, allUpdated()), "complete", rollout.RuleComplete},
		{"it is complete with a ghost in the member list",
			cluster(3, allUpdated(), ghosts(1)), "complete", rollout.RuleComplete},
		{"it is not complete while a pod is missing",
			cluster(3, allUpdated(), missing(1)), "wait Terminating", rollout.RuleUpdatedSettle},
		{"it is not complete while a pod is terminating",
			cluster(3, allUpdated(), terminating(1)), "wait Terminating", rollout.RuleUpdatedSettle},
		{"it is not complete while a pod is not Ready",
			cluster(3, allUpdated(), sick(1)), "wait UpdatedPending", rollout.RuleUpdatedSettle},
		{"it is not complete while a member lags",
			cluster(3, allUpdated(), behind(5000, 1)), "wait UpdatedPending", rollout.RuleUpdatedSettle},
		{"it is complete with a member just close enough",
			cluster(3, allUpdated(), behind(4999, 1)), "complete", rollout.RuleComplete},
		{"it is not complete while a member's lag is not known",
			cluster(3, allUpdated(), func(w *world) { w.member(1).Probe.Status = nil }),
			"wait UpdatedPending", rollout.RuleUpdatedSettle},
		{"a learner is not settled before it is promoted",
			cluster(3, allUpdated(), learner(2)), "wait UpdatedPending", rollout.RuleUpdatedSettle},
		{"it is not complete before minReadySeconds have passed",
			cluster(3, allUpdated(), func(w *world) { w.state.Set.MinReady = 10 * time.Second },
				aged(rollout.ReadySeen, 10*time.Second, 0, 1), aged(rollout.ReadySeen, 9*time.Second, 2)),
			"wait UpdatedPending", rollout.RuleUpdatedSettle},
		{"a container of an updated pod has restarted: being Ready for a moment proves nothing",
			cluster(3, updated(2), restarted(2), aged(rollout.ReadySeen, 9*time.Second, 2)),
			"wait UpdatedPending", rollout.RuleUpdatedSettle},
		{"its sidecar has restarted: being Ready for a moment proves nothing",
			cluster(3, updated(2), sidecarRestarted(2), aged(rollout.ReadySeen, 9*time.Second, 2)),
			"wait UpdatedPending", rollout.RuleUpdatedSettle},
		{"its sidecar has restarted, and it has stayed Ready since",
			cluster(3, updated(2), sidecarRestarted(2), aged(rollout.ReadySeen, 10*time.Second, 2)),
			"delete etcd-1", rollout.RuleServing},
		{"it has just become Ready, and its sidecar has said that it is there", cluster(3, updated(2)),
			"delete etcd-1", rollout.RuleServing},
		{"its sidecar has not: if it had crashed, its kubelet might not have noticed yet",
			cluster(3, updated(2), unannounced(2), aged(rollout.ReadySeen, 2*time.Second-1, 2)),
			"wait UpdatedPending", rollout.RuleUpdatedSettle},
		{"only the sidecar of the pod before it has",
			cluster(3, updated(2), func(w *world) { w.pod(2).UID = "its successor" }),
			"wait UpdatedPending", rollout.RuleUpdatedSettle},
		{"its sidecar has said nothing for two seconds, as one without Quorate",
			cluster(3, updated(2), unannounced(2), aged(rollout.ReadySeen, 2*time.Second, 2)),
			"delete etcd-1", rollout.RuleServing},
		{"nobody could say for two seconds which sidecars are there",
			cluster(3, updated(2), aged(rollout.ReadySeen, 2*time.Second, 2),
				func(w *world) { w.state.Sidecars = rollout.Sidecars{} }), "delete etcd-1", rollout.RuleServing},
		{"its sidecar has said that it is there, and has restarted",
			cluster(3, updated(2), sidecarRestarted(2), aged(rollout.ReadySeen, 2*time.Second, 2)),
			"wait UpdatedPending", rollout.RuleUpdatedSettle},
		{"the sidecars of outdated pods are not asked for a word", cluster(3, unannounced(0, 1, 2)), "delete etcd-2",
			rollout.RuleServing},
		{"nor is the cure of one whose sidecar is sick", cluster(3, unannounced(0, 1, 2), sick(1)), "delete etcd-1",
			rollout.RuleServing},
		{"it is not complete while the last one has only just become Ready",
			cluster(3, allUpdated(), unannounced(0)), "wait UpdatedPending", rollout.RuleUpdatedSettle},
		{"a container of an outdated pod has restarted: that holds nobody",
			cluster(3, restarted(2)), "delete etcd-2", rollout.RuleServing},
		{"it is complete once minReadySeconds have passed",
			cluster(3, allUpdated(), func(w *world) { w.state.Set.MinReady = 10 * time.Second },
				aged(rollout.ReadySeen, 10*time.Second, 0, 1, 2)), "complete", rollout.RuleComplete},

		// Rule 4: the order.
		{"dead goes before starting and alive",
			cluster(7, alive(6), starting(5), dead(4)), "delete etcd-4", rollout.RuleNotServingFirst},
		{"starting goes before alive", cluster(5, alive(4), starting(3)), "delete etcd-3", rollout.RuleNotServingFirst},
		{"among equals the higher ordinal goes first",
			cluster(5, dead(1, 3)), "delete etcd-3", rollout.RuleNotServingFirst},
		{"among equals the coordinator's own pod goes last",
			cluster(5, self(3), dead(1, 3)), "delete etcd-1", rollout.RuleNotServingFirst},
		{"a learner goes after the voters that do not serve",
			cluster(5, alive(1), dead(4), learner(4)), "delete etcd-1", rollout.RuleNotServingFirst},
		{"a learner that does not serve goes before any that serves",
			cluster(5, dead(4), learner(4)), "delete etcd-4", rollout.RuleNotServingFirst},
		{"what is down goes while another is still on its way",
			cluster(5, dead(2), terminating(4)), "delete etcd-2", rollout.RuleNotServingFirst},
		{"what is down goes while an updated pod settles",
			cluster(5, updated(4), starting(4), dead(2)), "delete etcd-2", rollout.RuleNotServingFirst},
		{"what is down but up to date is left alone",
			cluster(3, updated(2), dead(2)), "hold UpdatedFailing", rollout.RuleUpdatedSettle},
		{"what is down below the partition is left alone",
			cluster(5, dead(0), leads(1), partition(1)), "wait UnavailableBudget", rollout.RuleServing},
		{"a member that never started and has no name goes first",
			cluster(3, starting(2), func(w *world) { w.member(2).Name = "" }),
			"delete etcd-2", rollout.RuleNotServingFirst},
		{"a member that the list does not name goes first",
			cluster(3, alive(2), func(w *world) { w.state.Etcd.Members = w.state.Etcd.Members[:2] }),
			"delete etcd-2", rollout.RuleNotServingFirst},
		{"what is down is deleted even where healthy pods are evicted",
			cluster(3, dead(2), func(w *world) { w.policy.Removal = rollout.RemoveByEviction }),
			"delete etcd-2", rollout.RuleNotServingFirst},
		{"without a member list a dead pod goes",
			cluster(3, dead(1), noMemberList()), "delete etcd-1", rollout.RuleNotServingFirst},
		{"without a member list nothing else goes",
			cluster(3, alive(1), noMemberList()), "hold VotersUnknown", rollout.RuleServing},

		{"in order, the lowest dead pod goes first",
			cluster(5, ordered(), dead(1, 3)), "delete etcd-1", rollout.RuleNotServingFirst},
		{"in order, the lowest of those that start goes first",
			cluster(5, ordered(), starting(1, 3)), "delete etcd-1", rollout.RuleNotServingFirst},
		{"in order, a dead pod waits for a lower one that is starting, and goes next",
			cluster(5, ordered(), starting(1), dead(3)), "delete etcd-1", rollout.RuleNotServingFirst},
		{"in order, a live pod with quorum lost keeps the dead ones above it, and is kept",
			cluster(3, ordered(), alive(0), dead(1, 2)), "hold Recreation", rollout.RuleNotServingFirst},
		{"in order, it is kept for good",
			cluster(3, ordered(), alive(0), dead(1, 2), quorumLostFor(patience)),
			"hold Recreation", rollout.RuleNotServingFirst},
		{"in order, dead pods below a live one go with quorum lost",
			cluster(3, ordered(), alive(2), dead(0, 1)), "delete etcd-0", rollout.RuleNotServingFirst},
		{"in order, a missing pod is waited for",
			cluster(3, ordered(), alive(0), missing(1), dead(2)), "wait Terminating", rollout.RuleUpdatedSettle},
		{"in order, the higher of the serving ones goes first still: while it is away nothing else is kept away",
			cluster(3, ordered()), "delete etcd-2", rollout.RuleServing},
		{"in order, a lower pod that has just become Ready is waited for",
			cluster(3, ordered(), dead(2), func(w *world) { w.state.Set.MinReady = time.Second }),
			"wait Recreation", rollout.RuleNotServingFirst},

		// Rule 5.
		{"an updated pod that is coming up waits",
			cluster(3, updated(2), starting(2)), "wait UpdatedPending", rollout.RuleUpdatedSettle},
		{"an updated pod that serves but is not Ready waits",
			cluster(3, updated(2), sick(2)), "wait UpdatedPending", rollout.RuleUpdatedSettle},
		{"an updated pod whose member cannot be judged waits",
			cluster(3, updated(2), unknown(2)), "wait UpdatedPending", rollout.RuleUpdatedSettle},
		{"an updated pod that is dead holds the rest",
			cluster(3, updated(2), dead(2)), "hold UpdatedFailing", rollout.RuleUpdatedSettle},
		{"an updated pod that has not settled in time holds the rest",
			cluster(3, updated(2), alive(2), aged(rollout.UnsettledSeen, patience, 2)),
			"hold UpdatedFailing", rollout.RuleUpdatedSettle},
		{"an updated pod that may still settle in time waits",
			cluster(3, updated(2), alive(2), aged(rollout.UnsettledSeen, patience-1, 2)),
			"wait UpdatedPending", rollout.RuleUpdatedSettle},
		{"an updated pod with a sick sidecar holds the rest when it stays sick",
			cluster(5, updated(4), sick(4), aged(rollout.UnsettledSeen, patience, 4), maxUnavailable(2)),
			"hold UpdatedFailing", rollout.RuleUpdatedSettle},
		{"the fix of a failing pod replaces it first",
			cluster(5, dead(4), func(w *world) { w.pod(4).Revision = "rev-broken" }),
			"delete etcd-4", rollout.RuleNotServingFirst},
		{"a failing pod below the partition holds too",
			cluster(3, updated(0), dead(0), leads(1), partition(1)), "hold UpdatedFailing", rollout.RuleUpdatedSettle},

		{"where quorum is lost and the update is the cure, the next one goes once the guard that the reason names is " +
			"overridden", hung().with(overriding(rollout.GuardRevisionSuspect)), "delete etcd-1",
			rollout.RuleNotServingFirst},

		// Rule 6: order, method, and who is no candidate.
		{"a follower with a sick sidecar goes first", cluster(3, sick(1)), "delete etcd-1", rollout.RuleServing},
		{"a leader with a sick sidecar goes before healthy followers, after handing over",
			cluster(3, sick(0)), "move leadership from etcd-0 to etcd-1", rollout.RuleHandOverLeadership},
		{"a member of unknown health goes last",
			cluster(5, updated(0, 1, 2, 3), unknown(4)), "delete etcd-4", rollout.RuleServing},
		{"a member of unknown health goes after the leader",
			cluster(5, updated(0, 1, 3), leads(2), unknown(4), maxUnavailable(2)),
			"move leadership from etcd-2 to etcd-0", rollout.RuleHandOverLeadership},
		{"a learner is replaced like a follower", cluster(5, learner(4)), "delete etcd-4", rollout.RuleServing},
		{"a terminating pod is waited for", cluster(3, terminating(1)), "wait Terminating", rollout.RuleUpdatedSettle},
		{"a missing pod is waited for", cluster(3, missing(1)), "wait Terminating", rollout.RuleUpdatedSettle},
		{"a pod of somebody else in the place of ours holds",
			cluster(3, func(w *world) { w.pod(2).Owned = false }), "hold Inconsistent", rollout.RuleHeld},
		{"a pod that is being scaled away is no candidate, even when it is down",
			cluster(4, dead(3), replicas(3), learner(3)), "delete etcd-2", rollout.RuleServing},
		{"a pod below the first ordinal is no candidate",
			cluster(4, dead(0), leads(2), learner(0), replicas(3), startAt(1)), "delete etcd-3", rollout.RuleServing},
		{"scaled in from five to three with a new template: nothing goes before who is scaled away has gone",
			cluster(5, replicas(3)), "wait OthersLeaving", rollout.RuleServing},
		{"and who is scaled away is no survivor",
			cluster(5, replicas(3), overriding(rollout.GuardOthersLeaving)), "hold QuorumFloor", rollout.RuleServing},
		{"nor while its pod terminates", cluster(5, terminating(3, 4), replicas(3),
			overriding(rollout.GuardOthersLeaving)), "hold QuorumFloor", rollout.RuleServing},
		{"nor when its pod is gone, and the member is still listed",
			cluster(5, missing(3, 4), replicas(3)), "hold QuorumFloor", rollout.RuleServing},
		{"scaled in from four to three with a new template",
			cluster(4, replicas(3)), "wait OthersLeaving", rollout.RuleServing},
		{"scaled in from four to three, the pod terminating",
			cluster(4, terminating(3), replicas(3)), "wait OthersLeaving", rollout.RuleServing},
		{"scaled in, in order: its controller may wait for the pods that stay, so nobody waits for it",
			cluster(4, ordered(), replicas(3)), "hold QuorumFloor", rollout.RuleServing},
		{"scaled in, in order, and the pod terminates",
			cluster(4, ordered(), terminating(3), replicas(3)), "wait OthersLeaving", rollout.RuleServing},
		{"the ordinals move from 0 to 1: the lowest is scaled away",
			cluster(4, leads(1), replicas(3), startAt(1)), "wait OthersLeaving", rollout.RuleServing},
		{"the ordinals move from 0 to 1: if the lowest leads, leadership goes first",
			cluster(4, replicas(3), startAt(1)), "move leadership from etcd-0 to etcd-1", rollout.RuleMakeWay},
		{"the ordinals move from 0 to 1, the lowest terminating",
			cluster(4, leads(1), terminating(0), replicas(3), startAt(1)), "wait OthersLeaving", rollout.RuleServing},
		{"once the members that were scaled away are off the list, the rollout goes on",
			cluster(5, missing(3, 4), replicas(3), func(w *world) { w.state.Etcd.Members = w.state.Etcd.Members[:3] }),
			"delete etcd-2", rollout.RuleServing},
		{"scaled in from five to three: what is dead goes first all the same",
			cluster(5, dead(1), replicas(3)), "delete etcd-1", rollout.RuleNotServingFirst},
		{"leadership never goes to a member that is scaled away",
			cluster(4, leads(0), behind(10, 1, 2), updated(1, 2), replicas(3),
				overriding(rollout.GuardQuorumFloor, rollout.GuardOthersLeaving)),
			"move leadership from etcd-0 to etcd-1", rollout.RuleHandOverLeadership},
		{"one etcd cluster in three StatefulSets: each holds",
			cluster(1, outsiders(2)), "hold QuorumFloor", rollout.RuleServing},
		{"one etcd cluster in three StatefulSets: the one that trusts the others' members goes on",
			cluster(1, outsiders(2), trusting("ghost-0", "ghost-1")),
			"move leadership from etcd-0 to ghost-0", rollout.RuleHandOverLeadership},
		{"a healthy pod is evicted by default",
			cluster(3, func(w *world) { w.policy.Removal = rollout.DefaultPolicy().Removal }),
			"evict etcd-2", rollout.RuleServing},
		{"that of a single member too", cluster(1, evict), "evict etcd-0", rollout.RuleServing},
		{"where one eviction was refused, none is asked for again at once: a budget counts all pods",
			cluster(3, evict, refusedEviction), "wait DisruptionBudget", rollout.RuleServing},
		{"where a budget never allows one, the rollout holds",
			cluster(3, evict, neverEvicted), "hold DisruptionBudget", rollout.RuleServing},
		{"unless the operator has all pods deleted",
			cluster(3, evict, neverEvicted,
				func(w *world) { w.state.Controls.Override = []rollout.Guard{rollout.GuardDisruptionBudget} }),
			"delete etcd-2", rollout.RuleServing},
		{"a budget for more pods than the only one there is to be protects nothing",
			cluster(1, evict, mootBudget), "delete etcd-0", rollout.RuleServing},
		{"nor does it keep the pod from its gates",
			cluster(1, evict, mootBudget, gate("backup", false, false)), "hold HostGates", rollout.RuleServing},
		{"it is not taken for that where there are more voters",
			cluster(1, evict, mootBudget, outsiders(2), overriding(rollout.GuardQuorumFloor)),
			"hold DisruptionBudget", rollout.RuleServing},
		{"a refused eviction keeps no leader in office for its own sake",
			cluster(3, evict, refusedEviction, updated(1, 2)), "wait DisruptionBudget", rollout.RuleServing},
		{"a refused eviction keeps nobody who is deleted",
			cluster(3, refusedEviction), "delete etcd-2", rollout.RuleServing},
		{"nor a pod that has become sick since",
			cluster(3, evict, refusedEviction, sick(1)), "delete etcd-1", rollout.RuleServing},
		{"nor one that is not Ready, which a budget would keep from its cure",
			cluster(3, evict, refusedEviction, func(w *world) { w.pod(1).Ready = false }),
			"delete etcd-1", rollout.RuleServing},
		{"a pod with a sick sidecar is deleted all the same",
			cluster(3, sick(2), func(w *world) { w.policy.Removal = rollout.RemoveByEviction }),
			"delete etcd-2", rollout.RuleServing},
		{"a Ready pod of unknown health is evicted: it may serve others",
			cluster(5, updated(0, 1, 2, 3), unknown(4), func(w *world) { w.policy.Removal = rollout.RemoveByEviction }),
			"evict etcd-4", rollout.RuleServing},
		{"where two may go at once, the leader hands over before, while every voter serves",
			cluster(5, updated(4), maxUnavailable(2)), "move leadership from etcd-0 to etcd-4",
			rollout.RuleHandOverLeadership},
		{"but not before the first pod of the revision has settled",
			cluster(5, maxUnavailable(2)), "delete etcd-4", rollout.RuleServing},
		{"nor while a pod is away: it has its turn",
			cluster(5, updated(3, 4), sick(4), maxUnavailable(2)), "delete etcd-2", rollout.RuleServing},
		{"nor where quorum lets only one go at a time, whatever is allowed",
			cluster(3, updated(2), maxUnavailable(2)), "delete etcd-1", rollout.RuleServing},
		{"nor where a voter elsewhere that is not trusted leaves quorum for only one",
			cluster(5, updated(4), maxUnavailable(2), outsiders(2)), "delete etcd-3", rollout.RuleServing},
		{"nor where only one may go at a time",
			cluster(5, updated(4)), "delete etcd-3", rollout.RuleServing},
		{"nor if it stays behind the partition",
			cluster(5, updated(4), maxUnavailable(2), partition(1)), "delete etcd-3", rollout.RuleServing},
		{"nor if it has an update already",
			cluster(5, updated(0, 4), maxUnavailable(2)), "delete etcd-3", rollout.RuleServing},
		{"nor once more after that has failed, before its turn",
			cluster(5, updated(4), maxUnavailable(2), func(w *world) { w.state.FailedTransfers[id(0)] = 1 }),
			"delete etcd-3", rollout.RuleServing},
		{"nor to a member that others may be about to take",
			cluster(5, updated(4), cordoned(leavingPatience, 4), maxUnavailable(2)), "delete etcd-3",
			rollout.RuleServing},
		{"nor beside a voter elsewhere that does not answer",
			cluster(5, updated(4), maxUnavailable(2), ghosts(1)), "delete etcd-3", rollout.RuleServing},
		{"a second pod goes while the first settles, once the revision has proved itself",
			cluster(5, updated(3, 4), sick(4), maxUnavailable(2)), "delete etcd-2", rollout.RuleServing},
		{"a pod held at the partition is not what the standstill is blamed on",
			cluster(5, partition(1), sick(0), gate("backup", false, false)), "hold HostGates", rollout.RuleServing},

		{"a leader that does not answer us is the one that goes, and hands over first",
			cluster(3, noAnswer(0)), "move leadership from etcd-0 to etcd-1", rollout.RuleHandOverLeadership},
		{"while nobody knows who leads, nothing that votes goes: it may be the leader",
			cluster(3, noLeader()), "wait LeaderLast", rollout.RuleServing},
		{"while nobody knows who leads, a learner goes all the same",
			cluster(5, learner(4), noLeader()), "delete etcd-4", rollout.RuleServing},
		{"while nobody knows who leads, what is down goes all the same",
			cluster(3, dead(2), noLeader()), "delete etcd-2", rollout.RuleNotServingFirst},
		{"a leader that is not Ready does not wait for followers that are kept on its account",
			cluster(3, notReady(0)), "move leadership from etcd-0 to etcd-1", rollout.RuleHandOverLeadership},

		// Rule 8 and odd sizes.
		{"a single member goes whoever is known to lead", cluster(1, noLeader()), "delete etcd-0", rollout.RuleServing},
		{"two voters hold", cluster(2), "hold QuorumFloor", rollout.RuleServing},
		{"two voters hold for one replica too", cluster(1, outsiders(1)), "hold QuorumFloor", rollout.RuleServing},
		{"one of two voters that is down is replaced",
			cluster(2, alive(0), dead(1)), "delete etcd-1", rollout.RuleNotServingFirst},
		{"a single member that is down is replaced", cluster(1, dead(0)), "delete etcd-0", rollout.RuleNotServingFirst},
		{"a single member that only hangs gets time",
			cluster(1, alive(0)), "wait QuorumPatience", rollout.RuleNotServingFirst},
		{"a scale-out from one to three waits for the new pods",
			cluster(3, updated(1, 2), starting(1, 2),
				func(w *world) { w.state.Etcd.Members = w.state.Etcd.Members[:1] }), "wait UpdatedPending",
			rollout.RuleUpdatedSettle},
		{"a scale-out from one to three waits until the new members vote",
			cluster(3, updated(1, 2), learner(1, 2)), "wait UpdatedPending", rollout.RuleUpdatedSettle},
		{"a scale-out from one to three goes on once they vote",
			cluster(3, updated(1, 2)), "move leadership from etcd-0 to etcd-1", rollout.RuleHandOverLeadership},
	} {
		t.Run(tc.name, func(t *testing.T) {
			d := tc.world.decide()
			if got := say(d); got != tc.want || d.Rule != tc.rule {
				t.Errorf("got %s by rule %s, want %s by rule %s\nreason: %s", got, d.Rule, tc.want, tc.rule, d.Reason())
			}
			if d.Reason() == "" {
				t.Error("there is no reason")
			}
			if d.Assessment == nil {
				t.Error("there is no assessment")
			}
		})
	}
}

// Every guard of a removal: a row without holds passes them all, a row with holds
// fails that one alone.
func TestGuardsOfACandidate(t *testing.T) {
	const none = rollout.Guard("")
	failingAndNoneSettled := func(changes ...change) *world { // etcd-4 is updated and fails; quorum is fine.
		return cluster(5, updated(4), dead(4)).with(changes...)
	}
	for _, tc := range []struct {
		name  string
		world *world
		pod   string
		holds rollout.Guard
	}{
		// Rule 4.
		{"MayVote passes while the serving voters alone are a quorum", cluster(3, alive(2)), "etcd-2", none},
		{"MayVote passes for a dead container", cluster(3, dead(2)), "etcd-2", none},
		{"MayVote holds the dead where one of them has to be voting, because a member serves",
			cluster(3, dead(1, 2)), "etcd-2", rollout.GuardMayVote},
		{"MayVote passes for the dead that are too few to be a quorum's", cluster(5, dead(3, 4)), "etcd-4", none},
		{"MayVote counts what is going among those that cannot be relied on to vote",
			cluster(5, terminating(2), dead(3, 4)), "etcd-4", rollout.GuardMayVote},
		{"MayVote holds what may vote when too few others could",
			cluster(3, dead(1), alive(2)), "etcd-2", rollout.GuardMayVote},
		{"MayVote holds what is only starting in the same way",
			cluster(3, dead(1), starting(2)), "etcd-2", rollout.GuardMayVote},
		{"MayVote passes while enough others may vote", cluster(5, alive(2, 3, 4)), "etcd-4", none},
		{"MayVote does not count what is already going",
			cluster(5, alive(2, 3, 4), terminating(2, 3), overriding(rollout.GuardRevisionSuspect)),
			"etcd-4", rollout.GuardMayVote},
		{"MayVote counts voters elsewhere, which nobody knows to be dead",
			cluster(3, dead(1), alive(2), outsiders(2)), "etcd-2", none},
		{"MayVote does not count a voter out of range whose pod terminates, even while it answers",
			cluster(4, replicas(3), alive(2), terminating(3)), "etcd-2", rollout.GuardMayVote},
		{"MayVote passes for a learner", cluster(4, dead(1, 2), alive(3), learner(3)), "etcd-3", none},
		{"MayVote does not count on what is only starting",
			cluster(3, updated(1), starting(1), alive(2), overriding(rollout.GuardRevisionSuspect)),
			"etcd-2", rollout.GuardMayVote},
		{"MayVote does not count on a ghost", cluster(3, alive(2), ghosts(1)), "etcd-2", rollout.GuardMayVote},
		{"MayVote does not count on what ran on a node that is lost",
			cluster(3, noAnswer(1), alive(2), func(w *world) { w.pod(1).Ready = false }),
			"etcd-2", rollout.GuardMayVote},
		{"MayVote does not count on what is Unknown: it may hang, and its kubelet not know it yet",
			cluster(3, noAnswer(1), alive(2)), "etcd-2", rollout.GuardMayVote},
		{"MayVote counts what is Down and runs: it may be just as deaf", cluster(3, alive(1, 2)), "etcd-2", none},
		{"MayVote lets go what is starting when those that run are enough",
			cluster(3, alive(1), starting(2)), "etcd-2", none},
		{"MayVote holds a pod that may run a voter that could not be matched",
			cluster(3, dead(1), notReady(2), unmatched(2)), "etcd-2", rollout.GuardMayVote},
		{"MayVote passes for it while the others alone are a quorum",
			cluster(3, notReady(2), unmatched(2)), "etcd-2", none},
		{"MayVote passes when nobody serves", cluster(3, starting(0, 1, 2)), "etcd-2", none},

		{"QuorumPatience leaves a live process alone at first",
			cluster(3, alive(0, 1, 2)), "etcd-2", rollout.GuardQuorumPatience},
		{"QuorumPatience leaves it alone until the last moment",
			cluster(3, alive(0, 1, 2), quorumLostFor(patience-1)), "etcd-2", rollout.GuardQuorumPatience},
		{"QuorumPatience ends after settleTimeout",
			cluster(3, alive(0, 1, 2), quorumLostFor(patience)), "etcd-2", none},
		{"QuorumPatience does not bind what is starting", cluster(3, alive(0, 1), starting(2)), "etcd-2", none},
		{"QuorumPatience does not bind what is dead", cluster(3, alive(0, 1), dead(2)), "etcd-2", none},
		{"QuorumPatience waits for a terminating pod",
			cluster(3, alive(0, 1, 2), terminating(0), overriding(rollout.GuardRevisionSuspect),
				quorumLostFor(patience)),
			"etcd-2", rollout.GuardQuorumPatience},
		{"QuorumPatience waits for a missing pod",
			cluster(3, alive(0, 1, 2), missing(0), overriding(rollout.GuardRevisionSuspect), quorumLostFor(patience)),
			"etcd-2", rollout.GuardQuorumPatience},
		{"QuorumPatience gives an updated pod time",
			cluster(3, alive(0, 1, 2), updated(0), overriding(rollout.GuardRevisionSuspect), quorumLostFor(patience),
				aged(rollout.PodSeen, patience-1, 0)), "etcd-2", rollout.GuardQuorumPatience},
		{"QuorumPatience gives an updated pod no more than that",
			cluster(3, alive(0, 1, 2), updated(0), overriding(rollout.GuardRevisionSuspect), quorumLostFor(patience),
				aged(rollout.PodSeen, patience, 0)), "etcd-2", none},

		{"QuorumPatience holds while an updated pod is dead: the update is no cure",
			cluster(3, updated(0), dead(0), alive(1, 2), overriding(rollout.GuardRevisionSuspect),
				quorumLostFor(patience), aged(rollout.PodSeen, patience, 0)), "etcd-2", rollout.GuardQuorumPatience},

		{"RevisionSuspect holds what runs while the revision is in doubt",
			failingAndNoneSettled(alive(3)), "etcd-3", rollout.GuardRevisionSuspect},
		{"RevisionSuspect holds what went down just now",
			failingAndNoneSettled(dead(3)), "etcd-3", rollout.GuardRevisionSuspect},
		{"RevisionSuspect holds until the last moment",
			failingAndNoneSettled(starting(3), aged(rollout.NotRunningSeen, patience-1, 3)),
			"etcd-3", rollout.GuardRevisionSuspect},
		{"RevisionSuspect lets go what stayed dead",
			failingAndNoneSettled(dead(3), aged(rollout.NotRunningSeen, patience, 3)), "etcd-3", none},
		{"RevisionSuspect lets go what stayed starting",
			failingAndNoneSettled(starting(3), aged(rollout.NotRunningSeen, patience, 3)), "etcd-3", none},
		{"RevisionSuspect lets go what has crash-looped for as long, though it ran in between",
			failingAndNoneSettled(dead(3), restarted(3), aged(rollout.RestartingSeen, patience, 3)), "etcd-3", none},
		{"RevisionSuspect holds what starts anew after long trouble: it may be its node that was rebooted",
			failingAndNoneSettled(starting(3), restarted(3), aged(rollout.RestartingSeen, patience, 3)),
			"etcd-3", rollout.GuardRevisionSuspect},
		{"RevisionSuspect ends when a pod of the revision has settled",
			failingAndNoneSettled(alive(3), updated(1)), "etcd-3", none},
		{"RevisionSuspect holds what stopped, as in a reboot, without that its kubelet backs off",
			failingAndNoneSettled(exited(3), restarted(3), aged(rollout.RestartingSeen, patience, 3)),
			"etcd-3", rollout.GuardRevisionSuspect},
		{"RevisionSuspect keeps a member that starts while the first updated one comes up: its node may have rebooted",
			cluster(5, updated(4), starting(4), starting(3)), "etcd-3", rollout.GuardRevisionSuspect},
		{"RevisionSuspect keeps it while the first one terminates",
			cluster(5, terminating(4), starting(3)), "etcd-3", rollout.GuardRevisionSuspect},
		{"RevisionSuspect keeps it while the first one is missing",
			cluster(5, missing(4), starting(3)), "etcd-3", rollout.GuardRevisionSuspect},
		{"RevisionSuspect keeps it while the first one serves and is not Ready yet",
			cluster(5, updated(4), notReady(4), starting(3)), "etcd-3", rollout.GuardRevisionSuspect},
		{"RevisionSuspect keeps what has ended, though it counts as dead, while the first one comes up",
			cluster(5, updated(4), starting(4), exited(3)), "etcd-3", rollout.GuardRevisionSuspect},
		{"RevisionSuspect keeps what has started again and is not Ready yet",
			cluster(5, updated(4), starting(4), alive(3)), "etcd-3", rollout.GuardRevisionSuspect},
		{"RevisionSuspect keeps a second one after a power cut",
			cluster(3, starting(0, 1, 2), updated(2)), "etcd-1", rollout.GuardRevisionSuspect},
		{"RevisionSuspect lets one go after a power cut", cluster(3, starting(0, 1, 2)), "etcd-2", none},
		{"RevisionSuspect lets go what has been starting for long",
			cluster(5, updated(4), starting(4), starting(3), aged(rollout.NotRunningSeen, patience, 3)),
			"etcd-3", none},
		{"RevisionSuspect lets go what its kubelet backs off from, at once: it does not come back by itself",
			cluster(3, updated(2), starting(2), dead(0, 1)), "etcd-1", none},
		{"RevisionSuspect keeps what has answered for itself since its kubelet backed off from it",
			cluster(5, updated(4), starting(4), dead(3), answersForItself(3)), "etcd-3",
			rollout.GuardRevisionSuspect},
		{"RevisionSuspect does not stand in the way of a fix: what runs the broken revision is outdated then",
			cluster(3, alive(2), func(w *world) { w.pod(2).Revision = "rev-broken" }), "etcd-2", none},
		{"RevisionSuspect has no doubt once a pod of the revision has settled",
			cluster(5, updated(0, 4), starting(4), starting(3)), "etcd-3", none},

		{"DataSurvives passes with persistent data", cluster(1), "etcd-0", none},
		{"DataSurvives holds a single member with volatile data",
			cluster(1, volatileData()), "etcd-0", rollout.GuardDataSurvives},
		{"DataSurvives holds a single member with volatile data that is dead",
			cluster(1, volatileData(), dead(0)), "etcd-0", rollout.GuardDataSurvives},
		{"DataSurvives holds a single member whose own pod has volatile data, whatever the template says by now",
			cluster(1, ownVolatileData(0)), "etcd-0", rollout.GuardDataSurvives},
		{"DataSurvives passes for a pod whose own data outlives it, beside others",
			cluster(3, ownVolatileData(0, 1), dead(0, 2), alive(1), neverReady(0)), "etcd-2", none},
		{"DataSurvives does not count what came up empty, where pods of the old template have volatile data",
			cluster(3, ownVolatileData(0, 1, 2), dead(0, 2), alive(1), neverReady(0)), "etcd-2",
			rollout.GuardDataSurvives},
		{"DataSurvives passes when that is allowed",
			cluster(1, volatileData(), func(w *world) { w.policy.AllowVolatileData = true }), "etcd-0", none},
		{"DataSurvives passes while the others hold a quorum of data", cluster(3, volatileData()), "etcd-2", none},
		{"DataSurvives counts the data of dead containers", cluster(3, volatileData(), dead(0, 1, 2)), "etcd-2", none},
		{"DataSurvives does not count what comes up empty",
			cluster(3, volatileData(), alive(0), dead(1, 2), updated(1), aged(rollout.NotRunningSeen, patience, 2)),
			"etcd-2", rollout.GuardDataSurvives},
		{"DataSurvives does not count what came up empty and was outdated by the next fix",
			cluster(3, volatileData(), alive(0), dead(1, 2), neverReady(1)), "etcd-2", rollout.GuardDataSurvives},
		{"DataSurvives counts what serves, whatever its pod went through",
			cluster(3, volatileData(), sick(1), neverReady(1), dead(2)), "etcd-2", none},
		{"DataSurvives does not count a voter that may run in the very pod",
			cluster(3, volatileData(), dead(1), neverReady(1), notReady(2), unmatched(2),
				overriding(rollout.GuardMayVote)), "etcd-2", rollout.GuardDataSurvives},
		{"DataSurvives does not count a ghost",
			cluster(3, volatileData(), starting(2), ghosts(2), overriding(rollout.GuardMayVote)),
			"etcd-2", rollout.GuardDataSurvives},
		{"DataSurvives does not count voters elsewhere that answer: they may go at any time",
			cluster(3, volatileData(), dead(2), outsiders(2)), "etcd-2", rollout.GuardDataSurvives},
		{"DataSurvives counts those that are trusted",
			cluster(3, volatileData(), dead(2), outsiders(2), trusting("ghost-0")), "etcd-2", none},
		{"DataSurvives holds when the voters are not known",
			cluster(3, volatileData(), dead(2), noMemberList()), "etcd-2", rollout.GuardDataSurvives},

		{"VotersUnknown holds what is not dead", cluster(1, noMemberList(), func(w *world) {
			w.with(notReady(0))
			w.pod(0).Etcd.State = rollout.ContainerTerminated
		}), "etcd-0", rollout.GuardVotersUnknown},
		{"VotersUnknown passes for what stayed terminated",
			cluster(1, noMemberList(), aged(rollout.TerminatedSeen, 10*time.Second, 0), func(w *world) {
				w.with(notReady(0))
				w.pod(0).Etcd.State = rollout.ContainerTerminated
			}), "etcd-0", none},

		// Rule 6.
		{"QuorumFloor passes in a healthy cluster of three", cluster(3), "etcd-2", none},
		{"QuorumFloor does not count a voter elsewhere as a survivor, though it answers",
			cluster(3, outsiders(1)), "etcd-2", rollout.GuardQuorumFloor},
		{"QuorumFloor counts a trusted one", cluster(3, outsiders(1), trusting("ghost-0")), "etcd-2", none},
		{"QuorumFloor does not count a trusted one that does not answer",
			cluster(3, ghosts(1), trusting("ghost-0")), "etcd-2", rollout.GuardQuorumFloor},
		{"QuorumFloor counts nobody who is not named",
			cluster(3, outsiders(1), trusting("ghost-1", "")), "etcd-2", rollout.GuardQuorumFloor},
		{"QuorumFloor does not count one whose pod is ours and out of range, named or not",
			cluster(4, replicas(3), trusting("etcd-3"), overriding(rollout.GuardOthersLeaving)),
			"etcd-2", rollout.GuardQuorumFloor},
		{"QuorumFloor does not count it when it is named otherwise than its pod",
			cluster(4, replicas(3), func(w *world) { w.member(3).Name = "three" }, trusting("three"),
				overriding(rollout.GuardOthersLeaving)),
			"etcd-2", rollout.GuardQuorumFloor},
		{"QuorumFloor counts nobody elsewhere while a pod of ours matches no member",
			cluster(5, unmatched(4), outsiders(2), maxUnavailable(3), trusting("ghost-0", "ghost-1", "unheard-of-4"),
				overriding(rollout.GuardVotersUnknown)), "etcd-3", rollout.GuardQuorumFloor},
		{"QuorumFloor counts ghosts as voters", cluster(3, ghosts(1)), "etcd-2", rollout.GuardQuorumFloor},
		{"QuorumFloor counts a quorum of trusted ones",
			cluster(3, outsiders(2), trusting("ghost-1", "ghost-0")), "etcd-2", none},
		{"QuorumFloor does not count learners as voters", cluster(5, learner(3, 4)), "etcd-2", none},
		{"QuorumFloor does not count learners as survivors",
			cluster(4, learner(3), ghosts(1)), "etcd-2", rollout.GuardQuorumFloor},
		{"QuorumFloor holds two voters", cluster(3, learner(2)), "etcd-1", rollout.GuardQuorumFloor},
		{"QuorumFloor lets a learner of two voters go", cluster(3, learner(2)), "etcd-2", none},
		{"QuorumFloor exempts a single member", cluster(1), "etcd-0", none},
		{"QuorumFloor does not exempt the only voter of three replicas",
			cluster(3, learner(1, 2), sick(0)), "etcd-0", rollout.GuardQuorumFloor},
		{"QuorumFloor does not count on what is already going",
			cluster(5, updated(0, 1), maxUnavailable(4), terminating(4), ghosts(1)),
			"etcd-3", rollout.GuardQuorumFloor},
		{"QuorumFloor does not count a voter that may run in the very pod",
			cluster(3, unmatched(0, 1, 2), noAnswer(0), maxUnavailable(3)), "etcd-2", rollout.GuardQuorumFloor},
		{"QuorumFloor does not count a voter that may run in a pod that is going",
			cluster(5, updated(0), unmatched(4), terminating(4), noAnswer(1), maxUnavailable(3)),
			"etcd-3", rollout.GuardQuorumFloor},
		{"QuorumFloor does not count a member whose answer is from before a pause",
			cluster(5, answeredAt(term-1, 1, 2), maxUnavailable(3)), "etcd-3", rollout.GuardQuorumFloor},
		{"QuorumFloor does not judge by terms that are not known", cluster(3, answeredAt(0, 1)), "etcd-2", none},

		{"VotersUnknown holds a serving member on a list that only one member has",
			cluster(3, localList(1)), "etcd-2", rollout.GuardVotersUnknown},
		{"VotersUnknown passes where a quorum of voters return the same", cluster(3, localList(2)), "etcd-2", none},
		{"VotersUnknown lets go what is down on a local list", cluster(3, localList(0), dead(2)), "etcd-2", none},
		{"VotersUnknown holds what may vote on a local list",
			cluster(3, localList(1), alive(2)), "etcd-2", rollout.GuardVotersUnknown},
		{"VotersUnknown holds what is Unknown on a local list",
			cluster(3, localList(1), unknown(2), updated(0, 1)), "etcd-2", rollout.GuardVotersUnknown},
		{"QuorumFloor counts a member of unknown health as if it served",
			cluster(3, unknown(2), updated(0, 1)), "etcd-2", none},

		{"UnavailableBudget holds while another is unknown",
			cluster(5, unknown(4)), "etcd-3", rollout.GuardUnavailableBudget},
		{"UnavailableBudget holds while another is missing",
			cluster(5, updated(0), missing(4)), "etcd-3", rollout.GuardUnavailableBudget},
		{"UnavailableBudget holds while another is terminating",
			cluster(5, updated(0), terminating(4)), "etcd-3", rollout.GuardUnavailableBudget},
		{"UnavailableBudget holds while an updated pod settles",
			cluster(5, updated(0, 4), sick(4)), "etcd-3", rollout.GuardUnavailableBudget},
		{"UnavailableBudget passes within a larger budget",
			cluster(5, updated(0, 4), sick(4), maxUnavailable(2)), "etcd-3", none},
		{"UnavailableBudget does not count an outdated pod with a sick sidecar", cluster(5, sick(4)), "etcd-3", none},
		{"UnavailableBudget does not count ghosts", cluster(5, ghosts(1)), "etcd-4", none},
		{"UnavailableBudget does not count outdated learners",
			cluster(5, updated(2), learner(4), unknown(4)), "etcd-3", none},
		{"UnavailableBudget counts an updated learner, which has not settled",
			cluster(5, updated(2, 4), learner(4)), "etcd-3", rollout.GuardUnavailableBudget},
		{"UnavailableBudget lets a learner go without a share",
			cluster(5, updated(0, 3), sick(3), learner(4)), "etcd-4", none},

		{"Canary holds the second pod of a revision",
			cluster(5, updated(4), sick(4), maxUnavailable(2)), "etcd-3", rollout.GuardCanary},
		{"Canary holds while the first one is still on its way out",
			cluster(5, terminating(4), maxUnavailable(2)), "etcd-3", rollout.GuardCanary},
		{"Canary passes for the first", cluster(5, maxUnavailable(2)), "etcd-4", none},
		{"Canary passes once one has settled", cluster(5, updated(3, 4), sick(4), maxUnavailable(2)), "etcd-2", none},

		{"EndpointFloor holds the last Ready pods", cluster(3, sick(0, 1)), "etcd-2", rollout.GuardEndpointFloor},
		{"EndpointFloor lets a pod go that is not Ready", cluster(3, sick(0, 1)), "etcd-1", none},
		{"EndpointFloor passes while a quorum stays Ready", cluster(5, sick(0, 1)), "etcd-1", none},
		{"EndpointFloor exempts a single member", cluster(1), "etcd-0", none},

		{"Recreation passes with every lower pod Ready", cluster(3, ordered()), "etcd-2", none},
		{"Recreation holds a dead pod above another that is dead",
			cluster(5, ordered(), dead(1, 3)), "etcd-3", rollout.GuardRecreation},
		{"Recreation passes for the lowest of them", cluster(5, ordered(), dead(1, 3)), "etcd-1", none},
		{"Recreation holds while a lower pod is missing",
			cluster(5, ordered(), missing(1), dead(3)), "etcd-3", rollout.GuardRecreation},
		{"Recreation holds while a lower pod terminates",
			cluster(5, ordered(), terminating(1), dead(3)), "etcd-3", rollout.GuardRecreation},
		{"Recreation holds while a lower pod is not Ready, its sidecar being sick",
			cluster(5, ordered(), sick(1)), "etcd-3", rollout.GuardRecreation},
		{"Recreation holds while a lower pod is Ready for less than minReadySeconds",
			cluster(5, ordered(), dead(3), func(w *world) { w.state.Set.MinReady = time.Second }),
			"etcd-3", rollout.GuardRecreation},
		{"Recreation passes once it is available",
			cluster(4, ordered(), dead(3), func(w *world) { w.state.Set.MinReady = time.Second },
				aged(rollout.ReadySeen, time.Second, 0, 1, 2)), "etcd-3", none},
		{"Recreation asks nothing of higher pods", cluster(5, ordered(), dead(3), missing(4)), "etcd-3", none},
		{"Recreation asks nothing of pods below the first ordinal",
			cluster(5, ordered(), dead(0), dead(4), learner(0), replicas(4), startAt(1)), "etcd-4", none},
		{"Recreation does not let a live process go to open the way for a dead one",
			cluster(3, ordered(), alive(0), dead(1, 2), quorumLostFor(patience)), "etcd-0", rollout.GuardRecreation},
		{"Recreation lets a live process go that does not serve while quorum is there",
			cluster(5, ordered(), alive(0), dead(3), leads(1)), "etcd-0", none},
		{"Recreation does not bind Parallel", cluster(5, dead(1, 3)), "etcd-3", none},

		{"CaughtUp holds while a survivor that is needed lags",
			cluster(3, behind(5000, 1)), "etcd-2", rollout.GuardCaughtUp},
		{"CaughtUp passes just below the limit", cluster(3, behind(4999, 1)), "etcd-2", none},
		{"CaughtUp passes while enough others are close", cluster(5, behind(6000, 1)), "etcd-4", none},
		{"CaughtUp lets the one that lags go", cluster(3, behind(6000, 2)), "etcd-2", none},
		{"CaughtUp does not trust a survivor without a status",
			cluster(3, func(w *world) { w.member(1).Probe.Status = nil }), "etcd-2", rollout.GuardCaughtUp},
		{"CaughtUp exempts a single member", cluster(1, behind(6000, 0)), "etcd-0", none},

		{"HostGates holds on a gate that fails",
			cluster(3, gate("backup", false, false)), "etcd-2", rollout.GuardHostGates},
		{"HostGates passes when all gates do",
			cluster(3, gate("backup", true, false), gate("maintenance", true, true)), "etcd-2", none},
		{"HostGates does not bind a pod with a sick sidecar",
			cluster(3, sick(2), gate("backup", false, false)), "etcd-2", none},
		{"HostGates binds it when the gate says so",
			cluster(3, sick(2), gate("maintenance", false, true)), "etcd-2", rollout.GuardHostGates},

		{"LeaderLast holds a healthy leader while followers are candidates",
			cluster(3), "etcd-0", rollout.GuardLeaderLast},
		{"LeaderLast holds what may be the leader", cluster(3, noLeader()), "etcd-2", rollout.GuardLeaderLast},
		{"LeaderLast passes for what is no voter", cluster(5, learner(4), noLeader()), "etcd-4", none},
		{"LeaderLast does not bind a leader whose pod is not Ready", cluster(3, notReady(0)), "etcd-0", none},
		{"LeaderLast does not bind a leader that does not answer us: no follower could ever go before it",
			cluster(3, noAnswer(0)), "etcd-0", none},
		{"LeaderLast passes when they are done", cluster(3, updated(1, 2)), "etcd-0", none},
		{"LeaderLast does not bind a leader with a sick sidecar", cluster(3, sick(0)), "etcd-0", none},
		{"LeaderLast does not wait for followers below the partition",
			cluster(3, leads(2), partition(2)), "etcd-2", none},
		{"LeaderLast does not wait for what is unknown",
			cluster(5, updated(0, 1, 2), leads(3), unknown(4), maxUnavailable(2)), "etcd-3", none},

		{"Partition holds what is below it", cluster(3, leads(2), partition(1)), "etcd-0", rollout.GuardPartition},
		{"Partition passes at it", cluster(3, leads(2), partition(1)), "etcd-1", none},
		{"Partition holds what is below it even when it is dead",
			cluster(3, leads(2), partition(1), dead(0)), "etcd-0", rollout.GuardPartition},
	} {
		t.Run(tc.name, func(t *testing.T) {
			d := tc.world.decide()
			failed, considered := failedGuards(d, tc.pod)
			if !considered {
				t.Fatalf("%s was not a candidate: %s: %s", tc.pod, say(d), d.Reason())
			}
			var want []rollout.Guard
			if tc.holds != none {
				want = []rollout.Guard{tc.holds}
			}
			if !slices.Equal(failed, want) {
				t.Errorf("%s fails %v, want %v", tc.pod, failed, want)
				for _, g := range failed {
					t.Logf("%s: %s", g, detailOf(d, tc.pod, g))
				}
			}
			if tc.holds != none && d.Acts() && d.Target().Pod == tc.pod {
				t.Errorf("and yet: %s", say(d))
			}
		})
	}
}

func TestALeaderHandsOverToTheBestVoter(t *testing.T) {
	// Five outdated voters, of which etcd-4 leads and is next.
	onlyOutdatedVoters := func(c change) *world {
		return cluster(5, leads(4), sick(4), maxUnavailable(2), overriding(rollout.GuardCanary), c)
	}
	lastOne := func(changes ...change) *world { return cluster(5, updated(1, 2, 3, 4)).with(changes...) }
	for _, tc := range []struct {
		name  string
		world *world
		want  string
	}{
		{"settled before outdated", cluster(3, leads(2), sick(2), updated(1)), "move leadership from etcd-2 to etcd-1"},
		{"a healthy sidecar before a sick one",
			cluster(5, sick(0, 1, 2), leads(2), updated(3, 4), sick(3), maxUnavailable(2)), "delete etcd-1"},
		{"a healthy sidecar before a sick one, among outdated ones",
			cluster(5, leads(4), sick(0, 4), partition(1)), "move leadership from etcd-4 to etcd-1"},
		{"the most caught up among equals",
			lastOne(behind(30, 1), behind(20, 2), behind(10, 3), behind(20, 4)),
			"move leadership from etcd-0 to etcd-3"},
		{"settled before more caught up",
			cluster(3, leads(2), sick(2), updated(1), behind(10, 1)), "move leadership from etcd-2 to etcd-1"},
		{"never a learner", cluster(5, leads(1), learner(0), updated(2, 3, 4), partition(1), behind(10, 2, 3, 4)),
			"move leadership from etcd-1 to etcd-2"},
		{"never a member that is unknown",
			onlyOutdatedVoters(func(w *world) { w.member(0).Probe.Read = rollout.Failed }),
			"move leadership from etcd-4 to etcd-1"},
		{"never one on its way out", onlyOutdatedVoters(terminating(0)), "move leadership from etcd-4 to etcd-1"},
		{"a trusted voter elsewhere when there is no other",
			cluster(1, outsiders(4), trusting("ghost-1", "ghost-2", "ghost-3")),
			"move leadership from etcd-0 to ghost-1"},
		{"never a voter elsewhere that nobody trusts",
			cluster(1, outsiders(2), overriding(rollout.GuardQuorumFloor)), "delete etcd-0"},
		{"never a member whose answer is from before a pause",
			lastOne(answeredAt(term-1, 1), maxUnavailable(2)), "move leadership from etcd-0 to etcd-2"},
		{"one failed transfer is tried again",
			lastOne(func(w *world) { w.state.FailedTransfers[id(0)] = 1 }), "move leadership from etcd-0 to etcd-1"},
		{"two failed transfers let it go as leader",
			lastOne(func(w *world) { w.state.FailedTransfers[id(0)] = 2 }), "delete etcd-0"},
		{"failed transfers of another member do not count",
			lastOne(func(w *world) { w.state.FailedTransfers[id(3)] = 2 }), "move leadership from etcd-0 to etcd-1"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			d := tc.world.decide()
			if got := say(d); got != tc.want {
				t.Errorf("got %s, want %s: %s", got, tc.want, d.Reason())
			}
			if move, ok := d.Action.(rollout.MoveLeader); ok && move.Target.Pod != move.Transfer.FromName {
				t.Errorf("the target is %+v, want the pod that leads, %s", move.Target, move.Transfer.FromName)
			}
		})
	}
}

// What a removal targets is the very object that was observed.
func TestARemovalNamesTheObservedPod(t *testing.T) {
	d := cluster(3, func(w *world) { w.pod(2).UID, w.pod(2).ResourceVersion = "the-uid", "4711" }).decide()
	if want := (rollout.Target{Pod: "etcd-2", UID: "the-uid", ResourceVersion: "4711",
		Ordinal: 2}); d.Target() != want {
		t.Errorf("target %+v, want %+v", d.Target(), want)
	}
}

// The decision is the same whatever the order in which pods and members are listed,
// and deciding changes nothing in its input.
func TestTheOrderOfTheFactsDoesNotMatter(t *testing.T) {
	for _, w := range []*world{
		cluster(3), cluster(5, dead(1), alive(3)), cluster(5, sick(1, 2), leads(3)), cluster(3, ghosts(2)),
		cluster(3, updated(1, 2)),
	} {
		first := w.decide()
		reversed := w.state
		reversed.Pods = slices.Clone(w.state.Pods)
		reversed.Etcd.Members = slices.Clone(w.state.Etcd.Members)
		slices.Reverse(reversed.Pods)
		slices.Reverse(reversed.Etcd.Members)
		second := rollout.Decide(reversed, w.policy)
		if say(first) != say(second) || first.Reason() != second.Reason() {
			t.Errorf(
				"%s (%s), with the facts reversed %s (%s)",
				say(first),
				first.Reason(),
				say(second),
				second.Reason(),
			)
		}
		if again := w.decide(); say(again) != say(first) || again.Reason() != first.Reason() {
			t.Errorf("%s, and then from the same facts %s", say(first), say(again))
		}
	}
}

func TestReasonsCarryTheirNumbers(t *testing.T) {
	for _, tc := range []struct {
		name  string
		world *world
		want  string
	}{
		{"quorum", cluster(3), "its member serves; 3 of 3 voters serve, quorum 2, removing this one leaves 2"},
		{"down",
			cluster(3, dead(2)),
			"its member is Down (dead, CrashLoopBackOff); the container is dead, no process votes"},
		{"down after restarts",
			cluster(3, dead(2), restarted(2)),
			"its member is Down (dead, CrashLoopBackOff, restarts: 3); the container is dead, no process votes"},
		{"an alarm that does not hold",
			cluster(3, func(w *world) { w.member(2).Probe.Status.NoSpace = true }),
			"its member serves, alarm NOSPACE; 3 of 3 voters serve, quorum 2, removing this one leaves 2"},
		{"down and alive",
			cluster(5, alive(4)),
			"its member is Down (alive, no linearizable read: timed out); 4 of 5 voters serve, quorum 3 is " +
				"reached without this one"},
		{"hand-over",
			cluster(3, updated(1, 2)),
			"etcd-0 leads and is next; etcd-1 takes over first, so that no election is needed"},
		{"complete", cluster(5, allUpdated()), "5 of 5 pods are up to date and settled"},
		{"complete with a partition",
			cluster(3, updated(2), partition(2)),
			"1 of 3 pods are up to date and settled, those below partition 2 may stay behind"},
		{"generation",
			cluster(3, func(w *world) { w.state.Set.Generation = 8 }),
			"the StatefulSet controller has not observed generation 8 yet (only 3), so updateRevision may be stale"},
		{"voters elsewhere",
			cluster(3, outsiders(1)),
			"etcd-2: 4 of 4 voters serve, quorum 3, removing this one leaves 2; voters without a pod among the " +
				"StatefulSet's ordinals, which may go at any time, are not counted on: 1; voters without a pod here: " +
				"ghost-0 (ID 900, https://10.0.0.9:2379, serves)"},
		{"a mapping of pods to members that has failed",
			cluster(3, unmatched(0, 1, 2)),
			"etcd-2: 3 of 3 voters serve, quorum 2, removing this one leaves 0; pods that could not be matched to a " +
				"member: 3, so no member elsewhere is counted on"},
		{"no container of the name",
			cluster(3, func(w *world) { w.pod(1).NoEtcdContainer = true }),
			"pod etcd-1 has no container of the name that etcd's is expected to have, so its kubelet tells nothing " +
				"about its member"},
		{"two members for one pod", cluster(3, func(w *world) {
			w.member(1).Name, w.member(2).Name = "a", ""
			w.member(1).PeerURLs, w.member(2).PeerURLs = []string{"http://etcd-2.one:2380"},
				[]string{"http://etcd-2.two:2380"}
		}), "pod etcd-2 matches more than one member by the first label of their URLs: a and 3"},
		{"an answer from before a pause",
			cluster(5, updated(4), answeredAt(term-1, 4)),
			"waiting for etcd-4: its member is Unknown (it answered a read of raft term 6, and another one of a " +
				"later term)"},
		{"no way in order",
			cluster(3, ordered(), alive(0), dead(1, 2)), "etcd-1: it would not be recreated until the pod of ordinal " +
				"0 is Ready, which runs and is left alone: " +
				"recreate the StatefulSet with podManagementPolicy Parallel (kubectl delete statefulset " +
				"--cascade=orphan, which leaves its pods, then apply it again)"},
		{"no way in order for a process that runs either", cluster(3, ordered(), sick(1), alive(2)),
			"etcd-2: it would not be recreated until the pod of ordinal 1 is Ready, which runs and is left alone: " +
				"recreate the StatefulSet with podManagementPolicy Parallel (kubectl delete statefulset " +
				"--cascade=orphan, which leaves its pods, then apply it again)"},
		{"failing for want of quorum, the next one kept in order",
			cluster(3, ordered(), updated(0), alive(0), dead(1, 2),
				aged(rollout.UnsettledSeen, patience, 0), aged(rollout.NotRunningSeen, patience, 1, 2)),
			"updated pod etcd-0 is failing: its member is Down (alive, no linearizable read: timed out); without " +
				"quorum nothing settles; if the template is right, look at what keeps the next pod (etcd-1, " +
				"Recreation: it would not be recreated until the pod of ordinal 0 is Ready, " +
				"which runs and is left alone: recreate the StatefulSet with podManagementPolicy Parallel (kubectl " +
				"delete statefulset " +
				"--cascade=orphan, which leaves its pods, then apply it again)); otherwise, if the template is to " +
				"blame, fix it: this pod is then replaced first"},
		{"failing for want of quorum, the others kept because they run", hung(),
			"updated pod etcd-2 is failing: its member is Down (alive, no linearizable read: timed out); without " +
				"quorum nothing settles; if the template is right, look at what keeps the next pod (etcd-1, " +
				"RevisionSuspect: the new revision is " +
				"suspect " +
				"(updated pods failing: 1, settled: 0), and this process runs); otherwise, if the template is to " +
				"blame, fix it: this pod is then replaced first"},
		{"rolled back with quorum lost, the broken one kept because it runs",
			hung().with(updated(0, 1), dead(0), func(w *world) { w.pod(2).Revision = "rev-broken" }),
			"updated pod etcd-0 is failing: its member is Down (dead, CrashLoopBackOff); without quorum nothing " +
				"settles; if the template is right, look at what keeps the next pod (etcd-2, QuorumPatience: quorum " +
				"is lost and the " +
				"updated pod of ordinal 0 is dead: " +
				"the update does not cure it); otherwise, fix the template: this pod is then replaced first"},
		{"failing because its status is refused",
			cluster(3, updated(2), noStatus("no status: grant its user the role root", 2),
				aged(rollout.UnsettledSeen, patience, 2)),
			"updated pod etcd-2 is failing: its member serves, how far it is behind is not known (no status: grant " +
				"its user the role root), " +
				"the updated pod has not settled yet"},
		{"a local list",
			cluster(3, localList(1)),
			"etcd-2: the member list comes from one member only, and 1 of its 3 voters return the same voters, " +
				"quorum 2"},
		{"two voters",
			cluster(2),
			"etcd-1: 2 voters need both: removing one leaves 1, quorum 2; add a third member or make it one"},
		{"budget",
			cluster(5, leads(4), unknown(0), partition(1)),
			"etcd-3: 1 of 5 members unavailable, 2 with this one, at most 1 allowed"},
		{"lag",
			cluster(3, behind(6000, 0)),
			"etcd-2: 1 of 2 voters that would stay are less than 5000 entries behind, quorum 2; the furthest is 6000 " +
				"behind"},
		{"gate", cluster(3, gate("backup", false, false)), "etcd-2: gate backup: the last backup failed 7 minutes ago"},
		{"may vote",
			cluster(3, dead(1), alive(2), partition(2)),
			"etcd-2: 1 of 3 voters serve, quorum 2: without this process 1 could still vote"},
		{"patience",
			cluster(3, alive(0, 1, 2), quorumLostFor(90*time.Second)),
			"etcd-2: quorum has been lost for 90 s; a live process is left alone for 300 s, it rejoins when a peer " +
				"returns"},
		{"missing", cluster(3, missing(1)), "waiting for etcd-1: its pod is missing"},
		{"terminating", cluster(3, terminating(1)), "waiting for etcd-1: its pod is terminating"},
		{"settling",
			cluster(3, updated(2), sick(2)),
			"waiting for etcd-2: its member serves, its sidecar is not ready, the updated pod has not settled yet"},
		{"catching up",
			cluster(3, updated(2), behind(7000, 2)),
			"waiting for etcd-2: its member serves, catches up: applied 3000 of 10000 log entries, 7000 behind"},
		{"failing",
			cluster(3, updated(2), dead(2)),
			"updated pod etcd-2 is failing: its member is Down (dead, CrashLoopBackOff); fix the template: this pod " +
				"is then replaced first"},
		{"unknown",
			cluster(3, updated(2), unknown(2)),
			"waiting for etcd-2: its member is Unknown (no linearizable read: timed out)"},
		{"unknown, and there is no list",
			cluster(1, updated(0), func(w *world) {
				w.pod(0).Ready = false
				w.state.Etcd = rollout.Membership{Detail: "etcd refuses MemberList (permission denied)"}
			}),
			"waiting for etcd-0: its member is Unknown; no member answers with a member list: " +
				"etcd refuses MemberList (permission denied)"},
		{"a name with a percent sign",
			cluster(3, func(w *world) { w.member(1).Name, w.member(2).Name = "a%d", "a%d" }),
			"two members are named a%d"},
		{"another cluster", cluster(3, func(w *world) {
			w.member(1).Probe = rollout.Probe{Read: rollout.WrongCluster, Detail: "cluster c2 answered instead of c1"}
		}), "member etcd-1 answers for another cluster (cluster c2 answered instead of c1)"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			d := tc.world.decide()
			if got := d.Reason(); got != tc.want {
				t.Errorf("%s:\n got %q\nwant %q", say(d), got, tc.want)
			}
		})
	}
	if (&rollout.Decision{}).Reason() != "" {
		t.Error("a decision without a reason has one")
	}
}

// hung: every process hangs, for long, and the update that is to cure them has reached one.
func hung() *world {
	return cluster(
		3,
		updated(2),
		alive(0, 1, 2),
		quorumLostFor(patience),
		aged(rollout.UnsettledSeen, patience, 2),
		aged(rollout.PodSeen, patience, 2),
	)
}

func TestVerdictsCarryTheirNumbers(t *testing.T) {
	for _, tc := range []struct {
		world *world
		pod   string
		guard rollout.Guard
		want  string
	}{
		{cluster(3, dead(1), alive(2)), "etcd-2", rollout.GuardMayVote, "1 of 3 voters serve, quorum 2: without this " +
			"process 1 could still vote"},
		{cluster(3, alive(0, 1, 2), quorumLostFor(time.Second)), "etcd-1", rollout.GuardQuorumPatience, "quorum has " +
			"been lost for 1 s; a live process is left alone for 300 s, it rejoins when a peer returns"},
		{cluster(3, alive(0, 1, 2), missing(0), quorumLostFor(patience)), "etcd-1", rollout.GuardQuorumPatience,
			"quorum is lost and the pod of ordinal 0 is still missing or terminating"},
		{cluster(5, updated(4), dead(3, 4), aged(rollout.NotRunningSeen, 17*time.Second, 3)), "etcd-3",
			rollout.GuardRevisionSuspect,
			"the new revision is suspect (updated pods failing: 1, settled: 0); this one has been down for 17 s of " +
				"300 s"},
		{cluster(5, updated(4), starting(4), starting(3), aged(rollout.NotRunningSeen, 17*time.Second, 3)), "etcd-3",
			rollout.GuardRevisionSuspect,
			"no pod of the new revision has settled yet (under way: 1); this one may come back by itself, and has " +
				"been down for 17 s of 300 s"},
		{cluster(5, updated(4), starting(4), alive(3)), "etcd-3", rollout.GuardRevisionSuspect, "no pod of the new " +
			"revision has settled yet (under way: 1), and this process runs"},
		{cluster(1, volatileData()), "etcd-0", rollout.GuardDataSurvives, "the data volume is not persistent: " +
			"removing this one leaves 0 of 1 voters with data, quorum 1"},
		{cluster(3, ghosts(1)), "etcd-2", rollout.GuardQuorumFloor, "3 of 4 voters serve, quorum 3, removing this " +
			"one leaves 2; voters without a pod here: ghost-0 (ID 900, https://10.0.0.9:2379, does not serve)"},
		{cluster(5, unknown(4)), "etcd-3", rollout.GuardUnavailableBudget, "1 of 5 members unavailable, 2 with this " +
			"one, at most 1 allowed"},
		{cluster(5, learner(4)), "etcd-4", rollout.GuardUnavailableBudget, "0 of 5 members unavailable, a learner " +
			"adds none, at most 1 allowed"},
		{cluster(5, terminating(4), maxUnavailable(2)), "etcd-3", rollout.GuardCanary, "the first pod of the new " +
			"revision goes alone and has not settled yet (under way: 1)"},
		{cluster(3, sick(0, 1)), "etcd-2", rollout.GuardEndpointFloor, "removing this one leaves 0 of 3 pods Ready, " +
			"at least 2 must stay"},
		{cluster(3, behind(6000, 1)), "etcd-2", rollout.GuardCaughtUp, "1 of 2 voters that would stay are less than " +
			"5000 entries behind, quorum 2; the furthest is 6000 behind"},
		{cluster(3, func(w *world) { w.member(1).Probe.Status = nil }), "etcd-2", rollout.GuardCaughtUp,
			"1 of 2 voters that would stay are known to be less than 5000 entries behind, quorum 2; no status of 1"},
		{cluster(3, noStatus("no status: refused", 0, 1, 2)), "etcd-2", rollout.GuardCaughtUp, "0 of 2 voters that " +
			"would stay are known to be less than 5000 entries behind, quorum 2; no status of 2; etcd-0: no status: " +
			"refused"},
		{cluster(3, noStatus("no status: refused", 0, 1, 2)), "etcd-2", rollout.GuardLeaderLast, "the members that " +
			"answer agree on no leader, so this one may be it; etcd-0: no status: refused"},
		{cluster(3, noMemberList(), func(w *world) { w.state.Etcd.Detail = "etcd refuses the member list" }),
			"etcd-2", rollout.GuardVotersUnknown,
			"no member answers with a member list, so the voters are unknown; etcd refuses the member list"},
		{cluster(3, gate("a", true, false), gate("b", true, true), sick(2)), "etcd-2", rollout.GuardHostGates,
			"gates of the host that apply: 1 of 2; all pass"},
		{cluster(3), "etcd-0", rollout.GuardLeaderLast, "leads, so it goes after the followers (left: 2)"},
		{cluster(3, partition(2)), "etcd-1", rollout.GuardPartition, "ordinal 1, partition 2"},
		{cluster(3, ghosts(1)), "etcd-2", rollout.GuardVotersUnknown, "voters in the member list: 4"},
	} {
		t.Run(string(tc.guard), func(t *testing.T) {
			if got := detailOf(tc.world.decide(), tc.pod, tc.guard); got != tc.want {
				t.Errorf("\n got %q\nwant %q", got, tc.want)
			}
		})
	}
}

// A decision carries every guard of every candidate, not just the first that fails.
func TestADecisionCarriesAllGuardsOfAllCandidates(t *testing.T) {
	// Everything is outdated; only what is down is at the partition, and may vote.
	d := cluster(5, alive(4), terminating(3), dead(1, 2), partition(4)).decide()
	var got []string
	for _, c := range d.Candidates {
		got = append(got, c.Pod)
		want := []rollout.Guard{
			rollout.GuardPartition,
			rollout.GuardVotersUnknown,
			rollout.GuardMayVote,
			rollout.GuardQuorumPatience,
			rollout.GuardRevisionSuspect,
			rollout.GuardDataSurvives,
		}
		if c.Rule == rollout.RuleServing {
			want = []rollout.Guard{
				rollout.GuardPartition,
				rollout.GuardVotersUnknown,
				rollout.GuardQuorumFloor,
				rollout.GuardUnavailableBudget,
				rollout.GuardCanary,
				rollout.GuardEndpointFloor,
				rollout.GuardCaughtUp,
				rollout.GuardDataSurvives,
				rollout.GuardHostGates,
				rollout.GuardLeaderLast,
			}
		}
		var guards []rollout.Guard
		for _, v := range c.Verdicts {
			guards = append(guards, v.Guard)
		}
		if !slices.Equal(guards, want) {
			t.Errorf("%s: guards %v, want %v", c.Pod, guards, want)
		}
	}
	if want := []string{"etcd-2", "etcd-1", "etcd-4", "etcd-0"}; !slices.Equal(got, want) {
		t.Errorf("candidates %v, want %v: %s", got, want, d.Reason())
	}
}

func TestNamesAreStable(t *testing.T) {
	name := func(a rollout.Action) string { return string(a.Name()) }
	for want, got := range map[string]string{
		"Idle": name(rollout.Idle{}), "Hold": name(rollout.Hold{}), "Wait": name(rollout.Wait{}),
		"Complete": name(rollout.Complete{}), "MoveLeader": name(rollout.MoveLeader{}),
		"Remove":  name(rollout.Remove{}),
		"Unknown": rollout.Unknown.String(), "Serving": rollout.Serving.String(), "Down": rollout.Down.String(),
		"dead": rollout.Dead.String(), "starting": rollout.Starting.String(), "alive": rollout.Alive.String(),
		"": rollout.NotDown.String(),
	} {
		if got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}

// An operator who overrides VotersUnknown has not said that there is a quorum to spare.
func TestVotersUnknownCloseRule6(t *testing.T) {
	failed, considered := failedGuards(cluster(1, noMemberList()).decide(), "etcd-0")
	if want := []rollout.Guard{rollout.GuardVotersUnknown, rollout.GuardQuorumFloor}; !considered ||
		!slices.Equal(failed, want) {
		t.Errorf("etcd-0 fails %v, want %v", failed, want)
	}
}

func TestABudgetKeepsTheOnlyPodWhereMoreAreToCome(t *testing.T) {
	for replicas, want := range map[int]bool{1: true, 3: false} {
		d := cluster(1, evict, mootBudget, func(w *world) { w.state.Set.Replicas = replicas }).decide()
		for _, v := range d.Candidates[0].Verdicts {
			if v.Guard == rollout.GuardDisruptionBudget && v.Pass != want {
				t.Errorf("of %d: %s: %v, want %v", replicas, v.Detail(), v.Pass, want)
			}
		}
	}
}
