package rollout_test

import (
	"strings"
	"testing"
	"time"

	"github.com/quorate/quorate/pkg/rollout"
)

// What real kubelets, schedulers and container runtimes were seen to say, and what a decision makes of it.
func TestWhatRealNodesWereSeenToSay(t *testing.T) {
	// replaced: the pod is a new one, of the new revision, and no container of it has begun.
	replaced := func(o int) change {
		return func(w *world) {
			p := healthyPod(o, newRev, 2)
			p.Ready, p.ContainersReady, p.NeverReady, p.Node = false, false, true, "node"
			p.Etcd = rollout.Container{State: rollout.ContainerWaiting, Reason: "ContainerCreating"}
			p.Sidecar = p.Etcd
			*w.pod(o) = p
		}
	}
	unschedulable := func(o int) change {
		return func(w *world) {
			w.with(replaced(o), noAnswer(o))
			p := w.pod(o)
			p.Node, p.Initialized = "", false
			p.Etcd = rollout.Container{Reason: "Unschedulable", Why: "0/3 nodes are available"}
			p.Sidecar = rollout.Container{}
		}
	}
	for _, tc := range []struct {
		name  string
		world *world
		want  string
		says  string // in the reason
	}{
		// The successor of a pod that is deleted by force does not wait for its end.
		{"an old process answers beside a successor that has not begun: the member serves, and has not settled",
			cluster(3, replaced(2)), "wait UpdatedPending", "etcd-2: its member serves"},
		{"the successor waits for the data that the old process still has",
			cluster(3, replaced(2), noAnswer(2), func(w *world) {
				w.pod(2).Etcd = rollout.Container{State: rollout.ContainerRunning}
			}), "wait UpdatedPending", "etcd-2: its member is Down (alive, no linearizable read: timed out)"},
		{"a successor of the old revision that does is the next to go, and no member that serves is",
			cluster(3, replaced(2), noAnswer(2), func(w *world) {
				w.pod(2).Revision, w.pod(2).Etcd = oldRev, rollout.Container{State: rollout.ContainerRunning}
			}), "delete etcd-2", "quorum 2 is reached without this one"},
		{"a pod that was deleted by force before its turn counts like any other when it has settled",
			cluster(3, func(w *world) { *w.pod(2) = healthyPod(2, newRev, 2) }), "delete etcd-1", ""},

		// Exits are not told before the whole pod has ended, and a sidecar that has ended seems to be ready.
		{"a pod that terminates and seems to be in full health has gone", cluster(3, terminating(2)),
			"wait Terminating", "etcd-2: its pod is terminating"},
		{"by others' hand as well", cluster(3, taken(terminating(2))), "wait Terminating",
			"etcd-2: its pod is terminating"},
		{"an updated one too, and it has not settled", cluster(3, updated(2), terminating(2)), "wait Terminating",
			"etcd-2: its pod is terminating"},

		// A pod is there, and has no node or no address yet.
		{"an updated pod that no node has room for is waited for, and the scheduler's word is told",
			cluster(3, unschedulable(2)), "wait UpdatedPending",
			"its pod is not scheduled (Unschedulable, 0/3 nodes are available)"},
		{"after its time it is said to fail", cluster(3, unschedulable(2), aged(rollout.UnsettledSeen, patience, 2)),
			"hold UpdatedFailing", "its pod is not scheduled (Unschedulable, 0/3 nodes are available)"},
		{"nothing that runs does", cluster(5, unschedulable(4)), "wait UpdatedPending", "etcd-4"},
		{"an outdated pod that no node has room for goes at once: the new revision may fit",
			cluster(3, unschedulable(2), func(w *world) { w.pod(2).Revision = oldRev }), "delete etcd-2",
			"its pod is not scheduled (Unschedulable, 0/3 nodes are available)"},

		// Ready stays false for a while after a node was silent, although its kubelet finds all containers ready.
		{"an updated pod whose node flapped is waited for", cluster(3, updated(2), func(w *world) {
			w.pod(2).Ready = false
		}), "wait UpdatedPending", "etcd-2: its member serves"},
		{"an outdated one goes before those that are Ready, and only while the others are a quorum",
			cluster(3, func(w *world) { w.pod(1).Ready = false }), "delete etcd-1", "3 of 3 voters serve"},

		// The first back-off is 10 s.
		{"a crash is not told to be one at once, and the member is down all the same",
			cluster(3, exited(1), refuses(1), aged(rollout.TerminatedSeen, time.Second, 1)), "delete etcd-1",
			"Down (starting, Error)"},
		{"in its back-off it is dead at once", cluster(3, dead(1), refuses(1)), "delete etcd-1", "CrashLoopBackOff"},
		{"a sidecar that has crashed has to stay up for as long as its first back-off",
			cluster(3, updated(2), func(w *world) { w.pod(2).Sidecar.Restarts = 1 },
				aged(rollout.ReadySeen, 9*time.Second, 2)), "wait UpdatedPending", "etcd-2"},
		{"and no longer", cluster(3, updated(2), func(w *world) { w.pod(2).Sidecar.Restarts = 1 },
			aged(rollout.ReadySeen, 10*time.Second, 2)), "delete etcd-1", ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			d := tc.world.decide()
			if got := say(d); got != tc.want || !strings.Contains(d.Reason(), tc.says) {
				t.Errorf("got %s, want %s: %s\n%s", got, tc.want, tc.says, d.Reason())
			}
		})
	}
}
