package main

import (
	"os"

	"github.com/gardener/etcd-backup-restore/pkg/server"
	"github.com/spf13/pflag"
	"sigs.k8s.io/yaml"

	"github.com/quorate/quorate/pkg/options"
)

// config is what the host runs with, and what it is to run beside it.
type config struct {
	*server.BackupRestoreComponentConfig
	// PodUpdates is a section of its own in the host's configuration file, which the host itself skips.
	PodUpdates *options.Hosted `json:"podUpdateConfig"`
	// ListenAddress is where the status page is served. The host's server takes no handler of others.
	ListenAddress string `json:"-"`
}

func newConfig() *config {
	return &config{server.NewBackupRestoreComponentConfig(), options.NewHosted(), ""}
}

// addFlags adds Quorate's flags to the host's.
func (c *config) addFlags(fs *pflag.FlagSet) {
	c.PodUpdates.AddFlags(fs)
	fs.StringVar(&c.ListenAddress, "pod-update-listen-address", "",
		"host:port to serve a status page of the pod updates on, over plain HTTP; :8090 is every address of the pod "+
			"(default: off, because it asks for no password)")
}

// read returns what the flags of "server" say. The host keeps its own options to itself, so they are read a
// second time, by the same rules: with --config-file none of its flags counts. Ours do, and win over our
// section of that file.
func read(flags *pflag.FlagSet) (*config, error) {
	c, fs := newConfig(), pflag.NewFlagSet("", pflag.ContinueOnError)
	if path, _ := flags.GetString("config-file"); path != "" {
		data, err := os.ReadFile(path)
		if err != nil {
			return nil, err
		}
		if err := yaml.Unmarshal(data, c); err != nil {
			return nil, err
		}
	} else {
		c.AddFlags(fs)
	}
	c.addFlags(fs)
	flags.Visit(func(from *pflag.Flag) {
		to := fs.Lookup(from.Name)
		if to == nil {
			return
		}
		// What was parsed once can be parsed again.
		if list, ok := from.Value.(pflag.SliceValue); ok {
			_ = to.Value.(pflag.SliceValue).Replace(list.GetSlice())
		} else {
			_ = to.Value.Set(from.Value.String())
		}
		to.Changed = true
	})
	return c, nil
}
