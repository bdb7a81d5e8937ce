package pki_test

import (
	"context"
	"crypto/ecdsa"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"k8s.io/client-go/util/keyutil"

	"github.com/quorate/quorate/test/harness/pki"
)

func TestIssue(t *testing.T) {
	ca, err := pki.NewCA("test-ca")
	require.NoError(t, err)

	t.Run("a server and a client of one authority accept each other", func(t *testing.T) {
		user, err := request(t, serve(t, ca, ca), ca, ca, "member-0.peer.ns.svc")
		require.NoError(t, err)
		require.Equal(t, "alice [admins ops]", user)
	})
	t.Run("a server under a name that is not in its certificate is refused", func(t *testing.T) {
		_, err := request(t, serve(t, ca, ca), ca, ca, "other.example")
		var wrongName x509.HostnameError
		require.ErrorAs(t, err, &wrongName)
	})
	t.Run("a server of another authority of the same name is refused", func(t *testing.T) {
		other, err := pki.NewCA("test-ca")
		require.NoError(t, err)
		_, err = request(t, serve(t, other, ca), ca, ca, "member-0.peer.ns.svc")
		var unknown x509.UnknownAuthorityError
		require.ErrorAs(t, err, &unknown)
	})
	t.Run("a client of another authority is refused", func(t *testing.T) {
		other, err := pki.NewCA("test-ca")
		require.NoError(t, err)
		_, err = request(t, serve(t, ca, ca), ca, other, "member-0.peer.ns.svc")
		require.Error(t, err)
	})
	t.Run("a certificate is valid from an hour ago for a day, within the life of its authority", func(t *testing.T) {
		before := time.Now()
		certPEM, _, err := ca.Issue(pki.Request{CommonName: "x", Client: true})
		require.NoError(t, err)
		cert, authority := parse(t, certPEM), parse(t, ca.CertPEM())
		require.WithinRange(t, cert.NotBefore, before.Add(-time.Hour-time.Second),
			time.Now().Add(-time.Hour+time.Second))
		require.WithinRange(t, cert.NotAfter, before.Add(24*time.Hour-time.Second), time.Now().Add(24*time.Hour))
		require.True(t, authority.NotAfter.After(cert.NotAfter))
		require.NotZero(t, cert.SerialNumber.Sign())
	})
	t.Run("a client certificate cannot serve", func(t *testing.T) {
		certPEM, _, err := ca.Issue(pki.Request{CommonName: "x", DNSNames: []string{"x"}, Client: true})
		require.NoError(t, err)
		_, err = parse(t, certPEM).
			Verify(x509.VerifyOptions{Roots: pool(ca), KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth}})
		require.Error(t, err)
	})
}

func TestWrongRequestsAreNamed(t *testing.T) {
	ca, err := pki.NewCA("test-ca")
	require.NoError(t, err)
	_, _, err = ca.Issue(pki.Request{Client: true})
	require.ErrorContains(t, err, "must specify a CommonName")
	_, _, err = ca.Issue(pki.Request{CommonName: "x"})
	require.ErrorContains(t, err, `"x": must specify at least one ExtKeyUsage`)
	_, _, err = ca.Issue(pki.Request{CommonName: "x", Server: true})
	require.ErrorContains(t, err, "DNSNames and IPs are empty")
}

func TestTheHalvesOfASigningKeyBelongTogether(t *testing.T) {
	private, public, err := pki.NewSigningKey()
	require.NoError(t, err)
	key, err := keyutil.ParsePrivateKeyPEM(private)
	require.NoError(t, err)
	halves, err := keyutil.ParsePublicKeysPEM(public)
	require.NoError(t, err)
	require.Len(t, halves, 1)
	require.True(t, key.(*ecdsa.PrivateKey).PublicKey.Equal(halves[0]))
}

// serve runs an HTTPS server whose certificate comes from serverCA and that demands
// client certificates of clientCA. It returns its address.
func serve(t *testing.T, serverCA, clientCA *pki.CA) string {
	t.Helper()
	certPEM, keyPEM, err := serverCA.Issue(pki.Request{
		CommonName: "server", DNSNames: []string{"*.peer.ns.svc"}, IPs: []net.IP{net.IPv4(127, 0, 0, 1)}, Server: true,
	})
	require.NoError(t, err)
	pair, err := tls.X509KeyPair(certPEM, keyPEM)
	require.NoError(t, err)
	listener, err := tls.Listen("tcp", "127.0.0.1:0", &tls.Config{
		Certificates: []tls.Certificate{pair}, ClientCAs: pool(clientCA), ClientAuth: tls.RequireAndVerifyClientCert,
	})
	require.NoError(t, err)
	server := &http.Server{
		ReadHeaderTimeout: time.Minute,
		Handler: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			subject := r.TLS.PeerCertificates[0].Subject
			// The encoding of a certificate does not keep the order of the groups.
			slices.Sort(subject.Organization)
			_, _ = fmt.Fprint(w, subject.CommonName, " ", subject.Organization)
		}),
	}
	served := make(chan struct{})
	go func() {
		defer close(served)
		_ = server.Serve(listener)
	}()
	t.Cleanup(func() {
		_ = server.Close()
		<-served
	})
	return listener.Addr().String()
}

// request asks the server, expected under serverName and trusted through roots, with a
// client certificate of clientCA.
func request(t *testing.T, address string, roots, clientCA *pki.CA, serverName string) (string, error) {
	t.Helper()
	certPEM, keyPEM, err := clientCA.Issue(pki.Request{CommonName: "alice",
		Organizations: []string{"admins", "ops"}, Client: true})
	require.NoError(t, err)
	pair, err := tls.X509KeyPair(certPEM, keyPEM)
	require.NoError(t, err)
	transport := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: pool(roots),
		Certificates: []tls.Certificate{pair}, ServerName: serverName}}
	defer transport.CloseIdleConnections()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "https://"+address, nil)
	require.NoError(t, err)
	response, err := transport.RoundTrip(req)
	if err != nil {
		return "", err
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	return string(body), err
}

func pool(ca *pki.CA) *x509.CertPool {
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(ca.CertPEM())
	return pool
}

func parse(t *testing.T, certPEM []byte) *x509.Certificate {
	t.Helper()
	block, _ := pem.Decode(certPEM)
	require.NotNil(t, block)
	cert, err := x509.ParseCertificate(block.Bytes)
	require.NoError(t, err)
	return cert
}
