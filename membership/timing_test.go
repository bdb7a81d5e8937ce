package membership_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/quorate/quorate/internal/etcdtest"
	"github.com/quorate/quorate/membership"
	"github.com/quorate/quorate/pkg/rollout"
)

// probeTime is the observer's timeout in a bubble, where nothing but waiting takes time.
const (
	probeTime = 2 * time.Second
	// settle is how long an observer that is closed waits for calls of Dial.
	settle = 50 * time.Millisecond
)

// blocking is a Dial that blocks for the members that block says, as clientv3.New does with a
// user name, for as long as it says or, where that is 0, until the test lets go.
type blocking struct {
	cluster *etcdtest.Cluster
	lasts   time.Duration
	letGo   chan struct{}

	mu     sync.Mutex
	blocks func(url string) bool
	// began are the addresses of the calls that blocked, late the clients they came back with.
	began []string
	late  []*clientv3.Client
	// bounded is its dial, as a process makes it.
	bounded membership.Dial
}

func (b *blocking) dial(endpoints []string) (*clientv3.Client, error) {
	b.mu.Lock()
	blocks := b.blocks(endpoints[0])
	b.mu.Unlock()
	if !blocks {
		return b.cluster.Dial(endpoints)
	}
	b.mu.Lock()
	b.began = append(b.began, endpoints[0])
	b.mu.Unlock()
	if b.lasts > 0 {
		time.Sleep(b.lasts)
	} else {
		<-b.letGo
	}
	c, err := b.cluster.Dial(endpoints)
	b.mu.Lock()
	b.late = append(b.late, c)
	b.mu.Unlock()
	return c, err
}

func (b *blocking) block(which func(url string) bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.blocks = which
}

func (b *blocking) calls() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return len(b.began)
}

// observer returns one more observer of the cluster.
func (b *blocking) observer() *membership.Observer {
	return membership.NewObserver(b.bounded, []string{b.cluster.URL(0)}, probeTime)
}

// open is how many clients that came late are still open.
func (b *blocking) open() (n int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, c := range b.late {
		if c.Ctx().Err() == nil {
			n++
		}
	}
	return n
}

// What is decided on a look has to fit into the age of evidence with the requests to the API
// server that surround it. So the bound holds whoever hangs, and however.
func TestALookTakesAtMostTwoTimeouts(t *testing.T) {
	hang := func(which ...int) func(*etcdtest.Cluster, *blocking) {
		return func(c *etcdtest.Cluster, _ *blocking) {
			c.Set(func(_ *etcdtest.Cluster, ms []*etcdtest.Member) {
				for _, i := range which {
					ms[i].Hung = true
				}
			})
		}
	}
	block := func(which ...int) func(*etcdtest.Cluster, *blocking) {
		return func(c *etcdtest.Cluster, b *blocking) {
			b.block(func(url string) bool {
				return slices.ContainsFunc(which, func(i int) bool { return bare(c.URL(i)) == bare(url) })
			})
		}
	}
	// loses lets requests of a kind hang that come while the members still believe in a leader, who is lost a second
	// later.
	loses := func(hangs string, until time.Duration) func(*etcdtest.Cluster, *blocking) {
		return func(c *etcdtest.Cluster, _ *blocking) {
			begun := time.Now()
			time.AfterFunc(time.Second, func() {
				c.LoseQuorum()
				c.SetLeader(0)
			})
			c.Intercept(func(ctx context.Context, method string, do func() (any, error)) (any, error) {
				if method == hangs && time.Since(begun) < until {
					<-ctx.Done()
					return nil, ctx.Err()
				}
				return do()
			})
		}
	}
	black := []string{"http://192.0.2.0:2379"}
	for _, tc := range []struct {
		name    string
		earlier bool // whether an earlier look found everybody well
		change  func(*etcdtest.Cluster, *blocking)
		known   bool
		most    time.Duration
		answers int
	}{
		{"a member that hangs costs one", false, hang(2), true, probeTime, 2},
		{"so it does over a connection that an earlier look has left", true, hang(2), true, probeTime, 2},
		{"members that all hang cost one: without a list there is nobody to probe", true, hang(0, 1, 2), false,
			probeTime, 0},
		{"lost quorum costs none: whoever knows no leader says so", true,
			func(c *etcdtest.Cluster, _ *blocking) { c.LoseQuorum() }, true, time.Second, 0},
		{"a read that hangs is given up soon after its member has noticed that nobody leads", false,
			loses("Range", time.Second), true, 1500 * time.Millisecond, 0},
		{"so is the question for the list", false,
			func(c *etcdtest.Cluster, b *blocking) {
				c.Set(func(_ *etcdtest.Cluster, ms []*etcdtest.Member) {
					ms[1].ListErr, ms[2].ListErr = rpctypes.ErrPermissionDenied, rpctypes.ErrPermissionDenied
				})
				loses("MemberList", 50*time.Millisecond)(c, b) // Only the first one, which is asked first.
			}, true, 1500 * time.Millisecond, 0},
		{"and so are those of a follower that still believes in a leader who has stepped down", false,
			func(c *etcdtest.Cluster, b *blocking) {
				c.Set(func(_ *etcdtest.Cluster, ms []*etcdtest.Member) { ms[1].Leader, ms[2].Leader = ms[0].ID, ms[0].ID })
				loses("Range", time.Hour)(c, b)
			}, true, 1500 * time.Millisecond, 0},
		{"a member that hangs costs one also where no quorum agrees on a list", false,
			func(c *etcdtest.Cluster, b *blocking) {
				hang(2)(c, b)
				c.LoseQuorum()
			}, true, probeTime + 200*time.Millisecond, 0},
		{"a Dial that blocks for one member costs one", false, block(2), true, probeTime, 2},
		{"a Dial that blocks for all of them costs one, and then nobody is known", false, block(0, 1, 2), false,
			probeTime, 0},
		{"a Dial that blocks for two, when nobody can sign in, costs two", false,
			func(c *etcdtest.Cluster, b *blocking) {
				block(1, 2)(c, b)
				c.LoseQuorum()
			}, true, 2 * probeTime, 0},
		{"advertised URLs that have moved cost no timeout when the configured endpoints answer", true,
			func(c *etcdtest.Cluster, b *blocking) {
				// The endpoints are written without a scheme; what the member list says is not.
				b.block(func(url string) bool { return bare(url) != url })
			}, true, 2 * probeTime, 0},
		{"the configured endpoints are in vain, the last list's URLs answer", true,
			func(c *etcdtest.Cluster, b *blocking) {
				b.block(func(url string) bool { return bare(url) == url })
			}, true, 0, 3},
		{"a list with an address that swallows everything costs one for its probe", true,
			func(c *etcdtest.Cluster, b *blocking) {
				b.block(func(url string) bool { return url == black[0] })
				c.Add(etcdtest.Member{ID: 0xa3, Name: "etcd-3", URL: black[0]})
			}, true, probeTime, 3},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := etcdtest.StartInMemory(t, 3)
				b := &blocking{cluster: c, blocks: func(string) bool { return false }, letGo: make(chan struct{})}
				var endpoints []string
				for _, url := range c.URLs() {
					endpoints = append(endpoints, bare(url))
				}
				o := membership.NewObserver(b.dial, endpoints, probeTime)
				defer o.Close()
				defer close(b.letGo)
				if tc.earlier {
					observe(t, o)
					o.Close() // What is open already would not be dialled.
				}
				tc.change(c, b)
				begin := time.Now()
				m, err := o.Observe(t.Context())
				if took := time.Since(begin); took > tc.most {
					t.Errorf("the look took %v, want at most %v", took, tc.most)
				}
				if m.Known != tc.known || (err == nil) != tc.known {
					t.Errorf("known %v (%v), want %v", m.Known, err, tc.known)
				}
				if answers := answered(m); answers != tc.answers {
					t.Errorf("%d members answered, want %d", answers, tc.answers)
				}
			})
		})
	}
}

// One answer is enough, and each request costs a member work just when a pod is about to be removed.
func TestTheRestIsAskedForTheListOnlyWhereTheLeaderDoesNotBringIt(t *testing.T) {
	const atOnce, aMomentLater = 0, 100 * time.Millisecond
	for _, tc := range []struct {
		name   string
		change func(leader, another *etcdtest.Member)
		rest   bool
		after  time.Duration
	}{
		{"all are well", func(_, _ *etcdtest.Member) {}, false, atOnce},
		{"another one hangs", func(_, another *etcdtest.Member) { another.Hung = true }, false, atOnce},
		{"the leader hangs", func(leader, _ *etcdtest.Member) { leader.Hung = true }, true, aMomentLater},
		{"the leader refuses", func(leader, _ *etcdtest.Member) { leader.ListErr = rpctypes.ErrPermissionDenied }, true,
			atOnce},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := etcdtest.StartInMemory(t, 5)
				c.SetLeader(c.ID(3))
				o := newObserver(t, c, probeTime)
				observe(t, o)
				c.Set(func(_ *etcdtest.Cluster, ms []*etcdtest.Member) {
					for _, m := range ms {
						m.Lists = 0
					}
					tc.change(ms[3], ms[0])
				})
				var last atomic.Int64 // Since begin.
				begin := time.Now()
				c.Intercept(func(_ context.Context, method string, do func() (any, error)) (any, error) {
					if method == "MemberList" {
						last.Store(int64(time.Since(begin)))
					}
					return do()
				})
				if m := observe(t, o); !m.Linearizable {
					t.Error("the list is not the agreed one")
				}
				asked := 0
				c.Set(func(_ *etcdtest.Cluster, ms []*etcdtest.Member) {
					asked = ms[0].Lists + ms[1].Lists + ms[2].Lists + ms[4].Lists
				})
				if (asked > 0) != tc.rest {
					t.Errorf("the rest was asked %d times", asked)
				}
				if after := time.Duration(last.Load()); after != tc.after {
					t.Errorf("the last was asked after %v, want %v", after, tc.after)
				}
			})
		})
	}
}

// The next removal waits for the member that has just come back, so it has to be asked as soon as possible.
func TestAMemberThatHasComeBackIsConnectedToWhileTheListIsAskedFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := etcdtest.StartInMemory(t, 3)
		b := &blocking{cluster: c, lasts: time.Second, blocks: func(string) bool { return false }}
		o := membership.NewObserver(b.dial, c.URLs(), probeTime)
		defer o.Close()
		c.Set(func(_ *etcdtest.Cluster, ms []*etcdtest.Member) { ms[2].Hung = true })
		observe(t, o)
		c.Set(func(_ *etcdtest.Cluster, ms []*etcdtest.Member) { ms[2].Hung = false })
		b.block(func(url string) bool { return url == c.URL(2) })
		c.Intercept(func(_ context.Context, method string, do func() (any, error)) (any, error) {
			if method == "MemberList" {
				time.Sleep(50 * time.Millisecond) // Too short for anybody else to be asked for it.
			}
			return do()
		})
		begin := time.Now()
		if got := reads(observe(t, o)); slices.Contains(got, rollout.Failed) {
			t.Errorf("reads %v", got)
		}
		if took := time.Since(begin); took != time.Second {
			t.Errorf("the look took %v, want as long as Dial, %v", took, time.Second)
		}
	})
}

// The leader's own word counts up to the term that it knows. At a later one it may lead again.
func TestAFollowerThatHasHeardOfALaterTermIsWaitedFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := etcdtest.StartInMemory(t, 3)
		b := &blocking{cluster: c, blocks: func(string) bool { return false }, letGo: make(chan struct{})}
		o := membership.NewObserver(b.dial, c.URLs(), probeTime)
		defer o.Close()
		defer close(b.letGo)
		c.SetLeader(0)
		c.Set(func(_ *etcdtest.Cluster, ms []*etcdtest.Member) { ms[1].Leader, ms[1].Term = ms[0].ID, 9 })
		c.Intercept(func(ctx context.Context, method string, do func() (any, error)) (any, error) {
			if method == "Range" {
				<-ctx.Done()
				return nil, ctx.Err()
			}
			return do()
		})
		begin := time.Now()
		observe(t, o)
		if took := time.Since(begin); took != probeTime {
			t.Errorf("the look took %v, want the whole timeout, %v", took, probeTime)
		}
	})
}

func TestACallOfDialThatComesTooLate(t *testing.T) {
	run := func(name string, lasts time.Duration, test func(t *testing.T, c *etcdtest.Cluster, o *membership.Observer,
		b *blocking)) {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := etcdtest.StartInMemory(t, 3)
				b := &blocking{cluster: c, lasts: lasts, letGo: make(chan struct{})}
				b.block(func(url string) bool { return url == c.URL(1) })
				b.bounded = membership.Bounded(b.dial)
				test(t, c, b.observer(), b)
				time.Sleep(time.Hour) // Whatever is out comes back.
				if n := b.open(); n != 0 {
					t.Errorf("%d clients that came late were left open", n)
				}
			})
		})
	}
	failed := []rollout.ReadResult{rollout.Answered, rollout.Failed, rollout.Answered}

	run("says of its member that it did not answer", 3*probeTime,
		func(t *testing.T, _ *etcdtest.Cluster, o *membership.Observer, _ *blocking) {
			defer o.Close()
			m := observe(t, o)
			if got := reads(m); !slices.Equal(got, failed) || m.Members[1].Probe.Detail != "no connection: timed out" {
				t.Errorf("reads %v, detail %q", got, m.Members[1].Probe.Detail)
			}
		})
	run("is not waited for by the next look, and what it has learnt does not count there", 3*probeTime/2,
		func(t *testing.T, c *etcdtest.Cluster, o *membership.Observer, b *blocking) {
			defer o.Close()
			observe(t, o)
			time.Sleep(probeTime / 4) // The call is still out.
			b.block(func(string) bool { return false })
			if got := reads(observe(t, o)); got[1] != rollout.Answered {
				t.Errorf("reads %v, though the member answers by now", got)
			}
			time.Sleep(probeTime)
			if n := b.open(); n != 0 {
				t.Errorf("%d clients that came late are open beside the one in use", n)
			}
			if got := reads(observe(t, o)); got[1] != rollout.Answered {
				t.Errorf("reads %v: the late one has closed the one in use", got)
			}
		})
	run("is waited for when the observer is closed", probeTime+settle/2,
		func(t *testing.T, _ *etcdtest.Cluster, o *membership.Observer, b *blocking) {
			observe(t, o)
			begin := time.Now()
			o.Close()
			if took := time.Since(begin); took != settle/2 {
				t.Errorf("closing took %v, want what was left of the call, %v", took, settle/2)
			}
			if n := b.open(); n != 0 {
				t.Errorf("%d clients are open after it", n)
			}
		})
	run("is not waited for longer than a process that ends has time", time.Minute,
		func(t *testing.T, _ *etcdtest.Cluster, o *membership.Observer, _ *blocking) {
			observe(t, o)
			begin := time.Now()
			o.Close()
			if took := time.Since(begin); took != settle {
				t.Errorf("closing took %v, want %v", took, settle)
			}
		})
	run("is not made again and again when none returns", 30*time.Minute,
		func(t *testing.T, _ *etcdtest.Cluster, o *membership.Observer, b *blocking) {
			for range 50 { // Also by observers that have come and gone meanwhile.
				observe(t, o)
				o.Close()
				o = b.observer()
			}
			defer o.Close()
			m := observe(t, o)
			if p := m.Members[1].Probe; p.Read != rollout.NotAsked ||
				!strings.HasSuffix(p.Detail, "16 calls of Dial have not returned; give it a deadline") {
				t.Errorf("got %+v, want the host's fault by name", p)
			}
			if n := b.calls(); n != 16 {
				t.Errorf("%d calls", n)
			}
		})
	run("ends its look with the context", time.Minute,
		func(t *testing.T, c *etcdtest.Cluster, o *membership.Observer, b *blocking) {
			b.block(func(string) bool { return true })
			ctx, cancel := context.WithTimeout(t.Context(), probeTime/2)
			defer cancel()
			begin := time.Now()
			if m, err := o.Observe(ctx); m.Known || !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("got %+v, %v", m, err)
			}
			if took := time.Since(begin); took != probeTime/2 {
				t.Errorf("it took %v", took)
			}
			b.block(func(string) bool { return false })
		})
}

// Etcd 3.4 ignores the wish for a list that a quorum has agreed on.
func TestAListOfEtcd34CountsAsAgreedOnOnlyAfterARead(t *testing.T) {
	denied := rpctypes.ErrGRPCPermissionDenied
	for _, tc := range []struct {
		name   string
		change func(c *etcdtest.Cluster, m *etcdtest.Member)
		want   bool
		asked  string
	}{
		{"a newer one is asked once", func(*etcdtest.Cluster, *etcdtest.Member) {}, true, "MemberList"},
		{"one of 3.4 is asked again after a read",
			func(_ *etcdtest.Cluster, m *etcdtest.Member) { m.Version = "3.4.34" }, true,
			"MemberList Range MemberList"},
		{"one of an unknown version as well", func(_ *etcdtest.Cluster, m *etcdtest.Member) { m.Version = "unknown" },
			true, "MemberList Range MemberList"},
		{"one that may not tell its version as well",
			func(_ *etcdtest.Cluster, m *etcdtest.Member) { m.StatusErr = denied }, true,
			"MemberList Range MemberList"},
		{"a read that may not be answered is as good, from whoever tells who he is",
			func(_ *etcdtest.Cluster, m *etcdtest.Member) { m.Version, m.ReadErr = "3.4.34", denied }, true,
			"MemberList Range MemberList"},
		{"a read that nobody is known to have answered is none",
			func(_ *etcdtest.Cluster, m *etcdtest.Member) { m.StatusErr, m.ReadErr = denied, denied }, false,
			"MemberList Range MemberList"},
		{"without quorum one of 3.4 answers with its own list all the same, and it is not taken for more",
			func(c *etcdtest.Cluster, m *etcdtest.Member) {
				m.Version = "3.4.34"
				c.LoseQuorum()
			}, false, "MemberList Range MemberList"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := etcdtest.StartInMemory(t, 1)
				var member *etcdtest.Member
				c.Set(func(_ *etcdtest.Cluster, ms []*etcdtest.Member) { member = ms[0] })
				tc.change(c, member) // Nobody asks yet.
				var asked []string
				var mu sync.Mutex
				c.Intercept(func(_ context.Context, method string, do func() (any, error)) (any, error) {
					mu.Lock()
					if method != "Status" {
						asked = append(asked, method)
					}
					mu.Unlock()
					return do()
				})
				o := membership.NewObserver(c.Dial, c.URLs(), probeTime)
				defer o.Close()
				m := observe(t, o)
				mu.Lock()
				defer mu.Unlock()
				if m.Linearizable != tc.want {
					t.Errorf("linearizable %v, want %v", m.Linearizable, tc.want)
				}
				if m.Linearizable {
					asked = asked[:len(asked)-1] // The probe's read.
				}
				asked = slices.Compact(asked) // Whoever knows no leader is asked again and again.
				if got := strings.Join(asked, " "); !strings.HasPrefix(got, tc.asked) {
					t.Errorf("asked %q, want %q", got, tc.asked)
				}
			})
		})
	}
}

// A member that was paused may answer reads, and with them lists, from before the pause.
func TestTheTermOfAReadTellsAPausedMember(t *testing.T) {
	c := etcdtest.Start(t, 3)
	c.Set(func(_ *etcdtest.Cluster, ms []*etcdtest.Member) { ms[1].Term, ms[1].ReadTerm = 5, 4 })
	c.SetLeader(0xa0)
	c.SetLeader(0xa0)
	c.SetLeader(0xa0)
	m := observe(t, newObserver(t, c, generous, c.URL(0)))
	var terms []uint64
	for i := range m.Members {
		terms = append(terms, m.Members[i].Probe.ReadTerm)
	}
	if !slices.Equal(terms, []uint64{5, 4, 5}) || !m.Linearizable {
		t.Errorf("reads at terms %v, linearizable %v", terms, m.Linearizable)
	}

	c.Set(func(_ *etcdtest.Cluster, ms []*etcdtest.Member) { ms[0].Term = 4 })
	if m := observe(t, newObserver(t, c, generous, c.URL(0))); !m.Known || m.Linearizable {
		t.Errorf("a list at an older term than a voter's read counts as agreed on (%+v)", m)
	}
	// A learner reads by itself, and its term says nothing.
	c.Set(func(_ *etcdtest.Cluster, ms []*etcdtest.Member) {
		ms[0].Term, ms[1].Term, ms[1].ReadTerm, ms[1].Learner = 0, 0, 9, true
	})
	if m := observe(t, newObserver(t, c, generous, c.URL(0))); !m.Linearizable {
		t.Error("a learner's term outdates the list")
	}
}

func TestHowManyVotersReturnTheSameVotersIsCountedWhereNoQuorumHasAgreed(t *testing.T) {
	entry := func(m *etcdtest.Member) *pb.Member {
		return &pb.Member{ID: m.ID, Name: m.Name, ClientURLs: []string{m.URL}, IsLearner: m.Learner}
	}
	for _, tc := range []struct {
		name   string
		change func(ms []*etcdtest.Member)
		want   int
	}{
		{"all of them", func([]*etcdtest.Member) {}, 3},
		{"not one that is silent", func(ms []*etcdtest.Member) { ms[2].Hung = true }, 2},
		{"not one that knows others", func(ms []*etcdtest.Member) {
			ms[2].List = []*pb.Member{entry(ms[0]),
				entry(ms[2])}
		}, 2},
		{"not one that takes a voter for a learner", func(ms []*etcdtest.Member) {
			learner := entry(ms[1])
			learner.IsLearner = true
			ms[2].List = []*pb.Member{entry(ms[0]), learner, entry(ms[2])}
		}, 2},
		{"the order is no difference", func(ms []*etcdtest.Member) {
			ms[2].List = []*pb.Member{entry(ms[2]),
				entry(ms[1]), entry(ms[0])}
		}, 3},
		{"not one of another cluster", func(ms []*etcdtest.Member) { ms[2].OfCluster = 0xc2 }, 2},
		{"not one that is no voter of the list", func(ms []*etcdtest.Member) { ms[2].As = 0xee }, 2},
		{"nobody twice", func(ms []*etcdtest.Member) { ms[2].As = 0xa1 }, 2},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := etcdtest.StartInMemory(t, 3)
				c.LoseQuorum()
				c.Set(func(_ *etcdtest.Cluster, ms []*etcdtest.Member) {
					ms[0].Index = 900 // Its list is the one that counts.
					tc.change(ms)
				})
				o := membership.NewObserver(c.Dial, c.URLs(), probeTime)
				defer o.Close()
				if m := observe(t, o); m.Linearizable || m.Agreeing != tc.want {
					t.Errorf("linearizable %v, %d agree, want %d", m.Linearizable, m.Agreeing, tc.want)
				}
			})
		})
	}
}

// Leadership is lost for 130 ms while the members are probed, and the same member wins it again. Its read is answered at
// the next try, so nobody asks it any more whether it leads. A follower that names it is slow. etcd tells the term of
// the last entry that it has applied, so this one may still tell the old term.
func TestALeaderThatHasComeBackEndsNoReadOfItsFollowers(t *testing.T) {
	for _, tc := range []struct {
		name string
		term uint64 // what the follower tells meanwhile
	}{{"one that has applied nothing of the new term yet", 2}, {"one that knows the new term", 4}} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := etcdtest.StartInMemory(t, 3)
				o := membership.NewObserver(c.Dial, c.URLs(), probeTime)
				defer o.Close()
				observe(t, o)
				var once sync.Once
				lose := func() {
					c.SetLeader(0)
					time.AfterFunc(130*time.Millisecond, func() {
						c.SetLeader(0xa0)
						c.Set(func(_ *etcdtest.Cluster, ms []*etcdtest.Member) { ms[1].Term, ms[1].ReadTerm = tc.term, 4 })
					})
				}
				c.Intercept(func(ctx context.Context, method string, do func() (any, error)) (any, error) {
					if method == "Range" {
						once.Do(lose)
						if c.Leader() == 0 {
							return nil, rpctypes.ErrGRPCNoLeader
						}
					}
					if method == "Status" {
						wait(ctx, 2*time.Millisecond) // So the leader's read is answered before it is asked again.
					}
					resp, err := do()
					if r, ok := resp.(*pb.RangeResponse); ok && r.Header.MemberId == 0xa1 && !wait(ctx, 400*time.Millisecond) {
						return nil, ctx.Err()
					}
					return resp, err
				})
				if got := reads(observe(t, o)); slices.Contains(got, rollout.Failed) {
					t.Errorf("reads %v; every member answers within a third of the timeout", got)
				}
			})
		})
	}
}

func wait(ctx context.Context, d time.Duration) bool {
	select {
	case <-time.After(d):
		return true
	case <-ctx.Done():
		return false
	}
}

// A rollout waits for each look before it removes a pod, so members that are known already are probed at once.
func TestMembersOnTheLastListAreProbedWhileTheNextOneIsAskedFor(t *testing.T) {
	const each = 50 * time.Millisecond // less than the head start, after which others are asked as well
	stops := func(c *etcdtest.Cluster) { c.Stop(2) }
	for _, tc := range []struct {
		name string
		// between happens before the second look, and during while it waits for the list.
		between, during func(*etcdtest.Cluster)
		answers         int
		takes           time.Duration
	}{
		{"all of them", nil, nil, 3, each},
		{"all but one that refuses connections", stops, nil, 2, each},
		{"one that failed before a quorum agreed on the list is asked again",
			func(c *etcdtest.Cluster) { readsFail(c, rpctypes.ErrGRPCTimeout) },
			func(c *etcdtest.Cluster) { readsFail(c, nil) }, 3, each + each/2},
		{"one that is new on the list is asked after it", nil, func(c *etcdtest.Cluster) {
			c.Set(func(_ *etcdtest.Cluster, ms []*etcdtest.Member) { ms[2].ID = 0xff })
		}, 3, each + each/2},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := etcdtest.StartInMemory(t, 3)
				o := newObserver(t, c, probeTime)
				c.Intercept(func(_ context.Context, _ string, do func() (any, error)) (any, error) {
					answer, err := do()
					time.Sleep(each)
					return answer, err
				})
				observe(t, o)
				if tc.between != nil {
					tc.between(c)
				}
				begun := time.Now()
				if tc.during != nil {
					c.Intercept(func(_ context.Context, method string, do func() (any, error)) (any, error) {
						if method == "MemberList" {
							time.Sleep(each / 2) // The probes have begun.
							tc.during(c)
							answer, err := do()
							time.Sleep(each / 2)
							return answer, err
						}
						answer, err := do()
						if err == nil {
							time.Sleep(each / 2)
						}
						return answer, err
					})
				}
				m := observe(t, o)
				if !m.Linearizable {
					t.Error("the list is not the agreed one")
				}
				if took := time.Since(begun); took != tc.takes || answered(m) != tc.answers {
					t.Errorf("%d members answered in %v, want %d in %v", answered(m), took, tc.answers, tc.takes)
				}
			})
		})
	}
}

func readsFail(c *etcdtest.Cluster, err error) {
	c.Set(func(_ *etcdtest.Cluster, ms []*etcdtest.Member) { ms[2].ReadErr = err })
}

// answered is how many members answered a read.
func answered(m rollout.Membership) (n int) {
	for _, r := range reads(m) {
		if r == rollout.Answered {
			n++
		}
	}
	return n
}

// bare is a URL without its scheme.
func bare(url string) string { return strings.TrimPrefix(url, "http://") }
