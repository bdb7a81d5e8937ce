package membership_test

import (
	"net"

	"github.com/quorate/quorate/internal/etcdtest"
)

// serveEtcd serves an etcd with a single member.
func serveEtcd() (url string, stop func()) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		panic(err)
	}
	url = "http://" + l.Addr().String()
	return url, etcdtest.New(etcdtest.ID, url).Serve(0, l)
}
