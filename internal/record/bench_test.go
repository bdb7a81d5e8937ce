package record_test

import (
	"testing"
	"time"

	"github.com/quorate/quorate/internal/record"
)

// passage is a way through the protocol: what happens, one after the other, from a state on.
type passage struct {
	name string
	from func() record.State
	then []record.Event
	// last is the effect that it ends with.
	last record.Effect
}

// passages are those of a rollout in which nothing goes wrong.
func passages() []passage {
	looking := func() record.State {
		s := record.State{}
		for _, e := range claim() {
			s, _ = config.Step(s, e, begin)
		}
		return s
	}
	ours := mine("11", nothing)
	resting := record.Observed{Begun: begin, Record: ours, Next: record.NextRest}
	return []passage{
		{"claim", func() record.State { return record.State{} }, claim(), record.Observe{}},
		{"wait", looking, []record.Event{resting, record.Woken{}}, record.Observe{}},
		{"renewal", looking, []record.Event{
			record.Observed{Begun: begin, Record: ours, Next: record.NextRest, News: true},
			record.LeaseWritten{ResourceVersion: "12"},
		}, record.Observe{}},
		{"removal", looking, []record.Event{
			record.Observed{Begun: begin, Record: ours, Next: record.NextAct, Intent: decided},
			record.LeaseWritten{ResourceVersion: "12"}, record.Acted{}, record.LeaseWritten{ResourceVersion: "13"},
		}, record.Observe{}},
		{"removal-refused", looking, []record.Event{
			record.Observed{Begun: begin, Record: ours, Next: record.NextAct, Intent: decided},
			record.LeaseWritten{ResourceVersion: "12"}, record.Acted{Outcome: record.Refused},
			record.PodFenced{ResourceVersion: "5"}, record.LeaseWritten{ResourceVersion: "13"},
		}, record.Observe{}},
		{"leader-change", looking, []record.Event{
			record.Observed{Begun: begin, Record: ours, Next: record.NextAct, Intent: move},
			record.LeaseWritten{ResourceVersion: "12"}, record.Acted{},
		}, record.Observe{}},
	}
}

// claim takes the record over from one who has finished.
func claim() []record.Event {
	return []record.Event{
		record.Start{Right: record.ByLock}, record.LeaseRead{Record: with(theirs(), func(l *record.Record) { l.Holder = "" })},
		record.RightChecked{Held: true}, record.LeaseWritten{ResourceVersion: "11"},
	}
}

// walk takes the passage and returns the last effect.
func (p *passage) walk(from record.State) (effect record.Effect) {
	s := from
	for _, e := range p.then {
		s, effect = config.Step(s, e, begin+time.Millisecond)
	}
	return effect
}

// BenchmarkStep is the record's protocol alone, without the requests that it asks for: all
// steps of a passage together.
func BenchmarkStep(b *testing.B) {
	for _, p := range passages() {
		b.Run("passage="+p.name, func(b *testing.B) {
			from := p.from()
			b.ReportAllocs()
			for b.Loop() {
				if got := p.walk(from); got != p.last {
					b.Fatalf("it ends with %s, want %s", shown(got), shown(p.last))
				}
			}
		})
	}
}

// A step allocates what it asks for, and little else: the state is a value.
func TestAPassageThroughTheProtocolTakesFewAllocations(t *testing.T) {
	for _, p := range passages() {
		t.Run(p.name, func(t *testing.T) {
			from := p.from()
			if got := p.walk(from); got != p.last {
				t.Fatalf("it ends with %s, want %s", shown(got), shown(p.last))
			}
			bound := float64(2 * len(p.then))
			if n := testing.AllocsPerRun(100, func() { p.walk(from) }); n > bound {
				t.Errorf("%v allocations in %d steps, want at most %v", n, len(p.then), bound)
			}
		})
	}
}

// BenchmarkParse reads the record from a Lease with a removal under way, which every cycle does.
func BenchmarkParse(b *testing.B) {
	l := lease(map[string]string{
		record.SchemaAnnotation: "1", record.RolloutAnnotation: "under way",
		record.IntentAnnotation: `{"operation":"evict","pod":"etcd-1","uid":"u1","resourceVersion":"4","revision":"r2","epoch":6}`,
	})
	b.ReportAllocs()
	for b.Loop() {
		if r := record.Parse(l); r.Intent.Pod != "etcd-1" {
			b.Fatalf("%+v", r)
		}
	}
}
