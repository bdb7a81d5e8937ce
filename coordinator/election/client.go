package election

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
)

// connect waits for Dial no longer than ctx. Dial has no context of its own, and where there is an etcd user it waits
// for a token. A client that comes later is closed at once.
func connect(ctx context.Context, dial Dial, endpoints []string) (*clientv3.Client, error) {
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

// bounded gives every request a deadline, also those of etcd's Mutex, which has none for its own. Without RequireLeader
// a request hangs on a member that is cut off.
type bounded struct {
	clientv3.KV
	timeout time.Duration
}

func (b bounded) within(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(clientv3.WithRequireLeader(ctx), b.timeout)
}

func (b bounded) Get(ctx context.Context, key string, opts ...clientv3.OpOption) (*clientv3.GetResponse, error) {
	ctx, cancel := b.within(ctx)
	defer cancel()
	return b.KV.Get(ctx, key, opts...)
}

func (b bounded) Put(ctx context.Context, key, value string, opts ...clientv3.OpOption) (*clientv3.PutResponse,
	error) {
	ctx, cancel := b.within(ctx)
	defer cancel()
	return b.KV.Put(ctx, key, value, opts...)
}

func (b bounded) Delete(ctx context.Context, key string, opts ...clientv3.OpOption) (*clientv3.DeleteResponse, error) {
	ctx, cancel := b.within(ctx)
	defer cancel()
	return b.KV.Delete(ctx, key, opts...)
}

func (b bounded) Txn(ctx context.Context) clientv3.Txn {
	ctx, cancel := b.within(ctx)
	return boundedTxn{b.KV.Txn(ctx), cancel}
}

type boundedTxn struct {
	clientv3.Txn
	cancel context.CancelFunc
}

func (t boundedTxn) If(cmps ...clientv3.Cmp) clientv3.Txn {
	return boundedTxn{t.Txn.If(cmps...), t.cancel}
}
func (t boundedTxn) Then(ops ...clientv3.Op) clientv3.Txn {
	return boundedTxn{t.Txn.Then(ops...), t.cancel}
}
func (t boundedTxn) Else(ops ...clientv3.Op) clientv3.Txn {
	return boundedTxn{t.Txn.Else(ops...), t.cancel}
}

func (t boundedTxn) Commit() (*clientv3.TxnResponse, error) {
	defer t.cancel()
	return t.Txn.Commit()
}

// asking takes the place of the Watcher of a process without a member of its own. A watch is a stream to a member that
// may be told to end at any time, so it asks from time to time whether the key has been deleted. That is all that
// Mutex's Lock wants to know.
type asking struct {
	clientv3.Watcher
	kv     clientv3.KV
	every  time.Duration
	beside *sync.WaitGroup
}

func (a asking) Watch(ctx context.Context, key string, opts ...clientv3.OpOption) clientv3.WatchChan {
	told := make(chan clientv3.WatchResponse, 1)
	since := clientv3.OpGet(key, opts...).Rev()
	a.beside.Go(func() {
		defer close(told)
		for ctx.Err() == nil {
			resp, err := a.kv.Get(ctx, key)
			if err == nil && (len(resp.Kvs) == 0 || resp.Kvs[0].CreateRevision > since) {
				told <- clientv3.WatchResponse{Events: []*clientv3.Event{{Type: clientv3.EventTypeDelete}}}
				return
			}
			pause(ctx, a.every, nil)
		}
	})
	return told
}

// pause waits for d, or until ctx or what done belongs to ends.
func pause(ctx context.Context, d time.Duration, done <-chan struct{}) {
	if d <= 0 {
		return
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
	case <-done:
	case <-timer.C:
	}
}
