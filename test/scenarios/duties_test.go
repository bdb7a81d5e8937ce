package scenarios

import (
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/quorate/quorate/internal/report"
	"github.com/quorate/quorate/test/harness"
)

// A cordoned node under the leader, a new template, two ghosts whose removal is asked for, and databases that the
// policy wants to be defragmented: all of it is due at the moment at which the operator lifts the pause. One thing
// comes after the other.
func TestAllDutiesDueAtOnce(t *testing.T) {
	leftOut(t)
	t.Parallel()
	ctx, s := newCluster(t, harness.Loopback, harness.Spec{Name: "duties", Replicas: 7, PlainText: true, OwnNodes: true,
		EtcdImage: harness.Etcd35, Components: []string{"nodes"}, SidecarArgs: []string{"--read-nodes",
			"--leaving-patience=4s", "--ghost-after=4s", "--defragment-when=20%,1MiB,80%",
			"--defragment-window=00:00-24:00"}})
	away := s.Pods()[5:]
	if slices.Contains(away, s.leader(ctx)) {
		require.NoError(t, s.MoveLeader(ctx, s.Pods()[0]))
	}
	record, err := s.WatchRecord(ctx)
	require.NoError(t, err)
	defer record.Stop()
	var due time.Time
	var leader string
	o := s.during(ctx, func(l *harness.Ledger) {
		require.NoError(t, s.Annotate(ctx, harness.PausedAnnotation, "true"))
		require.NoError(t, s.Waste(ctx, 4))
		s.changed = time.Now()
		require.NoError(t, s.Scale(ctx, 5, nil))
		for _, ghost := range away {
			require.Eventually(t, func() bool {
				return strings.Contains(s.statusNow(ctx),
					"'quorate remove-member -n "+harness.Namespace+" "+s.Spec.Name+" "+ghost+"'")
			}, 30*time.Second, time.Second, "the status names it")
		}
		leader = s.leader(ctx)
		require.NoError(t, s.Cordon(ctx, s.nodeOf(ctx, leader)))
		require.ElementsMatch(t, away, l.Order(), "who is paused takes nobody")
		due = time.Now()
		require.NoError(t, s.Annotate(ctx, harness.PausedAnnotation, ""))
		said, code := s.quorate(ctx, "remove-member", s.Spec.Name, "--all-ghosts")
		t.Logf("after %v:\n%s", time.Since(due), said)
		require.Zero(t, code)
		require.Eventually(t, func() bool { return len(s.defragmented(ctx, due)) == len(s.Pods()) }, 90*time.Second,
			time.Second, "every member is defragmented")
		t.Logf("all of it took %v", time.Since(due))
	})
	o.lostNothing(t)
	o.keptQuorum(t)
	require.Len(t, o.granted(), len(s.Pods()), "what Quorate removed")
	require.ElementsMatch(t, append(s.Pods(), away...), o.order, "each pod goes once")
	require.Equal(t, leader, o.order[len(o.order)-1], "the pod on the cordoned node goes last")

	var order, expelled, rewritten []string
	for _, i := range record.Operations(due) {
		t.Logf("%s %s%s", i.Operation, i.Pod, i.Member.Name)
		order = append(order, i.Operation)
		switch i.Operation {
		case "remove-member":
			expelled = append(expelled, i.Member.Name)
		case "defragment":
			rewritten = append(rewritten, i.Member.Name)
		}
	}
	require.Equal(t, []string{"evict", "remove-member", "defragment"}, slices.Compact(order), "one after the other")
	require.ElementsMatch(t, away, expelled)
	require.ElementsMatch(t, s.Pods(), rewritten, "each member once")
	removes := func(s harness.RecordState) bool { return s.Intent != nil }
	first, err := record.Await(ctx, "the first removal", due, removes)
	require.NoError(t, err)
	moved, err := s.journal.Await(ctx, "that leadership made way", madeWay(due))
	require.NoError(t, err)
	require.True(t, moved.At.Before(first.At), "leadership makes way before anybody goes")
}

// defragmented are the defragmentations since a moment.
func (s *scene) defragmented(ctx context.Context, since time.Time) []report.Entry {
	s.t.Helper()
	return slices.DeleteFunc(s.done(ctx, since), func(e report.Entry) bool { return e.What != report.Defragmented })
}
