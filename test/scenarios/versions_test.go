package scenarios

import (
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"

	"github.com/quorate/quorate/test/harness"
)

// The next rollout of clusters in the field, which run 3.4.34: the sidecars change in the same
// step. In its midst the members' own lists of 3.4 stand beside those that 3.5 has agreed on.
func TestFrom34To35WithTheSidecarsInTheSameStep(t *testing.T) {
	t.Parallel()
	ctx, s := newCluster(t, harness.Loopback, harness.Spec{Name: "fleet", EtcdImage: harness.Etcd34})
	s.runs(ctx, "3.4.34")

	t.Run("a rollout within 3.4", func(t *testing.T) {
		s := s.in(t)
		leader, err := s.Leader(ctx)
		require.NoError(t, err)
		o := s.during(ctx, func(*harness.Ledger) {
			s.touch(ctx, "within-3.4")
			s.complete(ctx)
		})
		healthyRollout(t, o, s.Pods(), leader)
	})
	t.Run("to 3.5, with a new sidecar", func(t *testing.T) {
		s := s.in(t)
		leader, err := s.Leader(ctx)
		require.NoError(t, err)
		old := s.uids(ctx)
		o := s.during(ctx, func(*harness.Ledger) {
			s.change(ctx, "etcd 3.5 and a new sidecar", func(template *corev1.PodTemplateSpec) {
				container(template, "etcd").Image = harness.Etcd35
				container(template, "backup-restore").Image = harness.SidecarNext
			})
			s.complete(ctx)
		})
		healthyRollout(t, o, s.Pods(), leader)
		o.ledByNewCode(t, old)
		s.runs(ctx, "3.5.35")
	})
}

// Without quorum a member of 3.4 gives its own list all the same.
func TestWithQuorumLostIn34OnlyWhatIsDeadGoes(t *testing.T) {
	t.Parallel()
	ctx, s := newCluster(t, harness.Loopback, harness.Spec{Name: "fleet-lost", EtcdImage: harness.Etcd34})
	left := s.Pods()[0]
	require.NoError(t, s.MoveLeader(ctx, left))
	o := s.during(ctx, func(*harness.Ledger) {
		for _, pod := range s.Pods()[1:] {
			fault, err := s.CrashLoop(ctx, pod)
			require.NoError(t, err)
			t.Cleanup(fault.Stop)
			require.NoError(t, s.WaitWaiting(ctx, pod, "etcd", "CrashLoopBackOff"))
		}
		s.withoutQuorum(ctx)
		s.upgrade(ctx, harness.Etcd35)
		s.complete(ctx)
	})
	o.lostNothing(t)
	require.Equal(t, left, o.order[2], "the member that lives goes last, when the others serve again")
	s.runs(ctx, "3.5.35")
}
