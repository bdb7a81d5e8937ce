package scenarios

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"

	"github.com/quorate/quorate/test/harness"
	"github.com/quorate/quorate/test/harness/process"
)

// memory is the anonymous resident memory of a pod's sidecar in MiB.
func (s *scene) memory(pod string) float64 {
	s.t.Helper()
	m, err := s.Memory(pod, "backup-restore")
	require.NoError(s.t, err)
	s.t.Logf("sidecar of %s: %.1f MiB anonymous, %.1f MiB in all", pod, m.AnonymousMiB(), m.ResidentMiB())
	return m.AnonymousMiB()
}

func TestPodsAreReachedByTheirNamesInNamespacesOfTheirOwn(t *testing.T) {
	t.Parallel()
	ctx, s := newCluster(t, harness.Namespaces, harness.Spec{Name: "named"})
	leader, err := s.Leader(ctx)
	require.NoError(t, err)
	next := ""
	o := s.during(ctx, func(*harness.Ledger) {
		next = s.upgradeToNext(ctx)
		s.complete(ctx)
	})
	healthyRollout(t, o, s.Pods(), leader)
	s.runs(ctx, next)
}

func TestASickMemberGoesFirst(t *testing.T) {
	t.Parallel()
	ctx, s := newCluster(t, harness.Loopback, harness.Spec{Name: "sick"})
	// The lowest ordinal: Kubernetes' own order would take it last.
	sick, leader := s.Pods()[0], s.Pods()[1]
	require.NoError(t, s.MoveLeader(ctx, leader))
	fault, err := s.CrashLoop(ctx, sick)
	require.NoError(t, err)
	defer fault.Stop()
	require.NoError(t, s.WaitNotReady(ctx, sick))

	next := ""
	o := s.during(ctx, func(*harness.Ledger) {
		next = s.upgradeToNext(ctx)
		s.complete(ctx)
	})
	o.lostNothing(t)
	o.keptQuorum(t)
	o.oneAtATime(t)
	require.Equal(t, []string{sick, s.Pods()[2], leader}, o.order)
	require.Equal(t, 1, o.Cluster.LeaderChanges)
	s.runs(ctx, next)
}

func TestTheStrategyCanBeSwitchedMidRollout(t *testing.T) {
	t.Parallel()
	ctx, s := newCluster(t, harness.Loopback,
		harness.Spec{Name: "switched", Strategy: appsv1.RollingUpdateStatefulSetStrategyType})

	t.Run("from RollingUpdate to OnDelete, Quorate goes on where Kubernetes stopped", func(t *testing.T) {
		s := s.in(t)
		o := s.during(ctx, func(l *harness.Ledger) {
			s.touch(ctx, "to-ondelete")
			require.NoError(t, l.WaitRemovals(ctx, 1))
			require.NoError(t, s.SetStrategy(ctx, appsv1.OnDeleteStatefulSetStrategyType))
			s.complete(ctx)
		})
		o.lostNothing(t)
		o.keptQuorum(t)
		o.oneAtATime(t)
		require.Len(t, o.order, 3, "no pod is replaced twice")
		require.Equal(t, s.Pods()[2], o.order[0], "Kubernetes begins with the highest ordinal")
	})
	t.Run("and back, Quorate lets go and Kubernetes ends it", func(t *testing.T) {
		s := s.in(t)
		var switched time.Time
		o := s.during(ctx, func(l *harness.Ledger) {
			s.touch(ctx, "to-rollingupdate")
			require.NoError(t, l.WaitRemovals(ctx, 1))
			require.NoError(t, s.SetStrategy(ctx, appsv1.RollingUpdateStatefulSetStrategyType))
			switched = time.Now()
			require.NoError(t, s.WaitUpdated(ctx))
		})
		// Kubernetes may take a second pod while the first still terminates: with Parallel
		// pod management it does, and quorum with it. That is not asserted here.
		o.lostNothing(t)
		require.Len(t, o.order, 3, "no pod is replaced twice")
		for _, e := range s.journal.Decisions() {
			require.False(t, e.Action == "Remove" && e.At.After(switched),
				"after the switch Quorate still removed %s", e.Target)
		}
	})
}

func TestWhatIsWrongIsSaidInOneLine(t *testing.T) {
	t.Parallel()
	ctx, s := newCluster(t, harness.Loopback, harness.Spec{Name: "wrong", PlainText: true})

	t.Run("a StatefulSet that does not exist is named, and waited for", func(t *testing.T) {
		s := s.in(t)
		line, sidecar := s.outside("does not exist", "--statefulset=absent")
		require.Contains(t, line, "get StatefulSet absent")
		require.Contains(t, line, "check the namespace and the name of the StatefulSet")
		require.NoError(t, sidecar.Stop(ctx, 5*time.Second))
		require.Zero(t, sidecar.ExitCode(), "it waits, and ends in peace when asked to")
	})
	t.Run("a missing permission is named with its verb and resource, and nothing is removed", func(t *testing.T) {
		s := s.in(t)
		require.NoError(t, s.Revoke(ctx, harness.Permission{Verb: "create", Resource: "pods/eviction"}))
		o := s.during(ctx, func(*harness.Ledger) {
			s.touch(ctx, "forbidden")
			entry, err := s.journal.Await(ctx, "what is forbidden", func(e harness.LogEntry) bool {
				return strings.Contains(e.Error, "forbidden")
			})
			require.NoError(t, err)
			require.Contains(t, entry.Error, `cannot create resource "pods/eviction"`)
			require.Contains(t, entry.Error, "deploy/base/role.yaml")
		})
		o.lostNothing(t)
		require.Empty(t, o.order, "nothing is removed")
		require.Equal(t, 3, o.fewestReady)
	})
}

// outside runs a sidecar outside any pod until it has logged a fault, and returns that
// line.
func (s *scene) outside(name string, args ...string) (string, *process.Process) {
	s.t.Helper()
	log := filepath.Join(s.t.TempDir(), name+".log")
	sidecar, err := process.Start(process.Spec{
		Name: "quorate sidecar", Path: s.env.Binaries.Quorate, LogPath: log,
		Args: append([]string{
			"sidecar", "--namespace=" + harness.Namespace, "--kubeconfig=" + s.env.Plane.KubeconfigPath(),
			"--endpoints=" + strings.Join(s.Endpoints(), ","), "--log-format=json",
		}, args...),
	})
	require.NoError(s.t, err)
	line := ""
	require.Eventually(s.t, func() bool {
		data, _ := os.ReadFile(log)
		for l := range strings.Lines(string(data)) {
			if strings.Contains(l, `"error":`) {
				line = l
			}
		}
		return line != ""
	}, 30*time.Second, 50*time.Millisecond, "no fault was logged")
	return line, sidecar
}
