package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"time"

	appsv1 "k8s.io/api/apps/v1"

	"github.com/quorate/quorate/test/harness"
	"github.com/quorate/quorate/test/harness/druid"
	"github.com/quorate/quorate/test/harness/traffic"
)

// Limits of the steps. They are far beyond what a slow machine needs, and only keep
// the demo from waiting for what will never happen.
const (
	startLimit = 10 * time.Minute
	readyLimit = 3 * time.Minute
	faultLimit = time.Minute
	// rolloutLimit bounds a rollout. Three members take less than a minute.
	rolloutLimit = 5 * time.Minute
	// verifyLimit bounds the final reads; without quorum they would wait for it.
	verifyLimit  = 20 * time.Second
	cleanupLimit = time.Minute
)

// baseline is how many writes are acknowledged before anything is done to the cluster,
// so that the figures show it at peace too.
const baseline = 100

// patience is how long no member has to answer until quorum counts as lost: etcd's
// election timeout, far longer than a planned change of leader takes.
const patience = time.Second

// startDelay is less than a volume and an image usually take, and enough to see what
// the absence of a member means: local processes alone start in half a second, in
// which an etcd without quorum would hardly be noticed. On real nodes a pod takes its own time.
const startDelay = 3 * time.Second

// clusterName is that of the StatefulSet, and of the Etcd.
const clusterName = "etcd-main"

// demo is one run.
type demo struct {
	options
	console *console
	// onTerminal: quorate status can have the terminal.
	onTerminal bool
	dir        string
	built      built

	env *harness.Env
	// druid is the operator, which only the scenario etcdDruid has.
	druid    *druid.Operator
	cluster  *harness.Cluster
	journal  *harness.Journal
	ledger   *harness.Ledger
	client   *traffic.Client
	observer *traffic.Observer
	monitor  *monitor
	status   *status
	fault    *harness.Fault
	outcome  outcome
	// notStopped is what went wrong when everything was stopped.
	notStopped error
}

// run shows everything and cleans up, whatever happens. The outcome is only worth
// something without an error.
func (d *demo) run(ctx context.Context) (_ *outcome, err error) {
	defer func() {
		d.say("stopping everything")
		stopping, cancel := context.WithTimeout(context.WithoutCancel(ctx), cleanupLimit)
		defer cancel()
		d.notStopped = d.close(stopping)
		d.outcome.total = time.Since(d.built.Began)
	}()
	if err := d.bringUp(ctx); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeoutCause(ctx, d.timeout, fmt.Errorf("the demo's --timeout %v has passed", d.timeout))
	defer cancel()
	create := d.createCluster
	if d.scenario == etcdDruid {
		create = d.createEtcd
	}
	if err := create(ctx); err != nil {
		return nil, err
	}
	if err := d.watch(ctx); err != nil {
		return nil, err
	}
	switch d.scenario {
	case sickMember:
		err = d.makeSick(ctx)
	case etcdDruid:
		err = d.makeWay(ctx)
	}
	if err != nil {
		return nil, err
	}
	if err := d.rollOut(ctx); err != nil {
		return nil, err
	}
	d.measure(ctx)
	if interrupted(ctx) {
		return nil, context.Cause(ctx)
	}
	return &d.outcome, nil
}

// interrupted is true if the user ended the demo. A time limit that has passed is an outcome
// and gets a summary.
func interrupted(ctx context.Context) bool { return errors.Is(ctx.Err(), context.Canceled) }

// bringUp starts what the cluster runs on.
func (d *demo) bringUp(ctx context.Context) (err error) {
	ctx, cancel := context.WithTimeoutCause(ctx, startLimit, fmt.Errorf("starting took more than %v", startLimit))
	defer cancel()
	began := time.Now()
	d.env, err = harness.Start(ctx, harness.Options{
		Dir: d.dir, Network: harness.Mode(d.network), Nodes: d.replicas, Binaries: &d.built.Binaries,
		RealNodes: d.nodes == nodesKubelet, Progress: d.console.Progress,
	})
	if err != nil {
		return err
	}
	d.outcome.building, d.outcome.starting = d.built.Took, time.Since(began)
	d.env.Timeline.Follow(func(who, what, line string) {
		if how, ok := shown(who, what); ok {
			d.console.Say(how, line)
		}
	})
	return nil
}

func (d *demo) createCluster(ctx context.Context) (err error) {
	d.say("creating StatefulSet %s: %d replicas, etcd %s, mTLS for clients and peers, "+
		"a sidecar in every pod", clusterName, d.replicas, d.versions().from)
	spec := harness.Spec{
		Name: clusterName, Replicas: d.replicas, EtcdImage: harness.Etcd35,
		Strategy: appsv1.StatefulSetUpdateStrategyType(d.strategy),
	}
	if d.nodes == nodesAgent {
		d.say("every pod waits %v before it starts, as it would for its volume and its image in a cluster", startDelay)
		spec.StartDelay = startDelay
	}
	began := time.Now()
	d.cluster, err = d.env.CreateCluster(ctx, spec)
	if err != nil {
		return err
	}
	d.journal = d.cluster.ReadLogs()
	ready, cancel := context.WithTimeoutCause(ctx, readyLimit, fmt.Errorf("this took more than %v", readyLimit))
	defer cancel()
	if err := d.cluster.WaitReady(ready); err != nil {
		return err
	}
	d.outcome.starting += time.Since(began)
	return nil
}

// watch starts the clients and everything that looks.
func (d *demo) watch(ctx context.Context) (err error) {
	starting, cancel := context.WithTimeoutCause(ctx, faultLimit, fmt.Errorf("this took more than %v", faultLimit))
	defer cancel()
	if d.ledger, err = d.cluster.Watch(context.WithoutCancel(ctx)); err != nil {
		return err
	}
	observing := d.cluster.ObserverConfig()
	observing.Timeout = patience
	if d.observer, err = traffic.StartObserver(starting, observing); err != nil {
		return err
	}
	clients := d.cluster.TrafficConfig()
	clients.LateWatches = true // Each member would wait seven seconds for them at its end.
	if d.client, err = traffic.Start(starting, clients); err != nil {
		return err
	}
	d.monitor = &monitor{cluster: d.cluster, observer: d.observer, note: func(format string, args ...any) {
		d.env.Timeline.Note("etcd", format, args...)
	}}
	d.monitor.start()
	d.say("all pods are Ready; clients write and read at all members from now on")
	return until(starting, "the clients have written", func() bool {
		return d.client.Progress().Acknowledged >= baseline
	})
}

// makeSick takes the first follower down for good.
func (d *demo) makeSick(ctx context.Context) (err error) {
	ctx, cancel := context.WithTimeoutCause(ctx, faultLimit, fmt.Errorf("this took more than %v", faultLimit))
	defer cancel()
	leader, err := d.cluster.Leader(ctx)
	if err != nil {
		return err
	}
	pods := d.cluster.Pods()
	sick := pods[slices.IndexFunc(pods, func(pod string) bool { return pod != leader })]
	d.say("from now on etcd of %s crashes at every start, as with a bug of the old version that only this "+
		"member meets (the demo kills the process, its data stays); the new version will be free of it", sick)
	if d.fault, err = d.cluster.CrashLoop(ctx, sick); err != nil {
		return err
	}
	d.outcome.sick = sick
	return until(ctx, sick+" crash-loops", func() bool {
		return harness.CrashLooping(d.ledger.Pod(sick)) && d.observer.Latest().Serving == d.replicas-1
	})
}

// rollOut changes the image and waits for what follows.
func (d *demo) rollOut(ctx context.Context) (err error) {
	if d.outcome.leader, err = d.cluster.Leader(ctx); err != nil {
		return err
	}
	d.say("etcd changes from %s to %s; %s leads", d.versions().from, d.versions().to, d.outcome.leader)
	changed := time.Now()
	if err := d.change(ctx); err != nil {
		return err
	}
	if d.strategy == onDelete {
		if d.status, err = d.startStatus(ctx); err != nil {
			return err
		}
	}
	limited, cancel := context.WithTimeoutCause(ctx, rolloutLimit, fmt.Errorf("this took more than %v", rolloutLimit))
	defer cancel()
	err = d.cluster.WaitUpdated(limited)
	if err == nil && d.strategy == onDelete {
		last := changed
		if removals := d.ledger.Removals(); len(removals) > 0 {
			last = removals[len(removals)-1].At
		}
		_, err = d.journal.AwaitComplete(limited, last)
	}
	d.outcome.rollout = time.Since(changed)
	if err == nil && d.status != nil {
		err = d.status.complete(limited)
	}
	if err == nil && d.scenario == etcdDruid {
		err = d.handToSidecars(limited)
	}
	if interrupted(ctx) {
		return context.Cause(ctx)
	}
	if err != nil {
		d.outcome.unfinished = err
		d.say("the rollout does not come to its end: %v", err)
	}
	return nil
}

// change asks for the upgrade.
func (d *demo) change(ctx context.Context) error {
	if d.scenario == etcdDruid {
		return d.changeEtcd(ctx)
	}
	return d.cluster.SetImage(ctx, "etcd", harness.Etcd36)
}

// measure ends the clients and fills in the outcome.
func (d *demo) measure(ctx context.Context) {
	d.say("the rollout is over; reading back what was written")
	o := &d.outcome
	o.options, o.pods = d.options, d.cluster.Pods()
	o.removals, o.fewestReady = d.ledger.Removals(), d.ledger.FewestReady()
	observation := d.observer.Stop()
	// The time limit of the demo must not stop the verification.
	verifying, cancel := context.WithTimeout(context.WithoutCancel(ctx), verifyLimit)
	defer cancel()
	unhook := context.AfterFunc(ctx, func() {
		if interrupted(ctx) {
			cancel()
		}
	})
	defer unhook()
	history, err := d.client.Stop(verifying)
	o.verification = err
	o.figures = traffic.NewFigures(history, observation)
	o.memory = d.monitor.stop()
	o.raceDetector = d.env.Binaries.Race()
	if err := d.save("history.json", history); err != nil {
		d.say("%v", err)
	}
	if err := d.save("observation.json", observation); err != nil {
		d.say("%v", err)
	}
}

// save leaves a value beside the logs.
func (d *demo) save(name string, value any) error {
	data, err := json.Marshal(value)
	if err == nil {
		err = os.WriteFile(filepath.Join(d.dir, name), data, 0o644)
	}
	if err != nil {
		return fmt.Errorf("save %s: %w", name, err)
	}
	return nil
}

// close stops whatever runs, in the order in which one part needs another.
func (d *demo) close(ctx context.Context) error {
	if d.status != nil {
		<-d.status.ended // The context of its start has ended.
	}
	if d.fault != nil {
		d.fault.Stop()
	}
	if d.monitor != nil {
		d.monitor.stop()
	}
	if d.observer != nil {
		d.observer.Stop()
	}
	if d.client != nil {
		// Nothing is verified any more: a client that was not stopped yet belongs to
		// a demo that did not come to its end.
		ended, cancel := context.WithCancel(ctx)
		cancel()
		_, _ = d.client.Stop(ended)
	}
	if d.ledger != nil {
		d.ledger.Stop()
	}
	if d.journal != nil {
		d.journal.Stop()
	}
	if d.env != nil {
		return d.env.Close(ctx)
	}
	return nil
}

// until waits for the condition.
func until(ctx context.Context, what string, condition func() bool) error {
	ticker := time.NewTicker(lookEvery / 2)
	defer ticker.Stop()
	for !condition() {
		select {
		case <-ctx.Done():
			return fmt.Errorf("wait until %s: %w", what, context.Cause(ctx))
		case <-ticker.C:
		}
	}
	return nil
}

// say tells what the demo does, in the timeline once there is one.
func (d *demo) say(format string, args ...any) {
	if d.env == nil {
		d.console.Progress(fmt.Sprintf(format, args...))
		return
	}
	d.env.Timeline.Note("demo", format, args...)
}
