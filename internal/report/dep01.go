package report

import (
	"regexp"
	"slices"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/quorate/quorate/pkg/rollout"
)

// EtcdStatus is a report in the shape that etcd-druid's proposal DEP-01 gives the status of an Etcd, so
// that a program that reads one can read the other. The rollout stands beside it.
type EtcdStatus struct {
	Conditions []EtcdCondition `json:"conditions"`
	// ClusterSize is the number of members in etcd's list; without one it is Replicas.
	ClusterSize int            `json:"clusterSize"`
	Replicas    int            `json:"replicas"`
	Members     []MemberStatus `json:"members"`
	// Verdict says whether the cluster is safe.
	Verdict Verdict `json:"verdict"`
	// Rollout is the whole report, and Word whose it is.
	Rollout Report `json:"rollout"`
	Word    Word   `json:"word"`
	// Nobody says why nobody coordinates, where Kubernetes shows that: Quorate runs in no pod.
	Nobody string `json:"nobody,omitempty"`
}

// EtcdCondition is one of Ready, AllMembersReady, BackupReady (when the host says
// something of it) and Updated.
type EtcdCondition struct {
	Type   string                 `json:"type"`
	Status metav1.ConditionStatus `json:"status"`
	// LastHeartbeatTime is when it was seen; LastTransitionTime is since when it has been
	// so, as far as that is known.
	LastHeartbeatTime  time.Time `json:"lastHeartbeatTime,omitzero"`
	LastTransitionTime time.Time `json:"lastTransitionTime,omitzero"`
	Reason             string    `json:"reason"`
	Message            string    `json:"message,omitempty"`
}

// The conditions' types; the first three are DEP-01's.
const (
	ConditionReady           = "Ready"
	ConditionAllMembersReady = "AllMembersReady"
	ConditionBackupReady     = GateBackup
	ConditionUpdated         = "Updated"
)

// Reasons of the conditions and members, beside the names of guards. NotAsked says that
// nobody has asked etcd.
const (
	ReasonQuorate            = "Quorate"
	ReasonQuorumLost         = "QuorumLost"
	ReasonVotersUnknown      = "VotersUnknown"
	ReasonAllMembersReady    = "AllMembersReady"
	ReasonNotAllMembersReady = "NotAllMembersReady"
	ReasonBackupSucceeded    = "BackupSucceeded"
	ReasonBackupFailed       = "BackupFailed"
	ReasonUnknown            = "Unknown"
	ReasonNotAsked           = "NotAsked"
	ReasonPodMissing         = "PodMissing"
)

// MemberStatus is one member; its name is its pod's.
type MemberStatus struct {
	Name string `json:"name"`
	// ID is in hexadecimal, as etcd prints it.
	ID string `json:"id,omitempty"`
	// Role is Leader, Member or, beyond DEP-01, Learner; empty when that is not known.
	Role string `json:"role,omitempty"`
	// Status is Ready, NotReady or Unknown.
	Status string `json:"status"`
	// LastTransitionTime is since when the evidence has been what it is.
	LastTransitionTime time.Time `json:"lastTransitionTime,omitzero"`
	// Reason is the evidence (Serving, Learner, Down, Unknown), PodMissing or NotAsked.
	Reason  string `json:"reason"`
	Message string `json:"message,omitempty"`
}

// A member's status.
const (
	memberReady    = "Ready"
	memberNotReady = "NotReady"
	memberUnknown  = "Unknown"
)

// Etcd gives a status DEP-01's shape.
func (s Status) Etcd() EtcdStatus {
	e := EtcdStatus{Replicas: s.Progress.Pods, ClusterSize: s.Progress.Pods, Members: []MemberStatus{},
		Verdict: s.Verdict(), Rollout: s.Report, Word: s.Word, Nobody: s.Nobody}
	e.Rollout.Memory = nil
	listed := 0
	for i := range s.Members {
		m := &s.Members[i]
		e.Members = append(e.Members, memberStatus(m))
		if m.ID != "" {
			listed++
		}
	}
	if listed > 0 {
		e.ClusterSize = listed
	}
	e.Conditions = append(e.Conditions, s.ready(), s.allMembersReady(e.Members))
	if s.Backup != nil {
		e.Conditions = append(e.Conditions, s.Backup.condition())
	}
	e.Conditions = append(e.Conditions, s.updated())
	for i := range e.Conditions {
		e.Conditions[i].LastHeartbeatTime = s.At
	}
	if s.Word == OldWord {
		e.silent(e.Verdict.Detail)
	}
	return e
}

// condition gives the host's word on its backups DEP-01's shape. The host may begin with a reason of its own, and
// says with ReasonUnknown that it cannot tell.
func (b *Backup) condition() EtcdCondition {
	c := EtcdCondition{Type: ConditionBackupReady, Status: metav1.ConditionFalse, Reason: ReasonBackupFailed,
		Message: b.Detail}
	if b.Ready {
		c.Status, c.Reason = metav1.ConditionTrue, ReasonBackupSucceeded
	}
	if begin, rest, ok := strings.Cut(b.Detail, ": "); ok && reasonWord.MatchString(begin) {
		c.Reason, c.Message = begin, rest
	}
	if !b.Ready && c.Reason == ReasonUnknown {
		c.Status = metav1.ConditionUnknown
	}
	return c
}

// reasonWord is what a reason looks like.
var reasonWord = regexp.MustCompile(`^[A-Z][A-Za-z]*$`)

func memberStatus(m *Member) MemberStatus {
	s := MemberStatus{Name: m.Pod, ID: m.ID, Reason: m.Evidence, Message: m.Detail, LastTransitionTime: m.Since,
		Status: memberUnknown}
	if s.Name == "" {
		s.Name = m.Member
	}
	switch m.Role {
	case "leader":
		s.Role = "Leader"
	case "follower":
		s.Role = "Member"
	case "learner":
		s.Role = "Learner"
	}
	switch m.Evidence {
	case rollout.Serving.String(), "Learner":
		s.Status = memberReady
	case rollout.Down.String():
		s.Status = memberNotReady
	case "":
		s.Reason = ReasonNotAsked
	}
	if m.Pod != "" && m.missing() && s.Status != memberReady {
		s.Reason = ReasonPodMissing
	}
	return s
}

// ready says whether the voters that serve are a quorum.
func (s *Status) ready() EtcdCondition {
	c := EtcdCondition{Type: ConditionReady, Status: metav1.ConditionUnknown, Reason: ReasonVotersUnknown,
		Message: "no member has said who the voters are"}
	var serving, others []time.Time
	for _, m := range s.Members {
		switch {
		case m.Evidence == "":
			c.Reason, c.Message = ReasonNotAsked, "etcd was not asked"
		case !m.Voter:
		case m.Evidence == rollout.Serving.String():
			serving = append(serving, m.Since)
		default:
			others = append(others, m.Since)
		}
	}
	if s.Voters == 0 || c.Reason == ReasonNotAsked {
		return c
	}
	c.Message = s.votersInWords()
	if s.Serving >= s.Quorum {
		// At the latest since a quorum of those that serve now has served.
		c.Status, c.Reason, c.LastTransitionTime = metav1.ConditionTrue, ReasonQuorate, nth(serving, s.Quorum)
		return c
	}
	c.Status, c.Reason = metav1.ConditionFalse, ReasonQuorumLost
	c.LastTransitionTime = nth(others, s.Voters-s.Quorum+1)
	return c
}

// nth is the nth of the times in their order, zero when there are not as many.
func nth(times []time.Time, n int) time.Time {
	slices.SortFunc(times, time.Time.Compare)
	if n < 1 || n > len(times) {
		return time.Time{}
	}
	return times[n-1]
}

func (s *Status) allMembersReady(members []MemberStatus) EtcdCondition {
	c := EtcdCondition{Type: ConditionAllMembersReady, Status: metav1.ConditionTrue, Reason: ReasonAllMembersReady}
	var ready, not []time.Time
	var why []string
	for _, m := range members {
		switch {
		case m.Reason == ReasonNotAsked:
			return EtcdCondition{Type: ConditionAllMembersReady, Status: metav1.ConditionUnknown,
				Reason: ReasonNotAsked, Message: "etcd was not asked"}
		case m.Status == memberReady:
			ready = append(ready, m.LastTransitionTime)
		default:
			c.Status, c.Reason = metav1.ConditionFalse, ReasonNotAllMembersReady
			why = append(why, m.Name+": "+m.Message)
			not = append(not, m.LastTransitionTime)
		}
	}
	if c.Message = strings.Join(why, "; "); c.Status == metav1.ConditionTrue {
		c.LastTransitionTime = nth(ready, len(ready))
	} else {
		c.LastTransitionTime = nth(not, 1)
	}
	return c
}

func (s *Status) updated() EtcdCondition {
	c := EtcdCondition{Type: ConditionUpdated, Status: metav1.ConditionFalse, Reason: string(s.Guard),
		Message: s.Reason, LastTransitionTime: s.Started}
	if c.Reason == "" {
		c.Reason = string(s.Action)
	}
	switch s.Action {
	case rollout.ActionComplete:
		if c.Status, c.LastTransitionTime = metav1.ConditionTrue, s.Ended; s.Ended.IsZero() {
			c.LastTransitionTime = s.Since
		}
	case rollout.ActionIdle:
		c.Status, c.Reason, c.LastTransitionTime = metav1.ConditionUnknown, string(s.Rule), time.Time{}
	default: // It is still under way, or held.
	}
	return c
}
