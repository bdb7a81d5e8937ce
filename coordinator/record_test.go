package coordinator

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sirupsen/logrus"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/quorate/quorate/internal/etcdtest"
	"github.com/quorate/quorate/internal/record"
)

// as runs the coordinator in a member's pod.
func as(pod string) func(*Config) { return func(c *Config) { c.PodName = pod } }

// held gives the record to somebody else.
func (k *kube) held(annotations map[string]string) {
	holder, epoch, seconds := "somebody_else", int32(7), int32(15)
	k.version++
	k.lease = &coordinationv1.Lease{
		ObjectMeta: metav1.ObjectMeta{Name: "quorate-etcd", ResourceVersion: fmt.Sprint(k.version),
			Annotations: annotations},
		Spec: coordinationv1.LeaseSpec{HolderIdentity: &holder, LeaseTransitions: &epoch,
			LeaseDurationSeconds: &seconds},
	}
}

// renew lets the other holder show that it lives.
func (k *kube) renew() {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.version++
	k.lease.ResourceVersion = fmt.Sprint(k.version)
}

func (k *kube) annotate(key, value string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.lease.Annotations == nil {
		k.lease.Annotations = map[string]string{}
	}
	k.lease.Annotations[key] = value
	k.version++
	k.lease.ResourceVersion = fmt.Sprint(k.version)
	k.feed.tell(k)
}

// seen returns a copy of what the fake noted.
func seen[T any](k *kube, what *[]T) []T {
	k.mu.Lock()
	defer k.mu.Unlock()
	return slices.Clone(*what)
}

func (k *kube) leaseWrites() int {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.writes
}

func expectAll(t *testing.T, what string, got []string, want ...string) {
	t.Helper()
	if !slices.Equal(got, want) {
		t.Errorf("%s:\n got %q\nwant %q", what, got, want)
	}
}

// sortedFenced are the pods that were changed. They are changed at once, so their order means nothing.
func (k *kube) sortedFenced() []string { return slices.Sorted(slices.Values(seen(k, &k.fenced))) }

func noSpace(on bool) func(*etcdtest.Cluster, []*etcdtest.Member) {
	return func(_ *etcdtest.Cluster, ms []*etcdtest.Member) {
		for _, m := range ms {
			if m.GrantErr, m.PutErr = nil, nil; on {
				m.GrantErr, m.PutErr = rpctypes.ErrGRPCNoSpace, rpctypes.ErrGRPCNoSpace
			}
		}
	}
}

func TestTheRecord(t *testing.T) {
	for _, tc := range []struct {
		name string
		test func(t *testing.T)
	}{
		{"is claimed when a rollout begins and given back when it ends", func(t *testing.T) {
			k := newKube(t, 3, etcdtest.StartInMemory(t, 3))
			k.held(nil)
			*k.lease.Spec.HolderIdentity = ""
			defer run(t, config(k))()
			<-time.After(time.Minute)
			expectAll(t, "holders while idle", seen(k, &k.holders))
			k.update("rev-2")
			within(t, time.Minute, "the rollout", func() bool { return k.settled("rev-2") })
			<-time.After(time.Minute)
			expectAll(t, "holders", seen(k, &k.holders), "outside 8", " 8")
			writes := k.leaseWrites()
			<-time.After(time.Hour)
			if n := k.leaseWrites() - writes; n != 0 {
				t.Errorf("%d writes of the Lease while idle", n)
			}
		}},
		{"says that a rollout is under way until every pod has settled, whoever sees that", func(t *testing.T) {
			k := newKube(t, 3, etcdtest.StartInMemory(t, 3))
			k.held(map[string]string{record.SchemaAnnotation: "1", record.IntentAnnotation: `{"operation":"none"}`,
				record.RolloutAnnotation: "under way"})
			*k.lease.Spec.HolderIdentity = "" // Its coordinator was told to stop before the last pod had settled.
			defer run(t, config(k))()
			<-time.After(time.Minute)
			expectAll(t, "holders", seen(k, &k.holders), "outside 8", " 8")
			if said := k.lease.Annotations[record.RolloutAnnotation]; said != "none" {
				t.Errorf("the record says: %q", said)
			}
		}},
		{"is renewed while a rollout waits", func(t *testing.T) {
			k := newKube(t, 3, etcdtest.StartInMemory(t, 3))
			k.held(map[string]string{"quorate.dev/paused": "true"})
			k.update("rev-2")
			defer run(t, config(k))()
			<-time.After(time.Minute)
			before := k.leaseWrites()
			<-time.After(time.Minute)
			if n := k.leaseWrites() - before; n < 1 || n > 3 {
				t.Errorf("%d renewals a minute, want one in twice %v", n, DefaultRecordDuration)
			}
			k.expect(t)
			k.annotate("quorate.dev/paused", "false")
			within(t, time.Minute, "the rollout", func() bool { return k.settled("rev-2") })
		}},
		{"holds below a partition until it is lowered", func(t *testing.T) {
			k := newKube(t, 3, etcdtest.StartInMemory(t, 3))
			k.held(map[string]string{"quorate.dev/partition": "2"})
			k.update("rev-2")
			defer run(t, config(k))()
			<-time.After(10 * time.Minute)
			k.expect(t, "deleted etcd-2")
			k.annotate("quorate.dev/partition", "0")
			within(t, time.Minute, "the rollout", func() bool { return k.settled("rev-2") })
		}},
		{"that names a removal has it ruled out before anything else", func(t *testing.T) {
			k := newKube(t, 3, etcdtest.StartInMemory(t, 3))
			p := k.pods[1]
			k.held(map[string]string{
				"example.com/foreign":   "stays",
				record.SchemaAnnotation: "1",
				record.IntentAnnotation: fmt.Sprintf(
					`{"operation":"delete","pod":"etcd-1","uid":%q,"resourceVersion":%q,"epoch":7}`, p.UID,
					p.ResourceVersion),
			})
			stop := run(t, config(k))
			within(t, time.Minute, "the fence", func() bool { return len(seen(k, &k.fenced)) > 0 })
			k.expect(t)
			if err := (kubePods{k}).Delete(t.Context(), "etcd-1",
				metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &p.UID,
					ResourceVersion: &p.ResourceVersion}}); !apierrors.IsConflict(err) {
				t.Errorf("the old removal is answered %v", err)
			}
			k.update("rev-2")
			within(t, time.Minute, "the rollout", func() bool { return k.settled("rev-2") })
			stop()
			expectAll(t, "fenced", seen(k, &k.fenced), "etcd-1")
			if k.lease.Annotations["example.com/foreign"] != "stays" ||
				record.Parse(k.lease).Intent.Operation != record.None {
				t.Errorf("annotations %v", k.lease.Annotations)
			}
		}},
		{"that has to be created fences every pod, and once more when it is deleted", func(t *testing.T) {
			k := newKube(t, 3, etcdtest.StartInMemory(t, 3))
			k.update("rev-2")
			defer run(t, config(k))()
			within(t, time.Minute, "a removal", func() bool { return k.story() != "" })
			expectAll(t, "fenced", k.sortedFenced(), "etcd-0", "etcd-1", "etcd-2")
			k.change(func() { k.lease, k.fenced = nil, nil })
			within(t, time.Minute, "the rollout", func() bool { return k.settled("rev-2") })
			expectAll(t, "fenced again, all but the one that is going", k.sortedFenced(), "etcd-0", "etcd-1")
			k.expect(t, "deleted etcd-2", "deleted etcd-1", "deleted etcd-0")
		}},
		{"of a newer version is left alone", func(t *testing.T) {
			k := newKube(t, 3, etcdtest.StartInMemory(t, 3))
			k.held(map[string]string{record.SchemaAnnotation: "3"})
			k.update("rev-2")
			var log bytes.Buffer
			stop := run(t, config(k, logTo(&log)))
			<-time.After(20 * time.Minute)
			stop()
			k.expect(t)
			if k.leaseWrites() != 0 || !strings.Contains(log.String(), "schema 3") {
				t.Errorf("%d writes; log:\n%s", k.leaseWrites(), log.String())
			}
		}},
		{"that cannot be written keeps everything as it is", func(t *testing.T) {
			k := newKube(t, 3, etcdtest.StartInMemory(t, 3))
			k.leaseErr = apierrors.NewForbidden(leases, "quorate-etcd", nil)
			k.update("rev-2")
			var log bytes.Buffer
			stop := run(t, config(k, logTo(&log)))
			<-time.After(10 * time.Minute)
			k.expect(t)
			k.change(func() { k.leaseErr = nil })
			within(t, time.Minute, "the rollout", func() bool { return k.settled("rev-2") })
			stop()
			if !strings.Contains(log.String(), "see deploy/base/role.yaml") {
				t.Errorf("log:\n%s", log.String())
			}
		}},
		{"is taken over by whoever owns the lock, however fresh it is", func(t *testing.T) {
			k := newKube(t, 3, etcdtest.StartInMemory(t, 3))
			k.held(nil)
			k.update("rev-2")
			defer run(t, config(k, as("etcd-1")))()
			within(t, time.Minute, "the rollout", func() bool { return k.settled("rev-2") })
			expectAll(t, "holders", seen(k, &k.holders)[:1], "etcd-1 8")
		}},
		{"that another claims is not fought over without the lock", func(t *testing.T) {
			k := newKube(t, 3, etcdtest.StartInMemory(t, 3))
			k.etcd.Set(noSpace(true))
			k.held(nil)
			*k.lease.Spec.HolderIdentity = ""
			k.update("rev-2")
			k.stuck = true
			defer run(t, config(k, as("etcd-1")))()
			within(t, time.Minute, "a removal", func() bool { return k.story() != "" })
			k.change(func() { k.held(nil); k.stuck = false })
			for range 20 {
				<-time.After(10 * time.Second)
				k.renew()
			}
			k.expect(t, "deleted etcd-2")
		}},
	} {
		t.Run(tc.name, func(t *testing.T) { synctest.Test(t, tc.test) })
	}
}

// once answers the first of these requests with an error, and does not carry it out.
func once(err error, request string) answerFunc {
	answered := false
	return func(_ context.Context, is string, send func() error) error {
		if is != request || answered {
			return send()
		}
		answered = true
		return err
	}
}

func TestTheEndOfARolloutIsNotLost(t *testing.T) {
	conflict := apierrors.NewConflict(leases, "quorate-etcd", errors.New("it was modified"))
	lost := apierrors.NewInternalError(errors.New("the connection was reset"))
	for _, tc := range []struct {
		name   string
		answer func() answerFunc
	}{
		{"when its last write is refused once", func() answerFunc { return once(conflict, releases) }},
		{"when its last write is lost on its way", func() answerFunc { return once(lost, releases) }},
		{"when its last write is carried out and the answer lost", func() answerFunc {
			answered := false
			return func(_ context.Context, is string, send func() error) error {
				if err := send(); is != releases || answered {
					return err
				}
				answered = true
				return lost
			}
		}},
		{"when its last write is not allowed for a while", func() answerFunc {
			return failing(apierrors.NewForbidden(leases, "quorate-etcd", nil), releases)
		}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newStage(t, 3)
				s.answering(tc.answer())
				defer run(t, s.config())()
				s.update("rev-2")
				within(t, 2*time.Minute, "the rollout", func() bool { return s.settled("rev-2") })
				<-time.After(time.Minute)
				s.answering(nil)
				<-time.After(time.Minute)
				s.mu.Lock()
				defer s.mu.Unlock()
				if r := record.Parse(s.lease); r.Holder != "" || r.Rolling {
					t.Errorf("the record says: %+v", r)
				}
			})
		})
	}
}

// A claim that was given up lands when nothing is to be done any more.
func TestAClaimThatLandsLateIsGivenBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStage(t, 3)
		var late *coordinationv1.Lease // As the claim makes it.
		s.answering(func(_ context.Context, is string, send func() error) error {
			if is != claims || late != nil {
				return send()
			}
			s.mu.Lock()
			before := s.lease
			s.mu.Unlock()
			if err := send(); err != nil {
				return err
			}
			s.mu.Lock()
			defer s.mu.Unlock()
			late, s.lease = s.lease, before
			return apierrors.NewInternalError(errors.New("the connection was reset"))
		})
		defer run(t, s.config())()
		<-time.After(time.Minute)
		s.change(func() { s.set.Status.UpdateRevision = "rev-2" })
		<-time.After(100 * time.Millisecond)
		s.change(func() { s.set.Status.UpdateRevision = "rev-1" })
		<-time.After(time.Minute)
		s.mu.Lock()
		if r := record.Parse(s.lease); r.Holder != "" || late == nil {
			t.Errorf("the record says before: %+v", r)
		}
		s.lease = late // Nobody is told.
		s.mu.Unlock()
		<-time.After(lateWrites)
		s.mu.Lock()
		defer s.mu.Unlock()
		if r := record.Parse(s.lease); r.Holder != "" || r.Rolling {
			t.Errorf("the record says in the end: %+v", r)
		}
	})
}

// Told to stop, a coordinator gives back a record that an operator has changed just before.
func TestTheRecordIsGivenBackAtTheEndAlthoughItHasJustChanged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStage(t, 3)
		s.waiting()
		stop := run(t, s.config())
		<-time.After(time.Minute)
		s.answering(once(apierrors.NewConflict(leases, "quorate-etcd", errors.New("it was modified")), releases))
		begin := time.Now()
		stop()
		if took := time.Since(begin); took > releaseTimeout {
			t.Errorf("it took %v", took)
		}
		if r := record.Parse(s.lease); r.Holder != "" || !r.Rolling {
			t.Errorf("the record says: %+v", r)
		}
	})
}

// What others write on the Lease is not trusted, and it stops no coordinator.
func TestALeaseThatMakesNoSense(t *testing.T) {
	number := func(n int32) *int32 { return &n }
	intent := func(s *stage, pod, uid string) {
		s.annotate(record.IntentAnnotation,
			fmt.Sprintf(`{"operation":"delete","pod":%q,"uid":%q,"resourceVersion":"1","epoch":7}`, pod, uid))
	}
	for _, tc := range []struct {
		name  string
		scene func(s *stage)
		// told is how it is reported, claim is the epoch of the first claim, and fenced are the
		// pods that are changed before anything else.
		told   string
		claim  int
		fenced []string
		// fallback is true if the lock cannot be had.
		fallback bool
	}{
		{"an intent that names a pod outside our ordinals is no reason to touch that pod; ours are changed instead",
			func(s *stage) { intent(s, "etcd-3", "u") },
			"delete etcd-3 (UID u, resourceVersion 1) names none of our pods", 8,
			[]string{"etcd-0", "etcd-1", "etcd-2"}, false},
		{"nor is one that names anybody's pod", func(s *stage) { intent(s, "database-0", "u") },
			"names none of our pods", 8, []string{"etcd-0", "etcd-1", "etcd-2"}, false},
		{"one that names a pod of ours is believed", func(s *stage) { intent(s, "etcd-1", string(s.pods[1].UID)) }, "",
			8, []string{"etcd-1"}, false},
		{"where the number of claims cannot grow it begins again", func(s *stage) {
			s.lease.Spec.LeaseTransitions = number(math.MaxInt32)
		},
			"spec.leaseTransitions is 2147483647; counting begins again at 1", 1, nil, false},
		{"a duration beyond all measure does not keep the fallback for ever", func(s *stage) { s.taken(math.MaxInt32) },
			"spec.leaseDurationSeconds is 2147483647; without the lock, a record that is not renewed is waited for " +
				"no longer than 5m0s", 8, nil, true},
		{"nor does a negative one", func(s *stage) { s.taken(-1) }, "spec.leaseDurationSeconds is -1", 8, nil, true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newStage(t, 3)
				s.etcd.Set(noSpace(tc.fallback))
				tc.scene(s)
				s.waiting()
				var log bytes.Buffer
				stop := run(t, s.config(logTo(&log)))
				within(t, 6*time.Minute, "the first removal", func() bool { return s.story() != "" })
				s.expect(t, "deleted etcd-2")
				expectAll(t, "fenced", s.sortedFenced(), tc.fenced...)
				<-time.After(time.Minute)
				r, _ := s.published(t)
				stop()
				if r := record.Parse(s.lease); r.Epoch != tc.claim {
					t.Errorf("claimed as %d, want %d", r.Epoch, tc.claim)
				}
				if said := log.String(); tc.told != "" &&
					(strings.Count(said, "the Lease says what makes no sense") != 1 ||
						!strings.Contains(said, tc.told)) {
					t.Errorf("log:\n%s", said)
				}
				if told := strings.Join(r.Faults, "\n"); !strings.Contains(told, tc.told) ||
					(tc.told == "") != (told == "") {
					t.Errorf("status: %q", told)
				}
			})
		})
	}
}

func TestTheFirstClaimOfAllTellsOfNoRemovalThatNeverWas(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := newKube(t, 3, etcdtest.StartInMemory(t, 3))
		k.update("rev-2")
		var log bytes.Buffer
		stop := run(t, config(k, logTo(&log)))
		within(t, time.Minute, "a removal", func() bool { return k.story() != "" })
		stop()
		if said := log.String(); strings.Contains(said, "an earlier removal") ||
			strings.Count(said, "does not say what was under way before") != 1 {
			t.Errorf("log:\n%s", said)
		}
	})
}

func TestTheFallback(t *testing.T) {
	for _, tc := range []struct {
		name string
		test func(t *testing.T)
	}{
		{"rolls when etcd serves but grants no lease, and ends when it does", func(t *testing.T) {
			k := newKube(t, 3, etcdtest.StartInMemory(t, 3))
			k.etcd.Set(noSpace(true))
			var log bytes.Buffer
			stop := run(t, config(k, as("etcd-0"), logTo(&log)))
			<-time.After(time.Minute)
			expectAll(t, "holders while idle", seen(k, &k.holders))
			k.update("rev-2")
			within(t, time.Minute, "the rollout", func() bool { return k.settled("rev-2") })
			k.etcd.Set(noSpace(false))
			within(t, time.Minute, "the lock", func() bool { return holders(k) == 1 })
			k.update("rev-3")
			within(t, time.Minute, "the next rollout", func() bool { return k.settled("rev-3") })
			stop()
			if !strings.Contains(log.String(), "by=fallback") || !strings.Contains(log.String(), "by=lock") {
				t.Errorf("log:\n%s", log.String())
			}
		}},
		{"begins within five seconds of the change of the template", func(t *testing.T) {
			k := newKube(t, 3, etcdtest.StartInMemory(t, 3))
			k.etcd.LoseQuorum()
			defer run(t, config(k))()
			<-time.After(time.Minute)
			// Two members are in a crash loop, and no member has a quorum.
			k.change(func() {
				for _, i := range []int{1, 2} {
					k.setReady(k.pods[i], false)
					s := &k.pods[i].Status.ContainerStatuses[0]
					s.State.Running, s.State.Waiting = nil, crashLoop()
				}
				k.setReady(k.pods[0], false)
			})
			k.etcd.Stop(1)
			k.etcd.Stop(2)
			k.update("rev-2")
			within(t, 5*time.Second, "the first removal", func() bool { return k.story() != "" })
			k.expect(t, "deleted etcd-2")
		}},
		{"waits for a holder that renews, and takes over when it has been silent for the duration", func(t *testing.T) {
			k := newKube(t, 3, etcdtest.StartInMemory(t, 3))
			k.etcd.Set(noSpace(true))
			k.held(nil)
			k.update("rev-2")
			defer run(t, config(k, as("etcd-0")))()
			for range 20 {
				<-time.After(10 * time.Second)
				k.renew()
			}
			k.expect(t)
			begin := time.Now()
			within(t, time.Minute, "a removal", func() bool { return k.story() != "" })
			if d := time.Since(begin); d < 15*time.Second {
				t.Errorf("it took over after %v", d)
			}
		}},
		{"takes its own record back at once after a restart", func(t *testing.T) {
			k := newKube(t, 3, etcdtest.StartInMemory(t, 3))
			k.etcd.Set(noSpace(true))
			k.held(nil)
			*k.lease.Spec.HolderIdentity = "etcd-0_" + string(k.pods[0].UID)
			k.update("rev-2")
			defer run(t, config(k, as("etcd-0")))()
			within(t, 10*time.Second, "a removal", func() bool { return k.story() != "" })
		}},
		{"ends within its time when it is asked to", func(t *testing.T) {
			k := newKube(t, 3, etcdtest.StartInMemory(t, 3))
			k.etcd.Set(noSpace(true))
			k.stuck = true
			k.update("rev-2")
			stop := run(t, config(k))
			within(t, time.Minute, "a removal", func() bool { return k.story() != "" })
			begin := time.Now()
			stop()
			if d := time.Since(begin); d > releaseTimeout {
				t.Errorf("Run took %v to end", d)
			}
			if h := *k.lease.Spec.HolderIdentity; h != "" {
				t.Errorf("the record is still held by %s", h)
			}
		}},
	} {
		t.Run(tc.name, func(t *testing.T) { synctest.Test(t, tc.test) })
	}
}

// fleet runs a sidecar in every pod. It begins and ends with the pod.
func fleet(t *testing.T, k *kube, changes ...func(*Config)) (stop func()) {
	var mu sync.Mutex
	running := map[int]func(){}
	start := func(i int) {
		mu.Lock()
		defer mu.Unlock()
		running[i] = run(t, config(k, append([]func(*Config){as(fmt.Sprint("etcd-", i))}, changes...)...))
	}
	end := func(i int) {
		mu.Lock()
		stop := running[i]
		delete(running, i)
		mu.Unlock()
		if stop != nil {
			stop()
		}
	}
	k.gone, k.back = end, start
	for i := range k.pods {
		start(i)
	}
	return func() {
		for i := range k.pods {
			end(i)
		}
	}
}

func TestTheHandover(t *testing.T) {
	t.Run("lets updated code finish, changes the coordinator once, and nobody removes its own pod", func(t *testing.T) {
		k := quick(t)
		var log bytes.Buffer
		logger := logrus.New() // They share one logger, because it serialises what is written.
		logger.SetOutput(&log)
		logger.SetLevel(logrus.DebugLevel)
		logger.SetFormatter(&logrus.TextFormatter{TimestampFormat: time.StampMicro, FullTimestamp: true})
		stop := fleet(t, k, soon, func(c *Config) { c.Log = logger.WithField("pod", c.PodName) })
		defer func() {
			stop()
			if t.Failed() {
				t.Logf("log:\n%s", log.String())
			}
		}()
		within(t, generous, "three in the queue", func() bool { return holders(k) == 3 })
		k.update("rev-2")
		within(t, generous, "the rollout", func() bool { return k.settled("rev-2") })
		within(t, generous, "the end", func() bool { return len(seen(k, &k.holders)) >= 4 })
		got := seen(k, &k.holders)
		if len(got) != 4 || !strings.HasSuffix(got[0], " 1") || got[1] != " 1" || !strings.HasSuffix(got[2], " 2") ||
			got[3] != " 2" {
			t.Errorf("holders %q, want two claims", got)
		}
		for _, r := range seen(k, &k.removedBy) {
			pod, by, _ := strings.Cut(r, " by ")
			if pod == by {
				t.Errorf("%s removed its own pod", pod)
			}
		}
	})
	t.Run("never goes to a peer that is unfit", func(t *testing.T) {
		k := quick(t)
		// The sidecar that runs the updated code may not write the record.
		forbid := func(c *Config) {
			if k.revisionOf(c.PodName) == "rev-2" {
				c.Leases = forbiddenLeases{kubeLeases{k}}
			}
		}
		defer fleet(t, k, soon, forbid)()
		within(t, generous, "three in the queue", func() bool { return holders(k) == 3 })
		k.update("rev-2")
		within(t, generous, "the rollout", func() bool { return k.settled("rev-2") })
		within(t, generous, "a sidecar that says why it is unfit", func() bool {
			return slices.ContainsFunc(k.etcd.Values("/quorate/ns/etcd/presence/"),
				func(v string) bool { return strings.Contains(v, "not allowed") })
		})
		removed := strings.Split(k.story(), ", ")
		slices.Sort(removed)
		expectAll(t, "removed, each once", removed, "deleted etcd-0", "deleted etcd-1", "deleted etcd-2")
	})
}

func TestALockKeyThatNoLeaseWillRemoveDoesNotBlock(t *testing.T) {
	k := newKube(t, 3, etcdtest.StartInMemory(t, 3))
	k.etcd.Put(lock+"restored", "")
	defer run(t, config(k))()
	within(t, time.Minute, "the lock", func() bool {
		return holders(k) == 1 && !slices.Contains(queue(k), lock+"restored")
	})
}
