package kubelet

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/quorate/quorate/test/harness/node"
)

// LoseNode loses a node in one of the ways of package node. If the node controller has something to say about it, that
// has been said when it returns.
func (n *Nodes) LoseNode(ctx context.Context, name string, how node.Loss) error {
	o, err := n.find(name)
	if err != nil {
		return err
	}
	n.mu.Lock()
	lost, cut := o.process == nil || o.cut, how == node.Partition || how == node.Silence
	o.cut = o.cut || cut
	n.mu.Unlock()
	if lost {
		return fmt.Errorf("lose %s: %w", name, node.ErrLost)
	}
	n.config.OnEvent("%s is lost: %s", name, how)
	if cut {
		err = n.config.Network.Cut(Hub, NodeSpace+"/"+name)
	} else {
		err = n.off(ctx, o)
	}
	if err != nil || how == node.PowerCut || how == node.Silence {
		return err
	}
	return n.waitLost(ctx, name)
}

// waitLost waits until the node controller has noticed that a node is lost.
func (n *Nodes) waitLost(ctx context.Context, name string) error {
	return n.wait(ctx, "the node controller says that "+name+" is lost", func(ctx context.Context) bool {
		object, err := n.client.CoreV1().Nodes().Get(ctx, name, metav1.GetOptions{})
		if err != nil || condition(object.Status.Conditions).Status != corev1.ConditionUnknown ||
			len(object.Spec.Taints) == 0 {
			return false
		}
		pods, err := n.client.CoreV1().Pods("").List(ctx, metav1.ListOptions{FieldSelector: "spec.nodeName=" + name})
		if err != nil {
			return false
		}
		for i := range pods.Items {
			for _, c := range pods.Items[i].Status.Conditions {
				if c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue {
					return false
				}
			}
		}
		return true
	})
}

// RestoreNode brings a node back that is lost, and waits until it is Ready.
func (n *Nodes) RestoreNode(ctx context.Context, name string) error {
	o, err := n.find(name)
	if err != nil {
		return err
	}
	began := time.Now()
	n.mu.Lock()
	cut, off := o.cut, o.process == nil
	o.cut = false
	n.mu.Unlock()
	switch {
	case cut:
		if err := n.config.Network.Heal(Hub, NodeSpace+"/"+name); err != nil {
			return err
		}
		return n.waitReady(ctx, o, began)
	case off:
		return n.boot(ctx, o)
	}
	return fmt.Errorf("restore %s: it is not lost", name)
}

// Reboot is RestoreNode. A real node takes the time that it takes.
func (n *Nodes) Reboot(ctx context.Context, name string, _ time.Duration) error {
	return n.RestoreNode(ctx, name)
}

// KillKubelet kills a node's kubelet alone. It is started again after kubeletAgain.
func (n *Nodes) KillKubelet(name string) error {
	o, err := n.find(name)
	if err != nil {
		return err
	}
	n.config.OnEvent("the kubelet of %s is killed", name)
	n.mu.Lock()
	first := o.process
	n.mu.Unlock()
	if first == nil {
		return fmt.Errorf("kill the kubelet of %s: %w", name, node.ErrLost)
	}
	// Any thread of the first process may have started it.
	threads, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", first.PID()))
	if err != nil {
		return err
	}
	kubelet := []byte(strings.Join(n.machine(o).Kubelet[:2], "\x00"))
	for _, thread := range threads {
		text, _ := os.ReadFile(thread) // A thread may have ended.
		for _, field := range strings.Fields(string(text)) {
			line, err := os.ReadFile(filepath.Join("/proc", field, "cmdline"))
			if err == nil && bytes.HasPrefix(line, kubelet) {
				pid, err := strconv.Atoi(field)
				return errors.Join(err, unix.Kill(pid, unix.SIGKILL))
			}
		}
	}
	return fmt.Errorf("the kubelet of %s: %w", name, os.ErrProcessDone)
}
