package coordinator

import (
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/quorate/quorate/internal/etcdtest"
)

// The host adds the member of a replaced pod anew, as a learner, and promotes it later.
func TestALearnerDoesNotLetTheNextPodGoBeforeItIsPromoted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := newKube(t, 5, etcdtest.StartInMemory(t, 5))
		learns := func(is bool) {
			k.etcd.Set(func(_ *etcdtest.Cluster, ms []*etcdtest.Member) { ms[4].Learner = is })
		}
		learns(true)
		k.update("rev-2")
		k.change(func() { k.pods[4].Labels["controller-revision-hash"] = "rev-2" })
		defer run(t, config(k))()
		<-time.After(2 * time.Minute)
		k.expect(t)
		learns(false)
		within(t, time.Minute, "the rollout", func() bool { return k.settled("rev-2") })
		k.expect(t, "deleted etcd-3", "deleted etcd-2", "deleted etcd-1", "deleted etcd-0")
	})
}

// Whoever scales out adds one learner after the other, and promotes each.
func TestAScaleOutGoesOnWhenItsLearnersArePromoted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := newKube(t, 3, etcdtest.StartInMemory(t, 3))
		learn := func(are ...int) {
			k.etcd.Set(func(_ *etcdtest.Cluster, ms []*etcdtest.Member) {
				for i, m := range ms {
					m.Learner = slices.Contains(are, i)
				}
			})
		}
		learn(1, 2)
		k.update("rev-2")
		k.change(func() {
			for _, i := range []int{1, 2} {
				k.pods[i].Labels["controller-revision-hash"] = "rev-2"
			}
		})
		defer run(t, config(k))()
		<-time.After(time.Minute)
		learn(2)
		<-time.After(time.Minute)
		k.expect(t)
		learn()
		within(t, time.Minute, "the rollout", func() bool { return k.settled("rev-2") })
		k.expect(t, "deleted etcd-0")
	})
}
