package controlplane_test

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"maps"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	appsv1 "k8s.io/api/apps/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"

	"github.com/quorate/quorate/internal/workload"
	"github.com/quorate/quorate/test/harness/build"
	"github.com/quorate/quorate/test/harness/controlplane"
	"github.com/quorate/quorate/test/harness/process"
)

// patience bounds every wait of these tests; nothing is expected to take that long.
const patience = 2 * time.Minute

// shared is the control plane of all tests that do not break theirs.
var (
	shared   *controlplane.ControlPlane
	binaries build.Binaries
)

func TestMain(m *testing.M) {
	flag.Parse()
	os.Exit(run(m))
}

func run(m *testing.M) (code int) {
	if testing.Short() {
		return m.Run()
	}
	dir, err := os.MkdirTemp("", "controlplane-test-")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer os.RemoveAll(dir)
	if binaries, err = build.Some(context.Background(), func(line string) { fmt.Println(line) }, build.Etcd36,
		build.Kube); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	if shared, err = controlplane.Start(ctx,
		controlplane.Config{Dir: dir, Binaries: binaries, BindAddress: "127.0.0.1"}); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer func() {
		leaked := func() error { return goleak.Find(goleak.IgnoreTopFunction(process.SpawnerGoroutine)) }
		if err := errors.Join(shared.Err(), shared.Close(context.Background()), leaked()); err != nil {
			fmt.Fprintln(os.Stderr, err)
			code = 1
		}
	}()
	return m.Run()
}

// What Quorate reads in the words of the eviction API, which no contract fixes, it reads in
// those of this version.
func TestWhatAnEvictionIsRefusedWithIsUnderstood(t *testing.T) {
	client, namespace := setUp(t)
	createStatefulSet(t, client, namespace, statefulSet("main", 3))
	for _, pod := range awaitPods(t, client, namespace, 3) {
		makeReady(t, client, &pod)
	}
	budgets := client.PolicyV1().PodDisruptionBudgets(namespace)
	allow := func(name string, n int32) {
		t.Helper()
		most := intstr.FromInt32(n)
		_, err := budgets.Create(t.Context(), &policyv1.PodDisruptionBudget{
			ObjectMeta: metav1.ObjectMeta{Name: name},
			Spec: policyv1.PodDisruptionBudgetSpec{
				MaxUnavailable: &most, Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "main"}},
			},
		}, metav1.CreateOptions{})
		require.NoError(t, err)
		eventually(t, "the disruption controller has seen "+name, func(ctx context.Context) (bool, error) {
			budget, err := budgets.Get(ctx, name, metav1.GetOptions{})
			return err == nil && budget.Status.ObservedGeneration == budget.Generation &&
				budget.Status.CurrentHealthy == 3, err
		})
	}
	quorate := workload.New(workload.Config{StatefulSet: "main", Names: workload.DefaultNames(),
		StatefulSets: client.AppsV1().StatefulSets(namespace), Pods: client.CoreV1().Pods(namespace)})
	// ask asks of the pod as it is, which a question does not change.
	ask := func() error {
		t.Helper()
		seen, err := quorate.Observe(t.Context())
		require.NoError(t, err)
		p := seen.Pods[1]
		answer := quorate.AskBudget(t.Context(), seen, p.Name, p.UID, p.ResourceVersion)
		again, err := quorate.Observe(t.Context())
		require.NoError(t, err)
		require.Equal(t, seen.Pods, again.Pods)
		return answer
	}

	allow("none", 0)
	refusal, refused := workload.RefusalOf(ask(), 3)
	require.True(t, refused)
	require.True(t, refusal.Lasting, "a budget that needs all pods: %s", refusal.Words)
	require.Contains(t, refusal.Words, "none needs 3 healthy pods and has 3")

	allow("one", 1)
	refusal, refused = workload.RefusalOf(ask(), 3)
	require.True(t, refused)
	require.True(t, refusal.Lasting, "two budgets: %s", refusal.Words)

	require.NoError(t, budgets.Delete(t.Context(), "none", metav1.DeleteOptions{}))
	require.Eventually(t, func() bool { return ask() == nil }, time.Minute, 50*time.Millisecond,
		"one budget that allows one")
	budget, err := budgets.Get(t.Context(), "one", metav1.GetOptions{})
	require.NoError(t, err)
	require.Empty(t, budget.Status.DisruptedPods, "a question charges nothing")
}

// setController is the account of the StatefulSet controller.
const setController = "system:serviceaccount:kube-system:statefulset-controller"

// TestLifeOfAControlPlane starts one of its own, with switches that are off in the
// shared one, and breaks it.
func TestLifeOfAControlPlane(t *testing.T) {
	sharedClient, namespace := setUp(t)
	ctx, cancel := context.WithTimeout(t.Context(), 2*patience)
	defer cancel()
	cp, err := controlplane.Start(ctx, controlplane.Config{
		Dir: t.TempDir(), Binaries: binaries, BindAddress: "127.77.88.1",
		FeatureGates: map[string]bool{"MaxUnavailableStatefulSet": true},
		Audit: controlplane.Audit{Users: []string{setController},
			Groups: []string{"system:serviceaccounts:default"}},
	})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, cp.Close(context.Background())) })
	client := kubernetes.NewForConfigOrDie(cp.AdminConfig())

	t.Run("a field behind a feature gate is kept where the gate is on, and dropped where it is off",
		func(t *testing.T) {
			two := intstr.FromInt32(2)
			set := statefulSet("gated", 3)
			set.Spec.UpdateStrategy = appsv1.StatefulSetUpdateStrategy{
				Type:          appsv1.RollingUpdateStatefulSetStrategyType,
				RollingUpdate: &appsv1.RollingUpdateStatefulSetStrategy{MaxUnavailable: &two},
			}
			require.Equal(t, &two, createStatefulSet(t, client, "default", set).
				Spec.UpdateStrategy.RollingUpdate.MaxUnavailable)
			require.Nil(t, createStatefulSet(t, sharedClient, namespace, set).
				Spec.UpdateStrategy.RollingUpdate.MaxUnavailable)
		})
	t.Run("the audit log has what those have asked who are named, once each", func(t *testing.T) {
		const account = "system:serviceaccount:default:default"
		eventually(t, "the account is there", func(ctx context.Context) (bool, error) {
			_, err := client.CoreV1().ServiceAccounts("default").Get(ctx, "default", metav1.GetOptions{})
			return err == nil, ctx.Err()
		})
		token, err := client.CoreV1().ServiceAccounts("default").CreateToken(ctx, "default",
			&authenticationv1.TokenRequest{}, metav1.CreateOptions{})
		require.NoError(t, err)
		pods := kubernetes.NewForConfigOrDie(cp.TokenConfig(token.Status.Token)).CoreV1().Pods("default")
		began := time.Now()
		_, err = pods.List(ctx, metav1.ListOptions{})
		require.True(t, apierrors.IsForbidden(err), "what is refused is a request too: %v", err)
		_, err = client.RbacV1().RoleBindings("default").Create(ctx, &rbacv1.RoleBinding{
			ObjectMeta: metav1.ObjectMeta{Name: "view"},
			RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole",
				Name: "system:aggregate-to-view"},
			Subjects: []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Name: "default", Namespace: "default"}},
		}, metav1.CreateOptions{})
		require.NoError(t, err)
		var open watch.Interface
		eventually(t, "the account may watch", func(ctx context.Context) (bool, error) {
			if _, err := pods.Get(ctx, "gated-0", metav1.GetOptions{}); apierrors.IsForbidden(err) {
				return false, nil
			}
			var err error
			open, err = pods.Watch(t.Context(), metav1.ListOptions{})
			return err == nil, err
		})
		_, err = client.CoreV1().Pods("default").List(ctx, metav1.ListOptions{})
		require.NoError(t, err)
		audited := func(since time.Time) map[string][]string {
			t.Helper()
			events, err := cp.Audited(since)
			require.NoError(t, err)
			asked := map[string][]string{}
			for _, e := range events {
				asked[e.User.Username] = append(asked[e.User.Username], e.Verb+" "+e.ObjectRef.Resource)
			}
			return asked
		}
		require.Equal(t, []string{"list pods", "watch pods"}, slices.DeleteFunc(audited(began)[account],
			func(what string) bool { return what == "get pods" }), "while the watch is still open")
		ended := time.Now()
		open.Stop()
		_, err = pods.List(ctx, metav1.ListOptions{})
		require.NoError(t, err)
		require.Equal(t, []string{"list pods"}, audited(ended)[account], "the end of a watch is no request")
		all := audited(time.Time{})
		require.Contains(t, all[setController], "create pods")
		require.Len(t, all, 2, "nobody else is there: %v", slices.Collect(maps.Keys(all)))
		_, err = shared.Audited(began)
		require.ErrorContains(t, err, "Config.Audit")
	})
	pids := cp.PIDs()
	require.Len(t, pids, 3)
	t.Run("a process that ends by itself is a failure with a name and a log", func(t *testing.T) {
		require.NoError(t, cp.Err())
		require.NoError(t, syscall.Kill(pids["kube-controllers"], syscall.SIGKILL))
		select {
		case <-cp.Failed():
		case <-ctx.Done():
			t.Fatal("nobody noticed")
		}
		require.ErrorContains(t, cp.Err(), "kube-controllers ended by itself with exit code 137; the end of ")
	})
	t.Run("after Close no process is left, not even a paused one", func(t *testing.T) {
		require.NoError(t, cp.PauseAPIServer())
		pids := cp.PIDs()
		require.Len(t, pids, 2, "all but the one that has ended")
		require.NoError(t, cp.Close(ctx))
		for name, pid := range pids {
			require.ErrorIs(t, syscall.Kill(pid, 0), syscall.ESRCH, name)
		}
		require.Empty(t, cp.PIDs())
		requireNobodyListens(t, cp.URL())
		require.NoError(t, cp.Close(ctx), "closing again")
	})
}

func TestFailedStarts(t *testing.T) {
	setUp(t)
	valid := func() controlplane.Config {
		return controlplane.Config{Dir: t.TempDir(), Binaries: binaries, BindAddress: "127.0.0.1"}
	}
	start := func(t *testing.T, ctx context.Context, config controlplane.Config) error {
		t.Helper()
		before := children(t)
		_, err := controlplane.Start(ctx, config)
		require.Error(t, err)
		require.Equal(t, before, children(t), "a process is left")
		return err
	}
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()

	t.Run("a process that does not start is named, with the end of its log", func(t *testing.T) {
		config := valid()
		config.FeatureGates = map[string]bool{"NoSuchGate": true}
		err := start(t, ctx, config)
		require.ErrorContains(t, err, "kube-apiserver ended by itself with exit code 1")
		require.ErrorContains(t, err, "unrecognized feature gate: NoSuchGate")
	})
	t.Run("the end of the context interrupts the start", func(t *testing.T) {
		ended, end := context.WithCancel(ctx)
		end()
		err := start(t, ended, valid())
		require.ErrorIs(t, err, context.Canceled)
		require.ErrorContains(t, err, "kube-etcd is not ready")
	})
}

// setUp returns an admin client of the shared control plane and the name of a new
// namespace.
func setUp(t *testing.T) (kubernetes.Interface, string) {
	t.Helper()
	if testing.Short() {
		t.Skip("starts a control plane; run without -short")
	}
	client := kubernetes.NewForConfigOrDie(shared.AdminConfig())
	namespace, err := client.CoreV1().Namespaces().Create(t.Context(), &corev1.Namespace{
		ObjectMeta: metav1.ObjectMeta{GenerateName: "test-"},
	}, metav1.CreateOptions{})
	require.NoError(t, err)
	return client, namespace.Name
}

func statefulSet(name string, replicas int32) *appsv1.StatefulSet {
	labels := map[string]string{"app": name}
	return &appsv1.StatefulSet{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: appsv1.StatefulSetSpec{
			Replicas:            &replicas,
			ServiceName:         name + "-peer",
			PodManagementPolicy: appsv1.ParallelPodManagement,
			UpdateStrategy:      appsv1.StatefulSetUpdateStrategy{Type: appsv1.OnDeleteStatefulSetStrategyType},
			Selector:            &metav1.LabelSelector{MatchLabels: labels},
			Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: labels},
				Spec: corev1.PodSpec{Containers: []corev1.Container{{
					Name: "etcd", Image: "etcd:old",
					VolumeMounts: []corev1.VolumeMount{{Name: "data", MountPath: "/data"}},
				}}},
			},
			VolumeClaimTemplates: []corev1.PersistentVolumeClaim{{
				ObjectMeta: metav1.ObjectMeta{Name: "data"},
				Spec: corev1.PersistentVolumeClaimSpec{
					AccessModes: []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
					Resources: corev1.VolumeResourceRequirements{
						Requests: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")}},
				},
			}},
		},
	}
}

func createStatefulSet(t *testing.T, client kubernetes.Interface, namespace string,
	set *appsv1.StatefulSet) *appsv1.StatefulSet {
	t.Helper()
	created, err := client.AppsV1().StatefulSets(namespace).Create(t.Context(), set, metav1.CreateOptions{})
	require.NoError(t, err)
	return created
}

// awaitPods waits for exactly that many pods, none terminating, and returns them in
// the order of their names.
func awaitPods(t *testing.T, client kubernetes.Interface, namespace string, count int) []corev1.Pod {
	t.Helper()
	var pods []corev1.Pod
	eventually(t, fmt.Sprintf("%d pods", count), func(ctx context.Context) (bool, error) {
		list, err := client.CoreV1().Pods(namespace).List(ctx, metav1.ListOptions{})
		if err != nil {
			return false, err
		}
		pods = list.Items
		return len(pods) == count && !slices.ContainsFunc(pods, func(p corev1.Pod) bool {
			return p.DeletionTimestamp != nil
		}), nil
	})
	slices.SortFunc(pods, func(a, b corev1.Pod) int { return strings.Compare(a.Name, b.Name) })
	return pods
}

// makeReady reports a pod as a kubelet does whose containers run and are ready.
func makeReady(t *testing.T, client kubernetes.Interface, pod *corev1.Pod) {
	t.Helper()
	status, err := json.Marshal(corev1.PodStatus{
		Phase: corev1.PodRunning, PodIP: "10.1.2.3", PodIPs: []corev1.PodIP{{IP: "10.1.2.3"}},
		Conditions: []corev1.PodCondition{
			{Type: corev1.PodReady, Status: corev1.ConditionTrue, LastTransitionTime: metav1.Now()},
			{Type: corev1.ContainersReady, Status: corev1.ConditionTrue, LastTransitionTime: metav1.Now()},
		},
	})
	require.NoError(t, err)
	_, err = client.CoreV1().Pods(pod.Namespace).Patch(t.Context(), pod.Name, types.StrategicMergePatchType,
		fmt.Appendf(nil, `{"status":%s}`, status), metav1.PatchOptions{}, "status")
	require.NoError(t, err)
}

// eventually waits until done reports true; an error ends the test at once.
func eventually(t *testing.T, what string, done wait.ConditionWithContextFunc) {
	t.Helper()
	err := wait.PollUntilContextTimeout(t.Context(), 50*time.Millisecond, patience, true, done)
	require.NoError(t, err, "waiting for: %s", what)
}

func requireNobodyListens(t *testing.T, address string) {
	t.Helper()
	at, err := url.Parse(address)
	require.NoError(t, err)
	_, err = net.Dial("tcp", at.Host)
	require.ErrorIs(t, err, syscall.ECONNREFUSED)
}

// children returns the process IDs of this process's children.
func children(t *testing.T) []string {
	t.Helper()
	files, err := filepath.Glob("/proc/self/task/*/children")
	require.NoError(t, err)
	var all []string
	for _, file := range files {
		content, err := os.ReadFile(file)
		if errors.Is(err, os.ErrNotExist) {
			continue // a thread that has ended meanwhile
		}
		require.NoError(t, err)
		all = append(all, strings.Fields(string(content))...)
	}
	slices.Sort(all)
	return all
}
