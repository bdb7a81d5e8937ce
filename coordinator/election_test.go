package coordinator

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/quorate/quorate/internal/etcdtest"
	"github.com/quorate/quorate/selfupdate"
)

// What the package election has of its own: a lease lasts a day longer than its TTL, and whoever has handed the lock
// over stays out of the queue for this long, or up to twice that.
const reserve, lineUpAgain = 24 * time.Hour, 50 * time.Millisecond

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

// A sidecar whose own member does not serve has no session. It is needed without the lock only while nobody has that.
func TestASidecarWithoutItsMemberStandsInOnlyWhileNobodyHasTheLock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStage(t, 3)
		s.etcd.Set(func(_ *etcdtest.Cluster, ms []*etcdtest.Member) { ms[1].ReadErr = errors.New("broken") })
		s.etcd.Hold(lock+"somebody", "")
		defer run(t, s.config(as("etcd-1")))()
		<-time.After(time.Minute)
		s.update("rev-2")
		<-time.After(5 * time.Minute)
		if at := s.at(claims); len(at) > 0 {
			t.Errorf("it claimed the record at %v", at)
		}
		s.begin()
		s.etcd.Delete(lock + "somebody")
		within(t, time.Minute, "a claim", func() bool { return len(s.at(claims)) > 0 })
		if at := s.at(claims)[0]; at > DefaultFallbackAfter+time.Second {
			t.Errorf("it claimed the record after %v", at)
		}
		for i := range 3 {
			if open := s.etcd.Streams(i); len(open) > 0 {
				t.Errorf("it has %v open at member %d", open, i)
			}
		}
	})
}
