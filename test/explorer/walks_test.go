package explorer

import (
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// steps of a walk, at most.
const steps = 300

// Bigger clusters have too many worlds to visit them all: they are walked through at
// random. A walk that breaks a rule is shortened to the moves that it takes; -rapid.seed
// takes the same walks again, and -rapid.checks says how many to take.
func TestRandomWalksThroughBiggerClusters(t *testing.T) {
	notInShort(t)
	var counts Counts
	var mutex sync.Mutex
	walks, moved := 0, 0
	rapid.Check(t, func(t *rapid.T) {
		m, path := New(bigger(t)), []Move(nil)
		m.verify, m.mayGuess = true, true
		w := m.First()
		m.normalise(&w)
		// Numbers and no moves: whatever is left out, the others still mean something. To leave
		// one out is to make it zero.
		for _, n := range rapid.SliceOfN(rapid.IntRange(0, 1<<20), steps, steps).Draw(t, "moves") {
			if n == 0 {
				continue
			}
			mv, ok := m.pick(&w, n)
			if !ok {
				break
			}
			path = append(path, mv)
			next, broken := m.Apply(w, mv)
			if broken != "" {
				t.Fatalf("%s\n%s\n%s", broken, m.Params, m.Story(path))
			}
			w = next
		}
		mutex.Lock()
		defer mutex.Unlock()
		walks, moved = walks+1, moved+len(path)
		counts.add(m.counts)
	})
	t.Logf("%d walks, %d moves: %+v", walks, moved, counts)
	require.GreaterOrEqual(t, counts.Removals, walks, "that proves little")
	if walks >= 1000 { // Fewer may meet none of these.
		require.NotZero(t, counts.Refused)
		require.NotZero(t, counts.Late)
		require.NotZero(t, counts.Fences)
	}
}

// bigger draws a cluster.
func bigger(t *rapid.T) Params {
	upTo := func(n int, what string) uint8 { return uint8(rapid.IntRange(0, n).Draw(t, what)) }
	p := Params{
		Members:      rapid.SampledFrom([]int{3, 4, 5, 6, 7}).Draw(t, "members"),
		Ghosts:       rapid.SampledFrom([]int{0, 0, 0, 1, 2}).Draw(t, "ghosts"),
		Coordinators: rapid.IntRange(1, 3).Draw(t, "coordinators"),
		Evict:        rapid.Bool().Draw(t, "evict"),
		Clocks:       rapid.Bool().Draw(t, "fallback"),
		Fresh:        rapid.Bool().Draw(t, "no Lease"),
		Fine:         rapid.Bool().Draw(t, "fine"),
		Faults: Faults{
			Starts: 12, Lost: upTo(4, "lost"), Crashes: upTo(3, "crashes"), Stops: upTo(2, "stops"),
			Failures: upTo(3, "failures"), Deletions: upTo(1, "deletions"), Deafness: upTo(2, "deaf"),
			Edits: upTo(2, "edits"), Templates: upTo(2, "templates"), Reports: upTo(3, "reports"),
		},
	}
	// One of what the field has beside, or nothing.
	switch rapid.SampledFrom([]string{"nothing", "scaling", "others' voters", "restarts", "a broken revision",
		"another etcd", "an order", "others' drains"}).Draw(t, "the field") {
	case "scaling":
		p.Ordinals, p.SlowStop, p.Faults.Scales = min(p.Members+1, maxMembers), true, upTo(3, "scales")
	case "others' voters":
		p.Members = min(p.Members, 5)
		p.External, p.SlowStop, p.Faults.Departures = rapid.IntRange(1, maxMembers-p.Members).Draw(t, "external"), true,
			upTo(3, "departures")
	case "restarts":
		p.Faults.Restarts, p.Faults.PowerCuts = upTo(3, "restarts"), upTo(1, "power cuts")
	case "a broken revision":
		p.Broken, p.Faults.Restarts, p.Faults.PowerCuts = true, upTo(3, "restarts"), upTo(1, "power cuts")
	case "another etcd":
		p.Own = true
		p.Faults.CutOffs, p.Faults.WrongIDs, p.Faults.OldReads = upTo(3, "cut off"), upTo(3, "wrong IDs"),
			upTo(2, "old reads")
		p.Faults.Joins, p.Faults.OldLists = upTo(1, "joins"), upTo(2, "old lists")
	case "an order":
		p.Ordered = true
	case "others' drains":
		p.SlowStop, p.Bound = rapid.Bool().Draw(t, "slow stops"), rapid.Bool().Draw(t, "bound to nodes")
		p.Faults.Signs, p.Faults.Drains = 1+upTo(5, "signs"), upTo(4, "drains")
		p.Budget = rapid.Bool().Draw(t, "a budget")
	}
	p.Learners = rapid.IntRange(0, p.Members-3).Draw(t, "learners")
	if p.Budget { // It counts Ready pods, so all that vote have one, and nothing else takes them.
		f := &p.Faults
		p.Evict, p.Ghosts, p.Learners, f.Failures, f.Deafness, f.Deletions = true, 0, 0, 0, 0, 0
	}
	p.MaxUnavailable = rapid.IntRange(1, 3).Draw(t, "unavailable at most")
	p.Leader = rapid.IntRange(0, p.Members-p.Learners-1).Draw(t, "leader")
	return p
}

// pick is the move that a number stands for. Most of the time a process makes progress, because
// otherwise nothing would ever happen.
func (m *Model) pick(w *World, n int) (Move, bool) {
	moves := m.Moves(w, nil)
	var further []Move
	for _, mv := range moves {
		if mv.what == goOn || mv.what == begin || mv.what == kubelet {
			further = append(further, mv)
		}
	}
	if n%8 > 0 && len(further) > 0 {
		moves = further
	}
	if len(moves) == 0 {
		return Move{}, false
	}
	return moves[(n/8)%len(moves)], true
}

// A walk finds what is broken on purpose.
func TestARandomWalkFindsAMutant(t *testing.T) {
	notInShort(t)
	for seed := range 200_000 {
		m := New(Params{Members: 5, Coordinators: 2, MaxUnavailable: 1, Faults: Faults{Starts: 12, Lost: 2}})
		m.Weak.NoVersion = true
		w := m.First()
		m.normalise(&w)
		n := uint64(seed)*0x9e3779b97f4a7c15 + 1
		for range 200 {
			n = n*6364136223846793005 + 1442695040888963407
			mv, ok := m.pick(&w, int(n>>40))
			if !ok {
				break
			}
			next, broken := m.Apply(w, mv)
			if broken != "" {
				t.Logf("found in walk %d: %s", seed+1, broken)
				return
			}
			w = next
		}
	}
	require.Fail(t, "not found")
}
