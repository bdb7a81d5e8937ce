package report

import (
	"fmt"
	"math"
	"slices"

	"github.com/quorate/quorate/test/bench/result"
)

// Number is a figure that may be infinite: what never happened took for ever.
type Number float64

// never is the time of what did not happen while it was watched.
var never = Number(math.Inf(1))

// Spread is what several repetitions gave. The spread is from the least to the most of them:
// there are too few for quartiles, and nothing is left out.
type Spread struct {
	// N is the number of values; with 0 the rest means nothing.
	N                   int
	Median, Least, Most Number
}

// spreadOf returns the spread of the values. An even number of them has the mean of the two in
// the middle as its median; if one of these is never, so is the median.
func spreadOf(values []Number) Spread {
	if len(values) == 0 {
		return Spread{}
	}
	sorted := slices.Sorted(slices.Values(values))
	n := len(sorted)
	return Spread{N: n, Median: (sorted[(n-1)/2] + sorted[n/2]) / 2, Least: sorted[0], Most: sorted[n-1]}
}

// spread returns the spread of a figure of every item.
func spread[T any](items []T, figure func(T) Number) Spread {
	var values []Number
	for _, item := range items {
		values = append(values, figure(item))
	}
	return spreadOf(values)
}

// together is what trials of two arms have in common to be compared with each other: they
// were run close to one another in time, and began alike.
type together struct {
	Round  int
	Case   string
	Leader int
}

// togetherOf is that of a trial. Only in a healthy case is the leader one that was chosen: where
// members are down it is what was seen last.
func togetherOf(t result.Trial) together {
	if !result.CaseOf(t.Case).Healthy {
		t.Leader = 0
	}
	return together{t.Round, t.Case, t.Leader}
}

// paired returns the ratios of a figure of one arm's trials to that of the other arm's, pair by
// pair. What an arm never reached is for ever; a pair of which both never did, or both need
// nothing, has no ratio.
func paired(trials []result.Trial, arm, base string, figure func(result.Trial) Number) []Number {
	bases := map[together]Number{}
	for _, t := range trials {
		if t.Arm == base {
			bases[togetherOf(t)] = figure(t)
		}
	}
	var ratios []Number
	for _, t := range trials {
		b, found := bases[togetherOf(t)]
		if t.Arm != arm || !found {
			continue
		}
		if ratio := figure(t) / b; !math.IsNaN(float64(ratio)) {
			ratios = append(ratios, ratio)
		}
	}
	return ratios
}

// decimals are how many digits a number of that size needs behind the point: three figures in
// all, or none where it is 0 or large.
func decimals(values ...Number) int {
	most := Number(0)
	for _, v := range values {
		if v != never {
			most = max(most, v)
		}
	}
	switch {
	case most == 0 || most >= 100:
		return 0
	case most >= 10:
		return 1
	case most >= 1:
		return 2
	}
	return 3
}

// written returns a number with that many digits behind the point.
func written(n Number, digits int) string {
	if n == never {
		return "never"
	}
	return fmt.Sprintf("%.*f", digits, float64(n))
}

// String returns the median and, where they differ, the least and the most.
func (s Spread) String() string { return s.with(decimals(s.Median, s.Least, s.Most)) }

// with is [Spread.String] with that many digits behind the point.
func (s Spread) with(digits int) string {
	switch {
	case s.N == 0:
		return "–"
	case s.Least == s.Most:
		return written(s.Median, digits)
	}
	return fmt.Sprintf("%s (%s–%s)", written(s.Median, digits), written(s.Least, digits), written(s.Most, digits))
}

// counts is [Spread.String] for whole numbers; their median may lie between two of them.
func (s Spread) counts() string {
	if s.Median != never && s.Median != Number(math.Trunc(float64(s.Median))) {
		return fmt.Sprintf("%s (%s–%s)", written(s.Median, 1), written(s.Least, 0), written(s.Most, 0))
	}
	return s.with(0)
}

// in is [Spread.String] with a unit, which never has none of.
func (s Spread) in(unit string) string {
	if s.Least == never {
		return s.String()
	}
	return s.String() + " " + unit
}

// times returns the spread in another unit.
func (s Spread) times(factor Number) Spread {
	return Spread{N: s.N, Median: s.Median * factor, Least: s.Least * factor, Most: s.Most * factor}
}

// plural returns "1 pair" or "2 pairs".
func plural(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}
