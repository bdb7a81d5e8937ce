package report

import (
	"fmt"
	"io"
	"reflect"
	"strings"
	"text/tabwriter"
	"unicode"
)

// clean makes one line of printable characters of a text. Much of what is shown was written
// by others (members name themselves, hosts explain their gates), and none of them shall
// write to a terminal, or begin a line of its own.
func clean(text string) string {
	return strings.Map(func(r rune) rune {
		if !unicode.IsPrint(r) {
			return ' '
		}
		return r
	}, text)
}

// Clean makes one harmless line of a text for who writes to a terminal elsewhere.
func Clean(text string) string { return clean(text) }

// painted is a text that is clean and has its colour.
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
	// What cannot be written comes back from Flush.
	_, _ = io.WriteString(t.Writer, strings.Join(cells, "\t")+"\n")
}
