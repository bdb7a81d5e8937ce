package scenarios

import (
	"bufio"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"

	"github.com/quorate/quorate/coordinator"
	"github.com/quorate/quorate/test/harness"
	"github.com/quorate/quorate/test/harness/traffic"
)

// What CI measures is one round with databases of 256 MiB, which takes half a minute. It shows that it can be
// measured, and that nothing is lost; its figures mean little beside other tests. The page comes from a run for it
// alone.
var (
	measuredRounds = flag.Int("defragment-rounds", 1, "how often the defragmentations of each size are measured")
	measuredPage   = flag.String("defragment-page", "",
		"the file for what defragmentations cost; databases of 2 GiB are then measured as well (empty: none)")
)

const (
	// leasesEach is how many leases each client keeps alive, and leaseSeconds how long they live without that.
	leasesEach, leaseSeconds = 20, 5
	// hostPatience is etcd-backup-restore's own default for one member (--etcd-defrag-timeout).
	hostPatience = 8 * time.Minute
	// snapshotCount is how many entries etcd-druid has etcd keep before it drops older ones.
	snapshotCount = 10000
	// enough is when no other round with databases of that size begins, and measuring bounds them all.
	enough, measuring = 10 * time.Minute, 25 * time.Minute
)

// way is how members are defragmented.
type way string

const (
	nobody    way = "nobody"
	byHost    way = "etcd-backup-restore"
	byQuorate way = "Quorate"
)

// The clients. A client of one member is what most are: it has one URL, or one connection that it stays on.
const (
	atLeader    = "of the member that leads at first"
	atFollowers = "of one of the others"
	atAll       = "of all members"
)

// spell is what happened while members were defragmented once, or while nobody did.
type spell struct {
	round int
	way   way
	// load is the machine's load average, of the last minute, before it.
	load string
	away []away
	// stalls are the longest of each kind of client, in seconds; lost is how many leases its clients have lost.
	stalls map[string]float64
	lost   map[string]int
	// changes are those of the leader.
	changes int
	seconds float64
}

// away is one member that was defragmented.
type away struct {
	pod     string
	seconds float64
	// led is true if it did not hand over before.
	led bool
}

// TestWhatADefragmentationCosts measures what clients notice of it, beside what etcd-backup-restore does today.
func TestWhatADefragmentationCosts(t *testing.T) {
	sizes := []int{256}
	if *measuredPage == "" {
		t.Parallel()
	} else {
		sizes = append(sizes, 2048)
	}
	var all []measurement
	for _, mebibytes := range sizes {
		t.Run(fmt.Sprintf("%d MiB", mebibytes), func(t *testing.T) {
			all = append(all, measurement{mebibytes, measureDefragmentations(t, mebibytes)})
		})
	}
	if *measuredPage != "" && !t.Failed() {
		//nolint:gosec // It is public.
		require.NoError(t, os.WriteFile(*measuredPage, []byte(defragmentPage(all)), 0o644))
	}
}

// measureDefragmentations measures rounds. In each, the database is made half free twice. Each time nobody defragments
// it at first, and then either Quorate or etcd-backup-restore does, who takes turns at being first.
func measureDefragmentations(t *testing.T, mebibytes int) (all []spell) {
	_, s := newCluster(t, harness.Loopback, harness.Spec{
		Name: fmt.Sprintf("measured-%d", mebibytes), PlainText: true,
		EtcdArgs: []string{fmt.Sprintf("--quota-backend-bytes=%d", 8<<30),
			fmt.Sprintf("--snapshot-count=%d", snapshotCount), "--experimental-snapshot-catchup-entries=1000",
			"--max-wals=1"},
		// The defaults. While a member is away, a session that lives there is not renewed.
		SidecarArgs: []string{"--lock-ttl=" + coordinator.DefaultLockTTL.String(),
			"--record-duration=" + coordinator.DefaultRecordDuration.String()},
	})
	ctx, cancel := context.WithTimeout(t.Context(), measuring)
	defer cancel()
	began := time.Now()
	require.NoError(t, s.Load(ctx, mebibytes/2))
	s.dropEntries(ctx)
	for round := range *measuredRounds {
		if round > 0 && time.Since(began) > enough {
			break
		}
		ways := []way{byHost, byQuorate}
		if round%2 == 1 {
			slices.Reverse(ways)
		}
		for n, by := range ways {
			require.NoError(t, s.Waste(ctx, mebibytes/2))
			s.dropEntries(ctx)
			if n == 0 {
				all = append(all, s.spell(ctx, round, nobody))
			}
			all = append(all, s.spell(ctx, round, by))
		}
	}
	return all
}

// dropEntries makes so many small entries that every member drops the large ones before them. Else they stay in its
// memory and in its write-ahead log, as much as has ever been written.
func (s *scene) dropEntries(ctx context.Context) {
	s.t.Helper()
	client := s.dial(s.Pods()[0])
	const writers = 20
	errs := make(chan error, writers)
	for n := range writers {
		go func() {
			for range snapshotCount / writers {
				if _, err := client.Put(ctx, fmt.Sprintf("/small/%d", n), ""); err != nil {
					errs <- err
					return
				}
			}
			errs <- nil
		}()
	}
	for range writers {
		require.NoError(s.t, <-errs)
	}
}

// spell has members defragmented while clients write and keep leases alive.
func (s *scene) spell(ctx context.Context, round int, by way) spell {
	s.t.Helper()
	leader, err := s.Leader(ctx)
	require.NoError(s.t, err)
	p := spell{round: round + 1, way: by, load: load(s.t), stalls: map[string]float64{}, lost: map[string]int{}}
	began := time.Now()
	o := s.during(ctx, func(*harness.Ledger) {
		clients := map[string]*traffic.Client{}
		kept := map[string]*leases{"": s.lease(ctx, s.Endpoints()...)}
		for _, pod := range s.Pods() {
			cfg := s.TrafficConfig()
			cfg.Endpoints, cfg.Writers, cfg.Readers = traffic.Static(s.Endpoint(pod)), 1, -1
			client, err := traffic.Start(ctx, cfg)
			require.NoError(s.t, err)
			clients[pod], kept[pod] = client, s.lease(ctx, s.Endpoint(pod))
		}
		switch by {
		case nobody:
			s.pass(ctx, 2*leaseSeconds*time.Second)
		case byHost:
			s.asTheHost(ctx)
		case byQuorate:
			said, code := s.quorate(ctx, "defragment", s.Spec.Name, "--yes", "--timeout=20m")
			require.Zero(s.t, code, "%s", said)
		}
		p.seconds = time.Since(began).Seconds()
		for pod, l := range kept {
			p.lost[kindOf(pod, leader)] += l.lost(ctx, s.t)
		}
		for pod, client := range clients {
			history, err := client.Stop(ctx)
			require.NoError(s.t, err)
			figures := history.Figures()
			outcome{Figures: traffic.Figures{Traffic: figures}}.lostNothing(s.t)
			kind := kindOf(pod, leader)
			p.stalls[kind] = max(p.stalls[kind], figures.LongestWriteStall.Seconds)
		}
	})
	o.lostNothing(s.t)
	p.stalls[atAll] = o.Traffic.LongestWriteStall.Seconds
	p.away, p.changes = s.absences(began)
	s.t.Logf("%+v", p)
	if by == nobody {
		require.Empty(s.t, p.away)
		return p
	}
	var pods []string
	for _, a := range p.away {
		pods = append(pods, a.pod)
		require.False(s.t, a.led && by == byQuorate, "%s was defragmented while it led", a.pod)
	}
	require.ElementsMatch(s.t, s.Pods(), pods, "each member is defragmented once")
	return p
}

// kindOf is the kind of the client of a pod's member, or of all members.
func kindOf(pod, leader string) string {
	switch pod {
	case "":
		return atAll
	case leader:
		return atLeader
	}
	return atFollowers
}

// asTheHost makes the calls of etcd-backup-restore 0.43.0 (its packages defragmentor and etcdutil): every member tells
// its status once. Then the followers go in the order of the list of members, and the leader in its place. A status
// before and after each is for its log only. The full snapshot that follows is left out.
func (s *scene) asTheHost(ctx context.Context) {
	s.t.Helper()
	client := s.dial(s.Pods()[0])
	list, err := client.MemberList(ctx)
	require.NoError(s.t, err)
	var followers, leaders []string
	for _, m := range list.Members {
		status, err := client.Status(ctx, m.ClientURLs[0])
		require.NoError(s.t, err)
		if status.Leader == m.ID {
			leaders = append(leaders, m.ClientURLs...)
		} else {
			followers = append(followers, m.ClientURLs...)
		}
	}
	for _, endpoint := range slices.Concat(followers, leaders) {
		calling, cancel := context.WithTimeout(ctx, hostPatience)
		_, _ = client.Status(calling, endpoint)
		_, err := client.Defragment(calling, endpoint)
		_, _ = client.Status(calling, endpoint)
		cancel()
		require.NoError(s.t, err)
	}
}

// leases are those that one client keeps alive.
type leases struct {
	client *clientv3.Client
	ids    []clientv3.LeaseID
	// given is for each whether the client has given it up, because it had no answer for as long as it lives.
	given  []*atomic.Bool
	cancel context.CancelFunc
}

// lease grants leases to a client with these URLs, and has it keep them alive.
func (s *scene) lease(ctx context.Context, endpoints ...string) *leases {
	s.t.Helper()
	ctx, cancel := context.WithCancel(ctx)
	s.t.Cleanup(cancel)
	client, err := clientv3.New(clientv3.Config{Endpoints: endpoints, DialTimeout: 5 * time.Second,
		Logger: zap.NewNop()})
	require.NoError(s.t, err)
	s.t.Cleanup(func() { _ = client.Close() })
	l := &leases{client: client, cancel: cancel}
	for range leasesEach {
		granted, err := client.Grant(ctx, leaseSeconds)
		require.NoError(s.t, err)
		answers, err := client.KeepAlive(ctx, granted.ID)
		require.NoError(s.t, err)
		given := new(atomic.Bool)
		go func() {
			for range answers { // Whoever does not read them is not kept alive.
			}
			given.Store(true)
		}()
		l.ids, l.given = append(l.ids, granted.ID), append(l.given, given)
	}
	return l
}

// lost counts those that are gone, or given up, and revokes the others.
func (l *leases) lost(ctx context.Context, t *testing.T) (n int) {
	t.Helper()
	for i, id := range l.ids {
		left, err := l.client.TimeToLive(ctx, id)
		require.NoError(t, err)
		if left.TTL < 0 || l.given[i].Load() {
			n++
			continue
		}
		_, err = l.client.Revoke(ctx, id)
		require.NoError(t, err)
	}
	l.cancel()
	return n
}

// absences reads in etcd's own logs which members were defragmented since a moment, in order, and how often the
// leader changed since then.
func (s *scene) absences(since time.Time) (gone []away, changes int) {
	s.t.Helper()
	type event struct {
		TS   time.Time
		Msg  string
		Took string
		pod  string
	}
	var events []event
	for _, pod := range s.Pods() {
		files, err := filepath.Glob(filepath.Join(s.env.Nodes.LogDir(pod), "*-etcd-*.log"))
		require.NoError(s.t, err)
		for _, file := range files {
			f, err := os.Open(file)
			require.NoError(s.t, err)
			lines := bufio.NewScanner(f)
			lines.Buffer(nil, 1<<20)
			for lines.Scan() {
				e := event{pod: pod}
				// The last line may be half written. It is of no interest: the answer came before it.
				if json.Unmarshal(lines.Bytes(), &e) == nil {
					events = append(events, e)
				}
			}
			require.NoError(s.t, lines.Err())
			_ = f.Close()
		}
	}
	slices.SortStableFunc(events, func(a, b event) int { return a.TS.Compare(b.TS) })
	leader, led := "", false
	for _, e := range events {
		switch {
		case strings.Contains(e.Msg, " became leader at term "):
			leader = e.pod
			if e.TS.After(since) {
				changes++
			}
		case e.TS.Before(since):
		case e.Msg == "defragmenting":
			led = e.pod == leader
		case e.Msg == "finished defragmenting directory":
			took, err := time.ParseDuration(e.Took)
			require.NoError(s.t, err)
			gone = append(gone, away{e.pod, took.Seconds(), led})
		}
	}
	return gone, changes
}

// load is the machine's load average of the last minute.
func load(t *testing.T) string {
	t.Helper()
	text, err := os.ReadFile("/proc/loadavg")
	require.NoError(t, err)
	one, _, _ := strings.Cut(string(text), " ")
	return one
}
