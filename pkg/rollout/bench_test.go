package rollout_test

import (
	"fmt"
	"testing"

	"github.com/quorate/quorate/pkg/rollout"
)

// situations are what a coordinator looks at most often. The names are those of the
// sub-benchmarks.
var situations = []struct {
	name   string
	change change
	want   rollout.ActionName
}{
	{"healthy", func(*world) {}, rollout.ActionRemove},
	{"leader-next", func(w *world) { w.with(allUpdated()); w.pod(0).Revision = oldRev }, rollout.ActionMoveLeader},
	{"one-down", alive(1), rollout.ActionRemove},
	{"coming-up", func(w *world) { w.with(updated(1), starting(1)) }, rollout.ActionWait},
	{"held", func(w *world) { w.state.Controls.Paused = true }, rollout.ActionHold},
	{"complete", allUpdated(), rollout.ActionComplete},
}

// BenchmarkDecide is one decision, which takes place about once a second while a rollout is
// under way. The aim for seven healthy members, all outdated, is under 50 µs and 200
// allocations.
func BenchmarkDecide(b *testing.B) {
	for _, members := range []int{3, 5, 7} {
		for _, s := range situations {
			b.Run(fmt.Sprintf("members=%d/state=%s", members, s.name), func(b *testing.B) {
				w := cluster(members, s.change)
				b.ReportAllocs()
				for b.Loop() {
					if d := rollout.Decide(w.state, w.policy); d.Action.Name() != s.want {
						b.Fatal(d.Reason())
					}
				}
			})
		}
	}
}

// BenchmarkAssess is the evidence: the facts of Kubernetes and of etcd joined to what is known of each
// member, and what there is to remember of it. A cycle does it once.
func BenchmarkAssess(b *testing.B) {
	for _, members := range []int{3, 5, 7} {
		b.Run(fmt.Sprintf("members=%d", members), func(b *testing.B) {
			w := cluster(members)
			b.ReportAllocs()
			for b.Loop() {
				if a := rollout.Assess(w.state, w.policy); a.Serving != members || len(a.Sightings()) == 0 {
					b.Fatalf("%d members serve", a.Serving)
				}
			}
		})
	}
}

// The bounds below are about twice of what it takes now: a guard that renders its text before
// anybody asks for it, or a copy of the state for each member, goes beyond.

func TestADecisionForSevenMembersTakesFewerThan50Allocations(t *testing.T) {
	for _, s := range situations {
		t.Run(s.name, func(t *testing.T) {
			w := cluster(7, s.change)
			if d := w.decide(); d.Action.Name() != s.want {
				t.Fatalf("%v: %s, want %v", d.Action.Name(), d.Reason(), s.want)
			}
			if n := testing.AllocsPerRun(100, func() { rollout.Decide(w.state, w.policy) }); n >= 50 {
				t.Errorf("%v allocations", n)
			}
		})
	}
}

func TestTheEvidenceOnSevenMembersTakesFewerThan40Allocations(t *testing.T) {
	w := cluster(7)
	if n := testing.AllocsPerRun(100, func() { rollout.Assess(w.state, w.policy).Sightings() }); n >= 40 {
		t.Errorf("%v allocations", n)
	}
}

// Every observation reads the controls, so what that leaves behind is what the garbage
// collector has to do in a rollout.
func TestReadingTheControlsOfARecordTakesFewerThan100Allocations(t *testing.T) {
	annotations := map[string]string{rollout.ControlPaused: "false", rollout.ControlMaxUnavailable: "50%"}
	for _, own := range []string{"intent", "schema", "rollout", "fenced", "status", "history"} {
		annotations["quorate.dev/"+own] = ""
	}
	if n := testing.AllocsPerRun(100, func() { rollout.ParseControls(annotations) }); n >= 100 {
		t.Errorf("%v allocations", n)
	}
}
