package membership

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"

	"github.com/quorate/quorate/pkg/rollout"
)

// Sizes are those of a member's database before and after a defragmentation, in bytes, and what is left that is free.
// After is 0 if the member did not tell.
type Sizes struct{ Before, After, Left int64 }

// Defragment has a member rewrite its database. The member answers nothing meanwhile, for as long as that takes, also
// if the context ends before. An error for which [Over] is false says nothing about what the member does. The request
// is not sent at the time by or later, when what it was decided on is too old.
func (o *Observer) Defragment(ctx context.Context, m rollout.Membership, member uint64, by time.Time) (Sizes, error) {
	asking, cancel := context.WithDeadline(ctx, by)
	defer cancel()
	client, err := o.clientOf(asking, m, member)
	if err != nil {
		return Sizes{}, notSentError{err}
	}
	if url := strings.Join(client.Endpoints(), ","); shared(m.Members, member, url) {
		// A connection that breaks may lead to another member the next time, and two members must not be stopped.
		return Sizes{}, notSentError{fmt.Errorf("defragment %x: several members answer at %s, so it could reach "+
			"another one; set --advertise-client-urls to the pod's own name", member, url)}
	}
	before, err := o.status(asking, client)
	if err == nil {
		// A name may lead elsewhere by now, and two members must not be stopped.
		if read, detail := identify(before.Header, m.ClusterID, member); read != rollout.Answered {
			err = fmt.Errorf("defragment %x: %s", member, detail)
		}
	}
	if err != nil {
		return Sizes{}, notSentError{named(err, statusDenied)}
	}
	sizes := Sizes{Before: before.DbSize}
	if !time.Now().Before(by) {
		return sizes, notSentError{fmt.Errorf("defragment %x: what this was decided on has become too old", member)}
	}
	if _, err := pb.NewMaintenanceClient(client.ActiveConnection()).Defragment(ctx,
		&pb.DefragmentRequest{}); err != nil {
		return sizes, grantFor(err, defragmentDenied)
	}
	if after, err := o.status(ctx, client); err == nil {
		sizes.After, sizes.Left = after.DbSize, max(after.DbSize-after.DbSizeInUse, 0)
	}
	return sizes, nil
}

// Disarm ends the alarm NOSPACE of a member, which may have left the list by now. Any member that serves can be asked,
// because it goes through consensus.
func (o *Observer) Disarm(ctx context.Context, m rollout.Membership, member uint64) error {
	i := slices.IndexFunc(m.Members, func(x rollout.Member) bool {
		return !x.Learner && x.Probe.Read == rollout.Answered
	})
	if i < 0 {
		return notSentError{fmt.Errorf("disarm the alarm of %x: no voter serves", member)}
	}
	client, err := o.clientOf(ctx, m, m.Members[i].ID)
	if err != nil {
		return notSentError{err}
	}
	resp, err := pb.NewMaintenanceClient(client.ActiveConnection()).Alarm(ctx, &pb.AlarmRequest{
		Action: pb.AlarmRequest_DEACTIVATE, MemberID: member, Alarm: pb.AlarmType_NOSPACE,
	})
	if err != nil {
		return grantFor(err, disarmDenied)
	}
	if got := resp.Header.GetClusterId(); resp.Header != nil && got != m.ClusterID {
		return fmt.Errorf("disarm the alarm of %x: cluster %x answered instead of %x", member, got, m.ClusterID)
	}
	return nil
}
