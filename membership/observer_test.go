package membership_test

import (
	"context"
	"errors"
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
	"google.golang.org/grpc/codes"
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
