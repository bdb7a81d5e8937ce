package scenarios

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/quorate/quorate/test/harness"
)

// etcd-druid resets whatever others write to what it owns, and lets no other client write the
// StatefulSet. Quorate is not affected: what it keeps, and what operators tell it, is on the
// Lease.
func TestQuorateLivesWithADruidThatResetsAndAWebhookThatDenies(t *testing.T) {
	t.Parallel()
	ctx, s := newCluster(t, harness.Loopback, harness.Spec{Name: "druided", PlainText: true})
	leader, err := s.Leader(ctx)
	require.NoError(t, err)
	druid, err := s.StartDruid(ctx)
	require.NoError(t, err)
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
		defer cancel()
		require.NoError(t, druid.Stop(ctx))
	})
	sets := druid.Client.AppsV1().StatefulSets(harness.Namespace)
	// meddle changes the StatefulSet with the druid's own rights, which no other client has.
	meddle := func(patch string) {
		t.Helper()
		_, err := sets.Patch(ctx, s.Spec.Name, types.MergePatchType, []byte(patch), metav1.PatchOptions{})
		require.NoError(t, err)
		require.NoError(t, druid.WaitReset(ctx))
	}
	ours, err := s.env.Client.RbacV1().Roles(harness.Namespace).Get(ctx, s.Spec.Name+"-quorate", metav1.GetOptions{})
	require.NoError(t, err)

	o := s.during(ctx, func(l *harness.Ledger) {
		err := s.Update(ctx, "annotate the StatefulSet", func(set *appsv1.StatefulSet) {
			metav1.SetMetaDataAnnotation(&set.ObjectMeta, "who", "an administrator")
		})
		require.True(t, apierrors.IsForbidden(err), "%v", err)

		require.NoError(t, s.Annotate(ctx, harness.PausedAnnotation, "true"))
		require.NoError(t, s.Annotate(ctx, harness.MaxUnavailableAnnotation, "1"))
		s.changed = time.Now()
		druid.Change("bump etcd", func(set *appsv1.StatefulSet) {
			require.Equal(t, "etcd", set.Spec.Template.Spec.Containers[0].Name)
			set.Spec.Template.Spec.Containers[0].Image = harness.Etcd36
		})
		require.NoError(t, druid.WaitReset(ctx))
		s.holds(ctx, "Paused")

		// The pause does not wear off, whatever is reset.
		meddle(`{"metadata":{"annotations":{"who":"somebody"},"labels":{"who":"somebody"}}}`)
		meddle(`{"spec":{"template":{"metadata":{"annotations":{"who":"somebody"}}}}}`)
		roles := s.env.Client.RbacV1().Roles(harness.Namespace)
		_, err = roles.Patch(ctx, druid.RoleName(), types.MergePatchType, []byte(`{"rules":[]}`), metav1.PatchOptions{})
		require.NoError(t, err)
		require.NoError(t, druid.WaitReset(ctx))
		require.Empty(t, l.Order())

		before := druid.Resets()
		undisturbed := s.disturb(ctx, func(n int) error {
			_, err := sets.Patch(ctx, s.Spec.Name, types.MergePatchType,
				fmt.Appendf(nil, `{"metadata":{"annotations":{"disturbed":"%d"}}}`, n), metav1.PatchOptions{})
			return err
		})
		require.NoError(t, s.Annotate(ctx, harness.PausedAnnotation, ""))
		s.complete(ctx)
		undisturbed()
		require.NoError(t, druid.WaitReset(ctx))
		require.Greater(t, druid.Resets(), before+2, "the druid reset the StatefulSet all along")

		// With nothing to roll Kubernetes does nothing with the other strategy either.
		meddle(`{"spec":{"updateStrategy":{"type":"RollingUpdate"}}}`)
	})
	healthyRollout(t, o, s.Pods(), leader)
	s.runs(ctx, "3.6.16")

	require.Equal(t, []string{"admin"}, druid.Denied(), "nobody of ours has tried to write the StatefulSet")
	record, err := s.Record(ctx)
	require.NoError(t, err)
	require.Equal(t, "1", record.Annotations[harness.MaxUnavailableAnnotation], "the operator's word stands")
	var still *rbacv1.Role
	still, err = s.env.Client.RbacV1().Roles(harness.Namespace).Get(ctx, ours.Name, metav1.GetOptions{})
	require.NoError(t, err)
	require.Equal(t, ours, still, "our own Role is none of the druid's")
}

// disturb does something again and again until the function that it returns is called.
func (s *scene) disturb(ctx context.Context, disturb func(n int) error) (stop func()) {
	s.t.Helper()
	ctx, cancel := context.WithCancel(ctx)
	var disturbing sync.WaitGroup
	var failed error
	disturbing.Go(func() {
		ticker := time.NewTicker(250 * time.Millisecond)
		defer ticker.Stop()
		for n := 0; failed == nil; n++ {
			select {
			case <-ctx.Done():
				return
			case <-ticker.C:
			}
			if err := disturb(n); err != nil && ctx.Err() == nil {
				failed = err
			}
		}
	})
	return func() {
		cancel()
		disturbing.Wait()
		require.NoError(s.t, failed)
	}
}
