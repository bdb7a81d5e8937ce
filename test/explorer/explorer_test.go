package explorer

import (
	"flag"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

var (
	larger  = flag.Bool("larger", false, "search the larger worlds instead: half an hour and 3 GiB")
	stories = flag.Bool("stories", false, "tell how each mutant is caught")
	most    = flag.Int("most", 0, "cut the search of a world, not of a mutant, after so many states (0 is never)")
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
		with(three(2, Faults{Starts: 2, Scales: 1, Deletions: 1}), func(p *Params) {
			p.Ordinals, p.SlowStop = 4, true
		}),
		{Members: 5, MaxUnavailable: 2, Coordinators: 2, Faults: Faults{Starts: 2, Crashes: 1}},
		presumedWorld(2, Faults{Starts: 2, Crashes: 1}),
		presumedWorld(2, Faults{Starts: 2, Stops: 1}),
		presumedWorld(2, Faults{Starts: 2, Lost: 1, Forgets: 1}),
		presumedWorld(2, Faults{Starts: 3, Restores: 1}),
		three(2, Faults{Starts: 2, Signs: 1, Drains: 1}),
		with(three(2, Faults{Starts: 2, Signs: 1, Drains: 1}), func(p *Params) { p.Evict, p.Budget = true, true }),
	}
}

// fieldWorlds have what the field has and a rollout by itself has not: each a kind of its own.
func fieldWorlds() []Params {
	one := func(f Faults) Params {
		f.Starts = 1
		return Params{Members: 3, Coordinators: 1, Faults: f}
	}
	two := func(f Faults) Params {
		f.Starts = 2
		return Params{Members: 3, Coordinators: 2, Faults: f}
	}
	loops := func(f Faults) Params {
		return Params{Members: 3, Coordinators: 2, TrueLock: true, Loop: true, Faults: f}
	}
	with := func(p Params, change func(*Params)) Params { change(&p); return p }
	return []Params{
		// The StatefulSet is scaled, the member list follows late, pods take their time to go.
		with(one(Faults{Scales: 1, Lost: 1}), func(p *Params) { p.Members, p.SlowStop = 5, true }),
		with(one(Faults{Scales: 1}), func(p *Params) { p.Members, p.SlowStop, p.Fine = 4, true, true }),
		with(one(Faults{Scales: 2}), func(p *Params) { p.Members, p.Ordinals, p.SlowStop = 4, 5, true }),
		with(one(Faults{Scales: 1, Deletions: 1}), func(p *Params) { p.Ordinals, p.SlowStop = 4, true }),
		// Voters outside our ordinals go without asking us; others are added and never start.
		with(two(Faults{Departures: 2}), func(p *Params) { p.External = 2 }),
		with(one(Faults{Departures: 2, Lost: 1}), func(p *Params) { p.External, p.SlowStop = 2, true }),
		with(one(Faults{Departures: 2}), func(p *Params) { p.Members, p.External, p.SlowStop = 4, 1, true }),
		two(Faults{Joins: 1}),
		// A revision that does not come up, while members restart.
		with(one(Faults{Restarts: 2, Reports: 1, Lost: 1}), func(p *Params) { p.Broken = true }),
		with(two(Faults{Restarts: 1, Templates: 1}), func(p *Params) { p.Broken = true }),
		with(one(Faults{PowerCuts: 1, Templates: 1}), func(p *Params) { p.Broken = true }),
		with(one(Faults{Failures: 2}), func(p *Params) { p.Broken, p.Fine = true, true }),
		with(one(Faults{PowerCuts: 1, Restarts: 1}), func(p *Params) {
			p.Members, p.MaxUnavailable, p.Broken = 5, 2, true
		}),
		one(Faults{Restarts: 1, Failures: 1, Lost: 1}),
		// Coordinators that do not see the same etcd.
		with(two(Faults{CutOffs: 2, Failures: 1}), func(p *Params) { p.Own = true }),
		with(one(Faults{CutOffs: 1, Restarts: 1, Failures: 1}), func(p *Params) { p.Own = true }),
		with(one(Faults{CutOffs: 2}), func(p *Params) { p.Own, p.Zones = true, true }),
		with(two(Faults{CutOffs: 2}), func(p *Params) { p.Own, p.Zones = true, true }),
		with(one(Faults{CutOffs: 3}), func(p *Params) { p.Members, p.Own, p.Zones, p.Fine = 5, true, true, true }),
		two(Faults{Joins: 1, OldLists: 2}),
		one(Faults{Joins: 1, OldLists: 1, Failures: 1}),
		with(one(Faults{Scales: 1, OldLists: 1}), func(p *Params) { p.Members, p.Ordinals, p.SlowStop = 3, 5, true }),
		two(Faults{WrongIDs: 1, Failures: 1}),
		two(Faults{OldReads: 1, Failures: 1}),
		// Other shapes of a deployment.
		with(one(Faults{Failures: 1, Deletions: 1}), func(p *Params) { p.Ordered = true }),
		with(one(Faults{Failures: 1, Deafness: 1, Restarts: 1}), func(p *Params) { p.Ordered, p.Leader = true, 2 }),
		with(two(Faults{Deafness: 2}), func(p *Params) { p.Members, p.Nameless = 5, true }),
		with(one(Faults{Deafness: 1, Failures: 1}), func(p *Params) { p.Nameless = true }),
		with(two(Faults{Failures: 1, Lost: 1}), func(p *Params) { p.Denied = true }),
		with(two(Faults{Drains: 1}), func(p *Params) { p.Evict, p.Budget = true, true }),
		with(one(Faults{Drains: 2, Lost: 1}), func(p *Params) { p.Evict, p.Budget, p.SlowStop = true, true, true }),
		one(Faults{Wedges: 1, Failures: 1}),
		// Others say whom they are about to take. Then they take it at any moment, or do not.
		one(Faults{Signs: 2, Drains: 1}),
		one(Faults{Signs: 1, Drains: 1, Deafness: 1}),
		with(one(Faults{Signs: 1, Drains: 1}), func(p *Params) { p.Members, p.MaxUnavailable = 5, 2 }),
		with(one(Faults{Signs: 1, Drains: 1, Lost: 1}), func(p *Params) { p.Fine, p.SlowStop = true, true }),
		with(one(Faults{Signs: 2, Drains: 2}), func(p *Params) { p.Evict, p.Budget = true, true }),
		with(one(Faults{Signs: 1, Drains: 1, Lost: 1}), func(p *Params) {
			p.Evict, p.Budget, p.SlowStop = true, true, true
		}),
		loops(Faults{Signs: 1, Drains: 1, Crashes: 1}),
		// Claims that begin when production's loop begins them.
		loops(Faults{Lost: 1, Crashes: 1, Templates: 1}),
		loops(Faults{Edits: 1, Unfits: 1}),
		with(loops(Faults{Failures: 2, Unfits: 1}), func(p *Params) { p.Clocks, p.Coordinators = true, 1 }),
	}
}

// cachedWorlds are those in which looks go by what watches tell, however late.
func cachedWorlds() []Params {
	of := func(coordinators int, f Faults) Params {
		return Params{Members: 3, Coordinators: coordinators, CachedView: true, Faults: f}
	}
	with := func(p Params, change func(*Params)) Params { change(&p); return p }
	return []Params{
		of(2, Faults{Starts: 2, Lost: 1}),
		of(1, Faults{Starts: 2, Failures: 1}),
		of(2, Faults{Starts: 2, Crashes: 1}),
		of(1, Faults{Starts: 2, Deletions: 1, Templates: 1}),
		with(of(1, Faults{Starts: 1, Failures: 1, Deafness: 1}), func(p *Params) { p.Fine = true }),
		with(of(1, Faults{Starts: 1, Failures: 1, Restarts: 1}), func(p *Params) { p.Broken = true }),
		with(of(1, Faults{Starts: 1, Scales: 1}), func(p *Params) { p.Members, p.SlowStop = 4, true }),
		with(of(1, Faults{Starts: 1, Drains: 1, Lost: 1}), func(p *Params) { p.Evict, p.Budget = true, true }),
		with(of(1, Faults{Starts: 1, Edits: 1, Lost: 1}), func(p *Params) { p.Fresh, p.Clocks = true, true }),
		of(1, Faults{Starts: 1, Signs: 1, Drains: 1}),
		with(of(2, Faults{Starts: 2, Lost: 1}), func(p *Params) { p.Ahead = true }),
		with(of(1, Faults{Starts: 1, Failures: 1, Deafness: 1}), func(p *Params) { p.Fine, p.Ahead = true, true }),
		with(of(1, Faults{Starts: 1, Deletions: 1}), func(p *Params) { p.Fine, p.Ahead = true, true }),
		with(of(1, Faults{Starts: 1, Drains: 1, Lost: 1}), func(p *Params) {
			p.Evict, p.Budget, p.Ahead = true, true, true
		}),
	}
}

// kindWorlds are those of the operations on members: the removal of one, and one that disturbs one for a while.
func kindWorlds() []Params {
	return []Params{
		presumedWorld(2, Faults{Starts: 2}),
		presumedWorld(2, Faults{Starts: 2, Lost: 1}),
		presumedWorld(1, Faults{Starts: 2, Lost: 1, Crashes: 1}),
		presumedWorld(1, Faults{Starts: 2, Lost: 1, Stops: 1}),
		presumedWorld(1, Faults{Starts: 2, Lost: 1, Templates: 1}),
		presumedWorld(1, Faults{Starts: 2, Lost: 1, Forgets: 1}),
		presumedWorld(1, Faults{Starts: 2, Restores: 1}),
		blockingWorld(2, Faults{Starts: 2, Lost: 1}),
		blockingWorld(2, Faults{Starts: 2, Crashes: 1}),
		blockingWorld(1, Faults{Starts: 2, Lost: 1, Stops: 1}),
		noSpaceWorld(2, Faults{Starts: 2, Templates: 1, Lost: 1}),
		noSpaceWorld(1, Faults{Templates: 1, Starts: 2, Crashes: 1}),
		noSpaceWorld(1, Faults{Templates: 1, Starts: 1, Lost: 1, Deletions: 1}),
	}
}

// noSpaceWorld has a member whose database is full, and a rollout that may begin at any time.
func noSpaceWorld(coordinators int, f Faults) Params {
	p := blockingWorld(coordinators, f)
	p.Duty = true
	return p
}

// presumedWorld has a voter that an old scale-in has left behind. Its removal is asked for, and a scale-out
// may bring it back before that takes effect. Every other voter but a ghost is needed then: with the ghost
// and without the voter, no pod may be away.
func presumedWorld(coordinators int, f Faults) Params {
	f.Presumed, f.Scales = 1, 1
	return Params{Members: 3, Ordinals: 4, Left: 1, Ghosts: 1, Coordinators: coordinators, Faults: f}
}

// blockingWorld has a member that is disturbed for a while, perhaps late.
func blockingWorld(coordinators int, f Faults) Params {
	f.Blocking = 1
	return Params{Members: 3, Coordinators: coordinators, Faults: f}
}

func TestNoInterleavingOfTheOtherKindsBreaksARule(t *testing.T) {
	search(t, kindWorlds())
}

func TestNoInterleavingWithACachedViewThatLagsBehindBreaksARule(t *testing.T) {
	search(t, cachedWorlds())
}

func TestNoInterleavingOfTheFieldBreaksARule(t *testing.T) {
	search(t, fieldWorlds())
}

// search visits every state of the worlds.
func search(t *testing.T, searched []Params) {
	t.Helper()
	start := time.Now()
	total := Result{}
	for _, p := range searched {
		t.Run(p.String(), func(t *testing.T) {
			m := New(p)
			r := m.Search(t.Context(), limit())
			t.Log(r)
			require.Empty(t, r.Broken, m.Story(r.Path))
			total.add(r)
		})
	}
	total.Time = time.Since(start)
	t.Log(&total)
}

func TestNoInterleavingBreaksARule(t *testing.T) {
	if *larger {
		search(t, largerWorlds())
		return
	}
	search(t, worlds())
}

func TestTheExplorerKeepsAllThatTheProtocolKnows(t *testing.T) {
	notInShort(t)
	for _, p := range slices.Concat(worlds(), kindWorlds(), cachedWorlds()) {
		m := New(p)
		m.verify = true
		r := m.Search(t.Context(), 5_000)
		require.Empty(t, r.Broken, m.Story(r.Path))
	}
}

// The worlds in which every state is also asked whether the rollout can still end. Claims begin
// there when production's loop begins one, and at no other time.
func liveWorlds() []Params {
	three := func(f Faults) Params {
		return Params{Members: 3, Coordinators: 2, TrueLock: true, Loop: true, Faults: f}
	}
	with := func(p Params, change func(*Params)) Params { change(&p); return p }
	stay := func(coordinators int, f Faults) Params { // The update is the cure.
		return with(three(f), func(p *Params) { p.Coordinators, p.Stay = coordinators, true })
	}
	clocks := func(coordinators int, f Faults) Params { // Without quorum there is no lock.
		return with(three(f), func(p *Params) { p.Coordinators, p.Clocks = coordinators, true })
	}
	return []Params{
		three(Faults{Lost: 1}), three(Faults{Starts: 1}),
		three(Faults{Crashes: 1}), three(Faults{Stops: 1}),
		three(Faults{Failures: 1}), three(Faults{Deafness: 1}),
		three(Faults{Templates: 1, Lost: 1}),
		stay(1, Faults{Failures: 1}), stay(1, Faults{Deafness: 1}),
		clocks(1, Faults{Failures: 2}),
		three(Faults{Edits: 1, Deletions: 1}),
		with(three(Faults{Edits: 1}), func(p *Params) { p.Fresh = true }),
		with(three(Faults{Crashes: 1, Lost: 1}), func(p *Params) { p.Evict = true }),
		{Members: 5, Coordinators: 1, TrueLock: true, Loop: true, Faults: Faults{Lost: 1, Failures: 2}},
		{Members: 1, Coordinators: 2, TrueLock: true, Loop: true, Faults: Faults{Crashes: 1, Lost: 1}},
		// What the field has beside.
		three(Faults{Unfits: 1, Failures: 1}),
		with(clocks(1, Faults{Failures: 2, Unfits: 1}), func(p *Params) { p.Stay = true }),
		with(three(Faults{Wedges: 1, Failures: 1}), func(p *Params) { p.Coordinators, p.Stay = 1, true }),
		with(three(Faults{Scales: 1, Lost: 1}), func(p *Params) {
			p.Coordinators, p.Members, p.Ordinals, p.SlowStop = 1, 4,
				5, true
		}),
		with(three(Faults{Departures: 1}), func(p *Params) { p.Coordinators, p.Members, p.External = 1, 4, 1 }),
		with(three(Faults{Lost: 1}), func(p *Params) { p.Coordinators, p.External, p.Trusted = 1, 2, true }),
		with(clocks(1, Faults{Restarts: 1}), func(p *Params) { p.Broken = true }),
		with(three(Faults{Failures: 1, Restarts: 1}), func(p *Params) { p.Coordinators, p.Ordered = 1, true }),
		with(three(Faults{Drains: 2, Lost: 1}), func(p *Params) { p.Coordinators, p.Evict, p.Budget = 1, true, true }),
		// The cordons stay or the pods are bound to their nodes, or somebody has to clear what an eviction left.
		three(Faults{Signs: 1, Drains: 1}),
		stay(1, Faults{Signs: 2, Drains: 1}),
		with(three(Faults{Signs: 1, Drains: 1, Lost: 1}), func(p *Params) { p.Coordinators, p.Bound = 1, true }),
		with(three(Faults{Signs: 1, Drains: 1, Crashes: 1}), func(p *Params) {
			p.Coordinators, p.Evict, p.Budget = 1, true, true
		}),
		with(three(Faults{Deletions: 1, Lost: 1}), func(p *Params) { p.Coordinators, p.CachedView = 1, true }),
		// The other kinds of operations. A suspect may stay one.
		with(three(Faults{Blocking: 1, Lost: 1}), func(p *Params) { p.Coordinators = 1 }),
		with(presumedWorld(1, Faults{Lost: 1}), func(p *Params) {
			p.Ghosts, p.TrueLock, p.Loop = 0, true, true
		}),
	}
}

func TestFromEveryStateTheRolloutCanStillEnd(t *testing.T) {
	notInShort(t)
	for _, p := range liveWorlds() {
		t.Run(p.String(), func(t *testing.T) {
			m := New(p)
			l := m.Live(t.Context(), 0)
			t.Log(l)
			require.Empty(t, l.Broken, "how, is told by the search of such a world")
			require.Zero(t, l.Stuck, "so many states from which it cannot\n%s", l.Story)
		})
	}
}
