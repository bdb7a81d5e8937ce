package workload_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"

	"go.uber.org/goleak"

	"github.com/quorate/quorate/internal/record"
	"github.com/quorate/quorate/internal/workload"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// api records what is asked of the Kubernetes API, and answers from its fields.
type api struct {
	// patches are those of the StatefulSet, with their subresource.
	patches []string

	// listed is the resourceVersion of a list of the pods.
	listed string

	mu       sync.Mutex
	set      *appsv1.StatefulSet
	pods     []corev1.Pod
	err      error
	gets     []metav1.GetOptions
	lists    []metav1.ListOptions
	watches  []metav1.ListOptions
	opened   []*watch.FakeWatcher
	watchErr error
}

func (a *api) Get(_ context.Context, name string, opts metav1.GetOptions) (*appsv1.StatefulSet, error) {
	a.gets = append(a.gets, opts)
	if a.set == nil || a.set.Name != name {
		return nil, apierrors.NewNotFound(schema.GroupResource{Group: "apps", Resource: "statefulsets"}, name)
	}
	return a.set, nil
}

func (a *api) Watch(_ context.Context, opts metav1.ListOptions) (watch.Interface, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.watches = append(a.watches, opts)
	if a.watchErr != nil {
		return nil, a.watchErr
	}
	w := watch.NewFakeWithOptions(watch.FakeOptions{ChannelSize: 1})
	a.opened = append(a.opened, w)
	return w, nil
}

func (a *api) watching() (opened []*watch.FakeWatcher, asked []metav1.ListOptions) {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.opened, a.watches
}

func (a *api) Patch(_ context.Context, _ string, _ types.PatchType, data []byte, _ metav1.PatchOptions,
	subresources ...string) (*appsv1.StatefulSet, error) {
	a.patches = append(a.patches, strings.Join(subresources, "/")+" "+string(data))
	return a.set, a.err
}

// podAPI is the part for pods; both kinds have a Watch.
type podAPI struct{ *api }

func (p podAPI) List(_ context.Context, opts metav1.ListOptions) (*corev1.PodList, error) {
	p.lists = append(p.lists, opts)
	return &corev1.PodList{ListMeta: metav1.ListMeta{ResourceVersion: p.listed}, Items: slices.Clone(p.pods)}, p.err
}

func (p podAPI) EvictV1(context.Context, *policyv1.Eviction) error { return errors.ErrUnsupported }

func (p podAPI) Delete(context.Context, string, metav1.DeleteOptions) error {
	return errors.ErrUnsupported
}

func (p podAPI) Patch(context.Context, string, types.PatchType, []byte, metav1.PatchOptions, ...string) (*corev1.Pod,
	error) {
	return nil, errors.ErrUnsupported
}

func newView(a *api) *workload.View {
	return workload.New(workload.Config{
		StatefulSet: "etcd-main", Names: workload.DefaultNames(), StatefulSets: a, Pods: podAPI{a},
	})
}

func TestObserveReadsLive(t *testing.T) {
	a := &api{set: statefulSet(), pods: []corev1.Pod{*pod(),
		*pod(func(p *corev1.Pod) { p.Name, p.OwnerReferences = "etcd-main-2", nil })}}
	o, err := newView(a).Observe(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if o.Set.Name != "etcd-main" || o.Set.Replicas != 3 {
		t.Errorf("set %+v", o.Set)
	}
	if len(o.Pods) != 2 || o.Pods[0].Name != "etcd-main-1" || !o.Pods[0].Owned || o.Pods[1].Owned {
		t.Errorf("pods %+v", o.Pods)
	}
	if o.Selector != "component=etcd-statefulset" || len(a.lists) != 1 || a.lists[0].LabelSelector != o.Selector {
		t.Errorf("selector %q, lists %+v", o.Selector, a.lists)
	}
	if len(a.gets) != 1 || a.gets[0].ResourceVersion != "" || a.lists[0].ResourceVersion != "" ||
		a.lists[0].ResourceVersionMatch != "" {
		t.Errorf("a resource version lets a cache answer: get %+v, list %+v", a.gets, a.lists)
	}
}

func TestObserveSaysWhatItCouldNotRead(t *testing.T) {
	for _, tc := range []struct {
		name string
		api  *api
		want string
	}{
		{"a StatefulSet that does not exist", &api{},
			`get StatefulSet etcd-main: statefulsets.apps "etcd-main" not found`},
		{"a selector that does not parse", &api{set: statefulSet(func(s *appsv1.StatefulSet) {
			s.Spec.Selector.MatchExpressions = []metav1.LabelSelectorRequirement{{Key: "k", Operator: "Near"}}
		})}, "StatefulSet etcd-main: spec.selector: "},
		{"pods that may not be listed", &api{set: statefulSet(), err: errors.New("forbidden")},
			"list pods of StatefulSet etcd-main: forbidden"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			_, err := newView(tc.api).Observe(t.Context())
			if err == nil || !strings.HasPrefix(err.Error(), tc.want) {
				t.Errorf("got %v, want %s", err, tc.want)
			}
		})
	}
}

// A watch only triggers, is opened again when it ends, and ends with its context.
func TestWatches(t *testing.T) {
	for _, tc := range []struct {
		name string
		run  func(ctx context.Context, w *workload.View, changed func(), failed func(error))
		want metav1.ListOptions
	}{
		{"the StatefulSet", func(ctx context.Context, w *workload.View, changed func(), failed func(error)) {
			w.WatchSet(ctx, changed, failed)
		},
			metav1.ListOptions{FieldSelector: "metadata.name=etcd-main"}},
		{"its pods", func(ctx context.Context, w *workload.View, changed func(), failed func(error)) {
			w.WatchPods(ctx, "a=b", changed, failed)
		},
			metav1.ListOptions{LabelSelector: "a=b"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				a := &api{}
				ctx, cancel := context.WithCancel(t.Context())
				changes := make(chan struct{}, 10)
				ended := make(chan struct{})
				go func() {
					defer close(ended)
					tc.run(ctx, newView(a), func() { changes <- struct{}{} },
						func(err error) { t.Errorf("a watch failed: %v", err) })
				}()

				synctest.Wait()
				opened, asked := a.watching()
				if len(asked) != 1 || asked[0].FieldSelector != tc.want.FieldSelector ||
					asked[0].LabelSelector != tc.want.LabelSelector {
					t.Fatalf("watches %+v, want one %+v", asked, tc.want)
				}
				opened[0].Add(&corev1.Pod{})
				<-changes
				opened[0].Error(&metav1.Status{}) // Whatever it says, it is looked into live.
				<-changes

				opened[0].Stop()
				// Not at once, which would hammer an API server that fails.
				<-time.After(time.Second - time.Nanosecond)
				synctest.Wait()
				if opened, _ = a.watching(); len(opened) != 1 {
					t.Error("a watch that ended was opened again in less than a second")
				}
				<-time.After(reopened)
				synctest.Wait()
				if opened, _ = a.watching(); len(opened) != 2 {
					t.Fatalf("%d watches were opened, want 2", len(opened))
				}
				opened[1].Add(&corev1.Pod{})
				<-changes

				cancel()
				<-ended
				if !opened[1].IsStopped() {
					t.Error("the watch was left open")
				}
			})
		})
	}
}

// Each look asks every member of etcd, so what cannot change a decision is no reason for one.
func TestOnlyWhatCountsIsNews(t *testing.T) {
	sets := func(changes ...func(*appsv1.StatefulSet)) runtime.Object { return statefulSet(changes...) }
	budgets := func(generation int64, allowed int32) runtime.Object {
		return &policyv1.PodDisruptionBudget{ObjectMeta: metav1.ObjectMeta{Name: "etcd-main", Generation: generation},
			Status: policyv1.PodDisruptionBudgetStatus{ObservedGeneration: 1, DisruptionsAllowed: allowed}}
	}
	for _, tc := range []struct {
		name          string
		before, after runtime.Object
		deleted, news bool
	}{
		{"no more of the StatefulSet's pods being ready than before", sets(),
			sets(func(s *appsv1.StatefulSet) { s.Status.ReadyReplicas, s.ResourceVersion = 2, "9" }), false, false},
		{"but a new template is", sets(), sets(func(s *appsv1.StatefulSet) { s.Status.UpdateRevision = "new" }), false, true},
		{"and a new template that the controller has not seen yet", sets(),
			sets(func(s *appsv1.StatefulSet) { s.Generation++ }), false, true},
		{"and another strategy", sets(),
			sets(func(s *appsv1.StatefulSet) { s.Spec.UpdateStrategy.Type = appsv1.RollingUpdateStatefulSetStrategyType }),
			false, true},
		{"and a new status.currentRevision", sets(),
			sets(func(s *appsv1.StatefulSet) { s.Status.CurrentRevision = "new" }), false, true},
		{"and that the StatefulSet is gone", sets(), sets(), true, true},
		{"not that a budget allows fewer than before", budgets(1, 3), budgets(1, 2), false, false},
		{"but that it allows none", budgets(1, 1), budgets(1, 0), false, true},
		{"and that it allows one again", budgets(1, 0), budgets(1, 1), false, true},
		{"and that it has changed", budgets(1, 0), budgets(2, 0), false, true},
		{"and that it is gone", budgets(1, 1), budgets(1, 1), true, true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				told := watch.NewFake()
				ctx, cancel := context.WithCancel(t.Context())
				news, ended := 0, make(chan struct{})
				go func() {
					defer close(ended)
					changed, failed := func() { news++ }, func(err error) { t.Error(err) }
					v := workload.New(workload.Config{
						StatefulSet: "etcd-main", StatefulSets: setsWatch{w: told}, Budgets: budgetsWatch{w: told},
					})
					if _, ok := tc.before.(*appsv1.StatefulSet); ok {
						v.WatchSet(ctx, changed, failed)
					} else {
						v.WatchBudget(ctx, changed, failed)
					}
				}()
				synctest.Wait()
				opened := news
				told.Add(tc.before)
				synctest.Wait()
				first := news
				if tc.deleted {
					told.Delete(tc.after)
				} else {
					told.Modify(tc.after)
				}
				synctest.Wait()
				if first != opened+1 || (news > first) != tc.news {
					t.Errorf("%d news at first, %d after that", first-opened, news-first)
				}
				cancel()
				<-ended
			})
		})
	}
}

type setsWatch struct {
	workload.StatefulSets
	w watch.Interface
}

func (s setsWatch) Watch(context.Context, metav1.ListOptions) (watch.Interface, error) {
	return s.w, nil
}

type budgetsWatch struct {
	workload.Budgets
	w watch.Interface
}

func (b budgetsWatch) Watch(context.Context, metav1.ListOptions) (watch.Interface, error) {
	return b.w, nil
}

func TestAWatchThatCannotBeOpenedIsReportedAndTriedAgainUntilItsContextEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := &api{watchErr: errors.New("connection refused")}
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		var reported []error
		newView(a).WatchSet(ctx, func() { t.Error("nothing was reported") },
			func(err error) { reported = append(reported, err) })
		_, asked := a.watching()
		if len(asked) < 6 || len(asked) > 9 {
			t.Errorf("%d attempts in a minute, want 6 to 9, fewer from failure to failure", len(asked))
		}
		if len(reported) != len(asked) || !errors.Is(reported[0], a.watchErr) {
			t.Errorf("reported %v, want each of %d attempts with %v", reported, len(asked), a.watchErr)
		}
	})
}

func TestPromotionSetsTheCurrentRevisionOfTheVeryStatefulSetThatWasSeen(t *testing.T) {
	a := &api{set: statefulSet(func(s *appsv1.StatefulSet) {
		s.UID, s.ResourceVersion, s.Status.UpdateRevision, s.Status.CurrentRevision = "u", "7", "new", "old"
	})}
	w := newView(a)
	o, err := w.Observe(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if err := w.Promote(t.Context(), o); err != nil {
		t.Fatal(err)
	}
	want := `status {"metadata":{"resourceVersion":"7","uid":"u"},"status":{"currentRevision":"new"}}`
	if len(a.patches) != 1 || a.patches[0] != want {
		t.Errorf("patches %q, want %q", a.patches, want)
	}
	a.err = apierrors.NewConflict(schema.GroupResource{Resource: "statefulsets"}, "etcd-main",
		errors.New("it has changed"))
	if err := w.Promote(t.Context(), o); record.OutcomeOf(err) != record.Refused ||
		!strings.HasPrefix(err.Error(), "patch the status of StatefulSet etcd-main: ") {
		t.Errorf("got %v", err)
	}
}
