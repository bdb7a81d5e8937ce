package explorer

import (
	"fmt"

	"github.com/quorate/quorate/pkg/record"
)

// A Move is one thing that happens.
type Move struct {
	what moveKind
	// who is a coordinator, a pod or an orphan, and how tells outcomes apart.
	who, how uint8
}

type moveKind uint8

const (
	// goOn: a coordinator's request lands, is answered, and the next one is sent.
	goOn moveKind = iota
	// desert: it gives up on the answer; the request may still land.
	desert
	// repeat: the request lands twice, and only the second answer arrives.
	repeat
	// landLate: an orphan lands.
	landLate
	begin
	stop
	crash
	ticks
	// kubelet: a pod gets one step further on its way from being deleted to being up.
	kubelet
	fail
	// notice: a kubelet notices that a member hangs.
	notice
	recovers
	report
	deletePod
	deleteLease
	replaceLease
	editLease
	changeTemplate
	giveLock
)

// Moves appends everything that may happen next.
func (m *Model) Moves(w *World, to []Move) []Move {
	add := func(what moveKind, who int, how int) {
		to = append(to, Move{what: what, who: uint8(who), how: uint8(how)}) //nolint:gosec // Small.
	}
	for i := range m.Coordinators {
		m.movesOf(w, i, add)
	}
	for i := range w.orphans {
		if w.orphans[i].kind != nothing {
			add(landLate, i, 0)
		}
	}
	for i := range m.Members {
		p := &w.pods[i]
		switch p.phase {
		case missing, starting, terminating:
			add(kubelet, i, 0)
		case up:
			if p.health != healthy {
				if !m.Stay || p.revision == w.revision {
					add(recovers, i, 0)
				}
				if m.Stay && p.health == hung {
					add(notice, i, 0)
				}
				break
			}
			if w.left.Failures > 0 {
				add(fail, i, int(crashed))
				add(fail, i, int(hung))
			}
			if w.left.Deafness > 0 {
				add(fail, i, int(deaf))
				add(fail, i, int(deafUnready))
			}
		}
		if p.phase == missing || p.phase == terminating {
			continue
		}
		if w.left.Reports > 0 {
			add(report, i, 0)
		}
		if w.left.Deletions > 0 {
			add(deletePod, i, 0)
		}
	}
	if w.left.Edits > 0 {
		if w.lease.rv > 0 {
			add(deleteLease, 0, 0)
			add(replaceLease, 0, 0)
		}
		add(editLease, 0, 0) // Which creates it, if need be.
	}
	if w.left.Templates > 0 {
		add(changeTemplate, 0, 0)
	}
	if m.TrueLock && !m.Over {
		for i := range m.Coordinators {
			if int(w.owner) != i+1 {
				add(giveLock, i, 0)
			}
		}
	}
	return to
}

func (m *Model) movesOf(w *World, i int, add func(what moveKind, who int, how int)) {
	c := &w.coordinators[i]
	if c.begun < evidenceTicks || c.renewed < renewTicks || m.Clocks && (c.seenAge < patienceTicks || w.unchanged[i] < patienceTicks || c.request.age < patienceTicks) {
		add(ticks, i, 0)
	}
	r := &c.request
	if w.left.Crashes > 0 && (c.request.kind != nothing || c.phase != 0) {
		add(crash, i, 0)
		if c.boots == 0 {
			add(crash, i, 1)
		}
	}
	if r.kind == nothing {
		if (w.left.Starts > 0 || m.Over) && m.due(w) {
			if !m.TrueLock || int(w.owner) == i+1 {
				add(begin, i, int(record.ByLock))
			}
			if m.Clocks {
				add(begin, i, int(record.ByClock))
			}
		}
		return
	}
	switch r.kind {
	case checkRight:
		add(goOn, i, 0)
		if !m.TrueLock {
			add(goOn, i, 1)
		}
	case moveLeader:
		add(goOn, i, 0)
		add(goOn, i, 1)
	case observe:
		add(goOn, i, 0)
		if m.decides(w, r) {
			add(goOn, i, 1)
		}
	default:
		add(goOn, i, 0)
	}
	if w.left.Stops > 0 && r.stage == 0 {
		add(stop, i, 0)
	}
	if w.left.Lost == 0 {
		return
	}
	switch r.kind {
	case writeLease, fencePod, removePod:
		add(desert, i, 0)
		if r.kind == removePod {
			add(desert, i, 1)
		}
		add(repeat, i, 0)
	case listPods:
		add(desert, i, 0)
	case readLease, observe:
		if m.Fine {
			add(desert, i, 0)
		}
	}
}

// due is when a sidecar that has the right to would claim the record.
func (m *Model) due(w *World) bool {
	if w.lease.rolling || w.lease.holder != 0 || w.lease.intent.op != none {
		return true
	}
	for i := range m.Members {
		if p := &w.pods[i]; p.phase != missing && p.revision != w.revision {
			return true
		}
	}
	return false
}

// Apply returns the world after a move, and which rule it has broken.
func (m *Model) Apply(w World, mv Move) (World, string) {
	broken := m.apply(&w, mv)
	if broken == "" && !m.effectsOnly {
		broken = m.uncovered(&w)
	}
	m.elect(&w)
	m.normalise(&w)
	return w, broken
}

func (m *Model) apply(w *World, mv Move) string {
	switch mv.what {
	case goOn:
		return m.goOn(w, mv.who, mv.how, false)
	case repeat:
		w.left.Lost--
		return m.goOn(w, mv.who, mv.how, true)
	case desert:
		w.left.Lost--
		return m.desert(w, mv.who, mv.how)
	case landLate:
		return m.landLate(w, mv.who)
	case begin:
		if !m.Over {
			w.left.Starts--
		}
		m.note("%s starts, by the %s", m.name(w, mv.who), record.Right(mv.how))
		return m.step(w, mv.who, record.Start{Right: record.Right(mv.how)})
	case stop:
		w.left.Stops--
		m.note("%s is told to stop", m.name(w, mv.who))
		return m.step(w, mv.who, record.Stop{})
	case crash:
		w.left.Crashes--
		m.crash(w, mv.who, mv.how)
	case ticks:
		m.tick(w, mv.who)
	case kubelet:
		m.kubelet(w, mv.who)
	case fail:
		p := &w.pods[mv.who]
		if p.health = mv.how; p.health == crashed || p.health == hung {
			w.left.Failures--
			m.note("the member of %s fails (its kubelet has noticed: %v)", names[mv.who], p.health == crashed)
		} else {
			w.left.Deafness--
			m.note("the member of %s stops answering, and still votes (ready: %v)", names[mv.who], p.health == deaf)
		}
	case notice:
		w.pods[mv.who].health = hungUnready
		m.note("the kubelet notices that the member of %s hangs", names[mv.who])
	case recovers:
		// Its kubelet reports that later, if there is anything to report: see report.
		w.pods[mv.who].health = healthy
		m.note("the member of %s is well again", names[mv.who])
	case report:
		w.left.Reports--
		w.touch(mv.who)
		m.note("the status of %s changes", names[mv.who])
	case deletePod:
		w.left.Deletions--
		w.pods[mv.who].phase, w.pods[mv.who].health = terminating, healthy
		w.touch(mv.who)
		m.note("somebody else deletes %s", names[mv.who])
	case deleteLease:
		w.left.Edits--
		w.deleteLease()
		m.note("somebody deletes the Lease")
	case replaceLease:
		w.left.Edits--
		l := w.lease
		l.schema, l.intent, l.rolling = 0, intent{}, false
		w.changeLease(l)
		m.note("somebody replaces the Lease's annotations")
	case editLease:
		w.left.Edits--
		w.changeLease(w.lease)
		m.note("somebody edits the Lease")
	case changeTemplate:
		w.left.Templates--
		w.revision++
		m.note("the template changes: revision %d", w.revision)
	case giveLock:
		w.owner, w.tenure = mv.who+1, 0
		m.note("%s owns the lock", m.name(w, mv.who))
	default:
		panic(fmt.Sprintf("no such move: %d", mv.what))
	}
	return ""
}

func (m *Model) note(format string, args ...any) {
	if m.tell != nil {
		m.tell(format, args...)
	}
}

func (m *Model) name(w *World, i uint8) string {
	return identityNames[identity(i, w.coordinators[i].boots)]
}

// ignorant: nothing that was seen so far shows a removal.
func (m *Model) ignorant(w *World) { w.eachKnowledge(func(k *knowledge) { k.ignorant = true }) }

func (w *World) eachKnowledge(visit func(*knowledge)) {
	of := func(r *request) {
		if r.kind == observe && r.stage > 0 || r.kind == removePod {
			visit(&r.knowledge)
		}
	}
	for i := range w.coordinators {
		c := &w.coordinators[i]
		if c.phase != 0 {
			visit(&c.seen)
		}
		of(&c.request)
		of(&c.cache)
	}
	for i := range w.orphans {
		of(&w.orphans[i])
	}
}

// crash: what the process knew is gone, what it sent is not. With a new pod it has a new
// identity.
func (m *Model) crash(w *World, i, replaced uint8) {
	c := &w.coordinators[i]
	m.note("%s crashes", m.name(w, i))
	if r := c.request; r.kind == writeLease || r.kind == fencePod || r.kind == removePod {
		w.orphan(r)
	}
	boots := c.boots
	if replaced > 0 {
		boots = 1
	}
	*c = coordinator{boots: boots}
	c.state = m.stateOf(record.State{})
}

// tick lets time pass for one process.
func (m *Model) tick(w *World, i uint8) {
	c := &w.coordinators[i]
	m.note("time passes for %s", m.name(w, i))
	older := func(age *uint8, most uint8) {
		if *age < most {
			*age++
		}
	}
	older(&c.begun, evidenceTicks)
	older(&c.age, evidenceTicks)
	older(&c.renewed, renewTicks)
	m.older(&c.request)
	for k := range w.orphans {
		if w.orphans[k].kind != nothing && w.orphans[k].by == i {
			m.older(&w.orphans[k])
		}
	}
	if m.Clocks {
		older(&c.seenAge, patienceTicks)
		older(&w.unchanged[i], patienceTicks)
	}
}

func (m *Model) older(r *request) {
	most := uint8(0)
	switch {
	case r.kind == observe || r.kind == removePod:
		most = evidenceTicks
	case r.kind == readLease && m.Clocks:
		most = patienceTicks
	}
	if r.age < most {
		r.age++
	}
}

// kubelet takes a pod one step further; between two pods of a name, the StatefulSet
// controller does.
func (m *Model) kubelet(w *World, i uint8) {
	p := &w.pods[i]
	switch p.phase {
	case terminating:
		*p = pod{ours: p.ours}
		w.forget(i)
		m.note("%s is gone", names[i])
		if !m.Fine {
			m.kubelet(w, i)
		}
	case missing:
		*p = pod{phase: starting, rv: 1, revision: w.revision, ours: p.ours}
		m.note("%s is recreated, revision %d", names[i], p.revision)
	case starting:
		p.phase, p.ours = up, false
		m.note("%s is up", names[i])
	}
}
