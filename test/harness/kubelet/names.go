package kubelet

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"sync"

	"golang.org/x/sys/unix"
	corev1 "k8s.io/api/core/v1"

	"github.com/quorate/quorate/test/harness/dns"
)

// names are the cluster's DNS, which is served to its pods.
type names struct {
	*dns.Names
	conn   net.PacketConn
	served sync.WaitGroup
}

func serveNames(address string) (*names, error) {
	conn, err := net.ListenPacket("udp4", net.JoinHostPort(address, "53"))
	if err != nil {
		return nil, fmt.Errorf("serve DNS: %w", err)
	}
	n := &names{Names: dns.New(), conn: conn}
	n.served.Go(func() { dns.Serve(conn, n.Find) })
	return n, nil
}

func (n *names) close() {
	_ = n.conn.Close()
	n.served.Wait()
}

// set is told of a pod's address. It is invalid for a pod that has none any more.
func (n *names) set(p *corev1.Pod, address netip.Addr) {
	n.Set(dns.Pod{UID: string(p.UID), Namespace: p.Namespace, Hostname: p.Spec.Hostname, Subdomain: p.Spec.Subdomain},
		address)
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
	r.served.Go(func() { dns.Serve(conn, r.find) })
	file := filepath.Join(dir, "resolv.conf")
	// As in a pod, "svc" may be left out: etcd-druid asks for main-client.default.
	text := "nameserver " + resolverAddress + "\nsearch svc." + dns.ClusterDomain + " " + dns.ClusterDomain +
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
		found = append(found, n.Find(name)...)
	}
	return found
}
