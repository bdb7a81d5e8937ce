package coordinator

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/quorate/quorate/internal/etcdtest"
	"github.com/quorate/quorate/internal/record"
	"github.com/quorate/quorate/pkg/rollout"
	"github.com/quorate/quorate/selfupdate"
)

// guarded is the quorum guard, as the API server carries it out: a pod that the Lease needs is not deleted.
type guarded struct {
	*kube

	mu sync.Mutex
	// words are what the Lease said, without repetitions, and alone counts the writes that changed nothing else for
	// whoever reads it.
	words []string
	alone int
	last  *coordinationv1.Lease
	// lag is by how many deletions the guard is behind, and denied are those that it denied.
	lag    int
	denied []string
}

type guardedLeases struct {
	kubeLeases

	g *guarded
}

func (l guardedLeases) Patch(ctx context.Context, name string, pt types.PatchType, data []byte,
	opts metav1.PatchOptions, subresources ...string) (*coordinationv1.Lease, error) {
	lease, err := l.kubeLeases.Patch(ctx, name, pt, data, opts, subresources...)
	if err == nil {
		l.g.wrote(lease)
	}
	return lease, err
}

func (l guardedLeases) Create(ctx context.Context, lease *coordinationv1.Lease,
	opts metav1.CreateOptions) (*coordinationv1.Lease, error) {
	lease, err := l.kubeLeases.Create(ctx, lease, opts)
	if err == nil {
		l.g.wrote(lease)
	}
	return lease, err
}

func (g *guarded) wrote(lease *coordinationv1.Lease) {
	g.mu.Lock()
	defer g.mu.Unlock()
	needed := record.NeededOf(lease)
	word := strings.Join(slices.Sorted(maps.Keys(needed.Pods)), " ")
	if word != "" {
		word += " during " + needed.During
	}
	if len(g.words) == 0 || g.words[len(g.words)-1] != word {
		g.words = append(g.words, word)
		if g.last != nil && g.last.Annotations[record.IntentAnnotation] == lease.Annotations[record.IntentAnnotation] &&
			*g.last.Spec.HolderIdentity == *lease.Spec.HolderIdentity && published(g.last) == published(lease) {
			g.alone++
		}
	}
	g.last = lease
}

// published is what the Lease tells people.
func published(lease *coordinationv1.Lease) string { return lease.Annotations["quorate.dev/status"] }

type guardedPods struct {
	kubePods

	g *guarded
}

func (p guardedPods) Delete(ctx context.Context, name string, opts metav1.DeleteOptions) error {
	p.g.mu.Lock()
	uid := record.NeededOf(p.g.last).Pods[name]
	denies := uid == string(*opts.Preconditions.UID) || p.g.lag > 0
	p.g.lag--
	if denies {
		p.g.denied = append(p.g.denied, name)
	}
	p.g.mu.Unlock()
	if denies {
		return apierrors.NewForbidden(corev1.Resource("pods"), name, errors.New("ValidatingAdmissionPolicy "+
			"'quorate-quorum-guard' with binding 'quorate-quorum-guard' denied request: quorum needs it. If no "+
			"sidecar is left: kubectl quorate guard etcd -n ns --off"))
	}
	return p.kubePods.Delete(ctx, name, opts)
}

func guard(k *kube) *guarded { return &guarded{kube: k} }

func (g *guarded) config(changes ...func(*Config)) Config {
	return config(g.kube, append(changes, func(c *Config) {
		c.Pods, c.Leases = guardedPods{kubePods{g.kube}, g}, guardedLeases{kubeLeases{g.kube}, g}
	})...)
}

// said is what the Lease has said so far of what quorum rests on, and how often it was written for that alone.
func (g *guarded) said() (words string, alone int) {
	g.mu.Lock()
	defer g.mu.Unlock()
	return strings.Join(g.words, " | "), g.alone
}

// takesOne begins a rollout, and lets its first pod be away for a while.
func (k *kube) takesOne(t *testing.T) {
	t.Helper()
	k.update("rev-2")
	within(t, time.Minute, "the first removal", func() bool { return k.story() != "" })
	<-time.After(20 * time.Second)
}

func TestTheLeaseSaysWhatQuorumRestsOn(t *testing.T) {
	for _, tc := range []struct {
		name string
		test func(t *testing.T)
	}{
		{"from each removal until the next, with no write for that alone", func(t *testing.T) {
			k := newKube(t, 3, etcdtest.StartInMemory(t, 3))
			g := guard(k)
			defer run(t, g.config())()
			k.update("rev-2")
			within(t, time.Minute, "the rollout", func() bool { return k.settled("rev-2") })
			<-time.After(time.Minute)
			k.expect(t, "deleted etcd-2", "deleted etcd-1", "deleted etcd-0")
			words, alone := g.said()
			const want = " | etcd-0 etcd-1 during the replacement of etcd-2 | " +
				"etcd-0 etcd-2 during the replacement of etcd-1 |  | etcd-1 etcd-2 during the replacement of etcd-0 | "
			if words != want || alone != 0 || len(g.denied) != 0 {
				t.Errorf("%d writes of %q\nwant 0 of %q; denied %v", alone, words, want, g.denied)
			}
		}},
		{"and nothing as soon as the rollout is paused, although a pod is away", func(t *testing.T) {
			k := newKube(t, 3, etcdtest.StartInMemory(t, 3))
			k.stuck = true
			g := guard(k)
			defer run(t, g.config())()
			k.takesOne(t)
			if words, _ := g.said(); !strings.HasSuffix(words, "| etcd-0 etcd-1 during the replacement of etcd-2") {
				t.Errorf("%q", words)
			}
			yes := "true"
			_, err := record.Control(t.Context(), kubeLeases{k}, "etcd",
				map[string]*string{rollout.ControlPaused: &yes})
			if err != nil {
				t.Fatal(err)
			}
			<-time.After(20 * time.Second)
			if words, _ := g.said(); !strings.HasSuffix(words, "etcd-2 | ") {
				t.Errorf("%q", words)
			}
		}},
		{"without a member that has failed meanwhile", func(t *testing.T) {
			k := newKube(t, 3, etcdtest.StartInMemory(t, 3))
			k.stuck = true
			g := guard(k)
			defer run(t, g.config())()
			k.takesOne(t)
			k.etcd.Set(func(_ *etcdtest.Cluster, ms []*etcdtest.Member) { ms[0].Hung = true })
			k.change(func() {
				k.refusing = map[int]bool{0: true} // So that its kubelet is believed.
				k.setReady(k.pods[0], false)
				k.pods[0].Status.ContainerStatuses[0].State = corev1.ContainerState{Waiting: crashLoop()}
			})
			<-time.After(20 * time.Second)
			// One that serves proves that etcd-2 votes by now, whatever it looks like.
			if words, _ := g.said(); !strings.Contains(words, "| etcd-1 etcd-2 during the replacement of etcd-0") {
				t.Errorf("%q", words)
			}
		}},
		{"and a coordinator that takes over repeats that until its own first look", func(t *testing.T) {
			k := newKube(t, 3, etcdtest.StartInMemory(t, 3))
			g := guard(k)
			k.update("rev-2")
			k.change(func() {
				k.pods[2] = k.newPod(2)
				k.setReady(k.pods[2], false)
			})
			k.etcd.Set(func(_ *etcdtest.Cluster, ms []*etcdtest.Member) { ms[2].Hung = true })
			dead := record.Record{Holder: "etcd-9_gone", Epoch: 6, Duration: 15 * time.Second, Schema: record.Schema,
				Rolling: true}
			_, err := record.Write(t.Context(), guardedLeases{kubeLeases{k}, g}, "etcd", dead, record.Needed{
				During: "the work on etcd", Since: time.Now(), Pods: map[string]string{"etcd-0": "old"}}, nil)
			if err != nil {
				t.Fatal(err)
			}
			defer run(t, g.config())()
			var words string
			within(t, 10*time.Second, "the new word", func() bool {
				words, _ = g.said()
				return strings.HasSuffix(words, "etcd-2")
			})
			const want = "etcd-0 during the work on etcd | etcd-0 etcd-1 during the replacement of etcd-2"
			if words != want || len(k.holders) != 2 {
				t.Errorf("%q\nwant %q", words, want)
			}
		}},
		{"but nothing while the own pod is next and waits for another sidecar", func(t *testing.T) {
			for _, tc := range []struct {
				self    string
				removed []string
			}{
				{"etcd-0", []string{"deleted etcd-2", "deleted etcd-1"}}, // It hands over its leadership meanwhile.
				{"etcd-1", []string{"deleted etcd-2"}},
			} {
				k := newKube(t, 3, etcdtest.StartInMemory(t, 3))
				g := guard(k)
				stop := run(t, g.config(inPod(tc.self)))
				k.update("rev-2")
				within(t, time.Minute, "the removals", func() bool {
					return strings.Contains(k.story(), tc.removed[len(tc.removed)-1])
				})
				<-time.After(k.termination + k.startup + 5*time.Second)
				if words, alone := g.said(); !strings.HasSuffix(words, " | ") || alone != 0 {
					t.Errorf("%s: %d writes of %q", tc.self, alone, words)
				}
				k.expect(t, tc.removed...)
				stop()
			}
		}},
		{"and a coordinator that finds it given back says it anew at once", func(t *testing.T) {
			k := newKube(t, 3, etcdtest.StartInMemory(t, 3))
			k.stuck = true
			g := guard(k)
			stop := run(t, g.config())
			k.takesOne(t)
			stop()
			if words, _ := g.said(); !strings.HasSuffix(words, "etcd-2 | ") {
				t.Errorf("%q", words)
			}
			defer run(t, g.config())()
			<-time.After(5 * time.Second)
			const again = "etcd-2 |  | etcd-0 etcd-1 during the replacement of etcd-2"
			if words, _ := g.said(); !strings.HasSuffix(words, again) {
				t.Errorf("%q", words)
			}
		}},
		{"and goes on saying it after a removal that was refused, if a member is away", func(t *testing.T) {
			for _, answer := range []error{
				apierrors.NewForbidden(corev1.Resource("pods"), "etcd-1", errors.New("no")),
				apierrors.NewConflict(corev1.Resource("pods"), "etcd-1", errors.New("it changed")),
			} {
				k := newKube(t, 3, etcdtest.StartInMemory(t, 3))
				k.etcd.Set(func(_ *etcdtest.Cluster, ms []*etcdtest.Member) { ms[1].Hung = true })
				k.change(func() {
					k.refusing = map[int]bool{1: true} // So that its kubelet is believed.
					k.setReady(k.pods[1], false)
					k.pods[1].Status.ContainerStatuses[0].State = corev1.ContainerState{Waiting: crashLoop()}
					k.deleteErr = answer
				})
				g := guard(k)
				stop := run(t, g.config())
				k.update("rev-2")
				<-time.After(20 * time.Second)
				const want = " | etcd-0 etcd-2 during the replacement of etcd-1"
				if words, _ := g.said(); words != want {
					t.Errorf("%v: %q\nwant %q", answer, words, want)
				}
				stop()
			}
		}},
		{"and while the lock is handed over in the midst of it", func(t *testing.T) {
			s := newStage(t, 3)
			g := guard(s.kube)
			s.gone = func(ordinal int) { // New code lines up while the second pod is away.
				if ordinal == 1 {
					s.waits(selfupdate.Presence{Pod: "etcd-2", UID: string(s.pods[2].UID)})
				}
			}
			defer run(t, s.config(inPod("etcd-0"), func(c *Config) {
				c.Pods, c.Leases = guardedPods{kubePods{s.kube}, g}, guardedLeases{kubeLeases{s.kube}, g}
			}))()
			s.update("rev-2")
			within(t, time.Minute, "the handover", func() bool { return len(s.at("says handing over")) > 0 })
			<-time.After(time.Second)
			if words, _ := g.said(); !strings.HasSuffix(words, "etcd-0 etcd-2 during the replacement of etcd-1") {
				t.Errorf("%q", words)
			}
			if queue := s.queue(); queue != 1 {
				t.Errorf("%d have the lock or wait for it, want the other one alone", queue)
			}
		}},
		{"and nothing after an eviction that a budget has refused", func(t *testing.T) {
			k := newKube(t, 3, etcdtest.StartInMemory(t, 3))
			asked := 0
			k.budget = func() error { // It allows the question, and refuses what follows.
				if asked++; asked%2 == 0 {
					return needsTwo
				}
				return nil
			}
			g := guard(k)
			defer run(t, g.config(evicting))()
			k.update("rev-2")
			<-time.After(20 * time.Second)
			words, alone := g.said()
			if !strings.Contains(words, "etcd-0 etcd-1 during the replacement of etcd-2") ||
				!strings.HasSuffix(words, " | ") || alone != 0 {
				t.Errorf("%d writes of %q", alone, words)
			}
			k.expect(t, "")
		}},
	} {
		t.Run(tc.name, func(t *testing.T) { synctest.Test(t, tc.test) })
	}
}

func TestADenialOfTheQuorumGuardIsWaitedFor(t *testing.T) {
	for _, tc := range []struct {
		name string
		lag  int
		want []string
	}{
		{"when the guard has not seen our word yet, the same removal is repeated", 3, []string{"deleted etcd-2"}},
		{"when it goes on denying, nothing is removed", 1 << 20, []string{""}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				k := newKube(t, 3, etcdtest.StartInMemory(t, 3))
				k.stuck = true // Then the story ends with the first removal.
				g := guard(k)
				g.lag = tc.lag
				defer run(t, g.config())()
				<-time.After(time.Minute)
				k.update("rev-2")
				<-time.After(20 * time.Second)
				k.expect(t, tc.want...)
				if len(g.denied) < 3 || slices.ContainsFunc(g.denied, func(s string) bool { return s != "etcd-2" }) {
					t.Errorf("denied %v", g.denied)
				}
				// The first claim has changed each pod once, and nothing else has.
				if tc.lag == 3 && (len(g.denied) != 3 || len(k.fenced) != 3) {
					t.Errorf("denied %d times, fenced %v", len(g.denied), k.fenced)
				}
				const wayOut = "quorate guard etcd -n ns --off"
				if tc.lag > 3 && !strings.Contains(fmt.Sprint(k.told, published(k.lease)), wayOut) {
					t.Errorf("told %v", k.told)
				}
			})
		})
	}
}
