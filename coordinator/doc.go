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
// # The loop
//
// A cycle observes (Kubernetes and etcd, live), decides ([rollout.Decide]) and acts on the
// decision: it moves leadership or removes one pod, never two. Watches and a timer only start
// cycles. Everything is recomputed from scratch; what is kept between cycles (ages and counts
// of failed transfers) can be lost without harm. Package record decides in which order claims,
// observations and removals follow each other, and what happens when one of them fails. This
// package carries out its effects.
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
// stand in without one: it claims a record that nobody holds or that has stood still for its
// duration on our own clock. The decision is the same, on the same evidence. A live session
// proves nothing, because it outlives quorum. So the last owner of the lock is the first that
// can stand in. A stand-in that fails gives the record back and pauses, so that others can try.
// When the lock works again, its owner claims the record, and the standing in is over.
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
