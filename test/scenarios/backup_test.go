package scenarios

import (
	"context"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"

	"github.com/quorate/quorate/test/harness"
	"github.com/quorate/quorate/test/harness/build"
	"github.com/quorate/quorate/test/harness/process"
)

// etcd-backup-restore restores and compacts a backup by replaying changes on a snapshot, in an
// etcd of its own without any sidecar, and compares revisions after each. Whatever takes a
// revision there by itself makes the backup useless, and that is a lease that expires.
func TestNothingOfOursTakesARevisionWhileABackupIsReplayed(t *testing.T) {
	t.Parallel()
	const (
		ttl = 2 * time.Second
		// replayed is how long a replay takes here: longer than any interval of ours.
		replayed = 4 * ttl
	)
	ctx, s := newCluster(t, harness.Loopback, harness.Spec{
		Name: "backup", PlainText: true, SidecarArgs: []string{"--lock-ttl=" + ttl.String(), "--probe-timeout=1s"},
	})
	s.coordinator(ctx)
	dir := t.TempDir()
	idle := s.snapshot(ctx, filepath.Join(dir, "idle"))

	var rolling string
	o := s.during(ctx, func(l *harness.Ledger) {
		s.touch(ctx, "backup")
		require.NoError(t, l.WaitRemovals(ctx, 1))
		rolling = s.snapshot(ctx, filepath.Join(dir, "rolling"))
		s.complete(ctx)
	})
	o.lostNothing(t)

	// What sidecars had that kept a lease as short as the TTL: the test can fail.
	client, err := s.Dial(s.Pods()[0])
	require.NoError(t, err)
	defer client.Close()
	lease, err := client.Grant(ctx, int64(ttl/time.Second))
	require.NoError(t, err)
	_, err = client.Put(ctx, "/short", "", clientv3.WithLease(lease.ID))
	require.NoError(t, err)
	short := s.snapshot(ctx, filepath.Join(dir, "short"))

	for _, tc := range []struct {
		name, snapshot string
		// keys are how many of our own at least are in it; moves: a revision is taken.
		keys  int
		moves bool
	}{
		{"of a cluster that idles", idle, 2 * 3, false},
		{"of one in the midst of a rollout", rolling, 2 * 2, false},
		{"of one with a lease that is as short as the TTL, which takes one", short, 2*3 + 1, true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			client := restored(ctx, t, tc.snapshot)
			found, err := client.Get(ctx, "/", clientv3.WithPrefix(), clientv3.WithKeysOnly())
			require.NoError(t, err)
			require.GreaterOrEqual(t, len(found.Kvs), tc.keys, "keys of the sidecars and the control")
			s.pass(ctx, replayed)
			now, err := client.Get(ctx, "/")
			require.NoError(t, err)
			require.Equal(t, tc.moves, now.Header.Revision > found.Header.Revision, "revision %d, and then %d",
				found.Header.Revision, now.Header.Revision)
		})
	}
}

// snapshot saves the data of the cluster into a file.
func (s *scene) snapshot(ctx context.Context, path string) string {
	s.t.Helper()
	client, err := s.Dial(s.Pods()[0])
	require.NoError(s.t, err)
	defer client.Close()
	data, err := client.Snapshot(ctx)
	require.NoError(s.t, err)
	defer data.Close()
	file, err := os.Create(path)
	require.NoError(s.t, err)
	_, err = io.Copy(file, data)
	require.NoError(s.t, err)
	require.NoError(s.t, file.Close())
	return path
}

// restored starts an etcd of its own on a snapshot and returns a client of it.
func restored(ctx context.Context, t *testing.T, snapshot string) *clientv3.Client {
	t.Helper()
	binaries, err := build.Some(ctx, say, build.Etcdutl)
	require.NoError(t, err)
	m := newReplay(t)
	said, err := exec.CommandContext(ctx, binaries.Etcdutl,
		append([]string{"snapshot", "restore", snapshot}, m.flags()...)...).CombinedOutput()
	require.NoError(t, err, "%s", said)
	return m.serve(ctx, t, filepath.Base(snapshot)+".log")
}

// replay is a member of its own, for what is restored from a backup.
type replay struct{ clients, peers, data string }

func newReplay(t *testing.T) replay {
	t.Helper()
	url := func() string {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		require.NoError(t, err)
		require.NoError(t, l.Close())
		return "http://" + l.Addr().String()
	}
	return replay{clients: url(), peers: url(), data: filepath.Join(t.TempDir(), "data")}
}

// flags are those that etcd shares with whatever restores its data.
func (m replay) flags() []string {
	return []string{"--name=replay", "--data-dir=" + m.data, "--initial-cluster=replay=" + m.peers,
		"--initial-advertise-peer-urls=" + m.peers}
}

// serve starts etcd on the restored data and returns a client of it.
func (m replay) serve(ctx context.Context, t *testing.T, log string) *clientv3.Client {
	t.Helper()
	binaries, err := build.Some(ctx, say, build.Etcd35)
	require.NoError(t, err)
	etcd, err := process.Start(process.Spec{
		Name: "the etcd of the replay", Path: binaries.Etcd35, LogPath: filepath.Join(*logs, log),
		Args: append(m.flags(), "--listen-peer-urls="+m.peers, "--listen-client-urls="+m.clients,
			"--advertise-client-urls="+m.clients, "--unsafe-no-fsync"),
	})
	require.NoError(t, err)
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		require.NoError(t, etcd.Stop(ctx, 0))
	})
	client, err := clientv3.New(clientv3.Config{Endpoints: []string{m.clients}, Logger: zap.NewNop()})
	require.NoError(t, err)
	t.Cleanup(func() { _ = client.Close() })
	require.Eventually(t, func() bool {
		ctx, cancel := context.WithTimeout(ctx, time.Second)
		defer cancel()
		_, err := client.Get(ctx, "/")
		return err == nil
	}, time.Minute, 50*time.Millisecond)
	return client
}
