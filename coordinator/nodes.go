package coordinator

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/quorate/quorate/internal/report"
	"github.com/quorate/quorate/internal/workload"
	"github.com/quorate/quorate/pkg/rollout"
)

// nodesRole grants what is needed to read nodes.
const nodesRole = "deploy/components/nodes"

// nodes reads the nodes of the pods, where the host wants that. It is the one thing that may be forbidden for
// good, so it says that once, and goes on without. That they cannot be read for another reason keeps no cure.
type nodes struct {
	c  *Coordinator
	mu sync.Mutex
	// until is when they are asked for again after they were forbidden.
	until  time.Time
	faults faults
	// denied is true once it has been said that they are forbidden.
	denied bool
}

// wanted is false while there is no use in asking.
func (n *nodes) wanted() bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.c.cfg.Nodes != nil && !time.Now().Before(n.until)
}

// read adds to the pods what their nodes say, and brings the watches' mirrors of them up to date.
func (n *nodes) read(ctx context.Context, o *workload.Observation, w *watches) {
	if !n.wanted() || !o.Set.OnDelete {
		return
	}
	err := o.ReadNodes(ctx, mirroring{n.c.cfg.Nodes, w.nodes}, n.c.cfg.DrainTaints)
	if n.forbidden(err) {
		return
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	switch n.denied = false; {
	case err != nil && !errors.Is(ctx.Err(), context.Canceled):
		n.faults.note(n.c.log, "nodes cannot be read, so for a while none but the members that do not serve are "+
			"removed", err)
	case err == nil && n.faults.row > 0:
		n.faults.clear()
	}
}

// forbidden returns true, and says so once, if that is why the nodes cannot be read or watched.
func (n *nodes) forbidden(err error) bool {
	if !apierrors.IsForbidden(err) && !apierrors.IsUnauthorized(err) {
		return false
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	n.until = time.Now().Add(forbiddenFor)
	if !n.denied {
		n.denied = true
		n.faults.note(n.c.log, "nodes cannot be read, so a drain shows only when it evicts", explainFor(err, nodesRole))
	}
	return true
}

// mirroring reads nodes, and tells the mirrors of those that are watched. Otherwise a cordon of which no watch tells
// would seem to begin at every live reading, and to end with every look that goes by the mirrors.
type mirroring struct {
	workload.Nodes
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

// nodeWatch is a watch on a node. It is over once unwatch was called, as it is where watching is not allowed.
type nodeWatch struct {
	over    <-chan struct{}
	unwatch context.CancelFunc
	node    *workload.Mirror[*corev1.Node]
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
func (w *watches) followNodes(ctx context.Context, names []string) {
	for name, on := range w.nodes {
		if !slices.Contains(names, name) {
			on.unwatch()
			delete(w.nodes, name)
		}
	}
	for _, name := range names {
		if w.nodes[name].open() || !w.c.nodes.wanted() {
			continue
		}
		watching, unwatch := context.WithCancel(ctx)
		node := &workload.Mirror[*corev1.Node]{Single: true}
		node.Remember(true)
		w.nodes[name] = nodeWatch{watching.Done(), unwatch, node}
		w.running.Go(func() {
			changed, failed, ended := w.calls(report.AtWatchNodes, "the nodes")
			defer ended()
			workload.WatchNode(watching, w.c.cfg.Nodes, name, node, changed, func(err error) {
				if !w.c.nodes.forbidden(err) {
					failed(err)
					return
				}
				unwatch()
			})
		})
	}
}

// mirrored is what the watches tell of the workload. It returns false if not all of it is being watched.
func (w *watches) mirrored() (workload.Observation, bool) {
	o, watched := w.c.workload.Mirrored()
	if !watched || !o.Set.OnDelete || !w.c.nodes.wanted() {
		return o, watched
	}
	nodes := map[string]*corev1.Node{}
	for _, name := range o.Nodes() {
		on, followed := w.nodes[name]
		if !followed {
			return o, false
		}
		now, known := on.node.Now()
		if !known {
			return o, false
		}
		nodes[name] = now[name]
	}
	o.AddNodes(w.c.cfg.DrainTaints, func(name string) (*corev1.Node, bool) { return nodes[name], true })
	return o, true
}

// follow watches the pods and their nodes between rollouts, which only the lock's owner does. Where the StatefulSet
// controller rolls the pods, we do nothing beside it, and there is nothing to watch for.
func (l *loop) follow(ctx context.Context) {
	if !l.c.owned() {
		return
	}
	l.observer.watches.followLease(ctx)
	if !l.seen.Set.OnDelete {
		l.observer.watches.unfollow()
		return
	}
	l.observer.watches.follow(ctx, l.seen.Selector)
	l.observer.watches.followNodes(ctx, l.seen.Nodes())
}

// noteLeavers asks for a look at etcd when somebody new is about to go: it may be the leader.
func (l *loop) noteLeavers(pods []rollout.Pod) {
	var leavers []string
	for i := range pods {
		if p := &pods[i]; p.Owned && (p.Leaving != "" || p.Cordoned) {
			leavers = append(leavers, p.UID+p.Leaving)
		}
	}
	if l.leavers = strings.Join(leavers, " "); l.leavers == "" || l.leavers == l.judged || !l.c.owned() {
		return
	}
	wake(l.c.looks)
}
