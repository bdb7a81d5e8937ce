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

// Show writes an event when one guard has kept the rollout for long: which guard, with its numbers
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
	kind := corev1.EventTypeNormal
	if report.Action == rollout.ActionHold {
		kind = corev1.EventTypeWarning
	}
	message := fmt.Sprintf("%s for %s: %s", report.Action, report.At.Sub(report.Since).Round(time.Second),
		report.Reason)
	if report.Do != "" {
		message += " What to do: " + report.Do
	}
	return r.add(r.set, kind, string(report.Guard), message)
}

// Tell says what was done. pod is the UID of the pod that the entry is about, if any.
func (r *Recorder) Tell(e Entry, podUID string) {
	if r == nil {
		return
	}
	reason := e.Rule
	var message string
	switch e.What {
	case Removed:
		message = fmt.Sprintf("Removed %s for revision %s: %s", e.Pod, e.Revision, e.Reason)
		if reason == "" {
			reason = Removed
		}
	case LeaderMoved:
		message = fmt.Sprintf("Moved etcd's leadership from %s to %s: %s", e.Pod, e.To, e.Reason)
	case HandedOver:
		reason, message = HandedOver, fmt.Sprintf("%s lets %s coordinate: %s", e.Pod, e.To, e.Reason)
	case Completed:
		message = fmt.Sprintf("The rollout of revision %s is complete: %s", e.Revision, e.Reason)
	case MemberRemoved:
		message = fmt.Sprintf("Removed the member %s from etcd's list: %s", e.Pod, e.Reason)
		if reason == "" {
			reason = MemberRemoved
		}
	case MemberSuspected:
		reason, message = MemberSuspected, fmt.Sprintf("The member %s: %s", e.Pod, e.Reason)
	case Defragmented:
		reason, message = Defragmented, fmt.Sprintf("Defragmented the member of %s: %s", e.Pod, e.Reason)
	case Disarmed:
		reason, message = Disarmed, fmt.Sprintf("Disarmed the alarm NOSPACE of %s: %s", e.Pod, e.Reason)
	default:
		return
	}
	about := []corev1.ObjectReference{r.set}
	if podUID != "" {
		about = append(about, corev1.ObjectReference{APIVersion: "v1", Kind: "Pod", Namespace: r.set.Namespace,
			Name: e.Pod, UID: types.UID(podUID)})
	}
	for _, object := range about {
		r.add(object, corev1.EventTypeNormal, reason, message)
		for _, guard := range e.Overridden {
			r.add(object, corev1.EventTypeWarning, guard,
				fmt.Sprintf("%s would have held this, and is overridden by %s on the Lease: %s", guard,
					rollout.ControlOverrideGuards, message))
		}
	}
}

// Ghost tells of a ghost.
func (r *Recorder) Ghost(g Ghost, now time.Time) {
	if r != nil {
		r.add(r.set, corev1.EventTypeWarning, "Ghost", g.Tell(now))
	}
}

// Fault says that this sidecar cannot go on.
func (r *Recorder) Fault(message string) {
	if r != nil {
		r.add(r.set, corev1.EventTypeWarning, "CoordinatorUnfit", r.source.Host+": "+message)
	}
}

// Reasons of events about faults with which a coordinator goes on.
const (
	EvidenceTooOld = "EvidenceTooOld"
	OddRecord      = "OddRecord"
)

// Warn tells of a fault with which this sidecar goes on.
func (r *Recorder) Warn(reason, message string) {
	if r != nil {
		r.add(r.set, corev1.EventTypeWarning, reason, r.source.Host+": "+message)
	}
}

// Override says which guards the operator keeps from holding.
func (r *Recorder) Override(now *Report) {
	if words := now.OverrideWords(); r != nil && words != "" {
		r.add(r.set, corev1.EventTypeWarning, "GuardsOverridden",
			words+". What to do: quorate override --clear, as soon as it is not needed any more.")
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
