package node

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/flowcontrol"

	"github.com/quorate/quorate/test/harness/network"
)

// Config says what an agent runs, and where.
type Config struct {
	// Client needs the rights of a scheduler, a kubelet and the node controller; an
	// administrator's will do. Its rate limit should be off. Required.
	Client kubernetes.Interface
	// Network gives the pods their addresses. Required.
	Network network.Network
	// Images are the images, as pods name them. One that is not here cannot be pulled.
	Images map[string]Image
	// Dir takes logs (logs/<pod>/<uid>-<container>-<restart>.log), the data of claims
	// and, while they exist, the other files of pods. It is created when missing.
	// Required.
	Dir string
	// Nodes are the names of the nodes. At least one.
	Nodes []string
	// Address is a node's address, by its name. Without it, all nodes have that of the hub. Optional.
	Address func(node string) string
	// Env is added to the environment of every container whose spec does not set the
	// same variable.
	Env map[string]string
	// SharedPaths are paths of the nodes that are one folder for all of them, as a network file system
	// is. Every other hostPath is the node's own. Optional.
	SharedPaths []string
	// APIServer is the URL under which pods reach the API server, and APIServerCA has the
	// certificates (PEM) of its certificate authority. With a URL, containers that have their
	// ServiceAccount's token mounted where Kubernetes mounts it reach the API server with it: by
	// KUBERNETES_SERVICE_HOST and _PORT where they have a root file system of their own, else by a
	// kubeconfig in KUBECONFIG. Optional.
	APIServer   string
	APIServerCA []byte
	// BackoffBase and BackoffCap are the first and the longest wait before a container
	// is restarted, or its image looked up again. 1 s and 8 s by default; a kubelet's
	// are 10 s and 300 s.
	BackoffBase, BackoffCap time.Duration
	// VolumeSync is how often secrets, config maps and tokens in volumes are brought
	// up to date. 5 s by default; a kubelet takes about a minute.
	VolumeSync time.Duration
	// OnEvent is told what happens, one event at a time. It must return soon and must
	// not call the agent. Optional.
	OnEvent func(Event)
}

// Image is what an image has, as far as the agent needs it.
type Image struct {
	// Program is the absolute path of the program that the image starts. Empty for an image that has
	// nothing but a shell and tools, as alpine: the machine's take their place.
	Program string
	// User is who it starts as, if the pod does not say: 0 is root, 65532 the user nonroot of distroless
	// images. It has no effect where containers have no root file system of their own.
	User int
	// Archive is a file that holds the image itself, in the layout of the Open Container Initiative. Real nodes then
	// take that one. The agent has no images, and starts the program.
	Archive string
}

func (c Config) complete() (Config, error) {
	switch {
	case c.Client == nil:
		return c, errors.New("node.Config.Client is missing")
	case c.Network == nil:
		return c, errors.New("node.Config.Network is missing")
	case c.Dir == "":
		return c, errors.New("node.Config.Dir is empty; name a directory for logs and volumes")
	case len(c.Nodes) == 0:
		return c, errors.New("node.Config.Nodes is empty; name at least one node")
	case c.BackoffBase < 0 || c.BackoffCap < 0 || c.VolumeSync < 0:
		return c, fmt.Errorf("node.Config: BackoffBase (%s), BackoffCap (%s) and VolumeSync (%s) must not be negative",
			c.BackoffBase, c.BackoffCap, c.VolumeSync)
	}
	for name, image := range c.Images {
		if image.Program != "" && !filepath.IsAbs(image.Program) {
			return c, fmt.Errorf("node.Config.Images[%q].Program: %q is not an absolute path", name, image.Program)
		}
	}
	for _, path := range c.SharedPaths {
		if !filepath.IsAbs(path) {
			return c, fmt.Errorf("node.Config.SharedPaths: %q is not an absolute path", path)
		}
	}
	dir, err := filepath.Abs(c.Dir)
	if err != nil {
		return c, fmt.Errorf("node.Config.Dir %q: %w", c.Dir, err)
	}
	c.Dir = dir
	byDefault := func(value *time.Duration, d time.Duration) {
		if *value == 0 {
			*value = d
		}
	}
	if c.Address == nil {
		c.Address = func(string) string { return c.Network.HubAddress() }
	}
	byDefault(&c.BackoffBase, time.Second)
	byDefault(&c.BackoffCap, max(c.BackoffBase, 8*time.Second))
	byDefault(&c.VolumeSync, 5*time.Second)
	return c, nil
}

// Agent is a running node agent. Its methods may be called from any goroutine.
//
// Where a method takes a pod, it is a name, or namespace/name when the name exists in
// several namespaces.
type Agent struct {
	config     Config
	ctx        context.Context //nolint:containedctx // The life of the agent; ends with Close.
	cancel     context.CancelFunc
	group      sync.WaitGroup
	eventMutex sync.Mutex
	informers  informers.SharedInformerFactory

	// The rest belongs to the goroutine of loop; others use do.
	requests chan func()
	nodes    map[string]Loss
	// pools are the nodes of every pool; those of Config.Nodes belong to the pool "".
	pools map[string][]string
	// pods are all pods by namespace/name, as told by the watch so far. The informer's
	// own store runs ahead of what it tells, and old news would look new.
	pods    map[string]*corev1.Pod
	workers map[types.UID]*worker
	// finished are the pods that are not to be started again, until the API server says that they have been deleted.
	finished map[types.UID]bool
	binding  map[types.UID]bool
	// cordoned are the nodes that take no new pods.
	cordoned map[string]bool
}

// Start registers the nodes and begins to run pods; pods that exist already and are bound
// to one of the nodes are taken over as after a restart of their node. It returns when the
// agent has seen all pods. The context bounds the start only: the agent runs until Close.
func Start(ctx context.Context, config Config) (*Agent, error) {
	config, err := config.complete()
	if err != nil {
		return nil, err
	}
	if err := os.MkdirAll(config.Dir, 0o755); err != nil {
		return nil, fmt.Errorf("node agent: %w", err)
	}
	running, cancel := context.WithCancel(context.WithoutCancel(ctx))
	a := &Agent{
		config: config, ctx: running, cancel: cancel,
		informers: informers.NewSharedInformerFactory(config.Client, 0),
		requests:  make(chan func()),
		nodes:     map[string]Loss{},
		pools:     map[string][]string{"": config.Nodes},
		pods:      map[string]*corev1.Pod{},
		workers:   map[types.UID]*worker{},
		finished:  map[types.UID]bool{},
		binding:   map[types.UID]bool{},
		cordoned:  map[string]bool{},
	}
	for _, name := range config.Nodes {
		a.nodes[name] = NotLost
		if err := a.setNode(ctx, name, "", NotLost); err != nil {
			cancel()
			return nil, fmt.Errorf("register node %s: %w", name, err)
		}
	}
	informer := a.informers.Core().V1().Pods().Informer()
	a.group.Go(a.loop)
	err = a.watch(ctx, informer)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("node agent: watch pods: %w", err), a.Close(ctx))
	}
	return a, nil
}

func (a *Agent) watch(ctx context.Context, informer cache.SharedIndexInformer) error {
	// An API server that is away is no fault of the agent; a caller that looks at the cluster
	// notices anyway.
	if err := informer.SetWatchErrorHandlerWithContext(func(context.Context, *cache.Reflector, error) {}); err != nil {
		return err
	}
	registration, err := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    func(object any) { a.post(func() { a.learn(object.(*corev1.Pod)) }) },
		UpdateFunc: func(_, object any) { a.post(func() { a.learn(object.(*corev1.Pod)) }) },
		DeleteFunc: func(object any) {
			if unknown, ok := object.(cache.DeletedFinalStateUnknown); ok {
				object = unknown.Obj
			}
			if pod, ok := object.(*corev1.Pod); ok {
				a.post(func() { a.forget(pod) })
			}
		},
	})
	if err != nil {
		return err
	}
	a.informers.StartWithContext(a.ctx)
	if !cache.WaitForCacheSync(ctx.Done(), registration.HasSynced) {
		return ctx.Err()
	}
	return nil
}

// Close kills all processes with SIGKILL, detaches the pods from the network and removes
// their files, but for logs and the data of claims. The API server is not told: to it,
// the nodes are as they were. When the context ends before, the error says so; what is
// left then ends with the harness at the latest.
func (a *Agent) Close(ctx context.Context) error {
	a.cancel()
	done := make(chan struct{})
	go func() {
		a.informers.Shutdown()
		a.group.Wait()
		close(done)
	}()
	select {
	case <-done:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("close node agent: some pods have not ended: %w", ctx.Err())
	}
}

// loop owns nodes and workers.
func (a *Agent) loop() {
	for {
		select {
		case f := <-a.requests:
			f()
		case <-a.ctx.Done():
			return
		}
	}
}

// post lets a function run in the loop. It returns false when the agent closes.
func (a *Agent) post(f func()) bool {
	select {
	case a.requests <- f:
		return true
	case <-a.ctx.Done():
		return false
	}
}

var errClosed = errors.New("the node agent is closed")

// do is post, and waits for the function's result.
func (a *Agent) do(f func() error) error {
	result := make(chan error, 1)
	if !a.post(func() { result <- f() }) {
		return errClosed
	}
	return <-result
}

// learn takes news of a pod into account.
func (a *Agent) learn(pod *corev1.Pod) {
	a.pods[podKey(pod)] = pod
	a.observe(pod)
}

// observe does what a pod, as it is now, needs.
func (a *Agent) observe(pod *corev1.Pod) {
	if pod.Spec.NodeName == "" {
		a.bind(pod)
		return
	}
	loss, ours := a.nodes[pod.Spec.NodeName]
	if !ours || loss != NotLost {
		// A lost node sees nothing; RestoreNode catches up.
		return
	}
	w := a.workers[pod.UID]
	switch {
	case w != nil:
		w.post(func() { w.update(pod) })
	case !a.finished[pod.UID]:
		a.start(pod)
	}
	// A successor means that the API object of this one is gone. It does not wait for this one's end, as long as the
	// network has room for both.
	for _, w := range a.workers {
		if w.key == podKey(pod) && w.uid != pod.UID && a.nodes[w.node] == NotLost {
			w.post(w.vanish)
		}
	}
}

// forget takes into account that a pod does not exist any more.
func (a *Agent) forget(pod *corev1.Pod) {
	key := podKey(pod)
	if known := a.pods[key]; known != nil && known.UID == pod.UID {
		delete(a.pods, key)
	}
	delete(a.finished, pod.UID)
	if w := a.workers[pod.UID]; w != nil && a.nodes[w.node] == NotLost {
		w.post(w.vanish)
	}
}

func (a *Agent) start(pod *corev1.Pod) {
	w := newWorker(a, pod)
	a.workers[pod.UID] = w
	a.group.Go(func() {
		w.run()
		a.post(func() { a.ended(w) })
	})
}

// ended takes note that nothing is left of a pod.
func (a *Agent) ended(w *worker) {
	delete(a.workers, w.uid)
	if a.newest(w) != nil {
		a.finished[w.uid] = true
	}
}

// catchUp takes into account what a node has missed.
func (a *Agent) catchUp() {
	for _, pod := range a.pods {
		a.observe(pod)
	}
}

// find returns the worker of a pod: of the newest one of its name.
func (a *Agent) find(pod string) (*worker, error) {
	found := map[string]*worker{}
	err := a.do(func() error {
		for _, w := range a.workers {
			named := w.key == pod || strings.HasSuffix(w.key, "/"+pod)
			if named && (found[w.key] == nil || a.newest(w) != nil) {
				found[w.key] = w
			}
		}
		return nil
	})
	keys := slices.Sorted(maps.Keys(found))
	switch {
	case err != nil:
		return nil, err
	case len(keys) == 0:
		return nil, fmt.Errorf("pod %q is on none of the nodes", pod)
	case len(keys) > 1:
		return nil, fmt.Errorf("pod %q is ambiguous (%s); give namespace/name", pod, strings.Join(keys, ", "))
	}
	return found[keys[0]], nil
}

// KillContainer sends a signal to all processes of a container. SIGKILL and SIGTERM end
// it, and it is restarted by the pod's policy; SIGSTOP halts it, so that it neither works
// nor answers, until SIGCONT. It is an error when the container does not run.
func (a *Agent) KillContainer(pod, containerName string, sig syscall.Signal) error {
	w, err := a.find(pod)
	if err != nil {
		return err
	}
	called := w.call(func() {
		var c *container
		if c, err = w.container(containerName); err == nil {
			err = c.signal(sig)
		}
	})
	if !called {
		err = errors.New("the pod has just ended")
	}
	if err != nil {
		return fmt.Errorf("signal %s to %s/%s: %w", sig, pod, containerName, err)
	}
	return nil
}

// Exec runs the program of a container's image once more, as kubectl exec does: with the
// container's environment, network and volumes. It returns the exit code and what the program
// has printed, both outputs as one; it is killed when ctx ends.
func (a *Agent) Exec(ctx context.Context, pod, containerName string, args ...string) (code int,
	output string, err error) {
	w, err := a.find(pod)
	if err != nil {
		return 0, "", err
	}
	var line commandLine
	err = errors.New("the pod has just ended")
	w.call(func() {
		var c *container
		if c, err = w.container(containerName); err == nil && c.process == nil {
			err = errors.New("the container does not run")
		}
		if err == nil {
			line = c.line
		}
	})
	if err != nil {
		return 0, "", fmt.Errorf("exec in %s/%s: %w", pod, containerName, err)
	}
	printed := &head{limit: execOutput}
	argv := []string{line.argv[0]}
	for _, word := range args {
		argv = append(argv, line.rewrite.rewrite(word))
	}
	code, err = runInContainer(ctx, "exec in "+pod+"/"+containerName, line, argv, printed)
	return code, printed.String(), err
}

// PID returns the process ID of a container, or false when it does not run.
func (a *Agent) PID(pod, container string) (pid int, running bool) {
	w, err := a.find(pod)
	if err != nil {
		return 0, false
	}
	w.call(func() {
		if c, err := w.container(container); err == nil && c.process != nil {
			pid, running = c.process.PID(), true
		}
	})
	return pid, running
}

// VolumesDir is the folder with the data of all claims, where dir is [Config.Dir].
func VolumesDir(dir string) string { return filepath.Join(dir, "volumes") }

// ClaimDir returns the directory with the data of a persistent volume claim. It is made
// when a pod uses the claim for the first time, and nobody removes it.
func (a *Agent) ClaimDir(namespace, claim string) string {
	return filepath.Join(VolumesDir(a.config.Dir), namespace, claim)
}

// HostDir returns the folder that a path of a node stands for. Pods that mount it by hostPath see this
// one.
func (a *Agent) HostDir(node, path string) string {
	path = filepath.Clean("/" + path)
	for _, shared := range a.config.SharedPaths {
		if rest, err := filepath.Rel(shared, path); err == nil && filepath.IsLocal(rest) {
			return filepath.Join(a.config.Dir, "shared", path)
		}
	}
	return filepath.Join(a.config.Dir, "hosts", node, path)
}

// LogDir returns the directory with the logs of the pods of a name, one file for every
// run of a container: <first 8 characters of the UID>-<container>-<restart>.log.
func (a *Agent) LogDir(pod string) string {
	return filepath.Join(a.config.Dir, "logs", pod)
}

func (a *Agent) logPath(pod *corev1.Pod, container string, run int32) string {
	return filepath.Join(a.LogDir(pod.Name), fmt.Sprintf("%s-%s-%d.log", ShortUID(pod.UID), container, run))
}

// LogOf reports whether a file of [Agent.LogDir] is the log of this pod, and not that of another of its name.
func (a *Agent) LogOf(pod *corev1.Pod, path string) bool {
	return IsLogOf(pod, a.LogDir(pod.Name), path)
}

// IsLogOf reports whether a file of this directory is the log of this pod, by the name that it has.
func IsLogOf(pod *corev1.Pod, dir, path string) bool {
	return filepath.Dir(path) == dir && strings.HasPrefix(filepath.Base(path), ShortUID(pod.UID)+"-")
}

// ShortUID is the part of a pod's UID that the names of its logs begin with.
func ShortUID(uid types.UID) string { return string(uid[:min(8, len(uid))]) }

func (a *Agent) newBackoff() *flowcontrol.Backoff {
	return flowcontrol.NewBackOff(a.config.BackoffBase, a.config.BackoffCap)
}
