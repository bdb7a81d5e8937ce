package election

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/quorate/quorate/internal/etcdtest"
	"github.com/quorate/quorate/selfupdate"
)

// New connections to all members are made only where the session's own does not answer.
func TestALockIsGivenBackOverTheSessionsOwnConnectionUnlessItsMemberGoesToo(t *testing.T) {
	for _, tc := range []struct {
		name  string
		gone  bool
		dials int // to another member
	}{
		{"its member answers", false, 0},
		{"its member goes at the same moment", true, 1},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := etcdtest.StartInMemory(t, 3)
				tenure := owner(t, c, c.URL(1))
				if tc.gone {
					c.Stop(1)
				}
				if err := tenure.release(t.Context()); err != nil {
					t.Errorf("release: %v", err)
				}
				for _, key := range c.Keys() {
					if strings.HasPrefix(key, lock) {
						t.Errorf("%s is still there", key)
					}
				}
				if n := c.Dials(c.URL(0)); n != tc.dials {
					t.Errorf("%d connections to another member, want %d", n, tc.dials)
				}
			})
		})
	}
}

// The last sidecar that stops has nobody to clean up after it, and a lease of ours lasts a day.
func TestAWaiterThatStopsRemovesItsKeysAlthoughItsOwnMemberHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := etcdtest.StartInMemory(t, 3)
		s := opened(t, c, c.URL(1))
		if err := s.begin(t.Context(), selfupdate.Presence{Pod: "etcd-1"}, true); err != nil {
			t.Fatal(err)
		}
		c.Set(func(_ *etcdtest.Cluster, ms []*etcdtest.Member) { ms[1].Hung = true })
		stopped, stop := context.WithCancel(t.Context())
		stop()
		begin := time.Now()
		s.close(stopped)
		if keys := c.Keys(); len(keys) > 0 {
			t.Errorf("keys %v were left behind", keys)
		}
		if took := time.Since(begin); took > ReleaseTimeout {
			t.Errorf("it took %v", took)
		}
	})
}

// A member that has lost its quorum still has our key.
func TestAQuorumSaysWhoOwnsTheLock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := etcdtest.StartInMemory(t, 3)
		tenure := owner(t, c, c.URLs()...)
		if err := tenure.Owns(t.Context()); err != nil {
			t.Errorf("with a quorum: %v", err)
		}
		c.LoseQuorum()
		asking, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := tenure.Owns(asking); err == nil || errors.Is(err, ErrNotOwner) {
			t.Errorf("without a quorum nobody knows, and it says: %v", err)
		}
		c.RegainQuorum()
		if err := tenure.release(t.Context()); err != nil {
			t.Errorf("release: %v", err)
		}
	})
}

// A stranger's key is never deleted, whatever our own claims.
func TestAReleaseIsGuardedByTheRevisionOfItsOwnKey(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := etcdtest.StartInMemory(t, 1)
		tenure := owner(t, c, c.URLs()...)
		key := c.Keys()[0]
		c.Delete(key)
		c.Hold(key, "somebody else's")
		if err := tenure.Owns(t.Context()); !errors.Is(err, ErrNotOwner) {
			t.Errorf("owns: %v", err)
		}
		if err := tenure.release(t.Context()); err != nil {
			t.Errorf("release: %v", err)
		}
		if keys := c.Keys(); !slices.Equal(keys, []string{key}) {
			t.Errorf("keys %v, want the one that is not ours", keys)
		}
	})
}

// The members have a pod to lose at that moment. Another session would cost them more than another place in the queue.
func TestWhoeverIsPassedOverLinesUpAgainLaterAndInTheSameSession(t *testing.T) {
	c := etcdtest.Start(t, 1)
	first := owner(t, c, c.URL(0))
	ctx, cancel := context.WithCancel(t.Context())
	var waiting [2]*session
	var owns [2]chan *Tenure
	var all sync.WaitGroup
	defer all.Wait()
	defer cancel()
	for i := range waiting {
		s, tenure := opened(t, c, c.URL(0)), make(chan *Tenure, 1)
		all.Go(func() {
			if held, err := s.lock(ctx, false); err == nil {
				tenure <- held
			}
		})
		waiting[i], owns[i] = s, tenure
		within(t, generous, "in the queue", func() bool { return slices.Contains(c.Keys(), s.key(s.keys.lock)) })
	}
	passed, heir := waiting[0], waiting[1]
	place := kv(t, first.s, heir.key(heir.keys.lock))
	begin := time.Now()
	if err := first.handOver(ctx, selfupdate.Peer{Key: string(place.Key), Queued: place.CreateRevision}); err != nil {
		t.Fatal(err)
	}
	next := <-owns[1]
	within(t, generous, "in the queue again", func() bool {
		return slices.Contains(c.Keys(), passed.key(passed.keys.lock))
	})
	if d := time.Since(begin); d < lineUpAgain {
		t.Errorf("after %v", d)
	}
	if n := c.Leases(); n != 3 { // Whoever has handed over keeps its session too.
		t.Errorf("%d leases", n)
	}
	first.s.close(ctx)
	if err := next.release(ctx); err != nil {
		t.Fatal(err)
	}
	if err := (<-owns[0]).release(ctx); err != nil {
		t.Error(err)
	}
}

func TestWhoeverWaitsIsThereAgainAfterAllKeysWereDeleted(t *testing.T) {
	c := etcdtest.Start(t, 1)
	first, s := owner(t, c, c.URL(0)), opened(t, c, c.URL(0))
	defer first.s.close(t.Context())
	if err := s.begin(t.Context(), selfupdate.Presence{Pod: "etcd-1"}, true); err != nil {
		t.Fatal(err)
	}
	owns := make(chan *Tenure, 1)
	go func() {
		held, _ := s.lock(t.Context(), false)
		owns <- held
	}()
	within(t, generous, "in the queue", func() bool { return slices.Contains(c.Keys(), s.key(s.keys.lock)) })
	// The key before its own goes last. It watches that one, and nobody tells it of what is deleted later.
	for _, key := range c.Keys() {
		if key != first.mutex.Key() {
			c.Delete(key)
		}
	}
	c.Delete(first.mutex.Key())
	if held := <-owns; held == nil {
		t.Fatal("it has given up")
	}
	defer s.close(t.Context())
	if said := c.Values(presence); len(said) != 1 || !strings.Contains(said[0], "etcd-1") {
		t.Errorf("it says %q", said)
	}
}

func TestAKeyOfOursThatCameBackFromABackupKeepsItsPlace(t *testing.T) {
	c := etcdtest.Start(t, 1)
	s := opened(t, c, c.URL(0))
	defer s.close(t.Context())
	c.Put(s.key(s.keys.lock), "")
	ctx, cancel := context.WithTimeout(t.Context(), generous)
	defer cancel()
	held, err := s.lock(ctx, false)
	if err != nil {
		t.Fatal(err)
	}
	if err := held.Owns(ctx); err != nil {
		t.Error(err)
	}
}
