package report_test

import (
	"bytes"
	"slices"
	"strings"
	"testing"
	"unicode"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/quorate/quorate/internal/report"
	"github.com/quorate/quorate/pkg/rollout"
)

// The first line answers the first question.
func TestTheFirstLineSaysWhetherTheClusterIsSafe(t *testing.T) {
	nospace := func(s *rollout.State) {
		st := s.Etcd.Members[0].Probe.Status
		st.NoSpace, st.NoSpaceOf = true, []uint64{s.Etcd.Members[0].ID}
	}
	for _, tc := range []struct {
		name string
		seen report.Sight
		says string
	}{
		{"all serve", sight(0), "SAFE: quorum 3/3, one may fail"},
		{"all serve, and a rollout is under way", sight(0, outdated(0, 1)), "SAFE: quorum 3/3, one may fail"},
		{"one is down", sight(0, silent(2)), "AT RISK: quorum 2/3, none may fail"},
		{"one gives no sign", sight(0, unknown(2)), "AT RISK: quorum 2/3, none may fail"},
		{"two are down", sight(0, silent(1), silent(2)), "QUORUM LOST: writes fail: 1/3 members serve, and 2 are " +
			"needed"},
		{"one is down, and one gives no sign", sight(0, silent(1), unknown(2)),
			"UNKNOWN: 1/3 members are known to serve, 2 are needed, and one gives no sign"},
		{"none gives a sign", sight(0, unknown(0), unknown(1), unknown(2)),
			"UNKNOWN: 0/3 members are known to serve, 2 are needed, and 3 give no sign"},
		{"a learner is no voter", sight(0, learner(2)), "AT RISK: quorum 2/2, none may fail"},
		{"a member elsewhere counts", sight(0, external), "SAFE: quorum 4/4, one may fail"},
		{"nobody has said who votes", sight(0, unlisted), "UNKNOWN: no member of etcd has said who votes"},
		{"etcd takes no writes", sight(0, nospace),
			"AT RISK: quorum 3/3, but etcd takes no writes because of an alarm NOSPACE"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			r := report.New(tc.seen, report.Report{})
			if got := r.Verdict().String(); got != tc.says {
				t.Errorf("it says %q, want %q", got, tc.says)
			}
			registry := prometheus.NewRegistry()
			m, err := report.NewMetrics(registry, "ns", "etcd", "v1.2.3")
			if err != nil {
				t.Fatal(err)
			}
			m.Show(r)
			word, _, _ := strings.Cut(tc.says, ":")
			if got := verdicts(t, registry); !slices.Equal(got, []string{word}) {
				t.Errorf("the metric says %q, want %q", got, word)
			}
		})
	}
}

// Whoever was woken up asks what becomes of it until the morning.
func TestItSaysWhatHappensIfNobodyDoesAnything(t *testing.T) {
	for _, tc := range []struct {
		name string
		seen report.Sight
		says string
	}{
		{"complete", sight(0), ""},
		{"a pod is being removed", sight(0, outdated(0, 1, 2)), ""},
		{"paused, and all serve", sight(0, outdated(0, 1, 2), paused),
			"nothing more is done until the cause is gone. etcd goes on serving."},
		{"paused, and one is down", sight(0, outdated(0, 1, 2), silent(2), paused), "nothing more is done until the " +
			"cause is gone. etcd serves, but takes no writes if one more member fails."},
		{"paused, and quorum is lost", sight(0, outdated(0, 1, 2), silent(1), silent(2), paused),
			"nothing more is done until the cause is gone. etcd takes no writes meanwhile."},
		{"an updated pod comes up", sight(0, silent(2)), "the rollout goes on by itself when that is over. etcd " +
			"serves, but takes no writes if one more member fails."},
		{"a certificate has expired", sight(0, expired(2)), "it stays so until somebody acts. etcd serves, but takes " +
			"no writes if one more member fails."},
	} {
		t.Run(tc.name, func(t *testing.T) {
			r := report.New(tc.seen, report.Report{})
			if got := r.Otherwise(); got != tc.says {
				t.Errorf("%s: it says %q, want %q", r.Headline(), got, tc.says)
			}
		})
	}
}

func TestCommandsHaveTheRealNames(t *testing.T) {
	for i := range rollout.Guards {
		r := report.Report{Namespace: "garden", StatefulSet: "etcd"}
		r.Guard, r.Pod = rollout.Guards[i].Name, "etcd-2"
		for _, command := range r.Commands() {
			if strings.ContainsFunc(command, unicode.IsUpper) || !strings.Contains(command, " -n garden") &&
				command != "kubectl get nodes" {
				t.Errorf("%s: %s", r.Guard, command)
			}
		}
		with := len(r.Commands())
		if r.Pod = ""; len(r.Commands()) > with {
			t.Errorf("%s: more commands without a pod", r.Guard)
		}
		for _, command := range r.Commands() {
			if strings.Contains(command, "POD") || strings.HasSuffix(command, " ") {
				t.Errorf("%s, without a pod: %s", r.Guard, command)
			}
		}
	}
}

func TestALongLineIsWrappedToTheScreen(t *testing.T) {
	r := report.New(sight(0, outdated(0, 1, 2), paused), report.Report{})
	var b bytes.Buffer
	if err := (report.Status{Report: r, Last: r, Now: noon, Word: report.CoordinatorsWord}).Table(&b,
		report.Screen{Width: 50}); err != nil {
		t.Fatal(err)
	}
	answers, _, _ := strings.Cut(b.String(), "\n\n")
	for line := range strings.SplitSeq(answers, "\n") {
		copied := strings.HasPrefix(line, "    ") || strings.HasPrefix(line, "  More: ")
		if len(line) > 50 && !copied {
			t.Errorf("%d columns: %s", len(line), line)
		}
	}
	if !strings.Contains(answers, "    quorate resume -n garden etcd\n") || strings.Contains(b.String(), "`") {
		t.Errorf("%s", b.String())
	}
}
