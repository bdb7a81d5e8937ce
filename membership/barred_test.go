package membership_test

import (
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"math/big"
	"net"
	"strings"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/status"

	"github.com/quorate/quorate/internal/etcdtest"
	"github.com/quorate/quorate/membership"
	"github.com/quorate/quorate/pkg/rollout"
)

// expired starts a server whose certificate, which the returned pool trusts, has expired, and returns its address.
func expired(t *testing.T) (addr string, pool *x509.CertPool) {
	t.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		t.Fatal(err)
	}
	over := time.Now().Add(-time.Hour)
	template := &x509.Certificate{SerialNumber: big.NewInt(1), NotBefore: over.Add(-time.Hour), NotAfter: over,
		IPAddresses: []net.IP{net.IPv4(127, 0, 0, 1)}, IsCA: true, BasicConstraintsValid: true}
	raw, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		t.Fatal(err)
	}
	cert, err := x509.ParseCertificate(raw)
	if err != nil {
		t.Fatal(err)
	}
	pool = x509.NewCertPool()
	pool.AddCert(cert)
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	server := grpc.NewServer(grpc.Creds(credentials.NewServerTLSFromCert(
		&tls.Certificate{Certificate: [][]byte{raw}, PrivateKey: key})))
	served := make(chan struct{})
	go func() {
		defer close(served)
		_ = server.Serve(l) // Stop ends it.
	}()
	t.Cleanup(func() {
		server.Stop()
		<-served
	})
	return l.Addr().String(), pool
}

func TestAnExpiredCertificateIsNamedInTheErrorOfTheList(t *testing.T) {
	addr, pool := expired(t)
	dial := func(endpoints []string) (*clientv3.Client, error) {
		return clientv3.New(clientv3.Config{Endpoints: endpoints, TLS: &tls.Config{RootCAs: pool}, Logger: zap.NewNop()})
	}
	o := membership.NewObserver(dial, []string{"https://" + addr}, time.Second)
	defer o.Close()
	m, err := o.Observe(t.Context())
	if err == nil || m.Barred != rollout.ByCertificate ||
		!strings.Contains(m.Detail, "x509: certificate has expired") {
		t.Errorf("%q does not name the certificate; the error is %v", m.Detail, err)
	}
}

func TestWhatKeepsAnAnswerBackIsTold(t *testing.T) {
	for _, tc := range []struct {
		err  error
		want rollout.Barred
	}{
		{status.Error(codes.InvalidArgument, "etcdserver: user name is empty"), rollout.ByLogin},
		{status.Error(codes.Unauthenticated, "etcdserver: invalid auth token"), rollout.ByLogin},
		{status.Error(codes.Unavailable, "connection error: desc = \"transport: authentication handshake failed: "+
			"remote error: tls: bad certificate\""), rollout.ByCertificate},
		{status.Error(codes.Unavailable, "etcdserver: no leader"), 0},
	} {
		c := etcdtest.Start(t, 3)
		o := newObserver(t, c, generous, c.URL(0))
		c.Set(func(_ *etcdtest.Cluster, ms []*etcdtest.Member) { ms[1].ReadErr, ms[1].StatusErr = tc.err, tc.err })
		if p := observe(t, o).Members[1].Probe; p.Barred != tc.want || p.Read == rollout.Answered {
			t.Errorf("%v: barred %d, want %d (%s)", tc.err, p.Barred, tc.want, p.Detail)
		}
	}
}

func TestADumpTellsWhatKeepsAnAnswerBack(t *testing.T) {
	m, err := membership.Dump{
		MemberList:     []byte(`{"header":{"cluster_id":7},"members":[{"ID":1,"name":"a","clientURLs":["https://a:2379"]}]}`),
		EndpointHealth: []byte(`[{"endpoint":"https://a:2379","health":false,"error":"x509: certificate has expired"}]`),
	}.Membership()
	if err != nil || m.Members[0].Probe.Barred != rollout.ByCertificate {
		t.Errorf("%+v, %v", m.Members, err)
	}
}

func TestADumpWithHexadecimalIDsSaysWhichOptionToLeaveOut(t *testing.T) {
	_, err := membership.Dump{MemberList: []byte(`{"header":{"cluster_id":"7","member_id":"3e8","raft_term":5},` +
		`"members":[{"ID":"3e8","name":"a","peerURLs":[],"clientURLs":[]}]}`)}.Membership()
	if err == nil || !strings.Contains(err.Error(), "leave out --hex") {
		t.Errorf("got %v", err)
	}
}
