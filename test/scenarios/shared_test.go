package scenarios

import (
	"fmt"
	"testing"

	"github.com/quorate/quorate/test/harness"
)

// A chart in wide use lets each member advertise its Service beside its own URL (bitnami/charts#31922).
func TestMembersThatAlsoAdvertiseTheirServiceAreRolled(t *testing.T) {
	t.Parallel()
	const name, port = "shared", 2379 // In a network of its own, every port is free.
	own := fmt.Sprintf("http://$(POD_NAME).%s-peer.%s.svc:%d", name, harness.Namespace, port)
	service := fmt.Sprintf("http://%s-client.%s.svc:%d", name, harness.Namespace, port)
	ctx, s := newCluster(t, harness.Namespaces, harness.Spec{Name: name, PlainText: true,
		EtcdArgs: []string{"--advertise-client-urls=" + service + "," + own}}) // The last one counts.

	t.Run("a healthy cluster is rolled one pod at a time", func(t *testing.T) { s.in(t).rollsOneAtATime(ctx) })
	t.Run("the member that is down goes first, though the Service answers for it",
		func(t *testing.T) { s.in(t).rollsTheSickOneFirst(ctx) })
}
