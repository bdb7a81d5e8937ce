package chaos

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"text/tabwriter"
	"time"

	"github.com/quorate/quorate/test/harness/traffic"
)

// Figures are the numbers of a run, all seeds together, or of several. The zero value is ready
// to use. In JSON they can be kept and added up.
type Figures struct {
	mu sync.Mutex

	// Seeds are how many lives came to their end; Chaos is how long all rounds took.
	Seeds int
	Chaos time.Duration
	// Changes counts the completed rollouts by what was changed; QuorumTaken is how often a
	// majority was hit at once.
	Changes     map[ChangeKind]int
	QuorumTaken int
	// Slowest is the longest round.
	Slowest time.Duration
	// Faults counts those that hit, Missed those that could not: nothing was there to be
	// hit, or the machine has no means.
	Faults, Missed map[FaultKind]int

	// Writes are the acknowledged ones, Reads the answered linearizable ones.
	Writes, Reads int
	Lost          int
	// Keys and Operations are what porcupine judged, Unknown the keys for which its time
	// did not suffice.
	Keys, Operations, Unknown int

	// Removals counts the removed pods by who removed them; Ours those by sidecars, Served
	// those of ours whose member served, Residues those of them that are excused.
	Removals               map[string]int
	Ours, Served, Residues int
	// Returning are those of ours that did not serve and would have come back by themselves.
	Returning int
	// Works counts the operations on members that were put on record, by what they do.
	Works map[string]int
	// Evictions are those by drains, Refused how often they were not allowed.
	Evictions, Refused int
	// Denied counts the denials of the quorum guard by way, whoever was denied, and Spared those of them where the
	// others would have been a quorum without that pod. Taken counts the pods that hands took by way. Slipped are the
	// pods that anybody took although the record named them, because the API server had not seen that yet. Files from
	// before the guard have none of these.
	Denied, Taken   map[string]int
	Spared, Slipped int
	Violations      int

	// WithoutQuorum is the longest time without it; Outages are how many there were, and
	// OursOut those that no fault of the script explains.
	WithoutQuorum    time.Duration
	Outages, OursOut int
}

// Add takes the figures of another run in, which is over.
func (f *Figures) Add(o *Figures) {
	f.mu.Lock()
	defer f.mu.Unlock()
	addTo(&f.Changes, o.Changes)
	addTo(&f.Faults, o.Faults)
	addTo(&f.Missed, o.Missed)
	addTo(&f.Removals, o.Removals)
	addTo(&f.Works, o.Works)
	addTo(&f.Denied, o.Denied)
	addTo(&f.Taken, o.Taken)
	f.Spared += o.Spared
	f.Slipped += o.Slipped
	f.Seeds += o.Seeds
	f.Chaos += o.Chaos
	f.QuorumTaken += o.QuorumTaken
	f.Slowest = max(f.Slowest, o.Slowest)
	f.Writes += o.Writes
	f.Reads += o.Reads
	f.Lost += o.Lost
	f.Keys += o.Keys
	f.Operations += o.Operations
	f.Unknown += o.Unknown
	f.Ours += o.Ours
	f.Served += o.Served
	f.Returning += o.Returning
	f.Residues += o.Residues
	f.Evictions += o.Evictions
	f.Refused += o.Refused
	f.Violations += o.Violations
	f.WithoutQuorum = max(f.WithoutQuorum, o.WithoutQuorum)
	f.Outages += o.Outages
	f.OursOut += o.OursOut
}

func addTo[K comparable](m *map[K]int, more map[K]int) {
	if *m == nil {
		*m = map[K]int{}
	}
	for k, n := range more {
		(*m)[k] += n
	}
}

func count[K comparable](m *map[K]int, key K) {
	if *m == nil {
		*m = map[K]int{}
	}
	(*m)[key]++
}

func sum[K comparable](m map[K]int) int {
	n := 0
	for _, v := range m {
		n += v
	}
	return n
}

func (f *Figures) hit(k FaultKind) {
	f.mu.Lock()
	defer f.mu.Unlock()
	count(&f.Faults, k)
}

func (f *Figures) outage() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.QuorumTaken++
}

func (f *Figures) missed(k FaultKind) {
	f.mu.Lock()
	defer f.mu.Unlock()
	count(&f.Missed, k)
}

func (f *Figures) eviction() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.Evictions++
}

func (f *Figures) refusedEviction() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.Refused++
}

// denied takes a denial of the quorum guard in.
func (f *Figures) denied(way string, spare bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	count(&f.Denied, way)
	if spare {
		f.Spared++
	}
}

func (f *Figures) faults() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return sum(f.Faults)
}

// round takes a round in.
func (f *Figures) round(r Round, took time.Duration) {
	f.mu.Lock()
	defer f.mu.Unlock()
	count(&f.Changes, r.Change.Kind)
	f.Chaos += took
	f.Slowest = max(f.Slowest, took)
}

// raced takes data races in.
func (f *Figures) raced(n int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.Violations += n
}

// judged takes judgements in.
func (f *Figures) judged(judgements []Judgement) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, j := range judgements {
		by := j.By
		if j.Ours {
			by = "sidecars"
			f.Ours++
		}
		count(&f.Removals, by)
		if j.By == byHands {
			count(&f.Taken, j.Way)
		}
		if j.Named {
			f.Slipped++
		}
		if j.Ours && j.Served {
			f.Served++
		}
		if j.Ours && j.Returns {
			f.Returning++
		}
		if len(j.Residue) > 0 {
			f.Residues++
		}
		f.Violations += len(j.Violations)
	}
}

// worked takes judgements of operations on members in, and what is wrong with several together.
func (f *Figures) worked(judgements []WorkJudgement, together []string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, j := range judgements {
		count(&f.Works, j.Operation)
		if len(j.Residue) > 0 {
			f.Residues++
		}
		f.Violations += len(j.Violations)
	}
	f.Violations += len(together)
}

// life takes the traffic of a whole life in. It returns the outages that no fault of the script explains.
func (f *Figures) life(t traffic.Figures, l Linearizability, e *Evidence) (ours []traffic.Span) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.Seeds++
	f.Writes += t.Traffic.AcknowledgedWrites
	f.Reads += t.Traffic.Reads.Answered
	f.Lost += t.Traffic.LostWrites
	f.Violations += len(t.Traffic.Violations) + len(l.Illegal)
	f.Keys += l.Keys
	f.Operations += l.Operations
	f.Unknown += len(l.Unknown)
	for _, o := range t.Cluster.Outages {
		f.Outages++
		f.WithoutQuorum = max(f.WithoutQuorum, time.Duration(o.Seconds*float64(time.Second)))
		// A fault that follows within a moment is what the samples saw the beginning of.
		if !e.faultBetween(o.From, o.From.Add(certainty)) {
			f.OursOut++
			ours = append(ours, o)
		}
	}
	return ours
}

// told is the traffic of a life in a few words.
func told(t traffic.Figures, l Linearizability) string {
	return fmt.Sprintf("%d writes acknowledged, %d lost; %d linearizable reads, %d stale; %d keys linearizable, %d "+
		"not, %d unknown; without quorum %.1f s in all",
		t.Traffic.AcknowledgedWrites, t.Traffic.LostWrites, t.Traffic.Reads.Answered, t.Traffic.StaleReads,
		l.Keys-len(l.Illegal)-len(l.Unknown), len(l.Illegal), len(l.Unknown), t.Cluster.WithoutQuorumSeconds)
}

// String is a table.
func (f *Figures) String() string {
	f.mu.Lock()
	defer f.mu.Unlock()
	var b strings.Builder
	table := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	line := func(name, format string, args ...any) {
		fmt.Fprintf(table, "%s\t"+format+"\n", append([]any{name}, args...)...)
	}
	line("chaos", "%.1f minutes in seeds: %d", f.Chaos.Minutes(), f.Seeds)
	line("rollouts completed", "%d (%s), the slowest round %.0f s; quorum taken away on purpose: %d times",
		sum(f.Changes), listed(f.Changes), f.Slowest.Seconds(), f.QuorumTaken)
	line("faults", "%d (%s)", sum(f.Faults), listed(f.Faults))
	if len(f.Missed) > 0 {
		line("faults that missed", "%d (%s)", sum(f.Missed), listed(f.Missed))
	}
	line("writes acknowledged", "%d, lost: %d", f.Writes, f.Lost)
	line("linearizable reads", "%d", f.Reads)
	line("linearizable, says porcupine", "%d operations on %d keys; not decided in time: %d", f.Operations,
		f.Keys, f.Unknown)
	line("removals", "%d (%s)", sum(f.Removals), listed(f.Removals))
	line("removals of ours", "%d, of members that served: %d, that would have come back by themselves: %d; excused: %d",
		f.Ours, f.Served, f.Returning, f.Residues)
	line("operations on members", "%d (%s)", sum(f.Works), listed(f.Works))
	line("evictions by drains", "%d, refused: %d times", f.Evictions, f.Refused)
	if len(f.Denied)+len(f.Taken) > 0 {
		line("denied by the quorum guard", "%d (%s), of which could have been spared: %d", sum(f.Denied),
			listed(f.Denied), f.Spared)
		line("taken by hands all the same", "%d (%s); taken by anybody before the API server saw that quorum rests on "+
			"them: %d", sum(f.Taken), listed(f.Taken), f.Slipped)
	}
	line("longest time without quorum", "%.1f s; outages: %d, of which no fault of the script explains: %d",
		f.WithoutQuorum.Seconds(), f.Outages, f.OursOut)
	line("violations", "%d", f.Violations)
	_ = table.Flush() // A strings.Builder takes everything.
	return b.String()
}

// listed is what was counted, the most frequent first.
func listed[K ~string](m map[K]int) string {
	keys := slices.SortedFunc(maps.Keys(m), func(a, b K) int {
		return cmp.Or(cmp.Compare(m[b], m[a]), cmp.Compare(a, b))
	})
	parts := make([]string, len(keys))
	for i, k := range keys {
		parts[i] = fmt.Sprintf("%s %d", k, m[k])
	}
	return strings.Join(parts, ", ")
}
