package coordinator

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/sirupsen/logrus"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/quorate/quorate/membership"
	"github.com/quorate/quorate/pkg/record"
	"github.com/quorate/quorate/pkg/rollout"
	"github.com/quorate/quorate/pkg/workload"
)

// Coordinator takes part in the election and, while it holds the lock, rolls the
// pods.
type Coordinator struct {
	cfg      Config
	workload *workload.Workload
	members  *membership.Observer
	log      *logrus.Entry
	faults   faults
}

// New checks the configuration and returns a coordinator that [Coordinator.Run]
// starts. Its error names every field that is missing or wrong.
func New(cfg Config) (*Coordinator, error) {
	cfg, err := cfg.complete()
	if err != nil {
		return nil, fmt.Errorf("coordinator: %w", err)
	}
	return &Coordinator{
		cfg:      cfg,
		workload: workload.New(cfg.StatefulSets, cfg.Pods, cfg.StatefulSet, cfg.Names),
		log:      cfg.Log.WithField("statefulset", cfg.Namespace+"/"+cfg.StatefulSet),
	}, nil
}

// Run takes part until ctx ends, and returns nil after the lock was released. Faults
// of etcd and of the Kubernetes API are logged and retried for as long as ctx lasts:
// a sidecar that gives up would only make its pod unready.
func (c *Coordinator) Run(ctx context.Context) error {
	c.members = membership.NewObserver(c.cfg.Dial, c.cfg.Endpoints, c.cfg.ProbeTimeout)
	defer c.members.Close()
	c.preflight(ctx)
	for ctx.Err() == nil {
		t, err := c.campaign(ctx)
		if err != nil {
			if ctx.Err() == nil {
				c.pause(ctx, c.faults.note(c.log, "cannot take part in the election", err))
			}
			continue
		}
		c.faults.clear()
		c.log.Info("this sidecar coordinates now")
		c.lead(ctx, t)
		if err := t.release(ctx); err != nil {
			c.log.WithError(err).Warn("the lock was not released")
		} else {
			c.log.Info("this sidecar does not coordinate any more")
		}
	}
	return nil
}

// preflight reads the workload once, so that a wrong name or a missing permission
// shows in the log at once, not at the first rollout. It does not stop anything: both can
// be mended while we run.
func (c *Coordinator) preflight(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, c.cfg.RequestTimeout)
	defer cancel()
	if _, err := c.workload.Observe(ctx); err != nil && ctx.Err() == nil {
		c.log.WithError(explain(err)).Error("the workload cannot be read; this will be retried when it is needed")
	}
}

func (c *Coordinator) campaign(ctx context.Context) (*tenure, error) {
	// With every member's URL at hand the loss of one, our own among them, does not
	// cost the session; one that hangs already would only swallow requests. Where none
	// serves, all that are known have to do.
	endpoints, _ := c.members.Discover(ctx)
	if len(endpoints) == 0 {
		endpoints = c.members.Endpoints()
	}
	return campaign(ctx, c.cfg.Dial, endpoints, lockPrefix(c.cfg.Namespace, c.cfg.StatefulSet), c.cfg.LockTTL, c.cfg.ProbeTimeout)
}

// lead runs cycles until the session or ctx ends.
func (c *Coordinator) lead(ctx context.Context, t *tenure) {
	ctx, cancel := context.WithCancel(ctx)
	var wg sync.WaitGroup
	defer wg.Wait()
	defer cancel()
	wg.Go(func() {
		select {
		case <-t.done():
			c.log.Warn("the etcd session ended")
			cancel()
		case <-ctx.Done():
		}
	})

	changed := make(chan struct{}, 1)
	trigger := func() {
		select {
		case changed <- struct{}{}:
		default: // A cycle is due already.
		}
	}
	wg.Go(func() { c.workload.WatchSet(ctx, trigger) })

	l := &leader{Coordinator: c, tenure: t, memory: newMemory()}
	l.watchPods = func(ctx context.Context, selector string) {
		wg.Go(func() { c.workload.WatchPods(ctx, selector, trigger) })
	}
	defer l.endRollout()
	// The first cycle of a tenure always looks at everything: a rollout may be under
	// way that this process has not seen begin.
	l.rolling = true
	for ctx.Err() == nil {
		again, err := l.cycle(ctx)
		if errors.Is(err, errNotOurs) {
			c.log.Warn("the lock was taken away")
			return
		}
		if err != nil && ctx.Err() == nil {
			again = c.faults.note(c.log, "this cycle failed", explain(err))
		}
		if err == nil {
			c.faults.clear()
		}
		wait(ctx, again, changed)
	}
}

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
func explain(err error) error {
	switch {
	case apierrors.IsForbidden(err):
		return fmt.Errorf("%w (grant it to the sidecar's ServiceAccount, see deploy/rbac.yaml)", err)
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
	last   string
	logged time.Time
	pause  time.Duration
}

func (f *faults) note(log *logrus.Entry, what string, err error) time.Duration {
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

func (f *faults) clear() { *f = faults{} }

// leader is one tenure's worth of cycles.
type leader struct {
	*Coordinator
	tenure *tenure
	memory *memory

	// rolling is true from the first outdated pod seen until everything has settled.
	// Outside it nothing is probed and no pod is watched.
	rolling   bool
	watchPods func(ctx context.Context, selector string)
	watched   string
	unwatch   context.CancelFunc

	reported string
}

// lookAgain follows an action: its effect is there to be seen, and nothing reports it.
const lookAgain = time.Millisecond

// cycle observes, decides and acts once. It returns after which time to look again
// when nothing is reported meanwhile; zero means that a report is needed.
func (l *leader) cycle(ctx context.Context) (time.Duration, error) {
	begin := time.Now()
	state, selector, err := l.observe(ctx)
	if err != nil {
		return 0, err
	}
	if !l.rolling {
		return 0, nil
	}
	l.follow(ctx, selector)
	d := rollout.Decide(state, l.cfg.Policy)
	l.report(d)
	switch d.Action {
	case rollout.Complete, rollout.Idle:
		l.endRollout()
		return 0, nil
	case rollout.Remove, rollout.MoveLeader:
		return lookAgain, l.act(ctx, begin, state.Etcd, d)
	case rollout.Hold, rollout.Wait:
	}
	return l.cfg.Interval, nil
}

// observe reads everything live. Etcd is asked only during a rollout.
func (l *leader) observe(ctx context.Context) (rollout.State, string, error) {
	reading, cancel := context.WithTimeout(ctx, l.cfg.RequestTimeout)
	defer cancel()
	o, err := l.workload.Observe(reading)
	if err != nil {
		return rollout.State{}, "", err
	}
	state := rollout.State{Set: o.Set, Pods: o.Pods, Self: l.cfg.PodName, FailedTransfers: l.memory.failedTransfers}
	if !l.rolling && !outdated(o) {
		return state, "", nil
	}
	l.rolling = true
	if o.Set.OnDelete {
		lease, err := record.Read(reading, l.cfg.Leases, l.cfg.StatefulSet)
		if err != nil {
			return rollout.State{}, "", err
		}
		state.Controls = record.Controls(lease)
		var merr error
		if state.Etcd, merr = l.members.Observe(ctx); merr != nil {
			l.log.WithError(merr).Debug("no member list")
		}
		if l.cfg.Gates != nil {
			state.Gates = l.cfg.Gates(ctx)
		}
		// Probes that failed because we are ending say nothing about the members.
		if err := ctx.Err(); err != nil {
			return rollout.State{}, "", err
		}
	}
	state.Ages = l.memory.ages(time.Now(), rollout.Assess(state, l.cfg.Policy).Sightings())
	return state, o.Selector, nil
}

// outdated is true when a rollout of ours begins: a cheap look at what Kubernetes
// says, so that an idle cluster costs etcd nothing.
func outdated(o workload.Observation) bool {
	if !o.Set.OnDelete || o.Set.Deleting {
		return false
	}
	if o.Set.ObservedGeneration < o.Set.Generation {
		return true
	}
	for i := range o.Pods {
		if o.Pods[i].Owned && o.Pods[i].Revision != o.Set.UpdateRevision {
			return true
		}
	}
	return false
}

// follow keeps one watch on the pods during a rollout.
func (l *leader) follow(ctx context.Context, selector string) {
	if l.watched == selector && l.unwatch != nil {
		return
	}
	l.unfollow()
	watching, cancel := context.WithCancel(ctx)
	l.watched, l.unwatch = selector, cancel
	l.watchPods(watching, selector)
}

func (l *leader) unfollow() {
	if l.unwatch != nil {
		l.unwatch()
		l.unwatch = nil
	}
}

// endRollout forgets what was seen: from here on nobody looks, so that it could not be
// said of anything that it was seen without a break.
func (l *leader) endRollout() {
	l.rolling = false
	l.memory = newMemory()
	l.unfollow()
	l.members.Close()
}

// act carries out a decision. The deadline covers the time since the observation
// began: a removal never rests on evidence older than MaxEvidenceAge.
func (l *leader) act(ctx context.Context, begin time.Time, m rollout.Membership, d rollout.Decision) error {
	ctx, cancel := context.WithDeadline(ctx, begin.Add(l.cfg.MaxEvidenceAge))
	defer cancel()
	if err := l.tenure.owns(ctx); err != nil {
		return err
	}
	if d.Action == rollout.MoveLeader {
		err := l.members.MoveLeader(ctx, m, d.Transfer.From, d.Transfer.To)
		if err != nil {
			l.memory.failedTransfers[d.Transfer.From]++
			return err
		}
		delete(l.memory.failedTransfers, d.Transfer.From)
		l.log.WithField("from", d.Transfer.FromName).WithField("to", d.Transfer.ToName).Info("leadership moved")
		return nil
	}
	err := l.remove(ctx, d)
	if workload.Blocked(err) {
		l.log.WithError(err).Info("a PodDisruptionBudget refuses the eviction for now")
		return nil
	}
	if workload.Refused(err) {
		// The pod is not the one that was decided on any more: decide anew.
		l.log.WithError(err).Info("the removal was refused")
		return nil
	}
	if err == nil {
		l.log.WithFields(logrus.Fields{"pod": d.Target.Pod, "uid": d.Target.UID}).Info("pod removed")
	}
	return err
}

func (l *leader) remove(ctx context.Context, d rollout.Decision) error {
	if d.Method == rollout.RemoveByEviction {
		return l.workload.Evict(ctx, *d.Target)
	}
	return l.workload.Delete(ctx, *d.Target)
}

// report logs a decision when it differs from the last one in more than its numbers.
func (l *leader) report(d rollout.Decision) {
	target := ""
	if d.Target != nil {
		target = d.Target.Pod
	}
	text := fmt.Sprint(d.Action, d.Rule, d.Guard, target)
	if text == l.reported {
		return
	}
	l.reported = text
	fields := logrus.Fields{"action": d.Action.String(), "rule": string(d.Rule)}
	if a := d.Assessment; a.Voters > 0 {
		fields["serving"], fields["voters"], fields["quorum"] = a.Serving, a.Voters, a.Quorum
	}
	if d.Guard != "" {
		fields["guard"] = string(d.Guard)
	}
	if target != "" {
		fields["target"] = target
	}
	l.log.WithFields(fields).Info(d.Reason())
}
