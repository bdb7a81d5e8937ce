package bench

import (
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/quorate/quorate/test/bench/result"
	"github.com/quorate/quorate/test/harness"
	"github.com/quorate/quorate/test/harness/traffic"
)

// change is when the template was changed in the trials below. All times are counted from
// it, in quarters of a second, which floating-point numbers hold exactly.
var change = time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)

func at(seconds float64) time.Time { return change.Add(span(seconds)) }

func span(seconds float64) time.Duration {
	return time.Duration(math.Round(seconds * float64(time.Second)))
}

// measured is what is read from what was seen.
func measured(m measurement) *result.Trial {
	if m.trial == nil {
		m.trial = &result.Trial{}
	}
	m.trial.Members, m.trial.FirstAction = 3, -1
	m.began = change
	m.fill()
	return m.trial
}

// removed and back are a pod that began to terminate and one that was Ready for the first
// time, such as "p1/b", the second one of p1.
func removed(pod string, seconds float64) harness.Removal {
	name, _, _ := strings.Cut(pod, "/")
	return harness.Removal{At: at(seconds), Pod: name, UID: pod}
}

func back(pod string, seconds float64) harness.Return {
	name, _, _ := strings.Cut(pod, "/")
	return harness.Return{At: at(seconds), Pod: name, UID: pod}
}

func TestThePaceIsReadFromRemovalsAndReturns(t *testing.T) {
	type removals = []harness.Removal
	type returns = []harness.Return
	type downs = []result.Down
	for name, c := range map[string]struct {
		removals removals
		returns  returns
		// finish is when the harness saw the end, or ceased to look.
		finish    float64
		completed bool

		downs   downs
		seconds float64
		sum     float64 // 0 also means no ratio
		first   float64
		gaps    []float64 // one at a time
	}{
		"one after the other: it is done when the last pod is Ready, not when the harness sees it": {
			removals{removed("p2/a", 0.5), removed("p1/a", 2.75), removed("p0/a", 5.25)},
			returns{back("p2/b", 2.5), back("p1/b", 4.75), back("p0/b", 7.5)}, 7.75, true,
			downs{{Pod: "p2", Removed: 0.5, Ready: 2.5}, {Pod: "p1", Removed: 2.75, Ready: 4.75},
				{Pod: "p0", Removed: 5.25, Ready: 7.5}},
			7.5, 6.25, 0.5, []float64{0.25, 0.5},
		},
		"what was removed before the change does not count, nor when it is back": {
			removals{removed("p0/a", -2), removed("p2/a", 1), removed("p1/a", 4)},
			returns{back("p0/b", 1.5), back("p2/b", 3), back("p1/b", 6)}, 6.25, true,
			downs{{Pod: "p2", Removed: 1, Ready: 3}, {Pod: "p1", Removed: 4, Ready: 6}},
			6, 4, 1, []float64{1},
		},
		"a pod that is replaced again and again is down as often": {
			removals{removed("p2/a", 1), removed("p2/b", 4), removed("p2/c", 7.25)},
			returns{back("p2/b", 3), back("p2/c", 7), back("p2/d", 9.25)}, 9.5, true,
			downs{{Pod: "p2", Removed: 1, Ready: 3}, {Pod: "p2", Removed: 4, Ready: 7},
				{Pod: "p2", Removed: 7.25, Ready: 9.25}},
			9.25, 7, 1, []float64{1, 0.25},
		},
		"a successor that is replaced before it is Ready never was, and there is no ratio": {
			removals{removed("p2/a", 1), removed("p2/b", 4), removed("p1/a", 7.5)},
			returns{back("p2/c", 7), back("p1/b", 9)}, 9.5, true,
			downs{{Pod: "p2", Removed: 1, Ready: -1}, {Pod: "p2", Removed: 4, Ready: 7},
				{Pod: "p1", Removed: 7.5, Ready: 9}},
			9, 0, 1, []float64{0.5},
		},
		"a pod that is Ready while it ends is not its own successor": {
			removals{removed("p2/a", 1), removed("p2/b", 2)},
			returns{back("p2/b", 2.5), back("p2/c", 5)}, 5.25, true,
			downs{{Pod: "p2", Removed: 1, Ready: -1}, {Pod: "p2", Removed: 2, Ready: 5}},
			5, 0, 1, nil,
		},
		"a pod that does not come back: what is done took as long as anybody looked": {
			removals{removed("p2/a", 1), removed("p1/a", 4)},
			returns{back("p2/b", 3)}, 45, false,
			downs{{Pod: "p2", Removed: 1, Ready: 3}, {Pod: "p1", Removed: 4, Ready: -1}},
			45, 0, 1, []float64{1},
		},
		"all that was removed is back, and yet it is not done": {
			removals{removed("p2/a", 1)}, returns{back("p2/b", 3)}, 45, false,
			downs{{Pod: "p2", Removed: 1, Ready: 3}},
			45, 0, 1, nil,
		},
		"nothing was removed": {
			nil, nil, 45, false, nil, 45, 0, -1, nil,
		},
		"two at once: it is done when both are Ready": {
			removals{removed("p0/a", 0.25), removed("p1/a", 0.5)},
			returns{back("p1/b", 4), back("p0/b", 5)}, 5.25, true,
			downs{{Pod: "p0", Removed: 0.25, Ready: 5}, {Pod: "p1", Removed: 0.5, Ready: 4}},
			5, 8.25, 0.25, nil,
		},
		"two at once: what is removed next waits for both": {
			removals{removed("p0/a", 0.25), removed("p1/a", 0.5), removed("p2/a", 5.25)},
			returns{back("p1/b", 4), back("p0/b", 5), back("p2/b", 7)}, 7, true,
			downs{{Pod: "p0", Removed: 0.25, Ready: 5}, {Pod: "p1", Removed: 0.5, Ready: 4},
				{Pod: "p2", Removed: 5.25, Ready: 7}},
			7, 10, 0.25, []float64{0.25},
		},
		"one that is removed while another one is away has waited for nothing": {
			removals{removed("p0/a", 0.25), removed("p1/a", 0.5), removed("p2/a", 4.25)},
			returns{back("p1/b", 4), back("p0/b", 5), back("p2/b", 7)}, 7, true,
			downs{{Pod: "p0", Removed: 0.25, Ready: 5}, {Pod: "p1", Removed: 0.5, Ready: 4},
				{Pod: "p2", Removed: 4.25, Ready: 7}},
			7, 11, 0.25, nil,
		},
	} {
		t.Run(name, func(t *testing.T) {
			for _, oneAtATime := range []bool{true, false} {
				got := measured(measurement{
					trial: &result.Trial{Completed: c.completed}, finish: at(c.finish), oneAtATime: oneAtATime,
					removals: c.removals, returns: c.returns,
				})
				require.Equal(t, c.downs, got.Downs)
				require.Equal(t, c.seconds, got.Seconds)
				require.Equal(t, c.sum, got.DownSeconds)
				if c.sum > 0 {
					require.Equal(t, c.seconds/c.sum, got.Ratio)
				} else {
					require.Zero(t, got.Ratio)
				}
				require.Equal(t, c.first, got.FirstAction)
				if oneAtATime {
					require.Equal(t, c.gaps, got.Gaps)
				} else {
					require.Empty(t, got.Gaps, "where several are away at a time, none waits for another")
				}
			}
		})
	}
}

func TestAGapIsTheWaitForTheBudgetAndOurOwnPart(t *testing.T) {
	type steps = []harness.BudgetStep
	allows := func(seconds float64) harness.BudgetStep { return harness.BudgetStep{At: at(seconds), Allows: true} }
	refuses := func(seconds float64) harness.BudgetStep { return harness.BudgetStep{At: at(seconds)} }
	for name, c := range map[string]struct {
		deletes bool
		budget  steps
		// The pods before have settled at second 4, and the next one is removed at second 6.
		wait, own float64
	}{
		"the budget allows it later": {false, steps{allows(-9), refuses(1), allows(4.5)}, 0.5, 1.5},
		"it allows it in the moment in which the pods have settled": {false,
			steps{allows(-9), refuses(1), allows(4)}, 0, 2},
		"it has allowed it before":         {false, steps{allows(-9), refuses(1), allows(3)}, 0, 2},
		"it has allowed it all the time":   {false, steps{allows(-9)}, 0, 2},
		"what it allowed before is over":   {false, steps{refuses(1), allows(2), refuses(3), allows(5)}, 1, 1},
		"it does not any more as of then":  {false, steps{allows(-9), refuses(4), allows(5)}, 1, 1},
		"the first time counts":            {false, steps{refuses(1), allows(4.5), refuses(5), allows(5.5)}, 0.5, 1.5},
		"it is charged by the removal":     {false, steps{refuses(1), allows(5.5), refuses(6)}, 1.5, 0.5},
		"the removal did not wait for it":  {false, steps{allows(-9), refuses(1), allows(6)}, 0, 2},
		"it never allows it":               {false, steps{refuses(-9)}, 0, 2},
		"nobody knows of a budget":         {false, nil, 0, 2},
		"no budget is asked for a removal": {true, steps{allows(-9), refuses(1), allows(4.5)}, 0, 2},
	} {
		t.Run(name, func(t *testing.T) {
			got := measured(measurement{
				trial: &result.Trial{Completed: true}, finish: at(9), oneAtATime: true,
				evicts: !c.deletes, budget: c.budget,
				removals: []harness.Removal{removed("p2/a", 1), removed("p1/a", 6)},
				returns:  []harness.Return{back("p2/b", 4), back("p1/b", 9)},
			})
			require.Equal(t, []float64{2}, got.Gaps)
			require.Equal(t, []float64{c.wait}, got.BudgetWaits)
			require.Equal(t, []float64{c.own}, got.OwnGaps)
		})
	}
}

func TestChangesOfLeaderCountFromTheChangeOn(t *testing.T) {
	planned := func(seconds float64) election { return election{at: at(seconds), planned: true} }
	unplanned := func(seconds float64) election { return election{at: at(seconds)} }
	for name, c := range map[string]struct {
		elections          []election
		removal            float64 // 0: none
		planned, unplanned int
		first              float64
	}{
		"none":                                  {nil, 2, 0, 0, 2},
		"one was asked for, before any removal": {[]election{planned(0.5)}, 2, 1, 0, 0.5},
		"one was asked for after a removal, as etcd does when it ends": {[]election{planned(2.25)}, 2, 1, 0, 2},
		"one was asked for, and nothing was removed":                   {[]election{planned(0.5)}, 0, 1, 0, 0.5},
		"the earliest of several": {[]election{planned(0.5), planned(0.75)},
			2, 2, 0, 0.5},
		"one came by itself, which is nobody's action": {[]election{unplanned(0.5)}, 2, 0, 1, 2},
		"one came by itself, and nothing was done":     {[]election{unplanned(0.5)}, 0, 0, 1, -1},
		"before the change none counts": {[]election{planned(-3), unplanned(-0.25)},
			2, 0, 0, 2},
		"before the change none counts, even where nothing is done later": {[]election{planned(-0.25)}, 0, 0, 0, -1},
		"some of each kind, before and after": {
			[]election{unplanned(-9), planned(-1), unplanned(1), planned(1.5), unplanned(4)}, 2, 1, 2, 1.5},
		"one in the very moment of the change counts, as it cannot be told": {[]election{planned(0)}, 2, 1, 0, 0},
	} {
		t.Run(name, func(t *testing.T) {
			m := measurement{finish: at(9), elections: c.elections}
			if c.removal > 0 {
				m.removals = []harness.Removal{removed("p2/a", c.removal)}
			}
			got := measured(m)
			require.Equal(t, c.planned, got.Planned, "planned")
			require.Equal(t, c.unplanned, got.Unplanned, "unplanned")
			require.Equal(t, c.first, got.FirstAction, "first action")
		})
	}
}

// early is how long before the change clients and observer begin.
const early = 8.0

// served says that from a moment on so many voters served.
type served struct {
	at     float64
	voters int
}

// observed is what an observer saw, one sample for each. Every answer comes at once.
func observed(end float64, samples ...served) *traffic.Observation {
	o := &traffic.Observation{Start: at(-early), Duration: span(early + end), Cluster: 7}
	for _, s := range samples {
		sample := traffic.Sample{At: span(early + s.at), Serving: s.voters, Voters: 3}
		for id := range s.voters {
			sample.Probes = append(sample.Probes,
				traffic.Probe{Serving: true, ReadAt: sample.At, ReadBy: uint64(id + 1), ReadOf: o.Cluster})
		}
		o.Samples = append(o.Samples, sample)
	}
	return o
}

func TestAvailabilityIsWhatTheObserverSawAfterTheChange(t *testing.T) {
	type samples = []served
	for name, c := range map[string]struct {
		samples samples // until second 9
		without float64
		back    float64
		fewest  int
	}{
		"all serve all the time": {samples{{-2, 3}, {1, 3}}, 0, 0, 3},
		"one is away at a time": {samples{{-2, 3}, {1, 2}, {3, 3}, {4, 2}, {6, 3}}, 0, 0,
			2},
		"quorum is lost and comes back": {samples{{-2, 3}, {1, 1}, {2, 0}, {3.5, 2}, {5, 3}}, 1.5,
			3.5, 0},
		"quorum is lost twice: back for the last time": {samples{{-2, 3}, {1, 0}, {2, 3}, {4, 0}, {4.5, 3}}, 1.5,
			4.5, 0},
		"it was lost before the change: its end alone counts": {samples{{-3, 3}, {-2, 0}, {1.25, 2}, {2, 3}}, 1.25,
			1.25, 0},
		"it was back before the change":                      {samples{{-3, 3}, {-2, 0}, {-1, 3}, {1, 3}}, 0, 0, 3},
		"it never comes back":                                {samples{{-2, 3}, {2, 0}, {4, 0}, {8, 0}}, 7, -1, 0},
		"it was lost before the change and never comes back": {samples{{-2, 0}, {8, 0}}, 9, -1, 0},
		"it comes back, and goes for good":                   {samples{{-2, 3}, {1, 0}, {2, 3}, {8.5, 0}}, 1.5, -1, 0},
		"a member was away at the change, and comes back":    {samples{{-2, 3}, {-1, 2}, {4, 3}}, 0, 0, 2},
		"members were away before the change alone":          {samples{{-3, 1}, {-2, 2}, {-1, 3}, {1, 3}}, 0, 0, 3},
		"what goes in the second after the end counts too":   {samples{{-2, 3}, {8.75, 1}}, 0, 0, 1},
	} {
		t.Run(name, func(t *testing.T) {
			got := measured(measurement{finish: at(8), history: &traffic.History{},
				observation: observed(9, c.samples...)})
			require.Equal(t, c.without, got.WithoutQuorum)
			require.Equal(t, c.back, got.QuorumBack)
			require.Equal(t, c.fewest, got.FewestServing)
		})
	}
}

func TestALossOfQuorumThatNobodySawTheEndOfHasNoneToTheNanosecond(t *testing.T) {
	for n := range 1000 {
		observation := observed(9, served{-2, 3}, served{1, 0})
		observation.Duration += time.Duration(n)
		got := measured(measurement{finish: at(8), history: &traffic.History{}, observation: observation})
		require.Equal(t, -1.0, got.QuorumBack, "%v", observation.Duration)
	}
}

// wrote is a request of a client: its attempts, one after the other.
type wrote struct {
	client   string
	attempts []attempt
}

type attempt struct {
	from, to float64
	outcome  traffic.Outcome
	kind     traffic.Kind
	lost     bool // of a Txn: the condition did not hold
}

// ok, unknown and failed are single attempts to write.
func ok(from, to float64) attempt { return attempt{from, to, traffic.OK, traffic.Put, false} }
func unknown(from, to float64) attempt {
	return attempt{from, to, traffic.Unknown, traffic.Put, false}
}
func failed(from, to float64) attempt {
	return attempt{from, to, traffic.Failed, traffic.Put, false}
}

func first(attempts ...attempt) wrote  { return wrote{"writer-0", attempts} }
func second(attempts ...attempt) wrote { return wrote{"writer-1", attempts} }

// history is what clients did, until the given second.
func history(writers int, end float64, requests ...wrote) *traffic.History {
	h := &traffic.History{Start: at(-early), Duration: span(early + end), Writers: writers}
	numbers := map[string]int{}
	for n, r := range requests {
		numbers[r.client]++
		for i, a := range r.attempts {
			h.Operations = append(h.Operations, traffic.Operation{
				Client: r.client, Request: numbers[r.client], Attempt: i, Kind: a.kind, Key: fmt.Sprint("k", n),
				Value: fmt.Sprint("v", n, i),
				Call:  span(early + a.from), Return: span(early + a.to), Outcome: a.outcome, Revision: int64(n + 2),
				Swapped: a.kind == traffic.Txn && !a.lost,
			})
		}
	}
	return h
}

func TestWritesThatWereUnderWayInTheTrialCount(t *testing.T) {
	// The trial ends at second 4, the clients at second 5.
	for name, c := range map[string]struct {
		requests []wrote
		writes   int
		retried  int
		failed   int
		median   float64
	}{
		"one that was answered": {[]wrote{first(ok(1, 1.25))}, 1, 0, 0, 0.25},
		"one that another member answered: from the first attempt on": {[]wrote{first(unknown(1, 2), ok(2, 2.25))}, 1,
			1, 0, 1.25},
		"one that no member answered has no latency": {
			[]wrote{first(unknown(1, 2), failed(2, 2.25), failed(2.25, 2.5))}, 1, 1, 1, 0},
		"one that was not tried again":                       {[]wrote{first(unknown(1, 2))}, 1, 0, 1, 0},
		"one that was over before the change does not count": {[]wrote{first(ok(-1, -0.25))}, 0, 0, 0, 0},
		"nor one that failed before the change": {[]wrote{first(unknown(-2, -1), failed(-1, -0.25))}, 0, 0,
			0, 0},
		"one that was under way at the change counts": {[]wrote{first(unknown(-1, -0.5), ok(-0.5, 0.25))}, 1, 1, 0,
			1.25},
		"one that was under way at the end counts":    {[]wrote{first(ok(3.75, 4.5))}, 1, 0, 0, 0.75},
		"one that began after the end does not count": {[]wrote{first(ok(4.25, 4.5))}, 0, 0, 0, 0},
		"a transaction counts as well": {[]wrote{first(attempt{1, 1.5, traffic.OK, traffic.Txn, false})},
			1, 0, 0, 0.5},
		"a read does not count": {
			[]wrote{first(ok(1, 1.25)), {"reader-0", []attempt{{1, 3, traffic.Failed, traffic.Get, false}}},
				first(attempt{2, 3, traffic.OK, traffic.Get, false})}, 1, 0, 0, 0.25},
		"what the verification writes does not count": {
			[]wrote{first(ok(1, 1.25)), {"final", []attempt{unknown(2, 3), failed(3, 3.5)}}}, 1, 0, 0, 0.25},
		"a request is a client's and a number": {[]wrote{first(ok(1, 1.25)), second(ok(1, 1.75)), first(ok(2, 2.5))}, 3,
			0, 0, 0.5},
		"none": {nil, 0, 0, 0, 0},
	} {
		t.Run(name, func(t *testing.T) {
			h := history(2, 5, c.requests...)
			got := measured(measurement{finish: at(4), history: h, observation: observed(5)})
			require.Equal(t, c.writes, got.Writes, "writes")
			require.Equal(t, c.retried, got.Retried, "retried")
			require.Equal(t, c.failed, got.Failed, "failed")
			require.Equal(t, c.median, got.MedianLatency, "median latency")
		})
	}
}

func TestTheWriteStallIsTheLongestTimeInWhichAWriterGotNothingAcknowledged(t *testing.T) {
	// acks are writes that were acknowledged at those moments.
	acks := func(client func(...attempt) wrote, moments ...float64) []wrote {
		var all []wrote
		for _, m := range moments {
			all = append(all, client(ok(m-0.25, m)))
		}
		return all
	}
	both := func(a, b []wrote) []wrote { return append(a, b...) }
	for name, c := range map[string]struct {
		writers  int
		requests []wrote // until second 5
		want     float64
	}{
		"between two acknowledgements":              {1, acks(first, -0.5, 0.5, 2.75, 3, 4, 4.5), 2.25},
		"from the change to the first":              {1, acks(first, -0.5, 1.75, 2, 3, 4, 4.5), 1.75},
		"from the last to the end":                  {1, acks(first, -0.5, 0.5, 1, 1.5), 3.5},
		"nothing was acknowledged after the change": {1, acks(first, -0.5), 5},
		"nothing was ever acknowledged":             {1, nil, 5},
		"what was before the change does not count": {1, acks(first, -7, -0.5, 1, 2, 3, 4), 1},
		"each writer by itself":                     {2, both(acks(first, 1, 2, 3, 4), acks(second, 0.5, 3.5, 4.5)), 3},
		"a writer that got nothing":                 {2, acks(first, 1, 2, 3, 4), 5},
		"a write that failed ends no stall": {1,
			append(acks(first, 1, 4), first(failed(2, 2.25), unknown(2.25, 2.5))), 3},
		"a write that wrote nothing ends no stall": {1,
			append(acks(first, 1, 4), first(attempt{2, 2.5, traffic.OK, traffic.Txn, true})), 3},
		"a read ends no stall": {1,
			append(acks(first, 1, 4), wrote{"writer-0", []attempt{{2, 2.5, traffic.OK, traffic.Get, false}}}), 3},
	} {
		t.Run(name, func(t *testing.T) {
			got := measured(measurement{finish: at(4), history: history(c.writers, 5, c.requests...),
				observation: observed(5)})
			require.Equal(t, c.want, got.WriteStall)
		})
	}
}

func TestWhatClientsSawBesideAChangeOfLeaderIsToldWithIt(t *testing.T) {
	get := func(from, to float64, kind traffic.Kind, outcome traffic.Outcome) wrote {
		return wrote{"reader-0", []attempt{{from, to, outcome, kind, false}}}
	}
	h := history(1, 10,
		first(ok(0, 0.5)), first(ok(1, 1.5)),
		first(failed(2, 3), ok(3, 3.25)),            // before the first change, and answered beside it
		first(unknown(3.5, 4.5), unknown(4.5, 5.5)), // beside it, and never acknowledged
		first(ok(5.75, 6)), first(ok(7, 7.5)), first(ok(9, 9.5)),
		get(0, 0.5, traffic.Get, traffic.OK), get(2, 2.5, traffic.Get, traffic.OK),
		get(3, 3.5, traffic.Get, traffic.Failed),
		get(4, 4.5, traffic.SerializableGet, traffic.OK), // answers without a leader
		get(5, 5.75, traffic.Get, traffic.OK), get(6, 6.5, traffic.Get, traffic.OK),
		get(8, 9.75, traffic.Get, traffic.OK),
	)
	h.Readers = 1
	got := measured(measurement{finish: at(9), history: h, observation: observed(10),
		elections: []election{{at: at(-2)}, {at: at(4), planned: true}, {at: at(8.75)}}})
	require.Equal(t, []result.Change{
		{At: 4, Planned: true, Failed: 1, Retried: 2, ReadStall: 3.25, WriteStall: 2.75},
		{At: 8.75, ReadStall: 3.25, WriteStall: 2},
	}, got.Changes)
	require.Equal(t, [2]float64{3.25, 2.75}, [2]float64{got.ReadStall, got.WriteStall}, "the longest of all")
}

func TestLatenciesAreThoseOfAcknowledgedWritesByTheNearestRank(t *testing.T) {
	var requests []wrote
	for n := range 200 {
		// The slower ones come first.
		requests = append(requests, first(ok(1, 1+0.25*float64(200-n))))
	}
	requests = append(requests, first(unknown(1, 101)))
	got := measured(measurement{finish: at(4), history: history(1, 200, requests...), observation: observed(200)})
	require.Equal(t, 25.0, got.MedianLatency, "that of the hundredth")
	require.Equal(t, 49.5, got.P99Latency, "that of the 198th")
}

func TestAQuantileIsTheNearestRank(t *testing.T) {
	hundred := make([]float64, 100)
	for i := range hundred {
		hundred[i] = float64(i + 1)
	}
	for _, c := range []struct {
		sorted  []float64
		percent int
		want    float64
	}{
		{nil, 50, 0},
		{[]float64{3}, 50, 3},
		{[]float64{3}, 99, 3},
		{[]float64{3, 4}, 50, 3},
		{[]float64{3, 4}, 99, 4},
		{[]float64{3, 4, 5}, 50, 4},
		{hundred, 50, 50},
		{hundred, 99, 99},
		{hundred, 100, 100},
		{hundred[:99], 99, 99},
		{hundred[:51], 50, 26},
	} {
		require.Equal(t, c.want, result.Quantile(c.sorted, c.percent), "%d%% of %v", c.percent, c.sorted)
	}
}

func TestWhatBecameOfAcknowledgedWritesIsTheHistorysWord(t *testing.T) {
	h := history(1, 5, first(ok(1, 1.25)), first(ok(2, 2.25)))
	got := measured(measurement{finish: at(4), history: h, observation: observed(5)})
	require.Equal(t, [2]int{0, 2}, [2]int{got.Lost, got.Unverified}, "nobody could be asked")

	kept := traffic.KeyValue{Key: h.Operations[0].Key, Value: h.Operations[0].Value, Revision: h.Operations[0].Revision}
	h.Finals = []traffic.FinalRead{{Member: "m", Call: span(early + 6), Return: span(early + 7), Revision: 9,
		Keys: []traffic.KeyValue{kept}}}
	got = measured(measurement{finish: at(4), history: h, observation: observed(5)})
	require.Equal(t, [2]int{1, 0}, [2]int{got.Lost, got.Unverified}, "one of two is there")
}

func TestWithoutClientsThereIsNothingToSayOfWritesAndQuorum(t *testing.T) {
	got := measured(measurement{
		trial: &result.Trial{Completed: true}, finish: at(4), removals: []harness.Removal{removed("p2/a", 1)},
		returns:   []harness.Return{back("p2/b", 3)},
		elections: []election{{at: at(0.5), planned: true}},
	})
	require.Equal(t, &result.Trial{
		Completed: true, Members: 3, Seconds: 3, Downs: []result.Down{{Pod: "p2", Removed: 1, Ready: 3}},
		DownSeconds: 2, Ratio: 1.5, FirstAction: 0.5, Planned: 1,
	}, got)
}
