package scenarios

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	appsv1 "k8s.io/api/apps/v1"

	"github.com/quorate/quorate/test/harness"
	"github.com/quorate/quorate/test/harness/build"
	"github.com/quorate/quorate/test/harness/druid"
)

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
	ctx, cancel := context.WithTimeout(t.Context(), scenarioTimeout)
	t.Cleanup(cancel)
	env, err := harness.Start(ctx, harness.Options{Dir: filepath.Join(*logs, name), Network: harness.Namespaces,
		Hosts: true, Progress: say})
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

// What the other scenarios with etcd-druid build upon.
func TestEtcdDruidMakesWhatAClusterNeedsAndProtectsIt(t *testing.T) {
	t.Parallel()
	ctx, env, _ := druidEnvironment(t, "made")
	c, err := env.CreateEtcd(ctx, harness.Spec{Name: "etcd-main"})
	require.NoError(t, err)
	require.NoError(t, c.WaitReconciled(ctx))

	get, ns := metav1.GetOptions{}, harness.Namespace
	set, err := env.Client.AppsV1().StatefulSets(ns).Get(ctx, "etcd-main", get)
	require.NoError(t, err)
	require.Equal(t, appsv1.RollingUpdateStatefulSetStrategyType, set.Spec.UpdateStrategy.Type)
	containers := set.Spec.Template.Spec.Containers
	require.Equal(t, []string{"etcd", druid.Wrapper34, "backup-restore", druid.BackupRestore},
		[]string{containers[0].Name, containers[0].Image, containers[1].Name, containers[1].Image})
	budget, err := env.Client.PolicyV1().PodDisruptionBudgets(ns).Get(ctx, "etcd-main", get)
	require.NoError(t, err)
	require.Equal(t, 2, budget.Spec.MinAvailable.IntValue())
	_, err = env.Client.CoreV1().ServiceAccounts(ns).Get(ctx, "etcd-main", get)
	require.NoError(t, err)
	for _, service := range []string{"etcd-main-client", "etcd-main-peer"} {
		_, err = env.Client.CoreV1().Services(ns).Get(ctx, service, get)
		require.NoError(t, err)
	}
	for _, lease := range []string{"etcd-main-0", "etcd-main-1", "etcd-main-2", "etcd-main-full-snap",
		"etcd-main-delta-snap"} {
		_, err = env.Client.CoordinationV1().Leases(ns).Get(ctx, lease, get)
		require.NoError(t, err)
	}

	err = c.SetStrategy(ctx, appsv1.OnDeleteStatefulSetStrategyType)
	require.True(t, apierrors.IsForbidden(err), "etcd-druid protects the StatefulSet from others: %v", err)
	require.NoError(t, c.Delete(ctx))
	_, err = env.Client.AppsV1().StatefulSets(ns).Get(ctx, "etcd-main", get)
	require.True(t, apierrors.IsNotFound(err), "%v", err)
}
