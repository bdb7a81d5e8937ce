package rollout_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/quorate/quorate/pkg/rollout"
)

// ghostEnvironments are those in which every voter without a pod is asked for.
func ghostEnvironments() []environment {
	plain := environment{maxUnavailable: 1, self: noSelf}
	with := func(change func(e *environment)) environment {
		e := plain
		change(&e)
		return e
	}
	return []environment{
		plain,
		with(func(e *environment) { e.ghosts, e.left = 1, true }),
		with(func(e *environment) { e.ghosts, e.left = 2, true }),
		with(func(e *environment) { e.outsiders, e.ghosts, e.left = 1, 1, true }),
		with(func(e *environment) { e.ghosts, e.scaledAway = 2, true }),
		with(func(e *environment) { e.ghosts = 1 }),
		with(func(e *environment) { e.ghosts, e.left, e.local, e.agreeing = 1, true, true, 3 }),
		with(func(e *environment) { e.ghosts, e.left, e.trusted = 1, true, true }),
	}
}

// Whatever the members are, nothing is removed from the list but a ghost, and that only while everything
// else is well. Every voter without a pod is asked for.
func TestNoCombinationOfMembersLosesOneThatIsNoGhost(t *testing.T) {
	for _, e := range ghostEnvironments() {
		for n := 1; n <= 3; n++ {
			classes := allClasses(false)
			if n == 3 { // Learners and members that are not listed have been with one and two.
				classes = votersOf(classes)
			}
			t.Run(fmt.Sprintf("%d members, %v", n, e), func(t *testing.T) {
				c := newCatalogue(classes, n)
				sweep(t, len(classes), n, false, nil, func() (func([]int) string, *int) {
					s := newGhostScene(c, e, n)
					return s.checkGhosts, &s.decisions
				})
			})
		}
	}
}

func newGhostScene(c *catalogue, e environment, n int) *scene {
	s := newScene(c, e, n)
	s.state.Sidecars.Known = true
	s.catalogue = new(*c)
	s.quorumJustLost = map[rollout.Sighting]time.Duration{}
	for seen, age := range c.quorumJustLost {
		s.quorumJustLost[seen] = age
	}
	for _, id := range []uint64{id(0), id(1), id(2), 0x900, 0x901} {
		for _, condition := range []rollout.Condition{rollout.GhostSeen, rollout.MemberSeen} {
			s.quorumJustLost[rollout.Sighting{UID: fmt.Sprintf("%x", id), Condition: condition}] = long
		}
	}
	return s
}

func (s *scene) checkGhosts(members []int) string {
	w := newReckoning(s, members)
	if w.inconsistent {
		return ""
	}
	leader := 0
	for leader < s.n && !w.mayLead(leader) {
		leader++
	}
	well := !slices.ContainsFunc(w.members, func(c class) bool { return !c.survives() || !c.podReady() }) &&
		!s.local && w.surviving >= w.quorum && s.outsiders+s.ghosts > 0
	for _, m := range s.world(members, leader, false).Etcd.Members {
		ordinal := ordinalOf(m.Name)
		ours := m.ID < 0x900
		if ours && s.classes[members[ordinal]].pod != absent {
			continue
		}
		st := s.world(members, leader, false)
		st.Request = &rollout.Request{Operation: rollout.RequestRemoveMember, Cluster: clusterID, Member: m.ID,
			Name: m.Name}
		s.decisions++
		if s.mutate != nil {
			s.mutate(&st)
		}
		d, _ := ofDuty(rollout.Decide(st, s.policy), rollout.DutyGhosts)
		remove, removes := d.Action.(rollout.RemoveMember)
		ghost := !ours && s.left && !s.trusted && m.Probe.Read != rollout.Answered
		switch {
		case removes && remove.Member.ID != m.ID:
			return "another member is removed than was asked for"
		case removes && !ghost:
			return "what is no ghost is removed: " + m.Name + "\n" + list(w.members)
		case removes && !well:
			return "a ghost is removed while something is the matter\n" + list(w.members)
		case !removes && ghost && well:
			return fmt.Sprintf("a ghost is not removed: %s\n%s", d.Reason(), list(w.members))
		}
	}
	return ""
}

func TestEveryMutantThatRemovesMembersIsCaught(t *testing.T) {
	members := func(change func(m *rollout.Member)) func(*rollout.State) {
		return func(s *rollout.State) {
			s.Etcd.Members = slices.Clone(s.Etcd.Members)
			for i := range s.Etcd.Members {
				change(&s.Etcd.Members[i])
			}
		}
	}
	for _, mu := range []struct {
		name   string
		mutate func(*rollout.State)
		wrong  string
	}{
		{"it does not matter that a member serves", func(s *rollout.State) {
			members(func(m *rollout.Member) {
				if m.ID == s.Request.Member {
					m.Probe = rollout.Probe{Read: rollout.Failed}
				}
			})(s)
		}, "what is no ghost is removed"},
		{"it does not matter that it has a pod", func(s *rollout.State) {
			beyond := func(p rollout.Pod) bool { return p.Ordinal >= s.Set.Replicas }
			s.Pods = slices.DeleteFunc(slices.Clone(s.Pods), beyond)
		}, "what is no ghost is removed"},
		{"a member elsewhere is taken for a ghost", func(s *rollout.State) {
			called := func(name string) string { return strings.Replace(name, "elsewhere-0", "etcd-3", 1) }
			members(func(m *rollout.Member) { m.Name = called(m.Name) })(s)
			s.Request.Name = called(s.Request.Name)
		}, "what is no ghost is removed"},
		{"one of ours is taken for a ghost", func(s *rollout.State) {
			s.Set.Replicas = max(1, len(s.Pods))
		}, "what is no ghost is removed"},
		{"one member's own list will do", func(s *rollout.State) { s.Etcd.Linearizable = true },
			"something is the matter"},
		{"no other pod has to serve", eachMember(func(_ *rollout.State, p *rollout.Pod, m *rollout.Member) {
			p.Terminating, p.Ready, p.ContainersReady = false, true, true
			p.Etcd = rollout.Container{State: rollout.ContainerRunning, Ready: true}
			answering(m)
			m.Probe.Status.Leader = id(0)
		}), "something is the matter"},
		{"ghosts raise no quorum", func(s *rollout.State) {
			s.Etcd.Members = slices.DeleteFunc(slices.Clone(s.Etcd.Members), func(m rollout.Member) bool {
				return m.ID >= 0x900 && m.ID != s.Request.Member
			})
		}, "something is the matter"},
	} {
		t.Run(mu.name, func(t *testing.T) {
			classes := votersOf(allClasses(false))
			for _, e := range ghostEnvironments() {
				for n := 1; n <= 3; n++ {
					c := newCatalogue(classes, n)
					problem, worlds, _ := firstProblem(len(classes), n, false, nil, func() (func([]int) string, *int) {
						s := newGhostScene(c, e, n)
						s.mutate = mu.mutate
						return func(members []int) string {
							if problem := s.checkGhosts(members); strings.Contains(problem, mu.wrong) {
								return problem
							}
							return ""
						}, &s.decisions
					})
					if problem != "" {
						t.Logf("caught after %d worlds of %d members, %v: %s", worlds, n, e, problem)
						return
					}
				}
			}
			t.Errorf("not caught as %q", mu.wrong)
		})
	}
}
