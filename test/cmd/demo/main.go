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
// The files: options (flags, and what the pods run on), programs (what is built), run (the course of the demo), druid
// (what is different with the real etcd-druid), status (the product's own), monitor (what happens in etcd), console
// (what is printed), signals, outcome (what was measured, and the verdict), summary. The folder prepare has the
// program that builds this one.
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

// prepare decides what is still open, builds what the scenario needs, and moves the program into namespaces of its own
// if they are wanted. In that case the program outside does not return.
func prepare(o options) (options, built) {
	if network.InNamespace() {
		b, err := builtOutside(os.Getenv)
		if err == nil {
			err = network.ReexecInNamespace()
		}
		if err != nil {
			refuse(err)
		}
		o.nodes, o.network = os.Getenv(harness.NodesVariable), string(harness.Namespaces)
		return o, b
	}
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM, syscall.SIGHUP)
	defer stop()
	line := build.NewLine(os.Stdout, terminal(o))
	out := newConsole(line)
	b := built{Began: time.Now()}
	out.Say(bold, introduction(o))
	if err := withoutNamespaces(o, harness.NamespacesAvailable()); err != nil {
		refuse(err)
	}
	real := func() error { return harness.RealNodesAvailable(ctx, out.Progress) }
	o, err := o.settled(real, out.Progress)
	if err == nil && o.scenario == etcdDruid {
		out.Progress("looking for the sources of etcd-druid and of the programs in its pods")
		err = withoutHosts(ctx, build.Source)
	}
	if err != nil && ctx.Err() == nil {
		refuse(err)
	}
	if err == nil {
		err = b.build(ctx, line, programs(o.scenario))
	}
	if err != nil {
		code := exitFailure
		if ctx.Err() != nil {
			code = exitSignal + int(syscall.SIGINT)
			out.Say(normal, "Interrupted. What has been downloaded and compiled is kept.")
		} else {
			fail("%v", err)
		}
		stop()
		os.Exit(code) //nolint:gocritic // What was deferred is done.
	}
	if o.network != string(harness.Namespaces) {
		return o, b
	}
	err = errors.Join(os.Setenv(harness.NodesVariable, o.nodes), b.handInside(os.Setenv))
	if err == nil {
		err = network.ReexecInNamespace()
	}
	refuse(fmt.Errorf("enter namespaces: %w", err))
	return o, b
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
func start(o options, b built) int {
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
	d := &demo{options: o, console: out, onTerminal: terminal(o) != nil, dir: dir, built: b}
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

// terminal is the width of the terminal, or nil if there is none, or if lines are asked for instead of what changes.
func terminal(o options) func() int {
	if o.plain {
		return nil
	}
	return build.Width(os.Stdout)
}

// useColour follows https://no-color.org.
func useColour() bool { return build.Width(os.Stdout) != nil && os.Getenv("NO_COLOR") == "" }

func newConsole(w io.Writer) *console {
	return &console{w: w, colour: useColour()}
}
