package coordinator

import (
	"context"
	"time"

	"github.com/sirupsen/logrus"

	"github.com/quorate/quorate/internal/record"
)

// turn drives the record's protocol from a claim on the record to its end.
type turn struct {
	c        *Coordinator
	exit     *exit
	hold     *hold
	sight    *sight
	trouble  *trouble
	doubts   *doubts
	observer *observer
	actor    *actor

	// right is the right of the last claim.
	right record.Right
	// denied is why the lock could not be shown to be ours.
	denied     error
	unanswered unanswered
	// fenced are the answers for pods that were changed together with the last one that was asked for.
	fenced []fenced
	// coordinated is true once the record has been claimed.
	coordinated bool
	// stopping is true while the record is given back because we were told to stop.
	stopping bool
}

// hold is what we hold of the record.
type hold struct {
	// ours is true while the record is.
	ours bool
	// renewed is when the record was last written by us, and every is how long after that it has to be renewed.
	renewed record.Instant
	every   time.Duration
	// epoch is that of our claim, and intent the operation on the record.
	epoch  int
	intent record.Intent
}

// take carries out what the record's protocol asks for, from the claim to its end, and returns how it
// ended. If our own pod goes, it has not ended. It can be stopped while nothing is under way. The
// context ending ends a moment after ctx, for requests that the end must not cut off.
func (t *turn) take(ctx, ending context.Context) (end record.End, ended bool) {
	protocol := t.c.protocol
	protocol.Later = t.later()
	protocol.Duration, protocol.Renew = t.terms()
	state, effect := protocol.Step(t.c.record, record.Start{Right: t.right}, t.c.now())
	carrying, swapping := ctx, ending
	for t.stopping = false; ; {
		if end, ok := effect.(record.End); ok {
			t.c.record = state
			t.observer.rest()
			return end, true
		}
		if t.exit.leaving && t.c.owned() {
			// Our own pod goes. The record stays as it is, as after a crash: so whoever has
			// the lock next knows that a rollout is under way, and ends it.
			t.observer.rest()
			return record.End{}, false
		}
		var event record.Event = record.Stop{}
		if stop := ctx.Err() != nil || t.exit.over; !stop || t.stopping {
			doing := carrying
			if _, swap := effect.(record.WriteLease); swap {
				doing = swapping // If a claim is cut off, nobody knows that it has to be given back.
			}
			event = t.do(doing, &state, effect)
		} else {
			// That has to be quick when ctx ends: the lock is to be given back as well.
			var done context.CancelFunc
			carrying, done = context.WithTimeout(ending, t.c.cfg.RequestTimeout)
			defer done()
			swapping, t.stopping = carrying, true
		}
		claimed, pausing := state.Claimed(), state.Pausing
		protocol.Duration, protocol.Renew = t.terms()
		state, effect = protocol.Step(state, event, t.c.now())
		switch effect.(type) {
		case record.Act:
			t.trouble.aged.clear()
		default:
			if _, ok := event.(record.LeaseWritten); ok && state.Pausing && !pausing {
				t.trouble.tooOld(ctx)
			}
		}
		if state.Claimed() {
			t.sight.suspect = state.Record.Suspect
		}
		*t.hold = hold{ours: state.Claimed(), renewed: state.Renewed, every: protocol.Every(&state), epoch: state.Epoch,
			intent: state.Record.Intent}
		if state.Claimed() && !claimed {
			t.coordinated = true
			t.c.journal.Coordinates(t.c.name(), state.Epoch)
			fields := logrus.Fields{"by": t.right.String(), "epoch": state.Epoch}
			t.c.log.WithFields(fields).Info("this sidecar coordinates now")
		}
	}
}
