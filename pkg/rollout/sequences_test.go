package rollout_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/quorate/quorate/pkg/rollout"
)

// The enumeration judges one decision at a time. What a broken revision may cost is a rule
// about many: here nothing of the new revision ever settles, members of the old one fail and
// come back as they like, in any order, and every removal that is decided on is carried out.

// fate is what becomes of one ordinal.
type fate uint8

const (
	oldServes fate = iota
	oldAlive
	oldStarting
	oldEnded     // just now
	oldEndedLong // for longer than deadAfter
	oldUnknown
	oldBacksOff // from here on it does not come back by itself
	newTerminating
	newMissing
	newStarting
	newAlive
	newServes // its sidecar never gets well
	newBacksOff
	fates
)

var classOf = [fates]class{
	oldServes:      {outdated: true},
	oldAlive:       {outdated: true, etcd: runsNotReady, answer: silent},
	oldStarting:    {outdated: true, etcd: isStarting, answer: silent},
	oldEnded:       {outdated: true, etcd: hasExited, answer: silent},
	oldEndedLong:   {outdated: true, etcd: hasBeenExited, answer: silent},
	oldUnknown:     {outdated: true, answer: otherAnswers},
	oldBacksOff:    {outdated: true, etcd: crashLoops, answer: silent},
	newTerminating: {pod: goingPod, outdated: true, etcd: runsNotReady},
	newMissing:     {pod: absent, etcd: noEtcd, answer: silent},
	newStarting:    {etcd: isStarting, answer: silent},
	newAlive:       {etcd: runsNotReady, answer: silent},
	newServes:      {sick: true},
	newBacksOff:    {etcd: crashLoops, answer: silent},
}

// A broken revision costs at most one member that served or would have come back by itself,
// whatever fails meanwhile: a node reboots while the first updated pod is on its way, the
// power is cut, members crash for good.
func TestABrokenRevisionCostsAtMostOneMemberThatWouldHaveComeBack(t *testing.T) {
	for _, e := range []environment{
		{maxUnavailable: 1, self: noSelf}, {maxUnavailable: 3, self: noSelf},
		{maxUnavailable: 1, self: noSelf, ordered: true},
		{maxUnavailable: 3, self: noSelf, noList: true},
	} {
		for _, n := range []int{1, 3, 4} {
			t.Run(fmt.Sprintf("%d members, %v", n, e), func(t *testing.T) {
				positions, cost, problem := newScene(newCatalogue(classOf[:], n), e, n).play()
				if problem != "" {
					t.Fatal(problem)
				}
				t.Logf("%d positions, at most %d such members lost", positions, cost)
				if cost == 0 {
					t.Error("none was ever lost: this shows nothing")
				}
			})
		}
	}
}

// The guard taken out, the sequences show what it is for.
func TestWithoutRevisionSuspectABrokenRevisionCostsMore(t *testing.T) {
	s := newScene(newCatalogue(classOf[:], 3), environment{maxUnavailable: 1, self: noSelf}, 3)
	s.mutate = without(rollout.GuardRevisionSuspect)
	_, _, problem := s.play()
	if problem == "" {
		t.Error("it did not")
	}
	t.Log(problem)
}

// position is where all ordinals are, and how many were lost that would have come back.
type position struct {
	at   [4]fate
	lost int
}

// play visits every position that can be reached, and returns how many there are and how many
// members are lost at most. It ends with the first position that is wrong.
func (s *scene) play() (positions, cost int, problem string) {
	begin := position{}
	came := map[position]string{begin: "it begins"}
	queue := []position{begin}
	visit := func(from, to position, how string) {
		if _, known := came[to]; !known {
			came[to] = fmt.Sprintf("%s\n  %v: %s", came[from], to.at[:s.n], how)
			queue = append(queue, to)
		}
	}
	members := make([]int, s.n)
	for len(queue) > 0 {
		p := queue[0]
		queue = queue[1:]
		for i := range s.n {
			first, last := oldServes, oldBacksOff
			if p.at[i] >= newTerminating {
				first, last = newTerminating, newBacksOff
			}
			for f := first; f <= last; f++ {
				next := p
				next.at[i] = f
				visit(p, next, fmt.Sprintf("etcd-%d changes by itself", i))
			}
			members[i] = int(p.at[i])
		}
		for leader := range s.n + 1 { // Whoever may lead; the last is nobody.
			d := s.decide(members, leader, false)
			if d.Action.Name() != rollout.ActionRemove {
				continue
			}
			next, o := p, d.Target().Ordinal
			if p.at[o] != oldBacksOff {
				next.lost++
			}
			next.at[o] = newTerminating
			if next.lost > 1 {
				return len(
						came,
					), next.lost, fmt.Sprintf(
						"%s\n  %v: etcd-%d goes as the second: %s",
						came[p],
						p.at[:s.n],
						o,
						d.Reason(),
					)
			}
			cost = max(cost, next.lost)
			visit(p, next, fmt.Sprintf("etcd-%d is removed", o))
		}
	}
	return len(came), cost, ""
}

func (f fate) String() string { return strings.ReplaceAll(classOf[f].String(), " ", "-") }

// What a mended revision needs must not be kept back by what the broken one has left.
func TestAFixReachesEveryPodThatTheBrokenRevisionHasLeftBehind(t *testing.T) {
	broken := func(ordinals ...int) change {
		return each(ordinals, func(w *world, o int) { w.pod(o).Revision = "rev-broken" })
	}
	for _, tc := range []struct {
		name  string
		world *world
		steps []string
	}{
		{"one pod that crashes", cluster(3, broken(2), dead(2)), []string{"delete etcd-2"}},
		{"one pod whose image cannot be pulled",
			cluster(3, broken(2), waitingFor("ImagePullBackOff", 2)), []string{"delete etcd-2"}},
		{"one pod that hangs", cluster(3, broken(2), alive(2)), []string{"delete etcd-2"}},
		{"one pod that never gets a volume", cluster(3, broken(2), starting(2)), []string{"delete etcd-2"}},
		{"quorum is lost: two pods that crash, one after the other, without waiting",
			cluster(3, broken(1, 2), dead(1, 2), alive(0)), []string{"delete etcd-2", "delete etcd-1"}},
		{"all three crash",
			cluster(3, broken(0, 1, 2), dead(0, 1, 2)), []string{"delete etcd-2", "delete etcd-1", "delete etcd-0"}},
		{"all three, and no member list",
			cluster(3, broken(0, 1, 2), dead(0, 1, 2), noMemberList()),
			[]string{"delete etcd-2", "delete etcd-1", "delete etcd-0"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			var steps []string
			for range tc.steps {
				d := tc.world.decide()
				steps = append(steps, say(d))
				if d.Acts() {
					tc.world.with(updated(d.Target().Ordinal), func(w *world) {
						p := w.pod(d.Target().Ordinal)
						p.Etcd = rollout.Container{State: rollout.ContainerWaiting, Reason: "ContainerCreating"}
						p.Ready, p.ContainersReady = false, false
					})
				}
			}
			if !slices.Equal(steps, tc.steps) {
				t.Errorf("%q, want %q", steps, tc.steps)
			}
		})
	}
}
