package explorer

import (
	"github.com/quorate/quorate/internal/record"
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
	// desert: it gives up on the answer. The request may still land.
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
	forgeLease
	changeTemplate
	giveLock
	// look: a loop checks whether a rollout is due. returns: a coordinator that abstained lines
	// up again. giveUp: a coordinator finds that it is unfit.
	look
	returns
	giveUp
	// powerCut: every member restarts.
	powerCut
	// scale changes what ordinals there are; scaleAway: the controller deletes a pod that is not
	// among them any more.
	scale
	scaleAway
	// depart: a voter outside our ordinals goes; join: a member is added that does not start;
	// unlist, promote: the host removes the member of a pod that was scaled away, or lets a new
	// one vote.
	depart
	join
	unlist
	promote
	// announce: others say that they are about to take a pod, or cordon its node; withdraw: they do not any more.
	announce
	withdraw
	// drain: somebody evicts a pod; reckon: the disruption controller reckons anew; expire: it
	// forgets an eviction that had no effect.
	drain
	reckon
	expire
	// wedge: the gate does not answer any more; unwedge: it does.
	wedge
	unwedge
	// lapse: the request runs out; restoreLease: the Lease comes back from a backup, with an operation on it.
	lapse
	restoreLease
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
	for i := range m.places() {
		p := &w.pods[i]
		switch p.phase {
		case missing:
			if m.recreates(w, i) {
				add(kubelet, i, 0)
			}
		case terminating:
			add(kubelet, i, 0)
		case starting:
			if m.comesUp(w, i) {
				add(kubelet, i, 0)
			}
			if m.broken(p) {
				add(kubelet, i, 1)
			}
		case up:
			if i < m.ordinals() && !w.has(i) {
				add(scaleAway, i, 0)
			}
			if p.health != healthy {
				restarts := p.health == ended || p.health == creating
				if restarts || (!m.Stay || p.revision == w.revision) && !m.broken(p) {
					add(recovers, i, 0)
				}
				if p.health == ended && w.left.Reports > 0 {
					add(fail, i, int(creating))
				}
				if m.Stay && p.health == hung {
					add(notice, i, 0)
				}
				break
			}
			if w.left.Failures > 0 {
				add(fail, i, int(crashed))
				if !m.Stay || !m.Clocks { // Live processes that hang without a quorum are held for good.
					add(fail, i, int(hung))
				}
			}
			if w.left.Deafness > 0 {
				add(fail, i, int(deaf))
				add(fail, i, int(deafUnready))
			}
			if w.left.Restarts > 0 {
				add(fail, i, int(ended))
				add(fail, i, int(creating))
			}
		}
		if p.phase == missing || p.phase == terminating || i >= m.ordinals() {
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
			if m.places() < maxMembers && w.lease.holder != 0 { // Else it is there to stay.
				add(forgeLease, 0, 0)
			}
		}
		add(editLease, 0, 0) // Which creates it, if need be.
	}
	if w.left.Templates > 0 || m.Over && m.Broken && w.revision == brokenRevision {
		add(changeTemplate, 0, 0)
	}
	for i := range m.Coordinators {
		if m.mayOwn(w, i) {
			add(giveLock, i, 0)
		}
	}
	if w.left.PowerCuts > 0 {
		add(powerCut, 0, 0)
	}
	if w.left.Wedges > 0 && !w.wedged {
		add(wedge, 0, 0)
	}
	if w.wedged && !m.Stay {
		add(unwedge, 0, 0)
	}
	m.movesOfMembers(w, add)
	return to
}

// mayOwn is true for a coordinator that can be given the lock.
func (m *Model) mayOwn(w *World, i int) bool {
	switch c := &w.coordinators[i]; {
	case !m.TrueLock || int(w.owner) == i+1:
		return false
	case !m.Loop:
		return !m.Over
	case c.abstains || !m.hasQuorum(w):
		return false
	}
	return w.owner == 0 || w.left.Starts > 0
}

func (m *Model) movesOf(w *World, i int, add func(what moveKind, who int, how int)) {
	c := &w.coordinators[i]
	if c.begun < evidenceTicks || c.renewed < renewTicks || m.Clocks &&
		(c.seenAge < m.longest() || w.unchanged[i] < m.longest() || c.request.age < m.longest()) {
		if m.Faults.Blocking == 0 {
			add(ticks, i, 0)
		}
	}
	if m.Faults.Blocking > 0 && i == 0 && m.waits(w) { // A call ends in time by everybody's clock.
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
		if m.Loop {
			m.movesOfLoop(w, i, add)
			return
		}
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
	case actLight:
		add(goOn, i, 0)
		if !m.Over {
			add(goOn, i, 1)
		}
	case observe:
		m.movesOfLook(w, i, add)
	default:
		add(goOn, i, 0)
	}
	if w.left.Stops > 0 && r.stage == 0 && !c.stopping {
		add(stop, i, 0)
	}
	if w.left.Unfits > 0 && r.stage == 0 && !c.stopping {
		add(giveUp, i, 0)
	}
	if w.left.Lost == 0 {
		return
	}
	switch r.kind {
	case writeLease, fencePod, actFenced:
		add(desert, i, 0)
		add(desert, i, 1)
		add(repeat, i, 0)
	case actPresumed, actBlocking:
		add(desert, i, 0)
	case listPods:
		add(desert, i, 0)
	case readLease, observe:
		if m.Fine {
			add(desert, i, 0)
		}
	}
}

// Apply returns the world after a move, and which rule it has broken.
func (m *Model) Apply(w World, mv Move) (World, string) {
	set, signs := w.ordinals, w.signs
	pods, revision := w.pods, w.revision
	broken := m.apply(&w, mv)
	if broken == "" && !m.effectsOnly {
		broken = m.uncovered(&w)
	}
	m.elect(&w)
	if m.Loop && (w.pods != pods || w.revision != revision || w.ordinals != set || w.signs != signs) {
		m.wake(&w)
	}
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
	case look:
		return m.lookAround(w, mv.who, record.Right(mv.how))
	case giveUp:
		w.left.Unfits--
		w.coordinators[mv.who].abstains = true
		m.note("%s finds that it is unfit, and gives up", m.name(w, mv.who))
		return m.step(w, mv.who, record.Stop{})
	case returns:
		w.coordinators[mv.who].abstains = false
		m.note("%s lines up again", m.name(w, mv.who))
	case stop:
		w.left.Stops--
		m.note("%s is told to stop", m.name(w, mv.who))
		return m.step(w, mv.who, record.Stop{})
	case crash:
		w.left.Crashes--
		m.crash(w, mv.who, mv.how)
	case ticks:
		m.tick(w, mv.who)
		for i := uint8(1); m.Faults.Blocking > 0 && int(i) < m.Coordinators; i++ {
			m.tick(w, i)
		}
	case kubelet:
		m.kubelet(w, mv.who, mv.how == 1)
	case fail:
		m.fail(w, mv.who, mv.how)
	case notice:
		w.pods[mv.who].health = hungUnready
		m.note("the kubelet notices that the member of %s hangs", names[mv.who])
	case recovers:
		// Its kubelet reports that later, if there is anything to report: see report.
		w.pods[mv.who].health = healthy
		w.recovered(mv.who)
		m.note("the member of %s is well again", m.place(mv.who))
	case report:
		w.left.Reports--
		w.touch(mv.who)
		m.note("the status of %s changes", names[mv.who])
	case deletePod:
		w.left.Deletions--
		m.terminates(w, mv.who)
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
	case forgeLease:
		w.left.Edits--
		l := w.lease
		l.intent = intent{op: remove, ref: ref{pod: maxMembers - 1}, epoch: l.epoch}
		w.changeLease(l)
		m.note("somebody writes an intent to the Lease that names another's pod")
	case changeTemplate:
		if w.left.Templates > 0 {
			w.left.Templates--
		}
		w.revision++
		w.toll = 0
		m.note("the template changes: revision %d", w.revision)
	case giveLock:
		if m.Loop && w.owner != 0 {
			w.left.Starts--
		}
		w.owner, w.tenure = mv.who+1, 0
		if m.Loop {
			w.coordinators[mv.who].loop = newLoop()
		}
		m.note("%s owns the lock", m.name(w, mv.who))
	case powerCut:
		w.left.PowerCuts--
		m.note("the power fails, and comes back: every member restarts")
		for i := range m.ordinals() {
			if p := &w.pods[i]; p.phase == up && p.health != crashed {
				p.health = ended
			}
		}
	case wedge:
		w.left.Wedges--
		w.wedged = true
		m.note("the host's gate does not answer any more")
	case unwedge:
		w.wedged = false
		m.note("the host's gate answers again")
	default:
		return m.applyToMembers(w, mv)
	}
	return ""
}

// fail lets a member fail, or seem to.
func (m *Model) fail(w *World, i, health uint8) {
	p := &w.pods[i]
	before := p.health
	p.health = health
	switch health {
	case crashed, hung:
		w.left.Failures--
		m.note("the member of %s fails (its kubelet has noticed: %v)", m.place(i), health == crashed)
		if health == hung && m.Faults.OldReads > 0 && w.leader == i+1 {
			w.deposed = w.leader
		}
	case ended, creating:
		if before == ended {
			w.left.Reports--
			w.touch(i)
			m.note("the container of %s is being created anew", m.place(i))
			return
		}
		w.left.Restarts--
		m.note("the node of %s restarts (container ended: %v)", m.place(i), health == ended)
	default:
		w.left.Deafness--
		m.note("the member of %s stops answering, and still votes (ready: %v)", m.place(i), health == deaf)
	}
}

// recovered: a member that is well, or gone, answers no read from before its pause.
func (w *World) recovered(i uint8) {
	if w.deposed == i+1 {
		w.deposed = 0
	}
}

// terminates is what a deletion does to a pod. Where that takes its time, its process goes on.
func (m *Model) terminates(w *World, i uint8) {
	p := &w.pods[i]
	p.phase = terminating
	if !m.SlowStop {
		p.health = healthy
	}
	w.recovered(i)
	w.touch(i)
	m.withdrawn(w, i)
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
		if r.kind == observe && r.stage > 0 || r.kind == actFenced {
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

// crash: what the process knew is gone, but what it sent is not. With a new pod it has a new
// identity.
func (m *Model) crash(w *World, i, replaced uint8) {
	c := &w.coordinators[i]
	m.note("%s crashes", m.name(w, i))
	if r := c.request; r.kind == writeLease || r.kind == fencePod || r.kind == actFenced || m.canLand(w, &r) {
		w.orphan(r)
	}
	boots := c.boots
	if replaced > 0 {
		boots = 1
	}
	*c = coordinator{boots: boots}
	c.state = m.stateOf(record.State{})
	if m.Loop && w.owner == i+1 {
		w.owner, w.tenure = 0, 0
	}
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
	if m.Faults.Blocking > 0 {
		older(&c.doubted, settledTicks+callTicks)
	}
	m.older(&c.request)
	for k := range w.orphans {
		if w.orphans[k].kind != nothing && w.orphans[k].by == i {
			m.older(&w.orphans[k])
		}
	}
	if m.Clocks {
		older(&c.seenAge, m.longest())
		older(&w.unchanged[i], m.longest())
	}
}

func (m *Model) older(r *request) {
	most := uint8(0)
	switch {
	case r.kind == observe || r.kind == actFenced:
		most = evidenceTicks
	case r.kind == actBlocking:
		most = callTicks + recoveryTicks
	case r.kind == readLease && m.Clocks:
		most = m.longest()
	}
	if r.age < most {
		r.age++
	}
}

// kubelet takes a pod one step further; between two pods of a name, the StatefulSet
// controller does. One that fails comes up, and its container does not.
func (m *Model) kubelet(w *World, i uint8, fails bool) {
	p := &w.pods[i]
	switch p.phase {
	case terminating:
		*p = pod{ours: p.ours, risky: p.risky}
		w.forget(i)
		m.note("%s is gone", m.place(i))
		if !m.Fine && m.recreates(w, int(i)) {
			m.kubelet(w, i, false)
		}
	case missing:
		*p = pod{phase: starting, rv: 1, revision: w.revision, ours: p.ours, risky: p.risky}
		m.note("%s is recreated, revision %d", m.place(i), p.revision)
	case starting:
		p.phase = up
		if fails {
			p.health = crashed
			m.note("%s crashes: its revision is broken", m.place(i))
			return
		}
		p.ours, p.risky = false, false
		m.enlist(w, i)
		m.note("%s is up", m.place(i))
	}
}

// brokenRevision is the one that does not come up, where there is one.
const brokenRevision = 2

func (m *Model) broken(p *pod) bool { return m.Broken && p.revision == brokenRevision }

// comesUp is true when a pod that starts gets there.
func (m *Model) comesUp(w *World, i int) bool {
	return !m.broken(&w.pods[i]) && (w.list.has(i) || m.hasQuorum(w)) && w.cordoned&(1<<i) == 0
}

// recreates is true when the controller makes the pod that is missing. An ordered one makes it
// after all that come before it.
func (m *Model) recreates(w *World, i int) bool {
	switch {
	case i >= m.ordinals():
		return true // Another's.
	case !w.has(i):
		return false
	}
	for k := int(w.start); m.Ordered && k < i; k++ {
		if w.pods[k].phase != up || m.look(w, k) != looksReady {
			return false
		}
	}
	return true
}
