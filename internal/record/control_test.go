package record

import (
	"context"
	"errors"
	"slices"
	"testing"

	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
)

// script answers one request after the other, and notes them.
type script struct {
	answers []error
	asked   []string
}

func (s *script) next(what string) (*coordinationv1.Lease, error) {
	s.asked = append(s.asked, what)
	err := s.answers[0]
	s.answers = s.answers[1:]
	return &coordinationv1.Lease{}, err
}

func (s *script) Get(context.Context, string, metav1.GetOptions) (*coordinationv1.Lease, error) {
	return nil, errors.New("it is not read")
}

func (s *script) Create(_ context.Context, l *coordinationv1.Lease, _ metav1.CreateOptions) (*coordinationv1.Lease,
	error) {
	if l.Annotations["a"] != "1" || len(l.Annotations) != 1 || !equalSpec(l.Spec) {
		return nil, errors.New("it is more than the control")
	}
	return s.next("create " + l.Name)
}

func equalSpec(s coordinationv1.LeaseSpec) bool { return s == coordinationv1.LeaseSpec{} }

func (s *script) Patch(_ context.Context, name string, pt types.PatchType, data []byte, _ metav1.PatchOptions,
	_ ...string) (*coordinationv1.Lease, error) {
	return s.next(string(pt) + " " + name + " " + string(data))
}

func TestAControlTouchesNothingElse(t *testing.T) {
	resource := schema.GroupResource{Group: "coordination.k8s.io", Resource: "leases"}
	missing, exists := apierrors.NewNotFound(resource, "x"), apierrors.NewAlreadyExists(resource, "x")
	denied := apierrors.NewForbidden(resource, "x", errors.New("no"))
	one := "1"
	setting, removing := map[string]*string{"a": &one, "b": nil}, map[string]*string{"a": nil}
	const patch = `application/merge-patch+json quorate-etcd {"metadata":{"annotations":{"a":"1","b":null}}}`
	const unset = `application/merge-patch+json quorate-etcd {"metadata":{"annotations":{"a":null}}}`
	const create = "create quorate-etcd"
	for _, tc := range []struct {
		name     string
		controls map[string]*string
		answers  []error
		asked    []string
		err      error
	}{
		{"a Lease that is there is patched", setting, []error{nil}, []string{patch}, nil},
		{"one that is not is made", setting, []error{missing, nil}, []string{patch, create}, nil},
		{"and patched when another was faster", setting, []error{missing, exists, nil}, []string{patch, create, patch}, nil},
		{"which may have removed it again", setting, []error{missing, exists, missing}, []string{patch, create, patch},
			missing},
		{"what is not there need not be removed", removing, []error{missing}, []string{unset}, nil},
		{"a missing permission to patch is said", setting, []error{denied}, []string{patch}, denied},
		{"and one to create", setting, []error{missing, denied}, []string{patch, create}, denied},
	} {
		t.Run(tc.name, func(t *testing.T) {
			s := &script{answers: tc.answers}
			_, err := Control(t.Context(), s, "etcd", tc.controls)
			if !errors.Is(err, tc.err) {
				t.Errorf("%v, want %v", err, tc.err)
			}
			if !slices.Equal(s.asked, tc.asked) {
				t.Errorf("asked\n%q, want\n%q", s.asked, tc.asked)
			}
		})
	}
}
