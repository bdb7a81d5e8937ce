package report_test

import (
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/quorate/quorate/internal/record"
	"github.com/quorate/quorate/internal/report"
	"github.com/quorate/quorate/pkg/rollout"
)

// Whoever only reads the Lease knows as much as the report is new.
func TestAnOldReportIsNeverSafe(t *testing.T) {
	rolling := report.New(sight(0, outdated(0, 1), paused), report.Report{})
	complete := report.New(sight(0), report.Report{})
	held := record.Record{Holder: "etcd-0", Rolling: true, Duration: 45 * time.Second}
	for _, tc := range []struct {
		name      string
		last      report.Report
		lease     record.Record
		later     time.Duration
		word      report.Word
		says      string
		otherwise string
	}{
		{"just reported", rolling, held, time.Second, report.CoordinatorsWord, "SAFE: quorum 3/3, one may fail",
			"nothing more is done until the cause is gone. etcd goes on serving."},
		{"the record is renewed every 30 s, and may be late once", rolling, held, 90 * time.Second,
			report.CoordinatorsWord, "SAFE: quorum 3/3, one may fail",
			"nothing more is done until the cause is gone. etcd goes on serving."},
		{"nobody renews it", rolling, held, 91 * time.Second, report.OldWord, "UNKNOWN: nobody has reported for 91s",
			"nothing is rolled until a sidecar coordinates. Whether etcd serves is not known."},
		{"complete a moment ago", complete, record.Record{}, 30 * time.Second, report.CoordinatorsWord,
			"SAFE: quorum 3/3, one may fail", ""},
		{"complete, and nobody looks any more", complete, record.Record{}, 31 * time.Second, report.OldWord,
			"UNKNOWN: nobody has reported for 31s", ""},
		{"complete last week", complete, record.Record{}, 7 * 24 * time.Hour, report.OldWord,
			"UNKNOWN: nobody has reported for 7d", ""},
		{"the reporter's clock is ahead", rolling, held, -time.Minute, report.OldWord,
			"UNKNOWN: the last report is from 2026-01-01 12:00:00 UTC, and by the clock here that is still to come",
			"nothing is rolled until a sidecar coordinates. Whether etcd serves is not known."},
		{"nobody has ever reported", report.Report{}, record.Record{}, 0, report.OldWord,
			"UNKNOWN: no coordinator has reported anything yet", ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			s := report.Recorded(tc.last, nil, tc.lease, noon.Add(tc.later))
			if s.Word != tc.word || s.Verdict().String() != tc.says || s.Otherwise() != tc.otherwise {
				t.Errorf("by %s: %s; %s", s.Word, s.Verdict(), s.Otherwise())
			}
			e := s.Etcd()
			for _, c := range e.Conditions {
				if old := s.Word == report.OldWord; old != (c.Reason == report.ReasonNotReported) ||
					old && (c.Status != metav1.ConditionUnknown || !strings.Contains(tc.says, c.Message)) {
					t.Errorf("%+v", c)
				}
			}
			for _, m := range e.Members {
				if (s.Word == report.OldWord) != (m.Status == "Unknown" && m.Reason == report.ReasonNotReported) {
					t.Errorf("%+v", m)
				}
			}
		})
	}
}

func TestAnOverrideThatIsOverIsNotToldByAnOldReport(t *testing.T) {
	r := report.New(sight(0), report.Report{})
	r.Overrides, r.OverrideTerms = []string{"Canary"}, &rollout.Terms{Until: noon.Add(time.Hour)}
	for _, later := range []time.Duration{59 * time.Minute, time.Hour} {
		s := report.Recorded(r, nil, record.Record{}, noon.Add(later))
		if told := s.OverrideWords() != ""; told != (later < time.Hour) || len(r.Overrides) == 0 {
			t.Errorf("%v later: %q", later, s.OverrideWords())
		}
	}
}
