package main

import (
	"context"
	"fmt"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/quorate/quorate/coordinator"
)

// sidecarsStarted is the name of the gate below.
const sidecarsStarted = "SidecarsStarted"

// configuration is the annotation of the pod template with the checksum of etcd's configuration. Etcd-druid sets it.
// It changes with TLS between peers, the number of members and the quota, but not with images and resources.
const configuration = "checksum/etcd-configmap"

// way is the way out where a sidecar never gets so far. The gate then also keeps the pod itself, which may be the cure.
const way = " (if that lasts, mend the sidecar, and delete this pod yourself once all others serve)"

// started says whether sidecars may still restart etcd.
//
// A sidecar of the host waits at its start until etcd runs. If etcd's configuration then has another peer URL than
// the member list, it writes the new one there and restarts etcd, once. The pod may be Ready before that. Whatever came
// of it, the sidecar begins to renew its member's Lease only afterwards, and not at once but after one heartbeat. So
// this Lease tells that the restart is over.
//
// That can only happen where etcd's configuration changes. So all other rollouts wait for nothing.
type started struct {
	statefulSets coordinator.StatefulSets
	pods         coordinator.Pods
	leases       coordinator.Leases
	set          string
	names        coordinator.Names
	// proved has, by the UIDs of their pods, since when the sidecars run that have renewed their Leases.
	proved map[types.UID]time.Time
}

func newStarted(cfg coordinator.Config) *started {
	return &started{statefulSets: cfg.StatefulSets, pods: cfg.Pods, leases: cfg.Leases, set: cfg.StatefulSet,
		names: cfg.Names, proved: map[types.UID]time.Time{}}
}

func (s *started) ask(ctx context.Context) (pass bool, detail string) {
	set, err := s.statefulSets.Get(ctx, s.set, metav1.GetOptions{})
	if err != nil {
		return false, fmt.Sprintf("StatefulSet %s cannot be read: %v", s.set, err)
	}
	selector, err := metav1.LabelSelectorAsSelector(set.Spec.Selector)
	if err != nil {
		return false, fmt.Sprintf("StatefulSet %s: spec.selector: %v", s.set, err)
	}
	pods, err := s.pods.List(ctx, metav1.ListOptions{LabelSelector: selector.String()})
	if err != nil {
		return false, fmt.Sprintf("the pods of StatefulSet %s cannot be read: %v", s.set, err)
	}
	// The template's configuration counts, and not the revision. If the template changes twice, the pods of the first
	// change are outdated, and may still restart etcd.
	newest := set.Spec.Template.Annotations[configuration]
	var all int
	var newer []*corev1.Pod
	for i := range pods.Items {
		p := &pods.Items[i]
		if !metav1.IsControlledBy(p, set) {
			continue // The Jobs of etcd-druid that compact snapshots have the same labels.
		}
		all++
		if p.Annotations[configuration] == newest {
			newer = append(newer, p)
		}
	}
	if len(newer) == all {
		clear(s.proved) // All of these pods may be replaced before it matters again.
		return true, "all pods have the same configuration of etcd"
	}
	for _, p := range newer {
		if doubt := s.doubt(ctx, p); doubt != "" {
			return false, p.Name + ": " + doubt
		}
	}
	return true, fmt.Sprintf("pods with the new configuration of etcd: %d of %d; their sidecars have started",
		len(newer), all)
}

// doubt says why the sidecar of a pod may still restart etcd. It is empty if that is over.
func (s *started) doubt(ctx context.Context, p *corev1.Pod) string {
	since := s.runningSince(p)
	if since.IsZero() {
		return fmt.Sprintf("its sidecar (container %s) does not run, and may restart etcd when it does"+way,
			s.names.SidecarContainer)
	}
	if s.proved[p.UID].Equal(since) {
		return ""
	}
	member := p.Name
	if s.names.MemberOf != nil {
		member = s.names.MemberOf(p.Name)
	}
	at := since.UTC().Format(time.RFC3339)
	lease, err := s.leases.Get(ctx, member, metav1.GetOptions{})
	if err != nil {
		return fmt.Sprintf("Lease %s cannot be read, so its sidecar, which started at %s, may still restart etcd: %v",
			member, at, err)
	}
	// Both times come from the same node. Only if the pod has moved to another node, the Lease has a time of the node
	// before, until it is renewed. The kubelet tells whole seconds, so the sidecar may have started up to a second
	// later, and the one before it may have renewed the Lease in that second.
	if renewed := lease.Spec.RenewTime; renewed == nil || renewed.Time.Before(since.Add(time.Second)) {
		return fmt.Sprintf("its sidecar has not renewed Lease %s since it started at %s, and may still restart etcd"+
			way, member, at)
	}
	s.proved[p.UID] = since
	return ""
}

// runningSince returns when the pod's sidecar last started, and zero if it does not run. It may also be an init
// container that keeps running.
func (s *started) runningSince(p *corev1.Pod) time.Time {
	for _, c := range slices.Concat(p.Status.ContainerStatuses, p.Status.InitContainerStatuses) {
		if c.Name == s.names.SidecarContainer && c.State.Running != nil {
			return c.State.Running.StartedAt.Time
		}
	}
	return time.Time{}
}
