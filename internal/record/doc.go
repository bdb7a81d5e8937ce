// Package record is the protocol by which at most one coordinator's operations take
// effect at a time: one Lease, quorate-<statefulset>, written only by compare-and-swap.
//
// A lock in etcd is not mutual exclusion by itself: its holder can be paused beyond its
// lease and wake up (etcd's documentation of locks; Jepsen etcd 3.4.3; Kleppmann 2016).
// The pods, which have to be protected, live in another system, and so does the record.
// The lock only says who should try.
//
// [Config.Step] is the whole protocol, without I/O and without a clock: it takes what happened
// and says what to do next, one request at a time. The coordinator carries the effects
// out, and so does the explorer of the tests.
//
//	claim    read the Lease, then check the right, then swap in (me, epoch+1)
//	resolve  a removal that the record names may still arrive: change that pod, so
//	         that the removal's precondition on the resourceVersion fails, and only then
//	         clear it from the record
//	observe  only now, and after every write of our own
//	act      swap the operation in, then send it while the observation is young. A
//	         removal has the preconditions UID and resourceVersion of the very observation
//	         that was decided on
//
// The protocol knows kinds of operations, and nothing else of them: see [Kind]. What is
// said of removals holds for the fenced ones. There is one operation at a time, of whatever kind.
//
// Why this is enough. Let a removal D1 be sent by A and a later one D2 be decided by B
// on the observation O2. A sent D1 after its swap of the intent. If that swap came before
// B's claim, B has read the intent and resolved it before O2: D1 has either taken effect,
// and O2 shows it, or never will. If it came after B's claim, it failed, because the
// claim had changed the Lease. A Lease that somebody deleted takes its intent with it:
// whoever made the one in its place, an operator perhaps, the first claim on a Lease
// without a record carries the intent to fence every pod.
// No clock is compared, and no lock is believed, anywhere in this argument.
//
// What it does not promise: that a member which fails by itself, after the observation
// and within MaxEvidenceAge of it, is taken into account.
package record
