package kubelet

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"time"
)

// container is one that the runtime of a node has.
type container struct {
	// pod is namespace/name, and name is empty for the sandbox.
	pod, name string
	group     string
	made      time.Time
}

// containers reads what containers there are on a node, from the files of its runtime. That is quicker than to ask the
// API server, and works when that is away.
type containers struct {
	mu    sync.Mutex
	known map[string]container // by the path of its file
}

// on are the containers of a node. The process is the node's first.
func (c *containers) on(first int) []container {
	tasks := fmt.Sprintf("/proc/%d/root/run/containerd/io.containerd.runtime.v2.task/k8s.io", first)
	paths, _ := filepath.Glob(filepath.Join(tasks, "*", "config.json")) // The pattern is ours.
	c.mu.Lock()
	defer c.mu.Unlock()
	var found []container
	for _, path := range paths {
		one, known := c.known[path]
		if !known {
			var ok bool
			if one, ok = readContainer(path); !ok {
				continue // It is being made, or removed.
			}
			c.known[path] = one
		}
		found = append(found, one)
	}
	return found
}

func readContainer(path string) (container, bool) {
	info, err := os.Stat(path)
	if err != nil {
		return container{}, false
	}
	text, err := os.ReadFile(path)
	if err != nil {
		return container{}, false
	}
	var config struct {
		Annotations map[string]string
		Linux       struct{ CgroupsPath string }
	}
	if json.Unmarshal(text, &config) != nil {
		return container{}, false
	}
	of := func(key string) string { return config.Annotations["io.kubernetes.cri."+key] }
	return container{pod: of("sandbox-namespace") + "/" + of("sandbox-name"), name: of("container-name"),
		group: config.Linux.CgroupsPath, made: info.ModTime()}, true
}
