package coordinator

import (
	"context"
	"slices"
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

// What is read ahead for a look is part of its evidence. So its age counts from before that was sent: whoever is
// suspended in between may get an answer that is hours old.
func TestNothingIsReadForALookBeforeItBegins(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newWatchedStage(t)
		var early atomic.Int64
		reads := func() int64 { return int64(len(s.at(listPods))) }
		defer run(t, s.config(neverDue, func(c *Config) {
			c.wall = func() time.Time { // A look asks for the time as it begins.
				before := reads()
				<-time.After(ms)
				early.Add(reads() - before)
				return time.Now()
			}
		}))()
		<-time.After(time.Minute)
		s.begin()
		s.answering(func(_ context.Context, request string, send func() error) error {
			if request == "MemberList" {
				<-time.After(20 * ms)
			}
			return send()
		})
		s.update("rev-2")
		within(t, time.Minute, "the rollout", func() bool { return s.settled("rev-2") })
		ahead := slices.ContainsFunc(s.at("delete "), func(removal time.Duration) bool {
			return !slices.ContainsFunc(s.at(listPods), func(read time.Duration) bool {
				return read > removal-20*ms && read <= removal
			})
		})
		if early.Load() > 0 || !ahead {
			t.Errorf("%d readings were sent before their look had begun; something was read ahead: %v", early.Load(),
				ahead)
		}
	})
}
