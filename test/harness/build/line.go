package build

import (
	"fmt"
	"io"
	"os"
	"strings"
	"sync"
	"time"

	"golang.org/x/term"
)

// drawEvery is how often a line is drawn again, so that its seconds go on.
const drawEvery = time.Second

// clearLine moves to the beginning of the terminal's line and empties it.
const clearLine = "\r\x1b[K"

// Width is how many columns the terminal has that a file is. It is nil if the file is none, or if nothing on it can be
// written anew.
func Width(file *os.File) func() int {
	if !term.IsTerminal(int(file.Fd())) || os.Getenv("TERM") == "dumb" {
		return nil
	}
	return func() int {
		if width, _, err := term.GetSize(int(file.Fd())); err == nil && width > 0 {
			return width
		}
		return 80
	}
}

// Line keeps one line that changes below everything else that is written through it to a terminal.
type Line struct {
	w     io.Writer
	width func() int

	mu sync.Mutex
	// text is what the line says now, nil as long as there is no line.
	text func() string
}

// NewLine writes to a terminal of that width. Without one, which is a nil width, nothing changes on it.
func NewLine(w io.Writer, width func() int) *Line { return &Line{w: w, width: width} }

// Terminal reports whether there can be a line.
func (l *Line) Terminal() bool { return l.width != nil }

// Set gives the line what it says, and nil takes the line away.
func (l *Line) Set(text func() string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	had := l.text != nil
	l.text = text
	if text == nil && had && l.Terminal() {
		_, _ = io.WriteString(l.w, clearLine) // There is no way to report that reporting fails.
	}
	l.draw()
}

// Draw writes the line anew.
func (l *Line) Draw() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.draw()
}

func (l *Line) draw() {
	if l.text == nil || !l.Terminal() {
		return
	}
	// A line that fills the last column, or more, would be followed by another one.
	text := []rune(l.text())
	text = text[:min(len(text), max(0, l.width()-1))]
	_, _ = io.WriteString(l.w, clearLine+string(text))
}

// Write puts whole lines above the line.
func (l *Line) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.text != nil && l.Terminal() {
		_, _ = io.WriteString(l.w, clearLine)
	}
	n, err := l.w.Write(p)
	l.draw()
	return n, err
}

// Show is a watcher for people. On a terminal, one line says how far the build is. Elsewhere a line is printed for each
// target that is finished.
type Show struct {
	line  *Line
	who   string
	began time.Time
	stop  chan struct{}
	built int
}

// NewShow begins to show a build by who. Its end is [Show.End].
func NewShow(line *Line, who string) *Show {
	s := &Show{line: line, who: who, began: time.Now(), stop: make(chan struct{})}
	if line.Terminal() {
		go s.tick()
	}
	return s
}

func (s *Show) tick() {
	ticker := time.NewTicker(drawEvery)
	defer ticker.Stop()
	for {
		select {
		case <-ticker.C:
			s.line.Draw()
		case <-s.stop:
			return
		}
	}
}

// Moved implements [Watcher].
func (s *Show) Moved(state State) {
	text := state.String()
	s.line.Set(func() string {
		return fmt.Sprintf("%8.0fs  %-9s %s", time.Since(s.began).Seconds(), s.who, text)
	})
}

// Finished implements [Watcher].
func (s *Show) Finished(target Target, state State, how string) {
	if how != upToDate {
		s.built++
	}
	if !s.line.Terminal() {
		s.Told(fmt.Sprintf("%s (%d of %d): %s", target, state.Nth, state.Of, how))
	}
}

// Told implements [Watcher].
func (s *Show) Told(text string) {
	_, _ = fmt.Fprintf(s.line, "%9s  %-9s %s\n", "", s.who, strings.TrimSpace(text))
}

// End takes the line away. On a terminal a line stays that says what was built, unless nothing was.
func (s *Show) End() {
	close(s.stop)
	s.line.Set(nil)
	if s.built > 0 && s.line.Terminal() {
		what := "programs"
		if s.built == 1 {
			what = "program"
		}
		s.Told(fmt.Sprintf("%d %s built in %.0f s", s.built, what, time.Since(s.began).Seconds()))
	}
}
