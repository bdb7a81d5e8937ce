package report

import (
	"bytes"
	"fmt"
	"strings"
	"testing"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/quorate/quorate/internal/record"
	"github.com/quorate/quorate/pkg/rollout"
)

func TestARowOfTheFleetBelievesOnlyWhatIsReportedNow(t *testing.T) {
	now := time.Date(2026, 1, 2, 15, 4, 5, 0, time.UTC)
	for _, tc := range []struct {
		name string
		// told is how long ago its coordinator reported, zero if never.
		told    time.Duration
		action  rollout.ActionName
		serving int
		holder  string
		rolling bool
		control map[string]string
		want    string // verdict, action, guard, heard, whether it waits
	}{
		{"every member serves", time.Second, "Remove", 3, "p", true, nil, "SAFE Remove - Now false"},
		{"one is away", time.Second, "Wait", 2, "p", true, nil, "AT RISK Wait Canary Now true"},
		{"two are away", time.Second, "Wait", 1, "p", true, nil, "QUORUM LOST Wait Canary Now true"},
		{"its coordinator has died", time.Minute, "Remove", 3, "p", true, nil, "UNKNOWN - - Silent true"},
		{"nobody holds the record in the middle of a rollout", time.Minute, "Wait", 3, "", true, nil,
			"UNKNOWN - - Silent true"},
		{"somebody holds the record after the end", time.Minute, "Complete", 3, "p", false, nil,
			"UNKNOWN - - Silent true"},
		{"complete a moment ago", time.Second, "Complete", 3, "", false, nil, "SAFE Complete - Now false"},
		{"complete since last week", 7 * 24 * time.Hour, "Complete", 3, "", false, nil,
			"UNKNOWN Complete - Idle false"},
		{"a report of the future, by a clock that is wrong", -time.Hour, "Remove", 3, "p", true, nil,
			"UNKNOWN - - Silent true"},
		{"nothing was ever reported", 0, "", 0, "", false, map[string]string{rollout.ControlPaused: "false"},
			"UNKNOWN - - Never false"},
		{"paused, and its coordinator has not seen that yet", time.Second, "Remove", 3, "p", true,
			map[string]string{rollout.ControlPaused: "true"}, "SAFE Hold Paused Now true"},
		{"paused after the end", time.Hour, "Complete", 3, "", false,
			map[string]string{rollout.ControlPaused: "true"}, "UNKNOWN Hold Paused Idle true"},
		{"what the StatefulSet controller rolls is not held", time.Second, "Idle", 3, "p", false,
			map[string]string{rollout.ControlPaused: "true"}, "SAFE Idle - Now false"},
		{"a control that cannot be read", time.Second, "Remove", 3, "p", true,
			map[string]string{rollout.ControlPaused: "yes"}, "SAFE Hold BadControl Now true"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			lease := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{
				Name: "quorate-etcd-main", ResourceVersion: "7", Annotations: map[string]string{
					record.SchemaAnnotation: "1", record.IntentAnnotation: `{"operation":"none"}`,
				},
			}}
			lease.Spec.HolderIdentity = &tc.holder
			if tc.rolling {
				lease.Annotations[record.RolloutAnnotation] = "under way"
			}
			if tc.told != 0 {
				r := Report{At: now.Add(-tc.told), Since: now.Add(-tc.told), Coordinator: "etcd-main-1"}
				r.Action, r.Serving, r.Quorum, r.Voters = tc.action, tc.serving, 2, 3
				if r.Waits() {
					r.Guard = rollout.GuardCanary
				}
				for key, value := range Notes(r, nil) {
					lease.Annotations[key] = value
				}
			}
			for key, value := range tc.control {
				lease.Annotations[key] = value
			}
			row := NewFleetRow("garden", "etcd-main", lease, now)
			got := fmt.Sprint(row.Verdict.Safety, " ", dash(string(row.Action)), " ", dash(string(row.Guard)), " ",
				row.Heard, " ", row.Waits())
			if got != tc.want {
				t.Errorf("got %s, want %s", got, tc.want)
			}
			if row.Heard != HeardNow && (row.Serving > 0 || row.Quorum > 0 || row.Verdict.Safety != NotKnown) {
				t.Errorf("an old report is believed: %+v", row)
			}
		})
	}
}

func TestALeaseOfOthersIsNotOfTheFleet(t *testing.T) {
	for name, tc := range map[string]struct {
		annotation, want string
	}{
		"quorate-etcd-main":   {"quorate.dev/status", "etcd-main"},
		"quorate-etcd-events": {"quorate.dev/paused", "etcd-events"},
		"quorate-operator":    {"example.org/status", ""},
		"quorate-":            {"quorate.dev/status", ""},
		"node-1":              {"quorate.dev/status", ""},
	} {
		lease := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Name: name,
			Annotations: map[string]string{tc.annotation: "true"}}}
		if got, ours := StatefulSetOf(lease); got != tc.want || ours != (tc.want != "") {
			t.Errorf("%s: got %q, %v", name, got, ours)
		}
	}
}

func TestTheFleetsTableWritesNothingToATerminal(t *testing.T) {
	now := time.Date(2026, 1, 2, 15, 4, 5, 0, time.UTC)
	f := Fleet{Items: []FleetRow{{Namespace: "garden", Name: "etcd-main", Reason: "\x1b[2J\nall is well"}}}
	var out bytes.Buffer
	if err := f.Table(&out, now, true); err != nil {
		t.Fatal(err)
	}
	line, lines := f.Items[0].Line(now), strings.Count(out.String(), "\n")
	if strings.ContainsAny(out.String()+line, "\x1b\r") || lines != 2 {
		t.Errorf("%q %q", &out, line)
	}
}
