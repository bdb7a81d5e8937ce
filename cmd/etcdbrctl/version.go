package main

import (
	"runtime/debug"

	host "github.com/gardener/etcd-backup-restore/pkg/version"
	"github.com/sirupsen/logrus"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// version is Quorate's own.
func version() string {
	if info, ok := debug.ReadBuildInfo(); ok && info.Main.Version != "" {
		return info.Main.Version
	}
	return "(devel)"
}

// hostVersion is that of the host's module.
func hostVersion() string {
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, m := range info.Deps {
			if m.Path == "github.com/gardener/etcd-backup-restore" {
				return m.Version
			}
		}
	}
	return ""
}

// tellVersions lets --version tell both versions, and "version" the same, which is what Quorate's own command
// calls it. The host's own build sets its version when it is linked.
func tellVersions(root *cobra.Command) {
	if host.Version == "" {
		host.Version = hostVersion()
	}
	run := root.Run
	root.Run = func(c *cobra.Command, args []string) {
		run(c, args)
		if asked, _ := c.Flags().GetBool("version"); asked {
			logrus.New().Infof("Quorate Version: %s", version())
		}
	}
	root.AddCommand(&cobra.Command{
		Use: "version", Short: "print version info", Args: cobra.NoArgs,
		RunE: func(_ *cobra.Command, args []string) error {
			if err := root.Flags().Set("version", "true"); err != nil {
				return err
			}
			root.Run(root, args)
			return nil
		},
	})
}

// logger writes as the host's own does, to the same place.
func logger(server *pflag.FlagSet) *logrus.Entry {
	log := logrus.New()
	if level, err := server.GetUint32("log-level"); err == nil {
		log.SetLevel(logrus.Level(level))
	}
	return logrus.NewEntry(log)
}
