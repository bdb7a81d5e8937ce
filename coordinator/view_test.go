package coordinator

import (
	"context"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/quorate/quorate/internal/etcdtest"
	"github.com/quorate/quorate/internal/record"
	"github.com/quorate/quorate/internal/workload"
	"github.com/quorate/quorate/pkg/rollout"
	"github.com/quorate/quorate/selfupdate"
)

// newWatchedStage is a stage whose watches tell what happens.
func newWatchedStage(t *testing.T) *stage {
	s := newStage(t, 3)
	truthful(s.kube)
	return s
}

// asksNothing checks that the API server was not asked for anything.
func (s *stage) asksNothing(t *testing.T) {
	t.Helper()
	if asked := s.asked(); len(asked) > 0 {
		t.Errorf("asked: %v", asked)
	}
}

// asked are the requests to the API server, in order.
func (s *stage) asked() []string {
	s.noting.Lock()
	defer s.noting.Unlock()
	var asked []string
	for _, n := range s.notes {
		switch what, pod, _ := strings.Cut(n.what, " etcd-"); {
		case pod != "" && (what == "delete" || what == "evict" || what == "fence"):
			asked = append(asked, n.what)
		case slices.Contains([]string{getSet, listPods, readPod, getLease, asksBudget, claims, records, clears, renews,
			tells, releases}, n.what):
			asked = append(asked, n.what)
		}
	}
	return asked
}

func TestALookThatLeadsToNothingCostsTheAPIServerNothing(t *testing.T) {
	for _, tc := range []struct {
		name string
		test func(t *testing.T, s *stage)
	}{
		{"while a rollout waits, etcd alone is asked, as often as ever", func(t *testing.T, s *stage) {
			s.waiting()
			defer run(t, s.config(neverDue))()
			<-time.After(time.Minute)
			s.begin()
			<-time.After(time.Minute)
			s.asksNothing(t)
			if looks := len(s.at("MemberList")); looks < 55 {
				t.Errorf("etcd was looked at %d times in a minute", looks)
			}
		}},
		{"once in settle-timeout everything is read live, so that a hung watch makes nothing last that long", func(
			t *testing.T, s *stage,
		) {
			s.waiting()
			defer run(t, s.config(neverDue, func(c *Config) { c.Policy.SettleTimeout = 2 * time.Minute }))()
			<-time.After(time.Minute)
			s.begin()
			<-time.After(20 * time.Minute)
			if sets := s.at(getSet); len(sets) < 9 || len(sets) > 11 {
				t.Errorf("the StatefulSet was read at %v", sets)
			}
		}},
		{"once in five minutes everything is read live all the same", func(t *testing.T, s *stage) {
			s.waiting()
			defer run(t, s.config(neverDue))()
			<-time.After(time.Minute)
			s.begin()
			<-time.After(20 * time.Minute)
			if sets, leases := s.at(getSet), s.at(getLease); len(sets) != 4 || len(leases) != 4 {
				t.Errorf("the StatefulSet was read at %v, the Lease at %v", sets, leases)
			}
		}},
		{"the record is renewed, and nothing else", func(t *testing.T, s *stage) {
			s.waiting()
			defer run(t, s.config())()
			<-time.After(time.Minute)
			s.begin()
			<-time.After(4 * time.Minute)
			for _, what := range s.asked() {
				if what != renews {
					t.Errorf("asked: %s", what)
				}
			}
		}},
		{"a control is obeyed at once", func(t *testing.T, s *stage) {
			s.annotate(rollout.ControlPaused, "true")
			s.update("rev-2")
			defer run(t, s.config(neverDue))()
			<-time.After(time.Minute)
			s.begin()
			s.annotate(rollout.ControlPaused, "false")
			<-time.After(time.Second)
			expectTimes(t, "the first removal", s.at("delete etcd-2"), 0)
		}},
		{"what is done is read live just before, after everything that it rests on", func(t *testing.T, s *stage) {
			defer run(t, s.config())()
			<-time.After(time.Minute)
			s.rolled(t, "rev-2")
			asked := s.asked()
			removals := 0
			for i, what := range asked {
				if !strings.HasPrefix(what, "delete ") {
					continue
				}
				removals++
				before := asked[max(0, i-3) : i-1]
				if !slices.Contains(before, getSet) || !slices.Contains(before, listPods) || asked[i-1] != records {
					t.Errorf("before %s: %v", what, asked[max(0, i-3):i])
				}
			}
			if removals != 3 {
				t.Errorf("%d removals", removals)
			}
		}},
		{"what may well be needed is read while etcd is asked, once for each pod", func(t *testing.T, s *stage) {
			defer run(t, s.config(neverDue))()
			<-time.After(time.Minute)
			s.begin()
			s.update("rev-2")
			pods, members := slowly(30*ms, listPods), slowly(40*ms, "Range")
			s.answering(func(ctx context.Context, request string, send func() error) error {
				return pods(ctx, request, func() error { return members(ctx, request, send) })
			})
			within(t, time.Minute, "the rollout", func() bool { return s.settled("rev-2") })
			for _, removal := range s.at("delete ")[1:] { // Of the first one, there is nothing yet to foresee it by.
				if i, _ := slices.BinarySearch(s.at(listPods), removal); s.at(listPods)[i-1] != removal-40*ms {
					t.Errorf("a removal at %v, and the pods were read at %v", removal, s.at(listPods))
				}
			}
			if lists, removals := len(s.at(listPods)), len(s.at("delete ")); lists > removals+1 || removals != 3 {
				t.Errorf("the pods were read %d times for %d removals", lists, removals)
			}
		}},
		{"a rollout costs no more the longer its pods take", func(t *testing.T, s *stage) {
			defer run(t, s.config(neverDue))()
			var costs []int
			for _, takes := range []time.Duration{4 * time.Second, 30 * time.Second, 2 * time.Minute} {
				s.change(func() { s.startup = takes })
				<-time.After(time.Minute)
				s.begin()
				s.rolled(t, "rev-"+takes.String())
				<-time.After(time.Second)
				costs = append(costs, len(s.asked()))
				t.Logf("pods that take %v: %d requests %v", takes, len(s.asked()), s.asked())
			}
			if slices.Max(costs) > 32 {
				t.Errorf("requests %v, want at most 32", costs)
			}
		}},
		{"nor the longer the cluster has idled before", func(t *testing.T, s *stage) {
			defer run(t, s.config(neverDue))()
			<-time.After(lateWrites + time.Minute)
			var costs []int
			for _, idles := range []time.Duration{time.Minute, 5*time.Minute + time.Second, 5 * time.Hour} {
				<-time.After(idles)
				s.begin()
				s.rolled(t, "rev-"+idles.String())
				<-time.After(time.Second)
				costs = append(costs, len(s.asked()))
				t.Logf("after %v: %d requests %v", idles, len(s.asked()), s.asked())
			}
			if slices.Max(costs) > slices.Min(costs) {
				t.Errorf("requests %v, want the same every time", costs)
			}
		}},
		{"a rollout that begins and finds nothing to do reads everything live all the same", func(t *testing.T,
			s *stage) {
			s.annotate(rollout.ControlPartition, "3")
			defer run(t, s.config(neverDue))()
			<-time.After(time.Hour)
			s.begin()
			s.update("rev-2")
			<-time.After(time.Minute)
			if sets := s.at(getSet); len(sets) != 1 || sets[0] < beginning || sets[0] > beginning+2*time.Second {
				t.Errorf("the StatefulSet was read at %v", sets)
			}
		}},
		{"a watch that has expired begins anew, and everything is read live once", func(t *testing.T, s *stage) {
			s.waiting()
			defer run(t, s.config(neverDue))()
			<-time.After(time.Minute)
			s.interrupt(true)
			<-time.After(5 * time.Second)
			s.begin()
			<-time.After(time.Minute)
			s.asksNothing(t)
		}},
		{"while a watch is interrupted, everything is read live, and then no more", func(t *testing.T, s *stage) {
			s.waiting()
			defer run(t, s.config(neverDue))()
			<-time.After(time.Minute)
			s.begin()
			s.interrupt(false)
			<-time.After(10 * time.Second)
			// Each of the watches comes back by itself, one to two seconds later.
			if sets := s.at(getSet); len(sets) == 0 || len(sets) > 4 || sets[len(sets)-1] > 3*time.Second {
				t.Errorf("the StatefulSet was read at %v", sets)
			}
		}},
		{"the host's gates are asked when only they are in the way, and hold", func(t *testing.T, s *stage) {
			var asked atomic.Int32
			var pass atomic.Bool
			s.annotate(rollout.ControlPartition, "3")
			s.update("rev-2")
			defer run(t, s.config(neverDue, func(c *Config) {
				c.Gates = []Gate{{Name: "backup", Ask: func(context.Context) (bool, string) {
					asked.Add(1)
					return pass.Load(), "as the test has it"
				}}}
			}))()
			<-time.After(time.Minute)
			before := asked.Load()
			<-time.After(4 * time.Minute)
			if n := asked.Load() - before; n > 0 {
				t.Errorf("the gate was asked %d times although the partition holds", n)
			}
			s.annotate(rollout.ControlPartition, "0")
			<-time.After(time.Minute)
			if asked.Load() == before || len(s.at("delete ")) > 0 {
				t.Errorf("the gate was asked %d times, and %v", asked.Load()-before, s.asked())
			}
			pass.Store(true)
			<-time.After(held + time.Second)
			if len(s.at("delete etcd-2")) != 1 {
				t.Errorf("the gate passes, and %v", s.asked())
			}
		}},
		{"an idle coordinator learns from its watches, too", func(t *testing.T, s *stage) {
			defer run(t, s.config())()
			<-time.After(lateWrites + time.Minute)
			s.begin()
			for range 10 {
				s.change(func() { s.set.Status.ReadyReplicas++ })
				<-time.After(time.Second)
			}
			s.asksNothing(t)
		}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { tc.test(t, newWatchedStage(t)) })
		})
	}
}

// A cached view that lags behind shows what is not true any more. It may make us wait, and never makes us act.
func TestNothingIsDoneOnAStaleView(t *testing.T) {
	for _, tc := range []struct {
		name string
		// happens just before the first pod would be removed, and no watch tells of it.
		happens func(s *stage)
		// follows is what is claimed and removed then.
		follows []string
	}{
		{"but what is still true is acted on", func(*stage) {}, []string{"delete etcd-2"}},
		{"that does not show that another pod is going", func(s *stage) {
			s.pods[1].DeletionTimestamp = &metav1.Time{Time: time.Now()}
		}, nil},
		{"that does not show that another pod is not Ready", func(s *stage) { s.setReady(s.pods[1], false) },
			[]string{"delete etcd-1"}},
		{"that does not show that the template has changed back", func(s *stage) {
			s.set.Status.UpdateRevision = "rev-1"
		}, nil},
		{"that does not show that the StatefulSet is not ours to roll any more", func(s *stage) {
			s.set.Spec.UpdateStrategy.Type = appsv1.RollingUpdateStatefulSetStrategyType
		}, nil},
		{"that does not show that another pod has been replaced and is not Ready yet", func(s *stage) {
			s.pods[0] = s.newPod(0)
			s.setReady(s.pods[0], false)
		}, nil},
		{"that does not show that the rollout is paused", func(s *stage) {
			s.lease.Annotations[rollout.ControlPaused] = "true"
			s.version++
			s.lease.ResourceVersion = strconv.Itoa(s.version)
		}, nil},
		{"that does not show that another holds the record", func(s *stage) {
			*s.lease.Spec.HolderIdentity = "somebody_else"
			s.version++
			s.lease.ResourceVersion = strconv.Itoa(s.version)
		}, []string{claims, "delete etcd-2"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newWatchedStage(t)
				s.annotate(rollout.ControlPartition, "3")
				s.update("rev-2")
				defer run(t, s.config(neverDue))()
				<-time.After(time.Minute)
				got := s.unseen(func() {
					delete(s.lease.Annotations, rollout.ControlPartition)
					s.version++
					s.lease.ResourceVersion = strconv.Itoa(s.version)
				}, tc.happens)
				if !slices.Equal(got, tc.follows) {
					t.Errorf("got %v, want %v, after %v", got, tc.follows, s.asked())
				}
			})
		})
		t.Run(tc.name+", when a rollout begins after an hour", func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newWatchedStage(t)
				defer run(t, s.config(neverDue))()
				<-time.After(time.Hour)
				got := s.unseen(func() { s.template("rev-2") }, tc.happens)
				if want := slices.Compact(append([]string{claims}, tc.follows...)); !slices.Equal(got, want) {
					t.Errorf("got %v, want %v, after %v", got, want, s.asked())
				}
			})
		})
	}
}

// unseen has something change that the watches tell, and then something that they do not. It returns what is claimed
// and removed then.
func (s *stage) unseen(told func(), happens func(s *stage)) []string {
	s.begin()
	s.mu.Lock()
	told()
	s.feed.tell(s.kube)
	s.feed.late = true
	happens(s)
	s.feed.tell(s.kube)
	s.mu.Unlock()
	<-time.After(2 * time.Second)
	return s.order(claims, "delete etcd-0", "delete etcd-1", "delete etcd-2")
}

// A pod may have been well and unwell in between, and no watch has told of it yet.
func TestWhatLastedByAStaleViewIsNotBelieved(t *testing.T) {
	k := newKube(t, 3, etcdtest.StartInMemory(t, 3))
	c := config(k)
	observe := func() workload.Observation {
		view := workload.New(workload.Config{StatefulSet: "etcd", StatefulSets: c.StatefulSets, Pods: c.Pods})
		o, err := view.Observe(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		return o
	}
	for _, p := range k.pods {
		k.setReady(p, true)
	}
	m, now, told := newTracker(&lastingAges{}), time.Unix(1000, 0), observe()
	k.setReady(k.pods[1], false)
	k.pods[2].Annotations = map[string]string{"changed": "yes"}
	k.setReady(k.pods[2], true)
	seen := []rollout.Sighting{{Condition: rollout.QuorumLostSeen}}
	for _, p := range k.pods {
		seen = append(seen, rollout.Sighting{UID: string(p.UID), Condition: rollout.ReadySeen})
	}
	m.recall(now, now, seen, nil)
	m.doubt(told, observe())
	got := m.recall(now.Add(longestGap), now.Add(longestGap), seen, nil).Ages
	for i, want := range []time.Duration{longestGap, longestGap, 0, longestGap} {
		if got[seen[i]] != want {
			t.Errorf("%+v has lasted %v, want %v", seen[i], got[seen[i]], want)
		}
	}
}

// What etcd answers is always asked for: a member that fails is noticed although no watch tells.
func TestAMemberThatFailsIsNoticedBetweenEvents(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newWatchedStage(t)
		s.annotate(rollout.ControlPartition, "3")
		s.update("rev-2")
		defer run(t, s.config(neverDue))()
		<-time.After(time.Minute)
		defer s.hold()()
		s.unreachable(0, true)
		s.annotate(rollout.ControlPartition, "")
		<-time.After(time.Minute)
		if removed := s.at("delete "); len(removed) > 0 {
			t.Errorf("a pod was removed at %v", removed)
		}
	})
}

func TestNoRolloutEndsBeforeSomethingIsReadLive(t *testing.T) {
	f := freshness{lasts: time.Minute}
	complete := decision{next: record.NextFinish, Decision: rollout.Decision{Action: rollout.Complete{}}}
	for _, step := range []struct {
		name     string
		happens  func()
		confirms bool
	}{
		{"it begins after the cached view has become stale", f.begins, true},
		{"everything is read live", f.readLive, false},
		{"another begins soon", f.begins, false},
	} {
		step.happens()
		seen := observation{view: &cachedView{}, unread: f.unread}
		m := remembered{tracker: newTracker(&lastingAges{})}
		if got := complete.evidence(&seen, &m) == confirmation; got != step.confirms {
			t.Errorf("%s: an end is confirmed: %v", step.name, got)
		}
	}
}

// Nothing was confirmed for it, so the decision is not carried out here either.
func TestWhatAnotherWasToGoOnWithIsNotDone(t *testing.T) {
	for _, choice := range []selfupdate.Choice{
		{To: &selfupdate.Peer{Presence: selfupdate.Presence{Pod: "etcd-1"}}, Reason: "it is updated"},
		{Await: "etcd-1", Reason: "it may line up"},
	} {
		d := decision{choice: choice, next: record.NextAct, Decision: rollout.Decision{
			Action: rollout.Remove{Target: rollout.Target{Pod: "etcd-0"}}, Assessment: &rollout.Assessment{},
		}}
		if d.conclude(&observation{}, &remembered{tracker: newTracker(&lastingAges{})}); d.next == record.NextAct {
			t.Errorf("%+v: it is done all the same", choice)
		}
	}
}
