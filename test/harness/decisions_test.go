package harness

import (
	"context"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

const (
	decisionLine = `{"action":"Remove","actor":"quorate","level":"info","msg":"its member serves","quorum":2,` +
		`"rule":"Serving","serving":3,"statefulset":"default/etcd-main","target":"etcd-main-2",` +
		`"time":"2026-01-02T03:04:06.5Z","voters":3}` + "\n"
	completeLine = `{"action":"Complete","actor":"quorate","level":"info",` +
		`"msg":"3 of 3 pods are up to date and settled","rule":"Complete","time":"2026-01-02T03:04:09Z"}` + "\n"
	warningLine = `{"actor":"quorate","error":"no route","level":"warning","msg":"this cycle failed; retrying",` +
		`"time":"2026-01-02T03:04:05Z"}` + "\n"
)

func TestALogLineIsRead(t *testing.T) {
	t.Run("a decision has its names, target and numbers", func(t *testing.T) {
		e, ok := parseLogLine("etcd-main-1", []byte(decisionLine))
		require.True(t, ok)
		require.Equal(t, LogEntry{
			At: time.Date(2026, 1, 2, 3, 4, 6, 500_000_000, time.UTC), Pod: "etcd-main-1", Level: "info",
			Message: "its member serves",
			Action:  "Remove", Rule: "Serving", Target: "etcd-main-2", Serving: 3, Voters: 3, Quorum: 2,
		}, e)
		require.True(t, e.IsDecision())
		require.Equal(t, "etcd-main-1: Remove etcd-main-2: its member serves", e.String())
	})
	t.Run("a warning carries its error and is no decision", func(t *testing.T) {
		e, ok := parseLogLine("etcd-main-1", []byte(warningLine))
		require.True(t, ok)
		require.False(t, e.IsDecision())
		require.Equal(t, "etcd-main-1: this cycle failed; retrying: no route", e.String())
	})
	t.Run("a panic is not overlooked", func(t *testing.T) {
		e, ok := parseLogLine("etcd-main-1", []byte("panic: index out of range"))
		require.True(t, ok)
		require.Equal(t, "error", e.Level)
		require.Equal(t, "panic: index out of range", e.Message)
	})
	t.Run("who coordinates, and to whom it hands over", func(t *testing.T) {
		e, ok := parseLogLine("etcd-main-1",
			[]byte(`{"level":"info","msg":"this sidecar coordinates now","by":"fallback","epoch":7,`+
				`"time":"2026-01-02T03:04:05Z"}`))
		require.True(t, ok)
		require.False(t, e.IsDecision())
		require.Equal(t, "fallback", e.By)
		require.EqualValues(t, 7, e.Epoch)
		e, ok = parseLogLine("etcd-main-1",
			[]byte(`{"level":"info","msg":"handing over to the updated code","to":"etcd-main-2","pod":"x",`+
				`"time":"2026-01-02T03:04:05Z"}`))
		require.True(t, ok)
		require.Equal(t, "etcd-main-2", e.To)
		require.Equal(t, "x", e.Subject)
		require.Equal(t, "etcd-main-1", e.Pod)
	})
	t.Run("the pod that it is about is told once", func(t *testing.T) {
		for _, c := range []struct{ line, want string }{
			{`"msg":"pod removed","pod":"etcd-main-2"`,
				"pod removed (etcd-main-2)"},
			{`"msg":"the removal was refused","pod":"etcd-main-2","error":"gone"`,
				"the removal was refused (etcd-main-2): gone"},
			{`"msg":"leadership moved","from":"etcd-main-0","to":"etcd-main-2"`,
				"leadership moved (to etcd-main-2)"},
			{`"msg":"handing over: etcd-main-2 runs the updated code","to":"etcd-main-2"`,
				"handing over: etcd-main-2 runs the updated code"},
		} {
			e, ok := parseLogLine("etcd-main-1", []byte(`{"level":"info","time":"2026-01-02T03:04:05Z",`+c.line+`}`))
			require.True(t, ok)
			require.Equal(t, "etcd-main-1: "+c.want, e.String())
		}
	})
	t.Run("a line of etcd-backup-restore's is read if it is Quorate's", func(t *testing.T) {
		e, ok := parseLogLine("etcd-main-1", []byte(`time="2026-01-02T03:04:05Z" level=info msg="a \"quoted\" word" `+
			`action=Remove actor=quorate quorum=2 rule=Serving serving=3 target=etcd-main-2 voters=3`))
		require.True(t, ok)
		require.WithinDuration(t, time.Now(), e.At, time.Minute)
		e.At = time.Time{}
		require.Equal(t, LogEntry{
			Pod: "etcd-main-1", Level: "info", Message: `a "quoted" word`, Action: "Remove", Rule: "Serving",
			Target: "etcd-main-2", Serving: 3, Voters: 3, Quorum: 2,
		}, e)
		_, ok = parseLogLine("etcd-main-1",
			[]byte(`time="2026-01-02T03:04:05Z" level=info msg="Taking full snapshot" actor=snapshotter`))
		require.False(t, ok)
	})
	t.Run("an empty line is nothing", func(t *testing.T) {
		_, ok := parseLogLine("etcd-main-1", []byte("  "))
		require.False(t, ok)
	})
}

func TestAJournal(t *testing.T) {
	start := func(t *testing.T) (dir string, j *Journal, noted *[]LogEntry) {
		dir, noted = t.TempDir(), new([]LogEntry)
		j = readLogs(map[string]string{"a-0": filepath.Join(dir, "a-0-*.log"), "a-1": filepath.Join(dir, "a-1-*.log")},
			func(e LogEntry) { *noted = append(*noted, e) })
		t.Cleanup(j.Stop)
		return dir, j, noted
	}
	add := func(t *testing.T, dir, name, text string) {
		f, err := os.OpenFile(filepath.Join(dir, name), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
		require.NoError(t, err)
		_, err = f.WriteString(text)
		require.NoError(t, err)
		require.NoError(t, f.Close())
	}
	after := func(second int) time.Time { return time.Date(2026, 1, 2, 3, 4, second, 0, time.UTC) }

	t.Run("returns entries of all sidecars in the order of their times", func(t *testing.T) {
		dir, j, noted := start(t)
		add(t, dir, "a-1-x.log", completeLine)
		add(t, dir, "a-0-x.log", decisionLine)
		j.Stop()
		entries := j.Entries()
		require.Len(t, entries, 2)
		require.Equal(t, "Remove", entries[0].Action)
		require.Equal(t, "Complete", entries[1].Action)
		require.Len(t, *noted, 2, "every entry is noted once")
	})
	t.Run("takes a line when it is complete, once", func(t *testing.T) {
		dir, j, _ := start(t)
		half := len(completeLine) / 2
		add(t, dir, "a-0-x.log", decisionLine+completeLine[:half])
		_, err := j.Await(t.Context(), "a removal", func(e LogEntry) bool { return e.Action == "Remove" })
		require.NoError(t, err)
		add(t, dir, "a-0-x.log", completeLine[half:])
		_, err = j.AwaitComplete(t.Context(), after(0))
		require.NoError(t, err)
		require.Len(t, j.Decisions(), 2)
	})
	t.Run("follows the logs of a pod's successor too", func(t *testing.T) {
		dir, j, _ := start(t)
		add(t, dir, "a-0-x.log", decisionLine)
		_, err := j.Await(t.Context(), "a removal", func(e LogEntry) bool { return e.Action == "Remove" })
		require.NoError(t, err)
		add(t, dir, "a-0-y.log", completeLine)
		_, err = j.AwaitComplete(t.Context(), after(0))
		require.NoError(t, err)
	})
	t.Run("does not take an earlier completion for the awaited one", func(t *testing.T) {
		dir, j, _ := start(t)
		add(t, dir, "a-0-x.log", completeLine)
		_, err := j.Await(t.Context(), "a completion", func(e LogEntry) bool { return e.Action == "Complete" })
		require.NoError(t, err)
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		_, err = j.AwaitComplete(ctx, after(9))
		require.ErrorIs(t, err, context.Canceled)
		require.ErrorContains(t, err, "last decision: a-0: Complete")
	})
}
