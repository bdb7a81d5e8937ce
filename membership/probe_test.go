package membership_test

import (
	"context"
	"fmt"
	"net"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/connectivity"
	"google.golang.org/grpc/status"

	"github.com/quorate/quorate/internal/etcdtest"
	"github.com/quorate/quorate/membership"
	"github.com/quorate/quorate/pkg/rollout"
)

func TestWhatAProbeProves(t *testing.T) {
	denied := status.Error(codes.PermissionDenied, "etcdserver: permission denied")
	broken := status.Error(codes.Unknown, "etcdserver: something broke")
	for _, tc := range []struct {
		name   string
		change func(m *etcdtest.Member)
		want   rollout.ReadResult
		status bool // whether the member's status is kept
		detail string
	}{
		{"a read that answers is an answer", func(*etcdtest.Member) {}, rollout.Answered, true, ""},
		{"PermissionDenied proves the same", func(m *etcdtest.Member) { m.ReadErr = denied }, rollout.Answered, true,
			""},
		{"PermissionDenied of nobody knows whom proves nothing, neither that it serves nor that it does not",
			func(m *etcdtest.Member) { m.ReadErr, m.StatusErr = denied, broken }, rollout.NotAsked, false,
			"etcd refuses to read /quorate/probe (permission denied): grant its user's role that (etcdctl role " +
				"grant-permission ROLE --prefix=true readwrite /quorate/); no status: etcdserver: something broke"},
		{"where nothing is allowed, both are named",
			func(m *etcdtest.Member) { m.ReadErr, m.StatusErr = denied, denied }, rollout.NotAsked, false,
			"etcd refuses to read /quorate/probe (permission denied): grant its user's role that (etcdctl role " +
				"grant-permission ROLE --prefix=true readwrite /quorate/); no status: " + statusDenied},
		{"a status that is refused says what to grant", func(m *etcdtest.Member) { m.StatusErr = denied },
			rollout.Answered, false, "no status: " + statusDenied},
		{"an error is a failure, and the status is kept", func(m *etcdtest.Member) { m.ReadErr = broken },
			rollout.Failed, true, "no linearizable read: etcdserver: something broke"},
		{"a read without a status is an answer", func(m *etcdtest.Member) { m.StatusErr = broken }, rollout.Answered,
			false, "no status: etcdserver: something broke"},
		{"another member's answer proves nothing", func(m *etcdtest.Member) { m.As = 0xbb }, rollout.WrongMember, false,
			"member bb answered instead of a1"},
		{"another member's answer proves nothing even without a status",
			func(m *etcdtest.Member) { m.As, m.StatusErr = 0xbb, broken }, rollout.WrongMember, false,
			"member bb answered instead of a1"},
		{"another member's refusal proves nothing", func(m *etcdtest.Member) { m.As, m.ReadErr = 0xbb, denied },
			rollout.WrongMember, false, "member bb answered instead of a1"},
		{"another cluster's answer is told apart", func(m *etcdtest.Member) { m.OfCluster = 0xc2 },
			rollout.WrongCluster, false, "cluster c2 answered instead of c1"},
		{"a learner answers a serializable read", func(m *etcdtest.Member) { m.Learner = true }, rollout.Answered, true,
			""},
		{"a learner's failure is called by its name", func(m *etcdtest.Member) { m.Learner, m.ReadErr = true, broken },
			rollout.Failed, true, "no read: etcdserver: something broke"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			c := etcdtest.Start(t, 3)
			o := newObserver(t, c, generous, c.URL(0))
			c.Set(func(_ *etcdtest.Cluster, ms []*etcdtest.Member) { tc.change(ms[1]) })
			m := observe(t, o)
			if got := reads(m); !slices.Equal(got, []rollout.ReadResult{rollout.Answered, tc.want, rollout.Answered}) {
				t.Errorf("reads %v, want %v in the middle and answers around it", got, tc.want)
			}
			p := m.Members[1].Probe
			if p.Detail != tc.detail || (p.Status != nil) != tc.status {
				t.Errorf("detail %q, want %q; status %+v, want one: %v", p.Detail, tc.detail, p.Status, tc.status)
			}
		})
	}
}

// A member's own word counts beside the list (etcd-io/etcd#21694): it answers, and says that it is a learner.
func TestAStatusTellsWhoCallsItselfALearner(t *testing.T) {
	c := etcdtest.Start(t, 3)
	c.Set(func(_ *etcdtest.Cluster, ms []*etcdtest.Member) {
		for _, m := range ms {
			ms[0].List = append(ms[0].List, &pb.Member{ID: m.ID, Name: m.Name, ClientURLs: []string{m.URL}})
		}
		for _, m := range ms[1:] {
			m.List = ms[0].List
		}
		ms[2].Learner = true
	})
	m := observe(t, newObserver(t, c, generous))
	for i, want := range []bool{false, false, true} {
		if x := m.Members[i]; x.Learner || x.Probe.Status == nil || x.Probe.Status.Learner != want {
			t.Errorf("member %d: a learner on the list %v, status %+v, want one that says learner: %v", i, x.Learner,
				x.Probe.Status, want)
		}
	}
}

func TestAlarmsComeFromTheStatus(t *testing.T) {
	c := etcdtest.Start(t, 3)
	c.Set(func(_ *etcdtest.Cluster, ms []*etcdtest.Member) {
		ms[1].Alarms = []string{"memberID:161 alarm:NOSPACE"}
		ms[2].Alarms = []string{"etcdserver: no leader", "memberID:162 alarm:CORRUPT"}
	})
	m := observe(t, newObserver(t, c, generous))
	for i, want := range [][2]bool{{false, false}, {false, true}, {true, false}} {
		if st := m.Members[i].Probe.Status; st.Corrupt != want[0] || st.NoSpace != want[1] {
			t.Errorf("member %d: corrupt %v, no space %v, want %v", i, st.Corrupt, st.NoSpace, want)
		}
	}
	if st := m.Members[2].Probe.Status; !slices.Equal(st.CorruptOf, []uint64{162}) || len(st.NoSpaceOf) > 0 {
		t.Errorf("corrupt %v, no space %v", st.CorruptOf, st.NoSpaceOf)
	}
}

func TestEveryMemberIsAskedUnderItsOwnAddress(t *testing.T) {
	c := etcdtest.Start(t, 3)
	o := newObserver(t, c, generous, c.URL(0))
	for range 3 {
		observe(t, o)
	}
	for i, url := range c.URLs() {
		if n := c.Dials(url); n != 1 {
			t.Errorf("member %d was dialled %d times, want once", i, n)
		}
	}
	if n := c.Dials(c.URLs()...); n != 0 {
		t.Errorf("%d clients could ask any member for another", n)
	}
}

func TestAMemberThatDidNotAnswerIsDialledAnew(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := etcdtest.StartInMemory(t, 3)
		o := newObserver(t, c, impatient)
		observe(t, o)
		c.Set(func(_ *etcdtest.Cluster, ms []*etcdtest.Member) { ms[1].Hung = true })
		observe(t, o)
		c.Set(func(_ *etcdtest.Cluster, ms []*etcdtest.Member) { ms[1].Hung = false })
		if got := reads(observe(t, o)); !slices.Equal(got,
			[]rollout.ReadResult{rollout.Answered, rollout.Answered, rollout.Answered}) {
			t.Errorf("reads %v after it came back", got)
		}
		for i, want := range []int{1, 2, 1} {
			if n := c.Dials(c.URL(i)); n != want {
				t.Errorf("member %d was dialled %d times, want %d", i, n, want)
			}
		}
	})
}

// A coordinator may have waited between two looks, for an answer that came late. What its
// connections have learnt meanwhile is older than the look that is to be decided on.
func TestAMemberThatHasRestartedBetweenTwoLooksIsAskedOverANewConnection(t *testing.T) {
	listen := func(address string) net.Listener {
		l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", address)
		if err != nil {
			t.Fatal(err)
		}
		return l
	}
	steady, restarted := listen("127.0.0.1:0"), listen("127.0.0.1:0")
	address := restarted.Addr().String()
	c := etcdtest.New(etcdtest.ID, "http://"+steady.Addr().String(), "http://"+address)
	defer c.Serve(0, steady)()
	stop := c.Serve(1, restarted)
	var client *clientv3.Client // to the one that restarts
	dial := func(endpoints []string) (*clientv3.Client, error) {
		dialled, err := c.Dial(endpoints)
		if endpoints[0] == c.URL(1) {
			client = dialled
		}
		return dialled, err
	}
	o := membership.NewObserver(dial, []string{c.URL(0)}, generous)
	t.Cleanup(o.Close)
	if got := reads(observe(t, o)); !slices.Equal(got, []rollout.ReadResult{rollout.Answered, rollout.Answered}) {
		t.Fatal(got)
	}
	stop()
	waiting, cancel := context.WithTimeout(t.Context(), generous)
	defer cancel()
	connection := client.ActiveConnection()
	for state := connection.GetState(); state != connectivity.TransientFailure; state = connection.GetState() {
		connection.Connect()
		if !connection.WaitForStateChange(waiting, state) {
			t.Fatal("the connection did not fail")
		}
	}
	defer c.Serve(1, listen(address))()
	if m := observe(t, o); m.Members[1].Probe.Read != rollout.Answered || m.Members[1].Probe.Status == nil {
		t.Errorf("it serves, but: %+v", m.Members[1].Probe)
	}
}

// In most clusters each new pod has a new address, to which its name leads.
func TestAMemberWhosePodHasANewAddressIsReachedByItsName(t *testing.T) {
	const url = "http://etcd-1.etcd-peer.ns.svc:2379"
	listen := func() net.Listener {
		l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		return l
	}
	steady, old := listen(), listen()
	var leads atomic.Value // where the name leads
	leads.Store(old.Addr().String())
	c := etcdtest.New(etcdtest.ID, "http://"+steady.Addr().String(), url)
	defer c.Serve(0, steady)()
	stop := c.Serve(1, old)
	dial := func(endpoints []string) (*clientv3.Client, error) {
		return clientv3.New(clientv3.Config{Endpoints: endpoints, Logger: zap.NewNop(), DialOptions: []grpc.DialOption{
			grpc.WithContextDialer(func(ctx context.Context, address string) (net.Conn, error) {
				if strings.HasPrefix(address, "etcd-1") {
					address = leads.Load().(string)
				}
				return (&net.Dialer{}).DialContext(ctx, "tcp", address)
			})}})
	}
	o := membership.NewObserver(dial, []string{c.URL(0)}, generous)
	t.Cleanup(o.Close)
	both := []rollout.ReadResult{rollout.Answered, rollout.Answered}
	if got := reads(observe(t, o)); !slices.Equal(got, both) {
		t.Fatal(got)
	}
	stop()
	if got := reads(observe(t, o)); !slices.Equal(got, []rollout.ReadResult{rollout.Answered, rollout.Failed}) {
		t.Errorf("reads %v while nobody is at the old address", got)
	}
	successor := listen()
	defer c.Serve(1, successor)()
	leads.Store(successor.Addr().String())
	if got := reads(observe(t, o)); !slices.Equal(got, both) {
		t.Errorf("reads %v where its name leads to another address", got)
	}
}

func TestSilenceOverAnOldConnectionIsNoWitness(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := etcdtest.StartInMemory(t, 3)
		o := newObserver(t, c, impatient)
		observe(t, o)
		c.Set(func(_ *etcdtest.Cluster, ms []*etcdtest.Member) { ms[1].Hung = true })
		for _, want := range []rollout.ReadResult{rollout.NotAsked, rollout.Failed, rollout.Failed} {
			if got := reads(observe(t, o)); got[1] != want || got[0] != rollout.Answered || got[2] != rollout.Answered {
				t.Errorf("got %v, want %v in the middle", got, want)
			}
		}
	})
}

func TestAMemberThatHasNeverStartedHasNoAddress(t *testing.T) {
	c := etcdtest.Start(t, 2)
	c.Add(etcdtest.Member{ID: 0xa2})
	m := observe(t, newObserver(t, c, generous))
	if x := m.Members[2]; x.Name != "" || x.Probe.Read != rollout.Failed ||
		x.Probe.Detail != "the member has never started" {
		t.Errorf("got %+v", x)
	}
}

// From a laptop the members' own names lead nowhere, and a port-forward leads to one member each.
func TestAMemberAnswersThroughARelay(t *testing.T) {
	for _, tc := range []struct {
		name string
		// relays are the members that the relays lead to.
		relays []int
		want   []rollout.ReadResult
	}{
		{"none", nil, []rollout.ReadResult{rollout.Failed, rollout.Failed, rollout.Failed}},
		{"to one of them", []int{1}, []rollout.ReadResult{rollout.Failed, rollout.Answered, rollout.Failed}},
		{"to each of them", []int{2, 0, 1}, []rollout.ReadResult{rollout.Answered, rollout.Answered, rollout.Answered}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			c := etcdtest.Start(t, 3)
			c.Set(func(_ *etcdtest.Cluster, members []*etcdtest.Member) {
				for i, m := range members {
					m.Advertised = []string{fmt.Sprintf("http://127.0.0.1:%d", i+1)} // Nobody listens there.
				}
			})
			o := newObserver(t, c, generous)
			for _, i := range tc.relays {
				o.Relays = append(o.Relays, c.URL(i))
			}
			m := observe(t, o)
			if got := reads(m); !slices.Equal(got, tc.want) {
				t.Errorf("%v, want %v", got, tc.want)
			}
			for i, x := range m.Members {
				if x.Probe.Read == rollout.Answered && (x.Probe.Status == nil || x.Probe.URL != c.URL(i)) {
					t.Errorf("member %d: %+v", i, x.Probe)
				}
				if x.Probe.Read == rollout.Failed && !strings.Contains(x.Probe.Detail, "connection refused") {
					t.Errorf("member %d is said to fail by another's answer: %q", i, x.Probe.Detail)
				}
			}
		})
	}
}

// A relay that leads nowhere says nothing against a member that answers under its own URL.
func TestABrokenRelaySaysNothing(t *testing.T) {
	c := etcdtest.Start(t, 1)
	o := newObserver(t, c, generous)
	o.Relays = []string{"http://127.0.0.1:1"}
	if m := observe(t, o); m.Members[0].Probe.Read != rollout.Answered || m.Members[0].Probe.Shared {
		t.Errorf("%+v", m.Members[0].Probe)
	}
}
