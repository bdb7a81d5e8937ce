package chaos

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/quorate/quorate/test/harness"
)

const manySeeds = 500

func TestASeedIsAScript(t *testing.T) {
	require.Equal(t, Draw(7), Draw(7))
	require.NotEqual(t, Draw(7).String(), Draw(8).String())
}

func TestAScriptDoesEverythingSomeTimeAndNothingImpossible(t *testing.T) {
	changes, faults, taken := map[ChangeKind]int{}, map[FaultKind]int{}, 0
	breakages, outcomes := map[Breakage]int{}, map[Outcome]int{}
	for seed := range uint64(manySeeds) {
		s := Draw(seed)
		upgraded, replicas := s.Image == harness.Etcd36, s.Replicas
		require.NotEmpty(t, s.Rounds)
		for _, r := range s.Rounds {
			changes[r.Change.Kind]++
			least := replicas
			switch r.Change.Kind {
			case Upgrade:
				require.False(t, upgraded, "seed %d upgrades twice", seed)
				upgraded = true
			case ScaleOut:
				require.Equal(t, 3, replicas)
				replicas = 5
			case ScaleIn:
				require.Equal(t, 5, replicas)
				replicas, least = 3, 3
			case BadRevision:
				breakages[r.Change.Breakage]++
			}
			if r.QuorumLost {
				taken++
			}
			away := 0
			for _, lane := range r.Lanes {
				hurts := false
				for _, f := range lane {
					faults[f.Kind]++
					outcomes[f.Outcome]++
					hurts = hurts || slices.Contains(hurtful, f.Kind)
					require.Less(t, f.Removals, max(least, 5))
					if len(f.Victims) > 1 {
						require.True(t, r.QuorumLost)
						require.Len(t, f.Victims, least/2+1, "a majority")
					}
					for _, v := range f.Victims {
						if n, err := strconv.Atoi(string(v)); err == nil {
							require.Less(t, n, least)
						}
					}
				}
				if hurts {
					away++
				}
			}
			if r.QuorumLost {
				require.Equal(t, 1, away)
			} else {
				require.LessOrEqual(t, away, (least-1)/2, "seed %d: %s", seed, r)
			}
		}
	}
	require.Len(t, changes, 8)
	require.Len(t, faults, len(hurtful)+8)
	require.Len(t, breakages, 3)
	require.Len(t, outcomes, 5)
	require.Positive(t, taken)
}

// hurtful are the faults that can take a member away.
var hurtful = []FaultKind{KillEtcd, KillBoth, StopEtcd, StopBoth, CutOff, Separate, Isolate, LoseNode, DeletePod, FullDisk, SlowDisk}

// CI has time for about four rounds.
func TestTheFirstRoundsThatCIPlaysHaveEverySortOfFault(t *testing.T) {
	makefile, err := os.ReadFile(filepath.Join("..", "..", "Makefile"))
	require.NoError(t, err)
	found := regexp.MustCompile(`chaos DURATION=180s SEED=(\d+)`).FindSubmatch(makefile)
	require.Len(t, found, 2, "the Makefile plays no seed")
	seed, err := strconv.ParseUint(string(found[1]), 10, 64)
	require.NoError(t, err)
	faults, changes := map[FaultKind]bool{}, map[ChangeKind]bool{}
	for _, r := range Draw(seed).Rounds[:4] {
		changes[r.Change.Kind] = true
		for _, lane := range r.Lanes {
			for _, f := range lane {
				faults[f.Kind] = true
			}
		}
	}
	for _, kind := range []FaultKind{
		KillEtcd, StopEtcd, Isolate, LoseNode, DeletePod, FullDisk, SlowDisk, KillSidecar, StopSidecar, NoAPI, SlowAPI, HoldRemoval, HoldIntent, StopAPI,
	} {
		require.True(t, faults[kind], "%s", kind)
	}
	for _, kind := range []ChangeKind{Upgrade, Touch, BadRevision, ScaleOut} {
		require.True(t, changes[kind], "%s", kind)
	}
}
