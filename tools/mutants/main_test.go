package main

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

const guarded = `package guarded

import "errors"

func Divide(a, b int) (int, error) {
	if b == 0 || a < 0 {
		return 0, errors.New("no")
	}
	if a == b {
		return 1, nil
	}
	return a / b, nil
}

func Both(a, b bool) bool { return a && b }

func Kind(n int) string {
	switch {
	case n < 0:
		return "less"
	}
	err := errors.New("no")
	if err != nil {
		return "more"
	}
	return ""
}
`

const tests = `package guarded

import "testing"

func TestDivide(t *testing.T) {
	t.Run("by nothing", func(t *testing.T) {
		if _, err := Divide(1, 0); err == nil {
			t.Error("no error")
		}
	})
	if n, _ := Divide(2, 2); n != 1 {
		t.Error(n)
	}
}

func TestBoth(t *testing.T) {
	if Both(true, false) {
		t.Error("one is enough")
	}
}

func TestKind(t *testing.T) {
	for Kind(-1) != "less" {
	}
}
`

func TestEveryGuardIsTakenAwayAndWhatMissesItIsNamed(t *testing.T) {
	root := t.TempDir()
	for name, text := range map[string]string{"go.mod": "module guarded\n\ngo 1.26\n", "guarded.go": guarded,
		"guarded_test.go": tests} {
		if err := os.WriteFile(filepath.Join(root, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	var got []string
	target{room: "room", dir: ".", judges: []judge{{dir: ".", limit: 5 * time.Second}}}.mustPlay(t, root, &got)
	want := []string{
		"./guarded.go Divide: b == 0: `TestDivide/by nothing`",
		"./guarded.go Divide: a < 0: ",
		"./guarded.go Divide: a == b: ", // The quotient is the same.
		"./guarded.go Both: … a: ",
		"./guarded.go Both: … b: `TestBoth`",
		"./guarded.go Kind: n < 0: the tests of `.` do not end",
	}
	if !slices.Equal(got, want) {
		t.Errorf("got\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
	if text, err := os.ReadFile(filepath.Join(root, "guarded.go")); err != nil || string(text) != guarded {
		t.Errorf("the source was changed: %v", err)
	}
}

func (t target) mustPlay(test *testing.T, root string, got *[]string) {
	test.Helper()
	err := t.play(test.Context(), root, "", func(l line) { *got = append(*got, l.guard+": "+l.caught) })
	if err != nil {
		test.Fatal(err)
	}
}

func TestTheRoomOfAWrittenMutantIsTheEndOfItsName(t *testing.T) {
	h := hand{rooms: []string{"protocol", "view"}}
	for test, want := range map[string][2]string{
		"TestEveryMutantIsCaught/no_UID_precondition_(protocol)": {"no UID precondition", "protocol"},
		"TestEveryMutantIsCaught/decide_on_a_snapshot_(view)":    {"decide on a snapshot", "view"},
		"TestEveryMutantIsCaught/stuck":                          {"stuck", "protocol"},
	} {
		if guard, room := h.place(test); guard != want[0] || room != want[1] {
			t.Errorf("%s: %q, %q", test, guard, room)
		}
	}
}
