package harness

import (
	"context"

	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Evict evicts a pod as kubectl drain does: through the eviction API, which charges the
// PodDisruptionBudget, whatever state the pod is in. Refused is true if the budget, or something else
// about the pod, does not allow it now. After any other error nobody knows whether the eviction took
// effect.
func (c *Cluster) Evict(ctx context.Context, pod string) (refused bool, err error) {
	err = c.env.Client.PolicyV1().Evictions(Namespace).Evict(ctx,
		&policyv1.Eviction{ObjectMeta: metav1.ObjectMeta{Name: pod, Namespace: Namespace}})
	if err != nil {
		return apierrors.IsTooManyRequests(err) || apierrors.IsNotFound(err) || apierrors.IsConflict(err), err
	}
	return false, nil
}
