package report

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
)

// Annotations of the record's Lease, for its readers. They are written together with the record.
// No coordinator decides anything by them.
const (
	// StatusAnnotation holds the coordinator's last [Report], less the candidates, as JSON.
	StatusAnnotation = "quorate.dev/status"
	// HistoryAnnotation holds the last entries of the [History], oldest first, as JSON.
	HistoryAnnotation = "quorate.dev/history"
)

// HistoryLength is how many entries are kept: two rollouts of the largest cluster that
// etcd recommends, with a change of leader and of coordinator each.
const HistoryLength = 32

// Entry is one thing that was done.
type Entry struct {
	At time.Time `json:"at"`
	// What is one of the constants below.
	What string `json:"what"`
	// Pod is the pod that was removed, or that handed over leadership or the lock; To is the pod
	// that took it over. Of what is about a member without a pod, Pod is its name, or its ID if it has none.
	Pod string `json:"pod,omitempty"`
	To  string `json:"to,omitempty"`
	// Rule chose it; Revision is the one that the rollout goes to.
	Rule     string `json:"rule,omitempty"`
	Revision string `json:"revision,omitempty"`
	// By is the coordinator, with the epoch of its claim.
	By    string `json:"by,omitempty"`
	Epoch int    `json:"epoch,omitempty"`
	// Reason is the sentence that explained it; Overridden are the guards that would have
	// held it.
	Reason     string   `json:"reason,omitempty"`
	Overridden []string `json:"overridden,omitempty"`
	// Result is failed, or unclear where nobody knows. It is empty where it was done.
	Result string `json:"result,omitempty"`
}

// What an entry is about.
const (
	// Removed: a pod was deleted or evicted.
	Removed = "Removed"
	// LeaderMoved: etcd's leadership moved at our request.
	LeaderMoved = "LeaderMoved"
	// HandedOver: the coordinator let another sidecar go on.
	HandedOver = "HandedOver"
	// Completed: a rollout ended with every pod settled.
	Completed = "Completed"
	// MemberRemoved: a ghost was removed from etcd's list. MemberSuspected: a removal was given up whose
	// outcome is not known.
	MemberRemoved   = "MemberRemoved"
	MemberSuspected = "MemberSuspected"
	// Defragmented: a member's database was rewritten, or that failed, or nobody knows.
	Defragmented = "Defragmented"
	// Disarmed: a member's alarm NOSPACE was ended, or that failed, or nobody knows.
	Disarmed = "Disarmed"
	// OverrideEnded: an override was taken off the Lease, because the rollout that it was made for is complete.
	OverrideEnded = "OverrideEnded"
)

// History is the last entries, oldest first.
type History []Entry

// Add appends an entry and drops the oldest ones beyond [HistoryLength].
func (h History) Add(e Entry) History {
	h = append(h[:len(h):len(h)], e)
	return h[max(0, len(h)-HistoryLength):]
}

// Kubernetes limits all annotations of an object together to 256 KiB. Ours take only a part of that,
// however much a host's gates or an API server say: a Lease that cannot be written would hold the
// rollout.
const (
	longestText = 1 << 10
	largestNote = 48 << 10
)

// Notes are the annotations for a report and a history. Long texts are cut; where that is not
// enough, what a reader could do without is left out.
func Notes(r Report, h History) map[string]string {
	// The verdicts of all guards would fill the Lease; plan shows them.
	r.Candidates, r.Others = nil, slices.Clone(r.Others)
	for i := range r.Others {
		r.Others[i].Candidates = nil
	}
	status := note(r)
	if len(status) > largestNote {
		r.Memory, r.Members = nil, nil
		status = note(r)
	}
	history := note(h)
	for len(history) > largestNote {
		h = h[(len(h)+1)/2:]
		history = note(h)
	}
	return map[string]string{StatusAnnotation: status, HistoryAnnotation: history}
}

// note is a value as JSON, with its texts cut.
func note(value any) string {
	text, _ := json.Marshal(value) // Strings, numbers and times always encode.
	if len(text) <= longestText {
		return string(text)
	}
	var tree any
	numbers := json.NewDecoder(bytes.NewReader(text))
	numbers.UseNumber()
	if numbers.Decode(&tree) == nil {
		text, _ = json.Marshal(cut(tree))
	}
	return string(text)
}

// cut shortens every text in what was decoded.
func cut(tree any) any {
	switch v := tree.(type) {
	case string:
		if len(v) > longestText {
			return strings.ToValidUTF8(v[:longestText], "") + "…"
		}
	case []any:
		for i := range v {
			v[i] = cut(v[i])
		}
	case map[string]any:
		for key := range v {
			v[key] = cut(v[key])
		}
	}
	return tree
}

// FromNotes reads what [Notes] wrote. What is missing is zero. What cannot be read is zero too, and
// the error names it; the other annotation is read all the same.
func FromNotes(annotations map[string]string) (Report, History, error) {
	var r Report
	var h History
	var errs []error
	read := func(key string, into any) bool {
		text, ok := annotations[key]
		if !ok {
			return true
		}
		err := json.Unmarshal([]byte(text), into)
		if err != nil {
			errs = append(errs, fmt.Errorf("annotation %s: %w", key, err))
		}
		return err == nil
	}
	if !read(StatusAnnotation, &r) {
		r = Report{}
	}
	if !read(HistoryAnnotation, &h) {
		h = nil
	}
	return r, h, errors.Join(errs...)
}

// FromLease reads what the coordinator wrote on a Lease. Where there is no Lease (nil), both results
// are zero. An error names the Lease.
func FromLease(lease *coordinationv1.Lease) (Report, History, error) {
	if lease == nil {
		return Report{}, nil, nil
	}
	r, h, err := FromNotes(lease.Annotations)
	if err != nil {
		err = fmt.Errorf("what the Lease %s tells: %w", lease.Name, err)
	}
	return r, h, err
}

// Table writes the history for a person, oldest first.
func (h History) Table(w io.Writer, now time.Time) error {
	t := newTable(w, "TIME", "AGO", "WHAT", "POD", "TO", "RULE", "REVISION", "BY", "EPOCH", "WHY")
	for _, e := range h {
		epoch := "-"
		if e.Epoch > 0 {
			epoch = strconv.Itoa(e.Epoch)
		}
		t.row(e.At.UTC().Format(time.RFC3339), Ago(now, e.At), e.What, dash(e.Pod), dash(e.To), dash(e.Rule),
			dash(e.Revision), dash(e.By), epoch, e.Why())
	}
	return t.Flush()
}

// Why is the reason, with the guards that were overridden for it.
func (e Entry) Why() string {
	if len(e.Overridden) == 0 {
		return dash(e.Reason)
	}
	return "OVERRIDDEN " + strings.Join(e.Overridden, ", ") + ": " + e.Reason
}
