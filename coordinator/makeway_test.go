package coordinator

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/quorate/quorate/internal/etcdtest"
	"github.com/quorate/quorate/internal/record"
	"github.com/quorate/quorate/pkg/rollout"
)

// kubeNodes is the part for nodes: every pod has one of its own.
type kubeNodes struct {
	*kube
	cordoned map[string]bool
	// taint is that of a drainer, which the cordoned ones have instead, if it is not empty.
	taint string
	// err refuses both, and unwatchable a watch alone.
	err, unwatchable error
	// takes is how long it takes to read one.
	takes    time.Duration
	gets     int
	watchers map[string][]*watch.RaceFreeFakeWatcher
	// changes counts those of nodes, of which silent watches do not tell.
	changes int
	silent  bool
}

func newNodes(k *kube) *kubeNodes {
	for i, p := range k.pods {
		p.Spec.NodeName = fmt.Sprint("node-", i)
	}
	return &kubeNodes{kube: k, cordoned: map[string]bool{}, watchers: map[string][]*watch.RaceFreeFakeWatcher{}}
}

func (n *kubeNodes) node(name string) *corev1.Node {
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, ResourceVersion: strconv.Itoa(1 + n.changes)},
		Spec: corev1.NodeSpec{Unschedulable: n.cordoned[name] && n.taint == ""}}
	if n.cordoned[name] && n.taint != "" {
		node.Spec.Taints = []corev1.Taint{{Key: n.taint, Effect: corev1.TaintEffectNoSchedule}}
	}
	return node
}

func (n *kubeNodes) Get(_ context.Context, name string, _ metav1.GetOptions) (*corev1.Node, error) {
	<-time.After(n.takes)
	n.mu.Lock()
	defer n.mu.Unlock()
	n.gets++
	return n.node(name), n.err
}

func (n *kubeNodes) Watch(_ context.Context, opts metav1.ListOptions) (watch.Interface, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if err := cmp.Or(n.err, n.unwatchable); err != nil {
		return nil, err
	}
	w := watch.NewRaceFreeFake()
	name := strings.TrimPrefix(opts.FieldSelector, "metadata.name=")
	w.Add(n.node(name))
	n.watchers[name] = append(n.watchers[name], w)
	return w, nil
}

func (n *kubeNodes) cordon(name string)   { n.mark(name, true) }
func (n *kubeNodes) uncordon(name string) { n.mark(name, false) }

func (n *kubeNodes) mark(name string, cordoned bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.cordoned[name] = cordoned
	n.changes++
	for _, w := range n.watchers[name] {
		if !w.IsStopped() && !n.silent {
			w.Modify(n.node(name))
		}
	}
}

// watched is how many watches on nodes are open.
func (n *kubeNodes) watched() (open int) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, ws := range n.watchers {
		for _, w := range ws {
			if !w.IsStopped() {
				open++
			}
		}
	}
	return open
}

func readingNodes(n *kubeNodes) func(*Config) { return func(c *Config) { c.Nodes = n } }

// evicted has the eviction API mark a pod, as it does just before it deletes it.
func (k *kube) evicted(i int) {
	k.change(func() {
		k.pods[i].Status.Conditions = append(k.pods[i].Status.Conditions, corev1.PodCondition{
			Type: corev1.DisruptionTarget, Status: corev1.ConditionTrue, Reason: "EvictionByEvictionAPI"})
	})
}

func TestLeadershipMakesWayBetweenRollouts(t *testing.T) {
	const leader = 0
	leads := func(k *kube) bool { return k.etcd.Leader() == k.etcd.ID(leader) }
	// idle is a cluster at rest, whose coordinator has said its last word.
	idle := func(t *testing.T, changes ...func(*Config)) (k *kube, n *kubeNodes) {
		k = newKube(t, 3, etcdtest.StartInMemory(t, 3))
		n = newNodes(k)
		t.Cleanup(run(t, config(k, append([]func(*Config){readingNodes(n)}, changes...)...)))
		<-time.After(lateWrites + time.Minute)
		return k, n
	}
	for _, tc := range []struct {
		name string
		test func(t *testing.T)
	}{
		{"when a drainer that the operator has named marks the leader's node", func(t *testing.T) {
			k, n := idle(t, func(c *Config) { c.DrainTaints = []string{"acme.io/drain"} })
			n.taint = "acme.io/drain"
			n.cordon("node-0")
			within(t, time.Second, "the change of leader", func() bool { return !leads(k) })
		}},
		{"but not when somebody else does", func(t *testing.T) {
			k, n := idle(t, func(c *Config) { c.DrainTaints = []string{"acme.io/drain"} })
			n.taint = "dedicated"
			n.cordon("node-0")
			<-time.After(time.Minute)
			if !leads(k) {
				t.Error("leadership has moved")
			}
		}},
		{"when the leader's node is cordoned, and after that there is rest", func(t *testing.T) {
			k, n := idle(t)
			n.cordon("node-0")
			within(t, time.Second, "the change of leader", func() bool { return !leads(k) })
			<-time.After(time.Minute)
			lists, gets, writes := k.requests(), n.gets, k.writes
			<-time.After(30 * time.Minute)
			if k.requests() != lists || n.gets != gets || k.writes != writes || moves(k.etcd) != 1 {
				t.Errorf("%d lists of pods, %d of nodes, %d writes of the record and %d changes of leader after that",
					k.requests()-lists, n.gets-gets, k.writes-writes, moves(k.etcd)-1)
			}
			if holder := *k.lease.Spec.HolderIdentity; holder != "" {
				t.Errorf("%s still holds the record", holder)
			}
			k.expect(t)
		}},
		{"when the leader's pod is marked for disruption", func(t *testing.T) {
			k, _ := idle(t, func(c *Config) { c.Nodes = nil })
			k.evicted(leader)
			within(t, time.Second, "the change of leader", func() bool { return !leads(k) })
			k.expect(t)
		}},
		{"after a rollout as well as before one", func(t *testing.T) {
			k, n := idle(t)
			k.back = func(i int) { k.change(func() { k.pods[i].Spec.NodeName = fmt.Sprint("node-", i) }) }
			k.update("rev-2")
			within(t, time.Minute, "the rollout", func() bool { return k.settled("rev-2") })
			<-time.After(time.Minute)
			next := int(k.etcd.Leader() - k.etcd.ID(0))
			n.cordon(fmt.Sprint("node-", next))
			within(t, time.Second, "the change of leader", func() bool { return k.etcd.Leader() != k.etcd.ID(next) })
		}},
		{"not without the lock, and nothing is watched for it", func(t *testing.T) {
			k := newKube(t, 3, etcdtest.StartInMemory(t, 3))
			n := newNodes(k)
			k.etcd.LoseQuorum()
			defer run(t, config(k, readingNodes(n)))()
			<-time.After(lateWrites + time.Minute)
			if open := n.watched(); open != 0 {
				t.Errorf("%d watches on nodes", open)
			}
		}},
		{"not for a follower, and the record is not claimed for it", func(t *testing.T) {
			k, n := idle(t)
			writes := k.writes
			n.cordon("node-1")
			<-time.After(30 * time.Minute)
			if moves(k.etcd) != 0 || k.writes != writes {
				t.Errorf("%d changes of leader, %d writes of the record", moves(k.etcd), k.writes-writes)
			}
		}},
		{"but when that follower comes to lead", func(t *testing.T) {
			k, n := idle(t)
			n.cordon("node-1")
			<-time.After(time.Minute)
			k.etcd.SetLeader(k.etcd.ID(1))
			within(t, 2*time.Minute, "the change of leader", func() bool { return k.etcd.Leader() != k.etcd.ID(1) })
		}},
		{"not back to a cordoned node while the one that has handed over is defragmented", func(t *testing.T) {
			k := free(t, 3)
			n := newNodes(k)
			defer run(t, config(k, readingNodes(n)))()
			k.etcd.Set(func(_ *etcdtest.Cluster, ms []*etcdtest.Member) {
				ms[leader].Size, ms[leader].InUse, ms[leader].DefragmentTakes = 1920*mib, 300*mib, time.Second
			})
			n.cordon("node-1")
			n.cordon("node-2")
			<-time.After(20 * time.Minute)
			before := moves(k.etcd)
			k.asksFor(rollout.RequestDefragment)
			<-time.After(5 * time.Minute)
			// It leads again after that, because its node is not cordoned.
			if done := defragmentations(k.etcd)[leader]; done != 1 || moves(k.etcd)-before != 2 || !leads(k) {
				t.Errorf("%d defragmentations and %d changes of leader", done, moves(k.etcd)-before)
			}
		}},
		{"what fails twice is not repeated for ever", func(t *testing.T) {
			k, n := idle(t)
			k.etcd.Set(func(_ *etcdtest.Cluster, ms []*etcdtest.Member) {
				ms[leader].MoveLeaderErr = errors.New("etcdserver: not now")
			})
			n.cordon("node-0")
			<-time.After(time.Hour)
			if n := moves(k.etcd); n != rollout.MaxTransferFailures {
				t.Errorf("%d attempts, want %d", n, rollout.MaxTransferFailures)
			}
		}},
		{"not while the operator has paused, and nothing is asked of Kubernetes for it", func(t *testing.T) {
			k, n := idle(t)
			k.update("rev-2") // So that there is a Lease.
			within(t, time.Minute, "the rollout", func() bool { return k.settled("rev-2") })
			<-time.After(lateWrites + time.Minute)
			k.change(func() {
				k.lease.Annotations[rollout.ControlPaused] = "true"
				k.tellLease()
			})
			before, writes := moves(k.etcd), k.writes
			k.change(func() {
				for i := range 3 {
					k.pods[i].Spec.NodeName = fmt.Sprint("node-", i)
				}
			})
			<-time.After(time.Second)
			n.cordon(fmt.Sprint("node-", k.etcd.Leader()-k.etcd.ID(0)))
			<-time.After(time.Minute)
			lists, gets := k.requests(), n.gets
			<-time.After(30 * time.Minute)
			if moves(k.etcd) != before || k.writes != writes || k.requests() != lists || n.gets != gets {
				t.Errorf("%d changes of leader, %d writes of the record, %d lists of pods, %d readings of nodes",
					moves(k.etcd)-before, k.writes-writes, k.requests()-lists, n.gets-gets)
			}
			k.change(func() {
				delete(k.lease.Annotations, rollout.ControlPaused)
				k.tellLease()
			})
			within(t, 2*time.Minute, "the change of leader after that", func() bool { return moves(k.etcd) > before })
		}},
	} {
		t.Run(tc.name, func(t *testing.T) { synctest.Test(t, tc.test) })
	}
}

// Of three sidecars only one watches the nodes, whoever it is. (Waiting for the lock is a watch of etcd's client, for
// which a bubble has no time.)
func TestOnlyTheOwnerOfTheLockWatchesTheNodes(t *testing.T) {
	k := newKube(t, 3, etcdtest.StartInMemory(t, 3))
	n := newNodes(k)
	stops := make([]func(), 3)
	for i := range 3 {
		stops[i] = run(t, config(k, readingNodes(n), inPod(fmt.Sprint("etcd-", i))))
	}
	all := func() bool { return len(queue(k)) == 3 && n.watched() > 0 }
	within(t, 10*time.Second, "the queue", all)
	within(t, 10*time.Second, "a watch on every node", func() bool { return n.watched() >= 3 })
	if open := n.watched(); open != 3 {
		t.Errorf("%d watches on three nodes", open)
	}
	for _, stop := range stops {
		stop()
		within(t, 10*time.Second, "the watches of the next one, or of none", func() bool {
			return len(queue(k)) == 0 && n.watched() == 0 || n.watched() == 3
		})
	}
	if open := n.watched(); open != 0 {
		t.Errorf("%d watches are left", open)
	}
}

// What nodes need is a permission that may be missing for good. That is said once, and nothing waits for it.
func TestThatNodesMayNotBeReadIsSaidOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := newKube(t, 3, etcdtest.StartInMemory(t, 3))
		n := newNodes(k)
		n.err = apierrors.NewForbidden(corev1.Resource("nodes"), "node-0", errors.New("not allowed"))
		var log bytes.Buffer
		stop := run(t, config(k, readingNodes(n), logTo(&log)))
		for i := range 4 {
			<-time.After(20 * time.Minute)
			revision := fmt.Sprint("rev-", i+2)
			k.update(revision)
			within(t, time.Minute, "the rollout", func() bool { return k.settled(revision) })
		}
		stop()
		if said := strings.Count(log.String(), "nodes cannot be read"); said != 1 ||
			!strings.Contains(log.String(), nodesRole) {
			t.Errorf("said %d times:\n%s", said, log.String())
		}
		if n.gets > 3*12 {
			t.Errorf("asked %d times in 80 minutes", n.gets)
		}
		k.expect(t, "deleted etcd-2", "deleted etcd-1", "deleted etcd-0", "deleted etcd-2", "deleted etcd-0",
			"deleted etcd-1", "deleted etcd-2", "deleted etcd-1", "deleted etcd-0", "deleted etcd-2", "deleted etcd-0",
			"deleted etcd-1")
	})
}

// Whatever else the API server says of a node, no cure waits for it. Only serving members are left alone for a while.
func TestANodeThatCannotBeReadKeepsNoCure(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStage(t, 3)
		n := newNodes(s.kube)
		n.err = apierrors.NewInternalError(errors.New("etcd of the API server is slow"))
		defer run(t, s.config(readingNodes(n)))()
		<-time.After(lateWrites + time.Minute)
		s.crashes(1)
		s.unreachable(1, true)
		s.refuse(1)
		s.update("rev-2")
		within(t, time.Minute, "the cure", func() bool { return s.story() != "" })
		s.unreachable(1, false)
		<-time.After(time.Minute)
		s.expect(t, "deleted etcd-1")
		r, _ := s.published(t)
		said := s.said() + strings.Join(r.Faults, "\n")
		for _, want := range []string{"nodes cannot be read, so for a while only", "get node node-2",
			"says OthersLeaving"} {
			if !strings.Contains(said, want) {
				t.Errorf("it does not say %q:\n%s", want, said)
			}
		}
		n.mu.Lock()
		n.err = nil
		n.mu.Unlock()
		within(t, time.Minute, "the rollout", func() bool { return s.settled("rev-2") })
	})
}

// What the nodes say counts in the look that asked them, also where they take longer than the members, and a pod of
// ours refuses connections meanwhile. A cordon that has had its patience does not begin anew with that.
func TestANodeThatIsReadSlowlyIsWaitedFor(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStage(t, 3)
		n := newNodes(s.kube)
		n.takes = 300 * time.Millisecond
		defer run(t, s.config(readingNodes(n)))()
		n.cordon("node-0")
		<-time.After(rollout.DefaultPolicy().LeavingPatience + time.Minute)
		s.crashes(1)
		answers := func(err error) {
			s.etcd.Set(func(_ *etcdtest.Cluster, ms []*etcdtest.Member) {
				ms[1].ReadErr, ms[1].StatusErr, ms[1].ListErr = err, err, err
			})
		}
		answers(status.Error(codes.Unavailable, "connection refused"))
		s.update("rev-2")
		within(t, time.Minute, "the cure", func() bool { return s.story() != "" })
		answers(nil)
		<-time.After(2 * time.Minute)
		if !s.settled("rev-2") {
			t.Errorf("it is not over:\n%s", s.said())
		}
	})
}

// A permission that comes late counts from the next look at the pods on.
func TestNodesAreWatchedOnceThatIsAllowed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := newKube(t, 3, etcdtest.StartInMemory(t, 3))
		n := newNodes(k)
		n.unwatchable = apierrors.NewForbidden(corev1.Resource("nodes"), "node-0", errors.New("not allowed"))
		defer run(t, config(k, readingNodes(n)))()
		<-time.After(time.Minute)
		if open := n.watched(); open != 0 {
			t.Fatalf("%d watches on nodes", open)
		}
		n.mu.Lock()
		n.unwatchable = nil
		n.mu.Unlock()
		<-time.After(forbiddenFor)
		k.change(func() {})
		within(t, time.Second, "a watch on every node", func() bool { return n.watched() == 3 })
	})
}

// What we have removed ourselves does not keep us from removing the next one, where two may be away.
func TestWhatWeRemoveOurselvesIsNotTakenForOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := newKube(t, 5, etcdtest.StartInMemory(t, 5))
		defer run(t, config(k, func(c *Config) { c.Policy.MaxUnavailable.Number = 2 }))()
		k.update("rev-2")
		terminating := func() (n int) {
			k.mu.Lock()
			defer k.mu.Unlock()
			for _, p := range k.pods {
				if p.DeletionTimestamp != nil {
					n++
				}
			}
			return n
		}
		within(t, time.Minute, "two at a time", func() bool { return terminating() == 2 })
		within(t, time.Minute, "the rollout", func() bool { return k.settled("rev-2") })
	})
}

// Nor is what an earlier coordinator has removed, as far as the record names it.
func TestWhatOurPredecessorHasRemovedIsNotTakenForOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStage(t, 5)
		s.update("rev-2")
		for _, p := range s.pods[:3] {
			p.Labels["controller-revision-hash"] = "rev-2"
		}
		s.pods[4].DeletionTimestamp = &metav1.Time{Time: time.Now()}
		s.annotate(record.IntentAnnotation, fmt.Sprintf(
			`{"operation":"delete","pod":"etcd-4","uid":%q,"resourceVersion":"1","epoch":7}`, s.pods[4].UID))
		defer run(t, s.config(func(c *Config) { c.Policy.MaxUnavailable.Number = 2 }))()
		within(t, time.Minute, "another removal", func() bool { return s.story() != "" })
		s.expect(t, "deleted etcd-3")
	})
}

// The eviction API marks a pod before it deletes it. Where the second step fails, the mark is our own.
func TestTheMarkOfAnEvictionOfOursThatFailedIsNotTakenForOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStage(t, 3)
		defer run(t, s.config(evicting))()
		<-time.After(time.Minute)
		s.answering(func(_ context.Context, request string, send func() error) error {
			if request != "evict etcd-2" || len(s.at("fence etcd-2")) > 0 {
				return send()
			}
			s.evicted(2)
			return apierrors.NewConflict(corev1.Resource("pods"), "etcd-2", errors.New("it was modified"))
		})
		s.update("rev-2")
		within(t, time.Minute, "the rollout", func() bool { return s.settled("rev-2") })
		if said := s.said(); strings.Contains(said, "OthersLeaving") {
			t.Errorf("it was taken for others':\n%s", said)
		}
	})
}

// A watch may hang, and what is read live is right.
func TestACordonThatNoWatchTellsOfHoldsTheRolloutForItsPatience(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := newKube(t, 3, etcdtest.StartInMemory(t, 3))
		truthful(k)
		n := newNodes(k)
		defer run(t, config(k, readingNodes(n)))()
		<-time.After(lateWrites + time.Minute)
		n.mu.Lock()
		n.silent = true
		n.mu.Unlock()
		n.cordon("node-2")
		k.update("rev-2")
		<-time.After(rollout.DefaultPolicy().LeavingPatience - time.Second)
		k.expect(t)
		if gets := n.gets; gets > 100 {
			t.Errorf("nodes were read %d times", gets)
		}
		within(t, time.Minute, "the rollout", func() bool { return k.settled("rev-2") })
		k.expect(t, "deleted etcd-1", "deleted etcd-0", "deleted etcd-2")
	})
}

// A drainer that is stuck leaves its taint there.
func TestTheTaintOfADrainerHoldsTheRolloutForThePatienceOfACordon(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := newKube(t, 3, etcdtest.StartInMemory(t, 3))
		truthful(k)
		n := newNodes(k)
		n.taint = "acme.io/drain"
		named := func(c *Config) { c.DrainTaints = []string{n.taint} }
		defer run(t, config(k, readingNodes(n), named))()
		<-time.After(lateWrites + time.Minute)
		n.cordon("node-2")
		k.update("rev-2")
		<-time.After(rollout.DefaultPolicy().LeavingPatience - time.Second)
		k.expect(t)
		within(t, time.Minute, "the rollout", func() bool { return k.settled("rev-2") })
		k.expect(t, "deleted etcd-1", "deleted etcd-0", "deleted etcd-2")
	})
}

// A cordon holds the rollout for leaving-patience from when it is first seen, told, and then the pod on that node
// goes last.
func TestACordonHoldsTheRolloutForItsPatience(t *testing.T) {
	patience := rollout.DefaultPolicy().LeavingPatience
	for _, tc := range []struct {
		name string
		// between happens while the node is cordoned and nothing is rolled, and what is left of the patience then.
		between func(k *kube, n *kubeNodes)
		left    time.Duration
	}{
		{"however long it lasted before the rollout began", func(*kube, *kubeNodes) {
			<-time.After(7 * time.Minute)
		}, patience - 7*time.Minute},
		{"and other turns do not make it begin anew", func(k *kube, _ *kubeNodes) {
			<-time.After(3 * time.Minute)
			k.change(func() { k.set.Generation++ })
			<-time.After(time.Minute)
			k.change(func() { k.set.Status.ObservedGeneration = k.set.Generation })
			<-time.After(3 * time.Minute)
		}, patience - 7*time.Minute},
		{"but one that ended in between counts anew, whenever it was seen to end", func(_ *kube, n *kubeNodes) {
			<-time.After(7*time.Minute + time.Second)
			n.uncordon("node-2")
			<-time.After(time.Second)
			n.cordon("node-2")
			<-time.After(time.Second)
		}, patience - time.Second},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				k := newKube(t, 3, etcdtest.StartInMemory(t, 3))
				n := newNodes(k)
				defer run(t, config(k, readingNodes(n)))()
				<-time.After(lateWrites + time.Minute)
				n.cordon("node-2")
				tc.between(k, n)
				k.update("rev-2")
				<-time.After(tc.left - time.Second)
				k.expect(t)
				within(t, time.Minute, "the rollout", func() bool { return k.settled("rev-2") })
				k.expect(t, "deleted etcd-1", "deleted etcd-0", "deleted etcd-2")
			})
		})
	}
}
