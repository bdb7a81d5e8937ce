package options

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"

	"github.com/spf13/pflag"
	"k8s.io/client-go/rest"

	"github.com/quorate/quorate/coordinator"
)

// Hosted holds the options of a host that embeds package coordinator: a toggle, and those of [Rollout].
// As flags they have a prefix that keeps them apart from the host's own. In the host's configuration file
// they are a section of their own (see [Hosted.UnmarshalJSON]).
//
// Call [NewHosted] and AddFlags before the command line is parsed, and then Validate. If Enabled, call
// Config, or ApplyTo if the host has its own way to everything else. There is nothing to complete, so
// it does not matter whether a host validates before it completes its options, as etcd-backup-restore
// does, or after that.
type Hosted struct {
	// Enabled is --enable-quorum-aware-pod-updates. While it is false, nothing else is read or checked,
	// because a feature that is off must not keep a host from starting.
	Enabled bool
	Rollout
	given given
}

// NewHosted returns the defaults.
func NewHosted() *Hosted {
	return &Hosted{Rollout: NewRollout(), given: given{prefix: "pod-update-"}}
}

// AddFlags registers --enable-quorum-aware-pod-updates, all flags of a rollout as --pod-update-…, and
// --pod-update-config for a file that can set them instead. The host's help shows only a few of them.
// The others are hidden, and work all the same.
func (o *Hosted) AddFlags(fs *pflag.FlagSet) {
	fs.BoolVar(&o.Enabled, "enable-quorum-aware-pod-updates", o.Enabled,
		"replace outdated pods of the StatefulSet without losing etcd's quorum, once its update strategy is OnDelete "+
			"(off, because it needs that strategy and the permission to remove pods)")
	o.given.addFile(fs, noTitle)
	rows := o.table()
	for i := range rows {
		rows[i].Group = noTitle
	}
	o.given.addSettings(fs, rows)
	for i := range rows {
		o.given.flags[rows[i].Name].Hidden = rows[i].Host == ""
	}
}

// Validate reads the file that --pod-update-config names, if any. It returns every bad value, one line
// each, with its flag or key and what to do about it.
func (o *Hosted) Validate() error {
	if !o.Enabled {
		return nil
	}
	if err := o.given.load(); err != nil {
		return err
	}
	return o.table().Check(o.given.called)
}

// Config returns what the options, the pod and its ServiceAccount say: which pod this is and which
// StatefulSet it belongs to (see [PodFromEnv]), the way to the Kubernetes API, and what is to be done
// there. The host adds Dial and Endpoints, and whatever else it has. getenv is os.Getenv, and rc is
// usually that of [rest.InClusterConfig].
//
// It makes four typed clients, which cost a binary much less than a whole clientset. They share one
// connection, and throttle nothing: there are few requests, and none may queue behind another.
//
// Errors name what is missing, one line each, and what to do about it.
func (o *Hosted) Config(getenv func(string) string, rc *rest.Config) (coordinator.Config, error) {
	errs := []error{o.Validate()}
	namespace, pod := PodFromEnv(getenv)
	if namespace == "" {
		errs = append(errs, errors.New("POD_NAMESPACE: is not set; let the container have it from the field "+
			"metadata.namespace"))
	}
	set := StatefulSetOf(pod)
	if set == "" {
		errs = append(errs, fmt.Errorf("POD_NAME: %q: does not end in an ordinal, as etcd-main-0 does; let the "+
			"container have it from the field metadata.name", pod))
	}
	if err := errors.Join(errs...); err != nil {
		return coordinator.Config{}, err
	}
	cfg := coordinator.Config{Namespace: namespace, StatefulSet: set, PodName: pod}
	rc = rest.CopyConfig(rc)
	fitForCycles(rc)
	if err := setClients(&cfg, rc); err != nil {
		return coordinator.Config{}, fmt.Errorf("the Kubernetes API: %w", err)
	}
	o.ApplyTo(&cfg)
	return cfg, nil
}

// enabled is the toggle's key in a host's configuration file.
const enabled = "enabled"

// inJSON are the options as a host's configuration file has them: the flags by their keys.
func (o *Hosted) inJSON() map[string]*pflag.Flag {
	fs := pflag.NewFlagSet("", pflag.ContinueOnError)
	fs.BoolVar(&o.Enabled, enabled, o.Enabled, "")
	flags := map[string]*pflag.Flag{enabled: fs.Lookup(enabled)}
	for _, row := range o.table() {
		register(fs, &row)
		flags[row.Camel()] = fs.Lookup(row.Name)
	}
	return flags
}

// MarshalJSON writes all options, in the form that UnmarshalJSON reads.
func (o Hosted) MarshalJSON() ([]byte, error) {
	values := map[string]any{}
	for key, flag := range o.inJSON() {
		values[key] = valueOf(flag)
	}
	return json.Marshal(values)
}

// UnmarshalJSON reads the options from a section of the host's configuration file, in JSON or in what
// sigs.k8s.io/yaml makes of YAML:
//
//	enabled: true
//	maxUnavailable: 1
//	removal: evict
//	settleTimeout: 5m
//
// The keys are the flags' names less their prefix, in the form lockTTL instead of lock-ttl. The toggle is
// enabled. Durations are texts such as 30s. What is not mentioned keeps its value, which is the default
// in a Hosted that is new or zero. A key that nobody knows is skipped, as etcd-backup-restore skips it in
// the rest of its file: an older sidecar has to start with the file of a newer one.
func (o *Hosted) UnmarshalJSON(data []byte) error {
	if reflect.ValueOf(o.Rollout).IsZero() {
		*o = Hosted{Enabled: o.Enabled, Rollout: NewRollout(), given: NewHosted().given}
	}
	var values map[string]any
	numbersAsWritten := json.NewDecoder(bytes.NewReader(data))
	numbersAsWritten.UseNumber()
	if err := numbersAsWritten.Decode(&values); err != nil {
		return err
	}
	flags := o.inJSON()
	var errs []error
	for _, key := range slices.Sorted(maps.Keys(values)) {
		flag, ours := flags[key]
		if !ours || values[key] == nil {
			continue
		}
		if err := setValue(flag, values[key]); err != nil {
			errs = append(errs, fmt.Errorf("%s: %w", key, err))
			continue
		}
		o.given.wrote(flag.Name, key)
	}
	return errors.Join(errs...)
}
