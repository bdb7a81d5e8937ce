package bench

import (
	"context"
	"errors"
	"os"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/quorate/quorate/test/harness"
)

func TestAMachineStandsStillForAsLongAsItsSlowestWriteTakes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		took := []time.Duration{5 * time.Millisecond, 1300 * time.Millisecond, 20 * time.Millisecond}
		stop := watchMachine(t.Context(), func() error {
			if len(took) == 0 {
				return nil
			}
			next := took[0]
			took = took[1:]
			return harness.Pass(context.WithoutCancel(t.Context()), next)
		})
		require.NoError(t, harness.Pass(t.Context(), 2*time.Second))
		for range 2 {
			longest, err := stop()
			require.NoError(t, err)
			require.InDelta(t, 1.3, longest, 0)
		}
		require.Empty(t, took)
	})
}

func TestAWriteThatFailsSaysNothingOfTheMachine(t *testing.T) {
	full, tried := errors.New("no space left on device"), make(chan struct{})
	stop := watchMachine(t.Context(), func() error {
		close(tried) // It is not tried again.
		return full
	})
	<-tried
	_, err := stop()
	require.ErrorIs(t, err, full)
}

func TestWhatIsWrittenToTheDiskIsRemoved(t *testing.T) {
	dir := t.TempDir()
	write, end, err := synced(dir)
	require.NoError(t, err)
	require.NoError(t, write())
	require.NoError(t, write())
	files, err := os.ReadDir(dir)
	require.NoError(t, err)
	require.Len(t, files, 1)
	require.NoError(t, end())
	files, err = os.ReadDir(dir)
	require.NoError(t, err)
	require.Empty(t, files)
}
