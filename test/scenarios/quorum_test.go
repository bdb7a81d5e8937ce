package scenarios

import (
	"context"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"

	"github.com/quorate/quorate/coordinator"
	"github.com/quorate/quorate/selfupdate"
	"github.com/quorate/quorate/test/harness"
)

// crashing is a cluster of whose members two crash at every start, because of a flag; the cure is the next template
// (DEP-06, scenario 3).
type crashing struct {
	*scene
	good     *corev1.PodTemplateSpec
	dead     []string
	survivor string
}

func newCrashing(t *testing.T, name string) (context.Context, *crashing) {
	t.Helper()
	ctx, s := newCluster(t, harness.Loopback, harness.Spec{Name: name, PlainText: true})
	good, err := s.Template(ctx)
	require.NoError(t, err)
	return ctx, &crashing{scene: s, good: good, dead: s.Pods()[:2], survivor: s.Pods()[2]}
}

// lose makes the two with the lower ordinals crash, and returns how many pods have been removed by then.
func (s *crashing) lose(ctx context.Context, l *harness.Ledger) int {
	s.t.Helper()
	require.NoError(s.t, s.MoveLeader(ctx, s.survivor))
	s.change(ctx, "give etcd a flag that it does not know", withFlag("etcd", unknownFlag))
	require.NoError(s.t, l.WaitRemovals(ctx, 1))
	first := l.Order()[0]
	require.Contains(s.t, s.dead, first, "a follower goes first")
	require.NoError(s.t, s.WaitWaiting(ctx, first, "etcd", "CrashLoopBackOff"))
	second := s.others(s.survivor, first)[0]
	require.NoError(s.t, s.DeletePod(ctx, second))
	require.NoError(s.t, s.WaitWaiting(ctx, second, "etcd", "CrashLoopBackOff"))
	s.withoutQuorum(ctx)
	require.NotContains(s.t, l.Order(), s.survivor, "the last live member stays")
	return len(l.Order())
}

func (s *crashing) cure(template *corev1.PodTemplateSpec) {
	*template = *s.good.DeepCopy()
	touched("cured")(template)
}

// Quorate replaces the dead ones at once and without waiting for each other, and the survivor when quorum is back.
func TestLostQuorumWhoseCureIsTheUpdate(t *testing.T) {
	t.Parallel()
	ctx, s := newCrashing(t, "cured")
	before := 0
	o := s.during(ctx, func(l *harness.Ledger) {
		before = s.lose(ctx, l)
		s.change(ctx, "the cure", s.cure)
		require.NoError(t, l.WaitRemovals(ctx, before+1))
		first := l.Removals()[before]
		took := first.At.Sub(s.changed)
		t.Logf("the first removal, of %s, came %v after the change", first.Pod, took)
		require.LessOrEqual(t, took, 5*time.Second)
		s.complete(ctx)
	})
	o.lostNothing(t)
	after := o.removals[before:]
	require.Len(t, after, 3)
	require.ElementsMatch(t, s.dead, []string{after[0].Pod, after[1].Pod}, "dead ones first")
	require.Equal(t, s.survivor, after[2].Pod)
	require.Equal(t, 2, after[2].OthersReady, "the survivor is not touched before quorum is back")
	// The holder of the record goes on with it. If there is none, it is claimed in the
	// fallback.
	require.False(t, slices.ContainsFunc(s.journal.Entries(), func(e harness.LogEntry) bool {
		return e.Message == coordinatesNow && e.By == "lock" && e.At.After(s.changed) &&
			e.At.Before(after[0].At)
	}), "there was no lock to be had")
}

// RollingUpdate does not recover: it replaces the survivor and waits for ever.
func TestLostQuorumIsForEverWithRollingUpdate(t *testing.T) {
	t.Parallel()
	ctx, s := newCrashing(t, "rolled")
	before := 0
	o := s.during(ctx, func(l *harness.Ledger) {
		before = s.lose(ctx, l)
		require.NoError(t, s.Update(ctx, "the cure, with RollingUpdate", func(set *appsv1.StatefulSet) {
			set.Spec.UpdateStrategy.Type = appsv1.RollingUpdateStatefulSetStrategyType
			s.cure(&set.Spec.Template)
		}))
		require.NoError(t, l.WaitRemovals(ctx, before+1))
		s.pass(ctx, 30*time.Second)
		after := l.Order()[before:]
		t.Logf("RollingUpdate in half a minute: removed %v; no quorum, %v crash on", after, s.dead)
		require.Equal(t, []string{s.survivor}, after, "the only live member, and nobody else")
		s.withoutQuorum(ctx)

		// Quorate still can.
		s.changed = time.Now()
		require.NoError(t, s.SetStrategy(ctx, appsv1.OnDeleteStatefulSetStrategyType))
		s.complete(ctx)
	})
	o.lostNothing(t)
	require.ElementsMatch(t, s.dead, o.order[before+1:], "what was dead; the survivor is up to date")
}

// Quorum is lost a moment before the template changes: shorter than a session lives, so that
// the lock's owner still believes in it.
func TestLostQuorumWhoseCureFollowsAtOnce(t *testing.T) {
	t.Parallel()
	ctx, s := newCluster(t, harness.Loopback,
		harness.Spec{Name: "just-lost", PlainText: true, SidecarArgs: []string{"--lock-ttl=10s"}})
	good, err := s.Template(ctx)
	require.NoError(t, err)
	dead, survivor := s.Pods()[:2], s.Pods()[2]
	before := 0
	o := s.during(ctx, func(l *harness.Ledger) {
		require.NoError(t, s.MoveLeader(ctx, survivor))
		s.change(ctx, "give etcd a flag that it does not know", withFlag("etcd", unknownFlag))
		require.NoError(t, l.WaitRemovals(ctx, 1))
		first := l.Order()[0]
		require.Contains(t, dead, first, "a follower goes first")
		require.NoError(t, s.WaitWaiting(ctx, first, "etcd", "CrashLoopBackOff"))
		second := s.others(survivor, first)[0]
		require.NoError(t, s.DeletePod(ctx, second))
		require.NoError(t, s.WaitWaiting(ctx, second, "etcd", "CrashLoopBackOff"))
		before = len(l.Order())
		s.change(ctx, "the cure", func(template *corev1.PodTemplateSpec) {
			*template = *good.DeepCopy()
			touched("cured")(template)
		})
		require.NoError(t, l.WaitRemovals(ctx, before+1))
		took := l.Removals()[before].At.Sub(s.changed)
		t.Logf("the first removal, of %s, came %v after the change", l.Removals()[before].Pod, took)
		require.LessOrEqual(t, took, coordinator.DefaultFallbackAfter+2*coordinator.DefaultProbeTimeout+time.Second)
		s.complete(ctx)
	})
	o.lostNothing(t)
	after := o.order[before:]
	require.ElementsMatch(t, dead, after[:2], "dead ones first")
	require.Equal(t, survivor, after[len(after)-1])
}

// The lock's owner is gone together with its member: a sidecar that waited in the queue begins, as
// soon as any, and goes on when quorum is back, without waiting for the dead one's lock.
func TestLostQuorumTogetherWithWhoHadTheLock(t *testing.T) {
	t.Parallel()
	spec := harness.Spec{Name: "orphaned", PlainText: true, SidecarArgs: []string{"--lock-ttl=10s"}}
	ctx, s := newCluster(t, harness.Loopback, spec)
	owner := s.coordinator(ctx)
	others := s.others(owner)
	survivor, second := others[0], others[1]
	byLock := func(e harness.LogEntry) bool { return e.Message == coordinatesNow && e.By == "lock" }
	o := s.during(ctx, func(l *harness.Ledger) {
		require.NoError(t, s.MoveLeader(ctx, survivor))
		s.signal(owner, syscall.SIGSTOP)
		for _, pod := range []string{owner, second} {
			fault, err := s.CrashLoop(ctx, pod)
			require.NoError(t, err)
			defer fault.Stop()
		}
		for _, pod := range []string{owner, second} {
			require.NoError(t, s.WaitWaiting(ctx, pod, "etcd", "CrashLoopBackOff"))
		}
		s.withoutQuorum(ctx)
		s.touch(ctx, "cure")
		require.NoError(t, l.WaitRemovals(ctx, 1))
		s.signal(owner, syscall.SIGCONT) // So that its pod ends in time.
		first := l.Removals()[0]
		took := first.At.Sub(s.changed)
		t.Logf("the first removal, of %s, came %v after the change", first.Pod, took)
		// The lost members refuse connections, and the record is free. A second more is for a busy machine.
		require.LessOrEqual(t, took, coordinator.DefaultFallbackAfter+2*time.Second)
		fallback := s.says(ctx, "who is the fallback", func(e harness.LogEntry) bool {
			return e.Message == coordinatesNow
		})
		require.Equal(t, "fallback", fallback.By)
		require.NotEqual(t, owner, fallback.Pod)
		s.complete(ctx)

		// What is due when quorum is back does not wait for the lock.
		removals := l.Removals()
		last := removals[len(removals)-1]
		var back time.Time
		for _, r := range l.Returns() {
			if r.At.Before(last.At) && r.At.After(back) {
				back = r.At
			}
		}
		t.Logf("the last removal, of %s, came %v after the last pod before it was back", last.Pod, last.At.Sub(back))
		require.Equal(t, survivor, last.Pod)
		require.Less(t, last.At.Sub(back), selfupdate.LineUp+3*time.Second)
		for _, e := range s.journal.Entries() {
			if byLock(e) && e.At.After(s.changed) {
				t.Logf("%s coordinates by the lock %v after that pod was back", e.Pod, e.At.Sub(back))
			}
		}
	})
	o.lostNothing(t)
	require.Len(t, o.order, 3)
	require.ElementsMatch(t, []string{owner, second}, o.order[:2], "dead ones first")
}

// withoutQuorum waits until no member answers a linearizable read.
func (s *scene) withoutQuorum(ctx context.Context) {
	s.t.Helper()
	require.Eventually(s.t, func() bool {
		ctx, cancel := context.WithTimeout(ctx, time.Second)
		defer cancel()
		_, err := s.LockQueue(ctx)
		return err != nil
	}, time.Minute, 100*time.Millisecond)
}

func TestTheLockCannotBeHadOrIsHeldByNobody(t *testing.T) {
	t.Parallel()
	const quota = "--quota-backend-bytes="
	ctx, s := newCluster(t, harness.Loopback,
		harness.Spec{Name: "locked", PlainText: true, EtcdArgs: []string{quota + "16777216"}})

	t.Run("what came back from a backup, with a lease and without, blocks nobody and goes", func(t *testing.T) {
		s := s.in(t)
		require.NoError(t, s.PutStaleLocks(ctx, 24*time.Hour+lockTTL))
		s.coordinator(ctx)
		for _, pod := range s.Pods() {
			s.signal(pod, syscall.SIGKILL)
		}
		o := s.during(ctx, func(*harness.Ledger) {
			s.touch(ctx, "stale-lock")
			s.complete(ctx)
		})
		o.lostNothing(t)
		o.keptQuorum(t)
		o.oneAtATime(t)
		o.replacedOnce(t, s.Pods()...)
		queue, err := s.LockQueue(ctx)
		require.NoError(t, err)
		require.ElementsMatch(t, s.Pods(), queue)
		present, err := s.Present(ctx)
		require.NoError(t, err)
		require.ElementsMatch(t, s.Pods(), present)
	})
	t.Run("no space: the change that raises the quota proceeds without a lock", func(t *testing.T) {
		s := s.in(t)
		o := s.during(ctx, func(*harness.Ledger) {
			require.NoError(t, s.Fill(ctx))
			// A lease that is there can be kept alive; a new one cannot be had.
			for _, pod := range s.Pods() {
				s.signal(pod, syscall.SIGKILL)
			}
			s.pass(ctx, lockTTL)
			s.change(ctx, "raise the quota", func(template *corev1.PodTemplateSpec) {
				etcd := container(template, "etcd")
				etcd.Args = slices.DeleteFunc(etcd.Args, func(arg string) bool { return strings.HasPrefix(arg, quota) })
			})
			s.complete(ctx)
			require.NoError(t, s.DisarmAlarms(ctx))
			s.coordinator(ctx)
		})
		o.lostNothing(t)
		o.keptQuorum(t)
		o.oneAtATime(t)
		require.ElementsMatch(t, s.Pods(), o.order)
		for _, e := range s.journal.Entries() {
			if e.Message == coordinatesNow && e.At.After(s.changed) {
				require.Equal(t, "fallback", e.By, "%s", e)
			}
		}
	})
}
