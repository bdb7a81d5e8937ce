package coordinator

import (
	"context"
	"time"
)

const (
	// leastRest is the shortest time from the beginning of one observation to that of the next: it
	// keeps a burst of news from becoming a burst of observations. After one that took longer
	// there is shortRest, so that a slow API server always gets a pause.
	leastRest = 50 * time.Millisecond
	shortRest = 10 * time.Millisecond
	// afterRemoval is how long a coordinator neither looks nor writes once it has removed the only pod that may go. No
	// pod is back so soon, so there is nothing to decide. But the members that stay are replacing their connections,
	// and clients notice if Quorate wants the processor then (see the benchmarks). If another member fails in that
	// time, the coordinator sees it that much later. The removal stays on record meanwhile. A successor that finds it
	// there rules it out first, as after any crash.
	afterRemoval = 300 * time.Millisecond
	// firstCheck is how soon a coordinator that waits for nothing but a sidecar checks again whether that has lined
	// up, or has said that it is there, and then after as long as it has waited, because no watch shows it.
	firstCheck = 100 * time.Millisecond
	// slowdown is for what waits for an operator: a hold, or a partition.
	slowdown = 5
)

// wake puts a token into a channel that has room for one. It never waits: a token that is there already
// does as well.
func wake(c chan<- struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// wait ends after d (never, if d is zero), when something changed, or with ctx.
func wait(ctx context.Context, d time.Duration, changed <-chan struct{}) {
	var timer <-chan time.Time
	if d > 0 {
		t := time.NewTimer(d)
		defer t.Stop()
		timer = t.C
	}
	select {
	case <-ctx.Done():
	case <-timer:
	case <-changed:
	}
}
