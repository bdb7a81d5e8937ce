package coordinator

import (
	"context"

	"github.com/quorate/quorate/internal/record"
	"github.com/quorate/quorate/internal/report"
)

// Report returns what is going on and what was done last. While this process coordinates, that
// is its own report. Otherwise it is what the coordinator has written to the Lease. The zero
// report means that no coordinator has reported anything yet.
func (c *Coordinator) Report(ctx context.Context) (report.Report, report.History, error) {
	if last, history, ours := c.journal.Own(); ours {
		return last, history, nil
	}
	ctx, cancel := context.WithTimeout(ctx, c.cfg.RequestTimeout)
	defer cancel()
	lease, err := record.Read(ctx, c.cfg.Leases, c.cfg.StatefulSet)
	if err != nil {
		return report.Report{}, nil, err
	}
	last, history, err := report.FromLease(lease)
	if err != nil {
		return report.Report{}, nil, err
	}
	return last, history, nil
}
