// Package rollout decides what may happen next to the pods of an etcd
// StatefulSet that is being changed.
//
// [Decide] is a pure function: it takes a [State] (what Kubernetes and etcd
// said in one observation, and how long some conditions have been seen) and a
// [Policy], and returns a [Decision]: one action at the most, the rule that
// chose it, and every guard's verdict for every candidate, with numbers. It does
// no I/O and reads no clock, so every case can be enumerated in a test.
//
// # How a decision is made
//
// First the facts are joined ([Assess]): each ordinal of the StatefulSet becomes a replica
// with its pod and its member, and each member gets its [Evidence] from two
// witnesses: etcd itself, probed by the coordinator, and the kubelet, as seen in
// the pod's status. A member is Serving when it answered a linearizable read
// itself; it is Down only when both witnesses agree; everything else is Unknown.
//
// Then the duties are tried in order, a file each, in which everything stands that only this duty asks. The first that
// acts decides: [DutyHeld] ([RuleNotOurs], [RuleHeld]), [DutyMakeWay], [DutyRoll] ([RuleComplete],
// [RuleNotServingFirst], [RuleUpdatedSettle], [RuleServing] and [RuleHandOverLeadership]), [DutyGhosts] and
// [DutyDefragment]. What several of them ask is a fact of the [Assessment], or stands beside the duties: who leads next
// in leadership.go, who leaves in leaving.go, and so on.
//
// A rule asks named guards. Each guard is a row of [Guards], which says what there is to know
// of it; its function stands in one of the files guards_*.go. A guard's name is the word used for it
// in logs, events, metrics and documentation.
//
// The decision ends in an [Action], which carries what is needed to carry it out.
//
// # What a caller must keep
//
// Between two decisions a caller remembers only how long each [Sighting] has been seen without a
// break, on its own monotonic clock, how often a transfer of leadership failed, and which eviction
// was refused. To lose all of it can only make the rollout wait longer.
//
// The package imports nothing of Quorate's, so that any operator can ask it. It changes without notice before
// version 1.
package rollout
