package coordinator

import (
	"context"
	"time"

	"github.com/quorate/quorate/internal/record"
	"github.com/quorate/quorate/internal/report"
	"github.com/quorate/quorate/membership"
	"github.com/quorate/quorate/pkg/rollout"
)

// defragment has a member rewrite its database, if that can be asked for before the given time. What fails counts:
// after two failures it is not tried again.
func (a *actor) defragment(ctx context.Context, m record.Member, by time.Time) record.Outcome {
	began := time.Now()
	sizes, err := a.members.Defragment(ctx, a.sight.etcd, m.ID, by)
	took := time.Since(began)
	if err == nil {
		a.sight.memory.tries[m.ID] = &try{Try: rollout.Try{Done: true, Left: sizes.Left}}
	} else {
		failed(a.sight.memory.tries, m.ID, time.Now(), err)
	}
	outcome := passed(err)
	a.c.journal.Done(report.Outcome{
		Intent: record.Intent{Operation: record.Defragment, Member: &m}, Decision: a.sight.decision,
		Result: report.ResultOf(outcome, err), Err: err, Took: took, Before: sizes.Before, After: sizes.After,
	})
	log := a.c.log.WithField("member", m.Name).WithField("took", took)
	switch {
	case err == nil:
		a.trouble.faults.clear()
		log.WithField("before", sizes.Before).WithField("after", sizes.After).Info("member defragmented")
	case outcome == record.Done:
		a.trouble.faults.note(a.c.log, "a member was not defragmented", err)
	default:
		a.trouble.faults.note(a.c.log, "nobody knows whether a defragmentation goes on; its member is waited for", err)
	}
	return outcome
}

// disarm ends the alarm NOSPACE of a member.
func (a *actor) disarm(ctx context.Context, m record.Member) record.Outcome {
	err := a.members.Disarm(ctx, a.sight.etcd, m.ID)
	outcome := passed(err)
	a.done(record.Disarm, m, outcome, err)
	if err != nil {
		failed(a.sight.memory.kept, m.ID, time.Now(), err)
		a.trouble.faults.note(a.c.log, "the alarm NOSPACE was not disarmed", err)
		return outcome
	}
	a.sight.memory.disarmed[m.ID]++
	delete(a.sight.memory.kept, m.ID)
	a.trouble.faults.clear()
	a.c.log.WithField("member", m.Name).Info("alarm NOSPACE disarmed")
	return outcome
}

// passed is what the record's protocol has to know of a call: whether anything more can come of it.
func passed(err error) record.Outcome {
	if err == nil || membership.Over(err) {
		return record.Done
	}
	return record.Unclear
}

// try is what has become of an operation on a member. After one that failed, there is a pause until the next, which
// doubles: what fails at once would otherwise be asked for again at once.
type try struct {
	rollout.Try
	until time.Time
	pause time.Duration
}

const firstTryAgain, longestTryAgain = 2 * time.Second, time.Minute

// failed notes that an operation on a member has failed. One that was never sent has not stopped the member, and does
// not count.
func failed(tries map[uint64]*try, member uint64, now time.Time, err error) {
	t := tries[member]
	if t == nil {
		t = &try{}
		tries[member] = t
	}
	if !membership.NotSent(err) {
		t.Failed++
	}
	t.Words, t.Lasting = err.Error(), membership.Denied(err)
	t.pause = min(max(2*t.pause, firstTryAgain), longestTryAgain)
	t.until = now.Add(t.pause)
}

// told is what a decision may know of tries.
func told(tries map[uint64]*try, now time.Time) map[uint64]rollout.Try {
	known := make(map[uint64]rollout.Try, len(tries))
	for member, t := range tries {
		known[member] = t.Try
		if now.Before(t.until) {
			t := t.Try
			t.Resting = true
			known[member] = t
		}
	}
	return known
}

// causes forgets what was tried before an operator has asked for a defragmentation, and before the alarm NOSPACE ended:
// should it come back, there is something new to free.
func (m *memory) causes(r *rollout.Request, alarm bool) {
	asked := r != nil && r.Operation == rollout.RequestDefragment
	if asked && !m.asked || m.alarmed && !alarm {
		clear(m.tries)
		clear(m.kept)
	}
	if asked && !m.asked {
		clear(m.disarmed)
	}
	m.asked, m.alarmed = asked, alarm
}
