package traffic

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"text/tabwriter"
	"time"
)

// Span is a stretch of time.
type Span struct {
	// From is when it began.
	From time.Time `json:"from"`
	// Seconds is how long it lasted.
	Seconds float64 `json:"seconds"`
}

func spanOf(start time.Time, from, to time.Duration) Span {
	return Span{From: start.Add(from), Seconds: (to - from).Seconds()}
}

func (s Span) String() string {
	return fmt.Sprintf("%.3f s from %s", s.Seconds, s.From.UTC().Format("15:04:05.000"))
}

// Requests counts what became of the requests of writers, or of one kind of read. A
// request is tried at one member after the other until one answers.
type Requests struct {
	// Total is how many requests there were, Answered how many were answered by a
	// member; the rest failed at every member.
	Total    int `json:"total"`
	Answered int `json:"answered"`
	Failed   int `json:"failed"`
	// Retried is how many requests needed more than one member, answered or not.
	Retried int `json:"retried"`
	// FailedAttempts is how many attempts at a single member failed; Unknown is how
	// many of them were writes that may have been applied all the same.
	FailedAttempts int `json:"failedAttempts"`
	Unknown        int `json:"unknown"`
}

// ClientFigures are the numbers of a [History].
type ClientFigures struct {
	// Seconds is how long writers and readers were at it.
	Seconds float64 `json:"seconds"`
	// Verified is [History.Verified].
	Verified bool `json:"verified"`

	// AcknowledgedWrites counts the acknowledged writes, LostWrites those of them that are not
	// there, UnverifiedWrites those that could not be checked.
	AcknowledgedWrites int `json:"acknowledgedWrites"`
	LostWrites         int `json:"lostWrites"`
	UnverifiedWrites   int `json:"unverifiedWrites"`
	// StaleReads counts the linearizable reads that were too old.
	StaleReads int `json:"staleReads"`
	// Violations is everything that is wrong, lost writes and stale reads included.
	Violations []Violation `json:"violations,omitempty"`

	// LongestWriteStall is the longest time for which a writer, trying all members,
	// got no write acknowledged: between two acknowledgements, before the first, or
	// after the last. It contains the pause between two writes (Interval). It also
	// contains the time until the next member was tried (RequestTimeout), not only at a
	// member that hangs: etcd drops a write without a word if it reaches the leader
	// while the leader is handing over, or from a follower when the leader has died.
	LongestWriteStall Span `json:"longestWriteStall"`
	// LongestWriteOutage is the same for all writers together: no write of any writer
	// was acknowledged. With several writers a single hanging member does not show.
	LongestWriteOutage Span `json:"longestWriteOutage"`

	// Writes, Reads (linearizable) and SerializableReads count the requests.
	Writes            Requests `json:"writes"`
	Reads             Requests `json:"reads"`
	SerializableReads Requests `json:"serializableReads"`
}

// Figures checks the history and counts.
func (h *History) Figures() ClientFigures {
	report := h.Check()
	f := ClientFigures{
		Seconds: h.Duration.Seconds(), Verified: h.Verified(),
		AcknowledgedWrites: report.Acknowledged, LostWrites: report.Count(LostWrite),
		UnverifiedWrites: report.Unverified,
		StaleReads:       report.Count(StaleRead), Violations: report.Violations,
	}

	acknowledged := map[string][]time.Duration{} // by writer
	for i := range h.Writers {
		acknowledged[fmt.Sprintf("writer-%d", i)] = nil
	}
	var all []time.Duration
	type request struct {
		client string
		number int
	}
	last := map[request]*Operation{}
	requests := map[Kind]*Requests{Put: &f.Writes, Txn: &f.Writes, Get: &f.Reads, SerializableGet: &f.SerializableReads}
	for i := range h.Operations {
		op := &h.Operations[i]
		if op.Client == finalClient {
			continue
		}
		if op.Wrote() {
			acknowledged[op.Client] = append(acknowledged[op.Client], op.Return)
			all = append(all, op.Return)
		}
		if op.Outcome != OK {
			requests[op.Kind].FailedAttempts++
		}
		if op.Outcome == Unknown {
			requests[op.Kind].Unknown++
		}
		last[request{op.Client, op.Request}] = op
	}
	for _, op := range last {
		r := requests[op.Kind]
		r.Total++
		if op.Outcome == OK {
			r.Answered++
		} else {
			r.Failed++
		}
		if op.Attempt > 0 {
			r.Retried++
		}
	}
	for _, times := range acknowledged {
		if stall := h.longestGap(times); stall.Seconds > f.LongestWriteStall.Seconds {
			f.LongestWriteStall = stall
		}
	}
	if h.Writers > 0 {
		f.LongestWriteOutage = h.longestGap(all)
	}
	return f
}

// longestGap returns the longest time between two of the times, the beginning and the
// end of the traffic counted as such.
func (h *History) longestGap(times []time.Duration) Span {
	slices.Sort(times)
	var from, to, previous time.Duration
	for _, at := range append(slices.Clone(times), h.Duration) {
		if at-previous > to-from {
			from, to = previous, at
		}
		previous = at
	}
	return spanOf(h.Start, from, to)
}

// Leadership is a leader as the members saw it.
type Leadership struct {
	// At is when the observer first saw it.
	At time.Time `json:"at"`
	// Leader is the member's ID, Name its name.
	Leader uint64 `json:"leader"`
	Name   string `json:"name"`
	Term   uint64 `json:"term"`
}

// ServingStep says that from a sample on the number of serving voters was another.
type ServingStep struct {
	At      time.Time `json:"at"`
	Serving int       `json:"serving"`
	// Voters is how many voters the member list had, or last had while no member tells.
	Voters int `json:"voters"`
}

// ClusterFigures are the numbers of an [Observation].
type ClusterFigures struct {
	// Seconds is how long the cluster was observed, Samples how often.
	Seconds float64 `json:"seconds"`
	Samples int     `json:"samples"`

	// LeaderChanges counts how often the leader, as established by a majority of the
	// answering members at the highest term, was another member than before. Planned
	// handovers and elections after a failure look alike and are both counted.
	LeaderChanges int `json:"leaderChanges"`
	// Reelections counts how often the same member was seen as leader of a later term:
	// it lost the leadership and won it back, or others led in between for too short a
	// time to be seen.
	Reelections int `json:"reelections"`
	// FirstTerm and LastTerm are the raft terms of the first and the last leader seen.
	// Every election, won or not, adds at least one.
	FirstTerm uint64 `json:"firstTerm"`
	LastTerm  uint64 `json:"lastTerm"`
	// Leaders are all leaderships seen.
	Leaders []Leadership `json:"leaders"`

	// FewestServing is the smallest number of voters that served in one sample, and
	// FewestServingAt the first sample with that number.
	FewestServing   int         `json:"fewestServing"`
	FewestServingAt ServingStep `json:"fewestServingAt"`
	// Serving is the number of serving voters over time.
	Serving []ServingStep `json:"serving"`

	// WithoutQuorumSeconds is how long the cluster was without quorum, all Outages
	// together. See [Observation.Figures].
	WithoutQuorumSeconds float64 `json:"withoutQuorumSeconds"`
	Outages              []Span  `json:"outages,omitempty"`
}

// Figures counts.
//
// A member serves in a sample if it answers a linearizable read that it was sent with
// that sample within the timeout; a read that it refuses because the leadership is
// changing hands is sent again until then. To answer, it needs a leader that hears from
// a majority of the voters, so one answer proves quorum.
//
// The cluster counts as without quorum from the time at which the reads of a sample were sent, none of which
// was answered within the timeout, until the first answer of any voter to any read. So an interruption longer
// than the timeout counts in full, and a shorter one only if it cost a whole sample its answers: reads that
// wait at a leader when it dies are lost with it, and are not answered in time by its successor either. The
// time in which voters enough are alive but elect a leader is such an interruption too: what cannot commit
// has no quorum, as far as anybody outside can see. If the observation ends first, the time ends with it.
func (o *Observation) Figures() ClusterFigures {
	f := ClusterFigures{Seconds: o.Duration.Seconds(), Samples: len(o.Samples)}
	voters := 0
	for i, s := range o.Samples {
		voters = cmp.Or(s.Voters, voters)
		step := ServingStep{At: o.Start.Add(s.At), Serving: s.Serving, Voters: voters}
		if n := len(f.Serving); n == 0 || f.Serving[n-1].Serving != step.Serving ||
			f.Serving[n-1].Voters != step.Voters {
			f.Serving = append(f.Serving, step)
		}
		if i == 0 || s.Serving < f.FewestServing {
			f.FewestServing, f.FewestServingAt = s.Serving, step
		}
		f.follow(o, s)
	}
	for _, outage := range o.outages() {
		f.WithoutQuorumSeconds += (outage.to - outage.from).Seconds()
		f.Outages = append(f.Outages, spanOf(o.Start, outage.from, outage.to))
	}
	return f
}

// follow takes note of the sample's leader if it is news. There is at most one leader
// in a term, so only a later term is: members learn of leader and term at slightly
// different times, and a slow answer may arrive with a sample that is older than what
// it says.
func (f *ClusterFigures) follow(o *Observation, s Sample) {
	if s.Leader == 0 || s.Term <= f.LastTerm {
		return
	}
	if n := len(f.Leaders); n == 0 {
		f.FirstTerm = s.Term
	} else if f.Leaders[n-1].Leader != s.Leader {
		f.LeaderChanges++
	} else {
		f.Reelections++
	}
	f.LastTerm = s.Term
	f.Leaders = append(f.Leaders, Leadership{
		At: o.Start.Add(s.At), Leader: s.Leader, Term: s.Term,
		Name: cmp.Or(o.Names[s.Leader], fmt.Sprintf("%x", s.Leader)),
	})
}

type stretch struct{ from, to time.Duration }

// outages returns the times without quorum, in order, without overlap.
func (o *Observation) outages() []stretch {
	var answers []time.Duration
	for _, s := range o.Samples {
		for _, p := range s.Probes {
			if p.Serving && !p.Learner && p.ReadOf == o.Cluster {
				answers = append(answers, p.ReadAt)
			}
		}
	}
	slices.Sort(answers)
	var outages []stretch
	for _, s := range o.Samples {
		if s.Serving > 0 {
			continue
		}
		end := max(s.At, o.Duration)
		if i, _ := slices.BinarySearch(answers, s.At+1); i < len(answers) {
			end = answers[i]
		}
		if n := len(outages); n > 0 && s.At <= outages[n-1].to {
			outages[n-1].to = max(outages[n-1].to, end)
		} else {
			outages = append(outages, stretch{s.At, end})
		}
	}
	return outages
}

// Figures are all numbers of a run.
type Figures struct {
	Traffic ClientFigures  `json:"traffic"`
	Cluster ClusterFigures `json:"cluster"`
}

// NewFigures puts the figures of a history and an observation together.
func NewFigures(h *History, o *Observation) Figures {
	return Figures{Traffic: h.Figures(), Cluster: o.Figures()}
}

// mostViolations is how many violations String prints; one lost key can make a thousand
// stale reads.
const mostViolations = 10

// String returns the figures as a table of plain lines.
func (f Figures) String() string {
	var b strings.Builder
	table := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	line := func(name, format string, args ...any) {
		fmt.Fprintf(table, "%s\t"+format+"\n", append([]any{name}, args...)...)
	}
	t, c := &f.Traffic, &f.Cluster
	line("acknowledged writes", "%d in %.1f s", t.AcknowledgedWrites, t.Seconds)
	line("acknowledged writes lost", "%d", t.LostWrites)
	if t.UnverifiedWrites > 0 || !t.Verified {
		line("acknowledged writes not verified", "%d%s", t.UnverifiedWrites,
			map[bool]string{false: " (the verification did not come to its end)"}[t.Verified])
	}
	line("stale linearizable reads", "%d", t.StaleReads)
	line("other violations", "%d", len(t.Violations)-t.LostWrites-t.StaleReads)
	line("longest write stall", "%v", t.LongestWriteStall)
	line("longest time without any write", "%v", t.LongestWriteOutage)
	for _, r := range []struct {
		name     string
		requests Requests
	}{{"writes", t.Writes}, {"linearizable reads", t.Reads}, {"serializable reads", t.SerializableReads}} {
		line(r.name, "%d, of which %d failed at every member, %d needed a retry; %d attempts failed, %d of them with "+
			"unknown effect",
			r.requests.Total, r.requests.Failed, r.requests.Retried, r.requests.FailedAttempts, r.requests.Unknown)
	}
	line("leader changes", "%d (terms %d to %d: %s)", c.LeaderChanges, c.FirstTerm, c.LastTerm, leaderNames(c.Leaders))
	if c.Reelections > 0 {
		line("re-elections of the same leader", "%d", c.Reelections)
	}
	line("fewest serving voters", "%d of %d at %s", c.FewestServing, c.FewestServingAt.Voters,
		c.FewestServingAt.At.UTC().Format("15:04:05.000"))
	line("without quorum", "%.3f s (outages: %d)", c.WithoutQuorumSeconds, len(c.Outages))
	_ = table.Flush() // a strings.Builder takes everything
	for i, v := range t.Violations {
		if i == mostViolations {
			fmt.Fprintf(&b, "... and %d more\n", len(t.Violations)-i)
			break
		}
		fmt.Fprintln(&b, v)
	}
	return b.String()
}

func leaderNames(leaders []Leadership) string {
	if len(leaders) == 0 {
		return "none seen"
	}
	names := make([]string, len(leaders))
	for i, l := range leaders {
		names[i] = l.Name
	}
	return strings.Join(names, ", ")
}
