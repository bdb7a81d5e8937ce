package workload

import "context"

// The watches of a View, each by itself.

func (v *View) Remember(yes bool) { v.remember(yes) }

func (v *View) WatchSet(ctx context.Context, changed func(), failed func(error)) {
	v.watchSet(ctx, changed, failed)
}

func (v *View) WatchPods(ctx context.Context, selector string, changed func(), failed func(error)) {
	v.watchPods(ctx, selector, changed, failed)
}

func (v *View) WatchBudget(ctx context.Context, changed func(), failed func(error)) {
	v.watchBudget(ctx, changed, failed)
}

var (
	WatchNode    = watchNode
	SaidByOthers = saidByOthers
)
