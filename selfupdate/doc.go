// Package selfupdate decides which sidecar coordinates while the sidecars themselves are being updated,
// and what happens to the coordinator's own pod.
//
// It has two rules. First, new code coordinates: as soon as an updated pod has settled and its sidecar waits
// for the lock, an outdated coordinator hands over to it. The new version then finishes the rollout,
// and nobody has to remove its own pod. Second, a coordinator whose own pod is next hands over to
// anybody who can go on. Only when nobody can, as with a single member, does it remove the pod that it
// runs in.
//
// [Choose] is a pure function: from a decision and the peers that wait for the lock, it says who goes on. A caller asks
// it after every decision, and carries the decision out itself only if the choice is empty. [Sidecars] says what a
// decision may know of the others.
//
// No safety depends on this package. Safety rests on the record, whoever coordinates. It changes without notice before
// version 1.
package selfupdate
