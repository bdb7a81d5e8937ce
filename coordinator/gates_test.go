package coordinator

import (
	"bytes"
	"context"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/quorate/quorate/internal/etcdtest"
	"github.com/quorate/quorate/internal/record"
	"github.com/quorate/quorate/pkg/rollout"
)

// Whatever a host's gate does, the rollout waits for it and the loop does not.
func TestAGate(t *testing.T) {
	gated := func(gates ...Gate) func(*Config) { return func(c *Config) { c.Gates = gates } }
	passes := func(context.Context) (bool, string) { return true, "" }
	for _, tc := range []struct {
		name string
		test func(t *testing.T, s *stage)
	}{
		{"that hangs holds the rollout and nothing else, and is named with for how long", func(t *testing.T, s *stage) {
			hang := func(ctx context.Context) (bool, string) { <-ctx.Done(); return true, "it was in time" }
			stop := run(t, s.config(gated(Gate{Name: "disk", Ask: hang}, Gate{Name: "backup", Ask: passes})))
			s.update("rev-2")
			<-time.After(10 * time.Minute)
			s.expect(t)
			if r, _ := s.published(t); r.Guard != rollout.GuardHostGates ||
				!strings.Contains(r.Reason, "gate disk: the host has not answered for 9m") &&
					!strings.Contains(r.Reason, "gate disk: the host has not answered for 10m") {
				t.Errorf("status: %s: %s", r.Guard, r.Reason)
			}
			if at := s.at(renews); len(at) < 18 {
				t.Errorf("the record was renewed %d times in ten minutes", len(at))
			}
			begin := time.Now()
			stop()
			if took := time.Since(begin); took > releaseTimeout {
				t.Errorf("Run took %v to end", took)
			}
			if r := record.Parse(s.lease); r.Holder != "" || holders(s.kube) != 0 {
				t.Errorf("left behind: %+v and %d keys of the lock", r, holders(s.kube))
			}
		}},
		{"that takes a while does not let one look follow the other", func(t *testing.T, s *stage) {
			slow := func(ctx context.Context) (bool, string) { wait(ctx, 4*leastRest, nil); return false, "" }
			s.waiting()
			defer run(t, s.config(neverDue, gated(Gate{Name: "backup", Ask: slow})))()
			<-time.After(time.Minute)
			s.next(t, getSet)
			<-time.After(time.Minute)
			// A look waits for the gates that it has asked itself for leastRest.
			expectTimes(t, "looks", gaps(s.at(getSet)),
				slices.Repeat([]time.Duration{leastRest + shortRest + slowdown*DefaultInterval}, 10)...)
		}},
		{"that passes is asked anew only when something is done, or after two seconds", func(t *testing.T, s *stage) {
			var mu sync.Mutex
			var asked []time.Time
			gate := func(context.Context) (bool, string) {
				mu.Lock()
				defer mu.Unlock()
				asked = append(asked, time.Now())
				return true, ""
			}
			defer run(t, s.config(gated(Gate{Name: "backup", Ask: gate})))()
			<-time.After(time.Minute)
			s.update("rev-2")
			within(t, 2*time.Minute, "the rollout", func() bool { return s.settled("rev-2") })
			mu.Lock()
			defer mu.Unlock()
			soon := 0
			for i, at := range asked[1:] {
				if at.Sub(asked[i]) < 2*time.Second {
					soon++
				}
			}
			if n := len(asked); n < 4 || soon > 4 { // After each of the removals, and after the change of leadership.
				t.Errorf("asked %d times for three removals, and %d times within two seconds", n, soon)
			}
		}},
		{"is asked anew after each removal, however soon", func(t *testing.T, s *stage) {
			s.termination, s.startup = 500*time.Millisecond, time.Second
			gate := func(context.Context) (bool, string) { return len(s.at("delete etcd-2")) == 0, "shut" }
			defer run(t, s.config(gated(Gate{Name: "backup", Ask: gate})))()
			<-time.After(time.Minute)
			s.begin()
			s.update("rev-2")
			<-time.After(time.Minute)
			s.expect(t, "deleted etcd-2")
		}},
		{"that ignores its context keeps Run no longer than its time, and is named", func(t *testing.T, s *stage) {
			var log bytes.Buffer
			returns := make(chan struct{})
			stop := run(t,
				s.config(logTo(&log),
					gated(Gate{Name: "disk", Ask: func(context.Context) (bool, string) {
						<-returns
						return true, ""
					}})))
			s.update("rev-2")
			<-time.After(10 * time.Minute)
			s.expect(t)
			begin := time.Now()
			stop()
			if took := time.Since(begin); took > releaseTimeout {
				t.Errorf("Run took %v to end", took)
			}
			if said := log.String(); !strings.Contains(said, "the host's gate does not return") ||
				!strings.Contains(said, "gate=disk") {
				t.Errorf("log:\n%s", said)
			}
			close(returns)
		}},
		{"that takes long, but less than its answers last, does not keep the rollout for longer than that",
			func(t *testing.T, s *stage) {
				slow := func(ctx context.Context) (bool, string) { wait(ctx, 20*time.Second, nil); return true, "" }
				defer run(t, s.config(gated(Gate{Name: "disk", Ask: slow})))()
				<-time.After(time.Minute)
				s.begin()
				s.update("rev-2")
				within(t, 2*time.Minute, "the rollout", func() bool { return s.settled("rev-2") })
				expectLook(t, "the first removal", s.at("delete etcd-2")[0], 20*time.Second, 2*leastRest)
			}},
		{"does not age the evidence", func(t *testing.T, s *stage) {
			hang := func(ctx context.Context) (bool, string) { <-ctx.Done(); return false, "" }
			s.change(func() { s.setReady(s.pods[2], true); s.pods[2].Status.ContainerStatuses[1].Ready = false })
			defer run(t, s.config(gated(Gate{Name: "disk", Ask: hang})))()
			<-time.After(time.Minute)
			s.begin()
			s.update("rev-2")
			within(t, time.Minute, "a removal that the gate does not bind",
				func() bool { return len(s.at("delete etcd-2")) > 0 })
			if at := s.at("delete etcd-2")[0]; at > leastRest {
				t.Errorf("after %v", at)
			}
		}},
		{"that passes again is heard at once", func(t *testing.T, s *stage) {
			var open atomic.Bool
			defer run(t,
				s.config(
					gated(Gate{Name: "disk", Ask: func(context.Context) (bool, string) { return open.Load(), "" }})))()
			s.update("rev-2")
			<-time.After(time.Minute)
			s.expect(t)
			open.Store(true)
			s.begin()
			<-time.After(time.Minute)
			expectLook(t, "the first removal", s.at("delete etcd-2")[0], 0, held)
		}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { tc.test(t, newStage(t, 3)) })
		})
	}
}

func TestAGateThatCannotBeAskedIsNamed(t *testing.T) {
	ask := func(context.Context) (bool, string) { return true, "" }
	cfg := config(newKube(t, 1, etcdtest.StartInMemory(t, 1)))
	cfg.Gates = []Gate{{Ask: ask}, {Name: "disk"}, {Name: "disk", Ask: ask}}
	_, err := New(cfg)
	if err == nil {
		t.Fatal("accepted")
	}
	for _, want := range []string{"Gates[0].Name is required", `Gates[1].Ask is required ("disk")`,
		`Gates[2].Name: "disk": another gate has that name`} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("got %q, want it to say %q", err, want)
		}
	}
}
