package traffic

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

const cluster = 7

// probe is what a healthy voter answers at the time at.
func probe(id uint64, at time.Duration, term, leader uint64) Probe {
	return Probe{
		Endpoint: "http://m", Answered: true, MemberID: id, ClusterID: cluster, Term: term, Leader: leader, Index: 100,
		Members: 3, Voters: 3,
		Serving: true, ReadAt: at + ms(1), ReadBy: id, ReadOf: cluster,
	}
}

func sample(at time.Duration, probes ...Probe) Sample {
	s := Sample{At: at, Probes: probes}
	s.judge(cluster)
	return s
}

func threeServing(at time.Duration) Sample {
	return sample(at, probe(1, at, 4, 1), probe(2, at, 4, 1), probe(3, at, 4, 1))
}

func silent(p Probe) Probe { return Probe{Endpoint: p.Endpoint, Error: "deadline exceeded"} }

func notServing(p Probe) Probe {
	p.Serving, p.ReadAt, p.ReadBy, p.ReadOf = false, 0, 0, 0
	return p
}

func TestServingVotersAreCountedByMember(t *testing.T) {
	for name, c := range map[string]struct {
		change func(p *Probe) // of the third member
		want   int
	}{
		"three that answer are three":                           {func(*Probe) {}, 3},
		"one that answers Status alone does not serve":          {func(p *Probe) { *p = notServing(*p) }, 2},
		"one that does not answer does not serve":               {func(p *Probe) { *p = silent(*p) }, 2},
		"a learner does not count":                              {func(p *Probe) { p.Learner = true }, 2},
		"a member of another cluster does not count":            {func(p *Probe) { p.ReadOf = 8 }, 2},
		"one process behind two addresses counts once":          {func(p *Probe) { p.ReadBy = 2 }, 2},
		"one whose Status alone is missing serves all the same": {func(p *Probe) { p.Answered = false }, 3},
	} {
		t.Run(name, func(t *testing.T) {
			third := probe(3, 0, 4, 1)
			c.change(&third)
			require.Equal(t, c.want, sample(0, probe(1, 0, 4, 1), probe(2, 0, 4, 1), third).Serving)
		})
	}
}

func TestTheLeaderIsNamedByAMajorityAtTheHighestTerm(t *testing.T) {
	for name, c := range map[string]struct {
		probes []Probe
		want   uint64
	}{
		"all agree": {[]Probe{probe(1, 0, 4, 1), probe(2, 0, 4, 1), probe(3, 0, 4, 1)},
			1},
		"a member that lags in an older term": {[]Probe{probe(1, 0, 4, 1), probe(2, 0, 5, 2), probe(3, 0, 5, 2)},
			2},
		"half at the highest term is not enough": {
			[]Probe{probe(1, 0, 5, 0), probe(2, 0, 5, 2), silent(probe(3, 0, 5, 2))}, 0},
		"a lone candidate at a higher term": {[]Probe{probe(1, 0, 4, 1), probe(2, 0, 4, 1), probe(3, 0, 9, 0)},
			0},
		"a member of another cluster has no say": {
			[]Probe{probe(1, 0, 4, 1), {Answered: true, ClusterID: 8, Term: 9, Leader: 3}}, 1},
		"nobody answers": {[]Probe{silent(probe(1, 0, 4, 1))}, 0},
		"one that does not serve may still tell it": {[]Probe{notServing(probe(1, 0, 4, 1))}, 1},
	} {
		t.Run(name, func(t *testing.T) {
			require.Equal(t, c.want, sample(0, c.probes...).Leader)
		})
	}
}

func TestLeaderChangesAreCountedByTerm(t *testing.T) {
	led := func(at int, term, leader uint64) Sample {
		return sample(ms(at), probe(1, ms(at), term, leader), probe(2, ms(at), term, leader),
			probe(3, ms(at), term, leader))
	}
	for name, c := range map[string]struct {
		samples              []Sample
		changes, reelections int
		first, last          uint64
	}{
		"one leader throughout": {[]Sample{led(0, 4, 1), led(100, 4, 1), led(200, 4, 1)}, 0, 0, 4, 4},
		"a handover":            {[]Sample{led(0, 4, 1), led(100, 5, 2), led(200, 5, 2)}, 1, 0, 4, 5},
		"an election that nobody won, then another": {[]Sample{led(0, 4, 1), led(100, 5, 0), led(200, 6, 2)}, 1, 0, 4,
			6},
		"there and back": {[]Sample{led(0, 4, 1), led(100, 5, 2), led(200, 6, 1)},
			2, 0, 4, 6},
		"the same leader in a later term": {[]Sample{led(0, 4, 1), led(100, 6, 1)}, 0, 1, 4, 6},
		"the new leader known before its term counts once": {[]Sample{led(0, 4, 1), led(100, 4, 2), led(200, 5, 2)},
			1, 0, 4, 5},
		"an old answer that arrives with a later sample": {
			[]Sample{led(0, 4, 1), led(100, 5, 2), led(200, 4, 1), led(300, 5, 2)}, 1, 0, 4, 5},
		"a time without leader that ends with the same term": {[]Sample{led(0, 4, 1), led(100, 4, 0), led(200, 4, 1)},
			0, 0, 4, 4},
	} {
		t.Run(name, func(t *testing.T) {
			f := (&Observation{Duration: ms(400), Cluster: cluster, Samples: c.samples}).Figures()
			require.Equal(t, c.changes, f.LeaderChanges)
			require.Equal(t, c.reelections, f.Reelections)
			require.Equal(t, c.first, f.FirstTerm)
			require.Equal(t, c.last, f.LastTerm)
			require.Len(t, f.Leaders, 1+c.changes+c.reelections)
		})
	}
}

func TestTheTimeWithoutQuorumIsFromTheFirstUnansweredReadToTheNextAnswer(t *testing.T) {
	none := func(at int) Sample {
		return sample(ms(at), notServing(probe(1, ms(at), 4, 1)), silent(probe(2, 0, 4, 1)))
	}
	one := func(at, answered int) Sample {
		p := probe(1, ms(at), 4, 1)
		p.ReadAt = ms(answered)
		return sample(ms(at), p, silent(probe(2, 0, 4, 1)))
	}
	for name, c := range map[string]struct {
		samples []Sample
		want    []stretch
	}{
		"one member that serves is quorum": {[]Sample{one(0, 1), one(100, 101)}, nil},
		"a slow answer is an answer":       {[]Sample{one(0, 1), one(100, 190), one(200, 201)}, nil},
		"no answer to two samples": {[]Sample{one(0, 1), none(100), none(200), one(300, 305)},
			[]stretch{{ms(100), ms(305)}}},
		"a late answer to an older read ends it": {[]Sample{one(0, 1), none(100), one(200, 440), one(300, 430)},
			[]stretch{{ms(100), ms(430)}}},
		"two times": {[]Sample{none(0), one(100, 101), none(200), one(300, 301)},
			[]stretch{{0, ms(101)}, {ms(200), ms(301)}}},
		"without an end it lasts as long as we look": {[]Sample{one(0, 1), none(100), none(200)},
			[]stretch{{ms(100), ms(1000)}}},
		"the answer of a learner does not end it": {
			[]Sample{none(0), sample(ms(100), Probe{Serving: true, Learner: true, ReadAt: ms(101), ReadOf: cluster})},
			[]stretch{{0, ms(1000)}}},
		"the answer of another cluster does not end it": {[]Sample{none(0),
			sample(ms(100), Probe{Serving: true, ReadAt: ms(101), ReadOf: 8})}, []stretch{{0, ms(1000)}}},
	} {
		t.Run(name, func(t *testing.T) {
			o := &Observation{Duration: ms(1000), Cluster: cluster, Samples: c.samples}
			require.Equal(t, c.want, o.outages())
			seconds := 0.0
			for _, s := range c.want {
				seconds += (s.to - s.from).Seconds()
			}
			require.InDelta(t, seconds, o.Figures().WithoutQuorumSeconds, 1e-9)
		})
	}
}

func TestTheFewestServingVotersAreKeptWithTheirTime(t *testing.T) {
	start := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	two := sample(ms(100), probe(1, ms(100), 4, 1), probe(2, ms(100), 4, 1), silent(probe(3, 0, 4, 1)))
	none := sample(ms(300), silent(probe(1, 0, 4, 1)))
	o := &Observation{Start: start, Duration: ms(500), Cluster: cluster,
		Samples: []Sample{threeServing(0), two, threeServing(ms(200)), none, threeServing(ms(400))}}
	f := o.Figures()
	require.Equal(t, 0, f.FewestServing)
	require.Equal(t, ServingStep{At: start.Add(ms(300)), Serving: 0, Voters: 3}, f.FewestServingAt,
		"the voters are those last known")
	var steps []int
	for _, step := range f.Serving {
		steps = append(steps, step.Serving)
	}
	require.Equal(t, []int{3, 2, 3, 0, 3}, steps)
}
