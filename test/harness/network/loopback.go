package network

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"strconv"
	"sync"
	"syscall"
)

// loopbackRanges are all second octets but 0 and 255: 127.0.x.y is where machines keep services of their own.
const loopbackRanges = 254

// Loopback is the [Network] without privileges: addresses of 127.0.0.0/8, which
// Linux routes to lo without any set-up.
//
// It resolves no names and keeps nothing apart: the addresses go into arguments, configuration
// and certificates, and SetHosts has no effect. A pod's own connections come from 127.0.0.1
// unless it binds them, so a listener cannot tell pods by address.
type Loopback struct {
	addresses *allocator
	claim     net.Listener

	mu       sync.Mutex
	attached map[string]Pod
}

var _ Network = (*Loopback)(nil)

// NewLoopback picks a random free 127.A.0.0/16; the hub is .0.1. Other harnesses on the
// machine do not pick the same until Close.
func NewLoopback() (*Loopback, error) {
	for _, n := range rand.Perm(loopbackRanges) {
		a := byte(1 + n)
		claim, err := claimRange(a)
		if errors.Is(err, syscall.EADDRINUSE) {
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("claim loopback range 127.%d.0.0/16: %w", a, err)
		}
		return &Loopback{addresses: newAllocator(127, a), claim: claim, attached: map[string]Pod{}}, nil
	}
	return nil, fmt.Errorf("all %d ranges of 127.0.0.0/8 are taken; are other harnesses left running?", loopbackRanges)
}

// claimRange takes the range for this process: the name of an abstract socket exists
// once in a network namespace, and the kernel frees it when the process ends.
func claimRange(a byte) (net.Listener, error) {
	return net.Listen("unix", fmt.Sprintf("@quorate-harness-127.%d", a))
}

// Ports returns ports on which every pod can listen at its own address: those that are
// wanted, and a free one in the place of each that cannot be had. A server of the machine
// that listens on all addresses (0.0.0.0 or ::) has taken its port in every range. No port
// is returned twice.
func (l *Loopback) Ports(wanted ...int) ([]int, error) {
	ports := make([]int, len(wanted))
	for i, port := range wanted {
		listener, err := l.listen(port)
		if err != nil {
			listener, err = l.listen(0)
		}
		if err != nil {
			return nil, fmt.Errorf("find a free port on loopback addresses in the place of %d: %w", port, err)
		}
		defer listener.Close() // Not before the others are found: they must be other ones.
		ports[i] = listener.Addr().(*net.TCPAddr).Port
	}
	return ports, nil
}

func (l *Loopback) listen(port int) (net.Listener, error) {
	return net.Listen("tcp", net.JoinHostPort(l.HubAddress(), strconv.Itoa(port)))
}

// HubAddress implements [Network].
func (l *Loopback) HubAddress() string { return l.addresses.hub().String() }

// AddressOf implements [Network].
func (l *Loopback) AddressOf(namespace, podName string) string {
	address, ok := l.addresses.of(key(namespace, podName))
	if !ok {
		return ""
	}
	return address.String()
}

// Attach implements [Network].
func (l *Loopback) Attach(_ context.Context, pod Pod) (Attachment, error) {
	address, ok := l.addresses.of(key(pod.Namespace, pod.Name))
	if !ok {
		return Attachment{}, errNoAddress(pod)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if other, ok := l.attached[key(pod.Namespace, pod.Name)]; ok && other.UID != pod.UID {
		return Attachment{}, errStillAttached(pod, other)
	}
	l.attached[key(pod.Namespace, pod.Name)] = pod
	return Attachment{IP: address.String(), Dial: (&net.Dialer{}).DialContext}, nil
}

// Detach implements [Network].
func (l *Loopback) Detach(_ context.Context, pod Pod) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.attached[key(pod.Namespace, pod.Name)].UID == pod.UID {
		delete(l.attached, key(pod.Namespace, pod.Name))
	}
	return nil
}

// SetHosts implements [Network]. It has no effect: there are no names in loopback mode.
func (l *Loopback) SetHosts(string, string, map[string]string) {}

// Close implements [Network].
func (l *Loopback) Close() error { return l.claim.Close() }

func errNoAddress(pod Pod) error {
	return fmt.Errorf("attach pod %s: the network has had %d sets of pods; start another one for more",
		key(pod.Namespace, pod.Name), maxSets)
}

func errStillAttached(pod, other Pod) error {
	return fmt.Errorf("attach pod %s (UID %s): its name is still attached for UID %s; detach that one first",
		key(pod.Namespace, pod.Name), pod.UID, other.UID)
}
