package election

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"path"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/concurrency"

	"github.com/quorate/quorate/selfupdate"
)

var (
	// ErrNotOwner ends a tenure: a lock that is gone does not come back.
	ErrNotOwner = errors.New("the lock is not ours any more")

	errSessionLost = errors.New("the etcd session ended while waiting for the lock")
)

// Tenure is the time during which this process owns the lock.
type Tenure struct {
	s     *session
	mutex *concurrency.Mutex
	// given is closed when the lock was handed over, which the session outlives.
	given chan struct{}
}

func (s *session) own(m *concurrency.Mutex) *Tenure {
	s.tell(true)
	return &Tenure{s: s, mutex: m, given: make(chan struct{})}
}

// tell tells the janitor whether the lock is ours. It never waits: what was said before does not matter any more.
func (s *session) tell(owns bool) {
	select {
	case <-s.owns:
	default:
	}
	s.owns <- owns
}

// Owns asks etcd, linearizably, whether the lock is still ours, and returns [ErrNotOwner] if it is not. Keep-alives do
// not notice that somebody has deleted the key. It reads the key for that: a transaction that does nothing is answered
// by the member alone, even without a quorum.
func (t *Tenure) Owns(ctx context.Context) error {
	resp, err := t.s.client.Txn(ctx).If(t.mutex.IsOwner()).
		Then(clientv3.OpGet(t.mutex.Key(), clientv3.WithCountOnly())).Commit()
	if err != nil {
		return fmt.Errorf("check that the lock is still ours: %w", err)
	}
	if !resp.Succeeded {
		return ErrNotOwner
	}
	return nil
}

// Peers returns the other sidecars that are present and says which of them wait for the lock.
func (t *Tenure) Peers(ctx context.Context) ([]selfupdate.Peer, error) {
	s := t.s
	resp, err := s.client.Txn(ctx).Then(
		clientv3.OpGet(s.keys.presence+"/", clientv3.WithPrefix()),
		clientv3.OpGet(s.keys.lock+"/", clientv3.WithPrefix()),
	).Commit()
	if err != nil {
		return nil, fmt.Errorf("list the sidecars that are present: %w", err)
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

// release gives the lock back, and ends the session. It may be called, and repeated, without harm when the lock is long
// lost.
func (t *Tenure) release(ctx context.Context) error {
	return t.gone(ctx, t.s.insist(ctx, ReleaseTimeout/2, t.releaseOver))
}

// releaseOver is guarded by our own key's revision, which Mutex's own Unlock is not.
func (t *Tenure) releaseOver(ctx context.Context, client *clientv3.Client) error {
	_, err := client.Txn(ctx).If(t.mutex.IsOwner()).Then(clientv3.OpDelete(t.mutex.Key())).Commit()
	return err
}

// handOver gives the lock to a peer that waits for it. Those before it in the queue lose their places in the same
// transaction and line up again, so that the owner changes only once. If the peer has gone meanwhile, the lock is
// simply released.
//
// The session lasts, unless ctx has ended. A new one would cost all members some work, just when the peer is about to
// remove a pod.
func (t *Tenure) handOver(ctx context.Context, to selfupdate.Peer) error {
	resp, err := t.s.client.Get(ctx, t.s.keys.lock+"/", clientv3.WithPrefix())
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
	err = t.s.insist(ctx, ReleaseTimeout/2, func(ctx context.Context, client *clientv3.Client) error {
		resp, err := client.Txn(ctx).If(t.mutex.IsOwner(), there).Then(leave...).Commit()
		if err != nil || resp.Succeeded {
			return err
		}
		return t.releaseOver(ctx, client)
	})
	if err != nil || ctx.Err() != nil {
		return t.gone(ctx, err)
	}
	t.s.tell(false)
	close(t.given)
	return nil
}

// gone ends the session after an attempt to give the lock back.
func (t *Tenure) gone(ctx context.Context, err error) error {
	t.s.end(ctx, ReleaseTimeout/4)
	if err != nil {
		return fmt.Errorf("release the lock (it ends with its session): %w", err)
	}
	return nil
}
