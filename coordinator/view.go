package coordinator

import (
	"context"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"

	"github.com/quorate/quorate/internal/workload"
)

// viewLasts is for how long looks may go by what the watches tell before everything is read live again. Whoever
// stands between us and the API server can lose an event, and nobody would ever know. It is no longer than
// settle-timeout, so that nothing seems to have lasted that long only because a watch hangs. When a rollout begins,
// looks may go by it for a little longer (see begins).
func viewLasts(settleTimeout time.Duration) time.Duration { return min(5*time.Minute, settleTimeout) }

// beginning is for how long a rollout that begins may go by an older one: about as long as it takes to claim the
// record. What it removes first is confirmed by a live reading. If there is nothing to do in that time, everything is
// read live.
const beginning = 10 * time.Second

// freshness says whether looks may go by what the watches tell.
type freshness struct {
	// lasts is for how long they may after everything was read live, and until is when that ends.
	lasts time.Duration
	until time.Time
	// unread is true from when a live reading was put off because a rollout begins, to the next one.
	unread bool
}

// begins lets the first looks of a rollout go by what the watches tell, however long the cluster has idled.
func (f *freshness) begins() {
	if until := time.Now().Add(min(beginning, f.lasts)); until.After(f.until) {
		f.until, f.unread = until, true
	}
}

// readLive notes that everything has just been read live.
func (f *freshness) readLive() { f.until, f.unread = time.Now().Add(f.lasts), false }

// expire has the next look read everything live.
func (f *freshness) expire() { f.until = time.Time{} }

// stale is true once looks have gone by what the watches tell for long enough.
func (f *freshness) stale() bool { return time.Now().After(f.until) }

// cachedView is what the watches tell of all that a look reads in Kubernetes. It may lag behind. So it may only keep a
// rollout waiting: whatever is to be done is confirmed by a live reading first (see confirm).
type cachedView struct {
	lease *coordinationv1.Lease
	seen  workload.Observation
	// live is the live reading that is to confirm it, nil before that has begun.
	live *workload.Confirmation
}

// read begins the live reading, unless that has begun already. It returns a function that gives up what nobody waits
// for.
func (v *cachedView) read(ctx context.Context, c *Coordinator) (end func()) {
	if v.live != nil {
		return func() {}
	}
	ctx, cancel := context.WithTimeout(ctx, c.cfg.RequestTimeout)
	live := c.workload.Confirm(ctx, v.seen)
	v.live = live
	return func() { cancel(); _, _ = live.Wait() }
}
