package coordinator

import (
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/quorate/quorate/internal/etcdtest"
)

// While the first pod of a new revision comes up, and never does, the node of another member
// reboots. That member comes back by itself, on the revision that it had. It is left alone
// through every state that a kubelet reports during a reboot.
func TestAMemberThatMerelyRestartsDoesNotGetTheUntestedRevision(t *testing.T) {
	waiting := func(reason string) corev1.ContainerState {
		return corev1.ContainerState{Waiting: &corev1.ContainerStateWaiting{Reason: reason}}
	}
	ended := corev1.ContainerState{Terminated: &corev1.ContainerStateTerminated{Reason: "Unknown", ExitCode: 255}}
	for _, tc := range []struct {
		name   string
		states []corev1.ContainerState
	}{
		{"its container is set up anew",
			[]corev1.ContainerState{waiting("PodInitializing"), waiting("ContainerCreating")}},
		{"its container has ended, for longer than a member takes to count as dead", []corev1.ContainerState{ended}},
		{"it runs, and is not ready", []corev1.ContainerState{{Running: &corev1.ContainerStateRunning{}}}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				k := newKube(t, 3, etcdtest.StartInMemory(t, 3))
				k.stuck = true
				defer run(t, config(k))()
				<-time.After(time.Minute)
				k.update("rev-broken")
				within(t, time.Minute, "the first removal", func() bool { return k.story() != "" })
				k.etcd.LoseQuorum() // One of three is left.
				for _, state := range tc.states {
					k.change(func() {
						k.setReady(k.pods[1], false)
						k.pods[1].Status.ContainerStatuses[0].State = state
					})
					<-time.After(40 * time.Second)
				}
				k.etcd.RegainQuorum()
				k.change(func() { k.setReady(k.pods[1], true) })
				<-time.After(10 * time.Minute)
				k.expect(t, "deleted etcd-2")
			})
		})
	}
}
