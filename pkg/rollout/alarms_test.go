package rollout_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/quorate/quorate/pkg/rollout"
)

// theGone is the ID of a member that has left the list.
const theGone = 0x4d2

// alarmOf: members that have left the list have raised the alarm NOSPACE, and every member says so.
func alarmOf(ids ...uint64) change {
	return func(w *world) {
		for i := range w.state.Etcd.Members {
			if st := w.state.Etcd.Members[i].Probe.Status; st != nil {
				st.NoSpace, st.NoSpaceOf = true, append(st.NoSpaceOf, ids...)
			}
		}
	}
}

// corrupted: one member tells of an alarm CORRUPT about these, or about nobody.
func corrupted(by int, ids ...uint64) change {
	return func(w *world) {
		st := w.member(by).Probe.Status
		st.Corrupt, st.CorruptOf = true, ids
	}
}

func keeps(w *world) { w.policy.KeepNoSpace = true }

func disarmed(times int, ids ...uint64) change {
	return func(w *world) {
		w.state.Disarmed = map[uint64]int{}
		for _, id := range ids {
			w.state.Disarmed[id] = times
		}
	}
}

// etcd keeps the alarm of a member that leaves the list (etcd-io/etcd#14379).
func TestTheAlarmOfAMemberThatIsGone(t *testing.T) {
	gone := alarmOf(theGone)
	full := holding(1950*mib, 400*mib, 1)
	for _, tc := range []struct {
		name  string
		world *world
		want  string
	}{
		{"is disarmed", tidy(gone), "disarm 4d2"},
		{"is disarmed without the lock", tidy(gone, noLock), "disarm 4d2"},
		{"is disarmed although the host defragments by its own schedule", tidy(gone, func(w *world) {
			w.policy.HostDefragments = "0 0 */3 * *"
		}), "disarm 4d2"},
		{"needs no defragmentation of a member that is loose and not full", tidy(gone, holding(1000*mib, 400*mib, 1)),
			"disarm 4d2"},
		{"is disarmed while a member does not tell how large its database is", tidy(gone, noStatus("refused", 2)),
			"disarm 4d2"},
		{"is disarmed while a member is down", tidy(gone, alive(2)), "disarm 4d2"},
		{"is disarmed while a pod is missing", tidy(gone, missing(2)), "disarm 4d2"},
		{"is disarmed beside a ghost, which has raised none", tidy(gone, left(1)), "disarm 4d2"},
		{"is disarmed beside a voter elsewhere that is silent", tidy(gone, ghosts(1)), "disarm 4d2"},
		{"is disarmed one after the other", tidy(alarmOf(0x99, theGone)), "disarm 99"},
		{"is disarmed before that of a member on the list, whatever the IDs are", tidy(noSpace(1), gone), "disarm 4d2"},
		{"is disarmed although that of a member on the list has come back twice", tidy(noSpace(1), gone,
			disarmed(2, id(1))), "disarm 4d2"},
		{"is disarmed for a request where the policy leaves it to an operator", tidy(gone, keeps, askedAll()),
			"disarm 4d2"},

		{"stays where the policy leaves it to an operator", tidy(gone, keeps), "hold NoSpace"},
		{"stays until a full database is smaller", tidy(gone, full), "defragment etcd-1"},
		{"stays while a database is full and that has not helped", tidy(gone, holding(1950*mib, 1940*mib, 1),
			tried(rollout.Try{Done: true}, 1)), "hold NoSpace"},
		{"stays while a full database cannot be made smaller, as another member is down", tidy(gone, full, alive(2)),
			"wait AllServing"},
		{"stays with that of a member on the list until every size is known", tidy(noSpace(1), gone,
			noStatus("refused", 2)), "wait AllServing"},
		{"stays with that of a ghost", tidy(left(1), noSpace(3), gone), "hold NoSpace"},
		{"stays while no quorum answers", tidy(gone, alive(1, 2)), "wait AllServing"},
		{"stays where no quorum has agreed on the list, on which it may be by now", tidy(gone, localList(1)),
			"wait AllServing"},
		{"stays when that has not helped twice", tidy(gone, disarmed(2, theGone)), "hold NoSpace"},
		{"stays for a while when it could not be ended", tidy(gone, func(w *world) {
			w.state.NotDisarmed = map[uint64]rollout.Try{theGone: {Failed: 1, Resting: true}}
		}), "wait NoSpace"},
		{"stays when etcd's user may not end it", tidy(gone, func(w *world) {
			w.state.NotDisarmed = map[uint64]rollout.Try{theGone: {Failed: 1, Lasting: true}}
		}), "hold NoSpace"},
		{"that says nobody's ID stays", tidy(alarmOf()), "hold NoSpace"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			d := of(tc.world.decide())
			if got := tell(d); got != tc.want {
				t.Errorf("got %s, want %s: %s", got, tc.want, d.Reason())
			}
			named := slices.ContainsFunc(tc.world.state.Etcd.Members, func(m rollout.Member) bool {
				return m.Probe.Status != nil && slices.Contains(m.Probe.Status.NoSpaceOf, theGone)
			}) && !strings.HasPrefix(tc.want, "defragment") && tc.want != "disarm 99"
			if named && !strings.Contains(d.Reason(), "4d2") {
				t.Errorf("it is not told by its ID: %s", d.Reason())
			}
		})
	}
	if d := tidy(gone, func(w *world) { w.state.Controls.Paused = true }).decide(); say(d) != "hold Paused" ||
		!strings.Contains(d.Assessment.Replicas[0].Describe(), "alarm NOSPACE of 4d2") {
		t.Errorf("paused: %s, %s", say(d), d.Assessment.Replicas[0].Describe())
	}
}

func TestTheAlarmOfAMemberThatIsGoneDoesNotKeepARolloutFromGoingOn(t *testing.T) {
	w := cluster(3, holding(500*mib, 490*mib, 0, 1, 2), alarmOf(theGone))
	if got := tell(w.decide()); got != "delete etcd-2" {
		t.Errorf("outdated pods: %s", got)
	}
	// The kubelet may find every member unhealthy for it, so that no updated pod can settle before it ends.
	for name, change := range map[string]change{
		"an updated pod settles":         notReady(2),
		"an updated pod does not answer": alive(2),
		"a removed pod is not there":     missing(2),
	} {
		w := cluster(3, holding(500*mib, 490*mib, 0, 1, 2), alarmOf(theGone), updated(2), change)
		if got := tell(w.decide()); got != "disarm 4d2" {
			t.Errorf("%s: %s", name, got)
		}
	}
}

// The whole way: the ghost that has raised the alarm is removed, which an operator asks for.
func TestTheAlarmOfAGhostEndsWhenTheGhostIsRemoved(t *testing.T) {
	w := tidy(left(1), noSpace(3, 1), asked(3))
	var steps []string
	for _, d := range rollout.Predict(w.state, w.policy) {
		steps = append(steps, tell(d))
	}
	if want := []string{"removemember", "disarm 4", "disarm etcd-1", "complete"}; !slices.Equal(steps, want) {
		t.Errorf("\n got %s\nwant %s", strings.Join(steps, ", "), strings.Join(want, ", "))
	}
}

func TestACorruptAlarmSaysAboutWhomItIs(t *testing.T) {
	const differ = ": etcd's own check found that the members' data differ. No update cures that, and reads prove " +
		"nothing. But the alarm may be false"
	const first = ": first compare the members' hashes with `etcdctl endpoint hashkv --cluster --rev REVISION`"
	for _, tc := range []struct {
		name   string
		change change
		says   string
	}{
		{"a member", corrupted(2, id(1)), "a CORRUPT alarm is raised about etcd-1 (ID 2)" + differ + first},
		{"several, told by several", func(w *world) { w.with(corrupted(2, id(1)), corrupted(0, id(0), id(1))) },
			"a CORRUPT alarm is raised about etcd-0 (ID 1); etcd-1 (ID 2)" + differ + first},
		{"nobody", corrupted(0),
			"a CORRUPT alarm is raised, and etcd does not say about which member" + differ + first},
		{"a voter elsewhere", func(w *world) { w.with(ghosts(1), corrupted(0, 0x900)) },
			"a CORRUPT alarm is raised about ghost-0 (ID 900)" + differ + first},
		{"a member that is gone", corrupted(0, theGone), "a CORRUPT alarm is raised about 4d2, which is not on " +
			"etcd's member list any more" + differ + first +
			". If those that are left are equal, end the alarm with `etcdctl alarm disarm`"},
		{"a member that is gone, and one that is not", corrupted(0, theGone, id(1)), "a CORRUPT alarm is raised " +
			"about etcd-1 (ID 2); 4d2, which is not on etcd's member list any more" + differ + first},
		{"a member that is not on one member's own list",
			func(w *world) { w.with(corrupted(0, theGone), localList(1)) },
			"4d2, which is not on the member list that could be read"},
		{"a member, in the midst of an upgrade", func(w *world) {
			w.with(version("3.5.9", 0, 1), version("3.6.16", 2), corrupted(2, id(1)))
		}, differ + ", as it may be during an upgrade (the members run 3.5.9 and 3.6.16; etcd-io/etcd#15919): first"},
	} {
		w := cluster(3, version("3.5.9", 0, 1, 2), tc.change)
		d := w.decide()
		if say(d) != "hold Corrupt" || !strings.Contains(d.Reason(), tc.says) {
			t.Errorf("about %s: %s\n%s", tc.name, say(d), d.Reason())
		}
	}
	if row := rollout.RowOf(rollout.GuardCorrupt); !strings.Contains(row.Do, "`etcdctl endpoint hashkv --cluster ") ||
		!strings.Contains(row.Do, "`etcdctl alarm disarm`") {
		t.Errorf("it does not say how to tell a false one, or how to end it: %s", row.Do)
	}
	for name, w := range map[string]*world{
		"no alarm": cluster(3, version("3.5.9", 0, 1), version("3.6.16", 2)),
		"one that is overridden": cluster(3, corrupted(2, id(1)), func(w *world) {
			w.state.Controls.Override = []rollout.Guard{rollout.GuardCorrupt}
		}),
	} {
		if d := w.decide(); say(d) != "delete etcd-2" {
			t.Errorf("%s: %s: %s", name, say(d), d.Reason())
		}
	}
}
