package main

import (
	"errors"
	"path/filepath"
	"testing"
	"time"

	"github.com/quorate/quorate/internal/report"
	"github.com/quorate/quorate/pkg/rollout"
)

// Whoever runs plan far away names the guard that the coordinator names, although what
// decides it may be nothing that could be seen: how long the coordinator has seen it, what
// it was refused, which policy it was given. The plan that knows nothing of the
// coordinator shows that it is the memory which makes them agree.
func TestPlanNamesTheCoordinatorsGuard(t *testing.T) {
	age := func(c rollout.Condition, uid string, d time.Duration) func(*report.Sight) {
		return func(s *report.Sight) {
			ages := map[rollout.Sighting]time.Duration{}
			for seen, age := range s.State.Ages {
				ages[seen] = age
			}
			ages[rollout.Sighting{UID: uid, Condition: c}] = d
			s.State.Ages = ages
		}
	}
	uid := func(i int) string { return string(newPod(i).UID) }
	for _, tc := range []struct {
		name    string
		change  func(*world)
		memory  func(*report.Sight)
		want    string
		without string
	}{
		{
			"a broken revision that crashes", broken, nil, "Hold - UpdatedFailing UpdatedSettle",
			"Hold - UpdatedFailing UpdatedSettle",
		},
		{"a broken revision that is Ready and does not serve", func(w *world) {
			w.updated(2, 10*time.Minute)
			w.members[2].unhealthy = true
		}, age(rollout.UnsettledSeen, uid(2), 9*time.Minute),
			"Hold - UpdatedFailing UpdatedSettle", "Wait - UpdatedPending UpdatedSettle"},
		{"a broken revision that a new coordinator has seen for a moment only", func(w *world) {
			w.updated(2, 10*time.Minute)
			w.silent(2, 9*time.Minute)
		}, age(rollout.UnsettledSeen, uid(2), 4*time.Second),
			"Wait - UpdatedPending UpdatedSettle", "Hold - UpdatedFailing UpdatedSettle"},
		{"members that are unknown", func(w *world) {
			for _, m := range w.members[1:] {
				m.unhealthy = true
			}
		}, nil, "Hold - QuorumFloor Serving", "Hold - QuorumFloor Serving"},
		{"quorum that a new coordinator has seen lost for a moment only", func(w *world) { w.quorumLost(time.Hour) },
			age(rollout.QuorumLostSeen, "", 20*time.Second),
			"Wait - QuorumPatience NotServingFirst", "Remove etcd-main-2 - NotServingFirst"},
		{"quorum lost for long while a probe keeps succeeding", func(w *world) { w.quorumLost(time.Minute) },
			age(rollout.QuorumLostSeen, "", time.Hour),
			"Remove etcd-main-2 - NotServingFirst", "Wait - QuorumPatience NotServingFirst"},
		{"ghost voters", func(w *world) {
			for i := 3; i < 5; i++ {
				m := w.addMember(i, "etcd-main-"+string(rune('0'+i)))
				m.noStatus, m.unhealthy = true, true
			}
		}, nil, "Hold - QuorumFloor Serving", "Hold - QuorumFloor Serving"},
		{"paused", setting("quorate.dev/paused", "true"), nil, "Hold - Paused Held", "Hold - Paused Held"},
		{
			"evictions that were refused", healthy, evictionsRefused, "Wait - DisruptionBudget Serving",
			"Remove etcd-main-2 - Serving",
		},
		{"a host's gate", healthy, func(s *report.Sight) {
			s.State.Gates = []rollout.Gate{{Name: report.GateBackup, Detail: "no snapshot"}}
		}, "Hold - HostGates Serving", "Remove etcd-main-2 - Serving"},
		{"transfers of leadership that failed", func(w *world) { w.settled(1, 2) }, func(s *report.Sight) {
			s.State.FailedTransfers = map[uint64]int{memberID(0): rollout.MaxTransferFailures}
		}, "Remove etcd-main-0 - Serving", "MoveLeader etcd-main-0 - HandOverLeadership"},
		{"data that differ", func(w *world) { w.members[1].behind = 40_000 }, func(s *report.Sight) {
			s.State.Differ = []rollout.Difference{
				{More: memberID(0), Less: memberID(1), Looks: 5, For: 10 * time.Second},
			}
		}, "Hold - DataAgrees Serving", "Wait - DataAgrees Serving"},
		{"another policy", func(w *world) {
			w.updated(2, 10*time.Minute)
			w.silent(2, 9*time.Minute)
		}, func(s *report.Sight) { s.Policy.SettleTimeout = time.Hour },
			"Wait - UpdatedPending UpdatedSettle", "Hold - UpdatedFailing UpdatedSettle"},
		{
			"the coordinator's own pod goes last", healthy,
			func(s *report.Sight) { s.Coordinator, s.State.Self = "etcd-main-2", "etcd-main-2" },
			"Remove etcd-main-1 - Serving", "Remove etcd-main-2 - Serving",
		},
	} {
		t.Run(tc.name, func(t *testing.T) {
			plan := func(w *world) string {
				t.Helper()
				out, err := runPlan(t, append(w.dumped(t), "-o", "json")...)
				if err != nil && !errors.Is(err, errWaiting) {
					t.Fatal(err)
				}
				return summaryOf(t, out)
			}
			if got := plan(with(3, tc.change)); got != tc.without {
				t.Errorf("without the coordinator's word: %q, want %q", got, tc.without)
			}
			for _, word := range []struct {
				age  time.Duration
				want string
			}{{3 * time.Second, tc.want}, {12 * time.Minute, tc.without}} {
				w := with(3, tc.change)
				var changes []func(*report.Sight)
				if tc.memory != nil {
					changes = append(changes, tc.memory)
				}
				w.tells(t, now.Add(-word.age), changes...)
				told, _, err := report.FromNotes(w.lease.Annotations)
				if err != nil || summary(told.Plan) != tc.want {
					t.Fatalf("%v: the coordinator says %+v", err, told.Plan)
				}
				if got := plan(w); got != word.want {
					t.Errorf("with a word that is %v old: %q, want %q", word.age, got, word.want)
				}
			}
		})
	}
}

// Who gives a policy of his own wants to know what that would do.
func TestAPolicyFlagWinsOverTheCoordinatorsPolicy(t *testing.T) {
	w := newWorld(3)
	w.tells(t, now.Add(-3*time.Second), evictionsRefused)
	out, err := runPlan(t, append(w.dumped(t), "-o", "json", "--removal=delete")...)
	if err != nil || summaryOf(t, out) != "Remove etcd-main-2 - Serving" {
		t.Errorf("%v %s", err, out)
	}
}

// A flag of the policy means that somebody asks what another policy would do. One that says how to look at the
// cluster does not.
func TestAnyFlagOfThePolicyReplacesTheCoordinatorsPolicy(t *testing.T) {
	w := newWorld(3)
	w.updated(2, 10*time.Minute)
	w.silent(2, 9*time.Minute)
	w.tells(t, now.Add(-3*time.Second), func(s *report.Sight) { s.Policy.SettleTimeout = time.Hour })
	dir := t.TempDir()
	writeFiles(t, dir, map[string][]byte{"quorate.yaml": []byte("max-lag: 7000")})
	const coordinators, own = "Wait - UpdatedPending UpdatedSettle", "Hold - UpdatedFailing UpdatedSettle"
	for flag, want := range map[string]string{
		"--drain-taints=acme.io/drain": coordinators, "--request-timeout=20s": coordinators,
		"--max-unavailable=1": own, "--removal=delete": own, "--trusted-members=etcd-other-0": own,
		"--allow-volatile-data": own, "--hold-before-last": own, "--settle-timeout=6m": own, "--dead-after=11s": own,
		"--leaving-patience=1m": own, "--ghost-after=1h": own, "--max-lag=7000": own, "--defragment-when=off": own,
		"--defragment-window=02:00-04:00": own, "--keep-no-space": own, "--defragment-timeout=3m": own,
		"--quota-bytes=8GiB": own, "--config=" + filepath.Join(dir, "quorate.yaml"): own,
	} {
		out, err := runPlan(t, append(w.dumped(t), "-o", "json", flag)...)
		if !errors.Is(err, errWaiting) || summaryOf(t, out) != want {
			t.Errorf("%s: got %q (%v), want %q", flag, summaryOf(t, out), err, want)
		}
	}
}
