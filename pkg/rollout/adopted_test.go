package rollout_test

import (
	"slices"
	"testing"

	"github.com/quorate/quorate/pkg/rollout"
)

// What is not as an adopted cluster has it is assumed and told, and nothing else is touched.
func TestAdoptedAssumesOnlyWhatIsNotSo(t *testing.T) {
	state := func(change func(*rollout.State)) rollout.State {
		s := rollout.State{
			Set: rollout.Set{OnDelete: true, UpdateRevision: "etcd-7c9f4b6d58"},
			Pods: []rollout.Pod{{Name: "etcd-0", Owned: true, Revision: "etcd-5f6d8c9b7d"},
				{Name: "etcd-1", Owned: true, Revision: "etcd-7c9f4b6d58"}},
		}
		change(&s)
		return s
	}
	current := func(s *rollout.State) { s.Pods[0].Revision = s.Set.UpdateRevision }
	for _, tc := range []struct {
		name   string
		change func(*rollout.State)
		want   []rollout.Assumption
	}{
		{"a rollout that is due needs no assumption", func(*rollout.State) {}, nil},
		{"another strategy", func(s *rollout.State) { s.Set.OnDelete = false },
			[]rollout.Assumption{rollout.AssumedOnDelete}},
		{"a pause", func(s *rollout.State) { s.Controls.Paused = true }, []rollout.Assumption{rollout.AssumedResumed}},
		{"no pod is outdated", current, []rollout.Assumption{rollout.AssumedOutdated}},
		{"a pod of somebody else's that is outdated does not count", func(s *rollout.State) {
			current(s)
			s.Pods[0].Owned, s.Pods[0].Revision = false, "etcd-5f6d8c9b7d"
		}, []rollout.Assumption{rollout.AssumedOutdated}},
		{"without a revision nothing is known of what is outdated", func(s *rollout.State) {
			s.Set.UpdateRevision, s.Pods[0].Revision, s.Pods[1].Revision = "", "", ""
		}, nil},
		{"without a pod there is none to be outdated", func(s *rollout.State) { s.Pods = nil }, nil},
	} {
		t.Run(tc.name, func(t *testing.T) {
			before := state(tc.change)
			s, got := rollout.Adopted(before)
			if !slices.Equal(got, tc.want) {
				t.Errorf("assumes %q, want %q", got, tc.want)
			}
			if !s.Set.OnDelete || s.Controls.Paused {
				t.Errorf("it would still not be rolled: %+v", s.Set)
			}
			due := slices.ContainsFunc(s.Pods, func(p rollout.Pod) bool { return p.Owned && s.Set.Outdated(&p) })
			if due != (len(s.Pods) > 0 && s.Set.UpdateRevision != "") {
				t.Errorf("a pod is outdated: %v", due)
			}
			// The guard Returns judges how long the name is.
			if len(s.Set.UpdateRevision) != len(before.Set.UpdateRevision) {
				t.Errorf("%q is now %q", before.Set.UpdateRevision, s.Set.UpdateRevision)
			}
		})
	}
}
