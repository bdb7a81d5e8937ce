// Package explorer walks through everything that can happen to a few coordinators that
// roll one etcd cluster, and checks after every step that nothing happened that must not.
//
// The coordinators are the production ones: every step is taken by [record.Config.Step],
// every decision by [rollout.Decide], and [record.NextOf] translates a decision for the protocol.
// Around them is a model of what they talk to:
//
//   - The API server: one Lease and the pods, each with a resourceVersion. A request
//     lands once, twice (clients repeat requests by themselves), late, or never; its
//     answer may be lost whatever happened to it. The resourceVersions of two pods that
//     follow each other under one name may be equal: only the UID tells them apart.
//   - The StatefulSet controller and the kubelets: a pod that was deleted ends, is
//     recreated from the newest template, and comes up.
//   - etcd: who votes, whether there is a quorum, who leads. Its lock lies: any coordinator may
//     be told that it owns the lock (safety must not depend on that). In another world
//     it tells the truth, to see that nobody claims by a right that is gone.
//   - Processes that pause anywhere, crash, start again, are told to stop. Their clocks
//     run at speeds that have nothing to do with each other.
//   - Members that fail by themselves, or only seem to; another client that deletes pods, deletes
//     or edits the Lease, or writes an intent to it that names a foreign pod; a template that
//     changes in the middle of it all.
//   - The field, each part of it in worlds of its own (see fieldWorlds): the StatefulSet is scaled
//     and its first ordinal moves, the member list follows late, and a pod that terminates
//     serves until it is gone. Voters outside our ordinals serve, and go without asking us. A
//     revision does not come up; nodes restart, and the power fails. A coordinator is cut off
//     from the other members, or sees the list of one that lags, an answer under a wrong address,
//     a read from before a pause. Others evict pods under a PodDisruptionBudget, which is reckoned
//     anew late or never. They say before whom they are about to take, by a condition of the pod, a taint
//     or a cordon of its node, and then they take it at any moment, with a budget or without one, or they
//     do not (see leaving.go). OrderedReady, a container of another name, and a Status that is denied.
//   - Operations on members (see kinds.go). An operator asks for the removal of one that a scale-in has left
//     behind, and a scale-out brings it back. The host may remove it as well, the request may run out, the
//     Lease may come back from a backup with the removal on it, and an operator may say that a suspect is
//     none. The other operation is the explorer's own, and stops a member for a while. Either may take
//     effect late.
//   - What the watches tell (see cachedView), as late as they like, of the pods and of the Lease in any order. Whatever
//     leads to a removal is confirmed live, by what was read as early or as late as possible.
//   - The coordinators' own loop (see loop.go), wherever it is asked whether a rollout ends: a
//     claim begins when production's loop begins one, and at no other time. A gate may hang, a
//     coordinator may abstain for good, and one that waits for the lock or abstains may be the fallback coordinator.
//
// An observation is not a moment: the Lease is read first, then the StatefulSet and the
// pods, then etcd, and anything may happen in between.
//
// # What is checked
//
// After every step (see invariants.go):
//
//   - No removal takes effect that was decided in ignorance of another operation of ours.
//   - Never more than maxUnavailable members that served are down because of us.
//   - No removal of ours takes the voters that run and stay below quorum. What others may then do
//     without asking us does not either. Pods that others were seen to be about to take count as taken.
//   - Leadership leaves a member that others were seen to be about to take, for one that stays.
//   - A revision that does not come up costs at most one member that served or would have come
//     back by itself.
//   - No pod is removed whose UID was not decided on. A removal is sent only for the pod and the
//     version that were decided on, and in the way that was decided on.
//   - While there is a record, it names every operation that can still take effect, and no such
//     operation is overwritten.
//   - Nobody writes to a record that it does not hold, claims by a lock that it had lost
//     before its owner claimed, or claims by the clock what was renewed in time.
//   - A removal is only sent while its evidence is young.
//
// Of the second and the third, what nobody could have seen is excused, and counted: see
// excuseOf. So is a cordon that has lasted for as long as one is waited for. What a removal may be
// excused by is settled when it is decided on. A wrong guess is excused in random walks alone: where
// every world is visited, there is none.
//
// # What is abstracted
//
// Time comes in ticks of each process's own clock: evidence is old after one tick, the
// record is due for renewal after one and stands unchanged for long enough after three.
// The ages that a decision asks for are either zero or beyond every timeout, and every
// decision is taken with both. resourceVersions and epochs are renamed in order, so that
// only what equals what, and what came after what, tells two worlds apart; so are UIDs, of
// which only the one of the pod that is there matters.
//
// Where it is asked whether a rollout ends, the faults are over at some time. From then on all that is
// seen has lasted for long, and leadership moves whenever that is asked for. So no end rests on a chance
// that need not come, and whoever goes to and fro does not get there.
//
// A coordinator's loop also looks once more when no claim can land late any more. That is modelled
// as a look after one has landed, so that nothing else is seen to rely on it. Where there is a budget, a drain
// evicts pods that are Ready alone, and there is one budget.
//
// Left out are: controls, a coordinator that hands over (to be told to stop is the same to the
// record), and the deadline of a removal once it is sent, which is as if it were late.
package explorer
