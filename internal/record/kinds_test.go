package record_test

import (
	"testing"
	"time"

	"github.com/quorate/quorate/internal/record"
)

// These two prove the kinds, whatever operations ship.
const (
	presumedOp = record.RemoveMember
	blockingOp = record.Defragment
)

var (
	ghost = &record.Member{
		ID: 7, Name: "etcd-3", Cluster: 1, List: []uint64{5, 6, 7}, URLs: []string{"https://etcd-3:2380"},
	}
	removal = record.Intent{Operation: presumedOp, Member: ghost}
	another = record.Intent{Operation: presumedOp, Member: &record.Member{ID: 8, Name: "etcd-4", Cluster: 1,
		List: []uint64{5, 8}}}
	pausing = record.Intent{Operation: blockingOp, Member: &record.Member{ID: 6, Cluster: 1, Seconds: 60}}
)

func ours(i record.Intent) record.Intent { i.Epoch = 7; return i }

func suspecting(l record.Record, m *record.Member) record.Record {
	l.Schema, l.Suspect = record.Newest, m
	return l
}

// sees is an observation with an operation on the record.
func sees(l record.Record, s record.Resolution, next record.Next, i record.Intent) record.Event {
	return record.Observed{Begun: begin, Record: l, Resolution: s, Next: next, Intent: i}
}

// sawAt is one that decides nothing and began at that moment.
func sawAt(at time.Duration, l record.Record, s record.Resolution) record.Event {
	return record.Observed{Begun: at, Record: l, Resolution: s}
}

// asking is a coordinator whose presumed or blocking operation is under way.
func asking(i record.Intent, deadline time.Duration) []turn {
	return append(looking(),
		turn{event: sawTo(mine("11", nothing), i), want: write(mine("11", ours(i)))},
		turn{event: written("12"), want: record.Act{Intent: ours(i), By: 105 * time.Second,
			Deadline: deadline}})
}

// wondering is one that does not know what became of it, and has looked at the record again.
func wondering(i record.Intent, deadline time.Duration) []turn {
	return append(asking(i, deadline),
		turn{event: record.Acted{Outcome: record.Unclear}, want: record.Rest{Failed: true}},
		turn{event: record.Woken{}, want: record.ReadLease{}},
		turn{event: read(mine("12", ours(i))), want: record.Observe{}})
}

func TestAPresumedOperation(t *testing.T) {
	const deadline = 105 * time.Second
	on := mine("12", ours(removal))
	open := func() []turn { return wondering(removal, deadline) }
	found := func() []turn {
		return append(claimed(removal), turn{event: written("11"), want: record.Observe{}})
	}
	for _, tc := range []struct {
		name  string
		turns []turn
	}{
		{"is sent once its intent stands on the record, and cleared when it is done", append(asking(removal, deadline),
			turn{event: record.Acted{}, want: write(mine("12", nothing))},
			turn{event: written("13"), want: record.Observe{}})},
		{"stays on the record when it was refused, which may be because of an earlier attempt",
			append(asking(removal, deadline),
				turn{event: record.Acted{Outcome: record.Refused}, want: record.Rest{Failed: true}})},
		{"stays on the record while nobody knows what became of it, and nothing is changed for it", append(open(),
			turn{event: sees(on, record.Open, record.NextRest, nothing), want: record.Rest{}})},
		{"is cleared when an observation has settled it", append(open(),
			turn{event: sees(on, record.Settled, record.NextRest, nothing), want: write(mine("12", nothing))},
			turn{event: written("13"), want: record.Observe{}})},
		{"lets no removal of a pod begin", append(open(),
			turn{event: sees(on, record.Open, record.NextAct, decided), want: record.Rest{}})},
		{"lets no leadership be moved", append(open(),
			turn{event: sees(on, record.Open, record.NextAct, move), want: record.Rest{}})},
		{"lets no other one of its kind begin", append(open(),
			turn{event: sees(on, record.Open, record.NextAct, another), want: record.Rest{}})},
		{"does not let the rollout end", append(open(),
			turn{event: sees(on, record.Open, record.NextFinish, nothing), want: record.Rest{}})},
		{"stays on the record for another coordinator to go on", append(open(),
			turn{event: sees(on, record.Open, record.NextHandOver, nothing), want: write(released("12", ours(removal)))})},
		{"stays on the record at a stop", append(open(),
			turn{event: record.Stop{}, want: write(released("12", ours(removal)))})},
		{"stays on the record at a stop before it is repeated", append(open(),
			turn{event: sees(on, record.Open, record.NextAct, removal), want: write(on)},
			turn{event: record.Stop{}, want: write(released("12", ours(removal)))})},
		{"is repeated when that is decided anew, after the record was renewed", append(open(),
			turn{event: sees(on, record.Open, record.NextAct, removal), want: write(on)},
			turn{event: written("13"), want: record.Act{Intent: ours(removal), By: deadline, Deadline: deadline}})},
		{"is not repeated once another has claimed the record", append(open(),
			turn{event: sees(on, record.Open, record.NextAct, removal), want: write(on)},
			turn{event: notWritten(record.Refused), want: record.ReadLease{}},
			turn{event: read(theirs()), want: ends(record.Lost)})},
		{"stays on the record when the evidence for repeating it has grown old", append(open(),
			turn{event: sees(on, record.Open, record.NextAct, removal), want: write(on)},
			turn{event: written("13"), want: record.Rest{Failed: true}, at: begin + config.MaxEvidenceAge})},
		{"makes its member a suspect when it must not be repeated, and work goes on", append(open(),
			turn{event: sees(on, record.Refuted, record.NextRest, nothing), want: write(suspecting(mine("12", nothing), ghost))},
			turn{event: written("13"), want: record.Observe{}},
			turn{event: saw(suspecting(mine("13", nothing), ghost), record.NextAct),
				want: write(suspecting(mine("13", ourOp), ghost))})},
		{"begins for the suspect itself, which stays one until that is settled", append(looking(),
			turn{event: sawTo(suspecting(mine("12", nothing), ghost), removal), want: write(suspecting(mine("12", ours(removal)), ghost))},
			turn{event: written("13"), want: record.Act{Intent: ours(removal), By: deadline, Deadline: deadline}},
			turn{event: record.Acted{Outcome: record.Unclear}, want: record.Rest{Failed: true}},
			turn{event: record.Woken{}, want: record.ReadLease{}},
			turn{event: read(suspecting(mine("13", ours(removal)), ghost)), want: record.Observe{}},
			turn{event: sees(suspecting(mine("13", ours(removal)), ghost), record.Refuted, record.NextRest, nothing),
				want: write(suspecting(mine("13", nothing), ghost))})},
		{"takes no other suspect's place", append(open(),
			turn{event: sees(suspecting(on, another.Member), record.Refuted, record.NextRest, nothing), want: record.Rest{}})},
		{"does not begin while there is a suspect", append(looking(),
			turn{event: sawTo(suspecting(mine("12", nothing), ghost), another), want: record.Rest{}})},
		{"leaves no suspect once that is gone", append(looking(),
			turn{event: sees(suspecting(mine("12", nothing), ghost), record.Settled, record.NextRest, nothing),
				want: write(mine("12", nothing))},
			turn{event: written("13"), want: record.Observe{}})},
		{"is observed, and nothing is changed for it, when a claim finds it", append(found(),
			turn{event: sees(mine("11", removal), record.Open, record.NextRest, nothing), want: record.Rest{}})},
		{"is cleared by a later claim that sees it settled", append(found(),
			turn{event: sees(mine("11", removal), record.Settled, record.NextRest, nothing), want: write(mine("11", nothing))})},
	} {
		t.Run(tc.name, func(t *testing.T) { run(t, record.State{}, tc.turns...) })
	}
}

func TestABlockingOperation(t *testing.T) {
	// Its call may take a minute from when it is sent.
	const ended = begin + 60*time.Second
	on := mine("12", ours(pausing))
	open := func() []turn { return wondering(pausing, ended) }
	for _, tc := range []struct {
		name  string
		turns []turn
	}{
		{"may take longer than evidence lasts, and is cleared when it is done", append(asking(pausing, ended),
			turn{event: record.Acted{}, want: write(mine("12", nothing)), at: ended},
			turn{event: written("13"), want: record.Observe{}})},
		{"is not begun on evidence that has grown old", append(looking(),
			turn{event: sawTo(mine("11", nothing), pausing), want: write(mine("11", ours(pausing)))},
			turn{event: written("12"), want: write(mine("12", nothing)), at: begin + config.MaxEvidenceAge})},
		{"is never repeated", append(open(),
			turn{event: sees(on, record.Open, record.NextAct, pausing), want: record.Rest{}})},
		{"tells its news meanwhile", append(open(), turn{event: news(sees(on, record.Open, record.NextRest, nothing)),
			want: write(on)})},
		{"is not repeated when its member answers either", append(open(),
			turn{event: sees(on, record.Settled, record.NextAct, pausing), want: record.Rest{}})},
		{"lets no removal of a pod begin", append(open(),
			turn{event: sees(on, record.Settled, record.NextAct, decided), want: record.Rest{}})},
		{"is not over while its call may still be under way, although its member answers", append(open(),
			turn{event: sawAt(ended-1, on, record.Settled), want: record.Rest{}, at: ended - 1})},
		{"is not over before its member has answered for as long as it takes to recover", append(open(),
			turn{event: sawAt(ended+config.Recovery-1, on, record.Settled), want: record.Rest{},
				at: ended + config.Recovery - 1})},
		{"is waited for from when it is sent, however long it took to record that", append(looking(),
			turn{event: sawTo(mine("11", nothing), pausing), want: write(mine("11", ours(pausing)))},
			turn{event: written("12"), want: record.Act{Intent: ours(pausing), By: 105 * time.Second,
				Deadline: ended + 4*time.Second}, at: begin + 4*time.Second},
			turn{event: record.Acted{Outcome: record.Unclear}, want: record.Rest{Failed: true}},
			turn{event: record.Woken{}, want: record.ReadLease{}},
			turn{event: read(on), want: record.Observe{}},
			turn{event: sawAt(ended+config.Recovery+4*time.Second-1, on, record.Settled), want: record.Rest{}})},
		{"is over after that", append(open(),
			turn{event: sawAt(ended+config.Recovery, on, record.Settled), want: write(mine("12", nothing)),
				at: ended + config.Recovery})},
		{"is waited for anew when its member has failed to answer once", append(open(),
			turn{event: sawAt(ended+time.Second, on, record.Open), want: record.Rest{}, at: ended + 2*time.Second},
			turn{event: record.Woken{}, want: record.ReadLease{}},
			turn{event: read(on), want: write(on)},
			turn{event: written("13"), want: record.Observe{}},
			turn{event: sawAt(ended+config.Recovery+2*time.Second-1, on, record.Settled), want: record.Rest{},
				at: ended + config.Recovery + 2*time.Second})},
		{"that a claim finds may have begun a moment ago", append(claimed(pausing),
			turn{event: written("11"), want: record.Observe{}},
			turn{event: sawAt(ended+config.Recovery-1, mine("11", pausing), record.Settled), want: record.Rest{},
				at: ended + config.Recovery - 1},
			turn{event: record.Woken{}, want: record.ReadLease{}},
			turn{event: read(mine("11", pausing)), want: write(mine("11", pausing))},
			turn{event: written("12"), want: record.Observe{}},
			turn{event: sawAt(ended+config.Recovery, mine("12", pausing), record.Settled), want: write(mine("12", nothing))})},
		{"is taken off the record at a stop when it was not sent", append(asking(pausing, ended),
			turn{event: record.Stop{}, want: write(released("12", nothing))})},
		{"stays on the record at a stop when nobody knows what became of it", append(open(),
			turn{event: record.Stop{}, want: write(released("12", ours(pausing)))})},
	} {
		t.Run(tc.name, func(t *testing.T) { run(t, record.State{}, tc.turns...) })
	}
}

// A record that names an operation without a row here was written by a newer version.
func TestAnOperationThatIsNotKnownIsLeftAlone(t *testing.T) {
	unknown := record.Intent{Operation: "something-new", Pod: "etcd-1", UID: "u1", ResourceVersion: "4"}
	onRecord := with(theirs(), func(l *record.Record) { l.Intent = unknown })
	run(t, record.State{}, turn{event: start, want: record.ReadLease{}},
		turn{event: read(onRecord), want: ends(record.Newer)})
	run(t, record.State{}, append(looking(), turn{event: saw(mine("12", unknown), record.NextAct),
		want: ends(record.Newer)})...)
	run(t, record.State{}, append(looking(), turn{event: sawTo(mine("11", nothing), unknown),
		want: ends(record.Unwritable)})...)
}

// Whoever reads such an intent takes it for one that any pod may still be the target of, and clears it.
func TestAnIntentThatNobodyCouldSettleIsNotRecorded(t *testing.T) {
	for _, tc := range []struct {
		name   string
		intent record.Intent
	}{
		{"a removal that names no pod", record.Intent{Operation: record.Delete, UID: "u1", ResourceVersion: "4"}},
		{"an eviction without a resourceVersion", record.Intent{Operation: record.Evict, Pod: "etcd-1", UID: "u1"}},
		{"a presumed operation without the member list", record.Intent{Operation: presumedOp,
			Member: &record.Member{ID: 7, Name: "etcd-3", Cluster: 1}}},
		{"a presumed operation on a member without an ID", record.Intent{Operation: presumedOp,
			Member: &record.Member{Name: "etcd-3", Cluster: 1, List: []uint64{5}}}},
		{"a presumed operation in no cluster", record.Intent{Operation: presumedOp,
			Member: &record.Member{ID: 7, Name: "etcd-3", List: []uint64{5}}}},
		{"a blocking operation on no member", record.Intent{Operation: blockingOp}},
		{"a blocking operation on a member without an ID", record.Intent{Operation: blockingOp,
			Member: &record.Member{Cluster: 1}}},
		{"a blocking operation in no cluster", record.Intent{Operation: blockingOp, Member: &record.Member{ID: 6}}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			run(t, record.State{}, append(looking(), turn{event: sawTo(mine("11", nothing), tc.intent),
				want: ends(record.Unwritable)})...)
		})
	}
}

func TestWhatAnIntentOnAMemberSaysIsNotTrustedWithoutBounds(t *testing.T) {
	for _, tc := range []struct {
		name    string
		seconds int
		want    time.Duration
	}{
		{"a call that takes a minute is waited for", 60, time.Minute},
		{"one that would take for ever is not", 1 << 40, 10 * time.Minute},
		{"one that takes less than no time takes none", -1 << 40, 0},
	} {
		t.Run(tc.name, func(t *testing.T) {
			i := record.Intent{Operation: blockingOp, Member: &record.Member{ID: 6, Cluster: 1, Seconds: tc.seconds}}
			run(t, record.State{}, asking(i, begin+tc.want)...)
		})
	}
	if call := (&record.Intent{Operation: blockingOp}).Call(); call != 0 {
		t.Errorf("an intent on no member says that its call takes %v", call)
	}
}
