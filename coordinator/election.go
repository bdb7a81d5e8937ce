package coordinator

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"
	"sync"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/mvccpb"
	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc/connectivity"

	"github.com/quorate/quorate/internal/membership"
	"github.com/quorate/quorate/internal/selfupdate"
)

// releaseTimeout bounds the release of the lock: a host that shuts down gives its
// parts little time, and the lease expires by itself.
const releaseTimeout = time.Second

// releaseRetry is the pause between two attempts to release the lock.
const releaseRetry = releaseTimeout / 10

// headStart is for how long only the session's own connection is tried, which answers at once
// unless its member goes at the same moment: new connections to all members cost them, and
// whoever waits for the lock, more than that.
const headStart = releaseTimeout / 20

var (
	errSessionLost = errors.New("the etcd session ended while waiting for the lock")
	// errNotOurs ends a tenure: a lock key that is gone does not come back.
	errNotOurs = errors.New("the lock is not ours any more")
	// errReordered: our place in the queue was taken back, so that the updated code
	// comes first. We line up again.
	errReordered = errors.New("the queue for the lock was reordered")
)

// keys are where the election of a StatefulSet lives in the etcd that it serves.
type keys struct{ root, lock, presence string }

func keysOf(namespace, statefulSet string) keys {
	root := "/quorate/" + namespace + "/" + statefulSet
	return keys{root: root, lock: root + "/lock", presence: root + "/presence"}
}

// reserve is what the lease of a session is granted for on top of its TTL. etcd ends the lease
// only when both have passed. Whoever finds less than this left knows that the owner has been
// silent for its whole TTL, and ends the lease in etcd's place.
//
// So no lease of ours expires in an etcd that runs without sidecars, above all in the one in
// which etcd-backup-restore replays a backup: it compares revisions, an expiry takes one, and
// the backup could not be restored. A day is longer than any replay, and what nobody clears
// away is gone the day after.
const reserve = 24 * time.Hour

// session is one life in the election: a lease that is kept alive, and all keys on it.
//
// It has a client of its own, so that whatever hangs without quorum is ended by closing it.
type session struct {
	client    *clientv3.Client
	lease     clientv3.LeaseID
	dial      membership.Dial
	addresses func() []string
	keys      keys
	ttl       time.Duration
	timeout   time.Duration

	// stop ends the keep-alives, and done is closed when they have ended.
	stop context.CancelFunc
	done chan struct{}
	// beside is what runs beside the session; it ends with the client.
	beside sync.WaitGroup

	mu   sync.Mutex
	last time.Time // see confirmed
}

// openSession grants the lease and then keeps it alive, once in every. Each request has a
// deadline of its own: without quorum it would wait for ever.
func openSession(ctx context.Context, dial membership.Dial, endpoints []string, k keys, ttl, every, timeout time.Duration) (*session, error) {
	granting, cancel := context.WithTimeout(clientv3.WithRequireLeader(ctx), timeout)
	defer cancel()
	client, err := dialWithin(granting, dial, endpoints)
	if err != nil {
		return nil, err
	}
	sent := time.Now()
	lease, err := client.Grant(granting, int64((ttl+reserve)/time.Second))
	if err != nil {
		return nil, errors.Join(fmt.Errorf("grant a lease for the lock at %s: %w", strings.Join(endpoints, ", "), err), client.Close())
	}
	keeping, stop := context.WithCancel(clientv3.WithRequireLeader(client.Ctx()))
	s := &session{
		client: client, lease: lease.ID, dial: dial, keys: k, ttl: ttl, timeout: timeout,
		addresses: func() []string { return endpoints },
		stop:      stop, done: make(chan struct{}), last: sent,
	}
	s.beside.Go(func() { s.keepAlive(keeping, every) })
	return s, nil
}

// dialWithin waits for Dial no longer than ctx. It has no context of its own, and where there is
// an etcd user it waits for a token. A client that comes later is closed at once.
func dialWithin(ctx context.Context, dial membership.Dial, endpoints []string) (*clientv3.Client, error) {
	type dialled struct {
		client *clientv3.Client
		err    error
	}
	answer := make(chan dialled)
	go func() {
		client, err := dial(endpoints)
		select {
		case answer <- dialled{client, err}:
		case <-ctx.Done():
			if err == nil {
				_ = client.Close() // Only our own end.
			}
		}
	}()
	select {
	case a := <-answer:
		return a.client, a.err
	case <-ctx.Done():
		return nil, fmt.Errorf("connect to etcd at %s: %w", strings.Join(endpoints, ", "), ctx.Err())
	}
}

// Done is closed when the session is over: nothing was confirmed for a TTL, etcd does not know
// the lease any more, or the session was closed. Where clocks run equally fast, nobody else has
// taken the lock for dead before.
func (s *session) Done() <-chan struct{} { return s.done }

// confirmed is when the last keep-alive was sent that etcd has answered; the grant counts as
// one. At that time the lease lived, and etcd had a leader.
func (s *session) confirmed() time.Time {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.last
}

func (s *session) confirm(sent time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.last = sent
}

// retryEtcd is the pause after a request of the session that failed. It is shorter than that
// between two keep-alives, so that the return of quorum is noticed soon.
const retryEtcd = 500 * time.Millisecond

// errLeaseGone: etcd does not know our lease any more.
var errLeaseGone = errors.New("the lease is gone")

// keepAlive sends keep-alives until the session is over.
//
// clientv3's KeepAlive would send one in a third of the granted time, that is every eight
// hours. Its KeepAliveOnce opens a stream for each, for which etcd has to authenticate the user
// anew, and repeats without a pause what a member without a leader refuses. So these have a
// stream of their own, and one of them at a time is under way.
func (s *session) keepAlive(ctx context.Context, every time.Duration) {
	defer close(s.done)
	var b beats
	defer b.end()
	for next := s.confirmed().Add(every); ; {
		over := s.confirmed().Add(s.ttl)
		if next.After(over) {
			next = over
		}
		if pause := time.Until(next); pause > 0 {
			wait(ctx, pause, nil)
		}
		sent := time.Now()
		if ctx.Err() != nil || !sent.Before(over) {
			return
		}
		switch err := b.beat(ctx, s, min(s.timeout, over.Sub(sent))); {
		case err == nil:
			s.confirm(sent)
			next = sent.Add(every)
		case errors.Is(err, errLeaseGone):
			return
		default:
			next = time.Now().Add(retryEtcd)
		}
	}
}

// beats is the stream of keep-alives. With RequireLeader a member that has no leader refuses
// it at once, and one that loses its leader ends it.
type beats struct {
	stream pb.Lease_LeaseKeepAliveClient
	cancel context.CancelFunc
}

func (b *beats) end() {
	if b.cancel != nil {
		b.cancel()
	}
	b.stream = nil
}

// beat sends one keep-alive and waits for its answer.
func (b *beats) beat(ctx context.Context, s *session, within time.Duration) (err error) {
	defer func() {
		if err != nil {
			b.end()
		}
	}()
	if b.stream == nil {
		ctx, b.cancel = context.WithCancel(ctx)
	}
	defer time.AfterFunc(within, b.cancel).Stop()
	if b.stream == nil {
		if b.stream, err = pb.NewLeaseClient(s.client.ActiveConnection()).LeaseKeepAlive(ctx); err != nil {
			return err
		}
	}
	if err = b.stream.Send(&pb.LeaseKeepAliveRequest{ID: int64(s.lease)}); err != nil {
		return err
	}
	resp, err := b.stream.Recv()
	if err == nil && resp.TTL <= 0 {
		err = errLeaseGone
	}
	return err
}

// leaveHome lets a session go on at all members as soon as none of those that it began with
// can be reached, so that a member's crash does not cost the session. It does not come back
// as long as it lives: nobody is the worse for it but a member that is asked to end.
func (s *session) leaveHome(elsewhere func() []string) {
	s.beside.Go(func() {
		connection := s.client.ActiveConnection()
		for state := connection.GetState(); state != connectivity.TransientFailure; state = connection.GetState() {
			if !connection.WaitForStateChange(s.client.Ctx(), state) {
				return // The session has been closed.
			}
		}
		s.client.SetEndpoints(elsewhere()...)
	})
}

// bounded gives a request its deadline. Without RequireLeader it hangs on a member that
// is cut off.
func (s *session) bounded(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(clientv3.WithRequireLeader(ctx), s.timeout)
}

// key is our own key under a prefix.
func (s *session) key(prefix string) string { return fmt.Sprintf("%s/%x", prefix, s.lease) }

// announce says who is here, for as long as the session lives.
func (s *session) announce(ctx context.Context, p selfupdate.Presence) error {
	ctx, cancel := s.bounded(ctx)
	defer cancel()
	text, err := json.Marshal(p)
	if err != nil {
		return fmt.Errorf("encode the presence of %s: %w", p.Pod, err)
	}
	if _, err := s.client.Put(ctx, s.key(s.keys.presence), string(text), clientv3.WithLease(s.lease)); err != nil {
		return fmt.Errorf("say that this sidecar is here: %w", err)
	}
	return nil
}

// peers returns the other sidecars that are present, and who of them waits for the
// lock.
func (s *session) peers(ctx context.Context) ([]selfupdate.Peer, error) {
	ctx, cancel := s.bounded(ctx)
	defer cancel()
	resp, err := s.client.Txn(ctx).Then(
		clientv3.OpGet(s.keys.presence+"/", clientv3.WithPrefix()),
		clientv3.OpGet(s.keys.lock+"/", clientv3.WithPrefix(), clientv3.WithKeysOnly()),
	).Commit()
	if err != nil {
		return nil, fmt.Errorf("read who else is here: %w", err)
	}
	queued := map[string]int64{}
	for _, kv := range resp.Responses[1].GetResponseRange().Kvs {
		queued[path.Base(string(kv.Key))] = kv.CreateRevision
	}
	var peers []selfupdate.Peer
	for _, kv := range resp.Responses[0].GetResponseRange().Kvs {
		name := path.Base(string(kv.Key))
		p := selfupdate.Peer{Key: s.keys.lock + "/" + name}
		if string(kv.Key) == s.key(s.keys.presence) || json.Unmarshal(kv.Value, &p.Presence) != nil {
			continue // What cannot be read is nobody to hand over to.
		}
		p.Queued, p.Waiting = queued[name]
		peers = append(peers, p)
	}
	return peers, nil
}

// queue asks for all who have the lock or wait for it, in their order.
func (k keys) queue() clientv3.Op {
	byOrder := clientv3.WithSort(clientv3.SortByCreateRevision, clientv3.SortAscend)
	return clientv3.OpGet(k.lock+"/", clientv3.WithPrefix(), clientv3.WithKeysOnly(), byOrder)
}

// wait stands in the queue until the lock is ours or ctx or the session ends. Its keys and
// their order are those of etcd's concurrency.Mutex. That has no deadlines: a request that a
// hung member took never returns, and a watch there never tells. When it is given up, it cleans
// up without a deadline as well. Nor does it notice that its own session is over.
func (s *session) wait(ctx context.Context) (_ *tenure, err error) {
	defer func() {
		if err != nil {
			s.close(ctx)
		}
	}()
	t := &tenure{session: s, key: s.key(s.keys.lock)}
	asking, cancel := s.bounded(ctx)
	resp, err := s.client.Txn(asking).Then(clientv3.OpPut(t.key, "", clientv3.WithLease(s.lease)), s.keys.queue()).Commit()
	cancel()
	if err != nil {
		return nil, fmt.Errorf("line up for the lock %s: %w", s.keys.lock, err)
	}
	t.created = resp.Header.Revision
	for queue, revision := resp.Responses[1].GetResponseRange().Kvs, resp.Header.Revision; ; {
		ahead, err := t.ahead(queue)
		switch {
		case err != nil:
			return nil, err
		case ahead == nil:
			s.beside.Go(s.lookAfterOthers)
			return t, nil
		}
		watching, stop := context.WithCancel(clientv3.WithRequireLeader(ctx))
		err = s.outlive(ctx, ahead, s.client.Watch(watching, string(ahead.Key), clientv3.WithRev(revision+1)))
		stop()
		if err != nil {
			return nil, err
		}
		asking, cancel := s.bounded(ctx)
		resp, err := s.client.Do(asking, s.keys.queue())
		cancel()
		if err != nil {
			wait(ctx, retryEtcd, s.done) // The session tells when etcd stays away.
			continue
		}
		queue, revision = resp.Get().Kvs, resp.Get().Header.Revision
	}
}

// ahead returns whoever is immediately before us in the queue, and nil where the lock is ours.
func (t *tenure) ahead(queue []*mvccpb.KeyValue) (ahead *mvccpb.KeyValue, err error) {
	for _, kv := range queue {
		if string(kv.Key) == t.key && kv.CreateRevision == t.created {
			return ahead, nil
		}
		ahead = kv
	}
	return nil, errReordered
}

// outlive waits until somebody in the queue may be gone: its key changes, the watch on it ends,
// or its owner has been silent for a TTL and the key is removed. Each looks after the one before
// it, so that one request at a time is enough for any length of the queue.
func (s *session) outlive(ctx context.Context, ahead *mvccpb.KeyValue, changes clientv3.WatchChan) error {
	for {
		pause := retryEtcd
		left, err := s.left(ctx, ahead.Lease)
		if err == nil && left < 0 {
			if err = s.evict(ctx, ahead); err == nil {
				return nil
			}
		}
		if err == nil {
			pause = max(left, lookAgain)
		}
		again := time.NewTimer(pause)
		select {
		case change, ok := <-changes:
			again.Stop()
			if !ok || change.Err() != nil {
				wait(ctx, retryEtcd, s.done)
				return s.over(ctx)
			}
			if len(change.Events) > 0 {
				return nil
			}
		case <-again.C:
		case <-s.done:
		case <-ctx.Done():
		}
		again.Stop()
		if err := s.over(ctx); err != nil {
			return err
		}
	}
}

// over says whether waiting on is of no use.
func (s *session) over(ctx context.Context) error {
	select {
	case <-s.done:
		return errSessionLost
	default:
		return ctx.Err()
	}
}

// lookAgain is the pause between two looks at a lease that may be overdue any moment: etcd
// counts what is left in whole seconds.
const lookAgain = 250 * time.Millisecond

// clearAway removes those keys whose owners are gone, and returns after how long another of
// them may be. What could not be asked or removed is asked again. Each is removed only as it
// was seen.
//
// A key without a lease, or whose lease is not there any more, has come back from a backup or
// was written by hand: nobody would ever remove it. A lease that nobody keeps alive may have
// come back from a backup as well. A new leader of etcd renews all leases, which only delays.
func (s *session) clearAway(ctx context.Context, found ...*mvccpb.KeyValue) (again time.Duration) {
	again = s.ttl
	asked := map[int64]time.Duration{}
	for _, kv := range found {
		if kv.Lease == int64(s.lease) {
			continue
		}
		left, ok := asked[kv.Lease]
		if !ok {
			var err error
			if left, err = s.left(ctx, kv.Lease); err != nil {
				again = min(again, retryEtcd)
				continue
			}
			asked[kv.Lease] = left
		}
		if left >= 0 {
			again = min(again, max(left, lookAgain))
			continue
		}
		if err := s.evict(ctx, kv); err != nil {
			again = min(again, retryEtcd)
		}
	}
	return again
}

// left is for how long the owner of a lease may still be silent; it is negative when the
// owner is gone. It is exact to the second below.
func (s *session) left(ctx context.Context, lease int64) (time.Duration, error) {
	if lease == 0 {
		return -1, nil
	}
	ctx, cancel := s.bounded(ctx)
	defer cancel()
	resp, err := s.client.TimeToLive(ctx, clientv3.LeaseID(lease))
	switch {
	case err != nil:
		return 0, fmt.Errorf("ask how long the lease %x has not been kept alive: %w", lease, err)
	case resp.TTL < 0:
		return -1, nil
	case time.Duration(resp.GrantedTTL)*time.Second <= reserve:
		return s.ttl, nil // It is not one of ours: etcd itself ends it.
	}
	return time.Duration(resp.TTL)*time.Second - reserve, nil
}

// evict removes a key as it was seen, and revokes its lease, which removes whatever else its
// owner has left. The key goes first: who may write our keys need not be allowed to revoke a
// lease on which others have put theirs.
func (s *session) evict(ctx context.Context, kv *mvccpb.KeyValue) error {
	ctx, cancel := s.bounded(ctx)
	defer cancel()
	resp, err := s.client.Txn(ctx).
		If(clientv3.Compare(clientv3.ModRevision(string(kv.Key)), "=", kv.ModRevision)).
		Then(clientv3.OpDelete(string(kv.Key))).Commit()
	if err != nil {
		return fmt.Errorf("remove the key %s, whose owner is gone: %w", kv.Key, err)
	}
	if resp.Succeeded && kv.Lease != 0 {
		_, _ = s.client.Revoke(ctx, clientv3.LeaseID(kv.Lease)) // What remains is found at the next look.
	}
	return nil
}

// everybody returns the keys of all who are here or were.
func (s *session) everybody(ctx context.Context) ([]*mvccpb.KeyValue, error) {
	ctx, cancel := s.bounded(ctx)
	defer cancel()
	resp, err := s.client.Get(ctx, s.keys.root+"/", clientv3.WithPrefix())
	if err != nil {
		return nil, fmt.Errorf("read who else is here: %w", err)
	}
	return resp.Kvs, nil
}

// tidy removes what those have left behind who are gone. Of our own pod's it does not wait
// until they have been silent for long enough: what this process, or another one in this pod,
// had before is not needed any more. When this process begins, neither is what bears our pod's
// name and another UID, for then the pod has been replaced; later on, it may be we who have
// been replaced without having been told, and two that end each other's sessions would never
// end.
func (s *session) tidy(ctx context.Context, self selfupdate.Presence, begins bool) error {
	found, err := s.everybody(ctx)
	if err != nil {
		return err
	}
	for _, kv := range found {
		var p selfupdate.Presence
		if kv.Lease == int64(s.lease) || self.Pod == "" || json.Unmarshal(kv.Value, &p) != nil || p.Pod != self.Pod {
			continue
		}
		if begins || p.UID == self.UID {
			if err := s.evict(ctx, kv); err != nil {
				return err
			}
		}
	}
	s.clearAway(ctx, found...)
	return nil
}

// lookAfterOthers is the business of whoever has the lock: it removes what is left of those
// who are gone, whether they waited for the lock or not, so that it is not handed over to them.
func (s *session) lookAfterOthers() {
	ctx := s.client.Ctx()
	for s.over(ctx) == nil {
		again := retryEtcd
		if found, err := s.everybody(ctx); err == nil {
			again = s.clearAway(ctx, found...)
		}
		wait(ctx, again, s.done)
	}
}

// close ends the session. Revoking the lease removes our keys at once; where that fails,
// others remove them when they have not been kept alive for a TTL.
func (s *session) close(ctx context.Context) {
	s.stop()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), releaseTimeout/4)
	defer cancel()
	_, _ = s.client.Revoke(ctx, s.lease)
	_ = s.client.Close()
	s.beside.Wait()
}

// tenure is the time during which this process owns the lock.
type tenure struct {
	*session
	// key is our place in the queue, and created its revision.
	key     string
	created int64
}

// mine holds as long as the lock is ours.
func (t *tenure) mine() clientv3.Cmp {
	return clientv3.Compare(clientv3.CreateRevision(t.key), "=", t.created)
}

// owns asks etcd, linearizably, whether the lock is still ours.
func (t *tenure) owns(ctx context.Context) error {
	ctx, cancel := t.bounded(ctx)
	defer cancel()
	resp, err := t.client.Txn(ctx).If(t.mine()).Commit()
	if err != nil {
		return fmt.Errorf("check that the lock is still ours: %w", err)
	}
	if !resp.Succeeded {
		return errNotOurs
	}
	return nil
}

// release gives the lock back. It may be called, and repeated, without harm when the
// lock is long lost.
func (t *tenure) release(ctx context.Context) error {
	return t.giveBack(ctx, t.releaseOver)
}

// releaseOver is guarded by our own key's revision.
func (t *tenure) releaseOver(ctx context.Context, client *clientv3.Client) error {
	_, err := client.Txn(ctx).If(t.mine()).Then(clientv3.OpDelete(t.key)).Commit()
	return err
}

// handOver gives the lock to a peer that waits for it. Who stands before it in the
// queue loses its place in the same transaction and lines up again, so that the
// coordinator changes once. If the peer has gone meanwhile, the lock is simply released.
func (t *tenure) handOver(ctx context.Context, to selfupdate.Peer) error {
	asking, cancel := t.bounded(ctx)
	resp, err := t.client.Get(asking, t.keys.lock+"/", clientv3.WithPrefix(), clientv3.WithKeysOnly())
	cancel()
	if err != nil {
		return errors.Join(fmt.Errorf("read the queue for the lock: %w", err), t.release(ctx))
	}
	leave := []clientv3.Op{clientv3.OpDelete(t.key)}
	for _, kv := range resp.Kvs {
		if kv.CreateRevision < to.Queued && string(kv.Key) != t.key {
			leave = append(leave, clientv3.OpDelete(string(kv.Key)))
		}
	}
	there := clientv3.Compare(clientv3.CreateRevision(to.Key), "=", to.Queued)
	return t.giveBack(ctx, func(ctx context.Context, client *clientv3.Client) error {
		if resp, err := client.Txn(ctx).If(t.mine(), there).Then(leave...).Commit(); err != nil || resp.Succeeded {
			return err
		}
		return t.releaseOver(ctx, client)
	})
}

// giveBack sends a transaction over the session's own connection and, where that has not
// answered after headStart, over every member at once, each over a connection of its own; and
// then ends the session. On SIGTERM the local etcd goes at the same moment, and a client that
// has seen members come and go may be waiting to connect again. The transaction has to have
// the same effect once or several times.
func (t *tenure) giveBack(ctx context.Context, over func(context.Context, *clientv3.Client) error) error {
	trying, cancel := context.WithTimeout(context.WithoutCancel(ctx), releaseTimeout/2)
	defer cancel()
	insist := func(client *clientv3.Client) error {
		for {
			attempt, stop := context.WithTimeout(trying, releaseTimeout/4)
			err := over(attempt, client)
			stop()
			if err == nil || trying.Err() != nil {
				return err
			}
			wait(trying, releaseRetry, nil) // A member that is going refuses at once.
		}
	}
	answers := make(chan error)
	var asked sync.WaitGroup
	asked.Go(func() { answers <- insist(t.client) })
	asked.Go(func() {
		wait(trying, headStart, nil)
		if trying.Err() != nil {
			return
		}
		for _, endpoint := range slices.Compact(slices.Sorted(slices.Values(t.addresses()))) {
			asked.Go(func() {
				client, err := dialWithin(trying, t.dial, []string{endpoint})
				if err == nil {
					err = insist(client)
					_ = client.Close() // Only our own end.
				}
				answers <- err
			})
		}
	})
	go func() { asked.Wait(); close(answers) }()
	var failed error
	done := false
	for err := range answers {
		if err == nil {
			done = true
			cancel() // The others have nothing to add.
		} else {
			failed = err
		}
	}
	t.close(ctx)
	if !done {
		return fmt.Errorf("release the lock (it expires by itself): %w", failed)
	}
	return nil
}
