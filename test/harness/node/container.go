package node

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/quorate/quorate/test/harness/process"
)

const (
	// showBackOff is after how long the status of a container that has ended, or whose
	// image cannot be had, changes to the back-off reason (or after a quarter of the
	// back-off, if that is shorter). A kubelet does so when it looks at the pod again.
	showBackOff = time.Second
	// retryConfig is how often it is tried again to put together a container whose
	// configuration is incomplete, such as a secret that is missing.
	retryConfig = time.Second
)

// container is one container of a pod. It belongs to the pod's worker.
type container struct {
	spec *corev1.Container
	init bool

	process  *process.Process // nil while it does not run
	starting bool             // its command line is being put together
	waiting  *corev1.ContainerStateWaiting
	exit     *corev1.ContainerStateTerminated // its last end
	before   *corev1.ContainerStateTerminated // the end before
	restarts int32
	runs     int32 // how many times it was started, for names
	id       string
	imageID  string

	// untold: it has ended since its pod has been told to, and some other container has not.
	untold    bool
	ready     bool
	line      commandLine        // what it runs, for exec probes
	stopProbe context.CancelFunc // nil without a probe

	// ranWhenLost: it ran when its node lost power.
	ranWhenLost bool
	// ended is when the last run, or try to run, ended; the back-off counts from it.
	// It is cleared when the next one may start.
	ended time.Time
	// pullFailed is when the image was not found.
	pullFailed time.Time
	// notBefore puts off the next try after an error of the configuration.
	notBefore time.Time
}

func (c *container) view() containerView {
	v := containerView{
		name: c.spec.Name, image: c.spec.Image, imageID: c.imageID, id: c.id, restarts: c.restarts,
		waiting: c.waiting, exit: c.exit, before: c.before, ready: c.ready,
	}
	switch {
	case c.process != nil:
		v.startedAt = c.process.Started()
	case c.untold:
		v.startedAt, v.exit, v.before = c.exit.StartedAt.Time, c.before, nil
	}
	for _, m := range c.spec.VolumeMounts {
		status := corev1.VolumeMountStatus{Name: m.Name, MountPath: m.MountPath, ReadOnly: m.ReadOnly}
		if m.ReadOnly {
			disabled := corev1.RecursiveReadOnlyDisabled
			status.RecursiveReadOnly = &disabled
		}
		v.volumeMounts = append(v.volumeMounts, status)
	}
	return v
}

// done reports whether the container has ended for good.
func (c *container) done(policy corev1.RestartPolicy) bool {
	return c.process == nil && c.waiting == nil && c.exit != nil && !restartable(policy, c.init, c.exit.ExitCode)
}

// unsupported names what of a container's spec, or of its pod's, the agent does not do.
func unsupported(pod *corev1.PodSpec, spec *corev1.Container, isInit bool) string {
	switch {
	case len(pod.ReadinessGates) > 0:
		return "readinessGates"
	case len(spec.EnvFrom) > 0:
		return "envFrom"
	case slices.ContainsFunc(spec.VolumeMounts,
		func(m corev1.VolumeMount) bool { return m.SubPath+m.SubPathExpr != "" }):
		return "subPath"
	case spec.LivenessProbe != nil:
		return "livenessProbe"
	case spec.StartupProbe != nil:
		return "startupProbe"
	case spec.Lifecycle != nil && spec.Lifecycle.PostStart != nil:
		return "lifecycle.postStart"
	case spec.Lifecycle != nil && spec.Lifecycle.PreStop != nil && spec.Lifecycle.PreStop.Sleep == nil:
		return "another lifecycle.preStop than sleep"
	case spec.ReadinessProbe != nil && spec.ReadinessProbe.HTTPGet == nil && spec.ReadinessProbe.Exec == nil:
		return "another readinessProbe than httpGet and exec"
	case isInit && spec.RestartPolicy != nil:
		return "restartPolicy of an init container"
	default:
		return ""
	}
}

// drive does the next step of a container that does not run: wait, or start it.
func (w *worker) drive(c *container, now time.Time) {
	if c.process != nil || c.starting || c.done(w.pod.Spec.RestartPolicy) {
		return
	}
	if now.Before(c.notBefore) {
		w.wakeAt(c.notBefore)
		return
	}
	if !c.ended.IsZero() {
		name := c.spec.Name
		if w.backoff.IsInBackOffSince(name, c.ended) {
			wait := w.backoff.Get(name)
			w.wakeAt(c.ended.Add(wait))
			if show := c.ended.Add(min(showBackOff, wait/4)); now.Before(show) {
				w.wakeAt(show)
			} else if c.waiting == nil || c.waiting.Reason != reasonCrashLoopBackOff {
				w.wait(c, reasonCrashLoopBackOff,
					fmt.Sprintf("back-off %s restarting failed container=%s pod=%s_%s(%s)",
						wait, name, w.pod.Name, w.pod.Namespace, w.pod.UID))
			}
			return
		}
		w.backoff.Next(name, c.ended)
		c.ended = time.Time{}
	}
	if what := unsupported(&w.pod.Spec, c.spec, c.init); what != "" {
		w.wait(c, reasonConfigError, what+" is not supported by the node agent of the harness")
		return
	}
	image, ok := w.pull(c, now)
	if !ok {
		return
	}
	c.starting = true
	pod := w.pod
	w.build(func() {
		line, err := w.commandLine(pod, c.spec, image)
		w.post(func() { w.launch(c, image, line, err) })
	})
}

// wait lets a container wait for a reason.
func (w *worker) wait(c *container, reason, message string) {
	if c.waiting != nil && c.waiting.Reason == reason && c.waiting.Message == message {
		return
	}
	c.waiting = &corev1.ContainerStateWaiting{Reason: reason, Message: message}
	w.emit(c, Waiting, "%s: %s", reason, message)
}

// pull looks up the image. A missing one is looked up again with the back-off of a kubelet's pulls.
func (w *worker) pull(c *container, now time.Time) (Image, bool) {
	image := c.spec.Image
	if known, ok := w.agent.config.Images[image]; ok {
		return known, true
	}
	key := c.spec.Name + "/" + image
	if !w.backoff.IsInBackOffSinceUpdate(key, now) {
		w.backoff.Next(key, now)
		c.pullFailed = now
		w.wait(c, reasonErrImagePull, fmt.Sprintf("image %q is not among the images of the node agent", image))
	}
	wait := w.backoff.Get(key)
	w.wakeAt(c.pullFailed.Add(wait))
	if show := c.pullFailed.Add(min(showBackOff, wait/4)); now.Before(show) {
		w.wakeAt(show)
	} else {
		w.wait(c, reasonImagePullBackOff, fmt.Sprintf("Back-off pulling image %q", image))
	}
	return Image{}, false
}

// commandLine puts together what a container runs, outside of the worker. What it reads of the worker does not change
// any more.
func (w *worker) commandLine(pod *corev1.Pod, spec *corev1.Container, image Image) (commandLine, error) {
	if image.Program == "" && len(spec.Command) == 0 {
		return commandLine{}, fmt.Errorf("no command specified: the image %q has no program of its own", spec.Image)
	}
	env, err := resolveEnv(pod, spec, w.hostIP, w.attachment.IP)
	if err != nil {
		return commandLine{}, err
	}
	mounts, err := w.volumes.mounts(pod, spec)
	if err != nil {
		return commandLine{}, err
	}
	scratch := filepath.Join(w.podDir, "containers", spec.Name)
	if err := os.MkdirAll(scratch, 0o755); err != nil {
		return commandLine{}, err
	}
	surroundings := outside
	if w.attachment.Contain != nil {
		surroundings = inside
	}
	s, err := surroundings(w.agent.config, pod, spec, image, mounts, scratch)
	if err != nil {
		return commandLine{}, err
	}
	line := newCommandLine(spec, env, s)
	line.launcher = w.attachment.Launcher
	if line.contained != nil {
		if line.launcher, err = w.attachment.Contain(*line.contained); err != nil {
			return commandLine{}, err
		}
	}
	if err := os.MkdirAll(line.dir, 0o755); err != nil {
		return commandLine{}, fmt.Errorf("workingDir: %w", err)
	}
	return line, nil
}

// launch starts a container whose command line is known.
func (w *worker) launch(c *container, image Image, line commandLine, err error) {
	c.starting = false
	if w.ending() || w.lost.off() {
		return
	}
	now := time.Now()
	if err != nil {
		c.notBefore = now.Add(retryConfig)
		w.wait(c, reasonConfigError, err.Error())
		return
	}
	number := c.runs
	c.runs++
	if number > 0 {
		c.restarts++
	}
	c.id = fmt.Sprintf("process://%s-%s-%d", w.pod.UID, c.spec.Name, number)
	c.imageID = "local://" + image.Program
	c.ready = false
	started, err := w.start(c, image, line, w.agent.logPath(w.pod, c.spec.Name, number))
	if err != nil {
		at := metav1.NewTime(now)
		w.ended(c, &corev1.ContainerStateTerminated{
			ExitCode: 128, Reason: reasonStartError, Message: err.Error(), StartedAt: at, FinishedAt: at,
			ContainerID: c.id,
		})
		w.wait(c, reasonRunError, err.Error())
		return
	}
	c.process, c.waiting = started, nil
	c.line = line.joining(started.PID(), w.attachment)
	c.ready = c.spec.ReadinessProbe == nil
	w.emit(c, Started, "pid %d", started.PID())
	w.group.Go(func() {
		<-started.Done()
		w.post(func() { w.exited(c, started) })
	})
	if !c.init && c.spec.ReadinessProbe != nil {
		w.startProbe(c, started)
	}
}

// start starts a container's process.
func (w *worker) start(c *container, image Image, line commandLine, log string) (*process.Process, error) {
	spec := line.spec(w.pod.Name+"/"+c.spec.Name, line.argv)
	spec.LogPath = log
	if image.Program != "" {
		// The launcher would find out too, but by then it would look like a crash.
		if _, err := exec.LookPath(image.Program); err != nil {
			return nil, fmt.Errorf("start %s: %w", spec.Name, err)
		}
	}
	return process.Start(spec)
}

func (w *worker) startProbe(c *container, running *process.Process) {
	ctx, cancel := context.WithCancel(w.ctx)
	c.stopProbe = cancel
	line := c.line
	p := prober{
		container: c.spec,
		podIP:     w.attachment.IP,
		dial:      w.attachment.Dial,
		exec: func(ctx context.Context) (int, string, error) {
			output := &head{limit: probeOutput}
			code, err := runInContainer(ctx, "readiness probe of "+running.Name(), line, line.probe, output)
			return code, output.String(), err
		},
	}
	w.group.Go(func() {
		p.watch(ctx, func(ready bool, message string) {
			w.post(func() {
				if c.process != running && !c.untold {
					return
				}
				c.ready = ready
				if ready {
					w.emit(c, Ready, "")
				} else {
					w.emit(c, NotReady, "%s", message)
				}
			})
		})
	})
}

// exited takes note of the end of a container's process.
func (w *worker) exited(c *container, ended *process.Process) {
	if c.process != ended {
		return
	}
	// A kubelet that ends a pod waits for the end of all containers, and says nothing of one before. It only goes on
	// probing.
	c.process, c.untold = nil, w.terminated && w.running() > 1
	wasReady := c.ready && c.spec.ReadinessProbe != nil
	if !c.untold {
		c.stopProbing()
		c.ready = false
	}
	exit := &corev1.ContainerStateTerminated{
		ExitCode: int32(ended.ExitCode()), Reason: reasonCompleted,
		StartedAt: metav1.NewTime(ended.Started()), FinishedAt: metav1.NewTime(ended.Ended()), ContainerID: c.id,
	}
	detail := ""
	if exit.ExitCode != 0 {
		exit.Reason = reasonError
	}
	if sig := ended.ExitSignal(); sig != 0 {
		detail = ", signal " + strings.ToUpper(sig.String())
	}
	w.ended(c, exit)
	w.emit(c, Exited, "exit code %d (%s)%s", exit.ExitCode, exit.Reason, detail)
	if wasReady && !c.ready {
		w.emit(c, NotReady, "the container has ended")
	}
}

// tell ends what is not told yet.
func (c *container) tell() {
	if c.untold {
		c.stopProbing()
		c.untold, c.ready = false, false
	}
}

func (c *container) stopProbing() {
	if c.stopProbe != nil {
		c.stopProbe()
		c.stopProbe = nil
	}
}

// ended records an end.
func (w *worker) ended(c *container, exit *corev1.ContainerStateTerminated) {
	c.before, c.exit, c.waiting = c.exit, exit, nil
	c.ended = exit.FinishedAt.Time
}

// stop begins the end of a running container: its preStop hook runs, if it has one, and then
// it gets SIGTERM. It goes on working meanwhile.
func (w *worker) stop(c *container) {
	if c.process == nil {
		return
	}
	if c.spec.Lifecycle == nil || c.spec.Lifecycle.PreStop == nil {
		// An error means that it has just ended.
		_ = c.signal(syscall.SIGTERM)
		return
	}
	hook, running := c.spec.Lifecycle.PreStop, c.process
	ctx, cancel := context.WithCancel(w.ctx)
	w.hooks = append(w.hooks, cancel)
	w.hooking++
	w.emit(c, PreStop, "")
	w.group.Go(func() {
		select {
		case <-running.Done():
			cancel() // There is nothing left to wait for.
		case <-ctx.Done():
		}
	})
	w.group.Go(func() {
		defer cancel()
		timer := time.NewTimer(time.Duration(hook.Sleep.Seconds) * time.Second)
		defer timer.Stop()
		select {
		case <-timer.C:
		case <-ctx.Done():
		}
		w.post(func() {
			w.hooking--
			if c.process == running {
				_ = c.signal(syscall.SIGTERM)
			}
		})
	})
}

// signal sends a signal to a running container.
func (c *container) signal(sig syscall.Signal) error {
	if c.process == nil {
		reason := "it has not been started yet"
		switch {
		case c.waiting != nil:
			reason = "it is waiting: " + c.waiting.Reason
		case c.exit != nil:
			reason = fmt.Sprintf("it has ended with exit code %d", c.exit.ExitCode)
		}
		return fmt.Errorf("container %s does not run: %s", c.spec.Name, reason)
	}
	return c.process.Signal(sig)
}

// reboot puts a container into the state after a restart of its node: if it ran, it has ended,
// and it is unknown how.
func (c *container) reboot(policy corev1.RestartPolicy, hasInit bool) {
	if c.ranWhenLost {
		c.exit.ExitCode, c.exit.Reason = 255, reasonUnknown
	}
	c.ranWhenLost = false
	c.tell()
	c.ended, c.pullFailed, c.notBefore = time.Time{}, time.Time{}, time.Time{}
	if c.waiting != nil && c.waiting.Reason == reasonCrashLoopBackOff {
		c.waiting = nil
	}
	if hasInit && c.exit != nil && policy != corev1.RestartPolicyNever {
		// The pod's sandbox is new, so its init containers run again first.
		c.waiting = &corev1.ContainerStateWaiting{Reason: reasonPodInitializing}
	}
}
