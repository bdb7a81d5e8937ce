package options

import (
	"errors"
	"fmt"
	"net"
	"strings"

	"github.com/sirupsen/logrus"
	"github.com/spf13/pflag"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/quorate/quorate/coordinator"
)

// Sidecar holds the flags of a sidecar. Call [NewSidecar], then AddFlags, Complete, Validate and
// Config, in this order.
type Sidecar struct {
	Etcd       Etcd
	Kubernetes Kubernetes
	Log        Log
	Rollout

	// ListenAddress is where /healthz, /metrics and the status page are served, as host:port. The
	// default is empty and serves nothing, because they ask for no password.
	ListenAddress string
	// UntilComplete says that the process is to end when the rollout is complete. It is off by default, and refused in
	// a member's pod, where the kubelet would start the sidecar again. A host has no such flag for the same reason.
	UntilComplete bool

	given given
}

// NewSidecar returns the defaults.
func NewSidecar() *Sidecar {
	log := Log{Level: "info", Format: "text"}
	return &Sidecar{Etcd: newEtcd(), Kubernetes: newKubernetes(), Log: log, Rollout: NewRollout()}
}

// AddFlags registers the flags.
func (o *Sidecar) AddFlags(fs *pflag.FlagSet) {
	o.given.add(fs, titleKubernetes, o.Kubernetes.addFlags)
	o.given.add(fs, titleEtcd, o.Etcd.addFlags)
	o.given.add(fs, titleEtcd, o.Etcd.addEarlier)
	o.given.addSettings(fs, o.table())
	for _, row := range o.table() {
		if row.Host != "" {
			delete(o.given.flags[row.Name].Annotations, rare)
		}
	}
	o.given.add(fs, titlePolicy, func(fs *pflag.FlagSet) {
		fs.BoolVar(&o.UntilComplete, "until-complete", o.UntilComplete,
			"end with exit code 0 when the rollout is complete, whoever completed it; for a Job outside the members' "+
				"pods (off, because a sidecar waits for the next rollout)")
	})
	o.given.add(fs, titleReporting, o.Log.addFlags)
	o.given.add(fs, titleReporting, func(fs *pflag.FlagSet) {
		fs.StringVar(&o.ListenAddress, "listen-address", o.ListenAddress,
			"host:port to serve /healthz, /metrics and a status page on, over plain HTTP; :8090 is every address of "+
				"the pod "+
				"(default: off, because they ask for no password)")
	})
	o.given.addFile(fs, titleGeneral)
}

// Complete reads the file that --config names, if any, and fills in what follows from
// the environment and from other values. Its error has one line for every bad key.
func (o *Sidecar) Complete(getenv func(string) string) error {
	if err := o.given.load(); err != nil {
		return err
	}
	o.Kubernetes.complete(getenv)
	return nil
}

// Validate returns every bad value, one line each, with its flag or its key in the file
// and what to do about it.
func (o *Sidecar) Validate() error {
	name := o.given.name
	errs := []error{
		o.Etcd.validate(name), o.Kubernetes.validate(name), o.Kubernetes.validateNames(name),
		o.table().Check(o.given.called),
	}
	if err := validListenAddress(o.ListenAddress); err != nil {
		errs = append(errs, fmt.Errorf("%s: %q: %w", name("listen-address"), o.ListenAddress, err))
	}
	if pod := o.Kubernetes.PodName; o.UntilComplete && pod != "" && StatefulSetOf(pod) == o.Kubernetes.StatefulSet {
		errs = append(errs, fmt.Errorf("%s: %t: is for a Job outside the members' pods, and %s is one of them "+
			"(%s, or $POD_NAME): its sidecar would be started again after each end", name("until-complete"),
			o.UntilComplete, pod, name("pod-name")))
	}
	return errors.Join(append(errs, o.Log.validate(name))...)
}

func validListenAddress(address string) error {
	if address == "" {
		return nil
	}
	host, port, err := net.SplitHostPort(address)
	switch {
	case err != nil:
		return errors.New("needs a host and a port, such as 127.0.0.1:8090, or :8090 for every address")
	case host != "" && net.ParseIP(host) == nil && len(validation.IsDNS1123Subdomain(strings.ToLower(host))) > 0:
		return fmt.Errorf("%q is neither an IP address nor a host name", host)
	case !validPort(port):
		return fmt.Errorf("port %q is not between 1 and 65535", port)
	}
	return nil
}

// Config returns what a coordinator needs. Call it after Complete and Validate.
func (o *Sidecar) Config(userAgent string, log *logrus.Entry) (coordinator.Config, error) {
	return config(&o.Kubernetes, &o.Etcd, &o.Rollout, userAgent, log)
}
