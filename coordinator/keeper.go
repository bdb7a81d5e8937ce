package coordinator

import (
	"context"
	"errors"
	"sync"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/quorate/quorate/internal/record"
	"github.com/quorate/quorate/internal/workload"
)

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

// keeper reads and writes the record, and changes pods so that earlier removals have no effect. It decides nothing, and
// returns what has failed.
type keeper struct {
	c *Coordinator
	// fenced are the answers for pods that were changed together with the last one that was asked for.
	fenced []fenced
}

// found is what was read of the Lease: the record, beside it what quorum rests on, and in words what makes no sense.
type found struct {
	record.LeaseRead

	needed record.Needed
	odd    []string
}

// read reads the record. With free, that is before a claim by the lock, it may be what a watch tells if nobody holds
// it. By the clock, it counts when the Lease was read.
func (k *keeper) read(ctx context.Context, free bool, seen workload.Observation) (found, *fault) {
	begun := k.c.now()
	reading, cancel := context.WithTimeout(ctx, k.c.cfg.RequestTimeout)
	defer cancel()
	read := k.c.workload.ReadLease
	if free {
		read = k.c.workload.FreeLease
	}
	lease, err := read(reading)
	if lease != nil {
		k.c.journal.Recall(lease.Annotations, record.Parse(lease).Epoch)
	}
	believed, odd := validate(lease, seen.Set, seen.Pods, k.c.cfg.RecordDuration)
	outcome, failed := wasRead("the record cannot be read", err)
	return found{LeaseRead: record.LeaseRead{Outcome: outcome, Record: believed, Begun: begun},
		needed: record.NeededOf(lease), odd: odd}, failed
}

// list lists the pods that have to be fenced.
func (k *keeper) list(ctx context.Context) (record.PodsListed, *fault) {
	k.c.log.Info("the record does not say what was under way before: every pod is changed once, " +
		"so that a removal that nobody knows of has no effect any more")
	k.fenced = nil // Pods that are listed again are changed again.
	reading, cancel := context.WithTimeout(ctx, k.c.cfg.RequestTimeout)
	defer cancel()
	pods, err := k.c.workload.Fenceable(reading)
	outcome, failed := wasRead("the pods cannot be listed", err)
	return record.PodsListed{Outcome: outcome, Pods: pods}, failed
}

// wasRead is what has become of a reading.
func wasRead(what string, err error) (record.Outcome, *fault) {
	if err == nil {
		return record.Done, nil
	}
	return record.Failed, &fault{what: what, err: err, counts: true}
}

// write writes the record, and beside it what quorum rests on.
func (k *keeper) write(ctx context.Context, r record.Record, needed record.Needed) (record.LeaseWritten, *fault) {
	writing, cancel := context.WithTimeout(ctx, min(k.c.cfg.RequestTimeout, k.c.cfg.MaxEvidenceAge))
	defer cancel()
	written, err := record.Write(writing, k.c.cfg.Leases, k.c.cfg.StatefulSet, r, needed, k.c.journal.Notes())
	if apierrors.IsInvalid(err) || apierrors.IsRequestEntityTooLargeError(err) {
		// Annotations of others may leave no room for our report. The record matters more.
		k.c.log.WithError(err).Debug("the API server refuses the Lease with our notes; it is written without them")
		written, err = record.Write(writing, k.c.cfg.Leases, k.c.cfg.StatefulSet, r, needed, nil)
	}
	switch outcome := record.OutcomeOf(err); outcome {
	case record.Done:
		k.c.workload.WroteLease(written)
		k.c.journal.Written()
		return record.LeaseWritten{Outcome: outcome, ResourceVersion: written.ResourceVersion}, nil
	case record.Refused:
		k.c.workload.ForgetLease()
		k.c.log.WithError(err).Debug("somebody else has written the record")
		return record.LeaseWritten{Outcome: outcome}, nil
	default:
		return record.LeaseWritten{Outcome: outcome},
			&fault{what: "the record cannot be written", err: err, counts: true}
	}
}

// fence changes a pod, and at the same time all those that follow. Their answers are kept until they are asked for.
func (k *keeper) fence(ctx context.Context, e record.FencePod, all []record.FencePod) (record.PodFenced, *fault) {
	if len(k.fenced) == 0 || k.fenced[0].change != e {
		k.fenced = k.changeAll(ctx, all)
	}
	version, err := k.fenced[0].version, k.fenced[0].err
	k.fenced = k.fenced[1:]
	outcome := record.OutcomeOf(err)
	if err == nil && version == e.Pod.ResourceVersion {
		outcome, err = record.Failed, errUnchanged
	}
	done := record.PodFenced{Outcome: outcome, ResourceVersion: version}
	if outcome == record.Done || outcome == record.Refused {
		return done, nil
	}
	return done, &fault{what: "an earlier removal of pod " + e.Pod.Name + " cannot be ruled out", err: err,
		counts: true}
}

func (k *keeper) changeAll(ctx context.Context, all []record.FencePod) []fenced {
	writing, cancel := context.WithTimeout(ctx, k.c.cfg.RequestTimeout)
	defer cancel()
	answers := make([]fenced, len(all))
	var changing sync.WaitGroup
	for i, e := range all {
		changing.Go(func() {
			version, err := k.c.workload.Fence(writing, e.Pod, e.Value)
			answers[i] = fenced{change: e, version: version, err: err}
		})
	}
	changing.Wait()
	return answers
}
