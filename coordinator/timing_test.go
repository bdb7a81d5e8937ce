package coordinator

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/sirupsen/logrus"
	appsv1 "k8s.io/api/apps/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"

	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"

	"github.com/quorate/quorate/internal/etcdtest"
	"github.com/quorate/quorate/internal/record"
	"github.com/quorate/quorate/internal/report"
	"github.com/quorate/quorate/internal/workload"
	"github.com/quorate/quorate/pkg/rollout"
	"github.com/quorate/quorate/selfupdate"
)

// These tests are about time alone: when the loop asks, how long it waits for an answer,
// when it asks again, and in which order it ends. In a bubble nothing but waiting takes
// time, so instants are exact.

// stage is a kube that notes the instants of its requests and of etcd's, and can delay, lose or
// refuse them.
type stage struct {
	*kube

	noting sync.Mutex
	zero   time.Time
	notes  []note
	// answer, where not nil, answers a request; send carries it out.
	answer func(ctx context.Context, request string, send func() error) error
}

// note is a request or a line of the log.
type note struct {
	what string
	at   time.Duration
}

// newStage returns a stage on which nobody has ever claimed a removal, so that a claim
// has nothing to fence.
func newStage(t *testing.T, replicas int) *stage {
	s := &stage{kube: newKube(t, replicas, etcdtest.StartInMemory(t, replicas)), zero: time.Now()}
	s.held(map[string]string{record.SchemaAnnotation: "1", record.IntentAnnotation: `{"operation":"none"}`})
	*s.lease.Spec.HolderIdentity = ""
	s.etcd.Intercept(func(ctx context.Context, method string, do func() (any, error)) (any, error) {
		return through(ctx, s, method, do)
	})
	return s
}

// config runs a coordinator on the stage.
func (s *stage) config(changes ...func(*Config)) Config {
	logger := logrus.New()
	logger.SetOutput(s)
	logger.SetFormatter(plain{})
	return config(s.kube, append([]func(*Config){func(c *Config) {
		c.StatefulSets, c.Pods, c.Leases = stageSets{s.kube, s}, stagePods{kubePods{s.kube}, s},
			stageLeases{kubeLeases{s.kube}, s}
		c.Log = logrus.NewEntry(logger)
	}}, changes...)...)
}

// plain writes what is said, with the guard that it is about.
type plain struct{}

func (plain) Format(e *logrus.Entry) ([]byte, error) {
	if guard, ok := e.Data["guard"]; ok {
		return fmt.Appendf(nil, "says %v: %s", guard, e.Message), nil
	}
	return []byte("says " + e.Message), nil
}

// Write takes a line of the log. When the coordinator steps aside, the sidecar that waits goes
// as well, because to line up behind it would need a watch.
func (s *stage) Write(line []byte) (int, error) {
	s.note(string(line))
	if strings.HasPrefix(string(line), "says unfit") || strings.HasPrefix(string(line), "says handing over") {
		s.etcd.Delete(presence + peer)
		s.etcd.Delete(lock + peer)
	}
	return len(line), nil
}

func (s *stage) note(what string) {
	s.noting.Lock()
	defer s.noting.Unlock()
	s.notes = append(s.notes, note{what, time.Since(s.zero)})
}

// begin forgets what was noted and counts time from now on.
func (s *stage) begin() {
	s.noting.Lock()
	defer s.noting.Unlock()
	s.zero, s.notes = time.Now(), nil
}

// answering changes how requests are answered; nil lets them all pass.
func (s *stage) answering(answer func(ctx context.Context, request string, send func() error) error) {
	s.noting.Lock()
	defer s.noting.Unlock()
	s.answer = answer
}

// at returns the instants of the notes that begin like this, each instant once.
func (s *stage) at(what string) []time.Duration {
	s.noting.Lock()
	defer s.noting.Unlock()
	var at []time.Duration
	for _, n := range s.notes {
		if strings.HasPrefix(n.what, what) {
			at = append(at, n.at)
		}
	}
	return slices.Compact(at)
}

// order returns which of these happened, in the order of their first time.
func (s *stage) order(of ...string) []string {
	s.noting.Lock()
	defer s.noting.Unlock()
	var what []string
	for _, n := range s.notes {
		if slices.Contains(of, n.what) && !slices.Contains(what, n.what) {
			what = append(what, n.what)
		}
	}
	return what
}

func through[T any](ctx context.Context, s *stage, request string, do func() (T, error)) (answer T, err error) {
	s.note(request)
	s.noting.Lock()
	f := s.answer
	s.noting.Unlock()
	send := func() (err error) {
		if err = ctx.Err(); err != nil {
			return err // As a client of Kubernetes or etcd: nothing is sent after the deadline.
		}
		answer, err = do()
		return err
	}
	if f == nil {
		return answer, send()
	}
	if err = f(ctx, request, send); err != nil {
		var none T
		return none, err
	}
	return answer, nil
}

type answerFunc = func(ctx context.Context, request string, send func() error) error

// failing answers these requests with an error.
func failing(err error, requests ...string) answerFunc {
	return func(_ context.Context, request string, send func() error) error {
		if slices.Contains(requests, request) {
			return err
		}
		return send()
	}
}

// hanging never answers these requests.
func hanging(requests ...string) answerFunc {
	return func(ctx context.Context, request string, send func() error) error {
		if slices.Contains(requests, request) {
			<-ctx.Done()
			return ctx.Err()
		}
		return send()
	}
}

// slowly carries these requests out at once and answers after d, whatever the deadline.
func slowly(d time.Duration, requests ...string) answerFunc {
	return func(_ context.Context, request string, send func() error) error {
		err := send()
		if slices.Contains(requests, request) {
			<-time.After(d)
		}
		return err
	}
}

// Names of requests. Those of etcd are its methods' own.
const (
	getSet, listPods, readPod, getLease = "get the StatefulSet", "list the pods", "read a pod", "get the Lease"
	asksBudget                          = "ask the budget"
	// What a write of the Lease is for.
	claims, records, clears, renews, tells, releases = "claim the record", "record a removal", "clear the removal",
		"renew the record", "tell news", "release the record"
)

type stageSets struct {
	*kube
	stage *stage
}

func (s stageSets) Get(ctx context.Context, name string, o metav1.GetOptions) (*appsv1.StatefulSet, error) {
	return through(ctx, s.stage, getSet, func() (*appsv1.StatefulSet, error) { return s.kube.Get(ctx, name, o) })
}

type stagePods struct {
	kubePods
	stage *stage
}

func (s stagePods) List(ctx context.Context, o metav1.ListOptions) (*corev1.PodList, error) {
	request := listPods
	if o.FieldSelector != "" {
		request = readPod
	}
	return through(ctx, s.stage, request, func() (*corev1.PodList, error) { return s.kubePods.List(ctx, o) })
}

func (s stagePods) Patch(ctx context.Context, name string, pt types.PatchType, data []byte, o metav1.PatchOptions,
	sub ...string) (*corev1.Pod, error) {
	return through(ctx, s.stage, "fence "+name, func() (*corev1.Pod, error) {
		return s.kubePods.Patch(ctx, name, pt, data, o, sub...)
	})
}

func (s stagePods) Delete(ctx context.Context, name string, o metav1.DeleteOptions) error {
	_, err := through(ctx, s.stage, "delete "+name, func() (any, error) { return nil, s.kubePods.Delete(ctx, name, o) })
	return err
}

func (s stagePods) EvictV1(ctx context.Context, e *policyv1.Eviction) error {
	request := "evict " + e.Name
	if len(e.DeleteOptions.DryRun) > 0 {
		request = asksBudget
	}
	_, err := through(ctx, s.stage, request, func() (any, error) { return nil, s.kubePods.EvictV1(ctx, e) })
	return err
}

type stageLeases struct {
	kubeLeases
	stage *stage
}

func (s stageLeases) Get(ctx context.Context, name string, o metav1.GetOptions) (*coordinationv1.Lease, error) {
	return through(ctx, s.stage, getLease, func() (*coordinationv1.Lease, error) {
		return s.kubeLeases.Get(ctx, name, o)
	})
}

func (s stageLeases) Create(ctx context.Context, lease *coordinationv1.Lease,
	o metav1.CreateOptions) (*coordinationv1.Lease, error) {
	return through(ctx, s.stage, claims, func() (*coordinationv1.Lease, error) {
		return s.kubeLeases.Create(ctx, lease, o)
	})
}

func (s stageLeases) Patch(ctx context.Context, name string, pt types.PatchType, data []byte, o metav1.PatchOptions,
	sub ...string) (*coordinationv1.Lease, error) {
	return through(ctx, s.stage, s.purpose(data), func() (*coordinationv1.Lease, error) {
		return s.kubeLeases.Patch(ctx, name, pt, data, o, sub...)
	})
}

// purpose says what a patch of the Lease is for.
func (s stageLeases) purpose(patch []byte) string {
	s.mu.Lock()
	defer s.mu.Unlock()
	before, after := record.Parse(s.lease), record.Parse(merge(s.lease, patch))
	switch {
	case after.Holder == "":
		return releases
	case after.Epoch != before.Epoch:
		return claims
	case after.Intent == before.Intent:
		was, _, _ := report.FromNotes(s.lease.Annotations)
		if is, _, _ := report.FromNotes(merge(s.lease, patch).Annotations); is.Key() != was.Key() {
			return tells
		}
		return renews
	case after.Intent.Operation == record.None:
		return clears
	}
	return records
}

const presence, peer = "/quorate/ns/etcd/presence/", "ffff"

// waits has a sidecar line up behind us that announces this about itself.
func (s *stage) waits(p selfupdate.Presence) {
	text, err := json.Marshal(p)
	if err != nil {
		panic(err)
	}
	s.etcd.Hold(presence+peer, string(text))
	s.etcd.Hold(lock+peer, "")
}

// queue is how many have the lock or wait for it.
func (s *stage) queue() (n int) {
	for _, key := range s.etcd.Keys() {
		if strings.HasPrefix(key, lock) {
			n++
		}
	}
	return n
}

func fit(pod string) selfupdate.Presence { return selfupdate.Presence{Pod: pod, UID: "uid-of-" + pod} }

func expectTimes(t *testing.T, what string, got []time.Duration, want ...time.Duration) {
	t.Helper()
	if len(got) > len(want) {
		got = got[:len(want)]
	}
	if !slices.Equal(got, want) {
		t.Errorf("%s:\n got %v\nwant %v", what, got, want)
	}
}

// gaps are the times between instants.
func gaps(at []time.Duration) []time.Duration {
	var between []time.Duration
	for i := 1; i < len(at); i++ {
		between = append(between, at[i]-at[i-1])
	}
	return between
}

// repeated returns the instants of something that takes some time each and is followed by
// pauses.
func repeated(takes time.Duration, pauses ...time.Duration) []time.Duration {
	at := []time.Duration{0}
	for _, p := range pauses {
		at = append(at, at[len(at)-1]+takes+p)
	}
	return at
}

const ms = time.Millisecond

// growing are the pauses after failures in a row.
var growing = []time.Duration{500 * ms, time.Second, 2 * time.Second, 4 * time.Second, 8 * time.Second,
	10 * time.Second, 10 * time.Second, 10 * time.Second}

var growingToTwo = []time.Duration{500 * ms, time.Second, 2 * time.Second, 2 * time.Second, 2 * time.Second,
	2 * time.Second}

var errRefused = errors.New("connection refused")

func forbiddenPod() error {
	return apierrors.NewForbidden(corev1.Resource("pods"), "etcd-2", errors.New("not yours"))
}

// after lets an answer begin once something has been noted.
func (s *stage) after(what string, then answerFunc) answerFunc {
	return func(ctx context.Context, request string, send func() error) error {
		if len(s.at(what)) == 0 {
			return send()
		}
		return then(ctx, request, send)
	}
}

func TestWhatFailsIsTriedAgainEverMoreSlowlyAndWhatHangsIsGivenUp(t *testing.T) {
	for _, tc := range []struct {
		name    string
		request string
		// since, where set, is what has to happen before the request fails.
		since string
		// given is how long an answer is waited for.
		given  time.Duration
		pauses []time.Duration
		// idle is true if there is nothing to roll.
		idle  bool
		scene func(*stage)
		err   error
	}{
		{name: "the first look at the workload", request: getSet, given: DefaultRequestTimeout, pauses: growing},
		{name: "a look of whoever has the lock", request: listPods, since: "Txn", given: DefaultRequestTimeout,
			pauses: growing},
		{name: "the reading of the record before a claim", request: getLease, given: DefaultRequestTimeout,
			pauses: growing},
		{name: "a claim", request: claims, given: DefaultMaxEvidenceAge, pauses: growing},
		{name: "the list of the pods to be fenced", request: listPods, since: claims, given: DefaultRequestTimeout,
			pauses: growing,
			scene:  func(s *stage) { s.lease = nil }},
		{name: "the change of a pod that fences it", request: "fence etcd-0", given: DefaultRequestTimeout,
			pauses: growing,
			scene:  func(s *stage) { s.lease = nil }},
		{name: "an observation", request: getSet, since: claims, given: DefaultRequestTimeout, pauses: growing},
		{name: "the swap of an intent", request: records, given: DefaultMaxEvidenceAge, pauses: growing},
		{name: "a removal that is not allowed", request: "delete etcd-2", pauses: growing, err: forbiddenPod()},
		{name: "a removal that is no eviction, to which the answer is too many requests", request: "delete etcd-2",
			pauses: growing,
			err:    apierrors.NewTooManyRequests("an admission webhook says so", 0)},
		{name: "a removal of which nobody knows", request: "delete etcd-2", pauses: growing,
			err: apierrors.NewInternalError(errors.New("failed calling webhook"))},
		// Two seconds at most, because the fallback goes on for that long when the lock works
		// again.
		{name: "the grant of a session's lease", request: "LeaseGrant", given: DefaultProbeTimeout, idle: true,
			pauses: growingToTwo, err: rpctypes.ErrGRPCNoSpace},
		{name: "the announcement of a sidecar", request: "Put", given: DefaultProbeTimeout, idle: true,
			pauses: growingToTwo, err: rpctypes.ErrGRPCNoSpace},
	} {
		play := func(t *testing.T, answer answerFunc, takes time.Duration) {
			synctest.Test(t, func(t *testing.T) {
				s := newStage(t, 3)
				if !tc.idle {
					s.update("rev-2")
				}
				if tc.scene != nil {
					tc.scene(s)
				}
				if tc.since != "" {
					answer = s.after(tc.since, answer)
				}
				s.answering(answer)
				stop := run(t, s.config())
				want := repeated(takes, tc.pauses...)
				<-time.After(want[len(want)-1] + time.Second)
				at := s.at(tc.request)
				// At the very end of its time etcd's client may repeat a request by itself.
				for i := 1; takes > 0 && i < len(at); i++ {
					if at[i]-at[i-1] == takes {
						at = slices.Delete(at, i, i+1)
					}
				}
				expectTimes(t, tc.request, at, want...)
				s.answering(nil)
				s.update("rev-2")
				within(t, time.Minute, "the rollout", func() bool { return s.settled("rev-2") })
				stop()
			})
		}
		err := tc.err
		if err == nil {
			err = errRefused
		}
		t.Run(tc.name+", when it fails", func(t *testing.T) { play(t, failing(err, tc.request), 0) })
		if tc.given > 0 {
			t.Run(tc.name+", when it hangs", func(t *testing.T) { play(t, hanging(tc.request), tc.given) })
		}
	}
}

func TestAfterASuccessWhatFailsIsTriedAgainQuickly(t *testing.T) {
	for _, tc := range []struct {
		name, request string
		err           error
	}{
		{"the first look at the workload", getSet, errRefused},
		{"the reading of the record before a claim", getLease, errRefused},
		{"a claim", claims, errRefused},
		{"the swap of an intent", records, errRefused},
		{"a removal that is not allowed", "delete etcd-2", forbiddenPod()},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newStage(t, 3)
				s.update("rev-2")
				s.answering(failing(tc.err, tc.request))
				defer run(t, s.config())()
				<-time.After(time.Minute)
				s.answering(nil)
				within(t, time.Minute, "the rollout", func() bool { return s.settled("rev-2") })
				<-time.After(time.Minute)
				s.answering(failing(tc.err, tc.request))
				s.begin()
				s.update("rev-3")
				<-time.After(time.Minute)
				expectTimes(t, tc.request, s.at(tc.request), repeated(0, growing[:5]...)...)
			})
		})
	}
}

func TestAfterAGoodObservationWhatFailsIsTriedAgainQuickly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStage(t, 3)
		s.waiting()
		defer run(t, s.config())()
		for range 2 {
			s.answering(nil)
			<-time.After(time.Minute)
			s.next(t, getSet)
			s.answering(failing(errRefused, getSet))
			<-time.After(time.Minute)
			expectTimes(t, "observations", gaps(s.at(getSet)), growing[:5]...)
		}
	})
}

// A coordinator whose cycles fail steps aside for a fit one that waits. This one can no longer
// read the workload once it has claimed the record.
func TestACoordinatorThatFailsStepsAside(t *testing.T) {
	const fifth = 7500 * ms // After four pauses.
	forbidden := apierrors.NewForbidden(appsv1.Resource("statefulsets"), "etcd", errors.New("not yours"))
	for _, tc := range []struct {
		name string
		err  error
		// peer, if not nil, is the sidecar that waits for the lock when it fails.
		peer *selfupdate.Presence
		// takes is after how long it gives up, and away how long it then stays out.
		takes time.Duration
		away  []time.Duration
	}{
		{"at the fifth failure in a row, for 10 s, then for ever longer, 30 min at most", errRefused,
			&selfupdate.Presence{Pod: "etcd-1", UID: "u"}, fifth,
			[]time.Duration{10 * time.Second, 20 * time.Second, 40 * time.Second, 80 * time.Second, 160 * time.Second,
				320 * time.Second, 640 * time.Second, 1280 * time.Second, 30 * time.Minute, 30 * time.Minute}},
		{"at once when it is not allowed, for 5 min, then for ever longer, 30 min at most", forbidden,
			&selfupdate.Presence{Pod: "etcd-1", UID: "u"}, 0,
			[]time.Duration{5 * time.Minute, 10 * time.Minute, 20 * time.Minute, 30 * time.Minute, 30 * time.Minute}},
		{"not while nobody waits for the lock", errRefused, nil, 0, nil},
		{"not when it is not allowed, while nobody waits for the lock", forbidden, nil, 0, nil},
		{"not while the one that waits is unfit itself", errRefused,
			&selfupdate.Presence{Pod: "etcd-1", UID: "u", Unfit: "forbidden"}, 0, nil},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newStage(t, 3)
				s.update("rev-2")
				s.annotate(rollout.ControlPaused, "true")
				registry := prometheus.NewRegistry()
				defer run(t, s.config(telling(s.kube, registry)))()
				expectMetrics := func(unfit, failures float64) {
					t.Helper()
					if is, row := metric(t, registry, "quorate_unfit"),
						metric(t, registry, "quorate_consecutive_failures", report.AtRollout); is != unfit ||
						row != failures {
						t.Errorf("quorate_unfit %v and %v failures in a row, want %v and %v", is, row, unfit, failures)
					}
				}
				for i := range max(len(tc.away), 1) {
					within(t, time.Minute, "the lock", func() bool { return holders(s.kube) == 1 })
					<-time.After(time.Second) // It has claimed the record and holds.
					if tc.peer != nil {
						s.waits(*tc.peer)
					}
					s.answering(failing(tc.err, getSet))
					s.begin()
					if len(tc.away) == 0 {
						<-time.After(10 * time.Minute)
						if at := s.at("says unfit"); len(at) > 0 {
							t.Errorf("it stepped aside after %v", at)
						}
						expectMetrics(0, float64(len(s.at(getSet))))
						return
					}
					within(t, time.Minute, "that it steps aside", func() bool { return len(s.at("says unfit")) == 1 })
					stepped := s.at("says unfit")[0]
					if took := stepped - s.at(getSet)[0]; took != tc.takes {
						t.Errorf("it stepped aside %v after the first failure, want %v", took, tc.takes)
					}
					expectAll(t, "the record and then the lock", s.order(releases, "LeaseRevoke"),
						releases, "LeaseRevoke")
					expectMetrics(1, 0)
					s.answering(nil)
					within(t, time.Hour, "its return", func() bool { return holders(s.kube) == 1 })
					expectMetrics(0, 0)
					said := s.at("Put") // That it is unfit, and that it is not any more.
					expectTimes(t, fmt.Sprintf("what it says of itself, round %d", i+1), said, stepped,
						stepped+tc.away[i])
				}
			})
		})
	}
}

// rolled ends a rollout, so that a test can go on from what it left behind.
func (s *stage) rolled(t *testing.T, revision string) {
	t.Helper()
	s.answering(nil)
	s.update(revision)
	within(t, time.Hour, "the rollout to "+revision, func() bool { return s.settled(revision) })
	<-time.After(time.Minute)
}

func TestACoordinatorThatHasFinishedARolloutIsFitAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStage(t, 3)
		defer run(t, s.config(as("etcd-0")))()
		for _, revision := range []string{"rev-2", "rev-3", "rev-4"} {
			s.annotate(rollout.ControlPaused, "true")
			s.update(revision)
			within(t, time.Hour, "the lock", func() bool { return holders(s.kube) == 1 })
			<-time.After(time.Second)
			s.waits(fit("etcd-1"))
			s.answering(failing(errRefused, getSet))
			s.begin()
			within(t, time.Minute, "that it steps aside", func() bool { return len(s.at("says unfit")) == 1 })
			s.annotate(rollout.ControlPaused, "false")
			s.rolled(t, revision)
			if away := gaps(s.at("Put")); away[0] != unfitFor {
				t.Errorf("it stayed out for %v, want %v", away[0], unfitFor)
			}
		}
	})
}

// unreachable makes a member hang although its kubelet finds it well.
func (s *stage) unreachable(ordinal int, on bool) {
	s.etcd.Set(func(_ *etcdtest.Cluster, ms []*etcdtest.Member) { ms[ordinal].Hung = on })
}

// refuse lets the addresses of pods refuse connections although requests to their members hang, as behind a proxy.
func (s *stage) refuse(ordinals ...int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.refusing = map[int]bool{}
	for _, i := range ordinals {
		s.refusing[i] = true
	}
}

// next waits for the next time that something happens, and begins to count there.
func (s *stage) next(t *testing.T, what string) {
	t.Helper()
	s.begin()
	within(t, time.Minute, what, func() bool { return len(s.at(what)) > 0 })
	// It is noted before it is answered. An answer that changes in between would be to a request that
	// nobody has counted.
	synctest.Wait()
	s.begin()
}

// The times between cycles without news. resting is for a rollout that waits for its pods, and
// held for one that waits for an operator.
const resting, held = leastRest + DefaultInterval, leastRest + slowdown*DefaultInterval

func TestACoordinatorWhoseRemovalsHangStepsAside(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStage(t, 3)
		stop := run(t, s.config(as("etcd-0")))
		<-time.After(time.Minute)
		s.waits(fit("etcd-1"))
		s.answering(hanging("delete etcd-2"))
		s.begin()
		s.update("rev-2")
		within(t, 10*time.Minute, "that it steps aside", func() bool { return len(s.at("says unfit")) == 1 })
		if n := len(s.at("delete etcd-2")); n != unfitAfter {
			t.Errorf("after %d removals", n)
		}
		stop()
	})
}

func TestACoordinatorThatCannotSeeAMemberLetsAnotherLook(t *testing.T) {
	const cycle = DefaultProbeTimeout + shortRest + slowdown*DefaultInterval
	for _, tc := range []struct {
		name  string
		scene func(s *stage)
		// want is after how long without seeing the member it steps aside, 0 for never.
		want time.Duration
	}{
		{"after the first cycle in which it has been so for 30 s", func(s *stage) {
			s.waits(fit("etcd-0"))
		}, 5 * cycle},
		{"not for nobody", func(*stage) {}, 0},
		{"not for one that is unfit", func(s *stage) { s.waits(selfupdate.Presence{Unfit: "forbidden"}) }, 0},
		{"for one that comes later, at once", func(s *stage) {
			<-time.After(20*cycle + time.Second)
			s.waits(fit("etcd-0"))
		}, 20 * cycle},
		{"not before it has been so without a break", func(s *stage) {
			s.waits(fit("etcd-0"))
			<-time.After(held + 4*cycle + time.Second)
			s.unreachable(1, false)
			<-time.After(cycle)
			s.unreachable(1, true)
			<-time.After(3 * cycle)
			s.unreachable(1, false)
		}, 0},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newStage(t, 3)
				s.annotate(rollout.ControlPaused, "true")
				s.update("rev-2")
				stop := run(t, s.config(as("etcd-2"), neverDue, func(c *Config) {
					// The lock's client talks to a member that answers.
					c.Dial = func(endpoints []string) (*clientv3.Client, error) {
						return s.etcd.Dial(endpoints[:1])
					}
				}))
				<-time.After(time.Minute)
				s.next(t, getSet)
				s.unreachable(1, true)
				tc.scene(s)
				<-time.After(10*time.Minute - time.Since(s.zero))
				first, aside := s.at(getSet)[0]+DefaultProbeTimeout, s.at("says unfit: etcd-1 has been Unknown")
				if got := s.at(releases); tc.want == 0 && len(got) > 0 ||
					tc.want > 0 && (len(got) == 0 || got[0]-first != tc.want) {
					t.Errorf("it first did not see it at %v, and stepped aside at %v; want %v", first, got, tc.want)
				}
				if tc.want > 0 && len(aside) != 1 {
					t.Errorf("it said why at %v", aside)
				}
				stop()
			})
		})
	}
}

// waiting begins a rollout that waits for its first pod, whose member serves.
func (s *stage) waiting() {
	s.change(func() { s.set.Spec.MinReadySeconds = 24 * 3600 })
	s.update("rev-2")
}

// neverDue is a record that does not have to be renewed.
func neverDue(c *Config) { c.RecordDuration = 24 * time.Hour }

// heldBy is a rollout that a control holds until it is changed.
func heldBy(control, holds, lets string) func(t *testing.T, s *stage) {
	return func(t *testing.T, s *stage) {
		s.annotate(control, holds)
		s.update("rev-2")
		defer run(t, s.config(neverDue))()
		<-time.After(time.Minute)
		s.next(t, getSet)
		<-time.After(time.Minute)
		s.annotate(control, lets)
		<-time.After(held)
		looks := s.at(getSet)
		expectTimes(t, "looks", gaps(looks), slices.Repeat([]time.Duration{held}, 10)...)
		expectTimes(t, "the first removal", s.at("delete etcd-2"), looks[11])
	}
}

func TestHowOftenIsLooked(t *testing.T) {
	for _, tc := range []struct {
		name string
		test func(t *testing.T, s *stage)
	}{
		{"once an Interval while a rollout waits", func(t *testing.T, s *stage) {
			s.waiting()
			defer run(t, s.config(neverDue))()
			<-time.After(time.Minute)
			s.next(t, getSet)
			<-time.After(time.Minute)
			expectTimes(t, "looks", gaps(s.at(getSet)), slices.Repeat([]time.Duration{resting}, 20)...)
		}},
		{"every five Intervals while it is paused, and so it goes on at the next look",
			heldBy(rollout.ControlPaused, "true", "false")},
		{"every five Intervals at a partition, and so it goes on at the next look",
			heldBy(rollout.ControlPartition, "3", "0")},
		{"in a hold as often as the record has to be renewed", func(t *testing.T, s *stage) {
			s.annotate(rollout.ControlPaused, "true")
			s.update("rev-2")
			defer run(t, s.config(func(c *Config) { c.RecordDuration = 13 * time.Second }))()
			<-time.After(time.Minute)
			s.next(t, renews)
			<-time.After(time.Minute)
			expectTimes(t, "renewals", gaps(s.at(renews)), slices.Repeat([]time.Duration{2 * 13 * time.Second}, 1)...)
		}},
		{"once in 50 ms in a burst of news", func(t *testing.T, s *stage) {
			s.waiting()
			defer run(t, s.config(neverDue))()
			<-time.After(time.Minute)
			s.next(t, getSet)
			for range 1000 {
				s.change(func() {})
				<-time.After(ms)
			}
			if between := gaps(s.at(getSet)); len(between) < 15 || slices.Min(between) < leastRest {
				t.Errorf("%d looks in a second, the closest within %v", len(between), slices.Min(between))
			}
		}},
		{"at once after news, but not twice within 50 ms", func(t *testing.T, s *stage) {
			s.waiting()
			defer run(t, s.config(neverDue))()
			<-time.After(time.Minute)
			s.next(t, getSet)
			<-time.After(500 * ms)
			news := time.Since(s.zero)
			s.change(func() {})
			<-time.After(10 * ms)
			s.change(func() {})
			<-time.After(400 * ms)
			expectTimes(t, "looks", s.at(getSet), news, news+leastRest)
		}},
		{"as often as the slowest member lets: one that hangs costs the probe's timeout once",
			func(t *testing.T, s *stage) {
				s.annotate(rollout.ControlPaused, "true")
				s.update("rev-2")
				defer run(t, s.config(neverDue))()
				<-time.After(time.Minute)
				s.unreachable(1, true)
				<-time.After(time.Minute)
				s.next(t, getSet)
				<-time.After(time.Minute)
				expectTimes(t, "looks", gaps(s.at(getSet)),
					slices.Repeat([]time.Duration{DefaultProbeTimeout + shortRest + slowdown*DefaultInterval}, 5)...)
			}},
		{"where the members are: when a session is a LockTTL old, and then once a minute",
			func(t *testing.T, s *stage) {
				defer run(t, s.config(neverDue))()
				<-time.After(5 * time.Minute)
				expectTimes(t, "member lists", s.at("MemberList"), 0, DefaultLockTTL, DefaultLockTTL+time.Minute,
					DefaultLockTTL+2*time.Minute, DefaultLockTTL+3*time.Minute, DefaultLockTTL+4*time.Minute)
			}},
		{"the same when nobody answers", func(t *testing.T, s *stage) {
			defer run(t, s.config(neverDue))()
			<-time.After(time.Second)
			s.answering(hanging("MemberList"))
			<-time.After(5 * time.Minute)
			want := []time.Duration{0}
			for n := range 5 { // The rest is asked a moment after the best two, and for its own lists a moment later.
				at := DefaultLockTTL + time.Duration(n)*addressesEvery
				want = append(want, at, at+100*ms, at+200*ms)
			}
			expectTimes(t, "member lists", s.at("MemberList"), want...)
		}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { tc.test(t, newStage(t, 3)) })
		})
	}
}

func TestAfterARemovalNobodyLooksForAMomentUnlessAnotherPodMayGo(t *testing.T) {
	for _, tc := range []struct {
		name           string
		maxUnavailable int
		away           bool
		rests          bool
	}{
		{"one pod at a time", 1, false, true},
		{"two at a time", 2, false, false},
		{"a pod is away anyhow, whose own removal may be next", 1, true, false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newStage(t, 5)
				defer run(t, s.config(neverDue, func(c *Config) {
					c.Policy.MaxUnavailable.Number = tc.maxUnavailable
				}))()
				<-time.After(time.Minute)
				if tc.away {
					s.unreachable(2, true)
					s.change(func() { s.setReady(s.pods[2], false) })
					<-time.After(time.Minute)
				}
				s.begin()
				s.update("rev-2")
				within(t, time.Minute, "the first removal", func() bool { return len(s.at("delete ")) > 0 })
				<-time.After(time.Second)
				rests := s.at("clear the removal")[0]-s.at("delete ")[0] >= afterRemoval
				if rests != tc.rests {
					t.Errorf("rests %v, want %v: %v", rests, tc.rests, s.asked())
				}
			})
		})
	}
}

func TestWhoRemovesItsOwnPodReleasesTheLockAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStage(t, 1)
		defer run(t, s.config(neverDue, as("etcd-0")))()
		<-time.After(time.Minute)
		s.begin()
		s.update("rev-2")
		within(t, time.Minute, "the removal", func() bool { return len(s.at("delete ")) > 0 })
		<-time.After(time.Second)
		expectTimes(t, "the lock's end", s.at("LeaseRevoke"), s.at("delete etcd-0")...)
	})
}

func TestTheRecordIsRenewed(t *testing.T) {
	const rarely = 2 * DefaultRecordDuration
	for _, tc := range []struct {
		name string
		test func(t *testing.T, s *stage)
	}{
		{"every half a minute while etcd confirms the lock, and says that it stands for longer", func(t *testing.T,
			s *stage) {
			s.waiting()
			defer run(t, s.config())()
			<-time.After(time.Minute)
			s.next(t, renews)
			<-time.After(5*time.Minute + time.Second)
			expectTimes(t, "renewals", gaps(s.at(renews)), slices.Repeat([]time.Duration{rarely}, 9)...)
			s.stands(t, 3*DefaultRecordDuration)
		}},
		{"at once when etcd does not confirm the lock any more, then every third of its duration, and rarely again " +
			"when it does", func(t *testing.T, s *stage) {
			s.waiting()
			defer run(t, s.config())()
			<-time.After(time.Minute)
			s.next(t, renews)
			<-time.After(5 * time.Second)
			s.begin()
			s.etcd.LoseQuorum()
			<-time.After(DefaultFallbackAfter + 3*time.Second)
			s.stands(t, DefaultRecordDuration)
			<-time.After(time.Minute)
			if between := gaps(s.at(renews)); len(between) < 10 || slices.Max(between) > DefaultRecordDuration/2 {
				t.Errorf("renewed with pauses of %v", between)
			}
			s.etcd.RegainQuorum()
			<-time.After(2 * time.Minute)
			s.stands(t, 3*DefaultRecordDuration)
		}},
		{"before it lapses, although members hang", func(t *testing.T, s *stage) {
			s.waiting()
			defer run(t, s.config())()
			<-time.After(time.Minute)
			s.unreachable(0, true)
			s.unreachable(1, true)
			s.next(t, renews)
			<-time.After(10 * time.Minute)
			if between := gaps(s.at(renews)); len(between) < 15 || slices.Max(between) >= 3*DefaultRecordDuration {
				t.Errorf("%d renewals, the furthest apart %v", len(between), slices.Max(between))
			}
		}},
		{"before it lapses, although members hang just when it is due and it is short", func(t *testing.T, s *stage) {
			const short = 8 * time.Second
			s.annotate(rollout.ControlPaused, "true")
			s.update("rev-2")
			defer run(t, s.config(func(c *Config) { c.RecordDuration, c.LockTTL = short, time.Hour }))()
			<-time.After(time.Minute)
			s.next(t, renews)
			<-time.After(short/3 - 50*ms)
			s.unreachable(0, true)
			s.unreachable(1, true)
			s.unreachable(2, true)
			s.change(func() {})
			s.next(t, renews)
			<-time.After(time.Minute)
			if between := gaps(s.at(renews)); len(between) == 0 || slices.Max(between) >= short {
				t.Errorf("%d renewals, the furthest apart %v", len(between), slices.Max(between))
			}
		}},
		{"not for half a minute after anything else was written", func(t *testing.T, s *stage) {
			s.startup = 6 * time.Second // Not in step with the renewals.
			defer run(t, s.config())()
			<-time.After(time.Minute)
			s.begin()
			s.update("rev-2")
			within(t, time.Minute, "the rollout", func() bool { return s.settled("rev-2") })
			<-time.After(time.Minute)
			last := time.Duration(0)
			s.noting.Lock()
			defer s.noting.Unlock()
			notes := slices.DeleteFunc(slices.Clone(s.notes), func(n note) bool { return n.what == "LeaseKeepAlive" })
			for i, n := range notes {
				switch n.what {
				case renews:
					// Leadership is moved only after a swap.
					if n.at-last < rarely && notes[i+1].what != "MoveLeader" {
						t.Errorf("renewed at %v, %v after another write", n.at, n.at-last)
					}
					last = n.at
				case claims, records, clears, tells:
					last = n.at
				}
			}
		}},
		{"not any more when the rollout is over", func(t *testing.T, s *stage) {
			defer run(t, s.config())()
			<-time.After(time.Minute)
			s.rolled(t, "rev-2")
			s.begin()
			<-time.After(time.Hour)
			if at := slices.Concat(s.at(renews), s.at(getLease)); len(at) > 0 {
				t.Errorf("at %v", at)
			}
		}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { tc.test(t, newStage(t, 3)) })
		})
	}
}

// stands checks for how long the record says that it stands.
func (s *stage) stands(t *testing.T, want time.Duration) {
	t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	if got := record.Parse(s.lease); got.Holder == "" || got.Duration != want {
		t.Errorf("the record is held by %q and stands for %v, want %v", got.Holder, got.Duration, want)
	}
}

// one returns the only instant of something, and fails the test if there is another.
func (s *stage) one(t *testing.T, what string) time.Duration {
	t.Helper()
	at := s.at(what)
	if len(at) != 1 {
		t.Fatalf("%s: at %v, want once", what, at)
	}
	return at[0]
}

// expectLook checks that something happens at the first look after it is due. A look takes some
// time.
func expectLook(t *testing.T, what string, got, due, cycle time.Duration) {
	t.Helper()
	if got < due || got >= due+cycle {
		t.Errorf("%s at %v, want at the first look after %v", what, got, due)
	}
}

// taken gives the record to another holder, which promises to renew it within so many seconds.
func (s *stage) taken(seconds int32) {
	s.change(func() {
		*s.lease.Spec.HolderIdentity, *s.lease.Spec.LeaseDurationSeconds = "somebody_else", seconds
		s.written()
	})
}

// ownersTime is what the owner of the lock is given to claim the record when a rollout begins, by those to whom etcd
// has been silent for long.
const ownersTime = DefaultFallbackAfter / 4

func TestPatience(t *testing.T) {
	// comes is how long a removed pod takes to be Ready again.
	const comes = 10 * time.Second
	for _, tc := range []struct {
		name string
		test func(t *testing.T, s *stage)
	}{
		{"where etcd has been silent for long, the fallback begins half a second after the first outdated pod is " +
			"seen, whatever else is seen",
			func(t *testing.T, s *stage) {
				s.etcd.Set(noSpace(true))
				defer run(t, s.config())()
				<-time.After(time.Minute)
				s.begin()
				s.update("rev-2")
				<-time.After(200 * ms)
				s.update("rev-3")
				<-time.After(time.Minute)
				expectTimes(t, "claims", s.at(claims), ownersTime)
				expectTimes(t, "the first removal", s.at("delete etcd-2"), ownersTime)
			}},
		{"and begins to count anew when there was none for a moment", func(t *testing.T, s *stage) {
			s.etcd.Set(noSpace(true))
			defer run(t, s.config())()
			<-time.After(time.Minute)
			s.begin()
			s.update("rev-2")
			<-time.After(200 * ms)
			s.update("rev-1")
			<-time.After(4800 * ms)
			s.update("rev-2")
			<-time.After(time.Minute)
			expectTimes(t, "the first removal", s.at("delete etcd-2"), 5*time.Second+ownersTime)
		}},
		{"the lock is not waited for by whoever has it", func(t *testing.T, s *stage) {
			defer run(t, s.config())()
			<-time.After(time.Minute)
			s.begin()
			s.update("rev-2")
			<-time.After(time.Minute)
			expectTimes(t, "the first removal", s.at("delete etcd-2"), 0)
		}},
		{"the pods that an earlier removal may still reach are changed at the same time", func(t *testing.T, s *stage) {
			s.change(func() { s.lease = nil })
			s.answering(slowly(time.Second, "fence etcd-0", "fence etcd-1", "fence etcd-2"))
			defer run(t, s.config())()
			<-time.After(time.Minute)
			s.begin()
			s.update("rev-2")
			<-time.After(time.Minute)
			expectTimes(t, "the changes", s.at("fence "), 0)
			expectTimes(t, "the first removal", s.at("delete etcd-2"), time.Second)
		}},
		{"a record that another holds is claimed by the clock when it has stood for what its holder promised, from " +
			"our first reading on", func(t *testing.T, s *stage) {
			s.etcd.Set(noSpace(true))
			defer run(t, s.config())()
			<-time.After(time.Minute)
			s.begin()
			s.taken(40)
			s.update("rev-2")
			<-time.After(2 * time.Minute)
			expectTimes(t, "claims", s.at(claims), ownersTime+40*time.Second)
		}},
		{"for our own duration where its holder promised nothing", func(t *testing.T, s *stage) {
			s.etcd.Set(noSpace(true))
			defer run(t, s.config(func(c *Config) { c.RecordDuration = 20 * time.Second }))()
			<-time.After(time.Minute)
			s.begin()
			s.taken(0)
			s.update("rev-2")
			<-time.After(2 * time.Minute)
			expectTimes(t, "claims", s.at(claims), ownersTime+20*time.Second)
		}},
		{"and anew from the first reading of a renewal on", func(t *testing.T, s *stage) {
			s.etcd.Set(noSpace(true))
			defer run(t, s.config())()
			<-time.After(time.Minute)
			s.begin()
			s.taken(15)
			s.update("rev-2")
			<-time.After(10200 * ms)
			s.renew()
			<-time.After(2 * time.Minute)
			expectTimes(t, "claims", s.at(claims), 10*time.Second+ownersTime+15*time.Second)
		}},
		{"our own pod goes when the sidecars of settled pods have had LineUp to line up", func(t *testing.T, s *stage) {
			defer run(t, s.config(as("etcd-0")))()
			<-time.After(time.Minute)
			s.update("rev-2")
			<-time.After(5 * time.Minute)
			expectLook(t, "the own pod's removal", s.one(t, "delete etcd-0")-s.one(t, "delete etcd-1")-comes,
				5*time.Second, resting)
		}},
		{"and not by its own sidecar when one of them does", func(t *testing.T, s *stage) {
			defer run(t, s.config(as("etcd-0")))()
			<-time.After(time.Minute)
			s.update("rev-2")
			within(t, time.Minute, "the last but one", func() bool { return len(s.at("delete etcd-1")) > 0 })
			<-time.After(comes + selfupdate.LineUp/2)
			s.begin()
			s.waits(selfupdate.Presence{Pod: "etcd-2", UID: string(s.pods[2].UID)})
			var locked atomic.Int32
			s.answering(func(_ context.Context, request string, send func() error) error {
				if request == releases {
					locked.Store(int32(s.queue()))
				}
				return send()
			})
			<-time.After(resting)
			expectLook(t, "the handover", s.one(t, "says handing over"), 0, resting)
			if locked.Load() != 1 {
				t.Error("the lock was given back before the record")
			}
			s.expect(t, "deleted etcd-2", "deleted etcd-1")
		}},
		{"whoever has handed over keeps its session, and lines up again a moment later",
			func(t *testing.T, s *stage) {
				defer run(t, s.config(as("etcd-0")))()
				<-time.After(time.Minute)
				s.update("rev-2")
				within(t, time.Minute, "the last but one", func() bool { return len(s.at("delete etcd-1")) > 0 })
				<-time.After(comes + selfupdate.LineUp/2)
				s.waits(selfupdate.Presence{Pod: "etcd-2", UID: string(s.pods[2].UID)})
				within(t, time.Minute, "the handover", func() bool { return len(s.at("says handing over")) > 0 })
				s.begin()
				<-time.After(lineUpAgain - 20*ms)
				if n := s.queue(); n != 0 {
					t.Errorf("%d wait for the lock, want nobody yet", n)
				}
				<-time.After(lineUpAgain + 20*ms)
				if n := s.queue(); n != 1 {
					t.Errorf("%d wait for the lock, want one again", n)
				}
				if begun, ended := s.at("LeaseGrant"), s.at("LeaseRevoke"); len(begun)+len(ended) > 0 {
					t.Errorf("sessions began at %v and ended at %v", begun, ended)
				}
			}},
		{"the next pod goes when the one before has been Ready for minReadySeconds", func(t *testing.T, s *stage) {
			s.change(func() { s.set.Spec.MinReadySeconds = 60 })
			defer run(t, s.config())()
			<-time.After(time.Minute)
			s.update("rev-2")
			<-time.After(10 * time.Minute)
			// That it is Ready is seen after the rest that follows the look before.
			expectLook(t, "the second removal", s.one(t, "delete etcd-1")-s.one(t, "delete etcd-2")-comes, time.Minute,
				resting+leastRest)
			expectLook(t, "the third removal", s.one(t, "delete etcd-0")-s.one(t, "delete etcd-1")-comes, time.Minute,
				resting+leastRest)
		}},
		{"the next pod goes at once when the one before is Ready and its sidecar has said that it is there",
			func(t *testing.T, s *stage) {
				defer run(t, s.config())()
				<-time.After(time.Minute)
				s.update("rev-2")
				<-time.After(5 * time.Minute)
				expectLook(t, "the second removal", s.one(t, "delete etcd-1")-s.one(t, "delete etcd-2")-comes, 0,
					leastRest)
				expectLook(t, "the third removal", s.one(t, "delete etcd-0")-s.one(t, "delete etcd-1")-comes, 0,
					leastRest)
			}},
		{"a moment after its sidecar has, where that is later", func(t *testing.T, s *stage) {
			s.late = 250 * ms
			defer run(t, s.config())()
			<-time.After(time.Minute)
			s.update("rev-2")
			<-time.After(5 * time.Minute)
			expectLook(t, "the second removal", s.one(t, "delete etcd-1")-s.one(t, "delete etcd-2")-comes, s.late,
				2*firstCheck)
		}},
		{"and two seconds after it became Ready where its sidecar has no Quorate", func(t *testing.T, s *stage) {
			s.mute = true
			defer run(t, s.config())()
			<-time.After(time.Minute)
			s.update("rev-2")
			<-time.After(5 * time.Minute)
			expectLook(t, "the second removal", s.one(t, "delete etcd-1")-s.one(t, "delete etcd-2")-comes,
				2*time.Second, leastRest+shortRest)
			expectLook(t, "the third removal", s.one(t, "delete etcd-0")-s.one(t, "delete etcd-1")-comes,
				2*time.Second, leastRest+shortRest)
		}},
		{"or where nobody can say which sidecars are there, because etcd takes no writes",
			func(t *testing.T, s *stage) {
				s.etcd.Set(noSpace(true))
				defer run(t, s.config())()
				<-time.After(time.Minute)
				s.update("rev-2")
				<-time.After(5 * time.Minute)
				expectLook(t, "the second removal", s.one(t, "delete etcd-1")-s.one(t, "delete etcd-2")-comes,
					2*time.Second, leastRest+shortRest)
			}},
		{"but no second pod goes where a sidecar crashes a second after its start, each time", func(t *testing.T,
			s *stage) {
			s.mute = true
			s.back = func(i int) {
				for restarts := range int32(5) {
					<-time.After(time.Second) // So long it takes a kubelet to notice.
					s.change(func() {
						s.setReady(s.pods[i], false)
						s.pods[i].Status.ContainerStatuses[0].Ready = true
						s.pods[i].Status.ContainerStatuses[1].State = corev1.ContainerState{Waiting: crashLoop()}
						s.pods[i].Status.ContainerStatuses[1].RestartCount = restarts
					})
					<-time.After(10 * time.Second << restarts)
					s.change(func() {
						s.setReady(s.pods[i], true)
						s.pods[i].Status.ContainerStatuses[1].RestartCount = restarts + 1
					})
				}
			}
			defer run(t, s.config())()
			<-time.After(time.Minute)
			s.update("rev-2")
			<-time.After(5 * time.Minute)
			s.expect(t, "deleted etcd-2")
		}},
		{"an updated pod is failing when it has not settled for settleTimeout", func(t *testing.T, s *stage) {
			s.stuck = true
			defer run(t, s.config())()
			<-time.After(time.Minute)
			s.update("rev-2")
			<-time.After(7 * time.Minute)
			seen := s.one(t, "delete etcd-2") + s.termination + DefaultProbeTimeout
			expectLook(t, "the hold", s.one(t, "says UpdatedFailing")-seen, rollout.DefaultPolicy().SettleTimeout,
				DefaultProbeTimeout+resting)
		}},
		{"with quorum lost, a process that runs goes when it has been so for settleTimeout, and no second one",
			func(t *testing.T, s *stage) {
				s.etcd.LoseQuorum()
				s.stuck = true
				defer run(t, s.config())()
				<-time.After(time.Minute)
				s.begin()
				s.change(func() {
					for _, p := range s.pods {
						s.setReady(p, false)
					}
				})
				s.update("rev-2")
				<-time.After(12 * time.Minute)
				expectLook(t, "the removal", s.one(t, "delete ")-ownersTime,
					rollout.DefaultPolicy().SettleTimeout, resting+time.Second)
			}},
		{"a change of leadership that does not come about is waited for until its evidence is too old, twice",
			func(t *testing.T, s *stage) {
				s.etcd.Set(func(_ *etcdtest.Cluster, ms []*etcdtest.Member) { ms[0].MoveLeaderIdle = true })
				defer run(t, s.config())()
				<-time.After(time.Minute)
				s.update("rev-2")
				<-time.After(5 * time.Minute)
				moved := s.at("MoveLeader")
				expectTimes(t, "transfers and what is between them", gaps(append(moved, s.one(t, "delete etcd-0"))),
					DefaultMaxEvidenceAge+firstPause, DefaultMaxEvidenceAge+firstPause)
			}},
		{"whoever has removed its own pod waits 30 s for its end, and lines up again", func(t *testing.T, s *stage) {
			defer run(t, s.config(as("etcd-0")))()
			<-time.After(time.Minute)
			s.update("rev-2")
			within(t, 5*time.Minute, "the end", func() bool { return len(s.at("delete etcd-0")) > 0 })
			s.begin()
			<-time.After(time.Minute)
			if at := s.at("LeaseGrant"); len(at) != 1 || at[0] <= ownPodGoes-time.Second || at[0] > ownPodGoes {
				t.Errorf("it lined up at %v, want %v after the removal", at, ownPodGoes)
			}
		}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { tc.test(t, newStage(t, 3)) })
		})
	}
}

func TestARemovalEndsBeforeItsEvidenceIsTooOld(t *testing.T) {
	const age = DefaultMaxEvidenceAge
	both := func(first, second answerFunc) answerFunc {
		return func(ctx context.Context, request string, send func() error) error {
			return first(ctx, request, func() error { return second(ctx, request, send) })
		}
	}
	evict := func(c *Config) { c.Policy = rollout.DefaultPolicy(); c.Policy.Removal = rollout.RemoveByEviction }
	story := []string{records, "delete etcd-2", "evict etcd-2", "fence etcd-2", clears}
	for _, tc := range []struct {
		name   string
		answer answerFunc
		change func(*Config)
		// order is what happens first, and at is when the last of it does, counted from the
		// beginning of the observation.
		order []string
		at    time.Duration
		// removed is what became of it.
		removed string
	}{
		{"one that hangs is given up at that age, ruled out, and then cleared", hanging("delete etcd-2"), nil,
			[]string{records, "delete etcd-2", "fence etcd-2", clears}, age, ""},
		{"the time that the observation took counts", both(slowly(3*time.Second, listPods), hanging("delete etcd-2")),
			nil, []string{records, "delete etcd-2", "fence etcd-2", clears}, age, ""},
		{"the time that the swap of its intent took counts",
			both(slowly(4*time.Second, records), hanging("delete etcd-2")), nil,
			[]string{records, "delete etcd-2", "fence etcd-2", clears}, age, ""},
		{"it is sent after a swap that ends just before that age", slowly(age-ms, records), nil,
			[]string{records, "delete etcd-2"}, age - ms, "deleted etcd-2"},
		{"it is not sent after a swap that ends at that age, by a coordinator that was paused, say",
			slowly(age, records), nil, []string{records, clears}, age, ""},
		{"an eviction is not sent by a coordinator that was paused after the swap", slowly(age+ms, readPod), evict,
			[]string{records, "evict etcd-2", "fence etcd-2", clears}, age + ms, ""},
		{"an eviction is sent just before that age", slowly(age-ms, readPod), evict, []string{records, "evict etcd-2"},
			age - ms, "deleted etcd-2"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newStage(t, 3)
				changes := []func(*Config){}
				if tc.change != nil {
					changes = append(changes, tc.change)
				}
				defer run(t, s.config(changes...))()
				<-time.After(time.Minute)
				s.begin()
				// The look before the claim is not disturbed.
				s.answering(s.after(claims, tc.answer))
				s.update("rev-2")
				last := tc.order[len(tc.order)-1]
				within(t, time.Minute, last, func() bool { return len(s.at(last)) > 0 })
				happened := s.order(story...)
				expectAll(t, "what happened first", happened[:min(len(tc.order), len(happened))], tc.order...)
				if got := s.at(last)[0]; got != tc.at {
					t.Errorf("%s at %v, want %v", last, got, tc.at)
				}
				if got := s.story(); got != tc.removed {
					t.Errorf("removed: %q, want %q", got, tc.removed)
				}
			})
		})
	}
}

// A decision that is too old by the time it could be carried out is a fault with a name.
func TestEvidenceThatIsAlwaysTooOld(t *testing.T) {
	const called = "what was decided was dropped, because its evidence had grown too old"
	slowAPI := func(each time.Duration) answerFunc {
		return slowly(each, getSet, listPods, readPod, getLease, records, clears, claims, renews, tells)
	}
	for _, tc := range []struct {
		name   string
		answer answerFunc
		peer   *selfupdate.Presence
		// aside is true if it lets another try.
		aside bool
	}{
		{"is told in log and status, and nothing is removed", slowAPI(2 * time.Second), nil, false},
		{"a fit sidecar that waits is let try when it is our own looks that take so long", slowAPI(2 * time.Second),
			&selfupdate.Presence{Pod: "etcd-1", UID: "u"}, true},
		{"not an unfit one", slowAPI(2 * time.Second),
			&selfupdate.Presence{Pod: "etcd-1", UID: "u", Unfit: "forbidden"}, false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newStage(t, 3)
				registry := prometheus.NewRegistry()
				defer run(t, s.config(as("etcd-0"), telling(s.kube, registry)))()
				<-time.After(time.Minute)
				if tc.peer != nil {
					s.waits(*tc.peer)
				}
				s.answering(tc.answer)
				s.begin()
				s.update("rev-2")
				if tc.aside {
					within(t, 10*time.Minute, "that it steps aside",
						func() bool { return len(s.at("says unfit: "+called)) == 1 })
					if n := len(s.at(records)); n != unfitAfter {
						t.Errorf("after %d intents, want %d", n, unfitAfter)
					}
				} else {
					<-time.After(10 * time.Minute)
					if at := s.at("says unfit"); len(at) > 0 {
						t.Errorf("it stepped aside at %v", at)
					}
					if n := metric(t, registry, "quorate_consecutive_failures", report.AtEvidence); n < unfitAfter {
						t.Errorf("%v failures in a row", n)
					}
					if r, _ := s.published(t); len(r.Faults) != 1 || !strings.HasPrefix(r.Faults[0], called) {
						t.Errorf("status: %q", r.Faults)
					}
					if !s.toldOf("Warning etcd DecisionDropped") {
						t.Errorf("events:\n%s", strings.Join(s.told, "\n"))
					}
				}
				s.expect(t)
				if at := s.at("says " + called); len(at) == 0 || len(at) > 11 {
					t.Errorf("the log says so %d times", len(at))
				}
				s.answering(nil)
				s.etcd.Delete(presence + peer)
				s.etcd.Delete(lock + peer)
				within(t, 10*time.Minute, "the rollout", func() bool { return s.settled("rev-2") })
				<-time.After(time.Minute)
				if n := metric(t, registry, "quorate_consecutive_failures", report.AtEvidence); n != 0 {
					t.Errorf("%v failures in a row after it worked", n)
				}
			})
		})
	}
}

// crashes lets the kubelet say that an etcd container is in a crash loop.
func (s *stage) crashes(ordinal int) {
	s.change(func() {
		s.setReady(s.pods[ordinal], false)
		c := &s.pods[ordinal].Status.ContainerStatuses[0]
		c.State.Running, c.State.Waiting = nil, crashLoop()
	})
}

// Members that swallow every request cost a look two probe timeouts at most; with an API server that
// takes as long as apiRoom says for each request, there is still time.
func TestThereIsRoomForARemovalBesideAMemberThatHangs(t *testing.T) {
	for _, tc := range []struct {
		name, removal string
		scene         func(s *stage)
	}{
		{"of a pod that is dead", "delete etcd-0", func(s *stage) {
			s.unreachable(0, true)
			s.refuse(0)
			s.crashes(0)
		}},
		{"of a pod that is dead, without quorum", "delete etcd-4", func(s *stage) {
			s.losesQuorum(true, 0, 1, 2, 4)
			s.refuse(0, 1, 2, 4)
		}},
		{"of a pod that is well, by an eviction", "evict etcd-4", func(s *stage) { s.unreachable(0, true) }},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newStage(t, 5)
				policy := rollout.DefaultPolicy()
				policy.Removal, policy.MaxUnavailable.Number = rollout.RemoveByEviction, 2
				defer run(t, s.config(func(c *Config) { c.Policy = policy }))()
				<-time.After(time.Minute)
				tc.scene(s)
				s.answering(slowly(280*ms,
					getSet, listPods, readPod, getLease, asksBudget, records, clears, claims, renews,
					tells, tc.removal))
				s.update("rev-2")
				within(t, time.Minute, "a removal", func() bool { return s.story() != "" })
				if len(s.at(tc.removal)) != 1 || len(s.at(records)) != 1 {
					t.Errorf("%s at %v, intents at %v", tc.removal, s.at(tc.removal), s.at(records))
				}
			})
		})
	}
}

// Another sidecar would not be faster if most of the time goes into members that hang.
func TestEvidenceThatAgesBecauseMembersHangIsNoReasonToStepAside(t *testing.T) {
	for _, tc := range []struct {
		name string
		// takes is how long an intent takes to be recorded, after a look of more than three seconds.
		takes time.Duration
		aside bool
	}{
		{"while they take most of the time", 2950 * ms, false},
		{"but while the API server does", 5 * time.Second, true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newStage(t, 3)
				defer run(t, s.config(as("etcd-0")))()
				<-time.After(time.Minute)
				s.losesQuorum(true, 1, 2)
				s.refuse(1, 2)
				<-time.After(time.Minute)
				intents, lists := slowly(tc.takes, records), slowly(1200*ms, "MemberList")
				s.answering(func(ctx context.Context, request string, send func() error) error {
					if request == "MemberList" { // A member is probed after the list if it is new there.
						s.etcd.Set(func(_ *etcdtest.Cluster, members []*etcdtest.Member) { members[1].ID += 0x100 })
					}
					return intents(ctx, request, func() error { return lists(ctx, request, send) })
				})
				s.begin()
				s.update("rev-2")
				within(t, 30*time.Minute, "enough intents", func() bool { return len(s.at(records)) > unfitAfter+2 })
				if at := s.at("says the record is given back"); (len(at) > 0) != tc.aside {
					t.Errorf("it stepped aside at %v", at)
				}
				s.expect(t)
			})
		})
	}
}

// A rollout that goes on without the lock says so, by whatever right the record was claimed.
func TestTheReportSaysThatThereIsNoLock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStage(t, 3)
		s.waiting()
		defer run(t, s.config(as("etcd-0")))()
		fallback := func() bool { r, _ := s.published(t); return r.Fallback }
		<-time.After(time.Minute)
		if fallback() {
			t.Error("with the lock the report says that there is none")
		}
		s.losesQuorum(false, 1)
		within(t, time.Minute, "that the report says so", fallback)
		s.etcd.RegainQuorum()
		within(t, time.Minute, "that the report says that there is one again", func() bool { return !fallback() })
		if n := len(s.at(claims)); n > 2 {
			t.Errorf("%d claims", n)
		}
	})
}

// A watch that the API server refuses is a fault like any other.
func TestAWatchThatIsRefusedIsTold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStage(t, 3)
		s.waiting()
		var allowed atomic.Bool
		registry := prometheus.NewRegistry()
		defer run(t, s.config(telling(s.kube, registry), func(c *Config) {
			c.Pods = unwatchedPods{c.Pods, &allowed}
		}))()
		<-time.After(time.Minute)
		if r, _ := s.published(t); len(r.Faults) != 1 ||
			!strings.HasPrefix(r.Faults[0], "the pods cannot be watched: ") {
			t.Errorf("status: %q", r.Faults)
		}
		// Fewer from failure to failure.
		if n := metric(t, registry, "quorate_consecutive_failures", report.AtWatchPods); n < 6 {
			t.Errorf("%v failures in a row in a minute", n)
		}
		allowed.Store(true)
		<-time.After(time.Minute)
		if r, _ := s.published(t); len(r.Faults) != 0 {
			t.Errorf("status after it worked: %q", r.Faults)
		}
		if n := metric(t, registry, "quorate_consecutive_failures", report.AtWatchPods); n != 0 {
			t.Errorf("%v failures in a row after it worked", n)
		}
	})
}

// unwatchedPods may not be watched until that is allowed.
type unwatchedPods struct {
	workload.Pods
	allowed *atomic.Bool
}

func (p unwatchedPods) Watch(ctx context.Context, o metav1.ListOptions) (watch.Interface, error) {
	if !p.allowed.Load() {
		return nil, apierrors.NewForbidden(corev1.Resource("pods"), "", errors.New("not yours"))
	}
	return p.Pods.Watch(ctx, o)
}

// TestTheEnd: whatever is under way, a coordinator that is asked to stop first gives back the
// record, then the lock, and then ends, all within its time.
func TestTheEnd(t *testing.T) {
	everything := []string{getSet, listPods, readPod, getLease, claims, records, clears, renews, releases,
		"delete etcd-2", "fence etcd-2"}
	etcd := []string{"Txn", "Range", "Put", "Status", "MemberList", "LeaseGrant", "LeaseRevoke",
		"LeaseTimeToLive", "MoveLeader"}
	rolling := func(s *stage) { s.update("rev-2") }
	// In a rollout the end comes while the first pod is on its way out and its member serves.
	for _, tc := range []struct {
		name string
		// scene is what happens after a minute of idling, and when is how long before the end.
		scene func(s *stage)
		when  time.Duration
		// at the end this hangs.
		hangs []string
		takes time.Duration
		// released is true if the record has no holder in the end, and unlocked if the lock has
		// none.
		released, unlocked bool
	}{
		{"while nothing is to be done", func(*stage) {}, 0, nil, 0, true, true},
		{"in a rollout", rolling, time.Second, nil, 0, true, true},
		{"while it is paused", func(s *stage) { s.annotate(rollout.ControlPaused, "true"); rolling(s) },
			7 * time.Second, nil, 0, true, true},
		{"while the Kubernetes API hangs", rolling, time.Second, everything, releaseTimeout / 4, false, true},
		{"while etcd hangs", rolling, time.Second, etcd, 3 * releaseTimeout / 4, true, false},
		{"while all hang", rolling, time.Second, slices.Concat(everything, etcd), releaseTimeout, false, false},
		{"while all hang and nothing is to be done", func(*stage) {}, 0, slices.Concat(everything, etcd),
			3 * releaseTimeout / 4, true, false},
		{"while the record's release hangs", rolling, time.Second, []string{releases}, releaseTimeout / 4, false, true},
		{"while the lock's release hangs", rolling, time.Second, []string{"Txn"}, releaseTimeout / 2, true, true},
		{"while its lease cannot be revoked", rolling, time.Second, []string{"LeaseRevoke"},
			releaseTimeout / 4, true, true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newStage(t, 3)
				stop := run(t, s.config(as("etcd-0")))
				<-time.After(time.Minute)
				tc.scene(s)
				<-time.After(tc.when)
				s.answering(hanging(tc.hangs...))
				s.begin()
				stop()
				if took := time.Since(s.zero); took != tc.takes {
					t.Errorf("it took %v, want %v", took, tc.takes)
				}
				want := []string{releases, "Txn", "LeaseRevoke"}
				if s.lease.Spec.RenewTime == nil {
					want = want[1:] // It was never claimed.
				}
				expectAll(t, "in this order", s.order(want...), want...)
				if holder := *s.lease.Spec.HolderIdentity; (holder == "") != tc.released {
					t.Errorf("the record's holder is %q", holder)
				}
				if n := holders(s.kube); (n == 0) != tc.unlocked {
					t.Errorf("%d keys of the lock", n)
				}
			})
		})
	}
}

// Whatever hangs when the end comes, the process ends within its time.
func TestTheEndDoesNotWaitForWhatHangs(t *testing.T) {
	for _, tc := range []struct{ request, since string }{
		{getSet, ""}, {listPods, ""}, {"LeaseGrant", ""}, {"Put", ""}, {"MemberList", ""}, {"Range", ""},
		{"Status", ""}, {"Txn", ""},
		{getLease, ""}, {claims, ""}, {getSet, claims}, {listPods, claims}, {getLease, claims}, {"Range", claims},
		{"MemberList", claims}, {"Txn", claims},
		{records, ""}, {"delete etcd-2", ""}, {clears, ""}, {renews, ""}, {"MoveLeader", ""},
	} {
		for _, fallback := range []bool{false, true} {
			name := tc.request
			if tc.since != "" {
				name += " after the claim"
			}
			if fallback {
				name += ", in the fallback"
			}
			t.Run(name, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					s := newStage(t, 3)
					s.etcd.Set(noSpace(fallback))
					s.update("rev-2")
					answer := hanging(tc.request)
					if tc.since != "" {
						answer = s.after(tc.since, answer)
					}
					s.answering(answer)
					stop := run(t, s.config(as("etcd-0")))
					<-time.After(100 * ms)
					for range 60 {
						<-time.After(time.Second) // It hangs, or is waited for.
						if at := s.at(tc.request); len(at) > 0 && at[len(at)-1] > time.Since(s.zero)-2*time.Second {
							break
						}
					}
					begin := time.Now()
					stop()
					if took := time.Since(begin); took > releaseTimeout {
						t.Errorf("it took %v", took)
					}
				})
			})
		}
	}
}

// hangingEvents are never written.
type hangingEvents struct{}

func (hangingEvents) Create(ctx context.Context, _ *corev1.Event, _ metav1.CreateOptions) (*corev1.Event, error) {
	<-ctx.Done()
	return nil, ctx.Err()
}

func (hangingEvents) Patch(ctx context.Context, _ string, _ types.PatchType, _ []byte, _ metav1.PatchOptions,
	_ ...string) (*corev1.Event, error) {
	<-ctx.Done()
	return nil, ctx.Err()
}

func TestTheEndWaitsNeitherForEventsNorForDialBeyondItsTime(t *testing.T) {
	everything := []string{getSet, listPods, readPod, getLease, claims, records, clears, renews, releases,
		"delete etcd-2", "fence etcd-2",
		"Txn", "Range", "Put", "Status", "MemberList", "LeaseGrant", "LeaseRevoke", "LeaseTimeToLive", "MoveLeader"}
	for _, tc := range []struct {
		name string
		test func(t *testing.T, s *stage, dialling *atomic.Bool)
	}{
		{"while the API server and etcd hang, and events are still to be written",
			func(_ *testing.T, s *stage, _ *atomic.Bool) {
				s.update("rev-2")
				<-time.After(time.Second)
				s.answering(hanging(everything...))
			}},
		{"while every Dial waits for a token", func(_ *testing.T, s *stage, dialling *atomic.Bool) {
			dialling.Store(true)
			s.update("rev-2")
			<-time.After(2500 * ms)
		}},
		{"while every Dial waits for a token that nobody can issue",
			func(_ *testing.T, s *stage, dialling *atomic.Bool) {
				dialling.Store(true)
				s.losesQuorum(true, 1, 2)
				<-time.After(time.Minute)
				s.update("rev-2")
				<-time.After(2500 * ms)
			}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newStage(t, 3)
				var dialling atomic.Bool
				stop := run(t, s.config(telling(s.kube, prometheus.NewRegistry()), func(c *Config) {
					c.Events = hangingEvents{}
					c.Dial = func(endpoints []string) (*clientv3.Client, error) {
						if dialling.Load() {
							<-time.After(DefaultProbeTimeout)
							return nil, errors.New("no token")
						}
						return s.etcd.Dial(endpoints)
					}
				}))
				<-time.After(time.Minute)
				tc.test(t, s, &dialling)
				begin := time.Now()
				stop()
				if took := time.Since(begin); took > releaseTimeout {
					t.Errorf("it took %v", took)
				}
				<-time.After(DefaultProbeTimeout) // Until then nobody can end the Dial.
			})
		})
	}
}

// A claim that is on its way when the end comes may take effect; then the record is given back.
func TestAClaimUnderWayAtTheEndIsGivenBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStage(t, 3)
		stop := run(t, s.config(as("etcd-0")))
		<-time.After(time.Minute)
		s.answering(func(ctx context.Context, request string, send func() error) error {
			err := send()
			if request == claims { // It is carried out at once, and the answer takes a while.
				wait(ctx, 100*ms, nil)
				err = errors.Join(err, ctx.Err())
			}
			return err
		})
		s.begin()
		s.update("rev-2")
		<-time.After(50 * ms)
		stop()
		if n := len(s.at(claims)); n != 1 {
			t.Errorf("%d claims", n)
		}
		if r := record.Parse(s.lease); r.Holder != "" || r.Epoch != 8 {
			t.Errorf("the record: %+v", r)
		}
	})
}

func TestARemovalUnderWayAtTheEnd(t *testing.T) {
	for _, tc := range []struct {
		name   string
		answer answerFunc
		// removed is what became of it, intent what the record says of it.
		removed string
		intent  record.Operation
	}{
		{"stays on record when nobody knows what became of it", hanging("delete etcd-2"), "", record.Delete},
		{"is not sent when the end comes while it is put on record, and is taken off", slowly(1100*ms, records),
			"", record.None},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newStage(t, 3)
				stop := run(t, s.config())
				<-time.After(time.Minute)
				s.answering(tc.answer)
				s.update("rev-2")
				<-time.After(time.Second)
				stop()
				if got := s.story(); got != tc.removed {
					t.Errorf("removed %q", got)
				}
				if l := record.Parse(s.lease); l.Holder != "" || l.Intent.Operation != tc.intent {
					t.Errorf("the record: %+v", l)
				}
			})
		})
	}
}

// A request for the lock has a deadline of its own.
func TestASidecarDoesNotWaitForARequestForTheLockThatIsLost(t *testing.T) {
	for _, carriedOut := range []bool{false, true} {
		t.Run(fmt.Sprint("it took effect all the same: ", carriedOut), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newStage(t, 3)
				s.answering(func(ctx context.Context, request string, send func() error) error {
					if request != "Txn" || len(s.at("Txn")) > 1 {
						return send()
					}
					if carriedOut {
						_ = send()
					}
					<-ctx.Done()
					return ctx.Err()
				})
				stop := run(t, s.config())
				<-time.After(DefaultProbeTimeout + time.Second)
				if n := len(s.at("LeaseRevoke")); n != 0 {
					t.Errorf("%d sessions have ended", n)
				}
				if n := holders(s.kube); n != 1 {
					t.Errorf("%d keys of the lock, want our own", n)
				}
				stop()
			})
		})
	}
}

// losesQuorum crashes two of three members. They then refuse connections or swallow requests.
func (s *stage) losesQuorum(hang bool, lost ...int) {
	s.etcd.LoseQuorum()
	for i := range s.pods {
		s.change(func() { s.setReady(s.pods[i], false) })
	}
	for _, i := range lost {
		s.crashes(i)
		if hang {
			s.unreachable(i, true)
		} else {
			s.etcd.Stop(i)
		}
	}
}

// Quorum is lost when two of three members crash, at whatever moment before the template changes
// that cures them: the first removal follows the change within FallbackAfter, two probe timeouts
// and a second, or within FallbackAfter and a second where the lost members refuse connections,
// whatever the session of the lock's last owner says. (A sidecar in the queue watches the one
// before it. A bubble cannot play that, but the scenarios do.)
func TestTheCureComesInTimeWheneverQuorumWasLost(t *testing.T) {
	const refusing = DefaultFallbackAfter + time.Second
	const hanging = refusing + 2*DefaultProbeTimeout
	moments := []time.Duration{time.Minute, DefaultLockTTL, 6 * time.Second, 3 * time.Second, time.Second, 0}
	test := func(before time.Duration, hang bool, unnoticed time.Duration, lost []int) func(*testing.T) {
		return func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newStage(t, 3)
				defer run(t, s.config(as("etcd-1")))()
				<-time.After(time.Minute)
				s.losesQuorum(hang, lost...)
				s.etcd.LoseQuorumUnnoticed(unnoticed)
				<-time.After(before)
				s.begin()
				s.update("rev-2")
				within(t, time.Minute, "a removal", func() bool { return len(s.at("delete ")) > 0 })
				bound := refusing
				if hang {
					bound = hanging
				}
				if first := s.at("delete ")[0]; first > bound {
					t.Errorf("the first removal came %v after the change, want %v at most", first, bound)
				} else {
					t.Logf("the first removal came %v after the change", first)
				}
			})
		}
	}
	for _, before := range moments {
		for how, hang := range map[string]bool{"refuse connections": false, "swallow requests": true} {
			for _, unnoticed := range []time.Duration{0, 200 * ms, 1100 * ms, 1900 * ms} {
				if unnoticed > 0 && before > time.Second {
					continue // The leader has noticed before the change.
				}
				for _, lost := range [][]int{{1, 2}, {0, 1}} {
					t.Run(fmt.Sprintf("%v before the change, members %v %s, and the leader renews leases for %v more",
						before, lost, how, unnoticed), test(before, hang, unnoticed, lost))
				}
			}
		}
	}
}

// A sidecar that could not go on is the fallback coordinator as well when quorum is lost, but only after the
// record has been free for one duration longer. So those that can go on come first.
func TestWhoAbstainsIsTheLastFallback(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStage(t, 3)
		defer run(t, s.config(as("etcd-0")))()
		<-time.After(time.Minute)
		s.waits(fit("etcd-1"))
		s.answering(failing(apierrors.NewForbidden(leases, "quorate-etcd", nil), claims))
		s.update("rev-2")
		within(t, time.Minute, "that it steps aside", func() bool { return len(s.at("says unfit")) == 1 })
		s.answering(nil)
		s.losesQuorum(false, 1, 2)
		s.begin()
		<-time.After(time.Minute)
		expectLook(t, "the first removal", s.at("delete ")[0], DefaultRecordDuration, DefaultRecordDuration)
	})
}

// With quorum lost, a live process is left alone for long, and the next fallback coordinator would begin to
// count anew. So a member that cannot be seen is then no reason to let another sidecar look.
func TestAFallbackIsPatientBesideAMemberThatItCannotSee(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStage(t, 3)
		defer run(t, s.config(as("etcd-1")))()
		<-time.After(time.Minute)
		s.etcd.LoseQuorum()
		s.change(func() {
			s.setReady(s.pods[1], false)
			s.setReady(s.pods[2], false)
		})
		s.unreachable(0, true) // Its node is gone, and nobody has noticed.
		<-time.After(time.Minute)
		s.begin()
		s.update("rev-2")
		within(t, rollout.DefaultPolicy().SettleTimeout+30*time.Second, "a removal",
			func() bool { return s.story() != "" })
		s.expect(t, "deleted etcd-2")
		if at := s.at("says the record is given back"); len(at) > 0 {
			t.Errorf("the record was given back at %v", at)
		}
	})
}

// A fallback coordinator that sees only its own member is cut off, and lets another one look.
func TestAFallbackThatIsCutOffGivesTheRecordBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStage(t, 3)
		defer run(t, s.config(as("etcd-1")))()
		<-time.After(time.Minute)
		s.etcd.LoseQuorum()
		s.unreachable(0, true)
		s.unreachable(2, true)
		<-time.After(time.Minute)
		s.begin()
		s.update("rev-2")
		<-time.After(time.Minute)
		s.expect(t)
		if len(s.at("says CutOff")) == 0 || len(s.at("says the record is given back")) == 0 {
			t.Errorf("holds by CutOff at %v, record given back at %v", s.at("says CutOff"),
				s.at("says the record is given back"))
		}
	})
}

// A sidecar whose own member crashes loses the lock, and becomes the fallback coordinator a moment before another one
// has the lock. Its own pod is then the first to go. It leaves that to the other one, but not for ever.
func TestAFallbackWhoseOwnPodIsNextWaitsForTheLockOfAnother(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStage(t, 3)
		defer run(t, s.config(as("etcd-1")))()
		<-time.After(time.Minute)
		s.unreachable(1, true)
		s.refuse(1)
		s.crashes(1)
		s.begin()
		s.update("rev-2")
		within(t, time.Minute, "that the first pod goes", func() bool { return len(s.at("delete ")) > 0 })
		if waited := s.at("delete etcd-1")[0] - s.at(claims)[0]; waited < selfupdate.LineUp {
			t.Errorf("it removed its own pod %v after its claim", waited)
		}
	})
}

// A fallback coordinator that cannot go on gives the record back, for another to try, and pauses.
func TestAFallbackThatFailsGivesTheRecordBack(t *testing.T) {
	for _, tc := range []struct {
		name string
		err  error
		// takes is how long it tries.
		takes time.Duration
	}{
		{"at once when it is not allowed", forbiddenPod(), 0},
		{"at the fifth failure in a row", apierrors.NewInternalError(errors.New("failed calling webhook")), 7500 * ms},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newStage(t, 3)
				s.etcd.Set(noSpace(true))
				defer run(t, s.config(as("etcd-0")))()
				<-time.After(time.Minute)
				s.answering(func(_ context.Context, request string, send func() error) error {
					if strings.HasPrefix(request, "delete ") || strings.HasPrefix(request, "evict ") {
						return tc.err
					}
					return send()
				})
				s.begin()
				s.update("rev-2")
				within(t, time.Minute, "a claim", func() bool { return len(s.at(claims)) > 0 })
				<-time.After(time.Minute)
				took := s.at(releases)[0] - s.at(claims)[0]
				if took != tc.takes {
					t.Errorf("it gave the record back after %v, want %v", took, tc.takes)
				}
				if again := s.at(claims)[1] - s.at(releases)[0]; again != DefaultRecordDuration+ownersTime {
					t.Errorf("it claimed it again after %v, want %v", again, DefaultRecordDuration+ownersTime)
				}
				s.answering(nil)
				within(t, 2*time.Minute, "the rollout", func() bool { return s.settled("rev-2") })
			})
		})
	}
}
