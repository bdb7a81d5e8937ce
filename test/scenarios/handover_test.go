package scenarios

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/quorate/quorate/test/harness"
	"github.com/quorate/quorate/test/harness/apiproxy"
)

func TestAHealthyClusterIsUpgradedByTheNewCode(t *testing.T) {
	t.Parallel()
	ctx, s := newCluster(t, harness.Loopback, harness.Spec{Name: "healthy", PlainText: true})

	for _, leader := range s.Pods() {
		t.Run("while "+leader+" leads", func(t *testing.T) {
			s := s.in(t)
			require.NoError(t, s.MoveLeader(ctx, leader))
			old := s.uids(ctx)
			o := s.during(ctx, func(*harness.Ledger) {
				s.touch(ctx, leader)
				s.complete(ctx)
			})
			healthyRollout(t, o, s.Pods(), leader)
			o.ledByNewCode(t, old)
			s.readLive(o)
		})
	}
	from, _ := harness.EtcdUpgrade()
	s.runs(ctx, version(from))
}

func TestASidecarOutsideOfAnyPodRollsAllOfThem(t *testing.T) {
	t.Parallel()
	ctx, s := newCluster(t, harness.Loopback, harness.Spec{Name: "visited", PlainText: true})
	dir := t.TempDir()
	outside, err := s.StartOutside(ctx, dir, quick...)
	require.NoError(t, err)
	defer func() { require.NoError(t, outside.Stop(ctx, 5*time.Second)) }()
	s.waitQueue(ctx, len(s.Pods())+1)
	// It stands in the queue before those that come anew.
	s.restartSidecars(ctx)
	o := s.during(ctx, func(*harness.Ledger) {
		s.touch(ctx, "from-outside")
		require.NoError(t, s.WaitUpdated(ctx))
	})
	o.lostNothing(t)
	o.keptQuorum(t)
	o.oneAtATime(t)
	o.replacedOnce(t, s.Pods()...)
	for _, r := range o.requests {
		require.Empty(t, r.Pod, "%s", r)
	}
	for _, i := range o.intents {
		require.Equal(t, o.intents[0].Epoch, i.Epoch, "it has nobody to hand over to, and no need to")
	}
	log, err := os.ReadFile(filepath.Join(dir, "sidecar.log"))
	require.NoError(t, err)
	require.Contains(t, string(log), "runs outside the StatefulSet's pods")
}

// uids are the pods as they are now.
func (s *scene) uids(ctx context.Context) map[string]types.UID {
	s.t.Helper()
	pods, err := s.ListPods(ctx)
	require.NoError(s.t, err)
	uids := map[string]types.UID{}
	for i := range pods {
		uids[pods[i].Name] = pods[i].UID
	}
	return uids
}

// healthyRollout: every pod once, the leader last, one planned change of leader, no
// member away while another goes, nothing lost.
func healthyRollout(t *testing.T, o outcome, pods []string, leader string) {
	t.Helper()
	o.lostNothing(t)
	o.keptQuorum(t)
	o.oneAtATime(t)
	o.replacedOnce(t, pods...)
	require.Equal(t, leader, o.order[len(pods)-1], "the leader goes last, order %v", o.order)
	require.GreaterOrEqual(t, o.fewestReady, len(pods)-1, "fewest Ready pods")
	require.Equal(t, 1, o.Cluster.LeaderChanges, "leader changes: %v", o.Cluster.Leaders)
	require.Equal(t, o.Cluster.FirstTerm+1, o.Cluster.LastTerm, "one term more: a handover and no further election")
}

// ledByNewCode: the rollout changed hands once, from the pods that were there before to
// an updated one, as soon as there was one whose sidecar waited for the lock. That may come so
// late on a busy machine that one more pod has gone: until its own is next, a coordinator waits
// for nobody. (At which look it hands over is tested on fake time, in package coordinator.)
func (o outcome) ledByNewCode(t *testing.T, old map[string]types.UID) {
	t.Helper()
	// A kubelet may write a pod's status in the moment of its removal. Then that is refused, and decided on anew.
	intents := slices.Clone(o.intents)
	slices.Reverse(intents)
	intents = slices.CompactFunc(intents, func(a, b harness.Intent) bool { return onRealNodes && a.UID == b.UID })
	slices.Reverse(intents)
	require.Len(t, intents, len(o.order), "one intent for each removal: %v", o.intents)
	granted := o.granted()
	first := slices.IndexFunc(granted, func(r apiproxy.Record) bool { return r.UID != old[r.Pod] })
	require.Contains(t, []int{1, 2}, first, "the first removal by the updated code: %v", granted)
	for i, r := range granted {
		require.Equal(t, i >= first, r.UID != old[r.Pod], "removal %d was asked for by the updated code: %s", i, r)
		epoch := intents[0].Epoch
		if i >= first {
			epoch++
		}
		require.Equal(t, epoch, intents[i].Epoch, "the epoch of removal %d: it changes once", i)
	}
}

// readLive checks that a sidecar that asked for a removal had listed the pods before, without a
// cache in between, and watched only its own. A sidecar that asked for none looked only once,
// for its own identity when it started.
func (s *scene) readLive(o outcome) {
	s.t.Helper()
	asked := map[types.UID]bool{}
	for _, r := range o.requests {
		asked[r.UID] = true
	}
	lists, idle := 0, map[types.UID][]apiproxy.Record{}
	for _, pod := range s.Pods() {
		for _, r := range s.Requests(pod, s.changed) {
			switch {
			case r.Is("pods", "list"):
				lists++
				require.NotContains(s.t, r.Query, "resourceVersion", "%s", r)
			case r.Is("pods", "watch"):
				require.Contains(s.t, r.Query, "labelSelector", "%s", r)
			}
			if !asked[r.UID] {
				idle[r.UID] = append(idle[r.UID], r)
			}
		}
	}
	for _, records := range idle {
		require.LessOrEqual(s.t, len(records), 2, "what a sidecar asked that never coordinated: %v", records)
	}
	require.GreaterOrEqual(s.t, lists, len(o.order), "one look before each removal")
}

func TestFiveMembersAreUpgradedScaledAndRolledTwoAtATime(t *testing.T) {
	t.Parallel()
	ctx, s := newCluster(t, harness.Loopback, harness.Spec{Name: "five", Replicas: 5})

	t.Run("an upgrade from etcd 3.5 to 3.6 over mTLS", func(t *testing.T) {
		s := s.in(t)
		leader, err := s.Leader(ctx)
		require.NoError(t, err)
		old := s.uids(ctx)
		o := s.during(ctx, func(*harness.Ledger) {
			s.upgrade(ctx, harness.Etcd36)
			s.complete(ctx)
		})
		healthyRollout(t, o, s.Pods(), leader)
		o.ledByNewCode(t, old)
		s.runs(ctx, "3.6.16")
	})
	t.Run("two at a time, where the operator permits it, after the first has gone alone", func(t *testing.T) {
		s := s.in(t)
		o := s.during(ctx, func(*harness.Ledger) {
			require.NoError(t, s.Annotate(ctx, harness.MaxUnavailableAnnotation, "2"))
			s.touch(ctx, "two-at-a-time")
			s.complete(ctx)
		})
		require.NoError(t, s.Annotate(ctx, harness.MaxUnavailableAnnotation, ""))
		o.lostNothing(t)
		o.keptQuorum(t)
		o.atMostAway(t, 2)
		o.replacedOnce(t, s.Pods()...)
		require.Zero(t, o.removals[1].OthersAway, "the first pod of a revision goes alone")
		require.Equal(t, 3, o.fewestReady, "two were down together")
	})
	t.Run("scaled in to three together with a change: it waits until the members are removed", func(t *testing.T) {
		s := s.in(t)
		away := s.Pods()[3:]
		for _, pod := range away {
			leader, err := s.Leader(ctx)
			require.NoError(t, err)
			if leader == pod {
				require.NoError(t, s.MoveLeader(ctx, s.Pods()[0]))
			}
		}
		o := s.during(ctx, func(l *harness.Ledger) {
			s.changed = time.Now()
			require.NoError(t, s.Scale(ctx, 3, nil))
			s.holds(ctx, "QuorumFloor")
			s.pass(ctx, 3*time.Second)
			require.ElementsMatch(t, away, l.Order(), "three of five voters serve, and nobody may go")
			// Etcd refuses while the members that stay have not been connected for five seconds.
			require.Eventually(t, func() bool { return s.RemoveMembers(ctx, away...) == nil }, time.Minute, time.Second)
			require.NoError(t, s.SetMinAvailable(ctx, 2)) // Else no budget of five would let one of three go.
			s.complete(ctx)
		})
		o.lostNothing(t)
		o.keptQuorum(t)
		require.ElementsMatch(t, append(s.Pods(), away...), o.order, "each pod goes once")
		o.noneByItself(t)
		for _, r := range o.requests {
			require.NotContains(t, away, r.Name, "what is scaled away is Kubernetes' to remove")
		}
	})
}

// runs: all members run this version of etcd.
func (s *scene) runs(ctx context.Context, version string) {
	s.t.Helper()
	for _, pod := range s.Pods() {
		require.Equal(s.t, version, s.EtcdVersion(ctx, pod), pod)
		require.Less(s.t, s.memory(pod), 16.0, "anonymous resident memory of the sidecar of %s in MiB", pod)
	}
}

func TestASingleMemberIsReplacedByItsOwnSidecarAndScaledOut(t *testing.T) {
	t.Parallel()
	ctx, s := newCluster(t, harness.Loopback, harness.Spec{Name: "single", Replicas: 1})

	t.Run("an upgrade from etcd 3.5 to 3.6 over mTLS", func(t *testing.T) {
		s := s.in(t)
		o := s.during(ctx, func(*harness.Ledger) {
			s.change(ctx, "upgrade etcd, and let two learners join", func(template *corev1.PodTemplateSpec) {
				container(template, "etcd").Image = harness.Etcd36
				withFlag("etcd", "--max-learners=2")(template)
			})
			s.complete(ctx)
		})
		o.lostNothing(t)
		require.Equal(t, s.Pods(), o.order)
		// Another one may have been refused, because the kubelet wrote the pod's status meanwhile.
		require.Len(t, harness.SelfRemovals(o.granted()), 1, "there is nobody else")
		s.runs(ctx, "3.6.16")
	})
	t.Run("scaled out to three together with a change: it waits until the new members vote", func(t *testing.T) {
		s := s.in(t)
		old := s.Pods()
		o := s.during(ctx, func(l *harness.Ledger) {
			s.changed = time.Now()
			require.NoError(t, s.Scale(ctx, 3, touched("scaled-out")))
			s.says(ctx, "that the only voter has to stay", func(e harness.LogEntry) bool {
				return e.Voters == 1 && e.Action != "Remove"
			})
			s.pass(ctx, 3*time.Second)
			require.Empty(t, l.Order(), "the only voter stays")
			for _, pod := range s.Pods()[1:] {
				require.NoError(t, s.Promote(ctx, pod))
			}
			s.complete(ctx)
		})
		o.lostNothing(t)
		// While a learner becomes a voter, an observation has it as both.
		require.Zero(t, o.Cluster.WithoutQuorumSeconds, "seconds without quorum")
		require.Equal(t, old, o.order, "the new pods have the new revision already")
		o.noneByItself(t)
	})
}

func TestTwoMembersAreNotUpgradedUnlessTheOperatorSaysSo(t *testing.T) {
	t.Parallel()
	ctx, s := newCluster(t, harness.Loopback, harness.Spec{Name: "two", Replicas: 2})
	o := s.during(ctx, func(l *harness.Ledger) {
		s.upgrade(ctx, harness.Etcd36)
		s.holds(ctx, "QuorumFloor")
		s.pass(ctx, 3*time.Second)
		require.Empty(t, l.Order(), "either of two is needed")
		require.NoError(t, s.Annotate(ctx, harness.OverrideAnnotation, "QuorumFloor,EndpointFloor,DisruptionBudget"))
		s.complete(ctx)
	})
	o.lostNothing(t)
	o.oneAtATime(t)
	// While one of two is away there is no quorum, and a lock may be lost with it. Whoever goes on without
	// one has nobody to hand over to, and may have to remove its own pod.
	require.ElementsMatch(t, s.Pods(), o.order, "each pod is replaced once")
	s.runs(ctx, "3.6.16")
}

// waitQueue waits until so many sidecars stand in the queue for the lock.
func (s *scene) waitQueue(ctx context.Context, n int) {
	s.t.Helper()
	require.Eventually(s.t, func() bool {
		queue, err := s.LockQueue(ctx)
		return err == nil && len(queue) == n
	}, time.Minute, 100*time.Millisecond)
}

// restartSidecars kills the sidecars of all pods at once, and waits until their leases have
// expired and the new ones stand in the queue behind those that were there before.
func (s *scene) restartSidecars(ctx context.Context) {
	s.t.Helper()
	before, err := s.LockQueue(ctx)
	require.NoError(s.t, err)
	for _, pod := range s.Pods() {
		s.signal(pod, syscall.SIGKILL)
	}
	s.pass(ctx, lockTTL)
	s.waitQueue(ctx, len(before))
}
