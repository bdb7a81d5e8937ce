// The two requests that every member is asked: a linearizable read, which proves that it serves, and its status.

package membership

import (
	"context"
	"errors"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc"
)

// probeKey is read to prove that a member serves. Nobody writes it. With etcd's authentication on, a
// refusal (PermissionDenied) proves the same.
const probeKey = "/quorate/probe"

// read asks for a linearizable read. A learner answers serializable ones only. The request goes over
// the pinned connection, because clientv3's Get keeps trying a member that refuses connections until
// the timeout, and then gives no better reason than that.
//
// A voter that knows no leader says so at once, and is asked again for leaderPatience. One that loses its leader
// meanwhile is given up after the same time. Without quorum the read would otherwise wait for its whole timeout,
// and the cure would wait for the read.
func (o *Observer) read(ctx context.Context, client *clientv3.Client, learner bool,
	opts ...grpc.CallOption) (*pb.ResponseHeader, error) {
	ctx, cancel := context.WithTimeout(ctx, o.timeout)
	defer cancel()
	if !learner {
		var stop func()
		ctx, stop = o.whileLed(ctx, client, leaderPatience)
		defer stop()
		ctx = clientv3.WithRequireLeader(ctx)
	}
	again := time.NewTicker(leaderPoll)
	defer again.Stop()
	for begun := time.Now(); ; {
		resp, err := pb.NewKVClient(client.ActiveConnection()).Range(ctx, &pb.RangeRequest{
			Key: []byte(probeKey), CountOnly: true, Serializable: learner,
		}, opts...)
		if err == nil {
			return resp.Header, nil
		}
		err = rpctypes.Error(err)
		if errors.Is(context.Cause(ctx), rpctypes.ErrNoLeader) {
			return nil, rpctypes.ErrNoLeader
		}
		// Usually whileLed is sooner. But a member may refuse to tell its status.
		if !errors.Is(err, rpctypes.ErrNoLeader) || time.Since(begun) >= leaderPatience+wordLasts {
			return nil, err
		}
		select {
		case <-again.C:
		case <-ctx.Done():
			return nil, err
		}
	}
}

// status goes over the pinned connection, because clientv3's method dials a new one each time.
func (o *Observer) status(ctx context.Context, client *clientv3.Client,
	opts ...grpc.CallOption) (*pb.StatusResponse, error) {
	ctx, cancel := context.WithTimeout(ctx, o.timeout)
	defer cancel()
	return pb.NewMaintenanceClient(client.ActiveConnection()).Status(ctx, &pb.StatusRequest{}, opts...)
}

// readBy returns the header that says which member answered a linearizable read. That is the read's own
// header. If the user may not read the key, it is the header of a status that the member answered at
// the same time. etcd checks permission only after the read has passed consensus, so a refusal proves
// as much as an answer, but it does not say which member it comes from. The result is nil if nobody is
// known to have answered.
//
// A caller gives a status only if the same member must have refused the read. For that, both went over one connection,
// because a client connects anew on its own, and a Service may lead elsewhere then. And nobody else advertises that
// URL, because a proxy that knows gRPC spreads the requests of one connection over all members behind it.
func readBy(header *pb.ResponseHeader, err error, status *pb.StatusResponse) *pb.ResponseHeader {
	switch {
	case err == nil:
		return header
	case denied(err) && status != nil:
		return status.Header
	}
	return nil
}
