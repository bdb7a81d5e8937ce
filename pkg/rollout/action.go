package rollout

import "time"

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

	sealed()
}

// Idle says that the rollout of this StatefulSet is not ours.
type Idle struct{}

// Hold says that nothing may happen until somebody or something changes the cause.
type Hold struct{}

// Wait says that what is under way is expected to end by itself.
type Wait struct{}

// Complete says that every pod in range is up to date and settled.
type Complete struct{}

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

func (Idle) sealed()         {}
func (Hold) sealed()         {}
func (Wait) sealed()         {}
func (Complete) sealed()     {}
func (MoveLeader) sealed()   {}
func (Remove) sealed()       {}
func (RemoveMember) sealed() {}
func (Defragment) sealed()   {}
func (Disarm) sealed()       {}
