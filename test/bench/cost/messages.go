package cost

import (
	"context"
	"fmt"
	"maps"
	"strings"
	"sync"
	"time"

	"github.com/quorate/quorate/test/harness"
)

// Messages counts what a cluster's members receive, over the ends of their processes.
type Messages struct {
	cancel context.CancelFunc
	done   chan struct{}
	once   sync.Once
	// total is what processes that have ended had received when they were last asked, last what
	// the others have; both without what came before the beginning.
	total map[string]int
	last  map[string]map[string]int
}

// CountMessages begins to ask the members. What one receives after it was last asked, before its process ends, does
// not count.
func CountMessages(ctx context.Context, c *harness.Cluster, every time.Duration) (*Messages, error) {
	ctx, cancel := context.WithCancel(ctx)
	m := &Messages{cancel: cancel, done: make(chan struct{}), total: map[string]int{},
		last: map[string]map[string]int{}}
	for _, pod := range c.Pods() {
		now, err := c.EtcdMessages(ctx, pod)
		if err != nil {
			cancel()
			return nil, fmt.Errorf("ask the member of %s what it has received: %w", pod, err)
		}
		m.begin(pod, now)
	}
	go func() {
		defer close(m.done)
		ticker := time.NewTicker(every)
		defer ticker.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-ticker.C:
			}
			for _, pod := range c.Pods() {
				now, err := c.EtcdMessages(ctx, pod)
				if err != nil {
					continue
				}
				m.note(pod, now)
			}
		}
	}()
	return m, nil
}

// begin takes in what a member had received before.
func (m *Messages) begin(pod string, now map[string]int) {
	m.last[pod] = now
	for what, n := range now {
		m.total[what] -= n
	}
}

// note takes in what a member has received. What has become less belongs to another process.
func (m *Messages) note(pod string, now map[string]int) {
	for what, n := range m.last[pod] {
		if now[what] < n {
			for what, n := range m.last[pod] {
				m.total[what] += n
			}
			break
		}
	}
	m.last[pod] = now
}

// Stop ends the count, and returns it by service and method, without what the kubelet asks for.
func (m *Messages) Stop() map[string]int {
	m.cancel()
	<-m.done
	m.once.Do(func() {
		for _, counts := range m.last {
			for what, n := range counts {
				m.total[what] += n
			}
		}
		maps.DeleteFunc(m.total, func(what string, n int) bool { return n == 0 || strings.HasPrefix(what, "Health/") })
	})
	return m.total
}
