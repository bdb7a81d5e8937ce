package report

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"encoding/xml"
	"flag"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/quorate/quorate/test/bench/result"
)

var (
	update = flag.Bool("update", false, "write the expected files anew")
	look   = flag.String("look", "", "write the report of a large made-up run into this directory, to look at it")
)

// small is a run with something of everything: an arm that never ends, quorum that is lost for
// good, trials with trouble, a lost write, and targets that are reached, not reached and not measured.
func small() *result.Run {
	run := synthetic(2, result.Healthy3, result.OneDown, result.QuorumLoss)
	for i := range run.Trials {
		switch t := &run.Trials[i]; {
		case t.Case == result.OneDown && t.Arm == result.Quorate && t.Round == 2:
			*t = result.Trial{Case: t.Case, Arm: t.Arm, Round: t.Round, Position: t.Position, Members: t.Members,
				Leader: t.Leader, Began: t.Began,
				FirstAction: -1, Trouble: "nobody led for 30 s |\nbefore the template was changed"}
		case t.Case == result.Healthy3 && t.Arm == result.Quorate && t.Leader == 2 && t.Round == 1:
			t.Planned, t.Unplanned = 1, 1
		case t.Case == result.OneDown && t.Arm == result.Parallel && t.Round == 1:
			t.Lost, t.Unverified, t.Note = 1, 2, "etcd-1 does not start before the template is changed"
		}
	}
	run.Failovers = []result.Failover{
		{How: "graceful", Round: 1, LockTTL: 10, Seconds: 0.21}, {How: "SIGKILL", Round: 1, LockTTL: 10, Seconds: 9.5},
		{How: "graceful", Round: 2, LockTTL: 10, Seconds: 0.32}, {How: "SIGKILL", Round: 2, LockTTL: 10, Seconds: 12.5},
	}
	run.Idle = []result.Idle{
		{Role: "holder", Members: 3, Seconds: 60, Kubernetes: map[string]float64{"get leases": 6},
			Etcd:    map[string]float64{"LeaseKeepAlive": 18},
			Watches: 2, CPUPercent: 0.11, Usage: result.Usage{Processes: 1, Anonymous: 9.5, Resident: 40}},
		{Role: "waiter", Members: 3, Seconds: 60, CPUPercent: 0.05,
			Usage: result.Usage{Processes: 2, Anonymous: 8.5, Resident: 39}},
	}
	run.Embedded = []result.Embedded{
		{When: "idle", Without: 8, With: 10.5, Round: 1}, {When: "rollout", Without: 8.5, With: 13, Round: 1},
		{When: "idle", Without: 8.1, With: 10.9, Round: 2}, {When: "rollout", Without: 8.4, With: 13.2, Round: 2},
	}
	run.Hosts = []result.Host{
		{Program: result.HostAlone, When: "idle", Members: 3, Seconds: 180,
			Kubernetes: map[string]int{"get leases": 54}, Bytes: 51200, Etcd: map[string]int{"KV/Range": 360},
			Usage: result.Usage{Processes: 3, CPUSeconds: 1.8, Anonymous: 21, Resident: 80}},
		{Program: result.HostQuorate, When: "rollout", Members: 3, Seconds: 90, Bytes: 307200,
			Kubernetes: map[string]int{"create pods/eviction": 3, "get leases": 27, result.Renewal: 3},
			Etcd:       map[string]int{"KV/Range": 270, "Maintenance/Status": 90},
			Usage:      result.Usage{Processes: 6, CPUSeconds: 4.5, Anonymous: 25.5, Resident: 84}},
	}
	before := thousand
	before.Release = "bench-of-old"
	run.Fleets = []result.Fleet{thousand, before, central}
	run.Micro = "BenchmarkDecide-2   \t  100000\t     12345 ns/op\t    2048 B/op\t      20 allocs/op\n"
	return run
}

func TestTheReportOfARunIsAsExpected(t *testing.T) {
	dir := t.TempDir()
	require.NoError(t, Write(small(), dir))
	golden := filepath.Join("testdata", markdownFile)
	got, err := os.ReadFile(filepath.Join(dir, markdownFile))
	require.NoError(t, err)
	if *update {
		require.NoError(t, os.WriteFile(golden, got, 0o644))
	}
	want, err := os.ReadFile(golden)
	require.NoError(t, err)
	require.Equal(t, string(want), string(got), "run go test ./bench/report -update and read what has changed")
}

func TestAReportSaysThatTheHostWasNotMeasuredWhereTheSidecarWas(t *testing.T) {
	const words = "Not measured in this run. It needs network namespaces"
	run := small()
	require.NotContains(t, markdown(reportOf(run), nil), words)
	run.Hosts = nil
	require.Contains(t, markdown(reportOf(run), nil), words)
	run.Idle = nil
	require.NotContains(t, markdown(reportOf(run), nil), "Inside etcd-backup-restore")
}

func TestAReportOfSeveralCommitsSaysWhyTheyAreOneRun(t *testing.T) {
	run := small()
	run.Header.Version, run.Header.Sittings = "abc, def", 2
	text := markdown(reportOf(run), nil)
	require.Contains(t, text, "`abc`, `def`, between which the product's code has not changed")
	require.Contains(t, text, "in 2 sittings")
	require.Contains(t, text, "an order drawn from a seed for each sitting")
	require.NotContains(t, text, "Another machine")
}

func TestAReportNamesTheMachineOfWhatWasMeasuredElsewhere(t *testing.T) {
	run := small()
	run.Elsewhere = map[result.Part]string{result.Failovers: "one core", result.Idles: "eight cores",
		result.Micro: "one core"}
	require.Contains(t, markdown(reportOf(run), nil), `| Another machine | failovers, micro-benchmarks: one core |
| Another machine | idle sidecars: eight cores |
`)
}

func TestTheSameRunGivesTheSameFiles(t *testing.T) {
	one, other := t.TempDir(), t.TempDir()
	require.NoError(t, Write(small(), one))
	require.NoError(t, Write(small(), other))
	files := filesOf(t, one)
	require.Equal(t, files, filesOf(t, other))
	var names []string
	for name := range files {
		names = append(names, name)
	}
	require.ElementsMatch(t, []string{"results.md", "results.json.gz", "one-down.svg", "healthy-3.svg",
		"quorum-loss.svg", "without-quorum.svg"}, names)
}

func TestARunThatWasWrittenAndReadGivesTheSameReport(t *testing.T) {
	run, dir, one, other := small(), t.TempDir(), t.TempDir(), t.TempDir()
	require.NoError(t, result.WriteHeader(dir, run.Header))
	for _, trial := range run.Trials {
		require.NoError(t, result.WriteTrial(dir, trial))
	}
	for part, value := range map[result.Part]any{
		result.Failovers: run.Failovers, result.Idles: run.Idle, result.Embeddeds: run.Embedded,
		result.Hosts: run.Hosts, result.Fleets: run.Fleets, result.Micro: run.Micro,
	} {
		require.NoError(t, result.WritePart(dir, part, value))
	}
	read, err := result.Read(dir)
	require.NoError(t, err)
	require.NoError(t, Write(run, one))
	require.NoError(t, Write(read, other))
	require.Equal(t, filesOf(t, one), filesOf(t, other))
}

func TestTheRunIsLeftAsItIs(t *testing.T) {
	run := small()
	require.NoError(t, Write(run, t.TempDir()))
	require.Equal(t, small(), run)
}

func TestProgramsReadTheRunWithoutItsSeriesAndAllThatWasComputedFromIt(t *testing.T) {
	run, dir := small(), t.TempDir()
	require.NoError(t, Write(run, dir))
	var got struct {
		Targets, Rows, Pairs, Estimates []json.RawMessage
		Run                             *result.Run
	}
	read(t, filepath.Join(dir, dataFile), &got)
	for i := range run.Trials {
		run.Trials[i].Series = nil
	}
	require.Equal(t, run, got.Run)
	require.Len(t, got.Targets, len(targetsOf(run)))
	require.Len(t, got.Rows, 12, "four arms in three cases")
	require.JSONEq(t, `{
		"case": "healthy-3", "arm": "quorate", "base": "ordered-ready",
		"writeStall": {"n": 6, "median": 1.0851121262819965, "least": 0.7672998643147898, "most": 1.267500977708252},
		"rollout": {"n": 6, "median": 0.9666370536141651, "least": 0.9449672084402623, "most": 1.0089858793324775}
	}`, string(got.Pairs[0]))
	require.JSONEq(t, `{
		"arm": "quorate", "clusters": 100000, "measured": 1000, "idleRequestsPerSecond": 2000, "watches": 200000,
		"memoryMiB": 20000, "peakMiB": 30000, "rollSeconds": 16,
		"rollRequestsPerSecond": 143750, "rollSharedSeconds": 2000
	}`, string(got.Estimates[0]))
}

// The published report was made by an older version of this package, so that it cannot be made again and compared.
func TestThePublishedTablesSayWhatThePublishedDataSays(t *testing.T) {
	published := filepath.Join("..", "..", "..", "docs", "benchmarks")
	page, err := os.ReadFile(filepath.Join(published, markdownFile))
	require.NoError(t, err)
	var data struct {
		Targets []struct{ What, Wanted, Measured, Verdict string }
		Run     result.Run
	}
	read(t, filepath.Join(published, dataFile), &data)
	require.NotEmpty(t, data.Targets)
	verdicts := map[string]int{}
	for _, target := range data.Targets {
		verdicts[target.Verdict]++
		require.Contains(t, string(page), "| "+target.What+" | "+target.Wanted+" | "+target.Measured+" | ")
	}
	require.Contains(t, string(page),
		fmt.Sprintf("Of %d targets in this run: **%d reached, %d not reached, %d not measured.**",
			len(data.Targets), verdicts["reached"], verdicts["not reached"], verdicts["not measured"]))
	require.Contains(t, string(page), fmt.Sprintf("| Trials | %d in %s,", len(data.Run.Trials),
		plural(rounds(data.Run.Trials), "round")))
	require.Contains(t, string(page), strings.TrimSpace(data.Run.Micro))
	require.NoError(t, Write(&data.Run, t.TempDir()), "the data can still be read")
}

// read unpacks a file of data.
func read(t *testing.T, path string, into any) {
	t.Helper()
	file, err := os.Open(path)
	require.NoError(t, err)
	defer file.Close()
	z, err := gzip.NewReader(file)
	require.NoError(t, err)
	require.NoError(t, json.NewDecoder(z).Decode(into))
}

func TestAnEmptyRunIsReportedAsNothingMeasured(t *testing.T) {
	dir := t.TempDir()
	require.NoError(t, Write(&result.Run{}, dir))
	files := filesOf(t, dir)
	require.Len(t, files, 2, "there is nothing to draw")
	require.Contains(t, files[markdownFile],
		fmt.Sprintf("**0 reached, 0 not reached, %d not measured.**", len(targetsOf(&result.Run{}))))
}

func TestADirectoryThatIsNotThereIsNamed(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "nowhere")
	require.ErrorContains(t, Write(small(), dir), dir)
}

func TestPicturesAreSmallAndCanBeReadOnAnyPage(t *testing.T) {
	pictures, err := picturesOf(synthetic(2, result.Healthy3, result.OneDown, result.SecondFails, result.QuorumLoss))
	require.NoError(t, err)
	require.Len(t, pictures, 5)
	for _, p := range pictures {
		t.Run(p.file, func(t *testing.T) {
			require.Less(t, len(p.svg), 150_000)
			require.NotEmpty(t, p.alt)
			decoder := xml.NewDecoder(bytes.NewReader(p.svg))
			drawn, sized := 0, 0
			for {
				token, err := decoder.Token()
				if err == io.EOF {
					break
				}
				require.NoError(t, err)
				start, ok := token.(xml.StartElement)
				if !ok {
					continue
				}
				style := attribute(start, "style")
				switch start.Name.Local {
				case "path":
					if drawn++; drawn == 1 {
						require.Contains(t, style, "fill:#FFFFFF", "the first thing that is drawn is a white sheet")
					}
				case "text":
					sized++
					require.NotEmpty(t, attribute(start, "textLength"), "a text keeps its width in any font")
					require.Contains(t, style, "sans-serif")
				}
			}
			require.Positive(t, sized)
		})
	}
	for _, arm := range []string{result.OrderedReady, result.Parallel, result.Quorate, result.QuorateDelete} {
		require.Contains(t, string(pictures[0].svg), ">"+result.ArmOf(arm).Title+"<", "every arm has a panel")
	}
}

func TestTheTrialWithTheMedianRolloutStandsForItsArm(t *testing.T) {
	series := &result.Series{Writes: []result.Write{{Took: 1}}, Serving: []result.Step{{Serving: 3, Voters: 3}}}
	trial := func(position int, arm string, seconds float64, completed bool) result.Trial {
		return result.Trial{Position: position, Arm: arm, Seconds: seconds, Completed: completed, Series: series}
	}
	troubled, without := trial(8, result.Quorate, 5, true), trial(9, result.Quorate, 6, true)
	troubled.Trouble, without.Series = "x", nil
	var got []int
	for _, shown := range representatives([]result.Trial{
		trial(1, result.Quorate, 9, true), trial(2, result.Quorate, 7, true), trial(3, result.Quorate, 1, false),
		troubled, without,
		trial(4, result.Parallel, 3, true), trial(5, result.Parallel, 2, true), trial(6, result.Parallel, 1, false),
		trial(7, result.Parallel, 1, false),
	}) {
		got = append(got, shown.Position)
	}
	require.Equal(t, []int{4, 1}, got, "who never ended is the slowest; of four the faster one in the middle")
}

func TestNoExtremeIsLostWhereWritesAreDrawnTogether(t *testing.T) {
	// A thousand writes a second, and ten seconds on the canvas: many share a bucket.
	var writes []result.Write
	for i := range 10_000 {
		w := result.Write{At: float64(i) / 1000, Took: 0.0005}
		if i%1000 == 100 {
			w.Took = 0.009
		}
		writes = append(writes, w)
	}
	p := axes()
	p.X.Min, p.X.Max = 0, 10
	drawn := peaks(sheet(200).Canvas, p, writes)
	require.Less(t, len(drawn), len(writes)/10)
	for second := range 10 {
		at := int((float64(second) + 0.1) / 10 * float64(len(drawn)))
		require.Equal(t, 0.009, drawn[at], "the slow write of second %d, among faster ones of the same moment", second)
	}
}

// TestLook is for people: it writes what -look asks for.
func TestLook(t *testing.T) {
	if *look == "" {
		t.Skip("no -look")
	}
	var names []string
	for _, c := range result.Cases {
		names = append(names, c.Name)
	}
	run := small()
	run.Trials = synthetic(3, names...).Trials
	require.NoError(t, Write(run, *look))
}

func attribute(e xml.StartElement, name string) string {
	for _, a := range e.Attr {
		if a.Name.Local == name {
			return a.Value
		}
	}
	return ""
}

func filesOf(t *testing.T, dir string) map[string]string {
	t.Helper()
	files := map[string]string{}
	require.NoError(t, fs.WalkDir(os.DirFS(dir), ".", func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		data, err := os.ReadFile(filepath.Join(dir, path))
		files[strings.TrimPrefix(path, "./")] = string(data)
		return err
	}))
	return files
}
