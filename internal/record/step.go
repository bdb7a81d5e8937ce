package record

import (
	"fmt"
	"time"
)

// Instant is a reading of the process's own monotonic clock. Only differences matter.
type Instant = time.Duration

// Right is why a coordinator may claim the record.
type Right uint8

const (
	// ByLock is for the owner of the lock in etcd.
	ByLock Right = iota
	// ByClock is for when no lock can be had. The coordinator may then claim a record that nobody
	// holds, that it holds itself, or that has not changed for its duration on its own clock.
	ByClock
)

func (r Right) String() string {
	if r == ByClock {
		return "fallback"
	}
	return "lock"
}

// Config is what does not change while a process runs.
type Config struct {
	// Identity is the coordinator's name in the record: no two processes that run at
	// the same time may share one.
	Identity string
	// Duration is written to the record: how long it may stand unrenewed before
	// another may claim it by the clock. It may differ from step to step, and a shorter one than stands
	// on the record is written at once.
	Duration time.Duration
	// Renew is how often the record is renewed; zero means every third of Duration.
	Renew time.Duration
	// MaxEvidenceAge bounds the time from the beginning of an observation to the end of
	// the operation that rests on it. The call of a blocking operation may take longer: it has to
	// begin within that time.
	MaxEvidenceAge time.Duration
	// Recovery is how long the member of a blocking operation has to have answered reads, after
	// the end of the call, before the operation counts as over.
	Recovery time.Duration
	// Later is how much longer a record that is not our own has to have been free before we claim
	// it by the clock, so that others go first. It may differ from claim to claim.
	Later time.Duration
}

// Recovery is [Config.Recovery] outside of tests.
const Recovery = 30 * time.Second

// Phase is what a state waits for.
type Phase uint8

const (
	out       Phase = iota // nothing: there is no claim
	reading                // the Lease, to claim it
	checking               // the right to claim
	claiming               // the claim's swap
	rereading              // the Lease, to see whether it is still ours
	listing                // the pods that have to be fenced
	fencing                // a pod's change
	clearing               // the swap that clears a resolved intent
	renewing               // the swap that renews
	observing              // an observation and what was decided on it
	recording              // the swap right before an operation, with its intent if it needs one
	acting                 // an operation
	resting                // time, or news
	releasing              // the swap that gives the record back
)

// State is a coordinator's place in the protocol. Its zero value has no claim. It is a
// value: [Step] never changes the one that it is given.
type State struct {
	Phase Phase
	Right Right
	// Ending is how it ends after the release.
	Ending Ended
	// Stopping: it was told to stop. All that is still to be done is to give the record back.
	Stopping bool
	// Pausing: what was decided could not be done, for a reason that will not go away at once.
	// The answer to a write sets it when the evidence had grown too old by then.
	Pausing bool
	// Record is what was last read or written. Before and during a light operation, its intent is
	// that operation, which is never written.
	Record Record
	// Epoch is that of our claim.
	Epoch int
	// Seen and SeenSince: the Lease's resourceVersion at the last reading, and since
	// when every reading has returned it. For [ByClock].
	Seen      string
	SeenSince Instant
	// Unfenced are the pods that a removal may still reach, the next one first.
	Unfenced []Pod
	// Begun is when the observation began that the operation rests on.
	Begun Instant
	// Doubted is until when, as far as we know, the blocking operation on the record has kept its
	// member from answering.
	Doubted Instant
	// Renewed is when the Lease was last written by us.
	Renewed Instant
}

// Pod is a pod to be fenced. ResourceVersion is one that must not be its own any more.
type Pod struct{ Name, UID, ResourceVersion string }

// Step is the protocol: what to do after an event that happened now.
//
// An event that does not answer the state's effect is a fault of the caller; it ends
// the claim, because nothing is done on a guess.
func (c Config) Step(s State, e Event, now Instant) (State, Effect) {
	effect := c.step(&s, e, now)
	if write, ok := effect.(WriteLease); ok {
		write.Record.Schema = schemaOf(&write.Record)
		s.Record.Schema = write.Record.Schema
		if s.Claimed() && s.Phase != releasing {
			write.Record.Duration, s.Record.Duration = c.Duration, c.Duration
		}
		return s, write
	}
	return s, effect
}

// step is [Config.Step] on a state that is its own.
func (c *Config) step(s *State, e Event, now Instant) Effect {
	switch e := e.(type) {
	case Start:
		s.Right = e.Right
		return c.to(s, reading, ReadLease{})
	case Stop:
		return c.stop(s)
	case LeaseRead:
		if s.Phase == reading || s.Phase == rereading {
			return c.leaseRead(s, e, now)
		}
	case RightChecked:
		if s.Phase == checking {
			if !e.Held {
				return c.end(s, NoRight, "the lock is not ours any more")
			}
			return c.claim(s)
		}
	case LeaseWritten:
		return c.leaseWritten(s, e, now)
	case PodsListed:
		if s.Phase == listing {
			return c.podsListed(s, e)
		}
	case PodFenced:
		if s.Phase == fencing {
			return c.podFenced(s, e)
		}
	case Observed:
		if s.Phase == observing {
			return c.observed(s, &e, now)
		}
	case Acted:
		if s.Phase == acting {
			return c.acted(s, e.Outcome, now)
		}
	case Woken:
		if s.Phase == resting {
			return c.woken(s, now)
		}
	}
	return c.end(s, Unwritable, fmt.Sprintf("%T answers nothing that was asked", e))
}

// Every is how long after it was last written the record that we hold has to be renewed.
func (c *Config) Every(s *State) time.Duration {
	written := s.Record.Duration
	switch {
	case written > c.Duration: // Nobody is to wait longer than we mean by now.
		return 0
	case written > 0 && written < c.Duration:
		return written / 3
	case c.Renew > 0:
		return c.Renew
	}
	return c.Duration / 3
}

// Claimed is true while the record is, as far as we know, ours.
func (s State) Claimed() bool {
	switch s.Phase {
	case out, reading, checking, claiming:
		return false
	default:
		return true
	}
}

func (c *Config) to(s *State, p Phase, e Effect) Effect {
	s.Phase = p
	return e
}

func (c *Config) end(s *State, how Ended, detail string) Effect {
	// What was seen of the Lease outlives the claim: the next one by the clock needs it.
	*s = State{Seen: s.Seen, SeenSince: s.SeenSince}
	return End{Ended: how, Detail: detail}
}

// woken reads the Lease again while an operation stands on the record, and when the last thing that
// happened was a failure: an unclear write may have landed.
func (c *Config) woken(s *State, now Instant) Effect {
	s.Pausing = false
	if s.Stopping || s.Record.Intent.Operation != None {
		return c.to(s, rereading, ReadLease{})
	}
	return c.proceed(s, now)
}
