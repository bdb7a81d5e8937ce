package membership_test

import (
	"testing"

	"github.com/quorate/quorate/internal/membership"
	"github.com/quorate/quorate/internal/rollout"
)

// FuzzDump reads anything as etcdctl's output: no panic, and nobody serves who is not
// said to be healthy or, for a learner, to have answered.
func FuzzDump(f *testing.F) {
	list := `{"header":{"cluster_id":14841639068965178418},"members":[{"ID":10276657743932975437,"name":"etcd-main-0","peerURLs":["https://a:2380"],"clientURLs":["https://a:2379"]},{"ID":3,"peerURLs":["https://b:2380"],"isLearner":true}]}`
	status := `[{"Endpoint":"a:2379","Status":{"header":{"cluster_id":14841639068965178418,"member_id":10276657743932975437},"version":"3.5.21","leader":10276657743932975437,"raftIndex":9,"raftTerm":2,"raftAppliedIndex":9}}]`
	health := `[{"endpoint":"a:2379","health":true,"took":"2ms"}]`
	f.Add([]byte(list), []byte(status), []byte(health))
	f.Add([]byte(list), []byte(`[{"Endpoint":"a:2379","Status":null}]`), []byte(`null`))
	f.Add([]byte(list), []byte(`[{"Endpoint":"a:2379","Status":{"header":{"cluster_id":1,"member_id":2}}}]`),
		[]byte(health))
	f.Add([]byte(`null`), []byte(`{}`), []byte(``))
	f.Fuzz(func(t *testing.T, list, status, health []byte) {
		m, err := membership.Dump{MemberList: list, EndpointStatus: status, EndpointHealth: health}.Membership()
		if err != nil {
			return
		}
		if m.Known != (len(m.Members) > 0) {
			t.Errorf("known is %v with %d members", m.Known, len(m.Members))
		}
		for _, x := range m.Members {
			if x.Probe.Read == rollout.Answered && health == nil && !x.Learner {
				t.Errorf("member %x serves although there is no health", x.ID)
			}
		}
	})
}

func TestDumpOfAMemberUnderAnotherEndpoint(t *testing.T) {
	list := `{"header":{"cluster_id":7},"members":[{"ID":18446744073709551615,"name":"etcd-main-0","peerURLs":["https://a:2380"],"clientURLs":["https://a:2379"]}]}`
	status := func(endpoint, cluster, member string) string {
		return `[{"Endpoint":"` + endpoint + `","Status":{"header":{"cluster_id":` + cluster + `,"member_id":` +
			member + `}}}]`
	}
	for _, tc := range []struct {
		name, status, health string
		want                 rollout.ReadResult
	}{
		{"its own endpoint, without a scheme, is it", status("a:2379", "7", "18446744073709551615"),
			`[{"endpoint":"a:2379","health":true}]`, rollout.Answered},
		{"an endpoint of another name is it by its ID", status("127.0.0.1:2379", "7", "18446744073709551615"),
			`[{"endpoint":"127.0.0.1:2379","health":true}]`, rollout.Answered},
		{"an endpoint of another name without a status is nobody", `[]`,
			`[{"endpoint":"127.0.0.1:2379","health":true}]`, rollout.NotAsked},
		{"another member at its endpoint proves nothing", status("https://a:2379", "7", "1"),
			`[{"endpoint":"https://a:2379","health":true}]`, rollout.WrongMember},
		{"another cluster at its endpoint is told", status("https://a:2379", "8", "18446744073709551615"),
			`[{"endpoint":"https://a:2379","health":true}]`, rollout.WrongCluster},
		{"no read through its endpoint is a failure", status("a:2379", "7", "18446744073709551615"),
			`[{"endpoint":"a:2379","health":false,"error":"context deadline exceeded"}]`, rollout.Failed},
	} {
		t.Run(tc.name, func(t *testing.T) {
			m, err := membership.Dump{MemberList: []byte(list), EndpointStatus: []byte(tc.status),
				EndpointHealth: []byte(tc.health)}.Membership()
			if err != nil {
				t.Fatal(err)
			}
			if got := m.Members[0].Probe.Read; got != tc.want {
				t.Errorf("read is %d, want %d (%s)", got, tc.want, m.Members[0].Probe.Detail)
			}
		})
	}
}

func TestADumpTellsOfADowngradeThatWasEnabled(t *testing.T) {
	list := `{"header":{"cluster_id":7},"members":[{"ID":5,"name":"a","clientURLs":["https://a:2379"]}]}`
	for _, tc := range []struct{ name, info, want string }{
		{"enabled", `{"enabled":true,"targetVersion":"3.5.0"}`, "3.5.0"},
		{"cancelled", `{"targetVersion":"3.5.0"}`, ""},
		{"by a member that cannot tell", `null`, ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			status := `[{"Endpoint":"a:2379","Status":{"header":{"cluster_id":7,"member_id":5},"version":"3.6.16",` +
				`"downgradeInfo":` + tc.info + `}}]`
			m, err := membership.Dump{MemberList: []byte(list), EndpointStatus: []byte(status)}.Membership()
			if err != nil {
				t.Fatal(err)
			}
			if got := m.Members[0].Probe.Status; got.DowngradeTo != tc.want || got.Version != "3.6.16" {
				t.Errorf("%+v", got)
			}
		})
	}
}

func TestADumpTellsWhoCallsItselfALearner(t *testing.T) {
	list := `{"header":{"cluster_id":7},"members":[` +
		`{"ID":1,"name":"a","clientURLs":["https://a:2379"]},{"ID":2,"name":"b","clientURLs":["https://b:2379"]}]}`
	status := `[{"Endpoint":"https://a:2379","Status":{"header":{"cluster_id":7,"member_id":1},"version":"3.5.35"}},` +
		`{"Endpoint":"https://b:2379","Status":{"header":{"cluster_id":7,"member_id":2},"isLearner":true}}]`
	m, err := membership.Dump{MemberList: []byte(list), EndpointStatus: []byte(status)}.Membership()
	if err != nil {
		t.Fatal(err)
	}
	if m.Members[0].Probe.Status.Learner || !m.Members[1].Probe.Status.Learner {
		t.Errorf("%+v, %+v", m.Members[0].Probe.Status, m.Members[1].Probe.Status)
	}
}
