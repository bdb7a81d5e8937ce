package election

import (
	"context"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	clientv3 "go.etcd.io/etcd/client/v3"
)

// lookOut asks whether somebody else has the lock, while etcd confirms no session of ours: our own member may be down
// or late, while the others elect among themselves. Then nobody needs this process, and etcd is not silent.
//
// That is asked of any member, by requests that are answered at once. A session at another member would have streams
// there, and etcd waits for those when it is told to end.
func (c *Candidate) lookOut(ctx context.Context) {
	begun := time.Now()
	var client *clientv3.Client
	leave := func() {
		if client != nil {
			_ = client.Close() // Only our own end.
		}
		client = nil
	}
	defer leave()
	for ctx.Err() == nil {
		last := c.state.ours()
		if last.IsZero() {
			last = begun
		}
		// A keep-alive may be under way for a while, above all where processors are busy, and new connections would not
		// help them. But the answer should come before two of them are overdue, which counts as silence.
		if left := time.Until(last.Add(c.cfg.KeepAlive * 7 / 4)); left > 0 {
			leave()
			pause(ctx, left, nil)
			continue
		}
		sent := time.Now()
		looking, cancel := context.WithTimeout(clientv3.WithRequireLeader(ctx), c.cfg.KeepAlive)
		if members := c.cfg.Members(); client == nil {
			client, _ = connect(looking, c.cfg.Dial, members)
		} else {
			client.SetEndpoints(members...)
		}
		if client != nil && c.ownedByAnother(looking, client) {
			c.state.sees(sent)
		}
		cancel()
		pause(ctx, time.Until(sent.Add(c.cfg.KeepAlive)), nil)
	}
}

// ownedByAnother asks until there is an answer, each time another member: those that refuse connections are not asked
// at all, and one that hangs is left after a fraction of the time. It sends raw requests, because clientv3 repeats at
// once what a member without a leader refuses.
func (c *Candidate) ownedByAnother(ctx context.Context, client *clientv3.Client) bool {
	for ctx.Err() == nil {
		asking, cancel := context.WithTimeout(ctx, c.cfg.KeepAlive/3)
		owned, err := c.asksForOwner(asking, client)
		cancel()
		if err == nil {
			return owned
		}
		pause(ctx, c.cfg.KeepAlive/3, nil)
	}
	return false
}

func (c *Candidate) asksForOwner(ctx context.Context, client *clientv3.Client) (bool, error) {
	connection := client.ActiveConnection()
	k := keysOf(c.cfg.Prefix)
	first := clientv3.OpGet(k.lock+"/", clientv3.WithFirstCreate()...)
	resp, err := pb.NewKVClient(connection).Range(ctx, &pb.RangeRequest{
		Key: first.KeyBytes(), RangeEnd: first.RangeBytes(), Limit: 1,
		SortTarget: pb.RangeRequest_CREATE, SortOrder: pb.RangeRequest_ASCEND,
	})
	if err != nil || len(resp.Kvs) == 0 || resp.Kvs[0].Lease == 0 || resp.Kvs[0].Lease == c.state.lease() {
		return false, err
	}
	lease, err := pb.NewLeaseClient(connection).LeaseTimeToLive(ctx,
		&pb.LeaseTimeToLiveRequest{ID: resp.Kvs[0].Lease})
	if err != nil {
		return false, err
	}
	return remaining(lease.TTL, lease.GrantedTTL, c.cfg.TTL) >= 0, nil
}
