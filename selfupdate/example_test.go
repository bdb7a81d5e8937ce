package selfupdate_test

import (
	"fmt"
	"time"

	"github.com/quorate/quorate/pkg/rollout"
	"github.com/quorate/quorate/selfupdate"
)

// The coordinator runs the old code. The pod of etcd-main-2 has been updated, and its sidecar waits for the lock.
func Example() {
	pod := func(name, revision string) *rollout.Pod {
		return &rollout.Pod{Name: name, UID: "uid-" + name, Revision: revision}
	}
	old := pod("etcd-main-0", "old")
	replicas := []rollout.Replica{
		{Name: "etcd-main-0", Pod: old, Evidence: rollout.Serving, Outdated: true, Self: true},
		{Name: "etcd-main-2", Pod: pod("etcd-main-2", "new"), Evidence: rollout.Serving, Settled: true},
	}
	decision := rollout.Decision{Action: rollout.Remove{}, Assessment: &rollout.Assessment{Replicas: replicas}}
	peers := []selfupdate.Peer{{
		Presence: selfupdate.Presence{Pod: "etcd-main-2", UID: "uid-etcd-main-2", Revision: "new"},
		Waiting:  true, Queued: 17,
	}}
	choice := selfupdate.Choose(decision, peers, true, time.Duration(0))
	fmt.Println(choice.Reason)
	// Output:
	// etcd-main-2 runs the updated code, has settled and waits for the lock
}
