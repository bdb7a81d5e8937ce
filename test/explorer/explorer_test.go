package explorer

import (
	"flag"
	"testing"
	"time"
)

var (
	larger  = flag.Bool("larger", false, "search the larger worlds instead: ten minutes and 2 GiB")
	stories = flag.Bool("stories", false, "tell how each mutant is caught")
	most    = flag.Int("most", 0, "cut a search short after so many states (0 is never)")
)

// limit is how many states of a world are visited.
func limit() int {
	if testing.Short() {
		return 2_000
	}
	return *most
}

// notInShort is for tests in which one goroutine works for long.
func notInShort(t *testing.T) {
	if testing.Short() {
		t.Skip("there is nothing here for the race detector")
	}
}

// The worlds of CI. What is not about the number of starts has as few of them as make the
// faults meet: one coordinator that goes wrong, one that comes in its place, and the
// first one again.
func worlds() []Params {
	three := func(coordinators int, f Faults) Params {
		return Params{Members: 3, Coordinators: coordinators, Faults: f}
	}
	with := func(p Params, change func(*Params)) Params { change(&p); return p }
	return []Params{
		// Two that both believe that it is their turn, again and again.
		three(2, Faults{Starts: 6}),
		three(3, Faults{Starts: 3}),
		with(three(2, Faults{Starts: 3}), func(p *Params) { p.Fine = true }),
		with(three(2, Faults{Starts: 4}), func(p *Params) { p.Leader = 2 }),
		with(three(2, Faults{Starts: 3, Lost: 1}), func(p *Params) { p.Evict = true }),
		with(three(2, Faults{Starts: 2, Lost: 1}), func(p *Params) { p.TrueLock = true }),
		with(three(2, Faults{Starts: 2}), func(p *Params) { p.Clocks = true }),
		// Requests that are lost, late and repeated; processes that end.
		three(2, Faults{Starts: 3, Lost: 2}),
		three(2, Faults{Starts: 3, Lost: 1, Crashes: 1}),
		three(2, Faults{Starts: 3, Crashes: 2}),
		three(2, Faults{Starts: 3, Lost: 1, Stops: 1}),
		// The Lease is created, deleted, replaced and edited.
		with(three(2, Faults{Starts: 3, Lost: 1}), func(p *Params) { p.Fresh = true }),
		with(three(2, Faults{Starts: 2, Edits: 1, Crashes: 1}), func(p *Params) { p.Fresh = true }),
		three(2, Faults{Starts: 2, Edits: 2, Crashes: 1}),
		with(three(2, Faults{Starts: 2, Edits: 1}), func(p *Params) { p.TrueLock = true }),
		// Members fail, or seem to; pods change and go; the template changes.
		three(2, Faults{Starts: 2, Failures: 1, Lost: 1}),
		three(2, Faults{Starts: 2, Failures: 1, Crashes: 1}),
		three(2, Faults{Starts: 2, Failures: 2}),
		with(three(1, Faults{Starts: 1, Failures: 2, Deafness: 1}), func(p *Params) { p.Fine = true }),
		three(2, Faults{Starts: 2, Deafness: 1, Lost: 1}),
		three(2, Faults{Starts: 2, Deletions: 1, Crashes: 1}),
		three(2, Faults{Starts: 2, Reports: 1, Crashes: 1}),
		three(2, Faults{Starts: 2, Templates: 1, Lost: 1}),
		three(2, Faults{Starts: 2, Templates: 1, Crashes: 1}),
		// Other clusters.
		{Members: 3, Ghosts: 1, Coordinators: 2, Faults: Faults{Starts: 2, Failures: 1, Lost: 1}},
		{Members: 4, Coordinators: 2, Faults: Faults{Starts: 2, Crashes: 1}},
		{Members: 5, Coordinators: 1, Faults: Faults{Starts: 1, Lost: 1, Failures: 1, Deafness: 1}},
		{Members: 5, Coordinators: 1, MaxUnavailable: 2, Faults: Faults{Starts: 2, Lost: 1, Failures: 1}},
		{Members: 4, Learners: 1, Coordinators: 2, Faults: Faults{Starts: 2, Crashes: 1}},
		{Members: 1, Coordinators: 2, Faults: Faults{Starts: 3, Lost: 1, Crashes: 1}},
	}
}

// largerWorlds have one more of what makes the others: a start, a loss, a coordinator, or
// everything taken apart.
func largerWorlds() []Params {
	three := func(coordinators int, f Faults) Params {
		return Params{Members: 3, Coordinators: coordinators, Faults: f}
	}
	with := func(p Params, change func(*Params)) Params { change(&p); return p }
	return []Params{
		with(three(2, Faults{Starts: 3, Lost: 2}), func(p *Params) { p.Fine = true }),
		three(2, Faults{Starts: 3, Lost: 1, Failures: 1}),
		with(three(2, Faults{Starts: 3, Edits: 1, Crashes: 1}), func(p *Params) { p.Fresh = true }),
		three(3, Faults{Starts: 3, Crashes: 1}),
		{Members: 5, MaxUnavailable: 2, Coordinators: 2, Faults: Faults{Starts: 2, Crashes: 1}},
	}
}

func TestNoInterleavingBreaksARule(t *testing.T) {
	start := time.Now()
	total := Result{}
	searched := worlds()
	if *larger {
		searched = largerWorlds()
	}
	for _, p := range searched {
		t.Run(p.String(), func(t *testing.T) {
			m := New(p)
			r := m.Search(t.Context(), limit())
			t.Log(r)
			if r.Broken != "" {
				t.Fatalf("%s\n%s", r.Broken, m.Story(r.Path))
			}
			total.add(r)
		})
	}
	total.Time = time.Since(start)
	t.Log(&total)
}

func TestTheExplorerKeepsAllThatTheProtocolKnows(t *testing.T) {
	notInShort(t)
	for _, p := range worlds() {
		m := New(p)
		m.verify = true
		if r := m.Search(t.Context(), 5_000); r.Broken != "" {
			t.Errorf("%s\n%s", r.Broken, m.Story(r.Path))
		}
	}
}

// The worlds in which every state is also asked whether the rollout can still end.
func liveWorlds() []Params {
	three := func(f Faults) Params {
		return Params{Members: 3, Coordinators: 2, TrueLock: true, Faults: f}
	}
	stay := func(coordinators int, f Faults) Params { // The update is the cure.
		p := three(f)
		p.Coordinators, p.Stay = coordinators, true
		return p
	}
	clocks := func(f Faults) Params { // Without quorum there is no lock.
		p := three(f)
		p.Coordinators, p.Clocks = 1, true
		return p
	}
	fresh := three(Faults{Starts: 1, Edits: 1})
	fresh.Fresh = true
	evict := three(Faults{Starts: 1, Crashes: 1, Lost: 1})
	evict.Evict = true
	return []Params{
		three(Faults{Starts: 2, Lost: 1}),
		three(Faults{Starts: 1, Crashes: 1, Stops: 1}),
		three(Faults{Starts: 1, Failures: 1}), three(Faults{Starts: 1, Deafness: 1}),
		three(Faults{Starts: 1, Templates: 1}),
		stay(1, Faults{Starts: 1, Failures: 1}), stay(1, Faults{Starts: 1, Deafness: 1}),
		clocks(Faults{Starts: 1, Failures: 2}),
		three(Faults{Starts: 1, Edits: 1, Deletions: 1}), fresh, evict,
		{Members: 5, Coordinators: 1, TrueLock: true, Faults: Faults{Starts: 1, Lost: 1, Failures: 2}},
		{Members: 1, Coordinators: 2, TrueLock: true, Faults: Faults{Starts: 2, Crashes: 1, Lost: 1}},
	}
}

func TestFromEveryStateTheRolloutCanStillEnd(t *testing.T) {
	notInShort(t)
	for _, p := range liveWorlds() {
		t.Run(p.String(), func(t *testing.T) {
			m := New(p)
			l := m.Live(t.Context(), limit())
			t.Log(l)
			if l.Broken != "" {
				t.Fatal(l.Broken) // How, is told by the search of such a world.
			}
			if l.Stuck > 0 {
				t.Fatalf("it cannot from %d of them\n%s", l.Stuck, l.Story)
			}
		})
	}
}
