package fleet

import (
	"errors"
	"fmt"
	"net"
	"sync"
)

// members is the one server of all etcd members. Each has an address of its own in
// 127.0.0.0/8, all of which Linux routes to lo, and all share one port: a connection's local
// address tells which member was meant. So the etcd clients are the production ones,
// with URLs and nothing special.
type members struct {
	listener net.Listener
	port     int
	accepted sync.WaitGroup

	mu sync.Mutex
	up map[string]*memberListener // By IP address.
}

func listenForMembers() (*members, error) {
	listener, err := net.Listen("tcp4", "0.0.0.0:0")
	if err != nil {
		return nil, fmt.Errorf("listen for the etcd members: %w", err)
	}
	m := &members{listener: listener, port: listener.Addr().(*net.TCPAddr).Port, up: map[string]*memberListener{}}
	m.accepted.Go(m.accept)
	return m, nil
}

func (m *members) close() {
	_ = m.listener.Close()
	m.accepted.Wait()
}

// accept hands each connection to its member. One that is down gets none: its connections
// end at once.
func (m *members) accept() {
	for {
		conn, err := m.listener.Accept()
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil {
			continue // A connection that was given up before it was taken.
		}
		local, _ := conn.LocalAddr().(*net.TCPAddr)
		m.mu.Lock()
		l := m.up[local.IP.String()]
		m.mu.Unlock()
		if l == nil || !l.hand(conn) {
			_ = conn.Close()
		}
	}
}

// listen begins to accept connections for a member.
func (m *members) listen(ip string) net.Listener {
	l := &memberListener{members: m, ip: ip, conns: make(chan net.Conn), closed: make(chan struct{})}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.up[ip] = l
	return l
}

// memberListener is the part of the server that is one member's.
type memberListener struct {
	members *members
	ip      string
	conns   chan net.Conn
	closed  chan struct{}
	once    sync.Once
}

func (l *memberListener) hand(conn net.Conn) bool {
	select {
	case l.conns <- conn:
		return true
	case <-l.closed:
		return false
	}
}

func (l *memberListener) Accept() (net.Conn, error) {
	select {
	case conn := <-l.conns:
		return conn, nil
	case <-l.closed:
		return nil, net.ErrClosed
	}
}

func (l *memberListener) Close() error {
	l.once.Do(func() {
		close(l.closed)
		l.members.mu.Lock()
		defer l.members.mu.Unlock()
		if l.members.up[l.ip] == l {
			delete(l.members.up, l.ip)
		}
	})
	return nil
}

func (l *memberListener) Addr() net.Addr {
	return &net.TCPAddr{IP: net.ParseIP(l.ip), Port: l.members.port}
}

// address is where a member of a cluster answers. 127.0.x.y is where machines keep services of
// their own.
func address(cluster, ordinal int) string {
	return fmt.Sprintf("127.%d.%d.%d", 101+ordinal, 1+cluster/250, 1+cluster%250)
}

// clientURL is a member's client URL on the server's port.
func clientURL(cluster, ordinal, port int) string {
	return fmt.Sprintf("http://%s:%d", address(cluster, ordinal), port)
}
