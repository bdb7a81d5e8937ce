package coordinator

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/quorate/quorate/internal/record"
	"github.com/quorate/quorate/internal/report"
	"github.com/quorate/quorate/pkg/rollout"
)

// unheard has something happen that no watch ever tells. A bookmark has the watches go on behind it when they are
// opened again.
func (s *stage) unheard(f func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.feed.late = true
	f()
	s.feed.tell(s.kube)
	s.feed.late = false
	for _, w := range s.feed.watches {
		if w.next = len(s.feed.changes); !w.IsStopped() {
			w.Action(watch.Bookmark, &corev1.Pod{ObjectMeta: metav1.ObjectMeta{
				ResourceVersion: strconv.Itoa(s.version)}})
		}
	}
}

// Whoever stands between us and the API server can lose an event. An API server has every watch end within an hour.
func TestARolloutWhoseEventWasLostIsNoticedWhenTheWatchIsOpenedAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newWatchedStage(t)
		defer run(t, s.config(neverDue))()
		<-time.After(10 * time.Minute)
		s.begin()
		s.unheard(func() {
			s.set.Generation++
			s.set.Status.ObservedGeneration++
			s.set.Status.UpdateRevision = "rev-2"
		})
		<-time.After(time.Minute)
		s.interrupt(false)
		<-time.After(time.Minute)
		if n := len(s.at("delete ")); n == 0 {
			t.Errorf("nothing was removed; asked: %v", s.asked())
		}
	})
}

// An API server whose etcd was restored counts anew. A watch that goes on at a resourceVersion that is yet to come
// tells nothing before that, and reports no error (see Watch and process in k8s.io/apiserver/pkg/storage/cacher).
func (s *stage) restored() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, w := range s.feed.watches {
		w.Stop()
	}
	s.feed.watches = nil
	s.version = 1000
	for i, p := range s.pods {
		p.ResourceVersion = strconv.Itoa(900 + i)
	}
	s.set.ResourceVersion, s.lease.ResourceVersion = "910", "911"
	s.feed.objects, s.feed.changes = map[string]mirrored{}, nil
	s.feed.tell(s.kube)
	s.feed.changes, s.feed.future = nil, true
}

func TestARestoredAPIServerDoesNotEndAllRollouts(t *testing.T) {
	for _, removal := range []rollout.Removal{rollout.RemoveByDelete, rollout.RemoveByEviction} {
		for _, began := range []bool{false, true} {
			t.Run(fmt.Sprintf("%v, in the midst of one: %v", removal, began), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					s := newWatchedStage(t)
					s.change(func() {
						s.version = 5000
						for _, p := range s.pods {
							s.setReady(p, true)
						}
						s.set.Status.ReadyReplicas = 3
						s.written()
					})
					defer run(t, s.config(neverDue, func(c *Config) { c.Policy.Removal = removal }))()
					<-time.After(10 * time.Minute)
					if began {
						s.waiting()
						<-time.After(time.Minute)
					}
					s.begin()
					s.restored()
					<-time.After(time.Minute)
					if began {
						s.change(func() { s.set.Spec.MinReadySeconds = 0 })
					} else {
						s.update("rev-2")
					}
					<-time.After(30 * time.Minute)
					if !s.settled("rev-2") {
						s.mu.Lock()
						fenced := len(s.fenced)
						s.mu.Unlock()
						t.Errorf("half an hour later: removed %v, pods changed %d times, %d requests, said %v",
							s.at("delete "), fenced, len(s.asked()), s.at("says "))
					}
				})
			})
		}
	}
}

// pausedBesideAnotherThatIsFit is a rollout that is paused, with looks that go by a cached view, under the sidecar of
// etcd-2. That of etcd-0 could take over.
func pausedBesideAnotherThatIsFit(t *testing.T) (s *stage, end func()) {
	s = newWatchedStage(t)
	s.annotate(rollout.ControlPaused, "true")
	s.update("rev-2")
	end = run(t, s.config(as("etcd-2"), neverDue))
	<-time.After(time.Minute)
	s.waits(fit("etcd-0"))
	<-time.After(10 * time.Second)
	s.begin()
	return s, end
}

// A member whose pod is gone is Down, not Unknown. Only a cached view that lags behind shows its pod as well.
func TestNobodyIsUnfitBecauseOfAStaleView(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, end := pausedBesideAnotherThatIsFit(t)
		defer end()
		defer s.hold()()
		s.unreachable(1, true)
		s.change(func() { s.setReady(s.pods[1], false) }) // As its kubelet says, live.
		<-time.After(2 * time.Minute)
		if at := s.at("says unfit"); len(at) > 0 {
			t.Errorf("it stepped aside at %v, and had read the pods at %v", at, s.at(listPods))
		}
	})
}

// A member that does not answer may be one whose pod is gone, and a watch may not have told of that. So everything is
// read live at once, and whoever really does not see a member does not wait for the next time that it is due.
func TestWhoDoesNotSeeAMemberReadsLiveAndLetsAnotherTry(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, end := pausedBesideAnotherThatIsFit(t)
		defer end()
		s.unreachable(1, true)
		<-time.After(2 * time.Minute)
		aside := s.at("says unfit: etcd-1 has been Unknown")
		if len(aside) != 1 || aside[0] < unknownPatience || aside[0] > unknownPatience+3*held {
			t.Errorf("it stepped aside at %v, and had read the pods at %v", aside, s.at(listPods))
		}
	})
}

// Watches that hang tell nothing. What the next live look finds may have happened a moment ago, and a container that is
// restarted at once may leave the pod as Ready as it was.
func TestALiveLookDoesNotBelieveForHowLongTheWatchesHaveToldTheSame(t *testing.T) {
	const minReady = 30 * time.Second
	synctest.Test(t, func(t *testing.T) {
		s := newWatchedStage(t)
		s.change(func() { s.set.Spec.MinReadySeconds = int32(minReady.Seconds()) })
		s.annotate(rollout.ControlPartition, "2")
		s.update("rev-2")
		defer run(t, s.config(neverDue))()
		<-time.After(3 * time.Minute)
		s.begin()
		defer s.hold()()
		s.change(func() { s.pods[2].Status.ContainerStatuses[0].RestartCount++ })
		s.annotate(rollout.ControlPartition, "0")
		<-time.After(10 * time.Minute)
		read, removed := s.at(listPods), s.at("delete etcd-1")
		if len(removed) != 1 || removed[0]-read[0] < minReady || removed[0]-read[0] > minReady+2*held {
			t.Errorf("etcd-1 was removed at %v, and the pods were read live at %v", removed, read)
		}
	})
}

// A pod that was unready until a moment ago has not been Ready for minReadySeconds, in whatever burst the watch tells.
func TestABurstOfLateEventsMakesNoPodSettled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newWatchedStage(t)
		s.change(func() { s.set.Spec.MinReadySeconds = 30 })
		defer run(t, s.config(neverDue))()
		<-time.After(time.Minute)
		s.begin()
		s.update("rev-2")
		within(t, 2*time.Minute, "the first pod", func() bool {
			s.mu.Lock()
			defer s.mu.Unlock()
			p := s.pods[2]
			return p.Labels["controller-revision-hash"] == "rev-2" && p.Status.ContainerStatuses[0].Ready
		})
		<-time.After(10 * time.Second)
		letGo := s.hold()
		s.change(func() { s.setReady(s.pods[2], false) })
		<-time.After(15 * time.Second)
		s.change(func() { s.setReady(s.pods[2], true) })
		letGo()
		s.begin()
		<-time.After(29 * time.Second)
		if at := append(s.at("delete etcd-1"), s.at("delete etcd-0")...); len(at) > 0 {
			t.Errorf("the next pod went %v after etcd-2 had become Ready again", at)
		}
	})
}

// Whatever changes some annotation of a pod every second holds up no rollout, although etcd takes 1.2 s to answer.
func TestAPodThatKeepsChangingHoldsUpNoRollout(t *testing.T) {
	for _, minReady := range []int32{0, 10} {
		t.Run(fmt.Sprintf("minReadySeconds %d", minReady), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newWatchedStage(t)
				s.change(func() { s.set.Spec.MinReadySeconds = minReady })
				s.answering(slowly(1200*time.Millisecond, "MemberList"))
				defer run(t, s.config(neverDue))()
				<-time.After(time.Minute)
				s.begin()
				s.update("rev-2")
				for n := range 600 {
					<-time.After(time.Second)
					s.change(func() {
						for _, p := range s.pods {
							if p.Labels["controller-revision-hash"] == "rev-2" {
								p.Annotations = map[string]string{"seen": strconv.Itoa(n)}
							}
						}
					})
				}
				if !s.settled("rev-2") {
					t.Errorf("removed at %v, %d requests", s.at("delete"), len(s.asked()))
				}
			})
		})
	}
}

// A record that we have written ourselves makes sense, and nobody takes it from us while we renew it in time.
func TestOurOwnRecordMakesSense(t *testing.T) {
	for _, d := range []time.Duration{2 * time.Minute, 4 * time.Minute, 10 * time.Minute} {
		t.Run(d.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newWatchedStage(t)
				s.waiting()
				defer run(t, s.config(func(c *Config) { c.RecordDuration = d }))()
				<-time.After(5 * d)
				if at := s.at("says the Lease says what makes no sense"); len(at) > 0 {
					t.Errorf("it distrusts its own record at %v", at)
				}
				var longest time.Duration
				writes := append(s.at(renews), s.at(tells)...)
				slices.Sort(writes)
				for _, g := range gaps(writes) {
					longest = max(longest, g)
				}
				// As patience has it.
				s.mu.Lock()
				stands := min(record.Parse(s.lease).Duration, max(record.LongestDuration, d))
				s.mu.Unlock()
				if longest >= stands {
					t.Errorf("it is renewed every %v, and another waits for no longer than %v", longest, stands)
				}
			})
		})
	}
}

// What we have written ourselves is known, whatever a watch that begins anew tells of the time before.
func TestOurOwnWriteIsNotForgotten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newWatchedStage(t)
		s.waiting()
		defer run(t, s.config())()
		<-time.After(time.Minute)
		s.begin()
		var once atomic.Bool
		s.answering(func(_ context.Context, request string, send func() error) error {
			if request == renews && !once.Swap(true) {
				s.interrupt(true)
				<-time.After(5 * time.Second) // The watch begins anew meanwhile.
				s.hold()
			}
			return send()
		})
		<-time.After(4 * time.Minute)
		if n := len(s.at(claims)); n > 0 {
			t.Errorf("it claims its own record again %d times", n)
		}
	})
}

// An eviction changes its pod before it deletes it, and a watch tells of the one before the other. Nobody else takes
// it.
func TestWhatWeEvictIsNotTakenByOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newWatchedStage(t)
		defer run(t, s.config(neverDue, func(c *Config) { c.Policy.Removal = rollout.RemoveByEviction }))()
		<-time.After(time.Minute)
		s.begin()
		s.answering(func(_ context.Context, request string, send func() error) error {
			if request != "evict etcd-2" {
				return send()
			}
			s.mu.Lock()
			marked := s.pods[2].DeepCopy()
			s.mu.Unlock()
			letGo := s.hold()
			if err := send(); err != nil {
				return err
			}
			s.mu.Lock()
			s.version++
			s.pods[2].ResourceVersion = strconv.Itoa(s.version)
			marked.ResourceVersion = strconv.Itoa(s.version - 1)
			marked.Status.Conditions = append(marked.Status.Conditions, corev1.PodCondition{
				Type: corev1.DisruptionTarget, Status: corev1.ConditionTrue, Reason: "EvictionByEvictionAPI"})
			s.mu.Unlock()
			time.AfterFunc(time.Millisecond, func() { // The first of its two events.
				s.mu.Lock()
				defer s.mu.Unlock()
				for _, w := range s.feed.watches {
					if w.of == ofPods {
						w.Action(watch.Modified, marked)
					}
				}
			})
			time.AfterFunc(time.Second, letGo) // And the second.
			return nil
		})
		s.update("rev-2")
		<-time.After(2 * time.Second)
		if at := s.at("says OthersLeaving"); len(at) > 0 {
			t.Errorf("it was taken for somebody else's at %v", at)
		}
	})
}

// A watch that works again is no fault, although there is no news.
func TestAWatchThatWorksAgainIsNoFault(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newWatchedStage(t)
		s.waiting()
		var allowed atomic.Bool
		registry := prometheus.NewRegistry()
		defer run(t, s.config(telling(s.kube, registry), func(c *Config) {
			c.Pods = unwatchedPods{c.Pods, &allowed}
		}))()
		<-time.After(time.Minute)
		allowed.Store(true)
		<-time.After(10 * time.Minute)
		if n := metric(t, registry, "quorate_consecutive_failures", report.AtWatchPods); n != 0 {
			t.Errorf("%v failures in a row after it worked", n)
		}
	})
}
