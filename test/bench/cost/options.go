package cost

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/quorate/quorate/test/harness"
)

// Options say what to measure on, and how long. Env is required.
type Options struct {
	Env *harness.Env
	// Short only shows that it works: shorter windows, one repetition of each.
	Short bool
	// Say is told what is being done; nil for silence.
	Say func(line string)
}

func (o Options) say(format string, args ...any) {
	if o.Say != nil {
		o.Say(fmt.Sprintf(format, args...))
	}
}

// either is what a short run and a whole one differ in.
func either[T any](o Options, short, whole T) T {
	if o.Short {
		return short
	}
	return whole
}

const (
	// sidecar is the container that is measured.
	sidecar = "backup-restore"
	// listen has a sidecar serve its metrics.
	listen = "--listen-address=$(POD_IP):8090"
	// members is how many there are in every cluster here.
	members = 3
	// readyLimit and deleteLimit bound the begin and the end of a cluster.
	readyLimit  = 2 * time.Minute
	deleteLimit = time.Minute
	// calmFor is for how long no sidecar must have asked the API server for anything before
	// its start counts as over. It is longer than a lock TTL, because so long after it has lined
	// up a sidecar reads etcd's member list; from then on it does so once a minute.
	calmFor = lockTTL + time.Second
)

// with runs a function with a cluster of its own, with mTLS and the production defaults except
// for what the spec sets. The sidecars serve their metrics as in deploy/sidecar-patch.yaml.
func (o Options) with(ctx context.Context, spec harness.Spec,
	f func(context.Context, *harness.Cluster) error) (err error) {
	if o.Env == nil {
		return errors.New("measure the cost: Env is missing; start a harness first")
	}
	spec.Replicas = members
	spec.SidecarArgs = append([]string{listen}, spec.SidecarArgs...)
	defer func() {
		if err != nil {
			err = fmt.Errorf("cluster %s: %w", spec.Name, err)
		}
	}()
	cluster, err := o.Env.CreateCluster(ctx, spec)
	if err != nil {
		return err
	}
	defer func() {
		deleting, cancel := context.WithTimeout(context.WithoutCancel(ctx), deleteLimit)
		defer cancel()
		err = errors.Join(err, cluster.Delete(deleting))
	}()
	starting, cancel := context.WithTimeout(ctx, readyLimit)
	defer cancel()
	if err := cluster.WaitReady(starting); err != nil {
		return err
	}
	return f(ctx, cluster)
}

// calm waits until the start is over: all sidecars stand in the queue, and none has asked the
// API server for anything for a while. It returns the pod whose sidecar has the lock.
func calm(ctx context.Context, cluster *harness.Cluster) (holder string, err error) {
	ctx, cancel := context.WithTimeout(ctx, readyLimit)
	defer cancel()
	if _, err := cluster.LockOwner(ctx); err != nil {
		return "", err
	}
	if err := cluster.WaitCalm(ctx, calmFor); err != nil {
		return "", err
	}
	return cluster.LockOwner(ctx)
}
