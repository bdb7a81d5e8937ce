package report_test

import (
	"strings"
	"testing"
	"time"

	"github.com/quorate/quorate/internal/record"
	"github.com/quorate/quorate/internal/report"
	"github.com/quorate/quorate/pkg/rollout"
)

// leftBehind adds a member whose pod was scaled away, which has been silent for so long.
func leftBehind(silent time.Duration, changes ...func(*rollout.Member)) func(*rollout.State) {
	return func(s *rollout.State) {
		m := rollout.Member{ID: 0x1f, Name: "etcd-3", Probe: rollout.Probe{Read: rollout.Failed}}
		for _, change := range changes {
			change(&m)
		}
		s.Etcd.Members = append(s.Etcd.Members, m)
		s.Ages = rollout.Ages{{UID: "1f", Condition: rollout.GhostSeen}: silent}
	}
}

func TestGhostsAreTold(t *testing.T) {
	learner := func(m *rollout.Member) { m.Learner = true }
	told := report.Report{Plan: report.Plan{Ghosts: []report.Ghost{{ID: "1f", Since: noon.Add(-time.Hour)}}}}
	for _, tc := range []struct {
		name string
		see  func(*rollout.State)
		last report.Report
		want string
	}{
		{"a voter, with what it does to the quorum and the command", leftBehind(10 * time.Minute), report.Report{},
			"etcd-3 has no pod and has not answered for 10m; 4 voters need a quorum of 3, and without it 3 need 2. " +
				"If it is gone for good: `quorate remove-member etcd etcd-3`."},
		{"a learner", leftBehind(10*time.Minute, learner), report.Report{},
			"etcd-3 has no pod and has not answered for 10m; it does not vote, and as long as it is there, no other " +
				"learner may join. If it is gone for good: `quorate remove-member etcd etcd-3`."},
		{"one that has never started", leftBehind(10*time.Minute, func(m *rollout.Member) {
			m.Name, m.PeerURLs = "", []string{"http://etcd-3.etcd-peer:2380"}
		}), report.Report{}, ""}, // Our own members are not called by their pods' names here.
		{"not one that is young", leftBehind(10*time.Minute - time.Second), report.Report{}, ""},
		{"one that another coordinator has told of already, since then", leftBehind(time.Minute), told,
			"etcd-3 has no pod and has not answered for 60m; 4 voters need"},
		{"not one that was told and serves again", leftBehind(0, func(m *rollout.Member) {
			m.Probe = rollout.Probe{Read: rollout.Answered}
		}), told, ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			r := report.New(sight(0, tc.see), tc.last)
			text := ""
			for i := range r.Ghosts {
				text += r.Ghosts[i].Tell(noon)
			}
			if !strings.HasPrefix(text, tc.want) || tc.want == "" && text != "" {
				t.Errorf("got %q", text)
			}
		})
	}
}

func TestTheStatusTellsOfGhostsForAsLongAsNobodyTellsOtherwise(t *testing.T) {
	s := sight(0)
	outside := report.Outside{Namespace: s.Namespace, StatefulSet: s.StatefulSet, At: noon.Add(24 * time.Hour),
		State: s.State, Policy: rollout.DefaultPolicy(),
		Last: report.New(sight(0, leftBehind(time.Hour)), report.Report{}),
		Lease: record.Record{ResourceVersion: "1", Schema: record.Newest,
			Suspect: &record.Member{ID: 0x1f, Name: "etcd-3", Cluster: 7}}}
	seen := report.Look(outside)
	if len(seen.Ghosts) != 1 || seen.Suspect != "etcd-3 (ID 1f)" {
		t.Errorf("a day later: %+v %q", seen.Ghosts, seen.Suspect)
	}
	// Who asks etcd knows better, and believes what was told only of what still looks like one.
	outside.Asked = true
	if seen = report.Look(outside); len(seen.Ghosts) != 0 {
		t.Errorf("it is gone: %+v", seen.Ghosts)
	}
	outside.State = sight(0, leftBehind(0)).State
	outside.Lease.Rolling = true // Whoever rolled has died since, and its report is too old to be believed.
	if seen = report.Look(outside); len(seen.Ghosts) != 1 {
		t.Errorf("it is still there: %+v", seen.Ghosts)
	}
}
