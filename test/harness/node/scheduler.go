package node

import (
	"context"
	"hash/fnv"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// assign returns the node for a pod: by its ordinal, so that a StatefulSet's pod always
// comes back to the same node, and two pods share one only if there are too few.
func assign(podName string, nodes []string) string {
	if i := strings.LastIndexByte(podName, '-'); i >= 0 {
		if ordinal, err := strconv.ParseUint(podName[i+1:], 10, 31); err == nil {
			return nodes[int(ordinal)%len(nodes)]
		}
	}
	hash := fnv.New32a()
	_, _ = hash.Write([]byte(podName))
	return nodes[int(hash.Sum32()%uint32(len(nodes)))]
}

// bind gives a pod to its node. While the node is lost the pod stays pending, as one does
// whose volume can be reached from one node only.
func (a *Agent) bind(pod *corev1.Pod) {
	node := assign(pod.Name, a.config.Nodes)
	if a.binding[pod.UID] || a.nodes[node] != NotLost || pod.DeletionTimestamp != nil || len(pod.Spec.SchedulingGates) > 0 || !ourScheduler(pod) {
		return
	}
	a.binding[pod.UID] = true
	a.group.Go(func() {
		defer a.post(func() { delete(a.binding, pod.UID) })
		bound := false
		_ = retry(a.ctx, func(err error) { a.emitFor(pod, "", Trouble, "bind to %s: %v", node, err) }, func(ctx context.Context) error {
			err := a.config.Client.CoreV1().Pods(pod.Namespace).Bind(ctx, &corev1.Binding{
				ObjectMeta: metav1.ObjectMeta{Namespace: pod.Namespace, Name: pod.Name, UID: pod.UID},
				Target:     corev1.ObjectReference{Kind: "Node", Name: node},
			}, metav1.CreateOptions{})
			if apierrors.IsNotFound(err) || apierrors.IsConflict(err) {
				// Deleted, replaced, or bound by an earlier try whose answer was lost.
				return nil
			}
			bound = err == nil
			return err
		})
		if bound {
			a.emitFor(pod, "", Bound, "to %s", node)
		}
	})
}

func ourScheduler(pod *corev1.Pod) bool {
	return pod.Spec.SchedulerName == "" || pod.Spec.SchedulerName == corev1.DefaultSchedulerName
}
