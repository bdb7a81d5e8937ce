package rollout_test

import (
	"strings"
	"testing"

	"github.com/quorate/quorate/pkg/rollout"
)

// A mutant is the decision without one of its guards, or on facts that are not those that
// were seen. The enumeration has to find a cluster in which that is wrong.
type mutant struct {
	name   string
	mutate func(*rollout.State)
	environment
	// wrong is what it must be convicted of.
	wrong string
}

func without(g rollout.Guard) func(*rollout.State) {
	return func(s *rollout.State) { s.Controls.Override = []rollout.Guard{g} }
}

// eachMember changes what is known of the members that have a pod, in a copy: what is
// enumerated is shared.
func eachMember(change func(s *rollout.State, p *rollout.Pod, m *rollout.Member)) func(*rollout.State) {
	return func(s *rollout.State) {
		pods := append([]rollout.Pod(nil), s.Pods...)
		members := append([]rollout.Member(nil), s.Etcd.Members...)
		for i := range pods {
			for k := range members {
				if members[k].Name == pods[i].MemberName {
					change(s, &pods[i], &members[k])
				}
			}
		}
		s.Pods, s.Etcd.Members = pods, members
	}
}

func answering(m *rollout.Member) {
	m.Probe = rollout.Probe{Read: rollout.Answered, Status: &rollout.Status{Leader: m.ID, Term: term - 1, Index: index, Applied: index}}
}

func mutants() []mutant {
	one := environment{maxUnavailable: 1, self: noSelf}
	many := environment{maxUnavailable: 3, self: noSelf}
	ghosts := environment{maxUnavailable: 3, self: noSelf, ghosts: 1}
	volatile := environment{maxUnavailable: 3, self: noSelf, volatile: true}
	noList := environment{maxUnavailable: 1, self: noSelf, noList: true}
	return []mutant{
		{"no VotersUnknown", without(rollout.GuardVotersUnknown), noList, "the wrong rule considers it"},
		{"no MayVote", without(rollout.GuardMayVote), one, "a process that may vote goes"},
		{"no QuorumPatience", without(rollout.GuardQuorumPatience), one, "a live process goes"},
		{"no RevisionSuspect", without(rollout.GuardRevisionSuspect), one, "the new revision is suspect"},
		{"no DataSurvives", without(rollout.GuardDataSurvives), volatile, "too few voters with data"},
		{"no UpdatedFailing", without(rollout.GuardUpdatedFailing), many, "an updated one is failing"},
		{"no QuorumFloor", without(rollout.GuardQuorumFloor), ghosts, "voters stay, quorum"},
		{"no UnavailableBudget", without(rollout.GuardUnavailableBudget), environment{maxUnavailable: 1, self: noSelf, outsiders: 2, trusted: true}, "the budget is exceeded"},
		{"no Canary", without(rollout.GuardCanary), environment{maxUnavailable: 3, self: noSelf, outsiders: 2, trusted: true}, "does not go alone"},
		{"no EndpointFloor", without(rollout.GuardEndpointFloor), many, "too few endpoints"},
		{"no CaughtUp", without(rollout.GuardCaughtUp), many, "the survivors lag"},
		{"no LeaderLast", without(rollout.GuardLeaderLast), one, ""},
		{"no change of leadership", func(s *rollout.State) {
			s.FailedTransfers = map[uint64]int{}
			for _, m := range s.Etcd.Members {
				s.FailedTransfers[m.ID] = rollout.MaxTransferFailures
			}
		}, one, "a leader goes without handing over"},
		{"treat Unknown as Down", eachMember(func(_ *rollout.State, p *rollout.Pod, m *rollout.Member) {
			if m.Probe.Read != rollout.Answered && p.Etcd.Ready {
				p.Etcd.Ready, m.Probe.Read = false, rollout.Failed
			}
		}), one, "the wrong rule considers it"},
		{"treat Unknown as serving", eachMember(func(_ *rollout.State, p *rollout.Pod, m *rollout.Member) {
			if m.Probe.Read != rollout.Answered && p.Etcd.Ready && !p.Terminating {
				answering(m)
			}
		}), many, "voters stay, quorum"},
		{"quorum from replicas instead of voters", func(s *rollout.State) {
			s.Etcd.Members = s.Etcd.Members[:max(0, len(s.Etcd.Members)-1)]
		}, ghosts, "voters stay, quorum"},
		{"settle not required", eachMember(func(s *rollout.State, p *rollout.Pod, m *rollout.Member) {
			if p.Revision == s.Set.UpdateRevision && !p.Terminating {
				p.Ready, p.ContainersReady = true, true
				p.Etcd = rollout.Container{State: rollout.ContainerRunning, Ready: true}
				answering(m)
			}
		}), many, ""},
		{"a sick sidecar is a dead member", eachMember(func(_ *rollout.State, p *rollout.Pod, m *rollout.Member) {
			if !p.Sidecar.Ready {
				p.Etcd.Ready, m.Probe.Read = false, rollout.Failed
			}
		}), one, "the wrong rule considers it"},
		{"what is terminating is still there", eachMember(func(_ *rollout.State, p *rollout.Pod, _ *rollout.Member) {
			p.Terminating = false
		}), one, ""},
		{"no patience: everything has lasted for long", func(s *rollout.State) {
			s.Ages = ages(allClasses(false), 3, long)
			for sighting := range s.Ages {
				s.Ages[sighting] = long
			}
		}, one, ""},
	}
}

func TestEveryMutantIsCaught(t *testing.T) {
	for _, mu := range mutants() {
		t.Run(mu.name, func(t *testing.T) {
			classes := allClasses(mu.volatile)
			if mu.noList {
				classes = podClasses()
			}
			for n := 1; n <= 3; n++ {
				c := newCatalogue(classes, n)
				problem, worlds, _ := firstProblem(len(classes), n, false, nil, func() (func([]int) string, *int) {
					s := newScene(c, mu.environment, n)
					s.mutate = mu.mutate
					return func(members []int) string {
						if problem := s.check(members); strings.Contains(problem, mu.wrong) {
							return problem
						}
						return "" // There may be more than one thing wrong with it.
					}, &s.decisions
				})
				if problem == "" {
					continue
				}
				t.Logf("caught by the enumeration, after %d worlds of %d: %s", worlds, n, problem)
				return
			}
			t.Errorf("not caught as %q", mu.wrong)
		})
	}
}
