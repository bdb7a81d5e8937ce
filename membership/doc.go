// Package membership asks etcd about itself: its members, their roles, and one probe per member. It
// returns facts for a decision ([rollout.Membership]).
//
// An [Observer] reads the member list through consensus where it can. It asks all members in parallel,
// each with a deadline of its own. So one slow member does not delay the answers of the others. There is
// one client per URL, and the URL whose answer carries the member ID and cluster ID from the member list
// is the member's, for the probe and for everything that is asked of it. So an answer is never attributed
// to another member: one that only forwarded it, or one that answers at an address that several members
// advertise, such as a Service's.
//
// The observer also asks members to do something: to hand leadership over, to leave the list, to defragment, to disarm
// an alarm. Each of these goes to the very member that was observed, and refuses if that is not there any more.
//
// An observer keeps its connections between two observations, so that the second one costs no handshakes.
// [Observer.Close] ends them. It is for one goroutine at a time.
//
// What an answer means together with the kubelet's report is decided in [rollout.Assess], not here.
// The package changes without notice before version 1.
package membership
