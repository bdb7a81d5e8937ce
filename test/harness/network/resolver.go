package network

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"
	"sync"

	"github.com/vishvananda/netns"
	"golang.org/x/net/dns/dnsmessage"
)

// resolver is the DNS of the pods: a name leads to what is known at the moment, for no time at all. Every name outside
// of the cluster is unknown at once.
type resolver struct {
	served sync.WaitGroup

	mu         sync.Mutex
	hosts      map[string]netip.Addr // of pods, by their full names
	services   map[string][]netip.Addr
	redirected map[string]netip.Addr
}

func newResolver() *resolver {
	return &resolver{hosts: map[string]netip.Addr{}, services: map[string][]netip.Addr{},
		redirected: map[string]netip.Addr{}}
}

// fullName is that of a pod behind a headless Service, or "" if it has none.
func fullName(pod Pod) string {
	if pod.Hostname == "" || pod.Subdomain == "" {
		return ""
	}
	return strings.Join([]string{pod.Hostname, pod.Subdomain, pod.Namespace, "svc", clusterDomain}, ".")
}

// set publishes a pod, whether or not it is ready. An invalid address withdraws it.
func (n *resolver) set(pod Pod, address netip.Addr) {
	n.mu.Lock()
	defer n.mu.Unlock()
	name := fullName(pod)
	delete(n.hosts, name)
	if address.IsValid() && name != "" {
		n.hosts[name] = address
	}
}

func (n *resolver) setService(namespace, name string, addresses []string) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	full := strings.Join([]string{name, namespace, "svc", clusterDomain}, ".")
	delete(n.services, full)
	for _, text := range addresses {
		address, err := netip.ParseAddr(text)
		if err != nil {
			return fmt.Errorf("address of the Service %s: %w", name, err)
		}
		n.services[full] = append(n.services[full], address)
	}
	return nil
}

func (n *resolver) redirect(name, to string) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	full := strings.TrimSuffix(name, "."+clusterDomain) + "." + clusterDomain
	delete(n.redirected, full)
	if to == "" {
		return nil
	}
	address, err := netip.ParseAddr(to)
	if err == nil {
		n.redirected[full] = address
	}
	return err
}

// find returns where a name leads.
func (n *resolver) find(name string) []netip.Addr {
	n.mu.Lock()
	defer n.mu.Unlock()
	if address, is := n.redirected[name]; is {
		return []netip.Addr{address}
	}
	found := slices.Clone(n.services[name])
	if address, is := n.hosts[name]; is {
		found = append(found, address)
	}
	return found
}

// serve answers in a pod's network namespace, where links that are cut do not matter, until it is closed.
func (n *resolver) serve(namespace netns.NsHandle) (net.PacketConn, error) {
	conn, err := inNamespace(int(namespace), func() (net.PacketConn, error) {
		return (&net.ListenConfig{}).ListenPacket(context.Background(), "udp4", resolverAddress+":53")
	})
	if err != nil {
		return nil, fmt.Errorf("serve DNS: %w", err)
	}
	n.served.Go(func() {
		buffer := make([]byte, 4096)
		for {
			size, from, err := conn.ReadFrom(buffer)
			if err != nil {
				return // It was closed.
			}
			if answer, err := n.answer(buffer[:size]); err == nil {
				_, _ = conn.WriteTo(answer, from) // Whoever gets no answer asks again.
			}
		}
	})
	return conn, nil
}

func (n *resolver) answer(message []byte) ([]byte, error) {
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
