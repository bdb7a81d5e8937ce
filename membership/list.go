// Reading the member list. A list that a quorum has agreed on is the best, but without quorum there is none, and then
// the decision has to know how much of the local lists can be believed. So every answer carries how it came about.

package membership

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/peer"

	"github.com/quorate/quorate/pkg/rollout"
)

// headStart is how long the best source is asked alone: consensus before a member's own list, and the best address
// before all others. That is the leader's, because the others would have to ask it. In a healthy cluster the rest is
// never asked: two requests to each member that nobody needs, just when the next pod is to be removed.
const headStart = 100 * time.Millisecond

// listAnswer is one member's answer to a request for the member list.
type listAnswer struct {
	url          string // where it was asked
	members      []*pb.Member
	cluster      uint64
	member       uint64 // whose answer it is
	linearizable bool
	term, index  uint64
	err          error
}

// memberList asks for the list, and also returns its term. A linearizable list wins at once. Otherwise it takes
// the local list of the most advanced member (highest term, then raft index), because there is nothing better
// without quorum. The first local list is also handed to early.
//
// The members that answered last come first, and the configured endpoints last. Unless the best address brings a
// linearizable list at once, all others are asked as well: all members may have moved, and one timeout has to do for
// everybody.
func (o *Observer) memberList(ctx context.Context, early func(rollout.Membership)) (rollout.Membership, uint64,
	error) {
	ctx, cancel := context.WithTimeout(ctx, o.timeout)
	addresses := distinct(slices.Concat(o.MemberURLs(), o.endpoints)...)
	best := min(1, len(addresses))
	rest := addresses[best:]
	answers := make(chan listAnswer, len(addresses))
	var wg sync.WaitGroup
	defer wg.Wait()
	defer cancel()
	ask := func(some []string) int {
		for _, url := range some {
			wg.Go(func() {
				a := o.listFrom(ctx, url)
				a.url = url
				answers <- a
			})
		}
		return len(some)
	}
	late := time.NewTimer(headStart)
	defer late.Stop()
	var heard []listAnswer
	none := &NoListError{Asked: addresses}
	for awaited := ask(addresses[:best]); awaited > 0; {
		select {
		case a := <-answers:
			awaited--
			switch {
			case a.err != nil:
				none.silent(a)
			case a.linearizable:
				return known(a), a.term, nil
			default:
				if heard = append(heard, a); len(heard) == 1 {
					early(known(a))
				}
			}
		case <-late.C:
		}
		awaited, rest = awaited+ask(rest), nil
	}
	if len(heard) == 0 {
		o.last = rollout.Membership{} // All of them may have moved.
		o.clients.dropAll()           // Dial anew next time, because names may resolve to new addresses.
		var m rollout.Membership
		if slices.ContainsFunc(none.errs, denied) {
			m.Detail = listDenied
		}
		for _, err := range none.errs {
			if by := barredBy(err.Error()); by != 0 && m.Detail == "" {
				m.Detail, m.Barred = brief(err), by
			}
		}
		return m, 0, none
	}
	furthest := heard[0]
	for _, a := range heard[1:] {
		if a.term > furthest.term || a.term == furthest.term && a.index > furthest.index {
			furthest = a
		}
	}
	m := known(furthest)
	m.Agreeing = agreeing(furthest, heard)
	return m, furthest.term, nil
}

// NoListError is why an observation has no member list.
type NoListError struct {
	// Asked are the URLs that were asked. Why has what came from each of them instead of a list, in the order in which
	// it came.
	Asked, Why []string
	// Replied is true if a member answered with an error of etcd's own: then it is there, whatever it refuses.
	Replied bool
	errs    []error
}

func (e *NoListError) silent(a listAnswer) {
	why := strings.TrimPrefix(refusal(a.err, listDenied), "etcd client for ")
	e.Why = append(e.Why, a.url+": "+strings.TrimPrefix(why, a.url+": "))
	e.Replied = e.Replied || replied(a.err)
	e.errs = append(e.errs, a.err)
}

// Error has the causes in full, a line each.
func (e *NoListError) Error() string {
	causes := errors.Join(e.errs...)
	if len(e.Asked) == 0 {
		causes = errors.New("no endpoint")
	}
	return fmt.Sprintf("no member answered with a member list (asked %s): %v", strings.Join(e.Asked, ", "), causes)
}

// Unwrap returns the causes.
func (e *NoListError) Unwrap() []error { return e.errs }

func (o *Observer) listFrom(ctx context.Context, url string) listAnswer {
	client, err := o.clients.get(ctx, url)
	if err != nil {
		return listAnswer{err: err}
	}
	return o.askList(ctx, client)
}

// askList asks for the list through consensus. If that does not answer at once, it also asks for the
// member's own list. Without quorum, a request to consensus ends only when the member has noticed that
// it has no leader, or with its timeout, and the evidence has to stay young. clientv3 has no option for
// a serializable list in 3.5, and another signature in 3.6, so the requests go over the client's
// connection.
func (o *Observer) askList(ctx context.Context, client *clientv3.Client) listAnswer {
	ctx, cancel := context.WithCancel(ctx)
	var wg sync.WaitGroup
	defer wg.Wait()
	defer cancel()
	agreed := make(chan listAnswer, 1)
	wg.Go(func() {
		led, stop := o.whileLed(ctx, client, 0)
		defer stop()
		agreed <- o.agreedList(led, client)
	})
	late := time.NewTimer(headStart)
	defer late.Stop()
	var a listAnswer
	select {
	case a = <-agreed:
		if a.err == nil {
			return a
		}
	case <-late.C:
	}
	own := o.ownList(ctx, client)
	if a.err == nil {
		a = <-agreed
	}
	if a.err == nil || own.err != nil {
		return a
	}
	return own
}

// agreedList returns the list that a quorum has agreed on. A member of etcd 3.4 ignores that it should,
// and returns its own list. Its own list is the agreed one, or a newer one, if it was requested after
// the same member answered a linearizable read. This holds for every version, so it is also what is
// done when the version is unknown.
func (o *Observer) agreedList(ctx context.Context, client *clientv3.Client) listAnswer {
	// A member that knows no leader says so at once if a leader is required.
	led := clientv3.WithRequireLeader(ctx)
	var wg sync.WaitGroup
	var status *pb.StatusResponse // Nil where there is no answer.
	var statusOver, readOver peer.Peer
	wg.Go(func() { status, _ = o.status(ctx, client, grpc.Peer(&statusOver)) })
	a := o.list(led, client, true)
	wg.Wait()
	a.linearizable = true
	if a.err != nil || status != nil && status.Header.GetMemberId() == a.member &&
		readsListsThroughConsensus(status.Version) {
		return a
	}
	header, err := o.read(ctx, client, false, grpc.Peer(&readOver))
	if status != nil && (!sameConnection(&statusOver, &readOver) ||
		shared(known(a).Members, status.Header.GetMemberId(), strings.Join(client.Endpoints(), ","))) {
		status = nil
	}
	by := readBy(header, err, status)
	if by == nil {
		return listAnswer{err: fmt.Errorf("%s: no read before its list: %w", strings.Join(client.Endpoints(), ","),
			err)}
	}
	a = o.list(led, client, true)
	if a.err == nil && (a.member != by.MemberId || a.cluster != by.ClusterId) {
		a.err = fmt.Errorf("%s: member %x answered with its list after a read of member %x",
			strings.Join(client.Endpoints(), ","), a.member, by.MemberId)
	}
	// The list is as fresh as the read before it.
	a.linearizable, a.term = true, min(a.term, by.RaftTerm)
	return a
}

// ownList returns the list that a member knows by itself, and how far that member has got.
func (o *Observer) ownList(ctx context.Context, client *clientv3.Client) listAnswer {
	a := o.list(ctx, client, false)
	if a.err != nil {
		return a
	}
	if st, err := o.status(ctx, client); err == nil {
		a.index = st.RaftIndex
	}
	return a
}

func (o *Observer) list(ctx context.Context, client *clientv3.Client, linearizable bool) listAnswer {
	resp, err := pb.NewClusterClient(client.ActiveConnection()).MemberList(ctx,
		&pb.MemberListRequest{Linearizable: linearizable})
	if err != nil {
		return listAnswer{err: fmt.Errorf("%s: %w", strings.Join(client.Endpoints(), ","),
			named(rpctypes.Error(err), listDenied))}
	}
	h := resp.Header
	return listAnswer{members: resp.Members, cluster: h.GetClusterId(), member: h.GetMemberId(), term: h.GetRaftTerm()}
}

// readsListsThroughConsensus is true for versions of etcd that do so on request: 3.5 and newer. It is
// false if the version cannot be read.
func readsListsThroughConsensus(version string) bool {
	var major, minor int
	if _, err := fmt.Sscanf(version, "%d.%d", &major, &minor); err != nil {
		return false
	}
	return major > 3 || major == 3 && minor >= 5
}

func known(a listAnswer) rollout.Membership {
	m := rollout.Membership{Known: true, Linearizable: a.linearizable, ClusterID: a.cluster}
	for _, x := range a.members {
		m.Members = append(m.Members, rollout.Member{
			ID: x.ID, Name: x.Name, PeerURLs: x.PeerURLs, ClientURLs: x.ClientURLs, Learner: x.IsLearner,
		})
	}
	return m
}
