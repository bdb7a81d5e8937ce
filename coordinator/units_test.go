package coordinator

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sirupsen/logrus"
	clientv3 "go.etcd.io/etcd/client/v3"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/quorate/quorate/internal/etcdtest"
	"github.com/quorate/quorate/internal/workload"
	"github.com/quorate/quorate/pkg/rollout"
)

// minimal returns a configuration with the required fields alone.
func minimal() Config {
	k := &kube{}
	return Config{
		Namespace: "ns", StatefulSet: "etcd", Endpoints: []string{"http://127.0.0.1:2379"},
		Dial:         func([]string) (*clientv3.Client, error) { return nil, errors.New("not in this test") },
		StatefulSets: k, Pods: kubePods{k}, Leases: kubeLeases{},
	}
}

func TestAConfigNeedsNoMoreThanItsRequiredFields(t *testing.T) {
	c, err := minimal().complete()
	if err != nil {
		t.Fatal(err)
	}
	if c.LockTTL != DefaultLockTTL || c.ProbeTimeout != DefaultProbeTimeout ||
		c.RequestTimeout != DefaultRequestTimeout ||
		c.Interval != DefaultInterval || c.MaxEvidenceAge != DefaultMaxEvidenceAge ||
		!reflect.DeepEqual(c.Policy, rollout.DefaultPolicy()) {
		t.Errorf("defaults: %+v", c)
	}
	if c.Names.EtcdContainer != "etcd" || c.Names.SidecarContainer != "backup-restore" {
		t.Errorf("names: %+v", c.Names)
	}
	c.Log.Error("nobody hears this, and nothing breaks")
	if c.Log.Data["actor"] != "quorate" {
		t.Errorf("log fields %v", c.Log.Data)
	}
}

func TestAConfigKeepsWhatItIsGiven(t *testing.T) {
	in := minimal()
	in.LockTTL, in.ProbeTimeout, in.RequestTimeout, in.Interval, in.MaxEvidenceAge = 3*time.Second, time.Second,
		4*time.Second, 5*time.Second, 6*time.Second
	in.Policy = rollout.DefaultPolicy()
	in.Policy.MaxUnavailable.Number = 2
	in.Names = workload.Names{EtcdContainer: "db"}
	c, err := in.complete()
	if err != nil {
		t.Fatal(err)
	}
	if c.LockTTL != in.LockTTL || c.ProbeTimeout != in.ProbeTimeout || c.RequestTimeout != in.RequestTimeout ||
		c.Interval != in.Interval || c.MaxEvidenceAge != in.MaxEvidenceAge || !reflect.DeepEqual(c.Policy, in.Policy) {
		t.Errorf("got %+v", c)
	}
	if c.Names.EtcdContainer != "db" || c.Names.SidecarContainer != "backup-restore" {
		t.Errorf("names: %+v", c.Names)
	}
}

func TestABadConfigNamesTheFieldAndItsValue(t *testing.T) {
	policy := func(change func(*rollout.Policy)) func(*Config) {
		return func(c *Config) {
			c.Policy = rollout.DefaultPolicy()
			change(&c.Policy)
		}
	}
	for _, tc := range []struct {
		change func(*Config)
		want   string
	}{
		{func(c *Config) { c.Namespace = "" }, "Namespace is required"},
		{func(c *Config) { c.StatefulSet = "" }, "StatefulSet is required"},
		{func(c *Config) { c.Dial = nil }, "Dial is required"},
		{func(c *Config) { c.Endpoints = nil }, "Endpoints needs at least one URL"},
		{func(c *Config) { c.StatefulSets = nil }, "StatefulSets is required"},
		{func(c *Config) { c.Pods = nil }, "Pods is required"},
		{func(c *Config) { c.Leases = nil }, "Leases is required"},
		{func(c *Config) { c.LockTTL = time.Second }, "LockTTL: 1s: must be whole seconds, at least 2s"},
		{func(c *Config) { c.LockTTL = -time.Second }, "LockTTL: -1s: must be whole seconds, at least 2s"},
		{func(c *Config) { c.LockTTL = 3500 * time.Millisecond }, "LockTTL: 3.5s: must be whole seconds, at least 2s"},
		{func(c *Config) { c.LockTTL = 2 * time.Second }, "LockTTL: 2s: two thirds of it must cover ProbeTimeout (2s)"},
		{func(c *Config) { c.ProbeTimeout = -1 }, "ProbeTimeout: -1ns: must be positive"},
		{func(c *Config) { c.RequestTimeout = -1 }, "RequestTimeout: -1ns: must be positive"},
		{func(c *Config) { c.Interval = -1 }, "Interval: -1ns: must be positive"},
		{func(c *Config) { c.FallbackAfter = -1 }, "FallbackAfter: -1ns: must be at least 500ms"},
		{func(c *Config) { c.RecordDuration = 2 * time.Second },
			"RecordDuration: 2s: must be whole seconds, at least 3s"},
		{func(c *Config) { c.RecordDuration = 8500 * time.Millisecond },
			"RecordDuration: 8.5s: must be whole seconds, at least 3s"},
		{func(c *Config) { c.RecordDuration = 7 * time.Second },
			"RecordDuration: 7s: two thirds of it must cover 5s, a cycle with members that hang (twice ProbeTimeout " +
				"and Interval)"},
		{func(c *Config) { c.MaxEvidenceAge = 4 * time.Second },
			"MaxEvidenceAge: 4s: must be at least 6s: twice ProbeTimeout (2s)"},
		{policy(func(p *rollout.Policy) { p.MaxUnavailable.Number = 0 }),
			"Policy.MaxUnavailable: 0: must be at least 1"},
		{policy(func(p *rollout.Policy) { p.Partition = -1 }), "Policy.Partition: -1: must not be negative"},
		{policy(func(p *rollout.Policy) { p.SettleTimeout = 0 }), "Policy.SettleTimeout: 0s: must be positive"},
		{policy(func(p *rollout.Policy) { p.SettleTimeout, p.DeadAfter = 5*time.Second, time.Second }),
			"Policy.SettleTimeout: 5s: must exceed 5s, a cycle with members that hang " +
				"(twice ProbeTimeout and Interval)"},
		{policy(func(p *rollout.Policy) { p.GhostAfter = 0 }), "Policy.GhostAfter: 0s: must be positive"},
		{policy(func(p *rollout.Policy) { p.DeadAfter = -1 }), "Policy.DeadAfter: -1ns: must not be negative"},
		{policy(func(p *rollout.Policy) { p.DeadAfter = p.SettleTimeout }),
			"Policy.DeadAfter: 5m0s: must be below Policy.SettleTimeout (5m0s)"},
		{policy(func(p *rollout.Policy) { p.LeavingPatience = -1 }),
			"Policy.LeavingPatience: -1ns: must not be negative"},
		{policy(func(p *rollout.Policy) { p.MaxLag = 0 }), "Policy.MaxLag: 0: must be positive"},
	} {
		t.Run(tc.want, func(t *testing.T) {
			cfg := minimal()
			tc.change(&cfg)
			_, err := New(cfg)
			if err == nil || !strings.HasPrefix(err.Error(), "coordinator: "+tc.want) {
				t.Errorf("got %v", err)
			} else if strings.Contains(err.Error(), "\n") {
				t.Errorf("one fault has more than one line: %v", err)
			}
		})
	}
	_, err := New(Config{})
	for _, field := range []string{"Namespace", "StatefulSet", "Dial", "Endpoints", "StatefulSets", "Pods"} {
		if err == nil || !strings.Contains(err.Error(), field+" ") {
			t.Errorf("an empty configuration does not name %s: %v", field, err)
		}
	}
}

func TestAgesGrowWhileASightingLasts(t *testing.T) {
	a, b := rollout.Sighting{UID: "a", Condition: rollout.ReadySeen},
		rollout.Sighting{UID: "b", Condition: rollout.ReadySeen}
	other := rollout.Sighting{UID: "a", Condition: rollout.UnsettledSeen}
	m, now := newTracker(&lastingAges{}), time.Unix(1000, 0)
	for _, step := range []struct {
		after time.Duration
		seen  []rollout.Sighting
		want  map[rollout.Sighting]time.Duration
	}{
		{0, []rollout.Sighting{a}, map[rollout.Sighting]time.Duration{a: 0}},
		{time.Second, []rollout.Sighting{a, b}, map[rollout.Sighting]time.Duration{a: time.Second, b: 0}},
		{longestGap, []rollout.Sighting{a, b, other}, map[rollout.Sighting]time.Duration{a: longestGap + time.Second,
			b: longestGap, other: 0}},
		{time.Second, []rollout.Sighting{b}, map[rollout.Sighting]time.Duration{b: longestGap + time.Second}},
		// a was gone in between.
		{time.Second, []rollout.Sighting{a, b}, map[rollout.Sighting]time.Duration{a: 0,
			b: longestGap + 2*time.Second}},
		// Nobody has looked for too long to know what was in between.
		{longestGap + time.Second, []rollout.Sighting{a, b}, map[rollout.Sighting]time.Duration{a: 0, b: 0}},
		{time.Second, nil, map[rollout.Sighting]time.Duration{}},
	} {
		now = now.Add(step.after)
		if got := m.ages(now, now, step.seen); !maps.Equal(got, step.want) {
			t.Errorf("at %v: got %v, want %v", now.Unix(), got, step.want)
		}
	}
}

// Whoever takes a pod after it has come back is somebody else.
func TestAPodIsOurRemovalUntilItIsBack(t *testing.T) {
	m := newTracker(&lastingAges{})
	m.gone("etcd-1", "old")
	for _, step := range []struct {
		pods []rollout.Pod
		want []string
	}{
		{[]rollout.Pod{{Name: "etcd-0", UID: "other"}, {Name: "etcd-1", UID: "old", Terminating: true}},
			[]string{"etcd-1"}},
		{[]rollout.Pod{{Name: "etcd-0", UID: "other"}}, []string{"etcd-1"}},
		{[]rollout.Pod{{Name: "etcd-0", UID: "other"}, {Name: "etcd-1", UID: "new"}}, nil},
		{[]rollout.Pod{{Name: "etcd-0", UID: "other"}, {Name: "etcd-1", UID: "new", Terminating: true}}, nil},
		{[]rollout.Pod{{Name: "etcd-0", UID: "other"}}, nil},
	} {
		if got := m.recall(time.Now(), time.Time{}, nil, step.pods).Removed; !slices.Equal(got, step.want) {
			t.Errorf("%+v: removed by us are %v, want %v", step.pods, got, step.want)
		}
	}
}

func TestFaultsAreLoggedOnceAMinuteAndRetriedEverMoreSlowly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out bytes.Buffer
		l := logrus.New()
		l.SetOutput(&out)
		log := logrus.NewEntry(l)
		lines := func() int {
			n := strings.Count(out.String(), "\n")
			out.Reset()
			return n
		}
		var f faults
		var pauses []time.Duration
		for range 7 {
			pauses = append(pauses, f.note(log, "it broke", errors.New("at the seam")))
		}
		want := []time.Duration{500 * time.Millisecond, time.Second, 2 * time.Second, 4 * time.Second, 8 * time.Second,
			10 * time.Second, 10 * time.Second}
		if !reflect.DeepEqual(pauses, want) {
			t.Errorf("pauses %v, want %v", pauses, want)
		}
		if text := out.String(); !strings.Contains(text, "it broke; retrying") ||
			!strings.Contains(text, "at the seam") {
			t.Errorf("log %s", text)
		}
		if n := lines(); n != 1 {
			t.Errorf("the same fault was logged %d times", n)
		}
		<-time.After(time.Minute - time.Nanosecond)
		f.note(log, "it broke", errors.New("at the seam"))
		if n := lines(); n != 0 {
			t.Error("the same fault was logged again within a minute")
		}
		<-time.After(time.Nanosecond)
		f.note(log, "it broke", errors.New("at the seam"))
		if n := lines(); n != 1 {
			t.Error("the same fault was not logged again after a minute")
		}
		f.note(log, "it broke", errors.New("elsewhere"))
		f.note(log, "something else broke", errors.New("elsewhere"))
		if n := lines(); n != 2 {
			t.Errorf("two other faults were logged %d times", n)
		}
		f.note(log, "slow", fmt.Errorf("get a: %w", context.DeadlineExceeded))
		f.note(log, "slow", fmt.Errorf("get b: %w", context.DeadlineExceeded))
		if n := lines(); n != 1 {
			t.Errorf("a deadline, however it is worded, was logged %d times", n)
		}
		f.clear()
		if pause := f.note(log, "slow", context.DeadlineExceeded); pause != 500*time.Millisecond || lines() != 1 {
			t.Errorf("after a success it begins anew: pause %v", pause)
		}
	})
}

// refusedWatch is an API for StatefulSets that answers a watch by an error.
type refusedWatch struct {
	StatefulSets
	answer func() error
}

func (w refusedWatch) Watch(context.Context, metav1.ListOptions) (watch.Interface, error) {
	return nil, w.answer()
}

func TestARefusedWatchIsLoggedOnceAMinuteAndAnOutageNotAtAll(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out lockedBuffer
		logger := logrus.New()
		logger.SetOutput(&out)
		forbidden := apierrors.NewForbidden(schema.GroupResource{Group: "apps", Resource: "statefulsets"}, "",
			errors.New("x"))
		var asked atomic.Int64
		c := &Coordinator{log: logrus.NewEntry(logger), cfg: Config{StatefulSets: refusedWatch{answer: func() error {
			if asked.Add(1)%2 == 1 { // One attempt in twenty seconds at least.
				return forbidden
			}
			return fmt.Errorf("stream error %v", time.Now())
		}}}}
		defer c.newView().Open(t.Context())()
		<-time.After(time.Minute - time.Millisecond)
		text := out.String()
		if strings.Count(text, "\n") != 1 || !strings.Contains(text, "the StatefulSet cannot be watched; retrying") ||
			!strings.Contains(text, "see deploy/base/role.yaml") || asked.Load() < 6 {
			t.Errorf("log of a minute and %d attempts: %s", asked.Load(), text)
		}
		<-time.After(40*time.Second + 2*time.Millisecond) // Every other attempt is refused.
		if n := strings.Count(out.String(), "\n"); n != 2 {
			t.Errorf("%d lines after a minute and two attempts, want 2", n)
		}
	})
}

// lockedBuffer takes what several goroutines log.
type lockedBuffer struct {
	mu  sync.Mutex
	all bytes.Buffer
}

func (b *lockedBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.all.Write(p)
}

func (b *lockedBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.all.String()
}

func TestErrorsOfKubernetesSayWhatToDo(t *testing.T) {
	r := schema.GroupResource{Group: "apps", Resource: "statefulsets"}
	for _, tc := range []struct {
		err  error
		want string
	}{
		{apierrors.NewForbidden(r, "etcd", errors.New("x")), "see deploy/base/role.yaml"},
		{apierrors.NewForbidden(r, "etcd",
			errors.New("ValidatingAdmissionPolicy 'p' with binding 'b' denied request: x")),
			"the Role allows it, and the cluster's admission does not"},
		{apierrors.NewForbidden(r, "etcd", errors.New(`admission webhook "w" denied the request: x`)),
			"the Role allows it, and the cluster's admission does not"},
		{apierrors.NewUnauthorized("x"), "ServiceAccount token"},
		{apierrors.NewNotFound(r, "etcd"), "check the namespace and the name of the StatefulSet"},
	} {
		err := explain(fmt.Errorf("get StatefulSet etcd: %w", tc.err))
		if !strings.Contains(err.Error(), tc.want) || !errors.Is(err, tc.err) {
			t.Errorf("got %v, want it to say %q", err, tc.want)
		}
	}
	if err := errors.New("anything else"); explain(err) != err {
		t.Errorf("got %v", explain(err))
	}
}

func TestWaitEndsWithWhateverComesFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		took := func(ctx context.Context, d time.Duration, changed <-chan struct{}) time.Duration {
			begin := time.Now()
			wait(ctx, d, changed)
			return time.Since(begin)
		}
		if d := took(t.Context(), time.Second, nil); d != time.Second {
			t.Errorf("its time: %v", d)
		}
		changed := make(chan struct{}, 1)
		changed <- struct{}{}
		if d := took(t.Context(), time.Second, changed); d != 0 {
			t.Errorf("a change: %v", d)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		if d := took(ctx, 0, changed); d != time.Hour {
			t.Errorf("no time, no change: %v", d)
		}
	})
}

func TestAgesOfMembersAndCordonsOutliveATurnAndNotALongBreak(t *testing.T) {
	ages, now := &lastingAges{}, time.Unix(1000, 0)
	looks, turns := newTracker(ages), newTracker(ages)
	ghost := rollout.Sighting{UID: "a3", Condition: rollout.GhostSeen}
	pod := rollout.Sighting{UID: "u", Condition: rollout.PodSeen}
	both := []rollout.Sighting{ghost, pod}
	looks.recall(now, now, both, nil)
	now = now.Add(longestBreak)
	if m := turns.recall(now, now, both, nil); m.Ages[ghost] != longestBreak || m.Ages[pod] != 0 {
		t.Errorf("a turn after a look: %v", m.Ages)
	}
	now = now.Add(time.Minute)
	if m := looks.recall(now, now, both, nil); m.Ages[ghost] != longestBreak+time.Minute {
		t.Errorf("a look after a turn: %v", m.Ages)
	}
	now = now.Add(longestBreak + 1)
	if m := looks.recall(now, now, both, nil); m.Ages[ghost] != 0 {
		t.Errorf("nobody has looked for too long: %v", m.Ages)
	}
	looks.recall(now.Add(time.Minute), now, nil, nil)
	if m := looks.recall(now.Add(2*time.Minute), now, both, nil); m.Ages[ghost] != 0 {
		t.Errorf("it was none in between: %v", m.Ages)
	}
}

// confirmedAt is an election in which etcd last confirmed the lock at some time.
type confirmedAt struct {
	elections
	at time.Time
}

func (c confirmedAt) Confirmed() time.Time { return c.at }

func TestWhoeverHasNoLockLooksAtAnIdleClusterWhenItsSessionIsLost(t *testing.T) {
	const ttl = 10 * time.Second
	now := time.Unix(1000, 0)
	for _, tc := range []struct {
		name              string
		confirmed, looked time.Time
		want              time.Time
	}{
		{"at once if it has never had a session", time.Time{}, time.Time{}, time.Time{}.Add(addressesEvery)},
		{"not after a moment of silence", now, time.Time{}, now.Add(ttl)},
		{"nor sooner than usual after the last look", now.Add(-time.Hour), now, now.Add(addressesEvery)},
	} {
		t.Run(tc.name, func(t *testing.T) {
			i := &idler{c: &Coordinator{cfg: Config{LockTTL: ttl}, looked: tc.looked,
				election: confirmedAt{at: tc.confirmed}}}
			if got := i.nextLook(); !got.Equal(tc.want) {
				t.Errorf("got %v, want %v", got, tc.want)
			}
		})
	}
}

// Without a quorum a leader renews leases on its own for a while.
func TestHowLongEtcdHasBeenSilent(t *testing.T) {
	const s = time.Second
	for _, tc := range []struct {
		name string
		// confirmed is when a lease was last renewed, and asked since when and until when the lock was asked for in
		// vain, all of them before now.
		confirmed time.Duration
		asked     [2]time.Duration
		want      time.Duration
	}{
		{"since a lease was last renewed", s, [2]time.Duration{}, s},
		{"since the lock was first asked for in vain, whatever was renewed then", s, [2]time.Duration{5 * s, s}, 5 * s},
		{"for longer, if a renewal was overdue by then", 7 * s, [2]time.Duration{5 * s, s}, 7 * s},
		{"no longer, if none was", 6 * s, [2]time.Duration{5 * s, s}, 5 * s},
		{"only since the last renewal, if that was long ago", s, [2]time.Duration{time.Hour, time.Hour - s}, s},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				now := time.Now()
				lock := &ownership{c: &Coordinator{cfg: Config{FallbackAfter: DefaultFallbackAfter},
					election: confirmedAt{at: now.Add(-tc.confirmed)}}}
				if tc.asked[0] > 0 {
					lock.unanswered = unanswered{now.Add(-tc.asked[0]), now.Add(-tc.asked[1])}
				}
				if got := lock.silence(); got != tc.want {
					t.Errorf("silent for %v, want %v", got, tc.want)
				}
			})
		})
	}
}

// After the node controller has taken the condition Ready away, a kubelet that is heard again writes the one that it
// had, with its old time.
func TestAPodThatBecomesReadyWithAnEarlierTimeHasNotBeenReadySinceThen(t *testing.T) {
	began := time.Unix(1000, 0)
	for _, tc := range []struct {
		name string
		// since are the times of the condition Ready, from look to look.
		since []time.Time
		want  bool // it is still known for how long it has been Ready
	}{
		{"the same all the time", []time.Time{began, began, began}, true},
		{"it is Ready anew", []time.Time{began, began.Add(time.Minute)}, false},
		{"its time goes back", []time.Time{began.Add(time.Minute), began}, false},
		{"there and back between two looks each", []time.Time{began, began.Add(time.Minute), began}, false},
		{"there and back between two looks: its kubelet has found it ready all the time",
			[]time.Time{began, began}, true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				k := newKube(t, 1, etcdtest.StartInMemory(t, 1))
				w := workload.New(workload.Config{
					StatefulSet: "etcd", Names: workload.DefaultNames(), StatefulSets: k, Pods: kubePods{k},
				})
				m := newTracker(&lastingAges{})
				ready := rollout.Sighting{UID: string(k.pods[0].UID), Condition: rollout.ReadySeen}
				known := true
				for _, since := range tc.since {
					k.setReady(k.pods[0], true)
					for i := range k.pods[0].Status.Conditions {
						k.pods[0].Status.Conditions[i].LastTransitionTime = metav1.NewTime(since)
					}
					now, err := w.Observe(t.Context())
					if err != nil {
						t.Fatal(err)
					}
					m.since[ready] = began
					m.flapped(now)
					_, is := m.since[ready]
					known = known && is
				}
				if known != tc.want {
					t.Errorf("known: %v, want %v", known, tc.want)
				}
			})
		})
	}
}

// The words of a kubelet are new where the last reading had other words of that kind, and not where it had none.
func TestWordsAreNewOnlyAfterOtherWords(t *testing.T) {
	pod := rollout.Sighting{UID: "uid", Condition: rollout.PodSeen}
	silent := rollout.Sighting{UID: "uid", Condition: rollout.SilentSeen}
	word := func(beat string) rollout.Sighting {
		return rollout.Sighting{UID: "uid heartbeat " + beat, Condition: rollout.SaidSeen}
	}
	for _, tc := range []struct {
		name string
		// beats are what the node says from look to look, empty where it could not be read. The silence begins with
		// the second one.
		beats []string
		want  bool
	}{
		{"the same all the time", []string{"1", "1", "1", "1"}, false},
		{"unread once in the silence", []string{"1", "1", "", "1"}, false},
		{"unread more than once", []string{"1", "", "", "1"}, false},
		{"never read before", []string{"", "", "", "1"}, false},
		{"new in the silence", []string{"1", "1", "1", "2"}, true},
		{"new after it could not be read", []string{"1", "1", "", "2"}, true},
		{"new, and not read since", []string{"1", "1", "2", ""}, false},
		{"new, and the same after it could not be read", []string{"1", "1", "1", "2", "", "2"}, true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			m, now := newTracker(&lastingAges{}), time.Unix(1000, 0)
			var ages rollout.Ages
			for i, beat := range tc.beats {
				now = now.Add(5 * time.Second)
				seen := []rollout.Sighting{pod}
				if i > 0 {
					seen = append(seen, silent)
				}
				if beat != "" {
					seen = append(seen, word(beat))
				}
				ages = m.recall(now, now.Add(-time.Second), seen, nil).Ages
			}
			age, told := ages[word(tc.beats[len(tc.beats)-1])]
			if got := told && age < ages[silent]; got != tc.want {
				t.Errorf("new: %v (%v, in a silence of %v), want %v", got, age, ages[silent], tc.want)
			}
		})
	}
	m, now := newTracker(&lastingAges{}), time.Unix(1000, 0)
	m.recall(now, now, []rollout.Sighting{pod, word("1")}, nil)
	if m.recall(now, now, nil, nil); len(m.since) != 0 {
		t.Errorf("what was said of a pod that is gone is kept: %v", m.since)
	}
}

func TestAMemberThatCatchesUpHasAPaceAfterAWhile(t *testing.T) {
	look := func(applied uint64) *rollout.Assessment {
		st := rollout.State{
			Set: rollout.Set{Name: "etcd", UID: "set", Replicas: 2, OnDelete: true, UpdateRevision: "new"},
			Etcd: rollout.Membership{Known: true, Linearizable: true, Members: []rollout.Member{
				{ID: 1, Name: "etcd-0", Probe: rollout.Probe{Read: rollout.Answered,
					Status: &rollout.Status{Leader: 1, Term: 1, Index: 5_000_000, Applied: 5_000_000}}},
				{ID: 2, Name: "etcd-1", Probe: rollout.Probe{Read: rollout.Failed,
					Status: &rollout.Status{Leader: 1, Term: 1, Applied: applied}}},
			}},
		}
		for i, name := range []string{"etcd-0", "etcd-1"} {
			st.Pods = append(st.Pods, rollout.Pod{Name: name, UID: name, Ordinal: i, MemberName: name, Owned: true,
				Revision: "new", Etcd: rollout.Container{State: rollout.ContainerRunning}})
		}
		return rollout.Assess(st, rollout.DefaultPolicy())
	}
	m, begun := newTracker(&lastingAges{}), time.Now()
	for _, tc := range []struct {
		after   time.Duration
		applied uint64
		want    float64
	}{
		{0, 1_000_000, 0}, {10 * time.Second, 1_100_000, 0}, {40 * time.Second, 1_400_000, 10_000},
		{50 * time.Second, 1_500_000, 10_000}, // Until it is known anew.
		{80 * time.Second, 1_400_000, 0},      // It does not come closer.
		{81 * time.Second, 5_000_000, 0},      // It is there.
		{82 * time.Second, 1_400_000, 0},      // And what was before counts no more.
	} {
		if got := m.paces(begun.Add(tc.after), look(tc.applied))[2]; got != tc.want {
			t.Errorf("after %v: %v entries a second, want %v", tc.after, got, tc.want)
		}
	}
}
