package election

import (
	"slices"
	"testing"
	"testing/synctest"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/quorate/quorate/internal/etcdtest"
	"github.com/quorate/quorate/selfupdate"
)

// A waiting sidecar finds the owner gone within a quarter of a second after it has been silent
// for its TTL. etcd's own expiry takes up to half a second more than the TTL. The number of
// questions is part of a sidecar's cost.
func TestWhoeverIsSilentForATTLIsGone(t *testing.T) {
	for _, tc := range []struct {
		name string
		// joins is when the other one begins to wait, counted from the owner's grant. The owner
		// is kept alive every two seconds, and killed after killed.
		joins, killed time.Duration
		// silent is when the last keep-alive was sent.
		silent time.Duration
		// asks is how often it is asked at most.
		asks int
	}{
		{"killed at once", 0, ms, 0, 3},
		{"killed before whoever waits has come", 4500 * ms, 3 * time.Second, 2 * time.Second, 5},
		{"killed after an hour", 1500 * ms, time.Hour + time.Second, time.Hour, 3600/8 + 5},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := etcdtest.StartInMemory(t, 1)
				begin := time.Now()
				owner := owner(t, c, c.URL(0))
				defer owner.s.close(t.Context())
				time.AfterFunc(tc.killed, owner.s.Orphan)
				<-time.After(tc.joins)
				s := opened(t, c, c.URL(0))
				defer s.close(t.Context())
				asks := counted(c, "LeaseTimeToLive")
				for len(c.Keys()) > 0 {
					<-time.After(ms)
				}
				if d := time.Since(begin) - tc.silent; d <= sessionTTL || d > sessionTTL+askAgain+ms {
					t.Errorf("it was removed %v after its last keep-alive", d)
				}
				if *asks > tc.asks {
					t.Errorf("asked %d times, want at most %d", *asks, tc.asks)
				}
			})
		})
	}
}

func TestANewLeaderOfEtcdOnlyDelays(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := etcdtest.StartInMemory(t, 1)
		s := opened(t, c, c.URL(0))
		defer s.close(t.Context())
		c.Grant(reserve+sessionTTL, map[string]string{lock + "owner": ""})
		<-time.After(9 * time.Second)
		c.RenewLeases()
		begin := time.Now()
		for len(c.Keys()) > 0 {
			<-time.After(ms)
		}
		if d := time.Since(begin); d <= sessionTTL || d > sessionTTL+askAgain+ms {
			t.Errorf("removed after %v", d)
		}
	})
}

// Whoever has handed the lock over keeps its session, but not the owner's duties.
func TestOnlyTheOwnerOfTheLockLooksAfterThoseWhoDoNotWait(t *testing.T) {
	for _, tc := range []struct {
		name     string
		handOver bool
	}{
		{"while the lock is its own", false},
		{"not after it was handed over", true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := etcdtest.StartInMemory(t, 1)
				first := owner(t, c, c.URL(0))
				defer first.s.close(t.Context())
				if tc.handOver {
					c.Grant(sessionTTL*10, map[string]string{lock + "heir": ""}) // etcd itself ends such a lease.
					at := kv(t, first.s, lock+"heir")
					heir := selfupdate.Peer{Key: lock + "heir", Queued: at.CreateRevision}
					if err := first.handOver(t.Context(), heir); err != nil {
						t.Fatal(err)
					}
				}
				c.Grant(reserve+sessionTTL, map[string]string{presence + "gone": said("etcd-1", "u")})
				looks := counted(c, "Range")
				<-time.After(3*sessionTTL + sessionTTL/2)
				if stays := slices.Contains(c.Keys(), presence+"gone"); stays != tc.handOver {
					t.Errorf("the keys: %v", c.Keys())
				}
				if *looks > 8 {
					t.Errorf("%d looks in three times and a half the TTL", *looks)
				}
			})
		})
	}
}

// Between the look at a key and its removal, somebody else may have written it.
func TestAKeyIsRemovedOnlyAsItWasSeen(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := etcdtest.StartInMemory(t, 1)
		s := opened(t, c, c.URL(0))
		defer s.close(t.Context())
		id := c.Grant(reserve+sessionTTL, map[string]string{lock + "old-1": "", presence + "old-1": ""})
		seen := kv(t, s, lock+"old-1")
		c.Hold(lock+"old-1", "somebody else")
		if err := s.evict(t.Context(), seen); err != nil {
			t.Fatal(err)
		}
		if keys := c.Keys(); !slices.Equal(keys, []string{lock + "old-1", presence + "old-1"}) {
			t.Errorf("keys %v", keys)
		}
		if left, err := s.client.TimeToLive(t.Context(), clientv3.LeaseID(id)); err != nil || left.TTL < 0 {
			t.Errorf("%v: the lease was revoked", err)
		}
	})
}

// The whole queue ends at once. Each one watches the one before it, so the first live one finds
// them all gone, one after the other.
func TestAQueueOfTheDeadIsClearedInOneGo(t *testing.T) {
	c := etcdtest.StartInMemory(t, 1)
	for _, key := range []string{"old-1", "old-2", "old-3"} {
		c.Grant(reserve+sessionTTL, map[string]string{lock + key: ""})
	}
	s := opened(t, c, c.URL(0))
	c.Age(sessionTTL + time.Second)
	begin := time.Now()
	held, err := s.lock(t.Context(), false)
	if err != nil {
		t.Fatal(err)
	}
	defer held.s.close(t.Context())
	if keys := c.Keys(); !slices.Equal(keys, []string{held.mutex.Key()}) {
		t.Errorf("keys %v", keys)
	}
	if d := time.Since(begin); d > sessionTTL { // It looks once per TTL if there is nothing to clear away.
		t.Errorf("after %v", d)
	}
}
