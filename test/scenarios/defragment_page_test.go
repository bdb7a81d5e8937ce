package scenarios

import (
	"fmt"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/quorate/quorate/test/harness"
)

// measurement is what was measured with databases of one size.
type measurement struct {
	mebibytes int
	spells    []spell
}

var (
	ways  = []way{nobody, byHost, byQuorate}
	kinds = []string{atLeader, atFollowers, atAll}
)

// defragmentPage is docs/benchmarks/defragment.md.
func defragmentPage(all []measurement) string {
	var b strings.Builder
	fmt.Fprintf(&b, `# What a defragmentation costs

Written by `+"`make measure-defragment`"+` on %s, on %d cores, with %s. Everything on this page is of that one
run. [How it is measured, and what it says](../benchmarks.md#what-a-defragmentation-costs) is on another page.

Figures are medians of rounds, with the least and the most. In each round, all three ways are measured on the same
cluster, one after the other. A ratio is Quorate's figure by that of etcd-backup-restore in the same round, and then
the median of the rounds. Times are in seconds.
`, time.Now().UTC().Format(time.DateOnly), runtime.NumCPU(), strings.Replace(harness.Etcd35, ":", " ", 1))
	for _, m := range all {
		fmt.Fprintf(&b, "\n## Databases of %d MiB, half of it free\n\n", m.mebibytes)
		fmt.Fprintf(&b, "| | nobody | etcd-backup-restore | Quorate | ratio |\n|---|---:|---:|---:|---:|\n")
		for _, kind := range kinds {
			m.row(&b, "longest write stall, client "+kind, func(p spell) float64 { return p.stalls[kind] })
		}
		for _, kind := range kinds {
			of := leasesEach
			if kind == atFollowers {
				of *= 2
			}
			m.row(&b, fmt.Sprintf("leases lost, of %d, client %s", of, kind),
				func(p spell) float64 { return float64(p.lost[kind]) })
		}
		m.row(&b, "a member was away for, at the longest", func(p spell) float64 { return longest(p, false) })
		m.row(&b, "of which while it led", func(p spell) float64 { return longest(p, true) })
		m.row(&b, "changes of leader", func(p spell) float64 { return float64(p.changes) })
		m.row(&b, "until all was done", func(p spell) float64 { return p.seconds })
		fmt.Fprint(&b, "\nEach round. Stalls and leases lost are in the order of the rows above; * led meanwhile:\n\n"+
			"| round | way | load before | away | stalls | leases lost |\n|---:|---|---:|---|---|---|\n")
		for _, p := range m.spells {
			fmt.Fprintf(&b, "| %d | %s | %s | %s | %s | %s |\n", p.round, p.way, p.load, p.awayText(),
				list("%.2f", kinds, func(kind string) any { return p.stalls[kind] }),
				list("%d", kinds, func(kind string) any { return p.lost[kind] }))
		}
	}
	return b.String()
}

// row is one figure of all ways.
func (m measurement) row(b *strings.Builder, name string, figure func(spell) float64) {
	fmt.Fprintf(b, "| %s |", name)
	for _, by := range ways {
		fmt.Fprintf(b, " %s |", spread(m.of(by, figure)))
	}
	ratio := "–"
	if ratios := ratios(m.of(byQuorate, figure), m.of(byHost, figure)); len(ratios) > 0 {
		ratio = spread(ratios)
	}
	fmt.Fprintf(b, " %s |\n", ratio)
}

// of are the figures of one way, round by round.
func (m measurement) of(by way, figure func(spell) float64) (all []float64) {
	for _, p := range m.spells {
		if p.way == by {
			all = append(all, figure(p))
		}
	}
	return all
}

// ratios are those of the rounds. Nothing has no ratio to anything.
func ratios(those, bases []float64) (all []float64) {
	for i, base := range bases {
		if base == 0 || those[i] == 0 {
			return nil
		}
		all = append(all, those[i]/base)
	}
	return all
}

// spread is the median, and the least and the most where they differ.
func spread(values []float64) string {
	if len(values) == 0 {
		return "–"
	}
	sorted := slices.Sorted(slices.Values(values))
	n := len(sorted)
	least, median, most := number(sorted[0]), number((sorted[(n-1)/2]+sorted[n/2])/2), number(sorted[n-1])
	if least == most {
		return median
	}
	return fmt.Sprintf("%s (%s–%s)", median, least, most)
}

// number has no more digits than mean something.
func number(v float64) string {
	switch {
	case v == float64(int(v)), v >= 100:
		return fmt.Sprintf("%.0f", v)
	case v >= 10:
		return fmt.Sprintf("%.1f", v)
	}
	return fmt.Sprintf("%.2f", v)
}

// longest is how long a member was away at the longest, or did so while it led.
func longest(p spell, led bool) (most float64) {
	for _, a := range p.away {
		if a.led || !led {
			most = max(most, a.seconds)
		}
	}
	return most
}

func (p spell) awayText() string {
	if len(p.away) == 0 {
		return "–"
	}
	return list("%s", p.away, func(a away) any {
		return fmt.Sprintf("%.2f%s", a.seconds, map[bool]string{true: "*"}[a.led])
	})
}

func list[T any](format string, items []T, of func(T) any) string {
	texts := make([]string, 0, len(items))
	for _, item := range items {
		texts = append(texts, fmt.Sprintf(format, of(item)))
	}
	return strings.Join(texts, ", ")
}

func TestThePageComparesWhatWasMeasuredInOneRound(t *testing.T) {
	of := func(round int, by way, stall, gone float64, lost int) spell {
		return spell{round: round, way: by, load: "0.50",
			away:   []away{{"main-1", gone, false}, {"main-0", gone, by == byHost}},
			stalls: map[string]float64{atLeader: stall}, lost: map[string]int{atAll: lost}}
	}
	page := defragmentPage([]measurement{{256, []spell{
		of(1, byHost, 2, 10, 20), of(1, byQuorate, 1, 5, 0), of(2, byQuorate, 12, 40, 0), of(2, byHost, 8, 20, 0),
		of(3, byHost, 4, 10, 20), of(3, byQuorate, 4, 10, 0),
	}}})
	for _, line := range []string{
		"| longest write stall, client of the member that leads at first | – | 4 (2–8) | 4 (1–12) | 1 (0.50–1.50) |",
		"| leases lost, of 20, client of all members | – | 20 (0–20) | 0 | – |",
		"| of which while it led | – | 10 (10–20) | 0 | – |",
		"| 1 | etcd-backup-restore | 0.50 | 10.00, 10.00* | 2.00, 0.00, 0.00 | 0, 0, 20 |",
	} {
		require.Contains(t, page, line)
	}
}
