package workload

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/quorate/quorate/pkg/rollout"
)

// Nodes is the part of the API for nodes that is used here, and only by name. A clientset's
// CoreV1().Nodes() satisfies it.
type Nodes interface {
	Get(ctx context.Context, name string, opts metav1.GetOptions) (*corev1.Node, error)
	Watch(ctx context.Context, opts metav1.ListOptions) (watch.Interface, error)
}

// ReadNodes reads the nodes of the observed pods, all at the same time, and adds to the pods what the nodes say
// about who leaves. A node that cannot be read is not known, whatever the error says. Where reading is forbidden, as
// without the Role, nothing is added at all: that is no reason to wait for what nodes might say. drainTaints are the
// keys of the taints that announce a drain, beside those that are known.
func (o *Observation) ReadNodes(ctx context.Context, nodes Nodes, drainTaints []string) error {
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
	for _, err := range errs {
		if Denied(err) {
			return err
		}
	}
	o.AddNodes(drainTaints, func(name string) (*corev1.Node, bool) {
		n := slices.Index(names, name)
		return read[n], errs[n] == nil
	})
	return errors.Join(errs...)
}

// AddNodes adds to the pods what their nodes say, where that is known. A node that there is not is nil.
func (o *Observation) AddNodes(drainTaints []string, node func(name string) (n *corev1.Node, known bool)) {
	names := o.Nodes()
	for i := range o.Pods {
		p := &o.Pods[i]
		if !slices.Contains(names, p.Node) {
			continue
		}
		if n, known := node(p.Node); known {
			nodeFacts(p, n, o.tolerations[p.UID], drainTaints)
		} else {
			p.NodeUnknown = true
		}
	}
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
func nodeFacts(pod *rollout.Pod, node *corev1.Node, tolerations []corev1.Toleration, drainTaints []string) {
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
	var last metav1.Time
	for i := range node.Status.Conditions {
		c := &node.Status.Conditions[i]
		if c.Type == corev1.NodeReady && c.Status == corev1.ConditionUnknown {
			pod.NodeSilent = true
		}
		if last.Before(&c.LastHeartbeatTime) {
			last = c.LastHeartbeatTime
		}
	}
	if !last.IsZero() && !pod.NodeSilent {
		pod.Heartbeat = last.UTC().Format(time.RFC3339)
	}
	for i := range node.Spec.Taints {
		t := &node.Spec.Taints[i]
		by := toleratedBy(t, tolerations)
		does := drainedFor(t, drainTaints)
		switch {
		case t.Effect == corev1.TaintEffectNoExecute && (by == nil || by.TolerationSeconds != nil):
			leaves(" has the taint " + inWords(t, does))
		case does != "":
			// A drainer that is stuck leaves its taint there for good (kubernetes/autoscaler#5657,
			// kubernetes-sigs/karpenter#2704). So it counts for as long as a cordon.
			pod.Cordoned = true
			if pod.Drained == "" {
				pod.Drained = inWords(t, does)
			}
		case t.Key == corev1.TaintNodeUnschedulable && by == nil:
			pod.Cordoned = true
		}
	}
}

func inWords(t *corev1.Taint, does string) string {
	words := t.Key + ":" + string(t.Effect)
	if does != "" {
		words += " (" + does + ")"
	}
	return words
}

// toleratedBy is the first toleration that matches the taint, as for the controller that evicts, or nil.
func toleratedBy(taint *corev1.Taint, tolerations []corev1.Toleration) *corev1.Toleration {
	for i := range tolerations {
		t := &tolerations[i]
		if (t.Effect == "" || t.Effect == taint.Effect) && (t.Key == "" || t.Key == taint.Key) &&
			toleratesValue(t, taint.Value) {
			return t
		}
	}
	return nil
}

func toleratesValue(t *corev1.Toleration, value string) bool {
	switch t.Operator {
	case corev1.TolerationOpExists:
		return true
	case "", corev1.TolerationOpEqual:
		return t.Value == value
	case corev1.TolerationOpLt, corev1.TolerationOpGt:
		limit, ok := decimal(t.Value)
		n, is := decimal(value)
		return ok && is && (t.Operator == corev1.TolerationOpLt && n < limit ||
			t.Operator == corev1.TolerationOpGt && n > limit)
	}
	return false
}

// decimal reads a number as the API does, which takes neither a plus sign nor zeros in front of it.
func decimal(s string) (int64, bool) {
	n, err := strconv.ParseInt(s, 10, 64)
	return n, err == nil && strconv.FormatInt(n, 10) == s
}
