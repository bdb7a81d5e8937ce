package result_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/quorate/quorate/test/bench/result"
)

func TestARunIsReadAsItWasWritten(t *testing.T) {
	dir := t.TempDir()
	want := &result.Run{
		Header: result.Header{Began: time.Unix(1, 0).UTC(), Version: "abc", Etcd: []string{"3.5.35", "3.6.16"}},
		Trials: []result.Trial{
			{Case: "healthy-3", Arm: "quorate", Position: 1, Leader: 2, Began: time.Unix(2, 0).UTC()},
			{Case: "one-down", Arm: "parallel", Position: 2, Began: time.Unix(3, 0).UTC(), Trouble: "no leader"},
		},
		Failovers: []result.Failover{{How: "SIGKILL", Seconds: 9}},
		Idle:      []result.Idle{{Role: "waiter", Kubernetes: map[string]float64{"get pods": 1}}},
		Embedded:  []result.Embedded{{When: "idle", Without: 8, With: 9}},
		Fleets:    []result.Fleet{{Arm: "central", Workers: 3}},
	}
	require.NoError(t, result.WriteHeader(dir, want.Header))
	for _, trial := range want.Trials {
		require.NoError(t, result.WriteTrial(dir, trial))
	}
	require.NoError(t, result.WritePart(dir, result.Failovers, want.Failovers))
	require.NoError(t, result.WritePart(dir, result.Idles, want.Idle))
	require.NoError(t, result.WritePart(dir, result.Embeddeds, want.Embedded))
	require.NoError(t, result.WritePart(dir, result.Fleets, want.Fleets))
	got, err := result.Read(dir)
	require.NoError(t, err)
	require.Equal(t, want, got)
}

func TestADirectoryWithoutARunIsRefusedByName(t *testing.T) {
	dir := t.TempDir()
	_, err := result.Read(dir)
	require.ErrorContains(t, err, dir+" holds no run of the benchmarks")
}
