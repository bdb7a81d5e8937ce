package network

import (
	"maps"
	"net/netip"
	"strconv"
	"strings"
	"sync"
)

const (
	hubHost  = 1   // last octet of the hub
	firstPod = 10  // last octet of ordinal 0, which is easy to recognise in logs
	lastPod  = 253 // .254 and .255 stay free
	maxSets  = 256 // values of the third octet
)

// allocator gives every pod name one address of a /16, for ever. The third octet stands for the set
// that the pod belongs to, in the order in which sets are first seen. Addresses of the next /16 are
// given once.
type allocator struct {
	base [2]byte

	mu     sync.Mutex
	sets   map[string]byte
	byName map[string]netip.Addr
	given  uint16
}

func newAllocator(a, b byte) *allocator {
	return &allocator{base: [2]byte{a, b}, sets: map[string]byte{}, byName: map[string]netip.Addr{}}
}

func (a *allocator) address(set, host byte) netip.Addr {
	return netip.AddrFrom4([4]byte{a.base[0], a.base[1], set, host})
}

func (a *allocator) hub() netip.Addr { return a.address(0, hubHost) }

// of returns the address of a pod name. A name that ends in an ordinal gets .10 + ordinal, beside the
// other ordinals of its set; any other name is a set of its own. It returns false when there are too
// many sets.
func (a *allocator) of(podKey string) (netip.Addr, bool) {
	set, host := podKey, byte(firstPod)
	if i := strings.LastIndexByte(podKey, '-'); i >= 0 {
		if ordinal, err := strconv.ParseUint(podKey[i+1:], 10, 8); err == nil && ordinal <= lastPod-firstPod {
			set, host = podKey[:i]+"-*", firstPod+byte(ordinal)
		}
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	third, ok := a.sets[set]
	if !ok {
		if len(a.sets) == maxSets {
			return netip.Addr{}, false
		}
		third = byte(len(a.sets))
		a.sets[set] = third
	}
	a.byName[podKey] = a.address(third, host)
	return a.byName[podKey], true
}

// fresh returns the next address that nobody has. It was not given for a long time.
func (a *allocator) fresh(taken func(netip.Addr) bool) netip.Addr {
	a.mu.Lock()
	defer a.mu.Unlock()
	for {
		a.given = max(a.given+1, 1)
		address := netip.AddrFrom4([4]byte{a.base[0], a.base[1] + 1, byte(a.given >> 8), byte(a.given)})
		if !taken(address) {
			return address
		}
	}
}

// known returns the addresses given so far.
func (a *allocator) known() map[string]netip.Addr {
	a.mu.Lock()
	defer a.mu.Unlock()
	return maps.Clone(a.byName)
}
