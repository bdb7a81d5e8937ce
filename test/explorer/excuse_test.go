package explorer

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestARemovalIsExcusedByWhatWasSeenWhenItWasDecidedOn(t *testing.T) {
	// A member as its pod is looked at, and as it is when etcd is asked.
	type member struct{ looks, health uint8 }
	const gone = 0xff
	fine := member{looksReady, healthy}
	unready := member{looksUnready, healthy}
	tests := []struct {
		name    string
		members []member // The target is the first.
		ghosts  int
		lost    bool // when the pods were looked at
		want    uint8
	}{
		{"the others that answer are a quorum: one of them must have failed since",
			[]member{fine, fine, fine}, 0, false,
			enough},
		{"the others that answer are too few: no failure since excuses that",
			[]member{fine, fine, {looksCrashed, crashed}},
			0, false, noExcuse},
		{"a ghost counts for the quorum, and answers nobody", []member{fine, fine, fine}, 1, false, noExcuse},
		{"a silent member that votes is no evidence for one that answers", []member{fine, fine, {looksReady, deaf}}, 0,
			false, noExcuse},
		{"there was no quorum among the kubelets' members, and the target answers by now",
			[]member{unready, unready, {looksCrashed, crashed}}, 0, true, noExcuse},
		{"the target does not vote: it has come back since", []member{{looksReady, hung}, fine, {looksReady, deaf}}, 0,
			false, cameBack},
		{"the target had no process, and is back without a word to us",
			[]member{{looksCrashed, deaf}, fine, {looksReady, hung}}, 0, false, cameBack},
		{"there is no quorum to lose: it has come back since", []member{unready, {looksUnready, hung},
			{looksCrashed, crashed}}, 0, true, cameBack},
		{"the same, and it was lost after the kubelets had looked",
			[]member{fine, {looksReady, hung}, {looksReady, hung}},
			0, false, cameBack},
		{"the target is silent, and another that runs does not vote: a wrong guess",
			[]member{{looksUnready, deafUnready}, fine, {looksReady, hung}}, 0, false, guessed},
		{"the same, and quorum was lost when the kubelets looked", []member{{looksUnready, deaf}, unready,
			{looksUnready, hung}}, 0, true, cameBack},
		{"the target is silent, and the others that run are too few",
			[]member{{looksUnready, deafUnready}, fine, {looksCrashed, crashed}}, 0, false, noExcuse},
		{"the target is silent, and one of the others that ran then is gone by now: a wrong guess",
			[]member{{looksUnready, deafUnready}, fine, {looksReady, gone}, fine}, 0, false, guessed},
		{"nobody answers and a quorum votes: to every client there is none",
			[]member{{looksUnready, deafUnready}, {looksUnready, deafUnready}, {looksCrashed, crashed}}, 0,
			false, guessed},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			m := New(Params{Members: len(tt.members), Ghosts: tt.ghosts, Coordinators: 1})
			w, r := m.First(), request{kind: observe, stage: lookAtEtcd, ordinals: m.First().ordinals}
			for i, member := range tt.members {
				w.pods[i].health = member.health
			}
			m.lookAtPods(&w, &r)
			for i, member := range tt.members {
				r.views[i].look = member.looks
				if member.health == gone {
					w.pods[i].phase = missing
					w.forget(uint8(i)) //nolint:gosec // A handful.
				}
			}
			r.lost = tt.lost
			m.elect(&w)
			m.askEtcd(&w, &r)
			require.Equal(t, tt.want, m.excuseOf(&w, &r, 0))
		})
	}
}

func TestACoordinatorThatIsCutOffIsExcusedByWhatReachesIt(t *testing.T) {
	m := New(Params{Members: 3, Coordinators: 1, Own: true, Faults: Faults{CutOffs: 1, Failures: 1}})
	w := m.First()
	w.pods[1].health = crashed
	m.lookAtPods(&w, &w.coordinators[0].request)
	w.pods[1].health = healthy // It is back, and votes, before etcd is asked.
	r := w.coordinators[0].request
	m.askEtcd(&w, &r)
	require.Equal(t, noExcuse, m.excuseOf(&w, &r, 1))
	m.askEtcd(&w, &w.coordinators[0].request)
	m.distort(&w, 0, cutOff)
	require.Equal(t, cameBack, m.excuseOf(&w, &w.coordinators[0].request, 1))
}
