package node

import (
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Reasons of container states, as the kubelet and container runtimes spell them.
const (
	reasonContainerCreating = "ContainerCreating"
	reasonPodInitializing   = "PodInitializing"
	reasonCrashLoopBackOff  = "CrashLoopBackOff"
	reasonErrImagePull      = "ErrImagePull"
	reasonImagePullBackOff  = "ImagePullBackOff"
	reasonConfigError       = "CreateContainerConfigError"
	reasonRunError          = "RunContainerError"
	reasonCompleted         = "Completed"
	reasonError             = "Error"
	reasonStartError        = "StartError"
	reasonUnknown           = "Unknown"
	reasonStatusUnknown     = "ContainerStatusUnknown"
)

// Reasons of pod conditions.
const (
	reasonContainersNotReady       = "ContainersNotReady"
	reasonContainersNotInitialized = "ContainersNotInitialized"
	reasonPodCompleted             = "PodCompleted"
	reasonPodFailed                = "PodFailed"
)

// kubeletConditions are the conditions that a kubelet owns; it leaves all others alone.
var kubeletConditions = []corev1.PodConditionType{
	corev1.PodReadyToStartContainers, corev1.PodInitialized, corev1.PodReady, corev1.ContainersReady,
	corev1.PodScheduled,
}

// containerView is what the status of a pod says of one container.
type containerView struct {
	name, image  string
	imageID, id  string
	restarts     int32
	startedAt    time.Time                        // set while it runs
	waiting      *corev1.ContainerStateWaiting    // why it does not run
	exit, before *corev1.ContainerStateTerminated // its last end, and the one before that
	ready        bool
	volumeMounts []corev1.VolumeMountStatus
}

// podView is all that the status of a pod depends on.
type podView struct {
	pod      *corev1.Pod      // with conditions of others in its status
	previous corev1.PodStatus // what was reported last
	init     []containerView
	app      []containerView
	hostIP   string
	podIP    string // empty before the pod has a network
	started  time.Time
	now      time.Time
	// stopping: the pod is being deleted and nothing will be started again.
	stopping bool
	// stopped: no container runs any more, and the pod is stopping.
	stopped bool
}

// buildStatus returns the pod's status as a kubelet would report it.
func buildStatus(v podView) corev1.PodStatus {
	status := corev1.PodStatus{
		QOSClass: v.pod.Status.QOSClass,
		HostIP:   v.hostIP,
		HostIPs:  []corev1.HostIP{{IP: v.hostIP}},
	}
	if v.podIP != "" {
		status.PodIP, status.PodIPs = v.podIP, []corev1.PodIP{{IP: v.podIP}}
	}
	startTime := metav1.NewTime(v.started)
	status.StartTime = &startTime
	waitFor := reasonContainerCreating
	if len(v.init) > 0 {
		waitFor = reasonPodInitializing
	}
	for _, c := range v.init {
		cs := containerStatus(c, waitFor, v.stopping)
		// An init container is ready when it is done.
		cs.Ready = cs.State.Terminated != nil && cs.State.Terminated.ExitCode == 0
		status.InitContainerStatuses = append(status.InitContainerStatuses, cs)
	}
	for _, c := range v.app {
		status.ContainerStatuses = append(status.ContainerStatuses, containerStatus(c, waitFor, v.stopping))
	}
	if v.stopped && initialized(status) {
		for i := range status.ContainerStatuses {
			if cs := &status.ContainerStatuses[i]; cs.State.Terminated == nil {
				cs.State = corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{
					Reason:   reasonStatusUnknown,
					Message:  "The container could not be located when the pod was terminated",
					ExitCode: 137,
				}}
			}
		}
	}
	status.Phase = phase(v.pod, status, v.stopped)
	status.Conditions = conditions(v, status)
	return status
}

func containerStatus(c containerView, waitFor string, stopping bool) corev1.ContainerStatus {
	started := !c.startedAt.IsZero()
	cs := corev1.ContainerStatus{
		Name: c.name, Image: c.image, ImageID: c.imageID, ContainerID: c.id,
		RestartCount: c.restarts, Ready: c.ready && started, Started: &started, VolumeMounts: c.volumeMounts,
	}
	switch {
	case started:
		cs.State.Running = &corev1.ContainerStateRunning{StartedAt: metav1.NewTime(c.startedAt)}
		cs.LastTerminationState.Terminated = c.exit
	case c.exit != nil && (c.waiting == nil || stopping):
		// While stopping, nothing waits for a restart: what counts is how it ended.
		cs.State.Terminated = c.exit
		cs.LastTerminationState.Terminated = c.before
	case c.waiting != nil:
		waiting := *c.waiting
		cs.State.Waiting = &waiting
		cs.LastTerminationState.Terminated = c.exit
	default:
		cs.State.Waiting = &corev1.ContainerStateWaiting{Reason: waitFor}
	}
	return cs
}

// initialized reports whether the pod ever got past its init containers.
func initialized(status corev1.PodStatus) bool {
	return allDone(status.InitContainerStatuses) ||
		slices.ContainsFunc(status.ContainerStatuses, func(cs corev1.ContainerStatus) bool {
			return cs.State.Waiting == nil || cs.LastTerminationState.Terminated != nil
		})
}

// anyStarted reports whether a container has been started since the init containers ran.
func anyStarted(status corev1.PodStatus) bool {
	return slices.ContainsFunc(status.ContainerStatuses, func(cs corev1.ContainerStatus) bool {
		return cs.State.Running != nil || cs.State.Terminated != nil
	})
}

func allDone(statuses []corev1.ContainerStatus) bool {
	return !slices.ContainsFunc(statuses, func(cs corev1.ContainerStatus) bool {
		return cs.State.Terminated == nil || cs.State.Terminated.ExitCode != 0
	})
}

// restartable reports whether the policy starts a container again that ended so.
func restartable(policy corev1.RestartPolicy, isInit bool, exitCode int32) bool {
	switch {
	case isInit && exitCode == 0:
		return false
	case policy == corev1.RestartPolicyNever:
		return false
	case policy == corev1.RestartPolicyOnFailure:
		return exitCode != 0
	default:
		return true
	}
}

// phase sums up the containers.
func phase(pod *corev1.Pod, status corev1.PodStatus, stopped bool) corev1.PodPhase {
	policy := pod.Spec.RestartPolicy
	pendingInit := 0
	for _, cs := range status.InitContainerStatuses {
		end := cs.State.Terminated
		if cs.State.Waiting != nil {
			end = cs.LastTerminationState.Terminated
		}
		switch {
		case cs.State.Running != nil || end == nil:
			pendingInit++
		case end.ExitCode != 0 && (stopped || !restartable(policy, true, end.ExitCode)):
			return corev1.PodFailed
		case end.ExitCode != 0 || cs.State.Waiting != nil:
			pendingInit++
		}
	}
	running, waiting, ended, forGood, succeeded := 0, 0, 0, 0, 0
	for _, cs := range status.ContainerStatuses {
		end := cs.State.Terminated
		if cs.State.Waiting != nil {
			end = cs.LastTerminationState.Terminated
		}
		switch {
		case cs.State.Running != nil:
			running++
		case end == nil:
			waiting++
		default:
			ended++
			if !restartable(policy, false, end.ExitCode) {
				forGood++
			}
			if end.ExitCode == 0 {
				succeeded++
			}
		}
	}
	switch {
	case stopped && waiting == 0 && pendingInit == 0 && ended == succeeded:
		return corev1.PodSucceeded
	case stopped:
		return corev1.PodFailed
	case pendingInit > 0 || waiting > 0:
		return corev1.PodPending
	case running > 0 || forGood < ended:
		return corev1.PodRunning
	case ended == succeeded:
		return corev1.PodSucceeded
	default:
		return corev1.PodFailed
	}
}

func terminalPhase(phase corev1.PodPhase) bool {
	return phase == corev1.PodSucceeded || phase == corev1.PodFailed
}

// conditions returns the kubelet's conditions, and those of others as they are.
func conditions(v podView, status corev1.PodStatus) []corev1.PodCondition {
	made := map[corev1.PodConditionType]corev1.PodCondition{}
	set := func(kind corev1.PodConditionType, is bool, reason, message string) {
		value := corev1.ConditionFalse
		if is {
			value = corev1.ConditionTrue
		}
		made[kind] = corev1.PodCondition{Type: kind, Status: value, Reason: reason, Message: message}
	}
	set(corev1.PodReadyToStartContainers, v.podIP != "" && !v.stopped, "", "")
	set(corev1.PodScheduled, true, "", "")

	pending := names(status.InitContainerStatuses, func(cs corev1.ContainerStatus) bool { return !cs.Ready })
	switch {
	case status.Phase == corev1.PodSucceeded:
		set(corev1.PodInitialized, true, reasonPodCompleted, "")
	case len(pending) == 0 || anyStarted(status):
		set(corev1.PodInitialized, true, "", "")
	default:
		set(corev1.PodInitialized, false, reasonContainersNotInitialized,
			fmt.Sprintf("containers with incomplete status: %s", pending))
	}

	unready := names(status.ContainerStatuses, func(cs corev1.ContainerStatus) bool { return !cs.Ready })
	switch {
	case status.Phase == corev1.PodSucceeded:
		set(corev1.ContainersReady, false, reasonPodCompleted, "")
	case status.Phase == corev1.PodFailed:
		set(corev1.ContainersReady, false, reasonPodFailed, "")
	case len(unready) > 0:
		set(corev1.ContainersReady, false, reasonContainersNotReady,
			fmt.Sprintf("containers with unready status: %s", unready))
	default:
		set(corev1.ContainersReady, true, "", "")
	}

	ready := made[corev1.ContainersReady]
	set(corev1.PodReady, ready.Status == corev1.ConditionTrue, ready.Reason, ready.Message)

	var all []corev1.PodCondition
	for _, kind := range kubeletConditions {
		condition := made[kind]
		condition.LastTransitionTime = metav1.NewTime(v.now)
		if old := findCondition(v.previous.Conditions, kind); old != nil && old.Status == condition.Status {
			condition.LastTransitionTime = old.LastTransitionTime
		}
		all = append(all, condition)
	}
	for _, condition := range v.pod.Status.Conditions {
		if !slices.Contains(kubeletConditions, condition.Type) {
			all = append(all, condition)
		}
	}
	return all
}

func names(statuses []corev1.ContainerStatus, which func(corev1.ContainerStatus) bool) []string {
	var found []string
	for _, cs := range statuses {
		if which(cs) {
			found = append(found, cs.Name)
		}
	}
	return found
}

func findCondition(all []corev1.PodCondition, kind corev1.PodConditionType) *corev1.PodCondition {
	for i := range all {
		if all[i].Type == kind {
			return &all[i]
		}
	}
	return nil
}
