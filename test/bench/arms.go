package bench

import (
	"fmt"

	appsv1 "k8s.io/api/apps/v1"

	"github.com/quorate/quorate/test/bench/result"
	"github.com/quorate/quorate/test/harness"
)

// maxUnavailableGate is off by default in Kubernetes 1.36. It changes the controller for
// every StatefulSet, so that only the arm that needs it runs with it.
const maxUnavailableGate = "MaxUnavailableStatefulSet"

// arm is what an arm is, in a spec.
type arm struct {
	// gates are Kubernetes' feature gates.
	gates map[string]bool
	// evicts is true where healthy pods are evicted, so that the PodDisruptionBudget has to allow it.
	evicts bool
	// configure sets the spec up for so many members.
	configure func(s *harness.Spec, members int)
}

// spare is how many members a cluster can lose and keep its quorum.
func spare(members int) int { return (members - 1) / 2 }

func rollingUpdate(s *harness.Spec) { s.Strategy = appsv1.RollingUpdateStatefulSetStrategyType }

var arms = map[string]arm{
	result.OrderedReady: {configure: func(s *harness.Spec, _ int) {
		rollingUpdate(s)
		s.Ordered = true
	}},
	result.Parallel: {configure: func(s *harness.Spec, _ int) { rollingUpdate(s) }},
	result.MaxUnavailable: {gates: map[string]bool{maxUnavailableGate: true},
		configure: func(s *harness.Spec, members int) {
			rollingUpdate(s)
			s.RollingUnavailable = spare(members)
		}},
	result.Quorate: {evicts: true, configure: func(*harness.Spec, int) {}},
	result.QuorateMax: {evicts: true, configure: func(s *harness.Spec, members int) {
		s.SidecarArgs = []string{fmt.Sprintf("--max-unavailable=%d", spare(members))}
	}},
	result.QuorateTwo: {evicts: true, configure: func(s *harness.Spec, _ int) {
		s.SidecarArgs = []string{"--max-unavailable=2"}
	}},
	result.QuorateDelete: {configure: func(s *harness.Spec, _ int) {
		s.SidecarArgs = []string{"--removal=delete"}
	}},
}
