package rollout

import "time"

// The operations of a [Request]. RequestRemoveMember asks for a ghost to be removed from etcd's list.
// RequestForgetMember says that an earlier removal of a member cannot happen any more. RequestDefragment asks for the
// members to be defragmented.
const (
	RequestRemoveMember = "remove-member"
	RequestForgetMember = "forget-member"
	RequestDefragment   = "defragment"
)

// Request is what an operator asks the coordinator to do, beyond what it does by itself. It is bound to the
// cluster and the member that the operator saw, because a request may come back from a backup, and so may a
// member's name.
type Request struct {
	// Operation is what is asked for.
	Operation string `json:"operation"`
	// Cluster is the ID of the cluster, and Member that of the member, 0 where all are meant.
	Cluster uint64 `json:"cluster,string"`
	Member  uint64 `json:"member,omitempty,string"`
	// Name is the member's name, for people.
	Name string `json:"name,omitempty"`
	// At is when it was made, by the clock of whoever made it.
	At time.Time `json:"at"`
}

// label is [Label] of the member that a request is about.
func (r *Request) label() string { return Label(r.Name, r.Member) }

// withoutLock is what is told of what an operator asks for while the lock cannot be had.
const withoutLock = " while nobody can have the lock in etcd: without it, nobody knows which sidecars there are"

// bound is true for a request that is about this cluster, as far as anybody knows which one it is.
func (s *State) bound(r *Request) bool { return !s.Etcd.Known || r.Cluster == s.Etcd.ClusterID }
