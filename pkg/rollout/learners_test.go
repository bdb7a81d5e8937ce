package rollout_test

import (
	"strings"
	"testing"
	"time"

	"github.com/quorate/quorate/pkg/rollout"
)

// deniesToVote: etcd's list has these as voters, and they say themselves that they are learners.
func deniesToVote(ordinals ...int) change {
	return each(ordinals, func(w *world, o int) { w.member(o).Probe.Status.Learner = true })
}

func TestALearnerProvesNothingBeforeItIsPromoted(t *testing.T) {
	const patience = 5 * time.Minute
	waits := "its member is a learner, waiting to be promoted"
	for _, tc := range []struct {
		name string
		w    *world
		want string
		says string
	}{
		{"it is no canary", cluster(5, updated(4), learner(4)), "wait UpdatedPending", waits},
		{"not even where several may go at once", cluster(5, updated(4), learner(4), maxUnavailable(3)),
			"wait UpdatedPending", waits},
		{"nor does another go beside it once the revision is proved", cluster(5, updated(3, 4), learner(4)),
			"wait UpdatedPending", waits},
		{"when it is promoted the rollout goes on", cluster(5, updated(3, 4)), "delete etcd-2", ""},
		{"it is behind: nobody can promote it yet", cluster(5, updated(4), learner(4), behind(9000, 4)),
			"wait UpdatedPending",
			"its member is a learner, catches up: applied 1000 of 10000 log entries, 9000 behind"},
		{"it is not promoted in time", cluster(3, updated(2), learner(2), aged(rollout.UnsettledSeen, patience, 2)),
			"hold UpdatedFailing", "etcdctl member promote 3"},
		{"one that does not answer is not promoted by a command", cluster(3, updated(2), learner(2), alive(2),
			aged(rollout.UnsettledSeen, patience, 2)), "hold UpdatedFailing", "if the template is to blame, fix it"},
		{"a scale-out from one to three: the host promotes one after the other",
			cluster(3, updated(1, 2), learner(1, 2)),
			"wait UpdatedPending", waits},
		{"one of them votes", cluster(3, updated(1, 2), learner(2)), "wait UpdatedPending", "etcd-2: " + waits},
		{"all of them vote", cluster(3, updated(1, 2)), "move leadership from etcd-0 to etcd-1", ""},
		{"everything is up to date, and a learner is left", cluster(3, allUpdated(), learner(2)), "wait UpdatedPending",
			waits},

		{"a dead pod goes all the same", cluster(5, updated(4), learner(4), dead(3)), "delete etcd-3", ""},
		{"so does a dead learner, after the voters", cluster(5, learner(4), dead(3, 4)), "delete etcd-3", ""},
		{"and alone", cluster(5, learner(4), dead(4)), "delete etcd-4", ""},
		{"an outdated learner goes like a follower", cluster(5, learner(4)), "delete etcd-4", ""},
		{"it holds no voter", cluster(5, learner(4), updated(3)), "delete etcd-4", ""},
		{"nor does one that does not answer", cluster(5, learner(4), unknown(4), updated(3)), "delete etcd-2", ""},
		{"below the partition everything is as it was", cluster(3, updated(1, 2), partition(1)), "complete", ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			d := tc.w.decide()
			if got := say(d); got != tc.want || !strings.Contains(d.Reason(), tc.says) {
				t.Errorf("%s: %s", got, d.Reason())
			}
		})
	}
}

func TestAVoterThatCallsItselfALearnerDoesNotServe(t *testing.T) {
	word := "a voter by etcd's list, and a learner by its own word"
	for _, tc := range []struct {
		name string
		w    *world
		want string
		says string
	}{
		{"it is updated, and may have been promoted just now", cluster(3, updated(2), deniesToVote(2)),
			"wait UpdatedPending", word},
		{"the real voters are both needed, because the list counts three", cluster(3, deniesToVote(2)), "delete etcd-2",
			word},
		{"where it may not go, none does", cluster(3, deniesToVote(2), updated(2, 1)), "wait UpdatedPending", word},
		{"two of five are", cluster(5, deniesToVote(3, 4), updated(2), maxUnavailable(5)), "delete etcd-4", word},
		{"it is no heir", cluster(3, updated(1, 2), deniesToVote(1)), "wait UpdatedPending", word},
		{"another one is", cluster(5, updated(1, 2, 3), sick(4), deniesToVote(4), maxUnavailable(2)),
			"move leadership from etcd-0 to etcd-1", ""},
		{"its term is nobody's witness", cluster(3, answeredAt(term+1, 2), deniesToVote(2)), "delete etcd-2", word},
		{"a learner by both is a learner",
			cluster(5, learner(4), deniesToVote(4)), "delete etcd-4", "a learner, waiting"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			d := tc.w.decide()
			if got := say(d); got != tc.want || !strings.Contains(d.Reason(), tc.says) {
				t.Errorf("%s: %s", got, d.Reason())
			}
		})
	}
	if got := rollout.Assess(cluster(3, deniesToVote(2)).state, rollout.DefaultPolicy()); got.Voters != 3 ||
		got.Serving != 2 {
		t.Errorf("voters %d, serving %d; want 3 and 2", got.Voters, got.Serving)
	}
}
