package election

import (
	"context"
	"errors"
	"maps"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/quorate/quorate/internal/etcdtest"
	"github.com/quorate/quorate/selfupdate"
)

// API servers compact every five minutes, and a quiet watch resumes at the revision at which it began.
func TestWhoeverWaitsWaitsOnWhenEtcdHasCompactedWhatItsWatchHasSeen(t *testing.T) {
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
	watches := func() bool { return c.Streams(0)["Watch"] == 1 }
	within(t, generous, "in the queue", queued(c, s))
	before := kv(t, s, s.key(s.keys.lock)).CreateRevision
	within(t, generous, "a watch", watches)
	<-time.After(50 * ms) // The watch is created a moment after its stream.
	c.Compact()
	within(t, generous, "in the queue anew", func() bool {
		resp, err := s.client.Get(t.Context(), s.key(s.keys.lock))
		return err == nil && len(resp.Kvs) == 1 && resp.Kvs[0].CreateRevision != before
	})
	if err := first.release(t.Context()); err != nil {
		t.Fatal(err)
	}
	held := <-owns
	if held == nil {
		t.Fatal("it has given up")
	}
	if err := held.release(t.Context()); err != nil {
		t.Error(err)
	}
}

func TestALockThatCannotBeHadNow(t *testing.T) {
	for _, tc := range []struct {
		name string
		// answer is what etcd answers to transactions, from the first one on, until cured. It is nil if there is none.
		answer error
		cured  time.Duration
		// ends is true if the session is given up, and takes after how long there is the lock, or that.
		ends  bool
		takes time.Duration
	}{
		{"is asked for again when a request is lost", nil, sessionTimeout / 2, false,
			sessionTimeout + Retry + lineUpAgain},
		{"is asked for again when a member has no leader", rpctypes.ErrGRPCNoLeader, 2 * time.Second, false,
			2 * time.Second},
		{"ends the session if etcd has no space, so that the fallback can begin", rpctypes.ErrGRPCNoSpace, time.Hour,
			true, 0},
		{"ends the session if that is not allowed", rpctypes.ErrGRPCPermissionDenied, time.Hour, true, 0},
		{"ends the session when it has been asked for in vain many times", rpctypes.ErrGRPCTimeout, time.Hour, true,
			mostFailures * Retry},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := etcdtest.StartInMemory(t, 1)
				s := opened(t, c, c.URL(0))
				defer s.close(t.Context())
				begin := time.Now()
				c.Intercept(func(ctx context.Context, method string, do func() (any, error)) (any, error) {
					if method != "Txn" || time.Since(begin) >= tc.cured {
						return do()
					}
					if tc.answer == nil {
						<-ctx.Done()
						return nil, ctx.Err()
					}
					return nil, tc.answer
				})
				held, err := s.lock(t.Context(), false)
				if (err != nil) != tc.ends || (held == nil) != tc.ends {
					t.Fatalf("%v, %v", held, err)
				}
				if d := time.Since(begin); d < tc.takes-lineUpAgain || d > tc.takes+4*time.Second {
					t.Errorf("after %v, want about %v", d, tc.takes)
				}
			})
		})
	}
}

func TestAWaiterWhoseOwnMemberHangsGivesUpAfterATTLAndLeavesNothing(t *testing.T) {
	c := etcdtest.Start(t, 3)
	first := owner(t, c, c.URL(0))
	cfg := config(c, c.URL(1))
	cfg.TTL, cfg.KeepAlive, cfg.Timeout = time.Second, 300*ms, 300*ms
	s := openedBy(t, cfg)
	waits := make(chan error, 1)
	go func() {
		_, err := s.lock(t.Context(), false)
		waits <- err
	}()
	within(t, generous, "in the queue", queued(c, s))
	c.Set(func(_ *etcdtest.Cluster, members []*etcdtest.Member) { members[1].Hung = true })
	if err := <-waits; !errors.Is(err, errSessionLost) {
		t.Errorf("got %v", err)
	}
	s.close(t.Context())
	if queued(c, s)() {
		t.Error("its key is still there")
	}
	if err := first.release(t.Context()); err != nil {
		t.Error(err)
	}
}

// outside is the configuration of a process without a member.
func outside(c *etcdtest.Cluster) Config {
	cfg := config(c, c.URLs()...)
	cfg.AtHome = false
	return cfg
}

// A stream would keep a member from ending, which may be told to at any time.
func TestAProcessWithoutAMemberHasNoStreamOpen(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := etcdtest.StartInMemory(t, 3)
		streams := func(who string) {
			t.Helper()
			<-time.After(500 * ms) // Between two keep-alives.
			for i := range 3 {
				if open := c.Streams(i); len(open) > 0 {
					t.Errorf("%s has %v open at member %d", who, open, i)
				}
			}
		}
		held, err := openedBy(t, outside(c)).lock(t.Context(), false)
		if err != nil {
			t.Fatal(err)
		}
		streams("the owner")
		next := openedBy(t, outside(c))
		owns := make(chan *Tenure, 1)
		go func() {
			held, _ := next.lock(t.Context(), false)
			owns <- held
		}()
		<-time.After(time.Minute)
		streams("the owner or whoever waits")
		c.Stop(0) // Wherever its connection leads to, the session goes on.
		<-time.After(time.Minute)
		if err := held.s.over(t.Context()); err != nil {
			t.Errorf("the owner's session: %v", err)
		}
		begin := time.Now()
		if err := held.release(t.Context()); err != nil {
			t.Error(err)
		}
		again := <-owns
		if d := time.Since(begin); again == nil || d > sessionEvery {
			t.Fatalf("%v after %v", again, d)
		}
		again.s.close(t.Context())
	})
}

func TestAKeyThatWasDeletedAndWrittenAnewHasBeenDeleted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := etcdtest.StartInMemory(t, 1)
		s := openedBy(t, outside(c))
		defer s.close(t.Context())
		c.Hold(lock+"other", "")
		watching, stop := context.WithCancel(t.Context())
		defer stop()
		told := s.client.Watch(watching, lock+"other", clientv3.WithRev(kv(t, s, lock+"other").CreateRevision))
		<-time.After(time.Minute)
		if len(told) > 0 {
			t.Error("it is told of a key that is still there")
		}
		c.Delete(lock + "other")
		c.Hold(lock+"other", "") // Its owner has lined up again.
		<-time.After(sessionEvery)
		if len(told) == 0 {
			t.Error("it is not told")
		}
	})
}

// alone runs a candidate whose own member is the one at i. Where is told when a session is to begin.
func alone(t *testing.T, c *etcdtest.Cluster, i int, serves *atomic.Bool) *Candidate {
	cfg := config(c, c.URL(i))
	cfg.Self = selfupdate.Presence{Pod: "etcd-0", UID: "u"}
	cfg.Where = func(context.Context) ([]string, error) {
		if !serves.Load() {
			return nil, errors.New("it does not serve")
		}
		return []string{c.URL(i)}, nil
	}
	return New(cfg)
}

func run(t *testing.T, c *Candidate) (stop func()) {
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		c.Run(ctx)
	}()
	return func() {
		cancel()
		if _, err := c.Resign(ctx, Resignation{Over: true}); err != nil {
			t.Error(err)
		}
		<-ended
	}
}

// streamsAt are the members at which a stream is open.
func streamsAt(c *etcdtest.Cluster, members int) (at []int) {
	for i := range members {
		if len(c.Streams(i)) > 0 {
			at = append(at, i)
		}
	}
	return at
}

func TestASessionLivesAtHomeAndNowhereElse(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := etcdtest.StartInMemory(t, 3)
		var serves atomic.Bool
		candidate := alone(t, c, 1, &serves)
		defer run(t, candidate)()
		expect := func(when string, owns bool, want ...int) {
			t.Helper()
			if at := streamsAt(c, 3); !slices.Equal(at, want) {
				t.Errorf("%s there are streams at the members %v, want %v", when, at, want)
			}
			if got := candidate.Tenure() != nil; got != owns {
				t.Errorf("%s the lock is ours: %v", when, got)
			}
			if n := len(c.Keys()) > 0; n != owns {
				t.Errorf("%s the keys are %v", when, c.Keys())
			}
		}
		<-time.After(time.Minute)
		expect("before its member serves", false)
		serves.Store(true)
		<-time.After(time.Minute)
		expect("when it does", true, 1)
		hung := func(on bool) {
			c.Set(func(_ *etcdtest.Cluster, members []*etcdtest.Member) { members[1].Hung = on })
			serves.Store(!on)
		}
		hung(true)
		<-time.After(sessionTTL - sessionEvery - ms)
		if candidate.Tenure() == nil {
			t.Error("the lock is lost before its time")
		}
		if candidate.Silent(2*sessionEvery) > 0 { // That the lock is ours is no news of others.
			t.Error("etcd is not silent")
		}
		<-time.After(sessionEvery + ReleaseTimeout)
		if keys := c.Keys(); len(keys) > 0 { // Over another member.
			t.Errorf("the keys are %v", keys)
		}
		<-time.After(time.Minute)
		hung(false)
		<-time.After(time.Minute)
		expect("when it serves again", true, 1)
	})
}

// While our own member is silent, it matters whether somebody else has the lock. Then nobody needs us without it.
func TestEtcdIsNotSilentWhileSomebodyElseHasTheLock(t *testing.T) {
	const patience = 2 * sessionEvery
	for _, tc := range []struct {
		name  string
		scene func(c *etcdtest.Cluster)
		want  bool // that it is silent
	}{
		{"nobody has it", func(*etcdtest.Cluster) {}, true},
		{"somebody has it", func(c *etcdtest.Cluster) {
			c.Grant(reserve+time.Hour, map[string]string{lock + "other": ""})
		}, false},
		{"somebody had it who is dead", func(c *etcdtest.Cluster) {
			c.Grant(reserve+sessionTTL, map[string]string{lock + "other": ""})
		}, true},
		{"its key has come back from a backup", func(c *etcdtest.Cluster) { c.Put(lock+"other", "") }, true},
		{"somebody has it, and another member hangs, too", func(c *etcdtest.Cluster) {
			c.Grant(reserve+time.Hour, map[string]string{lock + "other": ""})
			c.Set(func(_ *etcdtest.Cluster, members []*etcdtest.Member) { members[0].Hung = true })
		}, false},
		{"somebody has it, and quorum is lost", func(c *etcdtest.Cluster) {
			c.Grant(reserve+time.Hour, map[string]string{lock + "other": ""})
			c.LoseQuorum()
		}, true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := etcdtest.StartInMemory(t, 3)
				tc.scene(c)
				var serves atomic.Bool
				candidate := alone(t, c, 1, &serves)
				stop := run(t, candidate)
				<-time.After(time.Minute)
				for range 20 {
					<-time.After(sessionEvery / 3)
					if silent := candidate.Silent(patience) <= 0; silent != tc.want {
						t.Errorf("silent: %v", silent)
					}
				}
				if open := streamsAt(c, 3); len(open) > 0 {
					t.Errorf("streams at %v", slices.Collect(maps.Keys(c.Streams(open[0]))))
				}
				stop()
			})
		})
	}
}
