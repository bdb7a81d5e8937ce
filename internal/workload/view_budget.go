package workload

import (
	"context"

	policyv1 "k8s.io/api/policy/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
)

// FollowBudget watches the PodDisruptionBudget. Where that is not allowed, it is not tried again before UnfollowBudget.
func (v *View) FollowBudget() {
	if v.watches.begin == nil || v.cfg.Budgets == nil || v.watches.unwatchBudget != nil {
		return
	}
	_, v.watches.unwatchBudget = v.watches.begin(func(ctx context.Context, unwatch func()) {
		changed, failed, ended := v.calls(WatchOnBudget)
		defer ended()
		v.watchBudget(ctx, changed, func(err error) {
			if failed(err); Denied(err) {
				unwatch()
			}
		})
	})
}

// UnfollowBudget ends that watch.
func (v *View) UnfollowBudget() {
	if v.watches.unwatchBudget != nil {
		v.watches.unwatchBudget()
		v.watches.unwatchBudget = nil
	}
}

// watchBudget calls changed whenever [View.BudgetAllows] may have changed, until ctx ends, and failed whenever the
// watch cannot be opened.
func (v *View) watchBudget(ctx context.Context, changed func(), failed func(error)) {
	Watch{
		Open: v.cfg.Budgets.Watch, Into: &v.budget, Failed: failed,
		Told: news(changed, func(b *policyv1.PodDisruptionBudget) any {
			return [...]any{allowing(b), b.UID, b.Generation}
		}),
		Options: named(v.cfg.StatefulSet),
	}.Keep(ctx)
}

// BudgetAllows says whether that budget allows an eviction, as far as the watch tells. It returns false if that is
// not known: nobody watches it, there is none of that name, or it counts other pods. It is no promise. Another
// eviction may come first, or another budget may count the pods as well.
func (v *View) BudgetAllows() (allows, known bool) {
	budgets, known := v.budget.Now()
	b := budgets[v.cfg.StatefulSet]
	if !known || b == nil {
		return false, false
	}
	selector, err := metav1.LabelSelectorAsSelector(b.Spec.Selector)
	pods, all := v.pods.Now()
	for _, p := range pods {
		all = all && err == nil && selector.Matches(labels.Set(p.Labels))
	}
	if !all {
		return false, false
	}
	return allowing(b), true
}

func allowing(b *policyv1.PodDisruptionBudget) bool {
	return b.Status.DisruptionsAllowed > 0 && b.Status.ObservedGeneration >= b.Generation
}
