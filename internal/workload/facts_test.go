package workload_test

import (
	"reflect"
	"slices"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/quorate/quorate/internal/workload"
	"github.com/quorate/quorate/pkg/rollout"
)

func ptr[T any](v T) *T { return &v }

// statefulSet returns one as etcd-druid makes it, with a claim for the data.
func statefulSet(changes ...func(*appsv1.StatefulSet)) *appsv1.StatefulSet {
	s := &appsv1.StatefulSet{
		ObjectMeta: metav1.ObjectMeta{Name: "etcd-main", Namespace: "ns", UID: "set-uid", Generation: 4},
		Spec: appsv1.StatefulSetSpec{
			Replicas: ptr(int32(3)), PodManagementPolicy: appsv1.ParallelPodManagement,
			Selector:       &metav1.LabelSelector{MatchLabels: map[string]string{"component": "etcd-statefulset"}},
			UpdateStrategy: appsv1.StatefulSetUpdateStrategy{Type: appsv1.OnDeleteStatefulSetStrategyType},
			Template: corev1.PodTemplateSpec{Spec: corev1.PodSpec{Containers: []corev1.Container{
				{Name: "etcd", VolumeMounts: []corev1.VolumeMount{{Name: "data", MountPath: "/var/etcd/data"},
					{Name: "tls", MountPath: "/var/etcd/ssl", ReadOnly: true}}},
				{Name: "backup-restore", VolumeMounts: []corev1.VolumeMount{{Name: "data",
					MountPath: "/var/etcd/data"}}},
			}}},
			VolumeClaimTemplates: []corev1.PersistentVolumeClaim{{ObjectMeta: metav1.ObjectMeta{Name: "data"}}},
		},
		Status: appsv1.StatefulSetStatus{ObservedGeneration: 3, UpdateRevision: "rev-2"},
	}
	for _, change := range changes {
		change(s)
	}
	return s
}

func TestFactsOfAStatefulSet(t *testing.T) {
	base := rollout.Set{
		Sidecar:   "backup-restore",
		Namespace: "ns", Name: "etcd-main", UID: "set-uid", Replicas: 3, OnDelete: true,
		Generation: 4, ObservedGeneration: 3, UpdateRevision: "rev-2",
		Etcd:   rollout.Program{Container: "etcd", Unseen: "the command is not etcd's own"},
		Claims: []string{"data"},
	}
	for _, tc := range []struct {
		name   string
		change func(*appsv1.StatefulSet)
		want   func(*rollout.Set)
	}{
		{"a StatefulSet as druid makes it", func(*appsv1.StatefulSet) {}, func(*rollout.Set) {}},
		{"replicas that are not set mean one", func(s *appsv1.StatefulSet) { s.Spec.Replicas = nil },
			func(f *rollout.Set) { f.Replicas = 1 }},
		{"no replicas stay none", func(s *appsv1.StatefulSet) { s.Spec.Replicas = ptr(int32(0)) },
			func(f *rollout.Set) { f.Replicas = 0 }},
		{"the first ordinal is honoured", func(s *appsv1.StatefulSet) {
			s.Spec.Ordinals = &appsv1.StatefulSetOrdinals{Start: 7}
		}, func(f *rollout.Set) { f.Start = 7 }},
		{"RollingUpdate is not ours", func(s *appsv1.StatefulSet) {
			s.Spec.UpdateStrategy.Type = appsv1.RollingUpdateStatefulSetStrategyType
		}, func(f *rollout.Set) { f.OnDelete = false }},
		{"a strategy that is not set is not ours", func(s *appsv1.StatefulSet) { s.Spec.UpdateStrategy.Type = "" },
			func(f *rollout.Set) { f.OnDelete = false }},
		{"a deletion timestamp means deleting", func(s *appsv1.StatefulSet) {
			s.DeletionTimestamp = &metav1.Time{Time: time.Unix(1, 0)}
		}, func(f *rollout.Set) { f.Deleting = true }},
		{"OrderedReady recreates pods in order", func(s *appsv1.StatefulSet) {
			s.Spec.PodManagementPolicy = appsv1.OrderedReadyPodManagement
		}, func(f *rollout.Set) { f.OrderedReady = true }},
		{"it is the API's default", func(s *appsv1.StatefulSet) { s.Spec.PodManagementPolicy = "" },
			func(f *rollout.Set) { f.OrderedReady = true }},
		{"minReadySeconds are seconds", func(s *appsv1.StatefulSet) { s.Spec.MinReadySeconds = 12 },
			func(f *rollout.Set) { f.MinReady = 12 * time.Second }},
	} {
		t.Run(tc.name, func(t *testing.T) {
			want := base
			tc.want(&want)
			if got := workload.SetFacts(statefulSet(tc.change), workload.DefaultNames()); !reflect.DeepEqual(got, want) {
				t.Errorf("\n got %+v\nwant %+v", got, want)
			}
		})
	}
}

func TestDataIsVolatileWhenNoWritableVolumeOutlivesThePod(t *testing.T) {
	from := func(source corev1.VolumeSource) func(*appsv1.StatefulSet) {
		return func(s *appsv1.StatefulSet) {
			s.Spec.VolumeClaimTemplates = nil
			s.Spec.Template.Spec.Volumes = []corev1.Volume{{Name: "data", VolumeSource: source}}
		}
	}
	for _, tc := range []struct {
		name   string
		change func(*appsv1.StatefulSet)
		want   bool
	}{
		{"a claim template persists", func(*appsv1.StatefulSet) {}, false},
		{"a claim template of another name does not count",
			func(s *appsv1.StatefulSet) { s.Spec.VolumeClaimTemplates[0].Name = "backups" }, true},
		{"a claim persists",
			from(corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{}}), false},
		{"a claim that etcd does not mount does not count", func(s *appsv1.StatefulSet) {
			from(corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}})(s)
			s.Spec.Template.Spec.Volumes = append(s.Spec.Template.Spec.Volumes, corev1.Volume{
				Name:         "logs",
				VolumeSource: corev1.VolumeSource{PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{}},
			})
		}, true},
		{"a directory of the node persists", from(corev1.VolumeSource{HostPath: &corev1.HostPathVolumeSource{}}),
			false},
		{"an emptyDir is volatile", from(corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}), true},
		{"a generic ephemeral volume is volatile",
			from(corev1.VolumeSource{Ephemeral: &corev1.EphemeralVolumeSource{}}), true},
		{"an inline CSI volume is volatile",
			from(corev1.VolumeSource{CSI: &corev1.CSIVolumeSource{Driver: "secrets-store.csi.k8s.io"}}), true},
		{"a ConfigMap holds no data", from(corev1.VolumeSource{ConfigMap: &corev1.ConfigMapVolumeSource{}}), true},
		{"a Secret holds no data", from(corev1.VolumeSource{Secret: &corev1.SecretVolumeSource{}}), true},
		{"a projected volume holds no data", from(corev1.VolumeSource{Projected: &corev1.ProjectedVolumeSource{}}),
			true},
		{"a downward API volume holds no data",
			from(corev1.VolumeSource{DownwardAPI: &corev1.DownwardAPIVolumeSource{}}), true},
		{"an image holds no data", from(corev1.VolumeSource{Image: &corev1.ImageVolumeSource{}}), true},
		{"a claim that is mounted read-only holds no data", func(s *appsv1.StatefulSet) {
			s.Spec.Template.Spec.Containers[0].VolumeMounts[0].ReadOnly = true
		}, true},
		{"what only the sidecar mounts does not count", func(s *appsv1.StatefulSet) {
			s.Spec.Template.Spec.Containers[0].VolumeMounts = nil
		}, true},
		{"data is volatile where the etcd container is not found",
			func(s *appsv1.StatefulSet) { s.Spec.Template.Spec.Containers[0].Name = "other" }, true},
		{"no mounts at all are volatile", func(s *appsv1.StatefulSet) {
			s.Spec.Template.Spec.Containers[0].VolumeMounts, s.Spec.VolumeClaimTemplates = nil, nil
		}, true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if got := workload.SetFacts(statefulSet(tc.change), workload.DefaultNames()).VolatileData; got != tc.want {
				t.Errorf("got %v, want %v", got, tc.want)
			}
		})
	}
}

// Only the volume that holds etcd's data counts, whatever else etcd's container mounts.
func TestTheMountThatCoversTheDataDirectorySaysWhetherTheDataOutlivesThePod(t *testing.T) {
	claim := func(path string) corev1.VolumeMount { return corev1.VolumeMount{Name: "data", MountPath: path} }
	scratch := func(path string) corev1.VolumeMount { return corev1.VolumeMount{Name: "scratch", MountPath: path} }
	node := func(path string) corev1.VolumeMount { return corev1.VolumeMount{Name: "node", MountPath: path} }
	mounts := func(ms ...corev1.VolumeMount) func(*appsv1.StatefulSet) {
		return func(s *appsv1.StatefulSet) {
			s.Spec.Template.Spec.Volumes = []corev1.Volume{
				{Name: "scratch", VolumeSource: corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}},
				{Name: "node",
					VolumeSource: corev1.VolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: "/etc/ssl"}}},
			}
			s.Spec.Template.Spec.Containers[0].VolumeMounts = ms
		}
	}
	etcd := func(words ...string) func(*appsv1.StatefulSet) {
		return func(s *appsv1.StatefulSet) { s.Spec.Template.Spec.Containers[0].Command = words }
	}
	sidecar := func(args ...string) func(*appsv1.StatefulSet) {
		return func(s *appsv1.StatefulSet) { s.Spec.Template.Spec.Containers[1].Args = args }
	}
	env := func(container int, value string) func(*appsv1.StatefulSet) {
		return func(s *appsv1.StatefulSet) {
			s.Spec.Template.Spec.Containers[container].Env = []corev1.EnvVar{{Name: "OTHER", Value: "x"},
				{Name: "ETCD_DATA_DIR", Value: value}}
		}
	}
	type changes []func(*appsv1.StatefulSet)
	for _, tc := range []struct {
		name     string
		flag     string
		changes  changes
		volatile bool
	}{
		{"a directory of the node beside an emptyDir for the data does not count", "",
			changes{mounts(scratch("/var/etcd/data"), node("/etc/ssl"))}, true},
		{"nor does a claim for something else", "", changes{mounts(scratch("/var/etcd/data"), claim("/backups"))},
			true},
		{"a claim above the data directory covers it", "", changes{mounts(claim("/var"))}, false},
		{"the longest path counts", "", changes{mounts(claim("/var/etcd"), scratch("/var/etcd/data"))}, true},
		{"in any order", "", changes{mounts(scratch("/var"), claim("/var/etcd/data/"))}, false},
		{"a mount below the data directory does not cover it", "", changes{mounts(claim("/var/etcd/data/member"))},
			true},
		{"nor does one whose name only begins alike", "", changes{mounts(claim("/var/etcd/dat"))}, true},

		{"the flag names the directory", "/data", changes{mounts(claim("/data"), scratch("/var/etcd/data"))}, false},
		{"what the flag names has the last word", "/data",
			changes{mounts(claim("/var/etcd/data")), etcd("etcd", "--data-dir=/var/etcd/data")}, true},

		{"etcd's own argument names it", "", changes{mounts(claim("/lib"), scratch("/var/etcd/data")),
			etcd("etcd", "--name=x", "--data-dir=/lib/etcd")}, false},
		{"an argument of its own", "", changes{mounts(claim("/lib")), etcd("etcd", "--data-dir", "/lib/etcd")}, false},
		{"with one dash", "", changes{mounts(claim("/lib")), etcd("etcd", "-data-dir", "/lib/etcd")}, false},
		{"within a script", "", changes{mounts(claim("/lib")),
			etcd("/bin/sh", "-ec", "exec etcd --name x \\\n  --data-dir=\"/lib/etcd\" --quota-backend-bytes=1;")},
			false},
		{"the last one counts", "", changes{mounts(claim("/lib")), etcd("etcd", "--data-dir=/lib", "--data-dir=/tmp")},
			true},
		{"what etcd says itself is not covered by what another mount is", "",
			changes{mounts(claim("/var/etcd/data")), etcd("etcd", "--data-dir=/tmp/etcd")}, true},
		{"a directory that is relative is known to nobody", "",
			changes{mounts(claim("/var/etcd/data")), etcd("etcd", "--data-dir=default.etcd")}, true},
		{"its environment names it", "", changes{mounts(claim("/lib")), env(0, "/lib/etcd")}, false},
		{"its argument goes before its environment", "",
			changes{mounts(claim("/lib")), env(0, "/lib/etcd"), etcd("etcd", "--data-dir=/tmp")}, true},
		{"a flag that only begins alike is another", "",
			changes{mounts(claim("/var/etcd/data")), etcd("etcd", "--data-dir-x=/tmp")}, false},

		{"a log of its own on another volume goes with the pod as well", "",
			changes{mounts(claim("/var/etcd/data"), scratch("/wal")), etcd("etcd", "--wal-dir=/wal/etcd")}, true},
		{"also where the flag names the data directory", "/var/etcd/data",
			changes{mounts(claim("/var/etcd/data"), scratch("/wal")), etcd("etcd", "--wal-dir", "/wal")}, true},
		{"a log of its own that outlives the pod does not", "",
			changes{mounts(claim("/var/etcd/data")), etcd("etcd", "--wal-dir=/var/etcd/data/wal")}, false},

		{"the sidecar's argument names it", "", changes{mounts(claim("/lib")),
			sidecar("server", "--data-dir=/lib/new.etcd")}, false},
		{"the sidecar's environment names it", "",
			changes{mounts(scratch("/lib"), claim("/var/etcd/data")), env(1, "/lib/new.etcd")}, true},
		{"a directory of the sidecar's own is not etcd's", "",
			changes{mounts(claim("/var/etcd/data")), sidecar("--data-dir=/mine")}, false},
		{"etcd's own argument goes before the sidecar's", "",
			changes{mounts(claim("/lib"), scratch("/tmp")), etcd("etcd", "--data-dir=/lib/x"),
				sidecar("--data-dir=/tmp/x")}, false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			names := workload.DefaultNames()
			names.EtcdDataDir = tc.flag
			if got := workload.SetFacts(statefulSet(tc.changes...), names).VolatileData; got != tc.volatile {
				t.Errorf("volatile: %v, want %v", got, tc.volatile)
			}
		})
	}
}

func TestAPodWithoutTheContainerThatEtcdShouldRunInTellsNothing(t *testing.T) {
	set := workload.SetFacts(statefulSet(), workload.DefaultNames())
	if workload.PodFacts(pod(), set, workload.DefaultNames()).NoEtcdContainer {
		t.Error("it has one")
	}
	names := workload.DefaultNames()
	names.EtcdContainer = "member"
	if !workload.PodFacts(pod(), set, names).NoEtcdContainer {
		t.Error("it has none of that name")
	}
}

// pod returns one as it stands in full health.
func pod(changes ...func(*corev1.Pod)) *corev1.Pod {
	running := corev1.ContainerState{Running: &corev1.ContainerStateRunning{}}
	p := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Name: "etcd-main-1", UID: "pod-uid", ResourceVersion: "77",
			Labels: map[string]string{"controller-revision-hash": "rev-1"},
			OwnerReferences: []metav1.OwnerReference{{Kind: "StatefulSet", Name: "etcd-main", UID: "set-uid",
				Controller: ptr(true)}},
		},
		Spec: corev1.PodSpec{
			Containers: []corev1.Container{
				{Name: "etcd", VolumeMounts: []corev1.VolumeMount{{Name: "data", MountPath: "/var/etcd/data"}}},
				{Name: "backup-restore"},
			},
			Volumes: []corev1.Volume{{Name: "data", VolumeSource: corev1.VolumeSource{
				PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: "data-etcd-main-1"},
			}}},
		},
		Status: corev1.PodStatus{
			Conditions: []corev1.PodCondition{
				{Type: corev1.PodInitialized, Status: corev1.ConditionTrue},
				{Type: corev1.ContainersReady, Status: corev1.ConditionTrue},
				{Type: corev1.PodReady, Status: corev1.ConditionTrue},
			},
			ContainerStatuses: []corev1.ContainerStatus{
				{Name: "etcd", Ready: true, RestartCount: 2, State: running},
				{Name: "backup-restore", Ready: true, State: running},
			},
		},
	}
	for _, change := range changes {
		change(p)
	}
	return p
}

func TestFactsOfAPod(t *testing.T) {
	running := rollout.Container{State: rollout.ContainerRunning, Ready: true}
	base := rollout.Pod{
		Name: "etcd-main-1", UID: "pod-uid", ResourceVersion: "77", Ordinal: 1, MemberName: "etcd-main-1",
		Revision: "rev-1",
		Owned:    true, Ready: true, ContainersReady: true, Initialized: true,
		Etcd: rollout.Container{State: rollout.ContainerRunning, Ready: true, Restarts: 2}, Sidecar: running,
	}
	etcdIs := func(s corev1.ContainerState) func(*corev1.Pod) {
		return func(p *corev1.Pod) {
			p.Status.ContainerStatuses[0] = corev1.ContainerStatus{Name: "etcd", State: s}
		}
	}
	// unready is a pod whose containers turned unready so long after it was initialized.
	unready := func(after time.Duration) func(*corev1.Pod) {
		return func(p *corev1.Pod) {
			began := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
			p.Status.Conditions[0].LastTransitionTime = metav1.NewTime(began)
			p.Status.Conditions[1].Status, p.Status.Conditions[1].LastTransitionTime = corev1.ConditionFalse,
				metav1.NewTime(began.Add(after))
		}
	}
	condition := func(i int, s corev1.ConditionStatus) func(*corev1.Pod) {
		return func(p *corev1.Pod) { p.Status.Conditions[i].Status = s }
	}
	for _, tc := range []struct {
		name   string
		change func(*corev1.Pod)
		want   func(*rollout.Pod)
	}{
		{"a pod in full health", func(*corev1.Pod) {}, func(*rollout.Pod) {}},
		{"a deletion timestamp means terminating", func(p *corev1.Pod) { p.DeletionTimestamp = &metav1.Time{} },
			func(f *rollout.Pod) { f.Terminating = true }},
		{"the revision is a label", func(p *corev1.Pod) { p.Labels["controller-revision-hash"] = "rev-2" },
			func(f *rollout.Pod) { f.Revision = "rev-2" }},
		{"no label, no revision", func(p *corev1.Pod) { p.Labels = nil }, func(f *rollout.Pod) { f.Revision = "" }},
		{"no owner", func(p *corev1.Pod) { p.OwnerReferences = nil }, func(f *rollout.Pod) { f.Owned = false }},
		{"a StatefulSet of the same name with another UID is another owner",
			func(p *corev1.Pod) { p.OwnerReferences[0].UID = "old-uid" }, func(f *rollout.Pod) { f.Owned = false }},
		{"an owner of another kind is another owner", func(p *corev1.Pod) { p.OwnerReferences[0].Kind = "Etcd" },
			func(f *rollout.Pod) { f.Owned = false }},
		{"one owner among several", func(p *corev1.Pod) {
			p.OwnerReferences = append([]metav1.OwnerReference{{Kind: "Etcd", UID: "x"}}, p.OwnerReferences...)
		}, func(*rollout.Pod) {}},
		{"Ready that is false", condition(2, corev1.ConditionFalse), func(f *rollout.Pod) { f.Ready = false }},
		{"Ready that is unknown", condition(2, corev1.ConditionUnknown), func(f *rollout.Pod) { f.Ready = false }},
		{"containers that are not ready", condition(1, corev1.ConditionFalse),
			func(f *rollout.Pod) { f.ContainersReady = false }},
		{"init containers that have not finished", condition(0, corev1.ConditionFalse),
			func(f *rollout.Pod) { f.Initialized = false }},
		{"no conditions yet", func(p *corev1.Pod) { p.Status.Conditions = nil }, func(f *rollout.Pod) {
			f.Ready, f.ContainersReady, f.Initialized, f.NeverReady = false, false, false, true
		}},
		{"containers that have not been ready since the pod was initialized", unready(0),
			func(f *rollout.Pod) { f.ContainersReady, f.NeverReady = false, true }},
		{"containers that were ready in between", unready(time.Minute),
			func(f *rollout.Pod) { f.ContainersReady = false }},
		{"an evicted pod, whatever its containers said last", func(p *corev1.Pod) {
			p.Status.Phase, p.Status.Reason = corev1.PodFailed, "Evicted"
		}, func(f *rollout.Pod) {
			f.Etcd = rollout.Container{State: rollout.ContainerTerminated, Reason: "Evicted"}
			f.Sidecar = f.Etcd
			f.Finished, f.NeverReady = true, true // Its kubelet has taken an emptyDir away with it.
		}},
		{"a pod that succeeded when its node was shut down, without container statuses", func(p *corev1.Pod) {
			p.Status.Phase, p.Status.ContainerStatuses = corev1.PodSucceeded, nil
		}, func(f *rollout.Pod) {
			f.Etcd = rollout.Container{State: rollout.ContainerTerminated, Reason: "Succeeded"}
			f.Sidecar = f.Etcd
			f.Finished, f.NeverReady = true, true
		}},
		{"a pod that runs has not finished", func(p *corev1.Pod) { p.Status.Phase = corev1.PodRunning },
			func(*rollout.Pod) {}},
		{"data in a volume that is made for the pod", func(p *corev1.Pod) {
			p.Spec.Volumes[0].VolumeSource = corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}}
		}, func(f *rollout.Pod) { f.VolatileData = true }},
		{"data in no volume at all", func(p *corev1.Pod) { p.Spec.Containers[0].VolumeMounts = nil },
			func(f *rollout.Pod) { f.VolatileData = true }},
		{"readiness gates",
			func(p *corev1.Pod) { p.Spec.ReadinessGates = []corev1.PodReadinessGate{{ConditionType: "x"}} },
			func(f *rollout.Pod) { f.ReadinessGates = true }},
		{"a container that waits",
			etcdIs(corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "CrashLoopBackOff"}}),
			func(f *rollout.Pod) {
				f.Etcd = rollout.Container{State: rollout.ContainerWaiting, Reason: "CrashLoopBackOff"}
			}},
		{"a container that has ended",
			etcdIs(corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{Reason: "OOMKilled"}}),
			func(f *rollout.Pod) {
				f.Etcd = rollout.Container{State: rollout.ContainerTerminated, Reason: "OOMKilled", Why: "exit code 0"}
			}},
		{"a container that its kubelet backs off from: how its last process ended says more than for how long",
			func(p *corev1.Pod) {
				etcdIs(corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "CrashLoopBackOff",
					Message: "back-off 5m0s restarting failed container"}})(p)
				p.Status.ContainerStatuses[0].LastTerminationState.Terminated =
					&corev1.ContainerStateTerminated{Reason: "Error", ExitCode: 2, Message: "bad\n  flag"}
			}, func(f *rollout.Pod) {
				f.Etcd = rollout.Container{State: rollout.ContainerWaiting, Reason: "CrashLoopBackOff",
					Why: "its last process ended with Error, exit code 2: bad flag"}
			}},
		{"an image that cannot be pulled: the kubelet says which",
			etcdIs(corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "ImagePullBackOff",
				Message: `Back-off pulling image "etcd:v9"`}}),
			func(f *rollout.Pod) {
				f.Etcd = rollout.Container{State: rollout.ContainerWaiting, Reason: "ImagePullBackOff",
					Why: `Back-off pulling image "etcd:v9"`}
			}},
		{"an init container that fails keeps the others waiting", func(p *corev1.Pod) {
			etcdIs(corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "PodInitializing"}})(p)
			p.Status.InitContainerStatuses = []corev1.ContainerStatus{{Name: "change-permissions",
				State: corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "CrashLoopBackOff"}}}}
		}, func(f *rollout.Pod) {
			f.Etcd = rollout.Container{State: rollout.ContainerWaiting, Reason: "PodInitializing",
				Why: "init container change-permissions: CrashLoopBackOff"}
		}},
		{"a pod that terminates says until when it may", func(p *corev1.Pod) {
			week := int64(7 * 24 * 3600)
			p.DeletionTimestamp, p.DeletionGracePeriodSeconds = &metav1.Time{Time: time.Unix(1, 0)}, &week
			p.Finalizers = []string{"example.com/keep"}
		}, func(f *rollout.Pod) {
			f.Terminating, f.Grace, f.GraceEnds = true, 7*24*time.Hour, time.Unix(1, 0)
			f.Finalizers = []string{"example.com/keep"}
		}},
		{"a container that runs but is not ready",
			etcdIs(corev1.ContainerState{Running: &corev1.ContainerStateRunning{}}),
			func(f *rollout.Pod) { f.Etcd = rollout.Container{State: rollout.ContainerRunning} }},
		{"an empty state means waiting", etcdIs(corev1.ContainerState{}),
			func(f *rollout.Pod) { f.Etcd = rollout.Container{State: rollout.ContainerWaiting} }},
		{"no status yet", func(p *corev1.Pod) { p.Status.ContainerStatuses = nil },
			func(f *rollout.Pod) { f.Etcd, f.Sidecar = rollout.Container{}, rollout.Container{} }},
		{"no node has room for it", func(p *corev1.Pod) {
			p.Status.ContainerStatuses, p.Status.Conditions = nil, []corev1.PodCondition{{Type: corev1.PodScheduled,
				Status: corev1.ConditionFalse, Reason: corev1.PodReasonUnschedulable,
				Message: "0/5 nodes are available"}}
		}, func(f *rollout.Pod) {
			f.Ready, f.ContainersReady, f.Initialized, f.NeverReady = false, false, false, true
			f.Etcd = rollout.Container{Reason: "Unschedulable", Why: "0/5 nodes are available"} // No container waits: it is not there.
			f.Sidecar = f.Etcd
		}},
		{"it has a node, and no network yet", func(p *corev1.Pod) {
			p.Status.PodIP, p.Status.PodIPs = "", nil
			p.Status.Conditions[1].Status, p.Status.Conditions[2].Status = corev1.ConditionFalse, corev1.ConditionFalse
			p.Status.Conditions = append(p.Status.Conditions,
				corev1.PodCondition{Type: corev1.PodReadyToStartContainers, Status: corev1.ConditionFalse},
				corev1.PodCondition{Type: corev1.PodScheduled, Status: corev1.ConditionTrue})
			etcdIs(corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: "ContainerCreating"}})(p)
		}, func(f *rollout.Pod) {
			f.Ready, f.ContainersReady = false, false
			f.Etcd = rollout.Container{State: rollout.ContainerWaiting, Reason: "ContainerCreating"}
		}},
		{"a terminating pod keeps what its kubelet said before its containers ended",
			func(p *corev1.Pod) { p.DeletionTimestamp, p.DeletionGracePeriodSeconds = &metav1.Time{}, new(int64) },
			func(f *rollout.Pod) { f.Terminating = true }},
		{"a sidecar that is not ready", func(p *corev1.Pod) { p.Status.ContainerStatuses[1].Ready = false },
			func(f *rollout.Pod) { f.Sidecar.Ready = false }},
		{"a sidecar that is an init container", func(p *corev1.Pod) {
			p.Spec.Containers, p.Spec.InitContainers = p.Spec.Containers[:1], []corev1.Container{p.Spec.Containers[1]}
			p.Status.ContainerStatuses, p.Status.InitContainerStatuses = p.Status.ContainerStatuses[:1],
				[]corev1.ContainerStatus{p.Status.ContainerStatuses[1]}
			p.Status.InitContainerStatuses[0].Ready = false
		}, func(f *rollout.Pod) { f.Sidecar.Ready = false }},
		{"a pod without a sidecar has none that could be sick", func(p *corev1.Pod) {
			p.Spec.Containers, p.Status.ContainerStatuses = p.Spec.Containers[:1], p.Status.ContainerStatuses[:1]
		}, func(*rollout.Pod) {}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			want := base
			tc.want(&want)
			if got := workload.PodFacts(pod(tc.change), rollout.Set{Name: "etcd-main", UID: "set-uid"},
				workload.DefaultNames()); !reflect.DeepEqual(got, want) {
				t.Errorf("\n got %+v\nwant %+v", got, want)
			}
		})
	}
}

func TestAPodLeavesWhileAResizeInPlaceRestartsEtcd(t *testing.T) {
	const leaves = "it is being resized in place, which restarts etcd"
	on := func(name string, status corev1.ConditionStatus) func(*corev1.Pod) {
		return func(p *corev1.Pod) {
			p.Status.Conditions = append(p.Status.Conditions,
				corev1.PodCondition{Type: corev1.PodConditionType(name), Status: status})
		}
	}
	resizing := on("PodResizeInProgress", corev1.ConditionTrue)
	restarts := func(container int, resources ...corev1.ResourceName) func(*corev1.Pod) {
		return func(p *corev1.Pod) {
			for _, name := range resources {
				c := &p.Spec.Containers[container]
				c.ResizePolicy = append(c.ResizePolicy,
					corev1.ContainerResizePolicy{ResourceName: name, RestartPolicy: corev1.RestartContainer})
			}
		}
	}
	list := func(name corev1.ResourceName, amount string) corev1.ResourceList {
		return corev1.ResourceList{name: resource.MustParse(amount)}
	}
	wish := func(r corev1.ResourceRequirements) func(*corev1.Pod) {
		return func(p *corev1.Pod) { p.Spec.Containers[0].Resources = r }
	}
	has := func(r corev1.ResourceRequirements) func(*corev1.Pod) {
		return func(p *corev1.Pod) { p.Status.ContainerStatuses[0].Resources = &r }
	}
	request := func(amount string) corev1.ResourceRequirements {
		return corev1.ResourceRequirements{Requests: list("memory", amount)}
	}
	limit := func(amount string) corev1.ResourceRequirements {
		return corev1.ResourceRequirements{Limits: list("memory", amount)}
	}
	for _, tc := range []struct {
		name string
		pod  *corev1.Pod
		want string
	}{
		{"a resize is under way",
			pod(resizing, restarts(0, "memory"), wish(request("2Gi")), has(request("1Gi"))), leaves},
		{"of its limits", pod(resizing, restarts(0, "memory"), wish(limit("2Gi")), has(limit("1Gi"))), leaves},
		{"of limits that it has not had",
			pod(resizing, restarts(0, "memory"), wish(limit("2Gi")), has(corev1.ResourceRequirements{})), leaves},
		{"nobody tells what it has", pod(resizing, restarts(0, "cpu", "memory")), leaves},
		{"it comes from an eviction that may have failed too", pod(resizing, restarts(0, "memory"), func(p *corev1.Pod) {
			p.Status.Conditions = append(p.Status.Conditions, corev1.PodCondition{Type: corev1.DisruptionTarget,
				Status: corev1.ConditionTrue, Reason: "EvictionByEvictionAPI"})
		}), leaves},

		{"a resize that has ended",
			pod(on("PodResizeInProgress", corev1.ConditionFalse), restarts(0, "memory")), ""},
		{"one that is pending, maybe for ever",
			pod(on("PodResizePending", corev1.ConditionTrue), restarts(0, "memory")), ""},
		{"a policy alone", pod(restarts(0, "cpu", "memory")), ""},
		{"one that restarts nothing", pod(resizing, wish(request("2Gi")), has(request("1Gi"))), ""},
		{"one that restarts nothing, in words", pod(resizing, func(p *corev1.Pod) {
			p.Spec.Containers[0].ResizePolicy = []corev1.ContainerResizePolicy{
				{ResourceName: "memory", RestartPolicy: corev1.NotRequired}}
		}, wish(request("2Gi")), has(request("1Gi"))), ""},
		{"one of another resource than the one that restarts it",
			pod(resizing, restarts(0, "cpu"), wish(request("2Gi")), has(request("1Gi"))), ""},
		{"etcd has restarted with what was wished for, in other words",
			pod(resizing, restarts(0, "memory"), wish(request("2Gi")), has(request("2048Mi"))), ""},
		{"one that restarts the sidecar alone", pod(resizing, restarts(1, "cpu", "memory")), ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			facts := workload.PodFacts(tc.pod, rollout.Set{Name: "etcd-main", UID: "set-uid"}, workload.DefaultNames())
			if facts.Leaving != tc.want || facts.Evicted {
				t.Errorf("leaving %q, evicted %t; want %q", facts.Leaving, facts.Evicted, tc.want)
			}
		})
	}
}

func TestTheHostNamesContainersAndMembers(t *testing.T) {
	names := workload.Names{EtcdContainer: "db", SidecarContainer: "agent",
		MemberOf: func(pod string) string { return "shoot--" + pod }}
	p := pod(func(p *corev1.Pod) {
		for i, n := range []string{"db", "agent"} {
			p.Spec.Containers[i].Name, p.Status.ContainerStatuses[i].Name = n, n
		}
		p.Status.ContainerStatuses[1].Ready = false
	})
	got := workload.PodFacts(p, rollout.Set{Name: "etcd-main", UID: "set-uid"}, names)
	if got.MemberName != "shoot--etcd-main-1" || !got.Etcd.Ready || got.Sidecar.Ready {
		t.Errorf("got %+v", got)
	}
	s := statefulSet(func(s *appsv1.StatefulSet) { s.Spec.Template.Spec.Containers[0].Name = "db" })
	if workload.SetFacts(s, names).VolatileData {
		t.Error("the data of container db is not found")
	}
}

func TestOrdinalsAreReadAsTheControllerReadsThem(t *testing.T) {
	for name, want := range map[string]int{
		"etcd-main-0":                    0,
		"etcd-main-10":                   10,
		"etcd-main-01":                   1, // The controller takes it for its own, so that two pods can share an ordinal.
		"etcd-main--1":                   -1,
		"etcd-main-+1":                   -1,
		"etcd-main-":                     -1,
		"etcd-main":                      -1,
		"etcd-main-x":                    -1,
		"etcd-main-1x":                   -1,
		"etcd-main-0x1":                  -1,
		"etcd-main-1_0":                  -1,
		"etcd-main-1-2":                  -1,
		"etcd-events-1":                  -1,
		"my-etcd-main-1":                 -1,
		"etcd-main-99999999999999999999": -1,
	} {
		got := workload.PodFacts(pod(func(p *corev1.Pod) { p.Name = name }), rollout.Set{Name: "etcd-main"},
			workload.DefaultNames()).Ordinal
		if got != want {
			t.Errorf("%s: ordinal %d, want %d", name, got, want)
		}
	}
}

func TestAgesOfADumpAreThoseOfTheObjects(t *testing.T) {
	now := time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)
	ago := func(d time.Duration) metav1.Time { return metav1.NewTime(now.Add(-d)) }
	p := pod(func(p *corev1.Pod) {
		p.CreationTimestamp = ago(time.Hour)
		for i := range p.Status.Conditions[1:] {
			c := &p.Status.Conditions[i+1]
			c.Status, c.LastTransitionTime = corev1.ConditionFalse, ago(20*time.Minute)
		}
		// A crash loop: it has ended just now, and has not been ready for long.
		p.Status.ContainerStatuses[0] = corev1.ContainerStatus{Name: "etcd", RestartCount: 7,
			State: corev1.ContainerState{
				Terminated: &corev1.ContainerStateTerminated{Reason: "Error", FinishedAt: ago(3 * time.Second)},
			}}
	})
	set := statefulSet(func(*appsv1.StatefulSet) {})
	p.Namespace, p.OwnerReferences[0].UID = set.Namespace, set.UID
	d := workload.Dump{Pods: []corev1.Pod{*p}}
	ages := d.Ages(set, workload.DefaultNames(), now)
	for condition, want := range map[rollout.Condition]time.Duration{
		rollout.PodSeen: time.Hour, rollout.TerminatedSeen: 3 * time.Second, rollout.RestartingSeen: 20 * time.Minute,
		rollout.UnsettledSeen: 20 * time.Minute,
	} {
		if got := ages[rollout.Sighting{UID: string(p.UID), Condition: condition}]; got != want {
			t.Errorf("%v has lasted %v, want %v", condition, got, want)
		}
	}
}

func TestAPodLacksTheClaimsThatItHasNoVolumeFor(t *testing.T) {
	set := workload.SetFacts(statefulSet(func(s *appsv1.StatefulSet) {
		s.Spec.VolumeClaimTemplates = append(s.Spec.VolumeClaimTemplates,
			corev1.PersistentVolumeClaim{ObjectMeta: metav1.ObjectMeta{Name: "wal"}})
	}), workload.DefaultNames())
	wal := func(source corev1.VolumeSource) func(*corev1.Pod) {
		return func(p *corev1.Pod) {
			p.Spec.Volumes = append(p.Spec.Volumes, corev1.Volume{Name: "wal", VolumeSource: source})
		}
	}
	for _, tc := range []struct {
		name string
		pod  *corev1.Pod
		want []string
	}{
		{"it was made before the template", pod(), []string{"wal"}},
		{"it has a volume of that name, made for it alone",
			pod(wal(corev1.VolumeSource{EmptyDir: &corev1.EmptyDirVolumeSource{}})), []string{"wal"}},
		{"it has the claim", pod(wal(corev1.VolumeSource{
			PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: "wal-etcd-main-1"},
		})), nil},
		{"it has no volume at all", pod(func(p *corev1.Pod) { p.Spec.Volumes = nil }), []string{"data", "wal"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if got := workload.PodFacts(tc.pod, set, workload.DefaultNames()).Unclaimed; !slices.Equal(got, tc.want) {
				t.Errorf("%q, want %q", got, tc.want)
			}
		})
	}
}

func TestADumpTellsWhyAMissingPodIsNotCreated(t *testing.T) {
	start := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	event := func(minute int, reason, message string, changes ...func(*corev1.Event)) corev1.Event {
		e := corev1.Event{
			ObjectMeta:     metav1.ObjectMeta{Namespace: "ns"},
			InvolvedObject: corev1.ObjectReference{Kind: "StatefulSet", Name: "etcd-main", UID: "set-uid"},
			Reason:         reason, Message: message,
			LastTimestamp: metav1.NewTime(start.Add(time.Duration(minute) * time.Minute)),
		}
		for _, change := range changes {
			change(&e)
		}
		return e
	}
	failed := func(pod, why string) string {
		return "create Pod " + pod + " in StatefulSet etcd-main failed error: " + why
	}
	created := func(pod string) string { return "create Pod " + pod + " in StatefulSet etcd-main successful" }
	for _, tc := range []struct {
		name   string
		events []corev1.Event
		want   string
	}{
		{"nothing is said", nil, ""},
		{"the newest counts", []corev1.Event{event(3, "FailedCreate", failed("etcd-main-2", "exceeded quota")),
			event(1, "FailedCreate", failed("etcd-main-2", "no such account"))},
			failed("etcd-main-2", "exceeded quota")},
		{"a pod that is there is not told of",
			[]corev1.Event{event(3, "FailedCreate", failed("etcd-main-1", "quota"))}, ""},
		{"nor one whose name only begins alike",
			[]corev1.Event{event(3, "FailedCreate", failed("etcd-main-21", "quota"))}, ""},
		{"what was said before it was created the last time is over", []corev1.Event{
			event(1, "FailedCreate", failed("etcd-main-2", "quota")),
			event(2, "SuccessfulCreate", created("etcd-main-2")),
		}, ""},
		{"what is said after that counts", []corev1.Event{
			event(3, "FailedCreate", failed("etcd-main-2", "quota")),
			event(2, "SuccessfulCreate", created("etcd-main-2")),
		}, failed("etcd-main-2", "quota")},
		{"an event without a last time has another one", []corev1.Event{
			event(0, "FailedCreate", failed("etcd-main-2", "webhook"), func(e *corev1.Event) {
				e.LastTimestamp, e.EventTime = metav1.Time{}, metav1.NewMicroTime(start.Add(time.Hour))
			}), event(3, "FailedCreate", failed("etcd-main-2", "quota")),
		}, failed("etcd-main-2", "webhook")},
		{"another StatefulSet of that name, which is gone", []corev1.Event{
			event(3, "FailedCreate",
				failed("etcd-main-2", "quota"), func(e *corev1.Event) { e.InvolvedObject.UID = "x" }),
		}, ""},
		{"another namespace", []corev1.Event{
			event(3, "FailedCreate", failed("etcd-main-2", "quota"), func(e *corev1.Event) { e.Namespace = "other" }),
		}, ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			d := &workload.Dump{Events: tc.events}
			for _, name := range []string{"etcd-main-0", "etcd-main-1"} {
				d.Pods = append(d.Pods, *pod(func(p *corev1.Pod) { p.Name, p.Namespace = name, "ns" }))
			}
			if got := d.Facts(statefulSet(), workload.DefaultNames()).Set.NotCreated; got != tc.want {
				t.Errorf("%q, want %q", got, tc.want)
			}
		})
	}
}
