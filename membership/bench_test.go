package membership_test

import (
	"fmt"
	"testing"

	"github.com/quorate/quorate/internal/etcdtest"
	"github.com/quorate/quorate/membership"
	"github.com/quorate/quorate/pkg/rollout"
)

// BenchmarkObserve is one look at a cluster: the member list and a probe of every member, over
// connections that are open already and never leave the process. It holds both ends of gRPC
// and no network; what a look costs against real members is measured by the benchmarks in
// test/bench.
func BenchmarkObserve(b *testing.B) {
	for _, members := range []int{3, 5, 7} {
		b.Run(fmt.Sprintf("members=%d", members), func(b *testing.B) {
			observe := observing(b, members)
			b.ReportAllocs()
			for b.Loop() {
				observe()
			}
		})
	}
}

// observing returns one observation, after a first one that has opened the connections.
func observing(tb testing.TB, members int) (observe func()) {
	c := etcdtest.StartInMemory(tb, members)
	o := membership.NewObserver(c.Dial, c.URLs(), generous)
	tb.Cleanup(o.Close)
	observe = func() {
		m, err := o.Observe(tb.Context())
		if err != nil {
			tb.Fatal(err)
		}
		for i := range m.Members {
			if p := m.Members[i].Probe; p.Read != rollout.Answered || p.Status == nil {
				tb.Fatalf("member %d: %+v", i, p)
			}
		}
	}
	observe()
	return observe
}

// Seven members take some 25 requests, each of which costs gRPC some 150 allocations on both
// ends together. A connection that is opened anew in every look costs thousands.
func TestALookAtSevenMembersTakesFewAllocations(t *testing.T) {
	observe := observing(t, 7)
	if n := testing.AllocsPerRun(20, observe); n >= 8000 {
		t.Errorf("%v allocations", n)
	}
}
