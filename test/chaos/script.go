package chaos

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"github.com/quorate/quorate/test/harness"
	"github.com/quorate/quorate/test/harness/apiproxy"
)

// Script is one life of a cluster: what is done to it, and when. It follows from its seed
// alone.
type Script struct {
	Seed uint64
	// Replicas and Image are what the cluster begins with.
	Replicas int
	Image    string
	// PlainText turns mTLS off.
	PlainText bool
	// SettleTimeout is the sidecars' --settle-timeout: the default, which no round outlasts,
	// or one that lost quorum can outlast.
	SettleTimeout time.Duration
	// StopDelay is how long a member goes on serving once its pod terminates, by a preStop
	// hook; 0 without one.
	StopDelay time.Duration
	// SlowDisk is the ordinal whose disk can be slow.
	SlowDisk int
	Rounds   []Round
	// after is how it leaves the cluster.
	after state
}

// Round is one change of the workload, and the faults meanwhile.
type Round struct {
	Change Change
	// QuorumLost is true when the round takes quorum away on purpose.
	QuorumLost bool
	// Lanes are run side by side. The faults of one lane come one after another, each with
	// a breath after the last: those that take a member away share as many lanes as
	// members may be away.
	Lanes [][]Fault
}

// Change is what an operator does to the StatefulSet.
type Change struct {
	Kind ChangeKind
	// Breakage is what a bad revision breaks.
	Breakage Breakage
	// Patience is how long a bad revision is left alone once it has failed, how long a
	// template lasts that is taken back, how long after the first removal a rolling cluster is
	// scaled, and how long after a scale-in the members stay on the list.
	Patience time.Duration
	// Ghosts is true for a scale-in after which the members are left to the coordinator, which removes
	// them from the list on request.
	Ghosts bool
}

// ChangeKind names a change.
type ChangeKind string

// The changes.
const (
	Upgrade     ChangeKind = "upgrade etcd from 3.5 to 3.6"
	NewSidecar  ChangeKind = "another tag of the sidecar's image"
	Touch       ChangeKind = "touch the template"
	TouchTwice  ChangeKind = "touch the template, and again while it rolls"
	Rollback    ChangeKind = "touch the template, and roll it back while it rolls"
	BadRevision ChangeKind = "a bad revision, and its fix"
	// Both are changes of the template, too: it names the members.
	ScaleOut ChangeKind = "scale from 3 to 5"
	ScaleIn  ChangeKind = "scale from 5 to 3"
	// And both of them while an earlier template rolls.
	RollScaleOut ChangeKind = "touch the template, and scale from 3 to 5 while it rolls"
	RollScaleIn  ChangeKind = "touch the template, and scale from 5 to 3 while it rolls"
)

// Breakage names what is wrong with a bad revision.
type Breakage string

// The breakages.
const (
	BadEtcd    Breakage = "etcd crashes at every start"
	BadSidecar Breakage = "the sidecar crashes at every start"
	NoImage    Breakage = "etcd's image does not exist"
	// HangEtcd never fails: for as long as a sidecar waits, it may yet come up.
	HangEtcd Breakage = "etcd hangs at every start"
)

func (c Change) String() string {
	switch {
	case c.Kind == BadRevision:
		return fmt.Sprintf("%s (%s)", c.Kind, c.Breakage)
	case c.Ghosts:
		return string(c.Kind) + ", which leaves ghosts"
	}
	return string(c.Kind)
}

// FaultKind names a fault.
type FaultKind string

// The faults. Those of the first group can take a member away.
const (
	KillEtcd  FaultKind = "SIGKILL to etcd"
	KillBoth  FaultKind = "SIGKILL to etcd and sidecar"
	StopEtcd  FaultKind = "SIGSTOP to etcd"
	StopBoth  FaultKind = "SIGSTOP to etcd and sidecar"
	CutOff    FaultKind = "cut off from its peers"
	Separate  FaultKind = "cut off from one peer"
	Isolate   FaultKind = "cut off from everybody"
	LoseNode  FaultKind = "node lost"
	Reboot    FaultKind = "node rebooted"
	DeletePod FaultKind = "pod deleted by an operator"
	FullDisk  FaultKind = "disk full"
	SlowDisk  FaultKind = "disk slow"
	// CutZone is about a majority, its victims, that goes on without the API server. A minority is left with it.
	CutZone FaultKind = "cut off from the API server's zone"

	KillSidecar FaultKind = "SIGKILL to the sidecar"
	StopSidecar FaultKind = "SIGSTOP to the sidecar"
	NoAPI       FaultKind = "sidecar cut off from the API server"
	SlowAPI     FaultKind = "sidecar's requests delayed"
	SlowAllAPI  FaultKind = "all sidecars' requests delayed"
	Forbid      FaultKind = "sidecar's permission refused"
	HoldRemoval FaultKind = "next removal held"
	HoldIntent  FaultKind = "next intent held"
	StopAPI     FaultKind = "API server killed"
	PauseAPI    FaultKind = "API server halted"
	// The controllers: those of StatefulSets and of PodDisruptionBudgets among them.
	PauseControllers FaultKind = "controllers halted"
	Drain            FaultKind = "node drained"
	DrainAll         FaultKind = "all nodes drained, one after the other"

	// What gives the coordinator other work than the rollout.
	CordonAndDrain FaultKind = "node cordoned and drained"
	FillQuota      FaultKind = "quota filled by writes"
	Loosen         FaultKind = "databases loose"
	LoosenAndAsk   FaultKind = "databases loose, and a defragmentation asked for"
	AddGhost       FaultKind = "a voter that never starts, and its removal asked for"
	// Steps of an operation on a member at which its coordinator is killed.
	KillBefore  FaultKind = "SIGKILL before an operation on a member is on record"
	KillOnIt    FaultKind = "SIGKILL when an operation on a member is on record"
	KillCalling FaultKind = "SIGKILL while an operation on a member is carried out"
	KillEnding  FaultKind = "SIGKILL before the end of an operation on a member is on record"

	// Hands try to take another pod while one is away and quorum rests on some. GuardOff lets them.
	Hands    FaultKind = "hands that take another pod"
	GuardOff FaultKind = "quorum guard turned off"
)

// killing are the steps of an operation on a member, in their order.
var killing = []FaultKind{KillBefore, KillOnIt, KillCalling, KillEnding}

// Fault is one fault.
type Fault struct {
	Kind FaultKind
	// Removals and Delay say when: so long after so many pods have been removed since the
	// change.
	Removals int
	Delay    time.Duration
	// Victims are whom it hits; all at once. None for what hits all alike.
	Victims []Victim
	// For is how long it lasts, where it does not end by itself.
	For time.Duration
	// By is by how much a disk or a request is slower.
	By time.Duration
	// Starts is for how long a node that has booted reports its containers as terminated
	// before it starts them again.
	Starts time.Duration
	// LastWords is what the kubelets have said last of the etcds that are cut off from the API server's zone.
	LastWords Container
	// Refused is what a sidecar may not do.
	Refused Permission
	// Outcome is what becomes of a request that is held.
	Outcome Outcome
	// While, if any, is another fault that hits while a request is held. Its victim is
	// never the pod that is to be removed.
	While *Fault
	// During is the operation that the record names when it hits, whatever that is about. It is empty for
	// most.
	During string
	// Way is how hands try first to take a pod. The other ways follow in turn.
	Way string
}

// Victim chooses a pod.
type Victim string

// Victims that depend on the moment. Any other is an ordinal.
const (
	TheLeader      Victim = "the leader"
	TheCoordinator Victim = "the coordinator"
	// TheNewest is the pod that was replaced last.
	TheNewest Victim = "the newest"
)

// Permission names what a sidecar is refused.
type Permission string

// The permissions.
const (
	ToRemove       Permission = "to remove pods"
	ToPatchPods    Permission = "to patch pods"
	ToWriteRecord  Permission = "to write the record"
	ToReadRecord   Permission = "to read the record"
	ToReadPods     Permission = "to read pods"
	ToReadTheSet   Permission = "to read the StatefulSet"
	ToDoAnything   Permission = "to do anything"
	ToDoAllButRead Permission = "to do anything but read"
)

// denied are the verbs on resources, as in RBAC, that make up a permission.
var denied = map[Permission]map[string][]string{
	ToRemove:      {"pods": {"delete"}, "pods/eviction": {"create"}},
	ToPatchPods:   {"pods": {"patch"}},
	ToWriteRecord: {"leases": {"create", "update", "patch"}},
	ToReadRecord:  {"leases": {"get", "list", "watch"}},
	ToReadPods:    {"pods": {"get", "list", "watch"}},
	ToReadTheSet:  {"statefulsets": {"get", "list", "watch"}},
	ToDoAllButRead: {"pods": {"delete", "patch"}, "pods/eviction": {"create"}, "leases": {"create", "update", "patch"},
		"events": {"create", "patch"}},
}

// denies reports whether a permission is needed for a request.
func (p Permission) denies(r *apiproxy.Request) bool {
	if p == ToDoAnything {
		return true
	}
	for resource, verbs := range denied[p] {
		if r.Is(resource, verbs...) {
			return true
		}
	}
	return false
}

// Outcome is what becomes of a held request.
type Outcome string

// The outcomes.
const (
	// Released: it is forwarded and answered, late.
	Released Outcome = "then released"
	// AnswerLost: it takes effect at once, and its client never hears of it.
	AnswerLost Outcome = "done, its answer lost"
	// Lost: it never arrives.
	Lost Outcome = "then lost"
	// Failed: it takes effect at once, and its client hears of an error of the server's.
	Failed Outcome = "done, answered with 500"
)

func (f Fault) String() string {
	var b strings.Builder
	b.WriteString(string(f.Kind))
	if len(f.Victims) > 0 {
		names := make([]string, len(f.Victims))
		for i, v := range f.Victims {
			names[i] = string(v)
		}
		fmt.Fprintf(&b, " of %s", strings.Join(names, " and "))
	}
	if f.Refused != "" {
		fmt.Fprintf(&b, " %s", f.Refused)
	}
	if f.By > 0 {
		fmt.Fprintf(&b, " by %v", f.By)
	}
	if f.For > 0 {
		fmt.Fprintf(&b, " for %v", f.For)
	}
	if f.Starts > 0 {
		fmt.Fprintf(&b, ", its containers back %v later", f.Starts)
	}
	if f.Way != "" {
		fmt.Fprintf(&b, ", at first by %s", f.Way)
	}
	if f.LastWords != "" {
		fmt.Fprintf(&b, ", their kubelets' last word %q", f.LastWords)
	}
	if f.Outcome != "" {
		fmt.Fprintf(&b, ", %s", f.Outcome)
	}
	if f.During != "" {
		fmt.Fprintf(&b, " during the operation %q", f.During)
	}
	if f.While != nil {
		fmt.Fprintf(&b, ", meanwhile %s", *f.While)
	}
	if f.Delay > 0 || f.Removals > 0 {
		fmt.Fprintf(&b, " (+%v", f.Delay)
		if f.Removals > 0 {
			fmt.Fprintf(&b, " after removal %d", f.Removals)
		}
		b.WriteString(")")
	}
	return b.String()
}

const (
	// fewestRounds and mostRounds are how many a life has: enough for the traces of one
	// round to matter in the next, few enough that many lives fit into an hour.
	fewestRounds, mostRounds = 4, 6
	// stream keeps the random numbers of a script apart from any other use of the seed, duties those that choose
	// other work than rollouts, zones those that cut off the API server's zone, and hands those of them.
	stream = 0x71756f72617465
	duties = 0x647574696573
	zones  = 0x7a6f6e6573
	hands  = 0x68616e6473
)

// weighted is one of several choices.
type weighted[T any] struct {
	weight int
	value  T
}

type dice struct{ *rand.Rand }

func pick[T any](d dice, choices ...weighted[T]) T {
	total := 0
	for _, c := range choices {
		total += c.weight
	}
	n := d.IntN(total)
	for _, c := range choices {
		if n -= c.weight; n < 0 {
			return c.value
		}
	}
	panic("unreachable") // n is less than the sum of the weights.
}

// between draws a duration in steps of 100 ms, so that it reads well.
func (d dice) between(from, to time.Duration) time.Duration {
	const step = 100 * time.Millisecond
	return from + step*time.Duration(d.IntN(int((to-from)/step)+1))
}

func (d dice) chance(oneIn int) bool { return d.IntN(oneIn) == 0 }

// Draw draws the script of a seed.
func Draw(seed uint64) Script {
	d := dice{rand.New(rand.NewPCG(seed, stream))}
	s := Script{
		Seed:     seed,
		Replicas: pick(d, weighted[int]{5, 3}, weighted[int]{1, 5}),
		Image:    pick(d, weighted[string]{3, harness.Etcd35}, weighted[string]{1, harness.Etcd36}),
	}
	s.PlainText = !d.chance(3)
	s.SettleTimeout = pick(d, weighted[time.Duration]{3, 5 * time.Minute}, weighted[time.Duration]{1, 20 * time.Second})
	if d.chance(3) || s.Replicas == 5 && d.chance(2) {
		s.StopDelay = time.Duration(1+d.IntN(8)) * time.Second
	}
	s.SlowDisk = d.IntN(3)
	s.after = state{replicas: s.Replicas, upgraded: s.Image == harness.Etcd36}
	s.drawRounds(d)
	return s
}

// Next draws the script that goes on with the same cluster, from the next seed.
func (s Script) Next() Script {
	s.Seed++
	s.Replicas, s.Rounds = s.after.replicas, nil
	if s.after.upgraded {
		s.Image = harness.Etcd36
	}
	s.drawRounds(dice{rand.New(rand.NewPCG(s.Seed, stream))})
	return s
}

func (s *Script) drawRounds(d dice) {
	other := dice{rand.New(rand.NewPCG(s.Seed, duties))}
	cuts := dice{rand.New(rand.NewPCG(s.Seed, zones))}
	taking := dice{rand.New(rand.NewPCG(s.Seed, hands))}
	for range fewestRounds + d.IntN(mostRounds-fewestRounds+1) {
		members := s.after.replicas
		r := drawRound(d, *s, &s.after)
		if r.QuorumLost && cuts.chance(3) {
			r.Lanes[0] = []Fault{drawCut(cuts, members)} // The outage, as any other, is the first lane.
		}
		drawDuties(other, &r, min(members, s.after.replicas))
		drawHands(taking, &r, min(members, s.after.replicas))
		s.Rounds = append(s.Rounds, r)
	}
}

// drawDuties gives the coordinator other work beside a rollout, and faults that hit it then. More often than not a
// round has some.
func drawDuties(d dice, r *Round, members int) {
	add := func(f Fault) { r.Lanes = append(r.Lanes, []Fault{f}) }
	if k := r.Change.Kind; k == ScaleIn || k == RollScaleIn {
		r.Change.Ghosts = d.chance(2)
	}
	work := Fault{Kind: pick(d, weighted[FaultKind]{3, ""}, weighted[FaultKind]{3, FillQuota},
		weighted[FaultKind]{2, Loosen}, weighted[FaultKind]{4, LoosenAndAsk}, weighted[FaultKind]{4, AddGhost})}
	if work.Kind == AddGhost && (r.Change.Kind.scales() || r.QuorumLost || r.Change.needsEveryVoter(members)) {
		work.Kind = LoosenAndAsk // etcd takes one change of its members at a time, and none without a quorum.
	}
	operation := map[FaultKind]string{FillQuota: defragments, Loosen: defragments, LoosenAndAsk: defragments,
		AddGhost: removesMember}[work.Kind]
	if work.Kind != "" {
		d.moment(&work, members)
		if work.Kind == FillQuota || work.Kind == AddGhost {
			work.For = d.between(time.Second, 10*time.Second)
		}
		add(work)
	} else if r.Change.Ghosts {
		operation = removesMember
	}
	if operation != "" && d.chance(2) {
		kill := Fault{Kind: killing[d.IntN(len(killing))]}
		if kill.Kind == KillCalling {
			kill.For = time.Duration(d.IntN(40)) * 5 * time.Millisecond
		}
		add(kill)
	}
	if d.chance(3) {
		drain := Fault{Kind: CordonAndDrain, Victims: []Victim{d.victim(members)},
			For: d.between(0, 12*time.Second)}
		if operation == defragments && d.chance(2) {
			drain.During = defragments
		} else {
			d.moment(&drain, members)
		}
		add(drain)
	}
}

// drawHands lets hands try to take another pod in most rounds. At times the quorum guard is off for a while meanwhile.
func drawHands(d dice, r *Round, members int) {
	if d.chance(4) || len(r.Lanes) > 0 && r.Lanes[0][0].Kind == CutZone {
		return // They would take who is left with the API server, and nobody there would be tempted to do wrong.
	}
	f := Fault{Kind: Hands, Victims: []Victim{d.victim(members)}, Way: harness.Ways[d.IntN(len(harness.Ways))],
		For: d.between(15*time.Second, time.Minute)}
	d.moment(&f, members)
	f.Removals = max(f.Removals-1, 0) // Whoever is to be there when a pod goes has to come before.
	r.Lanes = append(r.Lanes, []Fault{f})
	if d.chance(4) {
		off := Fault{Kind: GuardOff, For: d.between(time.Second, 8*time.Second)}
		d.moment(&off, members)
		r.Lanes = append(r.Lanes, []Fault{off})
	}
}

// state is what the script knows of the cluster between two rounds.
type state struct {
	replicas         int
	upgraded, scaled bool
}

func drawRound(d dice, s Script, now *state) Round {
	r := Round{Change: drawChange(d, now)}
	// Who scales needs a quorum for every step: there, faults are spared the rest.
	scaling := r.Change.Kind.scales()
	members := min(now.replicas, s.replicasAfter(r.Change, now.replicas))
	switch r.QuorumLost = !scaling && d.chance(4); {
	case r.QuorumLost:
		r.Lanes = append(r.Lanes, []Fault{drawOutage(d, members, r.Change.Kind == BadRevision)})
	default:
		lanes := make([][]Fault, (members-1)/2)
		for range 1 + d.IntN(2*len(lanes)) {
			lane := d.IntN(len(lanes))
			lanes[lane] = append(lanes[lane], drawMemberFault(d, s, members))
		}
		if r.Change.Kind == BadRevision && d.chance(2) {
			// While the first pod of the bad revision comes up.
			lanes[0] = slices.Insert(lanes[0], 0, drawReboot(d, members))
		}
		r.Lanes = slices.DeleteFunc(lanes, func(lane []Fault) bool { return len(lane) == 0 })
	}
	for range 1 + d.IntN(4) {
		other := drawOtherFault(d, s, members)
		if other.Kind == DrainAll && r.QuorumLost && r.Change.Kind == BadRevision {
			continue // No budget keeps pods that are not Ready, and so all of them would get the bad revision.
		}
		r.Lanes = append(r.Lanes, []Fault{other})
	}
	now.replicas = s.replicasAfter(r.Change, now.replicas)
	return r
}

func (Script) replicasAfter(c Change, before int) int {
	switch c.Kind {
	case ScaleOut, RollScaleOut:
		return 5
	case ScaleIn, RollScaleIn:
		return 3
	default:
		return before
	}
}

// needsEveryVoter reports whether the cluster may get stuck when a voter is added that never starts. Beside etcds that
// hang, the new voter can cost the quorum, and without one they are left alone for settleTimeout. Of three members none
// can be spared for the fix then, and the ghost is not removed while a sidecar does not run (guard PodsServe).
func (c Change) needsEveryVoter(members int) bool {
	return c.Breakage == HangEtcd || c.Breakage == BadSidecar && members < 5
}

// scales reports whether the change is one of the number of members.
func (k ChangeKind) scales() bool {
	return slices.Contains([]ChangeKind{ScaleOut, ScaleIn, RollScaleOut, RollScaleIn}, k)
}

func drawChange(d dice, now *state) Change {
	choices := []weighted[ChangeKind]{{4, Touch}, {3, NewSidecar}, {2, TouchTwice}, {3, Rollback}, {4, BadRevision}}
	if !now.upgraded {
		// Only ever upwards: etcd does not go back a minor version.
		choices = append(choices, weighted[ChangeKind]{6, Upgrade})
	}
	if !now.scaled {
		// Once in a life: a member's data outlives its removal, and a removed member's data
		// does not start again.
		kinds := map[int][2]ChangeKind{3: {ScaleOut, RollScaleOut}, 5: {ScaleIn, RollScaleIn}}[now.replicas]
		weight := map[int]int{3: 1, 5: 3}[now.replicas] // Few lives begin with five.
		choices = append(choices, weighted[ChangeKind]{weight, kinds[0]}, weighted[ChangeKind]{weight, kinds[1]})
	}
	c := Change{Kind: pick(d, choices...)}
	switch c.Kind {
	case Upgrade:
		now.upgraded = true
	case ScaleOut:
		now.scaled = true
	case ScaleIn, RollScaleOut, RollScaleIn:
		now.scaled = true
		c.Patience = d.between(0, 6*time.Second)
	case BadRevision:
		c.Breakage = pick(d, weighted[Breakage]{2, BadEtcd}, weighted[Breakage]{2, BadSidecar},
			weighted[Breakage]{1, NoImage}, weighted[Breakage]{3, HangEtcd})
		c.Patience = d.between(2*time.Second,
			map[bool]time.Duration{false: 6 * time.Second, true: 25 * time.Second}[c.Breakage == HangEtcd])
	case TouchTwice, Rollback:
		c.Patience = d.between(0, 4*time.Second)
	case NewSidecar, Touch:
	}
	return c
}

// moment draws when: mostly soon after one of the removals but the last, because that is
// when a second loss hurts.
func (d dice) moment(f *Fault, members int) {
	if !d.chance(4) {
		f.Removals = d.IntN(members)
	}
	f.Delay = d.between(0, pick(d, weighted[time.Duration]{1, time.Second},
		weighted[time.Duration]{1, 5 * time.Second}))
}

func (d dice) victim(members int) Victim {
	return pick(d, weighted[Victim]{2, TheLeader}, weighted[Victim]{2, TheCoordinator}, weighted[Victim]{1, TheNewest},
		weighted[Victim]{4, Victim(fmt.Sprint(d.IntN(members)))})
}

func drawMemberFault(d dice, s Script, members int) Fault {
	f := Fault{Victims: []Victim{d.victim(members)}}
	f.Kind = pick(d, weighted[FaultKind]{4, KillEtcd}, weighted[FaultKind]{2, KillBoth},
		weighted[FaultKind]{4, StopEtcd},
		weighted[FaultKind]{2, StopBoth}, weighted[FaultKind]{3, CutOff}, weighted[FaultKind]{2, Separate},
		weighted[FaultKind]{3, Isolate},
		weighted[FaultKind]{3, LoseNode}, weighted[FaultKind]{3, Reboot}, weighted[FaultKind]{1, DeletePod},
		weighted[FaultKind]{3, FullDisk}, weighted[FaultKind]{3, SlowDisk})
	switch f.Kind {
	case KillEtcd, KillBoth, DeletePod:
	case SlowDisk:
		f.Victims = []Victim{Victim(fmt.Sprint(s.SlowDisk))}
		f.By, f.For = d.between(200*time.Millisecond, 1500*time.Millisecond), d.between(3*time.Second, 12*time.Second)
	case Reboot:
		d.reboot(&f)
	default:
		f.For = d.between(time.Second, 12*time.Second)
	}
	d.moment(&f, members)
	return f
}

// reboot draws how long a node has no power, and how long its containers take then: what is
// terminated counts as dead at some time.
func (d dice) reboot(f *Fault) {
	f.For, f.Starts = d.between(500*time.Millisecond, 4*time.Second), d.between(time.Second, 18*time.Second)
}

// drawReboot draws a reboot soon after the first removal, of a node that is likely another.
func drawReboot(d dice, members int) Fault {
	victim := pick(d, weighted[Victim]{1, TheLeader}, weighted[Victim]{1, TheCoordinator},
		weighted[Victim]{2, Victim(fmt.Sprint(d.IntN(members)))})
	f := Fault{Kind: Reboot, Victims: []Victim{victim}, Removals: 1, Delay: d.between(0, 3*time.Second)}
	d.reboot(&f)
	return f
}

// drawOutage draws a fault that takes a majority away at once, or everybody. With a bad
// revision it is a power cut more often.
func drawOutage(d dice, members int, badRevision bool) Fault {
	away := members/2 + 1
	reboots := map[bool]int{false: 2, true: 12}[badRevision]
	f := Fault{Kind: pick(d, weighted[FaultKind]{2, KillEtcd}, weighted[FaultKind]{1, KillBoth},
		weighted[FaultKind]{3, StopEtcd},
		weighted[FaultKind]{2, StopBoth}, weighted[FaultKind]{2, Isolate}, weighted[FaultKind]{2, LoseNode},
		weighted[FaultKind]{2, FullDisk},
		weighted[FaultKind]{reboots, Reboot})}
	if f.Kind == Reboot && !d.chance(3) {
		away = members
	}
	for _, ordinal := range d.Perm(members)[:away] {
		f.Victims = append(f.Victims, Victim(fmt.Sprint(ordinal)))
	}
	switch f.Kind {
	case KillEtcd, KillBoth:
	case Reboot:
		d.reboot(&f)
	default:
		f.For = d.between(3*time.Second, 15*time.Second)
	}
	d.moment(&f, members)
	if badRevision && d.chance(2) {
		f.Removals, f.Delay = 1, d.between(0, 3*time.Second)
	}
	return f
}

// drawCut draws a cut between a majority and the zone of the API server. It begins before the rollout has come far, and
// lasts long enough for another coordinator to come into office in that zone, and for a container to count as dead.
func drawCut(d dice, members int) Fault {
	f := Fault{Kind: CutZone, For: d.between(15*time.Second, 30*time.Second),
		Delay: d.between(0, 3*time.Second),
		LastWords: pick(d, weighted[Container]{4, BacksOff}, weighted[Container]{2, Terminated},
			weighted[Container]{1, Running})}
	if !d.chance(3) {
		f.Removals = 1 // The pod that has been replaced is left in the zone then.
	}
	for _, ordinal := range d.Perm(members)[:members/2+1] {
		f.Victims = append(f.Victims, Victim(fmt.Sprint(ordinal)))
	}
	return f
}

func drawOtherFault(d dice, s Script, members int) Fault {
	f := Fault{Kind: pick(d, weighted[FaultKind]{3, KillSidecar}, weighted[FaultKind]{4, StopSidecar},
		weighted[FaultKind]{3, NoAPI},
		weighted[FaultKind]{3, SlowAPI}, weighted[FaultKind]{3, SlowAllAPI}, weighted[FaultKind]{4, Forbid},
		weighted[FaultKind]{5, HoldRemoval}, weighted[FaultKind]{2, HoldIntent},
		weighted[FaultKind]{2, StopAPI}, weighted[FaultKind]{2, PauseAPI}, weighted[FaultKind]{3, PauseControllers},
		weighted[FaultKind]{4, Drain}, weighted[FaultKind]{4, DrainAll})}
	switch f.Kind {
	case KillSidecar, StopSidecar, NoAPI, SlowAPI, Forbid:
		f.Victims = []Victim{pick(d, weighted[Victim]{3, TheCoordinator},
			weighted[Victim]{2, Victim(fmt.Sprint(d.IntN(members)))})}
	case Drain:
		f.Victims = []Victim{d.victim(members)}
	default:
	}
	switch f.Kind {
	case KillSidecar, Drain, DrainAll:
	case HoldRemoval, HoldIntent:
		f.Outcome = pick(d, weighted[Outcome]{4, Released}, weighted[Outcome]{2, AnswerLost},
			weighted[Outcome]{1, Lost}, weighted[Outcome]{1, Failed})
		f.For = d.between(100*time.Millisecond,
			pick(d, weighted[time.Duration]{2, 2 * time.Second}, weighted[time.Duration]{1, 12 * time.Second}))
		if f.Kind == HoldRemoval && d.chance(2) {
			f.While = drawMeanwhile(d, s, members)
		}
	case SlowAPI:
		// What is usual for a busy API server, or what no timeout expects.
		f.By = d.between(100*time.Millisecond,
			pick(d, weighted[time.Duration]{1, 500 * time.Millisecond}, weighted[time.Duration]{1, 4 * time.Second}))
		f.For = d.between(3*time.Second, 12*time.Second)
	case SlowAllAPI:
		f.By, f.For = d.between(100*time.Millisecond, 500*time.Millisecond), d.between(5*time.Second, 30*time.Second)
	case Forbid:
		f.Refused = pick(d, weighted[Permission]{3, ToRemove}, weighted[Permission]{2, ToPatchPods},
			weighted[Permission]{3, ToWriteRecord},
			weighted[Permission]{2, ToReadRecord}, weighted[Permission]{2, ToReadPods},
			weighted[Permission]{2, ToReadTheSet},
			weighted[Permission]{1, ToDoAnything}, weighted[Permission]{1, ToDoAllButRead})
		f.For = d.between(2*time.Second, 20*time.Second)
	case PauseControllers:
		f.For = d.between(2*time.Second, 12*time.Second)
	case StopAPI, PauseAPI:
		f.For = d.between(500*time.Millisecond, 8*time.Second)
	default:
		f.For = d.between(time.Second, 12*time.Second)
	}
	d.moment(&f, members)
	return f
}

// drawMeanwhile draws what happens between the moment at which a removal is sent and the
// one at which it arrives.
func drawMeanwhile(d dice, _ Script, members int) *Fault {
	f := &Fault{Kind: pick(d, weighted[FaultKind]{2, KillSidecar}, weighted[FaultKind]{2, StopSidecar},
		weighted[FaultKind]{2, KillEtcd}, weighted[FaultKind]{1, StopEtcd})}
	switch f.Kind {
	case KillSidecar, StopSidecar:
		f.Victims = []Victim{TheCoordinator}
	default:
		f.Victims = []Victim{Victim(fmt.Sprint(d.IntN(members)))}
	}
	if f.Kind == StopSidecar || f.Kind == StopEtcd {
		f.For = d.between(time.Second, 10*time.Second)
	}
	return f
}

// String is the script as it is told before it is played.
func (s Script) String() string {
	var b strings.Builder
	fmt.Fprintf(&b,
		"seed %d: %d members, %s, %s, settle timeout %v, members serve on for %v when they stop, rounds: %d\n",
		s.Seed, s.Replicas, s.Image, map[bool]string{true: "plain text", false: "mTLS"}[s.PlainText], s.SettleTimeout,
		s.StopDelay, len(s.Rounds))
	for i, r := range s.Rounds {
		fmt.Fprintf(&b, "  round %d: %s\n", i+1, r)
	}
	return b.String()
}

func (r Round) String() string {
	text := r.Change.String()
	if r.QuorumLost {
		text += " [quorum taken away]"
	}
	for _, lane := range r.Lanes {
		parts := make([]string, len(lane))
		for i, f := range lane {
			parts[i] = f.String()
		}
		text += "; " + strings.Join(parts, ", then ")
	}
	return text
}
