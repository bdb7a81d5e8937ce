package report

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/quorate/quorate/test/bench/result"
)

// synthetic makes up a run: a simple model of clusters under every arm, with the series a plot
// is made from. Nothing of it was measured; it has the shapes that real runs have.
func synthetic(rounds int, cases ...string) *result.Run {
	random := rand.New(rand.NewPCG(7, 7))
	run := &result.Run{Header: result.Header{
		Began: time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC), Seconds: 5000, Version: "0123abc", CPU: "A processor",
		Cores: 2, MemoryMiB: 8192,
		Kernel: "6.1.0", Go: "go1.26.0", Kubernetes: "1.36.3", Etcd: []string{"3.5.35", "3.6.16"},
		Network: "namespaces", Seed: 7,
		StartDelay: 2, ReadinessPeriod: 1,
	}}
	for round := 1; round <= rounds; round++ {
		for _, name := range cases {
			c := result.CaseOf(name)
			leaders := []int{0}
			if c.Healthy {
				leaders = leaders[:0]
				for ordinal := range c.Members {
					leaders = append(leaders, ordinal)
				}
			}
			for _, leader := range leaders {
				for _, arm := range result.Arms {
					if max := atOnceIn(c, arm); !arm.OneAtATime && max < 2 ||
						arm.Name == result.QuorateTwo && c.Members < 7 {
						continue
					}
					t := imagine(random, c, arm, leader)
					t.Round, t.Position = round, len(run.Trials)+1
					t.Began = run.Header.Began.Add(time.Duration(len(run.Trials)) * time.Minute)
					run.Trials = append(run.Trials, t)
				}
			}
		}
	}
	return run
}

func atOnceIn(c result.Case, arm result.Arm) int {
	switch {
	case arm.OneAtATime:
		return 1
	case arm.Name == result.QuorateTwo:
		return 2
	}
	return (c.Members - 1) / 2
}

// imagine makes up a trial.
func imagine(random *rand.Rand, c result.Case, arm result.Arm, leader int) result.Trial {
	const limit = 60
	ms := func(v float64) float64 { return math.Round(v*1000) / 1000 }
	t := result.Trial{Case: c.Name, Arm: arm.Name, Members: c.Members, Leader: leader, Limit: limit, Completed: true,
		FirstAction: -1}
	voters := c.Members
	sick := map[int]bool{}
	switch c.Name {
	case result.OneDown, result.SecondFails:
		sick[1] = true
	case result.QuorumLoss, result.QuorumJustLost:
		sick[0], sick[1], t.Leader = true, true, -1
	case result.NodeLost:
		sick[0] = true
	case result.GhostVoters:
		voters += 2
	}
	// The order: Kubernetes from the highest ordinal down; Quorate the sick ones first and the
	// leader last.
	var order []int
	for ordinal := c.Members - 1; ordinal >= 0; ordinal-- {
		order = append(order, ordinal)
	}
	if arm.Quorate {
		slices.SortStableFunc(order, func(a, b int) int { return rank(sick, leader, a) - rank(sick, leader, b) })
	}
	series := &result.Series{Leaders: []result.Change{}}
	type event struct {
		at   float64
		step int
	}
	var events []event
	at, leading := ms(0.05+0.05*random.Float64()), leader
	stalls := map[float64]float64{}
	for i := 0; i < len(order); {
		group := order[i:min(i+atOnceIn(c, arm), len(order))]
		if i == 0 && arm.Quorate {
			group = order[:1]
		}
		i += len(group)
		back := at
		for _, ordinal := range group {
			if t.FirstAction < 0 {
				t.FirstAction = at
			}
			if ordinal == leading {
				stalls[at] = 0.015 + 0.02*random.Float64()
				for _, next := range []int{0, 1, 2} {
					if next != ordinal && !sick[next] {
						leading = next
						break
					}
				}
				t.Planned++
				series.Leaders = append(series.Leaders, result.Change{At: ms(at + 0.01), Leader: leading})
			}
			down := result.Down{Pod: fmt.Sprintf("etcd-%d", ordinal), Removed: ms(at),
				Ready: ms(at + 3 + 0.6*random.Float64())}
			// A member that is down is Ready again only with a quorum around it.
			if arm.Name == result.OrderedReady && c.Name == result.QuorumLoss {
				t.Completed, t.QuorumBack, t.Seconds = false, -1, limit
				down.Ready = -1
				t.Downs = append(t.Downs, down)
				break
			}
			t.Downs = append(t.Downs, down)
			t.DownSeconds += down.Ready - down.Removed
			if !sick[ordinal] {
				events = append(events, event{ms(at + 0.02), -1})
			}
			events = append(events, event{ms(down.Ready - 0.3), 1})
			sick[ordinal] = false
			back = max(back, down.Ready)
		}
		if !t.Completed {
			break
		}
		t.Seconds = ms(back)
		if i < len(order) {
			gap := ms(0.02 + 0.04*random.Float64())
			wait := 0.0
			if arm.Quorate && arm.Name != result.QuorateDelete {
				wait = ms(gap / 4)
			}
			t.Gaps, t.BudgetWaits = append(t.Gaps, gap), append(t.BudgetWaits, wait)
			t.OwnGaps = append(t.OwnGaps, ms(gap-wait))
			at = ms(back + gap)
		}
	}
	t.DownSeconds = ms(t.DownSeconds)
	if t.Completed && t.DownSeconds > 0 {
		t.Ratio = ms(t.Seconds / t.DownSeconds)
	}
	slices.SortFunc(events, func(a, b event) int { return int(math.Copysign(1, a.at-b.at)) })
	serving := c.Members
	switch c.Name {
	case result.OneDown, result.SecondFails, result.NodeLost:
		serving--
	case result.QuorumLoss, result.QuorumJustLost:
		serving -= 2
	}
	series.Serving = []result.Step{{At: -2, Serving: serving, Voters: voters}}
	t.FewestServing, t.FewestReady = serving, serving
	quorum := voters/2 + 1
	lost, end := -2.0, t.Seconds+1
	if serving >= quorum {
		lost = math.NaN()
	}
	type span struct{ from, to float64 }
	var outages []span
	for _, e := range events {
		serving += e.step
		series.Serving = append(series.Serving, result.Step{At: e.at, Serving: serving, Voters: voters})
		t.FewestServing, t.FewestReady = min(t.FewestServing, serving), min(t.FewestReady, serving)
		switch {
		case serving < quorum && math.IsNaN(lost):
			lost = e.at
		case serving >= quorum && !math.IsNaN(lost):
			outages = append(outages, span{lost, e.at})
			t.WithoutQuorum = ms(t.WithoutQuorum + e.at - max(lost, 0))
			t.QuorumBack, lost = e.at, math.NaN()
		}
	}
	if !math.IsNaN(lost) {
		outages = append(outages, span{lost, end})
		t.WithoutQuorum = ms(end - max(lost, 0))
	}
	for at := -2.0; at < end; {
		took := 0.0015 * math.Exp(0.35*random.NormFloat64())
		for from, stall := range stalls {
			if at <= from && at+took+0.01 > from {
				took += stall
			}
		}
		w := result.Write{At: ms(at), Took: math.Round(took*1e5) / 1e5}
		for _, o := range outages {
			if at+took > o.from && at < o.to {
				w.Took = ms(min(o.to-at+0.3, 5))
				w.Failed = w.Took >= 5
			}
		}
		if w.Failed {
			t.Failed++
		}
		t.Writes++
		t.WriteStall = max(t.WriteStall, w.Took)
		series.Writes = append(series.Writes, w)
		at += w.Took + 0.008
	}
	for _, o := range outages {
		t.WriteStall = max(t.WriteStall, ms(o.to-o.from+0.3))
	}
	t.MedianLatency, t.P99Latency = 0.0015, ms(0.004+0.002*random.Float64())
	t.Retried = t.Planned
	t.Requests = nil
	if arm.Quorate {
		t.Requests = map[string]int{"list pods": 30 + random.IntN(5), "get statefulsets": 30, "delete pods": c.Members,
			"update leases": 12}
		t.Usage = result.Usage{Processes: c.Members, CPUSeconds: ms(0.2 + 0.1*random.Float64()),
			Anonymous: ms(9 + random.Float64()), Resident: ms(38 + random.Float64())}
	}
	t.Series = series
	return t
}

// rank orders Quorate's removals.
func rank(sick map[int]bool, leader, ordinal int) int {
	switch {
	case sick[ordinal]:
		return 0
	case ordinal == leader:
		return 2
	}
	return 1
}
