// Package scenarios runs real etcd clusters through rollouts: the real API server and
// StatefulSet controller, real etcd, and the real sidecar with its real Role and TLS. A
// client writes and reads throughout, and its history is checked.
package scenarios

import (
	"context"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"

	"github.com/quorate/quorate/test/harness"
	"github.com/quorate/quorate/test/harness/traffic"
)

// The two environments are started when a test first needs them and shared by all.
var envs = map[harness.Mode]*lazyEnv{harness.Loopback: {}, harness.Namespaces: {}}

type lazyEnv struct {
	once sync.Once
	env  *harness.Env
	err  error
}

var logs = flag.String("logs", "", "directory for data and logs of all processes (default: a new temporary one, kept when a test fails)")

func TestMain(m *testing.M) {
	harness.Launcher()
	flag.Parse()
	if !testing.Short() {
		harness.Enter(context.Background(), say)
	}
	os.Exit(run(m))
}

func run(m *testing.M) int {
	dir, keep := *logs, *logs != ""
	if !keep {
		var err error
		if dir, err = os.MkdirTemp("", "quorate-scenarios-"); err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
	}
	*logs = dir
	code := m.Run()
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	for mode, l := range envs {
		if l.env == nil {
			continue
		}
		if err := l.env.Close(ctx); err != nil {
			fmt.Fprintf(os.Stderr, "closing the %s environment: %v\n", mode, err)
			code = max(code, 1)
		}
	}
	if code != 0 {
		fmt.Fprintf(os.Stderr, "logs of every process and the timelines are in %s\n", dir)
	} else if !keep {
		_ = os.RemoveAll(dir)
	}
	return code
}

func say(line string) { fmt.Fprintln(os.Stderr, line) }

func environment(t *testing.T, mode harness.Mode) *harness.Env {
	t.Helper()
	if testing.Short() {
		t.Skip("real clusters are not for -short")
	}
	if mode == harness.Namespaces {
		if err := harness.NamespacesAvailable(); err != nil {
			require.Empty(t, os.Getenv("QUORATE_REQUIRE_NAMESPACES"), "network namespaces are required but not available: %v", err)
			t.Skipf("needs network namespaces: %v", err)
		}
	}
	l := envs[mode]
	l.once.Do(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 20*time.Minute)
		defer cancel()
		l.env, l.err = harness.Start(ctx, harness.Options{
			Dir: filepath.Join(*logs, string(mode)), Network: mode,
			Progress: say,
		})
	})
	require.NoError(t, l.err, "start the %s environment", mode)
	return l.env
}

// scenarioTimeout bounds every scenario; the slowest takes a third of it on two cores.
const scenarioTimeout = 5 * time.Minute

// newCluster creates a cluster, waits until it is Ready and puts it under load. The
// load is stopped, and the cluster deleted, when the test ends.
func newCluster(t *testing.T, mode harness.Mode, spec harness.Spec) (context.Context, *scene) {
	t.Helper()
	env := environment(t, mode)
	ctx, cancel := context.WithTimeout(t.Context(), scenarioTimeout)
	t.Cleanup(cancel)
	// A short TTL keeps a change of coordinator short.
	spec.SidecarArgs = append(spec.SidecarArgs, "--lock-ttl=3s")
	cluster, err := env.CreateCluster(ctx, spec)
	require.NoError(t, err)
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		require.NoError(t, cluster.Delete(ctx))
	})
	s := &scene{Cluster: cluster, t: t, env: env, journal: cluster.ReadLogs()}
	t.Cleanup(s.journal.Stop)
	t.Cleanup(func() {
		if t.Failed() {
			// Not here: it would bury the assertion that failed.
			t.Logf("the timeline and the logs of all processes are in %s", env.Dir)
		}
	})
	require.NoError(t, cluster.WaitReady(ctx))
	return ctx, s
}

// scene is a cluster in a test.
type scene struct {
	*harness.Cluster
	t       *testing.T
	env     *harness.Env
	journal *harness.Journal
	// changed is when the last change of the template began.
	changed time.Time
}

// touch changes the pod template without changing what runs.
func (s *scene) touch(ctx context.Context, value string) {
	s.t.Helper()
	s.changed = time.Now()
	require.NoError(s.t, s.Update(ctx, "touch the pod template ("+value+")", func(set *appsv1.StatefulSet) {
		set.Spec.Template.Annotations = map[string]string{"touched": value}
	}))
}

// upgrade changes the image of etcd.
func (s *scene) upgrade(ctx context.Context, image string) {
	s.t.Helper()
	s.changed = time.Now()
	require.NoError(s.t, s.SetImage(ctx, "etcd", image))
}

// complete waits until all pods are updated and a sidecar has said so.
func (s *scene) complete(ctx context.Context) {
	s.t.Helper()
	require.NoError(s.t, s.WaitUpdated(ctx))
	_, err := s.journal.AwaitComplete(ctx, s.changed)
	require.NoError(s.t, err)
}

// outcome is what a rollout did.
type outcome struct {
	traffic.Figures
	removals    []harness.Removal
	order       []string
	fewestReady int
}

// during puts the cluster under load while body changes it, and returns what happened.
func (s *scene) during(ctx context.Context, body func(l *harness.Ledger)) outcome {
	s.t.Helper()
	ledger, err := s.Watch(ctx)
	require.NoError(s.t, err)
	defer ledger.Stop()
	client, err := traffic.Start(ctx, s.TrafficConfig())
	require.NoError(s.t, err)
	observer, err := traffic.StartObserver(ctx, s.ObserverConfig())
	require.NoError(s.t, err)
	finish := sync.OnceValues(func() (traffic.Figures, error) {
		observation := observer.Stop()
		history, err := client.Stop(context.WithoutCancel(ctx))
		if err != nil {
			return traffic.Figures{}, err
		}
		return traffic.NewFigures(history, observation), nil
	})
	defer func() { _, _ = finish() }()
	body(ledger)
	figures, err := finish()
	require.NoError(s.t, err)
	s.t.Logf("order of removal: %v\n%s", ledger.Order(), figures)
	return outcome{Figures: figures, removals: ledger.Removals(), order: ledger.Order(), fewestReady: ledger.FewestReady()}
}

// lostNothing is true of every scenario.
func (o outcome) lostNothing(t *testing.T) {
	t.Helper()
	require.True(t, o.Traffic.Verified, "the history could not be verified")
	require.Empty(t, o.Traffic.Violations, "the cluster broke its word")
}

// keptQuorum: a quorum of three voters served throughout.
func (o outcome) keptQuorum(t *testing.T) {
	t.Helper()
	require.GreaterOrEqual(t, o.Cluster.FewestServing, 2, "fewest serving voters")
	require.Zero(t, o.Cluster.WithoutQuorumSeconds, "seconds without quorum")
}

// oneAtATime: no member was removed while another was away.
func (o outcome) oneAtATime(t *testing.T) {
	t.Helper()
	for _, r := range o.removals {
		require.Zero(t, r.OthersAway, "%s was removed while another pod was missing or terminating", r.Pod)
	}
}
