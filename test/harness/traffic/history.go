package traffic

import (
	"encoding/json"
	"fmt"
	"io"
	"time"
)

// Kind is what an operation asked for.
type Kind string

const (
	// Put writes a key without condition.
	Put Kind = "put"
	// Txn writes a key if it has the value that the writer expects, and reads the
	// key otherwise.
	Txn Kind = "txn"
	// Get is a linearizable read of one key.
	Get Kind = "get"
	// SerializableGet is a read of one key from the member's own store, which may lag.
	SerializableGet Kind = "serializable-get"
)

// Outcome is what is known of the effect of an operation.
type Outcome string

const (
	// OK means that the cluster answered: the write is acknowledged, the read has a
	// value. For a [Txn] see [Operation.Wrote].
	OK Outcome = "ok"
	// Failed means that the operation certainly had no effect: it was never sent,
	// or etcd refused it, or it was a read.
	Failed Outcome = "failed"
	// Unknown means that a write may have been applied, may be applied later, or never.
	Unknown Outcome = "unknown"
)

// Operation is one attempt at one member.
type Operation struct {
	// Client is who asked: "writer-0", "reader-1", or "final" for the verification.
	// One client has at most one operation at a time.
	Client string `json:"client"`
	// Request numbers the requests of a client from 1. The attempts of one request
	// share it.
	Request int `json:"request"`
	// Attempt is 0 for the first member tried, 1 for the second, and so on.
	Attempt int `json:"attempt"`

	Kind Kind   `json:"kind"`
	Key  string `json:"key"`
	// Value is the value to be written by a Put or a Txn; no two operations share it.
	Value string `json:"value,omitempty"`
	// Expect is the value that a Txn demands of the key.
	Expect string `json:"expect,omitempty"`

	// Call and Return are times since [History.Start] on the monotonic clock, in
	// nanoseconds in JSON. With outcome Unknown, Return is when the client gave up;
	// the write may still be applied at any time after Call.
	Call   time.Duration `json:"call"`
	Return time.Duration `json:"return"`

	Outcome Outcome `json:"outcome"`
	// Error is why the outcome is not OK.
	Error string `json:"error,omitempty"`
	// Member is the endpoint that was asked.
	Member string `json:"member"`

	// Revision is the revision that the answer carries: for an acknowledged write
	// the revision at which it was applied.
	Revision int64 `json:"revision,omitempty"`
	// Swapped is true if the condition of a Txn held and its value was written.
	Swapped bool `json:"swapped,omitempty"`
	// Read is the value that a read returned, or a Txn whose condition did not hold;
	// ReadRevision the revision at which it was written, 0 if the key did not exist.
	Read         string `json:"read,omitempty"`
	ReadRevision int64  `json:"readRevision,omitempty"`
}

// Wrote reports whether the operation is an acknowledged write.
func (o *Operation) Wrote() bool {
	return o.Outcome == OK && (o.Kind == Put || o.Kind == Txn && o.Swapped)
}

// readsCurrent reports whether the operation returned a value that must be current.
func (o *Operation) readsCurrent() bool {
	return o.Outcome == OK && (o.Kind == Get || o.Kind == Txn && !o.Swapped)
}

func (o *Operation) writes() bool { return o.Kind == Put || o.Kind == Txn }

// Event is one change of one key as a member's watch delivered it.
type Event struct {
	Revision int64  `json:"revision"`
	Key      string `json:"key"`
	Value    string `json:"value,omitempty"`
	// Version counts the writes of the key from 1.
	Version int64 `json:"version"`
	// Deleted is true if the key was deleted, which the client never does.
	Deleted bool `json:"deleted,omitempty"`
}

// EventLog is everything that the watch at one member delivered, in that order.
type EventLog struct {
	Member string  `json:"member"`
	Events []Event `json:"events"`
	// From and To are the first and the last revision that the log covers. To is
	// less than From if the watch delivered nothing.
	From int64 `json:"from"`
	To   int64 `json:"to"`
	// Gaps are the revisions in between that were compacted before the watch could
	// deliver them.
	Gaps []Gap `json:"gaps,omitempty"`
	// Complete is true if the log reaches the last write of the verification.
	Complete bool `json:"complete"`
}

// Gap is a range of revisions, both ends included.
type Gap struct {
	From int64 `json:"from"`
	To   int64 `json:"to"`
}

// covers reports whether an event at the revision would be in the log.
func (l *EventLog) covers(revision int64) bool {
	if revision < l.From || revision > l.To {
		return false
	}
	return !l.gapBetween(revision, revision)
}

func (l *EventLog) gapBetween(from, to int64) bool {
	for _, gap := range l.Gaps {
		if gap.From <= to && from <= gap.To {
			return true
		}
	}
	return false
}

// KeyValue is one key as a read found it.
type KeyValue struct {
	Key      string `json:"key"`
	Value    string `json:"value"`
	Revision int64  `json:"revision"`
}

// FinalRead is the linearizable read of all keys at one member, after everything else.
type FinalRead struct {
	Member string `json:"member"`
	// Error is why the member did not answer; the rest is empty then.
	Error    string        `json:"error,omitempty"`
	Call     time.Duration `json:"call"`
	Return   time.Duration `json:"return"`
	Revision int64         `json:"revision,omitempty"`
	Keys     []KeyValue    `json:"keys,omitempty"`
}

// History is all that a [Client] asked and was told.
type History struct {
	// Start is the origin of all times in the history.
	Start time.Time `json:"start"`
	// Duration is how long the writers and readers were at it; the verification
	// comes after it.
	Duration time.Duration `json:"duration"`
	// Prefix is where the keys are.
	Prefix string `json:"prefix"`
	// Writers and Readers are the numbers of clients of each kind.
	Writers int `json:"writers"`
	Readers int `json:"readers"`
	// Operations are all attempts in the order of their calls.
	Operations []Operation `json:"operations"`
	// Logs are what the watches delivered, one for every member ever named.
	Logs []EventLog `json:"logs"`
	// Finals are the final reads, one for every member named at the end. If no
	// member answered, the history is not verified.
	Finals []FinalRead `json:"finals"`
}

// Verified reports whether at least one member answered the final read and one watch
// reached the end, so that [History.Check] can speak for every acknowledged write.
func (h *History) Verified() bool {
	read, watched := false, false
	for i := range h.Finals {
		read = read || h.Finals[i].Error == ""
	}
	for i := range h.Logs {
		watched = watched || h.Logs[i].Complete
	}
	return read && watched
}

// Write writes the history as JSON, for a look at it after a failure. See
// [ReadHistory].
func (h *History) Write(w io.Writer) error {
	encoder := json.NewEncoder(w)
	encoder.SetEscapeHTML(false)
	if err := encoder.Encode(h); err != nil {
		return fmt.Errorf("write the history of %s: %w", h.Prefix, err)
	}
	return nil
}

// ReadHistory reads what [History.Write] wrote.
func ReadHistory(r io.Reader) (*History, error) {
	h := new(History)
	if err := json.NewDecoder(r).Decode(h); err != nil {
		return nil, fmt.Errorf("read a history: %w", err)
	}
	return h, nil
}
