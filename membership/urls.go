package membership

import (
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"

	pb "go.etcd.io/etcd/api/v3/etcdserverpb"

	"github.com/quorate/quorate/pkg/rollout"
)

// address is a client URL, taken apart so that spellings of the same one are equal.
type address struct{ scheme, host, port string }

// addressOf reads a URL as etcd and etcdctl write it. The scheme may be missing, and what it is does not make another
// address, but it implies a port where none is given.
func addressOf(url string) address {
	scheme, rest, ok := strings.Cut(url, "://")
	if !ok {
		scheme, rest = "", url
	}
	a := address{scheme: strings.ToLower(scheme)}
	if a.scheme == "unix" || a.scheme == "unixs" {
		a.host = rest
		return a
	}
	rest, _, _ = strings.Cut(rest, "/")
	host, port, err := net.SplitHostPort(rest)
	if err != nil {
		host, port = strings.Trim(rest, "[]"), ""
	}
	a.host, a.port = strings.TrimSuffix(strings.ToLower(host), "."), port
	if ip, err := netip.ParseAddr(host); err == nil {
		a.host = ip.Unmap().String()
	}
	return a
}

// portOf is the port of an address, where a missing scheme is taken to be the other's.
func (a address) portOf(other string) string {
	scheme := a.scheme
	if scheme == "" {
		scheme = other
	}
	switch {
	case a.port != "":
		return a.port
	case scheme == "http":
		return "80"
	case scheme == "https":
		return "443"
	}
	return ""
}

// sameURL is true for two spellings of one URL. IPv6 addresses have several, a port may be the scheme's own, and the
// scheme may be missing, as etcdctl allows.
func sameURL(x, y string) bool {
	a, b := addressOf(x), addressOf(y)
	return a.host == b.host && a.portOf(b.scheme) == b.portOf(a.scheme)
}

// hasURL is true if one of the URLs is the given one.
func hasURL(urls []string, url string) bool {
	return slices.ContainsFunc(urls, func(u string) bool { return sameURL(u, url) })
}

// distinct returns the URLs that have clients of their own, each once, in their first spelling.
func distinct(urls ...string) (once []string) {
	var keys []string
	for _, u := range urls {
		if k := key(u); !slices.Contains(keys, k) {
			keys, once = append(keys, k), append(once, u)
		}
	}
	return once
}

// key names the client for a URL. Spellings of one URL have the same key, but with TLS it is another client.
func key(url string) string {
	a := addressOf(url)
	if a.scheme == "unix" || a.scheme == "unixs" {
		return url
	}
	scheme := a.scheme
	if scheme != "" {
		scheme += "://"
	}
	return scheme + net.JoinHostPort(a.host, a.portOf(""))
}

// place is an address as several pods may share it. What every pod has for itself is at the same place in each of them.
// Other loopback addresses tell members apart that run on one machine.
func place(url string) address {
	a := addressOf(url)
	a.port, a.scheme = a.portOf(""), ""
	switch a.host {
	case "127.0.0.1", "::1", "0.0.0.0", "::":
		a.host = "localhost"
	}
	return a
}

// shared is true for a URL of a member under which other members may answer as well, because they advertise it too. It
// may be a Service, or an address that each pod has for itself, such as 0.0.0.0. Who refuses or fails there is not
// known.
func shared(members []rollout.Member, member uint64, url string) bool {
	at := place(url)
	return slices.ContainsFunc(members, func(x rollout.Member) bool {
		return x.ID != member && slices.ContainsFunc(x.ClientURLs, func(u string) bool { return place(u) == at })
	})
}

// URLs returns the client URLs on a member list, each once. Those that others answer as well come last.
func URLs(list []*pb.Member) []string { return inOrder(known(listAnswer{members: list}).Members) }

// inOrder returns the client URLs of members, each once: first those under which they have identified themselves, or
// might, and at the end those that others answer as well.
func inOrder(members []rollout.Member) []string {
	var own, others, theirs []string
	for _, x := range members {
		if x.Probe.URL != "" {
			own = append(own, x.Probe.URL)
		}
		for _, url := range x.ClientURLs {
			switch {
			case shared(members, x.ID, url):
				theirs = append(theirs, url)
			case x.Probe.URL != "":
				others = append(others, url)
			default:
				own = append(own, url)
			}
		}
	}
	return distinct(slices.Concat(own, others, theirs)...)
}

// onlyShared tells what is wrong with a member all of whose URLs are shared.
func onlyShared(urls []string) string {
	return fmt.Sprintf("it advertises only addresses that several members answer (%s); set --advertise-client-urls "+
		"to the pod's own name", strings.Join(urls, ", "))
}
