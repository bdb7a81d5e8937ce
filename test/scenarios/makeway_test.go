package scenarios

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/quorate/quorate/test/harness"
	"github.com/quorate/quorate/test/harness/apiproxy"
)

// drainable is a cluster with nodes of its own, which its sidecars read.
func drainable(t *testing.T, name string, args ...string) (context.Context, *scene) {
	t.Helper()
	return newCluster(t, harness.Loopback, harness.Spec{Name: name, PlainText: true, OwnNodes: true, SpareNode: true,
		Components: []string{"nodes"}, SidecarArgs: append([]string{"--read-nodes"}, args...)})
}

// nodeOf is the node of a pod.
func (s *scene) nodeOf(ctx context.Context, pod string) string {
	s.t.Helper()
	node, err := s.NodeOf(ctx, pod)
	require.NoError(s.t, err)
	return node
}

// leader is the pod whose member leads.
func (s *scene) leader(ctx context.Context) string {
	s.t.Helper()
	leader, err := s.Leader(ctx)
	require.NoError(s.t, err)
	return leader
}

// drained drains a pod's node, and lets it be used again once the pod is back.
func (s *scene) drained(ctx context.Context, pod string) {
	s.t.Helper()
	node := s.nodeOf(ctx, pod)
	require.NoError(s.t, s.Drain(ctx, node))
	require.NoError(s.t, s.WaitReady(ctx))
	require.NoError(s.t, s.Uncordon(ctx, node))
}

// madeWay is what a sidecar says when leadership leaves a member that is about to go.
func madeWay(since time.Time) func(harness.LogEntry) bool {
	return func(e harness.LogEntry) bool {
		return e.At.After(since) && e.Action == "MoveLeader" && strings.Contains(e.Message, "takes over first")
	}
}

// Between two rollouts, the node of the leader is drained: leadership has left when the pod goes, and the cluster is
// never without a leader. Then a rollout begins while another node is drained. It waits for the drain.
func TestADrainFindsNoLeaderAndARolloutWaitsForIt(t *testing.T) {
	t.Parallel()
	ctx, s := drainable(t, "makeway")
	t.Run("between rollouts", func(t *testing.T) {
		s := s.in(t)
		o := s.during(ctx, func(*harness.Ledger) {
			leader, began := s.leader(ctx), time.Now()
			require.NoError(t, s.Cordon(ctx, s.nodeOf(ctx, leader)))
			require.NoError(t, s.WaitLeaderOtherThan(ctx, leader))
			_, err := s.journal.Await(ctx, "that leadership made way", madeWay(began))
			require.NoError(t, err)
			t.Logf("leadership left a cordoned node after %v", time.Since(began).Round(time.Millisecond))
			require.Contains(t, s.statusNow(ctx), leader+" may be about to go: node "+s.nodeOf(ctx, leader)+
				" is cordoned")
			s.drained(ctx, leader)
		})
		o.lostNothing(t)
		o.keptQuorum(t)
		require.Equal(t, 1, o.Cluster.LeaderChanges, "changes of leader")
		require.Empty(t, o.requests, "what Quorate removed")
	})
	t.Run("during a rollout", func(t *testing.T) {
		s := s.in(t)
		o := s.during(ctx, func(l *harness.Ledger) {
			pod := s.others(s.leader(ctx))[0]
			node := s.nodeOf(ctx, pod)
			require.NoError(t, s.Cordon(ctx, node))
			s.touch(ctx, "beside a drain")
			held := s.holds(ctx, "OthersLeaving")
			require.Contains(t, held.Message, pod+" may be about to go: node "+node+" is cordoned")
			require.Empty(t, l.Order())
			s.drained(ctx, pod)
			s.complete(ctx)
		})
		o.lostNothing(t)
		o.keptQuorum(t)
		o.oneAtATime(t)
		o.replacedOnce(t, s.Pods()...)
		require.Len(t, o.granted(), 2, "what the drain took came back updated")
	})
}

// statusNow is what status says, whatever the exit code.
func (s *scene) statusNow(ctx context.Context) string {
	s.t.Helper()
	said, _ := s.quorate(ctx, "status", s.Spec.Name)
	return said
}

// However a cluster is drained beside a rollout, with a budget and without, nothing is lost, and Quorate never takes a
// member beside the drain's.
func TestDrainsOfAllNodes(t *testing.T) {
	t.Parallel()
	ctx, s := drainable(t, "drains")
	s.drainsOfAllNodes(ctx, "with druid's budget")
}

func TestDrainsOfAllNodesWithoutABudget(t *testing.T) {
	leftOut(t)
	t.Parallel()
	ctx, s := drainable(t, "unbudgeted")
	require.NoError(t, s.DeleteBudget(ctx))
	s.drainsOfAllNodes(ctx, "without a budget")
}

func (s *scene) drainsOfAllNodes(ctx context.Context, budget string) {
	s.t.Run("between rollouts, one node after the other, "+budget, func(t *testing.T) {
		s := s.in(t)
		o := s.during(ctx, func(*harness.Ledger) {
			for _, pod := range s.Pods() {
				s.drainedInTime(ctx, pod)
			}
		})
		o.lostNothing(t)
		o.keptQuorum(t)
		require.Empty(t, o.requests, "what Quorate removed")
	})
	s.t.Run("during a rollout, one node after the other, "+budget, func(t *testing.T) {
		s := s.in(t)
		o := s.during(ctx, func(*harness.Ledger) {
			s.touch(ctx, "drained "+budget)
			for _, pod := range s.Pods() {
				s.drainedInTime(ctx, pod)
			}
			s.complete(ctx)
		})
		o.lostNothing(t)
		o.keptQuorum(t)
		o.neverBesideTheDrain(t)
	})
}

func TestAllNodesAreCordonedForLong(t *testing.T) {
	leftOut(t)
	t.Parallel()
	ctx, s := drainable(t, "cordoned", "--leaving-patience=20s")
	for _, budget := range []string{"with druid's budget", "without a budget"} {
		if budget == "without a budget" {
			require.NoError(t, s.DeleteBudget(ctx))
		}
		t.Run(budget, func(t *testing.T) {
			s := s.in(t)
			o := s.during(ctx, func(l *harness.Ledger) {
				nodes, err := s.Nodes(ctx)
				require.NoError(t, err)
				for _, node := range nodes {
					require.NoError(t, s.Cordon(ctx, node))
				}
				cordoned := time.Now()
				s.touch(ctx, "cordoned "+budget)
				s.holds(ctx, "OthersLeaving")
				require.NoError(t, l.WaitRemovals(ctx, 1))
				require.GreaterOrEqual(t, time.Since(cordoned), 20*time.Second, "the patience")
				s.pass(ctx, 5*time.Second)
				require.Len(t, l.Order(), 1, "the first one finds no node, and nothing goes before it is back")
				for _, node := range nodes {
					require.NoError(t, s.Uncordon(ctx, node))
				}
				s.complete(ctx)
			})
			o.lostNothing(t)
			o.keptQuorum(t)
			o.oneAtATime(t)
			o.replacedOnce(t, s.Pods()...)
		})
	}
}

// drainedInTime drains a pod's node once leadership has left it, as a machine controller that cordons in advance
// does.
func (s *scene) drainedInTime(ctx context.Context, pod string) {
	s.t.Helper()
	require.NoError(s.t, s.Cordon(ctx, s.nodeOf(ctx, pod)))
	if s.leader(ctx) == pod {
		require.NoError(s.t, s.WaitLeaderOtherThan(ctx, pod))
	}
	s.drained(ctx, pod)
}

// neverBesideTheDrain: what Quorate took, it took while nobody else was away.
func (o outcome) neverBesideTheDrain(t *testing.T) {
	t.Helper()
	ours := o.granted()
	for _, r := range o.removals {
		if slices.ContainsFunc(ours, func(g apiproxy.Record) bool { return g.Name == r.Pod }) {
			require.Zero(t, r.OthersAway, "%s was removed beside others", r.Pod)
		}
	}
}

// Etcd-druid's budget also counts the pod of a compaction Job, because that has the same labels. It then lets two
// members go. While a drain is seen, Quorate takes none beside it all the same.
func TestABudgetThatCountsAJobDoesNotLetQuorateTakeASecondMember(t *testing.T) {
	leftOut(t)
	t.Parallel()
	ctx, s := drainable(t, "compacted")
	require.NoError(t, s.RunJob(ctx))
	defer func() { require.NoError(t, s.EndJob(context.WithoutCancel(ctx))) }()
	require.NoError(t, s.WaitBudget(ctx, 2))
	o := s.during(ctx, func(*harness.Ledger) {
		for i, pod := range s.others(s.leader(ctx)) {
			require.NoError(t, s.Cordon(ctx, s.nodeOf(ctx, pod)))
			s.touch(ctx, fmt.Sprint("compacted-", i))
			s.holds(ctx, "OthersLeaving")
			s.drained(ctx, pod)
			s.complete(ctx)
		}
	})
	o.lostNothing(t)
	o.keptQuorum(t)
	o.oneAtATime(t)
}

// A node is drained while a member is being defragmented. Nobody can stop a defragmentation, and the budget, which is
// as etcd-druid's, does not know of it. But its member goes on voting, so the drain takes the quorum from nobody.
// Nothing further is begun before what was drained is back, and both come to their end.
func TestDrainsDuringADefragmentation(t *testing.T) {
	leftOut(t)
	t.Parallel()
	ctx, s := drainable(t, "rewritten")
	require.NoError(t, s.Load(ctx, 128))
	for _, tc := range []struct {
		name   string
		choose func(s *scene, stopped string) string
	}{
		{"the node of another follower", func(s *scene, stopped string) string {
			return s.others(stopped, s.leader(ctx))[0]
		}},
		{"the node of that member", func(_ *scene, stopped string) string { return stopped }},
		{"the node of the leader, once it has handed over", func(s *scene, _ string) string { return s.leader(ctx) }},
	} {
		t.Run(tc.name, func(t *testing.T) {
			s := s.in(t)
			require.NoError(t, s.Waste(ctx, 64))
			record, err := s.WatchRecord(ctx)
			require.NoError(t, err)
			defer record.Stop()
			began := time.Now()
			var (
				drained string
				first   harness.Intent
				back    time.Time
			)
			stops := func(r harness.RecordState) bool { return r.Intent != nil && r.Intent.Operation == "defragment" }
			o := s.during(ctx, func(l *harness.Ledger) {
				type answer struct {
					said string
					code int
				}
				answered := make(chan answer, 1)
				go func() {
					said, code := s.quorate(ctx, "defragment", s.Spec.Name, "--yes", "--timeout=5m")
					answered <- answer{said, code}
				}()
				state, err := record.Await(ctx, "the first defragmentation", began, stops)
				require.NoError(t, err)
				first = *state.Intent
				drained = tc.choose(s, first.Member.Name)
				s.drainedInTime(ctx, drained)
				back = l.Returns()[0].At
				t.Logf("%s was being defragmented when the node of %s was drained, and that took %v",
					first.Member.Name, drained, time.Since(state.At).Round(time.Millisecond))
				a := <-answered
				t.Log(a.said)
				require.Zero(t, a.code)
			})
			o.lostNothing(t)
			require.Zero(t, o.Cluster.WithoutQuorumSeconds, "seconds in which no member served")
			o.oneAtATime(t)
			require.Equal(t, []string{drained}, o.order, "only the drain takes a pod")
			for _, r := range record.States(began) {
				begins := stops(r) && *r.Intent != first
				away := r.At.After(o.removals[0].At.Add(time.Second)) && r.At.Before(back)
				require.False(t, begins && away, "%s, while %s is away", r, drained)
			}
			for _, e := range s.defragmented(ctx, began) {
				t.Logf("after %v: %s %s", e.At.Sub(began).Round(time.Millisecond), e.Pod, e.Reason)
			}
		})
	}
}
