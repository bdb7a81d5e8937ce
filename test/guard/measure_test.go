package guard

import (
	"context"
	"flag"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/quorate/quorate/test/harness"
)

var (
	measure = flag.Bool("measure", false,
		"measure how late the guard is, and what it costs an API server\n"+
			"(ten minutes, on a machine that does nothing else)")
	changes = flag.Int("measure-changes", 500, "how often the list is written and emptied")
	window  = flag.Duration("measure-window", time.Minute, "for how long the API server's work is measured")
	pairs   = flag.Int("measure-pairs", 3, "how often it is measured with the guard and without it")
)

// asked skips what takes minutes and means nothing on a busy machine.
func asked(t *testing.T) {
	t.Helper()
	if !*measure {
		t.Skip("it is measured with -measure (make measure-guard)")
	}
}

// The lag is that of a single API server that took the write itself, from its answer to the sending of the first
// request that it judges by it. So it is an upper bound, by the time that one request takes. Another API server learns
// of the write in the same way, from etcd.
func TestHowLateTheGuardIs(t *testing.T) {
	asked(t)
	c := newCluster(t, shared, "late")
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
	defer cancel()
	c.ctx = ctx
	c.node("node-of-late")
	lease := c.record("etcd-main", map[string]types.UID{"etcd-main-1": c.pod("etcd-main-1", "node-of-late")})
	full := lease.Annotations["quorate.dev/needed"]
	c.write(lease)
	var refuses, letsGo lags
	for range *changes {
		letsGo.add(c.change(`{"epoch":7}`, false))
		refuses.add(c.change(full, true))
	}
	fmt.Printf("after the list is written, the guard refuses:  %s\n", &refuses)
	fmt.Printf("after the list is emptied, the guard lets go:  %s\n", &letsGo)
}

// change writes the list, and returns how long the guard goes by the old one.
func (c *cluster) change(list string, refuses bool) time.Duration {
	c.t.Helper()
	_, err := c.CoordinationV1().Leases(c.namespace).Patch(c.ctx, "quorate-etcd-main", types.MergePatchType,
		fmt.Appendf(nil, `{"metadata":{"annotations":{"quorate.dev/needed":%q}}}`, list), metav1.PatchOptions{})
	require.NoError(c.t, err)
	for written := time.Now(); ; {
		sent := time.Now()
		err := deletes(c, c, "etcd-main-1")
		require.True(c.t, err == nil || apierrors.IsForbidden(err), "%v", err)
		if (err != nil) == refuses {
			return sent.Sub(written)
		}
	}
}

// lags are sorted when they are shown.
type lags []time.Duration

func (l *lags) add(d time.Duration) { *l = append(*l, d) }

func (l *lags) String() string {
	slices.Sort(*l)
	// The first request is sent at once. It is not late if that is judged by the new list.
	none := 0
	for none < len(*l) && (*l)[none] < time.Millisecond/10 {
		none++
	}
	share := func(percent int) time.Duration {
		return (*l)[(len(*l)-1)*percent/100].Round(10 * time.Microsecond)
	}
	return fmt.Sprintf("median %v, 99th percentile %v, at most %v later; the first request already in %d of %d",
		share(50), share(99), share(100), none, len(*l))
}

// nodes renew their Leases as often as kubelets do by default.
const nodes, renewal = 1000, 10 * time.Second

// An API server with the guard watches all Leases, so it hears of every heartbeat of every node once more. The
// controllers hear of them anyway, with the guard and without it.
func TestWhatTheGuardCostsAnAPIServer(t *testing.T) {
	asked(t)
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute+time.Duration(*pairs)*2*(*window+2*time.Minute))
	defer cancel()
	plane, err := start(ctx, "costs", "127.77.88.3")
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, plane.Close(context.Background())) })
	client := kubernetes.NewForConfigOrDie(plane.AdminConfig())
	beats := newHeartbeats(ctx, t, plane.AdminConfig)

	var processor, memory [2][]float64
	for i := range 2 * *pairs {
		// Each is first in turn.
		with := (i/2+i)%2 == 0
		if !with {
			gone := client.AdmissionregistrationV1()
			for _, err := range []error{
				gone.ValidatingAdmissionPolicyBindings().Delete(ctx, policyName, metav1.DeleteOptions{}),
				gone.ValidatingAdmissionPolicies().Delete(ctx, policyName, metav1.DeleteOptions{}),
			} {
				require.True(t, err == nil || apierrors.IsNotFound(err), "%v", err)
			}
		}
		// Both begin with an API server that has done nothing yet. One that knew the guard would not watch again.
		require.NoError(t, plane.StopAPIServer(ctx))
		require.NoError(t, plane.StartAPIServer(ctx))
		if with {
			require.NoError(t, harness.InstallGuard(ctx, plane.AdminConfig()))
		}
		beats.renew(ctx, 2*renewal) // Until every Lease has been renewed, also by clients that had to connect again.
		pid := plane.PIDs()["kube-apiserver"]
		before, err := harness.ProcessorTime(pid)
		require.NoError(t, err)
		renewed, failed := beats.renew(ctx, *window)
		require.Zero(t, failed, "renewals that failed")
		after, err := harness.ProcessorTime(pid)
		require.NoError(t, err)
		used, err := harness.MemoryOf(pid)
		require.NoError(t, err)
		arm, name := 0, "without the guard"
		if with {
			arm, name = 1, "with the guard   "
		}
		seconds, mebibytes := (after - before).Seconds(), float64(used.Resident)/(1<<20)
		processor[arm], memory[arm] = append(processor[arm], seconds), append(memory[arm], mebibytes)
		fmt.Printf("%s  %d Leases renewed in %v: kube-apiserver used %.2f s of a processor, and occupies %.0f MiB\n",
			name, renewed, *window, seconds, mebibytes)
	}
	for i := range *pairs {
		fmt.Printf("pair %d: %+.2f s, %+.0f MiB with the guard\n", i+1, processor[1][i]-processor[0][i],
			memory[1][i]-memory[0][i])
	}
}

// heartbeats are the Leases of nodes. Every client renews an equal part of them, one after the other.
type heartbeats struct {
	clients []kubernetes.Interface
	leases  [][]*coordinationv1.Lease
	next    []int
}

func newHeartbeats(ctx context.Context, t *testing.T, config func() *rest.Config) *heartbeats {
	t.Helper()
	const clients = 20
	h := &heartbeats{next: make([]int, clients)}
	for i := range clients {
		config := config()
		config.ContentType = runtime.ContentTypeProtobuf // As kubelets do.
		client := kubernetes.NewForConfigOrDie(config)
		var leases []*coordinationv1.Lease
		for n := range nodes / clients {
			name := fmt.Sprintf("node-%d-%d", i, n)
			lease, err := client.CoordinationV1().Leases(corev1.NamespaceNodeLease).Create(ctx, &coordinationv1.Lease{
				ObjectMeta: metav1.ObjectMeta{Name: name},
				Spec:       coordinationv1.LeaseSpec{HolderIdentity: &name, LeaseDurationSeconds: new(int32(40))},
			}, metav1.CreateOptions{})
			require.NoError(t, err)
			leases = append(leases, lease)
		}
		h.clients, h.leases = append(h.clients, client), append(h.leases, leases)
	}
	return h
}

// renew renews all Leases in turn for a while, and returns how many it renewed, and how many it could not.
func (h *heartbeats) renew(ctx context.Context, while time.Duration) (renewed, failed int64) {
	ctx, cancel := context.WithTimeout(ctx, while)
	defer cancel()
	var good, bad atomic.Int64
	var clients sync.WaitGroup
	for i, client := range h.clients {
		clients.Go(func() {
			ticker := time.NewTicker(renewal / time.Duration(len(h.leases[i])))
			defer ticker.Stop()
			for {
				select {
				case <-ctx.Done():
					return
				case <-ticker.C:
				}
				lease := h.leases[i][h.next[i]]
				now := metav1.NowMicro()
				lease.Spec.RenewTime = &now
				next, err := client.CoordinationV1().Leases(lease.Namespace).Update(ctx, lease, metav1.UpdateOptions{})
				switch {
				case err == nil:
					good.Add(1)
					h.leases[i][h.next[i]] = next
				case ctx.Err() != nil:
					// It may have been written, so the next renewal has to begin with what is there.
					if next, err := client.CoordinationV1().Leases(lease.Namespace).Get(context.WithoutCancel(ctx),
						lease.Name, metav1.GetOptions{}); err == nil {
						h.leases[i][h.next[i]] = next
					}
					return
				default:
					bad.Add(1)
				}
				h.next[i] = (h.next[i] + 1) % len(h.leases[i])
			}
		})
	}
	clients.Wait()
	return good.Load(), bad.Load()
}
