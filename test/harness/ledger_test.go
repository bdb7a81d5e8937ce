package harness

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

func TestTheLedgerCountsWhoWasAwayAtARemoval(t *testing.T) {
	noon := time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)
	pod := func(name, uid string, created time.Duration) *corev1.Pod {
		return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID(uid),
			CreationTimestamp: metav1.NewTime(noon.Add(created))}}
	}
	removed := func(p *corev1.Pod, asked time.Duration) *corev1.Pod {
		p, grace := p.DeepCopy(), int64(30)
		until := metav1.NewTime(noon.Add(asked + 30*time.Second))
		p.DeletionTimestamp, p.DeletionGracePeriodSeconds = &until, &grace
		return p
	}
	zero, one, two := pod("main-0", "a", 0), pod("main-1", "b", 0), pod("main-2", "c", 0)
	for _, tc := range []struct {
		name  string
		again *corev1.Pod // main-2, after it went
		away  int
	}{
		{"one that comes back later was away", pod("main-2", "d", 12*time.Second), 1},
		{"one that came back in that very second was away, as far as can be told",
			pod("main-2", "d", 10*time.Second), 1},
		{"one that had come back before, seen late, was not", pod("main-2", "d", 9*time.Second), 0},
	} {
		t.Run(tc.name, func(t *testing.T) {
			_, c := fakeCluster(t)
			c.replicas.Store(3)
			l := newLedger(c)
			for _, p := range []*corev1.Pod{zero, one, two} {
				l.seen(p, true)
			}
			l.gone(removed(two, time.Second))
			l.seen(removed(zero, 10*time.Second), false)
			l.seen(tc.again, false)
			removals := l.Removals()
			require.Equal(t, "main-0", removals[len(removals)-1].Pod)
			require.Equal(t, tc.away, removals[len(removals)-1].OthersAway)
		})
	}
}

func TestTheLedgerKnowsOfARemovalThatItsWatchHasMissed(t *testing.T) {
	_, c := fakeCluster(t)
	c.replicas.Store(1)
	l := newLedger(c)
	pod := func(uid string) *corev1.Pod {
		return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "main-0", UID: types.UID(uid)}}
	}
	l.seen(pod("a"), true)
	l.seen(pod("b"), false)
	l.seen(pod("b"), false)
	require.Len(t, l.Removals(), 1)
	require.Equal(t, "a", l.Removals()[0].UID)
}

func TestTheLedgerTellsWhenAReplacementWasReadyAndHowFewWere(t *testing.T) {
	_, c := fakeCluster(t)
	c.replicas.Store(3)
	l := newLedger(c)
	pod := func(name, uid string, ready corev1.ConditionStatus) *corev1.Pod {
		return &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID(uid)},
			Status:     corev1.PodStatus{Conditions: []corev1.PodCondition{{Type: corev1.PodReady, Status: ready}}},
		}
	}
	for _, p := range []*corev1.Pod{pod("main-0", "a", corev1.ConditionTrue), pod("main-1", "b", corev1.ConditionTrue),
		pod("main-2", "c", corev1.ConditionTrue)} {
		l.seen(p, true)
	}
	l.seen(pod("main-1", "b", corev1.ConditionFalse), false)
	l.gone(pod("main-2", "c", corev1.ConditionTrue))
	l.seen(pod("main-2", "d", corev1.ConditionFalse), false)
	require.Empty(t, l.Returns(), "it is not Ready yet")
	l.seen(pod("main-1", "b", corev1.ConditionTrue), false)
	require.Empty(t, l.Returns(), "it is the pod that was there before")
	between := time.Now()
	l.seen(pod("main-2", "d", corev1.ConditionTrue), false)
	l.seen(pod("main-2", "d", corev1.ConditionFalse), false)
	l.seen(pod("main-2", "d", corev1.ConditionTrue), false)
	require.Len(t, l.Returns(), 1, "a pod returns once, whatever its readiness does later")
	require.Equal(t, "d", l.Returns()[0].UID)

	require.Equal(t, 1, l.FewestReady())
	require.Equal(t, 2, l.FewestReadySince(between))
	require.Equal(t, 3, l.FewestReadySince(time.Now()))
}
