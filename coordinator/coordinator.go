package coordinator

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sirupsen/logrus"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/quorate/quorate/internal/membership"
	"github.com/quorate/quorate/internal/record"
	"github.com/quorate/quorate/internal/report"
	"github.com/quorate/quorate/internal/selfupdate"
	"github.com/quorate/quorate/internal/workload"
)

// Coordinator takes part in the election and, while it may, rolls the pods.
type Coordinator struct {
	cfg      Config
	workload *workload.Workload
	log      *logrus.Entry
	faults   faults
	account  account
	gates    gates
	running  atomic.Bool
	place    place
	// changed wakes up whoever leads, or would.
	changed chan struct{}
	// eventFaults are those of the events, which a goroutine of its own writes.
	eventFaults sharedFaults

	// started is the origin of all instants.
	started time.Time
	// self is what the others are told of us; protocol has our identity in the record.
	self     selfupdate.Presence
	protocol record.Config
	known    bool
	// joined: this process has had a session.
	joined bool
	// member is the name of the etcd member in our own pod; empty outside of a member's pod.
	member string
	// record is what was seen of the record. Whoever leads uses it, and nobody else.
	record record.State
	// notPromoted is the revision that we may not write to the StatefulSet's status.
	notPromoted string
	// unfit is how long to stay away from the election the next time.
	unfit time.Duration

	mu        sync.Mutex
	endpoints []string // the configured ones, and those of the members on the last list
}

// New checks the configuration and returns a coordinator that [Coordinator.Run]
// starts. Its error names every field that is missing or wrong.
func New(cfg Config) (*Coordinator, error) {
	cfg, err := cfg.complete()
	if err != nil {
		return nil, fmt.Errorf("coordinator: %w", err)
	}
	c := &Coordinator{
		cfg:       cfg,
		workload:  workload.New(cfg.StatefulSets, cfg.Pods, cfg.StatefulSet, cfg.Names),
		log:       cfg.Log.WithField("statefulset", cfg.Namespace+"/"+cfg.StatefulSet),
		protocol:  record.Config{Duration: cfg.RecordDuration, MaxEvidenceAge: cfg.MaxEvidenceAge, Recovery: record.Recovery},
		endpoints: cfg.Endpoints, gates: newGates(cfg.Gates), changed: make(chan struct{}, 1),
	}
	c.account.log = c.log
	if cfg.Metrics != nil {
		if c.account.metrics, err = report.NewMetrics(cfg.Metrics, cfg.Namespace, cfg.StatefulSet); err != nil {
			return nil, fmt.Errorf("coordinator: Metrics: %w", err)
		}
	}
	c.faults = c.account.faults(report.AtElection)
	if cfg.Events != nil {
		instance := cfg.PodName
		if instance == "" {
			instance, _ = os.Hostname()
		}
		c.account.events = report.NewRecorder(cfg.Events, instance, cfg.RequestTimeout, func(err error) {
			c.eventFaults.note(c.log, "an event could not be written", explain(err))
		})
	}
	return c, nil
}

// Run takes part until ctx ends, and returns nil after the lock was released. Faults
// of etcd and of the Kubernetes API are logged and retried for as long as ctx lasts:
// a sidecar that gives up would only make its pod unready.
func (c *Coordinator) Run(ctx context.Context) error {
	c.started = time.Now()
	defer c.account.metrics.Unregister()
	c.running.Store(true)
	defer c.running.Store(false)
	var events sync.WaitGroup
	defer events.Wait()
	defer c.leaveGates(ctx)()
	writing, stop := context.WithCancel(context.WithoutCancel(ctx))
	defer stop() // Not before the rest, for how it ends is told as well, unless that takes too long.
	defer context.AfterFunc(ctx, func() { wait(writing, 3*releaseTimeout/4, nil); stop() })()
	events.Go(func() { c.account.events.Run(writing) })
	for ctx.Err() == nil && !c.known {
		if err := c.introduce(ctx); err != nil && ctx.Err() == nil {
			// Who cannot read the workload cannot coordinate either: it stays out of the
			// election, so that nobody hands over to it.
			c.pause(ctx, c.faults.note(c.log, "the workload cannot be read", explain(err)))
		}
	}
	c.faults.clear()
	if ctx.Err() != nil {
		return nil
	}
	var candidate sync.WaitGroup
	defer candidate.Wait()
	candidate.Go(func() { c.candidate(ctx) })
	c.coordinate(ctx)
	return nil
}

// leaveGates returns what waits at the end of Run for the host's gates, whose contexts have ended
// by then: as long as Run has left of its time, but not for long.
func (c *Coordinator) leaveGates(ctx context.Context) func() {
	ended := make(chan time.Time, 1)
	context.AfterFunc(ctx, func() { ended <- time.Now() })
	return func() { c.gates.end(c.log, min(releaseTimeout/4, releaseTimeout-time.Since(<-ended))) }
}

// introduce finds out who we are. It also shows a wrong name or a missing permission in
// the log at once, not at the first rollout.
func (c *Coordinator) introduce(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, c.cfg.RequestTimeout)
	defer cancel()
	pod, ok, err := c.workload.Self(ctx, c.cfg.PodName)
	if err != nil {
		return err
	}
	c.known = true
	c.self = selfupdate.Presence{Version: c.cfg.Version}
	if !ok {
		// Outside a member's pod (a Job, a laptop) there is no name that only one process
		// at a time can have.
		c.protocol.Identity = "outside_" + rand.Text()
		text := "this process runs outside the StatefulSet's pods"
		if c.cfg.PodName != "" {
			text += ": " + c.cfg.PodName + " is none of them"
		}
		c.log.WithField("identity", c.protocol.Identity).Info(text)
		return nil
	}
	c.self.Pod, c.self.UID, c.self.Revision = pod.Name, pod.UID, pod.Revision
	c.member = pod.MemberName
	c.protocol.Identity = pod.Name + "_" + pod.UID
	return nil
}

// ownPodGoes is how long a coordinator that has removed its own pod waits for its end: as
// long as a pod has by default.
const ownPodGoes = 30 * time.Second

// longestWithoutSession bounds how long the fallback goes on after the lock works again.
const longestWithoutSession = 2 * time.Second

// join opens a session and says who we are.
func (c *Coordinator) join(ctx context.Context, self selfupdate.Presence) (*session, error) {
	endpoints, nobody, err := c.sessionEndpoints(ctx)
	if err != nil {
		return nil, err
	}
	s, err := openSession(ctx, c.cfg.Dial, endpoints, keysOf(c.cfg.Namespace, c.cfg.StatefulSet), c.cfg.LockTTL,
		min(c.cfg.LockTTL/3, c.cfg.FallbackAfter/2), c.cfg.ProbeTimeout)
	switch {
	case err != nil && nobody != nil:
		// clientv3 keeps trying, and then knows no better reason than that the time ran out.
		return nil, fmt.Errorf("%w (%w)", err, nobody)
	case err != nil:
		return nil, err
	}
	s.leaveHome(c.addresses)
	if err = s.announce(ctx, self); err == nil {
		err = s.tidy(ctx, self, !c.joined)
	}
	if err != nil {
		s.close(ctx)
		return nil, err
	}
	s.addresses, c.joined = c.addresses, true
	return s, nil
}

// sessionEndpoints returns where a session is to live: at the member of our own pod, if that
// serves. Where no member is known to serve, nobody says why. The error is that of ctx.
//
// A session holds streams as long as it lives, and a member that is asked to end waits for
// the streams of its clients, for up to seven seconds (etcd's request timeout). At home they
// end together with the member. Anywhere else our session would keep another pod down for
// longer than it needs. So a sidecar that has just started, as after a replacement of its
// pod, gives its own member the time that a lost lock costs to come up, while others serve.
//
// Otherwise every member that serves will do, so that the loss of one does not cost the
// session; one that hangs already would only swallow requests. Where none serves, all that
// are known have to do.
func (c *Coordinator) sessionEndpoints(ctx context.Context) (endpoints []string, nobody, err error) {
	for pause := firstOwnLook; ; pause = min(2*pause, c.cfg.Interval) {
		members := c.observer()
		serving, unlisted := members.Discover(ctx)
		c.remember(members.MemberURLs())
		endpoints = nil
		for i := range serving {
			if c.member != "" && serving[i].Name == c.member {
				return serving[i].ClientURLs, nil, nil
			}
			endpoints = append(endpoints, serving[i].ClientURLs...)
		}
		age := time.Since(c.started)
		switch {
		case c.member != "" && unlisted != nil && age < listPatience:
			// Where our own member is the only one configured there is nobody else to ask
			// while it starts.
		case len(endpoints) == 0:
			if unlisted == nil {
				unlisted = errors.New("no voter on the member list answers a read")
			}
			return c.addresses(), unlisted, nil
		case c.member == "":
			return endpoints, nil, nil
		case age > c.cfg.LockTTL:
			c.log.WithField("member", c.member).Info("the member of this pod does not serve; the session lives at the others")
			return endpoints, nil, nil
		}
		c.pause(ctx, pause)
		if ctx.Err() != nil {
			return nil, nil, ctx.Err()
		}
	}
}

const (
	// firstOwnLook is how soon a sidecar looks again whether its own member serves: a member
	// that has little to load does within half a second.
	firstOwnLook = 100 * time.Millisecond
	// listPatience is how long a sidecar that has just started waits for the first member list
	// before it takes its endpoints as they are. It is short, because without a session the
	// fallback begins, and quorum may wait for that.
	listPatience = time.Second
)

// addressesEvery is how often a sidecar that idles asks where the members are: seldom,
// because it is for the day on which quorum is lost and nobody can be asked any more.
const addressesEvery = time.Minute

// keepAddresses keeps the addresses of the members fresh for as long as a session is in use:
// when it began, members may not have been started yet. It returns a function that ends
// it.
func (c *Coordinator) keepAddresses(ctx context.Context, s *session) (stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	var following sync.WaitGroup
	following.Go(func() {
		for every := c.cfg.LockTTL; ; every = addressesEvery {
			c.pause(ctx, every)
			if ctx.Err() != nil {
				return
			}
			asking, done := s.bounded(ctx)
			list, err := s.client.MemberList(asking)
			done()
			if err != nil {
				continue // What is known stays.
			}
			var urls []string
			for _, m := range list.Members {
				urls = append(urls, m.ClientURLs...)
			}
			c.remember(urls)
		}
	})
	return func() { cancel(); following.Wait() }
}

// observer asks the configured endpoints and the members of the last list: with quorum
// lost, the configured one may be of a member that is gone.
func (c *Coordinator) observer() *membership.Observer {
	o := membership.NewObserver(c.cfg.Dial, c.addresses(), c.cfg.ProbeTimeout)
	o.Probed = c.account.metrics.Probe
	return o
}

func (c *Coordinator) addresses() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.Clone(c.endpoints)
}

func (c *Coordinator) remember(urls []string) {
	if len(urls) == 0 {
		return
	}
	for _, e := range c.cfg.Endpoints {
		if !slices.Contains(urls, e) {
			urls = append(urls, e)
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.endpoints = urls
}

// Running is true from the begin of [Coordinator.Run] to its end. It is all that a liveness
// probe should ask: whatever else fails is retried, and a restart would only cost the pod its
// readiness.
func (c *Coordinator) Running() bool { return c.running.Load() }

// coordinate leads whenever it is our turn: with the lock, or while etcd cannot say whose it is.
func (c *Coordinator) coordinate(ctx context.Context) {
	var rested time.Time // Until then no standing in.
	for ctx.Err() == nil {
		if c.place.owned() == nil {
			if left := max(c.place.silent(c.cfg.FallbackAfter), time.Until(rested)); left > 0 {
				wait(ctx, left, c.changed)
				continue
			}
		}
		l := c.leader()
		l.lead(ctx)
		if c.after(ctx, l); l.unfit != "" {
			rested = time.Now().Add(c.cfg.RecordDuration)
		}
	}
	c.after(ctx, c.leader()) // The lock may have become ours meanwhile.
}

// after gives the lock back when somebody else shall have it.
func (c *Coordinator) after(ctx context.Context, l *leader) {
	if !l.over && ctx.Err() == nil {
		return
	}
	var away time.Time
	switch {
	case l.unfit != "":
		if c.place.owned() == nil {
			c.log.Warnf("the record is given back, for another sidecar to try without the lock: %s", l.unfit)
			return
		}
		c.unfit = min(max(2*c.unfit, l.unfitFor), longestUnfit)
		c.log.WithField("for", c.unfit.String()).Warnf("unfit: %s", l.unfit)
		c.account.events.Fault(l.unfit)
		away = time.Now().Add(c.unfit)
	case l.leaving:
		away = time.Now().Add(ownPodGoes)
	}
	t := c.place.resign(l.unfit, away, ctx.Err() != nil)
	if t == nil {
		return
	}
	var err error
	if l.heir != nil {
		err = t.handOver(ctx, *l.heir)
	} else {
		err = t.release(ctx)
	}
	switch {
	case err != nil:
		c.log.WithError(err).Warn("the lock was not released")
	case l.coordinated:
		c.log.Info("this sidecar does not coordinate any more")
	}
	if l.leaving { // Until then no standing in either.
		c.pause(ctx, ownPodGoes)
	}
}

// now is an instant on our own monotonic clock.
func (c *Coordinator) now() record.Instant { return time.Since(c.started) }

// pause waits for d or until ctx ends.
func (c *Coordinator) pause(ctx context.Context, d time.Duration) { wait(ctx, d, nil) }

// wait ends after d (never, if d is zero), when something changed, or with ctx.
func wait(ctx context.Context, d time.Duration, changed <-chan struct{}) {
	var timer <-chan time.Time
	if d > 0 {
		t := time.NewTimer(d)
		defer t.Stop()
		timer = t.C
	}
	select {
	case <-ctx.Done():
	case <-timer:
	case <-changed:
	}
}

// explain adds to an error from Kubernetes what an operator can do about it.
func explain(err error) error { return explainFor(err, "deploy/base/role.yaml") }

// explainFor is explain where another file of ours grants what is needed.
func explainFor(err error, grantedBy string) error {
	switch {
	case apierrors.IsForbidden(err):
		return fmt.Errorf("%w (grant it to the sidecar's ServiceAccount, see %s)", err, grantedBy)
	case apierrors.IsUnauthorized(err):
		return fmt.Errorf("%w (the API server does not accept the ServiceAccount token)", err)
	case apierrors.IsNotFound(err):
		return fmt.Errorf("%w (check --namespace and --statefulset)", err)
	}
	return err
}

// Pauses after faults in a row: quick at first, because most faults pass, and never
// so long that an operator wonders.
const (
	firstPause   = 500 * time.Millisecond
	longestPause = 10 * time.Second
	// repeatEvery is how often the same fault is logged again.
	repeatEvery = time.Minute
)

// faults logs each fault when it first occurs and then once a minute, and lets the
// pauses between retries grow.
type faults struct {
	row    int
	last   string
	logged time.Time
	pause  time.Duration

	// account tells of it, as of what happens at at.
	account *account
	at      string
}

func (f *faults) note(log *logrus.Entry, what string, err error) time.Duration {
	f.row++
	f.account.fails(f.at, what, err, f.row)
	f.pause = min(max(2*f.pause, firstPause), longestPause)
	text := what + err.Error()
	if errors.Is(err, context.DeadlineExceeded) {
		text = what // Its wording varies; it is the same fault.
	}
	if now := time.Now(); text != f.last || now.Sub(f.logged) >= repeatEvery {
		f.last, f.logged = text, now
		log.WithError(err).Warnf("%s; retrying", what)
	}
	return f.pause
}

func (f *faults) clear() {
	*f = faults{account: f.account, at: f.at}
	f.account.works(f.at)
}

// sharedFaults are those that more than one goroutine notes. Nobody waits for what failed.
type sharedFaults struct {
	mu sync.Mutex
	faults
}

func (f *sharedFaults) note(log *logrus.Entry, what string, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.faults.note(log, what, err)
}
