package coordinator

import (
	"time"

	"github.com/sirupsen/logrus"

	"github.com/quorate/quorate/internal/record"
	"github.com/quorate/quorate/internal/report"
	"github.com/quorate/quorate/pkg/rollout"
)

// tellOutcome tells what has become of an operation that was decided on.
func (c *Coordinator) tellOutcome(d *decision, out *outcome) {
	done := report.Outcome{Intent: out.intent, Decision: d.Decision, Result: report.ResultOf(out.result, out.err),
		Err: out.err, Took: out.took, Before: out.sizes.Before, After: out.sizes.After}
	if out.refusal != nil {
		done.Result = report.OutcomeBlocked
	}
	c.journal.Done(done)
	if out.removes() {
		log := c.log.WithFields(logrus.Fields{"pod": out.intent.Pod, "uid": out.intent.UID})
		switch {
		case out.err == nil:
			log.Info("pod removed")
		case out.refusal != nil:
			log.WithError(out.err).Debug("the eviction was refused")
		case out.result == record.Refused:
			log.WithError(out.err).Info("the removal was refused")
		}
		return
	}
	m := out.intent.Member
	if m == nil || out.err != nil {
		return // A fault tells of it.
	}
	log := c.log.WithField("member", m.Label())
	switch out.intent.Operation {
	case record.MoveLeader:
		c.log.WithField("from", m.Name).WithField("to", m.HeirName).Info("leadership moved")
	case record.RemoveMember:
		log.Info("member removed from etcd's list")
	case record.Defragment:
		log.WithField("took", out.took).WithField("before", out.sizes.Before).WithField("after", out.sizes.After).
			Info("member defragmented")
	case record.Disarm:
		log.Info("alarm NOSPACE disarmed")
	case record.None, record.FenceAll, record.Delete, record.Evict:
	}
}

// tellBlocked tells of an eviction that a PodDisruptionBudget refuses before it is sent.
func (c *Coordinator) tellBlocked(d *decision) {
	c.journal.Done(report.Outcome{Intent: record.Intent{Operation: record.Evict}, Decision: d.Decision,
		Result: report.OutcomeBlocked})
}

// tellFenced tells that a pod cannot be removed any more, or that it is gone. The intent is what stands on the record,
// and unclear says that nobody knows what became of it.
func (c *Coordinator) tellFenced(pod record.Pod, o record.Outcome, i record.Intent, unclear bool) {
	log, named := c.log.WithField("pod", pod.Name), i.UID == pod.UID
	const says = "an earlier removal of this pod has no effect from here on"
	switch {
	case o == record.Refused && named:
		log.Info("an earlier removal of this pod has taken effect")
		c.journal.Done(report.Outcome{Intent: i, Result: report.OutcomeFound})
	case o == record.Refused:
		log.Debug("this pod is gone, whoever removed it")
	case !named: // It is unknown whether there was one at all.
		log.Debug("a removal of this pod, if there was one, has no effect from here on")
	case unclear:
		log.Info(says)
		c.journal.Done(report.Outcome{Intent: i, Result: report.OutcomeRuledOut})
	default: // The API server has refused that removal. This only makes sure of it.
		log.Debug(says)
	}
}

// tellDecision tells what was seen and decided.
func (c *Coordinator) tellDecision(o *observation, d *decision, epoch int) {
	on := o.record.Intent
	if d.found {
		c.journal.Done(report.Outcome{Intent: on, Result: report.OutcomeFound, Cluster: o.state.Etcd.ClusterID})
	}
	if d.suspected {
		c.journal.Done(report.Outcome{Intent: on, Decision: d.Decision, Result: report.OutcomeGivenUp})
	}
	switch to := d.choice.To; {
	case to != nil:
		c.log.WithField("to", to.Pod).Infof("handing over: %s", d.choice.Reason)
		c.journal.HandsOver(to.Pod, d.choice.Reason)
		return
	case d.choice.Await != "":
		c.log.Debug(d.choice.Reason)
	}
	if d.quiet {
		return
	}
	c.journal.Decided(report.Sight{
		Namespace: c.cfg.Namespace, StatefulSet: c.cfg.StatefulSet,
		At:    time.Now().UTC().Truncate(time.Millisecond),
		State: d.state, Decision: d.Decision, Policy: &c.cfg.Policy,
		Coordinator: c.name(), Epoch: epoch,
		Fallback: !c.owned() || c.election.Silent(c.cfg.FallbackAfter) <= 0,
	})
}

// tellPromotion tells that status.currentRevision was set.
func (c *Coordinator) tellPromotion(set *rollout.Set) {
	c.log.WithField("revision", set.UpdateRevision).
		Info("status.currentRevision set: the rollout is over for Kubernetes as well")
}
