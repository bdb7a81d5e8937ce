package result

import "slices"

// Arm is one way to update the pods, as a user could choose it. Its name is in the files of
// a run and in every table; it is never changed.
type Arm struct {
	Name string
	// Title is for tables, short.
	Title string
	// About says in a sentence what is done, for the report.
	About string
	// Quorate is true where Quorate removes the pods, false where the StatefulSet controller does.
	Quorate bool
	// OneAtATime is true where no second pod is removed before the first is back.
	OneAtATime bool
}

// The arms' names.
const (
	OrderedReady   = "ordered-ready"
	Parallel       = "parallel"
	MaxUnavailable = "max-unavailable"
	Quorate        = "quorate"
	QuorateMax     = "quorate-max"
	QuorateTwo     = "quorate-2"
	QuorateDelete  = "quorate-delete"
)

// Arms are all arms, in the order of the report. The first are Kubernetes' own.
var Arms = []Arm{
	{OrderedReady, "RollingUpdate, OrderedReady",
		"the StatefulSet controller, podManagementPolicy OrderedReady: from the highest ordinal down, each pod after " +
			"the one before is Ready", false, true},
	{Parallel, "RollingUpdate, Parallel", "the StatefulSet controller, podManagementPolicy Parallel", false, true},
	{MaxUnavailable, "RollingUpdate, maxUnavailable",
		"the StatefulSet controller with as many pods unavailable at once as the cluster can lose members (3 " +
			"members: 1, 5: 2, 7: 3; feature gate MaxUnavailableStatefulSet)", false, false},
	{Quorate, "Quorate", "updateStrategy OnDelete, and Quorate removes one pod at a time", true, true},
	{QuorateMax, "Quorate, maxUnavailable",
		"Quorate with as many pods unavailable at once as the cluster can lose members (5 members: 2, 7: 3)", true,
		false},
	{QuorateTwo, "Quorate, maxUnavailable 2", "Quorate with two pods unavailable at once (7 members)", true, false},
	{QuorateDelete, "Quorate, delete", "Quorate, one at a time, each by a DELETE, which no PodDisruptionBudget sees",
		true, true},
}

// Case is what the cluster is in when its pod template changes, or what happens to it then.
type Case struct {
	Name  string
	Title string
	// About says in a sentence what happens.
	About string
	// Members is the number of replicas.
	Members int
	// Healthy is true where nothing is broken: every leader's ordinal is a trial of its own.
	Healthy bool
}

// The cases' names.
const (
	Healthy3       = "healthy-3"
	Healthy5       = "healthy-5"
	Healthy7       = "healthy-7"
	OneDown        = "one-down"
	SecondFails    = "second-fails"
	QuorumLoss     = "quorum-loss"
	QuorumJustLost = "quorum-just-lost"
	LongLost3      = "quorum-lost-long-3"
	LongLost5      = "quorum-lost-long-5"
	SecondBefore3  = "quorum-lost-second-3"
	SecondBefore5  = "quorum-lost-second-5"
	SameMoment3    = "quorum-lost-now-3"
	SameMoment5    = "quorum-lost-now-5"
	Hanging3       = "quorum-hanging-3"
	Hanging5       = "quorum-hanging-5"
	HolderDied     = "quorum-holder-died"
	NodeLost       = "node-lost"
	GhostVoters    = "ghost-voters"
	BrokenRevision = "broken-revision"
	BrokenSidecar  = "broken-sidecar"
	SlowStart      = "slow-start"
	Watched        = "watched"
	Quiet          = "quiet"
	Quiet30        = "quiet-30"
	Quiet120       = "quiet-120"
)

// Cases are all cases, in the order of the report.
var Cases = []Case{
	{Healthy3, "Healthy, 3 members", "every member serves; each ordinal leads once in every round", 3, true},
	{Healthy5, "Healthy, 5 members", "every member serves; each ordinal leads once in every round", 5, true},
	{Healthy7, "Healthy, 7 members", "every member serves; each ordinal leads once in every round", 7, true},
	{OneDown, "One member down", "one member does not start on the old revision, and the update cures it", 3, false},
	{SecondFails, "A second member fails",
		"one member does not start on the old revision, and another one fails during the update; the update cures both",
		3, false},
	{QuorumLoss, "Quorum lost", "two of three members do not start on the old revision, for longer than a lock " +
		"lives, and the update cures them", 3, false},
	{QuorumJustLost, "Quorum just lost",
		"two of three members do not start on the old revision, for a shorter time than a lock lives, " +
			"and the update cures them", 3, false},
	{LongLost3, "Quorum lost long ago, 3 members", "two of three members do not start on the old revision, for " +
		"longer than any sidecar counts time, and the update cures them", 3, false},
	{LongLost5, "Quorum lost long ago, 5 members", "three of five members do not start on the old revision, for " +
		"longer than any sidecar counts time, and the update cures them", 5, false},
	{SecondBefore3, "Quorum lost a second ago, 3 members", "two of three members begin to crash a second before the " +
		"template changes, and the update cures them; each ordinal leads once", 3, false},
	{SecondBefore5, "Quorum lost a second ago, 5 members", "three of five members begin to crash a second before the " +
		"template changes, and the update cures them; each ordinal leads once", 5, false},
	{SameMoment3, "Quorum lost at that moment, 3 members", "two of three members begin to crash when the template " +
		"changes, and the update cures them; each ordinal leads once", 3, false},
	{SameMoment5, "Quorum lost at that moment, 5 members", "three of five members begin to crash when the template " +
		"changes, and the update cures them; each ordinal leads once", 5, false},
	{Hanging3, "Quorum lost, and a member hangs, 3 members", "two of three members do not start on the old revision, " +
		"the third hangs, and the update cures them", 3, false},
	{Hanging5, "Quorum lost, and a member hangs, 5 members", "three of five members do not start on the old " +
		"revision, a fourth hangs, and the update cures them", 5, false},
	{HolderDied, "Quorum lost together with who holds the record", "in the midst of a rollout whose image cannot be " +
		"had, the node of the coordinator is gone when the template is corrected, and comes back later", 3, false},
	{NodeLost, "A node lost", "the node of ordinal 0 is gone when the template changes, and comes back later", 3,
		false},
	{GhostVoters, "Two ghost voters",
		"the member list has two voters that never start, until the operator removes them", 3, false},
	{BrokenRevision, "Broken revision",
		"etcd's image of the new revision cannot be had, until the operator corrects it", 3, false},
	{BrokenSidecar, "Broken sidecar",
		"the sidecar's image of the new revision cannot be had, until the operator corrects it", 3, false},
	{SlowStart, "Slow-starting members", "a new pod takes long until its containers start", 3, false},
	{Watched, "Clients that watch",
		"every member serves, and clients watch at every member, so that etcd takes up to seven seconds to end", 3,
		false},
	{Quiet, "No clients", "every member serves, and nobody but the sidecars asks etcd for anything", 3, false},
	{Quiet30, "No clients, pods of 30 s", "the same, with pods that are down for 30 seconds, after five idle minutes",
		3, false},
	{Quiet120, "No clients, pods of 120 s",
		"the same, with pods that are down for two minutes, after five idle minutes", 3, false},
}

// Deciding are the cases in which Quorate is compared with Kubernetes' own for what decides.
var Deciding = []string{Healthy3, Healthy5}

// ArmNames are the names of all arms, in the order of the report.
func ArmNames() []string {
	var names []string
	for _, a := range Arms {
		names = append(names, a.Name)
	}
	return names
}

// CaseNames are the names of all cases, in the order of the report.
func CaseNames() []string {
	var names []string
	for _, c := range Cases {
		names = append(names, c.Name)
	}
	return names
}

// ArmOf returns the arm of that name; of an unknown one the name is the title too.
func ArmOf(name string) Arm {
	if i := slices.IndexFunc(Arms, func(a Arm) bool { return a.Name == name }); i >= 0 {
		return Arms[i]
	}
	return Arm{Name: name, Title: name}
}

// CaseOf returns the case of that name; of an unknown one the name is the title too.
func CaseOf(name string) Case {
	if i := slices.IndexFunc(Cases, func(c Case) bool { return c.Name == name }); i >= 0 {
		return Cases[i]
	}
	return Case{Name: name, Title: name}
}
