package main

import (
	"context"
	"sync"
	"time"

	"github.com/quorate/quorate/test/harness"
	"github.com/quorate/quorate/test/harness/traffic"
)

// lookEvery is how often the monitor looks.
const lookEvery = 200 * time.Millisecond

// quorumLost begins the line that says so.
const quorumLost = "QUORUM IS LOST"

// monitor notes in the timeline what happens in etcd, by the observer's word, and weighs the
// sidecars.
type monitor struct {
	cluster  *harness.Cluster
	observer *traffic.Observer
	// note reports what happens in etcd to the timeline.
	note func(format string, args ...any)

	cancel context.CancelFunc
	done   sync.WaitGroup

	// What follows belongs to the goroutine until it has ended.
	memory harness.Memory
	leader string
	lost   time.Time         // since when nobody serves
	states map[string]string // of each member, by its pod
}

// start begins to watch. Stop it in the end.
func (m *monitor) start() {
	ctx, cancel := context.WithCancel(context.Background())
	m.cancel = cancel
	m.done.Go(func() {
		ticker := time.NewTicker(lookEvery)
		defer ticker.Stop()
		for ctx.Err() == nil {
			m.weigh()
			m.tell(m.observer.Latest(), m.podOf, time.Now())
			select {
			case <-ctx.Done():
			case <-ticker.C:
			}
		}
	})
}

// stop ends the watching, and may be called again. It returns the most that any sidecar has
// occupied.
func (m *monitor) stop() harness.Memory {
	m.cancel()
	m.done.Wait()
	return m.memory
}

func (m *monitor) weigh() {
	for _, pod := range m.cluster.Pods() {
		used, err := m.cluster.Memory(pod, "backup-restore")
		if err != nil {
			continue // It is not running just now.
		}
		m.memory.Anonymous = max(m.memory.Anonymous, used.Anonymous)
		m.memory.Resident = max(m.memory.Resident, used.Resident)
	}
}

// tell notes what has changed: who serves, who leads, and whether anybody serves.
func (m *monitor) tell(s traffic.Sample, podOf func(endpoint string) string, now time.Time) {
	for _, p := range s.Probes {
		pod, state := podOf(p.Endpoint), "does not serve"
		if p.Serving {
			state = "serves, etcd " + p.Version
		}
		if m.states == nil {
			m.states = map[string]string{}
		}
		if m.states[pod] != state {
			m.states[pod] = state
			m.note("%s %s (%d of %d serve)", pod, state, s.Serving, len(s.Probes))
		}
		if s.Leader != 0 && p.Answered && p.MemberID == s.Leader && pod != m.leader {
			m.leader = pod
			m.note("%s leads, raft term %d", pod, s.Term)
		}
	}
	switch {
	case s.Serving == 0 && m.lost.IsZero():
		m.lost = now.Add(-patience)
		m.note("%s: for %v no member has answered a linearizable read", quorumLost, patience)
	case s.Serving > 0 && !m.lost.IsZero():
		m.note("quorum is back after %.1fs", now.Sub(m.lost).Seconds())
		m.lost = time.Time{}
	}
}

func (m *monitor) podOf(endpoint string) string {
	for _, pod := range m.cluster.Pods() {
		if m.cluster.Endpoint(pod) == endpoint {
			return pod
		}
	}
	return endpoint
}
