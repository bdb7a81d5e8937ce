// Command etcdbrctl is etcd-backup-restore with Quorate inside. It is the host's own command, unchanged, but
// for the flags --enable-quorum-aware-pod-updates and --pod-update-… of "server".
package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"runtime"
	"syscall"

	"github.com/gardener/etcd-backup-restore/cmd"
	"github.com/sirupsen/logrus"
	"github.com/spf13/cobra"
)

func main() {
	if os.Getenv("GOMAXPROCS") == "" {
		runtime.GOMAXPROCS(runtime.NumCPU())
	}
	syscall.Umask(0o077)
	if err := command(untilSignal()).Execute(); err != nil {
		fmt.Println(err)
		os.Exit(1)
	}
}

// untilSignal returns a context that ends with the first signal. The second one ends the process. Both are as
// in the host's own main.
func untilSignal() context.Context {
	ctx, cancel := context.WithCancel(context.Background())
	signals := make(chan os.Signal, 2)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	go func() {
		<-signals
		cancel()
		<-signals
		os.Exit(1)
	}()
	return ctx
}

func command(ctx context.Context) *cobra.Command {
	root := cmd.NewBackupRestoreCommand(ctx)
	tellVersions(root)
	for _, c := range root.Commands() {
		if c.Name() == "server" {
			embed(ctx, c)
		}
	}
	return root
}

// embed lets Quorate run beside the host's server if the server's flags or its configuration file say so. It
// starts before the server waits for its member, because a sidecar may have to coordinate just then.
func embed(ctx context.Context, server *cobra.Command) {
	newConfig().addFlags(server.Flags())
	host := server.Run
	server.Run = func(c *cobra.Command, args []string) {
		log := logger(c.Flags())
		cfg, err := read(c.Flags())
		if err != nil {
			log.Fatalf("failed to load the config from file: %v", err)
		}
		if !cfg.PodUpdates.Enabled {
			host(c, args)
			return
		}
		stop, err := start(ctx, cfg, log)
		if err != nil {
			log.Fatalf("failed to start quorum-aware pod updates: %v", err)
		}
		// The host ends the process from wherever something is fatal, so this must not wait for its return
		// alone. It also ends so if it is asked to stop before etcd runs.
		logrus.RegisterExitHandler(stop)
		defer stop()
		host(c, args)
	}
}
