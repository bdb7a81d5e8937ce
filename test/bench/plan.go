package bench

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"slices"

	"github.com/quorate/quorate/test/bench/result"
)

// planned is a trial to be done.
type planned struct {
	name     string
	setting  setting
	arm      string
	leader   int
	round    int
	position int
}

// plan is what a run does, in its order: round after round, in each the cases and leaders in
// random order, and for each a group of pairs, the arms in random order. Nil for cases or arms
// means all.
func plan(rounds int, cases, arms []string, seed uint64) [][]planned {
	dice := rand.New(rand.NewPCG(seed, 0))
	var all [][]planned
	for round := 1; round <= rounds; round++ {
		var groups [][]planned
		for _, c := range result.Cases {
			s, known := settings[c.Name]
			if !known || (cases != nil && !slices.Contains(cases, c.Name)) || round > cmp.Or(s.rounds, rounds) {
				continue
			}
			leaders := []int{s.leader}
			if s.everyLeader {
				leaders = nil
				for n := range s.members {
					leaders = append(leaders, n)
				}
			}
			for _, leader := range leaders {
				var group []planned
				for _, arm := range s.arms {
					if arms == nil || slices.Contains(arms, arm) {
						group = append(group, planned{name: c.Name, setting: s, arm: arm, leader: leader, round: round})
					}
				}
				dice.Shuffle(len(group), func(i, j int) { group[i], group[j] = group[j], group[i] })
				if len(group) > 0 {
					groups = append(groups, group)
				}
			}
		}
		dice.Shuffle(len(groups), func(i, j int) { groups[i], groups[j] = groups[j], groups[i] })
		all = append(all, groups...)
	}
	return numbered(all)
}

// numbered gives the trials their positions.
func numbered(groups [][]planned) [][]planned {
	n := 0
	for _, group := range groups {
		for i := range group {
			n++
			group[i].position = n
		}
	}
	return groups
}

// plan is what is to be done. It is an error if that is nothing.
func (o Options) plan() ([][]planned, error) {
	cases, by := o.Cases, o.Arms
	if o.RealNodes && cases == nil {
		cases = Core
	}
	if o.RealNodes && by == nil {
		by = Paired
	}
	todo := plan(o.Rounds, cases, by, o.Seed)
	if o.Short {
		todo = short(o.Seed)
	}
	if len(todo) == 0 {
		return nil, fmt.Errorf("no trial matches cases %q and arms %q; the cases are %q, the arms %q", o.Cases, o.Arms,
			result.CaseNames(), result.ArmNames())
	}
	return todo, nil
}

// short is the plan that only shows that everything works.
func short(seed uint64) [][]planned {
	healthy := plan(1, []string{result.Healthy3}, []string{result.OrderedReady, result.Quorate}, seed)[:1]
	return numbered(slices.Concat(healthy,
		plan(1, []string{result.OneDown}, []string{result.Parallel, result.Quorate}, seed)))
}
