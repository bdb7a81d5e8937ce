package coordinator

import (
	"context"
	"crypto/rand"
	"fmt"
	"os"
	"sync"
	"time"

	"github.com/quorate/quorate/coordinator/election"
	"github.com/quorate/quorate/internal/gates"
	"github.com/quorate/quorate/internal/record"
	"github.com/quorate/quorate/internal/report"
	"github.com/quorate/quorate/selfupdate"
)

// New checks the configuration and returns a coordinator that [Coordinator.Run]
// starts. Its error names every field that is missing or wrong.
func New(cfg Config) (*Coordinator, error) {
	cfg, err := cfg.complete()
	if err != nil {
		return nil, fmt.Errorf("coordinator: %w", err)
	}
	c := &Coordinator{
		cfg: cfg,
		log: cfg.Log.WithField("statefulset", cfg.Namespace+"/"+cfg.StatefulSet),
		protocol: record.Config{Duration: cfg.RecordDuration, MaxEvidenceAge: cfg.MaxEvidenceAge,
			Recovery: record.Recovery},
		endpoints: cfg.Endpoints, changed: make(chan struct{}, 1), looks: make(chan struct{}, 1),
	}
	var all []gates.Gate
	for _, g := range cfg.Gates {
		all = append(all, gates.Gate(g))
	}
	// A look waits for them until the next one could begin. Mostly that passes while the Kubernetes API is asked.
	c.gates = gates.New(all, leastRest, c.trigger)
	c.journal.Log = c.log
	c.workload = c.newView()
	if cfg.Metrics != nil {
		if c.journal.Metrics, err = report.NewMetrics(cfg.Metrics, cfg.Namespace, cfg.StatefulSet,
			cfg.Version); err != nil {
			return nil, fmt.Errorf("coordinator: Metrics: %w", err)
		}
	}
	c.faults = c.faultsAt(report.AtElection)
	if cfg.Events != nil {
		instance := cfg.PodName
		if instance == "" {
			instance, _ = os.Hostname()
		}
		c.journal.Events = report.NewRecorder(cfg.Events, instance, cfg.RequestTimeout, func(err error) {
			c.eventFaults.note(c.log, "an event could not be written", explain(err))
		})
	}
	return c, nil
}

// Run takes part until ctx ends, and returns nil after the lock has been released. Faults of
// etcd and of the Kubernetes API are logged and retried for as long as ctx lasts: a sidecar
// that gives up would only make its pod unready.
func (c *Coordinator) Run(ctx context.Context) error {
	c.started = time.Now()
	defer c.journal.Metrics.Unregister()
	c.running.Store(true)
	defer c.running.Store(false)
	var events sync.WaitGroup
	defer events.Wait()
	defer c.leaveGates(ctx)()
	writing, stop := context.WithCancel(context.WithoutCancel(ctx))
	defer stop() // Last, because events also tell how the rest ended, unless that takes too long.
	defer context.AfterFunc(ctx, func() { wait(writing, 3*releaseTimeout/4, nil); stop() })()
	events.Go(func() { c.journal.Events.Run(writing) })
	for ctx.Err() == nil && !c.known {
		if err := c.introduce(ctx); err != nil && ctx.Err() == nil {
			// A sidecar that cannot read the workload cannot coordinate either. It stays out of
			// the election, so that nobody hands over to it.
			c.pause(ctx, c.faults.note(c.log, "the workload cannot be read", explain(err)))
		}
	}
	c.faults.clear()
	if ctx.Err() != nil {
		return nil
	}
	candidate := c.newCandidate()
	c.election = candidate
	var running sync.WaitGroup
	defer running.Wait()
	running.Go(func() { candidate.Run(ctx) })
	c.coordinate(ctx)
	return nil
}

// leaveGates returns what waits at the end of Run for the host's gates, whose contexts have ended
// by then: as long as Run has left of its time, but not for long.
func (c *Coordinator) leaveGates(ctx context.Context) func() {
	ended := make(chan time.Time, 1)
	context.AfterFunc(ctx, func() { ended <- time.Now() })
	return func() { c.gates.End(c.log, min(releaseTimeout/4, releaseTimeout-time.Since(<-ended))) }
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
	c.self = selfupdate.Presence{Version: c.cfg.Version, Schema: record.Newest}
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

// Running is true from the beginning of [Coordinator.Run] to its end. A liveness probe should
// ask for nothing else: all other failures are retried, and a restart would only cost the pod
// its readiness.
func (c *Coordinator) Running() bool { return c.running.Load() }

// coordinate does the work whenever it is our turn: with the lock, or while etcd cannot say whose it is.
func (c *Coordinator) coordinate(ctx context.Context) {
	var rested time.Time // No fallback until then.
	for ctx.Err() == nil {
		if left := c.left(rested); left > 0 && c.heir.expected() <= 0 {
			wait(ctx, left, c.changed)
			continue
		}
		l := c.newLoop()
		l.run(ctx, rested)
		if c.after(ctx, l); l.leave.why != "" {
			rested = time.Now().Add(c.cfg.RecordDuration)
		}
	}
	c.after(ctx, c.newLoop()) // The lock may have become ours meanwhile.
}

// after gives the lock back when another sidecar is to have it.
func (c *Coordinator) after(ctx context.Context, l *loop) {
	if !l.leave.over && ctx.Err() == nil {
		return
	}
	resigns := election.Resignation{Heir: l.leave.heir, Unfit: l.leave.why, Over: ctx.Err() != nil}
	switch {
	case l.leave.why != "":
		if !c.owned() {
			c.log.Warnf("the record is given back, for another sidecar to try without the lock: %s", l.leave.why)
			return
		}
		c.unfit = min(max(2*c.unfit, l.leave.least), longestUnfit)
		c.log.WithField("for", c.unfit.String()).Warnf("unfit: %s", l.leave.why)
		c.journal.Events.Fault(l.leave.why)
		resigns.Until = time.Now().Add(c.unfit)
	case l.leave.leaving:
		resigns.Until = time.Now().Add(ownPodGoes)
	}
	had, err := c.election.Resign(ctx, resigns)
	switch {
	case !had:
		return
	case err != nil:
		c.log.WithError(err).Warn("the lock was not released")
	case l.coordinated:
		c.log.Info("this sidecar does not coordinate any more")
	}
	if l.leave.leaving { // No fallback until then either.
		c.pause(ctx, ownPodGoes)
	}
}
