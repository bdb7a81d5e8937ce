package kubelet

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"golang.org/x/net/dns/dnsmessage"
	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"
)

// clusterDomain is the usual domain of a cluster.
const clusterDomain = "cluster.local"

// names is the DNS of the cluster: a name leads to what is known at the moment, for no time at all. Pods behind a
// headless Service are known by their names as soon as they have an address, ready or not. Every name outside of the
// cluster is unknown.
type names struct {
	conn   net.PacketConn
	served sync.WaitGroup

	mu         sync.Mutex
	pods       map[types.UID]host
	services   map[string][]netip.Addr
	redirected map[string]netip.Addr
}

// host is a pod that has a name.
type host struct {
	name    string
	address netip.Addr
}

func newNames() *names {
	return &names{pods: map[types.UID]host{}, services: map[string][]netip.Addr{},
		redirected: map[string]netip.Addr{}}
}

func serveNames(address string) (*names, error) {
	conn, err := net.ListenPacket("udp4", net.JoinHostPort(address, "53"))
	if err != nil {
		return nil, fmt.Errorf("serve DNS: %w", err)
	}
	n := newNames()
	n.conn = conn
	n.served.Go(func() { serve(conn, n.find) })
	return n, nil
}

func (n *names) close() {
	_ = n.conn.Close()
	n.served.Wait()
}

// set is told of a pod's address. It is invalid for a pod that has none any more.
func (n *names) set(p *corev1.Pod, address netip.Addr) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if !address.IsValid() || p.Spec.Hostname == "" || p.Spec.Subdomain == "" {
		delete(n.pods, p.UID)
		return
	}
	n.pods[p.UID] = host{address: address,
		name: strings.Join([]string{p.Spec.Hostname, p.Spec.Subdomain, p.Namespace, "svc", clusterDomain}, ".")}
}

func (n *names) setService(namespace, name string, addresses []string) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	full := strings.Join([]string{name, namespace, "svc", clusterDomain}, ".")
	n.services[full] = nil
	for _, text := range addresses {
		address, err := netip.ParseAddr(text)
		if err != nil {
			return fmt.Errorf("address of the Service %s: %w", name, err)
		}
		n.services[full] = append(n.services[full], address)
	}
	return nil
}

func (n *names) redirect(name, to string) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	full := strings.TrimSuffix(name, "."+clusterDomain) + "." + clusterDomain
	delete(n.redirected, full)
	if to == "" {
		return nil
	}
	address, err := netip.ParseAddr(to)
	n.redirected[full] = address
	return err
}

// find returns where a name leads.
func (n *names) find(name string) []netip.Addr {
	n.mu.Lock()
	defer n.mu.Unlock()
	if address, is := n.redirected[name]; is {
		return []netip.Addr{address}
	}
	found := slices.Clone(n.services[name])
	for _, h := range n.pods {
		if h.name == name {
			found = append(found, h.address)
		}
	}
	return found
}

// serve answers questions by what find says.
func serve(conn net.PacketConn, find func(name string) []netip.Addr) {
	buffer := make([]byte, 4096)
	for {
		size, from, err := conn.ReadFrom(buffer)
		if err != nil {
			return // It was closed.
		}
		if reply, err := answer(buffer[:size], find); err == nil {
			_, _ = conn.WriteTo(reply, from) // Whoever gets no answer asks again.
		}
	}
}

func answer(message []byte, find func(name string) []netip.Addr) ([]byte, error) {
	var parser dnsmessage.Parser
	header, err := parser.Start(message)
	if err != nil {
		return nil, err
	}
	question, err := parser.Question()
	if err != nil {
		return nil, err
	}
	found := find(strings.ToLower(strings.TrimSuffix(question.Name.String(), ".")))
	header.Response, header.Authoritative, header.RecursionAvailable = true, true, true
	if len(found) == 0 {
		header.RCode = dnsmessage.RCodeNameError
	}
	reply := dnsmessage.Message{Header: header, Questions: []dnsmessage.Question{question}}
	for _, address := range found {
		if question.Type == dnsmessage.TypeA {
			reply.Answers = append(reply.Answers, dnsmessage.Resource{
				Header: dnsmessage.ResourceHeader{Name: question.Name, Type: question.Type, Class: question.Class},
				Body:   &dnsmessage.AResource{A: address.As4()},
			})
		}
	}
	return reply.Pack()
}

// Resolver lets the harness itself resolve the names of pods, in its own mount namespace. Networks that are there at
// the same time share one. Their pods have to have different names.
type Resolver struct {
	conn   net.PacketConn
	served sync.WaitGroup

	mu    sync.Mutex
	known []*names
}

// resolverAddress is where only the harness reaches it.
const resolverAddress = "127.0.0.53"

// NewResolver makes a resolver that knows no names. Dir takes a file.
func NewResolver(dir string) (*Resolver, error) {
	conn, err := net.ListenPacket("udp4", net.JoinHostPort(resolverAddress, "53"))
	if err != nil {
		return nil, fmt.Errorf("serve DNS: %w", err)
	}
	r := &Resolver{conn: conn}
	r.served.Go(func() { serve(conn, r.find) })
	file := filepath.Join(dir, "resolv.conf")
	// As in a pod, "svc" may be left out: etcd-druid asks for main-client.default.
	text := "nameserver " + resolverAddress + "\nsearch svc." + clusterDomain + " " + clusterDomain +
		"\noptions ndots:5 timeout:1\n"
	err = errors.Join(os.MkdirAll(dir, 0o755), os.WriteFile(file, []byte(text), 0o644))
	if err == nil {
		err = mount(file, "/etc/resolv.conf", "", unix.MS_BIND, "")
	}
	if err != nil {
		return nil, errors.Join(err, conn.Close())
	}
	return r, nil
}

// Close makes the harness resolve names as before.
func (r *Resolver) Close() error {
	err := errors.Join(unix.Unmount("/etc/resolv.conf", unix.MNT_DETACH), r.conn.Close())
	r.served.Wait()
	return err
}

func (r *Resolver) add(n *names) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.known = append(r.known, n)
}

func (r *Resolver) remove(n *names) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.known = slices.DeleteFunc(r.known, func(other *names) bool { return other == n })
}

func (r *Resolver) find(name string) (found []netip.Addr) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, n := range r.known {
		found = append(found, n.find(name)...)
	}
	return found
}
