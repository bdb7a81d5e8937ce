package main

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/quorate/quorate/pkg/options"
)

// helpColumns is where the lines of the flags' help end: wide enough for a sentence, and narrow enough
// for a terminal.
const helpColumns = 110

// helpAll is the flag that shows the flags which few people need.
const helpAll = "help-all"

// allHelp is its value. To set it asks for help as well.
type allHelp struct {
	cmd *cobra.Command
	on  bool
}

func (h *allHelp) String() string   { return strconv.FormatBool(h.on) }
func (h *allHelp) Type() string     { return "bool" }
func (h *allHelp) IsBoolFlag() bool { return true }

func (h *allHelp) Set(text string) (err error) {
	if h.on, err = strconv.ParseBool(text); err != nil || !h.on {
		return err
	}
	return h.cmd.Flags().Set("help", "true")
}

// addHelpAll registers it.
func addHelpAll(cmd *cobra.Command) {
	flag := cmd.Flags().VarPF(&allHelp{cmd: cmd}, helpAll, "", "show every flag, including those that few people need")
	flag.NoOptDefVal = "true"
}

func everyFlag(cmd *cobra.Command) bool {
	f := cmd.Flags().Lookup(helpAll)
	return f == nil || f.Value.String() == "true"
}

func count(fs *pflag.FlagSet) (n int) {
	fs.VisitAll(func(f *pflag.Flag) {
		if !f.Hidden {
			n++
		}
	})
	return n
}

// seconds lets a duration be written as kubectl takes it: a number alone is seconds.
type seconds struct{ pflag.Value }

func (s seconds) Set(text string) error {
	if _, err := strconv.ParseUint(text, 10, 31); err == nil {
		text += "s"
	}
	return s.Value.Set(text)
}

// takeSeconds does so for the flags of a command that a person types. A setting of the policy is written as in a
// sidecar's file.
func takeSeconds(fs *pflag.FlagSet) {
	fs.VisitAll(func(f *pflag.Flag) {
		answers := f.Name == "request-timeout" || f.Name == "probe-timeout"
		if f.Value.Type() == "duration" && (len(f.Annotations) == 0 || answers) {
			if f.Value = (seconds{f.Value}); f.DefValue == "0s" {
				f.DefValue = "0" // So that help takes it for no value.
			}
		}
	})
}

// usage shows a command's flags under headings, because nobody reads one list of dozens.
func usage(cmd *cobra.Command) error {
	var b strings.Builder
	fmt.Fprintf(&b, "Usage:\n  %s\n", cmd.UseLine())
	if cmd.HasExample() {
		fmt.Fprintf(&b, "\nExamples:\n%s\n", cmd.Example)
	}
	all, more := everyFlag(cmd), 0
	for _, g := range options.Groups(cmd.LocalFlags()) {
		flags := g.Flags
		if !all {
			flags = g.Needed()
			more += count(g.Flags) - count(flags)
		}
		if flags.HasAvailableFlags() {
			fmt.Fprintf(&b, "\n%s:\n%s", g.Title, flags.FlagUsagesWrapped(helpColumns))
		}
	}
	if more > 0 {
		fmt.Fprintf(&b, "\n%d more flags, which few people need: %s --%s\n", more, cmd.CommandPath(), helpAll)
	}
	_, err := fmt.Fprint(cmd.OutOrStderr(), b.String())
	return err
}
