// Package dns is the DNS of a cluster. A name leads to what is known at the moment, for no time at all: every question
// is answered anew. Pods behind a headless Service are known by their names as soon as they have an address, ready or
// not. Every name outside of the cluster is unknown at once.
package dns

import (
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"
	"sync"

	"golang.org/x/net/dns/dnsmessage"
)

// ClusterDomain is the usual domain of a cluster.
const ClusterDomain = "cluster.local"

// Pod is what makes up a pod's name. The UID tells apart pods of one name.
type Pod struct{ UID, Namespace, Hostname, Subdomain string }

// Names are those of one cluster. They may be changed and asked for at the same time.
type Names struct {
	mu         sync.Mutex
	pods       map[string]host // by their UIDs
	services   map[string][]netip.Addr
	redirected map[string]netip.Addr
}

// host is a pod that has a name.
type host struct {
	name    string
	address netip.Addr
}

// New returns no names.
func New() *Names {
	return &Names{pods: map[string]host{}, services: map[string][]netip.Addr{}, redirected: map[string]netip.Addr{}}
}

// Set publishes a pod, whether or not it is ready. An invalid address withdraws it.
func (n *Names) Set(p Pod, address netip.Addr) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if !address.IsValid() || p.Hostname == "" || p.Subdomain == "" {
		delete(n.pods, p.UID)
		return
	}
	n.pods[p.UID] = host{name: full(p.Hostname, p.Subdomain, p.Namespace, "svc"), address: address}
}

// SetService makes the name of a Service lead to the addresses behind it. With none it is unknown.
func (n *Names) SetService(namespace, name string, addresses []string) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	service := full(name, namespace, "svc")
	delete(n.services, service)
	for _, text := range addresses {
		address, err := netip.ParseAddr(text)
		if err != nil {
			return fmt.Errorf("address of the Service %s: %w", name, err)
		}
		n.services[service] = append(n.services[service], address)
	}
	return nil
}

// Redirect makes a name lead to an address, as stale DNS does. An empty address undoes it.
func (n *Names) Redirect(name, to string) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	name = full(strings.TrimSuffix(name, "."+ClusterDomain))
	delete(n.redirected, name)
	if to == "" {
		return nil
	}
	address, err := netip.ParseAddr(to)
	if err == nil {
		n.redirected[name] = address
	}
	return err
}

// Find returns where a full name leads.
func (n *Names) Find(name string) []netip.Addr {
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

// full is a full name.
func full(labels ...string) string { return strings.Join(append(labels, ClusterDomain), ".") }

// Serve answers questions by what find says of full names, until the connection is closed.
func Serve(conn net.PacketConn, find func(name string) []netip.Addr) {
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
