package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	"github.com/quorate/quorate/coordinator"
	"github.com/quorate/quorate/internal/record"
	"github.com/quorate/quorate/internal/report"
	"github.com/quorate/quorate/internal/workload"
	"github.com/quorate/quorate/pkg/rollout"
)

// stillEvery is how often the cluster is looked at while a pause is waited for. A pod takes seconds to come
// back.
const stillEvery = time.Second

var errInterrupted = errors.New("interrupted; the rollout stays paused")

// awaitStill waits until nothing of ours is under way in a cluster that is paused, and says what it waits
// for whenever that changes. Then somebody else may begin to remove pods.
//
// A pause alone does not say that: what was under way when it was written goes on. It cannot begin anew
// after that, because whoever records an intent has read the pause.
func awaitStill(ctx context.Context, w io.Writer, cfg coordinator.Config, timeout time.Duration) error {
	var over <-chan time.Time // Never, without a timeout.
	if timeout > 0 {
		over = time.After(timeout)
	}
	ticks := time.NewTicker(stillEvery)
	defer ticks.Stop()
	for said := ""; ; {
		what, err := notStill(ctx, cfg)
		switch {
		case ctx.Err() != nil:
			return errInterrupted
		case err != nil:
			what = err.Error()
		case what == "":
			return nil
		}
		if what = report.Clean(what); what != said {
			said = what
			if _, err := fmt.Fprintln(w, "waiting: "+what); err != nil {
				return err
			}
		}
		select {
		case <-ctx.Done():
			return errInterrupted
		case <-over:
			return fmt.Errorf("--timeout: after %v: the rollout is paused, but %s", timeout, said)
		case <-ticks.C:
		}
	}
}

// notStill looks once.
func notStill(ctx context.Context, cfg coordinator.Config) (what string, err error) {
	ctx, cancel := context.WithTimeout(ctx, cfg.RequestTimeout)
	defer cancel()
	dump := &workload.Dump{}
	if err := readLive(ctx, cfg, dump); err != nil {
		return "", err
	}
	return underWay(dump, cfg.Names), nil
}

// underWay says what of ours may still be going on, or nothing: an operation on record, or a pod that is
// not back.
func underWay(dump *workload.Dump, names workload.Names) string {
	set := &dump.StatefulSets[0]
	if lease := record.Parse(dump.Lease(set.Namespace, record.Name(set.Name))); lease.Intent.Operation != record.None {
		text := "the record has an intent: " + string(lease.Intent.Operation)
		if lease.Intent.Pod != "" {
			text += " " + lease.Intent.Pod
		}
		return text
	}
	facts := dump.Facts(set, names)
	pods := map[int]*rollout.Pod{}
	for i := range facts.Pods {
		if p := &facts.Pods[i]; p.Owned {
			pods[p.Ordinal] = p
		}
	}
	for ordinal := facts.Set.Start; ordinal < facts.Set.Start+facts.Set.Replicas; ordinal++ {
		switch p := pods[ordinal]; {
		case p == nil:
			return fmt.Sprintf("the pod %s-%d is missing", set.Name, ordinal)
		case p.Terminating:
			return "the pod " + p.Name + " is terminating"
		case !p.Ready:
			return "the pod " + p.Name + " is not Ready"
		}
	}
	return ""
}
