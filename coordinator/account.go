package coordinator

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/sirupsen/logrus"

	"github.com/quorate/quorate/internal/record"
	"github.com/quorate/quorate/internal/report"
	"github.com/quorate/quorate/membership"
	"github.com/quorate/quorate/pkg/rollout"
)

// account is what this process tells about itself in its log, its events, its metrics, its page
// and on the Lease. No decision rests on it.
type account struct {
	log     *logrus.Entry
	metrics *report.Metrics
	events  *report.Recorder

	mu           sync.Mutex
	coordinating bool
	// name and epoch are those of our last claim.
	name    string
	epoch   int
	last    report.Report
	history report.History
	// logged is the key of the last decision that was logged, and news is true while the Lease
	// does not have it yet.
	logged string
	news   bool
	// failing holds what this sidecar fails at now, by the name of what it was doing.
	failing map[string]failure
}

// failure is what fails, and the words that report it.
type failure struct{ what, words string }

// faults counts failures of one kind and reports them to the account.
func (a *account) faults(at string) faults { return faults{account: a, at: at} }

// fails notes that something has failed so many times in a row. Every report names it until it
// works again.
func (a *account) fails(at, what string, err error, row int) {
	if a == nil {
		return
	}
	a.metrics.Failures(at, row)
	f := failure{what: what, words: what + ": " + err.Error()}
	a.mu.Lock()
	defer a.mu.Unlock()
	last, known := a.failing[at]
	if known && last.what == what && errors.Is(err, context.DeadlineExceeded) {
		return // Its wording varies; it is the same fault.
	}
	if a.failing == nil {
		a.failing = map[string]failure{}
	}
	a.failing[at] = f
	a.retell()
}

// works notes that it works again.
func (a *account) works(at string) {
	if a == nil {
		return
	}
	a.metrics.Failures(at, 0)
	a.mu.Lock()
	defer a.mu.Unlock()
	delete(a.failing, at)
	a.retell()
}

// retell puts the present faults into the last report, so that they reach the Lease.
func (a *account) retell() {
	if now := a.present(); !slices.Equal(now, a.last.Faults) {
		a.last.Faults, a.news = now, true
	}
}

// present returns the present faults.
func (a *account) present() []string {
	var words []string
	for _, at := range slices.Sorted(maps.Keys(a.failing)) {
		words = append(words, a.failing[at].words)
	}
	return words
}

// recall takes over what another coordinator has told since our own last claim, so that times
// and history go on. What cannot be read is dropped, because no decision rests on it.
func (a *account) recall(annotations map[string]string, epoch int) {
	last, history, err := report.FromNotes(annotations)
	if err != nil {
		a.log.WithError(err).Debug("what the last coordinator told cannot be read")
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if !a.coordinating || epoch != a.epoch {
		a.last, a.history = last, history
	}
}

// coordinates notes that the record has been claimed.
func (a *account) coordinates(name string, epoch int) {
	a.metrics.Coordinates(epoch)
	a.mu.Lock()
	defer a.mu.Unlock()
	a.coordinating, a.name, a.epoch, a.logged, a.news = true, name, epoch, "", false
}

// rests notes that another process may coordinate from now on.
func (a *account) rests() {
	a.metrics.Rests()
	a.mu.Lock()
	defer a.mu.Unlock()
	a.coordinating = false
}

// finished notes that a rollout is over. Nothing is observed until the next one.
func (a *account) finished() {
	a.metrics.Idles()
	a.mu.Lock()
	defer a.mu.Unlock()
	a.coordinating = false
}

// about sets the object that the events are about.
func (a *account) about(namespace string, set rollout.Set) {
	a.events.About(namespace, set.Name, set.UID)
}

// decided reports a decision. It is logged when it differs from the last one in more than its
// numbers.
func (a *account) decided(s report.Sight) {
	a.mu.Lock()
	last := a.last
	now := report.New(s, last)
	now.Faults = a.present()
	a.last = now
	changed := now.Key() != a.logged
	a.logged = now.Key()
	a.news = a.news || changed || !slices.Equal(now.Faults, last.Faults) ||
		!report.SameGhosts(now.Ghosts, last.Ghosts) || !now.Answers(last.Asked)
	a.mu.Unlock()

	a.metrics.Show(now)
	a.metrics.Databases(s.Decision.Assessment.Fullest())
	if a.events.Show(now) {
		a.mu.Lock()
		a.last.LastEvent = now.At
		a.mu.Unlock()
	}
	if began := now.Rolling() && !last.Rolling(); began || !slices.Equal(now.Overrides, last.Overrides) {
		a.events.Override(now.Overrides)
	}
	for _, g := range now.Ghosts {
		if !slices.ContainsFunc(last.Ghosts, func(told report.Ghost) bool { return told.ID == g.ID }) {
			a.log.Warn(g.Tell(now.At))
			a.events.Ghost(g, now.At)
		}
	}
	if changed {
		a.line(now)
	}
	if last.Rolling() && !now.Rolling() && !now.Ended.IsZero() {
		a.done(report.Entry{What: report.Completed, Rule: string(now.Rule), Revision: now.UpdateRevision,
			Reason: now.Reason})
	}
}

// line is the log's renderer of a report.
func (a *account) line(r report.Report) {
	fields := logrus.Fields{"action": string(r.Action), "rule": string(r.Rule)}
	if r.Voters > 0 {
		fields["serving"], fields["voters"], fields["quorum"] = r.Serving, r.Voters, r.Quorum
	}
	if r.Guard != "" {
		fields["guard"] = string(r.Guard)
	}
	if r.Target != "" {
		fields["target"] = r.Target
	}
	if len(r.Overrides) > 0 {
		fields["overridden"] = r.Overrides
	}
	a.log.WithFields(fields).Info(r.Reason)
}

// done reports something that was done.
func (a *account) done(e report.Entry) { a.doneTo(e, "") }

// doneTo reports something that was done to a pod that stays, so that its own events tell of it too. The rest of the
// entry comes from the last report.
func (a *account) doneTo(e report.Entry, podUID string) {
	a.mu.Lock()
	e.At, e.By, e.Epoch = time.Now().UTC().Truncate(time.Millisecond), a.name, a.epoch
	if e.Revision == "" {
		e.Revision = a.last.UpdateRevision
	}
	a.history = a.history.Add(e)
	a.news = true
	a.mu.Unlock()
	a.events.Tell(e, podUID)
}

// removed reports how a removal ended.
func (a *account) removed(d rollout.Decision, i record.Intent, o record.Outcome, blocked bool) {
	outcome := report.OutcomeUnclear
	switch {
	case blocked:
		outcome = report.OutcomeBlocked
	case o == record.Done:
		outcome = report.OutcomeDone
	case o == record.Refused:
		outcome = report.OutcomeRefused
	case o == record.Failed:
		outcome = report.OutcomeFailed
	}
	a.metrics.Removal(string(d.Rule), outcome)
	if o == record.Done {
		a.done(report.Entry{What: report.Removed, Pod: i.Pod, Rule: string(d.Rule), Revision: i.Revision,
			Reason:     d.Reason(),
			Overridden: report.Overridden(d)}) // Nobody reads the events of a pod that is gone.
	}
}

// blocked counts an eviction that a PodDisruptionBudget refuses before it is sent.
func (a *account) blocked(d rollout.Decision) {
	a.metrics.Removal(string(d.Rule), report.OutcomeBlocked)
}

// foundRemoved reports a removal that has taken effect although nobody saw its end.
func (a *account) foundRemoved(i record.Intent) {
	a.done(report.Entry{
		What: report.Removed, Pod: i.Pod, Revision: i.Revision,
		Reason: fmt.Sprintf("its removal stood on record (epoch %d) and the pod is gone; nobody saw it happen",
			i.Epoch),
	})
}

// moved reports how a change of leadership ended.
func (a *account) moved(d rollout.Decision, from record.Member, err error) {
	a.metrics.LeaderMove(err)
	if err == nil {
		a.done(report.Entry{
			What: report.LeaderMoved, Pod: from.Name, To: from.HeirName, Rule: string(d.Rule), Reason: d.Reason(),
		})
	}
}

// ghosts reports what a look at an idle cluster shows, and returns true if that has been told already.
func (a *account) ghosts(seen *rollout.Assessment) (told bool) {
	a.mu.Lock()
	last := a.last
	a.mu.Unlock()
	now := report.GhostsOf(seen, last.Ghosts, time.Now())
	a.metrics.Ghosts(len(now))
	return report.SameGhosts(now, last.Ghosts)
}

// memberRemoved reports how the removal of a member ended.
func (a *account) memberRemoved(d rollout.Decision, m record.Member, err error) {
	if err == nil {
		a.done(report.Entry{What: report.MemberRemoved, Pod: m.Label(), Rule: string(d.Rule), Reason: d.Reason()})
	}
}

// memberFound reports the end of a removal that nobody saw end: the member is gone, or the cluster is another.
func (a *account) memberFound(i record.Intent, same bool) {
	reason := "its removal stood on record (epoch %d) and it is gone; nobody saw it happen"
	if !same {
		reason = "its removal stood on record (epoch %d), and this is another cluster by now"
	}
	a.done(report.Entry{What: report.MemberRemoved, Pod: i.Member.Label(), Reason: fmt.Sprintf(reason, i.Epoch)})
}

// memberSuspected reports a removal that was given up.
func (a *account) memberSuspected(d rollout.Decision, i record.Intent) {
	why := "it was asked for no longer"
	for _, d := range append([]rollout.Decision{d}, d.Others...) {
		if d.Duty == rollout.DutyGhosts || d.Duty == rollout.DutyHeld {
			why = d.Reason()
		}
	}
	a.done(report.Entry{
		What: report.MemberSuspected, Pod: i.Member.Label(),
		Reason: "its removal was given up and may still happen, so it is not relied on: " + why,
	})
}

// defragmented reports how a defragmentation of a member ended.
func (a *account) defragmented(d rollout.Decision, m record.Member, sizes membership.Sizes, took time.Duration,
	err error, outcome record.Outcome) {
	e := report.Entry{What: report.Defragmented, Pod: m.Name, Rule: string(d.Rule), Overridden: report.Overridden(d)}
	took = took.Round(time.Millisecond)
	said := report.OutcomeDone
	switch {
	case err == nil:
		e.Reason = fmt.Sprintf("away for %v, %s before", took, rollout.SizeText(sizes.Before))
		if sizes.After > 0 {
			e.Reason += fmt.Sprintf(", %s after: %s freed", rollout.SizeText(sizes.After),
				rollout.SizeText(max(sizes.Before-sizes.After, 0)))
		}
	case outcome == record.Done:
		said = report.OutcomeFailed
		e.Reason = fmt.Sprintf("failed after %v: %v", took, err)
	default:
		said = report.OutcomeUnclear
		e.Reason = fmt.Sprintf("no answer after %v, and etcd does not end it for that; its member is waited for: %v",
			took,
			err)
	}
	a.metrics.Defragmentation(said)
	a.doneTo(e, d.Target().UID)
}

// disarmed reports that an alarm NOSPACE was ended, or that nobody knows.
func (a *account) disarmed(d rollout.Decision, m record.Member, err error) {
	e := report.Entry{What: report.Disarmed, Pod: m.Name, Rule: string(d.Rule), Reason: d.Reason()}
	if err != nil {
		e.Reason = "the alarm NOSPACE was not disarmed, or nobody knows: " + err.Error()
	}
	a.done(e)
}

// handsOver reports who coordinates from now on.
func (a *account) handsOver(to, reason string) {
	a.metrics.HandOver()
	a.done(report.Entry{What: report.HandedOver, Pod: a.name, To: to, Reason: reason})
}

// stale reports that an earlier removal can no longer take effect.
func (a *account) stale() { a.metrics.StaleRefused() }

// notes returns what the next write of the Lease is to tell its readers.
func (a *account) notes() map[string]string {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.last.At.IsZero() {
		return nil // Nothing has been observed, so the last coordinator's report stays.
	}
	return report.Notes(a.last, a.history)
}

// written notes that the Lease has it now.
func (a *account) written() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.news = false
}

// hasNews is true while the Lease does not yet have the latest news.
func (a *account) hasNews() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.news
}

// Report returns what is going on and what was done last. While this process coordinates, that
// is its own report. Otherwise it is what the coordinator has written to the Lease. The zero
// report means that no coordinator has reported anything yet.
func (c *Coordinator) Report(ctx context.Context) (report.Report, report.History, error) {
	c.account.mu.Lock()
	coordinating, last, history := c.account.coordinating, c.account.last, c.account.history
	c.account.mu.Unlock()
	if coordinating && !last.At.IsZero() {
		return last, history, nil
	}
	ctx, cancel := context.WithTimeout(ctx, c.cfg.RequestTimeout)
	defer cancel()
	lease, err := record.Read(ctx, c.cfg.Leases, c.cfg.StatefulSet)
	if err != nil {
		return report.Report{}, nil, err
	}
	if last, history, err = report.FromLease(lease); err != nil {
		return report.Report{}, nil, err
	}
	return last, history, nil
}
