package network

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"sync"
	"time"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"

	"github.com/quorate/quorate/test/harness/rootfs"
)

// maxNetworks is how many Namespaces can exist in one harness at a time; each takes a
// /16 of 10.128.0.0/9.
const maxNetworks = 128

// nameLingers is for how long the name of a pod that has gone still resolves.
const nameLingers = 5 * time.Second

// podInterface is the name of a pod's interface, as in a cluster.
const podInterface = "eth0"

// Namespaces is the [Network] for root: a bridge in the harness's own network
// namespace, and a network namespace with a veth pair and private /etc/hosts,
// resolv.conf and nsswitch.conf for every pod.
//
// In a pod these names resolve, by the hosts file: every attached pod that has a
// subdomain as <pod>.<subdomain>, <pod>.<subdomain>.<namespace> and with .svc and
// .svc.cluster.local behind, whether or not it is ready (as behind a headless service
// that publishes not-ready addresses); Services ([Namespaces.SetService]); the pod's own hostname;
// its aliases ([Namespaces.SetHosts]). The file changes in place as pods come and go. Programs may
// remember it for a while, Go's resolver for five seconds. Every other name fails at once.
//
// A pod that has gone leaves its name behind for a while (nameLingers), as in the caches of
// a cluster's DNS. Its successor has the same address, so that a name never leads astray.
// Without this, a program that asked in the moment between the two would find the name
// missing for the five seconds that it remembers it, and whatever waits for the successor
// would be measured by that.
//
// The hub and the harness itself do not see these names.
type Namespaces struct {
	dir       string
	index     int
	addresses *allocator

	mu   sync.Mutex
	hub  *station
	pods map[string]*attachedPod
	// gone are the pods whose names linger.
	gone    map[string]gonePod
	aliases map[string]map[string]string
	// services are the addresses that the names of Services lead to, in all pods.
	services map[service][]string
	// redirected leads names astray, in all pods.
	redirected map[string]string
	cuts       cuts
}

var _ Network = (*Namespaces)(nil)

// station is one end of links: the hub or an attached pod.
type station struct {
	handle *netlink.Handle
	link   netlink.Link
	// deaf holds the addresses that are cut off from here at the moment.
	deaf map[netip.Addr]bool
}

type gonePod struct {
	pod     Pod
	address netip.Addr
	// forget takes the name away when its time has come.
	forget *time.Timer
}

type attachedPod struct {
	pod       Pod
	address   netip.Addr
	namespace netns.NsHandle
	station   *station
	files     *podFiles
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
		pods:    map[string]*attachedPod{},
		gone:    map[string]gonePod{},
		aliases: map[string]map[string]string{}, redirected: map[string]string{},
		services: map[service][]string{},
		cuts:     newCuts(),
	}
	if err := n.createBridge(handle); err != nil {
		handle.Close()
		return nil, fmt.Errorf("network namespaces: %w", err)
	}
	return n, nil
}

func (n *Namespaces) createBridge(handle *netlink.Handle) error {
	for n.index = range maxNetworks {
		n.addresses = newAllocator(10, 128+byte(n.index))
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
		n.hub = &station{handle: handle, link: bridge, deaf: map[netip.Addr]bool{}}
		return nil
	}
	return fmt.Errorf("all %d bridges exist already; close networks that are not used any more", maxNetworks)
}

// hardwareAddress derives a locally administered MAC from an IP, so that a pod's
// successor has the same and nobody remembers a wrong one.
func hardwareAddress(address netip.Addr) net.HardwareAddr {
	ip := address.As4()
	return net.HardwareAddr{0x02, 0x51, ip[0], ip[1], ip[2], ip[3]}
}

func configure(handle *netlink.Handle, link netlink.Link, address netip.Addr) error {
	name := link.Attrs().Name
	prefix := &net.IPNet{IP: address.AsSlice(), Mask: net.CIDRMask(16, 32)}
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
	address, ok := n.addresses.of(podKey)
	if !ok {
		return Attachment{}, errNoAddress(pod)
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.hub == nil {
		return Attachment{}, fmt.Errorf("attach pod %s: the network is closed", podKey)
	}
	attached, ok := n.pods[podKey]
	if ok && attached.pod.UID != pod.UID {
		return Attachment{}, errStillAttached(pod, attached.pod)
	}
	if !ok {
		var err error
		if attached, err = n.connect(pod, address); err != nil {
			return Attachment{}, fmt.Errorf("attach pod %s: %w", podKey, err)
		}
		n.pods[podKey] = attached
		n.forget(podKey)
		err = errors.Join(n.applyCuts(), n.writeHosts())
		if err != nil {
			delete(n.pods, podKey)
			return Attachment{}, fmt.Errorf("attach pod %s: %w", podKey,
				errors.Join(err, n.disconnect(attached), n.writeHosts()))
		}
	}
	// The harness's descriptor names the namespace, so that it needs no file
	// that could be left behind.
	place := []string{fmt.Sprintf("/proc/%d/fd/%d", os.Getpid(), int(attached.namespace)), attached.files.dir}
	return Attachment{
		IP:       address.String(),
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
func (n *Namespaces) connect(pod Pod, address netip.Addr) (_ *attachedPod, err error) {
	attached := &attachedPod{
		pod:       pod,
		address:   address,
		namespace: netns.None(),
		vethName:  fmt.Sprintf("q%dp%d-%d", n.index, address.As4()[2], address.As4()[3]),
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, n.disconnect(attached))
		}
	}()
	if attached.files, err = newPodFiles(filepath.Join(n.dir, pod.Namespace, pod.Name)); err != nil {
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
	attached.station = &station{handle: handle, deaf: map[netip.Addr]bool{}}
	if err = loopbackUp(handle); err != nil {
		return nil, err
	}
	if attached.station.link, err = handle.LinkByName(podInterface); err != nil {
		return nil, fmt.Errorf("find %s in the pod's namespace: %w", podInterface, err)
	}
	if err = configure(handle, attached.station.link, address); err != nil {
		return nil, err
	}
	return attached, nil
}

// disconnect takes down what connect has built, as far as it got.
func (n *Namespaces) disconnect(attached *attachedPod) error {
	var errs []error
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
	if n.pods[key(attached.pod.Namespace, attached.pod.Name)] != attached {
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

	type result struct {
		conn net.Conn
		err  error
	}
	done := make(chan result)
	go func() {
		// A socket belongs for ever to the namespace of the thread that creates
		// it. For an address (not a name) the dialer does so right here. The
		// thread ends with the goroutine.
		runtime.LockOSThread()
		if err := unix.Setns(namespace, unix.CLONE_NEWNET); err != nil {
			done <- result{err: &net.OpError{Op: "dial", Net: network, Err: err}}
			return
		}
		conn, err := (&net.Dialer{}).DialContext(ctx, network, address)
		done <- result{conn, err}
	}()
	r := <-done
	return r.conn, r.err
}

// Detach implements [Network].
func (n *Namespaces) Detach(_ context.Context, pod Pod) error {
	podKey := key(pod.Namespace, pod.Name)
	n.mu.Lock()
	defer n.mu.Unlock()
	attached, ok := n.pods[podKey]
	if !ok || attached.pod.UID != pod.UID {
		return nil
	}
	delete(n.pods, podKey)
	n.gone[podKey] = gonePod{attached.pod, attached.address,
		time.AfterFunc(nameLingers, func() { n.expire(podKey, pod.UID) })}
	if err := n.disconnect(attached); err != nil {
		return fmt.Errorf("detach pod %s: %w", podKey, err)
	}
	return nil
}

// expire takes the name of a pod away that has gone, unless a successor has it by now.
func (n *Namespaces) expire(podKey, uid string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.gone[podKey].pod.UID != uid {
		return
	}
	delete(n.gone, podKey)
	_ = n.writeHosts() // As in SetHosts.
}

// forget ends the lingering of a name.
func (n *Namespaces) forget(podKey string) {
	if g, ok := n.gone[podKey]; ok {
		g.forget.Stop()
		delete(n.gone, podKey)
	}
}

// SetHosts implements [Network].
func (n *Namespaces) SetHosts(namespace, podName string, aliases map[string]string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	copied := make(map[string]string, len(aliases))
	for name, address := range aliases {
		copied[name] = address
	}
	n.aliases[key(namespace, podName)] = copied
	// A write can only fail as it would in Attach, which reports it; the content
	// is written again then.
	_ = n.writeHosts()
}

// SetService makes the name of a Service lead to the addresses behind it, in all pods; with none the
// name is unknown. (In a cluster the name leads to one address, and that to any of those.)
func (n *Namespaces) SetService(namespace, name string, addresses ...string) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	if len(addresses) == 0 {
		delete(n.services, service{namespace, name})
	} else {
		n.services[service{namespace, name}] = addresses
	}
	return n.writeHosts()
}

// Redirect makes a name lead to an address, in all pods and in place of its own address,
// as stale DNS does; an empty address undoes it. Programs may remember a name for some
// seconds, and keep the connections that they have.
func (n *Namespaces) Redirect(name, address string) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	if address == "" {
		delete(n.redirected, name)
	} else {
		n.redirected[name] = address
	}
	return n.writeHosts()
}

// writeHosts brings the hosts files of all pods up to date.
func (n *Namespaces) writeHosts() error {
	published := make(map[Pod]netip.Addr, len(n.pods)+len(n.gone))
	for _, g := range n.gone {
		published[g.pod] = g.address
	}
	for _, attached := range n.pods {
		published[attached.pod] = attached.address
	}
	var errs []error
	for podKey, attached := range n.pods {
		errs = append(errs, attached.files.write(hostsOf(attached.pod, published, n.services, n.aliases[podKey],
			n.redirected)))
	}
	return errors.Join(errs...)
}

// Close implements [Network]. Closing twice is no error.
func (n *Namespaces) Close() error {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.hub == nil {
		return nil
	}
	var errs []error
	for podKey, attached := range n.pods {
		errs = append(errs, n.disconnect(attached))
		delete(n.pods, podKey)
	}
	for podKey := range n.gone {
		n.forget(podKey)
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
