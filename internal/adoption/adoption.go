// Package adoption says whether Quorate can roll a StatefulSet: a check for each thing that has to be there, with what
// was found and what to do about it. It reads nothing itself. What was read of Kubernetes and of etcd comes in as a
// [Cluster], and the rules are those of the packages that the coordinator decides by.
package adoption

import (
	"fmt"
	"io"
	"slices"
	"strings"

	appsv1 "k8s.io/api/apps/v1"

	"github.com/quorate/quorate/internal/report"
	"github.com/quorate/quorate/internal/workload"
	"github.com/quorate/quorate/membership"
	"github.com/quorate/quorate/pkg/rollout"
)

// Cluster is everything that the checks look at.
type Cluster struct {
	// Called is what the program is called, for the commands that are proposed.
	Called string

	Dump  *workload.Dump
	Set   *appsv1.StatefulSet
	Names workload.Names

	// State is as [rollout.Adopted] has it, which assumes what Assumed says. Policy is what it is decided by.
	State   rollout.State
	Policy  rollout.Policy
	Assumed []rollout.Assumption
	// NotAsked says why nothing is known from etcd, nil if something is.
	NotAsked *report.NotAsked

	// Unread says of the kinds of objects that nobody has read why not, by their plural in lower case.
	Unread map[string]string
	// Access is what the pods' ServiceAccount may do.
	Access Access
	// Kubernetes is the API server's version, such as v1.36.3. If it is empty, KubernetesUnknown says why.
	Kubernetes, KubernetesUnknown string

	// Authentication is etcd's, as the user learns it who asks. If it is not known, AuthenticationUnknown says why.
	Authentication        membership.Authentication
	AuthenticationUnknown string
	User                  string

	// Compare says that the members' data are to be compared. Hashes are what they answered, at that revision.
	Compare  bool
	Hashes   []membership.Hash
	Revision int64
}

// Result is the outcome of one check.
type Result string

// The results. A cluster is ready if nothing fails and nothing is unknown.
const (
	Pass Result = "pass"
	// Warn: Quorate rolls the pods all the same, and somebody should know.
	Warn Result = "warn"
	Fail Result = "fail"
	// Unknown: nobody could ask.
	Unknown Result = "unknown"
)

// Finding is what one check has found.
type Finding struct {
	Check  string `json:"check"`
	Result Result `json:"result"`
	Detail string `json:"detail"`
	// Do is what to do about it, and Run are commands for that.
	Do  string   `json:"do,omitempty"`
	Run []string `json:"run,omitempty"`
}

// The verdicts.
const (
	Ready    = "READY"
	NotReady = "NOT READY"
	NotKnown = "NOT KNOWN"
)

// Report is what all checks have found.
type Report struct {
	Namespace   string `json:"namespace"`
	StatefulSet string `json:"statefulSet"`
	// Verdict is READY, NOT READY where a check fails, or NOT KNOWN where none does and something could not be asked.
	Verdict string `json:"verdict"`
	// Counts says how many checks have each result.
	Counts map[Result]int `json:"counts"`
	Checks []Finding      `json:"checks"`
	// NotAsked says why nothing is known from etcd, and how to ask.
	NotAsked *report.NotAsked `json:"notAsked,omitempty"`
}

// Check is one row of the list.
type Check struct {
	// Name is the word in the output, and For says what has to be so.
	Name, For string

	judge func(*look) Finding
	// due says whether it is asked at all, and is nil for those that always are.
	due func(*Cluster) bool
}

// Examine makes every check that is due.
func Examine(c *Cluster) *Report {
	r := &Report{Namespace: c.Set.Namespace, StatefulSet: c.Set.Name, NotAsked: c.NotAsked,
		Counts: map[Result]int{Pass: 0, Warn: 0, Fail: 0, Unknown: 0}}
	l := newLook(c)
	for _, check := range Checks {
		if check.due != nil && !check.due(c) {
			continue
		}
		f := check.judge(l)
		f.Check, f.Detail, f.Do = check.Name, report.Plain(f.Detail), report.Plain(f.Do)
		r.Counts[f.Result]++
		r.Checks = append(r.Checks, f)
	}
	switch {
	case r.Counts[Fail] > 0:
		r.Verdict = NotReady
	case r.Counts[Unknown] > 0:
		r.Verdict = NotKnown
	default:
		r.Verdict = Ready
	}
	return r
}

// Headline is the verdict with its numbers.
func (r *Report) Headline() string {
	all := len(r.Checks)
	switch unknown, fail, warn := r.Counts[Unknown], r.Counts[Fail], r.Counts[Warn]; {
	case fail > 0 && unknown > 0:
		return fmt.Sprintf("%s: %d of %d checks fail, and %d could not be asked", NotReady, fail, all, unknown)
	case fail > 0:
		return fmt.Sprintf("%s: %d of %d checks fail", NotReady, fail, all)
	case unknown > 0:
		return fmt.Sprintf("%s: none of %d checks fails, and %d could not be asked", NotKnown, all, unknown)
	case warn > 0:
		return fmt.Sprintf("%s: none of %d checks fails, %d with a warning", Ready, all, warn)
	}
	return fmt.Sprintf("%s: all %d checks pass", Ready, all)
}

// Write writes it for a person: the verdict, then a line for each check with what to do below it, and at the end how to
// ask etcd if nobody has.
func (r *Report) Write(w io.Writer) error {
	var b strings.Builder
	line := func(format string, args ...any) {
		b.WriteString(strings.TrimRight(report.Clean(fmt.Sprintf(format, args...)), " ") + "\n")
	}
	line("%s", r.Headline())
	line("StatefulSet %s/%s", r.Namespace, r.StatefulSet)
	b.WriteString("\n")
	width := 0
	for i := range r.Checks {
		width = max(width, len(r.Checks[i].Check))
	}
	for i := range r.Checks {
		f := &r.Checks[i]
		line("%-7s  %-*s  %s", f.Result, width, f.Check, f.Detail)
		if f.Do != "" {
			line("%*s  what to do: %s", width+9, "", f.Do)
		}
		for _, command := range f.Run {
			line("%*s    %s", width+9, "", command)
		}
	}
	if r.NotAsked != nil {
		b.WriteString("\n" + r.NotAsked.String() + "\n")
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// look is a cluster with what follows from it once.
type look struct {
	*Cluster
	// pods are the StatefulSet's own, by name, and decision is what a rollout would begin with.
	pods     []rollout.Pod
	decision rollout.Decision
	// without are the pods that have no Quorate, and none says that no pod has it. Down says why it does not run in
	// those that have it, and see is the command that shows more.
	without []string
	none    bool
	down    map[string]string
	see     string
}

func newLook(c *Cluster) *look {
	l := &look{Cluster: c, decision: rollout.Decide(c.State, c.Policy)}
	l.without, l.none = Without(c.Dump, c.Set, c.Names)
	l.down, _, l.see = Crashed(c.Dump, c.Set, c.Names)
	for i := range c.State.Pods {
		if c.State.Pods[i].Owned {
			l.pods = append(l.pods, c.State.Pods[i])
		}
	}
	slices.SortFunc(l.pods, func(x, y rollout.Pod) int { return strings.Compare(x.Name, y.Name) })
	return l
}

// named are the names of the pods for which something is true.
func (l *look) named(is func(*rollout.Pod) bool) (names []string) {
	for i := range l.pods {
		if is(&l.pods[i]) {
			names = append(names, l.pods[i].Name)
		}
	}
	return names
}

// kubectl is a command about the namespace.
func (l *look) kubectl(format string, args ...any) string {
	return "kubectl " + fmt.Sprintf(format, args...) + " -n " + l.Set.Namespace
}

func found(r Result, format string, args ...any) Finding {
	return Finding{Result: r, Detail: fmt.Sprintf(format, args...)}
}

// do adds what to do, with commands.
func (f Finding) do(what string, run ...string) Finding {
	f.Do, f.Run = what, run
	return f
}

func list(names []string) string { return strings.Join(names, ", ") }
