package membership_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"

	"github.com/quorate/quorate/internal/etcdtest"
	"github.com/quorate/quorate/membership"
	"github.com/quorate/quorate/pkg/rollout"
)

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
