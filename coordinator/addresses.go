package coordinator

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/quorate/quorate/membership"
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

// sessionEndpoints says where a session may begin: at the member of our own pod, and nowhere else. Of the URLs that a
// member advertises, it is the one under which the member has answered: others may lead to another member.
//
// A session holds streams as long as it lives, and a member that is asked to end waits up to seven seconds (etcd's
// request timeout) for the streams of its clients. At home they end together with the member. Anywhere else our session
// would keep another pod down for longer than it needs. So a sidecar whose member does not serve has no session. For as
// long as a lost lock costs, that is no fault while others serve, because etcd mostly starts after its sidecar.
//
// A process without a member of its own leaves no stream open. It may use every member that serves: one that already
// hangs would only swallow requests. Where none serves, all known ones are used, and the error says why.
func (c *Coordinator) sessionEndpoints(ctx context.Context) (endpoints []string, err error) {
	for pause := firstOwnCheck; ; pause = min(2*pause, c.cfg.Interval) {
		members := c.members()
		serving, unlisted := members.Discover(ctx)
		c.remember(members.MemberURLs())
		for i := range serving {
			if c.member != "" && serving[i].Name == c.member {
				return []string{serving[i].Probe.URL}, nil
			}
			endpoints = append(endpoints, serving[i].Probe.URL)
		}
		age := time.Since(c.started)
		switch {
		case c.member != "" && unlisted != nil && age < listPatience:
			// If our own member is the only one configured, there is no other to ask while it starts.
		case len(endpoints) == 0:
			return c.silentMembers(unlisted)
		case c.member == "":
			return endpoints, nil
		case age > c.cfg.LockTTL:
			return nil, fmt.Errorf("the member %s of this pod does not serve", c.member)
		}
		if c.pause(ctx, pause); ctx.Err() != nil {
			return nil, ctx.Err()
		}
		endpoints = nil
	}
}

// silentMembers is where a session may begin when no member serves.
func (c *Coordinator) silentMembers(unlisted error) ([]string, error) {
	if unlisted == nil {
		unlisted = errors.New("no voter on the member list answers a read")
	}
	if c.member != "" {
		return nil, unlisted
	}
	return c.addresses(), unlisted
}

// addressesEvery is how often a sidecar that idles asks where the members are. It is seldom,
// because the answer is needed only when quorum is lost and can no longer be asked for. The owner of
// the lock then also asks how the members are, because a duty may be due. What that looks for has been
// there for minutes.
const addressesEvery = time.Minute

// keepAddresses keeps the addresses of the members fresh for as long as a session is in use: when it began, members may
// not have been started yet.
func (c *Coordinator) keepAddresses(ctx context.Context, client *clientv3.Client) {
	for every := c.cfg.LockTTL; ; every = addressesEvery {
		c.pause(ctx, every)
		if ctx.Err() != nil {
			return
		}
		if c.idling.Load() {
			wake(c.looks) // A look also learns the addresses.
			continue
		}
		asking, done := context.WithTimeout(clientv3.WithRequireLeader(ctx), c.cfg.ProbeTimeout)
		list, err := client.MemberList(asking)
		done()
		if err != nil {
			continue // Keep what is known.
		}
		c.remember(membership.URLs(list.Members))
	}
}

// members asks the configured endpoints and the members of the last list: with quorum
// lost, the configured one may be of a member that is gone.
func (c *Coordinator) members() *membership.Observer {
	o := membership.NewObserver(c.cfg.Dial, c.addresses(), c.cfg.ProbeTimeout)
	o.Probed = c.journal.Metrics.Probe
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
