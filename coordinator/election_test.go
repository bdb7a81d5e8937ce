package coordinator

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/quorate/quorate/internal/etcdtest"
	"github.com/quorate/quorate/internal/selfupdate"
)

// The numbers of a session that opened returns.
const (
	sessionTTL     = 10 * time.Second
	sessionEvery   = 2 * time.Second
	sessionTimeout = time.Second
)

// pulse notes keep-alives, and answers each after a delay.
type pulse struct {
	at    []time.Time
	delay time.Duration
}

func (p *pulse) of(c *etcdtest.Cluster) {
	c.Intercept(func(_ context.Context, method string, do func() (any, error)) (any, error) {
		if method != "LeaseKeepAlive" {
			return do()
		}
		c.Set(func(*etcdtest.Cluster, []*etcdtest.Member) { p.at = append(p.at, time.Now()) })
		<-time.After(p.delay)
		return do()
	})
}

// times are the keep-alives so far.
func (p *pulse) times(c *etcdtest.Cluster) (at []time.Time) {
	c.Set(func(*etcdtest.Cluster, []*etcdtest.Member) { at = slices.Clone(p.at) })
	return at
}

func TestASession(t *testing.T) {
	ended := func(s *session) bool { return s.over(context.Background()) != nil }
	for _, tc := range []struct {
		name string
		test func(t *testing.T, c *etcdtest.Cluster, s *session, begin time.Time)
	}{
		{"is granted a day more than its TTL, and so expires in no replay of a backup",
			func(t *testing.T, c *etcdtest.Cluster, s *session, _ time.Time) {
				left, err := s.client.TimeToLive(t.Context(), s.lease)
				if err != nil || left.GrantedTTL != 24*3600+10 {
					t.Errorf("%v, granted %v s", err, left.GrantedTTL)
				}
			}},
		{"is kept alive at its interval, counted from sending, however slow the answers",
			func(t *testing.T, c *etcdtest.Cluster, s *session, begin time.Time) {
				p := pulse{delay: 700 * ms}
				p.of(c)
				<-time.After(time.Minute - ms)
				var at []time.Duration
				for _, x := range p.times(c) {
					at = append(at, x.Sub(begin))
				}
				if !slices.Equal(gaps(at), slices.Repeat([]time.Duration{sessionEvery}, len(at)-1)) || len(at) != 29 {
					t.Errorf("keep-alives at %v", at)
				}
			}},
		{"is confirmed as of the sending of the last keep-alive that was answered",
			func(t *testing.T, c *etcdtest.Cluster, s *session, begin time.Time) {
				if !s.confirmed().Equal(begin) {
					t.Error("the grant does not count")
				}
				p := pulse{delay: 700 * ms}
				p.of(c)
				<-time.After(sessionEvery + 650*ms)
				if !s.confirmed().Equal(begin) {
					t.Error("confirmed before the answer")
				}
				<-time.After(100 * ms)
				if d := s.confirmed().Sub(begin); d != sessionEvery {
					t.Errorf("confirmed as of %v", d)
				}
			}},
		{"is over when nothing was confirmed for a TTL, not earlier",
			func(t *testing.T, c *etcdtest.Cluster, s *session, begin time.Time) {
				<-time.After(5 * time.Second)
				c.LoseQuorum()
				<-time.After(4*time.Second + sessionTTL - ms - time.Since(begin))
				if ended(s) {
					t.Fatal("it ended before its TTL")
				}
				<-s.Done()
				if d := time.Since(begin); d != 4*time.Second+sessionTTL {
					t.Errorf("it ended after %v", d)
				}
			}},
		{"asks a member that has no leader twice a second, and no more often",
			func(t *testing.T, c *etcdtest.Cluster, s *session, _ time.Time) {
				var p pulse
				p.of(c)
				c.LoseQuorum()
				<-time.After(sessionEvery + 4*time.Second)
				if n := len(p.times(c)); n < 8 || n > 9 {
					t.Errorf("%d keep-alives in four seconds", n)
				}
			}},
		{"is confirmed again within half a second of quorum's return",
			func(t *testing.T, c *etcdtest.Cluster, s *session, _ time.Time) {
				c.LoseQuorum()
				<-time.After(7 * time.Second)
				c.RegainQuorum()
				back := time.Now()
				<-time.After(retryEtcd + ms) // In this very instant it may just be asking.
				if s.confirmed().Before(back) || ended(s) {
					t.Errorf("confirmed %v before", back.Sub(s.confirmed()))
				}
			}},
		{"gives a keep-alive up that its member does not answer, and sends the next",
			func(t *testing.T, c *etcdtest.Cluster, s *session, _ time.Time) {
				hang := func(on bool) {
					c.Set(func(_ *etcdtest.Cluster, ms []*etcdtest.Member) { ms[0].Hung = on })
				}
				hang(true)
				<-time.After(sessionTTL - 500*ms)
				hang(false)
				back := time.Now()
				<-time.After(10 * time.Second)
				if s.confirmed().Before(back) || ended(s) {
					t.Error("it has not recovered")
				}
			}},
		{"is over with the first keep-alive of a lease that is gone",
			func(t *testing.T, c *etcdtest.Cluster, s *session, begin time.Time) {
				<-time.After(5 * time.Second)
				c.ExpireLeases()
				<-s.Done()
				if d := time.Since(begin); d != 6*time.Second {
					t.Errorf("it ended after %v", d)
				}
			}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := etcdtest.StartInMemory(t, 1)
				begin := time.Now()
				s := opened(t, c, c.URL(0))
				defer s.close(t.Context())
				tc.test(t, c, s, begin)
			})
		})
	}
}

// silence ends the keep-alives of a session, like a process that was killed.
func (s *session) silence() {
	s.stop()
	<-s.done
}

// kv is a key as it is in the cluster.
func kv(t *testing.T, s *session, key string) *mvccpb.KeyValue {
	t.Helper()
	resp, err := s.client.Get(t.Context(), key)
	if err != nil || len(resp.Kvs) != 1 {
		t.Fatalf("%v: %d keys %s", err, len(resp.Kvs), key)
	}
	return resp.Kvs[0]
}

// counted counts the requests of one method from now on.
func counted(c *etcdtest.Cluster, method string) *int {
	n := new(int)
	c.Intercept(func(_ context.Context, asked string, do func() (any, error)) (any, error) {
		if asked == method {
			*n++
		}
		return do()
	})
	return n
}

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
				defer owner.close(t.Context())
				time.AfterFunc(tc.killed, owner.silence)
				<-time.After(tc.joins)
				s := opened(t, c, c.URL(0))
				defer s.close(t.Context())
				asks := counted(c, "LeaseTimeToLive")
				if err := s.outlive(t.Context(), kv(t, s, owner.key), make(clientv3.WatchChan)); err != nil {
					t.Fatal(err)
				}
				if d := time.Since(begin) - tc.silent; d <= sessionTTL || d > sessionTTL+askAgain {
					t.Errorf("it was removed %v after its last keep-alive", d)
				}
				if keys := c.Keys(); len(keys) != 0 {
					t.Errorf("left behind: %v", keys)
				}
				if *asks > tc.asks {
					t.Errorf("asked %d times, want at most %d", *asks, tc.asks)
				}
			})
		})
	}
}

func TestWhoeverWaitsLooksAgainWhenThereIsNews(t *testing.T) {
	for _, tc := range []struct {
		name string
		news func(c *etcdtest.Cluster, s *session, changes chan clientv3.WatchResponse, cancel func())
		at   time.Duration
		err  error
	}{
		{"the key is deleted", func(_ *etcdtest.Cluster, _ *session, changes chan clientv3.WatchResponse, _ func()) {
			changes <- clientv3.WatchResponse{Created: true}
			changes <- clientv3.WatchResponse{Events: []*clientv3.Event{{Type: mvccpb.DELETE}}}
		}, 0, nil},
		{"the watch ends, after a pause",
			func(_ *etcdtest.Cluster, _ *session, changes chan clientv3.WatchResponse, _ func()) {
				close(changes)
			}, retryEtcd, nil},
		{"the watch is refused, after a pause",
			func(_ *etcdtest.Cluster, _ *session, changes chan clientv3.WatchResponse, _ func()) {
				changes <- clientv3.WatchResponse{CompactRevision: 7}
			}, retryEtcd, nil},
		{"its own session is over", func(_ *etcdtest.Cluster, s *session, _ chan clientv3.WatchResponse, _ func()) {
			s.silence()
		}, 0, errSessionLost},
		{"it is asked to end", func(_ *etcdtest.Cluster, _ *session, _ chan clientv3.WatchResponse, cancel func()) {
			cancel()
		}, 0, context.Canceled},
		{"the watch does not tell, but its lease is not kept alive any more",
			func(c *etcdtest.Cluster, _ *session, _ chan clientv3.WatchResponse, _ func()) {
				c.Delete(lock + "owner")
			}, sessionTTL/2 + askAgain, nil},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := etcdtest.StartInMemory(t, 1)
				c.Grant(reserve+sessionTTL, map[string]string{lock + "owner": ""})
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				<-time.After(sessionTTL / 2)
				s := opened(t, c, c.URL(0))
				defer s.close(t.Context())
				changes, looked := make(chan clientv3.WatchResponse), make(chan error, 1)
				owner := kv(t, s, lock+"owner")
				begin := time.Now()
				go func() { looked <- s.outlive(ctx, owner, changes) }()
				tc.news(c, s, changes, cancel)
				if err := <-looked; !errors.Is(err, tc.err) {
					t.Errorf("%v, want %v", err, tc.err)
				}
				if d := time.Since(begin); d != tc.at {
					t.Errorf("after %v, want %v", d, tc.at)
				}
			})
		})
	}
}

// said is what a sidecar announces about itself.
func said(pod, uid string) string {
	text, err := json.Marshal(selfupdate.Presence{Pod: pod, UID: uid})
	if err != nil {
		panic(err)
	}
	return string(text)
}

// A backup brings back keys without a lease (changes are replayed without it), keys with a
// lease that nobody keeps alive, and keys whose lease is not there.
func TestWhatCameBackFromABackupIsGoneSoonAfterTheFirstSidecarHasStarted(t *testing.T) {
	k := quick(t)
	foreign := "/quorate/ns/etcd-2/lock/1"
	before := time.Now()
	k.etcd.Grant(2*time.Second+reserve,
		map[string]string{lock + "old-1": "", presence + "old-1": said("etcd-1", "old")})
	k.etcd.Put(lock+"old-2", "")
	k.etcd.Put(presence+"old-2", said("etcd-2", "old"))
	k.etcd.Put(presence+"old-3", "what nobody understands")
	k.etcd.Grant(2*time.Second+reserve, map[string]string{presence + "old-4": said("etcd-0", "older")})
	k.etcd.Put(foreign, "")
	defer run(t, config(k, soon, inPod("etcd-0"), func(c *Config) {
		c.LockTTL, c.ProbeTimeout = 2*time.Second, time.Second
	}))()
	within(t, generous, "a sidecar", func() bool { return len(k.etcd.Values(presence)) > 0 && holders(k) > 0 })
	within(t, generous, "what has no lease", func() bool {
		keys := k.etcd.Keys()
		return !slices.Contains(keys, lock+"old-2") && !slices.Contains(keys, presence+"old-2") &&
			!slices.Contains(keys, presence+"old-3") && !slices.Contains(keys, presence+"old-4")
	})
	if slices.Contains(k.etcd.Keys(), lock+"old-1") == (time.Since(before) > 2*time.Second) {
		t.Errorf("after %v: %v", time.Since(before), k.etcd.Keys())
	}
	within(t, generous, "what has one", func() bool { return len(k.etcd.Keys()) == 3 })
	if time.Since(before) < 2*time.Second {
		t.Error("a lease was ended before its TTL")
	}
	k.update("rev-2")
	within(t, generous, "the rollout", func() bool { return k.settled("rev-2") })
	if !slices.Contains(k.etcd.Keys(), foreign) {
		t.Error("another cluster's key was removed")
	}
}

// Nothing is handed over to a sidecar that is gone.
func TestTheOwnerOfTheLockRemovesWhatIsLeftOfThoseWhoAreGone(t *testing.T) {
	for _, tc := range []struct {
		name string
		keys map[string]string
	}{
		{"who waited", map[string]string{lock + peer: "", presence + peer: said("etcd-1", "u")}},
		{"who was unfit", map[string]string{presence + peer: said("etcd-1", "u")}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newStage(t, 3)
				defer run(t, s.config(as("etcd-0")))()
				within(t, time.Minute, "the lock", func() bool { return holders(s.kube) == 1 })
				<-time.After(100 * ms)
				ours := s.etcd.Keys()
				<-time.After(DefaultLockTTL)
				s.etcd.Grant(DefaultLockTTL+reserve, tc.keys)
				begin := time.Now()
				within(t, time.Minute, "that they are gone", func() bool { return slices.Equal(s.etcd.Keys(), ours) })
				// It reads once per TTL which sidecars have come.
				if d := time.Since(begin); d <= DefaultLockTTL || d > 2*DefaultLockTTL {
					t.Errorf("after %v", d)
				}
			})
		})
	}
}

// Whoever has handed the lock over keeps its session, but not the owner's duties.
func TestOnlyTheOwnerOfTheLockLooksAfterTheOthers(t *testing.T) {
	for _, tc := range []struct {
		name     string
		handOver bool
		// looks is how often etcd is asked who is there, in three TTLs.
		looks int
	}{
		{"while the lock is its own", false, 3},
		{"not after it was handed over", true, 0},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := etcdtest.StartInMemory(t, 1)
				first := owner(t, c, c.URL(0))
				defer first.close(t.Context())
				if tc.handOver {
					c.Grant(sessionTTL*10, map[string]string{lock + peer: ""}) // etcd itself ends such a lease.
					place := kv(t, first.session, lock+peer)
					if err := first.handOver(t.Context(),
						selfupdate.Peer{Key: string(place.Key), Queued: place.CreateRevision}); err != nil {
						t.Fatal(err)
					}
				}
				<-time.After(sessionTTL / 2)
				looks := counted(c, "Range")
				<-time.After(3 * sessionTTL)
				if *looks != tc.looks {
					t.Errorf("%d looks, want %d", *looks, tc.looks)
				}
			})
		})
	}
}

// The members have a pod to lose at that moment. Another session would cost them more than another place in the queue.
func TestWhoeverIsPassedOverLinesUpAgainLaterAndInTheSameSession(t *testing.T) {
	c := etcdtest.Start(t, 1)
	first := owner(t, c, c.URL(0))
	ctx, cancel := context.WithCancel(t.Context())
	var waiting [2]*session
	var owns [2]chan *tenure
	var all sync.WaitGroup
	defer all.Wait()
	defer cancel()
	for i := range waiting {
		s, tenure := opened(t, c, c.URL(0)), make(chan *tenure, 1)
		all.Go(func() {
			if held, err := s.wait(ctx, false); err == nil {
				tenure <- held
			}
		})
		waiting[i], owns[i] = s, tenure
		within(t, generous, "in the queue", func() bool { return slices.Contains(c.Keys(), s.key(s.keys.lock)) })
	}
	passed, heir := waiting[0], waiting[1]
	place := kv(t, first.session, heir.key(heir.keys.lock))
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
	first.close(ctx)
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
	defer first.close(t.Context())
	if err := s.announce(t.Context(), selfupdate.Presence{Pod: "etcd-1"}); err != nil {
		t.Fatal(err)
	}
	owns := make(chan *tenure, 1)
	go func() {
		held, _ := s.wait(t.Context(), false)
		owns <- held
	}()
	within(t, generous, "in the queue", func() bool { return slices.Contains(c.Keys(), s.key(s.keys.lock)) })
	// The key before its own goes last. It watches that one, and nobody tells it of what is deleted later.
	for _, key := range c.Keys() {
		if key != first.key {
			c.Delete(key)
		}
	}
	c.Delete(first.key)
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
	held, err := s.wait(ctx, false)
	if err != nil {
		t.Fatal(err)
	}
	if err := held.owns(ctx); err != nil {
		t.Error(err)
	}
}

func TestANewLeaderOfEtcdOnlyDelays(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := etcdtest.StartInMemory(t, 1)
		s := opened(t, c, c.URL(0))
		defer s.close(t.Context())
		c.Grant(reserve+sessionTTL, map[string]string{lock + "owner": ""})
		owner := kv(t, s, lock+"owner")
		<-time.After(9 * time.Second)
		c.RenewLeases()
		begin := time.Now()
		if err := s.outlive(t.Context(), owner, make(clientv3.WatchChan)); err != nil {
			t.Fatal(err)
		}
		if d := time.Since(begin); d <= sessionTTL || d > sessionTTL+askAgain {
			t.Errorf("removed after %v", d)
		}
	})
}

// A new process does not wait for keys that its pod has left behind.
func TestWhatTheOwnPodHasLeftBehindIsRemovedAtOnce(t *testing.T) {
	for _, tc := range []struct {
		name string
		uid  string
		// later: it comes after this process had its first session.
		later, stays bool
	}{
		{"by an earlier process in this pod", "uid", false, false},
		{"by an earlier session of this process", "uid", true, false},
		{"by a pod of the same name that was replaced", "older", false, false},
		{"but two that take each other for replaced do not end each other's sessions for ever", "other", true, true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newStage(t, 3)
				uid := tc.uid
				if uid == "uid" {
					uid = string(s.pods[1].UID)
				}
				plant := func() {
					s.etcd.Grant(reserve+DefaultLockTTL, map[string]string{presence + "old-1": said("etcd-1", uid)})
				}
				if !tc.later {
					// Lining up behind another one needs a watch, which does not work here. So the
					// lock can be had only if the other one is gone at once.
					s.etcd.Grant(reserve+DefaultLockTTL,
						map[string]string{presence + "old-1": said("etcd-1", uid), lock + "old-1": ""})
				}
				defer run(t, s.config(as("etcd-1")))()
				within(t, time.Second, "the lock", func() bool {
					return holders(s.kube) == 1 && !slices.Contains(s.etcd.Keys(), lock+"old-1")
				})
				if tc.later {
					<-time.After(time.Minute)
					s.etcd.ExpireLeases()
					plant()
					s.begin()
					within(t, time.Minute, "another session", func() bool {
						return len(s.at("Put")) > 0 && holders(s.kube) == 1
					})
					<-time.After(100 * ms)
				}
				if is := slices.Contains(s.etcd.Keys(), presence+"old-1"); is != tc.stays {
					t.Errorf("its presence is there: %v", is)
				}
			})
		})
	}
}

// What etcd does and nobody hears of would stay for a day: nobody keeps it alive, and it has no key by which the others
// could find it.
func TestASessionThatComesToNothingLeavesNoLeaseBehind(t *testing.T) {
	busy := status.Error(codes.Unavailable, "etcdserver: request timed out")
	for _, tc := range []struct {
		name string
		// lost are the methods whose answers are lost, and undone those of them that are not carried out either.
		lost, undone []string
		// answer is what is heard instead, nil for nothing.
		answer error
	}{
		{"if the grant is done, answered with an error, and repeated by etcd's client",
			[]string{"LeaseGrant"}, nil, busy},
		{"if the grant is done, and its answer never comes", []string{"LeaseGrant"}, nil, nil},
		{"if its key cannot be written, nor the lease revoked", []string{"Put", "LeaseRevoke"},
			[]string{"Put", "LeaseRevoke"}, nil},
		{"if its key is written, nobody hears of that, and the lease cannot be revoked",
			[]string{"Put", "LeaseRevoke"}, []string{"LeaseRevoke"}, nil},
		{"if its key is written and the lease revoked, and nobody hears of that",
			[]string{"Put", "LeaseRevoke"}, nil, nil},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				k := newKube(t, 1, etcdtest.StartInMemory(t, 1))
				left := map[string]int{}
				for _, method := range tc.lost {
					left[method] = 3
				}
				k.etcd.Intercept(func(ctx context.Context, method string, do func() (any, error)) (any, error) {
					lose := false
					k.etcd.Set(func(*etcdtest.Cluster, []*etcdtest.Member) {
						if lose = left[method] > 0; lose {
							left[method]--
						}
					})
					if !lose {
						return do()
					}
					if !slices.Contains(tc.undone, method) {
						_, _ = do()
					}
					if tc.answer == nil {
						<-ctx.Done()
						return nil, ctx.Err()
					}
					return nil, tc.answer
				})
				defer run(t, config(k))()
				within(t, 2*time.Minute, "the lock", func() bool { return holders(k) == 1 })
				k.etcd.Set(func(*etcdtest.Cluster, []*etcdtest.Member) {
					for _, method := range tc.lost[:1] {
						if left[method] > 0 {
							t.Errorf("%d answers to %s were not lost", left[method], method)
						}
					}
				})
				if n := k.etcd.Leases(); n != 1 {
					t.Errorf("there are %d leases", n)
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

// With an etcd user, clientv3.New waits for a token.
func TestTheEndDoesNotWaitForADialThatBlocks(t *testing.T) {
	// Later the loop itself is in the middle of a Dial.
	for _, later := range []time.Duration{0, time.Second, 3 * time.Second} {
		t.Run(later.String()+" after all members have ended", func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newStage(t, 3)
				blocks := false
				stop := run(t, s.config(as("etcd-0"), func(c *Config) {
					c.Dial = func(endpoints []string) (*clientv3.Client, error) {
						if blocks {
							<-time.After(time.Minute)
						}
						return s.etcd.Dial(endpoints)
					}
				}))
				s.update("rev-2")
				<-time.After(time.Second)
				blocks = true
				for i := range 3 {
					s.etcd.Stop(i)
				}
				<-time.After(later)
				begin := time.Now()
				stop()
				if d := time.Since(begin); d > releaseTimeout {
					t.Errorf("it took %v", d)
				}
				<-time.After(2 * time.Minute) // Calls that nobody waits for end, too.
			})
		})
	}
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
	held, err := s.wait(t.Context(), false)
	if err != nil {
		t.Fatal(err)
	}
	defer held.close(t.Context())
	if keys := c.Keys(); !slices.Equal(keys, []string{held.key, s.key(s.keys.presence)}) {
		t.Errorf("keys %v", keys)
	}
}
