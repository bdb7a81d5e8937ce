package network

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/quorate/quorate/test/harness/dns"
)

// resolverAddress is where every pod has its DNS.
const resolverAddress = "127.0.0.1"

// hostsOf returns a pod's hosts file: localhost, the pod's own hostname, and its aliases.
func hostsOf(self Pod, address string, aliases map[string]string) string {
	hostname := self.Hostname
	if hostname == "" {
		hostname = self.Name
	}
	var extra []string
	for name, address := range aliases {
		extra = append(extra, address+"\t"+name+"\n")
	}
	slices.Sort(extra)
	return "127.0.0.1\tlocalhost\n::1\tlocalhost\n" + address + "\t" + hostname + "\n" + strings.Join(extra, "")
}

// resolvConf has the search list of a cluster.
func resolvConf(namespace string) string {
	return fmt.Sprintf("nameserver %s\nsearch %s.svc.%s svc.%[3]s %[3]s\noptions ndots:5 timeout:1\n", resolverAddress,
		namespace, dns.ClusterDomain)
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

func newPodFiles(dir, namespace string) (*podFiles, error) {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, err
	}
	for name, content := range map[string]string{
		"nsswitch.conf": "hosts: files dns\n", "resolv.conf": resolvConf(namespace)} {
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
