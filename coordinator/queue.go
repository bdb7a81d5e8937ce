package coordinator

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"path"
	"time"

	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/quorate/quorate/internal/selfupdate"
)

// queue asks for the owner of the lock and all that wait for it, in their order. It asks for their values, which are
// empty, because etcd 3.7 leaves out the leases where it is asked for keys alone (etcd-io/etcd#22209). A key without a
// lease looks like one from a backup, and is removed.
func (k keys) queue() clientv3.Op {
	byOrder := clientv3.WithSort(clientv3.SortByCreateRevision, clientv3.SortAscend)
	return clientv3.OpGet(k.lock+"/", clientv3.WithPrefix(), byOrder)
}

// lineUpAgain is the least time for which a sidecar stays out of the queue after the lock was handed over by it or past
// it. The most is twice that. The new owner is about to remove a pod, and if all others lined up at the same moment,
// the members would have to work for them just then. The time is short, because the new owner may crash. Somebody else
// has to be in the queue again before it is back.
const lineUpAgain = 50 * time.Millisecond

// wait stands in the queue until the lock is ours or ctx or the session ends. With later, it stays out of the queue for
// a moment first (lineUpAgain). The session lasts when the lock is handed over past us.
func (s *session) wait(ctx context.Context, later bool) (*tenure, error) {
	for ; ; later = true {
		if later {
			wait(ctx, lineUpAgain+rand.N(lineUpAgain), s.done)
		}
		var t *tenure
		err := s.over(ctx)
		if err == nil {
			t, err = s.lineUp(ctx)
		}
		switch {
		case err == nil:
			return t, nil
		case !errors.Is(err, errReordered):
			s.close(ctx)
			return nil, err
		}
	}
}

// lineUp takes a place at the end of the queue, and stands in it until the lock is ours. Our keys and
// their order are those of etcd's concurrency.Mutex. The Mutex itself has no deadlines: with a
// hung member, a request never returns and a watch never reports. When it is given up, it
// cleans up without a deadline, too. And it does not notice that its own session is over.
//
// It announces us anew, because whatever took our place may have taken that key as well.
func (s *session) lineUp(ctx context.Context) (*tenure, error) {
	t := &tenure{session: s, key: s.key(s.keys.lock), given: make(chan struct{})}
	asking, cancel := s.bounded(ctx)
	resp, err := s.client.Txn(asking).
		Then(s.announcement(), clientv3.OpPut(t.key, "", clientv3.WithLease(s.lease)), s.keys.queue()).
		Commit()
	cancel()
	if err != nil {
		return nil, fmt.Errorf("line up for the lock %s: %w", s.keys.lock, err)
	}
	queue, revision := resp.Responses[2].GetResponseRange().Kvs, resp.Header.Revision
	for _, kv := range queue {
		if string(kv.Key) == t.key {
			t.created = kv.CreateRevision // A backup may have brought our key back. Then it has its old place.
		}
	}
	for {
		ahead, err := t.ahead(queue)
		switch {
		case err != nil:
			return nil, err
		case ahead == nil:
			looking, stop := context.WithCancel(s.client.Ctx())
			t.lookAway = stop
			s.beside.Go(func() { s.lookAfterOthers(looking) })
			return t, nil
		}
		watching, stop := context.WithCancel(clientv3.WithRequireLeader(ctx))
		err = s.outlive(ctx, ahead, s.client.Watch(watching, string(ahead.Key), clientv3.WithRev(revision+1)))
		stop()
		if err != nil {
			return nil, err
		}
		asking, cancel := s.bounded(ctx)
		resp, err := s.client.Do(asking, s.keys.queue())
		cancel()
		if err != nil {
			wait(ctx, retryEtcd, s.done) // The session notices when etcd stays away.
			continue
		}
		queue, revision = resp.Get().Kvs, resp.Get().Header.Revision
	}
}

// owner is what the sidecar says that has the lock. It says nothing if there is none.
func (k keys) owner(found []*mvccpb.KeyValue) (p selfupdate.Presence) {
	var first *mvccpb.KeyValue
	for _, kv := range found {
		if path.Dir(string(kv.Key)) == k.lock && (first == nil || kv.CreateRevision < first.CreateRevision) {
			first = kv
		}
	}
	for _, kv := range found {
		if first != nil && string(kv.Key) == k.presence+"/"+path.Base(string(first.Key)) {
			_ = json.Unmarshal(kv.Value, &p) // Whoever cannot be read says nothing.
		}
	}
	return p
}

// ahead returns the key immediately before ours in the queue, or nil if the lock is ours.
func (t *tenure) ahead(queue []*mvccpb.KeyValue) (ahead *mvccpb.KeyValue, err error) {
	for _, kv := range queue {
		if string(kv.Key) == t.key && kv.CreateRevision == t.created {
			return ahead, nil
		}
		ahead = kv
	}
	return nil, errReordered
}

// outlive waits until somebody in the queue may be gone: its key changes, the watch on it ends,
// or its owner has been silent for a TTL and the key is removed. Each sidecar watches the one
// before it, so one request at a time is enough for a queue of any length.
func (s *session) outlive(ctx context.Context, ahead *mvccpb.KeyValue, changes clientv3.WatchChan) error {
	for {
		pause := retryEtcd
		left, err := s.left(ctx, ahead.Lease)
		if err == nil && left < 0 {
			if err = s.evict(ctx, ahead); err == nil {
				return nil
			}
		}
		if err == nil {
			pause = max(left, askAgain)
		}
		again := time.NewTimer(pause)
		select {
		case change, ok := <-changes:
			again.Stop()
			if !ok || change.Err() != nil {
				wait(ctx, retryEtcd, s.done)
				return s.over(ctx)
			}
			if len(change.Events) > 0 {
				return nil
			}
		case <-again.C:
		case <-s.done:
		case <-ctx.Done():
		}
		again.Stop()
		if err := s.over(ctx); err != nil {
			return err
		}
	}
}

// over says whether it is useless to wait any longer.
func (s *session) over(ctx context.Context) error {
	select {
	case <-s.done:
		return errSessionLost
	default:
		return ctx.Err()
	}
}

// askAgain is the pause between two questions about a lease that may be overdue any moment: etcd
// counts what is left in whole seconds.
const askAgain = 250 * time.Millisecond

// clearAway removes those keys whose owners are gone, and returns after how long another of
// them may be. What could not be asked or removed is asked again. A key is removed only if it
// is still as it was seen.
//
// A key whose lease is missing has come back from a backup or was written by hand, and nobody
// would ever remove it. A lease that nobody keeps alive may have come back from a backup as
// well. A new leader of etcd renews all leases, which only delays.
func (s *session) clearAway(ctx context.Context, found ...*mvccpb.KeyValue) (again time.Duration) {
	again = s.ttl
	asked := map[int64]time.Duration{}
	for _, kv := range found {
		if kv.Lease == int64(s.lease) {
			continue
		}
		left, ok := asked[kv.Lease]
		if !ok {
			var err error
			if left, err = s.left(ctx, kv.Lease); err != nil {
				again = min(again, retryEtcd)
				continue
			}
			asked[kv.Lease] = left
		}
		if left >= 0 {
			again = min(again, max(left, askAgain))
			continue
		}
		if err := s.evict(ctx, kv); err != nil {
			again = min(again, retryEtcd)
		}
	}
	return again
}

// left is for how long the owner of a lease may still be silent; it is negative when the
// owner is gone. It is exact to the second below.
func (s *session) left(ctx context.Context, lease int64) (time.Duration, error) {
	if lease == 0 {
		return -1, nil
	}
	ctx, cancel := s.bounded(ctx)
	defer cancel()
	resp, err := s.client.TimeToLive(ctx, clientv3.LeaseID(lease))
	switch {
	case err != nil:
		return 0, fmt.Errorf("ask how long the lease %x has not been kept alive: %w", lease, err)
	case resp.TTL < 0:
		return -1, nil
	case time.Duration(resp.GrantedTTL)*time.Second <= reserve:
		return s.ttl, nil // It is not one of ours: etcd itself ends it.
	}
	return time.Duration(resp.TTL)*time.Second - reserve, nil
}

// evict removes a key as it was seen, and revokes its lease, which removes whatever else its
// owner has left. The key goes first, because an etcd user that may write our keys may be
// forbidden to revoke a lease that others have put their keys on.
func (s *session) evict(ctx context.Context, kv *mvccpb.KeyValue) error {
	ctx, cancel := s.bounded(ctx)
	defer cancel()
	resp, err := s.client.Txn(ctx).
		If(clientv3.Compare(clientv3.ModRevision(string(kv.Key)), "=", kv.ModRevision)).
		Then(clientv3.OpDelete(string(kv.Key))).Commit()
	if err != nil {
		return fmt.Errorf("remove the key %s, whose owner is gone: %w", kv.Key, err)
	}
	if resp.Succeeded && kv.Lease != 0 {
		_, _ = s.client.Revoke(ctx, clientv3.LeaseID(kv.Lease)) // What remains is found at the next look.
	}
	return nil
}

// everybody returns the keys of all sidecars that are here or were.
func (s *session) everybody(ctx context.Context) ([]*mvccpb.KeyValue, error) {
	ctx, cancel := s.bounded(ctx)
	defer cancel()
	resp, err := s.client.Get(ctx, s.keys.root+"/", clientv3.WithPrefix())
	if err != nil {
		return nil, fmt.Errorf("read who else is here: %w", err)
	}
	return resp.Kvs, nil
}

// tidy removes what sidecars that are gone have left behind. For our own pod it does not wait
// until they have been silent for long enough, because what an earlier process in this pod had
// is no longer needed. When this process begins, that is also true of keys with our pod's name
// and another UID, because the pod has then been replaced. Later on, we may be the one that has
// been replaced without knowing it, and two processes that end each other's sessions would
// never stop.
func (s *session) tidy(ctx context.Context, self selfupdate.Presence, begins bool) error {
	found, err := s.everybody(ctx)
	if err != nil {
		return err
	}
	owner := s.keys.owner(found)
	s.heir = owner.Revision != "" && owner.Revision != self.Revision && owner.Pod != self.Pod
	for _, kv := range found {
		var p selfupdate.Presence
		if kv.Lease == int64(s.lease) || self.Pod == "" || json.Unmarshal(kv.Value, &p) != nil || p.Pod != self.Pod {
			continue
		}
		if begins || p.UID == self.UID {
			if err := s.evict(ctx, kv); err != nil {
				return err
			}
		}
	}
	s.clearAway(ctx, found...)
	return nil
}

// lookAfterOthers runs in the owner of the lock. It removes what sidecars that are gone have
// left behind, whether they waited for the lock or not, so that the lock is not handed over to
// them.
func (s *session) lookAfterOthers(ctx context.Context) {
	for s.over(ctx) == nil {
		again := retryEtcd
		if found, err := s.everybody(ctx); err == nil {
			again = s.clearAway(ctx, found...)
		}
		wait(ctx, again, s.done)
	}
}
