package explorer

import (
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/quorate/quorate/internal/record"
	"github.com/quorate/quorate/pkg/rollout"
)

// before lets a mutant change what the protocol is told.
func before(change func(*record.State, *record.Event)) func(*Model) {
	return func(m *Model) {
		step := m.Step
		m.Step = func(c record.Config, s record.State, e record.Event, now record.Instant) (
			record.State, record.Effect) {
			change(&s, &e)
			return step(c, s, e, now)
		}
	}
}

// after lets a mutant change what the protocol asks for.
func after(change func(record.Config, *record.State, *record.Effect)) func(*Model) {
	return func(m *Model) {
		step := m.Step
		m.Step = func(c record.Config, s record.State, e record.Event, now record.Instant) (
			record.State, record.Effect) {
			s, effect := step(c, s, e, now)
			change(c, &s, &effect)
			return s, effect
		}
	}
}

// fencesInVain writes the same to a pod each time.
func fencesInVain(_ record.Config, _ *record.State, effect *record.Effect) {
	if fence, ok := (*effect).(record.FencePod); ok {
		fence.Value = "epoch 0, resourceVersion 0"
		*effect = fence
	}
}

// instead lets a mutant answer an effect itself: then nothing is sent.
func instead(answer func(record.Effect) record.Event) func(*Model) {
	return func(m *Model) {
		step := m.Step
		m.Step = func(c record.Config, s record.State, e record.Event, now record.Instant) (
			record.State, record.Effect) {
			s, effect := step(c, s, e, now)
			for {
				e := answer(effect)
				if e == nil {
					return s, effect
				}
				s, effect = step(c, s, e, now)
			}
		}
	}
}

// sees lets a mutant see something else than there is.
func sees(change func(*rollout.State)) func(*Model) {
	return func(m *Model) {
		decide := m.Decide
		m.Decide = func(s rollout.State, p rollout.Policy) rollout.Decision {
			change(&s)
			return decide(s, p)
		}
	}
}

// without lets a mutant go without a guard.
func without(g rollout.Guard) func(*Model) {
	return sees(func(s *rollout.State) { s.Controls.Override = append(s.Controls.Override, g) })
}

// noSigns takes away what others say of the pods that they are about to take.
func noSigns(s *rollout.State) {
	for i := range s.Pods {
		s.Pods[i].Leaving, s.Pods[i].Cordoned = "", false
	}
}

// kindOf is the kind of the operation on the record.
func kindOf(l record.Record) record.Kind { return operations[operationOf(l.Intent.Operation)].kind }

// overwrites the operation that it finds on the record, if that is of this kind.
func overwrites(kind record.Kind) func(*Model) {
	return before(func(s *record.State, e *record.Event) {
		switch answer := (*e).(type) {
		case record.LeaseWritten:
			if !s.Claimed() && answer.Outcome == record.Done && kindOf(s.Record) == kind {
				s.Record.Intent = record.Intent{}
			}
		case record.Observed:
			if kindOf(answer.Record) == kind {
				answer.Record.Intent = record.Intent{}
				*e = answer
			}
		}
	})
}

// unclearIsDone takes an operation of this kind whose answer is lost for done.
func unclearIsDone(kind record.Kind) func(*Model) {
	return before(func(s *record.State, e *record.Event) {
		if acted, ok := (*e).(record.Acted); ok && acted.Outcome == record.Unclear && kindOf(s.Record) == kind {
			*e = record.Acted{}
		}
	})
}

// writeIsDone takes a write of the record that ended so for done.
func writeIsDone(outcome record.Outcome) func(*Model) {
	return before(func(s *record.State, e *record.Event) {
		if written, ok := (*e).(record.LeaseWritten); ok && s.Claimed() && written.Outcome == outcome {
			*e = record.LeaseWritten{ResourceVersion: s.Record.ResourceVersion}
		}
	})
}

func weak(change func(*Weakness)) func(*Model) {
	return func(m *Model) { change(&m.Weak) }
}

// A mutant is the production code without one of its guards.
type mutant struct {
	name   string
	mutate func(*Model)
	world  Params
	// broken is what is wrong with it.
	broken string
}

const (
	notOnFile  = "is not on record"
	notDecided = "what it has decided is"
	reliedOn   = "those that could be relied on were none"
	// notThoughtOf: an operation that cannot be fenced took effect late.
	notThoughtOf = "that was not thought of"
	// othersTake: leadership stays with a member that is about to go, or is moved to one.
	othersTake = "which others are about to take"
)

// placed is a mutant and the room that its guard is in: the protocol, the view or the decision.
type placed struct {
	mutant
	room string
}

// within places all of them.
func within(room string, all []mutant) (out []placed) {
	for _, mu := range all {
		out = append(out, placed{mu, room})
	}
	return out
}

func mutants() []placed {
	two := func(f Faults) Params { return Params{Members: 3, Coordinators: 2, Faults: f} }
	one := func(f Faults) Params { f.Starts = 1; return Params{Members: 3, Coordinators: 1, Faults: f} }
	trueLock := func(p Params) Params { p.TrueLock = true; return p }
	clocks := func(p Params) Params { p.Clocks = true; return p }
	fresh := func(p Params) Params { p.Fresh = true; return p }
	evict := func(p Params) Params { p.Evict = true; return p }
	fine := func(p Params) Params { p.Fine = true; return p }
	ghosts := func(n int, p Params) Params { p.Ghosts = n; return p }
	of := func(members int, p Params) Params { p.Members = members; return p }
	with := func(p Params, change func(*Params)) Params { change(&p); return p }
	protocol := []mutant{
		{"no UID precondition", weak(func(w *Weakness) { w.NoUID = true }), two(Faults{Starts: 2, Crashes: 1}),
			"is another, by its UID"},
		{"no resourceVersion precondition", weak(func(w *Weakness) { w.NoVersion = true }),
			two(Faults{Starts: 2, Crashes: 1}), notOnFile},
		{"clear without bump", instead(func(e record.Effect) record.Event {
			if _, ok := e.(record.FencePod); ok {
				return record.PodFenced{ResourceVersion: "255"}
			}
			return nil
		}), two(Faults{Starts: 2, Crashes: 1}), notOnFile},
		{"bump that does not change the resourceVersion", func(m *Model) {
			after(fencesInVain)(m)
			before(func(_ *record.State, e *record.Event) {
				if fenced, ok := (*e).(record.PodFenced); ok {
					fenced.ResourceVersion = "255"
					*e = fenced
				}
			})(m)
		}, two(Faults{Starts: 2, Crashes: 1}), notOnFile},
		{"created Lease without bump", instead(func(e record.Effect) record.Event {
			if _, ok := e.(record.ListPods); ok {
				return record.PodsListed{}
			}
			return nil
		}), two(Faults{Starts: 2, Edits: 1}), notOnFile},
		{"a Lease whose annotations were replaced is taken as it is", before(func(_ *record.State, e *record.Event) {
			if read, ok := (*e).(record.LeaseRead); ok && read.Record.Exists() {
				read.Record.Schema = record.Schema
				*e = read
			}
		}), two(Faults{Starts: 2, Edits: 1}), notOnFile},
		{"a list of pods that failed is taken for empty", before(func(_ *record.State, e *record.Event) {
			if listed, ok := (*e).(record.PodsListed); ok && listed.Outcome != record.Done {
				*e = record.PodsListed{}
			}
		}), fresh(two(Faults{Starts: 2, Lost: 1, Edits: 1})), notOnFile},
		{"another's claim goes unnoticed", before(func(s *record.State, e *record.Event) {
			if seen, ok := (*e).(record.Observed); ok {
				seen.Record.Holder, seen.Record.Epoch = s.Record.Holder, s.Epoch
				*e = seen
			}
		}), two(Faults{Starts: 2}), ""},
		{"claim without CAS", weak(func(w *Weakness) { w.NoSwap = true }), two(Faults{Starts: 2}), ""},
		{"claim without a new epoch", after(func(_ record.Config, s *record.State, effect *record.Effect) {
			if write, ok := (*effect).(record.WriteLease); ok && !s.Claimed() {
				s.Epoch--
				s.Record.Epoch--
				write.Record.Epoch--
				*effect = write
			}
		}), two(Faults{Starts: 2}), "writes to the record"},
		{"right checked before the Lease is read", checksFirst, trueLock(two(Faults{Starts: 2})),
			"a right that was gone"},
		{"claim by the clock of a record that is renewed", before(func(s *record.State, e *record.Event) {
			if _, ok := (*e).(record.LeaseRead); ok {
				s.SeenSince = 0
				s.Seen = (*e).(record.LeaseRead).Record.ResourceVersion
			}
		}), clocks(two(Faults{Starts: 2})), "renewed in time"},
		{"a kubelet is believed that nobody can hear", sees(func(s *rollout.State) {
			s.Pods = slices.Clone(s.Pods)
			for i := range s.Pods {
				s.Pods[i].Heard = true
			}
		}), with(one(Faults{CutOffs: 2}), func(p *Params) { p.Own, p.Zones = true, true }), "voters run then"},
		{"observe before the claim", weak(func(w *Weakness) { w.Early = true }), two(Faults{Starts: 2}), ""},
		{"no evidence age after the CAS", before(func(s *record.State, e *record.Event) {
			if _, ok := (*e).(record.LeaseWritten); ok {
				s.Begun = now
			}
		}), two(Faults{Starts: 1}), "evidence that is too old"},
		{"an intent that is found is overwritten", overwrites(record.Fenced), two(Faults{Starts: 2, Crashes: 1}), ""},
		{"a removal whose answer is lost is taken for done", unclearIsDone(record.Fenced),
			two(Faults{Starts: 1, Lost: 1}),
			notOnFile},
		{"a removal whose last attempt failed is taken for done", before(func(_ *record.State, e *record.Event) {
			if removed, ok := (*e).(record.Acted); ok && removed.Outcome == record.Failed {
				*e = record.Acted{}
			}
		}), two(Faults{Starts: 1, Lost: 1}), notOnFile},
		{"an eviction that was refused is taken for settled, whoever it was refused by",
			before(func(s *record.State, e *record.Event) {
				if removed, ok := (*e).(record.Acted); ok && removed.Outcome == record.Refused {
					*e = record.Acted{}
				}
			}), evict(two(Faults{Starts: 1, Lost: 1})), notOnFile},
		{"a bump whose answer is lost is taken for done", before(func(s *record.State, e *record.Event) {
			if fenced, ok := (*e).(record.PodFenced); ok && fenced.Outcome == record.Unclear {
				*e = record.PodFenced{ResourceVersion: "255"}
			}
		}), two(Faults{Starts: 2, Crashes: 1, Lost: 1}), notOnFile},
		{"a write of the intent whose answer is lost is taken for done", writeIsDone(record.Unclear),
			two(Faults{Starts: 1, Lost: 1}), notOnFile},
		{"a write of the intent whose last attempt failed is taken for done", writeIsDone(record.Failed),
			two(Faults{Starts: 1, Lost: 1}), notOnFile},
		{"a write of the intent that is refused is taken for done", writeIsDone(record.Refused), two(Faults{Starts: 2}),
			notOnFile},
		{"removes another pod than the one decided on", before(func(_ *record.State, e *record.Event) {
			if seen, ok := (*e).(record.Observed); ok && seen.Intent.Pod == names[2] {
				seen.Intent.Pod = names[1]
				*e = seen
			}
		}), two(Faults{Starts: 1}), notDecided},
		{"evicts where a delete was decided", before(func(_ *record.State, e *record.Event) {
			if seen, ok := (*e).(record.Observed); ok && seen.Intent.Operation == record.Delete {
				seen.Intent.Operation = record.Evict
				*e = seen
			}
		}), two(Faults{Starts: 1}), notDecided},
	}
	view := []mutant{
		{"decide on a cached snapshot", weak(func(w *Weakness) { w.Cached = true }), one(Faults{Failures: 1}),
			"voters run then"},
		{"act on a cached view without confirming it ahead", weak(func(w *Weakness) { w.Unconfirmed = true }),
			with(two(Faults{Starts: 3}), func(p *Params) {
				p.CachedView, p.Ahead, p.SlowStop, p.Own = true, true, true, true
			}), "in ignorance of another"},
		{"act on a cached view without confirming it", weak(func(w *Weakness) { w.Unconfirmed = true }),
			with(two(Faults{Starts: 3}), func(p *Params) { p.CachedView, p.SlowStop, p.Own = true, true, true }),
			"in ignorance of another"},
	}
	decision := []mutant{
		{"treat Unknown as serving", sees(func(s *rollout.State) {
			for i := range s.Etcd.Members {
				if p := &s.Etcd.Members[i].Probe; i < len(s.Pods) && s.Pods[i].Etcd.Ready && p.Read == rollout.Failed {
					p.Read = rollout.Answered
					p.Status = &rollout.Status{Leader: 1, Term: 1, Index: 100, Applied: 100}
				}
			}
		}), fine(one(Faults{Failures: 1})), "voters run then"},
		{"quorum from replicas instead of voters", sees(func(s *rollout.State) {
			s.Etcd.Members = s.Etcd.Members[:min(len(s.Etcd.Members), s.Set.Replicas)]
		}), ghosts(1, one(Faults{})), "voters run then"},
		{"settle not required", sees(func(s *rollout.State) {
			for i := range s.Pods {
				if p := &s.Pods[i]; p.Revision == newRevision && !p.Terminating {
					p.Ready, p.ContainersReady, p.Etcd, p.Sidecar = true, true,
						rollout.Container{State: rollout.ContainerRunning, Ready: true},
						rollout.Container{State: rollout.ContainerRunning, Ready: true}
					s.Etcd.Members[p.Ordinal].Probe = rollout.Probe{Read: rollout.Answered,
						Status: &rollout.Status{Leader: 1, Term: 1, Index: 100, Applied: 100}}
				}
			}
		}), one(Faults{}), "voters run then"},
		{"no QuorumFloor", without(rollout.GuardQuorumFloor), ghosts(1, one(Faults{})), "voters run then"},
		{"no MayVote", without(rollout.GuardMayVote), one(Faults{Deafness: 1}), "voters run then"},
		{"no UnavailableBudget", without(rollout.GuardUnavailableBudget), of(5, one(Faults{})), "down because of us"},
		// What the field has beside.
		{"voters outside our ordinals survive", func(m *Model) {
			decide := m.Decide
			m.Decide = func(s rollout.State, p rollout.Policy) rollout.Decision {
				p.TrustedMembers = []string{m.place(3), m.place(4)}
				return decide(s, p)
			}
		}, with(one(Faults{Departures: 2}), func(p *Params) { p.External = 2 }), reliedOn},
		{"a pod that is being scaled away survives", sees(func(s *rollout.State) { s.Set.Replicas = 5 }),
			with(of(5, one(Faults{Scales: 1})), func(p *Params) { p.SlowStop = true }), reliedOn},
		{"a pod that terminates survives while it answers", sees(func(s *rollout.State) {
			for i := range s.Pods {
				if p := &s.Pods[i]; p.Terminating {
					p.Terminating, p.Ready, p.Revision = false, true, newRevision
				}
			}
		}), with(one(Faults{}), func(p *Params) { p.SlowStop = true }), "voters run then"},
		{"what restarts gets a revision that has proved nothing", without(rollout.GuardRevisionSuspect),
			with(one(Faults{Restarts: 1}), func(p *Params) { p.Broken = true }), "a broken revision has cost"},
		{"what restarts is dead once its container has ended for a while", sees(func(s *rollout.State) {
			for i := range s.Pods {
				if c := &s.Pods[i].Etcd; c.State == rollout.ContainerTerminated {
					*c = rollout.Container{State: rollout.ContainerWaiting, Reason: "CrashLoopBackOff"}
				}
			}
		}), with(one(Faults{Restarts: 1}), func(p *Params) { p.Broken = true }), "a broken revision has cost"},
		{"what its kubelet has seen crash is dead, whatever it answers by now", sees(func(s *rollout.State) {
			for i := range s.Etcd.Members {
				if p := &s.Etcd.Members[i].Probe; p.Read == rollout.Failed {
					p.Status = nil
				}
			}
		}), with(fine(one(Faults{Failures: 2})), func(p *Params) { p.Broken = true }), "a broken revision has cost"},
		{"a container that is not there is down", sees(func(s *rollout.State) {
			for i := range s.Pods {
				s.Pods[i].NoEtcdContainer = false
			}
		}), with(of(5, one(Faults{Deafness: 2})), func(p *Params) { p.Nameless = true }), "down because of us"},
		{"a local list is taken for one that a quorum has told",
			sees(func(s *rollout.State) { s.Etcd.Linearizable = true }),
			one(Faults{Joins: 1, OldLists: 1}), "voters run then"},
		{"an answer under another's address is an answer", sees(func(s *rollout.State) {
			for i := range s.Etcd.Members {
				if p := &s.Etcd.Members[i].Probe; p.Read == rollout.WrongMember {
					*p = rollout.Probe{Read: rollout.Answered, ReadTerm: 2,
						Status: &rollout.Status{Leader: 1, Term: 2, Index: 100,
							Applied: 100}}
				}
			}
		}), one(Faults{WrongIDs: 1, Failures: 1}), "voters run then"},
		{"a read from before a pause is an answer", sees(func(s *rollout.State) {
			for i := range s.Etcd.Members {
				s.Etcd.Members[i].Probe.ReadTerm = 2
			}
		}), one(Faults{OldReads: 1, Failures: 1}), "voters run then"},
		{"what is in full health is deleted", func(m *Model) { m.policy.Removal = rollout.RemoveByDelete },
			with(one(Faults{Drains: 1}), func(p *Params) { p.Evict, p.Budget = true, true }), ""},
		{"what others are about to take is not seen", sees(noSigns), one(Faults{Signs: 1, Drains: 1}), othersTake},
		{"no OthersLeaving", without(rollout.GuardOthersLeaving), one(Faults{Signs: 1, Drains: 1}), othersTake},
		{"a process that may vote goes beside what others are about to take", sees(func(s *rollout.State) {
			for i := range s.Pods {
				if p := &s.Pods[i]; p.Etcd.State == rollout.ContainerRunning && !p.Etcd.Ready {
					noSigns(s)
				}
			}
		}), one(Faults{Signs: 1, Drains: 1, Deafness: 1}), othersTake},
		{"who is about to be taken leads on", sees(func(s *rollout.State) { s.NoLock = true }),
			one(Faults{Signs: 1, Drains: 1}), othersTake},
		{"leadership goes to whoever serves", sees(func(s *rollout.State) {
			for i := range s.Pods {
				if lead := s.Etcd.Members[0].Probe.Status; lead != nil && lead.Leader != s.Etcd.Members[i].ID {
					s.Pods[i].Leaving, s.Pods[i].Cordoned = "", false
				}
			}
		}), one(Faults{Signs: 2, Drains: 1}), othersTake},
	}
	operations := []mutant{ // those that cannot be fenced
		{"a suspect counts as if nothing could remove it any more", weak(func(w *Weakness) { w.OneWorld = true }),
			presumedWorld(1, Faults{Starts: 1, Lost: 1}), notThoughtOf},
		{"a member is removed although it serves again", sees(func(s *rollout.State) {
			if s.Request == nil {
				return
			}
			s.Set.Replicas = 3
			s.Pods = slices.DeleteFunc(s.Pods, func(p rollout.Pod) bool { return p.Ordinal >= 3 })
			s.Ages = rollout.Ages{}
			for i := range s.Etcd.Members {
				member := &s.Etcd.Members[i]
				if member.ID == s.Request.Member {
					member.Probe = rollout.Probe{Read: rollout.Failed}
				}
				for _, c := range []rollout.Condition{rollout.GhostSeen, rollout.MemberSeen} {
					s.Ages[rollout.Sighting{UID: strconv.FormatUint(member.ID, 16), Condition: c}] = time.Hour
				}
			}
		}), presumedWorld(1, Faults{Starts: 1}), "a member that serves"},
		{"a suspect is forgotten", after(func(_ record.Config, s *record.State, effect *record.Effect) {
			if write, ok := (*effect).(record.WriteLease); ok {
				s.Record.Suspect, write.Record.Suspect = nil, nil
				*effect = write
			}
		}), presumedWorld(1, Faults{Starts: 1, Lost: 1}), notOnFile},
		{"a presumed operation whose answer is lost is taken for done", unclearIsDone(record.Presumed),
			presumedWorld(1, Faults{Starts: 1, Lost: 1}), notOnFile},
		{"a presumed operation that is found is overwritten", overwrites(record.Presumed),
			presumedWorld(2, Faults{Starts: 2}), ""},
		{"a presumed operation that must not be repeated is settled", before(func(_ *record.State, e *record.Event) {
			if seen, ok := (*e).(record.Observed); ok && seen.Resolution == record.Refuted {
				seen.Resolution = record.Settled
				*e = seen
			}
		}), presumedWorld(1, Faults{Starts: 1, Lost: 1}), notOnFile},
		{"a blocking operation whose answer is lost is taken for done", unclearIsDone(record.Blocking),
			blockingWorld(1, Faults{Starts: 1, Lost: 1}), notOnFile},
		{"a blocking operation that is found is overwritten", overwrites(record.Blocking),
			blockingWorld(2, Faults{Starts: 2}),
			""},
		{"a blocking operation that is found has begun long ago", before(func(s *record.State, e *record.Event) {
			if seen, ok := (*e).(record.Observed); ok && seen.Record.Intent.Epoch != s.Epoch {
				s.Doubted = 0
			}
		}), blockingWorld(1, Faults{Starts: 2, Crashes: 1}), notOnFile},
		{"the member of a blocking operation need not recover", func(m *Model) {
			step := m.Step
			m.Step = func(c record.Config, s record.State, e record.Event, now record.Instant) (record.State,
				record.Effect) {
				c.Recovery = 0
				return step(c, s, e, now)
			}
		}, blockingWorld(1, Faults{Starts: 1, Lost: 1}), notOnFile},
		{"an intent that names another's pod is believed", weak(func(w *Weakness) { w.Trusting = true }),
			two(Faults{Starts: 2, Edits: 1}), ""},
	}
	return slices.Concat(within("protocol", protocol), within("view", view), within("decision", decision),
		within("protocol", operations))
}

// isHarm is true for a rule about what is removed, which is what all the others are for.
func isHarm(broken string) bool {
	return slices.ContainsFunc([]string{
		"in ignorance of another operation", "down because of us", "voters run then",
		"is another, by its UID", notDecided,
		"evidence that is too old",
		reliedOn, "a member that serves", "a broken revision has cost", "no budget was asked",
		"which is none of ours", notThoughtOf,
	}, func(rule string) bool { return strings.Contains(broken, rule) })
}

// harmless are mutants that break the rules about the record or about who leads, and were not seen to do harm, in
// worlds with a failure, and what takes the place of the guard that they lack.
var harmless = map[string]string{
	"another's claim goes unnoticed":                 "reading the Lease for its swap shows it the other's removal",
	"claim without a new epoch":                      "every claim changes the resourceVersion of the Lease",
	"right checked before the Lease is read":         "the right only says who should try (in most worlds, locks lie)",
	"claim by the clock of a record that is renewed": "the clock only says who should try, as a lock that lies does",
	"who is about to be taken leads on":              "the others elect a leader when it goes, and keep quorum",
	"leadership goes to whoever serves":              "the others elect a leader when it goes, and keep quorum",
}

// harm is the world in which a mutant that breaks the record's rules does harm. It takes one
// failure at least: without it, two coordinators decide to remove the same pod, and the second
// removal finds it gone.
func (mu mutant) harm() Params {
	p := mu.world
	switch mu.name {
	case "a list of pods that failed is taken for empty":
		p.Fresh = false
	case "a write of the intent whose answer is lost is taken for done",
		"a write of the intent whose last attempt failed is taken for done":
		p.Faults.Starts = 2
	}
	p.Faults.Failures = 1
	return p
}

// checksFirst asks who owns the lock before it reads the Lease.
func checksFirst(m *Model) {
	step := m.Step
	m.Step = func(c record.Config, s record.State, e record.Event, now record.Instant) (record.State, record.Effect) {
		switch answer := e.(type) {
		case record.Start:
			s, _ = step(c, s, e, now)
			return s, record.CheckRight{}
		case record.RightChecked:
			if !answer.Held {
				return record.State{}, record.End{Ended: record.NoRight}
			}
			return s, record.ReadLease{}
		}
		s, effect := step(c, s, e, now)
		if _, ok := effect.(record.CheckRight); ok {
			return step(c, s, record.RightChecked{Held: true}, now)
		}
		return s, effect
	}
}

// endsUnwritten takes the last write of a claim for done, whatever is answered.
func endsUnwritten(m *Model) {
	step := m.Step
	m.Step = func(c record.Config, s record.State, e record.Event, now record.Instant) (record.State, record.Effect) {
		if written, ok := e.(record.LeaseWritten); ok && written.Outcome != record.Done {
			next, effect := step(c, s, record.LeaseWritten{}, now)
			if _, ends := effect.(record.End); ends {
				return next, effect
			}
		}
		return step(c, s, e, now)
	}
}

// What never ends is found as well.
func TestAMutantThatGetsStuckIsCaught(t *testing.T) {
	notInShort(t)
	loops := Params{Members: 3, Coordinators: 1, TrueLock: true, Loop: true, Faults: Faults{Lost: 1}}
	with := func(change func(*Params)) Params { p := loops; change(&p); return p }
	for _, mu := range []mutant{
		{name: "a bump that changes nothing is noticed, and repeated for ever", mutate: after(fencesInVain)},
		{name: "an end that was not written is an end", mutate: endsUnwritten,
			world: with(func(p *Params) { p.Faults = Faults{Edits: 1} })},
		{name: "what is seen of the record while a claim may still land is the last word",
			mutate: weak(func(w *Weakness) { w.NoLastLook = true }),
			world:  with(func(p *Params) { p.Members, p.Coordinators, p.Faults.Crashes = 1, 2, 1 })},
		{name: "who waits in the queue is no fallback coordinator", mutate: weak(func(w *Weakness) { w.Queues = true }),
			world: with(func(p *Params) { p.Clocks, p.Stay, p.Faults = true, true, Faults{Failures: 2} })},
		{name: "who abstains is no fallback coordinator", mutate: weak(func(w *Weakness) { w.NoFallback = true }),
			world: with(func(p *Params) { p.Clocks, p.Stay, p.Faults = true, true, Faults{Failures: 2, Unfits: 1} })},
		{name: "a gate that does not answer stops the loop", mutate: weak(func(w *Weakness) { w.Wedges = true }),
			world: with(func(p *Params) { p.Stay, p.Faults = true, Faults{Failures: 1, Wedges: 1} })},
		{name: "a pod is removed that the controller does not recreate",
			mutate: sees(func(s *rollout.State) { s.Set.OrderedReady = false }),
			world:  with(func(p *Params) { p.Ordered, p.Faults = true, Faults{Failures: 1, Restarts: 1} })},
		{name: "a cordon is waited for, however long it is there", mutate: sees(func(s *rollout.State) {
			for i := range s.Pods {
				if p := &s.Pods[i]; p.Cordoned {
					p.Leaving, p.Cordoned = "cordoned", false
				}
			}
		}), world: with(func(p *Params) { p.Stay, p.Faults = true, Faults{Signs: 1} })},
		{name: "leadership leaves a cordoned node for the pod that is next to go", mutate: func(m *Model) {
			decide := m.Decide
			m.Decide = func(s rollout.State, p rollout.Policy) rollout.Decision {
				waited := s
				waited.Pods = slices.Clone(s.Pods)
				for i := range waited.Pods {
					if p := &waited.Pods[i]; p.Cordoned {
						p.Leaving = "cordoned"
					}
				}
				if d := decide(waited, p); d.Duty == rollout.DutyMakeWay {
					return d
				}
				return decide(s, p)
			}
		}, world: with(func(p *Params) { p.Stay, p.Faults = true, Faults{Signs: 2} })},
		{name: "the record is not given back",
			mutate: after(func(c record.Config, _ *record.State, effect *record.Effect) {
				if write, ok := (*effect).(record.WriteLease); ok && write.Record.Holder == "" {
					write.Record.Holder = c.Identity
					*effect = write
				}
			})},
	} {
		t.Run(mu.name, func(t *testing.T) {
			world := mu.world
			if world.Members == 0 {
				world = loops
			}
			m := New(world)
			mu.mutate(m)
			l := m.Live(t.Context(), 0)
			require.NotZero(t, l.Stuck, "not caught: %s", l)
			t.Logf("caught by the explorer: stuck in %d states", l.Stuck)
		})
	}
}

func TestEveryMutantIsCaught(t *testing.T) {
	notInShort(t)
	for _, mu := range mutants() {
		t.Run(mu.name+" ("+mu.room+")", func(t *testing.T) {
			caught := func(m *Model, r *Result) {
				require.NotEmpty(t, r.Broken, "not caught: %s", r)
				t.Logf("caught by the explorer, after %d states, %d moves: %s", r.States, len(r.Path), r.Broken)
				if *stories {
					t.Log("\n" + m.Story(r.Path))
				}
			}
			m := New(mu.world)
			mu.mutate(m)
			r := m.Search(t.Context(), 0)
			caught(m, r)
			require.Contains(t, r.Broken, mu.broken, "caught by another rule")
			if isHarm(r.Broken) {
				return
			}
			if why, ok := harmless[mu.name]; ok {
				t.Logf("without harm: %s", why)
				return
			}

			// Caught by how the record is kept, or by who leads. It has to be caught by what is removed as well.
			m = New(mu.harm())
			mu.mutate(m)
			m.effectsOnly = true
			if *stories {
				r = m.Search(t.Context(), 0)
			} else { // It need not be told who was who.
				m.symmetric = true
				r = m.search(t.Context(), 0)
			}
			caught(m, r)
			require.True(t, isHarm(r.Broken), "that does no harm")
		})
	}
}
