package traffic

import (
	"cmp"
	"context"
	"crypto/rand"
	"crypto/tls"
	"fmt"
	mathrand "math/rand/v2"
	"slices"
	"strings"
	"sync"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
)

const (
	defaultRequestTimeout = time.Second
	defaultInterval       = 20 * time.Millisecond
	defaultWriters        = 2
	defaultReaders        = 2

	// keysPerWriter is more than one, so that a write is not always followed by the
	// next write of the same key, which would hide its loss from the final read.
	keysPerWriter = 4
	// txnEvery makes one write in so many a transaction.
	txnEvery = 5
	// watchGrace is how long the verification waits for the watches of the other
	// members once one watch has reached the end. A member that has just come back
	// needs a moment to catch up; one that has gone again never will.
	watchGrace = 5 * time.Second
)

// finalClient is the [Operation.Client] of the verification.
const finalClient = "final"

// Config says where the cluster is and how hard to work it.
type Config struct {
	// Endpoints returns the client URLs of the members, one each. It is called for
	// every request, from several goroutines, so that members may come and go; it
	// must not block. See [Static]. Required.
	Endpoints func() []string
	// TLS is the client's TLS configuration; nil for plain HTTP.
	TLS *tls.Config
	// Username and Password log in to a cluster with authentication; empty for none.
	Username, Password string

	// RequestTimeout is the deadline of one attempt at one member. Default 1 s, etcd's
	// default election timeout: a member that needs longer is not only slow, it waits
	// for a leader or does not run, and another member may do better. It also limits
	// how exactly stalls are measured: a write that a follower had handed to a leader
	// that then died is lost, and its writer waits out this time.
	RequestTimeout time.Duration
	// Interval is the pace of each writer and each reader: the time from one request
	// to the next if the cluster answers in less. Default 20 ms: short against
	// anything worth measuring, slow enough for two cores and a busy disk.
	Interval time.Duration
	// Writers and Readers are how many of each run at the same time. Default 2 each:
	// more than one, so that a writer stuck at one member does not hide that others
	// get through. A negative number means none.
	Writers, Readers int
	// LateWatches opens the watches when writers and readers have ended; they are told then
	// what happened before. A member that is asked to end waits up to seven seconds for the
	// watches of its clients, so that with them every replacement takes that much longer.
	LateWatches bool
	// Prefix is where the client's keys live. It must be the client's own: Start
	// refuses a prefix under which there are keys. Default "/traffic/" and a random
	// name, so that clients can follow one another on the same cluster.
	Prefix string
}

func (c *Config) complete() error {
	entrance := access{endpoints: c.Endpoints, username: c.Username, password: c.Password}
	if err := entrance.check("traffic"); err != nil {
		return err
	}
	for _, field := range []struct {
		name  string
		value *time.Duration
		other time.Duration
	}{{"RequestTimeout", &c.RequestTimeout, defaultRequestTimeout}, {"Interval", &c.Interval, defaultInterval}} {
		if *field.value < 0 {
			return fmt.Errorf("traffic: %s is %v; give a positive duration, or 0 for %v", field.name,
				*field.value, field.other)
		}
		*field.value = cmp.Or(*field.value, field.other)
	}
	c.Writers = max(0, cmp.Or(c.Writers, defaultWriters))
	c.Readers = max(0, cmp.Or(c.Readers, defaultReaders))
	if c.Prefix == "" {
		c.Prefix = "/traffic/" + strings.ToLower(rand.Text()[:8]) + "/"
	}
	if !strings.HasSuffix(c.Prefix, "/") {
		return fmt.Errorf("traffic: Prefix %q does not end in %q, so it would match keys of others; add it", c.Prefix,
			"/")
	}
	return nil
}

// Client writes and reads until it is stopped.
type Client struct {
	cfg   Config
	pool  *pool
	start time.Time
	first int64 // the first revision that can be the client's

	stopping chan struct{}
	workers  sync.WaitGroup
	stop     sync.Once
	history  *History
	stopErr  error

	watching context.Context //nolint:containedctx // the life of the watches, not of a call
	unwatch  context.CancelFunc
	watches  sync.WaitGroup

	mu         sync.Mutex
	operations []Operation
	progress   Progress
	logs       []*eventLog
}

// Progress is a glance at a running client.
type Progress struct {
	// Acknowledged counts the acknowledged writes.
	Acknowledged int
	// FailedAttempts counts the attempts of writers and readers that were not answered.
	FailedAttempts int
}

// Start waits until a member answers and then writes and reads until [Client.Stop].
// ctx bounds the start alone.
//
// It fails if the configuration is not usable, if no member answers before ctx ends
// (the error says what each one answered last), or if there are keys under the prefix.
func Start(ctx context.Context, cfg Config) (*Client, error) {
	if err := cfg.complete(); err != nil {
		return nil, err
	}
	c := &Client{cfg: cfg, stopping: make(chan struct{})}
	c.watching, c.unwatch = context.WithCancel(context.Background())
	c.pool = newPool(access{endpoints: cfg.Endpoints, tls: cfg.TLS, username: cfg.Username, password: cfg.Password},
		nil)

	base, err := c.readBase(ctx)
	if err == nil && base.Count > 0 {
		err = fmt.Errorf("traffic: there are already %d keys under Prefix %q; give every client a prefix of its own",
			base.Count, cfg.Prefix)
	}
	if err != nil {
		c.unwatch()
		c.pool.close()
		return nil, err
	}
	c.first = base.Header.Revision + 1
	// Only now, because while the cluster comes up no write is waited for.
	c.start = time.Now()

	if !cfg.LateWatches {
		c.watchAll() // First, so that nothing is missed.
	}
	for i := range cfg.Writers {
		c.workers.Go(func() { c.write(i) })
	}
	for i := range cfg.Readers {
		c.workers.Go(func() { c.read(i) })
	}
	return c, nil
}

// watchAll watches at every member that is known, and from now on at those that are named later.
func (c *Client) watchAll() {
	c.pool.mu.Lock()
	c.pool.added = c.watch
	known := make([]*member, 0, len(c.pool.members))
	for _, m := range c.pool.members {
		known = append(known, m)
	}
	c.pool.mu.Unlock()
	slices.SortFunc(known, func(a, b *member) int { return cmp.Compare(a.endpoint, b.endpoint) })
	for _, m := range known {
		c.watch(m)
	}
}

// readBase looks under the prefix until a member answers.
func (c *Client) readBase(ctx context.Context) (*clientv3.GetResponse, error) {
	for {
		problem := errNoMember
		for _, m := range c.pool.current() {
			conn, err := m.connection()
			if err == nil {
				var answer *clientv3.GetResponse
				attempt, cancel := context.WithTimeout(ctx, c.cfg.RequestTimeout)
				answer, err = conn.kv.Get(attempt, c.cfg.Prefix, clientv3.WithPrefix(), clientv3.WithCountOnly())
				cancel()
				if err == nil {
					return answer, nil
				}
			}
			problem = andAt(problem, m.endpoint, err)
		}
		if !wait(ctx, reconnectWait) {
			return nil, fmt.Errorf("traffic: no member answered a linearizable read: %w: %w",
				context.Cause(ctx), problem)
		}
	}
}

// Prefix returns where the client's keys live.
func (c *Client) Prefix() string { return c.cfg.Prefix }

// Progress returns how the client is doing.
func (c *Client) Progress() Progress {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.progress
}

// write is one writer.
func (c *Client) write(index int) {
	name := fmt.Sprintf("writer-%d", index)
	sequence := 0
	known := map[string]string{} // the newest acknowledged value of each key
	c.work(name, index, func(request int, m *member, op *Operation) {
		sequence++
		op.Kind, op.Key = Put, c.key(index, request)
		op.Value = fmt.Sprintf("%d/%d", index, sequence)
		// Only a first attempt: after one without an answer nobody knows what to expect.
		if expect, ok := known[op.Key]; ok && request%txnEvery == 0 && op.Attempt == 0 {
			op.Kind, op.Expect = Txn, expect
		}
		c.attempt(m, op)
		switch {
		case op.Wrote():
			known[op.Key] = op.Value
		case op.readsCurrent() && op.ReadRevision > 0:
			known[op.Key] = op.Read
		}
	})
}

// read is one reader.
func (c *Client) read(index int) {
	random := mathrand.New(mathrand.NewPCG(uint64(index), 0)) // the same keys in every run
	c.work(fmt.Sprintf("reader-%d", index), index, func(request int, m *member, op *Operation) {
		op.Kind = Get
		if request%2 == 0 {
			op.Kind = SerializableGet
		}
		op.Key = c.key(random.IntN(max(1, c.cfg.Writers)), random.IntN(keysPerWriter))
		c.attempt(m, op)
	})
}

func (c *Client) key(writer, number int) string {
	return fmt.Sprintf("%sw%d/k%d", c.cfg.Prefix, writer, number%keysPerWriter)
}

// work makes requests at the configured pace until the client is stopped. Each begins
// at the next member in turn and goes on to the others while attempts fail.
func (c *Client) work(name string, turn int, try func(request int, m *member, op *Operation)) {
	ticker := time.NewTicker(c.cfg.Interval)
	defer ticker.Stop()
	for request := 1; ; request++ {
		select {
		case <-c.stopping:
			return
		case <-ticker.C:
		}
		members := c.pool.current()
		for attempt := range members {
			m := members[(turn+attempt)%len(members)]
			op := Operation{Client: name, Request: request, Attempt: attempt, Member: m.endpoint}
			try(request, m, &op)
			c.record(op)
			if op.Outcome == OK {
				break
			}
		}
		turn++
	}
}

// attempt sends the operation to the member and fills in what came of it.
func (c *Client) attempt(m *member, op *Operation) {
	op.Call = time.Since(c.start)
	defer func() { op.Return = time.Since(c.start) }()
	conn, err := m.connection()
	if err != nil {
		op.Outcome, op.Error = Failed, err.Error()
		return
	}
	ctx, cancel := context.WithTimeout(c.pool.ctx, c.cfg.RequestTimeout)
	defer cancel()
	ctx, sent := trackSent(ctx)
	switch op.Kind {
	case Put:
		var answer *clientv3.PutResponse
		if answer, err = conn.kv.Put(ctx, op.Key, op.Value); err == nil {
			op.Revision = answer.Header.Revision
		}
	case Txn:
		var answer *clientv3.TxnResponse
		answer, err = conn.kv.Txn(ctx).
			If(clientv3.Compare(clientv3.Value(op.Key), "=", op.Expect)).
			Then(clientv3.OpPut(op.Key, op.Value)).
			Else(clientv3.OpGet(op.Key)).Commit()
		if err == nil {
			op.Revision, op.Swapped = answer.Header.Revision, answer.Succeeded
			if !answer.Succeeded {
				for _, kv := range answer.Responses[0].GetResponseRange().Kvs {
					op.Read, op.ReadRevision = string(kv.Value), kv.ModRevision
				}
			}
		}
	case Get, SerializableGet:
		var options []clientv3.OpOption
		if op.Kind == SerializableGet {
			options = append(options, clientv3.WithSerializable())
		}
		var answer *clientv3.GetResponse
		if answer, err = conn.kv.Get(ctx, op.Key, options...); err == nil {
			op.Revision = answer.Header.Revision
			for _, kv := range answer.Kvs {
				op.Read, op.ReadRevision = string(kv.Value), kv.ModRevision
			}
		}
	}
	// A read has no effect that could be unknown.
	op.Outcome = outcomeOf(err, sent.Load() && op.writes())
	if err != nil {
		op.Error = err.Error()
	}
}

func (c *Client) record(op Operation) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.operations = append(c.operations, op)
	switch {
	case op.Wrote():
		c.progress.Acknowledged++
	case op.Outcome != OK:
		c.progress.FailedAttempts++
	}
}

// Stop ends writers and readers and verifies: it writes once more, reads everything
// at every member, and waits for the watches to deliver that last write. A history is
// always returned; it is safe to call Stop more than once.
//
// An error says that the history could not be verified before ctx ended, because no
// member answered or no watch came to the end. ctx must have a deadline: without
// quorum the verification waits for it. Give it several request timeouts. Whether the
// cluster kept its word is not told by the error but by [History.Check].
func (c *Client) Stop(ctx context.Context) (*History, error) {
	c.stop.Do(func() { c.history, c.stopErr = c.finish(ctx) })
	return c.history, c.stopErr
}

func (c *Client) finish(ctx context.Context) (*History, error) {
	close(c.stopping)
	unhook := context.AfterFunc(ctx, c.pool.cancel) // abandons attempts that are under way
	defer unhook()
	c.workers.Wait()

	h := &History{
		Start: c.start, Duration: time.Since(c.start), Prefix: c.cfg.Prefix,
		Writers: c.cfg.Writers, Readers: c.cfg.Readers,
	}
	if c.cfg.LateWatches {
		c.watchAll()
	}
	last, err := c.lastWrite(ctx)
	if err == nil {
		h.Finals, err = c.readEverything(ctx)
	}
	if err == nil {
		err = c.awaitLogs(ctx, last, h.Finals)
	}
	c.unwatch()
	c.pool.cancel()
	c.watches.Wait()
	c.pool.close()

	c.mu.Lock()
	defer c.mu.Unlock()
	h.Operations = c.operations
	slices.SortStableFunc(h.Operations, func(a, b Operation) int { return cmp.Compare(a.Call, b.Call) })
	for _, log := range c.logs {
		h.Logs = append(h.Logs, log.result())
	}
	if err != nil {
		err = fmt.Errorf("traffic: the history of %s could not be verified: %w", c.cfg.Prefix, err)
	}
	return h, err
}

// lastWrite writes a key of its own. Its revision is after every acknowledged write,
// so a watch that has delivered it has delivered them all.
func (c *Client) lastWrite(ctx context.Context) (int64, error) {
	problem := errNoMember
	for request := 1; ; request++ {
		for attempt, m := range c.pool.current() {
			op := Operation{
				Client: finalClient, Request: request, Attempt: attempt, Member: m.endpoint,
				Kind: Put, Key: c.cfg.Prefix + finalClient,
				Value: fmt.Sprintf("%s/%d.%d", finalClient, request, attempt),
			}
			c.attempt(m, &op)
			c.record(op)
			if op.Wrote() {
				return op.Revision, nil
			}
			problem = fmt.Errorf("%s: %s", m.endpoint, op.Error)
		}
		if !wait(ctx, reconnectWait) {
			return 0, fmt.Errorf("no member acknowledged the last write: %w: %w", context.Cause(ctx), problem)
		}
	}
}

// readEverything reads all keys at every member, again and again until one answers.
func (c *Client) readEverything(ctx context.Context) ([]FinalRead, error) {
	for {
		var finals []FinalRead
		problem, answered := errNoMember, 0
		for _, m := range c.pool.current() {
			final := FinalRead{Member: m.endpoint, Call: time.Since(c.start)}
			conn, err := m.connection()
			if err == nil {
				var answer *clientv3.GetResponse
				attempt, cancel := context.WithTimeout(ctx, c.cfg.RequestTimeout)
				answer, err = conn.kv.Get(attempt, c.cfg.Prefix, clientv3.WithPrefix())
				cancel()
				if err == nil {
					final.Revision = answer.Header.Revision
					for _, kv := range answer.Kvs {
						final.Keys = append(final.Keys,
							KeyValue{Key: string(kv.Key), Value: string(kv.Value), Revision: kv.ModRevision})
					}
				}
			}
			final.Return = time.Since(c.start)
			if err != nil {
				final.Error = err.Error()
				problem = andAt(problem, m.endpoint, err)
			} else {
				answered++
			}
			finals = append(finals, final)
		}
		if answered > 0 {
			return finals, nil
		}
		if !wait(ctx, reconnectWait) {
			return finals, fmt.Errorf("no member answered the final read: %w: %w", context.Cause(ctx), problem)
		}
	}
}

// awaitLogs waits until a watch has delivered the last write, and then a while for
// the others. Only members that answered the final read are waited for.
func (c *Client) awaitLogs(ctx context.Context, last int64, finals []FinalRead) error {
	answered := map[string]bool{}
	for _, final := range finals {
		answered[final.Member] = final.Error == ""
	}
	c.mu.Lock()
	logs := slices.Clone(c.logs)
	c.mu.Unlock()
	reached := make(chan struct{}, len(logs))
	awaited := 0
	for _, log := range logs {
		if !answered[log.member()] {
			log.notify(last, func() {})
			continue
		}
		awaited++
		log.notify(last, func() { reached <- struct{}{} })
	}
	var grace <-chan time.Time
	for n := range awaited {
		select {
		case <-reached:
			if grace == nil {
				timer := time.NewTimer(watchGrace)
				defer timer.Stop()
				grace = timer.C
			}
		case <-grace:
			return nil
		case <-ctx.Done():
			if n > 0 {
				return nil
			}
			return fmt.Errorf("no watch delivered the last write, revision %d: %w", last, context.Cause(ctx))
		}
	}
	return nil
}
