package node

import (
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

// EventKind is what happened.
type EventKind string

// The kinds of events. A Detail is text for people.
const (
	// Bound: the pod was given to a node.
	Bound EventKind = "Bound"
	// Created: the node has begun to work on the pod.
	Created EventKind = "Created"
	// Waiting: a container, or the whole pod, waits; the detail begins with the reason.
	Waiting EventKind = "Waiting"
	// Started: a container's process runs.
	Started EventKind = "Started"
	// Exited: a container's process has ended.
	Exited EventKind = "Exited"
	// Ready and NotReady: the state of a container that has a readiness probe, or,
	// without a container, the Ready condition of the pod has changed.
	Ready    EventKind = "Ready"
	NotReady EventKind = "NotReady"
	// Terminating: the node has seen that the pod is being deleted.
	Terminating EventKind = "Terminating"
	// PreStop: a container's preStop hook has begun.
	PreStop EventKind = "PreStop"
	// Killed: the grace period was over, and the containers got SIGKILL.
	Killed EventKind = "Killed"
	// Gone: nothing is left of the pod on its node.
	Gone EventKind = "Gone"
	// NodeLost and NodeRestored: see Agent.LoseNode. They have no pod.
	NodeLost     EventKind = "NodeLost"
	NodeRestored EventKind = "NodeRestored"
	// Trouble: something that the agent tries again, or that should not happen, such
	// as a status that the API server rejects.
	Trouble EventKind = "Trouble"
)

// Event is one thing that happened on a node, for timelines.
type Event struct {
	Time      time.Time
	Node      string
	Namespace string
	Pod       string
	UID       types.UID
	// Container is empty when the event concerns the whole pod.
	Container string
	Kind      EventKind
	Detail    string
}

// String gives kind, container and detail; time, node and pod are left to the code that prints.
func (e Event) String() string {
	var text strings.Builder
	text.WriteString(string(e.Kind))
	if e.Container != "" {
		text.WriteString(" " + e.Container)
	}
	if e.Detail != "" {
		text.WriteString(": " + e.Detail)
	}
	return text.String()
}

// emit hands an event on. Events of one pod come in order.
func (a *Agent) emit(e Event) {
	if a.config.OnEvent == nil {
		return
	}
	e.Time = time.Now()
	a.eventMutex.Lock()
	defer a.eventMutex.Unlock()
	a.config.OnEvent(e)
}

func (a *Agent) emitFor(pod *corev1.Pod, container string, kind EventKind, format string, args ...any) {
	a.emit(Event{
		Node: pod.Spec.NodeName, Namespace: pod.Namespace, Pod: pod.Name, UID: pod.UID,
		Container: container, Kind: kind, Detail: fmt.Sprintf(format, args...),
	})
}
