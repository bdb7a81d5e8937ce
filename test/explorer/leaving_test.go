package explorer

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestNobodyReliesOnAMemberThatOthersAreAboutToTake(t *testing.T) {
	const (
		first  = uint8(1) << iota // The target.
		second                    // is well.
		third                     // too.
	)
	tests := []struct {
		name  string
		signs signs
		age   uint8
		// deaf: the target answers neither us nor its kubelet.
		deaf bool
		want uint8
	}{
		{"nobody says anything", signs{}, young, false, enough},
		{"the target itself may be taken", signs{marked: first, cordoned: first}, young, false, enough},
		{"another one is about to be taken", signs{marked: second}, young, false, noExcuse},
		{"another one's node is cordoned", signs{cordoned: third}, young, false, noExcuse},
		{"and was not cordoned just now, but not for long either", signs{cordoned: third}, middling, false, noExcuse},
		{"and has been for so long that nobody waits for it", signs{cordoned: third}, beyond, false, outwaited},
		{"the same for all nodes", signs{cordoned: first | second | third}, beyond, false, outwaited},
		{"what is about to be taken is always waited for", signs{marked: second}, beyond, false, noExcuse},
		{"also if another one's node is cordoned", signs{marked: second, cordoned: third}, beyond, false, noExcuse},
		{"a process that may vote is not taken beside one either", signs{marked: second}, beyond, true, noExcuse},
		{"but it is no loss that nobody could foresee if enough others answer", signs{}, young, true, enough},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			m := New(Params{Members: 3, Coordinators: 1, Faults: Faults{Signs: 3}})
			w, r := m.First(), request{kind: observe, stage: lookAtEtcd, ordinals: m.First().ordinals}
			w.signs = tt.signs
			if tt.deaf {
				w.pods[0].health = deafUnready
			}
			m.elect(&w)
			m.lookAtPods(&w, &r)
			m.askEtcd(&w, &r)
			require.Equal(t, tt.want, m.excuseBeside(&w, &r, 0, tt.age))
		})
	}
}
