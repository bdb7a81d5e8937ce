package rollout_test

import (
	"testing"
	"time"

	"github.com/quorate/quorate/pkg/rollout"
)

func TestForHowLongAPodIsWaitedForThatOnlyHasToStayReady(t *testing.T) {
	minReady := func(d time.Duration) change { return func(w *world) { w.state.Set.MinReady = d } }
	for _, tc := range []struct {
		name      string
		world     *world
		after     time.Duration
		announced bool
	}{
		{"nobody is", cluster(3, updated(2)), 0, true},
		{"not an outdated one", cluster(3, unannounced(0, 1, 2)), 0, true},
		{"not one that is not Ready", cluster(3, updated(2), unannounced(2), sick(2)), 0, true},
		{"not one that is going", cluster(3, updated(2), unannounced(2), terminating(2)), 0, true},
		{"not one whose member does not serve", cluster(3, updated(2), unannounced(2), noAnswer(2)), 0, true},
		{"until its sidecar says that it is there", cluster(3, updated(2), unannounced(2)), 2 * time.Second, false},
		{"or until a crash would have been noticed",
			cluster(3, updated(2), unannounced(2), aged(rollout.ReadySeen, 1500*time.Millisecond, 2)),
			500 * time.Millisecond, false},
		{"whatever its sidecar says, once a container has restarted",
			cluster(3, updated(2), unannounced(2), restarted(2), aged(rollout.ReadySeen, 4*time.Second, 2)),
			6 * time.Second, true},
		{"and for minReadySeconds", cluster(3, updated(2), unannounced(2), minReady(time.Minute),
			aged(rollout.ReadySeen, time.Second, 2)), 59 * time.Second, true},
		{"of several, for the first", cluster(3, updated(1, 2), unannounced(1, 2),
			aged(rollout.ReadySeen, time.Second, 1)), time.Second, false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if after, announced := tc.world.decide().Assessment.Settles(); after != tc.after ||
				announced != tc.announced {
				t.Errorf("%s, announced %v, want %s and %v", after, announced, tc.after, tc.announced)
			}
		})
	}
}

func TestAPodThatIsWaitedForIsDescribedByWhatItLacks(t *testing.T) {
	const lacks = "waiting for etcd-2: its member serves, the updated pod has been Ready for less than 2s, and its " +
		"sidecar has not reported in etcd yet"
	if d := cluster(3, updated(2), unannounced(2)).decide(); d.Reason() != lacks {
		t.Errorf("%q, want %q", d.Reason(), lacks)
	}
}

// What a plan predicts takes its time, and so every pod in it is Ready for long enough.
func TestAPredictionIsNotHeldByWhatOnlyTimeSettles(t *testing.T) {
	for _, w := range []*world{
		cluster(3, unannounced(0, 1, 2)),
		cluster(3, unannounced(0, 1, 2), updated(0, 1), alive(0, 1), dead(2)),
	} {
		all := rollout.Predict(w.state, w.policy)
		if last := all[len(all)-1]; len(all) < 2 || last.Action.Name() != rollout.ActionComplete {
			t.Errorf("%d decisions, the last is %s: %s", len(all), say(last), last.Reason())
		}
	}
}
