package fleet_test

import (
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/quorate/quorate/test/bench/fleet"
	"github.com/quorate/quorate/test/bench/result"
	"github.com/quorate/quorate/test/harness/process"
)

func TestMain(m *testing.M) {
	fleet.MaybeHost()
	goleak.VerifyTestMain(m, goleak.IgnoreTopFunction(process.SpawnerGoroutine))
}

func TestAFleetIsRolledOnceByEachWay(t *testing.T) {
	if testing.Short() {
		t.Skip("it starts a control plane")
	}
	began := time.Now()
	var results []result.Fleet
	var err error
	results, err = fleet.Run(t.Context(), fleet.Options{Short: true, Dir: logs(t), Seed: 1, Say: func(line string) { t.Logf("%5.1f %s", time.Since(began).Seconds(), line) }})
	require.NoError(t, err)
	for _, r := range results {
		t.Logf("%+v", r)
	}
}

// logs is a directory that stays when QUORATE_LOGS names it.
func logs(t *testing.T) string {
	if dir := os.Getenv("QUORATE_LOGS"); dir != "" {
		return dir
	}
	return t.TempDir()
}
