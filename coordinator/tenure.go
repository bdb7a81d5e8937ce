package coordinator

import (
	"context"
	"errors"
	"fmt"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/quorate/quorate/internal/selfupdate"
)

// tenure is the time during which this process owns the lock.
type tenure struct {
	*session
	// key is our place in the queue, and created its revision.
	key     string
	created int64
	// given is closed when the lock was handed over, which the session outlives.
	given chan struct{}
	// lookAway ends what only the owner of the lock does.
	lookAway context.CancelFunc
}

// mine is true in etcd as long as the lock is ours.
func (t *tenure) mine() clientv3.Cmp {
	return clientv3.Compare(clientv3.CreateRevision(t.key), "=", t.created)
}

// owns asks etcd, linearizably, whether the lock is still ours. It reads the key for that: a transaction that does
// nothing is answered by the member alone, even without a quorum.
func (t *tenure) owns(ctx context.Context) error {
	ctx, cancel := t.bounded(ctx)
	defer cancel()
	resp, err := t.client.Txn(ctx).If(t.mine()).Then(clientv3.OpGet(t.key, clientv3.WithCountOnly())).Commit()
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
	return t.gone(ctx, t.insist(ctx, releaseTimeout/2, t.releaseOver))
}

// releaseOver is guarded by our own key's revision.
func (t *tenure) releaseOver(ctx context.Context, client *clientv3.Client) error {
	_, err := client.Txn(ctx).If(t.mine()).Then(clientv3.OpDelete(t.key)).Commit()
	return err
}

// handOver gives the lock to a peer that waits for it. Sidecars before it in the queue lose
// their places in the same transaction and line up again, so that the coordinator changes only
// once. If the peer has gone meanwhile, the lock is simply released.
//
// The session lasts, unless ctx has ended. A new one would cost all members some work, just when the peer is about to
// remove a pod.
func (t *tenure) handOver(ctx context.Context, to selfupdate.Peer) error {
	asking, cancel := t.bounded(ctx)
	resp, err := t.client.Get(asking, t.keys.lock+"/", clientv3.WithPrefix(), clientv3.WithKeysOnly())
	cancel()
	if err != nil {
		return errors.Join(fmt.Errorf("read the queue for the lock: %w", err), t.release(ctx))
	}
	leave := []clientv3.Op{clientv3.OpDelete(t.key)}
	for _, kv := range resp.Kvs {
		if kv.CreateRevision < to.Queued && string(kv.Key) != t.key {
			leave = append(leave, clientv3.OpDelete(string(kv.Key)))
		}
	}
	there := clientv3.Compare(clientv3.CreateRevision(to.Key), "=", to.Queued)
	err = t.insist(ctx, releaseTimeout/2, func(ctx context.Context, client *clientv3.Client) error {
		if resp, err := client.Txn(ctx).If(t.mine(), there).Then(leave...).Commit(); err != nil || resp.Succeeded {
			return err
		}
		return t.releaseOver(ctx, client)
	})
	if err != nil || ctx.Err() != nil {
		return t.gone(ctx, err)
	}
	t.lookAway()
	close(t.given)
	return nil
}

// gone ends the session after an attempt to give the lock back.
func (t *tenure) gone(ctx context.Context, err error) error {
	t.end(ctx, releaseTimeout/4)
	if err != nil {
		return fmt.Errorf("release the lock (it expires by itself): %w", err)
	}
	return nil
}
