package result

import (
	"errors"
	"fmt"
	"slices"
	"strings"
)

// Join makes one run of several that were measured one after the other, such as one whose machine was needed for
// something else meanwhile, or one of which a case is to be played more often. Everything counts that any of them has:
// the rounds of the second one follow those of the first one. When it began, how many trials ran at a time, and what
// the order was drawn from are the first one's.
//
// An error says that they differ in the code, the machine, or what was played on it. Figures of two codes are not
// those of one run.
func Join(runs ...*Run) (*Run, error) {
	if len(runs) == 0 {
		return nil, errors.New("there is no run to join")
	}
	joined := &Run{Header: runs[0].Header}
	joined.Header.Seconds, joined.Header.Sittings = 0, 0
	var micro []string
	for _, r := range runs {
		if a, b := sameOf(joined.Header), sameOf(r.Header); a != b {
			return nil, fmt.Errorf("the runs are not of the same code, machine and versions: %s, and %s", a, b)
		}
		joined.Header.Seconds += r.Header.Seconds
		joined.Header.Sittings += max(r.Header.Sittings, 1)
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
		joined.Fleets = slices.Concat(joined.Fleets, r.Fleets)
		if r.Micro != "" {
			micro = append(micro, r.Micro)
		}
	}
	joined.Micro = strings.Join(micro, "\n")
	if joined.Header.Sittings == 1 {
		joined.Header.Sittings = 0
	}
	return joined, nil
}

// sameOf is all of a header in which the sittings of one run agree.
func sameOf(h Header) string {
	return fmt.Sprintf("Quorate %s on %s, %d cores, %d MiB, Linux %s, %s, Kubernetes %s, etcd %s, network %s, "+
		"start delay %g s, readiness period %g s, short %t", h.Version, h.CPU, h.Cores, h.MemoryMiB, h.Kernel, h.Go,
		h.Kubernetes, strings.Join(h.Etcd, " and "), h.Network, h.StartDelay, h.ReadinessPeriod, h.Short)
}
