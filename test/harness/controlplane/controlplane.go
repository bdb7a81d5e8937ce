// Package controlplane runs a Kubernetes control plane as child processes: an
// etcd for the API server, the real kube-apiserver, and the real kube-controller-manager
// with the controllers that a StatefulSet needs. There is no scheduler and no kubelet, because the node
// agent of the harness takes their place. With [Config.RealNodes] there is what real kubelets
// need: a scheduler, the controllers of nodes and volumes, and the authorizer of nodes.
//
// What a test sees is what a cluster does:
//
//   - The authorizer is RBAC, with the API server's own bootstrap policy. Only
//     [ControlPlane.AdminConfig] may do everything. Every controller acts under its own
//     ServiceAccount with the role that Kubernetes gives it.
//   - ServiceAccounts, their tokens (TokenRequest) and admission are real: a new
//     namespace gets its "default" ServiceAccount and the ConfigMap kube-root-ca.crt
//     from the controllers a moment after it was created. A controller that creates
//     pods retries until then; a test that creates a bare pod must wait.
//   - Admission plugins, API groups and the watch cache are the defaults.
//
// Two things differ from the defaults, and neither shows to a client: there is no
// priority and fairness (a queue for overloaded servers), and the etcd behind the API
// server does not wait for the disk, because nothing here outlives the machine.
//
// Processes die with the harness. Their logs stay in the directory of the control plane.
package controlplane

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/quorate/quorate/test/harness/build"
	"github.com/quorate/quorate/test/harness/pki"
	"github.com/quorate/quorate/test/harness/process"
)

const (
	// readyTimeout bounds the wait for one process when the context of the caller
	// has a later deadline or none. A start takes seconds; a crowded machine gets
	// minutes.
	readyTimeout = 3 * time.Minute
	// readyPoll is how often a starting process is asked whether it is ready.
	readyPoll = 50 * time.Millisecond
	// probeTimeout bounds one such question.
	probeTimeout = 5 * time.Second

	// issuer is the issuer of ServiceAccount tokens and their audience, as kubeadm
	// names it.
	issuer = "https://kubernetes.default.svc"

	// clusterName is the name of cluster and context in the kubeconfig files.
	clusterName = "harness"
)

// Config says what to start.
type Config struct {
	// Dir takes everything: etcd's data, keys, certificates, kubeconfig files and, in
	// its folder "logs", the logs. It is made when missing, and left behind by Close.
	// Required.
	Dir string
	// Binaries must have Kube and Etcd36.
	Binaries build.Binaries
	// BindAddress is the IP address that all processes listen on, each on a free
	// port: a loopback address, or one that pods in network namespaces can reach.
	// Required.
	BindAddress string
	// FeatureGates are set in the API server and in the controllers. Empty means
	// Kubernetes' defaults.
	FeatureGates map[string]bool
	// Controllers are those that run, by the names that kube-controller-manager's
	// --controllers takes; statefulset has to be one of them. Empty means those that a
	// StatefulSet and its pods need, and the one that checks the types of admission policies.
	Controllers []string
	// NodeMonitorGracePeriod is how long after the last heartbeat nodelifecycle takes
	// a node for lost. 0 means 50 s, Kubernetes' default.
	NodeMonitorGracePeriod time.Duration
	// RealNodes is for nodes with kubelets.
	RealNodes bool
	// Audit says whose requests [ControlPlane.Audited] tells of. By default there is no audit log.
	Audit Audit
}

// setControllers are what a StatefulSet and its pods need, and what checks the types of admission policies.
// "nodelifecycle" is not among them: without node heartbeats (Leases in kube-node-lease) it takes every node for lost.
var setControllers = []string{
	"statefulset", "job", "disruption", "garbagecollector", "serviceaccount", "root-ca-cert-publisher", "namespace",
	"pvc-protection", "endpointslice", "validatingadmissionpolicy-status-controller",
}

// nodeControllers are what real nodes need beside them.
var nodeControllers = []string{"nodelifecycle", "taint-eviction-controller", "podgc", "persistentvolume-binder",
	"pv-protection"}

func (c Config) validate() error {
	switch {
	case c.Dir == "":
		return errors.New("Config.Dir is empty; name a directory for data and logs")
	case c.Binaries.Kube == "":
		return errors.New("Config.Binaries.Kube is empty; build it with package build")
	case c.Binaries.Etcd36 == "":
		return errors.New("Config.Binaries.Etcd36 is empty; build it with package build")
	case net.ParseIP(c.BindAddress) == nil:
		return fmt.Errorf("Config.BindAddress %q is not an IP address; give one of this machine, e.g. 127.0.0.1",
			c.BindAddress)
	}
	return nil
}

// ControlPlane is a running control plane. Its methods may be called from several
// goroutines.
type ControlPlane struct {
	config Config
	url    string
	ca     *pki.CA
	admin  *rest.Config

	etcd, apiServer, controllers *component
	// scheduler is nil without real nodes.
	scheduler *component

	failed   chan struct{}
	failOnce sync.Once
	failure  error // written before failed closes
}

// Start starts the control plane and returns when it can be used: the API server reports
// ready on /readyz, its bootstrap roles exist, and the controllers begin to fill their
// caches. Whatever has been started is stopped again when Start fails.
//
// The error names the field of Config that is wrong, or the process that failed and the
// last lines of its log. The end of ctx interrupts the start; it has no effect later.
func Start(ctx context.Context, config Config) (*ControlPlane, error) {
	cp, err := start(ctx, config)
	if err != nil {
		return nil, fmt.Errorf("start control plane: %w", err)
	}
	return cp, nil
}

func start(ctx context.Context, config Config) (*ControlPlane, error) {
	if err := config.validate(); err != nil {
		return nil, err
	}
	dir, err := filepath.Abs(config.Dir)
	if err != nil {
		return nil, err
	}
	config.Dir = dir
	cp := &ControlPlane{config: config, failed: make(chan struct{})}
	if err := cp.prepare(); err != nil {
		return nil, err
	}
	for _, c := range cp.components() {
		if err := c.start(ctx); err != nil {
			return nil, errors.Join(err, cp.Close(ctx))
		}
	}
	return cp, nil
}

// components are all processes, in the order in which they start.
func (cp *ControlPlane) components() []*component {
	all := []*component{cp.etcd, cp.apiServer, cp.controllers}
	if cp.scheduler != nil {
		all = append(all, cp.scheduler)
	}
	return all
}

// prepare chooses the ports, writes every file that the processes read, and describes
// the processes.
func (cp *ControlPlane) prepare() error {
	address := cp.config.BindAddress
	ports, err := freePorts(address, 5)
	if err != nil {
		return err
	}
	etcdClient := (&url.URL{Scheme: "http", Host: net.JoinHostPort(address, ports[0])}).String()
	etcdPeer := (&url.URL{Scheme: "http", Host: net.JoinHostPort(address, ports[1])}).String()
	cp.url = (&url.URL{Scheme: "https", Host: net.JoinHostPort(address, ports[2])}).String()

	if err := cp.writeCredentials(); err != nil {
		return err
	}

	var gates []string
	for name, on := range cp.config.FeatureGates {
		gates = append(gates, name+"="+strconv.FormatBool(on))
	}
	var featureGates []string
	if len(gates) > 0 {
		slices.Sort(gates)
		featureGates = []string{"--feature-gates=" + strings.Join(gates, ",")}
	}

	cp.etcd = cp.newComponent("kube-etcd", cp.config.Binaries.Etcd36, []string{
		"--name=kube",
		"--data-dir=" + cp.path("etcd"),
		"--listen-client-urls=" + etcdClient, "--advertise-client-urls=" + etcdClient,
		"--listen-peer-urls=" + etcdPeer, "--initial-advertise-peer-urls=" + etcdPeer,
		"--initial-cluster=kube=" + etcdPeer,
		"--unsafe-no-fsync",
		"--log-level=warn",
	}, probeHTTP(etcdClient+"/health", nil, "true"))

	authorizers, nodeFlags := "RBAC", []string(nil)
	if cp.config.RealNodes {
		// A kubelet may do what the pods on its node need, and its certificate is its own.
		authorizers = "Node,RBAC"
		nodeFlags = []string{"--enable-admission-plugins=NodeRestriction", "--allow-privileged",
			"--kubelet-preferred-address-types=InternalIP"}
	}
	auditFlags, err := cp.auditFlags()
	if err != nil {
		return fmt.Errorf("write the audit policy: %w", err)
	}
	cp.apiServer = cp.newComponent("kube-apiserver", cp.config.Binaries.Kube, append([]string{
		"apiserver",
		"--etcd-servers=" + etcdClient,
		"--bind-address=" + address, "--secure-port=" + ports[2],
		// The endpoints of the Service "kubernetes" may not be loopback addresses, and
		// no pod here looks them up.
		"--advertise-address=" + address, "--endpoint-reconciler-type=none",
		"--external-hostname=" + address,
		"--service-cluster-ip-range=10.96.0.0/16",
		"--cert-dir=" + cp.path("pki"),
		"--tls-cert-file=" + cp.path("pki", "apiserver.crt"), "--tls-private-key-file=" +
			cp.path("pki", "apiserver.key"),
		"--client-ca-file=" + cp.path("pki", "ca.crt"),
		"--authorization-mode=" + authorizers,
		"--service-account-issuer=" + issuer,
		"--service-account-signing-key-file=" + cp.path("pki", "sa.key"),
		"--service-account-key-file=" + cp.path("pki", "sa.pub"),
		"--enable-priority-and-fairness=false",
		"--profiling=false",
	}, slices.Concat(nodeFlags, auditFlags, featureGates)...), nil)
	adminClient, err := rest.HTTPClientFor(cp.admin)
	if err != nil {
		return fmt.Errorf("make the client of the readiness probe: %w", err)
	}
	cp.apiServer.ready = probeHTTP(cp.url+"/readyz", adminClient, "ok")

	controllers := cp.config.Controllers
	if len(controllers) == 0 {
		controllers = setControllers
	}
	if cp.config.RealNodes {
		controllers = slices.Concat(controllers, nodeControllers)
	}
	args := append([]string{
		"controllers",
		"--kubeconfig=" + cp.path("pki", "controllers.kubeconfig"),
		"--controllers=" + strings.Join(controllers, ","),
		// Every controller acts under its own ServiceAccount, with just the rights it has in a
		// cluster.
		"--use-service-account-credentials",
		"--root-ca-file=" + cp.path("pki", "ca.crt"),
		// The controllers of one small cluster cannot flood the API server; a limit would only
		// stretch the tests.
		"--kube-api-qps=-1",
		"--leader-elect=false",
		"--bind-address=" + address, "--secure-port=" + ports[3],
		"--tls-cert-file=" + cp.path("pki", "apiserver.crt"), "--tls-private-key-file=" +
			cp.path("pki", "apiserver.key"),
	}, featureGates...)
	if cp.config.NodeMonitorGracePeriod > 0 {
		args = append(args, "--node-monitor-grace-period="+cp.config.NodeMonitorGracePeriod.String())
	}
	if cp.config.RealNodes {
		args = append(args, "--node-monitor-period=1s")
	}
	// The controllers are listed from when all of them have been made.
	health := url.URL{Scheme: "https", Host: net.JoinHostPort(address, ports[3]), Path: "/healthz", RawQuery: "verbose"}
	cp.controllers = cp.newComponent("kube-controllers", cp.config.Binaries.Kube, args,
		probeHTTP(health.String(), adminClient, "[+]statefulset-controller ok"))
	if cp.config.RealNodes {
		config := cp.path("pki", "scheduler.kubeconfig")
		health := url.URL{Scheme: "https", Host: net.JoinHostPort(address, ports[4]), Path: "/readyz"}
		cp.scheduler = cp.newComponent("kube-scheduler", cp.config.Binaries.Kube, append([]string{
			"scheduler",
			"--kubeconfig=" + config, "--authentication-kubeconfig=" + config, "--authorization-kubeconfig=" + config,
			"--leader-elect=false",
			"--bind-address=" + address, "--secure-port=" + ports[4],
			"--tls-cert-file=" + cp.path("pki", "apiserver.crt"), "--tls-private-key-file=" +
				cp.path("pki", "apiserver.key"),
		}, featureGates...), probeHTTP(health.String(), adminClient, "ok"))
		// A scheduler ends itself when its cache is wrong, as after an outage of the API server. Its kubelet starts it
		// again then.
		cp.scheduler.again = time.Second
	}
	return nil
}

// writeCredentials makes the certificate authority, keys and kubeconfig files.
func (cp *ControlPlane) writeCredentials() error {
	if err := os.MkdirAll(cp.path("pki"), 0o700); err != nil {
		return err
	}
	ca, err := pki.NewCA("kubernetes-ca")
	if err != nil {
		return err
	}
	cp.ca = ca
	serverCert, serverKey, err := ca.Issue(pki.Request{
		CommonName: "kube-apiserver", Server: true,
		DNSNames: []string{"localhost", "kubernetes", "kubernetes.default", "kubernetes.default.svc"},
		IPs:      []net.IP{net.ParseIP(cp.config.BindAddress), net.IPv4(127, 0, 0, 1)},
	})
	if err != nil {
		return err
	}
	signingKey, verifyingKey, err := pki.NewSigningKey()
	if err != nil {
		return err
	}
	for name, content := range map[string][]byte{
		"ca.crt": cp.CAPEM(), "apiserver.crt": serverCert, "apiserver.key": serverKey,
		"sa.key": signingKey, "sa.pub": verifyingKey,
	} {
		if err := os.WriteFile(cp.path("pki", name), content, 0o600); err != nil {
			return err
		}
	}
	// The group is bound to cluster-admin by the API server's bootstrap policy.
	cp.admin, err = cp.userConfig(ca, "admin", "system:masters")
	if err != nil {
		return err
	}
	if err := cp.writeKubeconfig(cp.KubeconfigPath(), "admin", cp.admin); err != nil {
		return err
	}
	// The user of the controllers has just the right to act through their ServiceAccounts.
	for name, user := range map[string]string{
		"controllers": "system:kube-controller-manager", "scheduler": "system:kube-scheduler",
	} {
		config, err := cp.userConfig(ca, user)
		if err != nil {
			return err
		}
		if err := cp.writeKubeconfig(cp.path("pki", name+".kubeconfig"), name, config); err != nil {
			return err
		}
	}
	return nil
}

// NodeKubeconfig writes the kubeconfig file of a node's kubelet, and returns its path.
func (cp *ControlPlane) NodeKubeconfig(node string) (string, error) {
	config, err := cp.userConfig(cp.ca, "system:node:"+node, "system:nodes")
	if err != nil {
		return "", err
	}
	path := cp.path("pki", node+".kubeconfig")
	return path, cp.writeKubeconfig(path, node, config)
}

func (cp *ControlPlane) userConfig(ca *pki.CA, user string, groups ...string) (*rest.Config, error) {
	cert, key, err := ca.Issue(pki.Request{CommonName: user, Organizations: groups, Client: true})
	if err != nil {
		return nil, err
	}
	config := cp.TokenConfig("")
	config.CertData, config.KeyData = cert, key
	return config, nil
}

func (cp *ControlPlane) writeKubeconfig(path, user string, config *rest.Config) error {
	return clientcmd.WriteToFile(clientcmdapi.Config{
		Clusters: map[string]*clientcmdapi.Cluster{clusterName: {Server: cp.url, CertificateAuthorityData: cp.CAPEM()}},
		AuthInfos: map[string]*clientcmdapi.AuthInfo{user: {
			ClientCertificateData: config.CertData, ClientKeyData: config.KeyData,
		}},
		Contexts:       map[string]*clientcmdapi.Context{clusterName: {Cluster: clusterName, AuthInfo: user}},
		CurrentContext: clusterName,
	}, path)
}

func (cp *ControlPlane) path(elements ...string) string {
	return filepath.Join(append([]string{cp.config.Dir}, elements...)...)
}

// URL returns the address of the API server, which stays the same over restarts.
func (cp *ControlPlane) URL() string { return cp.url }

// CAPEM returns the certificate authority of the API server, PEM-encoded.
func (cp *ControlPlane) CAPEM() []byte { return cp.ca.CertPEM() }

// CA returns the certificate authority of the API server. Pods have its certificate from the ConfigMap
// kube-root-ca.crt, so whatever stands before the API server needs a certificate of it too.
func (cp *ControlPlane) CA() *pki.CA { return cp.ca }

// AdminConfig returns a new client configuration of a cluster admin, without a
// client-side rate limit and without a proxy.
func (cp *ControlPlane) AdminConfig() *rest.Config { return rest.CopyConfig(cp.admin) }

// TokenConfig returns a new client configuration for the owner of the bearer token, e.g. a
// ServiceAccount; of system:anonymous when it is empty. Like AdminConfig's, it has no
// client-side rate limit and no proxy.
func (cp *ControlPlane) TokenConfig(token string) *rest.Config {
	return &rest.Config{
		Host:            cp.url,
		BearerToken:     token,
		TLSClientConfig: rest.TLSClientConfig{CAData: cp.CAPEM()},
		QPS:             -1,
		// A proxy in the environment is meant for the outside world.
		Proxy: http.ProxyURL(nil),
	}
}

// KubeconfigPath returns the path of a kubeconfig file of a cluster admin, for a look
// from outside while a test runs.
func (cp *ControlPlane) KubeconfigPath() string { return cp.path("admin.kubeconfig") }

// PIDs returns the process IDs of the running processes by name (kube-etcd,
// kube-apiserver, kube-controllers), e.g. to look at their memory.
func (cp *ControlPlane) PIDs() map[string]int {
	pids := map[string]int{}
	for _, c := range cp.components() {
		if pid, running := c.pid(); running {
			pids[c.name] = pid
		}
	}
	return pids
}

// StopAPIServer kills the API server, as a crash does: connections break, and new ones
// are refused. Objects are kept. Stopping a stopped API server does nothing.
//
// There is no orderly end to choose from: after SIGTERM an API server waits for a minute
// for the watches of its clients.
func (cp *ControlPlane) StopAPIServer(ctx context.Context) error {
	return cp.apiServer.stop(ctx)
}

// StartAPIServer starts the API server again, on its old port with its old objects, and
// returns when it is ready. Clients and controllers find back by themselves, with the
// back-offs they have in a cluster. Starting a running API server does nothing.
func (cp *ControlPlane) StartAPIServer(ctx context.Context) error { return cp.apiServer.start(ctx) }

// PauseAPIServer stops the API server with SIGSTOP: connections stay open, and nobody
// answers. The error says that it does not run.
func (cp *ControlPlane) PauseAPIServer() error { return cp.apiServer.signal(syscall.SIGSTOP) }

// ResumeAPIServer lets a paused API server go on where it was.
func (cp *ControlPlane) ResumeAPIServer() error { return cp.apiServer.signal(syscall.SIGCONT) }

// PauseControllers stops all controllers with SIGSTOP, the disruption controller among them:
// what is deleted is not recreated, and no PodDisruptionBudget's status follows. The error says
// that they do not run.
func (cp *ControlPlane) PauseControllers() error { return cp.controllers.signal(syscall.SIGSTOP) }

// ResumeControllers lets paused controllers go on where they were.
func (cp *ControlPlane) ResumeControllers() error { return cp.controllers.signal(syscall.SIGCONT) }

// Failed returns a channel that closes when a process of the control plane has ended
// although nobody stopped it. Err says which.
func (cp *ControlPlane) Failed() <-chan struct{} { return cp.failed }

// Err returns nil until Failed is closed, then which process ended and the last lines of
// its log.
func (cp *ControlPlane) Err() error {
	select {
	case <-cp.failed:
		return cp.failure
	default:
		return nil
	}
}

func (cp *ControlPlane) fail(err error) {
	cp.failOnce.Do(func() {
		cp.failure = err
		close(cp.failed)
	})
}

// Close kills all processes and returns when they are gone. They get no grace: all that
// they could still do is write to data that nobody reads again. Closing twice does
// nothing.
func (cp *ControlPlane) Close(ctx context.Context) error {
	return errors.Join(
		cp.scheduler.stop(ctx),
		cp.controllers.stop(ctx),
		cp.apiServer.stop(ctx),
		cp.etcd.stop(ctx),
	)
}

// component is one process of the control plane, which can be stopped and started
// again.
type component struct {
	name, path, log, dir string
	args, env            []string
	ready                func(ctx context.Context) error
	failed               func(error)
	// again is how long a process that ends by itself stays away. Otherwise it was not to end.
	again time.Duration

	// changing is held while the component starts or stops.
	changing sync.Mutex

	mu      sync.Mutex
	running *process.Process
	watched chan struct{} // closes when nobody watches running any more
	release chan struct{} // closing it says that the end of running is wanted
}

func (cp *ControlPlane) newComponent(name, path string, args []string, ready func(context.Context) error) *component {
	return &component{
		name: name, path: path, args: args, ready: ready, failed: cp.fail,
		dir: cp.config.Dir, log: cp.path("logs", name+".log"),
		// Nothing of the caller's environment but what a Unix program may expect: a
		// proxy or a Kubernetes variable would change what the processes do.
		env: []string{"PATH=" + os.Getenv("PATH"), "HOME=" + cp.config.Dir, "TMPDIR=" + os.TempDir()},
	}
}

// start starts the process and waits until it is ready; a process that does not get ready
// is killed.
func (c *component) start(ctx context.Context) error {
	c.changing.Lock()
	defer c.changing.Unlock()
	if c.current() != nil {
		return nil
	}
	started, err := process.Start(c.spec())
	if err != nil {
		return err
	}
	if err := c.awaitReady(ctx, started); err != nil {
		// Detached: the process must go even when the caller has given up.
		return errors.Join(err, started.Stop(context.WithoutCancel(ctx), 0))
	}
	c.watch(started)
	return nil
}

func (c *component) spec() process.Spec {
	return process.Spec{Name: c.name, Path: c.path, Args: c.args, Env: c.env, Dir: c.dir, LogPath: c.log}
}

func (c *component) awaitReady(ctx context.Context, p *process.Process) error {
	ctx, cancel := context.WithTimeout(ctx, readyTimeout)
	defer cancel()
	ticker := time.NewTicker(readyPoll)
	defer ticker.Stop()
	began := time.Now()
	for {
		probe, cancelProbe := context.WithTimeout(ctx, probeTimeout)
		err := c.ready(probe)
		cancelProbe()
		if err == nil {
			return nil
		}
		select {
		case <-p.Done():
			return c.ended(p)
		case <-ctx.Done():
			return fmt.Errorf("%s is not ready after %s: %w; the last probe said: %w%s",
				c.name, time.Since(began).Round(time.Millisecond), ctx.Err(), err, logTail(c.log))
		case <-ticker.C:
		}
	}
}

// watch reports the end of the process unless it is wanted, or starts it again.
func (c *component) watch(p *process.Process) {
	watched, release := make(chan struct{}), make(chan struct{})
	c.mu.Lock()
	c.running, c.watched, c.release = p, watched, release
	c.mu.Unlock()
	go func() {
		defer close(watched)
		for p != nil {
			select {
			case <-release:
				return
			case <-p.Done():
			}
			p = c.revive(p, release)
		}
	}()
}

// revive starts a process again that has ended, if it is one for that. It returns nil if nothing more is to be watched.
func (c *component) revive(p *process.Process, release <-chan struct{}) *process.Process {
	timer := time.NewTimer(c.again)
	defer timer.Stop()
	select {
	case <-release:
		return nil
	case <-timer.C:
	}
	select {
	case <-release:
		return nil
	default:
	}
	err := c.ended(p)
	if c.again > 0 {
		var next *process.Process
		if next, err = process.Start(c.spec()); err == nil {
			c.mu.Lock()
			c.running = next
			c.mu.Unlock()
			return next
		}
	}
	c.failed(err)
	return nil
}

func (c *component) ended(p *process.Process) error {
	return fmt.Errorf("%s ended by itself with exit code %d%s", c.name, p.ExitCode(), logTail(c.log))
}

func (c *component) stop(ctx context.Context) error {
	if c == nil {
		return nil
	}
	c.changing.Lock()
	defer c.changing.Unlock()
	c.mu.Lock()
	p, watched, release := c.running, c.watched, c.release
	c.mu.Unlock()
	if p == nil {
		return nil
	}
	close(release)
	<-watched
	c.mu.Lock()
	p, c.running = c.running, nil // It may have been started again until then.
	c.mu.Unlock()
	return p.Stop(ctx, 0)
}

// current returns the process if it runs.
func (c *component) current() *process.Process {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.running == nil {
		return nil
	}
	select {
	case <-c.running.Done():
		return nil
	default:
		return c.running
	}
}

func (c *component) pid() (pid int, running bool) {
	p := c.current()
	if p == nil {
		return 0, false
	}
	return p.PID(), true
}

func (c *component) signal(sig syscall.Signal) error {
	p := c.current()
	if p == nil {
		return fmt.Errorf("%s does not run; start it first", c.name)
	}
	return p.Signal(sig)
}
