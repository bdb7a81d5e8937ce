package scenarios

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/quorate/quorate/test/harness"
)

// What the policy does to a StatefulSet is shown elsewhere. This is what the real etcd-druid makes of it.
func TestEtcdDruidFindsWhatItWroteUnderThePolicy(t *testing.T) {
	t.Parallel()
	ctx, env, _ := druidEnvironment(t, "opted-in")
	require.NoError(t, env.InstallPolicy(ctx))
	c, err := env.CreateEtcd(ctx, harness.Spec{Name: "etcd-main", Replicas: 1, PlainText: true})
	require.NoError(t, err)
	require.NoError(t, c.WaitReconciled(ctx))
	sets := env.Client.AppsV1().StatefulSets(harness.Namespace)
	read := func() *appsv1.StatefulSet {
		t.Helper()
		set, err := sets.Get(ctx, "etcd-main", metav1.GetOptions{})
		require.NoError(t, err)
		return set
	}
	without := read()
	require.EqualValues(t, "RollingUpdate", without.Spec.UpdateStrategy.Type)

	// The Etcd says why nothing happens, and nothing does.
	impatient, cancel := context.WithCancel(ctx)
	refused := make(chan error, 1)
	go func() {
		refused <- c.ChangeEtcd(impatient, "opt in, with a sidecar that has no Quorate",
			fmt.Sprintf(`{"spec":{"annotations":{%q:"true"}}}`, harness.OptInAnnotation))
	}()
	require.NoError(t, c.WaitEtcdError(ctx, "set spec.backup.image of the Etcd", "etcdbrctl:v0.41.2"))
	cancel()
	require.Error(t, <-refused)
	require.Equal(t, without.Generation, read().Generation)

	require.NoError(t, c.ChangeEtcd(ctx, "take an image with Quorate", fmt.Sprintf(`{"spec":{"backup":{"image":%q}}}`,
		harness.DropIn)))
	with := read()
	require.EqualValues(t, "OnDelete", with.Spec.UpdateStrategy.Type)
	require.Nil(t, with.Spec.UpdateStrategy.RollingUpdate)
	require.Equal(t, without.Generation+1, with.Generation, "it is one change")
	require.Equal(t, append(without.Spec.Template.Spec.Containers[1].Args, flagsOfThePolicy...),
		with.Spec.Template.Spec.Containers[1].Args)
	for n := range 3 {
		require.NoError(t, c.ChangeEtcd(ctx, fmt.Sprintf("reconcile for the %dth time", n+1), `{}`))
		require.Equal(t, with.Generation, read().Generation, "a reconciliation that changes nothing")
		require.Equal(t, with.Spec, read().Spec)
	}

	require.NoError(t, c.ChangeEtcd(ctx, "opt out", fmt.Sprintf(
		`{"spec":{"annotations":{%q:null},"backup":{"image":null}}}`, harness.OptInAnnotation)))
	// Etcd-druid may have reconciled once more what it had seen before.
	require.EventuallyWithT(t, func(t *assert.CollectT) {
		assert.Equal(t, without.Spec, read().Spec, "all is as it was")
	}, time.Minute, time.Second)
}

// The order of the way back: pause, wait until nothing is under way, take the annotation away. In the midst of a
// rollout, the StatefulSet controller then rolls the rest, and no two members are ever away.
func TestTheWayBackFromQuorateToEtcdDruidInTheMidstOfARollout(t *testing.T) {
	leftOut(t)
	t.Parallel()
	ctx, env, _ := druidEnvironment(t, "way-back")
	require.NoError(t, env.InstallPolicy(ctx))
	s := newEtcd(t, ctx, env, harness.Spec{Name: "etcd-main", SidecarImage: harness.DropIn})
	require.NoError(t, s.Grant(ctx))

	o := s.during(ctx, func(l *harness.Ledger) {
		s.changed = time.Now()
		require.NoError(t, s.ChangeEtcd(ctx, "change the resources of etcd",
			`{"spec":{"etcd":{"resources":{"requests":{"cpu":"60m","memory":"128Mi"}}}}}`))
		require.NoError(t, l.WaitRemovals(ctx, 1))
		said, code := s.quorate(ctx, "pause", "etcd-main", "--wait", "--timeout=3m")
		require.Zero(t, code, "%s", said)
		require.Contains(t, said, "etcd-main is still")
		require.Len(t, l.Order(), 1, "the pause came in the midst of the rollout")
		require.Len(t, l.Returns(), 1, "and it waits until the pod is back")

		require.NoError(t, s.ChangeEtcd(ctx, "opt out", fmt.Sprintf(
			`{"spec":{"annotations":{%q:null},"backup":{"image":null}}}`, harness.OptInAnnotation)))
		require.NoError(t, s.WaitUpdated(ctx))
	})
	o.lostNothing(t)
	o.keptQuorum(t)
	o.oneAtATime(t)
	require.Equal(t, 2, o.fewestReady, "fewest Ready pods")
	require.Len(t, o.granted(), 1, "sidecars have removed one, and the StatefulSet controller all")
	require.Equal(t, s.others(), o.order[1:])
}
