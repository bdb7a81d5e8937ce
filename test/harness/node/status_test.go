package node

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

var (
	early = time.Date(2030, 1, 1, 12, 0, 0, 0, time.UTC)
	late  = early.Add(time.Minute)
)

func ended(code int32, reason string) *corev1.ContainerStateTerminated {
	return &corev1.ContainerStateTerminated{ExitCode: code, Reason: reason}
}

func waits(reason string) *corev1.ContainerStateWaiting {
	return &corev1.ContainerStateWaiting{Reason: reason}
}

func TestStatus(t *testing.T) {
	type conditionValues struct{ initialized, containersReady, ready corev1.ConditionStatus }
	const yes, no = corev1.ConditionTrue, corev1.ConditionFalse
	running := func(name string, ready bool) containerView {
		return containerView{name: name, startedAt: early, ready: ready}
	}
	always := &corev1.Pod{Spec: corev1.PodSpec{RestartPolicy: corev1.RestartPolicyAlways}}
	onFailure := &corev1.Pod{Spec: corev1.PodSpec{RestartPolicy: corev1.RestartPolicyOnFailure}}
	never := &corev1.Pod{Spec: corev1.PodSpec{RestartPolicy: corev1.RestartPolicyNever}}
	for _, x := range []struct {
		name       string
		view       podView
		phase      corev1.PodPhase
		conditions conditionValues
		init, app  string // state of the first container: its reason, or "running"
	}{
		{"nothing has started", podView{pod: always, app: []containerView{{name: "a"}}},
			corev1.PodPending, conditionValues{yes, no, no}, "", reasonContainerCreating},
		{"an init container has not started",
			podView{pod: always, init: []containerView{{name: "i"}}, app: []containerView{{name: "a"}}},
			corev1.PodPending, conditionValues{no, no, no}, reasonPodInitializing, reasonPodInitializing},
		{"an init container runs", podView{pod: always, init: []containerView{running("i", true)},
			app: []containerView{{name: "a"}}},
			corev1.PodPending, conditionValues{no, no, no}, "running", reasonPodInitializing},
		{"an init container has failed and waits",
			podView{pod: always,
				init: []containerView{{name: "i", exit: ended(1, reasonError), waiting: waits(reasonCrashLoopBackOff)}},
				app:  []containerView{{name: "a"}}},
			corev1.PodPending, conditionValues{no, no, no}, reasonCrashLoopBackOff, reasonPodInitializing},
		{"an init container has failed and is not restarted",
			podView{pod: never, init: []containerView{{name: "i", exit: ended(1, reasonError)}},
				app: []containerView{{name: "a"}}},
			corev1.PodFailed, conditionValues{no, no, no}, reasonError, reasonPodInitializing},
		{"an init container is done",
			podView{pod: always, init: []containerView{{name: "i", exit: ended(0, reasonCompleted)}},
				app: []containerView{{name: "a"}}},
			corev1.PodPending, conditionValues{yes, no, no}, reasonCompleted, reasonPodInitializing},
		{"init containers run again after a reboot",
			podView{pod: always,
				init: []containerView{{name: "i", exit: ended(0, reasonCompleted),
					waiting: waits(reasonPodInitializing)}},
				app: []containerView{{name: "a", exit: ended(255, reasonUnknown),
					waiting: waits(reasonPodInitializing)}}},
			corev1.PodPending, conditionValues{no, no, no}, reasonPodInitializing, reasonPodInitializing},
		{"an image cannot be pulled",
			podView{pod: always, app: []containerView{{name: "a", waiting: waits(reasonErrImagePull)},
				running("b", true)}},
			corev1.PodPending, conditionValues{yes, no, no}, "", reasonErrImagePull},
		{"all run, one is not ready",
			podView{pod: always, app: []containerView{running("a", true), running("b", false)}},
			corev1.PodRunning, conditionValues{yes, no, no}, "", "running"},
		{"all run and are ready", podView{pod: always, app: []containerView{running("a", true), running("b", true)}},
			corev1.PodRunning, conditionValues{yes, yes, yes}, "", "running"},
		{"a container that does not run is not ready",
			podView{pod: always, app: []containerView{{name: "a", ready: true, exit: ended(1, reasonError)}}},
			corev1.PodRunning, conditionValues{yes, no, no}, "", reasonError},
		{"one crash-loops",
			podView{pod: always,
				app: []containerView{{name: "a", exit: ended(1, reasonError), waiting: waits(reasonCrashLoopBackOff)},
					running("b", true)}},
			corev1.PodRunning, conditionValues{yes, no, no}, "", reasonCrashLoopBackOff},
		{"all crash-loop",
			podView{pod: always,
				app: []containerView{{name: "a", exit: ended(1, reasonError), waiting: waits(reasonCrashLoopBackOff)}}},
			corev1.PodRunning, conditionValues{yes, no, no}, "", reasonCrashLoopBackOff},
		{"exit code 0 is restarted too",
			podView{pod: always, app: []containerView{{name: "a", exit: ended(0, reasonCompleted)}}},
			corev1.PodRunning, conditionValues{yes, no, no}, "", reasonCompleted},
		{"never restarted: done",
			podView{pod: never, app: []containerView{{name: "a", exit: ended(0, reasonCompleted)}}},
			corev1.PodSucceeded, conditionValues{yes, no, no}, "", reasonCompleted},
		{"never restarted: one has failed, one still runs",
			podView{pod: never, app: []containerView{{name: "a", exit: ended(2, reasonError)}, running("b", true)}},
			corev1.PodRunning, conditionValues{yes, no, no}, "", reasonError},
		{"never restarted: failed",
			podView{pod: never, app: []containerView{{name: "a", exit: ended(2, reasonError)},
				{name: "b", exit: ended(0, reasonCompleted)}}},
			corev1.PodFailed, conditionValues{yes, no, no}, "", reasonError},
		{"restarted on failure: done",
			podView{pod: onFailure, app: []containerView{{name: "a", exit: ended(0, reasonCompleted)}}},
			corev1.PodSucceeded, conditionValues{yes, no, no}, "", reasonCompleted},
		{"restarted on failure: failed",
			podView{pod: onFailure, app: []containerView{{name: "a", exit: ended(1, reasonError)}}},
			corev1.PodRunning, conditionValues{yes, no, no}, "", reasonError},
		{"stopping: what runs is still ready",
			podView{pod: always, stopping: true, app: []containerView{running("a", true), running("b", true)}},
			corev1.PodRunning, conditionValues{yes, yes, yes}, "", "running"},
		{"stopping: one has ended", podView{pod: always, stopping: true,
			app: []containerView{{name: "a", exit: ended(0, reasonCompleted)}, running("b", true)}},
			corev1.PodRunning, conditionValues{yes, no, no}, "", reasonCompleted},
		{"stopping: a crash-looping container shows how it ended",
			podView{pod: always, stopping: true,
				app: []containerView{{name: "a", exit: ended(3, reasonError), waiting: waits(reasonCrashLoopBackOff)},
					running("b", true)}},
			corev1.PodRunning, conditionValues{yes, no, no}, "", reasonError},
		{"stopped: all ended well", podView{pod: always, stopping: true, stopped: true,
			app: []containerView{{name: "a", exit: ended(0, reasonCompleted)}}},
			corev1.PodSucceeded, conditionValues{yes, no, no}, "", reasonCompleted},
		{"stopped: one was killed", podView{pod: always, stopping: true, stopped: true,
			app: []containerView{{name: "a", exit: ended(137, reasonError)}}},
			corev1.PodFailed, conditionValues{yes, no, no}, "", reasonError},
		{"stopped: one never started", podView{pod: always, stopping: true, stopped: true,
			app: []containerView{{name: "a", waiting: waits(reasonImagePullBackOff)}}},
			corev1.PodFailed, conditionValues{yes, no, no}, "", reasonStatusUnknown},
		{"stopped: before the init containers were done",
			podView{pod: always, stopping: true, stopped: true, init: []containerView{{name: "i"}},
				app: []containerView{{name: "a"}}},
			corev1.PodFailed, conditionValues{no, no, no}, reasonPodInitializing, reasonPodInitializing},
	} {
		t.Run(x.name, func(t *testing.T) {
			x.view.podIP, x.view.hostIP, x.view.now = "10.0.0.10", "10.0.0.1", late
			status := buildStatus(x.view)
			require.Equal(t, x.phase, status.Phase)
			got := conditionValues{}
			for kind, value := range map[corev1.PodConditionType]*corev1.ConditionStatus{
				corev1.PodInitialized: &got.initialized, corev1.ContainersReady: &got.containersReady,
				corev1.PodReady: &got.ready} {
				*value = findCondition(status.Conditions, kind).Status
			}
			require.Equal(t, x.conditions, got)
			state := func(statuses []corev1.ContainerStatus) string {
				switch {
				case len(statuses) == 0:
					return ""
				case statuses[0].State.Running != nil:
					require.True(t, *statuses[0].Started)
					return "running"
				case statuses[0].State.Waiting != nil:
					require.False(t, *statuses[0].Started)
					return statuses[0].State.Waiting.Reason
				default:
					require.False(t, statuses[0].Ready && len(x.init) == 0)
					return statuses[0].State.Terminated.Reason
				}
			}
			require.Equal(t, x.init, state(status.InitContainerStatuses))
			require.Equal(t, x.app, state(status.ContainerStatuses))
		})
	}
	t.Run("messages name the containers", func(t *testing.T) {
		status := buildStatus(podView{pod: always,
			app: []containerView{running("a", true), running("b", false), {name: "c"}}})
		condition := findCondition(status.Conditions, corev1.PodReady)
		require.Equal(t, reasonContainersNotReady, condition.Reason)
		require.Equal(t, "containers with unready status: [b c]", condition.Message)
	})
	t.Run("the last state is the end before the present state", func(t *testing.T) {
		c := containerView{name: "a", startedAt: early, exit: ended(2, reasonError),
			before: ended(1, reasonError), restarts: 2}
		require.EqualValues(t, 2, containerStatus(c, "", false).LastTerminationState.Terminated.ExitCode)
		c.startedAt = time.Time{}
		require.EqualValues(t, 1, containerStatus(c, "", false).LastTerminationState.Terminated.ExitCode)
		c.waiting = waits(reasonCrashLoopBackOff)
		require.EqualValues(t, 2, containerStatus(c, "", false).LastTerminationState.Terminated.ExitCode)
	})
}

func TestTransitionTimes(t *testing.T) {
	pod := &corev1.Pod{Spec: corev1.PodSpec{RestartPolicy: corev1.RestartPolicyAlways}}
	view := podView{pod: pod, now: early, app: []containerView{{name: "a", startedAt: early, ready: true}}}
	first := buildStatus(view)
	at := func(status corev1.PodStatus, kind corev1.PodConditionType) time.Time {
		return findCondition(status.Conditions, kind).LastTransitionTime.Time
	}
	view.previous, view.now = first, late
	t.Run("nothing changes while nothing changes", func(t *testing.T) {
		require.Equal(t, first, buildStatus(view))
	})
	t.Run("only the conditions that change get a new time", func(t *testing.T) {
		view.app[0].ready = false
		second := buildStatus(view)
		require.Equal(t, late, at(second, corev1.PodReady))
		require.Equal(t, late, at(second, corev1.ContainersReady))
		require.Equal(t, early, at(second, corev1.PodInitialized))
		require.Equal(t, early, at(second, corev1.PodScheduled))
	})
	t.Run("another reason is no transition", func(t *testing.T) {
		view.app = []containerView{{name: "a"}, {name: "b"}}
		view.previous.Conditions = []corev1.PodCondition{{Type: corev1.PodReady, Status: corev1.ConditionFalse,
			Reason: "Other", LastTransitionTime: metav1.NewTime(early)}}
		require.Equal(t, early, at(buildStatus(view), corev1.PodReady))
	})
}

func TestStatusPatch(t *testing.T) {
	pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{UID: "uid-1"},
		Spec: corev1.PodSpec{RestartPolicy: corev1.RestartPolicyAlways}}
	status := buildStatus(podView{pod: pod, now: early, hostIP: "10.0.0.1", podIP: "10.0.0.10",
		app: []containerView{{name: "a", startedAt: early, ready: true}}})
	t.Run("nothing to say makes no patch", func(t *testing.T) {
		current := pod.DeepCopy()
		current.Status = mergeStatus(current.Status, status)
		patch, err := statusPatch(current, status)
		require.NoError(t, err)
		require.Nil(t, patch)
		require.False(t, statusDiffers(current, status))
	})
	t.Run("a patch holds for this pod only", func(t *testing.T) {
		patch, err := statusPatch(pod, status)
		require.NoError(t, err)
		var decoded corev1.Pod
		require.NoError(t, json.Unmarshal(patch, &decoded))
		require.Equal(t, pod.UID, decoded.UID)
		require.Equal(t, corev1.PodRunning, decoded.Status.Phase)
	})
	t.Run("conditions and fields of others stay", func(t *testing.T) {
		current := pod.DeepCopy()
		current.Status.NominatedNodeName = "other"
		current.Status.QOSClass = corev1.PodQOSBurstable
		current.Status.Conditions = []corev1.PodCondition{{Type: corev1.DisruptionTarget, Status: corev1.ConditionTrue},
			{Type: corev1.PodReady, Status: corev1.ConditionFalse}}
		merged := mergeStatus(current.Status, status)
		require.Equal(t, "other", merged.NominatedNodeName)
		require.Equal(t, corev1.PodQOSBurstable, merged.QOSClass)
		require.NotNil(t, findCondition(merged.Conditions, corev1.DisruptionTarget))
		require.Equal(t, corev1.ConditionTrue, findCondition(merged.Conditions, corev1.PodReady).Status)
	})
	t.Run("what the node controller has changed is noticed", func(t *testing.T) {
		current := pod.DeepCopy()
		current.Status = mergeStatus(current.Status, status)
		findCondition(current.Status.Conditions, corev1.PodReady).Status = corev1.ConditionFalse
		require.True(t, statusDiffers(current, status))
	})
}

func TestNodeStatus(t *testing.T) {
	first := nodeStatus(corev1.NodeStatus{Conditions: []corev1.NodeCondition{{Type: corev1.NodeDiskPressure}}},
		"10.0.0.1", "node-0", NotLost, early)
	require.Len(t, first.Conditions, 2, "conditions of others stay")
	lost := nodeStatus(first, "10.0.0.1", "node-0", PowerLoss, late)
	require.Len(t, lost.Conditions, 2)
	ready := lost.Conditions[1]
	require.Equal(t, corev1.ConditionUnknown, ready.Status)
	require.Equal(t, "NodeStatusUnknown", ready.Reason)
	require.Equal(t, late, ready.LastTransitionTime.Time)
	require.Equal(t, early, ready.LastHeartbeatTime.Time, "the last that was heard of it")
}

func TestReboot(t *testing.T) {
	always := corev1.RestartPolicyAlways
	t.Run("what ran has ended, and nobody knows how", func(t *testing.T) {
		c := &container{exit: ended(137, reasonError), ranWhenLost: true, ended: early}
		c.reboot(always, false)
		require.EqualValues(t, 255, c.exit.ExitCode)
		require.Equal(t, reasonUnknown, c.exit.Reason)
		require.True(t, c.ended.IsZero(), "no back-off after a reboot")
	})
	t.Run("what had ended before stays as it was", func(t *testing.T) {
		c := &container{exit: ended(3, reasonError), waiting: waits(reasonCrashLoopBackOff), ended: early}
		c.reboot(always, false)
		require.EqualValues(t, 3, c.exit.ExitCode)
		require.Nil(t, c.waiting)
	})
	t.Run("init containers that were done run again", func(t *testing.T) {
		c := &container{init: true, exit: ended(0, reasonCompleted)}
		require.True(t, c.done(always))
		c.reboot(always, true)
		require.False(t, c.done(always))
	})
}
