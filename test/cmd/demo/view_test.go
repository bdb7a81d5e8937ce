package main

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/quorate/quorate/test/harness"
	"github.com/quorate/quorate/test/harness/traffic"
)

func sample() view {
	return view{
		pods: []podView{
			{name: "etcd-main-0", role: leaderRole, revision: "6b8f9c5d", age: oldRevision, version: "3.5.35", serving: true, ready: true, what: "outdated; waits for its turn"},
			{name: "etcd-main-1", role: followerRole, revision: "6b8f9c5d", age: oldRevision, version: "3.5.35", serving: true, ready: true, what: "outdated; waits for its turn"},
			{name: "etcd-main-2", what: "gone; the StatefulSet controller creates it anew"},
		},
		serving: 2, quorum: 2, elapsed: 12 * time.Second, stall: 250 * time.Millisecond, writes: 1234,
		decision: "etcd-main-1: Wait (UpdatedSettle, Terminating): waiting for etcd-main-2: its pod is missing",
	}
}

func rendered(lines []line) string {
	var b strings.Builder
	for _, l := range lines {
		b.WriteString(l.String() + "\n")
	}
	return b.String()
}

func TestTheTable(t *testing.T) {
	t.Run("has a row for each pod, and the figures below", func(t *testing.T) {
		require.Equal(t, `MEMBER       ROLE      REVISION      ETCD    SERVES  READY  WHAT IS HAPPENING AND WHY
etcd-main-0  leader    6b8f9c5d old  3.5.35  yes     yes    outdated; waits for its turn
etcd-main-1  follower  6b8f9c5d old  3.5.35  yes     yes    outdated; waits for its turn
etcd-main-2  -         -             -       no      no     gone; the StatefulSet controller creates it anew
rollout 12.0s | 2 of 3 serve, quorum 2 | longest write pause 0.25s | 1234 writes
last decision: etcd-main-1: Wait (UpdatedSettle, Terminating): waiting for etcd-main-2: its pod is missing
`, rendered(sample().table(120)))
	})
	t.Run("puts the last column on lines of their own in a narrow terminal", func(t *testing.T) {
		text := rendered(sample().table(80))
		require.Contains(t, text, "etcd-main-2  -         -             -       no      no\n  gone; the StatefulSet controller creates it anew\n")
	})
	t.Run("never exceeds the terminal, however narrow", func(t *testing.T) {
		for width := range 130 {
			for _, l := range sample().table(width) {
				require.LessOrEqual(t, l.width(), width, l.String())
			}
		}
	})
	t.Run("says so when quorum is lost", func(t *testing.T) {
		v := sample()
		v.serving = 1
		require.Contains(t, rendered(v.table(120)), "1 of 3 serve, quorum 2: NO QUORUM")
	})
}

func TestAPodIsExplained(t *testing.T) {
	ready := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "e-1"},
		Status: corev1.PodStatus{
			Conditions:        []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionTrue}},
			ContainerStatuses: []corev1.ContainerStatus{{Name: "etcd", State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{}}}},
		},
	}
	terminating := ready.DeepCopy()
	terminating.DeletionTimestamp = &metav1.Time{Time: time.Unix(0, 0)}
	fresh := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "e-1"}}
	crashing := fresh.DeepCopy()
	crashing.Status.ContainerStatuses = []corev1.ContainerStatus{{
		Name: "etcd", RestartCount: 3, State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "CrashLoopBackOff"}},
	}}
	remove := &harness.LogEntry{Action: "Remove", Target: "e-1", Message: "its member serves; 2 of 3 voters remain"}
	handOver := &harness.LogEntry{Action: "MoveLeader", Target: "e-1", Message: "e-1 leads and is next"}

	for _, c := range []struct {
		name string
		at   situation
		want string
	}{
		{"a pod that is missing", situation{}, "gone; the StatefulSet controller creates it anew"},
		{"a pod that Quorate removed", situation{pod: terminating, removal: remove}, "removed by Quorate: its member serves; 2 of 3 voters remain"},
		{"a pod that Kubernetes removed", situation{pod: terminating, strategy: rollingUpdate}, "removed by Kubernetes: the highest ordinal that is not updated goes next"},
		{"a pod that has just been created", situation{pod: fresh, age: newRevision}, "updated; etcd is not started yet"},
		{"an updated pod that is done", situation{pod: ready, age: newRevision, serving: true}, "updated"},
		{"an updated pod whose member does not serve", situation{pod: ready, age: newRevision}, "updated, but its member does not serve"},
		{"a pod that waits", situation{pod: ready, age: oldRevision, serving: true, strategy: onDelete}, "outdated; waits for its turn"},
		{"a leader that hands over", situation{pod: ready, age: oldRevision, serving: true, latest: handOver}, "MoveLeader: e-1 leads and is next"},
		{"a pod that is sick on purpose", situation{pod: crashing, age: oldRevision, fault: "crashes"}, "etcd CrashLoopBackOff (restarts: 3): crashes"},
		{"a pod of a cluster at peace", situation{pod: ready, serving: true}, ""},
	} {
		t.Run(c.name, func(t *testing.T) { require.Equal(t, c.want, c.at.explain()) })
	}
}

func TestRolesAreTheMembersOwnWords(t *testing.T) {
	s := traffic.Sample{Leader: 7, Probes: []traffic.Probe{{Answered: true, MemberID: 7, Endpoint: "a"}, {Answered: true, MemberID: 8}, {MemberID: 9}, {Answered: true, Learner: true}}}
	require.Equal(t, []string{leaderRole, followerRole, "", learnerRole},
		[]string{roleOf(s.Probes[0], s), roleOf(s.Probes[1], s), roleOf(s.Probes[2], s), roleOf(s.Probes[3], s)})
	require.Equal(t, "a", leaderOf(s).Endpoint)
	require.Nil(t, leaderOf(traffic.Sample{Probes: s.Probes}), "nobody leads")
}
