// Package monitoring tests what deploy/monitoring ships: that each alert fires when it should
// and says what to do, that the dashboard is one that Grafana understands, and that every
// expression of both works on the metrics that a sidecar really exports.
package monitoring

import (
	"encoding/json"
	"flag"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"sigs.k8s.io/kustomize/api/krusty"
	"sigs.k8s.io/kustomize/kyaml/filesys"
	"sigs.k8s.io/yaml"

	"github.com/quorate/quorate/test/monitoring/fetched"
)

var update = flag.Bool("update", false, "write deploy/monitoring/prometheusrule.yaml anew")

// What is tested, and what must agree with it.
var (
	shipped = filepath.Join("..", "..", "deploy", "monitoring")
	docs    = filepath.Join("..", "..", "docs")
)

func read(t *testing.T, path ...string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(path...))
	require.NoError(t, err)
	return string(text)
}

// ruleFile is what is needed of alerts.yaml.
type ruleFile struct {
	Groups []struct {
		Name  string `json:"name"`
		Rules []struct {
			Alert       string            `json:"alert"`
			Expr        string            `json:"expr"`
			Labels      map[string]string `json:"labels"`
			Annotations map[string]string `json:"annotations"`
		} `json:"rules"`
	} `json:"groups"`
}

func alerts(t *testing.T) ruleFile {
	t.Helper()
	var f ruleFile
	require.NoError(t, yaml.Unmarshal([]byte(read(t, shipped, "alerts.yaml")), &f))
	return f
}

// dashboard is what is needed of dashboard.json.
type dashboard struct {
	Panels     []panel `json:"panels"`
	Templating struct {
		List []struct {
			Name  string `json:"name"`
			Query any    `json:"query"`
		} `json:"list"`
	} `json:"templating"`
}

type panel struct {
	Type    string `json:"type"`
	Title   string `json:"title"`
	GridPos struct{ X, Y, W, H int }
	Targets []struct {
		RefID        string `json:"refId"`
		Expr         string `json:"expr"`
		LegendFormat string `json:"legendFormat"`
	} `json:"targets"`
	FieldConfig struct {
		Overrides []struct {
			Matcher struct {
				Options string `json:"options"`
			} `json:"matcher"`
		} `json:"overrides"`
	} `json:"fieldConfig"`
	Options struct {
		SortBy []struct {
			DisplayName string `json:"displayName"`
		} `json:"sortBy"`
	} `json:"options"`
	Transformations []struct {
		ID      string  `json:"id"`
		Options columns `json:"options"`
	} `json:"transformations"`
}

// columns is how a table's columns are arranged.
type columns struct {
	ExcludeByName map[string]bool   `json:"excludeByName"`
	IndexByName   map[string]int    `json:"indexByName"`
	RenameByName  map[string]string `json:"renameByName"`
}

// organized is how the columns of a table are arranged that merges its queries.
func (p panel) organized(t *testing.T) columns {
	t.Helper()
	require.Equal(t, "table", p.Type, p.Title)
	require.Len(t, p.Transformations, 2)
	require.Equal(t, "merge", p.Transformations[0].ID)
	require.Equal(t, "organize", p.Transformations[1].ID)
	return p.Transformations[1].Options
}

func board(t *testing.T) dashboard {
	t.Helper()
	var d dashboard
	require.NoError(t, json.Unmarshal([]byte(read(t, shipped, "dashboard.json")), &d))
	return d
}

// variables are the queries of the dashboard's variables, by their names.
func (d dashboard) variables() map[string]string {
	queries := map[string]string{}
	for _, v := range d.Templating.List {
		if q, ok := v.Query.(map[string]any); ok {
			queries[v.Name], _ = q["query"].(string)
		}
	}
	return queries
}

func TestAlertsFireWhenTheyShouldAndNotWhenTheyShouldNot(t *testing.T) {
	promtool := fetched.Prometheus(t, "promtool")
	for _, args := range [][]string{
		{"check", "rules", "--lint-fatal", filepath.Join(shipped, "alerts.yaml")},
		{"test", "rules", "alerts_test.yaml"},
	} {
		out, err := exec.CommandContext(t.Context(), promtool, args...).CombinedOutput()
		require.NoError(t, err, "promtool %s:\n%s", strings.Join(args, " "), out)
	}
}

func TestEveryAlertIsTested(t *testing.T) {
	tests := read(t, "alerts_test.yaml")
	for _, g := range alerts(t).Groups {
		for _, r := range g.Rules {
			if r.Alert != "" {
				require.Contains(t, tests, `alertname="`+r.Alert+`"`, "alerts_test.yaml has no test in which it fires")
			}
		}
	}
}

// pages is where the pages are read.
const pages = "https://github.com/quorate/quorate/blob/main/docs/"

var heading = regexp.MustCompile(`(?m)^## (\w+)\n`)

func TestEveryAlertLeadsToItsOwnSectionAndEverySectionIsAboutAnAlert(t *testing.T) {
	page := read(t, docs, "alerts.md")
	var want, got []string
	for _, g := range alerts(t).Groups {
		for _, r := range g.Rules {
			if r.Alert == "" || slices.Contains(want, r.Alert) { // One is a warning and critical, by two rules.
				continue
			}
			want = append(want, r.Alert)
			require.Equal(t, pages+"alerts.md#"+strings.ToLower(r.Alert), r.Annotations["runbook_url"], r.Alert)
		}
	}
	sections := heading.FindAllStringSubmatchIndex(page, -1)
	for i, at := range sections {
		name, end := page[at[2]:at[3]], len(page)
		if i+1 < len(sections) {
			end = sections[i+1][0]
		}
		got = append(got, name)
		require.Regexp(t, `(?s)\A\n- \*\*Means:\*\* .+\n- \*\*Safe\?\*\* .+\n- \*\*Do:\*\* .+`+
			`\n- \*\*If nobody does anything:\*\* .+\z`, page[at[1]:end], name)
	}
	require.Equal(t, want, got, "the alerts in the order of alerts.yaml, and the headings of docs/alerts.md")
}

// Rules cannot share a template, so each has its own copy of the one that says the verdict.
func TestEveryAlertBeginsWithTheSameVerdict(t *testing.T) {
	var first string
	for _, g := range alerts(t).Groups {
		for _, r := range g.Rules {
			if r.Alert == "" || r.Alert == "QuorateNoSpace" { // An alarm is known where nobody else asks, too.
				continue
			}
			verdict, _, ended := strings.Cut(r.Annotations["description"], "judges by their pods.{{ end }}")
			require.True(t, ended && strings.HasPrefix(verdict, "Safe? {{ with printf "), "%s: %s", r.Alert, verdict)
			if first == "" {
				first = verdict
			}
			require.Equal(t, first, verdict, r.Alert)
		}
	}
}

func TestTheOperatorsManifestHasTheSameRules(t *testing.T) {
	want := `# Made of alerts.yaml for the Prometheus operator; change it there and run
#   make test-monitoring UPDATE=-update
apiVersion: monitoring.coreos.com/v1
kind: PrometheusRule
metadata:
  name: quorate
spec:
`
	for line := range strings.Lines(read(t, shipped, "alerts.yaml")) {
		if strings.TrimSpace(line) != "" {
			line = "  " + line
		}
		want += line
	}
	path := filepath.Join(shipped, "prometheusrule.yaml")
	if *update {
		require.NoError(t, os.WriteFile(path, []byte(want), 0o644))
	}
	require.Equal(t, want, read(t, path), "run make test-monitoring UPDATE=-update")

	var manifest struct {
		Spec ruleFile `json:"spec"`
	}
	require.NoError(t, yaml.Unmarshal([]byte(want), &manifest))
	require.Equal(t, alerts(t), manifest.Spec)
}

func TestTheKustomizationHasTheRulesTheMonitorAndTheDashboard(t *testing.T) {
	made, err := krusty.MakeKustomizer(krusty.MakeDefaultOptions()).Run(filesys.MakeFsOnDisk(), shipped)
	require.NoError(t, err)
	var got []string
	for _, r := range made.Resources() {
		got = append(got, r.GetKind()+"/"+r.GetName())
		if r.GetKind() == "ConfigMap" {
			require.Equal(t, map[string]string{"quorate.json": read(t, shipped, "dashboard.json")}, r.GetDataMap())
			require.Equal(t, map[string]string{"grafana_dashboard": "1"}, r.GetLabels())
		}
	}
	slices.Sort(got)
	require.Equal(t, []string{"ConfigMap/quorate-dashboard", "PodMonitor/quorate", "PrometheusRule/quorate"}, got)
}

// With each release Grafana publishes the types that its frontend reads dashboards by; so the
// TypeScript compiler is the judge.
func TestGrafanaKnowsEverythingInTheDashboard(t *testing.T) {
	schema, compiler := fetched.Grafana(t), fetched.Grafana(t, "node_modules", "typescript", "bin", "tsc")
	source := read(t, "schema", "dashboard.ts") + "const dashboard: Dashboard = " + read(t, shipped, "dashboard.json") +
		";\nvoid dashboard;\n"
	require.NoError(t, os.WriteFile(filepath.Join(schema, "dashboard.ts"), []byte(source), 0o644))
	check := exec.CommandContext(t.Context(), "node", compiler, "--noEmit", "--strict", "--target", "esnext",
		"--module", "preserve", "dashboard.ts")
	check.Dir = schema
	out, err := check.CombinedOutput()
	require.NoError(t, err, "the dashboard, in .build/monitoring/schema/dashboard.ts:\n%s", out)
}

func TestTheDashboardLeadsWithTheTableOfClusters(t *testing.T) {
	d := board(t)
	require.Equal(t, "row", d.Panels[0].Type)
	require.Equal(t, "Clusters", d.Panels[1].Title)
	d.Panels[1].organized(t)
	for _, p := range d.Panels[2:] {
		require.GreaterOrEqual(t, p.GridPos.Y, d.Panels[1].GridPos.Y+d.Panels[1].GridPos.H, "%s is above it", p.Title)
	}
}

func TestNothingPagesForARolloutThatWaitsOrHolds(t *testing.T) {
	var critical []string
	for _, g := range alerts(t).Groups {
		for _, r := range g.Rules {
			if r.Alert == "" {
				continue
			}
			require.Contains(t, []string{"warning", "critical"}, r.Labels["severity"], r.Alert)
			if r.Labels["severity"] == "critical" {
				critical = append(critical, r.Alert)
			}
		}
	}
	// In two of these etcd takes no writes. In the third nobody tells, and no pod is ready. A member that catches up or
	// receives a snapshot is none of them.
	require.ElementsMatch(t, []string{"QuorateQuorumLost", "QuorateNoSpace", "QuorateVerdictUnknown"}, critical)
}

func TestPanelsDoNotOverlap(t *testing.T) {
	taken := map[[2]int]string{}
	for _, p := range board(t).Panels {
		g := p.GridPos
		require.LessOrEqual(t, g.X+g.W, 24, "%s is wider than Grafana's grid", p.Title)
		for x := g.X; x < g.X+g.W; x++ {
			for y := g.Y; y < g.Y+g.H; y++ {
				require.Empty(t, taken[[2]int{x, y}], "%s lies on it", p.Title)
				taken[[2]int{x, y}] = p.Title
			}
		}
	}
}

var metricNames = regexp.MustCompile(`\bquorate_\w+`)

func TestEveryMetricIsLookedAtAndNoOtherIs(t *testing.T) {
	names, err := exported(t)
	require.NoError(t, err)
	used := map[string]bool{}
	look := func(expr string) {
		for _, name := range metricNames.FindAllString(expr, -1) {
			for _, suffix := range []string{"_bucket", "_count", "_sum"} {
				if base := strings.TrimSuffix(name, suffix); slices.Contains(names, base) {
					name = base
				}
			}
			require.Contains(t, names, name, "no sidecar exports it: %s", expr)
			used[name] = true
		}
	}
	for _, g := range alerts(t).Groups {
		for _, r := range g.Rules {
			look(r.Expr)
		}
	}
	for _, p := range board(t).Panels {
		for _, target := range p.Targets {
			look(target.Expr)
		}
	}
	for _, query := range board(t).variables() {
		look(query)
	}
	for _, name := range names {
		require.True(t, used[name], "neither an alert nor a panel looks at %s: use it, or do not export it", name)
	}
}
