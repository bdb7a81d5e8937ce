package report

import (
	"fmt"
	"io"
	"reflect"
	"regexp"
	"strings"
	"text/tabwriter"
	"unicode"
	"unicode/utf8"
)

// clean makes a text one line of printable characters. Others wrote much of what is shown: members
// name themselves, and hosts explain their gates. None of them may send control characters to a
// terminal, or begin a line of their own.
func clean(text string) string {
	return strings.Map(func(r rune) rune {
		switch {
		case !unicode.IsPrint(r):
			return ' '
		case r == '`': // A terminal does not show Markdown.
			return '\''
		}
		return r
	}, text)
}

// Clean makes a text one harmless line, for callers that write to a terminal themselves.
func Clean(text string) string { return clean(text) }

// painted is a clean text in its colour.
type painted string

// printf is fmt's, with clean arguments: whatever is a string by its kind, as names of guards are,
// but for what is painted.
func printf(b *strings.Builder, format string, args ...any) {
	for i, arg := range args {
		if _, is := arg.(painted); is {
			continue
		}
		if text := reflect.ValueOf(arg); text.Kind() == reflect.String {
			args[i] = clean(text.String())
		}
	}
	fmt.Fprintf(b, format, args...)
}

// wrap writes a text in lines that fit on the screen, each after the indent.
func (s Screen) wrap(b *strings.Builder, indent, text string) {
	if s.Reword != nil {
		text = s.Reword(text)
	}
	words := strings.Fields(clean(text))
	if s.Width <= len(indent) {
		words = []string{strings.Join(words, " ")}
	}
	column := 0
	for _, word := range words {
		n := utf8.RuneCountInString(word)
		switch {
		case column == 0:
			b.WriteString(indent)
			column = len(indent)
		case column+1+n > s.Width:
			b.WriteString("\n" + indent)
			column = len(indent)
		default:
			b.WriteString(" ")
			column++
		}
		b.WriteString(word)
		column += n
	}
	b.WriteString("\n")
}

// markdownLink is a link of the reference page's.
var markdownLink = regexp.MustCompile(`\[([^]]+)\]\(([^)]+)\)`)

// Plain is a text of the reference page's, or a reason, without Markdown. What is code there has quotation marks.
func Plain(text string) string {
	text = markdownLink.ReplaceAllString(text, "$1 (docs/$2)")
	return strings.ReplaceAll(text, "`", "'")
}

// table aligns clean cells.
type table struct{ *tabwriter.Writer }

func newTable(w io.Writer, head ...string) table {
	t := table{tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)}
	if len(head) > 0 {
		t.row(head...)
	}
	return t
}

func (t table) row(cells ...string) {
	for i := range cells {
		cells[i] = clean(cells[i])
	}
	// Flush returns the error of a failed write.
	_, _ = io.WriteString(t.Writer, strings.Join(cells, "\t")+"\n")
}
