package rollout_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/quorate/quorate/pkg/rollout"
)

// tape makes choices from fuzzed bytes; at its end every choice is the first.
type tape struct{ bytes []byte }

func (t *tape) pick(n int) int {
	if len(t.bytes) == 0 {
		return 0
	}
	b := int(t.bytes[0])
	t.bytes = t.bytes[1:]
	return b % n
}

// mostly is true unless the tape says otherwise, which it does once in eight.
func (t *tape) mostly() bool { return t.pick(8) != 1 }

func (t *tape) number() uint64 {
	return []uint64{0, 1, 2, 3, term, index, index + 1, 1<<64 - 1}[t.pick(8)]
}

func (t *tape) container() rollout.Container {
	return rollout.Container{
		State: []rollout.ContainerState{rollout.ContainerRunning, rollout.ContainerWaiting,
			rollout.ContainerTerminated, rollout.ContainerAbsent}[t.pick(4)],
		Reason: []string{"", "CrashLoopBackOff", "ContainerCreating", "%d%s"}[t.pick(4)],
		Ready:  t.mostly(), Restarts: t.pick(3),
	}
}

// state makes facts that may well contradict each other.
func (t *tape) state() rollout.State {
	s := rollout.State{
		Set: rollout.Set{
			Name: "etcd", UID: "set", Replicas: []int{3, 1, 2, 4, 5, 7, 0, -1, 1 << 40}[t.pick(9)],
			Start:    []int{0, 1, -1}[t.pick(3)],
			OnDelete: t.mostly(), Deleting: !t.mostly(), Generation: 1, ObservedGeneration: int64(1 - t.pick(8)/7),
			UpdateRevision: []string{newRev, newRev, newRev, oldRev, ""}[t.pick(5)], VolatileData: !t.mostly(),
		},
		Etcd: rollout.Membership{Known: t.mostly()},
		Self: name(t.pick(4)),
		Memory: rollout.Memory{
			Ages:            rollout.Ages{{Condition: rollout.QuorumLostSeen}: time.Duration(t.pick(2)) * long},
			FailedTransfers: rollout.Failures{id(0): t.pick(3)},
		},
	}
	for i := range t.pick(9) {
		o := i
		if !t.mostly() {
			o = t.pick(9) - 1
		}
		p := rollout.Pod{
			Name: name(o), UID: fmt.Sprint("uid-", i), ResourceVersion: "1", Ordinal: o, MemberName: name(o),
			Revision: []string{oldRev, newRev, "rev-0"}[t.pick(3)], Owned: t.mostly(), Terminating: !t.mostly(),
			Ready: t.mostly(), ContainersReady: t.mostly(), ReadinessGates: !t.mostly(), Initialized: t.mostly(),
			NeverReady: !t.mostly(), VolatileData: !t.mostly(),
			Etcd: t.container(), Sidecar: t.container(),
		}
		s.Pods = append(s.Pods, p)
		for c := rollout.ReadySeen; c <= rollout.PodSeen; c++ {
			s.Ages[rollout.Sighting{UID: p.UID, Condition: c}] = time.Duration(t.pick(2)) * long
		}
	}
	for i := range t.pick(9) {
		if !s.Etcd.Known {
			break
		}
		m := rollout.Member{
			ID:      id(i),
			Name:    name(i),
			Learner: !t.mostly(),
			Probe:   rollout.Probe{Read: rollout.ReadResult((t.pick(7) + 1) % 5), Detail: "%d"},
		}
		if !t.mostly() {
			m.ID, m.Name = t.number(), []string{"", "etcd-0", "elsewhere"}[t.pick(3)]
			m.PeerURLs = []string{"https://" + name(t.pick(4)) + ".peer:2380"}
		}
		if t.mostly() {
			m.Probe.Status = &rollout.Status{
				Leader:  id(0),
				Term:    term,
				Index:   index,
				Applied: index,
				Corrupt: !t.mostly(),
			}
			if !t.mostly() {
				m.Probe.Status = &rollout.Status{
					Leader:  t.number(),
					Term:    t.number(),
					Index:   t.number(),
					Applied: t.number(),
				}
			}
		}
		s.Etcd.Members = append(s.Etcd.Members, m)
	}
	return s
}

// FuzzDecide decides on any facts: it never panics, always says why it does nothing, and
// an action rests on facts that do not contradict each other and names a pod that is ours
// to remove. (How dumps become facts is fuzzed where they are read.)
func FuzzDecide(f *testing.F) {
	f.Add([]byte{})
	f.Add([]byte{0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 3})
	for i := range 16 {
		seed := make([]byte, 256)
		for k := range seed {
			seed[k] = byte(k * k * (i + 3) / 7)
		}
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, bytes []byte) {
		state := (&tape{bytes}).state()
		for i, d := range rollout.Predict(state, rollout.DefaultPolicy()) {
			if d.Reason() == "" {
				t.Errorf("%s without a reason", d.Action.Name())
			}
			for _, c := range d.Candidates {
				for _, v := range c.Verdicts {
					if v.Detail() == "" {
						t.Errorf("%s says nothing of %s", v.Guard, c.Pod)
					}
				}
			}
			if i == 0 && d.Acts() {
				mayAct(t, state, d)
			}
		}
	})
}

func mayAct(t *testing.T, s rollout.State, d rollout.Decision) {
	t.Helper()
	ordinals, names, ids, leaders := map[int]bool{}, map[string]bool{}, map[uint64]bool{}, map[uint64]uint64{}
	found := false
	for _, p := range s.Pods {
		if p.Owned && (p.Ordinal < 0 || ordinals[p.Ordinal]) {
			t.Errorf("%s although %s has no ordinal of its own", d.Action.Name(), p.Name)
		}
		ordinals[p.Ordinal] = ordinals[p.Ordinal] || p.Owned
		if p.UID != d.Target().UID {
			continue
		}
		found = true
		if !p.Owned || p.Terminating || p.Revision == s.Set.UpdateRevision || p.Ordinal < s.Set.Start ||
			p.Ordinal >= s.Set.Start+s.Set.Replicas {
			t.Errorf("%s of a pod that is not a candidate: %+v", d.Action.Name(), p)
		}
	}
	if !found {
		t.Errorf("the target %+v is not there", d.Target())
	}
	for _, m := range s.Etcd.Members {
		if ids[m.ID] || m.Name != "" && names[m.Name] || m.Probe.Read == rollout.WrongCluster {
			t.Errorf("%s although member %x %q is listed twice or of another cluster", d.Action.Name(), m.ID, m.Name)
		}
		ids[m.ID], names[m.Name] = true, true
		st := m.Probe.Status
		if st == nil {
			continue
		}
		if st.Corrupt {
			t.Errorf("%s although member %q reports CORRUPT", d.Action.Name(), m.Name)
		}
		if l, ok := leaders[st.Term]; ok && l != st.Leader && st.Leader != 0 {
			t.Errorf("%s although term %d has two leaders", d.Action.Name(), st.Term)
		}
		if st.Leader != 0 {
			leaders[st.Term] = st.Leader
		}
	}
}
