package bench

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/quorate/quorate/test/bench/result"
)

// What a trial takes beside its rollout and what its case prepares: its cluster starts, clients write before and after,
// and the cluster goes. It has its share of the start of nodes too. A rollout lasts about half as long again on real
// nodes.
const (
	around     = 8 * time.Second
	aroundReal = 20 * time.Second
	longerReal = 1.5
)

// Estimate says how many trials are planned, and about how long they take.
func Estimate(o Options) (string, error) {
	todo, err := o.plan()
	if err != nil {
		return "", err
	}
	return o.estimate(todo), nil
}

func (o Options) estimate(todo [][]planned) string {
	var takes time.Duration
	n := 0
	for _, turn := range turns(todo, o.Lanes) {
		for _, p := range slices.Concat(turn.groups...) {
			takes += o.takes(p) / time.Duration(turn.lanes)
			n++
		}
	}
	return fmt.Sprintf("%d trials are planned; they take about %v", n, takes.Round(time.Minute))
}

// takes is about how long a trial takes, by what the same has taken: by the same arm in the same case, or whichever in
// that case, or else the trial's limit.
func (o Options) takes(p planned) time.Duration {
	alike := func(same func(result.Trial) bool) time.Duration {
		var all []time.Duration
		for _, t := range o.Published {
			if t.Case == p.name && t.Trouble == "" && same(t) {
				all = append(all, o.took(t, p))
			}
		}
		slices.Sort(all)
		return result.Quantile(all, 50)
	}
	nodes := ""
	if o.RealNodes {
		nodes = result.RealNodes
	}
	return cmp.Or(
		alike(func(t result.Trial) bool { return t.Arm == p.arm && t.Nodes == nodes }),
		alike(func(t result.Trial) bool { return t.Arm == p.arm }),
		alike(func(result.Trial) bool { return true }),
		around+p.setting.preparing+p.setting.idles+p.setting.limit)
}

// took is how long a trial took, or would have taken on these nodes.
func (o Options) took(t result.Trial, p planned) time.Duration {
	here := o.RealNodes == (t.Nodes == result.RealNodes)
	if here && t.Took > 0 {
		return seconds(t.Took)
	}
	beside := p.setting.preparing + p.setting.idles
	if o.RealNodes {
		return seconds(longerReal*t.Seconds) + beside + aroundReal
	}
	return seconds(t.Seconds) + beside + around
}

func seconds(s float64) time.Duration { return time.Duration(s * float64(time.Second)) }
