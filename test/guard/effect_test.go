package guard

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/quorate/quorate/test/harness"
)

const policyName = "quorate-quorum-guard"

// goes waits until a pod terminates or has gone.
func (c *cluster) goes(pod string) {
	c.t.Helper()
	c.until(pod+" goes", func() bool {
		found, err := c.CoreV1().Pods(c.namespace).Get(c.ctx, pod, metav1.GetOptions{})
		return apierrors.IsNotFound(err) || (err == nil && found.DeletionTimestamp != nil)
	})
}

// guarded lists a pod, and makes sure that people cannot delete it.
func (c *cluster) guarded(pods map[string]types.UID) {
	c.t.Helper()
	c.write(c.record("etcd-main", pods))
	for pod := range pods {
		require.True(c.t, apierrors.IsForbidden(deletes(c, c, pod)), pod)
	}
}

// statefulSet creates a StatefulSet of two pods, which the test puts on a node, and returns their UIDs.
func (c *cluster) statefulSet(node string) map[string]types.UID {
	c.t.Helper()
	labels := map[string]string{"app": "etcd-main"}
	_, err := c.AppsV1().StatefulSets(c.namespace).Create(c.ctx, &appsv1.StatefulSet{
		ObjectMeta: metav1.ObjectMeta{Name: "etcd-main"},
		Spec: appsv1.StatefulSetSpec{
			Replicas: new(int32(2)), Selector: &metav1.LabelSelector{MatchLabels: labels},
			PodManagementPolicy: appsv1.ParallelPodManagement,
			Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels},
				Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "etcd", Image: "etcd"}}}},
		},
	}, metav1.CreateOptions{})
	require.NoError(c.t, err)
	uids := map[string]types.UID{}
	for _, name := range []string{"etcd-main-0", "etcd-main-1"} {
		c.until(name+" is on its node", func() bool {
			err := c.CoreV1().Pods(c.namespace).Bind(c.ctx, &corev1.Binding{
				ObjectMeta: metav1.ObjectMeta{Name: name}, Target: corev1.ObjectReference{Kind: "Node", Name: node},
			}, metav1.CreateOptions{})
			return err == nil
		})
		pod, err := c.CoreV1().Pods(c.namespace).Get(c.ctx, name, metav1.GetOptions{})
		require.NoError(c.t, err)
		uids[name] = pod.UID
	}
	return uids
}

// The names of the accounts are in the policy, so it is Kubernetes' own controllers that are asked here.
func TestControllersThatCleanUpAreNotHeldUp(t *testing.T) {
	t.Run("a namespace goes with its pods", func(t *testing.T) {
		t.Parallel()
		c := newCluster(t, shared, "deleted")
		c.node("node-of-deleted")
		c.guarded(map[string]types.UID{"etcd-main-1": c.pod("etcd-main-1", "node-of-deleted")})
		require.NoError(t, c.CoreV1().Namespaces().Delete(c.ctx, c.namespace, metav1.DeleteOptions{}))
		c.goes("etcd-main-1")
	})
	t.Run("the pods of a StatefulSet that is deleted go", func(t *testing.T) {
		t.Parallel()
		c := newCluster(t, shared, "unwanted")
		c.node("node-of-unwanted")
		c.guarded(c.statefulSet("node-of-unwanted"))
		background := metav1.DeletePropagationBackground
		require.NoError(t, c.AppsV1().StatefulSets(c.namespace).Delete(c.ctx, "etcd-main",
			metav1.DeleteOptions{PropagationPolicy: &background}))
		c.goes("etcd-main-0")
		c.goes("etcd-main-1")
	})
	t.Run("the pods of a lost node go", func(t *testing.T) {
		t.Parallel()
		c := newCluster(t, shared, "lost")
		c.node("node-of-lost")
		c.guarded(map[string]types.UID{"etcd-main-1": c.pod("etcd-main-1", "node-of-lost")})
		_, err := c.CoreV1().Nodes().Patch(c.ctx, "node-of-lost", types.StrategicMergePatchType,
			fmt.Appendf(nil, `{"spec":{"taints":[{"key":"example.com/lost","effect":%q}]}}`,
				corev1.TaintEffectNoExecute), metav1.PatchOptions{})
		require.NoError(t, err)
		c.goes("etcd-main-1")
	})
	t.Run("the pods of a node that is deleted go", func(t *testing.T) {
		t.Parallel()
		c := newCluster(t, shared, "orphaned")
		c.guarded(map[string]types.UID{"etcd-main-1": c.pod("etcd-main-1", "node-that-is-gone")})
		c.goes("etcd-main-1")
	})
}

// The StatefulSet controller is not exempt. It asks again until the pod is free.
func TestAScaleInWaitsUntilThePodIsFree(t *testing.T) {
	c := newCluster(t, shared, "scaled")
	c.node("node-of-scaled")
	c.guarded(c.statefulSet("node-of-scaled"))
	for _, pod := range []string{"etcd-main-0", "etcd-main-1"} {
		// The StatefulSet controller removes no pod while one before it is not Ready.
		_, err := c.CoreV1().Pods(c.namespace).Patch(c.ctx, pod, types.MergePatchType,
			[]byte(`{"status":{"phase":"Running","conditions":[{"type":"Ready","status":"True"}]}}`),
			metav1.PatchOptions{}, "status")
		require.NoError(t, err)
	}
	_, err := c.AppsV1().StatefulSets(c.namespace).Patch(c.ctx, "etcd-main", types.MergePatchType,
		[]byte(`{"spec":{"replicas":1}}`), metav1.PatchOptions{})
	require.NoError(t, err)
	c.until("the StatefulSet controller is refused", func() bool {
		events, err := c.CoreV1().Events(c.namespace).List(c.ctx,
			metav1.ListOptions{FieldSelector: "reason=FailedDelete"})
		return err == nil && len(events.Items) > 0
	})
	pod, err := c.CoreV1().Pods(c.namespace).Get(c.ctx, "etcd-main-1", metav1.GetOptions{})
	require.NoError(t, err)
	require.Nil(t, pod.DeletionTimestamp)
	free := c.record("etcd-main", nil)
	free.Annotations["quorate.dev/needed"] = `{"epoch":7}`
	c.write(free)
	c.goes("etcd-main-1")
}

// What is refused stays, also where what is not refused goes in the same request.
func TestADeletedCollectionLeavesWhatIsNeeded(t *testing.T) {
	c := newCluster(t, shared, "collected")
	c.node("node-of-collected")
	c.pod("etcd-main-0", "node-of-collected")
	c.guarded(map[string]types.UID{"etcd-main-1": c.pod("etcd-main-1", "node-of-collected")})
	err := c.CoreV1().Pods(c.namespace).DeleteCollection(c.ctx, metav1.DeleteOptions{}, metav1.ListOptions{})
	require.True(t, apierrors.IsForbidden(err), "%v", err)
	c.goes("etcd-main-0")
	pod, err := c.CoreV1().Pods(c.namespace).Get(c.ctx, "etcd-main-1", metav1.GetOptions{})
	require.NoError(t, err)
	require.Nil(t, pod.DeletionTimestamp)
}

// actions changes what the binding does with what the policy refuses.
func (c *cluster) actions(what ...admissionregistrationv1.ValidationAction) {
	c.t.Helper()
	bindings := c.AdmissionregistrationV1().ValidatingAdmissionPolicyBindings()
	binding, err := bindings.Get(c.ctx, policyName, metav1.GetOptions{})
	require.NoError(c.t, err)
	binding.Spec.ValidationActions = what
	_, err = bindings.Update(c.ctx, binding, metav1.UpdateOptions{})
	require.NoError(c.t, err)
}

// docs/safety.md says how the guard is removed and brought back, because of kubernetes/kubernetes#130887. If this test
// fails with a newer Kubernetes because the guard is in force too early, that has been cured there.
func TestAGuardThatWasRemovedIsInForceAgainAfterARestartOfTheAPIServer(t *testing.T) {
	if testing.Short() {
		t.Skip("needs a control plane")
	}
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	plane, err := start(ctx, "removed", "127.77.88.2")
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, plane.Close(context.Background())) })
	require.NoError(t, harness.InstallGuard(ctx, plane.AdminConfig()))
	c := newCluster(t, plane, "removed")
	c.node("node")
	pods := map[string]types.UID{"etcd-main-1": c.pod("etcd-main-1", "node")}
	refused := func() bool { return apierrors.IsForbidden(deletes(c, c, "etcd-main-1")) }
	c.guarded(pods)

	// Turned off and on again by the binding, it goes on with what Leases say by then.
	c.actions(admissionregistrationv1.Audit)
	c.until("only the audit hears of it", func() bool { return !refused() })
	c.actions(admissionregistrationv1.Deny)
	c.until("it refuses again", refused)
	free := c.record("etcd-main", nil)
	c.write(free)
	require.False(t, refused())
	c.guarded(pods)

	// Removed, it lets everything pass.
	admission := c.AdmissionregistrationV1()
	require.NoError(t, admission.ValidatingAdmissionPolicyBindings().Delete(ctx, policyName, metav1.DeleteOptions{}))
	require.NoError(t, admission.ValidatingAdmissionPolicies().Delete(ctx, policyName, metav1.DeleteOptions{}))
	c.until("the policy is gone", func() bool { return !refused() })
	// It takes the API server up to a second to see that nobody uses Leases as parameters any more.
	require.NoError(t, harness.Pass(ctx, 3*time.Second))

	// The API server that knew it has stopped to watch Leases, and does not begin again. So it goes by old ones.
	soon, end := context.WithTimeout(ctx, 10*time.Second)
	defer end()
	require.ErrorContains(t, harness.InstallGuard(soon, plane.AdminConfig()), "is in force")
	require.NoError(t, plane.StopAPIServer(ctx))
	require.NoError(t, plane.StartAPIServer(ctx))
	require.NoError(t, harness.InstallGuard(ctx, plane.AdminConfig()))
	c.until("it is in force", refused)
}
