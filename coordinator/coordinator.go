package coordinator

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sirupsen/logrus"

	"github.com/quorate/quorate/coordinator/election"
	"github.com/quorate/quorate/internal/gates"
	"github.com/quorate/quorate/internal/record"
	"github.com/quorate/quorate/internal/report"
	"github.com/quorate/quorate/internal/workload"
	"github.com/quorate/quorate/selfupdate"
)

// Coordinator takes part in the election and, while it may, rolls the pods.
type Coordinator struct {
	cfg      Config
	workload *workload.View
	log      *logrus.Entry
	faults   faults
	journal  report.Journal
	gates    gates.Gates
	running  atomic.Bool
	// election is our part in it, from when we know who we are.
	election elections
	heir     heirs
	// changed wakes up the loop, or the goroutine that waits to begin it.
	changed chan struct{}
	// idling is true while we are the one to coordinate and nothing is due, and looks asks for a look
	// at etcd then.
	idling atomic.Bool
	looks  chan struct{}
	// looked is when a look at etcd was last answered while the loop idled.
	looked time.Time
	// requested is true once an operator has asked for something on the Lease, until the Lease was read.
	requested atomic.Bool
	// eventFaults are the faults of the events, which are written by a goroutine of their own.
	eventFaults sharedFaults

	// started is the origin of all instants.
	started time.Time
	// self is what the others are told about us. protocol holds our identity in the record.
	self     selfupdate.Presence
	protocol record.Config
	known    bool
	// member is the name of the etcd member in our own pod; empty outside of a member's pod.
	member string
	// record is what was seen of the record. Only the turn uses it.
	record record.State
	// notPromoted is the revision that we may not write to the StatefulSet's status.
	notPromoted string
	// unfit is how long to stay away from the election the next time.
	unfit time.Duration

	mu        sync.Mutex
	endpoints []string // the configured ones, and those of the members on the last list
}

// elections is what the loop uses of the election, see [election.Candidate].
type elections interface {
	Tenure() *election.Tenure
	Confirmed() time.Time
	Silent(patience time.Duration) time.Duration
	Away() (until time.Time, unfit string)
	Resign(ctx context.Context, r election.Resignation) (had bool, err error)
}

// now is an instant on our own monotonic clock.
func (c *Coordinator) now() record.Instant { return time.Since(c.started) }

// pause waits for d or until ctx ends.
func (c *Coordinator) pause(ctx context.Context, d time.Duration) { wait(ctx, d, nil) }

// trigger announces news.
func (c *Coordinator) trigger() { wake(c.changed) }

// faultsAt counts failures at one of the journal's constants.
func (c *Coordinator) faultsAt(at string) faults { return faults{journal: &c.journal, at: at} }

// name is how people know this coordinator: by its pod, where it has one.
func (c *Coordinator) name() string {
	if c.self.Pod != "" {
		return c.self.Pod
	}
	return c.protocol.Identity
}

// owned is true while the lock is ours, as far as we know.
func (c *Coordinator) owned() bool { return c.election.Tenure() != nil }

// ours is true if it is our turn: the lock is ours, or etcd does not say whose it is.
func (c *Coordinator) ours() bool { return c.left(time.Time{}) <= 0 }

// left is for how long it is not our turn yet, if nothing changes: without the lock, as long as etcd is not silent for
// too long, or until we have rested.
func (c *Coordinator) left(rested time.Time) time.Duration {
	if c.owned() {
		return 0
	}
	return max(c.election.Silent(c.cfg.FallbackAfter), time.Until(rested))
}

// heirs says until when the lock may be handed over to us.
type heirs struct {
	mu    sync.Mutex
	until time.Time
}

func (h *heirs) expect(until time.Time) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.until = until
}

// expected is for how long the lock may still be handed over to us. It is not positive if that is not to be expected.
func (h *heirs) expected() time.Duration {
	h.mu.Lock()
	defer h.mu.Unlock()
	return time.Until(h.until)
}
