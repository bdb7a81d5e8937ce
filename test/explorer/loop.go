package explorer

import "github.com/quorate/quorate/internal/record"

// loop is where a coordinator's loop is, as in coordinator/loop.go. Without a claim it looks at
// what Kubernetes says alone, and claims the record only when a rollout is due. When none is, it
// sleeps until the StatefulSet changes, and nothing else wakes it. Only for as long as a claim that
// was given up may land it looks once more; that is modelled where one does, so that nothing else
// is seen to rely on it.
type loop struct {
	// awake: it is about to look.
	awake bool
	// abstains: it has given up, and is out of the election for a while.
	abstains bool
}

// newLoop is that of a tenure that begins.
func newLoop() loop { return loop{awake: true} }

// due is what a look tells: that a pod is outdated, that the record says that a rollout is under way, or that others
// are about to take the leader and another member can lead.
func (m *Model) due(w *World) bool {
	for i := range m.ordinals() {
		if p := &w.pods[i]; p.phase != missing && p.revision != w.revision {
			return true
		}
	}
	return w.lease.rolling || w.lease.holder != 0 || w.lease.intent.op != none || m.mayMakeWay(w)
}

// movesOfLoop are what a coordinator without a claim may do.
func (m *Model) movesOfLoop(w *World, i int, add func(what moveKind, who int, how int)) {
	c := &w.coordinators[i]
	if int(w.owner) == i+1 && c.awake {
		add(look, i, int(record.ByLock))
	}
	if m.fallsBack(w, i) {
		add(look, i, int(record.ByClock))
	}
	if c.abstains && !m.Stay {
		add(returns, i, 0)
	}
}

// fallsBack is true for a fallback coordinator, which acts without the lock. While nobody can have the
// lock, that is all of them, also those that wait in the queue. A claim outlives the lock by
// which it was made, and the lack of one: it ends when another takes the record over.
func (m *Model) fallsBack(w *World, i int) bool {
	switch {
	case !m.Clocks || m.hasQuorum(w):
		return false
	case w.coordinators[i].abstains:
		return !m.Weak.NoFallback
	}
	return !m.Weak.Queues
}

// look is the loop's, and begins a claim when one is due.
func (m *Model) lookAround(w *World, i uint8, right record.Right) string {
	c := &w.coordinators[i]
	c.awake = false
	if !m.due(w) {
		m.note("%s looks, and nothing is due: it waits until the StatefulSet changes", m.name(w, i))
		return ""
	}
	m.note("%s looks, and starts by the %s", m.name(w, i), right)
	c.later = c.abstains
	return m.step(w, i, record.Start{Right: right})
}

// afterEnd is what becomes of the loop when a claim has ended. News that came meanwhile is still
// news.
func (m *Model) afterEnd(w *World, i uint8, end record.End) {
	c := &w.coordinators[i]
	if end.Ended != record.Finished {
		c.awake = true
	}
	if over := end.Ended == record.Stopped || end.Ended == record.HandedOver; over && w.owner == i+1 {
		w.owner, w.tenure, c.awake = 0, 0, false
	}
}

// wake is what a change of the StatefulSet or of its status does.
func (m *Model) wake(w *World) {
	for i := range m.Coordinators {
		if int(w.owner) == i+1 {
			w.coordinators[i].awake = true
		}
	}
}
