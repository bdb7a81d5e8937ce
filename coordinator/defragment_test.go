package coordinator

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/quorate/quorate/internal/etcdtest"
	"github.com/quorate/quorate/internal/record"
	"github.com/quorate/quorate/internal/report"
	"github.com/quorate/quorate/pkg/rollout"
	"github.com/quorate/quorate/selfupdate"
)

const (
	mib = 1 << 20
	// away is how long a member takes to be defragmented in these tests, and call how long a call may take for a
	// database of 1920 MiB.
	away, call = 40 * time.Second, 150 * time.Second
)

// fragmented: every member's database is full, and most of it is free.
func fragmented(t *testing.T, k *kube) *kube {
	t.Cleanup(func() { <-time.After(25 * time.Hour) }) // For those that are still away.
	k.etcd.Set(func(_ *etcdtest.Cluster, ms []*etcdtest.Member) {
		for _, m := range ms {
			m.Size, m.InUse, m.DefragmentTakes = 1920*mib, 300*mib, away
		}
	})
	return k
}

// outOfSpace: two members have raised the alarm, and no lease is granted any more.
func outOfSpace(k *kube) *kube {
	k.etcd.Set(noSpace(true))
	k.etcd.Set(func(_ *etcdtest.Cluster, ms []*etcdtest.Member) {
		for _, m := range ms {
			m.Alarms = []string{etcdtest.NoSpaceOf(ms[0].ID), etcdtest.NoSpaceOf(ms[1].ID)}
		}
	})
	return k
}

// asksFor puts a request on the Lease.
func (k *kube) asksFor(operation string) {
	k.annotate(record.RequestAnnotation, record.RequestText(rollout.Request{
		Operation: operation, Cluster: etcdtest.ID, At: time.Now(),
	}))
	k.shown()
}

// shown tells the watches of the Lease.
func (k *kube) shown() {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.tellLease()
}

// did returns what the history on the Lease says, oldest first, less what concerns the rollout.
func (k *kube) did() []string {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.lease == nil {
		return nil
	}
	// Tests ask this every few milliseconds for minutes, so a history is parsed once.
	if text := k.lease.Annotations[report.HistoryAnnotation]; text != k.history {
		k.history, k.done = text, nil
		_, h, _ := report.FromNotes(map[string]string{report.HistoryAnnotation: text})
		for _, e := range h {
			switch e.What {
			case report.Defragmented, report.LeaderMoved, report.Disarmed:
				k.done = append(k.done, e.What+" "+e.Pod)
			}
		}
	}
	return k.done
}

func (k *kube) intent() record.Operation {
	k.mu.Lock()
	defer k.mu.Unlock()
	return record.Parse(k.lease).Intent.Operation
}

// guard is what keeps the duty by the last report.
func (k *kube) guard() rollout.Guard {
	k.mu.Lock()
	defer k.mu.Unlock()
	r, _, _ := report.FromNotes(k.lease.Annotations)
	for _, w := range append(r.Others, r.Work) {
		if w.Duty == rollout.DutyDefragment || w.Guard == rollout.GuardUnderWay {
			return w.Guard
		}
	}
	return ""
}

func defragmentations(c *etcdtest.Cluster) (n []int) {
	c.Set(func(_ *etcdtest.Cluster, ms []*etcdtest.Member) {
		for _, m := range ms {
			n = append(n, m.Defragments)
		}
	})
	return n
}

// free is a kube whose record nobody holds.
func free(t *testing.T, replicas int) *kube {
	k := newKube(t, replicas, etcdtest.StartInMemory(t, replicas))
	k.held(map[string]string{record.SchemaAnnotation: "1", record.IntentAnnotation: `{"operation":"none"}`})
	*k.lease.Spec.HolderIdentity = ""
	return k
}

func TestADefragmentation(t *testing.T) {
	inOrder := []string{"Defragmented etcd-2", "Defragmented etcd-1", "LeaderMoved etcd-0", "Defragmented etcd-0"}
	for _, tc := range []struct {
		name string
		test func(t *testing.T)
	}{
		{"cures a cluster that takes no writes and grants no lease, and then the alarms are disarmed",
			func(t *testing.T) {
				k := outOfSpace(fragmented(t, free(t, 3)))
				defer run(t, config(k, as("etcd-1")))()
				within(t, 10*time.Minute, "both alarms", func() bool { return len(k.did()) == 6 })
				expectAll(t, "done", k.did(), append(slices.Clone(inOrder), "Disarmed etcd-0", "Disarmed etcd-1")...)
			}},
		{"is found where no pod is Ready for the lack of space, and a rollout waits for good", func(t *testing.T) {
			k := outOfSpace(fragmented(t, free(t, 3)))
			for _, p := range k.pods {
				k.setReady(p, false)
			}
			defer run(t, config(k, as("etcd-1")))()
			within(t, 10*time.Minute, "both alarms", func() bool { return len(k.did()) == 6 })
		}},
		{"cures a cluster without the lock in the midst of a rollout, whose updated pod cannot settle before",
			func(t *testing.T) {
				k := outOfSpace(fragmented(t, free(t, 3)))
				k.update("rev-2")
				k.change(func() { k.pods[2] = k.newPod(2) })
				for _, p := range k.pods {
					k.setReady(p, false)
				}
				defer run(t, config(k, as("etcd-0")))()
				within(t, 20*time.Minute, "both alarms", func() bool {
					return slices.Contains(k.did(), "Disarmed etcd-1")
				})
			}},
		{"is not done without the lock for a request, and that is told", func(t *testing.T) {
			k := fragmented(t, free(t, 3))
			k.etcd.LoseQuorum()
			k.update("rev-2")
			defer run(t, config(k, as("etcd-0")))()
			<-time.After(time.Minute)
			k.asksFor(rollout.RequestDefragment)
			within(t, 30*time.Second, "the answer", func() bool {
				r, _ := k.published(t)
				return r.Asked != nil && strings.Contains(fmt.Sprint(r.Reason, r.Others),
					"no member is defragmented while nobody can have the lock")
			})
			expectAll(t, "done", k.did())
		}},
		{"is done when an operator asks for it, one member after the other, the leader last and not while it leads",
			func(t *testing.T) {
				k := fragmented(t, free(t, 3))
				defer run(t, config(k))()
				<-time.After(5 * time.Minute)
				expectAll(t, "done before anybody asks", k.did())
				k.asksFor(rollout.RequestDefragment)
				within(t, 10*time.Minute, "the last one", func() bool { return len(k.did()) == 4 })
				expectAll(t, "done", k.did(), inOrder...)
				<-time.After(20 * time.Minute)
				expectAll(t, "done twenty minutes later", k.did(), inOrder...)
				expectAll(t, "the record", []string{string(k.intent())}, "")
			}},
		{"is not done for a request about another cluster, nor for one that is old", func(t *testing.T) {
			k := fragmented(t, free(t, 3))
			defer run(t, config(k))()
			k.annotate(record.RequestAnnotation, record.RequestText(rollout.Request{
				Operation: rollout.RequestDefragment, Cluster: 7, At: time.Now(),
			}))
			k.shown()
			<-time.After(time.Minute)
			k.annotate(record.RequestAnnotation, record.RequestText(rollout.Request{
				Operation: rollout.RequestDefragment, Cluster: etcdtest.ID, At: time.Now().Add(-time.Hour),
			}))
			k.shown()
			<-time.After(5 * time.Minute)
			expectAll(t, "done", k.did())
		}},
		{"is done without being asked for in its window alone", func(t *testing.T) {
			k := fragmented(t, free(t, 3))
			begin := time.Now().UTC()
			from := time.Duration(begin.Hour())*time.Hour + time.Duration(begin.Minute())*time.Minute + time.Hour
			defer run(t, config(k, func(c *Config) {
				c.Policy = DefaultPolicy()
				c.Policy.DefragmentWhen = rollout.DefaultFragmentation()
				c.Policy.DefragmentWindow = rollout.Window{From: from, To: from + time.Hour}
			}))()
			<-time.After(58 * time.Minute)
			expectAll(t, "done before the window", k.did())
			within(t, 20*time.Minute, "the last one", func() bool { return len(k.did()) == 4 })
			expectAll(t, "done", k.did(), inOrder...)
		}},
		{"is done although a container has restarted, and pods have to be Ready for a while", func(t *testing.T) {
			k := fragmented(t, free(t, 3))
			k.change(func() {
				k.pods[1].Status.ContainerStatuses[1].RestartCount = 1
				k.set.Spec.MinReadySeconds = 20
			})
			defer run(t, config(k, func(c *Config) {
				c.Policy = DefaultPolicy()
				c.Policy.DefragmentWhen = rollout.DefaultFragmentation()
				c.Policy.DefragmentWindow = rollout.Window{From: 0, To: 24*time.Hour - time.Minute}
			}))()
			within(t, 2*time.Hour, "the last one", func() bool { return len(k.did()) == 4 })
			expectAll(t, "done", k.did(), inOrder...)
		}},
		{"comes after the rollout", func(t *testing.T) {
			k := outOfSpace(fragmented(t, free(t, 3)))
			k.update("rev-2")
			k.gone = func(int) {
				if n := defragmentations(k.etcd); slices.Max(n) > 0 {
					t.Errorf("a pod goes after these defragmentations: %v", n)
				}
			}
			defer run(t, config(k, as("etcd-0")))()
			within(t, time.Hour, "the end of the alarm", func() bool {
				return slices.Contains(k.did(), "Disarmed "+
					"etcd-1")
			})
			if !k.settled("rev-2") {
				t.Error("it came before the rollout")
			}
		}},
		{"keeps every pod from being removed while nobody knows how its call ended", func(t *testing.T) {
			k := fragmented(t, free(t, 3))
			k.etcd.Set(func(_ *etcdtest.Cluster, ms []*etcdtest.Member) { ms[2].DefragmentTakes = 2 * call })
			defer run(t, config(k))()
			k.asksFor(rollout.RequestDefragment)
			within(t, time.Minute, "the first", func() bool { return k.intent() == record.Defragment })
			k.update("rev-2")
			var back time.Time
			within(t, time.Hour, "the member", func() bool {
				if hung := hangs(k.etcd, 2); !hung && back.IsZero() {
					back = time.Now()
				}
				return k.story() != ""
			})
			// It counts from when the member was last seen not to answer.
			if waited := time.Since(back); waited < record.Recovery-5*time.Second {
				t.Errorf("a pod was removed %v after the member answered again", waited)
			}
			expectAll(t, "defragmentations", []string{fmt.Sprint(defragmentations(k.etcd)[2])}, "1")
		}},
		{"is waited for by whoever comes after a coordinator that has ended", func(t *testing.T) {
			k := fragmented(t, free(t, 3))
			stop := run(t, config(k, as("etcd-0")))
			k.asksFor(rollout.RequestDefragment)
			within(t, time.Minute, "the first", func() bool { return hangs(k.etcd, 2) })
			stop()
			k.update("rev-2")
			begin := time.Now()
			defer run(t, config(k, as("etcd-1")))()
			within(t, time.Hour, "a removal", func() bool { return k.story() != "" })
			if waited := time.Since(begin); waited < call+record.Recovery {
				t.Errorf("the successor removed a pod after %v", waited)
			}
		}},
		{"whose answer is lost is not repeated before its member has answered for a while", func(t *testing.T) {
			s := newStage(t, 3)
			fragmented(t, s.kube)
			s.answering(func(_ context.Context, request string, send func() error) error {
				err := send()
				if request == "Defragment" {
					return status.Error(codes.Unavailable, "the connection broke")
				}
				return err
			})
			defer run(t, s.config())()
			s.asksFor(rollout.RequestDefragment)
			within(t, time.Hour, "two of them", func() bool { return len(s.at("Defragment")) >= 2 })
			if gap := gaps(s.at("Defragment"))[0]; gap < call+record.Recovery {
				t.Errorf("the next one began %v after the one whose end nobody knew", gap)
			}
		}},
		{"of a member that does not come back holds everything until its process has ended", func(t *testing.T) {
			k := fragmented(t, free(t, 3))
			k.etcd.Set(func(_ *etcdtest.Cluster, ms []*etcdtest.Member) { ms[2].DefragmentTakes = 24 * time.Hour })
			defer run(t, config(k))()
			k.asksFor(rollout.RequestDefragment)
			within(t, time.Minute, "the first", func() bool { return k.intent() == record.Defragment })
			k.update("rev-2")
			<-time.After(20 * time.Minute)
			k.expect(t)
			if k.guard() != rollout.GuardUnderWay {
				t.Errorf("the guard is %q", k.guard())
			}
			k.change(func() {
				k.setReady(k.pods[2], false)
				s := &k.pods[2].Status.ContainerStatuses[0]
				s.State.Running, s.State.Waiting = nil, crashLoop()
			})
			k.etcd.Set(func(_ *etcdtest.Cluster, ms []*etcdtest.Member) { ms[2].Hung = false })
			within(t, 10*time.Minute, "the rollout", func() bool { return k.settled("rev-2") })
		}},
		{"in which a single member crashes, and again at each start, does not hold the next template",
			func(t *testing.T) {
				k := fragmented(t, free(t, 1))
				k.etcd.Set(func(_ *etcdtest.Cluster, ms []*etcdtest.Member) { ms[0].DefragmentTakes = 24 * time.Hour })
				defer run(t, config(k, as("etcd-0")))()
				k.asksFor(rollout.RequestDefragment)
				within(t, time.Minute, "the first", func() bool { return k.intent() == record.Defragment })
				k.change(func() { // It runs out of memory.
					k.setReady(k.pods[0], false)
					s := &k.pods[0].Status.ContainerStatuses[0]
					s.State.Running, s.State.Waiting = nil, crashLoop()
				})
				<-time.After(15 * time.Minute)
				k.update("rev-2")
				within(t, 30*time.Minute, "the rollout", func() bool { return k.settled("rev-2") })
			}},
		{"whose member comes back on a template that fails does not hold the next one", func(t *testing.T) {
			k := fragmented(t, free(t, 3))
			k.etcd.Set(func(_ *etcdtest.Cluster, ms []*etcdtest.Member) { ms[2].DefragmentTakes = 24 * time.Hour })
			defer run(t, config(k, as("etcd-0")))()
			k.asksFor(rollout.RequestDefragment)
			within(t, time.Minute, "the first", func() bool { return k.intent() == record.Defragment })
			k.update("rev-broken")
			<-time.After(5 * time.Minute)
			k.change(func() { k.pods[2] = k.newPod(2); k.setReady(k.pods[2], false) }) // An operator deletes it.
			<-time.After(15 * time.Minute)
			k.expect(t)
			k.update("rev-2")
			within(t, time.Hour, "the rollout", func() bool { return k.settled("rev-2") })
		}},
		{"that etcd's user may not ask for is told, and not asked for again", func(t *testing.T) {
			k := outOfSpace(fragmented(t, free(t, 3)))
			k.etcd.Set(func(_ *etcdtest.Cluster, ms []*etcdtest.Member) {
				for _, m := range ms { // etcd 3.5 says so in words alone.
					m.DefragmentTakes, m.DefragmentErr = 0, status.Error(codes.Unknown, "auth: permission denied")
				}
			})
			defer run(t, config(k, as("etcd-0")))()
			<-time.After(15 * time.Minute)
			total := 0
			for _, n := range defragmentations(k.etcd) {
				total += n
			}
			if total != 2 || k.guard() != rollout.GuardDefragmentFails {
				t.Errorf("%d requests, the guard is %q", total, k.guard())
			}
			if text := k.lease.Annotations[report.StatusAnnotation]; !strings.Contains(text, "grant its user the "+
				"role root") {
				t.Errorf("the report does not say what to grant: %s", text)
			}
		}},
		{"that frees nothing is not repeated, and the alarm stays", func(t *testing.T) {
			k := outOfSpace(fragmented(t, free(t, 3)))
			k.etcd.Set(func(_ *etcdtest.Cluster, ms []*etcdtest.Member) { ms[1].InUse = ms[1].Size - mib })
			defer run(t, config(k, as("etcd-0")))()
			<-time.After(15 * time.Minute)
			if n := defragmentations(k.etcd); n[1] != 1 || k.guard() != rollout.GuardNoSpace {
				t.Errorf("defragmentations %v, the guard is %q", n, k.guard())
			}
			if slices.Contains(k.did(), "Disarmed etcd-0") {
				t.Errorf("done: %v", k.did())
			}
		}},
		{"does not begin while a sidecar is there that does not know what stands on the record then",
			func(t *testing.T) {
				s := newStage(t, 3)
				fragmented(t, s.kube)
				defer run(t, s.config(as("etcd-0")))()
				<-time.After(time.Minute)
				s.waits(selfupdate.Presence{Pod: "etcd-1", UID: string(s.pods[1].UID)})
				s.asksFor(rollout.RequestDefragment)
				<-time.After(5 * time.Minute)
				if n := defragmentations(s.etcd); slices.Max(n) != 0 || s.guard() != rollout.GuardOldSidecars {
					t.Errorf("defragmentations %v, the guard is %q", n, s.guard())
				}
			}},
		{"ends an alarm of which nobody knew twice whether it was disarmed", func(t *testing.T) {
			k := outOfSpace(fragmented(t, free(t, 3)))
			fails := 2
			k.etcd.Intercept(func(_ context.Context, method string, do func() (any, error)) (any, error) {
				if method == "Alarm" && fails > 0 {
					fails--
					return nil, status.Error(codes.Unavailable, "etcdserver: leader changed")
				}
				return do()
			})
			defer run(t, config(k, as("etcd-0")))()
			<-time.After(time.Hour)
			if d := k.did(); fails > 0 || k.guard() == rollout.GuardNoSpace || d[len(d)-1] != "Disarmed etcd-1" {
				t.Errorf("an hour later the guard is %q, done %v", k.guard(), d)
			}
		}},
		{"says that etcd's user may not disarm an alarm, and asks once", func(t *testing.T) {
			k := outOfSpace(fragmented(t, free(t, 3)))
			asked := 0
			k.etcd.Intercept(func(_ context.Context, method string, do func() (any, error)) (any, error) {
				if method == "Alarm" {
					asked++
					return nil, status.Error(codes.PermissionDenied, "etcdserver: permission denied")
				}
				return do()
			})
			defer run(t, config(k, as("etcd-0")))()
			<-time.After(20 * time.Minute)
			text := k.lease.Annotations[report.StatusAnnotation]
			if asked != 1 || k.guard() != rollout.GuardNoSpace || strings.Contains(text, "is there again") ||
				!strings.Contains(text, "grant its user the role root") {
				t.Errorf("asked %d times, the guard is %q: %s", asked, k.guard(), text)
			}
		}},
		{"that could not be asked for again and again does not count as failed", func(t *testing.T) {
			k := outOfSpace(fragmented(t, free(t, 3)))
			const fails = 6
			var mu sync.Mutex
			var at []time.Time
			k.etcd.Intercept(func(_ context.Context, method string, do func() (any, error)) (any, error) {
				mu.Lock()
				now := time.Now()
				// What an earlier look gave up may be carried out only now, beside the try.
				again := len(at) > 0 && at[len(at)-1].Equal(now)
				fail := method == "Status" && (again || len(at) < fails) && k.intent() == record.Defragment
				if fail && !again {
					at = append(at, now)
				}
				mu.Unlock()
				if fail {
					return nil, status.Error(codes.Internal, "not now")
				}
				return do()
			})
			defer run(t, config(k, as("etcd-0")))()
			within(t, time.Hour, "both alarms", func() bool { return slices.Contains(k.did(), "Disarmed etcd-1") })
			mu.Lock()
			defer mu.Unlock()
			if len(at) < fails || !slices.Equal(defragmentations(k.etcd), []int{1, 1, 1}) {
				t.Errorf("%d failures, defragmentations %v", len(at), defragmentations(k.etcd))
			}
			for i := range at[2:] { // The two followers in turn.
				if gap := at[i+2].Sub(at[i]); gap < firstTryAgain<<(i/2) {
					t.Errorf("try %d of a follower came after %v", i/2+2, gap)
				}
			}
		}},
		{"that one coordinator alone does not see end lets another try, once the call's time is over",
			func(t *testing.T) {
				s := newStage(t, 3)
				fragmented(t, s.kube)
				defer run(t, s.config(as("etcd-0")))()
				<-time.After(time.Minute)
				s.waits(selfupdate.Presence{Pod: "etcd-1", UID: string(s.pods[1].UID), Schema: record.Newest})
				s.etcd.Set(func(_ *etcdtest.Cluster, ms []*etcdtest.Member) { ms[2].DefragmentTakes = 24 * time.Hour })
				s.asksFor(rollout.RequestDefragment)
				within(t, time.Minute, "the first", func() bool { return s.intent() == record.Defragment })
				const gives = "etcd-2 has been Unknown to this sidecar for too long"
				<-time.After(call) // The kubelet finds the member well all the time.
				if strings.Contains(s.said(), gives) {
					t.Error("it gave up while the call could still be under way")
				}
				<-time.After(call + 2*unknownPatience)
				if !strings.Contains(s.said(), gives) {
					t.Errorf("the guard is %q, the record has %q, and it said\n%s", s.guard(), s.intent(), s.said())
				}
			}},
		{"is not waited for in haste by who does not coordinate, while an alarm is kept", func(t *testing.T) {
			k := outOfSpace(fragmented(t, free(t, 3)))
			k.etcd.Set(func(_ *etcdtest.Cluster, ms []*etcdtest.Member) {
				for _, m := range ms {
					m.InUse, m.DefragmentTakes = m.Size-mib, 0
				}
			})
			lists := func() int {
				<-time.After(5 * time.Minute)
				before := k.requests()
				<-time.After(10 * time.Minute)
				return k.requests() - before
			}
			defer run(t, config(k, as("etcd-0")))()
			one := lists()
			defer run(t, config(k, as("etcd-1")))()
			two := lists()
			if k.guard() != rollout.GuardNoSpace {
				t.Errorf("the guard is %q", k.guard())
			}
			if most := int(10*time.Minute/DefaultRecordDuration) + 5; two-one > most {
				t.Errorf("lists of pods in ten minutes: %d, with another sidecar %d", one, two)
			}
		}},
		{"ends an alarm that comes back no more than twice for each member", func(t *testing.T) {
			k := outOfSpace(fragmented(t, free(t, 3)))
			k.etcd.Intercept(func(_ context.Context, method string, do func() (any, error)) (any, error) {
				answer, err := do()
				if method == "Alarm" && err == nil {
					go outOfSpace(k)
				}
				return answer, err
			})
			defer run(t, config(k, as("etcd-0")))()
			<-time.After(15 * time.Minute)
			n := 0
			k.etcd.Set(func(_ *etcdtest.Cluster, ms []*etcdtest.Member) {
				for _, m := range ms {
					n += m.Disarms
				}
			})
			if n != 2 || k.guard() != rollout.GuardNoSpace {
				t.Errorf("%d alarms were disarmed, the guard is %q", n, k.guard())
			}
		}},
	} {
		t.Run(tc.name, func(t *testing.T) { synctest.Test(t, tc.test) })
	}
}

func hangs(c *etcdtest.Cluster, i int) (hung bool) {
	c.Set(func(_ *etcdtest.Cluster, ms []*etcdtest.Member) { hung = ms[i].Hung })
	return hung
}
