package membership

import (
	"context"
	"slices"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/quorate/quorate/pkg/rollout"
)

// Dial opens a client to the given endpoints. The host owns TLS, the rotation of certificates, and
// authentication. Whoever calls Dial closes the client. It is called for several members at once. With
// a user name, clientv3.New asks the member for a token, and so it fails when the member is down. An
// error that is a gRPC status or a deadline is therefore blamed on the member. Any other error counts
// as the host's own.
//
// It should return within a deadline of its own, such as clientv3.Config's DialTimeout. An [Observer]
// does not wait for it longer than for a probe, and closes a client that comes later.
type Dial func(endpoints []string) (*clientv3.Client, error)

// Observer asks etcd who its members are and how they are. Only one goroutine may use it.
type Observer struct {
	// Probed, if not nil, is told how long each member took to answer a probe, and whether it answered.
	// It is called for several members at once.
	Probed func(took time.Duration, answered bool)
	// Relays are URLs under which a member may be asked that advertises others, such as the near ends of port-forwards.
	// An answer counts for the member whose ID it carries, and a failure says nothing about any member.
	Relays []string

	endpoints []string
	timeout   time.Duration
	clients   *clients

	// last is the last list, with the best members to ask for the next one first, see remember.
	last rollout.Membership
	// ownLists is true while every voter is asked for its own list too.
	ownLists bool
	// leaderless is of the observation under way.
	leaderless *leaderless
}

// NewObserver returns an observer of the cluster behind the endpoints, which may be those of any
// members. The timeout bounds each of the two steps of [Observer.Observe].
func NewObserver(dial Dial, endpoints []string, timeout time.Duration) *Observer {
	return &Observer{endpoints: endpoints, timeout: timeout, clients: newClients(dial)}
}

// Close closes all clients. It waits a moment for calls of [Dial] that are running. One that takes
// longer closes its client itself when it returns.
func (o *Observer) Close() {
	o.clients.dropAll()
	o.clients.settle()
}

// Observe reads the member list and probes every member. It has to be short, because it counts towards the age of the
// evidence. The members on the last list are probed while the new one is asked for, and so are those on the first
// local list where no quorum agrees on one: then all of the local lists have to be waited for. Members that only the
// new list has are probed after it. Each of the two steps takes at most the timeout, including dialling. So an
// observation takes at most twice the timeout, whoever hangs.
//
// It does not matter whether a list or a read came first. What both say was true at some time after the observation
// began, unless whoever gave the list had been paused before that. In that case the others had elected another leader
// by then, and the terms of their reads tell (see overtaken).
//
// The result holds whatever could be read, and the error says why something is missing.
func (o *Observer) Observe(ctx context.Context) (rollout.Membership, error) {
	p := &probes{o: o, earlier: o.clients.beginObservation(), asked: map[question]*asking{}}
	defer p.end()
	o.leaderless = &leaderless{members: map[memberKey]noLeader{}}
	p.begin(ctx, o.last)
	m, term, err := o.memberList(ctx, func(own rollout.Membership) { p.begin(ctx, own) })
	if !m.Known {
		return m, err
	}
	o.probeAll(ctx, &m, p)
	o.remember(m)
	m.Linearizable = m.Linearizable && !overtaken(m, term)
	return m, nil
}

// ObserveWithLists does the same, and asks every voter for the member list that it has by itself, at the same
// time as everything else. That is one request more for each of them, which needs no consensus.
func (o *Observer) ObserveWithLists(ctx context.Context) (rollout.Membership, error) {
	o.ownLists = true
	defer func() { o.ownLists = false }()
	return o.Observe(ctx)
}

// Discover returns the voters that serve now, for callers that need a client for longer than a moment
// and must not wait for a member that hangs. It returns an error when there is no member list. When no
// voter serves, the result is empty. It closes its own connections, because it is meant for the time
// outside a rollout.
func (o *Observer) Discover(ctx context.Context) ([]rollout.Member, error) {
	defer o.Close()
	m, err := o.Observe(ctx)
	silent := func(x rollout.Member) bool { return x.Learner || x.Probe.Read != rollout.Answered }
	return slices.DeleteFunc(m.Members, silent), err
}

// remember keeps the list for the next observation: the leader first, because the others would have to ask it, and at
// the end those members that did not answer. It also keeps which URL is a member's own, so that the next probe asks
// that one first. Of what they answered, nothing else is kept.
func (o *Observer) remember(m rollout.Membership) {
	rank := func(x rollout.Member) int {
		switch p := x.Probe; {
		case x.Learner || p.Read != rollout.Answered:
			return 2
		case p.Status == nil || p.Status.Leader != x.ID:
			return 1
		}
		return 0
	}
	was := map[uint64]string{}
	for _, x := range o.last.Members {
		was[x.ID] = x.Probe.URL
	}
	o.last = rollout.Membership{ClusterID: m.ClusterID}
	for _, x := range slices.SortedStableFunc(slices.Values(m.Members), func(x, y rollout.Member) int {
		return rank(x) - rank(y)
	}) {
		own := x.Probe.URL
		if own == "" || shared(m.Members, x.ID, own) {
			own = was[x.ID]
		}
		x.Probe = rollout.Probe{}
		if slices.Contains(x.ClientURLs, own) { // Otherwise the member has moved.
			x.Probe.URL = own
		}
		o.last.Members = append(o.last.Members, x)
	}
}

// MemberURLs returns the client URLs of the members on the last list, or none if there is no list, see [URLs].
func (o *Observer) MemberURLs() []string { return inOrder(o.last.Members) }
