package main

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/quorate/quorate/pkg/options"
)

// helpColumns is where the lines of the flags' help end: wide enough for a sentence, and narrow enough
// for a terminal.
const helpColumns = 110

// usage shows a command's flags under headings, because nobody reads one list of dozens.
func usage(cmd *cobra.Command) error {
	var b strings.Builder
	fmt.Fprintf(&b, "Usage:\n  %s\n", cmd.UseLine())
	if cmd.HasExample() {
		fmt.Fprintf(&b, "\nExamples:\n%s\n", cmd.Example)
	}
	for _, g := range options.Groups(cmd.LocalFlags()) {
		fmt.Fprintf(&b, "\n%s:\n%s", g.Title, g.Flags.FlagUsagesWrapped(helpColumns))
	}
	_, err := fmt.Fprint(cmd.OutOrStderr(), b.String())
	return err
}
