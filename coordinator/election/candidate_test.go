package election

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/quorate/quorate/internal/etcdtest"
	"github.com/quorate/quorate/selfupdate"
)

// Whoever is unfit tells the others. Whoever just stays away has nothing to tell.
func TestWhoeverStaysAwayWithoutAReasonHasNoSession(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := etcdtest.StartInMemory(t, 1)
		cfg := config(c, c.URL(0))
		cfg.Self = selfupdate.Presence{Pod: "etcd-0", UID: "u"}
		var abstained atomic.Int32
		cfg.Abstains = func(bool) { abstained.Add(1) }
		candidate := New(cfg)
		defer run(t, candidate)()
		<-time.After(time.Second)
		had, err := candidate.Resign(t.Context(), Resignation{Until: time.Now().Add(time.Minute)})
		if !had || err != nil {
			t.Fatalf("it had the lock: %v, %v", had, err)
		}
		<-time.After(time.Minute - ms)
		if keys := c.Keys(); len(keys) > 0 || abstained.Load() > 0 {
			t.Errorf("it has %v, and told %d times that it abstains", keys, abstained.Load())
		}
		<-time.After(time.Second)
		if candidate.Tenure() == nil {
			t.Error("it does not come back")
		}
	})
}

func TestASessionThatCannotBeginIsTold(t *testing.T) {
	silent := errors.New("it does not serve")
	for _, tc := range []struct {
		name  string
		where func(ctx context.Context) ([]string, error)
		want  bool // that anything is told
	}{
		{"with the reason, where there is no endpoint", func(context.Context) ([]string, error) {
			return nil, silent
		}, true},
		{"but not that it was given up at the end", func(ctx context.Context) ([]string, error) {
			<-ctx.Done()
			return nil, ctx.Err()
		}, false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := etcdtest.StartInMemory(t, 1)
				cfg := config(c)
				cfg.Where = tc.where
				cfg.Members = func() []string { return nil }
				var told []error
				cfg.Failed = func(_ string, err error) time.Duration {
					told = append(told, err)
					return time.Hour
				}
				stop := run(t, New(cfg))
				<-time.After(ms)
				stop()
				if (len(told) > 0) != tc.want {
					t.Fatalf("told: %v", told)
				}
				for _, err := range told {
					if err != silent {
						t.Errorf("told: %v", err)
					}
				}
			})
		})
	}
}

// Each question is part of a sidecar's cost.
func TestNobodyIsAskedAboutALeaseThatIsKnown(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := etcdtest.StartInMemory(t, 1)
		first := owner(t, c, c.URL(0))
		defer first.s.close(t.Context())
		if err := first.s.begin(t.Context(), selfupdate.Presence{Pod: "etcd-0"}, true); err != nil {
			t.Fatal(err)
		}
		c.Put(lock+"from-a-backup", "")
		asks := counted(c, "LeaseTimeToLive")
		<-time.After(5 * sessionTTL)
		if *asks > 0 {
			t.Errorf("etcd was asked %d times about the own lease, or about none", *asks)
		}
		if keys := c.Keys(); len(keys) != 2 {
			t.Errorf("keys %v", keys)
		}
	})
}

func TestForHowLongAnOwnerMayStillBeSilent(t *testing.T) {
	const day = int64(24 * 3600)
	for _, tc := range []struct {
		name             string
		seconds, granted int64
		want             time.Duration
	}{
		{"as long as more than the reserve is left", day + 3, day + 10, 3 * time.Second},
		{"not any more when that begins to be used", day - 1, day + 10, -time.Second},
		{"not at all if etcd does not know the lease", -1, 0, -1},
		{"for a TTL if etcd itself ends it, as it was granted for less", 5, 60, sessionTTL},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if got := remaining(tc.seconds, tc.granted, sessionTTL); got != tc.want {
				t.Errorf("%v, want %v", got, tc.want)
			}
		})
	}
}

// Another connection would cost the members, and the processors, just when they are busy.
func TestNobodyLooksOutForOthersWhileItsOwnSessionIsConfirmed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := etcdtest.StartInMemory(t, 3)
		var serves atomic.Bool
		serves.Store(true)
		defer run(t, alone(t, c, 1, &serves))()
		<-time.After(time.Minute)
		if n := c.Dials(c.URL(0)) + c.Dials(c.URL(2)) + c.Dials(c.URLs()...); n > 0 {
			t.Errorf("%d connections beyond the one to its own member", n)
		}
	})
}

func TestAHandoverAtTheEndEndsTheSessionToo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := etcdtest.StartInMemory(t, 1)
		first := owner(t, c, c.URL(0))
		c.Grant(sessionTTL*10, map[string]string{lock + "heir": ""})
		heir := selfupdate.Peer{Key: lock + "heir", Queued: kv(t, first.s, lock+"heir").CreateRevision}
		ctx, end := context.WithCancel(t.Context())
		c.Intercept(func(_ context.Context, method string, do func() (any, error)) (any, error) {
			if method == "Txn" {
				end()
			}
			return do()
		})
		if err := first.handOver(ctx, heir); err != nil {
			t.Fatal(err)
		}
		if n := c.Leases(); n != 1 {
			t.Errorf("there are %d leases, want only the heir's", n)
			first.s.close(ctx)
		}
	})
}

func TestThePeersAreTheOthersThatCanBeRead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := etcdtest.StartInMemory(t, 1)
		tenure := owner(t, c, c.URL(0))
		defer tenure.s.close(t.Context())
		if err := tenure.s.begin(t.Context(), selfupdate.Presence{Pod: "etcd-0"}, true); err != nil {
			t.Fatal(err)
		}
		c.Grant(sessionTTL, map[string]string{lock + "a": "", presence + "a": said("etcd-1", "u"),
			presence + "b": said("etcd-2", "u"), presence + "c": "what nobody understands"})
		peers, err := tenure.Peers(t.Context())
		if err != nil || len(peers) != 2 {
			t.Fatalf("%v: %+v", err, peers)
		}
		if p := peers[0]; p.Pod != "etcd-1" || !p.Waiting || p.Queued == 0 {
			t.Errorf("who waits: %+v", p)
		}
		if p := peers[1]; p.Pod != "etcd-2" || p.Waiting {
			t.Errorf("who does not wait: %+v", p)
		}
	})
}

func TestEtcdIsNotSilentBeforeItWasAsked(t *testing.T) {
	c := New(Config{})
	if d := c.Silent(time.Minute); d != time.Minute {
		t.Errorf("silent in %v", d)
	}
}

func TestASessionWhoseLeaseIsGoneEndsAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := etcdtest.StartInMemory(t, 1)
		s := opened(t, c, c.URL(0))
		c.ExpireLeases()
		ctx, end := context.WithCancel(t.Context())
		end()
		begin := time.Now()
		s.close(ctx)
		if d := time.Since(begin); d >= releaseRetry {
			t.Errorf("it took %v", d)
		}
	})
}
