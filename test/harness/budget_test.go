package harness

import (
	"testing"

	"github.com/stretchr/testify/require"
	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func TestAWatchedBudgetTellsWhenItAllowedAnEviction(t *testing.T) {
	budget := func(generation, observed int64, allowed int32) *policyv1.PodDisruptionBudget {
		return &policyv1.PodDisruptionBudget{
			ObjectMeta: metav1.ObjectMeta{Generation: generation},
			Status:     policyv1.PodDisruptionBudgetStatus{ObservedGeneration: observed, DisruptionsAllowed: allowed},
		}
	}
	b := &Budget{}
	for _, tc := range []struct {
		name   string
		budget *policyv1.PodDisruptionBudget // nil: it is gone
		allows bool
		steps  int
	}{
		{"one pod may go", budget(1, 1, 1), true, 1},
		{"two may", budget(1, 1, 2), true, 1},
		{"none may", budget(1, 1, 0), false, 2},
		{"one may again", budget(1, 1, 1), true, 3},
		{"the controller has not processed a change of it", budget(2, 1, 1), false, 4},
		{"none may, now that it has", budget(2, 2, 0), false, 4},
		{"without it all may", nil, true, 5},
	} {
		if tc.budget != nil {
			b.seen(tc.budget, false)
		} else {
			b.gone(budget(2, 2, 0))
		}
		steps := b.Steps()
		require.Len(t, steps, tc.steps, tc.name)
		require.Equal(t, tc.allows, steps[len(steps)-1].Allows, tc.name)
	}
}
