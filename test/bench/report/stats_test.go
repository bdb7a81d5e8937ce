package report

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/quorate/quorate/test/bench/result"
)

func TestSpreadNamesTheMedianTheLeastAndTheMost(t *testing.T) {
	for name, tc := range map[string]struct {
		values []Number
		want   Spread
		text   string
	}{
		"of nothing there is none":            {nil, Spread{}, "–"},
		"one value is all three":              {[]Number{2}, Spread{1, 2, 2, 2}, "2.00"},
		"an odd number has one in the middle": {[]Number{9, 1, 2}, Spread{3, 2, 1, 9}, "2.00 (1.00–9.00)"},
		"an even number has the mean of two":  {[]Number{4, 1, 2, 9}, Spread{4, 3, 1, 9}, "3.00 (1.00–9.00)"},
		"one that never ended does not move the median": {[]Number{1, never, 2}, Spread{3, 2, 1, never},
			"2.00 (1.00–never)"},
		"half of them never is never":    {[]Number{1, never}, Spread{2, never, 1, never}, "never (1.00–never)"},
		"all never is never":             {[]Number{never, never}, Spread{2, never, never, never}, "never"},
		"nothing at all is a plain zero": {[]Number{0, 0}, Spread{2, 0, 0, 0}, "0"},
		"large ones need no fractions": {[]Number{120.4, 99.6, 130.2}, Spread{3, 120.4, 99.6, 130.2},
			"120 (100–130)"},
	} {
		t.Run(name, func(t *testing.T) {
			got := spreadOf(tc.values)
			require.Equal(t, tc.want, got)
			require.Equal(t, tc.text, got.String())
		})
	}
}

func TestSpreadLeavesItsValuesInTheirOrder(t *testing.T) {
	values := []Number{3, 1, 2}
	spreadOf(values)
	require.Equal(t, []Number{3, 1, 2}, values)
}

func TestTheLeaderMattersOnlyWhereItWasChosen(t *testing.T) {
	trials := []result.Trial{
		{Arm: "a", Case: result.QuorumLoss, Leader: -1, WriteStall: 2},
		{Arm: "b", Case: result.QuorumLoss, Leader: 2, WriteStall: 1},
	}
	require.Equal(t, []Number{2}, paired(trials, "a", "b", func(t result.Trial) Number { return Number(t.WriteStall) }))
}

func TestOnlyTrialsOfOneRoundCaseAndLeaderAreCompared(t *testing.T) {
	trial := func(arm string, round int, name string, leader int, stall float64) result.Trial {
		return result.Trial{Arm: arm, Round: round, Case: name, Leader: leader, WriteStall: stall}
	}
	stall := func(t result.Trial) Number { return Number(t.WriteStall) }
	const x, y = result.Healthy3, result.Healthy5
	trials := []result.Trial{
		trial("a", 1, x, 0, 2), trial("b", 1, x, 0, 4),
		trial("b", 2, x, 0, 1), trial("a", 2, x, 0, 3),
		trial("a", 2, x, 1, 100), trial("b", 2, x, 2, 1),
		trial("a", 3, x, 0, 100), trial("b", 4, x, 0, 1),
		trial("a", 5, x, 0, 100), trial("b", 5, y, 0, 1),
		trial("c", 1, x, 0, 100),
	}
	require.Equal(t, []Number{0.5, 3}, paired(trials, "a", "b", stall))
	require.Equal(t, spreadOf([]Number{0.5, 3}), spreadOf(paired(trials, "a", "b", stall)))
}

func TestWhatNeverEndedIsForEverTheSlower(t *testing.T) {
	seconds := map[string]Number{"soon": 1, "never": never, "at once": 0}
	for name, tc := range map[string]struct {
		arm, base string
		want      []Number
	}{
		"the arm never ends":       {"never", "soon", []Number{never}},
		"the other never ends":     {"soon", "never", []Number{0}},
		"neither ends":             {"never", "never", nil},
		"neither needs any time":   {"at once", "at once", nil},
		"the other needs no time":  {"soon", "at once", []Number{never}},
		"the arm needs no time":    {"at once", "soon", []Number{0}},
		"both need the same, once": {"soon", "soon", []Number{1}},
	} {
		t.Run(name, func(t *testing.T) {
			trials := []result.Trial{{Arm: "a", Note: tc.arm}, {Arm: "b", Note: tc.base}}
			require.Equal(t, tc.want, paired(trials, "a", "b", func(t result.Trial) Number { return seconds[t.Note] }))
		})
	}
}
