package workload

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"reflect"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/watch"
)

// Config says what a View shows, and who is told of it.
type Config struct {
	// StatefulSet is the name of the StatefulSet, of its PodDisruptionBudget, and in that of its Lease.
	StatefulSet string
	Names       Names

	StatefulSets StatefulSets
	Pods         Pods
	Leases       Leases
	// Nodes are not read if this is nil, and no PodDisruptionBudget is watched if Budgets is nil.
	Nodes   Nodes
	Budgets Budgets
	// DrainTaints are the keys of the taints that announce a drain, beside those that are known.
	DrainTaints []string
	// ForbiddenFor is for how long nodes are not asked for again after that was forbidden.
	ForbiddenFor time.Duration

	// Changed is called when a watch tells something new, and Asked when that is an operator's request on the Lease.
	// The watches call them from goroutines of their own.
	Changed, Asked func()
	// Faults returns who is told of the faults of one source. Only one goroutine at a time tells it anything.
	Faults func(Source) Faults
}

// Faults are told that something cannot be read or watched, whenever that has failed, and that it can be again.
// That it works may be told when it has never failed.
type Faults interface {
	Fails(err error)
	Works()
}

// Source is what a View learns from.
type Source int

// The watches, and what is read live. Whoever reads anything else live gets its error.
const (
	WatchOnStatefulSet Source = iota
	WatchOnPods
	WatchOnNodes
	WatchOnBudget
	WatchOnLease
	ReadingOfNodes
)

// View is what Kubernetes says of one StatefulSet and of all that belongs to it: the pods, their nodes, the
// PodDisruptionBudget and the Lease. It reads them live, and while it is open it watches them. It removes pods as well.
//
// One goroutine uses it. Only nodes may be read, and what was told be confirmed, at the same time.
type View struct {
	cfg Config

	// These are what the watches tell. The selector chooses the pods, and the budget has the StatefulSet's name.
	set      Mirror[*appsv1.StatefulSet]
	pods     Mirror[*corev1.Pod]
	selector string
	budget   Mirror[*policyv1.PodDisruptionBudget]
	lease    Mirror[*coordinationv1.Lease]

	watches watches
	reading nodesReading
}

// watches are those of a View that is open.
type watches struct {
	// begin keeps a watch until that is ended or the View is closed. It returns what is closed then, and how to end it.
	// It is nil while the View is not open.
	begin func(keep func(ctx context.Context, end func())) (over <-chan struct{}, end func())
	// watched is the selector of the pods.
	watched string
	// unwatchPods, unwatchLease and unwatchBudget end these watches, and are nil where there is none.
	unwatchPods, unwatchLease, unwatchBudget func()
	// nodes are the watches on nodes, by the nodes' names.
	nodes map[string]nodeWatch
	// blind is true while the API server refuses the watch on the Lease. held is true while the operator's controls on
	// it hold everything, as far as it has told.
	blind, held atomic.Bool
}

// New returns a View of the named StatefulSet.
func New(cfg Config) *View {
	v := &View{cfg: cfg}
	v.set.Single, v.lease.Single, v.budget.Single = true, true, true
	if cfg.Faults != nil {
		v.reading.faults = cfg.Faults(ReadingOfNodes)
	}
	return v
}

// Open watches the StatefulSet until ctx ends or the returned function is called. Until then, Follow and its like watch
// the rest.
func (v *View) Open(ctx context.Context) (end func()) {
	ctx, cancel := context.WithCancel(ctx)
	var running sync.WaitGroup
	v.watches = watches{nodes: map[string]nodeWatch{}, begin: func(keep func(context.Context, func())) (
		<-chan struct{}, func(),
	) {
		watching, end := context.WithCancel(ctx)
		running.Go(func() { keep(watching, end) })
		return watching.Done(), end
	}}
	v.remember(true)
	v.watches.begin(func(ctx context.Context, _ func()) {
		changed, failed, ended := v.calls(WatchOnStatefulSet)
		defer ended()
		v.watchSet(ctx, changed, failed)
	})
	return func() {
		v.remember(false)
		cancel()
		running.Wait()
		v.watches = watches{}
	}
}

// remember has what the watches tell kept, or forgotten.
func (v *View) remember(yes bool) {
	v.set.Remember(yes)
	v.pods.Remember(yes)
	v.budget.Remember(yes)
	v.lease.Remember(yes)
}

// Follow watches the Lease, and the pods and nodes that were observed.
func (v *View) Follow(o Observation) {
	if v.watches.begin == nil {
		return
	}
	v.FollowLease()
	v.followPods(o.Selector)
	v.followNodes(o.Nodes())
}

// Unfollow ends the watches on the pods and their nodes.
func (v *View) Unfollow() {
	if v.watches.unwatchPods != nil {
		v.watches.unwatchPods()
		v.watches.unwatchPods = nil
	}
	v.followNodes(nil)
}

// followPods keeps one watch on the pods.
func (v *View) followPods(selector string) {
	if v.watches.watched == selector && v.watches.unwatchPods != nil {
		return
	}
	v.Unfollow()
	v.watches.watched = selector
	_, v.watches.unwatchPods = v.watches.begin(func(ctx context.Context, _ func()) {
		changed, failed, ended := v.calls(WatchOnPods)
		defer ended()
		v.watchPods(ctx, selector, changed, failed)
	})
}

// calls returns the functions that a watch calls from its own goroutine: for news, whenever the API
// server refuses the watch, and at its end. A refusal is no reason to give up, since the watch is
// tried again. But without the watch of the StatefulSet no rollout is noticed, so the refusal is
// reported. An API server that does not answer at all is reported by other requests.
func (v *View) calls(source Source) (changed func(), failed func(error), ended func()) {
	faults := v.cfg.Faults(source)
	changed = func() {
		faults.Works() // A watch begins with the present state.
		v.cfg.Changed()
	}
	failed = func(err error) {
		var answer apierrors.APIStatus
		if errors.As(err, &answer) {
			faults.Fails(err)
		}
	}
	return changed, failed, faults.Works
}

// watchSet calls changed whenever something may have changed about the StatefulSet that an observation shows, until ctx
// ends. How many of its pods are ready does not count, because the pods tell that. It opens one watch on that single
// object, and calls failed whenever it cannot.
func (v *View) watchSet(ctx context.Context, changed func(), failed func(error)) {
	Watch{
		Open: v.cfg.StatefulSets.Watch, Into: &v.set, Opened: changed, Failed: failed,
		Told: news(changed, func(s *appsv1.StatefulSet) any {
			o := v.observation(s, "", nil)
			return [...]any{o.Set, o.CurrentRevision, s.Spec.Selector}
		}),
		Options: named(v.cfg.StatefulSet),
	}.Keep(ctx)
}

// watchPods calls changed whenever a pod that matches the selector may have changed, until ctx ends. It
// calls failed whenever the watch cannot be opened. It begins where the last live reading ended.
func (v *View) watchPods(ctx context.Context, selector string, changed func(), failed func(error)) {
	Watch{
		Open: v.cfg.Pods.Watch, Into: &v.pods, Opened: changed, Told: func(watch.Event) { changed() }, Failed: failed,
		Options: metav1.ListOptions{LabelSelector: selector, ResourceVersion: v.pods.position()},
	}.Keep(ctx)
}

// named chooses one object.
func named(name string) metav1.ListOptions {
	return metav1.ListOptions{FieldSelector: fields.OneTermEqualSelector("metadata.name", name).String()}
}

// news calls changed for an event that tells something that counts and that the one before has not told. Each look asks
// every member of etcd, and these are busy when a pod goes or comes back, which is when most events come.
func news[T metav1.Object](changed func(), counts func(T) any) func(watch.Event) {
	var last any
	return func(e watch.Event) {
		var now any
		if o, ok := e.Object.(T); ok && e.Type != watch.Deleted {
			now = counts(o)
		}
		if now == nil || !reflect.DeepEqual(now, last) {
			last = now
			changed()
		}
	}
}

// Cached is the cached view: what the watches tell at one moment. It may lag behind, so nothing is done on it alone.
// Nobody changes it any more.
type Cached struct {
	// Seen is the workload, and Watched is false if not all of that is being watched.
	Seen    Observation
	Watched bool
	// Lease is as the watch tells it, and LeaseWatched is false if it is not being watched.
	Lease        *coordinationv1.Lease
	LeaseWatched bool
}

// Complete is true if everything that a look reads in Kubernetes is being watched.
func (c Cached) Complete() bool { return c.Watched && c.LeaseWatched }

// Cached returns what the watches tell now.
func (v *View) Cached() Cached {
	var c Cached
	c.Lease, c.LeaseWatched = v.mirroredLease() // The record comes first, as when it is read live.
	if c.Seen, c.Watched = v.mirrored(); c.Watched && c.Seen.Set.OnDelete && v.nodesWanted() {
		c.Watched = v.addMirroredNodes(&c.Seen)
	}
	return c
}

// mirrored returns the same as Observe, as the watches tell it.
func (v *View) mirrored() (Observation, bool) {
	sets, known := v.set.Now()
	pods, all := v.pods.Now()
	set := sets[v.cfg.StatefulSet]
	if !known || !all || set == nil {
		return Observation{}, false
	}
	selector, err := metav1.LabelSelectorAsSelector(set.Spec.Selector)
	if err != nil || selector.String() != v.selector {
		return Observation{}, false
	}
	items := make([]corev1.Pod, 0, len(pods))
	for _, name := range slices.Sorted(maps.Keys(pods)) {
		items = append(items, *pods[name])
	}
	return v.observation(set, v.selector, items), true
}

// Confirmation is a live reading that is to confirm what the watches have told.
type Confirmation struct {
	done chan struct{}
	seen Observation
	err  error
}

// Confirm begins to observe once more, live, what was told. It reads the StatefulSet and its pods at the same time. If
// both are the same as they were told, no pod has changed from then to now, because a resourceVersion never comes back.
func (v *View) Confirm(ctx context.Context, told Observation) *Confirmation {
	c := &Confirmation{done: make(chan struct{})}
	go func() {
		defer close(c.done)
		var reading sync.WaitGroup
		var set *appsv1.StatefulSet
		var serr error
		reading.Go(func() { set, serr = v.get(ctx) })
		pods, err := v.list(ctx, told.Selector)
		reading.Wait()
		if c.err = cmp.Or(serr, err); c.err == nil {
			c.seen = v.observation(set, told.Selector, pods)
		}
	}()
	return c
}

// Wait returns what was read.
func (c *Confirmation) Wait() (Observation, error) {
	<-c.done
	return c.seen, c.err
}
