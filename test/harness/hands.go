package harness

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
)

// The ways in which somebody takes a pod.
const (
	ByDelete     = "delete"
	ByCollection = "deletecollection"
	ByEviction   = "eviction"
	// ByNode is what `kubectl drain --disable-eviction` sends: each pod of the node is deleted.
	ByNode = "node"
)

// Ways are all of them.
var Ways = []string{ByDelete, ByEviction, ByCollection, ByNode}

// Take takes a pod, and none of its successors.
func (c *Cluster) Take(ctx context.Context, way string, p *corev1.Pod) error {
	pods := c.env.Client.CoreV1().Pods(Namespace)
	this := metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &p.UID}}
	switch way {
	case ByEviction:
		_, err := c.EvictOnly(ctx, p.Name, p.UID)
		return err
	case ByCollection:
		only := fields.OneTermEqualSelector(metav1.ObjectNameField, p.Name).String()
		return pods.DeleteCollection(ctx, this, metav1.ListOptions{FieldSelector: only})
	case ByNode:
		list, err := c.OnNodeOf(ctx, p)
		errs := []error{err}
		for i := range list {
			errs = append(errs, c.Take(ctx, ByDelete, &list[i]))
		}
		return errors.Join(errs...)
	}
	return pods.Delete(ctx, p.Name, this)
}

// OnNodeOf are the cluster's pods on the node of a pod, which is one of them.
func (c *Cluster) OnNodeOf(ctx context.Context, p *corev1.Pod) ([]corev1.Pod, error) {
	list, err := c.env.Client.CoreV1().Pods(Namespace).List(ctx, metav1.ListOptions{
		FieldSelector: fields.OneTermEqualSelector("spec.nodeName", p.Spec.NodeName).String(),
		LabelSelector: labelSelector(c.Spec)})
	if err != nil {
		return nil, err
	}
	return list.Items, nil
}

// DeniedByGuard reports whether an error is a denial of the quorum guard.
func DeniedByGuard(err error) bool {
	return apierrors.IsForbidden(err) && strings.Contains(err.Error(), guardName)
}

// Hands are people and programs that know nothing of quorum. Whenever a member is away, they try to take the pod of
// another one, in every way in turn. When they have taken one, they wait until all are back, so that whatever is lost
// is lost by one pod too many. Members are away while their containers are not ready or their pods terminate.
type Hands struct {
	stop context.CancelFunc
	over chan struct{}

	mu sync.Mutex
	f  HandsFigures
}

// HandsFigures are what has become of it.
type HandsFigures struct {
	// Denied are the denials of the quorum guard by way, and Spared are those of them where enough other members were
	// there for a quorum: this pod could have gone.
	Denied map[string]int
	Spared int
	// Budget are the evictions that a PodDisruptionBudget refused.
	Budget int
	// Slips are the pods that were taken although quorum rested on them.
	Slips []Slip
	// Errs are other answers.
	Errs []string
}

// Slip is such a pod.
type Slip struct {
	At       time.Time
	Way, Pod string
	// Listed is for how long the Lease had named the pod when the request was sent, as a watch of our own tells. It is
	// zero if the Lease did not name it.
	Listed time.Duration
}

func (s Slip) String() string {
	if s.Listed == 0 {
		return fmt.Sprintf("%s by %s, which the Lease did not name", s.Pod, s.Way)
	}
	return fmt.Sprintf("%s by %s, which the Lease had named for %v", s.Pod, s.Way, s.Listed)
}

// StartHands lets them begin, and end with the context or Stop.
func (c *Cluster) StartHands(ctx context.Context, record *RecordHistory, voters int) *Hands {
	ctx, cancel := context.WithCancel(ctx)
	h := &Hands{stop: cancel, over: make(chan struct{}), f: HandsFigures{Denied: map[string]int{}}}
	go func() {
		defer close(h.over)
		took := false
		for n := 0; ctx.Err() == nil; {
			pods, err := c.ListPods(ctx)
			if err == nil {
				ready := there(pods)
				whole := len(ready) == len(c.Pods())
				took = took && !whole
				if len(ready) > 0 && !whole && !took {
					pod, way := &ready[n/len(Ways)%len(ready)], Ways[n%len(Ways)]
					took = h.try(ctx, c, record, pod, way, voters/2+1, len(ready) > voters/2+1)
					n++
				}
			}
			if Pass(ctx, handsRest) != nil {
				return
			}
		}
	}()
	return h
}

// handsRest is how long they wait between two tries. They are as quick as a coordinator, so that they hit what it
// leaves open.
const handsRest = 10 * time.Millisecond

// there are the pods whose members are not away.
func there(pods []corev1.Pod) []corev1.Pod {
	return slices.DeleteFunc(pods, func(p corev1.Pod) bool {
		return p.DeletionTimestamp != nil || !slices.ContainsFunc(p.Status.ContainerStatuses,
			func(s corev1.ContainerStatus) bool { return s.Name == "etcd" && s.Ready })
	})
}

// try tries once. What was sent is waited for, or nobody would know what has become of it.
func (h *Hands) try(ctx context.Context, c *Cluster, record *RecordHistory, p *corev1.Pod, way string, quorum int,
	spare bool) (took bool) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Minute)
	defer cancel()
	at := time.Now()
	listed := record.Listed(p)
	err := c.Take(ctx, way, p)
	left := 0
	if err == nil {
		var pods []corev1.Pod
		if pods, err = c.ListPods(ctx); err == nil {
			left = len(slices.DeleteFunc(there(pods), func(other corev1.Pod) bool { return other.UID == p.UID }))
		}
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	switch {
	case err == nil && left >= quorum: // Whoever was away when it was decided on is back by now, or one more can go.
		c.env.Timeline.Note("operator", "%s takes %s, which can be spared", way, p.Name)
		return true
	case err == nil:
		s := Slip{At: at, Way: way, Pod: p.Name, Listed: listed}
		c.env.Timeline.Note("operator", "%s", s)
		h.f.Slips = append(h.f.Slips, s)
		return true
	case DeniedByGuard(err):
		h.f.Denied[way]++
		if spare {
			h.f.Spared++
		}
	case apierrors.IsTooManyRequests(err):
		h.f.Budget++
	case !apierrors.IsNotFound(err) && !apierrors.IsConflict(err):
		h.f.Errs = append(h.f.Errs, err.Error())
	}
	return false
}

// Stop ends them, and returns what has become of it.
func (h *Hands) Stop() HandsFigures {
	h.stop()
	<-h.over
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.f
}

// Listed is for how long the record has named a pod as one that quorum rests on, zero if it does not.
func (h *RecordHistory) Listed(p *corev1.Pod) time.Duration {
	h.mu.Lock()
	defer h.mu.Unlock()
	var since time.Time
	for i := len(h.states) - 1; i >= 0 && h.states[i].Needed[p.Name] == string(p.UID); i-- {
		since = h.states[i].At
	}
	if since.IsZero() {
		return 0
	}
	return max(time.Since(since), 1)
}
