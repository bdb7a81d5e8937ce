package network

import (
	"net/netip"
	"strconv"
	"strings"
	"sync"
)

const (
	hubHost  = 1   // last octet of the hub
	firstPod = 10  // last octet of ordinal 0, which is easy to recognise in logs
	lastPod  = 253 // .254 and .255 stay free
)

// allocator gives every pod name one address of a /24, for ever.
type allocator struct {
	base [3]byte

	mu     sync.Mutex
	byName map[string]netip.Addr
	taken  [256]bool
}

func newAllocator(a, b, c byte) *allocator {
	return &allocator{base: [3]byte{a, b, c}, byName: map[string]netip.Addr{}}
}

func (a *allocator) address(host byte) netip.Addr {
	return netip.AddrFrom4([4]byte{a.base[0], a.base[1], a.base[2], host})
}

func (a *allocator) hub() netip.Addr { return a.address(hubHost) }

// of returns the address of a pod name. A name that ends in an ordinal gets
// .10 + ordinal when that is free, every other name the first free address. It
// returns false when none is left.
func (a *allocator) of(podKey string) (netip.Addr, bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if address, ok := a.byName[podKey]; ok {
		return address, true
	}
	host := firstPod
	if i := strings.LastIndexByte(podKey, '-'); i >= 0 {
		if ordinal, err := strconv.ParseUint(podKey[i+1:], 10, 8); err == nil && firstPod+int(ordinal) <= lastPod {
			host = firstPod + int(ordinal)
		}
	}
	for range lastPod - firstPod + 1 {
		if !a.taken[host] {
			a.taken[host] = true
			a.byName[podKey] = a.address(byte(host))
			return a.byName[podKey], true
		}
		if host++; host > lastPod {
			host = firstPod
		}
	}
	return netip.Addr{}, false
}

// known returns the addresses given so far.
func (a *allocator) known() map[string]netip.Addr {
	a.mu.Lock()
	defer a.mu.Unlock()
	known := make(map[string]netip.Addr, len(a.byName))
	for name, address := range a.byName {
		known[name] = address
	}
	return known
}
