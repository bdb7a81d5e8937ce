package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/quorate/quorate/test/bench"
	"github.com/quorate/quorate/test/bench/cost"
	"github.com/quorate/quorate/test/bench/fleet"
	"github.com/quorate/quorate/test/bench/report"
	"github.com/quorate/quorate/test/bench/result"
	"github.com/quorate/quorate/test/harness"
	"github.com/quorate/quorate/test/harness/build"
)

// targets are the binaries that are needed beside the harness's. Those that may not be had come last.
func targets(o options) []build.Target {
	all := []build.Target{build.Host}
	if wantsHosts(o) {
		all = append(all, build.Hosts...)
	}
	return all
}

// fleetLimit is how long after the last change of a template a fleet is watched, closeLimit
// bounds the end of a harness.
const (
	fleetLimit = 5 * time.Minute
	closeLimit = 2 * time.Minute
)

// published are the trials of the published run, by which is estimated how long others take. Without them, an estimate
// goes by the trials' limits.
func published() []result.Trial {
	dir, err := root()
	if err != nil {
		return nil
	}
	r, err := report.Read(filepath.Join(dir, "docs", "benchmarks"))
	if err != nil {
		return nil
	}
	return r.Run.Trials
}

// about is how long a part takes, but for the trials, by the time for which it watches: idle and embedded sidecars and
// failovers; etcd-backup-restore; each fleet under each coordinator, which first has to start. A short run's parts take
// a minute or two each.
func about(part string, o options) time.Duration {
	if o.Short {
		return 0
	}
	switch part {
	case "cost":
		return 18 * time.Minute
	case "hosts":
		if wantsHosts(o) {
			return 12 * time.Minute
		}
	case "fleet":
		coordinators := 1 + len(o.fleet.Workers) + len(o.fleet.Beside)
		const around, rollout = 5 * time.Minute, 40 * time.Second
		each := 2*(around+rollout) + o.fleet.Over
		return (each * time.Duration(coordinators)).Round(time.Minute)
	}
	return 0
}

// root is the checkout's.
func root() (string, error) { return build.Root() }

// measure measures all parts. One that fails does not keep the others from being measured.
func measure(ctx context.Context, o options) error {
	var errs []error
	part := func(name string, do func(context.Context, options) error) {
		if !slices.Contains(o.parts, name) || ctx.Err() != nil {
			return
		}
		if takes := about(name, o); takes > 0 {
			o.Say(fmt.Sprintf("%s: this takes about %v", name, takes))
		}
		if err := do(ctx, o); err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", name, err))
		}
	}
	part("trials", func(ctx context.Context, o options) error { return bench.Trials(ctx, o.Options) })
	part("cost", measureCost)
	part("hosts", measureHosts)
	part("fleet", measureFleet)
	return errors.Join(errs...)
}

// measureCost measures what a sidecar costs. What one of its parts has found is kept when
// another fails.
func measureCost(ctx context.Context, o options) error {
	// On loopback addresses, whatever the trials use: a host program beside the cluster has to
	// reach its members by the URLs in the member list, and names resolve in pods only.
	loopback := harness.Options{Network: harness.Loopback, Patient: true}
	return onHarness(ctx, o, "cost", loopback, func(c cost.Options) error {
		idle, err := cost.Idle(ctx, c)
		errs := []error{err, result.WritePart(o.Dir, result.Idles, idle)}
		failovers, err := cost.Failover(ctx, c)
		errs = append(errs, err, result.WritePart(o.Dir, result.Failovers, failovers))
		embedded, err := cost.Embedded(ctx, c)
		return errors.Join(append(errs, err, result.WritePart(o.Dir, result.Embeddeds, embedded))...)
	})
}

// measureHosts measures etcd-backup-restore without Quorate and with it. Where that cannot be done it is left out,
// and so it is in a short run.
func measureHosts(ctx context.Context, o options) error {
	if !wantsHosts(o) {
		o.Say("etcd-backup-restore is left out: it needs network namespaces, and more time than a short run has")
		return nil
	}
	err := onHarness(ctx, o, "hosts", harness.Options{Network: o.Network, Hosts: true}, func(c cost.Options) error {
		hosts, err := cost.Hosts(ctx, c)
		return errors.Join(err, result.WritePart(o.Dir, result.Hosts, hosts))
	})
	if errors.Is(err, build.ErrNoHosts) {
		o.Say(fmt.Sprintf("etcd-backup-restore is left out: %v", err))
		return nil
	}
	return err
}

// wantsHosts tells whether etcd-backup-restore is to be measured, if it can be had.
func wantsHosts(o options) bool {
	return slices.Contains(o.parts, "hosts") && !o.Short && o.Network == harness.Namespaces
}

// onHarness measures something on a harness of its own.
func onHarness(ctx context.Context, o options, name string, h harness.Options,
	do func(cost.Options) error) (err error) {
	h.Dir = filepath.Join(o.Dir, "work", name)
	env, err := harness.Start(ctx, h)
	if err != nil {
		return err
	}
	defer func() {
		closing, cancel := context.WithTimeout(context.WithoutCancel(ctx), closeLimit)
		defer cancel()
		err = errors.Join(err, env.Close(closing))
		if err == nil && !o.Keep {
			err = os.RemoveAll(h.Dir)
		}
	}()
	return do(cost.Options{Env: env, Short: o.Short, Say: o.Say})
}

// measureFleet measures a large fleet that changes over a time and a small one that changes at
// once, and in short one of the size that is its default then.
func measureFleet(ctx context.Context, o options) error {
	large, small := o.fleet, o.fleet
	large.Limit = large.Over + fleetLimit
	small.Clusters, small.Over, small.Limit = o.atOnce, 0, fleetLimit
	all := []fleet.Options{large, small}
	if o.Short {
		all = []fleet.Options{{Short: true}}
	}
	var measured []result.Fleet
	for n, f := range all {
		f.Dir, f.Seed, f.Say = filepath.Join(o.Dir, "work", fmt.Sprintf("fleet-%d", n+1)), o.Seed, o.Say
		those, err := fleet.Run(ctx, f)
		measured = append(measured, those...)
		if err == nil && !o.Keep {
			err = os.RemoveAll(f.Dir)
		}
		if err = errors.Join(err, result.WritePart(o.Dir, result.Fleets, measured)); err != nil {
			return err
		}
	}
	return nil
}
