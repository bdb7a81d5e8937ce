package rollout_test

import (
	"slices"
	"testing"
	"time"

	"github.com/quorate/quorate/pkg/rollout"
)

func replicaOf(w *world, ordinal int) rollout.Replica {
	a := rollout.Assess(w.state, w.policy)
	i := slices.IndexFunc(a.Replicas, func(r rollout.Replica) bool { return r.Ordinal == ordinal })
	return a.Replicas[i]
}

// Two witnesses: etcd's answer and the kubelet's word on etcd-2 of three.
func TestEvidenceNeedsTwoWitnesses(t *testing.T) {
	answers := map[string]change{
		"answers":              func(*world) {},
		"does not answer":      noAnswer(2),
		"was not asked":        func(w *world) { w.member(2).Probe = rollout.Probe{} },
		"is answered for":      func(w *world) { w.member(2).Probe = rollout.Probe{Read: rollout.WrongMember} },
		"is not in the list":   func(w *world) { w.state.Etcd.Members = w.state.Etcd.Members[:2] },
		"cannot be known of":   noMemberList(),
		"is a ready learner":   learner(2),
		"is a learner, silent": func(w *world) { w.with(learner(2), noAnswer(2)) },
	}
	etcdContainer := func(state rollout.ContainerState, reason string) change {
		return func(w *world) {
			w.with(notReady(2))
			w.pod(2).Etcd = rollout.Container{State: state, Reason: reason}
		}
	}
	kubelets := map[string]change{
		"ready":              func(*world) {},
		"sick sidecar":       sick(2),
		"running, not ready": notReady(2),
		"crash loop":         etcdContainer(rollout.ContainerWaiting, "CrashLoopBackOff"),
		"creating":           etcdContainer(rollout.ContainerWaiting, "ContainerCreating"),
		"terminated":         etcdContainer(rollout.ContainerTerminated, "Error"),
		"pending":            etcdContainer(rollout.ContainerAbsent, ""),
		"terminating":        terminating(2),
		"missing": func(w *world) {
			w.state.Pods = slices.DeleteFunc(w.state.Pods, func(p rollout.Pod) bool { return p.Ordinal == 2 })
		},
		"somebody else's pod": func(w *world) { w.pod(2).Owned = false },
		"node lost":           func(w *world) { w.pod(2).Ready = false },
		"node lost or gated": func(w *world) {
			w.pod(2).Ready, w.pod(2).ReadinessGates = false, true
		},
		"ready but not running": func(w *world) { w.pod(2).Etcd.State = rollout.ContainerWaiting },
	}
	down := []string{
		"running, not ready",
		"crash loop",
		"creating",
		"terminated",
		"pending",
		"terminating",
		"missing",
		"somebody else's pod",
		"node lost",
		"ready but not running",
	}
	wantDown := map[string][]string{
		"does not answer":      down,
		"is not in the list":   down,
		"is a learner, silent": down,
		"cannot be known of":   {"crash loop", "terminated"}, // The only things a kubelet says for certain.
	}
	for answer, etcd := range answers {
		for word, kubelet := range kubelets {
			want := rollout.Unknown
			switch {
			case answer == "answers", answer == "is a ready learner":
				want = rollout.Serving
			case slices.Contains(wantDown[answer], word):
				want = rollout.Down
			}
			// etcd's word last: some of the kubelet's changes touch nothing of it.
			if got := replicaOf(cluster(3, kubelet, etcd), 2).Evidence; got != want {
				t.Errorf("a member that %s, with the kubelet saying %q, is %v, want %v", answer, word, got, want)
			}
		}
	}
}

// etcd-io/etcd#20418: what was paused answers one read from before the pause.
func TestAReadProvesThatAMemberServesOnlyAtTheNewestTermThatAnyReadHas(t *testing.T) {
	learnerAhead := func(w *world) {
		w.with(answeredAt(term), learner(2))
		w.member(2).Probe.ReadTerm = term + 1
	}
	for _, tc := range []struct {
		name    string
		world   *world
		ordinal int
		want    rollout.Evidence
		serving int
	}{
		{"one at the newest term serves", cluster(3, answeredAt(term-1, 2)), 1, rollout.Serving, 2},
		{"one behind is Unknown", cluster(3, answeredAt(term-1, 2)), 2, rollout.Unknown, 2},
		{"it is Unknown also when its kubelet says that it is not ready",
			cluster(3, answeredAt(term-1, 2), notReady(2)), 2, rollout.Unknown, 2},
		{"the only one that answers serves: so quorum is never taken for lost",
			cluster(3, answeredAt(term-1, 0), noAnswer(1, 2)), 0, rollout.Serving, 1},
		{"a term that is not known says nothing", cluster(3, answeredAt(0, 2)), 2, rollout.Serving, 3},
		{"the read of a learner is not linearizable: its term counts for nothing",
			cluster(3, learnerAhead), 1, rollout.Serving, 2},
		{"nor does that of a status",
			cluster(3, answeredAt(term), func(w *world) {
				w.member(2).Probe.Status.Term,
					w.member(2).Probe.Read = term+9, rollout.Failed
			}), 1, rollout.Serving, 2},
		{"a member elsewhere counts", cluster(3, outsiders(1), answeredAt(term-1, 0, 1, 2)), 1, rollout.Unknown, 1},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if got := replicaOf(tc.world, tc.ordinal).Evidence; got != tc.want {
				t.Errorf("got %v, want %v", got, tc.want)
			}
			if got := rollout.Assess(tc.world.state, tc.world.policy).Serving; got != tc.serving {
				t.Errorf("%d serve, want %d", got, tc.serving)
			}
		})
	}
}

func TestALostNodeCountsOnlyWhileAQuorumOfOthersServes(t *testing.T) {
	lost := func(w *world) {
		w.with(noAnswer(2))
		w.pod(2).Ready = false
	}
	for _, tc := range []struct {
		name  string
		world *world
		want  rollout.Evidence
	}{
		{"both others serve", cluster(3, lost), rollout.Down},
		{"one other of two serves", cluster(3, lost, noAnswer(1)), rollout.Unknown},
		{"three others of four serve", cluster(5, lost, noAnswer(4)), rollout.Down},
		{"two others of four serve", cluster(5, lost, noAnswer(3, 4)), rollout.Unknown},
		{"learners are no quorum", cluster(4, lost, learner(1), ghosts(1)), rollout.Unknown},
		{"a learner is lost, and the voters serve", cluster(3, lost, learner(2)), rollout.Down},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if got := replicaOf(tc.world, 2).Evidence; got != tc.want {
				t.Errorf("got %v, want %v", got, tc.want)
			}
		})
	}
}

func TestDownIsSplitByTheContainer(t *testing.T) {
	for _, tc := range []struct {
		name   string
		change change
		want   rollout.Liveness
	}{
		{"a running container that is not ready is alive", alive(2), rollout.Alive},
		{"CrashLoopBackOff is dead", waitingFor("CrashLoopBackOff", 2), rollout.Dead},
		{"ImagePullBackOff is dead", waitingFor("ImagePullBackOff", 2), rollout.Dead},
		{"ErrImagePull is dead", waitingFor("ErrImagePull", 2), rollout.Dead},
		{"InvalidImageName is dead", waitingFor("InvalidImageName", 2), rollout.Dead},
		{"RunContainerError is dead", waitingFor("RunContainerError", 2), rollout.Dead},
		{"CreateContainerConfigError is dead", waitingFor("CreateContainerConfigError", 2), rollout.Dead},
		{"CreateContainerError is dead", waitingFor("CreateContainerError", 2), rollout.Dead},
		{"ContainerCreating is starting", waitingFor("ContainerCreating", 2), rollout.Starting},
		{"PodInitializing is starting", waitingFor("PodInitializing", 2), rollout.Starting},
		{"waiting without a reason is starting", waitingFor("", 2), rollout.Starting},
		{"a failing init container leaves etcd starting", func(w *world) {
			w.with(waitingFor("CrashLoopBackOff", 2))
			w.pod(2).Initialized = false
		}, rollout.Starting},
		{"a container without a status is starting", func(w *world) {
			w.with(alive(2))
			w.pod(2).Etcd = rollout.Container{}
		}, rollout.Starting},
		{"terminated just now is starting", func(w *world) {
			w.with(alive(2), aged(rollout.TerminatedSeen, 10*time.Second-1, 2))
			w.pod(2).Etcd.State = rollout.ContainerTerminated
		}, rollout.Starting},
		{"terminated for deadAfter is dead", func(w *world) {
			w.with(alive(2), aged(rollout.TerminatedSeen, 10*time.Second, 2))
			w.pod(2).Etcd.State = rollout.ContainerTerminated
		}, rollout.Dead},
		{"a member that answers for itself is alive: its kubelet was asked before, and lags",
			func(w *world) { w.with(dead(2), answersForItself(2)) }, rollout.Alive},
		{"a member that serves is not down, whatever its container",
			func(w *world) { w.pod(2).Etcd.State = rollout.ContainerTerminated }, rollout.NotDown},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if got := replicaOf(cluster(3, tc.change), 2).Liveness; got != tc.want {
				t.Errorf("got %v, want %v", got, tc.want)
			}
		})
	}
}

func TestAPodFindsItsMember(t *testing.T) {
	for _, tc := range []struct {
		name   string
		change change
		want   uint64 // 0 for none
	}{
		{"by its name", func(w *world) { w.member(2).PeerURLs, w.member(2).ClientURLs = nil, nil }, id(2)},
		{"by the name that the host gives it",
			func(w *world) { w.member(2).Name, w.pod(2).MemberName = "shoot--x-etcd-2", "shoot--x-etcd-2" }, id(2)},
		{"by its peer URL, when it has never started",
			func(w *world) { w.member(2).Name, w.member(2).ClientURLs = "", nil }, id(2)},
		{"by its client URL", func(w *world) { w.member(2).Name, w.member(2).PeerURLs = "", nil }, id(2)},
		{"by a URL without a port or domain", func(w *world) {
			w.member(2).Name, w.member(2).ClientURLs, w.member(2).PeerURLs = "", nil, []string{"http://etcd-2"}
		}, id(2)},
		{"by its name rather than by another's URL", func(w *world) {
			w.member(1).PeerURLs = w.member(2).PeerURLs
		}, id(2)},
		{"by its URL rather than by the lack of a name", func(w *world) {
			w.member(1).Name, w.member(2).Name, w.pod(2).MemberName = "", "", ""
		}, id(2)},
		{"not by a name that only begins alike", func(w *world) {
			w.member(2).Name, w.member(2).ClientURLs, w.member(2).PeerURLs = "", nil, []string{"https://etcd-22.x:2380"}
		}, 0},
		{"not at all, when only addresses are known", func(w *world) {
			w.member(2).Name, w.member(2).ClientURLs, w.member(2).PeerURLs = "", nil, []string{"https://10.0.0.7:2380"}
		}, 0},
	} {
		t.Run(tc.name, func(t *testing.T) {
			got := uint64(0)
			if m := replicaOf(cluster(3, tc.change), 2).Member; m != nil {
				got = m.ID
			}
			if got != tc.want {
				t.Errorf("member %x, want %x", got, tc.want)
			}
		})
	}
}

func TestTheLeaderIsWhomAMajorityNamesAtTheHighestTerm(t *testing.T) {
	says := func(ordinal int, leader, at uint64) change {
		return func(w *world) {
			w.member(ordinal).Probe.Status.Leader, w.member(ordinal).Probe.Status.Term = leader, at
		}
	}
	for _, tc := range []struct {
		name  string
		world *world
		want  uint64
	}{
		{"all agree", cluster(3), id(0)},
		{"one at an older term is not asked", cluster(3, says(1, id(2), term+1), says(2, id(2), term+1)), id(2)},
		{"a single member at a new term is believed", cluster(3, says(1, id(1), term+1)), id(1)},
		{"nobody knows a leader", cluster(3, says(0, 0, term), says(1, 0, term), says(2, 0, term)), 0},
		{"one of two that answer is no majority", cluster(3, noAnswer(2), says(1, 0, term)), 0},
		{"two of three are", cluster(3, says(2, 0, term)), id(0)},
		{"a member that is cut off, and raises its own term without end, hides nobody",
			cluster(3, says(2, 0, term+99), func(w *world) { w.member(2).Probe.Read = rollout.Failed }), id(0)},
		{"nor does one whose answer is from before a pause",
			cluster(3, says(2, id(2), term-1), answeredAt(term-1, 2)), id(0)},
		{"where nobody serves, all are asked", cluster(3, func(w *world) {
			for o := range 3 {
				w.member(o).Probe.Read = rollout.Failed
			}
		}), id(0)},
		{"one of three that names another is overruled", cluster(3, says(1, 0, term)), id(0)},
		{"three that name three agree on none",
			cluster(3, says(0, id(0), term), says(1, 0, term), says(2, id(2), term)), 0},
		{"a leader that the list does not name is none", cluster(3, leads(8)), 0},
		{"nobody answers", cluster(3, noAnswer(0, 1, 2)), 0},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if got := rollout.Assess(tc.world.state, tc.world.policy).Leader; got != tc.want {
				t.Errorf("leader %x, want %x", got, tc.want)
			}
		})
	}
}

func TestVotersComeFromTheMemberList(t *testing.T) {
	for _, tc := range []struct {
		name                               string
		world                              *world
		voters, quorum, serving, externals int
	}{
		{"three", cluster(3), 3, 2, 3, 0},
		{"four replicas, three members", cluster(3, replicas(4)), 3, 2, 3, 0},
		{"a ghost raises the quorum", cluster(3, ghosts(1)), 4, 3, 3, 1},
		{"a member elsewhere serves", cluster(3, outsiders(2)), 5, 3, 5, 2},
		{"a learner is no voter", cluster(3, learner(2)), 2, 2, 2, 0},
		{"one that does not answer does not serve", cluster(3, unknown(2)), 3, 2, 2, 0},
		{"a learner elsewhere is neither",
			cluster(3, outsiders(1), func(w *world) { w.state.Etcd.Members[3].Learner = true }), 3, 2, 3, 0},
		{"no list, no quorum", cluster(3, noMemberList()), 0, 0, 0, 0},
	} {
		t.Run(tc.name, func(t *testing.T) {
			a := rollout.Assess(tc.world.state, tc.world.policy)
			if a.Voters != tc.voters || a.Quorum != tc.quorum || a.Serving != tc.serving ||
				len(a.External) != tc.externals {
				t.Errorf("voters %d, quorum %d, serving %d, external %d; want %d, %d, %d, %d",
					a.Voters, a.Quorum, a.Serving, len(a.External), tc.voters, tc.quorum, tc.serving, tc.externals)
			}
		})
	}
}

func TestSightingsNameWhatIsWorthAnAge(t *testing.T) {
	seen := func(o int, cs ...rollout.Condition) (out []rollout.Sighting) {
		for _, c := range cs {
			out = append(out, rollout.Sighting{UID: uid(o, 1), Condition: c})
		}
		return out
	}
	gone := func(o int) []rollout.Sighting {
		return []rollout.Sighting{{UID: name(o), Condition: rollout.AwaySeen}}
	}
	lost := []rollout.Sighting{{Condition: rollout.QuorumLostSeen}}
	for _, tc := range []struct {
		name  string
		world *world
		want  []rollout.Sighting
	}{
		{"an outdated pod in health is there and Ready", cluster(1), seen(0, rollout.PodSeen, rollout.ReadySeen)},
		{"so is an updated one", cluster(1, updated(0)), seen(0, rollout.PodSeen, rollout.ReadySeen)},
		{"an updated pod with a sick sidecar is unsettled",
			cluster(1, updated(0), sick(0)), seen(0, rollout.PodSeen, rollout.UnsettledSeen)},
		{"an updated pod whose member catches up has its time to settle afterwards",
			cluster(2, updated(0, 1), behind(6000, 1)),
			slices.Concat(seen(0, rollout.PodSeen, rollout.ReadySeen), seen(1, rollout.PodSeen, rollout.ReadySeen))},
		{"one that lags and follows no leader is unsettled", cluster(2, updated(0, 1), behind(6000, 1), follows(0, 1)),
			slices.Concat(seen(0, rollout.PodSeen, rollout.ReadySeen),
				seen(1, rollout.PodSeen, rollout.ReadySeen, rollout.UnsettledSeen))},
		{"an outdated pod with a sick sidecar is not worth an age", cluster(1, sick(0)), seen(0, rollout.PodSeen)},
		{"quorum is lost when nobody serves",
			cluster(1, unknown(0)), slices.Concat(lost, seen(0, rollout.PodSeen, rollout.ReadySeen))},
		{"quorum counts as lost when there is no member list",
			cluster(1, noMemberList()), slices.Concat(lost, seen(0, rollout.PodSeen, rollout.ReadySeen))},
		{"a dead container does not run",
			cluster(1, dead(0)), slices.Concat(lost, seen(0, rollout.PodSeen, rollout.NotRunningSeen))},
		{"a terminated container is terminated and does not run",
			cluster(1, alive(0), func(w *world) { w.pod(0).Etcd.State = rollout.ContainerTerminated }),
			slices.Concat(lost, seen(0, rollout.PodSeen, rollout.TerminatedSeen, rollout.NotRunningSeen))},
		{"a crash loop is restarting",
			cluster(1, dead(0), restarted(0)), slices.Concat(lost, seen(0, rollout.PodSeen, rollout.NotRunningSeen,
				rollout.RestartingSeen))},
		{"it is restarting also while it runs for a moment",
			cluster(1, alive(0), restarted(0)), slices.Concat(lost, seen(0, rollout.PodSeen, rollout.RestartingSeen))},
		{"what restarted and is ready again is not",
			cluster(1, restarted(0)), seen(0, rollout.PodSeen, rollout.ReadySeen)},
		{"a node that is cordoned is told of its pod", cluster(1, cordoned(0, 0)),
			seen(0, rollout.PodSeen, rollout.ReadySeen, rollout.CordonedSeen)},
		{"a missing pod is away, by its name", cluster(2, missing(1)),
			slices.Concat(seen(0, rollout.PodSeen, rollout.ReadySeen), gone(1))},
		{"so is one that terminates, beside what else is seen of it", cluster(2, terminating(1)),
			slices.Concat(seen(0, rollout.PodSeen, rollout.ReadySeen), gone(1),
				seen(1, rollout.PodSeen, rollout.ReadySeen))},
		{"and one out of range", cluster(2, replicas(1)),
			slices.Concat(seen(0, rollout.PodSeen, rollout.ReadySeen), gone(1))},
		{"one voter that serves is enough for quorum not to be seen lost",
			cluster(3, missing(1, 2)), slices.Concat(seen(0, rollout.PodSeen, rollout.ReadySeen), gone(1), gone(2))},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if got := rollout.Assess(tc.world.state, tc.world.policy).Sightings(); !slices.Equal(got, tc.want) {
				t.Errorf("\n got %v\nwant %v", got, tc.want)
			}
		})
	}
}
