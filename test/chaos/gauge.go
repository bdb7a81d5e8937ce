package chaos

import (
	"bufio"
	"context"
	"fmt"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/quorate/quorate/test/chaos/soak"
	"github.com/quorate/quorate/test/harness"
)

const (
	// gaugeEvery is how often a gauge looks, and gaugeWithin bounds a look.
	gaugeEvery  = 5 * time.Second
	gaugeWithin = 2 * time.Second
)

// process is a sidecar that can be measured.
type process struct {
	pod     string
	lasts   bool
	pid     int
	metrics string
}

// gauge measures what sidecars occupy.
type gauge struct {
	began time.Time
	// find names the sidecars that run, and leases counts those in etcd.
	find   func() []process
	leases func(ctx context.Context) (all, bare int, err error)
}

// gaugeOf is the gauge of a life.
func gaugeOf(l *life) *gauge {
	return &gauge{
		began: l.began,
		find: func() (all []process) {
			for _, pod := range slices.Concat(lastingPods(), l.cluster.Pods()) {
				if pid, ok := l.env.Nodes.PID(pod, sidecar); ok {
					address := l.env.Network.AddressOf(harness.Namespace, pod)
					all = append(all, process{
						pod: pod, lasts: l.lasts(pod), pid: pid,
						metrics: "http://" + net.JoinHostPort(address, strconv.Itoa(metricsPort)) + "/metrics",
					})
				}
			}
			return all
		},
		leases: l.cluster.Leases,
	}
}

// run looks until the context ends.
func (g *gauge) run(ctx context.Context, add func(soak.Look) error) error {
	ticker := time.NewTicker(gaugeEvery)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
		}
		if err := add(g.look(ctx, time.Now())); err != nil {
			return fmt.Errorf("keep what sidecars occupy: %w", err)
		}
	}
}

// look measures everything once. What cannot be measured is left out: it is halted, cut off, or has just ended.
func (g *gauge) look(ctx context.Context, at time.Time) soak.Look {
	ctx, cancel := context.WithTimeout(ctx, gaugeWithin)
	defer cancel()
	look := soak.Look{Seconds: at.Sub(g.began).Seconds()}
	running := g.find()
	found := make([]*soak.Sidecar, len(running))
	var looking sync.WaitGroup
	for i, p := range running {
		looking.Go(func() {
			if s, err := p.measure(ctx); err == nil {
				found[i] = s
			}
		})
	}
	if all, bare, err := g.leases(ctx); err == nil {
		look.Leases = &soak.Leases{Running: len(running), All: all, Bare: bare}
	}
	looking.Wait()
	for _, s := range found {
		if s != nil {
			look.Sidecars = append(look.Sidecars, *s)
		}
	}
	return look
}

// measure reads what the process tells about itself, and what the kernel does.
func (p process) measure(ctx context.Context) (*soak.Sidecar, error) {
	const goroutines, heap = "go_goroutines", "go_memstats_heap_alloc_bytes"
	// The second one is only there at the owner of the lock.
	const coordinates, owns = "quorate_coordinator", "quorate_database_quota_ratio"
	told, err := scrape(ctx, p.metrics, goroutines, heap, coordinates, owns)
	if err != nil {
		return nil, err
	}
	for _, name := range []string{goroutines, heap, coordinates} {
		if _, ok := told[name]; !ok {
			return nil, fmt.Errorf("%s has no %s", p.metrics, name)
		}
	}
	s := &soak.Sidecar{Pod: p.pod, PID: p.pid, Lasts: p.lasts, Role: soak.Waiting,
		Goroutines: int(told[goroutines]), Heap: told[heap] / (1 << 20)}
	if _, ok := told[owns]; ok {
		s.Role = soak.Owning
	}
	if told[coordinates] > 0 {
		s.Role = soak.Coordinating
	}
	memory, err := harness.MemoryOf(p.pid)
	if err != nil {
		return nil, err
	}
	s.Anonymous = memory.AnonymousMiB()
	s.Connections, err = sockets(p.pid)
	return s, err
}

// sockets counts those that a process has open.
func sockets(pid int) (n int, err error) {
	dir := filepath.Join("/proc", strconv.Itoa(pid), "fd")
	files, err := os.ReadDir(dir)
	if err != nil {
		return 0, err
	}
	for _, f := range files {
		if to, err := os.Readlink(filepath.Join(dir, f.Name())); err == nil && strings.HasPrefix(to, "socket:") {
			n++
		}
	}
	return n, nil
}

// scrape reads metrics that have one value each, whatever their labels. Those that are not there are left out.
func scrape(ctx context.Context, url string, names ...string) (map[string]float64, error) {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return nil, err
	}
	// A connection that stays would be one of those that are counted.
	client := http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	answer, err := client.Do(request)
	if err != nil {
		return nil, err
	}
	defer answer.Body.Close()
	values := map[string]float64{}
	lines := bufio.NewScanner(answer.Body)
	for lines.Scan() {
		line := lines.Text()
		name := line[:max(0, strings.IndexAny(line, "{ "))]
		if slices.Contains(names, name) {
			values[name], err = strconv.ParseFloat(line[strings.LastIndexByte(line, ' ')+1:], 64)
			if err != nil {
				return nil, fmt.Errorf("%s of %s: %w", name, url, err)
			}
		}
	}
	return values, lines.Err()
}
