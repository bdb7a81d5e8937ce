package coordinator

import (
	"context"

	"github.com/quorate/quorate/internal/record"
	"github.com/quorate/quorate/internal/report"
)

// Report returns what is going on and what was done last. While this process coordinates, that
// is its own report. Otherwise it is what the coordinator has written to the Lease, and the status says
// whether that is too old to be believed. The zero report means that no coordinator has reported anything yet.
func (c *Coordinator) Report(ctx context.Context) (report.Status, error) {
	if last, history, ours := c.journal.Own(); ours {
		held := record.Record{Holder: last.Coordinator, Epoch: last.Epoch}
		return report.Recorded(last, history, held, c.cfg.wall()), nil
	}
	ctx, cancel := context.WithTimeout(ctx, c.cfg.RequestTimeout)
	defer cancel()
	lease, err := record.Read(ctx, c.cfg.Leases, c.cfg.StatefulSet)
	if err != nil {
		return report.Status{}, err
	}
	last, history, err := report.FromLease(lease)
	if err != nil {
		return report.Status{}, err
	}
	return report.Recorded(last, history, record.Parse(lease), c.cfg.wall()), nil
}
