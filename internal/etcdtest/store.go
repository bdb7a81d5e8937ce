package etcdtest

import (
	"cmp"
	"context"
	"slices"
	"strings"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// store is the state that consensus is about. Its methods need the cluster's lock.
type store struct {
	revision int64
	keys     map[string]*mvccpb.KeyValue
	history  []*mvccpb.Event
	leases   map[int64]*lease // the living ones
	next     int64
	// compacted is the revision before which no watch can begin any more.
	compacted int64
	// changed is closed and replaced at every change, for watches and keep-alives.
	changed chan struct{}
}

func (s *store) init() {
	s.revision, s.keys, s.leases, s.changed = 1, map[string]*mvccpb.KeyValue{}, map[int64]*lease{}, make(chan struct{})
}

// lease was granted for so many seconds, and was last kept alive at kept.
type lease struct {
	ttl  int64
	kept time.Time
}

// left is the time until the lease ends, unless it is kept alive before.
func (l *lease) left() time.Duration { return time.Duration(l.ttl)*time.Second - time.Since(l.kept) }

// lives is true for a lease that was granted and has not ended.
func (s *store) lives(lease int64) bool {
	_, ok := s.leases[lease]
	return ok
}

func (s *store) notify() {
	close(s.changed)
	s.changed = make(chan struct{})
}

func (s *store) put(key string, value []byte, lease int64) {
	s.revision++
	kv := &mvccpb.KeyValue{Key: []byte(key), Value: value, Lease: lease, CreateRevision: s.revision,
		ModRevision: s.revision, Version: 1}
	if old := s.keys[key]; old != nil {
		kv.CreateRevision, kv.Version = old.CreateRevision, old.Version+1
	}
	s.keys[key] = kv
	s.history = append(s.history, &mvccpb.Event{Type: mvccpb.PUT, Kv: kv})
	s.notify()
}

func (s *store) delete(key string) bool {
	if s.keys[key] == nil {
		return false
	}
	s.revision++
	delete(s.keys, key)
	s.history = append(s.history, &mvccpb.Event{Type: mvccpb.DELETE,
		Kv: &mvccpb.KeyValue{Key: []byte(key), ModRevision: s.revision}})
	s.notify()
	return true
}

// grant makes a lease with this ID, or with the next one if it is 0.
func (s *store) grant(id, ttl int64) int64 {
	if id == 0 {
		s.next++
		id = s.next
	}
	s.leases[id] = &lease{ttl: ttl, kept: time.Now()}
	return id
}

func (s *store) revoke(lease int64) {
	delete(s.leases, lease)
	for key, kv := range s.keys {
		if kv.Lease == lease {
			s.delete(key)
		}
	}
	s.notify()
}

func (s *store) get(r *pb.RangeRequest) []*mvccpb.KeyValue {
	var found []*mvccpb.KeyValue
	for key, kv := range s.keys {
		in := key == string(r.Key)
		if len(r.RangeEnd) > 0 {
			in = key >= string(r.Key) && key < string(r.RangeEnd)
		}
		if in && (r.MaxCreateRevision == 0 || kv.CreateRevision <= r.MaxCreateRevision) {
			found = append(found, kv)
		}
	}
	slices.SortFunc(found, func(a, b *mvccpb.KeyValue) int {
		order := strings.Compare(string(a.Key), string(b.Key))
		if r.SortTarget == pb.RangeRequest_CREATE {
			order = int(a.CreateRevision - b.CreateRevision)
		}
		if r.SortOrder == pb.RangeRequest_DESCEND {
			order = -order
		}
		return order
	})
	if r.Limit > 0 && int64(len(found)) > r.Limit {
		found = found[:r.Limit]
	}
	return found
}

// get is what the member answers. Where only keys are asked for, etcd leaves the lease out, too, since 3.7. So does a
// member whose version nobody has said: it tells no more than every version does.
func (s kvService) get(r *pb.RangeRequest) []*mvccpb.KeyValue {
	found := s.cluster.store.get(r)
	if !r.KeysOnly {
		return found
	}
	for i, kv := range found {
		found[i] = &mvccpb.KeyValue{Key: kv.Key, CreateRevision: kv.CreateRevision, ModRevision: kv.ModRevision,
			Version: kv.Version}
		if strings.HasPrefix(s.member.Version, "3.") && !strings.HasPrefix(s.member.Version, "3.7.") {
			found[i].Lease = kv.Lease
		}
	}
	return found
}

// Keys returns the keys that exist, in order.
func (c *Cluster) Keys() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	var keys []string
	for key := range c.store.keys {
		keys = append(keys, key)
	}
	slices.Sort(keys)
	return keys
}

// Values returns the values of the keys under a prefix, in the order of the keys.
func (c *Cluster) Values(prefix string) []string {
	var values []string
	for _, key := range c.Keys() {
		c.mu.Lock()
		if kv := c.store.keys[key]; kv != nil && strings.HasPrefix(key, prefix) {
			values = append(values, string(kv.Value))
		}
		c.mu.Unlock()
	}
	return values
}

// foreign is the ID of somebody else's lease, which never expires.
const foreign = 1 << 40

// Hold writes a key with a lease that somebody else keeps alive.
func (c *Cluster) Hold(key, value string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.store.put(key, []byte(value), foreign)
}

// Put writes a key without a lease.
func (c *Cluster) Put(key, value string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.store.put(key, []byte(value), 0)
}

// Delete deletes a key.
func (c *Cluster) Delete(key string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.store.delete(key)
}

// ExpireLeases ends all leases and deletes their keys.
func (c *Cluster) ExpireLeases() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for lease := range c.store.leases {
		c.store.revoke(lease)
	}
}

// ExpireOverdue ends the leases that were not kept alive for as long as they were granted, and deletes
// their keys.
func (c *Cluster) ExpireOverdue() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for id, l := range c.store.leases {
		if l.left() < 0 {
			c.store.revoke(id)
		}
	}
}

// Grant grants a lease that nobody keeps alive, such as one that has come back from a backup, and
// writes keys with it.
func (c *Cluster) Grant(ttl time.Duration, keys map[string]string) (id int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	id = c.store.grant(0, int64(ttl/time.Second))
	for key, value := range keys {
		c.store.put(key, []byte(value), id)
	}
	return id
}

// RenewLeases renews all leases, as a new leader of etcd does.
func (c *Cluster) RenewLeases() { c.Age(0) }

// Age makes all leases look as if they were last kept alive that long ago.
func (c *Cluster) Age(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, l := range c.store.leases {
		l.kept = time.Now().Add(-d)
	}
}

// Compact forgets what has been until now, and ends the watches that began before: as in etcd, where one that has told
// nothing since would begin there again as soon as its connection breaks.
func (c *Cluster) Compact() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.store.revision++
	c.store.compacted = c.store.revision
	c.store.notify()
}

// Leases returns how many leases there are.
func (c *Cluster) Leases() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.store.leases)
}

type kvService struct {
	pb.UnimplementedKVServer
	*service
}

func (s kvService) Range(ctx context.Context, req *pb.RangeRequest) (*pb.RangeResponse, error) {
	unlock := s.cluster.mu.Unlock
	if req.Serializable {
		s.cluster.mu.Lock()
	} else {
		s.cluster.mu.Lock()
		learner := s.member.Learner
		s.cluster.mu.Unlock()
		if learner {
			return nil, errLearner
		}
		var err error
		if unlock, err = s.consensus(ctx); err != nil {
			return nil, err
		}
	}
	defer unlock()
	if s.member.ReadErr != nil {
		return nil, s.member.ReadErr
	}
	found := s.get(req)
	header := s.header()
	header.RaftTerm = cmp.Or(s.member.ReadTerm, header.RaftTerm)
	return &pb.RangeResponse{Header: header, Kvs: found, Count: int64(len(found))}, nil
}

func (s kvService) Put(ctx context.Context, req *pb.PutRequest) (*pb.PutResponse, error) {
	unlock, err := s.consensus(ctx)
	if err != nil {
		return nil, err
	}
	defer unlock()
	if s.member.PutErr != nil {
		return nil, s.member.PutErr
	}
	if req.Lease != 0 && !s.cluster.store.lives(req.Lease) {
		return nil, rpctypes.ErrGRPCLeaseNotFound
	}
	s.cluster.store.put(string(req.Key), req.Value, req.Lease)
	return &pb.PutResponse{Header: s.header()}, nil
}

// DeleteRange deletes a single key.
func (s kvService) DeleteRange(ctx context.Context, req *pb.DeleteRangeRequest) (*pb.DeleteRangeResponse, error) {
	unlock, err := s.consensus(ctx)
	if err != nil {
		return nil, err
	}
	defer unlock()
	if len(req.RangeEnd) > 0 {
		return nil, status.Errorf(codes.Unimplemented, "delete %v", req)
	}
	s.cluster.store.delete(string(req.Key))
	return &pb.DeleteRangeResponse{Header: s.header()}, nil
}

func (s kvService) Txn(ctx context.Context, req *pb.TxnRequest) (*pb.TxnResponse, error) {
	s.cluster.mu.Lock()
	s.member.Txns++
	s.cluster.mu.Unlock()
	unlock := s.cluster.mu.Unlock
	if len(req.Success)+len(req.Failure) == 0 { // etcd takes it for serializable then, and asks nobody.
		s.cluster.mu.Lock()
	} else {
		var err error
		if unlock, err = s.consensus(ctx); err != nil {
			return nil, err
		}
	}
	defer unlock()
	if s.member.TxnErr != nil {
		return nil, s.member.TxnErr
	}
	st := &s.cluster.store
	resp := &pb.TxnResponse{Succeeded: true}
	for _, c := range req.Compare {
		if c.Target != pb.Compare_CREATE && c.Target != pb.Compare_MOD || c.Result != pb.Compare_EQUAL ||
			len(c.RangeEnd) > 0 {
			return nil, status.Errorf(codes.Unimplemented, "compare %v", c)
		}
		var revision int64
		if kv := st.keys[string(c.Key)]; kv != nil {
			revision = kv.CreateRevision
			if c.Target == pb.Compare_MOD {
				revision = kv.ModRevision
			}
		}
		resp.Succeeded = resp.Succeeded && revision == max(c.GetCreateRevision(), c.GetModRevision())
	}
	ops := req.Success
	if !resp.Succeeded {
		ops = req.Failure
	}
	for _, op := range ops {
		var r pb.ResponseOp
		switch {
		case op.GetRequestPut() != nil:
			p := op.GetRequestPut()
			if p.Lease != 0 && !st.lives(p.Lease) {
				return nil, rpctypes.ErrGRPCLeaseNotFound
			}
			st.put(string(p.Key), p.Value, p.Lease)
			r.Response = &pb.ResponseOp_ResponsePut{ResponsePut: &pb.PutResponse{Header: s.header()}}
		case op.GetRequestRange() != nil:
			found := s.get(op.GetRequestRange())
			r.Response = &pb.ResponseOp_ResponseRange{ResponseRange: &pb.RangeResponse{Header: s.header(), Kvs: found,
				Count: int64(len(found))}}
		case op.GetRequestDeleteRange() != nil && len(op.GetRequestDeleteRange().RangeEnd) == 0:
			st.delete(string(op.GetRequestDeleteRange().Key))
			r.Response = &pb.ResponseOp_ResponseDeleteRange{
				ResponseDeleteRange: &pb.DeleteRangeResponse{Header: s.header()},
			}
		default:
			return nil, status.Errorf(codes.Unimplemented, "operation %v", op)
		}
		resp.Responses = append(resp.Responses, &r)
	}
	resp.Header = s.header()
	return resp, nil
}

type leaseService struct {
	pb.UnimplementedLeaseServer
	*service
}

func (s leaseService) LeaseGrant(ctx context.Context, req *pb.LeaseGrantRequest) (*pb.LeaseGrantResponse, error) {
	unlock, err := s.consensus(ctx)
	if err != nil {
		return nil, err
	}
	defer unlock()
	if s.member.GrantErr != nil {
		return nil, s.member.GrantErr
	}
	if s.cluster.store.lives(req.ID) {
		return nil, rpctypes.ErrGRPCLeaseExist
	}
	return &pb.LeaseGrantResponse{Header: s.header(), ID: s.cluster.store.grant(req.ID, req.TTL), TTL: req.TTL}, nil
}

func (s leaseService) LeaseTimeToLive(ctx context.Context, req *pb.LeaseTimeToLiveRequest) (*pb.LeaseTimeToLiveResponse,
	error) {
	unlock, err := s.consensus(ctx)
	if err != nil {
		return nil, err
	}
	defer unlock()
	resp := &pb.LeaseTimeToLiveResponse{Header: s.header(), ID: req.ID, TTL: -1}
	if l := s.cluster.store.leases[req.ID]; l != nil {
		resp.GrantedTTL, resp.TTL = l.ttl, int64(max(0, l.left())/time.Second)
	} else if req.ID == foreign {
		resp.GrantedTTL, resp.TTL = 10, 10
	}
	return resp, nil
}

func (s leaseService) LeaseRevoke(ctx context.Context, req *pb.LeaseRevokeRequest) (*pb.LeaseRevokeResponse, error) {
	unlock, err := s.consensus(ctx)
	if err != nil {
		return nil, err
	}
	defer unlock()
	if !s.cluster.store.lives(req.ID) {
		return nil, rpctypes.ErrGRPCLeaseNotFound
	}
	s.cluster.store.revoke(req.ID)
	return &pb.LeaseRevokeResponse{Header: s.header()}, nil
}

// LeaseKeepAlive answers every request of a stream by itself. A lease that is gone has a TTL of 0. The
// stream ends with the first request that is refused.
func (s leaseService) LeaseKeepAlive(stream pb.Lease_LeaseKeepAliveServer) error {
	method := &grpc.UnaryServerInfo{FullMethod: "LeaseKeepAlive"}
	for {
		req, err := stream.Recv()
		if err != nil {
			return err
		}
		resp, err := s.gate(stream.Context(), req, method, func(ctx context.Context, _ any) (any, error) {
			unlock, err := s.leads(ctx)
			if err != nil {
				return nil, err
			}
			defer unlock()
			resp := &pb.LeaseKeepAliveResponse{Header: s.header(), ID: req.ID}
			if l := s.cluster.store.leases[req.ID]; l != nil {
				l.kept, resp.TTL = time.Now(), l.ttl
			}
			return resp, nil
		})
		if err != nil {
			return err
		}
		if err := stream.Send(resp.(*pb.LeaseKeepAliveResponse)); err != nil {
			return err
		}
	}
}

// leads is consensus for a request that the leader answers alone.
func (s *service) leads(ctx context.Context) (unlock func(), err error) {
	s.cluster.mu.Lock()
	if s.cluster.unnoticed() {
		return s.cluster.mu.Unlock, nil
	}
	s.cluster.mu.Unlock()
	return s.consensus(ctx)
}

type watchService struct {
	pb.UnimplementedWatchServer
	*service
}

// Watch serves watches on single keys, many on one stream.
func (s watchService) Watch(stream pb.Watch_WatchServer) error {
	requests := make(chan *pb.WatchRequest)
	ended := make(chan error, 1)
	go func() {
		for {
			req, err := stream.Recv()
			if err != nil {
				ended <- err
				return
			}
			select {
			case requests <- req:
			case <-stream.Context().Done():
			}
		}
	}()
	type watched struct {
		key  string
		from int64
	}
	watches := map[int64]*watched{}
	var next int64
	for {
		s.cluster.mu.Lock()
		header, changed, history := s.header(), s.cluster.store.changed, s.cluster.store.history
		compacted := s.cluster.store.compacted
		s.cluster.mu.Unlock()
		for id, w := range watches {
			if w.from < compacted {
				delete(watches, id)
				if err := stream.Send(&pb.WatchResponse{Header: header, WatchId: id, Canceled: true,
					CompactRevision: compacted}); err != nil {
					return err
				}
				continue
			}
			resp := &pb.WatchResponse{Header: header, WatchId: id}
			for _, e := range history {
				if string(e.Kv.Key) == w.key && e.Kv.ModRevision >= w.from {
					resp.Events = append(resp.Events, e)
					w.from = e.Kv.ModRevision + 1
				}
			}
			if len(resp.Events) > 0 {
				if err := stream.Send(resp); err != nil {
					return err
				}
			}
		}
		select {
		case <-changed:
		case err := <-ended:
			return err
		case req := <-requests:
			resp := &pb.WatchResponse{Header: header}
			switch {
			case req.GetCreateRequest() != nil:
				create := req.GetCreateRequest()
				from := create.StartRevision
				if from == 0 {
					from = header.Revision + 1
				}
				next++
				watches[next] = &watched{string(create.Key), from}
				resp.WatchId, resp.Created = next, true
			case req.GetCancelRequest() != nil:
				delete(watches, req.GetCancelRequest().WatchId)
				resp.WatchId, resp.Canceled = req.GetCancelRequest().WatchId, true
			default:
				continue
			}
			if err := stream.Send(resp); err != nil {
				return err
			}
		}
	}
}
