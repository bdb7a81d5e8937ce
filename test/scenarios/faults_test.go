package scenarios

import (
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/quorate/quorate/test/harness"
)

func TestTheAPIServerIsGoneForHalfAMinute(t *testing.T) {
	t.Parallel()
	env := ownEnvironment(t, "outage", harness.Loopback)
	ctx, s := newClusterIn(t, env, harness.Spec{Name: "outage", PlainText: true})
	o := s.during(ctx, func(l *harness.Ledger) {
		s.touch(ctx, "outage")
		require.NoError(t, l.WaitRemovals(ctx, 1))
		require.NoError(t, s.env.Plane.StopAPIServer(ctx))
		s.pass(ctx, 30*time.Second)
		require.NoError(t, s.env.Plane.StartAPIServer(ctx))
		s.complete(ctx)
	})
	o.lostNothing(t)
	o.keptQuorum(t)
	o.oneAtATime(t)
	require.ElementsMatch(t, s.Pods(), o.order)
	o.noneByItself(t)
}

func TestTheAPIServerAnswersLate(t *testing.T) {
	t.Parallel()
	ctx, s := newCluster(t, harness.Loopback, harness.Spec{Name: "late", PlainText: true})
	o := s.during(ctx, func(l *harness.Ledger) {
		// The removal takes effect, but its answer comes too late.
		late := s.env.API.Hold(ctx, s.Removing)
		s.touch(ctx, "late")
		status, err := late.Forward(ctx)
		require.NoError(t, err)
		require.Equal(t, 201, status)
		require.NoError(t, late.Gone(ctx))
		late.Answer()

		// The next one is not heard of, is ruled out, and arrives then.
		lost := s.env.API.Hold(ctx, s.Removing)
		r, err := lost.Reached(ctx)
		require.NoError(t, err)
		require.NoError(t, lost.Gone(ctx))
		require.NoError(t, l.WaitRemovals(ctx, 2))
		require.Equal(t, r.Name, l.Order()[1], "it is decided on again")
		status, err = lost.Forward(ctx)
		require.NoError(t, err)
		require.Contains(t, []int{409, 429}, status,
			"it is ruled out; or the budget refuses it before that is looked at")
		lost.Drop()

		// The API server is in trouble for a moment, and says so.
		stop := s.env.API.Refuse(s.WritingRecord, 500)
		s.pass(ctx, 2*time.Second)
		stop()
		s.complete(ctx)
	})
	o.lostNothing(t)
	o.keptQuorum(t)
	o.oneAtATime(t)
	o.replacedOnce(t, s.Pods()...)
}

func TestQuorumIsLostForAMomentWhileAnUpdateIsPending(t *testing.T) {
	t.Parallel()
	ctx, s := newCluster(t, harness.Loopback, harness.Spec{Name: "blip", PlainText: true})
	leader, err := s.Leader(ctx)
	require.NoError(t, err)
	stopped := []string{leader, s.others(leader)[0]}
	var back time.Time
	o := s.during(ctx, func(l *harness.Ledger) {
		for _, pod := range stopped {
			require.NoError(t, s.Signal(pod, "etcd", syscall.SIGSTOP))
		}
		s.touch(ctx, "blip")
		s.pass(ctx, 12*time.Second)
		// And until the kubelet, too, takes them for down.
		for _, pod := range stopped {
			require.NoError(t, s.WaitNotReady(ctx, pod))
		}
		s.pass(ctx, 3*time.Second)
		require.Empty(t, l.Order(), "no live process is removed")
		s.says(ctx, "that the rollout is held", func(e harness.LogEntry) bool { return e.Action == "Hold" })
		back = time.Now()
		for _, pod := range stopped {
			require.NoError(t, s.Signal(pod, "etcd", syscall.SIGCONT))
		}
		s.complete(ctx)
	})
	o.lostNothing(t)
	o.oneAtATime(t)
	// Who coordinates is chance, and without a lock a coordinator may be the first that
	// goes (there is nobody to hand over to).
	require.ElementsMatch(t, s.Pods(), o.order, "each pod is replaced once")
	for _, outage := range o.Cluster.Outages {
		require.True(t, outage.From.Before(back), "quorum was lost again, for %.3f s from %v; the processes went "+
			"on at %v, and pods were removed: %+v", outage.Seconds, outage.From, back, o.removals)
	}
}

func TestNoSecondMemberIsRemovedWhileANodeIsLost(t *testing.T) {
	t.Parallel()
	ctx, s := newCluster(t, harness.Namespaces, harness.Spec{Name: "lost", PlainText: true, OwnNodes: true})
	for _, lost := range s.Pods() {
		t.Run(lost, func(t *testing.T) {
			s := s.in(t)
			o := s.during(ctx, func(l *harness.Ledger) {
				require.NoError(t, s.LoseNode(ctx, lost))
				_, err := s.Leader(ctx)
				require.NoError(t, err)
				s.touch(ctx, "without-"+lost)
				require.NoError(t, l.WaitRemovals(ctx, 1))
				s.says(ctx, "that the rollout waits", func(e harness.LogEntry) bool {
					return e.Action == "Hold" || e.Action == "Wait"
				})
				s.pass(ctx, 5*time.Second)
				require.Equal(t, []string{lost}, l.Order())
				require.NotNil(t, l.Pod(lost).DeletionTimestamp, "it is stuck terminating")
				require.NoError(t, s.RestoreNode(ctx, lost))
				s.complete(ctx)
			})
			o.lostNothing(t)
			o.oneAtATime(t)
			o.replacedOnce(t, s.Pods()...)
		})
	}
}

func TestWhoeverIsCutOffRemovesNobody(t *testing.T) {
	t.Parallel()
	ctx, s := newCluster(t, harness.Namespaces, harness.Spec{Name: "cut", PlainText: true})
	for _, c := range []struct {
		name   string
		choose func(s *scene, leader, coordinator string) string
	}{
		{"the coordinator", func(s *scene, leader, coordinator string) string {
			if leader == coordinator {
				require.NoError(s.t, s.MoveLeader(s.t.Context(), s.others(coordinator)[0]))
			}
			return coordinator
		}},
		{"a follower", func(s *scene, leader, coordinator string) string { return s.others(leader, coordinator)[0] }},
		{"the leader", func(_ *scene, leader, _ string) string { return leader }},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := s.in(t)
			leader, err := s.Leader(ctx)
			require.NoError(t, err)
			cut := c.choose(s, leader, s.coordinator(ctx))
			var healed time.Time
			o := s.during(ctx, func(l *harness.Ledger) {
				require.NoError(t, s.CutOff(cut))
				s.touch(ctx, c.name)
				// A member that does not serve goes first. It does not settle while it is cut
				// off.
				require.NoError(t, l.WaitRemovals(ctx, 1))
				require.NoError(t, s.WaitNotReady(ctx, cut))
				s.pass(ctx, 10*time.Second)
				require.Equal(t, []string{cut}, l.Order(), "no healthy member is removed")
				healed = time.Now()
				require.NoError(t, s.Reconnect(cut))
				s.complete(ctx)
			})
			o.lostNothing(t)
			o.oneAtATime(t)
			o.replacedOnce(t, s.Pods()...)
			for _, r := range o.requests {
				if r.At.Before(healed) {
					require.NotEqual(t, cut, r.Pod, "%s", r)
				}
			}
		})
	}
}

func TestANameThatLeadsToAnotherMemberProvesNothing(t *testing.T) {
	t.Parallel()
	ctx, s := newCluster(t, harness.Namespaces, harness.Spec{Name: "astray", PlainText: true})
	leader, err := s.Leader(ctx)
	require.NoError(t, err)
	// A member that has stopped seems to answer, by the mouth of another one.
	stopped := s.others(leader)[0]
	o := s.during(ctx, func(l *harness.Ledger) {
		require.NoError(t, s.Signal(stopped, "etcd", syscall.SIGSTOP))
		require.NoError(t, s.Misdirect(stopped, s.others(leader, stopped)[0]))
		s.touch(ctx, "astray")
		s.says(ctx, "what it thinks of that", func(e harness.LogEntry) bool { return e.IsDecision() })
		s.pass(ctx, 10*time.Second)
		for _, pod := range l.Order() {
			require.Equal(t, stopped, pod, "nobody else may go")
		}
		require.NoError(t, s.Misdirect(stopped, stopped))
		_ = s.Signal(stopped, "etcd", syscall.SIGCONT) // It may have been replaced.
		s.complete(ctx)
	})
	o.lostNothing(t)
	o.keptQuorum(t)
	o.oneAtATime(t)
}
