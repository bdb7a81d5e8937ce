package node

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/flowcontrol"

	"github.com/quorate/quorate/test/harness/network"
	"github.com/quorate/quorate/test/harness/process"
)

const (
	// leastGrace is the shortest time between SIGTERM and SIGKILL, as with a kubelet.
	leastGrace = 2 * time.Second
	// defaultGrace applies to a pod whose spec says nothing; the API server fills in
	// the same.
	defaultGrace = 30 * time.Second
)

// stage is how far a pod's preparation is.
type stage int

const (
	unprepared stage = iota
	preparing        // volumes and network are being made
	prepared
	cleaning // they are being removed
	clean    // nothing is left on the node
)

// worker runs one pod. One goroutine owns everything in it; others talk to it by post.
type worker struct {
	agent  *Agent
	key    string // namespace/name
	uid    types.UID
	node   string
	podDir string
	hostIP string
	place  network.Pod // how the network knows the pod

	ctx    context.Context //nolint:containedctx // The life of the worker.
	cancel context.CancelFunc
	inbox  chan func()
	done   chan struct{}  // closed when nothing of the worker is left
	group  sync.WaitGroup // all goroutines of the pod

	// What is being built for the pod (volumes, network, command lines) is given up
	// when the pod is to end. Only then are its remains removed.
	building     context.Context //nolint:containedctx // The life of the pod, up to its end.
	stopBuilding context.CancelFunc
	builders     sync.WaitGroup

	pod    *corev1.Pod                // the newest object; objects are never changed
	latest atomic.Pointer[corev1.Pod] // the same, for other goroutines
	gone   bool                       // the API object does not exist any more
	lost   Loss

	stage      stage
	objects    *podObjects
	volumes    *volumes
	attachment network.Attachment
	init, app  []*container
	backoff    *flowcontrol.Backoff
	accepted   time.Time
	status     corev1.PodStatus // as reported last
	stale      bool             // the API server may know something else
	writer     *writer          // nil while the node is lost
	removing   bool             // the writer has been told to remove the API object
	removed    bool             // and it has done so

	terminated bool // the containers have been told to end, by their hook or SIGTERM
	killed     bool // SIGKILL has been sent, too
	// hooks end the preStop hooks, of which so many run.
	hooks    []context.CancelFunc
	hooking  int
	killAt   time.Time
	wake     time.Time
	finished bool
}

func newWorker(a *Agent, pod *corev1.Pod) *worker {
	ctx, cancel := context.WithCancel(a.ctx)
	building, stopBuilding := context.WithCancel(ctx)
	w := &worker{
		agent: a, key: podKey(pod), uid: pod.UID, node: pod.Spec.NodeName,
		podDir: filepath.Join(a.config.Dir, "pods", string(pod.UID)),
		hostIP: a.config.Address(pod.Spec.NodeName),
		place: network.Pod{
			Namespace: pod.Namespace, Name: pod.Name, UID: string(pod.UID),
			Hostname: pod.Spec.Hostname, Subdomain: pod.Spec.Subdomain,
		},
		ctx: ctx, cancel: cancel, inbox: make(chan func()), done: make(chan struct{}),
		building: building, stopBuilding: stopBuilding,
		pod: pod, status: *pod.Status.DeepCopy(), stale: true, accepted: time.Now(),
		backoff: a.newBackoff(),
		objects: newPodObjects(building, a.config.Client, pod.Namespace),
	}
	w.latest.Store(pod)
	w.volumes = &volumes{
		podDir:   w.podDir,
		claimDir: func(claim string) string { return a.ClaimDir(pod.Namespace, claim) },
		hostDir:  func(path string) string { return a.HostDir(pod.Spec.NodeName, path) },
		objects:  w.objects,
		requests: newTokenRequester(building, a.config.Client, pod.Namespace),
	}
	for i := range pod.Spec.InitContainers {
		w.init = append(w.init, &container{spec: &pod.Spec.InitContainers[i], init: true})
	}
	for i := range pod.Spec.Containers {
		w.app = append(w.app, &container{spec: &pod.Spec.Containers[i]})
	}
	return w
}

func podKey(pod *corev1.Pod) string { return pod.Namespace + "/" + pod.Name }

func (w *worker) containers() []*container {
	all := make([]*container, 0, len(w.init)+len(w.app))
	return append(append(all, w.init...), w.app...)
}

// container returns a container by its name.
func (w *worker) container(name string) (*container, error) {
	for _, c := range w.containers() {
		if c.spec.Name == name {
			return c, nil
		}
	}
	return nil, fmt.Errorf("the pod has no container %q", name)
}

// post lets a function run in the worker's goroutine. It returns false, without running
// it, when the worker has ended.
func (w *worker) post(f func()) bool {
	select {
	case w.inbox <- f:
		return true
	case <-w.ctx.Done():
		return false
	}
}

// call is post, and waits until the function has returned.
func (w *worker) call(f func()) bool {
	done := make(chan struct{})
	if !w.post(func() { defer close(done); f() }) {
		return false
	}
	<-done
	return true
}

func (w *worker) emit(c *container, kind EventKind, format string, args ...any) {
	name := ""
	if c != nil {
		name = c.spec.Name
	}
	w.agent.emitFor(w.pod, name, kind, format, args...)
}

func (w *worker) trouble(format string, args ...any) {
	w.agent.emitFor(w.latest.Load(), "", Trouble, format, args...)
}

// wakeAt has the worker look again at a time, or earlier.
func (w *worker) wakeAt(at time.Time) {
	if w.wake.IsZero() || at.Before(w.wake) {
		w.wake = at
	}
}

// run is the worker's life. It ends when the pod is gone from the node and the API
// server, or the agent closes.
func (w *worker) run() {
	defer close(w.done)
	w.startWriter()
	w.emit(nil, Created, "on %s", w.pod.Spec.NodeName)
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	for {
		w.wake = time.Time{}
		w.reconcile(time.Now())
		if w.finished {
			w.cancel()
			w.group.Wait()
			w.stopWriter()
			return
		}
		var alarm <-chan time.Time
		if !w.wake.IsZero() {
			timer.Reset(time.Until(w.wake))
			alarm = timer.C
		}
		var removed <-chan struct{}
		if w.writer != nil && !w.removed {
			removed = w.writer.removed
		}
		select {
		case f := <-w.inbox:
			f()
		case <-alarm:
		case <-removed:
			w.removed = true
		case <-w.ctx.Done():
			w.abandon()
			return
		}
	}
}

// abandon ends everything at once, when the agent closes. The API server is not told.
func (w *worker) abandon() {
	w.stopWriter()
	for _, c := range w.containers() {
		if c.process != nil {
			_ = c.process.Signal(syscall.SIGKILL)
		}
	}
	w.group.Wait()
	if err := w.remove(context.WithoutCancel(w.ctx)); err != nil {
		w.trouble("clean up: %v", err)
	}
}

func (w *worker) startWriter() {
	w.writer = startWriter(w.ctx, w.agent.config.Client, w.pod, w.trouble)
	w.stale = true
}

// stopWriter returns when nothing is being written any more.
func (w *worker) stopWriter() {
	if w.writer != nil {
		w.writer.close()
		w.writer = nil
	}
	w.removing = false
}

// update takes over a newer object.
func (w *worker) update(pod *corev1.Pod) {
	w.pod = pod
	w.latest.Store(pod)
	// Somebody else may have changed what is the kubelet's to say. (Or a report of
	// ours is still on its way; then the writer will find nothing to do.)
	w.stale = w.stale || statusDiffers(pod, w.status)
}

// vanish takes note that the API object does not exist any more.
func (w *worker) vanish() { w.gone = true }

// lose makes the worker behave as the pod's lost node. It returns the processes that
// have been killed.
func (w *worker) lose(how Loss) []*process.Process {
	w.stopWriter()
	w.lost = how
	w.objects.offline.Store(true)
	var killed []*process.Process
	if how.off() {
		w.endHooks()
		for _, c := range w.containers() {
			if c.process != nil {
				c.ranWhenLost = true
				killed = append(killed, c.process)
				_ = c.process.Signal(syscall.SIGKILL)
			}
		}
	}
	return killed
}

// endHooks ends the preStop hooks that still run.
func (w *worker) endHooks() {
	for _, end := range w.hooks {
		end()
	}
	w.hooks = nil
}

// restore undoes lose. Containers that are started anew are so after a while. The agent hands
// over the newest object next.
func (w *worker) restore(newest *corev1.Pod, after time.Duration) {
	how := w.lost
	w.lost = NotLost
	w.objects.offline.Store(false)
	if newest == nil {
		w.gone = true
	} else {
		w.pod = newest
		w.latest.Store(newest)
	}
	if how.off() {
		w.status = *w.pod.Status.DeepCopy()
		w.backoff = w.agent.newBackoff()
		w.terminated, w.killed = false, false
		for _, c := range w.containers() {
			if c.process != nil {
				// It was killed; the news has just not arrived yet.
				w.exited(c, c.process)
			}
			c.reboot(w.pod.Spec.RestartPolicy, len(w.init) > 0)
			c.notBefore = time.Now().Add(after)
		}
		w.reattach()
	}
	w.startWriter()
}

// reattach gives the pod of a node that has booted a new place in the network. Its volumes are there.
func (w *worker) reattach() {
	if w.stage != prepared {
		return
	}
	w.stage, w.attachment = preparing, network.Attachment{}
	ctx := w.building
	w.build(func() {
		err := retryConfigured(ctx, func() error { return w.agent.config.Network.Detach(ctx, w.place) })
		if err == nil {
			w.makeSurroundings(ctx, func() error { return nil })
		}
	})
}

// ending reports whether the pod is to end, so that nothing may be started.
func (w *worker) ending() bool { return w.gone || w.pod.DeletionTimestamp != nil }

func (w *worker) running() int {
	count := 0
	for _, c := range w.containers() {
		if c.process != nil {
			count++
		}
	}
	return count
}

// reconcile does whatever can be done now, and reports.
func (w *worker) reconcile(now time.Time) {
	switch {
	case w.lost.off():
		// Nobody is there to do anything.
		return
	case w.ending():
		w.end(now)
	case terminalPhase(w.status.Phase):
		// All is done. The pod stays until it is deleted.
	default:
		w.work(now)
	}
	w.report(now)
}

// work brings the pod up and keeps it up.
func (w *worker) work(now time.Time) {
	if w.stage == unprepared {
		w.prepare()
	}
	if w.stage != prepared {
		return
	}
	for _, c := range w.init {
		w.drive(c, now)
		if !c.done(w.pod.Spec.RestartPolicy) || c.exit.ExitCode != 0 {
			return
		}
	}
	for _, c := range w.app {
		w.drive(c, now)
	}
}

// prepare makes volumes and network, and then keeps the volumes up to date.
func (w *worker) prepare() {
	w.stage = preparing
	ctx := w.building
	w.build(func() {
		if w.makeSurroundings(ctx, func() error { return w.volumes.prepare(w.latest.Load()) }) {
			w.keepVolumes(ctx)
		}
	})
}

// build runs a function beside the worker, for as long as the pod is not to end.
func (w *worker) build(f func()) {
	w.builders.Add(1)
	w.group.Go(func() {
		defer w.builders.Done()
		f()
	})
}

// makeSurroundings makes volumes and network, and tries until it can. It returns false if the pod is to end before.
func (w *worker) makeSurroundings(ctx context.Context, volumes func() error) bool {
	var attachment network.Attachment
	last := ""
	err := retryConfigured(ctx, func() error {
		pod := w.latest.Load()
		err := os.MkdirAll(w.podDir, 0o755)
		if err == nil {
			err = volumes()
		}
		if err == nil {
			attachment, err = w.attach(ctx, pod)
		}
		if err != nil && err.Error() != last && ctx.Err() == nil {
			last = err.Error()
			w.agent.emitFor(pod, "", Waiting, "%s: %v", reasonContainerCreating, err)
		}
		return err
	})
	return err == nil && w.post(func() {
		w.attachment = attachment
		if w.stage == preparing {
			w.stage = prepared
		}
	})
}

// keepVolumes refreshes the volumes until the context ends.
func (w *worker) keepVolumes(ctx context.Context) {
	ticker := time.NewTicker(w.agent.config.VolumeSync)
	defer ticker.Stop()
	last := ""
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
		if w.objects.offline.Load() {
			continue
		}
		err := w.volumes.refresh(w.latest.Load())
		switch {
		case err == nil:
			last = ""
		case err.Error() != last && ctx.Err() == nil:
			last = err.Error()
			w.trouble("refresh volumes: %v", err)
		}
	}
}

// retryConfigured tries until it succeeds or the context ends.
func retryConfigured(ctx context.Context, try func() error) error {
	for {
		err := try()
		if err == nil {
			return nil
		}
		timer := time.NewTimer(retryConfig)
		select {
		case <-ctx.Done():
			timer.Stop()
			return errors.Join(ctx.Err(), err)
		case <-timer.C:
		}
	}
}

func (w *worker) attach(ctx context.Context, pod *corev1.Pod) (network.Attachment, error) {
	aliases := map[string]string{}
	for _, alias := range pod.Spec.HostAliases {
		for _, name := range alias.Hostnames {
			aliases[name] = alias.IP
		}
	}
	w.agent.config.Network.SetHosts(pod.Namespace, pod.Name, aliases)
	return w.agent.config.Network.Attach(ctx, w.place)
}

// remove takes away everything of the pod but the data of its claims.
func (w *worker) remove(ctx context.Context) error {
	err := w.agent.config.Network.Detach(ctx, w.place)
	return errors.Join(err, os.RemoveAll(w.podDir))
}

// end stops the containers, cleans up, and has the API object deleted.
func (w *worker) end(now time.Time) {
	w.terminate(now)
	if w.running() > 0 {
		return
	}
	for _, c := range w.containers() {
		c.tell()
	}
	switch w.stage {
	case unprepared, preparing, prepared:
		w.stage = cleaning
		w.stopBuilding()
		w.group.Go(func() {
			w.builders.Wait()
			err := w.remove(w.ctx)
			w.post(func() {
				if err != nil {
					w.trouble("clean up: %v", err)
				}
				w.stage = clean
				w.emit(nil, Gone, "nothing is left of it on %s", w.pod.Spec.NodeName)
			})
		})
	case clean:
		w.finished = w.gone || w.removed
	case cleaning:
	}
}

// terminate ends the containers that run: by their preStop hooks and SIGTERM when the end
// begins, by SIGKILL when the grace period is over. A hook that has taken all of it is ended,
// and the least grace period follows. A grace period can become shorter meanwhile, never longer.
func (w *worker) terminate(now time.Time) {
	deadline := now.Add(w.grace())
	if !w.terminated {
		w.terminated = true
		w.killAt = deadline
		w.emit(nil, Terminating, "grace period %s", w.grace())
		for _, c := range w.containers() {
			w.stop(c)
		}
	}
	if deadline.Before(w.killAt) {
		w.killAt = deadline
	}
	if w.running() == 0 || w.killed {
		return
	}
	if now.Before(w.killAt) {
		w.wakeAt(w.killAt)
		return
	}
	if w.hooking > 0 && len(w.hooks) > 0 {
		w.endHooks()
		w.killAt = now.Add(leastGrace)
		w.wakeAt(w.killAt)
		return
	}
	w.killed = true
	for _, c := range w.containers() {
		if c.process != nil {
			w.emit(c, Killed, "the grace period is over")
			_ = c.process.Signal(syscall.SIGKILL)
		}
	}
}

// grace is how long the containers have between SIGTERM and SIGKILL. For a pod that was
// deleted by force it is that of its spec.
func (w *worker) grace() time.Duration {
	grace := defaultGrace
	if s := w.pod.Spec.TerminationGracePeriodSeconds; s != nil {
		grace = time.Duration(*s) * time.Second
	}
	if s := w.pod.DeletionGracePeriodSeconds; s != nil {
		grace = time.Duration(*s) * time.Second
	}
	return max(grace, leastGrace)
}

// report tells the API server when something has changed.
func (w *worker) report(now time.Time) {
	stopping := w.ending()
	v := podView{
		pod: w.pod, previous: w.status, hostIP: w.hostIP, podIP: w.attachment.IP,
		started: w.accepted, now: now, stopping: stopping, stopped: stopping && w.running() == 0,
	}
	for _, c := range w.init {
		v.init = append(v.init, c.view())
	}
	for _, c := range w.app {
		v.app = append(v.app, c.view())
	}
	status := buildStatus(v)
	if !equality.Semantic.DeepEqual(w.status, status) {
		w.emitReadiness(w.status, status)
		w.status, w.stale = status, true
	}
	if w.writer == nil || w.gone || w.removing {
		return
	}
	w.removing = w.stage == clean
	if w.stale || w.removing {
		w.writer.set(report{status: status, remove: w.removing})
		w.stale = false
	}
}

func (w *worker) emitReadiness(before, after corev1.PodStatus) {
	was, is := isReady(before), isReady(after)
	switch {
	case is && !was:
		w.emit(nil, Ready, "")
	case was && !is:
		condition := findCondition(after.Conditions, corev1.PodReady)
		w.emit(nil, NotReady, "%s", condition.Message)
	}
}

func isReady(status corev1.PodStatus) bool {
	condition := findCondition(status.Conditions, corev1.PodReady)
	return condition != nil && condition.Status == corev1.ConditionTrue
}
