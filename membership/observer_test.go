package membership_test

import (
	"context"
	"errors"
	"net"
	"reflect"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/goleak"
	"go.uber.org/zap"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/connectivity"
	"google.golang.org/grpc/status"

	"github.com/quorate/quorate/internal/etcdtest"
	"github.com/quorate/quorate/membership"
	"github.com/quorate/quorate/pkg/rollout"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const (
	// impatient is for tests in which something has to time out, generous for those in
	// which nothing should.
	impatient = 300 * time.Millisecond
	generous  = 30 * time.Second
)

func newObserver(t *testing.T, c *etcdtest.Cluster, timeout time.Duration, endpoints ...string) *membership.Observer {
	if len(endpoints) == 0 {
		endpoints = c.URLs()
	}
	o := membership.NewObserver(c.Dial, endpoints, timeout)
	t.Cleanup(o.Close)
	return o
}

func observe(t *testing.T, o *membership.Observer) rollout.Membership {
	t.Helper()
	m, err := o.Observe(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return m
}

func reads(m rollout.Membership) []rollout.ReadResult {
	var out []rollout.ReadResult
	for _, x := range m.Members {
		out = append(out, x.Probe.Read)
	}
	return out
}

func TestAHealthyClusterAnswersForItself(t *testing.T) {
	c := etcdtest.Start(t, 3)
	m := observe(t, newObserver(t, c, generous))
	if !m.Known || !m.Linearizable || m.ClusterID != etcdtest.ID || len(m.Members) != 3 {
		t.Fatalf("got %+v", m)
	}
	for i, x := range m.Members {
		want := rollout.Status{Leader: 0xa0, Term: 2, Index: 100, Applied: 100, Revision: 100, Version: "3.5.35"}
		if x.ID != 0xa0+uint64(i) || x.Name == "" || x.Learner || len(x.PeerURLs) != 1 || len(x.ClientURLs) != 1 {
			t.Errorf("member %d: %+v", i, x)
		}
		if x.Probe.ReadTerm != 2 {
			t.Errorf("member %d: read at term %d, want 2", i, x.Probe.ReadTerm)
		}
		if x.Probe.Read != rollout.Answered || x.Probe.Detail != "" || x.Probe.Status == nil ||
			!reflect.DeepEqual(*x.Probe.Status, want) {
			t.Errorf("member %d: probe %+v, status %+v", i, x.Probe, x.Probe.Status)
		}
	}
}

const statusDenied = "etcd refuses Status (permission denied): grant its user the role root (etcdctl user " +
	"grant-role USER root)," +
	" or use a patch release that does not ask for it, 3.5.32 or 3.6.12 or newer"

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

func TestAMemberThatHangsDelaysNobodyElse(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := etcdtest.StartInMemory(t, 3)
		c.Set(func(_ *etcdtest.Cluster, ms []*etcdtest.Member) { ms[1].Hung = true })
		m := observe(t, newObserver(t, c, impatient))
		if got := reads(m); !slices.Equal(got, []rollout.ReadResult{rollout.Answered, rollout.Failed,
			rollout.Answered}) {
			t.Errorf("reads %v", got)
		}
		if d := m.Members[1].Probe.Detail; d != "no linearizable read: timed out" {
			t.Errorf("detail %q", d)
		}

		// The probes run at once: one after the other, every member but the first would
		// find the deadline passed.
		c.Set(func(_ *etcdtest.Cluster, ms []*etcdtest.Member) { ms[0].Hung, ms[1].Hung = true, false })
		if got := reads(observe(t, newObserver(t, c, impatient))); !slices.Equal(got,
			[]rollout.ReadResult{rollout.Failed, rollout.Answered, rollout.Answered}) {
			t.Errorf("reads %v", got)
		}
	})
}

// A dial function that blocks, as clientv3.New does with a user name when the member
// does not answer, neither delays the others nor counts as our own fault.
func TestAMemberThatCannotBeDialledDelaysNobodyElse(t *testing.T) {
	for _, tc := range []struct {
		name string
		err  error
		want rollout.ReadResult
	}{
		{"a deadline is the member's failure", context.DeadlineExceeded, rollout.Failed},
		{"a connection that is refused is the member's failure", status.Error(codes.Unavailable, "connection refused"),
			rollout.Failed},
		{"so is a member that has no leader to ask for a token", rpctypes.ErrNoLeader, rollout.Failed},
		{"a wrong password is our own fault", rpctypes.ErrAuthFailed, rollout.NotAsked},
		{"an unreadable certificate is our own fault", errors.New("open tls.crt: permission denied"), rollout.NotAsked},
	} {
		t.Run(tc.name, func(t *testing.T) {
			c := etcdtest.Start(t, 3)
			// The dials of the other two end only when this one has begun: that takes
			// all three at once.
			var begun atomic.Int32
			all := make(chan struct{})
			dial := func(endpoints []string) (*clientv3.Client, error) {
				if begun.Add(1) == 4 { // The first is for the list.
					close(all)
				}
				if begun.Load() > 1 {
					<-all
				}
				if endpoints[0] == c.URL(1) {
					return nil, tc.err
				}
				return c.Dial(slices.Clone(endpoints))
			}
			// Without a scheme, the endpoint has a client of its own.
			o := membership.NewObserver(dial, []string{strings.TrimPrefix(c.URL(0), "http://")}, generous)
			t.Cleanup(o.Close)
			m := observe(t, o)
			if got := reads(m); !slices.Equal(got, []rollout.ReadResult{rollout.Answered, tc.want, rollout.Answered}) {
				t.Errorf("reads %v", got)
			}
			if d := m.Members[1].Probe.Detail; d == "" {
				t.Error("the probe does not say why")
			}
		})
	}
}

func TestOneConfiguredEndpointIsEnough(t *testing.T) {
	c := etcdtest.Start(t, 3)
	o := newObserver(t, c, generous, c.URL(1))
	if got := o.MemberURLs(); len(got) != 0 {
		t.Errorf("URLs %v before anything was read", got)
	}
	serving, err := o.Discover(t.Context())
	var urls []string
	for i := range serving {
		urls = append(urls, serving[i].ClientURLs...)
	}
	if err != nil || !slices.Equal(urls, c.URLs()) {
		t.Fatalf("%v serve (%v), want every member, %v", urls, err, c.URLs())
	}
	if got := o.MemberURLs(); !slices.Equal(got, c.URLs()) {
		t.Errorf("URLs %v, want every member's, each once, %v", got, c.URLs())
	}
	// Its own member may go: the others are known by now.
	c.Stop(1)
	m := observe(t, o)
	if got := reads(m); !m.Linearizable || !slices.Equal(got,
		[]rollout.ReadResult{rollout.Answered, rollout.Failed, rollout.Answered}) {
		t.Errorf("linearizable %v, reads %v", m.Linearizable, got)
	}
	if d := m.Members[1].Probe.Detail; !strings.HasPrefix(d, "no linearizable read: ") ||
		strings.Contains(d, "timed out") {
		t.Errorf("detail %q, want what is wrong with the connection", d)
	}
	// The second time a new connection is refused.
	if d := observe(t, o).Members[1].Probe.Detail; !strings.HasSuffix(d, "connect: connection refused") {
		t.Errorf("detail %q, want the refused connection", d)
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

func TestAMemberThatLeftIsNotDialledAnyMore(t *testing.T) {
	c := etcdtest.Start(t, 3)
	o := newObserver(t, c, generous, c.URL(0))
	observe(t, o)
	c.Set(func(_ *etcdtest.Cluster, ms []*etcdtest.Member) {
		for _, m := range ms[:2] {
			m.List = []*pb.Member{{ID: 0xa0, Name: "etcd-0", ClientURLs: []string{ms[0].URL}},
				{ID: 0xa1, Name: "etcd-1", ClientURLs: []string{ms[1].URL}}}
		}
		ms[2].ListErr = errors.New("removed")
	})
	if m := observe(t, o); len(m.Members) != 2 {
		t.Fatalf("%d members", len(m.Members))
	}
	if got := o.MemberURLs(); !slices.Equal(got, []string{c.URL(0), c.URL(1)}) {
		t.Errorf("URLs %v", got)
	}
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

func TestWithoutConsensusTheMostAdvancedMembersListCounts(t *testing.T) {
	for _, tc := range []struct {
		name   string
		change func(ms []*etcdtest.Member)
		want   int
	}{
		{"the highest term", func(ms []*etcdtest.Member) { ms[1].Term, ms[0].Index, ms[2].Index = 5, 900, 800 }, 1},
		{"the highest index at one term", func(ms []*etcdtest.Member) { ms[2].Index = 800 }, 2},
		{"a member that cannot tell its index counts as the last",
			func(ms []*etcdtest.Member) { ms[2].StatusErr, ms[1].Index = errors.New("busy"), 1 }, 0},
		{"a member that hangs is not waited for beyond its time",
			func(ms []*etcdtest.Member) { ms[0].Hung, ms[1].Index = true, 300 }, 1},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := etcdtest.StartInMemory(t, 3)
				c.LoseQuorum()
				c.Set(func(_ *etcdtest.Cluster, ms []*etcdtest.Member) {
					for i, m := range ms { // Each knows another list, told apart by its first name.
						m.List = []*pb.Member{{ID: m.ID, Name: "first-of-" + m.Name, ClientURLs: []string{m.URL}}}
						for j, o := range ms {
							if i != j {
								m.List = append(m.List, &pb.Member{ID: o.ID, Name: o.Name, ClientURLs: []string{o.URL}})
							}
						}
					}
					tc.change(ms)
				})
				m := observe(t, newObserver(t, c, impatient))
				if !m.Known || m.Linearizable {
					t.Fatalf("known %v, linearizable %v; want a list of one member's own", m.Known, m.Linearizable)
				}
				if want := "first-of-" + []string{"etcd-0", "etcd-1", "etcd-2"}[tc.want]; m.Members[0].Name != want {
					t.Errorf("list of %s, want %s", m.Members[0].Name, want)
				}
				for _, x := range m.Members {
					if x.Probe.Read != rollout.Failed {
						t.Errorf("%s: %v without quorum", x.Name, x.Probe.Read)
					}
				}
			})
		})
	}
}

// Without quorum a question to consensus ends only with its timeout. The member's own
// list is asked for meanwhile, not afterwards, or the evidence would be too old to act
// on by the time it is complete.
func TestAMembersOwnListIsAskedForWhileConsensusIsAwaited(t *testing.T) {
	c := etcdtest.Start(t, 2)
	c.LoseQuorum()
	o := newObserver(t, c, time.Hour)
	ctx, cancel := context.WithTimeout(t.Context(), generous)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_, _ = o.Observe(ctx) // What it returns when it is cancelled is not the point.
	}()
	asked := func() (n int) {
		c.Set(func(_ *etcdtest.Cluster, ms []*etcdtest.Member) { n = min(ms[0].LocalLists, ms[1].LocalLists) })
		return n
	}
	for asked() == 0 {
		select {
		case <-ended:
			t.Fatal("the observation waited, or ended, without asking for the members' own lists")
		case <-time.After(time.Millisecond):
		}
	}
	cancel()
	<-ended
}

func TestWithNobodyAnsweringTheVotersAreUnknown(t *testing.T) {
	c := etcdtest.Start(t, 2)
	o := newObserver(t, c, impatient)
	c.Stop(0)
	c.Stop(1)
	m, err := o.Observe(t.Context())
	if m.Known || len(m.Members) != 0 {
		t.Errorf("got %+v", m)
	}
	if err == nil {
		t.Fatal("no error")
	}
	for _, want := range []string{"no member answered with a member list", c.URL(0), c.URL(1), "connect: connection re"} { // …fused, or …set
		if !strings.Contains(err.Error(), want) {
			t.Errorf("the error does not say %q: %v", want, err)
		}
	}
	if _, err := o.Observe(t.Context()); err == nil {
		t.Error("no error the second time")
	}
	if n := c.Dials(c.URL(0)); n != 2 {
		t.Errorf("dialled %d times, want anew for each observation", n)
	}
}

// Exactly 3.5.28 and 3.6.9 refuse it to whoever is not root.
func TestAMemberListThatIsRefusedSaysWhatToGrant(t *testing.T) {
	c := etcdtest.Start(t, 2)
	c.Set(func(_ *etcdtest.Cluster, ms []*etcdtest.Member) {
		for _, m := range ms {
			m.ListErr = rpctypes.ErrGRPCPermissionDenied
		}
	})
	const want = "etcd refuses the member list (permission denied): grant its user the role root (etcdctl user " +
		"grant-role USER root)," +
		" or use another patch release than 3.5.28 and 3.6.9, which ask for it"
	o := newObserver(t, c, generous)
	m, err := o.Observe(t.Context())
	if m.Known || m.Detail != want || err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("got %+v, %v", m, err)
	}
	// In the midst of a rollout to one of those versions another member still tells.
	c.Set(func(_ *etcdtest.Cluster, ms []*etcdtest.Member) { ms[1].ListErr = nil })
	if m := observe(t, o); !m.Linearizable || m.Detail != "" {
		t.Errorf("got %+v", m)
	}
}

func TestADialFunctionThatFailsIsNamed(t *testing.T) {
	o := membership.NewObserver(func([]string) (*clientv3.Client, error) {
		return nil,
			errors.New("open ca.crt: no such file")
	}, []string{"https://etcd-0:2379"}, generous)
	if _, err := o.Observe(t.Context()); err == nil ||
		!strings.Contains(err.Error(), "etcd client for https://etcd-0:2379: open ca.crt: no such file") {
		t.Errorf("got %v", err)
	}
	o = membership.NewObserver(nil, nil, generous)
	if _, err := o.Discover(t.Context()); err == nil || !strings.Contains(err.Error(), "no member answered") {
		t.Errorf("got %v", err)
	}
}

// When every member has moved, the configured endpoints still lead to them.
func TestConfiguredEndpointsAreAskedWhenAllKnownOnesFail(t *testing.T) {
	c := etcdtest.Start(t, 1)
	o := newObserver(t, c, impatient)
	c.Set(func(_ *etcdtest.Cluster, ms []*etcdtest.Member) {
		ms[0].List = []*pb.Member{{ID: 0xa0, Name: "etcd-0", ClientURLs: []string{"http://127.0.0.1:1"}}}
	})
	if got := reads(observe(t, o)); !slices.Equal(got, []rollout.ReadResult{rollout.Failed}) {
		t.Fatalf("reads %v", got)
	}
	c.Set(func(_ *etcdtest.Cluster, ms []*etcdtest.Member) { ms[0].List = nil })
	if got := reads(observe(t, o)); !slices.Equal(got, []rollout.ReadResult{rollout.Answered}) {
		t.Errorf("reads %v, want the endpoint that was configured", got)
	}
}

func TestRemoveMember(t *testing.T) {
	const gone = 0xa2
	prepare := func(t *testing.T) (*etcdtest.Cluster, *membership.Observer, rollout.Membership) {
		c := etcdtest.Start(t, 3)
		c.Stop(2)
		o := newObserver(t, c, time.Second)
		return c, o, observe(t, o)
	}
	asked := func(c *etcdtest.Cluster) (n int) {
		c.Set(func(_ *etcdtest.Cluster, ms []*etcdtest.Member) {
			for _, m := range ms {
				n += m.Removals
			}
		})
		return n
	}
	t.Run("is asked of a voter that answers, once, and by its ID", func(t *testing.T) {
		c, o, m := prepare(t)
		if err := o.RemoveMember(t.Context(), m, gone); err != nil {
			t.Fatal(err)
		}
		if left := observe(t, o).Members; len(left) != 2 || asked(c) != 1 {
			t.Errorf("%d requests, left: %+v", asked(c), left)
		}
	})
	t.Run("is done when it is gone already", func(t *testing.T) {
		c, o, m := prepare(t)
		c.Remove(gone)
		if err := o.RemoveMember(t.Context(), m, gone); err != nil {
			t.Fatal(err)
		}
	})
	for name, tc := range map[string]struct {
		err  error
		says string
	}{
		"says what has to be granted": {rpctypes.ErrGRPCPermissionDenied, "grant its user the role root"},
		"says what etcd says":         {rpctypes.ErrGRPCUnhealthy, "unhealthy cluster"},
	} {
		t.Run(name, func(t *testing.T) {
			c, o, m := prepare(t)
			c.Set(func(_ *etcdtest.Cluster, ms []*etcdtest.Member) {
				ms[0].RemoveErr, ms[1].RemoveErr = tc.err, tc.err
			})
			err := o.RemoveMember(t.Context(), m, gone)
			if err == nil || !strings.Contains(err.Error(), tc.says) || asked(c) != 1 {
				t.Errorf("%d requests: %v", asked(c), err)
			}
		})
	}
	t.Run("is not taken for done when another cluster has answered", func(t *testing.T) {
		c, o, m := prepare(t)
		c.Set(func(_ *etcdtest.Cluster, ms []*etcdtest.Member) { ms[0].OfCluster, ms[1].OfCluster = 0xff, 0xff })
		if err := o.RemoveMember(t.Context(), m, gone); err == nil {
			t.Error("no error")
		}
	})
	t.Run("needs another voter that answers", func(t *testing.T) {
		c, o, m := prepare(t)
		for i := range m.Members {
			m.Members[i].Probe.Read = rollout.Failed
		}
		if err := o.RemoveMember(t.Context(), m, gone); err == nil || asked(c) != 0 {
			t.Errorf("%d requests: %v", asked(c), err)
		}
	})
}

func TestMoveLeader(t *testing.T) {
	prepare := func(t *testing.T, timeout time.Duration) (*etcdtest.Cluster, *membership.Observer, rollout.Membership) {
		c := etcdtest.Start(t, 3)
		o := newObserver(t, c, timeout)
		return c, o, observe(t, o)
	}
	moves := func(c *etcdtest.Cluster) (n []int) {
		c.Set(func(_ *etcdtest.Cluster, ms []*etcdtest.Member) {
			for _, m := range ms {
				n = append(n, m.Moves)
			}
		})
		return n
	}
	t.Run("is asked of the leader, and verified", func(t *testing.T) {
		c, o, m := prepare(t, generous)
		if err := o.MoveLeader(t.Context(), m, 0xa0, 0xa2); err != nil {
			t.Fatal(err)
		}
		if got := moves(c); !slices.Equal(got, []int{1, 0, 0}) {
			t.Errorf("requests %v, want one of the leader", got)
		}
		if got := observe(t, o); got.Members[2].Probe.Status.Leader != 0xa2 {
			t.Errorf("the leader is %x", got.Members[2].Probe.Status.Leader)
		}
	})
	t.Run("is done only when the new leader says so itself", func(t *testing.T) {
		c, o, m := prepare(t, generous)
		c.Set(func(_ *etcdtest.Cluster, ms []*etcdtest.Member) { ms[2].Leader = 0xa0 }) // It has not heard yet.
		done := make(chan error, 1)
		go func() { done <- o.MoveLeader(t.Context(), m, 0xa0, 0xa2) }()
		for moves(c)[0] == 0 {
			<-time.After(time.Millisecond)
		}
		select {
		case err := <-done:
			t.Fatalf("ended with %v before the new leader knew", err)
		case <-time.After(50 * time.Millisecond):
		}
		c.Set(func(_ *etcdtest.Cluster, ms []*etcdtest.Member) { ms[2].Leader = 0 })
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	t.Run("is over when the new leader leads, however long the answer takes", func(t *testing.T) {
		c, o, m := prepare(t, generous)
		c.Intercept(func(ctx context.Context, method string, do func() (any, error)) (any, error) {
			answer, err := do()
			if method == "MoveLeader" {
				<-ctx.Done()
			}
			return answer, err
		})
		if err := o.MoveLeader(t.Context(), m, 0xa0, 0xa2); err != nil {
			t.Error(err)
		}
	})
	t.Run("whose answer is lost has been done all the same, if the new leader leads", func(t *testing.T) {
		c, o, m := prepare(t, generous)
		c.Intercept(func(_ context.Context, method string, do func() (any, error)) (any, error) {
			answer, err := do()
			if method == "MoveLeader" {
				return nil, errors.New("connection reset")
			}
			return answer, err
		})
		if err := o.MoveLeader(t.Context(), m, 0xa0, 0xa2); err != nil {
			t.Error(err)
		}
	})
	t.Run("that is refused says why", func(t *testing.T) {
		c, o, m := prepare(t, generous)
		c.Set(func(_ *etcdtest.Cluster, ms []*etcdtest.Member) {
			ms[0].MoveLeaderErr = rpctypes.ErrGRPCBadLeaderTransferee
		})
		err := o.MoveLeader(t.Context(), m, 0xa0, 0xa2)
		if err == nil || !strings.HasPrefix(err.Error(), "move leadership from a0 to a2: ") ||
			!errors.Is(err, rpctypes.ErrBadLeaderTransferee) {
			t.Errorf("got %v", err)
		}
	})
	t.Run("that needs a permission names it", func(t *testing.T) {
		c, o, m := prepare(t, generous)
		c.Set(func(_ *etcdtest.Cluster, ms []*etcdtest.Member) {
			ms[0].MoveLeaderErr = rpctypes.ErrGRPCPermissionDenied
		})
		err := o.MoveLeader(t.Context(), m, 0xa0, 0xa2)
		if err == nil || !strings.Contains(err.Error(),
			"etcd refuses to move leadership (permission denied): grant its user the role root (etcdctl user "+
				"grant-role USER root), which 3.5.28 and newer and all of 3.6 ask for") {
			t.Errorf("got %v", err)
		}
	})
	t.Run("of a member that does not lead any more is refused", func(t *testing.T) {
		c, o, m := prepare(t, generous)
		c.SetLeader(0xa1)
		if err := o.MoveLeader(t.Context(), m, 0xa0, 0xa2); !errors.Is(err, rpctypes.ErrNotLeader) {
			t.Errorf("got %v", err)
		}
	})
	t.Run("that never takes effect ends with its context", func(t *testing.T) {
		c, o, m := prepare(t, generous)
		c.Set(func(_ *etcdtest.Cluster, ms []*etcdtest.Member) { ms[0].MoveLeaderIdle = true })
		ctx, cancel := context.WithTimeout(t.Context(), impatient)
		defer cancel()
		err := o.MoveLeader(ctx, m, 0xa0, 0xa2)
		if !errors.Is(err, context.DeadlineExceeded) ||
			!strings.Contains(err.Error(), "accepted, but a2 does not lead yet") {
			t.Errorf("got %v", err)
		}
	})
	t.Run("to or from a stranger is not even asked", func(t *testing.T) {
		c, o, m := prepare(t, generous)
		for _, pair := range [][2]uint64{{0xa0, 0xee}, {0xee, 0xa0}} {
			if err := o.MoveLeader(t.Context(), m, pair[0], pair[1]); err == nil ||
				!strings.Contains(err.Error(), "ee is not in the member list") {
				t.Errorf("%x: %v", pair, err)
			}
		}
		if got := moves(c); !slices.Equal(got, []int{0, 0, 0}) {
			t.Errorf("requests %v", got)
		}
	})
}

func TestAnObservationEndsWithItsContext(t *testing.T) {
	c := etcdtest.Start(t, 3)
	c.Set(func(_ *etcdtest.Cluster, ms []*etcdtest.Member) {
		for _, m := range ms {
			m.Hung = true
		}
	})
	ctx, cancel := context.WithTimeout(t.Context(), impatient)
	defer cancel()
	if m, err := newObserver(t, c, time.Hour).Observe(ctx); m.Known || err == nil {
		t.Errorf("got %+v, %v", m, err)
	}
}
