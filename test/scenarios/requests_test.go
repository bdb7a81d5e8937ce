package scenarios

import (
	"context"
	"flag"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/quorate/quorate/test/harness"
)

// podsTake is how long pods take until their containers start, where requests are counted. Longer than the default
// shows the same, and takes longer.
var podsTake = flag.Duration("pods-take", 2*time.Second,
	"how long pods take before their containers start, where requests are counted")

// mostRequests is what a rollout of three members may cost the API server, beside what is written to keep the record
// fresh.
const mostRequests = 45

// While a pod is on its way, the coordinator asks the API server for nothing. So a rollout costs no more the longer it
// takes.
func TestWhatARolloutCostsTheAPIServer(t *testing.T) {
	t.Parallel()
	// The defaults: what is counted is what a user pays.
	_, s := newCluster(t, harness.Loopback, harness.Spec{Name: "cheap", PlainText: true, StartDelay: *podsTake,
		SidecarArgs: []string{"--lock-ttl=10s", "--record-duration=15s"}})
	ctx, cancel := context.WithTimeout(t.Context(), scenarioTimeout+8**podsTake)
	defer cancel()
	for _, rollout := range []string{"the first", "another"} {
		t.Run(rollout, func(t *testing.T) {
			s := s.in(t)
			s.calm(ctx)
			began, asked := s.Asking()
			s.touch(ctx, rollout)
			s.complete(ctx)
			took := time.Since(began)
			s.calm(ctx)
			c := asked()
			t.Logf("%s rollout, %v: %d requests, %d more to keep the record fresh, %d KiB", rollout,
				took.Round(time.Second), c.Steps(), c.Requests[harness.Renewal], c.Bytes>>10)
			for _, what := range slices.Sorted(maps.Keys(c.Requests)) {
				t.Logf("%4d %s", c.Requests[what], what)
			}
			require.LessOrEqual(t, c.Steps(), mostRequests, "%s", strings.Join(c.InOrder, "\n"))
		})
	}
}
