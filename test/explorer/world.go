package explorer

import (
	"fmt"
	"math/bits"
	"slices"
	"strings"

	"github.com/quorate/quorate/internal/record"
)

const (
	maxMembers      = 7
	maxCoordinators = 3
	maxOrphans      = 3
)

// A World is everything there is at one moment. It consists of bytes only, so that it is
// copied by assignment, compared with == and hashed as it lies in memory.
type World struct {
	pods         [maxMembers]pod
	lease        lease
	coordinators [maxCoordinators]coordinator
	// orphans are requests that nobody waits for any more and that may still land.
	orphans [maxOrphans]request
	// revision is the newest of the template.
	revision uint8
	// leader of etcd: an ordinal and one, 0 is none.
	leader uint8
	// owner of the lock where that is modelled, and tenure: who claimed the record while
	// it owned the lock that it still owns. Both are numbers and one.
	owner, tenure uint8
	// unchanged is how long the Lease has been as it is, by everybody's clock.
	unchanged [maxCoordinators]uint8
	// ordinals are those of the StatefulSet.
	ordinals
	// list is etcd's membership, and former the one before the last change of it, where a
	// coordinator may still see that.
	list, former list
	// expelled: the member that was left behind is gone from the list. Another one may have its place.
	expelled bool
	// deposed led when it was paused: a place and one.
	deposed uint8
	// toll is how many members a broken revision has cost: see payToll.
	toll uint8
	// allowed is how many evictions the budget allows, as it was last reckoned.
	allowed uint8
	signs
	// wedged: the host's gate does not answer.
	wedged bool
	// left is what may still go wrong.
	left Faults
}

// Faults are the numbers of things that may go wrong.
type Faults struct {
	// Starts are how often a coordinator may come to believe that it is its turn.
	Starts uint8
	// Lost requests or answers: given up on, landing later, twice or never.
	Lost uint8
	// Crashes of coordinators.
	Crashes uint8
	// Stops are orders to stop, as by SIGTERM.
	Stops uint8
	// Failures of members; Deletions of pods by somebody else.
	Failures, Deletions uint8
	// Deafness: members that serve and do not answer us.
	Deafness uint8
	// Edits of the Lease by somebody else: deleted, created, replaced, changed.
	Edits uint8
	// Templates are changes of the pod template.
	Templates uint8
	// Reports are changes of a pod's status that mean nothing.
	Reports uint8
	// Restarts of single members, as by a reboot of a node, and power cuts: the members come
	// back by themselves.
	Restarts, PowerCuts uint8
	// Scales are changes of replicas and of ordinals.start; Departures are voters outside our
	// ordinals that go without asking us; Joins are members that somebody adds to the list and
	// that never start.
	Scales, Departures, Joins uint8
	// Distorted looks at etcd: cut off from all members but the own one; a list from before the
	// last change of the membership; a member that answers under another's address; a read that
	// a member answers from before its pause.
	CutOffs, OldLists, WrongIDs, OldReads uint8
	// Drains evict a pod. Where there are Signs, they take only pods that bear one. Wedges are gates that stop to
	// answer.
	Drains, Signs, Wedges uint8
	// Unfits are coordinators that give up and abstain.
	Unfits uint8
	// Presumed and Blocking operations that are asked for, see kinds.go: at most one.
	Presumed, Blocking uint8
	// Restores of a Lease that names a presumed operation; Forgets are an operator's word that a suspect is
	// none, once that is so.
	Restores, Forgets uint8
}

// ordinals from start on, as many as there are replicas.
type ordinals struct{ start, replicas uint8 }

func (o ordinals) has(i int) bool { return i >= int(o.start) && i < int(o.start+o.replicas) }

// list is a membership: bits of places, and how many voters never started.
type list struct{ voters, learners, ghosts uint8 }

func (l *list) voter(i int) bool { return l.voters&(1<<i) != 0 }

// has is true for a voter and a learner.
func (l *list) has(i int) bool { return (l.voters|l.learners)&(1<<i) != 0 }

// quorum of its voters.
func (l *list) quorum() int { return (bits.OnesCount8(l.voters)+int(l.ghosts))/2 + 1 }

// phases of a pod.
const (
	missing uint8 = iota
	starting
	up
	terminating
)

// health of a member whose pod is up.
const (
	healthy uint8 = iota
	// crashed: its container cannot be started; there is no process.
	crashed
	// hung: it does not vote any more, and its kubelet has not noticed.
	hung
	// deaf: it votes and does not answer us; its kubelet has it ready.
	deaf
	// deafUnready: it votes and answers neither us nor its kubelet, as with an expired
	// certificate of its client listener.
	deafUnready
	// hungUnready: it hangs, and its kubelet has noticed.
	hungUnready
	// ended: its container has ended, as by a reboot, and is about to be started again.
	ended
	// creating: the same a moment later.
	creating
)

type pod struct {
	phase, health uint8
	// rv is the resourceVersion; that of a pod that follows another begins anew.
	rv       uint8
	revision uint8
	// fenced is what stands in its annotation, see fenceValue.
	fenced fenceValue
	// ours: it served when we removed it, and has not come up again since.
	ours bool
	// risky: of ours, and those that stayed and were to be relied on were no quorum.
	risky bool
	// charged: an eviction has charged the budget for it.
	charged bool
}

// ref names a pod as a request does. current is false for one that is gone, whatever its
// UID was.
type ref struct {
	pod     uint8
	current bool
	rv      uint8
}

type fenceValue struct{ epoch, rv uint8 }

type intent struct {
	op uint8
	// ref is the pod of a removal. Of any other operation only the place is set.
	ref   ref
	epoch uint8
}

type lease struct {
	// rv is 0 when there is no Lease.
	rv     uint8
	schema uint8
	holder uint8 // an identity, 0 is nobody
	epoch  uint8
	// timed: it says how long it may stand unrenewed.
	timed bool
	// rolling: a rollout is under way.
	rolling bool
	intent  intent
	// suspect is a place and one.
	suspect uint8
}

// blank: none of us has written to it.
func (l *lease) blank() bool { return l.rv == 0 || l.schema == 0 }

// kinds of requests, one for each effect of the protocol, and of the last one for each kind of
// operation.
const (
	nothing uint8 = iota
	readLease
	checkRight
	writeLease
	listPods
	fencePod
	observe
	actFenced
	actLight
	actPresumed
	actBlocking
	rest
)

// request is what a coordinator waits for, or an orphan.
type request struct {
	kind, stage uint8
	by          uint8
	// age is by the sender's clock: since it was sent, or for a removal since its observation
	// began.
	age uint8
	// lease is what is to be written, or what has been read so far.
	lease lease
	// op and ref are of the operation or the fence.
	op    uint8
	ref   ref
	value fenceValue
	// revision, ordinals and views are what an observation has seen so far, and what etcd has
	// answered in the end.
	revision uint8
	ordinals
	views [maxMembers]view
	signs
	etcd etcdView
	// lost: there was no quorum when the pods were looked at.
	lost bool
	// confirmed: what was read live ahead is as it was told.
	confirmed bool
	knowledge
}

// knowledge is what an observation does not know, and what is known of the removal that was
// decided on it.
type knowledge struct {
	// ignorant of a removal of ours.
	ignorant bool
	// served: the target answered etcd's reads.
	served bool
	// excuse is what can excuse the removal if it takes the voters below quorum, see excuseOf.
	excuse uint8
	// spared: the target served or was about to come back by itself, and had not been down for
	// as long as a decision waits for that.
	spared bool
}

// excuses of a removal that takes the voters below quorum.
const (
	noExcuse uint8 = iota
	// enough others answered for a quorum without the target: one of them has failed since.
	enough
	// cameBack: the target had no process or did not vote, or there was no quorum to lose, and
	// nothing has answered that says otherwise.
	cameBack
	// guessed which of the silent members vote.
	guessed
	// outwaited: enough others answered, and some of them are on nodes that have been cordoned for so long that
	// nobody waits for their drain any more.
	outwaited
)

// view is what was seen of a pod.
type view struct {
	look     uint8
	current  bool
	rv       uint8
	revision uint8
}

// etcdView is what etcd has answered: a bit for each member, and the leader and one.
type etcdView struct {
	answering, leader uint8
	// telling are those that answer for themselves, as they do without a quorum.
	telling uint8
	// list is the membership as it was told, by how many voters if not by a quorum (and one),
	// or by nobody (0). all says that a quorum told it.
	list
	told uint8
	// wrong: another answers under the address of these; old: these answer a read from before
	// their pause.
	wrong, old uint8
	// cut: nothing comes from any pod but the own one.
	cut bool
}

const byQuorum = 0xff

// looks of a pod, to its kubelet.
const (
	looksMissing uint8 = iota
	looksStarting
	looksReady
	looksUnready
	looksCrashed
	looksTerminating
	looksEnded
	looksCreating
)

type coordinator struct {
	state
	request request
	// boots of its pod: the identity is another after each.
	boots uint8
	// loop is where its loop is, see loop.go.
	loop
	// later: it abstained when its claim began, and lets others go first.
	later bool
	// seen is what the last observation did not know, and age since when it began, whatever
	// the protocol thinks.
	seen knowledge
	age  uint8
	// decided is the operation that the last decision asks for, without an epoch: what the
	// decision said itself, whatever was made of it since.
	decided intent
	// failed changes of leadership.
	failed uint8
	// removed are the places whose pods it knows to have removed itself, until they are back.
	removed uint8
	// cache is what the watches have told. Without a cached view it is only used by mutants that look at what they saw
	// earlier.
	cache request
}

// state is the protocol's own, see convert.go.
type state struct {
	phase, right            uint8
	lease                   lease
	epoch                   uint8
	seenRV                  uint8
	seenAge, begun, renewed uint8
	// doubted is the age of that, and callTicks, because it may lie ahead.
	doubted           uint8
	unfenced          [maxMembers]ref
	unfencedN         uint8
	ending            uint8
	stopping, pausing bool
}

// Params are the size of a world.
type Params struct {
	// Members are the replicas; Learners of them, those with the highest ordinals, do not
	// vote; Ghosts vote and have no pod.
	Members, Learners, Ghosts int
	MaxUnavailable            int
	Coordinators              int
	// Leader is the ordinal of the first leader.
	Leader int
	// Evict Ready pods instead of deleting them.
	Evict bool
	// Clocks let coordinators claim by the clock as well.
	Clocks bool
	// TrueLock: etcd's lock has one owner, and does not lie.
	TrueLock bool
	// Fresh: there is no Lease yet. Else there is one that nobody holds.
	Fresh bool
	// Fine takes everything apart that happens at different moments. Else the pods and etcd
	// are looked at in one moment, a pod is recreated when it is gone, and what is only
	// read is always answered.
	Fine bool
	// CachedView: looks go by what watches have told of Kubernetes, which may lag behind as far as it likes. What leads
	// to a removal is confirmed live. Else everything is read live.
	CachedView bool
	// Ahead: what confirms a cached view is read when the look begins. Else it is read when the members have answered.
	Ahead bool
	// Stay: a member that failed does not come back by itself. The update is its cure. Nor does
	// a gate that does not answer, or a coordinator that abstains.
	Stay bool
	// Loop: claims begin only when production's loop begins one, see loop.go.
	Loop bool
	// Own: each coordinator lives in the pod of its number, and knows it.
	Own bool
	// Zones: whoever is cut off is so with the own member, and the kubelets' last words on all others are bad ones.
	Zones bool
	// SlowStop: a pod that terminates serves until it is gone.
	SlowStop bool
	// Ordinals are how many there can ever be, if more than Members.
	Ordinals int
	// Left are voters that an old scale-in has left behind: those of the first ordinals beyond Members. Their
	// removal is what an operator asks for, of the first, and a scale-out brings them back.
	Left int
	// External voters serve, and have pods that are not ours. Trusted: the policy trusts them.
	External int
	Trusted  bool
	// Duty: the shipped duty says when a member is defragmented, whose full database keeps etcd from taking writes.
	// The pods are up to date at first, because a rollout comes before.
	Duty bool
	// Broken: the revision that is rolled out first does not come up.
	Broken bool
	// Ordered: podManagementPolicy is OrderedReady.
	Ordered bool
	// Nameless: no container has the expected name.
	Nameless bool
	// Denied: Status is denied to us.
	Denied bool
	// Budget: there is a PodDisruptionBudget that lets one pod go.
	Budget bool
	// Bound: a pod's volume is within reach of its own node only. While that is cordoned, no pod starts there.
	Bound bool
	// Over: the faults are over. The lock stays with its owner, who may start as often as
	// it has to.
	Over   bool
	Faults Faults
}

func (p Params) String() string {
	text := fmt.Sprintf("%d members, %d coordinators, leader %d", p.Members, p.Coordinators, p.Leader)
	for _, more := range []struct {
		n    int
		what string
	}{{p.Learners, "learners"}, {p.Ghosts, "ghosts"}, {p.External, "external"}, {p.Left, "left behind"},
		{p.MaxUnavailable, "unavailable at most"}} {
		if more.n > 0 {
			text += fmt.Sprintf(", %d %s", more.n, more.what)
		}
	}
	for _, more := range []struct {
		yes  bool
		what string
	}{{p.Evict, "evictions"}, {p.Clocks, "fallback"}, {p.TrueLock, "a true lock"}, {p.Fresh, "no Lease"},
		{p.Fine, "fine"}, {p.CachedView, "a cached view"}, {p.Ahead, "confirmed ahead"}, {p.Stay, "no recovery"},
		{p.Loop, "loop"}, {p.Own, "own pods"}, {p.Zones, "zones"}, {p.SlowStop, "slow stops"}, {p.Trusted, "trusted"},
		{p.Broken, "a broken revision"}, {p.Ordered, "OrderedReady"}, {p.Duty, "NOSPACE"},
		{p.Nameless, "no etcd container"}, {p.Denied, "no status"}, {p.Budget, "a budget"},
		{p.Bound, "bound to nodes"}} {
		if more.yes {
			text += ", " + more.what
		}
	}
	return text + "; " + p.Faults.String()
}

func (f Faults) String() string {
	var text []string
	for _, fault := range []struct {
		n    uint8
		what string
	}{
		{f.Starts, "starts"}, {f.Lost, "lost"}, {f.Crashes, "crashes"}, {f.Stops, "stops"}, {f.Failures, "failures"},
		{f.Deletions, "deletions"},
		{f.Deafness, "deaf"}, {f.Edits, "edits"}, {f.Templates, "templates"}, {f.Reports, "reports"},
		{f.Restarts, "restarts"}, {f.PowerCuts, "power cuts"}, {f.Scales, "scales"}, {f.Departures, "departures"},
		{f.Joins, "joins"},
		{f.CutOffs, "cut off"}, {f.OldLists, "old lists"}, {f.WrongIDs, "wrong IDs"}, {f.OldReads, "old reads"},
		{f.Drains, "drains"}, {f.Signs, "signs"}, {f.Wedges, "wedges"}, {f.Unfits, "unfit"},
		{f.Presumed, "presumed"}, {f.Blocking, "blocking"}, {f.Restores, "restores"}, {f.Forgets, "forgotten"},
	} {
		if fault.n > 0 {
			text = append(text, fmt.Sprintf("%s %d", fault.what, fault.n))
		}
	}
	return strings.Join(text, ", ")
}

// First is the world before anything has happened: every member serves and every pod is
// outdated.
func (m *Model) First() World {
	w := World{revision: 2, leader: uint8(m.Leader) + 1, left: m.Faults,
		ordinals: ordinals{replicas: uint8(m.Members)}} //nolint:gosec // A handful.
	for i := range m.places() {
		if i >= m.Members && i < m.ordinals() {
			if i < m.Members+m.Left {
				w.list.voters |= 1 << i
			}
			continue // It can only be scaled out.
		}
		w.pods[i] = pod{phase: up, rv: 1, revision: 1}
		if m.Duty {
			w.pods[i].revision = w.revision
		}
		if i >= m.Members-m.Learners && i < m.Members {
			w.list.learners |= 1 << i
		} else {
			w.list.voters |= 1 << i
		}
	}
	w.list.ghosts = uint8(m.Ghosts) //nolint:gosec // A handful.
	if m.Faults.OldLists > 0 {
		w.former = w.list
	}
	if !m.Fresh {
		w.lease = lease{rv: 1, schema: record.Schema, epoch: 1, timed: true}
	}
	if m.TrueLock {
		w.owner = 1
	}
	if m.Loop {
		w.coordinators[0].loop = newLoop()
	}
	if m.Budget {
		w.allowed = m.reckoned(&w)
	}
	return w
}

// ordinals are how many the world may ever have, and places are those and the voters outside.
func (m *Model) ordinals() int { return max(m.Members, m.Ordinals) }
func (m *Model) places() int   { return m.ordinals() + m.External }

// runs is true for a member whose process runs and takes part.
func (m *Model) runs(w *World, i int) bool {
	p := &w.pods[i]
	if p.phase != up && (p.phase != terminating || !m.SlowStop) {
		return false
	}
	switch p.health {
	case healthy, deaf, deafUnready:
		return true
	}
	return false
}

// votes is true for a voter whose process runs and votes.
func (m *Model) votes(w *World, i int) bool { return w.list.voter(i) && m.runs(w, i) }

// voting counts the processes that vote, and staying those of them that nobody has asked to end.
func (m *Model) voting(w *World) (voting, staying int) {
	for i := range m.places() {
		if m.votes(w, i) {
			voting++
			if w.pods[i].phase == up {
				staying++
			}
		}
	}
	return voting, staying
}

func (m *Model) hasQuorum(w *World) bool {
	voting, _ := m.voting(w)
	return voting >= w.list.quorum()
}

// elect keeps the leader while it can lead, else the lowest voter follows.
func (m *Model) elect(w *World) {
	if !m.hasQuorum(w) {
		w.leader = 0
		return
	}
	if w.leader > 0 && m.votes(w, int(w.leader)-1) {
		return
	}
	for i := range m.places() {
		if m.votes(w, i) {
			w.leader = uint8(i) + 1 //nolint:gosec // A handful.
			return
		}
	}
}

// answers is true for a member that answers our reads.
func (m *Model) answers(w *World, i int) bool {
	return m.tells(w, i) && m.hasQuorum(w)
}

// look is what a kubelet reports.
func (m *Model) look(w *World, i int) uint8 {
	p := &w.pods[i]
	switch p.phase {
	case starting:
		return looksStarting
	case terminating:
		return looksTerminating
	case up:
		switch p.health {
		case crashed:
			return looksCrashed
		case ended:
			return looksEnded
		case creating:
			return looksCreating
		case deafUnready, hungUnready:
			return looksUnready
		}
		if !m.hasQuorum(w) {
			return looksUnready
		}
		return looksReady
	}
	return looksMissing
}

// updated is true when the rollout has reached its end.
func (m *Model) updated(w *World) bool {
	for i := range m.ordinals() {
		if p := &w.pods[i]; w.has(i) {
			if p.phase != up || p.health != healthy || p.revision != w.revision ||
				!w.list.voter(i) && i < m.Members-m.Learners {
				return false
			}
		} else if p.phase != missing {
			return false
		}
	}
	return true
}

// forget makes every mention of a pod one of a pod that is gone.
func (w *World) forget(i uint8) {
	w.eachRef(func(r *ref) {
		if r.pod == i {
			r.current = false
		}
	})
	w.eachViews(func(views *[maxMembers]view) { views[i].current = false })
}

// eachRef visits everything that names a pod by UID and resourceVersion.
func (w *World) eachRef(visit func(*ref)) {
	ofLease := func(l *lease) {
		if l.intent.namesPod() {
			visit(&l.intent.ref)
		}
	}
	ofRequest := func(r *request) {
		if r.kind == nothing {
			return
		}
		ofLease(&r.lease)
		if r.kind == fencePod || r.kind == actFenced || r.kind == actBlocking {
			visit(&r.ref)
		}
	}
	ofLease(&w.lease)
	for i := range w.coordinators {
		c := &w.coordinators[i]
		ofLease(&c.lease)
		if c.decided.namesPod() {
			visit(&c.decided.ref)
		}
		for k := range c.unfencedN {
			visit(&c.unfenced[k])
		}
		ofRequest(&c.request)
		ofRequest(&c.cache)
	}
	for i := range w.orphans {
		ofRequest(&w.orphans[i])
	}
}

// eachViews visits everything that was seen of the pods.
func (w *World) eachViews(visit func(*[maxMembers]view)) {
	for i := range w.coordinators {
		c := &w.coordinators[i]
		if c.request.kind == observe {
			visit(&c.request.views)
		}
		if c.cache.kind == observe {
			visit(&c.cache.views)
		}
	}
}

// eachLease visits the Lease and everybody's idea of it.
func (w *World) eachLease(visit func(*lease)) {
	visit(&w.lease)
	for i := range w.coordinators {
		c := &w.coordinators[i]
		visit(&c.lease)
		visit(&c.request.lease)
		visit(&c.cache.lease)
	}
	for i := range w.orphans {
		visit(&w.orphans[i].lease)
	}
}

// changeLease stores what the Lease is from now on.
func (w *World) changeLease(l lease) {
	newest := uint8(0)
	w.eachLease(func(l *lease) { newest = max(newest, l.rv) })
	for i := range w.coordinators {
		newest = max(newest, w.coordinators[i].seenRV)
	}
	l.rv = newest + 1
	w.lease, w.unchanged = l, [maxCoordinators]uint8{}
}

// deleteLease also forgets who had claimed the Lease: a coordinator that finds none may create
// one.
func (w *World) deleteLease() { w.lease, w.unchanged, w.tenure = lease{}, [maxCoordinators]uint8{}, 0 }

// touch gives a pod a resourceVersion that nobody has seen.
func (w *World) touch(i uint8) { w.pods[i].rv++ }

// orphan keeps a request that may still land. When there is no room for it, it never
// does: that too can happen.
func (w *World) orphan(r request) {
	r.views, r.etcd, r.revision, r.ordinals, r.signs = [maxMembers]view{}, etcdView{}, 0, ordinals{}, signs{}
	if i := slices.IndexFunc(w.orphans[:], func(o request) bool { return o.kind == nothing }); i >= 0 {
		w.orphans[i] = r
	}
}
