package coordinator

import (
	"context"
	"fmt"
	"io"
	"sync"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/sirupsen/logrus"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/quorate/quorate/coordinator/election"
	"github.com/quorate/quorate/internal/etcdtest"
	"github.com/quorate/quorate/internal/record"
	"github.com/quorate/quorate/pkg/rollout"
)

// waits are the states in which a rollout spends its time. Nothing can be done, and a
// coordinator looks once a second and when a pod changes.
var waits = []struct {
	name   string
	change func(k *kube)
	want   rollout.Guard
}{
	// The successor's etcd refuses connections; so its client is dialled anew in every cycle.
	{"coming-up", func(k *kube) {
		k.etcd.Set(func(_ *etcdtest.Cluster, ms []*etcdtest.Member) {
			refused := status.Error(codes.Unavailable, "connection refused")
			ms[1].ReadErr, ms[1].StatusErr = refused, refused
		})
	}, rollout.GuardUpdatedPending},
	{"not-ready", func(*kube) {}, rollout.GuardUpdatedPending},
	{"held", func(k *kube) { k.lease.Annotations[rollout.ControlPaused] = "true" }, rollout.GuardPaused},
}

// waiting returns one whole cycle of a coordinator that holds the lock and the record and has
// nothing to do: it looks at everything, decides, tells, and would rest.
func waiting(tb testing.TB, members int, change func(*kube), want rollout.Guard) (cycle func()) {
	k := newKube(tb, members, etcdtest.StartInMemory(tb, members))
	k.update("rev-2")
	k.pods[1] = k.newPod(1)
	k.setReady(k.pods[1], false)
	quiet := logrus.New()
	quiet.SetOutput(io.Discard)
	c, err := New(config(k, func(cfg *Config) {
		cfg.PodName, cfg.Log, cfg.Metrics = "etcd-0", logrus.NewEntry(quiet), prometheus.NewRegistry()
	}))
	if err != nil {
		tb.Fatal(err)
	}
	ctx := tb.Context()
	if err := c.introduce(ctx); err != nil {
		tb.Fatal(err)
	}
	candidate := c.newCandidate()
	c.election = candidate
	electing, resign := context.WithCancel(ctx)
	var running sync.WaitGroup
	running.Go(func() { candidate.Run(electing) })
	for c.election.Tenure() == nil {
		c.pause(ctx, time.Millisecond)
	}
	l := c.newLoop() // Nothing is watched, because what wakes it is no part of a cycle.
	tb.Cleanup(func() {
		l.observer.rest()
		if _, err := c.election.Resign(context.Background(), election.Resignation{Over: true}); err != nil {
			tb.Error(err)
		}
		resign()
		running.Wait()
	})
	state, effect := c.protocol.Step(c.record, record.Start{Right: record.ByLock}, c.now())
	once := func() {
		for {
			if _, ok := effect.(record.Rest); ok {
				break
			}
			state, effect = c.protocol.Step(state, l.turn.do(ctx, &state, effect), c.now())
			if end, ok := effect.(record.End); ok {
				tb.Fatalf("%+v", end)
			}
			l.turn.hold.renewed = state.Renewed
		}
		state, effect = c.protocol.Step(state, record.Woken{}, c.now())
	}
	once() // It claims, and fences every pod.
	k.change(func() { change(k) })
	cycle = func() {
		once()
		if l.sight.decision.Guard != want {
			tb.Fatalf("%s: %s, want %s", l.sight.decision.Guard, l.sight.decision.Reason(), want)
		}
	}
	cycle()
	return cycle
}

// BenchmarkCycle is what a coordinator does once a second during a rollout. The servers are
// small and in the same process. So the figures include their share of time and allocations,
// but no network.
func BenchmarkCycle(b *testing.B) {
	for _, members := range []int{3, 5, 7} {
		for _, w := range waits {
			b.Run(fmt.Sprintf("members=%d/state=%s", members, w.name), func(b *testing.B) {
				cycle := waiting(b, members, w.change, w.want)
				b.ReportAllocs()
				for b.Loop() {
					cycle()
				}
			})
		}
	}
}

// A cycle over seven members takes some 30 requests, each of which costs gRPC some 200 allocations
// on both ends together. It must not open new connections, nor build long texts that nobody has
// asked for.
func TestACycleOverSevenMembersTakesFewAllocations(t *testing.T) {
	cycle := waiting(t, 7, func(*kube) {}, rollout.GuardUpdatedPending)
	if n := testing.AllocsPerRun(20, cycle); n >= 12_000 {
		t.Errorf("%v allocations", n)
	}
}
