package main

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/quorate/quorate/test/harness"
)

func TestWhatASidecarLoggedIsToldWithThePodThatItIsAbout(t *testing.T) {
	for _, tc := range []struct {
		name  string
		entry harness.LogEntry
		want  string
	}{
		{"a decision", harness.LogEntry{Action: "Remove", Target: "etcd-main-2", Rule: "Serving", Message: "its member serves"},
			"Remove etcd-main-2 (Serving): its member serves"},
		{"a decision that a guard has made", harness.LogEntry{Action: "Wait", Rule: "UpdatedSettle", Guard: "UpdatedPending", Message: "waiting for etcd-main-2"},
			"Wait (UpdatedSettle, UpdatedPending): waiting for etcd-main-2"},
		{"what became of it", harness.LogEntry{Message: "pod removed", Subject: "etcd-main-2"}, "pod removed (etcd-main-2)"},
		{"what has been ruled out", harness.LogEntry{Message: "an earlier removal of this pod has no effect from here on", Subject: "etcd-main-2"},
			"an earlier removal of this pod has no effect from here on (etcd-main-2)"},
		{"with an error", harness.LogEntry{Message: "the removal was refused", Subject: "etcd-main-2", Error: "another pod has that name"},
			"the removal was refused (etcd-main-2): another pod has that name"},
		{"what is about no pod", harness.LogEntry{Message: "this sidecar coordinates now"}, "this sidecar coordinates now"},
	} {
		t.Run(tc.name, func(t *testing.T) { require.Equal(t, tc.want, sidecarText(&tc.entry)) })
	}
}
