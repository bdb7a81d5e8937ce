package report_test

import (
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/quorate/quorate/internal/report"
	"github.com/quorate/quorate/pkg/rollout"
)

var noon = time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)

// sight is a look at three members at noon and so many seconds later.
func sight(seconds int, changes ...func(*rollout.State)) report.Sight {
	s := rollout.State{
		Set:  rollout.Set{Name: "etcd", UID: "u", Replicas: 3, OnDelete: true, UpdateRevision: "new"},
		Etcd: rollout.Membership{Known: true, Linearizable: true, ClusterID: 7},
	}
	for i := range 3 {
		name := "etcd-" + string(rune('0'+i))
		well := rollout.Container{State: rollout.ContainerRunning, Ready: true}
		s.Pods = append(s.Pods, rollout.Pod{
			Name: name, UID: "uid-" + name, ResourceVersion: "1", Ordinal: i, MemberName: name, Revision: "new",
			Owned: true,
			Ready: true, ContainersReady: true, Initialized: true, Etcd: well, Sidecar: well,
		})
		s.Etcd.Members = append(s.Etcd.Members, rollout.Member{ID: uint64(i + 1), Name: name, Probe: rollout.Probe{
			Read: rollout.Answered, Status: &rollout.Status{Leader: 1, Term: 2, Index: 10, Applied: 10},
		}})
		s.Sidecars.Present = append(s.Sidecars.Present, "uid-"+name)
	}
	for _, change := range changes {
		change(&s)
	}
	return report.Sight{
		Namespace: "garden", StatefulSet: "etcd", At: noon.Add(time.Duration(seconds) * time.Second), State: s,
		Decision: rollout.Decide(s, rollout.DefaultPolicy()), Coordinator: "etcd-0", Epoch: 4,
	}
}

func outdated(ordinals ...int) func(*rollout.State) {
	return func(s *rollout.State) {
		for _, n := range ordinals {
			s.Pods[n].Revision = "old"
		}
	}
}

func paused(s *rollout.State) { s.Controls.Paused = true }

// missing takes a pod and its member's answer away.
func missing(n int) func(*rollout.State) {
	return func(s *rollout.State) {
		s.Pods = slices.Delete(s.Pods, n, n+1)
		s.Etcd.Members[n].Probe = rollout.Probe{Read: rollout.Failed}
	}
}

func TestWhatHasNotChangedKeepsItsTime(t *testing.T) {
	at := func(seconds int) time.Time { return noon.Add(time.Duration(seconds) * time.Second) }
	for _, tc := range []struct {
		name                  string
		looks                 []report.Sight
		since, started, ended time.Time
	}{
		{"the first look begins everything", []report.Sight{sight(0, outdated(1), paused)}, at(0), at(0), time.Time{}},
		{"the same decision keeps its time",
			[]report.Sight{sight(0, outdated(1), paused), sight(9, outdated(1), paused)}, at(0), at(0), time.Time{}},
		{"another decision begins anew, in the same rollout",
			[]report.Sight{sight(0, outdated(1), paused), sight(9, outdated(1))}, at(9), at(0), time.Time{}},
		{"the end of a rollout", []report.Sight{sight(0, outdated(1)), sight(9)}, at(9), time.Time{}, at(9)},
		{"is told for as long as nothing begins",
			[]report.Sight{sight(0, outdated(1)), sight(9), sight(20)}, at(9), time.Time{}, at(9)},
		{"and then no more",
			[]report.Sight{sight(0, outdated(1)), sight(9), sight(20, outdated(2))}, at(20), at(20), time.Time{}},
		{"a clock that was set back begins anew: no time lies in the future",
			[]report.Sight{sight(9, outdated(1), paused), sight(0, outdated(1), paused)}, at(0), at(9), time.Time{}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			var r report.Report
			for _, s := range tc.looks {
				r = report.New(s, r)
			}
			if !r.Since.Equal(tc.since) || !r.Started.Equal(tc.started) || !r.Ended.Equal(tc.ended) {
				t.Errorf(
					"since %v, started %v, ended %v; want %v, %v, %v",
					r.Since,
					r.Started,
					r.Ended,
					tc.since,
					tc.started,
					tc.ended,
				)
			}
			if r.Rolling() != !tc.started.IsZero() {
				t.Errorf("rolling: %v", r.Rolling())
			}
		})
	}
}

func TestAMembersTimeIsThatOfItsEvidence(t *testing.T) {
	first := report.New(sight(0, outdated(0, 1, 2)), report.Report{})
	second := report.New(sight(9, outdated(0, 1), missing(2)), first)
	third := report.New(sight(20, outdated(0, 1), missing(2)), second)
	var since []time.Duration
	for _, m := range third.Members {
		since = append(since, m.Since.Sub(noon))
	}
	if want := []time.Duration{0, 0, 9 * time.Second}; !slices.Equal(since, want) {
		t.Errorf("since %v, want %v", since, want)
	}
}

func TestProgressCountsPods(t *testing.T) {
	for _, tc := range []struct {
		name string
		look report.Sight
		want report.Progress
	}{
		{"before", sight(0, outdated(0, 1, 2)), report.Progress{Pods: 3, Outdated: 3}},
		{"one is away", sight(0, outdated(0, 1), missing(2)), report.Progress{Pods: 3, Outdated: 2}},
		{"one is coming up",
			sight(0, outdated(0, 1), func(s *rollout.State) { s.Pods[2].Ready = false }),
			report.Progress{Pods: 3, Outdated: 2}},
		{"one has settled", sight(0, outdated(0, 1)), report.Progress{Pods: 3, Outdated: 2, Settled: 1}},
		{"after", sight(0), report.Progress{Pods: 3, Settled: 3}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if got := report.New(tc.look, report.Report{}).Progress; got != tc.want {
				t.Errorf("%+v, want %+v", got, tc.want)
			}
		})
	}
}

func TestAReportSaysWhatWouldHelp(t *testing.T) {
	r := report.New(sight(0, outdated(1), paused), report.Report{})
	if r.Guard != "Paused" || r.Do == "" || !strings.Contains(r.Reason, rollout.ControlPaused) {
		t.Errorf("%+v", r.Plan)
	}
}

func TestTheHostsWordOnBackupsIsItsGateOfThatName(t *testing.T) {
	gate := func(g rollout.Gate) func(*rollout.State) {
		return func(s *rollout.State) { s.Gates = append(s.Gates, g) }
	}
	if r := report.New(sight(0, gate(rollout.Gate{Name: "Other", Pass: true})), report.Report{}); r.Backup != nil {
		t.Errorf("backup %+v", r.Backup)
	}
	r := report.New(sight(0, gate(rollout.Gate{Name: report.GateBackup, Detail: "403"})), report.Report{})
	if want := (&report.Backup{Detail: "403"}); !reflect.DeepEqual(r.Backup, want) {
		t.Errorf("backup %+v, want %+v", r.Backup, want)
	}
}

func TestTheLeaseTellsAllButTheVerdicts(t *testing.T) {
	r := report.New(sight(0, outdated(0, 1)), report.Report{})
	if len(r.Candidates) == 0 {
		t.Fatal("no candidates")
	}
	h := report.History{}.Add(report.Entry{At: noon, What: report.Removed, Pod: "etcd-2", Rule: "Serving"})
	got, history, err := report.FromNotes(report.Notes(r, h))
	r.Candidates = nil
	if err != nil || !reflect.DeepEqual(got, r) || !reflect.DeepEqual(history, h) {
		t.Errorf("%v\n got %+v, %+v\nwant %+v, %+v", err, got, history, r, h)
	}
	if _, _, err := report.FromNotes(map[string]string{report.StatusAnnotation: "{"}); err == nil ||
		!strings.Contains(err.Error(), report.StatusAnnotation) {
		t.Errorf("got %v", err)
	}
	if got, history, err := report.FromNotes(nil); err != nil || !got.At.IsZero() || history != nil {
		t.Errorf("of nothing: %+v, %v, %v", got, history, err)
	}
}

func TestAnOverrideIsToldInOneSentence(t *testing.T) {
	const (
		both, at = "Canary, CaughtUp", "2026-01-01 12:00:00 UTC"
		over     = both + ": the override is over, "
		who      = "; set by alice, because: a drill"
		left     = who + ". quorate override --clear removes what is left of it."
	)
	terms := rollout.Terms{By: "alice", Reason: "a drill"}
	with := func(until time.Time, revision string) *rollout.Terms {
		t := terms
		t.Until, t.Revision = until, revision
		return &t
	}
	for _, tc := range []struct {
		name        string
		terms       *rollout.Terms
		lasts, ends string
	}{
		{"without terms", nil, both + " will not hold this rollout, nor any later one, until cleared", ""},
		{"for a time", with(noon, ""), both + " will not hold anything until " + at + who,
			over + "its time was " + at + left},
		{"for a rollout and a time", with(noon, "rev-2"), both + " will not hold this rollout until " + at + who,
			over + "its time was " + at + left},
		{"for the rollout before", with(noon, "rev-1"), "", over + "because the template has changed" + left},
	} {
		t.Run(tc.name, func(t *testing.T) {
			guards := []string{"CaughtUp", "Canary"}
			lasts := report.Report{UpdateRevision: "rev-2", Overrides: guards, OverrideTerms: tc.terms}
			ended := report.Report{UpdateRevision: "rev-2", EndedOverrides: guards, OverrideTerms: tc.terms}
			if got := lasts.OverrideWords(); tc.lasts != "" && got != tc.lasts {
				t.Errorf("while it lasts: %s", got)
			}
			if got := ended.EndedWords(); tc.ends != "" && got != tc.ends {
				t.Errorf("when it is over: %s", got)
			}
		})
	}
}
