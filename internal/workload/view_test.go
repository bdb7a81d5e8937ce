package workload_test

import (
	"testing"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/quorate/quorate/internal/workload"
	"github.com/quorate/quorate/pkg/rollout"
)

func TestTheSameWordsOfOthersAreNoNews(t *testing.T) {
	lease := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Annotations: map[string]string{
		rollout.ControlPartition: "2", rollout.ControlMaxUnavailable: "1",
	}}}
	if a, b := workload.SaidByOthers(lease), workload.SaidByOthers(lease.DeepCopy()); a != b {
		t.Errorf("%s and %s", a, b)
	}
}
