package fleet

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	appslisters "k8s.io/client-go/listers/apps/v1"
	coordinationlisters "k8s.io/client-go/listers/coordination/v1"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/workqueue"
)

const (
	// centralQPS and centralBurst limit the central controller's requests as etcd-druid does by
	// default (its clientConnection; client-go's own defaults are 5 and 10).
	centralQPS   = 100
	centralBurst = 150
	// centralRequeue is when a cluster in a rollout is looked at again although nothing was
	// reported of it; it costs no request.
	centralRequeue = 10 * time.Second
)

// central is the OnDelete controller of DEP-07, as far as its costs go: one process that follows all
// StatefulSets, pods and member leases through shared informers and deletes the pods. It follows the
// procedure of "Pod Update Procedure", given its best:
//
//   - "Delete the selected pod and requeue", "requeue and wait": no worker is held while a pod
//     starts. The document says nothing of a trigger; the pods' own events are one here, so that
//     nothing is waited for longer than it takes.
//   - Roles come from the member leases ("holderIdentity"), through the cache.
//   - The document reads the pods; that a cache may be older than the controller's own last
//     deletion is made up for by waiting until it shows that one.
//   - Its caches drop managedFields, which nobody here reads.
//
// It is a model of costs and nothing more: it asks no member anything, and writes no events and no
// lease of its own for a leader election.
type central struct {
	client kubernetes.Interface
	queue  workqueue.TypedRateLimitingInterface[types.NamespacedName]

	factory informers.SharedInformerFactory
	sets    appslisters.StatefulSetLister
	pods    corelisters.PodLister
	leases  coordinationlisters.LeaseLister
	caches  []cache.InformerSynced

	mu sync.Mutex
	// deleted is the pod that was deleted last in a StatefulSet, until the cache shows it.
	deleted map[types.NamespacedName]types.UID
}

func newCentral(config *rest.Config, client *http.Client) (*central, error) {
	limited := rest.CopyConfig(config)
	limited.QPS, limited.Burst = centralQPS, centralBurst
	set, err := kubernetes.NewForConfigAndClient(limited, client)
	if err != nil {
		return nil, err
	}
	return centralFor(set), nil
}

func centralFor(client kubernetes.Interface) *central {
	factory := informers.NewSharedInformerFactoryWithOptions(client, 0, informers.WithTransform(withoutManagedFields))
	sets, pods, leases := factory.Apps().V1().StatefulSets(), factory.Core().V1().Pods(),
		factory.Coordination().V1().Leases()
	c := &central{
		client: client, factory: factory, sets: sets.Lister(), pods: pods.Lister(), leases: leases.Lister(),
		queue: workqueue.NewTypedRateLimitingQueue(workqueue.DefaultTypedControllerRateLimiter[types.NamespacedName]()),
		caches: []cache.InformerSynced{
			sets.Informer().HasSynced, pods.Informer().HasSynced, leases.Informer().HasSynced,
		},
		deleted: map[types.NamespacedName]types.UID{},
	}
	follow := func(informer cache.SharedIndexInformer) {
		handler := cache.ResourceEventHandlerFuncs{
			AddFunc: c.enqueue, UpdateFunc: func(_, o any) { c.enqueue(o) }, DeleteFunc: c.enqueue,
		}
		if _, err := informer.AddEventHandler(handler); err != nil {
			panic(err) // Only a stopped informer refuses.
		}
	}
	follow(sets.Informer())
	follow(pods.Informer())
	return c
}

// enqueue queues the StatefulSet that an object is or belongs to.
func (c *central) enqueue(o any) {
	if gone, ok := o.(cache.DeletedFinalStateUnknown); ok {
		o = gone.Obj
	}
	switch o := o.(type) {
	case *appsv1.StatefulSet:
		c.queue.Add(types.NamespacedName{Namespace: o.Namespace, Name: o.Name})
	case *corev1.Pod:
		if owner := metav1.GetControllerOf(o); owner != nil && owner.Kind == "StatefulSet" {
			c.queue.Add(types.NamespacedName{Namespace: o.Namespace, Name: owner.Name})
		}
	}
}

// synced returns when the caches are filled.
func (c *central) synced(ctx context.Context) error {
	if !cache.WaitForCacheSync(ctx.Done(), c.caches...) {
		return fmt.Errorf("fill the caches: %w", ctx.Err())
	}
	return nil
}

// run works until ctx ends.
func (c *central) run(ctx context.Context, workers int) {
	c.factory.Start(ctx.Done())
	defer c.factory.Shutdown()
	defer context.AfterFunc(ctx, c.queue.ShutDown)()
	if c.synced(ctx) != nil {
		return
	}
	var working sync.WaitGroup
	for range workers {
		working.Go(func() {
			for c.next(ctx) {
			}
		})
	}
	working.Wait()
}

// next works off one entry of the queue; it returns false when that is over.
func (c *central) next(ctx context.Context) bool {
	key, over := c.queue.Get()
	if over {
		return false
	}
	defer c.queue.Done(key)
	again, err := c.reconcile(ctx, key)
	switch {
	case err != nil:
		c.queue.AddRateLimited(key)
		return true
	case again:
		c.queue.AddAfter(key, centralRequeue)
	}
	c.queue.Forget(key)
	return true
}

// reconcile deletes at most one pod. It returns true while the rollout goes on.
func (c *central) reconcile(ctx context.Context, key types.NamespacedName) (bool, error) {
	set, err := c.sets.StatefulSets(key.Namespace).Get(key.Name)
	if apierrors.IsNotFound(err) || err == nil &&
		set.Spec.UpdateStrategy.Type != appsv1.OnDeleteStatefulSetStrategyType {
		return false, nil
	}
	if err != nil || set.Status.ObservedGeneration < set.Generation {
		return true, err // Its status will follow.
	}
	selector, err := metav1.LabelSelectorAsSelector(set.Spec.Selector)
	if err != nil {
		return false, err
	}
	pods, err := c.pods.Pods(key.Namespace).List(selector)
	if err != nil || !c.current(key, pods) {
		return true, err
	}

	slices.SortFunc(pods, func(a, b *corev1.Pod) int { return strings.Compare(a.Name, b.Name) })
	updated := func(p *corev1.Pod) bool {
		return p.Labels[appsv1.StatefulSetRevisionLabel] == set.Status.UpdateRevision
	}
	// Step 1. A pod that is missing will be made of the new revision.
	outdated := slices.DeleteFunc(slices.Clone(pods), func(p *corev1.Pod) bool {
		return updated(p) || p.DeletionTimestamp != nil
	})
	if len(outdated) == 0 {
		return false, nil
	}
	// Step 2.
	if i := slices.IndexFunc(outdated, func(p *corev1.Pod) bool { return !participates(p) }); i >= 0 {
		broken := slices.DeleteFunc(slices.Clone(outdated), participates)
		slices.SortStableFunc(broken, func(a, b *corev1.Pod) int { return liveliness(a) - liveliness(b) })
		return true, c.delete(ctx, key, broken[0])
	}
	// Step 3. A pod that is going or gone is not back yet either.
	waits := func(p *corev1.Pod) bool { return p.DeletionTimestamp != nil || updated(p) && !participates(p) }
	if set.Spec.Replicas == nil || len(pods) < int(*set.Spec.Replicas) || slices.ContainsFunc(pods, waits) {
		return true, nil
	}
	// Step 4.
	slices.SortStableFunc(outdated, func(a, b *corev1.Pod) int { return c.leads(a) - c.leads(b) })
	return true, c.delete(ctx, key, outdated[0])
}

// current is false while the cache does not show the last deletion.
func (c *central) current(key types.NamespacedName, pods []*corev1.Pod) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	uid, ok := c.deleted[key]
	if ok && slices.ContainsFunc(pods, func(p *corev1.Pod) bool { return p.UID == uid && p.DeletionTimestamp == nil }) {
		return false
	}
	delete(c.deleted, key)
	return true
}

func (c *central) delete(ctx context.Context, key types.NamespacedName, pod *corev1.Pod) error {
	err := c.client.CoreV1().Pods(pod.Namespace).Delete(ctx, pod.Name,
		metav1.DeleteOptions{Preconditions: metav1.NewUIDPreconditions(string(pod.UID))})
	var answer apierrors.APIStatus
	if err == nil || !errors.As(err, &answer) {
		// It goes, or may go.
		c.mu.Lock()
		defer c.mu.Unlock()
		c.deleted[key] = pod.UID
	}
	return err
}

// leads is 1 for the leader's pod, by its member's lease.
func (c *central) leads(pod *corev1.Pod) int {
	lease, err := c.leases.Leases(pod.Namespace).Get(pod.Name)
	if err != nil || lease.Spec.HolderIdentity == nil || !strings.HasSuffix(*lease.Spec.HolderIdentity, leaderRole) {
		return 0
	}
	return 1
}

// participates is true for a pod whose etcd container passes its readiness probe.
func participates(p *corev1.Pod) bool {
	return p.DeletionTimestamp == nil && slices.ContainsFunc(p.Status.ContainerStatuses,
		func(s corev1.ContainerStatus) bool {
			return s.Name == etcdContainer && s.Ready
		})
}

// liveliness orders pods that do not participate: dead, starting, alive.
func liveliness(p *corev1.Pod) int {
	for _, s := range p.Status.ContainerStatuses {
		switch {
		case s.Name != etcdContainer:
		case s.State.Running != nil:
			return 2
		case s.State.Terminated != nil:
			return 0
		case s.State.Waiting != nil && s.State.Waiting.Reason != "ContainerCreating" &&
			s.State.Waiting.Reason != "PodInitializing":
			return 0
		}
	}
	return 1
}
