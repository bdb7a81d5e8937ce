package rollout

import (
	"cmp"
	"encoding/json"
	"slices"
	"strconv"
	"time"
)

// Memory is what a decision rests on beyond what can be seen now: what only time teaches. A
// coordinator passes it into every decision, and tells it on the Lease, so that whoever decides from
// outside (status, plan) comes to the same guard. The zero Memory remembers nothing, which can only
// make a decision wait.
type Memory struct {
	// Ages say for how long things have been seen without a break.
	Ages Ages `json:"ages,omitempty"`
	// RefusedEviction is what the eviction API said when it refused an eviction just now, of
	// whichever pod: a budget counts them all. Nobody asks again before a while has passed.
	RefusedEviction Refusal `json:"refusedEviction,omitzero"`
	// FailedTransfers count how often in a row leadership could not be moved.
	FailedTransfers Failures `json:"failedTransfers,omitempty"`
	// Removed are the names of the pods that this coordinator has removed, or an earlier one whose removal was
	// still on the record, until they are back. Any other that is away counts as taken by somebody else.
	Removed []string `json:"removed,omitempty"`
	// Evicted are the UIDs of the pods that an eviction of ours may have marked without any other effect, just
	// now.
	Evicted []string `json:"evicted,omitempty"`
	// Differ are the members whose data were found to differ, in this look or lately.
	Differ []Difference `json:"differ,omitempty"`
	// Tries are what has become of the defragmentations in this turn, by the member's ID.
	Tries map[uint64]Try `json:"tries,omitempty"`
	// Disarmed is how often each member's alarm NOSPACE was disarmed in this turn.
	Disarmed map[uint64]int `json:"disarmed,omitempty"`
	// Paces are by how many log entries a second the members that catch up come closer to the furthest one, by the
	// member's ID. One of which nothing is known yet, or that does not come closer, is not among them.
	Paces map[uint64]float64 `json:"paces,omitempty"`
	// NotDisarmed are the members whose alarm could not be disarmed, or of which nobody knows.
	NotDisarmed map[uint64]Try `json:"notDisarmed,omitempty"`
}

// Try is what has become of a member's defragmentations, or of asking for the end of its alarm.
type Try struct {
	// Done is true if one has succeeded, and Left is how many bytes were free in the database right after that.
	Done bool  `json:"done,omitempty"`
	Left int64 `json:"left,omitempty"`
	// Failed is how many have not succeeded, in a row. One that was never sent does not count.
	Failed int `json:"failed,omitempty"`
	// Words say how the last one failed, and Lasting that another would fail too, as when etcd's user may not.
	Words   string `json:"words,omitempty"`
	Lasting bool   `json:"lasting,omitempty"`
	// Resting is true while it is too early to try again.
	Resting bool `json:"resting,omitempty"`
}

// Refusal is what the eviction API says when it refuses. The zero value is none.
type Refusal struct {
	Words string `json:"words"`
	// Lasting is true where no waiting helps: the budgets as they are never allow an eviction.
	Lasting bool `json:"lasting,omitempty"`
	// Moot is true where the budget needs more pods than the one that it counts, so that it protects
	// nothing. It is asked for a single member only.
	Moot bool `json:"moot,omitempty"`
}

// Ages say for how long each sighting has been seen without a break. A missing entry is an age of
// zero, which can only make a decision wait.
type Ages map[Sighting]time.Duration

// age is one of [Ages] as it is written.
type age struct {
	UID       string    `json:"uid,omitempty"`
	Condition Condition `json:"condition"`
	Seconds   float64   `json:"seconds"`
}

// MarshalJSON writes the ages as a list, sorted, to the millisecond.
func (a Ages) MarshalJSON() ([]byte, error) {
	list := make([]age, 0, len(a))
	for seen, d := range a {
		list = append(list, age{seen.UID, seen.Condition, d.Round(time.Millisecond).Seconds()})
	}
	slices.SortFunc(list, func(x, y age) int {
		return cmp.Or(cmp.Compare(x.UID, y.UID), cmp.Compare(x.Condition.String(), y.Condition.String()))
	})
	return json.Marshal(list)
}

// UnmarshalJSON reads what MarshalJSON writes. Conditions that this version does not know are left
// out.
func (a *Ages) UnmarshalJSON(data []byte) error {
	var list []age
	if err := json.Unmarshal(data, &list); err != nil {
		return err
	}
	*a = make(Ages, len(list))
	for _, x := range list {
		if x.Condition != 0 {
			(*a)[Sighting{x.UID, x.Condition}] = time.Duration(x.Seconds * float64(time.Second))
		}
	}
	return nil
}

// Failures count the leadership transfers away from a member, by its ID, that failed in a row.
type Failures map[uint64]int

// MarshalJSON writes the members' IDs in hexadecimal, as etcd prints them.
func (f Failures) MarshalJSON() ([]byte, error) {
	counts := make(map[string]int, len(f))
	for id, n := range f {
		counts[strconv.FormatUint(id, 16)] = n
	}
	return json.Marshal(counts)
}

// UnmarshalJSON reads what MarshalJSON writes, and leaves out what is not the ID of a member.
func (f *Failures) UnmarshalJSON(data []byte) error {
	var counts map[string]int
	if err := json.Unmarshal(data, &counts); err != nil {
		return err
	}
	*f = make(Failures, len(counts))
	for text, n := range counts {
		if id, err := strconv.ParseUint(text, 16, 64); err == nil {
			(*f)[id] = n
		}
	}
	return nil
}
