package election_test

import (
	"context"
	"fmt"
	"sync"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"

	"github.com/quorate/quorate/coordinator/election"
	"github.com/quorate/quorate/selfupdate"
)

// A sidecar takes part until it is told to stop. This one is alone, so it gets the lock.
func Example() {
	url, stop := serveEtcd()
	defer stop()
	changed := make(chan struct{}, 1)
	candidate := election.New(election.Config{
		Dial: func(endpoints []string) (*clientv3.Client, error) {
			return clientv3.New(clientv3.Config{Endpoints: endpoints, Logger: zap.NewNop()})
		},
		Prefix: "/quorate/default/etcd-main",
		Self:   selfupdate.Presence{Pod: "etcd-main-0", UID: "0c4f"},

		AtHome:  true,
		Where:   func(context.Context) ([]string, error) { return []string{url}, nil },
		Members: func() []string { return []string{url} },

		TTL: 10 * time.Second, KeepAlive: time.Second, Timeout: 2 * time.Second,
		Changed: func() {
			select {
			case changed <- struct{}{}:
			default: // There is news already.
			}
		},
	})

	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() { candidate.Run(ctx) })
	for candidate.Tenure() == nil {
		<-changed
	}
	fmt.Println("the lock is ours:", candidate.Tenure().Owns(ctx) == nil)

	cancel()
	had, err := candidate.Resign(ctx, election.Resignation{Over: true})
	running.Wait()
	fmt.Println("it was given back:", had, err)
	// Output:
	// the lock is ours: true
	// it was given back: true <nil>
}
