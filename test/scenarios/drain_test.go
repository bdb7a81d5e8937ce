package scenarios

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/quorate/quorate/test/harness"
	"github.com/quorate/quorate/test/harness/apiproxy"
)

// moment is one of a removal of ours, at which a drain evicts another member.
type moment struct {
	name string
	// hold chooses the request of ours that the drain comes before, or after.
	hold  func(s *scene, r *apiproxy.Request) bool
	after bool
}

var moments = []moment{
	{"before the budget is asked", func(s *scene, r *apiproxy.Request) bool {
		return r.AsksBudget() && s.owns(r)
	}, false},
	{"after the budget was asked", func(s *scene, r *apiproxy.Request) bool {
		return r.AsksBudget() && s.owns(r)
	}, true},
	{"before the removal is put on record", func(s *scene, r *apiproxy.Request) bool {
		return s.WritingIntent(r)
	}, false},
	{"between the record and the removal", func(s *scene, r *apiproxy.Request) bool { return s.Removing(r) }, false},
	{"right after the removal, before its answer", func(s *scene, r *apiproxy.Request) bool {
		return s.Removing(r)
	}, true},
}

// owns is true for requests about pods of this cluster.
func (s *scene) owns(r *apiproxy.Request) bool {
	for _, pod := range s.Pods() {
		if r.Name == pod {
			return true
		}
	}
	return false
}

// A PodDisruptionBudget is the only arbiter between a rollout and a drain, and only an eviction
// is charged to it. So whenever the drain comes, never are two Ready members away by the two of
// us: not while the disruption controller has yet to see what has gone, and not while it is
// down.
func TestARolloutAndADrainNeverTakeTwoMembersTogether(t *testing.T) {
	t.Parallel()
	env := ownEnvironment(t, "drained", harness.Loopback)
	ctx, s := newClusterIn(t, env, harness.Spec{Name: "drained", PlainText: true})
	for _, m := range moments {
		t.Run(m.name, func(t *testing.T) {
			s := s.in(t)
			o := s.during(ctx, func(l *harness.Ledger) { s.drainedAt(ctx, l, m) })
			o.lostNothing(t)
			o.keptQuorum(t)
			o.oneAtATime(t)
		})
	}
	t.Run("at any moment of many rollouts, by a drain that never rests", func(t *testing.T) {
		s := s.in(t)
		o := s.during(ctx, func(l *harness.Ledger) {
			for i := range 2 {
				stop := s.drains(ctx)
				s.touch(ctx, fmt.Sprint("drained-", i))
				require.NoError(t, l.WaitRemovals(ctx, 4*(i+1)))
				stop()
				s.complete(ctx)
			}
		})
		o.lostNothing(t)
		o.keptQuorum(t)
		o.oneAtATime(t)
		t.Logf("%d pods went, %d of them by our evictions", len(o.removals), len(o.granted()))
	})
}

// The other way round: what --removal=delete takes is charged to no budget, and a drain takes a
// second member.
func TestWhoDeletesIsNotAloneWithADrain(t *testing.T) {
	t.Parallel()
	env := ownEnvironment(t, "deleting", harness.Loopback)
	ctx, s := newClusterIn(t, env, harness.Spec{Name: "deleting", PlainText: true,
		SidecarArgs: []string{"--removal=delete"}})
	most := 0
	for _, m := range moments[2:] {
		t.Run(m.name, func(t *testing.T) {
			s := s.in(t)
			o := s.during(ctx, func(l *harness.Ledger) { s.drainedAt(ctx, l, m) })
			o.lostNothing(t)
			for _, r := range o.removals {
				most = max(most, r.OthersAway)
			}
		})
	}
	// Not at each of them: where the machine is slow, our evidence is too old by then.
	require.Equal(t, 1, most, "the drain took a second member at one of these moments")
}

// drainedAt lets a drain evict another member at one moment of a rollout's first removal, while
// the disruption controller is halted. Then it goes on, and the rollout to its end.
func (s *scene) drainedAt(ctx context.Context, l *harness.Ledger, m moment) {
	s.t.Helper()
	require.NoError(s.t, s.WaitBudget(ctx, 1))
	require.NoError(s.t, s.env.HaltDisruption(ctx))
	held := s.env.API.Hold(ctx, func(r *apiproxy.Request) bool { return m.hold(s, r) })
	s.touch(ctx, s.t.Name())
	request, err := held.Reached(ctx)
	require.NoError(s.t, err)
	if m.after {
		_, err = held.Forward(ctx)
		require.NoError(s.t, err)
	}
	for _, pod := range s.Pods() {
		if pod != targetOf(s.t, request) {
			refused, err := s.Evict(ctx, pod)
			require.True(s.t, err == nil || refused, "the drain's eviction of %s: %v", pod, err)
		}
	}
	if m.after {
		held.Answer()
	} else {
		_, err = held.Release(ctx)
		require.NoError(s.t, err)
	}
	require.NoError(s.t, l.WaitRemovals(ctx, 1))
	s.pass(ctx, 2*time.Second) // Whatever is still to be removed, is.
	require.NoError(s.t, s.env.ResumeDisruption(ctx))
	require.NoError(s.t, s.WaitReady(ctx))
	require.NoError(s.t, s.ForgetEvictions(ctx)) // Those of an etcd that ends within a second.
	require.NoError(s.t, s.WaitBudget(ctx, 1))
	s.complete(ctx)
}

// targetOf is the pod that a request of ours is about.
func targetOf(t *testing.T, r *apiproxy.Request) string {
	t.Helper()
	text, isRecord := r.Annotation(harness.IntentAnnotation)
	if !isRecord {
		return r.Name
	}
	var intent harness.Intent
	require.NoError(t, json.Unmarshal([]byte(text), &intent))
	return intent.Pod
}

// drains evicts one pod after another, as kubectl drain does: again and again while the budget
// refuses. The function that it returns ends it.
func (s *scene) drains(ctx context.Context) (stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	var draining sync.WaitGroup
	draining.Go(func() {
		for ctx.Err() == nil {
			pods := s.Pods()
			_, _ = s.Evict(ctx, pods[rand.IntN(len(pods))])
			_ = harness.Pass(ctx, time.Duration(rand.IntN(1500))*time.Millisecond)
		}
	})
	return func() { cancel(); draining.Wait() }
}
