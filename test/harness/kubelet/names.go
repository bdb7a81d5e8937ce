package kubelet

import (
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"
	"sync"

	"golang.org/x/net/dns/dnsmessage"
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

func serveNames(address string) (*names, error) {
	conn, err := net.ListenPacket("udp4", net.JoinHostPort(address, "53"))
	if err != nil {
		return nil, fmt.Errorf("serve DNS: %w", err)
	}
	n := &names{conn: conn, pods: map[types.UID]host{}, services: map[string][]netip.Addr{},
		redirected: map[string]netip.Addr{}}
	n.served.Go(n.serve)
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

func (n *names) serve() {
	buffer := make([]byte, 4096)
	for {
		size, from, err := n.conn.ReadFrom(buffer)
		if err != nil {
			return // It was closed.
		}
		if answer, err := n.answer(buffer[:size]); err == nil {
			_, _ = n.conn.WriteTo(answer, from) // Whoever gets no answer asks again.
		}
	}
}

func (n *names) answer(message []byte) ([]byte, error) {
	var parser dnsmessage.Parser
	header, err := parser.Start(message)
	if err != nil {
		return nil, err
	}
	question, err := parser.Question()
	if err != nil {
		return nil, err
	}
	found := n.find(strings.ToLower(strings.TrimSuffix(question.Name.String(), ".")))
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
