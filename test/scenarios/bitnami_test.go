package scenarios

import (
	_ "embed"
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/quorate/quorate/test/harness"
)

// bitnami is what the chart renders, see the comment there.
//
//go:embed testdata/bitnami.yaml
var bitnami string

func TestBitnamisChartIsRolledThoughEveryMemberAdvertisesTheService(t *testing.T) {
	t.Parallel()
	if onRealNodes {
		t.Skip("the agent's shell stands in for that of the chart's image")
	}
	image, _ := harness.EtcdUpgrade()
	images := strings.NewReplacer("image: ETCD", "image: "+image, "image: SIDECAR", "image: "+harness.Sidecar)
	ctx, s := newCluster(t, harness.Namespaces, harness.Spec{Name: "bitnami", PlainText: true,
		Components: []string{"existing-account"}, Manifest: images.Replace(bitnami)})

	client, err := s.Dial("bitnami-0")
	require.NoError(t, err)
	defer client.Close()
	list, err := client.MemberList(ctx)
	require.NoError(t, err)
	require.Len(t, list.Members, 3)
	for _, m := range list.Members {
		require.ElementsMatch(t, []string{
			fmt.Sprintf("http://%s.bitnami-headless.default.svc.cluster.local:2379", m.Name),
			"http://bitnami.default.svc.cluster.local:2379",
		}, m.ClientURLs)
	}

	t.Run("a healthy cluster is rolled one pod at a time", func(t *testing.T) { s.in(t).rollsOneAtATime(ctx) })
	t.Run("the member that is down goes first, though the Service answers for it",
		func(t *testing.T) { s.in(t).rollsTheSickOneFirst(ctx) })
}
