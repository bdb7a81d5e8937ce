package coordinator

import (
	"time"

	"github.com/quorate/quorate/internal/record"
	"github.com/quorate/quorate/membership"
	"github.com/quorate/quorate/pkg/rollout"
)

// outcome is what has become of an operation.
type outcome struct {
	intent record.Intent
	// result is what the record's protocol has to know of it, and err is what was answered.
	result record.Outcome
	err    error
	// refusal is the word of a PodDisruptionBudget, nil if none has refused.
	refusal *rollout.Refusal
	// sizes and took are those of a defragmentation.
	sizes membership.Sizes
	took  time.Duration
	// fault is what has failed, nil if nothing has. With clears, everything works again.
	fault  *fault
	clears bool
}

// ended is the end of an operation on a member. If that has failed, it has the result and a fault of the name.
func (out outcome) ended(failed record.Outcome, what string) outcome {
	if out.err != nil {
		out.result, out.fault = failed, &fault{what: what, err: out.err}
		return out
	}
	out.result, out.clears = record.Done, out.intent.Operation != record.MoveLeader
	return out
}

// passed is what the record's protocol has to know of a call: whether anything more can come of it.
func (out *outcome) passed() record.Outcome {
	if out.err == nil || membership.Over(out.err) {
		return record.Done
	}
	return record.Unclear
}

// removes is true for the removal of a pod.
func (out *outcome) removes() bool {
	return out.intent.Operation == record.Delete || out.intent.Operation == record.Evict
}
