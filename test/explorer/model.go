package explorer

import (
	"time"

	"github.com/quorate/quorate/pkg/record"
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
	// verify that nothing of the protocol's state is lost on the way.
	verify bool
	// symmetric: it does not matter who of the coordinators is who.
	symmetric bool
	// mayGuess: a wrong guess is excused, and counted. Where every world is visited there is none.
	mayGuess bool
	// effectsOnly: how the record is kept is not looked at, only what is removed. That is for
	// mutants: they shall not break the record's rules alone, but what those are for.
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
	// Cached: it decides on what the observation before has seen.
	Cached bool
	// Early: it decides on what was seen before the claim.
	Early bool
}

// Counts say how much of it was about what it is about.
type Counts struct {
	// Removals that took effect, and those of them that nobody waited for any more.
	Removals, Late int
	// Refused removals.
	Refused int
	// Fences that changed a pod.
	Fences int
	// Claims that stood.
	Claims int
	// Residues, Returned and Guesses are what was excused, see excuseOf: a member that had
	// failed since, one or a quorum that had come back since, a wrong guess. ExcusedLate of them
	// landed when the evidence was old already.
	Residues, Returned, Guesses, ExcusedLate int
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
	etcdView
	transfers uint8
	old       bool
}

// answer is what was decided.
type answer struct {
	plan   record.Plan
	op     uint8
	target uint8
	heir   uint8 // an ordinal and one
	// astray: the protocol is asked for another removal than was decided.
	astray bool
}

const outdatedBit = 0x80

// decide asks the production code, once for each question.
func (m *Model) decide(q question) answer {
	if a, ok := m.memo[q]; ok {
		return a
	}
	s := m.observation(q)
	if q.old {
		s.Ages = map[rollout.Sighting]time.Duration{}
		for _, sighting := range rollout.Assess(s, m.policy).Sightings() {
			s.Ages[sighting] = 2 * m.policy.SettleTimeout
		}
	}
	d := m.Decide(s, m.policy)
	plan, i := record.PlanOf(d, "")
	a := answer{plan: plan}
	if d.Target != nil {
		a.target = uint8(d.Target.Ordinal) //nolint:gosec // A handful.
	}
	if d.Action == rollout.Remove {
		a.op = remove
		if d.Method == rollout.RemoveByEviction {
			a.op = evict
		}
		// See observation for what tells the pods apart there.
		name := names[a.target]
		a.astray = i != record.Intent{Operation: operations[a.op], Pod: name, UID: name, ResourceVersion: numbers[a.target+1]}
	}
	if d.Transfer != nil {
		a.heir = uint8(d.Transfer.To) //nolint:gosec // IDs are ordinals and one.
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
			Name: "etcd", UID: "set", Replicas: m.Members, OnDelete: true, Generation: 1, ObservedGeneration: 1, UpdateRevision: newRevision,
		},
		Etcd: rollout.Membership{ClusterID: 1, Linearizable: true},
	}
	for i := range m.Members {
		look := q.looks[i] &^ outdatedBit
		if look == looksMissing {
			continue
		}
		p := rollout.Pod{
			Name: names[i], UID: names[i], ResourceVersion: numbers[i+1], Ordinal: i, MemberName: names[i], Revision: newRevision,
			Owned: true, Initialized: true, Terminating: look == looksTerminating,
			Sidecar: rollout.Container{State: rollout.ContainerRunning, Ready: true},
		}
		if q.looks[i]&outdatedBit != 0 {
			p.Revision = oldRevision
		}
		switch look {
		case looksReady, looksTerminating:
			p.Etcd = rollout.Container{State: rollout.ContainerRunning, Ready: true}
		case looksUnready:
			p.Etcd = rollout.Container{State: rollout.ContainerRunning}
		case looksCrashed:
			p.Etcd = rollout.Container{State: rollout.ContainerWaiting, Reason: "CrashLoopBackOff", Restarts: 9}
		case looksStarting:
			p.Etcd = rollout.Container{State: rollout.ContainerWaiting, Reason: "ContainerCreating"}
			p.Sidecar = rollout.Container{State: rollout.ContainerWaiting, Reason: "ContainerCreating"}
			p.NeverReady = true
		}
		p.Ready = look == looksReady
		p.ContainersReady = p.Ready
		s.Pods = append(s.Pods, p)
	}
	voters := m.Members - m.Learners
	for i := range m.Members + m.Ghosts {
		member := rollout.Member{ID: uint64(i) + 1, Learner: i >= voters && i < m.Members, Probe: rollout.Probe{Read: rollout.Failed, Detail: "no answer"}} //nolint:gosec // Small.
		if i < m.Members {
			member.Name = names[i]
		} else {
			member.Name = "ghost-" + numbers[i]
		}
		if q.answering&(1<<i) != 0 {
			s.Etcd.Known = true
			member.Probe = rollout.Probe{Read: rollout.Answered, Status: &rollout.Status{Leader: uint64(q.leader), Term: 1, Index: 100, Applied: 100}}
		}
		s.Etcd.Members = append(s.Etcd.Members, member)
	}
	if !s.Etcd.Known && q.leader == 0 {
		// Without a quorum the members that run still tell their list.
		for i := range m.Members {
			if look := q.looks[i] &^ outdatedBit; look == looksUnready {
				s.Etcd.Known = true
			}
		}
	}
	if !s.Etcd.Known {
		s.Etcd.Members = nil
	}
	if q.transfers > 0 && q.leader > 0 {
		s.FailedTransfers = map[uint64]int{uint64(q.leader): int(q.transfers)}
	}
	return s
}
