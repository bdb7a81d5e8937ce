package report

import (
	"fmt"
	"maps"
	"math"
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
func (p *page) head(level int, title string) {
	if !strings.HasSuffix(p.String(), "\n\n") {
		p.line("")
	}
	p.line("%s %s\n", strings.Repeat("#", level), title)
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

// markdown renders the whole report.
func markdown(r *Report, pictures []picture) string {
	p := &page{}
	p.line("# Benchmarks: the results")
	p.line("")
	if r.Run.Header.Short {
		p.line("**A short run: it shows that the benchmarks work. Its figures mean little.**")
		p.line("")
	}
	header(p, r.Run)
	lost(p, r.Run.Trials)
	targets(p, r.Targets)
	glance(p, r, pictures)
	for _, c := range casesOf(r.Run.Trials) {
		caseSection(p, r, c, pictures)
	}
	pairs(p, r.Pairs)
	requests(p, r.Rows)
	failovers(p, r.Run.Failovers)
	idles(p, r.Run.Idle)
	embeddeds(p, r.Run.Embedded)
	hosts(p, r.Run)
	fleets(p, r)
	if r.Run.Micro != "" {
		p.head(2, "Micro-benchmarks")
		p.line("```text\n%s\n```", strings.TrimRight(r.Run.Micro, "\n"))
	}
	return p.String()
}

// header says where the figures come from, and how to read them.
func header(p *page, run *result.Run) {
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
		{"Trials", fmt.Sprintf("%d in %s, in an order drawn from %s; %d of them not counted",
			len(run.Trials), plural(rounds(run.Trials), "round"), seed(h), len(run.Trials)-len(counted(run.Trials)))},
	}
	away := filter(result.Parts, func(part result.Part) bool { return run.Elsewhere[part] != "" })
	for _, machine := range group(away, func(part result.Part) string { return run.Elsewhere[part] }) {
		var titles []string
		for _, part := range filter(away, func(part result.Part) bool { return run.Elsewhere[part] == machine }) {
			titles = append(titles, part.Title())
		}
		rows = append(rows, []string{"Another machine", strings.Join(titles, ", ") + ": " + machine})
	}
	p.table(2, []string{"Run", ""}, rows)
	p.line("A figure is the median of all repetitions, with (least–most) behind it where they differ. Times count from")
	p.line("the change of the pod template. *never* is what had not happened when the trial's limit ended; *for " +
		"good* is")
	p.line("quorum that did not come back. An even number of repetitions of which half never ended has no other median")
	p.line("than *never*. A trial that could not be measured as it should counts for nothing and is named under " +
		"its table.")
	p.line("[%s](%s) has all of it for programs, but for the writes and serving voters over time:", dataFile, dataFile)
	p.line("those are in the trials' own files, in the directory of the run.")
	if arms := armsOf(run.Trials); len(arms) > 0 {
		p.line("")
		p.line("The arms:")
		p.line("")
		for _, arm := range arms {
			p.line("* **%s** (`%s`): %s.", arm.Title, arm.Name, arm.About)
		}
	}
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

// rounds is in how many rounds the trials were run.
func rounds(trials []result.Trial) (last int) {
	for _, t := range trials {
		last = max(last, t.Round)
	}
	return last
}

// lost says first of all that writes were lost, if any were, in whichever trial.
func lost(p *page, trials []result.Trial) {
	losing := filter(trials, func(t result.Trial) bool { return t.Lost > 0 })
	if len(losing) == 0 {
		return
	}
	p.head(2, "Acknowledged writes were lost")
	for _, t := range losing {
		p.line("* **%s** in %s, case `%s`", plural(t.Lost, "write"), where(t), t.Case)
	}
}

// marks make a verdict visible from afar.
var marks = map[Verdict]string{Reached: "✅ reached", NotReached: "❌ **NOT REACHED**", NotMeasured: "⬜ not measured"}

// targets renders the table of targets, and before it what is not reached.
func targets(p *page, all []Target) {
	p.head(2, "Targets")
	number := tally(all)
	p.line("Of %s in this run: **%d reached, %d not reached, %d not measured.**",
		plural(len(all), "target"), number[Reached], number[NotReached], number[NotMeasured])
	if lines := missed(all); lines != nil {
		p.line("\nNot reached:\n")
		p.line("%s", strings.Join(lines, "\n"))
	}
	p.line("")
	var rows [][]string
	for _, t := range all {
		rows = append(rows, []string{t.What, t.Wanted, t.Measured, marks[t.Verdict], t.Beside, t.From})
	}
	p.table(6, []string{"Target", "Wanted", "Measured", "Reached", "Others in this run", "Read from"}, rows)
}

// tally counts the targets by their verdicts.
func tally(all []Target) map[Verdict]int {
	number := map[Verdict]int{}
	for _, t := range all {
		number[t.Verdict]++
	}
	return number
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

// quorumLost writes a figure that is for good where it is for ever.
func quorumLost(s Spread, unit Number) string {
	return forGood(s.times(unit).String())
}

// forGood is what the word for what never happened means for quorum's return.
func forGood(text string) string { return strings.ReplaceAll(text, "never", "for good") }

// glance shows the seconds without quorum of every arm in every case.
func glance(p *page, r *Report, pictures []picture) {
	if len(r.Rows) == 0 {
		return
	}
	p.head(2, "Without quorum, at a glance")
	for _, picture := range pictures {
		if picture.name == result.OneDown || picture.name == "" {
			p.line("![%s](%s)\n", picture.alt, picture.file)
		}
	}
	p.line("Seconds without quorum:\n")
	arms := armsOf(r.Run.Trials)
	head := []string{"Case"}
	for _, arm := range arms {
		head = append(head, arm.Title)
	}
	var rows [][]string
	for _, c := range casesOf(r.Run.Trials) {
		cells := []string{c.Title}
		for _, arm := range arms {
			cell := ""
			if row := rowFor(r.Rows, c.Name, arm.Name); row != nil {
				cell = quorumLost(row.WithoutQuorum, 1)
			}
			cells = append(cells, cell)
		}
		rows = append(rows, cells)
	}
	p.table(1, head, rows)
}

// rowFor returns the row of an arm in a case, nil if there is none.
func rowFor(rows []Row, name, arm string) *Row {
	for i := range rows {
		if rows[i].Case == name && rows[i].Arm == arm {
			return &rows[i]
		}
	}
	return nil
}

// caseSection renders a case: what clients saw, how the rollout went, and in healthy cases
// the changes of leader by the ordinal that led.
func caseSection(p *page, r *Report, c result.Case, pictures []picture) {
	p.head(2, c.Title)
	about := "`" + c.Name + "`"
	if c.About != "" {
		about += ": " + c.About + "."
	}
	p.line("%s", about)
	trials := in(r.Run.Trials, c.Name)
	notes := map[string]bool{}
	for _, t := range trials {
		if t.Note != "" {
			notes[t.Note] = true
		}
	}
	p.line("")
	for _, note := range slices.Sorted(maps.Keys(notes)) {
		p.line("* %s", note)
	}
	if len(notes) > 0 {
		p.line("")
	}
	for _, picture := range pictures {
		if picture.name == c.Name && c.Name != result.OneDown {
			p.line("![%s](%s)\n", picture.alt, picture.file)
		}
	}
	rows := filter(r.Rows, func(row Row) bool { return row.Case == c.Name })
	p.line("What clients saw:\n")
	var clients, rollouts [][]string
	for _, row := range rows {
		arm := result.ArmOf(row.Arm).Title
		lost := fmt.Sprint(row.Lost)
		if row.Lost > 0 {
			lost = "**" + lost + "**"
		}
		if row.Unverified > 0 {
			lost += fmt.Sprintf(", %d unknown", row.Unverified)
		}
		if row.Trials == 0 {
			lost = none
		}
		clients = append(clients, []string{
			arm, quorumLost(row.WithoutQuorum, 1), quorumLost(row.WriteStall, 1000), row.Failed.counts(),
			row.Retried.counts(), lost,
			row.P99Latency.times(1000).String(), row.Planned.counts(), row.Unplanned.counts(),
			row.FewestServing.counts(), row.FewestReady.counts(),
		})
		rollouts = append(rollouts, []string{
			arm, fmt.Sprintf("%d of %d", row.Completed, row.Trials), row.Rollout.String(), row.Ratio.with(3),
			row.Beyond.with(2), row.Gap.times(1000).with(0), row.BudgetWait.times(1000).with(0),
			row.OwnGap.times(1000).with(0),
			row.FirstAction.String(), row.Requests.counts(), row.Renewals.counts(), row.KiB.String(), row.CPU.String(),
			row.Anonymous.String(),
			row.Resident.String(),
		})
	}
	p.table(1, []string{
		"Arm", "without quorum (s)", "longest write stall (ms)", "writes failed", "retried", "lost (sum)",
		"p99 write latency (ms)", "leader changes: planned", "unplanned", "fewest serving voters", "fewest Ready pods",
	}, clients)
	p.line("How the rollout went. The ratio is that of the rollout time to the sum of the pods' own down-times, " +
		"beyond is")
	p.line("their difference where pods are not down together; requests are the sidecars' to Kubernetes, " +
		"and KiB those of their")
	p.line("bodies and of the answers', of watches too. CPU is that of all sidecars")
	p.line("together, memory that of the largest one. An eviction waits until the PodDisruptionBudget allows it, " +
		"and that is")
	p.line("Kubernetes' own time. The rest of the time from settled to the next removal is the own part of whoever " +
		"removes the pods:\n")
	p.table(1, []string{
		"Arm", "completed", "rollout (s)", "ratio", "beyond (s)", "settled → next removal (ms)",
		"of it, wait for the budget (ms)", "own part (ms)", "first action (s)", "requests",
		"of them, to keep the record fresh",
		"KiB", "CPU (s)",
		"anonymous memory (MiB)", "resident (MiB)",
	}, rollouts)
	if c.Healthy {
		leaders(p, c, rows)
	}
	if without := filter(trials, func(t result.Trial) bool { return excluded(t) != "" }); len(without) > 0 {
		p.line("Not counted:\n")
		for _, t := range without {
			p.line("* %s: %s", where(t), strings.ReplaceAll(excluded(t), "\n", " "))
		}
		p.line("")
	}
}

// leaders renders the changes of leader by the ordinal that led.
func leaders(p *page, c result.Case, rows []Row) {
	p.line("Changes of leader, planned + unplanned, by the ordinal that led before:\n")
	head := []string{"Arm"}
	for ordinal := range c.Members {
		head = append(head, fmt.Sprint(ordinal))
	}
	var cells [][]string
	for _, row := range rows {
		line := []string{result.ArmOf(row.Arm).Title}
		for ordinal := range c.Members {
			cell := none
			for _, l := range row.Leaders {
				if l.Ordinal == ordinal {
					cell = l.Planned.counts() + " + " + l.Unplanned.counts()
				}
			}
			line = append(line, cell)
		}
		cells = append(cells, line)
	}
	p.table(1, head, cells)
}

// pairs renders the comparisons.
func pairs(p *page, all []Pair) {
	if len(all) == 0 {
		return
	}
	p.head(2, "Side by side")
	p.line("Medians of paired ratios: trials of the same round, case and leader, one of the arm and one of what it " +
		"is compared")
	p.line("with. Below 1 the arm is better. A ratio of 0 is that to what never ended.\n")
	var rows [][]string
	for _, pair := range all {
		rows = append(rows, []string{
			result.CaseOf(pair.Case).Title, result.ArmOf(pair.Arm).Title, result.ArmOf(pair.Base).Title,
			fmt.Sprint(max(pair.WriteStall.N, pair.Rollout.N)), pair.WriteStall.with(2), pair.Rollout.with(2),
		})
	}
	p.table(3, []string{"Case", "Arm", "Compared with", "pairs", "longest write stall", "rollout time"}, rows)
}

// requests renders what was asked of Kubernetes, by verb and resource.
func requests(p *page, rows []Row) {
	rows = filter(rows, func(row Row) bool { return len(row.Kinds) > 0 })
	if len(rows) == 0 {
		return
	}
	p.head(2, "Requests of a rollout")
	p.line("Medians of what all sidecars of a cluster asked of the Kubernetes API in one trial; of a watch it is its " +
		"beginning.\n")
	p.line("<details><summary>By verb and resource</summary>\n")
	var cells [][]string
	for _, row := range rows {
		cells = append(cells, []string{result.CaseOf(row.Case).Title, result.ArmOf(row.Arm).Title, kindsOf(row.Kinds)})
	}
	p.table(3, []string{"Case", "Arm", "Requests"}, cells)
	p.line("</details>")
}

// kindsOf writes requests by their kind, in the order of the alphabet.
func kindsOf[N int | float64 | Number](kinds map[string]N) string {
	var parts []string
	for _, kind := range slices.Sorted(maps.Keys(kinds)) {
		parts = append(parts, kind+" "+three(Number(kinds[kind])))
	}
	return strings.Join(parts, ", ")
}

// failovers renders the changes of coordinator.
func failovers(p *page, all []result.Failover) {
	if len(all) == 0 {
		return
	}
	p.head(2, "Failover of the coordinator")
	p.line("From the signal, in the middle of a rollout, until another sidecar holds the record and has decided.\n")
	var rows [][]string
	for _, how := range group(all, func(f result.Failover) string { return f.How }) {
		those := filter(all, func(f result.Failover) bool { return f.How == how })
		ttl := spread(those, func(f result.Failover) Number { return Number(f.LockTTL) })
		rows = append(rows, []string{how, fmt.Sprint(len(those)), ttl.counts(),
			spread(those, failoverSeconds).String()})
	}
	p.table(1, []string{"How", "times", "lock TTL (s)", "until the next one decides (s)"}, rows)
}

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

// idles renders what a sidecar costs while nothing is to do.
func idles(p *page, all []result.Idle) {
	if len(all) == 0 {
		return
	}
	p.head(2, "An idle sidecar")
	p.line("Requests are those a minute. What etcd received is from all sidecars of the cluster together.\n")
	var rows [][]string
	for _, i := range all {
		rows = append(rows, []string{
			i.Role, fmt.Sprint(i.Members), fmt.Sprintf("%.0f", i.Seconds), three(Number(sum(i.Kubernetes))),
			fmt.Sprint(i.Watches),
			three(Number(sum(i.Etcd))), fmt.Sprintf("%.3f", i.CPUPercent), fmt.Sprintf("%.1f", i.Usage.Anonymous),
			fmt.Sprintf("%.1f", i.Usage.Resident), kinds("Kubernetes", i.Kubernetes) + kinds("etcd", i.Etcd),
		})
	}
	p.table(1, []string{
		"Role", "members", "watched for (s)", "Kubernetes requests", "open watches", "etcd requests",
		"CPU (% of a core)", "anonymous memory (MiB)", "resident (MiB)", "which requests",
	}, rows)
}

// kinds names requests by their kind, if there are any.
func kinds(of string, values map[string]float64) string {
	if len(values) == 0 {
		return ""
	}
	return of + ": " + kindsOf(values) + ". "
}

// embeddeds renders what the library adds to its host.
func embeddeds(p *page, all []result.Embedded) {
	if len(all) == 0 {
		return
	}
	p.head(2, "Embedded in a host program")
	p.line("Anonymous resident memory of the host with and without the library, in MiB. The difference is the median " +
		"of the rounds' own.\n")
	var rows [][]string
	for _, when := range group(all, func(e result.Embedded) string { return e.When }) {
		those := filter(all, func(e result.Embedded) bool { return e.When == when })
		rows = append(rows, []string{
			when, fmt.Sprint(len(those)), spread(those, func(e result.Embedded) Number { return Number(e.Without) }).
				String(),
			spread(those, func(e result.Embedded) Number { return Number(e.With) }).String(),
			spread(those, more).String(),
		})
	}
	p.table(1, []string{"When", "rounds", "without (MiB)", "with (MiB)", "difference (MiB)"}, rows)
}

// hosts renders what etcd-backup-restore needs with Quorate and without. That it was not measured is said where the
// rest of a sidecar's cost was.
func hosts(p *page, run *result.Run) {
	if len(run.Hosts) == 0 && len(run.Idle) == 0 {
		return
	}
	p.head(2, "Inside etcd-backup-restore")
	if len(run.Hosts) == 0 {
		p.line("Not measured in this run. It needs network namespaces, and the sources of etcd-druid and its programs.")
		return
	}
	p.line("The sidecars of a cluster together: etcd-backup-restore in pods of the real etcd-druid, without Quorate " +
		"and with")
	p.line("it inside, and Quorate's own sidecar beside a plain etcd. Without Quorate, the StatefulSet controller " +
		"rolls the pods.")
	p.line("Pods of etcd-druid's take much longer to be Ready than those with the plain etcd. Memory is that of the " +
		"largest")
	p.line("sidecar. Requests to Kubernetes are counted before the API server, and KiB are those of the bodies of " +
		"requests and")
	p.line("answers, of watches too. What etcd received includes what etcd-wrapper asks for, where it runs.\n")
	var rows, which [][]string
	for _, h := range run.Hosts {
		minutes := Number(h.Seconds) / 60
		kubernetes, etcd := sum(h.Kubernetes), sum(h.Etcd)
		rows = append(rows, []string{
			h.Program, h.When, fmt.Sprint(h.Members), fmt.Sprintf("%.0f", h.Seconds),
			fmt.Sprintf("%.1f", h.Usage.Anonymous), fmt.Sprintf("%.1f", h.Usage.Resident),
			three(Number(h.Usage.CPUSeconds)), fmt.Sprintf("%.2f", 100*h.Usage.CPUSeconds/h.Seconds),
			grouped(kubernetes), fmt.Sprint(h.Kubernetes[result.Renewal]), three(Number(kubernetes) / minutes),
			three(Number(h.Bytes) / 1024), grouped(etcd), three(Number(etcd) / minutes),
		})
		which = append(which, []string{h.Program, h.When, kindsOf(h.Kubernetes), kindsOf(h.Etcd)})
	}
	p.table(2, []string{
		"Sidecar", "when", "members", "watched for (s)", "anonymous memory (MiB)", "resident (MiB)", "CPU (s)",
		"CPU (% of a core)", "Kubernetes requests", "of them, to keep the record fresh", "a minute", "KiB",
		"etcd requests", "a minute",
	}, rows)
	p.line("<details><summary>Which requests</summary>\n")
	p.table(4, []string{"Sidecar", "when", "Kubernetes", "etcd"}, which)
	p.line("</details>")
}

// fleets renders the measured fleets, and on paper the large one.
func fleets(p *page, r *Report) {
	if len(r.Run.Fleets) == 0 {
		return
	}
	p.head(2, "A fleet")
	p.line("Many StatefulSets on one API server, idle and when the templates of all change, at once or over a " +
		"time. Memory is")
	p.line("anonymous, of the one process that hosts all coordinators or the central controller. Requests are " +
		"counted before the")
	p.line("API server, and KiB are those of the bodies of requests and answers, of watches too.\n")
	var idle, rolling [][]string
	notes := []string{}
	for _, f := range r.Run.Fleets {
		name := fleetName(f.Arm, f.Workers)
		if f.Release != "" {
			name += " of `" + f.Release + "`"
		}
		idle = append(idle, []string{
			name, grouped(f.Clusters), fmt.Sprint(f.Members), perSecond(sum(f.IdleRequests), f.IdleSeconds),
			fmt.Sprint(f.Watches), fmt.Sprintf("%.1f", f.MemoryMiB), fmt.Sprintf("%.1f", f.BaseMiB),
			fmt.Sprintf("%.1f", 1024*(f.MemoryMiB-f.BaseMiB)/float64(max(f.Clusters, 1))),
			three(Number(f.IdleCPU)), kindsOf(f.IdleRequests),
		})
		kib := ""
		if f.Bytes > 0 {
			kib = three(Number(f.Bytes) / 1024 / Number(max(f.Rolled, 1)))
		}
		rolling = append(rolling, []string{
			name, grouped(f.Clusters), templates(f), fmt.Sprintf("%g", f.PodDown),
			fmt.Sprintf("%d in %s", f.Rolled, three(Number(f.Seconds))),
			perSecond(sum(f.Requests), f.Seconds), fmt.Sprintf("%.1f",
				float64(sum(f.Requests))/float64(max(f.Rolled, 1))),
			fmt.Sprintf("%.1f", float64(f.Requests[result.Renewal])/float64(max(f.Rolled, 1))), kib,
			quantiles(f.FirstAction), quantiles(f.Done),
			fmt.Sprintf("%.1f", f.PeakMiB), three(Number(f.CPU)), kindsOf(f.Requests),
		})
		told := []string{f.Note}
		if f.Machine != "" {
			told = append(told, "measured on another machine: "+f.Machine)
		}
		for _, note := range told {
			if note != "" {
				notes = append(notes, fmt.Sprintf("* %s, %s: %s", name, grouped(f.Clusters)+" clusters", note))
			}
		}
	}
	p.line("Idle:\n")
	p.table(1, []string{"Arm", "clusters", "members each", "requests/s", "open watches", "memory (MiB)",
		"without clusters (MiB)", "per cluster (KiB)", "CPU (s)", "requests"}, idle)
	p.line("All roll. Requests a second are those of the whole time, and times are those of the clusters that got " +
		"there:\n")
	p.table(1, []string{
		"Arm", "clusters", "templates change", "a pod is down for (s)", "rolled (clusters in s)", "requests/s",
		"requests per cluster", "of them, to keep the record fresh", "KiB per cluster",
		"first action: median, p99, most (s)",
		"done: median, p99, most (s)", "peak memory (MiB)", "CPU (s)", "requests",
	}, rolling)
	if len(notes) > 0 {
		p.line("%s\n", strings.Join(notes, "\n"))
	}
	paper(p, r)
}

// templates says when the templates of a fleet change.
func templates(f result.Fleet) string {
	if f.Over == 0 {
		return "at once"
	}
	return fmt.Sprintf("over %g s", f.Over)
}

// paper renders the estimate and how it is computed.
func paper(p *page, r *Report) {
	p.head(3, "On paper: "+grouped(paperClusters)+" clusters")
	if len(r.Estimates) == 0 {
		p.line("Not computed: no fleet of this run was watched idle and rolled.")
		return
	}
	p.line(paperText, grouped(paperClusters), written(answered(r.Run.Fleets), 0))
	var rows [][]string
	for _, e := range r.Estimates {
		from := grouped(e.Measured) + " clusters"
		rows = append(rows, []string{
			fleetName(e.Arm, e.Workers), from, three(e.IdleRequests), three(e.Watches), three(e.MemoryMiB),
			three(e.PeakMiB), duration(e.Roll), three(e.RollRequests), duration(e.RollShared),
		})
	}
	p.table(2, []string{
		"Arm", "computed from", "requests/s, idle", "open watches", "memory (MiB)", "peak (MiB)", "time to roll all",
		"requests/s, rolling", "time behind one API server",
	}, rows)
}

// fleetName names a way to roll a fleet.
func fleetName(arm string, workers int) string {
	switch arm {
	case fleetQuorate:
		return "Quorate"
	case fleetCentral:
		return "Central controller, " + plural(workers, "worker")
	}
	return arm
}

// three writes a number with three figures, or with all of those before the point.
func three(n Number) string {
	switch {
	case n == never:
		return "never"
	case n >= 100:
		return grouped(int(math.Round(float64(n))))
	}
	return fmt.Sprintf("%.3g", float64(n))
}

// grouped writes a number with its digits in groups where there are many.
func grouped(n int) string {
	if n < 10_000 {
		return fmt.Sprint(n)
	}
	return fmt.Sprintf("%s,%03d", grouped(n/1000), n%1000)
}

// duration writes seconds as people say them.
func duration(seconds Number) string {
	switch {
	case seconds == never:
		return "never"
	case seconds < 120:
		return three(seconds) + " s"
	case seconds < 2*3600:
		return fmt.Sprintf("%.1f min", float64(seconds)/60)
	case seconds < 48*3600:
		return fmt.Sprintf("%.1f h", float64(seconds)/3600)
	}
	return fmt.Sprintf("%.1f days", float64(seconds)/86400)
}

func perSecond(n int, seconds float64) string {
	if seconds == 0 {
		return none
	}
	return three(Number(float64(n) / seconds))
}

func quantiles(q result.Quantiles) string {
	return fmt.Sprintf("%s, %s, %s", three(Number(q.Median)), three(Number(q.P99)), three(Number(q.Most)))
}
