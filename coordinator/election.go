package coordinator

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"
	"sync"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/concurrency"
	"google.golang.org/grpc/connectivity"

	"github.com/quorate/quorate/membership"
	"github.com/quorate/quorate/selfupdate"
)

// releaseTimeout bounds the release of the lock: a host that shuts down gives its
// parts little time, and the lease expires by itself.
const releaseTimeout = time.Second

// releaseRetry is the pause between two attempts to release the lock.
const releaseRetry = releaseTimeout / 10

// headStart is for how long only the session's own connection is tried, which answers at once
// unless its member goes at the same moment: new connections to all members cost them, and
// whoever waits for the lock, more than that.
const headStart = releaseTimeout / 20

var (
	errSessionLost = errors.New("the etcd session ended while waiting for the lock")
	// errNotOurs ends a tenure: a lock key that is gone does not come back.
	errNotOurs = errors.New("the lock is not ours any more")
	// errReordered: our place in the queue was taken back, so that the updated code
	// comes first. We line up again.
	errReordered = errors.New("the queue for the lock was reordered")
)

// keys are where the election of a StatefulSet lives in the etcd that it serves.
type keys struct{ lock, presence string }

func keysOf(namespace, statefulSet string) keys {
	root := "/quorate/" + namespace + "/" + statefulSet
	return keys{lock: root + "/lock", presence: root + "/presence"}
}

// session is one life in the election: a lease that is kept alive, and all keys on it.
//
// It has a client of its own, because a cancelled Mutex.Lock cleans up with the
// client's context and hangs when there is no quorum: an abandoned campaign is ended by
// closing its client.
type session struct {
	*concurrency.Session
	client    *clientv3.Client
	dial      membership.Dial
	addresses func() []string
	keys      keys
	ttl       time.Duration
	timeout   time.Duration
	// following is what follows the connection; it ends with the client.
	following sync.WaitGroup
}

// openSession grants the lease with a deadline of its own; concurrency.NewSession would
// wait for ever without quorum.
func openSession(ctx context.Context, dial membership.Dial, endpoints []string, k keys, ttl, timeout time.Duration) (*session, error) {
	client, err := dial(endpoints)
	if err != nil {
		return nil, err
	}
	granting, cancel := context.WithTimeout(clientv3.WithRequireLeader(ctx), timeout)
	defer cancel()
	lease, err := client.Grant(granting, int64(ttl/time.Second))
	if err != nil {
		return nil, errors.Join(fmt.Errorf("grant a lease for the lock at %s: %w", strings.Join(endpoints, ", "), err), client.Close())
	}
	s, err := concurrency.NewSession(client, concurrency.WithLease(lease.ID))
	if err != nil {
		return nil, errors.Join(fmt.Errorf("keep the lock's lease alive: %w", err), client.Close())
	}
	return &session{
		Session: s, client: client, dial: dial, keys: k, ttl: ttl, timeout: timeout,
		addresses: func() []string { return endpoints },
	}, nil
}

// leaveHome lets a session go on at all members as soon as none of those that it began with
// can be reached, so that a member's crash does not cost the session. It does not come back
// as long as it lives: nobody is the worse for it but a member that is asked to end.
func (s *session) leaveHome(elsewhere func() []string) {
	s.following.Go(func() {
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

// key is our own key under a prefix, named like concurrency.Mutex names its own.
func (s *session) key(prefix string) string { return fmt.Sprintf("%s/%x", prefix, s.Lease()) }

// announce says who is here, for as long as the session lives.
func (s *session) announce(ctx context.Context, p selfupdate.Presence) error {
	ctx, cancel := s.bounded(ctx)
	defer cancel()
	text, err := json.Marshal(p)
	if err != nil {
		return fmt.Errorf("encode the presence of %s: %w", p.Pod, err)
	}
	if _, err := s.client.Put(ctx, s.key(s.keys.presence), string(text), clientv3.WithLease(s.Lease())); err != nil {
		return fmt.Errorf("say that this sidecar is here: %w", err)
	}
	return nil
}

// peers returns the other sidecars that are present, and who of them waits for the
// lock.
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
			continue // What cannot be read is nobody to hand over to.
		}
		p.Queued, p.Waiting = queued[name]
		peers = append(peers, p)
	}
	return peers, nil
}

// wait stands in the queue until the lock is ours or ctx or the session ends.
func (s *session) wait(ctx context.Context) (*tenure, error) {
	t := &tenure{session: s, mutex: concurrency.NewMutex(s.Session, s.keys.lock)}
	waiting, cancel := context.WithCancel(clientv3.WithRequireLeader(ctx))
	defer cancel()
	locked := make(chan error, 1)
	var waiter sync.WaitGroup
	defer waiter.Wait()
	waiter.Go(func() { locked <- t.mutex.Lock(waiting) })
	look := time.NewTicker(s.ttl)
	defer look.Stop()
	place := waiterPlace{session: s}
	for {
		var err error
		select {
		case err := <-locked:
			if err == nil {
				return t, nil
			}
			s.close(ctx)
			if errors.Is(err, concurrency.ErrSessionExpired) {
				return nil, errReordered
			}
			return nil, fmt.Errorf("wait for the lock %s: %w", s.keys.lock, err)
		case <-s.Done():
			// A waiter in Lock does not notice that its own session is gone.
			err = errSessionLost
		case <-look.C:
			err = place.check(ctx)
		case <-ctx.Done():
			err = ctx.Err()
		}
		if err != nil {
			s.close(ctx)
			return nil, err
		}
	}
}

// waiterPlace looks after a waiter's place in the queue. Mutex.Lock has no deadline: a
// request that a hung member took never returns, a watch there never tells, and a key
// that nobody keeps alive is waited for for ever. So once per TTL the waiter asks where
// it stands.
type waiterPlace struct {
	*session
	// first is true when our key was the first at the last look already.
	first bool
}

// check returns an error when waiting on is of no use: our key is not there, or it has
// been our turn for a whole TTL. What could not be asked is no reason to give up.
func (w *waiterPlace) check(ctx context.Context) error {
	asking, cancel := w.bounded(ctx)
	defer cancel()
	key := w.key(w.keys.lock)
	resp, err := w.client.Txn(asking).Then(
		clientv3.OpGet(key, clientv3.WithKeysOnly()),
		clientv3.OpGet(w.keys.lock+"/", append(clientv3.WithFirstCreate(), clientv3.WithKeysOnly())...),
	).Commit()
	if err != nil {
		return nil // The session tells when etcd stays away.
	}
	if len(resp.Responses[0].GetResponseRange().Kvs) == 0 {
		return errors.New("the request for the lock got lost")
	}
	owners := resp.Responses[1].GetResponseRange().Kvs
	if len(owners) == 0 {
		return nil
	}
	owner := owners[0]
	mine := string(owner.Key) == key
	if mine && w.first {
		return errors.New("the lock is free, but its watch does not tell")
	}
	w.first = mine
	if !mine {
		return w.evictOrphan(ctx, string(owner.Key), owner.Lease, owner.ModRevision)
	}
	return nil
}

// evictOrphan removes a lock key that no lease will ever remove, such as one that was
// restored from a backup: it would block for ever. The key is removed only as it was
// seen, so a living owner's never is.
func (s *session) evictOrphan(ctx context.Context, key string, lease, modRevision int64) error {
	ctx, cancel := s.bounded(ctx)
	defer cancel()
	if lease != 0 {
		resp, err := s.client.TimeToLive(ctx, clientv3.LeaseID(lease))
		if err != nil || resp.TTL >= 0 {
			return nil // It lives, or nobody knows.
		}
	}
	if _, err := s.client.Txn(ctx).
		If(clientv3.Compare(clientv3.ModRevision(key), "=", modRevision)).
		Then(clientv3.OpDelete(key)).Commit(); err != nil {
		return fmt.Errorf("remove the lock key %s that has no lease: %w", key, err)
	}
	return nil
}

// evictOrphans does so for all keys in the queue.
func (s *session) evictOrphans(ctx context.Context) error {
	asking, cancel := s.bounded(ctx)
	defer cancel()
	resp, err := s.client.Get(asking, s.keys.lock+"/", clientv3.WithPrefix(), clientv3.WithKeysOnly())
	if err != nil {
		return fmt.Errorf("read the queue for the lock: %w", err)
	}
	for _, kv := range resp.Kvs {
		if err := s.evictOrphan(ctx, string(kv.Key), kv.Lease, kv.ModRevision); err != nil {
			return err
		}
	}
	return nil
}

// close ends the session. Revoking the lease removes our keys at once; where that
// fails, the lease expires.
func (s *session) close(ctx context.Context) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), releaseTimeout/4)
	defer cancel()
	_, _ = s.client.Revoke(ctx, s.Lease())
	s.Orphan()
	_ = s.client.Close()
	s.following.Wait()
}

// tenure is the time during which this process owns the lock.
type tenure struct {
	*session
	mutex *concurrency.Mutex
}

// owns asks etcd, linearizably, whether the lock is still ours.
func (t *tenure) owns(ctx context.Context) error {
	ctx, cancel := t.bounded(ctx)
	defer cancel()
	resp, err := t.client.Txn(ctx).If(t.mutex.IsOwner()).Commit()
	if err != nil {
		return fmt.Errorf("check that the lock is still ours: %w", err)
	}
	if !resp.Succeeded {
		return errNotOurs
	}
	return nil
}

// release gives the lock back. It may be called, and repeated, without harm when the
// lock is long lost.
func (t *tenure) release(ctx context.Context) error {
	return t.giveBack(ctx, t.releaseOver)
}

// releaseOver is guarded by our own key's revision; Mutex.Unlock is not.
func (t *tenure) releaseOver(ctx context.Context, client *clientv3.Client) error {
	_, err := client.Txn(ctx).If(t.mutex.IsOwner()).Then(clientv3.OpDelete(t.mutex.Key())).Commit()
	return err
}

// handOver gives the lock to a peer that waits for it. Who stands before it in the
// queue loses its place in the same transaction and lines up again, so that the
// coordinator changes once. If the peer has gone meanwhile, the lock is simply released.
func (t *tenure) handOver(ctx context.Context, to selfupdate.Peer) error {
	asking, cancel := t.bounded(ctx)
	resp, err := t.client.Get(asking, t.keys.lock+"/", clientv3.WithPrefix(), clientv3.WithKeysOnly())
	cancel()
	if err != nil {
		return errors.Join(fmt.Errorf("read the queue for the lock: %w", err), t.release(ctx))
	}
	leave := []clientv3.Op{clientv3.OpDelete(t.mutex.Key())}
	for _, kv := range resp.Kvs {
		if kv.CreateRevision < to.Queued && string(kv.Key) != t.mutex.Key() {
			leave = append(leave, clientv3.OpDelete(string(kv.Key)))
		}
	}
	there := clientv3.Compare(clientv3.CreateRevision(to.Key), "=", to.Queued)
	return t.giveBack(ctx, func(ctx context.Context, client *clientv3.Client) error {
		if resp, err := client.Txn(ctx).If(t.mutex.IsOwner(), there).Then(leave...).Commit(); err != nil || resp.Succeeded {
			return err
		}
		return t.releaseOver(ctx, client)
	})
}

// giveBack sends a transaction over the session's own connection and, where that has not
// answered after headStart, over every member at once, each over a connection of its own; and
// then ends the session. On SIGTERM the local etcd goes at the same moment, and a client that
// has seen members come and go may be waiting to connect again. The transaction has to have
// the same effect once or several times.
func (t *tenure) giveBack(ctx context.Context, over func(context.Context, *clientv3.Client) error) error {
	trying, cancel := context.WithTimeout(context.WithoutCancel(ctx), releaseTimeout/2)
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
	asked.Go(func() { answers <- insist(t.client) })
	asked.Go(func() {
		wait(trying, headStart, nil)
		if trying.Err() != nil {
			return
		}
		for _, endpoint := range slices.Compact(slices.Sorted(slices.Values(t.addresses()))) {
			asked.Go(func() {
				client, err := t.dial([]string{endpoint})
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
			cancel() // The others have nothing to add.
		} else {
			failed = err
		}
	}
	t.close(ctx)
	if !done {
		return fmt.Errorf("release the lock (it expires by itself): %w", failed)
	}
	return nil
}
