package coordinator

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/quorate/quorate/internal/membership"
)

const (
	// firstOwnCheck is how soon a sidecar checks again whether its own member serves: a member
	// that has little to load does within half a second.
	firstOwnCheck = 100 * time.Millisecond
	// listPatience is how long a sidecar that has just started waits for the first member list
	// before it takes its endpoints as they are. It is short, because without a session the
	// fallback begins, and quorum may wait for that.
	listPatience = time.Second
)

// sessionEndpoints returns the endpoints for a session: the member of our own pod, if it
// serves. If no member is known to serve, nobody is the reason. The error is that of ctx.
// Of the URLs that a member advertises, it is the one under which the member has answered: others
// may lead to another member.
//
// A session holds streams as long as it lives, and a member that is asked to end waits up to
// seven seconds (etcd's request timeout) for the streams of its clients. At home they end
// together with the member. Anywhere else our session would keep another pod down for longer
// than it needs. So a sidecar that has just started, as after a replacement of its pod, gives
// its own member the time that a lost lock costs to come up, while others serve.
//
// Otherwise every member that serves will do, so that the loss of one does not cost the
// session. A member that already hangs would only swallow requests. Where no member serves, all
// known ones are used.
func (c *Coordinator) sessionEndpoints(ctx context.Context) (endpoints []string, nobody, err error) {
	for pause := firstOwnCheck; ; pause = min(2*pause, c.cfg.Interval) {
		members := c.members()
		serving, unlisted := members.Discover(ctx)
		c.remember(members.MemberURLs())
		endpoints = nil
		for i := range serving {
			if c.member != "" && serving[i].Name == c.member {
				return []string{serving[i].Probe.URL}, nil, nil
			}
			endpoints = append(endpoints, serving[i].Probe.URL)
		}
		age := time.Since(c.started)
		switch {
		case c.member != "" && unlisted != nil && age < listPatience:
			// If our own member is the only one configured, there is no other to ask while it
			// starts.
		case len(endpoints) == 0:
			if unlisted == nil {
				unlisted = errors.New("no voter on the member list answers a read")
			}
			return c.addresses(), unlisted, nil
		case c.member == "":
			return endpoints, nil, nil
		case age > c.cfg.LockTTL:
			c.log.WithField("member", c.member).
				Info("the member of this pod does not serve; the session lives at the others")
			return endpoints, nil, nil
		}
		c.pause(ctx, pause)
		if ctx.Err() != nil {
			return nil, nil, ctx.Err()
		}
	}
}

// addressesEvery is how often a sidecar that idles asks where the members are. It is seldom,
// because the answer is needed only when quorum is lost and can no longer be asked for. The owner of
// the lock then also asks how the members are, because a duty may be due. What that looks for has been
// there for minutes.
const addressesEvery = time.Minute

// keepAddresses keeps the addresses of the members fresh for as long as a session is in use:
// when it began, members may not have been started yet. It returns a function that ends
// it.
func (c *Coordinator) keepAddresses(ctx context.Context, s *session) (stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	var following sync.WaitGroup
	following.Go(func() {
		for every := c.cfg.LockTTL; ; every = addressesEvery {
			c.pause(ctx, every)
			if ctx.Err() != nil {
				return
			}
			if c.idling.Load() {
				wake(c.looks) // A look also learns the addresses.
				continue
			}
			asking, done := s.bounded(ctx)
			list, err := s.client.MemberList(asking)
			done()
			if err != nil {
				continue // Keep what is known.
			}
			c.remember(membership.URLs(list.Members))
		}
	})
	return func() { cancel(); following.Wait() }
}

// members asks the configured endpoints and the members of the last list: with quorum
// lost, the configured one may be of a member that is gone.
func (c *Coordinator) members() *membership.Observer {
	o := membership.NewObserver(c.cfg.Dial, c.addresses(), c.cfg.ProbeTimeout)
	o.Probed = c.account.metrics.Probe
	return o
}

func (c *Coordinator) addresses() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clone(c.endpoints)
}

func (c *Coordinator) remember(urls []string) {
	if len(urls) == 0 {
		return
	}
	for _, e := range c.cfg.Endpoints {
		if !slices.Contains(urls, e) {
			urls = append(urls, e)
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.endpoints = urls
}
