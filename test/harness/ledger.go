package harness

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// Removal is one pod that began to terminate or vanished.
type Removal struct {
	At  time.Time
	Pod string
	UID string
	// Revision is the revision of the pod that was removed.
	Revision string
	// OthersReady is how many other pods were Ready at that moment, OthersAway how
	// many ordinals had no pod or a terminating one.
	OthersReady, OthersAway int

	// asked is when the API server was asked for it, by its own clock and in whole seconds;
	// zero when that is not known.
	asked metav1.Time
	// away are the ordinals in OthersAway.
	away []string
}

// Return is one pod that was Ready, for the first time since it was created.
type Return struct {
	At  time.Time
	Pod string
	UID string
	// Revision is the pod's.
	Revision string
}

// readyStep says that from then on another number of pods was Ready, and not terminating.
type readyStep struct {
	at    time.Time
	ready int
}

// Ledger records what the pods of a cluster did, from a watch of its own, independent
// of Quorate.
type Ledger struct {
	cluster *Cluster
	stop    func()

	mu         sync.Mutex
	pods       map[string]*corev1.Pod // by name, as last seen
	removals   []Removal
	returns    []Return
	readySteps []readyStep
	// initial are the pods that were there at the beginning.
	initial map[types.UID]bool
}

// Watch starts a ledger. All pods must be Ready when it starts. Stop it in the end.
func (c *Cluster) Watch(ctx context.Context) (*Ledger, error) {
	l := newLedger(c)
	pods := c.env.Client.CoreV1().Pods(Namespace)
	ours := func(o *metav1.ListOptions) { o.LabelSelector = labelSelector(c.Spec) }
	stop, err := follow(ctx, c.env.Client, pods.List, pods.Watch, ours, &corev1.Pod{},
		handler[*corev1.Pod]{seen: l.seen, gone: l.gone})
	if err != nil {
		return nil, fmt.Errorf("watch the pods of %s: %w", c.Spec.Name, err)
	}
	l.stop = stop
	return l, nil
}

func newLedger(c *Cluster) *Ledger {
	return &Ledger{
		cluster: c, pods: map[string]*corev1.Pod{}, initial: map[types.UID]bool{},
		readySteps: []readyStep{{at: time.Now(), ready: len(c.Pods())}},
	}
}

func (l *Ledger) seen(p *corev1.Pod, initial bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	old := l.pods[p.Name]
	l.pods[p.Name] = p
	if initial {
		l.initial[p.UID] = true
		return
	}
	if old != nil && old.UID != p.UID && old.DeletionTimestamp == nil {
		// It went and came back while the watch could not be open. Who was away then, nobody knows.
		l.removals = append(l.removals, Removal{At: time.Now(), Pod: old.Name, UID: string(old.UID),
			Revision: Revision(old)})
	}
	if old == nil || old.UID != p.UID {
		l.wasThere(p)
	}
	if p.DeletionTimestamp != nil && (old == nil || old.UID != p.UID || old.DeletionTimestamp == nil) {
		l.removed(p)
	}
	if IsReady(p) && (old == nil || old.UID != p.UID || !IsReady(old)) && !l.returned(p) {
		l.returns = append(l.returns, Return{At: time.Now(), Pod: p.Name, UID: string(p.UID), Revision: Revision(p)})
	}
	l.count()
}

// returned is true for a pod that was Ready before.
func (l *Ledger) returned(p *corev1.Pod) bool {
	return l.initial[p.UID] || slices.ContainsFunc(l.returns, func(r Return) bool { return r.UID == string(p.UID) })
}

func (l *Ledger) gone(p *corev1.Pod) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if old := l.pods[p.Name]; old != nil && old.UID == p.UID {
		if old.DeletionTimestamp == nil {
			l.removed(p) // Removed without a grace period.
		}
		delete(l.pods, p.Name)
	}
	l.count()
}

func (l *Ledger) removed(p *corev1.Pod) {
	r := Removal{At: time.Now(), Pod: p.Name, UID: string(p.UID), Revision: Revision(p)}
	if p.DeletionTimestamp != nil && p.DeletionGracePeriodSeconds != nil {
		r.asked = metav1.NewTime(p.DeletionTimestamp.Add(-time.Duration(*p.DeletionGracePeriodSeconds) * time.Second))
	}
	for _, name := range l.cluster.Pods() {
		other := l.pods[name]
		switch {
		case name == p.Name:
		case other == nil || other.DeletionTimestamp != nil:
			r.OthersAway++
			r.away = append(r.away, name)
		case IsReady(other):
			r.OthersReady++
		}
	}
	l.removals = append(l.removals, r)
	l.cluster.env.Timeline.Note("api", "%s terminating (%d others Ready, %d away)", p.Name, r.OthersReady, r.OthersAway)
}

// wasThere corrects the removals for a pod that is seen for the first time although it was
// created before them. A watch that comes back after the API server was gone brings what
// changed meanwhile in the order of the names.
func (l *Ledger) wasThere(p *corev1.Pod) {
	for i := range l.removals {
		r := &l.removals[i]
		if at := slices.Index(r.away, p.Name); at >= 0 && p.CreationTimestamp.Before(&r.asked) {
			r.away = slices.Delete(r.away, at, at+1)
			r.OthersAway--
		}
	}
}

func (l *Ledger) count() {
	ready := 0
	for _, p := range l.pods {
		if p.DeletionTimestamp == nil && IsReady(p) {
			ready++
		}
	}
	if l.readySteps[len(l.readySteps)-1].ready != ready {
		l.readySteps = append(l.readySteps, readyStep{at: time.Now(), ready: ready})
	}
}

// Removals are all removals so far, in order.
func (l *Ledger) Removals() []Removal {
	l.mu.Lock()
	defer l.mu.Unlock()
	return append([]Removal(nil), l.removals...)
}

// Order is the names of the removed pods, in order.
func (l *Ledger) Order() []string {
	var names []string
	for _, r := range l.Removals() {
		names = append(names, r.Pod)
	}
	return names
}

// Returns are all pods that were created since the beginning and have been Ready, in the
// order in which they first were.
func (l *Ledger) Returns() []Return {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Clone(l.returns)
}

// FewestReady is the fewest pods that were Ready, and not terminating, at once.
func (l *Ledger) FewestReady() int { return l.FewestReadySince(time.Time{}) }

// FewestReadySince is the same since then.
func (l *Ledger) FewestReadySince(since time.Time) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	fewest := len(l.cluster.Pods())
	for i, step := range l.readySteps {
		// A step lasts until the next one.
		if over := i+1 < len(l.readySteps) && l.readySteps[i+1].at.Before(since); !over {
			fewest = min(fewest, step.ready)
		}
	}
	return fewest
}

// Pod returns the pod as last seen, nil when it is missing.
func (l *Ledger) Pod(name string) *corev1.Pod {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.pods[name].DeepCopy()
}

// Stop ends the watch.
func (l *Ledger) Stop() { l.stop() }

// Finish ends the watch, and takes in what it has missed. After an API server was gone, a watch may take half a
// minute to come back.
func (l *Ledger) Finish(ctx context.Context) error {
	l.stop()
	pods, err := l.cluster.ListPods(ctx)
	if err != nil {
		return fmt.Errorf("what the pods of %s are in the end: %w", l.cluster.Spec.Name, err)
	}
	for i := range pods {
		l.seen(&pods[i], false)
	}
	return nil
}
