package result_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/quorate/quorate/test/bench/result"
)

// equal says of two commits that they build the same only if they are one.
func equal(a, b string) bool { return a == b }

func TestRunsOfTheSameCodeAreJoinedAndEverythingCounts(t *testing.T) {
	began := time.Date(2026, 11, 27, 16, 0, 0, 0, time.UTC)
	header := result.Header{Version: "abc", Etcd: []string{"3.5.35", "3.6.16"}, Seconds: 10, Lanes: 2, Seed: 1,
		Began: began}
	first := &result.Run{Header: header, Trials: []result.Trial{{Case: "healthy-3", Round: 1, Position: 1},
		{Case: "healthy-3", Round: 2, Position: 2}}, Idle: []result.Idle{{Role: "waiter"}}}
	later := header
	later.Seconds, later.Lanes, later.Seed, later.Began = 5, 1, 7, began.Add(time.Hour)
	second := &result.Run{Header: later, Trials: []result.Trial{{Case: "healthy-3", Round: 1, Position: 1}},
		Fleets: []result.Fleet{{Arm: "quorate"}}}

	got, err := result.Join(equal, first, second)
	require.NoError(t, err)
	header.Seconds, header.Sittings = 15, 2
	require.Equal(t, &result.Run{Header: header, Trials: []result.Trial{{Case: "healthy-3", Round: 1, Position: 1},
		{Case: "healthy-3", Round: 2, Position: 2}, {Case: "healthy-3", Round: 3, Position: 3}},
		Idle: []result.Idle{{Role: "waiter"}}, Fleets: []result.Fleet{{Arm: "quorate"}}}, got)
	require.Equal(t, 1, second.Trials[0].Round, "what was measured stays as it is")

	got, err = result.Join(equal, second, first)
	require.NoError(t, err)
	require.Equal(t, began, got.Header.Began, "whichever is named first")

	alone, err := result.Join(equal, first)
	require.NoError(t, err)
	require.Equal(t, first, alone)
}

func TestRunsOfSeveralCommitsAreJoinedWhereTheyBuildTheSame(t *testing.T) {
	of := func(version string) *result.Run { return &result.Run{Header: result.Header{Version: version}} }
	same := func(a, b string) bool { return a != "other" && b != "other" }
	got, err := result.Join(same, of("abc"), of("def"), of("abc"))
	require.NoError(t, err)
	require.Equal(t, "abc, def", got.Header.Version)
	_, err = result.Join(same, of("abc"), of("def"), of("other"))
	require.ErrorContains(t, err, "Quorate abc on")
	require.ErrorContains(t, err, "and other on")
}

func TestFleetsMayBeOfAnotherMachineWhichIsNamed(t *testing.T) {
	here := &result.Run{Header: result.Header{Version: "abc", CPU: "one", Cores: 2},
		Trials: []result.Trial{{Case: "healthy-3", Round: 1}}, Fleets: []result.Fleet{{Clusters: 10}}}
	there := &result.Run{Header: result.Header{Version: "abc", CPU: "other", Cores: 4},
		Fleets: []result.Fleet{{Clusters: 20}}}
	got, err := result.Join(equal, here, there)
	require.NoError(t, err)
	require.Equal(t, []result.Fleet{{Clusters: 10},
		{Clusters: 20, Machine: "other, 4 cores, 0 MiB memory, Linux "}}, got.Fleets)
	require.Equal(t, "one", got.Header.CPU)
	require.Empty(t, there.Fleets[0].Machine, "what was measured stays as it is")

	there.Header.Etcd = []string{"3.6.16"}
	_, err = result.Join(equal, here, there)
	require.ErrorContains(t, err, "not of the same code", "the versions have to be the same all the same")
}

func TestEveryPartButTheTrialsMayBeOfAnotherMachineWhichIsNamed(t *testing.T) {
	one := result.Header{Version: "abc", CPU: "one", Cores: 2}
	other := result.Header{Version: "abc", CPU: "other", Cores: 2}
	const there = "other, 2 cores, 0 MiB memory, Linux "
	parts := map[result.Part]func(*result.Run){
		result.Failovers: func(r *result.Run) { r.Failovers = []result.Failover{{How: "graceful"}} },
		result.Idles:     func(r *result.Run) { r.Idle = []result.Idle{{Role: "waiter"}} },
		result.Embeddeds: func(r *result.Run) { r.Embedded = []result.Embedded{{When: "idle"}} },
		result.Hosts:     func(r *result.Run) { r.Hosts = []result.Host{{When: "idle"}} },
	}
	require.Len(t, parts, len(result.Parts))
	for _, part := range result.Parts {
		t.Run(part.Title(), func(t *testing.T) {
			trials := &result.Run{Header: one, Trials: []result.Trial{{Case: "healthy-3", Round: 1}}}
			away := &result.Run{Header: other}
			parts[part](away)
			got, err := result.Join(equal, trials, away)
			require.NoError(t, err)
			require.Equal(t, map[result.Part]string{part: there}, got.Elsewhere)
			require.Equal(t, "one", got.Header.CPU)
			require.Empty(t, trials.Elsewhere, "what was measured stays as it is")

			turned, err := result.Join(equal, away, trials)
			require.NoError(t, err)
			require.Equal(t, got, turned, "the machine is that of the trials, whatever comes first")

			more, err := result.Join(equal, trials, away, away)
			require.NoError(t, err, "it is of the same other machine")
			require.Equal(t, got.Elsewhere, more.Elsewhere)

			parts[part](trials)
			_, err = result.Join(equal, trials, away)
			require.EqualError(t, err, part.Title()+": measured on one, 2 cores, 0 MiB memory, Linux  and on "+there+
				", and all of it has to be of one machine")

			away.Trials = trials.Trials
			_, err = result.Join(equal, trials, away)
			require.ErrorContains(t, err, "not of the same code, machine and versions", "trials are of one machine")
			_, err = result.Join(equal, trials, &result.Run{Header: other})
			require.ErrorContains(t, err, "not of the same code, machine and versions", "nothing was measured there")
		})
	}
}

func TestRunsOfAnotherCodeOrMachineAreNotJoined(t *testing.T) {
	for name, change := range map[string]func(*result.Header){
		"another commit":              func(h *result.Header) { h.Version = "def" },
		"another number of cores":     func(h *result.Header) { h.Cores = 4 },
		"another etcd":                func(h *result.Header) { h.Etcd = []string{"3.6.16"} },
		"only to show that it works":  func(h *result.Header) { h.Short = true },
		"containers that start later": func(h *result.Header) { h.StartDelay = 3 },
	} {
		t.Run(name, func(t *testing.T) {
			one, other := result.Header{Version: "abc", Cores: 2}, result.Header{Version: "abc", Cores: 2}
			change(&other)
			trials := []result.Trial{{Case: "healthy-3", Round: 1}}
			_, err := result.Join(equal, &result.Run{Header: one, Trials: trials},
				&result.Run{Header: other, Trials: trials})
			require.ErrorContains(t, err, "not of the same code, machine and versions")
		})
	}
	_, err := result.Join(equal)
	require.ErrorContains(t, err, "no run")
}
