package chaos

import (
	"context"
	"net"
	"net/http/httptest"
	"os"
	"runtime"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"github.com/stretchr/testify/require"

	"github.com/quorate/quorate/internal/etcdtest"
	"github.com/quorate/quorate/test/chaos/soak"
)

// TestADeliberateLeakIsSeen measures this process as if it were a sidecar, and lets it leak.
func TestADeliberateLeakIsSeen(t *testing.T) {
	const looks = 48
	for _, c := range []struct {
		name string
		leak func(t *testing.T, etcd *etcdtest.Cluster)
		// grows is what is seen to grow. A process holds both ends of its connection to itself.
		grows []string
	}{
		{"nothing", func(*testing.T, *etcdtest.Cluster) {}, nil},
		{"a goroutine", func(t *testing.T, _ *etcdtest.Cluster) {
			end := make(chan struct{})
			go func() { <-end }()
			t.Cleanup(func() { close(end) })
		}, []string{"goroutines"}},
		{"a connection", func(t *testing.T, _ *etcdtest.Cluster) {
			listener, err := net.Listen("tcp", "127.0.0.1:0")
			require.NoError(t, err)
			connection, err := net.Dial("tcp", listener.Addr().String())
			require.NoError(t, err)
			t.Cleanup(func() { _ = connection.Close(); _ = listener.Close() })
		}, []string{"connections"}},
		{"a lease", func(_ *testing.T, etcd *etcdtest.Cluster) { etcd.Grant(time.Hour, nil) },
			[]string{"leases in etcd beyond one for each running sidecar", "leases in etcd without a key"}},
		{"memory", func(t *testing.T, _ *etcdtest.Cluster) {
			held := make([]byte, 1<<20)
			for i := range held {
				held[i] = byte(i)
			}
			t.Cleanup(func() { held[0]++ })
		}, []string{"anonymous memory", "Go heap after a collection"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			registry := prometheus.NewRegistry()
			registry.MustRegister(collectors.NewGoCollector(),
				prometheus.NewGauge(prometheus.GaugeOpts{Name: "quorate_coordinator",
					ConstLabels: prometheus.Labels{"statefulset": "main"}}))
			server := httptest.NewServer(promhttp.HandlerFor(registry, promhttp.HandlerOpts{}))
			defer server.Close()
			etcd := etcdtest.Start(t, 1)
			g := &gauge{
				began: time.Now(),
				find: func() []process {
					return []process{{pod: "lasting-0", lasts: true, pid: os.Getpid(), metrics: server.URL}}
				},
				leases: func(context.Context) (all, bare int, err error) { return etcd.Leases(), etcd.Leases(), nil },
			}
			run := &soak.Run{}
			for n := range looks {
				c.leak(t, etcd)
				// Half a minute passes between two looks, in which garbage is collected.
				runtime.GC()
				run.Looks = append(run.Looks, g.look(t.Context(), g.began.Add(time.Duration(n)*30*time.Second)))
			}
			trends, wrong := run.Judge()
			require.Len(t, trends, len(soak.Measures)+2, "%q", wrong)
			var grows []string
			for _, trend := range trends {
				if trend.Grows() {
					grows = append(grows, trend.Name)
				}
			}
			require.Equal(t, c.grows, grows)
			require.Equal(t, len(grows) > 0, len(wrong) > 0, "%q", wrong)
		})
	}
}
