package scenarios

import (
	"context"
	"encoding/json"
	"os"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	autoscalingv1 "k8s.io/api/autoscaling/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/jsonmergepatch"
	"k8s.io/client-go/kubernetes"
	appsclient "k8s.io/client-go/kubernetes/typed/apps/v1"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/yaml"

	"github.com/quorate/quorate/test/harness"
)

// flagsOfThePolicy are what deploy/druid adds to the sidecar.
var flagsOfThePolicy = []string{"--enable-quorum-aware-pod-updates=true", "--pod-update-promote-current-revision=true"}

// What deploy/druid makes of a StatefulSet that etcd-druid creates.
func TestThePolicyForDruidChangesTheStatefulSetsThatOptInAndRefusesThoseThatCannotWork(t *testing.T) {
	t.Parallel()
	ctx, druid := withPolicy(t)
	for _, tc := range []struct {
		name   string
		change func(*appsv1.StatefulSet)
		// strategy and added are what the StatefulSet then has, and refused is what druid is told instead.
		strategy appsv1.StatefulSetUpdateStrategyType
		added    []string
		refused  string
	}{
		{name: "an Etcd that opts in: OnDelete and both flags", strategy: "OnDelete", added: flagsOfThePolicy},
		{name: "a partition goes with the strategy, because OnDelete must not have one", strategy: "OnDelete",
			added: flagsOfThePolicy, change: func(set *appsv1.StatefulSet) {
				set.Spec.UpdateStrategy.RollingUpdate = &appsv1.RollingUpdateStatefulSetStrategy{Partition: new(int32)}
			}},
		{name: "no strategy", strategy: "OnDelete", added: flagsOfThePolicy, change: func(set *appsv1.StatefulSet) {
			set.Spec.UpdateStrategy = appsv1.StatefulSetUpdateStrategy{}
		}},
		{name: "no annotation: nothing is changed", strategy: "RollingUpdate", change: optOut},
		{name: "the annotation says false: nothing is changed", strategy: "RollingUpdate", change: annotated("false")},
		{name: "the annotation says something else", change: annotated("yes"),
			refused: `is "yes"; write "true" or "false"`},
		{name: "not etcd-druid's", strategy: "RollingUpdate", change: func(set *appsv1.StatefulSet) {
			delete(set.Labels, "app.kubernetes.io/managed-by")
		}},
		{name: "the flags are there already", strategy: "OnDelete", change: func(set *appsv1.StatefulSet) {
			sidecar := &set.Spec.Template.Spec.Containers[1]
			sidecar.Args = append(sidecar.Args, "--enable-quorum-aware-pod-updates",
				"--pod-update-promote-current-revision=false")
		}},
		{name: "one of the flags is there already", strategy: "OnDelete", added: flagsOfThePolicy[1:],
			change: func(set *appsv1.StatefulSet) {
				sidecar := &set.Spec.Template.Spec.Containers[1]
				sidecar.Args = append(sidecar.Args, flagsOfThePolicy[0])
			}},
		{name: "a flag that only begins like ours", strategy: "OnDelete",
			added: flagsOfThePolicy, change: func(set *appsv1.StatefulSet) {
				sidecar := &set.Spec.Template.Spec.Containers[1]
				sidecar.Args = append(sidecar.Args, "--enable-quorum-aware-pod-updates-of-another-kind=true")
			}},
		{name: "a sidecar without arguments", strategy: "OnDelete", added: flagsOfThePolicy,
			change: func(set *appsv1.StatefulSet) { set.Spec.Template.Spec.Containers[1].Args = nil }},
		{name: "the sidecar is the last of several containers", strategy: "OnDelete", added: flagsOfThePolicy,
			change: func(set *appsv1.StatefulSet) {
				pod := &set.Spec.Template.Spec
				pod.Containers = slices.Insert(pod.Containers, 1,
					corev1.Container{Name: "more", Image: "more"}, corev1.Container{Name: "and-more", Image: "more"})
			}},
		{name: "no sidecar at all", refused: `no Quorate: "no container backup-restore"`,
			change: func(set *appsv1.StatefulSet) {
				set.Spec.Template.Spec.Containers = set.Spec.Template.Spec.Containers[:1]
			}},
		{name: "a sidecar that does not know the flags", refused: "set spec.backup.image of the Etcd",
			change: func(set *appsv1.StatefulSet) {
				set.Spec.Template.Spec.Containers[1].Image = "europe-docker.pkg.dev/gardener/etcdbrctl:v0.41.2"
			}},
		{name: "a sidecar that does not know the flags, without the annotation", strategy: "RollingUpdate",
			change: func(set *appsv1.StatefulSet) {
				optOut(set)
				set.Spec.Template.Spec.Containers[1].Image = "europe-docker.pkg.dev/gardener/etcdbrctl:v0.41.2"
			}},
		{name: "the flag is switched off by hand", refused: "nothing has set OnDelete and --enable-quorum-aware",
			change: func(set *appsv1.StatefulSet) {
				sidecar := &set.Spec.Template.Spec.Containers[1]
				sidecar.Args = append(sidecar.Args, "--enable-quorum-aware-pod-updates=false")
			}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			want := rendered(t, "policy-cases")
			if tc.change != nil {
				tc.change(want)
			}
			set, err := druid.Create(ctx, want, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
			if tc.refused != "" {
				require.True(t, apierrors.IsInvalid(err), "%v", err)
				require.ErrorContains(t, err, tc.refused)
				return
			}
			require.NoError(t, err)
			require.Equal(t, tc.strategy, set.Spec.UpdateStrategy.Type)
			if tc.strategy == "OnDelete" {
				require.Nil(t, set.Spec.UpdateStrategy.RollingUpdate)
			}
			for i, c := range want.Spec.Template.Spec.Containers {
				args := c.Args
				if c.Name == "backup-restore" {
					args = slices.Concat(args, tc.added)
				}
				require.Equal(t, args, set.Spec.Template.Spec.Containers[i].Args, c.Name)
			}
		})
	}
}

// Druid writes what it wants again and again, and finds it as it was.
func TestThePolicyAndDruidNeverFight(t *testing.T) {
	t.Parallel()
	ctx, druid := withPolicy(t)
	const name = "policy-life"
	want := rendered(t, name)
	optOut(want)
	first, err := druid.Create(ctx, want, metav1.CreateOptions{})
	require.NoError(t, err)
	t.Cleanup(func() {
		require.NoError(t, druid.Delete(context.WithoutCancel(ctx), name, metav1.DeleteOptions{}))
	})
	require.EqualValues(t, "RollingUpdate", first.Spec.UpdateStrategy.Type)

	optIn := reconcile(ctx, t, druid, rendered(t, name))
	require.EqualValues(t, "OnDelete", optIn.Spec.UpdateStrategy.Type)
	require.Greater(t, optIn.Generation, first.Generation)
	for range 3 {
		again := reconcile(ctx, t, druid, rendered(t, name))
		require.Equal(t, optIn.Generation, again.Generation, "a reconciliation that changes nothing")
		require.Equal(t, optIn.Spec, again.Spec)
	}
	// The StatefulSet controller may write its status in between, but not for ever.
	for written := true; written; {
		before, err := druid.Get(ctx, name, metav1.GetOptions{})
		require.NoError(t, err, "before a reconciliation that writes nothing")
		written = reconcile(ctx, t, druid, rendered(t, name)).ResourceVersion != before.ResourceVersion
	}

	// Others write too: the controller and our sidecars the status, an autoscaler the replicas, and people
	// the strategy.
	scaled, err := druid.UpdateScale(ctx, name, &autoscalingv1.Scale{
		ObjectMeta: metav1.ObjectMeta{Name: name, Namespace: harness.Namespace},
		Spec:       autoscalingv1.ScaleSpec{Replicas: 0},
	}, metav1.UpdateOptions{})
	require.NoError(t, err)
	require.Zero(t, scaled.Spec.Replicas)
	_, err = druid.Patch(ctx, name, types.MergePatchType, []byte(`{"status":{"currentRevision":"promoted"}}`),
		metav1.PatchOptions{}, "status")
	require.NoError(t, err)
	byHand, err := druid.Patch(ctx, name, types.MergePatchType,
		[]byte(`{"spec":{"updateStrategy":{"type":"RollingUpdate"}}}`), metav1.PatchOptions{})
	require.NoError(t, err)
	require.Equal(t, optIn.Spec, byHand.Spec, "as long as the Etcd opts in, it stays so")
	require.Equal(t, optIn.Generation, byHand.Generation)

	// A change of the Etcd comes through, and nothing else with it.
	want = rendered(t, name)
	want.Spec.Template.Spec.Containers[0].Image = "etcd-wrapper:v0.7.0"
	changed := reconcile(ctx, t, druid, want)
	require.Equal(t, "etcd-wrapper:v0.7.0", changed.Spec.Template.Spec.Containers[0].Image)
	require.Equal(t, optIn.Spec.Template.Spec.Containers[1], changed.Spec.Template.Spec.Containers[1])
	require.Equal(t, optIn.Generation+1, changed.Generation)

	// The image goes and the annotation stays: druid's write is refused, and what runs stays as it is.
	want.Spec.Template.Spec.Containers[1].Image = "etcdbrctl:v0.41.2"
	_, err = tryReconcile(ctx, t, druid, want)
	require.True(t, apierrors.IsInvalid(err), "%v", err)
	stayed, err := druid.Get(ctx, name, metav1.GetOptions{})
	require.NoError(t, err)
	require.Equal(t, changed.Generation, stayed.Generation)

	// The way back: the StatefulSet is druid's again, with the image that it likes.
	optOut(want)
	back := reconcile(ctx, t, druid, want)
	require.EqualValues(t, "RollingUpdate", back.Spec.UpdateStrategy.Type)
	require.Equal(t, want.Spec.Template.Spec.Containers[1].Args, back.Spec.Template.Spec.Containers[1].Args)
	require.Equal(t, back.Generation, reconcile(ctx, t, druid, want).Generation)
}

// Whatever a StatefulSet opts in to, it can always be deleted, and so can its Etcd.
func TestThePolicyLeavesAStatefulSetAloneThatIsBeingDeleted(t *testing.T) {
	t.Parallel()
	ctx, druid := withPolicy(t)
	const name = "policy-deleted"
	old := rendered(t, name)
	// So it was before there was a policy. Without druid's label the policy does not look.
	old.Labels, old.Finalizers = nil, []string{"example.com/kept"}
	old.Spec.Template.Spec.Containers[1].Image = "etcdbrctl:v0.41.2"
	_, err := druid.Create(ctx, old, metav1.CreateOptions{})
	require.NoError(t, err)
	const label = `{"metadata":{"labels":{"app.kubernetes.io/managed-by":"etcd-druid"}}}`
	_, err = druid.Patch(ctx, name, types.MergePatchType, []byte(label), metav1.PatchOptions{})
	require.True(t, apierrors.IsInvalid(err), "%v", err)
	require.NoError(t, druid.Delete(ctx, name, metav1.DeleteOptions{}))
	_, err = druid.Patch(ctx, name, types.MergePatchType, []byte(label), metav1.PatchOptions{})
	require.NoError(t, err)
	_, err = druid.Patch(ctx, name, types.MergePatchType, []byte(`{"metadata":{"finalizers":null}}`),
		metav1.PatchOptions{})
	require.NoError(t, err)
	_, err = druid.Get(ctx, name, metav1.GetOptions{})
	require.True(t, apierrors.IsNotFound(err), "%v", err)
}

// withPolicy returns the StatefulSets of a cluster in which deploy/druid is installed.
func withPolicy(t *testing.T) (context.Context, appsclient.StatefulSetInterface) {
	t.Helper()
	env := environment(t, harness.Loopback)
	ctx, cancel := context.WithTimeout(t.Context(), scenarioTimeout)
	t.Cleanup(cancel)
	require.NoError(t, env.InstallPolicy(ctx))
	// Druid's containers have two ports of one name, and the API server warns of that with every write.
	config := rest.CopyConfig(env.Plane.AdminConfig())
	config.WarningHandler = rest.NoWarnings{}
	client, err := kubernetes.NewForConfig(config)
	require.NoError(t, err)
	return ctx, client.AppsV1().StatefulSets(harness.Namespace)
}

// rendered is what druid wants.
func rendered(t *testing.T, name string) *appsv1.StatefulSet {
	t.Helper()
	data, err := os.ReadFile("testdata/druid-statefulset.yaml")
	require.NoError(t, err)
	var set appsv1.StatefulSet
	require.NoError(t, yaml.UnmarshalStrict(data, &set))
	set.Name = name
	return &set
}

func optOut(set *appsv1.StatefulSet) { delete(set.Spec.Template.Annotations, harness.OptInAnnotation) }

func annotated(value string) func(*appsv1.StatefulSet) {
	return func(set *appsv1.StatefulSet) { set.Spec.Template.Annotations[harness.OptInAnnotation] = value }
}

// reconcile writes as druid does: a merge patch from what it finds to what it wants, metadata and all.
func reconcile(ctx context.Context, t *testing.T, sets appsclient.StatefulSetInterface,
	want *appsv1.StatefulSet) *appsv1.StatefulSet {
	t.Helper()
	set, err := tryReconcile(ctx, t, sets, want)
	require.NoError(t, err)
	return set
}

func tryReconcile(ctx context.Context, t *testing.T, sets appsclient.StatefulSetInterface,
	want *appsv1.StatefulSet) (*appsv1.StatefulSet, error) {
	t.Helper()
	found, err := sets.Get(ctx, want.Name, metav1.GetOptions{})
	require.NoError(t, err)
	after := want.DeepCopy()
	after.Namespace, after.Status = found.Namespace, found.Status
	before, err := json.Marshal(found)
	require.NoError(t, err)
	wanted, err := json.Marshal(after)
	require.NoError(t, err)
	patch, err := jsonmergepatch.CreateThreeWayJSONMergePatch(before, wanted, before)
	require.NoError(t, err)
	return sets.Patch(ctx, want.Name, types.MergePatchType, patch, metav1.PatchOptions{FieldManager: "etcd-druid"})
}
