package result

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"
)

// Join makes one run of several that were measured one after the other. So a part that was left out can be measured
// later, and a case can be played more often. The joined run has everything that any of them has. The rounds of each
// follow those of the one before. It began when the earliest of those with trials did. On which machine, how many
// trials ran at a time, and what the order was drawn from are those of the first one with trials. None of the runs may
// be a joined one.
//
// Commits in between may have changed documents, tests or the benchmarks, but not what is measured: same tells whether
// two commits build the same.
//
// A run without trials may be of another machine, which the joined run then names. No part is compared with another, so
// it is enough if each is of one machine. Fleets may even be of several: whoever rolls a fleet is only compared with
// others that have rolled the same fleet on the same machine, except in the estimate on paper.
//
// An error says in what they differ: the code, the machine, the versions, or how pods start. Figures of two codes are
// not those of one run.
func Join(same func(a, b string) bool, runs ...*Run) (*Run, error) {
	if len(runs) == 0 {
		return nil, errors.New("there is no run to join")
	}
	first := max(0, slices.IndexFunc(runs, func(r *Run) bool { return len(r.Trials) > 0 }))
	joined := &Run{Header: runs[first].Header}
	joined.Header.Seconds = 0
	if len(runs) > 1 {
		joined.Header.Sittings = len(runs)
	}
	var versions []string
	for _, r := range runs {
		one, other := joined.Header, r.Header
		here := machine(one) == machine(other)
		if !here && !onlyParts(r) || conditions(one) != conditions(other) || !same(one.Version, other.Version) {
			return nil, fmt.Errorf("the runs are not of the same code, machine and versions: Quorate %s on %s, %s, "+
				"and %s on %s, %s", one.Version, machine(one), conditions(one), other.Version, machine(other),
				conditions(other))
		}
		if !slices.Contains(versions, r.Header.Version) {
			versions = append(versions, r.Header.Version)
		}
		joined.Header.Seconds += r.Header.Seconds
		if len(r.Trials) > 0 && r.Header.Began.Before(joined.Header.Began) {
			joined.Header.Began = r.Header.Began
		}
		if err := joined.place(r, machine(other)); err != nil {
			return nil, err
		}
		rounds, position := 0, 0
		for _, t := range joined.Trials {
			rounds, position = max(rounds, t.Round), max(position, t.Position)
		}
		for _, t := range r.Trials {
			t.Round += rounds
			t.Position += position
			joined.Trials = append(joined.Trials, t)
		}
		joined.Failovers = slices.Concat(joined.Failovers, r.Failovers)
		joined.Idle = slices.Concat(joined.Idle, r.Idle)
		joined.Embedded = slices.Concat(joined.Embedded, r.Embedded)
		joined.Hosts = slices.Concat(joined.Hosts, r.Hosts)
		for _, f := range r.Fleets {
			if !here {
				f.Machine = machine(other)
			}
			joined.Fleets = append(joined.Fleets, f)
		}
	}
	joined.Header.Version = strings.Join(versions, ", ")
	return joined, nil
}

// onlyParts is true for a run that has no trials, but something else.
func onlyParts(r *Run) bool {
	return len(r.Trials) == 0 && (r.has(Fleets) || slices.ContainsFunc(Parts, r.has))
}

// place notes where the parts of another run were measured, before they are joined to this one.
func (r *Run) place(other *Run, on string) error {
	for _, p := range Parts {
		if !other.has(p) {
			continue
		}
		if was := cmp.Or(r.Elsewhere[p], machine(r.Header)); r.has(p) && was != on {
			return fmt.Errorf("%s: measured on %s and on %s, and all of it has to be of one machine", p.Title(), was,
				on)
		}
		if on != machine(r.Header) {
			if r.Elsewhere == nil {
				r.Elsewhere = map[Part]string{}
			}
			r.Elsewhere[p] = on
		}
	}
	return nil
}

// has is true if something of a part was measured.
func (r *Run) has(p Part) bool {
	switch p {
	case Failovers:
		return len(r.Failovers) > 0
	case Idles:
		return len(r.Idle) > 0
	case Embeddeds:
		return len(r.Embedded) > 0
	case Hosts:
		return len(r.Hosts) > 0
	case Fleets:
		return len(r.Fleets) > 0
	}
	return false
}

// machine is where a run was measured.
func machine(h Header) string {
	return fmt.Sprintf("%s, %d cores, %d MiB memory, Linux %s", h.CPU, h.Cores, h.MemoryMiB, h.Kernel)
}

// conditions are all else but the commit in which runs have to agree to be joined.
func conditions(h Header) string {
	return fmt.Sprintf("%s, Kubernetes %s, etcd %s, network %s, start delay %g s, readiness period %g s, short %t",
		h.Go, h.Kubernetes, strings.Join(h.Etcd, " and "), h.Network, h.StartDelay, h.ReadinessPeriod, h.Short)
}
