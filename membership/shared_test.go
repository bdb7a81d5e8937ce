package membership_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/quorate/quorate/internal/etcdtest"
	"github.com/quorate/quorate/membership"
	"github.com/quorate/quorate/pkg/rollout"
)

// In these tests every member also advertises a URL that others answer as well, as in charts that advertise a Service
// (bitnami/charts#31922).

// inTurn leads the connections to the shared URL to all members in turn, and to who says always to that one.
func inTurn(n int) func() int {
	next := -1
	return func() int {
		next = (next + 1) % n
		return next
	}
}

func always(member int) func() int { return func() int { return member } }

// onlyTheService lets the members advertise nothing but the shared URL.
func onlyTheService(c *etcdtest.Cluster) {
	c.Set(func(_ *etcdtest.Cluster, ms []*etcdtest.Member) {
		for _, m := range ms {
			m.Advertised = []string{etcdtest.SharedURL}
		}
	})
}

// onlyTheSecond of three members goes on advertising the shared URL.
func onlyTheSecond(c *etcdtest.Cluster) {
	c.Set(func(_ *etcdtest.Cluster, ms []*etcdtest.Member) { ms[0].Advertised, ms[2].Advertised = nil, nil })
}

// sharing runs a test for each member behind the shared URL, which comes first and last.
func sharing(t *testing.T, test func(t *testing.T, c *etcdtest.Cluster)) {
	for _, first := range []bool{true, false} {
		for name, next := range map[string]func() func() int{
			"answered by the first":  func() func() int { return always(0) },
			"answered by the second": func() func() int { return always(1) },
			"answered by the third":  func() func() int { return always(2) },
			"answered in turn":       func() func() int { return inTurn(3) },
		} {
			t.Run(fmt.Sprintf("shared URL first %v, %s", first, name), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					c := etcdtest.StartInMemory(t, 3)
					c.Share(first, next())
					test(t, c)
				})
			})
		}
	}
}

func ownURLs(m rollout.Membership) (urls []string) {
	for _, x := range m.Members {
		urls = append(urls, x.Probe.URL)
	}
	return urls
}

func TestAMemberIsTheOneThatIdentifiesItselfAtOneOfItsURLs(t *testing.T) {
	sharing(t, func(t *testing.T, c *etcdtest.Cluster) {
		o := newObserver(t, c, probeTime, etcdtest.SharedURL)
		for range 5 {
			m := observe(t, o)
			if n := answered(m); n != 3 {
				t.Fatalf("%d members answered: %v", n, reads(m))
			}
			if got := ownURLs(m); !slices.Equal(got, c.URLs()) {
				t.Errorf("their URLs are %v", got)
			}
		}
		if got := o.MemberURLs(); !slices.Equal(got, append(c.URLs(), etcdtest.SharedURL)) {
			t.Errorf("URLs in the order %v, want their own first", got)
		}
	})
}

func TestAMemberThatDoesNotAnswerFailsWhoeverAnswersTheSharedURL(t *testing.T) {
	for _, tc := range []struct {
		name  string
		fails func(c *etcdtest.Cluster)
	}{
		{"it hangs", func(c *etcdtest.Cluster) {
			c.Set(func(_ *etcdtest.Cluster, ms []*etcdtest.Member) { ms[1].Hung = true })
		}},
		{"it is stopped", func(c *etcdtest.Cluster) { c.Stop(1) }},
	} {
		for _, earlier := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, asked before %v", tc.name, earlier), func(t *testing.T) {
				for _, behind := range []int{0, 2} {
					for _, first := range []bool{true, false} {
						synctest.Test(t, func(t *testing.T) {
							c := etcdtest.StartInMemory(t, 3)
							c.Share(first, always(behind))
							o := newObserver(t, c, probeTime)
							if earlier {
								observe(t, o)
								tc.fails(c)
								observe(t, o) // Over an old connection, that says nothing of one that hangs.
							} else {
								tc.fails(c)
							}
							begun := time.Now()
							m := observe(t, o)
							want := []rollout.ReadResult{rollout.Answered, rollout.Failed, rollout.Answered}
							if got := reads(m); !slices.Equal(got, want) {
								t.Errorf("reads %v: %s", got, m.Members[1].Probe.Detail)
							}
							if took := time.Since(begun); took > probeTime+100*time.Millisecond {
								t.Errorf("it took %v", took)
							}
						})
					}
				}
			})
		}
	}
}

func TestWhatASharedURLProves(t *testing.T) {
	denied := status.Error(codes.PermissionDenied, "etcdserver: permission denied")
	refused := func(ms []*etcdtest.Member) {
		for _, m := range ms {
			m.ReadErr = denied
		}
	}
	for _, tc := range []struct {
		name   string
		share  func(c *etcdtest.Cluster)
		change func(ms []*etcdtest.Member)
		want   []rollout.ReadResult
		detail string // of the second
	}{
		{"without a URL of their own, one member is known", onlyTheService, nil,
			[]rollout.ReadResult{rollout.Answered, rollout.WrongMember, rollout.WrongMember},
			"member a0 answered instead of a1; it advertises only addresses that several members answer " +
				"(http://etcd:2379); set --advertise-client-urls to the pod's own name"},
		{"where nobody answers there, all of them fail", onlyTheService,
			func(ms []*etcdtest.Member) { ms[0].Hung = true },
			[]rollout.ReadResult{rollout.Failed, rollout.Failed, rollout.Failed}, "no linearizable read: timed out; " +
				"it advertises only addresses that several members answer (http://etcd:2379); set " +
				"--advertise-client-urls to the pod's own name"},
		{"a read that is refused there proves nothing, even with a status", onlyTheService, refused,
			[]rollout.ReadResult{rollout.NotAsked, rollout.WrongMember, rollout.WrongMember},
			"member a0 answered instead of a1; it advertises only addresses that several members answer " +
				"(http://etcd:2379); set --advertise-client-urls to the pod's own name"},
		{"a read that is refused by a member at its own URL does", func(*etcdtest.Cluster) {}, refused,
			[]rollout.ReadResult{rollout.Answered, rollout.Answered, rollout.Answered}, ""},
		{"another member at its own URL and at the shared one is another member", func(*etcdtest.Cluster) {},
			func(ms []*etcdtest.Member) { ms[1].As = 0xbb },
			[]rollout.ReadResult{rollout.Answered, rollout.WrongMember, rollout.Answered},
			"member bb answered instead of a1"},
		{"it fails at one URL, and another member answers the other one, which nobody else advertises",
			onlyTheSecond,
			func(ms []*etcdtest.Member) { ms[1].Hung = true },
			[]rollout.ReadResult{rollout.Answered, rollout.Failed, rollout.Answered},
			"no linearizable read: timed out"},
		{"another member answers its only URL, which nobody else advertises",
			func(c *etcdtest.Cluster) {
				onlyTheService(c)
				onlyTheSecond(c)
			}, nil,
			[]rollout.ReadResult{rollout.Answered, rollout.WrongMember, rollout.Answered},
			"member a0 answered instead of a1"},
		{"another cluster at its own URL is told", func(*etcdtest.Cluster) {},
			func(ms []*etcdtest.Member) { ms[1].OfCluster = 0xc2 },
			[]rollout.ReadResult{rollout.Answered, rollout.WrongCluster, rollout.Answered},
			"cluster c2 answered instead of c1"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := etcdtest.StartInMemory(t, 3)
				c.Share(false, always(0))
				tc.share(c)
				c.Set(func(_ *etcdtest.Cluster, ms []*etcdtest.Member) {
					if tc.change != nil {
						tc.change(ms)
					}
				})
				o := newObserver(t, c, probeTime, c.URL(2))
				m := observe(t, o)
				if got := reads(m); !slices.Equal(got, tc.want) {
					t.Errorf("reads %v, want %v", got, tc.want)
				}
				if got := m.Members[1].Probe.Detail; got != tc.detail {
					t.Errorf("detail %q, want %q", got, tc.detail)
				}
			})
		})
	}
}

func TestOperationsReachTheMemberThatTheyAreFor(t *testing.T) {
	const times = 50
	for _, first := range []bool{true, false} {
		t.Run(fmt.Sprintf("shared URL first %v", first), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := etcdtest.StartInMemory(t, 3)
				c.Share(first, inTurn(3))
				for i := range times {
					o := membership.NewObserver(c.Dial, []string{etcdtest.SharedURL}, probeTime)
					m := observe(t, o)
					from := c.Leader()
					to := 0xa0 + (from-0xa0+1+uint64(i%2))%3 //nolint:gosec // It is small.
					if err := o.MoveLeader(t.Context(), m, from, to); err != nil || c.Leader() != to {
						t.Errorf("%x leads, not %x: %v", c.Leader(), to, err)
					}
					if _, err := o.Defragment(t.Context(), m, 0xa1, time.Now().Add(time.Minute)); err != nil {
						t.Error(err)
					}
					o.Close()
				}
				c.Set(func(_ *etcdtest.Cluster, ms []*etcdtest.Member) {
					moves := ms[0].Moves + ms[1].Moves + ms[2].Moves
					if ms[0].Defragments+ms[2].Defragments != 0 || ms[1].Defragments != times || moves != times {
						t.Errorf("%d, %d and %d defragmentations, %d transfers", ms[0].Defragments, ms[1].Defragments,
							ms[2].Defragments, moves)
					}
				})
			})
		})
	}
}

func TestAMemberThatOnlyASharedURLLeadsToIsNotDefragmented(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := etcdtest.StartInMemory(t, 3)
		c.Share(false, always(0))
		onlyTheService(c)
		o := newObserver(t, c, probeTime, c.URL(2))
		m := observe(t, o)
		_, err := o.Defragment(t.Context(), m, 0xa0, time.Now().Add(time.Minute))
		if !membership.NotSent(err) || !strings.Contains(err.Error(), "set --advertise-client-urls") {
			t.Errorf("%v", err)
		}
		if err := o.MoveLeader(t.Context(), m, 0xa1, 0xa0); err == nil || !strings.Contains(err.Error(),
			"member a0 answered instead of a1") {
			t.Errorf("%v", err)
		}
	})
}

// Once a member's own URL is known, the shared one costs nothing.
func TestASharedURLIsAskedOnlyUntilTheMembersHaveIdentifiedThemselves(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := etcdtest.StartInMemory(t, 3)
		c.Share(true, always(1))
		o := newObserver(t, c, probeTime, c.URL(0))
		for range 5 {
			observe(t, o)
		}
		if n := c.Dials(etcdtest.SharedURL); n != 1 {
			t.Errorf("the shared URL was dialled %d times", n)
		}
		for i, url := range c.URLs() {
			if n := c.Dials(url); n != 1 {
				t.Errorf("member %d was dialled %d times", i, n)
			}
		}
		// Its own URL leads nowhere any more, but the shared one does.
		c.Set(func(_ *etcdtest.Cluster, ms []*etcdtest.Member) {
			ms[1].Advertised = []string{"http://elsewhere:2379", etcdtest.SharedURL}
		})
		if m := observe(t, o); answered(m) != 3 || m.Members[1].Probe.URL != etcdtest.SharedURL {
			t.Errorf("reads %v, URLs %v", reads(m), ownURLs(m))
		}
		want := []string{c.URL(0), "http://elsewhere:2379", c.URL(2), etcdtest.SharedURL}
		if got := o.MemberURLs(); !slices.Equal(got, want) {
			t.Errorf("URLs %v, want the shared one to be nobody's own: %v", got, want)
		}
	})
}

func TestAMemberThatAnswersOnlyUnderASharedURLSaysSo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := etcdtest.StartInMemory(t, 2)
		c.Share(true, func() int { return 1 })
		o := newObserver(t, c, probeTime, c.URL(0))
		for _, silent := range []bool{false, true} {
			c.Set(func(_ *etcdtest.Cluster, ms []*etcdtest.Member) {
				if silent {
					ms[1].Advertised = []string{"http://nowhere:2379", etcdtest.SharedURL}
				}
			})
			if p := observe(t, o).Members[1].Probe; p.Read != rollout.Answered || p.Shared != silent {
				t.Errorf("its own URL fails: %v; got %+v", silent, p)
			}
		}
	})
}

func TestURLsAreComparedAsURLs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := etcdtest.StartInMemory(t, 2)
		again := "HTTP://ETCD-1:2379/"
		c.Set(func(_ *etcdtest.Cluster, ms []*etcdtest.Member) { ms[1].Advertised = []string{ms[1].URL, again} })
		o := newObserver(t, c, probeTime, c.URL(0)+"/")
		for range 3 {
			observe(t, o)
		}
		if n := c.Dials(again); n != 0 || c.Dials(c.URL(1)) != 1 {
			t.Errorf("another spelling of one URL was dialled %d times", n)
		}
		if n := c.Dials(c.URL(0)) + c.Dials(c.URL(0)+"/"); n != 1 {
			t.Errorf("the endpoint and the URL of one member were dialled %d times", n)
		}
		c.Set(func(_ *etcdtest.Cluster, ms []*etcdtest.Member) { ms[0].Advertised = []string{ms[0].URL, again} })
		if m := observe(t, o); m.Members[0].Probe.OnlyShared || !m.Members[1].Probe.OnlyShared {
			t.Errorf("%+v, want only the second to have no URL of its own", m.Members)
		}
	})
}

func TestAddressesThatAreOneForAllMembersAreShared(t *testing.T) {
	for _, urls := range [][2]string{
		{"http://0.0.0.0:2379", "http://0.0.0.0:2379"},
		{"http://localhost:2379", "http://127.0.0.1:2379"},
		{"http://[::1]:2379", "http://[0:0:0:0:0:0:0:0]:2379/"},
		{"http://etcd.ns.svc:2379", "http://Etcd.ns.svc.:2379"},
	} {
		t.Run(urls[0]+" "+urls[1], func(t *testing.T) {
			m := dumped(t, []string{urls[0]}, []string{urls[1]})(nil, map[string]string{urls[0]: "", urls[1]: ""})
			for _, x := range m.Members {
				if x.Probe.Read != rollout.NotAsked || !x.Probe.OnlyShared ||
					!strings.Contains(x.Probe.Detail, "set --advertise-client-urls to the pod's own name") {
					t.Errorf("%+v", x.Probe)
				}
			}
		})
	}
}

func TestMembersOnOneMachineMayBeToldApartByTheirLoopbackAddresses(t *testing.T) {
	a, b := "http://127.0.9.10:2379", "http://127.0.9.11:2379"
	m := dumped(t, []string{a}, []string{b})(nil, map[string]string{a: "", b: ""})
	for _, x := range m.Members {
		if x.Probe.Read != rollout.Answered || x.Probe.OnlyShared {
			t.Errorf("%+v", x.Probe)
		}
	}
}
