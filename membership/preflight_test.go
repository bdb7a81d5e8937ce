package membership_test

import (
	"testing"
	"testing/synctest"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/quorate/quorate/internal/etcdtest"
)

// change changes one member.
func change(c *etcdtest.Cluster, n int, by func(m *etcdtest.Member)) {
	c.Set(func(_ *etcdtest.Cluster, members []*etcdtest.Member) { by(members[n]) })
}

func TestAMemberTellsOfADowngradeThatWasEnabled(t *testing.T) {
	c := etcdtest.Start(t, 2)
	change(c, 1, func(m *etcdtest.Member) { m.Version, m.DowngradeTo = "3.6.16", "3.5.0" })
	m := observe(t, newObserver(t, c, generous))
	for i, want := range []string{"", "3.5.0"} {
		if got := m.Members[i].Probe.Status; got.DowngradeTo != want || got.Index != 100 {
			t.Errorf("member %d tells %+v, want %q", i, got, want)
		}
	}
}

func TestEveryVoterIsAskedForItsOwnListOnlyWhereSomebodyWantsToKnow(t *testing.T) {
	// A list that takes long is asked for elsewhere too, so nothing may take long.
	synctest.Test(t, func(t *testing.T) {
		c := etcdtest.StartInMemory(t, 3)
		change(c, 2, func(m *etcdtest.Member) { m.Learner = true })
		asked := func() (n []int) {
			for i := range 3 {
				change(c, i, func(m *etcdtest.Member) { n = append(n, m.LocalLists) })
			}
			return n
		}
		o := newObserver(t, c, generous, c.URLs()[0])
		observe(t, o)
		if n := asked(); n[0]+n[1]+n[2] != 0 {
			t.Errorf("asked %v times without being wanted", n)
		}
		m, err := o.ObserveWithLists(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if n := asked(); n[0] != 1 || n[1] != 1 {
			t.Errorf("asked %v times, want each voter once", n)
		}
		for i, want := range []string{"a0, a1, a2 (learner)", "a0, a1, a2 (learner)", ""} {
			if got := m.Members[i].Probe.OwnList; got != want {
				t.Errorf("member %d lists %q, want %q", i, got, want)
			}
		}
	})
}

func TestTheListThatAMemberHasByItselfIsItsOwn(t *testing.T) {
	for _, tc := range []struct {
		name   string
		change func(m *etcdtest.Member)
		want   string
	}{
		{"another list is told", func(m *etcdtest.Member) {
			m.List = []*pb.Member{{ID: 0xa2}, {ID: 0xa0, IsLearner: true}}
		}, "a0 (learner), a2"},
		{"that of another member is not", func(m *etcdtest.Member) { m.As = 0xbb }, ""},
		{"nor that of another cluster", func(m *etcdtest.Member) { m.OfCluster = 0xcc }, ""},
		{"nor where it is refused", func(m *etcdtest.Member) { m.ListErr = errLists }, ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			c := etcdtest.Start(t, 3)
			change(c, 1, tc.change)
			m, err := newObserver(t, c, generous, c.URLs()[0]).ObserveWithLists(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			if got := m.Members[1].Probe.OwnList; got != tc.want {
				t.Errorf("%q, want %q", got, tc.want)
			}
			if got := m.Members[0].Probe.OwnList; got != "a0, a1, a2" {
				t.Errorf("the first has %q", got)
			}
		})
	}
}

var errLists = status.Error(codes.PermissionDenied, "etcdserver: permission denied")
