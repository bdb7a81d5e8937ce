package fleet_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/quorate/quorate/test/bench/fleet"
	"github.com/quorate/quorate/test/harness/process"
)

func TestMain(m *testing.M) {
	fleet.MaybeHost()
	goleak.VerifyTestMain(m, goleak.IgnoreTopFunction(process.SpawnerGoroutine))
}

func TestEveryPodOfAFleetIsReplacedOnceAndOneAtATimeByBothWays(t *testing.T) {
	if testing.Short() {
		t.Skip("it starts a control plane")
	}
	const clusters, members = 8, 3
	results, err := fleet.Run(t.Context(), fleet.Options{
		Short: true, Clusters: clusters, Members: members, Dir: t.TempDir(), Seed: 1,
		Say: func(line string) { t.Log(line) },
	})
	require.NoError(t, err) // It says which pod was replaced twice, or which two were away at once.
	require.Len(t, results, 2)
	for _, r := range results {
		require.Equal(t, clusters, r.Rolled, r.Arm)
		require.Empty(t, r.IdleRequests, "%s asks for something while nothing happens", r.Arm)
		require.Greater(t, r.MemoryMiB, r.BaseMiB, r.Arm)
		require.GreaterOrEqual(t, r.PeakMiB, r.BaseMiB, r.Arm)
		require.Positive(t, r.CPU, r.Arm)
		require.Positive(t, r.FirstAction.Median, r.Arm)
		require.Less(t, r.FirstAction.Most, r.Done.Most, r.Arm)
		require.GreaterOrEqual(t, r.Seconds, members*r.PodDown, "%s was faster than the pods", r.Arm)
	}
	coordinators, central := results[0], results[1]
	require.Equal(t, "quorate", coordinators.Arm)
	require.Equal(t, 3*clusters, coordinators.Watches,
		"three for each holder of a lock, none for those who wait for it")
	require.GreaterOrEqual(t, coordinators.Requests["create pods/eviction"], clusters*members,
		"one may be refused and decided anew")
	require.GreaterOrEqual(t, coordinators.Requests["watch poddisruptionbudgets"], clusters,
		"a rollout follows its budget, as the sidecar's does")
	require.Positive(t, coordinators.Bytes)
	require.Equal(t, "central", central.Arm)
	require.Equal(t, 3, central.Watches)
	require.Equal(t, map[string]int{"delete pods": clusters * members}, central.Requests)
	require.Positive(t, central.Bytes, "its watches tell it of every pod")
	require.Less(t, central.Bytes, coordinators.Bytes)
}

func TestAFleetThatIsGivenUpLeavesNothingBehind(t *testing.T) {
	if testing.Short() {
		t.Skip("it starts a control plane")
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	_, err := fleet.Run(ctx, fleet.Options{Short: true, Clusters: 3, Dir: t.TempDir(), Say: func(line string) {
		if t.Log(line); line == "changing all templates" {
			cancel()
		}
	}})
	require.ErrorIs(t, err, context.Canceled)
	// That no process and no goroutine is left is checked after all tests.
}

func TestBadOptionsAreNamedBeforeAnythingIsStarted(t *testing.T) {
	_, err := fleet.Run(t.Context(), fleet.Options{Clusters: -1, Members: 10, Workers: []int{0}, Over: time.Hour})
	for _, want := range []string{"Dir is empty", "Clusters is -1", "Members is 10", "Workers has 0",
		"Over is 1h0m0s"} {
		require.ErrorContains(t, err, want)
	}
}
