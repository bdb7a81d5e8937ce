package rollout_test

import (
	"strings"
	"testing"
	"time"

	"github.com/quorate/quorate/pkg/rollout"
)

func TestAnOverrideEnds(t *testing.T) {
	now := time.Date(2026, 1, 2, 15, 4, 5, 0, time.UTC)
	for _, tc := range []struct {
		name       string
		key, value string
		holds      bool // The guard holds again.
	}{
		{"not without terms", "quorate.dev/other", "", false},
		{"not before its time", rollout.ControlOverrideUntil, "2026-01-02T15:04:06Z", false},
		{"at its time", rollout.ControlOverrideUntil, "2026-01-02T15:04:05Z", true},
		{"at its time, in another zone", rollout.ControlOverrideUntil, "2026-01-02T16:04:05+01:00", true},
		{"not as long as the template stays the same", rollout.ControlOverrideRevision, "rev-2", false},
		{"with the next template", rollout.ControlOverrideRevision, "rev-1", true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			c := rollout.ParseControls(map[string]string{rollout.ControlOverrideGuards: "Canary", tc.key: tc.value})
			if len(c.Bad) > 0 || len(c.Override) != 1 {
				t.Fatalf("controls %+v", c)
			}
			c = c.At("rev-2", now)
			if got := len(c.Override) == 0; got != tc.holds || got != (len(c.Ended) == 1) {
				t.Errorf("the guard holds again: %v, and ended are %v", got, c.Ended)
			}
		})
	}
}

func TestAnOverrideWhoseEndCannotBeReadHoldsEverything(t *testing.T) {
	for _, tc := range []struct{ key, value, says string }{
		{rollout.ControlOverrideUntil, "tomorrow", `: "tomorrow": use a time such as 2026-01-02T15:04:05Z`},
		{rollout.ControlOverrideUntil, "0001-01-01T00:00:00Z", ": use a time such as 2026-01-02T15:04:05Z"},
		{rollout.ControlOverrideUntil, "", `: "": use a time such as 2026-01-02T15:04:05Z`},
		{rollout.ControlOverrideRevision, "", `: "": use the name of an update revision`},
		{"quorate.dev/override-til", "2026-01-02T15:04:05Z", "is not a control; use "},
		{"quorate.dev/override-expires", "2026-01-02T15:04:05Z", "is not a control; use "},
		{"quorate.dev/overrides", "Canary", "is not a control; use "},
	} {
		t.Run(tc.key+"="+tc.value, func(t *testing.T) {
			c := rollout.ParseControls(map[string]string{rollout.ControlOverrideGuards: "Canary", tc.key: tc.value})
			if len(c.Bad) != 1 || !strings.HasPrefix(c.Bad[0], tc.key+": ") || !strings.Contains(c.Bad[0], tc.says) {
				t.Errorf("%q", c.Bad)
			}
		})
	}
}

func TestAReasonIsOneLineOfBoundedLength(t *testing.T) {
	c := rollout.ParseControls(map[string]string{rollout.ControlOverrideBy: "al\tice",
		rollout.ControlOverrideReason: "a\nb\x1b[31m" + strings.Repeat("c", 5000)})
	if got := c.Terms.Reason; !strings.HasPrefix(got, "a b [31mccc") || len(got) > 300 || c.Terms.By != "al ice" {
		t.Errorf("%q, by %q", got, c.Terms.By)
	}
}
