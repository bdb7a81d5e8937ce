package workload

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
)

// nodesReading is how the reading of nodes goes. It is the one thing that may be forbidden for good, so that is told
// once, and everything goes on without. That they cannot be read for another reason keeps no cure.
type nodesReading struct {
	mu sync.Mutex
	// until is when they are asked for again after they were forbidden.
	until  time.Time
	faults Faults
	// told is true once it has been told that they are forbidden.
	told bool
}

// nodesWanted is false while there is no use in asking for nodes.
func (v *View) nodesWanted() bool {
	v.reading.mu.Lock()
	defer v.reading.mu.Unlock()
	return v.cfg.Nodes != nil && !time.Now().Before(v.reading.until)
}

// ReadNodes adds to the observed pods what their nodes say, live, and brings what the watches tell of them up to date.
func (v *View) ReadNodes(ctx context.Context, o *Observation) {
	if !v.nodesWanted() || !o.Set.OnDelete {
		return
	}
	err := o.ReadNodes(ctx, mirroring{v.cfg.Nodes, v.watches.nodes}, v.cfg.DrainTaints)
	if v.nodesForbidden(err) {
		return
	}
	v.reading.mu.Lock()
	defer v.reading.mu.Unlock()
	switch v.reading.told = false; {
	case err != nil && !errors.Is(ctx.Err(), context.Canceled):
		v.reading.faults.Fails(err)
	case err == nil:
		v.reading.faults.Works()
	}
}

// nodesForbidden returns true, and tells it once, if that is why the nodes cannot be read or watched.
func (v *View) nodesForbidden(err error) bool {
	if !Denied(err) {
		return false
	}
	v.reading.mu.Lock()
	defer v.reading.mu.Unlock()
	v.reading.until = time.Now().Add(v.cfg.ForbiddenFor)
	if !v.reading.told {
		v.reading.told = true
		v.reading.faults.Fails(err)
	}
	return true
}

// Denied is true where a permission is missing. That does not go away by itself.
func Denied(err error) bool { return apierrors.IsForbidden(err) || apierrors.IsUnauthorized(err) }

// mirroring reads nodes, and tells the mirrors of those that are watched. Otherwise a cordon of which no watch tells
// would seem to begin at every live reading, and to end with every look that goes by the mirrors.
type mirroring struct {
	Nodes
	watched map[string]nodeWatch
}

func (m mirroring) Get(ctx context.Context, name string, opts metav1.GetOptions) (*corev1.Node, error) {
	mirror := m.watched[name].node
	if mirror == nil {
		return m.Nodes.Get(ctx, name, opts)
	}
	began := mirror.Begin()
	node, err := m.Nodes.Get(ctx, name, opts)
	switch {
	case err == nil:
		mirror.Read(began, node.ResourceVersion, node)
	case ctx.Err() == nil: // It is gone, or nobody knows what it says.
		mirror.Forget()
	}
	return node, err
}

// nodeWatch is a watch on a node. It is over once it was ended, as it is where watching is not allowed.
type nodeWatch struct {
	over    <-chan struct{}
	unwatch func()
	node    *Mirror[*corev1.Node]
}

func (w nodeWatch) open() bool {
	select {
	case <-w.over:
		return false
	default:
		return w.unwatch != nil
	}
}

// followNodes keeps a watch on each of these nodes.
func (v *View) followNodes(names []string) {
	nodes := v.watches.nodes
	for name, on := range nodes {
		if !slices.Contains(names, name) {
			on.unwatch()
			delete(nodes, name)
		}
	}
	for _, name := range names {
		if nodes[name].open() || !v.nodesWanted() {
			continue
		}
		node := &Mirror[*corev1.Node]{Single: true}
		node.Remember(true)
		over, unwatch := v.watches.begin(func(ctx context.Context, unwatch func()) {
			changed, failed, ended := v.calls(WatchOnNodes)
			defer ended()
			watchNode(ctx, v.cfg.Nodes, name, node, changed, func(err error) {
				if !v.nodesForbidden(err) {
					failed(err)
					return
				}
				unwatch()
			})
		})
		nodes[name] = nodeWatch{over, unwatch, node}
	}
}

// addMirroredNodes adds to the pods what the watches tell of their nodes. It returns false if not all are watched.
func (v *View) addMirroredNodes(o *Observation) bool {
	nodes := map[string]*corev1.Node{}
	for _, name := range o.Nodes() {
		on, followed := v.watches.nodes[name]
		if !followed {
			return false
		}
		now, known := on.node.Now()
		if !known {
			return false
		}
		nodes[name] = now[name]
	}
	o.AddNodes(v.cfg.DrainTaints, func(name string) (*corev1.Node, bool) { return nodes[name], true })
	return true
}

// watchNode calls changed whenever a node has been cordoned, tainted, or the reverse, until ctx ends. A node's
// status changes all the time, and nobody is called for that. The mirror is kept up to date.
func watchNode(ctx context.Context, nodes Nodes, name string, into *Mirror[*corev1.Node], changed func(),
	failed func(error),
) {
	var last *corev1.Node
	Watch{
		Open: nodes.Watch, Failed: failed, Into: into,
		Options: named(name),
		Told: func(e watch.Event) {
			node, ok := e.Object.(*corev1.Node)
			if !ok {
				return
			}
			alike := func(x, y corev1.Taint) bool { return x.MatchTaint(&y) }
			same := last != nil && e.Type != watch.Deleted && last.Spec.Unschedulable == node.Spec.Unschedulable &&
				slices.EqualFunc(last.Spec.Taints, node.Spec.Taints, alike)
			if last = node; e.Type == watch.Deleted {
				last = nil // One of the same name is another node.
			}
			if !same {
				changed()
			}
		},
	}.Keep(ctx)
}
