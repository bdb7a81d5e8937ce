package bench

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"sync"
	"time"

	appsv1 "k8s.io/api/apps/v1"

	"github.com/quorate/quorate/test/bench/cost"
	"github.com/quorate/quorate/test/bench/result"
	"github.com/quorate/quorate/test/harness"
	"github.com/quorate/quorate/test/harness/traffic"
)

const (
	// StartDelay is how long a pod takes before its containers start: less than a volume and an
	// image take in a cluster, and long against everything else that is measured.
	StartDelay = 2 * time.Second
	// ReadinessPeriod is the harness's.
	ReadinessPeriod = time.Second
	// before and after are how long clients write before the change, so that they show the
	// cluster at peace, and after the end.
	before = 1500 * time.Millisecond
	after  = time.Second

	// calm is for how long nothing must have been asked of the API server, so that a rollout's requests are over.
	calm = 3 * time.Second

	// prepareLimit bounds everything before the change, verifyLimit the final reads, which
	// without quorum would wait for it, and clearLimit the end of the cluster.
	prepareLimit = 3 * time.Minute
	verifyLimit  = 15 * time.Second
	clearLimit   = time.Minute

	// messagesEvery is how often members are asked what they have received, in a trial that
	// counts it.
	messagesEvery = 100 * time.Millisecond
)

// stage is a cluster on which a case is played.
type stage struct {
	env      *harness.Env
	cluster  *harness.Cluster
	ledger   *harness.Ledger
	budget   *harness.Budget
	client   *traffic.Client
	observer *traffic.Observer
	faults   []*harness.Fault
	// holder is the pod whose sidecar held the record when its node was lost.
	holder string
}

func (s *stage) pod(ordinal int) string { return s.cluster.Pods()[ordinal] }

// until waits for the condition.
func (s *stage) until(ctx context.Context, what string, condition func() bool) error {
	for !condition() {
		if err := harness.Pass(ctx, 50*time.Millisecond); err != nil {
			return fmt.Errorf("wait until %s: %w", what, err)
		}
	}
	return nil
}

// retry does something until it succeeds.
func (s *stage) retry(ctx context.Context, do func(context.Context) error) error {
	for {
		attempt, cancel := context.WithTimeout(ctx, 2*time.Second)
		err := do(attempt)
		cancel()
		if err == nil {
			return nil
		}
		if passed := harness.Pass(ctx, 500*time.Millisecond); passed != nil {
			return errors.Join(passed, err)
		}
	}
}

// breakEtcd lets a pod's etcd crash at every start until the pod is replaced.
func (s *stage) breakEtcd(ctx context.Context, ordinal int) error {
	fault, err := s.cluster.CrashLoop(ctx, s.pod(ordinal))
	if err == nil {
		s.faults = append(s.faults, fault)
	}
	return err
}

// crashLoop is the same, and waits until the kubelet backs off.
func (s *stage) crashLoop(ctx context.Context, ordinal int) error {
	if err := s.breakEtcd(ctx, ordinal); err != nil {
		return err
	}
	return s.until(ctx, s.pod(ordinal)+" crash-loops", func() bool {
		return harness.CrashLooping(s.ledger.Pod(s.pod(ordinal)))
	})
}

// lab is what trials are done in, for one set of feature gates.
type lab interface {
	env(ctx context.Context, gates map[string]bool) (*harness.Env, error)
	// drop ends the environment with these gates; the next trial gets a new one.
	drop(ctx context.Context, gates map[string]bool) error
}

// do does one trial. An error ends the run; what goes wrong with the trial itself is in its
// Trouble.
func (p planned) do(ctx context.Context, l lab) (result.Trial, error) {
	t := result.Trial{
		Case: p.name, Arm: p.arm, Round: p.round, Position: p.position, Members: p.setting.members, Leader: -1,
		Limit: p.setting.limit.Seconds(), FirstAction: -1, Note: p.setting.note(p.name),
	}
	env, err := l.env(ctx, arms[p.arm].gates)
	if err != nil {
		return t, err
	}
	s, created := &stage{env: env}, time.Now()
	if err := s.play(ctx, p, &t); err != nil {
		t.Trouble = err.Error()
	}
	if ctx.Err() != nil {
		return t, context.Cause(ctx) // The environment goes, and everything in it.
	}
	clearing, cancel := context.WithTimeout(ctx, clearLimit)
	defer cancel()
	err = s.clear(clearing)
	t.Took = time.Since(created).Seconds()
	if err != nil {
		// What was measured stands; what is left must not run beside the next trial.
		return t, l.drop(ctx, arms[p.arm].gates)
	}
	return t, nil
}

// play creates the cluster, plays the case on it, and fills in the trial.
func (s *stage) play(ctx context.Context, p planned, t *result.Trial) (err error) {
	defer func() {
		for _, f := range s.faults {
			f.Stop()
		}
		if s.observer != nil {
			s.observer.Stop()
		}
		if s.client != nil {
			ended, cancel := context.WithCancel(ctx)
			cancel()
			_, _ = s.client.Stop(ended)
		}
		if s.ledger != nil {
			s.ledger.Stop()
		}
		if s.budget != nil {
			s.budget.Stop()
		}
	}()
	preparing, cancel := context.WithTimeoutCause(ctx, prepareLimit, fmt.Errorf("this took more than %v", prepareLimit))
	defer cancel()
	if err := s.prepare(preparing, p, t); err != nil {
		return fmt.Errorf("before the change: %w", err)
	}
	if err := harness.Pass(ctx, p.setting.idles); err != nil {
		return err
	}

	var messages *cost.Messages
	if p.setting.quiet {
		if messages, err = cost.CountMessages(ctx, s.cluster, messagesEvery); err != nil {
			return err
		}
		defer messages.Stop()
	}
	if p.setting.atOnce != nil {
		if err := p.setting.atOnce(ctx, s); err != nil {
			return fmt.Errorf("before the change: %w", err)
		}
	}
	write, end, err := synced(s.env.VolumesDir())
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, end()) }()
	still := watchMachine(ctx, write)
	defer func() { _, _ = still() }()
	sampler := cost.StartSampler(ctx, s.env, s.cluster, "backup-restore")
	defer sampler.Stop()
	began, asked := s.cluster.Asking()
	t.Began = began
	if err := s.change(ctx, p, t); err != nil {
		return err
	}
	finish := time.Now()
	t.Usage = sampler.Stop()
	if messages != nil {
		t.Etcd = messages.Stop()
	}
	if err := harness.Pass(ctx, after); err != nil {
		return err
	}
	if p.setting.quiet {
		// What tells of the end is a part of what a rollout asks.
		if err := s.cluster.WaitCalm(ctx, calm); err != nil {
			return err
		}
	}
	if t.StoodStill, err = still(); err != nil {
		return fmt.Errorf("see whether the machine stands still: %w", err)
	}
	all := asked()
	t.Requests, t.Bytes = all.Requests, int64(all.Bytes)
	audited, err := s.cluster.Audited(t.Began)
	if err != nil {
		return err
	}
	t.Audited = (*result.Audited)(&audited)
	measured := measurement{trial: t, began: t.Began, finish: finish,
		oneAtATime: result.ArmOf(p.arm).OneAtATime, evicts: arms[p.arm].evicts, budget: s.budget.Steps()}
	if !p.setting.quiet {
		measured.observation = s.observer.Stop()
		verifying, cancel := context.WithTimeout(ctx, verifyLimit)
		defer cancel()
		// Without quorum nothing can be verified, and the figures say so.
		measured.history, _ = s.client.Stop(verifying)
	}
	if measured.elections, err = electionsOf(s.env, s.cluster.Pods()); err != nil {
		return err
	}
	measured.removals, measured.returns = s.ledger.Removals(), s.ledger.Returns()
	t.FewestReady = s.ledger.FewestReadySince(t.Began)
	measured.fill()
	return nil
}

// prepare brings the cluster to where the template changes.
func (s *stage) prepare(ctx context.Context, p planned, t *result.Trial) (err error) {
	spec := harness.Spec{Name: fmt.Sprintf("t%d", p.position), Replicas: p.setting.members, StartDelay: StartDelay}
	arms[p.arm].configure(&spec, p.setting.members)
	if p.setting.spec != nil {
		p.setting.spec(&spec)
	}
	ordered := spec.Ordered
	spec.Ordered = false
	if s.cluster, err = s.env.CreateCluster(ctx, spec); err != nil {
		return err
	}
	if err := s.cluster.WaitReady(ctx); err != nil {
		return err
	}
	if ordered {
		if err := s.cluster.Recreate(ctx, appsv1.OrderedReadyPodManagement); err != nil {
			return err
		}
	}
	if _, err := s.cluster.LockOwner(ctx); err != nil {
		return err
	}
	leader := s.pod(p.leader)
	if err := s.cluster.MoveLeader(ctx, leader); err != nil {
		return err
	}
	if s.ledger, err = s.cluster.Watch(context.WithoutCancel(ctx)); err != nil {
		return err
	}
	if s.budget, err = s.cluster.WatchBudget(context.WithoutCancel(ctx)); err != nil {
		return err
	}
	if !p.setting.quiet {
		if s.observer, err = traffic.StartObserver(ctx, s.cluster.ObserverConfig()); err != nil {
			return err
		}
		clients := s.cluster.TrafficConfig()
		clients.LateWatches = !p.setting.watched
		if s.client, err = traffic.Start(ctx, clients); err != nil {
			return err
		}
	}
	if p.setting.prepare != nil {
		if err := p.setting.prepare(ctx, s); err != nil {
			return err
		}
	}
	if err := harness.Pass(ctx, before); err != nil {
		return err
	}
	if p.setting.quiet {
		t.Leader = p.leader
		return nil
	}
	last := s.observer.Latest()
	for _, probe := range last.Probes {
		if name := probe.Names[last.Leader]; name != "" {
			t.Leader = slices.Index(s.cluster.Pods(), name)
		}
	}
	if p.setting.everyLeader && t.Leader != p.leader {
		return fmt.Errorf("%s was to lead, and ordinal %d does", leader, t.Leader)
	}
	return nil
}

// change changes the template and watches until all pods are updated, or until the trial's
// limit.
func (s *stage) change(ctx context.Context, p planned, t *result.Trial) error {
	limited, cancel := context.WithDeadline(ctx, t.Began.Add(p.setting.limit))
	defer cancel()
	var meanwhile error
	var wait sync.WaitGroup
	if p.setting.meanwhile != nil {
		wait.Go(func() {
			if err := p.setting.meanwhile(limited, s); err != nil && limited.Err() == nil {
				meanwhile = err
			}
		})
	}
	var err error
	if p.setting.sidecar != "" {
		err = s.cluster.SetImage(limited, "backup-restore", p.setting.sidecar)
	} else {
		image := p.setting.image
		if image == "" {
			image = harness.Etcd36
		}
		err = s.cluster.SetImage(limited, "etcd", image)
	}
	if err == nil {
		if updated := s.cluster.WaitUpdated(limited); updated == nil {
			t.Completed = true
		} else if limited.Err() == nil {
			err = updated
		}
	}
	cancel()
	wait.Wait()
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return errors.Join(err, meanwhile)
}

// clear removes the cluster and its data.
func (s *stage) clear(ctx context.Context) error {
	if s.cluster == nil {
		return nil
	}
	for _, pod := range s.cluster.Pods() {
		// A member without quorum takes long to end by itself.
		_ = s.cluster.Kill(pod, "etcd")
	}
	if err := s.cluster.Delete(ctx); err != nil {
		return err
	}
	var errs []error
	for _, pod := range s.cluster.Pods() {
		errs = append(errs, os.RemoveAll(s.env.Nodes.ClaimDir(harness.Namespace, s.cluster.Spec.Name+"-"+pod)))
	}
	return errors.Join(errs...)
}
