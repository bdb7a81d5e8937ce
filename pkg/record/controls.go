// Package record is about the Lease quorate-<statefulset>, on which an operator's
// controls stand.
package record

import (
	"context"
	"fmt"

	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/quorate/quorate/pkg/rollout"
)

// Leases is what is needed of the API for Leases in one namespace; a clientset's
// CoordinationV1().Leases(namespace) satisfies it.
type Leases interface {
	Get(ctx context.Context, name string, opts metav1.GetOptions) (*coordinationv1.Lease, error)
}

// Name is the name of a StatefulSet's Lease.
func Name(statefulSet string) string { return "quorate-" + statefulSet }

// Read returns the Lease, nil when there is none.
func Read(ctx context.Context, leases Leases, statefulSet string) (*coordinationv1.Lease, error) {
	lease, err := leases.Get(ctx, Name(statefulSet), metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		return nil, nil //nolint:nilnil // No Lease is no fault: then no control is set.
	}
	if err != nil {
		return nil, fmt.Errorf("get Lease %s: %w", Name(statefulSet), err)
	}
	return lease, nil
}

// Controls are those of a Lease; of none there are none.
func Controls(lease *coordinationv1.Lease) rollout.Controls {
	if lease == nil {
		return rollout.Controls{}
	}
	return rollout.ParseControls(lease.Annotations)
}
