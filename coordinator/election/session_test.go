package election

import (
	"context"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/quorate/quorate/internal/etcdtest"
)

// pulse notes keep-alives, and answers each after a delay.
type pulse struct {
	at    []time.Time
	delay time.Duration
}

func (p *pulse) of(c *etcdtest.Cluster) {
	c.Intercept(func(_ context.Context, method string, do func() (any, error)) (any, error) {
		if method != "LeaseKeepAlive" {
			return do()
		}
		c.Set(func(*etcdtest.Cluster, []*etcdtest.Member) { p.at = append(p.at, time.Now()) })
		<-time.After(p.delay)
		return do()
	})
}

// times are the keep-alives so far.
func (p *pulse) times(c *etcdtest.Cluster) (at []time.Time) {
	c.Set(func(*etcdtest.Cluster, []*etcdtest.Member) { at = slices.Clone(p.at) })
	return at
}

func TestASession(t *testing.T) {
	ended := func(s *session) bool { return s.over(context.Background()) != nil }
	for _, tc := range []struct {
		name string
		test func(t *testing.T, c *etcdtest.Cluster, s *session, begin time.Time)
	}{
		{"is granted a day more than its TTL, and so expires in no replay of a backup",
			func(t *testing.T, c *etcdtest.Cluster, s *session, _ time.Time) {
				left, err := s.client.TimeToLive(t.Context(), s.Lease())
				if err != nil || left.GrantedTTL != 24*3600+10 {
					t.Errorf("%v, granted %v s", err, left.GrantedTTL)
				}
			}},
		{"is kept alive at its interval, counted from sending, however slow the answers",
			func(t *testing.T, c *etcdtest.Cluster, s *session, begin time.Time) {
				p := pulse{delay: 700 * ms}
				p.of(c)
				<-time.After(time.Minute - ms)
				var at []time.Duration
				for _, x := range p.times(c) {
					at = append(at, x.Sub(begin))
				}
				if !slices.Equal(gaps(at), slices.Repeat([]time.Duration{sessionEvery}, len(at)-1)) || len(at) != 29 {
					t.Errorf("keep-alives at %v", at)
				}
			}},
		{"is confirmed as of the sending of the last keep-alive that was answered",
			func(t *testing.T, c *etcdtest.Cluster, s *session, begin time.Time) {
				if !s.life.confirmed().Equal(begin) {
					t.Error("the grant does not count")
				}
				p := pulse{delay: 700 * ms}
				p.of(c)
				<-time.After(sessionEvery + 650*ms)
				if !s.life.confirmed().Equal(begin) {
					t.Error("confirmed before the answer")
				}
				<-time.After(100 * ms)
				if d := s.life.confirmed().Sub(begin); d != sessionEvery {
					t.Errorf("confirmed as of %v", d)
				}
			}},
		{"is over when nothing was confirmed for a TTL, not earlier",
			func(t *testing.T, c *etcdtest.Cluster, s *session, begin time.Time) {
				<-time.After(5 * time.Second)
				c.LoseQuorum()
				<-time.After(4*time.Second + sessionTTL - ms - time.Since(begin))
				if ended(s) {
					t.Fatal("it ended before its TTL")
				}
				<-s.Done()
				if d := time.Since(begin); d != 4*time.Second+sessionTTL {
					t.Errorf("it ended after %v", d)
				}
			}},
		{"asks a member that has no leader twice a second, and no more often",
			func(t *testing.T, c *etcdtest.Cluster, s *session, _ time.Time) {
				var p pulse
				p.of(c)
				c.LoseQuorum()
				<-time.After(sessionEvery + 4*time.Second)
				if n := len(p.times(c)); n < 8 || n > 9 {
					t.Errorf("%d keep-alives in four seconds", n)
				}
			}},
		{"is confirmed again within half a second of quorum's return",
			func(t *testing.T, c *etcdtest.Cluster, s *session, _ time.Time) {
				c.LoseQuorum()
				<-time.After(7 * time.Second)
				c.RegainQuorum()
				back := time.Now()
				<-time.After(Retry + ms) // In this very instant it may just be asking.
				if s.life.confirmed().Before(back) || ended(s) {
					t.Errorf("confirmed %v before", back.Sub(s.life.confirmed()))
				}
			}},
		{"gives a keep-alive up that its member does not answer, and sends the next",
			func(t *testing.T, c *etcdtest.Cluster, s *session, _ time.Time) {
				hang := func(on bool) {
					c.Set(func(_ *etcdtest.Cluster, ms []*etcdtest.Member) { ms[0].Hung = on })
				}
				hang(true)
				<-time.After(sessionTTL - 500*ms)
				hang(false)
				back := time.Now()
				<-time.After(10 * time.Second)
				if s.life.confirmed().Before(back) || ended(s) {
					t.Error("it has not recovered")
				}
			}},
		{"is over with the first keep-alive of a lease that is gone",
			func(t *testing.T, c *etcdtest.Cluster, s *session, begin time.Time) {
				<-time.After(5 * time.Second)
				c.ExpireLeases()
				<-s.Done()
				if d := time.Since(begin); d != 6*time.Second {
					t.Errorf("it ended after %v", d)
				}
			}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := etcdtest.StartInMemory(t, 1)
				begin := time.Now()
				s := opened(t, c, c.URL(0))
				defer s.close(t.Context())
				tc.test(t, c, s, begin)
			})
		})
	}
}
