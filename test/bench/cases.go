package bench

import (
	"context"
	"fmt"
	"time"

	"github.com/quorate/quorate/test/bench/result"
	"github.com/quorate/quorate/test/harness"
)

// setting is what a case is.
type setting struct {
	members int
	// arms are compared in it.
	arms []string
	// rounds is in how many rounds it takes part, 0 for all: large clusters take long.
	rounds int
	// everyLeader lets every ordinal lead once in a round; else leader leads.
	everyLeader bool
	leader      int
	// spec changes the cluster.
	spec func(*harness.Spec)
	// image is etcd's on the new revision, Etcd36 if empty.
	image string
	// sidecar is the sidecar's, if that changes instead.
	sidecar string
	// prepare does to the cluster what is done before the change, and waits until it shows.
	prepare func(context.Context, *stage) error
	// idles is for how long the cluster then idles before the change.
	idles time.Duration
	// atOnce is what happens immediately before the change.
	atOnce func(context.Context, *stage) error
	// meanwhile does what is done after the change; it ends with the context.
	meanwhile func(context.Context, *stage) error
	// quiet leaves clients and observers out, to count what the members are asked otherwise.
	quiet bool
	// watched lets the clients watch as well.
	watched bool
	// preparing is about how long prepare takes, to estimate how long a run does.
	preparing time.Duration
	// alone is true if no other trial may run beside it, because milliseconds count.
	alone bool
	// limit is how long a trial is watched.
	limit time.Duration
}

var (
	// rolling are the arms without Quorate.
	rolling = []string{result.OrderedReady, result.Parallel, result.MaxUnavailable}
	faulty  = append(append([]string{}, rolling...), result.Quorate)
)

const (
	// lost is longer than the lock's time to live.
	lost = 15 * time.Second
	// justLost is shorter, so that the lock's owner still has its session.
	justLost = 2 * time.Second
	// longLost is as good as an hour. A sidecar that idles without quorum counts time for two minutes at most, in
	// which an earlier claim may still be written. After that it does the same over and over again, once in two
	// seconds and once in a minute. What it counts for longer begins with the rollout. The lost members start again
	// after about 10, 30, 70, 150 and 310 seconds, and this is long after one start and long before the next.
	longLost = 165 * time.Second

	// longIdle is longer than the looks of a coordinator go by its watches before it reads everything live again. Real
	// clusters idle for longer before a rollout, so it must not cost more after that.
	longIdle = 5*time.Minute + 15*time.Second

	// The moments of what an operator does, after the change: long enough for every arm to have
	// done all that it does by itself.
	nodeBack   = 20 * time.Second
	ghostsGone = 15 * time.Second
	corrected  = 15 * time.Second

	// slowStart is how long a pod takes before its containers start, in that case.
	slowStart = 8 * time.Second

	// besideDelay is for how long a pod is down beside its StartDelay.
	besideDelay = 2 * time.Second

	// Limits of a trial.
	healthyLimit = 3 * time.Minute
	faultyLimit  = 35 * time.Second
	needLimit    = time.Minute
	// holderLimit also has the time for which the record stands.
	holderLimit = 2 * time.Minute
)

// Core are the cases that real nodes are asked for too: whole rollouts, and what a sick cluster comes to.
var Core = []string{result.Healthy3, result.Healthy5, result.OneDown, result.QuorumLoss}

// Paired are the arms that the report compares pair by pair for what decides.
var Paired = []string{result.Parallel, result.Quorate}

// Gated reports whether an arm has a control plane of its own, because it needs a feature gate.
func Gated(name string) bool { return len(arms[name].gates) > 0 }

// needed is the only arm where quorum is lost in still another way. What the other arms come to without
// quorum is always the same.
var needed = []string{result.Quorate}

var settings = map[string]setting{
	// With three members RollingUpdate's maxUnavailable could only be one, which it is anyway.
	result.Healthy3: {members: 3, everyLeader: true, alone: true,
		arms:  []string{result.OrderedReady, result.Parallel, result.Quorate, result.QuorateDelete},
		limit: healthyLimit},
	result.Healthy5: {
		members: 5, everyLeader: true, rounds: 1, alone: true, limit: healthyLimit,
		arms: []string{result.Parallel, result.MaxUnavailable, result.Quorate, result.QuorateMax},
	},
	result.Healthy7: {
		members: 7, everyLeader: true, rounds: 1, alone: true, limit: healthyLimit,
		arms: []string{result.Parallel, result.MaxUnavailable, result.Quorate, result.QuorateTwo, result.QuorateMax},
	},
	result.OneDown: {
		members: 3, leader: 1, limit: faultyLimit, arms: append(append([]string{}, faulty...), result.QuorateDelete),
		prepare: func(ctx context.Context, s *stage) error { return s.crashLoop(ctx, 0) },
	},
	result.SecondFails: {
		members: 3, leader: 2, arms: faulty, limit: faultyLimit,
		prepare: func(ctx context.Context, s *stage) error { return s.crashLoop(ctx, 0) },
		meanwhile: func(ctx context.Context, s *stage) error {
			if err := s.ledger.WaitRemovals(ctx, 1); err != nil {
				return err
			}
			return s.breakEtcd(ctx, 1)
		},
	},
	result.QuorumLoss: {
		members: 3, leader: 2, arms: faulty, limit: faultyLimit, preparing: 31 * time.Second,
		prepare: func(ctx context.Context, s *stage) error { return loseQuorum(ctx, s, lost) },
	},
	result.QuorumJustLost: {
		members: 3, leader: 2, arms: faulty, limit: faultyLimit, preparing: 19 * time.Second,
		prepare: func(ctx context.Context, s *stage) error { return loseQuorum(ctx, s, justLost) },
	},
	result.LongLost3: {
		members: 3, leader: 2, arms: needed, limit: needLimit, alone: true, preparing: longLost,
		prepare: func(ctx context.Context, s *stage) error { return loseQuorum(ctx, s, longLost) },
	},
	result.LongLost5: {
		members: 5, leader: 4, arms: needed, limit: needLimit, alone: true, preparing: longLost,
		prepare: func(ctx context.Context, s *stage) error { return loseQuorum(ctx, s, longLost) },
	},
	result.SecondBefore3: {
		members: 3, everyLeader: true, arms: needed, limit: needLimit, alone: true, atOnce: aSecondBefore,
	},
	result.SecondBefore5: {
		members: 5, everyLeader: true, rounds: 1, arms: needed, limit: needLimit, alone: true, atOnce: aSecondBefore,
	},
	result.SameMoment3: {
		members: 3, everyLeader: true, arms: needed, limit: needLimit, alone: true, atOnce: breakQuorum,
	},
	result.SameMoment5: {
		members: 5, everyLeader: true, rounds: 1, arms: needed, limit: needLimit, alone: true,
		atOnce: breakQuorum,
	},
	result.Hanging3: {
		members: 3, leader: 2, arms: needed, limit: needLimit, alone: true, prepare: hang, meanwhile: letGo,
		preparing: 19 * time.Second,
	},
	result.Hanging5: {
		members: 5, leader: 4, arms: needed, limit: needLimit, alone: true, prepare: hang, meanwhile: letGo,
		preparing: 19 * time.Second,
	},
	result.HolderDied: {
		members: 3, leader: 0, arms: needed, limit: holderLimit, alone: true,
		spec:    func(s *harness.Spec) { s.OwnNodes = true },
		prepare: stickRollout, atOnce: loseHolder, meanwhile: restoreHolder,
	},
	result.NodeLost: {
		members: 3, leader: 1, arms: faulty, limit: nodeBack + faultyLimit,
		spec: func(s *harness.Spec) { s.OwnNodes = true },
		prepare: func(ctx context.Context, s *stage) error {
			return s.cluster.LoseNode(ctx, s.pod(0))
		},
		meanwhile: func(ctx context.Context, s *stage) error {
			if err := harness.Pass(ctx, nodeBack); err != nil {
				return err
			}
			return s.cluster.RestoreNode(ctx, s.pod(0))
		},
	},
	result.GhostVoters: {
		members: 3, leader: 1, arms: faulty, limit: ghostsGone + faultyLimit,
		spec:    func(s *harness.Spec) { s.EtcdArgs = []string{"--strict-reconfig-check=false"} },
		prepare: func(ctx context.Context, s *stage) error { return s.cluster.AddGhosts(ctx, 2) },
		meanwhile: func(ctx context.Context, s *stage) error {
			if err := harness.Pass(ctx, ghostsGone); err != nil {
				return err
			}
			return s.retry(ctx, s.cluster.RemoveGhosts)
		},
	},
	result.BrokenRevision: {
		members: 3, leader: 1, arms: faulty, limit: corrected + faultyLimit, image: harness.Missing,
		meanwhile: func(ctx context.Context, s *stage) error {
			if err := harness.Pass(ctx, corrected); err != nil {
				return err
			}
			return s.cluster.SetImage(ctx, "etcd", harness.Etcd36)
		},
	},
	result.BrokenSidecar: {
		members: 3, leader: 1, arms: faulty, limit: corrected + faultyLimit, sidecar: harness.Missing,
		meanwhile: func(ctx context.Context, s *stage) error {
			if err := harness.Pass(ctx, corrected); err != nil {
				return err
			}
			return s.cluster.SetImage(ctx, "backup-restore", harness.SidecarNext)
		},
	},
	result.SlowStart: {
		members: 3, leader: 1, arms: []string{result.Parallel, result.Quorate}, limit: healthyLimit,
		spec: func(s *harness.Spec) { s.StartDelay = slowStart },
	},
	result.Watched: {members: 3, alone: true, leader: 1, arms: []string{result.Parallel, result.Quorate},
		limit: healthyLimit, watched: true},
	result.Quiet: {members: 3, alone: true, leader: 1, arms: []string{result.Quorate},
		limit: healthyLimit, quiet: true},
	result.Quiet30: {members: 3, leader: 1, arms: []string{result.Quorate}, rounds: 1, limit: healthyLimit,
		quiet: true, idles: longIdle,
		spec: func(s *harness.Spec) { s.StartDelay = 30*time.Second - besideDelay }},
	result.Quiet120: {members: 3, leader: 1, arms: []string{result.Quorate}, rounds: 1, limit: 8 * time.Minute,
		quiet: true, idles: longIdle,
		spec: func(s *harness.Spec) { s.StartDelay = 2*time.Minute - besideDelay }},
}

// note says what the case does beside the change, with its moments.
func (s setting) note(name string) string {
	switch name {
	case result.NodeLost:
		return fmt.Sprintf("the node is back %v after the change", nodeBack)
	case result.GhostVoters:
		return fmt.Sprintf("the ghosts are removed %v after the change, or as soon as etcd can", ghostsGone)
	case result.BrokenRevision, result.BrokenSidecar:
		return fmt.Sprintf("the revision is corrected %v after the change", corrected)
	case result.SlowStart:
		return fmt.Sprintf("a pod takes %v before its containers start", slowStart)
	}
	return ""
}
