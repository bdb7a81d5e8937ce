package rollout_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/quorate/quorate/pkg/rollout"
)

// offTheList: these pods are not on etcd's list.
func offTheList(ordinals ...int) change {
	return func(w *world) {
		w.state.Etcd.Members = slices.DeleteFunc(w.state.Etcd.Members, func(m rollout.Member) bool {
			return slices.ContainsFunc(ordinals, func(o int) bool { return m.ID == id(o) })
		})
	}
}

func TestAPodThatIsNotOnTheListMayVoteInAClusterOfItsOwn(t *testing.T) {
	for _, tc := range []struct {
		name string
		w    *world
		want string
		says string
	}{
		{"three Ready pods, and one member", cluster(3, offTheList(1, 2)), "hold PodsListed", "etcd-1, etcd-2"},
		{"one pod of five, and more members than needed", cluster(5, offTheList(4)), "hold PodsListed", "etcd-4"},
		{"even where several may go at once",
			cluster(5, offTheList(4), maxUnavailable(3)), "hold PodsListed", "etcd-4"},
		{"an updated one that was Ready once", cluster(5, offTheList(4), updated(3, 4), maxUnavailable(3)),
			"wait UpdatedPending", "it is not on etcd's member list"},
		{"whoever knows better overrides it",
			cluster(5, offTheList(4), maxUnavailable(3), overriding(rollout.GuardPodsListed)), "delete etcd-3", ""},

		{"its container has ended just now: it is a candidate, as before", cluster(5, notReady(4), restarting(4),
			offTheList(4)), "delete etcd-4", ""},
		{"it is dead: it goes first", cluster(5, dead(4), offTheList(4)), "delete etcd-4", ""},
		{"it runs and is not ready: it is a candidate, as before",
			cluster(5, notReady(4), offTheList(4)), "delete etcd-4",
			""},

		{"an updated one that comes up for the first time: its host adds it",
			cluster(5, offTheList(4), updated(3, 4), notReady(4), neverReady(4), maxUnavailable(3)),
			"delete etcd-2", ""},
		{"an updated one that starts, and whose member was removed", cluster(3, updated(2), starting(2), neverReady(2),
			offTheList(2)), "wait UpdatedPending", "it is not on etcd's member list"},
		{"an updated one that crash-loops", cluster(5, updated(3, 4), dead(4), neverReady(4), offTheList(4)),
			"hold UpdatedFailing", "it is not on etcd's member list"},
		{"an updated one that starts: nothing of it votes",
			cluster(5, updated(3, 4), starting(4), maxUnavailable(3), offTheList(4)), "delete etcd-2", ""},
		{"an updated one whose containers nobody tells of", cluster(5, updated(3, 4), starting(4), untold(4),
			maxUnavailable(3), offTheList(4)), "wait UpdatedPending", "it is not on etcd's member list"},
		{"its pod terminates",
			cluster(5, updated(3), offTheList(4), terminating(4), maxUnavailable(3)), "delete etcd-2", ""},
		{"the host has added it again, as a learner", cluster(5, learner(4)), "delete etcd-4", ""},
		{"every pod is on the list", cluster(5), "delete etcd-4", ""},
		{"nobody has a list", cluster(3, dead(2), noMemberList()), "delete etcd-2", ""},
		{"the members have other names than the pods", cluster(3, unmatched(0, 1, 2)), "hold QuorumFloor",
			"could not be matched to a member"},
		{"a voter elsewhere may be the one in the pod", cluster(7, unmatched(6)), "delete etcd-6", ""},
		{"what an ordinal has left behind is not in the pod",
			cluster(7, offTheList(6), leftBehind(8), maxUnavailable(3)),
			"hold PodsListed", "etcd-6"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			d := tc.w.decide()
			if got := say(d); got != tc.want || !strings.Contains(d.Reason(), tc.says) {
				t.Errorf("%s: %s", got, d.Reason())
			}
		})
	}
}

// restarting: the container has ended just now, and its kubelet is about to start it again.
func restarting(ordinals ...int) change {
	return func(w *world) {
		w.with(aged(rollout.TerminatedSeen, time.Second, ordinals...), each(ordinals, func(w *world, o int) {
			w.pod(o).Etcd.State = rollout.ContainerTerminated
		}))
	}
}

// leftBehind adds a voter that an ordinal beyond ours has left behind.
func leftBehind(ordinal int) change {
	return func(w *world) {
		w.state.Etcd.Members = append(w.state.Etcd.Members, rollout.Member{
			ID: id(ordinal), Name: name(ordinal), Probe: rollout.Probe{Read: rollout.Failed},
		})
	}
}

// untold: nobody says what becomes of the container.
func untold(ordinals ...int) change {
	return each(ordinals, func(w *world, o int) { w.pod(o).Etcd = rollout.Container{} })
}
