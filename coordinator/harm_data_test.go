package coordinator

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/quorate/quorate/internal/etcdtest"
	"github.com/quorate/quorate/internal/report"
	"github.com/quorate/quorate/pkg/rollout"
)

// diverge makes a member's revision another one than its index explains.
func (k *kube) diverge(ordinal int, by int64) {
	k.etcd.Set(func(_ *etcdtest.Cluster, ms []*etcdtest.Member) { ms[ordinal].Diverged = by })
}

// reported is the last report on the Lease.
func (k *kube) reported() report.Report {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.lease == nil {
		return report.Report{}
	}
	r, _, _ := report.FromNotes(k.lease.Annotations)
	return r
}

func TestAMemberWhoseDataHaveDiverged(t *testing.T) {
	const far = -90 // Of 100.
	held := func(k *kube) func() bool {
		return func() bool {
			r := k.reported()
			return r.Action == rollout.ActionHold && r.Guard == rollout.GuardDataAgrees
		}
	}
	for _, tc := range []struct {
		name string
		test func(t *testing.T, k *kube)
	}{
		{"holds the rollout within a quarter of a minute, and nobody goes", func(t *testing.T, k *kube) {
			k.diverge(2, far)
			k.update("rev-2")
			within(t, 15*time.Second, "the hold", held(k))
			if r := k.reported(); !strings.Contains(r.Reason, "etcd-2") || len(r.Memory.Differ) != 2 ||
				!r.Memory.Differ[0].Proven() {
				t.Errorf("%s: %+v", r.Reason, r.Memory.Differ)
			}
			<-time.After(10 * time.Minute)
			k.expect(t)
		}},
		{"also one that is ahead, or that leads", func(t *testing.T, k *kube) {
			k.diverge(0, -far)
			k.update("rev-2")
			within(t, 15*time.Second, "the hold", held(k))
			<-time.After(10 * time.Minute)
			k.expect(t)
			if n := moves(k.etcd); n != 0 {
				t.Errorf("%d changes of leader", n)
			}
		}},
		{"goes on once it has loaded the others' data", func(t *testing.T, k *kube) {
			k.diverge(2, far)
			k.update("rev-2")
			within(t, 15*time.Second, "the hold", held(k))
			k.diverge(2, 0)
			<-time.After(20 * time.Second)
			k.expect(t)
			within(t, 3*time.Minute, "the rollout", func() bool { return k.settled("rev-2") })
		}},
		{"goes on where the operator overrides it, and it is not given the lead", func(t *testing.T, k *kube) {
			k.diverge(1, far)
			k.update("rev-2")
			within(t, 15*time.Second, "the hold", held(k))
			k.annotate(rollout.ControlOverrideGuards, string(rollout.GuardDataAgrees))
			within(t, 3*time.Minute, "the rollout", func() bool { return k.settled("rev-2") })
			if k.etcd.Leader() != k.etcd.ID(2) || moves(k.etcd) != 1 {
				t.Errorf("%x leads, after %d changes", k.etcd.Leader(), moves(k.etcd))
			}
		}},
		{"is not given the lead of a member that others are about to take", func(t *testing.T, k *kube) {
			k.diverge(1, far)
			k.evicted(0)
			within(t, 2*time.Minute, "the change of leader", func() bool { return k.etcd.Leader() != k.etcd.ID(0) })
			if k.etcd.Leader() != k.etcd.ID(2) {
				t.Errorf("%x leads", k.etcd.Leader())
			}
		}},
		{"for a single look keeps the rollout for no longer than that", func(t *testing.T, k *kube) {
			k.diverge(2, 50)
			k.update("rev-2")
			<-time.After(500 * time.Millisecond)
			k.expect(t)
			k.diverge(2, 0)
			within(t, 2*time.Second, "the first removal", func() bool { return k.story() != "" })
			within(t, 2*time.Minute, "the rollout", func() bool { return k.settled("rev-2") })
		}},
		{"while members that only lag behind hold nothing", func(t *testing.T, k *kube) {
			k.etcd.Set(func(_ *etcdtest.Cluster, ms []*etcdtest.Member) {
				ms[0].Index, ms[1].Index, ms[2].Index = 9000, 4500, 8999
			})
			k.update("rev-2")
			within(t, 2*time.Minute, "the rollout", func() bool { return k.settled("rev-2") })
		}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				k := newKube(t, 3, etcdtest.StartInMemory(t, 3))
				defer run(t, config(k))()
				<-time.After(lateWrites + time.Minute)
				tc.test(t, k)
			})
		})
	}
}
