package report

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/record"
	"k8s.io/utils/clock"

	"github.com/quorate/quorate/pkg/rollout"
)

// Events is the part of the API for events in one namespace that is used here. A clientset's
// CoreV1().Events(namespace) satisfies it.
type Events interface {
	Create(ctx context.Context, event *corev1.Event, opts metav1.CreateOptions) (*corev1.Event, error)
	// Patch counts an event that repeats.
	Patch(ctx context.Context, name string, pt types.PatchType, data []byte, opts metav1.PatchOptions,
		subresources ...string) (*corev1.Event, error)
}

const (
	// HoldLasts is how long one guard keeps a rollout before that becomes an event. Whatever normally
	// clears by itself, such as a pod that is recreated, has cleared by then.
	HoldLasts = 30 * time.Second
	// HoldAgain is how often the event is repeated. Kubernetes forgets events after an hour.
	HoldAgain = 30 * time.Minute
	// flushTimeout bounds how long the end of a sidecar waits for its last events.
	flushTimeout = time.Second / 4
	// queueLength is far more than a rollout reports. Beyond it events are dropped, because a rollout
	// never waits for its own reporting.
	queueLength = 64
	// longestMessage is how long a message the API server accepts.
	longestMessage = 1024
)

// Recorder writes Kubernetes events on the StatefulSet, and on pods that stay. It counts repeated events and
// dampens floods, as client-go does for all controllers.
type Recorder struct {
	events     Events
	correlator *record.EventCorrelator
	queue      chan *corev1.Event
	source     corev1.EventSource
	timeout    time.Duration
	failed     func(error)

	set corev1.ObjectReference
}

// NewRecorder returns a recorder that says who it is with instance (the coordinator's pod).
// Each request is bounded by timeout, and failed gets what goes wrong. A nil *Recorder
// records nothing.
func NewRecorder(events Events, instance string, timeout time.Duration, failed func(error)) *Recorder {
	return &Recorder{
		events: events, correlator: record.NewEventCorrelator(clock.RealClock{}),
		queue:  make(chan *corev1.Event, queueLength),
		source: corev1.EventSource{Component: "quorate", Host: instance}, timeout: timeout, failed: failed,
	}
}

// About names the StatefulSet, which the events are about.
func (r *Recorder) About(namespace, name, uid string) {
	if r != nil {
		r.set = corev1.ObjectReference{APIVersion: "apps/v1", Kind: "StatefulSet", Namespace: namespace, Name: name,
			UID: types.UID(uid)}
	}
}

// Run writes until ctx ends, and then what is still to be written, for a moment.
func (r *Recorder) Run(ctx context.Context) {
	if r == nil {
		return
	}
	for {
		select {
		case e := <-r.queue:
			r.write(ctx, e)
			continue
		case <-ctx.Done():
		}
		break
	}
	flushing, cancel := context.WithTimeout(context.WithoutCancel(ctx), flushTimeout)
	defer cancel()
	for {
		select {
		case e := <-r.queue:
			r.write(flushing, e)
		default:
			return
		}
	}
}

// Reasons of events are what happened. Which rule or guard is behind it is in the message.
const (
	ReasonPodRemoved       = "PodRemoved"
	ReasonLeaderMoved      = "LeaderMoved"
	ReasonHandedOver       = "HandedOver"
	ReasonRolloutCompleted = "RolloutCompleted"
	ReasonMemberRemoved    = "MemberRemoved"
	// ReasonMemberRemovalGivenUp: it may still happen.
	ReasonMemberRemovalGivenUp = "MemberRemovalGivenUp"
	ReasonGhostFound           = "GhostFound"
	ReasonDefragmented         = "Defragmented"
	// ReasonDefragmentationFailed, or nobody knows how it ended.
	ReasonDefragmentationFailed = "DefragmentationFailed"
	ReasonAlarmDisarmed         = "AlarmDisarmed"
	// ReasonAlarmNotDisarmed, or nobody knows.
	ReasonAlarmNotDisarmed = "AlarmNotDisarmed"
	// ReasonGuardsOverridden: an operator keeps a guard from holding. There is one at the beginning of a rollout, and
	// whenever that changes, and one for everything that was done although a guard would have held it.
	ReasonGuardsOverridden = "GuardsOverridden"
	ReasonOverrideEnded    = "OverrideEnded"
	// ReasonCoordinatorUnfit: this sidecar lets another one coordinate, because it failed.
	ReasonCoordinatorUnfit = "CoordinatorUnfit"
	// ReasonDecisionDropped and ReasonRecordIgnored are faults with which a coordinator goes on: evidence had grown too
	// old, and something on the Lease makes no sense.
	ReasonDecisionDropped = "DecisionDropped"
	ReasonRecordIgnored   = "RecordIgnored"
)

// kept is what a guard may keep: the beginning of two reasons, which end with Held and Waiting, and in words.
type kept struct{ reason, words string }

// keptOf is what a duty does. Whatever is not about anything else is about the rollout.
func keptOf(d rollout.DutyName) kept {
	switch d {
	case rollout.DutyHeld:
		return kept{"Rollout", "everything"}
	case rollout.DutyMakeWay:
		return kept{"LeaderMove", "the change of etcd's leader"}
	case rollout.DutyGhosts:
		return kept{"MemberRemoval", "the removal of a member"}
	case rollout.DutyDefragment:
		return kept{"Defragmentation", "the defragmentation"}
	case rollout.DutyRoll:
	}
	return kept{"Rollout", "the rollout"}
}

// Show writes an event when one guard has kept the rollout, or another duty, for long: which guard, with its numbers
// and what to do. It returns true if it did. No two goroutines may call Show and the methods below at
// the same time.
func (r *Recorder) Show(report Report) bool {
	if r == nil || report.Guard == "" || report.At.Sub(report.Since) < HoldLasts {
		return false
	}
	// One from the future is another clock's: it says nothing.
	if ago := report.At.Sub(report.LastEvent); ago >= 0 && ago < HoldAgain {
		return false
	}
	k := keptOf(report.Duty)
	kind, reason, verb := corev1.EventTypeNormal, k.reason+"Waiting", "kept "+k.words+" waiting"
	if report.Action == rollout.ActionHold {
		kind, reason, verb = corev1.EventTypeWarning, k.reason+"Held", "held "+k.words
	}
	message := fmt.Sprintf("%s %s has %s for %s: %s If nobody does anything: %s", sentence(report.Verdict().String()),
		report.Guard, verb, report.At.Sub(report.Since).Round(time.Second), sentence(report.Reason), report.Otherwise())
	if report.Do != "" {
		message += " What to do: " + report.Do
	}
	return r.add(r.set, kind, reason, message)
}

// sentence ends a text with a full stop, unless it ends with one already.
func sentence(text string) string { return strings.TrimSuffix(text, ".") + "." }

// Tell says what was done. podUID is the UID of the pod that the entry is about, if its own events are to tell of it.
func (r *Recorder) Tell(e Entry, podUID string) {
	if r == nil {
		return
	}
	reason, message := e.event()
	if reason == "" {
		return
	}
	kind := corev1.EventTypeNormal
	if e.Result != "" {
		kind = corev1.EventTypeWarning
	}
	about := []corev1.ObjectReference{r.set}
	if podUID != "" {
		about = append(about, corev1.ObjectReference{APIVersion: "v1", Kind: "Pod", Namespace: r.set.Namespace,
			Name: e.Pod, UID: types.UID(podUID)})
	}
	for _, object := range about {
		r.add(object, kind, reason, message)
		for _, guard := range e.Overridden {
			r.add(object, corev1.EventTypeWarning, ReasonGuardsOverridden,
				fmt.Sprintf("%s would have held this, and is overridden by %s on the Lease: %s", guard,
					rollout.ControlOverrideGuards, message))
		}
	}
}

// event is what an event tells of an entry: the reason, which is empty for what nobody knows, and the message.
func (e *Entry) event() (reason, message string) {
	by := ""
	if e.Rule != "" {
		by = ", by the rule " + e.Rule
	}
	switch e.What {
	case Removed:
		return ReasonPodRemoved, fmt.Sprintf("Removed %s for revision %s%s: %s", e.Pod, e.Revision, by, e.Reason)
	case LeaderMoved:
		return ReasonLeaderMoved, fmt.Sprintf("Moved etcd's leadership from %s to %s%s: %s", e.Pod, e.To, by,
			e.Reason)
	case HandedOver:
		return ReasonHandedOver, fmt.Sprintf("%s lets %s coordinate: %s", e.Pod, e.To, e.Reason)
	case Completed:
		return ReasonRolloutCompleted, fmt.Sprintf("The rollout of revision %s is complete: %s", e.Revision,
			e.Reason)
	case MemberRemoved:
		return ReasonMemberRemoved, fmt.Sprintf("Removed the member %s from etcd's list: %s", e.Pod, e.Reason)
	case MemberSuspected:
		return ReasonMemberRemovalGivenUp, fmt.Sprintf("The member %s: %s", e.Pod, e.Reason)
	case Defragmented:
		if e.Result != "" {
			return ReasonDefragmentationFailed, fmt.Sprintf("Defragmenting the member of %s: %s", e.Pod, e.Reason)
		}
		return ReasonDefragmented, fmt.Sprintf("Defragmented the member of %s: %s", e.Pod, e.Reason)
	case OverrideEnded:
		return ReasonOverrideEnded, e.Reason
	case Disarmed:
		if e.Result != "" {
			return ReasonAlarmNotDisarmed, fmt.Sprintf("%s: %s", e.Pod, e.Reason)
		}
		return ReasonAlarmDisarmed, fmt.Sprintf("Disarmed the alarm NOSPACE of %s: %s", e.Pod, e.Reason)
	}
	return "", ""
}

// Ghost tells of a ghost.
func (r *Recorder) Ghost(g Ghost, now time.Time) {
	if r != nil {
		r.add(r.set, corev1.EventTypeWarning, ReasonGhostFound, g.Tell(now))
	}
}

// Fault says that this sidecar cannot go on.
func (r *Recorder) Fault(message string) { r.Warn(ReasonCoordinatorUnfit, message) }

// Warn tells of a fault of this sidecar.
func (r *Recorder) Warn(reason, message string) {
	if r != nil {
		r.add(r.set, corev1.EventTypeWarning, reason, r.source.Host+": "+message)
	}
}

// Override says which guards the operator keeps from holding.
func (r *Recorder) Override(now *Report) {
	if words := now.OverrideWords(); r != nil && words != "" {
		r.add(r.set, corev1.EventTypeWarning, ReasonGuardsOverridden, fmt.Sprintf("%s. What to do: as soon as it is "+
			"not needed any more, quorate override %s --clear --namespace %s", words, r.set.Name, r.set.Namespace))
	}
}

// add queues an event, and returns true if it did.
func (r *Recorder) add(about corev1.ObjectReference, kind, reason, message string) bool {
	if about.UID == "" {
		return false // Nothing has been seen of it yet.
	}
	if len(message) > longestMessage {
		message = strings.ToValidUTF8(message[:longestMessage-len("…")], "") + "…"
	}
	now := metav1.Now()
	e := &corev1.Event{
		ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("%s.%x", about.Name, now.UnixNano()),
			Namespace: about.Namespace},
		InvolvedObject: about, Reason: reason, Message: message, Type: kind,
		Source: r.source, ReportingController: "quorate.dev/" + r.source.Component, ReportingInstance: r.source.Host,
		FirstTimestamp: now, LastTimestamp: now, Count: 1,
	}
	select {
	case r.queue <- e:
		return true
	default:
		r.failed(errors.New("events come faster than they can be written; one is dropped: " + message))
		return false
	}
}

func (r *Recorder) write(ctx context.Context, e *corev1.Event) {
	ctx, cancel := context.WithTimeout(ctx, r.timeout)
	defer cancel()
	known, err := r.correlator.EventCorrelate(e)
	if err != nil || known.Skip {
		return
	}
	var written *corev1.Event
	repeated := known.Event.Count > 1 && len(known.Patch) > 0
	if repeated {
		written, err = r.events.Patch(ctx, known.Event.Name, types.StrategicMergePatchType, known.Patch,
			metav1.PatchOptions{})
	}
	// The one to be counted up may be forgotten already.
	if !repeated || apierrors.IsNotFound(err) {
		known.Event.ResourceVersion = ""
		written, err = r.events.Create(ctx, known.Event, metav1.CreateOptions{})
	}
	if err != nil {
		r.failed(fmt.Errorf("write the event %s about %s %s: %w", e.Reason, e.InvolvedObject.Kind,
			e.InvolvedObject.Name, err))
		return
	}
	r.correlator.UpdateState(written)
}
