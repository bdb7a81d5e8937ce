package record

import (
	"encoding/json"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	"k8s.io/utils/ptr"

	"github.com/quorate/quorate/pkg/rollout"
)

// What the quorum guard (deploy/components/quorum-guard) goes by. The protocol itself rests on none of it.
const (
	// NeededAnnotation says which pods quorum rests on while something of ours is under way, as JSON. It names the
	// epoch in which it was written. It counts only in that one, and while somebody holds the record: so a release
	// frees the pods, and so does a takeover by a version that does not know this annotation.
	NeededAnnotation = "quorate.dev/needed"
	// ManagedLabel and ManagedBy are the label by which the policy finds the Lease.
	ManagedLabel = "app.kubernetes.io/managed-by"
	ManagedBy    = "quorate"
)

// Needed is what the annotation says. The zero value is that every pod may go.
type Needed struct {
	// During is what is under way, and Since is since when, by the clock of the coordinator.
	During string
	Since  time.Time
	// Pods are the UIDs of the pods, by name.
	Pods map[string]string
}

// neededJSON is how it is written. The policy looks for parts of the text, so the order of the fields matters.
type neededJSON struct {
	Epoch  int               `json:"epoch"`
	During string            `json:"during,omitempty"`
	Since  time.Time         `json:"since,omitzero"`
	Pods   map[string]string `json:"pods,omitempty"`
}

func (n Needed) text(epoch int) string {
	w := neededJSON{Epoch: epoch, During: n.During, Since: n.Since.UTC().Truncate(time.Second), Pods: n.Pods}
	if len(n.Pods) == 0 {
		w = neededJSON{Epoch: epoch}
	}
	text, _ := json.Marshal(w) // Strings and numbers always encode.
	return string(text)
}

// NeededOf reads the annotation as the policy does: it counts only while the record has the holder and the epoch that
// wrote it. What cannot be read names nobody.
func NeededOf(lease *coordinationv1.Lease) Needed {
	if lease == nil || ptr.Deref(lease.Spec.HolderIdentity, "") == "" {
		return Needed{}
	}
	var w neededJSON
	err := json.Unmarshal([]byte(lease.Annotations[NeededAnnotation]), &w)
	if err != nil || w.Epoch != int(ptr.Deref(lease.Spec.LeaseTransitions, 0)) {
		return Needed{}
	}
	return Needed{During: w.During, Since: w.Since, Pods: w.Pods}
}

// After is what is to be written of what a decision needs now. If the same is still under way, it began when n says.
func (n Needed) After(now rollout.Needed, at time.Time) Needed {
	if len(now.Pods) == 0 {
		return Needed{}
	}
	if n.During != now.During || n.Since.IsZero() {
		n.Since = at
	}
	return Needed{During: now.During, Since: n.Since, Pods: now.Pods}
}
