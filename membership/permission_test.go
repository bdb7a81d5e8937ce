package membership

import (
	"net"
	"testing"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"google.golang.org/grpc/peer"

	"github.com/quorate/quorate/pkg/rollout"
)

// A client connects anew on its own, and a name may lead to another member then.
func TestARefusedReadIsWhoseStatusCameOverTheSameConnection(t *testing.T) {
	end := func(port int) net.Addr { return &net.TCPAddr{IP: net.IPv4(10, 0, 0, 1), Port: port} }
	over := func(port int) *peer.Peer { return &peer.Peer{Addr: end(2379), LocalAddr: end(port)} }
	for _, tc := range []struct {
		name   string
		status *peer.Peer
		read   *peer.Peer
		shared []string
		want   rollout.ReadResult
	}{
		{"over one connection", over(40000), over(40000), nil, rollout.Answered},
		{"over two", over(40000), over(40001), nil, rollout.NotAsked},
		{"over one that is not known", over(40000), &peer.Peer{}, nil, rollout.NotAsked},
		{"over one to an address that others advertise too", over(40000), over(40000), []string{"http://a:2379"},
			rollout.NotAsked},
	} {
		t.Run(tc.name, func(t *testing.T) {
			member := rollout.Member{ID: 1, ClientURLs: []string{"http://a:2379"}}
			b := &probing{cluster: 7, member: member, shared: tc.shared}
			p := b.judge(&heard{
				status: &pb.StatusResponse{Header: &pb.ResponseHeader{ClusterId: 7, MemberId: 1}},
				rerr:   rpctypes.ErrPermissionDenied, own: listAnswer{err: errNotAsked},
				together: sameConnection(tc.status, tc.read),
			}, "http://a:2379")
			if p.Read != tc.want {
				t.Errorf("%d, want %d: %s", p.Read, tc.want, p.Detail)
			}
		})
	}
}
