package membership_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/quorate/quorate/internal/etcdtest"
	"github.com/quorate/quorate/membership"
	"github.com/quorate/quorate/pkg/rollout"
)

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
	var none *membership.NoListError
	if !errors.As(err, &none) || none.Replied || len(none.Why) != 2 || !slices.Equal(none.Asked, c.URLs()) {
		t.Errorf("got %+v", none)
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

func TestAMemberThatRefusesItsListIsThere(t *testing.T) {
	c := etcdtest.Start(t, 1)
	c.Set(func(_ *etcdtest.Cluster, members []*etcdtest.Member) {
		members[0].ListErr = status.Error(codes.InvalidArgument, "etcdserver: user name is empty")
	})
	_, err := newObserver(t, c, generous).Observe(t.Context())
	var none *membership.NoListError
	if !errors.As(err, &none) || !none.Replied ||
		!slices.Equal(none.Why, []string{c.URL(0) + ": etcdserver: user name is empty"}) {
		t.Errorf("replied %v, %q", none.Replied, none.Why)
	}
}
