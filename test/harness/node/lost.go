package node

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"

	"github.com/quorate/quorate/test/harness/process"
)

// Loss is how a node is lost.
type Loss int

const (
	// NotLost is a node that works.
	NotLost Loss = iota
	// PowerLoss ends all processes of the node at once, with SIGKILL. Its pods' addresses
	// stay: connections are refused. To let packets vanish, as they do when a machine is
	// gone, isolate the pods as well (network.Namespaces.Isolate).
	PowerLoss
	// Partition separates the kubelet from the API server: containers go on and are still
	// restarted and probed, but the API server does not hear of it. The pods' own connections
	// are the network's business.
	Partition
	// PowerCut is a PowerLoss that is over before the node controller says anything, as when
	// a node reboots.
	PowerCut
	// Silence is a Partition that is over before the node controller says anything: all that the
	// API server has are the last words of the kubelet.
	Silence
)

// off reports whether the node does not run.
func (l Loss) off() bool { return l == PowerLoss || l == PowerCut }

// ErrLost is that of a node that is lost already, and is left as it was.
var ErrLost = errors.New("it is lost already")

// String names the loss.
func (l Loss) String() string {
	switch l {
	case NotLost:
		return "not lost"
	case PowerLoss:
		return "power loss"
	case Partition:
		return "partition"
	case PowerCut:
		return "power cut"
	case Silence:
		return "silence"
	default:
		return fmt.Sprintf("Loss(%d)", int(l))
	}
}

// LoseNode loses a node, and then does at once what the node controller does after a
// while: the node's Ready condition becomes Unknown, it is tainted as unreachable, and
// the Ready condition of its pods becomes false. All else in the pods' statuses stays as
// it was, ContainersReady and container states included. Deletions on the node are not
// finished. Pods that belong there by their ordinal stay pending. Nobody evicts pods. Of a
// PowerCut or a Silence the node controller says nothing.
//
// When it returns, the node's processes have ended (but for a Partition or a Silence) and the
// API server knows what it is to know.
// An error of the API server leaves the node lost all the same.
func (a *Agent) LoseNode(ctx context.Context, node string, how Loss) error {
	if how <= NotLost || how > Silence {
		return fmt.Errorf("lose node %s: %s is no way to lose it; use PowerLoss, Partition, PowerCut or Silence", node,
			how)
	}
	var workers []*worker
	err := a.do(func() error {
		switch loss, known := a.nodes[node]; {
		case !known:
			return fmt.Errorf("there is no such node; there are %v", a.config.Nodes)
		case loss != NotLost:
			return fmt.Errorf("%w (%s)", ErrLost, loss)
		}
		a.nodes[node] = how
		workers = a.workersOn(node)
		return nil
	})
	if err != nil {
		return fmt.Errorf("lose node %s: %w", node, err)
	}
	var killed []*process.Process
	for _, w := range workers {
		w.call(func() { killed = append(killed, w.lose(how)...) })
	}
	for _, p := range killed {
		select {
		case <-p.Done():
		case <-ctx.Done():
			return fmt.Errorf("lose node %s: wait for the end of %s: %w", node, p.Name(), ctx.Err())
		}
	}
	a.emit(Event{Node: node, Kind: NodeLost, Detail: how.String()})
	if how == PowerCut || how == Silence {
		return nil
	}
	if err := errors.Join(a.setNode(ctx, node, "", how), a.markPodsNotReady(ctx, node)); err != nil {
		return fmt.Errorf("lose node %s: %w", node, err)
	}
	return nil
}

// RestoreNode brings a lost node back: it becomes Ready, statuses are reported again,
// deletions are finished, pods that waited for it are bound. After a PowerLoss or a PowerCut
// the containers are started anew, as after a reboot: they have ended with exit code 255 and
// reason Unknown, and init containers run again.
func (a *Agent) RestoreNode(ctx context.Context, node string) error {
	return a.Reboot(ctx, node, 0)
}

// Reboot is RestoreNode, but containers that ran before are reported as terminated for a while
// before they are started anew, as they are while a kubelet makes their pods' sandboxes.
func (a *Agent) Reboot(ctx context.Context, node string, starts time.Duration) error {
	err := a.do(func() error {
		switch loss, known := a.nodes[node]; {
		case !known:
			return fmt.Errorf("there is no such node; there are %v", a.config.Nodes)
		case loss == NotLost:
			return errors.New("it is not lost")
		}
		return nil
	})
	if err == nil {
		// The node is ready before its pods can be.
		err = a.setNode(ctx, node, "", NotLost)
	}
	if err == nil {
		err = a.do(func() error {
			a.nodes[node] = NotLost
			for _, w := range a.workersOn(node) {
				newest := a.newest(w)
				w.post(func() { w.restore(newest, starts) })
			}
			a.catchUp()
			return nil
		})
	}
	if err != nil {
		return fmt.Errorf("restore node %s: %w", node, err)
	}
	a.emit(Event{Node: node, Kind: NodeRestored})
	return nil
}

// newest returns the worker's pod as the API server has it, or nil when it has been
// deleted.
func (a *Agent) newest(w *worker) *corev1.Pod {
	if pod := a.pods[w.key]; pod != nil && pod.UID == w.uid {
		return pod
	}
	return nil
}

func (a *Agent) workersOn(node string) []*worker {
	var workers []*worker
	for _, w := range a.workers {
		if w.node == node {
			workers = append(workers, w)
		}
	}
	return workers
}

// unreachable is the taint of a node that is lost.
const unreachable = corev1.TaintNodeUnreachable

// setNode writes the node's object as a kubelet, or the node controller, does. The pool
// matters for a node that does not exist yet.
func (a *Agent) setNode(ctx context.Context, name, pool string, loss Loss) error {
	nodes := a.config.Client.CoreV1().Nodes()
	return retry(ctx, nil, func(ctx context.Context) error {
		object, err := nodes.Get(ctx, name, metav1.GetOptions{})
		if apierrors.IsNotFound(err) {
			labels := map[string]string{corev1.LabelHostname: name, corev1.LabelOSStable: "linux"}
			if pool != "" {
				labels[PoolLabel] = pool
			}
			object, err = nodes.Create(ctx, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels}},
				metav1.CreateOptions{})
		}
		if err != nil {
			return err
		}
		object = object.DeepCopy()
		object.Spec.Taints = slices.DeleteFunc(object.Spec.Taints, func(t corev1.Taint) bool {
			return t.Key == unreachable || t.Key == corev1.TaintNodeNotReady
		})
		if loss != NotLost {
			now := metav1.Now()
			object.Spec.Taints = append(object.Spec.Taints,
				corev1.Taint{Key: unreachable, Effect: corev1.TaintEffectNoSchedule, TimeAdded: &now},
				corev1.Taint{Key: unreachable, Effect: corev1.TaintEffectNoExecute, TimeAdded: &now})
		}
		if object, err = nodes.Update(ctx, object, metav1.UpdateOptions{}); err != nil {
			return err
		}
		object.Status = nodeStatus(object.Status, a.config.Address(name), name, loss, time.Now())
		_, err = nodes.UpdateStatus(ctx, object, metav1.UpdateOptions{})
		return err
	})
}

// nodeStatus returns a node's status.
func nodeStatus(old corev1.NodeStatus, address, name string, loss Loss, now time.Time) corev1.NodeStatus {
	status := *old.DeepCopy()
	status.Addresses = []corev1.NodeAddress{
		{Type: corev1.NodeInternalIP, Address: address},
		{Type: corev1.NodeHostName, Address: name},
	}
	room := corev1.ResourceList{
		corev1.ResourceCPU:    resource.MustParse("64"),
		corev1.ResourceMemory: resource.MustParse("256Gi"),
		corev1.ResourcePods:   resource.MustParse("110"),
	}
	status.Capacity, status.Allocatable = room, room
	ready := corev1.NodeCondition{
		Type: corev1.NodeReady, Status: corev1.ConditionTrue, Reason: "KubeletReady",
		Message:           "kubelet is posting ready status",
		LastHeartbeatTime: metav1.NewTime(now), LastTransitionTime: metav1.NewTime(now),
	}
	if loss != NotLost {
		ready.Status, ready.Reason, ready.Message = corev1.ConditionUnknown, "NodeStatusUnknown",
			"Kubelet stopped posting node status."
	}
	for _, condition := range old.Conditions {
		if condition.Type == corev1.NodeReady {
			if condition.Status == ready.Status {
				ready.LastTransitionTime = condition.LastTransitionTime
			}
			if loss != NotLost {
				ready.LastHeartbeatTime = condition.LastHeartbeatTime
			}
		}
	}
	status.Conditions = append(slices.DeleteFunc(status.Conditions, func(c corev1.NodeCondition) bool {
		return c.Type == corev1.NodeReady
	}), ready)
	return status
}

// markPodsNotReady sets the Ready condition of a lost node's pods to false, and nothing
// else, as the node controller does: even the reason stays.
func (a *Agent) markPodsNotReady(ctx context.Context, node string) error {
	return retry(ctx, nil, func(ctx context.Context) error {
		list, err := a.config.Client.CoreV1().Pods("").List(ctx,
			metav1.ListOptions{FieldSelector: fields.OneTermEqualSelector("spec.nodeName", node).String()})
		if err != nil {
			return err
		}
		for i := range list.Items {
			pod := &list.Items[i]
			ready := findCondition(pod.Status.Conditions, corev1.PodReady)
			if ready == nil || ready.Status == corev1.ConditionFalse || pod.Spec.NodeName != node {
				continue
			}
			ready.Status, ready.LastTransitionTime = corev1.ConditionFalse, metav1.Now()
			_, err := a.config.Client.CoreV1().Pods(pod.Namespace).UpdateStatus(ctx, pod, metav1.UpdateOptions{})
			if err != nil && !apierrors.IsNotFound(err) {
				// A conflict, too, is cured by starting over.
				return err
			}
			if err == nil {
				a.emitFor(pod, "", NotReady, "said by the node controller: %s is lost", node)
			}
		}
		return nil
	})
}
