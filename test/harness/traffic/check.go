package traffic

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"time"
)

// ViolationKind names a way in which a cluster breaks its word.
type ViolationKind string

const (
	// LostWrite is an acknowledged write that is not there. See the package comment.
	LostWrite ViolationKind = "lost write"
	// StaleRead is a linearizable read that returned something older than what was
	// acknowledged, or read by another linearizable read, before it was called.
	StaleRead ViolationKind = "stale read"
	// RevisionWentBack is an acknowledged write at a revision that is not later than
	// that of a write acknowledged before it was called, as after a restore.
	RevisionWentBack ViolationKind = "revision went back"
	// DuplicatedEvent is an event that one watch delivered twice, or a value that was
	// written twice.
	DuplicatedEvent ViolationKind = "duplicated event"
	// ReorderedEvent is an event after one with a later revision in the same watch.
	ReorderedEvent ViolationKind = "reordered event"
	// MissingEvent is an event that a watch skipped.
	MissingEvent ViolationKind = "missing event"
	// UnknownValue is a value or a deletion that no client asked for, or whose write had
	// certainly failed.
	UnknownValue ViolationKind = "unknown value"
	// MembersDisagree means that two answers tell different things of one revision.
	MembersDisagree ViolationKind = "members disagree"
	// BrokenCondition is a transaction that was applied although its condition did
	// not hold, or not applied although it did.
	BrokenCondition ViolationKind = "broken condition"
)

// Violation is one proof that the cluster broke its word.
type Violation struct {
	Kind ViolationKind `json:"kind"`
	// Detail says what was found, in words.
	Detail string `json:"detail"`
}

func (v Violation) String() string { return string(v.Kind) + ": " + v.Detail }

// Report is the judgement on a history.
type Report struct {
	// Acknowledged counts the acknowledged writes, those of the verification included.
	Acknowledged int
	// Unverified counts the acknowledged writes of which neither the final reads nor a
	// watch can say whether they are there.
	Unverified int
	// Violations are all that was found, lost writes first. Each lost write is one
	// violation, however many witnesses there are.
	Violations []Violation
}

// Count returns how many violations of the kind there are.
func (r *Report) Count(kind ViolationKind) int {
	n := 0
	for _, v := range r.Violations {
		if v.Kind == kind {
			n++
		}
	}
	return n
}

// Check judges the history. It needs only the history, so it can be repeated on one
// that was saved.
func (h *History) Check() *Report {
	k := &checker{
		h:         h,
		values:    map[keyAndValue]*Operation{},
		events:    map[int64]Event{},
		revisions: map[keyAndValue]int64{},
	}
	k.index()
	for i := range h.Logs {
		k.checkLog(&h.Logs[i])
	}
	k.checkMissing()
	k.checkLost()
	k.checkTime()
	k.checkReads()
	k.checkConditions()
	slices.SortStableFunc(k.report.Violations, func(a, b Violation) int {
		return cmp.Compare(b2i(a.Kind != LostWrite), b2i(b.Kind != LostWrite))
	})
	return &k.report
}

func b2i(b bool) int {
	if b {
		return 1
	}
	return 0
}

type keyAndValue struct{ key, value string }

type checker struct {
	h      *History
	report Report

	writes    []*Operation               // acknowledged writes by call
	reads     []*Operation               // reads that must be current, by call; final reads included
	values    map[keyAndValue]*Operation // every value that anybody tried to write
	events    map[int64]Event            // what the logs say of each revision
	revisions map[keyAndValue]int64      // where the logs say that each value was written
}

func (k *checker) violation(kind ViolationKind, format string, args ...any) {
	k.report.Violations = append(k.report.Violations, Violation{Kind: kind, Detail: fmt.Sprintf(format, args...)})
}

func (k *checker) index() {
	for i := range k.h.Operations {
		op := &k.h.Operations[i]
		if op.writes() {
			k.values[keyAndValue{op.Key, op.Value}] = op
		}
		if op.Wrote() {
			k.writes = append(k.writes, op)
		}
		if op.readsCurrent() {
			k.reads = append(k.reads, op)
		}
	}
	k.report.Acknowledged = len(k.writes)

	// A final read is a linearizable read of every key that was written, found or not.
	for _, final := range k.h.Finals {
		if final.Error != "" {
			continue
		}
		found := map[string]KeyValue{}
		for _, kv := range final.Keys {
			found[kv.Key] = kv
		}
		seen := map[string]bool{}
		add := func(key string) {
			if seen[key] {
				return
			}
			seen[key] = true
			k.reads = append(k.reads, &Operation{
				Client: finalClient, Kind: Get, Key: key, Outcome: OK, Member: final.Member, Call: final.Call,
				Return:   final.Return,
				Revision: final.Revision, Read: found[key].Value, ReadRevision: found[key].Revision,
			})
		}
		for _, w := range k.writes {
			add(w.Key)
		}
		for _, kv := range final.Keys {
			add(kv.Key)
		}
	}
	byCall := func(a, b *Operation) int { return cmp.Compare(a.Call, b.Call) }
	slices.SortStableFunc(k.writes, byCall)
	slices.SortStableFunc(k.reads, byCall)
}

// checkLog looks at what one watch delivered, by itself and against the other watches.
func (k *checker) checkLog(log *EventLog) {
	type last struct{ version, revision int64 }
	var previous int64
	keys := map[string]last{}
	values := map[keyAndValue]int64{}
	for _, event := range log.Events {
		id := keyAndValue{event.Key, event.Value}
		switch earlier, twice := values[id]; {
		case twice && !event.Deleted:
			k.violation(DuplicatedEvent, "the watch at %s delivered %s = %q at revision %d and again at %d", log.Member,
				event.Key, event.Value, earlier, event.Revision)
		case event.Revision < previous:
			k.violation(ReorderedEvent, "the watch at %s delivered %s = %q of revision %d after revision %d",
				log.Member, event.Key, event.Value, event.Revision, previous)
		case event.Revision == previous:
			k.violation(DuplicatedEvent,
				"the watch at %s delivered revision %d more than once, the last time with %s = %q", log.Member,
				event.Revision, event.Key, event.Value)
		default:
			before, known := keys[event.Key]
			if !known {
				before = last{revision: log.From}
			}
			if event.Version > before.version+1 && !log.gapBetween(before.revision, event.Revision) {
				k.violation(MissingEvent, "the watch at %s delivered version %d of %s at revision %d after version %d",
					log.Member, event.Version, event.Key, event.Revision, before.version)
			}
		}
		if event.Revision > keys[event.Key].revision {
			keys[event.Key] = last{event.Version, event.Revision}
		}
		values[id] = event.Revision
		previous = max(previous, event.Revision)

		switch op := k.values[id]; {
		case event.Deleted:
			k.violation(UnknownValue, "%s was deleted at revision %d, says the watch at %s", event.Key,
				event.Revision, log.Member)
		case op == nil:
			k.violation(UnknownValue, "%s = %q at revision %d was written by nobody, says the watch at %s", event.Key,
				event.Value, event.Revision, log.Member)
		case op.Outcome == Failed || op.Outcome == OK && !op.Wrote():
			k.violation(UnknownValue,
				"%s = %q at revision %d, says the watch at %s, but %s was told that it was not written", event.Key,
				event.Value, event.Revision, log.Member, op.Client)
		}
		if other, known := k.events[event.Revision]; !known {
			k.events[event.Revision] = event
			if _, twice := k.revisions[id]; !twice {
				k.revisions[id] = event.Revision
			}
		} else if other != event {
			k.violation(MembersDisagree, "revision %d is %s = %q for the watch at %s and %s = %q for another",
				event.Revision, event.Key, event.Value, log.Member, other.Key, other.Value)
		}
	}
}

// checkMissing holds each watch against all that the watches know together.
func (k *checker) checkMissing() {
	for i := range k.h.Logs {
		log := &k.h.Logs[i]
		delivered := map[int64]bool{}
		for _, event := range log.Events {
			delivered[event.Revision] = true
		}
		for _, revision := range slices.Sorted(maps.Keys(k.events)) {
			if log.covers(revision) && !delivered[revision] {
				k.violation(MissingEvent,
					"the watch at %s delivered no event of revision %d, %s = %q, which others did", log.Member,
					revision, k.events[revision].Key, k.events[revision].Value)
			}
		}
	}
}

func (k *checker) checkLost() {
	finals := map[string][]*Operation{}
	for _, read := range k.reads {
		if read.Client == finalClient {
			finals[read.Key] = append(finals[read.Key], read)
		}
	}
	for _, w := range k.writes {
		var lost string // how we know, empty if it is not lost
		verified := false
		for _, final := range finals[w.Key] {
			switch {
			case final.ReadRevision == 0:
				lost = fmt.Sprintf("the final read at %s has no such key", final.Member)
			case final.ReadRevision < w.Revision:
				lost = fmt.Sprintf("the final read at %s has %q of revision %d", final.Member, final.Read,
					final.ReadRevision)
			case final.ReadRevision == w.Revision && final.Read != w.Value:
				lost = fmt.Sprintf("the final read at %s has %q at the same revision", final.Member, final.Read)
			case final.ReadRevision == w.Revision:
				verified = true
			}
		}
		// What the watches have at the write's revision, if it is not the write.
		var instead string
		if event, known := k.events[w.Revision]; !known {
			for i := range k.h.Logs {
				if log := &k.h.Logs[i]; log.covers(w.Revision) {
					instead = fmt.Sprintf("the watch at %s has nothing at that revision", log.Member)
				}
			}
		} else if event.Key == w.Key && event.Value == w.Value && !event.Deleted {
			verified = true
		} else {
			instead = fmt.Sprintf("the watches have %s = %q at that revision", event.Key, event.Value)
		}
		switch {
		case instead == "" || lost != "":
		case verified: // by a final read: it is the watches that are wrong
			k.violation(MissingEvent, "%s = %q was acknowledged by %s at revision %d and is there at the end, but %s",
				w.Key, w.Value, w.Member, w.Revision, instead)
		default:
			lost = instead
		}
		switch {
		case lost != "":
			k.violation(LostWrite, "%s = %q, acknowledged to %s by %s at revision %d, %v after the start, but %s",
				w.Key, w.Value, w.Client, w.Member, w.Revision, w.Return.Round(time.Millisecond), lost)
		case !verified:
			k.report.Unverified++
		}
	}
}

// floor follows operations in the order of their returns and remembers the latest revision that
// was known to any client when another operation was called.
type floor struct {
	byReturn []floorPoint
	next     int
	highest  floorPoint
}

type floorPoint struct {
	at       time.Duration
	revision int64
	op       *Operation
}

func newFloor(points []floorPoint) *floor {
	slices.SortStableFunc(points, func(a, b floorPoint) int { return cmp.Compare(a.at, b.at) })
	return &floor{byReturn: points}
}

// before returns the highest revision of the operations that had returned before the
// call. Calls must not decrease from one use to the next.
func (f *floor) before(call time.Duration) floorPoint {
	for ; f.next < len(f.byReturn) && f.byReturn[f.next].at < call; f.next++ {
		if point := f.byReturn[f.next]; point.revision > f.highest.revision {
			f.highest = point
		}
	}
	return f.highest
}

// checkTime compares the order of revisions with the order of real time.
func (k *checker) checkTime() {
	var all []floorPoint
	perKey := map[string][]floorPoint{}
	for _, w := range k.writes {
		point := floorPoint{w.Return, w.Revision, w}
		all = append(all, point)
		perKey[w.Key] = append(perKey[w.Key], point)
	}
	for _, r := range k.reads {
		perKey[r.Key] = append(perKey[r.Key], floorPoint{r.Return, r.ReadRevision, r})
	}

	written := newFloor(all)
	for _, w := range k.writes {
		if before := written.before(w.Call); before.op != nil && before.revision >= w.Revision {
			k.violation(RevisionWentBack,
				"%s = %q was acknowledged at revision %d by %s, after %s = %q at revision %d by %s",
				w.Key, w.Value, w.Revision, w.Member, before.op.Key, before.op.Value, before.revision, before.op.Member)
		}
	}
	known := map[string]*floor{}
	for key, points := range perKey {
		known[key] = newFloor(points)
	}
	for _, r := range k.reads {
		if before := known[r.Key].before(r.Call); before.op != nil && before.revision > r.ReadRevision {
			k.violation(StaleRead,
				"%s read %s = %q of revision %d at %s, %v after the start, "+
					"although revision %d was already known to %s from %s",
				r.Client, r.Key, r.Read, r.ReadRevision, r.Member, r.Call.Round(time.Millisecond), before.revision,
				before.op.Client, before.op.Member)
		}
	}
}

// checkReads looks whether what was read, stale or not, was ever written.
func (k *checker) checkReads() {
	check := func(r *Operation) {
		if r.ReadRevision == 0 {
			return
		}
		id := keyAndValue{r.Key, r.Read}
		switch op := k.values[id]; {
		case op == nil:
			k.violation(UnknownValue, "%s read %s = %q of revision %d at %s, which nobody wrote", r.Client, r.Key,
				r.Read, r.ReadRevision, r.Member)
		case op.Outcome == Failed || op.Outcome == OK && !op.Wrote():
			k.violation(UnknownValue, "%s read %s = %q of revision %d at %s, but %s was told that it was not written",
				r.Client, r.Key, r.Read, r.ReadRevision, r.Member, op.Client)
		case op.Wrote() && op.Revision != r.ReadRevision:
			k.violation(MembersDisagree,
				"%s read %s = %q of revision %d at %s, which %s had acknowledged at revision %d", r.Client, r.Key,
				r.Read, r.ReadRevision, r.Member, op.Member, op.Revision)
		default:
			if revision, known := k.revisions[id]; known && revision != r.ReadRevision {
				k.violation(MembersDisagree,
					"%s read %s = %q of revision %d at %s, which is revision %d for the watches", r.Client, r.Key,
					r.Read, r.ReadRevision, r.Member, revision)
			}
		}
	}
	for _, r := range k.reads {
		check(r)
	}
	for i := range k.h.Operations {
		if op := &k.h.Operations[i]; op.Kind == SerializableGet && op.Outcome == OK {
			check(op)
		}
	}
}

// checkConditions replays the transactions on the events.
func (k *checker) checkConditions() {
	previous := map[string]Event{}
	for _, revision := range slices.Sorted(maps.Keys(k.events)) {
		event := k.events[revision]
		before, known := previous[event.Key]
		previous[event.Key] = event
		op := k.values[keyAndValue{event.Key, event.Value}]
		if op == nil || op.Kind != Txn || !known || event.Version != before.Version+1 {
			continue // not a transaction, or what was there before it is not known
		}
		if before.Value != op.Expect {
			k.violation(BrokenCondition,
				"%s = %q was written at revision %d on the condition that the key is %q, but it was %q", event.Key,
				event.Value, revision, op.Expect, before.Value)
		}
	}
	for _, r := range k.reads {
		if r.Kind == Txn && r.Read == r.Expect {
			k.violation(BrokenCondition,
				"%s asked %s to write %s = %q on the condition that the key is %q, was refused, and was told that "+
					"the key is %q", r.Client, r.Member, r.Key, r.Value, r.Expect, r.Read)
		}
	}
}
