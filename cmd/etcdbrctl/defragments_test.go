package main

import "testing"

func TestAScheduleOfTheHostThatNeverComesIsNone(t *testing.T) {
	for schedule, want := range map[string]string{
		"0 0 */3 * *": "0 0 */3 * *", // The host's default.
		"@every 24h":  "@every 24h",
		"0 0 30 2 *":  "",
		"no schedule": "",
	} {
		if got := defragments(schedule); got != want {
			t.Errorf("%q: got %q", schedule, got)
		}
	}
}
