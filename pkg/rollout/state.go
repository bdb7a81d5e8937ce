package rollout

import (
	"slices"
	"strconv"
	"time"
)

// State is everything a decision rests on: one observation of the StatefulSet,
// its pods and the etcd cluster, all read live.
type State struct {
	Set  Set
	Pods []Pod
	Etcd Membership

	// Self is the name of the coordinator's own pod, empty when it runs outside a
	// member's pod. Its own pod goes last among equals.
	Self string
	// NoLock is true for a fallback coordinator, which has no lock. It does only what may bring
	// quorum back.
	NoLock bool

	// Memory is what only time teaches.
	Memory

	// Gates are the host's own checks, evaluated for this observation.
	Gates []Gate

	// Controls are what the operator set on the record's Lease.
	Controls Controls
	// Request is what an operator asks for, nil if nothing.
	Request *Request
	// Suspect is the member that an earlier removal of ours may still remove at any moment. It counts
	// among the voters, and never among those that stay. The zero Suspect is none.
	Suspect Suspect
	// UnderWay is what the record says may still be stopping a member, nil if nothing.
	UnderWay *Blocking
	// Sidecars are what is known of the other sidecars.
	Sidecars Sidecars
	// InWindow is true at the time of day at which the policy lets a defragmentation begin that nobody asks
	// for.
	InWindow bool
}

// Suspect is a member on the record.
type Suspect struct {
	ID   uint64
	Name string
}

// Sidecars are the sidecars that are present: they have said so in etcd.
type Sidecars struct {
	// Known is false when nobody could say which there are.
	Known bool `json:"known,omitempty"`
	// Present are the UIDs of the pods whose sidecars are present, sorted. The coordinator's own pod is among them.
	Present []string `json:"present,omitempty"`
	// Old are the pods of those that do not know operations on members, or may not.
	Old []string `json:"old,omitempty"`
}

// Set is what matters of the StatefulSet.
type Set struct {
	// Namespace is only for the commands that are advised. They do without it where it is empty.
	Namespace, Name, UID string

	// Replicas is spec.replicas; Start is spec.ordinals.start.
	Replicas, Start int

	// OnDelete is true when updateStrategy.type is OnDelete: only then is the
	// rollout ours.
	OnDelete bool
	Deleting bool

	// ObservedGeneration below Generation means that UpdateRevision still
	// describes an older template.
	Generation, ObservedGeneration int64

	// UpdateRevision is status.updateRevision, the revision pods should have.
	UpdateRevision string

	// CurrentRevision is status.currentRevision: the revision at which a rollout has ended. Before Kubernetes 1.37 it
	// stays at the first one that there ever was, under OnDelete. It is empty where it is not known.
	CurrentRevision string

	// MinReady is spec.minReadySeconds.
	MinReady time.Duration

	// OrderedReady is true when podManagementPolicy is OrderedReady, the API's default: the
	// controller then recreates a pod only when every lower ordinal is Running, Ready,
	// available and not terminating.
	OrderedReady bool

	// VolatileData is true when the data of the pods that the template makes does not outlive
	// them (no claim behind the data volume).
	VolatileData bool

	// Claims are the names of volumeClaimTemplates.
	Claims []string
	// NotCreated is what the StatefulSet controller says about a pod that is missing and that it could not create,
	// in the API server's own words. Empty where nobody has read it: a sidecar may not read events.
	NotCreated string

	// Etcd is what the template says of etcd, and Sidecar is the name of the sidecar's container.
	Etcd    Program
	Sidecar string
}

// Program is what a pod template says of etcd. The zero value says nothing.
type Program struct {
	// Image is that of etcd's container, and Container the name of that.
	Image, Container string
	// Arguments are what etcd is given by its own command and its environment.
	Arguments []Argument
	// ConfigFile is true where etcd has a configuration file of its own. Then it does not read its environment, nor
	// anything that it understands of its command.
	ConfigFile bool
	// Unseen says why there may be other arguments than these, and is empty if there are none.
	Unseen string
}

// Allowance is what names the rollout to this template in [ControlAllowLast]. The same revision at another
// time is another rollout, so the generation is in it too.
func (s *Set) Allowance() string { return s.UpdateRevision + "@" + strconv.FormatInt(s.Generation, 10) }

// Outdated is true for a pod that has not the revision that it should have.
func (s *Set) Outdated(p *Pod) bool { return p.Revision != s.UpdateRevision }

// Due is true when a rollout is ours to do: a pod is outdated, or nobody knows yet, because the StatefulSet controller
// has not seen the newest template. What is outdated and may not go, as below a partition, is due all the same.
func (s *Set) Due(pods []Pod) bool {
	if !s.OnDelete || s.Deleting {
		return false
	}
	return s.ObservedGeneration < s.Generation ||
		slices.ContainsFunc(pods, func(p Pod) bool { return p.Owned && s.Outdated(&p) })
}

// Unpromoted is true when status.currentRevision is behind. Under OnDelete nobody sets it before Kubernetes 1.37.
func (s *Set) Unpromoted() bool {
	return s.OnDelete && !s.Deleting && s.UpdateRevision != "" && s.CurrentRevision != s.UpdateRevision
}

// Pod is what matters of one pod, with the two containers that Quorate knows.
type Pod struct {
	Name string
	// UID and ResourceVersion identify the very object that was observed; a
	// removal carries both as preconditions.
	UID, ResourceVersion string

	// Ordinal is the number after the last dash of the name, -1 if there is none.
	Ordinal int
	// MemberName is the name its etcd member is expected to have.
	MemberName string
	// Revision is the label controller-revision-hash.
	Revision string
	// Created is when the API server made it, by its own clock. It is compared with that of other pods only.
	Created time.Time

	// Owned is true when the StatefulSet's UID is among the owner references.
	Owned       bool
	Terminating bool

	// Ready and ContainersReady are the pod's conditions. ReadinessGates is true
	// when the pod has gates of its own, which can hold Ready false by themselves.
	Ready, ContainersReady, ReadinessGates bool

	// Initialized is false while init containers have not finished.
	Initialized bool
	// NeverReady is true when the pod's own history shows that its containers have never
	// been ready, or that it has failed as a whole: then nothing proves that its member holds
	// data in it. False when it was ready once, or when that is not known.
	NeverReady bool
	// VolatileData is true when the data of this very pod does not outlive it, whatever the
	// template says by now.
	VolatileData bool
	// Unclaimed are the claim templates of the StatefulSet that the pod has no volume for.
	Unclaimed []string
	// Finished is true when the pod as a whole has failed or succeeded: nothing in it runs any more, and nothing
	// will. The StatefulSet controller deletes such a pod, and creates it anew.
	Finished bool

	// Grace is how long the pod's containers may take to end, once it terminates, and GraceEnds is when that is over,
	// by the API server's clock. Finalizers keep the pod for as long as they are there, whatever its containers do. All
	// three are only told, and zero where nothing is known.
	Grace      time.Duration
	GraceEnds  time.Time
	Finalizers []string
	// ClaimsGoing are the names of the pod's own volume claims that somebody has deleted. They go, and their data with
	// them, as soon as the pod does. Empty where nobody has read them: a sidecar may not.
	ClaimsGoing []string

	// Leaving says in words what else is about to take the pod: a condition, or a taint
	// of its node. Empty if nothing says so. A cordon is not enough. Evicted is true where that is no more
	// than the mark of the eviction API, which an eviction that failed leaves behind for a while.
	Leaving string
	Evicted bool
	// Node is the pod's node, and Cordoned is true when that takes no new pods. Mostly a drain
	// follows, and sometimes nothing does for days. Drained says in words which taint of a drainer it has, where
	// that is what says so, with a cordon or without one.
	// NodeUnknown is true when the node could not be read, so that nobody knows.
	Node        string
	Cordoned    bool
	Drained     string
	NodeUnknown bool

	// Said stands for the kubelet's last word on the container of etcd, and Heartbeat for its node's last sign of
	// life: each changes when something new is heard.
	Said, Heartbeat string
	// NodeSilent is true when the node controller has not heard the node's kubelet for so long that it calls its
	// state unknown.
	NodeSilent bool
	// Heard is true when a connection to the pod's own address, begun in this observation, was refused: that
	// address can be reached from here, and no process listens. In a dump it stands for a kubelet that is believed.
	Heard bool

	Etcd, Sidecar Container
	// EtcdImage is the image of etcd's container.
	EtcdImage string

	// NoEtcdContainer is true when the pod declares no container of the expected name: then
	// its kubelet tells nothing about its member.
	NoEtcdContainer bool

	// Quota is how large the database of its member may become, as far as the pod's own spec says so.
	Quota Quota
}

// ContainerState is the state a kubelet reports for a container.
type ContainerState uint8

// The states of a container; ContainerAbsent means that no status was reported
// (a pending pod, or a container that does not exist).
const (
	ContainerAbsent ContainerState = iota
	ContainerWaiting
	ContainerRunning
	ContainerTerminated
)

// Container is the kubelet's word on one container.
type Container struct {
	State ContainerState
	// Ready is the container's readiness.
	Ready bool
	// Reason is the waiting or terminated reason, such as CrashLoopBackOff, or Unschedulable.
	Reason string
	// Why is what is known beyond the reason, in the words of the kubelet or the scheduler: which image cannot be
	// pulled, how the last process ended, or why no node takes the pod. It is only told.
	Why string
	// Restarts is the restart count, shown in explanations.
	Restarts int
}

// inWords is what a kubelet, or the scheduler, says of a container that does not run.
func (c Container) inWords() string {
	switch {
	case c.Reason != "" && c.Why != "":
		return c.Reason + ", " + c.Why
	case c.Reason != "":
		return c.Reason
	}
	return "that its container does not run"
}

// Membership is what etcd says: the member list and one probe per member.
type Membership struct {
	// Known is false when no member list could be had from any member: then the
	// voters, and with them the quorum, are unknown.
	Known bool
	// Linearizable is true when the list was read through consensus; false when
	// it is the local list of the most advanced reachable member.
	Linearizable bool
	// Agreeing is how many voters of the list returned the same voters when they were asked
	// for their own list. It is counted where the list is not linearizable.
	Agreeing int
	// Detail says why there is no list, where somebody can mend it: a permission that is missing, or what Barred says.
	Detail    string
	Barred    Barred
	ClusterID uint64
	Members   []Member
}

// Silent is true when no member answered a read.
func (m Membership) Silent() bool {
	return !slices.ContainsFunc(m.Members, func(x Member) bool { return x.Probe.Read == Answered })
}

// Member is one entry of etcd's member list with the answer to its probe.
type Member struct {
	ID uint64
	// Name is empty while the member has never started.
	Name                 string
	PeerURLs, ClientURLs []string
	Learner              bool
	Probe                Probe
}

// ReadResult is the outcome of the read that was sent to one member.
type ReadResult uint8

// The outcomes of a probe's read.
const (
	// NotAsked: no probe was sent; etcd's witness is missing.
	NotAsked ReadResult = iota
	// Answered: the member itself answered (for a voter: a linearizable read),
	// with the member ID and cluster ID the member list gives it.
	Answered
	// Failed: no answer within the probe timeout, or an error.
	Failed
	// WrongMember: another member answered under every address of this member's, as with a
	// stale DNS record or a reused pod IP. It proves nothing about this member.
	WrongMember
	// WrongCluster: a member of another cluster answered.
	WrongCluster
)

// Barred says what keeps an answer back that the member itself would have given.
type Barred uint8

// The sorts of what keeps an answer back. The zero value is none that is known.
const (
	// ByCertificate: one side does not accept the other's certificate.
	ByCertificate Barred = iota + 1
	// ByLogin: etcd's authentication is on, and it does not know who asks.
	ByLogin
)

// Probe is one member's answer.
type Probe struct {
	Read ReadResult
	// ReadTerm is the raft term in the header of the answered read, 0 when it was not answered.
	// A member that was paused may answer one read from before the pause (etcd before 3.5.28
	// and 3.6.9, etcd-io/etcd#20418); its term shows it.
	ReadTerm uint64
	// Detail says why a read failed, or why there is no status, for explanations. Barred is the sort of that where it
	// is not the member that is at fault.
	Detail string
	Barred Barred
	// Replied is true when the member answered with an error of etcd's own: then it is there, whatever it refuses.
	Replied bool
	// URL is the client URL under which the member has identified itself, empty where it has not. Shared is true where
	// other members advertise that one too.
	URL    string
	Shared bool
	// OnlyShared is true for a member that advertises no URL that is not also another member's.
	OnlyShared bool
	// Status is the member's own status, nil when it did not answer.
	Status *Status
	// OwnList is the member list that this one has by itself, as text: the same for two members that
	// have the same list. It is empty where it was not asked, or did not answer.
	OwnList string
}

// Status is what a member says about itself.
type Status struct {
	// Leader is the member ID this member takes for the leader, 0 for none.
	Leader uint64
	Term   uint64
	// Index is the raft log index it knows to be committed; Applied is how far it has
	// applied it.
	Index, Applied uint64
	// Revision is that of its data, at least 1, and 0 where it is not known.
	Revision int64
	Version  string
	// Learner is true for a member that says that it is one, whatever the list says: it has not applied its promotion
	// yet, or it never will (etcd-io/etcd#18347).
	Learner bool
	// DowngradeTo is the version that a downgrade was enabled to, and empty where none was. A member tells
	// it from 3.6 on.
	DowngradeTo string
	// Corrupt and NoSpace are the cluster's alarms as this member reports them.
	Corrupt, NoSpace bool
	// NoSpaceOf are the IDs of the members that have raised the alarm NOSPACE, and CorruptOf those of the members that
	// the alarm CORRUPT is about. Either may have left the list since, and CORRUPT need not be about any one member.
	NoSpaceOf, CorruptOf []uint64
	// Size is how many bytes the member's database takes on its disk, and InUse how many of them hold data. The
	// rest is what a defragmentation frees. Both are 0 where they are not known.
	Size, InUse int64
	// Quota is how large its database may become, in bytes, by its own word. Members of etcd before 3.6 do
	// not tell it, and then it is 0.
	Quota int64
}

// Gate is the result of one check of the host's own, such as "the last backup
// succeeded" (DEP-01 asks to postpone disruption while it did not).
type Gate struct {
	Name string `json:"name"`
	Pass bool   `json:"pass"`
	// Detail says what was found.
	Detail string `json:"detail,omitempty"`
	// SickToo makes the gate apply to pods whose sidecar is sick as well. By
	// default it does not: it would block its own cure.
	SickToo bool `json:"sickToo,omitempty"`
}

// Condition names something that is worth an age.
type Condition uint8

// The conditions whose age a decision may ask for.
const (
	// ReadySeen: the pod is Ready (spec.minReadySeconds).
	ReadySeen Condition = iota + 1
	// UnsettledSeen: an updated pod is not Ready, or its member does not serve or has
	// not caught up.
	UnsettledSeen
	// TerminatedSeen: the etcd container is in state terminated.
	TerminatedSeen
	// NotRunningSeen: the etcd container is dead or starting.
	NotRunningSeen
	// RestartingSeen: the etcd container has restarted and is not ready. Unlike
	// NotRunningSeen it outlasts the moments for which a crash loop runs.
	RestartingSeen
	// QuorumLostSeen: no voter serves. The pod UID is empty.
	QuorumLostSeen
	// PodSeen: the pod exists.
	PodSeen
	// CordonedSeen: the pod's node is cordoned or marked by a drainer, or may be, because it cannot be read.
	CordonedSeen
	// AwaySeen: a pod is missing or terminating, or is out of range. The UID is the pod's name.
	AwaySeen
	// GhostSeen: a member is a ghost. MemberSeen: it is on etcd's list, which is noted while there are
	// ghosts. The UID of both is the member's ID in hexadecimal.
	GhostSeen
	MemberSeen
	// SilentSeen: the pod's member has neither answered, nor has its address refused a connection. SaidSeen: what
	// its kubelet or its node says is as it was; its age is that of the last reading that said something else, and it
	// has none where there was no such reading. While a node cannot be read, its last word stands. The UID of the
	// latter is the pod's with these words.
	SilentSeen
	SaidSeen
)

// conditions are their stable names.
var conditions = [...]string{
	ReadySeen: "ReadySeen", UnsettledSeen: "UnsettledSeen", TerminatedSeen: "TerminatedSeen",
	NotRunningSeen: "NotRunningSeen", RestartingSeen: "RestartingSeen", QuorumLostSeen: "QuorumLostSeen",
	PodSeen: "PodSeen", CordonedSeen: "CordonedSeen", AwaySeen: "AwaySeen", GhostSeen: "GhostSeen",
	MemberSeen: "MemberSeen", SilentSeen: "SilentSeen", SaidSeen: "SaidSeen",
}

// String returns the condition's stable name.
func (c Condition) String() string {
	if int(c) >= len(conditions) {
		return ""
	}
	return conditions[c]
}

// MarshalText writes the condition's stable name.
func (c Condition) MarshalText() ([]byte, error) { return []byte(c.String()), nil }

// UnmarshalText reads a condition's name. One that is not known is the zero Condition: a newer version
// may have told of it.
func (c *Condition) UnmarshalText(text []byte) error {
	*c = Condition(max(0, slices.Index(conditions[:], string(text)))) //nolint:gosec // A handful.
	return nil
}

// OfMember is true for the conditions of a member. All others are of a pod, or of the cluster.
func (c Condition) OfMember() bool { return c == GhostSeen || c == MemberSeen }

// Outlasts is true for the conditions that a coordinator follows between rollouts as well: those of members, and
// cordons, which have mostly lasted for a while when a rollout begins.
func (c Condition) Outlasts() bool { return c.OfMember() || c == CordonedSeen }

// Sighting is a condition of one pod (by UID) or member, or of the cluster when UID is empty.
type Sighting struct {
	UID       string
	Condition Condition
}

// Removal says how a Ready pod is removed.
type Removal uint8

// The two ways to remove a Ready pod.
const (
	// RemoveByDelete deletes the pod, as the StatefulSet controller itself does. No
	// PodDisruptionBudget is charged for it, so until the disruption controller has seen it
	// somebody else's eviction of a second pod passes.
	RemoveByDelete Removal = iota
	// RemoveByEviction goes through the eviction API: what charges a PodDisruptionBudget there
	// cannot be spent twice.
	RemoveByEviction
)

// Policy is what the operator chose. The zero value is not valid; start from
// [DefaultPolicy].
type Policy struct {
	// MaxUnavailable is how many members of the StatefulSet's own, or which percentage of
	// its replicas (rounded down, at least 1: KEP-961 rounds the same way), may be
	// unavailable at once during the rollout; at least 1.
	MaxUnavailable Amount `json:"maxUnavailable"`
	// Partition protects ordinals below it.
	Partition int `json:"partition,omitempty"`
	// SettleTimeout is how long an updated pod may take to settle before it counts
	// as failing, and how long lost quorum is left to recover by itself.
	SettleTimeout time.Duration `json:"settleTimeout"`
	// DeadAfter is how long a container may stay terminated before it counts as dead.
	DeadAfter time.Duration `json:"deadAfter"`
	// LeavingPatience is how long a cordon of a member's node holds the others, because a drain may
	// follow. Each coordinator counts it from when it has first seen the cordon, in a rollout or not. It is
	// also how long a pod holds them that others have taken and that does not come back, but then at least
	// SettleTimeout.
	LeavingPatience time.Duration `json:"leavingPatience"`
	// MaxLag is how many log entries a survivor may be behind.
	MaxLag uint64 `json:"maxLag"`
	// TrustedMembers are the names of voters without a pod in our ordinals that may be relied
	// on as survivors. Nobody asks us before they go; so by default none is.
	TrustedMembers []string `json:"trustedMembers,omitempty"`
	// Removal is the method for Ready pods, which a PodDisruptionBudget counts as available.
	// Any other, and that of a member that is down, is always deleted: a budget would block its cure.
	Removal Removal `json:"removal"`
	// AllowVolatileData permits removals that leave fewer than a quorum of voters
	// with data, where the data volume is not persistent.
	AllowVolatileData bool `json:"allowVolatileData,omitempty"`
	// HoldBeforeLast holds a rollout to another minor version of etcd before the last member of the old
	// one goes, until somebody lets it go ([ControlAllowLast]): after that there is no way back.
	HoldBeforeLast bool `json:"holdBeforeLast,omitempty"`
	// GhostAfter is for how long a member without a pod has to be silent before it counts as a ghost.
	GhostAfter time.Duration `json:"ghostAfter"`

	// DefragmentWhen says how fragmented a database is defragmented without being asked for, and the zero
	// value that none is. DefragmentWindow is the time of day at which that may begin.
	DefragmentWhen   Fragmentation `json:"defragmentWhen,omitzero"`
	DefragmentWindow Window        `json:"defragmentWindow,omitzero"`
	// KeepNoSpace leaves it to an operator to end an alarm NOSPACE. Otherwise the members are defragmented as
	// soon as it is raised, and it is disarmed when that has helped: etcd takes no writes before that, so there
	// is little to lose.
	KeepNoSpace bool `json:"keepNoSpace,omitempty"`
	// DefragmentTimeout bounds one call, at most ten minutes. It is shorter where the database is small.
	DefragmentTimeout time.Duration `json:"defragmentTimeout"`
	// QuotaBytes is the quota of etcd's databases where neither the members nor their pods say it; 0 means
	// etcd's own default, and a negative one that there is none.
	QuotaBytes int64 `json:"quotaBytes,omitempty"`
	// HostDefragments is the schedule by which the host defragments all members by itself, empty if it does
	// not. Two that do not know of each other would stop two members at a time.
	HostDefragments string `json:"hostDefragments,omitempty"`
}

// MaxTransferFailures is how many leadership transfers away from a pod may fail
// before it is removed as leader: etcd's own shutdown tries a transfer too.
const MaxTransferFailures = 2

// DefaultPolicy returns the defaults:
//
//   - MaxUnavailable 1: the only value that keeps quorum in a cluster of three.
//   - SettleTimeout 5 minutes: a member of 8 GiB that has to load its database and
//     catch up settles within it; a broken revision is then held, not repeated.
//   - DeadAfter 10 seconds: the first back-off of a kubelet; a container that was
//     merely restarted is running again by then.
//   - LeavingPatience 10 minutes: a drain that was begun by a cordon has come to this pod by then;
//     a cordon that lasts longer may last for days.
//   - MaxLag 5000 entries: half of the log that etcd keeps for slow followers
//     (--snapshot-count was 10000 in 3.6), so that a survivor never needs a snapshot.
//   - GhostAfter 10 minutes: by then whoever scales has finished, a member that is to come has come, and
//     a node that was rebooted is back.
//   - Removal by eviction: a PodDisruptionBudget is the only arbiter between us and a drain.
//   - DefragmentTimeout 8 minutes: enough for 8 GiB on a slow disk, and what etcd-backup-restore grants.
func DefaultPolicy() Policy {
	return Policy{
		MaxUnavailable:    Amount{Number: 1},
		SettleTimeout:     5 * time.Minute,
		DeadAfter:         10 * time.Second,
		LeavingPatience:   10 * time.Minute,
		MaxLag:            5000,
		Removal:           RemoveByEviction,
		GhostAfter:        10 * time.Minute,
		DefragmentTimeout: 8 * time.Minute,
	}
}

// String returns the method's stable name.
func (r Removal) String() string {
	if r == RemoveByEviction {
		return "evict"
	}
	return "delete"
}

// MarshalText writes the method's stable name.
func (r Removal) MarshalText() ([]byte, error) { return []byte(r.String()), nil }
