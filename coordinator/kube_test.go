package coordinator

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"

	"github.com/quorate/quorate/internal/etcdtest"
	"github.com/quorate/quorate/internal/record"
	"github.com/quorate/quorate/selfupdate"
)

// kube plays the Kubernetes API, the StatefulSet controller and the kubelets for one
// StatefulSet whose members are those of an etcdtest cluster. A removed pod takes
// termination to go, and its successor startup to serve.
type kube struct {
	etcd *etcdtest.Cluster
	wg   sync.WaitGroup

	mu       sync.Mutex
	set      *appsv1.StatefulSet
	pods     []*corev1.Pod
	version  int
	watchers []*watch.RaceFreeFakeWatcher

	termination, startup time.Duration
	// events are what happened, in order.
	events []string
	// Where they are not nil, err answers every read, deleteErr every delete and leaseErr every
	// write of the Lease.
	err, deleteErr, leaseErr error
	// lease is that of the record. holders are its holders and epochs in turn, writes counts
	// its writes, and fenced are the pods that were changed.
	lease   *coordinationv1.Lease
	holders []string
	writes  int
	fenced  []string
	// removedBy says which holder of the record removed which pod.
	removedBy []string
	// gone and back, where set, are called when a pod has gone and when its successor
	// runs.
	gone, back func(ordinal int)
	// slow is how long a list of pods takes.
	slow time.Duration
	// lists counts the lists of pods; recordLast is true if the record was read after the last
	// of them. A look reads the record first, so it sees the effect of every removal that had
	// left the record by then.
	lists      int
	recordLast bool
	// promotions counts the patches of the StatefulSet's status; promoteErr is the answer.
	promotions int
	promoteErr error
	// told are the Kubernetes events, in order.
	told []string
	// budget, where set, answers for a PodDisruptionBudget; nil allows the eviction.
	budget func() error
	// leaseWatches are the watches on the Lease, and watchErr refuses one.
	leaseWatches []*watch.RaceFreeFakeWatcher
	watchErr     error
	// refusing are the ordinals whose pods refuse connections although requests to their members hang.
	refusing map[int]bool
	// done is what history, the Lease's annotation, says was done to members.
	history string
	done    []string
	// strips is true while an admission policy takes from pods what a patch would add, and stripped counts them.
	strips   bool
	stripped []string
	// stuck keeps successors from ever becoming ready.
	stuck bool
	// mute: the sidecars of successors have no Quorate. Otherwise they say that they are there when their pods become
	// Ready, or so long after that. They do not line up.
	mute bool
	late time.Duration
	// feed, where not nil, has the watches tell what has become of which object. Without it, they only say that
	// something has happened, and everything is read live.
	feed *feed
}

func newKube(tb testing.TB, replicas int, etcd *etcdtest.Cluster) *kube {
	n := int32(replicas)
	k := &kube{etcd: etcd, termination: 3 * time.Second, startup: 7 * time.Second, set: &appsv1.StatefulSet{
		ObjectMeta: metav1.ObjectMeta{Name: "etcd", Namespace: "ns", UID: "set-uid", Generation: 1},
		Spec: appsv1.StatefulSetSpec{
			Replicas: &n, Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "etcd"}},
			UpdateStrategy:      appsv1.StatefulSetUpdateStrategy{Type: appsv1.OnDeleteStatefulSetStrategyType},
			PodManagementPolicy: appsv1.ParallelPodManagement,
			Template: corev1.PodTemplateSpec{Spec: corev1.PodSpec{Containers: []corev1.Container{
				{Name: "etcd", VolumeMounts: []corev1.VolumeMount{{Name: "data"}}}, {Name: "backup-restore"},
			}}},
			VolumeClaimTemplates: []corev1.PersistentVolumeClaim{{ObjectMeta: metav1.ObjectMeta{Name: "data"}}},
		},
		Status: appsv1.StatefulSetStatus{ObservedGeneration: 1, UpdateRevision: "rev-1"},
	}}
	for i := range replicas {
		k.pods = append(k.pods, k.newPod(i))
		k.setReady(k.pods[i], true)
	}
	tb.Cleanup(k.wg.Wait)
	return k
}

// connect plays the pods' network. Who hangs swallows connections, unless refusing says otherwise. No other container
// listens that is not ready.
func (k *kube) connect(ctx context.Context, address string) error {
	var ordinal int
	if _, err := fmt.Sscanf(address, "10.0.0.%d:", &ordinal); err != nil {
		return err
	}
	hung := false
	k.etcd.Set(func(_ *etcdtest.Cluster, ms []*etcdtest.Member) { hung = ordinal < len(ms) && ms[ordinal].Hung })
	k.mu.Lock()
	refuses := k.refusing[ordinal]
	k.mu.Unlock()
	if hung && !refuses {
		<-ctx.Done()
		return ctx.Err()
	}
	return syscall.ECONNREFUSED
}

func (k *kube) newPod(ordinal int) *corev1.Pod {
	k.version++
	return &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Name: fmt.Sprint("etcd-", ordinal), UID: types.UID(fmt.Sprint("uid-", k.version)),
			ResourceVersion: fmt.Sprint(k.version),
			Labels:          map[string]string{"app": "etcd", "controller-revision-hash": k.set.Status.UpdateRevision},
			OwnerReferences: []metav1.OwnerReference{{Kind: "StatefulSet", Name: "etcd", UID: k.set.UID}},
		},
		Spec: corev1.PodSpec{
			NodeName:   fmt.Sprint("node-", ordinal),
			Containers: k.set.Spec.Template.Spec.Containers,
			Volumes: []corev1.Volume{{Name: "data", VolumeSource: corev1.VolumeSource{
				PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{
					ClaimName: fmt.Sprint("data-etcd-", ordinal)},
			}}},
		},
	}
}

func (k *kube) setReady(p *corev1.Pod, ready bool) {
	status := corev1.ConditionFalse
	if ready {
		status = corev1.ConditionTrue
	}
	running := corev1.ContainerState{Running: &corev1.ContainerStateRunning{}}
	since := metav1.Now()
	for _, was := range p.Status.Conditions {
		if was.Type == corev1.PodReady && was.Status == status {
			since = was.LastTransitionTime
		}
	}
	ip := "10.0.0." + strings.TrimPrefix(p.Name, "etcd-")
	p.Status = corev1.PodStatus{
		PodIPs: []corev1.PodIP{{IP: ip}},
		Conditions: []corev1.PodCondition{
			{Type: corev1.PodInitialized, Status: corev1.ConditionTrue},
			{Type: corev1.ContainersReady, Status: status},
			{Type: corev1.PodReady, Status: status, LastTransitionTime: since},
		},
		ContainerStatuses: []corev1.ContainerStatus{{Name: "etcd", Ready: ready, State: running},
			{Name: "backup-restore", Ready: ready, State: running}},
	}
	k.version++
	p.ResourceVersion = fmt.Sprint(k.version)
}

// update changes the pod template, so that every pod is outdated from now on.
func (k *kube) update(revision string) {
	k.change(func() { k.template(revision) })
}

func (k *kube) template(revision string) {
	k.set.Generation++
	k.set.Status.ObservedGeneration++
	k.set.Status.UpdateRevision = revision
}

// change changes anything, and tells the watches.
func (k *kube) change(f func()) {
	k.mu.Lock()
	defer k.mu.Unlock()
	f()
	k.feed.tell(k)
	for _, w := range k.watchers {
		if !w.IsStopped() {
			w.Modify(&corev1.Pod{})
		}
	}
}

func (k *kube) happened(format string, args ...any) {
	k.events = append(k.events, fmt.Sprintf(format, args...))
}

// story returns what happened so far.
func (k *kube) story() string {
	k.mu.Lock()
	defer k.mu.Unlock()
	return strings.Join(k.events, ", ")
}

// settled is true when every pod has the revision and is ready.
func (k *kube) settled(revision string) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	return !slices.ContainsFunc(k.pods, func(p *corev1.Pod) bool {
		return p.Labels["controller-revision-hash"] != revision || p.DeletionTimestamp != nil ||
			!p.Status.ContainerStatuses[0].Ready
	})
}

func (k *kube) Get(context.Context, string, metav1.GetOptions) (*appsv1.StatefulSet, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.set.DeepCopy(), k.err
}

func (k *kube) Patch(_ context.Context, _ string, _ types.PatchType, data []byte, _ metav1.PatchOptions,
	subresources ...string) (*appsv1.StatefulSet, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.promotions++
	if k.promoteErr != nil {
		return nil, k.promoteErr
	}
	var patch appsv1.StatefulSet
	if err := json.Unmarshal(data, &patch); err != nil || !slices.Equal(subresources, []string{"status"}) {
		return nil, fmt.Errorf("patch of %v: %w", subresources, err)
	}
	k.set.Status.CurrentRevision = patch.Status.CurrentRevision
	k.feed.tell(k)
	return k.set, nil
}

func (k *kube) Watch(_ context.Context, opts metav1.ListOptions) (watch.Interface, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.feed != nil {
		return k.feed.open(opts)
	}
	w := watch.NewRaceFreeFake()
	// Without a resource version a watch begins with the present state, so that it misses
	// nothing from before it was open.
	w.Add(&corev1.Pod{})
	k.watchers = append(k.watchers, w)
	return w, nil
}

// kubePods is the part for pods. It is a type of its own because both kinds have a Watch.
type kubePods struct{ *kube }

func (k kubePods) List(ctx context.Context, _ metav1.ListOptions) (*corev1.PodList, error) {
	k.mu.Lock()
	k.lists++
	k.recordLast = false
	list, err, slow := &corev1.PodList{}, k.err, k.slow
	list.ResourceVersion = fmt.Sprint(k.version)
	for _, p := range k.pods {
		list.Items = append(list.Items, *p.DeepCopy())
	}
	k.mu.Unlock()
	wait(ctx, slow, ready(slow))
	return list, err
}

// ready is a channel that is ready at once when there is nothing to wait for.
func ready(d time.Duration) chan struct{} {
	c := make(chan struct{})
	if d == 0 {
		close(c)
	}
	return c
}

// EvictV1 asks the budget, if there is one. A dry run ends there.
func (k kubePods) EvictV1(ctx context.Context, e *policyv1.Eviction) error {
	k.mu.Lock()
	budget := k.budget
	k.mu.Unlock()
	if budget != nil {
		if err := budget(); err != nil {
			return err
		}
	}
	if len(e.DeleteOptions.DryRun) > 0 {
		return nil
	}
	return k.Delete(ctx, e.Name, *e.DeleteOptions)
}

// kubeLeases holds the one Lease of the record.
type kubeLeases struct{ *kube }

var leases = schema.GroupResource{Group: "coordination.k8s.io", Resource: "leases"}

func (k kubeLeases) Get(_ context.Context, name string, _ metav1.GetOptions) (*coordinationv1.Lease, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.recordLast = true
	if k.err != nil {
		return nil, k.err
	}
	if k.lease == nil {
		return nil, apierrors.NewNotFound(leases, name)
	}
	return k.lease.DeepCopy(), nil
}

func (k kubeLeases) Create(_ context.Context, lease *coordinationv1.Lease,
	_ metav1.CreateOptions) (*coordinationv1.Lease, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.leaseErr != nil {
		return nil, k.leaseErr
	}
	if k.lease != nil {
		return nil, apierrors.NewAlreadyExists(leases, lease.Name)
	}
	k.lease = lease.DeepCopy()
	k.written()
	return k.lease.DeepCopy(), nil
}

func (k kubeLeases) Patch(_ context.Context, name string, _ types.PatchType, data []byte, _ metav1.PatchOptions,
	_ ...string) (*coordinationv1.Lease, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.leaseErr != nil {
		return nil, k.leaseErr
	}
	if k.lease == nil {
		return nil, apierrors.NewNotFound(leases, name)
	}
	patched := merge(k.lease, data)
	size := 0
	for key, value := range patched.Annotations {
		size += len(key) + len(value)
	}
	if size > 256<<10 { // As the API server counts.
		return nil, apierrors.NewInvalid(schema.GroupKind{Kind: "Lease"}, name, nil)
	}
	if patched.ResourceVersion != k.lease.ResourceVersion {
		return nil, apierrors.NewConflict(leases, name, errors.New("it was modified"))
	}
	k.lease = patched
	k.written()
	return k.lease.DeepCopy(), nil
}

// written notes a write of the record: who holds it now, at which epoch.
func (k *kube) written() {
	k.version++
	k.lease.ResourceVersion = fmt.Sprint(k.version)
	if k.feed.tell(k); k.feed == nil {
		k.tellLease()
	}
	if k.lease.Spec.HolderIdentity == nil {
		return // An operator has made it.
	}
	holder, _, _ := strings.Cut(*k.lease.Spec.HolderIdentity, "_")
	if entry := fmt.Sprintf("%s %d", holder, *k.lease.Spec.LeaseTransitions); len(k.holders) == 0 ||
		k.holders[len(k.holders)-1] != entry {
		k.holders = append(k.holders, entry)
	}
	k.writes++
}

// tellLease tells the watches on the Lease what it is.
func (k *kube) tellLease() {
	for _, w := range k.leaseWatches {
		if !w.IsStopped() {
			w.Modify(k.lease.DeepCopy())
		}
	}
}

func (k kubeLeases) Watch(_ context.Context, opts metav1.ListOptions) (watch.Interface, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	switch {
	case k.watchErr != nil:
		return nil, k.watchErr
	case opts.FieldSelector != "metadata.name=quorate-etcd":
		return nil, fmt.Errorf("a watch on more than our Lease: %q", opts.FieldSelector)
	case k.feed != nil:
		return k.feed.open(opts)
	}
	w := watch.NewRaceFreeFake()
	if k.lease != nil {
		w.Add(k.lease.DeepCopy())
	}
	k.leaseWatches = append(k.leaseWatches, w)
	return w, nil
}

// merge applies a merge patch (RFC 7386).
func merge[T any](to *T, patch []byte) *T {
	before, err := json.Marshal(to)
	var object, change map[string]any
	if err = errors.Join(err, json.Unmarshal(before, &object), json.Unmarshal(patch, &change)); err != nil {
		panic(err)
	}
	after, err := json.Marshal(merged(object, change))
	patched := new(T)
	if err = errors.Join(err, json.Unmarshal(after, patched)); err != nil {
		panic(err)
	}
	return patched
}

func merged(object, change map[string]any) map[string]any {
	if object == nil {
		object = map[string]any{}
	}
	for key, value := range change {
		switch value := value.(type) {
		case nil:
			delete(object, key)
		case map[string]any:
			inner, _ := object[key].(map[string]any)
			object[key] = merged(inner, value)
		default:
			object[key] = value
		}
	}
	return object
}

func (k kubePods) Patch(_ context.Context, name string, _ types.PatchType, data []byte, _ metav1.PatchOptions,
	_ ...string) (*corev1.Pod, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	i := slices.IndexFunc(k.pods, func(p *corev1.Pod) bool { return p.Name == name })
	if i < 0 {
		return nil, apierrors.NewNotFound(corev1.Resource("pods"), name)
	}
	if k.strips {
		k.stripped = append(k.stripped, name)
		return k.pods[i].DeepCopy(), nil
	}
	patched := merge(k.pods[i], data)
	if patched.UID != k.pods[i].UID {
		return nil, apierrors.NewConflict(corev1.Resource("pods"), name, errors.New("another UID"))
	}
	k.version++
	patched.ResourceVersion = fmt.Sprint(k.version)
	k.pods[i] = patched
	k.fenced = append(k.fenced, name)
	k.feed.tell(k.kube)
	return patched.DeepCopy(), nil
}

func (k kubePods) Delete(_ context.Context, name string, opts metav1.DeleteOptions) error {
	resource := schema.GroupResource{Resource: "pods"}
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.deleteErr != nil {
		return k.deleteErr
	}
	i := slices.IndexFunc(k.pods, func(p *corev1.Pod) bool { return p.Name == name })
	p := k.pods[i]
	if p.UID != *opts.Preconditions.UID || p.ResourceVersion != *opts.Preconditions.ResourceVersion {
		k.happened("refused %s", name)
		return apierrors.NewConflict(resource, name, fmt.Errorf("precondition failed"))
	}
	k.happened("deleted %s", name)
	if k.recordLast {
		k.happened("that was decided on a look which read the record after the pods")
	}
	if k.lease != nil {
		holder, _, _ := strings.Cut(*k.lease.Spec.HolderIdentity, "_")
		k.removedBy = append(k.removedBy, name+" by "+holder)
	}
	k.version++
	p.DeletionTimestamp, p.ResourceVersion = &metav1.Time{Time: time.Now()}, fmt.Sprint(k.version)
	k.feed.tell(k.kube)
	k.wg.Go(func() { k.replace(i) })
	return nil
}

// replace ends a terminating pod and starts its successor.
func (k *kube) replace(i int) {
	member := func(up bool) {
		k.etcd.Set(func(_ *etcdtest.Cluster, ms []*etcdtest.Member) { ms[i].Hung = !up })
		if id := k.etcd.ID(i); !up && k.etcd.Leader() == id {
			k.etcd.SetLeader(k.etcd.ID((i + 1) % len(k.pods))) // The others elect another leader.
		}
	}
	<-time.After(k.termination)
	member(false)
	k.etcd.Delete(fmt.Sprint(presence, "etcd-", i))
	if k.gone != nil {
		k.gone(i)
	}
	k.change(func() { k.pods[i] = k.newPod(i); k.setReady(k.pods[i], false) })
	if k.stuck {
		return
	}
	<-time.After(k.startup)
	member(true)
	if k.late == 0 {
		k.announce(i)
	}
	k.change(func() { k.setReady(k.pods[i], true) })
	if k.back != nil {
		k.back(i)
	}
	if k.late > 0 {
		<-time.After(k.late)
		k.announce(i)
	}
}

// announce has the sidecar of a pod say that it is there.
func (k *kube) announce(i int) {
	if k.mute {
		return
	}
	k.mu.Lock()
	p := k.pods[i]
	k.mu.Unlock()
	text, err := json.Marshal(selfupdate.Presence{Pod: p.Name, UID: string(p.UID), Schema: record.Newest})
	if err != nil {
		panic(err)
	}
	k.etcd.Hold(presence+p.Name, string(text))
}

func crashLoop() *corev1.ContainerStateWaiting {
	return &corev1.ContainerStateWaiting{Reason: "CrashLoopBackOff"}
}

func (k *kube) revisionOf(pod string) string {
	k.mu.Lock()
	defer k.mu.Unlock()
	for _, p := range k.pods {
		if p.Name == pod {
			return p.Labels["controller-revision-hash"]
		}
	}
	return ""
}

// forbiddenLeases can be read but not written.
type forbiddenLeases struct{ kubeLeases }

func (forbiddenLeases) Create(_ context.Context, lease *coordinationv1.Lease,
	_ metav1.CreateOptions) (*coordinationv1.Lease, error) {
	return nil, apierrors.NewForbidden(leases, lease.Name, errors.New("not allowed"))
}

func (forbiddenLeases) Patch(_ context.Context, name string, _ types.PatchType, _ []byte, _ metav1.PatchOptions,
	_ ...string) (*coordinationv1.Lease, error) {
	return nil, apierrors.NewForbidden(leases, name, errors.New("not allowed"))
}
