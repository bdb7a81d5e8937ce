package coordinator

import (
	"context"
	"errors"
	"net"
	"net/url"
	"slices"
	"sync"
	"syscall"

	"github.com/quorate/quorate/internal/workload"
	"github.com/quorate/quorate/pkg/rollout"
)

// knock finds out which pods can be heard whose kubelets say that etcd does not run or is not ready. It connects to
// their own addresses while the members are asked, so that both belong to the same look. A connection that is refused
// comes from the pod's own network or from its node: no Service and no proxy has a part in it. So the kubelet's word
// is no news from before a cut. An address that accepts has a process, or a proxy, behind it, and then the kubelet's
// word is not to be relied on either.
//
// It needs no member list. The ports are those of etcd's URLs, as far as they are known.
func (c *Coordinator) knock(ctx context.Context, seen workload.Observation, urls []string) (heard func() []string) {
	ctx, cancel := context.WithTimeout(ctx, c.cfg.ProbeTimeout)
	ports := portsOf(slices.Concat(urls, c.addresses()))
	var knocking sync.WaitGroup
	var mu sync.Mutex
	var refused, accepted []string
	try := func(uid, host string, own bool) {
		for _, port := range ports {
			knocking.Go(func() {
				err := c.cfg.connect(ctx, net.JoinHostPort(host, port))
				mu.Lock()
				defer mu.Unlock()
				switch {
				case errors.Is(err, syscall.ECONNREFUSED):
					refused = append(refused, uid)
				case err == nil && own:
					accepted = append(accepted, uid)
				}
			})
		}
	}
	for i := range seen.Pods {
		p := &seen.Pods[i]
		if !p.Owned || p.Terminating || p.Node == "" || p.Etcd.Ready {
			continue
		}
		at := seen.Addresses(p.UID)
		for _, ip := range at.Pod {
			try(p.UID, ip, true)
		}
		for _, ip := range at.Host {
			try(p.UID, ip, false)
		}
	}
	return func() []string {
		knocking.Wait()
		cancel()
		return slices.DeleteFunc(refused, func(uid string) bool { return slices.Contains(accepted, uid) })
	}
}

// portsOf are the ports of URLs, each once.
func portsOf(urls []string) []string {
	var ports []string
	for _, u := range urls {
		parsed, err := url.Parse(u)
		if err != nil || parsed.Port() == "" {
			continue
		}
		ports = append(ports, parsed.Port())
	}
	slices.Sort(ports)
	return slices.Compact(ports)
}

// withHeard notes in a copy of the pods which ones have been heard.
func withHeard(pods []rollout.Pod, heard []string) []rollout.Pod {
	if len(heard) == 0 {
		return pods
	}
	pods = slices.Clone(pods)
	for i := range pods {
		pods[i].Heard = slices.Contains(heard, pods[i].UID)
	}
	return pods
}
