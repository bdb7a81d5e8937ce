package record

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/quorate/quorate/pkg/rollout"
)

// RequestAnnotation holds what an operator asks the coordinator to do, as JSON (see [rollout.Request]). There
// is one request at a time, and a newer one replaces it.
const RequestAnnotation = "quorate.dev/request"

// RequestLasts is how long a request holds. It is long enough for a coordinator to come up and to wait for a
// member, and short enough that a Lease restored from a backup asks for nothing any more.
const RequestLasts = 10 * time.Minute

// clockSkew is how far another machine's clock may be ahead of ours.
const clockSkew = time.Minute

// Requested is the text of the request on a Lease, whether it can be read and still holds or not.
func Requested(lease *coordinationv1.Lease) string {
	if lease == nil {
		return ""
	}
	return lease.Annotations[RequestAnnotation]
}

// RequestOf returns the request on a Lease, or nil if there is none or it does not hold any more. An error says
// why it cannot be read. Nothing is done on a request that cannot be read.
func RequestOf(lease *coordinationv1.Lease, now time.Time) (*rollout.Request, error) {
	text := Requested(lease)
	if text == "" {
		return nil, nil //nolint:nilnil // Nobody has asked for anything.
	}
	var r rollout.Request
	if err := json.Unmarshal([]byte(text), &r); err != nil {
		return nil, fmt.Errorf("%s: %q is no request: %w", RequestAnnotation, text, err)
	}
	switch age := now.Sub(r.At); {
	case age > RequestLasts:
		return nil, nil //nolint:nilnil // It has run out.
	case age < -clockSkew:
		return nil, fmt.Errorf("%s: it was made at %s, which is in the future", RequestAnnotation,
			r.At.Format(time.RFC3339))
	}
	return &r, nil
}

// RequestText is how a request is written.
func RequestText(r rollout.Request) string {
	text, _ := json.Marshal(r) // Strings, numbers and a time always encode.
	return string(text)
}

// Withdraw takes a request off the Lease, unless another has replaced it. The record is not touched.
func Withdraw(ctx context.Context, leases Leases, statefulSet string, r rollout.Request) error {
	lease, err := Read(ctx, leases, statefulSet)
	if err != nil {
		return err
	}
	if on, _ := RequestOf(lease, r.At); on == nil || RequestText(*on) != RequestText(r) {
		return nil
	}
	_, err = remove(ctx, leases, lease, RequestAnnotation)
	return err
}

// EndOverride takes the override for a revision off the Lease, unless another has replaced it. It returns true if it
// did. The record is not touched.
func EndOverride(ctx context.Context, leases Leases, statefulSet, revision string) (ended bool, err error) {
	lease, err := Read(ctx, leases, statefulSet)
	if err != nil || lease == nil || lease.Annotations[rollout.ControlOverrideRevision] != revision {
		return false, err
	}
	return remove(ctx, leases, lease, rollout.ControlOverrideGuards, rollout.ControlOverrideUntil,
		rollout.ControlOverrideRevision, rollout.ControlOverrideBy, rollout.ControlOverrideReason)
}

// remove takes annotations off the Lease as it was read, and returns true if it did. If somebody has changed it since,
// nothing is done: whoever has changed it is looked at the next time.
func remove(ctx context.Context, leases Leases, lease *coordinationv1.Lease, annotations ...string) (bool, error) {
	none := map[string]any{}
	for _, a := range annotations {
		none[a] = nil
	}
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{
		"resourceVersion": lease.ResourceVersion, "annotations": none,
	}})
	if err != nil {
		return false, fmt.Errorf("encode Lease %s: %w", lease.Name, err)
	}
	_, err = leases.Patch(ctx, lease.Name, types.MergePatchType, patch, metav1.PatchOptions{})
	if OutcomeOf(err) == Refused {
		return false, nil
	}
	return err == nil, err
}
