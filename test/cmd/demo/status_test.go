package main

import (
	"context"
	"errors"
	"io"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestQuorateStatusHasToSayThatTheRolloutIsComplete(t *testing.T) {
	ended := make(chan struct{})
	close(ended)
	require.NoError(t, (&status{ended: ended}).complete(t.Context()))
	failed := &status{ended: ended, err: errors.New("exit status 1")}
	require.ErrorContains(t, failed.complete(t.Context()), "does not say that it is complete: exit status 1")
	over, cancel := context.WithCancel(t.Context())
	cancel()
	require.ErrorIs(t, (&status{ended: make(chan struct{})}).complete(over), context.Canceled)
}

func TestWhatQuorateStatusPrintsIsNotedByTheLine(t *testing.T) {
	var lines []string
	n := &noting{note: func(line string) { lines = append(lines, line) }}
	for _, part := range []string{"0 of 3 ", "settled\n1 of 3 settled\n", "2 of"} {
		_, err := io.WriteString(n, part)
		require.NoError(t, err)
	}
	require.Equal(t, []string{"0 of 3 settled", "1 of 3 settled"}, lines)
}
