package cost

import (
	"context"
	"errors"
	"fmt"
	"time"

	appsv1 "k8s.io/api/apps/v1"

	"github.com/quorate/quorate/test/bench/result"
	"github.com/quorate/quorate/test/harness"
)

const (
	// hostsLimit bounds the start of the clusters. Those of etcd-druid take two minutes.
	hostsLimit = 8 * time.Minute
	// hostsIdle is for how long they are watched while nothing happens.
	hostsIdle = 3 * time.Minute
	// hostLimit bounds a rollout of etcd-druid's, whose pods take half a minute each.
	hostLimit = 6 * time.Minute
)

// Hosts measures etcd-backup-restore in pods of the real etcd-druid, without Quorate and with it inside, and a sidecar
// of Quorate alone: the sidecars of three members each, idle at the same time, and then one after another in a
// rollout. Without Quorate, the StatefulSet controller rolls the pods.
//
// The environment has to have the hosts. It gets etcd-druid and what lets Quorate roll its pods, so it is for nothing
// else, and all of it goes when it is closed.
func Hosts(ctx context.Context, o Options) (hosts []result.Host, err error) {
	all, err := o.startHosts(ctx)
	if err != nil {
		return nil, fmt.Errorf("hosts: %w", err)
	}
	if err := harness.Pass(ctx, harness.Beginning); err != nil {
		return nil, err
	}
	o.say("hosts: %s in which nothing happens", hostsIdle)
	var watches []*hostWatch
	for _, h := range all {
		w, err := h.watch(ctx, o, "idle", time.Second)
		if err != nil {
			return nil, err
		}
		defer w.end()
		watches = append(watches, w)
	}
	if err := harness.Pass(ctx, hostsIdle); err != nil {
		return nil, err
	}
	for _, w := range watches {
		hosts = append(hosts, w.end())
	}
	for _, h := range all {
		w, err := h.watch(ctx, o, "rollout", samplePeriod)
		if err != nil {
			return hosts, err
		}
		err = h.roll(ctx)
		rolled := w.end()
		if err != nil {
			return hosts, fmt.Errorf("hosts: %s: %w", h.program, err)
		}
		hosts = append(hosts, rolled)
	}
	return hosts, nil
}

// hostCluster is a cluster with a program in its sidecars.
type hostCluster struct {
	*harness.Cluster
	program string
	// change changes the template of the pods.
	change func(context.Context) error
	// quorate is true where Quorate rolls the pods, and not the StatefulSet controller.
	quorate bool
}

// startHosts creates the clusters, and returns when somebody owns each lock.
func (o Options) startHosts(ctx context.Context) ([]hostCluster, error) {
	if o.Env == nil {
		return nil, errors.New("the field Env is missing; start a harness with the hosts first")
	}
	ctx, cancel := context.WithTimeout(ctx, hostsLimit)
	defer cancel()
	operator, err := o.Env.StartDruid(ctx)
	if err != nil {
		return nil, err
	}
	// With the feature gate, what etcd-druid renders is the release that the drop-in is made of.
	if err := operator.Restart(ctx, true); err != nil {
		return nil, err
	}
	if err := o.Env.InstallPolicy(ctx); err != nil {
		return nil, err
	}
	spec := harness.Spec{Name: "alone", Replicas: members}
	alone, err := o.Env.CreateEtcd(ctx, spec)
	if err != nil {
		return nil, err
	}
	spec.Name, spec.SidecarImage = "inside", harness.DropIn
	inside, err := o.Env.CreateEtcd(ctx, spec)
	if err != nil {
		return nil, err
	}
	if err := inside.Grant(ctx); err != nil {
		return nil, err
	}
	standalone, err := o.Env.CreateCluster(ctx, harness.Spec{Name: "standalone", Replicas: members,
		SidecarArgs: []string{listen}})
	if err != nil {
		return nil, err
	}
	resources := func(c *harness.Cluster) func(context.Context) error {
		return func(ctx context.Context) error {
			return c.ChangeEtcd(ctx, "change the resources of etcd",
				`{"spec":{"etcd":{"resources":{"requests":{"cpu":"60m","memory":"128Mi"}}}}}`)
		}
	}
	all := []hostCluster{
		{alone, result.HostAlone, resources(alone), false},
		{inside, result.HostQuorate, resources(inside), true},
		{standalone, result.HostStandalone, func(ctx context.Context) error {
			return standalone.Update(ctx, "annotate the pods", func(set *appsv1.StatefulSet) {
				set.Spec.Template.Annotations = map[string]string{"changed": "once"}
			})
		}, true},
	}
	o.say("hosts: waiting for the pods")
	for _, h := range all {
		if err := h.WaitReady(ctx); err != nil {
			return nil, err
		}
		if h.quorate {
			if _, err := h.LockOwner(ctx); err != nil {
				return nil, err
			}
		}
	}
	return all, nil
}

// roll carries out a rollout, and returns when whoever coordinated it has told its end.
func (h hostCluster) roll(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, hostLimit)
	defer cancel()
	if !h.quorate {
		return errors.Join(h.change(ctx), h.WaitUpdated(ctx))
	}
	record, err := h.WatchRecord(ctx)
	if err != nil {
		return err
	}
	defer record.Stop()
	began := time.Now()
	if err := errors.Join(h.change(ctx), h.WaitUpdated(ctx)); err != nil {
		return err
	}
	return awaitEnd(ctx, record, began)
}

// hostWatch follows the sidecars of a cluster.
type hostWatch struct {
	say      func(format string, args ...any)
	host     result.Host
	began    time.Time
	asked    func() harness.Asked
	messages *Messages
	sampler  *Sampler
	ended    bool
}

// watch begins to count what the sidecars need and ask for. The members are asked every so often what they received.
func (h hostCluster) watch(ctx context.Context, o Options, when string, every time.Duration) (*hostWatch, error) {
	messages, err := CountMessages(ctx, h.Cluster, every)
	if err != nil {
		return nil, err
	}
	w := &hostWatch{say: o.say, host: result.Host{Program: h.program, When: when, Members: members}, messages: messages,
		sampler: StartSampler(ctx, o.Env, h.Cluster, sidecar)}
	w.began, w.asked = h.Asking()
	return w, nil
}

// end ends the watch, and returns what it has seen.
func (w *hostWatch) end() result.Host {
	if w.ended {
		return w.host
	}
	w.ended = true
	asked := w.asked()
	w.host.Seconds, w.host.Usage = time.Since(w.began).Seconds(), w.sampler.Stop()
	w.host.Kubernetes, w.host.Bytes, w.host.Etcd = asked.Requests, int64(asked.Bytes), w.messages.Stop()
	if n, found := asked.Requests[""]; found {
		delete(asked.Requests, "")
		asked.Requests[result.NoResource] = n
	}
	w.say("hosts: %s, %s: in %.0f s %.1f MiB anonymous, %.2f s of processor time, asked Kubernetes for %v, and etcd "+
		"for %v", w.host.Program, w.host.When, w.host.Seconds, w.host.Usage.Anonymous, w.host.Usage.CPUSeconds,
		w.host.Kubernetes, w.host.Etcd)
	return w.host
}
