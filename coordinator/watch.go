package coordinator

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/quorate/quorate/internal/report"
	"github.com/quorate/quorate/pkg/rollout"
)

// watches are on the StatefulSet, and on its pods and their nodes: of whoever owns the lock always, of a stand-in
// only during a rollout. The one on the PodDisruptionBudget is there only during a rollout.
type watches struct {
	c *Coordinator
	// running are all that have not ended yet.
	running sync.WaitGroup
	// unwatchLease ends the watch on the Lease, and blind is true while the API server refuses it. held is true
	// while the operator's controls on it hold everything, as far as the watch has told.
	unwatchLease context.CancelFunc
	blind, held  atomic.Bool
	// unwatchBudget ends the watch on the PodDisruptionBudget.
	unwatchBudget context.CancelFunc
	// pods begins a watch on those with a label.
	pods func(ctx context.Context, selector string)
	// watched is the selector of the pods, and unwatch ends their watch.
	watched string
	unwatch context.CancelFunc
	// nodes are the watches on nodes, by the nodes' names.
	nodes map[string]nodeWatch
}

func newWatches(c *Coordinator) *watches {
	w := &watches{c: c, nodes: map[string]nodeWatch{}}
	w.pods = w.watchPods
	return w
}

func (w *watches) watchSet(ctx context.Context) {
	w.running.Go(func() {
		changed, failed, ended := w.calls(report.AtWatchSet, "the StatefulSet")
		defer ended()
		w.c.workload.WatchSet(ctx, changed, failed)
	})
}

func (w *watches) watchPods(ctx context.Context, selector string) {
	w.running.Go(func() {
		changed, failed, ended := w.calls(report.AtWatchPods, "the pods")
		defer ended()
		w.c.workload.WatchPods(ctx, selector, changed, failed)
	})
}

// calls returns the functions that a watch calls from its own goroutine: for news, whenever the API
// server refuses the watch, and at its end. A refusal is no reason to give up, since the watch is
// tried again. But without the watch of the StatefulSet no rollout is noticed, so the refusal is
// reported. An API server that does not answer at all is reported by other requests.
func (w *watches) calls(at, what string) (changed func(), failed func(error), ended func()) {
	refused := w.c.faultsAt(at)
	works := func() {
		if refused.row > 0 {
			refused.clear()
		}
	}
	changed = func() {
		works() // A watch begins with the present state.
		w.c.trigger()
	}
	failed = func(err error) {
		var answer apierrors.APIStatus
		if errors.As(err, &answer) {
			refused.note(w.c.log, what+" cannot be watched", explain(err))
		}
	}
	return changed, failed, works
}

// follow keeps one watch on the pods.
func (w *watches) follow(ctx context.Context, selector string) {
	if w.watched == selector && w.unwatch != nil {
		return
	}
	w.unfollow()
	watching, cancel := context.WithCancel(ctx)
	w.watched, w.unwatch = selector, cancel
	w.pods(watching, selector)
}

func (w *watches) unfollow() {
	if w.unwatch != nil {
		w.unwatch()
		w.unwatch = nil
	}
	w.followNodes(context.Background(), nil)
}

// followBudget watches the PodDisruptionBudget, during a rollout. Where that is not allowed, it is not tried again
// before the next one.
func (w *watches) followBudget(ctx context.Context) {
	if w.c.cfg.Budgets == nil || w.c.cfg.Policy.Removal != rollout.RemoveByEviction || w.unwatchBudget != nil {
		return
	}
	ctx, w.unwatchBudget = context.WithCancel(ctx)
	unwatch := w.unwatchBudget
	w.running.Go(func() {
		changed, failed, ended := w.calls(report.AtWatchBudget, "the PodDisruptionBudget")
		defer ended()
		w.c.workload.WatchBudget(ctx, w.c.cfg.Budgets, changed, func(err error) {
			if failed(err); apierrors.IsForbidden(err) || apierrors.IsUnauthorized(err) {
				unwatch()
			}
		})
	})
}

func (w *watches) unfollowBudget() {
	if w.unwatchBudget != nil {
		w.unwatchBudget()
		w.unwatchBudget = nil
	}
}
