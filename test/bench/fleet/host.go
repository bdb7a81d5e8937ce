package fleet

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/rpc"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/sirupsen/logrus"
	utilnet "k8s.io/apimachinery/pkg/util/net"
	appsv1 "k8s.io/client-go/kubernetes/typed/apps/v1"
	coordinationv1 "k8s.io/client-go/kubernetes/typed/coordination/v1"
	corev1 "k8s.io/client-go/kubernetes/typed/core/v1"
	policyv1 "k8s.io/client-go/kubernetes/typed/policy/v1"
	"k8s.io/client-go/rest"

	"github.com/quorate/quorate/coordinator"
	"github.com/quorate/quorate/pkg/options"
	"github.com/quorate/quorate/test/harness"
	"github.com/quorate/quorate/test/harness/apiproxy"
	"github.com/quorate/quorate/test/harness/process"
)

// hostVariable makes a program the host of the coordinators; its value is a hostConfig.
const hostVariable = "QUORATE_FLEET_HOST"

// hostService is the name of the host's remote procedures.
const hostService = "Host"

// hostConfig is what the host has to know.
type hostConfig struct {
	// Socket is the Unix socket over which the host is told what to do. It ends with the
	// connection.
	Socket string
	// Kubeconfig reaches the API server, EtcdPort is the port of all members.
	Kubeconfig string
	EtcdPort   int
	Members    int
}

// MaybeHost makes this process the host of a fleet if [Run] has started it as such, and does not
// return then. A program that calls Run calls it first of all in main or TestMain.
func MaybeHost() {
	text, asked := os.LookupEnv(hostVariable)
	if !asked {
		return
	}
	if err := serveHost(text); err != nil {
		fmt.Fprintln(os.Stderr, "fleet host:", err)
		os.Exit(1)
	}
	os.Exit(0)
}

func serveHost(text string) error {
	var config hostConfig
	if err := json.Unmarshal([]byte(text), &config); err != nil {
		return fmt.Errorf("%s: %w", hostVariable, err)
	}
	rc, err := (&options.Kubernetes{Kubeconfig: config.Kubeconfig}).RESTConfig("quorate/fleet")
	if err != nil {
		return err
	}
	conn, err := net.Dial("unix", config.Socket)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithCancel(context.Background())
	h := &host{ctx: ctx, config: config, rc: rc, running: map[int]*sidecar{}}
	server := rpc.NewServer()
	if err := server.RegisterName(hostService, h); err != nil {
		cancel()
		return err
	}
	server.ServeConn(conn)
	cancel()
	h.wg.Wait()
	return nil
}

// host is the process that is measured. Its exported methods are remote procedures; places are
// numbers of pods, counted through all clusters.
type host struct {
	ctx    context.Context //nolint:containedctx // That of the process.
	config hostConfig
	rc     *rest.Config
	wg     sync.WaitGroup

	mu      sync.Mutex
	running map[int]*sidecar
}

// sidecar is one coordinator.
type sidecar struct {
	cancel context.CancelFunc
	done   chan struct{}
}

// Run starts the coordinator of a pod, after the last one of its name has ended.
func (h *host) Run(place int, _ *struct{}) error {
	h.mu.Lock()
	defer h.mu.Unlock()
	last := h.running[place]
	ctx, cancel := context.WithCancel(h.ctx)
	now := &sidecar{cancel: cancel, done: make(chan struct{})}
	h.running[place] = now
	h.wg.Go(func() {
		defer close(now.done)
		if last != nil {
			<-last.done
		}
		if err := h.coordinate(ctx, place/h.config.Members, place%h.config.Members); err != nil {
			logrus.WithError(err).Error("a coordinator ended")
		}
	})
	return nil
}

// End ends the coordinator of a pod, and returns when it has ended.
func (h *host) End(place int, _ *struct{}) error {
	h.mu.Lock()
	s := h.running[place]
	h.mu.Unlock()
	if s != nil {
		s.cancel()
		<-s.done
	}
	return nil
}

// Control starts the central controller, and returns when it knows the fleet.
func (h *host) Control(workers int, _ *struct{}) error {
	client, end, err := clientFor(h.rc)
	if err != nil {
		return err
	}
	c, err := newCentral(h.rc, client)
	if err != nil {
		return err
	}
	h.wg.Go(func() {
		defer end()
		c.run(h.ctx, workers)
	})
	return c.synced(h.ctx)
}

// A sidecar has its own member confirm its session twice within --fallback-after, over loopback. Here all of them share
// a few cores with all members, and by default a thousand clusters have 3,000 keep-alives a second. When the cores are
// busy for one to two seconds, every sidecar would take etcd for silent and turn to the fallback. So a coordinator of
// this fleet is more patient. That changes nothing that it asks of the API server while etcd answers.
const (
	patience = 10 * time.Second
	lockTTL  = 3 * patience
)

// coordinate runs what the sidecar of a pod runs, with the same clients and defaults (see
// options.Sidecar.Config) but for its patience with etcd.
func (h *host) coordinate(ctx context.Context, cluster, ordinal int) error {
	client, end, err := clientFor(h.rc)
	if err != nil {
		return err
	}
	defer end()
	ns := namespace(cluster)
	apps, err := appsv1.NewForConfigAndClient(h.rc, client)
	if err != nil {
		return err
	}
	core, err := corev1.NewForConfigAndClient(h.rc, client)
	if err != nil {
		return err
	}
	coordination, err := coordinationv1.NewForConfigAndClient(h.rc, client)
	if err != nil {
		return err
	}
	policy, err := policyv1.NewForConfigAndClient(h.rc, client)
	if err != nil {
		return err
	}
	etcd := options.Etcd{Endpoints: []string{clientURL(cluster, ordinal, h.config.EtcdPort)}}
	c, err := coordinator.New(coordinator.Config{
		Namespace: ns, StatefulSet: setName, PodName: podName(ordinal), Version: "quorate/fleet",
		Dial: etcd.Dial(coordinator.DefaultProbeTimeout), Endpoints: etcd.Endpoints,
		StatefulSets: apps.StatefulSets(ns), Pods: core.Pods(ns), Leases: coordination.Leases(ns),
		Events: core.Events(ns), Budgets: policy.PodDisruptionBudgets(ns), FallbackAfter: patience, LockTTL: lockTTL,
		Metrics: prometheus.NewRegistry(), Log: logrus.WithField("pod", podName(ordinal)),
	})
	if err != nil {
		return err
	}
	return c.Run(ctx)
}

// clientFor is an HTTP client for the API server with a connection of its own, as every process has one. end closes
// it.
func clientFor(rc *rest.Config) (client *http.Client, end func(), err error) {
	tls, err := rest.TLSConfigFor(rc)
	if err != nil {
		return nil, nil, err
	}
	// client-go's own transport for this configuration would be one for all, and stay.
	transport := utilnet.SetTransportDefaults(&http.Transport{TLSClientConfig: tls, Proxy: rc.Proxy})
	wrapped, err := rest.HTTPWrappersForConfig(rc, transport)
	if err != nil {
		return nil, nil, err
	}
	return &http.Client{Transport: wrapped}, transport.CloseIdleConnections, nil
}

// hostProcess is the host as the fleet sees it, and the counter before the API server that counts what it asks.
type hostProcess struct {
	process *process.Process
	counter *apiproxy.Counter
	client  *rpc.Client
	members int
}

// startHost starts a program as the host; see [MaybeHost]. It ends the counter too.
func startHost(ctx context.Context, program, log string, counter *apiproxy.Counter,
	config hostConfig) (h *hostProcess, err error) {
	defer func() {
		if err != nil {
			err = errors.Join(err, counter.Close())
		}
	}()
	// A Unix socket's path may not be long.
	dir, err := os.MkdirTemp("", "fleet-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	config.Socket = filepath.Join(dir, "host.sock")
	listener, err := net.ListenUnix("unix", &net.UnixAddr{Name: config.Socket, Net: "unix"})
	if err != nil {
		return nil, err
	}
	defer listener.Close()
	defer context.AfterFunc(ctx, func() { _ = listener.Close() })()
	text, err := json.Marshal(config)
	if err != nil {
		return nil, err
	}
	p, err := process.Start(process.Spec{
		Name: "fleet host", Path: program, LogPath: log, Launcher: lowPriority,
		Env: hostEnvironment(string(text)),
	})
	if err != nil {
		return nil, err
	}
	_ = listener.SetDeadline(time.Now().Add(hostStarts))
	conn, err := listener.Accept()
	if err != nil {
		err = fmt.Errorf("the host of the fleet does not connect (its log is %s; the program has to call "+
			"fleet.MaybeHost first): %w", log, err)
		return nil, errors.Join(err, ctx.Err(), p.Stop(context.WithoutCancel(ctx), 0))
	}
	return &hostProcess{process: p, counter: counter, client: rpc.NewClient(conn), members: config.Members}, nil
}

// lowPriority lets the members and the API server have a core before the host, which asks them.
var lowPriority = []string{"nice", "-n", "10"}

// hostEnvironment is the environment of the host. Its memory is measured, so it has Go's default GOGC.
func hostEnvironment(config string) []string {
	return append(slices.DeleteFunc(os.Environ(), func(v string) bool { return strings.HasPrefix(v, "GOGC=") }),
		hostVariable+"="+config)
}

const (
	// hostStarts bounds the start of the host, hostEnds its end, after which it is killed:
	// coordinators release their locks within a second, many of them at once in some more.
	hostStarts = 30 * time.Second
	hostEnds   = 30 * time.Second
)

// stop lets the host end in order; when ctx has ended, it is killed.
func (h *hostProcess) stop(ctx context.Context) error {
	_ = h.client.Close()
	t := time.NewTimer(hostEnds)
	defer t.Stop()
	select {
	case <-h.process.Done():
	case <-ctx.Done():
	case <-t.C:
	}
	return errors.Join(h.process.Stop(context.WithoutCancel(ctx), 0), h.counter.Close())
}

// call calls a remote procedure; its end, or that of the host, is not waited for when ctx ends.
func (h *hostProcess) call(ctx context.Context, method string, argument int, reply any) error {
	if reply == nil {
		reply = &struct{}{}
	}
	select {
	case call := <-h.client.Go(hostService+"."+method, argument, reply, make(chan *rpc.Call, 1)).Done:
		return call.Error
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (h *hostProcess) run(ctx context.Context, cluster, ordinal int) error {
	return h.call(ctx, "Run", cluster*h.members+ordinal, nil)
}

func (h *hostProcess) end(ctx context.Context, cluster, ordinal int) error {
	return h.call(ctx, "End", cluster*h.members+ordinal, nil)
}

// reading is all figures of the host at one time.
type reading struct {
	apiproxy.Counts
	cpu time.Duration
	// anonymous is in MiB.
	anonymous float64
}

func (h *hostProcess) read() (r reading, err error) {
	r.Counts = h.counter.Read()
	if r.cpu, err = harness.ProcessorTime(h.process.PID()); err != nil {
		return r, err
	}
	memory, err := harness.MemoryOf(h.process.PID())
	r.anonymous = memory.AnonymousMiB()
	return r, err
}

// since is what was asked between two readings.
func (r reading) since(before reading) map[string]int {
	asked := map[string]int{}
	for name, n := range r.Requests {
		if n -= before.Requests[name]; n > 0 {
			asked[name] = n
		}
	}
	return asked
}
