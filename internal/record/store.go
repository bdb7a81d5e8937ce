package record

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"strconv"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// Getter reads Leases in one namespace.
type Getter interface {
	Get(ctx context.Context, name string, opts metav1.GetOptions) (*coordinationv1.Lease, error)
}

// Leases is what is needed of the API for Leases in one namespace; a clientset's
// CoordinationV1().Leases(namespace) satisfies it.
type Leases interface {
	Getter
	Create(ctx context.Context, lease *coordinationv1.Lease, opts metav1.CreateOptions) (*coordinationv1.Lease, error)
	Patch(ctx context.Context, name string, pt types.PatchType, data []byte, opts metav1.PatchOptions,
		subresources ...string) (*coordinationv1.Lease, error)
}

// Read returns the Lease of a StatefulSet, nil when there is none.
func Read(ctx context.Context, leases Getter, statefulSet string) (*coordinationv1.Lease, error) {
	lease, err := leases.Get(ctx, Name(statefulSet), metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil, nil //nolint:nilnil // No Lease is no fault: then no control is set.
	}
	if err != nil {
		return nil, fmt.Errorf("get Lease %s: %w", Name(statefulSet), err)
	}
	return lease, nil
}

// Write writes the record if the Lease still has l's resourceVersion, and creates the
// Lease when that is empty. It returns the Lease as it is then.
//
// It is a patch of the fields that are ours alone: whatever else stands on the Lease,
// from operators or from a newer version, is not touched. A patch that carries a
// resourceVersion is refused like any other write when that has moved.
//
// The notes are annotations for whoever reads the Lease; the protocol ignores them, and
// they never replace its own. So is what is needed, which is for the quorum guard.
func Write(ctx context.Context, leases Leases, statefulSet string, l Record, needed Needed, notes map[string]string,
) (*coordinationv1.Lease, error) {
	name, annotations := Name(statefulSet), l.annotations(needed, notes)
	labels := map[string]string{ManagedLabel: ManagedBy}
	if !l.Exists() {
		lease := &coordinationv1.Lease{Spec: l.spec()}
		lease.Name, lease.Annotations, lease.Labels = name, annotations, labels
		created, err := leases.Create(ctx, lease, metav1.CreateOptions{})
		if err != nil {
			return nil, fmt.Errorf("create Lease %s: %w", name, err)
		}
		return created, nil
	}
	patch, err := json.Marshal(map[string]any{
		"metadata": map[string]any{"resourceVersion": l.ResourceVersion, "annotations": annotations, "labels": labels},
		"spec":     l.spec(),
	})
	if err != nil {
		return nil, fmt.Errorf("encode Lease %s: %w", name, err)
	}
	written, err := leases.Patch(ctx, name, types.MergePatchType, patch, metav1.PatchOptions{})
	if err != nil {
		return nil, fmt.Errorf("patch Lease %s (resourceVersion %s): %w", name, l.ResourceVersion, err)
	}
	return written, nil
}

// annotations are those that are ours.
func (l Record) annotations(needed Needed, notes map[string]string) map[string]string {
	rollout := noRollout
	if l.Rolling {
		rollout = underWay
	}
	all := maps.Clone(notes)
	if all == nil {
		all = map[string]string{}
	}
	all[SchemaAnnotation], all[IntentAnnotation], all[RolloutAnnotation] = strconv.Itoa(l.Schema), l.text(), rollout
	if l.Holder == "" {
		needed = Needed{}
	}
	all[NeededAnnotation] = needed.text(l.Epoch)
	return all
}

// spec has the time of the writing for whoever looks at the Lease; nobody decides
// anything by it, because it is another machine's clock.
func (l Record) spec() coordinationv1.LeaseSpec {
	now := metav1.NewMicroTime(time.Now())
	seconds := int32(max(l.Duration/time.Second, 1)) //nolint:gosec // Minutes at most.
	epoch := int32(l.Epoch)                          //nolint:gosec // Counted up from one.
	return coordinationv1.LeaseSpec{
		HolderIdentity: &l.Holder, LeaseDurationSeconds: &seconds, LeaseTransitions: &epoch, RenewTime: &now,
	}
}

// OutcomeOf says what an answer of the API server means for a request that changes
// something: every 2xx and 4xx is its last word, anything else (a timeout, a reset
// connection, a 5xx) leaves it open.
func OutcomeOf(err error) Outcome {
	if err == nil {
		return Done
	}
	var status apierrors.APIStatus
	if !errors.As(err, &status) {
		return Unclear
	}
	switch code := status.Status().Code; {
	case code == http.StatusConflict, code == http.StatusNotFound:
		return Refused
	case code == http.StatusRequestTimeout:
		return Unclear
	case code >= 400 && code < 500:
		return Failed
	}
	return Unclear
}
