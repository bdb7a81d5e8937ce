package rollout_test

import (
	"strings"
	"testing"
	"time"

	"github.com/quorate/quorate/pkg/rollout"
)

func TestAnOverrideEnds(t *testing.T) {
	now := time.Date(2026, 1, 2, 15, 4, 5, 0, time.UTC)
	set := rollout.Set{UpdateRevision: "rev-2", Generation: 7}
	for _, tc := range []struct {
		name       string
		key, value string
		holds      bool // The guard holds again.
	}{
		{"not without terms", "quorate.dev/other", "", false},
		{"not before its time", rollout.ControlOverrideUntil, "2026-01-02T15:04:06Z", false},
		{"at its time", rollout.ControlOverrideUntil, "2026-01-02T15:04:05Z", true},
		{"at its time, in another zone", rollout.ControlOverrideUntil, "2026-01-02T16:04:05+01:00", true},
		{"not during its rollout", rollout.ControlOverrideRollout, "rev-2@7", false},
		{"with its rollout", rollout.ControlOverrideRollout, "rev-1@6", true},
		{"with its rollout, although a later one has the same revision", rollout.ControlOverrideRollout, "rev-2@6", true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			c := rollout.ParseControls(map[string]string{rollout.ControlOverrideGuards: "Canary", tc.key: tc.value})
			if len(c.Bad) > 0 || len(c.Override) != 1 {
				t.Fatalf("controls %+v", c)
			}
			if got := len(c.At(&set, now).Override) == 0; got != tc.holds {
				t.Errorf("the guard holds again: %v", got)
			}
		})
	}
}

func TestAnOverrideWhoseEndCannotBeReadHoldsEverything(t *testing.T) {
	c := rollout.ParseControls(map[string]string{rollout.ControlOverrideGuards: "Canary",
		rollout.ControlOverrideUntil: "tomorrow"})
	if len(c.Bad) != 1 || c.Bad[0] !=
		`quorate.dev/override-until: "tomorrow": use a time such as 2026-01-02T15:04:05Z` {
		t.Errorf("%q", c.Bad)
	}
}

func TestAReasonIsOneLineOfBoundedLength(t *testing.T) {
	c := rollout.ParseControls(map[string]string{
		rollout.ControlOverrideReason: "a\nb\x1b[31m" + strings.Repeat("c", 5000), rollout.ControlOverrideBy: "al\tice"})
	if got := c.Terms.Reason; !strings.HasPrefix(got, "a b [31mccc") || len(got) > 300 || c.Terms.By != "al ice" {
		t.Errorf("%q, by %q", got, c.Terms.By)
	}
}
