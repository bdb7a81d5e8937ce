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
// A cycle observes (Kubernetes and etcd, live), decides ([rollout.Decide]) and acts
// on the decision: it moves leadership or removes one pod, never two. Watches and a
// timer only start cycles. Everything is recomputed from scratch; what is kept between
// cycles (ages and counts of failed transfers) can be lost without harm.
//
// # What the lock guarantees, and what not
//
// The etcd lock is a preference: it says who should try. A holder can be paused past
// its lease and wake up, so a removal also carries the UID and resourceVersion of the
// pod that was decided on, and the API server refuses it when the pod has changed.
package coordinator
