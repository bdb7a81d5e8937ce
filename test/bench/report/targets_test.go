package report

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/quorate/quorate/test/bench/result"
)

const settling = "Healthy: from a pod's settling to the next removal, without the wait for the PodDisruptionBudget"

// thousand is a fleet of Quorate's, and central the same one under a central controller.
var (
	thousand = result.Fleet{
		Arm: "quorate", Clusters: 1000, Members: 3, IdleSeconds: 60, Seconds: 20, Rolled: 1000,
		Done: result.Quantiles{Median: 12, P99: 15, Most: 16},
	}
	central = result.Fleet{
		Arm: "central", Workers: 5, Clusters: 1000, Members: 3, IdleSeconds: 60, Seconds: 1000, Rolled: 1000,
		Requests: map[string]int{"delete pods": 3000}, Bytes: 90 << 20,
		Done: result.Quantiles{Median: 11, P99: 13, Most: 14},
	}
)

// good returns a run that reaches every target, in two rounds.
func good() *result.Run {
	run := &result.Run{}
	trial := func(round int, c result.Case, arm string, leader int, seconds float64) {
		t := result.Trial{
			Case: c.Name, Arm: arm, Round: round, Position: len(run.Trials) + 1, Members: c.Members, Leader: leader,
			Completed: true, Seconds: seconds, DownSeconds: seconds, Ratio: 1.03, Limit: 60,
			FewestServing: c.Members/2 + 1, FewestReady: c.Members/2 + 1, WriteStall: 0.020, Planned: 1,
		}
		switch c.Name {
		case result.Healthy3:
			t.Downs = []result.Down{{Pod: "etcd-0", Removed: 1, Ready: 4}}
		case result.Quiet, result.Quiet30, result.Quiet120:
			t.Requests, t.Bytes = map[string]int{"list pods": 45, result.Renewal: 30}, 1<<20
		}
		for _, n := range needs {
			if n.name == c.Name {
				back := float64(3 + quorumBackWithin + n.more)
				t.WithoutQuorum, t.QuorumBack, t.Leader, t.FewestReady = back, back, -1, 0
				t.Downs = []result.Down{{Pod: "etcd-0", Removed: float64(removalWithin + n.more), Ready: back}}
			}
		}
		if arm == result.Quorate {
			t.Gaps, t.BudgetWaits, t.OwnGaps = []float64{0.18}, []float64{0.1}, []float64{0.08}
		}
		run.Trials = append(run.Trials, t)
	}
	for round := 1; round <= 2; round++ {
		for _, c := range result.Cases {
			leaders := 1
			if c.Healthy {
				leaders = c.Members
			}
			for leader := range leaders {
				trial(round, c, result.OrderedReady, leader, 10)
				trial(round, c, result.Parallel, leader, 10)
				trial(round, c, result.Quorate, leader, 10)
				trial(round, c, result.QuorateMax, leader, map[int]float64{3: 10, 5: 6.5, 7: 5}[c.Members])
			}
		}
		run.Failovers = append(run.Failovers, result.Failover{How: "graceful", Seconds: 0.499, LockTTL: 10},
			result.Failover{How: "SIGKILL", Seconds: 11.9, LockTTL: 10})
		run.Embedded = append(run.Embedded, result.Embedded{When: "idle", Without: 8, With: 11.9},
			result.Embedded{When: "rollout", Without: 8, With: 30})
	}
	fleet := thousand
	fleet.Requests, fleet.Bytes = map[string]int{"list pods": 45_000, result.Renewal: 9_000}, 300<<20
	before := fleet
	before.Release, before.Bytes = "bench-of-old", 600<<20
	run.Fleets = []result.Fleet{fleet, before, central}
	run.Idle = []result.Idle{
		{Role: "holder", Kubernetes: map[string]float64{"get leases": 6}, CPUPercent: 0.19,
			Usage: result.Usage{Anonymous: 15.9}},
		{Role: "waiter", CPUPercent: 0.19, Usage: result.Usage{Anonymous: 15.9}},
	}
	return run
}

// verdicts returns how many targets have each verdict, and those that are not reached by name.
func verdicts(targets []Target) (number map[Verdict]int, missed, open []string) {
	number = map[Verdict]int{}
	for _, t := range targets {
		number[t.Verdict]++
		switch t.Verdict {
		case NotReached:
			missed = append(missed, t.What)
		case NotMeasured:
			open = append(open, t.What)
		}
	}
	return number, missed, open
}

func TestEveryTargetOfAGoodRunIsReached(t *testing.T) {
	targets := targetsOf(good())
	_, missed, open := verdicts(targets)
	require.Empty(t, missed)
	require.Empty(t, open)
	for _, target := range targets {
		require.NotEmpty(t, target.Measured, target.What)
		require.NotEmpty(t, target.Wanted, target.What)
		require.NotContains(t, target.From, "no trial", target.What)
	}
}

func TestNothingIsReachedThatWasNotMeasured(t *testing.T) {
	targets := targetsOf(&result.Run{})
	number, _, _ := verdicts(targets)
	require.Equal(t, map[Verdict]int{NotMeasured: len(targets)}, number)
	for _, target := range targets {
		require.Empty(t, target.Measured, target.What)
	}
}

func TestATargetIsMissedByWhatItForbidsAndByNothingElse(t *testing.T) {
	// every calls change for each trial of the case and arm; one for the first of them only.
	every := func(name, arm string, change func(*result.Trial)) func(*result.Run) {
		return func(run *result.Run) {
			for i := range run.Trials {
				if run.Trials[i].Case == name && run.Trials[i].Arm == arm {
					change(&run.Trials[i])
				}
			}
		}
	}
	one := func(name, arm string, change func(*result.Trial)) func(*result.Run) {
		done := false
		return every(name, arm, func(t *result.Trial) {
			if !done {
				change(t)
			}
			done = true
		})
	}
	type test struct {
		spoil  func(*result.Run)
		missed string
	}
	tests := map[string]test{
		"a request too many": {one(result.Quiet30, result.Quorate,
			func(t *result.Trial) { t.Requests["list pods"]++ }),
			"No clients, pods of 30 s: requests to the API server"},
		"more than half of the bytes": {one(result.Quiet, result.Quorate,
			func(t *result.Trial) { t.Bytes = 1102 << 10 }), "No clients: bytes to and from the API server"},
		"a request too many for each cluster of a fleet": {func(run *result.Run) {
			run.Fleets[0].Requests["list pods"] += 1000
		}, "A fleet: requests to the API server"},
		"more than half of the bytes of the other release": {func(run *result.Run) { run.Fleets[0].Bytes++ },
			"A fleet: bytes to and from the API server"},
		"a second change of leader, once": {one(result.Healthy5, result.Quorate,
			func(t *result.Trial) { t.Planned = 2 }), "Healthy, 5 members: changes of leader"},
		"no change of leader at all": {one(result.Healthy3, result.Quorate,
			func(t *result.Trial) { t.Planned = 0 }), "Healthy, 3 members: changes of leader"},
		"an election instead of the handover": {one(result.Healthy7, result.QuorateMax,
			func(t *result.Trial) { t.Planned, t.Unplanned = 0, 1 }), "Healthy, 7 members: changes of leader"},
		"a moment without quorum in a healthy cluster": {one(result.Healthy3, result.Quorate,
			func(t *result.Trial) { t.WithoutQuorum = 0.01 }), "Healthy, 3 members: without quorum"},
		"stalls a fifth longer": {every(result.Healthy5, result.Quorate, func(t *result.Trial) { t.WriteStall *= 1.2 }),
			"Healthy, 5 members: longest write stall"},
		"stalls longer than with the first policy only": {
			every(result.Healthy5, result.OrderedReady, func(t *result.Trial) { t.WriteStall /= 1.2 }),
			"Healthy, 5 members: longest write stall"},
		"stalls longer than with the second policy only": {
			every(result.Healthy5, result.Parallel, func(t *result.Trial) { t.WriteStall /= 1.2 }),
			"Healthy, 5 members: longest write stall"},
		"quorum that does not come back": {one(result.QuorumLoss, result.QuorateMax,
			func(t *result.Trial) { t.QuorumBack = -1 }),
			"Quorum lost: until quorum is back"},
		"time lost between the pods": {every(result.Healthy7, result.Quorate,
			func(t *result.Trial) { t.Ratio = 1.031 }),
			"Healthy, 7 members: rollout time, one at a time"},
		"rollouts that do not end": {every(result.Healthy3, result.Quorate,
			func(t *result.Trial) { t.Completed, t.Ratio = false, 0 }),
			"Healthy, 3 members: rollout time, one at a time"},
		"two of five at once that are hardly faster": {
			every(result.Healthy5, result.QuorateMax, func(t *result.Trial) { t.Seconds = 6.6 }),
			"Healthy, 5 members: rollout time, maxUnavailable 2"},
		"three of seven at once that do not end": {every(result.Healthy7, result.QuorateMax,
			func(t *result.Trial) { t.Completed = false }),
			"Healthy, 7 members: rollout time, maxUnavailable 3"},
		"gaps of 81 ms that nobody else is to blame for": {func(run *result.Run) {
			for i := range run.Trials {
				run.Trials[i].OwnGaps = []float64{0.081}
			}
		}, settling},
		"as many of them by another arm": {func(run *result.Run) {
			for _, t := range of(run.Trials, result.Healthy5, result.Quorate) {
				t.Arm, t.Gaps = result.QuorateDelete, slices.Repeat([]float64{0.16}, 9)
				t.BudgetWaits, t.OwnGaps = make([]float64, 9), t.Gaps
				run.Trials = append(run.Trials, t)
			}
		}, settling},
		"one slow graceful failover": {func(run *result.Run) { run.Failovers[0].Seconds = 0.5 },
			"Failover of the coordinator, graceful"},
		"a failover that never ends": {func(run *result.Run) { run.Failovers[0].Seconds = -1 },
			"Failover of the coordinator, graceful"},
		"one slow failover": {func(run *result.Run) { run.Failovers[1].Seconds = 12 },
			"Failover of the coordinator, SIGKILL"},
		"a waiter that asks Kubernetes": {func(run *result.Run) {
			run.Idle[1].Kubernetes = map[string]float64{"get pods": 0.5}
		},
			"Idle sidecar without the lock: Kubernetes requests"},
		"a holder that needs CPU": {func(run *result.Run) { run.Idle[0].CPUPercent = 0.2 },
			"Idle sidecar: CPU"},
		"a waiter that needs memory": {func(run *result.Run) { run.Idle[1].Usage.Anonymous = 16 },
			"Idle sidecar: anonymous resident memory"},
		"a library that needs 4 MiB, always": {func(run *result.Run) {
			run.Embedded[0].With, run.Embedded[2].With = 12, 12
		}, "Embedded and idle: anonymous resident memory"},
	}
	for _, name := range []string{result.OneDown, result.NodeLost, result.GhostVoters, result.BrokenRevision,
		result.BrokenSidecar} {
		title := result.CaseOf(name).Title
		tests["quorum lost once: "+name] = test{one(name, result.Quorate,
			func(t *result.Trial) { t.WithoutQuorum, t.QuorumBack = 0.1, 3 }), title + ": without quorum"}
		tests["quorum lost for good: "+name] = test{one(name, result.QuorateMax,
			func(t *result.Trial) { t.QuorumBack = -1 }), title + ": without quorum"}
		tests["too few pods: "+name] = test{one(name, result.Quorate, func(t *result.Trial) { t.FewestReady = 1 }),
			title + ": fewest Ready pods"}
	}
	for _, n := range needs {
		title := result.CaseOf(n.name).Title
		tests["quorum that comes too late: "+n.name] = test{one(n.name, result.Quorate,
			func(t *result.Trial) { t.QuorumBack += 0.01 }), title + ": until quorum is back"}
		tests["a first removal that comes too late: "+n.name] = test{one(n.name, result.Quorate,
			func(t *result.Trial) { t.Downs[0].Removed += 0.01 }), title + ": until the first removal"}
		tests["no removal: "+n.name] = test{one(n.name, result.QuorateMax,
			func(t *result.Trial) { t.Downs = nil }), title + ": until the first removal"}
	}
	for name, tc := range tests {
		t.Run(name, func(t *testing.T) {
			run := good()
			tc.spoil(run)
			_, missed, open := verdicts(targetsOf(run))
			// A rollout that never ends also has no time to compare with.
			missed = slices.DeleteFunc(missed, func(what string) bool {
				return what != tc.missed && strings.Contains(tc.missed, what)
			})
			require.Equal(t, []string{tc.missed}, missed)
			require.Empty(t, open)
		})
	}
}

// The published run is one of these.
func TestARunThatDoesNotShowTheWaitForTheBudgetApartSaysSo(t *testing.T) {
	for name, tc := range map[string]struct {
		gap      float64
		measured string
		verdict  Verdict
	}{
		"nobody knows whose the time was": {0.249,
			"249 ms with the wait for the budget, which this run does not show apart (30 removals)", NotMeasured},
		"a part of it is not longer than the whole": {0.08,
			"80 ms with the wait for the budget, which this run does not show apart (30 removals)", Reached},
	} {
		t.Run(name, func(t *testing.T) {
			run := good()
			for i := range run.Trials {
				if t := &run.Trials[i]; t.Arm == result.Quorate {
					t.Gaps, t.BudgetWaits, t.OwnGaps = []float64{tc.gap}, nil, nil
				}
			}
			targets := targetsOf(run)
			target := targets[slices.IndexFunc(targets, func(t Target) bool { return t.What == settling })]
			require.Equal(t, tc.measured, target.Measured)
			require.Equal(t, tc.verdict, target.Verdict)
			for _, row := range rowsOf(run.Trials) {
				require.Zero(t, row.OwnGap)
			}
		})
	}
}

func TestWhatIsNotForbiddenMissesNothing(t *testing.T) {
	for name, spoil := range map[string]func(*result.Run){
		"what Kubernetes' own arms do": func(run *result.Run) {
			for i := range run.Trials {
				if t := &run.Trials[i]; slices.Contains(bases, t.Arm) {
					t.Planned, t.Unplanned, t.WithoutQuorum, t.QuorumBack, t.FewestReady = 3, 2, 6, 9, 0
				}
			}
		},
		"one slow pair among many": func(run *result.Run) {
			for i := range run.Trials {
				if t := &run.Trials[i]; t.Case == result.Healthy3 && t.Arm == result.Quorate {
					t.WriteStall = 1
					return
				}
			}
		},
		"what the disruption controller takes its time for": func(run *result.Run) {
			for i := range run.Trials {
				if t := &run.Trials[i]; t.Arm == result.Quorate {
					t.Gaps, t.BudgetWaits = []float64{2.08}, []float64{2}
				}
			}
		},
		"what the library costs during a rollout": func(run *result.Run) { run.Embedded[1].With = 100 },
	} {
		t.Run(name, func(t *testing.T) {
			run := good()
			spoil(run)
			_, missed, open := verdicts(targetsOf(run))
			require.Empty(t, missed)
			require.Empty(t, open)
		})
	}
}

func TestATrialThatCouldNotBeCountedLeavesItsTargetsOpen(t *testing.T) {
	for name, spoil := range map[string]func(*result.Trial){
		"it had trouble":                       func(t *result.Trial) { t.Trouble = "x" },
		"the machine stood still for too long": func(t *result.Trial) { t.StoodStill = longestStill + 0.1 },
	} {
		t.Run(name, func(t *testing.T) {
			run := good()
			bad := run.Trials[slices.IndexFunc(run.Trials, func(t result.Trial) bool {
				return t.Case == result.Healthy3 && t.Arm == result.Quorate
			})]
			bad.Unplanned, bad.WithoutQuorum, bad.Round = 5, 5, 3
			spoil(&bad)
			run.Trials = append(run.Trials, bad)
			_, missed, open := verdicts(targetsOf(run))
			require.Empty(t, missed)
			title := result.CaseOf(result.Healthy3).Title
			require.ElementsMatch(t, []string{
				title + ": changes of leader", title + ": without quorum", title + ": longest write stall", title +
					": rollout time, one at a time",
			}, open)
		})
	}
}

func TestATrialIsMadeUpForByPlayingItAgainOnlyWhereTheMachineStoodStill(t *testing.T) {
	began := time.Date(2026, 11, 26, 9, 0, 0, 0, time.UTC)
	for name, c := range map[string]struct {
		first, second func(*result.Trial)
		madeUpFor     bool
	}{
		"the machine stood still, and then did not": {madeUpFor: true,
			first: func(t *result.Trial) { t.StoodStill = 1 }},
		"the machine stood still only the second time": {
			second: func(t *result.Trial) { t.StoodStill = 1 }},
		"the machine stood still both times": {
			first:  func(t *result.Trial) { t.StoodStill = 1 },
			second: func(t *result.Trial) { t.StoodStill = 1 }},
		"the trial had trouble of another kind": {
			first: func(t *result.Trial) { t.Trouble = "x" }},
		"the trial had trouble while the machine stood still": {
			first: func(t *result.Trial) { t.Trouble, t.StoodStill = "x", 1 }},
		"another member led": {
			first:  func(t *result.Trial) { t.StoodStill = 1 },
			second: func(t *result.Trial) { t.Leader = 2 }},
		"another arm of Quorate was played": {
			first:  func(t *result.Trial) { t.StoodStill = 1 },
			second: func(t *result.Trial) { t.Arm = result.QuorateDelete }},
		"another case was played": {
			first:  func(t *result.Trial) { t.StoodStill = 1 },
			second: func(t *result.Trial) { t.Case = result.Healthy5 }},
	} {
		t.Run(name, func(t *testing.T) {
			trials := make([]result.Trial, 2)
			for i, change := range []func(*result.Trial){c.first, c.second} {
				trials[i] = result.Trial{Case: result.Healthy3, Arm: result.Quorate, Leader: 1,
					Began: began.Add(time.Duration(i) * time.Hour)}
				if change != nil {
					change(&trials[i])
				}
			}
			want := NotMeasured
			if c.madeUpFor {
				want = Reached
			}
			require.Equal(t, want, unless(trials, Reached))
			slices.Reverse(trials)
			require.Equal(t, want, unless(trials, Reached), "in any order")
			require.Equal(t, NotReached, unless(trials, NotReached))
		})
	}
}

func TestATrialCountsWhereTheMachineStoodStillForAMoment(t *testing.T) {
	require.Empty(t, excluded(result.Trial{StoodStill: longestStill}))
	require.Equal(t, "the machine stood still for 1.3 s", excluded(result.Trial{StoodStill: 1.28}))
	require.Equal(t, "no leader", excluded(result.Trial{StoodStill: 1.28, Trouble: "no leader"}))
}

// untilBack are the targets of lost quorum that nothing can be said of without a restart, and those that nothing
// can be said of where quorum was not lost.
func untilBack() (back, removed []string) {
	for _, n := range needs {
		title := result.CaseOf(n.name).Title
		back = append(back, title+": until quorum is back")
		removed = append(removed, title+": until the first removal")
	}
	return back, removed
}

func TestHalfMeasuredIsNotReached(t *testing.T) {
	back, removed := untilBack()
	drop := func(run *result.Run, gone func(result.Trial) bool) {
		run.Trials = slices.DeleteFunc(run.Trials, gone)
	}
	for name, tc := range map[string]struct {
		drop func(*result.Run)
		open []string
	}{
		"an ordinal that never led": {
			func(run *result.Run) {
				drop(run, func(t result.Trial) bool { return t.Case == result.Healthy5 && t.Leader == 3 })
			},
			[]string{"Healthy, 5 members: changes of leader"},
		},
		"no healthy trial tells what a restart is": {
			func(run *result.Run) {
				for i := range run.Trials {
					if run.Trials[i].Case == result.Healthy3 {
						run.Trials[i].Downs = nil
					}
				}
			},
			back,
		},
		"a case of lost quorum that did not lose it": {
			func(run *result.Run) {
				for i := range run.Trials {
					run.Trials[i].QuorumBack = 0
				}
			},
			append(removed, back...),
		},
		"only trials with trouble": {
			func(run *result.Run) {
				for i := range run.Trials {
					if run.Trials[i].Case == result.NodeLost {
						run.Trials[i].Trouble = "x"
					}
				}
			},
			[]string{"A node lost: without quorum", "A node lost: fewest Ready pods"},
		},
		"nothing to compare with": {
			func(run *result.Run) {
				drop(run, func(t result.Trial) bool {
					return t.Case == result.Healthy3 && slices.Contains(bases, t.Arm)
				})
			},
			[]string{"Healthy, 3 members: longest write stall"},
		},
		"no idle waiter": {func(run *result.Run) { run.Idle = run.Idle[:1] },
			[]string{"Idle sidecar without the lock: Kubernetes requests"}},
	} {
		t.Run(name, func(t *testing.T) {
			run := good()
			tc.drop(run)
			_, missed, open := verdicts(targetsOf(run))
			require.Empty(t, missed)
			require.ElementsMatch(t, tc.open, open)
		})
	}
}

func TestTrialsThatDidNothingAreNamedBesideWhatTheyDidNotHarm(t *testing.T) {
	run := good()
	for i := range run.Trials {
		if run.Trials[i].Case == result.OneDown && run.Trials[i].Round == 1 {
			run.Trials[i].Completed = false
		}
	}
	for _, target := range targetsOf(run) {
		if target.What == "One member down: without quorum" {
			require.Equal(t, "0 s in all 4 trials; 2 of them did not complete", target.Measured)
			return
		}
	}
	require.Fail(t, "there is no such target")
}

func TestALeaderOfTheWrongOrdinalIsNamed(t *testing.T) {
	run := good()
	for i := range run.Trials {
		if trial := &run.Trials[i]; trial.Case == result.Healthy3 && trial.Arm == result.Quorate && trial.Leader == 1 {
			trial.Unplanned = 1
			require.Contains(t, targetsOf(run)[0].Measured,
				fmt.Sprintf("trial %d (`quorate`, round 1, leader 1)", trial.Position))
			return
		}
	}
}
