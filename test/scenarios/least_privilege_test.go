package scenarios

import (
	"context"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	admissionv1 "k8s.io/api/admissionregistration/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/retry"

	"github.com/quorate/quorate/test/harness"
)

// Quorate does all that it does under the policy: it evicts, deletes, fences, hands over, makes its record anew, and
// counts its events.
func TestARolloutIsTheSameUnderThePolicyOfLeastPrivilege(t *testing.T) {
	t.Parallel()
	ctx, s := newCluster(t, harness.Loopback, harness.Spec{Name: "least", PlainText: true,
		Components: []string{"least-privilege"}})
	s.rollsOneAtATime(ctx)
	s.forget(ctx) // All pods are fenced, and the Lease is created.
	s.deleting(ctx)
	s.touch(ctx, "by deletions")
	s.complete(ctx)
	s.evicting(ctx)
	s.tellOverrides(ctx)
	s.tellOverridesAgain(ctx)
	s.letGo(ctx)
	s.complete(ctx)
	for _, e := range s.journal.Entries() {
		require.NotContains(t, e.Error, "ValidatingAdmissionPolicy", "%s", e.Message)
	}
}

// Asked of the API server itself, with a token that it has issued: what RBAC grants is refused by the policy, unless
// Quorate needs it. Other accounts with the same Role are not affected.
func TestATokenOfASidecarChangesNothingOfAPodButOneAnnotation(t *testing.T) {
	t.Parallel()
	_, s, all := limited(t, environment(t, harness.Loopback), "limited")
	for _, tc := range all {
		t.Run(tc.name, func(t *testing.T) {
			err := tc.do()
			switch {
			case tc.refused != "":
				require.True(t, apierrors.IsForbidden(err), "%v", err)
				require.ErrorContains(t, err, "ValidatingAdmissionPolicy '"+s.policyName()+"'")
				require.ErrorContains(t, err, tc.refused)
			case err != nil:
				require.True(t, apierrors.IsAlreadyExists(err), "%v", err)
			}
		})
	}
}

// Each condition of the policy is taken away in turn. Then something is allowed that was not, or, for the condition
// that keeps the policy from everybody else, something is refused that was allowed. A policy is of no namespace, so
// this has an API server of its own.
func TestEveryMutantOfThePolicyOfLeastPrivilegeIsCaught(t *testing.T) {
	leftOut(t)
	t.Parallel()
	ctx, s, all := limited(t, ownEnvironment(t, "mutated", harness.Loopback), "mutated")
	policies := s.env.Client.AdmissionregistrationV1().ValidatingAdmissionPolicies()
	shipped, err := policies.Get(ctx, s.policyName(), metav1.GetOptions{})
	require.NoError(t, err)
	set := func(spec *admissionv1.ValidatingAdmissionPolicySpec) {
		// Kubernetes writes the status of each at any time.
		require.NoError(t, retry.RetryOnConflict(retry.DefaultBackoff, func() error {
			p, err := policies.Get(ctx, shipped.Name, metav1.GetOptions{})
			if err != nil {
				return err
			}
			p.Spec = *spec
			_, err = policies.Update(ctx, p, metav1.UpdateOptions{})
			return err
		}))
	}
	// other is the first request that the policy answers otherwise than as it is shipped.
	other := func() string {
		for _, tc := range all {
			if apierrors.IsForbidden(tc.do()) != (tc.refused != "") {
				return tc.name
			}
		}
		return ""
	}
	mutants := map[string]*admissionv1.ValidatingAdmissionPolicySpec{}
	for i, v := range shipped.Spec.Validations {
		spec := shipped.Spec.DeepCopy()
		spec.Validations = slices.Delete(spec.Validations, i, i+1)
		_, may, _ := strings.Cut(v.Message, "sidecars ")
		mutants[strings.ReplaceAll(may, "quorate.dev/", "")] = spec // A slash would end the name of a test.
	}
	for i, c := range shipped.Spec.MatchConditions {
		spec := shipped.Spec.DeepCopy()
		spec.MatchConditions = slices.Delete(spec.MatchConditions, i, i+1)
		mutants["the condition "+c.Name] = spec
	}
	require.Len(t, mutants, len(shipped.Spec.Validations)+len(shipped.Spec.MatchConditions))
	for _, name := range slices.Sorted(maps.Keys(mutants)) {
		t.Run(name, func(t *testing.T) {
			set(mutants[name])
			caught := ""
			// The API server hears of a new policy a little later.
			require.Eventually(t, func() bool { caught = other(); return caught != "" }, 30*time.Second,
				100*time.Millisecond, "nothing is allowed or refused otherwise")
			t.Logf("caught by the API server: %s", caught)
			set(&shipped.Spec)
			require.Eventually(t, func() bool { return other() == "" }, 30*time.Second, 100*time.Millisecond)
		})
	}
}

// policyName is the name of the cluster's policy.
func (s *scene) policyName() string { return harness.Namespace + "-" + s.Spec.Name + "-quorate" }

// tried is a request that the policy answers.
type tried struct {
	name string
	do   func() error
	// refused are the policy's words, empty where it lets it pass.
	refused string
}

// limited is a cluster whose sidecars' account is limited by the policy, and what is tried with a token of that
// account, by dry runs.
func limited(t *testing.T, env *harness.Env, cluster string) (context.Context, *scene, []tried) {
	t.Helper()
	ctx, s := newClusterIn(t, env, harness.Spec{Name: cluster, Replicas: 1, PlainText: true,
		Components: []string{"least-privilege"}})
	pod, stray, unscheduled, foreign := cluster+"-0", cluster+"-1", cluster+"-2", cluster+"-of-another-program"
	s.touch(ctx, "so that there is an annotation, and a record")
	s.complete(ctx)
	pods := s.env.Client.CoreV1().Pods(harness.Namespace)
	set, err := s.env.Client.AppsV1().StatefulSets(harness.Namespace).Get(ctx, cluster, metav1.GetOptions{})
	require.NoError(t, err)
	// The names of both are on the Role, but the StatefulSet owns only one of them.
	for name, owners := range map[string][]metav1.OwnerReference{
		stray:       nil,
		unscheduled: {{APIVersion: "apps/v1", Kind: "StatefulSet", Name: set.Name, UID: set.UID}},
	} {
		_, err := pods.Create(ctx, &corev1.Pod{
			ObjectMeta: metav1.ObjectMeta{Name: name, OwnerReferences: owners},
			Spec: corev1.PodSpec{
				NodeSelector: map[string]string{"no": "node"},
				Containers:   []corev1.Container{{Name: "etcd", Image: harness.Etcd35}},
			},
		}, metav1.CreateOptions{})
		require.NoError(t, err)
		t.Cleanup(func() {
			require.NoError(t, pods.Delete(context.WithoutCancel(ctx), name, metav1.DeleteOptions{}))
		})
	}
	events := s.env.Client.CoreV1().Events(harness.Namespace)
	event := func(name, component string) *corev1.Event {
		return &corev1.Event{
			ObjectMeta:     metav1.ObjectMeta{Name: name, Namespace: harness.Namespace},
			InvolvedObject: corev1.ObjectReference{Kind: "Pod", Name: pod, Namespace: harness.Namespace},
			Source:         corev1.EventSource{Component: component},
		}
	}
	for _, e := range []*corev1.Event{event(foreign, "kubelet"), event(cluster+"-own", "quorate")} {
		_, err := events.Create(ctx, e, metav1.CreateOptions{})
		require.NoError(t, err)
	}
	// Whatever another Role may grant the account one day.
	s.grantMore(ctx, cluster+"-more", rbacv1.PolicyRule{APIGroups: []string{""},
		Resources: []string{"pods/status", "pods/ephemeralcontainers", "pods/resize"}, Verbs: []string{"patch"}})
	require.NoError(t, s.CreateServiceAccount(ctx, cluster+"-host", "patch", "delete", "create"))

	sidecar, err := s.As(ctx, cluster)
	require.NoError(t, err)
	host, err := s.As(ctx, cluster+"-host")
	require.NoError(t, err)
	dryRun := []string{metav1.DryRunAll}
	patch := func(kind types.PatchType, text string, subresources ...string) func() error {
		return func() error {
			_, err := sidecar.CoreV1().Pods(harness.Namespace).Patch(ctx, pod, kind, []byte(text),
				metav1.PatchOptions{DryRun: dryRun}, subresources...)
			return err
		}
	}
	remove := func(name string, grace int64) func() error {
		return func() error {
			return sidecar.CoreV1().Pods(harness.Namespace).Delete(ctx, name, metav1.DeleteOptions{DryRun: dryRun,
				GracePeriodSeconds: &grace})
		}
	}
	evict := func(grace int64) func() error {
		return func() error {
			return sidecar.PolicyV1().Evictions(harness.Namespace).Evict(ctx, eviction(pod,
				&metav1.DeleteOptions{DryRun: dryRun, GracePeriodSeconds: &grace}))
		}
	}
	count := func(name string) func() error {
		return func() error {
			_, err := sidecar.CoreV1().Events(harness.Namespace).Patch(ctx, name, types.MergePatchType,
				[]byte(`{"count":2}`), metav1.PatchOptions{DryRun: dryRun})
			return err
		}
	}
	create := func(name string) func() error {
		return func() error {
			_, err := sidecar.CoordinationV1().Leases(harness.Namespace).Create(ctx,
				&coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{DryRun: dryRun})
			return err
		}
	}
	const merge, smart = types.MergePatchType, types.StrategicMergePatchType
	const onlyFenced = "no annotation of a pod but quorate.dev/fenced"
	return ctx, s, []tried{
		{"its annotation", patch(merge, `{"metadata":{"annotations":{"quorate.dev/fenced":"epoch 7"}}}`), ""},
		{"nothing at all", patch(merge, `{}`), ""},
		{"another annotation", patch(merge, `{"metadata":{"annotations":{"tried":"yes"}}}`), onlyFenced},
		{"another annotation beside its own", patch(merge,
			`{"metadata":{"annotations":{"quorate.dev/fenced":"epoch 7","tried":"yes"}}}`), onlyFenced},
		{"another annotation is removed", patch(merge, `{"metadata":{"annotations":{"touched":null}}}`), onlyFenced},
		{"another annotation is replaced", patch(merge, `{"metadata":{"annotations":{"touched":"by me"}}}`),
			onlyFenced},
		{"all annotations are removed", patch(merge, `{"metadata":{"annotations":null}}`), onlyFenced},
		{"a new label", patch(merge, `{"metadata":{"labels":{"tried":"yes"}}}`), "no labels, owners or finalizers"},
		{"a label that the StatefulSet selects", patch(merge,
			`{"metadata":{"labels":{"app.kubernetes.io/name":"another"}}}`), "no labels, owners or finalizers"},
		{"a finalizer", patch(merge, `{"metadata":{"finalizers":["example.com/kept"]}}`),
			"no labels, owners or finalizers"},
		{"no owner", patch(merge, `{"metadata":{"ownerReferences":null}}`), "no labels, owners or finalizers"},
		{"an image", patch(smart, `{"spec":{"containers":[{"name":"etcd","image":"evil"}]}}`),
			"no pod's specification"},
		{"a toleration", patch(smart, `{"spec":{"tolerations":[{"key":"tried","operator":"Exists"}]}}`),
			"no pod's specification"},
		{"a deadline", patch(merge, `{"spec":{"activeDeadlineSeconds":1}}`), "no pod's specification"},
		{"the status", patch(merge, `{"status":{"message":"tried"}}`, "status"), "no pod's specification"},
		{"an ephemeral container", patch(smart,
			`{"spec":{"ephemeralContainers":[{"name":"tried","image":"evil"}]}}`, "ephemeralcontainers"),
			"no pod's specification"},
		{"its pod is deleted", remove(pod, 1), ""},
		{"its pod is deleted by force", remove(pod, 0), "with a grace period of 0"},
		{"its pod is evicted", evict(1), ""},
		{"its pod is evicted by force", evict(0), "with a grace period of 0"},
		{"its pod that no node takes is deleted", remove(unscheduled, 1), ""},
		{"a pod of nobody with such a name is deleted", remove(stray, 1),
			"that does not belong to the StatefulSet " + cluster},
		{"its own event is counted", count(cluster + "-own"), ""},
		{"another one's event is counted", count(foreign), "no event of others"},
		{"the record is created", create(s.RecordName()), ""},
		{"another Lease is created", create(foreign), "no Lease but quorate-" + cluster},
		{"whoever else has the Role is not limited", func() error {
			_, err := host.CoreV1().Pods(harness.Namespace).Patch(ctx, pod, merge,
				[]byte(`{"metadata":{"labels":{"tried":"yes"}}}`), metav1.PatchOptions{DryRun: dryRun})
			return err
		}, ""},
	}
}

// A field that does not exist is an error when the policy is evaluated, which is late. Kubernetes says so before.
func TestKubernetesHasNothingAgainstTheTypesInThePolicies(t *testing.T) {
	t.Parallel()
	env := environment(t, harness.Loopback)
	ctx, cancel := context.WithTimeout(t.Context(), scenarioTimeout)
	defer cancel()
	for _, file := range []string{
		"../../deploy/components/least-privilege/policy.yaml",
		"../chart/testdata/least-privilege.yaml",
		"../../deploy/components/quorum-guard/policy.yaml",
		"../../deploy/druid/check.yaml",
	} {
		t.Run(file, func(t *testing.T) {
			text, err := os.ReadFile(file)
			require.NoError(t, err)
			warnings, err := env.TypeWarnings(ctx, text)
			require.NoError(t, err)
			require.Empty(t, warnings)
		})
	}
	text, err := os.ReadFile("../../deploy/components/least-privilege/policy.yaml")
	require.NoError(t, err)
	for _, tc := range []struct{ name, right, wrong, says string }{
		{"a field that no kind has", ".?finalizers.orValue([]) ==", ".?finalisers.orValue([]) ==",
			"undefined field 'finalisers'"},
		{"a field behind a dyn()", "dyn(object).spec ==", "dyn(object).spce ==", "undefined field 'spce'"},
		{"a field in a variable", "? oldObject.metadata.?annotations", "? oldObject.metadata.?annotation",
			"the variable before fits no kind"},
		{"a field in the condition", "request.userInfo.?username.orValue", "object.metadata.?user.orValue",
			"the condition is-a-sidecar fits no kind"},
	} {
		t.Run("and "+tc.name+" would be told", func(t *testing.T) {
			require.Contains(t, string(text), tc.right)
			warnings, err := env.TypeWarnings(ctx, []byte(strings.Replace(string(text), tc.right, tc.wrong, 1)))
			require.NoError(t, err)
			require.Contains(t, strings.Join(warnings, "\n"), tc.says)
		})
	}
}

// grantMore gives the sidecars' account one more Role.
func (s *scene) grantMore(ctx context.Context, name string, rules ...rbacv1.PolicyRule) {
	s.t.Helper()
	meta := metav1.ObjectMeta{Name: name}
	_, err := s.env.Client.RbacV1().Roles(harness.Namespace).Create(ctx, &rbacv1.Role{ObjectMeta: meta, Rules: rules},
		metav1.CreateOptions{})
	require.NoError(s.t, err)
	_, err = s.env.Client.RbacV1().RoleBindings(harness.Namespace).Create(ctx, &rbacv1.RoleBinding{
		ObjectMeta: meta, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "Role", Name: name},
		Subjects: []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Name: s.Spec.Name, Namespace: harness.Namespace}},
	}, metav1.CreateOptions{})
	require.NoError(s.t, err)
}
