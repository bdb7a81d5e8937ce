package coordinator

import (
	"bytes"
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/quorate/quorate/internal/etcdtest"
	"github.com/quorate/quorate/internal/record"
	"github.com/quorate/quorate/internal/report"
	"github.com/quorate/quorate/pkg/rollout"
)

// haunted is a cluster of three with members that a scale-in has left behind: etcd-3 and so on.
func haunted(t *testing.T, ghosts int) *kube {
	k := newKube(t, 3, etcdtest.StartInMemory(t, 3))
	for i := 3; i < 3+ghosts; i++ {
		name := "etcd-" + string(rune('0'+i))
		k.etcd.Add(etcdtest.Member{ID: 0xa0 + uint64(i), Name: name, URL: "http://" + name + ":2379"})
	}
	return k
}

// pausedAndHaunted is one with a ghost, under a pause that came after its last rollout.
func pausedAndHaunted(t *testing.T) *kube {
	k := haunted(t, 1)
	k.held(map[string]string{rollout.ControlPaused: "true", record.SchemaAnnotation: "1",
		record.RolloutAnnotation: "none", record.IntentAnnotation: `{"operation":"none"}`})
	*k.lease.Spec.HolderIdentity = ""
	return k
}

// ask writes a request for a member as an operator does.
func (k *kube) ask(t *testing.T, operation string, member uint64, name string) rollout.Request {
	t.Helper()
	r := rollout.Request{Operation: operation, Cluster: etcdtest.ID, Member: member, Name: name, At: time.Now().UTC()}
	k.write(t, r)
	return r
}

func (k *kube) write(t *testing.T, r rollout.Request) {
	t.Helper()
	text := record.RequestText(r)
	controls := map[string]*string{record.RequestAnnotation: &text}
	if _, err := record.Control(t.Context(), kubeLeases{k}, "etcd", controls); err != nil {
		t.Fatal(err)
	}
}

// tells is what stands on the Lease.
func (k *kube) tells(t *testing.T) (record.Record, report.Report, report.History) {
	t.Helper()
	lease, err := kubeLeases{k}.Get(t.Context(), "quorate-etcd", metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return record.Record{}, report.Report{}, nil
	}
	r, h, ferr := report.FromLease(lease)
	if err = errors.Join(err, ferr); err != nil {
		t.Fatal(err)
	}
	return record.Parse(lease), r, h
}

func (k *kube) asked() bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.lease != nil && k.lease.Annotations[record.RequestAnnotation] != ""
}

// listed is true while the member is on etcd's list.
func listed(c *etcdtest.Cluster, id uint64) (found bool) {
	c.Set(func(_ *etcdtest.Cluster, ms []*etcdtest.Member) {
		for _, m := range ms {
			found = found || m.ID == id
		}
	})
	return found
}

// removals are the requests to remove a member that have arrived.
func removals(c *etcdtest.Cluster) (n int) {
	c.Set(func(_ *etcdtest.Cluster, ms []*etcdtest.Member) {
		for _, m := range ms {
			n += m.Removals
		}
	})
	return n
}

// ripe is when a ghost that was there from the start has been told.
const ripe = 13 * time.Minute

func did(h report.History, what string) (n int) {
	for _, e := range h {
		if e.What == what {
			n++
		}
	}
	return n
}

// onAnswer lets a test decide what becomes of each request to remove a member.
func onAnswer(k *kube, f func(do func() (any, error)) (any, error)) {
	k.etcd.Intercept(func(_ context.Context, method string, do func() (any, error)) (any, error) {
		if method == "MemberRemove" {
			return f(do)
		}
		return do()
	})
}

// unreadableLeases fail as many times as they are told to when the Lease is read.
type unreadableLeases struct {
	kubeLeases
	fail *atomic.Int32
}

func (l unreadableLeases) Get(ctx context.Context, name string, o metav1.GetOptions) (*coordinationv1.Lease, error) {
	if l.fail.Add(-1) >= 0 {
		return nil, errors.New("connection refused")
	}
	return l.kubeLeases.Get(ctx, name, o)
}

func TestGhosts(t *testing.T) {
	const ghost = 0xa3
	me := inPod("etcd-1")
	for _, tc := range []struct {
		name string
		test func(t *testing.T)
	}{
		{"are told once, after ten minutes, by a turn that ends at once", func(t *testing.T) {
			k := haunted(t, 2)
			defer run(t, config(k, me))()
			<-time.After(9 * time.Minute)
			if _, r, _ := k.tells(t); len(r.Ghosts) != 0 || k.leaseWrites() != 0 {
				t.Errorf("before: %d writes, %v", k.leaseWrites(), r.Ghosts)
			}
			<-time.After(4 * time.Minute)
			l, r, _ := k.tells(t)
			if len(r.Ghosts) != 2 || r.Ghosts[0].Name() != "etcd-3" || r.Action != rollout.ActionComplete ||
				!strings.Contains(r.Ghosts[0].Costs, "5 voters need a quorum of 3, and without it 4 need 3") {
				t.Errorf("%s %+v", r.Action, r.Ghosts)
			}
			writes := k.leaseWrites()
			if l.Holder != "" || l.Rolling || writes > 3 {
				t.Errorf("after %d writes: %+v", writes, l)
			}
			<-time.After(time.Hour)
			if n := k.leaseWrites() - writes; n != 0 {
				t.Errorf("%d writes for what is told already", n)
			}
			k.etcd.Set(func(_ *etcdtest.Cluster, ms []*etcdtest.Member) { ms[4].Name = "etcd-other" })
			<-time.After(2 * time.Minute)
			if _, r, _ = k.tells(t); len(r.Ghosts) != 1 {
				t.Errorf("one is none any more: %+v", r.Ghosts)
			}
		}},
		{"are not told again by the next coordinator, nor forgotten", func(t *testing.T) {
			k := haunted(t, 1)
			stop := run(t, config(k, me))
			<-time.After(ripe)
			stop()
			writes := k.leaseWrites()
			defer run(t, config(k, inPod("etcd-2")))()
			<-time.After(time.Hour)
			if _, r, _ := k.tells(t); len(r.Ghosts) != 1 || k.leaseWrites() != writes {
				t.Errorf("%d writes, %+v", k.leaseWrites()-writes, r.Ghosts)
			}
		}},
		{"are removed one at a time when an operator asks, and the rollout that they kept goes on", func(t *testing.T) {
			k := haunted(t, 2)
			defer run(t, config(k, me))()
			<-time.After(ripe)
			k.update("rev-2")
			<-time.After(time.Minute)
			if _, r, _ := k.tells(t); r.Guard != rollout.GuardQuorumFloor || len(r.Ghosts) != 2 {
				t.Errorf("%s %s, %d ghosts", r.Action, r.Guard, len(r.Ghosts))
			}
			k.expect(t)
			for id, name := range map[uint64]string{0xa3: "etcd-3", 0xa4: "etcd-4"} {
				k.ask(t, rollout.RequestRemoveMember, id, name)
				within(t, time.Minute, "the removal", func() bool { return !listed(k.etcd, id) && !k.asked() })
			}
			within(t, 2*time.Minute, "the rollout", func() bool { return k.settled("rev-2") })
			<-time.After(time.Minute)
			l, r, h := k.tells(t)
			if did(h, report.MemberRemoved) != 2 || len(r.Ghosts) != 0 || l.Schema != record.Schema ||
				l.Suspect != nil {
				t.Errorf("%+v\n%+v\n%+v", l, r.Ghosts, h)
			}
			if n := removals(k.etcd); n != 2 {
				t.Errorf("%d requests", n)
			}
		}},
		{"are removed while the cluster idles", func(t *testing.T) {
			k := haunted(t, 1)
			defer run(t, config(k, me))()
			<-time.After(ripe)
			k.ask(t, rollout.RequestRemoveMember, ghost, "etcd-3")
			within(t, 10*time.Second, "the removal", func() bool { return !listed(k.etcd, ghost) && !k.asked() })
			<-time.After(time.Minute)
			if l, r, h := k.tells(t); l.Holder != "" || len(r.Ghosts) != 0 || did(h, report.MemberRemoved) != 1 {
				t.Errorf("%+v %+v %+v", l, r.Ghosts, h)
			}
		}},
		{"are removed although the Lease cannot be read when the request is noticed", func(t *testing.T) {
			k, fail := haunted(t, 1), &atomic.Int32{}
			defer run(t, config(k, me, func(c *Config) { c.Leases = unreadableLeases{kubeLeases{k}, fail} }))()
			<-time.After(ripe)
			fail.Store(2)
			k.ask(t, rollout.RequestRemoveMember, ghost, "etcd-3")
			within(t, 10*time.Second, "the removal", func() bool { return !listed(k.etcd, ghost) && !k.asked() })
			if fail.Load() >= 0 {
				t.Error("the Lease was not read")
			}
		}},
		{"are not removed before their time, and the request says so until it has run out", func(t *testing.T) {
			k := haunted(t, 1)
			defer run(t, config(k, me))()
			<-time.After(2 * time.Minute)
			k.etcd.Set(func(_ *etcdtest.Cluster, ms []*etcdtest.Member) { ms[3].Name = "etcd-7" })
			<-time.After(2 * time.Minute)
			asked := k.ask(t, rollout.RequestRemoveMember, ghost, "etcd-7")
			<-time.After(time.Minute)
			_, r, _ := k.tells(t)
			if r.Duty != rollout.DutyGhosts || r.Guard != rollout.GuardNoGhost || !r.Answers(&asked) {
				t.Errorf("%s %s %s", r.Duty, r.Action, r.Guard)
			}
			k.etcd.Set(func(_ *etcdtest.Cluster, ms []*etcdtest.Member) { ms[3].Name = "etcd-x" })
			<-time.After(10 * time.Minute)
			if l, _, _ := k.tells(t); l.Holder != "" || !listed(k.etcd, ghost) || removals(k.etcd) != 0 {
				t.Errorf("%+v", l)
			}
		}},
		{"whose removal was done although the answer was lost are found to be gone", func(t *testing.T) {
			k := haunted(t, 1)
			defer run(t, config(k, me))()
			<-time.After(ripe)
			onAnswer(k, func(do func() (any, error)) (any, error) {
				_, _ = do()
				return nil, rpctypes.ErrGRPCTimeout
			})
			k.ask(t, rollout.RequestRemoveMember, ghost, "etcd-3")
			within(t, time.Minute, "the end", func() bool { return !k.asked() })
			<-time.After(time.Minute)
			l, _, h := k.tells(t)
			if did(h, report.MemberRemoved) != 1 || removals(k.etcd) != 1 || l.Intent.Operation != record.None {
				t.Errorf("%+v %+v", l, h)
			}
		}},
		{"are asked for again while the outcome is not known", func(t *testing.T) {
			k := haunted(t, 1)
			defer run(t, config(k, me))()
			<-time.After(ripe)
			times := 0
			onAnswer(k, func(do func() (any, error)) (any, error) {
				if times++; times <= 2 {
					return nil, rpctypes.ErrGRPCTimeout
				}
				return do()
			})
			k.ask(t, rollout.RequestRemoveMember, ghost, "etcd-3")
			within(t, time.Minute, "the removal", func() bool { return !listed(k.etcd, ghost) && !k.asked() })
			if _, _, h := k.tells(t); times != 3 || did(h, report.MemberRemoved) != 1 {
				t.Errorf("%d requests, %+v", times, h)
			}
		}},
		{"that must not be asked for again are suspects, until they are gone", func(t *testing.T) {
			k := haunted(t, 1)
			defer run(t, config(k, me))()
			<-time.After(ripe)
			onAnswer(k, func(func() (any, error)) (any, error) {
				k.change(func() { k.setReady(k.pods[2], false) })
				return nil, rpctypes.ErrGRPCTimeout
			})
			k.ask(t, rollout.RequestRemoveMember, ghost, "etcd-3")
			within(t, time.Minute, "the end of the request", func() bool { return !k.asked() })
			<-time.After(10 * time.Second)
			l, r, h := k.tells(t)
			if l.Suspect == nil || l.Suspect.ID != ghost || l.Intent.Operation != record.None ||
				l.Schema != record.Newest || did(h, report.MemberSuspected) != 1 || r.Suspect == "" {
				t.Errorf("%+v %q %+v", l, r.Suspect, h)
			}
			k.change(func() { k.setReady(k.pods[2], true) })
			<-time.After(10 * time.Minute)
			if l, _, _ = k.tells(t); l.Suspect == nil || l.Holder != "" {
				t.Errorf("it stays while nothing is known of it, and nobody coordinates for that: %+v", l)
			}
			k.etcd.Intercept(nil)
			k.etcd.Remove(ghost) // It happens after all.
			<-time.After(2 * time.Minute)
			if l, _, _ = k.tells(t); l.Suspect != nil || l.Schema != record.Schema {
				t.Errorf("%+v", l)
			}
		}},
		{"are told under a pause as well, by a turn that ends", func(t *testing.T) {
			k := pausedAndHaunted(t)
			defer run(t, config(k, me))()
			<-time.After(ripe)
			if l, r, _ := k.tells(t); l.Holder != "" || len(r.Ghosts) != 1 || r.Guard != rollout.GuardPaused {
				t.Errorf("%s %+v %+v", r.Guard, r.Ghosts, l)
			}
		}},
		{"are not removed under a pause, and the request is told until it has run out", func(t *testing.T) {
			k := pausedAndHaunted(t)
			defer run(t, config(k, me))()
			<-time.After(ripe)
			k.ask(t, rollout.RequestRemoveMember, ghost, "etcd-3")
			<-time.After(time.Minute)
			if l, r, _ := k.tells(t); l.Holder == "" || r.Guard != rollout.GuardPaused {
				t.Errorf("%s %+v", r.Guard, l)
			}
			<-time.After(10 * time.Minute)
			if l, _, _ := k.tells(t); l.Holder != "" || !listed(k.etcd, ghost) {
				t.Errorf("%+v", l)
			}
		}},
		{"that are suspects and serve again are none once they are gone, while the cluster idles", func(t *testing.T) {
			k := haunted(t, 1)
			k.etcd.Set(func(_ *etcdtest.Cluster, ms []*etcdtest.Member) { ms[3].Name = "elsewhere" })
			k.held(map[string]string{record.SchemaAnnotation: "2", record.RolloutAnnotation: "none",
				record.IntentAnnotation: `{"operation":"none","suspect":{"id":"163","name":"etcd-3","cluster":"193"}}`})
			free := ""
			k.lease.Spec.HolderIdentity = &free
			defer run(t, config(k, me))()
			<-time.After(ripe)
			if l, _, _ := k.tells(t); l.Suspect == nil || k.leaseWrites() != 0 {
				t.Errorf("%d writes, %+v", k.leaseWrites(), l)
			}
			k.etcd.Remove(ghost)
			<-time.After(2 * time.Minute)
			if l, _, _ := k.tells(t); l.Suspect != nil || l.Holder != "" {
				t.Errorf("%+v", l)
			}
		}},
		{"that are suspects are relied on again when an operator says so", func(t *testing.T) {
			k := haunted(t, 1)
			k.held(map[string]string{record.SchemaAnnotation: "2", record.RolloutAnnotation: "none",
				record.IntentAnnotation: `{"operation":"none","suspect":{"id":"163","name":"etcd-3","cluster":"193"}}`})
			free := ""
			k.lease.Spec.HolderIdentity = &free
			defer run(t, config(k, me))()
			<-time.After(ripe)
			k.ask(t, rollout.RequestForgetMember, ghost+1, "etcd-4")
			<-time.After(time.Minute)
			if l, _, _ := k.tells(t); l.Suspect == nil || k.asked() {
				t.Errorf("another member: %+v", l)
			}
			k.ask(t, rollout.RequestForgetMember, ghost, "etcd-3")
			within(t, time.Minute, "the end", func() bool { return !k.asked() })
			<-time.After(time.Minute)
			if l, _, _ := k.tells(t); l.Suspect != nil || l.Schema != record.Schema || !listed(k.etcd, ghost) {
				t.Errorf("%+v", l)
			}
		}},
		{"are left alone by an intent that comes from a backup", func(t *testing.T) {
			k := haunted(t, 1)
			k.held(map[string]string{record.SchemaAnnotation: "2", record.RolloutAnnotation: "none",
				record.IntentAnnotation: `{"operation":"remove-member","member":{"id":"163","name":"etcd-3",` +
					`"cluster":"193","list":[160,161,162,163],"urls":["http://etcd-3:2380"]}}`})
			defer run(t, config(k, me))()
			<-time.After(ripe)
			if l, _, _ := k.tells(t); !listed(k.etcd, ghost) || removals(k.etcd) != 0 ||
				l.Intent.Operation != record.None || l.Suspect == nil {
				t.Errorf("%+v", l)
			}
		}},
		{"are not what an intent names that makes no sense", func(t *testing.T) {
			k := haunted(t, 1)
			var log bytes.Buffer
			k.held(map[string]string{record.SchemaAnnotation: "2", record.RolloutAnnotation: "under way",
				record.IntentAnnotation: `{"operation":"remove-member","member":{"id":"160","name":"mallory",` +
					`"cluster":"193","list":[160]}}`})
			stop := run(t, config(k, me, logTo(&log)))
			<-time.After(time.Minute)
			stop()
			if l, _, _ := k.tells(t); removals(k.etcd) != 0 || l.Intent.Operation != record.None ||
				!strings.Contains(log.String(), "names no member of ours") {
				t.Errorf("%+v\n%s", l, log.String())
			}
		}},
		{"stay while a sidecar is there that does not know what their removal is", func(t *testing.T) {
			k := haunted(t, 1)
			defer run(t, config(k, me))()
			<-time.After(ripe)
			client, err := k.etcd.Dial([]string{k.etcd.URL(0)})
			if err != nil {
				t.Fatal(err)
			}
			defer client.Close()
			lease, err := client.Grant(t.Context(), 100_000)
			if err != nil {
				t.Fatal(err)
			}
			const presence = "/quorate/ns/etcd/presence/7"
			_, err = client.Put(t.Context(), presence, `{"pod":"etcd-0"}`, clientv3.WithLease(lease.ID))
			if err != nil {
				t.Fatal(err)
			}
			k.ask(t, rollout.RequestRemoveMember, ghost, "etcd-3")
			<-time.After(20 * time.Second)
			if _, r, _ := k.tells(t); r.Guard != rollout.GuardOldSidecars || removals(k.etcd) != 0 ||
				!strings.Contains(r.Reason, "etcd-0") {
				t.Errorf("%s: %s", r.Guard, r.Reason)
			}
			if _, err = client.Revoke(t.Context(), lease.ID); err != nil {
				t.Fatal(err)
			}
			within(t, 10*time.Second, "the removal", func() bool { return !listed(k.etcd, ghost) })
		}},
	} {
		t.Run(tc.name, func(t *testing.T) { synctest.Test(t, tc.test) })
	}
}

func TestTheWatchOnTheLease(t *testing.T) {
	for _, tc := range []struct {
		name string
		test func(t *testing.T)
	}{
		{"wakes up an idle owner of the lock at once", func(t *testing.T) {
			k := haunted(t, 0)
			defer run(t, config(k, inPod("etcd-1")))()
			<-time.After(ripe)
			writes := k.leaseWrites()
			k.ask(t, rollout.RequestRemoveMember, 0xa2, "etcd-2")
			<-time.After(10 * time.Second)
			if _, r, _ := k.tells(t); r.Guard != rollout.GuardNoGhost || k.leaseWrites() == writes {
				t.Errorf("%d writes, %s", k.leaseWrites()-writes, r.Guard)
			}
		}},
		{"does not wake it up for what it writes itself, nor for a request that has run out", func(t *testing.T) {
			k := haunted(t, 0)
			defer run(t, config(k, inPod("etcd-1")))()
			<-time.After(ripe)
			k.update("rev-2")
			within(t, time.Minute, "the rollout", func() bool { return k.settled("rev-2") })
			<-time.After(lateWrites + time.Minute)
			lists := k.requests()
			k.mu.Lock()
			k.tellLease()
			k.mu.Unlock()
			<-time.After(20 * time.Minute)
			if n := k.requests() - lists; n != 0 {
				t.Errorf("%d lists", n)
			}
			writes := k.leaseWrites()
			k.write(t, rollout.Request{Operation: rollout.RequestRemoveMember, Cluster: etcdtest.ID, Member: 0xa2,
				Name: "etcd-2", At: time.Now().Add(-time.Hour)})
			<-time.After(20 * time.Minute)
			k.mu.Lock()
			k.tellLease() // As when the watch begins anew.
			k.mu.Unlock()
			<-time.After(time.Minute)
			k.annotate(record.RequestAnnotation, "")
			k.mu.Lock()
			k.tellLease()
			k.mu.Unlock()
			<-time.After(20 * time.Minute)
			if n, w := k.requests()-lists, k.leaseWrites()-writes; n != 1 || w != 1 {
				t.Errorf("%d lists, %d writes with the operator's", n, w)
			}
		}},
		{"is not needed for a request to be seen within a minute or two, and its refusal is told", func(t *testing.T) {
			k := haunted(t, 1)
			k.watchErr = apierrors.NewForbidden(leases, "quorate-etcd", errors.New("not allowed"))
			var log bytes.Buffer
			stop := run(t, config(k, inPod("etcd-1"), logTo(&log)))
			<-time.After(ripe)
			k.ask(t, rollout.RequestRemoveMember, 0xa3, "etcd-3")
			within(t, 2*time.Minute, "the removal", func() bool { return !listed(k.etcd, 0xa3) })
			stop()
			if n := strings.Count(log.String(), "the Lease cannot be watched"); n < 1 || n > 15 {
				t.Errorf("told %d times:\n%s", n, log.String())
			}
		}},
		{"that was cut off once, and works again, is enough while there is no Lease", func(t *testing.T) {
			k := haunted(t, 0)
			k.watchErr = errors.New("connection refused")
			defer run(t, config(k, inPod("etcd-1")))()
			<-time.After(lateWrites + time.Minute)
			k.mu.Lock()
			k.watchErr = nil
			k.mu.Unlock()
			<-time.After(2 * time.Minute)
			lists := k.requests()
			<-time.After(time.Hour)
			if n := k.requests() - lists; n != 0 || k.lease != nil {
				t.Errorf("%d lists of pods in an hour", n)
			}
		}},
		{"is there once, and only with the lock", func(t *testing.T) {
			k := haunted(t, 0)
			k.etcd.LoseQuorum()
			defer run(t, config(k, inPod("etcd-1")))()
			watches := func() int {
				k.mu.Lock()
				defer k.mu.Unlock()
				open := 0
				for _, w := range k.leaseWatches {
					if !w.IsStopped() {
						open++
					}
				}
				return open
			}
			<-time.After(10 * time.Minute)
			if n := watches(); n != 0 {
				t.Errorf("%d watches without the lock", n)
			}
			k.etcd.RegainQuorum()
			<-time.After(10 * time.Minute)
			k.update("rev-2")
			<-time.After(10 * time.Minute)
			if n := watches(); n != 1 {
				t.Errorf("%d watches with it", n)
			}
		}},
	} {
		t.Run(tc.name, func(t *testing.T) { synctest.Test(t, tc.test) })
	}
}
