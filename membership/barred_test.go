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
	"google.golang.org/grpc/credentials"

	"github.com/quorate/quorate/membership"
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
	t.Logf("%v", err)
	t.Logf("%v", m.Detail)
	if err == nil || !strings.Contains(m.Detail, "x509: certificate has expired") {
		t.Errorf("%q does not name the certificate; the error is %v", m.Detail, err)
	}
}
