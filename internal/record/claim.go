package record

import (
	"fmt"
	"math"
	"time"
)

func (c *Config) leaseRead(s *State, e LeaseRead, now Instant) Effect {
	if e.Outcome != Done {
		switch {
		case s.Stopping: // There is no time to wait for a better answer.
			return c.end(s, Stopped, "")
		case s.Phase == rereading:
			return c.to(s, resting, Rest{Failed: true})
		}
		return c.end(s, Unwritable, "the Lease could not be read")
	}
	if e.Record.ResourceVersion != s.Seen {
		s.Seen, s.SeenSince = e.Record.ResourceVersion, now
	}
	switch {
	case s.Stopping && !c.ours(s, &e.Record):
		return c.end(s, Stopped, "") // There is nothing left to give back.
	case s.Stopping:
		s.Record = e.Record
		return c.release(s, Stopped)
	case !understands(&e.Record):
		return c.newer(s, e.Record)
	case s.Phase == rereading && !c.ours(s, &e.Record):
		return c.lost(s, e.Record)
	case s.Phase == rereading:
		s.Record = e.Record
		return c.proceed(s, now)
	}
	s.Record = e.Record
	if s.Right == ByLock {
		// After the reading, not before: whoever takes the lock from here on swaps first
		// or makes our own swap fail.
		return c.to(s, checking, CheckRight{})
	}
	if s.Record.Holder == c.Identity {
		return c.claim(s)
	}
	unchanged := e.Begun - s.SeenSince
	switch {
	case s.Record.Holder != "" && unchanged < c.patience(&s.Record)+c.Later:
		return c.end(s, NoRight, fmt.Sprintf("%s holds the record and has renewed it within its %v",
			s.Record.Holder, c.patience(&s.Record)+c.Later))
	case c.Later > 0 && unchanged < c.Later:
		return c.end(s, NoRight, fmt.Sprintf("the record has not been free for %v", c.Later))
	}
	return c.claim(s)
}

// LongestDuration bounds how long a record is waited for whose Lease promises more, unless our
// own duration is longer still: whatever stands there, the fallback does not wait for ever. No
// safety rests on a holder's being waited for.
const LongestDuration = 5 * time.Minute

// patience is how long the record has to stand unchanged before it may be claimed by
// the clock: what its holder promised, our own value where it promised nothing.
func (c *Config) patience(l *Record) time.Duration {
	if l.Duration > 0 {
		return min(l.Duration, max(LongestDuration, c.Duration))
	}
	return c.Duration
}

func (c *Config) claim(s *State) Effect {
	next := s.Record
	next.Holder, next.Duration = c.Identity, c.Duration
	next.Rolling = true
	next.Epoch = nextEpoch(s.Record.Epoch)
	if s.Record.Schema == 0 {
		// There is no Lease, or one that an operator made for a control. A deleted one may
		// have been there before, and whatever it knew of is lost. That is on record from
		// the first claim on, so that no crash can part the one from the other.
		next.Intent = Intent{Operation: FenceAll, Epoch: next.Epoch}
	}
	s.Record, s.Epoch = next, next.Epoch
	return c.to(s, claiming, WriteLease{Record: next})
}

// nextEpoch begins again at one where somebody has written a number behind which there is no
// other. That does no harm: a fence's value names the pod's resourceVersion as well, which no
// pod ever has twice, and every write is a swap.
func nextEpoch(epoch int) int {
	if epoch < 0 || epoch >= math.MaxInt32 {
		return 1
	}
	return epoch + 1
}

// understands is true for a record that no newer version has written, as far as one can see.
func understands(l *Record) bool {
	if l.Schema > Newest || l.Intent.Operation == None {
		return l.Schema <= Newest
	}
	switch kindOf(l.Intent.Operation) {
	case Fenced, Presumed, Blocking:
		return true
	case Unknown, Light:
	}
	return false
}

func (c *Config) newer(s *State, l Record) Effect {
	what := fmt.Sprintf("the record has schema %d and this version knows %d", l.Schema, Newest)
	if l.Schema <= Newest {
		what = fmt.Sprintf("the record names the operation %q, which this version does not know", l.Intent.Operation)
	}
	return c.end(s, Newer, what+": a newer version coordinates. To go back to this one for good, end the newer "+
		"sidecars, wait for ten minutes, so that nothing they have asked for can still arrive, and delete the Lease. "+
		"The controls on it go with it (pause, partition, max-unavailable, override-guards): set them again")
}

func (c *Config) lost(s *State, l Record) Effect {
	if !l.Exists() {
		return c.end(s, Lost, "the Lease was deleted")
	}
	if l.Schema == 0 {
		return c.end(s, Lost, "the record on the Lease was replaced")
	}
	if l.Holder == "" {
		return c.end(s, Lost, fmt.Sprintf("the record was released (epoch %d)", l.Epoch))
	}
	return c.end(s, Lost, fmt.Sprintf("%s has claimed the record (epoch %d)", l.Holder, l.Epoch))
}

// ours: a Lease without a schema has lost our intent as well.
func (c *Config) ours(s *State, l *Record) bool {
	return l.Holder == c.Identity && l.Epoch == s.Epoch && l.Schema > 0 && l.Schema <= Newest
}

// schemaOf is the lowest version that can say what the record says.
func schemaOf(l *Record) int {
	switch kind := kindOf(l.Intent.Operation); {
	case l.Suspect != nil, kind == Presumed, kind == Blocking:
		return Newest
	}
	return Schema
}
