// Command chaos rolls real etcd clusters while everything fails around them, and fails
// itself when Quorate broke a promise. See package chaos for what is done and checked.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"k8s.io/klog/v2"

	"github.com/quorate/quorate/test/bench/report"
	"github.com/quorate/quorate/test/chaos"
	"github.com/quorate/quorate/test/chaos/soak"
	"github.com/quorate/quorate/test/harness"
)

// mostLines bounds how much of the timeline a failure prints.
const mostLines = 150

func main() {
	harness.Launcher()
	var o chaos.Options
	flag.Uint64Var(&o.Seed, "seed", 1, "the first seed; the next ones follow")
	flag.DurationVar(&o.Duration, "duration", 10*time.Minute,
		fmt.Sprintf(
			"after how long no new round begins; the last one ends within %v after that, normally within one minute",
			chaos.LastRound))
	flag.StringVar(&o.Dir, "dir", "",
		"directory for data and logs (default: a new temporary one, kept after a failure)")
	network := flag.String("network", "",
		"namespaces or loopback (default: namespaces where they can be had; loopback leaves out partitions and full "+
			"or slow disks)")
	only := flag.Bool("script", false, "print the script of the seed and do nothing")
	flag.StringVar(&o.Soak, "soak", "",
		"file that takes what sidecars occupy: one cluster for all seeds, with sidecars that live through all of it; "+
			"if anything grows, the command fails")
	keep := flag.String("figures", "", "file that takes the figures of the run as JSON, besides the table")
	page := flag.String("page", "",
		"write a page about the arguments, files of --soak, and do nothing else; fail if anything grew")
	add := flag.Bool("add", false,
		"print the sum of the figures that the arguments, files of --figures, hold, and do nothing")
	flag.Parse()
	switch {
	case *add:
		os.Exit(sum(flag.Args()))
	case *page != "":
		os.Exit(writePage(*page, flag.Args()))
	}
	if *only {
		fmt.Print(chaos.Draw(o.Seed))
		return
	}
	say := func(line string) { fmt.Println(line) }
	problem := harness.NamespacesAvailable()
	switch o.Network = harness.Mode(*network); {
	case o.Network == "" && problem != nil && os.Getenv(harness.RequireNamespaces) != "":
		refuse("%s is set, but network namespaces are not available: %v", harness.RequireNamespaces, problem)
	case o.Network == "" && problem != nil:
		o.Network = harness.Loopback
		say(fmt.Sprintf("without partitions and disk faults: %v", problem))
	case o.Network == "":
		o.Network = harness.Namespaces
	case o.Network == harness.Namespaces && problem != nil:
		refuse("--network %q: %v", *network, problem)
	case o.Network != harness.Namespaces && o.Network != harness.Loopback:
		refuse("--network %q is neither %q nor %q", *network, harness.Namespaces, harness.Loopback)
	}
	if flag.NArg() > 0 || o.Duration <= 0 {
		refuse("unexpected arguments %q, or --duration %v is not positive", flag.Args(), o.Duration)
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP)
	if o.Network == harness.Namespaces {
		harness.Enter(ctx, say)
	}
	// The second signal ends it at once; the kernel then kills its processes.
	context.AfterFunc(ctx, func() {
		say("interrupted: stopping everything (once more to end at once)")
		stop()
	})
	o.Say = say
	os.Exit(run(ctx, o, *keep))
}

// sum prints the figures of several runs, added up.
func sum(files []string) int {
	total := &chaos.Figures{}
	for _, name := range files {
		one := &chaos.Figures{}
		text, err := os.ReadFile(name)
		if err == nil {
			err = json.Unmarshal(text, one)
		}
		if err != nil {
			fmt.Fprintf(os.Stderr, "chaos: figures of %s: %v\n", name, err)
			return 1
		}
		total.Add(one)
	}
	fmt.Print(total)
	return 0
}

// writePage writes the page of soaks.
func writePage(path string, files []string) int {
	if len(files) == 0 {
		refuse("--page wants the files of one soak or more")
	}
	var runs []*soak.Run
	total := &chaos.Figures{}
	for _, name := range files {
		run, err := soak.Read(name)
		one := &chaos.Figures{}
		if err == nil && run.Chaos != nil {
			err = json.Unmarshal(run.Chaos, one)
		}
		if err != nil {
			fmt.Fprintf(os.Stderr, "chaos: soak of %s: %v\n", name, err)
			return 1
		}
		runs = append(runs, run)
		total.Add(one)
	}
	slices.SortFunc(runs, func(a, b *soak.Run) int { return a.Began.Compare(b.Began) })
	wrong, err := report.WriteSoak(path, runs, total.String())
	if err != nil {
		fmt.Fprintln(os.Stderr, "chaos:", err)
		return 1
	}
	for _, w := range wrong {
		fmt.Fprintln(os.Stderr, "chaos:", w)
	}
	if len(wrong) > 0 {
		return 1
	}
	return 0
}

// write keeps the figures in a file.
func write(name string, figures *chaos.Figures) error {
	text, err := json.MarshalIndent(figures, "", "  ")
	if err != nil {
		return err
	}
	return os.WriteFile(name, append(text, '\n'), 0o644)
}

// refuse ends the command where it is asked for what it cannot do.
func refuse(format string, args ...any) {
	fmt.Fprintf(os.Stderr, "chaos: "+format+"\n", args...)
	os.Exit(2)
}

func run(ctx context.Context, o chaos.Options, keep string) int {
	temporary := o.Dir == ""
	if temporary {
		dir, err := os.MkdirTemp("", "quorate-chaos-")
		if err != nil {
			fmt.Fprintln(os.Stderr, "chaos:", err)
			return 1
		}
		o.Dir = dir
	}
	if err := os.MkdirAll(o.Dir, 0o755); err != nil {
		fmt.Fprintln(os.Stderr, "chaos:", err)
		return 1
	}
	// The libraries' own log would break into the lines.
	logs, err := os.Create(filepath.Join(o.Dir, "chaos.log"))
	if err != nil {
		fmt.Fprintln(os.Stderr, "chaos:", err)
		return 1
	}
	defer logs.Close()
	klog.SetSlogLogger(slog.New(slog.NewTextHandler(logs, nil)))

	figures, err := chaos.Run(ctx, o)
	fmt.Printf("\n%s", figures)
	if keep != "" {
		if err := write(keep, figures); err != nil {
			fmt.Fprintln(os.Stderr, "chaos:", err)
			return 1
		}
	}
	switch {
	case err == nil, ctx.Err() != nil:
		if temporary {
			if err := os.RemoveAll(o.Dir); err != nil {
				fmt.Fprintln(os.Stderr, "chaos:", err)
				return 1
			}
		}
		if err != nil {
			fmt.Println("interrupted; everything was stopped")
			return 130
		}
		return 0
	}
	var failure *chaos.Failure
	if errors.As(err, &failure) {
		seed, again := failure.Seed, "chaos"
		if o.Soak != "" {
			seed, again = o.Seed, "soak"
		}
		fmt.Printf("\nthe end of the timeline:\n%s",
			tail(filepath.Join(o.Dir, fmt.Sprintf("seed-%d", seed), "timeline.log")))
		fmt.Printf("\nagain: make %s SEED=%d\n", again, seed)
	}
	fmt.Printf("FAILED: %v\nscript, timeline, evidence, history and the logs of all processes are in %s\n", err, o.Dir)
	return 1
}

// tail is the end of a file.
func tail(path string) string {
	data, err := os.ReadFile(path)
	if err != nil {
		return err.Error() + "\n"
	}
	lines := strings.SplitAfter(string(data), "\n")
	return strings.Join(lines[max(0, len(lines)-mostLines):], "")
}
