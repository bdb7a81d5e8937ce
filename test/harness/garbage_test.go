package harness

import (
	"runtime/debug"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestGarbageIsCollectedRarelyUntilThatEnds(t *testing.T) {
	before := debug.SetGCPercent(150)
	defer debug.SetGCPercent(before)
	back := CollectRarely()
	require.Equal(t, 400, debug.SetGCPercent(400))
	back()
	require.Equal(t, 150, debug.SetGCPercent(150))
}
