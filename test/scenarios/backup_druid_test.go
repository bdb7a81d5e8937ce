package scenarios

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/quorate/quorate/test/harness"
	"github.com/quorate/quorate/test/harness/build"
	"github.com/quorate/quorate/test/harness/process"
)

// backupTimeout bounds each of these scenarios. Most of the time goes by while the host waits for its next minute.
const backupTimeout = 20 * time.Minute

// everyMinute is the schedule on which the host takes full snapshots here, and defragments.
const everyMinute = "* * * * *"

// busyBackups lets the host take snapshots, compact them and defragment all the time.
func busyBackups(spec map[string]any) {
	backup, etcd := spec["backup"].(map[string]any), spec["etcd"].(map[string]any)
	backup["deltaSnapshotPeriod"], backup["fullSnapshotSchedule"] = "5s", everyMinute
	backup["snapshotCompaction"] = map[string]any{"eventsThreshold": int64(1000)}
	etcd["defragmentationSchedule"] = everyMinute
}

// resources changes the template of an Etcd's pods, for the nth time.
func (s *scene) resources(ctx context.Context, n int) {
	s.t.Helper()
	s.changed = time.Now()
	require.NoError(s.t, s.ChangeEtcd(ctx, "change the resources of etcd", fmt.Sprintf(
		`{"spec":{"etcd":{"resources":{"requests":{"cpu":"%dm","memory":"128Mi"}}}}}`, 60+n)))
}

// newBackedUp creates an Etcd with etcd 3.5 that Quorate rolls.
func newBackedUp(t *testing.T, name string, change func(spec map[string]any)) (context.Context, *scene) {
	t.Helper()
	_, env, operator := druidEnvironment(t, name)
	ctx, cancel := context.WithTimeout(t.Context(), backupTimeout)
	t.Cleanup(cancel)
	require.NoError(t, operator.Restart(ctx, true))
	require.NoError(t, env.InstallPolicy(ctx))
	s := newEtcd(t, ctx, env, harness.Spec{Name: "etcd-main", SidecarImage: harness.DropIn, Etcd: change})
	require.NoError(t, s.Grant(ctx))
	s.coordinator(ctx)
	return ctx, s
}

// Snapshots, compaction by etcd-druid's Job and defragmentation all go on while pods are rolled, and what is restored
// from the backup is what the cluster had.
func TestEtcdDruidsBackupsHaveAllThatIsWrittenDuringRollouts(t *testing.T) {
	leftOut(t)
	t.Parallel()
	ctx, s := newBackedUp(t, "backed-up", busyBackups)
	leader, err := s.Leader(ctx)
	require.NoError(s.t, err)
	kept := map[string]string{}
	var began time.Time
	var during work
	o := s.during(ctx, func(*harness.Ledger) {
		written := s.keep(ctx, kept)
		s.host(ctx, "compacts its backups", func() bool { return s.compactions(time.Time{}) > 0 })
		// The job that defragments begins with a minute, and does its work with the next one. So does its successor.
		s.host(ctx, "defragments", func() bool { return s.told(defragmented, time.Time{}) > 0 })
		s.pass(ctx, 100*time.Second)
		began = time.Now()
		s.resources(ctx, 0)
		s.complete(ctx)
		during = s.work(began)
		ended := time.Now()
		s.t.Logf("a rollout of %v, and in it: %v", ended.Sub(began).Round(time.Second), during)
		s.host(ctx, "compacts its backups again", func() bool { return s.compactions(ended) > 0 })
		written()
		s.t.Logf("in all: %v", s.work(time.Time{}))
	})
	healthyRollout(s.t, o, s.Pods(), leader)
	require.NotEmpty(s.t, kept)

	revision := s.revision(ctx)
	require.NoError(s.t, s.WaitBackedUp(ctx, revision))
	store := s.copyBackups(filepath.Join(s.t.TempDir(), "busy"))
	s.restoredEquals(ctx, store, kept)
	require.Positive(s.t, during.full, "full snapshots in the rollout")
	require.Positive(s.t, during.delta, "delta snapshots in the rollout")
	require.Positive(s.t, during.compactions, "compactions in the rollout")
	require.Positive(s.t, during.defragmentations, "attempts to defragment in the rollout")
}

// All volumes are lost, as in etcd-druid's own page on that. The backup has keys of sidecars that are gone, some with
// leases and some without.
func TestAnEtcdOfEtcdDruidsComesBackFromABackupWithQuoratesKeys(t *testing.T) {
	leftOut(t)
	t.Parallel()
	ctx, s := newBackedUp(t, "all-lost", busyBackups)
	s.writeHistory(ctx, 2000)
	store, before := s.backupWithKeysThatHaveNoLease(ctx)
	require.Len(s.t, before.others(), historyKeys)

	pods := s.Pods()
	require.NoError(s.t, s.ScaleEtcd(ctx, 0, "{}"))
	require.NoError(s.t, s.WaitGone(ctx))
	require.NoError(s.t, s.LoseAllMembers(ctx, len(pods)))
	// The pods have ended in order, and so have taken their keys away. Volumes that are lost take away nothing.
	require.NoError(s.t, harness.Empty(s.Backups()))
	require.NoError(s.t, os.CopyFS(s.Backups(), os.DirFS(store)))

	began := time.Now()
	require.NoError(s.t, s.ScaleEtcd(ctx, 1, "{}"))
	s.host(ctx, "serves what it has restored", func() bool {
		ctx, cancel := context.WithTimeout(ctx, time.Second)
		defer cancel()
		_, err := s.LockQueue(ctx)
		return err == nil
	})
	serves := time.Now()
	owner := s.coordinator(ctx)
	s.t.Logf("it served %v after the Etcd was scaled to 1, and %s had the lock %v after that",
		serves.Sub(began).Round(100*time.Millisecond), owner, time.Since(serves).Round(100*time.Millisecond))
	require.NoError(s.t, s.WaitReady(ctx))
	client := s.dial(s.Pods()[0])
	require.Equal(s.t, before.others(), contents(ctx, s.t, client, 0).others(), "what was restored")

	require.NoError(s.t, s.ScaleEtcd(ctx, len(pods), "{}"))
	s.waitScaled(ctx)
	require.NoError(s.t, s.WaitUpdated(ctx))
	owner = s.coordinator(ctx)
	s.t.Logf("three members again, and %s has the lock, %v after the Etcd was scaled to 1", owner,
		time.Since(began).Round(time.Second))
	queue, err := s.LockQueue(ctx)
	require.NoError(s.t, err)
	require.ElementsMatch(s.t, pods, queue, "nothing of what was restored is left in the queue")

	leader, err := s.Leader(ctx)
	require.NoError(s.t, err)
	o := s.during(ctx, func(*harness.Ledger) {
		s.resources(ctx, 1)
		first := s.says(ctx, "that it coordinates", func(e harness.LogEntry) bool { return e.Epoch != 0 })
		s.t.Logf("%s coordinated by the %s %v after the change", first.Pod, first.By,
			first.At.Sub(s.changed).Round(100*time.Millisecond))
		s.complete(ctx)
	})
	healthyRollout(s.t, o, pods, leader)
	require.NoError(s.t, s.WaitBackedUp(ctx, s.revision(ctx)))
	s.restoredEquals(ctx, s.copyBackups(filepath.Join(s.t.TempDir(), "after")), nil)
}

// backupWithKeysThatHaveNoLease copies backups that end with a delta snapshot which has Quorate's keys. What is written
// after a full snapshot loses its lease, because delta snapshots have none. Full ones are taken every minute, so one
// may come in between.
func (s *scene) backupWithKeysThatHaveNoLease(ctx context.Context) (store string, restored content) {
	s.t.Helper()
	for try := range 5 {
		require.NoError(s.t, s.WaitFullSnapshot(ctx, time.Now()))
		require.NoError(s.t, s.PutStaleLocks(ctx, 24*time.Hour+lockTTL))
		s.writeHistory(ctx, 500)
		require.NoError(s.t, s.WaitBackedUp(ctx, s.revision(ctx)))
		store := s.copyBackups(filepath.Join(s.t.TempDir(), fmt.Sprint("lost-", try)))
		restored := contents(ctx, s.t, s.restoreAndServe(ctx, store), 0)
		leased, unleased := 0, 0
		for key, value := range restored.keys {
			switch {
			case !strings.HasPrefix(key, "/quorate/"):
			case value.leased:
				leased++
			default:
				unleased++
			}
		}
		s.t.Logf("the backup has %d keys of Quorate's with a lease, and %d without", leased, unleased)
		if unleased >= 2 { // A lock key, and its presence.
			return store, restored
		}
	}
	require.FailNow(s.t, "a full snapshot came each time")
	return "", content{}
}

// The host adds a member that has lost its volume again, as a learner. Until it votes again, nobody else may go.
func TestAMemberOfEtcdDruidsLosesItsVolume(t *testing.T) {
	leftOut(t)
	t.Parallel()
	ctx, s := newBackedUp(t, "volume-lost", nil)
	for _, tc := range []struct {
		name string
		lose func(s *scene, l *harness.Ledger) (pod string)
	}{
		{"right before a rollout", func(s *scene, _ *harness.Ledger) string {
			leader, err := s.Leader(ctx)
			require.NoError(s.t, err)
			require.NoError(s.t, s.Annotate(ctx, harness.PausedAnnotation, "true"))
			s.resources(ctx, 0)
			// It would not be the next one.
			pod := s.others(leader)[1]
			require.NoError(s.t, s.LoseVolume(ctx, pod))
			require.NoError(s.t, s.Annotate(ctx, harness.PausedAnnotation, ""))
			return pod
		}},
		{"while its pod is replaced", func(s *scene, l *harness.Ledger) string {
			s.resources(ctx, 1)
			require.NoError(s.t, l.WaitRemovals(ctx, 1))
			pod := l.Order()[0]
			require.NoError(s.t, s.LoseVolume(ctx, pod))
			return pod
		}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			s := s.in(t)
			before := s.memberIDs(ctx)
			var lost string
			o := s.during(ctx, func(l *harness.Ledger) {
				lost = tc.lose(s, l)
				s.complete(ctx)
				require.NoError(t, s.WaitEtcdReady(ctx))
			})
			o.lostNothing(t)
			// While two vote, both have to answer, and one that is slow for a moment is no outage.
			require.Zero(t, o.Cluster.WithoutQuorumSeconds, "seconds without quorum")
			o.oneAtATime(t)
			for _, r := range o.removals {
				require.Equal(t, 2, r.OthersReady, "others that were Ready when %s was removed", r.Pod)
			}
			o.replacedOnce(t, s.Pods()...)
			after := s.memberIDs(ctx)
			require.Len(t, after, len(s.Pods()), "all of them vote")
			for pod, id := range after {
				require.Equal(t, pod == lost, before[pod] != id, "%s is another member: it was %x, and is %x", pod,
					before[pod], id)
			}
			for _, d := range s.journal.Decisions() {
				if d.At.After(s.changed) {
					t.Logf("%v after the change, with the volume of %s lost: %s",
						d.At.Sub(s.changed).Round(time.Second), lost, d)
				}
			}
		})
	}
}

// longHistory is how many revisions are replayed: for longer than any interval of ours.
const longHistory = 150_000

// The host replays delta snapshots in an etcd of its own, beside which nothing of ours runs, and compares revisions.
// What it finds there comes from the clients, from the sidecars' keys and from the host's own snapshots. All of these
// are here as they are in a cluster of etcd-druid's, which would only add minutes until it is formed, and the host's
// first snapshots, which could not be taken at the moments that matter.
func TestTheHostOfEtcdDruidRestoresAndCompactsALongHistory(t *testing.T) {
	leftOut(t)
	t.Parallel()
	if _, err := build.Some(t.Context(), say, build.DropIn); errors.Is(err, build.ErrNoHosts) {
		t.Skip(err)
	}
	const ttl = 10 * time.Second
	_, s := newCluster(t, harness.Loopback, harness.Spec{
		Name: "long", PlainText: true, SidecarArgs: []string{"--lock-ttl=" + ttl.String()},
	})
	ctx, cancel := context.WithTimeout(t.Context(), backupTimeout)
	t.Cleanup(cancel)
	s.coordinator(ctx)
	dir := t.TempDir()
	idle := s.backUp(ctx, filepath.Join(dir, "idle"))
	var rolling *backup
	o := s.during(ctx, func(l *harness.Ledger) {
		s.touch(ctx, "long")
		require.NoError(t, l.WaitRemovals(ctx, 1))
		rolling = s.backUp(ctx, filepath.Join(dir, "rolling"))
		require.Less(t, len(l.Returns()), len(s.Pods()), "the rollout is still under way")
		s.complete(ctx)
	})
	o.lostNothing(t)
	o.keptQuorum(t)

	// What sidecars had that kept a lease as short as the TTL: the test can fail.
	client := s.dial(s.Pods()[0])
	lease, err := client.Grant(ctx, int64(ttl/time.Second))
	require.NoError(t, err)
	_, err = client.KeepAlive(ctx, lease.ID)
	require.NoError(t, err)
	_, err = client.Put(ctx, "/short", "", clientv3.WithLease(lease.ID))
	require.NoError(t, err)
	short := s.backUp(ctx, filepath.Join(dir, "short"))

	began := time.Now()
	s.writeHistory(ctx, longHistory)
	revision := s.revision(ctx)
	t.Logf("%d revisions written in %v, up to revision %d", longHistory, time.Since(began).Round(time.Second), revision)
	for _, b := range []*backup{idle, rolling, short} {
		b.wait(ctx, t, revision)
	}
	live := contents(ctx, t, client, revision)

	for _, b := range []*backup{idle, rolling} {
		t.Run("of a cluster whose first snapshot was taken "+filepath.Base(b.store), func(t *testing.T) {
			began := time.Now()
			got := contents(ctx, t, replayed(ctx, t, b.store, backupPrefix), 0)
			took := time.Since(began)
			require.Equal(t, revision, got.revision)
			require.Equal(t, live.written(), got.written())

			began = time.Now()
			smaller := copyStore(t, b.store, b.store+"-compacted")
			said, err := etcdbrctl(ctx, t, smaller, backupPrefix, "compact", "--enable-snapshot-lease-renewal=false")
			require.NoError(t, err, "%s", tail(said))
			require.NotContains(t, said, mismatch)
			require.Contains(t, said, compacted)
			compaction := time.Since(began)
			full, delta := snapshotsIn(t, b.store)
			now, _ := snapshotsIn(t, smaller)
			require.Equal(t, full+1, now, "compaction has added a full snapshot")
			got = contents(ctx, t, replayed(ctx, t, smaller, backupPrefix), 0)
			require.Equal(t, revision, got.revision)
			require.Equal(t, live.written(), got.written())
			t.Logf("%d keys and %d delta snapshots: restored in %v, compacted in %v", len(got.keys), delta,
				took.Round(time.Second), compaction.Round(time.Second))
		})
	}
	t.Run("of one with a lease that is as short as the TTL, which cannot be restored", func(t *testing.T) {
		said, err := etcdbrctl(ctx, t, short.store, backupPrefix, "restore", newReplay(t).flags()...)
		require.Error(t, err)
		require.Contains(t, said, mismatch)
	})
}

// backupPrefix is that of the stores that no Etcd has.
const backupPrefix = "long"

// backup is the host that takes snapshots of a cluster.
type backup struct {
	store string
	host  *process.Process
}

// backUp starts the host beside the cluster, and waits until it has taken its first snapshot, which is a full one. It
// is stopped when the test ends.
func (s *scene) backUp(ctx context.Context, store string) *backup {
	s.t.Helper()
	binaries, err := build.Some(ctx, say, build.DropIn)
	require.NoError(s.t, err)
	require.NoError(s.t, os.MkdirAll(store, 0o755))
	host, err := process.Start(process.Spec{
		Name: "the host that takes snapshots", Path: binaries.DropIn, Env: storeEnv(store), Dir: s.t.TempDir(),
		LogPath: filepath.Join(*logs, "long-"+filepath.Base(store)+".log"),
		Args: append([]string{"snapshot", "--endpoints=" + strings.Join(s.Endpoints(), ","),
			"--insecure-transport=true", "--schedule=0 0 1 1 *", "--delta-snapshot-period=5s",
		}, storeArgs(store, backupPrefix)...),
	})
	require.NoError(s.t, err)
	s.t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		require.NoError(s.t, host.Stop(ctx, 0))
	})
	b := &backup{store: store, host: host}
	s.host(ctx, "takes its first snapshot", func() bool {
		full, _ := snapshotsIn(s.t, store)
		return full > 0
	})
	return b
}

// wait waits until the backup goes to a revision, and ends the host.
func (b *backup) wait(ctx context.Context, t *testing.T, revision int64) {
	t.Helper()
	last := fmt.Sprintf("-%08d-", revision)
	for !slices.ContainsFunc(filesIn(t, b.store), func(name string) bool { return strings.Contains(name, last) }) {
		select {
		case <-b.host.Done():
			t.Fatalf("the host has ended with code %d", b.host.ExitCode())
		default:
		}
		require.NoError(t, harness.Pass(ctx, 200*time.Millisecond), "%s goes to revision %d", b.store, revision)
	}
	require.NoError(t, b.host.Stop(ctx, 10*time.Second))
}

// historyKeys are how many keys the revisions are of that writeHistory writes.
const historyKeys = 1000

// writeHistory writes so many revisions.
func (s *scene) writeHistory(ctx context.Context, revisions int) {
	s.t.Helper()
	const writers = 48
	var writing sync.WaitGroup
	errs := make([]error, writers)
	for w := range writers {
		client := s.dial(s.Pods()[w%len(s.Pods())])
		writing.Go(func() {
			for n := w; n < revisions && errs[w] == nil; n += writers {
				_, errs[w] = client.Put(ctx, fmt.Sprintf("/long/%04d", n%historyKeys), fmt.Sprint("write ", n))
			}
		})
	}
	writing.Wait()
	require.NoError(s.t, errors.Join(errs...))
}

// keep writes a new key again and again. Those that etcd has acknowledged are in the map once the function that
// it returns has been called.
func (s *scene) keep(ctx context.Context, acknowledged map[string]string) (stop func()) {
	s.t.Helper()
	clients := map[string]*clientv3.Client{}
	for _, pod := range s.Pods() {
		clients[pod] = s.dial(pod)
	}
	return s.disturb(ctx, func(n int) error {
		key, value := fmt.Sprintf("/kept/%06d", n), fmt.Sprintf("of the %dth write", n)
		ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
		defer cancel()
		// Members go and come back. What is not acknowledged is not expected.
		if _, err := clients[s.Pods()[n%len(s.Pods())]].Put(ctx, key, value); err == nil {
			acknowledged[key] = value
		}
		return nil
	})
}

// dial opens a client to one member until the test ends.
func (s *scene) dial(pod string) *clientv3.Client {
	s.t.Helper()
	client, err := s.Dial(pod)
	require.NoError(s.t, err)
	s.t.Cleanup(func() { _ = client.Close() })
	return client
}

// revision is the newest one.
func (s *scene) revision(ctx context.Context) int64 {
	s.t.Helper()
	found, err := s.dial(s.Pods()[0]).Get(ctx, "/")
	require.NoError(s.t, err)
	return found.Header.Revision
}

// memberIDs are those of the voters by their names.
func (s *scene) memberIDs(ctx context.Context) map[string]uint64 {
	s.t.Helper()
	list, err := s.dial(s.Pods()[0]).MemberList(ctx)
	require.NoError(s.t, err)
	ids := map[string]uint64{}
	for _, m := range list.Members {
		if !m.IsLearner {
			ids[m.Name] = m.ID
		}
	}
	return ids
}

// host waits for something that the host does by itself.
func (s *scene) host(ctx context.Context, does string, done func() bool) {
	s.t.Helper()
	for !done() {
		require.NoError(s.t, harness.Pass(ctx, 200*time.Millisecond), "wait until the host %s", does)
	}
}

// What the host says of itself. It does not defragment while a member is away, and tries again a minute later.
const (
	savedFull    = "Successfully saved full snapshot"
	savedDelta   = "Successfully saved delta snapshot"
	defragments  = "All etcd members endPoints"
	defragmented = "Finished defragmenting etcd member"
	compacted    = "Compacted snapshot name"
)

// work is what the host has done, and how often.
type work struct{ full, delta, compactions, defragmentations, defragmented int }

func (w work) String() string {
	return fmt.Sprintf("%d full snapshots, %d delta snapshots, %d compactions, %d attempts to defragment, with %d "+
		"members defragmented", w.full, w.delta, w.compactions, w.defragmentations, w.defragmented)
}

// work is what the host has done since then.
func (s *scene) work(since time.Time) work {
	s.t.Helper()
	return work{full: s.told(savedFull, since), delta: s.told(savedDelta, since), compactions: s.compactions(since),
		defragmentations: s.told(defragments, since), defragmented: s.told(defragmented, since)}
}

// told is how often sidecars have logged this since then.
func (s *scene) told(text string, since time.Time) int {
	s.t.Helper()
	return told(s.t, s.SidecarLogs(), text, since)
}

// compactions is how many of etcd-druid's compaction Jobs were done since then.
func (s *scene) compactions(since time.Time) int {
	s.t.Helper()
	return told(s.t, s.JobLogs(s.Spec.Name+"-compactor-"), compacted, since)
}

// saidAt is the time of a line of the host's.
var saidAt = regexp.MustCompile(`^time="([^"]+)"`)

func told(t *testing.T, paths []string, text string, since time.Time) (times int) {
	t.Helper()
	for _, path := range paths {
		log, err := os.ReadFile(path)
		require.NoError(t, err)
		for line := range strings.Lines(string(log)) {
			stamp := saidAt.FindStringSubmatch(line)
			if stamp == nil || !strings.Contains(line, text) {
				continue
			}
			at, err := time.Parse(time.RFC3339, stamp[1])
			require.NoError(t, err)
			if at.After(since) {
				times++
			}
		}
	}
	return times
}

// copyBackups copies the backup while nothing is written to it, and returns the folder.
func (s *scene) copyBackups(to string) string {
	s.t.Helper()
	return copyStore(s.t, s.Backups(), to)
}

func copyStore(t *testing.T, from, to string) string {
	t.Helper()
	for {
		before := filesIn(t, from)
		require.NoError(t, os.RemoveAll(to))
		err := os.CopyFS(to, os.DirFS(from))
		if after := filesIn(t, from); slices.Equal(before, after) && slices.Equal(before, filesIn(t, to)) {
			require.NoError(t, err)
			return to
		}
	}
}

// filesIn are the files of a folder, with their sizes.
func filesIn(t *testing.T, dir string) (all []string) {
	t.Helper()
	err := filepath.WalkDir(dir, func(path string, entry os.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		info, err := entry.Info()
		if err != nil {
			return err
		}
		name, err := filepath.Rel(dir, path)
		all = append(all, fmt.Sprint(name, " ", info.Size()))
		return err
	})
	require.NoError(t, err)
	return all
}

// snapshotsIn is how many snapshots a backup has.
func snapshotsIn(t *testing.T, store string) (full, delta int) {
	t.Helper()
	for _, name := range filesIn(t, store) {
		switch {
		case strings.Contains(name, "/Full-"):
			full++
		case strings.Contains(name, "/Incr-"):
			delta++
		}
	}
	return full, delta
}

// content is everything at one revision.
type content struct {
	revision int64
	keys     map[string]keyValue
}

type keyValue struct {
	value                      string
	created, modified, version int64
	leased                     bool
}

// contents reads everything at a revision, the newest if it is 0.
func contents(ctx context.Context, t *testing.T, client *clientv3.Client, revision int64) content {
	t.Helper()
	found, err := client.Get(ctx, "\x00", clientv3.WithFromKey(), clientv3.WithRev(revision))
	require.NoError(t, err)
	c := content{revision: found.Header.Revision, keys: map[string]keyValue{}}
	if revision != 0 {
		c.revision = revision
	}
	for _, kv := range found.Kvs {
		c.keys[string(kv.Key)] = keyValue{string(kv.Value), kv.CreateRevision, kv.ModRevision, kv.Version,
			kv.Lease != 0}
	}
	return c
}

// written is everything but for the leases, which delta snapshots do not have.
func (c content) written() map[string]keyValue {
	all := map[string]keyValue{}
	for key, kv := range c.keys {
		kv.leased = false
		all[key] = kv
	}
	return all
}

// others is the same without Quorate's own keys.
func (c content) others() map[string]keyValue {
	all := c.written()
	for key := range all {
		if strings.HasPrefix(key, "/quorate/") {
			delete(all, key)
		}
	}
	return all
}

// etcdbrctl runs a subcommand of the host on a backup: a folder that has the store of an Etcd of this name.
func etcdbrctl(ctx context.Context, t *testing.T, store, prefix, subcommand string, args ...string) (string, error) {
	t.Helper()
	binaries, err := build.Some(ctx, say, build.DropIn)
	require.NoError(t, err)
	command := exec.CommandContext(ctx, binaries.DropIn, append([]string{subcommand}, storeArgs(store, prefix)...)...)
	command.Args = append(command.Args, args...)
	command.Env, command.Dir = storeEnv(store), t.TempDir()
	said, err := command.CombinedOutput()
	return string(said), err
}

// mismatch is what the host says if a revision was taken by something else than what it replays.
const mismatch = "mismatched event revision"

// The host looks for a store of the provider Local in its user's home.
func storeArgs(store, prefix string) []string {
	return []string{"--storage-provider=Local", "--store-container=" + filepath.Base(store), "--store-prefix=" + prefix}
}

func storeEnv(store string) []string { return append(os.Environ(), "HOME="+filepath.Dir(store)) }

// tail is what is left of an output that is too long to read.
func tail(said string) string { return said[max(0, len(said)-4000):] }

// restoreAndServe restores a backup by the host's own subcommand, and starts an etcd on it.
func (s *scene) restoreAndServe(ctx context.Context, store string) *clientv3.Client {
	s.t.Helper()
	return replayed(ctx, s.t, store, s.Spec.Name)
}

func replayed(ctx context.Context, t *testing.T, store, prefix string) *clientv3.Client {
	t.Helper()
	m := newReplay(t)
	said, err := etcdbrctl(ctx, t, store, prefix, "restore", m.flags()...)
	require.NoError(t, err, "%s", tail(said))
	require.NotContains(t, said, mismatch)
	return m.serve(ctx, t, filepath.Base(store)+".log")
}

// restoredEquals: an etcd that is restored from the backup has what the cluster has, and all of these.
func (s *scene) restoredEquals(ctx context.Context, store string, acknowledged map[string]string) {
	s.t.Helper()
	got := contents(ctx, s.t, s.restoreAndServe(ctx, store), 0)
	live := contents(ctx, s.t, s.dial(s.Pods()[0]), got.revision)
	require.Equal(s.t, live.written(), got.written(), "at revision %d", got.revision)
	for key, value := range acknowledged {
		require.Equal(s.t, value, got.keys[key].value, key)
	}
	s.t.Logf("restored %d keys at revision %d, all as they are in the cluster, among them %d that were acknowledged "+
		"one by one", len(got.keys), got.revision, len(acknowledged))
}
