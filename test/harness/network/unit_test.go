package network

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestAllocator(t *testing.T) {
	t.Run("an ordinal gives .10 plus the ordinal", func(t *testing.T) {
		a := newAllocator(10, 1)
		for _, x := range [][2]string{{"ns/etcd-main-0", "10.1.0.10"}, {"ns/etcd-main-2", "10.1.0.12"},
			{"ns/other-2", "10.1.1.12"}, {"ns/etcd-main-1", "10.1.0.11"}} {
			got, ok := a.of(x[0])
			require.True(t, ok)
			require.Equal(t, x[1], got.String(), x[0])
		}
	})
	t.Run("a name keeps its address whatever comes later", func(t *testing.T) {
		a := newAllocator(10, 1)
		first, _ := a.of("ns/a-0")
		other, _ := a.of("ns/b-0")
		again, _ := a.of("ns/a-0")
		require.Equal(t, first, again)
		require.NotEqual(t, first, other)
	})
	t.Run("no two names share an address and the end of the range is reported", func(t *testing.T) {
		a := newAllocator(10, 1)
		seen := map[netip.Addr]string{a.hub(): "hub"}
		for i := range maxSets {
			// Even sets have ordinals, odd ones are a single pod without.
			names := []string{"ns/" + strings.Repeat("x", i)}
			if i%2 == 0 {
				names = []string{fmt.Sprintf("ns/set%d-0", i), fmt.Sprintf("ns/set%d-243", i)}
			}
			for _, name := range names {
				address, ok := a.of(name)
				require.True(t, ok, name)
				require.NotContains(t, seen, address, name)
				seen[address] = name
			}
		}
		_, ok := a.of("ns/one-too-many")
		require.False(t, ok)
		_, ok = a.of("ns/set0-1")
		require.True(t, ok, "a set that has its range")
	})
	t.Run("a fresh address is nobody's, and not given again before all others", func(t *testing.T) {
		a := newAllocator(10, 2)
		nobody := func(netip.Addr) bool { return false }
		first := a.fresh(nobody)
		require.Equal(t, "10.3.0.1", first.String())
		for range 1<<16 - 2 {
			require.NotEqual(t, first, a.fresh(nobody))
		}
		require.Equal(t, "10.3.0.2", a.fresh(func(of netip.Addr) bool { return of == first }).String())
	})
	t.Run("ordinals outside the range get a free address", func(t *testing.T) {
		a := newAllocator(10, 1)
		for _, name := range []string{"ns/a-244", "ns/a-255", "ns/a-100000", "ns/a--1", "ns/a-"} {
			address, ok := a.of(name)
			require.True(t, ok, name)
			require.GreaterOrEqual(t, address.As4()[3], byte(firstPod), name)
			require.LessOrEqual(t, address.As4()[3], byte(lastPod), name)
		}
	})
}

func TestNames(t *testing.T) {
	self := Pod{Namespace: "ns", Name: "etcd-0", UID: "1", Hostname: "etcd-0", Subdomain: "etcd-peer"}
	peer := Pod{Namespace: "ns", Name: "etcd-1", UID: "2", Hostname: "etcd-1", Subdomain: "etcd-peer"}
	foreign := Pod{Namespace: "other", Name: "etcd-0", UID: "3", Hostname: "etcd-0", Subdomain: "etcd-peer"}
	n := newResolver()
	n.set(self, netip.MustParseAddr("10.0.0.10"))
	n.set(peer, netip.MustParseAddr("10.0.0.11"))
	n.set(foreign, netip.MustParseAddr("10.0.0.12"))
	n.set(Pod{Namespace: "ns", Name: "job", UID: "4"}, netip.MustParseAddr("10.0.0.13"))
	require.NoError(t, n.SetService("ns", "etcd-client", []string{"10.0.0.10", "10.0.0.11"}))
	require.NoError(t, n.Redirect("etcd-1.etcd-peer.ns.svc", "10.0.0.10"))
	for name, want := range map[string]string{
		"etcd-1.etcd-peer.ns.svc.cluster.local":    "[10.0.0.10]", // redirected
		"etcd-0.etcd-peer.other.svc.cluster.local": "[10.0.0.12]",
		"etcd-1.ns.svc.cluster.local":              "[]",
		"job.ns.svc.cluster.local":                 "[]", // has no subdomain
		"etcd-client.ns.svc.cluster.local":         "[10.0.0.10 10.0.0.11]",
		"quorate.dev":                              "[]",
	} {
		t.Run(fmt.Sprintf("%s resolves to %s", name, want), func(t *testing.T) {
			require.Equal(t, want, fmt.Sprint(n.Find(name)))
		})
	}
	t.Run("what is withdrawn is unknown", func(t *testing.T) {
		n.set(self, netip.Addr{})
		require.Empty(t, n.Find("etcd-0.etcd-peer.ns.svc.cluster.local"))
		require.NoError(t, n.SetService("ns", "etcd-client", nil))
		require.Empty(t, n.Find("etcd-client.ns.svc.cluster.local"))
		require.NoError(t, n.Redirect("etcd-1.etcd-peer.ns.svc", ""))
		require.Equal(t, "[10.0.0.11]", fmt.Sprint(n.Find("etcd-1.etcd-peer.ns.svc.cluster.local")))
		require.Error(t, n.Redirect("etcd-1.etcd-peer.ns.svc", "nonsense"))
	})
}

func TestLoopback(t *testing.T) {
	newLoopback := func(t *testing.T) *Loopback {
		l, err := NewLoopback()
		require.NoError(t, err)
		t.Cleanup(func() { l.Close() })
		return l
	}
	t.Run("two harnesses never have the same range", func(t *testing.T) {
		l := newLoopback(t)
		base := l.addresses.base
		_, err := claimRange(base[1])
		require.Error(t, err)
		require.NoError(t, l.Close())
		claim, err := claimRange(base[1])
		require.NoError(t, err, "free again after Close")
		claim.Close()
	})
	t.Run("a port that is taken on all addresses has another one in its place", func(t *testing.T) {
		l := newLoopback(t)
		free, err := l.Ports(0)
		require.NoError(t, err)
		everywhere, err := net.Listen("tcp4", "0.0.0.0:0")
		require.NoError(t, err)
		defer everywhere.Close()
		taken := everywhere.Addr().(*net.TCPAddr).Port

		ports, err := l.Ports(taken, free[0], free[0])
		require.NoError(t, err)
		require.Equal(t, free[0], ports[1], "what is free is had")
		for _, port := range []int{ports[0], ports[2]} {
			require.NotContains(t, []int{taken, free[0]}, port)
		}
		require.NotEqual(t, ports[0], ports[2])
		for i, port := range ports {
			listener, err := net.Listen("tcp",
				net.JoinHostPort(l.AddressOf("ns", fmt.Sprintf("etcd-%d", i)), strconv.Itoa(port)))
			require.NoError(t, err, "a pod can listen on it")
			defer listener.Close()
		}
	})
	t.Run("a pod's name cannot be attached twice at a time, because the address is the name's", func(t *testing.T) {
		ctx, n := context.Background(), newLoopback(t)
		old, new := Pod{Namespace: "ns", Name: "etcd-0", UID: "old"}, Pod{Namespace: "ns", Name: "etcd-0", UID: "new"}
		first, err := n.Attach(ctx, old)
		require.NoError(t, err)
		again, err := n.Attach(ctx, old)
		require.NoError(t, err, "attaching again is no error")
		require.Equal(t, first.IP, again.IP)
		_, err = n.Attach(ctx, new)
		require.ErrorContains(t, err, "UID old")
		require.NoError(t, n.Detach(ctx, new), "not attached: nothing to do")
		_, err = n.Attach(ctx, new)
		require.Error(t, err, "the old one is still there")
		require.NoError(t, n.Detach(ctx, old))
		second, err := n.Attach(ctx, new)
		require.NoError(t, err)
		require.Equal(t, first.IP, second.IP)
	})
}
