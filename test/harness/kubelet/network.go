package kubelet

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"strconv"
	"sync"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"

	"github.com/quorate/quorate/test/harness/network"
)

const (
	// Hub is the harness where an end of a link is named.
	Hub = "hub"
	// NodeSpace is the namespace of nodes where an end of a link is named.
	NodeSpace = "nodes"
	// podLink, nodeBridge and nodeUplink are the interfaces of a pod and of a node.
	podLink, nodeBridge, nodeUplink = "eth0", "cni0", "eth0"
	// mostNetworks is how many networks there can be in one harness at a time. Each takes a /16 from 10.64.0.0 on.
	mostNetworks = 32
	prefix       = 16
)

// nobody is a hardware address that no interface has. What is sent to it is lost without an error for the sender.
var nobody = net.HardwareAddr{0x02, 0x52, 0, 0, 0, 0}

// Network connects nodes and their pods: the bridge of each node hangs on one bridge of the harness's, so that all of
// them are on one wire. Pods have their addresses from their node's runtime, and names from the harness's DNS.
type Network struct {
	index  int
	handle *netlink.Handle
	bridge netlink.Link
	names  *names
	// resolver is where the harness asks for names. It is closed with the network if it is the network's own.
	resolver *Resolver
	own      bool

	mu sync.Mutex
	// stations are the ends of links by their names: the hub, nodes and pods.
	stations map[string]station
	// sandbox finds the process that holds the network of a pod.
	sandbox func(pod string) (pid int, ok bool)
	// pairs and isolated are what is cut.
	pairs    map[[2]string]bool
	isolated map[string]bool
	// deaf is what has been done about it.
	deaf map[deafness]station
}

// station is an end of links.
type station struct {
	address netip.Addr
	link    string
	// pid is a process in its network namespace. It is 0 for the hub.
	pid int
}

// deafness is that of one network namespace to one address.
type deafness struct {
	pid     int
	address netip.Addr
}

// NewNetwork makes a network without nodes. The harness must be in namespaces of its own. If it has no resolver that
// several networks share, the network makes one, and dir takes a file.
func NewNetwork(dir string, shared *Resolver) (n *Network, err error) {
	if !network.InNamespace() {
		return nil, errors.New("network of real nodes: the harness runs in the machine's own network; call " +
			"network.ReexecInNamespace at the beginning of main or TestMain")
	}
	n = &Network{stations: map[string]station{}, pairs: map[[2]string]bool{}, isolated: map[string]bool{},
		deaf: map[deafness]station{}, sandbox: func(string) (int, bool) { return 0, false }}
	if n.handle, err = netlink.NewHandle(unix.NETLINK_ROUTE); err != nil {
		return nil, err
	}
	if err := n.createBridge(); err != nil {
		n.handle.Close()
		return nil, err
	}
	n.stations[Hub] = station{address: n.address(0, 1), link: n.bridge.Attrs().Name}
	if n.names, err = serveNames(n.HubAddress()); err == nil {
		if n.resolver, n.own = shared, shared == nil; n.own {
			n.resolver, err = NewResolver(dir)
		}
	}
	if err != nil {
		return nil, errors.Join(err, n.Close())
	}
	n.resolver.add(n.names)
	return n, nil
}

func (n *Network) createBridge() error {
	for n.index = range mostNetworks {
		bridge := &netlink.Bridge{LinkAttrs: netlink.LinkAttrs{Name: "kube" + strconv.Itoa(n.index),
			HardwareAddr: n.mac(0)}}
		err := n.handle.LinkAdd(bridge)
		if errors.Is(err, unix.EEXIST) {
			continue
		}
		if err != nil {
			return fmt.Errorf("create bridge %s: %w", bridge.Name, err)
		}
		n.bridge = bridge
		if n.ServiceAddress() != "" {
			service := &netlink.Addr{IPNet: netlink.NewIPNet(net.ParseIP(n.ServiceAddress()))}
			if err := n.handle.AddrAdd(bridge, service); err != nil {
				return err
			}
		}
		address, err := netlink.ParseAddr(fmt.Sprintf("%s/%d", n.address(0, 1), prefix))
		if err != nil {
			return err
		}
		return errors.Join(n.handle.AddrAdd(bridge, address), n.handle.LinkSetUp(bridge))
	}
	return fmt.Errorf("all %d networks are in use", mostNetworks)
}

// address is one of the network's: third is 0 for the harness and the nodes, and one more than a node's index for its
// pods.
func (n *Network) address(third, fourth int) netip.Addr {
	return netip.AddrFrom4([4]byte{10, byte(64 + n.index), byte(third), byte(fourth)})
}

// nodeAddress is that of a node, by its index.
func (n *Network) nodeAddress(index int) netip.Addr { return n.address(0, 10+index) }

// mac is the hardware address of a bridge: the hub's with 0, and a node's with one more than its index.
func (n *Network) mac(of int) net.HardwareAddr {
	return net.HardwareAddr{0x02, 0x52, 0, 1, byte(n.index), byte(of)}
}

// HubAddress is where the harness listens. Pods and nodes reach it.
func (n *Network) HubAddress() string { return n.address(0, 1).String() }

// ServiceAddress is that of the Service of the API server, by which pods reach the harness too. Only the first network
// has one.
func (n *Network) ServiceAddress() string {
	if n.index > 0 {
		return ""
	}
	return "10.96.0.1"
}

// AddressOf is the address of the pod of that name, if there is one that has one.
func (n *Network) AddressOf(namespace, pod string) string {
	n.mu.Lock()
	defer n.mu.Unlock()
	if s, ok := n.stations[namespace+"/"+pod]; ok {
		return s.address.String()
	}
	return ""
}

// connect links a node, whose first process is running, to all others.
func (n *Network) connect(name string, index, pid int) error {
	veth := &netlink.Veth{
		LinkAttrs: netlink.LinkAttrs{Name: n.nodeLink(index), Flags: net.FlagUp,
			MasterIndex: n.bridge.Attrs().Index},
		PeerName: nodeUplink, PeerNamespace: netlink.NsPid(pid),
	}
	if err := n.handle.LinkAdd(veth); err != nil {
		return fmt.Errorf("connect %s: %w", name, err)
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	n.stations[NodeSpace+"/"+name] = station{address: n.nodeAddress(index), link: nodeBridge, pid: pid}
	return n.apply()
}

// nodeLink is the harness's end of the link to a node.
func (n *Network) nodeLink(index int) string { return fmt.Sprintf("kube%dn%d", n.index, index) }

// disconnect forgets a node that has no power. Its end of the link has gone, or is just going.
func (n *Network) disconnect(name string, index int) error {
	n.mu.Lock()
	delete(n.stations, NodeSpace+"/"+name)
	n.mu.Unlock()
	link, err := n.handle.LinkByName(n.nodeLink(index))
	if err == nil {
		err = n.handle.LinkDel(link)
	}
	var missing netlink.LinkNotFoundError
	if errors.As(err, &missing) || errors.Is(err, unix.ENODEV) {
		return nil
	}
	return err
}

// learn takes a pod into account as it is now.
func (n *Network) learn(p *corev1.Pod) error {
	address, err := netip.ParseAddr(p.Status.PodIP)
	if p.Status.Phase == corev1.PodSucceeded || p.Status.Phase == corev1.PodFailed {
		address = netip.Addr{}
	}
	n.names.set(p, address)
	if err != nil {
		return nil // It has no address yet.
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	key := p.Namespace + "/" + p.Name
	if n.stations[key].address == address {
		return nil
	}
	if !address.IsValid() { // It has ended, and its object is about to go.
		delete(n.stations, key)
		return n.apply()
	}
	n.stations[key] = station{address: address, link: podLink}
	return n.apply()
}

// forget is learn's for a pod that is gone.
func (n *Network) forget(p *corev1.Pod) {
	n.names.set(p, netip.Addr{})
	n.mu.Lock()
	defer n.mu.Unlock()
	key := p.Namespace + "/" + p.Name
	if n.stations[key].address.String() == p.Status.PodIP {
		delete(n.stations, key)
	}
}

// SetService makes the name of a Service lead to the addresses behind it. With none it is unknown.
func (n *Network) SetService(namespace, name string, addresses ...string) error {
	return n.names.SetService(namespace, name, addresses)
}

// Redirect makes a name lead to an address, as stale DNS does. An empty address undoes it.
func (n *Network) Redirect(name, address string) error { return n.names.Redirect(name, address) }

// Cut silently drops everything between two ends, in both directions, until Heal. An end is the Hub, a node as
// nodes/name, or a pod as namespace/name, and then a cut holds for its successors too.
func (n *Network) Cut(a, b string) error {
	return n.change(func() { n.pairs[pair(a, b)] = true })
}

// Heal undoes Cut.
func (n *Network) Heal(a, b string) error {
	return n.change(func() { delete(n.pairs, pair(a, b)) })
}

// Isolate cuts a pod off from the harness and all other pods, but not from its kubelet, until Rejoin.
func (n *Network) Isolate(pod string) error {
	return n.change(func() { n.isolated[pod] = true })
}

// Rejoin undoes Isolate.
func (n *Network) Rejoin(pod string) error {
	return n.change(func() { delete(n.isolated, pod) })
}

func pair(a, b string) [2]string { return [2]string{min(a, b), max(a, b)} }

func (n *Network) change(what func()) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	what()
	return n.apply()
}

// separate reports whether two stations are cut off from each other.
func (n *Network) separate(a, b string) bool {
	isNode := n.stations[a].link == nodeBridge || n.stations[b].link == nodeBridge
	return n.pairs[pair(a, b)] || !isNode && (n.isolated[a] || n.isolated[b])
}

// apply makes the neighbour tables of all stations say what is cut.
func (n *Network) apply() error {
	if len(n.pairs)+len(n.isolated)+len(n.deaf) == 0 {
		return nil
	}
	wanted := map[deafness]station{}
	for here, s := range n.stations {
		if s.link == podLink {
			var ok bool
			if s.pid, ok = n.sandbox(here); !ok {
				continue
			}
		}
		for there, other := range n.stations {
			if here != there && n.separate(here, there) {
				wanted[deafness{s.pid, other.address}] = s
			}
		}
	}
	var errs []error
	for d, s := range n.deaf {
		if _, stays := wanted[d]; !stays {
			errs = append(errs, n.setDeaf(s, d, false))
			delete(n.deaf, d)
		}
	}
	for d, s := range wanted {
		if _, is := n.deaf[d]; !is {
			errs = append(errs, n.setDeaf(s, d, true))
			n.deaf[d] = s
		}
	}
	return errors.Join(errs...)
}

// setDeaf makes a station send packets for an address to nobody, or where they belong. A station that is gone hears
// nothing anyway.
func (n *Network) setDeaf(s station, d deafness, deaf bool) error {
	handle := n.handle
	if s.pid != 0 {
		space, err := netns.GetFromPid(s.pid)
		if errors.Is(err, os.ErrNotExist) {
			return nil
		}
		if err != nil {
			return err
		}
		defer space.Close()
		if handle, err = netlink.NewHandleAt(space, unix.NETLINK_ROUTE); err != nil {
			return err
		}
		defer handle.Close()
	}
	link, err := handle.LinkByName(s.link)
	var missing netlink.LinkNotFoundError
	if errors.As(err, &missing) {
		return nil
	}
	if err != nil {
		return err
	}
	neighbour := &netlink.Neigh{LinkIndex: link.Attrs().Index, Family: unix.AF_INET, IP: d.address.AsSlice(),
		HardwareAddr: nobody, State: netlink.NUD_PERMANENT}
	if deaf {
		return handle.NeighSet(neighbour)
	}
	if err := handle.NeighDel(neighbour); err != nil && !errors.Is(err, unix.ENOENT) {
		return err
	}
	return nil
}

// Close gives everything back. All nodes must have ended.
func (n *Network) Close() error {
	var err error
	if n.resolver != nil {
		n.resolver.remove(n.names)
		if n.own {
			err = n.resolver.Close()
		}
	}
	if n.names != nil {
		n.names.close()
	}
	err = errors.Join(err, n.handle.LinkDel(n.bridge))
	n.handle.Close()
	return err
}
