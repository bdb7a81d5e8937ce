package traffic

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/stats"
)

const (
	// reconnectWait bounds how long a member that is back goes unnoticed. gRPC's
	// own upper bound of two minutes is meant for clients that must spare a server.
	reconnectWait = 250 * time.Millisecond
	// connectTimeout is how long one attempt to connect may take. A stopped process accepts
	// connections (the kernel does) and never answers. It has to be less than TCP's first
	// retransmission, one second: while a pod is replaced, its address has no owner, and
	// packets to it are lost without an error.
	connectTimeout = 400 * time.Millisecond
	// keepaliveTime and keepaliveTimeout get rid of a connection whose other end is
	// gone without a word, for the watches. Servers refuse pings more frequent than
	// every 5 s, and gRPC does not send them more often than every 10 s.
	keepaliveTime    = 10 * time.Second
	keepaliveTimeout = 3 * time.Second
)

// Static returns the endpoints of a cluster whose members keep their addresses.
func Static(endpoints ...string) func() []string {
	return func() []string { return endpoints }
}

var errNoMember = errors.New("the function Endpoints names no member")

// andAt adds what is wrong with one member to what is wrong with others, in one line.
// It begins with errNoMember.
func andAt(problem error, endpoint string, err error) error {
	if problem == errNoMember { //nolint:errorlint // never wrapped here
		return fmt.Errorf("%s: %w", endpoint, err)
	}
	return fmt.Errorf("%w; %s: %w", problem, endpoint, err)
}

// access is how to reach a cluster.
type access struct {
	endpoints          func() []string
	tls                *tls.Config
	username, password string
}

func (a access) check(what string) error {
	if a.endpoints == nil {
		return fmt.Errorf("%s: Endpoints is nil; give a function that returns the client URLs of the members, e.g. "+
			"traffic.Static(\"https://main-0:2379\")", what)
	}
	if a.password != "" && a.username == "" {
		return fmt.Errorf("%s: Password is set but Username is empty; set both or neither", what)
	}
	return nil
}

// pool holds one etcd client for every member that was ever named.
type pool struct {
	access
	ctx    context.Context //nolint:containedctx // the life of the clients, not of a call
	cancel context.CancelFunc
	// added is called once for every member, where it is first named.
	added func(*member)

	mu      sync.Mutex
	members map[string]*member
	wg      sync.WaitGroup
}

// member is one endpoint with an etcd client of its own, so that a sick member can
// never slow down what is asked of another.
type member struct {
	endpoint string
	conn     atomic.Pointer[connection]
	problem  atomic.Pointer[error]
}

type connection struct {
	client      *clientv3.Client
	kv          clientv3.KV
	maintenance pb.MaintenanceClient
	cluster     pb.ClusterClient
}

func newPool(a access, added func(*member)) *pool {
	ctx, cancel := context.WithCancel(context.Background())
	return &pool{access: a, ctx: ctx, cancel: cancel, added: added, members: map[string]*member{}}
}

// current returns the members that the endpoints name now, in their order.
func (p *pool) current() []*member {
	endpoints := p.endpoints()
	current := make([]*member, 0, len(endpoints))
	var fresh []*member
	p.mu.Lock()
	for _, endpoint := range endpoints {
		m := p.members[endpoint]
		if m == nil {
			m = &member{endpoint: endpoint}
			p.members[endpoint] = m
			fresh = append(fresh, m)
		}
		if !slices.Contains(current, m) {
			current = append(current, m)
		}
	}
	for _, m := range fresh {
		if p.username == "" {
			_ = p.connect(m)
			continue
		}
		// With a user name the client logs in before it is usable, which takes as
		// long as the member pleases.
		p.wg.Go(func() {
			for p.connect(m) != nil && wait(p.ctx, reconnectWait) {
			}
		})
	}
	p.mu.Unlock()
	for _, m := range fresh {
		if p.added != nil {
			p.added(m)
		}
	}
	return current
}

func (p *pool) connect(m *member) error {
	client, err := clientv3.New(clientv3.Config{
		Endpoints:            []string{m.endpoint},
		TLS:                  p.tls,
		Username:             p.username,
		Password:             p.password,
		Context:              p.ctx,
		DialTimeout:          connectTimeout,
		DialKeepAliveTime:    keepaliveTime,
		DialKeepAliveTimeout: keepaliveTimeout,
		// One for the request, one in case that the login has expired. Requests are
		// not repeated for any other reason, see connection.kv.
		MaxUnaryRetries: 2,
		Logger:          zap.NewNop(),
		DialOptions: []grpc.DialOption{
			grpc.WithConnectParams(grpc.ConnectParams{
				Backoff: backoff.Config{BaseDelay: reconnectWait / 2, Multiplier: 1.5, Jitter: 0.2,
					MaxDelay: reconnectWait},
				MinConnectTimeout: connectTimeout,
			}),
			grpc.WithStatsHandler(sentHandler{}),
			grpc.WithChainUnaryInterceptor(failFast),
		},
	})
	if err != nil {
		err = fmt.Errorf("etcd client for %s: %w", m.endpoint, err)
		m.problem.Store(&err)
		return err
	}
	conn := client.ActiveConnection()
	m.conn.Store(&connection{
		client: client,
		// Over the plain stub, because clientv3's own marks reads as repeatable.
		kv:          clientv3.NewKVFromKVClient(pb.NewKVClient(conn), client),
		maintenance: pb.NewMaintenanceClient(conn),
		cluster:     pb.NewClusterClient(conn),
	})
	return nil
}

// connection returns the member's client, or why there is none yet.
func (m *member) connection() (*connection, error) {
	if c := m.conn.Load(); c != nil {
		return c, nil
	}
	if problem := m.problem.Load(); problem != nil {
		return nil, *problem
	}
	return nil, fmt.Errorf("etcd client for %s: not connected yet", m.endpoint)
}

// close ends every client and whatever still runs in it.
func (p *pool) close() {
	p.cancel()
	p.wg.Wait()
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, m := range p.members {
		if c := m.conn.Load(); c != nil {
			_ = c.client.Close() // reports nothing but the cancelled context
		}
	}
}

// failFast makes a request fail at once where nothing listens. clientv3 waits for a
// connection instead, because it has nowhere else to go.
func failFast(ctx context.Context, method string, req, reply any, cc *grpc.ClientConn, invoker grpc.UnaryInvoker,
	opts ...grpc.CallOption) error {
	return invoker(ctx, method, req, reply, cc, append(opts, grpc.WaitForReady(false))...)
}

// sentHandler notes for a request whether anything of it was sent. What was never
// sent has failed for certain; of anything else without a clear answer we know nothing.
type sentHandler struct{}

type sentKey struct{}

func trackSent(ctx context.Context) (context.Context, *atomic.Bool) {
	sent := new(atomic.Bool)
	return context.WithValue(ctx, sentKey{}, sent), sent
}

func (sentHandler) TagRPC(ctx context.Context, _ *stats.RPCTagInfo) context.Context { return ctx }

func (sentHandler) HandleRPC(ctx context.Context, event stats.RPCStats) {
	if _, ok := event.(*stats.OutHeader); !ok {
		return
	}
	if sent, ok := ctx.Value(sentKey{}).(*atomic.Bool); ok {
		sent.Store(true)
	}
}

func (sentHandler) TagConn(ctx context.Context, _ *stats.ConnTagInfo) context.Context { return ctx }

func (sentHandler) HandleConn(context.Context, stats.ConnStats) {}

// outcomeOf says what the answer err means for a write.
func outcomeOf(err error, sent bool) Outcome {
	if err == nil {
		return OK
	}
	if !sent {
		return Failed
	}
	var refused rpctypes.EtcdError
	if errors.As(err, &refused) {
		if errors.Is(err, rpctypes.ErrNoSpace) {
			// A write that the quota has no room for any more is applied and refused.
			return Unknown
		}
		switch refused.Code() {
		case codes.InvalidArgument, codes.FailedPrecondition, codes.OutOfRange, codes.ResourceExhausted,
			codes.PermissionDenied, codes.Unauthenticated, codes.NotFound, codes.Unimplemented:
			// etcd itself says so, before the proposal or in place of applying it.
			return Failed
		default:
			return Unknown
		}
	}
	return Unknown
}

// wait waits for d and returns true, or false as soon as ctx ends.
func wait(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-timer.C:
		return true
	}
}
