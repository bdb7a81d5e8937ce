package main

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"time"
)

// The terminal sequences that the screen uses; every terminal since the VT100 knows
// all but the last two, which are ignored where they are unknown.
const (
	clearBelow  = "\x1b[J" // from the cursor to the end of the screen
	clearToEnd  = "\x1b[K" // from the cursor to the end of the line
	hideCursor  = "\x1b[?25l"
	showCursor  = "\x1b[?25h"
	noWrap      = "\x1b[?7l" // a frame's lines are never broken, whatever their width
	wrap        = "\x1b[?7h"
	beginUpdate = "\x1b[?2026h" // the terminal shows everything up to endUpdate at once
	endUpdate   = "\x1b[?2026l"
)

// spinEvery is how often the progress is redrawn, so that it is seen to be alive.
const spinEvery = 200 * time.Millisecond

// screen is a display on a terminal: what is said scrolls by, and below it a frame is
// redrawn in place. Each drawing is one write, and lines are overwritten rather than
// erased first, so nothing flickers.
type screen struct {
	w      io.Writer
	size   func() (columns, rows int)
	now    func() time.Time
	colour bool
	start  time.Time
	stop   chan struct{}
	done   sync.WaitGroup

	mu       sync.Mutex
	closed   bool
	progress string
	spin     int
	view     *view
	// drawn holds the widths of the frame's lines as they stand on the terminal.
	drawn []int
}

var _ display = (*screen)(nil)

// newScreen takes over the terminal until Close. Size returns its present size.
func newScreen(w io.Writer, size func() (columns, rows int), now func() time.Time, colour bool) *screen {
	s := &screen{w: w, size: size, now: now, colour: colour, start: now(), stop: make(chan struct{})}
	_, _ = io.WriteString(w, hideCursor)
	s.done.Go(func() {
		ticker := time.NewTicker(spinEvery)
		defer ticker.Stop()
		for {
			select {
			case <-s.stop:
				return
			case <-ticker.C:
				s.mu.Lock()
				if s.progress != "" {
					s.spin++
					s.draw(nil)
				}
				s.mu.Unlock()
			}
		}
	})
	return s
}

func (s *screen) Say(lines ...line) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.draw(lines)
}

func (s *screen) Progress(text string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.progress = text
	s.draw(nil)
}

func (s *screen) Show(v view) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.view, s.progress = &v, ""
	s.draw(nil)
}

// Close removes the progress, leaves the last table where it is, and gives the
// terminal back.
func (s *screen) Close() {
	s.mu.Lock()
	if s.closed {
		s.mu.Unlock()
		return
	}
	s.progress = ""
	s.draw(nil)
	s.closed = true
	_, _ = io.WriteString(s.w, showCursor)
	close(s.stop)
	s.mu.Unlock()
	s.done.Wait()
}

// frame is what stands below everything that was said.
func (s *screen) frame(columns, rows int) []line {
	var lines []line
	if s.view != nil {
		lines = append([]line{nil}, s.view.table(columns)...)
	}
	if s.progress != "" {
		l := line{{`|/-\`[s.spin%4 : s.spin%4+1], cyan}, {fmt.Sprintf(" %s  ", s.progress), normal}, {seconds(s.now().Sub(s.start)), dim}}
		lines = append(lines, l.cut(columns))
	}
	// The cursor stands below the frame, and cannot be moved up beyond the screen.
	return lines[:min(len(lines), max(0, rows-1))]
}

// draw prints the lines above the frame, and the frame anew.
func (s *screen) draw(above []line) {
	if s.closed {
		return
	}
	columns, rows := s.size()
	// The last column stays free: a cursor beyond it would clear what stands there.
	frame := s.frame(columns-1, rows)
	var b strings.Builder
	b.WriteString(beginUpdate)
	if up := rowsOf(s.drawn, columns); up > 0 {
		fmt.Fprintf(&b, "\x1b[%dA", up)
	}
	b.WriteString("\r")
	if len(above) > 0 {
		// They may have words that are longer than a row.
		b.WriteString(clearBelow)
	}
	for _, l := range above {
		for _, part := range l.fold(columns - 1) {
			b.WriteString(part.ansi(s.colour) + "\n")
		}
	}
	b.WriteString(noWrap)
	s.drawn = slices.Grow(s.drawn[:0], len(frame))
	for _, l := range frame {
		b.WriteString(l.ansi(s.colour) + clearToEnd + "\n")
		s.drawn = append(s.drawn, l.width())
	}
	b.WriteString(wrap + clearBelow + endUpdate)
	_, _ = io.WriteString(s.w, b.String()) // Nobody could be told that nobody can be told.
}

// rowsOf is how many rows lines of these widths take: terminals break them anew when
// they become narrower.
func rowsOf(widths []int, columns int) int {
	rows := 0
	for _, w := range widths {
		rows += max(1, (w+columns-1)/max(1, columns))
	}
	return rows
}
