package report_test

import (
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/quorate/quorate/internal/report"
	"github.com/quorate/quorate/pkg/rollout"
)

// Whoever reads the Lease decides as its coordinator does.
func TestAMemoryOutlivesTheLease(t *testing.T) {
	policy := rollout.Policy{
		MaxUnavailable: rollout.Amount{
			Number:  40,
			Percent: true,
		}, Partition: 1, SettleTimeout: 90 * time.Second, DeadAfter: 3 * time.Second,
		LeavingPatience: 7 * time.Minute, MaxLag: 77, Removal: rollout.RemoveByDelete, AllowVolatileData: true,
		GhostAfter:     8 * time.Minute,
		TrustedMembers: []string{"etcd-other-0"},
		HoldBeforeLast: true, DefragmentWhen: rollout.Fragmentation{Percent: 50, Bytes: 100e6, OfQuota: 90},
		DefragmentWindow: rollout.Window{From: 23 * time.Hour, To: 25*time.Hour + 30*time.Minute}, KeepNoSpace: true,
		DefragmentTimeout: 3 * time.Minute, QuotaBytes: 8 << 30, HostDefragments: "0 0 * * *",
	}
	for _, field := range reflect.VisibleFields(reflect.TypeOf(policy)) {
		if field.Name != "Removal" && reflect.ValueOf(policy).FieldByIndex(field.Index).IsZero() { // To delete is zero.
			t.Errorf("%s has no value here", field.Name)
		}
	}
	s := sight(0, outdated(1))
	s.Policy = &policy
	s.State.Ages = rollout.Ages{}
	for c := rollout.ReadySeen; c <= rollout.SaidSeen; c++ {
		s.State.Ages[rollout.Sighting{UID: "u1", Condition: c}] = time.Duration(c) * 1500 * time.Millisecond
	}
	s.State.Ages[rollout.Sighting{Condition: rollout.QuorumLostSeen}] = time.Minute
	s.State.RefusedEviction = rollout.Refusal{Words: "never", Lasting: true}
	s.State.Removed = []string{"etcd-0"}
	s.State.Differ = []rollout.Difference{{More: 0x8e9e05c52164694d, Less: 2, Looks: 5, For: 10 * time.Second}}
	s.State.FailedTransfers = rollout.Failures{0x8e9e05c52164694d: 1}
	s.State.Gates = []rollout.Gate{{Name: "Backup", Pass: true, Detail: "d", SickToo: true}}
	s.State.Sidecars = rollout.Sidecars{Known: true, Present: []string{"u1"}, Old: []string{"etcd-1"}}

	r, _, err := report.FromNotes(report.Notes(report.New(s, report.Report{}), nil))
	if err != nil {
		t.Fatal(err)
	}
	var got rollout.State
	if !r.Memory.Recall(&got) {
		t.Fatal("no memory")
	}
	want := rollout.State{Memory: s.State.Memory, Gates: s.State.Gates, Sidecars: s.State.Sidecars}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got\n%+v, want\n%+v", got, want)
	}
	if !reflect.DeepEqual(r.Memory.Policy, policy) {
		t.Errorf("policy %+v, want %+v", r.Memory.Policy, policy)
	}
}

func TestWhoLooksFromOutsideHasNoMemory(t *testing.T) {
	r := report.New(sight(0, outdated(1)), report.Report{})
	state := rollout.State{Memory: rollout.Memory{FailedTransfers: rollout.Failures{1: 1}}}
	if r.Memory.Recall(&state) || state.FailedTransfers[1] != 1 {
		t.Errorf("%+v", r.Memory)
	}
}

// A condition without a name would not outlive the Lease.
func TestEveryConditionHasAName(t *testing.T) {
	for c := rollout.ReadySeen; c <= rollout.SaidSeen; c++ {
		if c.String() == "" {
			t.Errorf("condition %d has none", c)
		}
	}
	if next := rollout.SaidSeen + 1; next.String() != "" {
		t.Errorf("%s is the last condition, and the tests above stop before it", next)
	}
}

// What somebody else wrote there must not keep the rest of the report from being read.
func TestWhatCannotBeReadOfAMemoryIsLeftOut(t *testing.T) {
	notes := report.Notes(report.New(sight(0, outdated(1)), report.Report{}), nil)
	for key, value := range notes {
		if strings.HasPrefix(value, "{") {
			notes[key] = strings.Replace(value, "{", `{"memory":{
				"policy":{"maxUnavailable":"many","settleTimeout":"soon","deadAfter":"3s",
					"removal":"by hand","maxLag":"much","trustedMembers":7,"defragmentWindow":"never","tomorrow":1},
				"ages":[{"condition":"TomorrowSeen","seconds":7},{"uid":"u1","condition":"PodSeen","seconds":1.5}],
				"failedTransfers":{"not hex":1,"a":2}},`, 1)
		}
	}
	r, _, err := report.FromNotes(notes)
	if err != nil {
		t.Fatal(err)
	}
	policy := rollout.DefaultPolicy()
	policy.DeadAfter = 3 * time.Second
	if !reflect.DeepEqual(r.Memory.Policy, policy) {
		t.Errorf("policy %+v, want %+v", r.Memory.Policy, policy)
	}
	if want := (rollout.Memory{
		Ages:            rollout.Ages{{UID: "u1", Condition: rollout.PodSeen}: 1500 * time.Millisecond},
		FailedTransfers: rollout.Failures{10: 2},
	}); !reflect.DeepEqual(r.Memory.Memory, want) {
		t.Errorf("memory %+v, want %+v", r.Memory.Memory, want)
	}
}
