package main

import (
	"fmt"
	"io"
	"strings"
	"sync"

	"github.com/quorate/quorate/internal/report"
)

// style is how a line looks on a terminal that has colours: the parameter of SGR, the
// terminal's sequence for them.
type style string

const (
	normal style = ""
	bold   style = "1"
	red    style = "31"
	green  style = "32"
	yellow style = "33"
)

// console prints lines. While the product's own status has the terminal, it keeps them.
type console struct {
	w      io.Writer
	colour bool

	mu   sync.Mutex
	lent bool
	kept strings.Builder
}

// Say prints a line. What processes have logged cannot steer the terminal.
func (c *console) Say(how style, text string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	text = strings.TrimRight(report.Clean(text), " ")
	if c.colour && how != normal {
		text = "\x1b[" + string(how) + "m" + text + "\x1b[0m"
	}
	if c.lent {
		c.kept.WriteString(text + "\n")
		return
	}
	_, _ = io.WriteString(c.w, text+"\n") // There is no way to report that reporting fails.
}

// Progress says what is being done before there is a timeline.
func (c *console) Progress(text string) {
	c.Say(normal, fmt.Sprintf("%9s  %-9s %s", "", "demo", text))
}

// Lend leaves the terminal to another program until TakeBack, which prints what was said
// meanwhile.
func (c *console) Lend() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.lent = true
}

// TakeBack ends what Lend began. It may be called again.
func (c *console) TakeBack() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.lent = false
	if c.kept.Len() > 0 {
		_, _ = io.WriteString(c.w, "\nMeanwhile, by the timeline:\n"+c.kept.String())
		c.kept.Reset()
	}
}

// shown says whether a line of the timeline is for people, and in which style. The rest is in
// its file: every request that changes something, and every container.
func shown(who, what string) (how style, ok bool) {
	words := strings.Fields(what)
	switch who {
	case "demo", "operator":
		return bold, true
	case "fault":
		return yellow, true
	case "etcd":
		if strings.HasPrefix(what, quorumLost) {
			return red, true
		}
		return normal, true
	case "sidecar", "status", "harness", "kubectl":
		return normal, true
	case "api":
		return normal, strings.Contains(what, " terminating (") // Who goes, by whose hand ever.
	case "node":
		if len(words) < 2 {
			return normal, false
		}
		// What has a container between its kind and its colon is not about the whole pod.
		kind, about := strings.CutSuffix(words[1], ":")
		return normal, (about || len(words) == 2) && (kind == "Ready" || kind == "NotReady" || kind == "Gone")
	}
	return normal, false
}
