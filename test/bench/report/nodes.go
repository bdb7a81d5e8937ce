package report

import (
	"fmt"
	"math"

	"github.com/quorate/quorate/test/bench/result"
)

// split tells the trials on the agent's nodes from those on real ones. No figure is of both.
func split(run *result.Run) (agent *result.Run, real []result.Trial) {
	is := func(t result.Trial) bool { return t.Nodes == result.RealNodes }
	without := *run
	without.Trials = filter(run.Trials, func(t result.Trial) bool { return !is(t) })
	return &without, filter(run.Trials, is)
}

// whatRealNodesAre says what is in that table.
const whatRealNodesAre = `Each of these nodes has a kubelet and a container runtime. These trials are in no other
table, and count for no target.
`

// ended is how long a rollout took. One that did not come to its end has no ratio.
func ended(t result.Trial) Number {
	if !t.Completed {
		return Number(math.NaN())
	}
	return Number(t.Seconds)
}

// onRealNodes is the table of the trials on real nodes.
func onRealNodes(p *page, trials []result.Trial) {
	if len(trials) == 0 {
		return
	}
	p.head("On real nodes")
	p.line(whatRealNodesAre)
	var rows [][]string
	for _, row := range rowsOf(trials) {
		ratio := ""
		if row.Arm == result.Quorate {
			ratio = ratios(counted(in(trials, row.Case)), ended)
		}
		lost := none
		if row.Trials > 0 {
			lost = fmt.Sprint(row.Lost)
		}
		rows = append(rows, []string{
			result.CaseOf(row.Case).Title, result.ArmOf(row.Arm).Title,
			fmt.Sprintf("%d of %d", row.Completed, row.Trials), row.Rollout.with(1), ratio,
			quorumLost(row.WithoutQuorum), quorumLost(row.WriteStall.times(1000)), lost,
			row.Planned.counts() + " + " + row.Unplanned.counts(),
			atServer(counted(of(trials, row.Case, row.Arm)), audited),
		})
	}
	p.table(2, []string{"Case", "Arm", "completed", "rollout (s)", "paired ratio", "without quorum (s)",
		"longest write stall (ms)", "writes lost (sum)", "leader changes, planned + unplanned",
		"requests that the API server counts"}, rows)
	uncounted(p, trials)
}
