package workload_test

import (
	"context"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/quorate/quorate/internal/rollout"
	"github.com/quorate/quorate/internal/workload"
)

// nodeAPI answers for the nodes that it has, and refuses the one it is told to.
type nodeAPI struct {
	*api
	nodes     map[string]*corev1.Node
	forbidden string
	mu        sync.Mutex
	got       []string
}

func (a *nodeAPI) Get(_ context.Context, name string, _ metav1.GetOptions) (*corev1.Node, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.got = append(a.got, name)
	if name == a.forbidden {
		return nil, apierrors.NewForbidden(corev1.Resource("nodes"), name, nil)
	}
	if node, ok := a.nodes[name]; ok {
		return node, nil
	}
	return nil, apierrors.NewNotFound(corev1.Resource("nodes"), name)
}

func node(changes ...func(*corev1.Node)) *corev1.Node {
	n := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n1"}}
	for _, change := range changes {
		change(n)
	}
	return n
}

func cordoned(n *corev1.Node) { n.Spec.Unschedulable = true }

func tainted(key, value string, effect corev1.TaintEffect) func(*corev1.Node) {
	return func(n *corev1.Node) {
		n.Spec.Taints = append(n.Spec.Taints, corev1.Taint{Key: key, Value: value, Effect: effect})
	}
}

func onNode(p *corev1.Pod) { p.Spec.NodeName = "n1" }

func tolerating(tolerations ...corev1.Toleration) func(*corev1.Pod) {
	return func(p *corev1.Pod) { p.Spec.Tolerations = append(p.Spec.Tolerations, tolerations...) }
}

func TestWhoLeavesIsSeenByThePodAndItsNode(t *testing.T) {
	const evicts = "node n1 has the taint maintenance:NoExecute"
	condition := func(status corev1.ConditionStatus) func(*corev1.Pod) {
		return func(p *corev1.Pod) {
			p.Status.Conditions = append(p.Status.Conditions, corev1.PodCondition{
				Type: corev1.DisruptionTarget, Status: status, Reason: "EvictionByEvictionAPI"})
		}
	}
	evicting := node(tainted("maintenance", "now", corev1.TaintEffectNoExecute))
	loaded := func(value string) *corev1.Node { return node(tainted("load", value, corev1.TaintEffectNoExecute)) }
	for _, tc := range []struct {
		name     string
		pod      *corev1.Pod
		node     *corev1.Node
		leaving  string
		cordoned bool
	}{
		{"a pod in health on a node in health stays", pod(onNode), node(), "", false},
		{"a pod that has been evicted leaves", pod(onNode, condition(corev1.ConditionTrue)), node(),
			"DisruptionTarget EvictionByEvictionAPI", false},
		{"but not once that is over", pod(onNode, condition(corev1.ConditionFalse)), node(), "", false},
		{"a cordoned node", pod(onNode), node(cordoned), "", true},
		{"a cordoned node, by its taint", pod(onNode),
			node(tainted(corev1.TaintNodeUnschedulable, "", corev1.TaintEffectNoSchedule)), "", true},
		{"which the pod tolerates",
			pod(onNode, tolerating(corev1.Toleration{Key: corev1.TaintNodeUnschedulable, Operator: corev1.TolerationOpExists})),
			node(tainted(corev1.TaintNodeUnschedulable, "", corev1.TaintEffectNoSchedule)), "", false},
		{"a pod that has been evicted from a cordoned node", pod(onNode, condition(corev1.ConditionTrue)), node(cordoned),
			"DisruptionTarget EvictionByEvictionAPI", true},
		{"another taint that only keeps new pods away",
			pod(onNode), node(tainted("gpu", "", corev1.TaintEffectNoSchedule)), "", false},
		{"a taint that evicts the pod", pod(onNode), evicting, evicts, false},
		{"in a while", pod(onNode, tolerating(corev1.Toleration{Key: "maintenance", Operator: corev1.TolerationOpExists,
			TolerationSeconds: ptr(int64(300))})), evicting, evicts, false},
		{"a taint that the pod tolerates",
			pod(onNode, tolerating(corev1.Toleration{Key: "maintenance", Operator: corev1.TolerationOpExists})),
			evicting, "", false},
		{"by its value", pod(onNode, tolerating(corev1.Toleration{Key: "maintenance", Value: "now",
			Effect: corev1.TaintEffectNoExecute})), evicting, "", false},
		{"but not another value", pod(onNode, tolerating(corev1.Toleration{Key: "maintenance", Value: "later"})),
			evicting, evicts, false},
		{"nor another effect", pod(onNode, tolerating(corev1.Toleration{Key: "maintenance",
			Operator: corev1.TolerationOpExists, Effect: corev1.TaintEffectNoSchedule})), evicting, evicts, false},
		{"nor another key",
			pod(onNode, tolerating(corev1.Toleration{Key: "other", Operator: corev1.TolerationOpExists})),
			evicting, evicts, false},
		{"nor by an operator that nobody knows",
			pod(onNode, tolerating(corev1.Toleration{Key: "maintenance", Operator: "Near", Value: "now"})),
			evicting, evicts, false},
		{"a taint whose value is below what the pod tolerates", pod(onNode, tolerating(corev1.Toleration{Key: "load",
			Operator: corev1.TolerationOpLt, Value: "10"})), loaded("9"), "", false},
		{"but not as much", pod(onNode, tolerating(corev1.Toleration{Key: "load",
			Operator: corev1.TolerationOpLt, Value: "10"})), loaded("10"), "node n1 has the taint load:NoExecute", false},
		{"or above it", pod(onNode, tolerating(corev1.Toleration{Key: "load",
			Operator: corev1.TolerationOpGt, Value: "-10"})), loaded("-9"), "", false},
		{"but not below", pod(onNode, tolerating(corev1.Toleration{Key: "load",
			Operator: corev1.TolerationOpGt, Value: "10"})), loaded("9"), "node n1 has the taint load:NoExecute", false},
		{"nor what is no number as the API writes it", pod(onNode, tolerating(corev1.Toleration{Key: "load",
			Operator: corev1.TolerationOpGt, Value: "10"})), loaded("011"), "node n1 has the taint load:NoExecute", false},
		{"nor beside one", pod(onNode, tolerating(corev1.Toleration{Key: "load",
			Operator: corev1.TolerationOpLt, Value: "much"})), loaded("1"), "node n1 has the taint load:NoExecute", false},
		{"a pod that tolerates everything", pod(onNode, tolerating(corev1.Toleration{Operator: corev1.TolerationOpExists})),
			evicting, "", false},
		{"the first toleration that matches counts, as for the controller that evicts", pod(onNode,
			tolerating(corev1.Toleration{Operator: corev1.TolerationOpExists, TolerationSeconds: ptr(int64(9))},
				corev1.Toleration{Key: "maintenance", Operator: corev1.TolerationOpExists})), evicting, evicts, false},
		{"a node that does not exist any more", pod(onNode), nil, "node n1 does not exist any more", false},
		{"a pod that waits for a node", pod(), nil, "", false},
		{"what the node says outweighs an eviction, which may have failed",
			pod(onNode, condition(corev1.ConditionTrue)), evicting, evicts, false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			nodes := &nodeAPI{nodes: map[string]*corev1.Node{}}
			if tc.node != nil {
				nodes.nodes["n1"] = tc.node
			}
			a := &api{set: statefulSet(), pods: []corev1.Pod{*tc.pod}}
			o, err := newWorkload(a).Observe(t.Context())
			if err == nil {
				err = o.ReadNodes(t.Context(), nodes)
			}
			if err != nil {
				t.Fatal(err)
			}
			if p := o.Pods[0]; p.Leaving != tc.leaving || p.Cordoned != tc.cordoned {
				t.Errorf("leaving %q, cordoned %t; want %q, %t", p.Leaving, p.Cordoned, tc.leaving, tc.cordoned)
			}
			if p := o.Pods[0]; p.Evicted != strings.HasSuffix(p.Leaving, "EvictionByEvictionAPI") {
				t.Errorf("leaving %q, evicted %t", p.Leaving, p.Evicted)
			}

			// A dump tells the same, except that it may lack nodes.
			p := tc.pod.DeepCopy()
			p.Namespace = "ns"
			d := workload.Dump{Pods: []corev1.Pod{*p}}
			if tc.node != nil {
				d.Nodes = append(d.Nodes, *tc.node)
			}
			facts := d.Facts(statefulSet(), workload.DefaultNames()).Pods[0]
			if tc.node != nil && (facts.Leaving != tc.leaving || facts.Cordoned != tc.cordoned) ||
				tc.node == nil && (facts.Leaving != "" || facts.Cordoned) {
				t.Errorf("from a dump: leaving %q, cordoned %t", facts.Leaving, facts.Cordoned)
			}
		})
	}
}

// Only the nodes of our own pods are read, each once and by its name.
func TestOnlyTheNodesOfOurPodsAreRead(t *testing.T) {
	on := func(name, node string, changes ...func(*corev1.Pod)) corev1.Pod {
		p := pod(changes...)
		p.Name, p.Spec.NodeName = name, node
		return *p
	}
	nodes := &nodeAPI{nodes: map[string]*corev1.Node{"a": node(), "b": node(cordoned)}}
	o, err := newWorkload(&api{set: statefulSet(), pods: []corev1.Pod{
		on("etcd-main-0", "b"), on("etcd-main-1", "a"), on("etcd-main-2", "b"),
		on("job", "c", func(p *corev1.Pod) { p.OwnerReferences = nil }),
	}}).Observe(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if err := o.ReadNodes(t.Context(), nodes); err != nil {
		t.Fatal(err)
	}
	slices.Sort(nodes.got)
	if want := []string{"a", "b"}; !slices.Equal(nodes.got, want) {
		t.Errorf("nodes %v were read, want %v", nodes.got, want)
	}
	for i, want := range []bool{true, false, true, false} {
		if o.Pods[i].Cordoned != want {
			t.Errorf("%s: cordoned %t", o.Pods[i].Name, o.Pods[i].Cordoned)
		}
	}
	nodes.forbidden = "a"
	if err := o.ReadNodes(t.Context(), nodes); !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), "get node a") {
		t.Errorf("got %v, want that node a is forbidden", err)
	}
}

// A node's status changes all the time. Nobody is called for that, nor for a watch that begins anew.
func TestAWatchOfANodeTellsOfCordonsAndTaintsOnly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := &nodeAPI{api: &api{}}
		ctx, cancel := context.WithCancel(t.Context())
		calls, ended := 0, make(chan struct{})
		go func() {
			defer close(ended)
			workload.WatchNode(ctx, a, "n1", &workload.Mirror[*corev1.Node]{}, func() { calls++ }, func(err error) { t.Error(err) })
		}()
		synctest.Wait()
		opened, asked := a.watching()
		if len(asked) != 1 || asked[0].FieldSelector != "metadata.name=n1" {
			t.Fatalf("watches %+v", asked)
		}
		later := tainted("maintenance", "", corev1.TaintEffectNoExecute)
		for _, step := range []struct {
			what string
			node *corev1.Node
			want int
		}{
			{"it is seen first", node(), 1},
			{"its status changes", node(func(n *corev1.Node) { n.Status.Phase = corev1.NodeRunning }), 1},
			{"it is cordoned", node(cordoned), 2},
			{"its labels change", node(cordoned, func(n *corev1.Node) { n.Labels = map[string]string{"a": "b"} }), 2},
			{"it has a taint", node(cordoned, later), 3},
			{"it is uncordoned", node(later), 4},
			{"it has none", node(), 5},
		} {
			opened[0].Modify(step.node)
			synctest.Wait()
			if calls != step.want {
				t.Errorf("%s: called %d times, want %d", step.what, calls, step.want)
			}
		}
		opened[0].Stop()
		<-time.After(time.Second)
		synctest.Wait()
		opened, _ = a.watching()
		opened[1].Add(node())
		synctest.Wait()
		if calls != 5 {
			t.Errorf("called %d times, want 5, for a watch that begins anew", calls)
		}
		opened[1].Action(watch.Deleted, node())
		synctest.Wait()
		if calls != 6 {
			t.Errorf("called %d times, want 6, when the node is gone", calls)
		}
		opened[1].Add(node())
		synctest.Wait()
		if calls != 7 {
			t.Errorf("called %d times, want 7, when another one has its name", calls)
		}
		cancel()
		<-ended
	})
}

func TestTheAgeOfACordonInADumpIsThatOfItsTaint(t *testing.T) {
	now := time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)
	p := pod(onNode)
	p.Namespace = "ns"
	d := workload.Dump{Pods: []corev1.Pod{*p}, Nodes: []corev1.Node{*node(cordoned)}}
	seen := rollout.Sighting{UID: string(p.UID), Condition: rollout.CordonedSeen}
	if age := d.Ages(statefulSet(), workload.DefaultNames(), now)[seen]; age != 0 {
		t.Errorf("without a taint nobody knows for how long, and it is %v", age)
	}
	d.Nodes[0].Spec.Taints = []corev1.Taint{{Key: corev1.TaintNodeUnschedulable, Effect: corev1.TaintEffectNoSchedule,
		TimeAdded: ptr(metav1.NewTime(now.Add(-time.Hour)))}}
	if age := d.Ages(statefulSet(), workload.DefaultNames(), now)[seen]; age != time.Hour {
		t.Errorf("cordoned for %v, want an hour", age)
	}
}
