package rollout_test

import (
	"fmt"

	"github.com/quorate/quorate/pkg/rollout"
)

// Three members serve, and the template has changed. The decision names the pod that goes first. The leader goes last.
func Example() {
	state := rollout.State{
		Set: rollout.Set{Name: "etcd-main", UID: "7d1c", Replicas: 3, OnDelete: true, UpdateRevision: "new"},
		// Linearizable: a quorum has told who the members are.
		Etcd: rollout.Membership{Known: true, Linearizable: true, ClusterID: 1},
	}
	running := rollout.Container{State: rollout.ContainerRunning, Ready: true}
	for i := range 3 {
		name := fmt.Sprint("etcd-main-", i)
		state.Pods = append(state.Pods, rollout.Pod{
			Name: name, UID: "uid-" + name, Ordinal: i, MemberName: name, Revision: "old", Owned: true,
			Ready: true, ContainersReady: true, Initialized: true, Etcd: running, Sidecar: running,
		})
		state.Etcd.Members = append(state.Etcd.Members, rollout.Member{
			ID: uint64(i + 1), Name: name, PeerURLs: []string{"https://" + name + ":2380"},
			Probe: rollout.Probe{Read: rollout.Answered, Status: &rollout.Status{
				Leader: 3, Term: 2, Index: 100, Applied: 100, Version: "3.5.35",
			}},
		})
	}
	d := rollout.Decide(state, rollout.DefaultPolicy())
	fmt.Printf("%s %s: %s\n", d.Action.Name(), d.Target().Pod, d.Reason())

	// Two members do not answer, and nobody says that their containers are down. They may serve, or not.
	for i := range 2 {
		state.Etcd.Members[i].Probe = rollout.Probe{Read: rollout.Failed}
	}
	d = rollout.Decide(state, rollout.DefaultPolicy())
	fmt.Printf("%s, because of the guard %s\n", d.Action.Name(), d.Guard)
	// Output:
	// Remove etcd-main-1: its member serves; 3 of 3 voters serve, quorum 2, removing this one leaves 2
	// Hold, because of the guard QuorumFloor
}
