package record_test

import (
	"context"
	"errors"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/quorate/quorate/internal/record"
	"github.com/quorate/quorate/pkg/rollout"
)

func TestARequestHoldsForTenMinutes(t *testing.T) {
	now := time.Date(2026, 1, 2, 15, 0, 0, 0, time.UTC)
	made := func(ago time.Duration) string {
		return record.RequestText(rollout.Request{Operation: "remove-member", Cluster: 1<<64 - 1, Member: 7, Name: "etcd-3",
			At: now.Add(-ago)})
	}
	for _, tc := range []struct {
		name, text  string
		holds, fine bool
	}{
		{"none", "", false, true},
		{"one made a moment ago", made(time.Second), true, true},
		{"one made ten minutes ago", made(10 * time.Minute), true, true},
		{"an older one, as from a backup", made(10*time.Minute + 1), false, true},
		{"one by a clock that is a little ahead", made(-time.Minute), true, true},
		{"one from the future", made(-2 * time.Minute), false, false},
		{"one without a time", `{"operation":"remove-member","cluster":"1","member":"7"}`, false, true},
		{"what is no JSON", "remove etcd-3", false, false},
		{"an ID that is no number", `{"operation":"remove-member","cluster":"x","member":"7"}`, false, false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			r, err := record.RequestOf(lease(map[string]string{record.RequestAnnotation: tc.text}), now)
			if (r != nil) != tc.holds || (err == nil) != tc.fine {
				t.Fatalf("%+v, %v", r, err)
			}
			if r != nil && (r.Cluster != 1<<64-1 || r.Member != 7 || r.Name != "etcd-3") {
				t.Errorf("%+v", *r)
			}
		})
	}
	if r, err := record.RequestOf(nil, now); r != nil || err != nil {
		t.Errorf("without a Lease: %+v, %v", r, err)
	}
}

// shelf has one Lease, and answers a patch of it.
type shelf struct {
	record.Leases
	lease   *coordinationv1.Lease
	patched int
	answer  error
}

func (s *shelf) Get(context.Context, string, metav1.GetOptions) (*coordinationv1.Lease, error) {
	if s.lease == nil {
		return nil, apierrors.NewNotFound(schema.GroupResource{Resource: "leases"}, "quorate-etcd")
	}
	return s.lease, nil
}

func (s *shelf) Patch(context.Context, string, types.PatchType, []byte, metav1.PatchOptions, ...string) (
	*coordinationv1.Lease, error) {
	s.patched++
	return s.lease, s.answer
}

func TestOnlyWhatIsMeantIsTakenOffTheLease(t *testing.T) {
	at := time.Date(2026, 1, 2, 15, 0, 0, 0, time.UTC)
	meant := rollout.Request{Operation: "remove-member", Cluster: 1, Member: 7, Name: "etcd-3", At: at}
	other := meant
	other.Member = 8
	asked := func(r rollout.Request) *coordinationv1.Lease {
		return lease(map[string]string{record.RequestAnnotation: record.RequestText(r)})
	}
	overridden := func(revision string) *coordinationv1.Lease {
		return lease(map[string]string{rollout.ControlOverrideRevision: revision})
	}
	denied := apierrors.NewForbidden(schema.GroupResource{Resource: "leases"}, "quorate-etcd", errors.New("no"))
	changed := apierrors.NewConflict(schema.GroupResource{Resource: "leases"}, "quorate-etcd", errors.New("it changed"))
	withdraw := func(s *shelf) error { return record.Withdraw(t.Context(), s, "etcd", meant) }
	end := func(s *shelf) error {
		ended, err := record.EndOverride(t.Context(), s, "etcd", "rev-2")
		if want := s.patched > 0 && s.answer == nil; ended != want {
			t.Errorf("ended: %v, want %v", ended, want)
		}
		return err
	}
	for _, tc := range []struct {
		name    string
		do      func(*shelf) error
		lease   *coordinationv1.Lease
		answer  error
		patched int
		err     error
	}{
		{"the request", withdraw, asked(meant), nil, 1, nil},
		{"no other that has replaced it", withdraw, asked(other), nil, 0, nil},
		{"no request on a Lease without one", withdraw, lease(nil), nil, 0, nil},
		{"nothing where there is no Lease", withdraw, nil, nil, 0, nil},
		{"nothing more if somebody has changed it meanwhile", withdraw, asked(meant), changed, 1, nil},
		{"and a missing permission is told", withdraw, asked(meant), denied, 1, denied},
		{"the override for the revision", end, overridden("rev-2"), nil, 1, nil},
		{"no override for another one", end, overridden("rev-3"), nil, 0, nil},
		{"no override where there is no Lease", end, nil, nil, 0, nil},
		{"no override if somebody has changed it meanwhile", end, overridden("rev-2"), changed, 1, nil},
		{"and a missing permission is told as well", end, overridden("rev-2"), denied, 1, denied},
	} {
		t.Run(tc.name, func(t *testing.T) {
			s := &shelf{lease: tc.lease, answer: tc.answer}
			if err := tc.do(s); !errors.Is(err, tc.err) {
				t.Errorf("%v, want %v", err, tc.err)
			}
			if s.patched != tc.patched {
				t.Errorf("patched %d times, want %d", s.patched, tc.patched)
			}
		})
	}
}
