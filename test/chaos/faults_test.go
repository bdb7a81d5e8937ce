package chaos

import (
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/quorate/quorate/test/chaos/soak"
	"github.com/quorate/quorate/test/harness"
)

func TestAFaultThatTheMachineHasNoMeansForIsCountedAsMissed(t *testing.T) {
	for _, tc := range []struct {
		name      string
		mode      harness.Mode
		slowDisks bool
		missed    []FaultKind
	}{
		{"without namespaces", harness.Loopback, false,
			[]FaultKind{CutOff, Separate, Isolate, FullDisk, SlowDisk, AddGhost, CutZone}},
		{"without FUSE", harness.Namespaces, false, []FaultKind{SlowDisk}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			figures := &Figures{}
			l := &life{mode: tc.mode, slowDisks: tc.slowDisks, figures: figures, audit: &auditor{}}
			want := map[FaultKind]int{}
			for _, kind := range tc.missed {
				want[kind] = 1
				l.playOne(t.Context(), Fault{Kind: kind, Victims: []Victim{"0"}}, time.Now())
			}
			require.Equal(t, want, figures.Missed)
			require.Empty(t, figures.Faults)
		})
	}
	require.Empty(t, unplayable(harness.Namespaces, true))
}

func TestNoFaultEndsALastingSidecar(t *testing.T) {
	l := &life{soaking: &soak.File{}}
	for _, kind := range slices.Concat(silencing, []FaultKind{KillSidecar, KillCalling}) {
		mend, err := l.inject(t.Context(), Fault{Kind: kind}, lastingPods()[0])
		require.EqualError(t, err, "lasting-0 has no member, and is to live", kind)
		require.Nil(t, mend)
	}
}
