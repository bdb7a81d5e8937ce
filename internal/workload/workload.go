package workload

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http/httptrace"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/quorate/quorate/internal/record"
	"github.com/quorate/quorate/pkg/rollout"
)

// StatefulSets is the part of the API for StatefulSets in one namespace that is used here. A
// clientset's AppsV1().StatefulSets(namespace) satisfies it.
type StatefulSets interface {
	Get(ctx context.Context, name string, opts metav1.GetOptions) (*appsv1.StatefulSet, error)
	Watch(ctx context.Context, opts metav1.ListOptions) (watch.Interface, error)
	// Patch is used by [View.Promote] only.
	Patch(ctx context.Context, name string, pt types.PatchType, data []byte, opts metav1.PatchOptions,
		subresources ...string) (*appsv1.StatefulSet, error)
}

// Pods is the part of the API for pods in one namespace that is used here. A clientset's
// CoreV1().Pods(namespace) satisfies it.
type Pods interface {
	List(ctx context.Context, opts metav1.ListOptions) (*corev1.PodList, error)
	Watch(ctx context.Context, opts metav1.ListOptions) (watch.Interface, error)
	Delete(ctx context.Context, name string, opts metav1.DeleteOptions) error
	// Patch changes an annotation, so that an old removal is refused.
	Patch(ctx context.Context, name string, pt types.PatchType, data []byte, opts metav1.PatchOptions,
		subresources ...string) (*corev1.Pod, error)
	// EvictV1 evicts a pod, or asks by a dry run whether it may be evicted. It is used for
	// [rollout.RemoveByEviction] only.
	EvictV1(ctx context.Context, eviction *policyv1.Eviction) error
}

// Budgets is the part of the API for PodDisruptionBudgets in one namespace that is used here. A
// clientset's PolicyV1().PodDisruptionBudgets(namespace) satisfies it.
type Budgets interface {
	Get(ctx context.Context, name string, opts metav1.GetOptions) (*policyv1.PodDisruptionBudget, error)
	Watch(ctx context.Context, opts metav1.ListOptions) (watch.Interface, error)
}

// Observation is one live reading, or what the watches tell.
type Observation struct {
	Set  rollout.Set
	Pods []rollout.Pod
	// CurrentRevision and ResourceVersion are the StatefulSet's status.currentRevision and its own
	// resourceVersion.
	CurrentRevision, ResourceVersion string
	// Selector is the StatefulSet's label selector, for a watch on its pods.
	Selector string

	// abrupt has the pods, by UID, whose spec asks for a grace period of 0.
	abrupt map[string]bool
	// tolerations are those of the pods, by UID.
	tolerations map[string][]corev1.Toleration
	// addresses are those of the pods, by UID.
	addresses map[string]Addresses
	// unbroken says of each pod, by UID, since when it has been what it is.
	unbroken map[string]unbroken
}

// unbroken changes whenever a pod becomes Ready or ceases to be, or its container of etcd starts or ends.
type unbroken struct {
	ready    time.Time
	etcd     corev1.ContainerState
	restarts int32
}

// Addresses are where a pod can be reached: at an address of its own, or at that of its node.
type Addresses struct{ Pod, Host []string }

// Addresses are those of a pod, by its UID.
func (o Observation) Addresses(uid string) Addresses { return o.addresses[uid] }

// ReadySince is when a pod became Ready or ceased to be, by its kubelet's clock.
func (o Observation) ReadySince(uid string) time.Time { return o.unbroken[uid].ready }

// Lasted is true if a pod has been what it is ever since an earlier observation.
func (o Observation) Lasted(since Observation, uid string) bool {
	was, seen := since.unbroken[uid]
	return seen && reflect.DeepEqual(was, o.unbroken[uid])
}

// Read reads the StatefulSet and then its pods, both consistently.
func (v *View) Read(ctx context.Context) (*appsv1.StatefulSet, []corev1.Pod, error) {
	set, pods, _, err := v.read(ctx)
	return set, pods, err
}

// Observe reads the same as facts.
func (v *View) Observe(ctx context.Context) (Observation, error) {
	set, pods, selector, err := v.read(ctx)
	if err != nil {
		return Observation{}, err
	}
	return v.observation(set, selector, pods), nil
}

func (v *View) observation(set *appsv1.StatefulSet, selector string, pods []corev1.Pod) Observation {
	o := Observation{
		Set: SetFacts(set, v.cfg.Names), Selector: selector,
		CurrentRevision: set.Status.CurrentRevision, ResourceVersion: set.ResourceVersion,
		abrupt: map[string]bool{}, tolerations: map[string][]corev1.Toleration{}, unbroken: map[string]unbroken{},
		addresses: map[string]Addresses{},
	}
	for i := range pods {
		o.tolerations[string(pods[i].UID)] = pods[i].Spec.Tolerations
		o.Pods = append(o.Pods, PodFacts(&pods[i], o.Set, v.cfg.Names))
		o.addresses[string(pods[i].UID)] = addressesOf(&pods[i])
		o.unbroken[string(pods[i].UID)] = unbrokenOf(&pods[i], v.cfg.Names.EtcdContainer)
		if grace := pods[i].Spec.TerminationGracePeriodSeconds; grace != nil && *grace == 0 {
			o.abrupt[string(pods[i].UID)] = true
		}
	}
	return o
}

func (v *View) read(ctx context.Context) (*appsv1.StatefulSet, []corev1.Pod, string, error) {
	set, err := v.get(ctx)
	if err != nil {
		return nil, nil, "", err
	}
	selector, err := metav1.LabelSelectorAsSelector(set.Spec.Selector)
	if err != nil {
		return nil, nil, "", fmt.Errorf("StatefulSet %s: spec.selector: %w", set.Name, err)
	}
	pods, err := v.list(ctx, selector.String())
	return set, pods, selector.String(), err
}

func (v *View) get(ctx context.Context) (*appsv1.StatefulSet, error) {
	began := v.set.Begin()
	set, err := v.cfg.StatefulSets.Get(ctx, v.cfg.StatefulSet, metav1.GetOptions{})
	if err != nil {
		return nil, fmt.Errorf("get StatefulSet %s: %w", v.cfg.StatefulSet, err)
	}
	v.set.Read(began, set.ResourceVersion, set)
	return set, nil
}

func (v *View) list(ctx context.Context, selector string) ([]corev1.Pod, error) {
	if v.selector != selector { // Another StatefulSet of the same name.
		v.selector = selector
		v.pods.Forget()
	}
	began := v.pods.Begin()
	pods, err := v.cfg.Pods.List(ctx, metav1.ListOptions{LabelSelector: selector})
	if err != nil {
		return nil, fmt.Errorf("list pods of StatefulSet %s: %w", v.cfg.StatefulSet, err)
	}
	known := make([]*corev1.Pod, len(pods.Items))
	for i := range pods.Items {
		pods.Items[i].ManagedFields = nil
		known[i] = &pods.Items[i]
	}
	v.pods.Read(began, pods.ResourceVersion, known...)
	return pods.Items, nil
}

// Remove carries out a removal that is on record and was decided on the observation. It takes effect
// only on the very pod that was observed, and is refused if that pod was replaced or changed in any way
// since. The pod's own grace period applies, but never 0: the pod would then be gone while its
// processes still run, and a second one with the same identity could start.
func (v *View) Remove(ctx context.Context, o Observation, i record.Intent) error {
	options := o.deleteOptions(i.UID, i.ResourceVersion)
	if i.Operation == record.Evict {
		if err := v.pastGuard(ctx, func() error { return v.evict(ctx, i, options) }); err != nil {
			return err
		}
	} else if err := v.pastGuard(ctx, func() error { return v.cfg.Pods.Delete(ctx, i.Pod, options) }); err != nil {
		return fmt.Errorf("delete pod %s (UID %s, resourceVersion %s): %w", i.Pod, i.UID, i.ResourceVersion, err)
	}
	v.pods.Amend(i.Pod, func(p *corev1.Pod) *corev1.Pod {
		if string(p.UID) == i.UID && p.DeletionTimestamp == nil {
			p = p.DeepCopy()
			p.DeletionTimestamp = &metav1.Time{Time: time.Now()}
		}
		return p
	})
	return nil
}

// deleteOptions name the very pod.
func (o Observation) deleteOptions(uid, resourceVersion string) metav1.DeleteOptions {
	options := metav1.DeleteOptions{
		Preconditions: &metav1.Preconditions{UID: (*types.UID)(&uid), ResourceVersion: &resourceVersion},
	}
	if o.abrupt[uid] {
		least := int64(1)
		options.GracePeriodSeconds = &least
	}
	return options
}

// evict asks for the removal, so that a PodDisruptionBudget can refuse it (see [RefusalOf]). A budget
// is charged even if a precondition fails afterwards, so the pod is looked at once more just before. A watch
// tells soon enough whether it has changed. The eviction's own preconditions are what counts.
func (v *View) evict(ctx context.Context, i record.Intent, options metav1.DeleteOptions) error {
	pods, watched := v.pods.Now()
	p := pods[i.Pod]
	if !watched {
		var err error
		if p, err = v.pod(ctx, i.Pod); err != nil {
			return fmt.Errorf("before its eviction: %w", err)
		}
	}
	if p == nil || string(p.UID) != i.UID || p.ResourceVersion != i.ResourceVersion {
		return apierrors.NewConflict(corev1.Resource("pods"), i.Pod, errors.New("it changed since it was observed"))
	}
	if err := v.cfg.Pods.EvictV1(ctx, eviction(i.Pod, options)); err != nil {
		return fmt.Errorf("evict pod %s (UID %s, resourceVersion %s): %w", i.Pod, i.UID, i.ResourceVersion, err)
	}
	return nil
}

// AskBudget asks by a dry run whether an eviction of the observed pod would be granted now. A dry run
// changes nothing and charges nothing, so it needs no record. A refusal is an error that [RefusalOf]
// recognizes.
func (v *View) AskBudget(ctx context.Context, o Observation, pod, uid, resourceVersion string) error {
	var answered atomic.Bool
	asking, cancel := context.WithTimeout(ctx, budgetTimeout)
	defer cancel()
	trace := &httptrace.ClientTrace{GotFirstResponseByte: func() { answered.Store(true) }}
	asking = httptrace.WithClientTrace(asking, trace)
	options := o.deleteOptions(uid, resourceVersion)
	options.DryRun = []string{metav1.DryRunAll}
	err := v.cfg.Pods.EvictV1(asking, eviction(pod, options))
	switch {
	case err == nil, v.guarded(err): // The guard goes by what we ourselves say before the eviction.
		return nil
	case answered.Load() && asking.Err() != nil && ctx.Err() == nil:
		// The client does not return an answer with Retry-After. It waits.
		return fmt.Errorf("ask whether pod %s may be evicted: %w", pod, apierrors.NewTooManyRequests(unprocessed, 0))
	}
	return fmt.Errorf("ask whether pod %s may be evicted (UID %s, resourceVersion %s): %w", pod, uid, resourceVersion,
		err)
}

func eviction(pod string, options metav1.DeleteOptions) *policyv1.Eviction {
	return &policyv1.Eviction{ObjectMeta: metav1.ObjectMeta{Name: pod}, DeleteOptions: &options}
}

const (
	// budgetTimeout is how long AskBudget waits. The answer takes a few milliseconds, and meanwhile the
	// evidence for the removal grows older.
	budgetTimeout = time.Second
	// unprocessed is what the API server says when the disruption controller has not yet seen the
	// newest version of a budget, or when the API server is busy.
	unprocessed = "the API server asks to come back later: a PodDisruptionBudget that the disruption controller " +
		"has not processed yet, or too many requests"
)

// pod reads one pod, or returns nil if there is none. It lists, because the sidecar has that permission
// anyway.
func (v *View) pod(ctx context.Context, name string) (*corev1.Pod, error) {
	selector := fields.OneTermEqualSelector("metadata.name", name).String()
	list, err := v.cfg.Pods.List(ctx, metav1.ListOptions{FieldSelector: selector})
	if err != nil {
		return nil, fmt.Errorf("read pod %s: %w", name, err)
	}
	for i := range list.Items {
		if list.Items[i].Name == name {
			return &list.Items[i], nil
		}
	}
	return nil, nil //nolint:nilnil // No pod is a valid answer.
}

// Self returns what a coordinator has to know about its own pod: UID and revision. ok is false if there
// is no such pod, or if it does not belong to the StatefulSet.
func (v *View) Self(ctx context.Context, name string) (pod rollout.Pod, ok bool, err error) {
	if name != "" {
		p, err := v.pod(ctx, name)
		if err != nil {
			return rollout.Pod{}, false, err
		}
		if owner := v.owner(p); owner != nil {
			return PodFacts(p, rollout.Set{Name: v.cfg.StatefulSet, UID: string(owner.UID)}, v.cfg.Names), true, nil
		}
	}
	o, err := v.Observe(ctx) // It also shows a wrong name.
	if err != nil {
		return rollout.Pod{}, false, err
	}
	for i := range o.Pods {
		if o.Pods[i].Name == name && o.Pods[i].Owned {
			return o.Pods[i], true, nil
		}
	}
	return rollout.Pod{}, false, nil
}

// owner is the StatefulSet as the controller of a pod, or nil if another controls it.
func (v *View) owner(p *corev1.Pod) *metav1.OwnerReference {
	if p == nil {
		return nil
	}
	owner := metav1.GetControllerOf(p)
	if owner == nil || owner.Kind != "StatefulSet" || owner.Name != v.cfg.StatefulSet ||
		!strings.HasPrefix(owner.APIVersion, appsv1.GroupName+"/") {
		return nil
	}
	return owner
}

// Fenceable lists the pods that a removal could still reach: those of the StatefulSet, with an ordinal, that are not
// terminating. No removal of ours ever names another pod, and we may not be allowed to change one that merely has
// such a name and the labels. A StatefulSet that is made anew has another UID, and takes over the pods that the former
// one has left behind. That changes them, so no earlier removal reaches those either. So the name of the owner is what
// counts.
func (v *View) Fenceable(ctx context.Context) ([]record.Pod, error) {
	var pods []corev1.Pod
	var err error
	if v.selector != "" {
		pods, err = v.list(ctx, v.selector)
	} else {
		_, pods, err = v.Read(ctx)
	}
	if err != nil {
		return nil, err
	}
	var out []record.Pod
	for i := range pods {
		if p := &pods[i]; p.DeletionTimestamp == nil && ordinal(p.Name, v.cfg.StatefulSet) >= 0 && v.owns(p) {
			out = append(out, record.Pod{Name: p.Name, UID: string(p.UID), ResourceVersion: p.ResourceVersion})
		}
	}
	return out, nil
}

// owns is true for a pod that a StatefulSet of our name owns, whichever that is.
func (v *View) owns(p *corev1.Pod) bool {
	return slices.ContainsFunc(p.OwnerReferences, func(o metav1.OwnerReference) bool {
		return o.Kind == "StatefulSet" && o.Name == v.cfg.StatefulSet
	})
}

// Fence changes the very pod, so that every removal that was decided before is refused. It returns the
// pod's new resourceVersion. The error's outcome is [record.Refused] if, and only if, that pod is gone.
func (v *View) Fence(ctx context.Context, p record.Pod, value string) (string, error) {
	patch, err := json.Marshal(map[string]any{"metadata": map[string]any{
		"uid":         p.UID,
		"annotations": map[string]string{record.FencedAnnotation: value},
	}})
	if err != nil {
		return "", fmt.Errorf("encode the patch of pod %s: %w", p.Name, err)
	}
	patched, err := v.cfg.Pods.Patch(ctx, p.Name, types.MergePatchType, patch, metav1.PatchOptions{})
	if err == nil {
		v.pods.Amend(p.Name, func(now *corev1.Pod) *corev1.Pod {
			if now.UID == patched.UID && newer(patched.ResourceVersion, now.ResourceVersion) {
				return patched
			}
			return now
		})
		return patched.ResourceVersion, nil
	}
	// The answer does not tell whether that pod is gone. Another UID is an invalid change (422), unless
	// an admission webhook says something else first, and "not found" may come from a proxy.
	now, rerr := v.pod(ctx, p.Name)
	switch {
	case rerr == nil && (now == nil || string(now.UID) != p.UID):
		return "", apierrors.NewNotFound(corev1.Resource("pods"), p.Name)
	case record.OutcomeOf(err) == record.Refused:
		return "", apierrors.NewInternalError(fmt.Errorf("pod %s (UID %s) could not be changed: %w", p.Name, p.UID,
			err))
	}
	return "", fmt.Errorf("change pod %s (UID %s): %w", p.Name, p.UID, err)
}

// Promote sets status.currentRevision to the update revision, on the very StatefulSet that was
// observed. Before Kubernetes 1.37, the StatefulSet controller does this for RollingUpdate only
// (kubernetes#73492). The error's outcome is [record.Refused] if the StatefulSet has changed since.
func (v *View) Promote(ctx context.Context, o Observation) error {
	patch, err := json.Marshal(map[string]any{
		"metadata": map[string]any{"uid": o.Set.UID, "resourceVersion": o.ResourceVersion},
		"status":   map[string]any{"currentRevision": o.Set.UpdateRevision},
	})
	if err != nil {
		return fmt.Errorf("encode the patch of StatefulSet %s: %w", v.cfg.StatefulSet, err)
	}
	set, err := v.cfg.StatefulSets.Patch(ctx, v.cfg.StatefulSet, types.MergePatchType, patch, metav1.PatchOptions{},
		"status")
	if err != nil {
		return fmt.Errorf("patch the status of StatefulSet %s: %w", v.cfg.StatefulSet, err)
	}
	v.set.Wrote(set) // Whether this is still to be done is asked before the watch tells.
	return nil
}

// RefusalOf returns the eviction API's words when it refuses an eviction because of a
// PodDisruptionBudget, and false for any other answer. Replicas are those of the StatefulSet.
func RefusalOf(err error, replicas int) (rollout.Refusal, bool) {
	var answer apierrors.APIStatus
	if !errors.As(err, &answer) {
		return rollout.Refusal{}, false
	}
	status := answer.Status()
	words := status.Message
	if status.Details != nil {
		for _, cause := range status.Details.Causes {
			words += " " + cause.Message
		}
	}
	switch {
	case apierrors.IsTooManyRequests(err):
		return rollout.Refusal{Words: words, Lasting: neverAllows(words, replicas)}, true
	case apierrors.IsForbidden(err) && status.Details != nil && status.Details.Kind == "poddisruptionbudget":
		// The API server can make no sense of the budget's status. That is not a missing permission.
		return rollout.Refusal{Words: words}, true
	case strings.Contains(words, "more than one PodDisruptionBudget"):
		// This comes as a 500, and it does not pass.
		return rollout.Refusal{Words: words, Lasting: true}, true
	}
	return rollout.Refusal{}, false
}

// Moot returns true if the budget that refused is about the StatefulSet's pods alone, counts one, and
// needs more. The API server's words name the budget; what it counts is in its status alone.
func (o Observation) Moot(ctx context.Context, budgets Budgets, r rollout.Refusal) (bool, error) {
	name, needs, _, ok := needsAndHas(r.Words)
	if !ok || needs <= 1 {
		return false, nil
	}
	b, err := budgets.Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return false, fmt.Errorf("get PodDisruptionBudget %s: %w", name, err)
	}
	ours, err := labels.Parse(o.Selector)
	if err != nil {
		return false, fmt.Errorf("the StatefulSet's selector %q: %w", o.Selector, err)
	}
	return moot(b, ours), nil
}

// neverAllows is true if the budget needs as many healthy pods as there can be. If it has more pods
// than the StatefulSet, it counts others as well, and nobody can tell.
func neverAllows(words string, replicas int) bool {
	_, needs, has, ok := needsAndHas(words)
	return ok && needs >= replicas && has <= replicas
}

// healthyPods reads the message of a cause of type DisruptionBudget. Its numbers are the budget's status as the
// eviction API has just seen it. To read the status itself would take the budget's name, which stands nowhere but in
// this message unless it is the StatefulSet's, and the permission to read a budget of another name. Where the API
// server comes to say it otherwise, the refusal is one that may pass. A test asks the real API server.
var healthyPods = regexp.MustCompile(`disruption budget (\S+) needs (\d+) healthy pods and has (\d+) currently`)

// needsAndHas finds in the API server's words which budget refuses, and how many healthy pods it needs
// and has.
func needsAndHas(words string) (budget string, needs, has int, ok bool) {
	found := healthyPods.FindStringSubmatch(words)
	if found == nil {
		return "", 0, 0, false
	}
	needs, nerr := strconv.Atoi(found[2])
	has, herr := strconv.Atoi(found[3])
	return found[1], needs, has, nerr == nil && herr == nil
}

// Same is true if nothing has changed that a decision goes by.
func (o Observation) Same(as Observation) bool {
	return reflect.DeepEqual(o.Set, as.Set) && slices.EqualFunc(o.Pods, as.Pods, func(x, y rollout.Pod) bool {
		x.Heartbeat, y.Heartbeat = "", "" // Nothing is taken from a node's being well.
		return reflect.DeepEqual(x, y)
	})
}
