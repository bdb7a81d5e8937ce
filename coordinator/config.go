package coordinator

import (
	"context"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/sirupsen/logrus"
)

// Defaults of a [Config], each with its reason.
const (
	// DefaultLockTTL is how long the lock of a coordinator that died outlives it. The rollout
	// only stands still meanwhile; nothing is unsafe. Ten seconds ride out a defragmentation or
	// a change of etcd's leader without a needless change of coordinator.
	DefaultLockTTL = 10 * time.Second
	// DefaultProbeTimeout bounds each question to a member. A healthy member answers
	// in milliseconds; two seconds tell slow from dead across zones and under load.
	DefaultProbeTimeout = 2 * time.Second
	// DefaultRequestTimeout bounds each request to the Kubernetes API.
	DefaultRequestTimeout = 10 * time.Second
	// DefaultInterval is the pace of cycles during a rollout, for what no watch
	// reports: a member that recovers, an age that passes.
	DefaultInterval = time.Second
	// DefaultMaxEvidenceAge is the oldest evidence a removal may rest on: an observation of members
	// that hang takes two probe timeouts at most, and two seconds are left for the requests to the
	// Kubernetes API that belong to a removal.
	DefaultMaxEvidenceAge = 6 * time.Second
	// DefaultFallbackAfter is how long an outdated pod waits for a coordinator with a lock
	// before the sidecars go on without one. It is short, because safety does not depend on it
	// and a cluster without quorum waits for us. The first removal should follow the change of
	// the template within three seconds, also if quorum was lost only then. Where etcd has been silent
	// for as long as this before, a quarter of it is enough for the owner of the lock, if there is one.
	DefaultFallbackAfter = 2 * time.Second
	// DefaultRecordDuration is how long the record of a coordinator that died without a lock stands in
	// the way of another. With the lock nobody waits for it. It is renewed every third of that during
	// a rollout. A coordinator whose lock etcd confirms writes three times as much, and renews it after
	// twice as much, which is half a minute: that costs the API server a sixth.
	DefaultRecordDuration = 15 * time.Second
)

// Config is what a host hands over. Fields without a default are required.
type Config struct {
	// Namespace and StatefulSet name the workload.
	Namespace, StatefulSet string
	// PodName is the coordinator's own pod, so that it goes last. Empty outside a
	// member's pod (a Job, a laptop).
	PodName string

	// Dial opens etcd clients. The host owns TLS, its rotation and authentication.
	Dial Dial
	// Endpoints are URLs of any members of the cluster; the others are found
	// through the member list.
	Endpoints []string

	// StatefulSets and Pods are the Kubernetes API for Namespace.
	StatefulSets StatefulSets
	Pods         Pods
	// Budgets is the Kubernetes API for PodDisruptionBudgets in Namespace. The one that has the StatefulSet's name is
	// watched during a rollout, to evict as soon as it allows that. Without that, the API server is asked by a dry run
	// before each eviction. One is read only where it refuses the eviction of a single member. If it needs more pods
	// than that one, it protects nothing, and the pod is deleted. Without Budgets the rollout of such a member holds.
	// (Etcd-druid writes such a budget.)
	Budgets Budgets
	// Nodes is the Kubernetes API for nodes; nil means that none is read. Only those of the StatefulSet's pods are,
	// by name, to see a drain before it evicts. It needs get and watch on nodes. Without that permission the
	// coordinator says so once, and goes by the pods' own signs.
	Nodes Nodes
	// DrainTaints are the keys of taints by which a node counts as one that others are about to take, beside those of
	// the drainers that Quorate knows. It needs Nodes.
	DrainTaints []string
	// Leases is the Kubernetes API for Leases in Namespace: the record and the operator's
	// controls are kept on the Lease quorate-<statefulset>.
	Leases Leases
	// Names tie pods to containers and members; the zero value means etcd-druid's.
	Names Names

	// Policy is what the operator chose; the zero value means [DefaultPolicy].
	Policy Policy
	// Gates are the host's own checks, which all have to pass before a serving member is
	// removed; empty means none.
	Gates []Gate

	// LockTTL is how long the lock of a coordinator that died outlives it: whole seconds, at
	// least two. The other sidecars see from the remaining time of its lease whether it has
	// passed. etcd itself ends the lease a day later, so that none expires while a backup is
	// replayed.
	LockTTL time.Duration
	// ProbeTimeout bounds each question to an etcd member.
	ProbeTimeout time.Duration
	// RequestTimeout bounds each request to the Kubernetes API.
	RequestTimeout time.Duration
	// Interval is the time between cycles during a rollout when nothing is reported.
	Interval time.Duration
	// MaxEvidenceAge bounds the time from the beginning of an observation to the end of the
	// removal that rests on it.
	MaxEvidenceAge time.Duration

	// FallbackAfter is how long an outdated pod waits, while etcd confirms no lock, before the
	// record is claimed by the clock.
	FallbackAfter time.Duration
	// RecordDuration is how long the record may stand unrenewed before another
	// coordinator without a lock may claim it; whole seconds, at least three. A holder whose lock etcd
	// confirms writes three times as much. So if it dies together with the quorum, another waits that long.
	RecordDuration time.Duration
	// Version is what the host calls its own version; the sidecars tell each other. The metric quorate_build_info
	// has it where the linker does not know that of Quorate's module.
	Version string

	// Events is the Kubernetes API for events in Namespace, where every removal, change of
	// leader, hand-over, hold that lasts, override and completion is reported; nil means no
	// events.
	Events Events
	// Metrics is where the host collects metrics: [New] registers them and the end of
	// [Coordinator.Run] takes them out again. nil means none; nothing is ever registered
	// globally.
	Metrics prometheus.Registerer
	// PromoteCurrentRevision sets the StatefulSet's status.currentRevision when a rollout is
	// complete. Before Kubernetes 1.37 nothing sets it under OnDelete (kubernetes#73492), and
	// etcd-druid takes that for a rollout that is still going on. It needs the permission to
	// patch statefulsets/status.
	PromoteCurrentRevision bool

	// Log receives one line per change of decision; nil discards them.
	Log *logrus.Entry

	// wall is the wall clock, which goes on while a machine is suspended. Tests set it.
	wall func() time.Time
	// connect opens a plain TCP connection to see whether it is refused. Tests without a network play it.
	connect func(ctx context.Context, address string) error
}
