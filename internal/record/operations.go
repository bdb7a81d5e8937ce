package record

import (
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"

	"github.com/quorate/quorate/pkg/rollout"
)

// Operation is what an intent is about.
type Operation string

const (
	// None means that nothing is under way.
	None Operation = ""
	// Delete removes one pod.
	Delete Operation = "delete"
	// Evict removes one pod through the eviction API.
	Evict Operation = "evict"
	// FenceAll stands for every removal that is not on the record any more: any pod may still be
	// the target of one.
	FenceAll Operation = "fence-all"
	// MoveLeader moves etcd's leadership from one member to another.
	MoveLeader Operation = "move-leader"
	// RemoveMember removes a member from etcd's list.
	RemoveMember Operation = "remove-member"
	// Defragment rewrites a member's database, which keeps it from answering.
	Defragment Operation = "defragment"
	// Disarm ends a member's alarm NOSPACE.
	Disarm Operation = "disarm"
)

// kinds has a row for each operation of this version.
var kinds = [...]struct {
	Operation
	Kind
}{
	{Delete, Fenced},
	{Evict, Fenced},
	{FenceAll, Fenced},
	{MoveLeader, Light},
	{RemoveMember, Presumed},
	{Defragment, Blocking},
	{Disarm, Blocking},
}

// kindOf is the kind of one of this version's operations.
func kindOf(o Operation) Kind {
	for i := range kinds {
		if kinds[i].Operation == o {
			return kinds[i].Kind
		}
	}
	return Unknown
}

// NextOf is what a decision asks of the protocol, and its operation. The
// revision is the StatefulSet's update revision.
func NextOf(d rollout.Decision, revision string) (Next, Intent) {
	switch action := d.Action.(type) {
	case rollout.Idle:
		return NextFinish, Intent{}
	case rollout.Complete:
		// Pods below the partition stay outdated until it is lowered, and nothing reports
		// that.
		for i := range d.Assessment.Replicas {
			if d.Assessment.Replicas[i].Outdated {
				return NextRest, Intent{}
			}
		}
		return NextFinish, Intent{}
	case rollout.Remove:
		t := action.Target
		i := Intent{Operation: Delete, Pod: t.Pod, UID: t.UID, ResourceVersion: t.ResourceVersion, Revision: revision}
		if action.Method == rollout.RemoveByEviction {
			i.Operation = Evict
		}
		return NextAct, i
	case rollout.MoveLeader:
		t := action.Transfer
		return NextAct, Intent{
			Operation: MoveLeader,
			Member:    &Member{ID: t.From, Name: t.FromName, Heir: t.To, HeirName: t.ToName},
		}
	case rollout.RemoveMember:
		t := action.Member
		return NextAct, Intent{
			Operation: RemoveMember,
			Member:    &Member{ID: t.ID, Name: t.Name, Cluster: t.Cluster, List: t.List, URLs: t.URLs},
		}
	case rollout.Defragment:
		return NextAct, blocking(Defragment, action.Member, action.Process, action.Within)
	case rollout.Disarm:
		return NextAct, blocking(Disarm, action.Member, action.Process, action.Within)
	}
	return NextRest, Intent{}
}

// blocking is an intent on a member that may be stopped for as long.
func blocking(o Operation, m rollout.MemberRef, p rollout.Process, within time.Duration) Intent {
	return Intent{Operation: o, Member: &Member{ID: m.ID, Name: m.Name, Cluster: m.Cluster,
		PodUID: p.PodUID, Restarts: p.Restarts, Seconds: int(within.Seconds())}}
}

// StateOf joins what was read to what a decision rests on. The record is what is believed of the Lease. The error is
// what is wrong with the request on it, which is then left out. What else the caller knows, it adds: who it is, who
// else is there, what the host says, and what is remembered.
func StateOf(set rollout.Set, pods []rollout.Pod, etcd rollout.Membership, lease *coordinationv1.Lease, r Record,
	now time.Time) (rollout.State, error) {
	request, err := RequestOf(lease, now)
	return rollout.State{
		Set: set, Pods: pods, Etcd: etcd,
		Controls: Controls(lease).At(set.UpdateRevision, now), Request: request,
		UnderWay: r.UnderWay(), Suspect: r.Suspected(),
	}, err
}

// UnderWay is what a decision has to know of the operation on the record, nil if that stops no member.
func (l *Record) UnderWay() *rollout.Blocking {
	i := &l.Intent
	if kindOf(i.Operation) != Blocking || i.Member == nil {
		return nil
	}
	return &rollout.Blocking{Operation: string(i.Operation),
		Member:  rollout.MemberRef{ID: i.Member.ID, Cluster: i.Member.Cluster, Name: i.Member.Name},
		Process: rollout.Process{PodUID: i.Member.PodUID, Restarts: i.Member.Restarts}}
}

// Suspected is the member that may be removed from the list at any moment: by the removal on the record, or by one
// that was given up.
func (l *Record) Suspected() rollout.Suspect {
	m := l.Suspect
	if kindOf(l.Intent.Operation) == Presumed && l.Intent.Member != nil {
		m = l.Intent.Member
	}
	if m == nil {
		return rollout.Suspect{}
	}
	return rollout.Suspect{ID: m.ID, Name: m.Name}
}
