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
//     the default settle timeout, or a short one; members that stop at once, or serve on for
//     one to eight seconds while their pods terminate (a preStop hook);
//   - four to six rounds, each with one change: etcd from 3.5 to 3.6 (never back), another
//     tag of the sidecar's image, a touch of the template, two touches of which the second
//     comes while the first rolls, a touch that is rolled back while it rolls, a bad revision
//     (etcd crashes or hangs, the sidecar crashes, no such image) and later its fix, or once in a life
//     3 members to 5 or 5 to 3, which is a change of the template, too, and may come while
//     another rolls; after a scale-in the members stay on the list for a while;
//   - in every round, faults, and their moments: so long after so many removals, because the
//     moment after a removal is when a second loss hurts. Faults that take a member away
//     come one after another: SIGKILL and SIGSTOP of etcd, or of etcd and sidecar;
//     partitions from one peer, all peers, or everybody; the node lost, or rebooted (its
//     containers are reported as terminated for up to 18 s, and start by themselves, on the
//     revision that they had); the pod deleted by an operator; the disk full (a tmpfs) or slow
//     (a FUSE file system that lets every fsync wait, for one member in a life). Beside them:
//     SIGKILL and SIGSTOP of a sidecar; a sidecar cut off from the API server, or delayed; all
//     of them delayed by what is usual for a busy API server; a sidecar that is refused some
//     verbs with 403; a removal, or the intent before it, held on its way and then released
//     late, lost, or done with its answer lost or wrong, sometimes with another fault while it
//     is held; the API server killed or halted; the controllers halted, those of StatefulSets
//     and of PodDisruptionBudgets together; a node drained, or all of them one after the other:
//     evictions as kubectl drain sends them, until the budget allows each (but tried more often
//     than kubectl does). What a drain has taken may come back on the same node at once;
//   - in most rounds, other work for the coordinator, whose duties are all on: the quota is filled by
//     writes, and an operator makes room a while later, so that the members have to be defragmented and the
//     alarm NOSPACE disarmed; databases are made loose, which the policy does not like, and mostly an operator
//     asks for a defragmentation; a voter is added that never starts, or a scale-in leaves its members on the
//     list, and an operator asks for their removal. In half of these rounds the coordinator is killed at a step
//     of what it does to a member: before that is on record, when it is, while it is carried out, or before its
//     end is on record. A node may be cordoned and drained, at some moment or during a defragmentation.
//
// The quorum guard (deploy/components/quorum-guard) is installed. In most rounds there are hands beside all that. For
// some seconds they try to take another pod while one is away and the record names those that quorum rests on: by
// DELETE, by eviction, by the deletion of a collection, or of all pods of a node. When they have taken one, they wait
// until all are back. There are none while a zone is cut off. At times an operator turns the guard off meanwhile. Every
// denial is counted. A drain that is denied tries again, and an operator who deletes a pod does not.
//
// A round in four takes quorum away on purpose: the same fault hits a majority at once, and a
// power cut mostly everybody. In a third of these rounds, a majority is cut off from the zone of the API server
// instead, and a minority is left there. Nothing passes between the pods of the two sides, the sidecars of the majority
// do not reach the API server, and their kubelets are not heard. Mostly their etcds crash just before, or their nodes
// reboot, so that the last words of their kubelets are bad. Then they come back and are a quorum, which nobody in the
// zone can know. It begins when no pod is away. For the first seconds nobody in the zone reaches the API server either,
// so that no removal is excused by what was true before the cut.
//
// In all other rounds at most a minority is hit at a time, and by itself
// a fault leaves quorum; on top of a member that is being replaced, or drained, it may not.
// While the first pod of a bad revision comes up, a node reboots more often than not.
//
// A round ends when the rollout is complete, and what an operator has asked for is done; faults that have not begun
// then are left out, and those that last are ended.
//
// # What is checked
//
//   - Nothing acknowledged is ever lost, no read is stale, watches tell the truth
//     ([traffic.History.Check]); and porcupine finds the history of every key linearizable, with
//     writes of unknown effect counted as unknown ([Linearizable]). What
//     porcupine does not decide in time is reported as unknown.
//   - Every removal of a pod is attributed: to a sidecar by name, by DELETE or eviction, to a
//     drain, to hands, to another operator, or to the StatefulSet controller at scale-in; to nobody is a
//     violation.
//   - Every removal of ours was on record with the pod's UID when it took effect.
//   - No removal of ours of a serving member leaves the serving voters below quorum. A voter
//     whose pod is being scaled away counts among the voters and never survives, though it
//     serves to its last moment.
//   - None takes a serving member while another pod that we removed is away; nor while one is
//     away that anybody else had removed, or another voter silent, since before the evidence
//     can have been gathered.
//   - No removal of ours of a member that does not serve, but whose etcd runs, leaves the
//     voters that serve or may vote below quorum: those whose container does not back off, on
//     pods that do not go. While none serves, one whose etcd runs goes only after nobody has
//     served for the settle timeout.
//   - A drain and we together never take more Ready pods than a budget allows that asks for a
//     quorum: of three, one. That holds for the drain's evictions as well as for ours.
//   - Through our removals, a bad revision takes at most one pod whose member served or would have come
//     back by itself (its etcd ran, or had been down for less than the settle timeout without
//     backing off), and never all pods, unless hands took one of them.
//   - A member is defragmented only while the other voters serve, as if its pod were removed. No two
//     are at once, by the members' own logs, none is that is not on record, and no pod whose member serves is removed
//     meanwhile.
//   - A member leaves the list by our hand only if an operator has asked for that, it has no pod any more, it has not
//     served since the evidence was gathered, and those that serve are a quorum with it. Whoever leaves the list
//     otherwise was removed by the harness.
//   - Nobody takes a pod that the record has named for more than a second as one that quorum rests on, neither hands
//     nor drains, controllers or sidecars. While the quorum guard is off they may. An API server that was away has five
//     seconds more.
//   - A sidecar that is built with the race detector reports no data race.
//   - The rollout completes within a bound after the last fault, with what an operator has asked for, with every
//     member serving, no other on the list, and the record at rest.
//
// The auditor shares nothing with the product. It watches pods and Lease with a client of
// its own, and takes the order of events from their resource versions, not from a clock; it reads
// at every member itself; and the API proxy shows it what each sidecar asked, when the request
// really went to the API server, and what the API server answered. No cut keeps it from a member, and while a kubelet
// is not heard, it sees for itself whether etcd runs.
//
// # What is excused
//
// One thing, and it is counted: a removal whose evidence was true when it was read, and was
// made false by a fault of the script before the removal took effect. That is a member that
// served within MaxEvidenceAge before the removal was sent, and fell silent through a fault
// that can silence a member, hands, a drain, or a scale-in (but for one that began the rollout: who
// acts on it has seen it), not by a removal of ours; or that may have voted then, and whose
// container has begun to back off since. It is also the removal of a member that was down, by the word of its
// kubelet within MaxEvidenceAge before the removal was sent, and came back when that could not be heard any more. (A
// removal that the script itself holds on its way is judged by when it was sent.)
// What a PodDisruptionBudget arbitrates is never excused.
//
// A single observation may be late on a busy machine. So a member counts as silent only if
// it gave no answer for a second before a removal, and a second after, and as serving only
// if it gave one within the last second, and since then no fault has hit it and its kubelet has
// not said that its process has ended; what is in doubt is no violation. That hides only what a
// later sample shows too: a second member that goes while the first is away stays silent for
// longer than that, and the watch shows it in any case.
//
// The state of a removed pod is what the watch reported last: a removal names
// the resourceVersion, so that the sidecar has seen the same. If an end was not seen but found
// after an outage of the API server, it stays open whether the process ran and whether the pod
// was Ready.
//
// # A soak
//
// What a sidecar leaks in a rollout shows after hours, and rollouts replace it once a minute. With [Options.Soak] there
// is one cluster for as long as that takes: the script of each next seed goes on with it ([Script.Next]). Two more
// sidecars run in pods of their own. They take part in the election, and while they coordinate they are halted, cut off
// from the API server, delayed and refused permissions. No fault ends them. Everything above is checked as well, seed
// by seed. What all sidecars occupy goes into a file, and it is an error if anything grows (package soak).
//
// # What is not
//
// Lost disks, wrong clocks and a store of Kubernetes that loses data are not drawn. An operator
// who deletes the record or the pods of a majority is not drawn either. StatefulSets are Parallel, and the
// disruption controller is halted only together with the others. Without root there are no network namespaces and no
// mounts: partitions and disk faults are left out then, and so are voters that never start, because names do not
// resolve. They are counted as missed. Without /dev/fuse that holds for slow disks alone. Pods are never deleted by
// force.
package chaos
