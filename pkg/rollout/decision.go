package rollout

import (
	"fmt"
	"slices"
	"strings"
)

// Rule is the stable name of a rule of the decision.
type Rule string

// The rules, in the order in which they are tried.
const (
	// RuleNotOurs: the update strategy is not OnDelete, or there is nothing to roll.
	RuleNotOurs Rule = "NotOurs"
	// RuleHeld: something forbids any decision: stale or contradictory facts.
	RuleHeld Rule = "Held"
	// RuleMakeWay: leadership leaves a member that others are about to take.
	RuleMakeWay Rule = "MakeWay"
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
	// RuleRemoveGhost: a member that an old scale-in has left behind is removed when an operator asks
	// (DEP-01, "Removing an existing member").
	RuleRemoveGhost Rule = "RemoveGhost"
	// RuleDefragment: members are defragmented one at a time, followers first.
	RuleDefragment Rule = "Defragment"
)

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

// Candidate is an outdated pod that a rule considered, with all its verdicts. Of [RuleRemoveGhost] it is a
// member.
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
	// Duty is the one whose decision this is.
	Duty   DutyName
	Action Action
	Rule   Rule
	// Guard is the guard that holds the rollout, empty when none does.
	Guard Guard
	// Candidates are all pods that were considered, best first.
	Candidates []Candidate
	// Others are what the other duties have decided, as far as they have something to say, in their order.
	Others []Decision
	// Assessment is what the decision rests on.
	Assessment *Assessment

	// about is the replica that the guard is about, nil where it is about the cluster or a candidate.
	about *Replica
	// kept is the candidate that the guard keeps, nil where it keeps none.
	kept   *Candidate
	reason func() string
}

// Pod is the one that is waited for, or that the guard keeps. It is empty where the cluster as a whole is judged, or a
// member that has no pod.
func (d *Decision) Pod() string {
	switch {
	case d.about != nil:
		return d.about.Name
	case d.kept != nil && d.kept.Rule != RuleRemoveGhost:
		return d.kept.Pod
	}
	return ""
}

// Reason says in one sentence why this is the decision, with numbers.
func (d *Decision) Reason() string {
	if d.reason == nil {
		return ""
	}
	return d.reason()
}

// Acts is true when the decision changes something.
func (d *Decision) Acts() bool {
	switch d.Action.(type) {
	case nil, Idle, Hold, Wait, Complete:
		return false
	}
	return true
}

// GoesAlone is true when the decision removes a pod while every voter serves, and MaxUnavailable is one pod. So no
// other voter may go until it is back.
func (d *Decision) GoesAlone() bool {
	_, removes := d.Action.(Remove)
	a := d.Assessment
	return removes && a.Serving == a.Voters && a.policy.MaxUnavailable.Of(len(a.Replicas)) == 1
}

// Beside is true if a duty beside the rollout acts, waits or holds. The rollout comes first in a decision when it
// waits, and does not keep the others from being due.
func (d *Decision) Beside() bool {
	return d.Duty != DutyRoll && d.Duty != DutyHeld && d.weight() > 0 ||
		slices.ContainsFunc(d.Others, func(d Decision) bool { return d.Beside() })
}

// Target returns the pod that is removed, that hands leadership over, or whose member is defragmented; the zero
// Target when the decision changes no pod or member of ours.
func (d *Decision) Target() Target {
	if d.Action == nil {
		return Target{}
	}
	target, _ := d.Action.on()
	return target
}

// About is the name of the pod or the member that the decision changes, empty if it changes nothing.
func (d *Decision) About() string {
	if d.Action == nil {
		return ""
	}
	_, name := d.Action.on()
	return name
}
