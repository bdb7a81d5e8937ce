package main

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/quorate/quorate/test/harness"
	"github.com/quorate/quorate/test/harness/traffic"
)

// faultText is how the fault of a sick member is shown.
const faultText = "crashes at every start; only the update cures it"

// lookEvery is the pace of the display and of all that is sampled for it.
const lookEvery = 200 * time.Millisecond

// newsDelay is how long news are held back. A log is read later than the API tells what
// followed from it, and nobody understands an effect before its cause.
const newsDelay = 300 * time.Millisecond

// monitor watches the cluster for the display: it puts together what the API, the
// observer, the clients and the sidecars' logs say.
type monitor struct {
	env      *harness.Env
	cluster  *harness.Cluster
	ledger   *harness.Ledger
	journal  *harness.Journal
	observer *traffic.Observer
	client   *traffic.Client
	display  display
	strategy string
	// begin is when the demo began.
	begin time.Time

	cancel context.CancelFunc
	done   sync.WaitGroup
	// stopped belongs to whoever started and stopped the monitor.
	stopped bool

	mu sync.Mutex
	// changed is when the image changed, before which pods had the revision old.
	changed time.Time
	sick    string
	memory  harness.Memory
	news    []news // not told yet

	// What follows belongs to the goroutine.
	since       time.Time // the start of the monitor
	old, update string
	read        int // entries of the journal
	removals    int
	latest      *harness.LogEntry
	removed     map[string]*harness.LogEntry
	leader      string
	lost        time.Time // since when nobody serves
	stall       time.Duration
	views       []view // not shown yet
}

// news is a line to be told, and when it happened.
type news struct {
	at   time.Time
	line line
}

// start begins to watch. Stop it in the end.
func (m *monitor) start() {
	ctx, cancel := context.WithCancel(context.Background())
	m.cancel, m.removed, m.since = cancel, map[string]*harness.LogEntry{}, time.Now()
	m.done.Go(func() {
		ticker := time.NewTicker(lookEvery)
		defer ticker.Stop()
		for {
			// Once more after the end, so that the last table is the final state.
			ended := ctx.Err() != nil
			m.look(context.WithoutCancel(ctx))
			if ended {
				m.tell(time.Now())
				return
			}
			select {
			case <-ctx.Done():
			case <-ticker.C:
			}
		}
	})
}

// stop ends the watching after a last look.
func (m *monitor) stop() {
	m.cancel()
	m.done.Wait()
	m.stopped = true
}

// rollout says that the image has changed now.
func (m *monitor) rollout(at time.Time) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.changed = at
}

// setSick says which member is down on purpose.
func (m *monitor) setSick(pod string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.sick = pod
}

// mostMemory is the most that any sidecar occupied so far.
func (m *monitor) mostMemory() harness.Memory {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.memory
}

func (m *monitor) look(ctx context.Context) {
	m.weigh()
	m.readRevision(ctx)
	sample := m.observer.Latest()
	m.tellSidecars()
	m.tellRemovals()
	m.tellEtcd(sample)
	m.views = append(m.views, m.view(sample))
	m.tell(time.Now().Add(-newsDelay))
}

func (m *monitor) weigh() {
	for _, pod := range m.cluster.Pods() {
		used, err := m.cluster.Memory(pod, "backup-restore")
		if err != nil {
			continue // It is not running just now.
		}
		m.mu.Lock()
		m.memory.Anonymous = max(m.memory.Anonymous, used.Anonymous)
		m.memory.Resident = max(m.memory.Resident, used.Resident)
		m.mu.Unlock()
	}
}

func (m *monitor) readRevision(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	set, err := m.env.Client.AppsV1().StatefulSets(harness.Namespace).Get(ctx, m.cluster.Spec.Name, metav1.GetOptions{})
	if err != nil || set.Status.ObservedGeneration < set.Generation {
		return // What was known before still holds.
	}
	if m.old == "" {
		m.old = set.Status.UpdateRevision
	}
	m.update = set.Status.UpdateRevision
}

// say tells something that happened, in its turn.
func (m *monitor) say(at time.Time, who string, how style, format string, args ...any) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.news = append(m.news, news{at, event(at.Sub(m.begin), who, how, fmt.Sprintf(format, args...))})
}

// tell shows everything up to then: the news in the order in which they happened, and
// the newest view.
func (m *monitor) tell(until time.Time) {
	m.mu.Lock()
	slices.SortStableFunc(m.news, func(a, b news) int { return a.at.Compare(b.at) })
	var lines []line
	for len(m.news) > 0 && !m.news[0].at.After(until) {
		lines = append(lines, m.news[0].line)
		m.news = m.news[1:]
	}
	m.mu.Unlock()
	if len(lines) > 0 {
		m.display.Say(lines...)
	}
	for len(m.views) > 0 && !m.begin.Add(m.views[0].at).After(until) {
		m.display.Show(m.views[0])
		m.views = m.views[1:]
	}
}

// tellSidecars says what the sidecars logged. What they complain about while the
// cluster comes up is no news.
func (m *monitor) tellSidecars() {
	fresh, next := m.journal.Since(m.read)
	m.read = next
	for i := range fresh {
		e := &fresh[i]
		how := cyan
		switch {
		case e.Level == "warning" || e.Level == "error":
			how = yellow
		case !e.IsDecision():
			how = normal
		}
		if e.IsDecision() {
			m.latest = e
			if e.Action == "Remove" {
				m.removed[e.Target] = e
			}
		}
		if e.At.After(m.since) {
			m.say(e.At, e.Pod, how, "%s", sidecarText(e))
		}
	}
}

// sidecarText is an entry as it is told beside the name of its pod.
func sidecarText(e *harness.LogEntry) string {
	text := e.Told()
	if e.IsDecision() {
		text = e.Action
		if e.Target != "" {
			text += " " + e.Target
		}
		text += " (" + e.Rule
		if e.Guard != "" {
			text += ", " + e.Guard
		}
		text += "): " + e.Message
	}
	if e.Error != "" {
		text += ": " + e.Error
	}
	return text
}

func (m *monitor) tellRemovals() {
	all := m.ledger.Removals()
	for _, r := range all[m.removals:] {
		m.say(r.At, "kubernetes", normal, "pod %s is terminating (other pods that are Ready: %d)", r.Pod, r.OthersReady)
	}
	m.removals = len(all)
}

func (m *monitor) tellEtcd(s traffic.Sample) {
	now := time.Now()
	if p := leaderOf(s); p != nil && podOf(m.cluster, p.Endpoint) != m.leader {
		m.leader = podOf(m.cluster, p.Endpoint)
		m.say(now, "etcd", bold, "%s leads, raft term %d", m.leader, s.Term)
	}
	switch {
	case s.Serving == 0 && m.lost.IsZero():
		m.lost = now.Add(-patience)
		m.say(now, "etcd", red, "QUORUM IS LOST: for %v no member has answered a linearizable read", patience)
	case s.Serving > 0 && !m.lost.IsZero():
		m.say(now, "etcd", green, "quorum is back after %s", seconds(now.Sub(m.lost)))
		m.lost = time.Time{}
	}
}

func (m *monitor) view(s traffic.Sample) view {
	m.mu.Lock()
	changed, sick := m.changed, m.sick
	m.mu.Unlock()
	progress := m.client.Progress()
	if !progress.LastAcknowledged.IsZero() {
		m.stall = max(m.stall, time.Since(progress.LastAcknowledged))
	}
	v := view{at: time.Since(m.begin), serving: s.Serving, quorum: len(m.cluster.Pods())/2 + 1, stall: m.stall, writes: progress.Acknowledged}
	if !changed.IsZero() {
		v.elapsed = time.Since(changed)
	}
	if m.latest != nil {
		v.decision = m.latest.Pod + ": " + sidecarText(m.latest)
	}
	for _, name := range m.cluster.Pods() {
		var probe traffic.Probe
		for _, p := range s.Probes {
			if p.Endpoint == m.cluster.Endpoint(name) {
				probe = p
			}
		}
		at := situation{pod: m.ledger.Pod(name), strategy: m.strategy, serving: probe.Serving, removal: m.removed[name], latest: m.latest}
		row := podView{name: name, serving: probe.Serving, version: probe.Version, role: roleOf(probe, s)}
		if at.pod != nil {
			row.ready = at.pod.DeletionTimestamp == nil && harness.IsReady(at.pod)
			row.revision = shortRevision(harness.Revision(at.pod))
			if m.update != m.old {
				row.age = map[bool]string{true: newRevision, false: oldRevision}[harness.Revision(at.pod) == m.update]
			}
		}
		if name == sick && row.age != newRevision {
			at.fault = faultText
		}
		at.age = row.age
		row.what = at.explain()
		v.pods = append(v.pods, row)
	}
	return v
}

// leaderOf is the probe of the leader, nil if there is none or it does not answer.
func leaderOf(s traffic.Sample) *traffic.Probe {
	for i := range s.Probes {
		if p := &s.Probes[i]; s.Leader != 0 && p.Answered && p.MemberID == s.Leader {
			return p
		}
	}
	return nil
}

func roleOf(p traffic.Probe, s traffic.Sample) string {
	switch {
	case !p.Answered:
		return ""
	case p.Learner:
		return learnerRole
	case p.MemberID == s.Leader:
		return leaderRole
	case s.Leader == 0:
		return ""
	}
	return followerRole
}

func podOf(c *harness.Cluster, endpoint string) string {
	i := slices.IndexFunc(c.Pods(), func(pod string) bool { return c.Endpoint(pod) == endpoint })
	if i < 0 {
		return endpoint
	}
	return c.Pods()[i]
}
