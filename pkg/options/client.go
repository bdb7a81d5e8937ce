package options

import (
	"errors"
	"slices"

	"github.com/sirupsen/logrus"
	"github.com/spf13/pflag"

	"github.com/quorate/quorate/coordinator"
	"github.com/quorate/quorate/internal/settings"
)

// Client holds the flags of a command that looks at a cluster from a person's machine: kubectl's flags,
// and those of a sidecar that the command can use. Call [NewClient], then AddFlags and whatever else is
// wanted, then Complete, Validate and Config. Flags that are not registered keep their defaults.
type Client struct {
	Etcd       Etcd
	Kubernetes Kubernetes
	Rollout
	given given
}

// NewClient returns the defaults.
func NewClient() *Client {
	o := &Client{Etcd: newEtcd(), Kubernetes: newPerson(), Rollout: NewRollout()}
	o.ReadNodes = true // A person may, or is refused and loses nothing.
	return o
}

// AddFlags registers what every such command needs: kubectl's flags, --statefulset (or set
// Kubernetes.StatefulSet from an argument) and --request-timeout.
func (o *Client) AddFlags(fs *pflag.FlagSet) {
	o.given.add(fs, titleKubernetes, o.Kubernetes.addFlags)
	o.given.addSettings(fs, o.one("request-timeout", titleKubernetes))
}

// AddEtcdFlags registers the flags for a command that also asks etcd. They have the same names as the
// sidecar's.
func (o *Client) AddEtcdFlags(fs *pflag.FlagSet) {
	o.given.add(fs, titleEtcd, o.Etcd.addFlags)
	o.given.flags[insecure] = o.given.flags[insecureEtcd] // The file may be a sidecar's.
	o.given.addSettings(fs, o.one("probe-timeout", titleEtcd))
}

// AddRolloutFlags registers the flags for a command that decides as a sidecar does, and --config. The
// file may be a sidecar's. Keys that are of no use here are skipped.
func (o *Client) AddRolloutFlags(fs *pflag.FlagSet) {
	o.given.addSettings(fs, o.outside())
	o.given.addFile(fs, titleGeneral)
	sidecar := pflag.NewFlagSet("", pflag.ContinueOnError)
	NewSidecar().AddFlags(sidecar)
	o.given.foreign = func(key string) bool { return key != "config" && sidecar.Lookup(key) != nil }
}

// Load reads the file that --config names, if any. Complete does so as well. Its error has one line for
// every bad key.
func (o *Client) Load() error { return o.given.load() }

// Complete reads the file, and fills in what follows from the environment, the kubeconfig and other
// values.
func (o *Client) Complete(getenv func(string) string) error {
	if err := o.Load(); err != nil {
		return err
	}
	o.Kubernetes.complete(getenv)
	return nil
}

// Validate returns every bad value, one line each, with its flag and what to do about it.
func (o *Client) Validate() error {
	name := o.given.name
	return errors.Join(o.Etcd.validate(name), o.Kubernetes.validate(name), o.ValidateRollout())
}

// ValidateRollout does this for the policy, the timeouts and the names of containers only. Nothing else
// matters where nothing is reached, as for a plan from files.
func (o *Client) ValidateRollout() error {
	// How long a person far away waits for an answer has nothing to do with a sidecar's policy. So that is judged as
	// if an answer took no time.
	policy := o.Rollout
	policy.ProbeTimeout, policy.Interval = 0, 0
	return errors.Join(policy.outside().Check(o.given.called),
		o.one("probe-timeout", titleEtcd).Check(o.given.called),
		o.one("request-timeout", titleKubernetes).Check(o.given.called),
		o.Kubernetes.validateNames(o.given.name))
}

// PolicyGiven is true if the command line says anything of the policy, by itself or in a file. Who says nothing wants
// to decide as the coordinator does.
func (o *Client) PolicyGiven() bool {
	return o.given.path != "" || slices.ContainsFunc(o.outside(), func(s settings.Setting) bool {
		flag := o.given.flags[s.Name]
		return s.Scope == settings.Decides && flag != nil && flag.Changed
	})
}

// Config returns how to reach the cluster, in the form that a coordinator takes. Call it after Complete
// and Validate.
func (o *Client) Config(userAgent string, log *logrus.Entry) (coordinator.Config, error) {
	return config(&o.Kubernetes, &o.Etcd, &o.Rollout, userAgent, log)
}
