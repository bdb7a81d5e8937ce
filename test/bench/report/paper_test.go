package report

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/quorate/quorate/test/bench/result"
)

var (
	thousand = result.Fleet{
		Arm: "quorate", Clusters: 1000, Members: 3,
		IdleSeconds: 60, IdleRequests: map[string]int{"get leases": 600, "list pods": 600}, Watches: 2000,
		BaseMiB: 10, MemoryMiB: 210, PeakMiB: 310, Seconds: 20, Rolled: 1000,
		Requests: map[string]int{"list pods": 19_000, "delete pods": 3_000, result.Renewal: 1_000}, Bytes: 300 << 20,
		Done: result.Quantiles{Median: 12, P99: 15, Most: 16},
	}
	central = result.Fleet{
		Arm: "central", Workers: 5, Clusters: 1000, Members: 3, IdleSeconds: 60,
		IdleRequests: map[string]int{"list pods": 6}, Watches: 2,
		BaseMiB: 10, MemoryMiB: 60, PeakMiB: 70, Seconds: 1000, Rolled: 1000,
		Requests: map[string]int{"delete pods": 3000}, Bytes: 90 << 20,
		Done: result.Quantiles{Median: 11, P99: 13, Most: 14},
	}
)

func TestAHundredThousandClustersAreComputedFromTheMeasuredFleet(t *testing.T) {
	// R = 23,000 requests / 20 s = 1150 a second.
	got := estimatesOf([]result.Fleet{thousand, central}, 100_000)
	require.Equal(t, Estimate{
		Arm: "quorate", Clusters: 100_000, Measured: 1000,
		IdleRequests: 2000, Watches: 200_000, MemoryMiB: 20_000, PeakMiB: 30_000,
		Roll: 16, RollRequests: 143_750, RollShared: 2000,
	}, got[0], "all at once, as long as API servers answer")
	require.Equal(t, Estimate{
		Arm: "central", Workers: 5, Clusters: 100_000, Measured: 1000,
		IdleRequests: 10, Watches: 2, MemoryMiB: 5000, PeakMiB: 6000,
		Roll: 3000, RollRequests: 100, RollShared: 3000,
	}, got[1], "three requests a cluster, a hundred a second")
	require.Len(t, got, 2)
}

func TestACentralControllerIsNoFasterThanItsSlowestCluster(t *testing.T) {
	require.Equal(t, Number(14), estimatesOf([]result.Fleet{central}, 3)[0].Roll)
}

func TestThePeakIsThatOfTheFleetOfWhichMostRolledAtATime(t *testing.T) {
	atOnce := thousand
	atOnce.Clusters, atOnce.Rolled, atOnce.PeakMiB = 100, 100, 10+100
	e := estimatesOf([]result.Fleet{thousand, atOnce}, 100_000)[0]
	require.Equal(t, 1000, e.Measured)
	require.Equal(t, Number(100_000), e.PeakMiB)
}

func TestTheLargestFleetIsWhatTheEstimateIsComputedFrom(t *testing.T) {
	small, large := thousand, thousand
	small.Clusters, small.Rolled, large.Clusters, large.Rolled = 10, 10, 2000, 2000
	require.Equal(t, 2000, estimatesOf([]result.Fleet{small, large, thousand}, 100_000)[0].Measured)
}

func TestWhatWasNotMeasuredIsNotEstimated(t *testing.T) {
	require.Empty(t, estimatesOf(nil, 100_000))
	for name, spoil := range map[string]func(*result.Fleet){
		"no cluster was rolled":      func(f *result.Fleet) { f.Rolled = 0 },
		"the idle fleet was skipped": func(f *result.Fleet) { f.IdleSeconds = 0 },
		"no request was counted":     func(f *result.Fleet) { f.Requests = nil },
		"there is no cluster":        func(f *result.Fleet) { f.Clusters = 0 },
		"it took no time":            func(f *result.Fleet) { f.Seconds = 0 },
		"it is another release's":    func(f *result.Fleet) { f.Release = "bench-of-old" },
	} {
		t.Run(name, func(t *testing.T) {
			f, c := thousand, central
			spoil(&f)
			spoil(&c)
			require.Empty(t, estimatesOf([]result.Fleet{f, c}, 100_000))
		})
	}
}

func TestAFleetThatWasNotRolledWholeHasNoSlowestCluster(t *testing.T) {
	f := thousand
	f.Rolled = 999
	e := estimatesOf([]result.Fleet{f}, 100_000)[0]
	require.Equal(t, []Number{never, never, 0}, []Number{e.Roll, e.RollShared, e.RollRequests})
}
