package kubelet

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sync/errgroup"
	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/remotecommand"
	"k8s.io/client-go/util/exec"

	"github.com/quorate/quorate/test/harness/node"
	"github.com/quorate/quorate/test/harness/process"
	"github.com/quorate/quorate/test/harness/rootfs"
)

// Config says what nodes there are, and what they run.
type Config struct {
	// Admin is the configuration of a cluster admin.
	Admin *rest.Config
	// Kubeconfig writes the kubeconfig of a node's kubelet, and returns its path.
	Kubeconfig func(node string) (string, error)
	// Kube is the program with the kubelet, and Runtime the folder with the container runtime (package build).
	Kube, Runtime string
	// Images are the images, as pods name them. One that is not here cannot be pulled.
	Images map[string]node.Image
	// Dir takes everything, as that of the agent does.
	Dir string
	// Nodes is how many nodes there are: node-0, node-1 and so on.
	Nodes   int
	Network *Network
	// SharedPaths are paths of the nodes that are one folder for all of them.
	SharedPaths []string
	// Patient lets containers that crash wait as long as by default. Otherwise they wait for a few seconds at most.
	Patient bool
	// OnEvent is told what happens to nodes.
	OnEvent func(format string, args ...any)
}

const (
	// lookAgain is how often logs are copied, and nodes asked whether they are ready.
	lookAgain = 100 * time.Millisecond
	// readyTimeout bounds the wait for a node.
	readyTimeout = 2 * time.Minute
)

// Nodes are running nodes. Its methods may be called from any goroutine. Where a method takes a pod, it is a name, or
// namespace/name.
type Nodes struct {
	config     Config
	client     kubernetes.Interface
	images     string
	groups     string
	sweeper    *sweeper
	containers containers
	informers  informers.SharedInformerFactory
	cancel     context.CancelFunc
	work       sync.WaitGroup

	mu  sync.Mutex
	all []*one
	// pool is the one that has all nodes.
	pool string
}

// one is one node.
type one struct {
	name  string
	index int
	dir   string
	// process is the node's first. It is nil without power.
	process *process.Process
	// cut is true while the kubelet does not reach the API server.
	cut bool
}

// Start boots the nodes, and returns when all are Ready. The context bounds the start only.
func Start(ctx context.Context, config Config) (n *Nodes, err error) {
	n = &Nodes{config: config, groups: fmt.Sprintf("quorate-%d-%d", os.Getpid(), config.Network.index),
		images: filepath.Join(config.Dir, "images.tar"), containers: containers{known: map[string]container{}}}
	running, cancel := context.WithCancel(context.WithoutCancel(ctx))
	n.cancel = cancel
	defer func() {
		if err != nil {
			err = errors.Join(fmt.Errorf("start real nodes: %w", err), n.Close(context.WithoutCancel(ctx)))
			n = nil
		}
	}()
	if n.client, err = kubernetes.NewForConfig(config.Admin); err != nil {
		return n, err
	}
	if err = n.share(node.VolumesDir(config.Dir)); err != nil {
		return n, err
	}
	busybox := filepath.Join(config.Runtime, "bin", "busybox")
	if err = writeImages(n.images, busybox, config.Images); err != nil {
		return n, fmt.Errorf("write the images: %w", err)
	}
	if n.sweeper, err = startSweeper(n.groups + "-*"); err != nil {
		return n, err
	}
	config.Network.mu.Lock()
	config.Network.sandbox = n.sandbox
	config.Network.mu.Unlock()
	n.informers = informers.NewSharedInformerFactory(n.client, 0)
	if err = n.watch(running); err != nil {
		return n, err
	}
	n.work.Go(func() { n.copyLogs(running) })
	return n, n.Room(ctx, config.Nodes)
}

// share makes a folder one whose mounts the nodes see too, also those that come later.
func (n *Nodes) share(dir string) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	if err := mount(dir, dir, "", unix.MS_BIND|unix.MS_REC, ""); err != nil {
		return err
	}
	return unix.Mount("", dir, "", unix.MS_SHARED, "")
}

// watch follows pods, for their addresses, and claims, for their volumes.
func (n *Nodes) watch(ctx context.Context) error {
	ignore := func(context.Context, *cache.Reflector, error) {} // An API server that is away is no fault of ours.
	pods := n.informers.Core().V1().Pods().Informer()
	claims := n.informers.Core().V1().PersistentVolumeClaims().Informer()
	learn := func(o any) {
		if err := n.config.Network.learn(o.(*corev1.Pod)); err != nil {
			n.config.OnEvent("links of %s: %v", o.(*corev1.Pod).Name, err)
		}
	}
	_, err := pods.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc: learn, UpdateFunc: func(_, o any) { learn(o) },
		DeleteFunc: func(o any) {
			if unknown, ok := o.(cache.DeletedFinalStateUnknown); ok {
				o = unknown.Obj
			}
			n.config.Network.forget(o.(*corev1.Pod))
		},
	})
	_, cerr := claims.AddEventHandler(cache.ResourceEventHandlerFuncs{AddFunc: func(o any) {
		if err := n.provide(ctx, o.(*corev1.PersistentVolumeClaim)); err != nil {
			n.config.OnEvent("volume of %s: %v", o.(*corev1.PersistentVolumeClaim).Name, err)
		}
	}})
	if err := errors.Join(err, cerr, pods.SetWatchErrorHandlerWithContext(ignore),
		claims.SetWatchErrorHandlerWithContext(ignore)); err != nil {
		return err
	}
	n.informers.StartWithContext(ctx)
	if !cache.WaitForCacheSync(ctx.Done(), pods.HasSynced, claims.HasSynced) {
		return errors.New("pods cannot be watched")
	}
	return nil
}

func (n *Nodes) copyLogs(ctx context.Context) {
	l := &logs{to: filepath.Join(n.config.Dir, "logs"), open: map[string]*logCopy{}}
	ticker := time.NewTicker(lookAgain)
	defer ticker.Stop()
	for {
		ended := ctx.Err() != nil
		var nodes []string
		n.mu.Lock()
		for _, o := range n.all {
			nodes = append(nodes, o.dir)
		}
		n.mu.Unlock()
		if err := l.look(nodes); err != nil {
			n.config.OnEvent("copy logs: %v", err)
		}
		if ended {
			for _, c := range l.open {
				_ = c.close()
			}
			return
		}
		select {
		case <-ctx.Done():
		case <-ticker.C:
		}
	}
}

// Room sees to it that there are at least so many nodes, and waits until they are Ready.
func (n *Nodes) Room(ctx context.Context, nodes int) error {
	var fresh []*one
	n.mu.Lock()
	for i := len(n.all); i < nodes; i++ {
		name := fmt.Sprintf("node-%d", i)
		o := &one{name: name, index: i, dir: filepath.Join(n.config.Dir, name)}
		n.all, fresh = append(n.all, o), append(fresh, o)
	}
	n.mu.Unlock()
	var group errgroup.Group
	for _, o := range fresh {
		group.Go(func() error {
			if err := n.install(o); err != nil {
				return fmt.Errorf("install %s: %w", o.name, err)
			}
			if err := n.boot(ctx, o); err != nil {
				return err
			}
			return n.enlist(ctx, o)
		})
	}
	return group.Wait()
}

// enlist gives a node to the pool.
func (n *Nodes) enlist(ctx context.Context, o *one) error {
	n.mu.Lock()
	patch := fmt.Appendf(nil, `{"metadata":{"labels":{%q:%q}}}`, node.PoolLabel, n.pool)
	n.mu.Unlock()
	return n.patch(ctx, o.name, patch)
}

// boot lets a node that has no power start, and waits until it is Ready.
func (n *Nodes) boot(ctx context.Context, o *one) error {
	began := time.Now()
	if err := makeGroups(n.group(o)); err != nil {
		return err
	}
	m, err := json.Marshal(n.machine(o))
	if err != nil {
		return err
	}
	p, err := process.Start(process.Spec{Name: o.name, Path: "/proc/self/exe", Args: []string{machineVerb, string(m)},
		Namespaces: unix.CLONE_NEWNS | unix.CLONE_NEWNET | unix.CLONE_NEWPID | unix.CLONE_NEWUTS | unix.CLONE_NEWIPC,
		LogPath:    filepath.Join(o.dir, "machine.log")})
	if err != nil {
		return err
	}
	n.mu.Lock()
	o.process = p
	n.mu.Unlock()
	if err := n.config.Network.connect(o.name, o.index, p.PID()); err != nil {
		return err
	}
	if err := n.waitReady(ctx, o, began); err != nil {
		return err
	}
	n.config.OnEvent("%s is Ready %v after it was switched on", o.name, time.Since(began).Round(time.Millisecond))
	return nil
}

// waitReady waits until a kubelet that was started then, or has been reached since then, says that it is ready.
func (n *Nodes) waitReady(ctx context.Context, o *one, since time.Time) error {
	return n.wait(ctx, o.name+" is Ready", func(ctx context.Context) bool {
		object, err := n.client.CoreV1().Nodes().Get(ctx, o.name, metav1.GetOptions{})
		if err != nil || len(object.Spec.Taints) > 0 && !object.Spec.Unschedulable {
			return false
		}
		ready := condition(object.Status.Conditions)
		return ready.Status == corev1.ConditionTrue && !ready.LastHeartbeatTime.Time.Before(since.Truncate(time.Second))
	})
}

func condition(all []corev1.NodeCondition) (ready corev1.NodeCondition) {
	for _, c := range all {
		if c.Type == corev1.NodeReady {
			ready = c
		}
	}
	return ready
}

func (n *Nodes) wait(ctx context.Context, what string, done func(context.Context) bool) error {
	ctx, cancel := context.WithTimeout(ctx, readyTimeout)
	defer cancel()
	ticker := time.NewTicker(lookAgain)
	defer ticker.Stop()
	for !done(ctx) {
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return fmt.Errorf("wait until %s: %w; the logs of the nodes are in %s", what, ctx.Err(), n.config.Dir)
		}
	}
	return nil
}

// off takes a node's power, and waits until nothing of it is left.
func (n *Nodes) off(ctx context.Context, o *one) error {
	n.mu.Lock()
	p := o.process
	o.process = nil
	n.mu.Unlock()
	if p == nil {
		return nil
	}
	err := errors.Join(p.Stop(ctx, 0), n.config.Network.disconnect(o.name, o.index))
	// A boot finds no control groups. A kubelet that found some would wait for them.
	return errors.Join(err, sweep(n.group(o)))
}

// group is the control group of a node.
func (n *Nodes) group(o *one) string { return n.groups + "-" + o.name }

// find returns the node of that name.
func (n *Nodes) find(name string) (*one, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, o := range n.all {
		if o.name == name {
			return o, nil
		}
	}
	return nil, fmt.Errorf("there is no node %s", name)
}

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

// AddPool gives the nodes that there are to a pool. They have been another one's before, so that only one cluster at a
// time can have nodes of its own.
func (n *Nodes) AddPool(ctx context.Context, pool string, _ ...string) error {
	n.mu.Lock()
	n.pool = pool
	nodes := slices.Clone(n.all)
	n.mu.Unlock()
	for _, o := range nodes {
		if err := n.enlist(ctx, o); err != nil {
			return err
		}
	}
	return nil
}

// Cordon keeps new pods off a node, or lets them on it again.
func (n *Nodes) Cordon(ctx context.Context, name string, cordoned bool) error {
	return n.patch(ctx, name, fmt.Appendf(nil, `{"spec":{"unschedulable":%t}}`, cordoned))
}

func (n *Nodes) patch(ctx context.Context, name string, patch []byte) error {
	_, err := n.client.CoreV1().Nodes().Patch(ctx, name, types.StrategicMergePatchType, patch, metav1.PatchOptions{})
	return err
}

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
	return filepath.Dir(path) == n.LogDir(pod.Name) &&
		strings.HasPrefix(filepath.Base(path), shortUID(string(pod.UID))+"-")
}

// Close takes the power of all nodes, and removes what is left of them but for logs and the data of claims.
func (n *Nodes) Close(ctx context.Context) error {
	var errs []error
	n.mu.Lock()
	nodes := slices.Clone(n.all)
	n.mu.Unlock()
	for _, o := range nodes {
		errs = append(errs, n.off(ctx, o))
	}
	n.cancel()
	n.work.Wait()
	if n.informers != nil {
		n.informers.Shutdown()
	}
	if n.sweeper != nil {
		errs = append(errs, n.sweeper.finish())
	}
	for _, o := range nodes {
		errs = append(errs, os.RemoveAll(filepath.Join(o.dir, libDir)))
	}
	return errors.Join(append(errs, os.RemoveAll(n.images),
		unix.Unmount(node.VolumesDir(n.config.Dir), unix.MNT_DETACH))...)
}
