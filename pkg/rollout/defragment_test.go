package rollout_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/quorate/quorate/pkg/rollout"
)

const (
	mib = int64(1 << 20)
	gib = int64(1 << 30)
)

// holding: the members' databases have this size, with so much in use. The quota is etcd's default, 2 GiB.
func holding(size, inUse int64, ordinals ...int) change {
	return each(ordinals, func(w *world, o int) {
		w.member(o).Probe.Status.Size, w.member(o).Probe.Status.InUse = size, inUse
	})
}

// tidy: three members are up to date, and little is free in their databases.
func tidy(changes ...change) *world {
	return cluster(3, append([]change{allUpdated(), holding(500*mib, 490*mib, 0, 1, 2)}, changes...)...)
}

// noSpace: these members have raised the alarm, and every member says so.
func noSpace(ordinals ...int) change {
	return func(w *world) {
		for i := range w.state.Etcd.Members {
			if st := w.state.Etcd.Members[i].Probe.Status; st != nil {
				st.NoSpace = true
				for _, o := range ordinals {
					st.NoSpaceOf = append(st.NoSpaceOf, id(o))
				}
			}
		}
	}
}

// atShared: these members answer only under a URL that others advertise too, and may have no other.
func atShared(only bool, ordinals ...int) change {
	return each(ordinals, func(w *world, o int) {
		p := &w.member(o).Probe
		p.URL, p.Shared, p.OnlyShared = "http://etcd.ns.svc:2379", true, only
	})
}

func request(member, cluster uint64) change {
	return func(w *world) {
		w.state.Request = &rollout.Request{Operation: rollout.RequestDefragment, Cluster: cluster, Member: member}
	}
}

// askedAll: an operator asks for all members.
func askedAll() change { return request(0, clusterID) }

// wanted: the policy asks for it, and this is its time of day, or not.
func wanted(now bool) change {
	return func(w *world) {
		w.policy.DefragmentWhen = rollout.DefaultFragmentation()
		w.policy.DefragmentWindow = rollout.Window{From: 2 * time.Hour, To: 4 * time.Hour}
		w.state.InWindow = now
	}
}

func tried(t rollout.Try, ordinals ...int) change {
	return each(ordinals, func(w *world, o int) {
		if w.state.Tries == nil {
			w.state.Tries = map[uint64]rollout.Try{}
		}
		w.state.Tries[id(o)] = t
	})
}

func notDisarmed(ordinal int, t rollout.Try) change {
	return func(w *world) { w.state.NotDisarmed = map[uint64]rollout.Try{id(ordinal): t} }
}

func version(v string, ordinals ...int) change {
	return each(ordinals, func(w *world, o int) { w.member(o).Probe.Status.Version = v })
}

func noLock(w *world) { w.state.NoLock = true }

// stopping: the record says that a defragmentation of this member may be under way.
func stopping(ordinal int) change {
	return func(w *world) {
		w.state.UnderWay = &rollout.Blocking{Operation: "defragment",
			Member: rollout.MemberRef{ID: id(ordinal), Cluster: clusterID, Name: name(ordinal)}}
	}
}

// inItsPod: it is asked of the process that runs in its pod now.
func inItsPod(ordinal int) change {
	return func(w *world) {
		p := w.pod(ordinal)
		w.state.UnderWay.Process = rollout.Process{PodUID: p.UID, Restarts: p.Etcd.Restarts}
	}
}

func recreated(ordinals ...int) change {
	return each(ordinals, func(w *world, o int) { w.pod(o).UID += "-next" })
}

func failedTransfers(ordinal, n int) change {
	return func(w *world) { w.state.FailedTransfers[id(ordinal)] = n }
}

// of says what the duty decides, whichever duty's decision is taken.
func of(d rollout.Decision) rollout.Decision {
	for _, other := range append([]rollout.Decision{d}, d.Others...) {
		if other.Duty == rollout.DutyDefragment {
			return other
		}
	}
	return rollout.Decision{}
}

// tell renders it in the words of the tables.
func tell(d rollout.Decision) string {
	switch a := d.Action.(type) {
	case nil:
		return "nothing"
	case rollout.Defragment:
		return "defragment " + a.Target.Pod
	case rollout.Disarm:
		return "disarm " + a.Member.Name
	}
	return say(d)
}

func TestWhatTheDutyDefragmentDecides(t *testing.T) {
	full := holding(1950*mib, 400*mib, 0, 1, 2)
	loose := holding(500*mib, 200*mib, 0, 1, 2)
	for _, tc := range []struct {
		name  string
		world *world
		want  string
	}{
		{"nothing, while nobody asks for anything", tidy(full), "nothing"},
		{"the follower with the highest ordinal goes first", tidy(full, askedAll()), "defragment etcd-2"},
		{"a member that answers only where others answer too is left for later", tidy(full, askedAll(),
			atShared(false, 2)), "defragment etcd-1"},
		{"if all do that, they are waited for", tidy(full, askedAll(), atShared(false, 0, 1, 2)), "wait OwnURL"},
		{"if they have no URL of their own, nothing begins", tidy(full, askedAll(), atShared(true, 0, 1, 2)),
			"hold OwnURL"},
		{"one that answers under its own is asked", tidy(full, askedAll(), func(w *world) {
			w.member(2).Probe.URL = "http://etcd-2:2379"
		}), "defragment etcd-2"},
		{"our own member is the last follower, because our lock may live there", tidy(full, askedAll(), self(2)),
			"defragment etcd-1"},
		{"the leader hands over first", tidy(holding(500*mib, 100*mib, 0), askedAll()), "move leadership from " +
			"etcd-0 to etcd-1"},
		{"the former leader goes as a follower", tidy(holding(500*mib, 100*mib, 0), askedAll(), leads(1)),
			"defragment etcd-0"},
		{"one whose pod is gone already is waited for, even where AllServing is overridden",
			tidy(full, askedAll(), overriding(rollout.GuardAllServing), func(w *world) {
				w.state.Pods, w.state.Removed = w.state.Pods[:2], []string{name(2)}
			}), "wait AllServing"},
		{"a single member is defragmented in its place", cluster(1, allUpdated(), holding(500*mib, 100*mib, 0),
			askedAll()),
			"defragment etcd-0"},
		{"two voters hold, because they need both", cluster(2, allUpdated(), holding(500*mib, 100*mib, 0, 1),
			askedAll()),
			"wait AllServing"},
		{"a member of which less than 5 % is free is left alone", tidy(askedAll()), "complete"},
		{"a member that was done is left alone", tidy(full, askedAll(), tried(rollout.Try{Done: true}, 2)),
			"defragment etcd-1"},
		{"a member that was done is left alone with NOSPACE as well, however loose it is", tidy(full, noSpace(1),
			tried(rollout.Try{Done: true, Left: 1550 * mib}, 0, 1, 2)), "hold NoSpace"},
		{"a member that was done goes again with NOSPACE when there is something new to free", tidy(full, noSpace(1),
			tried(rollout.Try{Done: true, Left: 1400 * mib}, 0, 1, 2)), "defragment etcd-2"},
		{"a small database is left alone, of which some pages are always free",
			tidy(holding(24<<10, 16<<10, 0, 1, 2), noSpace(1)), "disarm etcd-1"},
		{"one member alone, when it is asked for", tidy(full, request(id(1), clusterID)), "defragment etcd-1"},
		{"not for another cluster", tidy(full, request(0, 7)), "idle"},
		{"not for another cluster, beside a policy that wants nothing", tidy(request(0, 7), wanted(true)), "idle"},
		{"not for another cluster, with an alarm that is to be kept", tidy(full, request(0, 7), noSpace(1),
			func(w *world) { w.policy.KeepNoSpace = true }), "hold NoSpace"},
		{"not without a member list", tidy(noMemberList(), askedAll()), "wait VotersUnknown"},
		{"not without the lock", tidy(full, askedAll(), noLock), "wait"},
		{"nor without a member list, which tells no cluster", tidy(noMemberList(), request(0, 7), noLock), "wait"},
		{"not for another cluster, which is told without the lock too", tidy(full, request(0, 7), noLock), "idle"},
		{"nothing without the lock, while nobody asks for anything", tidy(full, noLock), "nothing"},
		{"not while a member does not tell how large its database is", tidy(askedAll(), noStatus("refused", 1)),
			"wait AllServing"},

		{"by the policy, in its window", tidy(loose, wanted(true)), "defragment etcd-2"},
		{"by the policy, it is told at any other time", tidy(loose, wanted(false)), "idle"},
		{"not by the policy for less than 200 MB", tidy(holding(390*mib, 200*mib, 0, 1, 2), wanted(true)), "nothing"},
		{"not by the policy for less than 45 %", tidy(holding(600*mib, 340*mib, 0, 1, 2), wanted(true)), "nothing"},
		{"by the policy for less than 45 % of a database that has reached 80 % of its quota",
			tidy(holding(1700*mib, 1400*mib, 2), wanted(true)), "defragment etcd-2"},
		{"by the policy, it is told and no reason to stay awake while a member is not well",
			tidy(loose, wanted(true), alive(1)), "idle AllServing"},
		{"by the policy, what has begun is waited for", tidy(loose, wanted(true), tried(rollout.Try{Done: true}, 2),
			behind(6000, 2)), "wait AllServing"},
		{"by the policy, not without the lock", tidy(loose, wanted(true), noLock), "nothing"},

		{"NOSPACE begins it, also without the lock", tidy(full, noSpace(1), noLock), "defragment etcd-2"},
		{"NOSPACE leaves a member alone that is not full", tidy(holding(1950*mib, 400*mib, 1), noSpace(1)),
			"defragment etcd-1"},
		{"a member that has raised the alarm is full, whatever its quota is thought to be",
			tidy(holding(1000*mib, 400*mib, 1), noSpace(1)), "defragment etcd-1"},
		{"NOSPACE ends when every database is below 90 % of its quota", tidy(noSpace(1)), "disarm etcd-1"},
		{"the alarm of a member that is gone is ended too", tidy(func(w *world) {
			w.with(noSpace(1))
			for i := range w.state.Etcd.Members {
				w.state.Etcd.Members[i].Probe.Status.NoSpaceOf = []uint64{0x99}
			}
		}), "disarm 99"},
		{"NOSPACE has a full database rewritten once, whatever etcd says of what is free",
			tidy(holding(1950*mib, 1940*mib, 2), noSpace(2)), "defragment etcd-2"},
		{"NOSPACE stays while a database is full and that has not helped", tidy(holding(1950*mib, 1940*mib, 2),
			noSpace(2), tried(rollout.Try{Done: true}, 2)),
			"hold NoSpace"},
		{"NOSPACE stays while a database is full of which nobody knows the size",
			tidy(noSpace(1), noStatus("refused", 2)), "wait AllServing"},
		{"NOSPACE that has come back twice stays", tidy(noSpace(1),
			func(w *world) { w.state.Disarmed = map[uint64]int{id(1): 2} }),
			"hold NoSpace"},
		{"NOSPACE stays for a while when it could not be ended", tidy(noSpace(1),
			notDisarmed(1, rollout.Try{Failed: 2, Resting: true})), "wait NoSpace"},
		{"NOSPACE that could not be ended is ended, however often that has failed", tidy(noSpace(1),
			notDisarmed(1, rollout.Try{Failed: 9})), "disarm etcd-1"},
		{"NOSPACE stays when etcd's user may not end it", tidy(noSpace(1),
			notDisarmed(1, rollout.Try{Failed: 1, Lasting: true})), "hold NoSpace"},
		{"NOSPACE stays if the policy says so", tidy(full, noSpace(1), func(w *world) { w.policy.KeepNoSpace = true }),
			"hold NoSpace"},
		{"NOSPACE ends if the policy says that it stays, and an operator asks",
			tidy(noSpace(1), askedAll(), func(w *world) { w.policy.KeepNoSpace = true }), "disarm etcd-1"},
		{"NOSPACE stays where no quorum has agreed on the list", tidy(noSpace(1), localList(1)), "wait AllServing"},
		{"the quota is the pod's", tidy(full, noSpace(1), each([]int{0, 1, 2}, func(w *world, o int) {
			w.pod(o).Quota = rollout.Quota{Bytes: 8 * gib, From: "the pod"}
		})), "defragment etcd-1"},
		{"the quota is the member's own word before the pod's", tidy(full, noSpace(0), each([]int{0, 1, 2},
			func(w *world,
				o int) {
				w.pod(o).Quota = rollout.Quota{Bytes: 8 * gib, From: "the pod"}
				w.member(o).Probe.Status.Quota = 2 * gib
			})), "defragment etcd-2"},
		{"the quota is the operator's where nobody else says it", tidy(full, noSpace(0), func(w *world) {
			w.policy.QuotaBytes = 8 * gib
		}), "move leadership from etcd-0 to etcd-1"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			d := of(tc.world.decide())
			if got := tell(d); got != tc.want {
				t.Errorf("got %s, want %s: %s", got, tc.want, d.Reason())
			}
		})
	}
}

// Each guard holds a defragmentation that an operator asks for.
func TestGuardsOfADefragmentation(t *testing.T) {
	loose := holding(500*mib, 200*mib, 0, 1, 2)
	for _, tc := range []struct {
		name  string
		world *world
		pod   string
		guard rollout.Guard
	}{
		{"VotersUnknown holds where too few voters have the same list", tidy(loose, askedAll(), localList(1)), "etcd-2",
			rollout.GuardVotersUnknown},
		{"AllServing holds while a voter does not serve", tidy(loose, askedAll(), alive(0)), "etcd-2",
			rollout.GuardAllServing},
		{"AllServing holds while a voter has not caught up", tidy(loose, askedAll(), behind(6000, 0)), "etcd-2",
			rollout.GuardAllServing},
		{"AllServing holds while a voter elsewhere does not serve", tidy(loose, askedAll(), ghosts(1)), "etcd-2",
			rollout.GuardAllServing},
		{"OthersLeaving holds while a pod is about to be evicted", tidy(loose, askedAll(), evicted(0)), "etcd-2",
			rollout.GuardOthersLeaving},
		{"AllServing holds while a pod is leaving", tidy(loose, askedAll(), terminating(0)), "etcd-2",
			rollout.GuardAllServing},
		{"AllServing holds while a pod is being scaled away", tidy(loose, askedAll(), func(w *world) {
			w.state.Pods = append(w.state.Pods, healthyPod(3, newRev, 1))
		}), "etcd-2", rollout.GuardAllServing},
		{"AllServing holds while an updated pod settles", tidy(loose, askedAll(), notReady(0)), "etcd-2",
			rollout.GuardAllServing},
		{"FollowersFirst holds the leader while a follower is left", tidy(loose, askedAll()), "etcd-0",
			rollout.GuardFollowersFirst},
		{"FollowersFirst holds a leader that cannot hand over", tidy(holding(500*mib, 100*mib, 0), askedAll(),
			failedTransfers(0, 2)), "etcd-0", rollout.GuardFollowersFirst},
		{"FollowersFirst holds all while no leader is known", tidy(loose, askedAll(), noLeader()), "etcd-2",
			rollout.GuardFollowersFirst},
		{"AppliesSnapshots holds a member of 3.5.22 that is behind", tidy(loose, askedAll(), version("3.5.22", 2),
			behind(600, 2)), "etcd-2", rollout.GuardAppliesSnapshots},
		{"AppliesSnapshots holds a learner of 3.4", tidy(loose, askedAll(), version("3.4.34", 2), learner(2)), "etcd-2",
			rollout.GuardAppliesSnapshots},
		{"HostDefragments holds while the host has a schedule", tidy(loose, askedAll(), func(w *world) {
			w.policy.HostDefragments = "0 0 */3 * *"
		}), "etcd-2", rollout.GuardHostDefragments},
		{"OldSidecars holds while an older sidecar may be there", tidy(loose, askedAll(), func(w *world) {
			w.state.Sidecars.Old = []string{"etcd-1"}
		}), "etcd-2", rollout.GuardOldSidecars},
		{"DefragmentFails holds after two failures", tidy(loose, askedAll(), tried(rollout.Try{Failed: 2}, 2)),
			"etcd-2", rollout.GuardDefragmentFails},
		{"DefragmentFails holds until it is time to try again", tidy(loose, askedAll(),
			tried(rollout.Try{Words: "not now", Resting: true}, 2)), "etcd-2", rollout.GuardDefragmentFails},
		{"DefragmentFails holds after one that is not permitted", tidy(loose, askedAll(),
			tried(rollout.Try{Failed: 1, Lasting: true}, 2)), "etcd-2", rollout.GuardDefragmentFails},
	} {
		t.Run(tc.name, func(t *testing.T) {
			failed, considered := failedGuards(of(tc.world.decide()), tc.pod)
			if !considered || !slices.Contains(failed, tc.guard) {
				t.Errorf("failed guards of %s: %v", tc.pod, failed)
			}
		})
	}
}

func TestGuardsThatDoNotHoldADefragmentation(t *testing.T) {
	loose := holding(500*mib, 200*mib, 0, 1, 2)
	full := holding(1950*mib, 400*mib, 0, 1, 2)
	for _, tc := range []struct {
		name  string
		world *world
	}{
		{"one failure is no reason", tidy(loose, askedAll(), tried(rollout.Try{Failed: 1}, 2))},
		{"3.5.23 applies snapshots safely", tidy(loose, askedAll(), version("3.5.23", 2), behind(600, 2))},
		{"3.6.5 applies snapshots safely", tidy(loose, askedAll(), version("3.6.5", 2), behind(600, 2))},
		{"3.4.34 that has caught up applies none", tidy(loose, askedAll(), version("3.4.34", 2), behind(20, 2))},
		{"an outdated pod below the partition has settled long ago", tidy(loose, askedAll(), func(w *world) {
			w.pod(0).Revision = oldRev
			w.policy.Partition = 1
		})},
		{"with NOSPACE the host's schedule is not waited for", tidy(full, noSpace(1), func(w *world) {
			w.policy.HostDefragments = "0 0 */3 * *"
		})},
		{"with NOSPACE no older sidecar is waited for", tidy(full, noSpace(1), noLock, func(w *world) {
			w.state.Sidecars.Old = []string{"etcd-2"}
		})},
		{"with NOSPACE nobody has to know which sidecars there are", tidy(full, noSpace(1), func(w *world) {
			w.state.Sidecars.Known = false
		})},
		{"with NOSPACE the pods may be unready for that alone", tidy(full, noSpace(1), notReady(0, 1, 2),
			aged(rollout.PodSeen, time.Minute, 0, 1, 2))},
	} {
		t.Run(tc.name, func(t *testing.T) {
			d := of(tc.world.decide())
			if got := tell(d); got != "defragment etcd-2" {
				t.Errorf("%s: %s", got, d.Reason())
			}
		})
	}
}

func TestARolloutComesBeforeADefragmentation(t *testing.T) {
	w := cluster(3, holding(1950*mib, 400*mib, 0, 1, 2), noSpace(1))
	if got := say(w.decide()); got != "delete etcd-2" {
		t.Errorf("outdated pods and NOSPACE: %s", got)
	}
	w.with(updated(2), notReady(2))
	if d := w.decide(); d.Acts() {
		t.Errorf("an updated pod settles, and NOSPACE: %s", tell(d))
	}
}

// A whole cure, with what it calls for predicted.
func TestNoSpaceIsCuredOneMemberAfterTheOther(t *testing.T) {
	w := tidy(holding(1950*mib, 400*mib, 0, 1, 2), noSpace(0, 2))
	var steps []string
	for _, d := range rollout.Predict(w.state, w.policy) {
		steps = append(steps, tell(d))
	}
	want := []string{"defragment etcd-2", "defragment etcd-1", "move leadership from etcd-0 to etcd-1",
		"defragment etcd-0",
		"disarm etcd-0", "disarm etcd-2", "complete"}
	if !slices.Equal(steps, want) {
		t.Errorf("\n got %s\nwant %s", strings.Join(steps, ", "), strings.Join(want, ", "))
	}
}

func TestACallIsBoundedByTheSizeOfTheDatabase(t *testing.T) {
	for size, want := range map[int64]time.Duration{
		16 * mib: 31 * time.Second, 2 * gib: 158 * time.Second, 8 * gib: 8 * time.Minute,
	} {
		w := tidy(holding(size, 4*mib, 2), askedAll())
		d, ok := of(w.decide()).Action.(rollout.Defragment)
		if !ok || d.Within != want || d.Member != (rollout.MemberRef{ID: id(2), Cluster: clusterID, Name: "etcd-2"}) {
			t.Errorf("%d: %+v, want %v", size, d, want)
		}
	}
}

// No request is carried out without the lock, so the way out is another one there.
func TestWhatKeepsNoSpaceFromBeingCuredNamesTheGhosts(t *testing.T) {
	for _, full := range []change{holding(1950*mib, 400*mib, 0, 1, 2), holding(500*mib, 490*mib, 0, 1, 2)} {
		for _, tc := range []struct {
			name   string
			change change
			says   string
		}{
			{"with the lock", func(*world) {}, "; ghosts: etcd-3 (ID 4), etcd-4 (ID 5); if they are gone for good, " +
				"remove them with `quorate remove-member`"},
			{"without the lock", noLock, "; ghosts: etcd-3 (ID 4), etcd-4 (ID 5); make sure that every other member " +
				"serves, and remove each with `etcdctl member remove ID`, because Quorate removes none without the " +
				"lock"},
		} {
			d := of(tidy(full, noSpace(1), left(2), tc.change).decide())
			if d.Acts() || !strings.HasSuffix(d.Reason(), tc.says) {
				t.Errorf("%s: %s: %s", tc.name, tell(d), d.Reason())
			}
		}
	}
	// What it advises is done, although etcd takes no sidecar's word.
	w := tidy(holding(1950*mib, 400*mib, 0, 1, 2), noSpace(1), left(2), asked(3), func(w *world) {
		w.state.Sidecars.Old = []string{"etcd-0"}
	})
	if d, asks := ofDuty(w.decide(), rollout.DutyGhosts); !asks || !d.Acts() {
		t.Errorf("asked for what it advises: %s", say(d))
	}
	d := of(tidy(askedAll(), left(1), membersSeen(time.Minute), holding(500*mib, 200*mib, 0, 1, 2)).decide())
	if want := "defragment etcd-2: 3 of 4 voters serve"; d.Reason() != want {
		t.Errorf("one that may be about to come: %s, want %s", d.Reason(), want)
	}
}

func TestAMemberThatMayBeStoppedCountsAsNotServing(t *testing.T) {
	w := cluster(3, stopping(1))
	d := w.decide()
	if got := say(d); got != "wait UnderWay" {
		t.Errorf("decided: %s", got)
	}
	a := rollout.Assess(w.state, w.policy)
	if a.Serving != 2 || a.Replicas[1].Evidence != rollout.Unknown || !a.Replicas[1].Stopped {
		t.Errorf("%d serve, etcd-1 is %s", a.Serving, a.Replicas[1].Evidence)
	}
	// Whatever the operator overrides, what the record's protocol keeps stays.
	for i := range rollout.Guards {
		w.state.Controls.Override = append(w.state.Controls.Override, rollout.Guards[i].Name)
	}
	if got := say(w.decide()); got != "wait UnderWay" {
		t.Errorf("decided with every guard overridden: %s", got)
	}
}

func TestWhenABlockingOperationIsOver(t *testing.T) {
	ofAnother := func(w *world) { w.state.UnderWay.Member.Cluster = 9 }
	for _, tc := range []struct {
		name  string
		world *world
		want  bool
		says  string
	}{
		{"its member answers", cluster(3, stopping(1)), true, "it answers"},
		{"its member does not answer", cluster(3, stopping(1), unknown(1)), false, "does not answer yet"},
		{"its member does not answer, and its kubelet agrees", cluster(3, stopping(1), alive(1)), false,
			"does not answer yet"},
		{"its member's process has ended", cluster(3, stopping(1), dead(1)), true, "its process has ended"},
		{"its member's pod is gone", cluster(3, stopping(1), missing(1)), true, "its process has ended"},
		{"its member answers a read from before a pause", cluster(3, stopping(1), answeredAt(term-1, 1)), false,
			"does not answer yet"},
		{"its member has left the list", cluster(3, stopping(7)), true, "has left the list"},
		{"its member is not on one member's own list", cluster(3, stopping(7), localList(1)), false, "an old one"},
		{"it was another cluster", cluster(3, stopping(1), unknown(1), ofAnother), true, "another cluster"},
		{"nobody answers, so nobody is relied on", cluster(3, stopping(1), alive(0, 1, 2)), true, "no voter answers"},
		{"it is the only member, and does not answer", cluster(1, stopping(0), alive(0)), false,
			"does not answer yet"},

		{"nobody knows the members, and it may still run", cluster(3, stopping(1), noMemberList()), false,
			"may still run"},
		{"nobody knows the members, and one of three pods runs etcd",
			cluster(3, stopping(1), dead(0, 1), noMemberList()), false, "may still run"},
		{"nobody knows the members, and no pod runs etcd", cluster(3, stopping(1), dead(0, 1, 2), noMemberList()), true,
			"no pod's etcd runs"},
		{"nobody knows the only member, whose process has ended", cluster(1, stopping(0), dead(0), noMemberList()),
			true, "no pod's etcd runs"},
		{"nobody knows the only member, whose pod is gone", cluster(1, stopping(0), missing(0), noMemberList()), true,
			"no pod's etcd runs"},

		{"its very process does not answer", cluster(3, stopping(1), inItsPod(1), alive(1)), false,
			"does not answer yet"},
		{"its process was followed by another one, which does not answer",
			cluster(3, stopping(1), inItsPod(1), alive(1), restarted(1)), true, "has ended"},
		{"its pod was followed by another one, which does not answer",
			cluster(3, stopping(1), inItsPod(1), alive(1), recreated(1)), true, "has ended"},
		{"the other members have other processes", cluster(3, stopping(1), inItsPod(1), alive(1), restarted(0, 2),
			recreated(0, 2)), false, "does not answer yet"},
		{"nobody knows the members, and its very process runs",
			cluster(3, stopping(1), inItsPod(1), dead(0, 2), noMemberList()), false, "may still run"},
		{"nobody knows the members, its process has ended, and others run",
			cluster(3, stopping(1), inItsPod(1), dead(1), noMemberList()), true, "has ended"},
		{"nobody knows the only member, whose process was followed by another one",
			cluster(1, stopping(0), inItsPod(0), alive(0), restarted(0), noMemberList()), true, "has ended"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if got := rollout.Assess(tc.world.state, tc.world.policy).Unblocked(); got != tc.want {
				t.Errorf("passed: %v", got)
			}
			d := tc.world.decide()
			if text := d.Reason(); d.Guard != rollout.GuardUnderWay || !strings.Contains(text, tc.says) ||
				strings.Contains(text, "It has to answer for") == tc.want {
				t.Errorf("%s: %s, which does not say %q", tell(d), text, tc.says)
			}
		})
	}
}

func TestWhatStopsAMemberNamesTheProcessThatItIsAskedOf(t *testing.T) {
	want := rollout.Process{PodUID: "uid-etcd-2", Restarts: 3}
	uid := func(w *world) { w.pod(2).UID = want.PodUID }
	steady := aged(rollout.ReadySeen, time.Hour, 2)
	for name, w := range map[string]*world{
		"a defragmentation":   tidy(holding(500*mib, 100*mib, 2), askedAll(), uid, restarted(2), steady),
		"the end of an alarm": tidy(noSpace(2), uid, restarted(2), steady),
	} {
		var got rollout.Process
		d := of(w.decide())
		switch a := d.Action.(type) {
		case rollout.Defragment:
			got = a.Process
		case rollout.Disarm:
			got = a.Process
		}
		if got != want {
			t.Errorf("%s: %s: %+v", name, tell(d), got)
		}
	}
}

// The enumeration puts every combination of these into a cluster of three, with every leader and every set of loose
// databases. It holds what is decided against what is reckoned here.
var conditions = []struct {
	name   string
	change func(ordinal int) change
	// well is true for a member beside which another one may stop, and old for one that must not stop itself.
	well, old bool
}{
	{name: "fine", change: func(int) change { return func(*world) {} }, well: true},
	{name: "of an old etcd, and behind", well: true, old: true, change: func(o int) change {
		return func(w *world) { w.with(version("3.5.20", o), behind(1000, o)) }
	}},
	{name: "far behind", change: func(o int) change { return behind(6000, o) }},
	{name: "alive", change: func(o int) change { return alive(o) }},
	{name: "unknown", change: func(o int) change { return unknown(o) }},
	{name: "terminating", change: func(o int) change { return terminating(o) }},
	{name: "updated and not Ready", change: func(o int) change { return notReady(o) }},
	{name: "about to be evicted", change: func(o int) change { return evicted(o) }},
}

// problem says what is wrong with a decision, nothing if nothing is.
func problem(kinds [3]int, loose, leader int, w *world, d rollout.Decision) string {
	if d.Duty != rollout.DutyDefragment || !d.Acts() {
		return ""
	}
	for o, k := range kinds {
		if !conditions[k].well {
			return fmt.Sprintf("etcd-%d is %s", o, conditions[k].name)
		}
	}
	target := d.Target().Ordinal
	switch {
	case loose&(1<<target) == 0:
		return "nothing is free in it"
	case leader == 3:
		return "nobody knows who leads"
	case target == leader && loose != 1<<leader:
		return "the leader goes before a follower"
	case w.policy.HostDefragments != "":
		return "the host defragments"
	case len(w.state.Sidecars.Old) > 0:
		return "an older sidecar is there"
	case w.state.UnderWay != nil:
		return "another may be stopped"
	case w.state.Tries[id(target)].Lasting:
		return "it is forbidden"
	}
	if _, moves := d.Action.(rollout.MoveLeader); !moves {
		switch {
		case target == leader:
			return "it leads"
		case conditions[kinds[target]].old:
			return "it may be applying a snapshot"
		}
	}
	return ""
}

// firstWrong goes through all of them, and returns the first decision that is wrong.
func firstWrong(change, mutate change) (string, int) {
	acts := 0
	for k := range len(conditions) * len(conditions) * len(conditions) {
		kinds := [3]int{k % len(conditions), k / len(conditions) % len(conditions),
			k / len(conditions) / len(conditions)}
		for leader := range 4 {
			for loose := range 8 {
				w := tidy(askedAll(), change)
				for o := range 3 {
					if loose&(1<<o) != 0 {
						w.with(holding(500*mib, 100*mib, o))
					}
				}
				if leader == 3 {
					w.with(noLeader())
				} else {
					w.with(leads(leader))
				}
				for o, kind := range kinds {
					w.with(conditions[kind].change(o))
				}
				seen := *w
				mutate(&seen)
				d := seen.decide()
				if d.Duty == rollout.DutyDefragment && d.Acts() {
					acts++
				}
				if wrong := problem(kinds, loose, leader, w, d); wrong != "" {
					return fmt.Sprintf("%s: %v, leader %d, loose %03b: %s", wrong, kinds, leader, loose, tell(d)), acts
				}
			}
		}
	}
	return "", acts
}

func TestNoCombinationOfMembersIsDefragmentedWrongly(t *testing.T) {
	wrong, acts := firstWrong(func(*world) {}, func(*world) {})
	if wrong != "" || acts == 0 {
		t.Errorf("%d acted; %s", acts, wrong)
	}
}

func TestEveryMutantOfADefragmentationIsCaught(t *testing.T) {
	ignoring := func(g rollout.Guard) change { return overriding(g) }
	for _, tc := range []struct {
		name           string
		change, mutate change
		wrong          string
	}{
		{"no AllServing", func(*world) {}, ignoring(rollout.GuardAllServing), "is "},
		{"no OthersLeaving", func(*world) {}, ignoring(rollout.GuardOthersLeaving), "evicted"},
		{"no FollowersFirst", func(*world) {}, ignoring(rollout.GuardFollowersFirst), ""},
		{"no AppliesSnapshots", func(*world) {}, ignoring(rollout.GuardAppliesSnapshots), "a snapshot"},
		{"no HostDefragments", func(w *world) { w.policy.HostDefragments = "@daily" },
			ignoring(rollout.GuardHostDefragments), "the host"},
		{"no OldSidecars", func(w *world) { w.state.Sidecars.Old = []string{"etcd-1"} },
			ignoring(rollout.GuardOldSidecars), "an older"},
		{"no DefragmentFails", tried(rollout.Try{Failed: 1, Lasting: true}, 0, 1, 2),
			ignoring(rollout.GuardDefragmentFails), "forbidden"},
		{"no UnderWay", stopping(1), func(w *world) { w.state.UnderWay = nil }, "may be stopped"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if wrong, acts := firstWrong(tc.change, func(*world) {}); wrong != "" {
				t.Errorf("before it is mutated, of %d that act: %s", acts, wrong)
			}
			wrong, _ := firstWrong(tc.change, tc.mutate)
			if wrong == "" || !strings.Contains(wrong, tc.wrong) {
				t.Errorf("not caught: %q", wrong)
			}
			t.Log(wrong)
		})
	}
}

func TestFragmentationsWindowsAndSizesAreRead(t *testing.T) {
	for text, want := range map[string]string{
		"on": "45%,200MB,80%", "off": "off", "": "off", "true": "45%,200MB,80%", "30%, 1GiB, 70%": "30%,1GiB,70%",
		"45%,123456,80%": "45%,123456,80%",
	} {
		if f, err := rollout.ParseFragmentation(text); err != nil || f.String() != want {
			t.Errorf("%q: %q, %v", text, f, err)
		}
	}
	for _, text := range []string{"45%", "45,200MB,80%", "0%,200MB,80%", "45%,-1,80%", "45%,200XB,80%", "101%,1,1%"} {
		if _, err := rollout.ParseFragmentation(text); err == nil {
			t.Errorf("%q was read", text)
		}
	}
	for text, want := range map[string]string{
		"02:00-04:00 UTC": "02:00-04:00 UTC", "23:30-01:00": "23:30-01:00 UTC", "00:00-24:00": "00:00-24:00 UTC",
		"": "",
	} {
		if w, err := rollout.ParseWindow(text); err != nil || w.String() != want {
			t.Errorf("%q: %q, %v", text, w, err)
		}
	}
	for _, text := range []string{"02:00", "2-4", "02:00-02:00", "25:00-26:00", "02:00-04:00 CET"} {
		if _, err := rollout.ParseWindow(text); err == nil {
			t.Errorf("%q was read", text)
		}
	}
	night, _ := rollout.ParseWindow("23:30-01:00")
	for clock, want := range map[string]bool{"23:29": false, "23:30": true, "00:59": true, "01:00": false,
		"12:00": false} {
		at, _ := time.Parse("15:04", clock)
		if night.Contains(at.In(time.FixedZone("elsewhere", 7200))) != want {
			t.Errorf("%s: %v", clock, !want)
		}
	}
	for text, want := range map[string]int64{"200MB": 200e6, "8GiB": 8 * gib, "2147483648": 2 * gib, "-1": -1,
		"10 KiB": 10240, "8Gi": 8 * gib, "512Mi": gib / 2, "8G": 8e9, "1k": 1000, "1KB": 1000,
		"1.5Gi": 3 * gib / 2, "512 B": 512} {
		if n, err := rollout.ParseSize(text); err != nil || n != want {
			t.Errorf("%q: %d, %v", text, n, err)
		}
	}
	for _, text := range []string{"", "B", "lots", "8GG", "8 bytes", "0.5", "9999999999Gi", "1m"} {
		if n, err := rollout.ParseSize(text); err == nil {
			t.Errorf("%q was read as %d", text, n)
		}
	}
}
