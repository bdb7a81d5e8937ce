package kubelet

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"

	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/tools/remotecommand"
	"k8s.io/client-go/util/exec"

	"github.com/quorate/quorate/test/harness/node"
	"github.com/quorate/quorate/test/harness/rootfs"
)

// running are the processes of a container, with the first one first. A name that is empty means the sandbox.
func (n *Nodes) running(pod, name string) []int {
	if !strings.Contains(pod, "/") {
		pod = metav1.NamespaceDefault + "/" + pod
	}
	var all []container
	n.mu.Lock()
	for _, o := range n.all {
		if o.process != nil {
			all = append(all, n.containers.on(o.process.PID())...)
		}
	}
	n.mu.Unlock()
	// The successor of a pod that was deleted by force may run before its predecessor has ended.
	slices.SortFunc(all, func(a, b container) int { return b.made.Compare(a.made) })
	for _, c := range all {
		if c.pod != pod || c.name != name {
			continue
		}
		pids := pidsIn(c.group)
		for i, pid := range pids {
			if isFirst(pid) {
				pids[0], pids[i] = pids[i], pids[0]
				return pids
			}
		}
	}
	return nil
}

func (n *Nodes) sandbox(pod string) (pid int, ok bool) { return n.PID(pod, "") }

// PID returns the process ID of a container, or false when it does not run.
func (n *Nodes) PID(pod, container string) (pid int, running bool) {
	pids := n.running(pod, container)
	if len(pids) == 0 {
		return 0, false
	}
	return pids[0], true
}

// KillContainer sends a signal to all processes of a container.
func (n *Nodes) KillContainer(pod, container string, sig syscall.Signal) error {
	pids := n.running(pod, container)
	if len(pids) == 0 {
		return fmt.Errorf("send %v to %s of %s: %w", sig, container, pod, os.ErrProcessDone)
	}
	for i, pid := range pids {
		// The others end with the first one.
		if err := unix.Kill(pid, sig); err != nil && (i == 0 || !errors.Is(err, unix.ESRCH)) {
			return fmt.Errorf("send %v to %s of %s: %w", sig, container, pod, err)
		}
	}
	return nil
}

// Exec runs the program of a container's image once more in that container. It returns the exit code and what the
// program has printed, both outputs as one.
func (n *Nodes) Exec(ctx context.Context, pod, container string, args ...string) (code int, output string, err error) {
	p, err := n.client.CoreV1().Pods(metav1.NamespaceDefault).Get(ctx, pod, metav1.GetOptions{})
	if err != nil {
		return 0, "", err
	}
	argv := args
	for i := range p.Spec.Containers {
		if c := &p.Spec.Containers[i]; c.Name == container {
			argv = append([]string{rootfs.ProgramPath(n.config.Images[c.Image].Program)}, args...)
		}
	}
	url := n.client.CoreV1().RESTClient().Post().Resource("pods").Namespace(p.Namespace).Name(pod).SubResource("exec").
		VersionedParams(&corev1.PodExecOptions{Container: container, Command: argv, Stdout: true, Stderr: true},
			scheme.ParameterCodec).URL()
	executor, err := remotecommand.NewSPDYExecutor(n.config.Admin, "POST", url)
	if err != nil {
		return 0, "", err
	}
	var printed printer
	err = executor.StreamWithContext(ctx, remotecommand.StreamOptions{Stdout: &printed, Stderr: &printed})
	var exit exec.CodeExitError
	if errors.As(err, &exit) {
		code, err = exit.Code, nil
	}
	return code, printed.String(), err
}

// printer takes what two streams print.
type printer struct {
	mu   sync.Mutex
	text strings.Builder
}

func (o *printer) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.text.Write(p)
}

func (o *printer) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.text.String()
}

// ClaimDir returns the directory with the data of a persistent volume claim.
func (n *Nodes) ClaimDir(namespace, claim string) string {
	return filepath.Join(node.VolumesDir(n.config.Dir), namespace, claim)
}

// HostDir returns the folder that a path of the nodes stands for that they share.
func (n *Nodes) HostDir(_, path string) string { return filepath.Join(n.config.Dir, "shared", path) }

// LogDir returns the directory with the logs of the pods of a name, as the agent's has them.
func (n *Nodes) LogDir(pod string) string { return filepath.Join(n.config.Dir, "logs", pod) }

// LogOf reports whether a file there is the log of this pod.
func (n *Nodes) LogOf(pod *corev1.Pod, path string) bool {
	return node.IsLogOf(pod, n.LogDir(pod.Name), path)
}
