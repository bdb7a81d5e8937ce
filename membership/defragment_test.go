package membership

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/quorate/quorate/internal/etcdtest"
)

func TestADefragmentationOfAMember(t *testing.T) {
	for _, tc := range []struct {
		name   string
		change func(m *etcdtest.Member)
		// sent is how many requests arrive, over is true if nothing more can come of one, and says is what the error
		// says.
		sent   int
		over   bool
		denied bool
		says   string
	}{
		{"tells how large its database was and is", func(*etcdtest.Member) {}, 1, false, false, ""},
		{"is not sent to another member that has its address", func(m *etcdtest.Member) { m.As = 7 }, 0, true, false,
			"member 7 answered instead of a1"},
		{"is not sent to a member of another cluster", func(m *etcdtest.Member) { m.OfCluster = 7 }, 0, true, false,
			"cluster 7 answered instead of c1"},
		{"is over when etcd 3.5 refuses it in words alone", func(m *etcdtest.Member) {
			m.DefragmentErr = status.Error(codes.Unknown, "auth: permission denied")
		}, 1, true, true, "grant its user the role root"},
		{"is over when etcd refuses it with its own code", func(m *etcdtest.Member) {
			m.DefragmentErr = status.Error(codes.PermissionDenied, "etcdserver: permission denied")
		}, 1, true, true, "grant its user the role root"},
		{"is over when etcd says that it failed", func(m *etcdtest.Member) {
			m.DefragmentErr = status.Error(codes.Unknown, "no space left on device")
		}, 1, true, false, "no space left on device"},
		{"may go on when the connection broke", func(m *etcdtest.Member) {
			m.DefragmentErr = status.Error(codes.Unavailable, "the connection broke")
		}, 1, false, false, "the connection broke"},
		{"may go on when nobody waits for it any more",
			func(m *etcdtest.Member) { m.DefragmentTakes = 3 * time.Second }, 1,
			false, false, "DeadlineExceeded"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			c := etcdtest.Start(t, 3)
			c.Set(func(_ *etcdtest.Cluster, ms []*etcdtest.Member) { ms[1].Size, ms[1].InUse = 1000, 800 })
			o := NewObserver(c.Dial, c.URLs(), 10*time.Second)
			defer o.Close()
			seen, err := o.Observe(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			c.Set(func(_ *etcdtest.Cluster, ms []*etcdtest.Member) { tc.change(ms[1]) })
			ctx, cancel := context.WithTimeout(t.Context(), time.Second)
			defer cancel()
			sizes, err := o.Defragment(ctx, seen, c.ID(1), time.Now().Add(time.Minute))
			if (err == nil) != (tc.says == "") || err != nil && !strings.Contains(err.Error(), tc.says) {
				t.Errorf("%v", err)
			}
			if err == nil && sizes != (Sizes{Before: 1000, After: 900, Left: 100}) {
				t.Errorf("sizes %+v", sizes)
			}
			if err != nil && (Over(err) != tc.over || Denied(err) != tc.denied) {
				t.Errorf("over %v, denied %v: %v", Over(err), Denied(err), err)
			}
			c.Set(func(_ *etcdtest.Cluster, ms []*etcdtest.Member) {
				for i, want := range []int{0, tc.sent, 0} {
					if ms[i].Defragments != want {
						t.Errorf("member %d was asked %d times", i, ms[i].Defragments)
					}
				}
			})
		})
	}
}

func TestADefragmentationIsNotSentOnOldEvidence(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := etcdtest.StartInMemory(t, 3)
		o := NewObserver(c.Dial, c.URLs(), 10*time.Second)
		defer o.Close()
		seen, err := o.Observe(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		for _, tc := range []struct {
			name string
			// status is how long the question before it takes, and by how soon the request has to be sent.
			status, by time.Duration
			sent       bool
		}{
			{"in time", time.Second, 2 * time.Second, true},
			{"the question takes too long", 3 * time.Second, 2 * time.Second, false},
			{"this process was stopped before it began", 0, -time.Minute, false},
		} {
			before := 0
			c.Set(func(_ *etcdtest.Cluster, ms []*etcdtest.Member) { before = ms[1].Defragments })
			c.Intercept(func(_ context.Context, method string, do func() (any, error)) (any, error) {
				if method == "Status" {
					<-time.After(tc.status)
				}
				return do()
			})
			_, err := o.Defragment(t.Context(), seen, c.ID(1), time.Now().Add(tc.by))
			after := 0
			c.Set(func(_ *etcdtest.Cluster, ms []*etcdtest.Member) { after = ms[1].Defragments })
			if sent := after > before; sent != tc.sent || NotSent(err) == tc.sent {
				t.Errorf("%s: sent %v, %v", tc.name, sent, err)
			}
			c.Intercept(nil)
			<-time.After(time.Minute)
		}
	})
}

func TestAnAlarmIsDisarmedForOneMemberOverAnyThatServes(t *testing.T) {
	c := etcdtest.Start(t, 3)
	both := []string{etcdtest.NoSpaceOf(c.ID(0)), etcdtest.NoSpaceOf(c.ID(2)), "memberID:162 alarm:CORRUPT"}
	c.Set(func(_ *etcdtest.Cluster, ms []*etcdtest.Member) {
		ms[0].ReadErr = errors.New("not now")
		for _, m := range ms {
			m.Alarms = both
		}
	})
	o := NewObserver(c.Dial, c.URLs(), 5*time.Second)
	defer o.Close()
	seen, err := o.Observe(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if st := seen.Members[1].Probe.Status; !st.NoSpace || !slices.Equal(st.NoSpaceOf, []uint64{c.ID(0), c.ID(2)}) {
		t.Errorf("alarms of %v", st)
	}
	if err := o.Disarm(t.Context(), seen, c.ID(0)); err != nil {
		t.Error(err)
	}
	c.Set(func(_ *etcdtest.Cluster, ms []*etcdtest.Member) {
		if !slices.Equal(ms[2].Alarms, both[1:]) || ms[0].Disarms != 0 {
			t.Errorf("alarms %q, the member that does not serve was asked %d times", ms[2].Alarms, ms[0].Disarms)
		}
	})
	if err := o.Disarm(t.Context(), seen, 0x99); err != nil {
		t.Errorf("of a member that is gone: %v", err)
	}
}
