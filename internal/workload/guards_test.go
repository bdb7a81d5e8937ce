package workload

import (
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
)

func TestErrorsAreReadForWhatTheyMean(t *testing.T) {
	pods := schema.GroupResource{Resource: "pods"}
	for _, tc := range []struct {
		name            string
		err             error
		denied, expired bool
	}{
		{"no permission", apierrors.NewForbidden(pods, "etcd-0", nil), true, false},
		{"no account", apierrors.NewUnauthorized("who is that?"), true, false},
		{"gone", &apierrors.StatusError{ErrStatus: metav1.Status{Reason: metav1.StatusReasonGone}}, false, true},
		{"expired", apierrors.NewResourceExpired("too old"), false, true},
		{"changed", apierrors.NewConflict(pods, "etcd-0", nil), false, false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if Denied(tc.err) != tc.denied || expired(tc.err) != tc.expired {
				t.Errorf("denied %v, expired %v", Denied(tc.err), expired(tc.err))
			}
		})
	}
}

func TestALookMayGoByTheWatchesOnlyIfAllIsWatched(t *testing.T) {
	for _, pods := range []bool{true, false} {
		for _, lease := range []bool{true, false} {
			if got := (Cached{Watched: pods, LeaseWatched: lease}).Complete(); got != (pods && lease) {
				t.Errorf("pods %v, Lease %v: %v", pods, lease, got)
			}
		}
	}
}

func TestAMirrorSaysNothingThatItDoesNotKnow(t *testing.T) {
	for _, tc := range []struct {
		name   string
		change func(m *Mirror[*corev1.Pod])
		known  bool
		from   string
	}{
		{"all was told", func(*Mirror[*corev1.Pod]) {}, true, "7"},
		{"its watch is not open", func(m *Mirror[*corev1.Pod]) { m.open = false }, false, "7"},
		{"not all was told", func(m *Mirror[*corev1.Pod]) { m.whole = false }, false, ""},
		{"a version made no sense", func(m *Mirror[*corev1.Pod]) {
			m.wanted = true
			m.Read(Reading{era: m.era}, "not a number")
		}, false, "7"},
		{"an event was about something else", func(m *Mirror[*corev1.Pod]) {
			m.wanted = true
			m.told(m.keepers, watch.Event{Type: watch.Modified, Object: &metav1.Status{}})
		}, false, "7"},
		{"nobody wanted to know that", func(m *Mirror[*corev1.Pod]) {
			m.told(m.keepers, watch.Event{Type: watch.Modified, Object: &metav1.Status{}})
		}, true, "7"},
		{"an earlier watch ended late", func(m *Mirror[*corev1.Pod]) { m.wanted = true; m.told(m.keepers-1, watch.Event{}) },
			true, "7"},
		{"an earlier watch was opened late", func(m *Mirror[*corev1.Pod]) {
			m.open = false
			m.opened(m.keepers-1, true, func() {})
		}, false, "7"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			m := &Mirror[*corev1.Pod]{open: true, whole: true, at: "7", keepers: 2}
			tc.change(m)
			if _, known := m.Now(); known != tc.known {
				t.Errorf("known: %v", known)
			}
			if from := m.position(); from != tc.from {
				t.Errorf("a watch would begin at %q", from)
			}
		})
	}
}

func TestAWatchGoesOnOnlyWhereNothingIsMissed(t *testing.T) {
	for _, tc := range []struct {
		name   string
		m      *Mirror[*corev1.Pod]
		goesOn bool
	}{
		{"all is known", &Mirror[*corev1.Pod]{whole: true, keepers: 2}, true},
		{"another one was begun", &Mirror[*corev1.Pod]{whole: true, keepers: 3}, false},
		{"not all is known", &Mirror[*corev1.Pod]{keepers: 2}, false},
		{"it has to begin anew", &Mirror[*corev1.Pod]{whole: true, keepers: 2, anew: true}, false},
		{"one event tells everything", &Mirror[*corev1.Pod]{whole: true, keepers: 2, Single: true}, false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if got := tc.m.goesOn(2); got != tc.goesOn {
				t.Errorf("it goes on: %v", got)
			}
		})
	}
}

// watched is a view that knows its StatefulSet, a pod of it and its budget.
func watched() *View {
	labels := map[string]string{"app": "etcd"}
	v := &View{cfg: Config{StatefulSet: "etcd"}, selector: "app=etcd"}
	selector := &metav1.LabelSelector{MatchLabels: labels}
	meta := metav1.ObjectMeta{Name: "etcd", Generation: 2}
	v.set.objects = map[string]*appsv1.StatefulSet{"etcd": {ObjectMeta: meta,
		Spec: appsv1.StatefulSetSpec{Selector: selector}}}
	v.pods.objects = map[string]*corev1.Pod{"etcd-0": {ObjectMeta: metav1.ObjectMeta{Name: "etcd-0", Labels: labels}}}
	v.budget.objects = map[string]*policyv1.PodDisruptionBudget{"etcd": {ObjectMeta: meta,
		Spec:   policyv1.PodDisruptionBudgetSpec{Selector: selector},
		Status: policyv1.PodDisruptionBudgetStatus{DisruptionsAllowed: 1, ObservedGeneration: 2}}}
	v.set.open, v.set.whole, v.pods.open, v.pods.whole = true, true, true, true
	v.budget.open, v.budget.whole = true, true
	return v
}

func TestAWatchedBudgetAllowsOnlyWhatItIsKnownToAllow(t *testing.T) {
	for _, tc := range []struct {
		name          string
		change        func(v *View)
		allows, known bool
	}{
		{"it allows one", func(*View) {}, true, true},
		{"it allows none", func(v *View) { v.budget.objects["etcd"].Status.DisruptionsAllowed = 0 }, false, true},
		{"it has not been reckoned anew since it changed", func(v *View) {
			v.budget.objects["etcd"].Status.ObservedGeneration = 1
		}, false, true},
		{"its watch is not open", func(v *View) { v.budget.open = false }, false, false},
		{"there is none of that name", func(v *View) { delete(v.budget.objects, "etcd") }, false, false},
		{"the pods are not known", func(v *View) { v.pods.open = false }, false, false},
		{"it counts other pods", func(v *View) { v.pods.objects["etcd-0"].Labels = nil }, false, false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			v := watched()
			tc.change(v)
			if allows, known := v.BudgetAllows(); allows != tc.allows || known != tc.known {
				t.Errorf("allows %v, known %v", allows, known)
			}
		})
	}
}

func TestTheWatchesTellOfNoStatefulSetThatTheyDoNotKnow(t *testing.T) {
	for _, tc := range []struct {
		name   string
		change func(v *View)
		known  bool
	}{
		{"all is known", func(*View) {}, true},
		{"the watch on the StatefulSet is not open", func(v *View) { v.set.open = false }, false},
		{"the watch on the pods is not open", func(v *View) { v.pods.open = false }, false},
		{"there is no such StatefulSet", func(v *View) { delete(v.set.objects, "etcd") }, false},
		{"it selects other pods by now", func(v *View) { v.selector = "app=another" }, false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			v := watched()
			tc.change(v)
			if _, known := v.mirrored(); known != tc.known {
				t.Errorf("known: %v", known)
			}
		})
	}
}
