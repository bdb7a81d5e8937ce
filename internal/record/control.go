package record

import (
	"context"
	"encoding/json"
	"fmt"

	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// Control sets controls on the Lease of a StatefulSet, and removes those whose value is
// nil. It touches nothing else: a merge patch of these annotations alone. Like every write
// it moves the resourceVersion, which makes a coordinator look again before it acts.
//
// Where there is no Lease it is made, without a record: the first claim on it fences every
// pod, because nobody knows what was under way before.
func Control(ctx context.Context, leases Leases, statefulSet string,
	controls map[string]*string) (*coordinationv1.Lease, error) {
	name := Name(statefulSet)
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"annotations": controls}})
	if err != nil {
		return nil, fmt.Errorf("encode Lease %s: %w", name, err)
	}
	for created := false; ; created = true {
		lease, err := leases.Patch(ctx, name, types.MergePatchType, patch, metav1.PatchOptions{})
		if err == nil {
			return lease, nil
		}
		if !apierrors.IsNotFound(err) || created {
			return nil, fmt.Errorf("patch Lease %s: %w", name, err)
		}
		fresh := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Name: name, Annotations: map[string]string{}}}
		for key, value := range controls {
			if value != nil {
				fresh.Annotations[key] = *value
			}
		}
		if len(fresh.Annotations) == 0 {
			return fresh, nil // There is nothing to remove.
		}
		lease, err = leases.Create(ctx, fresh, metav1.CreateOptions{})
		if err == nil {
			return lease, nil
		}
		// Somebody else may have made it in the meantime.
		if !apierrors.IsAlreadyExists(err) {
			return nil, fmt.Errorf("create Lease %s: %w", name, err)
		}
	}
}
