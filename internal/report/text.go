package report

import (
	"fmt"
	"io"
	"reflect"
	"strings"
	"text/tabwriter"
	"unicode"
)

// clean makes a text one line of printable characters. Others wrote much of what is shown: members
// name themselves, and hosts explain their gates. None of them may send control characters to a
// terminal, or begin a line of their own.
func clean(text string) string {
	return strings.Map(func(r rune) rune {
		if !unicode.IsPrint(r) {
			return ' '
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
