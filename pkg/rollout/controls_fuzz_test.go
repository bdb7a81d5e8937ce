package rollout_test

import (
	"testing"

	"github.com/quorate/quorate/pkg/rollout"
)

// FuzzParseControls reads anything as a control: what cannot be read is named, and is
// never taken for a value.
func FuzzParseControls(f *testing.F) {
	for _, key := range []string{rollout.ControlPaused, rollout.ControlPartition, rollout.ControlMaxUnavailable,
		rollout.ControlOverrideGuards, rollout.ControlOverrideUntil, "quorate.dev/pause", "quorate.dev/intent"} {
		for _, value := range []string{"", "true", "false", "1", "-1", "40%", "101%", "99999999999999999999",
			"QuorumFloor, Canary", "Inconsistent", "ja"} {
			f.Add(key, value)
		}
	}
	f.Fuzz(func(t *testing.T, key, value string) {
		c := rollout.ParseControls(map[string]string{key: value})
		if c.Partition != nil && *c.Partition < 0 {
			t.Errorf("partition %d", *c.Partition)
		}
		if m := c.MaxUnavailable; m != nil {
			for _, n := range []int{0, 1, 3, 5, 7} {
				if of := m.Of(n); of < 1 || m.Percent && of > max(1, n) {
					t.Errorf("%q of %d members is %d", value, n, of)
				}
			}
		}
		for _, g := range c.Override {
			if g == rollout.GuardInconsistent || g == rollout.GuardStaleRevision || g == rollout.GuardPaused {
				t.Errorf("%q overrides %s", value, g)
			}
		}
		if len(c.Bad) > 0 {
			w := cluster(3)
			w.state.Controls = c
			if d := rollout.Decide(w.state, w.policy); d.Action.Name() != rollout.ActionHold ||
				d.Guard != rollout.GuardBadControl {
				t.Errorf("%s=%q cannot be read, and it decides %s", key, value, d.Action.Name())
			}
		}
	})
}
