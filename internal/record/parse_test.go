package record

import (
	"reflect"
	"testing"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func TestAnIntentOnAMemberIsReadAsItWasWritten(t *testing.T) {
	member := &Member{
		ID: 1<<63 + 7, Name: "etcd-3", Cluster: 1<<63 + 1, List: []uint64{5, 1<<63 + 7},
		URLs: []string{"https://etcd-3:2380"}, Seconds: 60, PodUID: "u", Restarts: 2,
	}
	without := func(change func(*Member)) *Member { m := *member; change(&m); return &m }
	anyPod := Intent{Operation: FenceAll}
	for _, tc := range []struct {
		name    string
		written Lease
		want    Lease
	}{
		{"one of a presumed operation", Lease{Intent: Intent{Operation: RemoveMember, Member: member, Epoch: 6}},
			Lease{Intent: Intent{Operation: RemoveMember, Member: member, Epoch: 6}}},
		{"one of a blocking operation", Lease{Intent: Intent{Operation: Defragment, Member: member}},
			Lease{Intent: Intent{Operation: Defragment, Member: member}}},
		{"a suspect", Lease{Suspect: member}, Lease{Suspect: member}},
		{"a suspect, and a removal", Lease{Suspect: member, Intent: Intent{Operation: Delete, Pod: "p", UID: "u",
			ResourceVersion: "1"}},
			Lease{Suspect: member, Intent: Intent{Operation: Delete, Pod: "p", UID: "u", ResourceVersion: "1"}}},
		{"one that lacks the member may be about any pod", Lease{Intent: Intent{Operation: RemoveMember}},
			Lease{Intent: anyPod}},
		{"one that lacks the cluster", Lease{Intent: Intent{Operation: RemoveMember,
			Member: without(func(m *Member) { m.Cluster = 0 })}}, Lease{Intent: anyPod}},
		{"one that lacks the member list", Lease{Intent: Intent{Operation: RemoveMember,
			Member: without(func(m *Member) { m.List = nil })}}, Lease{Intent: anyPod}},
		{"one that lacks name and URLs", Lease{Intent: Intent{Operation: RemoveMember,
			Member: without(func(m *Member) { m.Name, m.URLs = "", nil })}}, Lease{Intent: anyPod}},
		{"one of a light operation, which nobody writes", Lease{Intent: Intent{Operation: MoveLeader, Member: member}},
			Lease{Intent: anyPod}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			tc.written.Schema, tc.want.Schema, tc.want.ResourceVersion = Schema, Schema, "1"
			l := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{ResourceVersion: "1",
				Annotations: tc.written.annotations(nil)}}
			if got := Parse(l); !reflect.DeepEqual(got, tc.want) {
				t.Errorf("%s is read as\n%+v, want\n%+v", l.Annotations[IntentAnnotation], got, tc.want)
			}
		})
	}
}
