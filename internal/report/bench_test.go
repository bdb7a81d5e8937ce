package report_test

import (
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/quorate/quorate/internal/report"
)

// What every cycle tells of itself, beside the decision: the report and the metrics. The notes
// go onto the Lease with every write of it.

func BenchmarkNew(b *testing.B) {
	s := sight(0, outdated(0, 1, 2))
	last := report.New(s, report.Report{})
	b.ReportAllocs()
	for b.Loop() {
		if r := report.New(s, last); r.Progress.Outdated != 3 {
			b.Fatalf("%+v", r.Progress)
		}
	}
}

func BenchmarkNotes(b *testing.B) {
	r := report.New(sight(0, outdated(0, 1, 2)), report.Report{})
	h := report.History{}
	for range report.HistoryLength {
		h = h.Add(
			report.Entry{
				At:       noon,
				What:     report.Removed,
				Pod:      "etcd-2",
				By:       "etcd-0",
				Epoch:    4,
				Rule:     "Serving",
				Revision: "new",
				Reason:   "its member serves; 3 of 3 voters serve, quorum 2, removing one leaves 2",
			},
		)
	}
	b.ReportAllocs()
	for b.Loop() {
		if n := report.Notes(r, h); len(n) != 2 {
			b.Fatalf("%v", n)
		}
	}
}

func BenchmarkMetrics(b *testing.B) {
	m, err := report.NewMetrics(prometheus.NewRegistry(), "garden", "etcd", "")
	if err != nil {
		b.Fatal(err)
	}
	r := report.New(sight(0, outdated(0, 1, 2)), report.Report{})
	b.ReportAllocs()
	for b.Loop() {
		m.Show(r)
		m.Probe(time.Millisecond, true)
	}
}
