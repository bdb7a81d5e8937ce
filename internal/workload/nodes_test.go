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

	"github.com/quorate/quorate/internal/workload"
	"github.com/quorate/quorate/pkg/rollout"
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
			o, err := newView(a).Observe(t.Context())
			if err == nil {
				err = o.ReadNodes(t.Context(), nodes, nil)
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

// Those who take nodes away mostly do not cordon. They announce it by a taint of their own.
func TestTheTaintOfADrainerCountsLikeACordon(t *testing.T) {
	const by = "acme.io/drain"
	no, prefer := corev1.TaintEffectNoSchedule, corev1.TaintEffectPreferNoSchedule
	all := tolerating(corev1.Toleration{Operator: corev1.TolerationOpExists})
	karpenter := node(tainted("karpenter.sh/disrupted", "", no))
	const disrupted = "karpenter.sh/disrupted:NoSchedule (Karpenter is about to remove it)"
	for _, tc := range []struct {
		name    string
		pod     *corev1.Pod
		node    *corev1.Node
		leaving string
		drained string
	}{
		{"Karpenter", pod(onNode), karpenter, "", disrupted},
		{"Karpenter before 1.0", pod(onNode), node(tainted("karpenter.sh/disruption", "disrupting", no)), "",
			"karpenter.sh/disruption:NoSchedule (Karpenter is about to remove it)"},
		{"the cluster autoscaler", pod(onNode), node(tainted("ToBeDeletedByClusterAutoscaler", "1764331200", no)), "",
			"ToBeDeletedByClusterAutoscaler:NoSchedule (the cluster autoscaler is about to delete it)"},
		{"the cluster autoscaler on Oracle's cloud", pod(onNode),
			node(tainted("ignore-taint.cluster-autoscaler.kubernetes.io/oke-impending-node-termination", "", no)), "",
			"ignore-taint.cluster-autoscaler.kubernetes.io/oke-impending-node-termination:NoSchedule " +
				"(the cluster autoscaler is about to delete it)"},
		{"AWS takes a spot instance", pod(onNode), node(tainted("aws-node-termination-handler/spot-itn", "x", no)), "",
			"aws-node-termination-handler/spot-itn:NoSchedule (AWS is about to take the spot instance)"},
		{"AWS maintains an instance", pod(onNode),
			node(tainted("aws-node-termination-handler/scheduled-maintenance", "x", no)), "",
			"aws-node-termination-handler/scheduled-maintenance:NoSchedule (AWS is about to maintain the instance)"},
		{"AWS scales in", pod(onNode),
			node(tainted("aws-node-termination-handler/asg-lifecycle-termination", "x", no)), "",
			"aws-node-termination-handler/asg-lifecycle-termination:NoSchedule " +
				"(AWS is about to terminate the instance)"},
		{"AWS recommends to leave", pod(onNode),
			node(tainted("aws-node-termination-handler/rebalance-recommendation", "x", no)), "",
			"aws-node-termination-handler/rebalance-recommendation:NoSchedule (AWS may soon take the spot instance)"},
		{"GKE", pod(onNode), node(tainted("cloud.google.com/impending-node-termination", "", no)), "",
			"cloud.google.com/impending-node-termination:NoSchedule (GCE is about to terminate the machine)"},
		{"GKE on bare metal", pod(onNode), node(tainted("baremetal.cluster.gke.io/maintenance", "", no)), "",
			"baremetal.cluster.gke.io/maintenance:NoSchedule (Google Distributed Cloud drains it for maintenance)"},
		{"Azure takes a spot machine", pod(onNode), node(tainted("aks-node-termination-handler/preempt", "id", no)), "",
			"aks-node-termination-handler/preempt:NoSchedule (Azure is about to take the spot machine)"},
		{"Azure deletes a machine", pod(onNode), node(tainted("aks-node-termination-handler/terminate", "id", no)), "",
			"aks-node-termination-handler/terminate:NoSchedule (Azure is about to delete the machine)"},
		{"Azure reboots a machine", pod(onNode), node(tainted("aks-node-termination-handler/reboot", "id", no)), "",
			"aks-node-termination-handler/reboot:NoSchedule (Azure is about to reboot the machine)"},
		{"Azure moves a machine", pod(onNode), node(tainted("aks-node-termination-handler/redeploy", "id", no)), "",
			"aks-node-termination-handler/redeploy:NoSchedule (Azure is about to move the machine)"},
		{"CAST AI", pod(onNode), node(tainted("autoscaling.cast.ai/draining", "true", no)), "",
			"autoscaling.cast.ai/draining:NoSchedule (CAST AI drains it)"},
		{"a drainer that only the operator knows", pod(onNode), node(tainted(by, "", no)), "",
			"acme.io/drain:NoSchedule (a drainer named by drain-taints is about to take it)"},
		{"one that cordons too", pod(onNode), node(cordoned, tainted("karpenter.sh/disrupted", "", no)), "", disrupted},
		{"a toleration spares no pod: the machine goes", pod(onNode, all), karpenter, "", disrupted},
		{"a taint that evicts the pod needs no drainer", pod(onNode),
			node(tainted("karpenter.sh/disrupted", "", corev1.TaintEffectNoExecute)),
			"node n1 has the taint karpenter.sh/disrupted:NoExecute (Karpenter is about to remove it)", ""},
		{"and one that does not still announces that the machine goes", pod(onNode, all),
			node(tainted("karpenter.sh/disrupted", "", corev1.TaintEffectNoExecute)), "",
			"karpenter.sh/disrupted:NoExecute (Karpenter is about to remove it)"},

		{"the cluster autoscaler's candidate stays",
			pod(onNode), node(tainted("DeletionCandidateOfClusterAutoscaler", "1764331200", prefer)), "", ""},
		{"what may only be avoided stays", pod(onNode),
			node(tainted("aws-node-termination-handler/spot-itn", "x", prefer)), "", ""},
		{"also by the operator's word", pod(onNode), node(tainted(by, "", prefer)), "", ""},
		{"a node that is set apart stays", pod(onNode), node(tainted("dedicated", "etcd", no)), "", ""},
		{"so does a new node", pod(onNode), node(tainted("karpenter.sh/unregistered", "", no)), "", ""},
		{"and one under memory pressure", pod(onNode), node(tainted(corev1.TaintNodeMemoryPressure, "", no)), "", ""},
		{"and one that is out of use in Cluster API", pod(onNode),
			node(tainted("node.cluster.x-k8s.io/outdated-revision", "", prefer)), "", ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			check := func(how string, p rollout.Pod) {
				t.Helper()
				if p.Leaving != tc.leaving || p.Drained != tc.drained || p.Cordoned != (tc.drained != "") {
					t.Errorf("%s: leaving %q, drained %q, cordoned %t; want %q, %q", how, p.Leaving, p.Drained,
						p.Cordoned, tc.leaving, tc.drained)
				}
			}
			nodes := &nodeAPI{nodes: map[string]*corev1.Node{"n1": tc.node}}
			o, err := newView(&api{set: statefulSet(), pods: []corev1.Pod{*tc.pod}}).Observe(t.Context())
			if err == nil {
				err = o.ReadNodes(t.Context(), nodes, []string{by})
			}
			if err != nil {
				t.Fatal(err)
			}
			check("live", o.Pods[0])
			p := tc.pod.DeepCopy()
			p.Namespace = "ns"
			d := workload.Dump{Pods: []corev1.Pod{*p}, Nodes: []corev1.Node{*tc.node}, DrainTaints: []string{by}}
			check("from a dump", d.Facts(statefulSet(), workload.DefaultNames()).Pods[0])
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
	o, err := newView(&api{set: statefulSet(), pods: []corev1.Pod{
		on("etcd-main-0", "b"), on("etcd-main-1", "a"), on("etcd-main-2", "b"),
		on("job", "c", func(p *corev1.Pod) { p.OwnerReferences = nil }),
	}}).Observe(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if err := o.ReadNodes(t.Context(), nodes, nil); err != nil {
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
	err = o.ReadNodes(t.Context(), nodes, nil)
	if !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), "get node a") {
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
		<-time.After(reopened)
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
	d.Nodes[0].Spec.Taints = append(d.Nodes[0].Spec.Taints, corev1.Taint{Key: "ToBeDeletedByClusterAutoscaler",
		Effect: corev1.TaintEffectNoSchedule, TimeAdded: ptr(metav1.NewTime(now.Add(-2 * time.Hour)))})
	if age := d.Ages(statefulSet(), workload.DefaultNames(), now)[seen]; age != 2*time.Hour {
		t.Errorf("marked by a drainer for %v, want two hours", age)
	}
}
