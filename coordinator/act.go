package coordinator

import (
	"context"
	"fmt"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/quorate/quorate/internal/record"
	"github.com/quorate/quorate/internal/workload"
	"github.com/quorate/quorate/membership"
	"github.com/quorate/quorate/pkg/rollout"
)

// actor carries out operations, each in a function of its own, and returns what has become of each. It decides nothing
// and tells nobody.
type actor struct {
	c       *Coordinator
	members *membership.Observer
}

// act carries out an operation that rests on an observation. It has to begin and to end in time.
func (a *actor) act(ctx context.Context, o *observation, e record.Act) outcome {
	acting, cancel := context.WithDeadline(ctx, a.c.started.Add(e.Deadline))
	defer cancel()
	defer a.c.gates.Acted()
	// The monotonic clock stands still while a machine is suspended, so the evidence may be far older than it says.
	if age := a.c.cfg.wall().Round(0).Sub(o.begunAt); age > a.c.cfg.MaxEvidenceAge {
		return outcome{result: record.Failed, fault: &fault{what: "what was decided was dropped",
			err: suspendedError(age), counts: true}}
	}
	out, etcd := outcome{intent: e.Intent}, o.state.Etcd
	switch e.Intent.Operation {
	case record.Delete, record.Evict:
		return a.remove(acting, o.workload, e.Intent)
	case record.MoveLeader:
		out.err = a.members.MoveLeader(acting, etcd, e.Intent.Member.ID, e.Intent.Member.Heir)
		return out.ended(record.Failed, "leadership was not moved")
	case record.RemoveMember:
		// It is done only if etcd has said so. What has become of any other request, the next observations show.
		out.err = a.members.RemoveMember(acting, etcd, e.Intent.Member.ID)
		return out.ended(record.Unclear, "the member was not removed")
	case record.Defragment:
		began := time.Now()
		out.sizes, out.err = a.members.Defragment(acting, etcd, e.Intent.Member.ID, a.c.started.Add(e.By))
		out.took = time.Since(began)
		if out.passed() == record.Unclear {
			return out.ended(record.Unclear, "nobody knows whether a defragmentation goes on; its member is waited for")
		}
		return out.ended(record.Done, "a member was not defragmented")
	case record.Disarm:
		out.err = a.members.Disarm(acting, etcd, e.Intent.Member.ID)
		return out.ended(out.passed(), "the alarm NOSPACE was not disarmed")
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

// remove deletes or evicts a pod.
func (a *actor) remove(ctx context.Context, seen workload.Observation, i record.Intent) outcome {
	out := outcome{intent: i, err: a.c.workload.Remove(ctx, seen, i)}
	out.result = record.OutcomeOf(out.err)
	refusal, refused := workload.RefusalOf(out.err, seen.Set.Replicas)
	switch {
	case out.err == nil:
		out.clears = true
	case refused && i.Operation == record.Evict: // No budget is asked before a DELETE.
		// This is not a fault. The decision names what it waits for and asks again after a
		// while.
		out.result, out.refusal = record.Failed, &refusal // Also where the API server answers that with a 500.
	case out.result != record.Refused: // It is no longer the pod that was decided on, so decide again.
		out.fault = &fault{what: "the pod cannot be removed", err: out.err, counts: true}
	}
	return out
}

// withdraw takes a request off the Lease that nothing more can come of. That changes the Lease, so it is not done
// together with what the record has to say. If it fails, the request runs out by itself.
func (a *actor) withdraw(ctx context.Context, q rollout.Request) *fault {
	ctx, cancel := context.WithTimeout(ctx, a.c.cfg.RequestTimeout)
	defer cancel()
	if err := record.Withdraw(ctx, a.c.cfg.Leases, a.c.cfg.StatefulSet, q); err != nil {
		return &fault{what: "the request on the Lease cannot be removed", err: explain(err)}
	}
	return nil
}

// endOverride takes the override for a revision off the Lease, and returns true if it did. If it fails, the override
// ends at its time.
func (a *actor) endOverride(ctx context.Context, revision string) (bool, *fault) {
	ctx, cancel := context.WithTimeout(ctx, a.c.cfg.RequestTimeout)
	defer cancel()
	ended, err := record.EndOverride(ctx, a.c.cfg.Leases, a.c.cfg.StatefulSet, revision)
	if err != nil {
		return false, &fault{what: "the override on the Lease cannot be removed", err: explain(err)}
	}
	return ended, nil
}

// promotion is what has become of setting status.currentRevision. Again says that it is worth another try, and denied
// is the revision for which it is not.
type promotion struct {
	fault  *fault
	again  bool
	denied string
}

// promote sets status.currentRevision. It is a service for others and no reason to hold a rollout. If it is not
// allowed, nothing is tried until the next rollout.
func (a *actor) promote(ctx context.Context, seen workload.Observation) promotion {
	ctx, cancel := context.WithTimeout(ctx, a.c.cfg.RequestTimeout)
	defer cancel()
	err := a.c.workload.Promote(ctx, seen)
	if err == nil {
		return promotion{}
	}
	if record.OutcomeOf(err) == record.Failed && !apierrors.IsTooManyRequests(err) {
		return promotion{denied: seen.Set.UpdateRevision, fault: &fault{what: "status.currentRevision may not be set",
			err: explainFor(err, "deploy/components/promote-current-revision")}}
	}
	return promotion{again: true, fault: &fault{what: "status.currentRevision was not set", err: err, counts: true}}
}
