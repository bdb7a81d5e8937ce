package membership

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

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

// notSentError is about a request that was never sent.
type notSentError struct{ error }

func (e notSentError) Unwrap() error { return e.error }

// NotSent is true for an error about a request that was never sent.
func NotSent(err error) bool {
	var notSent notSentError
	return errors.As(err, &notSent)
}

// Over is true for an error after which nothing can come of the request any more: it was not sent, or the member itself
// has answered it. These requests are sent once, and not repeated by the client.
func Over(err error) bool {
	return NotSent(err) || Denied(err) || answered(err)
}

// answered is true for an error that etcd's own code has returned. etcd 3.5 returns some without a code of gRPC's.
func answered(err error) bool {
	if _, ok := status.FromError(err); !ok {
		return false
	}
	return slices.Contains([]codes.Code{
		codes.Unknown, codes.PermissionDenied, codes.Unauthenticated, codes.FailedPrecondition, codes.InvalidArgument,
		codes.Unimplemented,
	}, codeOf(err))
}

// Denied is true if etcd knows the user but does not permit the request. etcd 3.5 says so in words alone where a
// defragmentation is asked for.
func Denied(err error) bool {
	return denied(err) || err != nil && codeOf(err) == codes.Unknown && strings.Contains(err.Error(),
		"permission denied")
}

func grantFor(err error, grant string) error {
	if Denied(err) {
		return fmt.Errorf("%s: %w", grant, err)
	}
	return err
}

// alarmedMembers are the IDs in what Status says of an alarm, such as "memberID:160 alarm:NOSPACE".
func alarmedMembers(said []string, alarm pb.AlarmType) []uint64 {
	var ids []uint64
	for _, text := range said {
		if !strings.Contains(text, alarm.String()) {
			continue
		}
		for word := range strings.FieldsSeq(text) {
			if digits, ok := strings.CutPrefix(word, "memberID:"); ok {
				if id, err := strconv.ParseUint(digits, 10, 64); err == nil {
					ids = append(ids, id)
				}
			}
		}
	}
	return ids
}

// quotaField is the number of the field dbSizeQuota in etcd's StatusResponse, since 3.6.
const quotaField = 12

// quotaOf is the quota that a member of etcd 3.6 and newer tells. The types of 3.5 have no field for it, but keep what
// they do not know.
func quotaOf(s *pb.StatusResponse) int64 {
	switch m := any(s).(type) {
	case interface{ GetDbSizeQuota() int64 }:
		return m.GetDbSizeQuota()
	case interface{ Marshal() ([]byte, error) }:
		if data, err := m.Marshal(); err == nil {
			return quotaIn(data)
		}
	}
	return 0
}

// quotaIn finds the quota in a message as Protocol Buffers write it, 0 if it is not there.
func quotaIn(data []byte) int64 {
	const varint, fixed64, counted, fixed32 = 0, 1, 2, 5
	for len(data) > 0 {
		tag, n := binary.Uvarint(data)
		if n <= 0 {
			return 0
		}
		data = data[n:]
		var skip uint64
		switch tag & 7 {
		case varint:
			value, n := binary.Uvarint(data)
			if n <= 0 {
				return 0
			}
			if tag>>3 == quotaField {
				return int64(value) //nolint:gosec // It was written from one.
			}
			skip = uint64(n)
		case counted:
			length, n := binary.Uvarint(data)
			if n <= 0 {
				return 0
			}
			data, skip = data[n:], length
		case fixed64:
			skip = 8
		case fixed32:
			skip = 4
		default:
			return 0
		}
		if skip > uint64(len(data)) {
			return 0
		}
		data = data[skip:]
	}
	return 0
}
