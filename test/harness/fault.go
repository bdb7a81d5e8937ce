package harness

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"syscall"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// faultPeriod is how often the fault looks for a new process. An etcd needs longer
// than that to load its data, so it never comes to serve.
const faultPeriod = 10 * time.Millisecond

// Fault makes the etcd of one pod crash at every start, until the pod is replaced: a
// bug of the old release that only this member's data brings out. The data itself is
// left alone. Everybody else (kubelet, Kubernetes, Quorate, the other members) sees
// what they would see of any such bug: a container that restarts with a growing
// back-off.
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
		pid, runs := f.env.Agent.PID(f.pod, "etcd")
		if !runs || pid == killed {
			continue
		}
		// The successor's etcd must not be hit: it can only run once this pod is gone.
		p, err := f.env.Client.CoreV1().Pods(Namespace).Get(ctx, f.pod, metav1.GetOptions{})
		switch {
		case err == nil && p.UID != f.uid:
			return
		case err != nil, p.DeletionTimestamp != nil:
			continue
		}
		if err := f.env.Agent.KillContainer(f.pod, "etcd", syscall.SIGKILL); err == nil || errors.Is(err, os.ErrProcessDone) {
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
func CrashLooping(p *corev1.Pod) bool {
	if p == nil {
		return false
	}
	for i := range p.Status.ContainerStatuses {
		c := &p.Status.ContainerStatuses[i]
		if c.Name == "etcd" && c.State.Waiting != nil && c.State.Waiting.Reason == "CrashLoopBackOff" {
			return true
		}
	}
	return false
}
