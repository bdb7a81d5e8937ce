package cost

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"syscall"
	"time"

	appsv1 "k8s.io/api/apps/v1"

	"github.com/quorate/quorate/test/bench/result"
	"github.com/quorate/quorate/test/harness"
	"github.com/quorate/quorate/test/harness/process"
)

const (
	// rolloutLimit bounds a rollout; three members take a few seconds each.
	rolloutLimit = 3 * time.Minute
	// scrapeEvery is how often the host's metrics are read, as Prometheus does, only more often.
	scrapeEvery = 5 * time.Second
	// hostGrace is how long the host may take to end.
	hostGrace = 10 * time.Second
)

// Embedded measures what the library adds to the anonymous resident memory of a program that
// is otherwise like etcd-backup-restore (test/cmd/host). Two processes of it run side by side,
// for the same cluster and with the same work of their own, with the library and without. The
// one with it has the lock, which is the most that can be asked of it: it keeps the watch while
// nothing happens, and then coordinates a rollout.
//
// Of each process the highest value of its window counts.
func Embedded(ctx context.Context, o Options) (embedded []result.Embedded, err error) {
	rounds := either(o, 1, 5)
	idle := either(o, 5*time.Second, 30*time.Second)
	err = o.with(ctx, harness.Spec{Name: "embedded"}, func(ctx context.Context, cluster *harness.Cluster) error {
		for round := range rounds {
			measured, err := pair(ctx, o, cluster, round+1, idle)
			embedded = append(embedded, measured...)
			if err != nil {
				return fmt.Errorf("embedded, round %d: %w", round+1, err)
			}
		}
		return nil
	})
	return embedded, err
}

// pair runs the host with the library and without for a while, and through a rollout.
func pair(ctx context.Context, o Options, cluster *harness.Cluster, round int,
	idle time.Duration) (measured []result.Embedded, err error) {
	var hosts []*host
	defer func() {
		ending := context.WithoutCancel(ctx)
		for _, h := range hosts {
			err = errors.Join(err, h.end(ending))
		}
	}()
	for _, embed := range []bool{false, true} {
		h, err := startHost(ctx, o, cluster, embed)
		if err != nil {
			return nil, err
		}
		hosts = append(hosts, h)
	}
	without, with := hosts[0].process, hosts[1].process
	if err := giveLock(ctx, cluster); err != nil {
		return nil, err
	}
	measure := func(when string, f func() error) error {
		sampling, cancel := context.WithCancel(ctx)
		defer cancel()
		samplers := map[*process.Process]*Sampler{}
		for _, p := range []*process.Process{without, with} {
			samplers[p] = startSampler(sampling, func() map[string]int { return map[string]int{"host": p.PID()} })
		}
		ferr := f()
		a, b := samplers[without].Stop(), samplers[with].Stop()
		if ferr != nil {
			return ferr
		}
		for _, p := range []*process.Process{without, with} {
			select {
			case <-p.Done():
				return fmt.Errorf(
					"the host program ended with %d while it was measured; its log is beside the harness's",
					p.ExitCode())
			default:
			}
		}
		o.say("embedded: %s, round %d: %.2f MiB with the library, %.2f MiB without, %.2f MiB more", when, round,
			b.Anonymous, a.Anonymous, b.Anonymous-a.Anonymous)
		measured = append(measured, result.Embedded{When: when, Without: a.Anonymous, With: b.Anonymous, Round: round})
		return nil
	}
	if err := measure("idle", func() error { return harness.Pass(ctx, idle) }); err != nil {
		return measured, err
	}
	return measured, measure("rollout", func() error { return roll(ctx, cluster, fmt.Sprintf("round-%d", round)) })
}

// roll carries out a rollout, and makes sure that it was the host that coordinated it.
func roll(ctx context.Context, cluster *harness.Cluster, value string) error {
	ctx, cancel := context.WithTimeout(ctx, rolloutLimit)
	defer cancel()
	record, err := cluster.WatchRecord(ctx)
	if err != nil {
		return err
	}
	defer record.Stop()
	began := time.Now()
	err = cluster.Update(ctx, "roll for the host program ("+value+")", func(set *appsv1.StatefulSet) {
		set.Spec.Template.Annotations = map[string]string{"changed": value}
	})
	if err != nil {
		return err
	}
	if err := cluster.WaitUpdated(ctx); err != nil {
		return err
	}
	if err := awaitEnd(ctx, record, began); err != nil {
		return err
	}
	for _, s := range record.States(began) {
		if slices.Contains(cluster.Pods(), s.Holder) {
			return fmt.Errorf("the sidecar of %s coordinated, not the host program", s.Holder)
		}
	}
	return nil
}

// awaitEnd waits until the record is free after the rollout.
func awaitEnd(ctx context.Context, record *harness.RecordHistory, began time.Time) error {
	_, err := record.Await(ctx, "that the rollout is over", began, func(s harness.RecordState) bool {
		return len(record.Intents(began)) >= members && s.Holder == ""
	})
	return err
}

// giveLock gives the host program the lock: it stands behind the sidecars, so these are
// restarted.
func giveLock(ctx context.Context, cluster *harness.Cluster) error {
	ctx, cancel := context.WithTimeout(ctx, readyLimit)
	defer cancel()
	queue := func(done func([]string) bool) error {
		ticker := time.NewTicker(samplePeriod)
		defer ticker.Stop()
		for {
			all, err := cluster.LockQueue(ctx)
			if err == nil && done(all) {
				return nil
			}
			select {
			case <-ticker.C:
			case <-ctx.Done():
				return fmt.Errorf("wait for the host program's turn (the queue is %v, %w): %w", all, err,
					context.Cause(ctx))
			}
		}
	}
	if err := queue(func(all []string) bool { return len(all) == members+1 }); err != nil {
		return err
	}
	for _, pod := range cluster.Pods() {
		if err := cluster.Signal(pod, sidecar, syscall.SIGTERM); err != nil {
			return err
		}
	}
	return queue(func(all []string) bool { return len(all) == members+1 && !slices.Contains(cluster.Pods(), all[0]) })
}

// host is a running host program.
type host struct {
	process *process.Process
	dir     string
	cancel  context.CancelFunc
	scraper sync.WaitGroup
}

func startHost(ctx context.Context, o Options, cluster *harness.Cluster, embed bool) (h *host, err error) {
	dir, err := os.MkdirTemp(o.Env.Dir, "host-")
	if err != nil {
		return nil, err
	}
	access, err := cluster.WriteAccess(ctx, dir)
	if err != nil {
		return nil, err
	}
	address, err := freeAddress()
	if err != nil {
		return nil, err
	}
	p, err := harness.StartHost(ctx, harness.Host{
		Listen: address, Embed: embed, Clusters: map[string]harness.Access{cluster.Spec.Name: access},
	}, filepath.Join(dir, "host.log"), o.Say)
	if err != nil {
		return nil, err
	}
	h = &host{process: p, dir: dir}
	ctx, h.cancel = context.WithCancel(ctx)
	h.scraper.Go(func() { scrape(ctx, "http://"+address) })
	return h, nil
}

func (h *host) end(ctx context.Context) error {
	h.cancel()
	h.scraper.Wait()
	return h.process.Stop(ctx, hostGrace)
}

// freeAddress returns an address that is free now.
func freeAddress() (string, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	defer l.Close()
	return l.Addr().String(), nil
}

// scrape reads metrics until ctx ends. That they cannot be read is no matter: whether the
// process lives is seen elsewhere.
func scrape(ctx context.Context, url string) {
	client := http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	ticker := time.NewTicker(scrapeEvery)
	defer ticker.Stop()
	for ctx.Err() == nil {
		request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
		if err != nil {
			return
		}
		if answer, err := client.Do(request); err == nil {
			_, _ = io.Copy(io.Discard, answer.Body)
			_ = answer.Body.Close()
		}
		select {
		case <-ticker.C:
		case <-ctx.Done():
		}
	}
}
