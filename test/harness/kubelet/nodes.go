package kubelet

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"

	"github.com/quorate/quorate/test/harness/node"
	"github.com/quorate/quorate/test/harness/process"
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
	// pool is the one that has the node, unless it is free.
	pool string
	free bool
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
	return n, n.Room(ctx, "", config.Nodes)
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
		AddFunc: learn, UpdateFunc: func(old, o any) {
			learn(o)
			n.tell(old.(*corev1.Pod), o.(*corev1.Pod))
		},
		DeleteFunc: func(o any) {
			if unknown, ok := o.(cache.DeletedFinalStateUnknown); ok {
				o = unknown.Obj
			}
			n.config.Network.forget(o.(*corev1.Pod))
			n.config.OnEvent("%s %s: the API server has it no more", o.(*corev1.Pod).Name, node.Gone)
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

// tell tells that the Ready condition of a pod has changed, in the agent's words.
func (n *Nodes) tell(old, now *corev1.Pod) {
	of := func(p *corev1.Pod) (ready corev1.PodCondition) {
		for _, c := range p.Status.Conditions {
			if c.Type == corev1.PodReady {
				ready = c
			}
		}
		return ready
	}
	switch before, after := of(old), of(now); {
	case after.Status == corev1.ConditionTrue && before.Status != corev1.ConditionTrue:
		n.config.OnEvent("%s %s", now.Name, node.Ready)
	case after.Status != corev1.ConditionTrue && before.Status == corev1.ConditionTrue:
		n.config.OnEvent("%s %s: %s", now.Name, node.NotReady, cmp.Or(after.Message, after.Reason))
	}
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

// Room sees to it that a pool has at least so many nodes, and waits until the new ones are Ready. It takes those that
// are free, and boots more. Pods have to select their pool by node.PoolLabel, also the one without a name.
func (n *Nodes) Room(ctx context.Context, pool string, nodes int) error {
	var fresh, taken []*one
	n.mu.Lock()
	for _, o := range n.all {
		if !o.free && o.pool == pool {
			nodes--
		}
	}
	for _, o := range n.all {
		if o.free && len(taken) < nodes {
			o.pool, o.free = pool, false
			taken = append(taken, o)
		}
	}
	for range nodes - len(taken) {
		name := fmt.Sprintf("node-%d", len(n.all))
		o := &one{name: name, index: len(n.all), dir: filepath.Join(n.config.Dir, name), pool: pool}
		n.all, fresh = append(n.all, o), append(fresh, o)
	}
	n.mu.Unlock()
	var group errgroup.Group
	for _, o := range taken {
		group.Go(func() error { return n.enlist(ctx, o) })
	}
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

// Free lets other pools have the nodes of a pool, but for those that are lost. No pods may be left there.
func (n *Nodes) Free(pool string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, o := range n.all {
		o.free = o.free || o.pool == pool && o.process != nil && !o.cut
	}
}

// enlist gives a node to its pool.
func (n *Nodes) enlist(ctx context.Context, o *one) error {
	return n.patch(ctx, o.name, fmt.Appendf(nil, `{"metadata":{"labels":{%q:%q}},"spec":{"unschedulable":false}}`,
		node.PoolLabel, o.pool))
}

// boot lets a node that has no power start, and waits until it is Ready.
func (n *Nodes) boot(ctx context.Context, o *one) error {
	began := time.Now()
	if err := errors.Join(makeGroups(n.group(o)), favour(n.group(o))); err != nil {
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
	starting, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	go func() {
		select {
		case <-p.Done():
			cancel(errors.New("its first process has ended; see its machine.log"))
		case <-starting.Done():
		}
	}()
	if err := n.waitReady(starting, o, began); err != nil {
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
			return fmt.Errorf("wait until %s: %w; the logs of the nodes are in %s", what, context.Cause(ctx),
				n.config.Dir)
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

// Cordon keeps new pods off a node, or lets them on it again.
func (n *Nodes) Cordon(ctx context.Context, name string, cordoned bool) error {
	return n.patch(ctx, name, fmt.Appendf(nil, `{"spec":{"unschedulable":%t}}`, cordoned))
}

func (n *Nodes) patch(ctx context.Context, name string, patch []byte) error {
	_, err := n.client.CoreV1().Nodes().Patch(ctx, name, types.StrategicMergePatchType, patch, metav1.PatchOptions{})
	return err
}

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
