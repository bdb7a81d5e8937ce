package main

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/gardener/etcd-backup-restore/pkg/server"
	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/quorate/quorate/coordinator"
)

// noon is when the gate is asked.
var noon = time.Date(2026, 7, 1, 12, 0, 0, 0, time.UTC)

// lease is a Lease that druid created a year ago, and that was last renewed so long before noon.
func lease(name string, renewed ...time.Duration) *coordinationv1.Lease {
	l := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Name: name,
		CreationTimestamp: metav1.NewTime(noon.AddDate(-1, 0, 0))}}
	for _, d := range renewed {
		l.Spec.RenewTime = &metav1.MicroTime{Time: noon.Add(-d)}
	}
	return l
}

func young(l *coordinationv1.Lease) *coordinationv1.Lease {
	l.CreationTimestamp = metav1.NewTime(noon.Add(-time.Minute))
	return l
}

func full(renewed ...time.Duration) *coordinationv1.Lease  { return lease("full", renewed...) }
func delta(renewed ...time.Duration) *coordinationv1.Lease { return lease("delta", renewed...) }

// leases answers for the Leases by their names.
type leases struct {
	coordinator.Leases
	have []*coordinationv1.Lease
}

func (l leases) Get(_ context.Context, name string, _ metav1.GetOptions) (*coordinationv1.Lease, error) {
	for _, lease := range l.have {
		if lease != nil && lease.Name == name {
			return lease, nil
		}
	}
	return nil, errors.New("forbidden")
}

// hostWith is a host with full snapshots at every full hour, which may take 15 minutes, and with delta snapshots
// every five minutes. It renews the Leases of the snapshots and of the members.
func hostWith(change ...func(*server.BackupRestoreComponentConfig)) *server.BackupRestoreComponentConfig {
	c := server.NewBackupRestoreComponentConfig()
	c.SnapstoreConfig.Provider = "Local"
	c.SnapshotterConfig.FullSnapshotSchedule = "0 * * * *"
	c.SnapshotterConfig.DeltaSnapshotPeriod.Duration = 5 * time.Minute
	c.EtcdConnectionConfig.SnapshotTimeout.Duration = 15 * time.Minute
	c.HealthConfig.SnapshotLeaseRenewalEnabled, c.HealthConfig.MemberLeaseRenewalEnabled = true, true
	c.HealthConfig.FullSnapshotLeaseName, c.HealthConfig.DeltaSnapshotLeaseName = "full", "delta"
	for _, do := range change {
		do(c)
	}
	return c
}

func noDeltas(c *server.BackupRestoreComponentConfig) {
	c.SnapshotterConfig.DeltaSnapshotPeriod.Duration = 0
}

func noLeases(c *server.BackupRestoreComponentConfig) {
	c.HealthConfig.SnapshotLeaseRenewalEnabled = false
}

func asConfigured(*server.BackupRestoreComponentConfig) {}

func at(schedule string) func(*server.BackupRestoreComponentConfig) {
	return func(c *server.BackupRestoreComponentConfig) { c.SnapshotterConfig.FullSnapshotSchedule = schedule }
}

func TestBackupReadySaysWhatTheSnapshotsLeasesTell(t *testing.T) {
	const m, h = time.Minute, time.Hour
	for _, tc := range []struct {
		name        string
		host        func(*server.BackupRestoreComponentConfig)
		full, delta *coordinationv1.Lease
		pass        bool
		want        string // how the detail begins
	}{
		{"both are taken in time", asConfigured, full(50 * m), delta(4 * m), true,
			"IncrementalBackupSucceeded: a delta snapshot was taken 4m0s ago"},
		{"the full one is the last", asConfigured, full(2 * m), delta(6 * m), true,
			"FullBackupSucceeded: a full snapshot was taken 2m0s ago"},
		{"a delta snapshot is late, but not yet twice as late", asConfigured, full(50 * m), delta(10*m - 1), true,
			"IncrementalBackupSucceeded: "},
		{"a delta snapshot is twice as late", asConfigured, full(50 * m), delta(10 * m), false,
			"IncrementalBackupFailed: the last delta snapshot (Lease delta) was taken 10m0s ago, and one is due " +
				"every 5m0s"},
		{"the full one is due now, and may take its time", asConfigured, full(h), delta(m), true,
			"IncrementalBackupSucceeded: "},
		{"the full one was due as long ago as one may take", at("45 * * * *"), full(h), delta(m), true,
			"IncrementalBackupSucceeded: "},
		{"the full one was due longer ago than one may take", at("44 * * * *"), full(h), delta(m), false,
			"FullBackupFailed: the last full snapshot (Lease full) was taken 1h0m0s ago, and the next one was due at " +
				"2026-07-01T11:44:00Z"},
		{"both are late", asConfigured, full(9 * h), delta(9 * h), false, "FullBackupFailed: "},
		{"a schedule with days between: none was due since", at("0 6 * * 0"), full(3*24*h + 6*h), delta(m), true, ""},
		{"no snapshot yet in a new cluster", asConfigured, young(full()), young(delta()), false,
			"Unknown: no snapshot has been taken yet"},
		{"the first full one in a new cluster", asConfigured, full(m), delta(), false,
			"Unknown: no delta snapshot has been taken since the full one 1m0s ago"},
		{"druid has only just created the Lease of the full ones", asConfigured, young(full()), delta(m), true,
			"IncrementalBackupSucceeded: "},
		{"no full one since the Lease was created long ago", asConfigured, full(), delta(m), false,
			"FullBackupFailed: no full snapshot was taken since Lease full was created"},
		{"delta snapshots are off, and the full one is there", noDeltas, full(50 * m), delta(), true,
			"FullBackupSucceeded: "},
		{"delta snapshots are off, and the full one is late", noDeltas, full(2 * h), delta(), false,
			"FullBackupFailed: "},
		{"delta snapshots are off, and there is no full one", noDeltas, young(full()), delta(), false,
			"Unknown: no snapshot has been taken yet"},
		{"another pod's clock is a little ahead", asConfigured, full(50 * m), delta(-m), true,
			"IncrementalBackupSucceeded: a delta snapshot was taken 0s ago"},
		{"another pod's clock is far ahead", asConfigured, full(50 * m), delta(-h), false,
			"Unknown: Lease delta was renewed in the future, at 2026-07-01T13:00:00Z"},
		{"a Lease cannot be read", asConfigured, full(50 * m), nil, false,
			"Unknown: the Leases of the snapshots cannot be read: forbidden"},
		{"neither can be read", asConfigured, nil, nil, false, "Unknown: the Leases of the snapshots cannot be read: "},
		{"the sidecars do not renew the Leases", noLeases, full(m), delta(m), false,
			"Unknown: snapshots are noted on no Lease, because --enable-snapshot-lease-renewal is off"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			b, err := newBackups(hostWith(tc.host), leases{have: []*coordinationv1.Lease{tc.full, tc.delta}})
			if err != nil {
				t.Fatal(err)
			}
			b.now = func() time.Time { return noon }
			pass, detail := b.ask(t.Context())
			if pass != tc.pass || !strings.HasPrefix(detail, tc.want) {
				t.Errorf("got %v, %s", pass, detail)
			}
			// Every answer begins with a reason.
			if reason, text, _ := strings.Cut(detail, ": "); text == "" || strings.Contains(reason, " ") {
				t.Errorf("no reason in %s", detail)
			}
		})
	}
}

func TestTheGatesAreForWhatTheHostDoes(t *testing.T) {
	const both = coordinator.BackupReady + " " + sidecarsStarted
	for _, tc := range []struct {
		name string
		host *server.BackupRestoreComponentConfig
		want string
	}{
		{"it takes snapshots, and renews the members' Leases", hostWith(), both},
		{"there is no store", hostWith(func(c *server.BackupRestoreComponentConfig) {
			c.SnapstoreConfig.Provider = ""
		}), sidecarsStarted},
		{"the configuration file takes the store away", hostWith(func(c *server.BackupRestoreComponentConfig) {
			c.SnapstoreConfig = nil
		}), sidecarsStarted},
		{"it does not renew the members' Leases", hostWith(func(c *server.BackupRestoreComponentConfig) {
			c.HealthConfig.MemberLeaseRenewalEnabled = false
		}), coordinator.BackupReady},
	} {
		g, err := gates(tc.host, coordinator.Config{})
		var names []string
		for _, gate := range g {
			names = append(names, gate.Name)
			if gate.SickToo {
				t.Errorf("%s: %s would hold the cure of a sick pod", tc.name, gate.Name)
			}
		}
		if got := strings.Join(names, " "); err != nil || got != tc.want {
			t.Errorf("%s: %q (%v), want %q", tc.name, got, err, tc.want)
		}
	}
	if _, err := gates(hostWith(func(c *server.BackupRestoreComponentConfig) {
		c.SnapshotterConfig.FullSnapshotSchedule = "hourly"
	}), coordinator.Config{}); err == nil || !strings.HasPrefix(err.Error(), "--schedule: ") {
		t.Errorf("a schedule that cannot be read: %v", err)
	}
}
