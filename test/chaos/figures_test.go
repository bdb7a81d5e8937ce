package chaos

import (
	"encoding/json"
	"reflect"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/quorate/quorate/test/harness"
)

func TestFiguresOfSeveralRunsAddUp(t *testing.T) {
	one, two := filled(t, 3), filled(t, 4)
	text, err := json.Marshal(two)
	require.NoError(t, err)
	kept := &Figures{}
	require.NoError(t, json.Unmarshal(text, kept))
	total := &Figures{}
	total.Add(one)
	total.Add(kept)

	want := filled(t, 7)
	want.Slowest, want.WithoutQuorum = 4, 4 // The longest of all.
	require.Equal(t, want.String(), total.String())
	require.Equal(t, want, total)
	require.Equal(t, filled(t, 4), kept, "nothing is lost on the way")
}

func TestFiguresFromBeforeTheQuorumGuardSayNothingOfIt(t *testing.T) {
	before := &Figures{}
	require.NoError(t, json.Unmarshal([]byte(`{"Seeds":3,"Removals":{"sidecars":9},"Evictions":4}`), before))
	require.NotContains(t, before.String(), "guard")

	after := &Figures{}
	after.denied(harness.ByDelete, false)
	after.denied(harness.ByDelete, true)
	after.denied(harness.ByEviction, false)
	after.judged([]Judgement{{By: byHands, Way: harness.ByNode, Named: true}, {By: byHands, Way: harness.ByNode}})
	for _, total := range []*Figures{before, after} {
		total.Add(&Figures{Denied: map[string]int{harness.ByCollection: 1}})
		require.Contains(t, total.String(), "deletecollection 1")
	}
	require.Regexp(t, `denied by the quorum guard +4 \(delete 2, deletecollection 1, eviction 1\), of which `+
		`could have been spared: 1\ntaken by hands all the same +2 \(node 2\); .*: 1\n`, after.String())
}

// filled has the number in every figure.
func filled(t *testing.T, n int) *Figures {
	t.Helper()
	f := &Figures{}
	v := reflect.ValueOf(f).Elem()
	for i := range v.NumField() {
		field := v.Field(i)
		switch {
		case !v.Type().Field(i).IsExported():
		case field.Kind() == reflect.Map:
			m := reflect.MakeMap(field.Type())
			m.SetMapIndex(reflect.ValueOf("x").Convert(field.Type().Key()), reflect.ValueOf(n))
			field.Set(m)
		default: // Durations, too.
			field.SetInt(int64(n))
		}
	}
	return f
}
