package record

import (
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"

	"github.com/quorate/quorate/pkg/rollout"
)

// Annotations of the Lease, beside the operator's controls.
const (
	// IntentAnnotation holds the one operation under way, as JSON (see [Intent]). A claimed
	// Lease always has it, so that a Lease from which somebody deleted it is not taken for one
	// with nothing under way.
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

// The versions of the format. Whoever reads a newer one than it knows leaves the record alone: it
// cannot know what an intent means there.
const (
	// Schema is the version of a record that names no operation on a member.
	Schema = 1
	// Newest is the version that knows presumed and blocking operations, and suspects. It is written
	// only while one of them stands on the record, so that an older sidecar can coordinate at any
	// other time.
	Newest = 2
)

// Name is the name of a StatefulSet's Lease.
func Name(statefulSet string) string { return "quorate-" + statefulSet }

// Record is what a Lease says. The zero value is that of a Lease that does not exist.
type Record struct {
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
	// Suspect is a member that may be removed at any moment by a presumed operation that is not
	// repeated any more, nil when there is none.
	Suspect *Member
}

// Exists is true when there is a Lease.
func (l Record) Exists() bool { return l.ResourceVersion != "" }

// Parse reads the record from a Lease; nil is a Lease that does not exist. It never
// fails: an intent that cannot be read may name any pod, so it counts as one about all
// of them.
func Parse(lease *coordinationv1.Lease) Record {
	if lease == nil {
		return Record{}
	}
	l := Record{ResourceVersion: lease.ResourceVersion}
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
		l.Intent, l.Suspect = parseIntent(text)
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
		return Newest + 1
	}
	return n
}

// written is what the annotation says: the intent, and beside it the suspect.
type written struct {
	Intent
	Suspect *Member `json:"suspect,omitempty"`
}

// noOperation is how [None] is written.
const noOperation Operation = "none"

func parseIntent(text string) (Intent, *Member) {
	if text == nothing {
		return Intent{}, nil
	}
	var w written
	if err := json.Unmarshal([]byte(text), &w.Intent); err != nil {
		return Intent{Operation: FenceAll}, nil
	}
	if strings.Contains(text, `"suspect"`) {
		if err := json.Unmarshal([]byte(text), &w); err != nil {
			return Intent{Operation: FenceAll}, nil
		}
	}
	switch {
	case !w.Suspect.tells(): // It may be about any member, but none that somebody of ours has suspected.
		return Intent{Operation: FenceAll}, nil
	case w.Operation == noOperation && w.Suspect != nil:
		return Intent{}, w.Suspect
	case w.Operation != FenceAll && kindOf(w.Operation).complete(&w.Intent):
		return w.Intent, w.Suspect
	}
	return Intent{Operation: FenceAll}, w.Suspect
}

// text is how the annotation is written.
func (l *Record) text() string {
	w := written{Intent: l.Intent, Suspect: l.Suspect}
	if l.Intent.Operation == None {
		if l.Suspect == nil {
			return nothing
		}
		w.Operation = noOperation
	}
	text, _ := json.Marshal(w) // Strings and numbers always encode.
	return string(text)
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
	switch {
	case i.Operation == None:
		return "nothing"
	case i.Operation == FenceAll:
		return "any pod's removal"
	case i.Member != nil:
		return fmt.Sprintf("%s %s (ID %x)", i.Operation, i.Member.Label(), i.Member.ID)
	}
	return fmt.Sprintf("%s %s (UID %s, resourceVersion %s)", i.Operation, i.Pod, i.UID, i.ResourceVersion)
}
