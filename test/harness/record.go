package harness

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/client-go/util/retry"
)

// Annotations of the record, as operators and Quorate write them.
const (
	IntentAnnotation         = "quorate.dev/intent"
	PausedAnnotation         = "quorate.dev/paused"
	PartitionAnnotation      = "quorate.dev/partition"
	MaxUnavailableAnnotation = "quorate.dev/max-unavailable"
	OverrideAnnotation       = "quorate.dev/override-guards"
	NeededAnnotation         = "quorate.dev/needed"
)

// Intent is the operation that the record says is under way: on a pod, or on a member of etcd.
type Intent struct {
	Operation, Pod, UID, ResourceVersion, Revision string
	Epoch                                          int64
	Member                                         struct{ ID, Name string }
}

// RecordState is the record after one of its changes.
type RecordState struct {
	// At is when the change was seen.
	At time.Time
	// Exists is false if the Lease has been deleted. Everything else is then empty.
	Exists bool
	// Holder is the pod that holds the record, or the identity of a holder outside the pods.
	Holder string
	// Epoch counts the claims.
	Epoch int64
	// Intent is nil if nothing is under way.
	Intent *Intent
	// Needed are the UIDs of the pods, by name, that quorum rests on. It is empty where the quorum guard keeps none.
	Needed map[string]string
	// Annotations are all of the Lease's.
	Annotations map[string]string
}

func recordState(lease *coordinationv1.Lease) (RecordState, error) {
	s := RecordState{At: time.Now(), Exists: true, Annotations: lease.Annotations}
	if lease.Spec.HolderIdentity != nil {
		// A pod's UID has no underscore, and neither has its name.
		s.Holder, _, _ = strings.Cut(*lease.Spec.HolderIdentity, "_")
	}
	if lease.Spec.LeaseTransitions != nil {
		s.Epoch = int64(*lease.Spec.LeaseTransitions)
	}
	var needed struct {
		Epoch int64
		Pods  map[string]string
	}
	if text := lease.Annotations[NeededAnnotation]; text != "" {
		if err := json.Unmarshal([]byte(text), &needed); err != nil {
			return s, fmt.Errorf("annotation %s: %q: %w", NeededAnnotation, text, err)
		}
		if needed.Epoch == s.Epoch && s.Holder != "" {
			s.Needed = needed.Pods
		}
	}
	if text := lease.Annotations[IntentAnnotation]; text != "" {
		s.Intent = &Intent{}
		if err := json.Unmarshal([]byte(text), s.Intent); err != nil {
			return s, fmt.Errorf("annotation %s: %q: %w", IntentAnnotation, text, err)
		}
		if s.Intent.Operation == "none" {
			s.Intent = nil // Nothing is under way, and the record says so.
		}
	}
	return s, nil
}

// String is the state in a few words.
func (s RecordState) String() string {
	if !s.Exists {
		return "record deleted"
	}
	text := fmt.Sprintf("epoch %d, held by %q", s.Epoch, s.Holder)
	if s.Intent != nil {
		text += fmt.Sprintf(", about to %s %s%s", s.Intent.Operation, s.Intent.Pod, s.Intent.Member.Name)
	}
	return text
}

// RecordName is the name of the record's Lease.
func (c *Cluster) RecordName() string { return "quorate-" + c.Spec.Name }

// Record reads the record. It is not an error if there is none yet.
func (c *Cluster) Record(ctx context.Context) (RecordState, error) {
	lease, err := c.env.Client.CoordinationV1().Leases(Namespace).Get(ctx, c.RecordName(), metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return RecordState{At: time.Now()}, nil
	}
	if err != nil {
		return RecordState{}, err
	}
	return recordState(lease)
}

// Annotate sets an annotation of the record as an operator does with kubectl; an empty
// value removes it. The Lease is made when there is none yet.
func (c *Cluster) Annotate(ctx context.Context, key, value string) error {
	c.env.Timeline.Note("operator", "annotate lease %s with %s=%q", c.RecordName(), key, value)
	leases := c.env.Client.CoordinationV1().Leases(Namespace)
	err := retry.OnError(retry.DefaultBackoff, func(err error) bool {
		return apierrors.IsConflict(err) ||
			apierrors.IsAlreadyExists(err)
	}, func() error {
		lease, err := leases.Get(ctx, c.RecordName(), metav1.GetOptions{})
		missing := apierrors.IsNotFound(err)
		if missing {
			lease, err = &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Name: c.RecordName(),
				Namespace: Namespace}}, nil
		}
		if err != nil {
			return err
		}
		if value == "" {
			delete(lease.Annotations, key)
		} else {
			metav1.SetMetaDataAnnotation(&lease.ObjectMeta, key, value)
		}
		if missing {
			_, err = leases.Create(ctx, lease, metav1.CreateOptions{})
		} else {
			_, err = leases.Update(ctx, lease, metav1.UpdateOptions{})
		}
		return err
	})
	if err != nil {
		return fmt.Errorf("annotate lease %s with %s=%q: %w", c.RecordName(), key, value, err)
	}
	return nil
}

// DeleteRecord deletes the record's Lease.
func (c *Cluster) DeleteRecord(ctx context.Context) error {
	c.env.Timeline.Note("operator", "delete lease %s", c.RecordName())
	return c.env.Client.CoordinationV1().Leases(Namespace).Delete(ctx, c.RecordName(), metav1.DeleteOptions{})
}

// RecordHistory is what the record went through, from a watch of its own.
type RecordHistory struct {
	stop func()

	mu      sync.Mutex
	states  []RecordState
	err     error
	changed chan struct{} // closed, and replaced, with every state
}

// WatchRecord starts a history. Its first state is the record as it is, if there is one.
// Stop it in the end.
func (c *Cluster) WatchRecord(ctx context.Context) (*RecordHistory, error) {
	h := &RecordHistory{changed: make(chan struct{})}
	leases := c.env.Client.CoordinationV1().Leases(Namespace)
	only := func(o *metav1.ListOptions) {
		o.FieldSelector = fields.OneTermEqualSelector(metav1.ObjectNameField, c.RecordName()).String()
	}
	seen := func(lease *coordinationv1.Lease) {
		state, err := recordState(lease)
		c.env.Timeline.Note("record", "%s", state)
		h.add(state, err)
	}
	stop, err := follow(ctx, c.env.Client, leases.List, leases.Watch, only, &coordinationv1.Lease{},
		handler[*coordinationv1.Lease]{
			seen: func(lease *coordinationv1.Lease, _ bool) { seen(lease) },
			gone: func(*coordinationv1.Lease) { h.add(RecordState{At: time.Now()}, nil) },
		})
	if err != nil {
		return nil, fmt.Errorf("watch lease %s: %w", c.RecordName(), err)
	}
	h.stop = stop
	return h, nil
}

func (h *RecordHistory) add(s RecordState, err error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.states = append(h.states, s)
	if h.err == nil {
		h.err = err
	}
	close(h.changed)
	h.changed = make(chan struct{})
}

// Stop ends the watch.
func (h *RecordHistory) Stop() { h.stop() }

// Err is the first state that could not be read.
func (h *RecordHistory) Err() error {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.err
}

// States are all states so far that were seen at that time or later.
func (h *RecordHistory) States(since time.Time) []RecordState {
	h.mu.Lock()
	defer h.mu.Unlock()
	return slices.DeleteFunc(slices.Clone(h.states), func(s RecordState) bool { return s.At.Before(since) })
}

// Operations are those that were begun since then, in order: an intent that stays through several changes is one.
func (h *RecordHistory) Operations(since time.Time) []Intent {
	var intents []Intent
	for _, s := range h.States(since) {
		if s.Intent != nil && (len(intents) == 0 || intents[len(intents)-1] != *s.Intent) {
			intents = append(intents, *s.Intent)
		}
	}
	return intents
}

// Intents are the removals among them: one that names no pod is none.
func (h *RecordHistory) Intents(since time.Time) []Intent {
	return slices.DeleteFunc(h.Operations(since), func(i Intent) bool { return i.Pod == "" })
}

// Await waits for a state, seen at that time or later, that matches, and returns the
// first. What the state is, in words, is for the error.
func (h *RecordHistory) Await(ctx context.Context, what string, since time.Time,
	match func(RecordState) bool) (RecordState, error) {
	for {
		h.mu.Lock()
		changed := h.changed
		h.mu.Unlock()
		states := h.States(since)
		if i := slices.IndexFunc(states, match); i >= 0 {
			return states[i], nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return RecordState{}, fmt.Errorf("wait until the record says %s (it said %v): %w", what, states,
				context.Cause(ctx))
		}
	}
}
