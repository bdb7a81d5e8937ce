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
		{"something else is decided", on, there, false, record.NextRest, nothing, record.Refuted},
		{"another member is to go", on, there, false, record.NextAct, with(func(m *record.Member) { m.ID = 6 }),
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
