package scenarios

import (
	"context"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/quorate/quorate/test/harness"
)

// Etcd-backup-restore looks every four seconds whether etcd runs. When it does, it writes the new peer URL and restarts
// etcd once. Usually the pod is not Ready so early. If it is, because etcd started late or the sidecar is slow, the
// next pod must not go before that restart. That is what the gate SidecarsStarted is for.
func TestEtcdDruidTurnsOnPeerTLSWhileASidecarIsSlow(t *testing.T) {
	leftOut(t)
	t.Parallel()
	ctx, s := newQuorateEtcd(t, "slow-sidecar", harness.Spec{Name: "etcd-main", PlainPeers: true})
	o := s.during(ctx, func(l *harness.Ledger) {
		defer s.follow(ctx)()
		s.changed = time.Now()
		require.NoError(t, s.ScaleEtcd(ctx, 3, `{"peerUrlTls":`+s.PeerTLS()+`}`))
		var slow string
		for n := 1; slow == ""; n++ {
			require.LessOrEqual(t, n, 2, "a sidecar is stopped before it has seen its etcd")
			require.NoError(t, l.WaitRemovals(ctx, n))
			gone := l.Removals()[n-1]
			require.Eventually(t, func() bool {
				ctx, cancel := context.WithTimeout(ctx, 300*time.Millisecond)
				defer cancel()
				pod := l.Pod(gone.Pod)
				return pod != nil && string(pod.UID) != gone.UID && s.EtcdVersion(ctx, gone.Pod) == "3.5.27"
			}, 2*time.Minute, 20*time.Millisecond, "etcd of %s answers", gone.Pod)
			s.signal(gone.Pod, syscall.SIGSTOP)
			voters, err := s.Voters(ctx)
			require.NoError(t, err)
			if strings.HasPrefix(voters[gone.Pod][0], "http:") {
				slow = gone.Pod
				continue
			}
			t.Logf("the sidecar of %s was faster, and is let go", gone.Pod)
			s.signal(gone.Pod, syscall.SIGCONT)
		}
		removed := l.Order()

		held := s.says(ctx, "that the gate SidecarsStarted holds the rollout", func(e harness.LogEntry) bool {
			return e.Action == "Hold" && e.Guard == "HostGates" &&
				strings.Contains(e.Message, "gate SidecarsStarted: "+slow+": its sidecar has not renewed Lease")
		})
		t.Logf("held: %s", held.Message)
		require.Eventually(t, func() bool {
			said, _ := s.quorate(ctx, "status", s.Spec.Name)
			return strings.Contains(said, "gate SidecarsStarted: "+slow) &&
				slices.ContainsFunc(l.Returns(), func(r harness.Return) bool { return r.Pod == slow })
		}, time.Minute, time.Second, "status names the gate, and %s is Ready before its etcd is restarted", slow)
		s.pass(ctx, 20*time.Second)
		require.Equal(t, removed, l.Order(), "no other pod goes meanwhile")
		s.signal(slow, syscall.SIGCONT)
		s.complete(ctx)
		s.measured(l)
	})
	o.lostNothing(t)
	o.replacedOnce(t, s.Pods()...)
	o.oneAtATime(t)
	o.keptQuorum(t)
	s.speaks(ctx, "https")
}
