package membership_test

import (
	"strings"
	"testing"
	"time"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"

	"github.com/quorate/quorate/internal/etcdtest"
	"github.com/quorate/quorate/membership"
	"github.com/quorate/quorate/pkg/rollout"
)

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
