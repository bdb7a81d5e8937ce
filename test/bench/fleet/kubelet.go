package fleet

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"

	"github.com/quorate/quorate/test/harness"
)

// retry is the pause before a request is sent again that failed.
const retry = 200 * time.Millisecond

// pods is what kubelets run in the pods.
type pods interface {
	// run starts what runs in a pod, end ends it and returns when it has ended.
	run(ctx context.Context, cluster, ordinal int)
	end(ctx context.Context, cluster, ordinal int)
}

// kubelet plays the kubelets of all pods. It writes three statuses of a new pod, as a kubelet does
// (its containers are being created, they run, they are ready), the second half-way to the third,
// and lets a terminating pod go when what ran in it has ended.
type kubelet struct {
	client kubernetes.Interface
	pods   pods
	// down is how long a replaced pod is down, in nanoseconds. For a quarter of that it goes, and for the rest its
	// successor comes up. If it were gone at once, the disruption controller might see its successor first, which has
	// the same name, and would take that for the evicted pod for two minutes.
	down    atomic.Int64
	ledgers map[string]*ledger // By namespace.
	wg      sync.WaitGroup
}

// life is one pod that is run.
type life struct {
	uid    types.UID
	cancel context.CancelFunc
	began  chan struct{} // Closed when its beginning is over, complete or not.
	ending bool
}

// watch follows the pods until ctx ends, and returns when it knows those that there are.
func (k *kubelet) watch(ctx context.Context) error {
	factory := informers.NewSharedInformerFactoryWithOptions(k.client, 0, informers.WithTransform(withoutManagedFields))
	informer := factory.Core().V1().Pods().Informer()
	// One goroutine calls for every change in its order, so that what is told here is what the
	// API server has seen happen.
	if _, err := informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc:    func(o any) { k.sync(ctx, o) },
		UpdateFunc: func(_, o any) { k.sync(ctx, o) },
	}); err != nil {
		return err
	}
	k.wg.Go(func() { informer.Run(ctx.Done()) })
	if !cache.WaitForCacheSync(ctx.Done(), informer.HasSynced) {
		return fmt.Errorf("follow the pods: %w", ctx.Err())
	}
	return nil
}

// wait returns when nothing of it runs any more, after the context of watch has ended.
func (k *kubelet) wait() { k.wg.Wait() }

func withoutManagedFields(o any) (any, error) {
	if m, ok := o.(metav1.Object); ok {
		m.SetManagedFields(nil)
	}
	return o, nil
}

func (k *kubelet) sync(ctx context.Context, o any) {
	pod, ok := o.(*corev1.Pod)
	if !ok {
		return
	}
	l := k.ledgers[pod.Namespace]
	ordinal := ordinalOf(pod.Name)
	if l == nil || ordinal < 0 || ordinal >= len(l.lives) {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	now := l.lives[ordinal]
	switch {
	case pod.DeletionTimestamp == nil && (now == nil || now.uid != pod.UID):
		living, cancel := context.WithCancel(ctx)
		now = &life{uid: pod.UID, cancel: cancel, began: make(chan struct{})}
		l.lives[ordinal] = now
		k.wg.Go(func() {
			defer close(now.began)
			k.begin(living, l.cluster, ordinal, pod)
		})
	case pod.DeletionTimestamp != nil && now != nil && now.uid == pod.UID && !now.ending:
		now.ending = true
		l.removed(ordinal, time.Now())
		k.wg.Go(func() {
			now.cancel()
			<-now.began
			gone := time.Now().Add(time.Duration(k.down.Load()) / 4)
			k.pods.end(ctx, l.cluster, ordinal)
			pause(ctx, time.Until(gone))
			k.remove(ctx, pod)
		})
	case pod.DeletionTimestamp == nil && ready(pod):
		l.ready(ordinal, time.Now())
	}
}

// begin brings a new pod up.
func (k *kubelet) begin(ctx context.Context, cluster, ordinal int, pod *corev1.Pod) {
	created := metav1.Now()
	down := time.Duration(k.down.Load())
	half := (down - down/4) / 2
	k.report(ctx, pod, podStatus(pod, created, creating))
	pause(ctx, half)
	if ctx.Err() != nil {
		return
	}
	k.pods.run(ctx, cluster, ordinal)
	k.report(ctx, pod, podStatus(pod, created, running))
	pause(ctx, half)
	k.report(ctx, pod, podStatus(pod, created, serving))
}

// report writes a pod's status, until it is written or the pod ends.
func (k *kubelet) report(ctx context.Context, pod *corev1.Pod, status corev1.PodStatus) {
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{"uid": pod.UID}, "status": status})
	if err != nil {
		panic(err) // Strings and times always encode.
	}
	for ctx.Err() == nil {
		_, err := k.client.CoreV1().Pods(pod.Namespace).Patch(ctx, pod.Name, types.MergePatchType, patch,
			metav1.PatchOptions{}, "status")
		if err == nil || apierrors.IsNotFound(err) || apierrors.IsConflict(err) || apierrors.IsInvalid(err) {
			return // It is written, or the pod is another by now.
		}
		pause(ctx, retry)
	}
}

// remove lets a terminating pod go.
func (k *kubelet) remove(ctx context.Context, pod *corev1.Pod) {
	for ctx.Err() == nil {
		err := k.client.CoreV1().Pods(pod.Namespace).Delete(ctx, pod.Name, metav1.DeleteOptions{
			GracePeriodSeconds: new(int64), Preconditions: metav1.NewUIDPreconditions(string(pod.UID)),
		})
		if err == nil || apierrors.IsNotFound(err) || apierrors.IsConflict(err) {
			return
		}
		pause(ctx, retry)
	}
}

// stage is how far a pod has come.
type stage int

const (
	creating stage = iota
	running
	serving
)

// podStatus is what a kubelet says of a pod at a stage of its start.
func podStatus(pod *corev1.Pod, created metav1.Time, s stage) corev1.PodStatus {
	status := corev1.PodStatus{Phase: corev1.PodPending, StartTime: &created}
	if s != creating {
		status.Phase = corev1.PodRunning
	}
	changed := metav1.Now()
	condition := func(kind corev1.PodConditionType, holds bool, since metav1.Time) {
		c := corev1.PodCondition{Type: kind, Status: corev1.ConditionFalse, LastTransitionTime: since}
		if holds {
			c.Status = corev1.ConditionTrue
		}
		status.Conditions = append(status.Conditions, c)
	}
	condition(corev1.PodScheduled, true, created)
	condition(corev1.PodInitialized, true, created)
	if s != serving {
		changed = created
	}
	condition(corev1.ContainersReady, s == serving, changed)
	condition(corev1.PodReady, s == serving, changed)
	for _, c := range pod.Spec.Containers {
		one := corev1.ContainerStatus{Name: c.Name, Image: c.Image, Ready: s == serving}
		if s == creating {
			one.State.Waiting = &corev1.ContainerStateWaiting{Reason: "ContainerCreating"}
		} else {
			one.State.Running = &corev1.ContainerStateRunning{StartedAt: created}
			one.Started = new(bool)
			*one.Started = true
		}
		status.ContainerStatuses = append(status.ContainerStatuses, one)
	}
	return status
}

func ready(pod *corev1.Pod) bool {
	return slices.ContainsFunc(pod.Status.Conditions, func(c corev1.PodCondition) bool {
		return c.Type == corev1.PodReady && c.Status == corev1.ConditionTrue
	})
}

// ordinalOf is the number at the end of a pod's name, -1 without one.
func ordinalOf(pod string) int {
	n, err := strconv.Atoi(pod[strings.LastIndexByte(pod, '-')+1:])
	if err != nil {
		return -1
	}
	return n
}

// pause waits for d or until ctx ends.
func pause(ctx context.Context, d time.Duration) { _ = harness.Pass(ctx, d) }

// ledger is what has happened to the pods of one cluster, in the order of the API server.
type ledger struct {
	cluster int

	mu    sync.Mutex
	lives []*life
	up    []bool // Ready, and not terminating.

	// Of the rollout that goes on or was the last: the times are zero until it happens.
	changed, first, done time.Time
	removals             []int
	gone                 []time.Time
	rolled               int
	downs                []time.Duration
	// mostAway is the highest number of pods that were away at once because they were removed.
	away, mostAway int
}

func newLedger(cluster, members int) *ledger {
	return &ledger{cluster: cluster, lives: make([]*life, members), up: make([]bool, members),
		removals: make([]int, members), gone: make([]time.Time, members)}
}

// begin starts the account of a rollout.
func (l *ledger) begin(at time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.changed, l.first, l.done = at, time.Time{}, time.Time{}
	clear(l.removals)
	l.rolled, l.downs, l.mostAway = 0, nil, l.away
}

// removed must be called with the lock held, as must ready.
func (l *ledger) removed(ordinal int, at time.Time) {
	if l.first.IsZero() {
		l.first = at
	}
	l.removals[ordinal]++
	l.gone[ordinal] = at
	l.up[ordinal] = false
	l.away++
	l.mostAway = max(l.mostAway, l.away)
}

func (l *ledger) ready(ordinal int, at time.Time) {
	if l.up[ordinal] {
		return // It says so of every change.
	}
	l.up[ordinal] = true
	if l.gone[ordinal].IsZero() {
		return // It is the first of its name.
	}
	l.downs = append(l.downs, at.Sub(l.gone[ordinal]))
	l.gone[ordinal] = time.Time{}
	l.away--
	if l.rolled++; l.rolled == len(l.lives) {
		l.done = at
	}
}

// settled is true when all pods are Ready.
func (l *ledger) settled() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return !slices.Contains(l.up, false)
}

// complete is true when every pod was replaced and is Ready.
func (l *ledger) complete() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return !l.done.IsZero()
}

// fault says how a rollout broke the rule of one pod at a time, each once.
func (l *ledger) fault() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.mostAway > 1 {
		return fmt.Errorf("%s: %d pods were away at once", namespace(l.cluster), l.mostAway)
	}
	for i, n := range l.removals {
		if n > 1 {
			return fmt.Errorf("%s: pod %d was removed %d times", namespace(l.cluster), i, n)
		}
	}
	return nil
}
