// Package traffic is the client of an etcd cluster that is being changed: it
// writes and reads throughout, writes down everything it asked and was answered,
// and tells afterwards whether the cluster kept its word.
//
// Two things run side by side and share nothing, so that neither disturbs the
// other:
//
//   - [Client], started by [Start]: writers and readers that use all members in
//     turn, and a watch at every member. [Client.Stop] verifies and returns a
//     [History]; [History.Check] judges it.
//   - [Observer], started by [StartObserver]: samples every member for leader,
//     term and readiness to serve. [Observer.Stop] returns an [Observation].
//
// [NewFigures] puts the numbers of both together, for a terminal or as JSON.
//
// # What is written
//
// Every writer owns a few keys under a prefix that nobody else uses, and every
// attempt writes a value that no other attempt writes ("2/17": the seventeenth
// attempt of writer 2). An attempt whose answer was lost is therefore never
// repeated with the same value: whatever turns up in the cluster can be traced to
// exactly one attempt. One write in five is a transaction that demands the value
// that the writer knows the key to have.
//
// Each attempt is sent once, to one member, with a deadline, and fails at once
// where nothing listens; the client library's own retries are off. After a failed
// attempt the next member is tried at once. A request is acknowledged when one
// attempt is, and failed when no member acknowledged it.
//
// # What counts as lost
//
// A write is acknowledged when a member answered that it was done, at a certain
// revision. It is lost if
//
//   - a linearizable read of everything at the end (one at each member that
//     answers) shows its key absent, at an older revision, or at its revision with
//     another value; or
//   - the watches that cover its revision delivered no such event.
//
// An attempt without an answer may have been applied, may be applied later, or
// never; it can supersede an acknowledged write but not stand for one. A write that
// neither the final reads nor any watch covers (compaction overtook the watches, or
// no member came back) is counted as unverified, never as safe.
//
// # What else is checked
//
// The final reads and the watches must also agree with each other, with the answers
// and with time: a linearizable read is never older than anything acknowledged or
// read before it was called, revisions grow in the order of real time, no event
// comes twice, out of order or from nowhere, members do not tell different stories,
// and a transaction's condition held. See the kinds of [Violation]. These checks are
// sound (what they report is wrong) but do not replace a full check for
// linearizability; [Operation] holds all that such a check needs.
//
// # What counts as without quorum
//
// See [Observation.Figures].
package traffic
