package coordinator

import (
	"maps"
	"time"

	"github.com/quorate/quorate/internal/record"
	"github.com/quorate/quorate/pkg/rollout"
	"github.com/quorate/quorate/selfupdate"
)

// newsEvery bounds how often the Lease is written only to report news. While a rollout only waits for a pod that
// was replaced, everything goes as planned, and plannedEvery is enough.
const newsEvery, plannedEvery = time.Second, 10 * time.Second

// evidence is what a decision still lacks before it may be carried out.
type evidence int

const (
	nothing evidence = iota
	// gatesAnswers: the host's gates have not been asked. Nothing but a gate may be in the way, or it is the last word,
	// which tells what the gates say.
	gatesAnswers
	// budgetsChange: the PodDisruptionBudget does not allow the eviction yet, and will in a moment.
	budgetsChange
	// budgetsAnswer: whether an eviction would be granted.
	budgetsAnswer
	// confirmation: the cached view may not be true any more. With the budget, the eviction is asked for meanwhile.
	confirmation
	confirmationAndBudget
)

// decision is what follows from one observation, for all that has to do with it. It is a value, and nobody adds to it.
type decision struct {
	rollout.Decision
	// state is what it rests on.
	state rollout.State
	// lacks is what has to be found out before it may be carried out. The rest says then what follows so far.
	lacks evidence
	// choice says which sidecar goes on.
	choice selfupdate.Choice
	// next and intent are what it asks of the record's protocol, and resolution is what was seen of the operation on
	// the record, or of the suspect.
	next       record.Next
	intent     record.Intent
	resolution record.Resolution
	// withdraws is true where nothing more can come of the request on the Lease, and promotes where the StatefulSet's
	// status.currentRevision is to be set before the rollout ends.
	withdraws, promotes bool
	// endsOverride is true where the rollout that an override was made for is complete. What comes after it, such as a
	// ghost or a defragmentation, has its guards again.
	endsOverride bool
	// needed is what quorum rests on meanwhile.
	needed record.Needed
	// found is true where the removal of a member that stands on the record has ended unseen, and suspected where it
	// is given up.
	found, suspected bool
	// unfit says that another sidecar is to try, because this one has not seen a member for long. Reread says instead
	// that the next look has to be live: a member whose pod is gone is Down, and a watch may not have told of that.
	unfit  unfit
	reread bool
	// quiet is true for an eviction that is refused only for a moment, which is not told.
	quiet bool

	// Observations follow each other in the interval, or when one of these is over. Settles is after how long time
	// alone settles a pod, zero if it settles none. Awaits is since when, without a break, only the word of a sidecar
	// has been missing: of one that we would hand over to, or that proves that its pod stays up. It is zero if none is
	// missing. RefusedUntil is when an eviction may be asked for again that was refused.
	interval     time.Duration
	settles      time.Duration
	awaits       time.Time
	refusedUntil time.Time

	// unknownSince and ownNextSince are what the tracker is to remember of it.
	unknownSince map[string]time.Time
	ownNextSince time.Time
}

// newsEvery is how often the Lease is written for news alone. What flickers is not told in every cycle.
func (d *decision) newsEvery() time.Duration {
	if _, waits := d.Action.(rollout.Wait); waits &&
		(d.Guard == rollout.GuardTerminating || d.Guard == rollout.GuardUpdatedPending) {
		return plannedEvery
	}
	return newsEvery
}

// tellsGuard is true where the Lease is written to tell the quorum guard alone. Mostly that is told with what is
// written anyway: with the intent, with the end, and with the news whenever something else is decided. But the first
// look after a claim puts right what another one has said. And where nothing is on the Lease although quorum rests on
// some pods, a member has failed by itself.
func (d *decision) tellsGuard(on record.Needed, first bool) bool {
	silent := len(on.Pods) == 0 && len(d.needed.Pods) > 0
	return d.next == record.NextRest && (silent || first && !maps.Equal(on.Pods, d.needed.Pods))
}

// waits is how long to wait before the next observation, if there is no news. Ago is when this one began, in relation
// to now.
func (d *decision) waits(now time.Time, ago time.Duration) time.Duration {
	interval := d.interval
	if !d.awaits.IsZero() {
		interval = min(interval, max(firstCheck, now.Sub(d.awaits)))
	}
	if d.settles > 0 {
		interval = max(min(interval, d.settles+ago), shortRest)
	}
	if !d.refusedUntil.IsZero() {
		interval = max(min(interval, d.refusedUntil.Sub(now)), shortRest)
	}
	return interval
}
