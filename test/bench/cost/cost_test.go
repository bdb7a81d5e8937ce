package cost

import (
	"context"
	"flag"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/quorate/quorate/test/harness"
)

var (
	long = flag.Bool("long", false, "measure for as long as the benchmarks do")
	logs = flag.String("logs", "", "directory for data and logs of all processes (default: a temporary one)")
)

// environment is a harness of the test's own.
func environment(t *testing.T) Options {
	t.Helper()
	if testing.Short() {
		t.Skip("real clusters are not for -short")
	}
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
	defer cancel()
	dir := t.TempDir()
	if *logs != "" {
		dir = filepath.Join(*logs, t.Name())
	}
	say := func(line string) { t.Log(line) }
	env, err := harness.Start(ctx, harness.Options{Dir: dir, Patient: true, Progress: say})
	require.NoError(t, err)
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		require.NoError(t, env.Close(ctx))
	})
	return Options{Env: env, Short: !*long, Say: say}
}

func TestTheCostOfASidecar(t *testing.T) {
	o := environment(t)
	t.Run("idle: of each one, and nobody asks the API server for anything", func(t *testing.T) {
		idle, err := Idle(t.Context(), o)
		require.NoError(t, err)
		require.Len(t, idle, members)
		for i, one := range idle {
			role, watches := "waiter", 0
			if i == 0 {
				role, watches = "holder", 3 // On the StatefulSet, its pods and the Lease.
			}
			require.Equal(t, role, one.Role)
			require.Equal(t, watches, one.Watches)
			require.Empty(t, one.Kubernetes)
			require.Positive(t, one.Etcd["Lease/LeaseKeepAlive"])
			require.Positive(t, one.CPUPercent)
			require.Positive(t, one.Usage.Anonymous)
			require.Greater(t, one.Usage.Resident, one.Usage.Anonymous)
		}
	})
	t.Run("failover: of both kinds, and the second ends soon after the lease at the latest", func(t *testing.T) {
		failovers, err := Failover(t.Context(), o)
		require.NoError(t, err)
		require.Zero(t, len(failovers)%2)
		for i := 0; i < len(failovers); i += 2 {
			require.Equal(t, "graceful", failovers[i].How)
			require.Equal(t, "SIGKILL", failovers[i+1].How)
			require.Positive(t, failovers[i].Seconds)
			require.Positive(t, failovers[i+1].Seconds)
			require.Less(t, failovers[i+1].Seconds, failovers[i+1].LockTTL+2)
		}
	})
	t.Run("embedded: idle and in a rollout, with the library and without", func(t *testing.T) {
		embedded, err := Embedded(t.Context(), o)
		require.NoError(t, err)
		require.Zero(t, len(embedded)%2)
		for i, one := range embedded {
			require.Equal(t, []string{"idle", "rollout"}[i%2], one.When)
			require.Equal(t, i/2+1, one.Round)
			require.Positive(t, one.Without)
			require.Positive(t, one.With)
		}
	})
}

func TestWhatIsMeasuredNeedsAHarness(t *testing.T) {
	_, err := Idle(t.Context(), Options{})
	require.ErrorContains(t, err, "Env is missing")
	_, err = Hosts(t.Context(), Options{})
	require.ErrorContains(t, err, "Env is missing")
}

func TestACancelledMeasurementEndsAtOnceAndLeavesNothing(t *testing.T) {
	o := environment(t)
	ctx, cancel := context.WithCancel(t.Context())
	o.Say = func(line string) {
		t.Log(line)
		cancel() // With the first word of the idle window.
	}
	idle, err := Idle(ctx, o)
	require.ErrorIs(t, err, context.Canceled)
	require.Empty(t, idle)
	pods, err := o.Env.Client.CoreV1().Pods(harness.Namespace).List(t.Context(), metav1.ListOptions{})
	require.NoError(t, err)
	require.Empty(t, pods.Items)
}
