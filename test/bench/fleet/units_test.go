package fleet

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes/fake"
	k8stesting "k8s.io/client-go/testing"

	"github.com/quorate/quorate/test/bench/result"
)

func newPod(ordinal int, uid, revision string) *corev1.Pod {
	template := statefulSet(3).Spec.Template
	labels := map[string]string{appsv1.StatefulSetRevisionLabel: revision}
	for k, v := range template.Labels {
		labels[k] = v
	}
	controls := true
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: namespace(0), Name: podName(ordinal), UID: types.UID(uid), Labels: labels,
			OwnerReferences: []metav1.OwnerReference{{Kind: "StatefulSet", Name: setName, Controller: &controls}},
		},
		Spec: template.Spec,
	}
}

func TestTheLedgerFindsWhatBreaksTheRuleOfOnePodAtATime(t *testing.T) {
	at := time.Now()
	for _, tc := range []struct {
		name  string
		story func(l *ledger)
		want  string
		done  bool
	}{
		{"one after the other is well", func(l *ledger) {
			for i := range 3 {
				l.removed(i, at)
				l.ready(i, at.Add(time.Second))
			}
		}, "", true},
		{"two at once are not", func(l *ledger) { l.removed(0, at); l.removed(1, at) },
			"2 pods were away at once", false},
		{"the same pod twice is not", func(l *ledger) {
			for range 2 {
				l.removed(2, at)
				l.ready(2, at)
			}
		}, "pod 2 was removed 2 times", false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			l := newLedger(0, 3)
			for i := range 3 {
				l.ready(i, at) // The first of their names.
			}
			l.begin(at)
			tc.story(l)
			if tc.want == "" {
				require.NoError(t, l.fault())
			} else {
				require.ErrorContains(t, l.fault(), tc.want)
			}
			require.Equal(t, tc.done, l.complete())
		})
	}
}

func TestNoTwoMembersOfTheLargestFleetShareAnAddress(t *testing.T) {
	seen := map[string]bool{}
	for i := range mostClusters {
		for n := range 9 {
			seen[address(i, n)] = true
		}
	}
	require.Len(t, seen, mostClusters*9)
}

// in brings a pod to a stage.
func in(p *corev1.Pod, s stage) *corev1.Pod {
	p.Status = podStatus(p, metav1.Now(), s)
	return p
}

func terminating(p *corev1.Pod) *corev1.Pod {
	now := metav1.Now()
	p.DeletionTimestamp = &now
	return p
}

func TestTheCentralControllerDeletesWhatTheDocumentSaysNext(t *testing.T) {
	old := func(i int, s stage) *corev1.Pod { return in(newPod(i, "old-"+podName(i), "old"), s) }
	updated := func(i int, s stage) *corev1.Pod { return in(newPod(i, "new-"+podName(i), "new"), s) }
	for _, tc := range []struct {
		name   string
		pods   []*corev1.Pod
		leader int
		want   string
	}{
		{"nothing when all are up to date",
			[]*corev1.Pod{updated(0, serving), updated(1, serving), updated(2, creating)}, 0, ""},
		{"a follower before the leader", []*corev1.Pod{old(0, serving), old(1, serving), old(2, serving)}, 0,
			podName(1)},
		{"the leader last", []*corev1.Pod{updated(0, serving), old(1, serving), updated(2, serving)}, 1, podName(1)},
		{"what does not participate before all else", []*corev1.Pod{old(0, serving), old(1, serving), old(2, running)},
			0, podName(2)},
		{"what starts before what runs", []*corev1.Pod{old(0, serving), old(1, running), old(2, creating)}, 0,
			podName(2)},
		{"nothing while an updated one starts", []*corev1.Pod{old(0, serving), old(1, serving), updated(2, running)}, 0,
			""},
		{"nothing while one terminates", []*corev1.Pod{old(0, serving), old(1, serving), terminating(old(2, serving))},
			0, ""},
		{"nothing while one is missing", []*corev1.Pod{old(0, serving), old(1, serving)}, 0, ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			c, client := newModel(t, tc.leader, tc.pods)
			key := types.NamespacedName{Namespace: namespace(0), Name: setName}
			_, err := c.reconcile(t.Context(), key)
			require.NoError(t, err)
			require.Equal(t, tc.want, deletions(client))
			// Until its cache shows the deletion, it deletes nothing more.
			_, err = c.reconcile(t.Context(), key)
			require.NoError(t, err)
			require.Equal(t, tc.want, deletions(client))
		})
	}
}

// newModel is a central controller whose caches have a cluster. The API server has it as well.
func newModel(t *testing.T, leader int, pods []*corev1.Pod) (*central, *fake.Clientset) {
	client := fake.NewClientset()
	c := centralFor(client)
	t.Cleanup(c.queue.ShutDown)
	set := statefulSet(3)
	set.Namespace, set.Status.UpdateRevision = namespace(0), "new"
	require.NoError(t, c.factory.Apps().V1().StatefulSets().Informer().GetIndexer().Add(set))
	for _, p := range pods {
		require.NoError(t, client.Tracker().Add(p))
		require.NoError(t, c.factory.Core().V1().Pods().Informer().GetIndexer().Add(p))
	}
	for i := range 3 {
		holder := "a" + memberRole
		if i == leader {
			holder = "a" + leaderRole
		}
		lease := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: namespace(0), Name: podName(i)},
			Spec: coordinationv1.LeaseSpec{HolderIdentity: &holder}}
		require.NoError(t, c.factory.Coordination().V1().Leases().Informer().GetIndexer().Add(lease))
	}
	return c, client
}

// deletions are the names of the pods that were deleted, one after the other.
func deletions(client *fake.Clientset) (names string) {
	for _, a := range client.Actions() {
		if d, ok := a.(k8stesting.DeleteAction); ok {
			names += d.GetName()
		}
	}
	return names
}

func TestQuantilesAreTheNearestRanks(t *testing.T) {
	var times []time.Duration
	for i := range 200 {
		times = append(times, time.Duration(200-i)*time.Second)
	}
	require.Equal(t, result.Quantiles{Median: 100, P99: 198, Most: 200}, quantiles(times))
	require.Equal(t, result.Quantiles{Median: 7, P99: 7, Most: 7}, quantiles([]time.Duration{7 * time.Second}))
	require.Zero(t, quantiles(nil))
}

func TestTheHostCollectsItsGarbageAsOftenAsGoDoesByDefault(t *testing.T) {
	t.Setenv("GOGC", "150")
	host := hostEnvironment("config")
	require.Contains(t, host, hostVariable+"=config")
	require.NotContains(t, strings.Join(host, "\n"), "GOGC")
}

func TestWhatIsDoneForAllClustersIsSpreadOverItsTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fleet{Options: Options{Clusters: 3}, clusters: make([]*cluster, 3)}
		began, after := time.Now(), make([]time.Duration, 3)
		require.NoError(t, f.each(t.Context(), 30*time.Second, func(_ context.Context, i int) error {
			after[i] = time.Since(began)
			return nil
		}))
		require.Equal(t, []time.Duration{0, 10 * time.Second, 20 * time.Second}, after)
	})
}
