package harness

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestMessagesAreCountedFromEtcdsMetrics(t *testing.T) {
	received := map[string]int{"grpc_server_msg_received_total": 1}
	counts, err := parseCounts(strings.NewReader(
		`# HELP grpc_server_msg_received_total Total number of RPC stream messages received on the server.
# TYPE grpc_server_msg_received_total counter
grpc_server_msg_received_total{grpc_method="LeaseKeepAlive",grpc_service="etcdserverpb.Lease",`+
			`grpc_type="bidi_stream"} 12
grpc_server_msg_received_total{grpc_method="Range",grpc_service="etcdserverpb.KV",grpc_type="unary"} 1e+06
grpc_server_msg_received_total{grpc_method="Put",grpc_service="etcdserverpb.KV",grpc_type="unary"} 0
grpc_server_msg_sent_total{grpc_method="Put",grpc_service="etcdserverpb.KV",grpc_type="unary"} 7
`), received)
	require.NoError(t, err)
	require.Equal(t, map[string]int{"Lease/LeaseKeepAlive": 12, "KV/Range": 1_000_000}, counts)

	_, err = parseCounts(strings.NewReader(`grpc_server_msg_received_total{grpc_method="Put"} many`), received)
	require.ErrorContains(t, err, "many")
}
