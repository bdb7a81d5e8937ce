package coordinator

import (
	"context"
	"errors"
	"sync"
	"time"
)

// place is what this sidecar has in the election: nothing, a session in which it waits, or the
// lock. The candidate keeps it up; whoever leads goes by it.
type place struct {
	mu      sync.Mutex
	session *session
	tenure  *tenure // nil unless the lock is ours
	// last is when a session that is over was last confirmed, and failing is true while no new
	// one can be had.
	last    time.Time
	failing bool
	// over: no lock is wanted any more.
	over bool
	// away says that this sidecar stays out of the election until then. Without a reason, that is
	// because its own pod goes.
	away   time.Time
	reason string
}

// enter says that there is a session.
func (p *place) enter(s *session) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.session, p.tenure, p.failing = s, nil, false
}

// own says that the lock is ours. It returns false after the end: then nobody would give it back.
func (p *place) own(t *tenure) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.over {
		p.tenure = t
	}
	return !p.over
}

// leave says that the session is over, and returns true if the lock was lost with it.
func (p *place) leave(s *session) (lost bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	lost = p.tenure != nil
	p.session, p.tenure, p.last = nil, nil, s.confirmed()
	return lost
}

// fails says that no session can be had.
func (p *place) fails() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.failing = true
}

// resign takes the tenure out of the place, so that the lock can be given back, and says until
// when no other is wanted.
func (p *place) resign(reason string, away time.Time, over bool) *tenure {
	p.mu.Lock()
	defer p.mu.Unlock()
	t := p.tenure
	p.tenure, p.reason, p.away = nil, reason, away
	p.over = p.over || over
	return t
}

// staysAway returns until when this sidecar stays out of the election, and why.
func (p *place) staysAway() (until time.Time, reason string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.away, p.reason
}

func (p *place) owned() *tenure {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.tenure
}

// confirmed is when etcd last confirmed a session of ours, as far as we know; zero if it never did.
func (p *place) confirmed() time.Time {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.session != nil {
		return p.session.confirmed()
	}
	return p.last
}

// silentSince is when etcd last confirmed a session of ours, and now if it never did.
func (p *place) silentSince(now time.Time) time.Time {
	if last := p.confirmed(); !last.IsZero() {
		return last
	}
	return now
}

// silent returns after how long etcd will have been silent for too long, if it stays so; it has
// been where that is not positive. Whoever waits for the lock may then be needed without it.
// In good health one keep-alive follows the other within half a patience (see join); so after a
// whole one, one of them has not been answered for half.
func (p *place) silent(patience time.Duration) time.Duration {
	p.mu.Lock()
	session, failing, last := p.session, p.failing, p.last
	p.mu.Unlock()
	switch {
	case session != nil:
		last = session.confirmed()
	case failing:
		return 0
	case last.IsZero():
		return patience // The first session is yet to come, or to fail.
	}
	return patience - time.Since(last)
}

// candidate takes part in the election until ctx ends, over one session after the other.
func (c *Coordinator) candidate(ctx context.Context) {
	for ctx.Err() == nil {
		until, reason := c.place.staysAway()
		if left := time.Until(until); left > 0 {
			if reason == "" {
				c.pause(ctx, left)
			} else {
				c.abstain(ctx, reason, left)
			}
			continue
		}
		s, err := c.join(ctx, c.self)
		if err == nil {
			c.faults.clear()
			c.takePart(ctx, s)
		} else if ctx.Err() == nil {
			c.withoutSession()
			c.pause(ctx, min(c.faults.note(c.log, "no etcd session", err), longestWithoutSession))
		}
	}
}

// takePart waits for the lock, has it until it is given back or lost, and ends the session.
func (c *Coordinator) takePart(ctx context.Context, s *session) {
	defer c.keepAddresses(ctx, s)()
	c.place.enter(s)
	c.trigger()
	t, err := s.wait(ctx) // Which ends the session if it ends without the lock.
	switch {
	case err == nil && c.place.own(t):
		c.log.Debug("this sidecar holds the lock")
		c.trigger()
		<-t.Done() // Whoever leads gives it back, when ctx ends as well, and ends the session.
		if c.place.leave(s) {
			c.log.Warn("the etcd session ended")
			s.close(ctx)
		}
	case err == nil:
		s.close(ctx)
		fallthrough
	default:
		c.place.leave(s)
	}
	c.trigger()
	switch {
	case err == nil || ctx.Err() != nil:
	case errors.Is(err, errReordered):
		c.log.Debug("lining up again for the lock")
	default:
		c.pause(ctx, c.faults.note(c.log, "cannot take part in the election", err))
	}
}

// abstain stays out of the queue for a while, and tells the others why.
func (c *Coordinator) abstain(ctx context.Context, why string, least time.Duration) {
	c.account.metrics.Unfit(true)
	defer c.account.metrics.Unfit(false)
	ctx, cancel := context.WithTimeout(ctx, least)
	defer cancel()
	self := c.self
	self.Unfit = why
	for ctx.Err() == nil {
		s, err := c.join(ctx, self)
		if err != nil {
			c.withoutSession()
			c.pause(ctx, longestWithoutSession)
			continue
		}
		c.place.enter(s)
		select {
		case <-s.Done():
		case <-ctx.Done():
		}
		c.place.leave(s)
		s.close(ctx)
	}
}

// withoutSession says that no session can be had, so that the fallback begins.
func (c *Coordinator) withoutSession() {
	c.place.fails()
	c.trigger()
}

// trigger says that there is news, and never waits.
func (c *Coordinator) trigger() {
	select {
	case c.changed <- struct{}{}:
	default: // A look is due already.
	}
}
