package chaos

import (
	"bufio"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// Operations on a member of etcd, as the record names them.
const (
	defragments   = "defragment"
	disarms       = "disarm"
	removesMember = "remove-member"
)

var worksOn = []string{defragments, disarms, removesMember}

// Work is an operation on a member as it stands on record.
type Work struct {
	Operation string
	// ID is the member's, and Member its name, or that of the pod that it would have if it has never started.
	ID, Member string
}

// Rewriting is the time in which a member's database was rewritten.
type Rewriting struct {
	Pod      string
	From, To time.Time
}

// WorkJudgement is one operation on a member, and what is to be said of it.
type WorkJudgement struct {
	At time.Time
	Work
	// Others is how many voters served besides.
	Others int
	// Residue is as with a [Judgement].
	Residue    []string
	Violations []string
}

func (j WorkJudgement) String() string {
	text := fmt.Sprintf("%s %s (%s), %d others served", j.Operation, j.Member, j.ID, j.Others)
	if len(j.Residue) > 0 {
		text += fmt.Sprintf(", excused: %s failed just before", strings.Join(j.Residue, ", "))
	}
	for _, v := range j.Violations {
		text += "; VIOLATION: " + v
	}
	return text
}

// JudgeWork judges what stood on record as done to a member: each time that it was put there.
func (e *Evidence) JudgeWork() []WorkJudgement {
	_, works := e.judgeAll()
	return works
}

// judgeWork judges one. The replicas are as they were when it was put on record.
func (e *Evidence) judgeWork(l *LeaseChange, replicas map[string]*replica) WorkJudgement {
	w := WorkJudgement{At: l.At, Work: l.Work}
	t := span{asked: l.At, from: l.At, to: l.At}
	for i := range e.Requests {
		if r := &e.Requests[i]; !r.Removal && r.Work == l.Work && r.Verdict < 300 && !r.Forwarded.IsZero() &&
			!r.Forwarded.After(l.At) {
			t.asked, t.from = r.At, r.Forwarded
		}
	}
	j := Judgement{Pod: l.Work.Member}
	switch l.Work.Operation {
	case defragments:
		e.checkAway(&j, t, replicas)
		e.checkQuorum(&j, t, replicas)
		if len(j.Violations) == 0 {
			e.checkSilent(&j, t)
		}
	case removesMember:
		e.checkGhost(&j, t, replicas)
	case disarms: // It stops nobody, and its alarm may be that of a member that has gone.
	}
	w.Others, w.Residue = j.Others, j.Residue
	for _, v := range j.Violations {
		w.Violations = append(w.Violations, l.Work.Operation+": "+v)
	}
	return w
}

// checkGhost: what is removed from the list was asked for, has no pod, and has not answered since the evidence was
// gathered; and those that serve are a quorum with it and without it.
func (e *Evidence) checkGhost(j *Judgement, t span, replicas map[string]*replica) {
	if !slices.ContainsFunc(e.Asked, func(at time.Time) bool { return at.Before(t.asked) }) {
		j.violation("the member %s is removed, and nobody has asked for it", j.Pod)
	}
	neverStarts := slices.Contains(e.Ghosts, j.Pod)
	s := replicas[j.Pod]
	switch {
	case !neverStarts && !e.scaledAway(j.Pod, t.from):
		j.violation("the member %s is removed, and its pod is not scaled away", j.Pod)
	case s != nil && !s.gone:
		j.violation("the member %s is removed, and its pod is still there", j.Pod)
	case e.answered(j.Pod, e.oldest(t), t.to):
		j.violation("the member %s is removed, and it served %v before", j.Pod,
			t.from.Sub(e.lastAnswer(j.Pod, t.from)).Round(time.Millisecond))
	}
	voters := e.voters(t.from, t.to)
	var fresh []string
	for pod := range e.Readings {
		switch {
		case pod == j.Pod || e.learns(pod, t.from) || replicas[pod].leaves() || e.outOfRange(pod, t.from):
		case e.answered(pod, t.from.Add(-certainty), t.to.Add(certainty)):
			j.Others++
		case e.fresh(pod, t, replicas[pod]):
			fresh = append(fresh, pod)
		}
	}
	switch quorum := voters/2 + 1; { // It is not smaller than that without the member.
	case voters == 0:
		j.violation("the member %s is removed, and nobody has seen how many voters there were", j.Pod)
	case j.Others >= quorum:
	case j.Others+len(fresh) >= quorum:
		slices.Sort(fresh)
		j.Residue = fresh
	default:
		j.violation("the member %s is removed when %d of %d voters served: quorum is %d", j.Pod, j.Others, voters,
			quorum)
	}
}

// Together are the violations, since then, of the rule that Quorate does one thing at a time: no two members' databases
// were rewritten at once, none was without being on record, and no pod was removed meanwhile whose member served.
func (e *Evidence) Together(since time.Time) []string {
	var wrong []string
	add := func(format string, args ...any) { wrong = append(wrong, fmt.Sprintf(format, args...)) }
	removals := e.Judge()
	for i, r := range e.Rewritten {
		if r.To.Before(since) {
			continue
		}
		if on := e.workBefore(r.From); on.Operation != defragments || on.Member != r.Pod {
			add("the database of %s is rewritten, and the record says %+v", r.Pod, on)
		}
		for _, other := range e.Rewritten[:i] {
			if other.From.Before(r.To) && r.From.Before(other.To) {
				add("the databases of %s and %s are rewritten at once", r.Pod, other.Pod)
			}
		}
		for _, j := range removals {
			if j.Ours && j.Served && !j.At.Before(r.From) && !j.At.After(r.To) {
				add("%s served and was removed while the database of %s was rewritten", j.Pod, r.Pod)
			}
		}
	}
	return wrong
}

// Departed are the violations of the rule that a member leaves the list by an operation on record, or by the operator's
// own hand.
func (e *Evidence) Departed() []string {
	var wrong []string
	for id, name := range e.Members {
		by := func(w Work) bool { return w.Operation == removesMember && w.ID == id }
		if !slices.Contains(e.Listed, id) && !slices.Contains(e.Expelled, name) &&
			!slices.ContainsFunc(e.Lease, func(l LeaseChange) bool { return by(l.Work) }) &&
			!slices.ContainsFunc(e.Requests, func(r Request) bool { return by(r.Work) && r.Verdict/100 == 2 }) {
			wrong = append(wrong, fmt.Sprintf("the member %s (%q) has left the list, and nobody is known to have "+
				"removed it", id, name))
		}
	}
	slices.Sort(wrong)
	return wrong
}

// workBefore is what a sidecar has last written to the record.
func (e *Evidence) workBefore(at time.Time) Work {
	var last *Request
	for i := range e.Requests {
		if r := &e.Requests[i]; !r.Removal && r.Verdict/100 == 2 && !r.Forwarded.IsZero() && r.Forwarded.Before(at) &&
			(last == nil || r.Forwarded.After(last.Forwarded)) {
			last = r
		}
	}
	if last == nil {
		return Work{}
	}
	return last.Work
}

// rewritings reads from the logs of a member when its database was rewritten. If it never said that this was over, its
// process ended in the midst.
func rewritings(pod, path string) ([]Rewriting, error) {
	log, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer log.Close()
	var all []Rewriting
	open := false
	lines := bufio.NewScanner(log)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		var line struct{ TS, Msg string }
		if json.Unmarshal(lines.Bytes(), &line) != nil {
			continue // It is no line of etcd's own, or not whole.
		}
		at, err := time.Parse("2006-01-02T15:04:05.999999Z0700", line.TS)
		if err != nil {
			continue
		}
		switch n := len(all) - 1; {
		case line.Msg == "starting defragment":
			all, open = append(all, Rewriting{Pod: pod, From: at, To: at}), true
		case !open:
		default:
			all[n].To = at
			open = line.Msg != "finished defragment" && line.Msg != "failed to defragment"
		}
	}
	if err := lines.Err(); err != nil {
		return nil, fmt.Errorf("read %s: %w", path, err)
	}
	return all, nil
}

// rewritten reads the logs of all members.
func rewritten(logs map[string]string) ([]Rewriting, error) {
	var all []Rewriting
	for pod, pattern := range logs {
		paths, _ := filepath.Glob(pattern) // Only a malformed pattern is an error.
		for _, path := range paths {
			of, err := rewritings(pod, path)
			if err != nil {
				return nil, fmt.Errorf("look for defragmentations: %w", err)
			}
			all = append(all, of...)
		}
	}
	slices.SortFunc(all, func(a, b Rewriting) int { return a.From.Compare(b.From) })
	return all, nil
}
