package scenarios

import (
	"context"
	"fmt"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/quorate/quorate/test/harness"
	"github.com/quorate/quorate/test/harness/apiproxy"
	"github.com/quorate/quorate/test/harness/druid"
)

// Etcd-druid changes the StatefulSet, and the sidecars roll it.
func TestEtcdDruidsPodsAreRolledByTheirSidecarsWhoeverLeads(t *testing.T) {
	leftOut(t)
	t.Parallel()
	ctx, s, _ := rolledEtcd(t, "leaders")

	for n, leader := range s.Pods() {
		require.True(t, t.Run("while "+leader+" leads", func(t *testing.T) {
			s := s.in(t)
			generation := s.generation(ctx)
			require.NoError(t, s.MoveLeader(ctx, leader))
			o := s.during(ctx, func(l *harness.Ledger) {
				s.changeEtcd(ctx, requests(60+n))
				s.complete(ctx)
				s.measured(l)
			})
			healthyRollout(t, o, s.Pods(), leader)
			s.isAsEtcdDruidWants(ctx, generation+1)
		}), "the next leader goes on from here")
	}
}

// Once etcd-druid has changed the StatefulSet, the sidecars need nothing of it but that snapshots can be noted.
func TestEtcdDruidsPodsAreRolledByTheirSidecarsWhileEtcdDruidIsAway(t *testing.T) {
	leftOut(t)
	t.Parallel()
	ctx, s, operator := rolledEtcd(t, "away")

	// Nobody answers etcd-druid's webhook then, so nobody can renew the Leases that it protects. The snapshots' are
	// among them.
	require.True(t, t.Run("it waits when the Leases tell of late snapshots", func(t *testing.T) {
		s := s.in(t)
		generation := s.generation(ctx)
		leader, err := s.Leader(ctx)
		require.NoError(t, err)
		o := s.during(ctx, func(l *harness.Ledger) {
			s.changeEtcd(ctx, requests(70))
			require.NoError(t, operator.Stop(ctx))
			held := s.holds(ctx, "HostGates")
			require.Contains(t, held.Message, "BackupReady: IncrementalBackupFailed")
			t.Logf("HostGates holds it %v after the change: %s", held.At.Sub(s.changed), held.Message)
			refused := s.env.API.Records(func(r *apiproxy.Request) bool {
				return r.Is("leases", "patch") && strings.HasSuffix(r.Name, "-delta-snap")
			})
			require.Equal(t, 500, refused[len(refused)-1].Status, "%s", refused[len(refused)-1])
			removed := l.Order()
			s.pass(ctx, 20*time.Second)
			require.Equal(t, removed, l.Order(), "no healthy member is removed")
			require.NoError(t, operator.Restart(ctx, true))
			t.Logf("etcd-druid is back %v after the change", time.Since(s.changed))
			s.complete(ctx)
			s.measured(l)
		})
		healthyRollout(t, o, s.Pods(), leader)
		s.isAsEtcdDruidWants(ctx, generation+1)
	}), "the next one goes on from here")
	t.Run("it goes to its end when they do not", func(t *testing.T) {
		s := s.in(t)
		generation := s.generation(ctx)
		leader, err := s.Leader(ctx)
		require.NoError(t, err)
		o := s.during(ctx, func(l *harness.Ledger) {
			// This is etcd-druid's default.
			s.changeEtcd(ctx, requests(71), `"backup":{"deltaSnapshotPeriod":"5m"}`)
			require.NoError(t, operator.Stop(ctx))
			s.complete(ctx)
			s.measured(l)
		})
		healthyRollout(t, o, s.Pods(), leader)
		require.Equal(t, generation+1, s.generation(ctx))
		require.NoError(t, operator.Restart(ctx, true))
		s.isAsEtcdDruidWants(ctx, generation+1)
	})
}

// One member is sick, and the coordinator's sidecar dies.
func TestEtcdDruidsPodsAreRolledByTheirSidecarsAlthoughSomeOfThemFail(t *testing.T) {
	leftOut(t)
	t.Parallel()
	ctx, s, _ := rolledEtcd(t, "failures")

	require.True(t, t.Run("a sick member goes first", func(t *testing.T) {
		s := s.in(t)
		generation := s.generation(ctx)
		// The lowest ordinal: Kubernetes' own order would take it last.
		sick, leader := s.Pods()[0], s.Pods()[1]
		require.NoError(t, s.MoveLeader(ctx, leader))
		o := s.during(ctx, func(l *harness.Ledger) {
			fault, err := s.CrashLoop(ctx, sick)
			require.NoError(t, err)
			defer fault.Stop()
			require.NoError(t, s.WaitWaiting(ctx, sick, "etcd", "CrashLoopBackOff"))
			s.changeEtcd(ctx, requests(60))
			s.complete(ctx)
			s.measured(l)
		})
		healthyRollout(t, o, s.Pods(), leader)
		require.Equal(t, []string{sick, s.Pods()[2], leader}, o.order)
		s.isAsEtcdDruidWants(ctx, generation+1)
	}), "the next one goes on from here")
	t.Run("a coordinator is killed with a removal in its hands, twice, and another goes on", func(t *testing.T) {
		s := s.in(t)
		generation := s.generation(ctx)
		leader, err := s.Leader(ctx)
		require.NoError(t, err)
		o := s.during(ctx, func(l *harness.Ledger) {
			s.changeEtcd(ctx, requests(61))
			for removed := 1; removed < len(s.Pods()); removed++ {
				require.NoError(t, l.WaitRemovals(ctx, removed))
				removal := s.env.API.Hold(ctx, s.Removing)
				r, err := removal.Reached(ctx)
				require.NoError(t, err)
				killed := time.Now()
				s.signal(r.Pod, syscall.SIGKILL)
				removal.Drop()
				successor, err := s.journal.Await(ctx, "that another coordinates", func(e harness.LogEntry) bool {
					return e.Message == coordinatesNow && e.Pod != r.Pod && e.At.After(killed)
				})
				require.NoError(t, err)
				require.NoError(t, l.WaitRemovals(ctx, removed+1))
				next := l.Removals()[removed]
				t.Logf("%s was killed before it removed %s; %s coordinated by the %s after %v, and %s went after %v",
					r.Pod, r.Name, successor.Pod, successor.By, successor.At.Sub(killed), next.Pod, next.At.Sub(killed))
			}
			s.complete(ctx)
			s.measured(l)
		})
		healthyRollout(t, o, s.Pods(), leader)
		require.Len(t, o.granted(), len(s.Pods()))
		s.isAsEtcdDruidWants(ctx, generation+1)
	})
}

// Two of three members are lost for good, and a change of the Etcd is what cures them.
func TestEtcdDruidsPodsGetTheirQuorumBackByAChangeOfTheEtcd(t *testing.T) {
	leftOut(t)
	t.Parallel()
	ctx, s, _ := rolledEtcd(t, "quorum")
	lost, survivor := s.Pods()[:2], s.Pods()[2]

	// back: the lost ones were replaced at once, and the survivor when quorum was back.
	back := func(s *scene, o outcome, before int) {
		s.t.Helper()
		o.lostNothing(s.t)
		after := o.removals[before:]
		require.Len(s.t, after, len(s.Pods()))
		require.ElementsMatch(s.t, lost, []string{after[0].Pod, after[1].Pod}, "the lost ones first")
		require.Equal(s.t, survivor, after[2].Pod)
		require.Equal(s.t, 2, after[2].OthersReady, "the survivor is not touched before quorum is back")
		require.Len(s.t, o.Cluster.Outages, 1, "quorum is lost once")
		outage := o.Cluster.Outages[0]
		returned := outage.From.Add(time.Duration(outage.Seconds * float64(time.Second)))
		require.True(s.t, returned.Before(after[2].At))
		s.t.Logf("after the change: the first removal came after %v, and quorum after %v", after[0].At.Sub(s.changed),
			returned.Sub(s.changed))
	}
	require.True(t, t.Run("they crash at every start", func(t *testing.T) {
		s := s.in(t)
		generation := s.generation(ctx)
		require.NoError(t, s.MoveLeader(ctx, survivor))
		o := s.during(ctx, func(l *harness.Ledger) {
			for _, pod := range lost {
				fault, err := s.CrashLoop(ctx, pod)
				require.NoError(t, err)
				defer fault.Stop()
			}
			for _, pod := range lost {
				require.NoError(t, s.WaitWaiting(ctx, pod, "etcd", "CrashLoopBackOff"))
			}
			s.withoutQuorum(ctx)
			s.changeEtcd(ctx, requests(60))
			s.complete(ctx)
			s.measured(l)
		})
		back(s, o, 0)
		s.isAsEtcdDruidWants(ctx, generation+1)
	}), "the next one goes on from here")
	t.Run("their revision has an image that does not exist", func(t *testing.T) {
		s := s.in(t)
		generation := s.generation(ctx)
		require.NoError(t, s.MoveLeader(ctx, survivor))
		before := 0
		o := s.during(ctx, func(l *harness.Ledger) {
			s.changeEtcd(ctx, fmt.Sprintf(`"etcd":{"image":%q}`, harness.Missing))
			require.NoError(t, l.WaitRemovals(ctx, 1))
			first := l.Order()[0]
			require.Contains(t, lost, first, "a follower goes first")
			require.NoError(t, s.WaitWaiting(ctx, first, "etcd", "ImagePullBackOff"))
			s.holds(ctx, "UpdatedFailing")
			// Quorate itself would not take a second one.
			second := s.others(survivor, first)[0]
			require.NoError(t, s.DeletePod(ctx, second))
			require.NoError(t, s.WaitWaiting(ctx, second, "etcd", "ImagePullBackOff"))
			s.withoutQuorum(ctx)
			require.NotContains(t, l.Order(), survivor, "the last live member stays")
			before = len(l.Order())
			s.changeEtcd(ctx, `"etcd":{"image":null,"resources":{"requests":{"cpu":"61m","memory":"128Mi"}}}`)
			s.complete(ctx)
			s.measured(l)
		})
		back(s, o, before)
		s.isAsEtcdDruidWants(ctx, generation+2)
	})
}

// rolledEtcd is an Etcd with etcd 3.5.27 whose sidecars have Quorate from the start.
func rolledEtcd(t *testing.T, name string) (context.Context, *scene, *druid.Operator) {
	t.Helper()
	ctx, env, operator := druidEnvironment(t, name)
	require.NoError(t, operator.Restart(ctx, true))
	require.NoError(t, env.InstallPolicy(ctx))
	began := time.Now()
	s := newEtcd(t, ctx, env, harness.Spec{Name: "etcd-main", SidecarImage: harness.DropIn})
	t.Logf("all pods were Ready %v after the Etcd was created", time.Since(began))
	require.NoError(t, s.Grant(ctx))
	s.members(ctx, "3.5.27")
	s.isAsEtcdDruidWants(ctx, s.generation(ctx))
	return ctx, s, operator
}

// requests are the resources of etcd, as a part of an Etcd's spec.
func requests(cpu int) string {
	return fmt.Sprintf(`"etcd":{"resources":{"requests":{"cpu":"%dm","memory":"128Mi"}}}`, cpu)
}

// changeEtcd changes parts of the Etcd's spec.
func (s *scene) changeEtcd(ctx context.Context, parts ...string) {
	s.t.Helper()
	change := strings.Join(parts, ",")
	s.changed = time.Now()
	require.NoError(s.t, s.ChangeEtcd(ctx, "change the Etcd: "+change, `{"spec":{`+change+`}}`))
}

// measured logs when pods were removed and back.
func (s *scene) measured(l *harness.Ledger) {
	s.t.Helper()
	var told []string
	for _, r := range l.Removals() {
		told = append(told, fmt.Sprintf("%s removed after %.1f s", r.Pod, r.At.Sub(s.changed).Seconds()))
	}
	for _, r := range l.Returns() {
		told = append(told, fmt.Sprintf("%s Ready after %.1f s", r.Pod, r.At.Sub(s.changed).Seconds()))
	}
	s.t.Logf("the rollout took %.1f s (%s)", time.Since(s.changed).Seconds(), strings.Join(told, ", "))
}

// isAsEtcdDruidWants: `kubectl get etcd` shows the Etcd as ready, its conditions are good, and nobody but etcd-druid
// has changed the StatefulSet. It has no reason to change it once more.
func (s *scene) isAsEtcdDruidWants(ctx context.Context, generation int64) {
	s.t.Helper()
	require.NoError(s.t, s.WaitEtcdReady(ctx))
	told := map[string]string{}
	require.EventuallyWithT(s.t, func(t *assert.CollectT) {
		etcd, err := s.Etcd(ctx)
		require.NoError(t, err)
		conditions, _, err := unstructured.NestedSlice(etcd.Object, "status", "conditions")
		require.NoError(t, err)
		for _, c := range conditions {
			condition := c.(map[string]any)
			told[fmt.Sprint(condition["type"])] = fmt.Sprint(condition["status"])
		}
		for _, good := range []string{"Ready", "AllMembersReady", "AllMembersUpdated", "BackupReady"} {
			require.Equal(t, "True", told[good], "%s of %v", good, told)
		}
	}, 2*time.Minute, time.Second)
	require.NoError(s.t, s.ChangeEtcd(ctx, "reconcile without a change", `{}`))
	require.Equal(s.t, generation, s.generation(ctx), "nobody has changed the StatefulSet but etcd-druid, once")
}
