package chaos

import (
	"os"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/quorate/quorate/test/harness/traffic"
)

// op is an operation on one key, in milliseconds.
func op(kind traffic.Kind, outcome traffic.Outcome, call, end int, change func(*traffic.Operation)) traffic.Operation {
	o := traffic.Operation{
		Client: string(rune('a' + call%7)), Kind: kind, Key: "k", Outcome: outcome,
		Call: time.Duration(call) * time.Millisecond, Return: time.Duration(end) * time.Millisecond,
	}
	if change != nil {
		change(&o)
	}
	return o
}

func put(value string, outcome traffic.Outcome, call, end int) traffic.Operation {
	return op(traffic.Put, outcome, call, end, func(o *traffic.Operation) { o.Value = value })
}

func get(value string, call, end int) traffic.Operation {
	return op(traffic.Get, traffic.OK, call, end, func(o *traffic.Operation) {
		if o.Read = value; value != "" {
			o.ReadRevision = 1
		}
	})
}

func swap(expect, value, read string, outcome traffic.Outcome, call, end int) traffic.Operation {
	return op(traffic.Txn, outcome, call, end, func(o *traffic.Operation) {
		o.Expect, o.Value, o.Swapped = expect, value, outcome == traffic.OK && read == ""
		if o.Read = read; read != "" {
			o.ReadRevision = 1
		}
	})
}

func TestLinearizability(t *testing.T) {
	const ok, failed, unknown = traffic.OK, traffic.Failed, traffic.Unknown
	for _, c := range []struct {
		name  string
		ops   []traffic.Operation
		final string
		legal bool
	}{
		{"what was written is read", []traffic.Operation{get("", 0, 1), put("1", ok, 2, 4), get("1", 5, 6)}, "1", true},
		{"while a write is under way either value may be read",
			[]traffic.Operation{put("1", ok, 0, 1), put("2", ok, 2, 9), get("1", 3, 4), get("2", 5, 6)}, "2", true},
		{"but not the new one and then the old one",
			[]traffic.Operation{put("1", ok, 0, 1), put("2", ok, 2, 9), get("2", 3, 4), get("1", 5, 6)}, "2", false},
		{"an acknowledged write is not there any more",
			[]traffic.Operation{put("1", ok, 0, 1), put("2", ok, 2, 3), get("1", 4, 5)}, "2", false},
		{"an acknowledged write is not there in the end", []traffic.Operation{put("1", ok, 0, 1), put("2", ok, 2, 3)},
			"1", false},
		{"an unclear write may have happened", []traffic.Operation{put("1", ok, 0, 1), put("2", unknown, 2, 3),
			get("1", 4, 5), get("2", 6, 7)}, "2", true},
		{"or never", []traffic.Operation{put("1", ok, 0, 1), put("2", unknown, 2, 3), get("1", 4, 5)}, "1", true},
		{"but not before it was sent", []traffic.Operation{put("1", ok, 0, 1), get("2", 2, 3), put("2", unknown, 4, 5)},
			"1", false},
		{"and not twice", []traffic.Operation{put("1", unknown, 0, 1), get("1", 2, 3), put("2", ok, 4, 5),
			get("1", 6, 7)}, "1", false},
		{"a write that failed has not happened",
			[]traffic.Operation{put("1", ok, 0, 1), put("2", failed, 2, 3), get("2", 4, 5)}, "2", false},
		{"a transaction whose condition held",
			[]traffic.Operation{put("1", ok, 0, 1), swap("1", "2", "", ok, 2, 3), get("2", 4, 5)}, "2", true},
		{"a transaction whose condition could not have held",
			[]traffic.Operation{put("1", ok, 0, 1), put("2", ok, 2, 3), swap("1", "3", "", ok, 4, 5)}, "3", false},
		{"a transaction whose condition did not hold",
			[]traffic.Operation{put("1", ok, 0, 1), put("2", ok, 2, 3), swap("1", "3", "2", ok, 4, 5)}, "2", true},
		{"an unclear transaction may have happened",
			[]traffic.Operation{put("1", ok, 0, 1), swap("1", "2", "", unknown, 2, 3), get("2", 4, 5)}, "2", true},
	} {
		t.Run(c.name, func(t *testing.T) {
			dir := t.TempDir()
			h := &traffic.History{Operations: c.ops, Finals: []traffic.FinalRead{{
				Member: "m", Call: time.Second, Return: 2 * time.Second,
				Keys: []traffic.KeyValue{{Key: "k", Value: c.final, Revision: 1}},
			}}}
			l, err := Linearizable(h, time.Minute, dir)
			require.NoError(t, err)
			require.Empty(t, l.Unknown)
			require.Equal(t, c.legal, len(l.Illegal) == 0)
			pictures, err := os.ReadDir(dir)
			require.NoError(t, err)
			require.Len(t, pictures, len(l.Illegal))
		})
	}
}
