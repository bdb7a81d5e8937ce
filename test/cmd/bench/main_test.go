package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/quorate/quorate/test/bench/result"
	"github.com/quorate/quorate/test/harness"
	"github.com/quorate/quorate/test/harness/build"
)

// loopback can be had on every machine.
const loopback = "--network=loopback"

func TestByDefaultEverythingIsMeasured(t *testing.T) {
	o, arguments, err := parse([]string{loopback})
	require.NoError(t, err)
	require.Empty(t, arguments)
	require.Equal(t, []string{"trials", "cost", "hosts", "fleet"}, o.parts)
	require.Nil(t, o.Cases, "all")
	require.Nil(t, o.Arms, "all")
	require.Equal(t, 3, o.Rounds)
	require.Zero(t, o.Pairs, "as many as the rounds have")
	require.Equal(t, 1, o.Lanes, "milliseconds count")
	require.Equal(t, uint64(1), o.Seed)
	require.Zero(t, o.For, "no limit")
	require.False(t, o.RealNodes)
	require.False(t, o.Short)
	require.False(t, o.Keep)
	require.Empty(t, o.Dir, "a new one")
	require.Empty(t, o.out, "where the data are")
	require.Equal(t, 1000, o.fleet.Clusters)
	require.Equal(t, 12*time.Minute, o.fleet.Over)
	require.Equal(t, 200, o.atOnce)
	require.Equal(t, []int{3, 50}, o.fleet.Workers)
	require.Nil(t, o.fleet.Beside, "only this release")
}

func TestTheHostIsMeasuredInNamespacesByAWholeRun(t *testing.T) {
	whole := options{parts: allParts}
	whole.Network = harness.Namespaces
	short, loopback, cost := whole, whole, whole
	short.Short, loopback.Network, cost.parts = true, harness.Loopback, []string{"cost"}
	require.Contains(t, targets(whole), build.DropIn)
	for _, o := range []options{short, loopback, cost} {
		require.Equal(t, []build.Target{build.Host}, targets(o), "nothing is built for nothing")
	}
	var said []string
	short.Say = func(line string) { said = append(said, line) }
	require.NoError(t, measureHosts(t.Context(), short))
	require.Len(t, said, 1)
	require.Contains(t, said[0], "etcd-backup-restore is left out")
}

func TestFlagsSayWhatIsMeasured(t *testing.T) {
	o, arguments, err := parse([]string{
		"--rounds=2", "--pairs=20", "--cases=healthy-3,one-down", "--arms", "quorate,parallel", "--parts=trials,fleet",
		"--for=90m", "--seed=7",
		"--dir=data", "--out=docs", "--lanes=2", "--fleet-clusters=50", "--fleet-over=30s", "--fleet-at-once=9",
		"--fleet-workers=1,2,9", "--fleet-beside=old,older", "--keep", loopback,
		"report", "earlier",
	})
	require.NoError(t, err)
	require.Equal(t, []string{"report", "earlier"}, arguments)
	require.Equal(t, 2, o.Rounds)
	require.Equal(t, 20, o.Pairs)
	require.Equal(t, []string{"healthy-3", "one-down"}, o.Cases)
	require.Equal(t, []string{"quorate", "parallel"}, o.Arms)
	require.Equal(t, []string{"trials", "fleet"}, o.parts)
	require.Equal(t, 90*time.Minute, o.For)
	require.Equal(t, uint64(7), o.Seed)
	require.Equal(t, "data", o.Dir)
	require.Equal(t, "docs", o.out)
	require.Equal(t, 2, o.Lanes)
	require.Equal(t, 50, o.fleet.Clusters)
	require.Equal(t, 30*time.Second, o.fleet.Over)
	require.Equal(t, 9, o.atOnce)
	require.Equal(t, []int{1, 2, 9}, o.fleet.Workers)
	require.Equal(t, []string{"old", "older"}, o.fleet.Beside)
	require.True(t, o.Keep)
	require.Equal(t, harness.Loopback, o.Network)
}

func TestOnRealNodesThereAreTrialsOfTheCoreAlone(t *testing.T) {
	of := func(nodes string, change func(*options)) (options, error) {
		o := options{parts: allParts}
		o.Network, o.Lanes = harness.Namespaces, 1
		change(&o)
		return o, o.setNodes(nodes, len(o.parts) != len(allParts))
	}
	o, err := of("kubelet", func(*options) {})
	require.NoError(t, err)
	require.True(t, o.RealNodes)
	require.Equal(t, []string{"trials"}, o.parts, "unless parts were asked for")
	require.Nil(t, o.Cases, "the core is chosen where the trials are planned")
	o, err = of("agent", func(*options) {})
	require.NoError(t, err)
	require.False(t, o.RealNodes)
	require.Equal(t, allParts, o.parts)
	_, err = of("kubelet", func(o *options) {
		o.parts, o.Cases, o.Arms = []string{"trials"}, []string{result.OneDown}, []string{result.OrderedReady}
	})
	require.NoError(t, err)
	for want, change := range map[string]func(*options){
		`--parts has "fleet"`:          func(o *options) { o.parts = []string{"trials", "fleet"} },
		`--cases has "quiet"`:          func(o *options) { o.Cases = []string{result.Healthy3, result.Quiet} },
		`--arms has "max-unavailable"`: func(o *options) { o.Arms = []string{result.MaxUnavailable} },
		`--lanes 2`:                    func(o *options) { o.Lanes = 2 },
		`--network is "loopback"`:      func(o *options) { o.Network = harness.Loopback },
	} {
		_, err := of("kubelet", change)
		require.ErrorContains(t, err, "--nodes=kubelet: ")
		require.ErrorContains(t, err, want)
	}
}

func TestTheEstimateOfAPartGoesByItsFlags(t *testing.T) {
	o, _, err := parse([]string{loopback})
	require.NoError(t, err)
	require.Positive(t, about("cost", o))
	require.Zero(t, about("trials", o), "those are counted one by one")
	require.Zero(t, about("hosts", o), "they need namespaces")
	o.Network = harness.Namespaces
	require.Positive(t, about("hosts", o))
	longer := o
	longer.fleet.Over += time.Minute
	require.Equal(t, 3*time.Minute, about("fleet", longer)-about("fleet", o), "Quorate, and two numbers of workers")
	o.Short = true
	for _, part := range allParts {
		require.Zero(t, about(part, o))
	}
	require.ErrorContains(t, plan(o, []string{"more"}), `unexpected arguments ["more"] after plan`)
	require.NotEmpty(t, published(), "by which trials are estimated")
}

func TestEveryCaseAndEveryArmCanBeAskedFor(t *testing.T) {
	for _, c := range result.Cases {
		o, _, err := parse([]string{"--cases", c.Name, loopback})
		require.NoError(t, err)
		require.Equal(t, []string{c.Name}, o.Cases)
	}
	for _, a := range result.Arms {
		o, _, err := parse([]string{"--arms", a.Name, loopback})
		require.NoError(t, err)
		require.Equal(t, []string{a.Name}, o.Arms)
	}
}

func TestABadFlagIsRefusedByItsNameAndValue(t *testing.T) {
	for _, c := range []struct {
		args []string
		want string
	}{
		{[]string{"--rounds=0"}, "--rounds 0: at least 1"},
		{[]string{"--pairs=-1"}, "--pairs -1: a number is not negative"},
		{[]string{"--nodes=real"}, `--nodes "real" is neither "agent" nor "kubelet"`},
		{[]string{"--rounds=-2"}, "--rounds -2: at least 1"},
		{[]string{"--lanes=0"}, "--lanes 0: at least 1"},
		{[]string{"--for=-5m"}, "--for -5m0s"},
		{[]string{"--cases=healthy-4"}, `--cases "healthy-4": "healthy-4" is none of healthy-3, healthy-5,`},
		{[]string{"--cases=healthy-3,"}, `--cases "healthy-3,": "" is none of healthy-3,`},
		{[]string{"--cases=healthy-3, one-down"}, `" one-down" is none of`},
		{[]string{"--arms=quorate,Parallel"},
			`--arms "quorate,Parallel": "Parallel" is none of ordered-ready, parallel,`},
		{[]string{"--parts=trial"}, `--parts "trial": "trial" is none of trials, cost, hosts, fleet`},
		{[]string{"--parts="}, `--parts "": name at least one of trials, cost, hosts, fleet`},
		{[]string{"--fleet-clusters=0"}, "--fleet-clusters 0: at least 1"},
		{[]string{"--fleet-over=-1s"}, "--fleet-over -1s"},
		{[]string{"--fleet-workers="}, `--fleet-workers "": "" is no number of workers`},
		{[]string{"--fleet-workers=3,0"}, `--fleet-workers "3,0": "0" is no number of workers`},
		{[]string{"--fleet-workers=3,many"}, `--fleet-workers "3,many": "many" is no number of workers`},
		{[]string{"--network=bridge"}, `--network "bridge" is neither "namespaces" nor "loopback"`},
	} {
		_, _, err := parse(append([]string{loopback}, c.args...))
		require.ErrorContains(t, err, c.want)
	}
}

func TestAShortRunRefusesWhatItWouldIgnore(t *testing.T) {
	o, _, err := parse([]string{"--short", "--parts=cost", "--seed=2", "--keep", loopback})
	require.NoError(t, err)
	require.True(t, o.Short)
	for _, flag := range []string{"--rounds=2", "--cases=quiet", "--arms=quorate", "--fleet-clusters=5",
		"--fleet-over=1s", "--fleet-workers=1", "--fleet-beside=old"} {
		_, _, err := parse([]string{"--short", flag, loopback})
		require.ErrorContains(t, err, "has no effect with --short", flag)
	}
}

func TestTheNetworkIsOfNamespacesWhereTheyCanBeHad(t *testing.T) {
	problem := harness.NamespacesAvailable()
	got, err := mode("")
	require.NoError(t, err)
	asked, refused := mode("namespaces")
	if problem == nil {
		require.Equal(t, harness.Namespaces, got)
		require.Equal(t, harness.Namespaces, asked)
		require.NoError(t, refused)
	} else {
		require.Equal(t, harness.Loopback, got)
		require.EqualError(t, refused, `--network "namespaces": `+problem.Error())
	}
}

func TestTheResultsOfAnEarlierRunAreNotOverwritten(t *testing.T) {
	t.Chdir(t.TempDir())
	here, err := os.Getwd()
	require.NoError(t, err)
	create := func(dir string) (string, error) {
		o := options{}
		o.Dir = dir
		err := o.directory(time.Now())
		return o.Dir, err
	}
	got, err := create("a/new/one")
	require.NoError(t, err)
	require.Equal(t, filepath.Join(here, "a", "new", "one"), got, "it means the same in a process that runs elsewhere")
	require.DirExists(t, got)
	_, err = create(got)
	require.NoError(t, err, "it is there, and empty")

	require.NoError(t, result.WriteHeader(got, result.Header{}))
	_, err = create("a/new/one")
	require.ErrorContains(t, err, "--dir "+got+" holds something already; name a new directory")

	require.NoError(t, os.WriteFile("file", nil, 0o644))
	_, err = create("file")
	require.ErrorContains(t, err, filepath.Join(here, "file"))
}

func TestAShortRunFailsIfSomethingCouldNotBeMeasuredOrQuorateBrokeItsWord(t *testing.T) {
	good := result.Trial{Case: result.OneDown, Arm: result.Quorate, Completed: true}
	for name, c := range map[string]struct {
		spoil func(*result.Trial)
		want  string // empty: it passes
	}{
		"all is well": {func(*result.Trial) {}, ""},
		"it could not be measured": {func(t *result.Trial) { t.Trouble = "no leader" },
			"one-down by quorate could not be measured: no leader"},
		"Quorate did not come to an end": {func(t *result.Trial) { t.Completed = false },
			"one-down by quorate did not come to its end"},
		"Quorate lost a write": {func(t *result.Trial) { t.Lost = 2 }, "one-down by quorate lost 2 writes"},
		"so it does by eviction": {func(t *result.Trial) { t.Arm, t.Completed = result.QuorateDelete, false },
			"one-down by quorate-delete did not come to its end"},
		"another arm may do badly": {func(t *result.Trial) {
			t.Arm, t.Completed, t.WithoutQuorum, t.Lost = result.Parallel, false, 6, 1
		}, ""},
		"but it has to be measured": {func(t *result.Trial) { t.Arm, t.Trouble = result.Parallel, "no leader" },
			"one-down by parallel could not be measured"},
	} {
		t.Run(name, func(t *testing.T) {
			last := good
			c.spoil(&last)
			err := verdict(&result.Run{Trials: []result.Trial{good, last}})
			if c.want == "" {
				require.NoError(t, err)
			} else {
				require.ErrorContains(t, err, c.want)
			}
		})
	}
	require.NoError(t, verdict(&result.Run{}), "the trials may be left out")
}

func TestTheReportOfAnEarlierRunIsWrittenAgain(t *testing.T) {
	dir, out := t.TempDir(), filepath.Join(t.TempDir(), "new")
	require.NoError(t, result.WriteHeader(dir, result.Header{Version: "abc"}))
	require.NoError(t, result.WriteTrial(dir,
		result.Trial{Case: result.Healthy3, Arm: result.Quorate, Position: 1, Members: 3, Completed: true, Seconds: 9}))
	require.NoError(t, again([]string{"report", dir}, out))
	require.FileExists(t, filepath.Join(out, "results.md"))
	require.NoFileExists(t, filepath.Join(dir, "results.md"))
	require.NoError(t, again([]string{"report", dir}, ""))
	require.FileExists(t, filepath.Join(dir, "results.md"), "beside the data unless told otherwise")

	later, joined := t.TempDir(), t.TempDir()
	require.NoError(t, result.WriteHeader(later, result.Header{Version: "abc"}))
	require.ErrorContains(t, again([]string{"report", dir, later}, ""), "--out")
	require.NoError(t, again([]string{"report", dir, later}, joined))
	text, err := os.ReadFile(filepath.Join(joined, "results.md"))
	require.NoError(t, err)
	require.Contains(t, string(text), "in 2 sittings")
	require.NoError(t, result.WriteHeader(later, result.Header{Version: "def"}))
	require.ErrorContains(t, again([]string{"report", dir, later}, joined), later+": the runs are not of the same code")
}

func TestTwoCommitsBuildTheSameIfNothingOfTheProductHasChanged(t *testing.T) {
	dir := t.TempDir()
	git := func(arguments ...string) string {
		t.Helper()
		out, err := exec.Command("git", append([]string{"-C", dir, "-c", "user.name=n", "-c", "user.email=e"},
			arguments...)...).CombinedOutput()
		require.NoError(t, err, string(out))
		return strings.TrimSpace(string(out))
	}
	write := func(path, text string) string {
		t.Helper()
		file := filepath.Join(dir, path)
		require.NoError(t, os.MkdirAll(filepath.Dir(file), 0o755))
		require.NoError(t, os.WriteFile(file, []byte(text), 0o644))
		git("add", ".")
		git("commit", "--quiet", "--message", path)
		return git("describe", "--always", "--abbrev=12")
	}
	commit := func(path string) string { t.Helper(); return write(path, path) }
	git("init", "--quiet")
	first := commit("go.mod")
	for _, path := range []string{"README.md", "test/bench/run.go", "coordinator/loop_test.go"} {
		require.True(t, productUnchanged(dir, first, commit(path)), path)
	}
	last := git("describe", "--always", "--abbrev=12")
	require.False(t, productUnchanged(dir, first, last+"-dirty"), "nobody knows what has changed")
	require.False(t, productUnchanged(dir, first, "0123456789ab"), "an unknown commit")
	for _, path := range []string{"coordinator/loop.go", "pkg/options/rollout.go", "go.sum", "deploy/base/role.yaml"} {
		next := commit(path)
		require.False(t, productUnchanged(dir, last, next), path)
		last = next
	}
	plain := write("coordinator/act.go", "package coordinator\n")
	require.True(t, productUnchanged(dir, plain, write("coordinator/act.go", "package coordinator\n\t// Why.\n//\n")),
		"a comment")
	directive := write("coordinator/act.go", "//go:build linux\npackage coordinator\n")
	require.False(t, productUnchanged(dir, plain, directive), "a directive")
}

func TestWhatIsNoReportIsRefused(t *testing.T) {
	for _, arguments := range [][]string{{"report"}, {"rapport", "dir"}} {
		require.ErrorContains(t, again(arguments, ""), "unexpected arguments")
	}
	empty := t.TempDir()
	require.ErrorContains(t, again([]string{"report", empty}, ""), empty+" holds no run of the benchmarks")
}

func TestTheMachineIsReadFromTheKernelsTables(t *testing.T) {
	file := filepath.Join(t.TempDir(), "table")
	require.NoError(t,
		os.WriteFile(file,
			[]byte("processor\t: 0\nmodel name\t: A CPU: fast\nmodel name\t: Another\nMemTotal:  8 kB\n"), 0o644))
	require.Equal(t, "A CPU: fast", field(file, "model name"), "of the first processor")
	require.Equal(t, "8 kB", field(file, "MemTotal"))
	require.Empty(t, field(file, "model"), "a name is a whole one")
	require.Empty(t, field(file+"2", "MemTotal"))
	require.Equal(t, "3.5.35", tag("example.com/etcd:3.5.35"))
}
