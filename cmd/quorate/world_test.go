package main

import (
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
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/yaml"
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
	nodes   []*corev1.Node
	events  []*corev1.Event
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
	noStatus     bool   // it answers no status
	unhealthy    bool   // it answers no linearizable read
	healthError  string // why, where it is not for want of time
	leader, term uint64
	applied      uint64
	behind       int64 // by so much its revision is lower than that of the others
	index        uint64
	cluster      uint64
	errors       []string
	version      string // 3.5.21 if it is empty
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
			Selector:            &metav1.LabelSelector{MatchLabels: map[string]string{"app": "etcd-main"}},
			UpdateStrategy:      appsv1.StatefulSetUpdateStrategy{Type: appsv1.OnDeleteStatefulSetStrategyType},
			PodManagementPolicy: appsv1.ParallelPodManagement,
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
	mounts := []corev1.VolumeMount{{Name: "data", MountPath: "/var/etcd"}}
	return corev1.PodSpec{Containers: []corev1.Container{
		{Name: "etcd", Image: "etcd", VolumeMounts: mounts},
		{Name: "backup-restore", Image: "etcdbrctl", VolumeMounts: mounts},
	}}
}

func with(n int, change func(*world)) *world {
	w := newWorld(n)
	change(w)
	return w
}

// healthy leaves a world as it is: every member serves, and every pod is outdated.
func healthy(*world) {}

// complete: every pod is up to date, and has settled.
func complete(w *world) { w.settled(0, 1, 2) }

// foreign: it is for the StatefulSet controller to roll.
func foreign(w *world) { w.set.Spec.UpdateStrategy.Type = appsv1.RollingUpdateStatefulSetStrategyType }

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
				APIVersion: "apps/v1", Kind: "StatefulSet", Name: "etcd-main", UID: setUID,
				Controller: &controller, BlockOwnerDeletion: &controller,
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

func ended(code int32, started, finished time.Duration) corev1.ContainerState {
	return corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{
		ExitCode: code, Reason: "Error", StartedAt: ago(started), FinishedAt: ago(finished),
	}}
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
		c.LastTerminationState = ended(1, 41*time.Second, 40*time.Second)
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
			TypeMeta: metav1.TypeMeta{APIVersion: "coordination.k8s.io/v1", Kind: "Lease"},
			ObjectMeta: metav1.ObjectMeta{
				Name: "quorate-etcd-main", Namespace: "garden", ResourceVersion: "9200", CreationTimestamp: ago(30 * day),
				Annotations: map[string]string{},
			},
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
		c.State = ended(137, 2*day, d)
	}
}

// cordoned: the pod's node takes no new pods, for so long.
func (w *world) cordoned(i int, d time.Duration) {
	name := "node-" + strconv.Itoa(i)
	w.pods[i].Spec.NodeName = name
	added := ago(d)
	w.nodes = append(w.nodes, &corev1.Node{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Node"}, ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: corev1.NodeSpec{Unschedulable: true, Taints: []corev1.Taint{
			{Key: corev1.TaintNodeUnschedulable, Effect: corev1.TaintEffectNoSchedule, TimeAdded: &added}}},
	})
}

// drained: the eviction API has let somebody evict the pod, which is about to go.
func (w *world) drained(i int) {
	w.pods[i].Status.Conditions = append(w.pods[i].Status.Conditions, corev1.PodCondition{
		Type: corev1.DisruptionTarget, Status: corev1.ConditionTrue, Reason: "EvictionByEvictionAPI",
		Message: "Eviction API: evicting", LastTransitionTime: ago(time.Second),
	})
}

func (w *world) removePod(i int) { w.pods = slices.Delete(w.pods, i, i+1) }

// refused: the pod was removed, and the API server does not let it be created again.
func (w *world) refused(i int, why string) {
	name := w.pods[i].Name
	w.removePod(i)
	w.events = append(w.events, &corev1.Event{
		TypeMeta:       metav1.TypeMeta{APIVersion: "v1", Kind: "Event"},
		ObjectMeta:     metav1.ObjectMeta{Name: name, Namespace: "garden"},
		InvolvedObject: corev1.ObjectReference{Kind: "StatefulSet", Name: "etcd-main", UID: setUID},
		Reason:         "FailedCreate", LastTimestamp: ago(time.Minute),
		Message: "create Pod " + name + " in StatefulSet etcd-main failed error: " + why,
	})
}

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
	for _, n := range w.nodes {
		add(n)
	}
	for _, e := range w.events {
		add(e)
	}
	if w.lease != nil {
		add(w.lease)
	}
	objects, err := yaml.Marshal(&list)
	if err != nil {
		t.Fatal(err)
	}
	out := map[string][]byte{"objects.yaml": objects}
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
		entry := jsonMember{
			ID: m.id, Name: m.name, IsLearner: m.learner,
			PeerURLs: []string{"https://" + m.host + ":2380"}, ClientURLs: []string{endpoint},
		}
		if m.unstarted {
			entry.Name, entry.ClientURLs = "", nil
			list.Members = append(list.Members, entry)
			continue
		}
		list.Members = append(list.Members, entry)
		if !m.noStatus {
			s := jsonStatus{Endpoint: endpoint}
			s.Status.Header = jsonHeader{
				ClusterID: m.cluster, MemberID: m.id, Revision: 40210 - m.behind, RaftTerm: m.term,
			}
			s.Status.Version, s.Status.DBSize, s.Status.DBSizeInUse = cmp.Or(m.version, "3.5.21"), 4096000, 2048000
			s.Status.Leader, s.Status.RaftTerm = m.leader, m.term
			s.Status.RaftIndex, s.Status.RaftAppliedIndex = m.index, m.applied
			s.Status.Errors, s.Status.IsLearner = m.errors, m.learner
			statuses = append(statuses, s)
		}
		h := jsonHealth{Endpoint: endpoint, Health: !m.unhealthy, Took: "3.145ms"}
		switch {
		case m.unhealthy:
			h.Took, h.Error = "5.000512s", cmp.Or(m.healthError, "context deadline exceeded")
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

// settingUp is a pod whose containers are being set up, and whose member may not be listed yet.
func (w *world) settingUp(i int) {
	etcd := etcdOf(w.pods[i])
	etcd.Ready = false
	etcd.State = corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "PodInitializing"}}
	unready(w.pods[i], 40*time.Second)
}
