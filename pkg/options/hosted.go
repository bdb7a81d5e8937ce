package options

import "github.com/spf13/pflag"

// Hosted holds the flags of a host that embeds package coordinator: a toggle and the
// flags of [Rollout], under a prefix that leaves the host's own alone. Use [NewHosted],
// then AddFlags, Complete, Validate and, while Enabled, ApplyTo.
type Hosted struct {
	// Enabled is --enable-quorum-aware-pod-updates. While it is false nothing else is
	// read or judged: what is off must not keep a host from starting.
	Enabled bool
	Rollout
	settings settings
}

// NewHosted returns the defaults.
func NewHosted() *Hosted {
	return &Hosted{Rollout: NewRollout(), settings: settings{prefix: "pod-update-"}}
}

// AddFlags registers --enable-quorum-aware-pod-updates and all flags of a rollout as
// --pod-update-…, as well as --pod-update-config, the file that can have them instead.
func (o *Hosted) AddFlags(fs *pflag.FlagSet) {
	fs.BoolVar(&o.Enabled, "enable-quorum-aware-pod-updates", o.Enabled, "replace outdated pods of the StatefulSet without losing etcd's quorum, once its update strategy is OnDelete (off, because it needs that strategy and permission to remove pods)")
	o.settings.addFile(fs, "")
	o.settings.add(fs, "", o.addAll)
}

// Complete reads the file that --pod-update-config names, if any.
func (o *Hosted) Complete() error {
	if !o.Enabled {
		return nil
	}
	return o.settings.load()
}

// Validate returns every bad value, one line each, with its flag and what to do about it.
func (o *Hosted) Validate() error {
	if !o.Enabled {
		return nil
	}
	return o.validate(o.settings.name)
}
