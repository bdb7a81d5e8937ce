package bench

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"

	"github.com/quorate/quorate/test/bench/result"
	"github.com/quorate/quorate/test/harness"
)

// slot is a trial of a plan, without its setting, which cannot be compared.
type slot struct {
	name   string
	leader int
	arm    string
	round  int
}

func slotsOf(groups [][]planned) []slot {
	var all []slot
	for _, p := range slices.Concat(groups...) {
		all = append(all, slot{p.name, p.leader, p.arm, p.round})
	}
	return all
}

func TestAPlanHasEveryCaseByEveryArmUnderEveryLeaderOnceInARound(t *testing.T) {
	type part struct {
		name    string
		rounds  int
		leaders []int
		arms    []string
	}
	const (
		ordered, parallel, most      = result.OrderedReady, result.Parallel, result.MaxUnavailable
		quorate, quorateMost, twice  = result.Quorate, result.QuorateMax, result.QuorateTwo
		del                          = result.QuorateDelete
		healthy3, healthy5, healthy7 = result.Healthy3, result.Healthy5, result.Healthy7
		oneDown, quorumLoss, quiet   = result.OneDown, result.QuorumLoss, result.Quiet
	)
	for name, c := range map[string]struct {
		rounds      int
		cases, arms []string
		want        []part
	}{
		"each of three members leads once": {3, []string{healthy3}, nil, []part{
			{healthy3, 3, []int{0, 1, 2}, []string{ordered, parallel, quorate, del}},
		}},
		"large clusters take part in fewer rounds": {3, []string{healthy5, healthy7}, nil, []part{
			{healthy5, 1, []int{0, 1, 2, 3, 4}, []string{parallel, most, quorate, quorateMost}},
			{healthy7, 1, []int{0, 1, 2, 3, 4, 5, 6}, []string{parallel, most, quorate, twice, quorateMost}},
		}},
		"nothing takes part in more rounds than there are": {1, []string{healthy5}, []string{quorate}, []part{
			{healthy5, 1, []int{0, 1, 2, 3, 4}, []string{quorate}},
		}},
		"where something is broken one leader is enough": {2, []string{oneDown, quorumLoss}, nil, []part{
			{oneDown, 2, []int{1}, []string{ordered, parallel, most, quorate, del}},
			{quorumLoss, 2, []int{2}, []string{ordered, parallel, most, quorate}},
		}},
		"a case without any of the arms is left out": {1, []string{oneDown, quiet}, []string{parallel}, []part{
			{oneDown, 1, []int{1}, []string{parallel}},
		}},
		"an unknown case": {1, []string{"other"}, nil, nil},
		"an unknown arm":  {1, nil, []string{"other"}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			var want []slot
			for _, p := range c.want {
				for round := range p.rounds {
					for _, leader := range p.leaders {
						for _, arm := range p.arms {
							want = append(want, slot{p.name, leader, arm, round + 1})
						}
					}
				}
			}
			groups := plan(c.rounds, c.cases, c.arms, 1)
			require.ElementsMatch(t, want, slotsOf(groups))
			for _, group := range groups {
				require.NotEmpty(t, group)
			}
		})
	}
}

func TestThePlanOfAWholeRunLeavesNothingOut(t *testing.T) {
	const rounds = 3
	cases, arms := map[string]bool{}, map[string]bool{}
	seen := map[slot]bool{}
	round := 1
	for _, s := range slotsOf(plan(rounds, nil, nil, 1)) {
		cases[s.name], arms[s.arm] = true, true
		require.False(t, seen[s], "%+v is there twice", s)
		seen[s] = true
		require.GreaterOrEqual(t, s.round, round, "one round ends before the next begins")
		round = s.round
	}
	require.Equal(t, rounds, round)
	require.Len(t, cases, len(result.Cases))
	require.Len(t, arms, len(result.Arms))
}

func TestTheArmsOfAPairFollowEachOther(t *testing.T) {
	for _, group := range plan(3, nil, nil, 1) {
		var arms []string
		for _, p := range group {
			require.Equal(t, group[0].name, p.name)
			require.Equal(t, group[0].leader, p.leader)
			require.Equal(t, group[0].round, p.round)
			arms = append(arms, p.arm)
		}
		require.ElementsMatch(t, group[0].setting.arms, arms, "%s under leader %d, round %d", group[0].name,
			group[0].leader, group[0].round)
	}
}

func TestRoundsFollowEachOtherAndInEachWhatWantsTheMachineForItselfComesFirst(t *testing.T) {
	todo := plan(3, nil, nil, 1)
	require.Equal(t, []turn{{1, todo}}, turns(todo, 1), "with one lane, nothing shares the machine")

	var again [][]planned
	for i, turn := range turns(todo, 2) {
		again = append(again, turn.groups...)
		require.Equal(t, 1+i%2, turn.lanes)
		for _, group := range turn.groups {
			require.Equal(t, 1+i/2, group[0].round)
			require.Equal(t, turn.lanes == 1, group[0].setting.alone, group[0].name)
		}
	}
	require.ElementsMatch(t, slotsOf(todo), slotsOf(again))
}

func TestPositionsCountTheTrials(t *testing.T) {
	for name, groups := range map[string][][]planned{"a run": plan(2, nil, nil, 1), "a short run": short(1)} {
		t.Run(name, func(t *testing.T) {
			for i, p := range slices.Concat(groups...) {
				require.Equal(t, i+1, p.position)
			}
		})
	}
}

func TestTheOrderIsDrawnFromTheSeed(t *testing.T) {
	order := func(seed uint64) []slot { return slotsOf(plan(2, nil, nil, seed)) }
	require.Equal(t, order(1), order(1), "who knows the seed can do the run again")
	require.NotEqual(t, order(1), order(2))
	require.ElementsMatch(t, order(1), order(2), "it is the order alone that differs")

	// What is first in one place is not in another.
	groups := plan(2, []string{result.Healthy5}, nil, 1)
	firstArms, firstLeaders := map[string]bool{}, map[int]bool{}
	for _, group := range groups {
		firstArms[group[0].arm] = true
	}
	for seed := range uint64(8) {
		firstLeaders[plan(1, []string{result.Healthy5}, nil, seed)[0][0].leader] = true
	}
	require.Greater(t, len(firstArms), 1, "the arms of a pair are in random order")
	require.Greater(t, len(firstLeaders), 1, "the pairs are in random order")
}

func TestAShortPlanIsSmallAndComparesWithAndWithoutQuorate(t *testing.T) {
	for seed := range uint64(4) {
		groups := short(seed)
		require.Len(t, groups, 2)
		for i, name := range []string{result.Healthy3, result.OneDown} {
			require.Len(t, groups[i], 2)
			quorate := 0
			for _, p := range groups[i] {
				require.Equal(t, name, p.name)
				require.Equal(t, groups[i][0].leader, p.leader)
				if result.ArmOf(p.arm).Quorate {
					quorate++
				}
			}
			require.Equal(t, 1, quorate)
		}
	}
}

func TestEveryCaseHasASettingThatIsWhatTheReportSays(t *testing.T) {
	require.Len(t, settings, len(result.Cases))
	for _, c := range result.Cases {
		s, known := settings[c.Name]
		require.True(t, known, c.Name)
		require.Equal(t, c.Members, s.members, c.Name)
		require.Equal(t, c.Healthy || s.atOnce != nil && s.prepare == nil, s.everyLeader,
			"%s: every ordinal leads where the members are healthy until the template changes, and only there", c.Name)
		require.GreaterOrEqual(t, s.leader, 0, c.Name)
		require.Less(t, s.leader, s.members, c.Name)
		require.Positive(t, s.limit, c.Name)
		require.False(t, s.image != "" && s.sidecar != "", "%s: one image changes", c.Name)
		for i, name := range s.arms {
			require.Contains(t, arms, name, c.Name)
			require.NotContains(t, s.arms[:i], name, "%s: an arm is played once", c.Name)
		}
	}
	require.Len(t, arms, len(result.Arms))
	for _, a := range result.Arms {
		require.Contains(t, arms, a.Name)
	}
}

func TestAnArmIsWhatTheReportSays(t *testing.T) {
	const rolling, onDelete = appsv1.RollingUpdateStatefulSetStrategyType, appsv1.StatefulSetUpdateStrategyType("")
	for _, c := range []struct {
		arm     string
		members int
		want    harness.Spec
	}{
		{result.OrderedReady, 3, harness.Spec{Strategy: rolling, Ordered: true}},
		{result.Parallel, 3, harness.Spec{Strategy: rolling}},
		{result.MaxUnavailable, 3, harness.Spec{Strategy: rolling, RollingUnavailable: 1}},
		{result.MaxUnavailable, 4, harness.Spec{Strategy: rolling, RollingUnavailable: 1}},
		{result.MaxUnavailable, 5, harness.Spec{Strategy: rolling, RollingUnavailable: 2}},
		{result.MaxUnavailable, 7, harness.Spec{Strategy: rolling, RollingUnavailable: 3}},
		{result.Quorate, 3, harness.Spec{Strategy: onDelete}},
		{result.QuorateMax, 5, harness.Spec{Strategy: onDelete, SidecarArgs: []string{"--max-unavailable=2"}}},
		{result.QuorateMax, 7, harness.Spec{Strategy: onDelete, SidecarArgs: []string{"--max-unavailable=3"}}},
		{result.QuorateTwo, 7, harness.Spec{Strategy: onDelete, SidecarArgs: []string{"--max-unavailable=2"}}},
		{result.QuorateDelete, 3, harness.Spec{Strategy: onDelete, SidecarArgs: []string{"--removal=delete"}}},
	} {
		var got harness.Spec
		arms[c.arm].configure(&got, c.members)
		require.Equal(t, c.want, got, "%s with %d members", c.arm, c.members)
		require.Equal(t, c.want.RollingUnavailable > 0, arms[c.arm].gates[maxUnavailableGate],
			"%s: the feature gate is on where it is needed, and nowhere else", c.arm)
	}
}
