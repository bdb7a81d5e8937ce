package harness

import (
	"errors"
	"fmt"
	"os"
	"sync"
	"time"
)

// Timeline is what happened, in order, as told by all parts. Every line is in its file at
// once: the file is what a program that hangs or is killed is to be understood by. The zero
// value keeps nothing.
type Timeline struct {
	start time.Time

	mu   sync.Mutex
	file *os.File // nil when nothing is kept any more
	// failed is why a line is missing.
	failed error
	// told gets the events; it is nil if there is no follower.
	told func(who, what, line string)
}

// startTimeline starts a timeline now. Close it in the end.
func startTimeline(path string) (*Timeline, error) {
	file, err := os.Create(path)
	if err != nil {
		return nil, fmt.Errorf("start the timeline: %w", err)
	}
	return &Timeline{start: time.Now(), file: file}, nil
}

// Note adds a line.
func (t *Timeline) Note(who, format string, args ...any) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.file == nil {
		return
	}
	what := fmt.Sprintf(format, args...)
	// The time is taken under the lock, so that the lines are in its order.
	line := fmt.Sprintf("%8.3fs  %-9s %s", time.Since(t.start).Seconds(), who, what)
	if _, err := t.file.WriteString(line + "\n"); err != nil && t.failed == nil {
		t.failed = fmt.Errorf("write the timeline: %w", err)
	}
	if t.told != nil {
		t.told(who, what, line)
	}
}

// Follow hands on every line from here on, as it is in the file, and who notes what in it. What
// is called must not note anything itself.
func (t *Timeline) Follow(told func(who, what, line string)) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.told = told
}

// close ends the timeline: what is noted later is lost. It returns why anything is missing.
// Closing again does nothing.
func (t *Timeline) close() error {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.file == nil {
		return nil
	}
	err := errors.Join(t.failed, t.file.Close())
	t.file = nil
	return err
}
