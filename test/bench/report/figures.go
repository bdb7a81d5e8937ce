package report

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/quorate/quorate/test/bench/result"
)

// figure returns what stands in the documents at a mark of that name. It is empty where the run has no such figure,
// and known is false where no run has one. Times and numbers of trials are medians.
//
// The names are those of named, and CASE/ARM/FIGURE, fleet/ARM/FIGURE and idle/ROLE/FIGURE, of which the maps below
// have the last parts. A fleet is the largest one of its arm.
func (r *Report) figure(name string) (text string, known bool) {
	if figure, ok := named[name]; ok {
		return figure(r), true
	}
	parts := strings.Split(name, "/")
	if len(parts) != 3 {
		return "", false
	}
	group, which, what := parts[0], parts[1], parts[2]
	switch group {
	case "fleet":
		figure, ok := ofFleet[what]
		if !ok || which != fleetQuorate && which != fleetCentral {
			return "", false
		}
		if f, found := largest(r.Run.Fleets, which); found {
			text = figure(f)
		}
	case "idle":
		figure, ok := ofIdle[what]
		if !ok || which != holder && which != waiter {
			return "", false
		}
		text = middle(spread(r.idle(which), figure.of), figure.digits)
	default:
		figure, ok := ofRow[what]
		if !ok || !slices.Contains(result.CaseNames(), group) || !slices.Contains(result.ArmNames(), which) {
			return "", false
		}
		if row := rowFor(r.Rows, group, which); row != nil && row.Trials > 0 {
			text = figure(row, counted(of(r.Run.Trials, group, which)))
		}
	}
	return text, true
}

// named are the figures that have no parts.
var named = map[string]func(*Report) string{
	"run/date":   func(r *Report) string { return r.Run.Header.Began.UTC().Format("2 January 2006") },
	"run/cores":  func(r *Report) string { return plural(r.Run.Header.Cores, "core") },
	"run/trials": func(r *Report) string { return plural(len(r.Run.Trials), "trial") },
	"run/rounds": func(r *Report) string { return plural(rounds(r.Run.Trials), "round") },
	"run/cases":  func(r *Report) string { return plural(len(casesOf(r.Run.Trials)), "case") },

	"targets": func(r *Report) string {
		number := tally(r.Targets)
		text := fmt.Sprintf("%d of %s reached", number[Reached], plural(len(r.Targets), "target"))
		for _, v := range []Verdict{NotReached, NotMeasured} {
			if number[v] > 0 {
				text += fmt.Sprintf(", %d %s", number[v], v)
			}
		}
		return text
	},
	"targets/missed": func(r *Report) string {
		if lines := missed(r.Targets); lines != nil {
			return strings.Join(lines, "\n")
		}
		return "* None: nothing that was measured misses its target."
	},

	// What the median pod of a healthy cluster of three takes to come back.
	"restart": func(r *Report) string { return middle(restarts(r.Run.Trials), 1) },

	"healthy/quorate/changes":  func(r *Report) string { return r.healthy(true, changes) },
	"healthy/quorate/timeouts": func(r *Report) string { return r.healthy(true, unplanned) },
	"healthy/rolling/changes":  func(r *Report) string { return r.healthy(false, changes) },
	"healthy/rolling/timeouts": func(r *Report) string { return r.healthy(false, unplanned) },
	// Those in which a write stalled until its client's deadline.
	"healthy/rolling/stalled": func(r *Report) string {
		return r.stalled(func(a result.Arm) bool { return !a.Quorate })
	},
	"healthy/quorate/stalled": func(r *Report) string {
		return r.stalled(func(a result.Arm) bool { return a.Quorate && a.OneAtATime })
	},
	"healthy/several/stalled": func(r *Report) string {
		return r.stalled(func(a result.Arm) bool { return a.Quorate && !a.OneAtATime })
	},

	"embedded/idle": func(r *Report) string { return middle(spread(whenIdle(r.Run.Embedded), more), 1) },

	"idle/etcd":  etcdTable,
	"idle/looks": looks,
}

// ofRow are the figures of an arm in a case.
var ofRow = map[string]func(*Row, []result.Trial) string{
	"without-quorum": func(row *Row, _ []result.Trial) string {
		text := forGood(middle(row.WithoutQuorum, 1))
		if text == "0" && row.Completed == 0 {
			text += ", never updated"
		}
		return text
	},
	// It completes "is without quorum …".
	"quorum-lost": func(row *Row, _ []result.Trial) string {
		switch text := forGood(middle(row.WithoutQuorum, 1)); text {
		case "0":
			return "not at all"
		case "for good":
			return text
		default:
			return "for " + text + " s"
		}
	},
	"write-stall": func(row *Row, _ []result.Trial) string { return forGood(middle(row.WriteStall.times(1000), 0)) },
	"completed": func(row *Row, _ []result.Trial) string {
		return fmt.Sprintf("%d of %d", row.Completed, row.Trials)
	},
	"rollout":      func(row *Row, _ []result.Trial) string { return middle(row.Rollout, 1) },
	"ratio":        func(row *Row, _ []result.Trial) string { return middle(row.Ratio, 3) },
	"beyond":       func(row *Row, _ []result.Trial) string { return middle(row.Beyond, 2) },
	"first-action": func(row *Row, _ []result.Trial) string { return middle(row.FirstAction, 2) },
	// That of the slowest trial.
	"slowest-first-action": func(row *Row, _ []result.Trial) string { return highest(row.FirstAction) },
	// The pod that took longest to come back, of all trials.
	"longest-down": func(_ *Row, trials []result.Trial) string { return highest(removalsOf(trials, downs)) },
	// The gaps of a rollout: behind its first pod, before its last one, and those between.
	"first-gap": func(_ *Row, trials []result.Trial) string {
		return middle(gapsAt(trials, func(i, _ int) bool { return i == 0 }), 2)
	},
	"last-gap": func(_ *Row, trials []result.Trial) string {
		return middle(gapsAt(trials, func(i, n int) bool { return i > 0 && i == n-1 }), 2)
	},
	"other-gaps": func(_ *Row, trials []result.Trial) string {
		return middle(gapsAt(trials, func(i, n int) bool { return i > 0 && i < n-1 }), 2)
	},
	"budget-wait": func(row *Row, _ []result.Trial) string { return middle(row.BudgetWait, 2) },
	// Milliseconds.
	"own-gap": func(row *Row, _ []result.Trial) string { return middle(row.OwnGap.times(1000), 0) },
	// The requests beside those that only keep the record fresh, where these were told apart.
	"steps": func(_ *Row, trials []result.Trial) string {
		trials = filter(trials, func(t result.Trial) bool { return t.Bytes > 0 })
		return middle(spread(trials, func(t result.Trial) Number { return steps(t.Requests) }), 0)
	},
	"renewals": func(row *Row, _ []result.Trial) string { return middle(row.Renewals, 0) },
	"mib":      func(row *Row, _ []result.Trial) string { return middle(row.KiB.times(1.0/1024), 2) },
}

var ofFleet = map[string]func(result.Fleet) string{
	"clusters":      func(f result.Fleet) string { return grouped(f.Clusters) },
	"idle-requests": func(f result.Fleet) string { return grouped(sum(f.IdleRequests)) },
	"watches":       func(f result.Fleet) string { return grouped(f.Watches) },
	"watches-each":  func(f result.Fleet) string { return three(Number(f.Watches) / clustersOf(f)) },
	"requests":      func(f result.Fleet) string { return three(Number(sum(f.Requests)) / Number(f.Rolled)) },
	"steps":         func(f result.Fleet) string { return written(steps(f.Requests)/Number(f.Rolled), 1) },
	"renewals": func(f result.Fleet) string {
		return written(Number(f.Requests[result.Renewal])/Number(f.Rolled), 1)
	},
	"done":     func(f result.Fleet) string { return three(Number(f.Done.Median)) },
	"done-all": func(f result.Fleet) string { return three(Number(f.Done.Most)) },
}

const (
	holder = "holder"
	waiter = "waiter"
)

var ofIdle = map[string]struct {
	of     func(result.Idle) Number
	digits int
}{
	"requests": {func(i result.Idle) Number { return Number(sum(i.Kubernetes)) }, 1},
	"watches":  {func(i result.Idle) Number { return Number(i.Watches) }, 0},
	"cpu":      {func(i result.Idle) Number { return Number(i.CPUPercent) }, 2},
	"memory":   {func(i result.Idle) Number { return Number(i.Usage.Anonymous) }, 1},
}

// longIdle is for how many seconds a sidecar has to be watched so that its few requests a minute can be told. Runs
// from before the looks were made once a minute watched for less.
const longIdle = 290

// idle are the sidecars of that role that were watched for long.
func (r *Report) idle(role string) []result.Idle {
	return filter(r.Run.Idle, func(i result.Idle) bool { return i.Role == role && i.Seconds >= longIdle })
}

// etcdTable is what members receive from all sidecars together while nothing is to do.
func etcdTable(r *Report) string {
	holders := r.idle(holder)
	if len(holders) == 0 {
		return ""
	}
	received := holders[0].Etcd
	var rows [][]string
	for _, kind := range slices.Sorted(maps.Keys(received)) {
		rows = append(rows, []string{"`" + kind + "`", three(Number(received[kind]))})
	}
	p := &page{}
	p.table(1, []string{"what all members receive together, from all sidecars", "a minute"},
		append(rows, []string{"in all", three(Number(sum(received)))}))
	return strings.TrimSpace(p.String())
}

// looks is how many of these requests a minute are the looks of the lock's owner: all for a status, one read of each
// member, and all for the list but the one a minute of each other sidecar.
func looks(r *Report) string {
	holders := r.idle(holder)
	if len(holders) == 0 {
		return ""
	}
	received, members := holders[0].Etcd, float64(holders[0].Members)
	return middle(spreadOf([]Number{Number(received["Maintenance/Status"] + members +
		received["Cluster/MemberList"] - (members - 1))}), 0)
}

// whereHealthy are the trials of healthy cases by such arms.
func (r *Report) whereHealthy(such func(result.Arm) bool) []result.Trial {
	return filter(counted(r.Run.Trials), func(t result.Trial) bool {
		return result.CaseOf(t.Case).Healthy && slices.Contains(result.ArmNames(), t.Arm) && such(result.ArmOf(t.Arm))
	})
}

// clientsDeadline is for how many seconds a client waits for an answer before it tries the next member.
const clientsDeadline = 1

// stalled is in how many healthy trials a write waited for that long.
func (r *Report) stalled(such func(result.Arm) bool) string {
	trials := r.whereHealthy(such)
	if len(trials) == 0 {
		return ""
	}
	stalled := filter(trials, func(t result.Trial) bool { return writeStall(t) >= clientsDeadline })
	return fmt.Sprintf("%d of %d", len(stalled), len(trials))
}

// healthy is a number of the healthy cases' trials, from the least to the most, of all of Quorate's arms or all of
// Kubernetes' own.
func (r *Report) healthy(quorate bool, figure func(result.Trial) Number) string {
	s := spread(r.whereHealthy(func(a result.Arm) bool { return a.Quorate == quorate }), figure)
	if s.N > 0 && s.Least < s.Most {
		return written(s.Least, 0) + "–" + written(s.Most, 0)
	}
	return middle(s, 0)
}

// gapsAt are the gaps of which keep says yes, by their place among all of a trial.
func gapsAt(trials []result.Trial, keep func(i, n int) bool) Spread {
	return removalsOf(trials, func(t result.Trial) (kept []float64) {
		for i, gap := range t.Gaps {
			if keep(i, len(t.Gaps)) {
				kept = append(kept, gap)
			}
		}
		return kept
	})
}

// middle is the median with that many digits behind the point; empty if nothing was measured.
func middle(s Spread, digits int) string {
	switch {
	case s.N == 0:
		return ""
	case s.Median == 0:
		return "0"
	}
	return written(s.Median, digits)
}

// highest is the most, with one digit behind the point; empty if nothing was measured.
func highest(s Spread) string {
	if s.N == 0 {
		return ""
	}
	return written(s.Most, 1)
}
