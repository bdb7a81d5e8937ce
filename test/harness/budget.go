package harness

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"sync"
	"time"

	authorizationv1 "k8s.io/api/authorization/v1"
	policyv1 "k8s.io/api/policy/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// The disruption controller is bound to its role by this binding, and acts as this user.
const (
	disruptionBinding = "system:controller:disruption-controller"
	disruptionUser    = "system:serviceaccount:kube-system:disruption-controller"
)

// HaltDisruption keeps the disruption controller from writing the status of any PodDisruptionBudget, in
// the whole environment. It still sees what happens, but nobody hears about it. All other controllers
// go on. ResumeDisruption ends it.
func (e *Env) HaltDisruption(ctx context.Context) error {
	e.Timeline.Note("fault", "the disruption controller is halted")
	err := e.Client.RbacV1().ClusterRoleBindings().Delete(ctx, disruptionBinding, metav1.DeleteOptions{})
	if err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("halt the disruption controller: %w", err)
	}
	return e.disruptionAllowed(ctx, false)
}

// ResumeDisruption lets the disruption controller write again.
func (e *Env) ResumeDisruption(ctx context.Context) error {
	e.Timeline.Note("fault", "the disruption controller goes on")
	_, err := e.Client.RbacV1().ClusterRoleBindings().Create(ctx, bindingOfDisruption(), metav1.CreateOptions{})
	if err != nil && !apierrors.IsAlreadyExists(err) {
		return fmt.Errorf("resume the disruption controller: %w", err)
	}
	return e.disruptionAllowed(ctx, true)
}

func bindingOfDisruption() *rbacv1.ClusterRoleBinding {
	return &rbacv1.ClusterRoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: disruptionBinding},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: disruptionBinding},
		Subjects:   []rbacv1.Subject{{Kind: rbacv1.UserKind, APIGroup: rbacv1.GroupName, Name: disruptionUser}},
	}
}

// disruptionAllowed waits until the authorizer, which reads from a cache, says so.
func (e *Env) disruptionAllowed(ctx context.Context, allowed bool) error {
	return waitFor(ctx, fmt.Sprintf("the disruption controller may write: %v", allowed),
		func(ctx context.Context) (bool, string) {
			answer, err := e.Client.AuthorizationV1().SubjectAccessReviews().Create(ctx,
				&authorizationv1.SubjectAccessReview{
					Spec: authorizationv1.SubjectAccessReviewSpec{User: disruptionUser,
						ResourceAttributes: &authorizationv1.ResourceAttributes{
							Namespace: Namespace, Verb: "update", Group: "policy", Resource: "poddisruptionbudgets",
							Subresource: "status",
						}},
				}, metav1.CreateOptions{})
			if err != nil {
				return false, err.Error()
			}
			return answer.Status.Allowed == allowed, fmt.Sprint(answer.Status.Allowed)
		})
}

// BudgetStep says that from then on the budget allowed a pod to be evicted, or did not.
type BudgetStep struct {
	At     time.Time
	Allows bool
}

// Budget records what a cluster's PodDisruptionBudget allowed, from a watch of its own.
type Budget struct {
	stop func()

	mu    sync.Mutex
	steps []BudgetStep
}

// WatchBudget starts to record what the cluster's PodDisruptionBudget allows. Stop it in the end.
func (c *Cluster) WatchBudget(ctx context.Context) (*Budget, error) {
	b := &Budget{}
	budgets := c.env.Client.PolicyV1().PodDisruptionBudgets(Namespace)
	ours := func(o *metav1.ListOptions) { o.FieldSelector = "metadata.name=" + c.Spec.Name }
	stop, err := follow(ctx, c.env.Client, budgets.List, budgets.Watch, ours, &policyv1.PodDisruptionBudget{},
		handler[*policyv1.PodDisruptionBudget]{seen: b.seen, gone: b.gone})
	if err != nil {
		return nil, fmt.Errorf("watch the budget of %s: %w", c.Spec.Name, err)
	}
	b.stop = stop
	return b, nil
}

// seen notes what the eviction API makes of the status. It also refuses while the disruption controller has not
// processed the newest version of the budget.
func (b *Budget) seen(p *policyv1.PodDisruptionBudget, _ bool) {
	b.note(p.Status.DisruptionsAllowed > 0 && p.Status.ObservedGeneration >= p.Generation)
}

func (b *Budget) gone(*policyv1.PodDisruptionBudget) { b.note(true) }

func (b *Budget) note(allows bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if n := len(b.steps); n == 0 || b.steps[n-1].Allows != allows {
		b.steps = append(b.steps, BudgetStep{At: time.Now(), Allows: allows})
	}
}

// Steps are all changes so far, in order. The first one is what was found at the beginning.
func (b *Budget) Steps() []BudgetStep {
	b.mu.Lock()
	defer b.mu.Unlock()
	return slices.Clone(b.steps)
}

// Stop ends the watch.
func (b *Budget) Stop() { b.stop() }

// WaitBudget waits until the cluster's PodDisruptionBudget allows this many pods to go. The disruption
// controller retries a failure ever more slowly, so this gives it something new.
func (c *Cluster) WaitBudget(ctx context.Context, allows int32) error {
	budgets := c.env.Client.PolicyV1().PodDisruptionBudgets(Namespace)
	nudge := fmt.Appendf(nil, `{"metadata":{"annotations":{"nudged":%q}}}`, time.Now())
	if _, err := budgets.Patch(ctx, c.Spec.Name, types.MergePatchType, nudge, metav1.PatchOptions{}); err != nil {
		return err
	}
	return waitFor(ctx, fmt.Sprintf("the budget of %s allows %d", c.Spec.Name, allows),
		func(ctx context.Context) (bool, string) {
			budget, err := budgets.Get(ctx, c.Spec.Name, metav1.GetOptions{})
			if err != nil {
				return false, err.Error()
			}
			s := budget.Status
			return s.DisruptionsAllowed == allows, fmt.Sprintf("%d, with %d of %d healthy, disrupted: %v",
				s.DisruptionsAllowed, s.CurrentHealthy, s.DesiredHealthy, s.DisruptedPods)
		})
}

// ForgetEvictions takes the evicted pods that are back from the status of the cluster's PodDisruptionBudget. The
// disruption controller does so when it sees them terminate. It waits for that for two minutes if it was halted
// meanwhile.
func (c *Cluster) ForgetEvictions(ctx context.Context) error {
	budgets := c.env.Client.PolicyV1().PodDisruptionBudgets(Namespace)
	budget, err := budgets.Get(ctx, c.Spec.Name, metav1.GetOptions{})
	if err != nil {
		return err
	}
	pods, err := c.ListPods(ctx)
	if err != nil {
		return err
	}
	back := map[string]any{}
	for i := range pods {
		evicted, was := budget.Status.DisruptedPods[pods[i].Name]
		if was && pods[i].DeletionTimestamp == nil && !pods[i].CreationTimestamp.Before(&evicted) {
			back[pods[i].Name] = nil
		}
	}
	if len(back) == 0 {
		return nil
	}
	patch, err := json.Marshal(map[string]any{"status": map[string]any{"disruptedPods": back}})
	if err != nil {
		return err
	}
	_, err = budgets.Patch(ctx, c.Spec.Name, types.MergePatchType, patch, metav1.PatchOptions{}, "status")
	return err
}
