package record

import (
	"slices"
	"time"

	"github.com/quorate/quorate/pkg/rollout"
)

// Kind says how an operation is settled when nobody knows whether it took effect. The protocol
// knows nothing else of an operation.
type Kind int

const (
	// Unknown is the kind of an operation that this version has no row for. A record that is read
	// from a Lease never has one: it is taken for [FenceAll], which is safe for removals alone.
	Unknown Kind = iota
	// Light operations need no intent. Whatever became of one, the next observation shows it. The
	// record is renewed right before, so that only its holder begins one.
	Light
	// Fenced operations change a pod, with its UID and resourceVersion as preconditions. An
	// unclear one is ruled out: the pod is changed, so that the preconditions fail, and then the
	// intent is cleared.
	Fenced
	// Presumed operations change the membership of etcd, which knows no preconditions, so nothing
	// can rule out an unclear one. While its intent stands, it counts both as done and as not
	// done, and nothing but the same operation is begun. An observation settles it, or finds that
	// it must not be repeated. Then its member becomes a suspect on the record, a voter that
	// counts and never survives, and work goes on.
	Presumed
	// Blocking operations stop a member for a while. An unclear one is never repeated. Its member
	// counts as not serving until it has answered reads for [Config.Recovery] after the end of
	// the call, and nothing else is begun until then.
	Blocking
)

// Intent is an operation, and what it is about. A removal names the pod exactly as its request
// does.
type Intent struct {
	Operation Operation `json:"operation"`
	Pod       string    `json:"pod,omitempty"`
	UID       string    `json:"uid,omitempty"`
	// ResourceVersion is that of the observation that was decided on.
	ResourceVersion string `json:"resourceVersion,omitempty"`
	// Revision is the StatefulSet's update revision at the time. It is there for people who read
	// the record.
	Revision string `json:"revision,omitempty"`
	Epoch    int    `json:"epoch,omitempty"`
	// Member is set for an operation on a member of etcd. What it points to is never changed.
	Member *Member `json:"member,omitempty"`
}

// Member is a member of etcd that an operation is about.
type Member struct {
	ID   uint64 `json:"id,string"`
	Name string `json:"name,omitempty"`
	// Heir is who leads after a move of the leadership.
	Heir     uint64 `json:"heir,omitempty,string"`
	HeirName string `json:"heirName,omitempty"`
	// Cluster, List and URLs say which cluster this was: its ID, the IDs on its member list, and
	// the member's own URLs. Members' IDs come back when a cluster is restored from a backup.
	Cluster uint64   `json:"cluster,omitempty,string"`
	List    []uint64 `json:"list,omitempty"`
	URLs    []string `json:"urls,omitempty"`
	// Seconds bounds how long the call of a blocking operation may take.
	Seconds int `json:"seconds,omitempty"`
	// PodUID and Restarts say which process of the member a blocking operation is asked of: its pod's UID, and how
	// often the etcd container has been restarted. Without a PodUID that is not known. An older version
	// drops both when it renews the record.
	PodUID   string `json:"podUID,omitempty"`
	Restarts int    `json:"restarts,omitempty"`
}

// Label is [rollout.Label] of the member.
func (m *Member) Label() string { return rollout.Label(m.Name, m.ID) }

// LongestCall bounds what an intent may say of how long its call takes. Others can write to the Lease as
// well.
const LongestCall = 10 * time.Minute

// Call is how long the call of a blocking operation may take.
func (i *Intent) Call() time.Duration {
	if i.Member == nil {
		return 0
	}
	return time.Duration(min(max(i.Member.Seconds, 0), int(LongestCall.Seconds()))) * time.Second
}

// complete is true for an intent of this kind that says all that is needed to settle it.
func (k Kind) complete(i *Intent) bool {
	switch k {
	case Fenced:
		return i.Operation == FenceAll || i.Pod != "" && i.UID != "" && i.ResourceVersion != ""
	case Presumed:
		m := i.Member
		return m != nil && m.ID != 0 && m.Cluster != 0 && len(m.List) > 0 && (m.Name != "" || len(m.URLs) > 0)
	case Blocking:
		return i.Member != nil && i.Member.ID != 0 && i.Member.Cluster != 0
	case Unknown, Light: // A light operation is never on the record.
	}
	return false
}

// repeats is true when both are the same operation on the same target, in the same cluster with the same
// members. What one says on the record may come from a backup.
func (i *Intent) repeats(on *Intent) bool {
	a, b := i.Member, on.Member
	return i.Operation == on.Operation && a != nil && b != nil && a.ID == b.ID && a.Cluster == b.Cluster &&
		a.Name == b.Name && slices.Equal(a.URLs, b.URLs) && slices.Equal(a.List, b.List)
}

// tells is true for a suspect that says which member it is.
func (m *Member) tells() bool { return m == nil || m.ID != 0 && m.Cluster != 0 }
