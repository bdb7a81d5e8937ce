package rollout_test

import (
	"slices"
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
	// policy, if not nil, changes what the operator is taken to have chosen, and classes are
	// those to look among instead of all.
	policy  func(*rollout.Policy)
	classes func() []class
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
	m.Probe = rollout.Probe{
		Read:   rollout.Answered,
		Status: &rollout.Status{Leader: m.ID, Term: term - 1, Index: index, Applied: index},
	}
}

func mutants() []mutant {
	one := environment{maxUnavailable: 1, self: noSelf}
	many := environment{maxUnavailable: 3, self: noSelf}
	ghosts := environment{maxUnavailable: 3, self: noSelf, ghosts: 1}
	volatile := environment{maxUnavailable: 3, self: noSelf, volatile: true}
	noList := environment{maxUnavailable: 1, self: noSelf, noList: true}
	elsewhere := environment{maxUnavailable: 3, self: noSelf, outsiders: 2}
	scaledAway := environment{maxUnavailable: 3, self: noSelf, outsiders: 2, scaledAway: true, trusted: true}
	ordered := environment{maxUnavailable: 2, self: noSelf, ordered: true}
	local := environment{maxUnavailable: 2, self: noSelf, local: true, agreeing: 1}
	migrated := environment{maxUnavailable: 3, self: noSelf, volatile: true, migrated: true}
	second := "a broken revision may cost a second member"
	fails := "a rollout begins that is known to fail"
	known := func(change func(e *environment)) environment {
		e := one
		change(&e)
		return e
	}
	argued := func(image string, argument rollout.Argument) environment {
		return known(func(e *environment) { e.image, e.argument, e.doomed = image, argument, true })
	}
	more := []mutant{
		{
			name:        "voters elsewhere survive",
			environment: elsewhere,
			wrong:       "voters stay, quorum",
			policy: func(p *rollout.Policy) {
				p.TrustedMembers = []string{"elsewhere-0", "elsewhere-1"}
			},
		},
		{
			name:        "who is scaled away survives where it is named",
			environment: scaledAway,
			wrong:       "voters stay, quorum",
			mutate: func(s *rollout.State) {
				s.Pods = slices.DeleteFunc(
					slices.Clone(s.Pods),
					func(p rollout.Pod) bool { return p.Ordinal >= s.Set.Replicas },
				)
			},
		},
		{
			name:        "the mapping need not be whole",
			environment: environment{maxUnavailable: 3, self: noSelf, outsiders: 2, trusted: true},
			wrong:       "voters stay, quorum",
			mutate: func(s *rollout.State) {
				// The pods that match no member are given one each, which does not vote.
				s.Etcd.Members = slices.Clone(s.Etcd.Members)
				for i, p := range s.Pods {
					if !slices.ContainsFunc(
						s.Etcd.Members,
						func(m rollout.Member) bool { return m.Name == p.MemberName },
					) {
						s.Etcd.Members = append(
							s.Etcd.Members,
							rollout.Member{ID: 0x800 + uint64(i), Name: p.MemberName, Learner: true},
						)
					}
				}
			},
		},
		{
			name:        "no RevisionSuspect while the first pod comes up",
			environment: one,
			wrong:       second,
			mutate:      without(rollout.GuardRevisionSuspect),
		},
		{
			name:        "the first Ready is believed",
			environment: one,
			wrong:       "the budget is exceeded",
			mutate: func(s *rollout.State) {
				s.Sidecars.Present = nil
				for i := range s.Pods {
					s.Sidecars.Present = append(s.Sidecars.Present, s.Pods[i].UID)
				}
			},
		},
		{
			name:        "what has ended does not come back",
			environment: one,
			wrong:       second,
			mutate: eachMember(func(_ *rollout.State, p *rollout.Pod, _ *rollout.Member) {
				if p.Etcd.State == rollout.ContainerTerminated {
					p.Etcd.State, p.Etcd.Reason = rollout.ContainerWaiting, "CrashLoopBackOff"
				}
			}),
		},
		{
			name:        "the template says where an older pod's data is",
			environment: migrated,
			wrong:       "too few voters with data",
			mutate: eachMember(func(_ *rollout.State, p *rollout.Pod, _ *rollout.Member) {
				p.VolatileData = false
			}),
		},
		{
			name:        "no Recreation",
			environment: ordered,
			wrong:       "it would not be recreated",
			mutate:      without(rollout.GuardRecreation),
		},
		{
			name:        "no Recreation, with quorum lost",
			environment: ordered,
			wrong:       "to open the way",
			mutate:      without(rollout.GuardRecreation),
		},
		{
			name:        "a learner that was never promoted has settled",
			environment: environment{maxUnavailable: 3, self: noSelf, outsiders: 2, trusted: true},
			wrong:       "does not go alone",
			mutate: eachMember(func(s *rollout.State, p *rollout.Pod, m *rollout.Member) {
				if m.Learner && p.Ready && p.Revision == s.Set.UpdateRevision && m.Probe.Read == rollout.Answered {
					m.Learner = false
					s.Sidecars.Present = append(slices.Clip(s.Sidecars.Present), p.UID)
					answering(m)
				}
			}),
		},
		{
			name:        "no PodsListed",
			environment: many,
			wrong:       "may vote in a cluster of its own",
			mutate:      without(rollout.GuardPodsListed),
		},
		{
			name:        "no Returns",
			environment: known(func(e *environment) { e.unclaimed = true }),
			wrong:       "it would not come back",
			mutate:      without(rollout.GuardReturns),
		},
		{
			name:        "no Returns, with quorum lost",
			environment: environment{maxUnavailable: 3, self: noSelf, unclaimed: true},
			wrong:       "it would not come back",
			mutate:      without(rollout.GuardReturns),
		},
		{
			name:        "no OthersLeaving",
			environment: environment{maxUnavailable: 3, self: noSelf, leaving: true},
			wrong:       "beside what others take",
			mutate:      without(rollout.GuardOthersLeaving),
		},
		{
			name:        "all that is going was removed by us",
			environment: environment{maxUnavailable: 3, self: noSelf, taken: true, outsiders: 2, trusted: true},
			wrong:       "beside what others take",
			mutate: func(s *rollout.State) {
				s.Removed = []string{name(0), name(1), name(2)}
			},
		},
		{
			name:        "no OthersLeaving while others are scaled away",
			environment: environment{maxUnavailable: 3, self: noSelf, outsiders: 1, scaledAway: true},
			wrong:       "others are scaled away",
			mutate:      without(rollout.GuardOthersLeaving),
		},
		{
			name:        "who leaves may vote all the same",
			environment: environment{maxUnavailable: 3, self: noSelf, leaving: true},
			wrong:       "a process that may vote goes",
			mutate:      without(rollout.GuardOthersLeaving),
		},
		{
			name:        "who leads stays",
			environment: environment{maxUnavailable: 3, self: noSelf, leaving: true},
			wrong:       "leadership leaves a member that stays, or stays with one that leaves",
			mutate: func(s *rollout.State) {
				s.NoLock = true // Then nobody makes way.
			},
		},
		{
			name:        "leadership goes to whoever serves",
			environment: environment{maxUnavailable: 3, self: noSelf, taken: true},
			wrong:       "leadership goes to a member that is about to go",
			mutate: eachMember(func(_ *rollout.State, p *rollout.Pod, m *rollout.Member) {
				if m.Probe.Status == nil || m.ID != m.Probe.Status.Leader {
					p.Terminating = false
				}
			}),
		},
		{
			name:        "a cordoned node is like any other",
			environment: environment{maxUnavailable: 3, self: noSelf, cordoned: true},
			wrong:       "the best candidate is another",
			mutate:      eachMember(func(_ *rollout.State, p *rollout.Pod, _ *rollout.Member) { p.Cordoned = false }),
		},
		{
			name:        "no UpgradePath",
			environment: known(func(e *environment) { e.image, e.doomed = "etcd:3.7.3", true }),
			wrong:       fails,
			mutate:      without(rollout.GuardUpgradePath),
		},
		{
			name:        "a member that restarts begins the step that is held",
			environment: known(func(e *environment) { e.image, e.doomed = "etcd:3.7.3", true }),
			wrong:       fails,
			mutate: eachMember(func(s *rollout.State, p *rollout.Pod, m *rollout.Member) {
				if m.Probe.Read == rollout.Failed && !p.Etcd.Ready {
					p.EtcdImage = s.Set.Etcd.Image
				}
			}),
		},
		{
			name:        "no Downgrade",
			environment: known(func(e *environment) { e.image, e.doomed = "etcd:3.4.34", true }),
			wrong:       fails,
			mutate:      without(rollout.GuardDowngrade),
		},
		{
			name:        "no KnownArguments",
			environment: argued("etcd:3.6.16", rollout.Argument{Name: "enable-v2"}),
			wrong:       fails,
			mutate:      without(rollout.GuardKnownArguments),
		},
		{
			name: "a variable is ignored, whatever its value",
			environment: argued("etcd:3.6.16", rollout.Argument{
				Name: "v2-deprecation", Value: "not-yet", Variable: "ETCD_V2_DEPRECATION",
			}),
			wrong:  fails,
			mutate: func(s *rollout.State) { s.Set.Etcd.ConfigFile = true },
		},
		{
			name: "what the last release of a minor version knows, the first one knows too",
			environment: argued("etcd:3.6.12", rollout.Argument{
				Name: "v2-deprecation", Value: "write-only-skip-check",
			}),
			wrong:  fails,
			mutate: func(s *rollout.State) { s.Set.Etcd.Image = "etcd:3.6.16" },
		},
		{
			name:        "any release of 3.6 will do",
			environment: known(func(e *environment) { e.image, e.doomed = "etcd:3.6.3", true }),
			wrong:       fails,
			mutate:      func(s *rollout.State) { s.Set.Etcd.Image = "etcd:3.6.4" },
		},
		{
			name:        "no ListsAgree",
			environment: known(func(e *environment) { e.differ = true }),
			wrong:       fails,
			mutate:      without(rollout.GuardListsAgree),
		},
		{
			name:        "no DataAgrees",
			environment: known(func(e *environment) { e.diverged = true }),
			wrong:       "beside data that differ",
			mutate:      without(rollout.GuardDataAgrees),
		},
		{
			name:        "no BeforeLast",
			environment: known(func(e *environment) { e.image, e.holdLast = "etcd:3.6.16", true }),
			wrong:       "nobody was asked",
			mutate:      without(rollout.GuardBeforeLast),
		},
		{
			name:        "whoever has raised an alarm may be waited for",
			environment: known(func(e *environment) { e.ghosts, e.alarm = 1, true }),
			wrong:       "and its alarm stays",
			mutate: eachMember(func(_ *rollout.State, _ *rollout.Pod, m *rollout.Member) {
				if st := m.Probe.Status; st != nil {
					told := *st
					told.NoSpaceOf, m.Probe.Status = []uint64{theGone, m.ID}, &told
				}
			}),
		},
		{
			name:        "any list will do",
			environment: local,
			wrong:       "a list that no quorum has",
			mutate:      func(s *rollout.State) { s.Etcd.Linearizable = true },
		},
		{
			name:        "any answer proves that a member serves",
			environment: many,
			classes:     pausedClasses,
			wrong:       "voters stay, quorum",
			mutate:      withoutTerms,
		},
		{
			name:        "a pod without etcd's container says that etcd is down",
			environment: many,
			wrong:       "tells nothing of its member",
			mutate: func(s *rollout.State) {
				s.Pods = slices.Clone(s.Pods)
				for i := range s.Pods {
					s.Pods[i].NoEtcdContainer = false
				}
			},
			classes: func() []class {
				return []class{
					{outdated: true},
					{outdated: true, pod: nameless, etcd: noEtcd, answer: silent},
					{outdated: true, pod: nameless, etcd: noEtcd},
				}
			},
		},
	}
	return append(more, guardless(one, many, ghosts, volatile, noList)...)
}

// withoutTerms: nobody knows the terms of the reads.
func withoutTerms(s *rollout.State) {
	s.Etcd.Members = slices.Clone(s.Etcd.Members)
	for i := range s.Etcd.Members {
		s.Etcd.Members[i].Probe.ReadTerm = 0
	}
}

// guardless are those without one of the guards, or on other facts than were seen.
func guardless(one, many, ghosts, volatile, noList environment) []mutant {
	list := []struct {
		name   string
		mutate func(*rollout.State)
		environment
		wrong string
	}{
		{"no VotersUnknown", without(rollout.GuardVotersUnknown), noList, "the wrong rule considers it"},
		{"no MayVote", without(rollout.GuardMayVote), one, "a process that may vote goes"},
		{"no QuorumPatience", without(rollout.GuardQuorumPatience), one, "a live process goes"},
		{"no RevisionSuspect", without(rollout.GuardRevisionSuspect), one, "the new revision is suspect"},
		{"no DataSurvives", without(rollout.GuardDataSurvives), volatile, "too few voters with data"},
		{"no UpdatedFailing", without(rollout.GuardUpdatedFailing), many, "an updated one is failing"},
		{"no QuorumFloor", without(rollout.GuardQuorumFloor), ghosts, "voters stay, quorum"},
		{"no UnavailableBudget",
			without(
				rollout.GuardUnavailableBudget,
			), environment{maxUnavailable: 1, self: noSelf, outsiders: 2, trusted: true}, "the budget is exceeded"},
		{"no Canary",
			without(
				rollout.GuardCanary,
			), environment{maxUnavailable: 3, self: noSelf, outsiders: 2, trusted: true}, "does not go alone"},
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
	out := make([]mutant, 0, len(list))
	for _, m := range list {
		out = append(out, mutant{name: m.name, mutate: m.mutate, environment: m.environment, wrong: m.wrong})
	}
	return out
}

func TestEveryMutantIsCaught(t *testing.T) {
	for _, mu := range mutants() {
		t.Run(mu.name, func(t *testing.T) {
			classes := allClasses(mu.volatile)
			if mu.noList {
				classes = podClasses()
			}
			if mu.classes != nil {
				classes = mu.classes()
			}
			for n := 1; n <= 3; n++ {
				c := newCatalogue(classes, n)
				problem, worlds, _ := firstProblem(len(classes), n, false, nil, func() (func([]int) string, *int) {
					s := newScene(c, mu.environment, n)
					s.mutate = mu.mutate
					if mu.policy != nil {
						mu.policy(&s.policy)
					}
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
