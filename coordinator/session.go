package coordinator

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"path"
	"slices"
	"strings"
	"sync"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/connectivity"
	"google.golang.org/grpc/status"

	"github.com/quorate/quorate/internal/membership"
	"github.com/quorate/quorate/internal/selfupdate"
)

// releaseTimeout bounds the release of the lock: a host that shuts down gives its
// parts little time, and the lease expires by itself.
const releaseTimeout = time.Second

// releaseRetry is the pause between two attempts to release the lock.
const releaseRetry = releaseTimeout / 10

// headStart is how long only the session's own connection is tried. It answers at once unless
// its member goes at the same moment. New connections to all members would cost them, and the
// sidecar that waits for the lock, more than this time.
const headStart = releaseTimeout / 20

var (
	errSessionLost = errors.New("the etcd session ended while waiting for the lock")
	// errNotOurs ends a tenure: a lock key that is gone does not come back.
	errNotOurs = errors.New("the lock is not ours any more")
	// errReordered: our place in the queue was taken back, so that the updated code
	// comes first. We line up again, a moment later.
	errReordered = errors.New("the queue for the lock was reordered")
)

// keys are where the election of a StatefulSet lives in the etcd that it serves.
type keys struct{ root, lock, presence string }

func keysOf(namespace, statefulSet string) keys {
	root := "/quorate/" + namespace + "/" + statefulSet
	return keys{root: root, lock: root + "/lock", presence: root + "/presence"}
}

// reserve is what the lease of a session is granted for on top of its TTL. etcd ends the lease
// only when both have passed. A sidecar that finds less than this left knows that the owner has
// been silent for its whole TTL, and ends the lease in etcd's place.
//
// So no lease of ours expires in an etcd that runs without sidecars, above all in the one in
// which etcd-backup-restore replays a backup: it compares revisions, an expiry takes one, and
// the backup could not be restored. A day is longer than any replay, and what nobody clears
// away is gone after that day.
const reserve = 24 * time.Hour

// session is one life in the election: a lease that is kept alive, and all keys on it.
//
// It has a client of its own, so that whatever hangs without quorum is ended by closing it.
type session struct {
	client    *clientv3.Client
	lease     clientv3.LeaseID
	dial      membership.Dial
	addresses func() []string
	keys      keys
	ttl       time.Duration
	timeout   time.Duration

	// stop ends the keep-alives, and done is closed when they have ended.
	stop context.CancelFunc
	done chan struct{}
	// presence is what was announced, as it was written.
	presence string
	// heir is true if the owner of the lock had another revision than ours when the session began.
	heir bool
	// beside is what runs beside the session; it ends with the client.
	beside sync.WaitGroup

	mu   sync.Mutex
	last time.Time // see confirmed
}

// openSession is granted the lease and then keeps it alive, once in every. Each request has a
// deadline of its own: without quorum it would wait for ever.
func openSession(ctx context.Context, dial membership.Dial, endpoints []string, k keys, lease clientv3.LeaseID,
	ttl, every, timeout time.Duration) (*session, error) {
	granting, cancel := context.WithTimeout(clientv3.WithRequireLeader(ctx), timeout)
	defer cancel()
	client, err := dialWithin(granting, dial, endpoints)
	if err != nil {
		return nil, err
	}
	sent := time.Now()
	if err := grant(granting, client, lease, ttl+reserve); err != nil {
		return nil, errors.Join(fmt.Errorf("grant a lease for the lock at %s: %w", strings.Join(endpoints, ", "), err),
			client.Close())
	}
	keeping, stop := context.WithCancel(clientv3.WithRequireLeader(client.Ctx()))
	s := &session{
		client: client, lease: lease, dial: dial, keys: k, ttl: ttl, timeout: timeout,
		addresses: func() []string { return endpoints },
		stop:      stop, done: make(chan struct{}), last: sent,
	}
	s.beside.Go(func() { s.keepAlive(keeping, every) })
	return s, nil
}

// newLease draws the ID of a lease.
func newLease() clientv3.LeaseID { return clientv3.LeaseID(1 + rand.Int64N(math.MaxInt64)) }

// grant asks for the lease with this ID. If an earlier request was carried out and its answer was lost, that lease is
// there already, and is kept alive. With an ID of etcd's choice, as clientv3's Grant asks for, nobody would know of it,
// and it would stay for a day. Whoever loses quorum often would leave many behind.
func grant(ctx context.Context, client *clientv3.Client, lease clientv3.LeaseID, ttl time.Duration) error {
	_, err := clientv3.RetryLeaseClient(client).LeaseGrant(ctx,
		&pb.LeaseGrantRequest{ID: int64(lease), TTL: int64(ttl / time.Second)})
	if err = rpctypes.Error(err); errors.Is(err, rpctypes.ErrLeaseExist) {
		_, err = client.KeepAliveOnce(ctx, lease)
	}
	if code := status.Code(err); code == codes.DeadlineExceeded || code == codes.Canceled {
		err = cmp.Or(ctx.Err(), err)
	}
	return err
}

// dialWithin waits for Dial no longer than ctx. It has no context of its own, and where there is
// an etcd user it waits for a token. A client that comes later is closed at once.
func dialWithin(ctx context.Context, dial membership.Dial, endpoints []string) (*clientv3.Client, error) {
	type dialled struct {
		client *clientv3.Client
		err    error
	}
	answer := make(chan dialled)
	go func() {
		client, err := dial(endpoints)
		select {
		case answer <- dialled{client, err}:
		case <-ctx.Done():
			if err == nil {
				_ = client.Close() // Only our own end.
			}
		}
	}()
	select {
	case a := <-answer:
		return a.client, a.err
	case <-ctx.Done():
		return nil, fmt.Errorf("connect to etcd at %s: %w", strings.Join(endpoints, ", "), ctx.Err())
	}
}

// Done is closed when the session is over: nothing was confirmed for a TTL, etcd does not know
// the lease any more, or the session was closed. If the clocks run equally fast, no other
// sidecar has taken the lock for dead before then.
func (s *session) Done() <-chan struct{} { return s.done }

// confirmed is when the last keep-alive was sent that etcd has answered; the grant counts as
// one. At that time the lease lived, and etcd had a leader.
func (s *session) confirmed() time.Time {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.last
}

func (s *session) confirm(sent time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.last = sent
}

// retryEtcd is the pause after a failed request of the session. It is shorter than the pause
// between two keep-alives, so that the return of quorum is noticed soon.
const retryEtcd = 500 * time.Millisecond

// errLeaseGone: etcd does not know our lease any more.
var errLeaseGone = errors.New("the lease is gone")

// keepAlive sends keep-alives until the session is over.
//
// clientv3's KeepAlive would send one in a third of the granted time, that is every eight
// hours. Its KeepAliveOnce opens a stream for each, for which etcd has to authenticate the user
// anew, and without a pause it repeats what a member without a leader refuses. So our
// keep-alives have a stream of their own, with one of them under way at a time.
func (s *session) keepAlive(ctx context.Context, every time.Duration) {
	defer close(s.done)
	var b beats
	defer b.end()
	for next := s.confirmed().Add(every); ; {
		over := s.confirmed().Add(s.ttl)
		if next.After(over) {
			next = over
		}
		if pause := time.Until(next); pause > 0 {
			wait(ctx, pause, nil)
		}
		sent := time.Now()
		if ctx.Err() != nil || !sent.Before(over) {
			return
		}
		switch err := b.beat(ctx, s, min(s.timeout, over.Sub(sent))); {
		case err == nil:
			s.confirm(sent)
			next = sent.Add(every)
		case errors.Is(err, errLeaseGone):
			return
		default:
			next = time.Now().Add(retryEtcd)
		}
	}
}

// beats is the stream of keep-alives. With RequireLeader a member that has no leader refuses
// it at once, and one that loses its leader ends it.
type beats struct {
	stream pb.Lease_LeaseKeepAliveClient
	cancel context.CancelFunc
}

func (b *beats) end() {
	if b.cancel != nil {
		b.cancel()
	}
	b.stream = nil
}

// beat sends one keep-alive and waits for its answer.
func (b *beats) beat(ctx context.Context, s *session, within time.Duration) (err error) {
	defer func() {
		if err != nil {
			b.end()
		}
	}()
	if b.stream == nil {
		ctx, b.cancel = context.WithCancel(ctx)
	}
	defer time.AfterFunc(within, b.cancel).Stop()
	if b.stream == nil {
		if b.stream, err = pb.NewLeaseClient(s.client.ActiveConnection()).LeaseKeepAlive(ctx); err != nil {
			return err
		}
	}
	if err = b.stream.Send(&pb.LeaseKeepAliveRequest{ID: int64(s.lease)}); err != nil {
		return err
	}
	resp, err := b.stream.Recv()
	if err == nil && resp.TTL <= 0 {
		err = errLeaseGone
	}
	return err
}

// leaveHome lets a session go on at all members as soon as none of those that it began with can
// be reached, so that a member's crash does not cost the session. The session does not return
// home for the rest of its life. That only delays a member that is asked to end.
func (s *session) leaveHome(elsewhere func() []string) {
	s.beside.Go(func() {
		connection := s.client.ActiveConnection()
		for state := connection.GetState(); state != connectivity.TransientFailure; state = connection.GetState() {
			if !connection.WaitForStateChange(s.client.Ctx(), state) {
				return // The session has been closed.
			}
		}
		s.client.SetEndpoints(elsewhere()...)
	})
}

// bounded gives a request its deadline. Without RequireLeader it hangs on a member that
// is cut off.
func (s *session) bounded(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(clientv3.WithRequireLeader(ctx), s.timeout)
}

// key is our own key under a prefix.
func (s *session) key(prefix string) string { return fmt.Sprintf("%s/%x", prefix, s.lease) }

// announce writes who we are, for as long as the session lives.
func (s *session) announce(ctx context.Context, p selfupdate.Presence) error {
	ctx, cancel := s.bounded(ctx)
	defer cancel()
	text, err := json.Marshal(p)
	if err != nil {
		return fmt.Errorf("encode the presence of %s: %w", p.Pod, err)
	}
	s.presence = string(text)
	if _, err := s.client.Do(ctx, s.announcement()); err != nil {
		return fmt.Errorf("say that this sidecar is here: %w", err)
	}
	return nil
}

func (s *session) announcement() clientv3.Op {
	return clientv3.OpPut(s.key(s.keys.presence), s.presence, clientv3.WithLease(s.lease))
}

// peers returns the other sidecars that are present and says which of them wait for the lock.
func (s *session) peers(ctx context.Context) ([]selfupdate.Peer, error) {
	ctx, cancel := s.bounded(ctx)
	defer cancel()
	resp, err := s.client.Txn(ctx).Then(
		clientv3.OpGet(s.keys.presence+"/", clientv3.WithPrefix()),
		clientv3.OpGet(s.keys.lock+"/", clientv3.WithPrefix(), clientv3.WithKeysOnly()),
	).Commit()
	if err != nil {
		return nil, fmt.Errorf("read who else is here: %w", err)
	}
	queued := map[string]int64{}
	for _, kv := range resp.Responses[1].GetResponseRange().Kvs {
		queued[path.Base(string(kv.Key))] = kv.CreateRevision
	}
	var peers []selfupdate.Peer
	for _, kv := range resp.Responses[0].GetResponseRange().Kvs {
		name := path.Base(string(kv.Key))
		p := selfupdate.Peer{Key: s.keys.lock + "/" + name}
		if string(kv.Key) == s.key(s.keys.presence) || json.Unmarshal(kv.Value, &p.Presence) != nil {
			continue // A sidecar whose key cannot be read is not handed over to.
		}
		p.Queued, p.Waiting = queued[name]
		peers = append(peers, p)
	}
	return peers, nil
}

// close ends the session. Revoking the lease removes our keys at once. While others are left, nothing
// is lost if that fails: they remove what has not been kept alive for a TTL.
//
// A sidecar that stops may be the last one, so that its keys would stay for a day. It therefore insists,
// over every member.
func (s *session) close(ctx context.Context) { s.end(ctx, 3*releaseTimeout/4) }

// end is close, within a limit where the sidecar stops.
func (s *session) end(ctx context.Context, limit time.Duration) {
	s.stop()
	revoke := func(ctx context.Context, client *clientv3.Client) error {
		_, err := client.Revoke(ctx, s.lease)
		if errors.Is(err, rpctypes.ErrLeaseNotFound) {
			return nil // Gone is gone.
		}
		return err
	}
	if ctx.Err() != nil {
		_ = s.insist(ctx, limit, revoke)
	} else {
		once, cancel := context.WithTimeout(ctx, releaseTimeout/4)
		_ = revoke(once, s.client)
		cancel()
	}
	_ = s.client.Close()
	s.beside.Wait()
}

// insist sends a request over the session's own connection until it is answered. If that takes longer
// than headStart, it also sends it to every member at once, each over a connection of its own. On SIGTERM
// the local etcd goes at the same moment, and a client that has seen members come and go may be waiting
// to connect again. The request must have the same effect whether it is carried out once or several times.
func (s *session) insist(ctx context.Context, limit time.Duration,
	over func(context.Context, *clientv3.Client) error) error {
	trying, cancel := context.WithTimeout(context.WithoutCancel(ctx), limit)
	defer cancel()
	insist := func(client *clientv3.Client) error {
		for {
			attempt, stop := context.WithTimeout(trying, releaseTimeout/4)
			err := over(attempt, client)
			stop()
			if err == nil || trying.Err() != nil {
				return err
			}
			wait(trying, releaseRetry, nil) // A member that is going refuses at once.
		}
	}
	answers := make(chan error)
	var asked sync.WaitGroup
	asked.Go(func() { answers <- insist(s.client) })
	asked.Go(func() {
		wait(trying, headStart, nil)
		if trying.Err() != nil {
			return
		}
		for _, endpoint := range slices.Compact(slices.Sorted(slices.Values(s.addresses()))) {
			asked.Go(func() {
				client, err := dialWithin(trying, s.dial, []string{endpoint})
				if err == nil {
					err = insist(client)
					_ = client.Close() // Only our own end.
				}
				answers <- err
			})
		}
	})
	go func() { asked.Wait(); close(answers) }()
	var failed error
	done := false
	for err := range answers {
		if err == nil {
			done = true
			cancel() // The others would add nothing.
		} else {
			failed = err
		}
	}
	if done {
		return nil
	}
	return failed
}
