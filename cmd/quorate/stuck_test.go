package main

import (
	"bytes"
	"context"
	"html"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	corev1 "k8s.io/api/core/v1"

	"github.com/quorate/quorate/internal/report"
	"github.com/quorate/quorate/internal/reporttest"
	"github.com/quorate/quorate/pkg/page"
)

// stuckSituations are rollouts that do not move, as an operator finds them at three in the morning.
var stuckSituations = []struct {
	name   string
	change func(*world)
	// sight is what only the coordinator sees. If it is silent, it has not reported for a while.
	sight  func(*report.Sight)
	silent bool
	// The four answers: is it safe, what does it wait for, what is to be done, and what happens otherwise. Each is a part
	// of the text.
	safe, waits, do, otherwise string
}{
	{
		name: "the new revision crashes at every start", change: broken,
		safe: "AT RISK: quorum 2/3", waits: "updated pod etcd-main-2 is failing", do: "kubectl logs -n garden etcd-main-2",
		otherwise: "nothing more is rolled",
	},
	{
		name: "the new image cannot be pulled", change: func(w *world) {
			w.updated(2, 10*time.Minute)
			w.stopped(2, 9*time.Minute, "ImagePullBackOff")
		},
		safe: "AT RISK: quorum 2/3", waits: "ImagePullBackOff", do: "kubectl describe pod -n garden etcd-main-2",
		otherwise: "nothing more is rolled",
	},
	{
		name: "the new pod fits on no node", change: func(w *world) {
			w.updated(2, 10*time.Minute)
			w.silent(2, 10*time.Minute)
			p := w.pods[2]
			p.Status.Phase, p.Status.ContainerStatuses, p.Spec.NodeName = corev1.PodPending, nil, ""
			set(p, corev1.PodScheduled, corev1.ConditionFalse, 10*time.Minute)
			for i := range p.Status.Conditions {
				if c := &p.Status.Conditions[i]; c.Type == corev1.PodScheduled {
					c.Reason, c.Message = corev1.PodReasonUnschedulable, "0/3 nodes are available: 3 Insufficient memory."
				}
			}
		},
		safe: "AT RISK: quorum 2/3", waits: "etcd-main-2", do: "kubectl describe pod -n garden etcd-main-2",
		otherwise: "etcd serves, but takes no writes if one more member fails",
	},
	{
		name: "a quota refuses the new pod",
		change: func(w *world) {
			w.silent(2, time.Minute)
			w.refused(2, `pods "etcd-main-2" is forbidden: exceeded quota: pods`)
		},
		safe: "AT RISK: quorum 2/3", waits: "exceeded quota", do: "kubectl describe statefulset -n garden etcd-main",
		otherwise: "it stays so until somebody acts",
	},
	{
		name: "the node of a terminating pod is lost", change: func(w *world) {
			w.terminating(2, 20*time.Minute)
			w.silent(2, 20*time.Minute)
		},
		safe: "AT RISK: quorum 2/3", waits: "etcd-main-2: its pod is terminating", do: "kubectl get nodes",
		otherwise: "it stays so until somebody acts",
	},
	{
		name: "a disruption budget refuses every eviction", change: healthy, sight: evictionsRefused,
		safe: "SAFE: quorum 3/3, one may fail", waits: "disruption budget",
		do: "kubectl describe poddisruptionbudget -n garden", otherwise: "etcd goes on serving",
	},
	{
		name: "a node is drained", change: func(w *world) { w.drained(1); w.cordoned(1, time.Minute) },
		safe: "SAFE: quorum 3/3, one may fail", waits: "etcd-main-1", do: "Let the drain",
		otherwise: "goes on by itself",
	},
	{
		name: "somebody has paused it", change: func(w *world) { w.control("quorate.dev/paused", "true") },
		safe: "SAFE: quorum 3/3, one may fail", waits: "the rollout is paused", do: "quorate resume -n garden etcd-main",
		otherwise: "nothing more is done",
	},
	{
		name: "quorum is lost, and all processes run", change: func(w *world) { w.quorumLost(2 * time.Minute) },
		sight: func(s *report.Sight) { s.Fallback = true },
		safe:  "QUORUM LOST: writes fail: 0/3 members serve, and 2 are needed", waits: "quorum has been lost",
		do: "Bring a peer back", otherwise: "a live process is left alone for 300 s without quorum, and may be replaced " +
			"after that, when nothing else is coming up. etcd takes no writes meanwhile",
	},
	{
		name: "the members' data differ, says an alarm", change: func(w *world) {
			w.members[1].errors = []string{"alarm:CORRUPT memberID:" + "11489774187486586542"}
			w.members[0].errors = []string{"memberID:11489774187486586542 alarm:CORRUPT"}
		},
		safe: "AT RISK: quorum 3/3, but etcd has an alarm CORRUPT", waits: "CORRUPT", do: "hashkv",
		otherwise: "Clients may read different data",
	},
	{
		name: "the coordinator has fallen silent", change: broken, silent: true,
		safe: "AT RISK: etcd is ready in 2/3 pods, none may fail (etcd was not asked)", waits: "nobody coordinates",
		do:        "kubectl logs -n garden etcd-main-1 -c backup-restore quorate plan -n garden etcd-main",
		otherwise: "nothing is rolled until a sidecar coordinates",
	},
	{
		name: "an upgrade that etcd does not survive", change: func(w *world) {
			for i := range w.pods {
				w.members[i].version = "3.5.21"
			}
			etcd := &w.set.Spec.Template.Spec.Containers[0]
			etcd.Image = "registry.k8s.io/etcd:3.7.0"
		},
		safe: "SAFE: quorum 3/3, one may fail", waits: "3.5", do: "quorate plan -n garden etcd-main --all",
		otherwise: "nothing more is rolled",
	},
	{
		name: "a control cannot be read", change: func(w *world) { w.control("quorate.dev/partition", "one") },
		safe: "SAFE: quorum 3/3, one may fail", waits: `quorate.dev/partition: "one"`,
		do: "kubectl get lease -n garden quorate-etcd-main -o yaml", otherwise: "nothing more is done",
	},
}

// Whoever is woken up has four questions. The status and the page answer them, and in the same words. The alerts begin
// with the same word.
func TestAStuckRolloutIsExplainedInFourAnswers(t *testing.T) {
	base := emptied(t, filepath.Join("testdata", "stuck"))
	for _, tc := range stuckSituations {
		t.Run(tc.name, func(t *testing.T) {
			ago := justNow
			if tc.silent {
				ago = 12 * time.Minute
			}
			w := with(3, tc.change)
			var changes []func(*report.Sight)
			if tc.sight != nil {
				changes = append(changes, tc.sight)
			}
			w.tells(t, now.Add(-ago), changes...)
			s := report.Look(w.outside(t, now, false))
			var table bytes.Buffer
			if err := s.Table(&table, report.Screen{Width: 100}); err != nil {
				t.Fatal(err)
			}
			expect(t, filepath.Join(base, strings.NewReplacer(" ", "-", ",", "", "'", "").Replace(tc.name)+".txt"),
				table.String())
			answers, _, _ := strings.Cut(table.String(), "\n\n")
			if tc.silent && (!strings.Contains(answers, "\nNOBODY COORDINATES: etcd-main-1 ") ||
				!strings.Contains(answers, "etcd-main-2: its etcd container does not run (CrashLoopBackOff")) {
				t.Errorf("the status does not say first that nobody coordinates, and which pod fails:\n%s", answers)
			}
			shows(t, "the status", answers, tc.safe, tc.waits, tc.do, tc.otherwise)
			if !strings.HasPrefix(answers, tc.safe) {
				t.Errorf("the first line does not say %q", tc.safe)
			}
			if tc.silent {
				// The page sees no pods. What the alert says is by kube-state-metrics, and test/monitoring compares it
				// with this status.
				shows(t, "the page", pageOf(t, s), "UNKNOWN: no fresh report", "nobody has reported for 12m")
				return
			}
			shows(t, "the page", pageOf(t, s), tc.safe, tc.waits, tc.do, tc.otherwise)
			if word := alerted(t, s.Last); !strings.HasPrefix(answers, word+": ") {
				t.Errorf("an alert begins with %q:\n%s", word, answers)
			}
		})
	}
}

func shows(t *testing.T, what, text string, answers ...string) {
	t.Helper()
	text = strings.Join(strings.Fields(text), " ")
	for _, answer := range answers {
		if !strings.Contains(text, answer) {
			t.Errorf("%s does not say %q:\n%s", what, answer, text)
		}
	}
}

// pageOf is the text of the page that the coordinator of this moment serves.
func pageOf(t *testing.T, s report.Status) string {
	t.Helper()
	w := httptest.NewRecorder()
	page.Handler(page.Config{Source: said{reporttest.Recorded(s.Last, nil, now)}, Namespace: "garden",
		StatefulSet: "etcd-main"}).ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/", nil))
	return html.UnescapeString(regexp.MustCompile(`<[^>]*>`).ReplaceAllString(w.Body.String(), " "))
}

// alerted is the word that an alert begins with, by the metric of the coordinator that made this report.
func alerted(t *testing.T, r report.Report) string {
	t.Helper()
	registry := prometheus.NewRegistry()
	metrics, err := report.NewMetrics(registry, "garden", "etcd-main", "")
	if err != nil {
		t.Fatal(err)
	}
	metrics.Show(r)
	words, err := reporttest.Verdicts(registry)
	if err != nil {
		t.Fatal(err)
	}
	return strings.Join(words, ", ")
}

type said struct{ status report.Status }

func (s said) Report(context.Context) (report.Status, error) { return s.status, nil }
func (said) Running() bool                                   { return true }
