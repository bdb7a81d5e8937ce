package bench

import (
	"context"
	"fmt"
	"slices"
	"syscall"
	"time"

	"github.com/quorate/quorate/test/harness"
)

// cureSeen is how long after the first removal the node of a lost holder is back: long enough for quorum to
// return without it.
const cureSeen = 15 * time.Second

// lostMembers are the fewest without which there is no quorum. They have the lowest ordinals.
func (s *stage) lostMembers() []int {
	members := len(s.cluster.Pods())
	lost := make([]int, members-members/2)
	for ordinal := range lost {
		lost[ordinal] = ordinal
	}
	return lost
}

// breakQuorum takes quorum away: just as many members as that needs crash at every start.
func breakQuorum(ctx context.Context, s *stage) error {
	for _, ordinal := range s.lostMembers() {
		if err := s.breakEtcd(ctx, ordinal); err != nil {
			return err
		}
	}
	return nil
}

// aSecondBefore does the same, and lets a second pass.
func aSecondBefore(ctx context.Context, s *stage) error {
	if err := breakQuorum(ctx, s); err != nil {
		return err
	}
	return harness.Pass(ctx, time.Second)
}

// loseQuorum waits until the kubelet backs off from starting them, and for a time after that.
func loseQuorum(ctx context.Context, s *stage, since time.Duration) error {
	for _, ordinal := range s.lostMembers() {
		if err := s.crashLoop(ctx, ordinal); err != nil {
			return err
		}
	}
	return harness.Pass(ctx, since)
}

// hanging is the member that hangs, which is none of the lost ones.
func (s *stage) hanging() string { return s.pod(len(s.lostMembers())) }

// hang lets one more member hang, and then loses quorum.
func hang(ctx context.Context, s *stage) error {
	if err := s.cluster.Signal(s.hanging(), "etcd", syscall.SIGSTOP); err != nil {
		return err
	}
	return loseQuorum(ctx, s, lost)
}

// letGo lets the member that hangs go on when its pod is replaced, so that this does not take the whole grace period.
func letGo(ctx context.Context, s *stage) error {
	for {
		if slices.ContainsFunc(s.ledger.Removals(), func(r harness.Removal) bool { return r.Pod == s.hanging() }) {
			return s.cluster.Signal(s.hanging(), "etcd", syscall.SIGCONT)
		}
		if err := s.ledger.WaitRemovals(ctx, len(s.ledger.Removals())+1); err != nil {
			return err
		}
	}
}

// stickRollout begins a rollout to an image that cannot be had, and waits until it is stuck.
func stickRollout(ctx context.Context, s *stage) error {
	if err := s.cluster.SetImage(ctx, "etcd", harness.Missing); err != nil {
		return err
	}
	if err := s.ledger.WaitRemovals(ctx, 1); err != nil {
		return err
	}
	stuck := s.ledger.Order()[0]
	return s.until(ctx, stuck+" cannot pull its image", func() bool { return harness.PullFails(s.ledger.Pod(stuck)) })
}

// loseHolder loses the node of the pod whose sidecar holds the record. With the one that is stuck, that is the quorum.
func loseHolder(ctx context.Context, s *stage) error {
	record, err := s.cluster.Record(ctx)
	if err != nil {
		return err
	}
	if !slices.Contains(s.cluster.Pods(), record.Holder) || record.Holder == s.ledger.Order()[0] {
		return fmt.Errorf("the record is not held by a pod that serves: %v", record)
	}
	s.holder = record.Holder
	return s.cluster.LoseNode(ctx, s.holder)
}

// restoreHolder brings the node back when quorum has had the time to return without it.
func restoreHolder(ctx context.Context, s *stage) error {
	if err := s.ledger.WaitRemovals(ctx, 2); err != nil {
		return err
	}
	if err := harness.Pass(ctx, cureSeen); err != nil {
		return err
	}
	return s.cluster.RestoreNode(ctx, s.holder)
}
