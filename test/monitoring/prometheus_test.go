package monitoring

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"sigs.k8s.io/yaml"

	"github.com/quorate/quorate/internal/record"
	"github.com/quorate/quorate/internal/report"
	"github.com/quorate/quorate/pkg/rollout"
	"github.com/quorate/quorate/test/monitoring/fetched"
)

// scrapes is how often everything has been scraped before anything is asked.
const scrapes = 3

// patience is for machines that do a lot else.
const patience = time.Minute

// sidecar is one whose metrics are the real ones; goes is what happens in it before each scrape.
type sidecar struct {
	pod, set string
	goes     func(m *report.Metrics, now time.Time)
}

// shows makes a coordinator show that it has done something for long.
func shows(epoch, serving int, action rollout.ActionName, rule rollout.Rule, guard rollout.Guard, since,
	started time.Duration) func(*report.Metrics, time.Time) {
	return func(m *report.Metrics, now time.Time) {
		m.Coordinates(epoch)
		m.Show(report.Report{
			At: now, Since: now.Add(-since), Started: now.Add(-started),
			Progress: report.Progress{Pods: 3, Outdated: 2, Settled: 1},
			Plan: report.Plan{Work: report.Work{Action: action, Rule: rule, Guard: guard},
				Voters: 3, Serving: serving, Quorum: 2},
		})
	}
}

// holds makes a coordinator show that this plan has held for an hour.
func holds(guard rollout.Guard, plan report.Plan) func(*report.Metrics, time.Time) {
	return func(m *report.Metrics, now time.Time) {
		m.Coordinates(1)
		plan.Work = report.Work{Action: rollout.ActionHold, Rule: rollout.RuleHeld, Guard: guard}
		m.Show(report.Report{At: now, Since: now.Add(-time.Hour), Started: now.Add(-3 * time.Hour), Plan: plan})
	}
}

// voter is a member by this evidence.
func voter(evidence rollout.Evidence) report.Member {
	return report.Member{Voter: true, Evidence: evidence.String()}
}

// sidecars are in every trouble that there is an alert for.
var sidecars = []sidecar{
	{"etcd-0", "etcd", func(m *report.Metrics, now time.Time) {
		m.Coordinates(3)
		m.Show(report.Report{
			At: now, Since: now.Add(-time.Hour), Started: now.Add(-3 * time.Hour),
			Overrides: []string{string(rollout.GuardCanary)},
			Progress:  report.Progress{Pods: 3, Outdated: 1, Settled: 1},
			Plan: report.Plan{Work: report.Work{Action: rollout.ActionHold, Rule: rollout.RuleServing,
				Guard: rollout.GuardQuorumFloor}, Voters: 3, Serving: 1, Quorum: 2,
				Ghosts: []report.Ghost{{Member: "etcd-3"}}},
		})
		removal, move := record.Intent{Operation: record.Delete}, record.Intent{Operation: record.MoveLeader}
		m.Count(report.Outcome{Intent: removal, Decision: rollout.Decision{Rule: rollout.RuleServing},
			Result: report.OutcomeDone})
		m.Count(report.Outcome{Intent: removal, Decision: rollout.Decision{Rule: rollout.RuleNotServingFirst},
			Result: report.OutcomeUnclear})
		m.Count(report.Outcome{Intent: move, Result: report.OutcomeDone})
		m.Count(report.Outcome{Intent: move, Result: report.OutcomeFailed})
		m.HandOver()
		m.Count(report.Outcome{Intent: removal, Result: report.OutcomeRuledOut})
		m.Databases(0.97, true)
		m.Completed(2 * time.Hour)
		m.LastCompletion(now.Add(-24 * time.Hour))
		m.Probe(3*time.Millisecond, true)
		m.Probe(time.Second, false)
	}},
	{"etcd-1", "etcd", func(m *report.Metrics, _ time.Time) { m.Failures(report.AtElection, 7) }},
	{"etcd-2", "etcd", func(m *report.Metrics, _ time.Time) { m.Unfit(true) }},
	{"waits-0", "waits", shows(1, 3, rollout.ActionWait, rollout.RuleServing, rollout.GuardDisruptionBudget,
		time.Hour, time.Hour)},
	{"paused-0", "paused", shows(1, 2, rollout.ActionHold, rollout.RuleHeld, rollout.GuardPaused,
		5*time.Hour, 5*time.Hour)},
	// Nobody knows who votes.
	{"unknown-0", "unknown", holds(rollout.GuardVotersUnknown, report.Plan{})},
	// Authentication is on, and nobody has signed in.
	{"auth-0", "auth", holds(rollout.GuardCutOff, report.Plan{Voters: 3, Quorum: 2, Members: []report.Member{
		voter(rollout.Unknown), voter(rollout.Unknown), voter(rollout.Unknown)}})},
	{"corrupt-0", "corrupt", holds(rollout.GuardCorrupt, report.Plan{Voters: 3, Quorum: 2, Serving: 3})},
	{"differ-0", "differ", holds(rollout.GuardDataAgrees, report.Plan{Voters: 3, Quorum: 2, Serving: 3})},
	{"lists-0", "lists", holds(rollout.GuardListsAgree, report.Plan{Voters: 3, Quorum: 2, Serving: 3})},
	{"single-0", "single", holds(rollout.GuardCanary, report.Plan{Voters: 1, Quorum: 1, Serving: 1})},
	{"done-0", "done", func(m *report.Metrics, now time.Time) {
		m.Show(report.Report{At: now, Since: now.Add(-time.Minute), Ended: now.Add(-time.Minute),
			Progress: report.Progress{Pods: 3, Settled: 3},
			Plan: report.Plan{Work: report.Work{Action: rollout.ActionComplete, Rule: rollout.RuleComplete},
				Voters: 3, Serving: 3, Quorum: 2}})
		m.Idles()
		m.Completed(40 * time.Second)
		m.LastCompletion(now.Add(-time.Minute))
	}},
	{"left-0", "left", func(m *report.Metrics, _ time.Time) { m.Rests() }},
	// Its coordinator has fallen silent, as in a status that is kept.
	{"etcd-main-0", "etcd-main", func(m *report.Metrics, _ time.Time) { m.Rests() }},
}

// silent is what `quorate status` says of such a cluster, kept by the tests of the command.
var silent = filepath.Join("..", "..", "cmd", "quorate", "testdata", "stuck", "the-coordinator-has-fallen-silent.txt")

// podRow is a pod in its table: its name, its revision, and whether it is ready.
var podRow = regexp.MustCompile(`(?m)^(etcd-main-\d)(?: +-){2} +(\w+)(?: +-){3} +\w+ +(yes|no) `)

// podsOf is what kube-state-metrics says of the pods in the status of a StatefulSet.
func podsOf(t *testing.T, set, status string) string {
	t.Helper()
	rows := podRow.FindAllStringSubmatch(status, -1)
	require.NotEmpty(t, rows, status)
	var lines strings.Builder
	updated := 0
	for _, row := range rows {
		ready := 0
		if row[3] == "yes" {
			ready = 1
		}
		fmt.Fprintf(&lines, "kube_pod_container_status_ready{namespace=\"ns\", pod=%q, container=\"etcd\"} %d\n",
			row[1], ready)
		if row[2] == "updated" {
			updated++
		}
	}
	fmt.Fprintf(&lines, "kube_statefulset_replicas{namespace=\"ns\", statefulset=%q} %d\n"+
		"kube_statefulset_status_replicas_updated{namespace=\"ns\", statefulset=%[1]q} %[3]d\n",
		set, len(rows), updated)
	return lines.String()
}

// export serves a sidecar's metrics.
func export(t *testing.T, s sidecar) http.Handler {
	t.Helper()
	registry := prometheus.NewRegistry()
	m, err := report.NewMetrics(registry, "ns", s.set, "v1.2.3")
	require.NoError(t, err)
	pages := promhttp.HandlerFor(registry, promhttp.HandlerOpts{})
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s.goes(m, time.Now())
		pages.ServeHTTP(w, r)
	})
}

// exported are the names of all metrics that a sidecar exports.
func exported(t *testing.T) ([]string, error) {
	t.Helper()
	registry := prometheus.NewRegistry()
	m, err := report.NewMetrics(registry, "ns", "etcd", "v1.2.3")
	require.NoError(t, err)
	for range 2 { // What holds is counted from the second look on.
		sidecars[0].goes(m, time.Now())
	}
	families, err := registry.Gather()
	var names []string
	for _, f := range families {
		names = append(names, f.GetName())
	}
	return names, err
}

// stateMetrics is what kube-state-metrics says of the StatefulSet that nobody rolls, and of those of which nobody
// knows whether they are safe.
const stateMetrics = `kube_statefulset_replicas{namespace="ns", statefulset="left"} 3
kube_statefulset_status_replicas_updated{namespace="ns", statefulset="left"} 1
kube_statefulset_status_replicas_ready{namespace="ns", statefulset="unknown"} 0
kube_statefulset_status_replicas_ready{namespace="ns", statefulset="auth"} 3
`

// server is a Prometheus that scrapes everything each second and judges the alerts at once,
// however long they should last.
type server struct{ url string }

var listening = regexp.MustCompile(`msg="Listening on" address=(\S+)`)

func startPrometheus(t *testing.T) *server {
	t.Helper()
	mux := http.NewServeMux()
	target := httptest.NewServer(mux)
	t.Cleanup(target.Close)
	address := strings.TrimPrefix(target.URL, "http://")
	state := stateMetrics + podsOf(t, "etcd-main", read(t, silent))
	mux.HandleFunc("/state", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, state) })
	jobs := []map[string]any{{"job_name": "state", "metrics_path": "/state", "honor_labels": true,
		"static_configs": []any{map[string]any{"targets": []string{address}}}}}
	for _, s := range sidecars {
		mux.Handle("/"+s.pod, export(t, s))
		jobs = append(jobs, map[string]any{"job_name": s.pod, "metrics_path": "/" + s.pod, "static_configs": []any{
			map[string]any{"targets": []string{address}, "labels": map[string]string{"pod": s.pod}},
		}})
	}

	dir := t.TempDir()
	write := func(name string, content any) string {
		text, err := yaml.Marshal(content)
		require.NoError(t, err)
		path := filepath.Join(dir, name)
		require.NoError(t, os.WriteFile(path, text, 0o644))
		return path
	}
	var rules map[string]any
	require.NoError(t, yaml.Unmarshal([]byte(read(t, shipped, "alerts.yaml")), &rules))
	for _, g := range rules["groups"].([]any) {
		for _, r := range g.(map[string]any)["rules"].([]any) {
			delete(r.(map[string]any), "for")
		}
	}
	write("rules.yaml", rules)
	config := write("prometheus.yaml", map[string]any{
		"global":         map[string]string{"scrape_interval": "1s", "evaluation_interval": "1s"},
		"rule_files":     []string{"rules.yaml"},
		"scrape_configs": jobs,
	})

	cmd := exec.CommandContext(t.Context(), fetched.Prometheus(t, "prometheus"),
		"--config.file="+config, "--storage.tsdb.path="+filepath.Join(dir, "data"), "--web.listen-address=127.0.0.1:0")
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
	cmd.WaitDelay = patience
	log, err := cmd.StderrPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	listens := make(chan string, 1)
	ended := make(chan struct{})
	var said strings.Builder
	go func() {
		defer close(ended)
		for lines := bufio.NewScanner(log); lines.Scan(); {
			said.WriteString(lines.Text() + "\n")
			if found := listening.FindStringSubmatch(lines.Text()); found != nil {
				listens <- found[1]
			}
		}
	}()
	// The test's context ends before this is called, and Prometheus with it.
	t.Cleanup(func() { <-ended; _ = cmd.Wait() })
	select {
	case address := <-listens:
		return &server{"http://" + address}
	case <-ended:
		require.Fail(t, "Prometheus does not start", said.String())
	case <-time.After(patience):
		require.Fail(t, "Prometheus does not listen")
	}
	return nil
}

// get asks the HTTP API.
func (s *server) get(ctx context.Context, path string, parameters url.Values, into any) error {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, s.url+"/api/v1/"+path+"?"+parameters.Encode(), nil)
	if err != nil {
		return err
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return err
	}
	defer func() { _ = response.Body.Close() }()
	answer := struct {
		Status, Error string
		Data          any
	}{Data: into}
	if err := json.NewDecoder(response.Body).Decode(&answer); err != nil {
		return err
	}
	if answer.Status != "success" {
		return errors.New(answer.Error)
	}
	return nil
}

// sample is one of an instant vector.
type sample struct {
	Metric map[string]string `json:"metric"`
	Value  [2]any            `json:"value"`
}

func (s *server) query(ctx context.Context, expr string) ([]sample, error) {
	var answer struct {
		Result []sample `json:"result"`
	}
	err := s.get(ctx, "query", url.Values{"query": {expr}}, &answer)
	return answer.Result, err
}

type alert struct {
	State               string
	Labels, Annotations map[string]string
}

func (s *server) firing(ctx context.Context) (map[string][]alert, error) {
	var answer struct{ Alerts []alert }
	err := s.get(ctx, "alerts", nil, &answer)
	firing := map[string][]alert{}
	for _, a := range answer.Alerts {
		if a.State == "firing" {
			firing[a.Labels["alertname"]] = append(firing[a.Labels["alertname"]], a)
		}
	}
	return firing, err
}

// fill puts values in the place of Grafana's variables.
var fill = strings.NewReplacer("$__rate_interval", "10s", "$__range", "1m", "$namespace", "ns", "$statefulset", ".*")

var labelValues = regexp.MustCompile(`^label_values\((.+), (\w+)\)$`)

var legendLabels = regexp.MustCompile(`{{(\w+)}}`)

func TestEveryExpressionWorksOnTheRealMetrics(t *testing.T) {
	p := startPrometheus(t)
	require.EventuallyWithT(t, func(c *assert.CollectT) {
		seen, err := p.query(t.Context(), fmt.Sprintf("sum_over_time(up[5m]) >= %d", scrapes))
		require.NoError(c, err)
		require.Len(c, seen, len(sidecars)+1)
	}, patience, 200*time.Millisecond, "not everything is scraped")

	t.Run("panels", func(t *testing.T) {
		for _, panel := range board(t).Panels {
			for _, target := range panel.Targets {
				seen, err := p.query(t.Context(), fill.Replace(target.Expr))
				require.NoError(t, err, "%s: %s", panel.Title, target.Expr)
				require.NotEmpty(t, seen, "%s shows nothing: %s", panel.Title, target.Expr)
				for _, s := range seen {
					require.NotEqual(t, "NaN", s.Value[1], "%s: %s", panel.Title, target.Expr)
				}
				for _, label := range legendLabels.FindAllStringSubmatch(target.LegendFormat, -1) {
					// A guard is there only where one keeps something.
					require.True(t, slices.ContainsFunc(seen, func(s sample) bool { return s.Metric[label[1]] != "" }),
						"%s: its legend %s, of %s", panel.Title, target.LegendFormat, target.Expr)
				}
			}
		}
	})
	t.Run("the table of clusters", func(t *testing.T) { showsEachCluster(t, p) })
	t.Run("variables", func(t *testing.T) {
		for name, query := range board(t).variables() {
			parts := labelValues.FindStringSubmatch(query)
			require.NotNil(t, parts, "the variable %s: %s", name, query)
			seen, err := p.query(t.Context(), fmt.Sprintf("group by (%s) (%s)", parts[2], fill.Replace(parts[1])))
			require.NoError(t, err, query)
			require.NotEmpty(t, seen, query)
			for _, s := range seen {
				require.NotEmpty(t, s.Metric[name], "%s offers nothing to choose from: %s", name, query)
			}
		}
	})
	t.Run("alerts", func(t *testing.T) {
		var want []string
		for _, g := range alerts(t).Groups {
			for _, r := range g.Rules {
				if r.Alert != "" {
					want = append(want, r.Alert)
				}
			}
		}
		require.EventuallyWithT(t, func(c *assert.CollectT) {
			firing, err := p.firing(t.Context())
			require.NoError(c, err)
			for _, name := range want {
				require.NotEmpty(c, firing[name], "%s does not fire", name)
			}
		}, patience, 200*time.Millisecond)
		firing, err := p.firing(t.Context())
		require.NoError(t, err)
		for name, all := range firing {
			for _, a := range all {
				tellsWhatToDo(t, name, a)
			}
		}
		// Each alert begins with the verdict that begins the status.
		const (
			contradict = "Safe? AT RISK: a quorum serves, but etcd has an alarm, or its members contradict each other. "
			notShown   = "Safe? UNKNOWN: the members' answers do not show whether there is a quorum. "
		)
		for of, safe := range map[string]string{
			"QuorateRolloutHeld etcd":       "Safe? QUORUM LOST: writes fail. ",
			"QuorateQuorumLost etcd":        "Safe? QUORUM LOST: writes fail. ",
			"QuorateSidecarFailing etcd":    "Safe? QUORUM LOST: writes fail. ",
			"QuorateNoSpace etcd":           "Safe? QUORUM LOST: etcd takes no writes ",
			"QuorateRolloutWaiting waits":   "Safe? SAFE: 1 may fail. ",
			"QuorateRolloutPaused paused":   "Safe? AT RISK: none may fail. ",
			"QuorateRolloutHeld corrupt":    contradict,
			"QuorateRolloutHeld differ":     contradict,
			"QuorateRolloutHeld lists":      contradict,
			"QuorateRolloutHeld single":     "Safe? SAFE: the only member serves, and has no spare. ",
			"QuorateRolloutHeld unknown":    notShown,
			"QuorateRolloutSlow auth":       strings.TrimSpace(notShown),
			"QuorateVerdictUnknown auth":    notShown,
			"QuorateVerdictUnknown unknown": notShown,
			"QuorateNobodyCoordinates left": "Safe? UNKNOWN: nobody asks the members at the moment. " +
				"`kubectl quorate status` judges by their pods. ",
			"QuorateNobodyCoordinates etcd-main": "Safe? " + byPods(t, read(t, silent)),
		} {
			name, set, _ := strings.Cut(of, " ")
			i := slices.IndexFunc(firing[name], func(a alert) bool { return a.Labels["statefulset"] == set })
			require.GreaterOrEqual(t, i, 0, "%s of %s", name, set)
			require.True(t, strings.HasPrefix(firing[name][i].Annotations["description"], safe), "%s: %s", name,
				firing[name][i].Annotations["description"])
		}
		var lost []string
		for _, a := range firing["QuorateQuorumLost"] {
			lost = append(lost, a.Labels["statefulset"])
		}
		require.Equal(t, []string{"etcd"}, lost)
		var unknown []string
		for _, a := range firing["QuorateVerdictUnknown"] {
			unknown = append(unknown, a.Labels["statefulset"]+" "+a.Labels["severity"])
		}
		require.ElementsMatch(t, []string{"auth warning", "unknown warning", "unknown critical"}, unknown)
	})
}

// byPods is what an alert makes of the first line of a status that is by the pods.
func byPods(t *testing.T, status string) string {
	t.Helper()
	first, _, _ := strings.Cut(status, "\n")
	parts := regexp.MustCompile(`^([A-Z ]+): etcd is ready in \d/\d pods, (.+) \(etcd was not asked\)$`).
		FindStringSubmatch(first)
	require.NotNil(t, parts, first)
	return parts[1] + ": " + parts[2] + ". This is by the pods' readiness: etcd was not asked. "
}

// showsEachCluster does with the dashboard's table what Grafana does with it: it merges the answers by what all of them
// have, here a StatefulSet, and renames the columns.
func showsEachCluster(t *testing.T, p *server) {
	t.Helper()
	panel := board(t).Panels[1]
	columns, answers := panel.organized(t), map[string][]map[string]string{}
	known := map[string]bool{"Time": true}
	for _, target := range panel.Targets {
		seen, err := p.query(t.Context(), fill.Replace(target.Expr))
		require.NoError(t, err, target.Expr)
		for _, s := range seen {
			cells := map[string]string{"Value #" + target.RefID: fmt.Sprint(s.Value[1])}
			maps.Copy(cells, s.Metric)
			for name := range cells {
				known[name] = true
			}
			set := s.Metric["namespace"] + "/" + s.Metric["statefulset"]
			answers[set] = append(answers[set], cells)
		}
	}
	rows := map[string]map[string]string{}
	for set, all := range answers {
		rows[set] = map[string]string{}
		for _, cells := range all {
			for name, value := range cells {
				title, named := columns.RenameByName[name]
				require.True(t, named || columns.ExcludeByName[name], "the column %s has no title", name)
				if columns.ExcludeByName[name] {
					continue
				}
				require.Contains(t, []string{"", value}, rows[set][title], "%s has several rows, by %s", set, title)
				rows[set][title] = value
			}
		}
		// Times go on while we ask.
		for _, name := range []string{"In this state for", "Last completion"} {
			if value, err := strconv.ParseFloat(rows[set][name], 64); err == nil {
				rows[set][name] = time.Duration(value * float64(time.Second)).Round(time.Hour).String()
				if name == "Last completion" {
					rows[set][name] = time.Since(time.UnixMilli(int64(value))).Round(time.Hour).String()
				}
			}
		}
	}
	want := map[string]map[string]string{}
	for _, cells := range [][]string{
		{"etcd", "quorum_lost", "1", "Hold", "QuorumFloor", "1", "2", "-1", "1h0m0s", "1", "24h0m0s"},
		{"waits", "safe", "1", "Wait", "DisruptionBudget", "3", "2", "1", "1h0m0s", "0", ""},
		{"paused", "at_risk", "1", "Hold", "Paused", "2", "2", "0", "5h0m0s", "0", ""},
		{"unknown", "unknown", "1", "Hold", "VotersUnknown", "0", "0", "", "1h0m0s", "0", ""},
		{"auth", "unknown", "1", "Hold", "CutOff", "0", "2", "", "1h0m0s", "0", ""},
		{"corrupt", "at_risk", "1", "Hold", "Corrupt", "3", "2", "1", "1h0m0s", "0", ""},
		{"differ", "at_risk", "1", "Hold", "DataAgrees", "3", "2", "1", "1h0m0s", "0", ""},
		{"lists", "at_risk", "1", "Hold", "ListsAgree", "3", "2", "1", "1h0m0s", "0", ""},
		{"single", "safe", "1", "Hold", "Canary", "1", "1", "0", "1h0m0s", "0", ""},
		{"done", "", "0", "Complete", "", "", "", "", "", "0", "0s"},
		{"left", "", "0", "", "", "", "", "", "", "0", ""},
		{"etcd-main", "", "0", "", "", "", "", "", "", "0", ""},
	} {
		set := "ns/" + cells[0]
		want[set] = map[string]string{"Namespace": "ns"}
		for i, title := range []string{"StatefulSet", "Verdict", "Rollout", "Action", "Guard", "Serving", "Quorum",
			"May fail", "In this state for", "Overridden guards", "Last completion"} {
			if cells[i] != "" {
				want[set][title] = cells[i]
			}
		}
	}
	require.Equal(t, want, rows)

	titles := slices.Collect(maps.Values(columns.RenameByName))
	for _, o := range panel.FieldConfig.Overrides {
		require.Contains(t, titles, o.Matcher.Options, "there is no such column to change")
	}
	for _, by := range panel.Options.SortBy {
		require.Contains(t, titles, by.DisplayName, "there is no such column to sort by")
	}
	for name := range columns.RenameByName {
		require.True(t, known[name], "no query has the column %s", name)
		require.Contains(t, columns.IndexByName, name, "it has no place")
	}
	for name := range columns.ExcludeByName {
		require.True(t, known[name], "no query has the column %s", name)
	}
}

// tellsWhatToDo checks what a person gets of an alert.
func tellsWhatToDo(t *testing.T, name string, a alert) {
	t.Helper()
	for _, label := range []string{"namespace", "statefulset", "severity"} {
		require.NotEmpty(t, a.Labels[label], "%s has no label %s", name, label)
	}
	for _, part := range []string{"summary", "description", "runbook_url"} {
		require.NotEmpty(t, a.Annotations[part], "%s has no %s", name, part)
		require.NotRegexp(t, `<error|<no value>|%!`, a.Annotations[part], "%s: its %s cannot be rendered", name, part)
	}
	require.Contains(t, a.Annotations["summary"], a.Labels["namespace"]+"/"+a.Labels["statefulset"], name)
	require.Regexp(t, `\ASafe\? .+\nWaits for: .+\nWhat to do: .+\nIf nothing is done: .+\z`,
		a.Annotations["description"], name)

	require.Equal(t, pages+"alerts.md#"+strings.ToLower(name), a.Annotations["runbook_url"], name)
	guard := a.Labels["guard"]
	if guard != "" {
		require.Contains(t, a.Annotations["summary"], guard, name)
	}
	if a.Labels["rule"] != "" && guard != "" { // It is about what keeps the rollout.
		require.Contains(t, a.Annotations["description"], pages+"reference.md#"+strings.ToLower(guard), name)
		require.Contains(t, read(t, docs, "reference.md"), "\n### "+guard+"\n", "the page has no section on it")
	}
}
