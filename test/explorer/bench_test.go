package explorer

import "testing"

// BenchmarkSearch walks through the whole of two small worlds, on all processors. Its own figure is
// states/s: new states a second, each with every move out of it and the production code that
// decides them. A world has the same number of states each time (in the figure states), so B/op
// divided by it is what a state costs in memory, garbage included.
func BenchmarkSearch(b *testing.B) {
	for _, world := range []struct {
		name string
		Params
	}{
		{"members=3/coordinators=2", Params{Members: 3, Coordinators: 2, Faults: Faults{Starts: 2}}},
		{"members=5/coordinators=1", Params{Members: 5, Coordinators: 1, MaxUnavailable: 2,
			Faults: Faults{Starts: 1, Failures: 1}}},
	} {
		b.Run(world.name, func(b *testing.B) {
			total, states := 0, 0
			b.ReportAllocs()
			for b.Loop() {
				r := New(world.Params).Search(b.Context(), 0)
				if r.Broken != "" || r.Cut || states != 0 && states != r.States {
					b.Fatalf("%s %s; %d states before", r, r.Broken, states)
				}
				states = r.States
				total += states
			}
			b.ReportMetric(float64(total)/b.Elapsed().Seconds(), "states/s")
			b.ReportMetric(float64(states), "states")
		})
	}
}
