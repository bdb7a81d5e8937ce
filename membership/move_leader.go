// Moving leadership. A leader whose pod is to go hands over first: the cluster is then without a leader for some
// milliseconds instead of an election timeout.

package membership

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/quorate/quorate/pkg/rollout"
)

// movePoll is how often the next leader is asked whether it leads. It leads after some milliseconds, and the next
// removal waits for that.
const movePoll = 2 * time.Millisecond

// MoveLeader asks the leader to hand leadership to another voter. It returns once that voter says that
// it leads.
func (o *Observer) MoveLeader(ctx context.Context, m rollout.Membership, from, to uint64) error {
	leader, err := o.clientOf(ctx, m, from)
	if err != nil {
		return fmt.Errorf("move leadership from %x to %x: %w", from, to, err)
	}
	next, err := o.clientOf(ctx, m, to)
	if err != nil {
		return fmt.Errorf("move leadership from %x to %x: %w", from, to, err)
	}
	// The leader answers a tick of etcd's clock (100 ms) after the change, which takes a few
	// milliseconds. The next leader knows at once.
	asking, cancel := context.WithCancel(ctx)
	answer := make(chan error, 1)
	var asked sync.WaitGroup
	defer asked.Wait()
	defer cancel()
	asked.Go(func() {
		_, err := leader.MoveLeader(asking, to)
		answer <- err
	})
	accepted := "requested"
	tick := time.NewTicker(movePoll)
	defer tick.Stop()
	leads := func() bool {
		st, err := o.status(ctx, next)
		return err == nil && st.Leader == to && st.Header.GetClusterId() == m.ClusterID
	}
	for !leads() {
		select {
		case <-ctx.Done():
			return fmt.Errorf("move leadership from %x to %x: %s, but %x does not lead yet: %w", from, to, accepted, to,
				ctx.Err())
		case err := <-answer:
			if err != nil {
				if leads() {
					return nil // The request was superfluous, or its answer was lost. Either way it is done.
				}
				return fmt.Errorf("move leadership from %x to %x: %w", from, to, named(err, moveDenied))
			}
			accepted = "accepted"
		case <-tick.C:
		}
	}
	return nil
}
