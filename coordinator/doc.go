// Package coordinator is the library's entry for a host: it runs in every sidecar,
// elects one of them, and lets that one roll the pods of the StatefulSet.
//
// A host builds a [Config], calls [New], and runs [Coordinator.Run] until its own
// shutdown:
//
//	c, err := coordinator.New(cfg)
//	if err != nil {
//		return err
//	}
//	return c.Run(ctx)
//
// Run returns when ctx ends, after the lock was released; it leaves no goroutine
// behind, never exits the process and registers nothing globally.
//
// # One way through it
//
// A cycle begins with an effect of the record's protocol (package record) and goes one way. Every step from observe to
// tracker is a file of its own, gets what it needs as arguments, and returns a value. None of them knows the step
// before or after it.
//
//	run      takes part in the election, and says whose turn it is    run.go, candidate.go
//	loop     waits until a rollout or another duty is due             loop.go, idle.go
//	turn     claims the record, and runs the steps                    turn.go, keeper.go
//	observe  → observation   etcd, Kubernetes, the others             observe.go, view.go, knock.go
//	decide   → decision      pure: no I/O and no clock                decide.go
//	act      → outcome       one operation, fenced                    act.go
//	tell     log, journal, metrics and events                         tell.go
//	tracker  what only time teaches, for the next decision            tracker.go
//
// The values have files of their own: observation.go, decision.go and outcome.go. What all steps share is in
// coordinator.go, and what is believed of the Lease in validate.go. No two files need each other, so they can be read
// from the lowest to the highest.
//
// The observation is all that one look has seen: the workload, the members, the record as far as it is believed, the
// other sidecars, and when it began. Looking writes nothing. The decision is all that follows from it: what the record
// is asked for, which sidecar goes on, what else is to be written, how long to wait, and what evidence it still lacks.
// While it lacks something (the word of the host's gates or of a PodDisruptionBudget, or a live reading that confirms
// what the watches told), the turn has the observer add that, and decides anew. So nothing is removed on what a watch
// has told: the decision itself says that it is not confirmed. Only when nothing is lacking, the turn answers the
// record's protocol, which asks for the operation once its intent is written. The actor carries that out, and its
// outcome goes to the tracker, which the next decision reads, and to the journal, which none does.
//
// Watches and a timer only start cycles. Everything is recomputed from scratch; what the tracker keeps (ages and counts
// of failed transfers) can be lost without harm: that only makes the rollout wait longer. Package record decides in
// which order claims, observations and removals follow each other, and what happens when one of them fails. The turn
// carries out its effects, one at a time, and never more than one removal for an observation.
//
// # Who coordinates
//
// The sidecars line up for a lock in etcd, and each tells the others who it is (package election).
// The owner of the lock claims the record when a rollout begins and gives it back when that has
// ended. As soon as an updated pod has settled and its sidecar waits for the lock, an outdated
// coordinator hands over to it (package selfupdate). The others line up again. A coordinator that fails
// again and again, while another fit one is there, lets the other one try and stays away for a while.
//
// Where etcd has confirmed no lock for a while (quorum lost, a NOSPACE alarm), each sidecar may
// become the fallback coordinator, without one: it claims a record that nobody holds or that has stood
// still for its duration on our own clock. The decision is the same, on the same evidence. A live session
// proves nothing, because it outlives quorum. So the last owner of the lock is the first that
// can be the fallback. One that fails gives the record back and pauses, so that others can try.
// When the lock works again, its owner claims the record, and the fallback is over.
//
// One goroutine takes part in the election, always. Another one runs the loop whenever the lock is
// ours, or etcd has confirmed none for a while.
//
// # What the lock guarantees, and what not
//
// The etcd lock is a preference: it says who should try. A holder can be paused past its lease
// and wake up. So safety rests neither on the lock nor on any clock but our own. What keeps two
// coordinators from removing two pods is the record: see package record.
package coordinator
