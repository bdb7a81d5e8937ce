package network

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"sync"

	"github.com/vishvananda/netns"

	"github.com/quorate/quorate/test/harness/dns"
)

// resolver is the DNS of the pods, which each of them is served in its own network namespace.
type resolver struct {
	*dns.Names
	served sync.WaitGroup
}

func newResolver() *resolver { return &resolver{Names: dns.New()} }

// set publishes a pod, whether or not it is ready. An invalid address withdraws it.
func (n *resolver) set(pod Pod, address netip.Addr) {
	n.Set(dns.Pod{UID: pod.UID, Namespace: pod.Namespace, Hostname: pod.Hostname, Subdomain: pod.Subdomain}, address)
}

// serve answers in a pod's network namespace, where links that are cut do not matter, until it is closed.
func (n *resolver) serve(namespace netns.NsHandle) (net.PacketConn, error) {
	conn, err := inNamespace(int(namespace), func() (net.PacketConn, error) {
		return (&net.ListenConfig{}).ListenPacket(context.Background(), "udp4", resolverAddress+":53")
	})
	if err != nil {
		return nil, fmt.Errorf("serve DNS: %w", err)
	}
	n.served.Go(func() { dns.Serve(conn, n.Find) })
	return conn, nil
}
