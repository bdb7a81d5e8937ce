package coordinator

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// A laptop or a Job is suspended between a look and the removal that rests on it. Its monotonic clock has stood still.
func TestEvidenceFromBeforeASuspensionIsDropped(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStage(t, 3)
		var slept atomic.Int64
		defer run(t, s.config(func(c *Config) {
			c.wall = func() time.Time { return time.Now().Add(time.Duration(slept.Load())) }
		}))()
		<-time.After(time.Minute)
		first := true
		s.answering(func(_ context.Context, request string, send func() error) error {
			if request == records && first {
				first = false
				slept.Add(int64(time.Hour)) // The intent is on record by now.
			}
			return send()
		})
		s.begin()
		s.update("rev-2")
		within(t, time.Minute, "the rollout", func() bool { return s.settled("rev-2") })
		if n := len(s.at("delete ")); n != 3 {
			t.Errorf("%d removals were sent, want 3", n)
		}
		if len(s.at("says what was decided was dropped")) != 1 || len(s.at("fence ")) != 1 {
			t.Errorf("dropped at %v, fenced at %v", s.at("says what was decided was dropped"), s.at("fence "))
		}
	})
}
