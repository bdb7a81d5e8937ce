package main

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// terminal plays the sequences that the screen uses, as a terminal would.
type terminal struct {
	columns  int
	rows     [][]rune
	row, col int
	wrap     bool
}

func (t *terminal) Write(p []byte) (int, error) {
	text := string(p)
	for text != "" {
		if rest, ok := strings.CutPrefix(text, "\x1b["); ok {
			end := strings.IndexAny(rest, "ABCDHJKhlm")
			t.control(rest[:end], rest[end])
			text = rest[end+1:]
			continue
		}
		r := []rune(text)[0]
		text = text[len(string(r)):]
		t.put(r)
	}
	return len(p), nil
}

func (t *terminal) put(r rune) {
	switch r {
	case '\n':
		t.row, t.col = t.row+1, 0
	case '\r':
		t.col = 0
	default:
		if t.col == t.columns {
			if !t.wrap {
				return
			}
			t.row, t.col = t.row+1, 0
		}
		t.grow()
		if t.col == len(t.rows[t.row]) {
			t.rows[t.row] = append(t.rows[t.row], ' ')
		}
		t.rows[t.row][t.col] = r
		t.col++
	}
	t.grow()
}

func (t *terminal) grow() {
	for len(t.rows) <= t.row {
		t.rows = append(t.rows, nil)
	}
	for len(t.rows[t.row]) < t.col {
		t.rows[t.row] = append(t.rows[t.row], ' ')
	}
}

func (t *terminal) control(parameter string, command byte) {
	t.grow()
	switch command {
	case 'A':
		n := 0
		_, _ = fmt.Sscan(parameter, &n)
		t.row = max(0, t.row-n)
	case 'K':
		t.rows[t.row] = t.rows[t.row][:t.col]
	case 'J':
		t.rows[t.row] = t.rows[t.row][:t.col]
		t.rows = t.rows[:t.row+1]
	case 'h', 'l':
		if parameter == "?7" {
			t.wrap = command == 'h'
		}
	}
}

func (t *terminal) String() string {
	var b strings.Builder
	for _, row := range t.rows {
		b.WriteString(strings.TrimRight(string(row), " ") + "\n")
	}
	return strings.TrimRight(b.String(), "\n")
}

func TestTheScreen(t *testing.T) {
	now := time.Unix(1000, 0)
	clock := func() time.Time { return now }
	onScreen := func(t *testing.T, columns, rows int) (*terminal, *screen) {
		term := &terminal{columns: columns, wrap: true}
		s := newScreen(term, func() (int, int) { return term.columns, rows }, clock, true)
		t.Cleanup(s.Close)
		return term, s
	}
	seen := func(s *screen, term *terminal) string {
		s.mu.Lock()
		defer s.mu.Unlock()
		return term.String()
	}

	t.Run("keeps what was said above the table, which is redrawn in place", func(t *testing.T) {
		term, s := onScreen(t, 100, 30)
		s.Say(text("first"))
		v := sample()
		s.Show(v)
		s.Say(text("second"), text("third"))
		v.pods[2].what = "updated"
		s.Show(v)
		require.Equal(t, "first\nsecond\nthird\n\n"+strings.TrimSpace(rendered(v.table(99))), seen(s, term))
	})
	t.Run("leaves the last table and no progress when it closes", func(t *testing.T) {
		term, s := onScreen(t, 100, 30)
		s.Show(sample())
		s.Progress("stopping")
		require.Contains(t, seen(s, term), "stopping")
		s.Close()
		s.Close()
		require.Equal(t, "\n"+strings.TrimSpace(rendered(sample().table(99))), seen(s, term))
	})
	t.Run("overwrites a progress without a trace", func(t *testing.T) {
		term, s := onScreen(t, 60, 30)
		s.Progress("a long word on what is being done at the moment")
		s.Progress("short")
		s.Say(text("said"))
		require.Contains(t, []string{"said\n| short  0.0s", "said\n/ short  0.0s", "said\n- short  0.0s", "said\n\\ short  0.0s"}, seen(s, term))
	})
	t.Run("breaks what is said between words, and not the table", func(t *testing.T) {
		term, s := onScreen(t, 20, 30)
		s.Show(sample())
		s.Say(text("this is longer than the terminal is wide"))
		require.Equal(t, "this is longer than\nthe terminal is\nwide\n\n"+strings.TrimSpace(rendered(sample().table(19))), seen(s, term))
	})
	t.Run("finds the top of its table when the terminal became narrower", func(t *testing.T) {
		require.Equal(t, 3, rowsOf([]int{20, 30}, 20))
		require.Equal(t, 2, rowsOf([]int{0, 20}, 20))
		require.Equal(t, 0, rowsOf(nil, 20))
	})
	t.Run("draws no more than fits on a short terminal", func(t *testing.T) {
		_, s := onScreen(t, 100, 4)
		s.Show(sample())
		s.mu.Lock()
		defer s.mu.Unlock()
		require.Len(t, s.drawn, 3)
	})
	t.Run("does not let a log steer the terminal", func(t *testing.T) {
		term, s := onScreen(t, 100, 30)
		s.Say(text("evil \x1b[2J\r\nline"))
		require.Equal(t, "evil  [2J  line", seen(s, term))
	})
	t.Run("without colours uses none", func(t *testing.T) {
		require.Equal(t, "a", line{{"a", red}}.ansi(false))
		require.Equal(t, "\x1b[31ma\x1b[0m", line{{"a", red}}.ansi(true))
	})
}

func TestPlainLines(t *testing.T) {
	now := time.Unix(1000, 0)
	var out strings.Builder
	d := newPlain(&out, func() time.Time { return now })
	took := func() string {
		defer out.Reset()
		return out.String()
	}

	t.Run("a row is printed when it changes, and only then", func(t *testing.T) {
		v := sample()
		d.Show(v)
		require.Equal(t, 3, strings.Count(took(), "\n"))
		v.stall, v.elapsed = time.Second, time.Minute
		d.Show(v)
		require.Empty(t, took())
		v.pods[2].what = "updated"
		v.at = 1500 * time.Millisecond
		d.Show(v)
		require.Equal(t, "1.5s    etcd-main-2   -         -             etcd -       down    not Ready  updated\n", took())
	})
	t.Run("a progress in which only the number at the end changes is printed now and then", func(t *testing.T) {
		d.Progress("kube: packages compiled: 10")
		require.Contains(t, took(), "packages compiled: 10")
		d.Progress("kube: packages compiled: 20")
		require.Empty(t, took())
		now = now.Add(progressEvery)
		d.Progress("kube: packages compiled: 30")
		require.Contains(t, took(), "packages compiled: 30")
		d.Progress("etcd-3.5: up to date")
		d.Progress("etcd-3.6: up to date")
		require.Equal(t, 2, strings.Count(took(), "up to date"))
	})
	t.Run("there are no sequences for terminals", func(t *testing.T) {
		d.Say(line{{"red", red}})
		require.Equal(t, "red\n", took())
	})
}

func TestCuttingALine(t *testing.T) {
	l := line{{"abc", red}, {"def", normal}}
	require.Equal(t, "abcdef", l.cut(6).String())
	require.Equal(t, "abcd…", l.cut(5).String())
	require.Equal(t, "ab…", l.cut(3).String())
	require.Equal(t, "…", l.cut(1).String())
	require.Empty(t, l.cut(0).String())
}

func TestFoldingALine(t *testing.T) {
	folded := func(l line, width int) []string {
		var out []string
		for _, part := range l.fold(width) {
			out = append(out, part.String())
		}
		return out
	}
	l := line{{"12.0s ", dim}, {"etcd-0 ", bold}, {"its member serves and everything else is long enough", red}}
	require.Equal(t, []string{"12.0s etcd-0 its member serves and everything", "             else is long enough"}, folded(l, 46), "under the text")
	require.Equal(t, []string{"12.0s etcd-0 its", "member serves and", "everything else is", "long enough"}, folded(l, 18), "where there is no room, at the margin")
	require.Equal(t, []string{"short"}, folded(text("short"), 20))
	require.Equal(t, []string{"unbreakable", "word"}, folded(text("unbreakable word"), 5), "a long word stays whole")
	require.Equal(t, []string{""}, folded(nil, 5))
}
