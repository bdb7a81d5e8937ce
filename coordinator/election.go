package coordinator

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/concurrency"

	"github.com/quorate/quorate/membership"
)

// releaseTimeout bounds the release of the lock: a host that shuts down gives its
// parts little time, and the lease expires by itself.
const releaseTimeout = time.Second

// releaseRetry is the pause between two attempts to release the lock.
const releaseRetry = releaseTimeout / 40

var (
	errSessionLost = errors.New("the etcd session ended while waiting for the lock")
	// errNotOurs ends a tenure: a lock key that is gone does not come back.
	errNotOurs = errors.New("the lock is not ours any more")
)

// lockPrefix is where the lock of a StatefulSet lives in the etcd it serves.
func lockPrefix(namespace, statefulSet string) string {
	return "/quorate/" + namespace + "/" + statefulSet + "/lock"
}

// tenure is the time during which this process owns the lock.
type tenure struct {
	client  *clientv3.Client
	session *concurrency.Session
	mutex   *concurrency.Mutex
	timeout time.Duration
}

// campaign waits for the lock until it is won or ctx ends.
//
// It has a client of its own, because a cancelled Mutex.Lock cleans up with the
// client's context and hangs when there is no quorum: an abandoned campaign is ended by
// closing its client.
func campaign(ctx context.Context, dial membership.Dial, endpoints []string, prefix string, ttl, timeout time.Duration) (*tenure, error) {
	client, err := dial(endpoints)
	if err != nil {
		return nil, err
	}
	session, err := newSession(ctx, client, ttl, timeout)
	if err != nil {
		return nil, errors.Join(err, client.Close())
	}
	t := &tenure{client: client, session: session, mutex: concurrency.NewMutex(session, prefix), timeout: timeout}

	// Without RequireLeader a watch on an isolated member hangs for ever.
	waiting, cancel := context.WithCancel(clientv3.WithRequireLeader(ctx))
	defer cancel()
	locked := make(chan error, 1)
	var waiter sync.WaitGroup
	waiter.Go(func() { locked <- t.mutex.Lock(waiting) })
	queue := time.NewTicker(ttl)
	defer queue.Stop()
	place := waiterPlace{client: client, prefix: prefix + "/", lease: session.Lease(), timeout: timeout}
wait:
	for {
		select {
		case err = <-locked:
			if err == nil {
				return t, nil
			}
			t.leave(ctx)
			return nil, fmt.Errorf("wait for the lock %s: %w", prefix, err)
		case <-session.Done():
			// A waiter in Lock does not notice that its own session is gone.
			err = errSessionLost
			break wait
		case <-queue.C:
			if err = place.check(ctx); err != nil {
				break wait
			}
		case <-ctx.Done():
			err = ctx.Err()
			break wait
		}
	}
	t.leave(ctx)
	waiter.Wait()
	return nil, err
}

// waiterPlace looks after a waiter's place in the queue. Mutex.Lock has no deadline: a
// request that a hung member took never returns, and a watch there never tells. So
// once per TTL the waiter asks whether it stands in the queue, and whether it is its turn.
type waiterPlace struct {
	client  *clientv3.Client
	prefix  string
	lease   clientv3.LeaseID
	timeout time.Duration
	// first is true when our key was the first at the last look already.
	first bool
}

// check returns an error when waiting on is of no use: our key is not there, or it has
// been our turn for a whole TTL. What could not be asked is no reason to give up.
func (w *waiterPlace) check(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(clientv3.WithRequireLeader(ctx), w.timeout)
	defer cancel()
	key := fmt.Sprintf("%s%x", w.prefix, w.lease)
	resp, err := w.client.Txn(ctx).Then(
		clientv3.OpGet(key, clientv3.WithKeysOnly()),
		clientv3.OpGet(w.prefix, append(clientv3.WithFirstCreate(), clientv3.WithKeysOnly())...),
	).Commit()
	if err != nil {
		return nil // The session tells when etcd stays away.
	}
	if len(resp.Responses[0].GetResponseRange().Kvs) == 0 {
		return errors.New("the request for the lock got lost")
	}
	owners := resp.Responses[1].GetResponseRange().Kvs
	mine := len(owners) > 0 && string(owners[0].Key) == key
	if mine && w.first {
		return errors.New("the lock is free, but its watch does not tell")
	}
	w.first = mine
	return nil
}

// newSession grants the lease with a deadline of its own; concurrency.NewSession
// would wait for ever without quorum.
func newSession(ctx context.Context, client *clientv3.Client, ttl, timeout time.Duration) (*concurrency.Session, error) {
	granting, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	lease, err := client.Grant(granting, int64(ttl/time.Second))
	if err != nil {
		return nil, fmt.Errorf("grant a lease for the lock: %w", err)
	}
	session, err := concurrency.NewSession(client, concurrency.WithLease(lease.ID))
	if err != nil {
		return nil, fmt.Errorf("keep the lock's lease alive: %w", err)
	}
	return session, nil
}

// owns asks etcd, linearizably, whether the lock is still ours. It guards against
// acting in vain; safety rests on the preconditions of the action itself.
func (t *tenure) owns(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(clientv3.WithRequireLeader(ctx), t.timeout)
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

// done is closed when the session has ended. It may lag the lease's expiry.
func (t *tenure) done() <-chan struct{} { return t.session.Done() }

// release gives the lock back by a transaction that is guarded by our own key's
// revision (Mutex.Unlock is not), over whichever member answers: on SIGTERM the local
// etcd usually goes at the same moment. It may be called without harm when the lock is
// long lost.
func (t *tenure) release(ctx context.Context) error {
	ctx = context.WithoutCancel(ctx)
	trying, cancel := context.WithTimeout(ctx, releaseTimeout*3/4)
	defer cancel()
	var err error
	for {
		attempt, stop := context.WithTimeout(trying, releaseTimeout/4)
		_, err = t.client.Txn(attempt).If(t.mutex.IsOwner()).Then(clientv3.OpDelete(t.mutex.Key())).Commit()
		stop()
		if err == nil || trying.Err() != nil {
			break
		}
		wait(trying, releaseRetry, nil) // A member that is going refuses at once.
	}
	t.leave(ctx)
	if err != nil {
		return fmt.Errorf("release the lock (it expires by itself): %w", err)
	}
	return nil
}

// leave ends the session and closes the client. Revoking the lease removes our key
// from the queue at once; where that fails, the lease expires.
func (t *tenure) leave(ctx context.Context) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), releaseTimeout/4)
	defer cancel()
	_, _ = t.client.Revoke(ctx, t.session.Lease())
	t.session.Orphan()
	_ = t.client.Close()
}
