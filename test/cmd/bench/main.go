// Command bench measures what an update of an etcd cluster costs, by Quorate and by what
// else a user could choose, and what Quorate itself costs. See docs/benchmarks.md.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"k8s.io/klog/v2"

	"github.com/quorate/quorate/test/bench"
	"github.com/quorate/quorate/test/bench/fleet"
	"github.com/quorate/quorate/test/bench/report"
	"github.com/quorate/quorate/test/bench/result"
	"github.com/quorate/quorate/test/harness"
	"github.com/quorate/quorate/test/harness/kubelet"
)

const usage = `bench measures, on real parts and in one run, what an update of an etcd cluster costs.

  bench [flags]                measure, and write the report
  bench [flags] plan           say how many trials that would be, and about how long each part would take
  bench [flags] report DIR...  write the report again, of the run in the directory; of several directories as one run,
                               if they were measured with the same code, versions and settings, and all trials on the
                               same machine (what else is of another one is named)

Parts of a run: trials (updates by every arm in every case), cost (what a sidecar costs),
hosts (the same of etcd-backup-restore with Quorate inside and without, where network namespaces
and its sources can be had), fleet (a thousand StatefulSets). The whole takes hours and wants
a machine for itself; --parts, --cases, --rounds, --lanes and --for make it shorter.

Real nodes (--nodes=kubelet) have kubelets and a container runtime. Only trials run on them: the
cases %s,
each by the arms %s, unless flags say otherwise. The report has a
table of its own for them.

Flags:
`

// options are the flags.
type options struct {
	bench.Options
	parts []string
	out   string
	fleet fleet.Options
	// atOnce is the size of the small fleet.
	atOnce int
}

func main() {
	harness.Launcher()
	fleet.MaybeHost()
	o, arguments, err := parse(os.Args[1:])
	if err != nil {
		exit(2, "%v", err)
	}
	o.Published = published()
	if len(arguments) > 0 {
		do := func() error { return again(arguments, o.out) }
		if arguments[0] == "plan" {
			do = func() error { return plan(o, arguments[1:]) }
		}
		if err := do(); err != nil {
			exit(1, "%v", err)
		}
		return
	}
	o.Say = func(l string) { fmt.Println(l) }
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP)
	if err := chooseNodes(o); err != nil {
		exit(1, "%v", err)
	}
	if o.Network == harness.Namespaces {
		harness.Enter(ctx, o.Say, targets(o)...)
	}
	// The second signal ends it at once; the kernel then kills its processes.
	context.AfterFunc(ctx, func() {
		fmt.Println("interrupted: stopping everything (once more to end at once)")
		stop()
	})
	if err := o.directory(time.Now()); err != nil {
		exit(1, "%v", err)
	}
	if err := run(ctx, o); err != nil {
		if ctx.Err() != nil {
			fmt.Printf("interrupted; everything was stopped, what was measured is in %s\n", o.Dir)
			os.Exit(130)
		}
		exit(1, "%v\nwhat was measured is in %s", err, o.Dir)
	}
}

// chooseNodes tells the harness what to fetch for the nodes. What the environment says of them is meant for tests.
func chooseNodes(o options) error {
	nodes, required := agentNodes, ""
	if o.RealNodes {
		nodes, required = result.RealNodes, "1"
	}
	return errors.Join(os.Setenv(harness.NodesVariable, nodes), os.Setenv(kubelet.RequireVariable, required))
}

// plan says what a run would be, and about how long.
func plan(o options, more []string) error {
	if len(more) > 0 {
		return fmt.Errorf("unexpected arguments %q after plan; see --help", more)
	}
	if slices.Contains(o.parts, "trials") {
		text, err := bench.Estimate(o.Options)
		if err != nil {
			return err
		}
		fmt.Println(text)
	}
	for _, part := range o.parts {
		if takes := about(part, o); takes > 0 {
			fmt.Printf("%s: about %v\n", part, takes)
		}
	}
	return nil
}

func exit(code int, format string, args ...any) {
	fmt.Fprintf(os.Stderr, "bench: "+format+"\n", args...)
	os.Exit(code)
}

// allParts in the order in which they are measured.
var allParts = []string{"trials", "cost", "hosts", "fleet"}

// fixed are the flags of which a short run has values of its own.
var fixed = []string{"rounds", "pairs", "cases", "arms", "fleet-clusters", "fleet-over", "fleet-at-once",
	"fleet-workers", "fleet-beside"}

func parse(args []string) (options, []string, error) {
	var o options
	flags := flag.NewFlagSet("bench", flag.ExitOnError)
	flags.Usage = func() {
		fmt.Fprintf(flags.Output(), usage, strings.Join(bench.Core, ", "), strings.Join(bench.Paired, " and "))
		flags.PrintDefaults()
	}
	flags.BoolVar(&o.Short, "short", false,
		"measure just enough to show that everything works, in some minutes; the figures mean nothing")
	flags.IntVar(&o.Rounds, "rounds", 3,
		"how often every case is played by every arm (once where every ordinal of 5 or 7 leads)")
	flags.IntVar(&o.Pairs, "pairs", 0, "how often "+strings.Join(result.Deciding, " and ")+" are at least played by "+
		strings.Join(bench.Paired, " and by ")+", in more rounds if need be")
	cases := flags.String("cases", "", "only these cases, separated by commas: "+strings.Join(result.CaseNames(), ","))
	arms := flags.String("arms", "", "only these arms: "+strings.Join(result.ArmNames(), ","))
	parts := flags.String("parts", strings.Join(allParts, ","), "what to measure")
	flags.DurationVar(&o.For, "for", 0, "after how long no new trial begins (default: no limit)")
	flags.Uint64Var(&o.Seed, "seed", 1, "what the order of the trials is drawn from")
	flags.StringVar(&o.Dir, "dir", "",
		"directory for the raw data and the report (default: a new one in .build/bench); "+
			"that of an earlier run is refused")
	flags.StringVar(&o.out, "out", "", "directory for the report (default: that of the raw data)")
	flags.IntVar(&o.Lanes, "lanes", 1,
		"how many trials run at a time, but for healthy clusters, whose milliseconds count; two save time on two cores")
	flags.IntVar(&o.fleet.Clusters, "fleet-clusters", 1000, "how many StatefulSets the large fleet has")
	flags.DurationVar(&o.fleet.Over, "fleet-over", 12*time.Minute,
		"the time over which all of them change; everything shares this machine's cores, and two of them carry a "+
			"thousand rollouts in twelve minutes")
	flags.IntVar(&o.atOnce, "fleet-at-once", 200, "how many StatefulSets the small fleet has, which all change at once")
	beside := flags.String("fleet-beside", "",
		"programs of other releases of these benchmarks, whose coordinators are measured on the same fleets")
	workers := flags.String("fleet-workers", "3,50", "the numbers of workers of the central controller beside it")
	flags.BoolVar(&o.Keep, "keep", false, "keep the data and logs of all processes (some GB)")
	nodes := flags.String("nodes", agentNodes,
		"what pods run on: "+agentNodes+" (an agent that runs containers as processes) or "+result.RealNodes+
			" (real nodes, as root)")
	network := flags.String("network", "", "namespaces or loopback (default: namespaces where they can be had)")
	if err := flags.Parse(args); err != nil {
		return o, nil, err
	}
	for name, n := range map[string]int{"rounds": o.Rounds, "lanes": o.Lanes, "fleet-clusters": o.fleet.Clusters,
		"fleet-at-once": o.atOnce} {
		if n < 1 {
			return o, nil, fmt.Errorf("--%s %d: at least 1 is needed", name, n)
		}
	}
	if o.Pairs < 0 {
		return o, nil, fmt.Errorf("--pairs %d: a number is not negative", o.Pairs)
	}
	for name, d := range map[string]time.Duration{"for": o.For, "fleet-over": o.fleet.Over} {
		if d < 0 {
			return o, nil, fmt.Errorf("--%s %v: a time is not negative", name, d)
		}
	}
	var err error
	partsGiven := false
	flags.Visit(func(f *flag.Flag) {
		partsGiven = partsGiven || f.Name == "parts"
		if o.Short && slices.Contains(fixed, f.Name) {
			err = fmt.Errorf("--%s %s has no effect with --short: leave one of them out", f.Name, f.Value)
		}
	})
	if err != nil {
		return o, nil, err
	}
	if o.Cases, err = list("cases", *cases, result.CaseNames()); err != nil {
		return o, nil, err
	}
	if o.Arms, err = list("arms", *arms, result.ArmNames()); err != nil {
		return o, nil, err
	}
	if o.parts, err = list("parts", *parts, allParts); err != nil {
		return o, nil, err
	}
	if o.parts == nil {
		return o, nil, fmt.Errorf("--parts \"\": name at least one of %s", strings.Join(allParts, ", "))
	}
	if *beside != "" {
		o.fleet.Beside = strings.Split(*beside, ",")
	}
	for _, text := range strings.Split(*workers, ",") {
		n, err := strconv.Atoi(text)
		if err != nil || n < 1 {
			return o, nil, fmt.Errorf("--fleet-workers %q: %q is no number of workers", *workers, text)
		}
		o.fleet.Workers = append(o.fleet.Workers, n)
	}
	if o.Network, err = mode(*network); err != nil {
		return o, nil, err
	}
	if err := o.setNodes(*nodes, partsGiven); err != nil {
		return o, nil, err
	}
	return o, flags.Args(), nil
}

// agentNodes are the nodes of the harness's own agent.
const agentNodes = "agent"

// setNodes says what pods run on. On real nodes there are trials alone, and not all of them.
func (o *options) setNodes(nodes string, partsGiven bool) error {
	if nodes == agentNodes {
		return nil
	}
	if nodes != result.RealNodes {
		return fmt.Errorf("--nodes %q is neither %q nor %q", nodes, agentNodes, result.RealNodes)
	}
	not := func(format string, args ...any) error {
		return fmt.Errorf("--nodes=%s: %s", nodes, fmt.Sprintf(format, args...))
	}
	if !partsGiven {
		o.parts = []string{"trials"}
	}
	if i := slices.IndexFunc(o.parts, func(p string) bool { return p != "trials" }); i >= 0 {
		return not("--parts has %q, and only trials run on real nodes", o.parts[i])
	}
	if i := slices.IndexFunc(o.Cases, func(c string) bool { return !slices.Contains(bench.Core, c) }); i >= 0 {
		return not("--cases has %q, which runs on the agent's nodes alone; real nodes have %s", o.Cases[i],
			strings.Join(bench.Core, ", "))
	}
	if i := slices.IndexFunc(o.Arms, bench.Gated); i >= 0 {
		return not("--arms has %q, which needs a control plane of its own; leave it out", o.Arms[i])
	}
	if o.Lanes > 1 {
		return not("--lanes %d: trials run one at a time on real nodes", o.Lanes)
	}
	if o.Network != harness.Namespaces {
		return not("they need network namespaces, and --network is %q", o.Network)
	}
	o.RealNodes = true
	return nil
}

func mode(network string) (harness.Mode, error) {
	problem := harness.NamespacesAvailable()
	m := harness.Mode(network)
	switch {
	case m == "":
		if m = harness.Namespaces; problem != nil {
			m = harness.Loopback
		}
	case m == harness.Namespaces && problem != nil:
		return "", fmt.Errorf("--network %q: %w", network, problem)
	case m != harness.Namespaces && m != harness.Loopback:
		return "", fmt.Errorf("--network %q is neither %q nor %q", network, harness.Namespaces, harness.Loopback)
	}
	return m, nil
}

// list reads a flag's list; nil when it is empty.
func list(name, text string, known []string) ([]string, error) {
	if text == "" {
		return nil, nil
	}
	given := strings.Split(text, ",")
	for _, v := range given {
		if !slices.Contains(known, v) {
			return nil, fmt.Errorf("--%s %q: %q is none of %s", name, text, v, strings.Join(known, ", "))
		}
	}
	return given, nil
}

// again does what needs no new run.
func again(arguments []string, out string) error {
	if len(arguments) < 2 || arguments[0] != "report" {
		return fmt.Errorf("unexpected arguments %q; see --help", arguments)
	}
	var runs []*result.Run
	for _, dir := range arguments[1:] {
		r, err := result.Read(dir)
		if err != nil {
			return err
		}
		runs = append(runs, r)
	}
	r, err := result.Join(buildTheSame, runs...)
	if err != nil {
		return fmt.Errorf("report on %s: %w", strings.Join(arguments[1:], ", "), err)
	}
	if out == "" {
		if len(runs) > 1 {
			return errors.New("--out: name a directory for the report, because it is of several runs")
		}
		out = arguments[1]
	}
	return write(r, out)
}

// write writes the report of a run, and says which targets the run has reached.
func write(r *result.Run, out string) error {
	if err := os.MkdirAll(out, 0o755); err != nil {
		return err
	}
	verdicts, err := report.Write(r, out)
	if err != nil {
		return fmt.Errorf("write the report: %w", err)
	}
	fmt.Printf("%s\nthe report is %s\n", verdicts, filepath.Join(out, "results.md"))
	return nil
}

// run measures and reports. What was measured before an error is kept, and reported where
// the run was not interrupted.
func run(ctx context.Context, o options) error {
	began := time.Now()
	// The libraries' own log would break into the lines.
	logs, err := os.Create(filepath.Join(o.Dir, "bench.log"))
	if err != nil {
		return err
	}
	defer logs.Close()
	klog.SetSlogLogger(slog.New(slog.NewTextHandler(logs, nil)))

	h, err := header(ctx, o)
	if err != nil {
		return err
	}
	h.Began = began.UTC().Truncate(time.Second)
	if err := result.WriteHeader(o.Dir, h); err != nil {
		return err
	}
	failed := measure(ctx, o)
	h.Seconds = time.Since(began).Seconds()
	if err := result.WriteHeader(o.Dir, h); err != nil {
		return err
	}
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	r, err := result.Read(o.Dir)
	if err != nil {
		return err
	}
	out := o.out
	if out == "" {
		out = o.Dir
	}
	if err := write(r, out); err != nil {
		return err
	}
	if failed == nil && o.Short {
		failed = verdict(r)
	}
	return failed
}

// directory makes the run's.
func (o *options) directory(began time.Time) (err error) {
	if o.Dir == "" {
		root, err := root()
		if err != nil {
			return err
		}
		o.Dir = filepath.Join(root, ".build", "bench", began.Format("20060102-150405"))
	}
	if o.Dir, err = filepath.Abs(o.Dir); err != nil {
		return fmt.Errorf("--dir %q: %w", o.Dir, err)
	}
	if entries, err := os.ReadDir(o.Dir); err == nil && len(entries) > 0 {
		return fmt.Errorf("--dir %s holds something already; name a new directory", o.Dir)
	}
	return os.MkdirAll(o.Dir, 0o755)
}

// verdict is what a short run has to show: every trial could be measured, and Quorate came to
// its end without losing a write. Whether quorum was kept is for the scenarios: here a busy
// machine alone may cost a second of it.
func verdict(r *result.Run) error {
	for _, t := range r.Trials {
		switch {
		case t.Trouble != "":
			return fmt.Errorf("%s by %s could not be measured: %s", t.Case, t.Arm, t.Trouble)
		case !result.ArmOf(t.Arm).Quorate:
		case !t.Completed:
			return fmt.Errorf("%s by %s did not come to its end", t.Case, t.Arm)
		case t.Lost > 0:
			return fmt.Errorf("%s by %s lost %d writes", t.Case, t.Arm, t.Lost)
		}
	}
	return nil
}
