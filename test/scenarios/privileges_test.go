package scenarios

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os/exec"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	autoscalingv1 "k8s.io/api/autoscaling/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/quorate/quorate/internal/report"
	"github.com/quorate/quorate/test/harness"
)

// lack is how one permission comes to be missed.
type lack struct {
	// before brings the cluster to where the permission is needed at the next rollout.
	before func(s *scene, ctx context.Context)
	// after does what is needed between the revocation and the rollout.
	after func(s *scene, ctx context.Context)
	// end undoes what keeps the rollout besides.
	end func(s *scene, ctx context.Context)
	// grantedBy is the file that grants it, if not the base.
	grantedBy string
}

// lacks has a row for every permission of the shipped Role: with it missing, a rollout is
// begun.
var lacks = map[string]lack{
	"get statefulsets": {},
	// A watch that is open stays open. Without it a rollout is not noticed, but by then the
	// log has said why.
	"watch statefulsets":        {after: (*scene).restartSidecar},
	"patch statefulsets/status": {grantedBy: "deploy/components/promote-current-revision"},
	"list pods":                 {},
	"watch pods":                {},
	// Only what is sick is deleted, unless told otherwise.
	"delete pods": {before: (*scene).deleting, end: (*scene).evicting},
	// A record that has to be created again has lost what was under way, so all pods are
	// patched first.
	"patch pods":           {before: (*scene).forget},
	"create pods/eviction": {},
	// A single member's budget is read only where it refuses.
	"get poddisruptionbudgets": {before: (*scene).needTwo, end: (*scene).needNone},
	// It is watched anew with every rollout. Without that, a dry run asks it.
	"watch poddisruptionbudgets": {},
	// A record that is there is watched.
	"get leases": {before: (*scene).forget},
	// So does this one. Without it, what an operator asks for is noticed only during a rollout.
	"watch leases":  {after: (*scene).restartSidecar},
	"patch leases":  {},
	"create leases": {before: (*scene).forget},
	"create events": {},
	// It is told once, so the sidecar starts anew.
	"get nodes": {after: (*scene).restartSidecar, grantedBy: "deploy/components/nodes"},
	// A watch that is open stays open.
	"watch nodes": {after: (*scene).restartSidecar, grantedBy: "deploy/components/nodes"},
	// What was told before is only counted.
	"patch events": {before: (*scene).tellOverrides, after: (*scene).tellOverridesAgain, end: (*scene).letGo},
}

// Each permission of the shipped Role is needed, its absence is named in the log, and with it
// the rollout goes on. One member is enough, because no other sidecar could take over.
func TestEveryPermissionThatIsMissingIsNamed(t *testing.T) {
	t.Parallel()
	ctx, s := newCluster(t, harness.Loopback, harness.Spec{
		Name: "lacking", Replicas: 1, PlainText: true,
		Components:  []string{"promote-current-revision", "nodes"},
		SidecarArgs: []string{"--promote-current-revision", "--read-nodes"},
	})
	shipped, err := s.Permissions()
	require.NoError(t, err)
	tried := map[string]bool{}
	for i, p := range shipped {
		require.False(t, tried[p.String()], "%s is shipped twice", p)
		tried[p.String()] = true
		row, ok := lacks[p.String()]
		require.True(t, ok, "%s is shipped, and no row says how it comes to be missed", p)
		t.Run("without "+p.String(), func(t *testing.T) {
			s := s.in(t)
			if row.before != nil {
				row.before(s, ctx)
			}
			s.changed = time.Now()
			require.NoError(t, s.Revoke(ctx, p))
			if row.after != nil {
				row.after(s, ctx)
			}
			revoked := s.changed
			s.touch(ctx, fmt.Sprintf("lacking-%d", i))
			missing := fmt.Sprintf("cannot %s resource %q in API group %q", p.Verb, p.Resource, p.Group)
			e, err := s.journal.Await(ctx, missing, func(e harness.LogEntry) bool {
				return e.At.After(revoked) && strings.Contains(e.Error, missing)
			})
			require.NoError(t, err)
			require.Equal(t, "warning", e.Level)
			grantedBy := cmp.Or(row.grantedBy, "deploy/base/role.yaml")
			require.Contains(t, e.Error, "grant it to the sidecar's ServiceAccount, see "+grantedBy)
			t.Logf("%s: %s", e.Message, e.Error)
			require.NoError(t, s.Restore(ctx))
			if row.end != nil {
				row.end(s, ctx)
			}
			s.complete(ctx)
		})
	}
	for permission := range lacks {
		require.True(t, tried[permission], "%s is not shipped any more", permission)
	}
}

// restartSidecar ends the only sidecar, and so its watches.
func (s *scene) restartSidecar(context.Context) {
	s.t.Helper()
	s.signal(s.Pods()[0], syscall.SIGKILL)
}

// forget deletes the record.
func (s *scene) forget(ctx context.Context) {
	s.t.Helper()
	require.NoError(s.t, s.DeleteRecord(ctx))
}

// deleting has pods deleted, and evicting has them evicted again, by the operator's word.
func (s *scene) deleting(ctx context.Context) {
	s.t.Helper()
	require.NoError(s.t, s.Annotate(ctx, harness.OverrideAnnotation, "DisruptionBudget"))
}

func (s *scene) evicting(ctx context.Context) {
	s.t.Helper()
	require.NoError(s.t, s.Annotate(ctx, harness.OverrideAnnotation, ""))
}

// needTwo has the budget need two pods where there is one, as etcd-druid does for a moment, and needNone as many as it
// needed before.
func (s *scene) needTwo(ctx context.Context) {
	s.t.Helper()
	require.NoError(s.t, s.SetMinAvailable(ctx, 2))
}

func (s *scene) needNone(ctx context.Context) {
	s.t.Helper()
	require.NoError(s.t, s.SetMinAvailable(ctx, 0))
}

// Without any permission the sidecars cannot write that they have none, so status asks what they may do.
func TestStatusNamesWhatASidecarWithoutARoleMayNotDo(t *testing.T) {
	t.Parallel()
	ctx, s := newCluster(t, harness.Loopback, harness.Spec{Name: "roleless", Replicas: 1, PlainText: true})
	shipped, err := s.Permissions()
	require.NoError(t, err)
	require.NoError(t, s.RevokeAll(ctx))
	s.touch(ctx, "roleless")
	said := s.status(ctx)
	require.Contains(t, said, "What to do: The sidecars lack permissions: their ServiceAccount roleless may not get "+
		"statefulsets roleless, watch statefulsets roleless, list pods, ")
	require.Contains(t, said, "create leases. Apply deploy/base, or for an Etcd of etcd-druid deploy/druid/access.")

	// An operator is told the same by a check, and may read everything that it looks at.
	require.NoError(t, s.CreateOperator(ctx, "roleless-operator"))
	kubeconfig, err := s.KubeconfigAs(ctx, "roleless-operator", t.TempDir())
	require.NoError(t, err)
	checked, code := s.quorateAs(ctx, kubeconfig, "check", s.Spec.Name)
	require.Equal(t, 3, code, "%s", checked)
	require.Regexp(t, `(?m)^fail +Permissions +the ServiceAccount roleless may not get and watch statefulsets `+
		`roleless; list pods; delete and patch pods roleless-0; create pods/eviction roleless-0; `, checked)
	require.NotContains(t, checked, "you may n", "what the operator may not ask")

	// One that is missing is named alone.
	require.NoError(t, s.Restore(ctx))
	s.complete(ctx)
	checked, _ = s.quorateAs(ctx, kubeconfig, "check", s.Spec.Name)
	require.Regexp(t, `(?m)^pass +Permissions `, checked)
	s.forget(ctx)
	i := slices.IndexFunc(shipped, func(p harness.Permission) bool { return p.String() == "create leases" })
	require.NoError(t, s.Revoke(ctx, shipped[i]))
	s.touch(ctx, "roleless again")
	require.Contains(t, s.status(ctx), "their ServiceAccount roleless may not create leases. Apply")
	require.NoError(t, s.Restore(ctx))
	s.complete(ctx)
}

// status is what an administrator is told once the StatefulSet controller has seen the change. Before, status says that
// it has not.
func (s *scene) status(ctx context.Context) string {
	s.t.Helper()
	require.NoError(s.t, s.WaitObserved(ctx))
	said, code := s.quorate(ctx, "status", s.Spec.Name)
	require.Equal(s.t, 3, code, "%s", said)
	return said
}

// quorate is what an administrator is told by a command, and its exit code.
func (s *scene) quorate(ctx context.Context, args ...string) (said string, code int) {
	s.t.Helper()
	return s.quorateAs(ctx, s.env.Plane.KubeconfigPath(), args...)
}

// quorateAs is what somebody is told by it.
func (s *scene) quorateAs(ctx context.Context, kubeconfig string, args ...string) (said string, code int) {
	s.t.Helper()
	quorate := exec.CommandContext(ctx, s.env.Binaries.Quorate, append(args, "-n", harness.Namespace,
		"--kubeconfig="+kubeconfig)...)
	output, err := quorate.CombinedOutput()
	var exit *exec.ExitError
	if !errors.As(err, &exit) {
		require.NoError(s.t, err, "%s", output)
	}
	return string(output), quorate.ProcessState.ExitCode()
}

// tellOverrides pauses a rollout and overrides two guards, one after the other, each of which
// is told by an event.
func (s *scene) tellOverrides(ctx context.Context) {
	s.t.Helper()
	require.NoError(s.t, s.Annotate(ctx, harness.PausedAnnotation, "true"))
	s.touch(ctx, "paused")
	s.holds(ctx, "Paused")
	for _, guard := range []string{"Canary", "CaughtUp"} {
		require.NoError(s.t, s.Annotate(ctx, harness.OverrideAnnotation, guard))
		require.NoError(s.t, s.WaitEvent(ctx, report.ReasonGuardsOverridden,
			guard+" will not hold this rollout, nor any later one"))
	}
}

// tellOverridesAgain overrides the first one again.
func (s *scene) tellOverridesAgain(ctx context.Context) {
	s.t.Helper()
	require.NoError(s.t, s.Annotate(ctx, harness.OverrideAnnotation, "Canary"))
}

// letGo lets the rollout go on.
func (s *scene) letGo(ctx context.Context) {
	s.t.Helper()
	require.NoError(s.t, s.Annotate(ctx, harness.OverrideAnnotation, ""))
	require.NoError(s.t, s.Annotate(ctx, harness.PausedAnnotation, ""))
}

// Asked of the API server itself, with a token that it has issued: what is not granted is
// refused, however well meant, and what is granted goes through.
func TestATokenOfASidecarReachesNothingButItsOwn(t *testing.T) {
	t.Parallel()
	ctx, s := newCluster(t, harness.Loopback, harness.Spec{Name: "own", Replicas: 1, PlainText: true})
	const foreign, pod = "not-its-own-0", "own-0"
	s.touch(ctx, "so that there is a record")
	s.complete(ctx)
	admin := s.env.Client
	_, err := admin.CoreV1().Pods(harness.Namespace).Create(ctx, &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: foreign},
		Spec: corev1.PodSpec{
			NodeSelector: map[string]string{"no": "node"},
			Containers:   []corev1.Container{{Name: "etcd", Image: harness.Etcd35}},
		},
	}, metav1.CreateOptions{})
	require.NoError(t, err)
	defer func() {
		require.NoError(t, admin.CoreV1().Pods(harness.Namespace).
			Delete(context.WithoutCancel(ctx), foreign, metav1.DeleteOptions{}))
	}()
	_, err = admin.CoordinationV1().Leases(harness.Namespace).
		Create(ctx, &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Name: foreign}}, metav1.CreateOptions{})
	require.NoError(t, err)
	defer func() {
		require.NoError(t, admin.CoordinationV1().Leases(harness.Namespace).
			Delete(context.WithoutCancel(ctx), foreign, metav1.DeleteOptions{}))
	}()

	sidecar, err := s.As(ctx, "own")
	require.NoError(t, err)
	require.NoError(t, s.CreateOperator(ctx, "own-operator"))
	operator, err := s.As(ctx, "own-operator")
	require.NoError(t, err)

	// An object is changed in earnest; only what is granted and would hurt is a dry run,
	// which is authorized and admitted like any other.
	annotation := []byte(`{"metadata":{"annotations":{"tried":"yes"}}}`)
	dryRun := metav1.DeleteOptions{DryRun: []string{metav1.DryRunAll}}
	for _, tc := range []struct {
		name    string
		allowed bool
		do      func() error
	}{
		{"its own pod may be removed", true, func() error {
			return sidecar.CoreV1().Pods(harness.Namespace).Delete(ctx, pod, dryRun)
		}},
		{"its own pod may be evicted", true, func() error {
			return sidecar.PolicyV1().Evictions(harness.Namespace).Evict(ctx, eviction(pod, &dryRun))
		}},
		{"its own pod may be patched", true, func() error {
			_, err := sidecar.CoreV1().Pods(harness.Namespace).
				Patch(ctx, pod, types.MergePatchType, annotation, metav1.PatchOptions{})
			return err
		}},
		{"its own record may be patched", true, func() error {
			_, err := sidecar.CoordinationV1().Leases(harness.Namespace).
				Patch(ctx, s.RecordName(), types.MergePatchType, annotation, metav1.PatchOptions{})
			return err
		}},
		{"another pod cannot be removed", false, func() error {
			return sidecar.CoreV1().Pods(harness.Namespace).Delete(ctx, foreign, metav1.DeleteOptions{})
		}},
		{"another pod cannot be evicted", false, func() error {
			return sidecar.PolicyV1().Evictions(harness.Namespace).Evict(ctx, eviction(foreign, nil))
		}},
		{"another pod cannot be patched", false, func() error {
			_, err := sidecar.CoreV1().Pods(harness.Namespace).
				Patch(ctx, foreign, types.MergePatchType, annotation, metav1.PatchOptions{})
			return err
		}},
		{"pods cannot be removed by their labels", false, func() error {
			return sidecar.CoreV1().Pods(harness.Namespace).DeleteCollection(ctx, metav1.DeleteOptions{},
				metav1.ListOptions{LabelSelector: "app.kubernetes.io/name=own"})
		}},
		{"a pod cannot be created", false, func() error {
			_, err := sidecar.CoreV1().Pods(harness.Namespace).Create(ctx, &corev1.Pod{
				ObjectMeta: metav1.ObjectMeta{Name: "own-1"},
				Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "etcd", Image: harness.Etcd35}}},
			}, metav1.CreateOptions{})
			return err
		}},
		{"another Lease cannot be read", false, func() error {
			_, err := sidecar.CoordinationV1().Leases(harness.Namespace).Get(ctx, foreign, metav1.GetOptions{})
			return err
		}},
		{"another Lease cannot be patched", false, func() error {
			_, err := sidecar.CoordinationV1().Leases(harness.Namespace).
				Patch(ctx, foreign, types.MergePatchType, annotation, metav1.PatchOptions{})
			return err
		}},
		{"another Lease cannot be deleted, nor its own", false, func() error {
			return sidecar.CoordinationV1().Leases(harness.Namespace).
				Delete(ctx, s.RecordName(), metav1.DeleteOptions{})
		}},
		{"its StatefulSet cannot be patched", false, func() error {
			_, err := sidecar.AppsV1().StatefulSets(harness.Namespace).
				Patch(ctx, "own", types.MergePatchType, annotation, metav1.PatchOptions{})
			return err
		}},
		{"its StatefulSet cannot be updated", false, func() error {
			_, err := sidecar.AppsV1().StatefulSets(harness.Namespace).
				Update(ctx, &appsv1.StatefulSet{ObjectMeta: metav1.ObjectMeta{Name: "own"}}, metav1.UpdateOptions{})
			return err
		}},
		{"its StatefulSet cannot be scaled", false, func() error {
			_, err := sidecar.AppsV1().StatefulSets(harness.Namespace).UpdateScale(ctx, "own",
				&autoscalingv1.Scale{ObjectMeta: metav1.ObjectMeta{Name: "own"}}, metav1.UpdateOptions{})
			return err
		}},
		{"its StatefulSet's status cannot be patched, unless the component for it is added", false, func() error {
			_, err := sidecar.AppsV1().StatefulSets(harness.Namespace).Patch(ctx, "own", types.MergePatchType,
				[]byte(`{"status":{"currentRevision":"x"}}`), metav1.PatchOptions{}, "status")
			return err
		}},
		{"its StatefulSet cannot be deleted", false, func() error {
			return sidecar.AppsV1().StatefulSets(harness.Namespace).Delete(ctx, "own", metav1.DeleteOptions{})
		}},
		{"secrets cannot be read", false, func() error {
			_, err := sidecar.CoreV1().Secrets(harness.Namespace).Get(ctx, "own-tls", metav1.GetOptions{})
			return err
		}},
		{"config maps cannot be read", false, func() error {
			_, err := sidecar.CoreV1().ConfigMaps(harness.Namespace).Get(ctx, "own-kube", metav1.GetOptions{})
			return err
		}},
		{"its Role cannot be widened", false, func() error {
			_, err := sidecar.RbacV1().Roles(harness.Namespace).
				Update(ctx, &rbacv1.Role{ObjectMeta: metav1.ObjectMeta{Name: "own-quorate"}}, metav1.UpdateOptions{})
			return err
		}},

		{"an operator may read the pods", true, func() error {
			_, err := operator.CoreV1().Pods(harness.Namespace).List(ctx, metav1.ListOptions{})
			return err
		}},
		{"an operator may read the StatefulSet", true, func() error {
			_, err := operator.AppsV1().StatefulSets(harness.Namespace).Get(ctx, "own", metav1.GetOptions{})
			return err
		}},
		{"an operator may pause", true, func() error {
			_, err := operator.CoordinationV1().Leases(harness.Namespace).
				Patch(ctx, s.RecordName(), types.MergePatchType,
					[]byte(`{"metadata":{"annotations":{"`+harness.PausedAnnotation+`":"true"}}}`),
					metav1.PatchOptions{})
			return err
		}},
		{"an operator may pause before there is a record", true, func() error {
			_, err := operator.CoordinationV1().Leases(harness.Namespace).
				Create(ctx, &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Name: "quorate-later"}},
					metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
			return err
		}},
		{"an operator cannot touch another Lease", false, func() error {
			_, err := operator.CoordinationV1().Leases(harness.Namespace).
				Patch(ctx, foreign, types.MergePatchType, annotation, metav1.PatchOptions{})
			return err
		}},
		{"an operator cannot remove pods", false, func() error {
			return operator.CoreV1().Pods(harness.Namespace).Delete(ctx, pod, metav1.DeleteOptions{})
		}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			err := tc.do()
			if tc.allowed {
				require.NoError(t, err)
				return
			}
			require.True(t, apierrors.IsForbidden(err), "%v", err)
		})
	}

	left, err := admin.CoreV1().Pods(harness.Namespace).Get(ctx, foreign, metav1.GetOptions{})
	require.NoError(t, err)
	require.Nil(t, left.DeletionTimestamp)
	require.Empty(t, left.Annotations)
}

func eviction(pod string, options *metav1.DeleteOptions) *policyv1.Eviction {
	return &policyv1.Eviction{ObjectMeta: metav1.ObjectMeta{Name: pod, Namespace: harness.Namespace},
		DeleteOptions: options}
}
