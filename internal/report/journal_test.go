package report_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/sirupsen/logrus"

	"github.com/quorate/quorate/internal/record"
	"github.com/quorate/quorate/internal/report"
)

func TestTheLeaseStaysSmall(t *testing.T) {
	var h report.History
	for i := range 2 * report.HistoryLength {
		h = h.Add(report.Entry{At: time.Now(), What: report.Removed, Pod: fmt.Sprint("etcd-main-", i), Rule: "Serving",
			Reason: strings.Repeat("x", 200)})
	}
	if len(h) != report.HistoryLength || h[0].Pod != fmt.Sprint("etcd-main-", report.HistoryLength) {
		t.Errorf("%d entries from %s on", len(h), h[0].Pod)
	}
	text, err := json.Marshal(report.Notes(report.Report{}, h))
	if err != nil || len(text) > 32<<10 {
		t.Errorf("%d bytes, %v", len(text), err)
	}
}

func TestWhoHandsOverIsNamedThoughItHasDecidedNothingYet(t *testing.T) {
	var j report.Journal
	j.Recall(report.Notes(report.Report{At: time.Now(), Coordinator: "etcd-2", Epoch: 4}, nil), 4)
	j.Coordinates("etcd-1", 5)
	j.HandsOver("etcd-0", "it runs the updated code")
	_, h, err := report.FromNotes(j.Notes())
	if err != nil || len(h) != 1 || h[0].Pod != "etcd-1" || h[0].By != "etcd-1" || h[0].Epoch != 5 ||
		h[0].To != "etcd-0" {
		t.Errorf("%v, the history tells %+v", err, h)
	}
}

func TestWhatHasBecomeOfAnOperationIsToldAndCounted(t *testing.T) {
	pod := func(o record.Operation) record.Intent {
		return record.Intent{Operation: o, Pod: "etcd-1", UID: "u", Revision: "rev-2", Epoch: 4}
	}
	member := func(o record.Operation) record.Intent {
		return record.Intent{Operation: o, Epoch: 4,
			Member: &record.Member{ID: 11, Name: "etcd-1", HeirName: "etcd-2", Cluster: 7}}
	}
	const forgotten = "its removal stood on record (epoch 4)"
	failed := errors.New("it broke")
	for _, tc := range []struct {
		name    string
		outcome report.Outcome
		what    string // Empty for nothing.
		reason  string
		counted map[string]float64
	}{
		{"a removal", report.Outcome{Intent: pod(record.Evict), Result: report.OutcomeDone}, report.Removed, "",
			map[string]float64{"removals done": 1}},
		{"a removal that was refused", report.Outcome{Intent: pod(record.Delete), Result: report.OutcomeRefused},
			"", "",
			map[string]float64{"removals refused": 1}},
		{"an eviction that a budget forbids", report.Outcome{Intent: pod(record.Evict), Result: report.OutcomeBlocked},
			"", "", map[string]float64{"removals blocked": 1}},
		{"a removal that nobody saw", report.Outcome{Intent: pod(record.Delete), Result: report.OutcomeFound},
			report.Removed, forgotten + " and the pod is gone; nobody saw it happen", nil},
		{"a removal that has no effect any more",
			report.Outcome{Intent: pod(record.Delete), Result: report.OutcomeRuledOut}, "", "",
			map[string]float64{"stale": 1}},
		{"a change of leadership", report.Outcome{Intent: member(record.MoveLeader), Result: report.OutcomeDone},
			report.LeaderMoved, "", map[string]float64{"moves done": 1}},
		{"one that failed",
			report.Outcome{Intent: member(record.MoveLeader), Result: report.OutcomeFailed, Err: failed}, "", "",
			map[string]float64{"moves failed": 1}},
		{"the removal of a member", report.Outcome{Intent: member(record.RemoveMember), Result: report.OutcomeDone},
			report.MemberRemoved, "", nil},
		{"one of which nobody knows",
			report.Outcome{Intent: member(record.RemoveMember), Result: report.OutcomeUnclear, Err: failed},
			"", "", nil},
		{"one that nobody saw",
			report.Outcome{Intent: member(record.RemoveMember), Result: report.OutcomeFound, Cluster: 7},
			report.MemberRemoved, forgotten + " and it is gone; nobody saw it happen", nil},
		{"one in another cluster",
			report.Outcome{Intent: member(record.RemoveMember), Result: report.OutcomeFound, Cluster: 8},
			report.MemberRemoved, forgotten + ", and this is another cluster by now", nil},
		{"one that was given up", report.Outcome{Intent: member(record.RemoveMember), Result: report.OutcomeGivenUp},
			report.MemberSuspected, "its removal was given up and may still happen, so it is not relied on: " +
				"it was asked for no longer", nil},
		{"a defragmentation", report.Outcome{Intent: member(record.Defragment), Result: report.OutcomeDone,
			Took: 1500 * time.Millisecond, Before: 3 << 20, After: 1 << 20}, report.Defragmented,
			"away for 1.5s, 3.0 MiB before, 1.0 MiB after: 2.0 MiB freed",
			map[string]float64{"defragmentations done": 1}},
		{"one whose result could not be read", report.Outcome{Intent: member(record.Defragment),
			Result: report.OutcomeDone, Took: 1500 * time.Millisecond, Before: 3 << 20}, report.Defragmented,
			"away for 1.5s, 3.0 MiB before", map[string]float64{"defragmentations done": 1}},
		{"one that failed", report.Outcome{Intent: member(record.Defragment), Result: report.OutcomeFailed, Err: failed,
			Took: time.Second}, report.Defragmented, "failed after 1s: it broke",
			map[string]float64{"defragmentations failed": 1}},
		{"one that did not answer", report.Outcome{Intent: member(record.Defragment), Result: report.OutcomeUnclear,
			Err: failed, Took: time.Second}, report.Defragmented, "no answer after 1s, and etcd does not end it for " +
			"that; its member is waited for: it broke", map[string]float64{"defragmentations unclear": 1}},
		{"an alarm", report.Outcome{Intent: member(record.Disarm), Result: report.OutcomeDone},
			report.Disarmed, "", nil},
		{"one that stays", report.Outcome{Intent: member(record.Disarm), Result: report.OutcomeFailed, Err: failed},
			report.Disarmed, "the alarm NOSPACE was not disarmed, or nobody knows: it broke", nil},
	} {
		t.Run(tc.name, func(t *testing.T) {
			registry := prometheus.NewRegistry()
			metrics, err := report.NewMetrics(registry, "ns", "etcd", "v1.2.3")
			if err != nil {
				t.Fatal(err)
			}
			j := report.Journal{Metrics: metrics}
			j.Recall(report.Notes(report.Report{At: time.Now()}, nil), 4)
			j.Coordinates("etcd-0", 5)
			j.Done(tc.outcome)
			_, h, _ := j.Own()
			var what, reason string
			if len(h) == 1 && h[0].Pod == "etcd-1" && h[0].By == "etcd-0" && h[0].Epoch == 5 {
				what, reason = h[0].What, h[0].Reason
			}
			if what != tc.what || reason != tc.reason || (tc.what == "") != (len(h) == 0) {
				t.Errorf("the history tells %+v", h)
			}
			result := ""
			if r := tc.outcome.Result; r == report.OutcomeFailed || r == report.OutcomeUnclear {
				result = r
			}
			if len(h) == 1 && h[0].Result != result {
				t.Errorf("its result is %q, want %q", h[0].Result, result)
			}
			if j.HasNews() != (tc.what != "") {
				t.Errorf("news for the Lease: %v", j.HasNews())
			}
			if got := counted(t, registry); len(got)+len(tc.counted) > 0 && !reflect.DeepEqual(got, tc.counted) {
				t.Errorf("counted %v, want %v", got, tc.counted)
			}
		})
	}
}

// A coordinator tells the Lease that its rollout is complete with the write that gives the record back. Another may
// have claimed the record just then, or nobody knows whether the write has landed.
func TestACompletedRolloutIsCountedOnceByTheSidecarWhoseWordTheLeaseHas(t *testing.T) {
	type sidecar struct {
		*report.Journal
		registry *prometheus.Registry
		events   *eventAPI
	}
	begin := func(t *testing.T, name string) sidecar {
		s := sidecar{registry: prometheus.NewRegistry(), events: &eventAPI{}}
		metrics, err := report.NewMetrics(s.registry, "ns", "etcd", "")
		if err != nil {
			t.Fatal(err)
		}
		log := logrus.New()
		log.SetOutput(io.Discard)
		recorder := report.NewRecorder(s.events, name, time.Second, func(err error) { t.Error(err) })
		recorder.About("garden", "etcd", "uid")
		s.Journal = &report.Journal{Log: logrus.NewEntry(log), Metrics: metrics, Events: recorder}
		return s
	}
	complete := sight(45)
	type steps struct {
		first, second sidecar
		lease         map[string]string
	}
	for _, tc := range []struct {
		name          string
		then          func(s *steps)
		first, second int
	}{
		{"no write was answered", func(*steps) {}, 0, 0},
		{"the write was answered", func(s *steps) { s.first.Written() }, 1, 0},
		{"it is written again, and read", func(s *steps) {
			s.first.Written()
			s.lease = s.first.Notes()
			s.first.Written()
			s.first.Recall(s.lease, 5)
		}, 1, 0},
		{"the answer was lost, and the Lease shows that the write has landed", func(s *steps) {
			s.lease = s.first.Notes()
			s.first.Recall(s.lease, 5)
			s.first.Recall(s.lease, 5)
		}, 1, 0},
		{"the answer was lost, and another coordinates by the time that this is seen", func(s *steps) {
			s.lease = s.first.Notes()
			s.second.Recall(s.lease, 5)
			s.second.Coordinates("etcd-1", 6)
			s.second.Decided(complete)
			s.second.Written()
			s.first.Recall(s.second.Notes(), 6)
		}, 1, 0},
		{"another has claimed the record before the write, and sees the end too", func(s *steps) {
			s.second.Recall(s.lease, 5)
			s.second.Coordinates("etcd-1", 6)
			s.second.Decided(complete)
			s.second.Written()
			s.first.Recall(s.second.Notes(), 6)
			s.first.Coordinates("etcd-0", 7)
			s.first.Written()
		}, 0, 1},
		{"the first ends, and the second finds the Lease as it was", func(s *steps) {
			s.first.Rests()
			s.second.Recall(s.lease, 5)
			s.second.Coordinates("etcd-1", 6)
			s.second.Decided(complete)
			s.second.Written()
		}, 0, 1},
	} {
		t.Run(tc.name, func(t *testing.T) {
			s := &steps{first: begin(t, "etcd-0"), second: begin(t, "etcd-1")}
			s.first.Coordinates("etcd-0", 5)
			s.first.Decided(sight(0, outdated(1)))
			s.lease = s.first.Notes()
			s.first.Written()
			s.first.Decided(complete)
			tc.then(s)
			for _, who := range []struct {
				sidecar
				want int
			}{{s.first, tc.first}, {s.second, tc.second}} {
				ctx, cancel := context.WithCancel(t.Context())
				cancel()
				who.Events.Run(ctx)
				n := counted(t, who.registry)["completed"]
				seconds, last := durations(t, who.registry)
				told := strings.Count(strings.Join(who.events.told, "\n"), "is complete")
				if n != float64(who.want) || told != who.want || seconds != 45*n || n > 0 && !last {
					t.Errorf("%v counted, %v s, the last one known: %t, %d events; want %d", n, seconds, last, told,
						who.want)
				}
			}
		})
	}
}

// durations is the sum of what the rollouts took, and whether the end of the last one is known.
func durations(t *testing.T, g prometheus.Gatherer) (sum float64, known bool) {
	t.Helper()
	families, err := g.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		switch f.GetName() {
		case "quorate_rollout_duration_seconds":
			sum = f.GetMetric()[0].GetHistogram().GetSampleSum()
		case "quorate_rollout_last_completion_timestamp_seconds":
			at := time.UnixMilli(int64(f.GetMetric()[0].GetGauge().GetValue() * 1000))
			known = time.Since(at).Abs() < time.Minute
		}
	}
	return sum, known
}

func TestWhoTakesTheLockKnowsWhenTheLastRolloutWasComplete(t *testing.T) {
	registry := prometheus.NewRegistry()
	metrics, err := report.NewMetrics(registry, "ns", "etcd", "")
	if err != nil {
		t.Fatal(err)
	}
	j := report.Journal{Metrics: metrics}
	j.Recall(report.Notes(report.Report{At: noon}, report.History{{What: report.Completed, At: noon},
		{What: report.Completed, At: time.Now()}, {What: report.LeaderMoved, At: noon}}), 4)
	if _, known := durations(t, registry); !known {
		t.Error("it does not know")
	}
	if n := counted(t, registry)["completed"]; n != 0 {
		t.Errorf("it counts %v that others have seen", n)
	}
	j.Rests()
	if _, known := durations(t, registry); !known {
		t.Error("it knows no more when it rests")
	}
}

// counted are the counters of what was done that are not zero.
func counted(t *testing.T, g prometheus.Gatherer) map[string]float64 {
	t.Helper()
	families, err := g.Gather()
	if err != nil {
		t.Fatal(err)
	}
	names := map[string]string{"quorate_removals_total": "removals", "quorate_leader_moves_total": "moves",
		"quorate_defragmentations_total": "defragmentations", "quorate_stale_removals_refused_total": "stale",
		"quorate_rollouts_completed_total": "completed"}
	counts := map[string]float64{}
	for _, f := range families {
		for _, m := range f.GetMetric() {
			name := names[f.GetName()]
			for _, l := range m.GetLabel() {
				if l.GetName() == "outcome" {
					name += " " + l.GetValue()
				}
			}
			if n := m.GetCounter().GetValue(); n > 0 {
				counts[name] = n
			}
		}
	}
	return counts
}
