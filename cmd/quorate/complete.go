package main

import (
	"context"
	"errors"
	"time"

	"github.com/quorate/quorate/coordinator"
	"github.com/quorate/quorate/internal/report"
	"github.com/quorate/quorate/pkg/rollout"
)

// completeEvery is how often a sidecar that ends with the rollout looks whether that is complete. Each look is three
// requests to the API server, and a rollout's steps take seconds.
const completeEvery = 2 * time.Second

// untilComplete runs a coordinator until ctx ends or the rollout is complete, as quorate status --watch judges it: so
// it does not matter who has completed it, or whether that was before we began. By then the coordinator has no
// more to do, and ends as on SIGTERM: it gives the record and its lock back, and a sidecar goes on.
//
// Everything else is waited for, as every sidecar does: a Role or a StatefulSet that is not there yet, an update
// strategy that leaves the coordinator nothing to do, a pause. The coordinator logs that. To be told to end before that
// is an error: Kubernetes would take a Job for complete whose pod is drained and ends with exit code 0.
func untilComplete(ctx context.Context, cfg coordinator.Config, run func(context.Context) error) error {
	running, end := context.WithCancel(ctx)
	defer end()
	ended := make(chan error, 1)
	go func() { ended <- run(running) }()
	complete := awaitComplete(running, cfg)
	end()
	if err := <-ended; err != nil || complete {
		return err
	}
	return errors.New("told to end before the rollout was complete")
}

// awaitComplete waits until the rollout is complete, and returns false if ctx ends before that.
func awaitComplete(ctx context.Context, cfg coordinator.Config) bool {
	cfg.Events, cfg.Nodes = nil, nil // What only explains a delay needs rights that a sidecar may not have.
	ticks := time.NewTicker(completeEvery)
	defer ticks.Stop()
	for {
		switch s, err := lookFromHere(ctx, cfg); {
		case ctx.Err() != nil:
			return false
		case err != nil:
			cfg.Log.WithError(err).Debug("nobody knows yet whether the rollout is complete")
		case s.Action == rollout.ActionComplete:
			cfg.Log.Infof("the rollout is complete (%s): this process ends, and the sidecars go on", s.Reason)
			return true
		}
		select {
		case <-ctx.Done():
			return false
		case <-ticks.C:
		}
	}
}

// lookFromHere is the status that Kubernetes and the record show.
func lookFromHere(ctx context.Context, cfg coordinator.Config) (report.Status, error) {
	dump, etcd, _, err := look(ctx, cfg, false)
	if err != nil {
		return report.Status{}, err
	}
	seen, unreadable := outside(dump, &dump.StatefulSets[0], cfg.Names, etcd, time.Now())
	seen.Policy = cfg.Policy
	return report.Look(seen), unreadable
}
