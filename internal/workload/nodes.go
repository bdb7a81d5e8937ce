package workload

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/quorate/quorate/internal/rollout"
)

// Nodes is the part of the API for nodes that is used here, and only by name. A clientset's
// CoreV1().Nodes() satisfies it.
type Nodes interface {
	Get(ctx context.Context, name string, opts metav1.GetOptions) (*corev1.Node, error)
	Watch(ctx context.Context, opts metav1.ListOptions) (watch.Interface, error)
}

// ReadNodes reads the nodes of the observed pods, all at the same time, and adds to the pods what the nodes say
// about who leaves.
func (o *Observation) ReadNodes(ctx context.Context, nodes Nodes) error {
	names := o.Nodes()
	read, errs := make([]*corev1.Node, len(names)), make([]error, len(names))
	var reading sync.WaitGroup
	for i, name := range names {
		reading.Go(func() {
			node, err := nodes.Get(ctx, name, metav1.GetOptions{})
			switch {
			case err == nil:
				read[i] = node
			case !apierrors.IsNotFound(err):
				errs[i] = fmt.Errorf("get node %s: %w", name, err)
			}
		})
	}
	reading.Wait()
	if err := errors.Join(errs...); err != nil {
		return err
	}
	for i := range o.Pods {
		if n := slices.Index(names, o.Pods[i].Node); n >= 0 {
			nodeFacts(&o.Pods[i], read[n], o.tolerations[o.Pods[i].UID])
		}
	}
	return nil
}

// Nodes are the names of the nodes of the StatefulSet's own pods, sorted.
func (o *Observation) Nodes() []string {
	var names []string
	for i := range o.Pods {
		if p := &o.Pods[i]; p.Owned && p.Node != "" {
			names = append(names, p.Node)
		}
	}
	slices.Sort(names)
	return slices.Compact(names)
}

// WatchNode calls changed whenever a node has been cordoned, tainted, or the reverse, until ctx ends. A node's
// status changes all the time, and nobody is called for that.
func WatchNode(ctx context.Context, nodes Nodes, name string, changed func(), failed func(error)) {
	opts := metav1.ListOptions{FieldSelector: fields.OneTermEqualSelector("metadata.name", name).String()}
	var last *corev1.Node
	KeepWatching(ctx, func(ctx context.Context) (watch.Interface, error) { return nodes.Watch(ctx, opts) },
		func(e watch.Event) {
			node, ok := e.Object.(*corev1.Node)
			if !ok {
				return
			}
			alike := func(x, y corev1.Taint) bool { return x.MatchTaint(&y) }
			same := last != nil && e.Type != watch.Deleted && last.Spec.Unschedulable == node.Spec.Unschedulable &&
				slices.EqualFunc(last.Spec.Taints, node.Spec.Taints, alike)
			if last = node; !same {
				changed()
			}
		}, failed)
}

// byEviction is the reason that the eviction API gives with the condition. Kubernetes' disruption controller
// takes the condition away after two minutes if the pod is still there.
const byEviction = "EvictionByEvictionAPI"

// disrupted says in words that somebody has decided to take the pod, or nothing. Whoever evicts or preempts a pod
// sets this condition just before. evicted is true where it was the eviction API.
func disrupted(p *corev1.Pod) (words string, evicted bool) {
	for i := range p.Status.Conditions {
		if c := &p.Status.Conditions[i]; c.Type == corev1.DisruptionTarget && c.Status == corev1.ConditionTrue {
			return string(c.Type) + " " + c.Reason, c.Reason == byEviction
		}
	}
	return "", false
}

// nodeFacts adds to a pod what its node says. There is no node if the pod's has been deleted.
func nodeFacts(pod *rollout.Pod, node *corev1.Node, tolerations []corev1.Toleration) {
	// An eviction may have failed. What the node says is for sure.
	leaves := func(why string) {
		if pod.Leaving == "" || pod.Evicted {
			pod.Leaving, pod.Evicted = "node "+pod.Node+why, false
		}
	}
	if node == nil {
		leaves(" does not exist any more")
		return
	}
	pod.Cordoned = node.Spec.Unschedulable
	for i := range node.Spec.Taints {
		t := &node.Spec.Taints[i]
		by := toleratedBy(t, tolerations)
		switch {
		case t.Effect == corev1.TaintEffectNoExecute && (by == nil || by.TolerationSeconds != nil):
			leaves(" has the taint " + t.Key + ":" + string(t.Effect))
		case t.Key == corev1.TaintNodeUnschedulable && by == nil:
			pod.Cordoned = true
		}
	}
}

// toleratedBy is the first toleration that matches the taint, as for the controller that evicts, or nil.
func toleratedBy(taint *corev1.Taint, tolerations []corev1.Toleration) *corev1.Toleration {
	for i := range tolerations {
		t := &tolerations[i]
		if (t.Effect == "" || t.Effect == taint.Effect) && (t.Key == "" || t.Key == taint.Key) &&
			(t.Operator == corev1.TolerationOpExists ||
				(t.Operator == "" || t.Operator == corev1.TolerationOpEqual) && t.Value == taint.Value) {
			return t
		}
	}
	return nil
}
