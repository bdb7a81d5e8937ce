package scenarios

import (
	"bufio"
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/quorate/quorate/internal/report"
	"github.com/quorate/quorate/test/harness"
)

// done returns what was done to databases since a moment, oldest first.
func (s *scene) done(ctx context.Context, since time.Time) []report.Entry {
	s.t.Helper()
	text, code := s.quorate(ctx, "history", s.Spec.Name, "-o", "json")
	require.Zero(s.t, code, "%s", text)
	var all struct{ Items report.History }
	require.NoError(s.t, json.Unmarshal([]byte(text), &all))
	return slices.DeleteFunc(all.Items, func(e report.Entry) bool {
		return e.At.Before(since) || !slices.Contains([]string{report.Defragmented, report.Disarmed,
			report.LeaderMoved},
			e.What)
	})
}

// oneByOne: every member was defragmented once, the leader at last and after it had handed over.
func (s *scene) oneByOne(done []report.Entry, leader string) {
	s.t.Helper()
	var pods []string
	moved := -1
	for i, e := range done {
		s.t.Logf("%s %s %s: %s", e.At.Format(time.TimeOnly), e.What, e.Pod, e.Reason)
		switch e.What {
		case report.Defragmented:
			pods = append(pods, e.Pod)
		case report.LeaderMoved:
			moved = i
		}
	}
	require.ElementsMatch(s.t, s.Pods(), pods, "each member once")
	require.Equal(s.t, leader, pods[len(pods)-1], "the leader at last")
	require.Equal(s.t, len(pods)-1, moved, "it hands over when all others are done")
}

// logged: etcd's own logs say as well that every member was defragmented once since a moment, and none while it led.
func (s *scene) logged(since time.Time) {
	s.t.Helper()
	type event struct {
		TS  time.Time
		Msg string
		pod string
	}
	var events []event
	for _, pod := range s.Pods() {
		files, err := filepath.Glob(filepath.Join(s.env.Nodes.LogDir(pod), "*-etcd-*.log"))
		require.NoError(s.t, err)
		for _, file := range files {
			f, err := os.Open(file)
			require.NoError(s.t, err)
			lines := bufio.NewScanner(f)
			lines.Buffer(nil, 1<<20)
			for lines.Scan() {
				e := event{pod: pod}
				// The last line may be half written. It is of no interest: the answer came before it.
				if json.Unmarshal(lines.Bytes(), &e) == nil {
					events = append(events, e)
				}
			}
			require.NoError(s.t, lines.Err())
			_ = f.Close()
		}
	}
	slices.SortStableFunc(events, func(a, b event) int { return a.TS.Compare(b.TS) })
	leader := ""
	var pods []string
	for _, e := range events {
		switch {
		case strings.Contains(e.Msg, " became leader at term "):
			leader = e.pod
		case e.TS.Before(since):
		case e.Msg == "defragmenting":
			require.NotEqual(s.t, leader, e.pod, "%s was defragmented while it led", e.pod)
		case e.Msg == "finished defragmenting directory":
			pods = append(pods, e.pod)
		}
	}
	require.ElementsMatch(s.t, s.Pods(), pods, "each member is defragmented once, say etcd's logs")
}

func TestDefragmentation(t *testing.T) { defragmentation(t, "loose", harness.Etcd35) }

func TestDefragmentationOfEtcd36(t *testing.T) {
	if !*everything {
		t.Skip("with -everything")
	}
	defragmentation(t, "loose-36", harness.Etcd36)
}

func defragmentation(t *testing.T, name, image string) {
	t.Parallel()
	ctx, s := newCluster(t, harness.Loopback, harness.Spec{Name: name, PlainText: true, EtcdImage: image,
		EtcdArgs: []string{"--quota-backend-bytes=16777216"}})

	t.Run("a cluster without space and without any lease is defragmented and disarmed, and takes writes again",
		func(t *testing.T) {
			s := s.in(t)
			leader, err := s.Leader(ctx)
			require.NoError(t, err)
			began := time.Now().Truncate(time.Millisecond)
			o := s.during(ctx, func(*harness.Ledger) {
				require.NoError(t, s.Fill(ctx))
				// A lease that is there can be kept alive; a new one cannot be had.
				for _, pod := range s.Pods() {
					s.signal(pod, syscall.SIGKILL)
				}
				s.pass(ctx, lockTTL)
				require.NoError(t, s.Waste(ctx, 0))
				s.coordinator(ctx) // There are leases again.
			})
			o.lostNothing(t)
			o.keptQuorum(t)
			require.Empty(t, o.order, "no pod is removed for it")
			done := s.done(ctx, began)
			alarms := slices.DeleteFunc(slices.Clone(done),
				func(e report.Entry) bool { return e.What != report.Disarmed })
			require.NotEmpty(t, alarms)
			require.Equal(t, report.Disarmed, done[len(done)-1].What, "the alarm ends at last")
			s.oneByOne(slices.DeleteFunc(done, func(e report.Entry) bool { return e.What == report.Disarmed }), leader)
		})
	t.Run("on request, while clients write", func(t *testing.T) {
		s := s.in(t)
		leader, err := s.Leader(ctx)
		require.NoError(t, err)
		began := time.Now().Truncate(time.Millisecond)
		o := s.during(ctx, func(*harness.Ledger) {
			require.NoError(t, s.Waste(ctx, 8))
			said, code := s.quorate(ctx, "defragment", s.Spec.Name, "--yes", "--timeout=3m")
			t.Log(said)
			require.Zero(t, code)
		})
		o.lostNothing(t)
		o.keptQuorum(t)
		require.Equal(t, 1, o.Cluster.LeaderChanges)
		require.Empty(t, o.order)
		s.oneByOne(s.done(ctx, began), leader)
		s.logged(began)
	})
}
