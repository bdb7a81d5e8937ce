package report

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/quorate/quorate/pkg/rollout"
)

// Report is what is going on in one StatefulSet, why, since when, and what would help.
// Status, plan, events, metrics, log line and page are renderers of it.
//
// Its times are the reporter's wall clock, for people; nobody decides anything by them.
type Report struct {
	Namespace   string `json:"namespace"`
	StatefulSet string `json:"statefulSet"`
	// At is when it was made.
	At time.Time `json:"at"`
	// Since is since when action, rule, guard and target have been what they are, across
	// changes of the coordinator.
	Since time.Time `json:"since"`
	// LastEvent is when an event last said what keeps the rollout; zero when none has.
	LastEvent time.Time `json:"told,omitzero"`
	// Started is when the rollout under way was first seen, Ended when the last one was
	// complete; zero otherwise.
	Started time.Time `json:"started,omitzero"`
	Ended   time.Time `json:"ended,omitzero"`

	// Coordinator is the pod (or the identity, outside a pod) that reports; empty when
	// somebody looks from outside.
	Coordinator string `json:"coordinator,omitempty"`
	// Epoch is the number of its claim on the record.
	Epoch int `json:"epoch,omitempty"`
	// Fallback: it coordinates without the lock, because etcd cannot hand one out.
	Fallback bool `json:"fallback,omitempty"`

	// UpdateRevision is the revision that the pods should have.
	UpdateRevision string   `json:"updateRevision,omitempty"`
	Progress       Progress `json:"progress"`
	// Overrides are the guards that the operator keeps from holding, and OverrideTerms say for how long, by whose will,
	// and why; nil where nobody has said any of it. EndedOverrides are the guards of an override that is over, and
	// whose annotations are still there.
	Overrides      []string       `json:"overrides,omitempty"`
	EndedOverrides []string       `json:"endedOverrides,omitempty"`
	OverrideTerms  *rollout.Terms `json:"overrideTerms,omitempty"`
	// Guards are those that stand in the way of a candidate, or would if they were not overridden.
	Guards []rollout.Guard `json:"guards,omitempty"`
	// Paused, Partition and MaxUnavailable are the other controls, as far as they are set. GuardOff: the quorum guard
	// is turned off.
	Paused         bool   `json:"paused,omitempty"`
	GuardOff       bool   `json:"guardOff,omitempty"`
	Partition      *int   `json:"partition,omitempty"`
	MaxUnavailable string `json:"maxUnavailable,omitempty"`
	// Asked is the request of an operator that was seen; nil without one.
	Asked *rollout.Request `json:"asked,omitempty"`
	// Backup is what the host says of its backups, by a gate of the name [GateBackup]; nil when it
	// has no such gate.
	Backup *Backup `json:"backup,omitempty"`
	// Faults are what the coordinator fails at now, and what it does not believe, a sentence each.
	Faults []string `json:"faults,omitempty"`
	// Memory is what the coordinator knows beyond what can be seen; nil in a report from outside.
	Memory *Memory `json:"memory,omitempty"`
	// Suspect is the member that an earlier removal may still remove, empty if there is none.
	Suspect string `json:"suspect,omitempty"`

	Plan
}

// OverrideWords says which guards are overridden, for how long, by whom, and why. It is empty if none is.
func (r *Report) OverrideWords() string {
	if len(r.Overrides) == 0 {
		return ""
	}
	t := r.terms()
	text := sorted(r.Overrides) + " will not hold "
	switch {
	case !t.Until.IsZero() && t.Revision != "":
		text += "this rollout until " + Clock(t.Until)
	case !t.Until.IsZero():
		text += "anything until " + Clock(t.Until)
	case t.Revision != "":
		text += "this rollout"
	default:
		text += "this rollout, nor any later one, until cleared"
	}
	return text + who(t)
}

// EndedWords says which guards hold again because their override is over. It is empty if there is none.
func (r *Report) EndedWords() string {
	if len(r.EndedOverrides) == 0 {
		return ""
	}
	t := r.terms()
	why := "its time was " + Clock(t.Until)
	if t.Revision != "" && t.Revision != r.UpdateRevision {
		why = "because the template has changed"
	}
	return over(r.EndedOverrides, why, t) + ". quorate override --clear removes what is left of it."
}

// over says which guards hold again, and why.
func over(guards []string, why string, t rollout.Terms) string {
	return sorted(guards) + ": the override is over, " + why + who(t)
}

// terms are those of the override, zero where nobody has said any.
func (r *Report) terms() rollout.Terms {
	if r.OverrideTerms == nil {
		return rollout.Terms{}
	}
	return *r.OverrideTerms
}

func who(t rollout.Terms) (text string) {
	if t.By != "" {
		text = "; set by " + t.By
	}
	if t.Reason != "" {
		text += ", because: " + t.Reason
	}
	return text
}

func sorted(guards []string) string { return strings.Join(slices.Sorted(slices.Values(guards)), ", ") }

// Clock is a time as people read it, to the second.
func Clock(t time.Time) string { return t.UTC().Format("2006-01-02 15:04:05 UTC") }

// Answers is true for a report that knows of this request, and of no other.
func (r *Report) Answers(q *rollout.Request) bool {
	if r.Asked == nil || q == nil {
		return r.Asked == q
	}
	return r.Asked.Operation == q.Operation && r.Asked.Member == q.Member && r.Asked.Cluster == q.Cluster &&
		r.Asked.At.Equal(q.At)
}

// Progress counts the StatefulSet's pods.
type Progress struct {
	// Pods is how many there should be.
	Pods int `json:"pods"`
	// Outdated have another revision than the update revision; Settled are up to date, and
	// their members serve again. The rest is missing, going or coming up.
	Outdated int `json:"outdated"`
	Settled  int `json:"settled"`
}

// GateBackup is the name of the host's gate that is shown as DEP-01's condition BackupReady.
const GateBackup = "BackupReady"

// Backup is what the host says of its backups.
type Backup struct {
	Ready  bool   `json:"ready"`
	Detail string `json:"detail"`
}

// Sight is one observation, with what was decided on it.
type Sight struct {
	Namespace, StatefulSet string
	// At is when it was made.
	At       time.Time
	State    rollout.State
	Decision rollout.Decision
	// Policy is the one that was decided with; nil for an observer from outside.
	Policy *rollout.Policy
	// Coordinator, Epoch and Fallback say who reports; empty for an observer from outside.
	Coordinator string
	Epoch       int
	Fallback    bool
}

// New returns the report of what was seen. What has not changed since the last report keeps its
// time. Where there is no last report, it is the zero Report.
func New(s Sight, last Report) Report {
	r := Report{
		Namespace: s.Namespace, StatefulSet: s.StatefulSet, At: s.At, Since: s.At,
		Coordinator: s.Coordinator, Epoch: s.Epoch, Fallback: s.Fallback,
		UpdateRevision: s.State.Set.UpdateRevision, Started: last.Started, Ended: last.Ended,
		Plan: NewPlan(s.Decision), Memory: memoryOf(s),
		Paused: s.State.Controls.Paused, GuardOff: s.State.Controls.GuardOff,
		Partition: s.State.Controls.Partition, Asked: s.State.Request,
	}
	if m := s.State.Controls.MaxUnavailable; m != nil {
		r.MaxUnavailable = m.String()
	}
	if id := s.State.Suspect.ID; id != 0 {
		r.Suspect = fmt.Sprintf("%s (ID %x)", s.State.Suspect.Name, id)
	}
	r.Ghosts = GhostsOf(s.Decision.Assessment, last.Ghosts, s.At)
	if r.Key() == last.Key() && last.Since.Before(r.Since) && !last.Since.IsZero() {
		r.Since, r.LastEvent = last.Since, last.LastEvent
	}
	r.Guards = r.guards()
	r.Progress.Pods = s.State.Set.Replicas
	for i := range r.Members {
		m := &r.Members[i]
		m.Since = r.At
		for _, was := range last.Members {
			if was.name() == m.name() && was.Evidence == m.Evidence && !was.Since.IsZero() {
				m.Since = was.Since
			}
		}
		switch {
		case m.Pod == "" || m.missing():
		case m.Outdated:
			r.Progress.Outdated++
		case m.Settled:
			r.Progress.Settled++
		}
	}
	switch rolls := r.rolls(); {
	case rolls == rollout.ActionIdle:
		r.Started, r.Ended = time.Time{}, time.Time{}
	case rolls != rollout.ActionComplete:
		if r.Ended = (time.Time{}); r.Started.IsZero() {
			r.Started = s.At
		}
	case !r.Started.IsZero() || r.Ended.IsZero():
		r.Started, r.Ended = time.Time{}, s.At
	}
	for _, g := range s.State.Controls.Override {
		r.Overrides = append(r.Overrides, string(g))
	}
	for _, g := range s.State.Controls.Ended {
		r.EndedOverrides = append(r.EndedOverrides, string(g))
	}
	if t := s.State.Controls.Terms; len(r.Overrides)+len(r.EndedOverrides) > 0 && t != (rollout.Terms{}) {
		r.OverrideTerms = &t
	}
	for _, g := range s.State.Gates {
		if g.Name == GateBackup {
			r.Backup = &Backup{Ready: g.Pass, Detail: g.Detail}
		}
	}
	return r
}

// Key is equal for two reports that say the same but for numbers and times.
func (r Report) Key() string {
	key := strings.Join([]string{string(r.Action), string(r.Rule), string(r.Guard), r.Target}, "/")
	for _, o := range r.Others {
		key += "+" + strings.Join([]string{string(o.Action), string(o.Rule), string(o.Guard), o.Target}, "/")
	}
	return key
}

// rolls is what becomes of the rollout, whatever else is done or waited for.
func (p *Plan) rolls() rollout.ActionName {
	for i := range p.Others {
		if p.Others[i].Duty == rollout.DutyRoll {
			return p.Others[i].Action
		}
	}
	return p.Action
}

// HeldBy is true where the guard holds one of the duties.
func (r Report) HeldBy(g rollout.Guard) bool {
	return r.Guard == g || slices.ContainsFunc(r.Others, func(w Work) bool { return w.Guard == g })
}

// Names is true where the guard holds one of the duties, stands in the way of one of its candidates, or would if it
// were not overridden.
func (r Report) Names(g rollout.Guard) bool {
	return r.HeldBy(g) || slices.Contains(r.Guards, g) || slices.Contains(r.Overrides, string(g))
}

// guards are those that stand in the way of a candidate, or would if they were not overridden.
func (r *Report) guards() []rollout.Guard {
	names := map[rollout.Guard]bool{}
	for _, w := range append(slices.Clone(r.Others), r.Work) {
		for _, c := range w.Candidates {
			for _, v := range c.Guards {
				if !v.Pass || v.Overridden {
					names[v.Name] = true
				}
			}
		}
	}
	return slices.Sorted(maps.Keys(names))
}

// Rolling is true while a rollout is under way, whatever keeps it.
func (r Report) Rolling() bool { return !r.Started.IsZero() }

// name is the pod's, or, of a voter without a pod of ours, the member's ID.
func (m *Member) name() string {
	if m.Pod != "" {
		return m.Pod
	}
	return m.ID
}
