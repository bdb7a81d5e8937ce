package coordinator

import (
	"context"
	"errors"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/quorate/quorate/internal/report"
)

const (
	// unfitAfter is after how many failures in a row a coordinator lets another try.
	unfitAfter = 5
	// unfitFor is how long it then stays away, the first time; it doubles each time. A missing
	// permission does not come back by itself.
	unfitFor, forbiddenFor, longestUnfit = 10 * time.Second, 5 * time.Minute, 30 * time.Minute
)

// trouble counts failures, and gives up when another sidecar should try.
type trouble struct {
	c     *Coordinator
	exit  *exit
	hold  *hold
	sight *sight

	faults faults
	// aged counts the decisions in a row that were dropped because of their evidence's age.
	aged faults
}

// fail notes a fault and waits until it is time to try again.
func (f *trouble) fail(ctx context.Context, what string, err error) {
	if ctx.Err() == nil {
		f.note(ctx, what, err)
		f.c.pause(ctx, f.faults.pause)
	}
}

// note logs a fault. If it will not go away here and another sidecar waits for the lock, that one is
// to try.
func (f *trouble) note(ctx context.Context, what string, err error) {
	if ctx.Err() != nil && !errors.Is(ctx.Err(), context.DeadlineExceeded) {
		return // We are ending.
	}
	f.faults.note(f.c.log, what, explain(err))
	f.letAnotherTry(ctx, what, err, f.faults.row)
}

// letAnotherTry gives up when something has failed so often that another sidecar should try,
// and there is one.
func (f *trouble) letAnotherTry(ctx context.Context, what string, err error, row int) {
	forbidden := apierrors.IsForbidden(err) || apierrors.IsUnauthorized(err)
	if !forbidden && row < unfitAfter {
		return
	}
	// Without the lock the other sidecars are unknown, so the holder of the record just gives it
	// back.
	if alone := !f.c.owned(); alone && !f.hold.ours || !alone && !f.c.anybody(ctx) {
		return
	}
	if forbidden {
		f.exit.giveUp(fmt.Sprintf("%s: %v", what, err), forbiddenFor)
	} else {
		f.exit.giveUp(fmt.Sprintf("%s, %d times in a row: %v", what, row, err), unfitFor)
	}
}

// tooOld notes that what was decided had to be dropped. If most of the time was spent on a member that
// hangs, another sidecar would not be faster.
func (f *trouble) tooOld(ctx context.Context) {
	const what = "what was decided was dropped, because its evidence had grown too old"
	age := f.c.now() - f.sight.begun
	err := agedError{age: age, etcd: f.sight.etcdTook, most: f.c.cfg.MaxEvidenceAge}
	f.aged.note(f.c.log, what, err)
	if f.aged.row == unfitAfter {
		f.c.journal.Events.Warn(report.EvidenceTooOld, what+": "+err.Error())
	}
	if age-f.sight.etcdTook > f.sight.etcdTook {
		f.letAnotherTry(ctx, what, err, f.aged.row)
	}
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
