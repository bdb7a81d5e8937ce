package node

import (
	"context"
	"fmt"
	"hash/fnv"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// PoolLabel is the label of nodes that were added with [Agent.AddPool]. A pod that selects
// by it is bound to a node of that pool.
const PoolLabel = "harness.quorate.dev/pool"

// AddPool adds nodes for the pods that select the pool by its label: nodes that can be lost
// without anybody else's pods on them. Pods that wait for the pool are bound.
func (a *Agent) AddPool(ctx context.Context, pool string, nodes ...string) error {
	if pool == "" || len(nodes) == 0 {
		return fmt.Errorf("add pool %q with nodes %v: name the pool and at least one node", pool, nodes)
	}
	err := a.do(func() error {
		for _, name := range nodes {
			if _, known := a.nodes[name]; known {
				return fmt.Errorf("there is a node %s already", name)
			}
		}
		for _, name := range nodes {
			a.nodes[name] = NotLost
		}
		return nil
	})
	for _, name := range nodes {
		if err == nil {
			err = a.setNode(ctx, name, pool, NotLost)
		}
	}
	if err == nil {
		err = a.do(func() error {
			a.pools[pool] = append(a.pools[pool], nodes...)
			a.catchUp()
			return nil
		})
	}
	if err != nil {
		return fmt.Errorf("add pool %s: %w", pool, err)
	}
	return nil
}

// Cordon keeps new pods off a node, as kubectl cordon does, or lets them on it again. A pod whose node is
// cordoned is bound to another one of its pool, or waits.
func (a *Agent) Cordon(ctx context.Context, node string, cordoned bool) error {
	patch := fmt.Appendf(nil, `{"spec":{"unschedulable":%t}}`, cordoned)
	// The agent comes first, so that nobody who has seen the cordon finds a pod bound there.
	err := a.do(func() error { a.cordoned[node] = cordoned; return nil })
	if err == nil {
		_, err = a.config.Client.CoreV1().Nodes().Patch(ctx, node, types.MergePatchType, patch, metav1.PatchOptions{})
	}
	if err == nil {
		err = a.do(func() error { a.catchUp(); return nil })
	}
	if err != nil {
		return fmt.Errorf("cordon node %s (%t): %w", node, cordoned, err)
	}
	return nil
}

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
	nodes := a.pools[pod.Spec.NodeSelector[PoolLabel]]
	if len(nodes) == 0 {
		return // Unschedulable, until the pool is added.
	}
	node := assign(pod.Name, nodes)
	if a.cordoned[node] {
		nodes = slices.DeleteFunc(slices.Clone(nodes), func(name string) bool { return a.cordoned[name] })
		if len(nodes) == 0 {
			return // Until one is uncordoned.
		}
		slices.Reverse(nodes) // Those at the end are spare.
		node = assign(pod.Name, nodes)
	}
	if a.binding[pod.UID] || a.nodes[node] != NotLost || pod.DeletionTimestamp != nil {
		return
	}
	a.binding[pod.UID] = true
	a.group.Go(func() {
		defer a.post(func() { delete(a.binding, pod.UID) })
		bound := false
		_ = retry(a.ctx, func(err error) { a.emitFor(pod, "", Trouble, "bind to %s: %v", node, err) },
			func(ctx context.Context) error {
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
