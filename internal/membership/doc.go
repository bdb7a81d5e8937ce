// Package membership is what etcd says of itself: its members, their roles, and
// one probe per member, as facts for a decision ([rollout.Membership]).
//
// An [Observer] reads the member list through consensus where it can, and asks
// every member in parallel, each with a deadline of its own and over a client that
// is pinned to that member's URLs: one slow member never delays the word of
// another, and an answer is never attributed to the member that merely forwarded
// it. An answer counts only when its header carries the member ID and cluster ID
// that the member list gives that member.
//
// What an answer means together with the kubelet's word is decided in
// [rollout.Assess], not here.
package membership
