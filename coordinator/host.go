package coordinator

import (
	"context"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/quorate/quorate/internal/record"
	"github.com/quorate/quorate/internal/report"
	"github.com/quorate/quorate/internal/workload"
	"github.com/quorate/quorate/membership"
	"github.com/quorate/quorate/pkg/rollout"
)

// What a host hands over, under names that it can use. The packages that declare these types
// are internal, so that everything else in them can change.
type (
	// Dial opens an etcd client for the endpoints. The coordinator calls it for every member and
	// again after every failure, and closes the client itself. The host owns TLS, the rotation of
	// certificates and authentication.
	//
	// A host's own factory will do, even one that sets neither a timeout nor a logger. The coordinator
	// never waits for Dial longer than for a probe, closes a client that comes later, and takes the
	// client's logger away. For that it makes the client's Lease, Watcher and Maintenance anew, so the
	// host must not wrap them. Only where etcd asks for a user name does Dial itself send a request.
	// There the host should make the configuration fit: see [FitClientConfig].
	Dial = membership.Dial

	// StatefulSets is what a coordinator uses of the API for StatefulSets in one namespace: Get,
	// Watch, and Patch for [Config.PromoteCurrentRevision] only. A clientset's
	// AppsV1().StatefulSets(namespace) satisfies it.
	StatefulSets = workload.StatefulSets
	// Pods is what a coordinator uses of the API for pods in one namespace: List, Watch, Delete,
	// EvictV1, and Patch, which changes an annotation so that an older removal is refused. A
	// clientset's CoreV1().Pods(namespace) satisfies it.
	Pods = workload.Pods
	// Budgets is what a coordinator uses of the API for PodDisruptionBudgets in one namespace: Get and
	// Watch. A clientset's PolicyV1().PodDisruptionBudgets(namespace) satisfies it.
	Budgets = workload.Budgets
	// Nodes is what a coordinator uses of the API for nodes: Get and Watch, by name. A clientset's
	// CoreV1().Nodes() satisfies it.
	Nodes = workload.Nodes
	// Leases is what a coordinator uses of the API for Leases in one namespace: Get, Watch, Create and
	// Patch. A clientset's CoordinationV1().Leases(namespace) satisfies it.
	Leases interface {
		record.Leases
		Watch(ctx context.Context, opts metav1.ListOptions) (watch.Interface, error)
	}
	// Events is what a coordinator uses of the API for events in one namespace: Create and Patch. A
	// clientset's CoreV1().Events(namespace) satisfies it.
	Events = report.Events

	// Names tie pods to the containers and the etcd members that run in them: EtcdContainer,
	// SidecarContainer, EtcdDataDir and MemberOf. See [workload.Names].
	Names = workload.Names

	// Policy is what the operator chose: MaxUnavailable, Partition, SettleTimeout, DeadAfter,
	// LeavingPatience, MaxLag, TrustedMembers, Removal, AllowVolatileData, HoldBeforeLast, GhostAfter, and what
	// concerns defragmentations. A host that defragments etcd by itself says so in HostDefragments. Start from
	// [DefaultPolicy], because the zero value is not valid. See [rollout.Policy].
	Policy = rollout.Policy
	// Amount is a number of members, or a percentage of the replicas. [ParseAmount] reads one.
	Amount = rollout.Amount
	// Removal is how a Ready pod is removed.
	Removal = rollout.Removal
)

// Gate is one of the host's own checks, such as "the last backup succeeded".
type Gate struct {
	// Name is how people know it; each gate has its own.
	Name string
	// SickToo makes the gate also hold a pod whose sidecar is sick. By default it does not,
	// because it could then block its own cure.
	SickToo bool
	// Ask says whether the gate passes, and in the detail why or why not. It is called at most once for every
	// observation of a rollout, on a goroutine of its own, and never twice at a time. While a rollout waits for
	// something else, or the gate has passed within the last two seconds and nothing was done since it was called, it
	// need not be called. The context ends after 30 s, or when this sidecar does not coordinate any more; Ask must
	// then return.
	//
	// No observation waits for an answer that takes long: until it comes, the last one counts if it
	// is at most 30 s old, and after that the gate does not pass. A gate that ignores its context
	// is not asked again until it has returned, so it does not pass. Run does not wait for it
	// either and leaves its goroutine behind.
	Ask func(ctx context.Context) (pass bool, detail string)
}

// The two ways to remove a Ready pod.
const (
	// RemoveByEviction asks the eviction API, so that a PodDisruptionBudget can refuse. It is the
	// default, because only the budget can arbitrate between a rollout and a drain.
	RemoveByEviction Removal = rollout.RemoveByEviction
	// RemoveByDelete deletes the pod, as the StatefulSet controller does. No budget is asked.
	RemoveByDelete Removal = rollout.RemoveByDelete
)

// BackupReady is the name for a gate that tells whether backups succeed. The status shows that
// gate as the condition of the same name in etcd-druid's proposal DEP-01. If the detail begins with a
// word such as "FullBackupFailed: ", that is the condition's reason. With "Unknown: " a gate that does
// not pass says that it cannot tell.
const BackupReady = report.GateBackup

// DefaultPolicy returns the policy of an operator who chose nothing: one member at a time, by
// eviction. [rollout.DefaultPolicy] gives the reason for each value.
func DefaultPolicy() Policy { return rollout.DefaultPolicy() }

// DefaultNames returns the names that etcd-druid gives its containers.
func DefaultNames() Names { return workload.DefaultNames() }

// ParseAmount reads an [Amount] such as "2" or "40%". The number must be at least 1, because with
// 0 nothing could ever be replaced.
func ParseAmount(s string) (Amount, error) { return rollout.ParseAmount(s) }
