package harness

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
)

// LogEntry is one line of a sidecar's log. The fields from Action to Quorum are those
// of a decision; on other lines they are empty.
type LogEntry struct {
	// At is when the sidecar logged it, by its own clock, which is the machine's.
	At time.Time
	// Pod is the pod whose sidecar logged it.
	Pod string
	// Level is logrus's: "info", "warning", "error".
	Level string
	// Message is the line's text, which is the reason if the line reports a decision. Error is the
	// error that belongs to it, if any.
	Message, Error string

	// Action, Rule and Guard are the decision's stable names (see package rollout).
	Action, Rule, Guard string
	// Target is the pod that the decision is about. It is empty if there is none.
	Target string
	// Serving and Voters are how many members served and voted. Quorum is how many have to serve. They
	// are 0 if etcd was not asked.
	Serving, Voters, Quorum int

	// Subject is the pod that a line is about if it reports no decision ("pod removed"). To is the pod
	// that something is handed over to.
	Subject, To string
	// By is what made a sidecar the coordinator, "lock" or "fallback". Epoch is the number of its
	// claim.
	By    string
	Epoch int64
}

// IsDecision is true for a line that reports a decision.
func (e LogEntry) IsDecision() bool { return e.Action != "" }

// String is the entry in one line, without its time.
func (e LogEntry) String() string {
	text := e.Pod + ": "
	if e.IsDecision() {
		text += e.Action
		if e.Target != "" {
			text += " " + e.Target
		}
		text += ": "
	}
	text += e.Told()
	if e.Error != "" {
		text += ": " + e.Error
	}
	return text
}

// Told is the message, with the pod that it is about if the message does not name it: "pod removed
// (etcd-main-2)".
func (e LogEntry) Told() string {
	switch {
	case e.Subject != "" && !strings.Contains(e.Message, e.Subject):
		return e.Message + " (" + e.Subject + ")"
	case e.To != "" && !strings.Contains(e.Message, e.To):
		return e.Message + " (to " + e.To + ")"
	default:
		return e.Message
	}
}

// Journal collects what the sidecars of a cluster log, including those whose pods are gone.
type Journal struct {
	cancel context.CancelFunc
	done   chan struct{}

	mu sync.Mutex
	// entries are in the order in which they were read.
	entries []LogEntry
	// changed is closed, and replaced, when entries are added.
	changed chan struct{}
}

// sidecarContainer is the name of the container that runs the sidecar.
const sidecarContainer = "backup-restore"

// ReadLogs starts a journal that begins with the first line of every sidecar of the cluster. Every
// entry is also written to the timeline. Stop it in the end.
func (c *Cluster) ReadLogs() *Journal {
	return readLogs(c.sidecarLogs(), func(e LogEntry) { c.env.Timeline.Note("sidecar", "%s", e) })
}

// SidecarLogs are the paths of the logs of all sidecars of the cluster so far, including those whose
// pods are gone.
func (c *Cluster) SidecarLogs() []string {
	var paths []string
	for _, pattern := range c.sidecarLogs() {
		matches, _ := filepath.Glob(pattern) // Only a malformed pattern is an error.
		paths = append(paths, matches...)
	}
	slices.Sort(paths)
	return paths
}

// EtcdLogs are the patterns that the logs of the members match, by pod. Those whose pods are gone are among them.
func (c *Cluster) EtcdLogs() map[string]string {
	logs := map[string]string{}
	for n := range maxReplicas {
		pod := c.Spec.podName(n)
		logs[pod] = filepath.Join(c.env.Nodes.LogDir(pod), "*-etcd-*.log")
	}
	return logs
}

// sidecarLogs are the patterns that the logs of the sidecars match, by pod, and that of the Job that rolls pods
// without sidecars.
func (c *Cluster) sidecarLogs() map[string]string {
	job := c.Spec.Name + "-quorate-bootstrap"
	logs := map[string]string{job: filepath.Join(c.env.Nodes.LogDir(job+"-*"), "*.log")}
	for n := range maxReplicas {
		pod := c.Spec.podName(n)
		logs[pod] = filepath.Join(c.env.Nodes.LogDir(pod), "*-"+c.Spec.sidecar()+"-*.log")
	}
	for _, pod := range c.beside {
		logs[pod] = filepath.Join(c.env.Nodes.LogDir(pod), "*.log")
	}
	return logs
}

// DropLogs removes the logs of pods of the cluster that are gone.
func (c *Cluster) DropLogs(ctx context.Context) error {
	pods, err := c.ListPods(ctx)
	if err != nil {
		return err
	}
	var errs []error
	for n := range maxReplicas {
		paths, _ := filepath.Glob(filepath.Join(c.env.Nodes.LogDir(c.Spec.podName(n)), "*.log"))
		for _, path := range paths {
			if !slices.ContainsFunc(pods, func(p corev1.Pod) bool { return c.env.Nodes.LogOf(&p, path) }) {
				errs = append(errs, os.Remove(path))
			}
		}
	}
	return errors.Join(errs...)
}

// readLogs follows the files that match the patterns, by pod.
func readLogs(patterns map[string]string, note func(LogEntry)) *Journal {
	ctx, cancel := context.WithCancel(context.Background())
	j := &Journal{cancel: cancel, done: make(chan struct{}), changed: make(chan struct{})}
	go func() {
		defer close(j.done)
		tails := map[string]*tail{}
		ticker := time.NewTicker(poll)
		defer ticker.Stop()
		for {
			// This is a last look after the end, so that a stopped journal has everything that was
			// logged before.
			ended := ctx.Err() != nil
			j.look(patterns, tails, note)
			if ended {
				return
			}
			select {
			case <-ctx.Done():
			case <-ticker.C:
			}
		}
	}()
	return j
}

func (j *Journal) look(patterns map[string]string, tails map[string]*tail, note func(LogEntry)) {
	var fresh []LogEntry
	for pod, pattern := range patterns {
		paths, _ := filepath.Glob(pattern) // Only a malformed pattern is an error.
		for _, path := range paths {
			t := tails[path]
			if t == nil {
				t = &tail{path: path}
				tails[path] = t
			}
			for _, line := range t.lines() {
				if e, ok := parseLogLine(pod, line); ok {
					fresh = append(fresh, e)
				}
			}
		}
	}
	if len(fresh) == 0 {
		return
	}
	slices.SortStableFunc(fresh, byTime)
	for _, e := range fresh {
		note(e)
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	j.entries = append(j.entries, fresh...)
	close(j.changed)
	j.changed = make(chan struct{})
}

func byTime(a, b LogEntry) int { return a.At.Compare(b.At) }

// tail reads a file that grows.
type tail struct {
	path   string
	offset int64
}

// lines returns the complete lines that were added since the last call. A file that cannot be read has
// none, and is tried again at the next call.
func (t *tail) lines() [][]byte {
	file, err := os.Open(t.path)
	if err != nil {
		return nil
	}
	defer file.Close()
	size, err := file.Seek(0, 2)
	if err != nil || size <= t.offset {
		return nil
	}
	data := make([]byte, size-t.offset)
	n, _ := file.ReadAt(data, t.offset)
	end := bytes.LastIndexByte(data[:n], '\n') + 1
	t.offset += int64(end)
	var lines [][]byte
	for line := range bytes.Lines(data[:end]) {
		lines = append(lines, bytes.TrimRight(line, "\n"))
	}
	return lines
}

// parseLogLine reads a line of JSON, or of text as etcd-backup-restore writes it, whose own lines are left
// out, and so are those of its etcd client. Any other line (a panic, a race report) becomes an entry with its text, so
// that nothing is overlooked.
func parseLogLine(pod string, line []byte) (LogEntry, bool) {
	if fields := parseText(string(line)); fields != nil {
		return textEntry(pod, fields)
	}
	text := strings.TrimSpace(string(line))
	if text == "" {
		return LogEntry{}, false
	}
	var fields struct {
		Time                    time.Time
		Level, Msg, Error       string
		Action, Rule, Guard     string
		Target                  string
		Serving, Voters, Quorum int
		Subject                 string `json:"pod"`
		To, By                  string
		Epoch                   int64
		Caller                  string // of a line that zap writes
	}
	err := json.Unmarshal(line, &fields)
	if err == nil && fields.Caller != "" {
		return LogEntry{}, false
	}
	if err != nil || fields.Time.IsZero() {
		return LogEntry{At: time.Now(), Pod: pod, Level: "error", Message: text}, true
	}
	return LogEntry{
		At: fields.Time, Pod: pod, Level: fields.Level, Message: fields.Msg, Error: fields.Error,
		Action: fields.Action, Rule: fields.Rule, Guard: fields.Guard, Target: fields.Target,
		Serving: fields.Serving, Voters: fields.Voters, Quorum: fields.Quorum,
		Subject: fields.Subject, To: fields.To, By: fields.By, Epoch: fields.Epoch,
	}, true
}

// parseText reads the fields of logrus's text format: key=value, where a value may be quoted. It is nil for any
// other line.
func parseText(line string) map[string]string {
	if !strings.HasPrefix(line, `time="`) {
		return nil
	}
	fields := map[string]string{}
	for line != "" {
		key, rest, ok := strings.Cut(line, "=")
		if !ok {
			return nil
		}
		value, err := strconv.QuotedPrefix(rest)
		if err != nil {
			value, _, _ = strings.Cut(rest, " ")
		}
		line = strings.TrimPrefix(strings.TrimPrefix(rest, value), " ")
		if text, err := strconv.Unquote(value); err == nil {
			value = text
		}
		fields[key] = value
	}
	return fields
}

// textEntry is the entry of such a line, if the line is Quorate's. Its time has seconds only, so the entry has that of
// being read, which is hardly later.
func textEntry(pod string, fields map[string]string) (LogEntry, bool) {
	number := func(key string) int64 { n, _ := strconv.ParseInt(fields[key], 10, 64); return n }
	return LogEntry{
		At: time.Now(), Pod: pod, Level: fields["level"], Message: fields["msg"], Error: fields["error"],
		Action: fields["action"], Rule: fields["rule"], Guard: fields["guard"], Target: fields["target"],
		Serving: int(number("serving")), Voters: int(number("voters")), Quorum: int(number("quorum")),
		Subject: fields["pod"], To: fields["to"], By: fields["by"], Epoch: number("epoch"),
	}, fields["actor"] == "quorate"
}

// Entries are all entries so far, in the order of their times.
func (j *Journal) Entries() []LogEntry {
	j.mu.Lock()
	entries := slices.Clone(j.entries)
	j.mu.Unlock()
	slices.SortStableFunc(entries, byTime)
	return entries
}

// Decisions are the entries so far that report a decision, in the order of their times.
func (j *Journal) Decisions() []LogEntry {
	return slices.DeleteFunc(j.Entries(), func(e LogEntry) bool { return !e.IsDecision() })
}

// Await waits for an entry that matches, and returns the first. The text says what is awaited. It is
// for the error, which also has the last decision.
func (j *Journal) Await(ctx context.Context, what string, match func(LogEntry) bool) (LogEntry, error) {
	for {
		j.mu.Lock()
		changed := j.changed
		i := slices.IndexFunc(j.entries, match)
		var found LogEntry
		if i >= 0 {
			found = j.entries[i]
		}
		j.mu.Unlock()
		if i >= 0 {
			return found, nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			last := "none"
			if all := j.Decisions(); len(all) > 0 {
				last = all[len(all)-1].String()
			}
			return LogEntry{}, fmt.Errorf("wait until a sidecar logs %s (last decision: %s): %w", what, last,
				context.Cause(ctx))
		}
	}
}

// AwaitComplete waits until a sidecar reports, after the given time, that the rollout
// is complete.
func (j *Journal) AwaitComplete(ctx context.Context, after time.Time) (LogEntry, error) {
	return j.Await(ctx, "that the rollout is complete", func(e LogEntry) bool {
		return e.Action == "Complete" && e.At.After(after)
	})
}

// Stop ends the journal after a last look at the logs.
func (j *Journal) Stop() {
	j.cancel()
	<-j.done
}
