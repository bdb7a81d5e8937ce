package network

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"sync"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"

	"github.com/quorate/quorate/test/harness/rootfs"
)

// maxNetworks is how many Namespaces can exist in one harness at a time; each takes a
// /15 of 10.128.0.0/9.
const maxNetworks = 64

// podInterface is the name of a pod's interface, as in a cluster.
const podInterface = "eth0"

// Namespaces is the [Network] for root: a bridge in the harness's own network
// namespace, and a network namespace with a veth pair, a DNS, and private /etc/hosts,
// resolv.conf and nsswitch.conf for every pod.
//
// In a pod these names resolve: every attached pod that has a subdomain as
// <pod>.<subdomain>, <pod>.<subdomain>.<namespace> and with .svc and
// .svc.cluster.local behind, whether or not it is ready (as behind a headless service
// that publishes not-ready addresses); Services ([Namespaces.SetService]); the pod's own hostname;
// its aliases ([Namespaces.SetHosts]). Every other name fails at once. An answer is good for
// no time at all, so that nobody waits for a name that he remembers.
//
// A pod's address is new whenever it is attached, and is not given again for a long time.
// The hub and the harness itself see no names. They reach a pod at a second address, which
// belongs to the name ([Namespaces.AddressOf]) and which no pod is told.
type Namespaces struct {
	dir       string
	index     int
	addresses *allocator

	names *resolver

	mu   sync.Mutex
	hub  *station
	pods map[identity]*attachedPod
	// newest are the pods that have the names, by namespace/name.
	newest  map[string]*attachedPod
	aliases map[string]map[string]string
	cuts    cuts
}

// identity tells apart pods of the same name.
type identity struct{ key, uid string }

func identityOf(pod Pod) identity { return identity{key(pod.Namespace, pod.Name), pod.UID} }

var _ Network = (*Namespaces)(nil)

// station is one end of links: the hub or an attached pod.
type station struct {
	handle *netlink.Handle
	link   netlink.Link
	// told are the hardware addresses that packets for an address go to from here, where they were told.
	told map[netip.Addr]net.HardwareAddr
}

type attachedPod struct {
	pod       Pod
	address   netip.Addr // which others see
	lasting   netip.Addr // of the name, for the hub
	namespace netns.NsHandle
	station   *station
	files     *podFiles
	resolver  net.PacketConn
	vethName  string
}

// NewNamespaces builds an empty network. The harness must be inside namespaces of its
// own ([ReexecInNamespace]); the error says so when it is not. The directory is for
// the pods' hosts files and is created when missing; the files are removed by Detach
// and Close.
func NewNamespaces(dir string) (*Namespaces, error) {
	if !InNamespace() {
		return nil,
			errors.New("network namespaces: the harness runs in the host's own network; call " +
				"network.ReexecInNamespace at the beginning of main or TestMain")
	}
	dir, err := filepath.Abs(dir)
	if err != nil {
		return nil, fmt.Errorf("network namespaces: directory %q: %w", dir, err)
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, fmt.Errorf("network namespaces: %w", err)
	}
	handle, err := netlink.NewHandle(unix.NETLINK_ROUTE)
	if err != nil {
		return nil, fmt.Errorf("network namespaces: open netlink: %w", err)
	}
	n := &Namespaces{
		dir:     dir,
		names:   newResolver(),
		pods:    map[identity]*attachedPod{},
		newest:  map[string]*attachedPod{},
		aliases: map[string]map[string]string{},
		cuts:    newCuts(),
	}
	if err := n.createBridge(handle); err != nil {
		handle.Close()
		return nil, fmt.Errorf("network namespaces: %w", err)
	}
	return n, nil
}

func (n *Namespaces) createBridge(handle *netlink.Handle) error {
	for n.index = range maxNetworks {
		n.addresses = newAllocator(10, 128+2*byte(n.index))
		// A fixed hardware address: by default a bridge takes over that of one of
		// its ports, and with every pod that comes or goes the others would have
		// to learn a new one.
		bridge := &netlink.Bridge{LinkAttrs: netlink.LinkAttrs{
			Name:         "quorate" + strconv.Itoa(n.index),
			HardwareAddr: hardwareAddress(n.addresses.hub()),
		}}
		err := handle.LinkAdd(bridge)
		if errors.Is(err, unix.EEXIST) {
			continue
		}
		if err != nil {
			return fmt.Errorf("create bridge %s: %w", bridge.Name, err)
		}
		if err := configure(handle, bridge, n.addresses.hub()); err != nil {
			return errors.Join(err, handle.LinkDel(bridge))
		}
		n.hub = &station{handle: handle, link: bridge, told: map[netip.Addr]net.HardwareAddr{}}
		return nil
	}
	return fmt.Errorf("all %d bridges exist already; close networks that are not used any more", maxNetworks)
}

// hardwareAddress derives a locally administered MAC from an IP.
func hardwareAddress(address netip.Addr) net.HardwareAddr {
	ip := address.As4()
	return net.HardwareAddr{0x02, 0x51, ip[0], ip[1], ip[2], ip[3]}
}

func configure(handle *netlink.Handle, link netlink.Link, address netip.Addr) error {
	name := link.Attrs().Name
	prefix := &net.IPNet{IP: address.AsSlice(), Mask: net.CIDRMask(15, 32)}
	if err := handle.AddrAdd(link, &netlink.Addr{IPNet: prefix}); err != nil {
		return fmt.Errorf("give %s the address %s: %w", name, prefix, err)
	}
	if err := handle.LinkSetUp(link); err != nil {
		return fmt.Errorf("bring up %s: %w", name, err)
	}
	return nil
}

// HubAddress implements [Network].
func (n *Namespaces) HubAddress() string { return n.addresses.hub().String() }

// AddressOf implements [Network].
func (n *Namespaces) AddressOf(namespace, podName string) string {
	address, ok := n.addresses.of(key(namespace, podName))
	if !ok {
		return ""
	}
	return address.String()
}

// Attach implements [Network].
func (n *Namespaces) Attach(_ context.Context, pod Pod) (Attachment, error) {
	podKey := key(pod.Namespace, pod.Name)
	lasting, ok := n.addresses.of(podKey)
	if !ok {
		return Attachment{}, errNoAddress(pod)
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.hub == nil {
		return Attachment{}, fmt.Errorf("attach pod %s: the network is closed", podKey)
	}
	attached, ok := n.pods[identityOf(pod)]
	if !ok {
		var err error
		if attached, err = n.connect(pod, lasting); err != nil {
			return Attachment{}, fmt.Errorf("attach pod %s: %w", podKey, err)
		}
		if err := n.publish(attached); err != nil {
			return Attachment{}, fmt.Errorf("attach pod %s: %w", podKey, errors.Join(err, n.withdraw(attached)))
		}
	}
	// The harness's descriptor names the namespace, so that it needs no file
	// that could be left behind.
	place := []string{fmt.Sprintf("/proc/%d/fd/%d", os.Getpid(), int(attached.namespace)), attached.files.dir}
	return Attachment{
		IP:       attached.address.String(),
		Launcher: append([]string{ownProgram, launcherVerb}, place...),
		Contain: func(container rootfs.Container) ([]string, error) {
			text, err := json.Marshal(container)
			return append(append([]string{ownProgram, containerVerb}, place...), string(text)), err
		},
		Dial: func(ctx context.Context, network, address string) (net.Conn, error) {
			return n.dial(ctx, attached, network, address)
		},
	}, nil
}

// connect builds a pod's namespace and its link to the bridge.
func (n *Namespaces) connect(pod Pod, lasting netip.Addr) (_ *attachedPod, err error) {
	address := n.addresses.fresh(func(address netip.Addr) bool {
		return slices.ContainsFunc(slices.Collect(maps.Values(n.pods)),
			func(p *attachedPod) bool { return p.address == address })
	})
	attached := &attachedPod{
		pod: pod, address: address, lasting: lasting, namespace: netns.None(),
		vethName: fmt.Sprintf("q%dp%d-%d", n.index, address.As4()[2], address.As4()[3]),
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, n.disconnect(attached))
		}
	}()
	if attached.files, err = newPodFiles(filepath.Join(n.dir, pod.Namespace, pod.Name, pod.UID),
		pod.Namespace); err != nil {
		return nil, err
	}
	if attached.namespace, err = newNamespace(); err != nil {
		return nil, fmt.Errorf("create network namespace: %w", err)
	}
	veth := &netlink.Veth{
		LinkAttrs: netlink.LinkAttrs{
			Name:        attached.vethName,
			MasterIndex: n.hub.link.Attrs().Index,
			Flags:       net.FlagUp,
		},
		PeerName:         podInterface,
		PeerHardwareAddr: hardwareAddress(address),
		PeerNamespace:    netlink.NsFd(int(attached.namespace)),
	}
	if err = n.hub.handle.LinkAdd(veth); err != nil {
		return nil, fmt.Errorf("create veth pair %s: %w", attached.vethName, err)
	}
	handle, err := netlink.NewHandleAt(attached.namespace, unix.NETLINK_ROUTE)
	if err != nil {
		return nil, fmt.Errorf("open netlink in the pod's namespace: %w", err)
	}
	attached.station = &station{handle: handle, told: map[netip.Addr]net.HardwareAddr{}}
	if err = loopbackUp(handle); err != nil {
		return nil, err
	}
	if attached.station.link, err = handle.LinkByName(podInterface); err != nil {
		return nil, fmt.Errorf("find %s in the pod's namespace: %w", podInterface, err)
	}
	if err = configure(handle, attached.station.link, address); err != nil {
		return nil, err
	}
	if attached.resolver, err = n.names.serve(attached.namespace); err != nil {
		return nil, err
	}
	return attached, nil
}

// publish gives a pod its name, and the address of its name, which a predecessor may still have.
func (n *Namespaces) publish(attached *attachedPod) error {
	podKey := key(attached.pod.Namespace, attached.pod.Name)
	lasting := &netlink.Addr{IPNet: &net.IPNet{IP: attached.lasting.AsSlice(), Mask: net.CIDRMask(15, 32)}}
	n.pods[identityOf(attached.pod)] = attached
	if old := n.newest[podKey]; old != nil {
		n.names.set(old.pod, netip.Addr{})
		if err := old.station.handle.AddrDel(old.station.link, lasting); err != nil {
			return fmt.Errorf("take %s from its predecessor: %w", attached.lasting, err)
		}
	}
	n.newest[podKey] = attached
	// It comes second, so that what the pod says comes from the address that is its own.
	if err := attached.station.handle.AddrAdd(attached.station.link, lasting); err != nil {
		return fmt.Errorf("give it the address %s: %w", attached.lasting, err)
	}
	n.names.set(attached.pod, attached.address)
	return errors.Join(n.applyCuts(), attached.files.write(hostsOf(attached.pod, attached.address.String(),
		n.aliases[podKey])))
}

// withdraw undoes connect and publish.
func (n *Namespaces) withdraw(attached *attachedPod) error {
	podKey := key(attached.pod.Namespace, attached.pod.Name)
	delete(n.pods, identityOf(attached.pod))
	if n.newest[podKey] == attached {
		delete(n.newest, podKey)
		n.names.set(attached.pod, netip.Addr{})
	}
	return n.disconnect(attached)
}

// disconnect takes down what connect has built, as far as it got.
func (n *Namespaces) disconnect(attached *attachedPod) error {
	var errs []error
	if attached.resolver != nil {
		errs = append(errs, attached.resolver.Close())
	}
	if attached.station != nil {
		attached.station.handle.Close()
	}
	link, err := n.hub.handle.LinkByName(attached.vethName)
	var missing netlink.LinkNotFoundError
	switch {
	case err == nil:
		// The pod's end goes with it, at once, even when the namespace lives on.
		errs = append(errs, n.hub.handle.LinkDel(link))
	case !errors.As(err, &missing):
		errs = append(errs, fmt.Errorf("find %s: %w", attached.vethName, err))
	}
	if attached.namespace.IsOpen() {
		errs = append(errs, attached.namespace.Close())
	}
	if attached.files != nil {
		errs = append(errs, attached.files.remove())
	}
	return errors.Join(errs...)
}

// newNamespace creates a network namespace that lives as long as the handle or a
// process in it.
func newNamespace() (netns.NsHandle, error) {
	type result struct {
		handle netns.NsHandle
		err    error
	}
	done := make(chan result)
	go func() {
		// netns.New leaves the thread in the new namespace. The goroutine ends
		// locked to it, so that the thread ends too.
		runtime.LockOSThread()
		handle, err := netns.New()
		done <- result{handle, err}
	}()
	r := <-done
	return r.handle, r.err
}

// dial connects from inside the pod's namespace.
func (n *Namespaces) dial(ctx context.Context, attached *attachedPod, network, address string) (net.Conn, error) {
	n.mu.Lock()
	if n.pods[identityOf(attached.pod)] != attached {
		n.mu.Unlock()
		return nil, &net.OpError{Op: "dial", Net: network, Err: unix.ENETUNREACH}
	}
	// A copy: the pod may be detached meanwhile, and the number be used again.
	namespace, err := unix.FcntlInt(uintptr(attached.namespace), unix.F_DUPFD_CLOEXEC, 0)
	n.mu.Unlock()
	if err != nil {
		return nil, &net.OpError{Op: "dial", Net: network, Err: err}
	}
	defer unix.Close(namespace)
	return inNamespace(namespace, func() (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, network, address)
	})
}

// inNamespace makes a socket in a network namespace. A socket belongs for ever to the namespace of the thread that
// creates it. For an address (not a name) the net package does so right here. The thread ends with the goroutine.
func inNamespace[S any](namespace int, open func() (S, error)) (S, error) {
	type result struct {
		socket S
		err    error
	}
	done := make(chan result)
	go func() {
		runtime.LockOSThread()
		if err := unix.Setns(namespace, unix.CLONE_NEWNET); err != nil {
			done <- result{err: fmt.Errorf("enter the network namespace: %w", err)}
			return
		}
		socket, err := open()
		done <- result{socket, err}
	}()
	r := <-done
	return r.socket, r.err
}

// Detach implements [Network].
func (n *Namespaces) Detach(_ context.Context, pod Pod) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	attached, ok := n.pods[identityOf(pod)]
	if !ok {
		return nil
	}
	if err := errors.Join(n.withdraw(attached), n.applyCuts()); err != nil {
		return fmt.Errorf("detach pod %s: %w", key(pod.Namespace, pod.Name), err)
	}
	return nil
}

// SetHosts implements [Network].
func (n *Namespaces) SetHosts(namespace, podName string, aliases map[string]string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	podKey := key(namespace, podName)
	n.aliases[podKey] = maps.Clone(aliases)
	if attached := n.newest[podKey]; attached != nil {
		// A write can only fail as it would in Attach, which reports it.
		_ = attached.files.write(hostsOf(attached.pod, attached.address.String(), n.aliases[podKey]))
	}
}

// SetService makes the name of a Service lead to the addresses behind it, in all pods; with none the
// name is unknown. (In a cluster the name leads to one address, and that to any of those.)
func (n *Namespaces) SetService(namespace, name string, addresses ...string) error {
	return n.names.SetService(namespace, name, addresses)
}

// Redirect makes a name lead to an address, in all pods and in place of its own address,
// as stale DNS does; an empty address undoes it. Programs keep the connections that they have.
func (n *Namespaces) Redirect(name, address string) error { return n.names.Redirect(name, address) }

// Close implements [Network]. Closing twice is no error.
func (n *Namespaces) Close() error {
	defer n.names.served.Wait()
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.hub == nil {
		return nil
	}
	var errs []error
	for _, attached := range n.pods {
		errs = append(errs, n.withdraw(attached))
	}
	errs = append(errs, n.hub.handle.LinkDel(n.hub.link))
	n.hub.handle.Close()
	n.hub = nil
	errs = append(errs, os.RemoveAll(n.dir))
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("close network namespaces: %w", err)
	}
	return nil
}
