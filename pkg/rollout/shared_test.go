package rollout_test

import (
	"strings"
	"testing"

	"github.com/quorate/quorate/pkg/rollout"
)

// onlyShared: these members advertise only what others answer too.
func onlyShared(answer rollout.ReadResult, ordinals ...int) change {
	return each(ordinals, func(w *world, o int) {
		w.member(o).Probe = rollout.Probe{Read: answer, OnlyShared: true,
			Detail: "it advertises only addresses that several members answer"}
	})
}

func TestQuorumFloorSaysWhyMembersCannotBeToldApart(t *testing.T) {
	const why = "etcd-1: it advertises only addresses that several members answer"
	for _, tc := range []struct {
		name string
		w    *world
		want string
		says bool
	}{
		{"another member answers in their place", cluster(3, onlyShared(rollout.WrongMember, 1, 2)), "hold QuorumFloor",
			true},
		{"they do not answer for another reason", cluster(3, unknown(1, 2), func(w *world) {
			w.member(1).Probe.Read = rollout.Failed
		}), "hold QuorumFloor", false},
		{"one of five does not matter", cluster(5, onlyShared(rollout.WrongMember, 1), maxUnavailable(2)),
			"delete etcd-4", false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			d := tc.w.decide()
			if got := say(d); got != tc.want {
				t.Errorf("got %s, want %s", got, tc.want)
			}
			if got := d.Reason(); strings.Contains(got, why) != tc.says {
				t.Errorf("says %q", got)
			}
		})
	}
}
