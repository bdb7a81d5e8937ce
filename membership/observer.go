package membership

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/quorate/quorate/pkg/rollout"
)

// Dial opens a client to the given endpoints. The host owns TLS, its rotation, and
// authentication; a client is closed by whoever dialled it. It is called for several
// members at once. With a user name, clientv3.New asks the member for a token and so
// fails when the member is down: such an error (a gRPC status, or a deadline) is the
// member's, any other counts as the host's own.
type Dial func(endpoints []string) (*clientv3.Client, error)

// probeKey is read to prove that a member serves. Nobody writes it; with etcd's
// authentication on, a refusal (PermissionDenied) proves the same.
const probeKey = "/quorate/probe"

// movePoll is how often the next leader is asked whether it leads.
const movePoll = 10 * time.Millisecond

// Observer asks etcd who its members are and how they do. It is used by one
// goroutine.
type Observer struct {
	// Probed, if not nil, gets how long each member took to answer a probe, and whether it
	// did. It is called for several members at once.
	Probed func(took time.Duration, answered bool)

	dial      Dial
	endpoints []string
	timeout   time.Duration

	// clients are pinned to one member's URLs each; the key joins the URLs. The lock is
	// for the map alone: the members are dialled in parallel.
	mu      sync.Mutex
	clients map[string]*clientv3.Client
	// lastURLs are the members' URLs of the last list. The next list is asked of
	// them, and of the configured endpoints only when none of them answers.
	lastURLs [][]string
}

// NewObserver returns an observer of the cluster behind the endpoints (any of its
// members). The timeout bounds each single request.
func NewObserver(dial Dial, endpoints []string, timeout time.Duration) *Observer {
	return &Observer{dial: dial, endpoints: endpoints, timeout: timeout, clients: map[string]*clientv3.Client{}}
}

// Close closes all clients.
func (o *Observer) Close() {
	for _, key := range o.keys() {
		o.drop(key)
	}
}

// Observe reads the member list and probes every member. It never fails: what could
// not be read is missing from the result, and why is in the second value.
func (o *Observer) Observe(ctx context.Context) (rollout.Membership, error) {
	earlier := o.keys()
	m, err := o.memberList(ctx)
	if !m.Known {
		return m, err
	}
	o.remember(m)
	o.probeAll(ctx, &m, earlier)
	return m, nil
}

// Discover returns the voters that serve now, so that whoever needs a client for more than
// a moment does not wait for a member that hangs. It returns an error when there is no
// member list; without any serving voter the result is empty. Its own connections are
// closed: it is for the time outside a rollout.
func (o *Observer) Discover(ctx context.Context) ([]rollout.Member, error) {
	defer o.Close()
	m, err := o.Observe(ctx)
	return slices.DeleteFunc(m.Members, func(x rollout.Member) bool { return x.Learner || x.Probe.Read != rollout.Answered }), err
}

func (o *Observer) remember(m rollout.Membership) {
	o.lastURLs = nil
	for i := range m.Members {
		if urls := m.Members[i].ClientURLs; len(urls) > 0 {
			o.lastURLs = append(o.lastURLs, urls)
		}
	}
}

// MemberURLs returns the client URLs of the members on the last list, none when there is
// no list.
func (o *Observer) MemberURLs() []string { return slices.Concat(o.lastURLs...) }

// listAnswer is one member's answer to a request for the member list.
type listAnswer struct {
	members      []*pb.Member
	cluster      uint64
	linearizable bool
	term, index  uint64
	err          error
}

// memberList asks all known addresses at once. A linearizable list wins at once;
// otherwise the local list of the most advanced member is taken (highest term, then
// raft index), because after lost quorum there is nothing better.
func (o *Observer) memberList(ctx context.Context) (rollout.Membership, error) {
	if len(o.lastURLs) > 0 {
		if m, err := o.listFrom(ctx, o.lastURLs); err == nil {
			return m, nil
		}
		o.lastURLs = nil // All of them may have moved.
	}
	asked := make([][]string, 0, len(o.endpoints))
	for _, e := range o.endpoints {
		asked = append(asked, []string{e})
	}
	return o.listFrom(ctx, asked)
}

func (o *Observer) listFrom(ctx context.Context, asked [][]string) (rollout.Membership, error) {
	ctx, cancel := context.WithCancel(ctx)
	answers := make(chan listAnswer, len(asked))
	var wg sync.WaitGroup
	defer wg.Wait()
	defer cancel()
	var errs []error
	for _, urls := range asked {
		wg.Go(func() {
			client, err := o.pinned(urls)
			if err != nil {
				answers <- listAnswer{err: err}
				return
			}
			answers <- o.askList(ctx, client)
		})
	}
	best := listAnswer{err: errors.New("no endpoint")}
	for range asked {
		a := <-answers
		switch {
		case a.err != nil:
			errs = append(errs, a.err)
		case a.linearizable:
			return known(a), nil
		case best.err != nil, a.term > best.term, a.term == best.term && a.index > best.index:
			best = a
		}
	}
	if best.err != nil {
		o.Close() // Dial anew next time: addresses may have changed behind their names.
		return rollout.Membership{}, fmt.Errorf("no member answered with a member list (asked %s): %w",
			strings.Join(slices.Concat(asked...), ", "), errors.Join(errs...))
	}
	return known(best), nil
}

// askList asks for the list through consensus and for the member's own at the same
// time, so that a member without quorum costs one timeout, not two: the evidence has to
// stay young. clientv3 has no option for a serializable list in 3.5 and another
// signature in 3.6, so the requests go over the client's connection.
func (o *Observer) askList(ctx context.Context, client *clientv3.Client) listAnswer {
	ctx, cancel := context.WithTimeout(ctx, o.timeout)
	var wg sync.WaitGroup
	defer wg.Wait()
	defer cancel()
	cluster := pb.NewClusterClient(client.ActiveConnection())
	local := listAnswer{err: errors.New("not asked")}
	heard := make(chan struct{})
	wg.Go(func() {
		defer close(heard)
		resp, err := cluster.MemberList(ctx, &pb.MemberListRequest{Linearizable: false})
		if err != nil {
			local.err = err
			return
		}
		local = listAnswer{members: resp.Members, cluster: resp.Header.GetClusterId(), term: resp.Header.GetRaftTerm()}
		if st, err := o.status(ctx, client); err == nil {
			local.index = st.RaftIndex
		}
	})
	// A member that knows no leader says so at once when a leader is required.
	resp, err := cluster.MemberList(clientv3.WithRequireLeader(ctx), &pb.MemberListRequest{Linearizable: true})
	if err == nil {
		return listAnswer{members: resp.Members, cluster: resp.Header.GetClusterId(), linearizable: true}
	}
	<-heard
	if local.err != nil {
		return listAnswer{err: fmt.Errorf("%s: %w", strings.Join(client.Endpoints(), ","), err)}
	}
	return local
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

// probeAll probes all members in parallel. A client whose member did not answer is
// dropped, so that the next probe resolves and connects anew instead of sitting out
// a connection back-off. Earlier are the keys of the clients that an earlier look has left.
func (o *Observer) probeAll(ctx context.Context, m *rollout.Membership, earlier []string) {
	var wg sync.WaitGroup
	for i := range m.Members {
		member := &m.Members[i]
		if len(member.ClientURLs) == 0 {
			member.Probe = rollout.Probe{Read: rollout.Failed, Detail: "the member has never started"}
			continue
		}
		wg.Go(func() {
			begin := time.Now()
			member.Probe = o.ask(ctx, m.ClusterID, member, slices.Contains(earlier, key(member.ClientURLs)))
			if o.Probed != nil && member.Probe.Read != rollout.NotAsked {
				o.Probed(time.Since(begin), member.Probe.Read == rollout.Answered)
			}
		})
	}
	wg.Wait()
	for i := range m.Members {
		if p := m.Members[i].Probe; p.Read != rollout.Answered || p.Status == nil {
			o.drop(key(m.Members[i].ClientURLs))
		}
	}
	for _, k := range o.keys() {
		if !slices.ContainsFunc(m.Members, func(x rollout.Member) bool { return key(x.ClientURLs) == k }) {
			o.drop(k)
		}
	}
}

// ask probes one member. Where nothing comes back over a connection that an earlier look has
// left, that says nothing of the member: the connection may have broken since, and fails at
// once for as long as its back-off lasts, however well a restarted member serves by now; or its
// other end has vanished without a word, and it swallows what is sent. (The chaos tests found a
// coordinator that had waited for an answer for some seconds, and then took a member for down
// that had been back for half a second.) So the first kind is asked again over a new
// connection, and the second next time: to wait twice would make the evidence too old.
func (o *Observer) ask(ctx context.Context, cluster uint64, member *rollout.Member, earlier bool) rollout.Probe {
	client, err := o.pinned(member.ClientURLs)
	if err == nil {
		p, unheard := o.probe(ctx, client, cluster, member)
		switch {
		case unheard == nil || !earlier:
			return p
		case status.Code(unheard) == codes.DeadlineExceeded:
			return rollout.Probe{Read: rollout.NotAsked, Detail: "no answer over an old connection: " + brief(unheard)}
		}
		o.drop(key(member.ClientURLs))
		if client, err = o.pinned(member.ClientURLs); err == nil {
			p, _ = o.probe(ctx, client, cluster, member)
			return p
		}
	}
	if unreachable(err) {
		return rollout.Probe{Read: rollout.Failed, Detail: "no connection: " + brief(err)}
	}
	// A fault of our own (an unreadable certificate) says nothing about the member.
	return rollout.Probe{Read: rollout.NotAsked, Detail: err.Error()}
}

// probe sends a read and a status request to one member at once. Unheard is why neither was
// answered.
func (o *Observer) probe(ctx context.Context, client *clientv3.Client, cluster uint64, member *rollout.Member) (p rollout.Probe, unheard error) {
	var (
		wg     sync.WaitGroup
		status *pb.StatusResponse
		serr   error
	)
	wg.Go(func() { status, serr = o.status(ctx, client) })
	header, rerr := o.read(ctx, client, member.Learner)
	wg.Wait()

	if serr != nil && rerr != nil {
		unheard = serr
	}
	if serr == nil {
		if p.Read, p.Detail = identify(status.Header, cluster, member.ID); p.Read != rollout.Answered {
			return p, nil
		}
		p.Status = &rollout.Status{
			Leader: status.Leader, Term: status.RaftTerm,
			Index: status.RaftIndex, Applied: status.RaftAppliedIndex, Version: status.Version,
			Corrupt: alarmed(status.Errors, pb.AlarmType_CORRUPT), NoSpace: alarmed(status.Errors, pb.AlarmType_NOSPACE),
		}
	}
	switch {
	case rerr == nil:
		p.Read, p.Detail = identify(header, cluster, member.ID)
	case errors.Is(rerr, rpctypes.ErrPermissionDenied) && serr == nil:
		// Authorisation is checked after the read has passed consensus; the identity is
		// vouched for by the status above.
		p.Read = rollout.Answered
	default:
		p.Read, p.Detail = rollout.Failed, "no linearizable read: "+brief(rerr)
		if member.Learner {
			p.Detail = "no read: " + brief(rerr)
		}
	}
	if p.Read != rollout.Answered && p.Read != rollout.Failed {
		p.Status = nil
	}
	return p, unheard
}

// read asks for a linearizable read; a learner answers serializable ones only. It goes
// over the pinned connection as well: clientv3's Get keeps trying a member that refuses
// connections until the timeout, and then knows no better reason than that.
func (o *Observer) read(ctx context.Context, client *clientv3.Client, learner bool) (*pb.ResponseHeader, error) {
	ctx, cancel := context.WithTimeout(ctx, o.timeout)
	defer cancel()
	resp, err := pb.NewKVClient(client.ActiveConnection()).Range(ctx, &pb.RangeRequest{
		Key: []byte(probeKey), CountOnly: true, Serializable: learner,
	})
	if err != nil {
		return nil, rpctypes.Error(err)
	}
	return resp.Header, nil
}

// status goes over the pinned connection; clientv3's method dials a new one each time.
func (o *Observer) status(ctx context.Context, client *clientv3.Client) (*pb.StatusResponse, error) {
	ctx, cancel := context.WithTimeout(ctx, o.timeout)
	defer cancel()
	return pb.NewMaintenanceClient(client.ActiveConnection()).Status(ctx, &pb.StatusRequest{})
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

// alarmed reads alarms from Status, which needs no consensus, unlike AlarmList.
func alarmed(said []string, alarm pb.AlarmType) bool {
	return slices.ContainsFunc(said, func(e string) bool { return strings.Contains(e, alarm.String()) })
}

// MoveLeader asks the leader to hand leadership to another voter, and returns
// once that member itself says that it leads.
func (o *Observer) MoveLeader(ctx context.Context, m rollout.Membership, from, to uint64) error {
	var leader, next *clientv3.Client
	for i := range m.Members {
		x := &m.Members[i]
		if x.ID != from && x.ID != to {
			continue
		}
		client, err := o.pinned(x.ClientURLs)
		if err != nil {
			return err
		}
		if x.ID == from {
			leader = client
		} else {
			next = client
		}
	}
	if leader == nil || next == nil {
		return fmt.Errorf("move leadership from %x to %x: not both are in the member list", from, to)
	}
	// The answer comes a tick of etcd's (100 ms) after the change, which takes a few
	// milliseconds; the next leader itself knows at once.
	asking, cancel := context.WithCancel(ctx)
	answer := make(chan error, 1)
	var asked sync.WaitGroup
	defer asked.Wait()
	defer cancel()
	asked.Go(func() {
		_, err := leader.MoveLeader(asking, to)
		answer <- err
	})
	accepted := "asked for"
	tick := time.NewTicker(movePoll)
	defer tick.Stop()
	leads := func() bool {
		st, err := o.status(ctx, next)
		return err == nil && st.Leader == to
	}
	for !leads() {
		select {
		case <-ctx.Done():
			return fmt.Errorf("move leadership from %x to %x: %s, but %x does not lead yet: %w", from, to, accepted, to, ctx.Err())
		case err := <-answer:
			if err != nil {
				if leads() {
					return nil // It was asked in vain, or the answer was lost: it is done.
				}
				return fmt.Errorf("move leadership from %x to %x: %w", from, to, err)
			}
			accepted = "accepted"
		case <-tick.C:
		}
	}
	return nil
}

func key(urls []string) string { return strings.Join(urls, ",") }

// keys returns the keys of all clients.
func (o *Observer) keys() []string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return slices.Collect(maps.Keys(o.clients))
}

func (o *Observer) pinned(urls []string) (*clientv3.Client, error) {
	o.mu.Lock()
	c, ok := o.clients[key(urls)]
	o.mu.Unlock()
	if ok {
		return c, nil
	}
	c, err := o.dial(urls)
	if err != nil {
		return nil, fmt.Errorf("etcd client for %s: %w", key(urls), err)
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	if first, ok := o.clients[key(urls)]; ok { // Two members with the same URLs.
		_ = c.Close()
		return first, nil
	}
	o.clients[key(urls)] = c
	return c, nil
}

func (o *Observer) drop(key string) {
	o.mu.Lock()
	c, ok := o.clients[key]
	delete(o.clients, key)
	o.mu.Unlock()
	if ok {
		_ = c.Close() // Only our own end is closed; there is nothing to save.
	}
}

// unreachable is true for an error of dialling that is the member's: it was asked for
// a token and did not answer.
func unreachable(err error) bool {
	code := status.Code(err)
	var known rpctypes.EtcdError // It names its code by itself.
	if errors.As(err, &known) {
		code = known.Code()
	}
	return errors.Is(err, context.DeadlineExceeded) || code == codes.Unavailable || code == codes.DeadlineExceeded
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
