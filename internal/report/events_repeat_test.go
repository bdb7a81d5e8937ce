package report_test

import (
	"context"
	"errors"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/quorate/quorate/internal/report"
)

// eventAPI notes what is asked, and answers a patch with an error of choice.
type eventAPI struct {
	asked []string
	told  []string
	patch error
}

func (a *eventAPI) Create(_ context.Context, e *corev1.Event, _ metav1.CreateOptions) (*corev1.Event, error) {
	a.asked = append(a.asked, "create")
	a.told = append(a.told, e.Type+" "+e.Reason+" "+e.Message)
	return e, nil
}

func (a *eventAPI) Patch(
	context.Context,
	string,
	types.PatchType,
	[]byte,
	metav1.PatchOptions,
	...string,
) (*corev1.Event, error) {
	a.asked = append(a.asked, "patch")
	return &corev1.Event{}, a.patch // A clientset's answer is never nil.
}

func TestAnEventThatRepeatsIsCountedUp(t *testing.T) {
	events := schema.GroupResource{Resource: "events"}
	for _, tc := range []struct {
		name   string
		patch  error
		asked  []string
		failed bool
	}{
		{"it is patched", nil, []string{"create", "patch"}, false},
		{"one that is forgotten is written anew",
			apierrors.NewNotFound(events, "x"), []string{"create", "patch", "create"}, false},
		{"one that may not be patched is a fault, and no flood of new ones",
			apierrors.NewForbidden(events, "x", errors.New("y")), []string{"create", "patch"}, true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithCancel(t.Context())
				api := &eventAPI{patch: tc.patch}
				var failed []error
				r := report.NewRecorder(
					api,
					"etcd-main-0",
					time.Second,
					func(err error) { failed = append(failed, err) },
				)
				r.About("garden", "etcd-main", "uid")
				r.Override(&report.Report{Overrides: []string{"Canary"}})
				r.Override(&report.Report{Overrides: []string{"Canary"}})
				ended := make(chan struct{})
				go func() {
					defer close(ended)
					r.Run(ctx)
				}()
				synctest.Wait()
				cancel()
				<-ended
				if !slices.Equal(api.asked, tc.asked) {
					t.Errorf("asked %v, want %v", api.asked, tc.asked)
				}
				if tc.failed != (len(failed) > 0) || tc.failed && !errors.Is(failed[0], tc.patch) {
					t.Errorf("faults %v, want any: %t", failed, tc.failed)
				}
			})
		})
	}
}
