package report

import (
	"cmp"
	"fmt"
	"maps"
	"slices"

	"github.com/quorate/quorate/test/bench/result"
)

// Row is what the trials of one arm in one case gave. Times are seconds.
type Row struct {
	Case, Arm string
	// Trials is how many count, Completed how many of them did.
	Trials, Completed int

	// WithoutQuorum and WriteStall are never where quorum was lost for good.
	WithoutQuorum, WriteStall Spread
	// Failed, Retried and P99Latency are those of the writes of a trial.
	Failed, Retried, P99Latency Spread
	// Lost and Unverified are sums: one lost write is too many.
	Lost, Unverified   int
	Planned, Unplanned Spread
	FewestReady        Spread

	// Rollout is never where a trial did not complete, FirstAction where nothing was done.
	Rollout, FirstAction Spread
	// Beyond is the rollout time less the sum of the pods' own down-times, where those did not
	// overlap.
	Ratio, Beyond Spread
	// OwnGap is that of all removals of all trials, without any values for a run that does not show it apart.
	OwnGap Spread

	// Requests is the number of all, Renewals that of those among them that only keep the record fresh, and KiB what
	// they took. A run that does not show Renewals apart or KiB has none.
	Requests, Renewals, KiB Spread
	// CPU is that of all sidecars together in seconds, and Anonymous the memory of the largest one in MiB.
	CPU, Anonymous Spread
}

// withoutQuorum is for ever where quorum did not come back.
func withoutQuorum(t result.Trial) Number {
	if t.QuorumBack < 0 {
		return never
	}
	return Number(t.WithoutQuorum)
}

// writeStall is for ever where quorum did not come back.
func writeStall(t result.Trial) Number {
	if t.QuorumBack < 0 {
		return never
	}
	return Number(t.WriteStall)
}

// rollout is for ever where the trial did not complete, whatever its limit was.
func rollout(t result.Trial) Number {
	if !t.Completed {
		return never
	}
	return Number(t.Seconds)
}

// firstAction is never where nothing was done.
func firstAction(t result.Trial) Number {
	if t.FirstAction < 0 {
		return never
	}
	return Number(t.FirstAction)
}

func gaps(t result.Trial) []float64    { return t.Gaps }
func ownGaps(t result.Trial) []float64 { return t.OwnGaps }

// downs are for how long the pods that came back were away.
func downs(t result.Trial) (times []float64) {
	for _, d := range t.Downs {
		if d.Ready >= 0 {
			times = append(times, d.Ready-d.Removed)
		}
	}
	return times
}

// removalsOf returns the spread of a figure of every removal, in all trials.
func removalsOf(trials []result.Trial, figures func(result.Trial) []float64) Spread {
	var values []Number
	for _, t := range trials {
		for _, value := range figures(t) {
			values = append(values, Number(value))
		}
	}
	return spreadOf(values)
}

// longestStill is for how many seconds a machine may stand still in a trial. After a second, a client tries another
// member, and an observer counts quorum as lost. So half of that would show in what the trial says of those who roll
// the pods.
const longestStill = 0.5

// counted returns the trials that could be measured as they should.
func counted(trials []result.Trial) []result.Trial {
	return filter(trials, func(t result.Trial) bool { return excluded(t) == "" })
}

// excluded says why a trial does not count, and is empty if it does.
func excluded(t result.Trial) string {
	if t.Trouble == "" && t.StoodStill > longestStill {
		return fmt.Sprintf("the machine stood still for %.1f s", t.StoodStill)
	}
	return t.Trouble
}

// in returns the trials of a case.
func in(trials []result.Trial, name string) []result.Trial {
	return filter(trials, func(t result.Trial) bool { return t.Case == name })
}

// of returns the trials of an arm in a case.
func of(trials []result.Trial, name, arm string) []result.Trial {
	return filter(in(trials, name), func(t result.Trial) bool { return t.Arm == arm })
}

func filter[T any](items []T, keep func(T) bool) []T {
	var kept []T
	for _, item := range items {
		if keep(item) {
			kept = append(kept, item)
		}
	}
	return kept
}

// casesOf returns the cases of the trials in the order of [result.Cases], unknown ones last.
func casesOf(trials []result.Trial) []result.Case {
	var cases []result.Case
	for _, name := range ordered(trials, result.CaseNames(), func(t result.Trial) string { return t.Case }) {
		cases = append(cases, result.CaseOf(name))
	}
	return cases
}

// armsOf returns the arms of the trials in the order of [result.Arms], unknown ones last.
func armsOf(trials []result.Trial) []result.Arm {
	var arms []result.Arm
	for _, name := range ordered(trials, result.ArmNames(), func(t result.Trial) string { return t.Arm }) {
		arms = append(arms, result.ArmOf(name))
	}
	return arms
}

// ordered returns every name of the trials once: the known ones in their order, then the others.
func ordered(trials []result.Trial, known []string, name func(result.Trial) string) []string {
	found := map[string]bool{}
	for _, t := range trials {
		found[name(t)] = true
	}
	names := filter(known, func(n string) bool { return found[n] })
	return append(names, filter(slices.Sorted(maps.Keys(found)), func(n string) bool {
		return !slices.Contains(known, n)
	})...)
}

// rowsOf returns one row for every arm of every case, those without a counted trial included.
func rowsOf(trials []result.Trial) []Row {
	var rows []Row
	for _, c := range casesOf(trials) {
		for _, arm := range armsOf(in(trials, c.Name)) {
			rows = append(rows, rowOf(c, arm, of(trials, c.Name, arm.Name)))
		}
	}
	return rows
}

func rowOf(c result.Case, arm result.Arm, all []result.Trial) Row {
	trials := counted(all)
	row := Row{
		Case: c.Name, Arm: arm.Name, Trials: len(trials),
		WithoutQuorum: spread(trials, withoutQuorum),
		WriteStall:    spread(trials, writeStall),
		Failed:        spread(trials, func(t result.Trial) Number { return Number(t.Failed) }),
		Retried:       spread(trials, func(t result.Trial) Number { return Number(t.Retried) }),
		P99Latency:    spread(trials, func(t result.Trial) Number { return Number(t.P99Latency) }),
		Planned:       spread(trials, planned),
		Unplanned:     spread(trials, unplanned),
		FewestReady:   spread(trials, fewestReady),
		Rollout:       spread(trials, rollout),
		FirstAction:   spread(trials, firstAction),
		OwnGap:        removalsOf(trials, ownGaps),
	}
	var ratios, beyond []Number
	for _, t := range trials {
		if t.Completed {
			row.Completed++
		}
		if t.Ratio > 0 {
			ratios = append(ratios, Number(t.Ratio))
			if t.Seconds > t.DownSeconds {
				beyond = append(beyond, Number(t.Seconds-t.DownSeconds))
			}
		}
		row.Lost += t.Lost
		row.Unverified += t.Unverified
	}
	row.Ratio, row.Beyond = spreadOf(ratios), spreadOf(beyond)
	if slices.ContainsFunc(trials, func(t result.Trial) bool { return t.Usage.Processes > 0 }) {
		row.Requests = spread(trials, func(t result.Trial) Number { return Number(sum(t.Requests)) })
		counted := filter(trials, func(t result.Trial) bool { return t.Bytes > 0 })
		row.Renewals = renewals(counted)
		row.KiB = spread(counted, func(t result.Trial) Number { return Number(t.Bytes) / 1024 })
		row.CPU = spread(trials, func(t result.Trial) Number { return Number(t.Usage.CPUSeconds) })
		row.Anonymous = spread(trials, func(t result.Trial) Number { return Number(t.Usage.Anonymous) })
	}
	return row
}

func planned(t result.Trial) Number   { return Number(t.Planned) }
func unplanned(t result.Trial) Number { return Number(t.Unplanned) }

func fewestReady(t result.Trial) Number { return Number(t.FewestReady) }

// bases are the arms that a user has without Quorate and without a feature gate.
var bases = []string{result.OrderedReady, result.Parallel}

func sum[N cmp.Ordered](values map[string]N) N {
	var all N
	for _, key := range slices.Sorted(maps.Keys(values)) {
		all += values[key]
	}
	return all
}
