package coordinator

import (
	"context"
	"errors"
	"time"

	"github.com/quorate/quorate/coordinator/election"
	"github.com/quorate/quorate/internal/record"
)

// ownership asks etcd whether the lock is ours, and remembers what it has answered.
type ownership struct {
	c *Coordinator
	// denied is why the lock could not be shown to be ours.
	denied     error
	unanswered unanswered
}

// right says by what right the record may be claimed, and how long that still has to wait. The
// lock counts until etcd has confirmed nothing for a while and does not answer when it is asked for
// the lock (see silence). A session that is still alive proves nothing: it outlives quorum by its time to live.
//
// Since is when an outdated pod was first seen. Where etcd has been silent for long, a rollout that begins does not
// wait for that time again. If etcd is silent only to us, somebody else has the lock, and needs a moment to claim the
// record.
func (l *ownership) right(since time.Time) (record.Right, time.Duration) {
	left := l.c.cfg.FallbackAfter - l.silence()
	if l.c.owned() && (l.unanswered == (unanswered{}) || left > 0) {
		return record.ByLock, 0
	}
	return record.ByClock, max(left, l.c.cfg.FallbackAfter/4-time.Since(since))
}

// owns asks etcd whether the lock is ours. It waits for an answer only until the record may be claimed without the
// lock, because quorum may be waiting for us.
func (l *ownership) owns(ctx context.Context) bool {
	tenure := l.c.election.Tenure()
	if tenure == nil {
		l.denied, l.unanswered = nil, unanswered{} // The session has ended meanwhile.
		return false
	}
	begun := time.Now()
	asking, cancel := context.WithTimeout(ctx, max(l.c.cfg.FallbackAfter-l.silence(), l.c.cfg.FallbackAfter/4))
	defer cancel()
	l.denied = tenure.Owns(asking)
	if l.denied == nil || errors.Is(l.denied, election.ErrNotOwner) {
		l.unanswered = unanswered{}
		return l.denied == nil
	}
	if l.unanswered.since.IsZero() {
		l.unanswered.since = begun
	}
	l.unanswered.last = time.Now()
	return false
}

// unanswered is since when etcd has not said whether the lock is ours, and when the last question was given up. It is
// zero if etcd has said so.
type unanswered struct{ since, last time.Time }

// silence is for how long etcd has confirmed nothing, as far as we know. A leader that has lost quorum renews leases on
// its own until it notices, up to two election timeouts later. So a renewed lease says nothing of a quorum while the
// lock is asked for in vain. Once it has not been asked for again in FallbackAfter, a renewed lease is a reason to ask.
//
// The silence begins with the first such question also if no keep-alive was overdue by then. Until such a leader has
// noticed, it would keep our probes waiting for longer than this costs.
func (l *ownership) silence() time.Duration {
	confirmed, u := l.c.election.Confirmed(), l.unanswered
	if !u.since.IsZero() && time.Since(u.last) < l.c.cfg.FallbackAfter &&
		u.since.Sub(confirmed) <= l.c.cfg.FallbackAfter/2 {
		return time.Since(u.since)
	}
	return time.Since(confirmed)
}

// later is how much longer than for others the record has to have been free before this sidecar
// claims it by the clock. A sidecar that could not go on lets the others try first.
func (c *Coordinator) later() time.Duration {
	if until, reason := c.election.Away(); reason != "" && time.Now().Before(until) {
		return c.cfg.RecordDuration
	}
	return 0
}
