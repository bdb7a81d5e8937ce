package coordinator_test

import (
	"context"
	"fmt"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
	"k8s.io/client-go/kubernetes/fake"

	"github.com/quorate/quorate/coordinator"
)

// dial is the host's own factory of etcd clients: TLS, its rotation and authentication are
// its business. It is called anew for every member and after every failure.
func dial(endpoints []string) (*clientv3.Client, error) {
	return clientv3.New(clientv3.Config{Endpoints: endpoints, DialTimeout: 2 * time.Second, Logger: zap.NewNop()})
}

// A host embeds Quorate. Neither etcd nor the StatefulSet exists here, so it keeps trying until
// the host shuts down.
func Example() {
	clientset := fake.NewClientset() // The host's own.
	ctx, shutdown := context.WithTimeout(context.Background(), 100*time.Millisecond)
	defer shutdown()

	c, err := coordinator.New(coordinator.Config{
		Namespace: "garden", StatefulSet: "etcd-main", PodName: "etcd-main-0",
		Dial: dial, Endpoints: []string{"http://127.0.0.1:2379"},
		StatefulSets: clientset.AppsV1().StatefulSets("garden"), Pods: clientset.CoreV1().Pods("garden"),
		Leases: clientset.CoordinationV1().Leases("garden"), Events: clientset.CoreV1().Events("garden"),
		Gates: []coordinator.Gate{{Name: "BackupReady", Ask: func(context.Context) (bool, string) {
			return true, "the last upload succeeded"
		}}},
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println("ended:", c.Run(ctx))
	// Output: ended: <nil>
}

// New names everything that is missing or wrong at once.
func ExampleNew() {
	_, err := coordinator.New(coordinator.Config{Namespace: "garden", StatefulSet: "etcd-main",
		LockTTL: 500 * time.Millisecond})
	fmt.Println(err)
	// Output:
	// coordinator: Dial is required
	// Endpoints needs at least one URL of an etcd member
	// StatefulSets is required
	// Pods is required
	// Leases is required
	// LockTTL: 500ms: must be whole seconds, at least 2s: etcd counts leases in seconds and grants none below
}
