package scenarios

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"

	"github.com/quorate/quorate/test/harness"
)

// OrderedReady is the API's default. Its controller recreates a pod only while every lower ordinal
// is Running, Ready and not terminating. With another pod away, a removal would leave a gap that
// the controller does not fill.
func TestAnOrderedReadyStatefulSetIsRolledAndNeverDeadlocked(t *testing.T) {
	t.Parallel()
	ctx, s := newCluster(t, harness.Loopback, harness.Spec{Name: "ordered", PlainText: true})
	require.NoError(t, s.Recreate(ctx, appsv1.OrderedReadyPodManagement))
	good, err := s.Template(ctx)
	require.NoError(t, err)

	t.Run("a healthy cluster is rolled one pod at a time", func(t *testing.T) { s.in(t).rollsOneAtATime(ctx) })
	t.Run("the member that is down goes first, where every lower pod is Ready",
		func(t *testing.T) { s.in(t).rollsTheSickOneFirst(ctx) })
	t.Run("with quorum lost it holds, and goes on under the StatefulSet that the remedy names", func(t *testing.T) {
		s := s.in(t)
		survivor, dead := s.Pods()[0], s.Pods()[1:]
		before := 0
		o := s.during(ctx, func(l *harness.Ledger) {
			require.NoError(t, s.MoveLeader(ctx, survivor))
			// One pod gets a template that kills it, and then the other loses its process too.
			s.change(ctx, "give etcd a flag that it does not know", withFlag("etcd", unknownFlag))
			require.NoError(t, l.WaitRemovals(ctx, 1))
			first := l.Order()[0]
			require.NoError(t, s.WaitWaiting(ctx, first, "etcd", "CrashLoopBackOff"))
			second := s.others(survivor, first)[0]
			fault, err := s.CrashLoop(ctx, second)
			require.NoError(t, err)
			defer fault.Stop()
			require.NoError(t, s.WaitWaiting(ctx, second, "etcd", "CrashLoopBackOff"))
			s.withoutQuorum(ctx)
			require.NoError(t, s.WaitNotReady(ctx, survivor))
			before = len(l.Order())

			s.change(ctx, "the cure", func(template *corev1.PodTemplateSpec) {
				*template = *good.DeepCopy()
				touched("the cure")(template)
			})
			// For a moment in which the other one starts, it waits for that.
			held := s.says(ctx, "that it holds", func(e harness.LogEntry) bool {
				return e.Action == "Hold" && e.Guard == "Recreation"
			})
			require.Contains(t, held.Message, "recreate the StatefulSet with podManagementPolicy Parallel")
			s.pass(ctx, 3*time.Second)
			require.Len(t, l.Order(), before, "nobody would recreate it")

			require.NoError(t, s.Recreate(ctx, appsv1.ParallelPodManagement))
			s.complete(ctx)
		})
		o.lostNothing(t)
		after := o.order[before:]
		require.Len(t, after, 3)
		require.ElementsMatch(t, dead, after[:2], "the dead ones first")
		require.Equal(t, survivor, after[2])
	})
}
