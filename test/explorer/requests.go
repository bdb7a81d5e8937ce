package explorer

import (
	"fmt"

	"github.com/quorate/quorate/internal/record"
)

// trust is what a coordinator believes of a Lease that others may write as well: an intent that
// names none of our pods stands for one about all of them.
func (m *Model) trust(l lease, ours ordinals) lease {
	if l.intent.fenced() && !ours.has(int(l.intent.ref.pod)) && !m.Weak.Trusting {
		l.intent = intent{op: fenceAll, epoch: l.intent.epoch}
	}
	return l
}

// stages of an observation, each a moment of its own. With a cached view the first is when the watches told what the
// pods are like, which may be any time ago, and confirming is the last.
const (
	lookAtLease uint8 = iota
	lookAtSet
	lookAtPods
	lookAtEtcd
	confirming
)

// decides is true when an observation's next moment is its last.
func (m *Model) decides(w *World, r *request) bool {
	switch {
	case r.stage == lookAtEtcd:
		return true
	case m.Fine, m.CachedView:
		return false
	}
	return r.stage == lookAtPods || r.stage == lookAtSet && w.left.Templates == 0
}

// goOn lets a coordinator's request land and hands it the answer. With twice, the client
// has repeated the request by itself, and the answer is that to the second one.
func (m *Model) goOn(w *World, i, how uint8, twice bool) string {
	c := &w.coordinators[i]
	r := &c.request
	switch r.kind {
	case rest:
		c.awake = false
		return m.step(w, i, record.Woken{})
	case readLease:
		m.note("%s reads the Lease: %s", m.name(w, i), w.lease)
		read := m.trust(w.lease, w.ordinals)
		return m.step(w, i, record.LeaseRead{Record: read.to(), Begun: now - record.Instant(r.age)*tick})
	case checkRight:
		held := how == 0
		if m.TrueLock {
			held = w.owner == i+1 && m.hasQuorum(w)
		}
		m.note("%s is told that the lock is its own: %v", m.name(w, i), held)
		return m.step(w, i, record.RightChecked{Held: held})
	case writeLease:
		outcome, broken := m.write(w, i, r.lease, false)
		m.note("%s writes the Lease (%s): %s%s", m.name(w, i), r.lease, outcomes[outcome], again(twice))
		if broken != "" {
			return broken
		}
		if twice {
			outcome = record.Refused // By its own first attempt, if by nothing else.
		}
		return m.step(w, i, record.LeaseWritten{Outcome: outcome, ResourceVersion: version(w.lease.rv)})
	case listPods:
		m.note("%s lists the pods", m.name(w, i))
		return m.step(w, i, record.PodsListed{Pods: m.fenceable(w)})
	case fencePod:
		if int(r.ref.pod) >= m.ordinals() {
			return fmt.Sprintf("%s changes %s, which is none of ours", m.name(w, i), names[r.ref.pod])
		}
		answer := m.fence(w, r)
		m.note("%s changes %s: %s%s", m.name(w, i), r.ref, outcomes[answer.Outcome], again(twice))
		return m.step(w, i, answer)
	case observe:
		return m.observe(w, i, how)
	case actFenced:
		outcome, done, broken := m.remove(w, r)
		m.note("%s's removal of %s: %s%s%s", m.name(w, i), r.ref, outcomes[outcome], begun(done), again(twice))
		if broken != "" {
			return broken
		}
		if !done && !twice {
			return ""
		}
		if !done {
			w.orphan(*r)
		}
		if twice {
			outcome = record.Refused
		}
		if outcome == record.Done && m.Faults.Signs > 0 {
			c.removed |= 1 << r.ref.pod
		}
		return m.step(w, i, record.Acted{Outcome: outcome})
	case actPresumed, actBlocking:
		m.note("%s: %s", m.name(w, i), r)
		if broken := m.actUnfenced(w, r); broken != "" {
			return broken
		}
		return m.step(w, i, record.Acted{})
	case actLight:
		outcome := record.Failed
		if h := r.ref.pod; how == 0 && int(h) < m.places() && m.votes(w, int(h)) && m.hasQuorum(w) {
			outcome, w.leader, c.failed = record.Done, h+1, 0
			m.note("%s moves the leadership to %s", m.name(w, i), m.place(h))
		} else {
			c.failed = min(c.failed+1, 2)
			m.note("%s cannot move the leadership", m.name(w, i))
		}
		return m.step(w, i, record.Acted{Outcome: outcome})
	}
	panic(fmt.Sprintf("no such request: %d", r.kind))
}

func again(twice bool) string {
	if twice {
		return ", and its client repeats the request"
	}
	return ""
}

func begun(done bool) string {
	if !done {
		return " (the eviction has changed the pod and will delete it)"
	}
	return ""
}

// desert lets a coordinator give up on the answer. Or the last of several attempts has failed for good, and an earlier
// one may still land.
func (m *Model) desert(w *World, i, how uint8) string {
	c := &w.coordinators[i]
	r := c.request
	outcome := record.Unclear
	if how == 1 {
		outcome = record.Failed
	}
	m.note("%s gives up on its request (%s): %s", m.name(w, i), r, outcomes[outcome])
	var e record.Event
	switch r.kind {
	case readLease:
		return m.step(w, i, record.LeaseRead{Outcome: record.Failed})
	case listPods:
		return m.step(w, i, record.PodsListed{Outcome: record.Failed})
	case observe:
		return m.step(w, i, record.Observed{Outcome: record.Failed})
	case writeLease:
		e = record.LeaseWritten{Outcome: outcome}
	case fencePod:
		e = record.PodFenced{Outcome: outcome}
	case actFenced, actPresumed, actBlocking:
		e = record.Acted{Outcome: outcome}
	default:
		panic(fmt.Sprintf("nobody waits for an answer to %s", r))
	}
	w.orphan(r)
	return m.step(w, i, e)
}

// landLate lets a request land that nobody waits for.
func (m *Model) landLate(w *World, k uint8) string {
	r := w.orphans[k]
	w.orphans[k] = request{}
	who := identityNames[1+r.by]
	switch r.kind {
	case writeLease:
		outcome, broken := m.write(w, r.by, r.lease, true)
		if m.Loop && !m.Weak.NoLastLook {
			m.wake(w)
		}
		m.note("a late write of %s lands (%s): %s", who, r.lease, outcomes[outcome])
		return broken
	case fencePod:
		m.note("a late change of %s by %s lands: %s", r.ref, who, outcomes[m.fence(w, &r).Outcome])
	case actPresumed, actBlocking:
		m.note("late, by %s: %s", who, r)
		return m.actUnfenced(w, &r)
	case actFenced:
		before := m.counts.Removals
		outcome, done, broken := m.remove(w, &r)
		m.counts.Late += m.counts.Removals - before
		m.note("a late removal of %s by %s: %s%s", r.ref, who, outcomes[outcome], begun(done))
		if !done {
			w.orphans[k] = r
		}
		return broken
	}
	return ""
}

var outcomes = map[record.Outcome]string{record.Done: "done", record.Refused: "refused", record.Failed: "failed",
	record.Unclear: "unclear"}

// step lets the protocol take its next step, and sends what it asks for.
func (m *Model) step(w *World, i uint8, e record.Event) string {
	c := &w.coordinators[i]
	s, effect := m.Step(m.config(i, c), c.to(), e, now)
	if m.verify {
		m.mustNotMatter(i, c, e, s, effect)
	}
	c.state = m.stateOf(s)
	if end, ok := effect.(record.End); ok {
		m.note("    %s ends: %s", m.name(w, i), end.Detail)
		*c = coordinator{state: c.state, boots: c.boots, cache: c.cache, loop: c.loop, removed: c.removed}
		if m.Loop {
			m.afterEnd(w, i, end)
		}
		return ""
	}
	c.request = m.requestOf(i, effect)
	switch c.request.kind {
	case actFenced, actPresumed, actBlocking:
		if c.request.kind == actFenced {
			c.request.knowledge, c.request.age = c.seen, c.age
		}
		if sent := (intent{op: c.request.op, ref: c.request.ref}); sent != c.decided {
			return fmt.Sprintf("%s sends this: %s; what it has decided is: %s", m.name(w, i), sent, c.decided)
		}
		if c.age >= evidenceTicks {
			return fmt.Sprintf("%s sends this on evidence that is too old: %s", m.name(w, i), c.decided)
		}
	case observe:
		if m.Weak.Early && c.cache.kind == observe {
			c.request, c.cache = c.cache, request{}
		}
	case readLease:
		if m.Weak.Early {
			m.peek(w, &c.cache)
		}
	}
	return ""
}

// write returns how the API server answers: it swaps or it refuses.
func (m *Model) write(w *World, by uint8, l lease, late bool) (record.Outcome, string) {
	if l.schema == 0 {
		return record.Done, fmt.Sprintf("%s writes what is no record", identityNames[l.holder])
	}
	claim := l.epoch == w.lease.epoch+1
	if w.lease.rv != l.rv && (!m.Weak.NoSwap || !claim) {
		return record.Refused, ""
	}
	if broken := m.misuse(w, by, l, late); broken != "" && !m.effectsOnly {
		return record.Done, broken
	}
	if claim {
		m.counts.Claims++
		if w.tenure = 0; m.TrueLock && !m.Clocks && w.owner == by+1 {
			w.tenure = by + 1
		}
	}
	w.changeLease(l)
	return record.Done, ""
}

// misuse returns the rule of the record that is broken when it becomes this.
func (m *Model) misuse(w *World, by uint8, l lease, late bool) string {
	have, who := w.lease, identityNames[l.holder]
	claim := l.epoch == have.epoch+1
	if writer := identity(by, w.coordinators[by].boots); !claim && !late && have.holder != writer {
		return fmt.Sprintf("%s writes to the record of %q", identityNames[writer], identityNames[have.holder])
	}
	if !claim && (have.holder == 0 || l.epoch != have.epoch || l.holder != have.holder && l.holder != 0) {
		return fmt.Sprintf("%q writes to the record of %q", who, identityNames[have.holder])
	}
	taken := have.intent.stands() || have.intent.fenced() && l.intent.fenced()
	if taken && l.intent.op != none && (have.intent.op != l.intent.op || have.intent.ref != l.intent.ref) {
		return fmt.Sprintf("this stands on record, unresolved: %s; it is overwritten by: %s", have.intent, l.intent)
	}
	if !claim {
		return ""
	}
	if m.TrueLock && !m.Clocks && w.tenure != 0 && w.tenure != by+1 {
		return fmt.Sprintf("%s claims by a right that was gone before the record was claimed by the lock's owner", who)
	}
	if c := &w.coordinators[by]; !late && m.Clocks && record.Right(c.right) == record.ByClock &&
		have.holder != 0 && have.holder != l.holder && w.unchanged[by] < patienceTicks {
		return fmt.Sprintf("%s claims by the clock a record that was renewed in time", who)
	}
	return ""
}

func (m *Model) fenceable(w *World) []record.Pod {
	var pods []record.Pod
	for i := range m.ordinals() {
		if p := &w.pods[i]; p.phase == starting || p.phase == up {
			pods = append(pods, ref{pod: uint8(i), current: true, rv: p.rv}.toPod())
		}
	}
	return pods
}

func (m *Model) fence(w *World, r *request) record.PodFenced {
	p := &w.pods[r.ref.pod]
	if !r.ref.current || p.phase == missing {
		return record.PodFenced{Outcome: record.Refused}
	}
	if p.fenced != r.value { // A write that changes nothing leaves the resourceVersion as it is.
		p.fenced = r.value
		w.touch(r.ref.pod)
		m.counts.Fences++
	}
	return record.PodFenced{ResourceVersion: version(p.rv)}
}

// observe takes an observation one moment further, and in the last decides.
func (m *Model) observe(w *World, i, how uint8) string {
	c := &w.coordinators[i]
	r := &c.request
	if m.CachedView && r.stage != lookAtEtcd {
		return m.cachedView(w, i, how == 1)
	}
	switch r.stage {
	case lookAtLease:
		r.lease = w.lease
		m.note("%s looks at the Lease: %s", m.name(w, i), w.lease)
	case lookAtSet:
		r.revision, r.ordinals = w.revision, w.ordinals
		m.note("%s looks at the StatefulSet: revision %d", m.name(w, i), w.revision)
		if w.left.Templates == 0 && w.left.Scales == 0 { // It cannot change before the pods are looked at.
			r.stage++
			return m.observe(w, i, how)
		}
	case lookAtPods:
		m.lookAtPods(w, r)
		m.note("%s looks at the pods", m.name(w, i))
		if !m.Fine {
			r.stage++
			return m.observe(w, i, how)
		}
	case lookAtEtcd:
		if m.CachedView && !m.Fine {
			m.beginLook(w, i)
		}
		m.askEtcd(w, r)
		seen := *r // Whatever it decides on.
		m.distort(w, i, how/ages)
		if how/ages == cutOff { // Nobody can see what does not reach them.
			seen.etcd = r.etcd
		}
		if m.Weak.Cached {
			m.useCache(c)
		}
		return m.conclude(w, i, &seen, how%ages)
	}
	r.stage++
	return ""
}

// cachedView takes the moments of an observation that goes by what the watches tell. First they tell of the pods, or
// are late, and what they have told before still stands. The look begins whenever it likes, with the Lease, of which
// another watch tells. In the end, what leads to a removal is compared with what is read live.
func (m *Model) cachedView(w *World, i uint8, late bool) string {
	c := &w.coordinators[i]
	r := &c.request
	live := m.live(w, i)
	switch r.stage {
	case lookAtLease:
		if !late {
			c.cache = live
		}
		*r = c.cache
		m.note("%s goes by what it is told of the pods and revision %d (late: %v)", m.name(w, i), r.revision, late)
		if r.stage = lookAtEtcd; m.Fine {
			r.stage = lookAtSet
		}
		return ""
	case lookAtSet:
		m.beginLook(w, i)
		r.stage = lookAtEtcd
		return ""
	}
	return m.confirm(w, i, m.same(w, i))
}

// live is what is read live.
func (m *Model) live(w *World, i uint8) request {
	live := request{kind: observe, by: i, stage: lookAtSet, revision: w.revision, ordinals: w.ordinals}
	m.lookAtPods(w, &live)
	return live
}

// same reads live, and says whether that is as it was told.
func (m *Model) same(w *World, i uint8) bool {
	live, r := m.live(w, i), &w.coordinators[i].request
	same := live.revision == r.revision && live.ordinals == r.ordinals && live.views == r.views && live.signs == r.signs
	m.note("%s reads live, and it is as it was told: %v", m.name(w, i), same)
	return same
}

// confirm goes on with what was decided on a cached view, if that is as it was read live.
func (m *Model) confirm(w *World, i uint8, same bool) string {
	c := &w.coordinators[i]
	r := &c.request
	if !same && !m.Weak.Unconfirmed {
		c.cache, c.request, c.decided = m.live(w, i), request{kind: observe, by: i}, intent{}
		return ""
	}
	seen := m.trust(r.lease, r.ordinals)
	return m.step(w, i, record.Observed{Begun: now - record.Instant(r.age)*tick, Record: seen.to(),
		Next: record.NextAct, Intent: c.decided.to()})
}

// beginLook is when a look begins that goes by a cached view.
func (m *Model) beginLook(w *World, i uint8) {
	r := &w.coordinators[i].request
	r.lease, r.age = w.lease, 0
	m.note("%s looks, with the Lease as it is told: %s", m.name(w, i), w.lease)
	if m.Ahead {
		r.confirmed = m.same(w, i)
	}
}

func (m *Model) lookAtPods(w *World, r *request) {
	r.knowledge, r.lost, r.signs = knowledge{}, !m.hasQuorum(w), m.shown(w)
	for k := range m.ordinals() {
		p := &w.pods[k]
		r.views[k] = view{look: m.look(w, k), current: p.phase != missing, rv: p.rv, revision: p.revision}
	}
}

func (m *Model) askEtcd(w *World, r *request) {
	r.etcd = etcdView{list: w.list}
	for k := range m.places() {
		if m.answers(w, k) {
			r.etcd.answering |= 1 << k
		}
		if m.tells(w, k) {
			r.etcd.telling |= 1 << k
		}
	}
	if r.etcd.answering != 0 {
		r.etcd.leader, r.etcd.told = w.leader, byQuorum
		return
	}
	// Without a quorum the members that run still tell their list.
	agreeing := uint8(0)
	for k := range m.places() {
		if m.tells(w, k) && w.pods[k].phase == up {
			r.etcd.told = 1
			if w.list.voter(k) {
				agreeing++
			}
		}
	}
	r.etcd.told += agreeing
}

// tells is true for a member that answers for itself, whether there is a quorum or not.
func (m *Model) tells(w *World, k int) bool {
	return w.list.has(k) && m.runs(w, k) && w.pods[k].health == healthy
}

// distortions of what etcd answers. The last says which member it is whose address leads to
// another, and the members after it follow.
const (
	undistorted uint8 = iota
	cutOff
	oldList
	oldRead
	wrongID
)

// ages of what is seen, for as long as it was: an observation's outcomes are counted with them.
const ages = 3

// movesOfLook are the outcomes of an observation's next moment: for how long it has seen what it
// sees, and how what it sees of etcd is distorted.
func (m *Model) movesOfLook(w *World, i int, add func(what moveKind, who int, how int)) {
	c := &w.coordinators[i]
	if m.Weak.Wedges && w.wedged {
		return
	}
	if !m.decides(w, &c.request) {
		add(goOn, i, 0)
		if m.CachedView && c.request.stage == lookAtLease && c.cache.kind == observe {
			add(goOn, i, 1)
		}
		return
	}
	each := func(distortion uint8) {
		for age := range uint8(ages) {
			switch {
			case age == middling && m.Faults.Restarts == 0 && m.Faults.PowerCuts == 0: // It is for those alone.
			case age != beyond && m.Over: // Nothing ends because something has just begun.
			default:
				add(goOn, i, int(distortion*ages+age))
			}
		}
	}
	each(undistorted)
	if w.left.CutOffs > 0 {
		each(cutOff)
	}
	if w.left.OldLists > 0 && w.former != w.list && m.hasQuorum(w) {
		each(oldList)
	}
	if w.left.OldReads > 0 && w.deposed > 0 && w.leader > 0 {
		each(oldRead)
	}
	if w.left.WrongIDs > 0 {
		var seen request
		m.askEtcd(w, &seen)
		for k := range m.ordinals() {
			if w.list.has(k) && seen.etcd.answering&w.list.voters&^(1<<k) != 0 { // Another voter has to answer there.
				each(wrongID + uint8(k)) //nolint:gosec // A handful.
			}
		}
	}
}

// distort is what a coordinator's look at etcd may become.
func (m *Model) distort(w *World, i, how uint8) {
	etcd := &w.coordinators[i].request.etcd
	switch how {
	case undistorted:
	case cutOff:
		w.left.CutOffs--
		m.note("%s reaches no member but its own", m.name(w, i))
		own := uint8(0)
		if m.Own {
			own = 1 << i
		}
		etcd.telling &= own
		if m.Zones {
			m.note("%s has yesterday's bad news of all others", m.name(w, i))
			etcd.answering, etcd.told = 0, 1+1
			m.yesterday(&w.coordinators[i].request, i)
		} else if etcd.answering &= own; etcd.answering == 0 {
			*etcd = etcdView{}
		}
		etcd.cut = true
	case oldList:
		w.left.OldLists--
		m.note("%s sees the list of a member that lags", m.name(w, i))
		// A member that lags is not in the quorum, because the quorum has agreed on the change.
		etcd.list, etcd.told = w.former, 1+1
		etcd.answering &= w.former.voters | w.former.learners
		etcd.telling &= w.former.voters | w.former.learners
	case oldRead:
		w.left.OldReads--
		m.note("%s answers %s a read from before its pause", m.place(w.deposed-1), m.name(w, i))
		etcd.old |= 1 << (w.deposed - 1)
		etcd.answering |= etcd.old
		etcd.telling |= etcd.old
	default:
		w.left.WrongIDs--
		m.note("another member answers %s under the address of %s", m.name(w, i), m.place(how-wrongID))
		etcd.wrong |= 1 << (how - wrongID)
		etcd.answering &^= etcd.wrong
		etcd.telling &^= etcd.wrong
	}
}

// yesterday makes what a coordinator has seen of the other pods the bad news from before a cut.
func (m *Model) yesterday(r *request, own uint8) {
	for k := range r.views {
		if v := &r.views[k]; k != int(own) && (v.look == looksReady || v.look == looksUnready) {
			v.look = looksCrashed
		}
	}
}

// useCache is a mutant's: it decides on what it saw the last time.
func (m *Model) useCache(c *coordinator) {
	fresh := c.request
	if c.cache.kind == observe {
		c.request.views, c.request.etcd, c.request.ignorant = c.cache.views, c.cache.etcd, c.cache.ignorant
	}
	c.cache = fresh
}

// peek is what a mutant sees before its time.
func (m *Model) peek(w *World, r *request) {
	*r = request{kind: observe, stage: lookAtEtcd, lease: w.lease, revision: w.revision, ordinals: w.ordinals}
	m.lookAtPods(w, r)
}

// conclude decides on what was seen, which is what excuses the decision.
func (m *Model) conclude(w *World, i uint8, seen *request, age uint8) string {
	c := &w.coordinators[i]
	r := &c.request
	q := question{etcdView: r.etcd, ordinals: r.ordinals, transfers: c.failed, age: age, wedged: w.wedged}
	if m.Own {
		q.self = i + 1
	}
	for k := range m.ordinals() {
		v := &r.views[k]
		q.looks[k] = v.look
		if v.look != looksMissing && v.revision != r.revision {
			q.looks[k] |= outdatedBit
		}
	}
	c.removed &^= r.back()
	q.signs, q.removed, q.noLock = r.signs, c.removed, record.Right(c.right) == record.ByClock
	m.asks(w, r, &q)
	a := m.decide(q)
	if m.Budget && a.op == evict && w.allowed == 0 { // It is asked before anything is put on record.
		q.refused = true
		a = m.decide(q)
	}
	resolution := record.Open
	if m.Faults.Presumed > 0 || m.Faults.Blocking > 0 {
		a, resolution = m.standsOn(w, r, q, a)
	}
	seenLease := m.trust(r.lease, r.ordinals)
	e := record.Observed{Begun: now - record.Instant(r.age)*tick, Record: seenLease.to(), Next: a.next,
		Resolution: resolution}
	if m.Weak.Early {
		e.Record = w.lease.to()
	}
	c.decided = intent{}
	c.seen, c.age = r.knowledge, r.age
	if a.next == record.NextAct {
		c.decided = intent{op: a.op, ref: ref{pod: a.target}}
	}
	if c.decided.op == disturb {
		c.decided.ref.current = r.views[a.target].current
	}
	if c.decided.fenced() {
		v := &r.views[a.target]
		c.decided.ref = ref{pod: a.target, current: v.current, rv: v.rv}
		c.seen.served = seen.etcd.answering&(1<<a.target) != 0 || seen.views[a.target].look == looksReady
		c.seen.excuse = m.excuseBeside(w, seen, int(a.target), age)
		c.seen.spared = m.Broken && age != beyond && m.spared(w, int(a.target))
	}
	if a.next == record.NextAct {
		e.Intent = c.decided.to()
	}
	m.note("%s has asked etcd and decides: %s", m.name(w, i), describe(a, c.decided))
	if c.decided.op == expel && seen.etcd.answering&(1<<a.target) != 0 {
		return fmt.Sprintf("%s decides to remove a member that serves: %s", m.name(w, i), m.place(a.target))
	}
	if broken := m.strands(w, i, &q, a); broken != "" && !m.effectsOnly {
		return broken
	}
	if a.astray {
		return fmt.Sprintf("%s asks the protocol for something else than it has decided", m.name(w, i))
	}
	if m.CachedView && c.decided.fenced() { // Nothing is removed otherwise.
		if m.Ahead {
			return m.confirm(w, i, r.confirmed)
		}
		r.stage = confirming
		return ""
	}
	return m.step(w, i, e)
}

// remove is how the API server carries a removal out. An eviction first changes the pod
// and then deletes what it has changed: not done.
func (m *Model) remove(w *World, r *request) (outcome record.Outcome, done bool, broken string) {
	if r.op == evict && r.stage == 0 && m.Budget && !m.charge(w, r) {
		m.counts.Refused++
		return record.Failed, true, ""
	}
	if !m.reaches(w, r) {
		m.counts.Refused++
		return record.Refused, true, ""
	}
	if r.op == evict && r.stage == 0 {
		w.touch(r.ref.pod)
		if m.Faults.Signs > 0 {
			w.marked |= 1 << r.ref.pod // By the condition that every eviction sets before it deletes.
		}
		r.stage, r.value.rv = 1, w.pods[r.ref.pod].rv
		return record.Done, false, ""
	}
	return record.Done, true, m.takesEffect(w, r)
}

// reaches is true while a removal's preconditions hold.
func (m *Model) reaches(w *World, r *request) bool {
	p := &w.pods[r.ref.pod]
	rv := r.ref.rv
	if r.stage == 1 {
		rv = r.value.rv
	}
	return (p.phase == starting || p.phase == up) && (r.ref.current || m.Weak.NoUID) && (rv == p.rv || m.Weak.NoVersion)
}

// charge takes an eviction off the budget if the budget still allows one. It is charged even if
// a precondition fails after it. A pod that is not Ready is not charged.
func (m *Model) charge(w *World, r *request) bool {
	p := &w.pods[r.ref.pod]
	if p.phase != up || m.look(w, int(r.ref.pod)) != looksReady {
		return true
	}
	if w.allowed == 0 {
		return false
	}
	w.allowed--
	p.charged = true
	return true
}
