package report_test

import (
	"reflect"
	"testing"
	"time"

	"github.com/quorate/quorate/internal/report"
	"github.com/quorate/quorate/internal/rollout"
)

// Whoever reads the Lease decides as its coordinator does.
func TestAMemoryOutlivesTheLease(t *testing.T) {
	policy := rollout.Policy{
		MaxUnavailable: rollout.Amount{Number: 40, Percent: true}, Partition: 1, SettleTimeout: 90 * time.Second, DeadAfter: 3 * time.Second,
		MaxLag: 77, Removal: rollout.RemoveByDelete, AllowVolatileData: true,
		TrustedMembers: []string{"etcd-other-0"},
	}
	s := sight(0, outdated(1))
	s.Policy = &policy
	s.State.Ages = map[rollout.Sighting]time.Duration{}
	for c := rollout.ReadySeen; c <= rollout.PodSeen; c++ {
		s.State.Ages[rollout.Sighting{UID: "u1", Condition: c}] = time.Duration(c) * 1500 * time.Millisecond
	}
	s.State.Ages[rollout.Sighting{Condition: rollout.QuorumLostSeen}] = time.Minute
	s.State.RefusedEviction = rollout.Refusal{Words: "never", Lasting: true}
	s.State.FailedTransfers = map[uint64]int{0x8e9e05c52164694d: 1}
	s.State.Gates = []rollout.Gate{{Name: "Backup", Pass: true, Detail: "d", SickToo: true}}

	r, _, err := report.FromNotes(report.Notes(report.New(s, report.Report{}), nil))
	if err != nil {
		t.Fatal(err)
	}
	var got rollout.State
	if !r.Memory.Recall(&got) {
		t.Fatal("no memory")
	}
	want := rollout.State{Ages: s.State.Ages, RefusedEviction: s.State.RefusedEviction, FailedTransfers: s.State.FailedTransfers, Gates: s.State.Gates}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got\n%+v, want\n%+v", got, want)
	}
	if !reflect.DeepEqual(r.Memory.Policy.Of(), policy) {
		t.Errorf("policy %+v, want %+v", r.Memory.Policy.Of(), policy)
	}
}

func TestWhoLooksFromOutsideHasNoMemory(t *testing.T) {
	r := report.New(sight(0, outdated(1)), report.Report{})
	state := rollout.State{FailedTransfers: map[uint64]int{1: 1}}
	if r.Memory.Recall(&state) || state.FailedTransfers[1] != 1 {
		t.Errorf("%+v", r.Memory)
	}
}

// A new condition, or a new field of the policy, has to be remembered too.
func TestEveryConditionHasAName(t *testing.T) {
	for c := rollout.ReadySeen; c <= rollout.PodSeen; c++ {
		if c.String() == "" {
			t.Errorf("condition %d has none", c)
		}
	}
	if next := rollout.PodSeen + 1; next.String() != "" {
		t.Errorf("%s is the last condition; let Recall know", next)
	}
	if got, want := reflect.TypeFor[report.Policy]().NumField(), reflect.TypeFor[rollout.Policy]().NumField(); got != want {
		t.Errorf("%d fields of the policy are remembered, there are %d", got, want)
	}
}
