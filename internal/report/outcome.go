package report

import (
	"fmt"
	"slices"
	"time"

	"github.com/quorate/quorate/internal/record"
	"github.com/quorate/quorate/pkg/rollout"
)

// Outcome is what has become of an operation.
type Outcome struct {
	// Intent is what was to be done, and to what.
	record.Intent
	// Decision is what asks for it. Of an operation that an earlier claim has put on record it is zero, or says why
	// nothing asks for it any more.
	Decision rollout.Decision
	// Result is one of the constants below, and Err is why it is none better.
	Result string
	Err    error
	// Took is how long the call of a defragmentation took. Before and After are the database's sizes in bytes, After
	// is 0 if nobody knows it.
	Took          time.Duration
	Before, After int64
	// Cluster is the ID of the cluster in which it was found out what has become of an operation on a member.
	Cluster uint64
}

// Results. The first ones are those of a request that was just sent, and the label outcome of the metrics.
const (
	OutcomeDone    = "done"
	OutcomeRefused = "refused"
	OutcomeBlocked = "blocked"
	OutcomeFailed  = "failed"
	OutcomeUnclear = "unclear"

	// OutcomeFound: it has taken effect, or is without object by now, and nobody has seen that happen.
	OutcomeFound = "found"
	// OutcomeGivenUp: it was given up, and may still take effect.
	OutcomeGivenUp = "given up"
	// OutcomeRuledOut: it can no longer take effect.
	OutcomeRuledOut = "ruled out"
)

var outcomes = []string{OutcomeDone, OutcomeRefused, OutcomeBlocked, OutcomeFailed, OutcomeUnclear}

// ResultOf is the result of a request. For the record's protocol a request is done also if it has failed and nothing
// more can come of it.
func ResultOf(o record.Outcome, err error) string {
	switch {
	case o == record.Done && err == nil:
		return OutcomeDone
	case o == record.Refused:
		return OutcomeRefused
	case o == record.Unclear:
		return OutcomeUnclear
	}
	return OutcomeFailed
}

// entry is what the history tells of it. It returns false if that is nothing.
func (o *Outcome) entry() (_ Entry, told bool) {
	e := Entry{Pod: o.Pod, Rule: string(o.Decision.Rule), Revision: o.Revision, Reason: o.Decision.Reason()}
	if o.Member != nil {
		e.Pod, e.To = o.Member.Label(), o.Member.HeirName
	}
	told = o.Result == OutcomeDone || o.Result == OutcomeFound
	if o.Result == OutcomeFound {
		e.Reason = o.found()
	}
	switch o.Operation {
	case record.Delete, record.Evict:
		e.What, e.Overridden = Removed, overridden(o.Decision)
	case record.MoveLeader:
		e.What = LeaderMoved
	case record.RemoveMember:
		e.What = MemberRemoved
		if o.Result == OutcomeGivenUp {
			e.What, e.Rule, told = MemberSuspected, "", true
			e.Reason = "its removal was given up and may still happen, so it is not relied on: " + o.whyNoLonger()
		}
	case record.Defragment:
		e.What, e.Overridden, e.Reason, told = Defragmented, overridden(o.Decision), o.defragmented(), true
		e.Result = o.ended()
	case record.Disarm:
		e.What, e.Result, told = Disarmed, o.ended(), true
		if o.Err != nil {
			e.Reason = "the alarm NOSPACE was not disarmed, or nobody knows: " + o.Err.Error()
		}
	default:
		return e, false // Nothing has to be told of it.
	}
	return e, told
}

// ended is the result that an entry names: none where it was done.
func (o *Outcome) ended() string {
	if o.Result == OutcomeDone {
		return ""
	}
	return o.Result
}

// found says how it was found out that an operation on the record is over.
func (o *Outcome) found() string {
	seen := " and it is gone; nobody saw it happen"
	switch {
	case o.Member == nil:
		seen = " and the pod is gone; nobody saw it happen"
	case o.Member.Cluster != o.Cluster:
		seen = ", and this is another cluster by now"
	}
	return fmt.Sprintf("its removal stood on record (epoch %d)%s", o.Epoch, seen)
}

// whyNoLonger says why nothing asks for the removal of a member any more.
func (o *Outcome) whyNoLonger() string {
	why := "it was asked for no longer"
	for _, d := range append([]rollout.Decision{o.Decision}, o.Decision.Others...) {
		if d.Duty == rollout.DutyGhosts || d.Duty == rollout.DutyHeld {
			why = d.Reason()
		}
	}
	return why
}

// defragmented says how a defragmentation ended.
func (o *Outcome) defragmented() string {
	took := o.Took.Round(time.Millisecond)
	switch {
	case o.Result == OutcomeFailed:
		return fmt.Sprintf("failed after %v: %v", took, o.Err)
	case o.Result != OutcomeDone:
		return fmt.Sprintf("no answer after %v, and etcd does not end it for that; its member is waited for: %v", took,
			o.Err)
	case o.After > 0:
		return fmt.Sprintf("away for %v, %s before, %s after: %s freed", took, rollout.SizeText(o.Before),
			rollout.SizeText(o.After), rollout.SizeText(max(o.Before-o.After, 0)))
	}
	return fmt.Sprintf("away for %v, %s before", took, rollout.SizeText(o.Before))
}

// podUID is the UID of the pod whose own events tell of it as well. Nobody reads those of a pod that is gone.
func (o *Outcome) podUID() string {
	if o.Operation == record.Defragment {
		return o.Decision.Target().UID
	}
	return ""
}

// overridden are the guards that would have held the removal which is decided on.
func overridden(d rollout.Decision) []string {
	var names []string
	for _, c := range d.Candidates {
		for _, v := range c.Verdicts {
			if c.Pod == d.Target().Pod && v.Overridden && !slices.Contains(names, string(v.Guard)) {
				names = append(names, string(v.Guard))
			}
		}
	}
	return names
}
