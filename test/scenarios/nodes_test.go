package scenarios

import (
	"context"
	"slices"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/quorate/quorate/test/harness"
	"github.com/quorate/quorate/test/harness/apiproxy"
	"github.com/quorate/quorate/test/harness/kubelet"
)

// What real nodes do. Most of it only they do.

func kubelets(t *testing.T, s *scene) *kubelet.Nodes {
	t.Helper()
	n, ok := s.env.Nodes.(*kubelet.Nodes)
	require.True(t, ok)
	return n
}

func needRealNodes(t *testing.T) {
	t.Helper()
	if !onRealNodes {
		t.Skip("needs real nodes: " + harness.NodesVariable + "=kubelet")
	}
}

func TestEveryKubeletIsKilledDuringARollout(t *testing.T) {
	t.Parallel()
	needRealNodes(t)
	ctx, s := newCluster(t, harness.Namespaces, harness.Spec{Name: "unattended", PlainText: true, OwnNodes: true})
	o := s.during(ctx, func(l *harness.Ledger) {
		for n, pod := range s.others() {
			name, err := s.NodeOf(ctx, pod)
			require.NoError(t, err)
			if n == 0 {
				s.touch(ctx, "unattended")
				require.NoError(t, l.WaitRemovals(ctx, 1))
			}
			require.NoError(t, kubelets(t, s).KillKubelet(name))
		}
		s.complete(ctx)
	})
	o.lostNothing(t)
	o.keptQuorum(t)
	o.oneAtATime(t)
	o.replacedOnce(t, s.Pods()...)
}

func TestANodeRebootsDuringARollout(t *testing.T) {
	t.Parallel()
	needRealNodes(t)
	ctx, s := newCluster(t, harness.Namespaces, harness.Spec{Name: "rebooted", PlainText: true, OwnNodes: true})
	require.NoError(t, s.MoveLeader(ctx, s.Pods()[0]))
	rebooted := s.Pods()[1]
	o := s.during(ctx, func(*harness.Ledger) {
		require.NoError(t, s.CutPower(ctx, rebooted))
		s.touch(ctx, "rebooted")
		s.pass(ctx, 3*time.Second)
		require.NoError(t, s.PowerOn(ctx, rebooted, 0))
		s.complete(ctx)
	})
	o.lostNothing(t)
	o.keptQuorum(t)
	o.oneAtATime(t)
	o.replacedOnce(t, s.Pods()...)
}

// The kubelet does not stop a pod that is deleted by force before it starts its successor.
func TestTheSuccessorOfAPodThatIsDeletedByForceDoesNotWait(t *testing.T) {
	t.Parallel()
	ctx, s := newCluster(t, harness.Namespaces, harness.Spec{Name: "forced", PlainText: true, OwnNodes: true})
	leader := s.Pods()[0]
	require.NoError(t, s.MoveLeader(ctx, leader))
	forced := s.Pods()[1]
	o := s.during(ctx, func(l *harness.Ledger) {
		old, runs := s.env.Nodes.PID(forced, "etcd")
		require.True(t, runs)
		require.NoError(t, s.Signal(forced, "etcd", syscall.SIGSTOP))
		none := int64(0)
		require.NoError(t, s.env.Client.CoreV1().Pods(harness.Namespace).Delete(ctx, forced,
			metav1.DeleteOptions{GracePeriodSeconds: &none}))
		s.touch(ctx, "forced")
		together := s.runTogether(ctx, forced, old)
		t.Logf("the old etcd and the new one ran together for %v", together)
		s.complete(ctx)
	})
	o.lostNothing(t)
	o.oneAtATime(t)
}

// runTogether waits until the old etcd of a pod has ended and the new one runs, and returns for how long both ran.
func (s *scene) runTogether(ctx context.Context, pod string, old int) time.Duration {
	s.t.Helper()
	var began time.Time
	for {
		now, runs := s.env.Nodes.PID(pod, "etcd")
		if runs && now != old && began.IsZero() {
			began = time.Now()
		}
		if syscall.Kill(old, 0) != nil && !began.IsZero() {
			return time.Since(began)
		}
		s.pass(ctx, 20*time.Millisecond)
	}
}

// A zone with the API server keeps one member of seven. The others go on, and nobody who could remove a pod knows that
// a quorum serves; it makes no difference whether their kubelets are heard.
func TestOneMemberOfSevenIsLeftWithTheAPIServer(t *testing.T) {
	t.Parallel()
	needRealNodes(t)
	ctx, s := newCluster(t, harness.Namespaces,
		harness.Spec{Name: "zone", Replicas: 7, PlainText: true, OwnNodes: true})
	left, away := s.Pods()[0], s.Pods()[1:]
	nobodyGoes := func(l *harness.Ledger, kubelets string) {
		s.pass(ctx, 30*time.Second)
		require.Empty(t, l.Order(), "nobody is removed while the kubelets are %s", kubelets)
	}
	o := s.during(ctx, func(l *harness.Ledger) {
		require.NoError(t, s.MoveLeader(ctx, away[0]))
		serve := s.env.API.Refuse(func(r *apiproxy.Request) bool { return slices.Contains(away, r.Pod) }, 0)
		require.NoError(t, s.CutOff(left))
		s.touch(ctx, "zone")
		nobodyGoes(l, "heard")
		// So that one rollout will do.
		require.NoError(t, s.Annotate(ctx, harness.PausedAnnotation, "true"))
		serve()
		require.NoError(t, s.Reconnect(left))
		require.NoError(t, s.WaitReady(ctx))
		s.holds(ctx, "Paused")

		require.NoError(t, s.MoveLeader(ctx, away[0]))
		mend, err := s.CutZone(ctx, away)
		require.NoError(t, err)
		require.NoError(t, s.Annotate(ctx, harness.PausedAnnotation, ""))
		nobodyGoes(l, "not heard")
		require.NoError(t, mend(ctx))
		s.complete(ctx)
	})
	o.lostNothing(t)
	o.keptQuorum(t)
	o.oneAtATime(t)
	// Who was left alone may have the lock when the links are mended, while its own member does not serve yet.
	require.ElementsMatch(t, s.Pods(), o.order, "each pod is replaced once")
}
