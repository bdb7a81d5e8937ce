package cost

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/quorate/quorate/test/harness/apiproxy"
)

func TestCountsBecomeARate(t *testing.T) {
	require.Equal(t, map[string]float64{"get pods": 6, "list pods": 0.5},
		aMinute(map[string]int{"get pods": 12, "list pods": 1, "patch leases": 0}, 120))
	require.Empty(t, aMinute(nil, 60))
}

func TestOnlyAWatchThatGoesOnIsOpen(t *testing.T) {
	record := func(verb string, ended time.Time) apiproxy.Record {
		return apiproxy.Record{Request: apiproxy.Request{Verb: verb}, Ended: ended}
	}
	require.Equal(t, 2, openWatches([]apiproxy.Record{
		record("watch", time.Time{}), record("watch", time.Now()), record("get", time.Time{}),
		record("watch", time.Time{}),
	}))
}
