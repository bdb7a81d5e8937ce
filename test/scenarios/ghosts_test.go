package scenarios

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/quorate/quorate/internal/report"
	"github.com/quorate/quorate/test/harness"
)

// Five members are scaled to three together with a new template, and nobody removes the other two from
// etcd's list. They hold the rollout, until an operator has them removed.
func TestGhostsOfAScaleIn(t *testing.T) {
	t.Parallel()
	ghostsOfAScaleIn(t, "haunted", harness.Etcd35)
}

func TestGhostsOfAScaleInOfEtcd36(t *testing.T) {
	leftOut(t)
	t.Parallel()
	ghostsOfAScaleIn(t, "haunted36", harness.Etcd36)
}

func ghostsOfAScaleIn(t *testing.T, name, etcd string) {
	ctx, s := newCluster(t, harness.Loopback, harness.Spec{Name: name, Replicas: 5, PlainText: true, EtcdImage: etcd,
		SidecarArgs: []string{"--ghost-after=4s"}})
	require.NoError(t, s.CreateOperator(ctx, name+"-operator"))
	kubeconfig, err := s.KubeconfigAs(ctx, name+"-operator", t.TempDir())
	require.NoError(t, err)
	asks := func(args ...string) (string, int) { return s.quorateAs(ctx, kubeconfig, args...) }
	away := s.Pods()[3:]
	leader, err := s.Leader(ctx)
	require.NoError(t, err)
	if leader == away[0] || leader == away[1] {
		require.NoError(t, s.MoveLeader(ctx, s.Pods()[0]))
	}
	o := s.during(ctx, func(l *harness.Ledger) {
		s.changed = time.Now()
		require.NoError(t, s.Scale(ctx, 3, nil))
		held := s.holds(ctx, "QuorumFloor")
		require.Equal(t, []int{5, 3}, []int{held.Voters, held.Quorum})
		for _, ghost := range away {
			require.NoError(t, s.WaitEvent(ctx, report.ReasonGhostFound, ghost+" has no pod and has not answered"))
		}
		require.ElementsMatch(t, away, l.Order(), "three of five voters serve, and nobody may go")

		require.Eventually(t, func() bool {
			said, _ := asks("status", name)
			return strings.Contains(said, "'quorate remove-member -n "+harness.Namespace+" "+name+" "+away[1]+"'")
		}, 20*time.Second, time.Second, "the status names it")
		said, code := asks("remove-member", name, s.Pods()[0])
		require.Equal(t, 1, code, said)
		require.Contains(t, said, "is not known to be a ghost")

		require.NoError(t, s.SetMinAvailable(ctx, 2)) // Else no budget of five would let one of three go.
		said, code = asks("remove-member", name, "--all-ghosts")
		require.Zero(t, code, said)
		for _, ghost := range away {
			require.Contains(t, said, ghost+": removed from etcd's member list")
		}
		s.complete(ctx)
	})
	o.lostNothing(t)
	o.keptQuorum(t)
	require.ElementsMatch(t, append(s.Pods(), away...), o.order, "each pod goes once")
	members, err := s.Members(context.WithoutCancel(ctx))
	require.NoError(t, err)
	require.ElementsMatch(t, s.Pods(), members)
	said, _ := asks("history", name)
	require.Contains(t, said, "MemberRemoved")
	record, err := s.Record(ctx)
	require.NoError(t, err)
	require.Empty(t, record.Annotations["quorate.dev/request"], "it was answered")
}
