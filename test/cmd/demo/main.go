// Command demo shows an etcd cluster being upgraded by its own sidecars without losing
// quorum, or by Kubernetes itself with the loss of it. It runs on the harness: a real
// Kubernetes API and StatefulSet controller, real nodes where they can be had, real etcd, the real
// quorate binary.
//
// What is shown is judged as well: the exit code says whether the invariants of
// Quorate held. See --help.
//
// What is shown is the harness's timeline, and of a rollout by Quorate the product's own
// `quorate status --watch`, which has the terminal meanwhile.
//
// The files: options (flags, and what the pods run on), run (the course of the demo), druid (what is different with the
// real etcd-druid), status (the product's own), monitor (what happens in etcd), console (what
// is printed), signals, outcome (what was measured, and the verdict), summary.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"golang.org/x/term"
	"k8s.io/klog/v2"

	"github.com/quorate/quorate/test/harness"
	"github.com/quorate/quorate/test/harness/build"
	"github.com/quorate/quorate/test/harness/network"
)

// Exit codes; a signal's is 128 and its number.
const (
	exitFailure  = 1
	exitBadInput = 2
	exitSignal   = 128
)

func main() {
	harness.Launcher()
	o, err := parse(os.Args[1:], os.Getenv, os.Stdout)
	switch {
	case errors.Is(err, flag.ErrHelp):
		return
	case err != nil:
		fail("%v", err)
		os.Exit(exitBadInput)
	}
	os.Exit(start(prepare(o)))
}

// beganVariable tells the program inside its namespaces when it began outside, where it builds.
const beganVariable = "QUORATE_DEMO_BEGAN"

// beginning is when the program began.
func beginning(getenv func(string) string, now time.Time) time.Time {
	if began, err := time.Parse(time.RFC3339Nano, getenv(beganVariable)); err == nil {
		return began
	}
	return now
}

// withoutNamespaces says what to do if there are none and the flags need them.
func withoutNamespaces(o options, err error) error {
	switch {
	case err == nil:
		return nil
	case o.scenario == etcdDruid:
		return fmt.Errorf("--scenario %q: %w; run it as root, or see another scenario", o.scenario, err)
	case o.network == string(harness.Namespaces):
		return fmt.Errorf("--network %q: %w; use %q", o.network, err, harness.Loopback)
	}
	return nil
}

// prepare decides what is still open, and moves the program into namespaces of its own if they are wanted. In that
// case the program outside only decides and builds, and does not return.
func prepare(o options) options {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	out := newConsole(os.Stdout)
	if network.InNamespace() {
		harness.Enter(ctx, out.Progress)
		o.nodes, o.network = os.Getenv(harness.NodesVariable), string(harness.Namespaces)
		return o
	}
	set := func(name, value string) { _ = os.Setenv(name, value) } // It only fails for a bad name.
	set(beganVariable, time.Now().Format(time.RFC3339Nano))
	out.Say(bold, introduction(o))
	if err := withoutNamespaces(o, harness.NamespacesAvailable()); err != nil {
		refuse(err)
	}
	real := func() error { return harness.RealNodesAvailable(ctx, out.Progress) }
	o, err := o.settled(real, out.Progress)
	if ctx.Err() != nil {
		stop()
		out.Say(normal, "Interrupted.")
		os.Exit(exitSignal + int(syscall.SIGINT)) //nolint:gocritic // What was deferred is done.
	}
	if err != nil {
		refuse(err)
	}
	set(harness.NodesVariable, o.nodes)
	if o.network != string(harness.Namespaces) {
		return o
	}
	var others []build.Target
	if o.scenario == etcdDruid {
		out.Progress("looking for the sources of etcd-druid and of the programs in its pods")
		if err := withoutHosts(ctx, build.Source); err != nil {
			refuse(err)
		}
		others = hosts
	}
	warnOfBuild(o, out.Progress)
	harness.Enter(ctx, out.Progress, others...)
	return o
}

// refuse ends the program because what its flags need is not here.
func refuse(err error) {
	fail("%v", err)
	os.Exit(exitBadInput)
}

func fail(format string, args ...any) {
	for l := range strings.Lines(fmt.Sprintf(format, args...)) {
		fmt.Fprintln(os.Stderr, "demo:", strings.TrimRight(l, "\n"))
	}
}

// start runs the demo between a fresh directory and its removal, and returns the
// exit code.
func start(o options) int {
	signals := takeSignals()
	dir, temporary, err := directory(o.dir)
	if err != nil {
		fail("%v", err)
		return exitFailure
	}
	// The libraries' own log would break into what is shown.
	logs, err := os.Create(filepath.Join(dir, "demo.log"))
	if err != nil {
		fail("%v", err)
		return exitFailure
	}
	defer logs.Close()
	klog.SetSlogLogger(slog.New(slog.NewTextHandler(logs, nil)))

	out := newConsole(signals.watch(os.Stdout))
	ctx := signals.handle(out, func() {
		if temporary {
			_ = harness.Discard(dir) // What still runs may write again.
		}
	})
	d := &demo{options: o, console: out, onTerminal: onTerminal() && !o.plain, dir: dir,
		begin: beginning(os.Getenv, time.Now())}
	result, err := d.run(ctx)
	code := conclude(out, result, err, d.notStopped, signals.first())

	if temporary && !o.keep && (code != exitFailure || !hasLogs(dir)) {
		if err := os.RemoveAll(dir); err != nil {
			fail("remove the temporary directory: %v", err)
			return exitFailure
		}
		return code
	}
	fmt.Printf("Logs of every process, the timeline and the history are in %s\n", dir)
	return code
}

// conclude prints how it ended and returns the exit code.
func conclude(out *console, result *outcome, err, notStopped error, sig syscall.Signal) int {
	switch {
	case notStopped != nil:
		fail("%v", errors.Join(err, fmt.Errorf("not everything could be stopped: %w", notStopped)))
		return exitFailure
	case sig != 0:
		out.Say(normal, "Interrupted; everything was stopped.")
		return exitSignal + int(sig)
	case err != nil:
		fail("%v", err)
		return exitFailure
	}
	for _, l := range result.summary() {
		out.Say(l.how, l.text)
	}
	if !result.judge().ok {
		return exitFailure
	}
	return 0
}

func directory(named string) (dir string, temporary bool, err error) {
	if named == "" {
		dir, err = os.MkdirTemp("", "quorate-demo-")
		return dir, true, err
	}
	if dir, err = filepath.Abs(named); err != nil {
		return "", false, fmt.Errorf("--dir %q: %w", named, err)
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return "", false, fmt.Errorf("--dir %q: %w", named, err)
	}
	return dir, false, nil
}

// hasLogs is true when the directory holds more than the demo's own log.
func hasLogs(dir string) bool {
	entries, err := os.ReadDir(dir)
	return err != nil || len(entries) > 1
}

func onTerminal() bool {
	return term.IsTerminal(int(os.Stdout.Fd())) && os.Getenv("TERM") != "dumb"
}

// useColour follows https://no-color.org.
func useColour() bool { return onTerminal() && os.Getenv("NO_COLOR") == "" }

func newConsole(w io.Writer) *console {
	return &console{w: w, now: time.Now, colour: useColour()}
}
