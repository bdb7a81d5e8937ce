package cost

import (
	"context"
	"fmt"
	"time"

	"github.com/quorate/quorate/test/bench/result"
	"github.com/quorate/quorate/test/harness"
	"github.com/quorate/quorate/test/harness/apiproxy"
)

// Idle measures every sidecar of a healthy cluster while there is nothing to do: the one that
// has the lock first, then those that wait for it.
func Idle(ctx context.Context, o Options) (idle []result.Idle, err error) {
	// Some things are asked once a minute, so one more or less of them should not matter.
	begun, window := either(o, 0, harness.Beginning), either(o, 10*time.Second, 5*time.Minute)
	err = o.with(ctx, harness.Spec{Name: "idle"}, func(ctx context.Context, cluster *harness.Cluster) error {
		holder, err := calm(ctx, cluster)
		if err == nil {
			err = harness.Pass(ctx, begun)
		}
		if err != nil {
			return err
		}
		o.say("idle: %s in which nothing happens (the lock is with %s)", window, holder)
		before, err := etcdMessages(ctx, cluster)
		if err != nil {
			return err
		}
		samplers := map[string]*Sampler{}
		for _, pod := range cluster.Pods() {
			samplers[pod] = startSampler(ctx, func() map[string]int { return processes(o.Env, sidecar, pod) })
		}
		began := time.Now()
		perr := harness.Pass(ctx, window)
		usages := map[string]result.Usage{}
		for pod, s := range samplers {
			usages[pod] = s.Stop()
		}
		seconds := time.Since(began).Seconds()
		if perr != nil {
			return perr
		}
		after, err := etcdMessages(ctx, cluster)
		if err != nil {
			return err
		}
		received := map[string]int{}
		for method, n := range after {
			received[method] = n - before[method]
		}
		for _, pod := range cluster.Pods() {
			usage := usages[pod]
			if usage.Processes != 1 {
				return fmt.Errorf("%d processes of the sidecar of %s were seen while nothing was to happen",
					usage.Processes, pod)
			}
			one := result.Idle{
				Role: "waiter", Members: members, Seconds: seconds,
				Kubernetes: aMinute(apiproxy.Count(cluster.Requests(pod, began)), seconds),
				Etcd:       aMinute(received, seconds),
				Watches:    openWatches(cluster.Requests(pod, time.Time{})),
				CPUPercent: 100 * usage.CPUSeconds / seconds, Usage: usage,
			}
			if pod == holder {
				one.Role = "holder"
				idle = append([]result.Idle{one}, idle...)
			} else {
				idle = append(idle, one)
			}
			o.say("idle: %s (%s) %.3f %% of a core, %.1f MiB anonymous, %.1f MiB in all, %d watches, a minute %v",
				pod, one.Role, one.CPUPercent, usage.Anonymous, usage.Resident, one.Watches, one.Kubernetes)
		}
		return nil
	})
	return idle, err
}

// etcdMessages sums up what all members have received.
func etcdMessages(ctx context.Context, cluster *harness.Cluster) (map[string]int, error) {
	sum := map[string]int{}
	for _, pod := range cluster.Pods() {
		counts, err := cluster.EtcdMessages(ctx, pod)
		if err != nil {
			return nil, err
		}
		for method, n := range counts {
			sum[method] += n
		}
	}
	return sum, nil
}

// aMinute are counts of a window as a rate, without what did not happen.
func aMinute(counts map[string]int, seconds float64) map[string]float64 {
	rates := map[string]float64{}
	for what, n := range counts {
		if n != 0 {
			rates[what] = float64(n) * 60 / seconds
		}
	}
	return rates
}

// openWatches are those of the requests that are watches which still go on.
func openWatches(requests []apiproxy.Record) int {
	n := 0
	for i := range requests {
		if requests[i].Verb == "watch" && requests[i].Open() {
			n++
		}
	}
	return n
}
