package report_test

import (
	"bytes"
	"math"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/quorate/quorate/internal/record"
	"github.com/quorate/quorate/internal/report"
	"github.com/quorate/quorate/pkg/rollout"
)

// silent: the member of a pod answers nothing, and its container is not ready.
func silent(n int) func(*rollout.State) {
	return func(s *rollout.State) {
		p := &s.Pods[n]
		p.Ready, p.ContainersReady, p.Etcd.Ready = false, false, false
		s.Etcd.Members[n].Probe = rollout.Probe{Read: rollout.Failed}
	}
}

// expired: it does not serve, because its certificate has expired.
func expired(n int) func(*rollout.State) {
	return func(s *rollout.State) {
		silent(n)(s)
		s.Etcd.Members[n].Probe.Barred = rollout.ByCertificate
	}
}

// unknown: it answers nothing, and its container is ready.
func unknown(n int) func(*rollout.State) {
	return func(s *rollout.State) { s.Etcd.Members[n].Probe = rollout.Probe{Read: rollout.Failed} }
}

func learner(n int) func(*rollout.State) {
	return func(s *rollout.State) { s.Etcd.Members[n].Learner = true }
}

func gate(pass bool, detail string) func(*rollout.State) {
	return func(s *rollout.State) {
		s.Gates = []rollout.Gate{{Name: report.GateBackup, Pass: pass, Detail: detail}}
	}
}

// external adds a voter without a pod.
func external(s *rollout.State) {
	s.Etcd.Members = append(
		s.Etcd.Members,
		rollout.Member{ID: 9, Name: "elsewhere", Probe: rollout.Probe{Read: rollout.Answered}},
	)
}

func unlisted(s *rollout.State) { s.Etcd = rollout.Membership{} }

func notOnDelete(s *rollout.State) { s.Set.OnDelete = false }

// conditions and members in one line each: type status reason since; name role status
// reason since. Times are seconds after noon.
func shape(e report.EtcdStatus) []string {
	after := func(t time.Time) string {
		if t.IsZero() {
			return "-"
		}
		return t.Sub(noon).String()
	}
	lines := []string{}
	for _, c := range e.Conditions {
		lines = append(
			lines,
			strings.Join([]string{c.Type, string(c.Status), c.Reason, after(c.LastTransitionTime)}, " "),
		)
	}
	for _, m := range e.Members {
		role := m.Role
		if role == "" {
			role = "-"
		}
		lines = append(
			lines,
			strings.Join([]string{m.Name, role, m.Status, m.Reason, after(m.LastTransitionTime)}, " "),
		)
	}
	return lines
}

func TestDEP01sShape(t *testing.T) {
	for _, tc := range []struct {
		name  string
		looks []report.Sight
		size  int
		want  string
	}{
		{"all is well", []report.Sight{sight(0)}, 3, `
			Ready True Quorate 0s
			AllMembersReady True AllMembersReady 0s
			Updated True Complete 0s
			etcd-0 Leader Ready Serving 0s
			etcd-1 Member Ready Serving 0s
			etcd-2 Member Ready Serving 0s`},
		{"one went down and another was down before: since the second there is no quorum",
			[]report.Sight{sight(0), sight(5, silent(1)), sight(9, silent(1), silent(2))}, 3, `
			Ready False QuorumLost 9s
			AllMembersReady False NotAllMembersReady 5s
			Updated False UpdatedPending 5s
			etcd-0 Leader Ready Serving 0s
			etcd-1 Member NotReady Down 5s
			etcd-2 Member NotReady Down 9s`},
		{"they come back one by one: with the second there is a quorum again",
			[]report.Sight{
				sight(0, silent(0), silent(1), silent(2)), sight(5, silent(1), silent(2)), sight(9, silent(2)),
			}, 3, `
			Ready True Quorate 9s
			AllMembersReady False NotAllMembersReady 0s
			Updated False UpdatedPending 0s
			etcd-0 Leader Ready Serving 5s
			etcd-1 Member Ready Serving 9s
			etcd-2 Member NotReady Down 0s`},
		{"the last one is back", []report.Sight{sight(0, silent(2)), sight(5)}, 3, `
			Ready True Quorate 0s
			AllMembersReady True AllMembersReady 5s
			Updated True Complete 5s
			etcd-0 Leader Ready Serving 0s
			etcd-1 Member Ready Serving 0s
			etcd-2 Member Ready Serving 5s`},
		{"a member that is unknown, and one that learns",
			[]report.Sight{sight(0, outdated(0, 1, 2), unknown(1), learner(2))}, 3, `
			Ready False QuorumLost 0s
			AllMembersReady False NotAllMembersReady 0s
			Updated False QuorumFloor 0s
			etcd-0 Leader Ready Serving 0s
			etcd-1 Member Unknown Unknown 0s
			etcd-2 Learner Ready Learner 0s`},
		{"a pod is missing", []report.Sight{sight(0, missing(2))}, 3, `
			Ready True Quorate 0s
			AllMembersReady False NotAllMembersReady 0s
			Updated False Terminating 0s
			etcd-0 Leader Ready Serving 0s
			etcd-1 Member Ready Serving 0s
			etcd-2 Member NotReady PodMissing 0s`},
		{"a voter without a pod is a member of the cluster", []report.Sight{sight(0, external)}, 4, `
			Ready True Quorate 0s
			AllMembersReady True AllMembersReady 0s
			Updated True Complete 0s
			etcd-0 Leader Ready Serving 0s
			etcd-1 Member Ready Serving 0s
			etcd-2 Member Ready Serving 0s
			elsewhere Member Ready Serving 0s`},
		{"nobody says who the voters are", []report.Sight{sight(0, outdated(0), unlisted)}, 3, `
			Ready Unknown VotersUnknown -
			AllMembersReady False NotAllMembersReady 0s
			Updated False UpdatedPending 0s
			etcd-0 - Unknown Unknown 0s
			etcd-1 - Unknown Unknown 0s
			etcd-2 - Unknown Unknown 0s`},
		{"the host's last backup succeeded", []report.Sight{sight(0, gate(true, "at noon"))}, 3, `
			Ready True Quorate 0s
			AllMembersReady True AllMembersReady 0s
			BackupReady True BackupSucceeded -
			Updated True Complete 0s
			etcd-0 Leader Ready Serving 0s
			etcd-1 Member Ready Serving 0s
			etcd-2 Member Ready Serving 0s`},
		{"it failed, which holds the rollout",
			[]report.Sight{sight(0), sight(5, gate(false, "at noon"), outdated(0, 1, 2))}, 3, `
			Ready True Quorate 0s
			AllMembersReady True AllMembersReady 0s
			BackupReady False BackupFailed -
			Updated False HostGates 5s
			etcd-0 Leader Ready Serving 0s
			etcd-1 Member Ready Serving 0s
			etcd-2 Member Ready Serving 0s`},
		{"the host has a reason of its own", []report.Sight{sight(0, gate(false, "FullBackupFailed: at noon"))}, 3, `
			Ready True Quorate 0s
			AllMembersReady True AllMembersReady 0s
			BackupReady False FullBackupFailed -
			Updated True Complete 0s
			etcd-0 Leader Ready Serving 0s
			etcd-1 Member Ready Serving 0s
			etcd-2 Member Ready Serving 0s`},
		{"the host cannot tell", []report.Sight{sight(0, gate(false, "Unknown: no Lease can be read: forbidden"))}, 3, `
			Ready True Quorate 0s
			AllMembersReady True AllMembersReady 0s
			BackupReady Unknown Unknown -
			Updated True Complete 0s
			etcd-0 Leader Ready Serving 0s
			etcd-1 Member Ready Serving 0s
			etcd-2 Member Ready Serving 0s`},
		{"what only looks like a reason is a part of the message",
			[]report.Sight{sight(0, gate(false, "rpc error: code = Unavailable"))}, 3, `
			Ready True Quorate 0s
			AllMembersReady True AllMembersReady 0s
			BackupReady False BackupFailed -
			Updated True Complete 0s
			etcd-0 Leader Ready Serving 0s
			etcd-1 Member Ready Serving 0s
			etcd-2 Member Ready Serving 0s`},
		{"a rollout goes on", []report.Sight{sight(0, outdated(0, 1, 2)), sight(5, outdated(0, 1, 2))}, 3, `
			Ready True Quorate 0s
			AllMembersReady True AllMembersReady 0s
			Updated False Remove 0s
			etcd-0 Leader Ready Serving 0s
			etcd-1 Member Ready Serving 0s
			etcd-2 Member Ready Serving 0s`},
		{"the StatefulSet controller's rollout is not ours to judge", []report.Sight{sight(0, notOnDelete)}, 3, `
			Ready True Quorate 0s
			AllMembersReady True AllMembersReady 0s
			Updated Unknown NotOurs -
			etcd-0 Leader Ready Serving 0s
			etcd-1 Member Ready Serving 0s
			etcd-2 Member Ready Serving 0s`},
	} {
		t.Run(tc.name, func(t *testing.T) {
			var r report.Report
			for _, s := range tc.looks {
				r = report.New(s, r)
			}
			e := report.Status{Report: r}.Etcd()
			if got, want := strings.Join(shape(e), "\n"), strings.ReplaceAll(strings.TrimSpace(tc.want), "\t",
				""); got != want {
				t.Errorf("got\n%s\nwant\n%s", got, want)
			}
			if e.ClusterSize != tc.size || e.Replicas != 3 {
				t.Errorf("clusterSize %d, want %d; replicas %d", e.ClusterSize, tc.size, e.Replicas)
			}
			for _, c := range e.Conditions {
				if !c.LastHeartbeatTime.Equal(r.At) || c.Status != metav1.ConditionTrue && c.Message == "" {
					t.Errorf("%+v", c)
				}
			}
		})
	}
}

func TestAWordIsFreshWhileItsCoordinatorTells(t *testing.T) {
	for _, tc := range []struct {
		name    string
		age     time.Duration
		holder  string
		lasts   time.Duration
		rolling bool
		want    bool
	}{
		{"just now", 0, "etcd-0_u", 15 * time.Second, true, true},
		{"a renewal or two ago", 20 * time.Second, "etcd-0_u", 15 * time.Second, true, true},
		{"long ago", 31 * time.Second, "etcd-0_u", 15 * time.Second, true, false},
		{"long ago, but it need not renew often", 100 * time.Second, "etcd-0_u", time.Minute, true, true},
		{"from a clock that is a little ahead", -10 * time.Second, "etcd-0_u", 15 * time.Second, true, true},
		{"from a clock that is far ahead", -time.Minute, "etcd-0_u", 15 * time.Second, true, false},
		{"from a clock that is far ahead, and it need not renew often",
			-time.Minute, "etcd-0_u", time.Hour, true, false},
		{"just now, for another to go on", 0, "", 15 * time.Second, true, true},
		{"long ago, and nobody went on", 31 * time.Second, "", 15 * time.Second, true, false},
		{"just now, but the rollout is over", 0, "", 15 * time.Second, false, false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			r := report.Report{At: noon.Add(-tc.age)}
			if got := r.Fresh(noon, record.Record{Holder: tc.holder, Duration: tc.lasts,
				Rolling: tc.rolling}); got != tc.want {
				t.Errorf("fresh: %v", got)
			}
		})
	}
	if (&report.Report{}).Fresh(time.Time{}, record.Record{Rolling: true}) {
		t.Error("no word is fresh")
	}
}

// Members name themselves and hosts explain their gates; a terminal would obey what they say.
func TestNobodyElseWritesToTheTerminal(t *testing.T) {
	const hostile = "\x1b]0;title\a\x1b[2J\nHold: all is lost\t\u202e\r"
	s := sight(0, outdated(0, 1, 2), gate(false, "at noon"), func(s *rollout.State) {
		s.Etcd.Members[1].Name, s.Pods[1].MemberName = hostile, hostile
		s.Gates[0].Detail = hostile
		s.Set.UpdateRevision = hostile
		s.Controls.Override = []rollout.Guard{hostile}
	})
	s.Coordinator = hostile
	r := report.New(s, report.Report{})
	r.Do, r.Rule, r.Guard = hostile, hostile, hostile
	lines := func(text string) int { return strings.Count(text, "\n") }
	harmless := report.New(
		sight(
			0,
			outdated(0, 1, 2),
			gate(false, "at noon"),
			func(s *rollout.State) { s.Controls.Override = []rollout.Guard{"Canary"} },
		),
		report.Report{},
	)
	harmless.Guard = "Nobody's" // A real guard has commands and a page.
	for name, render := range map[string]func(report.Report, *bytes.Buffer) error{
		"status": func(r report.Report, b *bytes.Buffer) error {
			s := report.Status{Report: r, Last: r, Now: noon, Current: true, Bad: []string{r.Do}}
			return s.Table(b, report.Screen{})
		},
		"plan":  func(r report.Report, b *bytes.Buffer) error { return r.Table(b) },
		"order": func(r report.Report, b *bytes.Buffer) error { return report.Order(b, []report.Plan{r.Plan}) },
		"history": func(r report.Report, b *bytes.Buffer) error {
			return report.History{{Pod: r.Do, Reason: r.Reason}}.Table(b, noon)
		},
		"line": func(r report.Report, b *bytes.Buffer) error {
			s := report.Status{Report: r}
			_, err := b.WriteString(s.Line())
			return err
		},
	} {
		var got, want bytes.Buffer
		if err := render(r, &got); err != nil {
			t.Fatal(err)
		}
		if err := render(harmless, &want); err != nil {
			t.Fatal(err)
		}
		if strings.ContainsAny(got.String(), "\x1b\a\r\u202e\t") || lines(got.String()) != lines(want.String()) {
			t.Errorf("%s: %q", name, got.String())
		}
	}
	var painted bytes.Buffer
	if err := (report.Status{Report: r, Now: noon}).Table(&painted, report.Screen{Paint: true}); err != nil {
		t.Fatal(err)
	}
	if strings.Contains(painted.String(), "\x1b]") || strings.Contains(painted.String(), "\x1b[2J") ||
		!strings.Contains(painted.String(), "\x1b[1;31mHold") {
		t.Errorf("%q", painted.String())
	}
}

func TestTheBarIsAsLongAsTheRollout(t *testing.T) {
	for _, tc := range []struct {
		progress report.Progress
		want     string
		words    string
	}{
		{report.Progress{Pods: 3, Settled: 3}, "██████", "3 of 3 settled"},
		{report.Progress{Pods: 3, Settled: 1, Outdated: 1}, "██▒▒░░", "1 of 3 settled, 1 outdated, 1 unsettled"},
		{report.Progress{Pods: 3, Outdated: 3}, "░░░░░░", "0 of 3 settled, 3 outdated"},
		{report.Progress{Pods: 5, Settled: 2, Outdated: 2}, "██▒▒░░", "2 of 5 settled, 2 outdated, 1 unsettled"},
		{report.Progress{}, "", "0 of 0 settled"},
		{report.Progress{Pods: 3, Settled: -1, Outdated: -5}, "▒▒▒▒▒▒", "-1 of 3 settled, 9 unsettled"},
		{report.Progress{Pods: 3, Settled: math.MaxInt, Outdated: 3}, "██████", "9223372036854775807 of 3 settled, 3 " +
			"outdated"},
		{report.Progress{Pods: -3, Settled: 1}, "", "1 of -3 settled"},
		{report.Progress{Pods: math.MaxInt, Settled: math.MaxInt / 2}, "", "4611686018427387903 of " +
			"9223372036854775807 settled, 4611686018427387904 unsettled"},
		{report.Progress{Pods: math.MaxInt32, Settled: math.MaxInt32}, "██████", "2147483647 of 2147483647 settled"},
	} {
		if got := tc.progress.Bar(6); got != tc.want || tc.progress.String() != tc.words {
			t.Errorf("%+v: %s %s", tc.progress, got, tc.progress)
		}
	}
}
