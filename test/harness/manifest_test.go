package harness

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/util/intstr"
	"sigs.k8s.io/yaml"

	"github.com/quorate/quorate/test/harness/network"
)

func TestAClusterKeepsToThePortsThatAreFree(t *testing.T) {
	loopback, err := network.NewLoopback()
	require.NoError(t, err)
	t.Cleanup(func() { loopback.Close() })
	e := &Env{Network: loopback, ports: ports{client: 12001, peer: 12002, metrics: 12003}}
	c := &Cluster{Spec: Spec{Name: "main"}.complete(), env: e}

	set := e.statefulSet(c.Spec)
	text, err := yaml.Marshal([]any{set, e.services(c.Spec)})
	require.NoError(t, err)
	require.NotRegexp(t, fmt.Sprintf(`\b(%d|%d|%d)\b`, druidPorts.client, druidPorts.peer, druidPorts.metrics),
		string(text))

	own := loopback.AddressOf(Namespace, "main-1")
	etcd := set.Spec.Template.Spec.Containers[0]
	for _, want := range []string{
		"--listen-client-urls=https://$(POD_IP):12001", "--listen-peer-urls=https://$(POD_IP):12002",
		"--listen-metrics-urls=http://$(POD_IP):12003",
	} {
		require.Contains(t, etcd.Args, want)
	}
	require.Contains(t, strings.Join(etcd.Args, " "), "main-1=https://"+own+":12002")
	require.Equal(t, intstr.FromInt32(12003), etcd.ReadinessProbe.HTTPGet.Port)
	require.Contains(t, set.Spec.Template.Spec.Containers[1].Args, "--endpoints=https://$(POD_IP):12001")
	require.Equal(t, "https://"+own+":12001", c.Endpoint("main-1"))
}
