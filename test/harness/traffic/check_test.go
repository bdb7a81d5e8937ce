package traffic

import (
	"bytes"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

const (
	memberA = "http://a:2379"
	memberB = "http://b:2379"
	memberC = "http://c:2379"
	key1    = "/t/w0/k1"
	key2    = "/t/w0/k2"
)

func ms(n int) time.Duration { return time.Duration(n) * time.Millisecond }

// faultless is a short history in which all is well. One writer and one reader; every
// operation takes 5 ms and begins on a multiple of 10 ms:
//
//	 10  put k1 = 0/1  revision 11
//	 20  put k2 = 0/2  revision 12
//	 30  get k1        0/1
//	 40  txn k1 = 0/3  revision 14 (13 is somebody else's), if it is 0/1
//	 50  put k2 = 0/4  unknown, was applied at 15
//	 60  put k2 = 0/5  failed
//	 70  get k2        0/2 from the member's own store: stale, and allowed to be
//	 80  txn k2 = 0/6  refused, k2 is 0/4
//	 90  put k1 = 0/7  revision 16
//	100  put final     revision 17
func faultless() *History {
	h := &History{
		Start: time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC), Duration: ms(100), Prefix: "/t/", Writers: 1, Readers: 1,
		Operations: []Operation{
			{Client: "writer-0", Request: 1, Kind: Put, Key: key1, Value: "0/1", Outcome: OK,
				Member: memberA, Revision: 11},
			{Client: "writer-0", Request: 2, Kind: Put, Key: key2, Value: "0/2", Outcome: OK,
				Member: memberB, Revision: 12},
			{Client: "reader-0", Request: 1, Kind: Get, Key: key1, Outcome: OK, Member: memberB, Revision: 12,
				Read: "0/1", ReadRevision: 11},
			{Client: "writer-0", Request: 3, Kind: Txn, Key: key1, Value: "0/3", Expect: "0/1", Swapped: true,
				Outcome: OK, Member: memberC, Revision: 14},
			{Client: "writer-0", Request: 4, Kind: Put, Key: key2, Value: "0/4", Outcome: Unknown,
				Error: "deadline exceeded", Member: memberA},
			{Client: "writer-0", Request: 4, Attempt: 1, Kind: Put, Key: key2, Value: "0/5", Outcome: Failed,
				Error: "refused", Member: memberB},
			{Client: "reader-0", Request: 2, Kind: SerializableGet, Key: key2, Outcome: OK, Member: memberC,
				Revision: 14, Read: "0/2", ReadRevision: 12},
			{Client: "writer-0", Request: 5, Kind: Txn, Key: key2, Value: "0/6", Expect: "0/2", Outcome: OK,
				Member: memberB, Revision: 15, Read: "0/4", ReadRevision: 15},
			{Client: "writer-0", Request: 6, Kind: Put, Key: key1, Value: "0/7", Outcome: OK,
				Member: memberA, Revision: 16},
			{Client: finalClient, Request: 1, Kind: Put, Key: "/t/final", Value: "final/1.0", Outcome: OK,
				Member: memberA, Revision: 17},
		},
	}
	for i := range h.Operations {
		h.Operations[i].Call, h.Operations[i].Return = ms(10*i+10), ms(10*i+15)
	}
	events := []Event{
		{Revision: 11, Key: key1, Value: "0/1", Version: 1},
		{Revision: 12, Key: key2, Value: "0/2", Version: 1},
		{Revision: 14, Key: key1, Value: "0/3", Version: 2},
		{Revision: 15, Key: key2, Value: "0/4", Version: 2},
		{Revision: 16, Key: key1, Value: "0/7", Version: 3},
		{Revision: 17, Key: "/t/final", Value: "final/1.0", Version: 1},
	}
	for i, member := range []string{memberA, memberB, memberC} {
		h.Logs = append(h.Logs, EventLog{Member: member, Events: slices.Clone(events), From: 11, To: 17,
			Complete: true})
		h.Finals = append(h.Finals, FinalRead{Member: member, Call: ms(110 + 10*i), Return: ms(115 + 10*i),
			Revision: 17, Keys: []KeyValue{
				{Key: "/t/final", Value: "final/1.0", Revision: 17}, {Key: key1, Value: "0/7", Revision: 16},
				{Key: key2, Value: "0/4", Revision: 15},
			}})
	}
	return h
}

func everyLog(h *History, change func(l *EventLog)) {
	for i := range h.Logs {
		change(&h.Logs[i])
	}
}

func everyFinal(h *History, change func(f *FinalRead)) {
	for i := range h.Finals {
		change(&h.Finals[i])
	}
}

func withoutRevision(revision int64) func(l *EventLog) {
	return func(l *EventLog) {
		l.Events = slices.DeleteFunc(l.Events, func(e Event) bool { return e.Revision == revision })
	}
}

func TestAFaultlessHistoryHasNoViolations(t *testing.T) {
	h := faultless()
	report := h.Check()
	require.Empty(t, report.Violations)
	require.Equal(t, 5, report.Acknowledged)
	require.Zero(t, report.Unverified)
	require.True(t, h.Verified())

	t.Run("and neither when it was saved and read again", func(t *testing.T) {
		var file bytes.Buffer
		require.NoError(t, h.Write(&file))
		again, err := ReadHistory(&file)
		require.NoError(t, err)
		require.Equal(t, h, again)
	})
}

func TestCheckCatches(t *testing.T) {
	for name, c := range map[string]struct {
		change func(h *History)
		want   []ViolationKind // all that must be found, in the order of the report
	}{
		"the newest write of a key that is absent at the end": {
			func(h *History) {
				everyFinal(h, func(f *FinalRead) { f.Keys = slices.Delete(f.Keys, 1, 2) })
			},
			// All three writes of the key are gone, and each of the final reads is stale.
			[]ViolationKind{LostWrite, LostWrite, LostWrite, StaleRead, StaleRead, StaleRead},
		},
		"a write that was rolled back at the end, at one member only": {
			func(h *History) { h.Finals[1].Keys[1] = KeyValue{Key: key1, Value: "0/3", Revision: 14} },
			[]ViolationKind{LostWrite, StaleRead},
		},
		"a write in whose place the final reads have another": {
			func(h *History) {
				h.Logs = nil
				everyFinal(h, func(f *FinalRead) { f.Keys[1].Value = "0/3" })
			},
			// What is there instead was acknowledged at another revision.
			[]ViolationKind{LostWrite, MembersDisagree, MembersDisagree, MembersDisagree},
		},
		"a lost write that was overwritten later, so that only the watches can tell": {
			func(h *History) {
				everyLog(h, withoutRevision(11))
				everyLog(h, func(l *EventLog) { l.Events[1].Version, l.Events[3].Version = 1, 2 })
				h.Operations = slices.Delete(h.Operations, 2, 3) // nobody read it
				h.Operations[2].Kind, h.Operations[2].Expect = Put, ""
			},
			[]ViolationKind{LostWrite},
		},
		"a write whose revision was given to another after a restore": {
			func(h *History) {
				// Acknowledged again at 12 after 16 had been.
				h.Operations = slices.Insert(h.Operations, 9, Operation{
					Client: "writer-0", Request: 7, Kind: Put, Key: key1, Value: "0/8", Outcome: OK, Member: memberC,
					Revision: 12, Call: ms(96), Return: ms(97),
				})
			},
			[]ViolationKind{LostWrite, RevisionWentBack},
		},
		"a linearizable read that is older than an acknowledged write": {
			func(h *History) {
				h.Operations = append(h.Operations, Operation{
					Client: "reader-0", Request: 3, Kind: Get, Key: key1, Outcome: OK, Member: memberB,
					Revision: 14, Read: "0/3", ReadRevision: 14, Call: ms(96), Return: ms(99),
				})
			},
			[]ViolationKind{StaleRead},
		},
		"a linearizable read that finds nothing after an acknowledged write": {
			func(h *History) { h.Operations[2].Read, h.Operations[2].ReadRevision = "", 0 },
			[]ViolationKind{StaleRead},
		},
		"a linearizable read that is older than an earlier one, of a write nobody was told of": {
			func(h *History) {
				h.Operations = append(h.Operations, Operation{
					Client: "reader-0", Request: 3, Kind: Get, Key: key2, Outcome: OK, Member: memberB,
					Revision: 16, Read: "0/2", ReadRevision: 12, Call: ms(96), Return: ms(99),
				})
			},
			[]ViolationKind{StaleRead},
		},
		"an event that a watch delivered twice": {
			func(h *History) { h.Logs[0].Events = slices.Insert(h.Logs[0].Events, 2, h.Logs[0].Events[1]) },
			[]ViolationKind{DuplicatedEvent},
		},
		"a write that was applied twice": {
			func(h *History) {
				everyLog(h, func(l *EventLog) {
					l.Events[3].Value = "0/2" // at 15 again what was written at 12
				})
				everyFinal(h, func(f *FinalRead) { f.Keys[2].Value = "0/2" })
				h.Operations = slices.Delete(h.Operations, 7, 8)
			},
			[]ViolationKind{
				DuplicatedEvent, DuplicatedEvent, DuplicatedEvent,
				MembersDisagree, MembersDisagree, MembersDisagree, // with the acknowledgement
			},
		},
		"events in the wrong order": {
			func(h *History) {
				events := h.Logs[2].Events
				events[1], events[2] = events[2], events[1]
			},
			[]ViolationKind{ReorderedEvent},
		},
		"two events of one revision": {
			func(h *History) { h.Logs[0].Events[1].Revision = 11 },
			[]ViolationKind{DuplicatedEvent, MembersDisagree, MissingEvent},
		},
		"an event that one watch skipped": {
			func(h *History) { withoutRevision(16)(&h.Logs[1]) },
			[]ViolationKind{MissingEvent},
		},
		"an event of an unacknowledged write that all watches skipped": {
			func(h *History) {
				everyLog(h, func(l *EventLog) {
					l.Events[4].Version = 4
				})
			},
			[]ViolationKind{MissingEvent, MissingEvent, MissingEvent},
		},
		"a write that all watches skipped but the final reads found": {
			func(h *History) { everyLog(h, withoutRevision(16)) },
			[]ViolationKind{MissingEvent},
		},
		"a value that nobody wrote": {
			func(h *History) {
				h.Operations[6].Read = "9/9"
			},
			[]ViolationKind{UnknownValue},
		},
		"a value whose write had failed": {
			func(h *History) { h.Operations[6].Read, h.Operations[6].ReadRevision = "0/5", 15 },
			[]ViolationKind{UnknownValue},
		},
		"a value whose transaction had been refused, among the events": {
			func(h *History) {
				h.Logs = h.Logs[:1]
				h.Logs[0].To = 18
				h.Logs[0].Events = append(h.Logs[0].Events, Event{Revision: 18, Key: key2, Value: "0/6", Version: 3})
			},
			[]ViolationKind{UnknownValue, BrokenCondition},
		},
		"a deletion": {
			func(h *History) {
				h.Logs = h.Logs[:1]
				h.Logs[0].To = 18
				h.Logs[0].Events = append(h.Logs[0].Events, Event{Revision: 18, Key: key2, Deleted: true})
			},
			[]ViolationKind{UnknownValue},
		},
		"two members that tell different things of one revision": {
			func(h *History) { h.Logs[1].Events[3].Key = key1; h.Logs[1].Events[3].Version = 3 },
			// The other watches' event is nobody's on this key, and takes the place of a version.
			[]ViolationKind{UnknownValue, MembersDisagree},
		},
		"a read whose revision is not that of the write": {
			func(h *History) { h.Operations[6].ReadRevision = 13 },
			[]ViolationKind{MembersDisagree},
		},
		"a transaction that was applied against its condition": {
			func(h *History) { h.Operations[3].Expect = "0/0" },
			[]ViolationKind{BrokenCondition},
		},
		"a transaction that was refused against its condition": {
			func(h *History) { h.Operations[7].Expect = "0/4" },
			[]ViolationKind{BrokenCondition},
		},
	} {
		t.Run(name, func(t *testing.T) {
			h := faultless()
			c.change(h)
			var got []ViolationKind
			report := h.Check()
			for _, v := range report.Violations {
				got = append(got, v.Kind)
			}
			require.Equal(t, c.want, got, "%v", report.Violations)
		})
	}
}

func TestCheckDoesNotBlameTheClusterFor(t *testing.T) {
	for name, change := range map[string]func(h *History){
		"a member that did not answer at the end and whose watch was cut short": func(h *History) {
			h.Finals[1] = FinalRead{Member: memberB, Error: "refused"}
			h.Logs[1].Events, h.Logs[1].To, h.Logs[1].Complete = h.Logs[1].Events[:2], 12, false
		},
		"events that one watch missed because of a compaction": func(h *History) {
			withoutRevision(12)(&h.Logs[2])
			withoutRevision(14)(&h.Logs[2])
			h.Logs[2].Gaps = []Gap{{From: 12, To: 14}}
		},
		"an unanswered write that came after an acknowledged one": func(h *History) {
			h.Operations[4].Call, h.Operations[4].Return = ms(16), ms(19)
		},
		"an unanswered write that was never applied": func(h *History) {
			h.Operations = append(h.Operations, Operation{Client: "writer-0", Request: 8, Kind: Put, Key: key1,
				Value: "0/9", Outcome: Unknown, Call: ms(98), Return: ms(99)})
		},
		"a read of an older value while the write was still under way": func(h *History) {
			h.Operations = append(h.Operations, Operation{
				Client: "reader-0", Request: 3, Kind: Get, Key: key1, Outcome: OK, Member: memberB,
				Revision: 14, Read: "0/3", ReadRevision: 14, Call: ms(92), Return: ms(99),
			})
		},
	} {
		t.Run(name, func(t *testing.T) {
			h := faultless()
			change(h)
			report := h.Check()
			require.Empty(t, report.Violations)
			require.Zero(t, report.Unverified)
		})
	}
}

func TestAWriteThatNothingCoversIsUnverifiedAndNotLost(t *testing.T) {
	h := faultless()
	// All watches missed the first write of k1, which was overwritten later.
	everyLog(h, func(l *EventLog) {
		withoutRevision(11)(l)
		l.Gaps = []Gap{{From: 11, To: 11}}
	})
	report := h.Check()
	require.Empty(t, report.Violations)
	require.Equal(t, 1, report.Unverified)

	t.Run("and all that is not the last of its key if there are no watches", func(t *testing.T) {
		h := faultless()
		h.Logs = nil
		require.False(t, h.Verified())
		require.Equal(t, 3, h.Check().Unverified)
	})
	t.Run("and all if there is nothing", func(t *testing.T) {
		h := faultless()
		h.Logs, h.Finals = nil, nil
		report := h.Check()
		require.Empty(t, report.Violations)
		require.Equal(t, report.Acknowledged, report.Unverified)
	})
}

func TestTheFiguresCountWhatTheHistorySays(t *testing.T) {
	h := faultless()
	f := h.Figures()
	require.Equal(t, 5, f.AcknowledgedWrites)
	require.Equal(t, Requests{Total: 6, Answered: 5, Failed: 1, Retried: 1, FailedAttempts: 2, Unknown: 1}, f.Writes)
	require.Equal(t, Requests{Total: 1, Answered: 1}, f.Reads)
	require.Equal(t, Requests{Total: 1, Answered: 1}, f.SerializableReads)

	t.Run("the stall is the longest time between two acknowledgements of one writer", func(t *testing.T) {
		// Acknowledged at 15, 25, 45, 95 ms: the refused transaction at 85 wrote nothing.
		require.Equal(t, Span{From: h.Start.Add(ms(45)), Seconds: 0.05}, f.LongestWriteStall)
		require.Equal(t, f.LongestWriteStall, f.LongestWriteOutage)
	})
	t.Run("another writer that gets through shortens the outage and not the stall", func(t *testing.T) {
		h := faultless()
		h.Writers = 2
		for i := range 10 {
			h.Operations = append(h.Operations, Operation{
				Client: "writer-1", Request: i + 1, Kind: Put, Key: "/t/w1/k1",
				Value: fmt.Sprintf("1/%d", i), Outcome: OK,
				Revision: int64(100 + i), Call: ms(10*i + 1), Return: ms(10*i + 2),
			})
		}
		f := h.Figures()
		require.InDelta(t, 0.05, f.LongestWriteStall.Seconds, 1e-9)
		require.InDelta(t, 0.01, f.LongestWriteOutage.Seconds, 1e-9)
	})
	t.Run("a writer that never got through was stalled all the time", func(t *testing.T) {
		h := faultless()
		h.Writers = 2
		f := h.Figures()
		require.Equal(t, Span{From: h.Start, Seconds: 0.1}, f.LongestWriteStall)
	})
	t.Run("what comes after the last acknowledgement counts", func(t *testing.T) {
		h := faultless()
		h.Duration = ms(1000)
		require.Equal(t, Span{From: h.Start.Add(ms(95)), Seconds: 0.905}, h.Figures().LongestWriteStall)
	})
}

func TestFiguresAreReadable(t *testing.T) {
	h := faultless()
	everyFinal(h, func(f *FinalRead) { f.Keys = nil })
	o := &Observation{Start: h.Start, Duration: ms(100), Cluster: 7, Samples: []Sample{threeServing(0)}}
	text := NewFigures(h, o).String()
	require.Contains(t, text, "acknowledged writes lost")
	require.Contains(t, text, "leader changes")
	require.Contains(t, text, "lost write: "+key1)
	require.Contains(t, text, "... and ", "a long list of violations is cut")
	t.Log("\n" + text)
}
