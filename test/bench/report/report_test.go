package report

import (
	"flag"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/quorate/quorate/test/bench/result"
)

var update = flag.Bool("update", false, "write docs/benchmarks/results.md and results.json.gz anew, from its data")

// checkout is where the documents are.
var checkout = filepath.Join("..", "..", "..")

// published is the published run with its verdicts, and the directory that it is in.
func published(t *testing.T) (r *Report, dir string) {
	t.Helper()
	dir = filepath.Join(checkout, "docs", "benchmarks")
	r, err := Read(dir)
	require.NoError(t, err)
	return r, dir
}

func TestThePublishedTablesAndVerdictsFollowFromThePublishedData(t *testing.T) {
	r, dir := published(t)
	if *update {
		_, err := Write(r.Run, dir)
		require.NoError(t, err)
		r, dir = published(t)
	}
	require.Equal(t, targetsOf(r.Run), r.Targets, "run go test ./bench/report -update and read what has changed")
	page, err := os.ReadFile(filepath.Join(dir, markdownFile))
	require.NoError(t, err)
	require.Equal(t, markdown(r), string(page), "run go test ./bench/report -update and read what has changed")
}

// The other figures on these pages are plain text. A page that names another day than the published run's is not about
// that run: whoever publishes another one goes through its figures, and then changes the day.
func TestThePagesWithFiguresAreAboutThePublishedRun(t *testing.T) {
	r, _ := published(t)
	for _, c := range []struct {
		file string
		says []string
	}{
		{"README.md", []string{tally(r.Targets), plural(len(casesOf(r.Run.Trials)), "case")}},
		{"docs/benchmarks.md", []string{tally(r.Targets), plural(len(r.Run.Trials), "trial")}},
		{"docs/why.md", nil},
		{"docs/embedding.md", nil},
	} {
		text, err := os.ReadFile(filepath.Join(checkout, filepath.FromSlash(c.file)))
		require.NoError(t, err)
		// A sentence may go on in the next line.
		words := strings.Join(strings.Fields(string(text)), " ")
		for _, figure := range append(c.says, r.Run.Header.Began.UTC().Format("2 January 2006")) {
			require.True(t, strings.Contains(words, figure), "%s has to say %q, as the published run does", c.file,
				figure)
		}
	}
}

func TestTheReportSaysFirstThatWritesWereLostAndWhichTargetsWereMissed(t *testing.T) {
	run := good()
	lost := run.Trials[slices.IndexFunc(run.Trials, func(t result.Trial) bool { return t.Arm == result.Parallel })]
	lost.Lost, lost.Unverified, lost.Round = 1, 2, 3
	run.Trials = append(run.Trials, lost)
	run.Failovers[0].Seconds = 0.5
	dir := t.TempDir()
	verdicts, err := Write(run, dir)
	require.NoError(t, err)
	require.Equal(t, "60 of 61 targets reached, 1 not reached\n* **Failover of the coordinator, graceful**: "+
		"wanted under 0.5 s, every time; measured 0.499 (0.499–0.500) s, in time 1 of 2.", verdicts)
	text, err := os.ReadFile(filepath.Join(dir, markdownFile))
	require.NoError(t, err)
	after := string(text)
	for _, words := range []string{
		"## Acknowledged writes were lost", "* **1 write** in trial", "**60 of 61 targets reached, 1 not reached.**",
		"* **Failover of the coordinator, graceful**", "❌ **NOT REACHED**",
		"| Healthy, 3 members | RollingUpdate, Parallel | 7 of 7 | 0 | 20.0 | **1**, 2 unknown | ",
	} {
		_, rest, found := strings.Cut(after, words)
		require.True(t, found, "%q is missing, or comes too early", words)
		after = rest
	}
}

func TestTheReportBeginsWithWhatDecides(t *testing.T) {
	run := good()
	slow := false
	for i := range run.Trials {
		trial := &run.Trials[i]
		trial.Writes, trial.WriteStall = 100, 0.020
		switch {
		case trial.Case != result.Healthy3:
		case trial.Arm == result.Parallel:
			trial.Seconds, trial.Changes = 8, []result.Change{{Retried: 2, Failed: 1, ReadStall: 1}, {ReadStall: 0.5}}
			trial.Audited = &result.Audited{Controller: map[string]int{"delete pods": 3, "create pods": 3}}
		case trial.Arm == result.Quorate:
			trial.Changes = []result.Change{{ReadStall: 0.25}}
			trial.Audited = &result.Audited{Sidecars: map[string]int{"create pods/eviction": 3, "patch leases": 6},
				Controller: map[string]int{"create pods": 3}}
			if !slow {
				trial.Seconds, trial.Lost, slow = 16, 1, true
				trial.Audited = nil // It was measured before the API server counted.
			}
		}
		if trial.Case == result.OneDown && trial.Arm == result.Parallel {
			trial.WithoutQuorum, trial.QuorumBack = 8, 9
		}
	}
	text := markdown(&Report{targetsOf(run), run})
	_, decides, found := strings.Cut(text, "## What decides")
	require.True(t, found)
	decides, _, found = strings.Cut(decides, "## Targets")
	require.True(t, found, "it comes before the targets")
	for _, line := range []string{
		"| 3 members: whole rollout (s) | 8.0; the slowest of 6: 8.0 | 10.0; the slowest of 6: 16.0 | " +
			"1.25 (1.25–2.00) (6 pairs) |",
		"| 3 members: acknowledged writes lost | 0 of 600 | 1 of 600 | – |",
		"| 3 members: changes of leader | 1 | 1 | 1.00 (6 pairs) |",
		"| 3 members: writes refused at a change of leader | 1 (0–2) | 0 | – |",
		"| 3 members: of them, failed | 0.5 (0–1) | 0 | – |",
		"| 3 members: longest stall of linearizable reads at a change of leader (ms) | 750 (500–1000) | 250 | " +
			"0.25 (6 pairs) |",
		"| 5 members: longest stall of linearizable reads at a change of leader (ms) | – | – | – |",
		"| 3 members: requests that the API server counts | 6 | 12 | 2.00 (5 pairs) |",
		"| 3 members: of them, by the sidecars | 0 | 9 | – |",
		"| 5 members: requests that the API server counts | – | – | – |",
		"| 5 members: of them, by the sidecars | – | – | – |",
		"| All cases that do not take quorum themselves: trials that lost it | 2 of 50 | 0 of 50 | – |",
		"No clients, pods of 30 s | 45 | 30 more keep the record fresh |",
		"| A fleet of 1000: requests of a rollout | 45.0 | a central controller: 3.0 |",
		"| A fleet of 1000: from a cluster's change until it is done: median, the last (s) | 12.0, 16.0 | " +
			"a central controller: 11.0, 14.0 |",
		"| Idle, owner of the lock: requests to Kubernetes a minute | 6.00 | a sidecar that waits: 0 |",
	} {
		require.Contains(t, decides, line)
	}
}

func TestTrialsOnRealNodesHaveATableOfTheirOwnAndAreInNoOtherFigure(t *testing.T) {
	run := good()
	want := targetsOf(run)
	before := markdown(&Report{want, run})
	require.NotContains(t, before, "real nodes")
	trial := func(arm string, round int, seconds float64, requests int) result.Trial {
		return result.Trial{Nodes: result.RealNodes, Case: result.Healthy3, Arm: arm, Round: round, Members: 3,
			Completed: true, Seconds: seconds, FewestReady: 2, Planned: 1, WriteStall: 0.030,
			Audited: &result.Audited{Controller: map[string]int{"patch pods": requests}}}
	}
	// Of their rounds, the first has the number of one on the agent's nodes, and they were worse in every way.
	bad := trial(result.Quorate, 1, 90, 50)
	bad.Unplanned, bad.WithoutQuorum, bad.QuorumBack, bad.Position = 5, 7, 8, 999
	standing := trial(result.Parallel, 3, 20, 10)
	standing.StoodStill, standing.Position = 0.6, 1000
	stuck := trial(result.Parallel, 4, 180, 10)
	stuck.Completed = false
	run.Trials = append(run.Trials, trial(result.Parallel, 1, 30, 10), bad, trial(result.Parallel, 2, 20, 10),
		trial(result.Quorate, 2, 20, 40), standing, stuck, trial(result.Quorate, 4, 20, 40))
	require.Equal(t, want, targetsOf(run))
	text := markdown(&Report{want, run})
	head, rest, found := strings.Cut(text, "## On real nodes\n")
	require.True(t, found)
	own, rest, found := strings.Cut(rest, "## Targets")
	require.True(t, found)
	for _, line := range []string{
		"| Healthy, 3 members | RollingUpdate, Parallel | 2 of 3 | 30.0 (20.0–never) | – | 0 | 30.0 | 0 | 1 + 0 | 10 |",
		"| Healthy, 3 members | Quorate | 3 of 3 | 20.0 (20.0–90.0) | 2.00 (1.00–3.00) (2 pairs) | " +
			"0.00 (0.00–7.00) | 30.0 | 0 | 1 + 0 (0–5) | 40 (40–50) |",
		"* trial 1000 (`parallel`, round 3, leader 0), case `healthy-3`: the machine stood still for 0.6 s",
	} {
		require.Contains(t, own, line)
	}
	row := "| Trials on real nodes | 7 in 4 rounds; 1 of them not counted |\n"
	require.Contains(t, head, row)
	require.Equal(t, before, strings.Replace(head, row, "", 1)+"## Targets"+rest, "all else is as it was")

	run.Trials[len(run.Trials)-3].Lost = 2
	require.Contains(t, markdown(&Report{want, run}),
		"* **2 writes** in trial 1000 (`parallel`, round 3, leader 0), case `healthy-3`, on real nodes\n")
}

func TestATrialThatDoesNotCountIsNamedWithItsReason(t *testing.T) {
	run := good()
	run.Trials[0].Trouble, run.Trials[1].StoodStill = "nobody led |\nbefore the change", longestStill+0.1
	text := markdown(&Report{targetsOf(run), run})
	require.Contains(t, text, "; 2 of them not counted |")
	require.Contains(t, text, "Not counted:\n\n* trial 1 (`ordered-ready`, round 1, leader 0), case `healthy-3`: "+
		"nobody led | before the change\n* trial 2 (`parallel`, round 1, leader 0), case `healthy-3`: the machine "+
		"stood still for 0.6 s\n")
}

func TestQuorumThatDoesNotComeBackIsLostForGood(t *testing.T) {
	run := &result.Run{Trials: []result.Trial{{Case: result.QuorumLoss, Arm: result.Parallel, QuorumBack: -1,
		FirstAction: -1, Note: "two members crash"}}}
	text := markdown(&Report{Run: run})
	require.Contains(t, text, "| Quorum lost | RollingUpdate, Parallel | 0 of 1 | for good | for good | 0 | ")
	require.Contains(t, text, " | never | never | – | ", "nothing was done, and it did not end")
	require.Contains(t, text, "and the update cures them; two members crash.\n")
}

func TestAFleetThatWasNotRolledInTimeIsNamed(t *testing.T) {
	run := good()
	require.NotContains(t, markdown(&Report{Run: run}), "not rolled in time")
	run.Fleets[0].Rolled, run.Fleets[1].Rolled = 990, 0
	text := markdown(&Report{Run: run})
	require.Contains(t, text, "* `quorate`: 990 of 1000 clusters were rolled in 20 s\n"+
		"* `quorate` of bench-of-old: 0 of 1000 clusters were rolled in 20 s\n")
}

func TestAReportSaysWhereItWasMeasured(t *testing.T) {
	run := good()
	text := markdown(&Report{Run: run})
	require.NotContains(t, text, "Another machine")
	require.NotContains(t, text, "A short run")
	run.Header = result.Header{Version: "abc, def", Sittings: 2, Short: true}
	run.Fleets[1].Machine = "two cores"
	run.Elsewhere = map[result.Part]string{result.Failovers: "one core", result.Idles: "eight cores",
		result.Embeddeds: "one core"}
	text = markdown(&Report{Run: run})
	require.Contains(t, text, "`abc`, `def`, between which the product's code has not changed")
	require.Contains(t, text, "in 2 sittings")
	require.Contains(t, text, "an order drawn from a seed for each sitting")
	require.Contains(t, text, "**A short run:")
	require.Contains(t, text, `| Another machine | failovers, the embedded library: one core |
| Another machine | idle sidecars: eight cores |
| Another machine | fleets: two cores |
`)
}

func TestARunThatWasWrittenAndReadGivesTheSameReport(t *testing.T) {
	run, dir, one, other := good(), t.TempDir(), t.TempDir(), t.TempDir()
	require.NoError(t, result.WriteHeader(dir, run.Header))
	for _, trial := range run.Trials {
		require.NoError(t, result.WriteTrial(dir, trial))
	}
	for part, value := range map[result.Part]any{
		result.Failovers: run.Failovers, result.Idles: run.Idle, result.Embeddeds: run.Embedded,
		result.Fleets: run.Fleets,
	} {
		require.NoError(t, result.WritePart(dir, part, value))
	}
	read, err := result.Read(dir)
	require.NoError(t, err)
	for to, r := range map[string]*result.Run{one: run, other: read} {
		_, err := Write(r, to)
		require.NoError(t, err)
	}
	for _, name := range []string{markdownFile, dataFile} {
		want, err := os.ReadFile(filepath.Join(one, name))
		require.NoError(t, err)
		got, err := os.ReadFile(filepath.Join(other, name))
		require.NoError(t, err)
		require.Equal(t, want, got, name)
	}
}

func TestProgramsReadTheRunAndTheVerdicts(t *testing.T) {
	run, dir := good(), t.TempDir()
	_, err := Write(run, dir)
	require.NoError(t, err)
	got, err := Read(dir)
	require.NoError(t, err)
	require.Equal(t, &Report{targetsOf(run), run}, got)
	require.Equal(t, good(), run, "the run is left as it is")
}

func TestAnEmptyRunIsReportedAsNothingMeasured(t *testing.T) {
	dir := t.TempDir()
	verdicts, err := Write(&result.Run{}, dir)
	require.NoError(t, err)
	require.Equal(t, "0 of 61 targets reached, 61 not measured", verdicts)
}

func TestADirectoryThatIsNotThereIsNamed(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "nowhere")
	_, err := Write(good(), dir)
	require.ErrorContains(t, err, dir)
}
