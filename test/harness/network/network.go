// Package network gives every pod of the harness an address of its own.
//
// There are two implementations of [Network]:
//
//   - [Loopback] needs no privileges: every pod has an address in a free
//     127.A.0.0/16. Names are not resolved: its user puts addresses where a
//     cluster has names. Nothing separates the pods from each other, so links
//     cannot be cut.
//   - [Namespaces] needs root: every pod has a network namespace, a veth pair to a
//     bridge, and a DNS in which the names of all pods resolve as in a cluster.
//     Links between pods can be cut. A program can also have a root file
//     system of its own ([Attachment.Contain]).
//
// In both the hub is the place of everything that is not a pod: control plane,
// traffic clients, the harness. It reaches a pod at an address that is bound to the
// pod's name. On Loopback that is also where pods reach each other. On Namespaces every
// pod that is attached has a new address, as in a cluster, and pods find each other by
// their names.
//
// # Using Namespaces
//
// The harness never touches the network of its host. It runs itself again in a
// fresh network and mount namespace; everything that it builds vanishes with its
// last process, however that ends. A test's TestMain, or a program's main, begins
// with:
//
//	network.MaybeRunLauncher()
//	if err := network.NamespacesAvailable(); err == nil {
//		if err := network.ReexecInNamespace(); err != nil { … }
//	}
package network

import (
	"context"
	"net"

	"github.com/quorate/quorate/test/harness/rootfs"
)

// Hub is the name of the hub where an endpoint is asked for (see
// [Namespaces.Cut]).
const Hub = "hub"

// Pod is what a network has to know of a pod.
type Pod struct {
	// Namespace and Name decide the address at which the hub reaches it.
	Namespace, Name string
	// UID tells apart pods of the same name; see Network.Detach.
	UID string
	// Hostname and Subdomain are those of the pod's spec. With both set the pod
	// is published as <hostname>.<subdomain>.<namespace>.svc; a StatefulSet
	// controller sets them.
	Hostname, Subdomain string
}

// Attachment is a pod's place in the network.
type Attachment struct {
	// IP is the pod's address, which other pods see.
	IP string
	// Launcher is put in front of a program's argv so that the program runs in
	// the pod's network (see process.Spec). Empty when no launcher is needed.
	Launcher []string
	// Contain returns another launcher, which also gives the program a root file system of its own, as
	// in a container. The program's path is then one in the container. Nil where the network cannot.
	Contain func(container rootfs.Container) ([]string, error)
	// Dial connects to an address of the pod as the kubelet of the pod's node
	// does: links that are cut do not matter to it, as the kubelet and its pods
	// are on one machine.
	Dial func(ctx context.Context, network, address string) (net.Conn, error)
}

// Network gives addresses to pods. Implementations are safe for concurrent use.
type Network interface {
	// HubAddress is the address at which the control plane and other servers of
	// the harness listen; pods reach it.
	HubAddress() string

	// AddressOf returns the address at which the hub reaches the pod of that name,
	// whether or not it is attached. It never changes. It is empty when the range is
	// exhausted (after 256 sets of pods); Attach then says so.
	AddressOf(namespace, podName string) string

	// Attach connects a pod and publishes its names. Attaching the same pod again
	// returns the same attachment. A pod whose name is still attached under another
	// UID takes the name over; where an address belongs to the name, it is refused.
	Attach(ctx context.Context, pod Pod) (Attachment, error)

	// Detach takes a pod off the network and withdraws its names. Its processes
	// must have ended. A pod that is not attached is left alone without an error.
	Detach(ctx context.Context, pod Pod) error

	// SetHosts replaces the additional names, name → address, that resolve in
	// one pod only (the pod's hostAliases). It may be called before Attach and
	// holds for later pods of the same name, until it is called again.
	SetHosts(namespace, podName string, aliases map[string]string)

	// Close gives everything back. All pods' processes must have ended.
	Close() error
}

// key is how a pod is named in maps and messages.
func key(namespace, name string) string { return namespace + "/" + name }
