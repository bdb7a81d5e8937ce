package election

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"strings"
	"sync"
	"time"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"
	"go.etcd.io/etcd/api/v3/v3rpc/rpctypes"
	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/client/v3/concurrency"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/quorate/quorate/selfupdate"
)

// reserve is what the lease of a session is granted for on top of its TTL. etcd ends the lease only when both have
// passed. Whoever finds less than this left knows that the owner has been silent for its whole TTL, and ends the lease
// in etcd's place.
//
// So no lease of ours expires in an etcd that runs without sidecars, above all in the one in which etcd-backup-restore
// replays a backup: it compares revisions, an expiry takes one, and the backup could not be restored. A day is longer
// than any replay, and what nobody clears away is gone after that day.
const reserve = 24 * time.Hour

// keys are where an election lives in etcd.
type keys struct{ root, lock, presence string }

func keysOf(prefix string) keys {
	return keys{root: prefix, lock: prefix + "/lock", presence: prefix + "/presence"}
}

// session is one life in the election: a lease that is kept alive, and all keys on it. It has a client of its own, so
// that whatever hangs is ended by closing it.
type session struct {
	*concurrency.Session
	cfg    *Config
	keys   keys
	client *clientv3.Client
	life   *life
	// presence is what was announced, as it was written.
	presence string
	// owner is what the owner of the lock said of itself when the session began.
	owner selfupdate.Presence
	// owns wakes up the janitor when the lock has become ours, and when it is not any more.
	owns chan bool
	// beside is what runs beside the session; it ends with the client.
	beside sync.WaitGroup
}

// open is granted the lease with this ID, and keeps it alive from then on. Without quorum a request would wait for
// ever, so each has a deadline.
func open(ctx context.Context, cfg *Config, endpoints []string, id clientv3.LeaseID) (*session, error) {
	granting, cancel := context.WithTimeout(clientv3.WithRequireLeader(ctx), cfg.Timeout)
	defer cancel()
	client, err := connect(granting, cfg.Dial, endpoints)
	if err != nil {
		return nil, err
	}
	sent := time.Now()
	if err := grant(granting, client, id, cfg.TTL+reserve); err != nil {
		return nil, errors.Join(fmt.Errorf("grant a lease for the lock at %s: %w", strings.Join(endpoints, ", "), err),
			client.Close())
	}
	l := &life{
		Lease: client.Lease, client: client, id: id,
		every: cfg.KeepAlive, timeout: cfg.Timeout, ttl: cfg.TTL, last: sent,
	}
	if !cfg.AtHome {
		next := 0
		l.failed = func() { // One member at a time, so that one that hangs swallows no request after the first.
			if members := cfg.Members(); len(members) > 0 {
				next++
				client.SetEndpoints(members[next%len(members)])
			}
		}
	}
	client.KV, client.Lease = bounded{client.KV, cfg.Timeout}, l
	s := &session{cfg: cfg, keys: keysOf(cfg.Prefix), client: client, life: l, owns: make(chan bool, 1)}
	if !cfg.AtHome {
		client.Watcher = asking{client.Watcher, client.KV, cfg.KeepAlive, &s.beside}
	}
	if s.Session, err = concurrency.NewSession(client, concurrency.WithLease(id)); err != nil {
		return nil, errors.Join(fmt.Errorf("keep the lease for the lock alive: %w", err), client.Close())
	}
	s.beside.Go(s.janitor)
	return s, nil
}

// newLease draws the ID of a lease.
func newLease() clientv3.LeaseID { return clientv3.LeaseID(1 + rand.Int64N(math.MaxInt64)) }

// grant asks for the lease with this ID. If an earlier request was carried out and its answer was lost, that lease is
// there already, and is kept alive. With an ID of etcd's choice, as clientv3's Grant asks for, nobody would know of it,
// and it would stay for a day. Whoever loses quorum often would leave many behind.
func grant(ctx context.Context, client *clientv3.Client, id clientv3.LeaseID, ttl time.Duration) error {
	_, err := clientv3.RetryLeaseClient(client).LeaseGrant(ctx,
		&pb.LeaseGrantRequest{ID: int64(id), TTL: int64(ttl / time.Second)})
	if err = rpctypes.Error(err); errors.Is(err, rpctypes.ErrLeaseExist) {
		_, err = client.KeepAliveOnce(ctx, id)
	}
	if code := status.Code(err); code == codes.DeadlineExceeded || code == codes.Canceled {
		err = cmp.Or(ctx.Err(), err)
	}
	return err
}

// over says whether it is useless to wait any longer.
func (s *session) over(ctx context.Context) error {
	select {
	case <-s.Done():
		return errSessionLost
	default:
		return ctx.Err()
	}
}

// key is our own key under a prefix.
func (s *session) key(prefix string) string { return fmt.Sprintf("%s/%x", prefix, s.Lease()) }

// announce writes who we are, for as long as the session lives.
func (s *session) announce(ctx context.Context) error {
	if _, err := s.client.Put(ctx, s.key(s.keys.presence), s.presence, clientv3.WithLease(s.Lease())); err != nil {
		return fmt.Errorf("announce this sidecar: %w", err)
	}
	return nil
}

// begin announces who we are, and removes what has been left behind by others. See tidy.
func (s *session) begin(ctx context.Context, self selfupdate.Presence, first bool) error {
	text, err := json.Marshal(self)
	if err != nil {
		return fmt.Errorf("encode the presence of %s: %w", self.Pod, err)
	}
	s.presence = string(text)
	if err := s.announce(ctx); err != nil {
		return err
	}
	return s.tidy(ctx, self, first)
}

// lock waits for the lock. With again, somebody has just got it whom it was handed over to past us or by us, and this
// sidecar stays out of the queue for a moment first (lineUpAgain).
//
// One Mutex waits at a time, because two that have the same session own the lock together. Nobody cancels it. It would
// remove its key with the client's context, and whoever gives up is about to close the client anyhow.
//
// An error of Lock ends neither the session nor the waiting, if it may pass. The key is gone if it was handed over past
// us or evicted. Or etcd may have compacted what our watch has seen: a quiet one resumes at the revision at which it
// began. Whatever took our key may have taken the other one as well, so it is written anew.
func (s *session) lock(ctx context.Context, again bool) (*Tenure, error) {
	var err error
	for failures := 0; ; {
		if again {
			pause(ctx, lineUpAgain+rand.N(lineUpAgain), s.Done())
			err = s.announce(ctx)
		}
		began := time.Now()
		if over := s.over(ctx); over != nil {
			return nil, over
		}
		if err == nil {
			m := concurrency.NewMutex(s.Session, s.keys.lock)
			if err = s.wait(ctx, m); err == nil {
				return s.own(m), nil
			}
		}
		if over := s.over(ctx); over != nil {
			return nil, over
		}
		if failures++; time.Since(began) > s.cfg.TTL {
			failures = 1 // It has been in the queue meanwhile.
		}
		if !passes(err) || failures > mostFailures {
			return nil, fmt.Errorf("line up for the lock %s: %w", s.keys.lock, err)
		}
		if !errors.Is(err, concurrency.ErrSessionExpired) {
			pause(ctx, Retry-lineUpAgain, s.Done())
		}
		again, err = true, nil
	}
}

// lineUpAgain is the least time for which a sidecar stays out of the queue after the lock was handed over by it or past
// it. The most is twice that. The new owner is about to remove a pod, and if all others lined up at the same moment,
// the members would have to work for them just then. The time is short, because the new owner may crash. Somebody else
// has to be in the queue again before it is back.
const lineUpAgain = 50 * time.Millisecond

// mostFailures is how often the lock is asked for in vain in a row before the session is given up.
const mostFailures = 10

// wait waits until m is locked, in a goroutine of the session, which ends at the latest when the session's client is
// closed.
func (s *session) wait(ctx context.Context, m *concurrency.Mutex) error {
	locked := make(chan error, 1)
	s.beside.Go(func() { locked <- m.Lock(clientv3.WithRequireLeader(s.client.Ctx())) })
	select {
	case err := <-locked:
		return err
	case <-s.Done():
		return errSessionLost
	case <-ctx.Done():
		return ctx.Err()
	}
}

// passes is true for an error after which it may go better the next time.
func passes(err error) bool {
	var said rpctypes.EtcdError
	if !errors.As(err, &said) {
		return true // Nobody has answered.
	}
	switch said.Code() {
	case codes.ResourceExhausted, codes.PermissionDenied, codes.Unauthenticated, codes.InvalidArgument,
		codes.FailedPrecondition, codes.NotFound, codes.DataLoss:
		return false
	default:
		return true
	}
}

// close ends the session. Revoking the lease removes our keys at once. While others are left, nothing is lost if that
// fails: they remove what has not been kept alive for a TTL.
//
// A sidecar that stops may be the last one, so that its keys would stay for a day. And nobody waits for a session that
// has ended because its own member is silent, but for its key. In both cases it insists, over every member.
func (s *session) close(ctx context.Context) { s.end(ctx, 3*ReleaseTimeout/4) }

// end is close, within a limit where it insists.
func (s *session) end(ctx context.Context, limit time.Duration) {
	insists := s.over(ctx) != nil
	s.Orphan()
	revoke := func(ctx context.Context, client *clientv3.Client) error {
		_, err := client.Revoke(ctx, s.Lease())
		if errors.Is(err, rpctypes.ErrLeaseNotFound) {
			return nil // Gone is gone.
		}
		return err
	}
	if insists {
		_ = s.insist(ctx, limit, revoke)
	} else {
		once, cancel := context.WithTimeout(ctx, ReleaseTimeout/4)
		_ = revoke(once, s.client)
		cancel()
	}
	_ = s.client.Close()
	s.beside.Wait()
}
