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
	Case string `json:"case"`
	Arm  string `json:"arm"`
	// Trials is how many count, Completed how many of them did; Excluded those that do not.
	Trials    int `json:"trials"`
	Completed int `json:"completed"`
	Excluded  int `json:"excluded,omitempty"`

	// WithoutQuorum and WriteStall are never where quorum was lost for good.
	WithoutQuorum Spread `json:"withoutQuorum"`
	WriteStall    Spread `json:"writeStall"`
	Failed        Spread `json:"failed"`
	Retried       Spread `json:"retried"`
	// Lost and Unverified are sums: one lost write is too many.
	Lost          int    `json:"lost"`
	Unverified    int    `json:"unverified,omitempty"`
	P99Latency    Spread `json:"p99Latency"`
	MedianLatency Spread `json:"medianLatency"`
	Planned       Spread `json:"planned"`
	Unplanned     Spread `json:"unplanned"`
	FewestServing Spread `json:"fewestServing"`
	FewestReady   Spread `json:"fewestReady"`

	// Rollout is never where a trial did not complete, FirstAction where nothing was done.
	Rollout Spread `json:"rollout"`
	Ratio   Spread `json:"ratio"`
	// Beyond is the rollout time less the sum of the pods' own down-times, where those did not
	// overlap.
	Beyond      Spread `json:"beyond"`
	FirstAction Spread `json:"firstAction"`
	// Gap is that of all gaps of all trials. BudgetWait and OwnGap are its parts, without any values for a run
	// that does not show them apart.
	Gap        Spread `json:"gap"`
	BudgetWait Spread `json:"budgetWait"`
	OwnGap     Spread `json:"ownGap"`

	// Requests is the number of all, Renewals that of those among them that only keep the record fresh, and KiB what
	// they took. Kinds has the median of each kind. A run that does not show Renewals apart or KiB has none.
	Requests Spread            `json:"requests"`
	Renewals Spread            `json:"renewals"`
	KiB      Spread            `json:"kib"`
	Kinds    map[string]Number `json:"kinds,omitempty"`
	// Sidecars is the number of their processes, and CPU that of all of them together.
	Sidecars  int    `json:"sidecars,omitempty"`
	CPU       Spread `json:"cpuSeconds"`
	Anonymous Spread `json:"anonymousMiB"`
	Resident  Spread `json:"residentMiB"`

	// Leaders are the changes of leader by the ordinal that led before, in healthy cases.
	Leaders []LeaderRow `json:"leaders,omitempty"`
}

// LeaderRow is what the trials gave in which that ordinal led.
type LeaderRow struct {
	Ordinal   int    `json:"ordinal"`
	Planned   Spread `json:"planned"`
	Unplanned Spread `json:"unplanned"`
}

// Pair compares two arms in one case, pair by pair.
type Pair struct {
	Case       string `json:"case"`
	Arm        string `json:"arm"`
	Base       string `json:"base"`
	WriteStall Spread `json:"writeStall"`
	Rollout    Spread `json:"rollout"`
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

func gaps(t result.Trial) []float64        { return t.Gaps }
func budgetWaits(t result.Trial) []float64 { return t.BudgetWaits }
func ownGaps(t result.Trial) []float64     { return t.OwnGaps }

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
		Case: c.Name, Arm: arm.Name, Trials: len(trials), Excluded: len(all) - len(trials),
		WithoutQuorum: spread(trials, withoutQuorum),
		WriteStall:    spread(trials, writeStall),
		Failed:        spread(trials, func(t result.Trial) Number { return Number(t.Failed) }),
		Retried:       spread(trials, func(t result.Trial) Number { return Number(t.Retried) }),
		P99Latency:    spread(trials, func(t result.Trial) Number { return Number(t.P99Latency) }),
		MedianLatency: spread(trials, func(t result.Trial) Number { return Number(t.MedianLatency) }),
		Planned:       spread(trials, planned),
		Unplanned:     spread(trials, unplanned),
		FewestServing: spread(trials, func(t result.Trial) Number { return Number(t.FewestServing) }),
		FewestReady:   spread(trials, func(t result.Trial) Number { return Number(t.FewestReady) }),
		Rollout:       spread(trials, rollout),
		FirstAction:   spread(trials, firstAction),
	}
	var ratios, beyond []Number
	kinds := map[string]bool{}
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
		for kind := range t.Requests {
			kinds[kind] = true
		}
		row.Lost += t.Lost
		row.Unverified += t.Unverified
		row.Sidecars = max(row.Sidecars, t.Usage.Processes)
	}
	row.Ratio, row.Beyond = spreadOf(ratios), spreadOf(beyond)
	row.Gap, row.BudgetWait = removalsOf(trials, gaps), removalsOf(trials, budgetWaits)
	row.OwnGap = removalsOf(trials, ownGaps)
	if row.Sidecars > 0 {
		row.Requests = spread(trials, func(t result.Trial) Number { return Number(sum(t.Requests)) })
		counted := filter(trials, func(t result.Trial) bool { return t.Bytes > 0 })
		row.Renewals = renewals(counted)
		row.KiB = spread(counted, func(t result.Trial) Number { return Number(t.Bytes) / 1024 })
		row.CPU = spread(trials, func(t result.Trial) Number { return Number(t.Usage.CPUSeconds) })
		row.Anonymous = spread(trials, func(t result.Trial) Number { return Number(t.Usage.Anonymous) })
		row.Resident = spread(trials, func(t result.Trial) Number { return Number(t.Usage.Resident) })
	}
	if len(kinds) > 0 {
		row.Kinds = map[string]Number{}
	}
	for kind := range kinds {
		row.Kinds[kind] = spread(trials, func(t result.Trial) Number { return Number(t.Requests[kind]) }).Median
	}
	if c.Healthy {
		row.Leaders = leadersOf(trials)
	}
	return row
}

func planned(t result.Trial) Number   { return Number(t.Planned) }
func unplanned(t result.Trial) Number { return Number(t.Unplanned) }

// leadersOf returns a row for every ordinal that led in one of the trials.
func leadersOf(trials []result.Trial) []LeaderRow {
	byOrdinal := map[int][]result.Trial{}
	for _, t := range trials {
		if t.Leader >= 0 {
			byOrdinal[t.Leader] = append(byOrdinal[t.Leader], t)
		}
	}
	var rows []LeaderRow
	for _, ordinal := range slices.Sorted(maps.Keys(byOrdinal)) {
		led := byOrdinal[ordinal]
		rows = append(rows, LeaderRow{Ordinal: ordinal, Planned: spread(led, planned),
			Unplanned: spread(led, unplanned)})
	}
	return rows
}

// bases are the arms that a user has without Quorate and without a feature gate.
var bases = []string{result.OrderedReady, result.Parallel}

// pairsOf compares every arm of Quorate with Kubernetes' own arms, and those that replace
// several pods at once with the one that replaces one at a time. Arms without a common trial
// are left out.
func pairsOf(trials []result.Trial) []Pair {
	trials = counted(trials)
	var pairs []Pair
	for _, c := range casesOf(trials) {
		inCase := in(trials, c.Name)
		for _, arm := range armsOf(inCase) {
			against := slices.Clone(bases)
			switch {
			case !arm.Quorate:
				continue
			case !arm.OneAtATime:
				against = append(against, result.MaxUnavailable, result.Quorate)
			}
			for _, base := range against {
				p := Pair{
					Case: c.Name, Arm: arm.Name, Base: base,
					WriteStall: spreadOf(paired(inCase, arm.Name, base, writeStall)),
					Rollout:    spreadOf(paired(inCase, arm.Name, base, rollout)),
				}
				if p.WriteStall.N > 0 || p.Rollout.N > 0 {
					pairs = append(pairs, p)
				}
			}
		}
	}
	return pairs
}

func sum[N cmp.Ordered](values map[string]N) N {
	var all N
	for _, key := range slices.Sorted(maps.Keys(values)) {
		all += values[key]
	}
	return all
}
