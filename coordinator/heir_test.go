package coordinator

import (
	"slices"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"

	"github.com/quorate/quorate/selfupdate"
)

// While its pod comes up, the sidecar to which an outdated one will hand over reads what it is going to need. There is
// a queue, so these tests run on the machine's clock, and assert order alone.
func TestTheSidecarThatIsHandedTheLockHasPrepared(t *testing.T) {
	learns := []string{readPod, getSet, listPods} // Who it is itself.
	for _, tc := range []struct {
		name string
		// owner is the revision of the owner of the lock, and pod that of the sidecar that waits. If late is true, the
		// watch on the Lease does not tell in time that the record has been given back.
		owner, pod string
		late       bool
		// before is asked before the lock is ours, and after is the beginning of what is asked then.
		before, after []string
	}{
		{"beside an owner of another revision", "rev-1", "etcd-2", false,
			[]string{getSet, listPods}, []string{claims, getSet, listPods, records, "delete etcd-1"}},
		{"and reads a record that has just been given back, if no watch has told of that", "rev-1", "etcd-2", true,
			[]string{getSet, listPods},
			[]string{getLease, claims, getSet, listPods, records, "delete etcd-1"}},
		{"but not beside an owner of its own revision", "rev-2", "etcd-2", false,
			nil, []string{getSet, listPods}},
		{"nor beside one that says nothing", "", "etcd-2", false,
			nil, []string{getSet, listPods}},
		{"nor if its own pod is outdated", "rev-2", "etcd-1", false,
			[]string{getSet, listPods}, nil},
	} {
		t.Run(tc.name, func(t *testing.T) {
			s := newWatchedStage(t)
			s.termination, s.startup = 10*ms, 10*ms
			s.update("rev-2")
			s.change(func() { s.pods[2].Labels[appsv1.ControllerRevisionHashLabelKey] = "rev-2" })
			s.change(func() { *s.lease.Spec.HolderIdentity = "etcd-1_old"; s.written() })
			s.waits(selfupdate.Presence{Pod: "etcd-0", UID: "uid-of-the-owner", Revision: tc.owner})
			defer run(t, s.config(as(tc.pod)))()
			within(t, generous, "in the queue", func() bool { return holders(s.kube) == 2 })
			within(t, generous, "prepared", func() bool { return len(s.asked()) >= len(learns)+len(tc.before) })
			<-time.After(resting / 4) // Nothing else follows.
			if before := s.asked(); !slices.Equal(before, slices.Concat(learns, tc.before)) {
				t.Errorf("before the lock was ours: %v, want %v and %v", before, learns, tc.before)
			}
			if tc.after == nil {
				return
			}
			s.begin()
			if tc.late {
				defer s.hold()()
			}
			s.change(func() { *s.lease.Spec.HolderIdentity = ""; s.written() })
			s.etcd.Delete(presence + peer)
			s.etcd.Delete(lock + peer)
			within(t, generous, "a removal", func() bool { return len(s.at("delete ")) > 0 })
			after := s.asked()
			if len(after) > len(tc.after) {
				after = after[:len(tc.after)]
			}
			if !slices.Equal(inOrder(after), tc.after) {
				t.Errorf("after the lock was ours: %v, want %v", after, tc.after)
			}
		})
	}
}

// inOrder puts what is asked at the same time into one order.
func inOrder(asked []string) []string {
	asked = slices.Clone(asked)
	for i := 1; i < len(asked); i++ {
		if asked[i-1] == listPods && asked[i] == getSet && asked[max(0, i-2)] != getSet {
			asked[i-1], asked[i] = getSet, listPods
		}
	}
	return asked
}
