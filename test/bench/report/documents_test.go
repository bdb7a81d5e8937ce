package report

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/quorate/quorate/test/bench/result"
)

func TestTheDocumentsSayWhatThePublishedRunSays(t *testing.T) {
	d, err := Fill(filepath.Join("..", "..", ".."))
	require.NoError(t, err)
	for _, place := range d.Changed {
		t.Errorf("%s: run make figures", place)
	}
}

// filled fills in a document from the small run, whose rows are computed as they are for the report.
func filled(text string) (string, *Documents, error) {
	d := &Documents{}
	text, err := d.fill(reportOf(small()), "page.md", text)
	return text, d, err
}

func TestAFigureIsWrittenBetweenItsCommentsAndNothingElseChanges(t *testing.T) {
	for name, c := range map[string]struct{ text, want string }{
		"in a sentence": {"It takes <!--=one-down/quorate/rollout-->9<!--/--> s.\n",
			"It takes <!--=one-down/quorate/rollout-->10.2<!--/--> s.\n"},
		"in a table, twice in a line": {
			"| <!--=run/cases-->?<!--/--> | <!--=run/cases--><!--/--> |\n",
			"| <!--=run/cases-->3 cases<!--/--> | <!--=run/cases-->3 cases<!--/--> |\n"},
		"in lines of its own": {"Missed:\n\n<!--=targets/missed-->\n* nothing\n<!--/-->\n\nEnd.\n",
			"Missed:\n\n<!--=targets/missed-->\n" + strings.Join(missed(targetsOf(small())), "\n") +
				"\n<!--/-->\n\nEnd.\n"},
		"of a fleet, each for one cluster": {"| <!--=fleet/quorate/requests--><!--/--> |",
			"| <!--=fleet/quorate/requests-->23<!--/--> |"},
		"not in what explains the marks": {"`<!--=NAME-->7.5<!--/-->`\n", "`<!--=NAME-->7.5<!--/-->`\n"},
		"nor in a document without any":  {"no figure\n", "no figure\n"},
	} {
		t.Run(name, func(t *testing.T) {
			got, d, err := filled(c.text)
			require.NoError(t, err)
			require.Equal(t, c.want, got)
			again, after, err := filled(got)
			require.NoError(t, err)
			require.Equal(t, got, again)
			require.Empty(t, after.Changed, "the second time there is nothing to do")
			require.Empty(t, d.Absent)
			require.Equal(t, got == c.text, len(d.Changed) == 0)
		})
	}
}

func TestSomeFiguresAreThoseOfTheWorstTrial(t *testing.T) {
	trial := func(arm string, firstAction, stall float64, downs ...result.Down) result.Trial {
		return result.Trial{Case: result.Healthy5, Arm: arm, Completed: true, FirstAction: firstAction,
			WriteStall: stall, Downs: downs}
	}
	r := reportOf(&result.Run{Trials: []result.Trial{
		trial(result.Quorate, 0.2, 0.04, result.Down{Removed: 0.2, Ready: 4.2}, result.Down{Removed: 5, Ready: 10.6}),
		trial(result.Quorate, 1.26, 1.02, result.Down{Removed: 1.2, Ready: 5.2}, result.Down{Removed: 6, Ready: -1}),
		trial(result.Quorate, 0.1, 0.05, result.Down{Removed: 0.1, Ready: 4.1}),
		trial(result.QuorateMax, 0.1, 0.06),
		trial(result.Parallel, 0.1, 1), trial(result.OrderedReady, 0.1, 2.03), trial(result.OrderedReady, 0.1, 0.999),
	}})
	for name, want := range map[string]string{
		"healthy-5/quorate/slowest-first-action": "1.3",
		"healthy-5/quorate/longest-down":         "5.6",
		"healthy/quorate/stalled":                "1 of 3",
		"healthy/several/stalled":                "0 of 1",
		"healthy/rolling/stalled":                "2 of 3",
	} {
		got, known := r.figure(name)
		require.True(t, known, name)
		require.Equal(t, want, got, name)
	}
}

func TestAFigureThatTheRunDoesNotHaveIsLeftAloneAndListed(t *testing.T) {
	text := "one\nAbout <!--=quiet-120/quorate/steps-->45<!--/--> and <!--=idle/looks-->10<!--/-->\n"
	got, d, err := filled(text)
	require.NoError(t, err)
	require.Equal(t, text, got)
	require.Empty(t, d.Changed)
	require.Equal(t, []Place{
		{File: "page.md", Line: 2, Name: "quiet-120/quorate/steps", Had: "45"},
		{File: "page.md", Line: 2, Name: "idle/looks", Had: "10"},
	}, d.Absent)
}

func TestAMarkThatCannotBeFilledIsNamed(t *testing.T) {
	for text, want := range map[string]string{
		"one\nis <!--=one-down/quorate/speed-->1<!--/-->":    "page.md:2: one-down/quorate/speed: no figure has",
		"is <!--=one-downs/quorate/rollout-->1<!--/-->":      "no figure has this name",
		"is <!--=one-down/quorate-evict/rollout-->1<!--/-->": "no figure has this name",
		"is <!--=one-down-->1<!--/-->":                       "no figure has this name",
		"is <!--=fleet/other/requests-->1<!--/-->":           "no figure has this name",
		"is <!--=idle/other/cpu-->1<!--/-->":                 "no figure has this name",
		"one\n  <!--=restart-->1<!--/--> s":                  "page.md:2: restart: Markdown takes a line",
		"* <!--=restart-->1<!--/--> s":                       "Markdown takes a line",
		"a `<!--=restart-->1<!--/-->`":                       "restart: a mark in code is shown to readers",
		"a <!--=restart-->1 s":                               "page.md:1: <!--= without its other half",
		"a\n1<!--/--> s":                                     "page.md:2: <!--/--> without its other half",
		"a <!--=restart-->1 and <!--=run/date-->2<!--/-->":   "restart: no <!--/--> ends it",
		"a <!--=targets/missed-->1<!--/-->":                  "needs its two comments on lines of their own",
	} {
		_, _, err := filled(text)
		require.ErrorContains(t, err, want, text)
	}
}

func TestNothingIsWrittenWhereAMarkIsWrong(t *testing.T) {
	root := t.TempDir()
	benchmarks := filepath.Join(root, "docs", "benchmarks")
	require.NoError(t, os.MkdirAll(benchmarks, 0o755))
	_, err := Fill(root)
	require.ErrorContains(t, err, dataFile, "there is no published run")
	require.NoError(t, Write(small(), benchmarks))
	readme, page := filepath.Join(root, "README.md"), filepath.Join(root, "docs", "page.md")
	require.NoError(t, os.WriteFile(readme, []byte("of <!--=run/cases-->2<!--/-->\n"), 0o644))
	require.NoError(t, os.WriteFile(page, []byte("of <!--=run/case-->2<!--/-->\n"), 0o644))
	_, err = Fill(root)
	require.ErrorContains(t, err, filepath.Join("docs", "page.md")+":1: run/case: no figure has this name")

	require.NoError(t, os.WriteFile(page, []byte("none\n"), 0o644))
	d, err := Fill(root)
	require.NoError(t, err)
	require.Equal(t, []Place{{File: "README.md", Line: 1, Name: "run/cases", Had: "2", Has: "3 cases"}}, d.Changed)
	require.NoError(t, d.Write())
	d, err = Fill(root)
	require.NoError(t, err)
	require.Empty(t, d.Changed)
	text, err := os.ReadFile(readme)
	require.NoError(t, err)
	require.Equal(t, "of <!--=run/cases-->3 cases<!--/-->\n", string(text))
}

func TestEveryFigureIsKnownEvenWhereNothingWasMeasured(t *testing.T) {
	var names []string
	for name := range named {
		names = append(names, name)
	}
	for name := range ofRow {
		names = append(names, "healthy-3/quorate/"+name)
	}
	for name := range ofFleet {
		names = append(names, "fleet/central/"+name)
	}
	for name := range ofIdle {
		names = append(names, "idle/holder/"+name)
	}
	empty, full := reportOf(synthetic(0)), small()
	full.Idle[0].Seconds = 300
	full.Trials = append(full.Trials, synthetic(1, result.Healthy5).Trials...)
	for i := range full.Trials {
		full.Trials[i].Bytes, full.Trials[i].Gaps = 1<<20, []float64{0.2, 0.1, 0.3}
	}
	for _, name := range names {
		_, known := empty.figure(name)
		require.True(t, known, name)
		text, _ := reportOf(full).figure(name)
		require.NotEmpty(t, text, name)
	}
}
