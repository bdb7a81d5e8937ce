package explorer

import (
	"context"
	"fmt"
	"runtime"
	"time"
)

// Liveness is what was found about the end of a rollout.
type Liveness struct {
	Params Params
	// Reached are the worlds that were reached while things went wrong, and Ends those from
	// which, with nothing going wrong any more, the rollout was shown to end. Worlds that
	// differ only in what might still have gone wrong are one there.
	Reached, Ends int
	// Stuck is how many worlds there are from which it cannot end, with the story of one of
	// them. (Coordinators may exchange their names in it: it does not matter who is who.)
	Stuck int
	Story string
	// Broken is a rule that was broken on the way.
	Broken string
	Time   time.Duration
	// Bytes is the memory in use, at most, garbage included.
	Bytes uint64
	Cut   bool
}

func (l *Liveness) String() string {
	text := fmt.Sprintf(
		"%s: from each of %d states, which are %d once the faults are over, the rollout can end; %v, %d MiB",
		l.Params, l.Reached, l.Ends, l.Time.Round(time.Millisecond), l.Bytes>>20)
	if l.Cut {
		text += "; CUT SHORT"
	}
	return text
}

// over is the world with nothing left that may go wrong.
func (w *World) over() World {
	o := *w
	o.left = Faults{}
	return o
}

// ended: every pod is up to date and up, nobody coordinates, and the record says so. While a gate
// does not answer, it is as much that every member serves that an update could cure.
func (m *Model) ended(w *World) bool {
	switch {
	case w.wedged && m.Stay:
		return m.cured(w)
	case m.Stay && m.Faults.Unfits > 0 && w.coordinators[0].abstains && m.hasQuorum(w):
		return true // Another one leads, which is not here.
	}
	for i := range m.Coordinators {
		if w.coordinators[i].request.kind != nothing {
			return false
		}
	}
	return m.updated(w) && w.lease.holder == 0 && !w.lease.rolling && w.lease.intent.op == none
}

// cured: every member serves.
func (m *Model) cured(w *World) bool {
	for i := range m.ordinals() {
		if w.has(i) && !m.answers(w, i) {
			return false
		}
	}
	return true
}

// Live visits every world that can be reached, up to most, and then shows by reverse
// reachability from the ends that from each of them the rollout can end once the faults are
// over: members that failed come back, the lock's owner starts as often as it has to, requests
// land or do not. So a coordinator that is scheduled fairly gets there.
func (m *Model) Live(ctx context.Context, most int) *Liveness {
	runtime.GC()
	start := time.Now()
	result := &Liveness{Params: m.Params}
	weigh := func(n int) {
		if n%100_000 == 0 {
			result.Bytes = max(result.Bytes, inUse())
		}
	}
	reached := m.clone()
	reached.symmetric = !m.Own
	after := m.clone()
	after.symmetric, after.Over = reached.symmetric, true

	// First everything that can be reached.
	all := newSeen()
	w := m.First()
	reached.normalise(&w)
	first := all.key(&w)
	all.add(first, origin{})
	queue := []World{w}
	graph := newGraph()
	var moves []Move
	for n := 0; n < len(queue); n++ {
		if ctx.Err() != nil || most > 0 && len(queue) >= most {
			result.Cut = true
			break
		}
		weigh(n)
		w, k := queue[n], all.key(&queue[n])
		queue[n] = World{} // The garbage collector cannot take a part of it.
		o := w.over()
		after.normalise(&o)
		graph.add(&o, k)
		moves = reached.Moves(&w, moves[:0])
		for _, mv := range moves {
			next, broken := reached.Apply(w, mv)
			if broken != "" {
				result.Broken = broken
				continue
			}
			if all.add(all.key(&next), origin{from: k, move: mv}) {
				queue = append(queue, next)
			}
		}
		result.Reached++
	}

	// Then everything that can come of it when nothing goes wrong any more.
	for n := 0; n < len(graph.worlds); n++ {
		weigh(n)
		w := graph.worlds[n]
		if after.ended(&w) {
			graph.ends = append(graph.ends, int32(n)) //nolint:gosec // Millions.
		}
		moves = after.Moves(&w, moves[:0])
		for _, mv := range moves {
			next, broken := after.Apply(w, mv)
			if broken != "" {
				result.Broken = broken
				continue
			}
			graph.edge(n, graph.add(&next, graph.from[n]))
		}
	}
	result.Ends = len(graph.worlds)
	if stuck := graph.stuck(); len(stuck) > 0 {
		result.Stuck = len(stuck)
		result.Story = reached.Story(all.path(graph.from[stuck[0]], first))
	}
	result.Bytes, result.Time = max(result.Bytes, inUse()), time.Since(start)
	return result
}

// graph is what can come of what when nothing goes wrong.
type graph struct {
	seen   *seen
	number map[key]int32
	worlds []World
	from   []key // the world in which the faults ended
	// before are the edges backwards, as chains: the newest of a world, and for each edge
	// the one before it.
	newest []int32
	edges  []edge
	ends   []int32
}

type edge struct{ from, next int32 }

func newGraph() *graph { return &graph{seen: newSeen(), number: map[key]int32{}} }

func (g *graph) add(w *World, from key) int32 {
	k := g.seen.key(w)
	if n, ok := g.number[k]; ok {
		return n
	}
	n := int32(len(g.worlds)) //nolint:gosec // Millions.
	g.number[k] = n
	g.worlds, g.from, g.newest = append(g.worlds, *w), append(g.from, from), append(g.newest, -1)
	return n
}

func (g *graph) edge(from int, to int32) {
	g.edges = append(g.edges, edge{from: int32(from), next: g.newest[to]}) //nolint:gosec // Millions.
	g.newest[to] = int32(len(g.edges) - 1)                                 //nolint:gosec // Millions.
}

// stuck are the worlds from which no end can be reached.
func (g *graph) stuck() []int32 {
	reaches := make([]bool, len(g.worlds))
	todo := g.ends
	for _, n := range todo {
		reaches[n] = true
	}
	for len(todo) > 0 {
		n := todo[len(todo)-1]
		todo = todo[:len(todo)-1]
		for e := g.newest[n]; e >= 0; e = g.edges[e].next {
			if from := g.edges[e].from; !reaches[from] {
				reaches[from] = true
				todo = append(todo, from)
			}
		}
	}
	var stuck []int32
	for n, ok := range reaches {
		if !ok {
			stuck = append(stuck, int32(n)) //nolint:gosec // Millions.
		}
	}
	return stuck
}
