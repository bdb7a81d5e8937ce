package kubelet

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func TestWhatBecomesOfAPodIsToldInTheAgentsWords(t *testing.T) {
	t.Parallel()
	var told []string
	n := &Nodes{config: Config{OnEvent: func(format string, args ...any) {
		told = append(told, fmt.Sprintf(format, args...))
	}}}
	pod := func(ready corev1.ConditionStatus, reason, message string) *corev1.Pod {
		condition := corev1.PodCondition{Type: corev1.PodReady, Status: ready, Reason: reason, Message: message}
		return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "main-0"},
			Status: corev1.PodStatus{Conditions: []corev1.PodCondition{condition}}}
	}
	n.tell(&corev1.Pod{}, pod(corev1.ConditionFalse, "ContainersNotReady", "containers with unready status: [etcd]"))
	n.tell(pod(corev1.ConditionFalse, "", ""), pod(corev1.ConditionTrue, "", ""))
	n.tell(pod(corev1.ConditionTrue, "", ""), pod(corev1.ConditionTrue, "", ""))
	n.tell(pod(corev1.ConditionTrue, "", ""), pod(corev1.ConditionFalse, "PodCompleted", ""))
	n.tell(pod(corev1.ConditionTrue, "", ""), pod(corev1.ConditionFalse, "ContainersNotReady",
		"containers with unready status: [etcd]"))
	require.Equal(t, []string{"main-0 Ready", "main-0 NotReady: PodCompleted",
		"main-0 NotReady: containers with unready status: [etcd]"}, told)
}
