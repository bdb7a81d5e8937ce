package rollout_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/quorate/quorate/pkg/rollout"
)

// Whoever is told that something ends by itself goes back to sleep.
func TestADecisionSaysWhatStaysUntilSomebodyActs(t *testing.T) {
	const stays = "it stays so until somebody acts"
	for _, tc := range []struct {
		name, want, says string
		w                *world
	}{
		{"its node is lost", "wait Terminating", stays, cluster(3, ends(30*time.Second, time.Hour, 2))},
		{"a finalizer keeps it", "wait Terminating", stays,
			cluster(3, ends(30*time.Second, time.Hour, 2), each([]int{2}, func(w *world, o int) {
				w.pod(o).Finalizers = []string{"example.com/keep"}
			}))},
		{"a quota refuses it", "wait Terminating", stays, cluster(3, missing(2), func(w *world) {
			w.state.Set.NotCreated = "exceeded quota"
		})},
		{"it has a certificate that has expired", "wait UpdatedPending", stays,
			cluster(3, updated(2), alive(2), barredBy(rollout.ByCertificate, expiredWords, 2))},
		{"it ends within its grace period", "wait Terminating", "", cluster(3, ends(time.Hour, time.Minute, 2))},
		{"it has just been removed", "wait Terminating", "", cluster(3, missing(2))},
		{"it comes up", "wait UpdatedPending", "", cluster(3, updated(2), starting(2))},
		{"what fails is held anyway", "hold UpdatedFailing", "", cluster(3, updated(2), dead(2))},
		{"a live process has its time", "wait QuorumPatience",
			"a live process is left alone for 300 s without quorum, and may be replaced after that, when nothing " +
				"else is coming up", cluster(3, alive(0, 1, 2), quorumLostFor(time.Minute))},
	} {
		t.Run(tc.name, func(t *testing.T) {
			d := tc.w.decide()
			if got := say(d); got != tc.want || d.LeftAlone() != tc.says {
				t.Errorf("%s: %q, want %s: %q", got, d.LeftAlone(), tc.want, tc.says)
			}
		})
	}
}

func TestTheAdviceAtLostQuorumHasTheSetting(t *testing.T) {
	w := cluster(3, alive(0, 1, 2), quorumLostFor(time.Minute))
	w.policy.SettleTimeout = 7 * time.Minute
	d := w.decide()
	if do := d.Do(); !strings.HasPrefix(do, "Bring a peer back.") || !strings.Contains(do, " 420 s ") {
		t.Errorf("%s: %s", say(d), do)
	}
}

// unnamed adds a voter that has never started, at an address that none of our pods has.
func unnamed(w *world) {
	w.state.Etcd.Members = append(w.state.Etcd.Members, rollout.Member{ID: 0x1e61,
		PeerURLs: []string{"https://10.9.9.9:2380"}, Probe: rollout.Probe{Read: rollout.Failed}})
}

func TestAVoterWithoutAPodIsNamedWithTheWayOut(t *testing.T) {
	scaledInFrom4 := func(w *world) {
		w.state.Set.Replicas, w.state.Pods = 3, w.state.Pods[:3]
		w.with(noAnswer(3))
	}
	for _, tc := range []struct {
		name    string
		w       *world
		reason  string
		do, not []string
	}{
		{"it has never started", cluster(3, unnamed),
			"voters without a pod here: 1e61 (https://10.9.9.9:2380, has never started)",
			[]string{"1e61 has never started", "`etcdctl member remove 1e61`"},
			[]string{"quorate remove-member -n garden etcd 1e61"}},
		{"it is elsewhere, and does not answer", cluster(3, ghosts(1)),
			"ghost-0 (ID 900, https://10.0.0.9:2379, does not serve)",
			[]string{"ghost-0 does not serve", "`etcdctl member remove 900`"}, nil},
		{"it is elsewhere, and serves", cluster(3, outsiders(2)),
			"ghost-0 (ID 900, https://10.0.0.9:2379, serves)",
			[]string{"`trusted-members`", "`etcdctl member remove 900`", "`etcdctl member remove 901`"}, nil},
		{"a scale-in has left it behind", cluster(4, scaledInFrom4, func(w *world) { w.with(noAnswer(0)) }),
			"etcd-3 (ID 4, https://etcd-3.etcd-peer.ns.svc:2380, does not serve)",
			[]string{"`quorate remove-member -n garden etcd etcd-3`"}, []string{"etcdctl member remove 4"}},
		{"and nobody else can remove it without the lock",
			cluster(4, scaledInFrom4, func(w *world) { w.with(noAnswer(0)); w.state.NoLock = true }), "etcd-3 (ID 4",
			[]string{"`etcdctl member remove 4`"}, []string{"quorate remove-member -n garden etcd etcd-3"}},
		{"it may be the member of one of our pods", cluster(3, unmatched(0, 1, 2)), "could not be matched to a member",
			nil,
			[]string{"etcdctl member remove 1`"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			tc.w.state.Set.Namespace = "garden"
			d := tc.w.decide()
			at := slices.IndexFunc(d.Candidates, func(c rollout.Candidate) bool {
				return strings.Contains(detailOf(d, c.Pod, rollout.GuardQuorumFloor), tc.reason)
			})
			if d.Guard != rollout.GuardQuorumFloor || at < 0 {
				t.Errorf("%s: %s", say(d), d.Reason())
			}
			for _, part := range tc.do {
				if !strings.Contains(d.Do(), part) {
					t.Errorf("it does not advise %q: %s", part, d.Do())
				}
			}
			for _, part := range tc.not {
				if strings.Contains(d.Do(), part) {
					t.Errorf("it advises %q: %s", part, d.Do())
				}
			}
		})
	}
}

func TestMembersThatCannotBeToldApartAreToldFirst(t *testing.T) {
	d := cluster(3, onlyShared(rollout.WrongMember, 0, 1, 2)).decide()
	if do := d.Do(); say(d) != "hold QuorumFloor" || !strings.HasPrefix(do, "Give each member an address of its own") {
		t.Errorf("%s: %s", say(d), do)
	}
	if do := cluster(3, unknown(0, 1, 2)).decide(); strings.HasPrefix(do.Do(), "Give each member") {
		t.Errorf("they have addresses of their own: %s", do.Do())
	}
}

func TestAResizeIsNoDrain(t *testing.T) {
	resized := each([]int{1}, func(w *world, o int) { w.pod(o).Leaving = rollout.LeavesToResize })
	for _, tc := range []struct {
		name       string
		w          *world
		do         string
		uncordons  bool
		beginsWith bool
	}{
		{"a resize", cluster(3, resized), "kubectl describe pod -n garden etcd-1", false, true},
		{"a resize and a drain", cluster(5, resized, cordoned(time.Minute, 3)),
			"kubectl describe pod -n garden etcd-1", true, true},
		{"a drain", cluster(3, cordoned(time.Minute, 1)), "uncordon it", true, false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			tc.w.state.Set.Namespace = "garden"
			d := tc.w.decide()
			do := d.Do()
			if say(d) != "wait OthersLeaving" || !strings.Contains(do, tc.do) ||
				strings.Contains(do, "uncordon it") != tc.uncordons ||
				strings.HasPrefix(do, "Let the resize") != tc.beginsWith {
				t.Errorf("%s: %s", say(d), do)
			}
		})
	}
}

func TestALearnerIsPromotedByItsID(t *testing.T) {
	d := cluster(3, updated(2), learner(2), aged(rollout.UnsettledSeen, patience, 2)).decide()
	if do := d.Do(); say(d) != "hold UpdatedFailing" || !strings.Contains(do, "`etcdctl member promote 3`") {
		t.Errorf("%s: %s", say(d), do)
	}
}
