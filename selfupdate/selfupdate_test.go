package selfupdate_test

import (
	"fmt"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/quorate/quorate/pkg/rollout"
	"github.com/quorate/quorate/selfupdate"
)

// A scene is three pods and their sidecars: etcd-0 is the coordinator's own, outdated;
// etcd-1 is outdated and serves; etcd-2 is updated and has settled. Both peers wait for
// the lock, etcd-1 for longer. The decision is to wait; when the own pod is next, it has
// been for long enough.
type scene struct {
	decision rollout.Decision
	replicas []rollout.Replica
	peers    []selfupdate.Peer
	waited   time.Duration
}

func newScene() *scene {
	s := &scene{decision: rollout.Decision{Action: rollout.Wait{}}, waited: selfupdate.LineUp}
	for i := range 3 {
		name := fmt.Sprintf("etcd-%d", i)
		s.replicas = append(s.replicas, rollout.Replica{
			Ordinal: i, Name: name, Pod: &rollout.Pod{Name: name, UID: fmt.Sprintf("u%d", i)},
			Evidence: rollout.Serving, Self: i == 0, Outdated: i < 2, Settled: i == 2,
		})
		if i > 0 {
			s.peers = append(s.peers, selfupdate.Peer{
				Presence: selfupdate.Presence{Pod: name, UID: fmt.Sprintf("u%d", i)}, Waiting: true, Key: "lock/" +
					name, Queued: int64(i),
			})
		}
	}
	return s
}

func (s *scene) choose() selfupdate.Choice {
	s.decision.Assessment = &rollout.Assessment{Replicas: s.replicas}
	return selfupdate.Choose(s.decision, s.peers, true, s.waited)
}

// act is a decision about the pod of an ordinal.
func (s *scene) act(a rollout.ActionName, ordinal int) {
	target := rollout.Target{Pod: s.replicas[ordinal].Name, UID: s.replicas[ordinal].Pod.UID, Ordinal: ordinal}
	s.decision.Action = rollout.Remove{Target: target}
	if a == rollout.ActionMoveLeader {
		s.decision.Action = rollout.MoveLeader{Target: target}
	}
}

func TestWhoCoordinatesFromHereOn(t *testing.T) {
	ownNext := func(s *scene) { s.act(rollout.ActionRemove, 0) }
	// alone leaves only the outdated peer, so that it is about the own pod alone.
	alone := func(s *scene) {
		s.replicas, s.peers = s.replicas[:2], s.peers[:1]
		ownNext(s)
	}
	const updated, next = "runs the updated code, has settled and waits for the lock", "is next, and"
	for _, tc := range []struct {
		name  string
		scene func(*scene)
		want  string // the peer, empty for nobody
		why   string
	}{
		// New code leads.
		{"an updated peer that has settled, is fit and waits, although another has waited longer", func(*scene) {},
			"etcd-2", updated},
		{"the same while a rollout holds", func(s *scene) { s.decision.Action = rollout.Hold{} }, "etcd-2", updated},
		{"the same before leadership is moved", func(s *scene) { s.act(rollout.ActionMoveLeader, 1) }, "etcd-2",
			updated},
		{"the same before another pod is removed", func(s *scene) { s.act(rollout.ActionRemove, 1) }, "etcd-2",
			updated},
		{"the same before the own pod is removed", ownNext, "etcd-2", updated},
		{"nobody while the updated one has not settled", func(s *scene) { s.replicas[2].Settled = false }, "", ""},
		{"nobody while the updated one is unfit", func(s *scene) { s.peers[1].Unfit = "forbidden" }, "", ""},
		{"nobody while the updated one does not wait for the lock", func(s *scene) { s.peers[1].Waiting = false }, "",
			""},
		{"nobody while the updated one's sidecar is not there", func(s *scene) { s.peers = s.peers[:1] }, "", ""},
		{"nobody when the updated one was replaced: a pod of that name is another",
			func(s *scene) { s.replicas[2].Pod.UID = "new" }, "", ""},
		{"nobody when the updated one is on its way out",
			func(s *scene) { s.replicas[2].Pod.Terminating = true }, "", ""},
		{"nobody when the updated one's pod is gone", func(s *scene) { s.replicas[2].Pod = nil }, "", ""},
		{"nobody when the one that has settled is outdated as well",
			func(s *scene) { s.replicas[2].Outdated = true }, "", ""},
		{"nobody when the coordinator is updated itself", func(s *scene) { s.replicas[0].Outdated = false }, "", ""},
		{"nobody when the only one that waits runs outside a pod", func(s *scene) {
			s.peers = []selfupdate.Peer{{Waiting: true, Queued: 1}}
		}, "", ""},
		{"of two updated ones the one that has waited longest, in any order", func(s *scene) {
			s.replicas[1].Outdated, s.replicas[1].Settled = false, true
		}, "etcd-1", updated},
		{"the same the other way round", func(s *scene) {
			s.replicas[1].Outdated, s.replicas[1].Settled = false, true
			s.peers[0], s.peers[1] = s.peers[1], s.peers[0]
		}, "etcd-1", updated},

		// The own pod.
		{"an outdated peer when the own pod is next", alone, "etcd-1", next},
		{"nobody when another pod is next", func(s *scene) {
			alone(s)
			s.act(rollout.ActionRemove, 1)
		}, "", ""},
		{"nobody when the own pod only leads for now", func(s *scene) {
			alone(s)
			s.act(rollout.ActionMoveLeader, 0)
		}, "", ""},
		{"an outdated peer even if the coordinator is updated: its template has changed again", func(s *scene) {
			alone(s)
			s.replicas[0].Outdated = false
		}, "etcd-1", next},
		{"nobody when the peer's member does not serve", func(s *scene) {
			alone(s)
			s.replicas[1].Evidence = rollout.Unknown
		}, "", ""},
		{"nobody when the peer's sidecar is not well", func(s *scene) {
			alone(s)
			s.replicas[1].SidecarSick = true
		}, "", ""},
		{"nobody when the peer is unfit", func(s *scene) {
			alone(s)
			s.peers[0].Unfit = "forbidden"
		}, "", ""},
		{"nobody when the peer does not wait", func(s *scene) {
			alone(s)
			s.peers[0].Waiting = false
		}, "", ""},
		{"nobody when the peer is on its way out", func(s *scene) {
			alone(s)
			s.replicas[1].Pod.Terminating = true
		}, "", ""},
		{"nobody in a cluster of one: it replaces its own pod", func(s *scene) {
			s.replicas, s.peers = s.replicas[:1], nil
			ownNext(s)
		}, "", ""},
		{"not oneself, whose place in the queue may still be seen", func(s *scene) {
			s.replicas = s.replicas[:1]
			s.peers = []selfupdate.Peer{{Presence: selfupdate.Presence{Pod: "etcd-0", UID: "u0"}, Waiting: true}}
			ownNext(s)
		}, "", ""},
		{"of two outdated ones the one that has waited longest", func(s *scene) {
			s.replicas[2].Outdated, s.replicas[2].Settled = true, false
			s.peers[0].Queued, s.peers[1].Queued = 9, 8
			ownNext(s)
		}, "etcd-2", next},

		// Nothing to hand over.
		{"nobody when the rollout is over", func(s *scene) { s.decision.Action = rollout.Complete{} }, "", ""},
		{"nobody when it is not ours", func(s *scene) { s.decision.Action = rollout.Idle{} }, "", ""},
		{"nobody outside a member's pod", func(s *scene) { s.replicas[0].Self = false }, "", ""},
		{"nobody when the own pod is gone already", func(s *scene) { s.replicas[0].Pod = nil }, "", ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			s := newScene()
			tc.scene(s)
			c := s.choose()
			got := ""
			if c.To != nil {
				got = c.To.Pod
			}
			if c.Await != "" {
				t.Fatalf("waits for %s (%s)", c.Await, c.Reason)
			}
			if got != tc.want {
				t.Fatalf("chose %q, want %q (%s)", got, tc.want, c.Reason)
			}
			if got != "" && (!strings.Contains(c.Reason, tc.why) || !strings.Contains(c.Reason, got)) || got == "" &&
				c.Reason != "" {
				t.Errorf("reason %q", c.Reason)
			}
			if got != "" && c.To.Key != "lock/"+got {
				t.Errorf("its place in the queue is %q", c.To.Key)
			}
		})
	}
}

func TestBeforeTheOwnPodGoesTheSidecarOfAnUpdatedPodMayLineUp(t *testing.T) {
	for _, tc := range []struct {
		name      string
		scene     func(*scene)
		await, to string
	}{
		{"one that is not there yet", func(s *scene) { s.peers = s.peers[:1] }, "etcd-2", ""},
		{"one that is there and does not wait yet", func(s *scene) { s.peers[1].Waiting = false }, "etcd-2", ""},
		{"one whose predecessor is still in the queue", func(s *scene) { s.replicas[2].Pod.UID = "new" }, "etcd-2", ""},
		{"one that is not there, although there is nobody else", func(s *scene) { s.peers = nil }, "etcd-2", ""},
		{"not for ever", func(s *scene) {
			s.peers = s.peers[:1]
			s.waited = selfupdate.LineUp
		}, "", "etcd-1"},
		{"not one that waits already", func(*scene) {}, "", "etcd-2"},
		{"not one that is unfit", func(s *scene) { s.peers[1].Unfit, s.peers[1].Waiting = "forbidden", false }, "",
			"etcd-1"},
		{"not one that has not settled", func(s *scene) {
			s.peers = s.peers[:1]
			s.replicas[2].Settled = false
		}, "", "etcd-1"},
		{"not one that is outdated", func(s *scene) {
			s.peers = s.peers[:1]
			s.replicas[2].Outdated = true
		}, "", "etcd-1"},
		{"not one that is on its way out", func(s *scene) {
			s.peers = s.peers[:1]
			s.replicas[2].Pod.Terminating = true
		}, "", "etcd-1"},
		{"not when another pod is next", func(s *scene) {
			s.peers = s.peers[:1]
			s.act(rollout.ActionRemove, 1)
		}, "", ""},
		{"not when another updated one waits already", func(s *scene) {
			s.replicas[1].Outdated, s.replicas[1].Settled = false, true
			s.peers = s.peers[:1]
		}, "", "etcd-1"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			s := newScene()
			s.waited = selfupdate.LineUp - 1
			s.act(rollout.ActionRemove, 0)
			tc.scene(s)
			c := s.choose()
			to := ""
			if c.To != nil {
				to = c.To.Pod
			}
			if c.Await != tc.await || to != tc.to {
				t.Fatalf("awaits %q, chose %q: %s", c.Await, to, c.Reason)
			}
			if c.Await != "" && !strings.Contains(c.Reason,
				"etcd-0 is next, and the sidecar of etcd-2 has yet to line up") {
				t.Errorf("reason %q", c.Reason)
			}
		})
	}
}

func TestAFallbackCoordinatorLetsTheSidecarOfAMemberThatServesReplaceItsOwnPod(t *testing.T) {
	for _, tc := range []struct {
		name  string
		scene func(*scene)
		await string
	}{
		{"whoever that is, and whether or not it is known", func(s *scene) { s.peers = nil }, "etcd-1"},
		{"not for ever", func(s *scene) { s.waited = selfupdate.LineUp }, ""},
		{"not when another pod is next", func(s *scene) { s.act(rollout.ActionRemove, 1) }, ""},
		{"not one that is on its way out", func(s *scene) { s.replicas[1].Pod.Terminating = true }, "etcd-2"},
		{"not one whose sidecar is sick", func(s *scene) { s.replicas[1].SidecarSick = true }, "etcd-2"},
		{"not where quorum is lost, so that no member serves", func(s *scene) {
			s.replicas[1].Evidence, s.replicas[2].Evidence = rollout.Down, rollout.Unknown
		}, ""},
		{"not where there is no other member", func(s *scene) { s.replicas = s.replicas[:1] }, ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			s := newScene()
			s.waited = selfupdate.LineUp - 1
			s.act(rollout.ActionRemove, 0)
			tc.scene(s)
			s.decision.Assessment = &rollout.Assessment{Replicas: s.replicas}
			if c := selfupdate.Choose(s.decision, nil, false, s.waited); c.Await != tc.await || c.To != nil {
				t.Errorf("awaits %q, want %q: %s", c.Await, tc.await, c.Reason)
			}
		})
	}
}

func TestTheOwnPodIsNextWhenItIsToBeRemoved(t *testing.T) {
	for _, tc := range []struct {
		name  string
		scene func(*scene)
		want  bool
	}{
		{"it is", func(s *scene) { s.act(rollout.ActionRemove, 0) }, true},
		{"another one is", func(s *scene) { s.act(rollout.ActionRemove, 1) }, false},
		{"its member is to be defragmented, which may cost us the lock", func(s *scene) {
			s.act(rollout.ActionRemove, 0)
			s.decision.Action = rollout.Defragment{Target: s.decision.Target()}
		}, true},
		{"it only leads for now", func(s *scene) { s.act(rollout.ActionMoveLeader, 0) }, false},
		{"nothing is decided", func(*scene) {}, false},
		{"outside a member's pod there is none", func(s *scene) {
			s.act(rollout.ActionRemove, 0)
			s.replicas[0].Self = false
		}, false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			s := newScene()
			tc.scene(s)
			s.decision.Assessment = &rollout.Assessment{Replicas: s.replicas}
			if got := selfupdate.OwnPodNext(s.decision); got != tc.want {
				t.Errorf("%v", got)
			}
		})
	}
}

func TestWithoutAnAssessmentNobodyIsChosen(t *testing.T) {
	if c := selfupdate.Choose(rollout.Decision{Action: rollout.Hold{}}, newScene().peers, true, 0); c.To != nil ||
		c.Await != "" {
		t.Errorf("%+v", c)
	}
}

func TestAnybodyIsAFitPeer(t *testing.T) {
	for _, tc := range []struct {
		name  string
		peers []selfupdate.Peer
		want  bool
	}{
		{"nobody is there", nil, false},
		{"one waits", []selfupdate.Peer{{Waiting: true}}, true},
		{"one is there and does not wait yet", []selfupdate.Peer{{}}, true},
		{"one waits and is unfit", []selfupdate.Peer{{Waiting: true,
			Presence: selfupdate.Presence{Unfit: "forbidden"}}}, false},
		{"one of several", []selfupdate.Peer{{Waiting: true, Presence: selfupdate.Presence{Unfit: "forbidden"}},
			{Waiting: true}}, true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if got := selfupdate.Anybody(tc.peers); got != tc.want {
				t.Errorf("%v", got)
			}
		})
	}
}

func TestWhoDoesNotKnowTheNewestRecordIsNamed(t *testing.T) {
	peers := []selfupdate.Peer{
		{Presence: selfupdate.Presence{Pod: "etcd-1", UID: "b"}},
		{Presence: selfupdate.Presence{Pod: "etcd-2", UID: "c", Schema: 2}},
	}
	set := rollout.Set{UpdateRevision: "rev-2"}
	pods := []rollout.Pod{
		{Name: "etcd-0", UID: "a", Owned: true, Revision: "rev-2"}, {Name: "etcd-1", UID: "b", Owned: true},
		{Name: "etcd-2", UID: "c", Owned: true}, {Name: "etcd-3", UID: "d", Owned: true, Revision: "rev-2"},
	}
	for _, tc := range []struct {
		name  string
		peers []selfupdate.Peer
		known bool
		self  string
		want  rollout.Sidecars
	}{
		{"by its own word", peers, true, "",
			rollout.Sidecars{Known: true, Present: []string{"b", "c"}, Old: []string{"etcd-1"}}},
		{"or, without one, by another revision than ours", nil, true, "a",
			rollout.Sidecars{Known: true, Present: []string{"a"}, Old: []string{"etcd-1", "etcd-2"}}},
		{"or, outside a pod, by another one than the newest", nil, true, "",
			rollout.Sidecars{Known: true, Old: []string{"etcd-1", "etcd-2"}}},
		{"as far as it is known who is there", nil, false, "b",
			rollout.Sidecars{Present: []string{"b"}, Old: []string{"etcd-0", "etcd-3"}}},
		{"and a word counts more than a revision", peers, true, "a",
			rollout.Sidecars{Known: true, Present: []string{"a", "b", "c"}, Old: []string{"etcd-1"}}},
		{"and whoever has a word is present: a pod that is there, and not one that was there before it",
			[]selfupdate.Peer{{Presence: selfupdate.Presence{Pod: "etcd-2", UID: "c", Schema: 2, Unfit: "forbidden"}},
				{Presence: selfupdate.Presence{Pod: "etcd-3", UID: "an earlier one", Schema: 2}},
				{Presence: selfupdate.Presence{Schema: 2}}},
			true, "a", rollout.Sidecars{Known: true, Present: []string{"a", "c"}, Old: []string{"etcd-1"}}},
	} {
		if got := selfupdate.Sidecars(tc.peers, tc.known, 2, set, pods, tc.self); !reflect.DeepEqual(got, tc.want) {
			t.Errorf("%s: %+v, want %+v", tc.name, got, tc.want)
		}
	}
}
