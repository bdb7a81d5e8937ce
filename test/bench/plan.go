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

// morePairs adds rounds of the cases that decide, with no other arms than [Paired], until each that is in the plan has
// so many pairs. A plan without one of these arms has no pairs, and gets none.
func morePairs(todo [][]planned, pairs, rounds int, seed uint64) [][]planned {
	in := func(name string) (n int) {
		for _, group := range todo {
			has := func(arm string) bool {
				return slices.ContainsFunc(group, func(p planned) bool { return p.arm == arm })
			}
			if group[0].name == name && has(Paired[0]) && has(Paired[1]) {
				n++
			}
		}
		return n
	}
	for round := rounds + 1; ; round++ {
		few := slices.DeleteFunc(slices.Clone(result.Deciding), func(name string) bool {
			return in(name) == 0 || in(name) >= pairs
		})
		if len(few) == 0 {
			return numbered(todo)
		}
		more := plan(1, few, Paired, seed+uint64(round))
		for _, group := range more {
			for i := range group {
				group[i].round = round
			}
		}
		todo = append(todo, more...)
	}
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
		return short(o.Seed), nil
	}
	todo = morePairs(todo, o.Pairs, o.Rounds, o.Seed)
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
