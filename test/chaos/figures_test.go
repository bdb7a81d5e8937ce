package chaos

import (
	"encoding/json"
	"reflect"
	"testing"

	"github.com/stretchr/testify/require"
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
