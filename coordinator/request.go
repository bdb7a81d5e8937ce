package coordinator

import (
	"context"

	"github.com/quorate/quorate/internal/record"
	"github.com/quorate/quorate/internal/report"
	"github.com/quorate/quorate/pkg/rollout"
)

// resolution is what was seen of an operation on the record, or of the suspect.
func (o *observer) resolution(r record.Record, s rollout.State) record.Resolution {
	next, intent := record.NextOf(o.sight.decision, s.Set.UpdateRevision)
	return record.ResolutionOf(&r, o.sight.decision.Assessment, forgets(s.Request, r.Suspect), next, intent)
}

// forgets is true for an operator's word that the suspect's removal cannot happen any more.
func forgets(r *rollout.Request, suspect *record.Member) bool {
	return r != nil && suspect != nil && r.Operation == rollout.RequestForgetMember && r.Member == suspect.ID &&
		r.Cluster == suspect.Cluster
}

// answer tells what has become of the removal on the record, and takes a request off the Lease that nothing
// more can come of. That changes the Lease, so it is not done together with what the record has to say.
func (o *observer) answer(ctx context.Context, r record.Record, resolution record.Resolution, s rollout.State) error {
	q, on, over := s.Request, r.Intent, false
	switch {
	case on.Operation != record.RemoveMember:
		over = o.sight.decision.Assessment.Fulfilled() ||
			q != nil && q.Operation == rollout.RequestForgetMember && !forgets(q, r.Suspect)
	case resolution == record.Settled:
		o.c.journal.Done(report.Outcome{Intent: on, Result: report.OutcomeFound, Cluster: s.Etcd.ClusterID})
	case resolution == record.Refuted:
		// As long as it stands, the same would begin again.
		if over = q != nil && q.Operation == rollout.RequestRemoveMember && q.Member == on.Member.ID; !over {
			o.c.journal.Done(report.Outcome{Intent: on, Decision: o.sight.decision, Result: report.OutcomeGivenUp})
		}
	}
	if !over {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, o.c.cfg.RequestTimeout)
	defer cancel()
	return record.Withdraw(ctx, o.c.cfg.Leases, o.c.cfg.StatefulSet, *q)
}
