package record

// Event is what happened: the answer to the last effect, or Start, Stop or Woken.
type Event interface{ event() }

// Effect is what to do next. Every effect but [End] is answered by an event, and there is never
// more than one under way.
type Effect interface{ effect() }

// Outcome is how a request ended.
type Outcome int

const (
	// Done means that it took effect.
	Done Outcome = iota
	// Refused means that it did not and will not take effect, because something had changed.
	Refused
	// Failed means that it was not allowed, and did not take effect.
	Failed
	// Unclear means that it may have taken effect, or may still do so.
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
		Record  Record
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
	// PodFenced answers [FencePod]. If it is Done, ResourceVersion is the pod's new one.
	// Refused means that this very pod is gone.
	PodFenced struct {
		Outcome         Outcome
		ResourceVersion string
	}
	// Observed answers [Observe]: what was read, and what was decided on it.
	Observed struct {
		Outcome Outcome // Done or Failed
		// Begun is when the observation began, and Record the one that it saw.
		Begun  Instant
		Record Record
		// Next is what the decision asks for, and Intent the operation of NextAct.
		Next   Next
		Intent Intent
		// Resolution is what was seen of the operation that the record names.
		Resolution Resolution
		// News means that there is something to tell people who read the Lease. The record is
		// renewed to tell it.
		News bool
	}
	// Acted answers [Act]. What an outcome means depends on the kind of the operation.
	Acted struct{ Outcome Outcome }
)

// Next is what a decision asks of the protocol.
type Next int

const (
	// NextRest means that there is nothing to do now.
	NextRest Next = iota
	// NextAct means to carry out the operation of the intent.
	NextAct
	// NextHandOver means to let another coordinator go on.
	NextHandOver
	// NextFinish means that the rollout is over.
	NextFinish
)

// Resolution is what an observation says of a presumed or blocking operation on the record, or of
// the suspect. Of other operations it says nothing: those are settled before anybody looks.
type Resolution int

const (
	// Open means that the operation may be under way, or may have left its member not serving.
	Open Resolution = iota
	// Settled means that a presumed operation took effect or never will, that the member of a
	// blocking one answers reads, or that the suspect is gone.
	Settled
	// Refuted means that a presumed operation must not be repeated, although it may still take
	// effect.
	Refuted
)

// Effects.
type (
	// ReadLease reads the Lease, consistently.
	ReadLease struct{}
	// CheckRight asks etcd, linearizably, whether the lock is ours.
	CheckRight struct{}
	// WriteLease writes Record if the Lease still has its resourceVersion. Without a
	// resourceVersion it creates the Lease.
	WriteLease struct{ Record Record }
	// ListPods lists the StatefulSet's pods, consistently.
	ListPods struct{}
	// FencePod changes a pod, if it still has that UID, by writing Value to it.
	FencePod struct {
		Pod   Pod
		Value string
	}
	// Observe reads everything live and decides.
	Observe struct{}
	// Act carries out an operation exactly as the intent says. It begins before By, when the evidence is too old, and
	// ends before Deadline.
	Act struct {
		Intent       Intent
		By, Deadline Instant
	}
	// Rest waits for news or for time to pass. Failed means that something failed and is to be
	// tried again.
	Rest struct{ Failed bool }
	// End means that there is no claim any more.
	End struct {
		Ended  Ended
		Detail string
	}
)

// Ended is how a claim ended.
type Ended uint8

const (
	// Finished means that the rollout is over.
	Finished Ended = iota
	// HandedOver means that another coordinator is to go on.
	HandedOver
	// Stopped means that it was told to stop.
	Stopped
	// Lost means that another coordinator has claimed the record.
	Lost
	// NoRight means that the record may not be claimed now.
	NoRight
	// Unwritable means that the record could not be read or claimed.
	Unwritable
	// Newer means that a newer version wrote the record.
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
func (Acted) event()        {}

func (ReadLease) effect()  {}
func (CheckRight) effect() {}
func (WriteLease) effect() {}
func (ListPods) effect()   {}
func (FencePod) effect()   {}
func (Observe) effect()    {}
func (Act) effect()        {}
func (Rest) effect()       {}
func (End) effect()        {}
