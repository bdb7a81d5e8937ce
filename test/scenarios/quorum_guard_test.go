package scenarios

import (
	"context"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/quorate/quorate/test/harness"
	"github.com/quorate/quorate/test/harness/apiproxy"
)

// guardLag is how long the API server may take to see what is on the Lease. That is milliseconds where nothing else
// runs (make measure-guard), and here everything runs on two cores.
const guardLag = time.Second

// grabbed lets people and programs that know nothing of quorum try to take a second pod whenever one is away.
func (s *scene) grabbed(ctx context.Context, body func(*harness.Ledger)) (outcome, harness.HandsFigures) {
	s.t.Helper()
	var f harness.HandsFigures
	o := s.during(ctx, func(l *harness.Ledger) {
		record, err := s.WatchRecord(ctx)
		require.NoError(s.t, err)
		defer record.Stop()
		hands := s.StartHands(ctx, record, len(s.Pods()))
		defer hands.Stop()
		body(l)
		f = hands.Stop()
		require.NoError(s.t, s.WaitReady(ctx))
	})
	o.lostNothing(s.t)
	s.t.Logf("%v s without quorum; denied %v, %d of these pods could be spared; the budget refused %d; taken %v",
		o.Cluster.WithoutQuorumSeconds, f.Denied, f.Spared, f.Budget, f.Slips)
	require.Empty(s.t, f.Errs)
	for _, slip := range f.Slips {
		require.Less(s.t, slip.Listed, guardLag, "%s", slip)
	}
	return o, f
}

// While a pod is away by Quorate's hand, nobody takes a second one that quorum rests on, however they try.
func TestNobodyTakesASecondMemberWhileTheQuorumGuardKeepsIt(t *testing.T) {
	t.Parallel()
	env := ownEnvironment(t, "guarded", harness.Namespaces)
	ctx, s := newClusterIn(t, env, harness.Spec{Name: "guarded", OwnNodes: true})
	require.NoError(t, harness.InstallGuard(ctx, env.Plane.AdminConfig()))

	t.Run("at any moment of a rollout", func(t *testing.T) {
		s := s.in(t)
		o, f := s.grabbed(ctx, func(*harness.Ledger) {
			s.touch(ctx, "guarded")
			s.complete(ctx)
		})
		o.keptQuorum(t)
		require.Subset(t, o.order, s.Pods(), "each pod is replaced")
		require.Empty(t, f.Slips)
		for _, way := range harness.Ways {
			require.NotZero(t, f.Denied[way], "denials by %s", way)
		}
		record, err := s.Record(ctx)
		require.NoError(t, err)
		require.Empty(t, record.Needed, "nobody is kept any more")
	})

	// Whoever takes over repeats what the Lease says, so that nothing passes in between.
	for _, at := range []struct {
		name  string
		match func(*scene) apiproxy.Match
		after bool
		ci    bool
	}{
		{"before the intent is on record", func(s *scene) apiproxy.Match { return s.WritingIntent }, false, false},
		{"before it learns that its intent is on record",
			func(s *scene) apiproxy.Match { return s.WritingIntent }, true, false},
		{"before its removal arrives", func(s *scene) apiproxy.Match { return s.Removing }, false, false},
		{"before it learns that its removal has arrived",
			func(s *scene) apiproxy.Match { return s.Removing }, true, true},
	} {
		t.Run("with the coordinator killed "+at.name, func(t *testing.T) {
			if !at.ci {
				leftOut(t)
			}
			s := s.in(t)
			o, f := s.grabbed(ctx, func(*harness.Ledger) {
				held := s.env.API.Hold(ctx, at.match(s))
				s.touch(ctx, at.name)
				r, err := held.Reached(ctx)
				require.NoError(t, err)
				if at.after {
					_, err = held.Forward(ctx)
					require.NoError(t, err)
				}
				s.signal(r.Pod, syscall.SIGKILL)
				held.Drop()
				s.complete(ctx)
			})
			o.keptQuorum(t)
			require.Empty(t, f.Slips)
		})
	}
	t.Run("with the coordinator killed while it waits for the pod", func(t *testing.T) {
		leftOut(t)
		s := s.in(t)
		o, f := s.grabbed(ctx, func(l *harness.Ledger) {
			s.touch(ctx, "killed-while-waiting")
			require.NoError(t, l.WaitRemovals(ctx, 1))
			s.signal(s.coordinator(ctx), syscall.SIGKILL)
			s.complete(ctx)
		})
		o.keptQuorum(t)
		require.Empty(t, f.Slips)
	})
}

// The StatefulSet controller is denied like everybody else while quorum rests on what it would take, and it tries
// again. The rollout does not wait for it meanwhile, or both would wait for ever.
func TestAScaleInWaitsForTheQuorumGuardAndNobodyWaitsForIt(t *testing.T) {
	leftOut(t)
	t.Parallel()
	env := ownEnvironment(t, "scaledin", harness.Namespaces)
	ctx, s := newClusterIn(t, env, harness.Spec{Name: "scaledin", Replicas: 5, OwnNodes: true})
	require.NoError(t, harness.InstallGuard(ctx, env.Plane.AdminConfig()))
	away := s.Pods()[3:]
	require.NoError(t, s.MoveLeader(ctx, s.Pods()[0]))
	o := s.during(ctx, func(l *harness.Ledger) {
		record, err := s.WatchRecord(ctx)
		require.NoError(t, err)
		defer record.Stop()
		began := time.Now()
		s.touch(ctx, "scaled-in")
		_, err = record.Await(ctx, "that a pod which is to go is kept", began, func(r harness.RecordState) bool {
			return r.Needed[away[0]] != "" || r.Needed[away[1]] != ""
		})
		require.NoError(t, err)
		require.NoError(t, s.Scale(ctx, 3, nil))
		require.Eventually(t, func() bool { return s.RemoveMembers(ctx, away...) == nil }, 2*time.Minute, time.Second)
		require.NoError(t, s.SetMinAvailable(ctx, 2))
		s.complete(ctx)
	})
	o.lostNothing(t)
	o.keptQuorum(t)
	pods, err := s.ListPods(ctx)
	require.NoError(t, err)
	require.Len(t, pods, 3)
}
