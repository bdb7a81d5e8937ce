package cost

import (
	"context"
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/quorate/quorate/test/harness"
)

// environment is a harness of the test's own.
func environment(t *testing.T) Options {
	t.Helper()
	if testing.Short() {
		t.Skip("real clusters are not for -short")
	}
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
	defer cancel()
	say := func(line string) { t.Log(line) }
	env, err := harness.Start(ctx, harness.Options{Dir: t.TempDir(), Progress: say})
	require.NoError(t, err)
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		require.NoError(t, env.Close(ctx))
	})
	return Options{Env: env, Short: os.Getenv("QUORATE_BENCH_LONG") == "", Say: say}
}

func TestTheCostOfASidecar(t *testing.T) {
	o := environment(t)
	t.Run("idle", func(t *testing.T) {
		idle, err := Idle(t.Context(), o)
		require.NoError(t, err)
		require.Len(t, idle, 3)
		t.Logf("%+v", idle)
	})
	t.Run("embedded", func(t *testing.T) {
		embedded, err := Embedded(t.Context(), o)
		require.NoError(t, err)
		t.Logf("%+v", embedded)
	})
	t.Run("failover", func(t *testing.T) {
		failovers, err := Failover(t.Context(), o)
		require.NoError(t, err)
		t.Logf("%+v", failovers)
	})
}
