package main

import (
	"fmt"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/quorate/quorate/test/harness"
)

// podView is one row of the table.
type podView struct {
	name string
	// role is what the member is in etcd, empty when it does not say.
	role string
	// revision is the short hash of the pod's revision; age is "old" or "new" once
	// there are two.
	revision, age string
	// version is the etcd version that the member reports.
	version string
	// serving is the observer's word: the member answers linearizable reads.
	serving bool
	ready   bool
	// what says what is happening to the pod, and why.
	what string
}

// view is the cluster at one moment.
type view struct {
	// at is when it was, since the start of the demo.
	at   time.Duration
	pods []podView
	// quorum is how many voters must serve, serving how many do.
	serving, quorum int
	// elapsed is the time since the image changed, 0 before.
	elapsed time.Duration
	// stall is the longest time so far in which no write was acknowledged.
	stall  time.Duration
	writes int
	// decision is what the coordinator decided last, empty if there is none.
	decision string
}

// wideEnough is how many columns the last column of the table needs to stand beside
// the others; with fewer it gets a line of its own.
const wideEnough = 36

// table renders the view for a terminal of that many columns.
func (v view) table(width int) []line {
	const gap = "  "
	nameWidth := len("MEMBER")
	for _, p := range v.pods {
		nameWidth = max(nameWidth, len(p.name))
	}
	columns := []int{nameWidth, len("follower"), len("12345678 new"), len("3.5.35"), len("serves"), len("Ready")}
	left := 0
	for _, w := range columns {
		left += w + len(gap)
	}
	beside := width-left >= wideEnough

	row := func(last string, styles []style, cells ...string) line {
		var l line
		for i, c := range cells {
			l = append(l, span{pad(c, columns[i]), styles[i]}, span{text: gap})
		}
		return append(l, span{text: last})
	}
	header := make([]style, len(columns))
	for i := range header {
		header[i] = bold
	}
	title := row("", header, "MEMBER", "ROLE", "REVISION", "ETCD", "SERVES", "READY")
	if beside {
		title[len(title)-1] = span{"WHAT IS HAPPENING AND WHY", bold}
	}
	lines := []line{title.cut(width)}
	for _, p := range v.pods {
		what := p.what
		if !beside {
			what = ""
		}
		l := row(what, []style{normal, roleStyle(p.role), ageStyle(p.age), normal, yesStyle(p.serving), yesStyle(p.ready)},
			p.name, dash(p.role), strings.TrimSpace(dash(p.revision)+" "+p.age), dash(p.version), yes(p.serving), yes(p.ready))
		lines = append(lines, l.cut(width))
		if !beside && p.what != "" {
			lines = append(lines, line{{"  " + p.what, dim}}.cut(width))
		}
	}
	return append(lines, v.status().cut(width), v.latest().cut(width))
}

// status is the line of figures under the table.
func (v view) status() line {
	serving := span{fmt.Sprintf("%d of %d serve, quorum %d", v.serving, len(v.pods), v.quorum), green}
	switch {
	case v.serving < v.quorum:
		serving = span{serving.text + ": NO QUORUM", red}
	case v.serving < len(v.pods):
		serving.style = yellow
	}
	rollout := "rollout not begun"
	if v.elapsed > 0 {
		rollout = "rollout " + seconds(v.elapsed)
	}
	return line{
		{rollout + " | ", normal}, serving,
		{fmt.Sprintf(" | longest write pause %.2fs | %d writes", v.stall.Seconds(), v.writes), normal},
	}
}

// latest is the line that tells the last decision.
func (v view) latest() line {
	if v.decision == "" {
		return line{{"no decision yet", dim}}
	}
	return line{{"last decision: ", normal}, {v.decision, cyan}}
}

// plain is the row as one line of plain text.
func (p podView) plain() string {
	words := []string{pad(p.name, 12), pad(dash(p.role), 8), pad(strings.TrimSpace(dash(p.revision)+" "+p.age), 12)}
	words = append(words, pad("etcd "+dash(p.version), 11), pad(map[bool]string{true: "serves", false: "down"}[p.serving], 6))
	words = append(words, pad(map[bool]string{true: "Ready", false: "not Ready"}[p.ready], 9), p.what)
	return strings.Join(words, "  ")
}

func dash(s string) string {
	if s == "" {
		return "-"
	}
	return s
}

func yes(b bool) string {
	if b {
		return "yes"
	}
	return "no"
}

func yesStyle(b bool) style {
	if b {
		return green
	}
	return red
}

func roleStyle(role string) style {
	if role == leaderRole {
		return bold
	}
	return normal
}

func ageStyle(age string) style {
	switch age {
	case oldRevision:
		return yellow
	case newRevision:
		return green
	}
	return normal
}

// The roles of a member and the ages of a revision.
const (
	leaderRole   = "leader"
	followerRole = "follower"
	learnerRole  = "learner"
	oldRevision  = "old"
	newRevision  = "new"
)

// situation is what is known of a pod when its row is explained.
type situation struct {
	// pod is nil while it is missing.
	pod      *corev1.Pod
	strategy string
	// age is "old" or "new", empty before the image changed.
	age     string
	serving bool
	// removal is the decision to remove this pod, latest the coordinator's last
	// decision; nil if there is none.
	removal, latest *harness.LogEntry
	// fault says what is wrong with this pod on purpose, empty for nothing.
	fault string
}

// explain says what is happening to the pod, and why.
func (s situation) explain() string {
	switch {
	case s.pod == nil:
		return "gone; the StatefulSet controller creates it anew"
	case s.pod.DeletionTimestamp != nil && s.removal != nil:
		return "removed by Quorate: " + s.removal.Message
	case s.pod.DeletionTimestamp != nil && s.strategy == rollingUpdate:
		return "removed by Kubernetes: the highest ordinal that is not updated goes next"
	case s.pod.DeletionTimestamp != nil:
		return "is being removed"
	}
	ready, etcd := harness.IsReady(s.pod), etcdState(s.pod)
	switch {
	case s.age == newRevision && ready && s.serving:
		return "updated"
	case s.age == newRevision && ready:
		return "updated, but its member does not serve"
	case s.age == newRevision && s.serving:
		return "updated; it serves and becomes Ready"
	case s.age == newRevision:
		return "updated; etcd " + etcd
	case s.fault != "" && !s.serving:
		return "etcd " + etcd + ": " + s.fault
	case s.latest != nil && s.latest.Target == s.pod.Name:
		return s.latest.Action + ": " + s.latest.Message
	case s.age == oldRevision && !s.serving:
		return "outdated; etcd " + etcd + " and does not serve"
	case s.age == oldRevision && s.strategy == rollingUpdate:
		return "outdated; Kubernetes goes from the highest ordinal down"
	case s.age == oldRevision:
		return "outdated; waits for its turn"
	case !s.serving:
		return "etcd " + etcd
	}
	return ""
}

// etcdState is the kubelet's word on the etcd container.
func etcdState(p *corev1.Pod) string {
	for i := range p.Status.ContainerStatuses {
		c := &p.Status.ContainerStatuses[i]
		if c.Name != "etcd" {
			continue
		}
		restarts := ""
		if c.RestartCount > 0 {
			restarts = fmt.Sprintf(" (restarts: %d)", c.RestartCount)
		}
		switch {
		case c.State.Waiting != nil:
			return c.State.Waiting.Reason + restarts
		case c.State.Terminated != nil:
			return fmt.Sprintf("ended with exit code %d", c.State.Terminated.ExitCode) + restarts
		case c.State.Running != nil:
			return "runs" + restarts
		}
	}
	return "is not started yet"
}

// shortRevision is the hash at the end of a revision's name.
func shortRevision(revision string) string {
	hash := revision[strings.LastIndexByte(revision, '-')+1:]
	return hash[:min(8, len(hash))]
}
