// Requests that need a leader. Without quorum they would hang for their whole timeout, and the cure of a cluster that
// has lost quorum would wait for them. So they end as soon as the member itself is known to have no leader.

package membership

import (
	"context"
	"sync"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// leaderPatience is how long a read is repeated at a member that knows no leader, and leaderPoll is how
// often. While leadership moves, the other members know no leader for some milliseconds.
const (
	leaderPatience = 300 * time.Millisecond
	leaderPoll     = 25 * time.Millisecond
)

// leaderless are the members that know no leader, as they say themselves in this observation.
type leaderless struct {
	mu      sync.Mutex
	members map[memberKey]noLeader
}

// memberKey names a member: a URL may lead to one of another cluster.
type memberKey struct{ cluster, member uint64 }

// noLeader is since when a member has known no leader, when it said so last, and at which term.
type noLeader struct {
	since, said time.Time
	term        uint64
}

// wordLasts is for how long a leader's word that it leads no more counts for its followers. It is asked for as long as
// its own read hangs, so it has either said so again by then, or has been answered.
const wordLasts = 2 * leaderPoll

// note takes in what a member says, and returns since when it has had no leader, or zero if it has one. It had one
// until led. A leader that has stepped down has just proved to its followers that it leads, and they go on believing so
// for up to two election timeouts. Its own word is better, as long as it is fresh, unless they know of a later term.
func (all *leaderless) note(st *pb.StatusResponse, led, asked time.Time) time.Time {
	all.mu.Lock()
	defer all.mu.Unlock()
	self := memberKey{st.Header.GetClusterId(), st.Header.GetMemberId()}
	if st.Leader != 0 {
		delete(all.members, self)
		l := all.members[memberKey{self.cluster, st.Leader}]
		if asked.Sub(l.said) > wordLasts || l.term < st.RaftTerm {
			return time.Time{}
		}
		return l.since
	}
	l, ok := all.members[self]
	if !ok {
		l.since = led
	}
	l.said, l.term = asked, st.RaftTerm
	all.members[self] = l
	return l.since
}

// whileLed returns a context for a request that needs a leader. It ends when the member has had no leader for so
// long. A member refuses such a request only if it knows no leader when the request comes. A request that came
// earlier would hang: without quorum, a member takes a second or two to notice that it has no leader.
//
// A request that is answered at once costs nothing more. The context given must not require a leader: etcd would refuse
// even to say that it has none.
func (o *Observer) whileLed(ctx context.Context, client *clientv3.Client, patience time.Duration) (context.Context,
	func()) {
	ctx, cancel := context.WithCancelCause(ctx)
	var asking sync.WaitGroup
	asking.Go(func() {
		again := time.NewTimer(headStart)
		defer again.Stop()
		begun := time.Now()
		for led := begun; ; again.Reset(leaderPoll) {
			select {
			case <-ctx.Done():
				return
			case <-again.C:
			}
			asked := time.Now()
			st, err := o.status(ctx, client)
			if err != nil {
				led = time.Now()
				continue
			}
			since := o.leaderless.note(st, led, asked)
			if since.IsZero() {
				led = time.Now()
			} else if asked.Sub(since) >= patience && asked.Sub(begun) >= patience {
				cancel(rpctypes.ErrNoLeader)
				return
			}
		}
	})
	return ctx, func() { cancel(nil); asking.Wait() }
}
