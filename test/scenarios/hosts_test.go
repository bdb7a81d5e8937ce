package scenarios

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/quorate/quorate/test/harness"
	"github.com/quorate/quorate/test/harness/build"
	"github.com/quorate/quorate/test/harness/druid"
)

// druidTimeout bounds a scenario with etcd-druid. Its pods take 110 seconds to form a cluster, because each sidecar
// first asks for one that has it as a member, and no pod is Ready in less than 15 seconds.
const druidTimeout = 12 * time.Minute

// druidEnvironment starts an environment with the real etcd-druid. The test is skipped where etcd-druid cannot be had.
func druidEnvironment(t *testing.T, name string) (context.Context, *harness.Env, *druid.Operator) {
	t.Helper()
	if testing.Short() {
		t.Skip("real clusters are not for -short")
	}
	if err := harness.NamespacesAvailable(); err != nil {
		require.Empty(t, os.Getenv(harness.RequireNamespaces),
			"network namespaces are required but not available: %v", err)
		t.Skipf("needs network namespaces: %v", err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), druidTimeout)
	t.Cleanup(cancel)
	env, err := harness.Start(ctx, harness.Options{Dir: filepath.Join(*logs, name), Network: harness.Namespaces,
		RealNodes: onRealNodes, InMemory: true, Hosts: true, Progress: say})
	if errors.Is(err, build.ErrNoHosts) {
		t.Skip(err)
	}
	require.NoError(t, err)
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		require.NoError(t, env.Close(ctx))
		if t.Failed() {
			t.Logf("the timeline and the logs of all processes are in %s", env.Dir)
		}
	})
	operator, err := env.StartDruid(ctx)
	require.NoError(t, err)
	return ctx, env, operator
}

// The way of the whole fleet: etcd 3.4.34 becomes 3.5.27, and the sidecars change in the same step. The old ones have
// no Quorate, so a Job begins. Then a change is rolled by the sidecars themselves.
func TestEtcdDruidsPodsAreUpgradedToEtcd35WithQuorate(t *testing.T) {
	t.Parallel()
	ctx, env, operator := druidEnvironment(t, "upgraded")
	require.NoError(t, env.InstallPolicy(ctx))
	s := newEtcd(t, ctx, env, harness.Spec{Name: "etcd-main"})
	s.isEtcdDruids(ctx)
	s.members(ctx, "3.4.34")
	require.NoError(t, s.WaitEtcdReady(ctx))
	require.NoError(t, s.Grant(ctx))
	leader, err := s.Leader(ctx)
	require.NoError(t, err)

	var generation int64
	o := s.during(ctx, func(*harness.Ledger) {
		require.NoError(t, operator.Restart(ctx, true))
		require.NoError(t, s.StartJob(ctx))
		s.changed = time.Now()
		require.NoError(t, s.ChangeEtcd(ctx, "upgrade etcd-main, and let Quorate roll it", fmt.Sprintf(
			`{"spec":{"annotations":{%q:"true"},"backup":{"image":%q}}}`, harness.OptInAnnotation, harness.DropIn)))
		generation = s.generation(ctx)
		s.complete(ctx)
	})
	healthyRollout(t, o, s.Pods(), leader)
	s.members(ctx, "3.5.27")
	require.NoError(t, s.DeleteJob(ctx))
	require.NoError(t, s.WaitEtcdReady(ctx))
	require.Equal(t, generation, s.generation(ctx), "nobody has changed the StatefulSet but etcd-druid, once")

	leader, err = s.Leader(ctx)
	require.NoError(t, err)
	o = s.during(ctx, func(*harness.Ledger) {
		s.changed = time.Now()
		require.NoError(t, s.ChangeEtcd(ctx, "change the resources of etcd",
			`{"spec":{"etcd":{"resources":{"requests":{"cpu":"60m","memory":"128Mi"}}}}}`))
		s.complete(ctx)
	})
	healthyRollout(t, o, s.Pods(), leader)
	require.NoError(t, s.WaitEtcdReady(ctx))
	require.NoError(t, s.ChangeEtcd(ctx, "reconcile without a change", `{}`))
	require.Equal(t, generation+1, s.generation(ctx), "nobody has changed the StatefulSet but etcd-druid, once")
}

// newEtcd creates an Etcd and waits until its pods are Ready. It is deleted when the test ends.
func newEtcd(t *testing.T, ctx context.Context, env *harness.Env, spec harness.Spec) *scene {
	t.Helper()
	cluster, err := env.CreateEtcd(ctx, spec)
	require.NoError(t, err)
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
		defer cancel()
		require.NoError(t, cluster.Delete(ctx))
		if !t.Failed() {
			require.NoError(t, cluster.DropVolumes(ctx))
		}
	})
	s := &scene{Cluster: cluster, t: t, env: env, journal: cluster.ReadLogs()}
	t.Cleanup(s.journal.Stop)
	t.Cleanup(func() { decided.count(t.Name(), s.journal.Decisions()) })
	require.NoError(t, cluster.WaitReconciled(ctx))
	require.NoError(t, cluster.WaitReady(ctx))
	return s
}

// isEtcdDruids: the cluster is as etcd-druid renders it today, and nobody else may change it.
func (s *scene) isEtcdDruids(ctx context.Context) {
	s.t.Helper()
	get := metav1.GetOptions{}
	set, err := s.env.Client.AppsV1().StatefulSets(harness.Namespace).Get(ctx, s.Spec.Name, get)
	require.NoError(s.t, err)
	require.Equal(s.t, appsv1.RollingUpdateStatefulSetStrategyType, set.Spec.UpdateStrategy.Type)
	containers := set.Spec.Template.Spec.Containers
	require.Equal(s.t, []string{"etcd", druid.Wrapper34, "backup-restore", druid.BackupRestore},
		[]string{containers[0].Name, containers[0].Image, containers[1].Name, containers[1].Image})
	budget, err := s.env.Client.PolicyV1().PodDisruptionBudgets(harness.Namespace).Get(ctx, s.Spec.Name, get)
	require.NoError(s.t, err)
	require.Equal(s.t, 2, budget.Spec.MinAvailable.IntValue())
	for _, lease := range append(s.Pods(), s.Spec.Name+"-full-snap", s.Spec.Name+"-delta-snap") {
		_, err := s.env.Client.CoordinationV1().Leases(harness.Namespace).Get(ctx, lease, get)
		require.NoError(s.t, err)
	}
	err = s.SetStrategy(ctx, appsv1.OnDeleteStatefulSetStrategyType)
	require.True(s.t, apierrors.IsForbidden(err), "etcd-druid's webhook protects the StatefulSet: %v", err)
}

// members: all of them run this version of etcd.
func (s *scene) members(ctx context.Context, version string) {
	s.t.Helper()
	for _, pod := range s.Pods() {
		require.Equal(s.t, version, s.EtcdVersion(ctx, pod), pod)
	}
}

// generation is that of the StatefulSet.
func (s *scene) generation(ctx context.Context) int64 {
	s.t.Helper()
	set, err := s.env.Client.AppsV1().StatefulSets(harness.Namespace).Get(ctx, s.Spec.Name, metav1.GetOptions{})
	require.NoError(s.t, err)
	return set.Generation
}
