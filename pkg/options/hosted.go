package options

import "github.com/spf13/pflag"

// Hosted holds the flags of a host that embeds package coordinator: a toggle, and the flags of
// [Rollout] under a prefix that keeps them apart from the host's own. Call [NewHosted], then AddFlags,
// Complete, Validate and, if Enabled, ApplyTo.
type Hosted struct {
	// Enabled is --enable-quorum-aware-pod-updates. While it is false, nothing else is read or checked,
	// because a feature that is off must not keep a host from starting.
	Enabled bool
	Rollout
	settings settings
}

// NewHosted returns the defaults.
func NewHosted() *Hosted {
	return &Hosted{Rollout: NewRollout(), settings: settings{prefix: "pod-update-"}}
}

// AddFlags registers --enable-quorum-aware-pod-updates, all flags of a rollout as --pod-update-…, and
// --pod-update-config for a file that can set them instead.
func (o *Hosted) AddFlags(fs *pflag.FlagSet) {
	fs.BoolVar(&o.Enabled, "enable-quorum-aware-pod-updates", o.Enabled,
		"replace outdated pods of the StatefulSet without losing etcd's quorum, once its update strategy is OnDelete "+
			"(off, because it needs that strategy and the permission to remove pods)")
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
