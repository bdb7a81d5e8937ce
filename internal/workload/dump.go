package workload

import (
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/yaml"

	"github.com/quorate/quorate/pkg/rollout"
)

// Dump is the output of "kubectl get -o yaml" or "-o json": single objects, a List, or several
// documents.
type Dump struct {
	StatefulSets []appsv1.StatefulSet
	Pods         []corev1.Pod
	Leases       []coordinationv1.Lease
	// Nodes may be missing, and then nothing is known of them.
	Nodes []corev1.Node
	// Events may be missing as well. Only those of the StatefulSet count.
	Events []corev1.Event
	// Claims are the pods' volume claims, and may be missing too. So may budgets and ServiceAccounts. No decision rests
	// on these two.
	Claims   []corev1.PersistentVolumeClaim
	Budgets  []policyv1.PodDisruptionBudget
	Accounts []corev1.ServiceAccount

	// DrainTaints are the keys of the taints that announce a drain, beside those that are known. They are not read.
	DrainTaints []string
}

// Read adds the objects of one stream. It skips kinds that Quorate does not use.
func (d *Dump) Read(r io.Reader) error {
	decoder := yaml.NewYAMLOrJSONDecoder(r, 4096)
	for n := 1; ; n++ {
		var object map[string]any
		err := decoder.Decode(&object)
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("document %d: %w", n, err)
		}
		if err := d.add(object); err != nil {
			return fmt.Errorf("document %d: %w", n, err)
		}
	}
}

func (d *Dump) add(object map[string]any) error {
	if len(object) == 0 {
		return nil
	}
	if items, ok := object["items"].([]any); ok {
		for i, item := range items {
			o, ok := item.(map[string]any)
			if !ok {
				return fmt.Errorf("items[%d] is not an object", i)
			}
			if err := d.add(o); err != nil {
				return fmt.Errorf("items[%d]: %w", i, err)
			}
		}
		return nil
	}
	kind, _ := object["kind"].(string)
	switch kind {
	case "StatefulSet":
		return convert(object, &d.StatefulSets)
	case "Pod":
		if err := convert(object, &d.Pods); err != nil {
			return err
		}
		// The API server gives every pod a phase, and a manifest has none. A pod without a status would
		// look as if nothing in it ran.
		if p := &d.Pods[len(d.Pods)-1]; p.Status.Phase == "" {
			return fmt.Errorf("pod %s has no status; give the output of 'kubectl get -o yaml' or '-o json', not a "+
				"manifest",
				p.Name)
		}
		return nil
	case "Lease":
		return convert(object, &d.Leases)
	case "Node":
		return convert(object, &d.Nodes)
	case "PersistentVolumeClaim":
		return convert(object, &d.Claims)
	case "PodDisruptionBudget":
		return convert(object, &d.Budgets)
	case "ServiceAccount":
		return convert(object, &d.Accounts)
	case "Event":
		if version, _ := object["apiVersion"].(string); version != "v1" {
			return nil // Of another API group, with other fields.
		}
		return convert(object, &d.Events)
	case "":
		return errors.New("an object without a kind; give the output of 'kubectl get -o yaml' or '-o json'")
	}
	return nil
}

func convert[T any](object map[string]any, into *[]T) error {
	var typed T
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(object, &typed); err != nil {
		return fmt.Errorf("%v: %w", object["kind"], err)
	}
	*into = append(*into, typed)
	return nil
}

// Select picks the named StatefulSet, or the only one.
func (d *Dump) Select(namespace, name string) (*appsv1.StatefulSet, error) {
	var found []*appsv1.StatefulSet
	var names []string
	for i := range d.StatefulSets {
		s := &d.StatefulSets[i]
		names = append(names, s.Namespace+"/"+s.Name)
		if (name == "" || s.Name == name) && (namespace == "" || s.Namespace == namespace) {
			found = append(found, s)
		}
	}
	switch {
	case len(found) == 1:
		return found[0], nil
	case len(found) == 0 && len(names) == 0:
		return nil, errors.New("there is no StatefulSet among the objects")
	case len(found) == 0:
		return nil, fmt.Errorf("StatefulSet %q is not among the objects; there are %q", namespace+"/"+name, names)
	}
	return nil, fmt.Errorf("there are several StatefulSets (%q); choose one with --namespace and --statefulset", names)
}

// Lease returns the named Lease of a namespace, or nil if the dump does not have it.
func (d *Dump) Lease(namespace, name string) *coordinationv1.Lease {
	for i := range d.Leases {
		if l := &d.Leases[i]; l.Name == name && l.Namespace == namespace {
			return l
		}
	}
	return nil
}

// node returns the named node, or nil if the dump does not have it.
func (d *Dump) node(name string) *corev1.Node {
	for i := range d.Nodes {
		if d.Nodes[i].Name == name {
			return &d.Nodes[i]
		}
	}
	return nil
}

// Facts are those of the StatefulSet, and of the pods in its namespace that its name or an owner
// reference claims.
func (d *Dump) Facts(s *appsv1.StatefulSet, names Names) Observation {
	o := Observation{Set: SetFacts(s, names)}
	for i := range d.Pods {
		p := &d.Pods[i]
		if p.Namespace != s.Namespace {
			continue
		}
		if facts := PodFacts(p, o.Set, names); facts.Owned || facts.Ordinal >= 0 {
			if node := d.node(p.Spec.NodeName); node != nil {
				nodeFacts(&facts, node, p.Spec.Tolerations, d.DrainTaints)
			}
			// Nobody connects to the pods of a dump. Their kubelets are believed, unless nobody hears them.
			facts.Heard = !facts.NodeSilent
			facts.ClaimsGoing = d.claimsGoing(p, o.Set.Claims)
			o.Pods = append(o.Pods, facts)
		}
	}
	o.Set.NotCreated = d.notCreated(s, o)
	return o
}

// claimsGoing are the names of the pod's claims that somebody has deleted. They stay for as long as the pod uses them.
// The StatefulSet controller names those of its templates after template and pod.
func (d *Dump) claimsGoing(p *corev1.Pod, templates []string) []string {
	var going []string
	for i := range d.Claims {
		c := &d.Claims[i]
		if c.Namespace != p.Namespace || c.DeletionTimestamp == nil {
			continue
		}
		made := slices.ContainsFunc(templates, func(t string) bool { return c.Name == t+"-"+p.Name })
		if made || slices.ContainsFunc(p.Spec.Volumes, func(v corev1.Volume) bool {
			return v.PersistentVolumeClaim != nil && v.PersistentVolumeClaim.ClaimName == c.Name
		}) {
			going = append(going, c.Name)
		}
	}
	return going
}

// notCreated is the last thing that the StatefulSet controller has said about a pod that is missing, if that is that it
// could not create it. Whatever it said before that pod was created the last time is over.
func (d *Dump) notCreated(s *appsv1.StatefulSet, o Observation) string {
	var last *corev1.Event
	for n := range o.Set.Replicas {
		name := s.Name + "-" + strconv.Itoa(o.Set.Start+n)
		if len(d.Events) == 0 {
			break
		}
		if slices.ContainsFunc(o.Pods, func(p rollout.Pod) bool { return p.Name == name }) {
			continue
		}
		if e := d.lastAbout(s, name); e != nil && e.Reason == "FailedCreate" &&
			(last == nil || happened(e).After(happened(last))) {
			last = e
		}
	}
	if last == nil {
		return ""
	}
	return strings.TrimSpace(last.Message)
}

// lastAbout is the newest event of the StatefulSet about a pod of its own, which its message names, nil if there is
// none.
func (d *Dump) lastAbout(s *appsv1.StatefulSet, pod string) *corev1.Event {
	var last *corev1.Event
	for i := range d.Events {
		e := &d.Events[i]
		of := &e.InvolvedObject
		about := of.Kind == "StatefulSet" && of.Name == s.Name && e.Namespace == s.Namespace &&
			(of.UID == s.UID || of.UID == "") && slices.Contains(strings.Fields(e.Message), pod)
		if !about {
			continue
		}
		if last == nil || happened(e).After(happened(last)) {
			last = e
		}
	}
	return last
}

// happened is when an event happened last.
func happened(e *corev1.Event) time.Time {
	at := e.LastTimestamp.Time
	for _, other := range []time.Time{e.EventTime.Time, e.FirstTimestamp.Time, e.CreationTimestamp.Time} {
		if at.IsZero() {
			at = other
		}
	}
	return at
}

// Ages are how long the conditions of the pods have lasted, by the objects' own timestamps: a dump has
// no history, and whoever reads it has another clock. If a timestamp is missing, the age is zero, which
// only makes a decision wait.
func (d *Dump) Ages(s *appsv1.StatefulSet, names Names, now time.Time) map[rollout.Sighting]time.Duration {
	ages := map[rollout.Sighting]time.Duration{}
	set := SetFacts(s, names)
	lost := time.Duration(-1)
	for i := range d.Pods {
		p := &d.Pods[i]
		if p.Namespace != s.Namespace || !PodFacts(p, set, names).Owned {
			continue
		}
		note := func(c rollout.Condition, since time.Time) {
			if !since.IsZero() && now.After(since) {
				ages[rollout.Sighting{UID: string(p.UID), Condition: c}] = now.Sub(since)
			}
		}
		note(rollout.PodSeen, p.CreationTimestamp.Time)
		if grace := p.DeletionGracePeriodSeconds; grace != nil && p.DeletionTimestamp != nil {
			began := p.DeletionTimestamp.Add(-time.Duration(*grace) * time.Second)
			if now.After(began) { // What is away is known by its name.
				ages[rollout.Sighting{UID: p.Name, Condition: rollout.AwaySeen}] = now.Sub(began)
			}
		}
		note(rollout.CordonedSeen, cordonedSince(d.node(p.Spec.NodeName), d.DrainTaints))
		if at, holds := condition(p, corev1.PodReady); holds {
			note(rollout.ReadySeen, at)
			lost = 0
		} else {
			note(rollout.UnsettledSeen, at)
			if !at.IsZero() && (lost < 0 || now.Sub(at) < lost) {
				lost = now.Sub(at)
			}
		}
		if c := container(p, names.EtcdContainer); c.Restarts > 0 && !c.Ready {
			unready, _ := condition(p, corev1.ContainersReady)
			note(rollout.RestartingSeen, unready)
		}
		since := stoppedSince(p, names.EtcdContainer)
		note(rollout.TerminatedSeen, since)
		if since.IsZero() {
			since, _ = condition(p, corev1.ContainersReady)
		}
		note(rollout.NotRunningSeen, since)
	}
	// Quorum has been lost no longer than the pod that became unready last, because pods are ready
	// while there is a quorum. So while some pod is still Ready, it was lost only just now.
	if lost > 0 {
		ages[rollout.Sighting{Condition: rollout.QuorumLostSeen}] = lost
	}
	return ages
}

// cordonedSince is when the node was first cordoned, or a drainer marked it, as far as its taints tell.
func cordonedSince(node *corev1.Node, drainTaints []string) (since time.Time) {
	if node == nil {
		return since
	}
	for i := range node.Spec.Taints {
		t := &node.Spec.Taints[i]
		if t.TimeAdded == nil || t.Key != corev1.TaintNodeUnschedulable && drainedFor(t, drainTaints) == "" {
			continue
		}
		if since.IsZero() || t.TimeAdded.Time.Before(since) {
			since = t.TimeAdded.Time
		}
	}
	return since
}

// condition returns whether a condition of a pod holds, and since when.
func condition(p *corev1.Pod, t corev1.PodConditionType) (since time.Time, holds bool) {
	for i := range p.Status.Conditions {
		if c := &p.Status.Conditions[i]; c.Type == t {
			return c.LastTransitionTime.Time, c.Status == corev1.ConditionTrue
		}
	}
	return time.Time{}, false
}

// stoppedSince is when the container's process last ended, or zero if it runs or never ran.
func stoppedSince(p *corev1.Pod, container string) time.Time {
	s := StatusOf(p, container)
	if s == nil {
		return time.Time{}
	}
	switch {
	case s.State.Running != nil:
	case s.State.Terminated != nil:
		return s.State.Terminated.FinishedAt.Time
	case s.LastTerminationState.Terminated != nil:
		return s.LastTerminationState.Terminated.FinishedAt.Time
	}
	return time.Time{}
}
