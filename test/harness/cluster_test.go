package harness

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	k8stesting "k8s.io/client-go/testing"
)

func TestAWaitThatRanOutTellsWhatItSawLastAndWhyItEnded(t *testing.T) {
	patience := errors.New("this took more than three minutes")
	for _, tc := range []struct {
		name string
		// looks are how many come to their end; the next one is cut short.
		looks int
		want  string
	}{
		{"after some looks", 2, "wait until all is well (last seen: look 2): this took more than three minutes"},
		{"before the first", 0, "wait until all is well (last seen: nothing): this took more than three minutes"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			ctx, end := context.WithCancelCause(t.Context())
			looked := 0
			err := waitFor(ctx, "all is well", func(ctx context.Context) (bool, string) {
				if looked == tc.looks {
					end(patience)
					return false, ctx.Err().Error()
				}
				looked++
				return false, fmt.Sprintf("look %d", looked)
			})
			require.EqualError(t, err, tc.want)
			require.ErrorIs(t, err, patience)
		})
	}
}

func TestAWaitForPodsNamesThoseThatAreNotReadyAndWhy(t *testing.T) {
	ready := func(p *corev1.Pod) {
		p.Status.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}}
	}
	waiting := func(container, reason string) func(*corev1.Pod) {
		return func(p *corev1.Pod) {
			p.Status.ContainerStatuses = append(p.Status.ContainerStatuses, corev1.ContainerStatus{
				Name: container, State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: reason}},
			})
		}
	}
	running := func(p *corev1.Pod) {
		p.Status.ContainerStatuses = append(p.Status.ContainerStatuses, corev1.ContainerStatus{
			Name: "etcd", State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{}},
		})
	}
	outdated := func(p *corev1.Pod) { p.Labels[appsv1.ControllerRevisionHashLabelKey] = "old" }
	terminating := func(p *corev1.Pod) {
		p.DeletionTimestamp, p.Finalizers = &metav1.Time{Time: time.Now()}, []string{"test/kept"}
	}
	for _, tc := range []struct {
		name string
		// pods are main-0, main-1 and so on, each as its changes make it.
		pods [][]func(*corev1.Pod)
		want string
	}{
		{"the others are fine",
			[][]func(*corev1.Pod){{ready}, {running, waiting("backup-restore", "CrashLoopBackOff")}, {ready}},
			"2 of 3, main-1 not Ready (backup-restore: CrashLoopBackOff)"},
		{"one runs and is not Ready, one is missing", [][]func(*corev1.Pod){{ready}, {running}},
			"1 of 3, main-1 not Ready, main-2 missing"},
		{"one is Ready and terminates, one is not updated",
			[][]func(*corev1.Pod){{ready, terminating}, {ready}, {ready, outdated}},
			"1 of 3, main-0 terminating, main-2 not updated"},
		{"all is well", [][]func(*corev1.Pod){{ready}, {ready}, {ready}}, ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			ctx, c := fakeCluster(t)
			replicas := int32(3)
			_, err := c.env.Client.AppsV1().StatefulSets(Namespace).Create(ctx, &appsv1.StatefulSet{
				ObjectMeta: metav1.ObjectMeta{Name: c.Spec.Name, Namespace: Namespace},
				Spec:       appsv1.StatefulSetSpec{Replicas: &replicas},
				Status:     appsv1.StatefulSetStatus{UpdateRevision: "new"},
			}, metav1.CreateOptions{})
			require.NoError(t, err)
			for n, changes := range tc.pods {
				p := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: c.Spec.podName(n), Namespace: Namespace,
					Labels: c.Spec.labels()}}
				p.Labels[appsv1.ControllerRevisionHashLabelKey] = "new"
				for _, change := range changes {
					change(p)
				}
				_, err := c.env.Client.CoreV1().Pods(Namespace).Create(ctx, p, metav1.CreateOptions{})
				require.NoError(t, err)
			}
			ctx, end := context.WithCancel(ctx)
			defer end()
			looks := 0
			c.env.Client.(*fake.Clientset).PrependReactor("get", "statefulsets",
				func(k8stesting.Action) (bool, runtime.Object, error) {
					if looks++; looks > 1 {
						end()
					}
					return false, nil, nil
				})
			err = c.WaitUpdated(ctx)
			if tc.want == "" {
				require.NoError(t, err)
				return
			}
			require.ErrorContains(t, err, "(last seen: "+tc.want+")")
		})
	}
}
