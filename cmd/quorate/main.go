// Command quorate rolls the pods of an etcd StatefulSet without losing quorum.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"

	"github.com/spf13/cobra"
	"k8s.io/klog/v2"
)

// Exit codes.
const (
	exitFailure  = 1
	exitBadInput = 2
)

// badInput is an error of the command line, not of the world.
type badInput struct{ error }

func (b badInput) Unwrap() error { return b.error }

func main() {
	// client-go logs through klog, in a format of its own, about things that come back as errors
	// anyway.
	klog.LogToStderr(false)
	klog.SetOutput(io.Discard)
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	cmd := rootOf(os.Args[0], os.Stdout, os.Stderr)
	err := cmd.ExecuteContext(ctx)
	stop()
	if err == nil {
		return
	}
	switch {
	case errors.Is(err, errWaiting), errors.Is(err, errNotReady):
		os.Exit(exitWaiting)
	case errors.Is(err, errNotAsked), errors.Is(err, errNotKnown):
		os.Exit(exitFailure)
	}
	complain(cmd, err)
	var bad badInput
	if errors.As(err, &bad) {
		os.Exit(exitBadInput)
	}
	os.Exit(exitFailure)
}

// asPlugin writes commands as users of the plugin type them.
func asPlugin(text string) string {
	return commandLine.ReplaceAllStringFunc(text, func(command string) string {
		if strings.HasPrefix(command, "-- ") { // kubectl exec runs it in a container.
			return command
		}
		return commandLine.ReplaceAllString(command, "${1}kubectl quorate ${2}")
	})
}

// commandLine is one of the commands that people type, in a text. A sidecar is never called as a plugin.
var commandLine = regexp.MustCompile(`(^|-- |[^-\w/])(?:kubectl )?\bquorate (` +
	`check|status|plan|history|pause|resume|override|guard|remove-member|defragment|version)\b`)

// plugin is the name under which kubectl finds the command as a plugin.
const plugin = "kubectl-quorate"

// kubectlQuorate is what its users call it.
const kubectlQuorate = "kubectl quorate"

// rootOf returns the command under the name that it was called by. Someone who calls the plugin sees it as
// "kubectl quorate", in help, in reports and in errors.
func rootOf(called string, out, errs io.Writer) *cobra.Command {
	cmd := root()
	if strings.TrimSuffix(filepath.Base(called), ".exe") == plugin {
		cmd.Annotations = map[string]string{cobra.CommandDisplayNameAnnotation: kubectlQuorate}
		out, errs = pluginWriter{out}, pluginWriter{errs}
	}
	cmd.SetOut(out)
	cmd.SetErr(errs)
	return cmd
}

// pluginWriter writes texts for people who call the plugin. A report may come from a coordinator, which cannot know
// who reads it. What programs read is not changed; see encode.
type pluginWriter struct{ io.Writer }

func (p pluginWriter) Write(text []byte) (int, error) {
	if _, err := io.WriteString(p.Writer, asPlugin(string(text))); err != nil {
		return 0, err
	}
	return len(text), nil
}

// beneath is the writer itself, without a plugin's.
func beneath(w io.Writer) (io.Writer, bool) {
	p, is := w.(pluginWriter)
	if is {
		w = p.Writer
	}
	return w, is
}

// name is what the command is called.
func name(cmd *cobra.Command) string { return cmd.Root().DisplayName() }

func root() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "quorate",
		Short: "Rolls the pods of an etcd StatefulSet without losing quorum",
		Long: `Quorate rolls the pods of an etcd StatefulSet without losing quorum.

It runs as a sidecar of every etcd member. The sidecars elect one coordinator with a
lock in the etcd that they serve. The coordinator asks etcd who is healthy and who
leads, and replaces outdated pods in a safe order. The StatefulSet's update strategy
must be OnDelete. With any other strategy Quorate does nothing.

If the binary is in the PATH as kubectl-quorate, it is a plugin: kubectl quorate status.
With deploy/kubectl_complete-quorate in the PATH as well, kubectl completes its words.

Exit codes: 0 done or asked to stop, 1 failure, or a plan or check that could not ask etcd,
2 bad input, 3 a plan or status that holds or waits, or a check that fails.`,
		Version:       version(),
		SilenceUsage:  true,
		SilenceErrors: true,
		// Without these, an unknown command would not count as bad input.
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) > 0 {
				return unknownCommand(cmd, args[0])
			}
			return nil
		},
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
	cmd.SetFlagErrorFunc(badFlag)
	for _, verb := range []*cobra.Command{check(), status(), plan(), history(), pause(), resume(), override(), guard(),
		removeMember(), defragment(), sidecar(), versionCommand()} {
		finish(verb)
		cmd.AddCommand(verb)
	}
	// Cobra's own commands count a superfluous word as a failure.
	cmd.InitDefaultCompletionCmd()
	for _, c := range cmd.Commands() {
		if c.Name() == "completion" {
			for _, shell := range c.Commands() {
				shell.Args = noArgs
			}
		}
	}
	return cmd
}

// finish gives a verb what all of them have in common: arguments such as sts/etcd-main, and errors that say who grants
// what was forbidden.
func finish(verb *cobra.Command) {
	check, run := verb.Args, verb.RunE
	verb.Args = func(cmd *cobra.Command, args []string) error {
		names, err := allBare(args)
		if err != nil {
			return err
		}
		return check(cmd, names)
	}
	verb.RunE = func(cmd *cobra.Command, args []string) error {
		names, err := allBare(args)
		if err != nil {
			return err
		}
		return explain(run(cmd, names))
	}
	verb.SetUsageFunc(usage)
	verb.Flags().SortFlags = false // The order of need.
	if addHelpAll(verb); verb.Name() != "sidecar" {
		takeSeconds(verb.Flags())
	}
}

// completeOutput offers the values of --output to the shell.
func completeOutput(cmd *cobra.Command, values ...string) {
	// It fails only for a flag that does not exist.
	_ = cmd.RegisterFlagCompletionFunc("output", cobra.FixedCompletions(values, cobra.ShellCompDirectiveNoFileComp))
}

func noArgs(cmd *cobra.Command, args []string) error {
	if len(args) > 0 {
		return badInput{fmt.Errorf("%s takes no argument, and got %q; see %s --help", cmd.CommandPath(), args[0],
			cmd.CommandPath())}
	}
	return nil
}
