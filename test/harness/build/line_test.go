package build_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/quorate/quorate/test/harness/build"
)

// clear is what a terminal gets before its line is written anew.
const clear = "\r\x1b[K"

func TestTheLine(t *testing.T) {
	var out strings.Builder
	took := func() string {
		defer out.Reset()
		return out.String()
	}
	says := func(text string) func() string { return func() string { return text } }
	width := 10
	l := build.NewLine(&out, func() int { return width })
	require.True(t, l.Terminal())

	_, _ = l.Write([]byte("before\n"))
	require.Equal(t, "before\n", took(), "there is no line yet")
	l.Set(says("one"))
	require.Equal(t, clear+"one", took())
	l.Set(says("two"))
	require.Equal(t, clear+"two", took(), "in the same place")
	l.Draw()
	require.Equal(t, clear+"two", took())
	_, _ = l.Write([]byte("above\n"))
	require.Equal(t, clear+"above\n"+clear+"two", took(), "what stays is above it")
	l.Set(says("größer als das Terminal"))
	require.Equal(t, clear+"größer al", took(), "it never takes two lines")
	width = 0
	l.Draw()
	require.Equal(t, clear, took())
	l.Set(nil)
	require.Equal(t, clear, took())
	l.Set(nil)
	l.Draw()
	require.Empty(t, took(), "it is gone")
}

func TestABuildIsShown(t *testing.T) {
	state := build.State{Target: build.Kube, Nth: 4, Of: 4, Packages: 7, All: 2286}
	var out strings.Builder

	t.Run("on a terminal by one line that changes, and by its sum", func(t *testing.T) {
		out.Reset()
		s := build.NewShow(build.NewLine(&out, func() int { return 80 }), "demo")
		s.Moved(state)
		require.Equal(t, clear+"       0s  demo      kube (4 of 4): 7 of 2286 packages", out.String())
		out.Reset()
		s.Finished(build.Kube, state, "built in 95.2s")
		require.Empty(t, out.String())
		s.End()
		require.Equal(t, clear+"           demo      1 program built in 0 s\n", out.String())
	})
	t.Run("on a terminal by nothing that stays if nothing was to be built", func(t *testing.T) {
		out.Reset()
		s := build.NewShow(build.NewLine(&out, func() int { return 80 }), "demo")
		s.Finished(build.Kube, state, "up to date")
		s.End()
		require.Empty(t, out.String())
	})
	t.Run("elsewhere by a line for each program", func(t *testing.T) {
		out.Reset()
		s := build.NewShow(build.NewLine(&out, nil), "demo")
		s.Moved(state)
		s.Told("waiting for another process that is building")
		s.Finished(build.Kube, state, "built in 95.2s")
		s.End()
		require.Equal(t, "           demo      waiting for another process that is building\n"+
			"           demo      kube (4 of 4): built in 95.2s\n", out.String())
	})
}
