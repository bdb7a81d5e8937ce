package scenarios

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/quorate/quorate/test/harness"
)

// A chart in wide use lets each member advertise its Service beside its own URL (bitnami/charts#31922).
func TestMembersThatAlsoAdvertiseTheirServiceAreRolled(t *testing.T) {
	t.Parallel()
	const name, port = "shared", 2379 // In a network of its own, every port is free.
	own := fmt.Sprintf("http://$(POD_NAME).%s-peer.%s.svc:%d", name, harness.Namespace, port)
	service := fmt.Sprintf("http://%s-client.%s.svc:%d", name, harness.Namespace, port)
	ctx, s := newCluster(t, harness.Namespaces, harness.Spec{Name: name, PlainText: true,
		EtcdArgs: []string{"--advertise-client-urls=" + service + "," + own}}) // The last one counts.

	t.Run("a healthy cluster is rolled one pod at a time", func(t *testing.T) {
		s := s.in(t)
		o := s.during(ctx, func(*harness.Ledger) {
			s.touch(ctx, "healthy")
			s.complete(ctx)
		})
		o.lostNothing(t)
		o.keptQuorum(t)
		o.oneAtATime(t)
		o.replacedOnce(t, s.Pods()...)
	})
	t.Run("the member that is down goes first, though the Service answers for it", func(t *testing.T) {
		s := s.in(t)
		sick := s.Pods()[1]
		o := s.during(ctx, func(*harness.Ledger) {
			require.NoError(t, s.MoveLeader(ctx, s.Pods()[0])) // A leader's crash costs an election.
			fault, err := s.CrashLoop(ctx, sick)
			require.NoError(t, err)
			defer fault.Stop()
			require.NoError(t, s.WaitWaiting(ctx, sick, "etcd", "CrashLoopBackOff"))
			s.touch(ctx, "cured")
			s.complete(ctx)
		})
		o.lostNothing(t)
		o.keptQuorum(t)
		o.oneAtATime(t)
		o.replacedOnce(t, s.Pods()...)
		require.Equal(t, sick, o.order[0])
	})
}
