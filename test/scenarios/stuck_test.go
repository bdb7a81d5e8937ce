package scenarios

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"

	"github.com/quorate/quorate/internal/report"
	"github.com/quorate/quorate/pkg/rollout"
	"github.com/quorate/quorate/test/harness"
	"github.com/quorate/quorate/test/monitoring/fetched"
)

// A rollout that does not move: whatever an operator looks at names the same guard, and the
// way out.
func TestAStuckRolloutSaysTheSameEverywhere(t *testing.T) {
	t.Parallel()
	ctx, s := newCluster(t, harness.Namespaces, harness.Spec{
		Name: "stuck", PlainText: true, EtcdArgs: []string{"--strict-reconfig-check=false"},
		SidecarArgs: []string{"--listen-address=:8080"},
	})
	ledger, err := s.Watch(ctx)
	require.NoError(t, err)
	defer ledger.Stop()
	op := newOperator(t, s)
	lost := s.Pods()[1:]
	var first string // that is updated

	for _, tc := range []struct {
		name string
		// stick makes it so, from where the last one left it.
		stick         func()
		action, guard string
		alert         string
		after         time.Duration
	}{
		{"it is paused", func() {
			op.run(ctx, 0, "pause")
			s.touch(ctx, "stuck")
		}, "Hold", "Paused", "QuorateRolloutPaused", 5 * time.Hour},

		{"a PodDisruptionBudget that can never allow it refuses", func() {
			require.NoError(t, s.SetMinAvailable(ctx, 3))
			op.run(ctx, 0, "resume")
		}, "Hold", "DisruptionBudget", "QuorateRolloutHeld", time.Hour},

		{"two ghosts of an old scale-in vote", func() {
			require.NoError(t, s.AddGhosts(ctx, 2))
			// Not before they are seen: what was looked at before them may still be evicted.
			s.holds(ctx, "QuorumFloor")
			require.NoError(t, s.SetMinAvailable(ctx, 2))
		}, "Hold", "QuorumFloor", "QuorateRolloutHeld", time.Hour},

		{"quorum is lost", func() {
			op.run(ctx, 0, "pause")
			require.NoError(t, s.RemoveGhosts(ctx))
			for _, pod := range lost {
				require.NoError(t, s.Signal(pod, "etcd", syscall.SIGSTOP))
			}
			for _, pod := range s.Pods() {
				require.NoError(t, s.WaitNotReady(ctx, pod))
			}
			op.run(ctx, 0, "resume")
		}, "Wait", "QuorumPatience", "QuorateRolloutWaiting", time.Hour},

		{"an updated member is unknown", func() {
			op.run(ctx, 0, "pause")
			for _, pod := range lost {
				require.NoError(t, s.Signal(pod, "etcd", syscall.SIGCONT))
			}
			require.NoError(t, s.WaitReady(ctx))
			op.run(ctx, 0, "resume")
			require.NoError(t, ledger.WaitRemovals(ctx, 1))
			op.run(ctx, 0, "pause")
			first = ledger.Order()[0]
			require.NoError(t, s.WaitReady(ctx))
			// Its process hangs, and another one answers for it: that proves nothing.
			require.NoError(t, s.Misdirect(first, s.others(first)[0]))
			require.NoError(t, s.Signal(first, "etcd", syscall.SIGSTOP))
			op.run(ctx, 0, "resume")
		}, "Wait", "UpdatedPending", "QuorateRolloutWaiting", time.Hour},

		{"the revision is broken", func() {
			s.change(ctx, "an image that does not exist", func(template *corev1.PodTemplateSpec) {
				container(template, "etcd").Image = harness.Missing
			})
			require.NoError(t, s.Misdirect(first, first))
			_ = s.Signal(first, "etcd", syscall.SIGCONT) // It may be on its way out.
		}, "Hold", "UpdatedFailing", "QuorateRolloutHeld", time.Hour},
	} {
		ok := t.Run(tc.name, func(t *testing.T) {
			s, op := s.in(t), op.in(t)
			tc.stick()
			do := wayOut(t, tc.guard, s.Spec.Name)
			switch tc.guard {
			case "QuorumFloor": // First comes what to do about the voters without a pod, by their names.
				do = "The voter "
			case "UpdatedFailing": // What keeps the pod is known, and so is what to do about that.
				do = "Check that the image exists, and that the node may pull it: 'kubectl describe pod -n " +
					harness.Namespace + " " + first + "'."
			}

			// The event comes when it lasts.
			reason := map[string]string{"Hold": "RolloutHeld", "Wait": "RolloutWaiting"}[tc.action]
			require.NoError(t, s.WaitEvent(ctx, reason, tc.guard+" has "))
			require.NoError(t, s.WaitEvent(ctx, reason, "What to do: "+do[:min(len(do), 60)]))

			code, printed := op.quorate(ctx, "status", s.Spec.Name)
			require.Equal(t, 3, code, "%s", printed)
			require.Contains(t, printed, tc.guard)
			require.Contains(t, strings.Join(strings.Fields(printed), " "), do)
			told := op.status(ctx)
			require.Equal(t, tc.action, string(told.Action), "%s", told.Reason)
			require.Equal(t, tc.guard, string(told.Guard), "%s", told.Reason)
			require.True(t, strings.HasPrefix(told.Do, do), told.Do)
			require.Greater(t, time.Since(told.Since), report.HoldLasts, "since when: the event has come")

			plan := op.plan(ctx)
			require.Equal(t, tc.guard, string(plan.Guard), "%s: %s", plan.Action, plan.Reason)
			require.Equal(t, told.Do, plan.Do)

			samples := op.scrape(ctx)
			require.Equal(t, []string{tc.action + " " + tc.guard}, samples.states())
			t.Run("and the alert fires", func(t *testing.T) {
				op.in(t).fires(ctx, samples, tc.alert, tc.guard, tc.after)
			})
		})
		require.True(t, ok, "the next case goes on from here")
	}

	s.change(ctx, "the fix", func(template *corev1.PodTemplateSpec) {
		container(template, "etcd").Image = harness.Etcd35
		touched("fixed")(template)
	})
	s.complete(ctx)
	code, printed := op.quorate(ctx, "status", s.Spec.Name, "--watch", "--timeout=1m")
	require.Zero(t, code, "%s", printed)
}

// wayOut is what the reference page says about a guard.
func wayOut(t *testing.T, guard, name string) string {
	t.Helper()
	row := rollout.RowOf(rollout.Guard(guard))
	require.NotNil(t, row, "no such guard: %s", guard)
	return report.Plain(strings.NewReplacer("NAMESPACE", harness.Namespace, "NAME", name).Replace(row.Do))
}

// operator is a person with a laptop and kubectl's rights.
type operator struct {
	t          *testing.T
	s          *scene
	kubeconfig string
}

func newOperator(t *testing.T, s *scene) *operator {
	t.Helper()
	return &operator{t: t, s: s, kubeconfig: filepath.Join(s.env.Dir, "control-plane", "admin.kubeconfig")}
}

func (o *operator) in(t *testing.T) *operator {
	return &operator{t: t, s: o.s.in(t), kubeconfig: o.kubeconfig}
}

// quorate runs the command, and returns its exit code and what it printed.
func (o *operator) quorate(ctx context.Context, args ...string) (int, string) {
	o.t.Helper()
	ctx, cancel := context.WithTimeout(ctx, 2*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, o.s.env.Binaries.Quorate,
		append(args, "--kubeconfig="+o.kubeconfig, "--namespace="+harness.Namespace)...)
	cmd.Env = []string{"HOME=" + o.t.TempDir()}
	printed, err := cmd.CombinedOutput()
	var exit *exec.ExitError
	if !errors.As(err, &exit) {
		require.NoError(o.t, err)
	}
	return cmd.ProcessState.ExitCode(), string(printed)
}

// run runs a command about the cluster that has to end with this code.
func (o *operator) run(ctx context.Context, code int, verb string, args ...string) {
	o.t.Helper()
	got, printed := o.quorate(ctx, append([]string{verb, o.s.Spec.Name}, args...)...)
	require.Equal(o.t, code, got, "%s: %s", verb, printed)
}

// status is what the coordinator tells on the Lease.
func (o *operator) status(ctx context.Context) report.Report {
	o.t.Helper()
	_, printed := o.quorate(ctx, "status", o.s.Spec.Name, "-o", "json")
	var status struct {
		Rollout report.Report `json:"rollout"`
	}
	require.NoError(o.t, json.Unmarshal([]byte(printed), &status), "%s", printed)
	return status.Rollout
}

// plan asks the members as well, from inside a pod.
func (o *operator) plan(ctx context.Context) report.Plan {
	o.t.Helper()
	ctx, cancel := context.WithTimeout(ctx, 30*time.Second)
	defer cancel()
	var endpoints []string
	for _, pod := range o.s.Pods() {
		endpoints = append(endpoints,
			fmt.Sprintf("http://%s.%s-peer.%s.svc:2379", pod, o.s.Spec.Name, harness.Namespace))
	}
	_, printed, err := o.s.Exec(ctx, o.s.Pods()[0], "backup-restore", "plan", o.s.Spec.Name, "-o", "json",
		"--kubeconfig=/var/run/quorate/kubeconfig", "--namespace="+harness.Namespace, "--endpoints="+
			strings.Join(endpoints, ","))
	require.NoError(o.t, err)
	var plan report.Plan
	// What could not be reached is said before.
	require.NoError(o.t, json.Unmarshal([]byte(printed[max(0, strings.Index(printed, "{\n")):]), &plan), "%s", printed)
	return plan
}

// scraped are the metrics of all sidecars, by pod.
type scraped map[string]map[string]*dto.MetricFamily

func (o *operator) scrape(ctx context.Context) scraped {
	o.t.Helper()
	all := scraped{}
	for _, pod := range o.s.Pods() {
		url := fmt.Sprintf("http://%s:8080/metrics", o.s.env.Network.AddressOf(harness.Namespace, pod))
		ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
		defer cancel()
		request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
		require.NoError(o.t, err)
		answer, err := http.DefaultClient.Do(request)
		require.NoError(o.t, err)
		body, err := io.ReadAll(answer.Body)
		_ = answer.Body.Close()
		require.NoError(o.t, err)
		parser := expfmt.NewTextParser(model.UTF8Validation)
		all[pod], err = parser.TextToMetricFamilies(bytes.NewReader(body))
		require.NoError(o.t, err)
	}
	return all
}

// states are the action and guard of every sidecar that reports them.
func (s scraped) states() []string {
	var states []string
	for _, families := range s {
		for _, m := range families["quorate_rollout_state"].GetMetric() {
			states = append(states, label(m, "action")+" "+label(m, "guard"))
		}
	}
	return states
}

func label(m *dto.Metric, name string) string {
	for _, l := range m.GetLabel() {
		if l.GetName() == name {
			return l.GetValue()
		}
	}
	return ""
}

// fires lets time go on with the metrics as they are, and expects the shipped alert. In
// promtool's world time begins at zero: that is when the guard began to hold.
func (o *operator) fires(ctx context.Context, samples scraped, alert, guard string, after time.Duration) {
	o.t.Helper()
	root := filepath.Join("..", "..")
	rules, err := filepath.Abs(filepath.Join(root, "deploy", "monitoring", "alerts.yaml"))
	require.NoError(o.t, err)
	promtool := fetched.Prometheus(o.t, "promtool")
	var began float64
	for _, families := range samples {
		for _, m := range families["quorate_rollout_state_since_timestamp_seconds"].GetMetric() {
			began = m.GetGauge().GetValue()
		}
	}
	require.NotZero(o.t, began)
	minutes := int(after.Minutes())
	var series strings.Builder
	for pod, families := range samples {
		for name, family := range families {
			if !strings.HasPrefix(name, "quorate_") || family.GetType() == dto.MetricType_HISTOGRAM {
				continue
			}
			for _, m := range family.GetMetric() {
				value := m.GetGauge().GetValue() + m.GetCounter().GetValue()
				if strings.HasSuffix(name, "_timestamp_seconds") {
					value -= began
				}
				labels := []string{fmt.Sprintf("pod=%q", pod)}
				for _, l := range m.GetLabel() {
					labels = append(labels, fmt.Sprintf("%s=%q", l.GetName(), l.GetValue()))
				}
				fmt.Fprintf(&series, "  - series: '%s{%s}'\n    values: '%g+0x%d'\n", name,
					strings.Join(labels, ","), value, minutes)
			}
		}
	}
	file := filepath.Join(o.t.TempDir(), "alert.yaml")
	require.NoError(o.t, os.WriteFile(file, fmt.Appendf(nil, `rule_files: [%s]
evaluation_interval: 1m
tests:
- interval: 1m
  input_series:
%s
  promql_expr_test:
  - expr: count(ALERTS{alertname=%q, alertstate="firing", guard=%q, statefulset=%q, namespace=%q})
    eval_time: %dm
    exp_samples: [{labels: '{}', value: 1}]
  - expr: count(ALERTS{alertname=~"QuorateRollout.*", alertstate="firing", guard!=%q, guard!=""})
    eval_time: %dm
`, rules, series.String(), alert, guard, o.s.Spec.Name, harness.Namespace, minutes, guard, minutes), 0o600))
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	printed, err := exec.CommandContext(ctx, promtool, "test", "rules", file).CombinedOutput()
	require.NoError(o.t, err, "%s", printed)
}
