package election

import (
	"context"
	"encoding/json"
	"slices"
	"testing"
	"time"

	"go.etcd.io/etcd/api/v3/mvccpb"
	"go.uber.org/goleak"

	"github.com/quorate/quorate/internal/etcdtest"
	"github.com/quorate/quorate/selfupdate"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// clientv3's watches do not work in a bubble (a channel of theirs is global). So a test in which anybody waits for the
// lock runs on the machine's clock, and asserts no times.

const (
	ms       = time.Millisecond
	generous = time.Minute

	lock, presence = "/quorate/ns/etcd/lock/", "/quorate/ns/etcd/presence/"
)

// The numbers of a session that opened returns.
const (
	sessionTTL     = 10 * time.Second
	sessionEvery   = 2 * time.Second
	sessionTimeout = time.Second
)

// config is that of a process whose own member answers at the first of these endpoints.
func config(c *etcdtest.Cluster, endpoints ...string) Config {
	return Config{
		Dial: c.Dial, Prefix: "/quorate/ns/etcd", AtHome: true, Members: c.URLs,
		Where: func(context.Context) ([]string, error) { return endpoints, nil },
		TTL:   sessionTTL, KeepAlive: sessionEvery, Timeout: sessionTimeout,
	}.complete()
}

// within waits until something holds, at most for d.
func within(t *testing.T, d time.Duration, what string, holds func() bool) {
	t.Helper()
	for begin := time.Now(); !holds(); <-time.After(20 * time.Millisecond) {
		if time.Since(begin) > d {
			t.Fatalf("%s: not within %v", what, d)
		}
	}
}

// opened returns a session at these endpoints, and owner the tenure of one that has the lock.
func opened(t *testing.T, c *etcdtest.Cluster, endpoints ...string) *session {
	t.Helper()
	return openedBy(t, config(c, endpoints...))
}

func openedBy(t *testing.T, cfg Config) *session {
	t.Helper()
	endpoints, _ := cfg.Where(t.Context())
	s, err := open(t.Context(), &cfg, endpoints, newLease())
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func owner(t *testing.T, c *etcdtest.Cluster, endpoints ...string) *Tenure {
	t.Helper()
	held, err := opened(t, c, endpoints...).lock(t.Context(), false)
	if err != nil {
		t.Fatal(err)
	}
	return held
}

// said is what a sidecar announces about itself.
func said(pod, uid string) string {
	text, err := json.Marshal(selfupdate.Presence{Pod: pod, UID: uid})
	if err != nil {
		panic(err)
	}
	return string(text)
}

// gaps are the times between instants.
func gaps(at []time.Duration) []time.Duration {
	var between []time.Duration
	for i := 1; i < len(at); i++ {
		between = append(between, at[i]-at[i-1])
	}
	return between
}

// kv is a key as it is in the cluster.
func kv(t *testing.T, s *session, key string) *mvccpb.KeyValue {
	t.Helper()
	resp, err := s.client.Get(t.Context(), key)
	if err != nil || len(resp.Kvs) != 1 {
		t.Fatalf("%v: %d keys %s", err, len(resp.Kvs), key)
	}
	return resp.Kvs[0]
}

// counted counts the requests of one method from now on.
func counted(c *etcdtest.Cluster, method string) *int {
	n := new(int)
	c.Intercept(func(_ context.Context, asked string, do func() (any, error)) (any, error) {
		if asked == method {
			*n++
		}
		return do()
	})
	return n
}

// queued is true if this session is in the queue.
func queued(c *etcdtest.Cluster, s *session) func() bool {
	return func() bool { return slices.Contains(c.Keys(), s.key(s.keys.lock)) }
}
