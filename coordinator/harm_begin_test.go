package coordinator

import (
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/quorate/quorate/internal/etcdtest"
)

// A step of etcd's version is held that would take the others down, and a member restarts. That must not begin the
// step, however often a look finds the member not serving.
func TestAStepThatIsHeldDoesNotBeginWhenAMemberRestarts(t *testing.T) {
	for _, tc := range []struct {
		name, image, want string
	}{
		{"from 3.4 to 3.6 nothing is deleted", "etcd:3.6.16", ""},
		{"from 3.4 to 3.5 the member is replaced at once", "etcd:3.5.35", "deleted etcd-1"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				k := newKube(t, 3, etcdtest.StartInMemory(t, 3))
				k.stuck = true // Then the story ends with the first removal.
				k.etcd.Set(func(_ *etcdtest.Cluster, ms []*etcdtest.Member) {
					for _, m := range ms {
						m.Version = "3.4.34"
					}
				})
				image(k, "etcd:3.4.34")
				for _, p := range k.pods {
					p.Spec.Containers = k.set.Spec.Template.Spec.Containers
				}
				defer run(t, config(k))()
				<-time.After(time.Minute)
				restarts := func(down bool) {
					k.etcd.Set(func(_ *etcdtest.Cluster, ms []*etcdtest.Member) { ms[1].Hung = down })
					k.change(func() {
						k.setReady(k.pods[1], !down)
						k.pods[1].Status.ContainerStatuses[0].RestartCount = 1
					})
				}
				restarts(true)
				k.change(func() {
					image(k, tc.image)
					k.template("rev-2")
				})
				<-time.After(20 * time.Second)
				k.expect(t, tc.want)
				if tc.want != "" {
					return
				}
				if text := k.lease.Annotations; !slices.ContainsFunc(values(text), func(s string) bool {
					return strings.Contains(s, "AT RISK") && strings.Contains(s, "UpgradePath")
				}) {
					t.Errorf("the Lease does not say what is at risk: %v", text)
				}
				for range 3 {
					restarts(false)
					<-time.After(time.Minute)
					restarts(true)
					<-time.After(20 * time.Second)
				}
				restarts(false)
				<-time.After(10 * time.Minute)
				k.expect(t)
			})
		})
	}
}

// image gives the template an image of etcd, and leaves the pods as they are.
func image(k *kube, image string) {
	containers := slices.Clone(k.set.Spec.Template.Spec.Containers)
	containers[0].Image = image
	k.set.Spec.Template.Spec.Containers = containers
}

func values(m map[string]string) (list []string) {
	for _, v := range m {
		list = append(list, v)
	}
	return list
}
