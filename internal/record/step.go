package record

import (
	"fmt"
	"math"
	"slices"
	"time"
)

// Instant is a reading of the process's own monotonic clock. Only differences matter.
type Instant = time.Duration

// Right is why a coordinator may claim the record.
type Right int

const (
	// ByLock says: it owns the lock in etcd.
	ByLock Right = iota
	// ByClock says: no lock can be had. It may claim a record that nobody holds, that it
	// holds itself, or that has not changed for its duration on its own clock.
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
	// another may claim it by the clock. It is renewed every third of that.
	Duration time.Duration
	// MaxEvidenceAge bounds the time from the begin of an observation to the end of
	// the removal that rests on it.
	MaxEvidenceAge time.Duration
	// Later is for whoever shall let others go first. By the clock, a record that is not our own
	// has to have been free for so much longer. Alone of all these it may differ from claim to claim.
	Later time.Duration
}

// Phase is what a state waits for.
type Phase int

const (
	out        Phase = iota // nothing: there is no claim
	reading                 // the Lease, to claim it
	checking                // the right to claim
	claiming                // the claim's swap
	rereading               // the Lease, to see whether it is still ours
	listing                 // the pods that have to be fenced
	fencing                 // a pod's change
	clearing                // the swap that clears a resolved intent
	renewing                // the swap that renews
	observing               // an observation and what was decided on it
	recording               // the swap of an intent
	acting                  // a removal
	permitting              // the swap that renews before a change of leadership
	moving                  // a change of leadership
	resting                 // time, or news
	releasing               // the swap that gives the record back
)

// State is a coordinator's place in the protocol. Its zero value has no claim. It is a
// value: [Step] never changes the one that it is given.
type State struct {
	Phase Phase
	Right Right
	// Lease is the record as last read or written.
	Lease Lease
	// Epoch is that of our claim.
	Epoch int
	// Seen and SeenSince: the Lease's resourceVersion at the last reading, and since
	// when every reading has returned it. For [ByClock].
	Seen      string
	SeenSince Instant
	// Unfenced are the pods that a removal may still reach, the next one first.
	Unfenced []Pod
	// Begun is when the observation began that the removal rests on.
	Begun Instant
	// Renewed is when the Lease was last written by us.
	Renewed Instant
	// Ending is how it ends after the release.
	Ending Ended
	// Stopping: it was told to stop. All that is still to be done is to give the record back.
	Stopping bool
	// Pausing: what was decided could not be done, for a reason that will not go away at once.
	// The answer to a write sets it when the evidence had grown too old by then.
	Pausing bool
}

// Pod is a pod to be fenced. ResourceVersion is one that must not be its own any more.
type Pod struct{ Name, UID, ResourceVersion string }

// Event is what happened: the answer to the last effect, or Start, Stop or Woken.
type Event interface{ event() }

// Effect is what is to be done next. Every effect but [End] is answered by an event;
// there is never more than one under way.
type Effect interface{ effect() }

// Outcome is how a request ended.
type Outcome int

const (
	// Done says: it took effect.
	Done Outcome = iota
	// Refused says: it did not and will not take effect, because something had changed.
	Refused
	// Failed says: it was not allowed, and did not take effect.
	Failed
	// Unclear says: it may have taken effect, or may do so later.
	Unclear
)

// Events.
type (
	// Start asks for a claim.
	Start struct{ Right Right }
	// Stop ends the claim in an orderly way. It is given instead of carrying out an
	// effect, so nothing is under way. The effects that follow give the record back.
	Stop struct{}
	// Woken follows a [Rest].
	Woken struct{}

	// LeaseRead answers [ReadLease]. Begun is when the reading began.
	LeaseRead struct {
		Outcome Outcome // Done or Failed
		Lease   Lease
		Begun   Instant
	}
	// RightChecked answers [CheckRight].
	RightChecked struct{ Held bool }
	// LeaseWritten answers [WriteLease]; ResourceVersion is the new one.
	LeaseWritten struct {
		Outcome         Outcome
		ResourceVersion string
	}
	// PodsListed answers [ListPods].
	PodsListed struct {
		Outcome Outcome // Done or Failed
		Pods    []Pod
	}
	// PodFenced answers [FencePod]. Done: ResourceVersion is the pod's new one.
	// Refused says: the very pod is gone.
	PodFenced struct {
		Outcome         Outcome
		ResourceVersion string
	}
	// Observed answers [Observe]: what was read, and what was decided on it.
	Observed struct {
		Outcome Outcome // Done or Failed
		// Begun is when the observation began, and Lease the record that it saw.
		Begun Instant
		Lease Lease
		// Plan is the decision; Intent is set for PlanRemove.
		Plan   Plan
		Intent Intent
		// News: there is something to tell whoever reads the Lease. It is renewed for that.
		News bool
	}
	// Removed answers [Remove]. Only Done is the last word on every attempt.
	Removed struct{ Outcome Outcome }
	// Moved answers [MoveLeader]. However it ended, a change of leadership is no
	// removal, and the next observation shows it: nothing has to be resolved.
	Moved struct{ Outcome Outcome }
)

// Plan is what a decision asks of the protocol.
type Plan int

const (
	// PlanRest says: nothing can be done now.
	PlanRest Plan = iota
	// PlanRemove says: remove the pod that the intent names.
	PlanRemove
	// PlanMoveLeader says: move etcd's leadership.
	PlanMoveLeader
	// PlanHandOver says: let another coordinator go on.
	PlanHandOver
	// PlanFinish says: the rollout is over.
	PlanFinish
)

// Effects.
type (
	// ReadLease reads the Lease, consistently.
	ReadLease struct{}
	// CheckRight asks etcd, linearizably, whether the lock is ours.
	CheckRight struct{}
	// WriteLease writes what Lease says if the Lease still has that resourceVersion;
	// with none, it creates the Lease.
	WriteLease struct{ Lease Lease }
	// ListPods lists the StatefulSet's pods, consistently.
	ListPods struct{}
	// FencePod changes a pod, if it still has that UID, by writing Value to it.
	FencePod struct {
		Pod   Pod
		Value string
	}
	// Observe reads everything live and decides.
	Observe struct{}
	// Remove sends the removal, with UID and resourceVersion as preconditions, to end
	// before Deadline.
	Remove struct {
		Intent   Intent
		Deadline Instant
	}
	// MoveLeader moves the leadership as decided, to end before Deadline.
	MoveLeader struct{ Deadline Instant }
	// Rest waits for news or for time to pass. Failed: something failed and is to be
	// tried again.
	Rest struct{ Failed bool }
	// End says: there is no claim any more.
	End struct {
		Ended  Ended
		Detail string
	}
)

// Ended is how a claim ended.
type Ended int

const (
	// Finished says: the rollout is over.
	Finished Ended = iota
	// HandedOver says: another coordinator shall go on.
	HandedOver
	// Stopped says: it was told to stop.
	Stopped
	// Lost says: another coordinator has claimed the record.
	Lost
	// NoRight says: it may not be claimed now.
	NoRight
	// Unwritable says: it could not be read or claimed.
	Unwritable
	// Newer says: the record was written by a newer version.
	Newer
)

func (Start) event()        {}
func (Stop) event()         {}
func (Woken) event()        {}
func (LeaseRead) event()    {}
func (RightChecked) event() {}
func (LeaseWritten) event() {}
func (PodsListed) event()   {}
func (PodFenced) event()    {}
func (Observed) event()     {}
func (Removed) event()      {}
func (Moved) event()        {}

func (ReadLease) effect()  {}
func (CheckRight) effect() {}
func (WriteLease) effect() {}
func (ListPods) effect()   {}
func (FencePod) effect()   {}
func (Observe) effect()    {}
func (Remove) effect()     {}
func (MoveLeader) effect() {}
func (Rest) effect()       {}
func (End) effect()        {}

// Step is the protocol: what to do after an event that happened now.
//
// An event that does not answer the state's effect is a fault of the caller; it ends
// the claim, because nothing is done on a guess.
func (c Config) Step(s State, e Event, now Instant) (State, Effect) {
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
			return c.observed(s, e)
		}
	case Removed:
		if s.Phase == acting {
			s.Pausing = e.Outcome == Failed || e.Outcome == Unclear
			if e.Outcome == Done {
				return c.clear(s)
			}
			// It may arrive at any time, unless its pod changes first. One that failed or was
			// refused as well: a client repeats a request by itself (client-go does after a 503
			// with Retry-After), and only of its last attempt the answer is known. That may even
			// have been refused because of an earlier one: an eviction changes its pod, and is
			// still about to delete what it has changed.
			return c.resolve(s)
		}
	case Moved:
		if s.Phase == moving {
			if e.Outcome != Done {
				return c.to(s, resting, Rest{Failed: true})
			}
			return c.proceed(s, now)
		}
	case Woken:
		if s.Phase == resting {
			return c.woken(s, now)
		}
	}
	return c.end(s, Unwritable, fmt.Sprintf("%T answers nothing that was asked", e))
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

func (c Config) to(s State, p Phase, e Effect) (State, Effect) {
	s.Phase = p
	return s, e
}

func (c Config) end(s State, how Ended, detail string) (State, Effect) {
	// What was seen of the Lease outlives the claim: the next one by the clock needs it.
	return State{Seen: s.Seen, SeenSince: s.SeenSince}, End{Ended: how, Detail: detail}
}

// Claim ---------------------------------------------------------------------------

func (c Config) leaseRead(s State, e LeaseRead, now Instant) (State, Effect) {
	if e.Outcome != Done {
		switch {
		case s.Stopping: // There is no time to wait for a better answer.
			return c.end(s, Stopped, "")
		case s.Phase == rereading:
			return c.to(s, resting, Rest{Failed: true})
		}
		return c.end(s, Unwritable, "the Lease could not be read")
	}
	if e.Lease.ResourceVersion != s.Seen {
		s.Seen, s.SeenSince = e.Lease.ResourceVersion, now
	}
	switch {
	case s.Stopping && !c.ours(&s, &e.Lease):
		return c.end(s, Stopped, "") // There is nothing left to give back.
	case s.Stopping:
		s.Lease = e.Lease
		return c.release(s, Stopped)
	case e.Lease.Schema > Schema:
		return c.newer(s, e.Lease)
	case s.Phase == rereading && !c.ours(&s, &e.Lease):
		return c.lost(s, e.Lease)
	case s.Phase == rereading:
		s.Lease = e.Lease
		return c.proceed(s, now)
	}
	s.Lease = e.Lease
	if s.Right == ByLock {
		// After the reading, not before: whoever takes the lock from here on swaps first
		// or makes our own swap fail.
		return c.to(s, checking, CheckRight{})
	}
	if s.Lease.Holder == c.Identity {
		return c.claim(s)
	}
	unchanged := e.Begun - s.SeenSince
	switch {
	case s.Lease.Holder != "" && unchanged < c.patience(&s.Lease)+c.Later:
		return c.end(s, NoRight, fmt.Sprintf("%s holds the record and has renewed it within its %v", s.Lease.Holder, c.patience(&s.Lease)+c.Later))
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
func (c *Config) patience(l *Lease) time.Duration {
	if l.Duration > 0 {
		return min(l.Duration, max(LongestDuration, c.Duration))
	}
	return c.Duration
}

func (c Config) claim(s State) (State, Effect) {
	next := s.Lease
	next.Schema, next.Holder, next.Duration = Schema, c.Identity, c.Duration
	next.Rolling = true
	next.Epoch = nextEpoch(s.Lease.Epoch)
	if s.Lease.Schema == 0 {
		// There is no Lease, or one that an operator made for a control. A deleted one may
		// have been there before, and whatever it knew of is lost. That is on record from
		// the first claim on, so that no crash can part the one from the other.
		next.Intent = Intent{Operation: FenceAll, Epoch: next.Epoch}
	}
	s.Lease, s.Epoch = next, next.Epoch
	return c.to(s, claiming, WriteLease{Lease: next})
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

func (c Config) newer(s State, l Lease) (State, Effect) {
	return c.end(s, Newer, fmt.Sprintf("the record has schema %d and this version knows %d: a newer version coordinates (to go back, delete the Lease)", l.Schema, Schema))
}

func (c Config) lost(s State, l Lease) (State, Effect) {
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

// ours: a Lease without the schema that we wrote has lost our intent as well.
func (c *Config) ours(s *State, l *Lease) bool {
	return l.Holder == c.Identity && l.Epoch == s.Epoch && l.Schema == Schema
}

// Writes --------------------------------------------------------------------------

func (c Config) leaseWritten(s State, e LeaseWritten, now Instant) (State, Effect) {
	switch s.Phase {
	case claiming, clearing, renewing, recording, permitting, releasing:
	default:
		return c.end(s, Unwritable, "a write was answered that nobody asked for")
	}
	if e.Outcome != Done {
		return c.notWritten(s, e.Outcome)
	}
	if s.Phase == releasing {
		return c.end(s, s.Ending, "")
	}
	s.Lease.ResourceVersion, s.Renewed = e.ResourceVersion, now
	switch s.Phase {
	case recording:
		if now-s.Begun >= c.MaxEvidenceAge {
			s.Pausing = true
			return c.clear(s) // Never sent, so there is nothing to resolve.
		}
		return c.to(s, acting, Remove{Intent: s.Lease.Intent, Deadline: s.Begun + c.MaxEvidenceAge})
	case permitting:
		if now-s.Begun >= c.MaxEvidenceAge {
			s.Pausing = true
			return c.to(s, resting, Rest{Failed: true})
		}
		return c.to(s, moving, MoveLeader{Deadline: s.Begun + c.MaxEvidenceAge})
	default:
		if s.Pausing {
			s.Pausing = false
			return c.to(s, resting, Rest{Failed: true})
		}
		return c.proceed(s, now)
	}
}

// notWritten: another writer was faster, or nobody knows. A removal is sent only after
// its intent is known to stand on record; so what is read next is the whole truth,
// except that an unclear write may still land, and then the next swap fails.
func (c Config) notWritten(s State, o Outcome) (State, Effect) {
	if s.Phase == claiming {
		switch o {
		case Refused:
			return c.end(s, Lost, "another coordinator was faster")
		case Done, Failed, Unclear:
		}
		return c.end(s, Unwritable, "the Lease could not be written")
	}
	switch {
	case o == Refused:
		return c.to(s, rereading, ReadLease{})
	case s.Stopping && o == Failed: // It is not allowed, and there is no time to wait until it is.
		return c.end(s, Stopped, "")
	}
	return c.to(s, resting, Rest{Failed: true})
}

func (c Config) clear(s State) (State, Effect) {
	s.Lease.Intent = Intent{}
	return c.to(s, clearing, WriteLease{Lease: s.Lease})
}

// Resolve -------------------------------------------------------------------------

// proceed is what a holder does whenever it knows what the record says: first make sure
// that nothing is under way, then keep the record fresh, and only then look.
func (c Config) proceed(s State, now Instant) (State, Effect) {
	switch {
	case s.Lease.Intent.Operation != None:
		return c.resolve(s)
	case now-s.Renewed >= c.Duration/3:
		return c.to(s, renewing, WriteLease{Lease: s.Lease})
	}
	return c.to(s, observing, Observe{})
}

// resolve makes sure that the removal on record has no effect from here on. Its pod is
// changed even if it has changed already since: an eviction changes its pod itself
// before it removes it.
func (c Config) resolve(s State) (State, Effect) {
	i := s.Lease.Intent
	if i.Operation == FenceAll {
		return c.to(s, listing, ListPods{})
	}
	s.Unfenced = []Pod{{Name: i.Pod, UID: i.UID, ResourceVersion: i.ResourceVersion}}
	return c.fence(s)
}

func (c Config) podsListed(s State, e PodsListed) (State, Effect) {
	if e.Outcome != Done {
		return c.to(s, resting, Rest{Failed: true})
	}
	s.Unfenced = slices.Clone(e.Pods)
	return c.fence(s)
}

func (c Config) fence(s State) (State, Effect) {
	if len(s.Unfenced) == 0 {
		s.Unfenced = nil
		return c.clear(s)
	}
	p := s.Unfenced[0]
	// New for this pod: no two claims on one Lease share an epoch, and a pod never has
	// the same resourceVersion twice. A repeated request changes nothing, and then the
	// first one has.
	return c.to(s, fencing, FencePod{Pod: p, Value: fmt.Sprintf("epoch %d, resourceVersion %s", s.Epoch, p.ResourceVersion)})
}

func (c Config) podFenced(s State, e PodFenced) (State, Effect) {
	fenced := e.Outcome == Refused || e.Outcome == Done && e.ResourceVersion != s.Unfenced[0].ResourceVersion
	if !fenced {
		s.Unfenced = nil
		return c.to(s, resting, Rest{Failed: true})
	}
	s.Unfenced = s.Unfenced[1:]
	return c.fence(s)
}

// Act -----------------------------------------------------------------------------

func (c Config) observed(s State, e Observed) (State, Effect) {
	if e.Outcome != Done {
		return c.to(s, resting, Rest{Failed: true})
	}
	if e.Lease.Schema > Schema {
		return c.newer(s, e.Lease)
	}
	if !c.ours(&s, &e.Lease) {
		return c.lost(s, e.Lease)
	}
	s.Lease = e.Lease
	if s.Lease.Intent.Operation != None {
		return c.resolve(s) // An unclear write of ours has landed after all.
	}
	s.Begun = e.Begun
	switch e.Plan {
	case PlanRemove:
		s.Lease.Intent = e.Intent
		s.Lease.Intent.Epoch = s.Epoch
		return c.to(s, recording, WriteLease{Lease: s.Lease})
	case PlanMoveLeader:
		return c.to(s, permitting, WriteLease{Lease: s.Lease})
	case PlanHandOver:
		return c.release(s, HandedOver)
	case PlanFinish:
		return c.release(s, Finished)
	case PlanRest:
	}
	if e.News {
		return c.to(s, renewing, WriteLease{Lease: s.Lease})
	}
	return c.to(s, resting, Rest{})
}

// woken reads the Lease again when the last thing that happened was a failure: an
// unclear write may have landed.
func (c Config) woken(s State, now Instant) (State, Effect) {
	s.Pausing = false
	if s.Stopping || s.Lease.Intent.Operation != None {
		return c.to(s, rereading, ReadLease{})
	}
	return c.proceed(s, now)
}

// release gives the record back, so that the next coordinator need not wait. An intent
// that is not resolved stays on it.
//
// Only a write that was answered ends the claim. After any other answer the record may still
// be ours, and nobody else would end what it says: so we look again, at the world where there
// is time for that, else at the record alone.
func (c Config) release(s State, how Ended) (State, Effect) {
	s.Ending = how
	given := s.Lease
	given.Holder = ""
	given.Rolling = how != Finished
	return c.to(s, releasing, WriteLease{Lease: given})
}

func (c Config) stop(s State) (State, Effect) {
	s.Stopping = true
	switch s.Phase {
	case out, reading, checking, claiming:
		return c.end(s, Stopped, "")
	case rereading: // Whether there is something to give back is what we are about to read.
		return c.to(s, rereading, ReadLease{})
	case releasing:
		return c.release(s, s.Ending)
	case acting: // Its intent stands on record, and it is not sent.
		s.Lease.Intent = Intent{}
	case recording: // Not written.
		s.Lease.Intent = Intent{}
	default:
	}
	return c.release(s, Stopped)
}
