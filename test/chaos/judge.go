package chaos

import (
	"bytes"
	"fmt"
	"math"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/quorate/quorate/test/harness"
)

const (
	// certainty is for how long before and after a removal a member must have been silent
	// to count as not serving, and how recently one must have answered to count as serving,
	// with no fault that has hit it since.
	// A single late answer proves nothing on a machine that is busy.
	certainty = time.Second
	// aftermath is how long after its end a fault may still be the reason that a member
	// fails: a container that crashed waits up to 8 s for its restart, and an election
	// takes some seconds more.
	aftermath = 20 * time.Second
	// certainLooks is how often a member must have been asked for its silence to be certain.
	certainLooks = 3
	// guardLag is how late an API server may be to see which pods the record names: usually milliseconds (make
	// measure-guard), and here everything runs on two cores. guardStarts is how much later it may be after it was away,
	// until it has read the policy and the Leases again.
	guardLag, guardStarts = time.Second, 5 * time.Second
	// lookLasts is how much later than the last answer that the observer got a sidecar may have
	// seen that quorum is lost: a look takes as long as a probe may.
	lookLasts = probeTimeout + certainty
)

// PodChange is one event of a watch of pods, in the order of the watch.
type PodChange struct {
	At time.Time
	// Version is the object's resourceVersion; see LeaseChange.
	Version    int64
	Pod, UID   string
	Gone       bool
	Terminates bool
	Ready      bool
	// Etcd is what the kubelet says of the member's container.
	Etcd Container
	// Relisted is true for what was not seen to change but found changed, after an outage
	// of the API server: the Version may be a later one than that of the change.
	Relisted bool
}

// Container is the state of a container, as the kubelet tells it.
type Container string

// The states.
const (
	Running Container = "running"
	// Terminated is a container that has ended, and is about to be started again.
	Terminated Container = "terminated"
	// Starting is one that has not run yet, for no bad reason.
	Starting Container = "starting"
	// BacksOff is one that the kubelet has tried to start, in vain.
	BacksOff Container = "backs off"
)

// Intent is a removal as it stands on record.
type Intent struct{ Pod, UID string }

// LeaseChange is one event of a watch of the record.
type LeaseChange struct {
	At time.Time
	// Version is the object's resourceVersion. It is the revision of the store, which Lease
	// and pods share here, so that it tells what was first without any clock.
	Version int64
	Holder  string
	// Intent is empty when no removal of a pod is under way, and Work when nothing is done to a member.
	Intent Intent
	Work   Work
	// Needed are the UIDs of the pods, by name, that quorum rests on. GuardOff lets them be taken all the same.
	Needed   map[string]string
	GuardOff bool
	// Relisted is true for what was found after an outage of the API server: what was between is not known.
	Relisted bool
}

// Request is what a sidecar asked of the API server through the proxy: a removal, or a write
// of the record.
type Request struct {
	// Removal tells a removal from a write of the record.
	Removal bool
	// By is the pod whose sidecar asked.
	By string
	// At is when it came to the proxy, Forwarded is when it went on, and Answered is when the
	// API server had answered or nobody waited any more. Zero means never.
	At, Forwarded, Answered time.Time
	// Verdict is the API server's status code, 0 for none.
	Verdict int
	// Intent is the pod that is to be removed, or what is written to the record, and Work what is to be done to a
	// member.
	Intent Intent
	Work   Work
}

// Deletion is a pod that the harness itself takes.
type Deletion struct {
	At       time.Time
	Pod, UID string
	// Way is one of [harness.Ways].
	Way string
	// Drain is true if a drain evicts it, and Hands if hands take it while quorum rests on others.
	Drain, Hands bool
}

// Scaling is a number of replicas. It is asked for At, and it has been so since Done; zero if
// that is not known yet.
type Scaling struct {
	At, Done time.Time
	Replicas int
	// Begins is true if the template changed with it and no pod was outdated before. A
	// coordinator that then removes a pod has seen both.
	Begins bool
}

// Reading is one linearizable read at one member. Answered is zero if there was no answer
// in time.
type Reading struct {
	Asked, Answered time.Time
	Learner         bool
}

// Voting is how many voters the member list had at a time.
type Voting struct {
	At     time.Time
	Voters int
}

// Window is the time of a fault of the script; To is zero while it lasts.
type Window struct {
	Fault string
	// Silences is true for what can keep a member from answering. A fault of a sidecar, or of
	// the API server, cannot.
	Silences bool
	From, To time.Time
}

// Unheard is the time in which the kubelet of a pod is cut off from the API server; To is zero while it lasts. Seen is
// what the harness itself sees of the process of etcd meanwhile, change by change.
type Unheard struct {
	Pod      string
	From, To time.Time
	Seen     []Seen
}

// Seen is whether a process runs from then on.
type Seen struct {
	At   time.Time
	Runs bool
}

// Evidence is all that a judgement rests on, none of it from the product.
type Evidence struct {
	// MaxEvidenceAge and SettleTimeout are the sidecars' flags of these names.
	MaxEvidenceAge, SettleTimeout time.Duration
	Pods                          []PodChange
	Lease                         []LeaseChange
	Requests                      []Request
	Deletions                     []Deletion
	Scalings                      []Scaling
	// Readings are by pod, in the order of Asked; Votings in that of At.
	Readings map[string][]Reading
	Votings  []Voting
	Faults   []Window
	// Unheard are the times in which a kubelet's last words may be wrong.
	Unheard []Unheard
	// Members are the names of all that were ever on the list, by ID, Listed the IDs that are there now, and Expelled
	// the members that the harness itself removes.
	Members          map[string]string
	Listed, Expelled []string
	// Asked is when an operator asked for the removal of ghosts. Rewritten are the times in which a member's
	// database was rewritten, by its own log, and Ghosts the pods after whose peer URLs voters were added that never
	// start.
	Asked     []time.Time
	Rewritten []Rewriting
	Ghosts    []string
}

// raceReport is how the race detector begins a report. A sidecar that is built with it (see
// [build.RaceVariable]) prints one and goes on, so that only its log tells.
const raceReport = "WARNING: DATA RACE"

// judgeLogs are the violations that the logs of sidecars themselves show.
func judgeLogs(paths []string) (violations []string, err error) {
	for _, path := range paths {
		text, err := os.ReadFile(path)
		if err != nil {
			return nil, fmt.Errorf("look for data races: %w", err)
		}
		if n := bytes.Count(text, []byte(raceReport)); n > 0 {
			violations = append(violations, fmt.Sprintf("data races that a sidecar reports in %s: %d", path, n))
		}
	}
	return violations, nil
}

// Judgement is one removal of a pod, who did it, and what is to be said of it.
type Judgement struct {
	// At is when the pod was first seen to terminate.
	At       time.Time
	Pod, UID string
	// By is who removed it.
	By string
	// Ours is true for a removal by a sidecar.
	Ours bool
	// Way is how hands took it, and evicted is true if a drain or they did so by an eviction.
	Way     string
	evicted bool
	// Named is true if the record said that quorum rests on it, and For how long it had when the removal was sent.
	Named bool
	For   time.Duration
	// Served is true if it was ours and the target's member certainly served.
	Served bool
	// Returns is true for another that would have come back by itself: its process ran, or
	// had ended just now.
	Returns bool
	// Voters and Others are all voters, and those of them that may have served besides the
	// target.
	Voters, Others int
	// Residue are members that failed within MaxEvidenceAge before, by the script's hand,
	// without which Others is less than a quorum: stated, excused and counted.
	Residue []string
	// Violations are rules of the product that the removal broke.
	Violations []string
}

func (j Judgement) String() string {
	text := fmt.Sprintf("%s removed by %s", j.Pod, j.By)
	switch {
	case j.Served:
		text += fmt.Sprintf(", served, %d of %d other voters did", j.Others, j.Voters-1)
	case j.Returns:
		text += ", did not serve, and would have come back by itself"
	}
	if j.Named {
		text += fmt.Sprintf(", which the record had named for %v", j.For)
	}
	if len(j.Residue) > 0 {
		text += fmt.Sprintf(", excused: %s failed just before", strings.Join(j.Residue, ", "))
	}
	for _, v := range j.Violations {
		text += "; VIOLATION: " + v
	}
	return text
}

// Who removes pods, besides the sidecars.
const (
	byHarness    = "the harness"
	byDrain      = "a drain"
	byHands      = "hands"
	byController = "the StatefulSet controller"
	byNobody     = "nobody known"
)

// replica is what the watch has told of the pods of one name so far.
type replica struct {
	uid     string
	created time.Time
	// terminates and gone are of that pod, since ended; ready is true if it ever was, and
	// readyNow if it was when last seen.
	terminates, gone, ready, readyNow bool
	ended                             time.Time
	// etcd is what the kubelet said last of its member, and down since when it has not said
	// that it runs; zero while it runs. restarted is when it had ended if it runs again.
	etcd            Container
	down, restarted time.Time
	// by is who did the last removal under this name, ours whether that was a sidecar.
	by   string
	ours bool
	// charged is true while nothing has become Ready since a Ready pod was removed by a
	// sidecar or by a drain: what a PodDisruptionBudget counts.
	charged bool
}

// leaves reports whether the pod goes, or has gone.
func (s *replica) leaves() bool { return s != nil && (s.gone || s.terminates) }

// byUs reports whether the pod is away because we removed it.
func (s *replica) byUs() bool { return s != nil && s.ours && (s.leaves() || !s.ready) }

// learn takes a change of the same pod in.
func (s *replica) learn(change PodChange) {
	if (change.Terminates || change.Gone) && !s.leaves() {
		s.ended = change.At
	}
	s.terminates = s.terminates || change.Terminates
	s.gone = s.gone || change.Gone
	s.ready = s.ready || change.Ready
	s.readyNow = change.Ready && !change.Gone
	if change.Ready && !s.leaves() {
		s.charged = false
	}
	if change.Gone {
		return
	}
	switch s.etcd = change.Etcd; {
	case s.etcd == Running && !s.down.IsZero():
		s.restarted, s.down = s.down, time.Time{}
	case s.etcd == Running:
	case s.down.IsZero():
		s.down = change.At
	}
}

// Judge attributes every removal, and judges ours and those of drains.
func (e *Evidence) Judge() []Judgement {
	judgements, _ := e.judgeAll()
	return judgements
}

// judgeAll judges the removals of pods and the operations on members, in the order of their versions.
func (e *Evidence) judgeAll() (judgements []Judgement, works []WorkJudgement) {
	replicas := map[string]*replica{}
	remove := func(change PodChange, s *replica) {
		j := e.judge(change, s, replicas)
		s.by, s.ours = j.By, j.Ours
		s.charged = s.charged || s.readyNow && !change.Relisted && (j.Ours || j.evicted)
		judgements = append(judgements, j)
	}
	before, lease := Work{}, e.Lease
	until := func(version int64) {
		for ; len(lease) > 0 && lease[0].Version < version; lease = lease[1:] {
			if l := &lease[0]; l.Work != before && l.Work.Operation != "" {
				works = append(works, e.judgeWork(l, replicas))
			}
			before = lease[0].Work
		}
	}
	for _, change := range e.Pods {
		until(change.Version)
		s := replicas[change.Pod]
		if s == nil {
			s = &replica{}
			replicas[change.Pod] = s
		}
		if s.uid != change.UID {
			if s.uid != "" && !s.leaves() {
				// Its end was missed in an outage.
				ended := change
				ended.Relisted = true
				remove(ended, s)
			}
			*s = replica{uid: change.UID, created: change.At, by: s.by, ours: s.ours, charged: s.charged}
		}
		if (change.Terminates || change.Gone) && !s.leaves() {
			remove(change, s)
		}
		s.learn(change)
	}
	until(math.MaxInt64)
	return judgements, works
}

// span is when a removal was asked for, and the time in which it took effect.
type span struct{ asked, from, to time.Time }

// oldest is since when something must have been true for the remover to know it. The decision
// may rest on evidence of that age, and the observer looks only now and then.
func (e *Evidence) oldest(t span) time.Time { return t.asked.Add(-e.MaxEvidenceAge - certainty) }

// judge judges one removal. The replicas are as they were before it.
func (e *Evidence) judge(change PodChange, target *replica, replicas map[string]*replica) Judgement {
	j := Judgement{At: change.At, Pod: change.Pod, UID: target.uid}
	request, asked := e.attribute(&j)
	if !change.Relisted {
		e.checkNeeded(&j, change, asked)
	}
	if target.readyNow && !change.Relisted && (j.Ours || j.evicted) {
		e.checkTogether(&j, replicas)
	}
	if request == nil {
		return j
	}
	e.checkIntent(&j, change, request)
	// It took effect between these two.
	t := span{asked: request.At, from: request.Forwarded, to: change.At}
	if !request.Answered.IsZero() && request.Answered.Before(t.to) {
		t.to = request.Answered
	}
	if t.to.Before(t.from) {
		t.to = t.from
	}
	last := e.lastAnswer(j.Pod, t.from)
	// Its kubelet had said by then that its process had ended, and it has not answered since, even if it runs again.
	ended := !change.Relisted && (target.down.After(last) || target.etcd == Running && target.restarted.After(last))
	down := ended || last.Before(t.from.Add(-certainty)) || e.hit(j.Pod, last, t.from)
	if !down && !change.Relisted && e.toldDown(j.Pod, target, t) {
		down, j.Residue = true, []string{backUnheard}
	}
	if down {
		// It did not serve, or not certainly. The pod is the one that was looked at, by its
		// resourceVersion, so that what it says is what was known.
		if change.Relisted {
			return j
		}
		state := e.state(j.Pod, target, t)
		j.Returns = state == Running || state != BacksOff && t.asked.Sub(target.down) < e.SettleTimeout-certainty
		if state == Running {
			e.checkVoting(&j, t, replicas)
		}
		return j
	}
	j.Served = true
	e.checkAway(&j, t, replicas)
	e.checkQuorum(&j, t, replicas)
	if len(j.Violations) == 0 {
		e.checkSilent(&j, t)
	}
	return j
}

// backUnheard excuses a removal of a member that had come back when its kubelet could not be heard any more.
const backUnheard = "(it came back unheard)"

// toldDown reports whether the kubelet of a pod that is cut off could still be heard when the evidence was gathered,
// and said that etcd did not run.
func (e *Evidence) toldDown(pod string, s *replica, t span) bool {
	u := e.unheard(pod, t.from)
	return u != nil && !s.down.IsZero() && !u.From.Before(e.oldest(t))
}

// state is what the container of the pod's member does, as its kubelet says. While that cannot be heard, it is what
// the harness itself sees; what has begun to run since the evidence was gathered was down then.
func (e *Evidence) state(pod string, s *replica, t span) Container {
	u := e.unheard(pod, t.from)
	if u == nil {
		return s.etcd
	}
	began, runs := false, false
	for _, seen := range u.Seen {
		switch {
		case seen.At.After(t.from):
		case !seen.At.After(e.oldest(t)):
			began, runs = seen.Runs, seen.Runs
		default:
			began, runs = began && seen.Runs, seen.Runs
		}
	}
	switch {
	case began:
		return Running
	case !runs && s.etcd == Running:
		return Terminated
	default:
		return s.etcd
	}
}

// unheard is the time in which the pod's kubelet was not heard then; nil if it was.
func (e *Evidence) unheard(pod string, at time.Time) *Unheard {
	for i := range e.Unheard {
		if u := &e.Unheard[i]; u.Pod == pod && !u.From.After(at) && (u.To.IsZero() || u.To.After(at)) {
			return u
		}
	}
	return nil
}

// attribute says who did it, and when that was asked for. It returns the request if it was a sidecar.
func (e *Evidence) attribute(j *Judgement) (*Request, time.Time) {
	var found *Request
	for i := range e.Requests {
		r := &e.Requests[i]
		// What the API server refused was not it; what it never answered may have been.
		if !r.Removal || r.Intent != (Intent{j.Pod, j.UID}) || r.Forwarded.IsZero() ||
			r.Forwarded.After(j.At.Add(certainty)) || r.Verdict >= 300 {
			continue
		}
		if found == nil || found.Verdict == 0 && r.Verdict != 0 {
			found = r
		}
	}
	// What was sent after the pod had been seen to go was not it.
	operator := slices.IndexFunc(e.Deletions, func(d Deletion) bool {
		return d.Pod == j.Pod && d.UID == j.UID && !d.At.After(j.At)
	})
	switch {
	case found != nil && (found.Verdict != 0 || operator < 0):
		j.By, j.Ours = "the sidecar of "+found.By, true
		return found, found.Forwarded
	case operator >= 0:
		d := e.Deletions[operator]
		j.By = byHarness
		switch {
		case d.Drain:
			j.By = byDrain
		case d.Hands:
			j.By, j.Way = byHands, d.Way
		}
		j.evicted = d.Drain || d.Way == harness.ByEviction
		return nil, d.At
	case e.scaledAway(j.Pod, j.At):
		j.By = byController
	default:
		j.By = byNobody
		j.violation("nobody is known to have removed pod %s (%s): no sidecar asked for it with this UID, nor did the "+
			"harness, and it is not scaled away", j.Pod, j.UID)
	}
	return nil, j.At.Add(-certainty) // Nobody knows better.
}

// checkNeeded: the quorum guard lets no pod be taken that the record has named for longer than an API server needs to
// see it, by whomever. The watch tells without a clock whether the record named the pod when it went.
func (e *Evidence) checkNeeded(j *Judgement, change PodChange, asked time.Time) {
	var since time.Time
	for i := range e.Lease {
		l := &e.Lease[i]
		if l.Version >= change.Version {
			break
		}
		switch named := l.Needed[j.Pod] == j.UID && !l.GuardOff; {
		case !named:
			since = time.Time{}
		case since.IsZero(), l.Relisted:
			since = l.At
		}
	}
	if since.IsZero() {
		return
	}
	j.Named = true
	for _, w := range e.Faults {
		switch seen := w.To.Add(guardStarts); {
		case w.Fault != string(StopAPI) && w.Fault != string(PauseAPI), w.From.After(asked):
		case w.To.IsZero():
			since = asked
		case seen.After(since):
			since = seen
		}
	}
	if j.For = max(asked.Sub(since), 0); j.For > guardLag {
		j.violation("%s was taken by %s although the record had said for %v that quorum rests on it", j.Pod, j.By,
			j.For.Round(time.Millisecond))
	}
}

// Overlooked says what happened but is missing from the evidence. Before and after are the
// names of the pods that there were at the beginning of a round and at its end, by UID; at the
// end every member served. An auditor that sees nothing finds nothing wrong, and must not pass.
func (e *Evidence) Overlooked(before, after map[string]string, from, to time.Time) []string {
	var missing []string
	add := func(format string, args ...any) { missing = append(missing, fmt.Sprintf(format, args...)) }
	there, judged := map[string]bool{}, map[string]bool{}
	for _, c := range e.Pods {
		there[c.UID] = !c.Gone && !c.Terminates
	}
	for _, j := range e.Judge() {
		judged[j.UID] = true
	}
	for uid, pod := range before {
		if after[uid] == "" && !judged[uid] {
			add("pod %s (%s) has gone, and its removal was not judged", pod, uid)
		}
	}
	for uid, pod := range after {
		if !there[uid] {
			add("pod %s (%s) is there, and the watch does not show it", pod, uid)
		}
		if !e.answered(pod, from, to) {
			add("the member of pod %s serves, and was not seen to answer", pod)
		}
	}
	if len(e.Lease) == 0 {
		add("the rollout is over, and nobody was seen to write the record")
	}
	slices.Sort(missing)
	return missing
}

func (j *Judgement) violation(format string, args ...any) {
	j.Violations = append(j.Violations, fmt.Sprintf(format, args...))
}

func (e *Evidence) scaledAway(pod string, at time.Time) bool {
	replicas := 0
	for _, s := range e.Scalings {
		if !s.At.After(at) {
			replicas = s.Replicas
		}
	}
	return ordinal(pod) >= replicas
}

func ordinal(pod string) int {
	n := 0
	_, _ = fmt.Sscan(pod[strings.LastIndexByte(pod, '-')+1:], &n) // The harness names the pods.
	return n
}

// checkIntent: the removal stood on record when it took effect. The watch of the Lease
// knows, without a clock; where the API server's outage has torn it, the proxy saw what the
// sidecar wrote before it asked.
func (e *Evidence) checkIntent(j *Judgement, change PodChange, request *Request) {
	want := Intent{j.Pod, j.UID}
	var before *LeaseChange
	for i := range e.Lease {
		if l := &e.Lease[i]; l.Version < change.Version {
			before = l
		}
	}
	if before != nil && before.Intent == want {
		return
	}
	var written *Request
	for i := range e.Requests {
		if r := &e.Requests[i]; !r.Removal && r.Verdict/100 == 2 && r.Forwarded.Before(request.Forwarded) {
			written = r
		}
	}
	switch {
	case written != nil && written.Intent == want:
	case before != nil && before.Intent.Pod == j.Pod, written != nil && written.Intent.Pod == j.Pod:
		j.violation("pod %s was removed with UID %s, but the intent on record names another pod of that name", j.Pod,
			j.UID)
	default:
		j.violation("pod %s was removed without an intent on record", j.Pod)
	}
}

// checkTogether: with this Ready pod, sidecars and drains together have not taken more than a
// PodDisruptionBudget allows that asks for a quorum: of three members one. It is said of a
// drain's evictions, too: what a sidecar has taken without charging the budget lets them pass.
func (e *Evidence) checkTogether(j *Judgement, replicas map[string]*replica) {
	var with []string
	ours, drained := j.Ours, !j.Ours
	for pod, s := range replicas {
		if pod != j.Pod && s.charged && !e.scaledAway(pod, j.At) {
			with = append(with, pod+" by "+s.by)
			ours, drained = ours || s.ours, drained || !s.ours
		}
	}
	if allowed := (e.replicas(j.At) - 1) / 2; ours && drained && len(with) >= allowed {
		slices.Sort(with)
		j.violation(
			"%s was Ready and removed by %s while others that had been Ready were away (%s): a budget allows %d", j.Pod,
			j.By, strings.Join(with, ", "), allowed)
	}
}

// replicas are how many there are; the larger number while and shortly after it is changed.
func (e *Evidence) replicas(at time.Time) int {
	replicas := 0
	for _, s := range e.Scalings {
		switch {
		case s.At.After(at):
		case !s.Done.IsZero() && s.Done.Add(aftermath).Before(at):
			replicas = s.Replicas
		default:
			replicas = max(replicas, s.Replicas)
		}
	}
	return replicas
}

// checkAway: no other pod that we removed was away, and none that anybody had removed when the
// evidence was gathered. The order of events in the watch is the order in which they happened,
// however late they come.
func (e *Evidence) checkAway(j *Judgement, t span, replicas map[string]*replica) {
	for pod, s := range replicas {
		if pod == j.Pod || e.scaledAway(pod, t.to) {
			continue
		}
		switch {
		case s.ours && s.gone:
			j.violation("%s served and was removed while %s, which we had removed, was missing", j.Pod, pod)
		case s.ours && s.terminates:
			j.violation("%s served and was removed while %s, which we had removed, was terminating", j.Pod, pod)
		case s.ours && !s.ready && !e.heard(pod, s.created, t.to.Add(certainty)):
			j.violation("%s served and was removed while %s, which we had removed, had not come back", j.Pod, pod)
		case s.leaves() && s.ended.Before(e.oldest(t)):
			j.violation("%s served and was removed while %s, removed by %s for %v, was away", j.Pod, pod, s.by,
				t.asked.Sub(s.ended).Round(time.Millisecond))
		}
	}
}

// checkSilent: one member may be unavailable, and the target is that one. No other voter of ours
// had been silent since before the evidence was gathered.
func (e *Evidence) checkSilent(j *Judgement, t span) {
	for pod := range e.Readings {
		if pod != j.Pod && !e.scaledAway(pod, t.to) && !e.learns(pod, t.from) &&
			e.silent(pod, e.oldest(t), t.to.Add(certainty)) {
			j.violation("%s served and was removed while the member of %s had been silent since before the evidence "+
				"was gathered", j.Pod, pod)
		}
	}
}

// checkQuorum: the voters that served besides the target were a quorum. A pod that is being
// scaled away is no survivor, whatever it answers: its voter counts, and may go at any time.
func (e *Evidence) checkQuorum(j *Judgement, t span, replicas map[string]*replica) {
	if j.Voters = e.voters(t.from, t.to); j.Voters == 0 {
		j.violation("%s served and was removed, and nobody has seen how many voters there were", j.Pod)
		return
	}
	var silent []string
	for pod := range e.Readings {
		switch {
		case pod == j.Pod || e.learns(pod, t.from):
		case replicas[pod].leaves(), e.outOfRange(pod, t.from):
			silent = append(silent, pod) // It is going, whatever it has answered a moment ago.
		case e.heard(pod, t.from.Add(-certainty), t.to.Add(certainty)):
			j.Others++
		default:
			silent = append(silent, pod)
		}
	}
	quorum := j.Voters/2 + 1
	if j.Others >= quorum {
		return
	}
	slices.Sort(silent)
	var fresh []string
	for _, pod := range silent {
		if e.fresh(pod, t, replicas[pod]) {
			fresh = append(fresh, pod)
		}
	}
	if j.Others+len(fresh) >= quorum {
		j.Residue = fresh
		return
	}
	if e.sufficed(j.Others+len(fresh), t) {
		j.Residue = slices.Concat(fresh, []string{voterAdded})
		return
	}
	j.violation("%s served and was removed when %d of the %d other voters served: quorum is %d (silent: %v)", j.Pod,
		j.Others, j.Voters-1, quorum, silent)
}

// voterAdded excuses a removal for which the voters sufficed.
const voterAdded = "(a voter was added)"

// sufficed reports whether so many voters were a quorum before the script added one that raises it, which may have been
// after the evidence was gathered.
func (e *Evidence) sufficed(voters int, t span) bool {
	return len(e.Ghosts) > 0 && voters >= e.fewestVoters(e.oldest(t), t.to)/2+1
}

// fresh is true for a voter that was a survivor when the evidence was gathered and no longer is
// through the script: a fault, a drain or a change of the replicas. What we did is never fresh.
func (e *Evidence) fresh(pod string, t span, s *replica) bool {
	oldest := e.oldest(t)
	last := e.lastAnswer(pod, t.from)
	switch {
	case s.byUs(), last.IsZero(), last.Before(oldest):
		return false
	case e.outOfRange(pod, t.from):
		return !e.outOfRange(pod, oldest) && !e.begun(t.asked)
	case s.leaves():
		return !s.ended.Before(oldest)
	default:
		return e.silencedBetween(last, t.from)
	}
}

// checkVoting: a process that runs may vote, whatever it answers us. While some member serves
// there is a quorum, and it may need this one: the voters that serve, and those that may vote,
// must be one without it. When none serves, a process that runs goes only after quorum has been
// lost for SettleTimeout: it rejoins the moment that a peer returns.
func (e *Evidence) checkVoting(j *Judgement, t span, replicas map[string]*replica) {
	oldest := e.oldest(t)
	if j.Voters = e.voters(t.from, t.to); j.Voters == 0 {
		j.violation("%s ran and was removed, and nobody has seen how many voters there were", j.Pod)
		return
	}
	var mayVote, fresh []string
	looks, last := 0, time.Time{}
	for pod, readings := range e.Readings {
		for _, r := range readings {
			if !r.Asked.Before(oldest) && r.Asked.Before(t.from) {
				looks++
			}
		}
		if answer := e.lastAnswer(pod, t.from); answer.After(last) {
			last = answer
		}
		s := replicas[pod]
		switch serves := e.heard(pod, oldest, t.to.Add(certainty)); {
		case s == nil || pod == j.Pod || e.learns(pod, t.from):
		case !s.leaves() && (serves || s.etcd != BacksOff), !s.byUs() && !s.gone && serves:
			mayVote = append(mayVote, pod)
		case !s.byUs() && (s.leaves() && !s.ended.Before(oldest) || !s.leaves() && !s.down.Before(oldest)):
			fresh = append(fresh, pod)
		}
	}
	slices.Sort(mayVote)
	slices.Sort(fresh)
	quorum, lost := j.Voters/2+1, t.asked.Sub(last)
	switch {
	case looks < certainLooks, lost >= e.SettleTimeout-lookLasts:
	case !last.Before(oldest) && len(mayVote) >= quorum:
	case !last.Before(oldest) && len(mayVote)+len(fresh) >= quorum:
		j.Residue = fresh
	case !last.Before(oldest) && e.sufficed(len(mayVote)+len(fresh), t):
		j.Residue = slices.Concat(fresh, []string{voterAdded})
	case !last.Before(oldest):
		j.violation("%s ran and was removed when only %v of the %d other voters may have voted: quorum is %d", j.Pod,
			mayVote, j.Voters-1, quorum)
	default:
		j.violation("%s ran and was removed when no member had served for %v: it is to be left alone for %v", j.Pod,
			lost.Round(time.Millisecond), e.SettleTimeout)
	}
}

// costs are what is wrong with the removals of the time in which a bad revision was out.
func costs(judgements []Judgement, bad Window) []string {
	var taken []string
	for _, j := range judgements {
		if (j.Served || j.Returns) && bad.holds(j.At) {
			taken = append(taken, j.Pod)
		}
	}
	if len(taken) < 2 {
		return nil
	}
	return []string{fmt.Sprintf("a bad revision took %v, which all served or would have come back by themselves",
		taken)}
}

// outOfRange reports whether the pod was certainly being scaled away, or had been, at that time.
func (e *Evidence) outOfRange(pod string, at time.Time) bool {
	replicas := ordinal(pod) + 1
	for _, s := range e.Scalings {
		switch {
		case !s.Done.IsZero() && !s.Done.After(at):
			replicas = s.Replicas
		case !s.At.After(at):
			replicas = max(replicas, s.Replicas)
		}
	}
	return ordinal(pod) >= replicas
}

// begun reports whether the last change of the replicas, then, was one that began the rollout.
func (e *Evidence) begun(at time.Time) bool {
	begun := false
	for _, s := range e.Scalings {
		if !s.At.After(at) {
			begun = s.Begins
		}
	}
	return begun
}

// silent reports whether the pod's member, which had answered once, answered nothing that it was
// asked in that time.
func (e *Evidence) silent(pod string, from, to time.Time) bool {
	asked := 0
	for _, r := range e.Readings[pod] {
		if !r.Asked.Before(from) && !r.Asked.After(to) {
			asked++
		}
	}
	return asked >= certainLooks && !e.lastAnswer(pod, from).IsZero() && !e.heard(pod, from, to)
}

// fewestVoters is the smallest number of voters that was seen in that time.
func (e *Evidence) fewestVoters(from, to time.Time) int {
	least := e.voters(from, to)
	for _, v := range e.Votings {
		if v.Voters > 0 && !v.At.Before(from) && !v.At.After(to) {
			least = min(least, v.Voters)
		}
	}
	return least
}

// voters is the number of voters then; where two numbers may be meant, the smaller one.
func (e *Evidence) voters(from, to time.Time) int {
	before, after := 0, 0
	for _, v := range e.Votings {
		switch {
		case v.Voters == 0:
		case !v.At.After(from):
			before = v.Voters
		case v.At.After(to) && after == 0:
			after = v.Voters
		}
	}
	if before == 0 || after != 0 && after < before {
		return after
	}
	return before
}

// heard reports whether the pod's member answered a read in that time, or its kubelet.
func (e *Evidence) heard(pod string, from, to time.Time) bool {
	return e.answered(pod, from, to) || slices.ContainsFunc(e.readied(pod), func(at time.Time) bool {
		return !at.Before(from) && !at.After(to)
	})
}

// readied is when the pod became Ready. Its member has answered its kubelet then, which may be long before it
// answers us, or in a moment between two questions of ours.
func (e *Evidence) readied(pod string) []time.Time {
	var at []time.Time
	ready := true // Whether it was before is not known.
	for _, c := range e.Pods {
		if c.Pod != pod {
			continue
		}
		if c.Ready && !ready && !c.Relisted && !e.learns(pod, c.At) {
			at = append(at, c.At)
		}
		ready = c.Ready
	}
	return at
}

// answered reports whether the pod's member answered a read of ours in that time.
func (e *Evidence) answered(pod string, from, to time.Time) bool {
	return slices.ContainsFunc(e.Readings[pod], func(r Reading) bool {
		return !r.Answered.IsZero() && !r.Learner && !r.Answered.Before(from) && !r.Answered.After(to)
	})
}

// lastAnswer is when the pod's member last answered as a voter before then, us or its kubelet.
func (e *Evidence) lastAnswer(pod string, before time.Time) time.Time {
	var last time.Time
	for _, at := range e.readied(pod) {
		if at.Before(before) {
			last = at
		}
	}
	for _, r := range e.Readings[pod] {
		if !r.Learner && r.Answered.Before(before) && r.Answered.After(last) {
			last = r.Answered
		}
	}
	return last
}

// hit is true if a fault of the script on this pod began in that time. Its member may have
// stopped serving since it last answered.
func (e *Evidence) hit(pod string, from, to time.Time) bool {
	return slices.ContainsFunc(e.Faults, func(w Window) bool {
		return w.Silences && strings.HasSuffix(w.Fault, " "+pod) && !w.From.Before(from) && !w.From.After(to)
	})
}

// silencedBetween is faultBetween, of those faults that can silence a member.
func (e *Evidence) silencedBetween(from, to time.Time) bool {
	return slices.ContainsFunc(e.Faults, func(w Window) bool { return w.Silences && w.covers(from, to) }) ||
		slices.ContainsFunc(e.Deletions, func(d Deletion) bool { return !d.Drain && d.covers(from, to) })
}

// learns reports whether the pod's member was no voter when last asked.
func (e *Evidence) learns(pod string, at time.Time) bool {
	learns := false
	for _, r := range e.Readings[pod] {
		if r.Asked.After(at) {
			break
		}
		learns = r.Learner
	}
	return learns
}

// faultBetween reports whether a fault of the script, or an operator's removal, can be the reason
// for what happened in that time.
func (e *Evidence) faultBetween(from, to time.Time) bool {
	return slices.ContainsFunc(e.Faults, func(w Window) bool { return w.covers(from, to) }) ||
		slices.ContainsFunc(e.Deletions, func(d Deletion) bool { return d.covers(from, to) })
}

func (d Deletion) covers(from, to time.Time) bool {
	return Window{From: d.At, To: d.At}.covers(from, to)
}

func (w Window) holds(at time.Time) bool {
	return at.After(w.From) && (w.To.IsZero() || at.Before(w.To))
}

func (w Window) covers(from, to time.Time) bool {
	return !w.From.After(to) && (w.To.IsZero() || !w.To.Add(aftermath).Before(from))
}
