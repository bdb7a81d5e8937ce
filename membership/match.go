// Matching an answer with the member that it comes from. Addresses are no proof: a pod's IP is reused, and a Service
// leads to any member. The IDs in the answer's header are.

package membership

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc/peer"

	"github.com/quorate/quorate/pkg/rollout"
)

// identify checks that the answer comes from the member that was asked.
func identify(h *pb.ResponseHeader, cluster, member uint64) (rollout.ReadResult, string) {
	switch {
	case h.GetClusterId() != cluster:
		return rollout.WrongCluster, fmt.Sprintf("cluster %x answered instead of %x", h.GetClusterId(), cluster)
	case h.GetMemberId() != member:
		return rollout.WrongMember, fmt.Sprintf("member %x answered instead of %x", h.GetMemberId(), member)
	}
	return rollout.Answered, ""
}

// clientOf returns the client for a request that only this member may get. That is the one for the URL under which the
// member has identified itself. Where others may answer as well, or nothing is known, it has to identify itself now.
//
// The connection may still break between that and the request, and a Service may then lead to another member. So a
// request may use such a URL only if every other member refuses it, as those that do not lead refuse to hand over
// leadership, or if all members do the same with it. What etcd answers to a transfer or a defragmentation has no
// header, so it does not show afterwards who has done it.
func (o *Observer) clientOf(ctx context.Context, m rollout.Membership, member uint64) (*clientv3.Client, error) {
	i := slices.IndexFunc(m.Members, func(x rollout.Member) bool { return x.ID == member })
	if i < 0 {
		return nil, fmt.Errorf("%x is not in the member list", member)
	}
	x := &m.Members[i]
	urls := distinct(x.ClientURLs...)
	if x.Probe.URL != "" {
		urls = []string{x.Probe.URL}
	}
	if len(urls) == 0 {
		return nil, fmt.Errorf("%x advertises no client URL", member)
	}
	var errs []error
	for _, url := range urls {
		client, err := o.clients.get(ctx, url)
		if err == nil && len(urls) == 1 && !shared(m.Members, member, url) {
			return client, nil
		}
		if err == nil {
			err = o.identifies(ctx, client, m.ClusterID, member)
		}
		if err == nil {
			return client, nil
		}
		errs = append(errs, err)
	}
	return nil, errors.Join(errs...)
}

// identifies returns an error unless the member itself answers over this client.
func (o *Observer) identifies(ctx context.Context, client *clientv3.Client, cluster, member uint64) error {
	st, err := o.status(ctx, client)
	if err != nil {
		return fmt.Errorf("%s: %w", strings.Join(client.Endpoints(), ","), named(err, statusDenied))
	}
	if read, detail := identify(st.Header, cluster, member); read != rollout.Answered {
		return fmt.Errorf("%s: %s", strings.Join(client.Endpoints(), ","), detail)
	}
	return nil
}

// sameConnection is true if two requests went over the same connection: both of its ends are the same.
func sameConnection(a, b *peer.Peer) bool {
	return a.Addr != nil && b.Addr != nil && a.LocalAddr != nil && b.LocalAddr != nil &&
		a.Addr.String() == b.Addr.String() && a.LocalAddr.String() == b.LocalAddr.String()
}
