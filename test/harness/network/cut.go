package network

import (
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

// HealAll undoes every Cut and Isolate.
func (n *Namespaces) HealAll() error {
	return n.changeCuts("heal all", func([]string) error {
		n.cuts = newCuts()
		return nil
	})
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

// applyCuts makes the neighbour tables of all stations say what n.cuts says.
func (n *Namespaces) applyCuts() error {
	addresses := n.addresses.known()
	addresses[Hub] = n.addresses.hub()
	stations := map[string]*station{Hub: n.hub}
	for podKey, attached := range n.pods {
		stations[podKey] = attached.station
	}
	var errs []error
	for here, s := range stations {
		for there, address := range addresses {
			if here == there {
				continue
			}
			if cut := n.cuts.separate(here, there); cut != s.deaf[address] {
				if err := s.setDeaf(address, cut); err != nil {
					errs = append(errs, fmt.Errorf("at %s, for %s (%s): %w", here, there, address, err))
				}
			}
		}
	}
	return errors.Join(errs...)
}

// setDeaf makes the station send packets for an address to nobody, or where they belong.
func (s *station) setDeaf(address netip.Addr, deaf bool) error {
	neighbour := &netlink.Neigh{
		LinkIndex:    s.link.Attrs().Index,
		Family:       unix.AF_INET,
		IP:           address.AsSlice(),
		HardwareAddr: nobody,
		State:        netlink.NUD_PERMANENT,
	}
	if !deaf {
		// Not removed, but put right: it works at once, and is verified and
		// forgotten by the kernel like any other entry.
		neighbour.HardwareAddr = hardwareAddress(address)
		neighbour.State = netlink.NUD_STALE
	}
	if err := s.handle.NeighSet(neighbour); err != nil {
		return fmt.Errorf("set neighbour entry: %w", err)
	}
	if deaf {
		s.deaf[address] = true
	} else {
		delete(s.deaf, address)
	}
	return nil
}
