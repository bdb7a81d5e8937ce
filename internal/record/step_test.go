package record_test

import (
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/quorate/quorate/internal/record"
)

const (
	me   = "etcd-0_u0"
	them = "etcd-1_u1"
)

var config = record.Config{
	Identity: me, Duration: 15 * time.Second, MaxEvidenceAge: 5 * time.Second, Recovery: 30 * time.Second,
}

// theirs is a record that another coordinator holds, mine what becomes of it.
func theirs() record.Record {
	return record.Record{ResourceVersion: "10", Schema: record.Schema, Holder: them, Epoch: 6, Duration: 20 * time.Second}
}

func mine(version string, i record.Intent) record.Record {
	l := record.Record{ResourceVersion: version, Schema: record.Schema, Holder: me, Epoch: 7, Duration: 15 * time.Second,
		Rolling: true, Intent: i}
	if i.Operation == presumedOp || i.Operation == blockingOp {
		l.Schema = record.Newest
	}
	return l
}

func released(version string, i record.Intent) record.Record {
	l := mine(version, i)
	l.Holder = ""
	return l
}

// finished is the record after a rollout; one that was merely released says that the
// rollout is still under way.
func finished(version string) record.Record {
	l := released(version, nothing)
	l.Rolling = false
	return l
}

func with(l record.Record, change func(*record.Record)) record.Record {
	change(&l)
	return l
}

var (
	nothing = record.Intent{}
	theirOp = record.Intent{Operation: record.Delete, Pod: "etcd-2", UID: "u2", ResourceVersion: "5", Epoch: 6}
	decided = record.Intent{Operation: record.Evict, Pod: "etcd-1", UID: "u1", ResourceVersion: "4", Revision: "r2"}
	ourOp   = record.Intent{Operation: record.Evict, Pod: "etcd-1", UID: "u1", ResourceVersion: "4", Revision: "r2",
		Epoch: 7}

	fenceTheirs = record.FencePod{Pod: record.Pod{Name: "etcd-2", UID: "u2", ResourceVersion: "5"},
		Value: "epoch 7, resourceVersion 5"}
	fenceOurs = record.FencePod{Pod: record.Pod{Name: "etcd-1", UID: "u1", ResourceVersion: "4"},
		Value: "epoch 7, resourceVersion 4"}
	listed = []record.Pod{{Name: "etcd-0", UID: "u0", ResourceVersion: "3"},
		{Name: "etcd-1", UID: "u1", ResourceVersion: "4"}}
	removeOurs = record.Act{Intent: ourOp, By: 105 * time.Second, Deadline: 105 * time.Second}
	move       = record.Intent{Operation: record.MoveLeader, Member: &record.Member{ID: 2, Name: "etcd-1", Heir: 3,
		HeirName: "etcd-2"}}
)

func fenceAll(epoch int) record.Intent {
	return record.Intent{Operation: record.FenceAll, Epoch: epoch}
}

// turn is something that happens, and what has to follow. An [record.End] is compared
// without its detail, and has to have one unless it was wanted.
type turn struct {
	event record.Event
	want  record.Effect
	at    time.Duration // 0: as before
}

const begin = 100 * time.Second

func run(t *testing.T, s record.State, turns ...turn) record.State {
	t.Helper()
	now := begin
	for i, turn := range turns {
		if turn.at != 0 {
			now = turn.at
		}
		next, effect := config.Step(s, turn.event, now)
		if end, ok := effect.(record.End); ok {
			effect = record.End{Ended: end.Ended}
			if wanted := end.Ended <= record.Stopped; (end.Detail == "") != wanted {
				t.Errorf("turn %d: the end says %q", i+1, end.Detail)
			}
		}
		if effect != turn.want {
			t.Fatalf("turn %d: after %s\n got %s\nwant %s", i+1, shown(turn.event), shown(effect), shown(turn.want))
		}
		// Whoever carries out all changes at once has to know which ones will be asked for.
		if change, ok := effect.(record.FencePod); ok {
			if to := next.Fences(); to[0] != change {
				t.Errorf("turn %d: %s is asked for, and to come are %v", i+1, shown(change), to)
			}
			if _, goesOn := turn.event.(record.PodFenced); goesOn && s.Fences()[1] != change {
				t.Errorf("turn %d: %s follows, and to come were %v", i+1, shown(change), s.Fences())
			}
		}
		s = next
	}
	return s
}

func shown(v any) string {
	return fmt.Sprintf("%s %+v", strings.TrimPrefix(fmt.Sprintf("%T", v), "record."), v)
}

// What happens, by its name.
var (
	start      = record.Start{}
	startClock = record.Start{Right: record.ByClock}
	held       = record.RightChecked{Held: true}
)

func read(l record.Record) record.Event {
	return record.LeaseRead{Record: l, Begun: begin}
}
func written(version string) record.Event { return record.LeaseWritten{ResourceVersion: version} }
func notWritten(o record.Outcome) record.Event {
	return record.LeaseWritten{Outcome: o}
}
func write(l record.Record) record.Effect { return record.WriteLease{Record: l} }
func fenced(version string) record.Event  { return record.PodFenced{ResourceVersion: version} }
func ends(e record.Ended) record.Effect   { return record.End{Ended: e} }
func saw(l record.Record, next record.Next) record.Event {
	o := record.Observed{Begun: begin, Record: l, Next: next}
	if next == record.NextAct {
		o.Intent = decided
	}
	return o
}

// sawTo is an observation on which another operation than the removal was decided.
func sawTo(l record.Record, i record.Intent) record.Event {
	return record.Observed{Begun: begin, Record: l, Next: record.NextAct, Intent: i}
}

func news(e record.Event) record.Event {
	o := e.(record.Observed)
	o.News = true
	return o
}

// The ways into the protocol, each as far as its name says.
func claimed(found record.Intent) []turn {
	return []turn{
		{event: start, want: record.ReadLease{}},
		{event: read(with(theirs(), func(l *record.Record) { l.Intent = found })), want: record.CheckRight{}},
		{event: held, want: write(mine("10", found))},
	}
}

func looking() []turn {
	return append(claimed(nothing), turn{event: written("11"), want: record.Observe{}})
}

func recording() []turn {
	return append(looking(), turn{event: saw(mine("11", nothing), record.NextAct), want: write(mine("11", ourOp))})
}

func acting() []turn { return append(recording(), turn{event: written("12"), want: removeOurs}) }

func moving() []turn {
	return append(looking(),
		turn{event: sawTo(mine("11", nothing), move), want: write(mine("11", nothing))},
		turn{event: written("12"), want: record.Act{Intent: move, By: 105 * time.Second,
			Deadline: 105 * time.Second}})
}

func resting() []turn {
	return append(looking(), turn{event: saw(mine("11", nothing), record.NextRest), want: record.Rest{}})
}

func finishing() []turn {
	return append(looking(), turn{event: saw(mine("11", nothing), record.NextFinish), want: write(finished("11"))})
}

func stopping() []turn {
	return append(looking(), turn{event: record.Stop{}, want: write(released("11", nothing))})
}

func resolving() []turn {
	return append(claimed(theirOp), turn{event: written("11"), want: fenceTheirs})
}

func creating() []turn {
	return []turn{
		{event: start, want: record.ReadLease{}},
		{event: read(record.Record{}), want: record.CheckRight{}},
		{event: held, want: write(with(mine("", fenceAll(1)), func(l *record.Record) { l.Epoch = 1 }))},
	}
}

func TestACoordinator(t *testing.T) {
	gone := record.PodFenced{Outcome: record.Refused}
	for _, tc := range []struct {
		name  string
		turns []turn
	}{
		// Claim.
		{"reads the Lease, then checks its right, then claims, and only then looks", looking()},
		{"does not claim when the lock went to somebody else", append(claimed(nothing)[:2],
			turn{event: record.RightChecked{}, want: ends(record.NoRight)})},
		{"does not claim what it could not read", []turn{
			{event: start, want: record.ReadLease{}},
			{event: record.LeaseRead{Outcome: record.Failed}, want: ends(record.Unwritable)},
		}},
		{"leaves the record to another who was faster", append(claimed(nothing),
			turn{event: notWritten(record.Refused), want: ends(record.Lost)})},
		{"counts anew where the number of the claims cannot grow", []turn{
			{event: start, want: record.ReadLease{}},
			{event: read(with(theirs(), func(l *record.Record) { l.Epoch = math.MaxInt32 })), want: record.CheckRight{}},
			{event: held, want: write(with(mine("10", nothing), func(l *record.Record) { l.Epoch = 1 }))},
			{event: written("11"), want: record.Observe{}},
		}},
		{"counts anew where somebody has written less than no number", []turn{
			{event: start, want: record.ReadLease{}},
			{event: read(with(theirs(), func(l *record.Record) { l.Epoch = -5 })), want: record.CheckRight{}},
			{event: held, want: write(with(mine("10", nothing), func(l *record.Record) { l.Epoch = 1 }))},
		}},
		{"counts up to the greatest number that a Lease can have", []turn{
			{event: start, want: record.ReadLease{}},
			{event: read(with(theirs(), func(l *record.Record) { l.Epoch = math.MaxInt32 - 1 })), want: record.CheckRight{}},
			{event: held, want: write(with(mine("10", nothing), func(l *record.Record) { l.Epoch = math.MaxInt32 }))},
		}},
		{"does not act on a claim that may not be written", append(claimed(nothing),
			turn{event: notWritten(record.Failed), want: ends(record.Unwritable)})},
		{"does not act on a claim of which nobody knows whether it stands",
			append(claimed(nothing), turn{event: notWritten(record.Unclear), want: ends(record.Unwritable)})},
		{"leaves a record alone that a newer version has written", []turn{
			{event: start, want: record.ReadLease{}},
			{event: read(with(theirs(), func(l *record.Record) { l.Schema = record.Newest + 1 })), want: ends(record.Newer)},
		}},
		{"leaves it alone as well if it names an operation that this one knows", []turn{
			{event: start, want: record.ReadLease{}},
			{event: read(with(theirs(), func(l *record.Record) { l.Schema, l.Intent = record.Newest+1, theirOp })),
				want: ends(record.Newer)},
		}},

		// Resolve.
		{"keeps the removal that it finds on record, fences its pod, clears it, and only then looks", append(resolving(),
			turn{event: fenced("6"), want: write(mine("11", nothing))},
			turn{event: written("12"), want: record.Observe{}})},
		{"finds a pod that is gone as good as fenced", append(resolving(),
			turn{event: gone, want: write(mine("11", nothing))})},
		{"does not take a fence for one that has not changed the pod", append(resolving(),
			turn{event: fenced("5"), want: record.Rest{Failed: true}},
			turn{event: record.Woken{}, want: record.ReadLease{}},
			turn{event: read(mine("11", theirOp)), want: fenceTheirs})},
		{"tries a fence again that was not allowed", append(resolving(),
			turn{event: record.PodFenced{Outcome: record.Failed, ResourceVersion: "6"}, want: record.Rest{Failed: true}},
			turn{event: record.Woken{}, want: record.ReadLease{}},
			turn{event: read(mine("11", theirOp)), want: fenceTheirs})},
		{"tries a fence again of which nobody knows whether it stands", append(resolving(),
			turn{event: record.PodFenced{Outcome: record.Unclear, ResourceVersion: "6"}, want: record.Rest{Failed: true}})},
		{"creates a Lease with the intent to fence every pod, and clears that after the last one", append(creating(),
			turn{event: written("11"), want: record.ListPods{}},
			turn{event: record.PodsListed{Pods: listed}, want: record.FencePod{Pod: listed[0],
				Value: "epoch 1, resourceVersion 3"}},
			turn{event: fenced("12"), want: record.FencePod{Pod: listed[1], Value: "epoch 1, resourceVersion 4"}},
			turn{event: gone, want: write(with(mine("11", nothing), func(l *record.Record) { l.Epoch = 1 }))},
			turn{event: written("13"), want: record.Observe{}})},
		{"fences every pod under a Lease that an operator created, perhaps in place of one that was deleted", []turn{
			{event: start, want: record.ReadLease{}},
			{event: read(record.Record{ResourceVersion: "10"}), want: record.CheckRight{}},
			{event: held, want: write(with(mine("10", fenceAll(1)), func(l *record.Record) { l.Epoch = 1 }))},
		}},
		{"begins again with all pods when one of them could not be fenced", append(creating(),
			turn{event: written("11"), want: record.ListPods{}},
			turn{event: record.PodsListed{Pods: listed}, want: record.FencePod{Pod: listed[0],
				Value: "epoch 1, resourceVersion 3"}},
			turn{event: record.PodFenced{Outcome: record.Unclear}, want: record.Rest{Failed: true}},
			turn{event: record.Woken{}, want: record.ReadLease{}},
			turn{event: read(with(mine("11", fenceAll(1)), func(l *record.Record) { l.Epoch = 1 })), want: record.ListPods{}})},
		{"has nothing to fence where there is no pod", append(creating(),
			turn{event: written("11"), want: record.ListPods{}},
			turn{event: record.PodsListed{}, want: write(with(mine("11", nothing), func(l *record.Record) { l.Epoch = 1 }))})},
		{"fences nothing on a list that it could not read", append(creating(),
			turn{event: written("11"), want: record.ListPods{}},
			turn{event: record.PodsListed{Outcome: record.Failed}, want: record.Rest{Failed: true}})},
		{"clears a resolved removal once more when nobody knows whether that stands", append(resolving(),
			turn{event: fenced("6"), want: write(mine("11", nothing))},
			turn{event: notWritten(record.Unclear), want: record.Rest{Failed: true}},
			turn{event: record.Woken{}, want: record.Observe{}},
			turn{event: saw(mine("11", theirOp), record.NextAct), want: fenceTheirs})},

		// Act.
		{"removes a pod only when the removal stands on record, clears it, and looks again", append(acting(),
			turn{event: record.Acted{}, want: write(mine("12", nothing))},
			turn{event: written("13"), want: record.Observe{}})},
		{"fences the pod when it has changed, for an earlier attempt may have changed it, and decides anew", append(acting(),
			turn{event: record.Acted{Outcome: record.Refused}, want: fenceOurs},
			turn{event: fenced("14"), want: write(mine("12", nothing))},
			turn{event: written("13"), want: record.Observe{}})},
		{"rules out every attempt of a removal that is not allowed, waits, and looks again", append(acting(),
			turn{event: record.Acted{Outcome: record.Failed}, want: fenceOurs},
			turn{event: fenced("14"), want: write(mine("12", nothing))},
			turn{event: written("13"), want: record.Rest{Failed: true}},
			turn{event: record.Woken{}, want: record.Observe{}})},
		{"fences the pod of a removal that may arrive later", append(acting(),
			turn{event: record.Acted{Outcome: record.Unclear}, want: fenceOurs},
			turn{event: fenced("14"), want: write(mine("12", nothing))},
			turn{event: written("15"), want: record.Rest{Failed: true}},
			turn{event: record.Woken{}, want: record.Observe{}})},
		{"removes nothing on evidence that has grown old meanwhile, waits, and looks again", append(recording(),
			turn{event: written("12"), want: write(mine("12", nothing)), at: begin + config.MaxEvidenceAge},
			turn{event: written("13"), want: record.Rest{Failed: true}},
			turn{event: record.Woken{}, want: write(mine("13", nothing)), at: begin + 2*config.MaxEvidenceAge},
			turn{event: written("14"), want: record.Observe{}})},
		{"looks again at once after a removal that is done, although one before it was dropped", append(recording(),
			turn{event: written("12"), want: write(mine("12", nothing)), at: begin + config.MaxEvidenceAge},
			turn{event: notWritten(record.Refused), want: record.ReadLease{}, at: begin},
			turn{event: read(mine("15", nothing)), want: record.Observe{}},
			turn{event: saw(mine("15", nothing), record.NextAct), want: write(mine("15", ourOp))},
			turn{event: written("16"), want: removeOurs},
			turn{event: record.Acted{}, want: write(mine("16", nothing))},
			turn{event: written("17"), want: record.Observe{}})},
		{"removes on evidence that is just young enough", append(recording(),
			turn{event: written("12"), want: removeOurs, at: begin + config.MaxEvidenceAge - 1})},
		{"removes nothing when its intent was not written, and looks what is on record", append(recording(),
			turn{event: notWritten(record.Refused), want: record.ReadLease{}},
			turn{event: read(mine("15", nothing)), want: record.Observe{}})},
		{"removes nothing when another has claimed the record meanwhile", append(recording(),
			turn{event: notWritten(record.Refused), want: record.ReadLease{}},
			turn{event: read(with(theirs(), func(l *record.Record) { l.Epoch = 8 })), want: ends(record.Lost)})},
		{"removes nothing when its own process has claimed the record again meanwhile", append(recording(),
			turn{event: notWritten(record.Refused), want: record.ReadLease{}},
			turn{event: read(with(mine("15", nothing), func(l *record.Record) { l.Epoch = 8 })), want: ends(record.Lost)})},
		{"removes nothing when the Lease was deleted meanwhile", append(recording(),
			turn{event: notWritten(record.Refused), want: record.ReadLease{}},
			turn{event: read(record.Record{}), want: ends(record.Lost)})},
		{"removes nothing when a newer version has claimed the record meanwhile", append(recording(),
			turn{event: notWritten(record.Refused), want: record.ReadLease{}},
			turn{event: read(with(theirs(), func(l *record.Record) { l.Schema = record.Newest + 1 })), want: ends(record.Newer)})},
		{"tries again to read what is on record", append(recording(),
			turn{event: notWritten(record.Refused), want: record.ReadLease{}},
			turn{event: record.LeaseRead{Outcome: record.Failed}, want: record.Rest{Failed: true}},
			turn{event: record.Woken{}, want: record.ReadLease{}})},
		{"removes nothing when nobody knows whether its intent is on record, and fences its pod if it is", append(recording(),
			turn{event: notWritten(record.Unclear), want: record.Rest{Failed: true}},
			turn{event: record.Woken{}, want: record.ReadLease{}},
			turn{event: read(mine("12", ourOp)), want: fenceOurs})},
		{"fences its pod as well if that write arrives after it was looked for", append(recording(),
			turn{event: notWritten(record.Unclear), want: record.Rest{Failed: true}},
			turn{event: record.Woken{}, want: record.ReadLease{}},
			turn{event: read(mine("11", nothing)), want: record.Observe{}},
			turn{event: saw(mine("12", ourOp), record.NextAct), want: fenceOurs})},

		// Look.
		{"drops what it decided when another has claimed the record", append(looking(),
			turn{event: saw(theirs(), record.NextAct), want: ends(record.Lost)})},
		{"drops what it decided when the record was released", append(looking(),
			turn{event: saw(released("11", nothing), record.NextAct), want: ends(record.Lost)})},
		{"drops what it decided when the Lease was deleted", append(looking(),
			turn{event: saw(record.Record{}, record.NextAct), want: ends(record.Lost)})},
		{"drops what it decided when an operator has replaced the record", append(looking(),
			turn{event: saw(with(mine("12", nothing), func(l *record.Record) { l.Schema = 0 }), record.NextAct),
				want: ends(record.Lost)})},
		{"drops what it decided when a newer version has written the record", append(looking(),
			turn{event: saw(with(mine("12", nothing), func(l *record.Record) { l.Schema = record.Newest + 1 }), record.NextAct),
				want: ends(record.Newer)})},
		{"decides nothing on what it could not see", append(looking(),
			turn{event: record.Observed{Outcome: record.Failed, Next: record.NextAct, Intent: decided},
				want: record.Rest{Failed: true}},
			turn{event: record.Woken{}, want: record.Observe{}})},
		{"swaps on the Lease that it saw, which an operator may have changed", append(looking(),
			turn{event: saw(mine("15", nothing), record.NextAct), want: write(mine("15", ourOp))})},
		{"looks again when there is nothing to do", append(resting(), turn{event: record.Woken{}, want: record.Observe{}})},
		{"renews the record every third of its duration", append(resting(),
			turn{event: record.Woken{}, want: write(mine("11", nothing)), at: begin + config.Duration/3},
			turn{event: written("12"), want: record.Observe{}},
			turn{event: saw(mine("12", nothing), record.NextRest), want: record.Rest{}},
			turn{event: record.Woken{}, want: record.Observe{}, at: begin + 2*config.Duration/3 - 1},
			turn{event: saw(mine("12", nothing), record.NextRest), want: record.Rest{}},
			turn{event: record.Woken{}, want: write(mine("12", nothing)), at: begin + 2*config.Duration/3})},
		{"renews the record at once when there is news for its readers", append(looking(),
			turn{event: news(saw(mine("11", nothing), record.NextRest)), want: write(mine("11", nothing))},
			turn{event: written("12"), want: record.Observe{}},
			turn{event: saw(mine("12", nothing), record.NextRest), want: record.Rest{}})},
		{"removes without a detour when there is news for its readers", append(looking(),
			turn{event: news(saw(mine("11", nothing), record.NextAct)), want: write(mine("11", ourOp))})},
		{"reads the record when it cannot be renewed", append(resting(),
			turn{event: record.Woken{}, want: write(mine("11", nothing)), at: begin + config.Duration/3},
			turn{event: notWritten(record.Refused), want: record.ReadLease{}},
			turn{event: read(theirs()), want: ends(record.Lost)})},

		// Move leadership.
		{"renews the record before it moves leadership, and looks again afterwards", append(moving(),
			turn{event: record.Acted{}, want: record.Observe{}})},
		{"waits after leadership could not be moved", append(moving(),
			turn{event: record.Acted{Outcome: record.Failed}, want: record.Rest{Failed: true}},
			turn{event: record.Woken{}, want: record.Observe{}})},
		{"does not move leadership on evidence that has grown old", append(looking(),
			turn{event: sawTo(mine("11", nothing), move), want: write(mine("11", nothing))},
			turn{event: written("12"), want: record.Rest{Failed: true}, at: begin + config.MaxEvidenceAge},
			turn{event: record.Woken{}, want: record.Observe{}})},
		{"gives back a record without the move of leadership that it did not get to", append(moving()[:len(moving())-1],
			turn{event: notWritten(record.Unclear), want: record.Rest{Failed: true}},
			turn{event: record.Stop{}, want: write(released("11", nothing))})},
		{"does not move leadership when another has claimed the record", append(looking(),
			turn{event: sawTo(mine("11", nothing), move), want: write(mine("11", nothing))},
			turn{event: notWritten(record.Refused), want: record.ReadLease{}},
			turn{event: read(theirs()), want: ends(record.Lost)})},

		// End.
		{"gives the record back when the rollout is over", append(looking(),
			turn{event: saw(mine("11", nothing), record.NextFinish), want: write(finished("11"))},
			turn{event: written("12"), want: ends(record.Finished)})},
		{"gives the record back when another shall go on", append(looking(),
			turn{event: saw(mine("11", nothing), record.NextHandOver), want: write(released("11", nothing))},
			turn{event: written("12"), want: ends(record.HandedOver)})},
		{"looks again when the end of the rollout was not written because somebody else has written", append(finishing(),
			turn{event: notWritten(record.Refused), want: record.ReadLease{}},
			turn{event: read(mine("15", nothing)), want: record.Observe{}},
			turn{event: saw(mine("15", nothing), record.NextFinish), want: write(finished("15"))},
			turn{event: written("16"), want: ends(record.Finished)})},
		{"and goes on with the rollout if there is something to do again", append(finishing(),
			turn{event: notWritten(record.Refused), want: record.ReadLease{}},
			turn{event: read(mine("15", nothing)), want: record.Observe{}},
			turn{event: saw(mine("15", nothing), record.NextAct), want: write(mine("15", ourOp))})},
		{"looks again when nobody knows whether the end was written, and it was not", append(finishing(),
			turn{event: notWritten(record.Unclear), want: record.Rest{Failed: true}},
			turn{event: record.Woken{}, want: record.Observe{}},
			turn{event: saw(mine("11", nothing), record.NextFinish), want: write(finished("11"))},
			turn{event: written("12"), want: ends(record.Finished)})},
		{"finds that it was", append(finishing(),
			turn{event: notWritten(record.Unclear), want: record.Rest{Failed: true}},
			turn{event: record.Woken{}, want: record.Observe{}},
			turn{event: saw(finished("12"), record.NextFinish), want: ends(record.Lost)})},
		{"holds on to the record in the meantime", append(finishing(),
			turn{event: notWritten(record.Unclear), want: record.Rest{Failed: true}},
			turn{event: record.Woken{}, want: write(mine("11", nothing)), at: begin + config.Duration})},
		{"tries the end again that was not allowed", append(finishing(),
			turn{event: notWritten(record.Failed), want: record.Rest{Failed: true}},
			turn{event: record.Woken{}, want: record.Observe{}})},
		{"leaves the end to another who has claimed the record meanwhile", append(finishing(),
			turn{event: notWritten(record.Refused), want: record.ReadLease{}},
			turn{event: read(with(theirs(), func(l *record.Record) { l.Epoch = 8 })), want: ends(record.Lost)})},
		{"looks again when the record could not be given back for another to go on", append(looking(),
			turn{event: saw(mine("11", nothing), record.NextHandOver), want: write(released("11", nothing))},
			turn{event: notWritten(record.Refused), want: record.ReadLease{}},
			turn{event: read(mine("15", nothing)), want: record.Observe{}})},

		// Stop.
		{"told to stop, gives back a record that somebody else has changed meanwhile", append(stopping(),
			turn{event: notWritten(record.Refused), want: record.ReadLease{}},
			turn{event: read(mine("15", nothing)), want: write(released("15", nothing))},
			turn{event: written("16"), want: ends(record.Stopped)})},
		{"told to stop, reads whether the record was given back when nobody knows, and it was", append(stopping(),
			turn{event: notWritten(record.Unclear), want: record.Rest{Failed: true}},
			turn{event: record.Woken{}, want: record.ReadLease{}},
			turn{event: read(released("12", nothing)), want: ends(record.Stopped)})},
		{"told to stop, gives the record back if it was not", append(stopping(),
			turn{event: notWritten(record.Unclear), want: record.Rest{Failed: true}},
			turn{event: record.Woken{}, want: record.ReadLease{}},
			turn{event: read(mine("11", nothing)), want: write(released("11", nothing))},
			turn{event: written("12"), want: ends(record.Stopped)})},
		{"told to stop, does not wait until the record may be written", append(stopping(),
			turn{event: notWritten(record.Failed), want: ends(record.Stopped)})},
		{"told to stop, does not wait until the record can be read", append(stopping(),
			turn{event: notWritten(record.Refused), want: record.ReadLease{}},
			turn{event: record.LeaseRead{Outcome: record.Failed}, want: ends(record.Stopped)})},
		{"told to stop, leaves a record alone that another has claimed", append(stopping(),
			turn{event: notWritten(record.Refused), want: record.ReadLease{}},
			turn{event: read(with(theirs(), func(l *record.Record) { l.Epoch = 8 })), want: ends(record.Stopped)})},
		{"told to stop, leaves on record what another write of its own has put there, unresolved", append(recording(),
			turn{event: notWritten(record.Unclear), want: record.Rest{Failed: true}},
			turn{event: record.Stop{}, want: write(released("11", ourOp))},
			turn{event: notWritten(record.Refused), want: record.ReadLease{}},
			turn{event: read(mine("12", ourOp)), want: write(released("12", ourOp))},
			turn{event: written("13"), want: ends(record.Stopped)})},
	} {
		t.Run(tc.name, func(t *testing.T) { run(t, record.State{}, tc.turns...) })
	}
}

func TestByTheClockARecordIsClaimed(t *testing.T) {
	const second = time.Second
	promising := func(d time.Duration) record.Record {
		return with(theirs(), func(l *record.Record) { l.Duration = d })
	}
	for _, tc := range []struct {
		name string
		// first is what is read at 100 s, second what is read from begun on, with the
		// answer at 500 s.
		first, second record.Record
		begun         time.Duration
		want          bool
	}{
		{"when there is none", theirs(), record.Record{}, 101 * second, true},
		{"when nobody holds it", theirs(), released("11", nothing), 101 * second, true},
		{"when it is our own", theirs(), mine("11", nothing), 101 * second, true},
		{"when it stood unchanged for as long as its holder said", theirs(), theirs(), 120 * second, true},
		{"not a moment earlier, however late the answer comes", theirs(), theirs(), 120*second - 1, false},
		{"not when it has changed since", theirs(), with(theirs(), func(l *record.Record) { l.ResourceVersion = "11" }),
			499 * second, false},
		{"not when it was first seen just now", record.Record{}, theirs(), 499 * second, false},
		{"after our own duration when its holder said none", with(theirs(), func(l *record.Record) { l.Duration = 0 }),
			with(theirs(), func(l *record.Record) { l.Duration = 0 }), 115 * second, true},
		{"but not earlier", with(theirs(), func(l *record.Record) { l.Duration = 0 }),
			with(theirs(), func(l *record.Record) { l.Duration = 0 }), 115*second - 1, false},
		{"after our own duration when what it says makes no sense", promising(-time.Hour), promising(-time.Hour),
			115 * second, true},
		{"after five minutes at the latest, whatever its holder said", promising(68 * 365 * 24 * time.Hour),
			promising(68 * 365 * 24 * time.Hour), 400 * second, true},
		{"but not earlier, if it said so", promising(time.Hour), promising(time.Hour), 400*second - 1, false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			// The first reading ends a claim or not; what it saw outlives that.
			s, _ := config.Step(record.State{}, startClock, begin)
			s, _ = config.Step(s, record.LeaseRead{Record: tc.first, Begun: begin}, begin)
			s, _ = config.Step(s, record.Stop{}, begin)

			s, _ = config.Step(s, startClock, begin)
			_, effect := config.Step(s, record.LeaseRead{Record: tc.second, Begun: tc.begun}, 500*second)
			if _, claims := effect.(record.WriteLease); claims != tc.want {
				t.Errorf("%s", shown(effect))
			}
			if end, ok := effect.(record.End); ok && (end.Ended != record.NoRight || end.Detail == "") {
				t.Errorf("%s", shown(effect))
			}
		})
	}
}

// Whoever could not go on before lets others go first.
func TestByTheClockALatecomerWaitsUntilTheRecordHasBeenFreeForLonger(t *testing.T) {
	const second = time.Second
	for _, tc := range []struct {
		name          string
		first, second record.Record
		begun         time.Duration
		want          bool
	}{
		{"a free record has to have been free for that long", released("11", nothing), released("11", nothing), 115 * second,
			true},
		{"not a moment less", released("11", nothing), released("11", nothing), 115*second - 1, false},
		{"a record that was held meanwhile does not count", theirs(), released("11", nothing), 199 * second, false},
		{"one that is held has to have lapsed for that long", theirs(), theirs(), 135 * second, true},
		{"and not a moment less", theirs(), theirs(), 135*second - 1, false},
		{"our own is ours at once", mine("11", nothing), mine("11", nothing), 100 * second, true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			config := config
			config.Later = 15 * second
			late := record.Start{Right: record.ByClock}
			s, _ := config.Step(record.State{}, late, begin)
			s, _ = config.Step(s, record.LeaseRead{Record: tc.first, Begun: begin}, begin)
			s, _ = config.Step(s, record.Stop{}, begin)
			s, _ = config.Step(s, late, begin)
			_, effect := config.Step(s, record.LeaseRead{Record: tc.second, Begun: tc.begun}, 200*second)
			if _, claims := effect.(record.WriteLease); claims != tc.want {
				t.Errorf("%s", shown(effect))
			}
		})
	}
}

// place is somewhere in the protocol, what its effect may be answered with, and what a
// Stop does there.
type place struct {
	name    string
	turns   []turn
	answer  record.Event
	stop    record.Effect
	claimed bool
}

func places() []place {
	stopped, gives := ends(record.Stopped), func(l record.Record) record.Effect { return write(l) }
	rereading := append(recording(), turn{event: notWritten(record.Refused), want: record.ReadLease{}})
	return []place{
		{"without a claim", nil, nil, stopped, false},
		{"reading the Lease", claimed(nothing)[:1], read(theirs()), stopped, false},
		{"checking the right", claimed(nothing)[:2], held, stopped, false},
		{"claiming", claimed(nothing), written("11"), stopped, false},
		{"reading the Lease again", rereading, read(mine("12", nothing)), record.ReadLease{}, true},
		{"listing pods", append(creating(), turn{event: written("11"), want: record.ListPods{}}), record.PodsListed{},
			gives(with(released("11", fenceAll(1)), func(l *record.Record) { l.Epoch = 1 })), true},
		{"fencing", resolving(), fenced("6"), gives(released("11", theirOp)), true},
		{"clearing", append(resolving(), turn{event: fenced("6"), want: write(mine("11", nothing))}), written("12"),
			gives(released("11", nothing)), true},
		{"renewing", append(resting(), turn{event: record.Woken{}, want: write(mine("11", nothing)),
			at: begin + config.Duration}), written("12"), gives(released("11", nothing)), true},
		{"observing", looking(), saw(mine("11", nothing), record.NextRest), gives(released("11", nothing)), true},
		{"recording an intent", recording(), written("12"), gives(released("11", nothing)), true},
		{"removing", acting(), record.Acted{}, gives(released("12", nothing)), true},
		{"renewing before leadership is moved", moving()[:len(moving())-1], written("12"), gives(released("11", nothing)),
			true},
		{"moving leadership", moving(), record.Acted{}, gives(released("12", nothing)), true},
		{"resting", resting(), record.Woken{}, gives(released("11", nothing)), true},
		{"releasing", finishing(), written("12"), gives(finished("11")), true},
	}
}

// Every place in the protocol and every event: one answers what was asked, all others
// end the claim.
func TestAnEventThatAnswersNothingEndsTheClaim(t *testing.T) {
	events := []record.Event{
		record.Woken{}, read(mine("11", nothing)), held, written("12"), record.PodsListed{}, fenced("12"),
		saw(mine("11", nothing), record.NextAct), record.Acted{},
	}
	for _, p := range places() {
		t.Run(p.name, func(t *testing.T) {
			s := run(t, record.State{}, p.turns...)
			for _, e := range events {
				_, effect := config.Step(s, e, begin)
				end, _ := effect.(record.End)
				if fmt.Sprintf("%T", e) == fmt.Sprintf("%T", p.answer) {
					if end.Ended == record.Unwritable {
						t.Errorf("%s is not taken for an answer: %s", shown(e), end.Detail)
					}
				} else if end.Ended != record.Unwritable || end.Detail == "" {
					t.Errorf("%s is answered by %s", shown(e), shown(effect))
				}
			}
		})
	}
}

// Only a write that is known to stand lets anything follow that rests on it. After any other answer it is first read
// what the record says, or waited, because the write may still land.
func TestNothingRestsOnAWriteThatIsNotKnownToStand(t *testing.T) {
	again := record.Rest{Failed: true}
	for _, p := range places() {
		if _, writes := p.answer.(record.LeaseWritten); !writes {
			continue
		}
		for _, tc := range []struct {
			outcome record.Outcome
			// claim is what follows where the claim itself was not written.
			want, claim record.Effect
		}{
			{record.Refused, record.ReadLease{}, ends(record.Lost)},
			{record.Failed, again, ends(record.Unwritable)},
			{record.Unclear, again, ends(record.Unwritable)},
		} {
			t.Run(fmt.Sprintf("%s, outcome %d", p.name, tc.outcome), func(t *testing.T) {
				if !p.claimed {
					tc.want = tc.claim
				}
				run(t, run(t, record.State{}, p.turns...), turn{event: notWritten(tc.outcome), want: tc.want})
			})
		}
	}
}

// A Stop comes instead of an effect, so that nothing is under way: a removal that was
// not sent leaves no trace, one that is not resolved stays on record.
func TestAStopGivesTheRecordBack(t *testing.T) {
	for _, p := range places() {
		t.Run(p.name, func(t *testing.T) {
			s := run(t, record.State{}, p.turns...)
			s = run(t, s, turn{event: record.Stop{}, want: p.stop})
			if _, ok := p.stop.(record.ReadLease); ok {
				s = run(t, s, turn{event: read(mine("19", theirOp)), want: write(released("19", theirOp))})
			}
			if s.Claimed() {
				ended := record.Stopped
				if p.name == "releasing" { // It ends as it was about to.
					ended = record.Finished
				}
				s = run(t, s, turn{event: written("20"), want: ends(ended)})
			}
			if s.Claimed() {
				t.Error("there still is a claim")
			}
		})
	}
}

func TestAClaimLastsFromItsSwapToItsEnd(t *testing.T) {
	for _, p := range places() {
		t.Run(p.name, func(t *testing.T) {
			if s := run(t, record.State{}, p.turns...); s.Claimed() != p.claimed {
				t.Errorf("claimed %v, want %v", s.Claimed(), p.claimed)
			}
		})
	}
}

func TestANewClaimKnowsNothingOfTheLastOne(t *testing.T) {
	for _, p := range places() {
		t.Run(p.name, func(t *testing.T) { run(t, run(t, record.State{}, p.turns...), looking()...) })
	}
}

func TestAStepLeavesTheStateItIsGivenAsItIs(t *testing.T) {
	pods := record.PodsListed{Pods: []record.Pod{listed[0], listed[1]}}
	before := run(t, record.State{}, append(creating(), turn{event: written("11"), want: record.ListPods{}})...)
	first := record.FencePod{Pod: listed[0], Value: "epoch 1, resourceVersion 3"}
	second := record.FencePod{Pod: listed[1], Value: "epoch 1, resourceVersion 4"}
	for range 2 {
		s := run(t, before, turn{event: pods, want: first})
		for range 2 {
			run(t, s, turn{event: fenced("12"), want: second})
		}
	}
	if pods.Pods[0] != listed[0] || pods.Pods[1] != listed[1] {
		t.Errorf("the event's pods were changed: %v", pods.Pods)
	}
}

// Whoever reads the log wants to know to whom a record was lost, or that an operator has deleted it.
func TestTheEndOfAClaimSaysWhatBecameOfTheRecord(t *testing.T) {
	for _, tc := range []struct {
		name string
		now  record.Record
		want string
	}{
		{"it was deleted", record.Record{}, "the Lease was deleted"},
		{"its annotations are gone", with(mine("12", nothing), func(l *record.Record) { l.Schema = 0 }),
			"the record on the Lease was replaced"},
		{"it was given back", released("12", nothing), "the record was released (epoch 7)"},
		{"another holds it", theirs(), them + " has claimed the record (epoch 6)"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			_, effect := config.Step(run(t, record.State{}, looking()...), saw(tc.now, record.NextRest), begin)
			if want := (record.End{Ended: record.Lost, Detail: tc.want}); effect != want {
				t.Errorf("got %s, want %s", shown(effect), shown(want))
			}
		})
	}
}

func TestARecordIsRenewedInTimeForWhoeverReadsIt(t *testing.T) {
	for _, tc := range []struct {
		name           string
		written, renew time.Duration
		want           time.Duration
	}{
		{"every third of the duration", 15 * time.Second, 0, 5 * time.Second},
		{"when its holder would, if that is told", 15 * time.Second, 4 * time.Second, 4 * time.Second},
		{"at once, if others are to wait longer than is meant by now", 45 * time.Second, 4 * time.Second, 0},
		{"every third of what stands there, if that is shorter", 9 * time.Second, 4 * time.Second, 3 * time.Second},
		{"every third of what is meant, if nothing stands there", 0, 0, 5 * time.Second},
	} {
		t.Run(tc.name, func(t *testing.T) {
			c := config
			c.Duration, c.Renew = 15*time.Second, tc.renew
			if got := c.Every(&record.State{Record: record.Record{Duration: tc.written}}); got != tc.want {
				t.Errorf("%v, want %v", got, tc.want)
			}
		})
	}
}
