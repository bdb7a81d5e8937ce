package main

import (
	"fmt"
	"strings"
	"time"
	"unicode"
)

// style is how a piece of text looks on a terminal that has colours.
type style string

// The styles, as the parameters of SGR, the terminal's sequence for them.
const (
	normal style = ""
	bold   style = "1"
	dim    style = "2"
	red    style = "31"
	green  style = "32"
	yellow style = "33"
	cyan   style = "36"
)

// span is a piece of text in one style.
type span struct {
	text  string
	style style
}

// line is one line of a terminal.
type line []span

func text(s string) line { return line{{text: s}} }

// String is the line without styles.
func (l line) String() string {
	var b strings.Builder
	for _, s := range l {
		b.WriteString(printable(s.text))
	}
	return strings.TrimRight(b.String(), " ")
}

// width is the number of columns. Everything that is shown consists of names and
// plain text, one column for each character.
func (l line) width() int {
	n := 0
	for _, s := range l {
		n += len([]rune(s.text))
	}
	return n
}

// cut shortens the line to the width, with an ellipsis where something is missing.
func (l line) cut(width int) line {
	if l.width() <= width {
		return l
	}
	if width <= 0 {
		return nil
	}
	left := width - 1
	var out line
	for _, s := range l {
		runes := []rune(s.text)
		if len(runes) > left {
			return append(out, span{string(runes[:left]) + "…", s.style})
		}
		left -= len(runes)
		out = append(out, s)
	}
	return out
}

// fewestFolded is how few columns a column of folded text may have.
const fewestFolded = 30

// fold breaks a line that is too long between words. What follows is set under the
// beginning of the last span, if that leaves room for it.
func (l line) fold(width int) []line {
	if l.width() <= width || len(l) == 0 {
		return []line{l}
	}
	head, last := l[:len(l)-1], l[len(l)-1]
	indent := head.width()
	if width-indent < fewestFolded {
		indent = 0
	}
	lines, column, current := []line{}, head.width(), head
	words := ""
	for word := range strings.FieldsSeq(last.text) {
		if n := len([]rune(word)); words != "" && column+1+n > width {
			lines = append(lines, append(current[:len(current):len(current)], span{words, last.style}))
			current, column, words = line{{text: strings.Repeat(" ", indent)}}, indent, ""
		}
		if words != "" {
			words += " "
			column++
		}
		words += word
		column += len([]rune(word))
	}
	return append(lines, append(current[:len(current):len(current)], span{words, last.style}))
}

// ansi is the line as a terminal wants it.
func (l line) ansi(colour bool) string {
	if !colour {
		return l.String()
	}
	var b strings.Builder
	for _, s := range l {
		if s.style == normal {
			b.WriteString(printable(s.text))
			continue
		}
		fmt.Fprintf(&b, "\x1b[%sm%s\x1b[0m", s.style, printable(s.text))
	}
	return b.String()
}

// printable keeps what a process logged from steering the terminal.
func printable(s string) string {
	return strings.Map(func(r rune) rune {
		if unicode.IsControl(r) {
			return ' '
		}
		return r
	}, s)
}

// pad fills the text up to the width.
func pad(s string, width int) string {
	return s + strings.Repeat(" ", max(0, width-len([]rune(s))))
}

// seconds is a duration in seconds, in the same way throughout, so that times can be
// compared at a glance.
func seconds(d time.Duration) string { return fmt.Sprintf("%.1fs", d.Seconds()) }
