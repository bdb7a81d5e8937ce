// Removing a member from the list. That cannot be made conditional and cannot be taken back: a request that is repeated
// late may hit a member that has come back since.

package membership

import (
	"context"
	"errors"
	"fmt"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"

	"github.com/quorate/quorate/pkg/rollout"
)

// RemoveMember removes a member from the list, and returns once that has taken effect. The request goes to
// a voter that has just answered, and only once: whoever sends it again has to look first. An error says
// nothing of what becomes of it.
func (o *Observer) RemoveMember(ctx context.Context, m rollout.Membership, id uint64) error {
	for i := range m.Members {
		x := &m.Members[i]
		if x.ID == id || x.Learner || x.Probe.Read != rollout.Answered {
			continue
		}
		client, err := o.clientOf(ctx, m, x.ID)
		if err != nil {
			return fmt.Errorf("remove member %x: %w", id, err)
		}
		resp, err := pb.NewClusterClient(client.ActiveConnection()).MemberRemove(ctx, &pb.MemberRemoveRequest{ID: id})
		switch err = rpctypes.Error(err); {
		case errors.Is(err, rpctypes.ErrMemberNotFound):
			return nil // It is gone, whoever removed it.
		case err != nil:
			return fmt.Errorf("remove member %x: %w", id, named(err, removeDenied))
		case resp.Header.GetClusterId() != m.ClusterID:
			return fmt.Errorf("remove member %x: cluster %x answered instead of %x", id, resp.Header.GetClusterId(),
				m.ClusterID)
		}
		return nil
	}
	return fmt.Errorf("remove member %x: no other voter answers", id)
}
