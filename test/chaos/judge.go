package chaos

import (
	"bytes"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"
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
	// Relisted is true for what was not seen to change but found changed, after an outage
	// of the API server: the Version may be a later one than that of the change.
	Relisted bool
}

// Intent is a removal as it stands on record.
type Intent struct{ Pod, UID string }

// LeaseChange is one event of a watch of the record.
type LeaseChange struct {
	At time.Time
	// Version is the object's resourceVersion. It is the revision of the store, which Lease
	// and pods share here, so that it tells what was first without any clock.
	Version int64
	Holder  string
	// Intent is empty when nothing is under way.
	Intent Intent
}

// Request is what a sidecar asked of the API server through the proxy: a removal, or a write
// of the record.
type Request struct {
	// Removal tells a removal from a write of the record.
	Removal bool
	// By is the pod whose sidecar asked.
	By string
	// At is when it came to the proxy, Forwarded when it went on, Answered when the API
	// server had answered or nobody waited any more; zero for never.
	At, Forwarded, Answered time.Time
	// Verdict is the API server's status code, 0 for none.
	Verdict int
	// Intent is the pod that is to be removed, or what is written to the record.
	Intent Intent
}

// Deletion is a pod that the harness itself deletes.
type Deletion struct {
	At       time.Time
	Pod, UID string
}

// Scaling is a number of replicas from a time on.
type Scaling struct {
	At       time.Time
	Replicas int
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
	Fault    string
	From, To time.Time
}

// Evidence is all that a judgement rests on, none of it from the product.
type Evidence struct {
	// MaxEvidenceAge is the sidecars' --max-evidence-age.
	MaxEvidenceAge time.Duration
	Pods           []PodChange
	Lease          []LeaseChange
	Requests       []Request
	Deletions      []Deletion
	Scalings       []Scaling
	// Readings are by pod, in the order of Asked; Votings in that of At.
	Readings map[string][]Reading
	Votings  []Voting
	Faults   []Window
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
	// Served is true if the target's member certainly served. The rest is said of such only.
	Served bool
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
	if j.Served {
		text += fmt.Sprintf(", served, %d of %d other voters did", j.Others, j.Voters-1)
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
	byController = "the StatefulSet controller"
	byNobody     = "nobody known"
)

// seat is what the watch has told of the pods of one name so far.
type seat struct {
	uid     string
	created time.Time
	// terminates and gone are of that pod; ready is true if it ever was.
	terminates, gone, ready bool
	// ours is true if the last removal under this name was ours.
	ours bool
}

// Judge attributes every removal and judges ours.
func (e *Evidence) Judge() []Judgement {
	var judgements []Judgement
	seats := map[string]*seat{}
	remove := func(change PodChange, s *seat) {
		j := e.judge(change, s.uid, seats)
		s.ours = j.Ours
		judgements = append(judgements, j)
	}
	for _, change := range e.Pods {
		s := seats[change.Pod]
		if s == nil {
			s = &seat{}
			seats[change.Pod] = s
		}
		if s.uid != change.UID {
			if s.uid != "" && !s.terminates && !s.gone {
				// Its end was missed in an outage.
				ended := change
				ended.Relisted = true
				remove(ended, s)
			}
			*s = seat{uid: change.UID, created: change.At, ours: s.ours}
		}
		if (change.Terminates || change.Gone) && !s.terminates && !s.gone {
			remove(change, s)
		}
		s.terminates = s.terminates || change.Terminates
		s.gone = s.gone || change.Gone
		s.ready = s.ready || change.Ready
	}
	return judgements
}

// judge judges one removal. The seats are as they were before it.
func (e *Evidence) judge(change PodChange, uid string, seats map[string]*seat) Judgement {
	j := Judgement{At: change.At, Pod: change.Pod, UID: uid}
	request := e.attribute(&j)
	if request == nil {
		return j
	}
	e.checkIntent(&j, change, request)
	// It took effect between these two.
	from, to := request.Forwarded, change.At
	if !request.Answered.IsZero() && request.Answered.Before(to) {
		to = request.Answered
	}
	if to.Before(from) {
		to = from
	}
	if last := e.lastAnswer(j.Pod, from); last.Before(from.Add(-certainty)) || e.hit(j.Pod, last, from) {
		return j // It did not serve, or not certainly.
	}
	j.Served = true
	e.checkAway(&j, to, seats)
	e.checkQuorum(&j, request, from, to, seats)
	return j
}

// attribute says who did it, and returns the request if it was a sidecar.
func (e *Evidence) attribute(j *Judgement) *Request {
	var found *Request
	for i := range e.Requests {
		r := &e.Requests[i]
		// What the API server refused was not it; what it never answered may have been.
		if !r.Removal || r.Intent != (Intent{j.Pod, j.UID}) || r.Forwarded.IsZero() || r.Forwarded.After(j.At.Add(certainty)) || r.Verdict >= 300 {
			continue
		}
		if found == nil || found.Verdict == 0 && r.Verdict != 0 {
			found = r
		}
	}
	harness := slices.ContainsFunc(e.Deletions, func(d Deletion) bool { return d.Pod == j.Pod && d.UID == j.UID })
	switch {
	case found != nil && (found.Verdict != 0 || !harness):
		j.By, j.Ours = "the sidecar of "+found.By, true
		return found
	case harness:
		j.By = byHarness
	case e.scaledAway(j.Pod, j.At):
		j.By = byController
	default:
		j.By = byNobody
		j.violation("nobody is known to have removed pod %s (%s): no sidecar asked for it with this UID, nor did the harness, and it is not scaled away", j.Pod, j.UID)
	}
	return nil
}

// Overlooked says what the evidence does not show although it is so. Before and after are the
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
		j.violation("pod %s was removed with UID %s, but the intent on record names another pod of that name", j.Pod, j.UID)
	default:
		j.violation("pod %s was removed without an intent on record", j.Pod)
	}
}

// checkAway: no other pod that we removed was away. The order of events in the watch is the
// order in which they happened, however late they come.
func (e *Evidence) checkAway(j *Judgement, to time.Time, seats map[string]*seat) {
	for pod, s := range seats {
		if pod == j.Pod || !s.ours {
			continue
		}
		switch {
		case s.gone:
			j.violation("%s served and was removed while %s, which we had removed, was missing", j.Pod, pod)
		case s.terminates:
			j.violation("%s served and was removed while %s, which we had removed, was terminating", j.Pod, pod)
		case !s.ready && !e.answered(pod, s.created, to.Add(certainty)):
			j.violation("%s served and was removed while %s, which we had removed, had not come back", j.Pod, pod)
		}
	}
}

// checkQuorum: the voters that served besides the target were a quorum.
func (e *Evidence) checkQuorum(j *Judgement, request *Request, from, to time.Time, seats map[string]*seat) {
	if j.Voters = e.voters(from, to); j.Voters == 0 {
		j.violation("%s served and was removed, and nobody has seen how many voters there were", j.Pod)
		return
	}
	var silent []string
	for pod := range e.Readings {
		s := seats[pod]
		switch {
		case pod == j.Pod || e.learns(pod, from):
		case s != nil && s.ours && (s.gone || s.terminates):
			silent = append(silent, pod) // It is going, whatever it has answered a moment ago.
		case e.answered(pod, from.Add(-certainty), to.Add(certainty)):
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
		// The decision may rest on evidence of that age, and the observer looks now and then.
		oldest := request.At.Add(-e.MaxEvidenceAge - certainty)
		last := e.lastAnswer(pod, from)
		s := seats[pod]
		byUs := s != nil && s.ours && (s.gone || s.terminates || !s.ready)
		if !byUs && !last.IsZero() && !last.Before(oldest) && e.faultBetween(last, from) {
			fresh = append(fresh, pod)
		}
	}
	if j.Others+len(fresh) >= quorum {
		j.Residue = fresh
		return
	}
	j.violation("%s served and was removed when %d of the %d other voters served: quorum is %d (silent: %v)", j.Pod, j.Others, j.Voters-1, quorum, silent)
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

// answered tells whether the pod's member answered a read in that time.
func (e *Evidence) answered(pod string, from, to time.Time) bool {
	return slices.ContainsFunc(e.Readings[pod], func(r Reading) bool {
		return !r.Answered.IsZero() && !r.Learner && !r.Answered.Before(from) && !r.Answered.After(to)
	})
}

// lastAnswer is when the pod's member last answered as a voter before then.
func (e *Evidence) lastAnswer(pod string, before time.Time) time.Time {
	var last time.Time
	for _, r := range e.Readings[pod] {
		if !r.Learner && r.Answered.Before(before) && r.Answered.After(last) {
			last = r.Answered
		}
	}
	return last
}

// hit tells whether a fault of the script began in that time of which this pod was the victim:
// it may have stopped serving since it last answered.
func (e *Evidence) hit(pod string, from, to time.Time) bool {
	return slices.ContainsFunc(e.Faults, func(w Window) bool {
		return strings.HasSuffix(w.Fault, " "+pod) && !w.From.Before(from) && !w.From.After(to)
	})
}

// learns tells whether the pod's member was no voter when last asked.
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

// faultBetween tells whether a fault of the script can be the reason for what happened in
// that time.
func (e *Evidence) faultBetween(from, to time.Time) bool {
	return slices.ContainsFunc(e.Faults, func(w Window) bool {
		return !w.From.After(to) && (w.To.IsZero() || !w.To.Add(aftermath).Before(from))
	})
}
