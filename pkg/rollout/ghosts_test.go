package rollout_test

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/quorate/quorate/pkg/rollout"
)

// nobody is no guard: the ghost is removed.
const nobody rollout.Guard = ""

// left adds members that a scale-in has left behind: the next ordinals, which do not answer, have no pod,
// and have been silent for long enough.
func left(n int) change {
	return func(w *world) {
		for range n {
			o := len(w.state.Etcd.Members)
			w.state.Etcd.Members = append(w.state.Etcd.Members, rollout.Member{
				ID: id(o), Name: name(o),
				PeerURLs:   []string{"https://" + name(o) + ".etcd-peer.ns.svc:2380"},
				ClientURLs: []string{"https://" + name(o) + ".etcd-peer.ns.svc:2379"},
				Probe:      rollout.Probe{Read: rollout.Failed, Detail: "no connection: no such host"},
			})
		}
		w.with(membersSeen(w.policy.GhostAfter))
	}
}

// membersSeen: every member has been on the list, and every ghost has been one, for this long.
func membersSeen(d time.Duration) change {
	return func(w *world) {
		for i := range w.state.Etcd.Members {
			uid := strconv.FormatUint(w.state.Etcd.Members[i].ID, 16)
			w.state.Ages[rollout.Sighting{UID: uid, Condition: rollout.MemberSeen}] = d
			w.state.Ages[rollout.Sighting{UID: uid, Condition: rollout.GhostSeen}] = d
		}
	}
}

func seenFor(d time.Duration, ordinal int, conditions ...rollout.Condition) change {
	return func(w *world) {
		for _, c := range conditions {
			w.state.Ages[rollout.Sighting{UID: strconv.FormatUint(id(ordinal), 16), Condition: c}] = d
		}
	}
}

// asked: an operator asks for the removal of the ordinal's member, and every sidecar knows what that is.
func asked(ordinal int) change {
	return func(w *world) {
		w.state.Request = &rollout.Request{Operation: rollout.RequestRemoveMember, Cluster: clusterID,
			Member: id(ordinal), Name: w.member(ordinal).Name}
		w.state.Sidecars.Known = true
	}
}

func asks(change func(r *rollout.Request)) change {
	return func(w *world) { change(w.state.Request) }
}

func ofMember(ordinal int, f func(m *rollout.Member)) change {
	return func(w *world) { f(w.member(ordinal)) }
}

// answers: the member answers as the first one does.
func answersAgain(ordinal int) change {
	return ofMember(ordinal, func(m *rollout.Member) {
		m.Probe = rollout.Probe{Read: rollout.Answered, Status: &rollout.Status{Leader: id(0), Term: term, Index: index,
			Applied: index, Version: "3.5.35"}}
	})
}

func TestAGhostIsRemovedWhenAnOperatorAsks(t *testing.T) {
	four := func(changes ...change) *world {
		return cluster(3, append([]change{allUpdated(), left(1)}, changes...)...)
	}
	for _, tc := range []struct {
		name  string
		world *world
		// guard keeps it, or none; lasting is true where the request is refused.
		guard   rollout.Guard
		lasting bool
	}{
		{"a voter of an old scale-in", four(asked(3)), nobody, false},
		{"a learner of an old scale-in", four(asked(3), learner(3)), nobody, false},
		{"one of two", cluster(3, allUpdated(), left(2), asked(4)), nobody, false},
		{"one that has never started", four(ofMember(3, func(m *rollout.Member) { m.Name = "" }), asked(3)),
			nobody, false},
		{"while the rollout holds for the quorum that it raises", cluster(3, left(2), asked(3)), nobody, false},
		{"where members have a prefix", four(asked(3), prefixed("shoot-"),
			asks(func(r *rollout.Request) { r.Name = "shoot-etcd-3" })), nobody, false},
		{"where members are not called by their pods' names", four(asked(3), func(w *world) {
			for i := range w.state.Etcd.Members {
				w.state.Etcd.Members[i].PeerURLs = []string{"https://10.0.0." + strconv.Itoa(i+1) + ":2380"}
			}
		}), nobody, false},

		// The request.
		{"not by a request from another cluster, as after a restore",
			four(asked(3), asks(func(r *rollout.Request) { r.Cluster++ })), rollout.GuardRequestBinding, true},
		{"not one that has got another name since", four(asked(3), ofMember(3, func(m *rollout.Member) {
			m.Name = "etcd-4"
		})), rollout.GuardRequestBinding, true},
		{"not one that was asked for by another name",
			four(asked(3), asks(func(r *rollout.Request) { r.Name = "etcd-2" })), rollout.GuardRequestBinding, true},
		{"not without a member list", four(asked(3), func(w *world) { w.state.Etcd = rollout.Membership{} }),
			rollout.GuardRequestBinding, false},

		// What is no ghost.
		{"not one that serves", four(asked(3), answersAgain(3)), rollout.GuardNoGhost, true},
		{"not one of ours in range, even if it does not answer", four(asked(2), noAnswer(2)),
			rollout.GuardNoGhost, true},
		{"not one of ours in range whose pod is missing", four(asked(2), missing(2)), rollout.GuardNoGhost, true},
		{"not one that was renamed", four(ofMember(3, func(m *rollout.Member) { m.Name = "etcd-three" }), asked(3)),
			rollout.GuardNoGhost, true},
		{"not one without a name that lives elsewhere", four(ofMember(3, func(m *rollout.Member) {
			m.Name, m.PeerURLs = "", []string{"https://elsewhere:2380"}
		}), asked(3)), rollout.GuardNoGhost, true},
		{"not one without a name of which one URL is elsewhere", four(ofMember(3, func(m *rollout.Member) {
			m.Name, m.PeerURLs = "", append(m.PeerURLs, "https://elsewhere:2380")
		}), asked(3)), rollout.GuardNoGhost, true},
		{"not one without a name and without a URL", four(ofMember(3, func(m *rollout.Member) {
			m.Name, m.PeerURLs = "", nil
		}), asked(3)), rollout.GuardNoGhost, true},
		{"not a foreign one", cluster(3, allUpdated(), ghosts(1), func(w *world) {
			w.state.Request = &rollout.Request{Operation: rollout.RequestRemoveMember, Cluster: clusterID,
				Member: 0x900, Name: "ghost-0"}
		}, membersSeen(time.Hour)), rollout.GuardNoGhost, true},
		{"not one of another StatefulSet of the same cluster", four(ofMember(3, func(m *rollout.Member) {
			m.Name = "etcd-other-3"
		}), asked(3)), rollout.GuardNoGhost, true},
		{"not one of a StatefulSet of the same name in another namespace", four(ofMember(3, func(m *rollout.Member) {
			m.PeerURLs = []string{"https://etcd-3.etcd-peer.other.svc:2380"}
		}), asked(3)), rollout.GuardNoGhost, true},
		{"not one whose name is not how ordinals are written", four(ofMember(3, func(m *rollout.Member) {
			m.Name = "etcd-03"
		}), asked(3)), rollout.GuardNoGhost, true},
		{"not one that the operator relies on", four(asked(3), trusting("etcd-3")), rollout.GuardNoGhost, true},
		{"not where no pod shows how members are called", four(asked(3), func(w *world) { w.state.Pods = nil }),
			rollout.GuardNoGhost, true},
		{"not while its pod is pending", four(asked(3), podBeyond(3, func(p *rollout.Pod) {
			p.Ready, p.Etcd, p.Sidecar = false, rollout.Container{}, rollout.Container{}
		})), rollout.GuardNoGhost, false},
		{"not while its pod is on the far side of a partition", four(asked(3), podBeyond(3, func(p *rollout.Pod) {
			p.Terminating = true
		})), rollout.GuardNoGhost, false},
		{"not while somebody else's pod has its name", four(asked(3), podBeyond(3, func(p *rollout.Pod) {
			p.Owned = false
		})), rollout.GuardNoGhost, false},
		{"not while it is not known whether it answers", four(asked(3), ofMember(3, func(m *rollout.Member) {
			m.Probe = rollout.Probe{Detail: "cannot read the certificate"}
		})), rollout.GuardNoGhost, false},
		{"not while another member answers under its address", four(asked(3), ofMember(3, func(m *rollout.Member) {
			m.Probe = rollout.Probe{Read: rollout.WrongMember}
		})), rollout.GuardNoGhost, false},
		{"not before it has been silent for long enough", four(asked(3),
			seenFor(10*time.Minute-time.Second, 3, rollout.GhostSeen)), rollout.GuardNoGhost, false},
		{"not one that was added a moment ago", four(asked(3), seenFor(0, 3, rollout.GhostSeen, rollout.MemberSeen)),
			rollout.GuardNoGhost, false},

		// Everything else is well.
		{"not while a member of ours is behind a partition", four(asked(3), unknown(2)), rollout.GuardPodsServe, false},
		{"not while a pod of ours is missing", four(asked(3), missing(2)), rollout.GuardPodsServe, false},
		{"not while a pod of ours terminates", four(asked(3), terminating(2)), rollout.GuardPodsServe, false},
		{"not while a sidecar of ours is sick", four(asked(3), sick(2)), rollout.GuardPodsServe, false},
		{"not while a member of ours is a learner", four(asked(3), learner(2)), rollout.GuardPodsServe, false},
		{"not while somebody scales out", four(asked(3), func(w *world) { w.state.Set.Replicas = 5 }),
			rollout.GuardNoGhost, true},
		{"not while a pod is being scaled away", cluster(3, allUpdated(), left(2), asked(3), podBeyond(4, nil)),
			rollout.GuardMembershipMoves, false},
		{"not while the host adds a learner", four(asked(3), stranger(func(m *rollout.Member) { m.Learner = true })),
			rollout.GuardMembershipMoves, false},
		{"not while another member has never started",
			four(asked(3), stranger(func(m *rollout.Member) { m.Name = "" })), rollout.GuardMembershipMoves, false},
		{"not while another member was added lately", four(asked(3), seenFor(time.Minute, 1, rollout.MemberSeen)),
			rollout.GuardMembershipMoves, false},
		{"not by one member's own list", four(asked(3), localList(3)), rollout.GuardGhostQuorum, false},
		{"not where those that serve are no quorum", cluster(3, allUpdated(), left(3), asked(3)),
			rollout.GuardGhostQuorum, false},
		{"not where only a voter elsewhere makes them a quorum, which may go at any time",
			cluster(3, allUpdated(), left(3), outsiders(1), membersSeen(time.Hour), asked(3)),
			rollout.GuardGhostQuorum, false},
		{"not while it is not known which sidecars there are", four(asked(3), func(w *world) {
			w.state.Sidecars.Known = false
		}), rollout.GuardOldSidecars, false},
		{"not while a sidecar is there that does not know what that is", four(asked(3), func(w *world) {
			w.state.Sidecars.Old = []string{"etcd-1"}
		}), rollout.GuardOldSidecars, false},
		{"not while another one may still be removed", cluster(3, allUpdated(), left(2), asked(3), suspecting(4)),
			rollout.GuardSuspectMember, true},
		{"the suspect itself, once more", four(asked(3), suspecting(3)), nobody, false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			d, asks := ofDuty(tc.world.decide(), rollout.DutyGhosts)
			if !asks {
				t.Fatal("the duty has nothing to say")
			}
			if tc.guard == nobody {
				remove, ok := d.Action.(rollout.RemoveMember)
				if r := tc.world.state.Request; !ok || !d.Acts() || remove.Member.ID != r.Member ||
					remove.Member.Cluster != clusterID || len(remove.Member.List) != len(tc.world.state.Etcd.Members) {
					t.Errorf("%s %s: %s", d.Action.Name(), d.Guard, d.Reason())
				}
				return
			}
			if d.Guard != tc.guard || d.Acts() || (d.Action == rollout.Hold{}) != tc.lasting {
				t.Errorf("%s %s instead of %s: %s", d.Action.Name(), d.Guard, tc.guard, d.Reason())
			}
		})
	}
}

// ofDuty is what a duty has decided, alone or beside another.
func ofDuty(d rollout.Decision, duty rollout.DutyName) (rollout.Decision, bool) {
	all := append([]rollout.Decision{d}, d.Others...)
	i := slices.IndexFunc(all, func(d rollout.Decision) bool { return d.Duty == duty })
	if i < 0 {
		return rollout.Decision{}, false
	}
	return all[i], true
}

// podBeyond adds a pod of an ordinal that is out of range.
func podBeyond(ordinal int, f func(p *rollout.Pod)) change {
	return func(w *world) {
		p := healthyPod(ordinal, newRev, 1)
		if f != nil {
			f(&p)
		}
		w.state.Pods = append(w.state.Pods, p)
	}
}

// stranger adds a member elsewhere that answers.
func stranger(f func(m *rollout.Member)) change {
	return func(w *world) {
		w.with(outsiders(1), membersSeen(time.Hour))
		f(&w.state.Etcd.Members[len(w.state.Etcd.Members)-1])
	}
}

// prefixed: the members are called like their pods with this before it.
func prefixed(prefix string) change {
	return func(w *world) {
		for i := range w.state.Pods {
			w.state.Pods[i].MemberName = prefix + w.state.Pods[i].Name
		}
		for i := range w.state.Etcd.Members {
			w.state.Etcd.Members[i].Name = prefix + w.state.Etcd.Members[i].Name
		}
	}
}

func suspecting(ordinal int) change {
	return func(w *world) { w.state.Suspect = rollout.Suspect{ID: id(ordinal), Name: name(ordinal)} }
}

func TestWhoIsAGhostIsKnownWithoutARequest(t *testing.T) {
	a := rollout.Assess(cluster(3, left(2), learner(4)).state, rollout.DefaultPolicy())
	if len(a.Ghosts) != 2 || a.Ghosts[0].Pod != "etcd-3" || !a.Lasting(&a.Ghosts[1]) {
		t.Fatalf("%+v", a.Ghosts)
	}
	voters, quorum := a.AfterRemoval(&a.Ghosts[0])
	if a.Voters != 4 || a.Quorum != 3 || voters != 3 || quorum != 2 {
		t.Errorf("%d voters, quorum %d; then %d, %d", a.Voters, a.Quorum, voters, quorum)
	}
	if voters, quorum = a.AfterRemoval(&a.Ghosts[1]); voters != 4 || quorum != 3 {
		t.Errorf("a learner: %d, %d", voters, quorum)
	}
	seen := a.Sightings()
	for _, want := range []rollout.Sighting{{UID: "4", Condition: rollout.GhostSeen},
		{UID: "1", Condition: rollout.MemberSeen}} {
		if !slices.Contains(seen, want) {
			t.Errorf("%v is not noted: %v", want, seen)
		}
	}
	for _, s := range rollout.Assess(cluster(3, outsiders(1)).state, rollout.DefaultPolicy()).Sightings() {
		if s.Condition.OfMember() {
			t.Errorf("%v is noted where there is no ghost", s)
		}
	}
}

func TestNothingIsSaidOfGhostsWithoutARequest(t *testing.T) {
	ghost := cluster(3, left(1), asked(3))
	for what, change := range map[string]change{
		"no request":              func(w *world) { w.state.Request = nil },
		"another duty's":          asks(func(r *rollout.Request) { r.Operation = "defragment" }),
		"it is gone already":      asks(func(r *rollout.Request) { r.Member = 0x77 }),
		"the rollout is paused":   func(w *world) { w.state.Controls.Paused = true },
		"the revision may be old": func(w *world) { w.state.Set.Generation++ },
	} {
		w := &world{state: ghost.state, policy: ghost.policy}
		r := *ghost.state.Request
		w.state.Request = &r
		if d, said := ofDuty(w.with(change).decide(), rollout.DutyGhosts); said {
			t.Errorf("%s: %s %s: %s", what, d.Action.Name(), d.Guard, d.Reason())
		}
	}
}

func TestAGhostIsNotRemovedWithoutTheLockAndThatIsTold(t *testing.T) {
	d := cluster(3, allUpdated(), left(1), asked(3), noLock).decide()
	if d.Duty != rollout.DutyGhosts || say(d) != "wait" || !strings.Contains(d.Reason(), "without the lock") ||
		!strings.Contains(d.Reason(), "etcd-3 (ID 4); make sure that every other member serves, and remove each with "+
			"`etcdctl member remove ID`") {
		t.Errorf("%s: %s: %s", d.Duty, say(d), d.Reason())
	}
}

func TestARolloutGoesBeforeAGhost(t *testing.T) {
	d := cluster(5, left(1), asked(5)).decide()
	if d.Duty != rollout.DutyRoll || !d.Acts() {
		t.Errorf("%s: %s %s", d.Duty, d.Action.Name(), d.Reason())
	}
	if d, _ := ofDuty(d, rollout.DutyGhosts); d.Action.Name() != rollout.ActionRemoveMember {
		t.Errorf("beside it: %s", d.Action.Name())
	}
}

// A suspect may be removed at any moment, and may answer until then.
// The update of the sidecars may be held by ghosts, and their removal by the sidecars. What the guards advise leads
// out of that.
func TestTheUpdateOfOldSidecarsIsNotHeldForEverByGhosts(t *testing.T) {
	w := cluster(3, updated(2), aged(rollout.ReadySeen, long, 2), left(2), asked(3), func(w *world) {
		w.state.Sidecars.Old = []string{"etcd-0", "etcd-1"}
	})
	d := w.decide()
	if ghosts, _ := ofDuty(d, rollout.DutyGhosts); say(d) != "hold QuorumFloor" ||
		ghosts.Guard != rollout.GuardOldSidecars {
		t.Fatalf("%s, and beside it %s", say(d), say(ghosts))
	}
	if do := rollout.RowOf(rollout.GuardQuorumFloor).Do; !strings.Contains(do, "see OldSidecars") {
		t.Errorf("QuorumFloor advises: %s", do)
	}
	do := rollout.RowOf(rollout.GuardOldSidecars).Do
	for _, way := range []string{
		"quorate override -n NAMESPACE NAME OldSidecars --reason=TEXT", "etcdctl member remove ID",
	} {
		if !strings.Contains(do, way) {
			t.Errorf("OldSidecars does not advise %s: %s", way, do)
		}
	}
	if d := w.with(overriding(rollout.GuardOldSidecars)).decide(); d.Duty != rollout.DutyGhosts || !d.Acts() {
		t.Errorf("overridden: %s", say(d))
	}
}

func TestASuspectCountsAsAVoterAndNeverStays(t *testing.T) {
	back := func(n int, changes ...change) *world {
		return cluster(n, append([]change{suspecting(n - 1)}, changes...)...)
	}
	for _, tc := range []struct {
		name  string
		world *world
		pod   string
		guard rollout.Guard
	}{
		{"of three, none goes", back(3), "etcd-1", rollout.GuardQuorumFloor},
		{"of three, the suspect itself may", back(3), "etcd-2", nobody},
		{"of five, one would be the second that is away", back(5), "etcd-3", rollout.GuardUnavailableBudget},
		{"of five, with two that may be", back(5, maxUnavailable(2), updated(0)), "etcd-3", nobody},
		{"one elsewhere that is trusted", cluster(2, outsiders(1), trusting("ghost-0"), func(w *world) {
			w.state.Suspect.ID = 0x900
		}), "etcd-1", rollout.GuardQuorumFloor},
		{"a process that is down is not let go because it may vote", cluster(5, dead(0), alive(1, 2), suspecting(2)),
			"etcd-1", rollout.GuardMayVote},
		{"nor because the suspect serves", cluster(3, alive(0, 1), suspecting(2)), "etcd-1", rollout.GuardMayVote},
		{"nor is quorum taken for there because of it", cluster(3, alive(0, 1), suspecting(2)), "etcd-1",
			rollout.GuardQuorumPatience},
		{"its data may not count", cluster(3, volatileData(), suspecting(2), overriding(rollout.GuardQuorumFloor)),
			"etcd-1", rollout.GuardDataSurvives},
		{"its word on a local list does not count", cluster(3, localList(2), suspecting(2)), "etcd-1",
			rollout.GuardVotersUnknown},
	} {
		t.Run(tc.name, func(t *testing.T) {
			d := tc.world.decide()
			i := slices.IndexFunc(d.Candidates, func(c rollout.Candidate) bool { return c.Pod == tc.pod })
			if i < 0 {
				t.Fatalf("%s is no candidate", tc.pod)
			}
			got := []string{}
			for _, v := range d.Candidates[i].Verdicts {
				if !v.Pass {
					got = append(got, string(v.Guard))
				}
			}
			if tc.guard == nobody && len(got) > 0 || tc.guard != nobody && !slices.Contains(got, string(tc.guard)) {
				t.Errorf("%s does not pass %v, and not %q", tc.pod, got, tc.guard)
			}
			without := *tc.world
			without.state.Suspect = rollout.Suspect{}
			d = without.decide()
			i = slices.IndexFunc(d.Candidates, func(c rollout.Candidate) bool { return c.Pod == tc.pod })
			for _, v := range d.Candidates[i].Verdicts {
				if v.Guard == tc.guard && !v.Pass {
					t.Errorf("%s holds without a suspect as well: %s", v.Guard, v.Detail())
				}
			}
		})
	}
}

func TestASuspectIsNoWitnessOfALostNode(t *testing.T) {
	lost := each([]int{2}, func(w *world, o int) { w.pod(o).Ready = false })
	for _, tc := range []struct {
		world *world
		want  rollout.Evidence
	}{
		{cluster(3, unknown(2), lost), rollout.Down},
		{cluster(3, unknown(2), lost, suspecting(1)), rollout.Unknown},
	} {
		if got := rollout.Assess(tc.world.state, tc.world.policy).Replicas[2].Evidence; got != tc.want {
			t.Errorf("%s, want %s", got, tc.want)
		}
	}
}

func TestLeadershipDoesNotMoveToASuspect(t *testing.T) {
	d := cluster(5, updated(1, 2, 3, 4), suspecting(4), maxUnavailable(2)).decide()
	move, ok := d.Action.(rollout.MoveLeader)
	if !ok || move.Transfer.To == id(4) {
		t.Errorf("%s %+v: %s", d.Action.Name(), d.Action, d.Reason())
	}
}

func TestAPlanEndsBehindTheGhost(t *testing.T) {
	var said []string
	for _, d := range rollout.Predict(cluster(3, left(2), asked(3)).state, cluster(3).policy) {
		said = append(said, fmt.Sprint(d.Action.Name(), " ", d.Target().Pod))
	}
	// With four voters, three serve, and none of them can be spared.
	if got := strings.Join(said, ", "); got != "RemoveMember , Hold " {
		t.Error(got)
	}
}
