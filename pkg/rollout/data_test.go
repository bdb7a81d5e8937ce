package rollout_test

import (
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/quorate/quorate/pkg/rollout"
)

// data makes a member say how far its data are: the index of what it has applied, which is also what it knows to be
// committed, and the revision.
func data(ordinal int, applied uint64, revision int64) change {
	return loading(ordinal, applied, applied, revision)
}

// loading is the same for a member that has not applied all it knows to be committed, or does not say so.
func loading(ordinal int, applied, committed uint64, revision int64) change {
	return func(w *world) {
		told := *w.member(ordinal).Probe.Status
		told.Applied, told.Index, told.Revision = applied, committed, revision
		w.member(ordinal).Probe.Status = &told
	}
}

// all makes every member say the same.
func all(applied uint64, revision int64) change {
	return func(w *world) {
		for i := range w.state.Etcd.Members {
			w.with(data(i, applied, revision))
		}
	}
}

// proven are differences that looks have proven.
func proven(more, less int) change { return seenToDiffer(more, less, 5, 10*time.Second) }

func seenToDiffer(more, less, looks int, lasts time.Duration) change {
	return func(w *world) {
		w.state.Differ = append(w.state.Differ, rollout.Difference{More: id(more), Less: id(less), Looks: looks,
			For: lasts})
	}
}

func TestDataThatDifferHoldMembersThatServe(t *testing.T) {
	const goes = ""
	for _, tc := range []struct {
		name  string
		world *world
		// want is the action that DataAgrees leads to, empty if it does not keep anybody.
		want rollout.ActionName
		// says is in the verdict.
		says string
	}{
		{"the same index and revision goes", cluster(3, all(5000, 900)), goes, ""},
		{"a revision far behind at the same index waits for the next look",
			cluster(3, all(5000, 900), data(2, 5000, 600)), rollout.ActionWait,
			"etcd-0 has revision 900 at index 5000, etcd-2 has revision 600 at index 5000"},
		{"it names who is in the minority", cluster(3, all(5000, 900), data(2, 5000, 600)), rollout.ActionWait,
			"a majority agrees (etcd-0, etcd-1), and not with etcd-2"},
		{"a revision far ahead waits as well", cluster(3, all(5000, 900), data(1, 5000, 1200)), rollout.ActionWait,
			"a majority agrees (etcd-0, etcd-2), and not with etcd-1"},
		{"also of the leader", cluster(3, all(5000, 900), data(0, 5000, 1200)), rollout.ActionWait,
			"a majority agrees (etcd-1, etcd-2), and not with etcd-0"},
		{"proven, it holds", cluster(3, all(5000, 900), data(2, 5000, 600), proven(0, 2)), rollout.ActionHold,
			"looks in a row that found it: 5, within 10 s"},
		{"four looks do not prove it", cluster(3, all(5000, 900), data(2, 5000, 600),
			seenToDiffer(0, 2, 4, time.Minute)), rollout.ActionWait, "found it: 4, within 60 s (5 within"},
		{"nor many within nine seconds", cluster(3, all(5000, 900), data(2, 5000, 600),
			seenToDiffer(0, 2, 99, 9*time.Second)), rollout.ActionWait, "found it: 99, within 9 s"},
		{"what is proven also holds in a look that does not show it", cluster(3, all(5000, 900), proven(0, 2)),
			rollout.ActionHold, "data of etcd-0 and etcd-2 differ"},
		{"also where one of the two is silent just now", cluster(5, all(5000, 900), proven(0, 2), unknown(2)),
			rollout.ActionHold, "etcd-2 does not report how far it is now"},
		{"what was not proven is forgotten in such a look", cluster(3, all(5000, 900),
			seenToDiffer(0, 2, 4, time.Minute)), goes, ""},
		{"so is what was proven of a member that is not there any more", cluster(3, all(5000, 900), proven(0, 7)),
			goes, ""},
		{"three that all differ have no majority", cluster(3, data(0, 5000, 900), data(1, 5000, 800),
			data(2, 5000, 700)), rollout.ActionWait, "no majority agrees"},
		{"three of five agree", cluster(5, all(5000, 900), data(3, 5000, 100), data(4, 5000, 200)),
			rollout.ActionWait, "a majority agrees (etcd-0, etcd-1, etcd-2), and not with etcd-3, etcd-4"},
		{"a lower revision at a higher index", cluster(3, all(5000, 900), data(1, 5100, 890)), rollout.ActionWait,
			"etcd-1 has revision 890 at index 5100"},
		{"a higher one than the entries explain", cluster(3, all(5000, 900), data(1, 5100, 1002)), rollout.ActionWait,
			"etcd-1 has revision 1002 at index 5100"},
		{"of members elsewhere too", cluster(3, all(5000, 900), elsewhereAt(5000, 100)), rollout.ActionWait,
			"not with elsewhere"},

		{"as many revisions as entries go", cluster(3, all(5000, 900), data(1, 5100, 1000)), goes, ""},
		{"and one more, because the numbers are not of one moment", cluster(3, all(5000, 900), data(1, 5100, 1001)),
			goes, ""},
		{"one less at the same index as well", cluster(3, all(5000, 900), data(1, 5000, 899)), goes, ""},
		{"a follower 4000 entries behind", cluster(3, all(9000, 8000), data(2, 5000, 4000)), goes, ""},
		{"one that is behind by entries that write nothing", cluster(3, all(9000, 900), data(2, 5000, 900)), goes, ""},
		{"one that has loaded a snapshot, before the next entry", cluster(3, all(9000, 8000),
			loading(2, 100, 9000, 8000)), goes, ""},
		{"also beside one that is behind", cluster(3, all(9000, 8000), loading(2, 100, 9000, 8000),
			data(1, 5000, 4000)), goes, ""},
		{"one that has yet to load it", cluster(3, all(9000, 8000), loading(2, 5000, 9000, 4000)), goes, ""},
		{"a learner that loads it", cluster(3, all(9000, 8000), learnerAt(9000, 10)), goes, ""},
		{"a member that does not tell its revision", cluster(3, all(9000, 8000), data(2, 9000, 0)), goes, ""},
		{"none that does", cluster(3), goes, ""},
		{"a single member", cluster(1, all(9000, 8000)), goes, ""},
		{"indices and revisions out of all proportion", cluster(3, all(1<<63, 1<<62), data(2, 0, 1)), goes, ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			d := tc.world.decide()
			kept := false
			for _, c := range d.Candidates {
				v := verdictOn(&d, c.Pod, rollout.GuardDataAgrees)
				kept = kept || v != nil && !v.Pass
				if v != nil && !v.Pass && !strings.Contains(v.Detail(), tc.says) {
					t.Errorf("%s: %q, want it to say %q", c.Pod, v.Detail(), tc.says)
				}
			}
			switch {
			case kept != (tc.want != goes):
				t.Errorf("kept: %v; %s (%s)", kept, d.Reason(), d.Guard)
			case kept && (d.Action.Name() != tc.want || d.Guard != rollout.GuardDataAgrees):
				t.Errorf("%s %s, want %s: %s", d.Action.Name(), d.Guard, tc.want, d.Reason())
			}
		})
	}
}

func verdictOn(d *rollout.Decision, pod string, guard rollout.Guard) *rollout.Verdict {
	for _, c := range d.Candidates {
		for i := range c.Verdicts {
			if c.Pod == pod && c.Verdicts[i].Guard == guard {
				return &c.Verdicts[i]
			}
		}
	}
	return nil
}

func elsewhereAt(applied uint64, revision int64) change {
	return func(w *world) {
		w.policy.TrustedMembers = []string{"elsewhere"}
		w.state.Etcd.Members = append(w.state.Etcd.Members, rollout.Member{ID: 0x99, Name: "elsewhere",
			Probe: rollout.Probe{Read: rollout.Answered, Status: &rollout.Status{Leader: id(0), Term: term,
				Index: applied, Applied: applied, Revision: revision}}})
	}
}

func learnerAt(applied uint64, revision int64) change {
	return func(w *world) {
		w.with(elsewhereAt(applied, revision))
		w.state.Etcd.Members[len(w.state.Etcd.Members)-1].Learner = true
	}
}

func TestAStatusThatIsDeniedIsToldAndHoldsNothing(t *testing.T) {
	w := cluster(3, all(5000, 900), noStatus("etcd refuses the status", 1))
	d := w.decide()
	v := verdictOn(&d, "etcd-2", rollout.GuardDataAgrees)
	if v == nil || !v.Pass || !strings.Contains(v.Detail(), "2 of 3; etcd-1: etcd refuses the status") {
		t.Errorf("%+v", v)
	}
	single := cluster(1, noStatus("etcd refuses the status", 0)).decide()
	if v := verdictOn(&single, "etcd-0", rollout.GuardDataAgrees); v != nil {
		t.Errorf("a single member is asked: %s", v.Detail())
	}
}

func TestMembersThatDoNotServeGoBesideDataThatDiffer(t *testing.T) {
	w := cluster(3, all(5000, 900), data(2, 5000, 600), proven(0, 2), dead(1))
	if d := w.decide(); d.Action.Name() != rollout.ActionRemove || d.Target().Pod != "etcd-1" {
		t.Errorf("%s %s: %s", d.Action.Name(), d.Target().Pod, d.Reason())
	}
}

// A member that does not serve begins a step of etcd's version all the same.
func TestAStepOfTheVersionDoesNotBeginBesideDataThatDiffer(t *testing.T) {
	step := func(image string) *world {
		return cluster(3, all(5000, 900), data(2, 5000, 600), dead(1), proven(0, 2), leads(0), func(w *world) {
			w.state.Set.Etcd.Image = image
			for i := range w.state.Pods {
				w.state.Pods[i].EtcdImage = "etcd:3.5.35"
			}
		})
	}
	if got := say(step("etcd:3.6.16").decide()); got != "hold DataAgrees" {
		t.Errorf("to another minor version: %s", got)
	}
	if got := say(step("etcd:3.5.36").decide()); got != "delete etcd-1" {
		t.Errorf("to a patch: %s", got)
	}
}

func TestNobodyWithOtherDataThanAMajorityIsGivenTheLead(t *testing.T) {
	overridden := func(w *world) { w.state.Controls.Override = []rollout.Guard{rollout.GuardDataAgrees} }
	last := func(changes ...change) *world {
		return cluster(3, all(5000, 900), updated(1, 2)).with(changes...)
	}
	for _, tc := range []struct {
		name  string
		world *world
		// to is who is given the lead, empty if nobody is.
		to string
	}{
		{"without a difference the better one is", last(data(1, 4999, 900)), "etcd-2"},
		{"the one that differs is not, however good it is", last(data(1, 4999, 900), data(2, 5000, 600), overridden),
			"etcd-1"},
		{"also where only what was proven says so",
			last(data(1, 4999, 900), proven(0, 2), proven(1, 2), overridden), "etcd-1"},
		{"nor is one of two that differ, if it is open which of them is in the minority",
			last(data(1, 4999, 900), proven(0, 2), overridden), "etcd-1"},
		{"if the leader is in the minority, the others may be", last(data(0, 5000, 600), overridden), "etcd-1"},
		{"nobody is where there is no majority", last(data(1, 5000, 600), data(2, 5000, 300), overridden), ""},
		{"who says nothing is not among a majority", last(data(2, 5000, 600), noStatus("denied", 1), overridden), ""},
		{"on the way of a drain", cluster(3, all(5000, 900), data(1, 5000, 600), evicted(0)), "etcd-2"},
		{"on the way of a drain nobody is where none is left", cluster(3, all(5000, 900), data(1, 5000, 600),
			data(2, 5000, 300), evicted(0)), ""},
		{"one elsewhere is", cluster(1, all(5000, 900), elsewhereAt(5000, 900), overridden), "elsewhere"},
		{"but not if it differs", cluster(1, all(5000, 900), elsewhereAt(5000, 100), overridden), ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			tc.world.policy.MaxLag = 10_000
			tc.world.state.Controls.Override = append(tc.world.state.Controls.Override, rollout.GuardQuorumFloor,
				rollout.GuardUnavailableBudget, rollout.GuardCaughtUp)
			to := ""
			if move, ok := tc.world.decide().Action.(rollout.MoveLeader); ok {
				to = move.Transfer.ToName
			}
			if d := tc.world.decide(); to != tc.to {
				t.Errorf("given to %q, want %q: %s", to, tc.to, d.Reason())
			}
		})
	}
}

func TestTheLeadIsNotHandedOverToOtherDataForADefragmentation(t *testing.T) {
	w := cluster(3, allUpdated(), all(5000, 900), data(2, 5000, 600), func(w *world) {
		for i := range w.state.Etcd.Members {
			w.state.Etcd.Members[i].Probe.Status.Size = 10 << 20
		}
		w.state.Etcd.Members[0].Probe.Status.Size, w.state.Etcd.Members[0].Probe.Status.InUse = 100<<20, 1<<20
		w.state.Request = &rollout.Request{Operation: rollout.RequestDefragment, Cluster: clusterID, Member: id(0)}
		w.state.Etcd.Members[1].Probe.Status.Applied--
	})
	for i := range w.state.Etcd.Members {
		if i > 0 {
			w.state.Etcd.Members[i].Probe.Status.InUse = 10 << 20
		}
	}
	d := w.decide()
	move, ok := d.Action.(rollout.MoveLeader)
	if !ok || move.Transfer.ToName != "etcd-1" {
		t.Errorf("%+v: %s", d.Action, d.Reason())
	}
}

// TestADifferenceIsProvenByLooksInARow follows the looks of a coordinator.
func TestADifferenceIsProvenByLooksInARow(t *testing.T) {
	type look struct {
		after time.Duration
		world *world
	}
	healthy := func(changes ...change) *world { return cluster(3, all(5000, 900)).with(changes...) }
	differs := healthy(data(2, 5000, 600))
	reversed := healthy(data(2, 5000, 1200))
	torn := healthy(data(1, 5000, 850))
	away := healthy(unknown(2))
	noList := healthy(func(w *world) { w.state.Etcd = rollout.Membership{} })
	restored := healthy(data(2, 5000, 600), func(w *world) { w.state.Etcd.ClusterID++ })
	every := func(d time.Duration, worlds ...*world) []look {
		looks := make([]look, 0, len(worlds))
		for _, w := range worlds {
			looks = append(looks, look{d, w})
		}
		return looks
	}
	for _, tc := range []struct {
		name  string
		looks []look
		// proven is whether the last look holds; found is how many looks in a row have found it.
		proven bool
		found  int
	}{
		{"five looks within ten seconds",
			every(2500*time.Millisecond, differs, differs, differs, differs, differs), true, 5},
		{"four", every(5*time.Second, differs, differs, differs, differs), false, 4},
		{"five within less", every(2*time.Second, differs, differs, differs, differs, differs), false, 5},
		{"a look that does not find it",
			every(5*time.Second, differs, differs, differs, differs, healthy(), differs), false, 1},
		{"the other way round it is another one",
			every(5*time.Second, differs, differs, differs, differs, reversed), false, 1},
		{"each time between others", every(5*time.Second, differs, torn, differs, torn, differs, torn), false, 1},
		{"a member that restarts begins anew", every(5*time.Second, differs, differs, differs, differs, away, differs),
			false, 1},
		{"a gap of 25 s does not", every(25*time.Second, differs, differs, differs, differs, differs), true, 5},
		{"a longer one does", every(25*time.Second+1, differs, differs, differs, differs, differs), false, 1},
		{"another cluster begins anew", every(5*time.Second, differs, differs, differs, differs, restored), false, 1},
		{"what is proven outlasts a look that does not find it",
			every(5*time.Second, differs, differs, differs, differs, differs, healthy()), true, 5},
		{"and one without a list",
			every(5*time.Second, differs, differs, differs, differs, differs, noList, away), true, 5},
		{"and goes on counting",
			every(5*time.Second, differs, differs, differs, differs, differs, away, differs), true, 6},
		{"but not 25 s of them", every(5*time.Second, differs, differs, differs, differs, differs, healthy(), healthy(),
			healthy(), healthy(), healthy(), healthy()), false, 0},
		{"nor the end of that member", every(5*time.Second, differs, differs, differs, differs, differs,
			healthy(func(w *world) { w.member(2).ID = 0x77 })), false, 0},
		{"nor a new cluster", every(5*time.Second, differs, differs, differs, differs, differs,
			healthy(func(w *world) { w.state.Etcd.ClusterID++ })), false, 0},
		{"looks at a healthy cluster", every(time.Second, healthy(), healthy(), healthy(), healthy()), false, 0},
	} {
		t.Run(tc.name, func(t *testing.T) {
			now := time.Unix(1000, 0)
			var c rollout.Comparison
			for _, l := range tc.looks {
				now = now.Add(l.after)
				before := c.Differ()
				next := c.Look(now, l.world.state.Etcd)
				if !reflect.DeepEqual(before, c.Differ()) {
					t.Fatal("a look changes what was kept before")
				}
				c = next
			}
			found, isProven := 0, false
			for _, d := range c.Differ() {
				found, isProven = max(found, d.Looks), isProven || d.Proven()
			}
			if found != tc.found || isProven != tc.proven {
				t.Errorf("%+v", c.Differ())
			}
		})
	}
}
