package report

import (
	"cmp"
	"runtime"
	"runtime/debug"
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/quorate/quorate/internal/record"
	"github.com/quorate/quorate/pkg/rollout"
)

// Metrics are what one sidecar exports. Every sidecar exports all of them. Those of the rollout are
// present at the coordinator only, so that an alert never fires on an old report.
type Metrics struct {
	coordinator, epoch, inProgress prometheus.Gauge
	unfit, ghosts                  prometheus.Gauge
	started                        *prometheus.GaugeVec
	pods, voters, verdict          *prometheus.GaugeVec
	state, since, override         *prometheus.GaugeVec
	failures                       *prometheus.GaugeVec
	held, removals, moves          *prometheus.CounterVec
	handOvers, refused             prometheus.Counter
	defragmentations               *prometheus.CounterVec
	fullest, noSpace               *prometheus.GaugeVec
	probes                         *prometheus.HistogramVec
	completed                      prometheus.Counter
	durations                      prometheus.Histogram
	lastCompletion                 *prometheus.GaugeVec

	registerer prometheus.Registerer
	all        []prometheus.Collector

	mu   sync.Mutex
	last Report
}

// probeBuckets reach from a healthy member in the same zone to the probe timeout.
var probeBuckets = []float64{.001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5}

// rolloutBuckets double, or nearly so. A rollout that finds nothing to remove, because somebody else has replaced the
// pods, ends within ten seconds. One of three members whose pods come back at once takes half a minute, and one of five
// that load gigabytes or catch up for long takes hours. Two hours is where the alert on a slow one begins.
var rolloutBuckets = []float64{10, 30, 60, 120, 300, 600, 1200, 1800, 3600, 7200, 4 * 3600, 8 * 3600}

// NewMetrics registers the metrics of one StatefulSet, which the constant labels namespace and
// statefulset tell apart. Version is what the host calls its own, see [buildOf]. An error means that the registerer has
// them already, or others of the same names.
func NewMetrics(registerer prometheus.Registerer, namespace, statefulSet, version string) (*Metrics, error) {
	m := &Metrics{registerer: prometheus.WrapRegistererWith(prometheus.Labels{"namespace": namespace,
		"statefulset": statefulSet}, registerer)}
	gauge := func(name, help string) prometheus.Gauge {
		return keep(m, prometheus.NewGauge(prometheus.GaugeOpts{Name: name, Help: help}))
	}
	gauges := func(name, help string, labels ...string) *prometheus.GaugeVec {
		return keep(m, prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: name, Help: help}, labels))
	}
	counter := func(name, help string) prometheus.Counter {
		return keep(m, prometheus.NewCounter(prometheus.CounterOpts{Name: name, Help: help}))
	}
	counters := func(name, help string, labels ...string) *prometheus.CounterVec {
		return keep(m, prometheus.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, labels))
	}

	info, known := debug.ReadBuildInfo()
	if !known {
		info = &debug.BuildInfo{}
	}
	b := buildOf(info, version)
	gauges("quorate_build_info",
		"1, with the version and commit of this sidecar's Quorate, if known, and the version of Go.",
		"version", "revision", "goversion").
		WithLabelValues(b.version, b.revision, cmp.Or(b.goVersion, runtime.Version())).Set(1)
	m.coordinator = gauge("quorate_coordinator",
		"1 while this sidecar coordinates a rollout, with the lock or in the fallback.")
	m.epoch = gauge("quorate_record_epoch",
		"The number of this sidecar's last claim on the record; 0 if it has made none.")
	m.inProgress = gauge("quorate_rollout_in_progress",
		"1 while a rollout is under way, as far as the coordinator has seen, even if something holds it.")
	m.unfit = gauge("quorate_unfit",
		"1 while this sidecar stays out of the election because it failed as coordinator.")
	m.ghosts = gauge("quorate_ghosts",
		"Members on etcd's list that nobody runs any more; at the owner of the lock only, also between rollouts.")
	m.started = gauges("quorate_rollout_started_timestamp_seconds",
		"When the current rollout was first seen, by the clock of the coordinator at that time; coordinator only, and "+
			"only during a rollout.")
	m.pods = gauges("quorate_rollout_pods",
		"Pods of the StatefulSet by state: outdated, settled, or other (missing, going, coming up); coordinator only.",
		"state")
	m.voters = gauges("quorate_voters",
		"Voters in etcd's member list by kind: all, serving, and the quorum that is needed; coordinator only.", "kind")
	m.verdict = gauges("quorate_verdict",
		"1 for the word that begins the status, and 0 for the others: safe, at_risk, quorum_lost or unknown; "+
			"coordinator only.", "safety")
	m.state = gauges("quorate_rollout_state",
		"1 for the current action, with the rule that chose it and the guard that holds it; coordinator only.",
		"action", "rule", "guard")
	m.since = gauges("quorate_rollout_state_since_timestamp_seconds",
		"Since when the current action, rule and guard have been the same, by the coordinator's clock; coordinator "+
			"only.", "action", "rule", "guard")
	m.override = gauges("quorate_override", "1 for every guard that the operator keeps from holding; coordinator only.",
		"guard")
	m.failures = gauges("quorate_consecutive_failures",
		"How many times in a row this sidecar has failed, by what it tried: election, rollout, evidence (too old when "+
			"it was used), record (how much on the Lease makes no sense), nodes (they cannot be read), or a "+
			"watch that the API server refuses (watch-statefulset, watch-pods, watch-lease, watch-nodes, "+
			"watch-budget).",
		"at")
	m.completed = counter("quorate_rollouts_completed_total",
		"Completed rollouts. Each is counted by one sidecar, once the Lease says that it is complete.")
	m.durations = keep(m, prometheus.NewHistogram(prometheus.HistogramOpts{
		Name: "quorate_rollout_duration_seconds",
		Help: "How long completed rollouts took, from when a coordinator saw the first outdated pod until all were " +
			"settled, with pauses and changes of the coordinator.",
		Buckets: rolloutBuckets,
	}))
	m.lastCompletion = gauges("quorate_rollout_last_completion_timestamp_seconds",
		"When the last rollout that this sidecar knows of was complete, by its coordinator's clock; at sidecars that "+
			"have had the lock. Take the maximum.")
	m.held = counters("quorate_hold_seconds_total",
		"Seconds for which a rollout held or waited, by the guard that kept it.", "guard")
	m.removals = counters("quorate_removals_total",
		"Requested removals, by the rule that chose the pod and the outcome: done, refused (the pod had changed), "+
			"blocked (by a PodDisruptionBudget), failed, or unclear.", "rule", "outcome")
	m.refused = counter("quorate_stale_removals_refused_total",
		"Removals by an earlier coordinator, or with an unclear outcome, that were made harmless.")
	m.moves = counters("quorate_leader_moves_total", "Requested changes of etcd's leader, by outcome: done or failed.",
		"outcome")
	m.handOvers = counter("quorate_handovers_total", "How many times this sidecar let another one coordinate.")
	m.defragmentations = counters("quorate_defragmentations_total",
		"Requested defragmentations of members, by outcome: done, failed, or unclear.", "outcome")
	m.fullest = gauges("quorate_database_quota_ratio",
		"The fullest database of a member, as a part of its quota, 0 to 1 and more; at the owner of the lock only, "+
			"which asks once a minute, and more often while it coordinates.")
	m.noSpace = gauges("quorate_nospace_alarm",
		"1 while etcd has an alarm NOSPACE and takes no writes, else 0; at the same sidecar as "+
			"quorate_database_quota_ratio.")
	m.probes = keep(m, prometheus.NewHistogramVec(prometheus.HistogramOpts{
		Name: "quorate_probe_duration_seconds",
		Help: "How long etcd members took to answer a probe, by result: answered or failed.", Buckets: probeBuckets,
	}, []string{"result"}))

	// Counters exist from the start, so that their first increase is seen.
	for _, rule := range []rollout.Rule{rollout.RuleNotServingFirst, rollout.RuleServing} {
		for _, outcome := range outcomes {
			m.removals.WithLabelValues(string(rule), outcome)
		}
	}
	for _, outcome := range []string{OutcomeDone, OutcomeFailed} {
		m.moves.WithLabelValues(outcome)
	}
	for _, outcome := range []string{OutcomeDone, OutcomeFailed, OutcomeUnclear} {
		m.defragmentations.WithLabelValues(outcome)
	}
	for _, at := range []string{AtElection, AtRollout, AtEvidence, AtRecord, AtWatchSet, AtWatchPods, AtWatchLease,
		AtWatchBudget, AtNodes, AtWatchNodes} {
		m.failures.WithLabelValues(at)
	}
	for i, c := range m.all {
		if err := m.registerer.Register(c); err != nil {
			m.all = m.all[:i]
			m.Unregister()
			return nil, err
		}
	}
	return m, nil
}

func keep[C prometheus.Collector](m *Metrics, c C) C {
	m.all = append(m.all, c)
	return c
}

// Unregister takes the metrics out of the registry again.
func (m *Metrics) Unregister() {
	if m == nil {
		return
	}
	for _, c := range m.all {
		m.registerer.Unregister(c)
	}
}

// What a sidecar can fail at, as the label at of quorate_consecutive_failures.
const (
	AtElection = "election"
	AtRollout  = "rollout"
	// AtEvidence is a decision that could not be carried out, because its evidence had grown too old.
	AtEvidence = "evidence"
	// AtRecord is something on the Lease that makes no sense.
	AtRecord = "record"
	// AtWatchSet, AtWatchPods and AtWatchLease are the watches. Without the first, nobody notices when a rollout
	// begins. Without the other, nobody looks between two intervals.
	AtWatchSet  = "watch-statefulset"
	AtWatchPods = "watch-pods"
	// Without this one, what an operator asks for is noticed only while a rollout is under way.
	AtWatchLease = "watch-lease"
	// Without this one, the API server is asked before each eviction whether it would be granted.
	AtWatchBudget = "watch-budget"
	// AtNodes and AtWatchNodes are the nodes of the pods. Without them, a drain shows only when it evicts.
	AtNodes      = "nodes"
	AtWatchNodes = "watch-nodes"
)

// Coordinates says that this sidecar has claimed the record.
func (m *Metrics) Coordinates(epoch int) {
	if m == nil {
		return
	}
	m.coordinator.Set(1)
	m.epoch.Set(float64(epoch))
}

// Show sets the gauges to what the report says.
func (m *Metrics) Show(r Report) {
	if m == nil {
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.account(r.At)
	m.last = r
	m.forget()
	m.ghosts.Set(float64(len(r.Ghosts)))
	m.inProgress.Set(number(r.Rolling()))
	if r.Rolling() {
		m.started.WithLabelValues().Set(seconds(r.Started))
	}
	m.pods.WithLabelValues("outdated").Set(float64(r.Progress.Outdated))
	m.pods.WithLabelValues("settled").Set(float64(r.Progress.Settled))
	m.pods.WithLabelValues("other").Set(float64(r.Progress.Pods - r.Progress.Outdated - r.Progress.Settled))
	m.voters.WithLabelValues("all").Set(float64(r.Voters))
	m.voters.WithLabelValues("serving").Set(float64(r.Serving))
	m.voters.WithLabelValues("quorum").Set(float64(r.Quorum))
	verdict := r.Verdict().Safety
	for _, safety := range safeties {
		m.verdict.WithLabelValues(safety.label()).Set(number(safety == verdict))
	}
	m.state.WithLabelValues(string(r.Action), string(r.Rule), string(r.Guard)).Set(1)
	m.since.WithLabelValues(string(r.Action), string(r.Rule), string(r.Guard)).Set(seconds(r.Since))
	for _, guard := range r.Overrides {
		m.override.WithLabelValues(guard).Set(1)
	}
}

// Databases says how full the members' databases are. Nothing is shown if that is not known.
func (m *Metrics) Databases(part float64, alarm bool) {
	if m == nil || part == 0 && !alarm {
		return
	}
	m.fullest.WithLabelValues().Set(part)
	m.noSpace.WithLabelValues().Set(number(alarm))
}

// account adds the time since the last report to the guard that kept the rollout. After more than a
// minute, nobody was looking.
func (m *Metrics) account(until time.Time) {
	if m.last.Guard == "" || !m.last.Waits() {
		return
	}
	if d := until.Sub(m.last.At); d > 0 && d < time.Minute {
		m.held.WithLabelValues(string(m.last.Guard)).Add(d.Seconds())
	}
}

// Idles says that the rollout is over. From then on, only how it ended is still shown.
func (m *Metrics) Idles() {
	if m == nil {
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.coordinator.Set(0)
	m.voters.Reset()
	m.verdict.Reset()
	m.override.Reset()
}

// Rests says that this sidecar no longer coordinates. It has nothing to report about the rollout.
func (m *Metrics) Rests() {
	if m == nil {
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.last = Report{}
	m.coordinator.Set(0)
	m.ghosts.Set(0)
	m.inProgress.Set(0)
	m.fullest.Reset()
	m.noSpace.Reset()
	m.forget()
}

func (m *Metrics) forget() {
	for _, v := range []*prometheus.GaugeVec{m.started, m.pods, m.voters, m.verdict, m.state, m.since, m.override} {
		v.Reset()
	}
}

// Count counts what has become of an operation.
func (m *Metrics) Count(o Outcome) {
	switch {
	case m == nil:
	case o.Result == OutcomeRuledOut:
		m.refused.Inc()
	case !slices.Contains(outcomes, o.Result): // Whoever asked for it has counted it.
	case o.Operation == record.Delete || o.Operation == record.Evict:
		m.removals.WithLabelValues(string(o.Decision.Rule), o.Result).Inc()
	case o.Operation == record.MoveLeader:
		m.moves.WithLabelValues(o.Result).Inc()
	case o.Operation == record.Defragment:
		m.defragmentations.WithLabelValues(o.Result).Inc()
	}
}

// Completed counts a rollout that is complete.
func (m *Metrics) Completed(took time.Duration) {
	if m != nil {
		m.completed.Inc()
		m.durations.Observe(took.Seconds())
	}
}

// LastCompletion says when the last rollout was complete. It stays true, so it also stays when another coordinates.
func (m *Metrics) LastCompletion(at time.Time) {
	if m != nil {
		m.lastCompletion.WithLabelValues().Set(seconds(at))
	}
}

// Ghosts says how many there are, by a look at an idle cluster.
func (m *Metrics) Ghosts(n int) {
	if m != nil {
		m.ghosts.Set(float64(n))
	}
}

// HandOver counts that this sidecar let another one coordinate.
func (m *Metrics) HandOver() {
	if m != nil {
		m.handOvers.Inc()
	}
}

// Failures says how many times in a row something has failed, at one of the constants.
func (m *Metrics) Failures(at string, row int) {
	if m != nil {
		m.failures.WithLabelValues(at).Set(float64(row))
	}
}

// Unfit says whether this sidecar stays out of the election.
func (m *Metrics) Unfit(unfit bool) {
	if m != nil {
		m.unfit.Set(number(unfit))
	}
}

// Probe counts one probe of a member.
func (m *Metrics) Probe(d time.Duration, answered bool) {
	if m == nil {
		return
	}
	result := "failed"
	if answered {
		result = "answered"
	}
	m.probes.WithLabelValues(result).Observe(d.Seconds())
}

func number(b bool) float64 {
	if b {
		return 1
	}
	return 0
}

// seconds is an instant as Prometheus writes it.
func seconds(t time.Time) float64 { return float64(t.UnixMilli()) / 1000 }
