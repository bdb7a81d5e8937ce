package coordinator

import (
	"slices"
	"strconv"
	"time"

	"k8s.io/apimachinery/pkg/util/validation"

	"github.com/quorate/quorate/coordinator/election"
	"github.com/quorate/quorate/internal/record"
	"github.com/quorate/quorate/internal/settings"
	"github.com/quorate/quorate/pkg/rollout"
)

// apiRoom is what MaxEvidenceAge has to leave, beside an observation of members that hang, for the
// requests to the Kubernetes API, which are sent one after the other. An eviction takes seven: the
// Lease, the StatefulSet and the pods are read, a dry run asks whether the eviction would be granted,
// the intent is recorded, the pod is read once more, and it is evicted. So each of them may take 280
// milliseconds, as it does with a busy API server.
const apiRoom = 2 * time.Second

// minDefragment is enough for a database of some megabytes.
const minDefragment = 10 * time.Second

// Settings are everything in the configuration that an operator may choose: a row for each, with its default, its
// help, and the rules that its present value has to obey. Flags, files and the reference page are made from these
// rows (see package options), and [New] checks the same rules. A host that offers settings in a way of its own can
// make that from them too.
//
// The help must not name other flags, because a host shows them under a prefix. The rules may: they write
// {lock-ttl}, and an error shows that under the name that its reader knows.
func (c *Config) Settings() settings.Table {
	return slices.Concat(c.policySettings(), c.defragmentSettings(), c.timingSettings(), c.reportingSettings())
}

// cycle is how long a look takes when members hang: it asks for the member list and then probes, either takes a whole
// timeout, and the next look follows after the interval.
func (c *Config) cycle() time.Duration { return 2*c.ProbeTimeout + c.Interval }

// policySettings decide about a removal. The reasons for their defaults are told at length at [DefaultPolicy].
func (c *Config) policySettings() settings.Table {
	must, p, byDefault := settings.Must, &c.Policy, DefaultPolicy()
	return settings.Table{
		{
			Name: "max-unavailable", Field: settings.At(&p.MaxUnavailable, byDefault.MaxUnavailable),
			Unit: "number|percentage", Group: settings.Policy, Scope: settings.Decides,
			Help: "how many members, or what percentage of the replicas (rounded down, at least 1), may be " +
				"unavailable at once during a rollout; quorum is kept whatever this says",
			Why:  "three members can spare one",
			Host: "how much the users of the cluster can bear",
			Rules: []settings.Rule{
				must(p.MaxUnavailable.Number >= 1, "must be at least 1, or nothing could ever be replaced"),
			},
		},
		{
			Name: "removal", Field: settings.At(&p.Removal, byDefault.Removal),
			Unit: "delete|evict", Group: settings.Policy, Scope: settings.Decides,
			Help: "how a Ready pod is removed; evict asks the PodDisruptionBudget, as a drain does, so that only " +
				"one of the two takes a pod, and needs create on pods/eviction; delete asks no budget, so a drain " +
				"may take a second pod before the budget has noticed the first; a pod that is not Ready is always " +
				"deleted",
			Why:  "evict, because only a budget can decide between a rollout and a drain",
			Host: "which permission was granted, and whether there is a disruption budget",
		},
		{
			Name: "trusted-members", Field: settings.At(&p.TrustedMembers, byDefault.TrustedMembers),
			Group: settings.Policy, Scope: settings.Decides,
			Help: "names of voters without a pod among this StatefulSet's ordinals that will stay " +
				"while one of its members is removed",
			Why: "none, because they may go without asking Quorate; for members of another StatefulSet, roll only " +
				"one of the two at a time",
			Rules: []settings.Rule{must(!slices.Contains(p.TrustedMembers, ""),
				"has an empty name; separate names by one comma")},
		},
		{
			Name: "allow-volatile-data", Field: settings.At(&p.AllowVolatileData, byDefault.AllowVolatileData),
			Group: settings.Policy, Scope: settings.Decides,
			Help: "permit removals that leave fewer than a quorum of voters with data if the data volume is not " +
				"persistent",
			Why: "off, because that is how data is lost",
		},
		{
			Name: "hold-before-last", Field: settings.At(&p.HoldBeforeLast, byDefault.HoldBeforeLast),
			Group: settings.Policy, Scope: settings.Decides,
			Help: "in a rollout to another minor version of etcd, hold before the last member of the old version " +
				"goes, until 'quorate resume': once it is gone, there is no way back to the old version; a single " +
				"member is the last one",
			Why: "off, because a rollout should end by itself",
		},
		{
			Name: "settle-timeout", Field: settings.At(&p.SettleTimeout, byDefault.SettleTimeout),
			Group: settings.Policy, Scope: settings.Decides,
			Help: "how long an updated pod may take to settle before it counts as failing and holds the rollout; " +
				"also how long lost quorum is left to recover by itself",
			Why:  "enough to load 8 GiB and catch up",
			Host: "how much data a member has to load",
			Rules: []settings.Rule{
				must(p.SettleTimeout > 0, "must be positive"),
				// It must last for two observations. Otherwise a pod that has not settled in the first
				// would count as failing in the second and hold the rollout.
				must(p.SettleTimeout <= 0 || p.SettleTimeout > c.cycle(),
					"must exceed %v, a cycle with members that hang (twice {probe-timeout} and {interval}), or a pod "+
						"would count as failing at the second look", c.cycle()),
			},
		},
		{
			Name: "dead-after", Field: settings.At(&p.DeadAfter, byDefault.DeadAfter),
			Group: settings.Policy, Scope: settings.Decides,
			Help: "how long an etcd container may stay terminated before its member counts as dead",
			Why:  "a kubelet's first back-off: a container that merely restarted is running again by then",
			Rules: []settings.Rule{
				must(p.DeadAfter >= 0, "must not be negative"),
				must(p.SettleTimeout <= 0 || p.DeadAfter < p.SettleTimeout,
					"must be below {settle-timeout} (%v), or patience ends before a container that ended counts as "+
						"dead", p.SettleTimeout),
			},
		},
		{
			Name: "leaving-patience", Field: settings.At(&p.LeavingPatience, byDefault.LeavingPatience),
			Group: settings.Policy, Scope: settings.Decides,
			Help: "how long no serving member is removed while the node of another one is cordoned, because a drain " +
				"may follow; each coordinator counts from when it first sees the cordon; a pod that others have " +
				"taken and that does not come back has the same effect, but for at least settle-timeout",
			Why: "enough for a drain to reach that pod; nodes may stay cordoned for days, and after this time the " +
				"pods on them simply go last",
			Rules: []settings.Rule{must(p.LeavingPatience >= 0, "must not be negative")},
		},
		{
			Name: "ghost-after", Field: settings.At(&p.GhostAfter, byDefault.GhostAfter),
			Group: settings.Policy, Scope: settings.Decides,
			Help: "how long a member of etcd without a pod must be silent before it counts as a ghost, which is " +
				"reported, and which remove-member can remove",
			Why: "by then any scaling has finished, and a rebooted node is back",
			Rules: []settings.Rule{must(p.GhostAfter > 0,
				"must be positive, or a member that was added a moment ago would count as a ghost")},
		},
		{
			Name: "max-lag", Field: settings.At(&p.MaxLag, byDefault.MaxLag),
			Unit: "entries", Group: settings.Policy, Scope: settings.Decides,
			Help: "how many log entries a surviving member may be behind when another is removed",
			Why:  "half of what etcd keeps for slow followers, so that none needs a snapshot",
			Rules: []settings.Rule{
				must(p.MaxLag > 0, "must be positive, or no survivor ever counts as caught up")},
		},
		{
			Name: "drain-taints", Field: settings.At(&c.DrainTaints, nil),
			Group: settings.Policy, Scope: settings.Looks,
			Help: "keys of taints that announce that the pods of a node are about to be taken, in addition to those " +
				"of Karpenter, the cluster autoscaler and the clouds' termination handlers; a node with one of them " +
				"counts as cordoned, whatever its pods tolerate, unless the effect is PreferNoSchedule",
			Why: "none, because those are known",
			Rules: settings.Each(c.DrainTaints,
				func(key string) bool { return len(validation.IsQualifiedName(key)) == 0 },
				"is not the key of a taint, such as example.com/drain; give it without value and effect, and "+
					"separate keys by one comma"),
		},
	}
}

// defragmentSettings decide about a defragmentation.
func (c *Config) defragmentSettings() settings.Table {
	must, p, byDefault := settings.Must, &c.Policy, DefaultPolicy()
	return settings.Table{
		{
			Name: "defragment-when", Field: settings.At(&p.DefragmentWhen, byDefault.DefragmentWhen),
			Unit: "on|off|numbers", Group: settings.Policy, Scope: settings.Decides,
			Help: "when members are defragmented without a request, one at a time and in the window: on " +
				"stands for 45%,200MB,80%, which means that at least 200MB of a database are free, and that is 45% " +
				"of it, or it has reached 80% of its quota",
			Why:  "off, because a member answers nothing meanwhile",
			Host: "whether the host does it already",
			Rules: []settings.Rule{must(!p.DefragmentWhen.On() || p.DefragmentWindow != rollout.Window{},
				"needs {defragment-window}, the time of day at which a defragmentation may begin")},
		},
		{
			Name: "defragment-window", Field: settings.At(&p.DefragmentWindow, byDefault.DefragmentWindow),
			Unit: "time-time", Group: settings.Policy, Scope: settings.Decides,
			Help: "the time of day, in UTC, at which such a defragmentation may begin, such as 02:00-04:00",
			Why:  "none, because only its operator knows when a cluster has little to do",
			Host: "when the cluster has little to do",
		},
		{
			Name: "keep-no-space", Field: settings.At(&p.KeepNoSpace, byDefault.KeepNoSpace),
			Group: settings.Policy, Scope: settings.Decides,
			Help: "leave it to an operator to end an alarm NOSPACE",
			Why: "off: etcd takes no writes then, so the members are defragmented at once, and the alarm is disarmed " +
				"if that has helped",
		},
		{
			Name: "defragment-timeout", Field: settings.At(&p.DefragmentTimeout, byDefault.DefragmentTimeout),
			Group: settings.Policy, Scope: settings.Decides,
			Help: "the longest that a call for a defragmentation may take. Each has 30s, and 1s for every 16MiB of " +
				"the database, so this counts from 7GiB on. Quorate waits for the member even after that time",
			Why: "enough for 8 GiB on a slow disk",
			Rules: []settings.Rule{must(
				p.DefragmentTimeout >= minDefragment && p.DefragmentTimeout <= record.LongestCall,
				"must be between %v and %v: every coordinator waits that long for a defragmentation of which nobody "+
					"knows the end", minDefragment, record.LongestCall)},
		},
		{
			Name: "quota-bytes", Field: settings.At((*size)(&p.QuotaBytes), size(byDefault.QuotaBytes)),
			Unit: "bytes", Group: settings.Policy, Scope: settings.Decides,
			Help: "the quota of etcd's databases, such as 8GiB, if neither the members nor their pods say it: " +
				"etcd before 3.6 does not report it, and its own configuration file cannot be seen",
			Why: "0 is etcd's default of 2GiB",
		},
	}
}

// timingSettings say how long an answer may take, when a coordinator looks, and how long others wait for one that
// died. The constants have the reasons for the defaults at length.
func (c *Config) timingSettings() settings.Table {
	must := settings.Must
	return settings.Table{
		{
			Name: "probe-timeout", Field: settings.At(&c.ProbeTimeout, DefaultProbeTimeout), Group: settings.Timing,
			Help: "how long an etcd member may take to answer before it counts as not serving",
			Why: "a healthy one takes milliseconds; this tells slow from dead across zones and " +
				"under load",
			Rules: []settings.Rule{must(c.ProbeTimeout > 0, "must be positive")},
		},
		{
			Name: "request-timeout", Field: settings.At(&c.RequestTimeout, DefaultRequestTimeout),
			Group: settings.Timing,
			Help:  "how long a request to the Kubernetes API may take",
			Why:   "a busy API server answers in that time, and a dead one does not hold a cycle for long",
			Rules: []settings.Rule{must(c.RequestTimeout > 0, "must be positive")},
		},
		{
			Name: "lock-ttl", Field: settings.At(&c.LockTTL, DefaultLockTTL), Group: settings.Timing,
			Help: "how long the lock outlives a coordinator that died, in whole seconds, at least 2s",
			Why: "long enough for a defragmentation or a new etcd leader, and nothing is " +
				"unsafe meanwhile; the sidecars measure it themselves, and the lease in etcd is a day longer, so " +
				"that none expires while a backup is replayed",
			Rules: []settings.Rule{
				must(c.LockTTL >= 2*time.Second && c.LockTTL%time.Second == 0,
					"must be whole seconds, at least 2s: etcd counts leases in seconds and grants none below"),
				// A keep-alive follows the last answer after a third of the TTL, so two thirds are left for
				// its own. If that were less than a probe's timeout, a sidecar connected to a slow member
				// that still counts as serving would lose the lock again and again. Safety does not depend
				// on it, only progress.
				must(c.LockTTL < 2*time.Second || 2*c.LockTTL >= 3*c.ProbeTimeout,
					"two thirds of it must cover {probe-timeout} (%v), or keep-alives over a slow member come too "+
						"late and the lock is lost", c.ProbeTimeout),
			},
		},
		{
			Name: "fallback-after", Field: settings.At(&c.FallbackAfter, DefaultFallbackAfter), Group: settings.Timing,
			Help: "how long an outdated pod waits for a coordinator with a lock in etcd before the sidecars go on " +
				"without one and agree on the Lease instead",
			Why: "short, because a cluster without quorum waits for it, and safety does not depend on it",
			// A failed keep-alive is repeated after half a second.
			Rules: []settings.Rule{must(c.FallbackAfter >= election.Retry,
				"must be at least %v: every sidecar has etcd confirm its session twice as often, and without an "+
					"answer for that long it may go on without the lock", election.Retry)},
		},
		{
			Name: "record-duration", Field: settings.At(&c.RecordDuration, DefaultRecordDuration),
			Group: settings.Timing,
			Help: "how long the Lease may stay unrenewed before a coordinator without a lock may claim it, in whole " +
				"seconds, at least 3s; it is renewed every third of that",
			Why: "enough for a cycle with members that hang; a holder whose lock etcd confirms writes three times as " +
				"much, and renews it after twice as much, because with the lock nobody waits for it",
			// It is renewed every third of that, so two thirds are left for a cycle. With the lock even more is left.
			Rules: []settings.Rule{
				must(c.RecordDuration >= 3*time.Second && c.RecordDuration%time.Second == 0,
					"must be whole seconds, at least 3s"),
				must(c.RecordDuration < 3*time.Second || 2*c.RecordDuration >= 3*c.cycle(),
					"two thirds of it must cover %v, a cycle with members that hang (twice {probe-timeout} and "+
						"{interval}), or the record lapses while its holder lives", c.cycle()),
			},
		},
		{
			Name: "interval", Field: settings.At(&c.Interval, DefaultInterval), Group: settings.Timing,
			Help:  "time between two looks at the cluster during a rollout when no watch reports a change",
			Why:   "no watch reports some changes, such as a member that recovers or a time that has passed",
			Rules: []settings.Rule{must(c.Interval > 0, "must be positive")},
		},
		{
			Name: "max-evidence-age", Field: settings.At(&c.MaxEvidenceAge, DefaultMaxEvidenceAge),
			Group: settings.Timing,
			Help:  "the oldest evidence that a removal may rest on",
			Why: "a look at members that hang takes two probe timeouts, and the requests to the Kubernetes API need " +
				"time too; a member that fails by itself within this age is not noticed",
			Rules: []settings.Rule{must(c.MaxEvidenceAge >= 2*c.ProbeTimeout+apiRoom,
				"must be at least %v: twice {probe-timeout} (%v), since a member that is new on the list is probed "+
					"after it, and %v for the requests to the Kubernetes API before and after; or the evidence could "+
					"always be too old", 2*c.ProbeTimeout+apiRoom, c.ProbeTimeout, apiRoom)},
		},
	}
}

// reportingSettings say what is reported to others. Package options adds the switches of the APIs that a host may or
// may not hand over.
func (c *Config) reportingSettings() settings.Table {
	return settings.Table{
		{
			Name: "promote-current-revision", Field: settings.At(&c.PromoteCurrentRevision, false),
			Group: settings.Reporting,
			Help: "set status.currentRevision when a rollout completes, which Kubernetes before 1.37 never does " +
				"under OnDelete",
			Why:  "off, because it needs patch on statefulsets/status",
			Host: "which version of Kubernetes it is, and whether druid waits for this",
		},
	}
}

// size is a number of bytes as people write it.
type size int64

// MarshalText writes the bytes.
func (n *size) MarshalText() ([]byte, error) { return []byte(strconv.FormatInt(int64(*n), 10)), nil }

// UnmarshalText reads a size such as 8GiB.
func (n *size) UnmarshalText(text []byte) error {
	bytes, err := rollout.ParseSize(string(text))
	if err == nil {
		*n = size(bytes)
	}
	return err
}
