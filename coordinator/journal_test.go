package coordinator

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/quorate/quorate/internal/report"
	"github.com/quorate/quorate/pkg/rollout"
	"github.com/quorate/quorate/selfupdate"
)

// kubeEvents notes the Kubernetes events.
type kubeEvents struct{ *kube }

func (k kubeEvents) Create(_ context.Context, e *corev1.Event, _ metav1.CreateOptions) (*corev1.Event, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.told = append(k.told, fmt.Sprintf("%s %s %s %s", e.Type, e.InvolvedObject.Name, e.Reason, e.Message))
	return e, nil
}

func (k kubeEvents) Patch(_ context.Context, name string, _ types.PatchType, data []byte, _ metav1.PatchOptions,
	_ ...string) (*corev1.Event, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.told = append(k.told, "again "+name+" "+string(data))
	return &corev1.Event{}, nil
}

// telling gives a coordinator every way to report about itself.
func telling(k *kube, r prometheus.Registerer) func(*Config) {
	return func(c *Config) { c.Events, c.Metrics, c.PodName = kubeEvents{k}, r, "etcd-0" }
}

// metric returns the sum of a metric's samples that have all these label values.
func metric(t *testing.T, g prometheus.Gatherer, name string, values ...string) float64 {
	t.Helper()
	families, err := g.Gather()
	if err != nil {
		t.Fatal(err)
	}
	sum := 0.0
	for _, f := range families {
		if f.GetName() != name {
			continue
		}
		for _, m := range f.GetMetric() {
			var labels []string
			for _, l := range m.GetLabel() {
				labels = append(labels, l.GetValue())
			}
			if !slices.ContainsFunc(values, func(v string) bool { return !slices.Contains(labels, v) }) {
				sum += m.GetGauge().GetValue() + m.GetCounter().GetValue() + float64(m.GetHistogram().GetSampleCount())
			}
		}
	}
	return sum
}

// published is what the Lease tells its readers.
func (k *kube) published(t *testing.T) (report.Report, report.History) {
	t.Helper()
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.lease == nil {
		return report.Report{}, nil
	}
	r, h, err := report.FromNotes(k.lease.Annotations)
	if err != nil {
		t.Fatal(err)
	}
	return r, h
}

func (k *kube) toldOf(words ...string) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	return slices.ContainsFunc(k.told, func(e string) bool {
		return !slices.ContainsFunc(words, func(w string) bool { return !strings.Contains(e, w) })
	})
}

// toldTimes is how many events of a guard there were.
func (k *kube) toldTimes(guard string) (n int) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, e := range k.told {
		if strings.Contains(e, " "+guard+" ") {
			n++
		}
	}
	return n
}

func TestARolloutIsToldInEveryWay(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStage(t, 3)
		registry := prometheus.NewRegistry()
		stop := run(t, s.config(telling(s.kube, registry), func(c *Config) { c.Version = "v1.2.3" }))
		<-time.After(time.Minute)
		s.update("rev-2")
		within(t, 20*time.Second, "a rollout in the metrics", func() bool {
			return metric(t, registry, "quorate_rollout_in_progress") == 1
		})
		if got := metric(t, registry, "quorate_coordinator", "ns", "etcd"); got != 1 {
			t.Errorf("quorate_coordinator %v", got)
		}
		started := metric(t, registry, "quorate_rollout_started_timestamp_seconds")
		if time.Since(time.UnixMilli(int64(started*1000))) > 20*time.Second {
			t.Errorf("quorate_rollout_started_timestamp_seconds %v", started)
		}
		within(t, 5*time.Minute, "the rollout", func() bool { return s.settled("rev-2") })
		<-time.After(time.Minute)

		r, h := s.published(t)
		if r.Action != "Complete" || r.Rolling() || r.Ended.IsZero() ||
			r.Progress != (report.Progress{Pods: 3, Settled: 3}) || r.Coordinator != "etcd-0" {
			t.Errorf("the Lease tells %+v", r)
		}
		var happened []string
		for _, e := range h {
			happened = append(happened, strings.TrimSpace(e.What+" "+e.Pod+" "+e.To))
			if e.By != "etcd-0" || e.Epoch == 0 || e.Revision != "rev-2" || e.Reason == "" || e.At.IsZero() {
				t.Errorf("entry %+v", e)
			}
		}
		want := []string{"Removed etcd-2", "Removed etcd-1", "LeaderMoved etcd-0 etcd-1", "Removed etcd-0", "Completed"}
		// Its own pod goes last. In this test the coordinator outlives it.
		if !slices.Equal(happened, want) {
			t.Errorf("the history tells %q, want %q", happened, want)
		}
		for _, words := range [][]string{
			{"Normal etcd PodRemoved Removed etcd-2 for revision rev-2, by the rule Serving: ",
				"3 of 3 voters serve, quorum 2"},
			{"Normal etcd LeaderMoved Moved etcd's leadership from etcd-0 to etcd-1, by the rule HandOverLeadership"},
			{"Normal etcd RolloutCompleted The rollout of revision rev-2 is complete: 3 of 3"},
		} {
			if !s.toldOf(words...) {
				t.Errorf("no event tells %q:\n%s", words, strings.Join(s.told, "\n"))
			}
		}
		for _, m := range []struct {
			name   string
			labels []string
			want   float64
		}{
			{"quorate_removals_total", []string{"Serving", "done"}, 3},
			{"quorate_removals_total", []string{"refused"}, 0},
			{"quorate_leader_moves_total", []string{"done"}, 1},
			{"quorate_rollout_in_progress", nil, 0},
			{"quorate_rollout_started_timestamp_seconds", nil, 0},
			{"quorate_rollout_pods", []string{"settled"}, 3},
			{"quorate_rollout_state", []string{"Complete"}, 1},
			{"quorate_rollout_state", nil, 1},
			{"quorate_record_epoch", nil, float64(r.Epoch)},
			{"quorate_consecutive_failures", nil, 0},
			{"quorate_coordinator", nil, 0},
			{"quorate_voters", nil, 0},
			{"quorate_verdict", nil, 0},
			{"quorate_stale_removals_refused_total", nil, 0},
			{"quorate_rollouts_completed_total", nil, 1},
			{"quorate_rollout_duration_seconds", nil, 1},
			{"quorate_build_info", []string{"v1.2.3"}, 1},
		} {
			if got := metric(t, registry, m.name, m.labels...); got != m.want {
				t.Errorf("%s%q: %v, want %v", m.name, m.labels, got, m.want)
			}
		}
		if metric(t, registry, "quorate_probe_duration_seconds", "answered") < 10 ||
			metric(t, registry, "quorate_hold_seconds_total", "Terminating") < 2 {
			t.Error("probes and waits are not counted")
		}
		stop()
		if families, _ := registry.Gather(); len(families) > 0 {
			t.Errorf("%d metrics are left in the host's registry", len(families))
		}
	})
}

func TestAHoldIsToldToTheLeasesReadersWithinSecondsAndBecomesAnEventWhenItLasts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStage(t, 3)
		registry := prometheus.NewRegistry()
		defer run(t, s.config(telling(s.kube, registry)))()
		<-time.After(time.Minute)
		s.stuck = true
		s.update("rev-2")
		within(t, 30*time.Second, "a first removal", func() bool { return strings.Contains(s.story(), "etcd-2") })
		s.annotate(rollout.ControlPaused, "true")
		begin := time.Now()
		within(t, 7*time.Second, "the Lease to tell of the pause", func() bool {
			r, _ := s.published(t)
			return r.Guard == "Paused"
		})
		if s.toldOf("Paused") {
			t.Errorf("an event at once: %q", s.told)
		}
		within(t, time.Minute, "an event", func() bool {
			return s.toldOf("Warning etcd RolloutHeld ", "Paused has held everything for 3", rollout.ControlPaused,
				"What to do: ")
		})
		if took := time.Since(begin); took < report.HoldLasts {
			t.Errorf("an event after %v", took)
		}
		r, _ := s.published(t)
		since := r.Since
		<-time.After(10 * time.Minute)
		if n := s.toldTimes("Paused"); n != 1 {
			t.Errorf("%d events of one hold in ten minutes", n)
		}
		if r, _ := s.published(t); !r.Since.Equal(since) || r.At.Sub(r.Since) < 10*time.Minute || !r.Rolling() {
			t.Errorf("since %v, was %v, at %v", r.Since, since, r.At)
		}
		if held := metric(t, registry, "quorate_hold_seconds_total", "Paused"); held < 600 || held > 660 {
			t.Errorf("held for %v s", held)
		}
		if got := metric(t, registry, "quorate_rollout_state", "Hold", "Held", "Paused"); got != 1 {
			t.Errorf("quorate_rollout_state %v", got)
		}
	})
}

func TestWhatIsToldGoesOnAcrossAChangeOfTheCoordinator(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStage(t, 3)
		stop := run(t, s.config(telling(s.kube, prometheus.NewRegistry())))
		s.stuck = true
		s.update("rev-2")
		within(t, 30*time.Second, "a first removal", func() bool { return strings.Contains(s.story(), "etcd-2") })
		s.annotate(rollout.ControlPaused, "true")
		<-time.After(time.Minute)
		first, _ := s.published(t)
		stop()

		outside, err := New(s.config(func(c *Config) { c.PodName = "" }))
		if err != nil {
			t.Fatal(err)
		}
		if s, err := outside.Report(t.Context()); err != nil || s.Guard != "Paused" || len(s.History) != 1 ||
			s.Word != report.CoordinatorsWord {
			t.Errorf("who does not coordinate tells %+v, %v", s, err)
		}
		defer run(t, s.config(telling(s.kube, prometheus.NewRegistry()), func(c *Config) { c.PodName = "etcd-1" }))()
		<-time.After(time.Minute)
		if held := s.toldTimes("Paused"); held != 1 {
			t.Errorf("%d events of one hold, by two coordinators", held)
		}
		second, h := s.published(t)
		if second.Coordinator != "etcd-1" || second.Epoch <= first.Epoch || !second.Since.Equal(first.Since) ||
			!second.Started.Equal(first.Started) {
			t.Errorf("first %+v\nthen %+v", first, second)
		}
		if len(h) != 1 || h[0].Pod != "etcd-2" || h[0].Epoch != first.Epoch {
			t.Errorf("history %+v", h)
		}
	})
}

func TestARolloutThatTwoCoordinatorsCarryOutIsCountedByOneAndLastsFromWhereTheFirstBegan(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStage(t, 3)
		first, second := prometheus.NewRegistry(), prometheus.NewRegistry()
		stop := run(t, s.config(telling(s.kube, first)))
		<-time.After(time.Minute)
		begun := time.Now()
		s.update("rev-2")
		within(t, 30*time.Second, "a first removal", func() bool { return strings.Contains(s.story(), "etcd-2") })
		s.annotate(rollout.ControlPaused, "true")
		<-time.After(10 * time.Minute)
		if n := metric(t, first, "quorate_rollouts_completed_total"); n != 0 {
			t.Errorf("%v are counted before the end", n)
		}
		stop()
		defer run(t, s.config(telling(s.kube, second), func(c *Config) { c.PodName = "etcd-1" }))()
		s.annotate(rollout.ControlPaused, "false")
		within(t, 5*time.Minute, "the rollout", func() bool { return s.settled("rev-2") })
		within(t, time.Minute, "that it is counted", func() bool {
			return metric(t, second, "quorate_rollouts_completed_total") == 1
		})
		_, h := s.published(t)
		end := h[len(h)-1]
		last := metric(t, second, "quorate_rollout_last_completion_timestamp_seconds")
		if end.What != report.Completed || last != float64(end.At.UnixMilli())/1000 {
			t.Errorf("the last completion was at %v, and the history tells %+v", last, end)
		}
		families, _ := second.Gather()
		for _, f := range families {
			if f.GetName() != "quorate_rollout_duration_seconds" {
				continue
			}
			took, want := f.GetMetric()[0].GetHistogram().GetSampleSum(), end.At.Sub(begun).Seconds()
			if took > want || took < want-10 {
				t.Errorf("it took %v s, and the template changed %v s before the end", took, want)
			}
		}
		<-time.After(10 * time.Minute)
		if n := metric(t, second, "quorate_rollouts_completed_total"); n != 1 {
			t.Errorf("counted %v times", n)
		}
	})
}

func TestAnOverrideIsLoud(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStage(t, 3)
		registry := prometheus.NewRegistry()
		defer run(t, s.config(telling(s.kube, registry), func(c *Config) {
			c.Gates = []Gate{{Name: report.GateBackup, Ask: func(context.Context) (bool, string) {
				return false, "the last upload failed"
			}}}
		}))()
		s.update("rev-2")
		within(t, time.Minute, "that the gate holds", func() bool {
			r, _ := s.published(t)
			return r.Guard == "HostGates"
		})
		if r, _ := s.published(t); r.Backup == nil || r.Backup.Ready || r.Backup.Detail != "the last upload failed" {
			t.Errorf("backup %+v", r.Backup)
		}
		s.annotate(rollout.ControlOverrideGuards, "HostGates")
		within(t, time.Minute, "a removal", func() bool { return s.story() != "" })
		<-time.After(5 * time.Second)
		if !s.toldOf("Warning etcd GuardsOverridden HostGates") ||
			!s.toldOf("Warning etcd GuardsOverridden HostGates would have held this", "Removed etcd-2") {
			t.Errorf("events:\n%s", strings.Join(s.told, "\n"))
		}
		if got := metric(t, registry, "quorate_override", "HostGates"); got != 1 {
			t.Errorf("quorate_override %v", got)
		}
		defer func() {
			s.annotate(rollout.ControlOverrideGuards, "")
			within(t, 5*time.Minute, "that it ends, or holds again",
				func() bool { return metric(t, registry, "quorate_override") == 0 })
		}()
		if r, h := s.published(t); !slices.Equal(r.Overrides, []string{"HostGates"}) || len(h) == 0 ||
			!slices.Equal(h[0].Overridden, []string{"HostGates"}) {
			t.Errorf("the Lease tells %v, %+v", r.Overrides, h)
		}
	})
}

func TestAnOverrideEndsWithItsRollout(t *testing.T) {
	for _, tc := range []struct {
		name, revision string
		stays          bool
	}{
		{"one for this revision is taken off the Lease", "rev-2", false},
		{"one for no revision in particular stays until its time, or for ever", "", true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newStage(t, 3)
				defer run(t, s.config(telling(s.kube, prometheus.NewRegistry()), func(c *Config) {
					no := func(context.Context) (bool, string) { return false, "no upload" }
					c.Gates = []Gate{{Name: "backup", Ask: no}}
				}))()
				s.update("rev-2")
				<-time.After(time.Minute)
				s.expect(t)
				if tc.revision != "" {
					s.annotate(rollout.ControlOverrideRevision, tc.revision)
				}
				s.annotate(rollout.ControlOverrideBy, "alice")
				s.annotate(rollout.ControlOverrideReason, "drill")
				s.annotate(rollout.ControlOverrideGuards, "HostGates")
				within(t, time.Hour, "the rollout", func() bool { return s.settled("rev-2") })
				<-time.After(10 * time.Minute)
				words := "HostGates: the override is over, because its rollout is complete; " +
					"set by alice, because: drill"
				_, h := s.published(t)
				var told []string
				for _, e := range h {
					if e.What == report.OverrideEnded || e.What == report.Completed {
						told = append(told, e.What)
					}
					if e.What == report.OverrideEnded &&
						(e.Reason != words || e.By != "etcd-0" || e.Revision != "rev-2") {
						t.Errorf("the history tells %+v", e)
					}
				}
				want := []string{report.OverrideEnded, report.Completed}
				if tc.stays {
					want = want[1:]
				}
				if !slices.Equal(told, want) {
					t.Errorf("the history tells %q, want %q", told, want)
				}
				if event := s.toldOf("Normal etcd OverrideEnded " + words); event == tc.stays {
					t.Errorf("an event tells it: %v", event)
				}
				if logged := len(s.at("says " + words)); logged != len(want)-1 {
					t.Errorf("it is logged %d times", logged)
				}
				s.mu.Lock()
				defer s.mu.Unlock()
				for _, key := range []string{
					rollout.ControlOverrideGuards, rollout.ControlOverrideBy, rollout.ControlOverrideRevision,
				} {
					got, stays := s.lease.Annotations[key], tc.stays && key != rollout.ControlOverrideRevision
					if (got != "") != stays {
						t.Errorf("%s on the Lease: %q", key, got)
					}
				}
				if holders := s.lease.Spec.HolderIdentity; holders != nil && *holders != "" {
					t.Errorf("%s holds the record still", *holders)
				}
			})
		})
	}
}

func TestAnOverrideEndsByItself(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStage(t, 3)
		defer run(t, s.config(telling(s.kube, prometheus.NewRegistry()), func(c *Config) {
			c.Gates = []Gate{{Name: "backup", Ask: func(context.Context) (bool, string) { return false, "no upload" }}}
		}))()
		s.update("rev-2")
		<-time.After(time.Minute)
		s.expect(t)
		s.annotate(rollout.ControlOverrideBy, "alice")
		s.annotate(rollout.ControlOverrideUntil, time.Now().Add(2*time.Second).UTC().Format(time.RFC3339))
		s.annotate(rollout.ControlOverrideGuards, "HostGates")
		within(t, time.Minute, "a removal", func() bool { return s.story() != "" })
		if r, _ := s.published(t); r.OverrideTerms == nil || r.OverrideTerms.By != "alice" {
			t.Errorf("the Lease tells %+v", r.OverrideTerms)
		}
		<-time.After(10 * time.Minute)
		s.expect(t, "deleted etcd-2")
		if r, _ := s.published(t); r.Guard != rollout.GuardHostGates || len(r.Overrides) > 0 ||
			!strings.HasPrefix(r.EndedWords(), "HostGates: the override is over, its time was 2000-01-01 00:01:0") {
			t.Errorf("the Lease tells %s, %v, %s", r.Guard, r.Overrides, r.EndedWords())
		}
	})
}

func TestTheCurrentRevisionIsPromotedWhenARolloutIsOver(t *testing.T) {
	for _, tc := range []struct {
		name    string
		promote bool
		err     error
		current string
		calls   int
	}{
		{"never, if nobody asks for it", false, nil, "rev-1", 0},
		{"once", true, nil, "rev-2", 1},
		{"once per revision where it may not, which holds nothing", true,
			apierrors.NewForbidden(schema.GroupResource{Resource: "statefulsets/status"}, "etcd", errors.New("no")),
			"rev-1", 1},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newStage(t, 3)
				s.set.Status.CurrentRevision, s.promoteErr = "rev-1", tc.err
				defer run(t, s.config(func(c *Config) { c.PromoteCurrentRevision = tc.promote }))()
				<-time.After(time.Minute)
				s.update("rev-2")
				within(t, 5*time.Minute, "the rollout", func() bool { return s.settled("rev-2") })
				<-time.After(10 * time.Minute)
				if s.set.Status.CurrentRevision != tc.current || s.promotions != tc.calls {
					t.Errorf("currentRevision %q after %d attempts, want %q after %d", s.set.Status.CurrentRevision,
						s.promotions, tc.current, tc.calls)
				}
				if r, _ := s.published(t); r.Action != "Complete" {
					t.Errorf("%s: %s", r.Action, r.Reason)
				}
			})
		})
	}
}

func TestWhatAnotherCoordinatorHasDoneMeanwhileIsNotForgotten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStage(t, 3)
		defer run(t, s.config())()
		<-time.After(time.Minute)
		s.update("rev-2")
		within(t, 5*time.Minute, "the rollout", func() bool { return s.settled("rev-2") })
		<-time.After(time.Minute)
		// Another one, which had no session with etcd, has claimed the record and given it back.
		last, history := s.published(t)
		notes := report.Notes(last, history.Add(report.Entry{What: report.Removed, Pod: "etcd-1", By: "etcd-9"}))
		s.change(func() {
			*s.lease.Spec.LeaseTransitions++
			s.version++
			s.lease.ResourceVersion = fmt.Sprint(s.version)
			maps.Copy(s.lease.Annotations, notes)
		})
		s.update("rev-3")
		within(t, 5*time.Minute, "the rollout", func() bool { return s.settled("rev-3") })
		<-time.After(time.Minute)
		_, now := s.published(t)
		if !slices.ContainsFunc(now, func(e report.Entry) bool { return e.By == "etcd-9" }) ||
			len(now) < 2*len(history) {
			t.Errorf("the history tells %+v", now)
		}
	})
}

// The record matters more than the report, so the report gives way.
func TestARolloutIsNeverHeldByWhatThereIsToTell(t *testing.T) {
	long := strings.Repeat("x", 130<<10)
	for _, tc := range []struct {
		name   string
		change func(s *stage, c *Config)
	}{
		{"a gate that says very much", func(_ *stage, c *Config) {
			c.Gates = []Gate{{Name: report.GateBackup, Ask: func(context.Context) (bool, string) { return true, long }}}
		}},
		{"annotations of others that leave no room", func(s *stage, _ *Config) {
			s.annotate("example.org/notes", long+long[:125<<10])
		}},
		{"notes of another version", func(s *stage, _ *Config) {
			s.annotate(report.StatusAnnotation, `{"progress":"none"}`)
			s.annotate(report.HistoryAnnotation, "[")
		}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newStage(t, 3)
				cfg := s.config(telling(s.kube, prometheus.NewRegistry()))
				tc.change(s, &cfg)
				defer run(t, cfg)()
				<-time.After(time.Minute)
				s.update("rev-2")
				within(t, 5*time.Minute, "the rollout", func() bool { return s.settled("rev-2") })
			})
		})
	}
}

func TestASidecarThatMayNotWriteTheRecordSaysSoInAnEvent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStage(t, 3)
		defer run(t, s.config(telling(s.kube, prometheus.NewRegistry()), as("etcd-0")))()
		<-time.After(time.Minute)
		s.waits(selfupdate.Presence{Pod: "etcd-2", UID: string(s.pods[2].UID)})
		s.leaseErr = apierrors.NewForbidden(leases, "quorate-etcd", errors.New("no"))
		s.update("rev-2")
		within(t, time.Minute, "an event", func() bool {
			return s.toldOf("Warning etcd CoordinatorUnfit etcd-0:", "forbidden")
		})
	})
}
