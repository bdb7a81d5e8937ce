package coordinator

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/quorate/quorate/pkg/rollout"
)

// evicting has pods evicted, as is the default.
func evicting(c *Config) { c.Policy.Removal = rollout.RemoveByEviction }

// overBudget is how the eviction API refuses.
func overBudget(cause string) error {
	err := apierrors.NewTooManyRequests("Cannot evict pod as it would violate the pod's disruption budget.", 0)
	err.ErrStatus.Details.Causes = []metav1.StatusCause{{Type: policyv1.DisruptionBudgetCause, Message: cause}}
	return err
}

// setBudget changes what the budget answers.
func (s *stage) setBudget(budget func() error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.budget = budget
}

// said is the log.
func (s *stage) said() string {
	s.noting.Lock()
	defer s.noting.Unlock()
	var lines []string
	for _, n := range s.notes {
		if strings.HasPrefix(n.what, "says ") {
			lines = append(lines, n.at.String()+" "+n.what)
		}
	}
	return strings.Join(lines, "\n")
}

func refusing(err error) func() error { return func() error { return err } }

var (
	needsTwo  = overBudget("The disruption budget etcd needs 2 healthy pods and has 2 currently")
	needsAll  = overBudget("The disruption budget etcd needs 3 healthy pods and has 3 currently")
	twoOfThem = &apierrors.StatusError{ErrStatus: metav1.Status{
		Status: metav1.StatusFailure, Code: 500,
		Message: "This pod has more than one PodDisruptionBudget, which the eviction subresource does not support.",
	}}
)

// An eviction that is refused costs one question. Nothing is recorded and no pod is changed,
// however often it is tried again.
func TestARefusedEvictionIsTriedAgainEverMoreSlowlyAndChangesNothing(t *testing.T) {
	for _, tc := range []struct {
		name   string
		refuse error
		// said is what is told, and how often.
		said  string
		times int
		// at are the instants at which the budget is asked.
		at []time.Duration
	}{
		{"by a budget that allows none for now", needsTwo,
			"says DisruptionBudget: etcd-2: the eviction was refused: Cannot evict", 1,
			repeated(0, 2*time.Second, 4*time.Second, 8*time.Second, 16*time.Second, 30*time.Second, 30*time.Second)},
		{"by a budget that never allows one", needsAll,
			"says DisruptionBudget: etcd-2: the eviction was refused, and waiting does not help: Cannot evict", 1,
			repeated(0, 2*time.Second, 4*time.Second, 8*time.Second, 16*time.Second, 30*time.Second, 30*time.Second)},
		{"because of two budgets", twoOfThem,
			"says DisruptionBudget: etcd-2: the eviction was refused, and waiting does not help: " +
				"This pod has more than one", 1,
			repeated(0, 2*time.Second, 4*time.Second, 8*time.Second, 16*time.Second, 30*time.Second, 30*time.Second)},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newStage(t, 3)
				s.setBudget(refusing(tc.refuse))
				defer run(t, s.config(evicting))()
				<-time.After(time.Minute)
				s.annotate(rollout.ControlPaused, "true")
				s.update("rev-2")
				<-time.After(time.Minute) // The pods have been Ready for a long time.
				s.annotate(rollout.ControlPaused, "false")
				within(t, time.Minute, "the first question", func() bool { return len(s.at(asksBudget)) > 0 })
				first := s.at(asksBudget)[0]
				<-time.After(2 * time.Minute)
				var at []time.Duration
				for _, asked := range s.at(asksBudget) {
					at = append(at, asked-first)
				}
				expectTimes(t, "questions", at, tc.at...)
				if got := s.at(tc.said); len(got) != tc.times {
					t.Errorf("it was said at %v, want %d times:\n%s", got, tc.times, s.said())
				}
				for _, none := range []string{records, clears, "fence ", "evict ", "says unfit",
					"says the pod cannot"} {
					if got := s.at(none); len(got) > 0 {
						t.Errorf("%q happened at %v", none, got)
					}
				}
				s.setBudget(nil)
				within(t, 5*time.Minute, "the rollout", func() bool { return s.settled("rev-2") })
			})
		})
	}
}

// A budget allows the next eviction a moment after a pod has become Ready. The coordinator waits for that
// moment and for as long again at most, and it does not report it.
func TestTheMomentAfterAPodHasBecomeReadyIsNoWait(t *testing.T) {
	for _, lag := range []time.Duration{ms, 10 * ms, 40 * ms, 150 * ms, 250 * ms, 2 * time.Second} {
		t.Run(lag.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				const comes = 10 * time.Second
				s := newStage(t, 3)
				var ready atomic.Pointer[time.Time]
				s.setBudget(func() error {
					if at := ready.Load(); at != nil && time.Since(*at) < lag {
						return needsTwo
					}
					return nil
				})
				back := s.back
				s.back = func(ordinal int) {
					if back != nil {
						back(ordinal)
					}
					now := time.Now()
					ready.Store(&now)
				}
				defer run(t, s.config(evicting))()
				<-time.After(time.Minute)
				s.update("rev-2")
				within(t, 5*time.Minute, "the rollout", func() bool { return s.settled("rev-2") })
				// Two looks are never closer to each other than that.
				const apart = leastRest + shortRest
				for _, next := range []struct{ before, then string }{{"evict etcd-2", "evict etcd-1"},
					{"evict etcd-1", "evict etcd-0"}} {
					waited := s.one(t, next.then) - s.one(t, next.before) - comes
					if waited < lag || waited > 2*lag+apart {
						t.Errorf("%s came %v after the pod before was back, want %v to %v", next.then, waited,
							lag, 2*lag+apart)
					}
				}
				if got := s.at("says DisruptionBudget"); len(got) > 0 {
					t.Errorf("it was said at %v", got)
				}
				// A removal leaves its record behind, and no pod had to be fenced.
				if got := s.at("fence "); len(got) > 0 {
					t.Errorf("pods were changed at %v", got)
				}
			})
		})
	}
}

// Between the question and the eviction, another one's eviction may come first.
func TestAnEvictionThatIsRefusedAfterAllIsRuledOutAndTriedAgain(t *testing.T) {
	for _, tc := range []struct {
		name string
		err  error
		// said is what is told when the budget refuses from then on.
		said string
	}{
		{"because a drain was faster", needsTwo, "needs 2 healthy pods and has 2 currently"},
		{"because the pod has changed: the budget may be charged all the same, for two minutes",
			apierrors.NewConflict(corev1.Resource("pods"), "etcd-2",
				errors.New("the ResourceVersion in the precondition does not match")),
			"it may still be charged for an eviction of ours that had no effect"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newStage(t, 3)
				defer run(t, s.config(evicting))()
				<-time.After(time.Minute)
				s.answering(func(_ context.Context, request string, send func() error) error {
					if request != "evict etcd-2" || len(s.at("fence etcd-2")) > 0 {
						return send()
					}
					s.setBudget(refusing(needsTwo)) // From now on.
					return tc.err
				})
				s.update("rev-2")
				within(t, time.Minute, "a word on it", func() bool { return strings.Contains(s.said(), tc.said) })
				s.setBudget(nil)
				within(t, 5*time.Minute, "the rollout", func() bool { return s.settled("rev-2") })
				if got := s.at("fence etcd-2"); len(got) != 1 {
					t.Errorf("the pod was changed at %v, want once", got)
				}
			})
		})
	}
}

// budgetOf has the one PodDisruptionBudget etcd, and says when it was read.
type budgetOf struct {
	policyv1.PodDisruptionBudgetStatus
	stage *stage
}

func (b budgetOf) Get(_ context.Context, name string, _ metav1.GetOptions) (*policyv1.PodDisruptionBudget, error) {
	b.stage.note("read budget")
	if name != "etcd" {
		return nil, apierrors.NewForbidden(schema.GroupResource{Resource: "poddisruptionbudgets"}, name,
			errors.New("cannot get it"))
	}
	return &policyv1.PodDisruptionBudget{
		Spec:   policyv1.PodDisruptionBudgetSpec{Selector: b.stage.set.Spec.Selector},
		Status: b.PodDisruptionBudgetStatus,
	}, nil
}

// Watch tells nothing.
func (budgetOf) Watch(context.Context, metav1.ListOptions) (watch.Interface, error) {
	return watch.NewRaceFreeFake(), nil
}

// watchedBudget is the one PodDisruptionBudget etcd, as a watch tells it.
type watchedBudget struct {
	budgetOf
	*watch.RaceFreeFakeWatcher
	// counts are the labels of the pods that it counts.
	counts map[string]string
	err    error
}

func (b *watchedBudget) Watch(context.Context, metav1.ListOptions) (watch.Interface, error) {
	return b, b.err
}

// tell has the watch tell how many pods may go.
func (b *watchedBudget) tell(version int, allowed int32) {
	b.Modify(&policyv1.PodDisruptionBudget{
		ObjectMeta: metav1.ObjectMeta{Name: "etcd", ResourceVersion: strconv.Itoa(version)},
		Spec:       policyv1.PodDisruptionBudgetSpec{Selector: &metav1.LabelSelector{MatchLabels: b.counts}},
		Status:     policyv1.PodDisruptionBudgetStatus{DisruptionsAllowed: allowed},
	})
}

// A dry run is a request to the API server, and the eviction that follows it has to wait for a tenth of a second there.
func TestABudgetThatIsWatchedIsNotAskedByADryRun(t *testing.T) {
	ours := map[string]string{"app": "etcd"}
	for _, tc := range []struct {
		name   string
		counts map[string]string
		// err is why the budget cannot be watched.
		err error
		// allowed is how many pods may go, as the watch tells it, and refuse what the API server says.
		allowed int32
		refuse  error
		// asks is true if there is a dry run, and evictions is how many follow.
		asks      bool
		evictions int
	}{
		{"while it allows the eviction", ours, nil, 1, nil, false, 2},
		{"unless it does not allow one for long, so that the API server says why", ours, nil, 0, needsTwo, true, 0},
		{"unless it may not be watched", ours,
			apierrors.NewForbidden(schema.GroupResource{}, "etcd", errRefused), 1, nil, true, 2},
		{"unless it counts other pods", map[string]string{"app": "other"}, nil, 1, nil, true, 2},
		{"unless another budget has refused", ours, nil, 1, overBudget("another budget"), true, 1},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newWatchedStage(t)
				b := &watchedBudget{budgetOf{stage: s}, watch.NewRaceFreeFake(), tc.counts, tc.err}
				b.tell(1, tc.allowed)
				s.setBudget(refusing(tc.refuse))
				defer run(t, s.config(evicting, neverDue, func(c *Config) { c.Budgets = b }))()
				<-time.After(time.Minute)
				s.begin()
				s.update("rev-2")
				<-time.After(20 * time.Second)
				evictions, dryRuns := s.at("evict "), s.at(asksBudget)
				if len(evictions) > 0 { // The first one may come before the watch has told anything.
					dryRuns = slices.DeleteFunc(dryRuns, func(at time.Duration) bool { return at <= evictions[0] })
				}
				if asks := len(dryRuns) > 0; asks != tc.asks {
					t.Errorf("asked by a dry run: %v, want %v: %v", asks, tc.asks, s.asked())
				}
				if n := len(evictions); n != tc.evictions {
					t.Errorf("%d evictions, want %d: %v", n, tc.evictions, s.asked())
				}
			})
		})
	}
}

// A look that finds nothing but the budget in the way waits for it, as long as what it has seen is new.
func TestALookWaitsAMomentForTheBudget(t *testing.T) {
	for _, later := range []time.Duration{0, 10 * ms, 30 * ms, 80 * ms} {
		t.Run(fmt.Sprintf("which allows the next eviction %v after a pod has become Ready", later), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s, b, stop := usedUp(t)
				defer stop()
				<-time.After(later)
				b.tell(3, 1)
				<-time.After(time.Second)
				expectTimes(t, "the next eviction", s.at("evict "), later)
			})
		})
	}
}

// usedUp has a rollout whose first pod was evicted under a watched budget and has just come back. The budget does not
// allow another eviction yet.
func usedUp(t *testing.T) (s *stage, b *watchedBudget, stop func()) {
	s = newWatchedStage(t)
	s.startup += 700 * ms // So that it becomes Ready between two looks.
	b = &watchedBudget{budgetOf{stage: s}, watch.NewRaceFreeFake(), map[string]string{"app": "etcd"}, nil}
	b.tell(1, 1)
	stop = run(t, s.config(evicting, neverDue, func(c *Config) { c.Budgets = b }))
	<-time.After(time.Minute)
	s.begin()
	s.update("rev-2")
	within(t, time.Minute, "the first pod", func() bool { return len(s.at("evict ")) == 1 })
	b.tell(2, 0)
	s.readied(t, 2, "rev-2")
	s.begin()
	return s, b, stop
}

// readied waits for the moment in which a pod's successor becomes Ready.
func (s *stage) readied(t *testing.T, ordinal int, revision string) {
	for begun := time.Now(); time.Since(begun) < time.Minute; <-time.After(time.Millisecond) {
		s.mu.Lock()
		p := s.pods[ordinal]
		ready := p.Labels["controller-revision-hash"] == revision && p.Status.ContainerStatuses[0].Ready
		s.mu.Unlock()
		if ready {
			return
		}
	}
	t.Fatal("the successor is not Ready")
}

// The disruption controller notices a Ready pod a moment later.
func TestTheNextPodGoesAsSoonAsTheWatchedBudgetAllowsIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s, b, stop := usedUp(t)
		defer stop()
		<-time.After(4 * time.Second)
		if got := append(s.at("evict "), s.at(asksBudget)...); len(got) > 0 {
			t.Errorf("asked for an eviction at %v, which the budget does not allow: %v", got, s.asked())
		}
		b.tell(3, 1)
		<-time.After(time.Second)
		if n := len(s.at("evict ")); n != 1 {
			t.Errorf("%d pods were evicted once the budget allowed it: %v", n, s.asked())
		}
	})
}

// Etcd-druid writes the budget for three pods before it creates two of them, and creates them when the
// first has been replaced.
func TestABudgetForMorePodsThanTheOnlyOneDoesNotKeepIt(t *testing.T) {
	for _, tc := range []struct {
		name     string
		replicas int
		status   policyv1.PodDisruptionBudgetStatus
		change   func(*Config)
		refuse   error
		goes     bool
		// said is told besides, unless it is empty.
		said string
	}{
		{"as etcd-druid writes it", 1, policyv1.PodDisruptionBudgetStatus{ExpectedPods: 1, DesiredHealthy: 2}, nil,
			overBudget("The disruption budget etcd needs 2 healthy pods and has 1 currently"), true, ""},
		{"but it does if it counts other pods too", 1,
			policyv1.PodDisruptionBudgetStatus{ExpectedPods: 2, DesiredHealthy: 2}, nil,
			overBudget("The disruption budget etcd needs 2 healthy pods and has 1 currently"), false, ""},
		{"but it does if the host hands over no API for budgets", 1,
			policyv1.PodDisruptionBudgetStatus{ExpectedPods: 1, DesiredHealthy: 2},
			func(c *Config) { c.Budgets = nil },
			overBudget("The disruption budget etcd needs 2 healthy pods and has 1 currently"), false, ""},
		{"but it does if the budget may not be read, which is said", 1,
			policyv1.PodDisruptionBudgetStatus{ExpectedPods: 1, DesiredHealthy: 2}, nil,
			overBudget("The disruption budget other needs 2 healthy pods and has 1 currently"), false,
			"says what the PodDisruptionBudget counts cannot be read"},
		{"but it does if there are three of them", 3,
			policyv1.PodDisruptionBudgetStatus{ExpectedPods: 1, DesiredHealthy: 2}, nil, needsTwo, false, ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newStage(t, tc.replicas)
				s.setBudget(refusing(tc.refuse))
				changes := []func(*Config){evicting, func(c *Config) { c.Budgets = budgetOf{tc.status, s} }}
				if tc.change != nil {
					changes = append(changes, tc.change)
				}
				defer run(t, s.config(changes...))()
				<-time.After(time.Minute)
				s.update("rev-2")
				if tc.goes {
					within(t, time.Minute, "the rollout", func() bool { return s.settled("rev-2") })
					s.one(t, "delete etcd-0")
					return
				}
				<-time.After(time.Minute)
				for _, none := range []string{"delete ", "evict "} {
					if got := s.at(none); len(got) > 0 {
						t.Errorf("%q happened at %v", none, got)
					}
				}
				if got := s.at("read budget"); tc.replicas > 1 && len(got) > 0 {
					t.Errorf("the budget was read at %v, which is of no use", got)
				}
				if got := s.at("says DisruptionBudget"); len(got) != 1 {
					t.Errorf("it was said at %v, want once:\n%s", got, s.said())
				}
				if got := s.at(tc.said); tc.said != "" && len(got) == 0 {
					t.Errorf("nobody hears that %q:\n%s", tc.said, s.said())
				}
			})
		})
	}
}

func TestABudgetIsAskedAgainBeforeAPodIsDeletedPastIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStage(t, 1)
		s.setBudget(refusing(overBudget("The disruption budget etcd needs 2 healthy pods and has 1 currently")))
		b := budgetOf{policyv1.PodDisruptionBudgetStatus{ExpectedPods: 1, DesiredHealthy: 2}, s}
		defer run(t, s.config(evicting, func(c *Config) { c.Budgets = b }))()
		<-time.After(time.Minute)
		var changed atomic.Bool
		s.answering(func(_ context.Context, request string, send func() error) error {
			if request != "delete etcd-0" || changed.Swap(true) {
				return send()
			}
			s.setBudget(refusing(overBudget("The disruption budget etcd needs 1 healthy pods and has 1 currently")))
			return apierrors.NewConflict(corev1.Resource("pods"), "etcd-0", errors.New("it has changed"))
		})
		s.update("rev-2")
		<-time.After(time.Minute)
		if !changed.Load() || s.settled("rev-2") {
			t.Errorf("it was deleted although the budget forbids it by now:\n%s", s.said())
		}
		s.setBudget(nil)
		s.answering(nil)
		within(t, time.Minute, "the rollout", func() bool { return s.settled("rev-2") })
	})
}

func TestAMissingPermissionToEvictIsNamedBeforeAnythingStandsOnRecord(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStage(t, 3)
		s.setBudget(refusing(apierrors.NewForbidden(corev1.Resource("pods/eviction"), "etcd-2",
			errors.New(`cannot create resource "pods/eviction"`))))
		defer run(t, s.config(evicting))()
		<-time.After(time.Minute)
		s.update("rev-2")
		<-time.After(time.Minute)
		if got := s.at("says the pod cannot be evicted"); len(got) == 0 {
			t.Errorf("nobody hears of it:\n%s", s.said())
		}
		if got := s.at(records); len(got) > 0 {
			t.Errorf("it stood on record at %v", got)
		}
		s.setBudget(nil)
		within(t, 5*time.Minute, "the rollout", func() bool { return s.settled("rev-2") })
	})
}

// The budget is asked while the pods are read. What it has said counts although they could not be read.
func TestARefusalIsRememberedAlthoughTheLookFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newWatchedStage(t)
		s.setBudget(refusing(needsTwo))
		s.annotate(rollout.ControlPartition, "3")
		s.update("rev-2")
		defer run(t, s.config(evicting, neverDue))()
		<-time.After(time.Minute)
		s.begin()
		s.answering(func(_ context.Context, request string, send func() error) error {
			if request == listPods && len(s.at(listPods)) == 1 {
				return errRefused
			}
			return send()
		})
		s.annotate(rollout.ControlPartition, "0")
		<-time.After(10 * time.Second)
		asked := s.at(asksBudget)
		if len(s.at(listPods)) == 0 || len(asked) < 2 || asked[1]-asked[0] < evictAgain {
			t.Errorf("the budget was asked at %v, and the pods were read at %v", asked, s.at(listPods))
		}
	})
}
