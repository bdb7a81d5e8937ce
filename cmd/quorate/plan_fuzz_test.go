package main

import (
	"bytes"
	"path/filepath"
	"slices"
	"testing"

	"github.com/quorate/quorate/internal/record"
	"github.com/quorate/quorate/internal/report"
	"github.com/quorate/quorate/internal/workload"
	"github.com/quorate/quorate/membership"
	"github.com/quorate/quorate/pkg/rollout"
)

// FuzzPlan reads anything as a dump: it never panics, and a decision that acts rests on
// facts that do not contradict each other and names a pod that is ours to remove.
//
// Run it with -fuzzminimizetime=1x: shrinking what is interesting takes a minute for each
// input otherwise, and no other is tried meanwhile. What is decided once the facts are read
// is fuzzed a hundred times as fast by FuzzDecide in pkg/rollout.
func FuzzPlan(f *testing.F) {
	seed := func(files map[string][]byte) {
		f.Add(files["objects.yaml"], files["member-list.json"], files["endpoint-status.json"], files["endpoint-health.json"])
	}
	for _, s := range slices.Concat(situations, unasked) {
		seed(s.make().files(f))
	}
	recorded, err := filepath.Glob(filepath.Join("testdata", "recorded", "*.txtar"))
	if err != nil {
		f.Fatal(err)
	}
	for _, path := range recorded {
		seed(unpacked(f, path))
	}
	odd := func(spec string) []byte {
		return []byte("kind: StatefulSet\nspec: {" + spec + ", updateStrategy: {type: OnDelete}}\n" +
			"status: {updateRevision: x}\n")
	}
	f.Add(odd("replicas: -1, ordinals: {start: -3}"), []byte(`{"members":[{}]}`), []byte("null"), []byte("[]"))
	f.Add(odd("replicas: 2147483647"), []byte("{"), []byte("{}"), []byte(""))
	f.Fuzz(func(t *testing.T, objects, list, status, health []byte) {
		var dump workload.Dump
		if dump.Read(bytes.NewReader(objects)) != nil {
			return
		}
		set, err := dump.Select("", "")
		if err != nil {
			return
		}
		etcd, err := membership.Dump{MemberList: list, EndpointStatus: status, EndpointHealth: health}.Membership()
		if err != nil {
			return
		}
		names := workload.DefaultNames()
		facts := dump.Facts(set, names)
		state := rollout.State{
			Set: facts.Set, Pods: facts.Pods, Etcd: etcd,
			Controls: record.Controls(dump.Lease(set.Namespace, record.Name(set.Name))),
			Memory:   rollout.Memory{Ages: dump.Ages(set, names, now)},
		}
		for i, d := range rollout.Predict(state, rollout.DefaultPolicy()) {
			if err := report.NewPlan(d).Table(new(bytes.Buffer)); err != nil {
				t.Fatal(err)
			}
			if d.Reason() == "" && !d.Acts() {
				t.Errorf("%s without a reason", d.Action.Name())
			}
			if _, disarms := d.Action.(rollout.Disarm); i == 0 && d.Acts() && !disarms {
				mayAct(t, state, d) // An alarm may be that of a member that is gone.
			}
		}
	})
}

func mayAct(t *testing.T, s rollout.State, d rollout.Decision) {
	t.Helper()
	i := slices.IndexFunc(s.Pods, func(p rollout.Pod) bool { return p.UID == d.Target().UID && p.Name == d.Target().Pod })
	if i < 0 {
		t.Fatalf("the target %+v is no pod of the dump", d.Target())
	}
	switch p := s.Pods[i]; {
	case !p.Owned, p.Terminating, p.Revision == s.Set.UpdateRevision,
		p.Ordinal < s.Set.Start, p.Ordinal >= s.Set.Start+s.Set.Replicas:
		t.Errorf("%s of a pod that is not a candidate: %+v", d.Action.Name(), p)
	}
	ordinals, names, ids, leaders := map[int]bool{}, map[string]bool{}, map[uint64]bool{}, map[uint64]uint64{}
	for _, p := range s.Pods {
		if p.Owned && (p.Ordinal < 0 || ordinals[p.Ordinal]) {
			t.Errorf("%s although %s has no ordinal of its own", d.Action.Name(), p.Name)
		}
		ordinals[p.Ordinal] = ordinals[p.Ordinal] || p.Owned
	}
	for _, m := range s.Etcd.Members {
		if ids[m.ID] || m.Name != "" && names[m.Name] {
			t.Errorf("%s although member %x %q is listed twice", d.Action.Name(), m.ID, m.Name)
		}
		ids[m.ID], names[m.Name] = true, true
		st := m.Probe.Status
		if st == nil || st.Leader == 0 {
			continue
		}
		if l, ok := leaders[st.Term]; ok && l != st.Leader {
			t.Errorf("%s although term %d has two leaders", d.Action.Name(), st.Term)
		}
		leaders[st.Term] = st.Leader
	}
}
