package harness

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/quorate/quorate/test/harness/apiproxy"
	"github.com/quorate/quorate/test/harness/node"
)

// faultPeriod is how often the fault looks for a new process. An etcd needs longer
// than that to load its data, so it never comes to serve.
const faultPeriod = 10 * time.Millisecond

// Fault makes the etcd of one pod crash at every start, until the pod is replaced. It stands for a bug
// of the old release that only this member's data brings out. The data itself is left alone. Everybody
// else (kubelet, Kubernetes, Quorate, the other members) sees what they would see with any such bug: a
// container that restarts with a growing back-off.
type Fault struct {
	env    *Env
	pod    string
	uid    types.UID
	cancel context.CancelFunc
	done   sync.WaitGroup
}

// CrashLoop begins with the pod as it is now. Stop it in the end.
func (c *Cluster) CrashLoop(ctx context.Context, pod string) (*Fault, error) {
	env := c.env
	p, err := env.Client.CoreV1().Pods(Namespace).Get(ctx, pod, metav1.GetOptions{})
	if err != nil {
		return nil, fmt.Errorf("make %s sick: %w", pod, err)
	}
	running, cancel := context.WithCancel(context.WithoutCancel(ctx))
	f := &Fault{env: env, pod: pod, uid: p.UID, cancel: cancel}
	env.Timeline.Note("fault", "etcd of %s crashes at every start until the pod is replaced", pod)
	f.done.Go(func() { f.run(running) })
	return f, nil
}

func (f *Fault) run(ctx context.Context) {
	ticker := time.NewTicker(faultPeriod)
	defer ticker.Stop()
	killed := 0
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
		pid, runs := f.env.Nodes.PID(f.pod, "etcd")
		if !runs || pid == killed {
			continue
		}
		// The successor's etcd must not be hit. It can only run once this pod is gone.
		p, err := f.env.Client.CoreV1().Pods(Namespace).Get(ctx, f.pod, metav1.GetOptions{})
		switch {
		case err == nil && p.UID != f.uid:
			return
		case err != nil, p.DeletionTimestamp != nil:
			continue
		}
		if err := f.env.Nodes.KillContainer(f.pod, "etcd", syscall.SIGKILL); err == nil ||
			errors.Is(err, os.ErrProcessDone) {
			killed = pid
		}
	}
}

// Stop ends the fault.
func (f *Fault) Stop() {
	f.cancel()
	f.done.Wait()
}

// CrashLooping is true when the kubelet backs off from starting the pod's etcd.
func CrashLooping(p *corev1.Pod) bool { return etcdWaits(p, "CrashLoopBackOff") }

// PullFails is true when the kubelet backs off from pulling the image of the pod's etcd.
func PullFails(p *corev1.Pod) bool { return etcdWaits(p, "ImagePullBackOff") }

func etcdWaits(p *corev1.Pod, reason string) bool {
	if p == nil {
		return false
	}
	for i := range p.Status.ContainerStatuses {
		c := &p.Status.ContainerStatuses[i]
		if c.Name == "etcd" && c.State.Waiting != nil && c.State.Waiting.Reason == reason {
			return true
		}
	}
	return false
}

// nodeOf is the node on which a pod of the cluster runs.
func (c *Cluster) nodeOf(ctx context.Context, pod string) (string, error) {
	ordinal := pod[strings.LastIndexByte(pod, '-')+1:]
	switch {
	case c.env.real():
		return c.NodeOf(ctx, pod)
	case c.Spec.OwnNodes:
		return c.Spec.Name + "-node-" + ordinal, nil
	}
	return "node-" + ordinal, nil
}

// lose loses the node of a pod. The cluster must have its own nodes.
func (c *Cluster) lose(ctx context.Context, pod string, how node.Loss) error {
	name, err := c.nodeOf(ctx, pod)
	if err == nil && !c.Spec.OwnNodes {
		err = errors.New("others have pods there; set Spec.OwnNodes")
	}
	if err != nil {
		return fmt.Errorf("lose the node of %s: %w", pod, err)
	}
	c.env.Timeline.Note("fault", "%s is lost: %s", name, how)
	c.lost.Store(pod, name) // When it comes back, its pod may be elsewhere.
	return c.env.Nodes.LoseNode(ctx, name, how)
}

// restore brings it back.
func (c *Cluster) restore(ctx context.Context, pod string, how func(ctx context.Context, node string) error) error {
	name, ok := c.lost.Load(pod)
	if !ok {
		return fmt.Errorf("bring back the node of %s: it is not lost", pod)
	}
	c.env.Timeline.Note("fault", "%s is back", name)
	return how(ctx, name.(string))
}

// LoseNode loses the node of a pod to a power cut. Its processes end, and the API server only hears
// what the node controller says after a while, see [node.Agent.LoseNode]. If names resolve, the node's
// packets vanish too. The cluster must have its own nodes.
func (c *Cluster) LoseNode(ctx context.Context, pod string) error {
	n, ok := c.env.Network.(Links)
	if ok && c.Spec.OwnNodes {
		if err := n.Isolate(Namespace + "/" + pod); err != nil {
			return err
		}
	}
	err := c.lose(ctx, pod, node.PowerLoss)
	if ok && errors.Is(err, node.ErrLost) {
		err = errors.Join(err, n.Rejoin(Namespace+"/"+pod)) // It is not for this call to bring it back.
	}
	return err
}

// RestoreNode brings the node back.
func (c *Cluster) RestoreNode(ctx context.Context, pod string) error {
	if n, ok := c.env.Network.(Links); ok {
		if err := n.Rejoin(Namespace + "/" + pod); err != nil {
			return err
		}
	}
	return c.restore(ctx, pod, c.env.Nodes.RestoreNode)
}

// CutPower ends everything on the node of a pod, for a time that is too short for the node controller.
// Nobody hears of it before PowerOn. The cluster must have its own nodes.
func (c *Cluster) CutPower(ctx context.Context, pod string) error {
	return c.lose(ctx, pod, node.PowerCut)
}

// PowerOn boots the node again. Its containers are reported as terminated, and start by
// themselves after a while.
func (c *Cluster) PowerOn(ctx context.Context, pod string, starts time.Duration) error {
	return c.restore(ctx, pod, func(ctx context.Context, name string) error {
		return c.env.Nodes.Reboot(ctx, name, starts)
	})
}

// CutOff silently drops everything between a pod and the cluster's other pods, in both directions. The
// API server and the harness still reach it. It needs Namespaces.
func (c *Cluster) CutOff(pod string) error {
	c.env.Timeline.Note("fault", "%s is cut off from its peers", pod)
	return c.links(pod, Links.Cut)
}

// Reconnect undoes CutOff.
func (c *Cluster) Reconnect(pod string) error {
	c.env.Timeline.Note("fault", "%s is connected again", pod)
	return c.links(pod, Links.Heal)
}

func (c *Cluster) links(pod string, change func(n Links, a, b string) error) error {
	return c.network(pod, func(n Links) error {
		var errs []error
		for _, other := range c.Pods() {
			if other != pod {
				errs = append(errs, change(n, Namespace+"/"+pod, Namespace+"/"+other))
			}
		}
		return errors.Join(errs...)
	})
}

// Separate silently drops everything between two pods, in both directions. Others reach both. It needs
// Namespaces.
func (c *Cluster) Separate(a, b string) error {
	c.env.Timeline.Note("fault", "%s and %s are cut off from each other", a, b)
	return c.network(a, func(n Links) error { return n.Cut(Namespace+"/"+a, Namespace+"/"+b) })
}

// Reunite undoes Separate.
func (c *Cluster) Reunite(a, b string) error {
	c.env.Timeline.Note("fault", "%s and %s are connected again", a, b)
	return c.network(a, func(n Links) error { return n.Heal(Namespace+"/"+a, Namespace+"/"+b) })
}

// Isolate silently drops everything between a pod and everybody else: other pods, the API server,
// clients. Its kubelet reaches both the pod and the API server. It needs Namespaces.
func (c *Cluster) Isolate(pod string) error {
	c.env.Timeline.Note("fault", "%s is cut off from everybody", pod)
	return c.network(pod, func(n Links) error { return n.Isolate(Namespace + "/" + pod) })
}

// Rejoin undoes Isolate.
func (c *Cluster) Rejoin(pod string) error {
	c.env.Timeline.Note("fault", "%s is connected again", pod)
	return c.network(pod, func(n Links) error { return n.Rejoin(Namespace + "/" + pod) })
}

// CutZone cuts pods off from the zone in which the API server is, with all other pods of the cluster: nothing
// passes between the two sides, the sidecars of those that are away do not reach the API server, and their kubelets
// are not heard ([node.Silence]). The harness reaches everybody. It needs Namespaces, and the cluster must have its own
// nodes, with addresses of their own ([Options.NodeAddresses]).
//
// The function that it returns ends it, and may be called until it succeeds. After an error it ends what has begun.
func (c *Cluster) CutZone(ctx context.Context, away []string) (mend func(context.Context) error, err error) {
	if !c.Spec.OwnNodes || !c.env.nodeAddresses {
		return nil, errors.New("cut off a zone: others have its nodes, or their addresses; set Spec.OwnNodes and " +
			"Options.NodeAddresses")
	}
	zone := slices.DeleteFunc(slices.Concat(c.Pods(), c.beside),
		func(pod string) bool { return slices.Contains(away, pod) })
	c.env.Timeline.Note("fault", "%s are cut off from %s, where the API server is", strings.Join(away, ", "),
		strings.Join(zone, ", "))
	var silent []string
	for _, pod := range away {
		if e := c.lose(ctx, pod, node.Silence); e != nil {
			err = errors.Join(err, e)
		} else {
			silent = append(silent, pod)
		}
	}
	serve := c.env.API.Refuse(func(r *apiproxy.Request) bool { return slices.Contains(away, r.Pod) }, 0)
	between := func(change func(n Links, a, b string) error) error {
		var errs []error
		for _, pod := range zone {
			errs = append(errs, c.network(pod, func(n Links) error {
				var errs []error
				for _, other := range away {
					errs = append(errs, change(n, Namespace+"/"+pod, Namespace+"/"+other))
					if name, ok := c.lost.Load(other); ok {
						errs = append(errs, change(n, Namespace+"/"+pod, nodeSpace+"/"+name.(string)))
					}
				}
				return errors.Join(errs...)
			}))
		}
		return errors.Join(errs...)
	}
	return func(ctx context.Context) error {
		c.env.Timeline.Note("fault", "%s are connected again", strings.Join(away, ", "))
		serve()
		err := between(Links.Heal)
		silent = slices.DeleteFunc(silent, func(pod string) bool {
			e := c.restore(ctx, pod, c.env.Nodes.RestoreNode)
			err = errors.Join(err, e)
			return e == nil
		})
		return err
	}, errors.Join(err, between(Links.Cut))
}

func (c *Cluster) network(pod string, change func(Links) error) error {
	n, ok := c.env.Network.(Links)
	if !ok {
		return fmt.Errorf("change the links of %s: pods have no network of their own here; use Namespaces", pod)
	}
	return change(n)
}

// Misdirect makes the DNS name of a pod lead to another pod, everywhere in the cluster. Misdirecting it
// to itself undoes that. It needs Namespaces. (Programs keep their connections.)
func (c *Cluster) Misdirect(pod, to string) error {
	n, ok := c.env.Network.(Links)
	if !ok {
		return fmt.Errorf("misdirect %s: names do not resolve here; use Namespaces", pod)
	}
	c.env.Timeline.Note("fault", "the name of %s leads to %s", pod, to)
	address := ""
	if pod != to {
		address = c.env.Network.AddressOf(Namespace, to)
	}
	return n.Redirect(c.env.host(c.Spec, pod), address)
}
