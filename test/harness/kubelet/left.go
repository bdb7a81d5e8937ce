package kubelet

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/vishvananda/netlink"
)

// Machine is what nodes could leave behind, as this program sees it: links, mounts, control groups, sysctls, and
// processes. Whoever looks before they start and after they have ended can compare.
type Machine map[string][]string

// Look looks at the machine. Processes are those whose command lines name the folder dir, and control groups those of
// this program, or of every one that runs nodes.
func Look(dir string, everybody bool) (Machine, error) {
	m := Machine{}
	links, err := netlink.LinkList()
	if err != nil {
		return nil, err
	}
	for _, link := range links {
		m["links"] = append(m["links"], link.Attrs().Name)
	}
	mounts, err := os.ReadFile("/proc/thread-self/mounts")
	if err != nil {
		return nil, err
	}
	m["mounts"] = strings.Split(string(mounts), "\n")
	all, err := hierarchies()
	if err != nil {
		return nil, err
	}
	groups := "quorate-*"
	if !everybody {
		groups = fmt.Sprintf("quorate-%d-*", os.Getpid())
	}
	for _, h := range all {
		found, _ := filepath.Glob(filepath.Join(h, groups)) // The pattern is ours.
		m["groups"] = append(m["groups"], found...)
	}
	for name := range covered {
		value, err := os.ReadFile(filepath.Join("/proc/sys", name))
		if err != nil {
			return nil, err
		}
		m[name] = []string{string(value)}
	}
	m["processes"] = processesOf(dir)
	return m, nil
}

// processesOf are the command lines of all processes but this one that name a folder.
func processesOf(dir string) (found []string) {
	lines, _ := filepath.Glob("/proc/[0-9]*/cmdline") // The pattern is ours.
	for _, path := range lines {
		text, err := os.ReadFile(path)
		if err == nil && strings.Contains(string(text), dir) && path != fmt.Sprintf("/proc/%d/cmdline", os.Getpid()) {
			found = append(found, strings.ReplaceAll(string(text), "\x00", " "))
		}
	}
	return found
}
