package main

import (
	"errors"
	"io"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestInterruptions(t *testing.T) {
	fresh := func() *interruptions { return takeSignals() }
	out := newConsole(io.Discard)

	t.Run("a signal ends the context and is remembered", func(t *testing.T) {
		i := fresh()
		ctx := i.handle(out, func() {})
		require.Zero(t, i.first())
		i.signals <- syscall.SIGTERM
		<-ctx.Done()
		require.Equal(t, syscall.SIGTERM, i.first())
	})
	t.Run("an output that nobody reads ends the context, once", func(t *testing.T) {
		i := fresh()
		w := i.watch(writerFunc(func([]byte) (int, error) { return 0, errors.New("broken pipe") }))
		ctx := i.handle(out, func() { t.Error("a second failure is no second interruption") })
		for range 3 {
			_, err := w.Write([]byte("x"))
			require.Error(t, err)
		}
		<-ctx.Done()
		require.Equal(t, syscall.SIGPIPE, i.first())
	})
	t.Run("an output that is read passes everything on", func(t *testing.T) {
		var b strings.Builder
		_, err := fresh().watch(&b).Write([]byte("x"))
		require.NoError(t, err)
		require.Equal(t, "x", b.String())
	})
}

func TestTheExitCode(t *testing.T) {
	broken := good()
	broken.removals = nil
	for name, c := range map[string]struct {
		result          *outcome
		err, notStopped error
		sig             syscall.Signal
		want            int
	}{
		"is 0 when what was to be seen was seen":    {result: good(), want: 0},
		"is 1 when an invariant is broken":          {result: broken, want: 1},
		"is 1 when something failed":                {err: errors.New("no"), want: 1},
		"is 1 when not everything could be stopped": {result: good(), notStopped: errors.New("no"), want: 1},
		"is 130 after Ctrl-C":                       {err: errors.New("interrupted"), sig: syscall.SIGINT, want: 130},
		"is 143 after SIGTERM":                      {err: errors.New("interrupted"), sig: syscall.SIGTERM, want: 143},
	} {
		t.Run(name, func(t *testing.T) {
			require.Equal(t, c.want, conclude(newConsole(io.Discard), c.result, c.err, c.notStopped, c.sig))
		})
	}
}
