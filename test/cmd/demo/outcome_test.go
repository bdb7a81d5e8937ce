package main

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/quorate/quorate/test/harness"
	"github.com/quorate/quorate/test/harness/traffic"
)

func removals(names ...string) []harness.Removal {
	var all []harness.Removal
	for _, name := range names {
		all = append(all, harness.Removal{Pod: name, OthersReady: 2})
	}
	return all
}

// good is a healthy cluster that Quorate rolled as it should.
func good() *outcome {
	return &outcome{
		options: options{scenario: healthy, strategy: onDelete},
		pods:    []string{"e-0", "e-1", "e-2"}, leader: "e-1",
		removals: removals("e-2", "e-0", "e-1"), fewestReady: 2,
		figures: traffic.Figures{
			Traffic: traffic.ClientFigures{Verified: true, AcknowledgedWrites: 1000},
			Cluster: traffic.ClusterFigures{
				LeaderChanges: 1, FirstTerm: 2, LastTerm: 3, FewestServing: 2,
				FewestServingAt: traffic.ServingStep{Voters: 3},
				Leaders:         []traffic.Leadership{{Name: "e-1", Term: 2}, {Name: "e-2", Term: 3}},
			},
		},
		memory: harness.Memory{Anonymous: 7 << 20, Resident: 33 << 20},
	}
}

func TestQuorateIsJudgedByEveryInvariant(t *testing.T) {
	t.Run("a rollout as it should be passes", func(t *testing.T) {
		j := good().judge()
		require.True(t, j.ok)
		require.Empty(t, j.broken)
		require.Contains(t, j.line, "PASSED")
	})
	for _, c := range []struct {
		name  string
		spoil func(o *outcome)
		says  string
	}{
		{"quorum was lost", func(o *outcome) {
			o.figures.Cluster.WithoutQuorumSeconds = 1.25
			o.figures.Cluster.Outages = []traffic.Span{{Seconds: 1.25}}
		}, "quorum is never lost: it was lost for 1.2 s"},
		{"a write was lost", func(o *outcome) {
			o.figures.Traffic.LostWrites = 1
			o.figures.Traffic.Violations = []traffic.Violation{{Kind: traffic.LostWrite}}
		}, "no acknowledged write is lost: 1 were"},
		{"a read was stale", func(o *outcome) {
			o.figures.Traffic.Violations = []traffic.Violation{{Kind: traffic.StaleRead, Detail: "k"}}
		}, "stale read: k"},
		{"the history could not be verified", func(o *outcome) {
			o.verification = errors.New("no member answered")
		}, "no member answered"},
		{"a write was not verified", func(o *outcome) { o.figures.Traffic.UnverifiedWrites = 4 }, "4 could not be"},
		{"the leader did not go last", func(o *outcome) { o.removals = removals("e-2", "e-1", "e-0") },
			"the leader, e-1, last: the order was e-2, e-1, e-0"},
		{"a pod went twice", func(o *outcome) { o.removals = removals("e-2", "e-2", "e-0", "e-1") }, "exactly once"},
		{"no pod went", func(o *outcome) { o.removals = nil }, "exactly once"},
		{"the leader changed twice", func(o *outcome) { o.figures.Cluster.LeaderChanges = 2 },
			"exactly one change of leader: there were 2"},
		{"the leader never changed", func(o *outcome) { o.figures.Cluster.LeaderChanges = 0 },
			"exactly one change of leader: there were 0"},
		{"the leader was elected again", func(o *outcome) { o.figures.Cluster.Reelections = 1 }, "1 re-elections"},
		{"a pod went while another was away", func(o *outcome) { o.removals[1].OthersAway = 1 },
			"e-0 was removed while 1 were"},
		{"a sidecar needed 16 MiB", func(o *outcome) { o.memory.Anonymous = 16 << 20 }, "one needed 16.0 MiB"},
		{"it took too long", func(o *outcome) { o.unfinished = errors.New("this took more than 5m0s") },
			"this took more than 5m0s"},
	} {
		t.Run("it fails when "+c.name, func(t *testing.T) {
			o := good()
			c.spoil(o)
			j := o.judge()
			require.False(t, j.ok)
			require.Len(t, j.broken, 1, "one thing is wrong")
			require.Contains(t, j.broken[0], c.says)
		})
	}
	t.Run("with the race detector memory is not judged", func(t *testing.T) {
		o := good()
		o.memory.Anonymous, o.raceDetector = 100<<20, true
		require.True(t, o.judge().ok)
	})
	t.Run("a sick member goes first", func(t *testing.T) {
		o := good()
		o.scenario, o.sick = sickMember, "e-0"
		require.False(t, o.judge().ok)
		o.removals = removals("e-0", "e-2", "e-1")
		j := o.judge()
		require.True(t, j.ok, j.broken)
		require.Contains(t, j.line, "e-0, which was down, first")
	})
}

func TestKubernetesIsNotJudgedByQuoratesInvariants(t *testing.T) {
	rolled := func() *outcome {
		o := good()
		o.strategy = rollingUpdate
		o.removals = removals("e-2", "e-1", "e-0")
		o.figures.Cluster.LeaderChanges = 2
		return o
	}
	t.Run("a rolling update of a healthy cluster is only reported", func(t *testing.T) {
		j := rolled().judge()
		require.True(t, j.ok)
		require.Contains(t, j.line, "2 leader changes, 0.0 s without quorum")
	})
	t.Run("a rolling update of a healthy cluster has to come to its end", func(t *testing.T) {
		o := rolled()
		o.unfinished = errors.New("this took more than 5m0s")
		require.False(t, o.judge().ok)
	})
	t.Run("with a sick member the loss of quorum is what has to be seen", func(t *testing.T) {
		o := rolled()
		o.scenario, o.sick = sickMember, "e-0"
		require.False(t, o.judge().ok, "quorum was kept")
		o.figures.Cluster.WithoutQuorumSeconds = 8.4
		j := o.judge()
		require.True(t, j.ok)
		require.Contains(t, j.line, "no quorum for 8.4 s")
	})
	t.Run("with a sick member a rollout that gets stuck is said to be", func(t *testing.T) {
		o := rolled()
		o.scenario, o.sick = sickMember, "e-0"
		o.figures.Cluster.WithoutQuorumSeconds = 300
		o.unfinished = errors.New("1 of 3")
		j := o.judge()
		require.True(t, j.ok)
		require.Contains(t, j.line, "did not come to its end by itself: 1 of 3")
	})
}

func TestTheSummaryTellsEverything(t *testing.T) {
	o := good()
	o.figures.Traffic.LongestWriteStall.Seconds = 0.41
	o.figures.Traffic.Writes = traffic.Requests{Total: 900, Failed: 1, Retried: 6}
	o.figures.Traffic.Reads = traffic.Requests{Total: 100}
	o.building, o.starting, o.rollout, o.total = 2*time.Second, 11*time.Second, 25*time.Second, 75*time.Second
	var all strings.Builder
	for _, l := range o.summary() {
		all.WriteString(l.text + "\n")
	}
	for _, want := range []string{
		"order of replacement     e-2, e-0, e-1 (led)",
		"leader changes           1 (e-1 -> e-2; raft terms 2 to 3)",
		"0.41 s for one writer",
		"fewest serving voters    2 of 3",
		"fewest Ready pods        2 of 3",
		"without quorum           0.0 s",
		"acknowledged writes      1000, lost: 0",
		"failed requests          1 of 1000; 5 met a member that was away",
		"rollout time             25.0s",
		"total time               75.0s (building 2.0s, starting 11.0s)",
		"7.0 MiB anonymous, 33.0 MiB in all",
		"PASSED",
	} {
		require.Contains(t, all.String(), want)
	}
	require.NotContains(t, all.String(), "broken")

	o.memory.Anonymous = 20 << 20
	last := o.summary()
	require.Contains(t, last[len(last)-1].text, "broken: a sidecar needs less than 16 MiB")
}
