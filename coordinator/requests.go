package coordinator

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/quorate/quorate/coordinator/election"
	"github.com/quorate/quorate/internal/record"
	"github.com/quorate/quorate/internal/report"
)

// do carries out one effect. The state is the one that asks for it.
func (t *turn) do(ctx context.Context, state *record.State, effect record.Effect) record.Event {
	switch e := effect.(type) {
	case record.ReadLease:
		begun := t.c.now()
		reading, cancel := context.WithTimeout(ctx, t.c.cfg.RequestTimeout)
		defer cancel()
		read := t.c.workload.ReadLease
		if !t.hold.ours && t.right == record.ByLock { // By the clock, it counts when the Lease was read.
			read = t.c.workload.FreeLease
		}
		lease, err := read(reading)
		if lease != nil {
			t.c.journal.Recall(lease.Annotations, record.Parse(lease).Epoch)
		}
		outcome := t.read(ctx, "the record cannot be read", err)
		return record.LeaseRead{Outcome: outcome, Record: t.doubts.trust(lease), Begun: begun}
	case record.CheckRight:
		return record.RightChecked{Held: t.owns(ctx)}
	case record.WriteLease:
		return t.write(ctx, e.Record)
	case record.ListPods:
		t.c.log.Info("the record does not say what was under way before: every pod is changed once, " +
			"so that a removal that nobody knows of has no effect any more")
		t.fenced = nil // Pods that are listed again are changed again.
		reading, cancel := context.WithTimeout(ctx, t.c.cfg.RequestTimeout)
		defer cancel()
		pods, err := t.c.workload.Fenceable(reading)
		return record.PodsListed{Outcome: t.read(ctx, "the pods cannot be listed", err), Pods: pods}
	case record.FencePod:
		return t.fence(ctx, e, state.Fences())
	case record.Observe:
		return t.observer.observe(ctx)
	case record.Act:
		acted := record.Acted{Outcome: t.actor.act(ctx, e)}
		if acted.Outcome == record.Done && t.sight.decision.GoesAlone() && !t.exit.leaving {
			t.c.pause(ctx, afterRemoval)
		}
		return acted
	case record.Rest:
		t.wait(ctx, e.Failed)
		return record.Woken{}
	}
	panic(fmt.Sprintf("the record's protocol asks for %T, which nobody knows", effect))
}

// owns asks etcd whether the lock is ours. It waits for an answer only until the record may be claimed without the
// lock, because quorum may be waiting for us.
func (t *turn) owns(ctx context.Context) bool {
	tenure := t.c.election.Tenure()
	if tenure == nil {
		t.denied, t.unanswered = nil, unanswered{} // The session has ended meanwhile.
		return false
	}
	begun := time.Now()
	asking, cancel := context.WithTimeout(ctx, max(t.c.cfg.FallbackAfter-t.silence(), t.c.cfg.FallbackAfter/4))
	defer cancel()
	t.denied = tenure.Owns(asking)
	if t.denied == nil || errors.Is(t.denied, election.ErrNotOwner) {
		t.unanswered = unanswered{}
		return t.denied == nil
	}
	if t.unanswered.since.IsZero() {
		t.unanswered.since = begun
	}
	t.unanswered.last = time.Now()
	return false
}

// unanswered is since when etcd has not said whether the lock is ours, and when the last question was given up. It is
// zero if etcd has said so.
type unanswered struct{ since, last time.Time }

// silence is for how long etcd has confirmed nothing, as far as we know. A leader that has lost quorum renews leases on
// its own until it notices, up to two election timeouts later. So a renewed lease says nothing of a quorum while the
// lock is asked for in vain. Once it has not been asked for again in FallbackAfter, a renewed lease is a reason to ask.
//
// The silence begins with the first such question also if no keep-alive was overdue by then. Until such a leader has
// noticed, it would keep our probes waiting for longer than this costs.
func (t *turn) silence() time.Duration {
	confirmed, u := t.c.election.Confirmed(), t.unanswered
	if !u.since.IsZero() && time.Since(u.last) < t.c.cfg.FallbackAfter &&
		u.since.Sub(confirmed) <= t.c.cfg.FallbackAfter/2 {
		return time.Since(u.since)
	}
	return time.Since(confirmed)
}

// later is how much longer than for others the record has to have been free before this sidecar
// claims it by the clock. A sidecar that could not go on lets the others try first.
func (t *turn) later() time.Duration {
	if until, reason := t.c.election.Away(); reason != "" && time.Now().Before(until) {
		return t.c.cfg.RecordDuration
	}
	return 0
}

// terms are for how long the record says that it stands, and how often it is renewed. While etcd confirms the lock,
// whoever comes after us has the lock and does not wait for the record. So it is enough to renew it rarely. Without
// that, the record is all that the others go by, and they are not to wait for long.
func (t *turn) terms() (duration, renew time.Duration) {
	duration = t.c.cfg.RecordDuration
	if t.c.owned() && t.silence() < t.c.cfg.FallbackAfter {
		// Nobody believes in more.
		long := min(3*duration, max(duration, record.LongestDuration))
		return long, long * 2 / 3
	}
	return duration, duration / 3
}

// read notes a failed reading.
func (t *turn) read(ctx context.Context, what string, err error) record.Outcome {
	if err == nil {
		return record.Done
	}
	t.trouble.note(ctx, what, err)
	return record.Failed
}

// write writes the record.
func (t *turn) write(ctx context.Context, r record.Record) record.LeaseWritten {
	writing, cancel := context.WithTimeout(ctx, min(t.c.cfg.RequestTimeout, t.c.cfg.MaxEvidenceAge))
	defer cancel()
	written, err := record.Write(writing, t.c.cfg.Leases, t.c.cfg.StatefulSet, r, t.c.journal.Notes())
	if apierrors.IsInvalid(err) || apierrors.IsRequestEntityTooLargeError(err) {
		// Annotations of others may leave no room for our report. The record matters more.
		t.c.log.WithError(err).Debug("the API server refuses the Lease with our notes; it is written without them")
		written, err = record.Write(writing, t.c.cfg.Leases, t.c.cfg.StatefulSet, r, nil)
	}
	outcome, version := record.OutcomeOf(err), ""
	switch outcome {
	case record.Done:
		version = written.ResourceVersion
		t.c.workload.WroteLease(written)
		t.c.journal.Written()
	case record.Refused:
		t.c.workload.ForgetLease()
		t.c.log.WithError(err).Debug("somebody else has written the record")
	case record.Failed, record.Unclear:
		if t.stopping {
			t.c.log.WithError(explain(err)).Warn("the record could not be given back; " +
				"whoever has the lock does not wait for that, without a lock another may claim it after its duration")
			break
		}
		t.trouble.note(ctx, "the record cannot be written", err)
	}
	return record.LeaseWritten{Outcome: outcome, ResourceVersion: version}
}

// fenced is the answer to a change of a pod.
type fenced struct {
	change  record.FencePod
	version string
	err     error
}

// errUnchanged: the pod has the resourceVersion that it had before, so a removal that names that can still reach it.
var errUnchanged = errors.New("the change of its annotation " + record.FencedAnnotation + " has changed nothing, so " +
	"something takes that away again: let admission webhooks and policies leave this annotation of the pods alone " +
	"(see kubectl get mutatingwebhookconfigurations,mutatingadmissionpolicies)")

// fence changes a pod, and at the same time all those that follow. Their answers are kept until they are asked for.
func (t *turn) fence(ctx context.Context, e record.FencePod, all []record.FencePod) record.PodFenced {
	if len(t.fenced) == 0 || t.fenced[0].change != e {
		t.fenced = t.changeAll(ctx, all)
	}
	version, err := t.fenced[0].version, t.fenced[0].err
	t.fenced = t.fenced[1:]
	outcome := record.OutcomeOf(err)
	if err == nil && version == e.Pod.ResourceVersion {
		outcome, err = record.Failed, errUnchanged
	}
	switch outcome {
	case record.Done:
		t.sight.memory.resolved(time.Now(), t.hold.intent, e.Pod)
		const says = "an earlier removal of this pod has no effect from here on"
		switch {
		case t.hold.intent.UID != e.Pod.UID: // It is unknown whether there was one at all.
			t.c.log.WithField("pod", e.Pod.Name).
				Debug("a removal of this pod, if there was one, has no effect from here on")
		case t.hold.intent.Epoch != t.hold.epoch || t.actor.unclear:
			t.c.log.WithField("pod", e.Pod.Name).Info(says)
			t.c.journal.Done(report.Outcome{Intent: t.hold.intent, Result: report.OutcomeRuledOut})
		default: // The API server has refused that removal. This only makes sure of it.
			t.c.log.WithField("pod", e.Pod.Name).Debug(says)
		}
	case record.Refused:
		t.sight.memory.resolved(time.Now(), t.hold.intent, e.Pod)
		if t.hold.intent.UID != e.Pod.UID {
			t.c.log.WithField("pod", e.Pod.Name).Debug("this pod is gone, whoever removed it")
			break
		}
		t.c.log.WithField("pod", e.Pod.Name).Info("an earlier removal of this pod has taken effect")
		t.c.journal.Done(report.Outcome{Intent: t.hold.intent, Result: report.OutcomeFound})
	case record.Failed, record.Unclear:
		t.trouble.note(ctx, "an earlier removal of pod "+e.Pod.Name+" cannot be ruled out", err)
	}
	return record.PodFenced{Outcome: outcome, ResourceVersion: version}
}

func (t *turn) changeAll(ctx context.Context, all []record.FencePod) []fenced {
	writing, cancel := context.WithTimeout(ctx, t.c.cfg.RequestTimeout)
	defer cancel()
	answers := make([]fenced, len(all))
	var changing sync.WaitGroup
	for i, e := range all {
		changing.Go(func() {
			version, err := t.c.workload.Fence(writing, e.Pod, e.Value)
			answers[i] = fenced{change: e, version: version, err: err}
		})
	}
	changing.Wait()
	return answers
}
