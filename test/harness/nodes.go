package harness

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"syscall"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/quorate/quorate/test/harness/build"
	"github.com/quorate/quorate/test/harness/druid"
	"github.com/quorate/quorate/test/harness/kubelet"
	"github.com/quorate/quorate/test/harness/network"
	"github.com/quorate/quorate/test/harness/node"
)

// Nodes are what pods run on: the node agent ([node.Agent]), or real kubelets ([kubelet.Nodes]). Both say what the
// methods do. A pod is named by its name, or as namespace/name.
type Nodes interface {
	// Processes of containers.
	KillContainer(pod, container string, sig syscall.Signal) error
	Exec(ctx context.Context, pod, container string, args ...string) (code int, output string, err error)
	PID(pod, container string) (pid int, running bool)
	// Files of pods.
	ClaimDir(namespace, claim string) string
	HostDir(node, path string) string
	LogDir(pod string) string
	LogOf(pod *corev1.Pod, path string) bool
	// Nodes as an operator and as fate treats them.
	Cordon(ctx context.Context, node string, cordoned bool) error
	LoseNode(ctx context.Context, node string, how node.Loss) error
	RestoreNode(ctx context.Context, node string) error
	Reboot(ctx context.Context, node string, starts time.Duration) error

	Close(ctx context.Context) error
}

var (
	_ Nodes = (*node.Agent)(nil)
	_ Nodes = (*kubelet.Nodes)(nil)
)

// Network is how pods are reached.
type Network interface {
	// HubAddress is where the harness listens, and AddressOf where a pod is.
	HubAddress() string
	AddressOf(namespace, pod string) string
	Close() error
}

// Links are what a network with [Namespaces] has besides: names and links that can be changed. An end of a link is
// named as namespace/name.
type Links interface {
	Cut(a, b string) error
	Heal(a, b string) error
	Isolate(pod string) error
	Rejoin(pod string) error
	Redirect(name, address string) error
	SetService(namespace, name string, addresses ...string) error
}

var (
	_ Links = (*network.Namespaces)(nil)
	_ Links = (*kubelet.Network)(nil)
)

// NodesVariable is the environment variable that says what pods run on, see package kubelet.
const NodesVariable = kubelet.NodesVariable

// RealNodes reports whether [NodesVariable] asks for real nodes that can be had. If they cannot be had, it says so in
// one line, and ends the program if they are required.
func RealNodes(ctx context.Context, say func(line string)) bool {
	if !kubelet.Asked() {
		return false
	}
	err := RealNodesAvailable(ctx, say)
	switch {
	case err == nil:
		return true
	case kubelet.Required():
		say(fmt.Sprintf("there are no real nodes, and %s requires them: %v", kubelet.RequireVariable, err))
		os.Exit(1)
	}
	say(fmt.Sprintf("there are no real nodes, so that the node agent takes their place: %v", err))
	return false
}

// RealNodesAvailable says why there can be no real nodes here. It is nil if there can, and then what they need has been
// fetched.
func RealNodesAvailable(ctx context.Context, say func(line string)) error {
	err := NamespacesAvailable()
	if err == nil {
		err = kubelet.Available()
	}
	if err == nil {
		_, err = build.Runtime(ctx, say)
	}
	return err
}

// startKubelets starts real nodes.
func (e *Env) startKubelets(ctx context.Context, o Options, n *kubelet.Network) error {
	runtime, err := build.Runtime(ctx, o.Progress)
	if err != nil {
		return err
	}
	versions, err := kubelet.Versions(ctx, e.Binaries.Kube, runtime)
	if err != nil {
		return err
	}
	if o.Progress != nil {
		o.Progress("starting the nodes: " + versions)
	}
	nodes, err := kubelet.Start(ctx, kubelet.Config{
		Admin: e.Plane.AdminConfig(), Kubeconfig: e.Plane.NodeKubeconfig, Kube: e.Binaries.Kube, Runtime: runtime,
		Images: e.images(), Dir: e.nodesDir(), Nodes: o.Nodes, Network: n, SharedPaths: []string{druid.LocalStore},
		Patient: o.Patient,
		OnEvent: func(format string, args ...any) { e.Timeline.Note("node", format, args...) },
	})
	if err != nil {
		return err
	}
	e.Nodes = nodes
	e.onClose(nodes.Close)
	return nil
}

// room sees to it that there are nodes for a cluster with so many members.
func (e *Env) room(ctx context.Context, s Spec, members int) error {
	n, ok := e.Nodes.(*kubelet.Nodes)
	switch {
	case !ok:
		return nil
	case s.OwnNodes && s.SpareNode:
		return n.Room(ctx, s.Name, members+1)
	case s.OwnNodes:
		return n.Room(ctx, s.Name, members)
	}
	return n.Room(ctx, "", members)
}

// ownNodes gives a cluster nodes of its own. On real nodes it has them already.
func (e *Env) ownNodes(ctx context.Context, s Spec) error {
	a, ok := e.Nodes.(*node.Agent)
	if !ok {
		return nil
	}
	nodes := make([]string, maxReplicas)
	for i := range nodes {
		nodes[i] = fmt.Sprintf("%s-node-%d", s.Name, i)
	}
	return a.AddPool(ctx, s.Name, nodes...)
}

// startAgent starts the node agent.
func (e *Env) startAgent(ctx context.Context, o Options, n network.Network) error {
	nodes := make([]string, o.Nodes)
	for i := range nodes {
		nodes[i] = fmt.Sprintf("node-%d", i)
	}
	config := node.Config{
		Client: e.Client, Network: n, Nodes: nodes,
		Dir:       e.nodesDir(),
		APIServer: e.API.URL(), APIServerCA: e.API.CAPEM(),
		Images: e.images(), SharedPaths: []string{druid.LocalStore},
		OnEvent: func(ev node.Event) { e.Timeline.Note("node", "%s %s", ev.Pod, ev) },
	}
	if o.Patient {
		config.BackoffBase, config.BackoffCap = patientBase, patientCap
	}
	if o.NodeAddresses {
		e.nodeAddresses = true
		config.Address = func(name string) string { return e.nodeAddress(n, name) }
	}
	agent, err := node.Start(ctx, config)
	if err != nil {
		return err
	}
	e.Nodes = agent
	e.onClose(agent.Close)
	return nil
}

// real is true on real nodes.
func (e *Env) real() bool {
	_, is := e.Network.(*kubelet.Network)
	return is
}

// makeKubeletNetwork makes the network of real nodes.
func (e *Env) makeKubeletNetwork(shared *kubelet.Resolver) error {
	n, err := kubelet.NewNetwork(filepath.Join(e.Dir, "network"), shared)
	if err != nil {
		return err
	}
	e.Network, e.ports, e.mode, e.nodeAddresses = n, druidPorts, Namespaces, true
	return nil
}
