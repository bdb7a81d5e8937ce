package workload_test

import (
	"testing"

	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"

	"github.com/quorate/quorate/internal/workload"
)

func TestWhetherABudgetCanAllow(t *testing.T) {
	ours := &metav1.LabelSelector{MatchLabels: map[string]string{"app": "etcd"}}
	most := func(v intstr.IntOrString) policyv1.PodDisruptionBudgetSpec {
		return policyv1.PodDisruptionBudgetSpec{Selector: ours, MaxUnavailable: &v}
	}
	least := func(v intstr.IntOrString) policyv1.PodDisruptionBudgetSpec {
		return policyv1.PodDisruptionBudgetSpec{Selector: ours, MinAvailable: &v}
	}
	counted := func(expected, healthy int32) policyv1.PodDisruptionBudgetStatus {
		return policyv1.PodDisruptionBudgetStatus{ExpectedPods: expected, DesiredHealthy: healthy,
			ObservedGeneration: 1}
	}
	var none policyv1.PodDisruptionBudgetStatus
	for _, tc := range []struct {
		name     string
		replicas int
		spec     policyv1.PodDisruptionBudgetSpec
		status   policyv1.PodDisruptionBudgetStatus
		spare    int
		blocks   bool
	}{
		{"maxUnavailable 1", 3, most(intstr.FromInt32(1)), none, 1, false},
		{"maxUnavailable 0", 3, most(intstr.FromInt32(0)), none, 0, true},
		{"maxUnavailable in percent is rounded up", 3, most(intstr.FromString("10%")), none, 1, false},
		{"minAvailable 2 of 3", 3, least(intstr.FromInt32(2)), none, 1, false},
		{"minAvailable 3 of 3", 3, least(intstr.FromInt32(3)), none, 0, true},
		{"minAvailable in percent is rounded up", 3, least(intstr.FromString("67%")), none, 0, true},
		{"minAvailable all of them", 3, least(intstr.FromString("100%")), none, 0, true},
		{"what nobody can read allows nothing", 3, least(intstr.FromString("two")), none, 0, true},
		{"neither is given", 3, policyv1.PodDisruptionBudgetSpec{Selector: ours}, none, 0, true},
		{"what was counted comes first: it counts other pods too", 3, least(intstr.FromInt32(3)), counted(6, 3), 3,
			false},
		{"an old count says nothing", 3, least(intstr.FromInt32(3)),
			policyv1.PodDisruptionBudgetStatus{ExpectedPods: 6, DesiredHealthy: 3}, 0, true},
		{"a single member whose budget needs it", 1, least(intstr.FromInt32(1)), counted(1, 1), 0, true},
		{"a single member whose budget needs two is deleted", 1, least(intstr.FromInt32(2)), counted(1, 2), -1, false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			b := &policyv1.PodDisruptionBudget{ObjectMeta: metav1.ObjectMeta{Generation: 1}, Spec: tc.spec,
				Status: tc.status}
			if got := workload.Spare(b, tc.replicas); got != tc.spare {
				t.Errorf("lets %d be away, want %d", got, tc.spare)
			}
			if got := workload.Blocks(b, tc.replicas, ours); got != tc.blocks {
				t.Errorf("blocks: %v, want %v", got, tc.blocks)
			}
		})
	}
}

func TestWhichBudgetsCountAPod(t *testing.T) {
	budget := func(name, namespace string, s *metav1.LabelSelector) policyv1.PodDisruptionBudget {
		return policyv1.PodDisruptionBudget{ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: namespace},
			Spec: policyv1.PodDisruptionBudgetSpec{Selector: s}}
	}
	app := func(v string) *metav1.LabelSelector {
		return &metav1.LabelSelector{MatchLabels: map[string]string{"app": v}}
	}
	list := []policyv1.PodDisruptionBudget{
		budget("ours", "garden", app("etcd")), budget("of-another-app", "garden", app("web")),
		budget("of-another-namespace", "shoot", app("etcd")), budget("of-all-pods", "garden", &metav1.LabelSelector{}),
		budget("of-none", "garden", nil),
	}
	got := ""
	for _, b := range workload.Counting(list, "garden", map[string]string{"app": "etcd"}) {
		got += b.Name + " "
	}
	if got != "ours of-all-pods " {
		t.Errorf("%s", got)
	}
}
