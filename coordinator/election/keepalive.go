package election

import (
	"context"
	"errors"
	"sync"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// Retry is the pause after a request that failed. It is shorter than the pause between two keep-alives, so that the
// return of a quorum is noticed soon.
const Retry = 500 * time.Millisecond

// errLeaseGone: etcd does not know our lease any more.
var errLeaseGone = errors.New("the lease is gone")

// life keeps the lease of a session alive. It takes the place of clientv3's own Lease in the session's client, and so
// concurrency.Session lives exactly as long as we want it to.
//
// clientv3 itself would send a keep-alive in a third of the granted time, that is every eight hours, and would notice
// the end of the session only after a day. Its KeepAliveOnce opens a stream for each, for which etcd has to
// authenticate the user anew, and without a pause it repeats what a member without a leader refuses. So our keep-alives
// have a stream of their own, with one of them under way at a time.
type life struct {
	clientv3.Lease
	client *clientv3.Client
	id     clientv3.LeaseID
	// every is the time from one keep-alive to the next, and timeout is how long an answer is waited for. The session
	// is over when none has been answered for ttl.
	every, timeout, ttl time.Duration
	// failed, where not nil, is called after each one that was not answered. Then no stream is left open either: a
	// session without a home has none at all between two keep-alives.
	failed func()

	mu   sync.Mutex
	last time.Time // see confirmed
}

// confirmed is when the last keep-alive was sent that etcd has answered; the grant counts as one. At that time the
// lease lived, and etcd had a leader.
func (l *life) confirmed() time.Time {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.last
}

func (l *life) confirm(sent time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.last = sent
}

// KeepAlive is what concurrency.NewSession calls. The channel never carries anything, and is closed when the session is
// over: nothing was confirmed for a TTL, etcd does not know the lease any more, or ctx has ended. If the clocks run
// equally fast, nobody else has taken the lock for dead before then.
func (l *life) KeepAlive(ctx context.Context, _ clientv3.LeaseID) (<-chan *clientv3.LeaseKeepAliveResponse, error) {
	over := make(chan *clientv3.LeaseKeepAliveResponse)
	go func() {
		defer close(over)
		l.keep(clientv3.WithRequireLeader(ctx))
	}()
	return over, nil
}

// keep sends keep-alives until the session is over.
func (l *life) keep(ctx context.Context) {
	var b beats
	defer b.end()
	for next := l.confirmed().Add(l.every); ; {
		over := l.confirmed().Add(l.ttl)
		if next.After(over) {
			next = over
		}
		pause(ctx, time.Until(next), nil)
		sent := time.Now()
		if ctx.Err() != nil || !sent.Before(over) {
			return
		}
		err := b.beat(ctx, l, min(l.timeout, over.Sub(sent)))
		if l.failed != nil {
			b.end()
		}
		switch {
		case err == nil:
			l.confirm(sent)
			next = sent.Add(l.every)
		case errors.Is(err, errLeaseGone):
			return
		default:
			if l.failed != nil {
				l.failed()
			}
			next = time.Now().Add(Retry)
		}
	}
}

// beats is the stream of keep-alives. With RequireLeader a member that has no leader refuses it at once, and one that
// loses its leader ends it.
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
func (b *beats) beat(ctx context.Context, l *life, within time.Duration) (err error) {
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
		if b.stream, err = pb.NewLeaseClient(l.client.ActiveConnection()).LeaseKeepAlive(ctx); err != nil {
			return err
		}
	}
	if err = b.stream.Send(&pb.LeaseKeepAliveRequest{ID: int64(l.id)}); err != nil {
		return err
	}
	resp, err := b.stream.Recv()
	if err == nil && resp.TTL <= 0 {
		err = errLeaseGone
	}
	return err
}
