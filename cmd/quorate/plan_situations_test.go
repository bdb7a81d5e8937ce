package main

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	serializer "k8s.io/apimachinery/pkg/runtime/serializer/json"
	"k8s.io/apimachinery/pkg/types"

	"github.com/quorate/quorate/internal/report"
)

// now is the time of every dump.
var now = time.Date(2026, 1, 2, 15, 4, 5, 0, time.UTC)

func ago(d time.Duration) metav1.Time { return metav1.NewTime(now.Add(-d)) }

const (
	oldRevision  = "etcd-main-5f6d8c9b7d"
	newRevision  = "etcd-main-7c9f4b6d58"
	setUID       = "1b4e28ba-2fa1-11d2-883f-0016d3cca427"
	clusterID    = uint64(14841639068965178418)
	otherCluster = uint64(17237436991929493444)
	day          = 24 * time.Hour
)

// world is a cluster as its dumps show it. It starts healthy: every pod runs the old
// revision, every member serves, and the first one leads.
type world struct {
	set     *appsv1.StatefulSet
	pods    []*corev1.Pod
	lease   *coordinationv1.Lease
	members []*worldMember
	// noList, noStatus and noHealth leave a file out.
	noList, noStatus, noHealth bool
}

type worldMember struct {
	id           uint64
	name, host   string
	learner      bool
	unstarted    bool
	noStatus     bool // it answers no status
	unhealthy    bool // it answers no linearizable read
	leader, term uint64
	applied      uint64
	index        uint64
	cluster      uint64
	errors       []string
}

// memberID makes IDs that do not fit into a float64, as real ones do not.
func memberID(i int) uint64 { return 0x8e9e05c52164694d + uint64(i)*0x1111111111111111 }

func newWorld(n int) *world {
	replicas := int32(n) //nolint:gosec // A handful.
	w := &world{set: &appsv1.StatefulSet{
		TypeMeta: metav1.TypeMeta{APIVersion: "apps/v1", Kind: "StatefulSet"},
		ObjectMeta: metav1.ObjectMeta{
			Name: "etcd-main", Namespace: "garden", UID: setUID, Generation: 7, ResourceVersion: "9100",
			CreationTimestamp: ago(30 * day),
		},
		Spec: appsv1.StatefulSetSpec{
			Replicas: &replicas, ServiceName: "etcd-main-peer",
			Selector:       &metav1.LabelSelector{MatchLabels: map[string]string{"app": "etcd-main"}},
			UpdateStrategy: appsv1.StatefulSetUpdateStrategy{Type: appsv1.OnDeleteStatefulSetStrategyType}, PodManagementPolicy: appsv1.ParallelPodManagement,
			Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"app": "etcd-main"}},
				Spec:       podSpec(),
			},
			VolumeClaimTemplates: []corev1.PersistentVolumeClaim{{ObjectMeta: metav1.ObjectMeta{Name: "data"}}},
		},
		Status: appsv1.StatefulSetStatus{
			ObservedGeneration: 7, Replicas: replicas, CurrentRevision: oldRevision, UpdateRevision: newRevision,
		},
	}}
	for i := range n {
		w.pods = append(w.pods, newPod(i))
		w.addMember(i, "etcd-main-"+strconv.Itoa(i))
	}
	w.lead(0)
	return w
}

func podSpec() corev1.PodSpec {
	return corev1.PodSpec{Containers: []corev1.Container{
		{Name: "etcd", Image: "etcd", VolumeMounts: []corev1.VolumeMount{{Name: "data", MountPath: "/var/etcd"}}},
		{Name: "backup-restore", Image: "etcdbrctl", VolumeMounts: []corev1.VolumeMount{{Name: "data", MountPath: "/var/etcd"}}},
	}}
}

func newPod(i int) *corev1.Pod {
	controller := true
	name := "etcd-main-" + strconv.Itoa(i)
	p := &corev1.Pod{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Pod"},
		ObjectMeta: metav1.ObjectMeta{
			Name: name, Namespace: "garden", ResourceVersion: strconv.Itoa(9000 + i), CreationTimestamp: ago(2 * day),
			UID:    types.UID(fmt.Sprintf("7f1c1d5e-0000-4000-8000-00000000000%d", i)),
			Labels: map[string]string{"app": "etcd-main", appsv1.ControllerRevisionHashLabelKey: oldRevision},
			OwnerReferences: []metav1.OwnerReference{{
				APIVersion: "apps/v1", Kind: "StatefulSet", Name: "etcd-main", UID: setUID, Controller: &controller, BlockOwnerDeletion: &controller,
			}},
		},
		Spec: podSpec(),
		Status: corev1.PodStatus{
			Phase: corev1.PodRunning,
			Conditions: []corev1.PodCondition{
				{Type: corev1.PodScheduled, Status: corev1.ConditionTrue, LastTransitionTime: ago(2 * day)},
				{Type: corev1.PodInitialized, Status: corev1.ConditionTrue, LastTransitionTime: ago(2 * day)},
				{Type: corev1.ContainersReady, Status: corev1.ConditionTrue, LastTransitionTime: ago(2 * day)},
				{Type: corev1.PodReady, Status: corev1.ConditionTrue, LastTransitionTime: ago(2 * day)},
			},
			ContainerStatuses: []corev1.ContainerStatus{
				{Name: "backup-restore", Image: "etcdbrctl", Ready: true, State: running(2 * day)},
				{Name: "etcd", Image: "etcd", Ready: true, State: running(2 * day)},
			},
		},
	}
	p.Spec.NodeName = "node-" + strconv.Itoa(i)
	claim := &corev1.PersistentVolumeClaimVolumeSource{ClaimName: "data-" + name}
	p.Spec.Volumes = []corev1.Volume{{Name: "data", VolumeSource: corev1.VolumeSource{PersistentVolumeClaim: claim}}}
	return p
}

func running(d time.Duration) corev1.ContainerState {
	return corev1.ContainerState{Running: &corev1.ContainerStateRunning{StartedAt: ago(d)}}
}

func (w *world) addMember(i int, name string) *worldMember {
	m := &worldMember{
		id: memberID(i), name: name, host: name + ".etcd-main-peer.garden.svc",
		term: 5, index: 81234, applied: 81234, cluster: clusterID,
	}
	w.members = append(w.members, m)
	return m
}

func (w *world) lead(i int) {
	for _, m := range w.members {
		m.leader = w.members[i].id
	}
}

func etcdOf(p *corev1.Pod) *corev1.ContainerStatus    { return &p.Status.ContainerStatuses[1] }
func sidecarOf(p *corev1.Pod) *corev1.ContainerStatus { return &p.Status.ContainerStatuses[0] }

func set(p *corev1.Pod, t corev1.PodConditionType, s corev1.ConditionStatus, d time.Duration) {
	for i := range p.Status.Conditions {
		if c := &p.Status.Conditions[i]; c.Type == t {
			c.Status, c.LastTransitionTime = s, ago(d)
		}
	}
}

func unready(p *corev1.Pod, d time.Duration) {
	set(p, corev1.PodReady, corev1.ConditionFalse, d)
	set(p, corev1.ContainersReady, corev1.ConditionFalse, d)
}

// settled gives a pod the new revision, up for a while.
func (w *world) settled(ordinals ...int) {
	for _, i := range ordinals {
		w.updated(i, 20*time.Minute)
	}
}

// updated gives a pod the new revision; it was created as long ago as given and is Ready.
func (w *world) updated(i int, age time.Duration) {
	p := w.pods[i]
	p.Labels[appsv1.ControllerRevisionHashLabelKey] = newRevision
	p.CreationTimestamp = ago(age)
	for j := range p.Status.Conditions {
		p.Status.Conditions[j].LastTransitionTime = ago(age - 10*time.Second)
	}
	for j := range p.Status.ContainerStatuses {
		p.Status.ContainerStatuses[j].State = running(age - 5*time.Second)
	}
}

// silent: the member answers nothing, and its process runs but is not ready.
func (w *world) silent(i int, d time.Duration) {
	w.members[i].noStatus, w.members[i].unhealthy = true, true
	etcdOf(w.pods[i]).Ready = false
	unready(w.pods[i], d)
}

// stopped: the process does not run; the kubelet says why.
func (w *world) stopped(i int, d time.Duration, reason string) {
	w.silent(i, d)
	c := etcdOf(w.pods[i])
	c.State = corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: reason}}
	if reason == "CrashLoopBackOff" {
		c.RestartCount = 12
		c.LastTerminationState = corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{ExitCode: 1, Reason: "Error", StartedAt: ago(41 * time.Second), FinishedAt: ago(40 * time.Second)}}
	}
}

func (w *world) sick(ordinals ...int) {
	for _, i := range ordinals {
		c := sidecarOf(w.pods[i])
		c.Ready, c.RestartCount = false, 31
		c.State = corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "CrashLoopBackOff"}}
		unready(w.pods[i], time.Hour)
	}
}

// quorumLost: the processes run, nobody serves, nobody leads.
func (w *world) quorumLost(d time.Duration) {
	for i, m := range w.members {
		m.unhealthy, m.leader, m.term = true, 0, 9
		etcdOf(w.pods[i]).Ready = false
		unready(w.pods[i], d)
	}
}

func (w *world) terminating(i int, since time.Duration) {
	at, grace := ago(since-30*time.Second), int64(30)
	w.pods[i].DeletionTimestamp, w.pods[i].DeletionGracePeriodSeconds = &at, &grace
}

func (w *world) control(key, value string) {
	if w.lease == nil {
		w.lease = &coordinationv1.Lease{
			TypeMeta:   metav1.TypeMeta{APIVersion: "coordination.k8s.io/v1", Kind: "Lease"},
			ObjectMeta: metav1.ObjectMeta{Name: "quorate-etcd-main", Namespace: "garden", ResourceVersion: "9200", CreationTimestamp: ago(30 * day), Annotations: map[string]string{}},
		}
	}
	w.lease.Annotations[key] = value
}

// evicted: the node ran short of something, and its kubelet ended the pod. The pod object
// stays until the StatefulSet controller deletes it.
func (w *world) evicted(i int, d time.Duration) {
	w.silent(i, d)
	p := w.pods[i]
	p.Status.Phase, p.Status.Reason = corev1.PodFailed, "Evicted"
	p.Status.Message = "The node was low on resource: ephemeral-storage."
	for j := range p.Status.ContainerStatuses {
		c := &p.Status.ContainerStatuses[j]
		c.Ready = false
		c.State = corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{ExitCode: 137, Reason: "Error", StartedAt: ago(2 * day), FinishedAt: ago(d)}}
	}
}

func (w *world) removePod(i int) { w.pods = slices.Delete(w.pods, i, i+1) }

// files returns the dumps by file name, as the tools print them.
func (w *world) files(t testing.TB) map[string][]byte {
	t.Helper()
	list := corev1.List{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "List"}}
	add := func(o any) {
		raw, err := json.Marshal(o)
		if err != nil {
			t.Fatal(err)
		}
		list.Items = append(list.Items, runtime.RawExtension{Raw: raw})
	}
	add(w.set)
	for _, p := range w.pods {
		add(p)
	}
	if w.lease != nil {
		add(w.lease)
	}
	var objects bytes.Buffer
	if err := serializer.NewSerializerWithOptions(serializer.DefaultMetaFactory, nil, nil, serializer.SerializerOptions{Yaml: true}).Encode(&list, &objects); err != nil {
		t.Fatal(err)
	}
	out := map[string][]byte{"objects.yaml": objects.Bytes()}
	memberList, status, health := w.etcd(t)
	if !w.noList {
		out["member-list.json"] = memberList
	}
	if !w.noStatus {
		out["endpoint-status.json"] = status
	}
	if !w.noHealth {
		out["endpoint-health.json"] = health
	}
	return out
}

type jsonHeader struct {
	ClusterID uint64 `json:"cluster_id"`
	MemberID  uint64 `json:"member_id"`
	Revision  int64  `json:"revision,omitempty"`
	RaftTerm  uint64 `json:"raft_term"`
}

type jsonMember struct {
	ID         uint64   `json:"ID"`
	Name       string   `json:"name,omitempty"`
	PeerURLs   []string `json:"peerURLs"`
	ClientURLs []string `json:"clientURLs,omitempty"`
	IsLearner  bool     `json:"isLearner,omitempty"`
}

type jsonStatus struct {
	Endpoint string `json:"Endpoint"`
	Status   struct {
		Header           jsonHeader `json:"header"`
		Version          string     `json:"version"`
		DBSize           int64      `json:"dbSize"`
		Leader           uint64     `json:"leader,omitempty"`
		RaftIndex        uint64     `json:"raftIndex"`
		RaftTerm         uint64     `json:"raftTerm"`
		RaftAppliedIndex uint64     `json:"raftAppliedIndex"`
		Errors           []string   `json:"errors,omitempty"`
		DBSizeInUse      int64      `json:"dbSizeInUse"`
		IsLearner        bool       `json:"isLearner,omitempty"`
	} `json:"Status"`
}

type jsonHealth struct {
	Endpoint string `json:"endpoint"`
	Health   bool   `json:"health"`
	Took     string `json:"took"`
	Error    string `json:"error,omitempty"`
}

func (w *world) etcd(t testing.TB) (memberList, status, health []byte) {
	t.Helper()
	var list struct {
		Header  jsonHeader   `json:"header"`
		Members []jsonMember `json:"members"`
	}
	statuses, healths := []jsonStatus{}, []jsonHealth{}
	list.Header = jsonHeader{ClusterID: clusterID, MemberID: w.members[0].id, RaftTerm: w.members[0].term}
	for _, m := range w.members {
		endpoint := "https://" + m.host + ":2379"
		entry := jsonMember{ID: m.id, Name: m.name, PeerURLs: []string{"https://" + m.host + ":2380"}, ClientURLs: []string{endpoint}, IsLearner: m.learner}
		if m.unstarted {
			entry.Name, entry.ClientURLs = "", nil
			list.Members = append(list.Members, entry)
			continue
		}
		list.Members = append(list.Members, entry)
		if !m.noStatus {
			s := jsonStatus{Endpoint: endpoint}
			s.Status.Header = jsonHeader{ClusterID: m.cluster, MemberID: m.id, Revision: 40210, RaftTerm: m.term}
			s.Status.Version, s.Status.DBSize, s.Status.DBSizeInUse = "3.5.21", 4096000, 2048000
			s.Status.Leader, s.Status.RaftTerm = m.leader, m.term
			s.Status.RaftIndex, s.Status.RaftAppliedIndex = m.index, m.applied
			s.Status.Errors, s.Status.IsLearner = m.errors, m.learner
			statuses = append(statuses, s)
		}
		h := jsonHealth{Endpoint: endpoint, Health: !m.unhealthy, Took: "3.145ms"}
		switch {
		case m.unhealthy:
			h.Took, h.Error = "5.000512s", "context deadline exceeded"
		case m.learner:
			h.Health, h.Error = false, "etcdserver: rpc not supported for learner"
		}
		healths = append(healths, h)
	}
	encode := func(v any) []byte {
		data, err := json.Marshal(v)
		if err != nil {
			t.Fatal(err)
		}
		return append(data, '\n')
	}
	return encode(list), encode(statuses), encode(healths)
}

// situation is one case that an operator meets, with what Quorate has to make of it.
type situation struct {
	name string
	// want is "Action target guard rule" of the decision, "-" where there is none. It
	// is written by hand: -update does not change it.
	want string
	code int
	args []string
	// make builds the dumps; they are written with -update and read otherwise.
	make func() *world
}

func with(n int, change func(*world)) func() *world {
	return func() *world {
		w := newWorld(n)
		change(w)
		return w
	}
}

var situations = []situation{
	{"healthy-first-pod", "Remove etcd-main-2 - Serving", 0, nil, with(3, func(*world) {})},
	{"complete", "Complete - - Complete", 0, nil, with(3, func(w *world) { w.settled(0, 1, 2) })},
	{"whole-order", "Remove etcd-main-2 - Serving", 0, []string{"--all"}, with(3, func(*world) {})},
	{"own-pod-last-among-followers", "Remove etcd-main-1 - Serving", 0, []string{"--self=etcd-main-2"}, with(3, func(*world) {})},
	{"delete-a-healthy-pod", "Remove etcd-main-2 - Serving", 0, []string{"--removal=delete"}, with(3, func(*world) {})},
	{"evict-never-a-sick-pod", "Remove etcd-main-1 - Serving", 0, nil, with(3, func(w *world) { w.sick(1) })},
	{"crash-looping-outdated-pod", "Remove etcd-main-1 - NotServingFirst", 0, nil, with(3, func(w *world) {
		w.stopped(1, time.Hour, "CrashLoopBackOff")
	})},
	{"image-pull-back-off-of-an-older-fix", "Remove etcd-main-2 - NotServingFirst", 0, nil, with(3, func(w *world) {
		w.stopped(2, 10*time.Minute, "ImagePullBackOff")
		w.pods[2].Labels[appsv1.ControllerRevisionHashLabelKey] = "etcd-main-66c5d4f7b9"
	})},
	{"two-crash-looping-quorum-lost", "Remove etcd-main-2 - NotServingFirst", 0, nil, with(3, func(w *world) {
		w.quorumLost(20 * time.Minute)
		w.stopped(1, 20*time.Minute, "CrashLoopBackOff")
		w.stopped(2, 20*time.Minute, "CrashLoopBackOff")
	})},
	{"quorum-just-lost-all-alive", "Wait - QuorumPatience NotServingFirst", 3, nil, with(3, func(w *world) { w.quorumLost(20 * time.Second) })},
	{"quorum-lost-for-long-all-alive", "Remove etcd-main-2 - NotServingFirst", 0, nil, with(3, func(w *world) { w.quorumLost(20 * time.Minute) })},
	{"quorum-lost-but-a-pod-is-still-ready", "Wait - QuorumPatience NotServingFirst", 3, nil, with(3, func(w *world) {
		w.quorumLost(20 * time.Minute)
		etcdOf(w.pods[0]).Ready = true
		set(w.pods[0], corev1.PodReady, corev1.ConditionTrue, 2*day)
		set(w.pods[0], corev1.ContainersReady, corev1.ConditionTrue, 2*day)
	})},
	{"alive-member-may-vote", "Wait - Terminating UpdatedSettle", 3, nil, with(3, func(w *world) {
		w.silent(1, time.Hour)
		w.stopped(2, time.Hour, "CrashLoopBackOff")
		w.removePod(2)
	})},
	{"node-lost", "Remove etcd-main-1 - NotServingFirst", 0, nil, with(3, func(w *world) {
		w.members[1].noStatus, w.members[1].unhealthy = true, true
		set(w.pods[1], corev1.PodReady, corev1.ConditionFalse, 3*time.Minute)
	})},
	{"member-silent-but-its-pod-ready", "Remove etcd-main-1 - Serving", 0, nil, with(3, func(w *world) {
		w.settled(2)
		w.members[1].noStatus, w.members[1].unhealthy = true, true
		w.settled(0)
		w.pods[0].Labels[appsv1.ControllerRevisionHashLabelKey] = oldRevision
	})},
	{"stuck-terminating", "Wait - Terminating UpdatedSettle", 3, nil, with(3, func(w *world) {
		w.silent(1, 10*time.Minute)
		w.terminating(1, 10*time.Minute)
	})},
	{"pod-missing", "Wait - Terminating UpdatedSettle", 3, nil, with(3, func(w *world) {
		w.silent(1, time.Minute)
		w.removePod(1)
	})},
	{"updated-pod-failing", "Hold - UpdatedFailing UpdatedSettle", 3, nil, with(3, func(w *world) {
		w.updated(2, 3*time.Minute)
		w.stopped(2, 3*time.Minute, "CrashLoopBackOff")
	})},
	{"updated-pod-alive-too-long", "Hold - UpdatedFailing UpdatedSettle", 3, nil, with(3, func(w *world) {
		w.updated(2, 10*time.Minute)
		w.silent(2, 10*time.Minute)
	})},
	{"updated-sidecar-failing", "Hold - UpdatedFailing UpdatedSettle", 3, nil, with(3, func(w *world) {
		w.updated(2, 2*time.Hour)
		w.sick(2)
	})},
	{"fix-of-a-failing-update", "Remove etcd-main-2 - NotServingFirst", 0, nil, with(3, func(w *world) {
		w.updated(2, 10*time.Minute)
		w.stopped(2, 10*time.Minute, "ErrImagePull")
		w.set.Status.UpdateRevision = "etcd-main-85b4d9c6f4"
	})},
	{"updated-pod-coming-up", "Wait - UpdatedPending UpdatedSettle", 3, nil, with(3, func(w *world) {
		w.updated(2, 30*time.Second)
		w.stopped(2, 30*time.Second, "ContainerCreating")
	})},
	{"updated-pod-catching-up", "Wait - UpdatedPending UpdatedSettle", 3, nil, with(3, func(w *world) {
		w.updated(2, time.Minute)
		w.members[2].applied, w.members[2].index = 1200, 81234
	})},
	{"updated-pod-not-ready-long-enough", "Wait - UpdatedPending UpdatedSettle", 3, nil, with(3, func(w *world) {
		w.updated(2, time.Minute)
		w.set.Spec.MinReadySeconds = 120
	})},
	{"three-sick-sidecars", "Remove etcd-main-2 - Serving", 0, nil, with(3, func(w *world) { w.sick(0, 1, 2) })},
	{"sick-sidecar-of-the-leader-goes-before-followers", "MoveLeader etcd-main-0 - HandOverLeadership", 0, nil, with(3, func(w *world) { w.sick(0) })},
	{"second-follower", "Remove etcd-main-1 - Serving", 0, nil, with(3, func(w *world) { w.settled(2) })},
	{"leader-waits-for-its-followers", "Wait - CaughtUp Serving", 3, nil, with(3, func(w *world) {
		w.members[0].index, w.members[0].applied = 200000, 200000
		w.members[1].applied, w.members[2].applied = 90000, 90000
	})},
	{"leader-hands-over", "MoveLeader etcd-main-0 - HandOverLeadership", 0, nil, with(3, func(w *world) { w.settled(1, 2) })},
	{"former-leader-goes-last", "Remove etcd-main-0 - Serving", 0, nil, with(3, func(w *world) { w.settled(1, 2); w.lead(2) })},
	{"single-member", "Remove etcd-main-0 - Serving", 0, nil, with(1, func(*world) {})},
	{"single-member-coming-back", "Wait - UpdatedPending UpdatedSettle", 3, nil, with(1, func(w *world) {
		w.updated(0, 20*time.Second)
		w.stopped(0, 20*time.Second, "PodInitializing")
	})},
	{"two-voters", "Hold - QuorumFloor Serving", 3, nil, with(2, func(*world) {})},
	{"two-ghosts-of-a-scale-in", "Hold - QuorumFloor Serving", 3, nil, with(3, func(w *world) {
		for i := 3; i < 5; i++ {
			m := w.addMember(i, "etcd-main-"+strconv.Itoa(i))
			m.noStatus, m.unhealthy = true, true
		}
	})},
	{"serving-external-voter", "Hold - QuorumFloor Serving", 3, nil, with(3, externalVoter)},
	{"serving-external-voter-trusted", "Remove etcd-main-2 - Serving", 0, []string{"--trusted-members=migration-0"}, with(3, externalVoter)},
	{"learner-goes-as-a-follower", "Remove etcd-main-3 - Serving", 0, nil, with(4, func(w *world) { w.members[3].learner = true })},
	{"paused", "Hold - Paused Held", 3, nil, with(3, func(w *world) { w.control("quorate.dev/paused", "true") })},
	{"bad-control", "Hold - BadControl Held", 3, nil, with(3, func(w *world) { w.control("quorate.dev/max-unavailable", "half") })},
	{"misspelt-control", "Hold - BadControl Held", 3, nil, with(3, func(w *world) { w.control("quorate.dev/pause", "true") })},
	{"partition-reached", "Complete - - Complete", 0, nil, with(3, func(w *world) {
		w.settled(2)
		w.control("quorate.dev/partition", "2")
	})},
	{"partition-keeps-a-failing-pod", "Hold - QuorumFloor Serving", 3, nil, with(3, func(w *world) {
		w.stopped(0, time.Hour, "CrashLoopBackOff")
		w.lead(1)
		w.control("quorate.dev/partition", "1")
	})},
	{"max-unavailable-2-of-5-canary", "Wait - UpdatedPending UpdatedSettle", 3, nil, with(5, func(w *world) {
		w.updated(4, 30*time.Second)
		w.stopped(4, 30*time.Second, "ContainerCreating")
		w.control("quorate.dev/max-unavailable", "2")
	})},
	{"max-unavailable-2-of-5", "Remove etcd-main-2 - Serving", 0, nil, with(5, func(w *world) {
		w.settled(4)
		w.updated(3, 30*time.Second)
		w.stopped(3, 30*time.Second, "ContainerCreating")
		w.control("quorate.dev/max-unavailable", "40%")
	})},
	{"override", "Remove etcd-main-1 - Serving", 0, nil, with(3, func(w *world) {
		w.updated(2, 10*time.Minute)
		w.sick(2)
		w.control("quorate.dev/override-guards", "UpdatedFailing,UnavailableBudget,Canary,EndpointFloor")
	})},
	{"stale-generation", "Wait - StaleRevision Held", 3, nil, with(3, func(w *world) { w.set.Generation = 8 })},
	{"no-status-of-the-statefulset", "Wait - StaleRevision Held", 3, nil, with(3, func(w *world) { w.set.Status = appsv1.StatefulSetStatus{} })},
	{"rolling-update-strategy", "Idle - - NotOurs", 0, nil, with(3, func(w *world) {
		w.set.Spec.UpdateStrategy.Type = appsv1.RollingUpdateStatefulSetStrategyType
	})},
	{"corrupt-alarm", "Hold - Corrupt Held", 3, nil, with(3, func(w *world) {
		w.members[1].errors = []string{"memberID:11489104893193199006 alarm:CORRUPT "}
	})},
	{"nospace-alarm", "Remove etcd-main-2 - Serving", 0, nil, with(3, func(w *world) {
		for _, m := range w.members {
			m.errors = []string{"memberID:11489104893193199006 alarm:NOSPACE "}
		}
	})},
	{"evicted-pod", "Remove etcd-main-1 - NotServingFirst", 0, nil, with(3, func(w *world) { w.evicted(1, 2*time.Minute) })},
	{"evicted-updated-pod", "Hold - UpdatedFailing UpdatedSettle", 3, nil, with(3, func(w *world) {
		w.updated(2, 20*time.Minute)
		w.evicted(2, time.Minute)
	})},
	{"leader-not-known", "Wait - LeaderLast Serving", 3, nil, with(3, func(w *world) {
		for _, m := range w.members {
			m.leader = 0
		}
	})},
	{"two-leaders-at-one-term", "Hold - Inconsistent Held", 3, nil, with(3, func(w *world) { w.members[2].leader = w.members[2].id })},
	{"deposed-leader-at-an-older-term", "Remove etcd-main-2 - Serving", 0, nil, with(3, func(w *world) {
		w.lead(1)
		w.members[0].leader, w.members[0].term = w.members[0].id, 4
	})},
	{"duplicate-member-names", "Hold - Inconsistent Held", 3, nil, with(3, func(w *world) { w.members[2].name = "etcd-main-1" })},
	{"foreign-cluster", "Hold - Inconsistent Held", 3, nil, with(3, func(w *world) { w.members[2].cluster = otherCluster })},
	{"pod-of-another-owner", "Hold - Inconsistent Held", 3, nil, with(3, func(w *world) { w.pods[1].OwnerReferences[0].UID = "ffffffff-0000-4000-8000-000000000000" })},
	{"two-pods-of-one-ordinal", "Hold - Inconsistent Held", 3, nil, with(3, func(w *world) {
		p := newPod(1)
		p.Name, p.UID = "etcd-main-01", "7f1c1d5e-0000-4000-8000-000000000099"
		w.pods = append(w.pods, p)
	})},
	{"negative-ordinal", "Hold - Inconsistent Held", 3, nil, with(3, func(w *world) {
		p := newPod(1)
		p.Name, p.UID = "etcd-main--1", "7f1c1d5e-0000-4000-8000-000000000099"
		w.pods = append(w.pods, p)
	})},
	{"pod-being-scaled-away", "Hold - QuorumFloor Serving", 3, nil, with(4, scaledIn)},
	{"pod-being-scaled-away-terminating", "Hold - QuorumFloor Serving", 3, nil, with(4, func(w *world) {
		scaledIn(w)
		w.terminating(3, 5*time.Second)
	})},
	{"pods-being-scaled-away-from-5-to-3", "Hold - QuorumFloor Serving", 3, nil, with(5, scaledIn)},
	{"pod-being-scaled-away-named-as-trusted", "Hold - QuorumFloor Serving", 3, []string{"--trusted-members=etcd-main-3"}, with(4, scaledIn)},
	{"pod-scaled-away-without-a-member", "Remove etcd-main-2 - Serving", 0, nil, with(3, func(w *world) {
		p := newPod(3)
		w.pods = append(w.pods, p)
	})},
	{"member-names-that-match-no-pod", "Hold - QuorumFloor Serving", 3, nil, with(3, func(w *world) {
		for i, m := range w.members {
			m.name, m.host = "member-"+strconv.Itoa(i), "10.0.0."+strconv.Itoa(i+1)
		}
	})},
	{"etcd-container-of-another-name", "Hold - Inconsistent Held", 3, nil, with(3, otherContainer)},
	{"etcd-container-of-another-name-given", "Remove etcd-main-2 - Serving", 0, []string{"--etcd-container=member"}, with(3, otherContainer)},
	{"ordered-ready-two-dead", "Remove etcd-main-1 - NotServingFirst", 0, nil, with(5, func(w *world) {
		w.set.Spec.PodManagementPolicy = appsv1.OrderedReadyPodManagement
		w.stopped(1, 20*time.Minute, "CrashLoopBackOff")
		w.stopped(3, 20*time.Minute, "CrashLoopBackOff")
	})},
	{"ordered-ready-dead-above-live-with-quorum-lost", "Hold - Recreation NotServingFirst", 3, nil, with(3, func(w *world) {
		w.set.Spec.PodManagementPolicy = appsv1.OrderedReadyPodManagement
		w.quorumLost(20 * time.Minute)
		w.stopped(1, 20*time.Minute, "CrashLoopBackOff")
		w.stopped(2, 20*time.Minute, "CrashLoopBackOff")
	})},
	{"restarted-while-the-first-updated-pod-comes-up", "Wait - UpdatedPending UpdatedSettle", 3, nil, with(3, func(w *world) {
		w.updated(2, 30*time.Second)
		w.stopped(2, 20*time.Second, "ContainerCreating")
		w.quorumLost(15 * time.Second)
		w.stopped(1, 15*time.Second, "PodInitializing")
	})},
	{"member-list-missing", "Hold - VotersUnknown Serving", 3, nil, with(3, func(w *world) { w.noList = true })},
	{"member-list-missing-dead-pod", "Remove etcd-main-1 - NotServingFirst", 0, nil, with(3, func(w *world) {
		w.quorumLost(20 * time.Minute)
		w.stopped(1, 20*time.Minute, "CrashLoopBackOff")
		w.noList = true
	})},
	{"health-missing", "Hold - QuorumFloor Serving", 3, nil, with(3, func(w *world) { w.noHealth = true })},
	{"status-missing", "Wait - CaughtUp Serving", 3, nil, with(3, func(w *world) { w.noStatus = true })},
	{"scale-out-from-1-to-3", "Wait - UpdatedPending UpdatedSettle", 3, nil, with(3, func(w *world) {
		w.updated(1, time.Minute)
		w.updated(2, time.Minute)
		w.members[1].unstarted = true
		w.members = w.members[:2]
		w.stopped2(1)
		w.stopped2(2)
	})},
	{"emptydir-data-of-a-dead-member-kept", "Wait - UpdatedPending UpdatedSettle", 3, nil, with(3, func(w *world) {
		// The update took the data of 2 with it; 1 still has its own.
		emptyDir(w)
		w.quorumLost(20 * time.Minute)
		w.stopped(1, 20*time.Minute, "CrashLoopBackOff")
		w.updated(2, time.Minute)
		w.stopped(2, 50*time.Second, "ContainerCreating")
	})},
	{"emptydir-data-healthy", "Remove etcd-main-2 - Serving", 0, nil, with(3, emptyDir)},
	{"emptydir-data-of-a-single-member", "Hold - DataSurvives Serving", 3, nil, with(1, emptyDir)},
	{"emptydir-data-of-a-single-member-allowed", "Remove etcd-main-0 - Serving", 0, []string{"--allow-volatile-data"}, with(1, emptyDir)},
	{"one-member-under-two-pods", "Hold - Inconsistent Held", 3, nil, with(3, func(w *world) {
		w.members[2].host = w.members[1].host // And nobody is at etcd-main-1's own name.
		w.members[1].name, w.members[1].host = "etcd-main-0-old", "etcd-main-9"
	})},
	{"cut-off", "Hold - CutOff Held", 3, []string{"--self=etcd-main-0"}, with(3, func(w *world) {
		w.members[0].unhealthy = true
		for _, m := range w.members[1:] {
			m.noStatus, m.unhealthy = true, true
		}
	})},
	{"ordinals-that-start-at-5", "Remove etcd-main-5 - Serving", 0, nil, func() *world {
		w := newWorld(6)
		w.set.Spec.Ordinals = &appsv1.StatefulSetOrdinals{Start: 5}
		one := int32(1)
		w.set.Spec.Replicas = &one
		w.pods, w.members = w.pods[5:], w.members[5:]
		w.lead(0)
		return w
	}},
	{"prefixed-member-names", "Remove etcd-main-2 - Serving", 0, nil, with(3, func(w *world) {
		for _, m := range w.members {
			m.name = "shoot--dev-" + m.name
		}
	})},
}

// scaledIn: three replicas are wanted, and the pods beyond are still there.
func scaledIn(w *world) { *w.set.Spec.Replicas = 3 }

func externalVoter(w *world) {
	m := w.addMember(3, "migration-0")
	m.host = "migration-0.other.svc"
	w.lead(0)
}

func otherContainer(w *world) {
	for i := range w.set.Spec.Template.Spec.Containers[:1] {
		w.set.Spec.Template.Spec.Containers[i].Name = "member"
	}
	for _, p := range w.pods {
		p.Spec.Containers[0].Name, etcdOf(p).Name = "member", "member"
	}
}

func emptyDir(w *world) {
	w.set.Spec.VolumeClaimTemplates = nil
	w.set.Spec.Template.Spec.Volumes = []corev1.Volume{{Name: "data", VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}}}
	for _, p := range w.pods {
		p.Spec.Volumes = w.set.Spec.Template.Spec.Volumes
	}
}

// stopped2 is a pod that is being set up and whose member may not be listed yet.
func (w *world) stopped2(i int) {
	etcdOf(w.pods[i]).Ready = false
	etcdOf(w.pods[i]).State = corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "PodInitializing"}}
	unready(w.pods[i], 40*time.Second)
}

func summary(p report.Plan) string {
	return fmt.Sprint(p.Action, " ", cmp.Or(p.Target, "-"), " ", cmp.Or(p.Guard, "-"), " ", p.Rule)
}
