package rollout_test

import (
	"strings"
	"testing"
	"time"

	"github.com/quorate/quorate/pkg/rollout"
)

// unclaimed: these pods have no volume for a claim template that the StatefulSet has.
func unclaimed(claim string, ordinals ...int) change {
	return each(ordinals, func(w *world, o int) { w.pod(o).Unclaimed = []string{claim} })
}

// finished: these pods have succeeded or failed as a whole, just now.
func finished(phase string, ordinals ...int) change {
	return func(w *world) {
		w.with(noAnswer(ordinals...), notReady(ordinals...), each(ordinals, func(w *world, o int) {
			p := w.pod(o)
			p.Finished, p.NeverReady = true, true
			p.Etcd = rollout.Container{State: rollout.ContainerTerminated, Reason: phase}
			p.Sidecar = p.Etcd
		}))
	}
}

// revision: the new revision has a name of so many characters.
func revision(characters int) change {
	return func(w *world) { w.state.Set.UpdateRevision = strings.Repeat("r", characters) }
}

func notCreated(words string) change { return func(w *world) { w.state.Set.NotCreated = words } }

func TestWhatIsRemovedHasToComeBack(t *testing.T) {
	for _, tc := range []struct {
		name string
		w    *world
		want string
	}{
		{"the lower pods lack a claim, and the leader is the lowest",
			cluster(3, unclaimed("wal", 0, 1, 2)), "hold Returns"},
		{"the lowest pod gets its claim when it is created anew", cluster(3, unclaimed("wal", 0, 1, 2), leads(2)),
			"delete etcd-0"},
		{"then the next one", cluster(3, unclaimed("wal", 1, 2), updated(0), leads(2)), "delete etcd-1"},
		{"and the last one", cluster(3, unclaimed("wal", 2), updated(0, 1), leads(1)), "delete etcd-2"},
		{"only the pod itself lacks it", cluster(3, unclaimed("wal", 2)), "delete etcd-2"},
		{"only a higher one lacks it", cluster(3, unclaimed("wal", 2), updated(2), leads(2)), "delete etcd-1"},
		{"a lower one that is up to date lacks it as well: it was made before",
			cluster(3, unclaimed("wal", 0), updated(0)),
			"hold Returns"},
		{"a lower one that lacks it terminates: it comes back with the claim",
			cluster(5, unclaimed("wal", 0), terminating(0), dead(4), leads(1)), "delete etcd-4"},
		{"a lower one that lacks it has finished: the controller deletes it first",
			cluster(5, unclaimed("wal", 0), updated(0), finished("Succeeded", 0), dead(2), leads(1)), "delete etcd-2"},
		{"a dead one would not come back either", cluster(3, unclaimed("wal", 0), dead(2)), "hold Returns"},
		{"a dead one that is the lowest does",
			cluster(3, unclaimed("wal", 0, 1, 2), dead(0), leads(1)), "delete etcd-0"},
		{"a pod that lacks nothing", cluster(3), "delete etcd-2"},
		{"whoever knows better overrides it", cluster(3, unclaimed("wal", 0, 1, 2), overriding(rollout.GuardReturns)),
			"delete etcd-2"},
		{"the only member lacks it", cluster(1, unclaimed("wal", 0)), "delete etcd-0"},

		{"the name of the revision fills a label", cluster(3, revision(63)), "delete etcd-2"},
		{"one more makes every new pod invalid", cluster(3, revision(64)), "hold Returns"},
		{"a dead one is held as well", cluster(3, revision(64), dead(1)), "hold Returns"},
		{"a rollout that is complete is not held",
			cluster(3, allUpdated(), revision(64), allUpdatedTo(64)), "complete"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			d := tc.w.decide()
			if got := say(d); got != tc.want {
				t.Errorf("%s: %s", got, d.Reason())
			}
			if d.Guard == rollout.GuardReturns && !strings.Contains(d.Reason(), "wal") &&
				!strings.Contains(d.Reason(), "64 characters") {
				t.Errorf("the reason names neither the claim nor the name: %s", d.Reason())
			}
		})
	}
}

func allUpdatedTo(characters int) change {
	return func(w *world) {
		for i := range w.state.Pods {
			w.state.Pods[i].Revision = strings.Repeat("r", characters)
		}
	}
}

func TestAPodThatIsNotCreatedIsToldInTheWordsOfTheAPI(t *testing.T) {
	quota := `create Pod etcd-2 in StatefulSet etcd failed error: pods "etcd-2" is forbidden: exceeded quota`
	for _, tc := range []struct {
		name string
		w    *world
		want string
		says string
	}{
		{"a quota", cluster(3, missing(2), notCreated(quota)), "wait Terminating", quota},
		{"nobody has read it", cluster(3, missing(2)), "wait Terminating", "its pod is missing"},
		{"while another one comes up", cluster(3, updated(0), starting(0), missing(2), notCreated(quota)),
			"wait UpdatedPending", quota},
		{"others have taken it", cluster(3, taken(missing(2)), notCreated(quota)), "wait Terminating", quota},
		{"a lower pod lacks a claim", cluster(3, missing(2), unclaimed("wal", 1)), "wait Terminating",
			"etcd-2 is not created: the StatefulSet controller fails at etcd-1, which has no volume for the claim " +
				"template wal"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			d := tc.w.decide()
			if got := say(d); got != tc.want || !strings.Contains(d.Reason(), tc.says) {
				t.Errorf("%s: %s", got, d.Reason())
			}
		})
	}
}

// A pod that has failed or succeeded as a whole never runs again, and the StatefulSet controller replaces it.
func TestAPodThatHasFinishedIsDeadAtOnce(t *testing.T) {
	for _, tc := range []struct {
		name string
		w    *world
		want string
		says string
	}{
		{"an outdated one goes first", cluster(3, finished("Succeeded", 1)), "delete etcd-1", "dead, Succeeded"},
		{"so does one that has failed", cluster(3, finished("Evicted", 1)), "delete etcd-1", "dead, Evicted"},
		{"two of them, with quorum lost: they are not waited for", cluster(3, finished("Succeeded", 1, 2), alive(0)),
			"delete etcd-2", "dead, Succeeded"},
		{"beside an updated one that comes up: it does not come back by itself",
			cluster(3, updated(0), starting(0), finished("Succeeded", 2)), "delete etcd-2", "dead, Succeeded"},
		{"an updated one is replaced by the controller", cluster(3, updated(2), finished("Succeeded", 2)),
			"wait UpdatedPending", "dead, Succeeded"},
		{"unless the controller leaves it there", cluster(3, updated(2), finished("Succeeded", 2),
			aged(rollout.UnsettledSeen, 5*time.Minute, 2)), "hold UpdatedFailing", "dead, Succeeded"},
		{"a member that answers for itself has a process all the same",
			cluster(3, finished("Failed", 1), answersForItself(1)), "delete etcd-1", "alive"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			d := tc.w.decide()
			if got := say(d); got != tc.want || !strings.Contains(d.Reason(), tc.says) {
				t.Errorf("%s: %s", got, d.Reason())
			}
		})
	}
}
