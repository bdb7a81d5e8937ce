package harness

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestEveryLineOfATimelineIsInItsFileAtOnceAndInOrder(t *testing.T) {
	path := filepath.Join(t.TempDir(), "timeline.log")
	timeline, err := startTimeline(path)
	require.NoError(t, err)
	lines := func() []string {
		data, err := os.ReadFile(path)
		require.NoError(t, err)
		return strings.Split(strings.TrimSuffix(string(data), "\n"), "\n")
	}
	timeline.Note("operator", "scale %s to %d", "main", 5)
	require.Len(t, lines(), 1)
	require.Regexp(t, `^ {3}0\.\d{3}s  operator  scale main to 5$`, lines()[0])

	const tellers, each = 4, 50
	var telling sync.WaitGroup
	for n := range tellers {
		telling.Go(func() {
			for range each {
				timeline.Note("fault", "by %d", n)
			}
		})
	}
	telling.Wait()
	all := lines()
	require.Len(t, all, 1+tellers*each)
	last := 0.0
	for _, line := range all {
		var at float64
		_, err := fmt.Sscanf(line, "%fs", &at)
		require.NoError(t, err, line)
		require.GreaterOrEqual(t, at, last)
		last = at
	}

	require.NoError(t, timeline.close())
	timeline.Note("fault", "nobody listens any more")
	require.Equal(t, all, lines())
	require.NoError(t, timeline.close(), "closing again does nothing")
}

func TestATimelineCanBeFollowed(t *testing.T) {
	timeline, err := startTimeline(filepath.Join(t.TempDir(), "timeline.log"))
	require.NoError(t, err)
	var lines []string
	timeline.Note("operator", "nobody follows yet")
	timeline.Follow(func(who, what, line string) {
		require.Equal(t, []string{"fault", "etcd-0 is lost"}, []string{who, what})
		lines = append(lines, line)
	})
	timeline.Note("fault", "%s is lost", "etcd-0")
	require.Len(t, lines, 1)
	require.Regexp(t, `^ {3}0\.\d{3}s  fault     etcd-0 is lost$`, lines[0])
	require.NoError(t, timeline.close())
	timeline.Note("fault", "nobody listens any more")
	require.Len(t, lines, 1)
}

func TestATimelineSaysInTheEndThatItIsNotWhole(t *testing.T) {
	timeline, err := startTimeline(filepath.Join(t.TempDir(), "timeline.log"))
	require.NoError(t, err)
	require.NoError(t, timeline.file.Close())
	timeline.Note("fault", "this cannot be written")
	require.ErrorContains(t, timeline.close(), "write the timeline")

	_, err = startTimeline(filepath.Join(t.TempDir(), "no", "such", "directory"))
	require.ErrorContains(t, err, "start the timeline")
}
