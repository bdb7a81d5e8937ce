package scenarios

import (
	"context"
	"fmt"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/quorate/quorate/test/harness"
)

// One cluster is led through what etcd-druid does beside rollouts, with Quorate in its sidecars from the start.
func TestEtcdDruidScalesOutAndHibernatesAClusterWithQuorate(t *testing.T) {
	leftOut(t)
	t.Parallel()
	ctx, s := newQuorateEtcd(t, "beside-rollouts", harness.Spec{Name: "etcd-main", Replicas: 1, PlainPeers: true})
	alone := s.Pods()

	t.Run("TLS between peers is turned on with one member: it is replaced once", func(t *testing.T) {
		s := s.in(t)
		o := s.during(ctx, func(*harness.Ledger) {
			defer s.follow(ctx)()
			s.changed = time.Now()
			require.NoError(t, s.ChangeEtcd(ctx, "turn on TLS between peers", s.withPeerTLS()))
			s.complete(ctx)
		})
		o.lostNothing(t)
		require.Equal(t, alone, o.order)
		s.speaks(ctx, "https")
		require.NoError(t, s.WaitEtcdReady(ctx))
	})
	t.Run("one becomes three: the only voter is replaced when the new members vote", func(t *testing.T) {
		s := s.in(t)
		o := s.during(ctx, func(*harness.Ledger) {
			defer s.follow(ctx)()
			s.changed = time.Now()
			require.NoError(t, s.ScaleEtcd(ctx, 3, `{}`))
			s.completeScaled(ctx)
		})
		o.lostNothing(t)
		require.Equal(t, alone, o.order, "the new pods have the new revision already")
		// Before that there are two voters for half a minute, and each stall of one of them is one of the quorum.
		require.Equal(t, 2, o.removals[0].OthersReady, "a quorum without the pod that goes")
		o.noneByItself(t)
		s.speaks(ctx, "https")
	})
	t.Run("three become one or two: the API server refuses it, by the definition of an Etcd", func(t *testing.T) {
		for _, replicas := range []int{1, 2} {
			err := s.ScaleEtcd(ctx, replicas, `{}`)
			require.True(t, apierrors.IsInvalid(err), "%v", err)
			require.ErrorContains(t, err, "Replicas can either be increased or be downscaled to 0")
		}
	})
	t.Run("three become none, and three again: nothing is lost, and a sidecar coordinates", func(t *testing.T) {
		s := s.in(t)
		o := s.during(ctx, func(l *harness.Ledger) {
			defer s.follow(ctx)()
			pods := s.Pods()
			began := time.Now()
			require.NoError(t, s.ScaleEtcd(ctx, 0, `{}`))
			require.NoError(t, l.WaitRemovals(ctx, 3))
			require.NoError(t, s.WaitGone(ctx))
			t.Logf("no pod is left after %v", time.Since(began).Round(time.Second))
			said, code := s.quorate(ctx, "status", s.Spec.Name)
			t.Logf("with exit code %d, status says:\n%s", code, said)
			require.NoError(t, s.ChangeEtcd(ctx, "reconcile an Etcd that sleeps", `{}`))

			began = time.Now()
			require.NoError(t, s.ScaleEtcd(ctx, 3, `{}`))
			s.waitScaled(ctx)
			require.NoError(t, s.WaitReady(ctx))
			t.Logf("three pods are Ready after %v", time.Since(began).Round(time.Second))
			owner := s.coordinator(ctx)
			t.Logf("%s has the lock after %v", owner, time.Since(began).Round(time.Second))
			require.Equal(t, pods, s.Pods())
			require.Empty(t, s.RemovalRequests(began), "nobody removes what is new")
		})
		o.lostNothing(t)
		require.Len(t, o.order, 3, "each pod has gone once")
		require.Empty(t, o.requests, "and no sidecar has asked for it")
		require.NoError(t, s.ChangeEtcd(ctx, "reconcile an Etcd that is awake", `{}`))
		require.NoError(t, s.WaitEtcdReady(ctx))
		s.speaks(ctx, "https")
	})
	t.Run("a change is rolled as in any other cluster", func(t *testing.T) {
		s := s.in(t)
		leader, err := s.Leader(ctx)
		require.NoError(t, err)
		o := s.during(ctx, func(*harness.Ledger) {
			s.changed = time.Now()
			require.NoError(s.t, s.ChangeEtcd(ctx, "change the resources of etcd",
				`{"spec":{"etcd":{"resources":{"requests":{"cpu":"60m","memory":"128Mi"}}}}}`))
			s.complete(ctx)
		})
		healthyRollout(t, o, s.Pods(), leader)
		require.NoError(t, s.WaitEtcdReady(ctx))
	})
}

// Nobody but Quorate restarts the pods under OnDelete, and etcd-druid waits until all members tell that they speak TLS.
// Meanwhile some speak it and others do not: those that do reach the others, and are not reached by them.
func TestEtcdDruidTurnsOnPeerTLSOfThreeMembersWithQuorate(t *testing.T) {
	leftOut(t)
	t.Parallel()
	ctx, s := newQuorateEtcd(t, "peer-tls", harness.Spec{Name: "etcd-main", PlainPeers: true})
	s.speaks(ctx, "http")

	t.Run("on: each pod is replaced once, with one handover", func(t *testing.T) {
		s := s.in(t)
		leader, err := s.Leader(ctx)
		require.NoError(t, err)
		o := s.during(ctx, func(*harness.Ledger) {
			defer s.follow(ctx)()
			s.changed = time.Now()
			require.NoError(t, s.ChangeEtcd(ctx, "turn on TLS between peers", s.withPeerTLS()))
			t.Logf("etcd-druid has what it waits for after %v", time.Since(s.changed).Round(time.Second))
			s.complete(ctx)
		})
		healthyRollout(t, o, s.Pods(), leader)
		s.speaks(ctx, "https")
		require.NoError(t, s.WaitEtcdReady(ctx))
	})
	t.Run("off: the first member reaches nobody and is reached by nobody, so no other goes", func(t *testing.T) {
		s := s.in(t)
		o := s.during(ctx, func(l *harness.Ledger) {
			defer s.follow(ctx)()
			s.changed = time.Now()
			require.NoError(t, s.ScaleEtcd(ctx, 3, `{"peerUrlTls":null}`))
			require.NoError(t, l.WaitRemovals(ctx, 1))
			s.says(ctx, "that it waits for the first", func(e harness.LogEntry) bool {
				return e.Guard == "UpdatedPending"
			})
			s.pass(ctx, 30*time.Second)
			// Etcd-druid writes no template with TLS while a pod is not Ready, and no pod without it becomes Ready.
			require.NoError(t, s.ScaleEtcd(ctx, 3, fmt.Sprintf(`{"peerUrlTls":%s}`, s.PeerTLS())))
			s.pass(ctx, 30*time.Second)
			require.Len(t, l.Order(), 1)
		})
		o.lostNothing(t)
		o.keptQuorum(t)
	})
	t.Run("and hibernation brings the first member back, because etcd-druid then writes TLS", func(t *testing.T) {
		s := s.in(t)
		o := s.during(ctx, func(l *harness.Ledger) {
			defer s.follow(ctx)()
			require.NoError(t, s.ScaleEtcd(ctx, 0, `{}`))
			require.NoError(t, l.WaitRemovals(ctx, 3))
			require.NoError(t, s.WaitGone(ctx))
			require.NoError(t, s.ScaleEtcd(ctx, 3, `{}`))
			s.waitScaled(ctx)
			require.NoError(t, s.WaitReady(ctx))
		})
		o.lostNothing(t)
		require.Len(t, o.order, 3, "each pod has gone once")
		require.Empty(t, o.requests, "and no sidecar has asked for it")
		s.speaks(ctx, "https")
	})
}

// Etcd-druid writes the PodDisruptionBudget for three members first, then turns on TLS, and creates the others only
// when the only member speaks it. That budget needs two pods of one. The StatefulSet controller asks no budget, and
// Quorate must not need an operator for this either.
func TestEtcdDruidTurnsOnPeerTLSWhileOneMemberBecomesThree(t *testing.T) {
	leftOut(t)
	t.Parallel()
	ctx, s := newQuorateEtcd(t, "scaled-out-with-peer-tls", harness.Spec{Name: "etcd-main", Replicas: 1,
		PlainPeers: true})
	alone := s.Pods()
	o := s.during(ctx, func(l *harness.Ledger) {
		defer s.follow(ctx)()
		s.changed = time.Now()
		require.NoError(t, s.ScaleEtcd(ctx, 3, fmt.Sprintf(`{"peerUrlTls":%s}`, s.PeerTLS())))
		// The first backup is due before it, and comes within half a minute.
		patient, cancel := context.WithTimeout(ctx, 2*time.Minute)
		defer cancel()
		require.NoError(t, l.WaitRemovals(patient, 1), "etcd-druid and Quorate wait for each other")
		s.completeScaled(ctx)
	})
	o.lostNothing(t)
	require.Equal(t, alone, o.order, "the new pods have the new revision already")
	s.speaks(ctx, "https")
}

// newQuorateEtcd creates an Etcd with etcd 3.5 and with Quorate in its sidecars from the start.
func newQuorateEtcd(t *testing.T, name string, spec harness.Spec) (context.Context, *scene) {
	t.Helper()
	ctx, env, operator := druidEnvironment(t, name)
	require.NoError(t, env.InstallPolicy(ctx))
	require.NoError(t, operator.Restart(ctx, true))
	spec.SidecarImage = harness.DropIn
	began := time.Now()
	s := newEtcd(t, ctx, env, spec)
	t.Logf("the cluster has formed after %v", time.Since(began).Round(time.Second))
	s.members(ctx, "3.5.27")
	require.NoError(t, s.Grant(ctx))
	return ctx, s
}

// withPeerTLS is the patch of an Etcd that turns on TLS between peers.
func (s *scene) withPeerTLS() string {
	return fmt.Sprintf(`{"spec":{"etcd":{"peerUrlTls":%s}}}`, s.PeerTLS())
}

// completeScaled waits until all pods are updated and a sidecar has said so, and until etcd-druid reports the Etcd as
// reconciled and ready.
func (s *scene) completeScaled(ctx context.Context) {
	s.t.Helper()
	s.waitScaled(ctx)
	s.changed = time.Now()
	s.complete(ctx)
	require.NoError(s.t, s.ChangeEtcd(ctx, "reconcile what is reconciled", `{}`))
	require.NoError(s.t, s.WaitEtcdReady(ctx))
}

// waitScaled waits until etcd-druid has scaled the StatefulSet.
func (s *scene) waitScaled(ctx context.Context) {
	s.t.Helper()
	sets := s.env.Client.AppsV1().StatefulSets(harness.Namespace)
	require.Eventually(s.t, func() bool {
		set, err := sets.Get(ctx, s.Spec.Name, metav1.GetOptions{})
		return err == nil && int(*set.Spec.Replicas) == len(s.Pods())
	}, druidTimeout, time.Second, "etcd-druid has scaled the StatefulSet")
}

// speaks: all pods have members that vote and have peer URLs of this scheme, and etcd-druid knows it.
func (s *scene) speaks(ctx context.Context, scheme string) {
	s.t.Helper()
	voters, err := s.Voters(ctx)
	require.NoError(s.t, err)
	want := map[string][]string{}
	for _, pod := range s.Pods() {
		want[pod] = []string{fmt.Sprintf("%s://%s.%s-peer.%s.svc:2380", scheme, pod, s.Spec.Name, harness.Namespace)}
	}
	require.Equal(s.t, want, voters)
	leases, secure := s.env.Client.CoordinationV1().Leases(harness.Namespace), fmt.Sprint(scheme == "https")
	require.Eventually(s.t, func() bool {
		told := 0
		for _, pod := range s.Pods() {
			lease, err := leases.Get(ctx, pod, metav1.GetOptions{})
			if err == nil && lease.Annotations["member.etcd.gardener.cloud/tls-enabled"] == secure {
				told++
			}
		}
		return told == len(want)
	}, time.Minute, time.Second, "the members' Leases tell of %s", scheme)
}

// headline finds what `quorate status` says first of the rollout, with the reason, and passing finds what says
// for how long.
var (
	headline = regexp.MustCompile(`\n\n[^\n]*\n[^\n]*`)
	passing  = regexp.MustCompile(`,? (since|for) [0-9hms]+|[0-9hms]+ ago`)
)

// follow logs what `quorate status` and the Etcd say as time goes by, when the function that it returns is called.
func (s *scene) follow(ctx context.Context) (stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	began := time.Now()
	var lines []string
	var following sync.WaitGroup
	following.Go(func() {
		ticker := time.NewTicker(2 * time.Second)
		defer ticker.Stop()
		for last := ""; ; {
			select {
			case <-ctx.Done():
				return
			case <-ticker.C:
			}
			said, code := s.quorate(context.WithoutCancel(ctx), "status", s.Spec.Name)
			etcd, err := s.Etcd(ctx)
			if err != nil {
				continue
			}
			state, _, _ := unstructured.NestedString(etcd.Object, "status", "lastOperation", "state")
			found := passing.ReplaceAllString(headline.FindString(said), "")
			now := fmt.Sprintf("(%d) %s; Etcd: %s", code, strings.Join(strings.Fields(found), " "), state)
			if now != last {
				lines = append(lines, fmt.Sprintf("%4.0fs %s", time.Since(began).Seconds(), now))
			}
			last = now
		}
	})
	return func() {
		cancel()
		following.Wait()
		s.t.Logf("status and Etcd said:\n%s", strings.Join(lines, "\n"))
	}
}
