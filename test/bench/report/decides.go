package report

import (
	"fmt"
	"math"
	"slices"

	"github.com/quorate/quorate/test/bench/result"
)

// other is the arm that Quorate is compared with: the only one of Kubernetes' own that is in all cases that decide.
const other = result.Parallel

// howChangesAreTold says what belongs to a change of leader.
const howChangesAreTold = `A change of leader counts with what clients saw within %g s of it. A write is refused if
another member had to be asked, and fails if none acknowledged it. The API server counts in its audit log what the
sidecars and the StatefulSet controller ask, from the change of the template until a second after the last pod is Ready.
`

// decides is what a user weighs, in two tables: what RollingUpdate does in the same round, and what Quorate costs.
func decides(p *page, run *result.Run) {
	p.head("What decides")
	var rows [][]string
	for _, name := range result.Deciding {
		rows = append(rows, comparedIn(counted(in(run.Trials, name)), fmt.Sprintf("%d members: ",
			result.CaseOf(name).Members))...)
	}
	all := filter(counted(run.Trials), func(t result.Trial) bool { return !slices.Contains(unavoidable(), t.Case) })
	rows = append(rows, []string{"All cases that do not take quorum themselves: trials that lost it",
		lostQuorum(all, other), lostQuorum(all, result.Quorate), ""})
	p.table(1, []string{"", result.ArmOf(other).Title, result.ArmOf(result.Quorate).Title, "paired ratio"}, rows)
	p.line(howChangesAreTold, result.Beside)
	p.table(1, []string{"Quorate alone", "", "beside it"}, alone(run))
}

// unavoidable are the cases that take quorum away, or the members that it needs.
func unavoidable() (names []string) {
	for _, n := range needs {
		names = append(names, n.name)
	}
	return append(names, result.SecondFails)
}

// lostQuorum says how many trials of an arm were without quorum at some time.
func lostQuorum(trials []result.Trial, arm string) string {
	those := filter(trials, func(t result.Trial) bool { return t.Arm == arm })
	lost := filter(those, func(t result.Trial) bool { return withoutQuorum(t) > 0 })
	return share(len(lost), len(those))
}

// share is so many of so many, or nothing where there are none.
func share(part, all int) string {
	if all == 0 {
		return none
	}
	return fmt.Sprintf("%d of %s", part, grouped(all))
}

// comparedIn are the rows of one case.
func comparedIn(trials []result.Trial, title string) (rows [][]string) {
	row := func(what string, tell func([]result.Trial) string, figure func(result.Trial) Number) {
		cells := []string{title + what}
		for _, arm := range []string{other, result.Quorate} {
			cells = append(cells, tell(filter(trials, func(t result.Trial) bool { return t.Arm == arm })))
		}
		ratio := ""
		if figure != nil {
			ratio = ratios(trials, figure)
		}
		rows = append(rows, append(cells, ratio))
	}
	each := func(figure func(result.Change) Number, tell func(Spread) string) func([]result.Trial) string {
		return func(those []result.Trial) string {
			var all []result.Change
			for _, t := range those {
				all = append(all, t.Changes...)
			}
			return tell(spread(all, figure))
		}
	}
	stall := func(c result.Change) Number { return Number(c.ReadStall) }
	row("whole rollout (s)", func(those []result.Trial) string {
		s := spread(those, rollout)
		if s.N == 0 {
			return none
		}
		return fmt.Sprintf("%s; the slowest of %d: %s", written(s.Median, 1), s.N, written(s.Most, 1))
	}, rollout)
	row("acknowledged writes lost", func(those []result.Trial) string {
		lost, all := 0, 0
		for _, t := range those {
			lost, all = lost+t.Lost, all+t.Writes
		}
		return share(lost, all)
	}, nil)
	row("changes of leader", func(those []result.Trial) string { return spread(those, changes).counts() }, changes)
	row("writes refused at a change of leader",
		each(func(c result.Change) Number { return Number(c.Retried) }, Spread.counts), nil)
	row("of them, failed", each(func(c result.Change) Number { return Number(c.Failed) }, Spread.counts), nil)
	row("longest stall of linearizable reads at a change of leader (ms)", each(stall, func(s Spread) string {
		return s.times(1000).with(0)
	}), func(t result.Trial) Number { return longestOf(t, stall) })
	row("without quorum (s)", func(those []result.Trial) string {
		return quorumLost(spread(those, withoutQuorum))
	}, nil)
	row("requests that the API server counts", func(those []result.Trial) string {
		return atServer(those, audited)
	}, audited)
	row("of them, by the sidecars", func(those []result.Trial) string {
		return atServer(those, func(t result.Trial) Number { return Number(sum(t.Audited.Sidecars)) })
	}, nil)
	return rows
}

// ratios are those of Quorate's figure to the other arm's, pair by pair; empty without any pair.
func ratios(trials []result.Trial, figure func(result.Trial) Number) string {
	s := spreadOf(paired(trials, result.Quorate, other, figure))
	if s.N == 0 {
		return ""
	}
	return fmt.Sprintf("%s (%s)", s.with(2), plural(s.N, "pair"))
}

// audited is how many requests the API server has counted. A trial that does not tell has no such number, and no ratio.
func audited(t result.Trial) Number {
	if t.Audited == nil {
		return Number(math.NaN())
	}
	return Number(sum(t.Audited.Sidecars) + sum(t.Audited.Controller))
}

// atServer is a figure of the trials in which the API server counted.
func atServer(trials []result.Trial, figure func(result.Trial) Number) string {
	return spread(filter(trials, func(t result.Trial) bool { return t.Audited != nil }), figure).counts()
}

// longestOf is the most of a figure of the trial's changes of leader. A trial without any has none.
func longestOf(t result.Trial, figure func(result.Change) Number) (most Number) {
	for _, c := range t.Changes {
		most = max(most, figure(c))
	}
	return most
}

// alone are the rows of what Quorate costs.
func alone(run *result.Run) (rows [][]string) {
	for _, name := range []string{result.Quiet, result.Quiet30, result.Quiet120} {
		trials := filter(counted(of(run.Trials, name, result.Quorate)),
			func(t result.Trial) bool { return len(t.Requests) > 0 })
		s := spread(trials, func(t result.Trial) Number { return steps(t.Requests) })
		text, fresh := none, ""
		if s.N > 0 {
			text, fresh = s.counts(), renewals(trials).counts()+" more keep the record fresh"
		}
		what := "Requests of a rollout, counted before the API server: " + result.CaseOf(name).Title
		rows = append(rows, []string{what, text, fresh})
	}
	rows = append(rows, largestFleet(run.Fleets)...)
	waiters := filter(run.Idle, func(i result.Idle) bool { return i.Role == waiter })
	owners := filter(run.Idle, func(i result.Idle) bool { return i.Role != waiter })
	for _, c := range []struct {
		what   string
		figure func(result.Idle) Number
		tell   func(Spread) string
	}{
		{"requests to Kubernetes a minute", func(i result.Idle) Number { return Number(sum(i.Kubernetes)) },
			Spread.String},
		{"open watches", func(i result.Idle) Number { return Number(i.Watches) }, Spread.counts},
		{"processor time (% of a core)", func(i result.Idle) Number { return Number(i.CPUPercent) }, Spread.String},
		{"anonymous memory (MiB)", func(i result.Idle) Number { return Number(i.Usage.Anonymous) }, Spread.String},
	} {
		beside := ""
		if s := spread(waiters, c.figure); s.N > 0 {
			beside = "a sidecar that waits: " + c.tell(s)
		}
		rows = append(rows, []string{"Idle, owner of the lock: " + c.what, c.tell(spread(owners, c.figure)), beside})
	}
	received := none
	if len(run.Idle) > 0 {
		received = spread(run.Idle, func(i result.Idle) Number { return Number(sum(i.Etcd)) }).with(0)
	}
	return append(rows, []string{"Idle: requests that etcd's members receive, a minute", received, ""})
}

// largestFleet are the rows of the fleet with the most clusters, beside a central controller on the same one.
func largestFleet(all []result.Fleet) [][]string {
	what := []string{"requests of a rollout", "from a cluster's change until it is done: median, the last (s)",
		"open watches"}
	fleets := rolledFleets(all)
	if len(fleets) == 0 {
		return [][]string{{"A fleet", none, ""}}
	}
	largest := slices.MaxFunc(fleets, func(a, b result.Fleet) int { return a.Clusters - b.Clusters })
	figures := func(f result.Fleet) []string {
		return []string{written(steps(f.Requests)/clustersOf(f), 1), done(f), grouped(f.Watches)}
	}
	var beside []string
	for _, f := range centrals(all) {
		if f.Clusters == largest.Clusters && f.Over == largest.Over && f.Machine == largest.Machine {
			beside = figures(f)
		}
	}
	var rows [][]string
	for i, text := range figures(largest) {
		row := []string{fmt.Sprintf("A fleet of %s: %s", grouped(largest.Clusters), what[i]), text, ""}
		if beside != nil {
			row[2] = "a central controller: " + beside[i]
		}
		rows = append(rows, row)
	}
	return rows
}

// done says when the clusters of a fleet were rolled.
func done(f result.Fleet) string {
	return written(Number(f.Done.Median), 1) + ", " + written(Number(f.Done.Most), 1)
}

// costs are the tables of what sidecars need inside of their host, and of the fleets.
func costs(p *page, run *result.Run) {
	if len(run.Hosts) > 0 {
		p.head("Inside etcd-backup-restore")
		var rows [][]string
		for _, h := range run.Hosts {
			rows = append(rows, []string{h.Program, h.When, written(Number(h.Seconds), 0), mib(h.Usage.Anonymous),
				mib(h.Usage.Resident), spreadOf([]Number{Number(h.Usage.CPUSeconds)}).String(),
				grouped(sum(h.Kubernetes)), fmt.Sprint(h.Kubernetes[result.Renewal]),
				grouped(int(h.Bytes / 1024)), grouped(sum(h.Etcd))})
		}
		p.table(2, []string{"Sidecar", "when", "watched for (s)", "anonymous memory (MiB)", "resident (MiB)", "CPU (s)",
			"Kubernetes requests", "of them, to keep the record fresh", "KiB", "etcd requests"}, rows)
	}
	if len(run.Fleets) == 0 {
		return
	}
	p.head("Fleets")
	var rows [][]string
	for _, f := range run.Fleets {
		who := map[string]string{fleetQuorate: "Quorate", fleetCentral: "a central controller"}[f.Arm]
		if f.Release != "" {
			who += " of `" + f.Release + "`"
		}
		change := "at once"
		if f.Over > 0 {
			change = fmt.Sprintf("over %.0f s", f.Over)
		}
		a := func(n Number) string { return written(n/max(1, clustersOf(f)), 1) }
		rows = append(rows, []string{who, grouped(f.Clusters), change, grouped(f.Watches),
			a(Number(f.MemoryMiB-f.BaseMiB) * 1024), a(steps(f.Requests)), a(Number(f.Requests[result.Renewal])),
			a(Number(f.Bytes) / 1024), done(f)})
	}
	p.table(1, []string{"Who rolls", "clusters", "templates change", "open watches",
		"memory of a cluster, idle (KiB)", "requests of a cluster's rollout", "to keep the record fresh", "KiB",
		"done: median, the last (s)"}, rows)
}

func mib(v float64) string { return written(Number(v), 1) }
