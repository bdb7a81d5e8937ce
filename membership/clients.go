package membership

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"google.golang.org/grpc/connectivity"
)

// mostLate bounds how many calls of Dial for the same address may be running in a process. A Dial with a deadline of
// its own never reaches it. It limits what a Dial without one can cost.
const mostLate = 16

// Bounded lets no more calls of dial run for the same address than mostLate, whoever makes them. Observers come and go,
// and a call that hangs outlives them. The error of one call too many counts as the host's own fault.
func Bounded(dial Dial) Dial {
	var mu sync.Mutex
	running := map[string]int{}
	return func(endpoints []string) (*clientv3.Client, error) {
		k := strings.Join(endpoints, ",")
		mu.Lock()
		n := running[k]
		if n >= mostLate {
			mu.Unlock()
			return nil, fmt.Errorf("%d calls of Dial have not returned; give it a deadline", n)
		}
		running[k]++
		mu.Unlock()
		defer func() {
			mu.Lock()
			defer mu.Unlock()
			if running[k]--; running[k] == 0 {
				delete(running, k)
			}
		}()
		return dial(endpoints)
	}
}

// errGivenUp is the result of a call of Dial that nobody waits for any more.
var errGivenUp = errors.New("given up")

// clients holds one client per URL. So it is known who answers under which one: a member may advertise a URL under
// which others answer as well.
//
// [Dial] has no context, and may block for as long as a member does not answer: with a user name,
// clientv3.New asks for a token. So each call runs on its own goroutine, and a caller waits for it only
// as long as its own context lasts. If a call was given up meanwhile, it closes the client that it
// returns with.
type clients struct {
	dial Dial

	mu   sync.Mutex
	open map[string]*dialled
	// out has the calls of Dial that have not returned.
	out map[*dialled]struct{}
}

// dialled is one call of Dial. The lock of its clients guards everything but done.
type dialled struct {
	key    string
	done   chan struct{} // Closed at the very end.
	client *clientv3.Client
	err    error
}

func newClients(dial Dial) *clients {
	return &clients{dial: dial, open: map[string]*dialled{}, out: map[*dialled]struct{}{}}
}

// keys returns the keys of all clients.
func (c *clients) keys() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Collect(maps.Keys(c.open))
}

// connected is true if there is a connection.
func (c *clients) connected(key string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	d := c.open[key]
	return d != nil && d.client != nil && d.client.ActiveConnection().GetState() == connectivity.Ready
}

// beginObservation gives up the calls of Dial that are still running, because their results are older than the
// observation that begins. It returns the keys of the clients that are open.
func (c *clients) beginObservation() []string {
	c.mu.Lock()
	maps.DeleteFunc(c.open, func(_ string, d *dialled) bool { return d.client == nil })
	c.mu.Unlock()
	return c.keys()
}

// get returns the client for the URL, and dials if there is none. If ctx ends before Dial does, the
// error is that of ctx.
func (c *clients) get(ctx context.Context, url string) (*clientv3.Client, error) {
	k := key(url)
	c.mu.Lock()
	d, ok := c.open[k]
	if !ok {
		d = &dialled{key: k, done: make(chan struct{})}
		c.open[k], c.out[d] = d, struct{}{}
		go c.run(d, url)
	}
	c.mu.Unlock()
	select {
	case <-d.done:
	case <-ctx.Done():
		return nil, fmt.Errorf("etcd client for %s: Dial has not returned: %w", url, ctx.Err())
	}
	if d.err != nil {
		return nil, fmt.Errorf("etcd client for %s: %w", url, d.err)
	}
	return d.client, nil
}

// run dials, and keeps the client unless it was given up meanwhile.
func (c *clients) run(d *dialled, url string) {
	defer close(d.done)
	client, err := c.dial([]string{url})
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.out, d)
	switch {
	case c.open[d.key] != d:
		d.err = errGivenUp
		if err == nil {
			_ = client.Close()
		}
	case err != nil:
		d.err = err
		delete(c.open, d.key)
	default:
		d.client = client
	}
}

// drop closes a client, or gives up the call of Dial that would bring it.
func (c *clients) drop(key string) {
	c.mu.Lock()
	d, ok := c.open[key]
	delete(c.open, key)
	c.mu.Unlock()
	if ok && d.client != nil {
		_ = d.client.Close() // This closes our end only, and there is nothing to save.
	}
}

// dropAll closes all clients.
func (c *clients) dropAll() {
	for _, key := range c.keys() {
		c.drop(key)
	}
}

// settlePatience is enough for a member that is alive. It is short, because the end of Run may take a
// second in all.
const settlePatience = 50 * time.Millisecond

// settle waits until every call of Dial has returned, but no longer than settlePatience for all of them
// together.
func (c *clients) settle() {
	c.mu.Lock()
	out := slices.Collect(maps.Keys(c.out))
	c.mu.Unlock()
	if len(out) == 0 {
		return
	}
	over := time.NewTimer(settlePatience)
	defer over.Stop()
	for _, d := range out {
		select {
		case <-d.done:
		case <-over.C:
			return
		}
	}
}
