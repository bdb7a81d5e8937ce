package membership_test

import (
	"context"
	"fmt"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"

	"github.com/quorate/quorate/membership"
	"github.com/quorate/quorate/pkg/rollout"
)

// An observation asks every member by itself.
func Example() {
	url, stop := serveEtcd()
	defer stop()
	dial := func(endpoints []string) (*clientv3.Client, error) {
		return clientv3.New(clientv3.Config{Endpoints: endpoints, Logger: zap.NewNop()})
	}
	observer := membership.NewObserver(dial, []string{url}, 2*time.Second)
	defer observer.Close()
	etcd, err := observer.Observe(context.Background())
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println("told by a quorum:", etcd.Linearizable)
	for _, m := range etcd.Members {
		fmt.Println(m.Name, "answers:", m.Probe.Read == rollout.Answered)
	}
	// Output:
	// told by a quorum: true
	// etcd-0 answers: true
}
