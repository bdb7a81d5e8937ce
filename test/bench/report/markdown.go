package report

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/quorate/quorate/test/bench/result"
)

// none stands where there is no figure.
const none = "–"

// page is a Markdown page while it is written.
type page struct{ strings.Builder }

// line writes a paragraph's line.
func (p *page) line(format string, args ...any) { fmt.Fprintf(p, format+"\n", args...) }

// head begins a section.
func (p *page) head(title string) {
	if !strings.HasSuffix(p.String(), "\n\n") {
		p.line("")
	}
	p.line("## %s\n", title)
}

// table writes a table whose first columns, as many as text says, are words and aligned to
// the left; the others are figures.
func (p *page) table(text int, head []string, rows [][]string) {
	p.line("| %s |", strings.Join(head, " | "))
	for i := range head {
		p.WriteString("|")
		p.WriteString(map[bool]string{true: "---", false: "---:"}[i < text])
	}
	p.WriteString("|\n")
	for _, row := range rows {
		cells := make([]string, len(row))
		for i, cell := range row {
			cells[i] = strings.ReplaceAll(strings.ReplaceAll(cell, "|", `\|`), "\n", " ")
			if cells[i] == "" {
				cells[i] = none
			}
		}
		p.line("| %s |", strings.Join(cells, " | "))
	}
	p.line("")
}

// howToRead and howArmsAreTold say what the figures mean.
const (
	howToRead = `A figure is the median of all repetitions, with (least–most) where they differ. Times count from the
change of the pod template. *never* is what had not happened when the trial's limit ended, *for good* is quorum that did
not come back, and %s is what was not measured. [%s](%s) has all of it for programs.`
	howArmsAreTold = `The ratio is that of the rollout time to the sum of the pods' own down-times, and beyond is their
difference where pods are not down together. The own part is the time from when a pod has settled to the next removal,
less the wait until the PodDisruptionBudget allows an eviction. Requests are the sidecars' to Kubernetes, and KiB what
these took, watches too. CPU is that of all sidecars together, memory that of the largest one.`
)

// markdown renders the report: where it was measured, what decides, what real nodes show of that, the targets, what it
// costs, and what each arm did in each case.
func markdown(r *Report) string {
	p := &page{}
	p.line("# Benchmarks: the results")
	p.line("")
	if r.Run.Header.Short {
		p.line("**A short run: it shows that the benchmarks work. Its figures mean little.**")
		p.line("")
	}
	run, real := split(r.Run)
	header(p, run, real)
	lost(p, r.Run.Trials)
	decides(p, run)
	onRealNodes(p, real)
	targets(p, r.Targets)
	late(p, run.Fleets)
	costs(p, run)
	results(p, run.Trials)
	return p.String()
}

// header says where the figures come from, and how to read them.
func header(p *page, run *result.Run, real []result.Trial) {
	h := run.Header
	rows := [][]string{
		{"Began", h.Began.UTC().Format("2006-01-02 15:04 UTC") + ", took " +
			(time.Duration(h.Seconds) * time.Second).String() + sittings(h)},
		{"Quorate", commits(h)},
		{"Machine", fmt.Sprintf("%s, %s, %d MiB memory, Linux %s", h.CPU, plural(h.Cores, "core"),
			h.MemoryMiB, h.Kernel)},
		{"Versions", fmt.Sprintf("Kubernetes %s, etcd %s, %s", h.Kubernetes, strings.Join(h.Etcd, " → "), h.Go)},
		{"Network", h.Network},
		{"Trials at a time", fmt.Sprintf("%d, but for the cases that always run alone", max(h.Lanes, 1))},
		{"A pod's containers start after", fmt.Sprintf("%g s", h.StartDelay)},
		{"Readiness probe every", fmt.Sprintf("%g s", h.ReadinessPeriod)},
		{"Trials", howMany(run.Trials, ", in an order drawn from "+seed(h))},
	}
	if len(real) > 0 {
		rows = append(rows, []string{"Trials on real nodes", howMany(real, "")})
	}
	away := filter(result.Parts, func(part result.Part) bool { return run.Elsewhere[part] != "" })
	for _, machine := range group(away, func(part result.Part) string { return run.Elsewhere[part] }) {
		var titles []string
		for _, part := range filter(away, func(part result.Part) bool { return run.Elsewhere[part] == machine }) {
			titles = append(titles, part.Title())
		}
		rows = append(rows, []string{"Another machine", strings.Join(titles, ", ") + ": " + machine})
	}
	elsewhere := filter(run.Fleets, func(f result.Fleet) bool { return f.Machine != "" })
	for _, machine := range group(elsewhere, func(f result.Fleet) string { return f.Machine }) {
		rows = append(rows, []string{"Another machine", "fleets: " + machine})
	}
	p.table(2, []string{"Run", ""}, rows)
	p.line(howToRead, none, dataFile, dataFile)
}

// commits are those of the product that was measured.
func commits(h result.Header) string {
	all := strings.Split(h.Version, ", ")
	text := "`" + strings.Join(all, "`, `") + "`"
	if len(all) > 1 {
		text += ", between which the product's code has not changed"
	}
	return text
}

// sittings says in how many runs all of it was measured, where it was more than one.
func sittings(h result.Header) string {
	if h.Sittings < 2 {
		return ""
	}
	return fmt.Sprintf(" in %d sittings", h.Sittings)
}

// seed is what the order was drawn from. Sittings have one each, of which the joined header keeps the first.
func seed(h result.Header) string {
	if h.Sittings < 2 {
		return fmt.Sprintf("seed %d", h.Seed)
	}
	return "a seed for each sitting"
}

// howMany says how many trials there are, in how many rounds and how, and how many of them do not count.
func howMany(trials []result.Trial, how string) string {
	rounds := len(group(trials, func(t result.Trial) int { return t.Round }))
	return fmt.Sprintf("%d in %s%s; %d of them not counted", len(trials), plural(rounds, "round"), how,
		len(trials)-len(counted(trials)))
}

// lost says first of all that writes were lost, if any were, in whichever trial.
func lost(p *page, trials []result.Trial) {
	losing := filter(trials, func(t result.Trial) bool { return t.Lost > 0 })
	if len(losing) == 0 {
		return
	}
	p.head("Acknowledged writes were lost")
	for _, t := range losing {
		on := ""
		if t.Nodes != "" {
			on = ", on real nodes"
		}
		p.line("* **%s** in %s, case `%s`%s", plural(t.Lost, "write"), where(t), t.Case, on)
	}
}

// marks make a verdict visible from afar.
var marks = map[Verdict]string{Reached: "✅ reached", NotReached: "❌ **NOT REACHED**", NotMeasured: "⬜ not measured"}

// targets renders the table of targets, and before it what is not reached.
func targets(p *page, all []Target) {
	p.head("Targets")
	p.line("**%s.**", tally(all))
	if lines := missed(all); lines != nil {
		p.line("\nNot reached:\n\n%s", strings.Join(lines, "\n"))
	}
	p.line("")
	var rows [][]string
	for _, t := range all {
		rows = append(rows, []string{t.What, t.Wanted, t.Measured, marks[t.Verdict], t.Beside, t.From})
	}
	p.table(6, []string{"Target", "Wanted", "Measured", "Reached", "Others in this run", "Read from"}, rows)
}

// tally says how many of the targets are reached.
func tally(all []Target) string {
	number := map[Verdict]int{}
	for _, t := range all {
		number[t.Verdict]++
	}
	text := fmt.Sprintf("%d of %s reached", number[Reached], plural(len(all), "target"))
	for _, v := range []Verdict{NotReached, NotMeasured} {
		if number[v] > 0 {
			text += fmt.Sprintf(", %d %s", number[v], v)
		}
	}
	return text
}

// missed are the targets that are not reached, an item of a list each.
func missed(all []Target) (lines []string) {
	for _, t := range all {
		if t.Verdict == NotReached {
			lines = append(lines, fmt.Sprintf("* **%s**: wanted %s; measured %s.", t.What, t.Wanted, t.Measured))
		}
	}
	return lines
}

// late names the fleets that were not rolled to the end, which no target counts.
func late(p *page, fleets []result.Fleet) {
	fleets = filter(fleets, func(f result.Fleet) bool { return f.Rolled < f.Clusters })
	if len(fleets) == 0 {
		return
	}
	p.line("These fleets were not rolled in time, and no target counts them:\n")
	for _, f := range fleets {
		name := "`" + f.Arm + "`"
		if f.Release != "" {
			name += " of " + f.Release
		}
		p.line("* %s: %d of %s clusters were rolled in %.0f s", name, f.Rolled, grouped(f.Clusters), f.Seconds)
	}
	p.line("")
}

// results renders what each arm did in each case: what clients saw, how the rollout went, and what it asked for.
func results(p *page, trials []result.Trial) {
	if len(trials) == 0 {
		return
	}
	p.head("Every arm in every case")
	p.line("The arms:\n")
	for _, arm := range armsOf(trials) {
		p.line("* **%s** (`%s`): %s.", arm.Title, arm.Name, arm.About)
	}
	p.line("\nThe cases:\n")
	for _, c := range casesOf(trials) {
		p.line("* **%s** (`%s`): %s.", c.Title, c.Name,
			strings.Join(append([]string{c.About}, notes(trials, c)...), "; "))
	}
	p.line("\n%s\n", howArmsAreTold)
	var rows [][]string
	for _, row := range rowsOf(trials) {
		lost := none
		if row.Trials > 0 {
			lost = fmt.Sprint(row.Lost)
		}
		if row.Lost > 0 {
			lost = "**" + lost + "**"
		}
		if row.Unverified > 0 {
			lost += fmt.Sprintf(", %d unknown", row.Unverified)
		}
		rows = append(rows, []string{
			result.CaseOf(row.Case).Title, result.ArmOf(row.Arm).Title,
			fmt.Sprintf("%d of %d", row.Completed, row.Trials),
			quorumLost(row.WithoutQuorum), quorumLost(row.WriteStall.times(1000)), lost,
			row.Failed.counts(), row.Retried.counts(), row.P99Latency.times(1000).String(),
			row.Planned.counts() + " + " + row.Unplanned.counts(), row.FewestReady.counts(),
			row.FirstAction.String(), row.Rollout.String(), row.Ratio.with(3), row.Beyond.with(2),
			row.OwnGap.times(1000).with(0), row.Requests.counts(), row.Renewals.counts(), row.KiB.String(),
			row.CPU.String(), row.Anonymous.String(),
		})
	}
	p.table(2, []string{
		"Case", "Arm", "completed", "without quorum (s)", "longest write stall (ms)", "writes lost (sum)",
		"writes failed", "retried", "p99 write latency (ms)",
		"leader changes, planned + unplanned", "fewest Ready pods", "first action (s)", "rollout (s)", "ratio",
		"beyond (s)", "own part (ms)", "requests", "of them, to keep the record fresh", "KiB", "CPU (s)",
		"anonymous memory (MiB)",
	}, rows)
	uncounted(p, trials)
}

// notes are what was done in the trials of a case beside the change of the template, in words.
func notes(trials []result.Trial, c result.Case) []string {
	told := map[string]bool{}
	for _, t := range in(trials, c.Name) {
		if t.Note != "" {
			told[t.Note] = true
		}
	}
	return slices.Sorted(maps.Keys(told))
}

// uncounted names the trials that could not be measured as they should.
func uncounted(p *page, trials []result.Trial) {
	without := filter(trials, func(t result.Trial) bool { return excluded(t) != "" })
	if len(without) == 0 {
		return
	}
	p.line("Not counted:\n")
	for _, t := range without {
		p.line("* %s, case `%s`: %s", where(t), t.Case, strings.ReplaceAll(excluded(t), "\n", " "))
	}
}

// quorumLost writes a figure that is for good where it is for ever, as quorum's loss is.
func quorumLost(s Spread) string { return strings.ReplaceAll(s.String(), "never", "for good") }

// group returns what the items are grouped by, in the order in which they come.
func group[T any, K comparable](items []T, key func(T) K) []K {
	var keys []K
	for _, item := range items {
		if k := key(item); !slices.Contains(keys, k) {
			keys = append(keys, k)
		}
	}
	return keys
}

// grouped writes a number with its digits in groups where there are many.
func grouped(n int) string {
	if n < 10_000 {
		return fmt.Sprint(n)
	}
	return fmt.Sprintf("%s,%03d", grouped(n/1000), n%1000)
}
