package coordinator

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/quorate/quorate/internal/report"
	"github.com/quorate/quorate/internal/workload"
)

// unfitAfter is after how many failures in a row a coordinator lets another try.
const unfitAfter = 5

// failures counts what fails, and says when another sidecar should try.
type failures struct {
	c *Coordinator

	faults faults
	// aged counts the decisions in a row that were dropped because of their evidence's age.
	aged faults
}

// note logs a fault. If it will not go away here and another sidecar waits for the lock, that one is to try. Ours is
// true while the record is.
func (f *failures) note(ctx context.Context, what *fault, ours bool) unfit {
	if !what.counts {
		f.faults.note(f.c.log, what.what, what.err)
		return unfit{}
	}
	if ctx.Err() != nil && !errors.Is(ctx.Err(), context.DeadlineExceeded) {
		return unfit{} // We are ending.
	}
	f.faults.note(f.c.log, what.what, explain(what.err))
	return f.letAnotherTry(ctx, what.what, what.err, f.faults.row, ours)
}

// pause is how long to wait after what has failed.
func (f *failures) pause() time.Duration { return max(f.faults.pause, f.aged.pause) }

// letAnotherTry says so when something has failed so often that another sidecar should try, and there is one.
func (f *failures) letAnotherTry(ctx context.Context, what string, err error, row int, ours bool) unfit {
	denied := workload.Denied(err)
	if !denied && row < unfitAfter {
		return unfit{}
	}
	// Without the lock the other sidecars are unknown, so the holder of the record just gives it
	// back.
	if alone := !f.c.owned(); alone && !ours || !alone && !f.c.anybody(ctx) {
		return unfit{}
	}
	if denied {
		return unfit{why: fmt.Sprintf("%s: %v", what, err), least: forbiddenFor}
	}
	return unfit{why: fmt.Sprintf("%s, %d times in a row: %v", what, row, err), least: unfitFor}
}

// tooOld notes that what was decided on an observation had to be dropped. If most of the time was spent on a member
// that hangs, another sidecar would not be faster.
func (f *failures) tooOld(ctx context.Context, o *observation, ours bool) unfit {
	const what = "what was decided was dropped, because its evidence had grown too old"
	age := f.c.now() - o.begun
	err := agedError{age: age, etcd: o.etcdTook, most: f.c.cfg.MaxEvidenceAge}
	f.aged.note(f.c.log, what, err)
	if f.aged.row == unfitAfter {
		f.c.journal.Events.Warn(report.ReasonDecisionDropped, what+": "+err.Error())
	}
	if age-o.etcdTook > o.etcdTook {
		return f.letAnotherTry(ctx, what, err, f.aged.row, ours)
	}
	return unfit{}
}

// agedError says what took the time.
type agedError struct{ age, etcd, most time.Duration }

func (e agedError) Error() string {
	return fmt.Sprintf("it took %v to look and to record the intent, %v of that for etcd's members to answer, "+
		"and max-evidence-age is %v (if the Kubernetes API is slow for good, raise that)",
		e.age.Round(time.Millisecond), e.etcd.Round(time.Millisecond), e.most)
}

// Is says that its wording varies while it is the same fault.
func (agedError) Is(target error) bool { return target == context.DeadlineExceeded }
