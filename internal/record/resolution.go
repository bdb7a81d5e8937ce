package record

import (
	"slices"

	"github.com/quorate/quorate/pkg/rollout"
)

// ResolutionOf is what an observation says of the operation on the record, or of the suspect. Next and
// intent are what the decision on that observation asks for. Forget is true where an operator says that
// the suspect's removal cannot happen any more.
//
// A blocking operation is over once its member is seen to be free of it. A presumed one is repeated only as long as
// the decision asks for the very same one. So all of its guards pass anew, and a request stands that has not run out.
// Otherwise it is given up, and the member becomes a suspect, so that the cure of whatever does not pass does not wait
// for it.
func ResolutionOf(l *Record, seen *rollout.Assessment, forget bool, next Next, intent Intent) Resolution {
	etcd := seen.Etcd()
	switch kind := kindOf(l.Intent.Operation); {
	case kind == Blocking && seen.Unblocked():
		return Settled
	case kind == Presumed:
		switch {
		case l.Intent.Member.Gone(etcd):
			return Settled
		case next == NextAct && intent.repeats(&l.Intent):
			return Open
		}
		return Refuted
	case l.Intent.Operation == None && l.Suspect != nil && (forget || l.Suspect.Gone(etcd)):
		return Settled
	}
	return Open
}

// Gone is true when a quorum's list does not name the member, or is that of another cluster.
func (m *Member) Gone(etcd rollout.Membership) bool {
	return etcd.Known && etcd.Linearizable && (etcd.ClusterID != m.Cluster ||
		!slices.ContainsFunc(etcd.Members, func(x rollout.Member) bool { return x.ID == m.ID }))
}
