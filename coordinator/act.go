package coordinator

import (
	"context"
	"fmt"
	"time"

	"github.com/sirupsen/logrus"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/quorate/quorate/internal/record"
	"github.com/quorate/quorate/internal/report"
	"github.com/quorate/quorate/internal/workload"
	"github.com/quorate/quorate/membership"
)

// actor carries out operations, each in a function of its own.
type actor struct {
	c       *Coordinator
	exit    *exit
	sight   *sight
	trouble *trouble
	members *membership.Observer
	// unclear means that nobody knows how our last removal ended.
	unclear bool
}

// act carries out an operation, which has to begin and to end in time.
func (a *actor) act(ctx context.Context, e record.Act) record.Outcome {
	acting, cancel := context.WithDeadline(ctx, a.c.started.Add(e.Deadline))
	defer cancel()
	defer a.c.gates.Acted()
	// The monotonic clock stands still while a machine is suspended, so the evidence may be far older than it says.
	if age := a.c.cfg.wall().Round(0).Sub(a.sight.begunAt); age > a.c.cfg.MaxEvidenceAge {
		a.trouble.note(ctx, "what was decided was dropped", suspendedError(age))
		return record.Failed
	}
	switch e.Intent.Operation {
	case record.Delete, record.Evict:
		return a.remove(ctx, acting, e)
	case record.MoveLeader:
		return a.moveLeader(acting, *e.Intent.Member)
	case record.RemoveMember:
		return a.removeMember(acting, *e.Intent.Member)
	case record.Defragment:
		return a.defragment(acting, *e.Intent.Member, a.c.started.Add(e.By))
	case record.Disarm:
		return a.disarm(acting, *e.Intent.Member)
	case record.None, record.FenceAll:
	}
	panic("the record's protocol asks to carry out " + e.Intent.String())
}

// suspendedError is how old the evidence is by the wall clock.
type suspendedError time.Duration

func (e suspendedError) Error() string {
	return fmt.Sprintf("its evidence is %v old by the wall clock: this machine was suspended, or its clock was set",
		time.Duration(e).Round(time.Second))
}

// remove deletes or evicts a pod. The second context ends at the deadline.
func (a *actor) remove(ctx, removing context.Context, e record.Act) record.Outcome {
	err := a.c.workload.Remove(removing, a.sight.seen, e.Intent)
	outcome := record.OutcomeOf(err)
	done := report.Outcome{Intent: e.Intent, Decision: a.sight.decision, Result: report.ResultOf(outcome, err)}
	refusal, refused := workload.RefusalOf(err, a.sight.seen.Set.Replicas)
	refused = refused && e.Intent.Operation == record.Evict // No budget is asked before a DELETE.
	if refused {
		outcome = record.Failed // Also where the API server answers that with a 500.
		done.Result = report.OutcomeBlocked
	}
	a.unclear = outcome == record.Unclear
	a.c.journal.Done(done)
	log := a.c.log.WithFields(logrus.Fields{"pod": e.Intent.Pod, "uid": e.Intent.UID})
	switch {
	case err == nil:
		a.trouble.faults.clear()
		a.sight.memory.gone(e.Intent.Pod, e.Intent.UID)
		log.Info("pod removed")
		// Our own pod takes with it the etcd member over which the lock can be released.
		a.exit.leaving = e.Intent.Pod == a.c.self.Pod
		a.exit.over = a.exit.leaving
	case refused:
		// This is not a fault. The decision names what it waits for and asks again after a
		// while.
		a.sight.memory.refuse(time.Now(), refusal)
		log.WithError(err).Debug("the eviction was refused")
	case outcome == record.Refused:
		// It is no longer the pod that was decided on, so decide again.
		log.WithError(err).Info("the removal was refused")
		a.charged(e.Intent)
	default:
		a.charged(e.Intent)
		a.trouble.note(ctx, "the pod cannot be removed", err)
	}
	return outcome
}

// charged notes that a budget may be charged for an eviction of which no effect is known.
func (a *actor) charged(i record.Intent) {
	if i.Operation == record.Evict {
		a.sight.memory.charged = time.Now()
	}
}

// moveLeader counts what fails: after two failures the pod goes anyway.
func (a *actor) moveLeader(ctx context.Context, from record.Member) record.Outcome {
	err := a.members.MoveLeader(ctx, a.sight.etcd, from.ID, from.Heir)
	a.done(record.MoveLeader, from, record.Done, err)
	if err != nil {
		a.sight.memory.failedTransfers[from.ID]++
		a.trouble.faults.note(a.c.log, "leadership was not moved", err)
		return record.Failed
	}
	delete(a.sight.memory.failedTransfers, from.ID)
	a.c.log.WithField("from", from.Name).WithField("to", from.HeirName).Info("leadership moved")
	return record.Done
}

// removeMember says that it is done only if etcd has said so. What has become of any other request, the next
// observations show.
func (a *actor) removeMember(ctx context.Context, m record.Member) record.Outcome {
	err := a.members.RemoveMember(ctx, a.sight.etcd, m.ID)
	a.done(record.RemoveMember, m, record.OutcomeOf(err), err)
	if err != nil {
		a.trouble.faults.note(a.c.log, "the member was not removed", err)
		return record.Unclear
	}
	a.trouble.faults.clear()
	a.c.log.WithField("member", m.Label()).Info("member removed from etcd's list")
	return record.Done
}

// done reports what has become of an operation on a member.
func (a *actor) done(o record.Operation, m record.Member, outcome record.Outcome, err error) {
	a.c.journal.Done(report.Outcome{
		Intent: record.Intent{Operation: o, Member: &m}, Decision: a.sight.decision,
		Result: report.ResultOf(outcome, err), Err: err,
	})
}

// promote sets status.currentRevision where that is configured and still to be done. It is a
// service for others and no reason to hold a rollout. If it is not allowed, that is logged, and
// nothing is tried until the next rollout. An error means that it is worth another try.
func (a *actor) promote(ctx context.Context) error {
	if !a.c.unpromoted(a.sight.seen) {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, a.c.cfg.RequestTimeout)
	defer cancel()
	err := a.c.workload.Promote(ctx, a.sight.seen)
	switch record.OutcomeOf(err) {
	case record.Done:
		a.c.log.WithField("revision", a.sight.seen.Set.UpdateRevision).
			Info("status.currentRevision set: the rollout is over for Kubernetes as well")
		return nil
	case record.Failed:
		if apierrors.IsTooManyRequests(err) {
			return err
		}
		a.c.notPromoted = a.sight.seen.Set.UpdateRevision
		a.trouble.faults.note(a.c.log, "status.currentRevision may not be set",
			explainFor(err, "deploy/components/promote-current-revision"))
		return nil
	case record.Refused, record.Unclear:
	}
	return err
}

// unpromoted is true when status.currentRevision is behind, and we are to set it.
func (c *Coordinator) unpromoted(o workload.Observation) bool {
	return c.cfg.PromoteCurrentRevision && o.Set.OnDelete && !o.Set.Deleting && o.Set.UpdateRevision != "" &&
		o.CurrentRevision != o.Set.UpdateRevision && c.notPromoted != o.Set.UpdateRevision
}
