package main

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	"github.com/quorate/quorate/test/harness"
)

// statusEndsWithin is how much later than the sidecars say so the product's own status may say
// that the rollout is complete.
const statusEndsWithin = 20 * time.Second

// statusGrace is how long it may take to end when it is interrupted.
const statusGrace = 5 * time.Second

// status is `quorate status --watch`, as an operator has it on a laptop. It is what shows the
// rollout: on the terminal as long as it runs, else with a line in the timeline for each change.
type status struct {
	// ended is closed when it has ended, and err says how.
	ended chan struct{}
	err   error
}

func (d *demo) startStatus(ctx context.Context) (*status, error) {
	dir := filepath.Join(d.dir, "operator")
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	kubeconfig, err := d.kubeconfig(ctx, dir)
	if err != nil {
		return nil, err
	}
	cmd := exec.CommandContext(ctx, d.env.Binaries.Quorate, "status", d.cluster.Spec.Name, "--watch",
		"--namespace="+harness.Namespace, "--kubeconfig="+kubeconfig,
		fmt.Sprintf("--every=%v", lookEvery), fmt.Sprintf("--timeout=%v", rolloutLimit))
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
	cmd.WaitDelay = statusGrace
	d.say("quorate status %s --watch", d.cluster.Spec.Name)
	if d.onTerminal {
		cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
		d.console.Lend()
	} else {
		lines := &noting{note: func(line string) { d.env.Timeline.Note("status", "%s", line) }}
		cmd.Stdout, cmd.Stderr = lines, lines
	}
	if err := cmd.Start(); err != nil {
		d.console.TakeBack()
		return nil, fmt.Errorf("start quorate status --watch: %w", err)
	}
	s := &status{ended: make(chan struct{})}
	go func() {
		defer close(s.ended)
		s.err = cmd.Wait()
		d.console.TakeBack()
	}()
	return s, nil
}

// kubeconfig is what it reaches the API server with.
func (d *demo) kubeconfig(ctx context.Context, dir string) (string, error) {
	if d.scenario == etcdDruid {
		return d.env.Plane.KubeconfigPath(), nil
	}
	access, err := d.cluster.WriteAccess(ctx, dir)
	return access.Kubeconfig, err
}

// complete waits until it has said by its exit code 0 that the rollout is complete.
func (s *status) complete(ctx context.Context) error {
	late := fmt.Errorf("it has not ended after %v", statusEndsWithin)
	ctx, cancel := context.WithTimeoutCause(ctx, statusEndsWithin, late)
	defer cancel()
	select {
	case <-s.ended:
		if s.err == nil {
			return nil
		}
		return fmt.Errorf("quorate status --watch does not say that it is complete: %w", s.err)
	case <-ctx.Done():
		return fmt.Errorf("quorate status --watch does not say that it is complete: %w", context.Cause(ctx))
	}
}

// noting notes complete lines of what is written to it.
type noting struct {
	note func(line string)
	rest []byte
}

func (n *noting) Write(p []byte) (int, error) {
	n.rest = append(n.rest, p...)
	for {
		line, rest, found := bytes.Cut(n.rest, []byte("\n"))
		if !found {
			return len(p), nil
		}
		n.note(string(line))
		n.rest = rest
	}
}
