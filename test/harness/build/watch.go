package build

import (
	"bufio"
	"fmt"
	"io"
	"slices"
	"strings"
	"sync"
	"time"
)

const (
	// progressEvery keeps a long build from flooding a log: how far it is, is reported at most this often.
	progressEvery = 15 * time.Second
	// errorLines is how much of the go command's output an error carries.
	errorLines = 40
	// upToDate is how a target is finished that has not changed.
	upToDate = "up to date"
)

// Watcher is told how a build goes on. Calls come one at a time.
type Watcher interface {
	// Moved says how far it is, as often as that changes.
	Moved(s State)
	// Finished says how a target was finished: built, or found up to date.
	Finished(target Target, s State, how string)
	// Told says what else there is to know.
	Told(line string)
}

// State is how far a build is.
type State struct {
	// Target is what is being built, as the Nth Of so many.
	Target  Target
	Nth, Of int
	// Packages of it have been compiled, of All that it has. All is 0 as long as that is not known.
	Packages, All int
	// Fetching is the target whose modules are being downloaded, if any, and Modules is how many have begun.
	Fetching Target
	Modules  int
}

// String is the State in one line, which a terminal of 80 columns has room for.
func (s State) String() string {
	text := fmt.Sprintf("%s (%d of %d)", s.Target, s.Nth, s.Of)
	switch {
	case s.Fetching == s.Target:
		return fmt.Sprintf("%s: downloading, %d modules", text, s.Modules)
	case s.All > 0 && s.Packages >= s.All:
		text += ": linking"
	case s.All > 0 && s.Packages > 0:
		text += fmt.Sprintf(": %d of %d packages", s.Packages, s.All)
	case s.Packages > 0:
		text += fmt.Sprintf(": %d packages", s.Packages)
	}
	if s.Fetching != "" {
		text += fmt.Sprintf("; %s: %d modules", s.Fetching, s.Modules)
	}
	return text
}

// lines is a watcher that tells progress, which may be nil, in lines.
func lines(progress func(line string)) Watcher {
	if progress == nil {
		progress = func(string) {}
	}
	return &inLines{progress: progress, reported: time.Now()}
}

type inLines struct {
	progress func(line string)
	reported time.Time
}

func (l *inLines) Moved(s State) {
	if time.Since(l.reported) >= progressEvery {
		l.reported = time.Now()
		l.progress(s.String())
	}
}

func (l *inLines) Finished(target Target, _ State, how string) {
	l.progress(string(target) + ": " + how)
}

func (l *inLines) Told(line string) { l.progress(line) }

// meter keeps the State of a build, and tells the watcher. What is compiled and what is downloaded move it at once.
type meter struct {
	watcher Watcher

	mu    sync.Mutex
	state State
	// all is how many packages the targets have whose modules have been fetched, and last which one is compiled last.
	all  map[Target]int
	last map[Target]string
}

func (m *meter) move(change func(s *State)) {
	m.mu.Lock()
	defer m.mu.Unlock()
	before := m.state
	change(&m.state)
	if m.state != before {
		m.watcher.Moved(m.state)
	}
}

// begin says that it is the turn of a target.
func (m *meter) begin(target Target, nth, of int) {
	m.move(func(s *State) { s.Target, s.Nth, s.Of, s.Packages, s.All = target, nth, of, 0, m.all[target] })
}

// compiling returns what reads the output of "go build -v" for a target.
func (m *meter) compiling(target Target) *output {
	m.move(func(s *State) {
		if s.Fetching == target {
			s.Fetching = ""
		}
	})
	return &output{
		onPackage: func(name string) {
			m.move(func(s *State) {
				s.Packages++
				if name == m.last[target] {
					s.Packages = s.All // The others were in the cache.
				}
			})
		},
		onModule: func() { m.move(func(s *State) { s.Modules++ }) },
	}
}

// downloading returns what reads the output of a command that fetches the modules of a target.
func (m *meter) downloading(target Target) *output {
	m.move(func(s *State) { s.Fetching, s.Modules = target, 0 })
	return &output{onPackage: func(string) {}, onModule: func() { m.move(func(s *State) { s.Modules++ }) }}
}

// downloaded says that this command has ended, which has named all packages of the target.
func (m *meter) downloaded(target Target, o *output) {
	m.move(func(s *State) {
		if m.all == nil {
			m.all, m.last = map[Target]int{}, map[Target]string{}
		}
		m.last[target] = o.last              // Packages are named after those that they import.
		m.all[target] = max(0, o.packages-1) // Nobody compiles unsafe.
		if s.Fetching == target {
			s.Fetching, s.Modules = "", 0
		}
		if s.Target == target {
			s.All = m.all[target]
		}
	})
}

func (m *meter) finished(target Target, how string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.watcher.Finished(target, m.state, how)
}

func (m *meter) told(line string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.watcher.Told(line)
}

// output reads what the go command prints: names of packages and of modules, which it counts, and everything else, of
// which it keeps the end.
type output struct {
	onPackage func(name string)
	onModule  func()

	mu       sync.Mutex
	partial  []byte
	packages int
	last     string
	lines    []string
}

var _ io.Writer = (*output)(nil)

func (o *output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.partial = append(o.partial, p...)
	for {
		advance, line, _ := bufio.ScanLines(o.partial, false)
		if advance == 0 {
			return len(p), nil
		}
		text := string(line)
		o.partial = o.partial[advance:]
		o.take(text)
	}
}

func (o *output) take(line string) {
	switch {
	case strings.HasPrefix(line, "go: downloading "):
		o.onModule()
	case isPackage(line):
		o.packages++
		o.last = line
		o.onPackage(line)
	default:
		o.lines = append(o.lines, line)
		if len(o.lines) > errorLines {
			o.lines = o.lines[1:]
		}
	}
}

// isPackage tells the import path of a compiled package from a message: messages have
// spaces or name a place in a file.
func isPackage(line string) bool {
	return line != "" && !strings.ContainsAny(line, " \t:")
}

func (o *output) tail() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return strings.TrimRight(strings.Join(append(o.lines, string(o.partial)), "\n"), "\n")
}

// advice is what to do when the go command has failed and said this.
func advice(said string) string {
	const kept = " What has been downloaded and compiled is kept, and the next run goes on from there."
	has := func(words ...string) bool {
		return slices.ContainsFunc(words, func(w string) bool { return strings.Contains(said, w) })
	}
	switch {
	case has("no space left on device"):
		return "Free some space for .build and for the caches that `go env GOCACHE GOMODCACHE` names." + kept
	case has("signal: killed", "cannot allocate memory", "out of memory"):
		return "The machine ran out of memory. GOFLAGS=-p=1 compiles one package at a time." + kept
	case has("checksum mismatch", "SECURITY ERROR"):
		return "A module is not the one of go.sum. Look at GOPROXY, and at who answers there."
	case has("GOTOOLCHAIN", "toolchain not available"):
		return "Install the version of Go that go.mod asks for, or let GOTOOLCHAIN=auto fetch it."
	case has("dial tcp", "proxyconnect", "no such host", "timeout", "connection reset", "unexpected EOF",
		"disabled by GOPROXY", "404 Not Found", "410 Gone", "502 Bad", "503 Service", "504 Gateway"):
		return "Modules could not be downloaded. Look at the network and at GOPROXY, and run it again." + kept
	}
	return "Correct what these lines name, and run it again." + kept
}
