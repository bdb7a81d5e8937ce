package workload

import (
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/intstr"
)

// Counting are the budgets of a list that count pods with these labels. The eviction API refuses a pod that several
// count.
func Counting(list []policyv1.PodDisruptionBudget, namespace string, pod map[string]string) (
	counting []*policyv1.PodDisruptionBudget) {
	for i := range list {
		b := &list[i]
		selector, err := metav1.LabelSelectorAsSelector(b.Spec.Selector)
		if err == nil && b.Namespace == namespace && selector.Matches(labels.Set(pod)) {
			counting = append(counting, b)
		}
	}
	return counting
}

// Spare is how many of its pods a budget lets be away while all of them are healthy. It goes by what the disruption
// controller has counted. Where it has counted nothing yet, the budget is taken to count the replicas.
func Spare(b *policyv1.PodDisruptionBudget, replicas int) int {
	if b.Status.ObservedGeneration >= b.Generation && b.Status.ExpectedPods > 0 {
		return int(b.Status.ExpectedPods - b.Status.DesiredHealthy)
	}
	// The disruption controller rounds both up. What it cannot read allows nothing.
	scaled := func(v *intstr.IntOrString) int {
		n, err := intstr.GetScaledValueFromIntOrPercent(v, replicas, true)
		if err != nil {
			return -1
		}
		return n
	}
	switch {
	case b.Spec.MaxUnavailable != nil:
		return min(max(scaled(b.Spec.MaxUnavailable), 0), replicas)
	case b.Spec.MinAvailable != nil:
		if least := scaled(b.Spec.MinAvailable); least >= 0 {
			return max(replicas-least, 0)
		}
	}
	return 0
}

// moot is true for a budget that counts one pod, which is of the StatefulSet with this selector, and needs more. One
// that matches other pods too protects this one for their sake, above all while they are missing.
func moot(b *policyv1.PodDisruptionBudget, ours labels.Selector) bool {
	alone := b.Spec.Selector != nil && ours.Matches(labels.Set(b.Spec.Selector.MatchLabels))
	current := b.Status.ObservedGeneration >= b.Generation
	return alone && current && b.Status.ExpectedPods == 1 && b.Status.DesiredHealthy > 1
}

// Blocks is true for a budget that never lets any pod of the StatefulSet be evicted, although all are healthy. One that
// is moot blocks nothing, because the coordinator then deletes the pod.
func Blocks(b *policyv1.PodDisruptionBudget, replicas int, selector *metav1.LabelSelector) bool {
	ours, err := metav1.LabelSelectorAsSelector(selector)
	return Spare(b, replicas) < 1 && (err != nil || !moot(b, ours))
}
