package main

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/quorate/quorate/test/harness/traffic"
)

func TestTheMonitorTellsWhatChangesInEtcd(t *testing.T) {
	var told []string
	m := &monitor{note: func(format string, args ...any) { told = append(told, fmt.Sprintf(format, args...)) }}
	sees := func(s traffic.Sample, want ...string) {
		t.Helper()
		told = nil
		m.tell(s, func(endpoint string) string { return "etcd-" + endpoint }, time.Now())
		require.Equal(t, want, told)
	}
	up := func(id uint64) traffic.Probe {
		return traffic.Probe{Endpoint: fmt.Sprint(id), MemberID: id, Answered: true, Serving: true, Version: "3.5.35"}
	}
	down := func(id uint64) traffic.Probe { return traffic.Probe{Endpoint: fmt.Sprint(id)} }

	both := traffic.Sample{Probes: []traffic.Probe{up(1), up(2)}, Serving: 2, Leader: 2, Term: 4}
	sees(both, "etcd-1 serves, etcd 3.5.35 (2 of 2 serve)", "etcd-2 serves, etcd 3.5.35 (2 of 2 serve)",
		"etcd-2 leads, raft term 4")
	sees(both)
	sees(traffic.Sample{Probes: []traffic.Probe{up(1), down(2)}, Serving: 1, Leader: 2, Term: 4},
		"etcd-2 does not serve (1 of 2 serve)")
	sees(traffic.Sample{Probes: []traffic.Probe{down(1), down(2)}},
		"etcd-1 does not serve (0 of 2 serve)", quorumLost+": for 1s no member has answered a linearizable read")
	updated := up(1)
	updated.Version = "3.6.16"
	sees(traffic.Sample{Probes: []traffic.Probe{updated, down(2)}, Serving: 1, Leader: 1, Term: 5},
		"etcd-1 serves, etcd 3.6.16 (1 of 2 serve)", "etcd-1 leads, raft term 5", "quorum is back after 1.0s")
}
