package main

import (
	"fmt"
	"strings"
)

// difference is what sets the API apart from its record.
type difference struct {
	removed, added []string
	changed        [][2]string // The line on record, and the one of now.
}

// compare goes by the identifier, the first word of a line.
func compare(record, current []string) difference {
	identifier := func(line string) string {
		name, _, _ := strings.Cut(line, " ")
		return name
	}
	now := map[string]string{}
	for _, line := range current {
		now[identifier(line)] = line
	}
	var d difference
	for _, line := range record {
		name := identifier(line)
		switch other, ok := now[name]; {
		case !ok:
			d.removed = append(d.removed, line)
		case other != line:
			d.changed = append(d.changed, [2]string{line, other})
		}
		delete(now, name)
	}
	for _, line := range current {
		if _, ok := now[identifier(line)]; ok {
			d.added = append(d.added, line)
		}
	}
	return d
}

func (d difference) empty() bool {
	return len(d.removed)+len(d.changed)+len(d.added) == 0
}

// String lists the differences and says what each kind asks for.
func (d difference) String() string {
	var b strings.Builder
	if len(d.removed)+len(d.changed) > 0 {
		fmt.Fprintf(&b, "Breaking, %d removed and %d changed:\n", len(d.removed), len(d.changed))
		for _, line := range d.removed {
			fmt.Fprintf(&b, "  - %s\n", line)
		}
		for _, lines := range d.changed {
			fmt.Fprintf(&b, "  - %s\n  + %s\n", lines[0], lines[1])
		}
		b.WriteString("A host that uses these may no longer compile, or do something else. Put them back; or,\n" +
			"while the version is below v1.0.0, run \"make api-update\" and say under Unreleased in\n" +
			"CHANGELOG.md what a host has to change. The next version is then a new minor one.\n")
	}
	if len(d.added) > 0 {
		fmt.Fprintf(&b, "Added, %d:\n", len(d.added))
		for _, line := range d.added {
			fmt.Fprintf(&b, "  + %s\n", line)
		}
		b.WriteString("Additions break nobody. Run \"make api-update\" to record them.\n")
	}
	return b.String()
}
