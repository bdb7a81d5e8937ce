package controlplane_test

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
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
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	policyv1 "k8s.io/api/policy/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"

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

func TestStatefulSetController(t *testing.T) {
	client, namespace := setUp(t)
	ctx := t.Context()
	set := createStatefulSet(t, client, namespace, statefulSet("main", 3))

	old := awaitPods(t, client, namespace, 3)
	require.Equal(t, []string{"main-0", "main-1", "main-2"}, names(old))
	oldRevision := revisionOf(old[0])
	require.NotEmpty(t, oldRevision)
	for _, pod := range old {
		require.Equal(t, oldRevision, revisionOf(pod))
		require.True(t, metav1.IsControlledBy(&pod, set), "%s is not controlled by the StatefulSet", pod.Name)
	}

	patch(t, client, namespace, "main",
		`{"spec":{"template":{"spec":{"containers":[{"name":"etcd","image":"etcd:new"}]}}}}`)
	var newRevision string
	eventually(t, "the controller publishes the new revision", func(ctx context.Context) (bool, error) {
		set, err := client.AppsV1().StatefulSets(namespace).Get(ctx, "main", metav1.GetOptions{})
		if err != nil {
			return false, err
		}
		newRevision = set.Status.UpdateRevision
		return set.Status.ObservedGeneration == set.Generation && newRevision != oldRevision, nil
	})
	t.Run("a pod that nobody deletes stays on its revision under OnDelete", func(t *testing.T) {
		require.Equal(t, uids(old), uids(awaitPods(t, client, namespace, 3)))
	})
	t.Run("a deleted pod comes back on the new revision, and no other pod is touched", func(t *testing.T) {
		require.NoError(t, client.CoreV1().Pods(namespace).Delete(ctx, "main-1", metav1.DeleteOptions{}))
		eventually(t, "main-1 is recreated", func(ctx context.Context) (bool, error) {
			pod, err := client.CoreV1().Pods(namespace).Get(ctx, "main-1", metav1.GetOptions{})
			if apierrors.IsNotFound(err) {
				return false, nil
			}
			return err == nil && pod.UID != old[1].UID && revisionOf(*pod) == newRevision, err
		})
		now := awaitPods(t, client, namespace, 3)
		require.Equal(t, old[0].UID, now[0].UID)
		require.Equal(t, old[2].UID, now[2].UID)
	})
}

func TestJob(t *testing.T) {
	client, namespace := setUp(t)
	ctx := t.Context()
	podsOf := func(want int) []corev1.Pod {
		t.Helper()
		var pods *corev1.PodList
		eventually(t, fmt.Sprintf("the Job has %d pods", want), func(ctx context.Context) (_ bool, err error) {
			pods, err = client.CoreV1().Pods(namespace).List(ctx,
				metav1.ListOptions{LabelSelector: batchv1.JobNameLabel + "=once"})
			return err == nil && len(pods.Items) == want, err
		})
		return pods.Items
	}
	_, err := client.BatchV1().Jobs(namespace).Create(ctx, &batchv1.Job{
		ObjectMeta: metav1.ObjectMeta{Name: "once"},
		Spec: batchv1.JobSpec{Template: corev1.PodTemplateSpec{Spec: corev1.PodSpec{
			RestartPolicy: corev1.RestartPolicyNever, Containers: []corev1.Container{{Name: "main", Image: "image:1"}},
		}}},
	}, metav1.CreateOptions{})
	require.NoError(t, err)
	pod := podsOf(1)[0]
	t.Run("its pod is the template's", func(t *testing.T) {
		require.Equal(t, "image:1", pod.Spec.Containers[0].Image)
		require.True(t, metav1.IsControlledBy(&pod, &metav1.ObjectMeta{UID: pod.OwnerReferences[0].UID}))
	})
	t.Run("which goes with it", func(t *testing.T) {
		background := metav1.DeletePropagationBackground
		require.NoError(t, client.BatchV1().Jobs(namespace).Delete(ctx, "once",
			metav1.DeleteOptions{PropagationPolicy: &background}))
		podsOf(0)
	})
}

func TestDeletePreconditions(t *testing.T) {
	client, namespace := setUp(t)
	pods := client.CoreV1().Pods(namespace)
	createStatefulSet(t, client, namespace, statefulSet("main", 1))
	observed := awaitPods(t, client, namespace, 1)[0]
	moved, err := pods.Patch(t.Context(), observed.Name, types.MergePatchType,
		[]byte(`{"metadata":{"annotations":{"bump":"1"}}}`), metav1.PatchOptions{})
	require.NoError(t, err)
	require.NotEqual(t, observed.ResourceVersion, moved.ResourceVersion)
	remove := func(uid types.UID, resourceVersion string) error {
		return pods.Delete(t.Context(), observed.Name, metav1.DeleteOptions{
			Preconditions: &metav1.Preconditions{UID: &uid, ResourceVersion: &resourceVersion},
		})
	}

	t.Run("a pod that has moved on is not deleted: 409", func(t *testing.T) {
		err := remove(observed.UID, observed.ResourceVersion)
		require.True(t, apierrors.IsConflict(err), "%v", err)
	})
	t.Run("another pod of the same name is not deleted: 409", func(t *testing.T) {
		err := remove("00000000-0000-0000-0000-000000000000", moved.ResourceVersion)
		require.True(t, apierrors.IsConflict(err), "%v", err)
		still, err := pods.Get(t.Context(), observed.Name, metav1.GetOptions{})
		require.NoError(t, err)
		require.Equal(t, observed.UID, still.UID)
		require.Nil(t, still.DeletionTimestamp)
	})
	t.Run("the pod as it was observed is deleted", func(t *testing.T) {
		require.NoError(t, remove(observed.UID, moved.ResourceVersion))
	})
}

func TestEviction(t *testing.T) {
	client, namespace := setUp(t)
	createStatefulSet(t, client, namespace, statefulSet("main", 3))
	for _, pod := range awaitPods(t, client, namespace, 3) {
		makeReady(t, client, &pod)
	}
	one := intstr.FromInt32(1)
	_, err := client.PolicyV1().PodDisruptionBudgets(namespace).Create(t.Context(), &policyv1.PodDisruptionBudget{
		ObjectMeta: metav1.ObjectMeta{Name: "main"},
		Spec: policyv1.PodDisruptionBudgetSpec{
			MaxUnavailable: &one, Selector: &metav1.LabelSelector{MatchLabels: map[string]string{"app": "main"}},
		},
	}, metav1.CreateOptions{})
	require.NoError(t, err)
	awaitAllowed := func(want int32) {
		t.Helper()
		eventually(t, fmt.Sprintf("the disruption controller allows %d", want),
			func(ctx context.Context) (bool, error) {
				budget, err := client.PolicyV1().PodDisruptionBudgets(namespace).Get(ctx, "main", metav1.GetOptions{})
				return err == nil && budget.Status.ObservedGeneration == budget.Generation &&
					budget.Status.ExpectedPods == 3 && budget.Status.DisruptionsAllowed == want, err
			})
	}
	evict := func(pod string) error {
		return client.PolicyV1().Evictions(namespace).Evict(t.Context(), &policyv1.Eviction{
			ObjectMeta: metav1.ObjectMeta{Name: pod, Namespace: namespace},
		})
	}

	awaitAllowed(1)
	require.NoError(t, evict("main-2"), "the budget allows one")
	t.Run("an eviction beyond the budget answers 429", func(t *testing.T) {
		err := evict("main-1")
		require.True(t, apierrors.IsTooManyRequests(err), "%v", err)
		require.True(t, apierrors.HasStatusCause(err, policyv1.DisruptionBudgetCause), "%v", err)
	})
	t.Run("the budget opens again when the evicted pod is back and ready", func(t *testing.T) {
		awaitAllowed(0)
		awaitRecreated(t, client, namespace, "main-2")
		awaitAllowed(1)
		require.NoError(t, evict("main-1"))
	})
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

func TestServiceAccountTokens(t *testing.T) {
	client, namespace := setUp(t)
	ctx := t.Context()
	_, err := client.CoreV1().ServiceAccounts(namespace).Create(ctx,
		&corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: "sidecar"}}, metav1.CreateOptions{})
	require.NoError(t, err)
	_, err = client.RbacV1().Roles(namespace).Create(ctx, &rbacv1.Role{
		ObjectMeta: metav1.ObjectMeta{Name: "sidecar"},
		Rules: []rbacv1.PolicyRule{
			{APIGroups: []string{""}, Resources: []string{"pods"}, Verbs: []string{"get", "list"}},
			{APIGroups: []string{""}, Resources: []string{"pods"}, ResourceNames: []string{"main-0"},
				Verbs: []string{"delete"}},
		},
	}, metav1.CreateOptions{})
	require.NoError(t, err)
	_, err = client.RbacV1().RoleBindings(namespace).Create(ctx, &rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: "sidecar"},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: "sidecar"},
		Subjects:   []rbacv1.Subject{{Kind: "ServiceAccount", Name: "sidecar", Namespace: namespace}},
	}, metav1.CreateOptions{})
	require.NoError(t, err)
	createStatefulSet(t, client, namespace, statefulSet("main", 2))
	awaitPods(t, client, namespace, 2)

	token, err := client.CoreV1().ServiceAccounts(namespace).CreateToken(ctx, "sidecar",
		&authenticationv1.TokenRequest{}, metav1.CreateOptions{})
	require.NoError(t, err)
	sidecar := kubernetes.NewForConfigOrDie(shared.TokenConfig(token.Status.Token))

	t.Run("a token may do what its Role allows", func(t *testing.T) {
		// The authorizer reads roles from a cache.
		eventually(t, "the role is in force", func(ctx context.Context) (bool, error) {
			pods, err := sidecar.CoreV1().Pods(namespace).List(ctx, metav1.ListOptions{})
			if apierrors.IsForbidden(err) {
				return false, nil
			}
			return err == nil && len(pods.Items) == 2, err
		})
		require.NoError(t, sidecar.CoreV1().Pods(namespace).Delete(ctx, "main-0", metav1.DeleteOptions{}))
	})
	t.Run("a token may not do more: 403", func(t *testing.T) {
		for what, err := range map[string]error{
			"delete a pod of another name": sidecar.CoreV1().Pods(namespace).
				Delete(ctx, "main-1", metav1.DeleteOptions{}),
			"read secrets":        second(sidecar.CoreV1().Secrets(namespace).List(ctx, metav1.ListOptions{})),
			"read StatefulSets":   second(sidecar.AppsV1().StatefulSets(namespace).List(ctx, metav1.ListOptions{})),
			"read pods elsewhere": second(sidecar.CoreV1().Pods("kube-system").List(ctx, metav1.ListOptions{})),
		} {
			require.True(t, apierrors.IsForbidden(err), "%s: %v", what, err)
		}
	})
	t.Run("a token that nobody signed is nobody: 401", func(t *testing.T) {
		forged := kubernetes.NewForConfigOrDie(shared.TokenConfig(token.Status.Token + "x"))
		_, err := forged.CoreV1().Pods(namespace).List(ctx, metav1.ListOptions{})
		require.True(t, apierrors.IsUnauthorized(err), "%v", err)
	})
	t.Run("without a token everything is forbidden: 403", func(t *testing.T) {
		_, err := kubernetes.NewForConfigOrDie(shared.TokenConfig("")).CoreV1().Pods(namespace).
			List(ctx, metav1.ListOptions{})
		require.True(t, apierrors.IsForbidden(err), "%v", err)
	})
}

func TestGarbageCollector(t *testing.T) {
	client, namespace := setUp(t)
	ctx := t.Context()
	t.Run("the pods of a StatefulSet that was deleted without its pods stay", func(t *testing.T) {
		createStatefulSet(t, client, namespace, statefulSet("orphaned", 1))
		pod := awaitPods(t, client, namespace, 1)[0]
		orphan := metav1.DeletePropagationOrphan
		require.NoError(t, client.AppsV1().StatefulSets(namespace).
			Delete(ctx, "orphaned", metav1.DeleteOptions{PropagationPolicy: &orphan}))
		eventually(t, "the StatefulSet goes and the pod has no owner", func(ctx context.Context) (bool, error) {
			_, err := client.AppsV1().StatefulSets(namespace).Get(ctx, "orphaned", metav1.GetOptions{})
			if !apierrors.IsNotFound(err) {
				return false, err
			}
			now, err := client.CoreV1().Pods(namespace).Get(ctx, pod.Name, metav1.GetOptions{})
			return err == nil && now.UID == pod.UID && len(now.OwnerReferences) == 0, err
		})
		require.NoError(t, client.CoreV1().Pods(namespace).Delete(ctx, pod.Name, metav1.DeleteOptions{}))
	})
	t.Run("the pods of a deleted StatefulSet go", func(t *testing.T) {
		createStatefulSet(t, client, namespace, statefulSet("main", 2))
		awaitPods(t, client, namespace, 2)
		require.NoError(t, client.AppsV1().StatefulSets(namespace).Delete(ctx, "main", metav1.DeleteOptions{}))
		awaitPods(t, client, namespace, 0)
	})
}

func TestNamespaces(t *testing.T) {
	client, namespace := setUp(t)
	t.Run("a new namespace gets what pods need to call the API", func(t *testing.T) {
		eventually(t, "ServiceAccount default and ConfigMap kube-root-ca.crt", func(ctx context.Context) (bool, error) {
			_, missingAccount := client.CoreV1().ServiceAccounts(namespace).Get(ctx, "default", metav1.GetOptions{})
			root, missingRoot := client.CoreV1().ConfigMaps(namespace).Get(ctx, "kube-root-ca.crt", metav1.GetOptions{})
			if apierrors.IsNotFound(missingAccount) || apierrors.IsNotFound(missingRoot) {
				return false, nil
			}
			if err := errors.Join(missingAccount, missingRoot); err != nil {
				return false, err
			}
			return root.Data["ca.crt"] == string(shared.CAPEM()), nil
		})
	})
	t.Run("a Service lists a pod that is ready, and one that is not as not ready", func(t *testing.T) {
		_, err := client.CoreV1().Services(namespace).Create(t.Context(), &corev1.Service{
			ObjectMeta: metav1.ObjectMeta{Name: "client"},
			Spec: corev1.ServiceSpec{Selector: map[string]string{"app": "main"},
				Ports: []corev1.ServicePort{{Port: 2379}}},
		}, metav1.CreateOptions{})
		require.NoError(t, err)
		createStatefulSet(t, client, namespace, statefulSet("main", 2))
		pods := awaitPods(t, client, namespace, 2)
		// An endpoint is listed only when the node of its pod exists.
		_, err = client.CoreV1().Nodes().Create(t.Context(),
			&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "node-of-" + namespace}}, metav1.CreateOptions{})
		require.NoError(t, err)
		bind(t, client, &pods[0], "node-of-"+namespace)
		bind(t, client, &pods[1], "node-of-"+namespace)
		makeReady(t, client, &pods[0])
		makeRunning(t, client, &pods[1], corev1.ConditionFalse)
		eventually(t, "the EndpointSlice", func(ctx context.Context) (bool, error) {
			slices, err := client.DiscoveryV1().EndpointSlices(namespace).
				List(ctx, metav1.ListOptions{LabelSelector: discoveryv1.LabelServiceName + "=client"})
			if err != nil {
				return false, err
			}
			ready := map[string]bool{}
			for _, slice := range slices.Items {
				for _, endpoint := range slice.Endpoints {
					ready[endpoint.TargetRef.Name] = *endpoint.Conditions.Ready
				}
			}
			one, oneListed := ready["main-0"]
			two, twoListed := ready["main-1"]
			return one && oneListed && !two && twoListed, nil
		})
	})
	t.Run("a claim goes when its pod has gone", func(t *testing.T) {
		claims, pods := client.CoreV1().PersistentVolumeClaims(namespace), client.CoreV1().Pods(namespace)
		require.NoError(t, claims.Delete(t.Context(), "data-main-0", metav1.DeleteOptions{}))
		claim, err := claims.Get(t.Context(), "data-main-0", metav1.GetOptions{})
		require.NoError(t, err, "the claim is in use")
		require.NotNil(t, claim.DeletionTimestamp)
		require.NoError(t, client.AppsV1().StatefulSets(namespace).Delete(t.Context(), "main", metav1.DeleteOptions{}))
		eventually(t, "the claim goes", func(ctx context.Context) (bool, error) {
			// In place of the kubelet, which would end the processes first.
			now := int64(0)
			if err := pods.DeleteCollection(ctx, metav1.DeleteOptions{GracePeriodSeconds: &now},
				metav1.ListOptions{}); err != nil {
				return false, err
			}
			_, err := claims.Get(ctx, "data-main-0", metav1.GetOptions{})
			if apierrors.IsNotFound(err) {
				return true, nil
			}
			return false, err
		})
	})
	t.Run("a deleted namespace goes with everything in it", func(t *testing.T) {
		require.NoError(t, client.CoreV1().Namespaces().Delete(t.Context(), namespace, metav1.DeleteOptions{}))
		eventually(t, "the namespace goes", func(ctx context.Context) (bool, error) {
			_, err := client.CoreV1().Namespaces().Get(ctx, namespace, metav1.GetOptions{})
			if apierrors.IsNotFound(err) {
				return true, nil
			}
			return false, err
		})
	})
}

func TestAPIServerOutage(t *testing.T) {
	client, namespace := setUp(t)
	ctx := t.Context()
	createStatefulSet(t, client, namespace, statefulSet("main", 2))
	before := awaitPods(t, client, namespace, 2)
	address := shared.URL()

	t.Run("a stopped API server refuses connections", func(t *testing.T) {
		require.NoError(t, shared.StopAPIServer(ctx))
		requireNobodyListens(t, address)
		require.NoError(t, shared.StopAPIServer(ctx), "stopping it again")
		require.Error(t, shared.PauseAPIServer(), "pausing it")
		require.NotContains(t, shared.PIDs(), "kube-apiserver")
	})
	t.Run("a started one has its port and its objects, and controllers find it", func(t *testing.T) {
		require.NoError(t, shared.StartAPIServer(ctx))
		require.Equal(t, address, shared.URL())
		require.Equal(t, uids(before), uids(awaitPods(t, client, namespace, 2)))
		require.NoError(t, client.CoreV1().Pods(namespace).Delete(ctx, "main-0", metav1.DeleteOptions{}))
		eventually(t, "the StatefulSet controller recreates main-0", func(ctx context.Context) (bool, error) {
			pod, err := client.CoreV1().Pods(namespace).Get(ctx, "main-0", metav1.GetOptions{})
			if apierrors.IsNotFound(err) {
				return false, nil
			}
			return err == nil && pod.UID != before[0].UID, err
		})
	})
	t.Run("a paused one answers nobody, and goes on when resumed", func(t *testing.T) {
		require.NoError(t, shared.PauseAPIServer())
		short, cancel := context.WithTimeout(ctx, time.Second)
		defer cancel()
		_, err := client.CoreV1().Pods(namespace).List(short, metav1.ListOptions{})
		require.NoError(t, shared.ResumeAPIServer())
		require.ErrorIs(t, err, context.DeadlineExceeded)
		awaitPods(t, client, namespace, 2)
	})
	t.Run("an outage that was asked for is no failure", func(t *testing.T) {
		require.NoError(t, shared.Err())
	})
}

func TestControllersOutage(t *testing.T) {
	client, namespace := setUp(t)
	ctx := t.Context()
	createStatefulSet(t, client, namespace, statefulSet("main", 2))
	awaitPods(t, client, namespace, 2)
	require.NoError(t, shared.StopControllers(ctx))
	require.NotContains(t, shared.PIDs(), "kube-controllers")
	require.NoError(t, client.CoreV1().Pods(namespace).Delete(ctx, "main-1", metav1.DeleteOptions{}))
	// Pods are listed after the deletion was acknowledged, and no controller is left to create
	// one.
	require.Equal(t, []string{"main-0"}, names(awaitPods(t, client, namespace, 1)))
	require.Error(t, shared.PauseControllers(), "pausing what does not run")
	require.NoError(t, shared.StartControllers(ctx))
	awaitPods(t, client, namespace, 2)

	require.NoError(t, shared.PauseControllers())
	require.NoError(t, client.CoreV1().Pods(namespace).Delete(ctx, "main-1", metav1.DeleteOptions{}))
	require.Equal(t, []string{"main-0"}, names(awaitPods(t, client, namespace, 1)))
	require.NoError(t, shared.ResumeControllers())
	awaitPods(t, client, namespace, 2)
}

func TestKubeconfigFile(t *testing.T) {
	setUp(t)
	config, err := clientcmd.BuildConfigFromFlags("", shared.KubeconfigPath())
	require.NoError(t, err)
	_, err = kubernetes.NewForConfigOrDie(config).CoreV1().Nodes().List(t.Context(), metav1.ListOptions{})
	require.NoError(t, err)
}

// TestLifeOfAControlPlane starts one of its own, with switches that are off in the
// shared one, and breaks it.
func TestLifeOfAControlPlane(t *testing.T) {
	sharedClient, namespace := setUp(t)
	ctx, cancel := context.WithTimeout(t.Context(), 2*patience)
	defer cancel()
	cp, err := controlplane.Start(ctx, controlplane.Config{
		Dir: t.TempDir(), Binaries: binaries, BindAddress: "127.77.88.1",
		FeatureGates:           map[string]bool{"MaxUnavailableStatefulSet": true},
		Controllers:            append(slices.Clone(controlplane.DefaultControllers), "nodelifecycle"),
		NodeMonitorGracePeriod: 2 * time.Second,
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
	t.Run("a pod on a node without heartbeats is not Ready any more, while its containers stay ready",
		func(t *testing.T) {
			node, err := client.CoreV1().Nodes().Create(ctx, &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "lost"}},
				metav1.CreateOptions{})
			require.NoError(t, err)
			node.Status.Conditions = []corev1.NodeCondition{{
				Type: corev1.NodeReady, Status: corev1.ConditionTrue, LastHeartbeatTime: metav1.Now(),
				LastTransitionTime: metav1.Now(),
			}}
			_, err = client.CoreV1().Nodes().UpdateStatus(ctx, node, metav1.UpdateOptions{})
			require.NoError(t, err)
			pod := awaitPods(t, client, "default", 3)[0]
			bind(t, client, &pod, "lost")
			makeReady(t, client, &pod)
			eventually(t, "the node controller sets Ready false", func(ctx context.Context) (bool, error) {
				pod, err := client.CoreV1().Pods("default").Get(ctx, pod.Name, metav1.GetOptions{})
				return err == nil && condition(pod, corev1.PodReady) == corev1.ConditionFalse &&
					condition(pod, corev1.ContainersReady) == corev1.ConditionTrue, err
			})
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
		require.ErrorContains(t, cp.Err(), "kube-controllers ended by itself with exit code 137; the end of "+
			cp.Logs()[2])
	})
	t.Run("a process that failed can be started again", func(t *testing.T) {
		require.NoError(t, cp.StartControllers(ctx))
		require.NotEqual(t, pids["kube-controllers"], cp.PIDs()["kube-controllers"])
	})
	t.Run("after Close no process is left, not even a paused one", func(t *testing.T) {
		require.NoError(t, cp.PauseAPIServer())
		pids := cp.PIDs()
		require.Len(t, pids, 3)
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
	t.Run("a controller that does not exist is named", func(t *testing.T) {
		config := valid()
		config.Controllers = []string{"statefulset", "nosuch"}
		require.ErrorContains(t, start(t, ctx, config), `nosuch\" is not in the list of known controllers`)
	})
	t.Run("the end of the context interrupts the start", func(t *testing.T) {
		ended, end := context.WithCancel(ctx)
		end()
		err := start(t, ended, valid())
		require.ErrorIs(t, err, context.Canceled)
		require.ErrorContains(t, err, "kube-etcd is not ready")
	})
	t.Run("an address of another machine is named", func(t *testing.T) {
		config := valid()
		config.BindAddress = "192.0.2.1"
		require.ErrorContains(t, start(t, ctx, config), "Config.BindAddress 192.0.2.1")
	})
	t.Run("a missing field is named", func(t *testing.T) {
		for field, remove := range map[string]func(*controlplane.Config){
			"Config.Dir":             func(c *controlplane.Config) { c.Dir = "" },
			"Config.Binaries.Kube":   func(c *controlplane.Config) { c.Binaries.Kube = "" },
			"Config.Binaries.Etcd36": func(c *controlplane.Config) { c.Binaries.Etcd36 = "" },
			"Config.BindAddress":     func(c *controlplane.Config) { c.BindAddress = "" },
		} {
			config := valid()
			remove(&config)
			require.ErrorContains(t, start(t, ctx, config), field)
		}
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

func patch(t *testing.T, client kubernetes.Interface, namespace, name, body string) {
	t.Helper()
	_, err := client.AppsV1().StatefulSets(namespace).Patch(t.Context(), name, types.StrategicMergePatchType,
		[]byte(body), metav1.PatchOptions{})
	require.NoError(t, err)
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

// awaitRecreated waits for a pod that has no status yet, and makes it ready.
func awaitRecreated(t *testing.T, client kubernetes.Interface, namespace, name string) {
	t.Helper()
	var pod *corev1.Pod
	eventually(t, name+" is recreated", func(ctx context.Context) (found bool, err error) {
		pod, err = client.CoreV1().Pods(namespace).Get(ctx, name, metav1.GetOptions{})
		if apierrors.IsNotFound(err) {
			return false, nil
		}
		return err == nil && pod.Status.Phase == corev1.PodPending, err
	})
	makeReady(t, client, pod)
}

// bind does what a scheduler does.
func bind(t *testing.T, client kubernetes.Interface, pod *corev1.Pod, node string) {
	t.Helper()
	require.NoError(t, client.CoreV1().Pods(pod.Namespace).Bind(t.Context(), &corev1.Binding{
		ObjectMeta: metav1.ObjectMeta{Name: pod.Name}, Target: corev1.ObjectReference{Kind: "Node", Name: node},
	}, metav1.CreateOptions{}))
}

// makeReady reports a pod as a kubelet does whose containers run and are ready.
func makeReady(t *testing.T, client kubernetes.Interface, pod *corev1.Pod) {
	t.Helper()
	makeRunning(t, client, pod, corev1.ConditionTrue)
}

func makeRunning(t *testing.T, client kubernetes.Interface, pod *corev1.Pod, ready corev1.ConditionStatus) {
	t.Helper()
	status, err := json.Marshal(corev1.PodStatus{
		Phase: corev1.PodRunning, PodIP: "10.1.2.3", PodIPs: []corev1.PodIP{{IP: "10.1.2.3"}},
		Conditions: []corev1.PodCondition{
			{Type: corev1.PodReady, Status: ready, LastTransitionTime: metav1.Now()},
			{Type: corev1.ContainersReady, Status: ready, LastTransitionTime: metav1.Now()},
		},
	})
	require.NoError(t, err)
	_, err = client.CoreV1().Pods(pod.Namespace).Patch(t.Context(), pod.Name, types.StrategicMergePatchType,
		fmt.Appendf(nil, `{"status":%s}`, status), metav1.PatchOptions{}, "status")
	require.NoError(t, err)
}

func condition(pod *corev1.Pod, kind corev1.PodConditionType) corev1.ConditionStatus {
	for _, condition := range pod.Status.Conditions {
		if condition.Type == kind {
			return condition.Status
		}
	}
	return ""
}

// eventually waits until done reports true; an error ends the test at once.
func eventually(t *testing.T, what string, done wait.ConditionWithContextFunc) {
	t.Helper()
	err := wait.PollUntilContextTimeout(t.Context(), 50*time.Millisecond, patience, true, done)
	require.NoError(t, err, "waiting for: %s", what)
}

func names(pods []corev1.Pod) []string {
	return collect(pods, func(p corev1.Pod) string { return p.Name })
}

func uids(pods []corev1.Pod) []string {
	return collect(pods, func(p corev1.Pod) string { return string(p.UID) })
}

func collect(pods []corev1.Pod, of func(corev1.Pod) string) []string {
	var all []string
	for _, pod := range pods {
		all = append(all, of(pod))
	}
	return all
}

func revisionOf(pod corev1.Pod) string { return pod.Labels[appsv1.ControllerRevisionHashLabelKey] }

func second[T any](_ T, err error) error { return err }

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
