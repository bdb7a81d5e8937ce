// Package membership asks etcd about itself: its members, their roles, and one probe per member. It
// returns facts for a decision ([rollout.Membership]).
//
// An [Observer] reads the member list through consensus where it can. It asks all members in parallel,
// each with a deadline of its own and over a client that is pinned to that member's URLs. So one slow
// member does not delay the answers of the others, and an answer is never attributed to a member that
// only forwarded it. An answer counts only when its header carries the member ID and cluster ID from
// the member list.
//
// What an answer means together with the kubelet's report is decided in [rollout.Assess], not here.
package membership
