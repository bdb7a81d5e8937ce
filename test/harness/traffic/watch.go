package traffic

import (
	"context"
	"slices"
	"sync"

	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc"
	"google.golang.org/grpc/connectivity"
)

// eventLog collects what the watch at one member delivers.
type eventLog struct {
	mu    sync.Mutex
	log   EventLog
	last  int64 // the revision to be told of, 0 for none
	reach func()
}

// watch follows everything under the prefix at one member, from the client's first
// revision until the client ends, over any number of interruptions.
func (c *Client) watch(m *member) {
	log := &eventLog{log: EventLog{Member: m.endpoint, From: c.first, To: c.first - 1}}
	c.mu.Lock()
	c.logs = append(c.logs, log)
	c.mu.Unlock()
	c.watches.Go(func() {
		for c.watching.Err() == nil {
			if conn, err := m.connection(); err == nil {
				log.follow(c.watching, conn.client, c.cfg.Prefix)
			}
			wait(c.watching, reconnectWait)
		}
	})
}

// follow watches until the watch breaks for good, or the member says that it is about to end. The library itself
// resumes it after a lost connection; a compaction or an expired login ends it.
func (l *eventLog) follow(ctx context.Context, client *clientv3.Client, prefix string) {
	ctx, cancel := context.WithCancel(ctx)
	var ends sync.WaitGroup
	defer ends.Wait()
	defer cancel()
	ends.Go(func() { endWith(ctx, cancel, client.ActiveConnection()) })
	for response := range client.Watch(ctx, prefix, clientv3.WithPrefix(), clientv3.WithRev(l.next())) {
		l.add(response)
	}
}

// endWith ends a watch when its connection is not to be used any more. Without TLS, an etcd that ends waits for seven
// seconds for those who watch, although it has told them.
func endWith(ctx context.Context, cancel context.CancelFunc, conn *grpc.ClientConn) {
	ready := false
	for state := conn.GetState(); ; state = conn.GetState() {
		if ready && state != connectivity.Ready {
			cancel()
		}
		ready = state == connectivity.Ready
		if !conn.WaitForStateChange(ctx, state) {
			return
		}
	}
}

func (l *eventLog) member() string { return l.log.Member } // never changes

func (l *eventLog) next() int64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.log.To + 1
}

func (l *eventLog) add(response clientv3.WatchResponse) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if next := l.log.To + 1; response.CompactRevision > next {
		l.log.Gaps = append(l.log.Gaps, Gap{From: next, To: response.CompactRevision - 1})
		l.log.To = response.CompactRevision - 1
	}
	for _, event := range response.Events {
		l.log.Events = append(l.log.Events, Event{
			Revision: event.Kv.ModRevision, Key: string(event.Kv.Key), Value: string(event.Kv.Value),
			Version: event.Kv.Version, Deleted: event.Type == clientv3.EventTypeDelete,
		})
		l.log.To = max(l.log.To, event.Kv.ModRevision)
	}
	l.tell()
}

// notify calls reach once, when the log covers the revision last. Reach must not block.
func (l *eventLog) notify(last int64, reach func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.last, l.reach = last, reach
	l.tell()
}

// tell is called with the lock held.
func (l *eventLog) tell() {
	if l.reach == nil || l.log.To < l.last {
		return
	}
	l.log.Complete = true
	l.reach()
	l.reach = nil
}

func (l *eventLog) result() EventLog {
	l.mu.Lock()
	defer l.mu.Unlock()
	result := l.log
	result.Events, result.Gaps = slices.Clone(l.log.Events), slices.Clone(l.log.Gaps)
	return result
}
