// Package scenarios runs real etcd clusters through rollouts: the real API server and
// StatefulSet controller, real etcd, and the real sidecar with its real Role and TLS. A
// client writes and reads throughout, and its history is checked.
package scenarios

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"

	"github.com/quorate/quorate/pkg/rollout"
	"github.com/quorate/quorate/test/harness"
	"github.com/quorate/quorate/test/harness/apiproxy"
	"github.com/quorate/quorate/test/harness/build"
	"github.com/quorate/quorate/test/harness/kubelet"
	"github.com/quorate/quorate/test/harness/traffic"
)

// The environments are started when a test first needs them and shared by all.
var envs = map[harness.Mode]*lazyEnv{harness.Loopback: {}, harness.Namespaces: {}, realNodes: {}}

// realNodes is the environment that takes the place of both others, where pods are to run on real nodes.
const realNodes harness.Mode = "nodes"

// onRealNodes is set before any test begins, and so is the resolver that all environments with real nodes share.
var (
	onRealNodes bool
	resolver    *kubelet.Resolver
)

type lazyEnv struct {
	once sync.Once
	env  *harness.Env
	err  error
}

// lanes is how many scenarios run at a time unless -parallel says otherwise. Most of a
// scenario is waiting (for an etcd to end, for a lease to expire), so two cores bear
// more than two.
const lanes = "4"

// realLanes is the same on real nodes, which take more of the machine.
const realLanes = "3"

var logs = flag.String("logs", "",
	"directory for the logs of all processes, and for their data where it cannot be kept in memory\n"+
		"(default: a new temporary one, kept when a test fails)")

// everything is false in CI, which has no time for every scenario.
var everything = flag.Bool("everything", false, "also run the scenarios that CI leaves out")

// leftOut skips a test that CI leaves out.
func leftOut(t *testing.T) {
	t.Helper()
	if !*everything {
		t.Skip("CI leaves it out, because it takes minutes; -everything runs it")
	}
}

func TestMain(m *testing.M) {
	harness.Launcher()
	if err := flag.Set("test.parallel", lanes); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	flag.Parse()
	if !testing.Short() {
		harness.Enter(context.Background(), say, slices.Concat(typed, []build.Target{build.Host, build.Etcdutl},
			build.Hosts)...)
		onRealNodes = harness.RealNodes(context.Background(), say)
		if onRealNodes && flag.Lookup("test.parallel").Value.String() == lanes {
			if err := flag.Set("test.parallel", realLanes); err != nil {
				fmt.Fprintln(os.Stderr, err)
				os.Exit(1)
			}
		}
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
	var before kubelet.Machine
	if onRealNodes {
		var err error
		if before, err = kubelet.Look(dir, false); err == nil {
			resolver, err = kubelet.NewResolver(filepath.Join(dir, "names"))
		}
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
	}
	code := m.Run()
	fmt.Println(decided.String())
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
	if onRealNodes {
		err := resolver.Close()
		after, lerr := kubelet.Look(dir, false)
		// Nothing may be left, also when a test has failed.
		if err = errors.Join(err, lerr); err != nil || !reflect.DeepEqual(before, after) {
			fmt.Fprintf(os.Stderr, "the nodes have left something behind (%v):\n%q\nbefore, there was:\n%q\n", err,
				after, before)
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

// decided counts the decisions of all scenarios, because a guard that holds what is well is as wrong as one that lets
// harm pass.
var decided tally

// tally counts decisions, and says which scenarios had some that held by a guard which no healthy rollout should meet.
type tally struct {
	mu            sync.Mutex
	clusters, all int
	held          map[rollout.Guard][]string
}

func (y *tally) count(scenario string, decisions []harness.LogEntry) {
	y.mu.Lock()
	defer y.mu.Unlock()
	y.clusters++
	y.all += len(decisions)
	for _, d := range decisions {
		switch g := rollout.Guard(d.Guard); g {
		case rollout.GuardCutOff, rollout.GuardDataAgrees, rollout.GuardPodsListed, rollout.GuardReturns:
			if y.held == nil {
				y.held = map[rollout.Guard][]string{}
			}
			y.held[g] = append(y.held[g], scenario)
		}
	}
}

func (y *tally) String() string {
	y.mu.Lock()
	defer y.mu.Unlock()
	text := fmt.Sprintf("%d decisions in %d clusters", y.all, y.clusters)
	for _, g := range slices.Sorted(maps.Keys(y.held)) {
		text += fmt.Sprintf("\n%s held %d times, in %s", g, len(y.held[g]),
			strings.Join(slices.Compact(slices.Sorted(slices.Values(y.held[g]))), ", "))
	}
	return text
}

func say(line string) { fmt.Fprintln(os.Stderr, line) }

// needs skips a test where there can be no environment of this mode.
func needs(t *testing.T, mode harness.Mode) {
	t.Helper()
	if testing.Short() {
		t.Skip("real clusters are not for -short")
	}
	if mode == harness.Namespaces {
		if err := harness.NamespacesAvailable(); err != nil {
			require.Empty(t, os.Getenv(harness.RequireNamespaces),
				"network namespaces are required but not available: %v", err)
			t.Skipf("needs network namespaces: %v", err)
		}
	}
}

func environment(t *testing.T, mode harness.Mode) *harness.Env {
	t.Helper()
	needs(t, mode)
	if onRealNodes {
		mode = realNodes
	}
	l := envs[mode]
	l.once.Do(func() { l.env, l.err = startEnv(string(mode), mode) })
	require.NoError(t, l.err, "start the %s environment", mode)
	return l.env
}

func startEnv(name string, mode harness.Mode) (*harness.Env, error) {
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Minute)
	defer cancel()
	return harness.Start(ctx, harness.Options{Dir: filepath.Join(*logs, name), Network: mode,
		RealNodes: mode == realNodes, Resolver: resolver,
		InMemory: true,
		Progress: say})
}

// ownEnvironment starts an environment for a test that breaks what all clusters share, or needs their names.
func ownEnvironment(t *testing.T, name string, mode harness.Mode) *harness.Env {
	t.Helper()
	needs(t, mode)
	if onRealNodes {
		mode = realNodes
	}
	env, err := startEnv(name, mode)
	require.NoError(t, err)
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		require.NoError(t, env.Close(ctx))
	})
	return env
}

const (
	// scenarioTimeout bounds every scenario; the slowest takes half of it on two cores.
	scenarioTimeout = 8 * time.Minute
	// lockTTL and recordDuration are short, so that a change of coordinator is. The record
	// has to outlast a cycle in which members hang: two probe timeouts.
	lockTTL        = 3 * time.Second
	recordDuration = 8 * time.Second
)

// quick are the sidecar's flags of every cluster whose spec does not say otherwise.
var quick = []string{"--lock-ttl=" + lockTTL.String(), "--record-duration=" + recordDuration.String()}

// newCluster creates a cluster and waits until it is Ready. It is deleted when the test
// ends.
func newCluster(t *testing.T, mode harness.Mode, spec harness.Spec) (context.Context, *scene) {
	t.Helper()
	return newClusterIn(t, environment(t, mode), spec)
}

func newClusterIn(t *testing.T, env *harness.Env, spec harness.Spec) (context.Context, *scene) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), scenarioTimeout)
	t.Cleanup(cancel)
	// Of a flag that is given twice the last one counts.
	spec.SidecarArgs = slices.Concat(quick, spec.SidecarArgs)
	cluster, err := env.CreateCluster(ctx, spec)
	require.NoError(t, err)
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		require.NoError(t, cluster.Delete(ctx))
		if !t.Failed() {
			require.NoError(t, cluster.DropVolumes(ctx))
		}
	})
	s := &scene{Cluster: cluster, t: t, env: env, journal: cluster.ReadLogs()}
	t.Cleanup(s.journal.Stop)
	t.Cleanup(func() { decided.count(t.Name(), s.journal.Decisions()) })
	t.Cleanup(func() {
		if t.Failed() {
			// Not here: it would bury the assertion that failed.
			t.Logf("the timeline and the logs of all processes are in %s", env.Dir)
		}
	})
	require.NoError(t, cluster.WaitReady(ctx))
	return ctx, s
}

// in is the same cluster in a subtest.
func (s *scene) in(t *testing.T) *scene {
	other := *s
	other.t = t
	return &other
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

// change changes the pod template.
func (s *scene) change(ctx context.Context, why string, change func(*corev1.PodTemplateSpec)) {
	s.t.Helper()
	s.changed = time.Now()
	require.NoError(s.t, s.Update(ctx, why, func(set *appsv1.StatefulSet) { change(&set.Spec.Template) }))
}

// touch changes the pod template without changing what runs.
func (s *scene) touch(ctx context.Context, value string) {
	s.t.Helper()
	s.change(ctx, "touch the pod template ("+value+")", touched(value))
}

// touched makes a template a new revision.
func touched(value string) func(*corev1.PodTemplateSpec) {
	return func(template *corev1.PodTemplateSpec) {
		template.Annotations = map[string]string{"touched": value}
	}
}

// upgrade changes the image of etcd.
func (s *scene) upgrade(ctx context.Context, image string) {
	s.t.Helper()
	s.changed = time.Now()
	require.NoError(s.t, s.SetImage(ctx, "etcd", image))
}

// upgradeToNext changes the image of etcd to that of the next minor version, and the template also where there is none.
// It returns the version.
func (s *scene) upgradeToNext(ctx context.Context) string {
	s.t.Helper()
	_, next := harness.EtcdUpgrade()
	s.change(ctx, "upgrade to "+next, func(template *corev1.PodTemplateSpec) {
		container(template, "etcd").Image = next
		touched(next)(template)
	})
	return version(next)
}

// version is that of an image of etcd.
func version(image string) string {
	_, tag, _ := strings.Cut(image, ":")
	return tag
}

// complete waits until all pods are updated and a sidecar has said so.
func (s *scene) complete(ctx context.Context) {
	s.t.Helper()
	require.NoError(s.t, s.WaitUpdated(ctx))
	_, err := s.journal.AwaitComplete(ctx, s.changed)
	require.NoError(s.t, err)
}

// pass lets time pass in which something has to be endured, or must not happen.
func (s *scene) pass(ctx context.Context, d time.Duration) {
	s.t.Helper()
	require.NoError(s.t, harness.Pass(ctx, d))
}

// says waits until a sidecar has logged something since the last change of the template.
func (s *scene) says(ctx context.Context, what string, match func(harness.LogEntry) bool) harness.LogEntry {
	s.t.Helper()
	since := s.changed
	e, err := s.journal.Await(ctx, what, func(e harness.LogEntry) bool { return e.At.After(since) && match(e) })
	require.NoError(s.t, err)
	return e
}

// holds waits until a sidecar holds the rollout by a guard.
func (s *scene) holds(ctx context.Context, guard string) harness.LogEntry {
	s.t.Helper()
	return s.says(ctx, "that "+guard+" holds the rollout", func(e harness.LogEntry) bool {
		return (e.Action == "Hold" || e.Action == "Wait") && e.Guard == guard
	})
}

// coordinator is the pod whose sidecar has the lock, when all others wait for it.
func (s *scene) coordinator(ctx context.Context) string {
	s.t.Helper()
	owner, err := s.LockOwner(ctx)
	require.NoError(s.t, err)
	return owner
}

// rollsOneAtATime: a healthy cluster is rolled, and loses nothing by it.
func (s *scene) rollsOneAtATime(ctx context.Context) {
	s.t.Helper()
	o := s.during(ctx, func(*harness.Ledger) {
		s.touch(ctx, "healthy")
		s.complete(ctx)
	})
	o.lostNothing(s.t)
	o.keptQuorum(s.t)
	o.oneAtATime(s.t)
	o.replacedOnce(s.t, s.Pods()...)
}

// rollsTheSickOneFirst: a member crashes again and again, and its pod is the first to be replaced.
func (s *scene) rollsTheSickOneFirst(ctx context.Context) {
	s.t.Helper()
	sick := s.Pods()[1]
	o := s.during(ctx, func(*harness.Ledger) {
		require.NoError(s.t, s.MoveLeader(ctx, s.Pods()[0])) // A leader's crash costs an election.
		fault, err := s.CrashLoop(ctx, sick)
		require.NoError(s.t, err)
		defer fault.Stop()
		require.NoError(s.t, s.WaitWaiting(ctx, sick, "etcd", "CrashLoopBackOff"))
		s.touch(ctx, "cured")
		s.complete(ctx)
	})
	o.lostNothing(s.t)
	o.keptQuorum(s.t)
	o.oneAtATime(s.t)
	o.replacedOnce(s.t, s.Pods()...)
	require.Equal(s.t, sick, o.order[0])
}

// others are the pods but for some, the highest ordinal first.
func (s *scene) others(but ...string) []string {
	pods := slices.DeleteFunc(s.Pods(), func(pod string) bool { return slices.Contains(but, pod) })
	slices.Reverse(pods)
	return pods
}

// signal sends a signal to the sidecar of a pod.
func (s *scene) signal(pod string, sig syscall.Signal) {
	s.t.Helper()
	require.NoError(s.t, s.Signal(pod, "backup-restore", sig))
}

// outcome is what happened while a body ran.
type outcome struct {
	traffic.Figures
	removals    []harness.Removal
	order       []string
	fewestReady int
	// requests are what sidecars asked to be removed, granted or not.
	requests []apiproxy.Record
	// intents are the removals that stood on record.
	intents []harness.Intent
}

// during puts the cluster under load while body changes it, and returns what happened.
func (s *scene) during(ctx context.Context, body func(l *harness.Ledger)) outcome {
	s.t.Helper()
	began := time.Now()
	ledger, err := s.Watch(ctx)
	require.NoError(s.t, err)
	defer ledger.Stop()
	record, err := s.WatchRecord(ctx)
	require.NoError(s.t, err)
	defer record.Stop()
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
	require.NoError(s.t, ledger.Finish(ctx))
	figures, err := finish()
	require.NoError(s.t, err)
	s.t.Logf("order of removal: %v\n%s", ledger.Order(), figures)
	require.NoError(s.t, record.Err())
	return outcome{
		Figures: figures, removals: ledger.Removals(), order: ledger.Order(), fewestReady: ledger.FewestReady(),
		requests: s.RemovalRequests(began), intents: record.Intents(began),
	}
}

// lostNothing is true of every scenario.
func (o outcome) lostNothing(t *testing.T) {
	t.Helper()
	require.True(t, o.Traffic.Verified, "the history could not be verified")
	violations := o.Traffic.Violations
	require.Empty(t, violations[:min(len(violations), 5)], "the cluster broke its word (%d times)", len(violations))
}

// found is how long the client may need to find a member that is back at a new address, as it is on real nodes: its
// name leads there only when the kubelet has told of it, and with that the pod may be Ready. On two cores that carry
// three clusters with their nodes, it may also see no member at all for a moment.
const found = time.Second

// keptQuorum: a quorum of the voters served throughout. On real nodes a shorter time than found is none without quorum
// if writes went on: a member that had really gone would not be back so soon, and no leader would have been elected.
func (o outcome) keptQuorum(t *testing.T) {
	t.Helper()
	for i, step := range o.Cluster.Serving {
		next := i + 1
		short := next < len(o.Cluster.Serving) && o.Cluster.Serving[next].At.Sub(step.At) < found
		if onRealNodes && short && o.Traffic.LongestWriteOutage.Seconds < 2*found.Seconds() {
			continue
		}
		require.GreaterOrEqual(t, step.Serving, step.Voters/2+1, "serving of %d voters at %v", step.Voters, step.At)
	}
	require.Zero(t, o.Cluster.WithoutQuorumSeconds, "seconds without quorum")
}

// oneAtATime: no member was removed while another was away.
func (o outcome) oneAtATime(t *testing.T) {
	t.Helper()
	o.atMostAway(t, 1)
}

// atMostAway: with each removal at most so many pods were missing or terminating.
func (o outcome) atMostAway(t *testing.T, most int) {
	t.Helper()
	for _, r := range o.removals {
		require.Less(t, r.OthersAway, most, "%s was removed while so many others were missing or terminating", r.Pod)
	}
}

// replacedOnce: each of the pods was replaced once, nobody else, and none by itself.
func (o outcome) replacedOnce(t *testing.T, pods ...string) {
	t.Helper()
	require.ElementsMatch(t, pods, o.order, "each pod is replaced once")
	o.noneByItself(t)
}

// noneByItself: no sidecar removed its own pod.
func (o outcome) noneByItself(t *testing.T) {
	t.Helper()
	require.Empty(t, harness.SelfRemovals(o.requests), "sidecars that removed their own pods")
}

// granted are the requests for a removal that the API server carried out.
func (o outcome) granted() []apiproxy.Record {
	return slices.DeleteFunc(slices.Clone(o.requests), func(r apiproxy.Record) bool { return r.Status/100 != 2 })
}
