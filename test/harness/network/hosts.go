package network

import (
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// clusterDomain is the usual DNS domain of a cluster.
const clusterDomain = "cluster.local"

// hostsOf returns a pod's hosts file: localhost, all published pods with every name
// under which a pod of its namespace can look them up (the resolver's search list of
// a cluster is written out here), the Services, and its own aliases. A name that is
// redirected leads where it is redirected to, and nowhere else.
func hostsOf(self Pod, published map[Pod]netip.Addr, services map[service][]string,
	aliases, redirected map[string]string) string {
	lines := make([]string, 0, len(published)+len(aliases))
	for pod, address := range published {
		names := []string{}
		if pod.Hostname != "" && pod.Subdomain != "" {
			names = namesOf(service{pod.Namespace, pod.Hostname + "." + pod.Subdomain}, self)
		}
		names = slices.DeleteFunc(names, func(name string) bool { _, is := redirected[name]; return is })
		if pod == self {
			hostname := pod.Hostname
			if hostname == "" {
				hostname = pod.Name
			}
			names = append(names, hostname)
		}
		if len(names) > 0 {
			lines = append(lines, address.String()+"\t"+strings.Join(names, " "))
		}
	}
	for s, addresses := range services {
		for _, address := range addresses {
			lines = append(lines, address+"\t"+strings.Join(namesOf(s, self), " "))
		}
	}
	slices.Sort(lines)
	extra := make([]string, 0, len(aliases)+len(redirected))
	for _, names := range []map[string]string{aliases, redirected} {
		for name, address := range names {
			extra = append(extra, address+"\t"+name)
		}
	}
	slices.Sort(extra)
	return "127.0.0.1\tlocalhost\n::1\tlocalhost\n" + strings.Join(append(lines, extra...), "\n") + "\n"
}

// service is a name that is published in a namespace.
type service struct{ namespace, name string }

// namesOf are the names under which a pod can look it up.
func namesOf(s service, from Pod) []string {
	name := s.name + "." + s.namespace
	names := []string{name + ".svc." + clusterDomain, name + ".svc", name}
	if s.namespace == from.Namespace {
		names = append(names, s.name)
	}
	return names
}

// podFiles are the files that a pod sees instead of the host's.
type podFiles struct {
	dir string
	// hosts stays open: a running pod has the file mounted, so its content has to
	// change in place.
	hosts *os.File
	// content is what the file holds.
	content string
}

const (
	// Names come only from the hosts file. Any other name is reported as unknown at once,
	// instead of after the timeouts of a resolver that cannot be reached.
	nsswitchContent = "hosts: files\n"
	// For programs that do not read nsswitch.conf: without a server they ask
	// their own loopback address, which refuses at once.
	resolvContent = "# Names are in /etc/hosts.\noptions attempts:1 timeout:1\n"
)

func newPodFiles(dir string) (*podFiles, error) {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, err
	}
	for name, content := range map[string]string{"nsswitch.conf": nsswitchContent, "resolv.conf": resolvContent} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o644); err != nil {
			return nil, err
		}
	}
	hosts, err := os.OpenFile(filepath.Join(dir, "hosts"), os.O_RDWR|os.O_CREATE, 0o644)
	if err != nil {
		return nil, err
	}
	return &podFiles{dir: dir, hosts: hosts}, nil
}

func (f *podFiles) write(content string) error {
	if content == f.content {
		return nil
	}
	if _, err := f.hosts.WriteAt([]byte(content), 0); err != nil {
		return fmt.Errorf("write %s: %w", f.hosts.Name(), err)
	}
	if err := f.hosts.Truncate(int64(len(content))); err != nil {
		return fmt.Errorf("write %s: %w", f.hosts.Name(), err)
	}
	f.content = content
	return nil
}

func (f *podFiles) remove() error {
	f.hosts.Close()
	return os.RemoveAll(f.dir)
}
