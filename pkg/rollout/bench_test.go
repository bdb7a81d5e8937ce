package rollout_test

import (
	"testing"

	"github.com/quorate/quorate/pkg/rollout"
)

// BenchmarkDecide is one decision for seven healthy members, all outdated. The aim is
// under 50 µs and 200 allocations.
func BenchmarkDecide(b *testing.B) {
	w := cluster(7)
	b.ReportAllocs()
	for b.Loop() {
		if d := rollout.Decide(w.state, w.policy); !d.Acts() {
			b.Fatal(d.Reason())
		}
	}
}

func TestADecisionForSevenMembersTakesFewerThan200Allocations(t *testing.T) {
	w := cluster(7)
	if n := testing.AllocsPerRun(100, func() { rollout.Decide(w.state, w.policy) }); n >= 200 {
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
