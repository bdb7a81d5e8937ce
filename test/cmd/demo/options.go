package main

import (
	"cmp"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"

	"github.com/quorate/quorate/test/harness"
)

// The scenarios.
const (
	// healthy: every member is well when the image changes.
	healthy = "healthy"
	// sickMember: one follower has been down before the image changes.
	sickMember = "sick-member"
	// etcdDruid: the pods are those of the real etcd-druid, and their sidecars change too.
	etcdDruid = "druid"
)

// versions are those of etcd before and after the upgrade.
type versions struct{ from, to string }

func (o options) versions() versions {
	if o.scenario == etcdDruid {
		return versions{"3.4.34", "3.5.27"}
	}
	return versions{"3.5.35", "3.6.16"}
}

// The update strategies: Quorate rolls the pods with the first, Kubernetes' own
// StatefulSet controller with the second.
const (
	onDelete      = string(appsv1.OnDeleteStatefulSetStrategyType)
	rollingUpdate = string(appsv1.RollingUpdateStatefulSetStrategyType)
)

// Fewer than three members cannot lose one and keep quorum; certificates are made for
// no more than seven.
const (
	fewestReplicas = 3
	mostReplicas   = 7
)

// What the pods run on, as harness.NodesVariable names it. nodesAuto is settled before anything starts.
const (
	nodesAuto    = "auto"
	nodesKubelet = "kubelet"
	nodesAgent   = "agent"
)

type options struct {
	scenario string
	strategy string
	nodes    string
	// dir takes all data and logs; empty for a new temporary directory.
	dir      string
	keep     bool
	replicas int
	// network is empty until it is settled, unless a flag names it.
	network string
	// plain asks for lines even where quorate status could have the terminal.
	plain bool
	// timeout bounds everything but building and starting.
	timeout time.Duration
}

const usage = `Shows an etcd cluster being upgraded from 3.5 to 3.6, on a real Kubernetes API, the real
StatefulSet controller and real etcd, all on this machine. For root on Debian the pods run on real
nodes: kubelets with containerd and runc, which are fetched and unpacked, not installed. Elsewhere
an agent stands in for the nodes and runs containers as processes.
The scenario druid shows the real etcd-druid too, and the upgrade of its pods from 3.4 to 3.5.
It needs root, and the sources of etcd-druid: from the usual Go module proxy, or from the folder
that QUORATE_HOSTS names.

Usage: demo [flags]

Flags (SCENARIO, STRATEGY and QUORATE_NODES in the environment are the defaults of their flags):
`

const exitCodes = `
Exit code: 0 what was to be seen was seen; 1 it was not, or something failed; 2 wrong
flags, or what they need is not here; 130 or 143 interrupted. Ctrl-C cleans up; a second
one does not wait for it.
`

// parse reads flags and environment. On --help it prints the usage and returns
// flag.ErrHelp.
func parse(args []string, getenv func(string) string, help io.Writer) (options, error) {
	var o options
	fs := flag.NewFlagSet("demo", flag.ContinueOnError)
	fs.SetOutput(io.Discard)
	fs.StringVar(&o.scenario, "scenario", cmp.Or(getenv("SCENARIO"), healthy),
		"`what` is shown: healthy, sick-member (one follower is down before the image changes), "+
			"or druid (the pods of the real etcd-druid)")
	fs.StringVar(&o.strategy, "strategy", cmp.Or(getenv("STRATEGY"), onDelete),
		"`who` replaces the pods: OnDelete (Quorate) or RollingUpdate (Kubernetes itself)")
	fs.IntVar(&o.replicas, "replicas", fewestReplicas,
		fmt.Sprintf("`number` of members, %d to %d", fewestReplicas, mostReplicas))
	fs.StringVar(&o.nodes, "nodes", cmp.Or(getenv(harness.NodesVariable), nodesAuto),
		"`what` the pods run on: kubelet (real nodes), agent (containers are processes), "+
			"or auto (real nodes where they can be had)")
	fs.StringVar(&o.network, "network", "",
		"`how` the agent gives pods addresses: loopback (no privileges needed) or namespaces (root: a network "+
			"namespace per pod) (default: loopback, but namespaces for the scenario druid, which needs them)")
	fs.StringVar(&o.dir, "dir", "",
		"`directory` for data and logs, new or empty; it is kept "+
			"(default: a temporary directory, removed unless the demo fails)")
	fs.BoolVar(&o.keep, "keep", false, "keep the temporary directory")
	fs.BoolVar(&o.plain, "plain", false, "on a terminal too, print a line for each change of quorate status")
	fs.DurationVar(&o.timeout, "timeout", 10*time.Minute, "`limit` for everything after building and starting")
	err := fs.Parse(args)
	if errors.Is(err, flag.ErrHelp) {
		fmt.Fprint(help, usage)
		fs.SetOutput(help)
		fs.PrintDefaults()
		fmt.Fprint(help, exitCodes)
		return o, err
	}
	if err != nil {
		return o, err
	}
	return o, o.check(fs.Args())
}

// settled is what the options become when it is known whether there can be real nodes. real says why there cannot, and
// is asked only if it matters.
func (o options) settled(real func() error, say func(string)) (options, error) {
	if o.nodes == nodesAuto && o.network != "" {
		o.nodes = nodesAgent
	}
	if o.nodes != nodesAgent {
		err := real()
		switch {
		case err == nil:
			o.nodes, o.network = nodesKubelet, string(harness.Namespaces)
			return o, nil
		case o.nodes == nodesKubelet:
			return o, fmt.Errorf("--nodes %s: %w; use %s", o.nodes, err, nodesAgent)
		}
		say(fmt.Sprintf("there are no real nodes here, so an agent stands in for them: %v", err))
		o.nodes = nodesAgent
	}
	if o.network == "" {
		o.network = string(harness.Loopback)
		if o.scenario == etcdDruid {
			o.network = string(harness.Namespaces)
		}
	}
	return o, nil
}

// check returns every bad value, each with its flag and what to do about it.
func (o options) check(rest []string) error {
	var errs []error
	oneOf := func(flag, value string, allowed ...string) {
		if !slices.Contains(allowed, value) {
			errs = append(errs, fmt.Errorf("--%s %q: use %s", flag, value, strings.Join(allowed, " or ")))
		}
	}
	if len(rest) > 0 {
		errs = append(errs, fmt.Errorf("unexpected argument %q: only flags are understood, see --help", rest[0]))
	}
	oneOf("scenario", o.scenario, healthy, sickMember, etcdDruid)
	oneOf("strategy", o.strategy, onDelete, rollingUpdate)
	oneOf("nodes", o.nodes, nodesAuto, nodesKubelet, nodesAgent)
	if o.network != "" {
		oneOf("network", o.network, string(harness.Loopback), string(harness.Namespaces))
	}
	if o.network != "" && o.nodes == nodesKubelet {
		errs = append(errs, fmt.Errorf("--network %s: with --nodes %s give none; real nodes have their own network",
			o.network, o.nodes))
	}
	if o.replicas < fewestReplicas || o.replicas > mostReplicas {
		errs = append(errs, fmt.Errorf("--replicas %d: use %d to %d; fewer cannot lose a member and keep quorum",
			o.replicas, fewestReplicas, mostReplicas))
	}
	if quorum := o.replicas/2 + 1; o.scenario == sickMember && o.strategy == rollingUpdate && o.replicas-2 >= quorum {
		errs = append(errs, fmt.Errorf("--replicas %d: with --scenario %s and --strategy %s use 3 or 4; "+
			"of more, one can be down and another be replaced without loss", o.replicas, sickMember, rollingUpdate))
	}
	if o.scenario == etcdDruid && o.strategy == rollingUpdate {
		errs = append(errs, fmt.Errorf("--strategy %s: with --scenario %s use %s, which is what deploy/druid sets",
			o.strategy, o.scenario, onDelete))
	}
	if o.scenario == etcdDruid && o.replicas != fewestReplicas {
		errs = append(errs, fmt.Errorf("--replicas %d: with --scenario %s use %d", o.replicas, o.scenario,
			fewestReplicas))
	}
	if o.scenario == etcdDruid && o.network == string(harness.Loopback) {
		errs = append(errs, fmt.Errorf("--network %s: with --scenario %s use %s; etcd-druid's pods all listen on the "+
			"same ports", o.network, o.scenario, harness.Namespaces))
	}
	if o.timeout <= 0 {
		errs = append(errs, fmt.Errorf("--timeout %v: give a positive duration such as 10m", o.timeout))
	}
	if entries, err := os.ReadDir(o.dir); o.dir != "" && err == nil && len(entries) > 0 {
		errs = append(errs, fmt.Errorf("--dir %q: is not empty; name a new or empty directory", o.dir))
	}
	return errors.Join(errs...)
}
