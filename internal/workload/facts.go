package workload

import (
	"cmp"
	"encoding/json"
	"hash/fnv"
	"slices"
	"strconv"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"

	"github.com/quorate/quorate/pkg/rollout"
)

// Names tie pods to the containers and the etcd members that run in them.
type Names struct {
	// EtcdContainer and SidecarContainer are the names of the two containers that matter. etcd-druid
	// calls them "etcd" and "backup-restore".
	EtcdContainer, SidecarContainer string
	// EtcdDataDir is etcd's data directory in its container, an absolute path. The volume that is
	// mounted there decides whether the data outlives a pod. If it is empty, the pod template decides:
	// first --data-dir in the arguments of etcd's container, then ETCD_DATA_DIR in its environment,
	// then the same of another container if etcd's container mounts a volume there, and at last
	// /var/etcd/data, which is etcd-druid's.
	//
	// If etcd keeps its log elsewhere (--wal-dir or ETCD_WAL_DIR), that has to outlive the pod as well.
	// What a configuration file of etcd's own says cannot be seen.
	EtcdDataDir string
	// MemberOf returns the name of the etcd member that runs in a pod. Nil means that members have the
	// names of their pods.
	MemberOf func(pod string) string
}

// DefaultNames returns the names that etcd-druid gives.
func DefaultNames() Names {
	return Names{EtcdContainer: "etcd", SidecarContainer: "backup-restore"}
}

// SetFacts returns what matters about a StatefulSet.
func SetFacts(s *appsv1.StatefulSet, names Names) rollout.Set {
	set := rollout.Set{
		Namespace: s.Namespace, Name: s.Name, UID: string(s.UID),
		Replicas:           1, // The API server's default. A dump may lack it.
		OnDelete:           s.Spec.UpdateStrategy.Type == appsv1.OnDeleteStatefulSetStrategyType,
		Deleting:           s.DeletionTimestamp != nil,
		Generation:         s.Generation,
		ObservedGeneration: s.Status.ObservedGeneration,
		UpdateRevision:     s.Status.UpdateRevision,
		CurrentRevision:    s.Status.CurrentRevision,
		OrderedReady:       s.Spec.PodManagementPolicy != appsv1.ParallelPodManagement, // The API's default.
		MinReady:           time.Duration(s.Spec.MinReadySeconds) * time.Second,
		Sidecar:            names.SidecarContainer,
	}
	spec := &s.Spec.Template.Spec
	etcd := containerOf(spec, names.EtcdContainer)
	set.VolatileData = volatileData(etcd, spec, s.Spec.VolumeClaimTemplates, names)
	for i := range s.Spec.VolumeClaimTemplates {
		set.Claims = append(set.Claims, s.Spec.VolumeClaimTemplates[i].Name)
	}
	if etcd != nil {
		set.Etcd = programOf(etcd)
	}
	if s.Spec.Replicas != nil {
		set.Replicas = int(*s.Spec.Replicas)
	}
	if s.Spec.Ordinals != nil {
		set.Start = int(s.Spec.Ordinals.Start)
	}
	return set
}

// PodFacts returns what matters about one pod of a StatefulSet.
func PodFacts(p *corev1.Pod, set rollout.Set, names Names) rollout.Pod {
	pod := rollout.Pod{
		Name: p.Name, UID: string(p.UID), ResourceVersion: p.ResourceVersion,
		Ordinal:        ordinal(p.Name, set.Name),
		MemberName:     p.Name,
		Revision:       p.Labels[appsv1.ControllerRevisionHashLabelKey],
		Created:        p.CreationTimestamp.Time,
		Terminating:    p.DeletionTimestamp != nil,
		ReadinessGates: len(p.Spec.ReadinessGates) > 0,
		Etcd:           container(p, names.EtcdContainer),
		Sidecar:        container(p, names.SidecarContainer),
		Node:           p.Spec.NodeName,
		Said:           said(p, names.EtcdContainer),
		Finalizers:     p.Finalizers,
	}
	if d := p.DeletionGracePeriodSeconds; d != nil && p.DeletionTimestamp != nil {
		pod.Grace, pod.GraceEnds = time.Duration(*d)*time.Second, p.DeletionTimestamp.Time
	}
	pod.Leaving, pod.Evicted = disrupted(p)
	if (pod.Leaving == "" || pod.Evicted) && restartsToResize(p, containerOf(&p.Spec, names.EtcdContainer)) {
		pod.Leaving, pod.Evicted = rollout.LeavesToResize, false
	}
	if names.MemberOf != nil {
		pod.MemberName = names.MemberOf(p.Name)
	}
	for i := range p.OwnerReferences {
		if owner := &p.OwnerReferences[i]; owner.Kind == "StatefulSet" && string(owner.UID) == set.UID {
			pod.Owned = true
		}
	}
	_, pod.Ready = condition(p, corev1.PodReady)
	since, ready := condition(p, corev1.ContainersReady)
	initialized, done := condition(p, corev1.PodInitialized)
	pod.ContainersReady, pod.Initialized = ready, done
	// The containers have been unready since the pod was initialized. Had they been ready in between,
	// that condition would have changed later. A pod that has failed has lost whatever was made for it
	// alone, whenever it was ready, and so has one that has succeeded.
	pod.Finished = finished(p)
	pod.NeverReady = !ready && (!done || !since.IsZero() && !initialized.IsZero() && !since.After(initialized)) ||
		pod.Finished
	etcd := containerOf(&p.Spec, names.EtcdContainer)
	pod.VolatileData = volatileData(etcd, &p.Spec, nil, names)
	pod.NoEtcdContainer = etcd == nil
	if etcd != nil {
		pod.EtcdImage = etcd.Image
	}
	pod.Quota = quotaOf(&p.Spec, names)
	for _, claim := range set.Claims {
		if !claims(&p.Spec, claim) {
			pod.Unclaimed = append(pod.Unclaimed, claim)
		}
	}
	if containerOf(&p.Spec, names.SidecarContainer) == nil {
		// It has no sidecar that could be sick.
		pod.Sidecar = rollout.Container{State: rollout.ContainerRunning, Ready: true}
	}
	return pod
}

// finished is true for a pod in which nothing runs any more, and nothing will. After a shutdown of its node it may
// have succeeded (kubernetes#121389). The StatefulSet controller deletes both sorts, and creates them anew.
func finished(p *corev1.Pod) bool {
	return p.Status.Phase == corev1.PodFailed || p.Status.Phase == corev1.PodSucceeded
}

// restartsToResize is true while a resize of the pod in place is under way, and is going to restart the container. As
// soon as that has restarted, its status has the resources that were wished for. A resize that is pending may never
// begin.
func restartsToResize(p *corev1.Pod, c *corev1.Container) bool {
	if _, underWay := condition(p, corev1.PodResizeInProgress); !underWay || c == nil {
		return false
	}
	s := StatusOf(p, c.Name)
	for _, policy := range c.ResizePolicy {
		if policy.RestartPolicy == corev1.RestartContainer &&
			(s == nil || s.Resources == nil || differ(c.Resources, *s.Resources, policy.ResourceName)) {
			return true
		}
	}
	return false
}

// differ is true where the wish for a resource is not what there is.
func differ(wish, is corev1.ResourceRequirements, name corev1.ResourceName) bool {
	request, limit := wish.Requests[name], wish.Limits[name]
	return request.Cmp(is.Requests[name]) != 0 || limit.Cmp(is.Limits[name]) != 0
}

// claims is true for a pod that has a volume of that name, and a claim behind it. The StatefulSet controller also
// compares the name of the claim, which it has made itself.
func claims(spec *corev1.PodSpec, volume string) bool {
	for i := range spec.Volumes {
		if v := &spec.Volumes[i]; v.Name == volume {
			return v.PersistentVolumeClaim != nil
		}
	}
	return false
}

// ordinal returns the ordinal of a pod of the named StatefulSet, and -1 for any other name. It reads
// digits as the StatefulSet controller does, which takes "etcd-main-01" for ordinal 1 as well. Two pods
// that share an ordinal are a contradiction, and hold the rollout ([rollout.GuardInconsistent]).
func ordinal(pod, set string) int {
	digits, ours := strings.CutPrefix(pod, set)
	digits, dashed := strings.CutPrefix(digits, "-")
	if !ours || !dashed {
		return -1
	}
	n, err := strconv.ParseUint(digits, 10, 31)
	if err != nil {
		return -1
	}
	return int(n)
}

// containerOf returns the container of that name, or nil.
func containerOf(spec *corev1.PodSpec, name string) *corev1.Container {
	for i := range spec.Containers {
		if spec.Containers[i].Name == name {
			return &spec.Containers[i]
		}
	}
	for i := range spec.InitContainers {
		if spec.InitContainers[i].Name == name {
			return &spec.InitContainers[i]
		}
	}
	return nil
}

// container reads what the kubelet says about one container. A sidecar may also be an init container
// that keeps running.
func container(p *corev1.Pod, name string) rollout.Container {
	if finished(p) {
		// It keeps its last container statuses, or has none at all.
		reason := cmp.Or(p.Status.Reason, string(p.Status.Phase))
		return rollout.Container{State: rollout.ContainerTerminated, Reason: reason, Why: short(p.Status.Message)}
	}
	s := StatusOf(p, name)
	if s == nil {
		reason, why := unscheduled(p)
		return rollout.Container{Reason: reason, Why: short(why)}
	}
	c := rollout.Container{Ready: s.Ready, Restarts: int(s.RestartCount)}
	switch {
	case s.State.Running != nil:
		c.State = rollout.ContainerRunning
		if last := s.LastTerminationState.Terminated; last != nil {
			c.Why = lastEnd(last)
		}
	case s.State.Terminated != nil:
		c.State, c.Reason = rollout.ContainerTerminated, s.State.Terminated.Reason
		c.Why = exitOf(s.State.Terminated)
	case s.State.Waiting != nil:
		c.State, c.Reason = rollout.ContainerWaiting, s.State.Waiting.Reason
		last := s.LastTerminationState.Terminated
		switch init := held(p, name); {
		case init != nil:
			c.Why = "init container " + init.Name + ": " + init.State.Waiting.Reason
		case c.Reason == crashLoop && last != nil: // The kubelet's message only says for how long it backs off.
			c.Why = lastEnd(last)
		default:
			c.Why = short(s.State.Waiting.Message)
		}
	default:
		c.State = rollout.ContainerWaiting // The API defines that an empty state means this.
	}
	return c
}

// lastEnd says how the process before this one ended.
func lastEnd(t *corev1.ContainerStateTerminated) string {
	return "its last process ended with " + cmp.Or(t.Reason, "no reason") + ", " + exitOf(t)
}

// exitOf says how a process ended.
func exitOf(t *corev1.ContainerStateTerminated) string {
	text := "exit code " + strconv.Itoa(int(t.ExitCode))
	if t.Message != "" {
		text += ": " + short(t.Message)
	}
	return text
}

// crashLoop is the kubelet's reason for a container that it does not start again at once.
const crashLoop = "CrashLoopBackOff"

// held is the init container that the kubelet cannot start, or does not start again at once, and nil if there is none.
// The container of that name, which waits for it, does not count.
func held(p *corev1.Pod, name string) *corev1.ContainerStatus {
	for i := range p.Status.InitContainerStatuses {
		s := &p.Status.InitContainerStatuses[i]
		if w := s.State.Waiting; w != nil && w.Reason != "" && w.Reason != podInitializing && s.Name != name {
			return s
		}
	}
	return nil
}

// podInitializing is the kubelet's reason for a container that waits for an init container.
const podInitializing = "PodInitializing"

// longest is how long the words of others may be: they are for people, and the Lease has room for little.
const longest = 300

// short puts somebody else's words on one line, which is not too long.
func short(words string) string {
	text := strings.Join(strings.Fields(words), " ")
	if len(text) <= longest {
		return text
	}
	return strings.ToValidUTF8(text[:longest], "") + "…"
}

// unscheduled is the scheduler's reason for which a pod has no node yet, with its words, and empty if it has given
// none.
func unscheduled(p *corev1.Pod) (reason, words string) {
	for i := range p.Status.Conditions {
		if c := &p.Status.Conditions[i]; c.Type == corev1.PodScheduled && c.Status == corev1.ConditionFalse {
			return c.Reason, c.Message
		}
	}
	return "", ""
}

// said stands for the kubelet's word on a container, and changes with it. The node controller, which takes only the
// condition Ready away, has no part in it. It is empty while the pod has no node, because no kubelet speaks then.
func said(p *corev1.Pod, container string) string {
	if p.Spec.NodeName == "" {
		return ""
	}
	words, err := json.Marshal(StatusOf(p, container))
	if err != nil { // It came as JSON.
		return "?"
	}
	sum := fnv.New64a()
	_, _ = sum.Write(words)
	return strconv.FormatUint(sum.Sum64(), 36)
}

// addressesOf are the addresses that are the pod's own, and those of its node.
func addressesOf(p *corev1.Pod) (a Addresses) {
	for _, ip := range p.Status.PodIPs {
		a.Pod = append(a.Pod, ip.IP)
	}
	for _, ip := range p.Status.HostIPs {
		if !slices.Contains(a.Pod, ip.IP) { // In the network of its host, it has no address of its own.
			a.Host = append(a.Host, ip.IP)
		}
	}
	return a
}

func unbrokenOf(p *corev1.Pod, etcd string) unbroken {
	var u unbroken
	u.ready, _ = condition(p, corev1.PodReady)
	if s := StatusOf(p, etcd); s != nil {
		u.etcd, u.restarts = s.State, s.RestartCount
	}
	return u
}

// StatusOf returns the status of the container or init container of that name, or nil.
func StatusOf(p *corev1.Pod, name string) *corev1.ContainerStatus {
	for _, statuses := range [][]corev1.ContainerStatus{p.Status.ContainerStatuses, p.Status.InitContainerStatuses} {
		for i := range statuses {
			if statuses[i].Name == name {
				return &statuses[i]
			}
		}
	}
	return nil
}
