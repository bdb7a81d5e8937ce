package main

import (
	"fmt"
	"io"
	"strings"
	"sync"
	"time"
)

// progressEvery is how often plain output repeats a progress in which only the number
// at its end changed, so that a long build says that it is alive and does not fill a log.
const progressEvery = 15 * time.Second

// plainDisplay prints a line whenever something changes, for logs and pipes.
type plainDisplay struct {
	w     io.Writer
	now   func() time.Time
	start time.Time

	mu       sync.Mutex
	progress string
	told     time.Time
	rows     map[string]string
}

var _ display = (*plainDisplay)(nil)

func newPlain(w io.Writer, now func() time.Time) *plainDisplay {
	return &plainDisplay{w: w, now: now, start: now(), rows: map[string]string{}}
}

func (d *plainDisplay) Say(lines ...line) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.print(lines...)
}

func (d *plainDisplay) print(lines ...line) {
	var b strings.Builder
	for _, l := range lines {
		b.WriteString(l.String() + "\n")
	}
	_, _ = io.WriteString(d.w, b.String()) // Nobody could be told that nobody can be told.
}

func (d *plainDisplay) Progress(text string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	now := d.now()
	words := withoutNumber(text)
	if words == d.progress && now.Sub(d.told) < progressEvery {
		return
	}
	d.progress, d.told = words, now
	d.print(event(now.Sub(d.start), "demo", normal, text))
}

func withoutNumber(s string) string { return strings.TrimRight(s, "0123456789") }

// Show prints the rows that changed.
func (d *plainDisplay) Show(v view) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, p := range v.pods {
		row := p.plain()
		if d.rows[p.name] == row {
			continue
		}
		d.rows[p.name] = row
		d.print(line{{text: fmt.Sprintf("%s%s", pad(seconds(v.at), 8), row)}})
	}
}

func (d *plainDisplay) Close() {}
