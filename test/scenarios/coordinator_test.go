package scenarios

import (
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/quorate/quorate/coordinator"
	"github.com/quorate/quorate/test/harness"
	"github.com/quorate/quorate/test/harness/apiproxy"
)

// loss is a coordinator that was lost.
type loss struct {
	pod string
	at  time.Time
}

func TestACoordinatorIsKilledAtAnyStageAndAnotherFinishes(t *testing.T) {
	t.Parallel()
	ctx, s := newCluster(t, harness.Loopback, harness.Spec{Name: "killed", PlainText: true})

	// kill ends the sidecar that sent a request, with the request in our hands.
	kill := func(r *apiproxy.Request) loss {
		lost := loss{r.Pod, time.Now()}
		s.signal(r.Pod, syscall.SIGKILL)
		return lost
	}
	t.Run("before the intent is on record, and after it led leadership away", func(t *testing.T) {
		s := s.in(t)
		leader, err := s.Leader(ctx)
		require.NoError(t, err)
		var losses []loss
		o := s.during(ctx, func(l *harness.Ledger) {
			intent := s.env.API.Hold(ctx, s.WritingIntent)
			s.touch(ctx, "before-the-intent")
			r, err := intent.Reached(ctx)
			require.NoError(t, err)
			losses = append(losses, kill(r))
			intent.Drop()

			require.NoError(t, s.WaitLeaderOtherThan(ctx, leader))
			record, err := s.Record(ctx)
			require.NoError(t, err)
			losses = append(losses, kill(&apiproxy.Request{Pod: record.Holder}))
			s.complete(ctx)
		})
		s.finished(o, leader, losses)
		require.Equal(t, 1, o.Cluster.LeaderChanges, "the successor goes on where leadership is now: %v",
			o.Cluster.Leaders)
	})
	t.Run("between the intent and the removal, and after the removal", func(t *testing.T) {
		s := s.in(t)
		leader, err := s.Leader(ctx)
		require.NoError(t, err)
		var losses []loss
		o := s.during(ctx, func(l *harness.Ledger) {
			intent := s.env.API.Hold(ctx, s.WritingIntent)
			s.touch(ctx, "after-the-intent")
			r, err := intent.Reached(ctx)
			require.NoError(t, err)
			status, err := intent.Forward(ctx)
			require.NoError(t, err)
			require.Equal(t, 200, status)
			losses = append(losses, kill(r))
			intent.Drop()
			s.says(ctx, "that the removal on record was ruled out", func(e harness.LogEntry) bool {
				return e.Pod != r.Pod && strings.Contains(e.Message, "has no effect from here on")
			})

			require.NoError(t, l.WaitRemovals(ctx, 1))
			removal := s.env.API.Hold(ctx, s.Removing)
			r, err = removal.Reached(ctx)
			require.NoError(t, err)
			status, err = removal.Forward(ctx)
			require.NoError(t, err)
			require.Equal(t, 201, status)
			losses = append(losses, kill(r))
			removal.Drop()
			s.complete(ctx)
		})
		s.finished(o, leader, losses)
	})
}

// finished: the rollout was as good as one without losses, and each loss was made up for
// in time.
func (s *scene) finished(o outcome, leader string, losses []loss) {
	s.t.Helper()
	o.lostNothing(s.t)
	o.keptQuorum(s.t)
	o.oneAtATime(s.t)
	o.replacedOnce(s.t, s.Pods()...)
	require.Equal(s.t, leader, o.order[len(o.order)-1], "the leader goes last, order %v", o.order)
	for _, lost := range losses {
		// A new leader of etcd extends every lease by a whole TTL.
		from := lost.at
		successor, err := s.journal.Await(s.t.Context(), "that another coordinates", func(e harness.LogEntry) bool {
			return e.Message == coordinatesNow && e.At.After(lost.at)
		})
		require.NoError(s.t, err)
		for _, change := range o.Cluster.Leaders {
			if change.At.After(from) && change.At.Before(successor.At) {
				from = change.At
			}
		}
		took := successor.At.Sub(from)
		s.t.Logf("%s took over from %s after %v", successor.Pod, lost.pod, took)
		require.NotEqual(s.t, lost.pod, successor.Pod)
		require.LessOrEqual(s.t, took, lockTTL+2*time.Second, "%s took over from %s too late", successor.Pod, lost.pod)
	}
}

// What sidecars say when their part changes.
const (
	coordinatesNow = "this sidecar coordinates now"
	stepsDown      = "this sidecar does not coordinate any more"
	dropsAll       = "this sidecar drops what it was about to do"
)

// A coordinator is stopped while a removal of one member is under way. Its successor
// removes another one. Were the removal of the first to take effect then, quorum would be
// lost: two of three members would be down.
func TestACoordinatorThatIsStoppedAndComesBackRemovesNothing(t *testing.T) {
	t.Parallel()
	// By DELETE, so that it is the record that refuses what comes late, and no budget.
	ctx, s := newCluster(t, harness.Loopback,
		harness.Spec{Name: "stopped", PlainText: true, SidecarArgs: []string{"--removal=delete"}})

	for _, c := range []struct {
		name string
		// match is the request with which the coordinator is caught.
		match func(*scene) apiproxy.Match
		// early is true when the request reaches the API server before the stop.
		early bool
		// asks is how many removals the coordinator asks for in all, the one that was
		// refused included.
		asks int
	}{
		{"before its intent reached the record: the intent is refused",
			func(s *scene) apiproxy.Match { return s.WritingIntent }, false, 0},
		{"before it learnt that its intent is on record: it asks for nothing any more",
			func(s *scene) apiproxy.Match { return s.WritingIntent }, true, 0},
		{"with its removal under way: the removal is refused", func(s *scene) apiproxy.Match {
			return s.Removing
		}, false, 1},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := s.in(t)
			stopped := s.coordinator(ctx)
			require.NoError(t, s.MoveLeader(ctx, stopped))
			var caught *apiproxy.Request
			o := s.during(ctx, func(l *harness.Ledger) {
				held := s.env.API.Hold(ctx, c.match(s))
				s.touch(ctx, c.name)
				var err error
				caught, err = held.Reached(ctx)
				require.NoError(t, err)
				require.Equal(t, stopped, caught.Pod)
				if c.early {
					status, err := held.Forward(ctx)
					require.NoError(t, err)
					require.Equal(t, 200, status)
				}
				s.signal(stopped, syscall.SIGSTOP)

				target := s.others(stopped)[0] // the follower that would have gone
				if caught.Removes() {
					require.Equal(t, target, caught.Name)
				}
				sick := s.others(stopped, target)[0]
				fault, err := s.CrashLoop(ctx, sick)
				require.NoError(t, err)
				defer fault.Stop()
				require.NoError(t, l.WaitRemovals(ctx, 1))
				require.Equal(t, []string{sick}, l.Order(), "the successor removes the member that is dead")

				if !c.early {
					status, err := held.Forward(ctx)
					require.NoError(t, err)
					require.Equal(t, 409, status, "what the stopped coordinator had sent is refused")
				}
				// By now its evidence is too old for anything that it has not sent yet.
				s.pass(ctx, coordinator.DefaultMaxEvidenceAge)
				s.signal(stopped, syscall.SIGCONT)
				held.Answer()
				_, err = s.journal.Await(ctx, "that it steps down", func(e harness.LogEntry) bool {
					return e.Pod == stopped && e.At.After(s.changed) &&
						(strings.Contains(e.Message, stepsDown) || strings.Contains(e.Message, dropsAll))
				})
				require.NoError(t, err)
				s.complete(ctx)
			})
			o.lostNothing(t)
			o.keptQuorum(t)
			o.oneAtATime(t)
			o.replacedOnce(t, s.Pods()...)
			var asked []apiproxy.Record
			for _, r := range o.requests {
				if r.UID == caught.UID {
					asked = append(asked, r)
				}
			}
			require.Len(t, asked, c.asks, "what the stopped coordinator asked to be removed: %v", asked)
		})
	}
}
