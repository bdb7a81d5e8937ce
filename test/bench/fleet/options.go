// Package fleet measures what it costs to have many clusters: one process that hosts the
// coordinators of a whole fleet, and beside it one central controller with a bounded number
// of workers on the same fleet.
//
// Real are the API server, its StatefulSet and disruption controllers, every StatefulSet, pod, PodDisruptionBudget
// and Lease, the library (coordinator.New and Run, one for each pod, with the clients and defaults that the sidecar
// gives it, but for its patience with etcd), and all connections between them: each coordinator has a connection to
// the API server and etcd clients of its own. Simulated are the kubelets, which only write what a kubelet writes, and
// etcd: one small server answers for all members, each at an address of its own
// ([github.com/quorate/quorate/internal/etcdtest]). A member answers while its pod's containers run, and a
// coordinator ends and begins with its pod.
//
// What is measured runs in a process of its own, so that neither the simulation nor the
// API server blurs its memory and CPU; see [MaybeHost]. What it asks of the API server is counted outside of it, at a
// proxy that has a connection to the API server for each of its connections.
package fleet

import (
	"errors"
	"fmt"
	"path/filepath"
	"time"
)

// Options say how large the fleet is and what is measured. The zero value of each means its
// default, which [Options.Short] lowers.
type Options struct {
	// Clusters is the number of StatefulSets, default 1000 (short: 20), each in a namespace of
	// its own, and Members the replicas of each, default 3.
	Clusters, Members int
	// PodDown is how long a replaced pod is down, default 10 s (short: 2 s). For a quarter of that it goes, and for the
	// rest its successor comes up. How long it was really down is told in the result's note.
	PodDown time.Duration
	// IdleFor is for how long the idle fleet is watched, default one minute (short: 5 s). Except in a short run, that
	// begins once the owners of the locks have read all that they read at first.
	IdleFor time.Duration
	// Over spreads the changes of the templates over this time. The default is 0: all change at
	// once. Every coordinator of the fleet shares the cores of this machine with the API server,
	// which no real fleet does; where they cannot keep up, leases expire for want of a processor
	// and the figures are those of the machine. Then the fleet has to be smaller, or slower.
	Over time.Duration
	// Workers are the numbers of workers for which the central controller is measured, default
	// 3, which is etcd-druid's own default, and 50 (short: 3).
	Workers []int
	// Beside are programs of other releases of these benchmarks, whose coordinators are measured on the same fleet.
	Beside []string
	// Limit bounds each rollout of the whole fleet, default five minutes (short: 1 min). A
	// fleet that needs longer reports how much of it was rolled by then.
	Limit time.Duration
	// Dir takes all data and logs. Required.
	Dir string
	// Seed is what the first leaders are drawn from.
	Seed uint64
	// Short asks for a run that only shows that it works.
	Short bool
	// Say is told what is being done; nil for silence.
	Say func(line string)
}

// mostClusters is where the addresses of the members end; see address.
const mostClusters = 250 * 250

func (o Options) complete() (Options, error) {
	def := Options{Clusters: 1000, Members: 3, PodDown: 10 * time.Second, IdleFor: time.Minute, Workers: []int{3, 50},
		Limit: 5 * time.Minute}
	if o.Short {
		def = Options{Clusters: 20, Members: 3, PodDown: 2 * time.Second, IdleFor: 5 * time.Second, Workers: []int{3},
			Limit: time.Minute}
	}
	if o.Clusters == 0 {
		o.Clusters = def.Clusters
	}
	if o.Members == 0 {
		o.Members = def.Members
	}
	if o.PodDown == 0 {
		o.PodDown = def.PodDown
	}
	if o.IdleFor == 0 {
		o.IdleFor = def.IdleFor
	}
	if o.Workers == nil {
		o.Workers = def.Workers
	}
	if o.Limit == 0 {
		o.Limit = def.Limit
	}
	if o.Say == nil {
		o.Say = func(string) {}
	}
	var errs []error
	require := func(ok bool, format string, args ...any) {
		if !ok {
			errs = append(errs, fmt.Errorf(format, args...))
		}
	}
	require(o.Dir != "", "Options.Dir is empty; name a directory for data and logs")
	require(o.Clusters > 0 && o.Clusters <= mostClusters, "Options.Clusters is %d; give 1 to %d",
		o.Clusters, mostClusters)
	require(o.Members > 0 && o.Members <= 9, "Options.Members is %d; give 1 to 9", o.Members)
	require(o.Over >= 0 && o.Over < o.Limit,
		"Options.Over is %v; give a time from 0 to below Options.Limit, which is %v", o.Over, o.Limit)
	require(o.PodDown > 0 && o.IdleFor > 0 && o.Limit > 0,
		"Options.PodDown is %v, IdleFor %v, Limit %v; give times above zero", o.PodDown, o.IdleFor, o.Limit)
	for _, n := range o.Workers {
		require(n > 0, "Options.Workers has %d; give numbers above zero", n)
	}
	if err := errors.Join(errs...); err != nil {
		return o, err
	}
	var err error
	o.Dir, err = filepath.Abs(o.Dir)
	return o, err
}
