package coordinator

import (
	"context"
	"time"

	"github.com/quorate/quorate/internal/membership"
	"github.com/quorate/quorate/internal/record"
	"github.com/quorate/quorate/internal/rollout"
)

// defragment has a member rewrite its database, if that can be asked for before the given time. What fails counts:
// after two failures it is not tried again.
func (a *actor) defragment(ctx context.Context, m record.Member, by time.Time) record.Outcome {
	began := time.Now()
	sizes, err := a.members.Defragment(ctx, a.sight.etcd, m.ID, by)
	took := time.Since(began)
	a.sight.memory.tried(m.ID, sizes, err)
	outcome := passed(err)
	a.c.account.defragmented(a.sight.decision, m, sizes, took, err, outcome)
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
	a.sight.memory.disarmed[m.ID]++
	a.c.account.disarmed(a.sight.decision, m, err)
	if err != nil {
		a.trouble.faults.note(a.c.log, "the alarm NOSPACE was not disarmed", err)
		return outcome
	}
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

// tried notes how a defragmentation of a member has ended.
func (m *memory) tried(member uint64, sizes membership.Sizes, err error) {
	try := m.tries[member]
	if err == nil {
		try = rollout.Try{Done: true, Left: sizes.Left}
	} else {
		try.Failed++
		try.Words, try.Lasting = err.Error(), membership.Denied(err)
	}
	m.tries[member] = try
}

// causes forgets what was tried before an operator has asked for a defragmentation, and before the alarm NOSPACE ended:
// should it come back, there is something new to free.
func (m *memory) causes(r *rollout.Request, alarm bool) {
	asked := r != nil && r.Operation == rollout.RequestDefragment
	if asked && !m.asked || m.alarmed && !alarm {
		clear(m.tries)
	}
	if asked && !m.asked {
		clear(m.disarmed)
	}
	m.asked, m.alarmed = asked, alarm
}
