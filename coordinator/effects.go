package coordinator

import (
	"context"
	"errors"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/quorate/quorate/internal/record"
)

// readLease reads the record. By the lock, it may be what a watch tells. By the clock, it counts when the Lease was
// read.
func (t *turn) readLease(ctx context.Context) record.Event {
	begun := t.c.now()
	reading, cancel := context.WithTimeout(ctx, t.c.cfg.RequestTimeout)
	defer cancel()
	read := t.c.workload.ReadLease
	if !t.hold.ours && t.right == record.ByLock {
		read = t.c.workload.FreeLease
	}
	lease, err := read(reading)
	if lease != nil {
		t.c.journal.Recall(lease.Annotations, record.Parse(lease).Epoch)
	}
	believed, odd := validate(lease, t.seen.workload.Set, t.seen.workload.Pods, t.c.cfg.RecordDuration)
	outcome := t.read(ctx, "the record cannot be read", err)
	t.validation.tell(odd)
	return record.LeaseRead{Outcome: outcome, Record: believed, Begun: begun}
}

// listPods lists the pods that have to be fenced.
func (t *turn) listPods(ctx context.Context) record.Event {
	t.c.log.Info("the record does not say what was under way before: every pod is changed once, " +
		"so that a removal that nobody knows of has no effect any more")
	t.fenced = nil // Pods that are listed again are changed again.
	reading, cancel := context.WithTimeout(ctx, t.c.cfg.RequestTimeout)
	defer cancel()
	pods, err := t.c.workload.Fenceable(reading)
	return record.PodsListed{Outcome: t.read(ctx, "the pods cannot be listed", err), Pods: pods}
}

// read notes a failed reading.
func (t *turn) read(ctx context.Context, what string, err error) record.Outcome {
	if err == nil {
		return record.Done
	}
	t.fails(ctx, &fault{what: what, err: err, counts: true})
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
		t.fails(ctx, &fault{what: "the record cannot be written", err: err, counts: true})
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
	case record.Done, record.Refused:
		t.tracker.resolved(time.Now(), t.hold.intent, e.Pod)
		earlier := t.hold.intent.Epoch != t.hold.epoch
		t.c.tellFenced(e.Pod, outcome, t.hold.intent, earlier || t.unclear)
	case record.Failed, record.Unclear:
		t.fails(ctx, &fault{what: "an earlier removal of pod " + e.Pod.Name + " cannot be ruled out", err: err,
			counts: true})
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
