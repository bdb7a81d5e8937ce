package report_test

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil/promlint"

	"github.com/quorate/quorate/internal/report"
	"github.com/quorate/quorate/internal/reporttest"
)

var update = flag.Bool("update", false, "write the expected files anew")

// everywhere are the labels of all our metrics.
var everywhere = []string{"namespace", "statefulset"}

const pageBegin = `# Metrics

<!-- Made from internal/report/metrics.go; change it there and run
     go test ./internal/report -run Metrics -update -->

Scrape all sidecars of a StatefulSet, because any of them may coordinate: the standalone ones under
` + "`/metrics`" + ` of their ` + "`--listen-address`" + `, and the library through the host's registry.
[deploy/monitoring](../deploy/monitoring) has a PodMonitor, a dashboard and the [alerts](alerts.md).

All metrics have the labels ` + "`namespace` and `statefulset`" + ` of the rollout. The scraper adds those of
the sidecar (` + "`pod`, `instance`" + `). A *coordinator only* metric vanishes when another sidecar takes
over, so aggregate it, for example with
` + "`max by (namespace, statefulset, guard) (…)`" + `. The [reference](reference.md) has the guards and
rules.

| Metric | Type | Labels | Meaning |
|---|---|---|---|
`

// page renders the families of a registry in which every metric has been set.
func page(t *testing.T, registry *prometheus.Registry) string {
	t.Helper()
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	described := make(chan *prometheus.Desc, 100)
	registry.Describe(described)
	if len(families) != len(described) {
		t.Errorf(
			"%d metrics are registered and %d of them are set: set the others in filled",
			len(described),
			len(families),
		)
	}
	var b strings.Builder
	b.WriteString(pageBegin)
	for _, f := range families {
		var labels []string
		for _, l := range f.GetMetric()[0].GetLabel() {
			if !slices.Contains(everywhere, l.GetName()) {
				labels = append(labels, "`"+l.GetName()+"`")
			}
		}
		fmt.Fprintf(
			&b,
			"| `%s` | %s | %s | %s |\n",
			f.GetName(),
			strings.ToLower(f.GetType().String()),
			strings.Join(labels, ", "),
			f.GetHelp(),
		)
	}
	return b.String()
}

// filled is a registry with every metric of one sidecar.
func filled(t *testing.T) *prometheus.Registry {
	t.Helper()
	registry := prometheus.NewPedanticRegistry()
	m, err := report.NewMetrics(registry, "ns", "etcd", "v1.2.3")
	if err != nil {
		t.Fatal(err)
	}
	now := time.Now()
	r := report.Report{
		At:        now,
		Since:     now,
		Started:   now,
		Overrides: []string{"Canary"},
		Plan:      report.Plan{Work: report.Work{Action: "Hold", Rule: "Serving", Guard: "QuorumFloor"}},
	}
	m.Show(r)
	r.At = now.Add(time.Second)
	m.Show(r)
	m.Probe(time.Second, true)
	m.Databases(0.5, true)
	m.Completed(time.Minute)
	m.LastCompletion(now)
	return registry
}

func TestTheMetricsPageIsWhatIsRegistered(t *testing.T) {
	path := filepath.Join("..", "..", "docs", "metrics.md")
	want := page(t, filled(t))
	if *update {
		if err := os.WriteFile(path, []byte(want), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	have, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if string(have) != want {
		t.Errorf("%s is out of date; run go test ./internal/report -run Metrics -update", path)
	}
}

// verdicts are the words that the metric says.
func verdicts(t *testing.T, g prometheus.Gatherer) []string {
	t.Helper()
	words, err := reporttest.Verdicts(g)
	if err != nil {
		t.Fatal(err)
	}
	return words
}

func TestOnlyACoordinatorSaysHowSafeItIs(t *testing.T) {
	for _, tc := range []struct {
		name string
		ends func(*report.Metrics)
		says []string
	}{
		{"it coordinates", func(*report.Metrics) {}, []string{"SAFE"}},
		{"the rollout is over", (*report.Metrics).Idles, nil},
		{"another one may coordinate", (*report.Metrics).Rests, nil},
		{"it sees something else", func(m *report.Metrics) { m.Show(report.New(sight(0, silent(2)), report.Report{})) },
			[]string{"AT RISK"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			registry := prometheus.NewRegistry()
			m, err := report.NewMetrics(registry, "ns", "etcd", "v1.2.3")
			if err != nil {
				t.Fatal(err)
			}
			m.Show(report.New(sight(0), report.Report{}))
			tc.ends(m)
			if says := verdicts(t, registry); !slices.Equal(says, tc.says) {
				t.Errorf("it says %q, want %q", says, tc.says)
			}
		})
	}
}

func TestTheMetricsFollowTheConventions(t *testing.T) {
	registry := prometheus.NewRegistry()
	m, err := report.NewMetrics(registry, "ns", "etcd", "v1.2.3")
	if err != nil {
		t.Fatal(err)
	}
	m.Show(report.Report{At: time.Now(), Overrides: []string{"Canary"}})
	m.Probe(time.Second, true)
	m.LastCompletion(time.Now())
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	problems, err := promlint.NewWithMetricFamilies(families).Lint()
	if err != nil || len(problems) > 0 {
		t.Errorf("%v, %+v", err, problems)
	}
	if _, err := report.NewMetrics(registry, "ns", "etcd", "v1.2.3"); err == nil {
		t.Error("registered twice for one StatefulSet")
	}
	if _, err := report.NewMetrics(registry, "ns", "events", ""); err != nil {
		t.Errorf("two StatefulSets in one process: %v", err)
	}
}
