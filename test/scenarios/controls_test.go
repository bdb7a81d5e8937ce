package scenarios

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"

	"github.com/quorate/quorate/test/harness"
	"github.com/quorate/quorate/test/harness/apiproxy"
)

func TestTheOperatorIsInControl(t *testing.T) {
	t.Parallel()
	ctx, s := newCluster(t, harness.Loopback, harness.Spec{
		Name: "controlled", PlainText: true, EtcdArgs: []string{"--strict-reconfig-check=false"},
	})
	good := func(t *testing.T, o outcome) {
		t.Helper()
		o.lostNothing(t)
		o.keptQuorum(t)
		o.oneAtATime(t)
		o.replacedOnce(t, s.Pods()...)
	}

	t.Run("paused, then only one partition, then all", func(t *testing.T) {
		s := s.in(t)
		o := s.during(ctx, func(l *harness.Ledger) {
			require.NoError(t, s.Annotate(ctx, harness.PausedAnnotation, "true"))
			s.touch(ctx, "paused")
			s.holds(ctx, "Paused")
			s.pass(ctx, 2*time.Second)
			require.Empty(t, l.Order())

			require.NoError(t, s.Annotate(ctx, harness.PartitionAnnotation, "2"))
			require.NoError(t, s.Annotate(ctx, harness.PausedAnnotation, ""))
			s.says(ctx, "that all in the partition is done", func(e harness.LogEntry) bool {
				return e.Action == "Complete"
			})
			s.pass(ctx, 2*time.Second)
			require.Equal(t, []string{"controlled-2"}, l.Order())

			s.changed = time.Now()
			require.NoError(t, s.Annotate(ctx, harness.PartitionAnnotation, ""))
			s.complete(ctx)
		})
		good(t, o)
	})
	t.Run("a pause that comes between the intent and the removal lets this one pod go, and no other",
		func(t *testing.T) {
			s := s.in(t)
			o := s.during(ctx, func(l *harness.Ledger) {
				removal := s.env.API.Hold(ctx, s.Removing)
				s.touch(ctx, "pause-under-way")
				r, err := removal.Reached(ctx)
				require.NoError(t, err)
				require.NoError(t, s.Annotate(ctx, harness.PausedAnnotation, "true"))
				_, err = removal.Release(ctx)
				require.NoError(t, err)
				s.holds(ctx, "Paused")
				require.NoError(t, s.WaitReady(ctx))
				s.pass(ctx, 2*time.Second)
				require.Equal(t, []string{r.Name}, l.Order())
				record, err := s.Record(ctx)
				require.NoError(t, err)
				require.Equal(t, "true", record.Annotations[harness.PausedAnnotation], "the operator's word stands")
				require.Nil(t, record.Intent, "nothing is under way any more")
				require.NoError(t, s.Annotate(ctx, harness.PausedAnnotation, ""))
				s.complete(ctx)
			})
			good(t, o)
		})
	t.Run("a pause that comes between the decision and the intent lets nobody go", func(t *testing.T) {
		s := s.in(t)
		o := s.during(ctx, func(l *harness.Ledger) {
			intent := s.env.API.Hold(ctx, s.WritingIntent)
			s.touch(ctx, "pause-before")
			_, err := intent.Reached(ctx)
			require.NoError(t, err)
			require.NoError(t, s.Annotate(ctx, harness.PausedAnnotation, "true"))
			status, err := intent.Release(ctx)
			require.NoError(t, err)
			require.Equal(t, 409, status)
			s.holds(ctx, "Paused")
			s.pass(ctx, 2*time.Second)
			require.Empty(t, l.Order())

			// The record is deleted mid-rollout, and the pause with it.
			require.NoError(t, s.DeleteRecord(ctx))
			require.NoError(t, l.WaitRemovals(ctx, 1))
			require.NoError(t, s.DeleteRecord(ctx))
			s.complete(ctx)
		})
		o.lostNothing(t)
		o.keptQuorum(t)
		o.oneAtATime(t)
		o.replacedOnce(t, s.Pods()...)
	})
	t.Run("ghosts count: three of five voters serve, and nobody goes before they are removed", func(t *testing.T) {
		s := s.in(t)
		o := s.during(ctx, func(l *harness.Ledger) {
			require.NoError(t, s.AddGhosts(ctx, 2))
			s.touch(ctx, "ghosts")
			held := s.holds(ctx, "QuorumFloor")
			require.Equal(t, []int{3, 5, 3}, []int{held.Serving, held.Voters, held.Quorum})
			s.pass(ctx, 5*time.Second)
			require.Empty(t, l.Order())
			require.NoError(t, s.RemoveGhosts(ctx))
			s.complete(ctx)
		})
		good(t, o)
	})
	t.Run("updated sidecars that may only read: outdated ones carry on, and nobody is tried twice", func(t *testing.T) {
		s := s.in(t)
		require.NoError(t, s.CreateServiceAccount(ctx, "controlled-reader", "get", "list", "watch"))
		o := s.during(ctx, func(*harness.Ledger) {
			s.change(ctx, "give the sidecars an account that may only read", func(template *corev1.PodTemplateSpec) {
				template.Spec.ServiceAccountName = "controlled-reader"
			})
			require.NoError(t, s.WaitUpdated(ctx))
		})
		o.lostNothing(t)
		o.keptQuorum(t)
		o.oneAtATime(t)
		require.ElementsMatch(t, s.Pods(), o.order)
		unfit := map[string]int{}
		for _, e := range s.journal.Entries() {
			if e.At.After(s.changed) && strings.HasPrefix(e.Message, "unfit: ") {
				unfit[e.Pod]++
			}
		}
		require.NotEmpty(t, unfit, "an updated sidecar has tried")
		for pod, times := range unfit {
			require.Equal(t, 1, times, "%s has tried more than once", pod)
		}
		self := harness.SelfRemovals(o.requests) // The end of its pod may come before the answer.
		require.Len(t, self, 1, "in the end there is nobody else who may: %v", self)
		require.Equal(t, o.order[2], self[0].Name)
	})
}

func TestAnEvictionWaitsForThePodDisruptionBudget(t *testing.T) {
	t.Parallel()
	ctx, s := newCluster(t, harness.Loopback, harness.Spec{Name: "evicted", PlainText: true})
	o := s.during(ctx, func(l *harness.Ledger) {
		require.NoError(t, s.SetMinAvailable(ctx, 3))
		s.touch(ctx, "evicted")
		held := s.holds(ctx, "DisruptionBudget")
		require.Contains(t, held.Message, "waiting does not help")
		require.Contains(t, held.Message, "The disruption budget evicted needs 3 healthy pods and has 3")
		require.Equal(t, "Hold", held.Action)
		s.pass(ctx, 5*time.Second)
		require.Empty(t, l.Order())
		require.NoError(t, s.SetMinAvailable(ctx, 2))
		s.complete(ctx)
	})
	o.lostNothing(t)
	o.keptQuorum(t)
	o.oneAtATime(t)
	o.replacedOnce(t, s.Pods()...)
	for _, r := range o.requests {
		require.True(t, r.Is("pods/eviction", "create"), "%s", r)
		p := r.Preconditions()
		require.NotNil(t, p, "%s", r)
		require.NotNil(t, p.UID, "%s", r)
		require.NotNil(t, p.ResourceVersion, "%s", r)
	}
	for _, i := range o.intents {
		require.Equal(t, "evict", i.Operation)
	}
	require.Len(t, o.granted(), 3)
}

func TestAnIdleClusterCostsNothing(t *testing.T) {
	t.Parallel()
	const minute = time.Minute
	// The defaults: what is measured is what a user pays.
	ctx, s := newCluster(t, harness.Loopback,
		harness.Spec{Name: "idle", PlainText: true, SidecarArgs: []string{"--lock-ttl=10s", "--record-duration=15s"}})
	holder := s.coordinator(ctx)
	s.calm(ctx)
	before := s.etcdMessages(ctx)
	began := time.Now()
	s.pass(ctx, minute)
	after := s.etcdMessages(ctx)

	for _, pod := range s.Pods() {
		require.Empty(t, apiproxy.Count(s.Requests(pod, began)),
			"Kubernetes requests of the sidecar of %s in a minute (the lock is with %s)", pod, holder)
		var open []apiproxy.Record
		for _, r := range s.Requests(pod, time.Time{}) {
			if r.Open() {
				open = append(open, r)
			}
		}
		want := map[string]int{}
		if pod == holder {
			want["watch statefulsets"], want["watch leases"], want["watch pods"] = 1, 1, 1
		}
		require.Equal(t, want, apiproxy.Count(open), "open requests of the sidecar of %s (the lock is with %s)", pod,
			holder)
	}
	total := 0
	for method, n := range after {
		if n -= before[method]; n > 0 {
			t.Logf("etcd received in a minute: %d %s", n, method)
			total += n
			require.NotContains(t, method, "Put")
			require.NotContains(t, method, "LeaseGrant")
		}
	}
	// Every sidecar keeps its lease alive every second (60 a minute): twice in the time after which
	// silence makes it turn to the fallback. As soon as the owner of the lock could have been silent for a
	// TTL since it was last asked about, the others read who that is and ask about it again: after eight to
	// nine seconds (at most 8 a minute). The owner reads who is here and asks about both others. Once a minute it
	// also asks for the member list, and each member for its status and a read.
	const expected = 3*60 + 2*2*8 + 3*8 + 1 + 3*2
	require.LessOrEqual(t, total, expected+3, "requests to etcd in a minute")
}

// calm waits until start-up is over: no sidecar has asked the API server for anything for
// some seconds.
func (s *scene) calm(ctx context.Context) {
	s.t.Helper()
	require.NoError(s.t, s.WaitCalm(ctx, 3*time.Second))
}

// etcdMessages sums up what all members have received.
func (s *scene) etcdMessages(ctx context.Context) map[string]int {
	s.t.Helper()
	sum := map[string]int{}
	for _, pod := range s.Pods() {
		counts, err := s.EtcdMessages(ctx, pod)
		require.NoError(s.t, err)
		for method, n := range counts {
			sum[method] += n
		}
	}
	return sum
}
