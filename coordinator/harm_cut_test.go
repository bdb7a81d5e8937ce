package coordinator

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/quorate/quorate/pkg/rollout"
)

// These tests play, through the real loop, what public reports and attacks have shown to cost members.

// A zone is cut off together with its API server. It still has the kubelets' last words on the members of the other
// side, which were down at that moment and have been a quorum for long.
func TestAZoneThatIsCutOffWithTheAPIServerTakesNobody(t *testing.T) {
	for _, tc := range []struct {
		name     string
		replicas int
		over     []int
		scene    func(s *stage)
	}{
		{"two of three crash-looped just before the cut", 3, []int{1, 2}, func(s *stage) {
			s.crashes(1)
			s.crashes(2)
		}},
		{"one of them was starting", 3, []int{1, 2}, func(s *stage) {
			s.crashes(1)
			s.change(func() { s.starting(2) })
		}},
		{"three of five", 5, []int{2, 3, 4}, func(s *stage) {
			for _, i := range []int{2, 3, 4} {
				s.crashes(i)
			}
		}},
		{"the kubelets had found them well", 3, []int{1, 2}, func(*stage) {}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newStage(t, tc.replicas)
				const settle = time.Minute
				defer run(t, s.config(as("etcd-0"), func(c *Config) { c.Policy.SettleTimeout = settle }))()
				<-time.After(time.Minute)
				tc.scene(s)
				s.etcd.LoseQuorum()
				s.change(func() { s.setReady(s.pods[0], false) })
				for _, i := range tc.over {
					s.unreachable(i, true)
				}
				s.update("rev-2")
				<-time.After(3 * settle)
				s.expect(t)
				if len(s.at("says CutOff")) == 0 {
					t.Error("it does not say that it may be cut off")
				}
			})
		})
	}
}

// What the kubelets said last reaches the zone late, when the cut has long begun. It is no word from the other side.
func TestALastWordThatIsToldLateIsNoNews(t *testing.T) {
	for _, watched := range []bool{false, true} {
		t.Run(fmt.Sprintf("watched: %v", watched), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s, tell := newStage(t, 3), func() {}
				if watched {
					s = newWatchedStage(t)
				}
				defer run(t, s.config(as("etcd-0")))()
				<-time.After(time.Minute)
				s.etcd.LoseQuorum()
				for _, i := range []int{1, 2} {
					s.crashes(i)
					s.unreachable(i, true)
				}
				s.begin()
				s.update("rev-2")
				within(t, time.Minute, "a look", func() bool { return len(s.at("says CutOff")) > 0 })
				if watched {
					tell = s.hold()
				}
				s.answering(failing(errRefused, getSet, listPods))
				s.saysMore(1, 2)
				<-time.After(8 * time.Second)
				s.answering(nil)
				tell()
				<-time.After(4 * time.Minute)
				s.expect(t)
			})
		})
	}
}

// Worlds close by, in which the cure must be as quick as ever.
func TestTheCureIsAsQuickWhereTheDeadCanBeHeard(t *testing.T) {
	for _, tc := range []struct {
		name  string
		scene func(s *stage)
	}{
		{"their addresses refuse connections", func(s *stage) { s.losesQuorum(false, 1, 2) }},
		{"one refuses, and the node of the other has no power", func(s *stage) {
			s.losesQuorum(false, 2)
			s.crashes(1)
			s.unreachable(1, true)
		}},
		{"requests to them are swallowed by a proxy, and their own addresses refuse", func(s *stage) {
			s.losesQuorum(true, 1, 2)
			s.refuse(1, 2)
		}},
		{"one is silent, and the other has no network yet, but its node refuses connections", func(s *stage) {
			s.losesQuorum(true, 1, 2)
			s.refuse(2)
			s.change(func() {
				s.starting(2)
				s.pods[2].Status.HostIPs = []corev1.HostIP{{IP: s.pods[2].Status.PodIPs[0].IP}}
				s.pods[2].Status.PodIPs = nil
			})
		}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newStage(t, 3)
				defer run(t, s.config(as("etcd-0")))()
				<-time.After(time.Minute)
				tc.scene(s)
				s.begin()
				s.update("rev-2")
				within(t, time.Minute, "a removal", func() bool { return len(s.at("delete ")) > 0 })
				bound := DefaultFallbackAfter + time.Second + 2*DefaultProbeTimeout
				if first := s.at("delete ")[0]; first > bound {
					t.Errorf("the first removal came after %v, want %v at most", first, bound)
				}
			})
		})
	}
}

// Requests are swallowed everywhere, and the kubelets go on telling that their containers crash.
func TestWhatAKubeletSaysInTheSilenceIsBelieved(t *testing.T) {
	for _, watched := range []bool{false, true} {
		t.Run(fmt.Sprintf("watched: %v", watched), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newStage(t, 3)
				if watched {
					s = newWatchedStage(t)
				}
				defer run(t, s.config(as("etcd-0")))()
				<-time.After(time.Minute)
				s.losesQuorum(true, 1, 2)
				s.begin()
				s.update("rev-2")
				for range 3 { // A back-off of ten seconds.
					<-time.After(10 * time.Second)
					s.saysMore(1, 2)
				}
				within(t, time.Second, "a removal", func() bool { return len(s.at("delete ")) > 0 })
			})
		})
	}
}

// A watch hangs for as long as a cached view lasts, while a member restarts shortly at its beginning and at its end.
// That is no member that has been down all the time, so a revision that fails takes no second one.
func TestTwoShortRestartsAreNotOneLongOne(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newWatchedStage(t)
		s.stuck = true // The new revision fails.
		defer run(t, s.config(neverDue))()
		<-time.After(time.Minute)
		s.update("rev-2")
		within(t, time.Minute, "the canary", func() bool { return s.story() != "" })
		<-time.After(rollout.DefaultPolicy().SettleTimeout + time.Minute)
		canary := s.story()
		restart := func() {
			s.crashes(0)
			s.unreachable(0, true)
			s.refuse(0)
		}
		restart()
		<-time.After(2 * time.Second)
		resume := s.hold()
		s.unreachable(0, false) // The member serves again, and no watch tells that its pod is well.
		<-time.After(rollout.DefaultPolicy().SettleTimeout - 10*time.Second)
		restart()
		<-time.After(20 * time.Second)
		if got := s.story(); got != canary {
			t.Errorf("a second member was taken: %s, after %s", got, canary)
		}
		resume()
	})
}

// saysMore lets the kubelets say that their containers have crashed once more.
func (s *stage) saysMore(ordinals ...int) {
	s.change(func() {
		for _, i := range ordinals {
			s.pods[i].Status.ContainerStatuses[0].RestartCount++
		}
	})
}

// starting lets the kubelet say that an etcd container is being set up.
func (s *stage) starting(ordinal int) {
	s.setReady(s.pods[ordinal], false)
	c := &s.pods[ordinal].Status.ContainerStatuses[0]
	c.State.Running, c.State.Waiting = nil, &corev1.ContainerStateWaiting{Reason: "ContainerCreating"}
}
