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
		written Record
		want    Record
	}{
		{"one of a presumed operation", Record{Intent: Intent{Operation: RemoveMember, Member: member, Epoch: 6}},
			Record{Intent: Intent{Operation: RemoveMember, Member: member, Epoch: 6}}},
		{"one of a blocking operation", Record{Intent: Intent{Operation: Defragment, Member: member}},
			Record{Intent: Intent{Operation: Defragment, Member: member}}},
		{"a suspect", Record{Suspect: member}, Record{Suspect: member}},
		{"a suspect, and a removal", Record{Suspect: member, Intent: Intent{Operation: Delete, Pod: "p", UID: "u",
			ResourceVersion: "1"}},
			Record{Suspect: member, Intent: Intent{Operation: Delete, Pod: "p", UID: "u", ResourceVersion: "1"}}},
		{"one that lacks the member may be about any pod", Record{Intent: Intent{Operation: RemoveMember}},
			Record{Intent: anyPod}},
		{"one that lacks the cluster", Record{Intent: Intent{Operation: RemoveMember,
			Member: without(func(m *Member) { m.Cluster = 0 })}}, Record{Intent: anyPod}},
		{"one that lacks the member list", Record{Intent: Intent{Operation: RemoveMember,
			Member: without(func(m *Member) { m.List = nil })}}, Record{Intent: anyPod}},
		{"one that lacks name and URLs", Record{Intent: Intent{Operation: RemoveMember,
			Member: without(func(m *Member) { m.Name, m.URLs = "", nil })}}, Record{Intent: anyPod}},
		{"one of a light operation, which nobody writes", Record{Intent: Intent{Operation: MoveLeader, Member: member}},
			Record{Intent: anyPod}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			tc.written.Schema, tc.want.Schema, tc.want.ResourceVersion = Schema, Schema, "1"
			l := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{ResourceVersion: "1",
				Annotations: tc.written.annotations(Needed{}, nil)}}
			if got := Parse(l); !reflect.DeepEqual(got, tc.want) {
				t.Errorf("%s is read as\n%+v, want\n%+v", l.Annotations[IntentAnnotation], got, tc.want)
			}
		})
	}
}
