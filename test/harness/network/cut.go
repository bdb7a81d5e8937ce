package network

import (
	"bytes"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strings"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// nobody is a hardware address that no interface has. A permanent neighbour entry with
// it sends packets where nobody takes them: they are lost without an error for the
// sender, on connections that exist as well, and it needs nothing of the kernel beyond
// what Ethernet needs anyway.
var nobody = net.HardwareAddr{0x02, 0x51, 0x00, 0x00, 0x00, 0x00}

// cuts says who is separated from whom. Endpoints are "hub" and "namespace/name".
type cuts struct {
	pairs    map[[2]string]bool
	isolated map[string]bool
}

func newCuts() cuts {
	return cuts{pairs: map[[2]string]bool{}, isolated: map[string]bool{}}
}

func pair(a, b string) [2]string {
	if b < a {
		a, b = b, a
	}
	return [2]string{a, b}
}

func (c cuts) separate(a, b string) bool {
	return c.isolated[a] || c.isolated[b] || c.pairs[pair(a, b)]
}

// Cut silently drops everything between two endpoints, in both directions and on
// existing connections too, until [Namespaces.Heal]. An endpoint is [Hub], or a pod as
// namespace/name; the name alone will do when only one namespace has it. A cut belongs
// to the names: it holds for a pod's successors.
//
// The node's own probes reach a pod all the same, see Attachment.Dial.
//
// An endpoint that has never had an address is an error: the name is most likely
// misspelt.
func (n *Namespaces) Cut(a, b string) error {
	return n.changeCuts("cut", func(endpoints []string) error {
		if endpoints[0] == endpoints[1] {
			return errors.New("an endpoint cannot be cut off from itself")
		}
		n.cuts.pairs[pair(endpoints[0], endpoints[1])] = true
		return nil
	}, a, b)
}

// Heal undoes the Cut between two endpoints. Where there is none it does nothing. An
// isolated pod stays isolated, see [Namespaces.Rejoin].
func (n *Namespaces) Heal(a, b string) error {
	return n.changeCuts("heal", func(endpoints []string) error {
		delete(n.cuts.pairs, pair(endpoints[0], endpoints[1]))
		return nil
	}, a, b)
}

// Isolate cuts a pod off from the hub and all other pods, also from those that come
// later, until [Namespaces.Rejoin].
func (n *Namespaces) Isolate(pod string) error {
	return n.changeCuts("isolate", func(endpoints []string) error {
		n.cuts.isolated[endpoints[0]] = true
		return nil
	}, pod)
}

// Rejoin undoes Isolate. Links that were cut one by one stay cut.
func (n *Namespaces) Rejoin(pod string) error {
	return n.changeCuts("rejoin", func(endpoints []string) error {
		delete(n.cuts.isolated, endpoints[0])
		return nil
	}, pod)
}

func (n *Namespaces) changeCuts(verb string, change func(endpoints []string) error, names ...string) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.hub == nil {
		return fmt.Errorf("%s: the network is closed", verb)
	}
	endpoints := make([]string, 0, len(names))
	for _, name := range names {
		endpoint, err := n.endpoint(name)
		if err != nil {
			return fmt.Errorf("%s: %w", verb, err)
		}
		endpoints = append(endpoints, endpoint)
	}
	if err := change(endpoints); err != nil {
		return fmt.Errorf("%s %s: %w", verb, strings.Join(names, ", "), err)
	}
	if err := n.applyCuts(); err != nil {
		return fmt.Errorf("%s %s: %w", verb, strings.Join(names, ", "), err)
	}
	return nil
}

// endpoint returns the full name of an endpoint.
func (n *Namespaces) endpoint(name string) (string, error) {
	if name == Hub {
		return Hub, nil
	}
	found := ""
	for podKey := range n.addresses.known() {
		if podKey == name {
			return podKey, nil
		}
		if strings.HasSuffix(podKey, "/"+name) {
			if found != "" {
				return "", fmt.Errorf("endpoint %q is ambiguous: %s and %s; give namespace/name", name, found, podKey)
			}
			found = podKey
		}
	}
	if found == "" {
		return "",
			fmt.Errorf("endpoint %q: no pod of that name has ever had an address; give %q, a pod's name, or "+
				"namespace/name", name, Hub)
	}
	return found, nil
}

// applyCuts makes the neighbour tables of all stations say what n.cuts says, and who has the address of a name.
func (n *Namespaces) applyCuts() error {
	// Whose an address is, and where packets for it belong.
	type end struct {
		name     string
		hardware net.HardwareAddr
		moves    bool // to a successor
	}
	ends := map[netip.Addr]end{n.addresses.hub(): {name: Hub, hardware: hardwareAddress(n.addresses.hub())}}
	for podKey, lasting := range n.addresses.known() {
		ends[lasting] = end{name: podKey, moves: true}
	}
	stations := map[*station]string{n.hub: Hub}
	for id, attached := range n.pods {
		stations[attached.station] = id.key
		hardware := hardwareAddress(attached.address)
		ends[attached.address] = end{name: id.key, hardware: hardware}
		if n.newest[id.key] == attached {
			ends[attached.lasting] = end{name: id.key, hardware: hardware, moves: true}
		}
	}
	var errs []error
	for s, here := range stations {
		for address, there := range ends {
			if here == there.name {
				continue
			}
			cut := n.cuts.separate(here, there.name)
			if err := s.setLink(address, there.hardware, there.moves, cut); err != nil {
				errs = append(errs, fmt.Errorf("at %s, for %s (%s): %w", here, there.name, address, err))
			}
		}
		for address := range s.told {
			if _, is := ends[address]; !is { // Whoever is given it later has links.
				errs = append(errs, s.setLink(address, hardwareAddress(address), false, false))
				delete(s.told, address)
			}
		}
	}
	return errors.Join(errs...)
}

// setLink makes the station send packets for an address to nobody if it is cut, or where they belong. While nobody has
// the address, they may go anywhere. Where they belong is only to be told if it was told otherwise, or if it moves: the
// station may have found out, and remember it for a while.
func (s *station) setLink(address netip.Addr, to net.HardwareAddr, moves, cut bool) error {
	if cut {
		to = nobody
	}
	old, told := s.told[address]
	if to == nil || bytes.Equal(old, to) || !told && !cut && !moves {
		return nil
	}
	neighbour := &netlink.Neigh{
		LinkIndex: s.link.Attrs().Index, Family: unix.AF_INET, IP: address.AsSlice(), HardwareAddr: to,
		State: netlink.NUD_PERMANENT,
	}
	if !cut {
		// Not removed, but put right: it works at once, and is verified and
		// forgotten by the kernel like any other entry.
		neighbour.State = netlink.NUD_STALE
	}
	if err := s.handle.NeighSet(neighbour); err != nil {
		return fmt.Errorf("set neighbour entry: %w", err)
	}
	s.told[address] = to
	return nil
}
