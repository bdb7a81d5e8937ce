package coordinator

import (
	"errors"
	"fmt"
	"time"

	"github.com/quorate/quorate/internal/record"
	"github.com/quorate/quorate/internal/rollout"
)

// apiRoom is what MaxEvidenceAge has to leave, beside an observation of members that hang, for the
// requests to the Kubernetes API, which are sent one after the other. An eviction takes seven: the
// Lease, the StatefulSet and the pods are read, a dry run asks whether the eviction would be granted,
// the intent is recorded, the pod is read once more, and it is evicted. So each of them may take 280
// milliseconds, as it does with a busy API server.
const apiRoom = 2 * time.Second

// minDefragment is enough for a database of some megabytes.
const minDefragment = 10 * time.Second

// CheckNumbers returns an error for every number and duration that is out of bounds by itself
// or against another one, one line each. It takes the fields as they are: zero is a value and
// does not stand for a default. [New] checks the same after it has filled in the defaults.
//
// Each line begins with the name of the field, such as LockTTL or Policy.DeadAfter, and its
// value. name translates the field's name, so that a host can name its own flags or keys
// instead. With a nil name the fields' names stay as they are.
func (c Config) CheckNumbers(name func(field string) string) error {
	if name == nil {
		name = func(field string) string { return field }
	}
	var errs []error
	require := func(ok bool, field string, value any, format string, args ...any) {
		if !ok {
			errs = append(errs, fmt.Errorf("%s: %v: %s", name(field), value, fmt.Sprintf(format, args...)))
		}
	}
	probe, interval, settle := name("ProbeTimeout"), name("Interval"), name("Policy.SettleTimeout")
	// A cycle asks for the member list and then probes; either takes a whole timeout when
	// a member hangs.
	cycle := 2*c.ProbeTimeout + c.Interval

	require(c.Policy.MaxUnavailable.Number >= 1, "Policy.MaxUnavailable", c.Policy.MaxUnavailable,
		"must be at least 1, or nothing could ever be replaced")
	require(c.Policy.Partition >= 0, "Policy.Partition", c.Policy.Partition, "must not be negative")
	// It must last for two observations. Otherwise a pod that has not settled in the first
	// would count as failing in the second and hold the rollout.
	require(c.Policy.SettleTimeout > 0, "Policy.SettleTimeout", c.Policy.SettleTimeout, "must be positive")
	require(c.Policy.SettleTimeout <= 0 || c.Policy.SettleTimeout > cycle, "Policy.SettleTimeout",
		c.Policy.SettleTimeout,
		"must exceed %v, a cycle with members that hang (twice %s and %s), or a pod would count as failing at the "+
			"second look", cycle, probe, interval)
	require(c.Policy.DeadAfter >= 0, "Policy.DeadAfter", c.Policy.DeadAfter, "must not be negative")
	require(c.Policy.SettleTimeout <= 0 || c.Policy.DeadAfter < c.Policy.SettleTimeout, "Policy.DeadAfter",
		c.Policy.DeadAfter,
		"must be below %s (%v), or patience ends before a container that ended counts as dead", settle,
		c.Policy.SettleTimeout)
	require(c.Policy.LeavingPatience >= 0, "Policy.LeavingPatience", c.Policy.LeavingPatience, "must not be negative")
	require(c.Policy.GhostAfter > 0, "Policy.GhostAfter", c.Policy.GhostAfter,
		"must be positive, or a member that was added a moment ago would count as a ghost")
	require(c.Policy.MaxLag > 0, "Policy.MaxLag", c.Policy.MaxLag,
		"must be positive, or no survivor ever counts as caught up")

	require(c.Policy.DefragmentTimeout >= minDefragment && c.Policy.DefragmentTimeout <= record.LongestCall,
		"Policy.DefragmentTimeout", c.Policy.DefragmentTimeout,
		"must be between %v and %v: every coordinator waits that long for a defragmentation of which nobody "+
			"knows the end",
		minDefragment, record.LongestCall)
	require(!c.Policy.DefragmentWhen.On() || c.Policy.DefragmentWindow != (rollout.Window{}), "Policy.DefragmentWhen",
		c.Policy.DefragmentWhen, "needs %s, the time of day at which a defragmentation may begin",
		name("Policy.DefragmentWindow"))

	require(c.LockTTL >= 2*time.Second && c.LockTTL%time.Second == 0, "LockTTL", c.LockTTL,
		"must be whole seconds, at least 2s: etcd counts leases in seconds and grants none below")
	// A keep-alive follows the last answer after a third of the TTL, so two thirds are left for
	// its own. If that were less than a probe's timeout, a sidecar connected to a slow member
	// that still counts as serving would lose the lock again and again. Safety does not depend
	// on it, only progress.
	require(c.LockTTL < 2*time.Second || 2*c.LockTTL >= 3*c.ProbeTimeout, "LockTTL", c.LockTTL,
		"two thirds of it must cover %s (%v), or keep-alives over a slow member come too late and the lock is lost",
		probe, c.ProbeTimeout)
	require(c.ProbeTimeout > 0, "ProbeTimeout", c.ProbeTimeout, "must be positive")
	require(c.RequestTimeout > 0, "RequestTimeout", c.RequestTimeout, "must be positive")
	require(c.Interval > 0, "Interval", c.Interval, "must be positive")
	// A failed keep-alive is repeated after half a second.
	require(c.FallbackAfter >= retryEtcd, "FallbackAfter", c.FallbackAfter,
		"must be at least %v: every sidecar has etcd confirm its session twice as often, "+
			"and without an answer for that long it may go on without the lock", retryEtcd)
	// It is renewed every third of that, so two thirds are left for a cycle. With the lock even more is left.
	require(c.RecordDuration >= 3*time.Second && c.RecordDuration%time.Second == 0, "RecordDuration", c.RecordDuration,
		"must be whole seconds, at least 3s")
	require(c.RecordDuration < 3*time.Second || 2*c.RecordDuration >= 3*cycle, "RecordDuration", c.RecordDuration,
		"two thirds of it must cover %v, a cycle with members that hang (twice %s and %s), or the record lapses "+
			"while its holder lives", cycle, probe, interval)
	require(c.MaxEvidenceAge >= 2*c.ProbeTimeout+apiRoom, "MaxEvidenceAge", c.MaxEvidenceAge,
		"must be at least %v: twice %s (%v), since a member that is new on the list is probed after it, and %v for "+
			"the requests to the Kubernetes API before and after; or the evidence could always be too old",
		2*c.ProbeTimeout+apiRoom, probe, c.ProbeTimeout, apiRoom)
	return errors.Join(errs...)
}
