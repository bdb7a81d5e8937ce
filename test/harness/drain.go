package harness

import (
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/types"

	"github.com/quorate/quorate/test/harness/node"
)

// Evict evicts a pod as kubectl drain does: through the eviction API, which charges the
// PodDisruptionBudget, whatever state the pod is in. Refused is true if the budget, or something else
// about the pod, does not allow it now. After any other error nobody knows whether the eviction took
// effect.
func (c *Cluster) Evict(ctx context.Context, pod string) (refused bool, err error) {
	return c.evict(ctx, pod, nil)
}

// EvictOnly does the same if the pod of that name has that UID.
func (c *Cluster) EvictOnly(ctx context.Context, pod string, uid types.UID) (refused bool, err error) {
	return c.evict(ctx, pod, &metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &uid}})
}

func (c *Cluster) evict(ctx context.Context, pod string, opts *metav1.DeleteOptions) (refused bool, err error) {
	err = c.env.Client.PolicyV1().Evictions(Namespace).Evict(ctx,
		&policyv1.Eviction{ObjectMeta: metav1.ObjectMeta{Name: pod, Namespace: Namespace}, DeleteOptions: opts})
	if err != nil {
		return apierrors.IsTooManyRequests(err) || apierrors.IsNotFound(err) || apierrors.IsConflict(err), err
	}
	return false, nil
}

// NodeOf is the node on which a pod runs.
func (c *Cluster) NodeOf(ctx context.Context, pod string) (string, error) {
	p, err := c.env.Client.CoreV1().Pods(Namespace).Get(ctx, pod, metav1.GetOptions{})
	if err != nil {
		return "", err
	}
	return p.Spec.NodeName, nil
}

// Nodes are the nodes of a cluster that has its own.
func (c *Cluster) Nodes(ctx context.Context) ([]string, error) {
	list, err := c.env.Client.CoreV1().Nodes().List(ctx,
		metav1.ListOptions{LabelSelector: node.PoolLabel + "=" + c.Spec.Name})
	if err != nil {
		return nil, err
	}
	names := make([]string, len(list.Items))
	for i := range names {
		names[i] = list.Items[i].Name
	}
	return names, nil
}

// Cordon cordons a node as kubectl cordon does, and Uncordon makes up for it. The cluster must have its own nodes.
func (c *Cluster) Cordon(ctx context.Context, node string) error { return c.cordon(ctx, node, true) }

// Uncordon lets new pods on a node again.
func (c *Cluster) Uncordon(ctx context.Context, node string) error { return c.cordon(ctx, node, false) }

func (c *Cluster) cordon(ctx context.Context, node string, cordoned bool) error {
	if !c.Spec.OwnNodes {
		return fmt.Errorf("cordon %s: others have pods there; set Spec.OwnNodes", node)
	}
	c.env.Timeline.Note("operator", "%s is cordoned: %t", node, cordoned)
	return c.env.Nodes.Cordon(ctx, node, cordoned)
}

// drainAgain is how soon a drain asks again for an eviction that was refused. kubectl's takes five seconds.
const drainAgain = time.Second

// Drain drains a node as kubectl drain does: it cordons it, evicts its pods, each again and again while a budget
// refuses, and waits until they are gone.
func (c *Cluster) Drain(ctx context.Context, node string) error {
	if err := c.Cordon(ctx, node); err != nil {
		return err
	}
	on := metav1.ListOptions{FieldSelector: fields.OneTermEqualSelector("spec.nodeName", node).String()}
	pods, err := c.env.Client.CoreV1().Pods(Namespace).List(ctx, on)
	if err != nil {
		return fmt.Errorf("drain %s: %w", node, err)
	}
	for i := range pods.Items {
		if err := c.drain(ctx, &pods.Items[i]); err != nil {
			return fmt.Errorf("drain %s: %w", node, err)
		}
	}
	return nil
}

func (c *Cluster) drain(ctx context.Context, p *corev1.Pod) error {
	for {
		refused, err := c.Evict(ctx, p.Name)
		switch {
		case err == nil || apierrors.IsNotFound(err):
			c.env.Timeline.Note("operator", "drain: %s is evicted", p.Name)
			return waitFor(ctx, p.Name+" is gone from its node", func(ctx context.Context) (bool, string) {
				now, err := c.env.Client.CoreV1().Pods(Namespace).Get(ctx, p.Name, metav1.GetOptions{})
				return apierrors.IsNotFound(err) || err == nil && now.UID != p.UID, fmt.Sprint(err)
			})
		case !refused:
			return err
		}
		if err := Pass(ctx, drainAgain); err != nil {
			return err
		}
	}
}

// DeleteBudget deletes the cluster's PodDisruptionBudget.
func (c *Cluster) DeleteBudget(ctx context.Context) error {
	c.env.Timeline.Note("operator", "delete the budget of %s", c.Spec.Name)
	return c.env.Client.PolicyV1().PodDisruptionBudgets(Namespace).Delete(ctx, c.Spec.Name, metav1.DeleteOptions{})
}

// RunJob runs a pod beside the members' that has their labels, as a compaction Job of etcd-druid's has, so that the
// PodDisruptionBudget counts it. It waits until the pod is Ready.
func (c *Cluster) RunJob(ctx context.Context) error {
	name := c.Spec.Name + "-compactor"
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: Namespace, Labels: c.Spec.labels()},
		Spec: corev1.PodSpec{
			NodeSelector: c.env.nodeSelector(c.Spec),
			Containers: []corev1.Container{{Name: "compact", Image: c.Spec.SidecarImage,
				Command: []string{"sh", "-c", "exec sleep 3600"}}},
		},
	}
	pods := c.env.Client.CoreV1().Pods(Namespace)
	if _, err := pods.Create(ctx, pod, metav1.CreateOptions{}); err != nil {
		return err
	}
	return waitFor(ctx, name+" is Ready", func(ctx context.Context) (bool, string) {
		p, err := pods.Get(ctx, name, metav1.GetOptions{})
		return err == nil && IsReady(p), fmt.Sprint(err)
	})
}

// EndJob deletes that pod.
func (c *Cluster) EndJob(ctx context.Context) error {
	return c.env.Client.CoreV1().Pods(Namespace).Delete(ctx, c.Spec.Name+"-compactor", metav1.DeleteOptions{})
}
