package election

import (
	"context"
	"slices"
	"sync"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
)

// ReleaseTimeout bounds the release of the lock: a host that shuts down gives its parts little time, and whoever waits
// removes a key that was not kept alive.
const ReleaseTimeout = time.Second

const (
	// releaseRetry is the pause between two attempts to release the lock.
	releaseRetry = ReleaseTimeout / 10
	// headStart is how long only the session's own connection is tried. It answers at once unless its member goes at
	// the same moment. New connections to all members would cost them, and the sidecar that waits for the lock, more
	// than this time.
	headStart = ReleaseTimeout / 20
)

// insist sends a request over the session's own connection until it is answered. If that takes longer than headStart,
// it also sends it to every member at once, each over a connection of its own. On SIGTERM the local etcd goes at the
// same moment, and a client that has seen members come and go may be waiting to connect again. The request must have
// the same effect whether it is carried out once or several times.
func (s *session) insist(ctx context.Context, limit time.Duration,
	over func(context.Context, *clientv3.Client) error) error {
	trying, cancel := context.WithTimeout(context.WithoutCancel(ctx), limit)
	defer cancel()
	insist := func(client *clientv3.Client) error {
		for {
			attempt, stop := context.WithTimeout(trying, ReleaseTimeout/4)
			err := over(attempt, client)
			stop()
			if err == nil || trying.Err() != nil {
				return err
			}
			pause(trying, releaseRetry, nil) // A member that is going refuses at once.
		}
	}
	answers := make(chan error)
	var asked sync.WaitGroup
	asked.Go(func() { answers <- insist(s.client) })
	asked.Go(func() {
		pause(trying, headStart, nil)
		if trying.Err() != nil {
			return
		}
		for _, endpoint := range slices.Compact(slices.Sorted(slices.Values(s.cfg.Members()))) {
			asked.Go(func() {
				client, err := connect(trying, s.cfg.Dial, []string{endpoint})
				if err == nil {
					err = insist(client)
					_ = client.Close() // Only our own end.
				}
				answers <- err
			})
		}
	})
	go func() { asked.Wait(); close(answers) }()
	var failed error
	done := false
	for err := range answers {
		if err == nil {
			done = true
			cancel() // The others would add nothing.
		} else {
			failed = err
		}
	}
	if done {
		return nil
	}
	return failed
}
