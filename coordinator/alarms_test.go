package coordinator

import (
	"context"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/quorate/quorate/internal/etcdtest"
	"github.com/quorate/quorate/internal/report"
	"github.com/quorate/quorate/pkg/rollout"
)

// raisedBy: members of these IDs have raised the alarm NOSPACE. Etcd grants no lease any more, and keeps those that
// there are alive.
func (k *kube) raisedBy(ids ...uint64) {
	k.etcd.Set(noSpace(true))
	k.etcd.Set(func(_ *etcdtest.Cluster, ms []*etcdtest.Member) {
		for _, m := range ms {
			m.Alarms = nil
			for _, id := range ids {
				m.Alarms = append(m.Alarms, etcdtest.NoSpaceOf(id))
			}
		}
	})
}

func alarms(c *etcdtest.Cluster) (said []string) {
	c.Set(func(_ *etcdtest.Cluster, ms []*etcdtest.Member) { said = slices.Clone(ms[0].Alarms) })
	return said
}

func disarms(c *etcdtest.Cluster) (n int) {
	c.Set(func(_ *etcdtest.Cluster, ms []*etcdtest.Member) {
		for _, m := range ms {
			n += m.Disarms
		}
	})
	return n
}

// etcd keeps the alarm of a member that leaves the list (etcd-io/etcd#14379).
func TestTheAlarmOfAMemberThatIsGone(t *testing.T) {
	const ghost = 0xa3
	small := func(t *testing.T, k *kube) *kube {
		fragmented(t, k)
		k.etcd.Set(func(_ *etcdtest.Cluster, ms []*etcdtest.Member) {
			for _, m := range ms {
				m.Size = m.InUse
			}
		})
		return k
	}
	for _, tc := range []struct {
		name string
		test func(t *testing.T)
	}{
		{"ends after its ghost was removed, which an operator has asked for", func(t *testing.T) {
			k := small(t, haunted(t, 1))
			defer run(t, config(k, inPod("etcd-1")))()
			<-time.After(ripe)
			k.raisedBy(ghost)
			<-time.After(5 * time.Minute)
			if n := disarms(k.etcd); n != 0 {
				t.Errorf("it was disarmed %d times while its ghost was on the list", n)
			}
			k.ask(t, rollout.RequestRemoveMember, ghost, "etcd-3")
			within(t, time.Minute, "the removal", func() bool { return !listed(k.etcd, ghost) && !k.asked() })
			within(t, 2*time.Minute, "the end of the alarm", func() bool { return len(alarms(k.etcd)) == 0 })
			<-time.After(time.Minute)
			l, _, h := k.tells(t)
			expectAll(t, "done", k.did(), "Disarmed a3")
			if did(h, report.MemberRemoved) != 1 || disarms(k.etcd) != 1 || l.Holder != "" {
				t.Errorf("disarmed %d times, %+v, %+v", disarms(k.etcd), h, l)
			}
		}},
		{"ends without the lock, after an operator has removed its ghost", func(t *testing.T) {
			k := small(t, haunted(t, 1))
			k.raisedBy(ghost)
			defer run(t, config(k, inPod("etcd-1")))()
			<-time.After(ripe)
			if n := disarms(k.etcd); n != 0 {
				t.Errorf("it was disarmed %d times while its ghost was on the list", n)
			}
			k.etcd.Remove(ghost)
			within(t, 5*time.Minute, "the end of the alarm", func() bool { return len(alarms(k.etcd)) == 0 })
		}},
		{"ends beside one of a member on the list, whose database is made smaller first", func(t *testing.T) {
			k := fragmented(t, free(t, 3))
			k.raisedBy(ghost, 0xa1)
			defer run(t, config(k, as("etcd-0")))()
			within(t, 10*time.Minute, "the end of both alarms", func() bool { return len(alarms(k.etcd)) == 0 })
			within(t, time.Minute, "the history", func() bool { return slices.Contains(k.did(), "Disarmed etcd-1") })
			if d := k.did(); !slices.Equal(d[len(d)-2:], []string{"Disarmed a3", "Disarmed etcd-1"}) {
				t.Errorf("done: %v", d)
			}
		}},
		{"ends in the midst of a rollout", func(t *testing.T) {
			k := small(t, free(t, 3))
			k.raisedBy(ghost)
			k.update("rev-2")
			defer run(t, config(k, as("etcd-0")))()
			within(t, 10*time.Minute, "the rollout", func() bool { return k.settled("rev-2") })
			within(t, time.Minute, "the end of the alarm", func() bool { return len(alarms(k.etcd)) == 0 })
		}},
		{"ends while another member does not answer, whose database may be full", func(t *testing.T) {
			k := small(t, free(t, 3))
			k.raisedBy(ghost)
			k.etcd.Set(func(_ *etcdtest.Cluster, ms []*etcdtest.Member) { ms[2].Hung = true })
			k.setReady(k.pods[2], false)
			defer run(t, config(k, as("etcd-0")))()
			within(t, 5*time.Minute, "the end of the alarm", func() bool { return len(alarms(k.etcd)) == 0 })
		}},
		{"is disarmed twice where that has no effect, and then told by its ID", func(t *testing.T) {
			k := small(t, free(t, 3))
			k.raisedBy(ghost)
			k.etcd.Intercept(func(_ context.Context, method string, do func() (any, error)) (any, error) {
				answer, err := do()
				if method == "Alarm" {
					go k.raisedBy(ghost)
				}
				return answer, err
			})
			defer run(t, config(k, as("etcd-0")))()
			<-time.After(15 * time.Minute)
			if n := disarms(k.etcd); n != 2 || k.guard() != rollout.GuardNoSpace {
				t.Errorf("it was disarmed %d times, the guard is %q", n, k.guard())
			}
			const says = "the alarm was raised by a3, which is not on etcd's member list any more"
			if text := k.lease.Annotations[report.StatusAnnotation]; !strings.Contains(text, says) {
				t.Errorf("the report does not name it: %s", text)
			}
		}},
	} {
		t.Run(tc.name, func(t *testing.T) { synctest.Test(t, tc.test) })
	}
}
