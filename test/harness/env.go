// Package harness runs etcd clusters with Quorate's sidecars on real parts, on one
// Linux machine: a real kube-apiserver with the real StatefulSet controller, real etcd
// processes, and the real quorate binary with its real Role and TLS.
//
// [Start] brings up an [Env]: the control plane, a network that gives every pod an
// address, and a node agent that runs pods as local processes. [Env.CreateCluster]
// creates a StatefulSet like etcd-druid's in it. A [Cluster] can be changed as an
// operator would, broken in many ways, watched ([Cluster.Watch] records what its pods did
// and when, [Cluster.WatchRecord] what the record went through) and put under load
// ([Cluster.TrafficConfig]).
//
// All sidecars talk to the API server through [Env.API], which counts what they ask and
// lets a test get in the way of a single request (see package apiproxy).
//
// With [Options.Hosts], the pods can be those that Quorate is made for. [Env.StartDruid] starts the real etcd-druid,
// and [Env.CreateEtcd] creates an Etcd, which etcd-druid makes into a StatefulSet of etcd-wrapper and
// etcd-backup-restore. It is a [Cluster] like any other, but for its changes: etcd-druid's webhook lets nobody else
// write the StatefulSet, so [Cluster.ChangeEtcd] merges a patch into the Etcd and waits until etcd-druid has applied
// it. [Env.InstallPolicy] applies deploy/druid, and [Cluster.Grant] the Role. The sidecar with Quorate is the image
// [DropIn]. An Etcd has it in spec.backup.image, and opts in by [OptInAnnotation] in spec.annotations. Where the
// hosts cannot be had, [Start] says so with build.ErrNoHosts, and the test is skipped.
//
// A program that uses the harness calls [Launcher] first thing in main or TestMain, and
// [Enter] if it wants [Namespaces].
package harness

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"
	"k8s.io/client-go/kubernetes"

	"github.com/quorate/quorate/test/harness/apiproxy"
	"github.com/quorate/quorate/test/harness/build"
	"github.com/quorate/quorate/test/harness/controlplane"
	"github.com/quorate/quorate/test/harness/disk"
	"github.com/quorate/quorate/test/harness/druid"
	"github.com/quorate/quorate/test/harness/kubelet"
	"github.com/quorate/quorate/test/harness/network"
	"github.com/quorate/quorate/test/harness/node"
)

// Mode is how pods get their addresses.
type Mode string

// The network modes.
const (
	// Loopback gives every pod an address in 127.0.0.0/8. It needs no privileges; pod
	// names do not resolve and links cannot be cut.
	Loopback Mode = "loopback"
	// Namespaces gives every pod a network namespace and a DNS of its own, so that
	// per-pod names resolve and links can be cut. It needs root.
	Namespaces Mode = "namespaces"
)

// The images that pods can have; each is a local binary.
const (
	Etcd34 = "etcd:3.4.34"
	Etcd35 = "etcd:3.5.35"
	Etcd36 = "etcd:3.6.16"
	// Etcd37 is there only where [EtcdUpgrade] says so.
	Etcd37 = "etcd:3.7.3"
	// Sidecar is the quorate binary of this checkout. SidecarNext is the same binary
	// under another tag, as a new release would be (see [ImageVariable] and [PreviousVariable]).
	Sidecar     = "quorate:current"
	SidecarNext = "quorate:next"
	// DropIn is etcd-backup-restore with Quorate inside, as an Etcd names it.
	DropIn = "registry.example/etcdbrctl-quorate:0.43.0"
	// Missing is an image that no registry has.
	Missing = "etcd:missing"
)

// EtcdUpgrade is the image of etcd that clusters run unless their Spec says otherwise, and that of the next minor
// version. It begins with etcd 3.5, or with the release that [build.EtcdVariable] names. The newest minor version has
// no next, so it leads to the same image.
func EtcdUpgrade() (from, to string) {
	from = Etcd35
	if version := os.Getenv(build.EtcdVariable); version != "" {
		from = etcdName + version
	}
	to = from
	for _, step := range [][2]string{{"3.4.", Etcd35}, {"3.5.", Etcd36}, {"3.6.", Etcd37}} {
		if strings.HasPrefix(from, etcdName+step[0]) {
			to = step[1]
		}
	}
	return from, to
}

// etcdName is how the images of etcd are called, before their version.
const etcdName = "etcd:"

// Options say what to start.
type Options struct {
	// Dir gets all logs, and all data that is not in memory. It is required, and Close leaves it behind.
	Dir string
	// Network is Loopback when empty.
	Network Mode
	// Nodes is how many nodes there are, one for each ordinal. Default 3.
	Nodes int
	// FeatureGates are Kubernetes' feature gates for API server and controllers.
	FeatureGates map[string]bool
	// Patient has the nodes wait as long as a kubelet does before they restart a container that has crashed, or look
	// again for an image that is missing: ten seconds, doubled up to five minutes. Otherwise they wait for one second,
	// doubled up to eight, so that tests take no longer than they have to.
	Patient bool
	// InMemory keeps the pods' volumes in memory, in a program that has its own mounts (see [Enter]). A disk that
	// stands still for a second takes the quorum of every cluster on it. That is no fault of what is tested, and
	// nothing is tested less without a disk: processes end here, but the machine does not.
	InMemory bool
	// NodeAddresses gives every node an address of its own, which refuses connections, and which a zone can be cut off
	// from. Otherwise all nodes have the hub's, which every pod reaches. It needs Namespaces.
	NodeAddresses bool
	// RealNodes has real kubelets run the pods, on as many nodes (see [RealNodes]). Network has no effect then.
	RealNodes bool
	// Resolver is what several environments with real nodes share that are there at the same time.
	Resolver *kubelet.Resolver
	// Audit has the API server log what sidecars and the StatefulSet controller ask of it, for [Cluster.Audited].
	Audit bool
	// Hosts builds etcd-druid and the programs of its pods too. It needs Namespaces.
	Hosts bool
	// Binaries are programs that have been built. Then nothing is built, and of the others there are no images.
	Binaries *build.Binaries
	// Progress is told what is being done. Nil means silence.
	Progress func(line string)
}

// Env is a running control plane with nodes.
type Env struct {
	Dir      string
	Binaries build.Binaries
	Plane    *controlplane.ControlPlane
	// API is what all sidecars talk to, in place of the API server itself.
	API     *apiproxy.Proxy
	Network Network
	Nodes   Nodes
	// Client acts as cluster administrator.
	Client kubernetes.Interface
	// Timeline is Dir/timeline.log.
	Timeline *Timeline

	mode  Mode
	ports ports
	// nodeAddresses is true if every node has an address of its own.
	nodeAddresses bool
	// servers are the programs of etcd by their images.
	servers map[string]string
	// closers undo what Start did, the last first.
	closers []func(context.Context) error
}

// ports are where every etcd listens at its pod's address.
type ports struct{ client, peer, metrics int }

// druidPorts are etcd-druid's.
var druidPorts = ports{client: 2379, peer: 2380, metrics: 9095}

// Start builds what is not built yet, and starts everything. If it fails, nothing is left running.
func Start(ctx context.Context, o Options) (env *Env, err error) {
	say := o.Progress
	if say == nil {
		say = func(string) {}
	}
	if o.Nodes == 0 {
		o.Nodes = 3
	}
	if o.Dir, err = filepath.Abs(o.Dir); err != nil {
		return nil, err
	}
	if err := os.MkdirAll(o.Dir, 0o755); err != nil {
		return nil, err
	}
	e := &Env{Dir: o.Dir, mode: o.Network}
	if e.Timeline, err = startTimeline(filepath.Join(o.Dir, "timeline.log")); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			stopping, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Minute)
			defer cancel()
			err = errors.Join(err, e.Close(stopping))
			env = nil
		}
	}()

	if o.Binaries != nil {
		e.Binaries, e.servers = *o.Binaries, servers(*o.Binaries)
	} else if err := e.build(ctx, o.Hosts, say); err != nil {
		return nil, fmt.Errorf("build the binaries: %w", err)
	}
	makeNetwork := e.makeNetwork
	if o.RealNodes {
		makeNetwork = func() error { return e.makeKubeletNetwork(o.Resolver) }
	}
	if err := makeNetwork(); err != nil {
		return nil, fmt.Errorf("make the network: %w", err)
	}
	e.onClose(func(context.Context) error { return e.Network.Close() })

	say("starting kube-apiserver, its etcd and the controllers")
	plane := controlplane.Config{
		Dir: filepath.Join(o.Dir, "control-plane"), Binaries: e.Binaries,
		BindAddress: e.Network.HubAddress(), FeatureGates: o.FeatureGates, RealNodes: e.real(),
	}
	if o.Audit {
		plane.Audit = audit
	}
	if plane.RealNodes {
		plane.NodeMonitorGracePeriod = kubelet.NodeMonitorGracePeriod
	}
	e.Plane, err = controlplane.Start(ctx, plane)
	if err != nil {
		return nil, fmt.Errorf("start the control plane: %w", err)
	}
	e.onClose(e.Plane.Close)
	if e.Client, err = kubernetes.NewForConfig(e.Plane.AdminConfig()); err != nil {
		return nil, err
	}

	proxied, port := e.Network.HubAddress(), 0
	if n, ok := e.Network.(*kubelet.Network); ok && n.ServiceAddress() != "" {
		proxied, port = n.ServiceAddress(), 443
	}
	e.API, err = apiproxy.Start(apiproxy.Config{
		BindAddress: proxied, Port: port, Upstream: e.Plane.URL(), UpstreamCA: e.Plane.CAPEM(),
		CA: e.Plane.CA(),
		OnAnswer: func(r apiproxy.Record) {
			if r.Mutates() {
				e.Timeline.Note("api", "%s", r)
			}
		},
	})
	if err != nil {
		return nil, err
	}
	e.onClose(e.API.Close)
	if n, ok := e.Network.(Links); ok {
		stop, err := e.publishServices(context.WithoutCancel(ctx), n)
		if err != nil {
			return nil, err
		}
		e.onClose(func(context.Context) error { stop(); return nil })
	}

	if !o.RealNodes {
		say("starting the nodes: an agent runs their pods as processes")
	}
	if o.InMemory && network.InNamespace() {
		volumes, err := disk.New(e.VolumesDir(), mostVolumes, false)
		if err != nil {
			return nil, fmt.Errorf("keep the volumes in memory: %w", err)
		}
		e.onClose(func(context.Context) error { return volumes.Close() })
	}
	switch n := e.Network.(type) {
	case *kubelet.Network:
		err = e.startKubelets(ctx, o, n)
	case network.Network:
		err = e.startAgent(ctx, o, n)
	}
	if err != nil {
		return nil, fmt.Errorf("start the nodes: %w", err)
	}
	return e, nil
}

// nodeSpace is the namespace, in the network alone, of the nodes' own addresses.
const nodeSpace = kubelet.NodeSpace

// patientBase and patientCap are what a kubelet waits before it restarts a container.
const patientBase, patientCap = 10 * time.Second, 5 * time.Minute

// nodeAddress is the address of a node that has its own: nothing listens there.
func (e *Env) nodeAddress(n network.Network, name string) string {
	at, err := n.Attach(context.Background(), network.Pod{Namespace: nodeSpace, Name: name, UID: name})
	if err != nil {
		e.Timeline.Note("node", "%s has no address of its own: %v", name, err)
		return n.HubAddress()
	}
	return at.IP
}

// nodesFolder is the folder of the nodes, in that of the environment.
const nodesFolder = "nodes"

func (e *Env) nodesDir() string { return filepath.Join(e.Dir, nodesFolder) }

// VolumesDir is the folder with the data of all claims.
func (e *Env) VolumesDir() string { return node.VolumesDir(e.nodesDir()) }

// mostVolumes is the most memory that volumes may take. A member's take 0.2 GiB, and only while its cluster is there.
const mostVolumes = 8 << 30

// ImageVariable and PreviousVariable are environment variables that let SidecarNext and Sidecar be different releases.
// The first names an archive with Quorate's image, as a release has it: real nodes then run that one as SidecarNext.
// The second names a binary of an older release, which is Sidecar.
const (
	ImageVariable    = "QUORATE_IMAGE"
	PreviousVariable = "QUORATE_PREVIOUS"
)

// nonRoot is the user of Quorate's image, and of the hosts'.
const nonRoot = 65532

// images are what pods can run, by the images' names.
func (e *Env) images() map[string]node.Image {
	images := map[string]node.Image{
		Sidecar:     {Program: cmp.Or(os.Getenv(PreviousVariable), e.Binaries.Quorate), User: nonRoot},
		SidecarNext: {Program: e.Binaries.Quorate, User: nonRoot, Archive: os.Getenv(ImageVariable)},
	}
	have := func(image, program string, user int) {
		if program != "" {
			images[image] = node.Image{Program: program, User: user}
		}
	}
	for image, program := range e.servers {
		have(image, program, 0)
	}
	if e.Binaries.Druid != "" {
		images[druid.Alpine] = node.Image{}
		for name, program := range map[string]string{
			druid.Wrapper34: e.Binaries.Wrapper34, druid.Wrapper35: e.Binaries.Wrapper35,
			druid.BackupRestore: e.Binaries.BackupRestore, druid.BackupRestoreNext: e.Binaries.BackupRestoreNext,
			DropIn: e.Binaries.DropIn,
		} {
			have(name, program, nonRoot)
		}
	}
	return images
}

// build builds everything.
func (e *Env) build(ctx context.Context, hosts bool, say func(string)) (err error) {
	if e.Binaries, err = build.All(ctx, say); err != nil {
		return err
	}
	if e.servers, err = buildServers(ctx, say, e.Binaries); err != nil {
		return err
	}
	if hosts {
		return e.buildHosts(ctx, say)
	}
	return nil
}

// servers are the programs of etcd among the binaries, by their images.
func servers(built build.Binaries) map[string]string {
	return map[string]string{Etcd34: built.Etcd34, Etcd35: built.Etcd35, Etcd36: built.Etcd36}
}

// buildServers returns the programs of etcd by their images. It builds the releases that clusters begin with and are
// upgraded to, unless they are among the binaries that have been built.
func buildServers(ctx context.Context, say func(string), built build.Binaries) (map[string]string, error) {
	servers := servers(built)
	from, to := EtcdUpgrade()
	for _, image := range []string{from, to} {
		if servers[image] != "" {
			continue
		}
		program, err := build.Etcd(ctx, say, build.Release{Version: strings.TrimPrefix(image, etcdName)})
		if err != nil {
			return nil, err
		}
		servers[image] = program
	}
	return servers, nil
}

// buildHosts builds the hosts. The other binaries have been built.
func (e *Env) buildHosts(ctx context.Context, say func(string)) error {
	hosts, err := build.Some(ctx, say, build.Hosts...)
	if err != nil {
		return err
	}
	e.Binaries.Druid, e.Binaries.Wrapper34, e.Binaries.Wrapper35 = hosts.Druid, hosts.Wrapper34, hosts.Wrapper35
	e.Binaries.BackupRestore, e.Binaries.BackupRestoreNext = hosts.BackupRestore, hosts.BackupRestoreNext
	e.Binaries.DropIn = hosts.DropIn
	return nil
}

// makeNetwork makes the network, and finds the ports that are free in it. If every pod has its own
// network, all ports are free.
func (e *Env) makeNetwork() (err error) {
	e.ports = druidPorts
	if e.mode == Namespaces {
		e.Network, err = network.NewNamespaces(filepath.Join(e.Dir, "network"))
		return err
	}
	loopback, err := network.NewLoopback()
	if err != nil {
		return err
	}
	free, err := loopback.Ports(druidPorts.client, druidPorts.peer, druidPorts.metrics)
	if err != nil {
		return errors.Join(err, loopback.Close())
	}
	e.Network, e.ports = loopback, ports{client: free[0], peer: free[1], metrics: free[2]}
	if e.ports != druidPorts {
		e.Timeline.Note("harness", "another server of the machine has a port of etcd's: %+v in the place of %+v",
			e.ports, druidPorts)
	}
	return nil
}

func (e *Env) onClose(f func(context.Context) error) { e.closers = append(e.closers, f) }

// Discard removes the folder of an environment that was not closed.
func Discard(dir string) error {
	for unix.Unmount(node.VolumesDir(filepath.Join(dir, nodesFolder)), unix.MNT_DETACH) == nil {
		// The volumes may be mounted twice: in memory, and for real nodes.
	}
	return os.RemoveAll(dir)
}

// Close stops everything, last started first, and ends the timeline. No process is left
// behind.
func (e *Env) Close(ctx context.Context) error {
	var errs []error
	for len(e.closers) > 0 {
		last := len(e.closers) - 1
		errs = append(errs, e.closers[last](ctx))
		e.closers = e.closers[:last]
	}
	return errors.Join(append(errs, e.Timeline.close())...)
}
