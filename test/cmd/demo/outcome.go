package main

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/quorate/quorate/test/harness"
	"github.com/quorate/quorate/test/harness/traffic"
)

// anonymousLimit is how much a sidecar may allocate: below the 16 MiB that an
// etcd-backup-restore container has to spare.
const anonymousLimit = 16 << 20

// outcome is everything that was measured in a rollout, and all that the verdict
// rests on.
type outcome struct {
	options
	// pods are the names of all pods; leader led when the image changed, sick was
	// down ("" for none).
	pods         []string
	leader, sick string

	removals    []harness.Removal
	fewestReady int
	figures     traffic.Figures
	// verification is why the history could not be verified, nil if it was.
	verification error
	// unfinished is why the rollout did not come to its end, nil if it did.
	unfinished error

	// memory is the most that any sidecar occupied at any time. With raceDetector it
	// says nothing about the product.
	memory       harness.Memory
	raceDetector bool

	building, starting, rollout, total time.Duration
}

// judgesMemory is false where the sidecar is a host, with needs of its own.
func (o *outcome) judgesMemory() bool { return o.scenario != etcdDruid }

// order is the names of the removed pods, in order.
func (o *outcome) order() []string {
	var names []string
	for _, r := range o.removals {
		names = append(names, r.Pod)
	}
	return names
}

// judgement is what the demo concludes.
type judgement struct {
	// ok decides on the exit code.
	ok bool
	// line is the verdict in one line.
	line string
	// broken are the invariants that did not hold, each with what was seen instead.
	broken []string
}

// judge holds the outcome against what the scenario has to show.
func (o *outcome) judge() judgement {
	switch {
	case o.strategy == onDelete:
		return o.judgeQuorate()
	case o.scenario == sickMember:
		return o.judgeLostQuorum()
	}
	return o.judgeRollingUpdate()
}

// judgeQuorate: every invariant of Quorate must hold.
func (o *outcome) judgeQuorate() judgement {
	broken := o.brokenInvariants()
	if len(broken) > 0 {
		return judgement{line: fmt.Sprintf("FAILED: %d of Quorate's invariants did not hold.", len(broken)),
			broken: broken}
	}
	order := "followers first, leader last"
	if o.sick != "" {
		order = o.sick + ", which was down, first, then followers, leader last"
	}
	return judgement{ok: true, line: fmt.Sprintf(
		"PASSED: all %d members run etcd %s; replaced one at a time, %s; "+
			"quorum was never lost, nor any acknowledged write.", len(o.pods), o.versions().to, order)}
}

func (o *outcome) brokenInvariants() []string {
	var broken []string
	check := func(ok bool, format string, args ...any) {
		if !ok {
			broken = append(broken, fmt.Sprintf(format, args...))
		}
	}
	t, c := &o.figures.Traffic, &o.figures.Cluster
	check(o.unfinished == nil, "the rollout comes to its end: %v", o.unfinished)
	check(c.WithoutQuorumSeconds == 0, "quorum is never lost: it was lost for %.1f s (%s)",
		c.WithoutQuorumSeconds, spans(c.Outages))
	check(t.LostWrites == 0, "no acknowledged write is lost: %d were", t.LostWrites)
	check(o.verification == nil, "every acknowledged write can be verified: %v", o.verification)
	check(o.verification != nil || t.UnverifiedWrites == 0, "every acknowledged write can be verified: %d could not be",
		t.UnverifiedWrites)
	check(len(t.Violations) == t.LostWrites, "the history of the clients is consistent: %s", firstOther(t.Violations))
	for _, r := range o.removals {
		check(r.OthersAway == 0, "no pod is removed while another is away: %s was removed while %d were",
			r.Pod, r.OthersAway)
	}
	if wrong := o.wrongOrder(); wrong != "" {
		check(false, "%s: the order was %s", wrong, strings.Join(o.order(), ", "))
	}
	check(c.LeaderChanges == 1 && c.Reelections == 0,
		"there is exactly one change of leader: there were %d, and %d re-elections",
		c.LeaderChanges, c.Reelections)
	check(o.raceDetector || !o.judgesMemory() || o.memory.Anonymous < anonymousLimit,
		"a sidecar needs less than %d MiB of anonymous memory: one needed %.1f MiB",
		anonymousLimit>>20, o.memory.AnonymousMiB())
	return broken
}

// wrongOrder names the first rule that the order of replacement breaks, "" for none.
func (o *outcome) wrongOrder() string {
	order := o.order()
	sorted := slices.Clone(order)
	slices.Sort(sorted)
	switch {
	case !slices.Equal(sorted, slices.Sorted(slices.Values(o.pods))):
		return "every pod is replaced exactly once"
	case o.sick != "" && order[0] != o.sick:
		return o.sick + " is down and is replaced first"
	case order[len(order)-1] != o.leader:
		return "followers are replaced first and the leader, " + o.leader + ", last"
	}
	return ""
}

// judgeLostQuorum: what has to be seen is that quorum is lost.
func (o *outcome) judgeLostQuorum() judgement {
	c := &o.figures.Cluster
	if c.WithoutQuorumSeconds == 0 {
		return judgement{
			line: "NOT SEEN: Kubernetes' RollingUpdate was expected to cost quorum while a member is down, " +
				"and did not.",
			broken: []string{
				fmt.Sprintf("quorum is lost for longer than %v: fewest serving voters were %d", patience,
					c.FewestServing),
			},
		}
	}
	what := fmt.Sprintf("AS EXPECTED: with %s down, Kubernetes' RollingUpdate removed members that served: "+
		"no quorum for %.1f s.", o.sick, c.WithoutQuorumSeconds)
	if o.unfinished != nil {
		what += " The rollout did not come to its end by itself: " + o.unfinished.Error() + "."
	}
	return judgement{ok: true, line: what + " With STRATEGY=OnDelete Quorate does the same without loss."}
}

// judgeRollingUpdate only reports.
func (o *outcome) judgeRollingUpdate() judgement {
	if o.unfinished != nil {
		return judgement{line: "FAILED: the rolling update did not come to its end.",
			broken: []string{o.unfinished.Error()}}
	}
	c := &o.figures.Cluster
	return judgement{ok: true, line: fmt.Sprintf(
		"DONE: Kubernetes' RollingUpdate updated all %d members, from the highest ordinal down, whoever leads: "+
			"%s, %.1f s without quorum.",
		len(o.pods), count(c.LeaderChanges+c.Reelections, "leader change"), c.WithoutQuorumSeconds)}
}

func count(n int, thing string) string {
	if n == 1 {
		return "1 " + thing
	}
	return fmt.Sprintf("%d %ss", n, thing)
}

func spans(outages []traffic.Span) string {
	var words []string
	for _, s := range outages {
		words = append(words, s.String())
	}
	return strings.Join(words, ", ")
}

// firstOther is the first violation that is not a lost write, those being counted by
// themselves.
func firstOther(violations []traffic.Violation) string {
	for _, v := range violations {
		if v.Kind != traffic.LostWrite {
			return v.String()
		}
	}
	return "nothing wrong"
}
