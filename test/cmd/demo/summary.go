package main

import (
	"fmt"
	"slices"
	"strings"
	"time"
)

// line is a line that is printed in a style.
type line struct {
	how  style
	text string
}

// summary renders the outcome, the verdict last.
func (o *outcome) summary() []line {
	lines := []line{{}, {bold, fmt.Sprintf("Summary of SCENARIO=%s STRATEGY=%s", o.scenario, o.strategy)}}
	add := func(name, format string, args ...any) {
		lines = append(lines, line{text: fmt.Sprintf("  %-25s", name) + fmt.Sprintf(format, args...)})
	}
	t, c := &o.figures.Traffic, &o.figures.Cluster
	add("order of replacement", "%s", o.describeOrder())
	add("leader changes", "%s", o.describeLeaders())
	add("longest write stall", "%.2f s for one writer; %.2f s without any write",
		t.LongestWriteStall.Seconds, t.LongestWriteOutage.Seconds)
	add("fewest serving voters", "%d of %d", c.FewestServing, c.FewestServingAt.Voters)
	add("fewest Ready pods", "%d of %d", o.fewestReady, len(o.pods))
	outages := ""
	if len(c.Outages) > 0 {
		outages = " (" + count(len(c.Outages), "time") + ")"
	}
	add("without quorum", "%.1f s%s", c.WithoutQuorumSeconds, outages)
	add("acknowledged writes", "%d, lost: %d%s", t.AcknowledgedWrites, t.LostWrites, o.describeVerification())
	requests := t.Writes.Total + t.Reads.Total + t.SerializableReads.Total
	failed := t.Writes.Failed + t.Reads.Failed + t.SerializableReads.Failed
	retried := t.Writes.Retried + t.Reads.Retried + t.SerializableReads.Retried
	add("failed requests", "%d of %d; %d met a member that was away, and were answered by another",
		failed, requests, max(0, retried-failed))
	add("rollout time", "%s", inSeconds(o.rollout))
	add("total time", "%s (building %s, starting %s)", inSeconds(o.total), inSeconds(o.building), inSeconds(o.starting))
	if o.judgesMemory() {
		add("memory of a sidecar", "%s", o.describeMemory())
	}
	return append(append(lines, line{}), o.judge().lines()...)
}

func (j judgement) lines() []line {
	how := green
	if !j.ok {
		how = red
	}
	lines := []line{{how, j.line}}
	for _, b := range j.broken {
		lines = append(lines, line{red, "  broken: " + b})
	}
	return lines
}

func (o *outcome) describeOrder() string {
	if len(o.removals) == 0 {
		return "none was replaced"
	}
	var words []string
	for _, name := range o.order() {
		switch name {
		case o.leader:
			name += " (led)"
		case o.sick:
			name += " (was down)"
		}
		words = append(words, name)
	}
	return strings.Join(words, ", ")
}

func (o *outcome) describeLeaders() string {
	c := &o.figures.Cluster
	if len(c.Leaders) == 0 {
		return "no leader was seen"
	}
	var names []string
	for _, l := range c.Leaders {
		names = append(names, l.Name)
	}
	words := fmt.Sprintf("%d (%s; raft terms %d to %d)",
		c.LeaderChanges, strings.Join(slices.Compact(names), " -> "), c.FirstTerm, c.LastTerm)
	if c.Reelections > 0 {
		words += fmt.Sprintf("; the same member elected again: %d", c.Reelections)
	}
	return words
}

func (o *outcome) describeVerification() string {
	switch t := &o.figures.Traffic; {
	case o.verification != nil:
		return " (could not be verified: " + o.verification.Error() + ")"
	case t.UnverifiedWrites > 0:
		return fmt.Sprintf(" (%d could not be verified)", t.UnverifiedWrites)
	}
	return ""
}

func (o *outcome) describeMemory() string {
	words := fmt.Sprintf("%.1f MiB anonymous, %.1f MiB in all, at most; limit %d MiB anonymous",
		o.memory.AnonymousMiB(), o.memory.ResidentMiB(), anonymousLimit>>20)
	if o.raceDetector {
		words += " (not judged: built with the race detector)"
	}
	return words
}

// introduction says what is going to be shown.
func introduction(o options) string {
	who := "Quorate replaces the pods, from inside the sidecars (updateStrategy OnDelete)."
	if o.strategy == rollingUpdate {
		who = "Kubernetes itself replaces the pods (updateStrategy RollingUpdate)."
	}
	what := "A healthy etcd cluster of %d members is upgraded from %s to %s."
	switch o.scenario {
	case sickMember:
		what = "An etcd cluster of %d members, one of them down, is upgraded from %s to %s."
	case etcdDruid:
		what = "An Etcd of the real etcd-druid with %d members is upgraded from etcd %s to %s, and from " +
			"etcd-backup-restore 0.41.2 to 0.43.0 with Quorate inside."
		who = "Quorate replaces the pods, this first time from a Job (updateStrategy OnDelete)."
	}
	what = fmt.Sprintf(what, o.replicas, o.versions().from, o.versions().to)
	return what + " " + who
}

// inSeconds is a duration in seconds, so that times can be compared at a glance.
func inSeconds(d time.Duration) string { return fmt.Sprintf("%.1fs", d.Seconds()) }
