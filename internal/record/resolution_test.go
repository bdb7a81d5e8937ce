package record_test

import (
	"testing"

	"github.com/quorate/quorate/internal/record"
	"github.com/quorate/quorate/pkg/rollout"
)

func seen(etcd rollout.Membership) *rollout.Assessment {
	return rollout.Assess(rollout.State{Etcd: etcd}, rollout.DefaultPolicy())
}

func TestWhatIsSeenOfTheRemovalOfAMember(t *testing.T) {
	removal := record.Intent{Operation: record.RemoveMember, Member: ghost}
	with := func(change func(m *record.Member)) record.Intent {
		m := *ghost
		change(&m)
		return record.Intent{Operation: record.RemoveMember, Member: &m}
	}
	on, suspect := record.Record{Intent: removal}, record.Record{Suspect: ghost}
	list := func(cluster uint64, linearizable bool, ids ...uint64) rollout.Membership {
		m := rollout.Membership{Known: true, Linearizable: linearizable, ClusterID: cluster}
		for _, id := range ids {
			m.Members = append(m.Members, rollout.Member{ID: id})
		}
		return m
	}
	there := list(1, true, 5, 6, 7)
	for _, tc := range []struct {
		name   string
		lease  record.Record
		etcd   rollout.Membership
		forget bool
		next   record.Next
		intent record.Intent
		want   record.Resolution
	}{
		{"it is asked for again", on, there, false, record.NextAct, removal, record.Open},
		{"it is gone", on, list(1, true, 5, 6), false, record.NextRest, nothing, record.Settled},
		{"it is gone by one member's own list", on, list(1, false, 5, 6), false, record.NextRest, nothing, record.Refuted},
		{"this is another cluster", on, list(2, true, 5, 6, 7), false, record.NextAct, removal, record.Settled},
		{"nobody knows", on, rollout.Membership{}, false, record.NextRest, nothing, record.Refuted},
		{"a list is there although nobody knows it", on, rollout.Membership{Linearizable: true, ClusterID: 2}, false,
			record.NextRest, nothing, record.Refuted},
		{"something else is decided", on, there, false, record.NextRest, nothing, record.Refuted},
		{"another member is to go", on, there, false, record.NextAct, with(func(m *record.Member) { m.ID = 6 }),
			record.Refuted},
		{"it is to go from another cluster", on, there, false, record.NextAct,
			with(func(m *record.Member) { m.Cluster = 2 }), record.Refuted},
		{"the same member is to be defragmented", on, there, false, record.NextAct,
			record.Intent{Operation: record.Defragment, Member: ghost}, record.Refuted},
		{"no member is named", on, there, false, record.NextAct, record.Intent{Operation: record.RemoveMember},
			record.Refuted},
		{"the same ID has another name by now", on, there, false, record.NextAct,
			with(func(m *record.Member) { m.Name = "etcd-9" }), record.Refuted},
		{"it lives elsewhere by now", on, there, false, record.NextAct,
			with(func(m *record.Member) { m.URLs = []string{"https://elsewhere:2380"} }), record.Refuted},
		{"a member has been added since", on, there, false, record.NextAct,
			with(func(m *record.Member) { m.List = []uint64{5, 6, 7, 8} }), record.Refuted},
		{"an operator's word is not about what is under way", on, there, true, record.NextRest, nothing, record.Refuted},
		{"a suspect stays one", suspect, there, false, record.NextRest, nothing, record.Open},
		{"a suspect is gone", suspect, list(1, true, 5), false, record.NextRest, nothing, record.Settled},
		{"a suspect is gone by one member's own list", suspect, list(1, false, 5), false, record.NextRest, nothing,
			record.Open},
		{"a suspect of another cluster", suspect, list(2, true, 7), false, record.NextRest, nothing, record.Settled},
		{"a suspect is relied on again", suspect, there, true, record.NextRest, nothing, record.Settled},
		{"there is nothing", record.Record{}, there, true, record.NextRest, nothing, record.Open},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if got := record.ResolutionOf(&tc.lease, seen(tc.etcd), tc.forget, tc.next, tc.intent); got != tc.want {
				t.Errorf("%d, want %d", got, tc.want)
			}
		})
	}
}

func TestTheRemovalOfAMemberSaysAllThatItTakesToSettleIt(t *testing.T) {
	target := rollout.MemberTarget{MemberRef: rollout.MemberRef{ID: 7, Name: "etcd-3", Cluster: 1},
		List: []uint64{5, 6, 7}, URLs: []string{"https://etcd-3:2380"}}
	next, i := record.NextOf(rollout.Decision{Action: rollout.RemoveMember{Member: target}}, "rev-2")
	l := record.Record{Intent: i}
	if next != record.NextAct || record.ResolutionOf(&l, seen(rollout.Membership{}), false, record.NextAct,
		record.Intent{Operation: record.RemoveMember, Member: ghost}) != record.Open {
		t.Errorf("%d %+v", next, *i.Member)
	}
}

func TestARecordTellsTheProcessThatABlockingOperationIsAskedOf(t *testing.T) {
	want := rollout.Blocking{Member: rollout.MemberRef{ID: 7, Cluster: 1, Name: "etcd-1"},
		Process: rollout.Process{PodUID: "uid", Restarts: 3}}
	for operation, action := range map[record.Operation]rollout.Action{
		record.Defragment: rollout.Defragment{Member: want.Member, Process: want.Process},
		record.Disarm:     rollout.Disarm{Member: want.Member, Process: want.Process},
	} {
		_, intent := record.NextOf(rollout.Decision{Action: action}, "rev-2")
		want.Operation = string(operation)
		if got := (&record.Record{Intent: intent}).UnderWay(); got == nil || *got != want {
			t.Errorf("%s: %+v, want %+v", operation, got, want)
		}
	}
}

func TestABlockingOperationIsOverWhenItsMemberIsSeenToBeFreeOfIt(t *testing.T) {
	l := record.Record{Intent: record.Intent{Operation: record.Defragment, Member: &record.Member{ID: 7, Cluster: 1}}}
	etcd := rollout.Membership{Known: true, Linearizable: true, ClusterID: 1, Members: []rollout.Member{{ID: 7}}}
	for _, tc := range []struct {
		name    string
		cluster uint64
		want    record.Resolution
	}{{"it is there, and does not answer", 1, record.Open}, {"that was another cluster", 2, record.Settled}} {
		t.Run(tc.name, func(t *testing.T) {
			etcd.ClusterID = tc.cluster
			a := rollout.Assess(rollout.State{Etcd: etcd, UnderWay: l.UnderWay(),
				Pods: []rollout.Pod{{Etcd: rollout.Container{State: rollout.ContainerRunning}}}}, rollout.DefaultPolicy())
			if got := record.ResolutionOf(&l, a, false, record.NextRest, nothing); got != tc.want {
				t.Errorf("%d, want %d", got, tc.want)
			}
		})
	}
}

func TestOnlyWhatStopsAMemberIsTakenForThat(t *testing.T) {
	for _, i := range []record.Intent{nothing, removal, {Operation: record.Defragment}} {
		if got := (&record.Record{Intent: i}).UnderWay(); got != nil {
			t.Errorf("%s: %+v", i, *got)
		}
	}
}

func TestASuspectIsWhoeverARemovalIsAbout(t *testing.T) {
	want := rollout.Suspect{ID: ghost.ID, Name: ghost.Name}
	for _, l := range []record.Record{{Intent: removal}, {Suspect: ghost}} {
		if got := l.Suspected(); got != want {
			t.Errorf("%+v: %+v", l, got)
		}
	}
	if got := (&record.Record{}).Suspected(); got != (rollout.Suspect{}) {
		t.Errorf("of no removal: %+v", got)
	}
}

// Pods below the partition stay outdated until it is lowered.
func TestARolloutIsNotFinishedWhilePodsAreOutdated(t *testing.T) {
	for outdated, want := range map[bool]record.Next{true: record.NextRest, false: record.NextFinish} {
		seen := &rollout.Assessment{Replicas: []rollout.Replica{{}, {Outdated: outdated}}}
		if next, _ := record.NextOf(rollout.Decision{Action: rollout.Complete{}, Assessment: seen}, "rev-2"); next != want {
			t.Errorf("outdated %v: %d, want %d", outdated, next, want)
		}
	}
}
