package scenarios

import (
	"bufio"
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/quorate/quorate/test/harness"
)

// An etcd that is told to end waits up to seven seconds for the streams of its clients. So a sidecar has none at
// another pod's member: neither when it has started before its own member, nor after a rollout, nor while its own
// member is lost.
func TestNoSidecarHasAStreamAtAnotherPodsMember(t *testing.T) {
	t.Parallel()
	ctx, s := newCluster(t, harness.Loopback, harness.Spec{Name: "streams", PlainText: true})
	s.waitQueue(ctx, len(s.Pods()))
	s.onlyOwnStreams(ctx, "", "after the start")

	began := time.Now()
	s.touch(ctx, "streams")
	s.complete(ctx)
	s.waitQueue(ctx, len(s.Pods()))
	s.onlyOwnStreams(ctx, "", "after a rollout")
	ends := s.etcdEnds(began)
	require.Len(t, ends, len(s.Pods()))
	for _, end := range ends {
		t.Logf("a member that was told to end waited for its clients for %v", end)
		require.Less(t, end, time.Second)
	}

	lost := s.coordinator(ctx)
	fault, err := s.CrashLoop(ctx, lost)
	require.NoError(t, err)
	defer fault.Stop()
	require.NoError(t, s.WaitNotReady(ctx, lost))
	s.waitQueue(ctx, len(s.Pods())-1)
	require.NotEqual(t, lost, s.owner(ctx), "who has the lock")
	s.onlyOwnStreams(ctx, lost, "while a member is lost")
	s.pass(ctx, 3*lockTTL)
	s.onlyOwnStreams(ctx, lost, "while a member is lost")
	fault.Stop()
	require.NoError(t, s.WaitReady(ctx))
	s.waitQueue(ctx, len(s.Pods()))
	s.onlyOwnStreams(ctx, "", "when it is back")
}

// owner is the pod whose sidecar has the lock, although others may not be in the queue.
func (s *scene) owner(ctx context.Context) string {
	s.t.Helper()
	queue, err := s.LockQueue(ctx)
	require.NoError(s.t, err)
	require.NotEmpty(s.t, queue)
	return queue[0]
}

// onlyOwnStreams checks that each member has the streams of one sidecar: its keep-alives and, unless it owns the lock,
// a watch. As many sidecars as members have a session, so no other has one there.
func (s *scene) onlyOwnStreams(ctx context.Context, lost, when string) {
	s.t.Helper()
	owner := s.owner(ctx)
	for _, pod := range s.Pods() {
		if pod == lost {
			continue
		}
		want := map[string]int{"Lease/LeaseKeepAlive": 1}
		if pod != owner {
			want["Watch/Watch"] = 1
		}
		require.Eventually(s.t, func() bool { // The requests of a moment count as well.
			open, err := s.EtcdStreams(ctx, pod)
			return err == nil && len(open) == len(want) && open["Lease/LeaseKeepAlive"] == 1 &&
				open["Watch/Watch"] == want["Watch/Watch"]
		}, 10*time.Second, 50*time.Millisecond, "%s: the streams at %s, where the lock is with %s, should be %v", when,
			pod, owner, want)
	}
}

// etcdEnds is how long the members waited for their clients that were told to end since then. After that they close
// what they have with each other.
func (s *scene) etcdEnds(since time.Time) (ends []time.Duration) {
	s.t.Helper()
	for _, pattern := range s.EtcdLogs() {
		logs, err := filepath.Glob(pattern)
		require.NoError(s.t, err)
		for _, log := range logs {
			f, err := os.Open(log)
			require.NoError(s.t, err)
			var told time.Time
			for lines := bufio.NewScanner(f); lines.Scan(); {
				var line struct {
					At  time.Time `json:"ts"`
					Msg string    `json:"msg"`
				}
				if json.Unmarshal(lines.Bytes(), &line) != nil {
					continue
				}
				switch {
				case strings.HasPrefix(line.Msg, "received signal; shutting down") && line.At.After(since):
					told = line.At
				case !told.IsZero() && (strings.Contains(line.Msg, "leadership transfer") ||
					strings.Contains(line.Msg, "leadership transferring")):
					ends = append(ends, line.At.Sub(told))
					told = time.Time{}
				}
			}
			require.NoError(s.t, f.Close())
		}
	}
	return ends
}
