package options

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/pflag"
	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/quorate/quorate/coordinator"
	"github.com/quorate/quorate/internal/rollout"
)

// Rollout is everything about rollouts that can be chosen, and nothing about how etcd and Kubernetes
// are reached.
type Rollout struct {
	Policy coordinator.Policy

	// The fields of the same names of [coordinator.Config].
	LockTTL, FallbackAfter, RecordDuration, ProbeTimeout time.Duration
	RequestTimeout, Interval, MaxEvidenceAge             time.Duration

	// Events says whether Kubernetes events are written. They are on by default, because operators look
	// at events first, and there are few.
	Events bool
	// ReadNodes says whether the nodes of the StatefulSet's pods are read. It is off by default, because it needs a
	// permission of the whole cluster.
	ReadNodes bool
	// DrainTaints is that of [coordinator.Config].
	DrainTaints []string
	// PromoteCurrentRevision says whether status.currentRevision is set when a rollout completes. It is
	// off by default, because it needs a permission on statefulsets/status, and Kubernetes 1.37 does it
	// by itself (kubernetes#73492).
	PromoteCurrentRevision bool
}

// NewRollout returns the defaults.
func NewRollout() Rollout {
	return Rollout{
		Policy:         coordinator.DefaultPolicy(),
		LockTTL:        coordinator.DefaultLockTTL,
		FallbackAfter:  coordinator.DefaultFallbackAfter,
		RecordDuration: coordinator.DefaultRecordDuration,
		ProbeTimeout:   coordinator.DefaultProbeTimeout,
		RequestTimeout: coordinator.DefaultRequestTimeout,
		Interval:       coordinator.DefaultInterval,
		MaxEvidenceAge: coordinator.DefaultMaxEvidenceAge,
		Events:         true,
	}
}

// flagOf names the flag of every field that [coordinator.Config.CheckNumbers] names.
var flagOf = map[string]string{
	"Policy.MaxUnavailable":    "max-unavailable",
	"Policy.SettleTimeout":     "settle-timeout",
	"Policy.DeadAfter":         "dead-after",
	"Policy.LeavingPatience":   "leaving-patience",
	"Policy.MaxLag":            "max-lag",
	"Policy.GhostAfter":        "ghost-after",
	"Policy.DefragmentWhen":    "defragment-when",
	"Policy.DefragmentWindow":  "defragment-window",
	"Policy.DefragmentTimeout": "defragment-timeout",
	"LockTTL":                  "lock-ttl",
	"FallbackAfter":            "fallback-after",
	"RecordDuration":           "record-duration",
	"ProbeTimeout":             "probe-timeout",
	"RequestTimeout":           "request-timeout",
	"Interval":                 "interval",
	"MaxEvidenceAge":           "max-evidence-age",
}

// addPolicy registers the flags that decide about a removal. Their help must not name other flags,
// because a host shows all of them under a prefix.
func (o *Rollout) addPolicy(fs *pflag.FlagSet) {
	fs.Var((*amount)(&o.Policy.MaxUnavailable), "max-unavailable",
		"how many members, or what percentage of the replicas (rounded down, at least 1), may be unavailable at "+
			"once during "+
			"a rollout; three members can spare one, and quorum is kept whatever this says")
	fs.Var((*removal)(&o.Policy.Removal), "removal",
		"how a Ready pod is removed; evict needs create on pods/eviction and asks the PodDisruptionBudget, as a "+
			"drain does, "+
			"so that only one of us takes a pod; delete asks no budget, so a drain may take a second pod before the "+
			"budget "+
			"has noticed the first; a pod that is not Ready is always deleted")
	fs.StringSliceVar(&o.Policy.TrustedMembers, "trusted-members", o.Policy.TrustedMembers,
		"names of voters without a pod in this StatefulSet's ordinals that will stay while one of ours is removed "+
			"(none, because nobody asks us before they go; for members of another StatefulSet, roll only one of the "+
			"two at a time)")
	fs.BoolVar(&o.Policy.AllowVolatileData, "allow-volatile-data", o.Policy.AllowVolatileData,
		"permit removals that leave fewer than a quorum of voters with data where the data volume is not persistent; "+
			"off, because that is how data is lost")
	fs.BoolVar(&o.Policy.HoldBeforeLast, "hold-before-last", o.Policy.HoldBeforeLast,
		"in a rollout to another minor version of etcd, hold before the last member of the old one goes, until "+
			"'quorate resume': after that no template of the old version brings it back (off, because a rollout is to "+
			"end by itself; for a single member it holds before the only one)")
	fs.DurationVar(&o.Policy.SettleTimeout, "settle-timeout", o.Policy.SettleTimeout,
		"how long an updated pod may take to settle before it counts as failing and holds the rollout (enough to "+
			"load 8 GiB "+
			"and catch up); also how long lost quorum is left to recover by itself")
	fs.DurationVar(&o.Policy.DeadAfter, "dead-after", o.Policy.DeadAfter,
		"how long an etcd container may stay terminated before its member counts as dead (a kubelet's first back-off: "+
			"a container that merely restarted is running again by then)")
	fs.DurationVar(&o.Policy.LeavingPatience, "leaving-patience", o.Policy.LeavingPatience,
		"how long no serving member is removed while the node of another one is cordoned, because a drain may follow "+
			"(enough for a drain to come to that pod; nodes may stay cordoned for days, and after this time the pods "+
			"on them just go last); each coordinator counts from when it first sees the cordon; also how long a pod "+
			"holds them that others have taken and that does not come back, but then at least settle-timeout")
	fs.DurationVar(&o.Policy.GhostAfter, "ghost-after", o.Policy.GhostAfter,
		"how long a member of etcd without a pod has to be silent before it counts as a ghost, which is told, and "+
			"which remove-member may remove (by then whoever scales has finished, and a rebooted node is back)")
	fs.Uint64Var(&o.Policy.MaxLag, "max-lag", o.Policy.MaxLag,
		"how many log entries a surviving member may be behind when another is removed (half of what etcd keeps for "+
			"slow "+
			"followers, so that none needs a snapshot)")
}

// addNodes registers whether nodes are read.
func (o *Rollout) addNodes(fs *pflag.FlagSet) {
	fs.BoolVar(&o.ReadNodes, "read-nodes", o.ReadNodes,
		"read the nodes of the StatefulSet's pods, by name: so leadership moves away from a node that is cordoned, "+
			"and no other member is removed meanwhile (off, because it needs get and watch on nodes, see "+
			"deploy/components/nodes; without it the conditions of the pods tell of an eviction, a moment before)")
}

// addDrainTaints registers what a node's taints say, wherever nodes are read.
func (o *Rollout) addDrainTaints(fs *pflag.FlagSet) {
	fs.StringSliceVar(&o.DrainTaints, "drain-taints", o.DrainTaints,
		"keys of taints that announce that the pods of a node are about to be taken, in addition to those of "+
			"Karpenter, the cluster autoscaler and the clouds' termination handlers, which are known (none); a "+
			"node with one of them counts as one that is cordoned, whatever its pods tolerate, unless the effect is "+
			"PreferNoSchedule")
}

// addDefragment registers the flags that decide about a defragmentation.
func (o *Rollout) addDefragment(fs *pflag.FlagSet) {
	fs.Var((*fragmentation)(&o.Policy.DefragmentWhen), "defragment-when",
		"when members are defragmented without being asked for, one at a time and in the window: on stands for "+
			"45%,200MB,80%, which means that at least 200MB of a database are free, and that is 45% of it, or it has "+
			"reached 80% of its quota (off, because a member answers nothing meanwhile)")
	fs.Var((*window)(&o.Policy.DefragmentWindow), "defragment-window",
		"the time of day, in UTC, at which such a defragmentation may begin, such as 02:00-04:00 (none, because "+
			"only its "+
			"operator knows when a cluster has little to do)")
	fs.BoolVar(&o.Policy.KeepNoSpace, "keep-no-space", o.Policy.KeepNoSpace,
		"leave it to an operator to end an alarm NOSPACE (off: etcd takes no writes then, so the members are "+
			"defragmented "+
			"at once, and the alarm is disarmed if that has helped)")
	fs.DurationVar(&o.Policy.DefragmentTimeout, "defragment-timeout", o.Policy.DefragmentTimeout,
		"the longest that a call for a defragmentation may take. Each has 30s, and 1s for every 16MiB of the "+
			"database, so this counts from 7GiB on. The member is waited for also when the time is over")
	fs.Var((*size)(&o.Policy.QuotaBytes), "quota-bytes",
		"the quota of etcd's databases, such as 8GiB, where neither the members nor their pods say it: etcd "+
			"before 3.6 does "+
			"not tell it, and its own configuration file cannot be seen (0 is etcd's default of 2GiB)")
}

// addTimeouts registers how long an answer may take.
func (o *Rollout) addTimeouts(fs *pflag.FlagSet) {
	o.addProbeTimeout(fs)
	o.addRequestTimeout(fs)
}

func (o *Rollout) addProbeTimeout(fs *pflag.FlagSet) {
	fs.DurationVar(&o.ProbeTimeout, "probe-timeout", o.ProbeTimeout,
		"how long an etcd member may take to answer before it counts as not serving (a healthy one takes "+
			"milliseconds; "+
			"this tells slow from dead across zones and under load)")
}

func (o *Rollout) addRequestTimeout(fs *pflag.FlagSet) {
	fs.DurationVar(&o.RequestTimeout, "request-timeout", o.RequestTimeout,
		"how long a request to the Kubernetes API may take (a busy API server answers in that time, and a dead one "+
			"does not "+
			"hold a cycle for long)")
}

// addTiming registers when a coordinator looks, and how long others wait for one that died.
func (o *Rollout) addTiming(fs *pflag.FlagSet) {
	fs.DurationVar(&o.LockTTL, "lock-ttl", o.LockTTL,
		"how long the lock outlives a coordinator that died (whole seconds, at least 2s; long enough for a "+
			"defragmentation "+
			"or a new etcd leader, and nothing is unsafe meanwhile; the sidecars measure it themselves, and the "+
			"lease in etcd "+
			"is a day longer, so that none expires while a backup is replayed)")
	fs.DurationVar(&o.FallbackAfter, "fallback-after", o.FallbackAfter,
		"how long an outdated pod waits for a coordinator with a lock in etcd before the sidecars go on without one "+
			"and agree "+
			"on the Lease instead (short, because a cluster without quorum waits for it, and safety does not depend "+
			"on it)")
	fs.DurationVar(&o.RecordDuration, "record-duration", o.RecordDuration,
		"how long the Lease may stay unrenewed before a coordinator without a lock may claim it (whole seconds, at "+
			"least 3s; it is renewed every third of that; a holder whose lock etcd confirms writes three times as "+
			"much, and renews it after twice as much, because with the lock nobody waits for it)")
	fs.DurationVar(&o.Interval, "interval", o.Interval,
		"time between two looks at the cluster during a rollout when no watch reports a change (some changes no watch "+
			"reports: a member recovers, an age passes)")
	fs.DurationVar(&o.MaxEvidenceAge, "max-evidence-age", o.MaxEvidenceAge,
		"the oldest evidence that a removal may rest on (a look at members that hang takes two probe timeouts, and "+
			"the "+
			"requests to the Kubernetes API need time too; a member that fails by itself within this age is not "+
			"noticed)")
}

// addReporting registers what is reported to others.
func (o *Rollout) addReporting(fs *pflag.FlagSet) {
	fs.BoolVar(&o.Events, "events", o.Events,
		"write Kubernetes events on the StatefulSet: removals, leader moves, hand-overs, holds that "+
			"last, "+
			"completion (needs create and patch on events)")
	fs.BoolVar(&o.PromoteCurrentRevision, "promote-current-revision", o.PromoteCurrentRevision,
		"set status.currentRevision when a rollout completes, which Kubernetes before 1.37 never does under OnDelete "+
			"(off, because it needs patch on statefulsets/status)")
}

func (o *Rollout) addAll(fs *pflag.FlagSet) {
	o.addPolicy(fs)
	o.addNodes(fs)
	o.addDrainTaints(fs)
	o.addDefragment(fs)
	o.addTimeouts(fs)
	o.addTiming(fs)
	o.addReporting(fs)
}

// validate lets the coordinator's own rules judge, under the names of the flags.
func (o *Rollout) validate(name namer) error {
	var cfg coordinator.Config
	o.ApplyTo(&cfg)
	err := cfg.CheckNumbers(func(field string) string {
		if flag, ok := flagOf[field]; ok {
			return name(flag)
		}
		return field
	})
	for _, key := range o.DrainTaints {
		if wrong := validation.IsQualifiedName(key); len(wrong) > 0 {
			err = errors.Join(err, fmt.Errorf("%s: %q: is not the key of a taint, such as example.com/drain; give it "+
				"without value and effect, and separate keys by one comma", name("drain-taints"), key))
		}
	}
	if trusted := o.Policy.TrustedMembers; slices.Contains(trusted, "") {
		return errors.Join(err, fmt.Errorf("%s: %q: has an empty name; separate names by one comma",
			name("trusted-members"), strings.Join(trusted, ",")))
	}
	return err
}

// ApplyTo writes the options into a coordinator's configuration. It takes the APIs for events and nodes away if
// they are off, so set them before.
func (o *Rollout) ApplyTo(cfg *coordinator.Config) {
	cfg.Policy, cfg.DrainTaints = o.Policy, o.DrainTaints
	cfg.LockTTL, cfg.FallbackAfter, cfg.RecordDuration = o.LockTTL, o.FallbackAfter, o.RecordDuration
	cfg.ProbeTimeout, cfg.RequestTimeout = o.ProbeTimeout, o.RequestTimeout
	cfg.Interval, cfg.MaxEvidenceAge = o.Interval, o.MaxEvidenceAge
	cfg.PromoteCurrentRevision = o.PromoteCurrentRevision
	if !o.Events {
		cfg.Events = nil
	}
	if !o.ReadNodes {
		cfg.Nodes = nil
	}
}

// removal reads --removal.
type removal coordinator.Removal

func (r *removal) String() string { return coordinator.Removal(*r).String() }

func (r *removal) Type() string { return "delete|evict" }

func (r *removal) Set(s string) error {
	for _, method := range []coordinator.Removal{coordinator.RemoveByDelete, coordinator.RemoveByEviction} {
		if s == method.String() {
			*r = removal(method)
			return nil
		}
	}
	return errors.New("use delete or evict")
}

// amount reads --max-unavailable.
type amount coordinator.Amount

func (a *amount) String() string { return coordinator.Amount(*a).String() }

func (a *amount) Type() string { return "number|percentage" }

func (a *amount) Set(s string) error {
	parsed, err := coordinator.ParseAmount(s)
	if err == nil {
		*a = amount(parsed)
	}
	return err
}

// fragmentation reads --defragment-when.
type fragmentation rollout.Fragmentation

func (f *fragmentation) String() string { return rollout.Fragmentation(*f).String() }

func (f *fragmentation) Type() string { return "on|off|numbers" }

func (f *fragmentation) Set(s string) error {
	parsed, err := rollout.ParseFragmentation(s)
	if err == nil {
		*f = fragmentation(parsed)
	}
	return err
}

// window reads --defragment-window.
type window rollout.Window

func (w *window) String() string { return rollout.Window(*w).String() }

func (w *window) Type() string { return "time-time" }

func (w *window) Set(s string) error {
	parsed, err := rollout.ParseWindow(s)
	if err == nil {
		*w = window(parsed)
	}
	return err
}

// size reads --quota-bytes.
type size int64

func (n *size) String() string { return strconv.FormatInt(int64(*n), 10) }

func (n *size) Type() string { return "bytes" }

func (n *size) Set(s string) error {
	parsed, err := rollout.ParseSize(s)
	if err == nil {
		*n = size(parsed)
	}
	return err
}
