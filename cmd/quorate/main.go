// Command quorate rolls the pods of an etcd StatefulSet without losing quorum.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"runtime/debug"
	"syscall"

	"github.com/spf13/cobra"
)

// Exit codes.
const (
	exitFailure  = 1
	exitBadInput = 2
)

// badInput is an error of the command line, not of the world.
type badInput struct{ error }

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := root().ExecuteContext(ctx)
	stop()
	if err == nil {
		return
	}
	fmt.Fprintln(os.Stderr, "quorate:", err)
	var bad badInput
	if errors.As(err, &bad) {
		os.Exit(exitBadInput)
	}
	os.Exit(exitFailure)
}

func root() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "quorate",
		Short: "Rolls the pods of an etcd StatefulSet without losing quorum",
		Long: `Quorate rolls the pods of an etcd StatefulSet without losing quorum.

It runs as a sidecar of every etcd member. The sidecars elect one coordinator with a
lock in the very etcd they serve. The coordinator asks etcd who is healthy and who
leads, and replaces outdated pods in a safe order. The StatefulSet's update strategy
must be OnDelete; with any other Quorate does nothing.

Exit codes: 0 done or asked to stop, 1 failure, 2 bad input.`,
		Version:       version(),
		SilenceUsage:  true,
		SilenceErrors: true,
	}
	cmd.SetFlagErrorFunc(func(_ *cobra.Command, err error) error { return badInput{err} })
	cmd.AddCommand(sidecar())
	return cmd
}

// version is the module's version where it was built from one.
func version() string {
	if info, ok := debug.ReadBuildInfo(); ok && info.Main.Version != "" {
		return info.Main.Version
	}
	return "(devel)"
}
