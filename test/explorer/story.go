package explorer

import (
	"fmt"
	"strings"

	"github.com/quorate/quorate/internal/record"
)

func (i intent) String() string {
	switch words := operations[i.op].words; {
	case i.fenced():
		return words + " " + i.ref.String()
	case i.op == none, i.op == fenceAll:
		return words
	default:
		return fmt.Sprintf("%s place %d", words, i.ref.pod)
	}
}

func (r ref) String() string {
	if !r.current {
		return "an earlier " + names[r.pod]
	}
	return fmt.Sprintf("%s at version %d", names[r.pod], r.rv)
}

func (l lease) String() string {
	if l.rv == 0 {
		return "no Lease"
	}
	holder := identityNames[l.holder]
	if holder == "" {
		holder = "nobody"
	}
	text := fmt.Sprintf("version %d, epoch %d, held by %s, intent: %s", l.rv, l.epoch, holder, l.intent)
	if l.suspect > 0 {
		text += fmt.Sprintf(", suspect: the member of place %d", l.suspect-1)
	}
	return text
}

func (r request) String() string {
	switch r.kind {
	case readLease:
		return "read the Lease"
	case checkRight:
		return "ask who owns the lock"
	case writeLease:
		return "write the Lease: " + r.lease.String()
	case listPods:
		return "list the pods"
	case fencePod:
		return "change " + r.ref.String()
	case observe:
		return "observe"
	case actFenced:
		return "remove " + r.ref.String()
	case actLight, actPresumed, actBlocking:
		return intent{op: r.op, ref: r.ref}.String()
	case rest:
		return "rest"
	}
	return "nothing"
}

func describe(a answer, decided intent) string {
	switch a.next {
	case record.NextAct:
		return decided.String()
	case record.NextFinish:
		return "the rollout is over"
	case record.NextHandOver:
		return "hand over"
	case record.NextRest:
	}
	return "wait"
}

// state of the cluster, in a line.
func (m *Model) describe(w *World) string {
	var b strings.Builder
	for i := range m.places() {
		p := &w.pods[i]
		if p.phase == missing && i < m.ordinals() && !w.has(i) && !w.list.has(i) {
			continue
		}
		if i > 0 {
			b.WriteString(", ")
		}
		fmt.Fprintf(&b, "%s %s", m.place(uint8(i)), //nolint:gosec // A handful.
			[...]string{"missing", "starting", "up", "terminating"}[p.phase])
		if p.phase == up && p.health != healthy {
			fmt.Fprintf(&b, " but %s",
				[...]string{"", "crashed", "hung", "deaf", "deaf and not ready", "hung and not ready",
					"restarting", "being created anew"}[p.health])
		}
		switch ours := i < m.ordinals(); {
		case !w.list.has(i):
			b.WriteString(" (no member)")
		case ours && !w.has(i):
			b.WriteString(" (out of range)")
		}
		if p.phase != missing && i < m.ordinals() && p.revision != w.revision {
			b.WriteString(" (outdated)")
		}
		b.WriteString(w.words(i))
	}
	return b.String()
}

// Story tells how a path of moves goes.
func (m *Model) Story(path []Move) string {
	told := m.clone()
	w := told.First()
	told.normalise(&w)
	var b strings.Builder
	fmt.Fprintf(&b, "At first: %s\n", told.describe(&w))
	for n, mv := range path {
		var lines []string
		told.tell = func(format string, args ...any) { lines = append(lines, fmt.Sprintf(format, args...)) }
		next, broken := told.Apply(w, mv)
		for k, line := range lines {
			if k == 0 {
				fmt.Fprintf(&b, "%4d. %s\n", n+1, line)
			} else {
				fmt.Fprintf(&b, "      %s\n", strings.TrimSpace(line))
			}
		}
		if now, before := told.describe(&next), told.describe(&w); now != before {
			fmt.Fprintf(&b, "      now: %s\n", now)
		}
		if broken != "" {
			fmt.Fprintf(&b, "BROKEN: %s\n", broken)
		}
		w = next
	}
	return b.String()
}
