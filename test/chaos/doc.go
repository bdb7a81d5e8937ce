// Package chaos rolls real etcd clusters while everything fails around them, and proves
// from outside that Quorate kept its promises. It runs on package harness: a real API server
// and StatefulSet controller, real etcd, the real sidecar with its real Role.
//
// # What is drawn
//
// A [Script] is one life of a cluster, and follows from one seed alone ([Draw]); only the
// machine's timing differs from run to run. It draws
//
//   - the cluster: 3 members, sometimes 5; etcd 3.5, sometimes 3.6; plain text or mTLS;
//     the default settle timeout, or a short one;
//   - four to six rounds, each with one change: etcd from 3.5 to 3.6 (never back), another
//     tag of the sidecar's image, a touch of the template, two touches of which the second
//     comes while the first rolls, a touch that is rolled back while it rolls, a bad revision
//     (etcd crashes, the sidecar crashes, no such image) and later its fix, or once in a life
//     3 members to 5 or 5 to 3;
//   - in every round, faults, and their moments: so long after so many removals, because the
//     moment after a removal is when a second loss hurts. Faults that take a member away
//     come one after another: SIGKILL and SIGSTOP of etcd, or of etcd and sidecar;
//     partitions from one peer, all peers, or everybody; the node lost; the pod deleted by
//     an operator; the disk full (a tmpfs) or slow (a FUSE file system that lets every fsync
//     wait, for one member in a life). Beside them: SIGKILL and SIGSTOP of a sidecar; a
//     sidecar cut off from the API server, or delayed; a removal, or the intent before it,
//     held on its way and then released late, lost, or done with its answer lost or wrong,
//     sometimes with another fault while it is held; the API server killed or halted.
//
// A round in four takes quorum away on purpose: the same fault hits a majority at once. In
// all others at most a minority is hit at a time, and by itself a fault leaves quorum; on
// top of a member that is being replaced it may not.
//
// A round ends when the rollout is complete; faults that have not begun then are left out,
// and those that last are ended.
//
// # What is checked
//
//   - Nothing acknowledged is ever lost, no read is stale, watches tell the truth
//     ([traffic.History.Check]); and the history of every key is linearizable, says porcupine,
//     with writes whose effect is not known taken for what they are ([Linearizable]). What
//     porcupine does not decide in time is reported as unknown.
//   - Every removal of a pod is attributed: to a sidecar by name, to the harness, or to the
//     StatefulSet controller at scale-in; to nobody is a violation.
//   - No removal of ours of a serving member leaves the serving voters below quorum.
//   - None takes a serving member while another pod that we removed is away.
//   - Every removal of ours stood on record with the pod's UID when it took effect.
//   - A bad revision takes at most one pod that served, and never all pods.
//   - A sidecar that is built with the race detector reports no data race.
//   - The rollout completes within a bound after the last fault, with every member serving
//     and the record at rest.
//
// The auditor shares nothing with the product. It watches pods and Lease with a client of
// its own, and tells what was first from their resource versions, not from a clock; it reads
// at every member itself; and the API proxy shows it what each sidecar asked, when that
// really went to the API server, and what that one said.
//
// # What is excused
//
// One thing, and it is counted: a removal whose evidence was true when it was read, and was
// made false by a fault of the script before the removal took effect. That is a member that
// served within MaxEvidenceAge before the removal was sent, and fell silent through a fault,
// not by a removal of ours. (A removal that the script itself holds on its way is judged by
// when it was sent.)
//
// A single observation may be late on a busy machine. So a member counts as silent only if
// it gave no answer for a second before a removal, and a second after, and as serving only
// if it gave one within the last second, and no fault has hit it since; what is in doubt is no
// violation. That hides only
// what a later sample shows too: a second member that goes while the first is away stays
// silent for longer than that, and the watch shows it in any case.
//
// # What is not
//
// Lost disks, wrong clocks and a store of Kubernetes that loses data are not drawn, nor is an
// operator who deletes the record or the pods of a majority. Without root there are no
// network namespaces and no mounts: partitions and disk faults are left out then, and counted
// as missed. Without /dev/fuse that holds for slow disks alone. Pods are never deleted by
// force.
package chaos
