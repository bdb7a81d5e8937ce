package chaos

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/quorate/quorate/test/harness"
	"github.com/quorate/quorate/test/harness/apiproxy"
)

const manySeeds = 500

func TestASeedIsAScript(t *testing.T) {
	require.Equal(t, Draw(7), Draw(7))
	require.NotEqual(t, Draw(7).String(), Draw(8).String())
}

func TestAScriptGoesOnWithTheClusterOfTheLast(t *testing.T) {
	require.Equal(t, Draw(7).Next(), Draw(7).Next())
	upgrades, scalings := 0, 0
	s := Draw(1)
	image, first := s.Image, s
	for n := range uint64(manySeeds) {
		replicas := s.Replicas
		for _, r := range s.Rounds {
			switch r.Change.Kind {
			case Upgrade:
				upgrades++
				image = harness.Etcd36
			case ScaleOut, RollScaleOut:
				scalings++
				replicas = 5
			case ScaleIn, RollScaleIn:
				scalings++
				replicas = 3
			default:
			}
		}
		require.LessOrEqual(t, upgrades, 1, "etcd does not go back")
		require.LessOrEqual(t, scalings, 1, "a removed member's data does not start again")
		next := s.Next()
		require.Equal(t, first.Seed+n+1, next.Seed)
		require.Equal(t, []any{replicas, image}, []any{next.Replicas, next.Image})
		require.Equal(t, []any{first.PlainText, first.SettleTimeout, first.StopDelay, first.SlowDisk},
			[]any{next.PlainText, next.SettleTimeout, next.StopDelay, next.SlowDisk})
		require.NotEqual(t, s.Rounds, next.Rounds)
		s = next
	}
	require.Equal(t, []int{1, 1}, []int{upgrades, scalings})
}

func TestAScriptDoesEverythingSomeTimeAndNothingImpossible(t *testing.T) {
	changes, faults, taken := map[ChangeKind]int{}, map[FaultKind]int{}, 0
	breakages, outcomes, refused := map[Breakage]int{}, map[Outcome]int{}, map[Permission]int{}
	slow, cut, ghosts, during := 0, 0, 0, 0
	words := map[Container]int{}
	for seed := range uint64(manySeeds) {
		s := Draw(seed)
		upgraded, replicas := s.Image == harness.Etcd36, s.Replicas
		require.NotEmpty(t, s.Rounds)
		require.Zero(t, s.StopDelay%time.Second)
		for _, r := range s.Rounds {
			changes[r.Change.Kind]++
			least := replicas
			switch r.Change.Kind {
			case Upgrade:
				require.False(t, upgraded, "seed %d upgrades twice", seed)
				upgraded = true
			case ScaleOut, RollScaleOut:
				require.Equal(t, 3, replicas)
				replicas = 5
			case ScaleIn, RollScaleIn:
				require.Equal(t, 5, replicas)
				replicas, least = 3, 3
				if s.StopDelay > 0 {
					slow++
				}
				if r.Change.Ghosts {
					ghosts++
				}
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
					hurts = hurts || slices.Contains(silencing, f.Kind)
					require.Less(t, f.Removals, max(least, 5))
					if len(f.Victims) > 1 {
						require.True(t, r.QuorumLost)
						if f.Kind == Reboot && len(f.Victims) == least {
							cut++
						} else {
							require.Len(t, f.Victims, least/2+1, "a majority")
						}
					}
					if f.Kind == Forbid {
						refused[f.Refused]++
					} else {
						require.Empty(t, f.Refused)
					}
					require.Equal(t, f.Kind == Reboot, f.Starts > 0)
					require.Equal(t, f.Kind == CutZone, f.LastWords != "")
					require.Equal(t, f.Kind == Hands, slices.Contains(harness.Ways, f.Way))
					if f.Kind == CutZone {
						words[f.LastWords]++
						require.Len(t, f.Victims, least/2+1, "a minority keeps the API server")
					}
					if f.During != "" {
						during++
					}
					require.False(t, f.Kind == DrainAll && r.QuorumLost && r.Change.Kind == BadRevision,
						"seed %d: the drains give every pod the bad revision", seed)
					if f.Kind == AddGhost {
						require.False(t, r.Change.Kind.scales(), "seed %d adds a voter while it scales", seed)
						require.NotEqual(t, HangEtcd, r.Change.Breakage, "seed %d", seed)
						require.False(t, r.Change.Breakage == BadSidecar && least < 5, "seed %d", seed)
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
	require.Len(t, changes, 10)
	require.Len(t, faults, len(silencing)+24)
	require.Len(t, refused, 8)
	require.Len(t, words, 3, "last words of kubelets: bad ones, and good ones")
	require.Positive(t, slow, "a scale-in in which members stop slowly")
	require.Positive(t, cut, "a power cut of all")
	require.Positive(t, ghosts, "a scale-in that leaves ghosts")
	require.Positive(t, during, "a drain during a defragmentation")
	require.Len(t, breakages, 4)
	require.Len(t, outcomes, 5)
	require.Positive(t, taken)
}

func TestWhatASidecarIsRefusedIsWhatThePermissionSays(t *testing.T) {
	ask := func(verb, resource, subresource string) *apiproxy.Request {
		return &apiproxy.Request{Verb: verb, Resource: resource, Subresource: subresource}
	}
	for _, c := range []struct {
		p       Permission
		refused []*apiproxy.Request
		passes  []*apiproxy.Request
	}{
		{ToRemove, []*apiproxy.Request{ask("delete", "pods", ""), ask("create", "pods", "eviction")},
			[]*apiproxy.Request{ask("list", "pods", ""), ask("patch", "pods", "")}},
		{ToReadPods, []*apiproxy.Request{ask("list", "pods", ""), ask("watch", "pods", "")},
			[]*apiproxy.Request{ask("delete", "pods", "")}},
		{ToDoAllButRead, []*apiproxy.Request{ask("update", "leases", ""), ask("patch", "pods", "")},
			[]*apiproxy.Request{ask("get", "leases", "")}},
		{ToDoAnything, []*apiproxy.Request{ask("get", "leases", ""), ask("", "", "")}, nil},
	} {
		for _, r := range c.refused {
			require.True(t, c.p.denies(r), "%s: %s", c.p, r)
		}
		for _, r := range c.passes {
			require.False(t, c.p.denies(r), "%s: %s", c.p, r)
		}
	}
}

// CI has time for about three rounds of one seed, and for the first of another.
func TestTheFirstRoundsThatCIPlaysHaveEverySortOfFault(t *testing.T) {
	makefile, err := os.ReadFile(filepath.Join("..", "..", "Makefile"))
	require.NoError(t, err)
	found := regexp.MustCompile(`chaos DURATION=(180s|1s) SEED=(\d+)`).FindAllSubmatch(makefile, -1)
	require.Len(t, found, 3, "the Makefile plays other seeds")
	faults, changes := map[FaultKind]bool{}, map[ChangeKind]bool{}
	for i, rounds := range []int{3, 1, 1} {
		seed, err := strconv.ParseUint(string(found[i][2]), 10, 64)
		require.NoError(t, err)
		s := Draw(seed)
		require.Equal(t, i < 2, s.StopDelay > 0, "members that stop slowly, and one that does not")
		for n, r := range s.Rounds[:rounds] {
			hands := slices.ContainsFunc(r.Lanes, func(lane []Fault) bool { return lane[0].Kind == Hands })
			cut := slices.ContainsFunc(r.Lanes, func(lane []Fault) bool { return lane[0].Kind == CutZone })
			require.Equal(t, !cut, hands, "somebody tries to take another pod in round %d of seed %d", n+1, seed)
			changes[r.Change.Kind] = true
			for _, lane := range r.Lanes {
				for _, f := range lane {
					faults[f.Kind] = true
				}
			}
		}
	}
	for _, kind := range []FaultKind{
		KillEtcd, StopEtcd, Separate, Isolate, LoseNode, Reboot, SlowDisk, StopSidecar, NoAPI, SlowAPI,
		SlowAllAPI, Forbid, HoldRemoval, HoldIntent, StopAPI, PauseControllers, Drain,
		FillQuota, AddGhost, LoosenAndAsk, CordonAndDrain, CutZone, Hands, GuardOff,
	} {
		require.True(t, faults[kind], "%s", kind)
	}
	for _, kind := range []ChangeKind{Upgrade, Touch, BadRevision} {
		require.True(t, changes[kind], "%s", kind)
	}
	steps := slices.DeleteFunc(slices.Clone(killing), func(kind FaultKind) bool { return !faults[kind] })
	require.GreaterOrEqual(t, len(steps), 2, "steps at which a coordinator is killed")
	require.True(t, changes[ScaleIn] || changes[RollScaleIn], "a scale-in")
}
