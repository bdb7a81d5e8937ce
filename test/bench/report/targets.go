package report

import (
	"fmt"
	"slices"
	"strings"

	"github.com/quorate/quorate/test/bench/result"
)

// Verdict says whether a target is reached.
type Verdict string

// The verdicts. A target is not measured as well where a part of it is not and the rest holds.
const (
	Reached     Verdict = "reached"
	NotReached  Verdict = "not reached"
	NotMeasured Verdict = "not measured"
)

// Target is one thing that the benchmarks are to show, and what they did show.
type Target struct {
	// What is measured, and what it has to be.
	What   string `json:"what"`
	Wanted string `json:"wanted"`
	// Measured is the figure in words, From what it was read from.
	Measured string `json:"measured"`
	From     string `json:"from"`
	// Beside is what Kubernetes' own arms did in the same run, or a central controller, where that can be compared.
	Beside  string  `json:"beside,omitempty"`
	Verdict Verdict `json:"verdict"`
}

// The targets' numbers. Times are seconds.
const (
	stallRatio       = 1.1
	removalWithin    = 3
	quorumBackWithin = 4
	hangingMore      = 2 * 2
	holderMore       = 45 + hangingMore
	downRatio        = 1.03
	fiveByTwo        = 0.65
	sevenByThree     = 0.5
	gapMost          = 0.080
	gracefulBelow    = 0.5
	killedBelow      = 2
	idleCPUBelow     = 0.2
	idleMiBBelow     = 16
	embeddedMiBBelow = 4
)

// targetsOf computes every target from the run, but for its trials on real nodes.
func targetsOf(run *result.Run) []Target {
	run, _ = split(run)
	all := run.Trials
	var targets []Target
	for _, c := range healthyCases() {
		targets = append(targets, leaderChanges(all, c))
	}
	for _, c := range healthyCases() {
		targets = append(targets, noQuorumLost(all, c))
	}
	for _, c := range healthyCases() {
		targets = append(targets, stalls(all, c))
	}
	harmed := []string{result.OneDown, result.NodeLost, result.GhostVoters, result.BrokenRevision, result.BrokenSidecar}
	for _, name := range harmed {
		targets = append(targets, noQuorumLost(all, result.CaseOf(name)))
	}
	for _, name := range harmed {
		targets = append(targets, readyPods(all, result.CaseOf(name)))
	}
	for _, n := range needs {
		targets = append(targets, firstRemoval(all, n), quorumBack(all, n))
	}
	for _, c := range healthyCases() {
		targets = append(targets, oneAtATime(all, c))
	}
	targets = append(targets,
		atOnce(all, result.CaseOf(result.Healthy5), 2, fiveByTwo),
		atOnce(all, result.CaseOf(result.Healthy7), 3, sevenByThree),
		settleToNext(all),
		failover(run.Failovers, "graceful", "under 0.5 s, every time",
			func(result.Failover) float64 { return gracefulBelow }),
		failover(run.Failovers, "SIGKILL", "under the lock's TTL + 2 s, every time",
			func(f result.Failover) float64 { return f.LockTTL + killedBelow }),
		waiterRequests(run.Idle),
		idle(run.Idle, "Idle sidecar: CPU", fmt.Sprintf("under %g %% of a core", idleCPUBelow), idleCPUBelow, "%",
			func(i result.Idle) float64 { return i.CPUPercent }),
		idle(run.Idle, "Idle sidecar: anonymous resident memory", fmt.Sprintf("under %d MiB", idleMiBBelow),
			idleMiBBelow, "MiB", func(i result.Idle) float64 { return i.Usage.Anonymous }),
		embedded(run.Embedded),
	)
	return append(targets, askedOfAPI(run)...)
}

func healthyCases() []result.Case {
	return filter(result.Cases, func(c result.Case) bool { return c.Healthy })
}

// quorates returns the counted trials of every arm of Quorate in a case, and how to call
// them: what is said of Quorate has to be true of all of them.
func quorates(trials []result.Trial, c result.Case) (kept []result.Trial, from string) {
	all := ofQuorate(trials, c)
	return counted(all), fromTrials(all)
}

// ofQuorate are the trials of a case in which Quorate removes the pods.
func ofQuorate(trials []result.Trial, c result.Case) []result.Trial {
	return filter(in(trials, c.Name), func(t result.Trial) bool { return result.ArmOf(t.Arm).Quorate })
}

// fromTrials says what a figure was read from, and what was left out.
func fromTrials(all []result.Trial) string {
	kept := counted(all)
	if len(all) == 0 {
		return "no trial"
	}
	var names []string
	for _, arm := range armsOf(all) {
		names = append(names, "`"+arm.Name+"`")
	}
	text := fmt.Sprintf("%s of %s", plural(len(kept), "trial"), strings.Join(names, ", "))
	if excluded := len(all) - len(kept); excluded > 0 {
		text += fmt.Sprintf(" (%d not counted)", excluded)
	}
	return text
}

// unless turns Reached into NotMeasured where a trial of Quorate could not be counted: it may
// have failed because of Quorate. A machine that stood still did not, so such a trial may be
// played again.
func unless(all []result.Trial, v Verdict) Verdict {
	for _, t := range all {
		if v == Reached && excluded(t) != "" && !playedAgain(t, all) {
			return NotMeasured
		}
	}
	return v
}

// playedAgain reports whether a trial in which only the machine was to blame has been followed by one that counts,
// of the same arm in the same case with the same leader.
func playedAgain(t result.Trial, all []result.Trial) bool {
	return t.Trouble == "" && slices.ContainsFunc(counted(all), func(again result.Trial) bool {
		return again.Case == t.Case && again.Arm == t.Arm && again.Leader == t.Leader && again.Began.After(t.Began)
	})
}

// verdict is what holds or not; without anything measured it is neither.
func verdict(measured int, holds bool) Verdict {
	switch {
	case measured == 0:
		return NotMeasured
	case holds:
		return Reached
	}
	return NotReached
}

// beside says what Kubernetes' own arms did.
func beside(trials []result.Trial, c result.Case, figure func(result.Trial) Number, text func(Spread) string) string {
	var parts []string
	for _, base := range bases {
		if s := spread(counted(of(trials, c.Name, base)), figure); s.N > 0 {
			parts = append(parts, fmt.Sprintf("`%s` %s", base, text(s)))
		}
	}
	return strings.Join(parts, ", ")
}

// seconds writes a spread of seconds, milliseconds one of those.
func seconds(s Spread) string      { return s.in("s") }
func milliseconds(s Spread) string { return s.times(1000).in("ms") }

// stuck says how many trials did not complete, because a trial in which nothing happens does no
// harm.
func stuck(trials []result.Trial) string {
	n := len(filter(trials, func(t result.Trial) bool { return !t.Completed }))
	if n == 0 {
		return ""
	}
	return fmt.Sprintf("; %d of them did not complete", n)
}

// changes is the number of all changes of leader.
func changes(t result.Trial) Number { return Number(t.Planned + t.Unplanned) }

// leaderChanges checks that a healthy rollout has exactly one, handed over, no matter which
// member leads.
func leaderChanges(all []result.Trial, c result.Case) Target {
	trials, from := quorates(all, c)
	target := Target{
		What:   c.Title + ": changes of leader",
		Wanted: "exactly 1, none by an election timeout, whichever ordinal leads",
		From:   from, Beside: beside(all, c, changes, Spread.counts),
	}
	bad := filter(trials, func(t result.Trial) bool { return t.Planned != 1 || t.Unplanned != 0 })
	led := map[int]bool{}
	for _, t := range trials {
		led[t.Leader] = true
	}
	var missing []string
	for ordinal := range c.Members {
		if !led[ordinal] {
			missing = append(missing, fmt.Sprint(ordinal))
		}
	}
	target.Verdict = unless(ofQuorate(all, c), verdict(len(trials), len(bad) == 0))
	switch {
	case len(trials) == 0:
		return target
	case len(bad) == 0:
		target.Measured = fmt.Sprintf("1 handed over and 0 by timeout in all %s", plural(len(trials), "trial"))
	default:
		target.Measured = fmt.Sprintf("not so in %d of %s: handed over %s, by timeout %s; first in %s", len(bad),
			plural(len(trials), "trial"), spread(trials, planned).counts(),
			spread(trials, unplanned).counts(), where(bad[0]))
	}
	if len(missing) > 0 {
		target.Measured += "; never with the leader at ordinal " + strings.Join(missing, ", ")
		if target.Verdict == Reached {
			target.Verdict = NotMeasured
		}
	}
	return target
}

// where names a trial.
func where(t result.Trial) string {
	return fmt.Sprintf("trial %d (`%s`, round %d, leader %d)", t.Position, t.Arm, t.Round, t.Leader)
}

// noQuorumLost: the rollout costs no quorum.
func noQuorumLost(all []result.Trial, c result.Case) Target {
	trials, from := quorates(all, c)
	target := Target{
		What: c.Title + ": without quorum", Wanted: "0 s", From: from,
		Beside: beside(all, c, withoutQuorum, seconds),
	}
	bad := filter(trials, func(t result.Trial) bool { return withoutQuorum(t) > 0 })
	target.Verdict = unless(ofQuorate(all, c), verdict(len(trials), len(bad) == 0))
	switch {
	case len(trials) == 0:
	case len(bad) == 0:
		target.Measured = fmt.Sprintf("0 s in all %s", plural(len(trials), "trial")) + stuck(trials)
	default:
		target.Measured = fmt.Sprintf("%s; more than 0 in %d of %s, first in %s",
			seconds(spread(trials, withoutQuorum)), len(bad),
			plural(len(trials), "trial"), where(bad[0])) + stuck(trials)
	}
	return target
}

// readyPods: what the case takes down is allowed for, because it leaves a quorum.
func readyPods(all []result.Trial, c result.Case) Target {
	trials, from := quorates(all, c)
	quorum := func(t result.Trial) int { return t.Members/2 + 1 }
	target := Target{
		What:   c.Title + ": fewest Ready pods",
		Wanted: fmt.Sprintf("never fewer than %d of %d", c.Members/2+1, c.Members),
		From:   from, Beside: beside(all, c, fewestReady, Spread.counts),
	}
	bad := filter(trials, func(t result.Trial) bool { return t.FewestReady < quorum(t) })
	fewest := spread(trials, fewestReady).counts()
	target.Verdict = unless(ofQuorate(all, c), verdict(len(trials), len(bad) == 0))
	switch {
	case len(trials) == 0:
	case len(bad) == 0:
		target.Measured = fmt.Sprintf("%s in all %s", fewest, plural(len(trials), "trial"))
	default:
		target.Measured = fmt.Sprintf("%s; too few in %d of %s, first in %s", fewest, len(bad),
			plural(len(trials), "trial"), where(bad[0]))
	}
	return target
}

// stalls: the longest write stall is not above RollingUpdate's, of either pod management policy.
func stalls(all []result.Trial, c result.Case) Target {
	target := Target{
		What: c.Title + ": longest write stall",
		Wanted: fmt.Sprintf("median of the paired ratios to RollingUpdate at most %g, for each policy in the run",
			stallRatio),
		From:   fromTrials(of(all, c.Name, result.Quorate)),
		Beside: beside(all, c, writeStall, milliseconds),
	}
	holds, pairs := true, 0
	var parts []string
	for _, base := range bases {
		s := spreadOf(paired(counted(in(all, c.Name)), result.Quorate, base, writeStall))
		if s.N > 0 {
			parts = append(parts, fmt.Sprintf("%s of `%s` (%s)", s.with(2), base, plural(s.N, "pair")))
			holds, pairs = holds && s.Median <= stallRatio, pairs+s.N
		}
	}
	target.Measured = strings.Join(parts, "; ")
	target.Verdict = unless(of(all, c.Name, result.Quorate), verdict(pairs, holds))
	return target
}

// need is a case in which quorum is lost, and for how many seconds more it may stay lost.
type need struct {
	name string
	more int
	why  string
}

// needs are those in which the members that are lost refuse connections and the record is free, then those in
// which a member hangs, which takes two probe timeouts, and last the one in which the record stands for as long
// as its holder has said.
var needs = []need{
	{name: result.QuorumLoss}, {name: result.QuorumJustLost},
	{name: result.LongLost3}, {name: result.LongLost5},
	{name: result.SecondBefore3}, {name: result.SecondBefore5},
	{name: result.SameMoment3}, {name: result.SameMoment5},
	{result.Hanging3, hangingMore, "two probe timeouts"}, {result.Hanging5, hangingMore, "two probe timeouts"},
	{result.HolderDied, holderMore, "the record's duration and two probe timeouts"},
}

// plus says how many seconds are allowed, and why.
func (n need) plus(seconds int) string {
	if n.more == 0 {
		return fmt.Sprintf("%d s", seconds)
	}
	return fmt.Sprintf("%d s + %s (%d s)", seconds, n.why, n.more)
}

// inNeed are the counted trials of such a case. Where quorum was never lost the case was another one.
func inNeed(all []result.Trial, c result.Case) (trials []result.Trial, from string) {
	trials, from = quorates(all, c)
	return filter(trials, func(t result.Trial) bool { return t.QuorumBack != 0 }), from
}

// firstRemoval: what cures the cluster begins soon after the change that makes it possible.
func firstRemoval(all []result.Trial, n need) Target {
	c := result.CaseOf(n.name)
	trials, from := inNeed(all, c)
	removed := func(t result.Trial) Number {
		if len(t.Downs) == 0 {
			return never
		}
		return Number(t.Downs[0].Removed)
	}
	s := spread(trials, removed)
	target := Target{
		What: c.Title + ": until the first removal", From: from,
		Wanted:  n.plus(removalWithin) + " after the change of the template, every time",
		Verdict: unless(ofQuorate(all, c), verdict(s.N, s.Most <= Number(removalWithin+n.more))),
	}
	if s.N > 0 {
		target.Measured = seconds(s)
	}
	return target
}

// restarts are the down-times of all pods in the healthy cluster of three.
func restarts(all []result.Trial) Spread {
	return removalsOf(counted(in(all, result.Healthy3)), downs)
}

// quorumBack: what the update cures by its first pod is cured when that pod has started. A
// pod's restart is what it takes in a healthy cluster: where quorum is lost no pod becomes
// Ready before quorum is back, so that the trial's own down-times would prove themselves.
func quorumBack(all []result.Trial, n need) Target {
	c := result.CaseOf(n.name)
	trials, from := inNeed(all, c)
	restart := restarts(all)
	back := func(t result.Trial) Number {
		if t.QuorumBack < 0 {
			return never
		}
		return Number(t.QuorumBack)
	}
	target := Target{
		What: c.Title + ": until quorum is back", From: from, Beside: beside(all, c, back, seconds),
		Wanted: "a pod's restart + " + n.plus(quorumBackWithin) + " after the change of the template, every time",
	}
	switch s := spread(trials, back); {
	case s.N == 0:
		target.Verdict = NotMeasured
	case restart.N == 0:
		target.Measured = seconds(s) + ", but no healthy trial tells how long a restart takes"
		target.Verdict = NotMeasured
	default:
		target.Measured = fmt.Sprintf("%s, with a restart of %s s (median of %s in `%s`)", seconds(s),
			written(restart.Median, 2), plural(restart.N, "pod"), result.Healthy3)
		most := restart.Median + Number(quorumBackWithin+n.more)
		target.Verdict = unless(ofQuorate(all, c), verdict(s.N, s.Most <= most))
	}
	return target
}

// oneAtATime: the pods' own down-times are what one at a time cannot be faster than. A
// trial that did not complete has no ratio, and the target is not reached.
func oneAtATime(all []result.Trial, c result.Case) Target {
	trials := counted(of(all, c.Name, result.Quorate))
	ratio := func(t result.Trial) Number {
		if !t.Completed || t.Ratio == 0 {
			return never
		}
		return Number(t.Ratio)
	}
	s := spread(trials, ratio)
	target := Target{
		What:    c.Title + ": rollout time, one at a time",
		Wanted:  fmt.Sprintf("median at most %g of the sum of the pods' down-times", downRatio),
		From:    fromTrials(of(all, c.Name, result.Quorate)),
		Beside:  beside(all, c, ratio, func(s Spread) string { return s.with(3) }),
		Verdict: unless(of(all, c.Name, result.Quorate), verdict(s.N, s.Median <= downRatio)),
	}
	if s.N > 0 {
		target.Measured = s.with(3)
	}
	return target
}

// atOnce: several pods at once are faster than one at a time.
func atOnce(all []result.Trial, c result.Case, pods int, most Number) Target {
	s := spreadOf(paired(counted(in(all, c.Name)), result.QuorateMax, result.Quorate, rollout))
	target := Target{
		What:    fmt.Sprintf("%s: rollout time, maxUnavailable %d", c.Title, pods),
		Wanted:  fmt.Sprintf("median of the paired ratios to one at a time at most %g", most),
		From:    fromTrials(of(all, c.Name, result.QuorateMax)),
		Verdict: unless(of(all, c.Name, result.QuorateMax), verdict(s.N, s.Median <= most)),
	}
	if s.N > 0 {
		target.Measured = fmt.Sprintf("%s (%s)", s.with(2), plural(s.N, "pair"))
	}
	return target
}

// settleToNext: the coordinator does not waste time between two pods. The disruption controller may take its
// time before the budget allows the next eviction, and that is not ours. A run that does not show the two apart
// has only their sum, and our part is at most that.
func settleToNext(all []result.Trial) Target {
	trials := filter(all, func(t result.Trial) bool {
		arm := result.ArmOf(t.Arm)
		return arm.Quorate && arm.OneAtATime && result.CaseOf(t.Case).Healthy
	})
	whole, own := removalsOf(counted(trials), gaps), removalsOf(counted(trials), ownGaps)
	target := Target{
		What: "Healthy: from a pod's settling to the next removal, without the wait for the PodDisruptionBudget",
		Wanted: fmt.Sprintf("median at most %.0f ms, of all removals by Quorate's arms that take one pod at a time",
			1000*gapMost),
		From: fromTrials(trials), Verdict: verdict(own.N, own.Median <= gapMost),
	}
	switch {
	case own.N < whole.N:
		target.Measured = fmt.Sprintf("%s ms with the wait for the budget, which this run does not show apart (%s)",
			whole.times(1000).with(0), plural(whole.N, "removal"))
		if target.Verdict = NotMeasured; whole.Median <= gapMost {
			target.Verdict = Reached
		}
	case own.N > 0:
		target.Measured = fmt.Sprintf("%s ms (%s)", own.times(1000).with(0), plural(own.N, "removal"))
	}
	return target
}

// failover: another sidecar goes on soon. The limit is that of each single one.
func failover(all []result.Failover, how, wanted string, below func(result.Failover) float64) Target {
	those := filter(all, func(f result.Failover) bool { return f.How == how })
	late := filter(those, func(f result.Failover) bool { return f.Seconds < 0 || f.Seconds >= below(f) })
	target := Target{
		What: "Failover of the coordinator, " + how, Wanted: wanted, From: plural(len(those), "failover"),
		Verdict: verdict(len(those), len(late) == 0),
	}
	if len(those) > 0 {
		target.Measured = fmt.Sprintf("%s, in time %d of %d", seconds(spread(those, failoverSeconds)),
			len(those)-len(late), len(those))
		if how == "SIGKILL" {
			target.Measured += fmt.Sprintf(", TTL %s s",
				spread(those, func(f result.Failover) Number { return Number(f.LockTTL) }).counts())
		}
	}
	return target
}

// failoverSeconds is never where no other sidecar went on.
func failoverSeconds(f result.Failover) Number {
	if f.Seconds < 0 {
		return never
	}
	return Number(f.Seconds)
}

// waiter is the role of a sidecar that does not own the lock.
const waiter = "waiter"

// waiterRequests: a sidecar that only waits asks Kubernetes nothing.
func waiterRequests(all []result.Idle) Target {
	waiters := filter(all, func(i result.Idle) bool { return i.Role == waiter })
	s := spread(waiters, func(i result.Idle) Number { return Number(sum(i.Kubernetes)) })
	target := Target{
		What: "Idle sidecar without the lock: Kubernetes requests", Wanted: "0 a minute",
		From: plural(len(waiters), "idle waiter"), Verdict: verdict(s.N, s.Most == 0),
	}
	if s.N > 0 {
		target.Measured = s.String() + " a minute"
	}
	return target
}

// idle: an idle sidecar, with or without the lock, costs less than that. The highest counts.
func idle(all []result.Idle, what, wanted string, below Number, unit string, figure func(result.Idle) float64) Target {
	s := spread(all, func(i result.Idle) Number { return Number(figure(i)) })
	target := Target{
		What: what, Wanted: wanted, From: plural(len(all), "idle sidecar"), Verdict: verdict(s.N, s.Most < below),
	}
	if s.N > 0 {
		target.Measured = s.in(unit)
	}
	return target
}

// embedded: an idle host pays little for the library. The median of the rounds counts.
func embedded(all []result.Embedded) Target {
	idle := whenIdle(all)
	s := spread(idle, more)
	target := Target{
		What:   "Embedded and idle: anonymous resident memory",
		Wanted: fmt.Sprintf("median under %d MiB more than the host without it", embeddedMiBBelow),
		From:   plural(len(idle), "pair") + " of hosts", Verdict: verdict(s.N, s.Median < embeddedMiBBelow),
	}
	if s.N > 0 {
		target.Measured = s.String() + " MiB more"
	}
	return target
}

func whenIdle(all []result.Embedded) []result.Embedded {
	return filter(all, func(e result.Embedded) bool { return e.When == "idle" })
}

// more is what the library adds to its host.
func more(e result.Embedded) Number { return Number(e.With - e.Without) }
