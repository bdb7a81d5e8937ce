package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/quorate/quorate/coordinator"
)

// rolling is a StatefulSet of three pods in the midst of a rollout that changes etcd's configuration: etcd-main-2 is
// updated. Its sidecar has run for 20 s before noon, and has just renewed the Lease of its member. All three typed
// clients answer from it.
type rolling struct {
	set    *appsv1.StatefulSet
	pods   *corev1.PodList
	leases map[string]*coordinationv1.Lease
	// fail is the error of a request, by its verb and resource.
	fail map[string]error
	// requests are those that were sent.
	requests []string
}

type (
	setsOf struct {
		coordinator.StatefulSets
		*rolling
	}
	podsOf struct {
		coordinator.Pods
		*rolling
	}
	leasesOf struct {
		coordinator.Leases
		*rolling
	}
)

func (s setsOf) Get(_ context.Context, name string, _ metav1.GetOptions) (*appsv1.StatefulSet, error) {
	return s.set, s.requested("get statefulset", name)
}

func (p podsOf) List(_ context.Context, opts metav1.ListOptions) (*corev1.PodList, error) {
	return p.pods.DeepCopy(), p.requested("list pods", opts.LabelSelector)
}

func (l leasesOf) Get(_ context.Context, name string, _ metav1.GetOptions) (*coordinationv1.Lease, error) {
	err := l.requested("get lease", name)
	if err == nil && l.leases[name] == nil {
		err = apierrors.NewNotFound(schema.GroupResource{Resource: "leases"}, name)
	}
	return l.leases[name], err
}

func (r *rolling) requested(what, name string) error {
	r.requests = append(r.requests, what+" "+name)
	return r.fail[what]
}

func newRolling() *rolling {
	r := &rolling{pods: &corev1.PodList{}, leases: map[string]*coordinationv1.Lease{}, fail: map[string]error{}}
	r.set = &appsv1.StatefulSet{ObjectMeta: metav1.ObjectMeta{Name: "etcd-main", UID: "the set"}}
	r.set.Spec.Selector = &metav1.LabelSelector{MatchLabels: map[string]string{"app": "etcd"}}
	r.template("new", "tls")
	for i := range 3 {
		name := fmt.Sprintf("etcd-main-%d", i)
		r.pods.Items = append(r.pods.Items, corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: name}})
		r.create(i, "old", "plain", 24*time.Hour)
		r.leases[name] = lease(name, time.Second)
	}
	r.create(2, "new", "tls", 20*time.Second)
	return r
}

// template is a change of the template.
func (r *rolling) template(revision, configuration string) {
	r.set.Spec.Template.Annotations = map[string]string{"checksum/etcd-configmap": configuration}
	r.set.Status.UpdateRevision = revision
}

// create puts a new pod in the place of one, with a sidecar that has run for so long.
func (r *rolling) create(pod int, revision, configuration string, age time.Duration) {
	p := &r.pods.Items[pod]
	p.UID = types.UID(p.Name + " " + revision)
	p.OwnerReferences = []metav1.OwnerReference{*metav1.NewControllerRef(r.set,
		appsv1.SchemeGroupVersion.WithKind("StatefulSet"))}
	p.Labels = map[string]string{"controller-revision-hash": revision}
	p.Annotations = map[string]string{"checksum/etcd-configmap": configuration}
	r.start(pod, age)
}

// start starts the sidecar so long before noon.
func (r *rolling) start(pod int, age time.Duration) {
	running := &corev1.ContainerStateRunning{StartedAt: metav1.NewTime(noon.Add(-age))}
	r.pods.Items[pod].Status.ContainerStatuses = []corev1.ContainerStatus{
		{Name: "etcd", State: corev1.ContainerState{Running: &corev1.ContainerStateRunning{
			StartedAt: metav1.NewTime(noon.Add(-time.Hour))}}},
		{Name: "backup-restore", State: corev1.ContainerState{Running: running}},
	}
}

// stop ends the sidecar.
func (r *rolling) stop(pod int) {
	r.pods.Items[pod].Status.ContainerStatuses[1].State = corev1.ContainerState{
		Waiting: &corev1.ContainerStateWaiting{Reason: "CrashLoopBackOff"}}
}

// renew renews the Lease of a member so long before noon.
func (r *rolling) renew(pod int, age time.Duration) {
	name := r.pods.Items[pod].Name
	r.leases[name] = lease(name, age)
}

func (r *rolling) gate() *started {
	names := coordinator.DefaultNames()
	names.MemberOf = func(pod string) string { return pod }
	return newStarted(coordinator.Config{StatefulSet: "etcd-main", StatefulSets: setsOf{rolling: r},
		Pods: podsOf{rolling: r}, Leases: leasesOf{rolling: r}, Names: names})
}

func TestSidecarsStartedSaysWhetherASidecarMayStillRestartEtcd(t *testing.T) {
	const s = time.Second
	const notRenewed = "etcd-main-2: its sidecar has not renewed Lease etcd-main-2 since it started at " +
		"2026-07-01T11:59:40Z, and may still restart etcd"
	const unread = "etcd-main-2: Lease etcd-main-2 cannot be read, so its sidecar, which started at " +
		"2026-07-01T11:59:40Z, may still restart etcd: "
	for _, tc := range []struct {
		name   string
		change func(*rolling)
		pass   bool
		want   string // how the detail begins
	}{
		{"the updated pod's Lease was renewed after its sidecar started", func(*rolling) {}, true,
			"pods with the new configuration of etcd: 1 of 3; their sidecars have started"},
		{"it was last renewed by the pod before", func(r *rolling) { r.renew(2, 30*s) }, false, notRenewed},
		{"it was last renewed in the second in which its sidecar started, perhaps by the one before",
			func(r *rolling) { r.renew(2, 20*s-s/2) }, false, notRenewed},
		{"it was renewed in the next second", func(r *rolling) { r.renew(2, 19*s) }, true, ""},
		{"it was never renewed", func(r *rolling) { r.leases["etcd-main-2"].Spec.RenewTime = nil }, false, notRenewed},
		{"its sidecar has restarted since it was renewed", func(r *rolling) {
			r.renew(2, 15*s)
			r.start(2, 10*s)
		}, false,
			"etcd-main-2: its sidecar has not renewed Lease etcd-main-2 since it started at 2026-07-01T11:59:50Z,"},
		{"its sidecar does not run", func(r *rolling) { r.stop(2) }, false,
			"etcd-main-2: its sidecar (container backup-restore) does not run, and may restart etcd when it does"},
		{"its kubelet has said nothing yet", func(r *rolling) { r.pods.Items[2].Status.ContainerStatuses = nil }, false,
			"etcd-main-2: its sidecar (container backup-restore) does not run"},
		{"its sidecar is an init container that keeps running, and renewed it", func(r *rolling) {
			status := &r.pods.Items[2].Status
			status.ContainerStatuses, status.InitContainerStatuses = nil, status.ContainerStatuses
		}, true, ""},
		{"its Lease is missing", func(r *rolling) { delete(r.leases, "etcd-main-2") }, false, unread},
		{"its Lease may not be read", func(r *rolling) { r.fail["get lease"] = errors.New("forbidden") }, false,
			unread + "forbidden"},
		{"outdated pods are not asked for", func(r *rolling) {
			r.stop(0)
			delete(r.leases, "etcd-main-1")
		}, true, ""},
		{"nor is anybody while no pod is updated", func(r *rolling) {
			r.create(2, "old", "plain", 20*s)
			r.renew(2, 30*s)
		}, true, "pods with the new configuration of etcd: 0 of 3"},
		{"of two updated pods one has not renewed it", func(r *rolling) {
			r.create(1, "new", "tls", 20*s)
			r.renew(2, 30*s)
		}, false, notRenewed},
		{"the template has changed again, but not etcd's configuration, and the pod of the first change has not",
			func(r *rolling) {
				r.template("newer", "tls")
				r.renew(2, 30*s)
			}, false, notRenewed},
		{"all pods have the same configuration, and one has not renewed it", func(r *rolling) {
			for i := range r.pods.Items {
				r.create(i, "new", "tls", 20*s)
				r.renew(i, 30*s)
			}
		}, true, "all pods have the same configuration of etcd"},
		{"only images and resources have changed", func(r *rolling) {
			r.template("new", "plain")
			r.create(2, "new", "plain", 20*s)
			r.renew(2, 30*s)
		}, true, "all pods have the same configuration of etcd"},
		{"so they have, and a pod of somebody else's that has the same labels has no note of it", func(r *rolling) {
			r.template("new", "plain")
			r.create(2, "new", "plain", 20*s)
			r.renew(2, 30*s)
			r.pods.Items = append(r.pods.Items, corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "etcd-main-compactor"}})
		}, true, "all pods have the same configuration of etcd"},
		{"nobody notes a configuration on the pods", func(r *rolling) {
			r.set.Spec.Template.Annotations = nil
			for i := range r.pods.Items {
				r.pods.Items[i].Annotations = nil
			}
			r.renew(2, 30*s)
		}, true, "all pods have the same configuration of etcd"},
		{"the pods before the update have no note of it", func(r *rolling) {
			r.pods.Items[0].Annotations, r.pods.Items[1].Annotations = nil, nil
			r.renew(2, 30*s)
		}, false, notRenewed},
		{"the StatefulSet cannot be read", func(r *rolling) {
			r.fail["get statefulset"] = errors.New("forbidden")
		}, false, "StatefulSet etcd-main cannot be read: forbidden"},
		{"the pods cannot be read", func(r *rolling) { r.fail["list pods"] = errors.New("forbidden") }, false,
			"the pods of StatefulSet etcd-main cannot be read: forbidden"},
		{"the StatefulSet's selector makes no sense", func(r *rolling) {
			r.set.Spec.Selector.MatchExpressions = []metav1.LabelSelectorRequirement{{Key: "k", Operator: "Near"}}
		}, false, "StatefulSet etcd-main: spec.selector: "},
	} {
		t.Run(tc.name, func(t *testing.T) {
			r := newRolling()
			tc.change(r)
			if pass, detail := r.gate().ask(t.Context()); pass != tc.pass || !strings.HasPrefix(detail, tc.want) {
				t.Errorf("got %v, %s", pass, detail)
			}
		})
	}
}

func TestSidecarsStartedAsksForNoMoreThanItHasTo(t *testing.T) {
	r := newRolling()
	gate := r.gate()
	const always = "get statefulset etcd-main, list pods app=etcd"
	for _, step := range []struct {
		name   string
		change func()
		pass   bool
		want   string // the requests
	}{
		{"the Lease of the updated pod", func() {}, true, always + ", get lease etcd-main-2"},
		{"not again when it was renewed once", func() { r.renew(2, time.Minute) }, true, always},
		{"again when the sidecar has restarted", func() { r.start(2, 10*time.Second) }, false,
			always + ", get lease etcd-main-2"},
		{"and as long as it was not renewed", func() {}, false, always + ", get lease etcd-main-2"},
		{"until it is", func() { r.renew(2, 0) }, true, always + ", get lease etcd-main-2"},
		{"not again then", func() {}, true, always},
		{"again when the pod was replaced, although its sidecar started in the same second", func() {
			r.pods.Items[2].UID = "another"
		}, true, always + ", get lease etcd-main-2"},
		{"only that of the next pod", func() { r.create(1, "new", "tls", 10*time.Second) }, true,
			always + ", get lease etcd-main-1"},
		{"none when all pods have the same configuration", func() { r.create(0, "new", "tls", 10*time.Second) }, true,
			always},
		{"those of all pods that are updated in the next rollout, however long they run", func() {
			r.template("newer", "plain")
			for i := range 2 {
				r.create(i, "newer", "plain", 10*time.Second)
			}
		}, true, always + ", get lease etcd-main-0, get lease etcd-main-1"},
		{"what was known before that rollout is forgotten", func() { r.template("new", "tls") }, true,
			always + ", get lease etcd-main-2"},
	} {
		r.requests = nil
		step.change()
		pass, detail := gate.ask(t.Context())
		if got := strings.Join(r.requests, ", "); pass != step.pass || got != step.want {
			t.Errorf("%s: %v (%s), asked: %s", step.name, pass, detail, got)
		}
	}
}

func TestSidecarsStartedKnowsTheMembersByTheirNames(t *testing.T) {
	r := newRolling()
	r.leases = map[string]*coordinationv1.Lease{"shoot-etcd-main-2": lease("shoot-etcd-main-2", time.Second)}
	gate := r.gate()
	gate.names.MemberOf = func(pod string) string { return "shoot-" + pod }
	if pass, detail := gate.ask(t.Context()); !pass {
		t.Error(detail)
	}
	r.pods.Items[2].Status.ContainerStatuses[1].Name = "sidecar"
	gate.names.SidecarContainer = "sidecar"
	if pass, detail := gate.ask(t.Context()); !pass {
		t.Error(detail)
	}
}
