package fleet

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	policyv1 "k8s.io/api/policy/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"

	"github.com/quorate/quorate/internal/etcdtest"
	"github.com/quorate/quorate/test/bench/result"
	"github.com/quorate/quorate/test/harness"
	"github.com/quorate/quorate/test/harness/build"
	"github.com/quorate/quorate/test/harness/controlplane"
)

// What every cluster of the fleet is called, in a namespace of its own.
const (
	setName          = "etcd"
	etcdContainer    = "etcd"
	sidecarContainer = "backup-restore"
	// etcdVersion is what the members say. Other releases may rely on what etcd 3.7 does not tell any more.
	etcdVersion = "3.5.35"
	// leaderRole and memberRole end the holder of a member's lease, after its ID, as
	// etcd-backup-restore writes it.
	leaderRole = ":Leader"
	memberRole = ":Member"
)

const (
	// atOnce is how many requests are sent at a time that set up or change the fleet.
	atOnce = 32
	// look is how often it is looked whether something has come about.
	look = 100 * time.Millisecond
	// sample is how often the memory is read during a rollout.
	sample = time.Second
	// startsOver spreads the start of the coordinators over the time after which an idle one looks at its members
	// again. If all start at once, they all look at once, and a few cores are then busy for seconds. In a real fleet
	// they do not share cores.
	startsOver = time.Minute
	// quiet is for how long nothing was asked of a fleet that idles, and quietPatience bounds the
	// wait for that.
	quiet         = 3 * time.Second
	quietPatience = time.Minute
)

func namespace(cluster int) string { return fmt.Sprintf("fleet-%05d", cluster) }
func podName(ordinal int) string   { return setName + "-" + strconv.Itoa(ordinal) }

// The ways to roll a fleet, as results name them.
const (
	quorate    = "quorate"
	controller = "central"
)

// way is one way to roll a fleet.
type way struct {
	arm string
	// workers are the central controller's. Of coordinators, program is another one whose they are, if it is not empty.
	workers int
	program string
}

// name is for files.
func (w way) name() string {
	if w.program != "" {
		return w.arm + "-of-" + filepath.Base(w.program)
	}
	return fmt.Sprintf("%s-%d", w.arm, w.workers)
}

// Run measures first the coordinators of the whole fleet, then the central controller with each number of workers, and
// then the coordinators of other releases, on one control plane with the same objects. It takes about ten
// minutes for the defaults. Results that were there when an error occurred are returned with it.
//
// An error says that the fleet could not be run, or that a rollout broke its rule: a pod was replaced
// twice, or two of one cluster were away at once.
func Run(ctx context.Context, o Options) (results []result.Fleet, err error) {
	o, err = o.complete()
	if err != nil {
		return nil, fmt.Errorf("fleet: %w", err)
	}
	// This program plays the members. While it collects garbage on a few cores, they may not answer for a second. With
	// the sidecar's own patience every coordinator would then take etcd for silent and turn to the fallback, and with a
	// thousand clusters that keeps those cores busy for good.
	defer harness.CollectRarely()()
	f, err := start(ctx, o)
	if err != nil {
		return nil, fmt.Errorf("fleet: %w", err)
	}
	defer func() { err = errors.Join(err, f.close(ctx)) }()
	ways := []way{{arm: quorate}}
	for _, workers := range o.Workers {
		ways = append(ways, way{arm: controller, workers: workers})
	}
	for _, program := range o.Beside {
		ways = append(ways, way{arm: quorate, program: program})
	}
	for _, w := range ways {
		r, err := f.measure(ctx, w)
		if err != nil {
			return results, fmt.Errorf("fleet: %s: %w", r.Arm, err)
		}
		results = append(results, r)
		mending, cancel := bounded(ctx, "rolling the rest")
		err = f.mend(mending)
		cancel()
		if err != nil {
			return results, fmt.Errorf("fleet: roll what %s has left: %w", r.Arm, err)
		}
	}
	return results, nil
}

// fleet is the clusters and what they run on.
type fleet struct {
	Options
	plane    *controlplane.ControlPlane
	client   kubernetes.Interface
	members  *members
	clusters []*cluster
	kubelet  *kubelet
	stop     context.CancelFunc // Ends the kubelet and all else that runs beside.
	beside   sync.WaitGroup

	// host runs the coordinators while they are measured. writesLeases is true while the
	// members' leases have a reader.
	host         atomic.Pointer[hostProcess]
	writesLeases atomic.Bool
	revision     int
}

// cluster is one etcd with its StatefulSet.
type cluster struct {
	etcd   *etcdtest.Cluster
	ledger *ledger

	mu   sync.Mutex
	stop []func() // Ends a member; nil while it is down.
}

// start starts the control plane and makes the fleet. All pods are Ready when it returns.
func start(ctx context.Context, o Options) (f *fleet, err error) {
	f = &fleet{Options: o}
	running, stop := context.WithCancel(ctx)
	f.stop = stop
	defer func() {
		if err != nil {
			err = errors.Join(err, f.close(ctx))
		}
	}()
	binaries, err := build.Some(ctx, o.Say, build.Etcd36, build.Kube)
	if err != nil {
		return f, err
	}
	o.Say("starting kube-apiserver, the StatefulSet controller and the disruption controller")
	if f.plane, err = controlplane.Start(ctx, controlplane.Config{
		Dir: filepath.Join(o.Dir, "control-plane"), Binaries: binaries, BindAddress: "127.0.0.1",
		Controllers: []string{"statefulset", "disruption"},
	}); err != nil {
		return f, err
	}
	if f.client, err = kubernetes.NewForConfig(f.plane.AdminConfig()); err != nil {
		return f, err
	}
	if f.members, err = listenForMembers(); err != nil {
		return f, err
	}
	random := rand.New(rand.NewPCG(o.Seed, o.Seed))
	f.kubelet = &kubelet{client: f.client, pods: f, ledgers: map[string]*ledger{}}
	for i := range o.Clusters {
		var urls []string
		for m := range o.Members {
			urls = append(urls, clientURL(i, m, f.members.port))
		}
		c := &cluster{etcd: etcdtest.New(uint64(i)+1, urls...), ledger: newLedger(i, o.Members),
			stop: make([]func(), o.Members)} //nolint:gosec // Counted from 0.
		c.etcd.Set(func(_ *etcdtest.Cluster, members []*etcdtest.Member) {
			for _, m := range members {
				m.Version = etcdVersion
			}
		})
		c.etcd.SetLeader(c.etcd.ID(random.IntN(o.Members)))
		f.clusters = append(f.clusters, c)
		f.kubelet.ledgers[namespace(i)] = c.ledger
	}
	f.beside.Go(func() { f.expire(running) })
	if err := f.kubelet.watch(running); err != nil {
		return f, err
	}
	o.Say(fmt.Sprintf("making %d StatefulSets of %d pods", o.Clusters, o.Members))
	if err := f.each(ctx, 0, f.create); err != nil {
		return f, err
	}
	starting, cancel := bounded(ctx, "starting the pods")
	defer cancel()
	return f, f.until(starting, "all pods are Ready", (*ledger).settled)
}

// bounded gives what only a broken fleet does not come to the end of a limit far beyond what the
// largest one needs.
func bounded(ctx context.Context, what string) (context.Context, context.CancelFunc) {
	const limit = 20 * time.Minute
	return context.WithTimeoutCause(ctx, limit, fmt.Errorf("%s took more than %v", what, limit))
}

// close ends everything, whatever was started of it.
func (f *fleet) close(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Minute)
	defer cancel()
	var errs []error
	if h := f.host.Swap(nil); h != nil {
		errs = append(errs, h.process.Stop(ctx, 0))
	}
	f.stop()
	f.beside.Wait()
	if f.kubelet != nil {
		f.kubelet.wait()
	}
	for _, c := range f.clusters {
		for i := range c.stop {
			c.down(i)
		}
	}
	if f.members != nil {
		f.members.close()
	}
	if f.plane != nil {
		errs = append(errs, f.plane.Close(ctx))
	}
	return errors.Join(errs...)
}

// expire ends leases as etcd does.
func (f *fleet) expire(ctx context.Context) {
	for ctx.Err() == nil {
		pause(ctx, time.Second)
		for _, c := range f.clusters {
			c.etcd.ExpireOverdue()
		}
	}
}

// each does something for all clusters, some at a time and one after the other over a time, and ends with the first
// error.
func (f *fleet) each(ctx context.Context, over time.Duration, do func(ctx context.Context, cluster int) error) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	next, began := make(chan int), time.Now()
	var doing sync.WaitGroup
	for range atOnce {
		doing.Go(func() {
			for i := range next {
				if err := do(ctx, i); err != nil {
					cancel(fmt.Errorf("%s: %w", namespace(i), err))
				}
			}
		})
	}
	for i := range f.clusters {
		if over > 0 {
			pause(ctx, time.Until(began.Add(over*time.Duration(i)/time.Duration(f.Clusters))))
		}
		select {
		case next <- i:
		case <-ctx.Done():
		}
	}
	close(next)
	doing.Wait()
	return context.Cause(ctx)
}

// until waits until something holds of all clusters.
func (f *fleet) until(ctx context.Context, what string, holds func(*ledger) bool) error {
	for {
		left := f.missing(holds)
		if left == 0 {
			return nil
		}
		pause(ctx, look)
		select {
		case <-ctx.Done():
			return fmt.Errorf("wait until %s (not so in %d clusters): %w", what, left, ctx.Err())
		case <-f.plane.Failed():
			return f.plane.Err()
		default:
		}
	}
}

// missing counts the clusters of which something does not hold.
func (f *fleet) missing(holds func(*ledger) bool) (n int) {
	for _, c := range f.clusters {
		if !holds(c.ledger) {
			n++
		}
	}
	return n
}

// create makes what one cluster needs.
func (f *fleet) create(ctx context.Context, i int) error {
	ns := namespace(i)
	if _, err := f.client.CoreV1().Namespaces().Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: ns}},
		metav1.CreateOptions{}); err != nil {
		return err
	}
	account := &corev1.ServiceAccount{ObjectMeta: metav1.ObjectMeta{Name: "default"}}
	if _, err := f.client.CoreV1().ServiceAccounts(ns).Create(ctx, account, metav1.CreateOptions{}); err != nil {
		return err
	}
	for m := range f.Members {
		lease := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Name: podName(m)}}
		if _, err := f.client.CoordinationV1().Leases(ns).Create(ctx, lease, metav1.CreateOptions{}); err != nil {
			return err
		}
	}
	if err := f.writeLeases(ctx, i); err != nil {
		return err
	}
	if _, err := f.client.PolicyV1().PodDisruptionBudgets(ns).Create(ctx, disruptionBudget(f.Members),
		metav1.CreateOptions{}); err != nil {
		return err
	}
	_, err := f.client.AppsV1().StatefulSets(ns).Create(ctx, statefulSet(f.Members), metav1.CreateOptions{})
	return err
}

// podLabels are those of every pod of a cluster, by which the StatefulSet and the budget choose them.
var podLabels = map[string]string{"app.kubernetes.io/component": "etcd-statefulset"}

// disruptionBudget returns the one that etcd-druid makes, which has the StatefulSet's name.
func disruptionBudget(members int) *policyv1.PodDisruptionBudget {
	least := harness.MinAvailable(members)
	return &policyv1.PodDisruptionBudget{
		ObjectMeta: metav1.ObjectMeta{Name: setName},
		Spec: policyv1.PodDisruptionBudgetSpec{
			MinAvailable: &least, Selector: &metav1.LabelSelector{MatchLabels: podLabels},
		},
	}
}

// statefulSet returns one of etcd-druid's without everything that costs nothing. Its pods are bound
// to a node that does not exist, because there is no scheduler.
func statefulSet(members int) *appsv1.StatefulSet {
	replicas, no := int32(members), false //nolint:gosec // At most nine.
	return &appsv1.StatefulSet{
		ObjectMeta: metav1.ObjectMeta{Name: setName, Labels: podLabels},
		Spec: appsv1.StatefulSetSpec{
			Replicas: &replicas, ServiceName: setName, PodManagementPolicy: appsv1.ParallelPodManagement,
			UpdateStrategy: appsv1.StatefulSetUpdateStrategy{Type: appsv1.OnDeleteStatefulSetStrategyType},
			Selector:       &metav1.LabelSelector{MatchLabels: podLabels},
			Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: podLabels},
				Spec: corev1.PodSpec{
					NodeName: "simulated", AutomountServiceAccountToken: &no,
					Containers: []corev1.Container{
						{Name: etcdContainer, Image: "etcd",
							VolumeMounts: []corev1.VolumeMount{{Name: "data", MountPath: "/var/etcd"}}},
						{Name: sidecarContainer, Image: "sidecar"},
					},
					Volumes: []corev1.Volume{{Name: "data",
						VolumeSource: corev1.VolumeSource{HostPath: &corev1.HostPathVolumeSource{Path: "/data"}}}},
				},
			},
		},
	}
}

// writeLeases writes who leads to the members' leases. Where nothing changes nothing is written.
func (f *fleet) writeLeases(ctx context.Context, i int) error {
	leases := f.client.CoordinationV1().Leases(namespace(i))
	for m := range f.Members {
		id := f.clusters[i].etcd.ID(m)
		holder := strconv.FormatUint(id, 16) + memberRole
		if f.clusters[i].etcd.Leader() == id {
			holder = strconv.FormatUint(id, 16) + leaderRole
		}
		patch := fmt.Sprintf(`{"spec":{"holderIdentity":%q}}`, holder)
		if _, err := leases.Patch(ctx, podName(m), types.MergePatchType, []byte(patch),
			metav1.PatchOptions{}); err != nil {
			return err
		}
	}
	return nil
}

// run is what a kubelet starts in a pod: etcd and the sidecar.
func (f *fleet) run(ctx context.Context, i, ordinal int) {
	c := f.clusters[i]
	c.mu.Lock()
	if c.stop[ordinal] == nil {
		c.stop[ordinal] = c.etcd.Serve(ordinal, f.members.listen(address(i, ordinal)))
	}
	c.mu.Unlock()
	if h := f.host.Load(); h != nil {
		f.told(h.run(ctx, i, ordinal))
	}
}

// end is what a kubelet ends: both get their SIGTERM at the same time.
func (f *fleet) end(ctx context.Context, i, ordinal int) {
	c := f.clusters[i]
	var etcd sync.WaitGroup
	etcd.Go(func() { c.down(ordinal) })
	if h := f.host.Load(); h != nil {
		f.told(h.end(ctx, i, ordinal))
	}
	etcd.Wait()
	if f.writesLeases.Load() {
		// The sidecars do so with their next heartbeat; here it is at once, and no pod waits for it.
		f.beside.Go(func() { f.told(f.writeLeases(ctx, i)) })
	}
}

// told reports what went wrong where no caller waits for it. A rollout that it holds up shows
// in the figures.
func (f *fleet) told(err error) {
	if err != nil && !errors.Is(err, context.Canceled) {
		f.Say("trouble: " + err.Error())
	}
}

// down ends a member. One that led hands leadership over as it goes.
func (c *cluster) down(ordinal int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.stop[ordinal] == nil {
		return
	}
	if c.etcd.Leader() == c.etcd.ID(ordinal) {
		if next := slices.IndexFunc(c.others(ordinal), func(up bool) bool { return up }); next >= 0 {
			c.etcd.SetLeader(c.etcd.ID(next))
		}
	}
	c.stop[ordinal]()
	c.stop[ordinal] = nil
}

// others tells which members but this one are up.
func (c *cluster) others(ordinal int) []bool {
	up := make([]bool, len(c.stop))
	for i := range c.stop {
		up[i] = i != ordinal && c.stop[i] != nil
	}
	return up
}

// measure rolls the fleet once.
func (f *fleet) measure(ctx context.Context, w way) (r result.Fleet, err error) {
	r = result.Fleet{Arm: w.arm, Workers: w.workers, Clusters: f.Clusters, Members: f.Members,
		PodDown: f.PodDown.Seconds(), Over: f.Over.Seconds()}
	program := w.program
	if program == "" {
		if program, err = os.Executable(); err != nil {
			return r, fmt.Errorf("find own program: %w", err)
		}
	} else {
		r.Release = filepath.Base(program)
	}
	h, err := f.count(ctx, w.name(), program)
	if err != nil {
		return r, err
	}
	defer func() {
		f.host.Store(nil)
		f.writesLeases.Store(false)
		err = errors.Join(err, h.stop(ctx))
	}()
	base, err := h.read()
	if err != nil {
		return r, err
	}
	r.BaseMiB = base.anonymous
	if w.arm == controller {
		f.Say(fmt.Sprintf("starting the central controller with %d workers", w.workers))
		f.writesLeases.Store(true)
		if err := f.each(ctx, 0, f.writeLeases); err != nil {
			return r, err
		}
		err = h.call(ctx, "Control", w.workers, nil)
	} else {
		f.Say(fmt.Sprintf("starting %d coordinators of %s", f.Clusters*f.Members, program))
		f.host.Store(h)
		starting, cancel := bounded(ctx, "starting the coordinators")
		defer cancel()
		over := startsOver
		if f.Short {
			over = 0
		}
		err = f.each(starting, over, func(ctx context.Context, i int) error { return f.campaign(ctx, h, i) })
	}
	if err != nil {
		return r, err
	}
	if err := f.idle(ctx, h, &r); err != nil {
		return r, err
	}
	return r, f.roll(ctx, h, &r)
}

// campaign starts the coordinators of a cluster, and waits until one has the lock and the others
// stand in the queue.
func (f *fleet) campaign(ctx context.Context, h *hostProcess, i int) error {
	for m := range f.Members {
		if err := h.run(ctx, i, m); err != nil {
			return err
		}
	}
	queued := func() (n int) {
		for _, key := range f.clusters[i].etcd.Keys() {
			if strings.Contains(key, "/lock/") {
				n++
			}
		}
		return n
	}
	for ctx.Err() == nil && queued() < f.Members {
		pause(ctx, look)
	}
	return ctx.Err()
}

// idle measures the fleet while nothing happens, from when it has become quiet. In a short run that is between the
// requests of coordinators that have only just begun.
func (f *fleet) idle(ctx context.Context, h *hostProcess, r *result.Fleet) error {
	if r.Arm == quorate && !f.Short {
		f.Say(fmt.Sprintf("waiting for %v, until the owners of the locks idle", harness.Beginning))
		pause(ctx, harness.Beginning)
	}
	var before reading
	var err error
	for began, changed := time.Now(), time.Now(); time.Since(changed) < quiet &&
		time.Since(began) < quietPatience; pause(ctx, look) {
		now, err := h.read()
		if err != nil {
			return err
		}
		if len(now.since(before)) > 0 {
			before, changed = now, time.Now()
		}
	}
	f.Say(fmt.Sprintf("watching the idle fleet for %v", f.IdleFor))
	if before, err = h.read(); err != nil {
		return err
	}
	began := time.Now()
	pause(ctx, f.IdleFor)
	after, err := h.read()
	if err != nil {
		return err
	}
	r.IdleSeconds = time.Since(began).Seconds()
	r.IdleRequests, r.IdleCPU = after.since(before), (after.cpu - before.cpu).Seconds()
	r.IdleBytes = after.Bytes - before.Bytes
	r.Watches, r.MemoryMiB = after.Watches, after.anonymous
	f.Say(fmt.Sprintf("idle: %d requests, %d bytes, %.1f CPU seconds, %d watches, %.0f MiB", total(r.IdleRequests),
		r.IdleBytes, r.IdleCPU, r.Watches, r.MemoryMiB))
	return nil
}

// roll changes all templates and measures until all pods are replaced.
func (f *fleet) roll(ctx context.Context, h *hostProcess, r *result.Fleet) error {
	f.kubelet.down.Store(int64(f.PodDown))
	defer f.kubelet.down.Store(0)
	before, err := h.read()
	if err != nil {
		return err
	}
	server := f.plane.PIDs()["kube-apiserver"]
	serverBefore, err := harness.ProcessorTime(server)
	if err != nil {
		return err
	}
	f.Say("changing all templates")
	began := time.Now()
	rolling, cancel := context.WithDeadline(ctx, began.Add(f.Limit))
	defer cancel()
	sampling, stop := context.WithCancel(rolling)
	var peak sync.WaitGroup
	peak.Go(func() {
		for sampling.Err() == nil {
			if memory, err := harness.MemoryOf(h.process.PID()); err == nil {
				r.PeakMiB = max(r.PeakMiB, memory.AnonymousMiB())
			}
			pause(sampling, sample)
		}
	})
	var changed time.Duration
	if err = f.update(ctx); err == nil {
		changed = time.Since(began)
		err = f.until(rolling, "all are rolled", (*ledger).complete)
	}
	r.Seconds = time.Since(began).Seconds()
	stop()
	peak.Wait()
	if err != nil && (ctx.Err() != nil || !errors.Is(err, context.DeadlineExceeded)) {
		return err
	}
	if r.Rolled = f.Clusters - f.missing((*ledger).complete); r.Rolled == f.Clusters {
		// The coordinator that rolled them still has to report it.
		pause(ctx, quiet)
	}
	after, err := h.read()
	if err != nil {
		return err
	}
	serverAfter, err := harness.ProcessorTime(server)
	if err != nil {
		return err
	}
	r.Requests, r.CPU, r.PeakMiB = after.since(before), (after.cpu - before.cpu).Seconds(),
		max(r.PeakMiB, after.anonymous)
	r.Bytes = after.Bytes - before.Bytes
	var first, done, downs []time.Duration
	var faults []error
	for _, c := range f.clusters {
		c.ledger.mu.Lock()
		if !c.ledger.first.IsZero() {
			first = append(first, c.ledger.first.Sub(c.ledger.changed))
		}
		if !c.ledger.done.IsZero() {
			done = append(done, c.ledger.done.Sub(c.ledger.changed))
		}
		downs = append(downs, c.ledger.downs...)
		c.ledger.mu.Unlock()
		faults = append(faults, c.ledger.fault())
	}
	r.FirstAction, r.Done = quantiles(first), quantiles(done)
	r.Note = fmt.Sprintf("pods were down for %.1f s in the median; to change all templates took %.1f s; "+
		"kube-apiserver used %.0f CPU seconds in the rollout",
		quantiles(downs).Median, changed.Seconds(), (serverAfter - serverBefore).Seconds())
	if r.Arm == controller {
		r.Note += fmt.Sprintf("; the client's limit is %d requests a second, %d at once", centralQPS, centralBurst)
	}
	f.Say(fmt.Sprintf("%s %d: %d of %d rolled in %.1f s, %d requests, %d bytes, %.1f CPU seconds, %.0f MiB at most; %s",
		r.Arm, r.Workers, r.Rolled, r.Clusters, r.Seconds, total(r.Requests), r.Bytes, r.CPU, r.PeakMiB, r.Note))
	return errors.Join(faults...)
}

// update changes every template, one after the other where that takes its time.
func (f *fleet) update(ctx context.Context) error {
	f.revision++
	patch := fmt.Appendf(nil, `{"spec":{"template":{"metadata":{"annotations":{"fleet/revision":"%d"}}}}}`, f.revision)
	for _, c := range f.clusters {
		c.ledger.begin(time.Time{}) // Not complete, whatever the last rollout was.
	}
	return f.each(ctx, f.Over, func(ctx context.Context, i int) error {
		f.clusters[i].ledger.begin(time.Now())
		_, err := f.client.AppsV1().StatefulSets(namespace(i)).
			Patch(ctx, setName, types.MergePatchType, patch, metav1.PatchOptions{})
		return err
	})
}

// mend finishes a rollout that was not finished in time, with no regard to anything, so that the
// next one finds the fleet as the first did.
func (f *fleet) mend(ctx context.Context) error {
	if f.missing((*ledger).complete) == 0 {
		return nil
	}
	if err := f.each(ctx, 0, func(ctx context.Context, i int) error {
		if f.clusters[i].ledger.complete() {
			return nil
		}
		set, err := f.client.AppsV1().StatefulSets(namespace(i)).Get(ctx, setName, metav1.GetOptions{})
		if err != nil {
			return err
		}
		pods, err := f.client.CoreV1().Pods(namespace(i)).List(ctx, metav1.ListOptions{})
		if err != nil {
			return err
		}
		for _, p := range pods.Items {
			if p.Labels[appsv1.StatefulSetRevisionLabel] == set.Status.UpdateRevision {
				continue
			}
			if err := f.client.CoreV1().Pods(p.Namespace).Delete(ctx, p.Name, metav1.DeleteOptions{}); err != nil &&
				!apierrors.IsNotFound(err) {
				return err
			}
		}
		return nil
	}); err != nil {
		return err
	}
	return f.until(ctx, "all pods are Ready", (*ledger).complete)
}

func total(requests map[string]int) (n int) {
	for _, count := range requests {
		n += count
	}
	return n
}

// quantiles of some times, by the nearest rank; zeros of none.
func quantiles(times []time.Duration) result.Quantiles {
	slices.Sort(times)
	rank := func(percent int) float64 { return result.Quantile(times, percent).Seconds() }
	return result.Quantiles{Median: rank(50), P99: rank(99), Most: rank(100)}
}
