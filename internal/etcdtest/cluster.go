// Package etcdtest is a small etcd for unit tests. It can answer wrongly, late, or not at all, which a
// real etcd does not do on demand.
//
// A [Cluster] speaks etcd's own gRPC API over the members' own addresses, so production code talks to
// it through a real clientv3.Client. It holds keys, leases, watches on single keys, a member list and a
// leader, and no more of each than the tests and benchmarks of this project need. It refuses whatever
// it does not know. Nothing in it expires or fails unless a test says so. What etcd really does is
// tested against etcd itself.
package etcdtest

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"net"
	"path"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/encoding"
	"google.golang.org/grpc/encoding/proto"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/mem"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/test/bufconn"
)

// ID is the ID of a cluster that is started for a test. Member n (from 0) has the ID 0xa0+n and the
// name etcd-n.
const ID = 0xc1

// Cluster is a cluster of members that share one state. Its zero value is of no use; see [Start].
type Cluster struct {
	// Log receives what the clients log that Dial opens, unless it is nil.
	Log *zap.Logger

	mu      sync.Mutex
	id      uint64
	members []*Member
	store   store

	leader   uint64
	term     uint64
	noQuorum bool
	// noticed is when the leader notices that there is no quorum.
	noticed time.Time

	// intercept answers requests, unless it is nil; see [Cluster.Intercept].
	intercept func(ctx context.Context, method string, do func() (any, error)) (any, error)

	inMemory map[string]*bufconn.Listener
	// next chooses the member that a connection to the shared URL leads to, unless it is nil.
	next    func() int
	dialing sync.Mutex
	dials   [][]string
}

// Member is one member. Change its fields through [Cluster.Set] only.
type Member struct {
	ID   uint64
	Name string // Empty for a member that has never started.
	// URL is where it answers, as the member list says. It is empty for a member that has never
	// started.
	URL string
	// Advertised are the URLs that it advertises, unless that is nil: then it is the URL alone.
	Advertised []string
	Learner    bool

	// Hung makes it accept connections and answer nothing, like a process that is stopped.
	Hung bool
	// As and OfCluster are the IDs that it claims in its answers, unless they are 0.
	As, OfCluster uint64
	// ReadErr is the answer to reads, StatusErr to status requests, ListErr to requests for the member
	// list, TxnErr to transactions, PutErr to writes of one key, and GrantErr to requests for a lease.
	ReadErr, StatusErr, ListErr, TxnErr, PutErr, GrantErr error
	// Term and Index are what it believes, unless they are 0. Otherwise it answers the cluster's term,
	// and 100.
	Term, Index uint64
	// Diverged is what its status adds to the revision of its data. Otherwise that is the one that its index explains,
	// whatever revision the store has.
	Diverged int64
	// ReadTerm is the term in its answers to reads, unless it is 0. So a member answers that was paused
	// and still has an old request to answer.
	ReadTerm uint64
	// Version is the version that it reports, 3.5.35 if empty. A member of 3.4 always answers with the
	// member list that it knows by itself.
	Version string
	// DowngradeTo is the version that a downgrade was enabled to, as members of 3.6 tell, unless it is empty.
	DowngradeTo string
	// Leader is whom it believes to be the leader, unless it is 0.
	Leader uint64
	// Alarms are what its status reports, such as "memberID:160 alarm:CORRUPT".
	Alarms []string
	// MoveLeaderErr refuses a change of leadership. MoveLeaderIdle accepts it, and nothing happens.
	MoveLeaderErr  error
	MoveLeaderIdle bool
	// RemoveErr refuses to remove a member.
	RemoveErr error
	// Size and InUse are those of its database, and Quota how large that may become, as its status says.
	Size, InUse, Quota int64
	// DefragmentTakes is for how long it answers nothing when it is defragmented, also if nobody waits for that any
	// more. DefragmentErr is its answer. Without an error its database has then shrunk to little more than what is in
	// use.
	DefragmentTakes time.Duration
	DefragmentErr   error
	// AlarmErr is its answer to whoever ends an alarm.
	AlarmErr error
	// AuthErr is its answer to whoever asks whether authentication is on, and AuthOn what it answers otherwise.
	AuthErr error
	AuthOn  bool
	// Hash and Compacted are those of its data, at whatever revision, and HashErr refuses them.
	Hash      uint32
	Compacted int64
	HashErr   error
	// List is the member list that it knows by itself, unless it is nil.
	List []*pb.Member

	// Txns, Moves, Lists, LocalLists, Removals, Defragments and Disarms count the requests that arrived: transactions,
	// changes of leadership, requests for the member list, those of them without consensus, to remove a member,
	// defragmentations, and ends of an alarm.
	Txns, Moves, Lists, LocalLists, Removals, Defragments, Disarms int

	server *grpc.Server
	// open counts the streams that clients have open, by their methods.
	open map[string]int
}

// Start starts n members on loopback addresses. They stop with the test.
func Start(tb testing.TB, n int) *Cluster { return start(tb, n, false) }

// StartInMemory starts n members whose connections never leave the process, so that they can live in a
// bubble of testing/synctest.
func StartInMemory(tb testing.TB, n int) *Cluster { return start(tb, n, true) }

func start(tb testing.TB, n int, inMemory bool) *Cluster {
	tb.Helper()
	urls := make([]string, n)
	listeners := make([]net.Listener, n)
	conns := map[string]*bufconn.Listener{}
	for i := range n {
		if inMemory {
			l, address := bufconn.Listen(64<<10), fmt.Sprintf("etcd-%d:2379", i)
			conns[address], listeners[i], urls[i] = l, l, "http://"+address
			continue
		}
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			tb.Fatal(err)
		}
		listeners[i], urls[i] = l, "http://"+l.Addr().String()
	}
	c := New(ID, urls...)
	c.inMemory = conns
	for i, l := range listeners {
		tb.Cleanup(c.Serve(i, l))
	}
	return c
}

// New returns a cluster with its own ID and one member at each of the client URLs. No member answers
// before [Cluster.Serve].
func New(id uint64, urls ...string) *Cluster {
	c := &Cluster{id: id, term: 2, leader: 0xa0}
	c.store.init()
	for i, url := range urls {
		c.members = append(c.members, &Member{ID: 0xa0 + uint64(i), Name: fmt.Sprint("etcd-", i), URL: url})
	}
	return c
}

// Serve lets a member answer connections to the listener until stop is called. Then its connections
// break, as with a process that ends. It may be served again over another listener.
func (c *Cluster) Serve(i int, listener net.Listener) (stop func()) {
	m := c.members[i]
	s := &service{cluster: c, member: m}
	// etcd accepts pings this often. gRPC's own default is minutes.
	pings := keepalive.EnforcementPolicy{MinTime: 5 * time.Second}
	server := grpc.NewServer(grpc.UnaryInterceptor(s.gate), grpc.StreamInterceptor(s.streams),
		grpc.KeepaliveEnforcementPolicy(pings),
		grpc.WaitForHandlers(true)) // A defragmentation goes on when nobody waits for it.
	pb.RegisterKVServer(server, &kvService{service: s})
	pb.RegisterClusterServer(server, &clusterService{service: s})
	pb.RegisterMaintenanceServer(server, &maintenanceService{service: s})
	pb.RegisterAuthServer(server, &authService{service: s})
	pb.RegisterLeaseServer(server, &leaseService{service: s})
	pb.RegisterWatchServer(server, &watchService{service: s})
	m.server = server
	served := make(chan struct{})
	go func() {
		defer close(served)
		_ = server.Serve(listener) // It ends with Stop.
	}()
	return func() {
		server.Stop()
		<-served
	}
}

// Set changes members and the cluster between two requests, never during one.
func (c *Cluster) Set(change func(c *Cluster, members []*Member)) {
	c.mu.Lock()
	defer c.mu.Unlock()
	change(c, c.members)
	c.store.notify()
}

// Intercept hands every request except watches to answer. It sees the method's name, such as
// LeaseGrant, or LeaseKeepAlive for each keep-alive of a stream. It may delay, lose or refuse the
// request, and do carries it out. A request to a member that hangs does not get that far.
func (c *Cluster) Intercept(answer func(ctx context.Context, method string, do func() (any, error)) (any, error)) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.intercept = answer
}

// SetLeader makes a member the leader at a new term. 0 means nobody.
func (c *Cluster) SetLeader(id uint64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.leader, c.term = id, c.term+1
}

// Leader returns the ID of the leader.
func (c *Cluster) Leader() uint64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.leader
}

// LoseQuorum makes everything hang that needs consensus, until [Cluster.RegainQuorum].
func (c *Cluster) LoseQuorum() { c.LoseQuorumUnnoticed(0) }

// LoseQuorumUnnoticed does the same where the leader survives and takes so long to notice. Until then it renews leases
// on its own and refuses nobody who requires a leader. In etcd that takes up to two election timeouts.
func (c *Cluster) LoseQuorumUnnoticed(lasts time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.noQuorum, c.noticed = true, time.Now().Add(lasts)
}

// RegainQuorum ends what [Cluster.LoseQuorum] began, for new requests.
func (c *Cluster) RegainQuorum() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.noQuorum = false
}

// Stop ends a member's process. From then on, connections are refused.
func (c *Cluster) Stop(i int) { c.members[i].server.Stop() }

// Add adds a member without a process to the list, such as one that has never started.
func (c *Cluster) Add(m Member) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.members = append(c.members, &m)
}

// Remove takes a member off the list.
func (c *Cluster) Remove(id uint64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.members = slices.DeleteFunc(c.members, func(m *Member) bool { return m.ID == id })
}

// ID returns a member's ID.
func (c *Cluster) ID(i int) uint64 { return c.members[i].ID }

// URL returns a member's client URL.
func (c *Cluster) URL(i int) string { return c.members[i].URL }

// URLs returns the client URLs of all members.
func (c *Cluster) URLs() []string {
	var urls []string
	for _, m := range c.members {
		urls = append(urls, m.URL)
	}
	return urls
}

// Dial opens a client, and remembers the endpoints.
func (c *Cluster) Dial(endpoints []string) (*clientv3.Client, error) {
	c.mu.Lock()
	c.dials = append(c.dials, slices.Clone(endpoints))
	c.mu.Unlock()
	cfg := clientv3.Config{Endpoints: endpoints, Logger: cmp.Or(c.Log, zap.NewNop())}
	if len(c.inMemory) > 0 {
		cfg.DialOptions = append(cfg.DialOptions, grpc.WithContextDialer(func(ctx context.Context,
			address string) (net.Conn, error) {
			address = strings.TrimPrefix(address, "passthrough:///")
			if address == sharedAddress {
				address = c.behindService()
			}
			l := c.inMemory[address]
			if l == nil {
				return nil, fmt.Errorf("no such host: %s", address)
			}
			// Dial one at a time. bufconn starts timers that fire at once. With the race detector, two
			// of them in one bubble of testing/synctest crash Go 1.26's runtime, because both run in
			// the bubble's one race context.
			c.dialing.Lock()
			defer c.dialing.Unlock()
			return l.DialContext(ctx)
		}))
	}
	return clientv3.New(cfg)
}

// sharedAddress is one that all members advertise, see [Cluster.Share].
const sharedAddress = "etcd:2379"

// SharedURL is the URL of that address.
const SharedURL = "http://" + sharedAddress

// Share lets all members of a cluster in memory advertise SharedURL as well, before or after their own URL. As with a
// Service, each new connection to it leads to one of them, the one that next chooses.
func (c *Cluster) Share(first bool, next func() (member int)) {
	c.Set(func(c *Cluster, members []*Member) {
		c.next = next
		for _, m := range members {
			m.Advertised = []string{m.URL, SharedURL}
			if first {
				m.Advertised = []string{SharedURL, m.URL}
			}
		}
	})
}

func (c *Cluster) behindService() string {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.next == nil {
		return sharedAddress
	}
	return strings.TrimPrefix(c.members[c.next()].URL, "http://")
}

// Dials returns how many clients were opened to exactly these endpoints.
func (c *Cluster) Dials(endpoints ...string) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	n := 0
	for _, d := range c.dials {
		if slices.Equal(d, endpoints) {
			n++
		}
	}
	return n
}

// service is what the parts of one member's API share.
type service struct {
	cluster *Cluster
	member  *Member
}

// gate lets no request through to a member while it hangs, nor one that requires a leader, whatever it asks for, while
// the member knows none.
func (s *service) gate(ctx context.Context, req any, info *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (any,
	error) {
	for {
		s.cluster.mu.Lock()
		hung, changed, intercept := s.member.Hung, s.cluster.store.changed, s.cluster.intercept
		led := s.leader() != 0
		s.cluster.mu.Unlock()
		switch {
		case !hung && !led && requiresLeader(ctx):
			return nil, rpctypes.ErrGRPCNoLeader
		case !hung && intercept == nil:
			return handler(ctx, req)
		case !hung:
			return intercept(ctx, path.Base(info.FullMethod), func() (any, error) { return handler(ctx, req) })
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return nil, status.FromContextError(ctx.Err()).Err()
		}
	}
}

// streams counts the streams that clients have open. etcd waits for them when it is told to end.
func (s *service) streams(srv any, stream grpc.ServerStream, info *grpc.StreamServerInfo, handler grpc.StreamHandler,
) error {
	method := path.Base(info.FullMethod)
	count := func(n int) {
		s.cluster.mu.Lock()
		defer s.cluster.mu.Unlock()
		if s.member.open == nil {
			s.member.open = map[string]int{}
		}
		if s.member.open[method] += n; s.member.open[method] == 0 {
			delete(s.member.open, method)
		}
	}
	count(1)
	defer count(-1)
	return handler(srv, stream)
}

// Streams returns the streams that are open at a member, by their methods, such as Watch or LeaseKeepAlive.
func (c *Cluster) Streams(i int) map[string]int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return maps.Clone(c.members[i].open)
}

// consensus blocks while there is no quorum, as etcd does. It refuses a request that requires a leader, once the leader
// has noticed. Otherwise it takes the cluster's lock for the request.
func (s *service) consensus(ctx context.Context) (unlock func(), err error) {
	s.cluster.mu.Lock()
	if s.cluster.noQuorum {
		unnoticed := s.cluster.unnoticed()
		s.cluster.mu.Unlock()
		if requiresLeader(ctx) && !unnoticed {
			return nil, rpctypes.ErrGRPCNoLeader
		}
		<-ctx.Done()
		return nil, rpctypes.ErrGRPCTimeout
	}
	return s.cluster.mu.Unlock, nil
}

// unnoticed needs the cluster's lock.
func (c *Cluster) unnoticed() bool { return c.noQuorum && time.Now().Before(c.noticed) }

func requiresLeader(ctx context.Context) bool {
	md, _ := metadata.FromIncomingContext(ctx)
	return len(md.Get(rpctypes.MetadataRequireLeaderKey)) > 0
}

// leader is whom the member believes to be the leader. It needs the cluster's lock.
func (s *service) leader() uint64 { return cmp.Or(s.member.Leader, s.cluster.leader) }

// header needs the cluster's lock.
func (s *service) header() *pb.ResponseHeader {
	h := &pb.ResponseHeader{ClusterId: s.cluster.id, MemberId: s.member.ID, Revision: s.cluster.store.revision,
		RaftTerm: s.cluster.term}
	if s.member.As != 0 {
		h.MemberId = s.member.As
	}
	if s.member.OfCluster != 0 {
		h.ClusterId = s.member.OfCluster
	}
	if s.member.Term != 0 {
		h.RaftTerm = s.member.Term
	}
	return h
}

// errLearner is spelt out, because clients of 3.5 and 3.6 name it differently.
var errLearner = status.Error(codes.Unavailable, "etcdserver: rpc not supported for learner")

type clusterService struct {
	pb.UnimplementedClusterServer
	*service
}

func (s clusterService) MemberList(ctx context.Context, req *pb.MemberListRequest) (*pb.MemberListResponse, error) {
	unlock := s.cluster.mu.Unlock
	s.cluster.mu.Lock()
	old := strings.HasPrefix(s.member.Version, "3.4.")
	s.member.Lists++
	s.cluster.mu.Unlock()
	if req.Linearizable && !old {
		var err error
		if unlock, err = s.consensus(ctx); err != nil {
			return nil, err
		}
	} else {
		s.cluster.mu.Lock()
		s.member.LocalLists++
	}
	defer unlock()
	switch {
	case s.member.ListErr != nil:
		return nil, s.member.ListErr
	case s.member.Learner:
		return nil, errLearner
	}
	resp := &pb.MemberListResponse{Header: s.header(), Members: s.member.List}
	if resp.Members == nil {
		for _, m := range s.cluster.members {
			x := &pb.Member{ID: m.ID, Name: m.Name, IsLearner: m.Learner,
				PeerURLs: []string{"http://" + m.Name + ":2380"}}
			if m.URL != "" {
				x.ClientURLs = []string{m.URL}
			}
			if m.Advertised != nil {
				x.ClientURLs = m.Advertised
			}
			resp.Members = append(resp.Members, x)
		}
	}
	return resp, nil
}

// MemberRemove removes a member, at the request of one that is left.
func (s clusterService) MemberRemove(ctx context.Context, req *pb.MemberRemoveRequest) (*pb.MemberRemoveResponse,
	error) {
	unlock, err := s.consensus(ctx)
	if err != nil {
		return nil, err
	}
	defer unlock()
	s.member.Removals++
	i := slices.IndexFunc(s.cluster.members, func(m *Member) bool { return m.ID == req.ID })
	switch {
	case s.member.RemoveErr != nil:
		return nil, s.member.RemoveErr
	case i < 0:
		return nil, rpctypes.ErrGRPCMemberNotFound
	}
	s.cluster.members = slices.Delete(s.cluster.members, i, i+1)
	return &pb.MemberRemoveResponse{Header: s.header()}, nil
}

type maintenanceService struct {
	pb.UnimplementedMaintenanceServer
	*service
}

func (s maintenanceService) Status(context.Context, *pb.StatusRequest) (*pb.StatusResponse, error) {
	s.cluster.mu.Lock()
	defer s.cluster.mu.Unlock()
	if s.member.StatusErr != nil {
		return nil, s.member.StatusErr
	}
	h := s.header()
	resp := &pb.StatusResponse{
		Header: h, Version: cmp.Or(s.member.Version, "3.5.35"), Leader: s.leader(), RaftTerm: h.RaftTerm,
		IsLearner: s.member.Learner,
		RaftIndex: 100, RaftAppliedIndex: 100, Errors: s.member.Alarms,
		DbSize: s.member.Size, DbSizeInUse: s.member.InUse,
	}
	if s.member.Index != 0 {
		resp.RaftIndex, resp.RaftAppliedIndex = s.member.Index, s.member.Index
	}
	h.Revision = int64(resp.RaftAppliedIndex) + s.member.Diverged //nolint:gosec // A test's.
	if s.member.DowngradeTo != "" {
		return withDowngrade(resp, s.member.DowngradeTo)
	}
	return resp, nil
}

// HashKV answers with the hash that the member was given.
func (s maintenanceService) HashKV(context.Context, *pb.HashKVRequest) (*pb.HashKVResponse, error) {
	s.cluster.mu.Lock()
	defer s.cluster.mu.Unlock()
	if s.member.HashErr != nil {
		return nil, s.member.HashErr
	}
	return &pb.HashKVResponse{Header: s.header(), Hash: s.member.Hash, CompactRevision: s.member.Compacted}, nil
}

type authService struct {
	pb.UnimplementedAuthServer
	*service
}

// AuthStatus answers as etcd 3.5 does.
func (s authService) AuthStatus(context.Context, *pb.AuthStatusRequest) (*pb.AuthStatusResponse, error) {
	s.cluster.mu.Lock()
	defer s.cluster.mu.Unlock()
	if s.member.AuthErr != nil {
		return nil, s.member.AuthErr
	}
	return &pb.AuthStatusResponse{Header: s.header(), Enabled: s.member.AuthOn}, nil
}

// withDowngrade adds a field that the clients of 3.5 have no name for: 13, with enabled (1) and targetVersion (2)
// in it.
func withDowngrade(resp *pb.StatusResponse, to string) (*pb.StatusResponse, error) {
	codec := encoding.GetCodecV2(proto.Name)
	message, err := codec.Marshal(resp)
	if err != nil {
		return nil, err
	}
	info := append([]byte{1 << 3, 1, 2<<3 | 2, byte(len(to))}, to...) //nolint:gosec // A version is short.
	message = append(message, mem.SliceBuffer(append([]byte{13<<3 | 2, byte(len(info))}, info...)))
	whole := &pb.StatusResponse{}
	return whole, codec.Unmarshal(message, whole)
}

func (s maintenanceService) MoveLeader(_ context.Context, req *pb.MoveLeaderRequest) (*pb.MoveLeaderResponse, error) {
	s.cluster.mu.Lock()
	defer s.cluster.mu.Unlock()
	s.member.Moves++
	switch {
	case s.member.MoveLeaderErr != nil:
		return nil, s.member.MoveLeaderErr
	case s.cluster.leader != s.member.ID:
		return nil, rpctypes.ErrGRPCNotLeader
	case !s.member.MoveLeaderIdle:
		s.cluster.leader, s.cluster.term = req.TargetID, s.cluster.term+1
	}
	return &pb.MoveLeaderResponse{}, nil // etcd's has no header either.
}

func (s maintenanceService) Defragment(context.Context, *pb.DefragmentRequest) (*pb.DefragmentResponse, error) {
	m := s.member
	s.cluster.Set(func(*Cluster, []*Member) {
		m.Defragments, m.Hung = m.Defragments+1,
			m.DefragmentTakes > 0 || m.Hung
	})
	if d := m.DefragmentTakes; d > 0 {
		<-time.After(d) // Whoever asked may have gone, and etcd goes on.
		s.cluster.Set(func(*Cluster, []*Member) { m.Hung = false })
	}
	s.cluster.mu.Lock()
	defer s.cluster.mu.Unlock()
	if m.DefragmentErr != nil {
		return nil, m.DefragmentErr
	}
	m.Size = m.InUse + m.InUse/8 // Some pages are always free.
	return &pb.DefragmentResponse{}, nil
}

// Alarm ends an alarm NOSPACE. When there is none any more, everybody grants leases and takes writes again.
func (s maintenanceService) Alarm(ctx context.Context, req *pb.AlarmRequest) (*pb.AlarmResponse, error) {
	unlock, err := s.consensus(ctx)
	if err != nil {
		return nil, err
	}
	defer unlock()
	s.member.Disarms++
	if s.member.AlarmErr != nil {
		return nil, s.member.AlarmErr
	}
	if req.Action != pb.AlarmRequest_DEACTIVATE || req.Alarm != pb.AlarmType_NOSPACE {
		return nil, status.Error(codes.Unimplemented, "the test's etcd only ends an alarm NOSPACE")
	}
	ended := NoSpaceOf(req.MemberID)
	left := false
	for _, m := range s.cluster.members {
		m.Alarms = slices.DeleteFunc(slices.Clone(m.Alarms), func(a string) bool { return a == ended })
		left = left || slices.ContainsFunc(m.Alarms, func(a string) bool { return strings.Contains(a, "NOSPACE") })
	}
	for _, m := range s.cluster.members {
		if !left {
			m.GrantErr, m.PutErr, m.TxnErr = nil, nil, nil
		}
	}
	return &pb.AlarmResponse{Header: s.header()}, nil
}

// NoSpaceOf is how a status names a member's alarm NOSPACE.
func NoSpaceOf(id uint64) string { return fmt.Sprintf("memberID:%d alarm:NOSPACE", id) }
