package membership

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"

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

// probeKey is read to prove that a member serves. Nobody writes it. With etcd's authentication on, a
// refusal (PermissionDenied) proves the same.
const probeKey = "/quorate/probe"

// leaderPatience is how long a read is repeated at a member that knows no leader, and leaderPoll is how
// often. While leadership moves, the other members know no leader for some milliseconds.
const (
	leaderPatience = 300 * time.Millisecond
	leaderPoll     = 25 * time.Millisecond
)

// unled holds who knows no leader, as the members themselves say in this observation.
type unled struct {
	mu      sync.Mutex
	members map[who]leaderless
}

type who struct{ cluster, member uint64 }

// leaderless is since when a member has known no leader, when it said so last, and at which term.
type leaderless struct {
	since, said time.Time
	term        uint64
}

// wordLasts is for how long a leader's word that it leads no more counts for its followers. It is asked for as long as
// its own read hangs, so it has either said so again by then, or has been answered.
const wordLasts = 2 * leaderPoll

// note takes in what a member says, and returns since when it has had no leader, or zero if it has one. It had one
// until led. A leader that has stepped down has just proved to its followers that it leads, and they go on believing so
// for up to two election timeouts. Its own word is better, as long as it is fresh, unless they know of a later term.
func (u *unled) note(st *pb.StatusResponse, led, asked time.Time) time.Time {
	u.mu.Lock()
	defer u.mu.Unlock()
	self := who{st.Header.GetClusterId(), st.Header.GetMemberId()}
	if st.Leader != 0 {
		delete(u.members, self)
		l := u.members[who{self.cluster, st.Leader}]
		if asked.Sub(l.said) > wordLasts || l.term < st.RaftTerm {
			return time.Time{}
		}
		return l.since
	}
	l, ok := u.members[self]
	if !ok {
		l.since = led
	}
	l.said, l.term = asked, st.RaftTerm
	u.members[self] = l
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
			since := o.unled.note(st, led, asked)
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

// movePoll is how often the next leader is asked whether it leads. It leads after some milliseconds, and the next
// removal waits for that.
const movePoll = 2 * time.Millisecond

// Observer asks etcd who its members are and how they are. Only one goroutine may use it.
type Observer struct {
	// Probed, if not nil, is told how long each member took to answer a probe, and whether it answered.
	// It is called for several members at once.
	Probed func(took time.Duration, answered bool)

	endpoints []string
	timeout   time.Duration
	clients   *clients

	// last is the last list, with the best members to ask for the next one first, see remember.
	last rollout.Membership
	// ownLists is true while every voter is asked for its own list too.
	ownLists bool
	// unled is of the observation under way.
	unled *unled
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
	o.unled = &unled{members: map[who]leaderless{}}
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

// overtaken is true when a voter answered a read at a later term than that of the list. Whoever gave
// the list may have been paused since (etcd-io/etcd#20418).
func overtaken(m rollout.Membership, term uint64) bool {
	return slices.ContainsFunc(m.Members, func(x rollout.Member) bool {
		return !x.Learner && x.Probe.Read == rollout.Answered && x.Probe.ReadTerm > term
	})
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

// headStart is how long the best source is asked alone: consensus before a member's own list, and the best address
// before all others. That is the leader's, because the others would have to ask it. In a healthy cluster the rest is
// never asked: two requests to each member that nobody needs, just when the next pod is to be removed.
const headStart = 100 * time.Millisecond

// listAnswer is one member's answer to a request for the member list.
type listAnswer struct {
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
			wg.Go(func() { answers <- o.listFrom(ctx, url) })
		}
		return len(some)
	}
	late := time.NewTimer(headStart)
	defer late.Stop()
	var heard []listAnswer
	var errs []error
	for awaited := ask(addresses[:best]); awaited > 0; {
		select {
		case a := <-answers:
			awaited--
			switch {
			case a.err != nil:
				errs = append(errs, a.err)
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
		if len(addresses) == 0 {
			errs = []error{errors.New("no endpoint")}
		}
		var m rollout.Membership
		if slices.ContainsFunc(errs, denied) {
			m.Detail = listDenied
		}
		return m, 0, fmt.Errorf("no member answered with a member list (asked %s): %w",
			strings.Join(addresses, ", "), errors.Join(errs...))
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

// agreeing returns how many voters of a list have returned a list of the same voters.
func agreeing(list listAnswer, heard []listAnswer) int {
	voters := votersOf(list)
	agree := map[uint64]bool{}
	for _, a := range heard {
		if a.cluster == list.cluster && slices.Contains(voters, a.member) && slices.Equal(votersOf(a), voters) {
			agree[a.member] = true
		}
	}
	return len(agree)
}

// votersOf returns the IDs of the voters on a list, in order.
func votersOf(a listAnswer) []uint64 {
	var ids []uint64
	for _, m := range a.members {
		if !m.IsLearner {
			ids = append(ids, m.ID)
		}
	}
	slices.Sort(ids)
	return ids
}

var errNotAsked = errors.New("not asked for its own list")

// inWords is a member list as text: the members' IDs in order, with what kind of member they are.
func inWords(a listAnswer) string {
	members := slices.SortedFunc(slices.Values(a.members), func(x, y *pb.Member) int { return cmp.Compare(x.ID, y.ID) })
	words := make([]string, 0, len(members))
	for _, m := range members {
		word := strconv.FormatUint(m.ID, 16)
		if m.IsLearner {
			word += " (learner)"
		}
		words = append(words, word)
	}
	return strings.Join(words, ", ")
}

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

// read asks for a linearizable read. A learner answers serializable ones only. The request goes over
// the pinned connection, because clientv3's Get keeps trying a member that refuses connections until
// the timeout, and then gives no better reason than that.
//
// A voter that knows no leader says so at once, and is asked again for leaderPatience. One that loses its leader
// meanwhile is given up after the same time. Without quorum the read would otherwise wait for its whole timeout,
// and the cure would wait for the read.
func (o *Observer) read(ctx context.Context, client *clientv3.Client, learner bool,
	opts ...grpc.CallOption) (*pb.ResponseHeader, error) {
	ctx, cancel := context.WithTimeout(ctx, o.timeout)
	defer cancel()
	if !learner {
		var stop func()
		ctx, stop = o.whileLed(ctx, client, leaderPatience)
		defer stop()
		ctx = clientv3.WithRequireLeader(ctx)
	}
	again := time.NewTicker(leaderPoll)
	defer again.Stop()
	for begun := time.Now(); ; {
		resp, err := pb.NewKVClient(client.ActiveConnection()).Range(ctx, &pb.RangeRequest{
			Key: []byte(probeKey), CountOnly: true, Serializable: learner,
		}, opts...)
		if err == nil {
			return resp.Header, nil
		}
		err = rpctypes.Error(err)
		if errors.Is(context.Cause(ctx), rpctypes.ErrNoLeader) {
			return nil, rpctypes.ErrNoLeader
		}
		// Usually whileLed is sooner. But a member may refuse to tell its status.
		if !errors.Is(err, rpctypes.ErrNoLeader) || time.Since(begun) >= leaderPatience+wordLasts {
			return nil, err
		}
		select {
		case <-again.C:
		case <-ctx.Done():
			return nil, err
		}
	}
}

// status goes over the pinned connection, because clientv3's method dials a new one each time.
func (o *Observer) status(ctx context.Context, client *clientv3.Client,
	opts ...grpc.CallOption) (*pb.StatusResponse, error) {
	ctx, cancel := context.WithTimeout(ctx, o.timeout)
	defer cancel()
	return pb.NewMaintenanceClient(client.ActiveConnection()).Status(ctx, &pb.StatusRequest{}, opts...)
}

// identify checks that the answer comes from the member that was asked.
func identify(h *pb.ResponseHeader, cluster, member uint64) (rollout.ReadResult, string) {
	switch {
	case h.GetClusterId() != cluster:
		return rollout.WrongCluster, fmt.Sprintf("cluster %x answered instead of %x", h.GetClusterId(), cluster)
	case h.GetMemberId() != member:
		return rollout.WrongMember, fmt.Sprintf("member %x answered instead of %x", h.GetMemberId(), member)
	}
	return rollout.Answered, ""
}

// alarmed reads alarms from Status, which needs no consensus. AlarmList does.
func alarmed(said []string, alarm pb.AlarmType) bool {
	return slices.ContainsFunc(said, func(e string) bool { return strings.Contains(e, alarm.String()) })
}

// MoveLeader asks the leader to hand leadership to another voter. It returns once that voter says that
// it leads.
func (o *Observer) MoveLeader(ctx context.Context, m rollout.Membership, from, to uint64) error {
	leader, err := o.clientOf(ctx, m, from)
	if err != nil {
		return fmt.Errorf("move leadership from %x to %x: %w", from, to, err)
	}
	next, err := o.clientOf(ctx, m, to)
	if err != nil {
		return fmt.Errorf("move leadership from %x to %x: %w", from, to, err)
	}
	// The leader answers a tick of etcd's clock (100 ms) after the change, which takes a few
	// milliseconds. The next leader knows at once.
	asking, cancel := context.WithCancel(ctx)
	answer := make(chan error, 1)
	var asked sync.WaitGroup
	defer asked.Wait()
	defer cancel()
	asked.Go(func() {
		_, err := leader.MoveLeader(asking, to)
		answer <- err
	})
	accepted := "requested"
	tick := time.NewTicker(movePoll)
	defer tick.Stop()
	leads := func() bool {
		st, err := o.status(ctx, next)
		return err == nil && st.Leader == to && st.Header.GetClusterId() == m.ClusterID
	}
	for !leads() {
		select {
		case <-ctx.Done():
			return fmt.Errorf("move leadership from %x to %x: %s, but %x does not lead yet: %w", from, to, accepted, to,
				ctx.Err())
		case err := <-answer:
			if err != nil {
				if leads() {
					return nil // The request was superfluous, or its answer was lost. Either way it is done.
				}
				return fmt.Errorf("move leadership from %x to %x: %w", from, to, named(err, moveDenied))
			}
			accepted = "accepted"
		case <-tick.C:
		}
	}
	return nil
}

// RemoveMember removes a member from the list, and returns once that has taken effect. The request goes to
// a voter that has just answered, and only once: whoever sends it again has to look first. An error says
// nothing of what becomes of it.
func (o *Observer) RemoveMember(ctx context.Context, m rollout.Membership, id uint64) error {
	for i := range m.Members {
		x := &m.Members[i]
		if x.ID == id || x.Learner || x.Probe.Read != rollout.Answered {
			continue
		}
		client, err := o.clientOf(ctx, m, x.ID)
		if err != nil {
			return fmt.Errorf("remove member %x: %w", id, err)
		}
		resp, err := pb.NewClusterClient(client.ActiveConnection()).MemberRemove(ctx, &pb.MemberRemoveRequest{ID: id})
		switch err = rpctypes.Error(err); {
		case errors.Is(err, rpctypes.ErrMemberNotFound):
			return nil // It is gone, whoever removed it.
		case err != nil:
			return fmt.Errorf("remove member %x: %w", id, named(err, removeDenied))
		case resp.Header.GetClusterId() != m.ClusterID:
			return fmt.Errorf("remove member %x: cluster %x answered instead of %x", id, resp.Header.GetClusterId(),
				m.ClusterID)
		}
		return nil
	}
	return fmt.Errorf("remove member %x: no other voter answers", id)
}

// unreachable is true if an error of Dial is the member's fault: it was asked for a token and did not
// answer.
func unreachable(err error) bool {
	code := codeOf(err)
	return errors.Is(err, context.DeadlineExceeded) || code == codes.Unavailable || code == codes.DeadlineExceeded
}

// replied is true for an error of etcd's own: whoever refuses a request has heard it. What gRPC says when nobody
// answers is no such error.
func replied(err error) bool {
	for ; err != nil; err = errors.Unwrap(err) {
		var known rpctypes.EtcdError
		if errors.As(rpctypes.Error(err), &known) {
			return true
		}
	}
	return false
}

// codeOf is the code of an error of gRPC's, or of etcd's, which have one of their own.
func codeOf(err error) codes.Code {
	var known rpctypes.EtcdError
	if errors.As(err, &known) {
		return known.Code()
	}
	return status.Code(err)
}

// brief shortens gRPC's chain of errors to what an operator needs.
func brief(err error) string {
	if errors.Is(err, context.DeadlineExceeded) || status.Code(err) == codes.DeadlineExceeded {
		return "timed out"
	}
	text := err.Error()
	if i := strings.LastIndex(text, "desc = "); i >= 0 {
		text = strings.Trim(text[i+len("desc = "):], `"`)
	}
	return text
}
