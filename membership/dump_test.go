package membership_test

import (
	"encoding/json"
	"fmt"
	"slices"
	"testing"

	"github.com/quorate/quorate/membership"
	"github.com/quorate/quorate/pkg/rollout"
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

// row is a status: which member answered at which endpoint.
type row struct {
	endpoint string
	member   uint64
}

// dumped makes dumps of a cluster whose members, from 1 on, advertise these URLs. Health is by endpoint, with what is
// wrong with it.
func dumped(t *testing.T, advertised ...[]string) func(status []row, health map[string]string) rollout.Membership {
	t.Helper()
	text := func(v any) []byte {
		data, err := json.Marshal(v)
		if err != nil {
			t.Fatal(err)
		}
		return data
	}
	type object = map[string]any
	var members []object
	for i, urls := range advertised {
		members = append(members, object{"ID": i + 1, "name": fmt.Sprint("etcd-", i), "clientURLs": urls})
	}
	return func(status []row, health map[string]string) rollout.Membership {
		var statuses, healths []object
		for _, s := range status {
			statuses = append(statuses, object{"Endpoint": s.endpoint, "Status": object{
				"header": object{"cluster_id": 7, "member_id": s.member}, "version": "3.5.35"}})
		}
		for endpoint, wrong := range health {
			healths = append(healths, object{"endpoint": endpoint, "health": wrong == "", "error": wrong})
		}
		m, err := membership.Dump{
			MemberList:     text(object{"header": object{"cluster_id": 7}, "members": members}),
			EndpointStatus: text(statuses), EndpointHealth: text(healths),
		}.Membership()
		if err != nil {
			t.Fatal(err)
		}
		return m
	}
}

func TestDumpsOfMembersThatAdvertiseASharedURL(t *testing.T) {
	const service, wrong = "https://etcd:2379", "context deadline exceeded"
	both := [][]string{{"https://a:2379", service}, {service, "https://b:2379"}}
	serves, fails := rollout.Answered, rollout.Failed
	for _, tc := range []struct {
		name       string
		advertised [][]string
		status     []row
		health     map[string]string
		want       []rollout.ReadResult
	}{
		{"each serves at its own, whoever answers the shared one", both,
			[]row{{service, 2}, {"https://a:2379", 1}, {service, 2}, {"https://b:2379", 2}},
			map[string]string{service: "", "https://a:2379": "", "https://b:2379": ""},
			[]rollout.ReadResult{serves, serves}},
		{"one fails at its own, and the shared one is well", both,
			[]row{{service, 2}, {"https://b:2379", 2}},
			map[string]string{service: "", "https://a:2379": wrong, "https://b:2379": ""},
			[]rollout.ReadResult{fails, serves}},
		{"the same without statuses", both, nil,
			map[string]string{service: "", "https://a:2379": wrong, "https://b:2379": ""},
			[]rollout.ReadResult{fails, serves}},
		{"nobody was asked at its own", both, []row{{service, 2}}, map[string]string{service: ""},
			[]rollout.ReadResult{rollout.NotAsked, rollout.NotAsked}},
		{"another answers at its own, and fails at that", both,
			[]row{{"https://a:2379", 2}, {"https://b:2379", 2}},
			map[string]string{"https://a:2379": wrong, "https://b:2379": ""},
			[]rollout.ReadResult{rollout.WrongMember, serves}},
		{"an endpoint that is a tunnel to one after the other is nobody's",
			[][]string{{"https://a:2379"}, {"https://b:2379"}}, []row{{"127.0.0.1:2379", 1}, {"127.0.0.1:2379", 2}},
			map[string]string{"127.0.0.1:2379": ""}, []rollout.ReadResult{rollout.NotAsked, rollout.NotAsked}},
		{"a single member may advertise what it likes", [][]string{{"http://0.0.0.0:2379"}}, nil,
			map[string]string{"http://0.0.0.0:2379": ""}, []rollout.ReadResult{serves}},
		{"IPv6 addresses in other spellings",
			[][]string{{"https://[fd00::0e5f:0]:2379"}, {"https://[FD00::E5F:1]:2379/"}},
			[]row{{"https://[fd00::e5f:0]:2379", 1}, {"[fd00:0:0::e5f:1]:2379", 2}},
			map[string]string{"https://[fd00::e5f:0]:2379": "", "[fd00:0:0::e5f:1]:2379": ""},
			[]rollout.ReadResult{serves, serves}},
		{"the same without statuses",
			[][]string{{"https://[fd00::0e5f:0]:2379"}, {"https://[FD00::E5F:1]:2379/"}}, nil,
			map[string]string{"https://[fd00::e5f:0]:2379": "", "[fd00:0:0::e5f:1]:2379": wrong},
			[]rollout.ReadResult{serves, fails}},
		{"other cases, and the scheme's own port", [][]string{{"https://A.ns.svc"}, {"http://b:80/"}}, nil,
			map[string]string{"HTTPS://a.ns.svc:443": "", "b:80": ""}, []rollout.ReadResult{serves, serves}},
		{"another port is another URL", [][]string{{"https://a:2379"}, {"https://b:2379"}}, nil,
			map[string]string{"https://a:2381": "", "https://b": ""},
			[]rollout.ReadResult{rollout.NotAsked, rollout.NotAsked}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			m := dumped(t, tc.advertised...)(tc.status, tc.health)
			if got := reads(m); !slices.Equal(got, tc.want) {
				t.Errorf("reads %v, want %v; %s", got, tc.want, m.Members[0].Probe.Detail)
			}
		})
	}
}
