package explorer

import (
	"context"
	"fmt"
	"hash/maphash"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// Result is what a search has found.
type Result struct {
	Params Params
	// States and Moves that were visited; Depth is the length of the longest shortest path.
	States, Moves, Depth int
	Counts               Counts
	Time                 time.Duration
	// Bytes is the memory in use, at most: after each level, and what is garbage by then as well.
	Bytes uint64
	// Broken is the rule that was broken, with the shortest path to it; else empty.
	Broken string
	Path   []Move
	// Cut is true when the search was ended before it had seen everything.
	Cut bool
}

func (r *Result) String() string {
	what := "in all"
	if r.Params.Members > 0 {
		what = r.Params.String()
	}
	text := fmt.Sprintf("%s: %d states, %d moves, depth %d, %v, %d MiB; removals %d (%d landed late), refused %d, "+
		"fences %d, claims %d; excused: %d failed, %d came back, %d guesses, %d cordoned for long (%d of all late); "+
		"made way %d",
		what, r.States, r.Moves, r.Depth, r.Time.Round(time.Millisecond), r.Bytes>>20,
		r.Counts.Removals, r.Counts.Late, r.Counts.Refused, r.Counts.Fences, r.Counts.Claims, r.Counts.Residues,
		r.Counts.Returned, r.Counts.Guesses, r.Counts.Outwaited, r.Counts.ExcusedLate, r.Counts.MadeWay)
	if r.Cut {
		text += "; CUT SHORT"
	}
	return text
}

// A world is known by 64 bits of its hash. That two of n worlds share them, and one of them is
// therefore not visited, has a chance of about n²/2⁶⁵: one in 300,000 with ten million.
type key uint64

// origin is how a world was first reached.
type origin struct {
	from key
	move Move
}

const shards = 256

// seen is what was visited, in shards so that the processors seldom wait for each other.
type seen struct {
	seed   maphash.Seed
	shards [shards]struct {
		sync.Mutex
		worlds map[key]origin
	}
}

func newSeen() *seen {
	s := &seen{seed: maphash.MakeSeed()}
	for i := range s.shards {
		s.shards[i].worlds = map[key]origin{}
	}
	return s
}

func (s *seen) key(w *World) key { return key(maphash.Bytes(s.seed, bytesOf(w))) }

// add notes a world, and is true when it is new.
func (s *seen) add(k key, o origin) bool {
	shard := &s.shards[k%shards]
	shard.Lock()
	defer shard.Unlock()
	if _, ok := shard.worlds[k]; ok {
		return false
	}
	shard.worlds[k] = o
	return true
}

// path is how a world was reached.
func (s *seen) path(k, first key) []Move {
	var path []Move
	for k != first {
		o := s.shards[k%shards].worlds[k]
		path = append(path, o.move)
		k = o.from
	}
	slices.Reverse(path)
	return path
}

// share is how many worlds a goroutine takes at a time.
const share = 256

// Search visits every world that can come of the first, breadth first, on all processors,
// until a rule is broken, ctx ends or most worlds were visited (0 is no limit). Of the
// paths to a broken rule it returns a shortest one.
func (m *Model) Search(ctx context.Context, most int) *Result {
	quick := m.clone()
	quick.symmetric = !m.Own // Else it matters in whose pod a coordinator lives.
	r := quick.search(ctx, most)
	if r.Broken == "" {
		return r
	}
	// Once more, for a story in which nobody changes names.
	again := m.search(ctx, 8*r.States)
	if again.Broken == "" {
		return r // Without a story, but broken it is.
	}
	again.States, again.Moves, again.Bytes, again.Time = r.States, r.Moves, max(r.Bytes, again.Bytes), again.Time+r.Time
	return again
}

func (m *Model) search(ctx context.Context, most int) *Result {
	runtime.GC() // What an earlier search has left behind is not this one's.
	start := time.Now()
	result := &Result{Params: m.Params}
	all := newSeen()
	w := m.First()
	m.normalise(&w)
	first := all.key(&w)
	all.add(first, origin{})
	frontier := []World{w}
	result.States = 1
	workers := make([]*worker, runtime.GOMAXPROCS(0))
	for i := range workers {
		workers[i] = &worker{Model: m.clone(), all: all}
	}
	for len(frontier) > 0 && result.Broken == "" {
		if ctx.Err() != nil || most > 0 && result.States >= most {
			result.Cut = true
			break
		}
		var next atomic.Int64
		var all sync.WaitGroup
		for _, wk := range workers {
			all.Go(func() { wk.expand(frontier, &next) })
		}
		all.Wait()
		size := 0
		for _, wk := range workers {
			size += len(wk.found)
		}
		frontier = make([]World, 0, size)
		for _, wk := range workers {
			frontier = append(frontier, wk.found...)
			wk.found = nil
			if wk.broken != "" {
				result.Broken, result.Path = wk.broken, append(wk.all.path(wk.at, first), wk.move)
			}
		}
		result.States += size
		result.Bytes = max(result.Bytes, inUse())
		if size > 0 {
			result.Depth++
		}
	}
	for _, wk := range workers {
		result.Moves += wk.moves
		result.Counts.add(wk.counts)
	}
	result.Time = time.Since(start)
	return result
}

// add makes it the result of both searches: all that they visited, and the most that one of
// them needed.
func (r *Result) add(o *Result) {
	r.States += o.States
	r.Moves += o.Moves
	r.Depth = max(r.Depth, o.Depth)
	r.Bytes = max(r.Bytes, o.Bytes)
	r.Counts.add(o.Counts)
}

// inUse is how much memory is.
func inUse() uint64 {
	var memory runtime.MemStats
	runtime.ReadMemStats(&memory)
	return memory.HeapAlloc
}

// worker is one goroutine's part of a search.
type worker struct {
	*Model
	all   *seen
	found []World
	moves int

	broken string
	at     key
	move   Move
}

func (wk *worker) expand(frontier []World, next *atomic.Int64) {
	var moves []Move
	for {
		to := int(next.Add(share))
		from := to - share
		if from >= len(frontier) {
			return
		}
		for i := from; i < min(to, len(frontier)); i++ {
			w := &frontier[i]
			k := wk.all.key(w)
			moves = wk.Moves(w, moves[:0])
			for _, mv := range moves {
				wk.moves++
				after, broken := wk.Apply(*w, mv)
				if broken != "" && wk.broken == "" {
					wk.broken, wk.at, wk.move = broken, k, mv
				}
				if broken != "" {
					continue
				}
				if wk.all.add(wk.all.key(&after), origin{from: k, move: mv}) {
					wk.found = append(wk.found, after)
				}
			}
		}
	}
}
