package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	appsv1 "k8s.io/api/apps/v1"

	"github.com/quorate/quorate/coordinator"
	"github.com/quorate/quorate/internal/record"
	"github.com/quorate/quorate/internal/report"
	"github.com/quorate/quorate/pkg/rollout"
)

// defaultPoll is how often the Lease is read while a request stands.
const defaultPoll = time.Second

// asking is a request that stands on the Lease for as long as the command runs.
type asking struct {
	rollout.Request
	cfg   coordinator.Config
	every time.Duration
	// first is when it was first written. It may be renewed.
	first time.Time
}

// coordinated returns an error where nobody coordinates, so that nobody would do what is asked for.
func coordinated(cfg coordinator.Config, before found) error {
	if before.strategy == appsv1.OnDeleteStatefulSetStrategyType {
		return nil
	}
	return fmt.Errorf("the update strategy of %s/%s is %s, not OnDelete: nobody coordinates there, so nobody would "+
		"do it", cfg.Namespace, cfg.StatefulSet, before.strategy)
}

// write puts the request on the Lease, or renews it.
func (a *asking) write(ctx context.Context) error {
	a.At = time.Now().UTC().Truncate(time.Millisecond)
	if a.first.IsZero() {
		a.first = a.At
	}
	text := record.RequestText(a.Request)
	_, err := annotate(ctx, a.cfg, record.RequestAnnotation, &text)
	return err
}

// withdraw takes the request back if it is still ours: nobody waits for it any more. What has begun goes on.
func (a *asking) withdraw(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), a.cfg.RequestTimeout)
	defer cancel()
	lease, err := record.Read(ctx, a.cfg.Leases, a.cfg.StatefulSet)
	if err != nil || record.Requested(lease) != record.RequestText(a.Request) {
		return err
	}
	_, err = annotate(ctx, a.cfg, record.RequestAnnotation, nil)
	return err
}

// answer is what the Lease says: whether the request still stands there, the record, and what was reported.
type answer struct {
	stands  bool
	record  record.Record
	report  report.Report
	history report.History
}

func (a *asking) read(ctx context.Context) (answer, error) {
	ctx, cancel := context.WithTimeout(ctx, a.cfg.RequestTimeout)
	defer cancel()
	lease, err := record.Read(ctx, a.cfg.Leases, a.cfg.StatefulSet)
	if err != nil {
		return answer{}, err
	}
	now := answer{stands: record.Requested(lease) == record.RequestText(a.Request), record: record.Parse(lease)}
	now.report, now.history, _ = report.FromLease(lease) // What cannot be read says nothing.
	return now, nil
}

// wait waits until it is time to look again.
func (a *asking) wait(ctx context.Context) error {
	tick := time.NewTimer(a.every)
	defer tick.Stop()
	select {
	case <-ctx.Done():
		if cause := context.Cause(ctx); !errors.Is(cause, context.Canceled) {
			return cause
		}
		return errors.New("interrupted; the request is taken back, and what has begun goes on")
	case <-tick.C:
		return nil
	}
}

// work is what a report says of this request, which is the duty's; nil if it says nothing of it.
func (a *asking) work(r *report.Report, duty rollout.DutyName) *report.Work {
	q := r.Asked
	if q == nil || q.Operation != a.Operation || q.Cluster != a.Cluster || q.Member != a.Member ||
		q.At.Before(a.first) {
		return nil
	}
	for _, w := range append([]report.Work{r.Work}, r.Others...) {
		if w.Duty == duty || w.Duty == rollout.DutyHeld {
			return &w
		}
	}
	return nil
}

// denied says why nothing comes of the request.
func denied(w *report.Work) error {
	return fmt.Errorf("refused (%s): %s. What to do: %s", w.Guard, w.Reason, w.Do)
}
