package rollout

import (
	"fmt"
	"strings"
)

// Action is what a decision asks for.
type Action uint8

// The actions. Only MoveLeader and Remove change anything.
const (
	// Idle: the rollout of this StatefulSet is not ours.
	Idle Action = iota
	// Hold: nothing may happen until somebody or something changes the cause.
	Hold
	// Wait: what is under way is expected to end by itself.
	Wait
	// Complete: every pod in range is up to date and settled.
	Complete
	// MoveLeader: ask the leader to hand leadership to the member in Transfer.
	MoveLeader
	// Remove: remove the target pod; the StatefulSet controller recreates it.
	Remove
)

// String returns the action's stable name.
func (a Action) String() string {
	return [...]string{"Idle", "Hold", "Wait", "Complete", "MoveLeader", "Remove"}[a]
}

// Rule is the stable name of a rule of the decision.
type Rule string

// The rules, in the order in which they are tried (DESIGN §5).
const (
	// RuleNotOurs: the update strategy is not OnDelete, or there is nothing to roll.
	RuleNotOurs Rule = "NotOurs"
	// RuleHeld: something forbids any decision: stale or contradictory facts.
	RuleHeld Rule = "Held"
	// RuleComplete: nothing is outdated, missing or unsettled.
	RuleComplete Rule = "Complete"
	// RuleNotServingFirst: outdated pods whose members do not serve go first
	// (DEP-06, DEP-07 step 2).
	RuleNotServingFirst Rule = "NotServingFirst"
	// RuleUpdatedSettle: updated pods first settle (DEP-07 step 3).
	RuleUpdatedSettle Rule = "UpdatedSettle"
	// RuleServing: serving members go one a cycle (DEP-07 step 4).
	RuleServing Rule = "Serving"
	// RuleHandOverLeadership: a leader hands leadership over before it goes.
	RuleHandOverLeadership Rule = "HandOverLeadership"
)

// Target is the very pod that was decided on.
type Target struct {
	Pod, UID, ResourceVersion string
	Ordinal                   int
}

// Transfer is a change of leadership.
type Transfer struct {
	// From is the leader, To the member that shall lead; the names are their pods'
	// or, for a member without a pod, its own.
	From, To         uint64
	FromName, ToName string
}

// Verdict is one guard's word on one candidate. The numbers stay numbers until
// somebody reads them.
type Verdict struct {
	Guard Guard
	Pass  bool
	// Overridden: the guard would hold, but the operator overrides it.
	Overridden bool
	// lasting: this one does not clear by itself, although its guard mostly does.
	lasting bool

	format string
	n      [5]int
	// text is said after what the format says.
	text string
}

// Detail explains the verdict with its numbers.
func (v Verdict) Detail() string {
	args := make([]any, 0, len(v.n))
	for i := range min(strings.Count(v.format, "%d"), len(v.n)) {
		args = append(args, v.n[i])
	}
	text := fmt.Sprintf(v.format, args...) + v.text
	if v.Overridden {
		text += " (OVERRIDDEN by " + ControlOverrideGuards + ")"
	}
	return text
}

// Candidate is an outdated pod that a rule considered, with all its verdicts.
type Candidate struct {
	Pod      string
	Rule     Rule
	Verdicts []Verdict
}

// Passes is true when every guard passes.
func (c *Candidate) Passes() bool { return c.failed() == nil }

func (c *Candidate) failed() *Verdict {
	for i := range c.Verdicts {
		if !c.Verdicts[i].Pass {
			return &c.Verdicts[i]
		}
	}
	return nil
}

// Decision is what may happen next, and why.
type Decision struct {
	Action Action
	Rule   Rule
	// Guard is the guard that holds the rollout, empty when none does.
	Guard Guard
	// Target is set for Remove, and for MoveLeader (the pod that will go once it no
	// longer leads).
	Target *Target
	// Method is how the target is removed.
	Method Removal
	// Transfer is set for MoveLeader.
	Transfer *Transfer
	// Candidates are all pods that were considered, best first.
	Candidates []Candidate
	// Assessment is what the decision rests on.
	Assessment *Assessment

	reason func() string
}

// Reason says in one sentence why this is the decision, with numbers.
func (d *Decision) Reason() string {
	if d.reason == nil {
		return ""
	}
	return d.reason()
}

// Acts is true when the decision changes something.
func (d *Decision) Acts() bool { return d.Action == MoveLeader || d.Action == Remove }
