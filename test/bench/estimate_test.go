package bench

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/quorate/quorate/test/bench/result"
)

func TestRealNodesHaveTheCoreByTheArmsThatAreComparedUnlessToldOtherwise(t *testing.T) {
	cases := func(o Options) (names, arms []string) {
		t.Helper()
		todo, err := o.plan()
		require.NoError(t, err)
		for _, s := range slotsOf(todo) {
			names, arms = append(names, s.name), append(arms, s.arm)
		}
		slices.Sort(names)
		slices.Sort(arms)
		return slices.Compact(names), slices.Compact(arms)
	}
	names, arms := cases(Options{Rounds: 3, RealNodes: true})
	require.ElementsMatch(t, Core, names)
	require.ElementsMatch(t, Paired, arms)
	names, arms = cases(Options{Rounds: 1, RealNodes: true, Cases: []string{result.OneDown},
		Arms: []string{result.OrderedReady}})
	require.Equal(t, []string{result.OneDown}, names)
	require.Equal(t, []string{result.OrderedReady}, arms)
	names, _ = cases(Options{Rounds: 1})
	require.Len(t, names, len(result.Cases), "the agent's nodes have everything")
	for _, name := range Core {
		require.Subset(t, settings[name].arms, Paired, "%s: there are pairs", name)
	}
	for _, arm := range Paired {
		require.False(t, Gated(arm), "%s: one control plane is enough", arm)
	}
	_, err := Options{Rounds: 1, Cases: []string{result.Quiet}, Arms: []string{result.Parallel}}.plan()
	require.ErrorContains(t, err, `no trial matches cases ["quiet"] and arms ["parallel"]`)
}

func TestTheCasesThatDecideArePlayedUntilThereAreAsManyPairsAsAreAskedFor(t *testing.T) {
	const healthy3, healthy5, oneDown = result.Healthy3, result.Healthy5, result.OneDown
	for name, c := range map[string]struct {
		options Options
		// pairs and others are how many trials there are by each of Paired, and by all other arms.
		pairs, others map[string]int
	}{
		"whole rounds more, by no other arms": {
			Options{Rounds: 3, Pairs: 20, Cases: []string{healthy3, healthy5, oneDown}},
			map[string]int{healthy3: 21, healthy5: 20, oneDown: 3},
			map[string]int{healthy3: 18, healthy5: 10, oneDown: 9},
		},
		"no more where there are enough": {Options{Rounds: 3, Pairs: 9, Cases: []string{healthy3}},
			map[string]int{healthy3: 9}, map[string]int{healthy3: 18}},
		"only of cases that are asked for": {Options{Rounds: 1, Pairs: 20, Cases: []string{oneDown}},
			map[string]int{oneDown: 1}, map[string]int{oneDown: 3}},
		"none without one of the arms": {Options{Rounds: 1, Pairs: 20, Cases: []string{healthy3},
			Arms: []string{result.Quorate}}, map[string]int{}, map[string]int{}},
	} {
		t.Run(name, func(t *testing.T) {
			todo, err := c.options.plan()
			require.NoError(t, err)
			seen, by, others := map[slot]bool{}, map[string]map[string]int{}, map[string]int{}
			for i, p := range slices.Concat(todo...) {
				s := slot{p.name, p.leader, p.arm, p.round}
				require.False(t, seen[s], "%+v is there twice", s)
				seen[s] = true
				require.Equal(t, i+1, p.position)
				if !slices.Contains(Paired, p.arm) {
					others[p.name]++
					continue
				}
				if by[p.arm] == nil {
					by[p.arm] = map[string]int{}
				}
				by[p.arm][p.name]++
			}
			require.Equal(t, c.others, others)
			if len(c.pairs) == 0 {
				require.Equal(t, map[string]map[string]int{result.Quorate: {healthy3: 3}}, by)
				return
			}
			for _, arm := range Paired {
				require.Equal(t, c.pairs, by[arm], arm)
			}
		})
	}
}

func TestHowLongATrialTakesIsEstimatedByWhatTheSameTook(t *testing.T) {
	trial := func(name, arm, nodes string, seconds, took float64) result.Trial {
		return result.Trial{Case: name, Arm: arm, Nodes: nodes, Seconds: seconds, Took: took}
	}
	troubled := trial(result.OneDown, result.Quorate, "", 500, 500)
	troubled.Trouble = "nobody led"
	published := []result.Trial{
		trial(result.OneDown, result.Quorate, "", 20, 0), trial(result.OneDown, result.Quorate, "", 30, 0), troubled,
		trial(result.OneDown, result.Quorate, "", 90, 0),
		trial(result.OneDown, result.Parallel, "", 12, 0),
		trial(result.Healthy3, result.Quorate, "", 12, 27),
		trial(result.Healthy3, result.Quorate, result.RealNodes, 18, 50),
		trial(result.QuorumLoss, result.Quorate, "", 12, 0),
	}
	for what, c := range map[string]struct {
		name, arm string
		real      bool
		want      float64
	}{
		"the median of the same, and what is around it":       {result.OneDown, result.Quorate, false, 30 + 8},
		"another arm if there is none":                        {result.OneDown, result.OrderedReady, false, 20 + 8},
		"all of it where that was measured":                   {result.Healthy3, result.Quorate, false, 27},
		"the same on real nodes":                              {result.Healthy3, result.Quorate, true, 50},
		"or longer than on the agent's":                       {result.OneDown, result.Parallel, true, 18 + 20},
		"what comes before the change":                        {result.QuorumLoss, result.Quorate, false, 12 + 31 + 8},
		"its limit, if there is none":                         {result.Watched, result.Quorate, false, 180 + 8},
		"its limit with the time for which the cluster idles": {result.Quiet30, result.Quorate, false, 315 + 180 + 8},
	} {
		t.Run(what, func(t *testing.T) {
			o := Options{Published: published, RealNodes: c.real}
			got := o.takes(planned{name: c.name, arm: c.arm, setting: settings[c.name]})
			require.InDelta(t, c.want, got.Seconds(), 0.01)
		})
	}
}

func TestAPlanSaysHowManyTrialsThereAreAndHowLongTheyTake(t *testing.T) {
	var published []result.Trial
	for _, c := range result.Cases {
		published = append(published, result.Trial{Case: c.Name, Took: 60})
	}
	text, err := Estimate(Options{Rounds: 1, Cases: []string{result.Healthy3, result.OneDown},
		Arms: []string{result.Parallel, result.Quorate}, Lanes: 2, Published: published})
	require.NoError(t, err)
	require.Equal(t, "8 trials are planned; they take about 7m0s", text, "six alone, and then two at a time")
	_, err = Estimate(Options{Rounds: 1, Cases: []string{"other"}})
	require.ErrorContains(t, err, "no trial matches")
}
