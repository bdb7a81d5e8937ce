package node

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/strategicpatch"
	"k8s.io/client-go/kubernetes"
)

const (
	// requestTimeout bounds one request to the API server. A server that has been
	// halted does not answer; the request is tried again.
	requestTimeout = 10 * time.Second
	// retryFirst and retryLast are the waits between tries: short, so that a pod's
	// state is known soon after the API server is back.
	retryFirst = 100 * time.Millisecond
	retryLast  = 2 * time.Second
)

// retry calls try until it succeeds or the context ends, with growing waits. trouble gets
// the first error of a row; nil drops it.
func retry(ctx context.Context, trouble func(error), try func(context.Context) error) error {
	for wait := retryFirst; ; wait = min(2*wait, retryLast) {
		attempt, cancel := context.WithTimeout(ctx, requestTimeout)
		err := try(attempt)
		cancel()
		if err == nil || ctx.Err() != nil {
			return err
		}
		if trouble != nil {
			trouble(err)
			trouble = nil
		}
		timer := time.NewTimer(wait)
		select {
		case <-ctx.Done():
			timer.Stop()
			return err
		case <-timer.C:
		}
	}
}

// report is what the API server is to know of a pod.
type report struct {
	status corev1.PodStatus
	// remove: the pod is done, and its API object is to be deleted.
	remove bool
}

// writer brings a pod's reports to the API server. Only the newest matters: while one
// cannot be delivered, later ones replace it.
type writer struct {
	client  kubernetes.Interface
	pod     *corev1.Pod // for namespace, name and UID
	trouble func(format string, args ...any)

	newest  chan report // of capacity 1
	stop    chan struct{}
	done    chan struct{}
	removed chan struct{} // closed when the API object has been deleted as asked
}

func startWriter(ctx context.Context, client kubernetes.Interface, pod *corev1.Pod,
	trouble func(string, ...any)) *writer {
	w := &writer{
		client: client, pod: pod, trouble: trouble,
		newest: make(chan report, 1), stop: make(chan struct{}), done: make(chan struct{}),
		removed: make(chan struct{}),
	}
	go w.run(ctx)
	return w
}

// set hands over a report. It must be called from one goroutine only, and never blocks.
func (w *writer) set(r report) {
	select {
	case <-w.newest:
	default:
	}
	w.newest <- r
}

// close stops writing. When it returns, no request is under way any more.
func (w *writer) close() {
	close(w.stop)
	<-w.done
}

func (w *writer) run(ctx context.Context) {
	defer close(w.done)
	for {
		var r report
		select {
		case <-ctx.Done():
			return
		case <-w.stop:
			return
		case r = <-w.newest:
		}
		silent := false
		for wait := retryFirst; ; wait = min(2*wait, retryLast) {
			attempt, cancel := context.WithTimeout(ctx, requestTimeout)
			err := w.deliver(attempt, r)
			cancel()
			if err == nil {
				break
			}
			if !silent && ctx.Err() == nil {
				w.trouble("report status: %v", err)
				silent = true
			}
			timer := time.NewTimer(wait)
			select {
			case <-ctx.Done():
				timer.Stop()
				return
			case <-w.stop:
				timer.Stop()
				return
			case r = <-w.newest:
				timer.Stop()
			case <-timer.C:
			}
		}
	}
}

// deliver makes the API server's status what the report says. A pod that does not exist
// any more needs no report.
func (w *writer) deliver(ctx context.Context, r report) error {
	pods := w.client.CoreV1().Pods(w.pod.Namespace)
	current, err := pods.Get(ctx, w.pod.Name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) || err == nil && current.UID != w.pod.UID {
		w.finish(r)
		return nil
	}
	if err != nil {
		return err
	}
	patch, err := statusPatch(current, r.status)
	if err != nil {
		return err
	}
	if patch != nil {
		_, err = pods.Patch(ctx, w.pod.Name, types.StrategicMergePatchType, patch, metav1.PatchOptions{}, "status")
		switch {
		case apierrors.IsInvalid(err):
			// The same again would be rejected again; the next change may pass.
			w.trouble("the API server rejects the status: %v", err)
		case apierrors.IsNotFound(err), apierrors.IsConflict(err):
			// Deleted meanwhile; Conflict comes from the UID of a successor.
		case err != nil:
			return err
		}
	}
	if !r.remove {
		return nil
	}
	err = pods.Delete(ctx, w.pod.Name, metav1.DeleteOptions{
		GracePeriodSeconds: new(int64),
		Preconditions:      metav1.NewUIDPreconditions(string(w.pod.UID)),
	})
	if err != nil && !apierrors.IsNotFound(err) && !apierrors.IsConflict(err) {
		return err
	}
	w.finish(r)
	return nil
}

func (w *writer) finish(r report) {
	if r.remove {
		close(w.removed)
	}
}

// statusPatch returns the patch that turns the pod's status into the reported one, or
// nil when nothing changes. Fields and conditions that are not a kubelet's stay.
func statusPatch(current *corev1.Pod, reported corev1.PodStatus) ([]byte, error) {
	merged := mergeStatus(current.Status, reported)
	before, err := json.Marshal(corev1.Pod{Status: current.Status})
	if err != nil {
		return nil, fmt.Errorf("encode the status: %w", err)
	}
	after, err := json.Marshal(corev1.Pod{Status: merged})
	if err != nil {
		return nil, fmt.Errorf("encode the status: %w", err)
	}
	if string(before) == string(after) {
		return nil, nil
	}
	// The UID in the patch is a precondition.
	after, err = json.Marshal(corev1.Pod{ObjectMeta: metav1.ObjectMeta{UID: current.UID}, Status: merged})
	if err != nil {
		return nil, fmt.Errorf("encode the status: %w", err)
	}
	patch, err := strategicpatch.CreateTwoWayMergePatch(before, after, corev1.Pod{})
	if err != nil {
		return nil, fmt.Errorf("compute the status patch: %w", err)
	}
	return patch, nil
}

func mergeStatus(current, reported corev1.PodStatus) corev1.PodStatus {
	merged := *current.DeepCopy()
	merged.Phase = reported.Phase
	merged.HostIP, merged.HostIPs = reported.HostIP, reported.HostIPs
	merged.PodIP, merged.PodIPs = reported.PodIP, reported.PodIPs
	merged.StartTime = reported.StartTime
	merged.InitContainerStatuses = reported.InitContainerStatuses
	merged.ContainerStatuses = reported.ContainerStatuses
	merged.Conditions = nil
	for _, condition := range reported.Conditions {
		if slices.Contains(kubeletConditions, condition.Type) {
			merged.Conditions = append(merged.Conditions, condition)
		}
	}
	for _, condition := range current.Conditions {
		if !slices.Contains(kubeletConditions, condition.Type) {
			merged.Conditions = append(merged.Conditions, condition)
		}
	}
	return merged
}

// statusDiffers reports whether the API server's status is not the reported one.
func statusDiffers(current *corev1.Pod, reported corev1.PodStatus) bool {
	patch, err := statusPatch(current, reported)
	return err != nil || patch != nil
}
