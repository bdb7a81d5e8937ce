package report

import (
	"context"
	"errors"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/sirupsen/logrus"

	"github.com/quorate/quorate/pkg/rollout"
)

// Journal is what one process tells of itself: what it has seen and decided, what it has done, and what goes wrong. It
// renders that as log lines, events, metrics, the history, and the notes on the Lease. No decision rests on it.
type Journal struct {
	Log *logrus.Entry
	// Metrics and Events are nil if the host wants none.
	Metrics *Metrics
	Events  *Recorder

	mu           sync.Mutex
	coordinating bool
	// name and epoch are those of our last claim.
	name    string
	epoch   int
	last    Report
	history History
	// logged is the key of the last decision that was logged, and news is true while the Lease
	// does not have it yet.
	logged string
	news   bool
	// completion is the end of a rollout that the Lease may not tell of yet; nil if there is none.
	completion *completion
	// failing holds what this sidecar fails at now, by the name of what it was doing.
	failing map[string]failure
}

// completion is the end of a rollout. If the coordinator changes just then, both have seen it. The one whose write the
// Lease has counts it and tells of it.
type completion struct {
	entry Entry
	took  time.Duration
}

// in is true where the history has this very completion.
func (c *completion) in(h History) bool {
	return slices.ContainsFunc(h, func(e Entry) bool {
		return e.What == Completed && e.By == c.entry.By && e.Epoch == c.entry.Epoch && e.At.Equal(c.entry.At)
	})
}

// failure is what fails, and the words that report it.
type failure struct{ what, words string }

// Fails notes that something has failed so many times in a row, at one of the constants such as [AtElection]. Every
// report names it until it works again.
func (j *Journal) Fails(at, what string, err error, row int) {
	if j == nil {
		return
	}
	j.Metrics.Failures(at, row)
	f := failure{what: what, words: what + ": " + err.Error()}
	j.mu.Lock()
	defer j.mu.Unlock()
	last, known := j.failing[at]
	if known && last.what == what && errors.Is(err, context.DeadlineExceeded) {
		return // Its wording varies; it is the same fault.
	}
	if j.failing == nil {
		j.failing = map[string]failure{}
	}
	j.failing[at] = f
	j.retell()
}

// Works notes that it works again.
func (j *Journal) Works(at string) {
	if j == nil {
		return
	}
	j.Metrics.Failures(at, 0)
	j.mu.Lock()
	defer j.mu.Unlock()
	delete(j.failing, at)
	j.retell()
}

// retell puts the present faults into the last report, so that they reach the Lease.
func (j *Journal) retell() {
	if now := j.present(); !slices.Equal(now, j.last.Faults) {
		j.last.Faults, j.news = now, true
	}
}

// present returns the present faults.
func (j *Journal) present() []string {
	var words []string
	for _, at := range slices.Sorted(maps.Keys(j.failing)) {
		words = append(words, j.failing[at].words)
	}
	return words
}

// Recall takes over what another coordinator has told since our own last claim, so that times
// and history go on. What cannot be read is dropped, because no decision rests on it.
func (j *Journal) Recall(annotations map[string]string, epoch int) {
	last, history, err := FromNotes(annotations)
	if err != nil {
		j.Log.WithError(err).Debug("what the last coordinator told cannot be read")
	}
	j.mu.Lock()
	done := j.completion
	if done != nil && done.in(history) {
		j.completion = nil // The answer to our write was lost.
	} else {
		done = nil
	}
	if !j.coordinating || epoch != j.epoch {
		j.last, j.history, j.completion = last, history, nil
	}
	j.mu.Unlock()
	j.completed(done)
	for _, e := range slices.Backward(history) {
		if e.What == Completed {
			j.Metrics.LastCompletion(e.At)
			break
		}
	}
}

// Coordinates notes that the record has been claimed.
func (j *Journal) Coordinates(name string, epoch int) {
	j.Metrics.Coordinates(epoch)
	j.mu.Lock()
	defer j.mu.Unlock()
	j.coordinating, j.name, j.epoch, j.logged, j.news = true, name, epoch, "", false
}

// Rests notes that another process may coordinate from now on.
func (j *Journal) Rests() {
	j.Metrics.Rests()
	j.mu.Lock()
	defer j.mu.Unlock()
	j.coordinating = false
}

// Finished notes that a rollout is over. Nothing is observed until the next one.
func (j *Journal) Finished() {
	j.Metrics.Idles()
	j.mu.Lock()
	defer j.mu.Unlock()
	j.coordinating = false
}

// Decided reports a decision. It is logged when it differs from the last one in more than its
// numbers.
func (j *Journal) Decided(s Sight) {
	j.mu.Lock()
	last := j.last
	now := New(s, last)
	now.Faults = j.present()
	j.last = now
	changed := now.Key() != j.logged
	j.logged = now.Key()
	j.news = j.news || changed || !slices.Equal(now.Faults, last.Faults) ||
		!SameGhosts(now.Ghosts, last.Ghosts) || !now.Answers(last.Asked)
	j.mu.Unlock()

	j.Metrics.Show(now)
	j.Metrics.Databases(s.Decision.Assessment.Fullest())
	if j.Events.Show(now) {
		j.mu.Lock()
		j.last.LastEvent = now.At
		j.mu.Unlock()
	}
	if began := now.Rolling() && !last.Rolling(); began || now.OverrideWords() != last.OverrideWords() {
		j.Events.Override(&now)
	}
	if words := now.EndedWords(); words != "" && words != last.EndedWords() {
		j.Log.Warn(words)
	}
	for _, g := range now.Ghosts {
		if !slices.ContainsFunc(last.Ghosts, func(told Ghost) bool { return told.ID == g.ID }) {
			j.Log.Warn(g.Tell(now.At))
			j.Events.Ghost(g, now.At)
		}
	}
	if changed {
		j.line(now)
	}
	if last.Rolling() && !now.Rolling() && !now.Ended.IsZero() {
		e := j.add(Entry{What: Completed, Rule: string(now.Rule), Revision: now.UpdateRevision, Reason: now.Reason})
		j.mu.Lock()
		// Another coordinator's clock may have been ahead.
		j.completion = &completion{entry: e, took: max(now.Ended.Sub(last.Started), 0)}
		j.mu.Unlock()
	}
}

// completed counts a completion that the Lease tells of, and tells of it. Nil is none.
func (j *Journal) completed(c *completion) {
	if c == nil {
		return
	}
	j.Metrics.Completed(c.took)
	j.Metrics.LastCompletion(c.entry.At)
	j.Events.Tell(c.entry, "")
}

// line is the log's renderer of a report.
func (j *Journal) line(r Report) {
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
	j.Log.WithFields(fields).Info(r.Reason)
}

// Done reports what has become of an operation.
func (j *Journal) Done(o Outcome) {
	j.Metrics.Count(o)
	if e, told := o.entry(); told {
		j.enter(e, o.podUID())
	}
}

// enter adds an entry to the history, and tells of it in an event. The UID is that of a pod whose own events are to
// tell of it as well.
func (j *Journal) enter(e Entry, podUID string) { j.Events.Tell(j.add(e), podUID) }

// add adds an entry to the history. The rest of the entry comes from the last report.
func (j *Journal) add(e Entry) Entry {
	j.mu.Lock()
	defer j.mu.Unlock()
	e.At, e.By, e.Epoch = time.Now().UTC().Truncate(time.Millisecond), j.name, j.epoch
	if e.Revision == "" {
		e.Revision = j.last.UpdateRevision
	}
	j.history = j.history.Add(e)
	j.news = true
	return e
}

// Ghosts reports what a look at an idle cluster shows, and returns true if that has been told already.
func (j *Journal) Ghosts(seen *rollout.Assessment) (told bool) {
	j.mu.Lock()
	last := j.last
	j.mu.Unlock()
	now := GhostsOf(seen, last.Ghosts, time.Now())
	j.Metrics.Ghosts(len(now))
	return SameGhosts(now, last.Ghosts)
}

// EndsOverride reports that an override was taken off the Lease, because the rollout that it was made for is complete.
func (j *Journal) EndsOverride(s *rollout.State) {
	guards := make([]string, len(s.Controls.Override))
	for i, g := range s.Controls.Override {
		guards[i] = string(g)
	}
	words := over(guards, "because its rollout is complete", s.Controls.Terms)
	j.Log.Info(words)
	j.enter(Entry{What: OverrideEnded, Revision: s.Set.UpdateRevision, Reason: words}, "")
}

// HandsOver reports who coordinates from now on.
func (j *Journal) HandsOver(to, reason string) {
	j.Metrics.HandOver()
	j.enter(Entry{What: HandedOver, Pod: j.name, To: to, Reason: reason}, "")
}

// Notes returns what the next write of the Lease is to tell its readers.
func (j *Journal) Notes() map[string]string {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.last.At.IsZero() {
		return nil // Nothing has been observed, so the last coordinator's report stays.
	}
	return Notes(j.last, j.history)
}

// Written notes that the Lease has it now.
func (j *Journal) Written() {
	j.mu.Lock()
	done := j.completion
	j.news, j.completion = false, nil
	j.mu.Unlock()
	j.completed(done)
}

// HasNews is true while the Lease does not yet have the latest news.
func (j *Journal) HasNews() bool {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.news
}

// Own returns what this process reports and has done. It returns false while another one coordinates, or nothing has
// been decided yet.
func (j *Journal) Own() (last Report, history History, ours bool) {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.last, j.history, j.coordinating && !j.last.At.IsZero()
}
