package report

import (
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/quorate/quorate/internal/record"
	"github.com/quorate/quorate/pkg/rollout"
)

// ReasonNotReported is the reason of every condition and member where nobody reports.
const ReasonNotReported = "NotReported"

// Recorded is the best status there can be for a reader that looks at nothing itself, and only has what coordinators
// wrote. lease is the record that the report stands beside.
func Recorded(last Report, history History, lease record.Record, now time.Time) Status {
	s := Status{Report: last, Now: now, Word: OldWord, Last: last, Holder: lease.Holder, Claims: lease.Epoch,
		Current: last.Fresh(now, lease), History: history}
	// A coordinator that has finished lets the record go. What it saw at the end is good for a moment.
	if s.Current || last.Action == rollout.ActionComplete && last.within(now, FreshFor) {
		s.Word = CoordinatorsWord
	} else {
		s.Faults = nil
	}
	if t := s.OverrideTerms; t != nil && !t.Until.IsZero() && !now.Before(t.Until) {
		s.Overrides = nil
	}
	return s
}

// silence is the verdict where nobody reports. What the last report said of etcd is not repeated as if it were so.
func (s *Status) silence() Verdict {
	v := Verdict{NotKnown, "nobody has reported for " + Ago(s.Now, s.At), notTold}
	switch {
	case s.At.IsZero():
		v.Detail = "no coordinator has reported anything yet"
	case s.At.After(s.Now):
		v.Detail = "the last report is from " + Clock(s.At) + ", and by the clock here that is still to come"
	}
	return v
}

// silent takes out of DEP-01's shape what would claim that things are still as the last report said.
func (e *EtcdStatus) silent(why string) {
	for i := range e.Conditions {
		c := &e.Conditions[i]
		c.Status, c.Reason, c.Message = metav1.ConditionUnknown, ReasonNotReported, why
		c.LastTransitionTime = time.Time{}
	}
	for i := range e.Members {
		m := &e.Members[i]
		m.Status, m.Reason, m.Message, m.LastTransitionTime = memberUnknown, ReasonNotReported, why, time.Time{}
	}
}
