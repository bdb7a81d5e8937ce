package rollout

import (
	"maps"
	"slices"
	"time"
)

// ActionName is the stable name of an action: the word for it in logs, events, metrics, on the
// Lease and in the output of status and plan.
type ActionName string

// The names of the actions.
const (
	ActionIdle       ActionName = "Idle"
	ActionHold       ActionName = "Hold"
	ActionWait       ActionName = "Wait"
	ActionComplete   ActionName = "Complete"
	ActionMoveLeader ActionName = "MoveLeader"
	ActionRemove     ActionName = "Remove"
	// ActionRemoveMember removes a member from etcd's list.
	ActionRemoveMember ActionName = "RemoveMember"
	ActionDefragment   ActionName = "Defragment"
	ActionDisarm       ActionName = "Disarm"
)

// Action is what a decision asks for, with everything that is needed to carry it out. It is
// one of [Idle], [Hold], [Wait], [Complete], [MoveLeader], [Remove], [RemoveMember], [Defragment] and [Disarm];
// there are no others.
type Action interface {
	// Name is the action's stable name.
	Name() ActionName

	// on is the pod that the action changes, or the pod of the member that it changes, and what people call either.
	on() (Target, string)
	// settle makes of a state what it is once the action has taken effect.
	settle(s *State, a *Assessment)
}

// rest is an action that changes nothing.
type rest struct{}

func (rest) on() (Target, string)       { return Target{}, "" }
func (rest) settle(*State, *Assessment) {}

// Idle says that the rollout of this StatefulSet is not ours.
type Idle struct{ rest }

// Hold says that nothing may happen until somebody or something changes the cause.
type Hold struct{ rest }

// Wait says that what is under way is expected to end by itself.
type Wait struct{ rest }

// Complete says that every pod in range is up to date and settled.
type Complete struct{ rest }

// MoveLeader asks the leader to hand leadership over.
type MoveLeader struct {
	// Target is the leader's pod.
	Target Target
	// Transfer says who leads and who takes over.
	Transfer Transfer
}

// Remove removes a pod; the StatefulSet controller recreates it.
type Remove struct {
	Target Target
	// Method is how the pod is removed.
	Method Removal
}

// RemoveMember removes a ghost from etcd's member list.
type RemoveMember struct{ Member MemberTarget }

// Defragment rewrites a member's database without what is free in it. The member answers nothing meanwhile.
type Defragment struct {
	// Target is the member's pod, which stays.
	Target Target
	Member MemberRef
	// Process is the member's, and Within bounds the call.
	Process Process
	Within  time.Duration
}

// Disarm ends the alarm NOSPACE that a member has raised. Until then etcd takes no writes.
type Disarm struct {
	Member MemberRef
	// Process is the member's, and Within bounds the call.
	Process Process
	Within  time.Duration
}

// MemberRef names a member. IDs come back when a cluster is restored from a backup, so the cluster's belongs to it.
type MemberRef struct {
	ID, Cluster uint64
	Name        string
}

// Label is [Label] of the member.
func (r MemberRef) Label() string { return Label(r.Name, r.ID) }

// Target is the very pod that was decided on. A removal carries its UID and its resourceVersion
// as preconditions.
type Target struct {
	Pod, UID, ResourceVersion string
	Ordinal                   int
}

// Transfer is a change of leadership.
type Transfer struct {
	// From is the leader, To the member that is to lead. The names are their pods' or, for a
	// member without a pod, its own.
	From, To         uint64
	FromName, ToName string
}

// MemberTarget is the very member that was decided on, with the list that it was on and its own URLs: more comes
// back with a backup than the IDs.
type MemberTarget struct {
	MemberRef

	List []uint64
	URLs []string
}

// Name returns [ActionIdle].
func (Idle) Name() ActionName { return ActionIdle }

// Name returns [ActionHold].
func (Hold) Name() ActionName { return ActionHold }

// Name returns [ActionWait].
func (Wait) Name() ActionName { return ActionWait }

// Name returns [ActionComplete].
func (Complete) Name() ActionName { return ActionComplete }

// Name returns [ActionMoveLeader].
func (MoveLeader) Name() ActionName { return ActionMoveLeader }

// Name returns [ActionRemove].
func (Remove) Name() ActionName { return ActionRemove }

// Name returns [ActionRemoveMember].
func (RemoveMember) Name() ActionName { return ActionRemoveMember }

// Name returns [ActionDefragment].
func (Defragment) Name() ActionName { return ActionDefragment }

// Name returns [ActionDisarm].
func (Disarm) Name() ActionName { return ActionDisarm }

func (m MoveLeader) on() (Target, string)   { return m.Target, m.Target.Pod }
func (r Remove) on() (Target, string)       { return r.Target, r.Target.Pod }
func (d Defragment) on() (Target, string)   { return d.Target, d.Target.Pod }
func (r RemoveMember) on() (Target, string) { return Target{}, r.Member.Label() }
func (d Disarm) on() (Target, string)       { return Target{}, d.Member.Label() }

func (m MoveLeader) settle(s *State, a *Assessment) { s.answer(a, m.Transfer.To, 0) }

func (r Remove) settle(s *State, a *Assessment) {
	s.recreate(r.Target.UID)
	if m := a.replicaOf(r.Target.Pod).Member; m != nil {
		s.answer(a, a.Leader, m.ID)
	}
}

func (r RemoveMember) settle(s *State, _ *Assessment) {
	s.Etcd.Members = slices.DeleteFunc(s.Etcd.Members, func(m Member) bool { return m.ID == r.Member.ID })
}

func (d Defragment) settle(s *State, _ *Assessment) {
	s.change(d.Member.ID, func(st *Status) { st.Size = st.InUse })
	tries := maps.Clone(s.Tries)
	if tries == nil {
		tries = map[uint64]Try{}
	}
	tries[d.Member.ID] = Try{Done: true}
	s.Tries = tries
}

func (d Disarm) settle(s *State, _ *Assessment) {
	for i := range s.Etcd.Members {
		s.change(s.Etcd.Members[i].ID, func(st *Status) {
			ended := func(id uint64) bool { return id == d.Member.ID }
			st.NoSpaceOf = slices.DeleteFunc(slices.Clone(st.NoSpaceOf), ended)
			st.NoSpace = len(st.NoSpaceOf) > 0
		})
	}
}
