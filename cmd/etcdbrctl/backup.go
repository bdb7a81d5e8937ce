package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/gardener/etcd-backup-restore/pkg/server"
	brtypes "github.com/gardener/etcd-backup-restore/pkg/types"
	"github.com/robfig/cron/v3"
	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/quorate/quorate/coordinator"
)

// The reasons of the condition BackupReady in etcd-druid's proposal DEP-01, and the one that etcd-druid has for
// what it cannot tell.
const (
	fullBackupSucceeded        = "FullBackupSucceeded"
	incrementalBackupSucceeded = "IncrementalBackupSucceeded"
	fullBackupFailed           = "FullBackupFailed"
	incrementalBackupFailed    = "IncrementalBackupFailed"
	unknown                    = "Unknown"
)

const (
	// missedPeriods is how many periods a delta snapshot may be late. It is etcd-druid's number.
	missedPeriods = 2
	// clockSkew is how far a Lease may be renewed in the future, by another pod's clock.
	clockSkew = time.Minute
)

// backups says whether snapshots succeed, from the Leases on which the host's leading sidecar notes when it took
// the last ones. What this process knows itself does not matter, because it may be another sidecar.
type backups struct {
	leases coordinator.Leases
	// full and delta are the Leases' names. They are empty if the sidecars do not renew them.
	full, delta string
	// schedule says when full snapshots are taken, and patience how long one may take.
	schedule cron.Schedule
	patience time.Duration
	// period is the time between delta snapshots. Zero means that there are none.
	period time.Duration
	now    func() time.Time
}

func newBackups(host *server.BackupRestoreComponentConfig, leases coordinator.Leases) (*backups, error) {
	schedule, err := cron.ParseStandard(host.SnapshotterConfig.FullSnapshotSchedule)
	if err != nil {
		return nil, fmt.Errorf("--schedule: %w", err)
	}
	b := &backups{leases: leases, schedule: schedule, patience: host.EtcdConnectionConfig.SnapshotTimeout.Duration,
		period: host.SnapshotterConfig.DeltaSnapshotPeriod.Duration, now: time.Now}
	if b.period < brtypes.DeltaSnapshotIntervalThreshold {
		b.period = 0
	}
	if host.HealthConfig.SnapshotLeaseRenewalEnabled {
		b.full, b.delta = host.HealthConfig.FullSnapshotLeaseName, host.HealthConfig.DeltaSnapshotLeaseName
	}
	return b, nil
}

func (b *backups) ask(ctx context.Context) (pass bool, detail string) {
	reason, detail := b.read(ctx)
	return reason == fullBackupSucceeded || reason == incrementalBackupSucceeded, reason + ": " + detail
}

func (b *backups) read(ctx context.Context) (reason, detail string) {
	if b.full == "" || b.delta == "" {
		return unknown, "snapshots are noted on no Lease, because --enable-snapshot-lease-renewal is off"
	}
	full, fullErr := b.leases.Get(ctx, b.full, metav1.GetOptions{})
	delta, deltaErr := b.leases.Get(ctx, b.delta, metav1.GetOptions{})
	if err := errors.Join(fullErr, deltaErr); err != nil {
		return unknown, fmt.Sprintf("the Leases of the snapshots cannot be read: %v", err)
	}
	return b.judge(full, delta)
}

// judge follows etcd-druid's check of the same name, with two differences. A full snapshot is late when the next
// one was due, and not after an interval that holds for even schedules alone. And without delta snapshots the
// full ones are enough.
func (b *backups) judge(full, delta *coordinationv1.Lease) (reason, detail string) {
	now := b.now()
	fullAt, deltaAt := full.Spec.RenewTime, delta.Spec.RenewTime
	for _, l := range []*coordinationv1.Lease{full, delta} {
		if at := l.Spec.RenewTime; at != nil && at.Sub(now) > clockSkew {
			return unknown, fmt.Sprintf("Lease %s was renewed in the future, at %s: the pods' clocks differ", l.Name,
				at.UTC().Format(time.RFC3339))
		}
	}
	if fullAt == nil && deltaAt == nil {
		return unknown, "no snapshot has been taken yet"
	}
	// Somebody may have deleted the Lease, or added it to a cluster that was there before.
	known, since := full.CreationTimestamp.Time, "no full snapshot was taken since Lease %s was created %v ago"
	if fullAt != nil {
		known, since = fullAt.Time, "the last full snapshot (Lease %s) was taken %v ago"
	}
	if due := b.schedule.Next(known.In(now.Location())); now.Sub(due) > b.patience {
		return fullBackupFailed, fmt.Sprintf(since+", and the next one was due at %s", full.Name, ago(now, known),
			due.UTC().Format(time.RFC3339))
	}
	switch {
	case b.period == 0 && fullAt == nil:
		return unknown, "no full snapshot has been taken yet, and delta snapshots are off"
	case b.period == 0:
		return fullBackupSucceeded, fmt.Sprintf("a full snapshot was taken %v ago", ago(now, fullAt.Time))
	case deltaAt == nil:
		return unknown, fmt.Sprintf("no delta snapshot has been taken since the full one %v ago", ago(now, fullAt.Time))
	case now.Sub(deltaAt.Time) >= missedPeriods*b.period:
		return incrementalBackupFailed, fmt.Sprintf("the last delta snapshot (Lease %s) was taken %v ago, and one is "+
			"due every %v", delta.Name, ago(now, deltaAt.Time), b.period)
	case fullAt != nil && fullAt.After(deltaAt.Time):
		return fullBackupSucceeded, fmt.Sprintf("a full snapshot was taken %v ago", ago(now, fullAt.Time))
	}
	return incrementalBackupSucceeded, fmt.Sprintf("a delta snapshot was taken %v ago", ago(now, deltaAt.Time))
}

func ago(now, at time.Time) time.Duration { return max(now.Sub(at).Round(time.Second), 0) }
