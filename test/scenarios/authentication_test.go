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

// With etcd's authentication on, a sidecar whose user may only read and write its own keys rolls the pods. What else
// etcd refuses it is told with what to grant, and is done once that is granted.
func TestDutiesWithAuthentication(t *testing.T) {
	leftOut(t)
	t.Parallel()
	ctx, s := newCluster(t, harness.Namespaces, harness.Spec{Name: "signed-in", PlainText: true,
		SidecarArgs: []string{"--ghost-after=4s", "--etcd-username=" + harness.SidecarUser,
			"--etcd-password=" + harness.SidecarUser}})
	require.NoError(t, s.Authenticate(ctx))
	const grant = "grant its user the role root (etcdctl user grant-role USER root)"

	t.Run("without the role root", func(t *testing.T) {
		s := s.in(t)
		began := time.Now()
		o := s.during(ctx, func(*harness.Ledger) {
			s.touch(ctx, "without the role root")
			s.says(ctx, "what moving leadership needs", func(e harness.LogEntry) bool {
				return strings.Contains(e.Error, "etcd refuses to move leadership (permission denied): "+grant)
			})
			s.complete(ctx)
		})
		o.lostNothing(t)
		o.oneAtATime(t)
		o.replacedOnce(t, s.Pods()...)

		require.NoError(t, s.Waste(ctx, 4))
		said, code := s.quorate(ctx, "defragment", s.Spec.Name, "--yes", "--timeout=1m")
		t.Log(said)
		require.Equal(t, 1, code)
		require.Contains(t, said, "DefragmentFails")
		require.Contains(t, said, "etcd refuses a defragmentation (permission denied): "+grant)
		for _, e := range s.defragmented(ctx, began) {
			require.Contains(t, e.Reason, "failed after")
		}

		require.NoError(t, s.AddGhost(ctx, s.Spare()))
		require.Eventually(t, func() bool {
			return strings.Contains(s.statusNow(ctx), "'quorate remove-member ")
		}, 90*time.Second, time.Second, "the status names it; the owner of the lock looks once a minute")
		asking, cancel := context.WithTimeout(ctx, 20*time.Second)
		defer cancel()
		said, code = s.quorate(asking, "remove-member", s.Spec.Name, "--all-ghosts")
		t.Log(said)
		require.NotZero(t, code)
		refused := "etcd refuses to remove a member (permission denied): " + grant
		require.Contains(t, said, refused)
		require.Contains(t, s.statusNow(ctx), refused)
		members, err := s.Members(ctx)
		require.NoError(t, err)
		require.Len(t, members, 4)
	})
	t.Run("with the role root", func(t *testing.T) {
		s := s.in(t)
		require.NoError(t, s.GrantRoot(ctx))
		began := time.Now()
		said, code := s.quorate(ctx, "remove-member", s.Spec.Name, "--all-ghosts")
		t.Log(said)
		require.Zero(t, code)
		members, err := s.Members(ctx)
		require.NoError(t, err)
		require.ElementsMatch(t, s.Pods(), members)

		said, code = s.quorate(ctx, "defragment", s.Spec.Name, "--yes", "--timeout=2m")
		t.Log(said)
		require.Zero(t, code)
		require.Len(t, s.defragmented(ctx, began), 3)

		o := s.during(ctx, func(*harness.Ledger) {
			s.touch(ctx, "with the role root")
			s.complete(ctx)
		})
		o.lostNothing(t)
		// Signing in takes a while, so the first samples show too few that serve.
		require.Zero(t, o.Cluster.WithoutQuorumSeconds, "seconds in which no member served")
		o.oneAtATime(t)
		o.replacedOnce(t, s.Pods()...)
		require.Equal(t, 1, o.Cluster.LeaderChanges, "leadership is handed over")
		moved := s.done(ctx, s.changed)
		require.NotEmpty(t, moved)
		require.Equal(t, report.LeaderMoved, moved[len(moved)-1].What)
	})
}
