package scenarios

import (
	"context"
	"flag"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/quorate/quorate/test/harness"
)

// measured is how large the databases are where defragmentations are measured. It takes minutes, so it is not measured
// by default.
var measured = flag.Int("defragment-mib", 0,
	"measure defragmentations of databases of so many MiB, half of it free (0: do not)")

// leases are kept alive as clients do, at all members.
type leases struct {
	client *clientv3.Client
	ids    []clientv3.LeaseID
	stop   context.CancelFunc
}

// lease grants leases of so many seconds, and has them kept alive.
func (s *scene) lease(ctx context.Context, n int, seconds int64) *leases {
	s.t.Helper()
	ctx, stop := context.WithCancel(ctx)
	l := &leases{client: s.dial(s.Pods()[0]), stop: stop}
	l.client.SetEndpoints(s.Endpoints()...)
	for range n {
		granted, err := l.client.Grant(ctx, seconds)
		require.NoError(s.t, err)
		answers, err := l.client.KeepAlive(ctx, granted.ID)
		require.NoError(s.t, err)
		go func() {
			for range answers { // Whoever does not read them is not kept alive.
			}
		}()
		l.ids = append(l.ids, granted.ID)
	}
	return l
}

// lost counts those that are gone.
func (l *leases) lost(ctx context.Context, t *testing.T) (n int) {
	t.Helper()
	for _, id := range l.ids {
		left, err := l.client.TimeToLive(ctx, id)
		require.NoError(t, err)
		if left.TTL < 0 {
			n++
		}
	}
	l.stop()
	return n
}

// asTheHost defragments as etcd-backup-restore 0.43.0 does: its health is looked at once, then the followers go in the
// order of the list of members, and the leader in its place, each with a timeout of eight minutes.
func (s *scene) asTheHost(ctx context.Context) {
	s.t.Helper()
	client := s.dial(s.Pods()[0])
	defer client.Close()
	list, err := client.MemberList(ctx)
	require.NoError(s.t, err)
	var followers, leaders []string
	for _, m := range list.Members {
		status, err := client.Status(ctx, m.ClientURLs[0])
		require.NoError(s.t, err)
		if status.Leader == m.ID {
			leaders = append(leaders, m.ClientURLs[0])
		} else {
			followers = append(followers, m.ClientURLs[0])
		}
	}
	for _, endpoint := range slices.Concat(followers, leaders) {
		began := time.Now()
		calling, cancel := context.WithTimeout(ctx, 8*time.Minute)
		_, err := client.Defragment(calling, endpoint)
		cancel()
		require.NoError(s.t, err)
		s.t.Logf("%s was away for %v", endpoint, time.Since(began).Round(time.Millisecond))
	}
}

// What a defragmentation costs clients, beside what etcd-backup-restore does today. The figures are in
// docs/benchmarks.md.
func TestWhatADefragmentationCosts(t *testing.T) {
	if *measured == 0 {
		t.Skip("with -defragment-mib")
	}
	ctx, s := newCluster(t, harness.Loopback, harness.Spec{Name: "measured", PlainText: true,
		EtcdArgs: []string{fmt.Sprintf("--quota-backend-bytes=%d", 8<<30)}})
	require.NoError(t, s.Load(ctx, *measured/2))
	for _, arm := range []struct {
		name string
		do   func(s *scene)
	}{
		{"as etcd-backup-restore does", func(s *scene) { s.asTheHost(ctx) }},
		{"by Quorate", func(s *scene) {
			said, code := s.quorate(ctx, "defragment", s.Spec.Name, "--yes", "--timeout=30m")
			s.t.Log(said)
			require.Zero(s.t, code)
		}},
	} {
		t.Run(arm.name, func(t *testing.T) {
			s := s.in(t)
			require.NoError(t, s.Waste(ctx, *measured/2))
			leader, err := s.Leader(ctx)
			require.NoError(t, err)
			var lost int
			began := time.Now()
			o := s.during(ctx, func(*harness.Ledger) {
				l := s.lease(ctx, 50, 5)
				arm.do(s)
				lost = l.lost(ctx, t)
			})
			o.lostNothing(t)
			t.Logf("%d MiB, %s, leader %s, in %v: longest stall of a writer %v, nobody wrote for %v at the longest, "+
				"changes of leader %d, without quorum %.1f s, leases lost %d of 50", *measured, arm.name, leader,
				time.Since(began).Round(time.Second), o.Traffic.LongestWriteStall, o.Traffic.LongestWriteOutage,
				o.Cluster.LeaderChanges, o.Cluster.WithoutQuorumSeconds, lost)
		})
	}
}
