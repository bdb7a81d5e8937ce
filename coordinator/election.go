package coordinator

import (
	"context"
	"fmt"
	"time"

	"github.com/quorate/quorate/internal/selfupdate"
)

// longestWithoutSession bounds how long the fallback goes on after the lock works again.
const longestWithoutSession = 2 * time.Second

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

// takePart waits for the lock, and keeps it until it is handed over, given back or lost. When it has been handed over,
// the session goes on, and everything begins anew.
func (c *Coordinator) takePart(ctx context.Context, s *session) {
	defer c.keepAddresses(ctx, s)()
	c.place.enter(s)
	c.trigger()
	var err error
	for later, over := false, false; !over; later = true {
		over, err = c.candidacy(ctx, s, later)
		c.trigger()
	}
	if err != nil && ctx.Err() == nil {
		c.pause(ctx, c.faults.note(c.log, "cannot take part in the election", err))
	}
}

// candidacy is one wait for the lock, and what follows. It returns true when the session is over.
func (c *Coordinator) candidacy(ctx context.Context, s *session, later bool) (over bool, err error) {
	t, err := s.wait(ctx, later) // This ends the session if the wait ends without the lock.
	if err != nil {
		c.place.leave(s)
		return true, err
	}
	if !c.place.own(t) {
		s.close(ctx)
		c.place.leave(s)
		return true, nil
	}
	c.log.Debug("this sidecar holds the lock")
	c.trigger()
	select { // The loop gives it back and ends the session, also when ctx ends.
	case <-t.given:
		return false, nil
	case <-t.Done():
	}
	if c.place.leave(s) {
		c.log.Warn("the etcd session ended")
		s.close(ctx)
	}
	return true, nil
}

// abstain stays out of the queue for a while and tells the others why.
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

// withoutSession notes that no session can be opened, so that the fallback begins. While it lasts that is no news, or
// it would wake up whoever idles with every attempt.
func (c *Coordinator) withoutSession() {
	if c.place.fails() {
		c.trigger()
	}
}

// join opens a session and announces who we are.
func (c *Coordinator) join(ctx context.Context, self selfupdate.Presence) (*session, error) {
	endpoints, nobody, err := c.sessionEndpoints(ctx)
	if err != nil {
		return nil, err
	}
	if c.session == 0 {
		c.session = newLease()
	}
	s, err := openSession(ctx, c.cfg.Dial, endpoints, keysOf(c.cfg.Namespace, c.cfg.StatefulSet), c.session,
		c.cfg.LockTTL, min(c.cfg.LockTTL/3, c.cfg.FallbackAfter/2), c.cfg.ProbeTimeout)
	switch {
	case err != nil && nobody != nil:
		// clientv3 keeps trying, and in the end its only reason is that the time ran out.
		return nil, fmt.Errorf("%w (%w)", err, nobody)
	case err != nil:
		return nil, err
	}
	s.leaveHome(c.addresses)
	if err = s.announce(ctx, self); err == nil {
		err = s.tidy(ctx, self, !c.joined)
	}
	if err != nil {
		s.close(ctx)
		return nil, err
	}
	if s.heir && !c.joined && self.Pod != "" {
		c.place.expect(time.Now().Add(c.cfg.Policy.SettleTimeout))
	}
	s.addresses, c.joined, c.session = c.addresses, true, 0
	return s, nil
}

// anybody is true if a fit peer waits for the lock. Outside a member's pod there is no need to hand over.
func (c *Coordinator) anybody(ctx context.Context) bool {
	if c.self.Pod == "" {
		return false
	}
	peers, _ := c.peers(ctx)
	return selfupdate.Anybody(peers)
}

// peers are the other sidecars that take part in the election. Without a lock nobody knows them.
func (c *Coordinator) peers(ctx context.Context) (peers []selfupdate.Peer, known bool) {
	t := c.place.owned()
	if t == nil {
		return nil, false
	}
	peers, err := t.peers(ctx)
	if err != nil {
		c.log.WithError(err).Debug("nobody to hand over to")
	}
	return peers, err == nil
}
