package explorer

import (
	"time"

	"github.com/quorate/quorate/internal/record"
	"github.com/quorate/quorate/pkg/rollout"
)

// A Model is a world's size and the code that runs in it. One goroutine at a time may use
// it; see clone.
type Model struct {
	Params
	// Step and Decide are the production code, or a mutant's.
	Step   func(record.Config, record.State, record.Event, record.Instant) (record.State, record.Effect)
	Decide func(rollout.State, rollout.Policy) rollout.Decision
	// Weak is what an API server or a coordinator does not do as it should: mutants only.
	Weak Weakness
	// verify checks that no part of the protocol's state is lost on the way.
	verify bool
	// symmetric: the coordinators can change names.
	symmetric bool
	// mayGuess: a wrong guess is excused, and counted. Where every world is visited there is none.
	mayGuess bool
	// effectsOnly: how the record is kept and who leads is not looked at, only what is removed. That is for
	// mutants: they shall not break those rules alone, but what those are for.
	effectsOnly bool

	policy rollout.Policy
	memo   map[question]answer
	// Counts of what has happened, and what was excused.
	counts Counts
	tell   func(format string, args ...any)
}

// Weakness is what mutants leave out.
type Weakness struct {
	// NoUID, NoVersion: a removal is sent without that precondition.
	NoUID, NoVersion bool
	// NoSwap: a claim is written whatever the Lease has become.
	NoSwap bool
	// Cached: it decides on what the previous observation has seen.
	Cached bool
	// Unconfirmed: it acts on a cached view that nobody has confirmed.
	Unconfirmed bool
	// Early: it decides on what was seen before the claim.
	Early bool
	// NoFallback: a coordinator that abstains is no fallback coordinator. Queues: nor is one that waits in
	// the queue. Wedges: a gate that does not answer stops the loop.
	NoFallback, Queues, Wedges bool
	// Trusting: whatever pod an intent on the Lease names is believed to be one of ours.
	Trusting bool
	// OneWorld: a suspect counts as if nothing could remove it any more.
	OneWorld bool
	// NoLastLook: what is seen of the record counts although a claim may still land late.
	NoLastLook bool
}

// Counts say how much of it was about what it is about.
type Counts struct {
	// Removals that took effect, and how many of them nobody waited for any more.
	Removals, Late int
	// Refused removals.
	Refused int
	// Fences that changed a pod.
	Fences int
	// Claims that stood.
	Claims int
	// Residues, Returned and Guesses are what was excused, see excuseOf: a member that had
	// failed since, one or a quorum that had come back since, a wrong guess. ExcusedLate of them
	// landed when the evidence was old already. Outwaited are those that a cordon was not waited for any more.
	Residues, Returned, Guesses, Outwaited, ExcusedLate int
	// Transfers of leadership that were asked for because others are about to take the leader.
	MadeWay int
}

func (c *Counts) add(o Counts) {
	c.Removals += o.Removals
	c.Late += o.Late
	c.Refused += o.Refused
	c.Fences += o.Fences
	c.Claims += o.Claims
	c.Residues += o.Residues
	c.Returned += o.Returned
	c.Guesses += o.Guesses
	c.Outwaited += o.Outwaited
	c.MadeWay += o.MadeWay
	c.ExcusedLate += o.ExcusedLate
}

// New returns the model of a world in which the production code runs.
func New(p Params) *Model {
	m := &Model{Params: p, Step: record.Config.Step, Decide: rollout.Decide, memo: map[question]answer{}}
	m.policy = rollout.DefaultPolicy()
	m.policy.MaxUnavailable = rollout.Amount{Number: max(1, p.MaxUnavailable)}
	if !p.Evict {
		m.policy.Removal = rollout.RemoveByDelete
	}
	if p.Trusted {
		for i := range p.External {
			m.policy.TrustedMembers = append(m.policy.TrustedMembers,
				m.place(uint8(m.ordinals()+i))) //nolint:gosec // A handful.
		}
	}
	return m
}

// clone is the same model for another goroutine.
func (m *Model) clone() *Model {
	c := *m
	c.memo, c.counts = map[question]answer{}, Counts{}
	return &c
}

// question is all that a decision depends on.
type question struct {
	looks [maxMembers]uint8 // and whether it is outdated
	ordinals
	etcdView
	transfers uint8
	age       uint8
	self      uint8 // an ordinal and one
	wedged    bool
	refused   bool // the eviction that it decided on
	// asked: the removal of the member that was left behind is asked for. suspect is a place and one, as is stopped.
	// expelled: another member has its place. full is the database of the first place, so that etcd takes no writes.
	asked, expelled, full bool
	suspect, stopped      uint8
	ended                 bool // the process that what is stopped was asked of
	signs
	removed uint8
	noLock  bool
}

// ages of all that is seen: new; older than a container may stay ended; beyond every timeout.
const (
	young uint8 = iota
	beyond
	middling
)

// answer is what was decided.
type answer struct {
	next record.Next
	op   uint8
	// target is the place of the operation, or of the member that is to lead.
	target uint8
	// astray: the protocol is asked for a removal other than the one decided on.
	astray bool
	// makesWay: the duty of that name asks for it.
	makesWay bool
}

const outdatedBit = 0x80

// decide asks the production code, once for each question.
func (m *Model) decide(q question) answer {
	if a, ok := m.memo[q]; ok {
		return a
	}
	s := m.observation(q)
	if q.age != young {
		age := 2 * m.policy.SettleTimeout
		if q.age == middling {
			age = 2 * m.policy.DeadAfter
		}
		s.Ages = map[rollout.Sighting]time.Duration{}
		for _, sighting := range rollout.Assess(s, m.policy).Sightings() {
			s.Ages[sighting] = age
		}
	}
	d := m.Decide(s, m.policy)
	next, i := record.NextOf(d, "")
	a := answer{next: next, makesWay: d.Duty == rollout.DutyMakeWay}
	switch action := d.Action.(type) {
	case rollout.Remove:
		a.op, a.target = remove, uint8(action.Target.Ordinal) //nolint:gosec // A handful.
		if action.Method == rollout.RemoveByEviction {
			a.op = evict
		}
		// See observation for what tells the pods apart there.
		name := names[a.target]
		a.astray = i != record.Intent{
			Operation: operations[a.op].name, Pod: name, UID: name, ResourceVersion: numbers[a.target+1],
		}
	case rollout.RemoveMember:
		a.op, a.target = expel, uint8(action.Member.ID)-1 //nolint:gosec // IDs are ordinals and one.
		a.astray = i.Operation != record.RemoveMember || i.Member.ID != action.Member.ID || i.Member.Cluster != 1
	case rollout.MoveLeader:
		to := action.Transfer
		a.op, a.target = lead, uint8(to.To&^rebornID)-1 //nolint:gosec // IDs are ordinals and one.
		a.astray = i.Operation != record.MoveLeader || i.Member.ID != to.From || i.Member.Heir != to.To
	case rollout.Defragment:
		a.op, a.target = disturb, uint8(action.Target.Ordinal) //nolint:gosec // A handful.
		a.astray = i.Operation != record.Defragment || i.Member.ID != action.Member.ID
	}
	m.memo[q] = a
	return a
}

const (
	oldRevision = "old"
	newRevision = "new"
)

// observation is what a coordinator would have read.
func (m *Model) observation(q question) rollout.State {
	s := rollout.State{
		Set: rollout.Set{
			Name: "etcd", UID: "set", Replicas: int(q.replicas), Start: int(q.start), OnDelete: true,
			OrderedReady: m.Ordered,
			Generation:   1, ObservedGeneration: 1, UpdateRevision: newRevision,
		},
	}
	if q.self > 0 {
		s.Self = names[q.self-1]
	}
	if q.refused {
		s.RefusedEviction = rollout.Refusal{Words: "the budget allows none"}
	}
	if m.Faults.Wedges > 0 {
		s.Gates = []rollout.Gate{{Name: "backup", Pass: !q.wedged, Detail: "it has not answered"}}
	}
	for i := range m.ordinals() {
		if p, ok := m.podOf(i, q.looks[i]); ok {
			q.tell(&p)
			p.Heard = !q.cut || i == int(q.self)-1
			s.Pods = append(s.Pods, p)
			s.Sidecars.Present = append(s.Sidecars.Present, p.UID) // A Ready pod of the model stays Ready.
		}
	}
	s.Removed, s.NoLock = m.removedOf(q.removed), q.noLock
	if q.asked {
		place := uint8(m.Members) //nolint:gosec // A handful.
		s.Request = &rollout.Request{Operation: rollout.RequestRemoveMember, Cluster: 1, Member: uint64(place) + 1,
			Name: m.place(place)}
	}
	s.Sidecars.Known, s.Suspect.ID = true, uint64(q.suspect)
	if q.stopped > 0 {
		s.UnderWay = &rollout.Blocking{Member: rollout.MemberRef{ID: uint64(q.stopped), Cluster: 1},
			Process: rollout.Process{PodUID: names[q.stopped-1]}}
		if q.ended {
			s.UnderWay.Process.PodUID = uidGone
		}
	}
	if s.Etcd.Known = q.told > 0; !s.Etcd.Known {
		return s
	}
	s.Etcd.ClusterID, s.Etcd.Linearizable = 1, q.told == byQuorum
	if !s.Etcd.Linearizable {
		s.Etcd.Agreeing = int(q.told) - 1
	}
	for i := range m.places() {
		if !q.list.has(i) {
			continue
		}
		member := memberOf(i, m.place(uint8(i))) //nolint:gosec // A handful.
		member.Learner = !q.voter(i)
		if q.expelled && i == m.Members {
			member.ID += rebornID
		}
		switch place := uint8(1) << i; {
		case q.wrong&place != 0:
			member.Probe = rollout.Probe{Read: rollout.WrongMember, Detail: "another member answers"}
		case q.answering&place != 0:
			term, leader := uint64(2), uint64(q.leader)
			if q.expelled && leader == uint64(m.Members)+1 { //nolint:gosec // A handful.
				leader += rebornID
			}
			if q.old&place != 0 { // It has not heard of the new leader.
				term, leader = term-1, member.ID
			}
			member.Probe = rollout.Probe{Read: rollout.Answered, ReadTerm: term}
			member.Probe.Status = &rollout.Status{Leader: leader, Term: term, Index: 100, Applied: 100}
		case q.telling&place != 0:
			member.Probe.Status = &rollout.Status{Term: 2, Index: 100, Applied: 100}
		}
		if st := member.Probe.Status; st != nil && q.full {
			st.NoSpace, st.NoSpaceOf, st.Size, st.InUse, st.Quota = true, []uint64{1}, 1<<20, 1<<20, 1<<30
			if i == 0 {
				st.Size, st.InUse = 1<<30, 1<<20
			}
		}
		if m.Denied {
			member.Probe.Status = nil
		}
		s.Etcd.Members = append(s.Etcd.Members, member)
	}
	for i := range int(q.ghosts) {
		s.Etcd.Members = append(s.Etcd.Members, memberOf(maxMembers+i, "ghost-"+numbers[i]))
	}
	if q.transfers > 0 && q.leader > 0 {
		s.FailedTransfers = map[uint64]int{uint64(q.leader): int(q.transfers)}
	}
	return s
}

// memberOf is the member of a place, as it is when it does not answer.
func memberOf(place int, name string) rollout.Member {
	return rollout.Member{ID: uint64(place) + 1, Name: name,
		Probe: rollout.Probe{Read: rollout.Failed, Detail: "no answer"}} //nolint:gosec // Small.
}

// podOf is a pod as its kubelet reports it.
func (m *Model) podOf(i int, look uint8) (rollout.Pod, bool) {
	outdated := look&outdatedBit != 0
	look &^= outdatedBit
	if look == looksMissing {
		return rollout.Pod{}, false
	}
	runs := rollout.Container{State: rollout.ContainerRunning, Ready: true}
	p := rollout.Pod{
		Name: names[i], UID: names[i], ResourceVersion: numbers[i+1], Ordinal: i, MemberName: names[i],
		Revision: newRevision, Node: "node of " + names[i], Said: "what it says",
		Owned: true, Initialized: true, Terminating: look == looksTerminating, Sidecar: runs, Etcd: runs,
	}
	if outdated {
		p.Revision = oldRevision
	}
	switch look {
	case looksUnready:
		p.Etcd.Ready = false
	case looksCrashed:
		p.Etcd = rollout.Container{State: rollout.ContainerWaiting, Reason: "CrashLoopBackOff", Restarts: 9}
	case looksEnded:
		p.Etcd = rollout.Container{State: rollout.ContainerTerminated, Reason: "Error", Restarts: 1}
	case looksCreating, looksStarting:
		p.Etcd = rollout.Container{State: rollout.ContainerWaiting, Reason: "ContainerCreating"}
		p.Sidecar = p.Etcd
		p.NeverReady = look == looksStarting
	}
	p.Ready = look == looksReady
	p.ContainersReady = p.Ready
	if m.Nameless {
		p.NoEtcdContainer, p.Etcd = true, rollout.Container{}
	}
	return p, true
}
