package harness

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/types"

	"github.com/quorate/quorate/test/harness/build"
	"github.com/quorate/quorate/test/harness/kubelet"
	"github.com/quorate/quorate/test/harness/network"
)

// Launcher must be the first call in a program that uses the harness. Pods' processes are started
// through it if they have their own namespaces, and so are real nodes.
func Launcher() {
	network.MaybeRunLauncher()
	kubelet.MaybeRun()
}

// Enter moves a program that uses Namespaces into namespaces of its own, by running it
// again in there; outside it does not return. The binaries are built before, and others that
// the program will use, because inside there is no network to fetch modules from. Hosts that cannot be
// had are left out. Where namespaces cannot be had it does nothing.
func Enter(ctx context.Context, progress func(line string), others ...build.Target) {
	if NamespacesAvailable() != nil {
		return
	}
	if !network.InNamespace() {
		binaries, err := build.All(ctx, progress)
		if err == nil {
			_, err = buildServers(ctx, progress, binaries)
		}
		if err == nil {
			_, err = build.Some(ctx, progress, others...)
		}
		// It fetches what they need. What it has to say, it says only once.
		if err == nil && kubelet.Asked() && !RealNodes(ctx, progress) {
			err = os.Setenv(NodesVariable, "agent")
		}
		if err != nil && !errors.Is(err, build.ErrNoHosts) {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
	}
	if err := network.ReexecInNamespace(); err != nil {
		fmt.Fprintln(os.Stderr, "enter a network namespace:", err)
		os.Exit(1)
	}
}

// RequireNamespaces is the environment variable that makes it a failure if there are no namespaces.
const RequireNamespaces = network.RequireVariable

// NamespacesAvailable says why there are no network namespaces here. It is nil if there are.
func NamespacesAvailable() error { return network.NamespacesAvailable() }

// Delete removes the cluster and waits until its pods, and so their processes, are gone.
func (c *Cluster) Delete(ctx context.Context) error {
	if c.etcds != nil {
		if err := c.deleteEtcd(ctx); err != nil {
			return err
		}
	}
	background := metav1.DeletePropagationBackground
	err := c.env.Client.AppsV1().StatefulSets(Namespace).Delete(ctx, c.Spec.Name,
		metav1.DeleteOptions{PropagationPolicy: &background})
	if err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("delete cluster %s: %w", c.Spec.Name, err)
	}
	if err := c.WaitGone(ctx); err != nil {
		return err
	}
	if n, ok := c.env.Nodes.(*kubelet.Nodes); ok && c.Spec.OwnNodes {
		n.Free(c.Spec.Name)
	}
	return nil
}

// Recreate puts the pods, as they are, under a new StatefulSet with the same spec but for the pod
// management policy, which Kubernetes does not let anybody change. An etcd cluster cannot be created
// under OrderedReady: the first member is not Ready before there is a quorum.
func (c *Cluster) Recreate(ctx context.Context, policy appsv1.PodManagementPolicyType) error {
	c.env.Timeline.Note("operator", "replace StatefulSet %s by one that is %s", c.Spec.Name, policy)
	sets := c.env.Client.AppsV1().StatefulSets(Namespace)
	old, err := sets.Get(ctx, c.Spec.Name, metav1.GetOptions{})
	if err != nil {
		return fmt.Errorf("replace StatefulSet %s: %w", c.Spec.Name, err)
	}
	orphan := metav1.DeletePropagationOrphan
	if err := sets.Delete(ctx, c.Spec.Name, metav1.DeleteOptions{PropagationPolicy: &orphan}); err != nil {
		return fmt.Errorf("replace StatefulSet %s: %w", c.Spec.Name, err)
	}
	err = waitFor(ctx, "StatefulSet "+c.Spec.Name+" is gone", func(ctx context.Context) (bool, string) {
		_, err := sets.Get(ctx, c.Spec.Name, metav1.GetOptions{})
		return apierrors.IsNotFound(err), fmt.Sprint(err)
	})
	if err != nil {
		return err
	}
	next := &appsv1.StatefulSet{ObjectMeta: metav1.ObjectMeta{Name: old.Name, Labels: old.Labels,
		Annotations: old.Annotations}, Spec: old.Spec}
	next.Spec.PodManagementPolicy = policy
	set, err := sets.Create(ctx, next, metav1.CreateOptions{})
	if err != nil {
		return fmt.Errorf("replace StatefulSet %s: %w", c.Spec.Name, err)
	}
	return waitFor(ctx, "the pods belong to the new StatefulSet "+c.Spec.Name,
		func(ctx context.Context) (bool, string) {
			now, err := sets.Get(ctx, c.Spec.Name, metav1.GetOptions{})
			if err != nil {
				return false, err.Error()
			}
			pods, err := c.ListPods(ctx)
			if err != nil {
				return false, err.Error()
			}
			adopted, ready := 0, 0
			for i := range pods {
				if p := &pods[i]; metav1.IsControlledBy(p, set) {
					adopted++
					if IsReady(p) {
						ready++
					}
				}
			}
			// The next reader of the status must find the present state.
			known := now.Status.UpdateRevision != "" && int(now.Status.ReadyReplicas) == ready
			return known && adopted == len(c.Pods()), fmt.Sprintf("%d of %d", adopted, len(c.Pods()))
		})
}

// Signal sends a signal to a pod's container.
func (c *Cluster) Signal(pod, container string, sig syscall.Signal) error {
	c.env.Timeline.Note("fault", "%v to %s of %s", sig, container, pod)
	return c.env.Nodes.KillContainer(pod, container, sig)
}

// Exec runs the program of a container's image once more in that container, as kubectl exec does.
func (c *Cluster) Exec(ctx context.Context, pod, container string, args ...string) (code int, output string,
	err error) {
	return c.env.Nodes.Exec(ctx, pod, container, args...)
}

// Kill ends a pod's container at once.
func (c *Cluster) Kill(pod, container string) error { return c.Signal(pod, container, syscall.SIGKILL) }

// WaitNotReady waits until the pod is not Ready.
func (c *Cluster) WaitNotReady(ctx context.Context, pod string) error {
	return waitFor(ctx, pod+" is not Ready", func(ctx context.Context) (bool, string) {
		p, err := c.env.Client.CoreV1().Pods(Namespace).Get(ctx, pod, metav1.GetOptions{})
		if err != nil {
			return false, err.Error()
		}
		return !IsReady(p), string(p.Status.Phase)
	})
}

// WaitWaiting waits until a container of the pod waits for the reason.
func (c *Cluster) WaitWaiting(ctx context.Context, pod, container, reason string) error {
	return waitFor(ctx, container+" of "+pod+" waits with "+reason, func(ctx context.Context) (bool, string) {
		p, err := c.env.Client.CoreV1().Pods(Namespace).Get(ctx, pod, metav1.GetOptions{})
		if err != nil {
			return false, err.Error()
		}
		for i := range p.Status.ContainerStatuses {
			if s := &p.Status.ContainerStatuses[i]; s.Name == container {
				return s.State.Waiting != nil && s.State.Waiting.Reason == reason && p.DeletionTimestamp == nil,
					s.State.String()
			}
		}
		return false, "no status yet"
	})
}

// DeletePod deletes a pod as an operator does, whatever that does to quorum.
func (c *Cluster) DeletePod(ctx context.Context, pod string) error {
	c.env.Timeline.Note("operator", "delete pod %s", pod)
	return c.env.Client.CoreV1().Pods(Namespace).Delete(ctx, pod, metav1.DeleteOptions{})
}

// SetMinAvailable changes the cluster's PodDisruptionBudget, and waits until it counts.
func (c *Cluster) SetMinAvailable(ctx context.Context, n int) error {
	c.env.Timeline.Note("operator", "set minAvailable of %s to %d", c.Spec.Name, n)
	budgets := c.env.Client.PolicyV1().PodDisruptionBudgets(Namespace)
	changed, err := budgets.Patch(ctx, c.Spec.Name, types.MergePatchType,
		fmt.Appendf(nil, `{"spec":{"minAvailable":%d}}`, n), metav1.PatchOptions{})
	if err != nil {
		return err
	}
	return waitFor(ctx, "the controller has seen the budget of "+c.Spec.Name, func(ctx context.Context) (bool, string) {
		budget, err := budgets.Get(ctx, c.Spec.Name, metav1.GetOptions{})
		if err != nil {
			return false, err.Error()
		}
		return budget.Status.ObservedGeneration >= changed.Generation, fmt.Sprint(budget.Status.ObservedGeneration)
	})
}

// WaitEvent waits until there is an event about the StatefulSet with the reason, and with the
// text in its message.
func (c *Cluster) WaitEvent(ctx context.Context, reason, text string) error {
	about := fields.Set{"involvedObject.kind": "StatefulSet", "involvedObject.name": c.Spec.Name,
		"reason": reason}.String()
	return waitFor(ctx, fmt.Sprintf("an event %s about %s says %q", reason, c.Spec.Name, text),
		func(ctx context.Context) (bool, string) {
			events, err := c.env.Client.CoreV1().Events(Namespace).List(ctx, metav1.ListOptions{FieldSelector: about})
			if err != nil {
				return false, err.Error()
			}
			var messages []string
			for i := range events.Items {
				messages = append(messages, events.Items[i].Message)
			}
			said := slices.ContainsFunc(messages, func(m string) bool { return strings.Contains(m, text) })
			return said, fmt.Sprintf("%q", messages)
		})
}

// EtcdVersion is the version that the pod's member reports, or the error.
func (c *Cluster) EtcdVersion(ctx context.Context, pod string) string {
	client, err := c.Dial(pod)
	if err != nil {
		return err.Error()
	}
	defer client.Close()
	st, err := client.Status(ctx, c.Endpoint(pod))
	if err != nil {
		return err.Error()
	}
	return st.Version
}

// Memory is what a process occupies, in bytes.
type Memory struct {
	// Anonymous is what it allocated itself; Resident also counts pages of its
	// binary, which all processes of it share.
	Anonymous, Resident int64
}

// AnonymousMiB is Anonymous in MiB.
func (m Memory) AnonymousMiB() float64 { return float64(m.Anonymous) / (1 << 20) }

// ResidentMiB is Resident in MiB.
func (m Memory) ResidentMiB() float64 { return float64(m.Resident) / (1 << 20) }

// Memory reads what a pod's container occupies now.
func (c *Cluster) Memory(pod, container string) (Memory, error) {
	pid, ok := c.env.Nodes.PID(pod, container)
	if !ok {
		return Memory{}, fmt.Errorf("container %s of %s does not run", container, pod)
	}
	return MemoryOf(pid)
}

// Pass lets time pass in which something is measured, must be endured, or must not happen. Its error is
// the context's, if that ends first.
func Pass(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// MemoryOf reads what a process occupies now.
func MemoryOf(pid int) (Memory, error) {
	status, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/status")
	if err != nil {
		return Memory{}, err
	}
	anonymous, aerr := kibibytes(status, "RssAnon:")
	resident, rerr := kibibytes(status, "VmRSS:")
	return Memory{Anonymous: anonymous << 10, Resident: resident << 10}, errors.Join(aerr, rerr)
}

func kibibytes(status []byte, field string) (int64, error) {
	for line := range bytes.Lines(status) {
		if rest, ok := strings.CutPrefix(string(line), field); ok {
			return strconv.ParseInt(strings.TrimSuffix(strings.TrimSpace(rest), " kB"), 10, 64)
		}
	}
	return 0, fmt.Errorf("no %s in the status of the process", field)
}

// WaitRemovals waits until n pods have been removed.
func (l *Ledger) WaitRemovals(ctx context.Context, n int) error {
	return waitFor(ctx, fmt.Sprintf("%d pods are removed", n), func(context.Context) (bool, string) {
		order := l.Order()
		return len(order) >= n, fmt.Sprint(order)
	})
}
