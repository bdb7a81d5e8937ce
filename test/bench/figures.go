package bench

import (
	"fmt"
	"math"
	"slices"
	"time"

	"github.com/quorate/quorate/test/bench/result"
	"github.com/quorate/quorate/test/harness"
	"github.com/quorate/quorate/test/harness/traffic"
)

// measurement is everything that was seen in a trial.
type measurement struct {
	trial         *result.Trial
	began, finish time.Time
	oneAtATime    bool
	// evicts is true where the budget has to allow the removals.
	evicts bool
	budget []harness.BudgetStep

	removals    []harness.Removal
	returns     []harness.Return
	elections   []election
	history     *traffic.History
	observation *traffic.Observation
}

// fill fills in the trial.
func (m *measurement) fill() {
	m.pace()
	m.leaders()
	if m.history == nil {
		return
	}
	m.availability()
	m.clients()
}

// seconds is a moment in the trial's time.
func (m *measurement) seconds(at time.Time) float64 { return at.Sub(m.began).Seconds() }

// pace is how fast the pods were replaced.
func (m *measurement) pace() {
	t := m.trial
	t.Seconds = m.seconds(m.finish)
	last, whole := 0.0, true
	for i, r := range m.removals {
		if r.At.Before(m.began) {
			continue
		}
		down := result.Down{Pod: r.Pod, Removed: m.seconds(r.At), Ready: -1}
		for _, back := range m.returns {
			if back.Pod == r.Pod && back.UID != r.UID && back.At.After(r.At) {
				// Its successor's (it can become Ready itself while it ends), if that was Ready
				// before it was removed in its turn.
				again := slices.IndexFunc(m.removals[i+1:], func(next harness.Removal) bool {
					return next.Pod == r.Pod && next.At.Before(back.At)
				})
				if again < 0 {
					down.Ready = m.seconds(back.At)
				}
				break
			}
		}
		if down.Ready < 0 {
			whole = false
		} else {
			t.DownSeconds += down.Ready - down.Removed
			last = max(last, down.Ready)
		}
		t.Downs = append(t.Downs, down)
	}
	if t.Completed && last > 0 {
		// The harness looks ten times a second, the ledger is told at once.
		t.Seconds = last
	}
	if !whole || !t.Completed {
		t.DownSeconds = 0
	}
	if t.DownSeconds > 0 {
		t.Ratio = t.Seconds / t.DownSeconds
	}
	if len(t.Downs) > 0 {
		t.FirstAction = t.Downs[0].Removed
	}
	if !m.oneAtATime {
		return
	}
	// Pods that do not serve may be removed together; what comes next waits for all of them.
	settled := 0.0
	for i, down := range t.Downs {
		if i > 0 && t.Downs[i-1].Ready >= 0 && settled < down.Removed {
			free := m.allowed(settled, down.Removed)
			t.Gaps = append(t.Gaps, down.Removed-settled)
			t.BudgetWaits = append(t.BudgetWaits, free-settled)
			t.OwnGaps = append(t.OwnGaps, down.Removed-free)
		}
		settled = max(settled, down.Ready)
	}
}

// allowed is when the budget allowed the removal: as soon as the pods before had settled, or later. A pod that
// was removed although the budget never allowed it has not waited for that.
func (m *measurement) allowed(settled, removed float64) float64 {
	if !m.evicts {
		return settled
	}
	for i, step := range m.budget {
		over := i+1 < len(m.budget) && m.seconds(m.budget[i+1].At) <= settled
		if from := max(settled, m.seconds(step.At)); step.Allows && !over && from < removed {
			return from
		}
	}
	return settled
}

// leaders is how leadership went.
func (m *measurement) leaders() {
	for _, e := range m.elections {
		at := m.seconds(e.at)
		switch {
		case at < 0:
			continue
		case e.planned:
			m.trial.Planned++
		default:
			m.trial.Unplanned++
		}
		if e.planned && (m.trial.FirstAction < 0 || at < m.trial.FirstAction) {
			m.trial.FirstAction = at
		}
	}
}

// availability is what the observer saw.
func (m *measurement) availability() {
	t, f := m.trial, m.observation.Figures()
	t.FewestServing = t.Members
	for i, step := range f.Serving {
		if over := i+1 < len(f.Serving) && f.Serving[i+1].At.Before(m.began); !over {
			t.FewestServing = min(t.FewestServing, step.Serving)
		}
	}
	end := m.observation.Start.Add(m.observation.Duration)
	for _, o := range f.Outages {
		from := max(0, m.seconds(o.From))
		to := m.seconds(o.From) + o.Seconds
		if to <= from {
			continue
		}
		t.WithoutQuorum += to - from
		// Rounded: seconds do not hold every nanosecond exactly.
		lasted := time.Duration(math.Round(o.Seconds * float64(time.Second)))
		if t.QuorumBack = to; !o.From.Add(lasted).Before(end) {
			t.QuorumBack = -1 // It lasted as long as anybody looked.
		}
	}
}

// stall is a time in which a client got no answer.
type stall struct{ from, to float64 }

// stallsOf are those of all clients, whose answers came at these moments, from the change to the end of the history.
func (m *measurement) stallsOf(answered map[string][]float64) (all []stall) {
	end := m.seconds(m.history.Start.Add(m.history.Duration))
	for _, times := range answered {
		slices.Sort(times)
		previous := 0.0
		for _, at := range append(times, end) {
			if at > 0 {
				all = append(all, stall{previous, at})
				previous = at
			}
		}
	}
	return all
}

// longest is the longest of the stalls that were there at some time between these two.
func longest(stalls []stall, from, to float64) (most float64) {
	for _, s := range stalls {
		if s.from <= to && s.to >= from {
			most = max(most, s.to-s.from)
		}
	}
	return most
}

// clients is what the clients' requests went through.
func (m *measurement) clients() {
	t, figures := m.trial, m.history.Figures()
	t.Lost, t.Unverified = figures.LostWrites, figures.UnverifiedWrites
	type request struct {
		client string
		number int
	}
	type write struct {
		from, to        time.Duration
		failed, retried bool
	}
	requests := map[request]*write{}
	acknowledged, read := map[string][]float64{}, map[string][]float64{}
	for i := range m.history.Writers {
		acknowledged[writerName(i)] = nil
	}
	for i := range m.history.Readers {
		read[readerName(i)] = nil
	}
	for _, op := range m.history.Operations {
		if _, reader := read[op.Client]; reader && op.Kind == traffic.Get && op.Outcome == traffic.OK {
			read[op.Client] = append(read[op.Client], m.seconds(m.history.Start.Add(op.Return)))
		}
		if op.Kind != traffic.Put && op.Kind != traffic.Txn {
			continue
		}
		if _, writer := acknowledged[op.Client]; !writer {
			continue // The verification's own.
		}
		key := request{op.Client, op.Request}
		w := requests[key]
		if w == nil {
			w = &write{from: op.Call}
			requests[key] = w
		}
		// Attempts are in the order of their calls.
		w.to, w.failed, w.retried = op.Return, op.Outcome != traffic.OK, w.retried || op.Attempt > 0
		if op.Wrote() {
			acknowledged[op.Client] = append(acknowledged[op.Client], m.seconds(m.history.Start.Add(op.Return)))
		}
	}
	for _, e := range m.elections {
		if at := m.seconds(e.at); at >= 0 {
			t.Changes = append(t.Changes, result.Change{At: at, Planned: e.planned})
		}
	}
	var latencies []float64
	for _, w := range requests {
		at := m.seconds(m.history.Start.Add(w.from))
		took := (w.to - w.from).Seconds()
		// A write counts that was under way in the trial.
		if at+took < 0 || at > t.Seconds {
			continue
		}
		t.Writes++
		if w.retried {
			t.Retried++
		}
		if w.failed {
			t.Failed++
		} else {
			latencies = append(latencies, took)
		}
		for i := range t.Changes {
			c := &t.Changes[i]
			if at > c.At+result.Beside || at+took < c.At-result.Beside {
				continue
			}
			if w.retried {
				c.Retried++
			}
			if w.failed {
				c.Failed++
			}
		}
	}
	slices.Sort(latencies)
	t.MedianLatency, t.P99Latency = result.Quantile(latencies, 50), result.Quantile(latencies, 99)
	reads, writes := m.stallsOf(read), m.stallsOf(acknowledged)
	ever := math.Inf(1)
	t.ReadStall, t.WriteStall = longest(reads, 0, ever), longest(writes, 0, ever)
	for i := range t.Changes {
		c := &t.Changes[i]
		from, to := c.At-result.Beside, c.At+result.Beside
		c.ReadStall, c.WriteStall = longest(reads, from, to), longest(writes, from, to)
	}
}

// writerName is the name of a writer in a history, and readerName that of a reader.
func writerName(n int) string { return fmt.Sprintf("writer-%d", n) }
func readerName(n int) string { return fmt.Sprintf("reader-%d", n) }
