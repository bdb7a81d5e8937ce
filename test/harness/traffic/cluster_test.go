package traffic_test

import (
	"cmp"
	"context"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/quorate/quorate/test/harness/process"
	"github.com/quorate/quorate/test/harness/traffic"
)

// patience is how long a test waits for something that must come. It is long because
// it only matters when the test fails.
const patience = time.Minute

// electionTimeout of the members, half of etcd's default to make the tests short.
const electionTimeout = 500 * time.Millisecond

var buildDir string

func TestMain(m *testing.M) {
	// goleak ends the process itself, so the directory is removed before it looks.
	dir, err := os.MkdirTemp("", "quorate-traffic-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	buildDir = dir
	goleak.VerifyTestMain(m, goleak.IgnoreTopFunction(process.SpawnerGoroutine), goleak.Cleanup(func(code int) {
		_ = os.RemoveAll(dir)
		os.Exit(code)
	}))
}

// etcd builds the etcd under test, once.
var etcd = sync.OnceValues(func() (string, error) {
	binary, log := filepath.Join(buildDir, "etcd"), filepath.Join(buildDir, "build.log")
	p, err := process.Start(process.Spec{
		Name: "go build", Path: "go", Args: []string{"build", "-trimpath", "-ldflags", "-s -w", "-o", binary, "."},
		Env: append(os.Environ(), "CGO_ENABLED=0"), Dir: filepath.Join("..", "..", "etcd", "v36"), LogPath: log,
	})
	if err != nil {
		return "", err
	}
	<-p.Done()
	if p.ExitCode() != 0 {
		said, _ := os.ReadFile(log)
		return "", fmt.Errorf("go build ended with %d: %s", p.ExitCode(), said)
	}
	return binary, nil
})

// testCluster is a cluster of etcd processes, each with a loopback address of its own.
type testCluster struct {
	t       *testing.T
	binary  string
	dir     string
	subnet  string
	size    int
	members []*process.Process
}

func startCluster(t *testing.T, size int) *testCluster {
	t.Helper()
	c := newCluster(t, size)
	for i := range size {
		c.start(i)
	}
	return c
}

// newCluster is a cluster of which no member runs yet.
func newCluster(t *testing.T, size int) *testCluster {
	t.Helper()
	if testing.Short() {
		t.Skip("builds and runs etcd")
	}
	binary, err := etcd()
	require.NoError(t, err)
	c := &testCluster{t: t, binary: binary, dir: t.TempDir(), subnet: freeSubnet(t), size: size,
		members: make([]*process.Process, size)}
	t.Cleanup(func() {
		if !t.Failed() {
			return
		}
		for i := range size {
			said, _ := os.ReadFile(c.log(i))
			t.Logf("etcd %d:\n%s", i, said[max(0, len(said)-4000):])
		}
	})
	return c
}

// freeSubnet returns the first three numbers of unused loopback addresses.
func freeSubnet(t *testing.T) string {
	var listen net.ListenConfig
	for range 100 {
		subnet := fmt.Sprintf("127.%d.%d", 100+rand.IntN(100), rand.IntN(256))
		if listener, err := listen.Listen(t.Context(), "tcp", subnet+".1:2379"); err == nil {
			require.NoError(t, listener.Close())
			return subnet
		}
	}
	t.Fatal("found no free loopback addresses")
	return ""
}

func (c *testCluster) client(i int) string { return fmt.Sprintf("http://%s.%d:2379", c.subnet, i+1) }
func (c *testCluster) peer(i int) string   { return fmt.Sprintf("http://%s.%d:2380", c.subnet, i+1) }
func (c *testCluster) log(i int) string    { return filepath.Join(c.dir, fmt.Sprintf("etcd-%d.log", i)) }

func (c *testCluster) endpoints() []string {
	var all []string
	for i := range c.size {
		all = append(all, c.client(i))
	}
	return all
}

func (c *testCluster) start(i int) {
	c.t.Helper()
	var initial []string
	for j := range c.size {
		initial = append(initial, fmt.Sprintf("m%d=%s", j, c.peer(j)))
	}
	p, err := process.Start(process.Spec{
		Name: fmt.Sprintf("etcd %d", i), Path: c.binary, LogPath: c.log(i),
		Args: []string{
			"--name", fmt.Sprintf("m%d", i), "--data-dir", filepath.Join(c.dir, fmt.Sprintf("data-%d", i)),
			"--listen-client-urls", c.client(i), "--advertise-client-urls", c.client(i),
			"--listen-peer-urls", c.peer(i), "--initial-advertise-peer-urls", c.peer(i),
			"--initial-cluster", strings.Join(initial, ","), "--initial-cluster-token", c.subnet,
			"--heartbeat-interval", "50", "--election-timeout", fmt.Sprint(electionTimeout.Milliseconds()),
			"--unsafe-no-fsync", // processes die here, machines do not
		},
	})
	require.NoError(c.t, err)
	c.members[i] = p
	c.t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		require.NoError(c.t, p.Stop(ctx, 0))
	})
}

func (c *testCluster) signal(i int, sig syscall.Signal) {
	c.t.Helper()
	require.NoError(c.t, c.members[i].Signal(sig))
}

func deadline(t *testing.T, d time.Duration) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), d)
	t.Cleanup(cancel)
	return ctx
}

func eventually(t *testing.T, what string, condition func() bool) {
	t.Helper()
	ticker := time.NewTicker(10 * time.Millisecond)
	defer ticker.Stop()
	for ctx := deadline(t, patience); !condition(); {
		select {
		case <-ctx.Done():
			t.Fatalf("waited %v in vain: %s", patience, what)
		case <-ticker.C:
		}
	}
}

func startTraffic(t *testing.T, cfg traffic.Config) *traffic.Client {
	t.Helper()
	client, err := traffic.Start(deadline(t, patience), cfg)
	require.NoError(t, err)
	t.Cleanup(func() { // does nothing in a test that came to its end
		ctx, cancel := context.WithCancel(context.Background())
		cancel()
		_, _ = client.Stop(ctx)
	})
	return client
}

func startObserver(t *testing.T, cfg traffic.ObserverConfig) *traffic.Observer {
	t.Helper()
	observer, err := traffic.StartObserver(deadline(t, patience), cfg)
	require.NoError(t, err)
	t.Cleanup(func() { observer.Stop() })
	return observer
}

// writes waits until so many more writes are acknowledged.
func writes(t *testing.T, client *traffic.Client, more int) {
	t.Helper()
	want := client.Progress().Acknowledged + more
	eventually(t, fmt.Sprintf("%d acknowledged writes", want), func() bool {
		return client.Progress().Acknowledged >= want
	})
}

func serving(t *testing.T, observer *traffic.Observer, want int) {
	t.Helper()
	eventually(t, fmt.Sprintf("%d serving voters", want), func() bool { return observer.Latest().Serving == want })
}

// finish stops both and fails the test if the cluster has broken its word.
func finish(t *testing.T, client *traffic.Client, observer *traffic.Observer) (*traffic.History, *traffic.Observation,
	traffic.Figures) {
	t.Helper()
	history, err := client.Stop(deadline(t, patience))
	require.NoError(t, err)
	observation := observer.Stop()
	figures := traffic.NewFigures(history, observation)
	t.Logf("\n%v", figures)
	require.True(t, figures.Traffic.Verified)
	require.Empty(t, figures.Traffic.Violations)
	require.Zero(t, figures.Traffic.LostWrites)
	require.Zero(t, figures.Traffic.UnverifiedWrites)
	require.Equal(t, len(figures.Cluster.Outages) > 0, figures.Cluster.WithoutQuorumSeconds > 0)
	return history, observation, figures
}

func TestTwoOfThreeMembersThatHangAreAnOutageInWhichNothingIsLost(t *testing.T) {
	c := startCluster(t, 3)
	const timeout = 500 * time.Millisecond
	client := startTraffic(t, traffic.Config{Endpoints: c.endpoints, RequestTimeout: timeout})
	observer := startObserver(t, traffic.ObserverConfig{Endpoints: c.endpoints, Timeout: timeout})
	serving(t, observer, 3)
	writes(t, client, 50)

	c.signal(1, syscall.SIGSTOP)
	c.signal(2, syscall.SIGSTOP)
	serving(t, observer, 0)
	since, failed := observer.Latest().At, client.Progress().FailedAttempts
	eventually(t, "a longer outage", func() bool {
		// Four clients, so each has failed about seven times and been through a whole
		// request of both kinds.
		return observer.Latest().At > since+2*timeout && client.Progress().FailedAttempts >= failed+30
	})
	c.signal(1, syscall.SIGCONT)
	c.signal(2, syscall.SIGCONT)
	serving(t, observer, 3)
	writes(t, client, 50)
	history, observation, figures := finish(t, client, observer)

	require.Zero(t, figures.Cluster.FewestServing)
	require.Equal(t, 3, figures.Cluster.FewestServingAt.Voters, "the member that runs still knows the list")
	require.Greater(t, figures.Cluster.WithoutQuorumSeconds, timeout.Seconds())
	longest := slices.MaxFunc(figures.Cluster.Outages, func(a, b traffic.Span) int {
		return cmp.Compare(a.Seconds, b.Seconds)
	})
	require.GreaterOrEqual(t, figures.Traffic.LongestWriteOutage.Seconds, (2 * timeout).Seconds())
	require.NotZero(t, figures.Traffic.Writes.Unknown, "what was sent and not answered has an unknown outcome")

	t.Run("the members that hang hold up neither the other's answers nor the samples", func(t *testing.T) {
		from := longest.From.Sub(observation.Start)
		overlapping, answered := 0, 0
		for i, sample := range observation.Samples {
			if sample.Serving > 0 || sample.At < from || sample.At > from+
				time.Duration(longest.Seconds*float64(time.Second)) {
				continue
			}
			if i > 0 && observation.Samples[i-1].Serving == 0 && sample.At-observation.Samples[i-1].At < timeout {
				overlapping++
			}
			if sample.Probes[0].Answered {
				answered++
			}
		}
		require.NotZero(t, overlapping, "samples are taken while older ones still wait")
		require.NotZero(t, answered, "the running member tells its status meanwhile")
	})
	t.Run("every client comes to the running member in spite of the others", func(t *testing.T) {
		served := 0
		for _, op := range history.Operations {
			if op.Kind == traffic.SerializableGet && op.Outcome == traffic.OK && op.Attempt > 0 &&
				op.Member == c.client(0) {
				served++
			}
		}
		require.NotZero(t, served, "a serializable read needs no quorum")
	})
}

func TestAClusterWithoutQuorumCannotBeVerified(t *testing.T) {
	c := startCluster(t, 3)
	client := startTraffic(t, traffic.Config{Endpoints: c.endpoints, RequestTimeout: 200 * time.Millisecond})
	writes(t, client, 20)
	c.signal(1, syscall.SIGKILL)
	c.signal(2, syscall.SIGKILL)
	<-c.members[1].Done()
	<-c.members[2].Done()

	history, err := client.Stop(deadline(t, 2*time.Second))
	require.ErrorContains(t, err, "could not be verified")
	require.ErrorIs(t, err, context.DeadlineExceeded)
	require.False(t, history.Verified())
	require.Zero(t, history.Check().Count(traffic.LostWrite), "what cannot be seen is not called lost")
	again, errAgain := client.Stop(t.Context())
	require.Same(t, history, again)
	require.Equal(t, err, errAgain)
}

func TestStartRefusesAClusterThatItCannotUse(t *testing.T) {
	t.Run("nobody listens", func(t *testing.T) {
		endpoint := "http://" + freeSubnet(t) + ".1:2379"
		_, err := traffic.Start(deadline(t, 300*time.Millisecond), traffic.Config{Endpoints: traffic.Static(endpoint)})
		require.ErrorContains(t, err, endpoint)
		require.ErrorContains(t, err, "connection refused", "a request to nobody fails at once and says why")
		require.ErrorIs(t, err, context.DeadlineExceeded)
		_, err = traffic.StartObserver(deadline(t, 300*time.Millisecond),
			traffic.ObserverConfig{Endpoints: traffic.Static(endpoint)})
		require.ErrorContains(t, err, endpoint)
		require.ErrorIs(t, err, context.DeadlineExceeded)
	})
	t.Run("the prefix is in use", func(t *testing.T) {
		c := startCluster(t, 1)
		client := startTraffic(t, traffic.Config{Endpoints: c.endpoints, RequestTimeout: 10 * time.Second})
		writes(t, client, 1)
		_, err := traffic.Start(deadline(t, patience), traffic.Config{Endpoints: c.endpoints, Prefix: client.Prefix()})
		require.ErrorContains(t, err, "Prefix")
		require.ErrorContains(t, err, client.Prefix())
	})
}
