package record

import (
	"encoding/json"
	"fmt"
	"strconv"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"

	"github.com/quorate/quorate/internal/rollout"
)

// Annotations of the Lease, beside the operator's controls.
const (
	// IntentAnnotation holds the one removal under way, as JSON (see [Intent]). A claimed
	// Lease always has it, so that one from which it was deleted by hand is not taken
	// for one with nothing under way.
	IntentAnnotation = "quorate.dev/intent"
	// SchemaAnnotation holds the version of this format.
	SchemaAnnotation = "quorate.dev/schema"
	// RolloutAnnotation says whether a rollout is under way: from the first claim on, until a
	// coordinator has seen every pod settled. One that ends before that, even though
	// nothing is outdated any more, leaves it to the next one to see that.
	RolloutAnnotation = "quorate.dev/rollout"
	// FencedAnnotation is written to a pod to change its resourceVersion, so that an
	// old removal is refused. Its value only has to be new.
	FencedAnnotation = "quorate.dev/fenced"
)

// Schema is the version of the format that this code writes and understands. Whoever
// reads a newer one leaves the record alone: it cannot know what an intent means there.
const Schema = 1

// Name is the name of a StatefulSet's Lease.
func Name(statefulSet string) string { return "quorate-" + statefulSet }

// Operation is what an intent is about.
type Operation string

const (
	// None says: nothing is under way.
	None Operation = ""
	// Delete removes one pod.
	Delete Operation = "delete"
	// Evict removes one pod through the eviction API.
	Evict Operation = "evict"
	// FenceAll is no removal: any pod may still be the target of one that is not on
	// record any more.
	FenceAll Operation = "fence-all"
)

// Intent is the removal under way. It names the pod exactly as its removal does.
type Intent struct {
	Operation Operation `json:"operation"`
	Pod       string    `json:"pod,omitempty"`
	UID       string    `json:"uid,omitempty"`
	// ResourceVersion is that of the observation that was decided on.
	ResourceVersion string `json:"resourceVersion,omitempty"`
	// Revision is the StatefulSet's update revision then, for whoever reads the record.
	Revision string `json:"revision,omitempty"`
	Epoch    int    `json:"epoch,omitempty"`
}

// Lease is what the record says. The zero value is a Lease that does not exist.
type Lease struct {
	// ResourceVersion is empty when there is no Lease.
	ResourceVersion string
	// Schema is the version of the format; 0 when nobody has claimed the Lease yet.
	Schema int
	// Holder is the coordinator's identity, empty when there is none.
	Holder string
	// Epoch numbers the claims.
	Epoch int
	// Duration is how long the holder may go without renewing before another may claim
	// the record without the lock.
	Duration time.Duration
	// Rolling: a rollout is under way.
	Rolling bool
	Intent  Intent
}

// Exists is true when there is a Lease.
func (l Lease) Exists() bool { return l.ResourceVersion != "" }

// Parse reads the record from a Lease; nil is a Lease that does not exist. It never
// fails: an intent that cannot be read may name any pod, so it counts as one about all
// of them.
func Parse(lease *coordinationv1.Lease) Lease {
	if lease == nil {
		return Lease{}
	}
	l := Lease{ResourceVersion: lease.ResourceVersion}
	if s := lease.Spec.HolderIdentity; s != nil {
		l.Holder = *s
	}
	if n := lease.Spec.LeaseTransitions; n != nil {
		l.Epoch = int(*n)
	}
	if s := lease.Spec.LeaseDurationSeconds; s != nil {
		l.Duration = time.Duration(*s) * time.Second
	}
	if text, ok := lease.Annotations[SchemaAnnotation]; ok {
		l.Schema = parseSchema(text)
	}
	l.Rolling = lease.Annotations[RolloutAnnotation] == underWay
	if text, ok := lease.Annotations[IntentAnnotation]; ok || l.Schema > 0 {
		l.Intent = parseIntent(text)
	}
	return l
}

// How an intent about nothing, a rollout that is under way and one that is not are written.
const (
	nothing   = `{"operation":"none"}`
	underWay  = "under way"
	noRollout = "none"
)

// parseSchema takes what is not a number for a newer version: this one wrote numbers.
func parseSchema(text string) int {
	n, err := strconv.Atoi(text)
	if err != nil || n < 0 {
		return Schema + 1
	}
	return n
}

func parseIntent(text string) Intent {
	if text == nothing {
		return Intent{}
	}
	var i Intent
	if err := json.Unmarshal([]byte(text), &i); err != nil {
		return Intent{Operation: FenceAll}
	}
	switch i.Operation {
	case Delete, Evict:
		if i.Pod != "" && i.UID != "" && i.ResourceVersion != "" {
			return i
		}
	case None, FenceAll:
	}
	return Intent{Operation: FenceAll}
}

// Controls are the operator's, from the annotations of a Lease; of none there are none.
func Controls(lease *coordinationv1.Lease) rollout.Controls {
	if lease == nil {
		return rollout.Controls{}
	}
	return rollout.ParseControls(lease.Annotations)
}

// String is how an intent reads in a log.
func (i Intent) String() string {
	switch i.Operation {
	case None:
		return "nothing"
	case FenceAll:
		return "any pod's removal"
	case Delete, Evict:
	}
	return fmt.Sprintf("%s %s (UID %s, resourceVersion %s)", i.Operation, i.Pod, i.UID, i.ResourceVersion)
}
