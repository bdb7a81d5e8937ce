package coordinator

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sirupsen/logrus"
	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.uber.org/goleak"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/quorate/quorate/internal/etcdtest"
	"github.com/quorate/quorate/pkg/rollout"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// The tests of the loop run production code, a real etcd client and all, in a bubble
// whose clock jumps; only the servers are small. All times are the bubble's.

// Pods are deleted, which is one request. Tests that are about evictions say so.
func config(k *kube, changes ...func(*Config)) Config {
	policy := rollout.DefaultPolicy()
	policy.Removal = rollout.RemoveByDelete
	cfg := Config{
		Policy:    policy,
		Namespace: "ns", StatefulSet: "etcd", Dial: k.etcd.Dial, Endpoints: []string{k.etcd.URL(0)},
		StatefulSets: k, Pods: kubePods{k}, Leases: kubeLeases{k}, connect: k.connect,
	}
	for _, change := range changes {
		change(&cfg)
	}
	return cfg
}

// logTo makes the log readable in a test.
func logTo(b *bytes.Buffer) func(*Config) {
	return func(c *Config) {
		l := logrus.New()
		l.SetOutput(b)
		c.Log = logrus.NewEntry(l)
	}
}

// run starts a coordinator; the function that it returns ends it and waits.
func run(t *testing.T, cfg Config) (stop func()) {
	t.Helper()
	c, err := New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- c.Run(ctx) }()
	return func() {
		t.Helper()
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("Run: %v", err)
		}
	}
}

// within waits until something holds, at most for d.
func within(t *testing.T, d time.Duration, what string, holds func() bool) {
	t.Helper()
	for begin := time.Now(); !holds(); <-time.After(20 * time.Millisecond) {
		if time.Since(begin) > d {
			t.Fatalf("%s: not within %v", what, d)
		}
	}
}

func (k *kube) expect(t *testing.T, want ...string) {
	t.Helper()
	if got := k.story(); got != strings.Join(want, ", ") {
		t.Errorf("what happened:\n got %s\nwant %s", got, strings.Join(want, ", "))
	}
}

func (k *kube) requests() (lists int) {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.lists
}

func moves(c *etcdtest.Cluster) (n int) {
	c.Set(func(_ *etcdtest.Cluster, ms []*etcdtest.Member) {
		for _, m := range ms {
			n += m.Moves
		}
	})
	return n
}

func inPod(name string) func(*Config) { return func(c *Config) { c.PodName = name } }

// txns are the transactions that each member was asked for.
func txns(c *etcdtest.Cluster) []int {
	var n []int
	c.Set(func(_ *etcdtest.Cluster, ms []*etcdtest.Member) {
		for _, m := range ms {
			n = append(n, m.Txns)
		}
	})
	return n
}

func TestTheLoop(t *testing.T) {
	for _, tc := range []struct {
		name string
		test func(t *testing.T)
	}{
		{"rolls a healthy cluster with one leader change, and leaves nothing behind", func(t *testing.T) {
			k := newKube(t, 3, etcdtest.StartInMemory(t, 3))
			stop := run(t, config(k))
			k.update("rev-2")
			within(t, time.Minute, "the rollout", func() bool { return k.settled("rev-2") })
			k.expect(t, "deleted etcd-2", "deleted etcd-1", "deleted etcd-0")
			if n := moves(k.etcd); n != 1 {
				t.Errorf("%d leader changes, want 1", n)
			}
			stop()
			others := []string{presence + "etcd-0", presence + "etcd-1", presence + "etcd-2"}
			if keys, leases := k.etcd.Keys(), k.etcd.Leases(); !slices.Equal(keys, others) || leases != 0 {
				t.Errorf("left behind beside %v: keys %v, %d leases", others, keys, leases)
			}
		}},
		{"picks up a rollout that was under way when it began", func(t *testing.T) {
			k := newKube(t, 3, etcdtest.StartInMemory(t, 3))
			k.update("rev-2")
			k.change(func() { k.pods[1].Labels["controller-revision-hash"] = "rev-2" })
			defer run(t, config(k))()
			within(t, time.Minute, "the rollout", func() bool { return k.settled("rev-2") })
			k.expect(t, "deleted etcd-2", "deleted etcd-0")
		}},
		{"asks only etcd, and only once a minute, while nothing is outdated", func(t *testing.T) {
			k := newKube(t, 3, etcdtest.StartInMemory(t, 3))
			defer run(t, config(k))()
			<-time.After(lateWrites + time.Minute)
			lists, dials := k.requests(), k.etcd.Dials(k.etcd.URL(2))
			<-time.After(30 * time.Minute)
			if n := k.requests() - lists; n != 0 {
				t.Errorf("%d lists of pods while idle", n)
			}
			if n := k.etcd.Dials(k.etcd.URL(2)) - dials; n != 30 {
				t.Errorf("%d connections to a member while idle, want one a minute", n)
			}
			k.update("rev-2")
			within(t, time.Minute, "the rollout after it", func() bool { return k.settled("rev-2") })
		}},
		{"does nothing unless the strategy is OnDelete, and begins when it becomes that", func(t *testing.T) {
			k := newKube(t, 3, etcdtest.StartInMemory(t, 3))
			onDelete := k.set.Spec.UpdateStrategy.Type
			k.set.Spec.UpdateStrategy.Type = "RollingUpdate"
			k.update("rev-2")
			var log bytes.Buffer
			stop := run(t, config(k, logTo(&log)))
			<-time.After(10 * time.Minute)
			k.update("rev-3")
			<-time.After(10 * time.Minute)
			k.expect(t)
			k.change(func() { k.set.Spec.UpdateStrategy.Type = onDelete })
			within(t, time.Minute, "the rollout", func() bool { return k.settled("rev-3") })
			stop()
			for _, said := range []string{
				"the update strategy of StatefulSet etcd is not OnDelete: the StatefulSet controller rolls its pods, " +
					"and Quorate only looks on", "the update strategy of StatefulSet etcd is OnDelete now",
			} {
				if n := strings.Count(log.String(), said); n != 1 {
					t.Errorf("%q is said %d times, want 1:\n%s", said, n, log.String())
				}
			}
		}},
		{"does not begin while members have other lists, and asks for them only before it begins", func(t *testing.T) {
			k := newKube(t, 3, etcdtest.StartInMemory(t, 3))
			asked := func() (n int) {
				k.etcd.Set(func(_ *etcdtest.Cluster, ms []*etcdtest.Member) {
					for _, m := range ms {
						n += m.LocalLists
					}
				})
				return n
			}
			defer run(t, config(k))()
			<-time.After(10 * time.Minute)
			if n := asked(); n != 0 {
				t.Errorf("asked %d times while idle", n)
			}
			k.etcd.Set(func(_ *etcdtest.Cluster, ms []*etcdtest.Member) {
				for _, m := range ms {
					ms[2].List = append(ms[2].List, &pb.Member{ID: m.ID, Name: m.Name, ClientURLs: []string{m.URL}})
				}
				ms[2].List = append(ms[2].List, &pb.Member{ID: 0xdead, IsLearner: true})
			})
			k.update("rev-2")
			<-time.After(time.Minute)
			k.expect(t)
			k.change(func() { k.pods[2].Labels["controller-revision-hash"] = "rev-2" }) // By another's hand.
			within(t, time.Minute, "the rollout that has begun", func() bool { return k.story() != "" })
			n := asked()
			if n == 0 {
				t.Error("nobody was asked")
			}
			within(t, time.Minute, "its end", func() bool { return k.settled("rev-2") })
			if more := asked() - n; more != 0 {
				t.Errorf("asked %d times more once it had begun", more)
			}
		}},
		{"holds with two voters for as long as it takes", func(t *testing.T) {
			k := newKube(t, 2, etcdtest.StartInMemory(t, 2))
			k.update("rev-2")
			defer run(t, config(k))()
			<-time.After(10 * time.Minute)
			k.expect(t)
		}},
		{"rolls a single member whose lock goes with it", func(t *testing.T) {
			k := newKube(t, 1, etcdtest.StartInMemory(t, 1))
			k.update("rev-2")
			defer run(t, config(k))()
			within(t, time.Minute, "the rollout", func() bool { return k.settled("rev-2") })
			k.expect(t, "deleted etcd-0")
		}},
		{"stops after one pod of a broken revision, and replaces it first when it is mended", func(t *testing.T) {
			k := newKube(t, 3, etcdtest.StartInMemory(t, 3))
			k.stuck = true
			k.update("rev-broken")
			defer run(t, config(k))()
			<-time.After(10 * time.Minute)
			k.expect(t, "deleted etcd-2")
			k.change(func() { k.stuck = false })
			k.update("rev-3")
			within(t, time.Minute, "the rollout", func() bool { return k.settled("rev-3") })
			k.expect(t, "deleted etcd-2", "deleted etcd-2", "deleted etcd-1", "deleted etcd-0")
		}},
		{"decides anew when its removal is refused", func(t *testing.T) {
			k := newKube(t, 3, etcdtest.StartInMemory(t, 3))
			k.update("rev-2")
			var log bytes.Buffer
			cfg := config(k, logTo(&log), func(c *Config) {
				c.Pods = touchedPods{kubePods{k}, func() { // Something touches the pod after it was read, twice.
					if k.story() != "refused etcd-2, refused etcd-2" && !strings.Contains(k.story(), "deleted") {
						k.change(func() { k.setReady(k.pods[2], true) })
					}
				}}
			})
			stop := run(t, cfg)
			within(t, time.Minute, "the rollout", func() bool { return k.settled("rev-2") })
			stop()
			if n := strings.Count(log.String(), "the removal was refused"); n != 2 ||
				strings.Contains(log.String(), "retrying") {
				t.Errorf("a refusal is no fault, and it was logged %d times:\n%s", n, log.String())
			}
			k.expect(t, "refused etcd-2", "refused etcd-2", "deleted etcd-2", "deleted etcd-1", "deleted etcd-0")
		}},
		{"respects a gate of the host until it opens", func(t *testing.T) {
			k := newKube(t, 3, etcdtest.StartInMemory(t, 3))
			k.update("rev-2")
			begin := time.Now()
			defer run(t, config(k, func(c *Config) {
				c.Gates = []Gate{{Name: "backup", Ask: func(context.Context) (bool, string) {
					return time.Since(begin) > 10*time.Minute, ""
				}}}
			}))()
			<-time.After(10 * time.Minute)
			k.expect(t)
			within(t, time.Minute, "the rollout", func() bool { return k.settled("rev-2") })
		}},
		{"never removes on evidence older than MaxEvidenceAge", func(t *testing.T) {
			k := newKube(t, 3, etcdtest.StartInMemory(t, 3))
			k.slow = DefaultMaxEvidenceAge
			k.update("rev-2")
			defer run(t, config(k))()
			<-time.After(10 * time.Minute)
			k.expect(t)
			k.change(func() { k.slow = DefaultMaxEvidenceAge - time.Second })
			within(t, 2*time.Minute, "the rollout", func() bool { return k.settled("rev-2") })
		}},
		{"lets a leader go whose leadership cannot be moved", func(t *testing.T) {
			k := newKube(t, 3, etcdtest.StartInMemory(t, 3))
			k.etcd.Set(func(_ *etcdtest.Cluster, ms []*etcdtest.Member) { ms[0].MoveLeaderErr = errors.New("no") })
			k.update("rev-2")
			defer run(t, config(k))()
			within(t, time.Minute, "the rollout", func() bool { return k.settled("rev-2") })
			k.expect(t, "deleted etcd-2", "deleted etcd-1", "deleted etcd-0")
			if n := moves(k.etcd); n != rollout.MaxTransferFailures {
				t.Errorf("%d transfers were tried, want %d", n, rollout.MaxTransferFailures)
			}
		}},
		{"waits out the Kubernetes API, and logs the same fault once a minute", func(t *testing.T) {
			k := newKube(t, 3, etcdtest.StartInMemory(t, 3))
			var log bytes.Buffer
			k.err = errors.New("connection refused")
			stop := run(t, config(k, logTo(&log)))
			<-time.After(10 * time.Minute)
			k.change(func() { k.err = nil })
			k.update("rev-2")
			within(t, time.Minute, "the rollout", func() bool { return k.settled("rev-2") })
			stop()
			if n := strings.Count(log.String(), "the workload cannot be read"); n < 9 || n > 11 {
				t.Errorf("logged %d times in ten minutes:\n%s", n, log.String())
			}
		}},
		{"says what to do about a missing permission", func(t *testing.T) {
			k := newKube(t, 3, etcdtest.StartInMemory(t, 3))
			var log bytes.Buffer
			k.deleteErr = apierrors.NewForbidden(schema.GroupResource{Resource: "pods"}, "etcd-2",
				errors.New("not yours"))
			k.update("rev-2")
			stop := run(t, config(k, logTo(&log)))
			<-time.After(time.Minute)
			stop()
			if !strings.Contains(log.String(), "delete pod etcd-2") ||
				!strings.Contains(log.String(), "see deploy/base/role.yaml") {
				t.Errorf("log:\n%s", log.String())
			}
		}},
		{"waits for a member that is down by itself no longer than a rollout needs", func(t *testing.T) {
			k := newKube(t, 3, etcdtest.StartInMemory(t, 3))
			k.etcd.Set(func(_ *etcdtest.Cluster, ms []*etcdtest.Member) { ms[1].Hung = true })
			k.change(func() { k.setReady(k.pods[1], false) })
			k.update("rev-2")
			var log bytes.Buffer
			stop := run(t, config(k, logTo(&log)))
			defer func() {
				stop()
				if t.Failed() {
					t.Logf("log:\n%s", log.String())
				}
			}()
			within(t, 2*time.Minute, "the rollout", func() bool { return k.settled("rev-2") })
			k.expect(t, "deleted etcd-1", "deleted etcd-2", "deleted etcd-0")
		}},
		{"forgets between two rollouts what it saw in the first", func(t *testing.T) {
			k := newKube(t, 3, etcdtest.StartInMemory(t, 3))
			var log bytes.Buffer
			k.stuck = true
			k.update("rev-2")
			stop := run(t, config(k, logTo(&log)))
			<-time.After(time.Minute) // etcd-2 has not settled, but not for long.
			k.expect(t, "deleted etcd-2")
			onDelete := k.set.Spec.UpdateStrategy.Type
			k.change(func() { k.set.Spec.UpdateStrategy.Type = "RollingUpdate" })
			<-time.After(10 * time.Minute)
			k.change(func() { k.set.Spec.UpdateStrategy.Type = onDelete })
			<-time.After(time.Minute) // No coordinator has seen it unsettled for five minutes.
			stop()
			if strings.Contains(log.String(), string(rollout.GuardUpdatedFailing)) {
				t.Errorf("what was not looked at counts as seen:\n%s", log.String())
			}
		}},
	} {
		t.Run(tc.name, func(t *testing.T) { synctest.Test(t, tc.test) })
	}
}

// touchedPods does something whenever the pods have been listed.
type touchedPods struct {
	kubePods
	then func()
}

func (p touchedPods) List(ctx context.Context, o metav1.ListOptions) (*corev1.PodList, error) {
	defer p.then()
	return p.kubePods.List(ctx, o)
}

const lock = "/quorate/ns/etcd/lock/"

// queue returns the keys of the lock's owner and of those that wait for it.
func queue(k *kube) []string {
	return slices.DeleteFunc(k.etcd.Keys(), func(key string) bool { return !strings.HasPrefix(key, lock) })
}

func holders(k *kube) int { return len(queue(k)) }

func TestTheElection(t *testing.T) {
	for _, tc := range []struct {
		name string
		test func(t *testing.T)
	}{
		{"begins anew when the lease of the coordinator expires", func(t *testing.T) {
			k := newKube(t, 3, etcdtest.StartInMemory(t, 3))
			defer run(t, config(k))()
			within(t, time.Minute, "the lock", func() bool { return holders(k) == 1 })
			old := queue(k)
			k.etcd.ExpireLeases()
			within(t, time.Minute, "another lock", func() bool {
				return holders(k) == 1 && !slices.Equal(queue(k), old)
			})
		}},
		{"begins anew when somebody deletes the lock's key", func(t *testing.T) {
			k := newKube(t, 3, etcdtest.StartInMemory(t, 3))
			defer run(t, config(k))()
			within(t, time.Minute, "the lock", func() bool { return holders(k) == 1 })
			k.etcd.Delete(queue(k)[0])
			k.update("rev-2")
			within(t, time.Minute, "the rollout", func() bool { return k.settled("rev-2") })
			if holders(k) != 1 {
				t.Errorf("keys %v", queue(k))
			}
		}},
		{"goes on when quorum returns", func(t *testing.T) {
			k := newKube(t, 3, etcdtest.StartInMemory(t, 3))
			k.etcd.LoseQuorum()
			k.update("rev-2")
			defer run(t, config(k))()
			<-time.After(10 * time.Minute)
			k.expect(t)
			k.etcd.RegainQuorum()
			within(t, 2*time.Minute, "the rollout", func() bool { return k.settled("rev-2") })
		}},
		{"lives at the member of its own pod, so that no other member waits for its streams", func(t *testing.T) {
			k := newKube(t, 3, etcdtest.StartInMemory(t, 3))
			defer run(t, config(k, inPod("etcd-1")))()
			within(t, time.Minute, "the lock", func() bool { return holders(k) == 1 })
			if got := txns(k.etcd); got[0]+got[2] > 0 || got[1] == 0 {
				t.Errorf("transactions by member: %v", got)
			}
		}},
		{"waits for its own member when it has just started", func(t *testing.T) {
			k := newKube(t, 3, etcdtest.StartInMemory(t, 3))
			starting := func(err error) {
				k.etcd.Set(func(_ *etcdtest.Cluster, ms []*etcdtest.Member) { ms[1].ReadErr = err })
			}
			starting(errors.New("still loading"))
			defer run(t, config(k, inPod("etcd-1")))()
			<-time.After(DefaultLockTTL / 2)
			if n := holders(k); n != 0 {
				t.Errorf("%d in the queue before its own member serves", n)
			}
			starting(nil)
			within(t, time.Minute, "the lock", func() bool { return holders(k) == 1 })
			if got := txns(k.etcd); got[0]+got[2] > 0 {
				t.Errorf("transactions by member: %v", got)
			}
		}},
		{"is not entered over another member when its own does not come up", func(t *testing.T) {
			k := newKube(t, 3, etcdtest.StartInMemory(t, 3))
			broken := func(err error) {
				k.etcd.Set(func(_ *etcdtest.Cluster, ms []*etcdtest.Member) { ms[1].ReadErr = err })
			}
			broken(errors.New("broken"))
			var log bytes.Buffer
			defer run(t, config(k, inPod("etcd-1"), logTo(&log)))()
			<-time.After(5 * time.Minute)
			if n := holders(k); n != 0 {
				t.Errorf("%d in the queue", n)
			}
			if !strings.Contains(log.String(), "the member etcd-1 of this pod does not serve") {
				t.Errorf("log:\n%s", log.String())
			}
			broken(nil)
			within(t, 5*time.Second, "the lock", func() bool { return holders(k) == 1 })
			if got := txns(k.etcd); got[0]+got[2] > 0 {
				t.Errorf("transactions by member: %v", got)
			}
		}},
		{"ends within its time when quorum is lost while it coordinates", func(t *testing.T) {
			k := newKube(t, 3, etcdtest.StartInMemory(t, 3))
			stop := run(t, config(k))
			within(t, time.Minute, "the lock", func() bool { return holders(k) == 1 })
			k.etcd.LoseQuorum()
			begin := time.Now()
			stop()
			if d := time.Since(begin); d > releaseTimeout {
				t.Errorf("Run took %v to end", d)
			}
		}},
		{"ends within its time when no member can be reached", func(t *testing.T) {
			k := newKube(t, 3, etcdtest.StartInMemory(t, 3))
			stop := run(t, config(k))
			within(t, time.Minute, "the lock", func() bool { return holders(k) == 1 })
			for i := range 3 {
				k.etcd.Stop(i)
			}
			begin := time.Now()
			stop()
			if d := time.Since(begin); d > releaseTimeout {
				t.Errorf("Run took %v to end", d)
			}
		}},
		{"releases over another member when its own is gone", func(t *testing.T) {
			k := newKube(t, 3, etcdtest.StartInMemory(t, 3))
			stop := run(t, config(k))
			within(t, time.Minute, "the lock", func() bool { return holders(k) == 1 })
			k.etcd.Stop(0) // It was the only one configured.
			stop()
			if keys := queue(k); len(keys) != 0 {
				t.Errorf("keys %v were left behind", keys)
			}
		}},
		{"does not hammer a member that refuses the release", func(t *testing.T) {
			k := newKube(t, 3, etcdtest.StartInMemory(t, 3))
			stop := run(t, config(k))
			within(t, time.Minute, "the lock", func() bool { return holders(k) == 1 })
			var txns int
			count := func() (n int) {
				k.etcd.Set(func(_ *etcdtest.Cluster, ms []*etcdtest.Member) {
					for _, m := range ms {
						m.TxnErr = errors.New("going away")
						n += m.Txns
					}
				})
				return n
			}
			txns = count()
			stop()
			if n := count() - txns; n < 2 || n > 40 {
				t.Errorf("%d attempts to release the lock, want a few", n)
			}
		}},
	} {
		t.Run(tc.name, func(t *testing.T) { synctest.Test(t, tc.test) })
	}
}

// A waiter watches the key before it, and clientv3's watches do not work in a bubble (a
// channel of theirs is global). So tests with a queue run on the machine's clock, with all
// that takes time made short, and assert no times.

const generous = time.Minute

func soon(c *Config) { c.Interval = 20 * time.Millisecond }

func quick(t *testing.T) *kube {
	t.Helper()
	k := newKube(t, 3, etcdtest.StartInMemory(t, 3))
	k.termination, k.startup = 10*time.Millisecond, 10*time.Millisecond
	return k
}

func TestTheQueue(t *testing.T) {
	for _, tc := range []struct {
		name string
		test func(t *testing.T)
	}{
		{"lets one of three act", func(t *testing.T) {
			k := quick(t)
			for range 3 {
				defer run(t, config(k, soon))()
			}
			within(t, generous, "three in the queue", func() bool { return holders(k) == 3 })
			k.update("rev-2")
			within(t, generous, "the rollout", func() bool { return k.settled("rev-2") })
			k.expect(t, "deleted etcd-2", "deleted etcd-1", "deleted etcd-0")
			for _, key := range k.etcd.Keys() {
				if !strings.HasPrefix(key, "/quorate/ns/etcd/") {
					t.Errorf("key %s is not under our own", key)
				}
			}
		}},
		{"passes to the next when the first is asked to stop", func(t *testing.T) {
			k := quick(t)
			first := run(t, config(k, soon))
			within(t, generous, "the first", func() bool { return holders(k) == 1 })
			defer run(t, config(k, soon))()
			within(t, generous, "the second", func() bool { return holders(k) == 2 })
			k.update("rev-2")
			within(t, generous, "the first removal", func() bool { return k.story() != "" })
			first()
			if holders(k) != 1 {
				t.Errorf("keys %v", queue(k))
			}
			within(t, generous, "the rollout", func() bool { return k.settled("rev-2") })
			k.expect(t, "deleted etcd-2", "deleted etcd-1", "deleted etcd-0")
		}},
		{"begins anew when the lease of a waiter expires", func(t *testing.T) {
			k := quick(t)
			k.etcd.Hold(lock+"someone", "")
			defer run(t, config(k, soon, as("etcd-0")))()
			within(t, generous, "in the queue", func() bool { return holders(k) == 2 })
			old := queue(k)
			k.etcd.ExpireLeases()
			within(t, generous, "in the queue again", func() bool {
				return holders(k) == 2 && !slices.Equal(queue(k), old)
			})
			k.etcd.Delete(lock + "someone")
			k.update("rev-2")
			within(t, generous, "the rollout", func() bool { return k.settled("rev-2") })
		}},
		{"does not act for one who has lost the lock", func(t *testing.T) {
			k := quick(t)
			defer run(t, config(k, soon, as("etcd-0")))()
			within(t, generous, "the lock", func() bool { return holders(k) == 1 })
			k.etcd.Hold(lock+"other", "")
			k.etcd.Delete(queue(k)[0])
			k.update("rev-2")
			within(t, generous, "in the queue again", func() bool { return holders(k) == 2 })
			k.expect(t)
			k.etcd.Delete(lock + "other")
			within(t, generous, "the rollout", func() bool { return k.settled("rev-2") })
		}},
		{"ends when quorum is lost while it waits", func(t *testing.T) {
			k := quick(t)
			k.etcd.Hold(lock+"someone", "")
			stop := run(t, config(k, soon, as("etcd-0")))
			within(t, generous, "in the queue", func() bool { return holders(k) == 2 })
			k.etcd.LoseQuorum()
			stop()
		}},
	} {
		t.Run(tc.name, tc.test)
	}
}

func TestOnlyWhoHasCoordinatedSaysThatItDoesNotAnyMore(t *testing.T) {
	for _, updates := range []bool{false, true} {
		t.Run(fmt.Sprint("something to do: ", updates), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				k := newKube(t, 3, etcdtest.StartInMemory(t, 3))
				var log bytes.Buffer
				stop := run(t, config(k, logTo(&log)))
				within(t, time.Minute, "the lock", func() bool { return holders(k) == 1 })
				if updates {
					k.update("rev-2")
					within(t, time.Minute, "the rollout", func() bool { return len(k.story()) > 0 })
				}
				stop()
				for _, message := range []string{"coordinates now", "does not coordinate any more"} {
					if said := strings.Contains(log.String(), message); said != updates {
						t.Errorf("%q: %v\n%s", message, said, log.String())
					}
				}
			})
		})
	}
}

func TestTheLogSaysWhereNoSessionCouldBeHadAndWhy(t *testing.T) {
	for _, tc := range []struct {
		name string
		lose func(c *etcdtest.Cluster)
		why  string
	}{
		{"no connection to any member", func(c *etcdtest.Cluster) { c.Stop(0) }, "connection error"},
		{"quorum is lost", (*etcdtest.Cluster).LoseQuorum, "no voter on the member list answers a read"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				k := newKube(t, 1, etcdtest.StartInMemory(t, 1))
				tc.lose(k.etcd)
				var log bytes.Buffer
				stop := run(t, config(k, logTo(&log)))
				<-time.After(10 * time.Second)
				stop()
				for _, want := range []string{"no etcd session; retrying",
					"grant a lease for the lock at " + k.etcd.URL(0) + ": ", tc.why} {
					if !strings.Contains(log.String(), want) {
						t.Errorf("the log does not say %q:\n%s", want, log.String())
					}
				}
			})
		})
	}
}
