package election

import (
	"context"
	"encoding/json"
	"fmt"
	"path"
	"time"

	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/quorate/quorate/selfupdate"
)

// askAgain is the pause between two questions about a lease that may be overdue any moment: etcd counts what is left in
// whole seconds.
const askAgain = 250 * time.Millisecond

// janitor runs beside a session, and removes what those have left behind who are gone. So the Lock of the next one
// returns. Whoever waits looks at the first key in the queue alone. The owner of the lock looks at everything, so that
// the lock is not handed over to somebody who is gone.
//
// It asks for the values of the lock's keys, which are empty, because etcd 3.7 leaves out the leases where it is asked
// for keys alone (etcd-io/etcd#22209). A key without a lease looks like one from a backup, and is removed.
func (s *session) janitor() {
	ctx := s.client.Ctx()
	for owns := false; ; {
		key, opts := s.keys.lock+"/", clientv3.WithFirstCreate()
		if owns {
			key, opts = s.keys.root+"/", []clientv3.OpOption{clientv3.WithPrefix()}
		}
		again, removed := Retry, false
		if resp, err := s.client.Get(ctx, key, opts...); err == nil {
			again, removed = s.clearAway(ctx, resp.Kvs...)
		}
		if removed && !owns {
			continue // The next one may be gone as well.
		}
		timer := time.NewTimer(again)
		select {
		case <-timer.C:
		case owns = <-s.owns:
		case <-s.Done():
			timer.Stop()
			return
		}
		timer.Stop()
	}
}

// clearAway removes those keys whose owners are gone. It returns after how long another of them may be, and whether one
// was removed. What could not be asked or removed is asked again. A key is removed only if it is still as it was seen.
//
// A key whose lease is missing has come back from a backup or was written by hand, and nobody would ever remove it. A
// lease that nobody keeps alive may have come back from a backup as well. A new leader of etcd renews all leases, which
// only delays.
func (s *session) clearAway(ctx context.Context, found ...*mvccpb.KeyValue) (again time.Duration, removed bool) {
	again = s.cfg.TTL
	asked := map[int64]time.Duration{}
	for _, kv := range found {
		if kv.Lease == int64(s.Lease()) || string(kv.Key) == s.key(s.keys.lock) {
			continue // Ours, also if it has come back from a backup without its lease.
		}
		left, ok := asked[kv.Lease]
		if !ok {
			var err error
			if left, err = s.left(ctx, kv.Lease); err != nil {
				again = min(again, Retry)
				continue
			}
			asked[kv.Lease] = left
		}
		if left >= 0 {
			again = min(again, max(left, askAgain))
			continue
		}
		if err := s.evict(ctx, kv); err != nil {
			again = min(again, Retry)
			continue
		}
		removed = true
	}
	return again, removed
}

// left is for how long the owner of a lease may still be silent; it is negative when the owner is gone. It is exact to
// the second below.
func (s *session) left(ctx context.Context, lease int64) (time.Duration, error) {
	if lease == 0 {
		return -1, nil
	}
	ctx, cancel := context.WithTimeout(clientv3.WithRequireLeader(ctx), s.cfg.Timeout)
	defer cancel()
	resp, err := s.client.TimeToLive(ctx, clientv3.LeaseID(lease))
	if err != nil {
		return 0, fmt.Errorf("ask how long the lease %x has not been kept alive: %w", lease, err)
	}
	return remaining(resp.TTL, resp.GrantedTTL, s.cfg.TTL), nil
}

// remaining is left for a lease with these seconds, of which etcd says that they are left and were granted.
func remaining(seconds, granted int64, ttl time.Duration) time.Duration {
	switch {
	case seconds < 0:
		return -1
	case time.Duration(granted)*time.Second <= reserve:
		return ttl // It is not one of ours: etcd itself ends it.
	}
	return time.Duration(seconds)*time.Second - reserve
}

// evict removes a key as it was seen, and revokes its lease, which removes whatever else its owner has left. The key
// goes first, because an etcd user that may write our keys may be forbidden to revoke a lease that others have put
// their keys on.
func (s *session) evict(ctx context.Context, kv *mvccpb.KeyValue) error {
	resp, err := s.client.Txn(ctx).
		If(clientv3.Compare(clientv3.ModRevision(string(kv.Key)), "=", kv.ModRevision)).
		Then(clientv3.OpDelete(string(kv.Key))).Commit()
	if err != nil {
		return fmt.Errorf("remove the key %s, whose owner is gone: %w", kv.Key, err)
	}
	if resp.Succeeded && kv.Lease != 0 {
		ctx, cancel := context.WithTimeout(clientv3.WithRequireLeader(ctx), s.cfg.Timeout)
		defer cancel()
		_, _ = s.client.Revoke(ctx, clientv3.LeaseID(kv.Lease)) // What remains is found at the next look.
	}
	return nil
}

// tidy removes what sidecars that are gone have left behind. For our own pod it does not wait until they have been
// silent for long enough, because what an earlier process in this pod had is no longer needed. When this process
// begins, that is also true of keys with our pod's name and another UID, because the pod has then been replaced. Later
// on, we may be the one that has been replaced without knowing it, and two processes that end each other's sessions
// would never stop.
func (s *session) tidy(ctx context.Context, self selfupdate.Presence, begins bool) error {
	resp, err := s.client.Get(ctx, s.keys.root+"/", clientv3.WithPrefix())
	if err != nil {
		return fmt.Errorf("list the sidecars that are present: %w", err)
	}
	s.owner = s.keys.owner(resp.Kvs)
	for _, kv := range resp.Kvs {
		var p selfupdate.Presence
		if kv.Lease == int64(s.Lease()) || self.Pod == "" || json.Unmarshal(kv.Value, &p) != nil || p.Pod != self.Pod {
			continue
		}
		if begins || p.UID == self.UID {
			if err := s.evict(ctx, kv); err != nil {
				return err
			}
		}
	}
	s.clearAway(ctx, resp.Kvs...)
	return nil
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
