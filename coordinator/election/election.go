package election

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/sirupsen/logrus"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/quorate/quorate/selfupdate"
)

// Dial opens an etcd client for these endpoints. Whoever calls it closes the client.
type Dial = func(endpoints []string) (*clientv3.Client, error)

// Config is what a candidate needs. Fields that are not said to be optional are required.
type Config struct {
	// Dial opens a client for each session. The session puts deadlines of its own into that client.
	Dial Dial
	// Prefix is where the election's keys live, such as /quorate/namespace/statefulset.
	Prefix string
	// Self is what the others are told.
	Self selfupdate.Presence
	// AtHome is true if this process has a member of its own that Where leads to: the one in its own pod. A process
	// without one (a Job, a laptop) leaves no stream open at any member.
	AtHome bool
	// Where says where a session may begin now: at home at the own member alone, if that serves. Without an endpoint
	// the error says why there is none. With endpoints it says why nothing should be expected of them.
	Where func(ctx context.Context) (endpoints []string, err error)
	// Members are the client URLs of all members that are known.
	Members func() []string

	// TTL is how long the lock of a process that died outlives it, in whole seconds.
	TTL time.Duration
	// KeepAlive is the time from one keep-alive to the next, and Timeout bounds each request.
	KeepAlive, Timeout time.Duration

	// The rest is optional.

	// Changed is called when there is news: see [Candidate.Tenure] and [Candidate.Silent].
	Changed func()
	// Failed is called when no session can be had, or one was lost while it waited. It returns how long to pause.
	// Works is called when there is a session.
	Failed func(what string, err error) (pause time.Duration)
	Works  func()
	// Joined is told when this process has its first session, and what the owner of the lock says then.
	Joined func(owner selfupdate.Presence)
	// Abstains is told when this process begins to stay away because it is unfit, and when that is over.
	Abstains func(bool)
	// Beside runs beside each session until ctx ends, and may send requests over its client.
	Beside func(ctx context.Context, client *clientv3.Client)
	// Log receives what an operator may want to know.
	Log *logrus.Entry
}

func (c Config) complete() Config {
	none := func() {}
	if c.Changed == nil {
		c.Changed = none
	}
	if c.Failed == nil {
		c.Failed = func(string, error) time.Duration { return Retry }
	}
	if c.Works == nil {
		c.Works = none
	}
	if c.Joined == nil {
		c.Joined = func(selfupdate.Presence) {}
	}
	if c.Abstains == nil {
		c.Abstains = func(bool) {}
	}
	if c.Beside == nil {
		c.Beside = func(context.Context, *clientv3.Client) {}
	}
	if c.Log == nil {
		silent := logrus.New()
		silent.SetOutput(io.Discard)
		c.Log = logrus.NewEntry(silent)
	}
	return c
}

// longestWithoutSession bounds how long a process does without the lock after that works again.
const longestWithoutSession = 2 * time.Second

// Candidate takes part in an election. See [New].
type Candidate struct {
	cfg   Config
	state state
	// joined: this process has had a session.
	joined bool
	// next is the lease of the next session. It stays the same until that has been announced, so that a failed attempt
	// leaves nothing behind: from then on the others remove the lease with its keys.
	next clientv3.LeaseID
}

// New returns a candidate, which takes part while [Candidate.Run] lasts.
func New(cfg Config) *Candidate { return &Candidate{cfg: cfg.complete()} }

// Run takes part in the election until ctx ends, over one session after the other. An owner of the lock has to give it
// back by [Candidate.Resign], also when ctx has ended: before that, Run does not return.
func (c *Candidate) Run(ctx context.Context) {
	var looking sync.WaitGroup
	defer looking.Wait()
	looking.Go(func() { c.lookOut(ctx) })
	for ctx.Err() == nil {
		until, reason := c.state.staysAway()
		switch left := time.Until(until); {
		case left > 0 && reason == "":
			pause(ctx, left, nil)
		case left > 0:
			c.abstain(ctx, reason, left)
		default:
			if s := c.begin(ctx, c.cfg.Self); s != nil {
				c.takePart(ctx, s)
			}
		}
	}
}

// Tenure is not nil while the lock is ours. That says what this process knows. [Tenure.Owns] asks etcd.
func (c *Candidate) Tenure() *Tenure { return c.state.owned() }

// Confirmed is when etcd last confirmed the lock, as far as we know: a session of ours, or that somebody else has it.
// It is zero if it never did.
func (c *Candidate) Confirmed() time.Time { return c.state.confirmed() }

// Silent returns how long it takes until etcd has confirmed no lock for so long, if it stays silent. It is not positive
// if that time has passed. A process that waits for the lock may then be needed without it. In good health one
// keep-alive follows the other within half a patience, if Config.KeepAlive says so. So after a whole one, one of them
// has not been answered for half.
func (c *Candidate) Silent(patience time.Duration) time.Duration { return c.state.silent(patience) }

// Away returns until when this process stays out of the election, and why it is unfit, if that is the reason.
func (c *Candidate) Away() (until time.Time, unfit string) { return c.state.staysAway() }

// Resignation says how an owner gives the lock back. The zero value lets everybody go on at once, also this process.
type Resignation struct {
	// Heir is who gets the lock, if it still waits for it, however many wait before it. Without one, the next in the
	// queue gets it.
	Heir *selfupdate.Peer
	// Unfit says why this process does not want the lock until Until, for the others to read. If it is empty, this
	// process just stays away until then.
	Unfit string
	Until time.Time
	// Over is true when this process wants no lock any more.
	Over bool
}

// Resign gives the lock back, within [ReleaseTimeout]. It returns false if this process did not have it.
func (c *Candidate) Resign(ctx context.Context, r Resignation) (had bool, err error) {
	if r.Heir != nil && r.Until.IsZero() {
		r.Until = time.Now().Add(lineUpAgain)
	}
	t := c.state.resign(r)
	switch {
	case t == nil:
		return false, nil
	case r.Heir != nil:
		return true, t.handOver(ctx, *r.Heir)
	}
	return true, t.release(ctx)
}

// begin returns a session as soon as one can be had, and nil when ctx has ended.
func (c *Candidate) begin(ctx context.Context, self selfupdate.Presence) *session {
	for ctx.Err() == nil {
		s, err := c.join(ctx, self)
		if err == nil {
			c.cfg.Works()
			c.state.enter(s)
			c.cfg.Changed()
			return s
		}
		if ctx.Err() != nil {
			return nil
		}
		if c.state.fails() { // While it lasts that is no news, or it would wake up whoever idles with every attempt.
			c.cfg.Changed()
		}
		pause(ctx, min(c.cfg.Failed("no etcd session", err), longestWithoutSession), nil)
	}
	return nil
}

// join opens a session and announces who we are.
func (c *Candidate) join(ctx context.Context, self selfupdate.Presence) (*session, error) {
	endpoints, doubt := c.cfg.Where(ctx)
	if len(endpoints) == 0 {
		return nil, doubt
	}
	if !c.cfg.AtHome && doubt == nil {
		endpoints = endpoints[:1]
	}
	c.next = cmp.Or(c.next, newLease())
	s, err := open(ctx, &c.cfg, endpoints, c.next)
	switch {
	case err != nil && doubt != nil:
		// clientv3 keeps trying, and in the end its only reason is that the time ran out.
		return nil, fmt.Errorf("%w (%w)", err, doubt)
	case err != nil:
		return nil, err
	}
	if err := s.begin(ctx, self, !c.joined); err != nil {
		s.close(ctx)
		return nil, err
	}
	if !c.joined {
		c.cfg.Joined(s.owner)
	}
	c.joined, c.next = true, 0
	return s, nil
}

// takePart waits for the lock, and keeps it until it is handed over, given back or lost. When it has been handed over,
// the session goes on, and everything begins anew.
func (c *Candidate) takePart(ctx context.Context, s *session) {
	var beside sync.WaitGroup
	defer beside.Wait()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	beside.Go(func() { c.cfg.Beside(ctx, s.client) })
	var err error
	for again, over := false, false; !over; again = true {
		over, err = c.candidacy(ctx, s, again)
		c.cfg.Changed()
	}
	if err != nil && ctx.Err() == nil {
		pause(ctx, c.cfg.Failed("cannot take part in the election", err), nil)
	}
}

// candidacy is one wait for the lock, and what follows. It returns true when the session is over.
func (c *Candidate) candidacy(ctx context.Context, s *session, again bool) (over bool, err error) {
	t, err := s.lock(ctx, again)
	if err != nil {
		s.close(ctx)
		c.state.leave(s)
		return true, err
	}
	if !c.state.own(t) {
		s.close(ctx)
		c.state.leave(s)
		return true, nil
	}
	c.cfg.Log.Debug("this sidecar holds the lock")
	c.cfg.Changed()
	select { // The host gives it back and ends the session, also when ctx ends.
	case <-t.given:
		return false, nil
	case <-s.Done():
	}
	if c.state.leave(s) {
		c.cfg.Log.Warn("the etcd session ended")
		s.close(ctx)
	}
	return true, nil
}

// abstain stays out of the queue for a while and tells the others why.
func (c *Candidate) abstain(ctx context.Context, why string, least time.Duration) {
	c.cfg.Abstains(true)
	defer c.cfg.Abstains(false)
	ctx, cancel := context.WithTimeout(ctx, least)
	defer cancel()
	self := c.cfg.Self
	self.Unfit = why
	for s := c.begin(ctx, self); s != nil; s = c.begin(ctx, self) {
		select {
		case <-s.Done():
		case <-ctx.Done():
		}
		c.state.leave(s)
		s.close(ctx)
	}
}
