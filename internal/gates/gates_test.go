package gates

import (
	"bytes"
	"context"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sirupsen/logrus"

	"github.com/quorate/quorate/pkg/rollout"
)

const grace = 50 * time.Millisecond

// one is a single gate, and how often late was called.
func one(ask func(context.Context) (bool, string)) (g Gates, late *int) {
	late = new(int)
	return New([]Gate{{Name: "disk", Ask: ask}}, grace, func() { *late++ }), late
}

// looks asks once a second, and returns what was said last.
func looks(ctx context.Context, g Gates, n int) (said rollout.Gate) {
	for range n {
		said = g.Ask(ctx)()[0]
		time.Sleep(time.Second)
	}
	return said
}

func TestAGate(t *testing.T) {
	for _, tc := range []struct {
		name string
		test func(t *testing.T, ctx context.Context)
	}{
		{"that answers is heard in the same look", func(t *testing.T, ctx context.Context) {
			g, late := one(func(context.Context) (bool, string) {
				time.Sleep(grace / 2)
				return false, "it is full"
			})
			began := time.Now()
			if said := g.Ask(ctx)(); len(said) != 1 || said[0] != (rollout.Gate{Name: "disk", Detail: "it is full"}) {
				t.Errorf("it says %+v", said)
			}
			if took := time.Since(began); took != grace/2 || *late > 0 {
				t.Errorf("a look waited for %v, and %d others were asked for", took, *late)
			}
		}},
		{"that is slow keeps a look for the grace, and asks for another only for news",
			func(t *testing.T, ctx context.Context) {
				var open atomic.Bool
				g, late := one(func(context.Context) (bool, string) { time.Sleep(2 * grace); return open.Load(), "" })
				began := time.Now()
				if said := g.Ask(ctx)()[0]; said.Pass || said.Detail != "the host has not answered for 0s" {
					t.Errorf("it says %+v", said)
				}
				if took := time.Since(began); took != grace {
					t.Errorf("a look waited for %v", took)
				}
				if looks(ctx, g, 5); *late != 1 {
					t.Errorf("%d looks were asked for, of which the first is for the first answer", *late)
				}
				open.Store(true)
				if said := looks(ctx, g, 2); !said.Pass || *late != 2 {
					t.Errorf("it says %+v, and %d looks were asked for", said, *late)
				}
			}},
		{"that has passed is not asked again for two seconds, while nothing is done",
			func(t *testing.T, ctx context.Context) {
				calls := 0
				g, _ := one(func(context.Context) (bool, string) { calls++; return true, "" })
				for _, s := range []struct {
					after time.Duration
					acted bool
					calls int
				}{{0, false, 1}, {1999 * time.Millisecond, false, 1}, {time.Millisecond, false, 2}, {0, true, 3},
					{0, false, 3}} {
					time.Sleep(s.after)
					if s.acted {
						g.Acted()
					}
					if said := g.Ask(ctx)()[0]; !said.Pass || calls != s.calls {
						t.Errorf("%+v: it says %+v after %d calls", s, said, calls)
					}
				}
			}},
		{"that does not pass is asked at every look", func(t *testing.T, ctx context.Context) {
			calls := 0
			g, _ := one(func(context.Context) (bool, string) { calls++; return false, "" })
			if looks(ctx, g, 5); calls != 5 {
				t.Errorf("asked %d times", calls)
			}
		}},
		{"is asked by one call at a time, whatever it does with its context", func(t *testing.T, ctx context.Context) {
			var calls, most atomic.Int32
			g, _ := one(func(context.Context) (bool, string) {
				most.Store(max(most.Load(), calls.Add(1)))
				defer calls.Add(-1)
				time.Sleep(50 * time.Second)
				return true, ""
			})
			if said := looks(ctx, g, 600); said.Pass || most.Load() != 1 {
				t.Errorf("it says %+v, after %d calls at a time", said, most.Load())
			}
			time.Sleep(time.Minute)
		}},
		{"that hangs is asked again, and what it says when its time is over does not count",
			func(t *testing.T, ctx context.Context) {
				var calls atomic.Int32
				g, late := one(func(ctx context.Context) (bool, string) {
					calls.Add(1)
					<-ctx.Done()
					return true, "it was in time"
				})
				said := looks(ctx, g, 600)
				if said.Pass || !strings.HasPrefix(said.Detail, "the host has not answered for 10m") || *late > 0 {
					t.Errorf("it says %+v, and %d looks were asked for", said, *late)
				}
				if n := calls.Load(); n < 19 || n > 21 {
					t.Errorf("asked %d times in ten minutes", n)
				}
			}},
		{"that passed counts for 30 s after it has answered last", func(t *testing.T, ctx context.Context) {
			hangs := false
			g, _ := one(func(ctx context.Context) (bool, string) {
				if hangs {
					<-ctx.Done()
				}
				return true, "the last upload was good"
			})
			g.Ask(ctx)()
			hangs = true
			if said := looks(ctx, g, 28); !said.Pass {
				t.Errorf("soon it says %+v", said)
			}
			said := looks(ctx, g, 5)
			if said.Pass || !strings.HasPrefix(said.Detail, "the host has not answered for ") ||
				!strings.HasSuffix(said.Detail, "; its last answer was: the last upload was good") {
				t.Errorf("then it says %+v", said)
			}
		}},
		{"that ignores its context is named in the end, and waited for only for a while",
			func(t *testing.T, _ context.Context) {
				var log bytes.Buffer
				logger := logrus.New()
				logger.SetOutput(&log)
				returns := make(chan struct{})
				g, _ := one(func(context.Context) (bool, string) { <-returns; return true, "" })
				ctx, cancel := context.WithCancel(t.Context())
				g.Ask(ctx)()
				cancel()
				began := time.Now()
				g.End(logrus.NewEntry(logger), time.Second)
				if took := time.Since(began); took != time.Second || !strings.Contains(log.String(), "gate=disk") ||
					!strings.Contains(log.String(), "the host's gate does not return, although its context has ended") {
					t.Errorf("after %v the log says %s", took, log.String())
				}
				close(returns)
			}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				tc.test(t, ctx)
			})
		})
	}
}

func TestAHostWithoutGatesSaysNothing(t *testing.T) {
	var g Gates
	g.Acted()
	if said := g.Ask(t.Context())(); g.Any() || said != nil {
		t.Errorf("it says %+v", said)
	}
}
