package cost

import (
	"context"
	"errors"
	"fmt"
	"syscall"
	"time"

	appsv1 "k8s.io/api/apps/v1"

	"github.com/quorate/quorate/test/bench/result"
	"github.com/quorate/quorate/test/harness"
)

const (
	// lockTTL is --lock-ttl's default.
	lockTTL = 10 * time.Second
	// failoverLimit bounds one change of coordinator and the wait for the next: the container
	// that was killed often comes back after a growing back-off.
	failoverLimit = time.Minute
	// standstill is minReadySeconds of the StatefulSet, longer than all that is measured.
	standstill = 24 * time.Hour
)

// kind is a way to end a coordinator.
type kind struct {
	how    string
	signal syscall.Signal
}

var kinds = []kind{{"graceful", syscall.SIGTERM}, {"SIGKILL", syscall.SIGKILL}}

// Failover ends the coordinator's sidecar in the middle of a rollout, by turns with SIGTERM and
// SIGKILL, and measures the time until another sidecar has claimed the record and made its
// first decision.
//
// The rollout stands still meanwhile, so that nothing but the change of coordinator takes time:
// one pod is updated and Ready, but not for the StatefulSet's minReadySeconds, which are a day.
// All members serve, all sidecars stand in the queue, and every cycle reads and probes as any
// other cycle of a rollout does. The updated pod's sidecar is handed nothing, since its pod has
// not settled.
//
// The claim is seen by a watch on the record, and the decision has the time of the sidecar's
// own log; all clocks are the machine's.
func Failover(ctx context.Context, o Options) (failovers []result.Failover, err error) {
	rounds := either(o, 1, 6)
	err = o.with(ctx, harness.Spec{Name: "failover"}, func(ctx context.Context, cluster *harness.Cluster) error {
		journal := cluster.ReadLogs()
		defer journal.Stop()
		record, err := cluster.WatchRecord(ctx)
		if err != nil {
			return err
		}
		defer record.Stop()
		if err := beginAndStandStill(ctx, cluster, journal); err != nil {
			return err
		}
		for round := range rounds {
			for _, k := range kinds {
				f := result.Failover{How: k.how, Round: round + 1, LockTTL: lockTTL.Seconds(), Seconds: -1}
				took, err := failover(ctx, cluster, journal, record, k.signal)
				if err != nil {
					// What did not happen counts too, if the coordinator was ended at all.
					if !errors.Is(err, errNotEnded) {
						failovers = append(failovers, f)
					}
					return fmt.Errorf("failover %s, round %d: %w", k.how, round+1, err)
				}
				o.say("failover: %s, round %d of %d: %.0f ms", k.how, round+1, rounds, 1000*took.Seconds())
				f.Seconds = took.Seconds()
				failovers = append(failovers, f)
			}
		}
		return nil
	})
	return failovers, err
}

// beginAndStandStill begins a rollout, and returns when it waits for its first pod to settle.
func beginAndStandStill(ctx context.Context, cluster *harness.Cluster, journal *harness.Journal) error {
	ctx, cancel := context.WithTimeout(ctx, readyLimit)
	defer cancel()
	if _, err := cluster.LockOwner(ctx); err != nil {
		return err
	}
	began := time.Now()
	err := cluster.Update(ctx, "begin a rollout that stands still after its first pod", func(set *appsv1.StatefulSet) {
		set.Spec.MinReadySeconds = int32(standstill / time.Second)
		set.Spec.Template.Annotations = map[string]string{"changed": "failover"}
	})
	if err != nil {
		return err
	}
	removed := ""
	_, err = journal.Await(ctx, "that a pod was replaced and is awaited", func(e harness.LogEntry) bool {
		switch {
		case e.At.Before(began):
		case e.Action == "Remove":
			removed = e.Target
		case e.Action == "Wait" && removed != "":
			return true
		}
		return false
	})
	return err
}

// errNotEnded is what failed before a coordinator was ended.
var errNotEnded = errors.New("no coordinator was ended")

// failover ends the coordinator and returns how long it took until another one was there.
func failover(ctx context.Context, cluster *harness.Cluster, journal *harness.Journal, record *harness.RecordHistory,
	signal syscall.Signal) (time.Duration, error) {
	ctx, cancel := context.WithTimeout(ctx, failoverLimit)
	defer cancel()
	if err := cluster.WaitReady(ctx); err != nil {
		return 0, errors.Join(errNotEnded, err)
	}
	owner, err := cluster.LockOwner(ctx)
	if err != nil {
		return 0, errors.Join(errNotEnded, err)
	}
	holds := func(s harness.RecordState) bool { return s.Holder == owner }
	if _, err := record.Await(ctx, "that "+owner+" holds it", time.Time{}, holds); err != nil {
		return 0, errors.Join(errNotEnded, err)
	}
	ended := time.Now()
	if err := cluster.Signal(owner, sidecar, signal); err != nil {
		return 0, errors.Join(errNotEnded, err)
	}
	claimed, err := record.Await(ctx, "that another than "+owner+" holds it", ended, func(s harness.RecordState) bool {
		return s.Holder != "" && s.Holder != owner
	})
	if err != nil {
		return 0, err
	}
	decided, err := journal.Await(ctx, "the decision of "+claimed.Holder, func(e harness.LogEntry) bool {
		return e.Pod == claimed.Holder && e.At.After(ended) && e.IsDecision()
	})
	if err != nil {
		return 0, err
	}
	there := claimed.At
	if decided.At.After(there) {
		there = decided.At
	}
	return there.Sub(ended), nil
}
